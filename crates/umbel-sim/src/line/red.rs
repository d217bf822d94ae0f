//! Random early detection.

use umbel_engine::units::Rate;

use super::nanos;
use crate::link::RedConfig;
use crate::random::power;

/// State of one queue [Floyd and Jacobson 1993, Fig. 2].
#[derive(Clone, Debug)]
pub(super) struct Red {
    config: RedConfig,
    /// Sending time of a typical packet, at least 1.
    packet_ns: u64,
    /// Averaged length.
    average: f64,
    /// Packets since the last early drop; `None` below the lower threshold.
    since_drop: Option<u32>,
}

impl Red {
    pub(super) fn new(config: RedConfig, rate: Rate) -> Red {
        let packet_ns = nanos(rate.time_for(config.mean_packet.0)).max(1);
        Red { config, packet_ns, average: 0.0, since_drop: None }
    }

    /// Updates the average for a packet that comes at `now`, when `length` packets wait. Returns
    /// whether the packet may join them. If none waits, the line has been idle since `idle_since`.
    pub(super) fn admits(
        &mut self,
        now: u64,
        length: u64,
        idle_since: u64,
        uniform: impl FnOnce() -> f64,
    ) -> bool {
        let RedConfig { weight, limit, min_threshold, .. } = self.config;
        if length > 0 {
            self.average += weight * (length as f64 - self.average);
        } else {
            // Computed as if small packets had arrived at the empty queue all the time.
            let missed = now.saturating_sub(idle_since) / self.packet_ns;
            self.average *= power(1.0 - weight, u32::try_from(missed).unwrap_or(u32::MAX));
        }
        if self.average < min_threshold {
            self.since_drop = None;
            return length < u64::from(limit);
        }
        let since_drop = self.since_drop.map_or(0, |n| n + 1);
        self.since_drop = Some(since_drop);
        let share = self.share();
        // Spreads the drops evenly: their distance is uniform, not geometric.
        let spread = 1.0 - f64::from(since_drop) * share;
        let dropped = share >= 1.0
            || length >= u64::from(limit)
            || spread <= share
            || uniform() < share / spread;
        if dropped {
            self.since_drop = Some(0);
        }
        !dropped
    }

    /// Returns the share of packets to drop at the present average.
    fn share(&self) -> f64 {
        let RedConfig { min_threshold, max_threshold, max_probability, gentle, .. } = self.config;
        if self.average < max_threshold {
            let above = (self.average - min_threshold) / (max_threshold - min_threshold);
            max_probability * above
        } else if gentle && self.average < 2.0 * max_threshold {
            let above = (self.average - max_threshold) / max_threshold;
            max_probability + (1.0 - max_probability) * above
        } else {
            1.0
        }
    }

    #[cfg(test)]
    pub(super) fn average(&self) -> f64 {
        self.average
    }
}
