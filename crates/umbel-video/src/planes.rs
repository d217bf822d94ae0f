//! A macroblock as bit planes, and how they are coded.
//!
//! A macroblock is 16×16 samples: four blocks of luma, one of each chroma. A block's 64 numbers are
//! held plane by plane, as masks of 64 bits, numbers in zigzag order from the lowest bit:
//!
//! ```text
//!  plane 11  ................  nothing yet          one mask each: which numbers have
//!        10  1...............  DC is significant    that bit in their magnitude
//!         9  01..1...........
//!         …                                         planes from..12 are known,
//!         0  1101.0111.1.11..                       from-1 down to `to` are coded
//!     sign   0...1...                               known once a number is significant
//! ```
//!
//! The mean colours are coded first, in steps of [`DC_STEP`], as differences from the macroblock
//! before. The remainder is the first number of its block. The first numbers of the four blocks of
//! luma are transformed once more (Haar), so that flat areas cost one number, not four.
//!
//! In a plane, a macroblock states whether any number of it becomes significant; then each block
//! does. Then each of six zones of frequencies does, until it is active. Then each number of active
//! zones does, by how many of its neighbours are significant. Signs and the bits of numbers that
//! are significant already follow.

use crate::models::{Models, class};
use crate::range::Coder;
use crate::transform::{self, Block, ZIGZAG};

/// Planes of a number: magnitudes are below 2^12 half grey levels.
pub(crate) const PLANES: u8 = 12;

/// Blocks of a macroblock: four of luma, two of chroma.
pub(crate) const BLOCKS: usize = 6;

/// Step of the mean colours, in half grey levels times the transform's 8 or 16.
const DC_STEP: i32 = 64;

/// Greatest magnitude of a mean colour, in steps.
const DC_MAX: i32 = 64;

/// Position of a decoded value within its known interval.
const RECONSTRUCTION: f32 = 0.44;

/// First number of each zone, and the end of the last.
const ZONES: [u32; 7] = [0, 1, 3, 6, 15, 28, 64];

const fn below(number: u32) -> u64 {
    if number == 64 { u64::MAX } else { (1 << number) - 1 }
}

const fn zone_mask(zone: usize) -> u64 {
    below(ZONES[zone + 1]) & !below(ZONES[zone])
}

const ZONE_MASKS: [u64; 6] =
    [zone_mask(0), zone_mask(1), zone_mask(2), zone_mask(3), zone_mask(4), zone_mask(5)];

/// The neighbours of each number in zigzag order; 64 where there is none.
const NEIGHBOURS: [[u8; 8]; 64] = {
    let mut order = [0_u8; 64];
    let mut i = 0;
    while i < 64 {
        order[ZIGZAG[i] as usize] = i as u8;
        i += 1;
    }
    let mut out = [[64_u8; 8]; 64];
    i = 0;
    while i < 64 {
        let (y, x) = (ZIGZAG[i] as i32 / 8, ZIGZAG[i] as i32 % 8);
        let mut n = 0;
        let mut at = 0;
        while at < 9 {
            let (v, u) = (y + at / 3 - 1, x + at % 3 - 1);
            if at != 4 && v >= 0 && v < 8 && u >= 0 && u < 8 {
                out[i][n] = order[(v * 8 + u) as usize];
                n += 1;
            }
            at += 1;
        }
        i += 1;
    }
    out
};

/// Decoded part of a macroblock.
#[derive(Debug, Clone)]
pub(crate) struct Macroblock {
    /// Masks by block and plane.
    bits: [[u64; PLANES as usize]; BLOCKS],
    /// Set of the negative numbers.
    signs: [u64; BLOCKS],
    /// Mean colours, in steps.
    dc: [i8; 3],
}

/// For each i, how many numbers of a macroblock have a magnitude of 2^i or more.
pub(crate) type Counts = [u16; PLANES as usize];

impl Macroblock {
    /// One of which nothing is known but that it is grey.
    pub(crate) const GREY: Self =
        Self { bits: [[0; PLANES as usize]; BLOCKS], signs: [0; BLOCKS], dc: [0; 3] };

    /// Returns the macroblock with these frequencies, blocks as in [`crate::canvas`].
    pub(crate) fn analyse(blocks: &mut [Block; BLOCKS]) -> Self {
        haar(blocks);
        let mut out = Self::GREY;
        for (component, block) in [0, 4, 5].into_iter().enumerate() {
            let mean = &mut blocks[block][0][0];
            let steps = (*mean / DC_STEP as f32).round().clamp(-DC_MAX as f32, DC_MAX as f32);
            out.dc[component] = steps as i8;
            *mean -= steps * DC_STEP as f32;
        }
        for ((block, bits), signs) in blocks.iter().zip(&mut out.bits).zip(&mut out.signs) {
            let (mut low, mut high, mut negative) = ([0_u8; 64], [0_u8; 64], [0_u8; 64]);
            let values = block.as_flattened();
            for i in 0..64 {
                let value = values[usize::from(ZIGZAG[i])];
                let magnitude = transform::magnitude(value);
                low[i] = magnitude as u8;
                high[i] = (magnitude >> 8) as u8;
                negative[i] = (value.to_bits() >> 31) as u8;
            }
            let planes = masks(&low);
            bits[..8].copy_from_slice(&planes);
            if high.iter().fold(0, |any, byte| any | byte) != 0 {
                bits[8..].copy_from_slice(&masks(&high)[..4]);
            }
            *signs = masks(&negative)[0] & bits.iter().fold(0, |any, plane| any | plane);
        }
        out
    }

