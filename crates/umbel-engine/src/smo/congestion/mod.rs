//! Congestion control of a child: slow start, congestion avoidance, and what a loss does
//! [RFC 5681].

mod cubic;
mod reno;

use std::time::Duration;

use super::config::Congestion;
use crate::Instant;
use cubic::Cubic;
use reno::Reno;

/// Weight of a new value in the average window.
const AVERAGE_WEIGHT: f64 = 1.0 / 64.0;

/// Congestion window of a child.
#[derive(Clone, Debug)]
pub(super) struct Window {
    cwnd: u64,
    ssthresh: u64,
    mss: u64,
    /// Moving average of the window over acknowledgements, in bytes: λ_TCP of [SMO eq. 1].
    average: f64,
    avoidance: Avoidance,
}

#[derive(Clone, Debug)]
enum Avoidance {
    Reno(Reno),
    Cubic(Cubic),
}

impl Window {
    /// Creates the window of a new connection.
    pub(super) fn new(kind: Congestion, mss: u64, initial_segments: u32) -> Window {
        let mss = mss.max(1);
        let cwnd = mss * u64::from(initial_segments.max(1));
        let avoidance = match kind {
            Congestion::Reno => Avoidance::Reno(Reno::default()),
            Congestion::Cubic => Avoidance::Cubic(Cubic::default()),
        };
        Window { cwnd, ssthresh: u64::MAX, mss, average: cwnd as f64, avoidance }
    }

    /// Returns the window in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.cwnd
    }

    /// Returns the average window in bytes.
    pub(super) fn average(&self) -> f64 {
        self.average
    }

    /// Returns whether the window grows exponentially.
    pub(super) fn in_slow_start(&self) -> bool {
        self.cwnd < self.ssthresh
    }

    /// Grows the window after `acked` new bytes were acknowledged, if at least half of it was in
    /// use. A window that is never filled says nothing about the path [RFC 7661 §4.3].
    pub(super) fn on_ack(&mut self, now: Instant, acked: u64, in_use: u64, rtt: Option<Duration>) {
        self.average += (self.cwnd as f64 - self.average) * AVERAGE_WEIGHT;
        if in_use * 2 < self.cwnd {
            return;
        }
        if self.in_slow_start() {
            // Receivers that merge segments acknowledge many at once. The limit of two segments for
            // each ACK [RFC 3465 §2.2] is against bursts, which the pace prevents here.
            self.cwnd += acked.min(self.cwnd);
        } else {
            let grown = match &mut self.avoidance {
                Avoidance::Reno(reno) => reno.grow(self.cwnd, self.mss, acked),
                Avoidance::Cubic(cubic) => cubic.grow(now, self.cwnd, self.mss, acked, rtt),
            };
            self.cwnd += grown;
        }
    }

    /// Cuts the window after a loss that fast retransmit found. `flight` is what was outstanding.
    pub(super) fn on_loss(&mut self, flight: u64) {
        self.ssthresh = self.after_loss(flight);
        self.cwnd = self.ssthresh;
    }

    /// Cuts the window to one segment after a time-out [RFC 5681 §3.1]. `again` if the same data
    /// timed out before: the threshold then stays.
    pub(super) fn on_timeout(&mut self, flight: u64, again: bool) {
        if !again {
            self.ssthresh = self.after_loss(flight);
        }
        self.cwnd = self.mss;
    }

    /// Starts anew, for a way on which nothing was sent yet.
    pub(super) fn restart(&mut self, initial_segments: u32) {
        self.cwnd = self.mss * u64::from(initial_segments.max(1));
        self.ssthresh = u64::MAX;
    }

    fn after_loss(&mut self, flight: u64) -> u64 {
        let reduced = match &mut self.avoidance {
            Avoidance::Reno(reno) => reno.cut(flight),
            Avoidance::Cubic(cubic) => cubic.cut(self.cwnd.min(flight), self.mss),
        };
        reduced.max(2 * self.mss)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    const MSS: u64 = 1000;

    fn window(kind: Congestion) -> Window {
        Window::new(kind, MSS, 10)
    }

    #[test]
    fn slow_start_doubles_the_window_in_a_round_trip() {
        let mut window = window(Congestion::Reno);
        for _ in 0..5 {
            window.on_ack(ms(1), 2 * MSS, 10 * MSS, None);
        }
        assert_eq!((window.bytes(), window.in_slow_start()), (20 * MSS, true));
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut window = window(Congestion::Reno);
        window.on_ack(ms(1), MSS, 4 * MSS, None);
        assert_eq!(window.bytes(), 10 * MSS);
    }

    #[test]
    fn a_loss_halves_what_was_in_flight_and_a_timeout_leaves_a_segment() {
        let mut window = window(Congestion::Reno);
        window.on_loss(10 * MSS);
        assert_eq!((window.bytes(), window.in_slow_start()), (5 * MSS, false));
        window.on_timeout(5 * MSS, false);
        assert_eq!(window.bytes(), MSS);
        window.on_timeout(MSS, true);
        window.on_ack(ms(1), MSS, MSS, None);
        // The threshold stayed at two and a half segments.
        assert_eq!((window.bytes(), window.in_slow_start()), (2 * MSS, true));
    }

    #[test]
    fn avoidance_adds_a_segment_in_a_round_trip() {
        let mut window = window(Congestion::Reno);
        window.on_loss(20 * MSS);
        for _ in 0..10 {
            window.on_ack(ms(1), MSS, 10 * MSS, None);
        }
        assert_eq!(window.bytes(), 11 * MSS);
    }

    #[test]
    fn cubic_returns_to_the_window_of_the_last_loss_and_stays_there() {
        let mut window = Window::new(Congestion::Cubic, MSS, 1000);
        window.on_loss(1000 * MSS);
        assert_eq!(window.bytes(), 700 * MSS);
        let rtt = Duration::from_millis(50);
        let mut now = ms(0);
        let mut sizes = Vec::new();
        for _ in 0..400 {
            now += rtt;
            for _ in 0..window.bytes() / MSS {
                let used = window.bytes();
                window.on_ack(now, MSS, used, Some(rtt));
            }
            sizes.push(window.bytes() / MSS);
        }
        // K = cbrt(1000 * 0.3 / 0.4) = 9.1 s: 182 round trips.
        assert!((980..=1010).contains(&sizes[181]), "{sizes:?}");
        assert!(sizes[140] > 950 && sizes[220] < 1060 && sizes[399] > 1300, "{sizes:?}");
        assert!(sizes.windows(2).all(|pair| pair[0] <= pair[1]));
    }
}
