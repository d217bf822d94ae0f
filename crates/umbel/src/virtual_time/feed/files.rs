//! Files on both sides of a feed, in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use rand_core::Rng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::tmtp::BlockCount;
use umbel_fec::{Code, Partition, SymbolSet};
use umbel_sim::random::below;
use umbel_store::feed::{BlockShape, FileEvent, Layout, Manifest};
use umbel_store::sink::SinkEvent;
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::tmtp::BlockRun;
use umbel_wire::{Digest, Oti, Scheme, Toi};

use super::super::later::Later;
use crate::feed::recv::store::{FeedStore, Found, Input, Looked};
use crate::feed::send::host::Content;

/// The division of feeds into blocks in these tests.
pub(super) const SHAPE: BlockShape =
    BlockShape { symbol_len: 200, block_symbols: 8, sealed: false };

/// Files that are sent.
#[derive(Clone, Debug)]
pub(super) struct Files {
    pub(super) infos: Vec<ItemInfo>,
    contents: BTreeMap<Toi, Bytes>,
    manifest: Bytes,
    layout: Layout,
}

impl Files {
    /// Creates `count` files of up to 30 KB, one of them empty.
    pub(super) fn new(count: u32, random: &mut Xoshiro256PlusPlus) -> Files {
        let mut contents = BTreeMap::new();
        let mut infos = Vec::new();
        for number in 1..=count {
            let len = if number == 1 { 0 } else { below(random, 30_000) as usize };
            let mut content = vec![0; len];
            random.fill_bytes(&mut content);
            infos.push(ItemInfo {
                toi: Toi(number),
                name: format!("file-{number}"),
                digest: Digest(*blake3::hash(&content).as_bytes()),
                modified_ns: None,
                mode: None,
                kind: ItemKind::File,
                holes: None,
                media_type: String::new(),
                oti: Oti {
                    scheme: Scheme::ReedSolomon,
                    object_len: len as u64,
                    symbol_len: SHAPE.content_len(),
                    max_block_symbols: SHAPE.block_symbols.into(),
                    max_encoding_symbols: 255,
                },
            });
            contents.insert(Toi(number), Bytes::from(content));
        }
        let mut blocks = Vec::new();
        for info in &infos {
            let cut = Partition::new(&info.oti).unwrap();
            let ranges = (0..cut.blocks()).map(|sbn| cut.block_range(sbn));
            let content: &Bytes = &contents[&info.toi];
            blocks.extend(ranges.map(|range| {
                Digest(*blake3::hash(&content[range.start as usize..range.end as usize]).as_bytes())
            }));
        }
        let manifest = Manifest { items: infos.clone(), left_out: 0, blocks };
        let manifest: Bytes = manifest.emit().unwrap().into();
        let layout = Layout::new(SHAPE, manifest.len() as u64, &infos).unwrap();
        Files { infos, contents, manifest, layout }
    }

    /// Returns length, digest and number of blocks of the manifest.
    pub(super) fn manifest(&self) -> (u64, Digest, u32) {
        let digest = Digest(*blake3::hash(&self.manifest).as_bytes());
        (self.manifest.len() as u64, digest, self.layout.manifest().blocks())
    }

    pub(super) fn content(&self, toi: Toi) -> &Bytes {
        &self.contents[&toi]
    }

    /// Returns a block's source symbols, padded, and their number.
    fn block(&self, number: u32) -> Option<(Vec<u8>, u32)> {
        let (content, cut, sbn) = if number < self.layout.manifest().blocks() {
            (&self.manifest, self.layout.manifest(), number)
        } else {
            let id = self.layout.locate(number)?;
            (self.contents.get(&id.toi)?, self.layout.item(id.toi)?.1, id.sbn)
        };
        let (range, k) = (cut.block_range(sbn), cut.block_symbols(sbn));
        let mut block = content[range.start as usize..range.end as usize].to_vec();
        block.resize(k as usize * usize::from(SHAPE.symbol_len), 0);
        Some((block, k))
    }

    fn runs(&self, blocks: Range<u32>) -> Vec<BlockCount> {
        let symbols = |number| self.block(number).map_or(0, |(_, k)| k as u8);
        blocks.map(|number| BlockCount { count: 1, symbols: symbols(number) }).collect()
    }
}

impl Content for Files {
    type Symbols = Files;

    fn files(&self) -> u64 {
        self.infos.len() as u64
    }

    fn bytes(&self) -> u64 {
        self.infos.iter().map(|info| info.oti.object_len).sum()
    }

    fn bytes_below(&self, block: u32, _sent: u32) -> u64 {
        let content = self.layout.manifest().blocks()..block;
        let bytes_of = |block| {
            let id = self.layout.locate(block)?;
            let range = self.layout.item(id.toi)?.1.block_range(id.sbn);
            Some(range.end - range.start)
        };
        content.filter_map(bytes_of).sum()
    }

    fn head_blocks(&self) -> Vec<BlockCount> {
        self.runs(0..self.layout.manifest().blocks())
    }

