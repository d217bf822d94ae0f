//! From samples to numbers and back: 8×8 cosine transform, quantisation, order of the numbers.
//!
//! The transform is orthonormal: an error in a number is as large an error in the samples.

/// Rows of an 8×8 block.
pub(crate) type Block = [[f32; 8]; 8];

/// Numbers in units of the last plane: half a grey level.
const UNITS: f32 = 2.0;

/// Position in the block (row × 8 + column) of each number, from low to high frequencies.
#[rustfmt::skip]
pub(crate) const ZIGZAG: [u8; 64] = [
     0,  1,  8, 16,  9,  2,  3, 10, 17, 24, 32, 25, 18, 11,  4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13,  6,  7, 14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
];

/// cos(n π / 16) / 2, for n from 1 to 7: what the orthonormal transform of length 8 is made of.
const C1: f32 = 0.490_392_64;
const C2: f32 = 0.461_939_77;
const C3: f32 = 0.415_734_8;
const C4: f32 = 0.353_553_4;
const C5: f32 = 0.277_785_12;
const C6: f32 = 0.191_341_72;
const C7: f32 = 0.097_545_16;

type Row = [f32; 8];

#[inline]
fn each(a: &Row, b: &Row, f: impl Fn(f32, f32) -> f32) -> Row {
    let mut out = [0.0; 8];
    for i in 0..8 {
        out[i] = f(a[i], b[i]);
    }
    out
}

#[inline]
fn mix(rows: [&Row; 4], factors: [f32; 4]) -> Row {
    let mut out = [0.0; 8];
    for i in 0..8 {
        out[i] = (rows[0][i] * factors[0] + rows[1][i] * factors[1])
            + (rows[2][i] * factors[2] + rows[3][i] * factors[3]);
    }
    out
}

#[inline]
fn transpose(block: &Block) -> Block {
    let mut out = [[0.0; 8]; 8];
    for y in 0..8 {
        for x in 0..8 {
            out[x][y] = block[y][x];
        }
    }
    out
}

/// Transforms all columns: eight at once, one a lane.
#[inline]
fn forward_columns(x: &Block) -> Block {
    let add = |a, b| each(a, b, |a, b| a + b);
    let sub = |a, b| each(a, b, |a, b| a - b);
    let (s0, s1, s2, s3) =
        (add(&x[0], &x[7]), add(&x[1], &x[6]), add(&x[2], &x[5]), add(&x[3], &x[4]));
    let (d0, d1, d2, d3) =
        (sub(&x[0], &x[7]), sub(&x[1], &x[6]), sub(&x[2], &x[5]), sub(&x[3], &x[4]));
    let (e0, e1, e2, e3) = (add(&s0, &s3), add(&s1, &s2), sub(&s0, &s3), sub(&s1, &s2));
    let odd = [&d0, &d1, &d2, &d3];
    [
        each(&e0, &e1, |a, b| (a + b) * C4),
        mix(odd, [C1, C3, C5, C7]),
        each(&e2, &e3, |a, b| a * C2 + b * C6),
        mix(odd, [C3, -C7, -C1, -C5]),
        each(&e0, &e1, |a, b| (a - b) * C4),
        mix(odd, [C5, -C1, C7, C3]),
        each(&e2, &e3, |a, b| a * C6 - b * C2),
        mix(odd, [C7, -C5, C3, -C1]),
    ]
}

/// Inverts [`forward_columns`].
#[inline]
fn inverse_columns(x: &Block) -> Block {
    let e0 = each(&x[0], &x[4], |a, b| (a + b) * C4);
    let e1 = each(&x[0], &x[4], |a, b| (a - b) * C4);
    let e2 = each(&x[2], &x[6], |a, b| a * C2 + b * C6);
    let e3 = each(&x[2], &x[6], |a, b| a * C6 - b * C2);
    let s0 = each(&e0, &e2, |a, b| a + b);
    let s3 = each(&e0, &e2, |a, b| a - b);
    let s1 = each(&e1, &e3, |a, b| a + b);
    let s2 = each(&e1, &e3, |a, b| a - b);
    let odd = [&x[1], &x[3], &x[5], &x[7]];
    let d0 = mix(odd, [C1, C3, C5, C7]);
    let d1 = mix(odd, [C3, -C7, -C1, -C5]);
    let d2 = mix(odd, [C5, -C1, C7, C3]);
    let d3 = mix(odd, [C7, -C5, C3, -C1]);
    let add = |a, b| each(a, b, |a, b| a + b);
    let sub = |a, b| each(a, b, |a, b| a - b);
    [
        add(&s0, &d0),
        add(&s1, &d1),
        add(&s2, &d2),
        add(&s3, &d3),
        sub(&s3, &d3),
        sub(&s2, &d2),
        sub(&s1, &d1),
        sub(&s0, &d0),
    ]
}

