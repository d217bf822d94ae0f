//! Computes when and how many packets may leave, so that a set rate is held.
//!
//! A sender that sleeps wakes late, by some ten microseconds at best and by milliseconds on a busy
//! machine. The pacer therefore keeps a schedule rather than gaps, and catches up on delays. Two
//! bounds keep that from turning into bursts that a queue on the way cannot hold:
//!
//! - At most [`MAX_LAG`] of the schedule is made up. Earlier delays are forgotten.
//! - When catching up, packets leave at most at [`CATCH_UP`] times the rate. At most [`BURST`] of
//!   the rate, or one batch if that is more, leaves at once; more if the caller
//!   [permits](Pacer::set_burst) it.
//!
//! Both are token buckets. A bucket is kept as the moment at which it would have been empty. The
//! remainder of the division is kept too, so that rounding errors do not add up.

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::units::Rate;

/// Maximum delay that is made up.
pub const MAX_LAG: Duration = Duration::from_millis(8);

/// Default maximum amount that leaves at once, as a time at the rate.
pub const BURST: Duration = Duration::from_millis(1);

/// Factor on the rate while a delay is made up.
pub const CATCH_UP: u64 = 2;

/// Bit-nanoseconds per second and byte.
const SCALE: u128 = 8_000_000_000;

/// Paces one sender. It has no clock. The caller passes the time.
#[derive(Clone, Debug)]
pub struct Pacer {
    /// The buckets; `None` for no limit.
    buckets: Option<Buckets>,
    packet_bytes: u64,
    max_batch: usize,
    /// Maximum amount that leaves at once when catching up, as a time at the rate.
    burst: Duration,
    /// Number of packets worth a wake-up and a system call.
    quantum: usize,
}

#[derive(Clone, Debug)]
struct Buckets {
    rate: Rate,
    /// Holds the rate in the long run.
    schedule: Bucket,
    /// Limits the rate at which packets follow each other.
    peak: Bucket,
}

/// A token bucket.
#[derive(Clone, Debug)]
struct Bucket {
    bits_per_s: u64,
    /// Maximum number of tokens that it holds.
    depth_bytes: u64,
    /// When it was empty, or will be. In nanoseconds; before the epoch if it is full there.
    empty_at: i64,
    /// Part of a nanosecond by which `empty_at` is too early, times `bits_per_s`.
    remainder: u64,
}

impl Pacer {
    /// Creates a pacer that starts at `now`. The first packets may leave at once.
    ///
    /// `rate` applies to the bytes reported to [`sent`](Pacer::sent); `None` is no limit.
    /// `packet_bytes` is the count of a full packet. `max_batch` is the maximum number of packets
    /// that the sender takes at once ([`Sender::max_batch`](crate::udp::Sender::max_batch)); 0 is
    /// taken as 1.
    pub fn new(rate: Option<Rate>, packet_bytes: usize, max_batch: usize, now: Instant) -> Pacer {
        let packet_bytes = packet_bytes.max(1) as u64;
        let max_batch = max_batch.max(1);
        let burst = BURST;
        let mut pacer = Pacer { buckets: None, packet_bytes, max_batch, burst, quantum: max_batch };
        pacer.start(rate, now);
        pacer
    }

    /// Returns the rate that is held.
    pub fn rate(&self) -> Option<Rate> {
        self.buckets.as_ref().map(|buckets| buckets.rate)
    }

    /// Changes the rate from `now` on. Packets that have left are still waited for, at the new
    /// rate.
    pub fn set_rate(&mut self, rate: Option<Rate>, now: Instant) {
        if self.rate() == rate {
            return;
        }
        let debt_bytes = self.buckets.as_ref().map_or(0, |buckets| buckets.schedule.debt(now));
        self.start(rate, now);
        let quantum_bytes = self.quantum_bytes();
        if let Some(buckets) = &mut self.buckets {
            buckets.spend(now, debt_bytes.saturating_add(quantum_bytes));
        }
    }

    /// Changes the maximum amount that leaves at once when catching up, as a time at the rate.
    /// Takes effect with the next rate. The default is [`BURST`].
    ///
    /// On a busy machine, a sender wakes milliseconds late each time. Without a greater burst, it
    /// then never reaches its rate.
    pub fn set_burst(&mut self, burst: Duration) {
        self.burst = burst.max(BURST);
    }

