//! Student's t distribution, for the intervals of means over runs.

/// Number of degrees of freedom beyond which the distribution is taken for that of this number. It
/// then differs from the normal distribution in the fifth digit.
const MOST_FREEDOM: usize = 10_000;

/// Returns the probability that a variable with Student's t distribution of `freedom` degrees of
/// freedom lies above `t`. This is the error of calling a mean greater than 0 that is `t` standard
/// errors above it. NaN for NaN.
///
/// # Panics
///
/// If `freedom` is 0.
pub fn t_tail(t: f64, freedom: usize) -> f64 {
    assert!(freedom > 0, "a single value has no distribution");
    match (1.0 - central(t.abs(), freedom.min(MOST_FREEDOM))) / 2.0 {
        tail if t < 0.0 => 1.0 - tail,
        tail => tail,
    }
}

/// Returns what a variable with Student's t distribution exceeds with the probability `tail`.
/// The distribution has `freedom` degrees of freedom; `tail` is above 0 and at most ½. It is 0.025
/// for the interval that contains a mean with 95 % probability.
///
/// # Panics
///
/// If `freedom` is 0.
pub fn t_quantile(tail: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while t_tail(high, freedom) > tail && high < 1e300 {
        (low, high) = (high, high * 2.0);
    }
    // As often as an f64 has digits, and a few times more.
    for _ in 0..60 {
        let middle = f64::midpoint(low, high);
        if t_tail(middle, freedom) > tail {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Returns the mean of some values and the half-width of its 95 % confidence interval; `None` for
/// fewer than two.
pub fn mean_and_interval(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len();
    if count < 2 {
        return None;
    }
    let mean = values.iter().sum::<f64>() / count as f64;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    let error = (squares / (count - 1) as f64 / count as f64).sqrt();
    Some((mean, t_quantile(0.025, count - 1) * error))
}

/// Returns the probability of a value between `-t` and `t` [Abramowitz and Stegun, 26.7.3 and
/// 26.7.4].
fn central(t: f64, freedom: usize) -> f64 {
    let squared = t * t / freedom as f64;
    let (sine, cosine_squared) = if squared.is_infinite() {
        (1.0, 0.0)
    } else {
        ((squared / (1.0 + squared)).sqrt(), 1.0 / (1.0 + squared))
    };
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum, mut factor) = (1.0, 0.0, if is_odd { 2.0 } else { 1.0 });
    // Terms fall, at first by the cosine alone; what is negligible changes no digit.
    for _ in 0..(freedom / 2) {
        sum += term;
        term *= cosine_squared * factor / (factor + 1.0);
        factor += 2.0;
        if term < sum * f64::EPSILON / 4.0 {
            break;
        }
    }
    if is_odd {
        let angle = squared.sqrt().atan();
        (angle + sine * cosine_squared.sqrt() * sum) * std::f64::consts::FRAC_2_PI
    } else {
        sine * sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(a: f64, b: f64, error: f64) -> bool {
        (a - b).abs() <= error
    }

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (freedom, quantile, one_sided) in [
            (1, 12.7062, 6.3138),
            (2, 4.3027, 2.9200),
            (4, 2.7764, 2.1318),
            (7, 2.3646, 1.8946),
            (30, 2.0423, 1.6973),
            (40, 2.0211, 1.6839),
            (120, 1.9799, 1.6577),
            (1_000_000, 1.9600, 1.6449),
        ] {
            let found = [0.025, 0.05].map(|tail| t_quantile(tail, freedom));
            let expected = [quantile, one_sided];
            let is_close = found.iter().zip(expected).all(|(a, b)| close(*a, b, 3e-4));
            assert!(is_close, "{freedom}: {found:?}");
        }
    }

    #[test]
    fn a_tail_is_the_inverse_of_its_quantile_and_both_tails_make_one() {
        for freedom in [1, 2, 5, 16, 99, 100] {
            for tail in [0.4, 0.05, 0.025, 1e-6] {
                let t = t_quantile(tail, freedom);
                assert!(close(t_tail(t, freedom), tail, 1e-9), "{freedom} {tail} {t}");
                assert!(close(t_tail(-t, freedom), 1.0 - tail, 1e-9));
            }
            assert!(close(t_tail(0.0, freedom), 0.5, 1e-12));
            assert!(close(t_tail(f64::INFINITY, freedom), 0.0, 1e-12));
            assert!(close(t_tail(f64::NEG_INFINITY, freedom), 1.0, 1e-12));
            assert!(t_tail(f64::NAN, freedom).is_nan());
        }
    }

    #[test]
    fn an_interval_needs_two_values_and_narrows_with_more() {
        assert_eq!(mean_and_interval(&[1.0]), None);
        let (mean, wide) = mean_and_interval(&[1.0, 3.0]).unwrap();
        assert!(close(mean, 2.0, 1e-12) && close(wide, 12.7062, 1e-4), "{wide}");
        let (_, narrow) = mean_and_interval(&[1.0, 3.0, 1.0, 3.0, 2.0]).unwrap();
        assert!(narrow < 1.5, "{narrow}");
    }
}
