//! Bounds within which a measured number agrees with a text: its least and its greatest value.

/// Less than 1, for a quotient that expresses an order.
pub(crate) const LESS: (f64, f64) = (f64::NEG_INFINITY, 1.0_f64.next_down());
/// Greater than 1, for a quotient that expresses an order.
pub(crate) const MORE: (f64, f64) = (1.0_f64.next_up(), f64::INFINITY);

/// Returns the bounds 0 and `high`.
pub(crate) const fn up_to(high: f64) -> (f64, f64) {
    (0.0, high)
}

/// Returns the bound `high` alone. Of what is 0 in most runs, the interval of the mean goes below 0.
pub(crate) const fn at_most(high: f64) -> (f64, f64) {
    (f64::NEG_INFINITY, high)
}

/// Returns the bounds `tolerance` (a share) below and above `value`.
pub(crate) fn around(value: f64, tolerance: f64) -> (f64, f64) {
    around_range((value, value), tolerance)
}

/// Returns the bounds `tolerance` (a share) below and above a range.
pub(crate) fn around_range((low, high): (f64, f64), tolerance: f64) -> (f64, f64) {
    (low * (1.0 - tolerance), high * (1.0 + tolerance))
}
