//! The store of a feed's files in a receiver.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_engine::tmtp::FEED;
use umbel_fec::{FecError, Partition};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;
use umbel_wire::{Digest, Toi};

use super::head::{Forged, HeadSink};
use super::seal::{Opener, Unsealer};
use super::{BlockShape, FeedPrepared, FileEvent, Layout, LayoutError, Manifest, ManifestError};
use crate::sink::{DiskSink, Held};

/// Maximum number of bytes of symbols that wait for the manifest.
const PENDING: usize = 16 << 20;

/// A sink for the files of a feed. Keeps the manifest's blocks in memory, and all symbols that
/// arrive before they are complete. All other symbols go to a [`DiskSink`]. Clones are the same
/// sink.
#[derive(Clone)]
pub struct FileSink {
    files: Arc<Mutex<Files>>,
    disk: DiskSink,
    manifest_blocks: u32,
}

/// State of a sink of files.
struct Files {
    shape: BlockShape,
    head: HeadSink,
    /// Opens sealed blocks.
    unsealer: Option<Unsealer>,
    /// Symbols that arrived before the manifest was known.
    pending: Pending,
    layout: Option<Layout>,
    /// Digests of the blocks after the head, once the manifest is known.
    digests: Vec<Digest>,
    /// Items that are being received.
    wanted: BTreeSet<Toi>,
    disk: DiskSink,
    on_event: Box<dyn Fn(FileEvent) + Send>,
}

#[derive(Debug, Default)]
struct Pending {
    symbols: VecDeque<(u32, u32, Box<[u8]>)>,
    restores: Vec<u32>,
    bytes: usize,
}

impl FileSink {
    /// Creates a sink for a feed with a manifest, or head, of this length and digest. `opener`
    /// opens it, if `shape` says that it is sealed. `on_event` is called on the thread that stores
    /// symbols, and must not call the sink.
    ///
    /// # Errors
    ///
    /// Returns an error if a manifest of this length cannot be split.
    pub fn new(
        shape: BlockShape,
        head: (u64, Digest),
        opener: Option<Opener>,
        disk: DiskSink,
        on_event: impl Fn(FileEvent) + Send + 'static,
    ) -> Result<FileSink, FecError> {
        let head = HeadSink::new(shape, head)?;
        let manifest_blocks = head.blocks();
        let files = Files {
            shape,
            head,
            unsealer: opener.map(|opener| Unsealer::new(opener, shape.symbol_len)),
            pending: Pending::default(),
            layout: None,
            digests: Vec::new(),
            wanted: BTreeSet::new(),
            disk: disk.clone(),
            on_event: Box::new(on_event),
        };
        Ok(FileSink { files: Arc::new(Mutex::new(files)), disk, manifest_blocks })
    }

    fn files(&self) -> MutexGuard<'_, Files> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of blocks of the manifest, or head.
    pub fn manifest_blocks(&self) -> u32 {
        self.manifest_blocks
    }

    /// Returns the sink that stores the files.
    pub fn disk(&self) -> &DiskSink {
        &self.disk
    }

    /// Returns the feed's number of an item's block, once the layout is known.
    pub fn block_of(&self, id: BlockId) -> Option<u32> {
        self.files().layout.as_ref()?.block_of(id)
    }

    /// Returns the blocks of an item, once the layout is known.
    pub fn item_blocks(&self, toi: Toi) -> Option<BlockRun> {
        let files = self.files();
        files.layout.as_ref()?.blocks_of(toi)
    }

    /// Returns the items that a run of blocks touches. Returns `None` if the run touches the
    /// manifest, or if the layout is not known.
    pub fn items_in(&self, run: BlockRun) -> Option<BTreeSet<Toi>> {
        let files = self.files();
        let layout = files.layout.as_ref().filter(|_| run.first >= self.manifest_blocks)?;
        Some(layout.items_in(run))
    }

    /// Returns the digests of the blocks of an item before the feed begins, which has these items.
    /// Returns `None` if it has no blocks in the feed.
    pub fn digests_of(&self, items: &[ItemInfo], toi: Toi) -> Option<Vec<Digest>> {
        let files = self.files();
        let layout = Layout::new(files.shape, files.head.len(), items).ok()?;
        files.digests_of(&layout, toi)
    }

    /// Compares the blocks of an item with their digests, after
    /// [`SinkEvent::DigestMismatch`](crate::sink::SinkEvent::DigestMismatch).
    pub fn check_blocks(&self, toi: Toi) {
        let files = self.files();
        let digests = files.layout.as_ref().and_then(|layout| files.digests_of(layout, toi));
        self.disk.check_blocks(toi, digests.unwrap_or_default());
    }

