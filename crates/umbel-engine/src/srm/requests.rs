//! Requests for missing units [SRM, loss recovery].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use umbel_wire::srm::{MemberId, Message, UnitRun, limits};

use super::adaptive::Interval;
use super::timers::UnitTimer;
use super::{Event, Member, Step, Unit};
use crate::Instant;

/// Greatest number of times that an interval is doubled.
const MAX_BACKOFF: u32 = 20;

/// The requests for this member's missing units.
#[derive(Debug)]
pub(super) struct Requests {
    pending: BTreeMap<Unit, Pending>,
    /// Requests whose timers have run out. They leave as soon as the rate allows.
    due: BTreeSet<Unit>,
    /// C1 and C2.
    pub(super) interval: Interval,
}

/// A unit that is missing.
#[derive(Clone, Copy, Debug)]
struct Pending {
    detected: Instant,
    timer: Instant,
    /// Number of times that the interval was doubled.
    backoff: u32,
    /// Requests before this belong to the same round and do not back off again.
    ignore_until: Instant,
    /// Number of requests from this member.
    sent: u32,
    /// Number of requests from others.
    heard: u32,
}

impl Requests {
    pub(super) fn new(interval: Interval) -> Requests {
        Requests { pending: BTreeMap::new(), due: BTreeSet::new(), interval }
    }

    /// Returns the number of missing units.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    pub(super) fn any_due(&self) -> bool {
        !self.due.is_empty()
    }

    pub(super) fn is_pending(&self, unit: Unit) -> bool {
        self.pending.contains_key(&unit)
    }
}

impl Member {
    /// Sets a timer for each unit that is newly found missing. The units of one gap share it, so
    /// that one request covers them all.
    pub(super) fn find_gaps(&mut self, now: Instant, source: MemberId) {
        let distance = self.distance_to(source);
        while let Some(gap) = self.sources.get_mut(&source).and_then(|s| s.window.poll_gap()) {
            self.requests.interval.adapt(self.census.others() + 1);
            let delay = self.request_delay(distance, 0);
            for sequence in gap {
                let unit = Unit { source, sequence };
                let timer = now + delay;
                self.requests.pending.insert(
                    unit,
                    Pending {
                        detected: now,
                        timer,
                        backoff: 0,
                        ignore_until: now,
                        sent: 0,
                        heard: 0,
                    },
                );
                self.unit_timers.set(timer, UnitTimer::Request(unit));
                self.step(unit, Step::Missing);
            }
        }
    }

    /// Draws a delay from 2ⁱ·[C1·d, (C1 + C2)·d], within the longest interval.
    fn request_delay(&mut self, distance: Duration, backoff: u32) -> Duration {
        let (start, width) = self.requests.interval.get();
        let doubled = distance.mul_f64(f64::from(1_u32 << backoff.min(MAX_BACKOFF)));
        let longest = self.config.max_request_interval.div_f64((start + width).max(1.0));
        doubled.min(longest.max(distance * 4)).mul_f64(start + width * self.uniform())
    }

    pub(super) fn on_request_timer(&mut self, now: Instant, unit: Unit) {
        let Some(pending) = self.requests.pending.get(&unit) else { return };
        if now - pending.detected >= self.config.give_up_after {
            self.give_up_before(unit.source, unit.sequence + 1);
            self.find_gaps(now, unit.source);
        } else {
            self.requests.due.insert(unit);
        }
    }

    /// Handles another member's request for a unit that is missing here too.
    pub(super) fn on_request_heard(&mut self, now: Instant, unit: Unit, their_distance: Duration) {
        let our_distance = self.distance_to(unit.source);
        let Some(pending) = self.requests.pending.get_mut(&unit) else { return };
        pending.heard += 1;
        let (first, asked) = (pending.sent + pending.heard == 1, pending.sent > 0);
        let (detected, ignored) = (pending.detected, now < pending.ignore_until);
        if first {
            self.note_request_delay(now - detected, our_distance);
        }
        if !asked || their_distance < our_distance.mul_f64(1.5) {
            self.requests.interval.on_nearer();
        }
        if !ignored {
            self.back_off(now, unit);
        }
    }

    fn note_request_delay(&mut self, delay: Duration, distance: Duration) {
        self.requests.interval.on_delay(delay.as_secs_f64() / (2.0 * distance.as_secs_f64()));
    }

