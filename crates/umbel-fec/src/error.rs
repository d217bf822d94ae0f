//! Errors of partitions and codes.

use umbel_wire::{OtiError, Scheme};

/// An invalid parameter or symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FecError {
    /// The object transmission information describes no object.
    #[error(transparent)]
    Oti(OtiError),
    /// The scheme's source block number cannot number all blocks. More symbols per block help.
    #[error("{blocks} source blocks are more than {scheme:?} can number ({max})")]
    TooManyBlocks {
        /// Scheme of the object.
        scheme: Scheme,
        /// Source blocks that the object would have.
        blocks: u64,
        /// Source blocks that the scheme can number.
        max: u64,
    },
    /// The encoding symbol length is 0.
    #[error("the encoding symbol length is 0")]
    NoSymbolLen,
    /// The number of source symbols of a block is 0 or exceeds the scheme's maximum.
    #[error("{symbols} source symbols a block are not in 1..={max} of {scheme:?}")]
    BlockSymbols {
        /// Scheme of the block.
        scheme: Scheme,
        /// Requested number of source symbols.
        symbols: u32,
        /// Maximum number of source symbols in the scheme.
        max: u32,
    },
    /// A buffer for a source block or for the requested symbols has the wrong length.
    #[error("a buffer of {len} bytes where {expected} are needed")]
    BufferLen {
        /// Bytes of the buffer.
        len: usize,
        /// Bytes required.
        expected: usize,
    },
    /// The set of present symbols has a length other than the number of source symbols.
    #[error("a set over {len} symbols for a block of {expected}")]
    SetLen {
        /// Length of the set.
        len: u32,
        /// Source symbols of the block.
        expected: u32,
    },
    /// The block has no symbol with this encoding symbol ID, or the ID must be that of a repair
    /// symbol and is not.
    #[error("encoding symbol {esi} is not in {start}..{end}")]
    Esi {
        /// Encoding symbol ID.
        esi: u32,
        /// First ID allowed.
        start: u32,
        /// One more than the last ID allowed.
        end: u32,
    },
    /// A repair symbol has a length other than the encoding symbol length.
    #[error("repair symbol {esi} has {len} bytes instead of {expected}")]
    SymbolLen {
        /// Encoding symbol ID.
        esi: u32,
        /// Bytes of the symbol.
        len: usize,
        /// Bytes of an encoding symbol.
        expected: usize,
    },
    /// The encoding symbols are longer than the scheme allows.
    #[error("an encoding symbol length of {len} bytes is more than {max}")]
    SymbolTooLong {
        /// Requested bytes of an encoding symbol.
        len: usize,
        /// Maximum allowed, in bytes.
        max: usize,
    },
    /// The block cannot be restored from these symbols. It is unchanged.
    #[error("{held} different symbols do not restore the block: at least {wanted} are needed")]
    NotEnough {
        /// Number of different symbols held, source and repair.
        held: u32,
        /// Number of different symbols to collect before a retry.
        wanted: u32,
    },
}

impl From<OtiError> for FecError {
    fn from(error: OtiError) -> FecError {
        match error {
            OtiError::Blocks { scheme, blocks, limit } => {
                FecError::TooManyBlocks { scheme, blocks, max: u64::from(limit) }
            }
            other => FecError::Oti(other),
        }
    }
}
