//! Splits an object into source blocks and symbols.

use std::ops::Range;

use umbel_wire::{Oti, Scheme};

use crate::FecError;

/// Most source symbols in a RaptorQ block, K'_max [RFC 6330 §5.1.2].
pub(crate) const RAPTORQ_MAX_SYMBOLS: u32 = 56_403;
/// Encoding symbols of a RaptorQ block that its 24-bit ESI can number [RFC 6330 §3.2].
pub(crate) const RAPTORQ_MAX_ENCODING_SYMBOLS: u32 = 1 << 24;
/// Encoding symbols in a Reed–Solomon block: n of the code over GF(2^8) [RFC 5510 §8.2.1].
pub(crate) const REED_SOLOMON_MAX_SYMBOLS: u32 = 255;

/// Most bytes of an object whose length a 48-bit field says [RFC 5445 §3.2.2, RFC 5510 §5.1.3].
const MAX_LEN_48_BITS: u64 = (1 << 48) - 1;
/// Most bytes of an object in RaptorQ: 56,403 symbols of 65,535 bytes in each of 255 blocks
/// [RFC 6330 §4.4.1.2, erratum 5548].
const RAPTORQ_MAX_LEN: u64 = 942_574_504_275;

/// Which bytes of an object make which source symbol of which block [RFC 5052 §9.1].
///
/// All blocks have the same number of symbols, or the first ones have one more than the others,
/// so that nothing depends on where in the object a block is. RaptorQ's own rule
/// [RFC 6330 §4.4.1.2] comes to the same; its blocks are not split into sub-blocks (N = 1).
///
/// Every method takes constant time. A block number or symbol ID that the object does not have
/// gives 0 or an empty range at the object's end.
///
/// ```
/// use umbel_fec::Partition;
/// use umbel_wire::{Oti, Scheme};
///
/// let partition = Partition::new(&Oti {
///     scheme: Scheme::ReedSolomon,
///     object_len: 1_000_000,
///     symbol_len: 1_376,
///     max_block_symbols: 128,
///     max_encoding_symbols: 255,
/// })?;
/// assert_eq!(partition.blocks(), 6);
/// assert_eq!(partition.block_symbols(0), 122);
/// assert_eq!(partition.symbol_range(5, 120), 998_976..1_000_000);
/// # Ok::<(), umbel_fec::FecError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partition {
    object_len: u64,
    symbols: u64,
    symbol_len: u16,
    blocks: u32,
    /// How many blocks, from the first, have `small_symbols + 1` symbols (I).
    large_blocks: u32,
    /// Symbols of the other blocks (A_small).
    small_symbols: u32,
    /// Encoding symbols of a block, or 0 where it has no more than source symbols.
    encoding_symbols: u32,
}

impl Partition {
    /// Splits the object that `oti` describes.
    ///
    /// # Errors
    ///
    /// When the symbol length, the symbols of a block, the object's length or the number of blocks
    /// that results is not in the range of the scheme.
    pub fn new(oti: &Oti) -> Result<Partition, FecError> {
        let limits = Limits::of(oti.scheme);
        limits.check(oti)?;
        let symbols = oti.object_len.div_ceil(u64::from(oti.symbol_len));
        let blocks = symbols.div_ceil(u64::from(oti.max_block_symbols));
        if blocks > limits.blocks {
            return Err(FecError::TooManyBlocks { scheme: oti.scheme, blocks, max: limits.blocks });
        }
        let (small, large_blocks) = match blocks {
            0 => (0, 0),
            _ => (symbols / blocks, symbols % blocks),
        };
        Ok(Partition {
            object_len: oti.object_len,
            symbols,
            symbol_len: oti.symbol_len,
            blocks: blocks as u32,
            large_blocks: large_blocks as u32,
            small_symbols: small as u32,
            encoding_symbols: match oti.scheme {
                Scheme::NoCode => 0,
                Scheme::ReedSolomon => u32::from(oti.max_encoding_symbols),
                Scheme::RaptorQ => RAPTORQ_MAX_ENCODING_SYMBOLS,
            },
        })
    }

    /// Source blocks of the object; 0 for an empty one.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Source symbols of the block (k).
    pub const fn block_symbols(&self, sbn: u32) -> u32 {
        if sbn < self.large_blocks {
            self.small_symbols + 1
        } else if sbn < self.blocks {
            self.small_symbols
        } else {
            0
        }
    }

