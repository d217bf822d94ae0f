//! Umbel's own files, which are never served: keys, and the state directory.

use std::collections::HashSet;
use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use walkdir::WalkDir;

use crate::feed::seal::SecretKey;

/// Maximum number of files of a state directory that are examined.
const FILES: usize = 4_096;
/// Bytes of a receiver's key in a file: 64 digits and a newline.
const RECEIVER_KEY_LEN: u64 = 65;
/// Name of the file with a server's key, and the maximum length of such a file.
const SERVER_KEY: &str = "identity.pem";
const SERVER_KEY_LEN: u64 = 256 << 10;

/// Umbel's own files and directories at one moment. They are identified by device and inode, so
/// that links to them count too.
#[derive(Debug, Default)]
pub(crate) struct Own(HashSet<(u64, u64)>);

impl Own {
    /// Finds those of these paths that exist, and the files below them.
    pub(crate) fn find(paths: &[PathBuf]) -> Own {
        let below = |path: &PathBuf| WalkDir::new(path).min_depth(1).into_iter().take(FILES);
        let below = paths.iter().flat_map(below).filter_map(|entry| entry.ok()?.metadata().ok());
        let named = paths.iter().filter_map(|path| fs::metadata(path).ok());
        Own(named.chain(below).map(|metadata| (metadata.dev(), metadata.ino())).collect())
    }

    /// Returns whether a file or directory is one of them.
    pub(crate) fn holds(&self, metadata: &Metadata) -> bool {
        self.0.contains(&(metadata.dev(), metadata.ino()))
    }

    /// Returns whether none of them exists.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns whether a file is a key that umbel made, wherever `--key` or `--state-dir` put it. Opens
/// only files that no user but their owner can read.
pub(crate) fn is_key(
    path: &Path,
    metadata: &Metadata,
    open: impl FnOnce() -> io::Result<File>,
) -> bool {
    let len = metadata.len();
    let receiver = len == RECEIVER_KEY_LEN;
    let server = path.file_name().is_some_and(|name| name == SERVER_KEY) && len <= SERVER_KEY_LEN;
    if metadata.permissions().mode() & 0o077 != 0 || !receiver && !server {
        return false;
    }
    let mut text = String::new();
    if open().and_then(|file| file.take(SERVER_KEY_LEN).read_to_string(&mut text)).is_err() {
        return false;
    }
    receiver && text.trim_end().parse::<SecretKey>().is_ok()
        || server && text.contains("PRIVATE KEY-----") && text.contains("BEGIN CERTIFICATE-----")
}
