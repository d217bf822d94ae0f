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

/// Time after which a usual delay is forgotten, at most twice this. The peaks of a queue that TCP
/// fills are closer together.
const USUAL_MEMORY: Duration = Duration::from_secs(10);

/// The mean and the greatest queueing delay of the present and the last span of [`USUAL_MEMORY`].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Usual {
    spans: [Span; 2],
    end: Instant,
}

#[derive(Clone, Copy, Debug, Default)]
struct Span {
    sum: Duration,
    count: u32,
    greatest: Duration,
}

impl Usual {
    /// Takes a delay.
    pub(super) fn note(&mut self, now: Instant, delay: Duration) {
        if now >= self.end {
            self.end = now + USUAL_MEMORY;
            self.spans = [Span::default(), self.spans[0]];
        }
        let span = &mut self.spans[0];
        span.sum = span.sum.saturating_add(delay);
        span.count = span.count.saturating_add(1);
        span.greatest = span.greatest.max(delay);
    }

    /// Returns the mean; zero before the first. The estimate stays while no delay is taken.
    pub(super) fn mean(&self) -> Duration {
        let [now, last] = self.spans;
        now.sum.saturating_add(last.sum) / now.count.saturating_add(last.count).max(1)
    }

    /// Returns the greatest; zero before the first.
    pub(super) fn greatest(&self) -> Duration {
        self.spans[0].greatest.max(self.spans[1].greatest)
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

    #[test]
    fn what_is_usual_is_forgotten_unless_nothing_new_is_known() {
        let mut usual = Usual::default();
        assert_eq!((usual.mean(), usual.greatest()), (Duration::ZERO, Duration::ZERO));
        let ms = Duration::from_millis;
        (0..100).for_each(|n| usual.note(at(n * 10), ms(n)));
        assert_eq!((usual.mean().as_micros(), usual.greatest()), (49_500, ms(99)));
        usual.note(at(60_000), ms(10));
        assert_eq!(usual.greatest(), ms(99));
        usual.note(at(70_000), ms(20));
        assert_eq!((usual.mean(), usual.greatest()), (ms(15), ms(20)));
    }
}
