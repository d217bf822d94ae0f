//! Reports of a running receiver.

use serde::Serialize;
use umbel_engine::tmtp::Brought;
use umbel_net::session::Pin;
use umbel_store::sink::Change;
use umbel_wire::feed::Feed;

/// Progress of a receiver.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RecvSnapshot {
    /// Number of files in the feed, as far as is known.
    pub items: u64,
    /// Number of files that were received or already present.
    pub items_done: u64,
    /// Bytes of the files; for a pipe, the bytes received.
    pub bytes: u64,
    /// Bytes restored or written.
    pub bytes_done: u64,
    /// Share of the data packets that were lost, 0 to 1.
    pub loss: f64,
    /// Whether the receiver has a parent.
    pub joined: bool,
    /// Whether multicast brings nothing or nearly nothing, so that the source sends by unicast.
    pub unicast: bool,
    /// Whether the receiver is the manager of its subnet.
    pub manager: bool,
    /// Number of children that it serves.
    pub children: u32,
    /// The largest multicast radius that it had as a manager, in hops; 0 for a member.
    pub radius: u8,
}

/// Receives news of the reception. It is called on the engine's thread and must not block.
pub trait RecvObserver: Send + Sync {
    /// Called when the feed was found, signed by the key with this fingerprint.
    fn found(&self, _feed: &Feed, _signer: Pin, _interface: &str) {}

    /// Called when the receiver has a parent.
    fn joined(&self, _parent: &str, _hops: u8) {}

    /// Called when the receiver became the manager of its subnet, or no longer is.
    fn managing(&self, _manager: bool) {}

    /// Reports progress, about ten times a second.
    fn progress(&self, _snapshot: &RecvSnapshot) {}

    /// Called when a file is verified and in its place.
    fn item(&self, _name: &str, _path: &std::path::Path, _bytes: u64) {}

    /// Called when a file was already present.
    fn already_there(&self, _name: &str) {}

    /// Called for each change at the end, or for what would change, if that is to be told.
    fn changed(&self, _path: &str, _change: Change) {}

    /// Called when something was removed that the feed does not have.
    fn removed(&self, _path: &std::path::Path) {}

    /// Called when a file cannot be received.
    fn failed(&self, _name: &str, _reason: &str) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}

    /// Called when multicast has brought nothing, or next to nothing, and the source sends by
    /// unicast from then on, with the cause if it is known.
    fn fallback(&self, _brought: &Brought, _cause: Option<&str>) {}

    /// Called when the receiver hears nothing of the feed, or of possible parents.
    fn lonely(&self, line: &str) {
        self.note(line);
    }
}
