//! The objects of a layer, reassembled from their symbols.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;

use bytes::Bytes;
use umbel_fec::{Code, Partition, SymbolSet};
use umbel_wire::rlm::ObjectHead;
use umbel_wire::{Digest, Oti, Scheme, SmallBlockHeader, Toi};

use crate::Instant;
use crate::rlm::config::{HeldConfig, LossConfig};
use crate::rlm::drops::DropReason;

/// Number of objects that are remembered after their end, since late packets of them may come.
const ENDED: usize = 16;
/// Memory that a held symbol takes beside its bytes, about.
const SYMBOL_OVERHEAD: usize = 64;

/// Outcome of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It is whole, and its digest is right.
    Whole { toi: Toi, name: String, body: Bytes },
    /// Nothing more of it will come.
    Missing { toi: Toi, head: Option<ObjectHead>, held: Bytes, missing: Vec<Range<u64>> },
}

/// Reassembles the objects of a layer in bounded memory.
#[derive(Debug)]
pub(super) struct Objects {
    config: HeldConfig,
    loss: LossConfig,
    partial: BTreeMap<u32, Partial>,
    ended: VecDeque<u32>,
    bytes: usize,
}

/// An object of which something came.
#[derive(Debug)]
struct Partial {
    head: Option<ObjectHead>,
    blocks: BTreeMap<u32, Block>,
    bytes: usize,
    /// Time of its last packet.
    heard: Instant,
    /// Time at which a packet of a later object came.
    overtaken: Option<Instant>,
}

/// A source block of an object.
#[derive(Debug)]
struct Block {
    symbols: u8,
    state: BlockState,
}

#[derive(Debug)]
enum BlockState {
    /// Symbols by their IDs.
    Partial(BTreeMap<u8, Bytes>),
    /// Its bytes; the last symbol may be filled up with zeros.
    Whole(Bytes),
}

impl Objects {
    pub(super) fn new(config: HeldConfig, loss: LossConfig) -> Objects {
        let (partial, ended) = (BTreeMap::new(), VecDeque::new());
        Objects { config, loss, partial, ended, bytes: 0 }
    }

    /// Takes a packet; returns the object if it is whole now, or the one that had to make room.
    ///
    /// # Errors
    ///
    /// Returns the reason for which the packet is of no use.
    pub(super) fn insert(
        &mut self,
        now: Instant,
        header: &SmallBlockHeader,
        symbol: &[u8],
    ) -> Result<Option<Outcome>, DropReason> {
        let toi = header.toi.0;
        if self.ended.contains(&toi) {
            return Err(DropReason::TooLate);
        }
        let pushed_out = if self.partial.contains_key(&toi) { None } else { self.open(now, toi) };
        let room = self.config.object_bytes.saturating_sub(self.bytes);
        let Some(partial) = self.partial.get_mut(&toi) else { return Err(DropReason::OverLimit) };
        if symbol.len() + SYMBOL_OVERHEAD > room {
            return pushed_out.map(Some).ok_or(DropReason::OverLimit);
        }
        partial.heard = now;
        let before = partial.bytes;
        let taken = partial.insert(header, symbol);
        self.bytes = self.bytes + partial.bytes - before;
        if let Err(reason) = taken {
            return pushed_out.map(Some).ok_or(reason);
        }
        let whole = partial.is_whole();
        Ok(pushed_out.or_else(|| if whole { self.end(toi) } else { None }))
    }

    /// Returns whether an object has begun and not ended.
    pub(super) fn is_receiving(&self) -> bool {
        !self.partial.is_empty()
    }

    /// Gives up the objects of which nothing more will come. Returns the next of them.
    pub(super) fn poll_given_up(&mut self, now: Instant) -> Option<Outcome> {
        let due = self.partial.iter().find(|(_, partial)| self.due(partial) <= now);
        let toi = due.map(|(&toi, _)| toi)?;
        self.end(toi)
    }

    /// Gives up all objects. Returns the next of them.
    pub(super) fn poll_left(&mut self) -> Option<Outcome> {
        let toi = *self.partial.first_key_value()?.0;
        self.end(toi)
    }

    /// Returns the time at which the next object is given up.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.partial.values().map(|partial| self.due(partial)).min()
    }

    fn due(&self, partial: &Partial) -> Instant {
        let silent = partial.heard + self.config.object_patience;
        let overtaken = partial.overtaken.map(|since| since + self.loss.reorder_time);
        overtaken.map_or(silent, |overtaken| silent.min(overtaken))
    }

    /// Makes room for another object, which overtakes the earlier ones. Returns the one that had to
    /// go.
    fn open(&mut self, now: Instant, toi: u32) -> Option<Outcome> {
        let is_earlier = |other: u32| (other.wrapping_sub(toi) as i32) < 0;
        for (_, partial) in self.partial.iter_mut().filter(|&(&other, _)| is_earlier(other)) {
            partial.overtaken.get_or_insert(now);
        }
        let full = self.partial.len() >= self.config.objects.max(1);
        let oldest = self.partial.iter().min_by_key(|(_, partial)| partial.heard);
        let out = oldest.map(|(&toi, _)| toi).filter(|_| full);
        let out = out.and_then(|toi| self.end(toi));
        let (head, blocks) = (None, BTreeMap::new());
        self.partial.insert(toi, Partial { head, blocks, bytes: 0, heard: now, overtaken: None });
        out
    }

    /// Ends an object, whole or not.
    fn end(&mut self, toi: u32) -> Option<Outcome> {
        let partial = self.partial.remove(&toi)?;
        self.bytes -= partial.bytes;
        if self.ended.len() >= ENDED {
            self.ended.pop_front();
        }
        self.ended.push_back(toi);
        Some(partial.outcome(Toi(toi), self.config.object_bytes))
    }
}

