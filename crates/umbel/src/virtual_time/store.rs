//! A disk that keeps items, and can be slow, full or wrong.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::repository::receiver::Held;
use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_fec::{Code, Partition, SymbolSet};
use umbel_sim::random::{below, uniform};
use umbel_store::sink::{HeldBlock, SinkError, SinkEvent};
use umbel_wire::repository::ItemInfo;
use umbel_wire::{Digest, Toi};

use super::later::Later;
use crate::get::store::{Added, ItemStore};

/// A disk. Clones are the same disk: an engine, a host and the next run of the host share it.
#[derive(Clone, Debug)]
pub(super) struct Disk(Arc<Mutex<State>>, Later<SinkEvent>);

#[derive(Debug)]
struct State {
    /// Parts of incomplete items, by name and digest.
    parts: BTreeMap<(String, Digest), Parts>,
    /// Items under way.
    open: BTreeMap<Toi, ItemInfo>,
    /// Verified items.
    done: BTreeMap<String, Vec<u8>>,
    full: bool,
    faults: Faults,
    random: Xoshiro256PlusPlus,
}

/// Faults of a disk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    /// Share of the symbols that are altered before they are stored.
    pub(super) altered: f64,
    /// Longest time that decoding, verifying and syncing take.
    pub(super) slow: Duration,
}

#[derive(Debug, Default)]
struct Parts {
    symbols: BTreeMap<u32, BTreeMap<u32, Vec<u8>>>,
    blocks: BTreeMap<u32, Vec<u8>>,
}

impl Disk {
    pub(super) fn new(faults: Faults, random: Xoshiro256PlusPlus) -> Disk {
        let state = State {
            parts: BTreeMap::new(),
            open: BTreeMap::new(),
            done: BTreeMap::new(),
            full: false,
            faults,
            random,
        };
        Disk(Arc::new(Mutex::new(state)), Later::in_order())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the disk's events.
    pub(super) fn events(&self) -> &Later<SinkEvent> {
        &self.1
    }

    /// Sets whether the disk is full.
    pub(super) fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Makes the disk stop altering symbols.
    pub(super) fn heal(&self) {
        self.state().faults.altered = 0.0;
    }

    /// Returns a verified item.
    pub(super) fn verified(&self, name: &str) -> Option<Vec<u8>> {
        self.state().done.get(name).cloned()
    }

    fn tell(&self, state: &mut State, event: SinkEvent) {
        let slow = state.faults.slow.as_nanos() as u64;
        let after = Duration::from_nanos(below(&mut state.random, slow + 1));
        self.1.put(after, event);
    }

    /// Verifies an item if all its blocks are present.
    fn verify_if_whole(&self, state: &mut State, toi: Toi) {
        let Some(info) = state.open.get(&toi).cloned() else { return };
        let Ok(cut) = Partition::new(&info.oti) else { return };
        let parts = state.parts.entry((info.name.clone(), info.digest)).or_default();
        if parts.blocks.len() < cut.blocks() as usize {
            return;
        }
        let content: Vec<u8> = parts.blocks.values().flatten().copied().collect();
        if Digest(*blake3::hash(&content).as_bytes()) == info.digest {
            let size = content.len() as u64;
            state.parts.remove(&(info.name.clone(), info.digest));
            state.open.remove(&toi);
            state.done.insert(info.name.clone(), content);
            let path = info.name.clone().into();
            self.tell(state, SinkEvent::ItemDone { toi, name: info.name, path, size });
        } else {
            self.tell(state, SinkEvent::DigestMismatch { toi });
        }
    }
}

impl ItemStore for Disk {
    type Sink = Disk;

    fn add(&mut self, info: &ItemInfo) -> Result<Added, String> {
        let mut state = self.state();
        let same = |content: &Vec<u8>| *blake3::hash(content).as_bytes() == info.digest.0;
        if state.done.get(&info.name).is_some_and(same) {
            return Ok(Added::AlreadyThere);
        }
        state.open.insert(info.toi, info.clone());
        let parts = state.parts.entry((info.name.clone(), info.digest)).or_default();
        let mut held = Held::default();
        held.complete.extend(parts.blocks.keys().map(|&block| block..block + 1));
        let partial = parts.symbols.iter();
        held.partial.extend(partial.map(|(&block, esis)| (block, esis.keys().copied().collect())));
        self.verify_if_whole(&mut state, info.toi);
        Ok(Added::Parts(held, 0))
    }

