//! Reports of a running client.

use serde::{Deserialize, Serialize};
use umbel_engine::repository::receiver::Brought;
use umbel_store::sink::Change;

/// Progress of a client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Snapshot {
    /// Items wanted, as far as is known.
    pub items: u64,
    /// Items received or already present.
    pub items_done: u64,
    /// Bytes of the items wanted.
    pub bytes: u64,
    /// Bytes restored.
    pub bytes_done: u64,
    /// Bytes that came by the data channel, headers and repairs included.
    pub received: u64,
    /// Loss on the data channel, 0 to 1.
    pub loss: f64,
    /// Whether all items are known by now.
    pub complete_list: bool,
    /// Whether the client gets its items by unicast.
    pub unicast: bool,
    /// Whether there is a session.
    pub connected: bool,
}

impl Snapshot {
    /// Returns whether more than the channel's counts has changed since `before`.
    pub fn is_beyond(&self, before: &Snapshot) -> bool {
        let state = |s: &Snapshot| {
            let Snapshot { items, items_done, bytes, bytes_done, .. } = *s;
            (items, items_done, bytes, bytes_done, s.complete_list, s.unicast, s.connected)
        };
        state(self) != state(before)
    }
}

/// Receives news of a running client. It is called on the engine's thread and must not block.
pub trait Observer: Send + Sync {
    /// Reports progress, about ten times a second.
    fn progress(&self, _snapshot: &Snapshot) {}

    /// Called when an item is verified and in its place.
    fn item(&self, _name: &str, _path: &std::path::Path, _bytes: u64) {}

    /// Called when an item was already present.
    fn already_there(&self, _name: &str) {}

    /// Called for each change at the end, or for what would change, if that is to be told.
    fn changed(&self, _path: &str, _change: Change) {}

    /// Called when something was removed that the server does not offer.
    fn removed(&self, _path: &std::path::Path) {}

    /// Called when an item cannot be received.
    fn failed(&self, _name: &str, _reason: &str) {}

    /// Reports a line that the user should know.
    fn note(&self, _line: &str) {}

    /// Called when multicast has brought nothing, or next to nothing; the client continues by
    /// unicast. Called again if a cause is found.
    fn fallback(&self, _brought: &Brought, _cause: Option<&str>) {}
}