    /// Starts afresh. One quantum may leave at once.
    fn start(&mut self, rate: Option<Rate>, now: Instant) {
        let Some(rate) = rate else {
            self.buckets = None;
            self.quantum = self.max_batch;
            return;
        };
        let burst_bytes = rate.bytes_in(BURST);
        let in_burst = usize::try_from(burst_bytes / self.packet_bytes).unwrap_or(usize::MAX);
        self.quantum = in_burst.clamp(1, self.max_batch);
        let quantum_bytes = self.quantum_bytes();
        let lag_bytes = rate.bytes_in(MAX_LAG);
        let peak_bytes = rate.bytes_in(self.burst);
        let bits_per_s = rate.bits_per_s();
        let catch_up = bits_per_s.saturating_mul(CATCH_UP);
        let depth = quantum_bytes.saturating_add(lag_bytes);
        self.buckets = Some(Buckets {
            rate,
            schedule: Bucket::new(bits_per_s, depth, quantum_bytes, now),
            peak: Bucket::new(catch_up, quantum_bytes.max(peak_bytes), quantum_bytes, now),
        });
    }

    fn quantum_bytes(&self) -> u64 {
        self.packet_bytes.saturating_mul(self.quantum as u64)
    }

    /// Returns the number of packets that may leave now, up to the largest batch. It is 0 until
    /// there are enough of them for a system call: one millisecond's, or one batch, or one packet
    /// at a low rate.
    pub fn allow(&self, now: Instant) -> usize {
        let Some(buckets) = &self.buckets else { return self.max_batch };
        let bytes = buckets.schedule.level(now).min(buckets.peak.level(now));
        if bytes < self.quantum_bytes() {
            return 0;
        }
        usize::try_from(bytes / self.packet_bytes).unwrap_or(usize::MAX).min(self.max_batch)
    }

    /// Records that `bytes` began to leave at `now`. If they exceed the allowance, the next packets
    /// wait.
    ///
    /// The system call that sends them takes its time, above all where one machine carries them to
    /// many receivers. That time is part of the schedule. If the bytes were counted after the call,
    /// a delay could be made up only in half of the time that the calls leave.
    pub fn sent(&mut self, now: Instant, bytes: u64) {
        if let Some(buckets) = &mut self.buckets {
            buckets.spend(now, bytes);
        }
    }

    /// Returns the time at which [`allow`](Pacer::allow) allows packets again, or `now` if it
    /// already does.
    pub fn next(&self, now: Instant) -> Instant {
        let Some(buckets) = &self.buckets else { return now };
        let bytes = self.quantum_bytes();
        let at = buckets.schedule.holds_at(bytes).max(buckets.peak.holds_at(bytes));
        now.max(Instant::from_nanos(u64::try_from(at).unwrap_or(0)))
    }

