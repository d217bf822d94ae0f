//! Means and their confidence intervals.

use umbel_sim::statistics::mean_and_interval;

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

impl Estimate {
    /// Returns the mean of samples that are independent of each other; NaN for no samples.
    pub fn of(samples: &[f64]) -> Estimate {
        let alone = || (samples.first().copied().unwrap_or(f64::NAN), f64::NAN);
        let (mean, ci95) = mean_and_interval(samples).unwrap_or_else(alone);
        Estimate { mean, ci95 }
    }
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
        assert!(close(estimate.ci95, 2.776_445_105 * (2.5_f64 / 5.0).sqrt()));
    }

    #[test]
    fn the_interval_of_many_samples_is_not_that_of_the_normal_distribution() {
        let samples: Vec<f64> = (0..100).map(|i| f64::from(i % 2)).collect();
        let deviation = (25.0_f64 / 99.0).sqrt();
        assert!(close(Estimate::of(&samples).ci95, 1.984_216_952 * deviation / 10.0));
    }

    #[test]
    fn one_sample_has_no_interval_and_none_has_no_mean() {
        let one = Estimate::of(&[7.0]);
        assert!(close(one.mean, 7.0) && one.ci95.is_nan());
        assert!(Estimate::of(&[]).mean.is_nan());
    }
}
