//! Queues of things that come due after a while.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_engine::Instant;

/// A queue of things that come due. Clones are the same queue, so that code without a clock can
/// append to it.
#[derive(Debug)]
pub(super) struct Later<T>(Arc<Mutex<Line<T>>>);

#[derive(Debug)]
struct Line<T> {
    /// Things appended since the last `take`.
    fresh: Vec<(Duration, T)>,
    /// Whether things stay in the order in which they were appended.
    in_order: bool,
    last: Instant,
    due: BTreeMap<(Instant, u64), T>,
    count: u64,
}

impl<T> Clone for Later<T> {
    fn clone(&self) -> Later<T> {
        Later(self.0.clone())
    }
}

impl<T> Default for Later<T> {
    fn default() -> Later<T> {
        Later(Arc::new(Mutex::new(Line {
            fresh: Vec::new(),
            in_order: false,
            last: Instant::EPOCH,
            due: BTreeMap::new(),
            count: 0,
        })))
    }
}

impl<T> Later<T> {
    /// Creates a queue in which things stay in the order in which they were appended.
    pub(super) fn in_order() -> Later<T> {
        let later = Later::default();
        later.line().in_order = true;
        later
    }

    fn line(&self) -> MutexGuard<'_, Line<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends a thing that is due this long after now.
    pub(super) fn put(&self, after: Duration, thing: T) {
        self.line().fresh.push((after, thing));
    }

    /// Takes the next thing that is due.
    pub(super) fn take(&self, now: Instant) -> Option<T> {
        let mut line = self.line();
        line.settle(now);
        let ((at, _), _) = line.due.first_key_value()?;
        if *at <= now { line.due.pop_first().map(|(_, thing)| thing) } else { None }
    }

    /// Returns the time at which the next thing is due. Ignores things appended since the last
    /// [`take`](Later::take).
    pub(super) fn next(&self) -> Option<Instant> {
        self.line().due.first_key_value().map(|((at, _), _)| *at)
    }

    /// Drops things that are no longer wanted.
    pub(super) fn retain(&self, keep: impl Fn(&T) -> bool) {
        let mut line = self.line();
        line.fresh.retain(|(_, thing)| keep(thing));
        line.due.retain(|_, thing| keep(thing));
    }
}

impl<T> Line<T> {
    fn settle(&mut self, now: Instant) {
        for (after, thing) in std::mem::take(&mut self.fresh) {
            self.count += 1;
            let at = if self.in_order { self.last.max(now + after) } else { now + after };
            self.last = at;
            self.due.insert((at, self.count), thing);
        }
    }
}
