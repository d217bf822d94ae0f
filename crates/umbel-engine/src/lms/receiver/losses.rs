//! Missing units, and the timing of their requests.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::lms::UnitSet;

use crate::Instant;
use crate::bucket::Limiter;
use crate::lms::config::ReceiverConfig;
use crate::lms::rtt::Rtt;

/// A missing unit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loss {
    pub(super) detected: Instant,
    /// Number of requests sent.
    pub(super) requests: u8,
    /// Time of the next request.
    next: Instant,
}

/// Requests that are due together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueRequest {
    pub(super) units: UnitSet,
    /// Number of the request, counted from 1.
    pub(super) number: u8,
}

/// All missing units; never more than the window is wide.
#[derive(Clone, Debug)]
pub(super) struct Losses {
    units: BTreeMap<u64, Loss>,
    bucket: Limiter,
    /// Bound on the earliest due request, which is not before it.
    next: Option<Instant>,
}

/// Delay of a request that exceeds the allowance.
const WAIT: Duration = Duration::from_millis(5);

impl Losses {
    pub(super) fn new(bucket: Limiter) -> Losses {
        Losses { units: BTreeMap::new(), bucket, next: None }
    }

    pub(super) fn contains(&self, sequence: u64) -> bool {
        self.units.contains_key(&sequence)
    }

    pub(super) fn len(&self) -> usize {
        self.units.len()
    }

    /// Notes that a unit was found missing.
    pub(super) fn detect(&mut self, now: Instant, sequence: u64, delay: Duration) {
        let next = now + delay;
        self.units.insert(sequence, Loss { detected: now, requests: 0, next });
        self.wake_by(next);
    }

    /// Removes a unit that has arrived after all.
    pub(super) fn recover(&mut self, sequence: u64) -> Option<Loss> {
        self.units.remove(&sequence)
    }

    /// Gives up the units before this one.
    pub(super) fn give_up_before(&mut self, horizon: u64) {
        self.units = self.units.split_off(&horizon);
    }

    fn wake_by(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Returns the time of the next request, or an earlier one.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.next
    }

    /// Returns the requests that are due. Their units are due again after the timeout. O(losses).
    pub(super) fn due(
        &mut self,
        now: Instant,
        config: &ReceiverConfig,
        rtt: &Rtt,
        mut share: impl FnMut() -> f64,
    ) -> Vec<DueRequest> {
        let mut due: Vec<DueRequest> = Vec::new();
        if self.next.is_none_or(|next| next > now) {
            return due;
        }
        self.next = None;
        let (least, most) = config.request_timeout;
        let base = rtt.timeout(config.request_timeout_rtts).clamp(least, most);
        let (mut next, mut joint) = (None, 0);
        for (&sequence, loss) in &mut self.units {
            if loss.next <= now {
                let number = loss.requests.saturating_add(1);
                let joined = due.last_mut().filter(|last| last.number == number);
                let joined = joined.filter(|_| joint < config.units_per_request);
                let set = joined.and_then(|last| Some((last.units.with(sequence)?, last)));
                if let Some((set, last)) = set {
                    last.units = set;
                    joint += 1;
                } else if self.bucket.take(now) {
                    due.push(DueRequest { units: UnitSet::one(sequence), number });
                    joint = 1;
                } else {
                    next = Some(now + WAIT);
                    break;
                }
                let doubled = 2_u32.saturating_pow(u32::from(loss.requests));
                let wait = base * doubled.min(config.request_backoff.max(1));
                let wait = wait.min(most).mul_f64(1.0 + config.request_jitter.max(0.0) * share());
                loss.requests = number;
                loss.next = now + wait;
            }
            next = Some(next.map_or(loss.next, |next: Instant| next.min(loss.next)));
        }
        self.next = next;
        due
    }
}
