//! Why a partition or a code refuses what it was given.

use umbel_wire::{OtiError, Scheme};

/// What is wrong with the parameters or the symbols handed to this crate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FecError {
    /// The object transmission information describes no object.
    #[error(transparent)]
    Oti(OtiError),
    /// The scheme's source block number cannot number all blocks; more symbols a block help.
    #[error("{blocks} source blocks are more than {scheme:?} can number ({max})")]
    TooManyBlocks {
        /// The scheme.
        scheme: Scheme,
        /// Source blocks that the object would have.
        blocks: u64,
        /// Source blocks that the scheme can number.
        max: u64,
    },
    /// The encoding symbol length is 0.
    #[error("the encoding symbol length is 0")]
    NoSymbolLen,
    /// The number of source symbols of a block is 0 or more than the scheme allows.
    #[error("{symbols} source symbols a block are not in 1..={max} of {scheme:?}")]
    BlockSymbols {
        /// The scheme.
        scheme: Scheme,
        /// Source symbols asked for.
        symbols: u32,
        /// Most source symbols that the scheme allows.
        max: u32,
    },
    /// A buffer that must hold a source block, or the symbols asked for, has another length.
    #[error("a buffer of {len} bytes where {expected} are needed")]
    BufferLen {
        /// Bytes of the buffer.
        len: usize,
        /// Bytes needed.
        expected: usize,
    },
    /// The set of present symbols is about another number of source symbols.
    #[error("a set over {len} symbols for a block of {expected}")]
    SetLen {
        /// Symbols that the set is about.
        len: u32,
        /// Source symbols of the block.
        expected: u32,
    },
    /// No symbol of the block has this encoding symbol ID, or it is not that of a repair symbol.
    #[error("encoding symbol {esi} is not in {start}..{end}")]
    Esi {
        /// The encoding symbol ID.
        esi: u32,
        /// The first ID allowed.
        start: u32,
        /// One more than the last ID allowed.
        end: u32,
    },
    /// A repair symbol does not have the length of the others.
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
        /// Bytes of an encoding symbol.
        len: usize,
        /// Most bytes allowed.
        max: usize,
    },
    /// The block cannot be restored from these symbols; nothing of it was changed.
    #[error("{held} different symbols do not restore the block: at least {wanted} are needed")]
    NotEnough {
        /// Different symbols held, source and repair.
        held: u32,
        /// How many to hold before trying again.
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
