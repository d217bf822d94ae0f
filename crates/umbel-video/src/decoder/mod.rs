//! From packets to pictures.

mod clock;
mod smooth;

use std::collections::BTreeMap;

use thiserror::Error;

use crate::canvas::{Canvas, Grid};
use crate::frame::{Frame, Size};
use crate::models::Models;
use crate::packet::{self, Check, Header, Kind, Segment, plane_of};
use crate::planes::{self, Macroblock, PLANES};
use crate::range;
use clock::Clock;
use smooth::Smoother;

/// Most bytes of packets that wait for those before them.
const MAX_WAITING: usize = 8 << 20;

/// Parameters of a decoder.
#[derive(Debug, Clone, Copy)]
pub struct DecoderConfig {
    /// Packets of other streams are refused.
    pub stream: u16,
    /// Frames for which a packet waits for packets of lower layers that are late, default 2. With
    /// 0 packets are decoded in the order in which they come.
    pub reorder_frames: u32,
}

impl Default for DecoderConfig {
    fn default() -> Self {
        Self { stream: 0, reorder_frames: 2 }
    }
}

/// Reason why a packet was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum PushError {
    /// It is not of this format.
    #[error("not a packet of this codec's version")]
    Format,
    /// It is of another stream, or a stream of another size.
    #[error("a packet of another stream")]
    OtherStream,
    /// It says that it is of another layer than the one that it came by.
    #[error("a packet of layer {0}")]
    OtherLayer(u8),
    /// Its frame is far from the others. When all packets are, they are believed.
    #[error("a packet of frame {0} is far from the others")]
    FarAway(u32),
}

/// Outcome of a pushed packet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that were accepted.
    pub packets: u64,
    /// Packets that were refused.
    pub refused: u64,
    /// Segments that were decoded.
    pub segments: u64,
    /// Segments that need what was lost.
    pub useless: u64,
    /// Packets and segments that no encoder makes.
    pub malformed: u64,
}

/// Held part of a macroblock.
#[derive(Debug, Clone)]
struct Held {
    macroblock: Macroblock,
    /// Number of the frame whose content it is; 0 before there is any.
    version: u64,
    /// Planes from this one on are known.
    plane: u8,
    /// The layer in which this content started.
    start: u8,
    /// Number of the last frame that said that this is what there is to see.
    confirmed: u64,
    /// It is to be drawn.
    dirty: bool,
}

/// Decodes packets of any layers, and keeps a picture.
#[derive(Debug)]
pub struct Decoder {
    config: DecoderConfig,
    tag: u16,
    blocks: Vec<Held>,
    clock: Clock,
    /// By frame, layer, order of arrival.
    waiting: BTreeMap<(u64, u8, u64), Vec<u8>>,
    waiting_len: usize,
    arrivals: u64,
    counts: Counts,
    grid: Grid,
    canvas: Canvas,
    smoother: Smoother,
    picture: Frame,
    addresses: Vec<usize>,
}

impl Decoder {
    /// Returns a decoder of pictures of this size, grey to begin with.
    pub fn new(size: Size, config: DecoderConfig) -> Self {
        let grid = Grid::of(size);
        let held = Held {
            macroblock: Macroblock::GREY,
            version: 0,
            plane: PLANES,
            start: 0,
            confirmed: 0,
            dirty: false,
        };
        Self {
            config,
            tag: packet::tag(config.stream, size),
            blocks: vec![held; grid.len()],
            clock: Clock::new(),
            waiting: BTreeMap::new(),
            waiting_len: 0,
            arrivals: 0,
            counts: Counts::default(),
            grid,
            canvas: Canvas::grey(grid),
            smoother: Smoother::new(grid),
            picture: Frame::grey(size),
            addresses: Vec::new(),
        }
    }

    /// Takes a packet that came by a layer. It is decoded once
    /// [`reorder_frames`](DecoderConfig::reorder_frames) later frames have begun.
    ///
    /// # Errors
    ///
    /// When it is refused. All other trouble is counted.
    pub fn push(&mut self, layer: u8, bytes: &[u8]) -> Result<(), PushError> {
        let result = self.accept(layer, bytes);
        match result {
            Ok(()) => self.counts.packets += 1,
            Err(_) => self.counts.refused += 1,
        }
        result
    }

