//! Round-trip time and retransmission time-out of a child [RFC 6298].

use std::time::Duration;

/// Clock granularity G [RFC 6298 §2].
const GRANULARITY: Duration = Duration::from_millis(1);
/// Greatest exponent of the back-off. The upper bound of the RTO is reached before.
const MAX_BACKOFF: u8 = 12;

/// Estimator of RTT and RTO.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rtt {
    /// Smoothed RTT and its variation, in nanoseconds; no sample yet if `srtt` is 0.
    srtt: u64,
    variation: u64,
    /// Least sample in nanoseconds.
    least: u64,
    backoff: u8,
}

impl Rtt {
    pub(super) fn new() -> Rtt {
        Rtt { srtt: 0, variation: 0, least: u64::MAX, backoff: 0 }
    }

    /// Takes a sample [RFC 6298 §2.2, §2.3]. It must not be of a retransmitted segment.
    pub(super) fn sample(&mut self, rtt: Duration) {
        let rtt = (rtt.as_nanos() as u64).max(1);
        self.least = self.least.min(rtt);
        if self.srtt == 0 {
            (self.srtt, self.variation) = (rtt, rtt / 2);
        } else {
            let error = self.srtt.abs_diff(rtt);
            self.variation = self.variation - self.variation / 4 + error / 4;
            self.srtt = (self.srtt - self.srtt / 8 + rtt / 8).max(1);
        }
    }

    /// Returns the smoothed RTT.
    pub(super) fn smoothed(&self) -> Option<Duration> {
        Some(Duration::from_nanos(self.srtt)).filter(|srtt| !srtt.is_zero())
    }

    /// Returns whether half of the RTT or more is spent in queues: a window is then twice what the
    /// path holds.
    pub(super) fn is_queued(&self) -> bool {
        self.srtt / 2 >= self.least
    }

    /// Returns the time after which an answer is late, without the lower bound of the RTO. Used
    /// where receivers must answer at once.
    pub(super) fn late(&self) -> Option<Duration> {
        let srtt = self.smoothed()?;
        Some(srtt + Duration::from_nanos(4 * self.variation).max(GRANULARITY))
    }

    /// Returns the RTO, backed off, within these bounds.
    pub(super) fn rto(&self, initial: Duration, bounds: (Duration, Duration)) -> Duration {
        let (least, most) = bounds;
        let rto = self.late().unwrap_or(initial).max(least);
        (rto * (1 << self.backoff.min(MAX_BACKOFF))).min(most.max(least))
    }

    /// Doubles the RTO [RFC 6298 §5.5].
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(MAX_BACKOFF);
    }

    /// Ends the back-off, since new data was acknowledged.
    pub(super) fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// Returns the number of successive time-outs.
    pub(super) fn backoff(&self) -> u8 {
        self.backoff
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: (Duration, Duration) = (Duration::from_millis(200), Duration::from_mins(1));

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_rto_follows_the_rfc() {
        let mut rtt = Rtt::new();
        assert_eq!(rtt.rto(ms(1000), BOUNDS), ms(1000));
        rtt.sample(ms(100));
        assert_eq!((rtt.smoothed(), rtt.rto(ms(1000), BOUNDS)), (Some(ms(100)), ms(300)));
        rtt.sample(ms(180));
        assert_eq!(rtt.smoothed(), Some(ms(110)));
        // Four times a variation of 37.5 + 20 ms.
        assert_eq!(rtt.late(), Some(ms(110 + 230)));
    }

    #[test]
    fn a_round_trip_of_twice_the_least_is_spent_in_queues() {
        let mut rtt = Rtt::new();
        assert!(!rtt.is_queued());
        rtt.sample(ms(10));
        assert!(!rtt.is_queued());
        (0..30).for_each(|_| rtt.sample(ms(21)));
        assert!(rtt.is_queued());
        (0..30).for_each(|_| rtt.sample(ms(11)));
        assert!(!rtt.is_queued());
    }

    #[test]
    fn the_rto_doubles_up_to_its_bound_and_recovers() {
        let mut rtt = Rtt::new();
        rtt.sample(ms(10));
        assert_eq!(rtt.rto(ms(1000), BOUNDS), ms(200));
        rtt.back_off();
        rtt.back_off();
        assert_eq!((rtt.rto(ms(1000), BOUNDS), rtt.backoff()), (ms(800), 2));
        (0..100).for_each(|_| rtt.back_off());
        assert_eq!(rtt.rto(ms(1000), BOUNDS), Duration::from_mins(1));
        rtt.on_progress();
        assert_eq!(rtt.rto(ms(1000), BOUNDS), ms(200));
    }
}
