//! The reference kernel: one byte at a time, on any processor.

use super::field::NIBBLES;

/// Sets each output to the sum of the sources, each times its coefficient.
pub(super) fn combine(coefficients: &[u8], sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
    for (row, output) in coefficients.chunks_exact(sources.len()).zip(outputs) {
        output.fill(0);
        for (&coefficient, source) in row.iter().zip(sources) {
            let table = &NIBBLES[coefficient as usize];
            for (sum, &x) in output.iter_mut().zip(*source) {
                *sum ^= table[(x & 15) as usize] ^ table[16 + (x >> 4) as usize];
            }
        }
    }
}
