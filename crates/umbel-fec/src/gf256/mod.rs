//! GF(2^8) as defined in [RFC 5510 §8.1], and kernels that combine many symbols at once.
//!
//! Both encoding and decoding reduce to one operation. It computes several *outputs*, each the sum
//! of the same *sources* times its own coefficients. A kernel takes a strip of a few vectors of
//! every source and holds the sums of several outputs for that strip in registers. Each byte of the
//! sources is therefore loaded once for several outputs, from the first-level cache after the first
//! time. The outputs are written once.

mod field;
#[cfg(target_arch = "aarch64")]
mod neon;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use std::fmt;
use std::sync::OnceLock;

pub(crate) use field::{EXP, LOG};
pub use field::{alpha_power, multiply};

/// A way of combining symbols that this processor supports.
///
/// Values come only from [`Kernel::available`] and [`Kernel::best`], so no value is unsupported.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(Isa);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Isa {
    /// `gf2p8affineqb` on 64 bytes at a time.
    #[cfg(target_arch = "x86_64")]
    Gfni512,
    /// `gf2p8affineqb` on 32 bytes at a time.
    #[cfg(target_arch = "x86_64")]
    Gfni256,
    /// `pshufb` on 32 bytes at a time: a look-up for each half of a byte.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// `tbl` on 16 bytes at a time: a look-up for each half of a byte.
    #[cfg(target_arch = "aarch64")]
    Neon,
    Scalar,
}

