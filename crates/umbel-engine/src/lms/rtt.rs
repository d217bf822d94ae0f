//! The round trip to the source, smoothed.

use std::time::Duration;

/// Mean and deviation of round trips, as TCP keeps them [RFC 6298 §2].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rtt {
    initial: Duration,
    /// Smoothed round trip and its mean deviation.
    measured: Option<(Duration, Duration)>,
}

impl Rtt {
    pub(crate) fn new(initial: Duration) -> Rtt {
        Rtt { initial, measured: None }
    }

    pub(crate) fn on_sample(&mut self, sample: Duration) {
        self.measured = Some(match self.measured {
            None => (sample, sample / 2),
            Some((smoothed, deviation)) => {
                let error = smoothed.abs_diff(sample);
                ((smoothed * 7 + sample) / 8, (deviation * 3 + error) / 4)
            }
        });
    }

    pub(crate) fn measured(&self) -> Option<Duration> {
        self.measured.map(|(smoothed, _)| smoothed)
    }

    pub(crate) fn smoothed(&self) -> Duration {
        self.measured().unwrap_or(self.initial)
    }

    /// Returns the mean deviation. That of a single sample says nothing, so it is capped at a
    /// quarter of the mean.
    pub(crate) fn deviation(&self) -> Duration {
        let deviation = self.measured.map_or(Duration::ZERO, |(_, deviation)| deviation);
        deviation.min(self.smoothed() / 4)
    }

    /// Returns `factor` round trips and four times their deviation.
    pub(crate) fn timeout(&self, factor: f64) -> Duration {
        self.smoothed().mul_f64(factor.clamp(0.1, 100.0)) + self.deviation() * 4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_round_trips_leave_the_factor_alone() {
        let mut rtt = Rtt::new(Duration::from_millis(200));
        assert_eq!(rtt.timeout(2.0), Duration::from_millis(400));
        (0..200).for_each(|_| rtt.on_sample(Duration::from_millis(50)));
        assert_eq!(rtt.measured(), Some(Duration::from_millis(50)));
        assert_eq!(rtt.timeout(2.0).as_millis(), 100);
    }
}
