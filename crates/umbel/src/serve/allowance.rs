//! The rate limit of unicast: the part of the server's rate that the data channel leaves.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use umbel_engine::units::Rate;

/// Share of the server's rate that unicast gets while the data channel takes all of it. So clients
/// that multicast does not reach are served all the same.
const LEAST: f64 = 0.05;
/// Shortest time over which the data channel's use is measured.
const MEASURE: Duration = Duration::from_millis(50);

/// The bucket that all couriers share. It has no capacity, and is filled at the rate that is left.
#[derive(Debug)]
pub(super) struct Allowance {
    most: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    left: Rate,
    /// Time at which everything reserved so far has left.
    free_at: Instant,
    /// Bytes sent by multicast, and the time of that count.
    multicast: (Instant, u64),
}

impl Allowance {
    pub(super) fn new(most: Rate, now: Instant) -> Allowance {
        let state = State { left: most, free_at: now, multicast: (now, 0) };
        Allowance { most, state: Mutex::new(state) }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of the bytes sent by multicast since the start.
    pub(super) fn measure(&self, now: Instant, multicast_bytes: u64) {
        let mut state = self.lock();
        let (since, before) = state.multicast;
        let elapsed = now.saturating_duration_since(since);
        if elapsed < MEASURE {
            return;
        }
        let used = multicast_bytes.saturating_sub(before) as f64 * 8.0 / elapsed.as_secs_f64();
        let share = 1.0 - used / self.most.bits_per_s() as f64;
        state.left = self.most.scaled(share.max(LEAST));
        state.multicast = (now, multicast_bytes);
    }

    /// Reserves room for `bytes`. Returns how long to wait before they leave.
    pub(super) fn reserve(&self, now: Instant, bytes: u64) -> Duration {
        let mut state = self.lock();
        let start = state.free_at.max(now);
        state.free_at = start + state.left.time_for(bytes);
        start - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Returns the bytes that two couriers send within a second, in blocks.
    fn sent_in_a_second(allowance: &Allowance, start: Instant) -> u64 {
        let mut couriers = [start; 2];
        let mut sent = 0;
        while let Some(now) = couriers.iter_mut().filter(|now| **now < start + SECOND).min() {
            *now += allowance.reserve(*now, 1_000);
            sent += u64::from(*now < start + SECOND) * 1_000;
        }
        sent
    }

    #[test]
    fn all_couriers_together_keep_to_what_multicast_leaves() {
        let start = Instant::now();
        let rate = Rate::from_bits_per_s(800_000).unwrap();
        let allowance = Allowance::new(rate, start);
        let about = |sent: u64, expected: u64| sent.abs_diff(expected) <= 2_000;
        assert!(about(sent_in_a_second(&allowance, start), 100_000));
        let mut multicast = 0;
        for (second, (used, left)) in
            (1..).zip([(60_000, 40_000), (100_000, 5_000), (120_000, 5_000), (0, 100_000)])
        {
            multicast += used;
            let now = start + SECOND * (2 * second);
            // The use in the second before.
            allowance.lock().multicast.0 = start + SECOND * (2 * second - 1);
            allowance.measure(now, multicast);
            let sent = sent_in_a_second(&allowance, now);
            assert!(about(sent, left), "{used} by multicast, {sent} by unicast");
        }
    }

    #[test]
    fn an_absurd_rate_or_block_waits_and_does_not_overflow() {
        let start = Instant::now();
        let allowance = Allowance::new(Rate::from_bits_per_s(1).unwrap(), start);
        assert_eq!(allowance.reserve(start, 1 << 30), Duration::ZERO);
        assert!(allowance.reserve(start, 1 << 30) > SECOND);
    }
}
