//! Says when how many packets may leave, so that a set rate is held.
//!
//! A sender that sleeps wakes late, by some ten microseconds at best and by milliseconds on a busy
//! machine. The pacer therefore keeps a schedule rather than gaps: what was missed is made good.
//! Two bounds keep that from turning into bursts that a queue on the way cannot hold:
//!
//! - no more than [`MAX_LAG`] of the schedule is made good; what was missed before is forgotten;
//! - catching up, packets leave at [`CATCH_UP`] times the rate at most, with no more than
//!   [`BURST`] of the rate, or one batch if that is more, at once.
//!
//! Both are token buckets, kept as the moment at which the bucket would have been empty, with the
//! remainder of the division, so that no rounding adds up.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::units::Rate;

/// How much of a delay is made good.
pub const MAX_LAG: Duration = Duration::from_millis(5);

/// The most that leaves at once, as a time at the rate.
pub const BURST: Duration = Duration::from_millis(1);

/// How many times the rate is used to make a delay good.
pub const CATCH_UP: u64 = 2;

/// Bit-nanoseconds per second and byte.
const SCALE: u128 = 8_000_000_000;

/// Paces one sender. Knows no clock: the caller says what time it is.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// `None`: no limit.
    buckets: Option<Buckets>,
    packet_bytes: u64,
    max_batch: usize,
    /// How many packets are worth a wake-up.
    quantum: usize,
}

#[derive(Clone, Debug)]
struct Buckets {
    rate: Rate,
    /// Holds the rate in the long run.
    schedule: Bucket,
    /// Bounds how fast packets follow each other.
    peak: Bucket,
}

/// A token bucket.
#[derive(Clone, Debug)]
struct Bucket {
    bits_per_s: u64,
    /// Most tokens that it holds.
    depth_bytes: u64,
    /// When it was empty, or will be. In nanoseconds; before the epoch if it is full there.
    empty_at: i64,
    /// Part of a nanosecond by which `empty_at` is too early, times `bits_per_s`.
    remainder: u64,
}

impl Pacer {
    /// A pacer that starts at `now`: the first packets may leave at once.
    ///
    /// `rate` counts what [`sent`](Pacer::sent) is told; `None` is no limit. `packet_bytes` is
    /// what a full packet counts, `max_batch` the most packets that the sender takes at once
    /// ([`Sender::max_batch`](crate::udp::Sender::max_batch)); 0 is taken as 1.
    pub fn new(rate: Option<Rate>, packet_bytes: usize, max_batch: usize, now: Instant) -> Pacer {
        let packet_bytes = packet_bytes.max(1) as u64;
        let max_batch = max_batch.max(1);
        let mut pacer = Pacer { buckets: None, packet_bytes, max_batch, quantum: max_batch };
        pacer.start(rate, now);
        pacer
    }

    /// The rate that is held.
    pub fn rate(&self) -> Option<Rate> {
        self.buckets.as_ref().map(|buckets| buckets.rate)
    }

    /// Changes the rate from `now` on. What has left is still waited for: at the new rate.
    pub fn set_rate(&mut self, rate: Option<Rate>, now: Instant) {
        if self.rate() == rate {
            return;
        }
        let debt_bytes = self.buckets.as_ref().map_or(0, |buckets| buckets.schedule.debt(now));
        self.start(rate, now);
        if let Some(buckets) = &mut self.buckets {
            let quantum_bytes = self.quantum as u64 * self.packet_bytes;
            buckets.spend(now, debt_bytes.saturating_add(quantum_bytes));
        }
    }

    /// Starts afresh: one quantum may leave at once.
    fn start(&mut self, rate: Option<Rate>, now: Instant) {
        let Some(rate) = rate else {
            self.buckets = None;
            self.quantum = self.max_batch;
            return;
        };
        let burst_bytes = rate.bytes_in(BURST);
        let in_burst = usize::try_from(burst_bytes / self.packet_bytes).unwrap_or(usize::MAX);
        self.quantum = in_burst.clamp(1, self.max_batch);
        let quantum_bytes = self.packet_bytes.saturating_mul(self.quantum as u64);
        let lag_bytes = rate.bytes_in(MAX_LAG);
        let bits_per_s = rate.bits_per_s();
        let catch_up = bits_per_s.saturating_mul(CATCH_UP);
        let depth = quantum_bytes.saturating_add(lag_bytes);
        self.buckets = Some(Buckets {
            rate,
            schedule: Bucket::new(bits_per_s, depth, quantum_bytes, now),
            peak: Bucket::new(catch_up, quantum_bytes.max(burst_bytes), quantum_bytes, now),
        });
    }