    /// Doubles the interval and restarts the timer. Until half of it has passed, further requests
    /// count as the same round.
    fn back_off(&mut self, now: Instant, unit: Unit) {
        let distance = self.distance_to(unit.source);
        let Some(backoff) = self.requests.pending.get(&unit).map(|pending| pending.backoff + 1)
        else {
            return;
        };
        let delay = self.request_delay(distance, backoff);
        let Some(pending) = self.requests.pending.get_mut(&unit) else { return };
        self.unit_timers.cancel(pending.timer, UnitTimer::Request(unit));
        pending.backoff = backoff;
        pending.timer = now + delay;
        pending.ignore_until = now + delay / 2;
        self.unit_timers.set(pending.timer, UnitTimer::Request(unit));
        self.requests.due.remove(&unit);
    }

    /// Cancels the request for a unit that has come. Returns the time for which it was missing, if
    /// it was.
    pub(super) fn stop_asking(&mut self, now: Instant, unit: Unit) -> Option<Duration> {
        let pending = self.requests.pending.remove(&unit)?;
        self.unit_timers.cancel(pending.timer, UnitTimer::Request(unit));
        self.requests.due.remove(&unit);
        if pending.sent + pending.heard > 0 {
            // Each round needs one request.
            let rounds = pending.backoff.max(1);
            let duplicates = (pending.sent + pending.heard).saturating_sub(rounds);
            self.requests.interval.on_duplicates(duplicates);
        }
        Some(now - pending.detected)
    }

    /// Builds the next request that is due: all due units of a source with the same scope.
    pub(super) fn next_request(&mut self, now: Instant) -> Option<(Vec<u8>, Option<u8>)> {
        let first = *self.requests.due.first()?;
        let source = first.source;
        let scope = self.request_scope(first);
        let last = Unit { source, sequence: u64::MAX };
        let due: Vec<Unit> = self
            .requests
            .due
            .range(first..=last)
            .copied()
            .filter(|&unit| self.request_scope(unit) == scope)
            .take(limits::UNITS as usize)
            .collect();
        let mut runs: Vec<UnitRun> = Vec::new();
        let mut asked = Vec::new();
        for unit in due {
            let full = runs.len() == limits::RUNS;
            match runs.last_mut() {
                Some(run) if run.first + run.count == unit.sequence => run.count += 1,
                _ if full => break,
                _ => runs.push(UnitRun { first: unit.sequence, count: 1 }),
            }
            asked.push(unit);
        }
        let distance = self.distance_to(source);
        for unit in asked {
            self.on_request_sent(now, unit, distance);
        }
        let mut message = Vec::new();
        Message::Request { sender: self.config.id, source, runs, distance, scope }
            .emit(&mut message);
        Some((message, scope))
    }

    /// Returns the scope of a request. Only the first round may be local.
    fn request_scope(&self, unit: Unit) -> Option<u8> {
        let first = self.requests.pending.get(&unit).is_some_and(|pending| pending.backoff == 0);
        self.config.local_scope.filter(|_| first)
    }

    fn on_request_sent(&mut self, now: Instant, unit: Unit, distance: Duration) {
        let Some(pending) = self.requests.pending.get_mut(&unit) else { return };
        pending.sent += 1;
        let (first, detected) = (pending.sent + pending.heard == 1, pending.detected);
        if first {
            self.note_request_delay(now - detected, distance);
            self.requests.interval.on_sent();
        }
        self.stats.requests_sent += 1;
        self.step(unit, Step::RequestSent);
        self.back_off(now, unit);
    }

    /// Gives up a source's missing units before a unit.
    pub(super) fn give_up_before(&mut self, source: MemberId, horizon: u64) {
        let Some(inflow) = self.sources.get_mut(&source) else { return };
        let units = inflow.window.give_up_before(horizon);
        let first = Unit { source, sequence: 0 };
        let given_up: Vec<Unit> = self
            .requests
            .pending
            .range(first..Unit { source, sequence: horizon })
            .map(|(&unit, _)| unit)
            .collect();
        for unit in given_up {
            if let Some(pending) = self.requests.pending.remove(&unit) {
                self.unit_timers.cancel(pending.timer, UnitTimer::Request(unit));
                self.requests.due.remove(&unit);
            }
        }
        // Units held in between are delivered first.
        self.deliver(source);
        if units > 0 {
            self.stats.lost += units;
            self.events.push_back(Event::Lost { source, before: horizon, units });
        }
    }

    /// Forgets all requests for a source's units.
    pub(super) fn forget_requests(&mut self, source: MemberId) {
        let range = Unit { source, sequence: 0 }..=Unit { source, sequence: u64::MAX };
        let units: Vec<Unit> = self.requests.pending.range(range).map(|(&unit, _)| unit).collect();
        for unit in units {
            if let Some(pending) = self.requests.pending.remove(&unit) {
                self.unit_timers.cancel(pending.timer, UnitTimer::Request(unit));
                self.requests.due.remove(&unit);
            }
        }
    }
}
