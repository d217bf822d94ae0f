//! The partition of an object into source blocks and symbols.

use std::ops::Range;

use umbel_wire::{Oti, Scheme};

use crate::FecError;

/// Maximum number of source symbols in a RaptorQ block, K'_max [RFC 6330 §5.1.2].
pub(crate) const RAPTORQ_MAX_SYMBOLS: u32 = 56_403;
/// Number of encoding symbols that the 24-bit ESI of a RaptorQ block can number [RFC 6330 §3.2].
pub(crate) const RAPTORQ_MAX_ENCODING_SYMBOLS: u32 = 1 << 24;
/// Number of encoding symbols in a Reed–Solomon block: n of the code over GF(2^8)
/// [RFC 5510 §8.2.1].
pub(crate) const REED_SOLOMON_MAX_SYMBOLS: u32 = 255;

/// Mapping between the bytes of an object and the source symbols of its blocks [RFC 5052 §9.1].
///
/// Either all blocks have the same number of symbols, or the first ones have one more than the
/// others. All blocks are thus protected equally, wherever they are in the object. RaptorQ's own
/// rule [RFC 6330 §4.4.1.2] is equivalent; its blocks are not split into sub-blocks (N = 1).
///
/// Every method takes constant time. For a block number or symbol ID that the object does not have,
/// methods return 0 or an empty range at the object's end.
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
    /// Number of blocks, from the first, that have `small_symbols + 1` symbols (I).
    large_blocks: u32,
    /// Symbols of the other blocks (A_small).
    small_symbols: u32,
    /// Encoding symbols of a block; 0 if it has only source symbols.
    encoding_symbols: u32,
}

