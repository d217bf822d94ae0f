//! Where values stand on an axis, and which of them are named.

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

/// Values beyond it cannot be drawn: differences of them may overflow.
const MOST: f64 = 1e300;

/// Whether a value can stand on an axis.
pub(super) fn drawable(value: f64) -> bool {
    value.abs() < MOST
}

/// The least and the greatest of the values that can be drawn; 0 to 1 without any.
pub(super) fn extent(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let (low, high) = values
        .filter(|&value| drawable(value))
        .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), v| (low.min(v), high.max(v)));
    if low > high { (0.0, 1.0) } else { (low, high) }
}

impl Scale {
    /// An axis that holds a range of values, with about so many ticks. It begins at 0 if little of it
    /// were left out otherwise; with `whole_steps` it ends at ticks.
    pub(super) fn new(extent: (f64, f64), about: u32, whole_steps: bool) -> Scale {
        let (mut low, mut high) = extent;
        if low > 0.0 && low < 0.6 * high {
            low = 0.0;
        }
        if high < 0.0 && high > 0.6 * low {
            high = 0.0;
        }
        // A single value, or as good as one, stands in the middle.
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

    /// The same axis on other pixels.
    pub(super) fn onto(self, from: f64, to: f64) -> Scale {
        Scale { from, to, ..self }
    }

    /// The pixel of a value.
    pub(super) fn pixel(&self, value: f64) -> f64 {
        let share = (value - self.low) / (self.high - self.low);
        self.from + share * (self.to - self.from)
    }

    /// The same, held within the axis.
    pub(super) fn clamped_pixel(&self, value: f64) -> f64 {
        self.pixel(self.nearest(value))
    }

    /// The value on the axis that is nearest.
    pub(super) fn nearest(&self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }

    /// Whether a value stands on the axis.
    pub(super) fn holds(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    /// The values that are named, and their names.
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

/// The least step of 1, 2, 2.5 or 5 times a power of ten that is no less.
fn nice_step(least: f64) -> f64 {
    let power = 10_f64.powi(number::magnitude(least));
    [1.0, 2.0, 2.5, 5.0]
        .into_iter()
        .map(|factor| factor * power)
        .find(|&step| step >= least * (1.0 - 1e-9))
        .unwrap_or(10.0 * power)
}
