//! Whose path counts: the rate that serves the receivers best, and who has to leave for it.
//!
//! The rate follows what paths seem to carry, at once. Who leaves is decided by what was delivered for
//! a while: a wrong guess at what a path carries lasts for a moment, but who has left is gone.

use super::api::PaceTo;
use super::config::CongestionConfig;
use super::config::pace::GAIN;

/// What is known of one receiver's path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standing<Who> {
    pub(super) who: Who,
    /// Receivers that it stands for: less than one if others are at its host.
    pub(super) weight: f64,
    /// Rate that the path carries, in bits per second.
    pub(super) carries: f64,
    /// Whether it carries no more.
    pub(super) bound: bool,
    /// Rate that was delivered for a while.
    pub(super) delivered: f64,
    /// Whether its trouble has lasted long enough to do without it.
    pub(super) certain: bool,
}

/// What follows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Decision<Who> {
    /// The receiver whose path limits the rate.
    pub(super) limiting: Option<Who>,
    /// Those that leave the pace.
    pub(super) leave: Vec<Who>,
}

/// Decides by all paths. `most` is the greatest rate that is possible, `sent` the present one.
///
/// The cost is that of sorting.
pub(super) fn decide<Who: Clone>(
    config: &CongestionConfig,
    mut standings: Vec<Standing<Who>>,
    sent: f64,
    most: f64,
) -> Decision<Who> {
    let leave = leave(config, &standings);
    let all: f64 = standings.iter().map(|standing| standing.weight).sum();
    let free = standings.iter().filter(|standing| !standing.bound);
    let free: f64 = free.map(|standing| standing.weight).sum();
    let unbound = standings.iter().filter(|standing| !standing.bound);
    let proven = median(unbound.map(|free| (free.carries, free.weight)).collect()).min(sent);
    standings.retain(|standing| standing.bound);
    standings.sort_by(|a, b| a.carries.total_cmp(&b.carries));
    let Some(slowest) = standings.first() else {
        return Decision { limiting: None, leave };
    };
    let bound = all - free;
    // Who carries less than this does not count.
    let (least, waits) = match config.pace_to {
        PaceTo::All => (0.0, false),
        PaceTo::Most => {
            let carried = standings.iter().map(|standing| (standing.carries, standing.weight));
            let carried = carried.chain([(proven, free)]).collect();
            let value = slowest.carries * all;
            let best = best(carried);
            if best.value >= value * GAIN {
                (best.rate / GAIN, false)
            } else {
                // While most receivers take more, it may turn out to be worth it.
                let worth = GAIN * value / free.max(1e-9);
                (0.0, bound * 2.0 <= all && worth < most)
            }
        }
        PaceTo::Percentile(percent) => {
            let carried = standings.iter().map(|standing| (standing.carries, standing.weight));
            let counts = percentile(carried, percent, all);
            (counts.unwrap_or(proven) / GAIN, counts.is_none() && proven < most)
        }
    };
    let least = least.max(min_rate(config));
    let mut counts = standings.iter().filter(|standing| standing.carries >= least * 0.999);
    let limiting = counts.next().filter(|_| !waits).map(|standing| standing.who.clone());
    Decision { limiting, leave }
}

/// Returns who leaves: who got so little for so long that the others would get much more without it.
fn leave<Who: Clone>(config: &CongestionConfig, standings: &[Standing<Who>]) -> Vec<Who> {
    if standings.iter().all(|standing| !standing.certain) {
        return Vec::new();
    }
    let mut delivered: Vec<_> =
        standings.iter().map(|standing| (standing.delivered, standing.weight)).collect();
    let all: f64 = delivered.iter().map(|part| part.1).sum();
    let least = match config.pace_to {
        PaceTo::All => 0.0,
        PaceTo::Most => {
            delivered.sort_by(|a, b| a.0.total_cmp(&b.0));
            let value = delivered.first().map_or(0.0, |slowest| slowest.0 * all);
            let best = best(delivered);
            if best.value >= value * GAIN { best.rate / GAIN } else { 0.0 }
        }
        PaceTo::Percentile(percent) => {
            delivered.sort_by(|a, b| a.0.total_cmp(&b.0));
            percentile(delivered.into_iter(), percent, all).unwrap_or_default() / GAIN
        }
    };
    let least = least.max(min_rate(config));
    let slow = standings.iter().filter(|standing| {
        let most = standing.carries.max(standing.delivered);
        standing.certain && most < least * 0.999
    });
    slow.map(|standing| standing.who.clone()).collect()
}

/// Returns the rate below which the operator waits for nobody, a little less: it is a bound of the
/// rate, too.
fn min_rate(config: &CongestionConfig) -> f64 {
    config.min_rate.map_or(0.0, |rate| rate.bits_per_s() as f64 * 0.95)
}

/// The rate at which most is delivered to all together, and how much that is.
struct Best {
    rate: f64,
    value: f64,
}

/// Returns the best of rates that half of the receivers take at least, with their weights. So a few
/// that boast, or are much faster, drive nobody away.
fn best(mut rates: Vec<(f64, f64)>) -> Best {
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: f64 = rates.iter().map(|part| part.1).sum();
    let mut best = Best { rate: 0.0, value: 0.0 };
    let mut takes = 0.0;
    for (rate, weight) in rates {
        takes += weight;
        if takes * 2.0 >= all - 1e-9 && rate * takes >= best.value {
            best = Best { rate, value: rate * takes };
        }
    }
    best
}

/// Returns the rate that a percentage of `all` takes, by rates in ascending order and their weights.
fn percentile(rates: impl Iterator<Item = (f64, f64)>, percent: u8, all: f64) -> Option<f64> {
    let mut spare = all * (1.0 - f64::from(percent.clamp(1, 100)) / 100.0) + 1e-9;
    for (rate, weight) in rates {
        spare -= weight;
        if spare < 0.0 {
            return Some(rate);
        }
    }
    None
}

/// Returns the rate that half of them take at least, with their weights.
fn median(mut rates: Vec<(f64, f64)>) -> f64 {
    rates.sort_by(|a, b| b.0.total_cmp(&a.0));
    let all: f64 = rates.iter().map(|part| part.1).sum();
    let mut sum = 0.0;
    for (rate, weight) in rates {
        sum += weight;
        if sum * 2.0 >= all {
            return rate;
        }
    }
    0.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_boasts_drives_nobody_away() {
        let rates = |fast: usize, slow: usize| {
            let fast = std::iter::repeat_n((1e9, 1.0), fast);
            fast.chain(std::iter::repeat_n((8e6, 1.0), slow)).collect()
        };
        assert_eq!(best(rates(1, 3)).rate as u64, 8e6 as u64);
        assert_eq!(best(rates(3, 4)).rate as u64, 8e6 as u64);
        assert_eq!(best(rates(3, 1)).rate as u64, 1e9 as u64);
        assert_eq!(best(rates(1, 1)).rate as u64, 1e9 as u64, "of two, the faster one");
    }
}