    fn accept(&mut self, layer: u8, bytes: &[u8]) -> Result<(), PushError> {
        let (header, body) = Header::parse(bytes).ok_or(PushError::Format)?;
        if header.tag != self.tag {
            return Err(PushError::OtherStream);
        }
        if header.layer != layer {
            return Err(PushError::OtherLayer(header.layer));
        }
        let seen = self.clock.see(header.frame).ok_or(PushError::FarAway(header.frame))?;
        if seen.restarted {
            self.waiting.clear();
            self.waiting_len = 0;
        }
        let reorder = u64::from(self.config.reorder_frames);
        if seen.frame + reorder <= self.clock.newest() {
            // It is late, or nothing is waited for.
            self.decode(seen.frame, layer, body);
        } else {
            self.arrivals += 1;
            self.waiting_len += body.len();
            self.waiting.insert((seen.frame, layer, self.arrivals), body.to_vec());
        }
        while let Some(entry) = self.waiting.first_entry() {
            let due = entry.key().0 + reorder <= self.clock.newest();
            if !due && self.waiting_len <= MAX_WAITING {
                break;
            }
            let ((frame, layer, _), body) = entry.remove_entry();
            self.waiting_len -= body.len();
            self.decode(frame, layer, &body);
        }
        Ok(())
    }

    /// Decodes what waits for others: for when the source pauses.
    pub fn flush(&mut self) {
        self.waiting_len = 0;
        while let Some(((frame, layer, _), body)) = self.waiting.pop_first() {
            self.decode(frame, layer, &body);
        }
    }

    /// Returns the picture as it is now.
    pub fn picture(&mut self) -> &Frame {
        let mut rows = vec![false; self.grid.high];
        for (address, held) in self.blocks.iter_mut().enumerate() {
            if std::mem::take(&mut held.dirty) {
                self.canvas.draw(address, &held.macroblock, held.plane);
                rows[address / self.grid.wide] = true;
            }
        }
        if rows.contains(&true) {
            let Self { blocks, smoother, canvas, .. } = self;
            let shown = smoother.smooth(canvas, &rows, |address| blocks[address].plane);
            shown.store(&mut self.picture);
        }
        &self.picture
    }

    /// Returns which share of the picture was confirmed within the last `frames` frames, 0 to 1.
    /// With the refresh time, all of it is, but for what was lost.
    pub fn fresh_share(&self, frames: u64) -> f64 {
        let since = self.clock.newest().saturating_sub(frames);
        let fresh = self.blocks.iter().filter(|held| held.version > 0 && held.confirmed >= since);
        fresh.count() as f64 / self.blocks.len() as f64
    }

    /// Returns which share of the picture there is anything of, 0 to 1.
    pub fn known_share(&self) -> f64 {
        let known = self.blocks.iter().filter(|held| held.version > 0).count();
        known as f64 / self.blocks.len() as f64
    }

