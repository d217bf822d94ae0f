//! Finds the macroblocks that have changed since they were last sent.
//!
//! A macroblock has changed when an 8×8 quarter of its luma, or its chroma, differs from what was
//! sent by more than noise does. The difference is in the mean of absolute differences, or in the
//! mean.
//!
//! Noise is estimated where there is least of anything else. The difference from the frame before
//! overestimates it where things move, the roughness of the picture where there is texture. The
//! estimate is the lower of the two, each taken from the quietest fifth of a sample. It rises only
//! where something stands still: where the differences of that fifth are alike, and no more than
//! its roughness explains.

use crate::canvas::Canvas;
use crate::planes::BLOCKS;

/// Blocks of luma of which noise is estimated: one in this number, others in each frame.
const SAMPLED: usize = 11;

/// Share of a sample that lies below the estimate: 1/5.
const QUIET: usize = 5;

/// Noise that is measured in two ways differs by no more than this factor.
const ALIKE: f32 = 1.35;

/// The most that a first frame, where nothing tells noise from texture, is taken for.
const FIRST: f32 = 2.0;

/// Strongest noise that is allowed for, as standard deviation in grey levels.
const MAX_NOISE: f32 = 6.0;

/// Share of a new estimate.
const FOLLOW: f32 = 0.2;

/// Mean absolute difference of two samples of noise, in standard deviations: 2/√π.
const DIFFERENCE: f32 = 1.128;

/// Mean absolute second difference of three samples of noise, in standard deviations: √6 √(2/π).
const ROUGHNESS: f32 = 1.954;

/// Finds changes.
#[derive(Debug)]
pub(super) struct Detector {
    noise: Option<f32>,
    turn: usize,
    temporal: Vec<u32>,
    spatial: Vec<u32>,
}

/// The least differences, in sums over 64 samples, that are changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Threshold {
    absolute: u32,
    mean: u32,
}

impl Detector {
    pub(super) const fn new() -> Self {
        Self { noise: None, turn: 0, temporal: Vec::new(), spatial: Vec::new() }
    }

    /// Returns the standard deviation of the noise, in grey levels.
    pub(super) fn noise(&self) -> f32 {
        self.noise.unwrap_or(0.0)
    }

    /// Estimates noise from a frame and the one before, and returns what is a change.
    pub(super) fn observe(&mut self, current: &Canvas, previous: Option<&Canvas>) -> Threshold {
        let stride = current.stride(0);
        let now = current.plane(0);
        let (wide, high) = (stride / 8, now.len() / stride / 8);
        self.turn = (self.turn + 4) % SAMPLED;
        self.temporal.clear();
        self.spatial.clear();
        for block in (self.turn % (wide * high)..wide * high).step_by(SAMPLED) {
            let start = block / wide * 8 * stride + block % wide * 8;
            if let Some(previous) = previous {
                let before = &previous.plane(0)[start..];
                self.temporal.push(difference(&now[start..], before, stride).0);
            }
            self.spatial.push(roughness(&now[start..], stride));
        }
        let spatial = quantile(&mut self.spatial, QUIET) / ROUGHNESS;
        self.noise = Some(if let Some(before) = self.noise {
            let temporal = quantile(&mut self.temporal, QUIET) / DIFFERENCE;
            let quietest = quantile(&mut self.temporal, QUIET * 4) / DIFFERENCE;
            let noise = spatial.min(temporal).min(MAX_NOISE);
            let is_still = temporal <= quietest * ALIKE && temporal <= spatial * ALIKE;
            let noise = if is_still { noise } else { noise.min(before) };
            before + (noise - before) * FOLLOW
        } else {
            spatial.min(FIRST)
        });
        let noise = self.noise();
        Threshold {
            absolute: ((0.8 + 1.35 * noise) * 64.0) as u32,
            mean: ((0.75 + 0.4 * noise) * 64.0) as u32,
        }
    }
}

impl Threshold {
    /// Returns by how much a macroblock differs from what was sent, in sums over 64 samples: 0 if
    /// it has not changed.
    pub(super) fn change(self, current: &Canvas, sent: &Canvas, address: usize) -> u32 {
        let mut most = 0;
        for block in 0..BLOCKS {
            let (plane, start) = current.block(address, block);
            let stride = current.stride(plane);
            let (absolute, mean) =
                difference(&current.plane(plane)[start..], &sent.plane(plane)[start..], stride);
            if absolute > self.absolute || mean > self.mean {
                most = most.max(absolute);
            }
        }
        most
    }
}

/// Returns the sum of absolute differences of two 8×8 blocks, and the difference of their sums.
#[inline]
fn difference(a: &[u8], b: &[u8], stride: usize) -> (u32, u32) {
    let (mut absolute, mut sum_a, mut sum_b) = (0, 0, 0);
    for y in 0..8 {
        let a: &[u8; 8] = a[y * stride..][..8].try_into().expect("eight of them");
        let b: &[u8; 8] = b[y * stride..][..8].try_into().expect("eight of them");
        for x in 0..8 {
            absolute += u32::from(a[x].abs_diff(b[x]));
            sum_a += u32::from(a[x]);
            sum_b += u32::from(b[x]);
        }
    }
    (absolute, sum_a.abs_diff(sum_b))
}

/// Returns the mean absolute second difference along the rows of an 8×8 block, times 64.
fn roughness(samples: &[u8], stride: usize) -> u32 {
    let mut sum = 0;
    for y in 0..8 {
        let row: &[u8; 8] = samples[y * stride..][..8].try_into().expect("eight of them");
        for x in 1..7 {
            let [left, middle, right] = [row[x - 1], row[x], row[x + 1]].map(i32::from);
            sum += (left - 2 * middle + right).unsigned_abs();
        }
    }
    sum * 8 / 6
}

/// Returns the mean difference that one in `part` of the blocks is below.
fn quantile(sums: &mut [u32], part: usize) -> f32 {
    let at = sums.len() / part;
    if sums.is_empty() { 0.0 } else { *sums.select_nth_unstable(at).1 as f32 / 64.0 }
}
