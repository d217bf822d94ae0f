//! The estimate of the queueing delay, from the send times of packets.

use std::time::Duration;

use crate::Instant;

/// Time after which the least delay is forgotten, at most twice this. Routes change and clocks
/// drift.
const MEMORY: Duration = Duration::from_secs(30);
/// Number of latest packets of which the least delay counts, so that one that met another's burst
/// does not.
const LATEST: usize = 3;

/// Estimates the queueing delay of the path as the rise of the one-way delay over its least value.
/// The clocks of source and receiver need not agree.
#[derive(Clone, Debug, Default)]
pub(super) struct Queueing {
    /// The first one-way delay, to which all others relate. It includes the clocks' difference.
    origin: Option<u32>,
    /// Least delays in µs over the present and the last span of [`MEMORY`].
    least: [Option<i64>; 2],
    span_end: Instant,
    latest: [i64; LATEST],
    count: usize,
}

impl Queueing {
    /// Takes a packet, by the time at which its source sent it in µs. Returns the queueing delay,
    /// the least of the last packets, or `None` while there are too few.
    pub(super) fn on_packet(&mut self, now: Instant, sent_us: u32) -> Option<Duration> {
        let relative = ((now.as_nanos() / 1000) as u32).wrapping_sub(sent_us);
        let origin = *self.origin.get_or_insert(relative);
        let delay = i64::from(relative.wrapping_sub(origin) as i32);
        if now >= self.span_end {
            self.span_end = now + MEMORY;
            self.least = [None, self.least[0]];
        }
        self.least[0] = Some(self.least[0].map_or(delay, |least| least.min(delay)));
        self.latest[self.count % LATEST] = delay;
        self.count += 1;
        if self.count < LATEST {
            return None;
        }
        let least = self.least.iter().flatten().min()?;
        let delay = self.latest.iter().min()?;
        Some(Duration::from_micros(delay.saturating_sub(*least).unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    /// Returns the delay after packets of these one-way delays in ms, 10 ms apart.
    fn after(queueing: &mut Queueing, from: u64, delays: &[u64]) -> Option<Duration> {
        let mut last = None;
        for (n, delay) in (0..).zip(delays) {
            let sent = from + n * 10;
            // The source's clock is an hour ahead, so that the difference wraps.
            last = queueing.on_packet(at(sent + delay), ((sent + 3_600_000) * 1000) as u32);
        }
        last
    }

    #[test]
    fn a_rise_of_three_packets_counts_and_one_alone_does_not() {
        let mut queueing = Queueing::default();
        assert_eq!(after(&mut queueing, 0, &[50, 50]), None);
        assert_eq!(after(&mut queueing, 20, &[50, 90, 50]), Some(Duration::ZERO));
        let rise = after(&mut queueing, 60, &[80, 90, 100]);
        assert_eq!(rise, Some(Duration::from_millis(30)));
    }

    #[test]
    fn a_longer_way_is_no_queue_for_ever() {
        let mut queueing = Queueing::default();
        after(&mut queueing, 0, &[50; 10]);
        assert_eq!(after(&mut queueing, 100, &[70; 10]), Some(Duration::from_millis(20)));
        after(&mut queueing, 31_000, &[70; 10]);
        assert_eq!(after(&mut queueing, 62_000, &[70; 10]), Some(Duration::ZERO));
    }
}