    /// Returns what became of what was pushed.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    fn decode(&mut self, frame: u64, layer: u8, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let Some((segment, body, rest)) = Segment::parse(bytes, self.blocks.len()) else {
                self.counts.malformed += 1;
                return;
            };
            bytes = rest;
            let mut coder = range::Decoder::new(body);
            let usable = match segment.kind {
                Kind::Start { restart, to } => {
                    self.start(&mut coder, &segment, frame, layer, restart, to)
                }
                Kind::Continue { start, span, from, to } => {
                    let levels = (from, to);
                    self.carry_on(&mut coder, &segment, frame, start, span, levels)
                }
                Kind::Refine { from, to, check } => {
                    self.refine(&mut coder, &segment, frame, (from, to), check)
                }
            };
            match usable {
                Some(true) => self.counts.segments += 1,
                Some(false) => self.counts.useless += 1,
                None => {
                    self.counts.malformed += 1;
                    return;
                }
            }
        }
    }

    /// Decodes a Start segment. `None`: no encoder makes it.
    fn start(
        &mut self,
        coder: &mut range::Decoder<'_>,
        segment: &Segment,
        frame: u64,
        layer: u8,
        restart: bool,
        to: packet::Sixteenths,
    ) -> Option<bool> {
        let mut models = Models::START;
        let (mut adjacent, mut age, mut mean) = (true, 0, [0; 3]);
        let mut address = segment.first;
        for i in 0..segment.count {
            if i > 0 {
                address += planes::code_gap(coder, &mut models, &mut adjacent, 0);
            }
            if address >= self.blocks.len() {
                return None;
            }
            if restart {
                planes::code_age(coder, &mut models, &mut age, 0);
            }
            let to = plane_of(to, address, frame);
            let mut macroblock = Macroblock::GREY;
            planes::code_dc(coder, &mut models, &mut mean, &mut macroblock);
            planes::code_planes(coder, &mut models, &mut macroblock, PLANES, to);
            if coder.is_exhausted() {
                return None;
            }
            let version = frame.saturating_sub(age.into());
            let held = &mut self.blocks[address];
            if version > held.version || version == held.version && to < held.plane {
                let confirmed = held.confirmed;
                let start = layer;
                *held = Held { macroblock, version, plane: to, start, confirmed, dirty: true };
            }
            if version >= held.version {
                held.confirmed = held.confirmed.max(frame);
            }
        }
        Some(true)
    }

    /// Decodes a Continue segment. False: what it continues was lost.
    fn carry_on(
        &mut self,
        coder: &mut range::Decoder<'_>,
        segment: &Segment,
        frame: u64,
        start: u8,
        span: usize,
        (from, to): (packet::Sixteenths, packet::Sixteenths),
    ) -> Option<bool> {
        self.addresses.clear();
        for address in segment.first..=segment.first + span {
            let held = &self.blocks[address];
            if held.version == frame && held.start == start {
                if held.plane > plane_of(from, address, frame) {
                    return Some(false);
                }
                self.addresses.push(address);
            }
        }
        if self.addresses.len() != segment.count {
            return Some(false);
        }
        let mut models = Models::START;
        for i in 0..segment.count {
            let address = self.addresses[i];
            let (from, to) = (plane_of(from, address, frame), plane_of(to, address, frame));
            self.deepen(coder, &mut models, address, (from, to), frame)?;
        }
        Some(true)
    }

    /// Decodes a Refine segment. False: it is about what is not held here.
    fn refine(
        &mut self,
        coder: &mut range::Decoder<'_>,
        segment: &Segment,
        frame: u64,
        levels: (u8, u8),
        check: u16,
    ) -> Option<bool> {
        let mut models = Models::START;
        let mut adjacent = true;
        let mut digest = Check::new();
        let mut address = segment.first;
        self.addresses.clear();
        for i in 0..segment.count {
            if i > 0 {
                address += planes::code_gap(coder, &mut models, &mut adjacent, 0);
            }
            let held = self.blocks.get(address)?;
            if held.version == 0 || held.plane > levels.0 {
                return Some(false);
            }
            digest.add(address, held.version);
            self.addresses.push(address);
        }
        if digest.get() != check {
            return Some(false);
        }
        for i in 0..segment.count {
            self.deepen(coder, &mut models, self.addresses[i], levels, frame)?;
        }
        Some(true)
    }

    /// Decodes further planes of a macroblock.
    fn deepen(
        &mut self,
        coder: &mut range::Decoder<'_>,
        models: &mut Models,
        address: usize,
        (from, to): (u8, u8),
        frame: u64,
    ) -> Option<()> {
        let held = &mut self.blocks[address];
        let mut macroblock = held.macroblock.clone();
        macroblock.truncate(from);
        planes::code_planes(coder, models, &mut macroblock, from, to);
        if coder.is_exhausted() {
            return None;
        }
        if to < held.plane {
            held.macroblock = macroblock;
            held.plane = to;
            held.dirty = true;
        }
        held.confirmed = held.confirmed.max(frame);
        Some(())
    }
}
