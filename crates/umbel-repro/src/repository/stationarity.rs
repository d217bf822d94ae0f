//! Whether the delays of a run come from a system that has settled.

use super::point::{Outcome, Point};
use crate::certainty::Design;
use crate::estimate::Estimate;

/// Number of delays that MSER-5 takes together.
const BATCH: usize = 5;
/// Number of batches of the trend.
const TREND_BATCHES: usize = 10;
/// Change of the mean over the measured time, as a share of it, that is no drift.
const TOLERATED: f64 = 0.05;

/// Returns how many of the first values to leave out. The number makes the standard error of the
/// mean of the others the least, in batches of five, and is at most half. The rule is from [White,
/// Cobb and Spratt, "A comparison of five steady-state truncation heuristics for simulation",
/// 2000].
pub(super) fn mser5(values: &[f64]) -> usize {
    let batches: Vec<f64> =
        values.chunks_exact(BATCH).map(|batch| batch.iter().sum::<f64>() / BATCH as f64).collect();
    let (mut sum, mut squares, mut best) = (0.0, 0.0, (f64::INFINITY, 0));
    for (first, mean) in batches.iter().enumerate().rev() {
        sum += mean;
        squares += mean * mean;
        let kept = (batches.len() - first) as f64;
        let error = (squares - sum * sum / kept) / (kept * kept);
        if first <= batches.len() / 2 && error <= best.0 {
            best = (error, first);
        }
    }
    best.1 * BATCH
}

/// Returns how far the values rise from their beginning to their end, as a share of their mean. The
/// rise is that of the straight line nearest to the means of ten batches.
pub(super) fn growth(values: &[f64]) -> f64 {
    let length = values.len() / TREND_BATCHES;
    if length == 0 {
        return f64::NAN;
    }
    let batches = values.chunks_exact(length).take(TREND_BATCHES);
    let means: Vec<f64> = batches.map(|batch| batch.iter().sum::<f64>() / length as f64).collect();
    let n = TREND_BATCHES as f64;
    let mean = means.iter().sum::<f64>() / n;
    let middle = (n - 1.0) / 2.0;
    let (mut products, mut squares) = (0.0, 0.0);
    for (batch, value) in means.iter().enumerate() {
        let x = batch as f64 - middle;
        products += x * (value - mean);
        squares += x * x;
    }
    products / squares * n / mean
}

/// Returns whether the delays of a point still change within the measured time. The change must be
/// more than 5 %, and more than runs with different seeds differ.
pub(super) fn drifts(runs: &[Outcome]) -> bool {
    let growths: Vec<f64> = runs.iter().map(|run| run.growth).collect();
    let Estimate { mean, ci95 } = Estimate::of(&growths);
    mean.abs() > TOLERATED && mean.abs() > ci95
}

/// Returns the design of points that are judged if they have settled.
pub(super) fn settled() -> Design<Point> {
    let doubt = |_: &Point, runs: &[Outcome]| {
        drifts(runs).then_some("delays still grow or fall within the measured time")
    };
    Design { doubt, ..Design::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values that go up and down around a level.
    fn noise(n: usize, level: impl Fn(usize) -> f64) -> Vec<f64> {
        (0..n).map(|i| level(i) + [0.0, 3.0, -2.0, 1.0, -2.0, 2.0, -2.0][i % 7]).collect()
    }

    #[test]
    fn what_comes_before_the_level_is_left_out() {
        let rising = noise(500, |i| if i < 100 { i as f64 } else { 100.0 });
        let left_out = mser5(&rising);
        assert!((80..=110).contains(&left_out), "{left_out}");
        assert_eq!(mser5(&[7.0; 40]), 0);
        assert_eq!((mser5(&[]), mser5(&[1.0; 4])), (0, 0));
        let never_level = noise(500, |i| i as f64);
        assert_eq!(mser5(&never_level), 250, "half is left out where none is level");
    }

    #[test]
    fn growth_is_the_rise_over_the_whole_time() {
        let doubled = noise(1_000, |i| 100.0 + i as f64 / 10.0);
        assert!((growth(&doubled) - 100.0 / 150.0).abs() < 0.02, "{}", growth(&doubled));
        assert!(growth(&noise(1_000, |_| 100.0)).abs() < 0.01);
        assert!(growth(&[1.0; 9]).is_nan());
    }
}
