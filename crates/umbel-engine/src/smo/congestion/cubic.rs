//! CUBIC [RFC 9438].

use std::time::Duration;

use crate::Instant;

/// Growth of the cubic function in segments per cubic second [RFC 9438 §5.1].
const C: f64 = 0.4;
/// Factor of a cut [RFC 9438 §4.6].
const BETA: f64 = 0.7;
/// Growth in segments per window that is fair to Reno with this factor [RFC 9438 §4.3].
const ALPHA: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// State of CUBIC. Windows are in segments.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cubic {
    /// Window before the last cut.
    w_max: f64,
    /// Start of the current epoch; `None` until the first ACK after a cut.
    epoch: Option<Instant>,
    /// Time from the start of the epoch until the window is back at `w_max`, in seconds.
    k: f64,
    /// Window that Reno would have.
    w_est: f64,
    /// Part of a byte by which the window should have grown.
    fraction: f64,
}

impl Cubic {
    /// Returns the bytes by which the window grows.
    pub(super) fn grow(
        &mut self,
        now: Instant,
        cwnd: u64,
        mss: u64,
        acked: u64,
        rtt: Option<Duration>,
    ) -> u64 {
        let (segments, acked) = (cwnd as f64 / mss as f64, acked as f64 / mss as f64);
        let start = *self.epoch.get_or_insert_with(|| {
            self.w_max = self.w_max.max(segments);
            self.k = cube_root((self.w_max - segments) / C);
            self.w_est = segments;
            now
        });
        let alpha = if self.w_est < self.w_max { ALPHA } else { 1.0 };
        self.w_est += alpha * acked / segments;
        let ahead = (now.since(start) + rtt.unwrap_or_default()).as_secs_f64() - self.k;
        let target = (C * ahead * ahead * ahead + self.w_max).clamp(segments, 1.5 * segments);
        let by_curve = (target - segments) / segments * acked;
        let by_reno = (self.w_est - segments).clamp(0.0, acked);
        let bytes = by_curve.max(by_reno) * mss as f64 + self.fraction;
        self.fraction = bytes.fract();
        bytes as u64
    }

    /// Returns the window after a cut of `cwnd`, with fast convergence [RFC 9438 §4.7].
    pub(super) fn cut(&mut self, cwnd: u64, mss: u64) -> u64 {
        let segments = cwnd as f64 / mss as f64;
        let below = segments < self.w_max;
        self.w_max = if below { segments * (1.0 + BETA) / 2.0 } else { segments };
        self.epoch = None;
        (cwnd as f64 * BETA) as u64
    }
}

/// Returns the cube root by Newton's method. The library's may differ between systems.
fn cube_root(x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    let mut root = x.max(1.0);
    for _ in 0..64 {
        root -= (root * root * root - x) / (3.0 * root * root);
    }
    root
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cube_root_is_one() {
        for x in [0.001, 0.4, 1.0, 7.5, 1000.0, 1e6] {
            assert!((cube_root(x) - f64::cbrt(x)).abs() < 1e-9 * x.max(1.0), "{x}");
        }
        assert!(cube_root(-1.0) == 0.0);
    }
}
