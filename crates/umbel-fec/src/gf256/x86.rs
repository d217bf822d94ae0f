//! Kernels for x86-64.
//!
//! Each kernel has a *tile* of `ROWS` outputs times `VECTORS` vectors of a strip. All sums of a
//! tile stay in registers while the kernel reads the sources. `combine` chooses the tiles.

use std::arch::x86_64::{
    __m256i, __m512i, _mm_loadu_si128, _mm256_and_si256, _mm256_broadcastsi128_si256,
    _mm256_gf2p8affine_epi64_epi8, _mm256_loadu_si256, _mm256_set1_epi8, _mm256_set1_epi64x,
    _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
    _mm256_xor_si256, _mm512_gf2p8affine_epi64_epi8, _mm512_loadu_si512, _mm512_set1_epi64,
    _mm512_setzero_si512, _mm512_storeu_si512, _mm512_xor_si512,
};
use std::array;

use super::field::{MATRICES, NIBBLES};
use super::{groups, strips};

/// Defines `combine_*` for a tile function. It covers all outputs with tiles, strip by strip.
macro_rules! combine {
    ($name:ident, $tile:ident, $features:literal, $bytes:expr, $wide:literal, $($rows:literal)*) => {
        /// Sets each output to the sum of the sources, each times its coefficient.
        ///
        /// # Safety
        ///
        /// The processor must have the features. All sources and outputs must be equally long and
        /// at least one vector long. There must be a coefficient for each pair of them.
        #[allow(unsafe_code)]
        #[target_feature(enable = $features)]
        pub(super) unsafe fn $name(
            coefficients: &[u8],
            sources: &[&[u8]],
            outputs: &mut [&mut [u8]],
        ) {
            const MOST_ROWS: usize = [$($rows),*].len();
            let len = outputs.first().map_or(0, |output| output.len());
            for (start, vectors) in strips(len, $bytes, $wide) {
                for group in groups(outputs.len(), MOST_ROWS) {
                    let rows = &coefficients[group.start * sources.len()..];
                    let outputs = &mut outputs[group];
                    // SAFETY: the caller's promise; `strips` stays within `len`, and the tile has
                    // as many rows as the group.
                    unsafe {
                        match (outputs.len(), vectors) {
                            $(
                                ($rows, 1) => $tile::<$rows, 1>(rows, sources, outputs, start),
                                ($rows, _) => $tile::<$rows, $wide>(rows, sources, outputs, start),
                            )*
                            _ => unreachable!("a group has 1 to {MOST_ROWS} outputs"),
                        }
                    }
                }
            }
        }
    };
}

/// Bytes of a vector, and the minimum length of a symbol.
pub(super) const GFNI512_BYTES: usize = 64;
/// Bytes of a vector, and the minimum length of a symbol.
pub(super) const GFNI256_BYTES: usize = 32;
/// Bytes of a vector, and the minimum length of a symbol.
pub(super) const AVX2_BYTES: usize = 32;

combine!(combine_gfni512, tile_gfni512, "avx512f,avx512bw,gfni", GFNI512_BYTES, 4, 1 2 3 4 5 6);
combine!(combine_gfni256, tile_gfni256, "avx2,gfni", GFNI256_BYTES, 2, 1 2 3 4 5 6);
combine!(combine_avx2, tile_avx2, "avx2", AVX2_BYTES, 2, 1 2 3 4);

/// # Safety
///
/// As for [`combine_gfni512`]; there must be at least `ROWS` outputs and rows of coefficients, and
/// the strip must end within the symbols.
#[allow(unsafe_code)]
#[target_feature(enable = "avx512f,avx512bw,gfni")]
unsafe fn tile_gfni512<const ROWS: usize, const VECTORS: usize>(
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    start: usize,
) {
    let mut sums = [[_mm512_setzero_si512(); VECTORS]; ROWS];
    for (i, source) in sources.iter().enumerate() {
        // SAFETY: the strip ends within the source.
        let x: [__m512i; VECTORS] = array::from_fn(|v| unsafe {
            _mm512_loadu_si512(source.as_ptr().add(start + v * GFNI512_BYTES).cast())
        });
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: there are `ROWS` rows of `sources.len()` coefficients.
            let c = unsafe { *coefficients.get_unchecked(row * sources.len() + i) };
            let matrix = _mm512_set1_epi64(MATRICES[c as usize] as i64);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = _mm512_xor_si512(*sum, _mm512_gf2p8affine_epi64_epi8::<0>(x, matrix));
            }
        }
    }
    for (output, sums) in outputs.iter_mut().zip(sums) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: the strip ends within the output.
            unsafe {
                let at = output.as_mut_ptr().add(start + v * GFNI512_BYTES);
                _mm512_storeu_si512(at.cast(), sum);
            }
        }
    }
}

