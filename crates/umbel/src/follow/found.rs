//! Notes which feed a reception found.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use umbel_engine::tmtp::Brought;
use umbel_net::session::Pin;
use umbel_store::sink::Change;
use umbel_wire::feed::Feed;

use super::hook::Came;
use super::taken::Entry;
use crate::feed::recv::{RecvObserver, RecvSnapshot};

/// The feed that was found last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) sender: Pin,
    pub(crate) version: u64,
    pub(crate) digest: String,
}

impl Found {
    /// Returns what a command hears of it.
    pub(crate) fn came(&self, path: PathBuf) -> Came {
        let (name, sender) = (self.name.clone(), self.sender.to_string());
        Came { name, path, sender, digest: self.digest.clone() }
    }

    pub(super) fn entry(&self) -> Entry {
        let Found { sender, version, digest, .. } = self;
        Entry { sender: sender.to_string(), version: *version, digest: digest.clone() }
    }
}

/// An observer that notes the feed.
pub(crate) struct Noting {
    observer: Arc<dyn RecvObserver>,
    /// Whether what is said while the feed is sought was said before.
    is_known: bool,
    found: Mutex<Option<Found>>,
}

impl Noting {
    pub(crate) fn new(observer: Arc<dyn RecvObserver>, is_known: bool) -> Noting {
        Noting { observer, is_known, found: Mutex::new(None) }
    }

    /// Returns the feed that was found last.
    pub(crate) fn found(&self) -> Option<Found> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns whether a line need not be said again.
    fn was_said(&self, line: &str) -> bool {
        let was_said = self.is_known && self.found().is_none();
        if was_said {
            tracing::debug!("{line}");
        }
        was_said
    }
}

impl RecvObserver for Noting {
    fn found(&self, feed: &Feed, signer: Pin, interface: &str) {
        let digest = feed.head().map_or_else(String::new, |(_, digest)| digest.to_string());
        let (name, version) = (feed.name.to_string(), feed.version);
        let found = Found { name, sender: signer, version, digest };
        *self.found.lock().unwrap_or_else(PoisonError::into_inner) = Some(found);
        self.observer.found(feed, signer, interface);
    }

    fn joined(&self, parent: &str, hops: u8) {
        self.observer.joined(parent, hops);
    }

    fn managing(&self, manager: bool) {
        self.observer.managing(manager);
    }

    fn progress(&self, snapshot: &RecvSnapshot) {
        self.observer.progress(snapshot);
    }

    fn item(&self, name: &str, path: &Path, bytes: u64) {
        self.observer.item(name, path, bytes);
    }

    fn already_there(&self, name: &str) {
        self.observer.already_there(name);
    }

    fn changed(&self, path: &str, change: Change) {
        self.observer.changed(path, change);
    }

    fn removed(&self, path: &Path) {
        self.observer.removed(path);
    }

    fn failed(&self, name: &str, reason: &str) {
        self.observer.failed(name, reason);
    }

    fn note(&self, line: &str) {
        if !self.was_said(line) {
            self.observer.note(line);
        }
    }

    fn fallback(&self, brought: &Brought, cause: Option<&str>) {
        self.observer.fallback(brought, cause);
    }

    fn lonely(&self, line: &str) {
        if !self.was_said(line) {
            self.observer.lonely(line);
        }
    }
}
