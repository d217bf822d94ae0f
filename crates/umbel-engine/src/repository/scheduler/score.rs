//! Exact scores.

use std::cmp::Ordering;
use std::fmt;

/// Urgency of an item, as a fraction in lowest terms. The item with the greatest score is sent
/// next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Score {
    numerator: u128,
    denominator: u128,
}

impl Score {
    /// Creates the score `numerator / denominator`, in lowest terms. A denominator of 0 counts as
    /// 1.
    pub fn new(numerator: u128, denominator: u128) -> Score {
        let denominator = denominator.max(1);
        let divisor = greatest_common_divisor(numerator, denominator);
        Score { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    /// Returns the numerator in lowest terms.
    pub const fn numerator(self) -> u128 {
        self.numerator
    }

    /// Returns the nearest floating-point number.
    pub fn value(self) -> f64 {
        self.numerator as f64 / self.denominator as f64
    }

    /// Returns the denominator in lowest terms; at least 1.
    pub const fn denominator(self) -> u128 {
        self.denominator
    }
}

fn greatest_common_divisor(mut a: u128, mut b: u128) -> u128 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a.max(1)
}

impl Ord for Score {
    /// Compares whole parts, then the remainders' inverses, so that nothing overflows.
    fn cmp(&self, other: &Score) -> Ordering {
        let (mut a, mut b) = (*self, *other);
        loop {
            let whole = (a.numerator / a.denominator).cmp(&(b.numerator / b.denominator));
            let (rest_a, rest_b) = (a.numerator % a.denominator, b.numerator % b.denominator);
            if whole.is_ne() {
                return whole;
            }
            if rest_a == 0 || rest_b == 0 {
                return rest_a.cmp(&rest_b);
            }
            // a's rest is greater if its inverse is smaller.
            (a, b) = (
                Score { numerator: b.denominator, denominator: rest_b },
                Score { numerator: a.denominator, denominator: rest_a },
            );
        }
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Score {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.denominator {
            1 => write!(f, "{}", self.numerator),
            denominator => write!(f, "{}/{denominator}", self.numerator),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_compare_by_value_at_any_size() {
        assert_eq!(Score::new(2, 6), Score::new(1, 3));
        assert!(Score::new(1, 3) < Score::new(1, 2));
        assert!(Score::new(3, 2) > Score::new(1, 1));
        assert!(Score::new(u128::MAX - 1, u128::MAX) < Score::new(1, 1));
        assert!(Score::new(u128::MAX - 1, u128::MAX) > Score::new(u128::MAX - 2, u128::MAX - 1));
        assert_eq!(Score::new(0, 5), Score::new(0, 7));
    }

    #[test]
    fn the_order_is_that_of_cross_multiplication() {
        for (a, b, c, d) in (0..9u128).flat_map(|a| {
            (1..9).flat_map(move |b| (0..9).flat_map(move |c| (1..9).map(move |d| (a, b, c, d))))
        }) {
            assert_eq!(Score::new(a, b).cmp(&Score::new(c, d)), (a * d).cmp(&(c * b)));
        }
    }
}