    /// Returns how many numbers are of which magnitude.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = [0; PLANES as usize];
        for bits in &self.bits {
            let mut significant = 0;
            for (plane, count) in counts.iter_mut().enumerate().rev() {
                significant |= bits[plane];
                *count += significant.count_ones() as u16;
            }
        }
        counts
    }

    /// Forgets the planes below `plane`.
    pub(crate) fn truncate(&mut self, plane: u8) {
        for (bits, signs) in self.bits.iter_mut().zip(&mut self.signs) {
            bits[..usize::from(plane)].fill(0);
            *signs &= bits.iter().fold(0, |any, plane| any | plane);
        }
    }

    /// Returns the frequencies, as far as planes from `held` are known.
    pub(crate) fn synthesise(&self, held: u8) -> [Block; BLOCKS] {
        let mut blocks = [[[0.0; 8]; 8]; BLOCKS];
        let open = (1_u32 << held) as f32 * RECONSTRUCTION;
        for ((block, bits), signs) in blocks.iter_mut().zip(&self.bits).zip(&self.signs) {
            let values = block.as_flattened_mut();
            let mut left = bits.iter().fold(0, |any, plane| any | plane);
            while left != 0 {
                let i = left.trailing_zeros();
                left &= left - 1;
                let mut magnitude = 0;
                for (plane, mask) in bits.iter().enumerate() {
                    magnitude |= ((mask >> i & 1) as u32) << plane;
                }
                let value = magnitude as f32 + open;
                let sign = ((signs >> i & 1) as u32) << 31;
                values[usize::from(ZIGZAG[i as usize & 63])] =
                    f32::from_bits(value.to_bits() | sign);
            }
        }
        for (component, block) in [0, 4, 5].into_iter().enumerate() {
            blocks[block][0][0] += f32::from(self.dc[component]) * DC_STEP as f32;
        }
        haar(&mut blocks);
        blocks
    }
}

/// Transforms the first numbers of the four blocks of luma. It is its own inverse.
fn haar(blocks: &mut [Block; BLOCKS]) {
    let [a, b, c, d] = [0, 1, 2, 3].map(|i: usize| blocks[i][0][0]);
    blocks[0][0][0] = (a + b + c + d) * 0.5;
    blocks[1][0][0] = (a - b + c - d) * 0.5;
    blocks[2][0][0] = (a + b - c - d) * 0.5;
    blocks[3][0][0] = (a - b - c + d) * 0.5;
}

/// Returns for each bit of a byte which of the bytes have it.
fn masks(bytes: &[u8; 64]) -> [u64; 8] {
    let mut out = [0; 8];
    for (i, eight) in bytes.as_chunks::<8>().0.iter().enumerate() {
        let turned = transpose_bits(u64::from_le_bytes(*eight)).to_le_bytes();
        for (mask, byte) in out.iter_mut().zip(turned) {
            *mask |= u64::from(byte) << (8 * i);
        }
    }
    out
}

/// Transposes an 8×8 matrix of bits, in three exchanges of halves.
fn transpose_bits(x: u64) -> u64 {
    let exchange = |x: u64, shift: u32, mask: u64| {
        let t = (x ^ (x >> shift)) & mask;
        x ^ t ^ (t << shift)
    };
    let x = exchange(x, 7, 0x00AA_00AA_00AA_00AA);
    let x = exchange(x, 14, 0x0000_CCCC_0000_CCCC);
    exchange(x, 28, 0x0000_0000_F0F0_F0F0)
}

/// Codes the mean colours, as differences from those of the macroblock before.
pub(crate) fn code_dc<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    before: &mut [i32; 3],
    macroblock: &mut Macroblock,
) {
    let all = before.iter_mut().zip(&mut macroblock.dc).enumerate();
    for (component, (before, dc)) in all {
        let wanted = i32::from(*dc) - *before;
        let mut difference = 0;
        if coder.bit(&mut models.dc_changed[component], wanted != 0) {
            let length = &mut models.dc_length[usize::from(component > 0)];
            let size = coder.gamma(length, wanted.unsigned_abs()) as i32;
            difference = if coder.raw(1, u32::from(wanted < 0)) == 1 { -size } else { size };
        }
        *before = (*before + difference).clamp(-DC_MAX, DC_MAX);
        *dc = *before as i8;
    }
}