    /// Accepts the items that were looked up on the disk: all items of the manifest, in its order.
    /// Returns the blocks after the manifest that need not be received. These are the blocks that
    /// are already held, and those of items that are not prepared.
    ///
    /// # Errors
    ///
    /// Returns an error if the items do not make a feed of this shape.
    pub fn begin(&self, items: Vec<FeedPrepared>) -> Result<Vec<BlockRun>, LayoutError> {
        self.files().begin(items)
    }
}

impl Files {
    fn begin(&mut self, items: Vec<FeedPrepared>) -> Result<Vec<BlockRun>, LayoutError> {
        let infos: Vec<ItemInfo> = items.iter().map(|item| item.info.clone()).collect();
        let layout = Layout::new(self.shape, self.head.len(), &infos)?;
        let mut skip: Vec<BlockRun> = Vec::new();
        for FeedPrepared { info, prepared } in items {
            let digests = self.digests_of(&layout, info.toi).unwrap_or_default();
            let disk = &self.disk;
            let held = prepared.map(|prepared| disk.admit(prepared.verified_by(&digests)));
            if matches!(held, Some(Held::Parts(_))) {
                self.wanted.insert(info.toi);
            }
            let Some(run) = layout.blocks_of(info.toi) else { continue };
            let Some(Held::Parts(parts)) = held else {
                // One run for the whole item, no matter how many blocks a hostile list declares.
                push_run(&mut skip, run);
                continue;
            };
            let sbns = info.data_blocks().into_iter().flatten();
            for (sbn, first) in sbns.zip(run.first..run.end()) {
                if parts.missing_symbols(sbn) == 0 {
                    push_run(&mut skip, BlockRun { first, count: 1 });
                }
            }
        }
        self.layout = Some(layout);
        let Pending { symbols, restores, .. } = std::mem::take(&mut self.pending);
        let skipped = |block: u32| {
            let after = skip.partition_point(|run| run.first <= block);
            after.checked_sub(1).is_some_and(|place| block < skip[place].end())
        };
        for (block, esi, symbol) in symbols {
            if !skipped(block) {
                self.store(BlockId { toi: FEED, sbn: block }, esi, &symbol);
            }
        }
        for block in restores {
            if !skipped(block) {
                self.restore(BlockId { toi: FEED, sbn: block });
            }
        }
        Ok(skip)
    }

    /// Returns the item's block that corresponds to a block of the feed, if that item is received.
    fn locate(&self, block: u32) -> Option<BlockId> {
        let id = self.layout.as_ref()?.locate(block)?;
        self.wanted.contains(&id.toi).then_some(id)
    }

    /// Returns the digests of an item's blocks, also of those that are holes. Returns `None` if it
    /// has no blocks in the feed.
    fn digests_of(&self, layout: &Layout, toi: Toi) -> Option<Vec<Digest>> {
        let (_, partition) = layout.item(toi)?;
        let mut zeros: Option<(u64, Digest)> = None;
        let mut of_zeros = |len: u64| match zeros {
            Some((known, digest)) if known == len => digest,
            _ => {
                let digest = Digest(*blake3::hash(&vec![0; len as usize]).as_bytes());
                zeros.insert((len, digest)).1
            }
        };
        let digest = |sbn| {
            if let Some(block) = layout.block_of(BlockId { toi, sbn }) {
                let index = block.checked_sub(self.head.blocks())? as usize;
                return self.digests.get(index).copied();
            }
            let range = partition.block_range(sbn);
            Some(of_zeros(range.end - range.start))
        };
        (0..partition.blocks()).map(digest).collect()
    }

    /// Returns the partition of the item to which a block belongs.
    fn cut_of(&self, id: BlockId) -> Option<Partition> {
        self.layout.as_ref()?.item(id.toi).map(|(_, partition)| *partition)
    }

    fn restore_head(&mut self, sbn: u32) {
        let Some(head) = self.head.restore(sbn) else { return };
        let event = match head.map(|head| self.read_head(&head)) {
            Ok(Ok(manifest)) => FileEvent::Manifest(manifest),
            // The sender's own is wrong.
            Ok(Err(error)) => FileEvent::Unreadable(error),
            Err(Forged) => FileEvent::HeadForged { blocks: self.head.blocks() },
        };
        (self.on_event)(event);
    }

    fn read_head(&mut self, head: &[u8]) -> Result<Manifest, ManifestError> {
        let mut manifest = match &mut self.unsealer {
            Some(unsealer) => Manifest::parse(&unsealer.open_head(head)?)?,
            None => Manifest::parse(head)?,
        };
        self.digests = std::mem::take(&mut manifest.blocks);
        Ok(manifest)
    }

