//! Token buckets, which limit the rate of events or of their costs.

use std::time::Duration;

use crate::Instant;

/// Limit on the rate of an event: at most `burst` times at once, and `per_s` times a second in the
/// long run. Both are at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Times a second.
    pub per_s: u32,
    /// Times at once.
    pub burst: u32,
}

/// A token bucket whose tokens are time. An event costs the time in which its tokens are earned
/// again.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Capacity of the bucket.
    depth: Duration,
    /// Time at which it was full, or will be if nothing more is taken.
    full_at: Instant,
}

impl Bucket {
    /// Creates a full bucket.
    pub fn new(depth: Duration) -> Bucket {
        Bucket { depth, full_at: Instant::EPOCH }
    }

    /// Returns the time at which the bucket is no longer empty.
    pub fn ready_at(&self) -> Instant {
        Instant::EPOCH + (self.full_at - Instant::EPOCH).saturating_sub(self.depth)
    }

    /// Takes tokens, whether the bucket holds them or not.
    pub fn spend(&mut self, now: Instant, cost: Duration) {
        self.full_at = self.full_at.max(now) + cost;
    }
}

/// Lets through the events that a [`Limit`] permits.
///
/// It is a [`Bucket`] in whole nanoseconds, since routers ask it for each packet.
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    /// Capacity, and the cost of an event.
    depth: u64,
    per_event: u64,
    /// Time at which it was full, or will be if nothing more is taken.
    full_at: u64,
}

impl Limiter {
    /// Creates a limiter that lets a burst through at once.
    pub fn new(limit: Limit) -> Limiter {
        let per_event = 1_000_000_000 / u64::from(limit.per_s.max(1));
        // At most 2⁶², a second for each of 2³² events.
        let depth = per_event * u64::from(limit.burst.max(1));
        Limiter { depth, per_event, full_at: 0 }
    }

    /// Returns whether an event is let through. It then counts.
    pub fn take(&mut self, now: Instant) -> bool {
        let now = now.as_nanos();
        let full_at = self.full_at.max(now).saturating_add(self.per_event);
        let holds = full_at - now <= self.depth;
        if holds {
            self.full_at = full_at;
        }
        holds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut limiter = Limiter::new(Limit { per_s: 10, burst: 3 });
        let taken = |limiter: &mut Limiter, at| (0..10).filter(|_| limiter.take(at)).count();
        assert_eq!(taken(&mut limiter, at(0)), 3);
        assert_eq!(taken(&mut limiter, at(200)), 2);
        assert_eq!(taken(&mut limiter, at(60_000)), 3);
    }

    #[test]
    fn a_bucket_that_is_not_empty_lets_more_through_than_it_holds() {
        let mut bucket = Bucket::new(Duration::from_millis(100));
        let mut left = 0;
        for ms in 1_000..2_000 {
            while bucket.ready_at() <= at(ms) {
                bucket.spend(at(ms), Duration::from_millis(10));
                left += 10;
            }
        }
        // A second and the burst, to within a unit.
        assert!((1_090..=1_120).contains(&left), "{left}");
    }
}
