//! The time for which children of a node may hold up a feed that is open to all.
//!
//! A child that acknowledges nothing new shuts the window, and nobody can tell whether it is slow,
//! cut off or a stranger at work. Where anyone may become a child, all children together have a
//! budget of such time. When it is spent, those that make no progress no longer count: the feed
//! goes on without them. They remain children, have losses repaired and fetch what they lack, and
//! count again once they have caught up and there is a budget again.

use std::time::Duration;

use super::config::HoldUp;
use crate::Instant;

/// The budget of a node's children.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    config: HoldUp,
    spent: Duration,
    earned: Duration,
    reviewed: Instant,
    /// One beyond the last block that was sent at the last review.
    end: u32,
}

impl Budget {
    /// Creates a budget of which nothing is spent.
    pub(super) fn new(config: HoldUp) -> Budget {
        let (spent, reviewed) = (Duration::ZERO, Instant::EPOCH);
        Budget { config, spent, earned: config.first, reviewed, end: 0 }
    }

    /// Accounts for the time since the last review, in which children held up the feed or blocks
    /// before `end` were sent. No more than a `period` is accounted for.
    pub(super) fn review(&mut self, now: Instant, period: Duration, held_up: bool, end: u32) {
        let passed = now.since(self.reviewed).min(period);
        if held_up {
            self.spent = self.spent.saturating_add(passed);
        } else if end > self.end {
            self.earned = self.earned.saturating_add(passed.mul_f64(self.config.share));
        }
        self.reviewed = now;
        self.end = end;
    }

    /// Returns whether children may no longer hold up the feed.
    pub(super) fn is_spent(&self) -> bool {
        self.spent >= self.earned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PERIOD: Duration = Duration::from_millis(50);

    #[test]
    fn what_is_spent_is_earned_by_sending() {
        let config = HoldUp { first: Duration::from_millis(200), share: 0.05 };
        let mut budget = Budget::new(config);
        let mut now = Instant::EPOCH;
        let mut held_up = Duration::ZERO;
        for end in 0..10_000 {
            now += PERIOD;
            let holds = !budget.is_spent();
            held_up += PERIOD * u32::from(holds);
            budget.review(now, PERIOD, holds, end);
        }
        let sent = now.since(Instant::EPOCH).saturating_sub(held_up);
        let most = config.first + sent.mul_f64(config.share) + PERIOD;
        assert!(held_up <= most && held_up + PERIOD * 2 >= most, "{held_up:?} of {most:?}");
    }

    #[test]
    fn a_feed_in_which_nothing_is_sent_earns_nothing() {
        let mut budget = Budget::new(HoldUp { first: Duration::ZERO, share: 0.05 });
        let mut now = Instant::EPOCH;
        for _ in 0..1_000 {
            now += PERIOD;
            budget.review(now, PERIOD, false, 0);
        }
        assert!(budget.is_spent());
    }
}