    /// The bytes of the object that the block holds. Only the last block can end with a symbol
    /// that is not full.
    pub const fn block_range(&self, sbn: u32) -> Range<u64> {
        let first = self.first_symbol(sbn);
        self.bytes(first, first + self.block_symbols(sbn) as u64)
    }

    /// The bytes of the object that the source symbol holds; fewer than
    /// [`symbol_len`](Self::symbol_len) in the last symbol of the object.
    pub const fn symbol_range(&self, sbn: u32, esi: u32) -> Range<u64> {
        if esi >= self.block_symbols(sbn) {
            return self.object_len..self.object_len;
        }
        let symbol = self.first_symbol(sbn) + esi as u64;
        self.bytes(symbol, symbol + 1)
    }

    /// Bytes of an encoding symbol.
    pub const fn symbol_len(&self) -> u16 {
        self.symbol_len
    }

    /// Bytes of the object.
    pub const fn object_len(&self) -> u64 {
        self.object_len
    }

    /// Different encoding symbols that can be made of the block, its source symbols among them.
    /// Never fewer than those.
    pub const fn max_encoding_symbols(&self, sbn: u32) -> u32 {
        let k = self.block_symbols(sbn);
        if k != 0 && k < self.encoding_symbols { self.encoding_symbols } else { k }
    }

    /// Source symbols of all blocks together.
    pub const fn total_source_symbols(&self) -> u64 {
        self.symbols
    }

    /// Number within the object of the block's first source symbol.
    const fn first_symbol(&self, sbn: u32) -> u64 {
        let sbn = if sbn < self.blocks { sbn } else { self.blocks };
        let large = if sbn < self.large_blocks { sbn } else { self.large_blocks };
        sbn as u64 * self.small_symbols as u64 + large as u64
    }

    /// The bytes from one symbol of the object to another.
    const fn bytes(&self, first: u64, end: u64) -> Range<u64> {
        self.offset(first)..self.offset(end)
    }

    /// Where in the object a symbol starts, or the object ends.
    const fn offset(&self, symbol: u64) -> u64 {
        let offset = symbol * self.symbol_len as u64;
        if offset < self.object_len { offset } else { self.object_len }
    }
}

/// What the fields of a scheme's headers can say.
struct Limits {
    object_len: u64,
    blocks: u64,
    block_symbols: u32,
}

impl Limits {
    const fn of(scheme: Scheme) -> Limits {
        match scheme {
            // A 16-bit source block number, a 16-bit encoding symbol ID [RFC 5445 §3.2.1].
            Scheme::NoCode => {
                Limits { object_len: MAX_LEN_48_BITS, blocks: 1 << 16, block_symbols: 65_535 }
            }
            // 24 bits and 8 bits [RFC 5510 §5.1.1].
            Scheme::ReedSolomon => Limits {
                object_len: MAX_LEN_48_BITS,
                blocks: 1 << 24,
                block_symbols: REED_SOLOMON_MAX_SYMBOLS,
            },
            // 8 bits and 24 bits [RFC 6330 §3.2].
            Scheme::RaptorQ => Limits {
                object_len: RAPTORQ_MAX_LEN,
                blocks: 256,
                block_symbols: RAPTORQ_MAX_SYMBOLS,
            },
        }
    }

    /// Checks all but the number of blocks.
    fn check(&self, oti: &Oti) -> Result<(), FecError> {
        let scheme = oti.scheme;
        if oti.symbol_len == 0 {
            return Err(FecError::NoSymbolLen);
        }
        if oti.object_len > self.object_len {
            let max = self.object_len;
            return Err(FecError::ObjectTooLong { scheme, len: oti.object_len, max });
        }
        let symbols = u32::from(oti.max_block_symbols);
        if symbols == 0 || symbols > self.block_symbols {
            return Err(FecError::BlockSymbols { scheme, symbols, max: self.block_symbols });
        }
        let encoding = u32::from(oti.max_encoding_symbols);
        if scheme == Scheme::ReedSolomon
            && !(symbols..=REED_SOLOMON_MAX_SYMBOLS).contains(&encoding)
        {
            return Err(FecError::EncodingSymbols { symbols: encoding, min: symbols });
        }
        Ok(())
    }
}
