//! Umbel's own files: the keys of servers, senders and receivers, the senders that are known, and
//! what was taken.

use std::path::{Path, PathBuf};

use anyhow::bail;

use crate::feed::send::SENT_VERSION;

/// Name of the file in the state directory that holds a receiver's key.
pub const RECEIVER_KEY: &str = "receiver.key";

/// Returns the directory of the keys unless the user names another: `umbel` in `XDG_STATE_HOME`, or
/// in `.local/state` of the home directory.
///
/// # Errors
///
/// If there is no home directory.
pub fn default_dir() -> anyhow::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("XDG_STATE_HOME").filter(|dir| !dir.is_empty()) {
        return Ok(PathBuf::from(dir).join("umbel"));
    }
    match std::env::var_os("HOME").filter(|home| !home.is_empty()) {
        Some(home) => Ok(PathBuf::from(home).join(".local/state/umbel")),
        None => bail!("no home directory for umbel's keys: name one with --state-dir"),
    }
}

/// Returns the files and directories that are never served: the default directory, and the keys in
/// the directory in use. The latter may hold other files as well.
pub(crate) fn own(used: Option<&Path>) -> Vec<PathBuf> {
    let keys =
        [umbel_net::session::identity::FILE_NAME, RECEIVER_KEY, SENT_VERSION, crate::follow::TAKEN];
    let files = || keys.into_iter().chain(crate::directory::KNOWN_SENDERS);
    let used = used.into_iter().flat_map(|dir| files().map(|file| dir.join(file)));
    default_dir().ok().into_iter().chain(used).collect()
}
