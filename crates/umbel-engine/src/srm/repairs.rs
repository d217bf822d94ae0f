//! Repairs of units that others are missing [SRM, loss recovery].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::srm::{MemberId, Message};

use super::adaptive::Interval;
use super::drops::DropReason;
use super::timers::UnitTimer;
use super::{Member, Step, Unit};
use crate::Instant;

/// The repairs that this member may have to send.
#[derive(Debug)]
pub(super) struct Repairs {
    waiting: BTreeMap<Unit, Waiting>,
    /// Repairs whose timers have run out. They leave as soon as the rate allows.
    due: BTreeSet<Unit>,
    held_down: BTreeMap<Unit, HeldDown>,
    /// D1 and D2.
    pub(super) interval: Interval,
}

/// A repair that another member requested.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    requester: MemberId,
    distance: Duration,
    scope: Option<u8>,
    asked: Instant,
    timer: Instant,
}

/// A unit that was repaired a moment ago.
#[derive(Clone, Copy, Debug)]
struct HeldDown {
    until: Instant,
    /// Number of repairs since.
    repairs: u32,
    /// Whether one was sent by this member.
    sent: bool,
}

impl Repairs {
    pub(super) fn new(interval: Interval) -> Repairs {
        Repairs {
            waiting: BTreeMap::new(),
            due: BTreeSet::new(),
            held_down: BTreeMap::new(),
            interval,
        }
    }

    /// Returns the number of repairs that wait for their timers or for the rate.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn any_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn held_down(&self) -> usize {
        self.held_down.len()
    }
}

/// The parts of a request on which a repair depends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) requester: MemberId,
    /// Distance from the requester to the source, as the requester states it.
    pub(super) distance: Duration,
    pub(super) scope: Option<u8>,
}

impl Member {
    /// Schedules a repair of a held unit that another member requests.
    pub(super) fn offer_repair(&mut self, now: Instant, unit: Unit, asked: Asked) {
        if self.repairs.held_down.get(&unit).is_some_and(|held| now < held.until) {
            return self.drops.count(DropReason::HeldDown);
        }
        if let Some(waiting) = self.repairs.waiting.get_mut(&unit) {
            // A requester that asks everyone is not served by a local repair.
            waiting.scope = waiting.scope.zip(asked.scope).map(|(one, other)| one.max(other));
            return;
        }
        if self.repairs.waiting.len() >= self.config.max_repairs {
            return self.drops.count(DropReason::OverLimit);
        }
        let distance = self.distance_to_requester(unit.source, asked);
        let members = self.census.others() + 1;
        if self.config.repair_timer.is_none() && !self.config.adaptive {
            self.repairs.interval.reset(decades(members));
        }
        self.repairs.interval.adapt(members);
        let (start, width) = self.repairs.interval.get();
        let timer = now + distance.mul_f64(start + width * self.uniform());
        let Asked { requester, scope, .. } = asked;
        let waiting = Waiting { requester, distance, scope, asked: now, timer };
        self.repairs.waiting.insert(unit, waiting);
        self.unit_timers.set(timer, UnitTimer::Repair(unit));
    }

    /// Returns the measured distance if there is one. Otherwise it returns the requester's claim
    /// for one of this member's own units. Else it returns the distance by way of the source, which
    /// is not shorter.
    fn distance_to_requester(&self, source: MemberId, asked: Asked) -> Duration {
        let measured = self.peers.distance(asked.requester);
        let claimed = || {
            let from_source = self.peers.distance(source)?;
            Some(asked.distance + from_source)
        };
        let distance = if source == self.config.id {
            measured.or(Some(asked.distance))
        } else {
            measured.or_else(claimed)
        };
        self.plausible(distance.unwrap_or(self.config.default_distance))
    }

    pub(super) fn on_repair_timer(&mut self, unit: Unit) {
        if self.repairs.waiting.contains_key(&unit) {
            self.repairs.due.insert(unit);
        }
    }

    /// Builds the next repair that is due.
    pub(super) fn next_repair(&mut self, now: Instant) -> Option<(Vec<u8>, Option<u8>)> {
        while let Some(unit) = self.repairs.due.pop_first() {
            let Some(waiting) = self.repairs.waiting.remove(&unit) else { continue };
            // It may have been evicted from the history meanwhile.
            let Some(payload) = self.held_unit(unit).cloned() else { continue };
            self.on_repair_sent(now, unit, waiting);
            return Some(self.repair_message(unit, waiting, &payload));
        }
        None
    }

