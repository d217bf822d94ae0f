//! What a running transfer tells: people see a meter and notes, programs read events.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;

use super::output::{Meter, Output, plain};

/// Programs that read JSON hear of progress this often.
pub(super) const TELL_EVERY: Duration = Duration::from_millis(200);

/// Tells of a transfer, whose progress is an `S`.
pub(super) struct Teller<S> {
    pub(super) output: Output,
    meter: Mutex<Meter>,
    /// When programs last heard of progress, and of which.
    told: Mutex<Option<(Instant, S)>>,
}

impl<S: Clone + Serialize> Teller<S> {
    pub(super) fn new(output: &Output) -> Teller<S> {
        let meter = Mutex::new(Meter::bytes(output));
        Teller { output: output.clone(), meter, told: Mutex::new(None) }
    }

    pub(super) fn meter(&self) -> MutexGuard<'_, Meter> {
        self.meter.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells programs of progress, unless they heard of some less than `interval` ago, which may
    /// depend on what they heard then.
    pub(super) fn tell(&self, snapshot: &S, interval: impl FnOnce(&S) -> Duration) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.as_ref().is_none_or(|(at, before)| at.elapsed() >= interval(before)) {
            *told = Some((Instant::now(), snapshot.clone()));
            self.output.json(&json!({ "event": "progress", "progress": snapshot }));
        }
    }

    pub(super) fn tell_item(&self, name: &str, path: &Path, bytes: u64) {
        let path = path.display().to_string();
        self.output.json(&json!({ "event": "item", "name": name, "path": path, "bytes": bytes }));
    }

    pub(super) fn tell_already_there(&self, name: &str) {
        self.output.json(&json!({ "event": "already-there", "name": name }));
    }

    pub(super) fn tell_failed(&self, name: &str, reason: &str) {
        self.output.json(&json!({ "event": "failed", "name": name, "reason": reason }));
        self.meter().note(&format!("{}: {}", plain(name), plain(reason)));
    }

    pub(super) fn tell_note(&self, line: &str) {
        self.output.json(&json!({ "event": "note", "message": line }));
        self.meter().note(&plain(line));
    }
}