    /// Opens a sealed block and passes it to the disk.
    fn restore_sealed(&mut self, block: u32, id: BlockId) {
        let (Some(partition), Some(unsealer)) = (self.cut_of(id), &mut self.unsealer) else {
            return;
        };
        let opened = unsealer.open(block, (&partition, id.sbn));
        let mut store = |(esi, symbol): (u32, &[u8])| self.disk.store(id, esi, symbol);
        // The sink had room when the symbols came. It may have filled up since.
        if opened.is_some_and(|opened| (0..).zip(opened.symbols()).all(&mut store)) {
            self.disk.restore(id);
        } else {
            (self.on_event)(FileEvent::Lost { block, toi: id.toi });
        }
    }
}

/// Appends a run to ascending runs. Extends the last run if the new one follows it directly.
fn push_run(runs: &mut Vec<BlockRun>, run: BlockRun) {
    match runs.last_mut() {
        Some(last) if last.end() == run.first => last.count += run.count,
        _ => runs.push(run),
    }
}

impl SymbolSink for Files {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        if symbol.len() > self.shape.symbol_len.into() {
            return false;
        }
        if block.sbn < self.head.blocks() {
            self.head.store(block.sbn, esi, symbol);
            return true;
        }
        if self.layout.is_some() {
            let Some(id) = self.locate(block.sbn) else { return false };
            let Some(k) = self.cut_of(id).map(|cut| cut.block_symbols(id.sbn)) else {
                return false;
            };
            let Files { unsealer, disk, .. } = self;
            return match unsealer {
                None => disk.store(id, esi, symbol),
                Some(unsealer) => {
                    unsealer.store((block.sbn, k), esi, symbol, |bytes| disk.has_room(bytes))
                }
            };
        }
        let fits = self.pending.bytes + symbol.len() <= PENDING;
        if fits {
            self.pending.bytes += symbol.len();
            self.pending.symbols.push_back((block.sbn, esi, symbol.into()));
        }
        fits
    }

    fn restore(&mut self, block: BlockId) {
        if block.sbn < self.head.blocks() {
            self.restore_head(block.sbn);
        } else if self.layout.is_none() {
            self.pending.restores.push(block.sbn);
        } else if let Some(id) = self.locate(block.sbn) {
            if self.unsealer.is_some() {
                self.restore_sealed(block.sbn, id);
            } else {
                self.disk.restore(id);
            }
        }
    }

    fn rest(&mut self, block: BlockId) {
        if let Some(id) = self.locate(block.sbn) {
            self.disk.rest(id);
        }
    }

    fn source_symbols(&self, block: BlockId) -> Option<u8> {
        if block.sbn < self.head.blocks() {
            return Some(self.head.source_symbols(block.sbn));
        }
        let id = self.layout.as_ref()?.locate(block.sbn)?;
        self.cut_of(id).map(|cut| cut.block_symbols(id.sbn) as u8)
    }

    fn is_genuine(&self, block: BlockId, k: u8, esi: u32, symbol: &[u8]) -> bool {
        let sealed = block.sbn >= self.head.blocks() && esi < k.into();
        let unsealer = self.unsealer.as_ref().filter(|_| sealed);
        unsealer.is_none_or(|unsealer| unsealer.is_genuine(block.sbn, esi, symbol))
    }

    fn forget(&mut self, block: BlockId) {
        let Pending { symbols, bytes, .. } = &mut self.pending;
        symbols.retain(|(number, _, _)| *number != block.sbn);
        *bytes = symbols.iter().map(|(_, _, symbol)| symbol.len()).sum();
        if self.unsealer.is_none()
            && let Some(id) = self.locate(block.sbn)
        {
            self.disk.forget(id);
        }
    }

    fn retain(
        &mut self,
        block: BlockId,
        is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        if self.unsealer.is_none()
            && let Some(id) = self.locate(block.sbn)
        {
            return self.disk.retain(id, is_right);
        }
        self.forget(block);
        None
    }
}

impl SymbolSink for FileSink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        self.files().store(block, esi, symbol)
    }

    fn restore(&mut self, block: BlockId) {
        self.files().restore(block);
    }

    fn rest(&mut self, block: BlockId) {
        self.files().rest(block);
    }

    fn source_symbols(&self, block: BlockId) -> Option<u8> {
        self.files().source_symbols(block)
    }

    fn is_genuine(&self, block: BlockId, k: u8, esi: u32, symbol: &[u8]) -> bool {
        self.files().is_genuine(block, k, esi, symbol)
    }

    fn forget(&mut self, block: BlockId) {
        self.files().forget(block);
    }

    fn retain(
        &mut self,
        block: BlockId,
        is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        self.files().retain(block, is_right)
    }
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let files = self.files();
        f.debug_struct("FileSink")
            .field("head", &files.head)
            .field("pending", &files.pending.bytes)
            .finish_non_exhaustive()
    }
}
