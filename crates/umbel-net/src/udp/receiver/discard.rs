//! Dropping datagrams on purpose.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Simulated loss where there is no lossy link, for demonstrations and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Discard {
    /// Share of the datagrams that is dropped, each independently, in parts per million.
    pub per_million: u32,
    /// Seed of the random draws.
    pub seed: u64,
}

/// Drops datagrams as [`Discard`] specifies.
#[derive(Debug)]
pub(super) struct Sieve {
    per_million: u32,
    generator: Xoshiro256PlusPlus,
}

impl Sieve {
    pub(super) fn new(discard: Discard) -> Sieve {
        let generator = Xoshiro256PlusPlus::seed_from_u64(discard.seed);
        Sieve { per_million: discard.per_million, generator }
    }

    pub(super) fn discards(&mut self) -> bool {
        self.generator.next_u64() % 1_000_000 < u64::from(self.per_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sieve_discards_the_share_that_was_asked_for() {
        for per_million in [0, 10_000, 200_000, 1_000_000] {
            let mut sieve = Sieve::new(Discard { per_million, seed: 1 });
            let discarded = (0..100_000).filter(|_| sieve.discards()).count();
            let expected = per_million as usize / 10;
            assert!(discarded.abs_diff(expected) <= 500, "{discarded} of 100,000 at {per_million}");
        }
    }
}
