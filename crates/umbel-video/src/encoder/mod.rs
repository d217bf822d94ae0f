//! From pictures to packets.
//!
//! Each frame goes through these steps:
//!
//! 1. [`change`] finds the macroblocks that have changed since they were last sent.
//! 2. Those are transformed, and [`rate`] estimates what each plane of them costs.
//! 3. [`plan`] chooses their start layers, and each layer's level.
//! 4. `emit` writes them: a layer's packet covers a *run* of blocks, and the packets of the next
//!    layer cover parts of that run. So a packet depends on one packet of each layer below.
//! 5. [`still`] fills what is left of each layer's bits with what stands still.
//!
//! ```text
//!   layer 0   [ Start: blocks 3 4 5 9 10 11 12 ][ Start: 13 17 18 … ]
//!   layer 1   [ Continue: 3 4 5 9 ][ Continue: 10 11 12 ][ Continue: 13 … ][ Start: 30 31 ]
//!   layer 2   [ 3 4 ][ 5 9 ][ 10 11 ][ 12 ] …                     [ Continue: 30 ][ 31 ]
//! ```
//!
//! # Rate control
//!
//! A layer has a token bucket that holds 0.25 s of its rate, at least a packet and a half. New
//! content takes from it first, up to the share that is kept for blocks that stand still and
//! coarse. Then those take what is left. Bytes are counted as written, with the headers on the
//! wire. A layer whose bits of one frame do not fill a good part of a packet sends every few
//! frames.

mod assemble;
mod change;
mod plan;
mod rate;
mod still;

use std::time::Duration;

use thiserror::Error;

use crate::canvas::{Canvas, Grid};
use crate::frame::{Frame, FrameRate, Size};
use crate::models::Models;
use crate::packet::{self, Kind, MAX_LAYERS, NOTHING, Segment, Sixteenths, plane_of};
use crate::planes::{self, Macroblock, PLANES};
use crate::range;
use assemble::Assembler;
use change::{Detector, Threshold};
use plan::{Fresh, Level};
use rate::{Budget, Cost};
use still::Standing;

/// Least length of a packet, in bytes: any block fits, at some plane.
pub const MIN_PACKET_LEN: usize = 256;

/// Most length of a packet, in bytes.
pub const MAX_PACKET_LEN: usize = 65_000;

/// Parameters of the coding of a stream.
#[derive(Debug, Clone)]
pub struct EncoderConfig {
    /// Bits a second of each layer by itself, base first; 1 to [`MAX_LAYERS`] of them. A layer of 0
    /// sends nothing.
    pub layer_bits_per_s: Vec<u64>,
    /// Most bytes of a packet, default 1,200.
    pub packet_len: usize,
    /// Bytes that a packet's headers on the wire add; they count in the layers' rates. Default 0.
    pub packet_overhead: usize,
    /// The time in which everything is repeated for those who join, or lost it. Default 4 s.
    pub refresh: Duration,
    /// Number that tells packets of this stream from those of others. Default 0.
    pub stream: u16,
}

impl Default for EncoderConfig {
    fn default() -> Self {
        Self {
            layer_bits_per_s: vec![250_000, 250_000, 500_000, 1_000_000],
            packet_len: 1200,
            packet_overhead: 0,
            refresh: Duration::from_secs(4),
            stream: 0,
        }
    }
}

/// Reason why a stream cannot be coded so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ConfigError {
    /// Too many layers, or none.
    #[error("{0} layers: 1 to {MAX_LAYERS} are supported")]
    Layers(usize),
    /// The number of layers cannot change.
    #[error("rates for {given} layers, where there are {layers}")]
    OtherLayers {
        /// Number that was given.
        given: usize,
        /// Number of layers.
        layers: usize,
    },
    /// A packet is too short or too long.
    #[error("packets of {0} bytes: {MIN_PACKET_LEN} to {MAX_PACKET_LEN} are supported")]
    PacketLen(usize),
}

/// Reason why a frame is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// It has another size than the stream.
    #[error("a frame of {}x{} in a stream of {}x{}",
        given.width(), given.height(), stream.width(), stream.height())]
    Size {
        /// The frame's.
        given: Size,
        /// The stream's.
        stream: Size,
    },
    /// Numbers must grow.
    #[error("frame {given} after frame {last}")]
    Number {
        /// The frame's number.
        given: u64,
        /// That of the frame before.
        last: u64,
    },
}