impl Partial {
    fn insert(&mut self, header: &SmallBlockHeader, symbol: &[u8]) -> Result<(), DropReason> {
        if header.sbn == 0 {
            if self.head.is_some() {
                return Err(DropReason::Duplicate);
            }
            // With one source symbol, the repair symbols are its copies.
            let head = ObjectHead::parse(symbol).map_err(|_| DropReason::Malformed)?;
            self.head = Some(head);
            return Ok(());
        }
        let symbols = header.block_symbols;
        let block = self
            .blocks
            .entry(header.sbn)
            .or_insert_with(|| Block { symbols, state: BlockState::Partial(BTreeMap::new()) });
        if block.symbols != symbols {
            return Err(DropReason::Contradiction);
        }
        let BlockState::Partial(held) = &mut block.state else { return Err(DropReason::Duplicate) };
        if held.contains_key(&header.esi) {
            return Err(DropReason::Duplicate);
        }
        held.insert(header.esi, Bytes::copy_from_slice(symbol));
        self.bytes += symbol.len() + SYMBOL_OVERHEAD;
        if held.len() == usize::from(symbols) {
            let cost: usize = held.values().map(|symbol| symbol.len() + SYMBOL_OVERHEAD).sum();
            let whole = restore(symbols, held).unwrap_or_default();
            self.bytes = self.bytes - cost + whole.len();
            block.state = BlockState::Whole(whole);
        }
        Ok(())
    }

    /// Returns whether every block that the head tells of is whole.
    fn is_whole(&self) -> bool {
        self.partition().is_some_and(|partition| {
            (1..=partition.blocks()).all(|sbn| {
                let block = self.blocks.get(&sbn);
                block.is_some_and(|block| matches!(block.state, BlockState::Whole(_)))
            })
        })
    }

    fn partition(&self) -> Option<Partition> {
        Partition::new(&oti(self.head.as_ref()?)).ok()
    }

    /// Puts together what is there; at most `most` bytes.
    fn outcome(self, toi: Toi, most: usize) -> Outcome {
        let partition = self.partition();
        let Some((head, partition)) = self.head.clone().zip(partition) else {
            let (held, missing) = (Bytes::new(), Vec::new());
            return Outcome::Missing { toi, head: self.head, held, missing };
        };
        if head.len > most as u64 {
            let (held, missing) = (Bytes::new(), all(head.len));
            return Outcome::Missing { toi, head: Some(head), held, missing };
        }
        let mut body = vec![0; head.len as usize];
        let mut missing: Vec<Range<u64>> = Vec::new();
        let mut lacks = |range: Range<u64>| match missing.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => missing.push(range),
        };
        for sbn in 0..partition.blocks() {
            let block = self.blocks.get(&(sbn + 1));
            for esi in 0..partition.block_symbols(sbn) {
                let range = partition.symbol_range(sbn, esi);
                let symbol = block.and_then(|block| block.symbol(esi, head.symbol_len.into()));
                let place = &mut body[range.start as usize..range.end as usize];
                match symbol.and_then(|symbol| symbol.get(..place.len())) {
                    Some(symbol) => place.copy_from_slice(symbol),
                    None => lacks(range),
                }
            }
        }
        let body = Bytes::from(body);
        if !missing.is_empty() {
            return Outcome::Missing { toi, head: Some(head), held: body, missing };
        }
        if Digest(*blake3::hash(&body).as_bytes()) != head.digest {
            let missing = all(head.len);
            return Outcome::Missing { toi, head: Some(head), held: body, missing };
        }
        Outcome::Whole { toi, name: head.name, body }
    }
}

impl Block {
    /// Returns a source symbol, if it is there.
    fn symbol(&self, esi: u32, symbol_len: usize) -> Option<&[u8]> {
        match &self.state {
            BlockState::Partial(held) => {
                held.get(&u8::try_from(esi).ok()?).map(|symbol| &symbol[..])
            }
            BlockState::Whole(bytes) => bytes.get(esi as usize * symbol_len..),
        }
    }
}

/// Returns the parameters by which the content of an object is split.
pub(in crate::rlm) fn oti(head: &ObjectHead) -> Oti {
    Oti {
        scheme: Scheme::ReedSolomon,
        object_len: head.len,
        symbol_len: head.symbol_len,
        max_block_symbols: head.block_symbols.into(),
        max_encoding_symbols: 255,
    }
}

fn all(len: u64) -> Vec<Range<u64>> {
    if len == 0 { Vec::new() } else { std::iter::once(0..len).collect() }
}

/// Returns the bytes of a block of which enough symbols are held, or `None` if they contradict each
/// other. Only the last source symbol may be shorter than the others.
fn restore(symbols: u8, held: &BTreeMap<u8, Bytes>) -> Option<Bytes> {
    let last = symbols.checked_sub(1)?;
    let len = held.values().map(Bytes::len).max().filter(|&len| len > 0)?;
    let mut block = vec![0; len * usize::from(symbols)];
    let mut present = SymbolSet::new(symbols.into());
    let mut repairs: Vec<(u32, &[u8])> = Vec::new();
    for (&esi, symbol) in held {
        if esi > last {
            repairs.push((esi.into(), symbol));
        } else if symbol.len() == len || esi == last {
            block[usize::from(esi) * len..][..symbol.len()].copy_from_slice(symbol);
            present.insert(esi.into());
        } else {
            return None;
        }
    }
    let code = Code::new(Scheme::ReedSolomon);
    code.restore(symbols.into(), len, &mut block, &present, &repairs).ok()?;
    Some(block.into())
}
