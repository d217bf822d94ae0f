//! The estimate of the detection-time.

use std::time::Duration;

use crate::rlm::RlmConfig;

/// Estimates the time from a change of level to its effect at the receiver, by its mean and
/// deviation [RLM §3.5].
#[derive(Clone, Copy, Debug)]
pub(super) struct DetectionTime {
    mean_s: f64,
    deviation_s: f64,
    g1: f64,
    g2: f64,
    k1: f64,
    k2: f64,
}

/// A day, above which no detection-time is believed.
const GREATEST_S: f64 = 86_400.0;

impl DetectionTime {
    /// Creates the estimate that holds before any experiment failed.
    pub(super) fn new(config: &RlmConfig) -> DetectionTime {
        DetectionTime {
            mean_s: config.detection_time.as_secs_f64(),
            deviation_s: config.detection_deviation.as_secs_f64(),
            g1: config.g1,
            g2: config.g2,
            k1: config.k1,
            k2: config.k2,
        }
    }

    /// Takes the time from the start of a failed experiment to the onset of congestion.
    pub(super) fn measured(&mut self, time: Duration) {
        let time_s = time.as_secs_f64().min(GREATEST_S);
        let off = (time_s - self.mean_s).abs();
        self.deviation_s = (1.0 - self.g2) * self.deviation_s + self.g2 * off;
        self.mean_s = (1.0 - self.g1) * self.mean_s + self.g1 * time_s;
    }

    /// Takes the time from a join to the first packet. Congestion cannot be detected sooner.
    pub(super) fn at_least(&mut self, time: Duration) {
        self.mean_s = self.mean_s.max(time.as_secs_f64().min(GREATEST_S));
    }

    /// Returns the scaled estimate: the duration of detection-timers, and the time for which an
    /// experiment is in progress: k₁·T + k₂·σ [RLM §3.4].
    pub(super) fn timer(&self) -> Duration {
        let s = self.k1 * self.mean_s + self.k2 * self.deviation_s;
        Duration::from_secs_f64(s.clamp(0.001, GREATEST_S))
    }

    /// Returns mean and deviation.
    pub(super) fn estimate(&self) -> (Duration, Duration) {
        (Duration::from_secs_f64(self.mean_s), Duration::from_secs_f64(self.deviation_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_estimate_follows_the_filters_of_the_paper() {
        let config = RlmConfig {
            detection_time: Duration::from_secs(5),
            detection_deviation: Duration::from_secs(2),
            ..RlmConfig::default()
        };
        let mut time = DetectionTime::new(&config);
        assert_eq!(time.timer(), Duration::from_secs(9));
        time.measured(Duration::from_secs(1));
        // σ: 0.75 · 2 + 0.25 · |1 − 5|; T: 0.75 · 5 + 0.25 · 1.
        assert_eq!(time.estimate(), (Duration::from_secs(4), Duration::from_millis(2500)));
        (0..60).for_each(|_| time.measured(Duration::from_millis(400)));
        let (mean, deviation) = time.estimate();
        assert!((mean.as_secs_f64() - 0.4).abs() < 1e-6 && deviation.as_secs_f64() < 1e-4);
    }

    #[test]
    fn the_first_packet_of_a_layer_is_a_lower_bound() {
        let mut time = DetectionTime::new(&RlmConfig::default());
        time.at_least(Duration::from_millis(30));
        assert_eq!(time.estimate().0, Duration::from_secs(2));
        time.at_least(Duration::from_secs(40));
        assert_eq!(time.estimate().0, Duration::from_secs(40));
        time.measured(Duration::MAX);
        assert!(time.timer() < Duration::from_hours(48));
    }
}