    fn repair_message(
        &self,
        unit: Unit,
        waiting: Waiting,
        payload: &[u8],
    ) -> (Vec<u8>, Option<u8>) {
        let Waiting { requester, distance, scope, .. } = waiting;
        let Unit { source, sequence } = unit;
        let sender = self.config.id;
        let mut message = Vec::with_capacity(payload.len() + 96);
        Message::Repair { sender, source, sequence, requester, distance, scope, payload }
            .emit(&mut message);
        (message, scope)
    }

    fn on_repair_sent(&mut self, now: Instant, unit: Unit, waiting: Waiting) {
        self.stats.repairs_sent += 1;
        self.step(unit, Step::RepairSent);
        if waiting.requester != self.config.id {
            self.note_repair_delay(now - waiting.asked, waiting.distance);
            self.repairs.interval.on_sent();
        }
        self.hold_down(now, unit, waiting.distance, true);
    }

    fn note_repair_delay(&mut self, delay: Duration, distance: Duration) {
        self.repairs.interval.on_delay(delay.as_secs_f64() / (2.0 * distance.as_secs_f64()));
    }

    /// Ignores requests for the unit for [`Config::hold_down`](super::Config::hold_down) distances.
    fn hold_down(&mut self, now: Instant, unit: Unit, distance: Duration, sent: bool) {
        let until = now + distance.mul_f64(self.config.hold_down);
        let held = self.repairs.held_down.entry(unit).or_insert(HeldDown {
            until,
            repairs: 0,
            sent: false,
        });
        self.unit_timers.cancel(held.until, UnitTimer::HoldDown(unit));
        held.until = held.until.max(until);
        held.repairs += 1;
        held.sent |= sent;
        self.unit_timers.set(held.until, UnitTimer::HoldDown(unit));
    }

    pub(super) fn on_hold_down_over(&mut self, unit: Unit) {
        if let Some(held) = self.repairs.held_down.remove(&unit) {
            self.repairs.interval.on_duplicates(held.repairs.saturating_sub(1));
        }
    }

    /// Cancels this member's repair of a unit that another member has repaired.
    pub(super) fn on_repair_heard(&mut self, now: Instant, unit: Unit, repair: Heard) {
        if self.held_unit(unit).is_none() {
            return;
        }
        if let Some(waiting) = self.repairs.waiting.get(&unit).copied() {
            // A local repair does not reach requesters that asked everyone.
            if repair.scope.is_some() && waiting.scope.is_none() {
                return;
            }
            self.repairs.waiting.remove(&unit);
            self.repairs.due.remove(&unit);
            self.unit_timers.cancel(waiting.timer, UnitTimer::Repair(unit));
            self.note_repair_delay(now - waiting.asked, waiting.distance);
        }
        let distance = self.distance_to(repair.requester);
        let sent_here = self.repairs.held_down.get(&unit).is_some_and(|held| held.sent);
        if !sent_here || repair.distance < distance.mul_f64(1.5) {
            self.repairs.interval.on_nearer();
        }
        self.hold_down(now, unit, distance, false);
    }

    /// Schedules passing on a local repair that answers this member's request. It goes as far as
    /// the request went, so that all members that heard the request get the unit
    /// [SRM, local recovery].
    pub(super) fn pass_on(&mut self, now: Instant, unit: Unit, scope: u8) {
        if self.repairs.waiting.contains_key(&unit) {
            return;
        }
        let distance = self.config.min_distance;
        let (requester, scope) = (self.config.id, Some(scope));
        let waiting = Waiting { requester, distance, scope, asked: now, timer: now };
        self.repairs.waiting.insert(unit, waiting);
        self.repairs.due.insert(unit);
    }

    /// Returns a unit that this member can repair.
    pub(super) fn held_unit(&self, unit: Unit) -> Option<&Bytes> {
        if unit.source == self.config.id {
            self.own.history.get((), unit.sequence)
        } else {
            self.history.get(unit.source, unit.sequence)
        }
    }
}

/// The parts of a repair on which timers depend.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heard {
    pub(super) requester: MemberId,
    pub(super) distance: Duration,
    pub(super) scope: Option<u8>,
}

/// Returns D1 and D2 for a group of this size: both its log₁₀ [SRM, simulations], at least 1. They
/// are rounded, so that they come out the same on any machine.
fn decades(members: u64) -> (f64, f64) {
    let decades = ((members.max(10) as f64).log10() * 64.0).round() / 64.0;
    (decades, decades)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repair_timers_grow_with_the_decades_of_the_group() {
        for (members, expected) in [(1, 1.0), (10, 1.0), (100, 2.0), (10_000, 4.0)] {
            let (start, width) = decades(members);
            assert!((start - expected).abs() < 1e-9 && (width - expected).abs() < 1e-9);
        }
    }
}