    /// Records that there is nothing to send. The time that passes is no delay to make up, beyond
    /// a permitted burst.
    pub fn idle(&mut self, now: Instant) {
        let quantum_bytes = self.quantum_bytes();
        if let Some(buckets) = &mut self.buckets {
            let is_permitted = self.burst > BURST;
            let most = if is_permitted { buckets.peak.depth_bytes } else { quantum_bytes };
            buckets.schedule.limit(now, most);
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
    /// Creates a bucket that holds `level_bytes` at `now`.
    fn new(bits_per_s: u64, depth_bytes: u64, level_bytes: u64, now: Instant) -> Bucket {
        let empty_at = nanos(now);
        let mut bucket = Bucket { bits_per_s, depth_bytes, empty_at, remainder: 0 };
        bucket.empty_at = empty_at.saturating_sub(bucket.time_for(level_bytes));
        bucket
    }

    /// Returns the nanoseconds in which `bytes` flow in, rounded up.
    fn time_for(&self, bytes: u64) -> i64 {
        let ns = (u128::from(bytes) * SCALE).div_ceil(u128::from(self.bits_per_s));
        i64::try_from(ns).unwrap_or(i64::MAX)
    }

    /// Returns the bytes that it holds at `now`.
    fn level(&self, now: Instant) -> u64 {
        let Ok(filled) = u64::try_from(nanos(now).saturating_sub(self.empty_at)) else { return 0 };
        let scaled = u128::from(filled) * u128::from(self.bits_per_s);
        let bytes = scaled.saturating_sub(u128::from(self.remainder)) / SCALE;
        u64::try_from(bytes).unwrap_or(u64::MAX).min(self.depth_bytes)
    }

    /// Returns the bytes by which it is overdrawn at `now`.
    fn debt(&self, now: Instant) -> u64 {
        let Ok(ahead) = u64::try_from(self.empty_at.saturating_sub(nanos(now))) else { return 0 };
        u64::try_from(u128::from(ahead) * u128::from(self.bits_per_s) / SCALE).unwrap_or(u64::MAX)
    }

    /// Returns the time at which it holds `bytes`, in nanoseconds.
    fn holds_at(&self, bytes: u64) -> i64 {
        let scaled = u128::from(bytes) * SCALE + u128::from(self.remainder);
        let ns = scaled.div_ceil(u128::from(self.bits_per_s));
        self.empty_at.saturating_add(i64::try_from(ns).unwrap_or(i64::MAX))
    }

    /// Takes `bytes` out at `now`. Bytes that had overflowed are lost.
    fn spend(&mut self, now: Instant, bytes: u64) {
        self.limit(now, self.depth_bytes);
        let scaled = u128::from(bytes) * SCALE + u128::from(self.remainder);
        let rate = u128::from(self.bits_per_s);
        let ns = i64::try_from(scaled / rate).unwrap_or(i64::MAX);
        self.empty_at = self.empty_at.saturating_add(ns);
        self.remainder = (scaled % rate) as u64;
    }

    /// Drops its bytes beyond `most_bytes`.
    fn limit(&mut self, now: Instant, most_bytes: u64) {
        let earliest = nanos(now).saturating_sub(self.time_for(most_bytes));
        if self.empty_at < earliest {
            self.empty_at = earliest;
            self.remainder = 0;
        }
    }
}

/// Returns the nanoseconds since the epoch. Saturates after 292 years.
fn nanos(at: Instant) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn rate(bits_per_s: u64) -> Rate {
        Rate::from_bits_per_s(bits_per_s).unwrap()
    }

    fn at(ns: u64) -> Instant {
        Instant::from_nanos(ns)
    }

    /// A bucket that leaks at a rate, computed in another way than the pacer's: exactly, in
    /// bit-nanoseconds per second.
    struct Leaky {
        bits_per_s: u64,
        level: u128,
        highest: u128,
        last_ns: u64,
    }

    impl Leaky {
        fn new(bits_per_s: u64) -> Leaky {
            Leaky { bits_per_s, level: 0, highest: 0, last_ns: 0 }
        }

        fn pour(&mut self, now_ns: u64, bytes: u64) {
            let leaked = u128::from(now_ns - self.last_ns) * u128::from(self.bits_per_s);
            self.level = self.level.saturating_sub(leaked) + u128::from(bytes) * SCALE;
            self.highest = self.highest.max(self.level);
            self.last_ns = now_ns;
        }

        fn highest_bytes(&self) -> u64 {
            (self.highest / SCALE) as u64
        }
    }

    /// A sender with an endless supply that wakes late.
    struct Simulation {
        pacer: Pacer,
        packet_bytes: u64,
        /// Time to hand over a batch.
        send_ns: u64,
        now_ns: u64,
        sent_bytes: u64,
        batches: u64,
        peak: Leaky,
        schedule: Leaky,
    }

    impl Simulation {
        fn new(bits_per_s: u64, packet_bytes: u64, max_batch: usize) -> Simulation {
            let start = at(0);
            let pacer = Pacer::new(Some(rate(bits_per_s)), packet_bytes as usize, max_batch, start);
            Simulation {
                pacer,
                packet_bytes,
                send_ns: 0,
                now_ns: 0,
                sent_bytes: 0,
                batches: 0,
                peak: Leaky::new(bits_per_s.saturating_mul(CATCH_UP)),
                schedule: Leaky::new(bits_per_s),
            }
        }

        /// Sends for `ns`. Each wake-up is late by the value of `late`.
        fn run(&mut self, ns: u64, mut late: impl FnMut() -> u64) {
            let end = self.now_ns + ns;
            while self.now_ns < end {
                let now = at(self.now_ns);
                let packets = self.pacer.allow(now);
                if packets == 0 {
                    let next = self.pacer.next(now).as_nanos();
                    assert!(next > self.now_ns, "the pacer waits for a moment that has passed");
                    self.now_ns = next + late();
                    continue;
                }
                let bytes = packets as u64 * self.packet_bytes;
                self.pacer.sent(now, bytes);
                self.sent_bytes += bytes;
                self.batches += 1;
                self.peak.pour(self.now_ns, bytes);
                self.schedule.pour(self.now_ns, bytes);
                self.now_ns += self.send_ns;
            }
        }

        fn rate_held(&self) -> f64 {
            self.sent_bytes as f64 * 8e9 / self.now_ns as f64
        }
    }

    #[test]
    fn sending_may_take_most_of_the_time() {
        // 17 packets take 1 ms; handing them over takes 0.8 ms, and wake-ups are 0.1 ms late.
        let mut simulation = Simulation::new(190_400_000, 1_400, 46);
        simulation.send_ns = 800_000;
        simulation.run(2 * SECOND, || 100_000);
        let held = simulation.rate_held() / 190_400_000.0;
        assert!((0.99..1.01).contains(&held), "{held}");
    }

    #[test]
    fn packets_at_a_low_rate_leave_one_by_one_on_the_dot() {
        // 1,000 bytes take 125 ms.
        let mut pacer = Pacer::new(Some(rate(64_000)), 1_000, 48, at(0));
        for n in 0..20 {
            let now = at(n * SECOND / 8);
            assert_eq!(pacer.allow(at(now.as_nanos().saturating_sub(1))), usize::from(n == 0));
            assert_eq!(pacer.allow(now), 1);
            pacer.sent(now, 1_000);
            assert_eq!(pacer.allow(now), 0);
            assert_eq!(pacer.next(now), at((n + 1) * SECOND / 8));
        }
    }

    #[test]
    fn a_whole_batch_leaves_at_a_high_rate() {
        // 48 packets of 1,250 bytes take 48 µs.
        let mut pacer = Pacer::new(Some(rate(10_000_000_000)), 1_250, 48, at(0));
        assert_eq!(pacer.allow(at(0)), 48);
        pacer.sent(at(0), 60_000);
        assert_eq!(pacer.next(at(0)), at(48_000));
    }

    #[test]
    fn no_limit_means_whole_batches_at_once() {
        let mut pacer = Pacer::new(None, 1_400, 46, at(0));
        for _ in 0..3 {
            assert_eq!(pacer.allow(at(7)), 46);
            assert_eq!(pacer.next(at(7)), at(7));
            pacer.sent(at(7), 46 * 1_400);
        }
    }

    #[test]
    fn a_packet_that_was_not_allowed_is_waited_for() {
        let mut pacer = Pacer::new(Some(rate(8_000_000)), 1_000, 8, at(0));
        pacer.sent(at(0), 10_000);
        assert_eq!(pacer.allow(at(9 * SECOND / 1_000)), 0);
        assert_eq!(pacer.next(at(0)), at(10 * SECOND / 1_000));
    }

    #[test]
    fn a_new_rate_holds_from_now_on() {
        let mut pacer = Pacer::new(Some(rate(64_000)), 1_000, 48, at(0));
        pacer.sent(at(0), 1_000);
        // 1,000 bytes are still to pass, and another 1,000 make room for the next packet.
        pacer.set_rate(Some(rate(8_000_000)), at(0));
        assert_eq!(pacer.rate(), Some(rate(8_000_000)));
        assert_eq!(pacer.next(at(0)), at(SECOND / 1_000));
        pacer.set_rate(None, at(0));
        assert_eq!(pacer.allow(at(0)), 48);
        pacer.set_rate(Some(rate(8_000_000)), at(0));
        assert_eq!(pacer.allow(at(0)), 0);
    }

    #[test]
    fn making_a_delay_good_does_not_cut_batches_small() {
        let mut simulation = Simulation::new(1_000_000_000, 1_250, 48);
        for _ in 0..100 {
            simulation.run(SECOND / 100, || 0);
            simulation.now_ns += 3_000_000;
        }
        let batches = simulation.batches;
        let packets = simulation.sent_bytes / 1_250;
        assert!(packets >= 47 * batches, "{packets} packets in {batches} batches");
    }

    #[test]
    fn packets_that_come_one_by_one_leave_at_the_rate_too() {
        // 1,250 bytes take 10 µs; wake-ups are 60 µs late; each time one packet is there.
        let mut pacer = Pacer::new(Some(rate(1_000_000_000)), 1_250, 48, at(0));
        let (mut now, mut sent) = (at(0), 0_u64);
        while now < at(SECOND / 10) {
            if pacer.allow(now) > 0 {
                pacer.sent(now, 1_250);
                sent += 1;
            } else {
                now = pacer.next(now) + Duration::from_micros(60);
            }
        }
        assert!((9_950..=10_050).contains(&sent), "{sent}");
    }

    #[test]
    fn a_long_stall_does_not_become_a_burst() {
        let bits_per_s = 80_000_000;
        let mut simulation = Simulation::new(bits_per_s, 1_250, 48);
        simulation.run(SECOND / 10, || 0);
        let before = simulation.sent_bytes;
        simulation.now_ns += SECOND;
        simulation.run(SECOND / 10, || 0);
        // 100 ms of the rate, 8 ms made good, and one quantum of 8 packets.
        let sent = simulation.sent_bytes - before;
        assert!((1_000_000..=1_000_000 + 80_000 + 10_000).contains(&sent), "{sent}");
    }

    /// Returns the packets of 1,000 bytes that leave in a second at 8 Mbit/s if each wake-up is 4
    /// ms late. In between there is nothing to send (`is_idle`), or always something.
    fn late_packets(burst: Duration, is_idle: bool) -> u64 {
        let mut pacer = Pacer::new(Some(rate(8_000_000)), 1_000, 48, at(0));
        pacer.set_burst(burst);
        pacer.set_rate(Some(rate(8_000_001)), at(0));
        let (mut now, mut sent) = (at(0), 0);
        while now < at(SECOND) {
            let allowed = pacer.allow(now) as u64;
            (0..allowed).for_each(|_| pacer.sent(now, 1_000));
            sent += allowed;
            if is_idle {
                pacer.idle(now);
            }
            now = pacer.next(now) + Duration::from_millis(4);
        }
        sent
    }

    #[test]
    fn a_sender_that_wakes_late_reaches_its_rate_if_bursts_are_permitted() {
        // A second has 1,000 packets of the rate.
        for is_idle in [false, true] {
            let without = late_packets(BURST, is_idle);
            let with = late_packets(5 * BURST, is_idle);
            assert!(without < 500 && (950..=1_000).contains(&with), "{without} {with}");
        }
    }

    #[test]
    fn idle_time_is_not_made_good() {
        let mut pacer = Pacer::new(Some(rate(80_000_000)), 1_250, 48, at(0));
        pacer.sent(at(0), 8 * 1_250);
        pacer.idle(at(SECOND));
        assert_eq!(pacer.allow(at(SECOND)), 8);
        pacer.sent(at(SECOND), 8 * 1_250);
        assert_eq!(pacer.next(at(SECOND)), at(SECOND + SECOND / 1_000));
    }

    #[test]
    fn extreme_arguments_do_no_harm() {
        for bits_per_s in [1, u64::MAX] {
            for packet_bytes in [0, 1, usize::MAX] {
                let mut pacer = Pacer::new(Some(rate(bits_per_s)), packet_bytes, 0, at(0));
                for ns in [0, 1, u64::MAX / 2, u64::MAX] {
                    assert!(pacer.allow(at(ns)) <= 1);
                    assert!(pacer.next(at(ns)) >= at(ns));
                    pacer.sent(at(ns), u64::MAX);
                    pacer.idle(at(ns));
                    pacer.set_rate(Some(rate(bits_per_s / 2 + 1)), at(ns));
                }
            }
        }
    }

    /// Rates from 64 kbit/s to 100 Gbit/s, evenly on a logarithmic scale.
    fn rates() -> impl Strategy<Value = u64> {
        (64_000_f64.ln()..100e9_f64.ln()).prop_map(|ln| ln.exp() as u64)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn the_rate_is_held_within_a_hundredth_in_spite_of_late_wake_ups(
            bits_per_s in rates(),
            packet_bytes in 200_u64..9_000,
            max_batch in 1_usize..=64,
            seed: u64,
        ) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut simulation = Simulation::new(bits_per_s, packet_bytes, max_batch);
            // Long enough for 300 quanta, and for the greatest lag to be under a hundredth.
            let packet_ns = packet_bytes * 8 * SECOND / bits_per_s;
            simulation.run((300 * packet_ns).max(1_000_000_000), || {
                let draw = random.next_u64();
                // Mostly up to 100 µs late, once in 400 times up to 4 ms.
                let most = if draw.is_multiple_of(400) { 4_000_000 } else { 100_000 };
                (draw >> 16) % most
            });
            let held = simulation.rate_held() / bits_per_s as f64;
            prop_assert!((0.99..=1.01).contains(&held), "{held}");
        }

        #[test]
        fn bursts_are_bounded_however_late_the_wake_ups_are(
            bits_per_s in rates(),
            packet_bytes in 200_u64..9_000,
            max_batch in 1_usize..=64,
            lateness in 0_u64..20_000_000,
            seed: u64,
        ) {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
            let mut simulation = Simulation::new(bits_per_s, packet_bytes, max_batch);
            simulation.run(SECOND / 5, || random.next_u64() % (lateness + 1));
            let rate = rate(bits_per_s);
            let in_burst = rate.bytes_in(BURST);
            let quantum = (in_burst / packet_bytes).clamp(1, max_batch as u64) * packet_bytes;
            prop_assert!(simulation.peak.highest_bytes() <= in_burst.max(quantum) + 1);
            let lag = rate.bytes_in(MAX_LAG);
            prop_assert!(simulation.schedule.highest_bytes() <= lag + quantum + 1);
        }
    }
}
