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

/// Returns the natural logarithm of a normal positive number, to about the last two bits. Only
/// operations are used that IEEE 754 fixes to the bit; the logarithm of a system's library may
/// differ in the last one.
pub fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & FRACTION) | (1023 << 52));
    // Around 1 from both sides, so that the series is short and ln 1 is exactly 0.
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln m = 2 artanh((m - 1) / (m + 1)), and |(m - 1) / (m + 1)| < 0.172.
    let z = (mantissa - 1.0) / (mantissa + 1.0);
    let square = z * z;
    let series = (0..11).rev().fold(0.0, |sum, k| sum * square + 1.0 / f64::from(2 * k + 1));
    2.0 * z * series + exponent as f64 * std::f64::consts::LN_2
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

    #[test]
    fn the_logarithm_agrees_with_the_systems() {
        let mut random = generator(1);
        for _ in 0..10_000 {
            let x = uniform(&mut random) + f64::MIN_POSITIVE;
            assert!((ln(x) - x.ln()).abs() <= 4e-16 * x.ln().abs().max(1.0), "{x}");
        }
        assert!(ln(1.0) == 0.0);
        assert!((ln(1e-300) - 1e-300_f64.ln()).abs() < 1e-12);
    }
}
