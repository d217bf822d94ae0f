//! Budget of bits, and estimates of what coding takes.
//!
//! Each layer has a token bucket. The bits of a macroblock are estimated from how many of its
//! numbers are of which magnitude. For each layer, a factor follows what it took.

use crate::frame::FrameRate;
use crate::planes::{Counts, PLANES};

/// A bucket holds what its layer may send in this time, in seconds.
const DEPTH_S: f64 = 0.25;

/// Packets that any bucket holds.
const DEPTH_PACKETS: f64 = 1.5;

/// Bits for the mean colours and the address of a macroblock.
pub(super) const MEANS: f32 = 12.0;

/// Bits for each plane in which nothing is new, for a number that becomes significant, and for one
/// that is.
const PLANE: f32 = 0.6;
const NEW: f32 = 5.5;
const OLD: f32 = 1.0;

/// The factor's limits and how fast it follows.
const FACTORS: (f32, f32) = (0.4, 2.5);
const FOLLOW: f32 = 0.15;

/// Bits that each plane of a macroblock will take.
pub(super) type Cost = [f32; PLANES as usize];

/// Estimates what each plane will take.
pub(super) fn cost(counts: &Counts) -> Cost {
    let mut above = 0;
    let mut cost = [0.0; PLANES as usize];
    for (cost, &count) in cost.iter_mut().zip(counts).rev() {
        *cost = PLANE + f32::from(count - above) * NEW + f32::from(above) * OLD;
        above = count;
    }
    cost
}

/// Returns what the planes from `to` up to `from` take.
pub(super) fn sum(cost: &Cost, from: u8, to: u8) -> f32 {
    cost[usize::from(to.min(from))..usize::from(from)].iter().sum()
}

/// A layer's bits.
#[derive(Debug)]
pub(super) struct Budget {
    bits_per_frame: f64,
    depth: f64,
    tokens: f64,
    /// Ratio of the bits taken to the bits estimated.
    factor: f32,
    /// The part of the tokens that is kept for repeating what was sent before.
    repeats: f64,
}

/// Share of a layer's bits for repeating, while there is new to send.
pub(super) const REPEATS: f64 = 0.15;

impl Budget {
    pub(super) fn new(bits_per_s: u64, rate: FrameRate, packet_bits: usize) -> Self {
        let mut budget =
            Self { bits_per_frame: 0.0, depth: 0.0, tokens: 0.0, factor: 1.0, repeats: 0.0 };
        budget.set_rate(bits_per_s, rate, packet_bits);
        budget.tokens = budget.depth / 2.0;
        budget
    }

    pub(super) fn set_rate(&mut self, bits_per_s: u64, rate: FrameRate, packet_bits: usize) {
        let bits_per_s = bits_per_s as f64;
        self.bits_per_frame = bits_per_s / rate.per_s();
        self.depth = if bits_per_s > 0.0 {
            (bits_per_s * DEPTH_S)
                .max(packet_bits as f64 * DEPTH_PACKETS)
                .max(self.bits_per_frame * 2.0)
        } else {
            0.0
        };
        self.tokens = self.tokens.min(self.depth);
    }

    /// Adds the bits of this number of frames.
    pub(super) fn earn(&mut self, frames: u64) {
        let earned = self.bits_per_frame * frames as f64;
        self.tokens = (self.tokens + earned).min(self.depth);
        let most = self.depth / 2.0;
        self.repeats = (self.repeats + earned * REPEATS).min(most);
    }

    pub(super) fn spend(&mut self, bits: usize) {
        self.tokens -= bits as f64;
    }

    pub(super) fn spend_on_repeats(&mut self, bits: usize) {
        self.repeats -= bits as f64;
    }

    pub(super) const fn tokens(&self) -> f64 {
        self.tokens
    }

    pub(super) const fn repeats(&self) -> f64 {
        self.repeats
    }

    pub(super) const fn bits_per_frame(&self) -> f64 {
        self.bits_per_frame
    }

    /// Returns whether waiting brings no more bits.
    pub(super) fn is_full(&self) -> bool {
        self.tokens >= self.depth - self.bits_per_frame
    }

    /// Returns the tokens in the units of estimates.
    pub(super) fn estimated_tokens(&self) -> f32 {
        self.tokens as f32 / self.factor
    }

    /// Learns from what an estimate came to.
    pub(super) fn learn(&mut self, estimate: f32, bits: usize) {
        // A few blocks say little: their packet's head is most of it.
        if estimate > 500.0 {
            let (least, most) = FACTORS;
            let seen = (bits as f32 / estimate).clamp(least, most);
            self.factor += (seen - self.factor) * FOLLOW;
        }
    }
}
