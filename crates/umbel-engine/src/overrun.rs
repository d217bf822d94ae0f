//! A rate that most receivers can take.
//!
//! A receiver reports the number of packets that reached its machine and were dropped there. Its
//! socket's buffer, or the memory in front of its disk, was full. Sending those again as fast as
//! before would lose them again. When **most** of the receivers complain, the rate is therefore cut
//! to the share that they kept. While they do not, it rises again, up to the allowed maximum.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Instant;
use crate::units::Rate;

/// Time between two changes of the rate.
const WINDOW: Duration = Duration::from_millis(25);
/// Losses up to this share of packets are tolerated.
const TOLERATED: f64 = 0.02;
/// Share of the reported capacity that a cut uses, so that full buffers empty.
const MARGIN: f64 = 0.7;
/// Factor of the deepest cut in one window.
const DEEPEST_CUT: f64 = 0.5;
/// Factors by which a window without complaints raises the rate. It doubles in about a second while
/// well below the rate that was too high, and then rises carefully, by an eighth in a second.
const RISE: f64 = 1.02;
const CAREFUL_RISE: f64 = 1.003;
/// Share of the rate that was too high above which the rise is careful.
const CAREFUL_FROM: f64 = 0.8;

/// The rate that most receivers can take. Receivers are identified by `Who`.
#[derive(Clone, Debug)]
pub(crate) struct Overrun<Who> {
    most: Rate,
    rate: Rate,
    least_share: f64,
    window_end: Instant,
    /// Rate before the last cut.
    too_high: Option<Rate>,
    /// Time and dropped share of each receiver's last complaint.
    complaints: BTreeMap<Who, (Instant, f64)>,
}

impl<Who: Ord> Overrun<Who> {
    /// Creates a limit with the maximum rate `most`, and this share of it as the minimum.
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

    /// Returns the present rate.
    pub(crate) fn rate(&self) -> Rate {
        self.rate
    }

    /// Records the numbers of packets that a receiver has kept and dropped. If `old`, they were
    /// sent before the last cut and are no reason for another.
    pub(crate) fn hear(&mut self, now: Instant, who: Who, (kept, overrun): (u32, u32), old: bool) {
        let total = u64::from(kept) + u64::from(overrun);
        let share = f64::from(overrun) / total.max(1) as f64;
        if share <= TOLERATED {
            self.complaints.remove(&who);
        } else if !old {
            self.complaints.insert(who, (now, share));
        }
    }

    /// Forgets a receiver that is gone.
    pub(crate) fn forget(&mut self, who: &Who) {
        self.complaints.remove(who);
    }

    /// Returns whether it is time for [`review`](Overrun::review).
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now >= self.window_end
    }

    /// Reviews the rate, and returns the new one if it changes. `receivers` is the number of
    /// receivers that may complain, and complaints count for a time of `lasts`. `busy` tells
    /// whether data were sent since the last review, at the rate `present` at most.
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

    /// Returns the median of the dropped shares of all receivers, or `None` if most do not
    /// complain.
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
        // Late complaints about the time before do not count again.
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
    }
}
