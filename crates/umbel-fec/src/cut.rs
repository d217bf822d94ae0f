//! The parameters by which a source splits its objects.

use umbel_wire::{Oti, Scheme};

use crate::partition::REED_SOLOMON_MAX_SYMBOLS;
use crate::{FecError, Partition};

/// Parameters by which a source splits its objects.
///
/// ```
/// use umbel_fec::Cut;
/// use umbel_wire::Scheme;
///
/// let cut = Cut { scheme: Scheme::NoCode, symbol_len: 1_000, max_block_symbols: 128 };
/// assert_eq!(cut.oti(1_000_000)?.max_block_symbols, 128);
/// // 16 bits number the blocks.
/// assert_eq!(cut.oti(65_536_000_000)?.max_block_symbols, 1_000);
/// # Ok::<(), umbel_fec::FecError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Erasure code of the objects.
    pub scheme: Scheme,
    /// Bytes of an encoding symbol; at least 1.
    pub symbol_len: u16,
    /// Maximum number of source symbols in a source block. An object that would exceed the scheme's
    /// block numbers gets larger blocks, if the scheme allows them.
    pub max_block_symbols: u16,
}

impl Cut {
    /// Returns the object transmission information of an object of `object_len` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if a length is not in the range of the scheme, or if the object is too long
    /// for the scheme.
    pub fn oti(self, object_len: u64) -> Result<Oti, FecError> {
        let oti = self.by_blocks(object_len, self.max_block_symbols);
        match Partition::new(&oti) {
            Ok(_) => Ok(oti),
            Err(error @ FecError::TooManyBlocks { max, .. }) => {
                let symbols = object_len.div_ceil(u64::from(self.symbol_len));
                let larger = u16::try_from(symbols.div_ceil(max)).ok();
                let oti = larger.map(|block| self.by_blocks(object_len, block));
                oti.filter(|oti| Partition::new(oti).is_ok()).ok_or(error)
            }
            Err(error) => Err(error),
        }
    }

    fn by_blocks(self, object_len: u64, max_block_symbols: u16) -> Oti {
        Oti {
            scheme: self.scheme,
            object_len,
            symbol_len: self.symbol_len,
            max_block_symbols,
            max_encoding_symbols: match self.scheme {
                // The parity of the longest code serves objects of any number of blocks.
                Scheme::ReedSolomon => REED_SOLOMON_MAX_SYMBOLS as u16,
                Scheme::NoCode | Scheme::RaptorQ => max_block_symbols,
            },
        }
    }
}
