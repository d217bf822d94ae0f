//! Holds the channel to a rate that most receivers can take.
//!
//! A receiver tells in its NAKs how many packets reached its machine and could not be kept: its
//! socket's buffer or the memory in front of its disk was full. Sending those again as fast as
//! before would lose them again. So when **most** of the clients that are being served report
//! that, the rate is cut to what they took; while they do not, it rises again, up to the rate
//! that the operator has set. One slow client slows nobody: it is served by later transmissions.
//!
//! Loss on the network, which has its own field in the NAK, changes nothing here: on a shared
//! link it is no sign of one's own doing, and error correction takes care of it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::units::Rate;
use crate::{Instant, SessionId};

/// How often the rate can change.
const WINDOW: Duration = Duration::from_millis(25);

/// A smaller share of packets that could not be kept is put up with.
const TOLERATED: f64 = 0.02;

/// What a cut leaves free beyond what was reported: full buffers must empty.
const MARGIN: f64 = 0.7;

/// The most that one window cuts, and the least rate as a share of the operator's.
const DEEPEST_CUT: f64 = 0.5;
const LEAST_SHARE: f64 = 0.01;

/// By how much a window without complaints raises the rate: twofold in about a second while it is
/// well below the rate that was too high, and then carefully, by an eighth in a second.
const RISE: f64 = 1.02;
const CAREFUL_RISE: f64 = 1.003;

/// The share of the rate that was too high from which on the rise is careful.
const CAREFUL_FROM: f64 = 0.8;

/// How long a complaint counts: clients speak one after the other, and mostly once in a segment.
const LASTS: Duration = Duration::from_millis(250);

/// The rate of the channel.
#[derive(Debug)]
pub(super) struct Throttle {
    most: Rate,
    rate: Rate,
    window_end: Instant,
    /// Packets that had been sent when the window began.
    sent_before: u64,
    /// Transmissions from this one on were sent at the present rate.
    since: u32,
    /// The rate before the last cut.
    too_high: Option<Rate>,
    /// When a client last told what share it could not keep, and that share.
    complaints: BTreeMap<SessionId, (Instant, f64)>,
}

impl Throttle {
    pub(super) fn new(most: Rate) -> Throttle {
        Throttle {
            most,
            rate: most,
            window_end: Instant::EPOCH,
            sent_before: 0,
            since: 0,
            too_high: None,
            complaints: BTreeMap::new(),
        }
    }

    /// The present rate.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// A NAK tells that so many packets of a transmission reached the client and were kept, or
    /// were not.
    pub(super) fn on_nak(
        &mut self,
        now: Instant,
        session: SessionId,
        transmission: u32,
        (kept, overrun): (u32, u32),
    ) {
        let old = transmission.wrapping_sub(self.since) > u32::MAX / 2;
        let total = u64::from(kept) + u64::from(overrun);
        let share = f64::from(overrun) / total.max(1) as f64;
        if share <= TOLERATED {
            self.complaints.remove(&session);
        } else if !old {
            self.complaints.insert(session, (now, share));
        }
    }

    /// Whether it is time for [`review`](Throttle::review).
    pub(super) fn is_due(&self, now: Instant) -> bool {
        now >= self.window_end
    }

    /// Looks whether the rate should change. `served` is how many clients the channel serves,
    /// `sent` how many packets have left so far, `next` the next transmission's number. Gives the
    /// new rate.
    pub(super) fn review(
        &mut self,
        now: Instant,
        served: usize,
        sent: u64,
        next: u32,
    ) -> Option<Rate> {
        if !self.is_due(now) {
            return None;
        }
        let idle = sent == self.sent_before;
        self.window_end = now + WINDOW;
        self.sent_before = sent;
        self.complaints.retain(|_, (at, _)| now - *at <= LASTS);
        let careful = self.too_high.is_some_and(|rate| self.rate >= rate.scaled(CAREFUL_FROM));
        let factor = match self.median_complaint(served) {
            Some(share) => ((1.0 - share) * MARGIN).max(DEEPEST_CUT),
            None if idle => 1.0,
            None if careful => CAREFUL_RISE,
            None => RISE,
        };
        let least = self.most.scaled(LEAST_SHARE);
        let rate = self.rate.scaled(factor).clamp(least, self.most);
        if rate == self.rate {
            return None;
        }
        if rate < self.rate {
            self.since = next;
            self.too_high = Some(self.rate);
            self.complaints.clear();
        }
        self.rate = rate;
        Some(rate)
    }