impl Partition {
    /// Creates the partition of the object that `oti` describes.
    ///
    /// # Errors
    ///
    /// Returns an error if a parameter is not in the range of the scheme ([`Oti::check`]). The
    /// parameters are the symbol length, the symbols of a block, the object's length and the
    /// resulting number of blocks.
    pub fn new(oti: &Oti) -> Result<Partition, FecError> {
        oti.check()?;
        let symbols = oti.object_len.div_ceil(u64::from(oti.symbol_len));
        let blocks = symbols.div_ceil(u64::from(oti.max_block_symbols));
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

    /// Returns the number of source blocks of the object; 0 for an empty object.
    pub const fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the number of source symbols of the block (k).
    pub const fn block_symbols(&self, sbn: u32) -> u32 {
        if sbn < self.large_blocks {
            self.small_symbols + 1
        } else if sbn < self.blocks {
            self.small_symbols
        } else {
            0
        }
    }

    /// Returns the range of the object's bytes that the block holds. Only the last block can end
    /// with a partly filled symbol.
    pub const fn block_range(&self, sbn: u32) -> Range<u64> {
        let first = self.first_symbol(sbn);
        self.bytes(first, first + self.block_symbols(sbn) as u64)
    }

    /// Returns the range of the object's bytes that the source symbol holds. It is shorter than
    /// [`symbol_len`](Self::symbol_len) only for the last symbol of the object.
    pub const fn symbol_range(&self, sbn: u32, esi: u32) -> Range<u64> {
        if esi >= self.block_symbols(sbn) {
            return self.object_len..self.object_len;
        }
        let symbol = self.first_symbol(sbn) + esi as u64;
        self.bytes(symbol, symbol + 1)
    }

    /// Returns the number of bytes of an encoding symbol.
    pub const fn symbol_len(&self) -> u16 {
        self.symbol_len
    }

    /// Returns the number of bytes of the object.
    pub const fn object_len(&self) -> u64 {
        self.object_len
    }

    /// Returns the number of different encoding symbols of the block, including its source symbols.
    /// It is never less than the number of source symbols.
    pub const fn max_encoding_symbols(&self, sbn: u32) -> u32 {
        let k = self.block_symbols(sbn);
        if k != 0 && k < self.encoding_symbols { self.encoding_symbols } else { k }
    }

    /// Returns the number of source symbols of all blocks together.
    pub const fn total_source_symbols(&self) -> u64 {
        self.symbols
    }

    /// Returns the number of blocks, from the first, that have one source symbol more than the
    /// others.
    pub const fn large_blocks(&self) -> u32 {
        self.large_blocks
    }

    /// Returns the number of source symbols of these blocks together.
    pub const fn symbols_of(&self, blocks: Range<u32>) -> u64 {
        self.first_symbol(blocks.end).saturating_sub(self.first_symbol(blocks.start))
    }

    /// Returns the index within the object of the block's first source symbol.
    const fn first_symbol(&self, sbn: u32) -> u64 {
        let sbn = if sbn < self.blocks { sbn } else { self.blocks };
        let large = if sbn < self.large_blocks { sbn } else { self.large_blocks };
        sbn as u64 * self.small_symbols as u64 + large as u64
    }

    /// Returns the byte range from one symbol of the object to another.
    const fn bytes(&self, first: u64, end: u64) -> Range<u64> {
        self.offset(first)..self.offset(end)
    }

    /// Returns the offset in the object at which a symbol starts, at most the object's length.
    const fn offset(&self, symbol: u64) -> u64 {
        let offset = symbol * self.symbol_len as u64;
        if offset < self.object_len { offset } else { self.object_len }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1 << 10;
    const TIB: u64 = 1 << 40;

    fn oti(scheme: Scheme, object_len: u64, symbol_len: u16, max_block_symbols: u16) -> Oti {
        Oti { scheme, object_len, symbol_len, max_block_symbols, max_encoding_symbols: 255 }
    }

    fn split(object_len: u64, symbol_len: u16, max_block_symbols: u16) -> Partition {
        let oti = oti(Scheme::ReedSolomon, object_len, symbol_len, max_block_symbols);
        Partition::new(&oti).unwrap()
    }

    #[test]
    fn an_empty_object_has_no_blocks() {
        let partition = split(0, 1376, 128);
        assert_eq!((partition.blocks(), partition.total_source_symbols()), (0, 0));
        assert_eq!(partition.block_symbols(0), 0);
        assert_eq!(partition.max_encoding_symbols(0), 0);
        assert_eq!(partition.block_range(0), 0..0);
        assert_eq!(partition.symbol_range(0, 0), 0..0);
    }

    #[test]
    fn the_first_blocks_are_one_symbol_longer() {
        // T = 10, N = 3, A_large = 4, A_small = 3, I = 1 [RFC 5052 §9.1].
        let partition = split(98, 10, 4);
        assert_eq!(partition.blocks(), 3);
        assert_eq!([0, 1, 2, 3].map(|sbn| partition.block_symbols(sbn)), [4, 3, 3, 0]);
        assert_eq!([0, 1, 2].map(|sbn| partition.block_range(sbn)), [0..40, 40..70, 70..98]);
        assert_eq!(partition.symbol_range(1, 0), 40..50);
        assert_eq!(partition.symbol_range(2, 2), 90..98);
        assert_eq!(partition.symbol_range(2, 3), 98..98);
        assert_eq!(partition.symbol_range(3, 0), 98..98);
        assert_eq!(partition.large_blocks(), 1);
        assert_eq!([0..3, 1..2, 0..9, 2..2].map(|run| partition.symbols_of(run)), [10, 3, 10, 0]);
    }

    #[test]
    fn blocks_are_equal_where_they_can_be() {
        let partition = split(128 * 1376 * 7, 1376, 128);
        assert_eq!(partition.blocks(), 7);
        assert!((0..7).all(|sbn| partition.block_symbols(sbn) == 128));
        assert_eq!(partition.block_range(6).end, 128 * 1376 * 7);
    }

    #[test]
    fn a_tebibyte_is_split() {
        let partition = split(TIB, 1376, 128);
        assert_eq!(partition.total_source_symbols(), TIB.div_ceil(1376));
        let last = partition.blocks() - 1;
        assert_eq!(partition.block_range(last).end, TIB);
        assert_eq!(partition.symbol_range(last, partition.block_symbols(last) - 1).end, TIB);
    }

    #[test]
    fn says_how_many_encoding_symbols_a_block_can_have() {
        let pool = |scheme, encoding| {
            let oti = Oti { max_encoding_symbols: encoding, ..oti(scheme, 100_000, 1000, 60) };
            Partition::new(&oti).unwrap().max_encoding_symbols(1)
        };
        assert_eq!(pool(Scheme::ReedSolomon, 255), 255);
        assert_eq!(pool(Scheme::ReedSolomon, 60), 60);
        assert_eq!(pool(Scheme::NoCode, 255), 50);
        assert_eq!(pool(Scheme::RaptorQ, 255), 1 << 24);
    }

    #[test]
    fn refuses_objects_that_have_too_many_blocks() {
        let blocks = |oti: Oti| match Partition::new(&oti) {
            Ok(partition) => Ok(partition.blocks()),
            Err(FecError::TooManyBlocks { blocks, max, .. }) => Err((blocks, max)),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(blocks(oti(Scheme::ReedSolomon, 1 << 24, 1, 1)), Ok(1 << 24));
        let most = 1 << 24;
        assert_eq!(blocks(oti(Scheme::ReedSolomon, (1 << 24) + 1, 1, 1)), Err((most + 1, 1 << 24)));
        assert_eq!(blocks(oti(Scheme::NoCode, 1 << 16, 1, 1)), Ok(1 << 16));
        assert_eq!(blocks(oti(Scheme::NoCode, TIB, 1376, 64)).unwrap_err().1, 1 << 16);
        assert_eq!(blocks(oti(Scheme::RaptorQ, 255 * KIB, 1024, 1)), Ok(255));
        assert_eq!(blocks(oti(Scheme::RaptorQ, 257 * KIB, 1024, 1)), Err((257, 255)));
    }

    #[test]
    fn refuses_parameters_that_no_scheme_has() {
        for bad in [
            oti(Scheme::ReedSolomon, 1, 0, 128),
            oti(Scheme::ReedSolomon, 1, 1376, 0),
            oti(Scheme::ReedSolomon, 1, 1376, 256),
            oti(Scheme::RaptorQ, 1, 1376, 56_404),
            oti(Scheme::NoCode, u64::MAX, 1376, 128),
            Oti { max_encoding_symbols: 127, ..oti(Scheme::ReedSolomon, 1, 1376, 128) },
            Oti { max_encoding_symbols: 256, ..oti(Scheme::ReedSolomon, 1, 1376, 128) },
        ] {
            assert!(matches!(Partition::new(&bad), Err(FecError::Oti(_))), "{bad:?}");
        }
    }

    fn any_object() -> impl Strategy<Value = Oti> {
        let scheme =
            prop_oneof![Just(Scheme::NoCode), Just(Scheme::ReedSolomon), Just(Scheme::RaptorQ)];
        let len = prop_oneof![0..100_000u64, 0..=TIB];
        (scheme, len, 1..=9000u16, 1..=255u16)
            .prop_map(|(scheme, len, symbol_len, block)| oti(scheme, len, symbol_len, block))
    }

    proptest! {
        #[test]
        fn blocks_cover_the_object_exactly(oti in any_object()) {
            let Ok(partition) = Partition::new(&oti) else { return Ok(()) };
            let blocks = partition.blocks();
            // Every block of small objects; the first, middle and last blocks of large ones.
            let middle = [partition.large_blocks, blocks / 2].map(|b| b.saturating_sub(2)..b + 2);
            let some = (0..blocks.min(300)).chain(middle.into_iter().flatten());
            for sbn in some.chain(blocks.saturating_sub(2)..blocks).filter(|&sbn| sbn < blocks) {
                let k = partition.block_symbols(sbn);
                prop_assert!((1..=u32::from(oti.max_block_symbols)).contains(&k));
                prop_assert!(k == partition.block_symbols(0) || k + 1 == partition.block_symbols(0));
                let range = partition.block_range(sbn);
                prop_assert_eq!(range.end, partition.block_range(sbn + 1).start);
                let mut at = range.start;
                for esi in 0..k {
                    let symbol = partition.symbol_range(sbn, esi);
                    prop_assert_eq!(symbol.start, at);
                    let short = sbn + 1 == blocks && esi + 1 == k;
                    let full = symbol.end - symbol.start == u64::from(oti.symbol_len);
                    prop_assert!(full || short && !symbol.is_empty());
                    at = symbol.end;
                }
                prop_assert_eq!(at, range.end);
                prop_assert_eq!(partition.symbol_range(sbn, k), oti.object_len..oti.object_len);
            }
            prop_assert_eq!(partition.block_range(0).start, 0);
            prop_assert_eq!(partition.block_range(blocks), oti.object_len..oti.object_len);
        }
    }
}