/// Loss that comes with a dropped packet, in the order in which to drop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Importance {
    /// Content that was sent before.
    Repeat,
    /// More planes of what stands still.
    Refinement,
    /// New content.
    Content,
}

/// A packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packet {
    /// Its layer, 0 is the base.
    pub layer: u8,
    /// The frame's number, as given to [`Encoder::encode`].
    pub frame: u64,
    /// Loss that comes with dropping it.
    pub importance: Importance,
    /// Bytes on the wire.
    pub bytes: Vec<u8>,
}

/// Share of a layer's bits for blocks that stand still, when most do and are coarse.
const STILL_SHARE: f32 = 0.4;

/// A level does not hold a block's newest content.
const STALE: u8 = u8::MAX;

/// Record of a macroblock: the parts that were sent.
#[derive(Debug, Clone)]
struct Block {
    macroblock: Macroblock,
    cost: Cost,
    /// Number of the frame of this content; none before there is any.
    version: Option<u64>,
    /// Number of the last frame in which it changed.
    changed: u64,
    /// Number of the last frame in which its content was sent in the base layer.
    in_base: u64,
    /// Planes from this one on are held at each level, or [`STALE`].
    held: [u8; MAX_LAYERS],
}

/// Codes frames in layers.
#[derive(Debug)]
pub struct Encoder {
    size: Size,
    rate: FrameRate,
    config: EncoderConfig,
    tag: u16,
    last: Option<u64>,
    current: Canvas,
    previous: Canvas,
    /// The sent content, as samples of the source.
    sent: Canvas,
    blocks: Vec<Block>,
    budgets: Vec<Budget>,
    detector: Detector,
    standing: Standing,
    fresh: Vec<Fresh>,
    coder: range::Encoder,
}

impl Encoder {
    /// Returns an encoder of frames of this size and rate.
    ///
    /// # Errors
    ///
    /// When the configuration has no layers, too many, or packets of an unsupported length.
    pub fn new(size: Size, rate: FrameRate, config: EncoderConfig) -> Result<Self, ConfigError> {
        let layers = config.layer_bits_per_s.len();
        if layers == 0 || layers > MAX_LAYERS {
            return Err(ConfigError::Layers(layers));
        }
        if !(MIN_PACKET_LEN..=MAX_PACKET_LEN).contains(&config.packet_len) {
            return Err(ConfigError::PacketLen(config.packet_len));
        }
        let grid = Grid::of(size);
        let canvas = Canvas::grey(grid);
        let packet_bits = (config.packet_len + config.packet_overhead) * 8;
        let budgets = config.layer_bits_per_s.iter();
        let budgets = budgets.map(|&bits_per_s| Budget::new(bits_per_s, rate, packet_bits));
        let block = Block {
            macroblock: Macroblock::GREY,
            cost: [0.0; PLANES as usize],
            version: None,
            changed: 0,
            in_base: 0,
            held: [STALE; MAX_LAYERS],
        };
        Ok(Self {
            size,
            rate,
            tag: packet::tag(config.stream, size),
            last: None,
            current: canvas.clone(),
            previous: canvas.clone(),
            sent: canvas,
            blocks: vec![block; grid.len()],
            budgets: budgets.collect(),
            detector: Detector::new(),
            standing: Standing::new(layers),
            fresh: Vec::new(),
            coder: range::Encoder::new(),
            config,
        })
    }

    /// Changes the layers' rates, from the next frame on.
    ///
    /// # Errors
    ///
    /// When there are more or fewer than layers.
    pub fn set_rates(&mut self, layer_bits_per_s: &[u64]) -> Result<(), ConfigError> {
        let (given, layers) = (layer_bits_per_s.len(), self.budgets.len());
        if given != layers {
            return Err(ConfigError::OtherLayers { given, layers });
        }
        let packet_bits = (self.config.packet_len + self.config.packet_overhead) * 8;
        for (budget, &bits_per_s) in self.budgets.iter_mut().zip(layer_bits_per_s) {
            budget.set_rate(bits_per_s, self.rate, packet_bits);
        }
        self.config.layer_bits_per_s = layer_bits_per_s.to_vec();
        Ok(())
    }

    /// Returns the estimate of the source's noise, a standard deviation in grey levels.
    pub fn noise(&self) -> f64 {
        self.detector.noise().into()
    }