    /// The share that half of the clients cannot keep or more; `None` if most do not complain.
    fn median_complaint(&self, served: usize) -> Option<f64> {
        if self.complaints.len() * 2 <= served {
            return None;
        }
        let mut shares: Vec<f64> = self.complaints.values().map(|&(_, share)| share).collect();
        shares.sort_unstable_by(|a, b| b.total_cmp(a));
        shares.get(served / 2).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn throttle() -> Throttle {
        let mut throttle = Throttle::new(Rate::from_bits_per_s(1_000_000_000).unwrap());
        assert_eq!(throttle.review(at(25), 3, 10, 1), None);
        throttle
    }

    #[test]
    fn the_rate_falls_to_what_most_clients_keep() {
        let mut throttle = throttle();
        throttle.on_nak(at(30), SessionId(1), 1, (700, 300));
        throttle.on_nak(at(40), SessionId(2), 1, (800, 200));
        let rate = throttle.review(at(50), 3, 20, 5).unwrap();
        assert_eq!(rate.bits_per_s(), 560_000_000);
        // What is still said about the time before does not count again.
        throttle.on_nak(at(60), SessionId(1), 4, (0, 1000));
        throttle.on_nak(at(60), SessionId(2), 4, (0, 1000));
        assert!(throttle.review(at(75), 3, 30, 6).unwrap() > rate);
    }

    #[test]
    fn a_minority_of_slow_clients_slows_nobody() {
        let mut throttle = throttle();
        throttle.on_nak(at(30), SessionId(1), 1, (0, 1000));
        assert_eq!(throttle.review(at(50), 3, 20, 5), None);
        assert_eq!(throttle.rate().bits_per_s(), 1_000_000_000);
    }

    #[test]
    fn one_cut_halves_the_rate_at_most_and_a_hundredth_remains() {
        let mut throttle = throttle();
        for n in 2..100 {
            throttle.on_nak(at(u64::from(n) * 25), SessionId(1), n, (0, 1000));
            throttle.review(at(u64::from(n) * 25), 1, u64::from(n) * 10, n);
            assert!(throttle.rate().bits_per_s() >= 1_000_000_000 >> (n - 1).min(7));
        }
        assert_eq!(throttle.rate().bits_per_s(), 10_000_000);
    }

    #[test]
    fn the_rate_rises_while_packets_leave_and_not_above_the_operators() {
        let mut throttle = throttle();
        throttle.on_nak(at(30), SessionId(1), 1, (500, 500));
        let low = throttle.review(at(50), 1, 20, 2).unwrap();
        assert_eq!(throttle.review(at(75), 1, 20, 2), None, "nothing was sent");
        for n in 0..40 {
            throttle.review(at(100 + n * 25), 1, 30 + n, 2);
        }
        assert!(throttle.rate() > low.scaled(1.5));
        assert!(throttle.rate() < Rate::from_bits_per_s(900_000_000).unwrap(), "too hasty");
        for n in 40..200 {
            throttle.review(at(100 + n * 25), 1, 30 + n, 2);
        }
        assert_eq!(throttle.rate().bits_per_s(), 1_000_000_000);
    }

    #[test]
    fn what_clients_say_one_after_the_other_counts_together() {
        let mut throttle = throttle();
        throttle.on_nak(at(30), SessionId(1), 1, (500, 500));
        assert_eq!(throttle.review(at(50), 3, 20, 5), None);
        throttle.on_nak(at(60), SessionId(2), 1, (500, 500));
        assert!(throttle.review(at(75), 3, 30, 5).is_some());
        throttle.on_nak(at(80), SessionId(1), 5, (500, 500));
        throttle.review(at(300), 3, 40, 9);
        throttle.on_nak(at(340), SessionId(2), 5, (500, 500));
        let rate = throttle.rate();
        assert!(throttle.review(at(350), 3, 50, 9).unwrap() > rate, "the first is old");
    }
}
