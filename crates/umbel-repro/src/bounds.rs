//! What a measured number has to be so that it agrees with a text: its least and its greatest value.

/// Smaller than 1, for a quotient that stands for an order.
pub(crate) const LESS: (f64, f64) = (f64::NEG_INFINITY, 1.0_f64.next_down());
/// Greater than 1.
pub(crate) const MORE: (f64, f64) = (1.0_f64.next_up(), f64::INFINITY);

/// From 0 to this.
pub(crate) const fn up_to(high: f64) -> (f64, f64) {
    (0.0, high)
}

/// From the share `tolerance` below `value` to the same above.
pub(crate) fn around(value: f64, tolerance: f64) -> (f64, f64) {
    around_range((value, value), tolerance)
}

/// The same around a range.
pub(crate) fn around_range((low, high): (f64, f64), tolerance: f64) -> (f64, f64) {
    (low * (1.0 - tolerance), high * (1.0 + tolerance))
}
