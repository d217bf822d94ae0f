//! Refinement of blocks that stand still, with the bits that changes left.
//!
//! In this order:
//!
//! 1. **Repeat**, base layer only: a window moves over the picture once in two thirds of the
//!    refresh time. Blocks that were not sent for a third of it start again. So a receiver that
//!    joins has something of every block within the refresh time.
//! 2. **Catch up**: blocks whose content started in a layer above start in this one.
//! 3. **Refine**: the next plane of the blocks of which the level holds least.
//! 4. **Repeat planes**: all that this layer holds more than the one below, block by block, for
//!    those who joined later or lost some. It has a part of the bits while there is something to
//!    refine, and all that is left otherwise. It goes round no faster than the refresh time.

use crate::models::Models;
use crate::packet::{Check, Kind, Segment};
use crate::planes::{self, PLANES};
use crate::range;

use super::assemble::Assembler;
use super::{Encoder, Importance, STALE, rate};

/// The plane down to which the base repeats everything in time.
const REPEATED: u8 = 7;

/// Frames after which a block is taken to stand still.
pub(super) const STILL: u64 = 3;

/// Blocks in a row that are refined together: those have their losses in common.
const GROUP: usize = 16;

/// Bits that a segment should have at least; flat blocks have several planes in one.
const WORTH: f32 = 300.0;

/// Bits below which nothing is begun.
const LEAST: f64 = 200.0;

/// Share of the base layer's bits that repeating takes at most, while much changes.
const MOST_REPEATS: f64 = 0.5;

/// Position of the passes over the picture.
#[derive(Debug)]
pub(super) struct Standing {
    /// The next block to be repeated, and the part of a block that is due.
    window: usize,
    due: f64,
    layers: Vec<Pointers>,
}

#[derive(Debug, Clone, Default)]
struct Pointers {
    catch_up: usize,
    refine: usize,
    repeat: usize,
    /// Number of blocks to pass before the next round may begin.
    pace: f64,
}

impl Standing {
    pub(super) fn new(layers: usize) -> Self {
        Self { window: 0, due: 0.0, layers: vec![Pointers::default(); layers] }
    }
}

impl Encoder {
    /// Fills what is left of a layer's bits.
    pub(super) fn stand_still(&mut self, layer: usize, number: u64, assembler: &mut Assembler) {
        if layer == 0 {
            self.repeat_window(number, assembler);
        }
        self.catch_up(layer, number, assembler);
        let refined_all = self.refine(layer, number, assembler);
        self.repeat_planes(layer, number, assembler, refined_all);
    }

    fn left(&self, layer: usize, assembler: &Assembler) -> f64 {
        self.budgets[layer].tokens() - assembler.bits(self.config.packet_overhead) as f64
    }

    /// Blocks that are passed in a frame, to pass all in the refresh time.
    fn pace(&self) -> f64 {
        let frames = (self.config.refresh.as_secs_f64() * self.rate.per_s()).max(1.0);
        self.blocks.len() as f64 / frames
    }

    fn is_still(&self, address: usize, number: u64) -> bool {
        let block = &self.blocks[address];
        block.version.is_some() && number - block.changed >= STILL
    }

    fn repeat_window(&mut self, number: u64, assembler: &mut Assembler) {
        let total = self.blocks.len();
        let pace = self.pace() * 1.5;
        self.standing.due = (self.standing.due + pace).min(total as f64);
        let third = (total as f64 / pace / 2.0) as u64;
        let most = self.budgets[0].bits_per_frame() * MOST_REPEATS;
        let before = assembler.bits(self.config.packet_overhead) as f64;
        let mut run = Vec::new();
        let mut bits = 0.0;
        while self.standing.due >= 1.0 && run.len() < total {
            let address = self.standing.window;
            let block = &self.blocks[address];
            let old = number - block.in_base.min(number) >= third;
            if block.version.is_some() && old && block.changed != number {
                bits += f64::from(rate::MEANS + rate::sum(&block.cost, PLANES, REPEATED));
                if bits > most.max(2000.0) || before + bits > self.budgets[0].tokens() + most {
                    break;
                }
                run.push(address);
            }
            self.standing.due -= 1.0;
            self.standing.window = (address + 1) % total;
        }
        run.sort_unstable();
        self.restart(0, number, &run, REPEATED, assembler);
    }