impl Kernel {
    /// Returns the kernels that this processor supports, the fastest first and the scalar one last.
    pub fn available() -> Vec<Kernel> {
        let mut kernels = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            let avx2 = is_x86_feature_detected!("avx2");
            let gfni = is_x86_feature_detected!("gfni");
            if gfni && is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
                kernels.push(Kernel(Isa::Gfni512));
            }
            if gfni && avx2 {
                kernels.push(Kernel(Isa::Gfni256));
            }
            if avx2 {
                kernels.push(Kernel(Isa::Avx2));
            }
        }
        #[cfg(target_arch = "aarch64")]
        if std::arch::is_aarch64_feature_detected!("neon") {
            kernels.push(Kernel(Isa::Neon));
        }
        kernels.push(Kernel(Isa::Scalar));
        kernels
    }

    /// Returns the fastest kernel that this processor supports. Features are detected once.
    pub fn best() -> Kernel {
        static BEST: OnceLock<Kernel> = OnceLock::new();
        *BEST.get_or_init(|| Kernel::available()[0])
    }

    /// Returns the name of the kernel, for tables and logs.
    pub fn name(self) -> &'static str {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Isa::Gfni512 => "gfni-512",
            #[cfg(target_arch = "x86_64")]
            Isa::Gfni256 => "gfni-256",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => "neon",
            Isa::Scalar => "scalar",
        }
    }

    /// Sets each output to the sum of the sources, each times its coefficient. The coefficients of
    /// an output are contiguous, one for each source.
    ///
    /// # Panics
    ///
    /// Panics if the sources and outputs differ in length, or if the number of coefficients is not
    /// that of outputs times sources. Callers have checked both.
    pub(crate) fn combine(self, coefficients: &[u8], sources: &[&[u8]], outputs: &mut [&mut [u8]]) {
        let Some(len) = outputs.first().map(|output| output.len()) else { return };
        assert_eq!(coefficients.len(), sources.len() * outputs.len());
        assert!(sources.iter().all(|source| source.len() == len));
        assert!(outputs.iter().all(|output| output.len() == len));
        if sources.is_empty() {
            return outputs.iter_mut().for_each(|output| output.fill(0));
        }
        match self.0 {
            // SAFETY (all three): `available` returned this kernel after detecting the processor's
            // features, and the lengths were checked above.
            #[cfg(target_arch = "x86_64")]
            Isa::Gfni512 if len >= x86::GFNI512_BYTES => {
                #[allow(unsafe_code)]
                unsafe {
                    x86::combine_gfni512(coefficients, sources, outputs);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Gfni512 | Isa::Gfni256 if len >= x86::GFNI256_BYTES => {
                #[allow(unsafe_code)]
                unsafe {
                    x86::combine_gfni256(coefficients, sources, outputs);
                }
            }
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if len >= x86::AVX2_BYTES => {
                #[allow(unsafe_code)]
                unsafe {
                    x86::combine_avx2(coefficients, sources, outputs);
                }
            }
            // SAFETY: as above.
            #[cfg(target_arch = "aarch64")]
            Isa::Neon if len >= neon::BYTES => {
                #[allow(unsafe_code)]
                unsafe {
                    neon::combine(coefficients, sources, outputs);
                }
            }
            _ => scalar::combine(coefficients, sources, outputs),
        }
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Covers `len` bytes with strips of `wide` vectors while they fit, then of one vector. Yields the
/// start of each strip and its number of vectors. The last strip may overlap bytes already covered,
/// which are then computed again.
///
/// `len` must be at least one vector.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn strips(len: usize, vector: usize, wide: usize) -> impl Iterator<Item = (usize, usize)> {
    debug_assert!(len >= vector);
    let step = vector * wide;
    let wide_end = len - len % step;
    let whole_end = len - len % vector;
    let tail = (whole_end < len).then(|| (len - vector, 1));
    (0..wide_end)
        .step_by(step)
        .map(move |start| (start, wide))
        .chain((wide_end..whole_end).step_by(vector).map(|start| (start, 1)))
        .chain(tail)
}

/// Divides `count` outputs into groups of at most `most`, as equal as possible. For 13 outputs, 5 +
/// 4 + 4 loads the sources as often as 6 + 6 + 1. Unlike that, it never loads them for a single
/// output.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
fn groups(count: usize, most: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let groups = count.div_ceil(most);
    (0..groups).map(move |group| group * count / groups..(group + 1) * count / groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns pseudo-random bytes, the same for the same seed.
    fn noise(len: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        (0..len)
            .map(|_| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                (state >> 24) as u8
            })
            .collect()
    }

    fn combined(
        kernel: Kernel,
        coefficients: &[u8],
        sources: &[&[u8]],
        rows: usize,
        len: usize,
        offset: usize,
    ) -> Vec<Vec<u8>> {
        let mut buffers = vec![vec![0xee; offset + len + 3]; rows];
        let mut outputs: Vec<&mut [u8]> =
            buffers.iter_mut().map(|buffer| &mut buffer[offset..offset + len]).collect();
        kernel.combine(coefficients, sources, &mut outputs);
        buffers
    }

    #[test]
    fn every_kernel_agrees_with_the_field_at_every_length_and_offset() {
        for kernel in Kernel::available() {
            for len in (0..=200).chain([255, 256, 257, 511, 512, 513, 1375, 1376]) {
                let (offset, count, rows) = (len % 7, 1 + len % 5, 1 + len % 9);
                let coefficients = noise(count * rows, len as u64 + 1);
                let data: Vec<Vec<u8>> =
                    (0..count).map(|i| noise(offset + i + len, (len * 31 + i) as u64)).collect();
                let sources: Vec<&[u8]> =
                    data.iter().enumerate().map(|(i, bytes)| &bytes[offset + i..]).collect();
                let outputs = combined(kernel, &coefficients, &sources, rows, len, offset);
                for (row, output) in coefficients.chunks(count).zip(outputs) {
                    let mut expected = vec![0xee; offset + len + 3];
                    for (at, byte) in expected[offset..offset + len].iter_mut().enumerate() {
                        *byte = (0..count).fold(0, |s, i| s ^ multiply(row[i], sources[i][at]));
                    }
                    assert_eq!(output, expected, "{kernel}, {len} bytes, {count} → {rows}");
                }
            }
        }
    }

    #[test]
    fn every_kernel_multiplies_every_pair() {
        let all: Vec<u8> = (0..=255).collect();
        for kernel in Kernel::available() {
            for c in 0..=255 {
                let output = combined(kernel, &[c], &[&all], 1, 256, 0);
                assert!((0..256).all(|x| output[0][x] == multiply(c, x as u8)), "{kernel} · {c}");
            }
        }
    }

    #[test]
    fn every_kernel_combines_a_whole_block() {
        let data = noise(255 * 100, 5);
        let sources: Vec<&[u8]> = data.chunks(100).collect();
        for rows in 1..=17 {
            let coefficients = noise(255 * rows, rows as u64);
            let scalar = combined(Kernel(Isa::Scalar), &coefficients, &sources, rows, 100, 0);
            for kernel in Kernel::available() {
                assert_eq!(combined(kernel, &coefficients, &sources, rows, 100, 0), scalar);
            }
        }
    }

    #[test]
    fn a_sum_of_nothing_is_zero() {
        for kernel in Kernel::available() {
            assert_eq!(combined(kernel, &[], &[], 2, 65, 0)[1][..65], [0; 65]);
        }
    }

    #[test]
    fn strips_cover_every_byte() {
        for vector in [16, 32, 64] {
            for len in vector..700 {
                let mut covered = vec![false; len];
                for (start, vectors) in strips(len, vector, 4) {
                    covered[start..start + vectors * vector].fill(true);
                }
                assert!(covered.iter().all(|&c| c), "{len} bytes by {vector}");
            }
        }
    }

    #[test]
    fn groups_are_as_equal_as_can_be() {
        let sizes = |count, most| groups(count, most).map(|g| g.len()).collect::<Vec<_>>();
        assert_eq!(sizes(13, 6), [4, 4, 5]);
        assert_eq!(sizes(6, 6), [6]);
        assert_eq!(sizes(0, 6), []);
        for count in 0..256 {
            assert_eq!(sizes(count, 6).iter().sum::<usize>(), count);
        }
    }
}
