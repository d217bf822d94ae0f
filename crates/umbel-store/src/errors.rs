//! What can go wrong between a path and the bytes of an item.

use std::io;
use std::path::PathBuf;

use umbel_wire::Toi;

/// A repository that cannot be opened or scanned.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path, or what must be read below it to begin with, cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// The path that was given.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Neither a directory nor a regular file.
    #[error("{}: is neither a directory nor a file", .0.display())]
    Kind(PathBuf),
    /// Two paths of the same name.
    #[error("two of the paths are named {0}: items would have the same names")]
    Twice(String),
    /// The options do not go together.
    #[error("{0}")]
    Options(String),
    /// All object identifiers of this run are used up; a restart begins again.
    #[error("2^32 item versions have been on offer: restart the server")]
    Exhausted,
}

/// A pattern that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// Not a glob.
    #[error("`{pattern}` is not a pattern: {reason}")]
    Syntax {
        /// As it was given.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Longer than a pattern may be.
    #[error("a pattern of {len} bytes: at most {max} are allowed")]
    Length {
        /// Bytes of the pattern.
        len: usize,
        /// Most bytes allowed.
        max: usize,
    },
    /// More patterns with wildcards than one query may have.
    #[error("{count} patterns with wildcards in one query: at most {max} are allowed")]
    Count {
        /// Patterns with wildcards.
        count: usize,
        /// Most allowed.
        max: usize,
    },
}

/// Why bytes of an item cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// Removed, or another item now has its name.
    #[error("it is no longer there")]
    Vanished,
    /// Modified in place since the catalog listed it, or replaced before it was opened.
    #[error("it changed while it was on offer")]
    Changed,
    /// What is stored does not make sense.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The system cannot read it.
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// An item, or a part of it, that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The catalog has no such object, and had none lately.
    #[error("there is no item {}", .0.0)]
    Unknown(Toi),
    /// The item can no longer be had.
    #[error("{name}: {fault}")]
    Gone {
        /// Its name.
        name: String,
        /// Why not.
        fault: Fault,
    },
    /// A part was asked for that the item does not have.
    #[error("{name} has no {part}")]
    Range {
        /// The item's name.
        name: String,
        /// The part that was asked for.
        part: String,
    },
}