    fn catch_up(&mut self, layer: usize, number: u64, assembler: &mut Assembler) {
        let total = self.blocks.len();
        let mut left = self.left(layer, assembler) as f32;
        let first = self.standing.layers[layer].catch_up;
        let mut run = Vec::new();
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for i in 0..total {
            let address = (first + i) % total;
            let block = &self.blocks[address];
            if block.held[layer] != STALE || !self.is_still(address, number) {
                continue;
            }
            left -= rate::MEANS + rate::sum(&block.cost, PLANES, REPEATED);
            if left < 0.0 {
                break;
            }
            self.standing.layers[layer].catch_up = (address + 1) % total;
            if address >= first { &mut before } else { &mut after }.push(address);
        }
        run.append(&mut after);
        run.append(&mut before);
        self.restart(layer, number, &run, REPEATED, assembler);
    }

    /// Sends blocks as if they were new. A receiver that has them already has nothing to do.
    fn restart(
        &mut self,
        layer: usize,
        number: u64,
        mut run: &[usize],
        plane: u8,
        assembler: &mut Assembler,
    ) {
        let mut to = plane;
        while let Some(&first) = run.first() {
            let Self { coder, blocks, .. } = self;
            let (mut adjacent, mut age, mut mean) = (true, 0, [0; 3]);
            let segment =
                |count| Segment { kind: Kind::Start { restart: true, to: to * 16 }, first, count };
            let code = |coder: &mut range::Encoder, models: &mut Models, i: usize| {
                if i == 0 {
                    (adjacent, age, mean) = (true, 0, [0; 3]);
                } else {
                    planes::code_gap(coder, models, &mut adjacent, run[i] - run[i - 1]);
                }
                let block = &mut blocks[run[i]];
                let this = number - block.version.unwrap_or(number);
                planes::code_age(coder, models, &mut age, this as u32);
                planes::code_dc(coder, models, &mut mean, &mut block.macroblock);
                planes::code_planes(coder, models, &mut block.macroblock, PLANES, to);
            };
            let written = assembler.write(coder, Importance::Repeat, run.len(), segment, code);
            if written == 0 {
                to += 1;
                if to >= PLANES {
                    return;
                }
                continue;
            }
            let (part, rest) = run.split_at(written);
            for &address in part {
                let block = &mut self.blocks[address];
                if layer == 0 {
                    block.in_base = number;
                }
                for held in &mut block.held[layer..] {
                    *held = (*held).min(to);
                }
            }
            to = plane;
            run = rest;
        }
    }

    /// Sends the next planes of the blocks of which the level holds least, and returns whether
    /// there was nothing left to send.
    fn refine(&mut self, layer: usize, number: u64, assembler: &mut Assembler) -> bool {
        let finest = self.noise_plane();
        let total = self.blocks.len();
        let groups = total.div_ceil(GROUP);
        let reserve = (self.left(layer, assembler) * rate::REPEATS)
            .min(self.budgets[layer].repeats())
            .max(0.0);
        for plane in (finest + 1..=PLANES).rev() {
            let first = self.standing.layers[layer].refine;
            for i in 0..groups {
                let group = (first + i) % groups;
                let blocks = group * GROUP..total.min((group + 1) * GROUP);
                let run: Vec<usize> = blocks
                    .filter(|&address| {
                        self.blocks[address].held[layer] == plane && self.is_still(address, number)
                    })
                    .collect();
                if run.is_empty() {
                    continue;
                }
                if self.left(layer, assembler) - reserve < LEAST {
                    self.standing.layers[layer].refine = group;
                    return false;
                }
                let mut to = plane - 1;
                while to > finest && self.cost(&run, plane, to) < WORTH {
                    to -= 1;
                }
                self.deepen(layer, &run, (plane, to), Importance::Refinement, assembler);
            }
        }
        true
    }

