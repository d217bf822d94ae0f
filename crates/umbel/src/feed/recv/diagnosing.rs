//! Looks for the cause when a receiver hears nothing of a feed.

use std::path::Path;
use std::sync::Arc;

use umbel_engine::tmtp::Brought;
use umbel_net::session::Pin;
use umbel_store::sink::Change;
use umbel_wire::feed::Feed;

use super::{RecvObserver, RecvSnapshot};

/// An observer that also reports why nothing is heard, if this host is the cause.
pub(super) struct Diagnosing {
    pub(super) observer: Arc<dyn RecvObserver>,
    /// Name or address of the interface, if the user names one.
    pub(super) wanted: Option<String>,
}

impl RecvObserver for Diagnosing {
    fn found(&self, feed: &Feed, signer: Pin, interface: &str) {
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

    fn removed(&self, path: &std::path::Path) {
        self.observer.removed(path);
    }

    fn failed(&self, name: &str, reason: &str) {
        self.observer.failed(name, reason);
    }

    fn note(&self, line: &str) {
        self.observer.note(line);
    }

    fn fallback(&self, brought: &Brought, cause: Option<&str>) {
        self.observer.fallback(brought, cause);
    }

    fn lonely(&self, line: &str) {
        self.observer.lonely(line);
        let (observer, wanted) = (self.observer.clone(), self.wanted.clone());
        // The doctor takes a second or two; the engine cannot wait that long.
        let diagnose = move || {
            let lines = crate::doctor::why_nothing_is_heard(wanted.as_deref());
            for line in &lines {
                observer.note(line);
            }
        };
        if let Err(error) = std::thread::Builder::new().spawn(diagnose) {
            tracing::warn!("no thread for the doctor: {error}");
        }
    }
}
