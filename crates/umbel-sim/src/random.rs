//! Random draws that are the same on any machine.
//!
//! Only additions, multiplications and divisions of doubles are used, which IEEE 754 fixes to the
//! bit. The logarithm of a system's library may differ in the last bit.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::{SplitMix64, Xoshiro256PlusPlus};

use crate::network::NodeId;

pub use umbel_engine::chance::{ln, uniform};

/// Purpose of a stream. Streams of different purposes or numbers are independent, so that one more
/// receiver changes no other draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Draws of a node's program; numbered by node.
    Node,
    /// Loss, early drops and jitter; numbered by direction of a link.
    Link,
    /// Delays of messages; numbered by sender and receiver.
    Session,
    /// The shape of a generated network.
    Topology,
    /// Arrivals, choices of items and similar draws; numbered as the scenario chooses.
    Workload,
}

/// Creates the stream for one purpose of a run.
pub fn stream(seed: u64, purpose: Purpose, number: u64) -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(key(seed, purpose, number))
}

/// Returns a number that stands for the seed, the purpose and the number together.
pub fn key(seed: u64, purpose: Purpose, number: u64) -> u64 {
    [purpose as u64 + 1, number].into_iter().fold(mix(seed), |key, part| mix(key ^ mix(part)))
}

/// Returns the seed of the program of one node of a run, for engines that take a generator of their
/// own. It is another number than the [`key`] of [`Purpose::Node`]; the records of LMS's and PGM's
/// runs were made with it.
pub fn node_seed(seed: u64, node: NodeId) -> u64 {
    seed ^ u64::from(node.0) << 32
}

fn mix(x: u64) -> u64 {
    SplitMix64::seed_from_u64(x).next_u64()
}

/// Returns a number that is uniform among `0..bound`; 0 for a bound of 0.
pub fn below(random: &mut impl Rng, bound: u64) -> u64 {
    ((u128::from(random.next_u64()) * u128::from(bound)) >> 64) as u64
}

/// Returns an exponentially distributed number with this mean.
pub fn exponential(random: &mut impl Rng, mean: f64) -> f64 {
    -mean * ln(1.0 - uniform(random))
}

/// Returns `base` to the power `exponent` by squaring.
pub(crate) fn power(mut base: f64, mut exponent: u32) -> f64 {
    let mut result = 1.0;
    while exponent > 0 {
        if exponent & 1 == 1 {
            result *= base;
        }
        base *= base;
        exponent >>= 1;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_are_powers() {
        // The rounding of `powi` depends on the compiler.
        assert!((power(0.998, 1_000) - 0.998_f64.powi(1_000)).abs() < 1e-14);
        assert!((power(0.5, 0) - 1.0).abs() < 1e-15 && power(0.0, 3).abs() < 1e-15);
    }

    #[test]
    fn exponential_draws_have_their_mean() {
        let mut random = stream(3, Purpose::Session, 5);
        let n = 100_000;
        let mean = (0..n).map(|_| exponential(&mut random, 2.0)).sum::<f64>() / f64::from(n);
        assert!((mean - 2.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn streams_differ_in_seed_purpose_and_number() {
        let first = |seed, purpose, number| stream(seed, purpose, number).next_u64();
        let all = [
            first(0, Purpose::Node, 0),
            first(1, Purpose::Node, 0),
            first(0, Purpose::Link, 0),
            first(0, Purpose::Node, 1),
        ];
        for (index, a) in all.iter().enumerate() {
            assert!(all[index + 1..].iter().all(|b| a != b));
        }
        assert_eq!(first(0, Purpose::Node, 0), all[0]);
    }

    #[test]
    fn draws_below_a_bound_stay_below_it() {
        let mut random = stream(1, Purpose::Workload, 0);
        assert_eq!(below(&mut random, 0), 0);
        let mut seen = [0_u32; 5];
        (0..1_000).for_each(|_| seen[below(&mut random, 5) as usize] += 1);
        assert!(seen.iter().all(|&n| n > 150), "{seen:?}");
    }
}