    fn cancel(&mut self, toi: Toi) {
        self.state().open.remove(&toi);
    }

    fn check_blocks(&mut self, toi: Toi, digests: Vec<Digest>) {
        let mut state = self.state();
        let Some(info) = state.open.get(&toi).cloned() else { return };
        let parts = state.parts.entry((info.name.clone(), info.digest)).or_default();
        let was_whole = parts.blocks.len() >= digests.len();
        let is_right = |&(sbn, digest): &(u32, &Digest)| {
            let content = parts.blocks.get(&sbn);
            content.is_none_or(|content| blake3::hash(content).as_bytes() == &digest.0)
        };
        let all = (0..).zip(&digests);
        let blocks: Vec<u32> = all.filter(|it| !is_right(it)).map(|(sbn, _)| sbn).collect();
        for sbn in &blocks {
            parts.blocks.remove(sbn);
            parts.symbols.remove(sbn);
        }
        if blocks.is_empty() && !was_whole {
            return;
        }
        let event = if blocks.is_empty() {
            SinkEvent::ItemFailed { toi, error: SinkError::Inconsistent { name: info.name } }
        } else {
            SinkEvent::BlocksDropped { toi, blocks }
        };
        self.tell(&mut state, event);
    }

    fn may_hold_something(&self) -> bool {
        let state = self.state();
        !state.parts.is_empty() || !state.done.is_empty()
    }
}

impl SymbolSink for Disk {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let mut state = self.state();
        let Some(info) = state.open.get(&block.toi).cloned() else { return false };
        if state.full {
            return false;
        }
        let mut symbol = symbol.to_vec();
        let altered = state.faults.altered;
        if uniform(&mut state.random) < altered
            && let Some(byte) = symbol.first_mut()
        {
            *byte ^= 1;
        }
        symbol.resize(info.oti.symbol_len.into(), 0);
        let parts = state.parts.entry((info.name, info.digest)).or_default();
        // The symbol may be present, if the engine learned late that its block was dropped.
        parts.symbols.entry(block.sbn).or_default().insert(esi, symbol);
        true
    }

    fn restore(&mut self, block: BlockId) {
        let mut state = self.state();
        let Some(info) = state.open.get(&block.toi).cloned() else { return };
        let Ok(cut) = Partition::new(&info.oti) else { return };
        let parts = state.parts.entry((info.name.clone(), info.digest)).or_default();
        let Some(symbols) = parts.symbols.get(&block.sbn) else { return };
        let k = cut.block_symbols(block.sbn);
        if let Some(mut content) = decode(&info, k, symbols) {
            let range = cut.block_range(block.sbn);
            content.truncate((range.end - range.start) as usize);
            parts.symbols.remove(&block.sbn);
            parts.blocks.insert(block.sbn, content);
            self.tell(&mut state, SinkEvent::BlockRestored { block });
            self.verify_if_whole(&mut state, block.toi);
        } else {
            let held = HeldBlock::none(k);
            self.tell(&mut state, SinkEvent::RestoreFailed { block, held });
        }
    }

    fn rest(&mut self, _block: BlockId) {}

    fn forget(&mut self, block: BlockId) {
        let mut state = self.state();
        let Some(info) = state.open.get(&block.toi).cloned() else { return };
        if let Some(parts) = state.parts.get_mut(&(info.name, info.digest)) {
            parts.symbols.remove(&block.sbn);
        }
    }
}

/// Decodes the content of a block, with padding.
fn decode(info: &ItemInfo, k: u32, symbols: &BTreeMap<u32, Vec<u8>>) -> Option<Vec<u8>> {
    let len = usize::from(info.oti.symbol_len);
    let mut content = vec![0; k as usize * len];
    let mut present = SymbolSet::new(k);
    let mut repairs = Vec::new();
    for (&esi, symbol) in symbols {
        if esi < k {
            content[esi as usize * len..][..len].copy_from_slice(symbol);
            present.insert(esi);
        } else {
            repairs.push((esi, symbol.as_slice()));
        }
    }
    let code = Code::new(info.oti.scheme);
    code.restore(k, len, &mut content, &present, &repairs).ok().map(|_| content)
}
