//! Axes: positions of values, and ticks.

use super::number;

/// An axis: a range of values on a range of pixels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Scale {
    low: f64,
    high: f64,
    step: f64,
    /// Pixels at `low` and `high`.
    from: f64,
    to: f64,
}

/// Limit of values that can be drawn: differences of greater ones may overflow.
const MOST: f64 = 1e300;

/// Returns whether a value can be drawn.
pub(super) fn drawable(value: f64) -> bool {
    value.abs() < MOST
}

/// Returns the least and the greatest of the values that can be drawn; 0 to 1 if there are none.
pub(super) fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|&value| drawable(value))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

impl Scale {
    /// Creates an axis that contains a range of values, with about `about` ticks. It is extended to
    /// 0 if its near end is below 0.6 times the far end. With `whole_steps` it ends at ticks.
    pub(super) fn new(extent: (f64, f64), about: u32, whole_steps: bool) -> Scale {
        let (mut low, mut high) = extent;
        if low > 0.0 && low < 0.6 * high {
            low = 0.0;
        }
        if high < 0.0 && high > 0.6 * low {
            high = 0.0;
        }
        // A single value, or a range of negligible width, is in the middle.
        if high - low <= 1e-9 * low.abs().max(high.abs()) {
            let margin = if low == 0.0 { 1.0 } else { low.abs() / 2.0 };
            (low, high) = (low - margin, high + margin);
        }
        let step = nice_step((high - low) / f64::from(about));
        if whole_steps {
            low = (low / step + 1e-9).floor() * step;
            high = (high / step - 1e-9).ceil() * step;
        }
        Scale { low, high, step, from: 0.0, to: 1.0 }
    }

    /// Returns the same axis on other pixels.
    pub(super) fn onto(self, from: f64, to: f64) -> Scale {
        Scale { from, to, ..self }
    }

    /// Returns the pixel of a value.
    pub(super) fn pixel(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// Returns the pixel of a value, limited to the axis.
    pub(super) fn clamped_pixel(&self, value: f64) -> f64 {
        self.pixel(self.nearest(value))
    }

    /// Returns the nearest value on the axis.
    pub(super) fn nearest(&self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }

    /// Returns whether a value lies on the axis.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// Returns the ticks, as values with their labels.
    pub(super) fn ticks(&self) -> Vec<(f64, String)> {
        let first = (self.low / self.step - 1e-9).ceil();
        let last = (self.high / self.step + 1e-9).floor();
        let decimals = (0..12).find(|&decimals| {
            let scaled = self.step * 10_f64.powi(decimals);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        });
        let decimals = decimals.unwrap_or(12) as usize;
        (0..=(last - first) as u32)
            .map(|i| (first + f64::from(i)) * self.step)
            .map(|value| (value, number::fixed(value, decimals)))
            .collect()
    }
}

/// Returns the least step, of 1, 2, 2.5 or 5 times a power of ten, that is at least `least`.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powi(number::magnitude(least));
    [1.0, 2.0, 2.5, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}