    fn begin(&mut self) -> Result<Option<Vec<BlockCount>>, String> {
        Ok(Some(self.runs(self.layout.manifest().blocks()..self.layout.blocks())))
    }

    fn acknowledged(&mut self, _below: u32) {}

    fn failure(&self) -> Option<String> {
        None
    }
}

impl SymbolSource for Files {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        let Some((source, k)) = self.block(block.sbn) else {
            return Load::Gone(format!("there is no block {}", block.sbn));
        };
        let mut symbol = vec![0; SHAPE.symbol_len.into()];
        let code = Code::new(Scheme::ReedSolomon);
        match code.encode(k, SHAPE.symbol_len.into(), &source, esi..esi + 1, &mut symbol) {
            Ok(()) => Load::Ready(symbol.into()),
            Err(error) => Load::Gone(error.to_string()),
        }
    }

    fn release(&mut self, _block: BlockId) {}
}

/// The place where a receiver keeps files. Clones are the same place.
#[derive(Clone, Debug)]
pub(super) struct Directory(Arc<Mutex<State>>, Later<Input>);

#[derive(Debug)]
struct State {
    manifest: Partition,
    manifest_len: u64,
    symbols: BTreeMap<u32, BTreeMap<u32, Vec<u8>>>,
    blocks: BTreeMap<u32, Vec<u8>>,
    /// Blocks that could be restored before their items were known.
    waiting: BTreeSet<u32>,
    looked_up: Vec<(ItemInfo, bool)>,
    digests: Vec<Digest>,
    layout: Option<Layout>,
    wanted: BTreeMap<Toi, ItemInfo>,
    done: BTreeMap<String, Vec<u8>>,
    full: bool,
    /// Most symbols that are altered before they are stored.
    alters: u32,
    slow: Duration,
    random: Xoshiro256PlusPlus,
}

impl Directory {
    pub(super) fn new(
        manifest_len: u64,
        (alters, slow): (u32, Duration),
        random: Xoshiro256PlusPlus,
    ) -> Directory {
        let state = State {
            manifest: SHAPE.partition(manifest_len).unwrap(),
            manifest_len,
            symbols: BTreeMap::new(),
            blocks: BTreeMap::new(),
            waiting: BTreeSet::new(),
            looked_up: Vec::new(),
            digests: Vec::new(),
            layout: None,
            wanted: BTreeMap::new(),
            done: BTreeMap::new(),
            full: false,
            alters,
            slow,
            random,
        };
        Directory(Arc::new(Mutex::new(state)), Later::in_order())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn events(&self) -> &Later<Input> {
        &self.1
    }

    pub(super) fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Adds all files, as if an earlier run had left them.
    pub(super) fn fill(&self, files: &Files) {
        let of = |info: &ItemInfo| (info.name.clone(), files.content(info.toi).to_vec());
        self.state().done = files.infos.iter().map(of).collect();
    }

    pub(super) fn verified(&self, name: &str) -> Option<Vec<u8>> {
        self.state().done.get(name).cloned()
    }

    fn tell(&self, state: &mut State, input: Input) {
        let after = below(&mut state.random, state.slow.as_nanos() as u64 + 1);
        self.1.put(Duration::from_nanos(after), input);
    }

    /// Decodes a block. The last block of the manifest or of a file also has it read or verified.
    fn restore_block(&self, state: &mut State, number: u32) {
        let Some(k) = state.k(number) else {
            state.waiting.insert(number);
            return;
        };
        let Some(symbols) = state.symbols.get(&number) else { return };
        let Some(content) = decode(k, symbols) else { return };
        state.symbols.remove(&number);
        state.blocks.insert(number, content);
        if number < state.manifest.blocks() {
            self.read_manifest(state);
        } else if let Some(id) = state.layout.as_ref().and_then(|layout| layout.locate(number)) {
            self.verify_if_whole(state, id.toi);
        }
    }

    fn read_manifest(&self, state: &mut State) {
        let blocks = 0..state.manifest.blocks();
        let mut content = Vec::new();
        for number in blocks {
            let Some(block) = state.blocks.get(&number) else { return };
            content.extend_from_slice(block);
        }
        content.truncate(state.manifest_len as usize);
        let event = match Manifest::parse(&content) {
            Ok(manifest) => {
                state.digests.clone_from(&manifest.blocks);
                FileEvent::Manifest(manifest)
            }
            Err(error) => FileEvent::Unreadable(error),
        };
        self.tell(state, Input::File(event));
    }

    fn verify_if_whole(&self, state: &mut State, toi: Toi) {
        let Some(info) = state.wanted.get(&toi).cloned() else { return };
        let mut content = Vec::new();
        if let Some(run) = state.run(toi) {
            for number in run.blocks() {
                let Some(block) = state.blocks.get(&number) else { return };
                content.extend_from_slice(block);
            }
        }
        content.truncate(info.oti.object_len as usize);
        let event = if *blake3::hash(&content).as_bytes() == info.digest.0 {
            let size = content.len() as u64;
            state.wanted.remove(&toi);
            state.done.insert(info.name.clone(), content);
            SinkEvent::ItemDone { toi, path: info.name.clone().into(), name: info.name, size }
        } else {
            SinkEvent::DigestMismatch { toi }
        };
        self.tell(state, Input::Disk(event));
    }
}

impl State {
    fn run(&self, toi: Toi) -> Option<BlockRun> {
        let (first, cut) = self.layout.as_ref()?.item(toi)?;
        Some(BlockRun { first, count: cut.blocks() })
    }

