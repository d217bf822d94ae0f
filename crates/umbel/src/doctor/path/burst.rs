//! Bursts of probe packets, and their fate.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::units::Rate;

/// A burst to request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) packets: u32,
    /// UDP payload of each packet in bytes.
    pub(super) packet_len: u16,
    pub(super) rate: Rate,
}

impl Order {
    /// Returns how long sending the burst takes.
    pub(super) fn time(&self) -> Duration {
        self.rate.time_for(u64::from(self.packets) * u64::from(self.packet_len))
    }
}

/// A burst as it arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Burst {
    /// Packets that the server reports as sent.
    pub(super) sent: u32,
    /// Packets that arrived, each counted once.
    pub(super) received: u32,
    /// Packets that arrived again.
    pub(super) duplicated: u32,
    /// Packets that arrived after a later one.
    pub(super) reordered: u32,
    /// Messages that this host's kernel dropped meanwhile for lack of room.
    pub(super) dropped_here: u64,
    /// Time from the first arrival to the last.
    pub(super) span: Duration,
}

impl Burst {
    /// Sums up the arrivals, each with the packet's number and time, in the order of arrival.
    pub(super) fn new(sent: u32, arrivals: &[(u32, Instant)], dropped_here: u64) -> Burst {
        let mut burst = Burst { sent, dropped_here, ..Burst::default() };
        let mut seen = std::collections::BTreeSet::new();
        let mut highest = None;
        for &(index, _) in arrivals {
            if !seen.insert(index) {
                burst.duplicated += 1;
                continue;
            }
            burst.received += 1;
            if highest.is_some_and(|highest| index < highest) {
                burst.reordered += 1;
            }
            highest = highest.max(Some(index));
        }
        if let (Some((_, first)), Some((_, last))) = (arrivals.first(), arrivals.last()) {
            burst.span = last.since(*first);
        }
        burst
    }

    /// Returns the number of packets that did not arrive.
    pub(super) fn lost(&self) -> u32 {
        self.sent.saturating_sub(self.received)
    }

    /// Returns the share of the packets that did not arrive, 0 to 1.
    pub(super) fn loss(&self) -> f64 {
        f64::from(self.lost()) / f64::from(self.sent.max(1))
    }

    /// Returns whether the burst lost significantly more than the `usual` share: more than three
    /// standard deviations, and more than 1 %.
    pub(super) fn loses_more_than(&self, usual: f64) -> bool {
        let deviation = (usual * (1.0 - usual) / f64::from(self.sent.max(1))).sqrt();
        self.lost() >= 3 && self.loss() > usual + 0.01 + 3.0 * deviation
    }

    /// Returns the rate of arrival, if the burst took long enough to measure it.
    pub(super) fn arrival_rate(&self, packet_len: u16) -> Option<Rate> {
        let gaps = u64::from((self.received + self.duplicated).checked_sub(1)?);
        if gaps < 10 || self.span < Duration::from_millis(5) {
            return None;
        }
        let bits = (gaps * u64::from(packet_len) * 8) as f64;
        Rate::from_bits_per_s((bits / self.span.as_secs_f64()) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    #[test]
    fn lost_doubled_and_late_packets_are_counted() {
        let arrivals = [(0, at(0)), (2, at(1)), (1, at(2)), (2, at(3)), (5, at(8))];
        let burst = Burst::new(6, &arrivals, 0);
        assert_eq!((burst.received, burst.lost()), (4, 2));
        assert_eq!((burst.duplicated, burst.reordered), (1, 1));
        assert_eq!(burst.span, Duration::from_millis(8));
        assert_eq!(Burst::new(3, &[], 0).lost(), 3);
    }

    #[test]
    fn chance_is_no_loss_of_the_rate() {
        let burst = |sent, received| Burst { sent, received, ..Burst::default() };
        assert!(!burst(100, 98).loses_more_than(0.0));
        assert!(burst(100, 97).loses_more_than(0.0));
        assert!(!burst(1000, 995).loses_more_than(0.0));
        assert!(!burst(100, 85).loses_more_than(0.1));
        assert!(burst(1000, 800).loses_more_than(0.1));
    }

    #[test]
    fn the_rate_of_arrival_is_that_of_the_narrowest_link() {
        let arrivals: Vec<_> = (0..101).map(|n| (n, at(u64::from(n)))).collect();
        let rate = Burst::new(101, &arrivals, 0).arrival_rate(1250).unwrap();
        assert_eq!(rate.bits_per_s(), 10_000_000);
        assert_eq!(Burst::new(101, &arrivals[..5], 0).arrival_rate(1250), None);
        assert_eq!(Burst::default().arrival_rate(1250), None);
    }
}
