//! A member's timers: those of units, and its own.

use std::collections::BTreeSet;

use super::Unit;
use crate::Instant;
use crate::timers::timers;

timers! {
    /// Timers of a member.
    pub(super) enum Timer, Timers {
        /// When to handle the first timer of a unit.
        Unit,
        /// When to send the next due request or repair.
        Recovery,
        /// When to send an extra session message, so that the loss of a last unit is found.
        Heartbeat,
        /// When to send a session message.
        Session,
    }
}

/// Timers of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum UnitTimer {
    /// When to request a unit, unless another member does so first.
    Request(Unit),
    /// When to repair a unit, unless another member does so first.
    Repair(Unit),
    /// When to accept requests for a unit again.
    HoldDown(Unit),
}

/// The timers of units, in the order in which they run out.
#[derive(Clone, Debug, Default)]
pub(super) struct UnitTimers(BTreeSet<(Instant, UnitTimer)>);

impl UnitTimers {
    pub(super) fn set(&mut self, at: Instant, timer: UnitTimer) {
        self.0.insert((at, timer));
    }

    /// Cancels a timer. Does nothing if it is not set.
    pub(super) fn cancel(&mut self, at: Instant, timer: UnitTimer) {
        self.0.remove(&(at, timer));
    }

    pub(super) fn next(&self) -> Option<Instant> {
        self.0.first().map(|&(at, _)| at)
    }

    pub(super) fn pop_due(&mut self, now: Instant) -> Option<UnitTimer> {
        if self.next()? > now {
            return None;
        }
        self.0.pop_first().map(|(_, timer)| timer)
    }
}