/// # Safety
///
/// As for [`combine_gfni256`]; there must be at least `ROWS` outputs and rows of coefficients, and
/// the strip must end within the symbols.
#[allow(unsafe_code)]
#[target_feature(enable = "avx2,gfni")]
unsafe fn tile_gfni256<const ROWS: usize, const VECTORS: usize>(
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    start: usize,
) {
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; ROWS];
    for (i, source) in sources.iter().enumerate() {
        // SAFETY: the strip ends within the source.
        let x: [__m256i; VECTORS] = array::from_fn(|v| unsafe {
            _mm256_loadu_si256(source.as_ptr().add(start + v * GFNI256_BYTES).cast())
        });
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: there are `ROWS` rows of `sources.len()` coefficients.
            let c = unsafe { *coefficients.get_unchecked(row * sources.len() + i) };
            let matrix = _mm256_set1_epi64x(MATRICES[c as usize] as i64);
            for (sum, x) in sums.iter_mut().zip(x) {
                *sum = _mm256_xor_si256(*sum, _mm256_gf2p8affine_epi64_epi8::<0>(x, matrix));
            }
        }
    }
    for (output, sums) in outputs.iter_mut().zip(sums) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: the strip ends within the output.
            unsafe {
                let at = output.as_mut_ptr().add(start + v * GFNI256_BYTES);
                _mm256_storeu_si256(at.cast(), sum);
            }
        }
    }
}

/// # Safety
///
/// As for [`combine_avx2`]; there must be at least `ROWS` outputs and rows of coefficients, and
/// the strip must end within the symbols.
#[allow(unsafe_code)]
#[target_feature(enable = "avx2")]
unsafe fn tile_avx2<const ROWS: usize, const VECTORS: usize>(
    coefficients: &[u8],
    sources: &[&[u8]],
    outputs: &mut [&mut [u8]],
    start: usize,
) {
    let mask = _mm256_set1_epi8(15);
    let mut sums = [[_mm256_setzero_si256(); VECTORS]; ROWS];
    for (i, source) in sources.iter().enumerate() {
        let halves: [(__m256i, __m256i); VECTORS] = array::from_fn(|v| {
            // SAFETY: the strip ends within the source.
            let x =
                unsafe { _mm256_loadu_si256(source.as_ptr().add(start + v * AVX2_BYTES).cast()) };
            (_mm256_and_si256(x, mask), _mm256_and_si256(_mm256_srli_epi64::<4>(x), mask))
        });
        for (row, sums) in sums.iter_mut().enumerate() {
            // SAFETY: there are `ROWS` rows of `sources.len()` coefficients.
            let c = unsafe { *coefficients.get_unchecked(row * sources.len() + i) };
            let table = NIBBLES[c as usize].as_ptr();
            // SAFETY: a table has 32 bytes.
            let (low, high) = unsafe {
                (
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(table.cast())),
                    _mm256_broadcastsi128_si256(_mm_loadu_si128(table.add(16).cast())),
                )
            };
            for (sum, (x_low, x_high)) in sums.iter_mut().zip(halves) {
                let product = _mm256_xor_si256(
                    _mm256_shuffle_epi8(low, x_low),
                    _mm256_shuffle_epi8(high, x_high),
                );
                *sum = _mm256_xor_si256(*sum, product);
            }
        }
    }
    for (output, sums) in outputs.iter_mut().zip(sums) {
        for (v, sum) in sums.into_iter().enumerate() {
            // SAFETY: the strip ends within the output.
            unsafe {
                let at = output.as_mut_ptr().add(start + v * AVX2_BYTES);
                _mm256_storeu_si256(at.cast(), sum);
            }
        }
    }
}
