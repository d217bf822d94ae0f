//! Why the sink cannot keep an item.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use umbel_fec::FecError;

use super::names::NameError;

/// Why an item, or the whole sink, cannot go on. Each says in one line what is wrong.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SinkError {
    /// The name cannot be a file here.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The item's transmission information makes no sense.
    #[error("item {name:?} cannot be received: {source}")]
    Oti {
        /// The item.
        name: String,
        /// What is wrong with it.
        source: FecError,
    },
    /// A source block of the item does not fit in memory.
    #[error(
        "item {name:?} cannot be received: its blocks have {len} bytes, at most {max} are allowed"
    )]
    BlockTooLong {
        /// The item.
        name: String,
        /// Bytes of the longest block.
        len: u64,
        /// Most bytes allowed.
        max: u64,
    },
    /// The server did not say the item's digest, so that nothing could be verified.
    #[error("item {name:?} came without a digest")]
    NoDigest {
        /// The item.
        name: String,
    },
    /// The file system has no room for what is missing of the item.
    #[error("no room for {}: {needed} bytes needed, {available} available", path.display())]
    NoSpace {
        /// The target.
        path: PathBuf,
        /// Bytes that are still to be written.
        needed: u64,
        /// Bytes that are available and not set aside for other items.
        available: u64,
    },
    /// A directory stands where the item's file should go.
    #[error("{} is a directory", path.display())]
    IsDirectory {
        /// The target.
        path: PathBuf,
    },
    /// What should be a directory is a file or a symbolic link, which is not followed.
    #[error("{} is not a directory (symbolic links are not followed)", path.display())]
    NotDirectory {
        /// The path in the way.
        path: PathBuf,
    },
    /// Another process receives the same item into the same place.
    #[error("{} is being received by another process", path.display())]
    InUse {
        /// The target.
        path: PathBuf,
    },
    /// Somebody removed or replaced the part file while the item was being received.
    #[error("{} was removed or replaced while it was written", path.display())]
    Replaced {
        /// The part file.
        path: PathBuf,
    },
    /// An operation on a file failed.
    #[error("cannot {doing} {}: {source}", path.display())]
    Io {
        /// What was attempted: "write", "open".
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: Arc<io::Error>,
    },
    /// The digests of all source blocks match, that of the whole item does not.
    #[error("item {name:?} is inconsistent on the server: its blocks match, its digest does not")]
    Inconsistent {
        /// The item.
        name: String,
    },
    /// The threads of the sink are gone.
    #[error("the sink is closed")]
    Closed,
}

impl SinkError {
    /// For `map_err`: an error of the operating system while `doing` something with `path`.
    pub(super) fn io<E: Into<io::Error>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> SinkError {
        move |error| SinkError::Io { doing, path: path.to_owned(), source: Arc::new(error.into()) }
    }
}
