//! Holds the channel to a rate that most receivers can take ([`Overrun`]).
//!
//! A receiver's NAKs give the number of packets that reached its machine and were dropped there.
//! One slow client slows no other, because later transmissions serve it.
//!
//! Network loss, which has its own field in the NAK, changes nothing here. On a shared link it is
//! no sign of this channel's own load, and error correction covers it.

use std::time::Duration;

use crate::overrun::Overrun;
use crate::units::Rate;
use crate::{Instant, SessionId};

/// The lowest rate, as a share of the operator's.
const LEAST_SHARE: f64 = 0.01;

/// Time for which a complaint counts. Clients complain one after the other, and mostly once in a
/// segment.
const LASTS: Duration = Duration::from_millis(250);

/// The rate of the channel.
#[derive(Debug)]
pub(super) struct Throttle {
    overrun: Overrun<SessionId>,
    /// Number of packets sent before the window began.
    sent_before: u64,
    /// First transmission sent at the present rate.
    since: u32,
}

impl Throttle {
    pub(super) fn new(most: Rate) -> Throttle {
        Throttle { overrun: Overrun::new(most, LEAST_SHARE), sent_before: 0, since: 0 }
    }

    /// Returns the present rate.
    pub(super) fn rate(&self) -> Rate {
        self.overrun.rate()
    }

    /// Handles a NAK's counts of a transmission's packets that reached the client and were kept or
    /// dropped.
    pub(super) fn on_nak(
        &mut self,
        now: Instant,
        session: SessionId,
        transmission: u32,
        kept_and_overrun: (u32, u32),
    ) {
        let old = transmission.wrapping_sub(self.since) > u32::MAX / 2;
        self.overrun.hear(now, session, kept_and_overrun, old);
    }

    /// Returns whether it is time for [`review`](Throttle::review).
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.overrun.is_due(now)
    }

    /// Reviews the rate, and returns the new one if it changes. `served` is the number of clients
    /// that the channel serves, `sent` the number of packets sent so far, and `next` the next
    /// transmission's number.
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
        let busy = std::mem::replace(&mut self.sent_before, sent) != sent;
        let before = self.rate();
        let rate = self.overrun.review(now, served, LASTS, (busy, before))?;
        if rate < before {
            self.since = next;
        }
        Some(rate)
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
        // Late complaints about the time before do not count again.
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
