//! Means and their confidence intervals.

/// A mean over runs with different seeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Half the width of the 95 % confidence interval: with 95 % probability the mean over
    /// infinitely many runs lies in `mean ± ci95`. NaN for a single run, which says nothing about
    /// it.
    pub ci95: f64,
}

/// 97.5 % quantiles of Student's t distribution for 1 to 30 degrees of freedom.
const T: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];
/// 97.5 % quantile of the normal distribution, the limit of the above.
const NORMAL: f64 = 1.960;

impl Estimate {
    /// Returns the mean of samples that are independent of each other; NaN for no samples.
    pub fn of(samples: &[f64]) -> Estimate {
        let n = samples.len() as f64;
        let mean = samples.iter().sum::<f64>() / n;
        if samples.len() < 2 {
            return Estimate { mean, ci95: f64::NAN };
        }
        let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
        let deviation = (squares / (n - 1.0)).sqrt();
        Estimate { mean, ci95: t_quantile(samples.len() - 1) * deviation / n.sqrt() }
    }
}

/// Returns the 97.5 % quantile of Student's t distribution for so many degrees of freedom, at
/// least 1.
pub(crate) fn t_quantile(freedom: usize) -> f64 {
    T.get(freedom - 1).copied().unwrap_or(NORMAL)
}

/// Returns Jain's index: 1 if all rates are equal, 1/n if one has all.
pub fn fairness(rates: &[f64]) -> f64 {
    let sum: f64 = rates.iter().sum();
    sum * sum / (rates.len() as f64 * rates.iter().map(|rate| rate * rate).sum::<f64>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_shares_are_fair_and_one_that_has_all_is_not() {
        assert!((fairness(&[2.0, 2.0, 2.0]) - 1.0).abs() < 1e-12);
        assert!((fairness(&[3.0, 0.0, 0.0]) - 1.0 / 3.0).abs() < 1e-12);
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * b.abs().max(1.0)
    }

    #[test]
    fn the_interval_is_that_of_students_t() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        assert!(close(estimate.mean, 3.0));
        assert!(close(estimate.ci95, 2.776 * (2.5_f64 / 5.0).sqrt()));
    }

    #[test]
    fn many_samples_have_the_interval_of_the_normal_distribution() {
        let samples: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        let deviation = (25.0_f64 / 99.0).sqrt();
        assert!(close(Estimate::of(&samples).ci95, 1.96 * deviation / 10.0));
    }

    #[test]
    fn one_sample_has_no_interval_and_none_has_no_mean() {
        let one = Estimate::of(&[7.0]);
        assert!(close(one.mean, 7.0) && one.ci95.is_nan());
        assert!(Estimate::of(&[]).mean.is_nan());
    }
}
