//! Errors between a path and the bytes of an item.

use std::io;
use std::path::PathBuf;

use umbel_wire::Toi;

use crate::DeviceError;

/// Error of opening or scanning a repository.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The path, or a file below it that the scan cannot do without, cannot be read.
    #[error("{}: {error}", path.display())]
    Io {
        /// Path that cannot be read.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The path is neither a directory nor a regular file nor a block device.
    #[error(
        "{path}: is neither a directory nor a file nor a disk: what comes out of it is sent by \
         `umbel send - < {path}`",
        path = .0.display()
    )]
    Kind(PathBuf),
    /// A block device cannot be served.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// Two paths have the same name.
    #[error("two of the paths are named {0}: items would have the same names")]
    Twice(String),
    /// The path is a hidden file or directory.
    #[error("{0} is hidden: --hidden publishes it, and receivers need --hidden too")]
    Hidden(String),
    /// The options contradict each other.
    #[error("{0}")]
    Options(String),
    /// All object identifiers of this run are used up. A restart begins again.
    #[error("2^32 item versions have been on offer: restart the server")]
    Exhausted,
}

/// Reason why no items can be selected: mostly an invalid pattern.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatternError {
    /// The pattern is not a glob.
    #[error("`{pattern}` is not a pattern: {reason}")]
    Syntax {
        /// Pattern as given.
        pattern: String,
        /// Reason why it is not a glob.
        reason: String,
    },
    /// The pattern is too long.
    #[error("a pattern of {len} bytes: at most {max} are allowed")]
    Length {
        /// Bytes of the pattern.
        len: usize,
        /// Maximum number of bytes.
        max: usize,
    },
    /// The query has too many patterns with wildcards.
    #[error("{count} patterns with wildcards in one query: at most {max} are allowed")]
    Count {
        /// Number of patterns with wildcards.
        count: usize,
        /// Maximum number allowed.
        max: usize,
    },
    /// The pages before this one were of an earlier state of the catalog, which is forgotten.
    #[error("the list changed while it was read: ask again")]
    Changed,
}

/// Reason why bytes of an item cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    /// The item was removed, or another item now has its name.
    #[error("it is no longer there")]
    Vanished,
    /// The item was modified in place since the catalog listed it, or replaced before it was
    /// opened.
    #[error("it changed while it was on offer")]
    Changed,
    /// The stored data is invalid.
    #[error("it is damaged: {0}")]
    Damaged(&'static str),
    /// The system cannot read it.
    #[error("{0}")]
    Io(#[from] io::Error),
}

impl Fault {
    /// Returns whether the system lacks descriptors or memory now, and may have them later.
    pub(crate) fn is_shortage(&self) -> bool {
        use nix::libc::{EMFILE, ENFILE, ENOMEM};
        let Fault::Io(error) = self else { return false };
        matches!(error.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM))
    }
}

/// Error of reading an item or a part of it.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The catalog does not have this object and did not have it recently.
    #[error("there is no item {}", .0.0)]
    Unknown(Toi),
    /// The item can no longer be read.
    #[error("{name}: {fault}")]
    Gone {
        /// Name of the item.
        name: String,
        /// Reason of the failure.
        fault: Fault,
    },
    /// The item does not have the requested part.
    #[error("{name} has no {part}")]
    Range {
        /// Name of the item.
        name: String,
        /// The requested part.
        part: String,
    },
}