    fn cost(&self, run: &[usize], from: u8, to: u8) -> f32 {
        run.iter().map(|&address| rate::sum(&self.blocks[address].cost, from, to)).sum()
    }

    fn repeat_planes(
        &mut self,
        layer: usize,
        number: u64,
        assembler: &mut Assembler,
        refined_all: bool,
    ) {
        let total = self.blocks.len();
        let pace = self.pace();
        let pointers = &mut self.standing.layers[layer];
        pointers.pace = (pointers.pace + pace).min(total as f64);
        let before = assembler.bits(self.config.packet_overhead);
        while self.standing.layers[layer].pace >= GROUP as f64 {
            let spent = assembler.bits(self.config.packet_overhead) - before;
            let left = self.left(layer, assembler);
            let may = if refined_all {
                left
            } else {
                left.min(self.budgets[layer].repeats() - spent as f64)
            };
            if may < LEAST {
                break;
            }
            let first = self.standing.layers[layer].repeat;
            let end = total.min(first + GROUP);
            self.repeat_group(layer, number, first..end, assembler);
            let pointers = &mut self.standing.layers[layer];
            pointers.pace -= (end - first) as f64;
            pointers.repeat = if end == total { 0 } else { end };
        }
        let spent = assembler.bits(self.config.packet_overhead) - before;
        self.budgets[layer].spend_on_repeats(spent);
    }

    /// Sends all planes of a group that this level holds more than the one below.
    fn repeat_group(
        &mut self,
        layer: usize,
        number: u64,
        group: std::ops::Range<usize>,
        assembler: &mut Assembler,
    ) {
        let planes = |block: &super::Block| {
            let from = if layer == 0 { REPEATED } else { block.held[layer - 1] };
            (from, block.held[layer])
        };
        let mut done = Vec::new();
        for address in group.clone() {
            let levels = planes(&self.blocks[address]);
            if done.contains(&levels) || levels.0 == STALE || levels.1 >= levels.0 {
                continue;
            }
            done.push(levels);
            let run: Vec<usize> = group
                .clone()
                .filter(|&address| {
                    planes(&self.blocks[address]) == levels && self.is_still(address, number)
                })
                .collect();
            self.deepen(layer, &run, levels, Importance::Repeat, assembler);
        }
    }

    /// Sends planes of blocks whose planes from `from` on are held.
    fn deepen(
        &mut self,
        layer: usize,
        run: &[usize],
        (from, to): (u8, u8),
        importance: Importance,
        assembler: &mut Assembler,
    ) {
        let Some(&first) = run.first() else { return };
        let Self { coder, blocks, .. } = self;
        let mut check = Check::new();
        for &address in run {
            check.add(address, blocks[address].version.unwrap_or(0));
        }
        let kind = Kind::Refine { from, to, check: check.get() };
        let code = |coder: &mut range::Encoder, models: &mut Models, _: usize| {
            let mut adjacent = true;
            for pair in run.windows(2) {
                planes::code_gap(coder, models, &mut adjacent, pair[1] - pair[0]);
            }
            for &address in run {
                planes::code_planes(coder, models, &mut blocks[address].macroblock, from, to);
            }
        };
        let count = run.len();
        if assembler.write(coder, importance, 1, |_| Segment { kind, first, count }, code) == 1 {
            for &address in run {
                for held in &mut self.blocks[address].held[layer..] {
                    *held = (*held).min(to);
                }
            }
        } else if count > 1 {
            let (a, b) = run.split_at(count / 2);
            self.deepen(layer, a, (from, to), importance, assembler);
            self.deepen(layer, b, (from, to), importance, assembler);
        } else if from - to > 1 {
            let middle = from.midpoint(to);
            self.deepen(layer, run, (from, middle), importance, assembler);
            self.deepen(layer, run, (middle, to), importance, assembler);
        }
    }
}