    /// Codes a frame. Numbers are those of the frames of a source that never stalls: where it skips
    /// frames, so do the numbers.
    ///
    /// A frame's packets of a layer are at most what the layer sends in 0.25 s, or a packet and a
    /// half. On average they keep its rate. The host that paces them needs a queue of that length.
    ///
    /// # Errors
    ///
    /// When the frame has another size, or its number is not above that of the frame before.
    pub fn encode(&mut self, number: u64, frame: &Frame) -> Result<Vec<Packet>, EncodeError> {
        if frame.size() != self.size {
            return Err(EncodeError::Size { given: frame.size(), stream: self.size });
        }
        let elapsed = match self.last {
            Some(last) if number <= last => {
                return Err(EncodeError::Number { given: number, last });
            }
            Some(last) => number - last,
            None => 1,
        };
        std::mem::swap(&mut self.current, &mut self.previous);
        self.current.load(frame);
        let previous = self.last.is_some().then_some(&self.previous);
        let threshold = self.detector.observe(&self.current, previous);
        self.last = Some(number);
        for budget in &mut self.budgets {
            budget.earn(elapsed);
        }

        self.find_changes(number, threshold);
        let ready: Vec<bool> = (0..self.budgets.len()).map(|layer| self.is_ready(layer)).collect();
        let finest = self.finest();
        let kept = self.kept_for_still(number);
        let mut fresh = std::mem::take(&mut self.fresh);
        let macroblocks: Vec<Macroblock> = fresh
            .iter_mut()
            .map(|fresh| {
                let macroblock = self.current.analyse(fresh.address);
                fresh.cost = rate::cost(&macroblock.counts());
                macroblock
            })
            .collect();
        let levels =
            plan::plan(&mut fresh, self.blocks.len(), &self.budgets, &finest, &kept, &ready);
        let mut starts = vec![Vec::new(); self.budgets.len()];
        for (fresh, macroblock) in fresh.iter().zip(macroblocks) {
            self.blocks[fresh.address].changed = number;
            if let Some(start) = fresh.start {
                self.replace(fresh, macroblock, number);
                starts[usize::from(start)].push(fresh.address);
            }
        }
        self.fresh = fresh;

        let limit = self.config.packet_len;
        let mut assemblers: Vec<Assembler> = (0..self.budgets.len())
            .map(|layer| Assembler::new(layer as u8, self.tag, number, limit))
            .collect();
        for (layer, run) in starts.iter_mut().enumerate() {
            run.sort_unstable();
            self.emit(&mut assemblers, &levels, (layer, layer), run, NOTHING);
        }
        let overhead = self.config.packet_overhead;
        for ((budget, assembler), level) in self.budgets.iter_mut().zip(&assemblers).zip(&levels) {
            budget.learn(level.estimate, assembler.bits(overhead));
        }
        for (layer, assembler) in assemblers.iter_mut().enumerate() {
            if ready[layer] {
                self.stand_still(layer, number, assembler);
            }
        }
        let mut packets = Vec::new();
        for (budget, assembler) in self.budgets.iter_mut().zip(assemblers) {
            budget.spend(assembler.bits(overhead));
            packets.extend(assembler.finish());
        }
        Ok(packets)
    }

    /// Lists what has changed, most important first: what differs most, and has waited longest in
    /// the base layer.
    fn find_changes(&mut self, number: u64, threshold: Threshold) {
        self.fresh.clear();
        for (address, block) in self.blocks.iter().enumerate() {
            let change = match block.version {
                None => u32::MAX,
                Some(_) => threshold.change(&self.current, &self.sent, address),
            };
            if change > 0 {
                let waited = (number - block.in_base.min(number)).min(100) as f32;
                let importance = change as f32 * (1.0 + waited / 4.0);
                let cost = [0.0; PLANES as usize];
                self.fresh.push(Fresh { address, importance, cost, start: None });
            }
        }
        self.fresh.sort_by(|a, b| b.importance.total_cmp(&a.importance));
        // No layer takes more than its bits allow, at the least that a block takes.
        let bits: f32 = self.budgets.iter().map(|b| b.estimated_tokens().max(0.0)).sum();
        self.fresh.truncate((bits / rate::MEANS) as usize + 1);
    }

    /// Returns whether a layer has enough for a packet that is worth its header.
    fn is_ready(&self, layer: usize) -> bool {
        let budget = &self.budgets[layer];
        let worth = self.config.packet_len as f64 * 8.0 * 0.6;
        budget.tokens() > 0.0 && (budget.tokens() >= worth || budget.is_full())
    }

