//! Errors of the sink.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_fec::FecError;

use super::changes::Change;
use super::names::NameError;
use crate::DeviceError;

/// Reason why an item, or the whole sink, has failed. Each message says in one line what is wrong.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SinkError {
    /// The name cannot be that of a file here.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The item's transmission information is invalid.
    #[error("item {name:?} cannot be received: {source}")]
    Oti {
        /// Name of the item.
        name: String,
        /// Reason why it is invalid.
        source: FecError,
    },
    /// A source block of the item exceeds the memory limit.
    #[error(
        "item {name:?} cannot be received: its blocks have {len} bytes, at most {max} are allowed"
    )]
    BlockTooLong {
        /// Name of the item.
        name: String,
        /// Bytes of the longest block.
        len: u64,
        /// Maximum number of bytes.
        max: u64,
    },
    /// The server did not send the item's digest, so the item could not be verified.
    #[error("item {name:?} came without a digest")]
    NoDigest {
        /// Name of the item.
        name: String,
    },
    /// The file system has no room for the missing part of the item.
    #[error("no room for {}: {needed} bytes needed, {available} available", path.display())]
    NoSpace {
        /// Target path.
        path: PathBuf,
        /// Bytes still to be written.
        needed: u64,
        /// Bytes that are available and not reserved for other items.
        available: u64,
    },
    /// The item's target is a directory.
    #[error("{} is a directory", path.display())]
    IsDirectory {
        /// Target path.
        path: PathBuf,
    },
    /// Something other than the item is at its target, and may not be replaced.
    #[error("{} exists and differs: --overwrite replaces it", path.display())]
    Exists {
        /// Target path.
        path: PathBuf,
    },
    /// The item would be a hidden file, or below a hidden directory, of the output directory.
    #[error("{} would be hidden: --hidden writes such files", path.display())]
    Hidden {
        /// Target path.
        path: PathBuf,
    },
    /// A file or a symbolic link is in the place of a directory. Symbolic links are not followed.
    #[error("{} is not a directory{}", path.display(), of_link(path))]
    NotDirectory {
        /// Path of the file or link.
        path: PathBuf,
    },
    /// The file system does not take the name, as FAT does not take `:`.
    #[error("the file system does not take the name {}: it has `{character}`", path.display())]
    Unnameable {
        /// Target path.
        path: PathBuf,
        /// First character that such file systems do not take.
        character: char,
    },
    /// Another process receives the same item to the same target.
    #[error("{} is being received by another process", path.display())]
    InUse {
        /// Target path.
        path: PathBuf,
    },
    /// A part file or journal has a second name, through which others could read or change it.
    #[error("{} has another name as well (a hard link): remove it", path.display())]
    Linked {
        /// Path of the file.
        path: PathBuf,
    },
    /// Another process removed or replaced the part file while the item was being received.
    #[error("{} was removed or replaced while it was written", path.display())]
    Replaced {
        /// Path of the part file.
        path: PathBuf,
    },
    /// An operation on a file failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// The operation: "write", "open".
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: Arc<io::Error>,
    },
    /// The digests of all source blocks match, but that of the whole item does not.
    #[error("item {name:?} is inconsistent on the server: its blocks match, its digest does not")]
    Inconsistent {
        /// Name of the item.
        name: String,
    },
    /// The item is another name of a file that is not there.
    #[error("item {name:?} is another name of {first:?}, which was not received")]
    NoFirstName {
        /// Name of the item.
        name: String,
        /// Path of the file below the output directory.
        first: String,
    },
    /// The item is another name of a hidden file, which is not written.
    #[error(
        "item {name:?} is another name of {first:?}, which would be hidden: --hidden writes both, and \
         a request for {name:?} alone brings it"
    )]
    HiddenFirstName {
        /// Name of the item.
        name: String,
        /// Path of the file below the output directory.
        first: String,
    },
    /// The item is not as the source has it.
    #[error("{}: {}", path.display(), change.describe())]
    Differs {
        /// Target path.
        path: PathBuf,
        /// How it differs.
        change: Change,
    },
    /// The item cannot be written to a block device.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The system cannot start a thread.
    #[error("no thread to look at the disk: {source}")]
    Thread {
        /// Error of the system.
        source: Arc<io::Error>,
    },
    /// The threads of the sink have ended.
    #[error("the sink is closed")]
    Closed,
}

/// Returns what to add where a path is a symbolic link, which may well lead to a directory.
fn of_link(path: &Path) -> &'static str {
    if path.is_symlink() { " (symbolic links are not followed)" } else { "" }
}

impl SinkError {
    /// Returns a closure for `map_err` that wraps an error of the operating system while `doing`
    /// something with `path`.
    pub(super) fn io<E: Into<io::Error>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> SinkError {
        move |error| SinkError::Io { doing, path: path.to_owned(), source: Arc::new(error.into()) }
    }
}
