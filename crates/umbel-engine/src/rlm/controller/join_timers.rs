//! The join-timers, one for each level.

use std::time::Duration;

use crate::RateClass;
use crate::chance::ln;
use crate::rlm::RlmConfig;

/// Mean of the join-timer of each level: the time after which the level below tries to join it.
///
/// An interval is λ/2 + X, where λ is the mean and X is exponential with mean λ, cut off at 4λ. The
/// density in [RLM §4] has λ where a rate belongs (e^(−λx), and 1 − e^(−4λ²) for its integral),
/// which would make long timers short. The mean of λ is what the text says.
#[derive(Clone, Debug)]
pub(super) struct JoinTimers {
    mean_s: [f64; RateClass::LAYERS as usize + 1],
    min_s: f64,
    max_s: f64,
    backoff: f64,
    relaxation: f64,
}

/// 1 − e^(−4): the share of an exponential distribution below four times its mean.
const BELOW_CUT: f64 = 0.981_684_361_111_265_8;

impl JoinTimers {
    /// Creates timers of the shortest mean.
    pub(super) fn new(config: &RlmConfig) -> JoinTimers {
        let min_s = config.join_timer_min.as_secs_f64();
        JoinTimers {
            mean_s: [min_s; RateClass::LAYERS as usize + 1],
            min_s,
            max_s: config.join_timer_max.as_secs_f64().max(min_s),
            backoff: config.backoff,
            relaxation: config.relaxation,
        }
    }

    /// Sets the longest mean: T_J^max. Timers that are longer shrink to it.
    pub(super) fn set_max(&mut self, max: Duration) {
        self.max_s = max.as_secs_f64().max(self.min_s);
        for mean_s in &mut self.mean_s {
            *mean_s = mean_s.min(self.max_s);
        }
    }

    /// Lengthens the timer of a level that proved problematic.
    pub(super) fn back_off(&mut self, level: u8) {
        if let Some(mean_s) = self.mean_s.get_mut(usize::from(level)) {
            *mean_s = (*mean_s * self.backoff).min(self.max_s);
        }
    }

    /// Shortens the timer of a level that proves stable.
    pub(super) fn relax(&mut self, level: u8) {
        if let Some(mean_s) = self.mean_s.get_mut(usize::from(level)) {
            *mean_s = (*mean_s * self.relaxation).max(self.min_s);
        }
    }

    /// Returns the mean of a level's timer.
    pub(super) fn mean(&self, level: u8) -> Duration {
        Duration::from_secs_f64(self.mean_s.get(usize::from(level)).copied().unwrap_or(self.max_s))
    }

    /// Returns an interval of a level's timer, drawn by a number that is uniform in [0, 1).
    pub(super) fn interval(&self, level: u8, uniform: f64) -> Duration {
        let mean = self.mean(level);
        mean.mul_f64(0.5 - ln(1.0 - uniform * BELOW_CUT))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timers() -> JoinTimers {
        JoinTimers::new(&RlmConfig::default())
    }

    #[test]
    fn failures_lengthen_a_timer_up_to_the_maximum_and_rest_shortens_it() {
        let mut timers = timers();
        timers.back_off(3);
        timers.back_off(3);
        assert_eq!([2, 3].map(|level| timers.mean(level).as_secs()), [5, 20]);
        (0..9).for_each(|_| timers.back_off(3));
        assert_eq!(timers.mean(3), Duration::from_mins(10));
        timers.set_max(Duration::from_mins(50));
        timers.back_off(3);
        assert_eq!(timers.mean(3), Duration::from_mins(20));
        timers.relax(3);
        assert_eq!(timers.mean(3).as_secs_f64().round().to_bits(), 800.0_f64.to_bits());
        (0..99).for_each(|_| timers.relax(3));
        assert_eq!(timers.mean(3), Duration::from_secs(5));
        timers.back_off(200);
    }

    #[test]
    fn intervals_lie_between_half_and_four_and_a_half_means() {
        let timers = timers();
        assert_eq!(timers.interval(2, 0.0), Duration::from_millis(2500));
        let longest = timers.interval(2, 1.0 - f64::EPSILON);
        assert!((longest.as_secs_f64() - 22.5).abs() < 1e-6, "{longest:?}");
        let draws = (0..100_000).map(|n| timers.interval(2, f64::from(n) / 1e5).as_secs_f64());
        let mean = draws.sum::<f64>() / 1e5;
        // λ (1/2 + 1 − 4 e^(−4) / (1 − e^(−4))) for λ = 5 s.
        assert!((mean - 7.127).abs() < 0.001, "{mean}");
    }
}
