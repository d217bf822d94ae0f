//! Token buckets, which limit the rate of events or of their costs.

use std::collections::BTreeMap;
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
/// again. It counts whole nanoseconds, since routers ask it for each packet.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    /// Capacity of the bucket.
    depth: u64,
    /// Time at which it was full, or will be if nothing more is taken.
    full_at: u64,
}

impl Bucket {
    /// Creates a full bucket.
    pub fn new(depth: Duration) -> Bucket {
        Bucket { depth: nanos(depth), full_at: 0 }
    }

    /// Returns the time at which the bucket is no longer empty.
    pub fn ready_at(&self) -> Instant {
        Instant::from_nanos(self.full_at.saturating_sub(self.depth))
    }

    /// Takes tokens, whether the bucket holds them or not.
    pub fn spend(&mut self, now: Instant, cost: Duration) {
        self.full_at = self.full_after(now, nanos(cost));
    }

    /// Returns whether the bucket holds these tokens.
    fn holds(&self, now: Instant, cost: u64) -> bool {
        self.full_after(now, cost) - now.as_nanos() <= self.depth
    }

    /// Takes tokens if the bucket holds them. Returns whether it did.
    fn take(&mut self, now: Instant, cost: u64) -> bool {
        let holds = self.holds(now, cost);
        if holds {
            self.full_at = self.full_after(now, cost);
        }
        holds
    }

    /// Returns when it is full again if tokens are taken.
    fn full_after(&self, now: Instant, cost: u64) -> u64 {
        self.full_at.max(now.as_nanos()).saturating_add(cost)
    }
}

/// Returns the nanoseconds of a duration, at most some 500 years.
fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Lets through the events that a [`Limit`] permits.
#[derive(Clone, Copy, Debug)]
pub struct Limiter {
    bucket: Bucket,
    /// Cost of an event.
    per_event: u64,
}

impl Limiter {
    /// Creates a limiter that lets a burst through at once.
    pub fn new(limit: Limit) -> Limiter {
        let per_event = Duration::from_secs(1) / limit.per_s.max(1);
        let bucket = Bucket::new(per_event * limit.burst.max(1));
        Limiter { bucket, per_event: nanos(per_event) }
    }

    /// Returns whether an event would be let through now.
    pub fn admits(&self, now: Instant) -> bool {
        self.bucket.holds(now, self.per_event)
    }

    /// Returns whether an event is let through. It then counts.
    pub fn take(&mut self, now: Instant) -> bool {
        self.bucket.take(now, self.per_event)
    }

    /// Returns whether nothing was let through lately, so that a new one would be the same.
    pub fn is_full(&self, now: Instant) -> bool {
        self.bucket.full_at <= now.as_nanos()
    }
}

/// A limit for each host by itself, so that none takes what others may have. Hosts beyond the
/// greatest number share one.
#[derive(Clone, Debug)]
pub struct Limiters<K> {
    limit: Limit,
    most: usize,
    each: BTreeMap<K, Limiter>,
    others: Limiter,
    /// Time before which none is looked for that need not be remembered.
    look_at: Instant,
}

/// Least time between looking for limiters that need not be remembered.
const LOOK: Duration = Duration::from_millis(100);

impl<K: Copy + Ord> Limiters<K> {
    /// Remembers at most this many hosts.
    pub fn new(limit: Limit, most: usize) -> Limiters<K> {
        let (each, others) = (BTreeMap::new(), Limiter::new(limit));
        Limiters { limit, most, each, others, look_at: Instant::EPOCH }
    }

    /// Returns whether an event of a host is let through. It then counts.
    pub fn take(&mut self, now: Instant, host: K) -> bool {
        if !self.each.contains_key(&host) && self.each.len() >= self.most && now >= self.look_at {
            self.each.retain(|_, limiter| !limiter.is_full(now));
            self.look_at = now + LOOK;
        }
        let limiter = if self.each.len() < self.most || self.each.contains_key(&host) {
            self.each.entry(host).or_insert_with(|| Limiter::new(self.limit))
        } else {
            &mut self.others
        };
        limiter.take(now)
    }
}

/// Lets through the events that the limit of each host permits, and then that of all together.
#[derive(Clone, Debug)]
pub struct HostLimiter<K> {
    each: Limiters<K>,
    all: Limiter,
}

impl<K: Copy + Ord> HostLimiter<K> {
    /// Creates a limiter with a limit of each host, of which so many are told apart, and one of all.
    pub fn new(of_host: Limit, hosts: usize, of_all: Limit) -> HostLimiter<K> {
        HostLimiter { each: Limiters::new(of_host, hosts), all: Limiter::new(of_all) }
    }

    /// Returns whether an event of a host is let through. It then counts. What is beyond a host's own
    /// limit takes nothing from others.
    pub fn take(&mut self, now: Instant, host: K) -> bool {
        self.each.take(now, host) && self.all.take(now)
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
    fn each_host_has_its_own_limit_and_those_beyond_share_one() {
        let mut limiters = Limiters::new(Limit { per_s: 10, burst: 3 }, 2);
        let mut taken = |host, ms| (0..10).filter(|_| limiters.take(at(ms), host)).count();
        assert_eq!([taken(1, 0), taken(2, 0)], [3, 3]);
        assert_eq!([taken(3, 0), taken(4, 0)], [3, 0]);
        // The first are quiet, and others have their places.
        assert_eq!([taken(4, 400), taken(5, 400), taken(1, 400)], [3, 3, 3]);
        assert!(limiters.each.len() <= 2);
    }

    #[test]
    fn what_is_beyond_a_hosts_own_limit_takes_nothing_from_others() {
        let [one, all] = [2, 5].map(|burst| Limit { per_s: 1, burst });
        let mut limiter = HostLimiter::new(one, 9, all);
        let mut taken = |host| (0..10).filter(|_| limiter.take(at(0), host)).count();
        assert_eq!([1, 2, 3, 4].map(&mut taken), [2, 2, 1, 0]);
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
