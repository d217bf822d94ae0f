//! The short-term estimate of the loss rate.

/// Estimates the loss rate since the M state was entered.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LossRate {
    came: u64,
    lost: u64,
}

impl LossRate {
    /// Counts packets that came.
    pub(super) fn came(&mut self, packets: u64) {
        self.came += packets;
    }

    /// Counts packets that were lost.
    pub(super) fn lost(&mut self, packets: u64) {
        self.lost += packets;
    }

    /// Returns the number of packets by which the rate is judged.
    pub(super) fn expected(&self) -> u64 {
        self.came + self.lost
    }

    /// Returns whether the rate is above `threshold`.
    pub(super) fn exceeds(&self, threshold: f64) -> bool {
        self.lost as f64 > threshold * self.expected() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_lost_packets_is_compared() {
        let mut rate = LossRate::default();
        assert!(!rate.exceeds(0.0));
        rate.came(18);
        rate.lost(2);
        assert!(rate.expected() == 20 && !rate.exceeds(0.1));
        rate.lost(1);
        assert!(rate.exceeds(0.1));
    }
}
