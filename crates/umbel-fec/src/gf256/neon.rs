//! The kernel for 64-bit ARM: like the AVX2 one, with 16-byte vectors and more registers.

use std::arch::aarch64::{
    uint8x16_t, vandq_u8, vdupq_n_u8, veorq_u8, vld1q_u8, vqtbl1q_u8, vshrq_n_u8, vst1q_u8,
};
use std::array;

use super::field::NIBBLES;
use super::{groups, strips};

/// Bytes of a vector, and the minimum length of a symbol.
pub(super) const BYTES: usize = 16;
/// Vectors of a wide strip.
const WIDE: usize = 4;
/// Maximum number of outputs of a tile.
const MOST_ROWS: usize = 4;

/// Sets each output to the sum of the sources, each times its coefficient.
///
/// # Safety
///
/// The processor must have NEON. All sources and outputs must be equally long and at least one
/// vector long. There must be a coefficient for each pair of them.
#[allow(unsafe_code)]
#[target_feature(enable = "neon")]
pub(super) unsafe fn combine(coefficients: &[u8], sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
    let len = outputs.first().map_or(0, |output| output.len());
    for (start, vectors) in strips(len, BYTES, WIDE) {
        for group in groups(outputs.len(), MOST_ROWS) {
            let rows = &coefficients[group.start * sources.len()..];
            let outputs = &mut outputs[group];
            // SAFETY: the caller's promise; `strips` stays within `len`, and the tile has as many
            // rows as the group.
            unsafe {
                match (outputs.len(), vectors) {
                    (1, 1) => tile::<1, 1>(rows, sources, outputs, start),
                    (2, 1) => tile::<2, 1>(rows, sources, outputs, start),
                    (3, 1) => tile::<3, 1>(rows, sources, outputs, start),
                    (4, 1) => tile::<4, 1>(rows, sources, outputs, start),
                    (1, _) => tile::<1, WIDE>(rows, sources, outputs, start),
                    (2, _) => tile::<2, WIDE>(rows, sources, outputs, start),
                    (3, _) => tile::<3, WIDE>(rows, sources, outputs, start),
                    (4, _) => tile::<4, WIDE>(rows, sources, outputs, start),
                    _ => unreachable!("a group has 1 to {MOST_ROWS} outputs"),
                }
            }
        }
    }
}

/// # Safety
///
/// As for [`combine`]; there must be at least `ROWS` outputs and rows of coefficients, and the
/// strip must end within the symbols.
#[allow(unsafe_code)]
#[target_feature(enable = "neon")]
unsafe fn tile<const ROWS: usize, const VECTORS: usize>(
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    start: usize,
) {
    let mask = vdupq_n_u8(15);
    let mut sums = [[vdupq_n_u8(0); VECTORS]; ROWS];
    for (i, source) in sources.iter().enumerate() {
        let halves: [(uint8x16_t, uint8x16_t); VECTORS] = array::from_fn(|v| {
            // SAFETY: the strip ends within the source.
            let x = unsafe { vld1q_u8(source.as_ptr().add(start + v * BYTES)) };
            (vandq_u8(x, mask), vshrq_n_u8::<4>(x))
        });
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: there are `ROWS` rows of `sources.len()` coefficients.
            let c = unsafe { *coefficients.get_unchecked(row * sources.len() + i) };
            let table = NIBBLES[c as usize].as_ptr();
            // SAFETY: a table has 32 bytes.
            let (low, high) = unsafe { (vld1q_u8(table), vld1q_u8(table.add(16))) };
            for (sum, (x_low, x_high)) in sums.iter_mut().zip(halves) {
                let product = veorq_u8(vqtbl1q_u8(low, x_low), vqtbl1q_u8(high, x_high));
                *sum = veorq_u8(*sum, product);
            }
        }
    }
    for (output, sums) in outputs.iter_mut().zip(sums) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: the strip ends within the output.
            unsafe { vst1q_u8(output.as_mut_ptr().add(start + v * BYTES), sum) };
        }
    }
}
