//! A layer of a source: what waits for its pace, and how it becomes packets.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::rlm::{SignedHeader, signed};
use umbel_wire::stream::LayerFec;
use umbel_wire::{Channel, EmitError, SmallBlockHeader, Toi, Tsi};

use super::object::Sending;
use crate::Instant;
use crate::rlm::api::LayerStats;
use crate::rlm::config::SourceConfig;
use crate::rlm::signing::Signing;
use crate::rlm::symbols::repairs_of_units;
use crate::timers::timers;

/// A packet's place in its block or object, and its symbol.
#[derive(Clone, Debug)]
pub(super) struct Symbol {
    pub(super) toi: Toi,
    pub(super) sbn: u32,
    pub(super) block_symbols: u8,
    pub(super) esi: u8,
    pub(super) body: Bytes,
    /// Whether it is a repair symbol.
    pub(super) repair: bool,
}

/// The header of a packet, signed or not.
#[derive(Debug)]
pub(super) enum Head {
    Plain([u8; SmallBlockHeader::LEN]),
    Signed([u8; SignedHeader::LEN]),
}

impl Head {
    /// Returns the length of a header in bytes.
    fn len(signed: bool) -> usize {
        if signed { SignedHeader::LEN } else { SmallBlockHeader::LEN }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            Head::Plain(bytes) => bytes,
            Head::Signed(bytes) => bytes,
        }
    }
}

timers! {
    /// Timers of a layer.
    enum Timer, Timers {
        /// When to close the open block, whether full or not.
        Close,
        /// When to drop the first unit of the queue, since it has waited too long.
        Drop,
    }
}

/// Units of the block that is being sent.
#[derive(Debug)]
struct OpenBlock {
    units: Vec<Bytes>,
    closes: Instant,
}

/// Queues of one layer.
#[derive(Debug)]
pub(super) struct Layer {
    number: u8,
    pub(super) channel: Channel,
    tsi: Tsi,
    fec: Option<LayerFec>,
    block_time: Duration,
    queue_units: usize,
    queue_time: Duration,
    /// Number of the layer's next packet, at most [`MAX_NUMBER`](signed::MAX_NUMBER).
    index: u64,
    sbn: u32,
    toi: u32,
    units: VecDeque<(Instant, Bytes)>,
    block: Option<OpenBlock>,
    repairs: VecDeque<Symbol>,
    objects: VecDeque<Sending>,
    object_bytes: usize,
    /// The next packet, which did not fit the last batch.
    next: Option<Symbol>,
    stats: LayerStats,
}

impl Layer {
    /// Creates the layer of this number, which is sent on this channel.
    pub(super) fn new(
        config: &SourceConfig,
        (number, channel): (u8, Channel),
        fec: Option<LayerFec>,
    ) -> Layer {
        Layer {
            number,
            channel,
            tsi: config.tsi,
            fec,
            block_time: config.block_time,
            queue_units: config.queue_units.max(1),
            queue_time: config.queue_time,
            index: 0,
            sbn: 0,
            toi: 0,
            units: VecDeque::new(),
            block: None,
            repairs: VecDeque::new(),
            objects: VecDeque::new(),
            object_bytes: 0,
            next: None,
            stats: LayerStats::default(),
        }
    }

    pub(super) fn stats(&self) -> LayerStats {
        let objects: usize = self.objects.iter().map(Sending::waiting).sum();
        let next = usize::from(self.next.is_some());
        LayerStats { waiting: self.units.len() + self.repairs.len() + objects + next, ..self.stats }
    }

    /// Queues a unit, for which the oldest one makes room.
    pub(super) fn push_unit(&mut self, now: Instant, body: Bytes) {
        if self.units.len() >= self.queue_units {
            self.units.pop_front();
            self.stats.dropped += 1;
        }
        self.units.push_back((now, body));
    }

    /// Returns the number of bytes of objects that wait.
    pub(super) fn object_bytes(&self) -> usize {
        self.object_bytes
    }

    /// Returns the number of the next object.
    pub(super) fn next_toi(&mut self) -> Toi {
        self.toi = match self.toi.wrapping_add(1) {
            0 => 1,
            toi if toi == Toi::PROBE.0 => 1,
            toi => toi,
        };
        Toi(self.toi)
    }

    /// Queues an object.
    pub(super) fn push_object(&mut self, object: Sending) {
        self.object_bytes += object.len();
        self.objects.push_back(object);
    }

    /// Returns whether a packet waits.
    pub(super) fn wants(&self) -> bool {
        self.next.is_some()
            || !self.repairs.is_empty()
            || !self.units.is_empty()
            || !self.objects.is_empty()
    }