/// Returns the transform of a block: frequencies, in units of the last plane.
pub(crate) fn forward(samples: &[u8], stride: usize) -> Block {
    let mut block = [[0.0; 8]; 8];
    for (y, row) in block.iter_mut().enumerate() {
        let samples: &[u8; 8] = samples[y * stride..][..8].try_into().expect("eight of them");
        for x in 0..8 {
            row[x] = (f32::from(samples[x]) - 128.0) * UNITS;
        }
    }
    // Rows of the result are columns of frequencies until it is turned back.
    transpose(&forward_columns(&transpose(&forward_columns(&block))))
}

/// Writes the samples of a block of frequencies, in units of the last plane.
pub(crate) fn inverse(block: &Block, samples: &mut [u8], stride: usize) {
    let columns = transpose(&inverse_columns(block));
    let rows = transpose(&inverse_columns(&columns));
    for (y, row) in rows.iter().enumerate() {
        let samples: &mut [u8; 8] =
            (&mut samples[y * stride..][..8]).try_into().expect("eight of them");
        for x in 0..8 {
            samples[x] = to_sample(row[x] * (1.0 / UNITS) + 128.0);
        }
    }
}

/// Rounds to a sample. The sum with 1.5 × 2^23 has the whole number in its low bits, which vector
/// units do where a checked conversion does not.
#[inline]
fn to_sample(value: f32) -> u8 {
    const MAGIC: f32 = 12_582_912.0;
    ((value.clamp(0.0, 255.0) + MAGIC).to_bits() & 0xFF) as u8
}

/// Returns sign and magnitude of a number, truncated towards zero.
#[inline]
pub(crate) fn magnitude(value: f32) -> u16 {
    // As above; the half makes rounding a truncation.
    const MAGIC: f32 = 8_388_608.0;
    let magnitude = (value.abs().min(4095.5) - 0.499_99).max(0.0);
    ((magnitude + MAGIC).to_bits() & 0xFFFF) as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_transform_is_the_cosine_transform() {
        use std::f64::consts::PI;
        let samples: Vec<u8> = (0..64).map(|i: u32| (i * i * 37 % 256) as u8).collect();
        let block = forward(&samples, 8);
        for (v, row) in block.iter().enumerate() {
            for (u, number) in row.iter().enumerate() {
                let mut sum = 0.0;
                for y in 0..8 {
                    for x in 0..8 {
                        let cos =
                            |n: usize, k: usize| ((2 * n + 1) as f64 * k as f64 * PI / 16.0).cos();
                        sum += (f64::from(samples[y * 8 + x]) - 128.0) * cos(x, u) * cos(y, v);
                    }
                }
                let norm = |k| if k == 0 { (0.125_f64).sqrt() } else { 0.5 };
                let expected = sum * norm(u) * norm(v) * f64::from(UNITS);
                assert!((f64::from(*number) - expected).abs() < 1e-2, "{v} {u}");
            }
        }
    }

    #[test]
    fn the_order_is_a_permutation() {
        let mut seen = [false; 64];
        for place in ZIGZAG {
            assert!(!std::mem::replace(&mut seen[usize::from(place)], true));
        }
    }

    #[test]
    fn magnitudes_are_truncated() {
        for (value, expected) in
            [(0.0, 0), (0.99, 0), (1.01, 1), (-1.5, 1), (-2.0, 2), (100.0, 100), (9e9, 4095)]
        {
            assert_eq!(magnitude(value), expected, "{value}");
        }
    }

    proptest! {
        #[test]
        fn samples_come_back(samples in prop::collection::vec(any::<u8>(), 64)) {
            let mut back = [0; 64];
            inverse(&forward(&samples, 8), &mut back, 8);
            prop_assert_eq!(back.as_slice(), samples.as_slice());
        }
    }
}