/// Codes planes `from - 1` down to `to`. When decoding, nothing below `from` may be set.
pub(crate) fn code_planes<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    macroblock: &mut Macroblock,
    from: u8,
    to: u8,
) {
    let mut known: [Known; BLOCKS] =
        std::array::from_fn(|block| Known::of(&macroblock.bits[block], usize::from(from)));
    for plane in (usize::from(to)..usize::from(from)).rev() {
        let active = known.iter().filter(|known| known.significant != 0).count();
        let any = known
            .iter()
            .zip(&macroblock.bits)
            .any(|(known, bits)| bits[plane] & !known.significant != 0);
        let any = coder.bit(&mut models.any[plane][active.div_ceil(2)], any);
        let mut before = false;
        for (block, known) in known.iter_mut().enumerate() {
            let chroma = usize::from(block >= 4);
            let given = macroblock.bits[block][plane];
            let mut new = 0;
            if any {
                let has = known.significant.count_ones();
                let has = usize::from(has > 0) + usize::from(has > 4);
                let model = &mut models.block[chroma][class(plane)][has][usize::from(before)];
                before = coder.bit(model, given & !known.significant != 0);
                if before {
                    let signs = &mut macroblock.signs[block];
                    new = code_new(coder, models, known, chroma, plane, given, signs);
                }
            }
            let old = code_old(coder, models, known, chroma, given);
            macroblock.bits[block][plane] = new | old;
            known.significant |= new;
            known.newest = new;
        }
    }
}

/// State of a block that both sides share, on the way down.
struct Known {
    significant: u64,
    /// Numbers that became significant in the plane above.
    newest: u64,
    /// Number of significant neighbours of each, with a margin for the outside.
    near: [u8; 65],
}

impl Known {
    fn of(bits: &[u64; PLANES as usize], from: usize) -> Self {
        let mut known = Self { significant: 0, newest: 0, near: [0; 65] };
        for &plane in bits[from..].iter().rev() {
            known.newest = plane & !known.significant;
            known.significant |= plane;
        }
        let mut left = known.significant;
        while left != 0 {
            known.mark(left.trailing_zeros());
            left &= left - 1;
        }
        known
    }

    #[inline]
    fn mark(&mut self, number: u32) {
        for neighbour in NEIGHBOURS[number as usize & 63] {
            let near = &mut self.near[usize::from(neighbour).min(64)];
            *near = near.wrapping_add(1);
        }
    }
}

/// Codes which numbers of a block become significant, with their signs.
#[inline]
fn code_new<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    known: &mut Known,
    chroma: usize,
    plane: usize,
    given: u64,
    signs: &mut u64,
) -> u64 {
    let mut new = 0;
    let low = usize::from(plane < 3);
    let mut before = false;
    for (zone, mask) in ZONE_MASKS.into_iter().enumerate() {
        let open = mask & !known.significant;
        let mut silent = false;
        if open == mask {
            let model = &mut models.zone[chroma][class(plane)][zone][usize::from(before)];
            // The last zone must have something if no other has.
            before = zone == 5 && new == 0 || coder.bit(model, given & open != 0);
            if !before {
                continue;
            }
            silent = true;
        } else {
            before = true;
        }
        let mut left = open;
        while left != 0 {
            let number = left.trailing_zeros();
            left &= left - 1;
            let near = usize::from(known.near[number as usize & 63]).min(5);
            let model = &mut models.number[chroma][zone][near][low];
            // An active zone has something: if nothing else, the last number.
            let last = silent && left == 0;
            if last || coder.bit(model, given >> number & 1 == 1) {
                silent = false;
                new |= 1 << number;
                let negative = coder.raw(1, (*signs >> number & 1) as u32);
                *signs = *signs & !(1 << number) | u64::from(negative) << number;
                known.mark(number);
            }
        }
    }
    new
}

/// Codes the bits of numbers that were significant before.
#[inline]
fn code_old<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    known: &Known,
    chroma: usize,
    given: u64,
) -> u64 {
    let mut old = 0;
    let mut left = known.significant;
    while left != 0 {
        let number = left.trailing_zeros();
        left &= left - 1;
        let value = given >> number & 1 == 1;
        let value = if known.newest >> number & 1 == 1 {
            let near = usize::from(known.near[number as usize & 63] > 1);
            coder.bit(&mut models.second[chroma][near], value)
        } else {
            coder.raw(1, u32::from(value)) == 1
        };
        old |= u64::from(value) << number;
    }
    old
}

/// Codes how far the next macroblock is from the last, at least 1.
pub(crate) fn code_gap<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    adjacent: &mut bool,
    gap: usize,
) -> usize {
    let model = &mut models.adjacent[usize::from(*adjacent)];
    *adjacent = !coder.bit(model, gap != 1);
    if *adjacent {
        1
    } else {
        coder.gamma(&mut models.gap, gap.wrapping_sub(1) as u32) as usize + 1
    }
}

/// Codes how many frames old a content is, at least 1; mostly as old as that before it.
pub(crate) fn code_age<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    before: &mut u32,
    age: u32,
) -> u32 {
    if coder.bit(&mut models.same_age, age != *before) {
        *before = coder.gamma(&mut models.age, age);
    }
    *before
}
