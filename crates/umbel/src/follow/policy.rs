//! Which version of a feed is taken next, and when one that failed is tried again.
//!
//! ```text
//!             newer than all that was taken            all of it is there
//! Waiting ──────────────────────────────────▶ Taking ────────────────────▶ Waiting
//!    ▲                                           │ failed
//!    │ after a pause, heard again; or newer      ▼
//!    └────────────────────────────────────── Resting ── so many times ──▶ until there is a newer one
//! ```
//!
//! Of several versions on the air the newest is taken, so a machine that was off does not go through
//! those between.

use std::num::NonZeroU32;
use std::time::{Duration, Instant};

/// Pause after the first failure of a version, which doubles with each, and the longest one.
const PAUSE: (Duration, Duration) = (Duration::from_secs(5), Duration::from_mins(10));

/// Returns the pause after so many failures in a row, at least one.
pub(crate) fn pause_after(failures: u32) -> Duration {
    let doublings = failures.saturating_sub(1).min(16);
    (PAUSE.0 * 2_u32.pow(doublings)).min(PAUSE.1)
}

/// A version on the air.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OnAir {
    pub(crate) version: u64,
    /// Time at which it was heard last.
    pub(crate) heard: Instant,
}

/// What becomes of a version that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// Number of times that it was tried.
    pub(crate) attempts: u32,
    /// Pause before it is tried again; `None` if it is given up.
    pub(crate) again_in: Option<Duration>,
}

/// A version that failed.
#[derive(Clone, Copy, Debug)]
struct Failed {
    version: u64,
    attempts: u32,
    at: Instant,
    again: Option<Instant>,
    /// Whether its source was asked for a sign since the pause is over.
    asked: bool,
}

/// The versions of one name.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The last version that was taken. Nothing up to it is taken again.
    taken: Option<u64>,
    /// Whether one is being taken.
    taking: bool,
    failed: Option<Failed>,
    /// Attempts after which a version is given up.
    most: Option<NonZeroU32>,
}

impl Plan {
    pub(crate) fn new(taken: Option<u64>, most: Option<NonZeroU32>) -> Plan {
        Plan { taken, taking: false, failed: None, most }
    }

    /// Returns the version that is to be taken now, if there is one. It counts as being taken until
    /// the plan hears how that ended.
    pub(crate) fn next(&mut self, now: Instant, on_air: &[OnAir]) -> Option<u64> {
        if self.taking {
            return None;
        }
        let is_new = |on_air: &&OnAir| self.taken.is_none_or(|taken| on_air.version > taken);
        let newest = on_air.iter().filter(is_new).max_by_key(|on_air| on_air.version)?;
        let is_due = match self.failed {
            // A source that is gone need not be looked for in vain again.
            Some(failed) if newest.version <= failed.version => {
                failed.again.is_some_and(|again| again <= now) && newest.heard > failed.at
            }
            _ => true,
        };
        self.taking = is_due;
        is_due.then_some(newest.version)
    }

    /// Returns, once after each pause, that its source should be asked for a sign.
    pub(crate) fn wants_sign(&mut self, now: Instant) -> bool {
        let Some(failed) = self.failed.as_mut().filter(|_| !self.taking) else { return false };
        let is_due = failed.again.is_some_and(|again| again <= now);
        is_due && !std::mem::replace(&mut failed.asked, true)
    }

    /// Notes that all of a version is there.
    pub(crate) fn on_taken(&mut self, version: u64) {
        self.taking = false;
        self.taken = self.taken.max(Some(version));
        self.failed = None;
    }

    /// Notes that a version could not be taken.
    pub(crate) fn on_failed(&mut self, now: Instant, version: u64) -> Verdict {
        self.taking = false;
        let before = self.failed.filter(|failed| failed.version == version);
        let attempts = before.map_or(0, |failed| failed.attempts).saturating_add(1);
        let goes_on = self.most.is_none_or(|most| attempts < most.get());
        let again_in = goes_on.then(|| pause_after(attempts));
        let again = again_in.map(|pause| now + pause);
        self.failed = Some(Failed { version, attempts, at: now, again, asked: false });
        Verdict { attempts, again_in }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn on_air(version: u64, heard: Instant) -> OnAir {
        OnAir { version, heard }
    }

    #[test]
    fn each_version_is_taken_once_and_the_newest_of_several() {
        let now = Instant::now();
        let mut plan = Plan::new(None, None);
        assert_eq!(plan.next(now, &[]), None);
        let versions = [on_air(3, now), on_air(7, now), on_air(5, now)];
        assert_eq!(plan.next(now, &versions), Some(7));
        assert_eq!(plan.next(now, &versions), None, "it is being taken");
        plan.on_taken(7);
        assert_eq!(plan.next(now, &versions), None, "those before it are not taken any more");
        assert_eq!(plan.next(now, &[on_air(8, now)]), Some(8));
        // Its source was started again meanwhile.
        plan.on_taken(9);
        assert_eq!(plan.next(now, &[on_air(9, now)]), None);
        let mut restarted = Plan::new(Some(9), None);
        assert_eq!(restarted.next(now, &[on_air(9, now)]), None);
        assert_eq!(restarted.next(now, &[on_air(10, now)]), Some(10));
    }

    #[test]
    fn one_that_failed_is_tried_again_after_ever_longer_pauses_if_it_is_still_there() {
        let mut now = Instant::now();
        let mut plan = Plan::new(None, None);
        let mut pauses = Vec::new();
        for attempts in 1..=10 {
            assert_eq!(plan.next(now, &[on_air(1, now)]), Some(1));
            let verdict = plan.on_failed(now, 1);
            assert_eq!(verdict.attempts, attempts);
            let (failed, pause) = (now, verdict.again_in.unwrap());
            assert_eq!(plan.next(now, &[on_air(1, now)]), None);
            assert!(!plan.wants_sign(now));
            now += pause;
            assert_eq!(plan.next(now, &[on_air(1, failed)]), None, "it was not heard since");
            assert!(plan.wants_sign(now) && !plan.wants_sign(now));
            pauses.push(pause.as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600, 600]);
        assert_eq!(pause_after(u32::MAX), PAUSE.1);
        assert_eq!(plan.next(now, &[on_air(1, now)]), Some(1));
        plan.on_taken(1);
        assert!(!plan.wants_sign(now));
    }

    #[test]
    fn a_newer_version_does_not_wait_for_one_that_failed() {
        let now = Instant::now();
        let mut plan = Plan::new(None, None);
        plan.next(now, &[on_air(1, now)]);
        plan.on_failed(now, 1);
        plan.next(now + SECOND, &[on_air(1, now)]);
        let both = [on_air(1, now + SECOND), on_air(2, now)];
        assert_eq!(plan.next(now + SECOND, &both), Some(2));
        // What failed counts for each version alone.
        assert_eq!(plan.on_failed(now + SECOND, 2).attempts, 1);
        assert_eq!(plan.next(now + 2 * SECOND, &both), None);
    }

    #[test]
    fn after_so_many_attempts_a_version_is_given_up_and_a_newer_one_is_not() {
        let mut now = Instant::now();
        let mut plan = Plan::new(None, NonZeroU32::new(2));
        for again in [true, false] {
            assert_eq!(plan.next(now, &[on_air(4, now)]), Some(4));
            assert_eq!(plan.on_failed(now, 4).again_in.is_some(), again);
            now += PAUSE.1;
        }
        assert_eq!(plan.next(now, &[on_air(4, now), on_air(3, now)]), None);
        assert!(!plan.wants_sign(now));
        assert_eq!(plan.next(now, &[on_air(5, now)]), Some(5));
    }
}
