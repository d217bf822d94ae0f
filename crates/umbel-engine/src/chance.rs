//! Random draws that come out the same on any machine.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Generator that an engine draws from. Its host creates it.
pub type Generator = Xoshiro256PlusPlus;

/// Creates a generator whose draws follow from the seed.
pub fn generator(seed: u64) -> Generator {
    Generator::seed_from_u64(seed)
}

/// Returns a number that is uniform in [0, 1), with 53 bits.
pub fn uniform(random: &mut impl Rng) -> f64 {
    fraction(random.next_u64())
}

/// Returns the number in [0, 1) given by the upper 53 of random bits.
pub const fn fraction(bits: u64) -> f64 {
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_begin_at_0_and_end_before_1() {
        assert_eq!(fraction(0).to_bits(), 0.0_f64.to_bits());
        assert_eq!(fraction(1 << 63).to_bits(), 0.5_f64.to_bits());
        assert_eq!(fraction(u64::MAX).to_bits(), (1.0 - f64::EPSILON / 2.0).to_bits());
    }
}
