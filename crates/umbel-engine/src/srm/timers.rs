//! A member's timers: those of units, and its own.

use super::Unit;
use crate::timers::{Deadlines, timers};

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

/// The timers of units.
pub(super) type UnitTimers = Deadlines<UnitTimer>;