    /// Returns the number of source symbols of a block, if its item is known and wanted.
    fn k(&self, number: u32) -> Option<u32> {
        if number < self.manifest.blocks() {
            return Some(self.manifest.block_symbols(number));
        }
        let layout = self.layout.as_ref()?;
        let id = layout.locate(number)?;
        let wanted = self.wanted.contains_key(&id.toi);
        wanted.then(|| layout.item(id.toi).map(|(_, cut)| cut.block_symbols(id.sbn))).flatten()
    }
}

impl SymbolSink for Directory {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let mut state = self.state();
        let known = state.layout.is_none() || state.k(block.sbn).is_some();
        if state.full || !known {
            return false;
        }
        let mut symbol = symbol.to_vec();
        if block.sbn >= state.manifest.blocks()
            && state.alters > 0
            && below(&mut state.random, 10) == 0
        {
            state.alters -= 1;
            symbol[0] ^= 1;
        }
        symbol.resize(SHAPE.symbol_len.into(), 0);
        state.symbols.entry(block.sbn).or_default().insert(esi, symbol);
        true
    }

    fn restore(&mut self, block: BlockId) {
        let mut state = self.state();
        self.restore_block(&mut state, block.sbn);
    }

    fn rest(&mut self, _block: BlockId) {}
}

impl FeedStore for Directory {
    type Sink = Directory;

    fn look_up(&mut self, items: Vec<(ItemInfo, bool)>) -> Result<(), String> {
        let mut state = self.state();
        let looked = items
            .iter()
            .map(|(info, wanted)| {
                let found = match wanted {
                    false => Found::Unwanted,
                    true if state.done.contains_key(&info.name) => Found::Whole,
                    true => Found::Parts(0),
                };
                Looked { info: info.clone(), found }
            })
            .collect();
        state.looked_up = items;
        self.tell(&mut state, Input::LookedUp(looked));
        Ok(())
    }

    fn begin(&mut self) -> Result<Vec<BlockRun>, String> {
        let mut state = self.state();
        let items = std::mem::take(&mut state.looked_up);
        let infos: Vec<ItemInfo> = items.iter().map(|(info, _)| info.clone()).collect();
        let layout =
            Layout::new(SHAPE, state.manifest_len, &infos).map_err(|error| error.to_string())?;
        state.layout = Some(layout);
        let mut skip = Vec::new();
        for (info, wanted) in items {
            let (toi, run) = (info.toi, state.run(info.toi));
            if !wanted || state.done.contains_key(&info.name) {
                skip.extend(run);
                continue;
            }
            state.wanted.insert(toi, info);
            if run.is_none() {
                self.verify_if_whole(&mut state, toi);
            }
        }
        for number in std::mem::take(&mut state.waiting) {
            self.restore_block(&mut state, number);
        }
        Ok(skip)
    }

    fn blocks_of(&self, toi: Toi) -> Option<BlockRun> {
        self.state().run(toi)
    }

    fn block_of(&self, id: BlockId) -> Option<u32> {
        self.state().layout.as_ref()?.block_of(id)
    }

    fn files_in(&self, run: BlockRun) -> Option<BTreeSet<Toi>> {
        let state = self.state();
        let layout = state.layout.as_ref().filter(|_| run.first >= state.manifest.blocks())?;
        Some(layout.items_in(run))
    }

    fn check_blocks(&mut self, toi: Toi) {
        let mut state = self.state();
        let state = &mut *state;
        let Some((first, cut)) = state.layout.as_ref().and_then(|layout| layout.item(toi)) else {
            return;
        };
        let mut blocks = Vec::new();
        for sbn in 0..cut.blocks() {
            let (number, range) = (first + sbn, cut.block_range(sbn));
            let digest = state.digests[(number - state.manifest.blocks()) as usize];
            let content = &state.blocks[&number][..(range.end - range.start) as usize];
            if *blake3::hash(content).as_bytes() != digest.0 {
                state.blocks.remove(&number);
                blocks.push(sbn);
            }
        }
        self.tell(state, Input::Disk(SinkEvent::BlocksDropped { toi, blocks }));
    }

    fn cancel(&mut self, toi: Toi) {
        self.state().wanted.remove(&toi);
    }

    fn begin_pipe(&mut self, _first: u32) {}

    fn pipe_has_end(&self) -> bool {
        false
    }

    fn abort_pipe(&mut self) {}

    fn written(&self) -> u64 {
        0
    }
}

fn decode(k: u32, symbols: &BTreeMap<u32, Vec<u8>>) -> Option<Vec<u8>> {
    let len = usize::from(SHAPE.symbol_len);
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
    let code = Code::new(Scheme::ReedSolomon);
    code.restore(k, len, &mut content, &present, &repairs).ok().map(|_| content)
}
