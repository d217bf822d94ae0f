//! The rate that most receivers can take.
//!
//! A receiver tells how many packets reached its machine and could not be kept: its socket's buffer
//! or the memory in front of its disk was full. Sending those again as fast as before would lose them
//! again. So when **most** of those who can speak complain, the rate is cut to what they kept; while
//! they do not, it rises again, up to the highest that is allowed.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Instant;
use crate::units::Rate;

/// How often the rate can change.
const WINDOW: Duration = Duration::from_millis(25);
/// A smaller share of packets that could not be kept is put up with.
const TOLERATED: f64 = 0.02;
/// What a cut leaves free beyond what was reported: full buffers must empty.
const MARGIN: f64 = 0.7;
/// The most that one window cuts.
const DEEPEST_CUT: f64 = 0.5;
/// By how much a window without complaints raises the rate: twofold in about a second while it is
/// well below the rate that was too high, and then carefully, by an eighth in a second.
const RISE: f64 = 1.02;
const CAREFUL_RISE: f64 = 1.003;
/// The share of the rate that was too high from which on the rise is careful.
const CAREFUL_FROM: f64 = 0.8;

/// The rate that most receivers can take, who are known as `Who`.
#[derive(Clone, Debug)]
pub(crate) struct Overrun<Who> {
    most: Rate,
    rate: Rate,
    least_share: f64,
    window_end: Instant,
    /// The rate before the last cut.
    too_high: Option<Rate>,
    /// When a receiver last told what share it could not keep, and that share.
    complaints: BTreeMap<Who, (Instant, f64)>,
}

impl<Who: Ord> Overrun<Who> {
    /// At most the rate `most`, and at least this share of it.
    pub(crate) fn new(most: Rate, least_share: f64) -> Overrun<Who> {
        Overrun {
            most,
            rate: most,
            least_share: least_share.clamp(0.0, 1.0),
            window_end: Instant::EPOCH,
            too_high: None,
            complaints: BTreeMap::new(),
        }
    }

    /// The present rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// A new maximum.
    pub(crate) fn set_most(&mut self, most: Rate) {
        self.most = most;
        self.rate = self.rate.min(most);
        self.too_high = None;
    }

    /// A receiver has kept, and could not keep, so many packets. `old` tells whether they were sent
    /// before the last cut: then it is no reason for another.
    pub(crate) fn hear(&mut self, now: Instant, who: Who, (kept, overrun): (u32, u32), old: bool) {
        let total = u64::from(kept) + u64::from(overrun);
        let share = f64::from(overrun) / total.max(1) as f64;
        if share <= TOLERATED {
            self.complaints.remove(&who);
        } else if !old {
            self.complaints.insert(who, (now, share));
        }
    }

    /// The receiver is gone.
    pub(crate) fn forget(&mut self, who: &Who) {
        self.complaints.remove(who);
    }

    /// Whether it is time for [`review`](Overrun::review).
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.window_end
    }

    /// Looks whether the rate should change. So many receivers may complain, and what they say counts
    /// for a time of `lasts`. `busy` tells whether data were sent since; they left at the rate
    /// `present` at most. Gives the new rate.
    pub(crate) fn review(
        &mut self,
        now: Instant,
        receivers: usize,
        lasts: Duration,
        (busy, present): (bool, Rate),
    ) -> Option<Rate> {
        if !self.is_due(now) {
            return None;
        }
        self.window_end = now + WINDOW;
        self.complaints.retain(|_, (at, _)| now.since(*at) <= lasts);
        let careful = self.too_high.is_some_and(|rate| self.rate >= rate.scaled(CAREFUL_FROM));
        let (from, factor) = match self.median_complaint(receivers) {
            Some(share) => (self.rate.min(present), ((1.0 - share) * MARGIN).max(DEEPEST_CUT)),
            None if !busy => (self.rate, 1.0),
            None if careful => (self.rate, CAREFUL_RISE),
            None => (self.rate, RISE),
        };
        let least = self.most.scaled(self.least_share);
        let rate = from.scaled(factor).clamp(least, self.most);
        if rate == self.rate {
            return None;
        }
        if rate < self.rate {
            self.too_high = Some(self.rate);
            self.complaints.clear();
        }
        self.rate = rate;
        Some(rate)
    }

    /// The share that half of the receivers cannot keep or more; `None` if most do not complain.
    fn median_complaint(&self, receivers: usize) -> Option<f64> {
        if self.complaints.len() * 2 <= receivers {
            return None;
        }
        let mut shares: Vec<f64> = self.complaints.values().map(|&(_, share)| share).collect();
        shares.sort_unstable_by(|a, b| b.total_cmp(a));
        shares.get(receivers / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LASTS: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    const MOST: Rate = Rate::from_bits_per_s(1_000_000).unwrap();

    fn overrun() -> Overrun<u64> {
        Overrun::new(MOST, 0.1)
    }

    #[test]
    fn the_rate_falls_to_what_most_receivers_keep_and_rises_again() {
        let mut overrun = overrun();
        overrun.hear(at(100), 1, (700, 300), false);
        assert_eq!(overrun.review(at(100), 3, LASTS, (true, MOST)), None, "one of three");
        overrun.hear(at(110), 2, (800, 200), false);
        let rate = overrun.review(at(125), 3, LASTS, (true, MOST)).unwrap();
        assert_eq!(rate.bits_per_s(), 560_000);
        // What is said about the time before does not count again.
        overrun.hear(at(150), 1, (700, 300), true);
        overrun.hear(at(150), 2, (700, 300), true);
        let mut rate = overrun.review(at(150), 3, LASTS, (true, MOST)).unwrap();
        assert!(rate.bits_per_s() > 560_000);
        for step in 7..400 {
            rate = overrun.review(at(step * 25), 3, LASTS, (true, MOST)).unwrap_or(rate);
        }
        assert_eq!(rate.bits_per_s(), 1_000_000);
    }

    #[test]
    fn there_is_a_least_rate_and_an_idle_source_changes_nothing() {
        let mut overrun = overrun();
        for step in 1..20 {
            overrun.hear(at(step * 100), 1, (0, 100), false);
            overrun.review(at(step * 100), 1, LASTS, (false, MOST));
        }
        assert_eq!(overrun.rate().bits_per_s(), 100_000);
        assert_eq!(overrun.review(at(9000), 1, LASTS, (false, MOST)), None);
        overrun.set_most(Rate::from_bits_per_s(50_000).unwrap());
        assert_eq!(overrun.rate().bits_per_s(), 50_000);
    }
}