    /// Returns the plane, for each layer, below which new content need not go. It is that of what
    /// stands still, for that will be seen for longer; and that of noise.
    fn finest(&self) -> Vec<u8> {
        let noise = self.noise_plane();
        let few = self.blocks.len() / 32;
        let finest = |layer: usize| {
            let mut counts = [0_usize; PLANES as usize + 1];
            for block in &self.blocks {
                counts[usize::from(block.held[layer].min(PLANES))] += 1;
            }
            let mut above = 0;
            let front = counts.iter().rposition(|count| {
                above += count;
                above > few
            });
            noise.max((front.unwrap_or(0) as u8).saturating_sub(1))
        };
        (0..self.budgets.len()).map(finest).collect()
    }

    /// Returns which share of each layer's bits is for blocks that stand still: the larger, the
    /// more of them have planes missing.
    fn kept_for_still(&self, number: u64) -> Vec<f32> {
        let noise = self.noise_plane();
        let coarse = |layer: usize| {
            let still = self
                .blocks
                .iter()
                .filter(|block| block.version.is_some() && number - block.changed >= still::STILL);
            let coarse = still.filter(|block| block.held[layer] > noise + 2).count();
            STILL_SHARE * coarse as f32 / self.blocks.len() as f32
        };
        (0..self.budgets.len()).map(coarse).collect()
    }

    /// Returns the plane below which there is only noise.
    fn noise_plane(&self) -> u8 {
        let steps = self.detector.noise() * 4.0;
        if steps <= 1.0 { 0 } else { (steps.log2() - 0.2).ceil().clamp(0.0, 6.0) as u8 }
    }

    /// Takes new content in, of which nothing was sent yet.
    fn replace(&mut self, fresh: &Fresh, macroblock: Macroblock, number: u64) {
        let block = &mut self.blocks[fresh.address];
        let in_base = if fresh.start == Some(0) { number } else { block.in_base };
        *block = Block {
            macroblock,
            cost: fresh.cost,
            version: Some(number),
            changed: number,
            in_base,
            held: [STALE; MAX_LAYERS],
        };
        self.sent.copy(&self.current, fresh.address);
    }

    /// Writes new content that starts in a layer, in this layer and, run by run, in those above.
    fn emit(
        &mut self,
        assemblers: &mut [Assembler],
        levels: &[Level],
        (layer, start): (usize, usize),
        mut run: &[usize],
        from: Sixteenths,
    ) {
        let frame = self.last.unwrap_or(0);
        let Some(level) = levels.get(layer) else { return };
        let begins = layer == start;
        if !begins && level.to >= from {
            return self.emit(assemblers, levels, (layer + 1, start), run, from);
        }
        let mut to = level.to.min(from);
        while let (Some(&first), Some(&last)) = (run.first(), run.last()) {
            let Self { coder, blocks, .. } = self;
            let (mut adjacent, mut mean) = (true, [0; 3]);
            let segment = |count: usize| {
                let last = run.get(count.wrapping_sub(1)).copied().unwrap_or(last);
                let start = start as u8;
                let kind = if begins {
                    Kind::Start { restart: false, to }
                } else {
                    Kind::Continue { start, span: last - first, from, to }
                };
                Segment { kind, first, count }
            };
            let code = |coder: &mut range::Encoder, models: &mut Models, i: usize| {
                if i == 0 {
                    (adjacent, mean) = (true, [0; 3]);
                }
                let address = run[i];
                let macroblock = &mut blocks[address].macroblock;
                let plane = plane_of(from, address, frame);
                if begins {
                    if i > 0 {
                        planes::code_gap(coder, models, &mut adjacent, address - run[i - 1]);
                    }
                    planes::code_dc(coder, models, &mut mean, macroblock);
                }
                planes::code_planes(coder, models, macroblock, plane, plane_of(to, address, frame));
            };
            let importance = Importance::Content;
            let written = assemblers[layer].write(coder, importance, run.len(), segment, code);
            if written == 0 {
                // A single block that no packet holds goes less far.
                to += 16;
                if to >= from {
                    return;
                }
                continue;
            }
            let (part, rest) = run.split_at(written);
            for &address in part {
                let plane = plane_of(to, address, frame);
                self.blocks[address].held[layer..].fill(plane);
            }
            self.emit(assemblers, levels, (layer + 1, start), part, to);
            to = level.to.min(from);
            run = rest;
        }
    }
}
