//! The timers of recovery.

use std::collections::BTreeSet;

use super::Unit;
use crate::Instant;

/// What is to happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// When to ask for a unit, unless someone else does before.
    Request(Unit),
    /// When to repair a unit, unless someone else does before.
    Repair(Unit),
    /// When to listen to requests for a unit again.
    HoldDown(Unit),
}

/// Timers in the order in which they run out.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers(BTreeSet<(Instant, Timer)>);

impl Timers {
    pub(super) fn set(&mut self, at: Instant, timer: Timer) {
        self.0.insert((at, timer));
    }

    /// Does nothing if there is no such timer.
    pub(super) fn cancel(&mut self, at: Instant, timer: Timer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<Timer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
