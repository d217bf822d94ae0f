//! The rate that children can take.
//!
//! A child tells in its acknowledgements how many packets reached its machine and could not be
//! kept. While most of the children complain, sending on at the same rate would only lose more: the
//! rate is cut to what they kept.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::tmtp::NodeId;

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
/// By how much a window without complaints raises the rate, while it is well below the rate that was
/// too high, and then carefully.
const RISE: f64 = 1.02;
const CAREFUL_RISE: f64 = 1.003;
/// The share of the rate that was too high from which on the rise is careful.
const CAREFUL_FROM: f64 = 0.8;

/// The rate that children can take.
#[derive(Clone, Debug)]
pub(super) struct Overrun {
    most: Rate,
    rate: Rate,
    least_share: f64,
    window_end: Instant,
    /// The rate before the last cut.
    too_high: Option<Rate>,
    /// When a child last told what share it could not keep, and that share.
    complaints: BTreeMap<NodeId, (Instant, f64)>,
    /// Complaints about the time before the last cut do not count.
    cut: Instant,
}

impl Overrun {
    pub(super) fn new(most: Rate, least_share: f64) -> Overrun {
        Overrun {
            most,
            rate: most,
            least_share: least_share.clamp(0.0, 1.0),
            window_end: Instant::EPOCH,
            too_high: None,
            complaints: BTreeMap::new(),
            cut: Instant::EPOCH,
        }
    }

    /// The present rate.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// A new maximum.
    pub(super) fn set_most(&mut self, most: Rate) {
        self.most = most;
        self.rate = self.rate.min(most);
        self.too_high = None;
    }

    /// A child has kept, and could not keep, so many packets during the last `t_ack`.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        id: NodeId,
        (kept, overrun): (u32, u32),
        t_ack: Duration,
    ) {
        let total = u64::from(kept) + u64::from(overrun);
        let share = f64::from(overrun) / total.max(1) as f64;
        if share <= TOLERATED {
            self.complaints.remove(&id);
        } else if now.since(self.cut) >= t_ack {
            self.complaints.insert(id, (now, share));
        }
    }

    /// The child is gone.
    pub(super) fn forget(&mut self, id: NodeId) {
        self.complaints.remove(&id);
    }

    /// Looks whether the rate should change, with so many children and a T_ack. `busy` tells
    /// whether data were sent since; they left at the rate `present` at most. Gives the new rate.
    pub(super) fn review(
        &mut self,
        now: Instant,
        children: usize,
        t_ack: Duration,
        (busy, present): (bool, Rate),
    ) -> Option<Rate> {
        if now < self.window_end {
            return None;
        }
        self.window_end = now + WINDOW;
        self.complaints.retain(|_, (at, _)| now.since(*at) <= t_ack * 2);
        let careful = self.too_high.is_some_and(|rate| self.rate >= rate.scaled(CAREFUL_FROM));
        let (from, factor) = match self.median_complaint(children) {
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
            self.cut = now;
            self.complaints.clear();
        }
        self.rate = rate;
        Some(rate)
    }

    /// The share that half of the children cannot keep or more; `None` if most do not complain.
    fn median_complaint(&self, children: usize) -> Option<f64> {
        if self.complaints.len() * 2 <= children {
            return None;
        }
        let shares = self.complaints.values().map(|&(_, share)| share).collect();
        Some(super::of_most(shares, children))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T_ACK: Duration = Duration::from_millis(50);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    const MOST: Rate = Rate::from_bits_per_s(1_000_000).unwrap();

    fn overrun() -> Overrun {
        Overrun::new(MOST, 0.1)
    }

    #[test]
    fn the_rate_falls_to_what_most_children_keep_and_rises_again() {
        let mut overrun = overrun();
        overrun.on_ack(at(100), NodeId(1), (700, 300), T_ACK);
        assert_eq!(overrun.review(at(100), 3, T_ACK, (true, MOST)), None, "one of three");
        overrun.on_ack(at(110), NodeId(2), (800, 200), T_ACK);
        let rate = overrun.review(at(125), 3, T_ACK, (true, MOST)).unwrap();
        assert_eq!(rate.bits_per_s(), 560_000);
        // What is said about the time before does not count again.
        overrun.on_ack(at(150), NodeId(1), (700, 300), T_ACK);
        overrun.on_ack(at(150), NodeId(2), (700, 300), T_ACK);
        let mut rate = overrun.review(at(150), 3, T_ACK, (true, MOST)).unwrap();
        assert!(rate.bits_per_s() > 560_000);
        for step in 7..400 {
            rate = overrun.review(at(step * 25), 3, T_ACK, (true, MOST)).unwrap_or(rate);
        }
        assert_eq!(rate.bits_per_s(), 1_000_000);
    }

    #[test]
    fn there_is_a_least_rate_and_an_idle_source_changes_nothing() {
        let mut overrun = overrun();
        for step in 1..20 {
            overrun.on_ack(at(step * 100), NodeId(1), (0, 100), T_ACK);
            overrun.review(at(step * 100), 1, T_ACK, (false, MOST));
        }
        assert_eq!(overrun.rate().bits_per_s(), 100_000);
        assert_eq!(overrun.review(at(9000), 1, T_ACK, (false, MOST)), None);
        overrun.set_most(Rate::from_bits_per_s(50_000).unwrap());
        assert_eq!(overrun.rate().bits_per_s(), 50_000);
    }
}