    /// How many packets may leave now: 0 to the largest batch.
    pub fn allow(&self, now: Instant) -> usize {
        let Some(buckets) = &self.buckets else { return self.max_batch };
        let bytes = buckets.schedule.level(now).min(buckets.peak.level(now));
        usize::try_from(bytes / self.packet_bytes).unwrap_or(usize::MAX).min(self.max_batch)
    }

    /// Says that `bytes` have left. It may be more than was allowed: then what follows waits.
    pub fn sent(&mut self, now: Instant, bytes: u64) {
        if let Some(buckets) = &mut self.buckets {
            buckets.spend(now, bytes);
        }
    }

    /// When enough packets may leave to be worth waking for: one millisecond's, or one batch, or
    /// one packet at a low rate. Never before `now`. Somebody with fewer packets than that may
    /// ask [`allow`](Pacer::allow) earlier.
    pub fn next(&self, now: Instant) -> Instant {
        let Some(buckets) = &self.buckets else { return now };
        let bytes = self.quantum as u64 * self.packet_bytes;
        let at = buckets.schedule.holds_at(bytes).max(buckets.peak.holds_at(bytes));
        now.max(Instant::from_nanos(u64::try_from(at).unwrap_or(0)))
    }

    /// Says that there is nothing to send: the time that passes so is no delay to make good.
    pub fn idle(&mut self, now: Instant) {
        let quantum_bytes = self.quantum as u64 * self.packet_bytes;
        if let Some(buckets) = &mut self.buckets {
            buckets.schedule.limit(now, quantum_bytes);
        }
    }
}

impl Buckets {
    fn spend(&mut self, now: Instant, bytes: u64) {
        self.schedule.spend(now, bytes);
        self.peak.spend(now, bytes);
    }
}

impl Bucket {
    /// A bucket that holds `level_bytes` at `now`.
    fn new(bits_per_s: u64, depth_bytes: u64, level_bytes: u64, now: Instant) -> Bucket {
        let empty_at = nanos(now);
        let mut bucket = Bucket { bits_per_s, depth_bytes, empty_at, remainder: 0 };
        bucket.empty_at = empty_at.saturating_sub(bucket.time_for(level_bytes));
        bucket
    }

    /// Nanoseconds in which `bytes` flow in, rounded up.
    fn time_for(&self, bytes: u64) -> i64 {
        let ns = (u128::from(bytes) * SCALE).div_ceil(u128::from(self.bits_per_s));
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    /// Bytes that it holds at `now`.
    fn level(&self, now: Instant) -> u64 {
        let Ok(filled) = u64::try_from(nanos(now).saturating_sub(self.empty_at)) else { return 0 };
        let scaled = u128::from(filled) * u128::from(self.bits_per_s);
        let bytes = scaled.saturating_sub(u128::from(self.remainder)) / SCALE;
        u64::try_from(bytes).unwrap_or(u64::MAX).min(self.depth_bytes)
    }

    /// Bytes by which it is overdrawn at `now`.
    fn debt(&self, now: Instant) -> u64 {
        let Ok(ahead) = u64::try_from(self.empty_at.saturating_sub(nanos(now))) else { return 0 };
        u64::try_from(u128::from(ahead) * u128::from(self.bits_per_s) / SCALE).unwrap_or(u64::MAX)
    }

    /// When it holds `bytes`, in nanoseconds.
    fn holds_at(&self, bytes: u64) -> i64 {
        let scaled = u128::from(bytes) * SCALE + u128::from(self.remainder);
        let ns = scaled.div_ceil(u128::from(self.bits_per_s));
        self.empty_at.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
    }

    /// Takes `bytes` out, at `now`; what had flowed over is lost.
    fn spend(&mut self, now: Instant, bytes: u64) {
        self.limit(now, self.depth_bytes);
        let scaled = u128::from(bytes) * SCALE + u128::from(self.remainder);
        let rate = u128::from(self.bits_per_s);
        let ns = i64::try_from(scaled / rate).unwrap_or(i64::MAX);
        self.empty_at = self.empty_at.saturating_add(ns);
        self.remainder = (scaled % rate) as u64;
    }

    /// Pours away what it holds beyond `most_bytes`.
    fn limit(&mut self, now: Instant, most_bytes: u64) {
        let earliest = nanos(now).saturating_sub(self.time_for(most_bytes));
        if self.empty_at < earliest {
            self.empty_at = earliest;
            self.remainder = 0;
        }
    }
}

/// Nanoseconds since the epoch; saturates after 292 years.
fn nanos(at: Instant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}