    /// Returns the next packet if `admits` takes its length. It is signed as it leaves.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        signing: Option<&mut Signing>,
        admits: impl FnOnce(usize) -> bool,
    ) -> Option<(Head, Bytes)> {
        let symbol = self.next.take().or_else(|| self.next_symbol(now))?;
        let len = Head::len(signing.is_some()) + symbol.body.len();
        if !admits(len) {
            self.next = Some(symbol);
            return None;
        }
        let header = SmallBlockHeader {
            tsi: self.tsi,
            toi: symbol.toi,
            transmission: (now.as_nanos() / 1000) as u32,
            index: self.index as u32,
            stamp: None,
            sbn: symbol.sbn,
            block_symbols: symbol.block_symbols,
            esi: symbol.esi,
        };
        let turn = (self.index >> 32) as u16;
        self.index = (self.index + 1) & signed::MAX_NUMBER;
        self.stats.packets += 1;
        self.stats.bytes += len as u64;
        self.stats.repairs += u64::from(symbol.repair);
        let head = self.head(SignedHeader { header, turn }, signing, &symbol.body).ok()?;
        Some((head, symbol.body))
    }

    fn head(
        &self,
        header: SignedHeader,
        signing: Option<&mut Signing>,
        symbol: &Bytes,
    ) -> Result<Head, EmitError> {
        if let Some(signing) = signing {
            return Ok(Head::Signed(signing.head(self.number, &header, symbol)?));
        }
        let mut head = [0; SmallBlockHeader::LEN];
        header.header.emit(&mut head)?;
        Ok(Head::Plain(head))
    }

    /// Closes the open block if it has been open long enough, and drops what waited too long.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        let mut timers = self.timers();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Timer::Close => self.close_block(),
                Timer::Drop => self.drop_old_units(now),
            }
        }
    }

    fn drop_old_units(&mut self, now: Instant) {
        while let Some(&(since, _)) = self.units.front()
            && since + self.queue_time <= now
        {
            self.units.pop_front();
            self.stats.dropped += 1;
        }
    }

    /// Returns when there is something to do.
    fn timers(&self) -> Timers {
        let mut timers = Timers::default();
        timers.put(Timer::Close, self.block.as_ref().map(|block| block.closes));
        timers.put(Timer::Drop, self.units.front().map(|&(since, _)| since + self.queue_time));
        timers
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.timers().next()
    }

    /// Repairs come first, since they belong to what was sent before.
    fn next_symbol(&mut self, now: Instant) -> Option<Symbol> {
        self.repairs.pop_front().or_else(|| self.next_unit(now)).or_else(|| self.next_of_object())
    }

    fn next_unit(&mut self, now: Instant) -> Option<Symbol> {
        let (_, body) = self.units.pop_front()?;
        let symbols = self.fec.map_or(1, |fec| fec.source_symbols);
        let closes = now + self.block_time;
        let block = self.block.get_or_insert_with(|| OpenBlock { units: Vec::new(), closes });
        let symbol = Symbol {
            toi: Toi(0),
            sbn: self.sbn,
            block_symbols: symbols,
            esi: block.units.len() as u8,
            body: body.clone(),
            repair: false,
        };
        block.units.push(body);
        if block.units.len() >= usize::from(symbols) {
            self.close_block();
        }
        Some(symbol)
    }

    /// Makes the repairs of the open block, and ends it.
    fn close_block(&mut self) {
        let Some(block) = self.block.take() else { return };
        let sbn = self.sbn;
        self.sbn = sbn.wrapping_add(1);
        let Some(fec) = self.fec else { return };
        let symbols = block.units.len() as u8;
        let count = repair_count(fec, symbols);
        for (esi, body) in (symbols..).zip(repairs_of_units(&block.units, count)) {
            let (toi, repair) = (Toi(0), true);
            self.repairs.push_back(Symbol { toi, sbn, block_symbols: symbols, esi, body, repair });
        }
    }

    fn next_of_object(&mut self) -> Option<Symbol> {
        loop {
            let object = self.objects.front_mut()?;
            if let Some(symbol) = object.next(self.fec) {
                return Some(symbol);
            }
            self.object_bytes -= object.len();
            self.objects.pop_front();
        }
    }
}

/// Returns the number of repair symbols for a block of `symbols`.
pub(super) fn repair_count(fec: LayerFec, symbols: u8) -> u8 {
    let (k, r) = (u32::from(fec.source_symbols), u32::from(fec.repair_symbols));
    (r * u32::from(symbols)).div_ceil(k.max(1)).min(255 - u32::from(symbols)) as u8
}
