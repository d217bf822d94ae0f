//! Files in a feed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::tmtp::FEED;
use umbel_fec::{FecError, Partition};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;
use umbel_wire::{Digest, Toi};

use super::block::MemoryBlock;
use super::{BlockShape, Layout, LayoutError, Manifest, ManifestError, encoding_symbol};
use crate::BlockReader;
use crate::sink::{DiskSink, Held, Prepared};

/// Bytes of symbols that may wait for the manifest.
const PENDING: usize = 16 << 20;

/// The symbols of a feed of files, for its source.
#[derive(Debug)]
pub struct FileFeed {
    layout: Layout,
    manifest: Bytes,
    reader: BlockReader,
}

impl FileFeed {
    /// The feed of these items, whose contents `reader` has.
    ///
    /// # Errors
    ///
    /// The items are too many, or are cut in another way than `shape` says.
    pub fn new(
        shape: BlockShape,
        items: &[ItemInfo],
        manifest: impl Into<Bytes>,
        reader: BlockReader,
    ) -> Result<FileFeed, LayoutError> {
        let manifest = manifest.into();
        let layout = Layout::new(shape, manifest.len() as u64, items)?;
        Ok(FileFeed { layout, manifest, reader })
    }

    /// Which block is what.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn manifest_symbol(&self, sbn: u32, esi: u32) -> Load {
        let partition = self.layout.manifest();
        let range = partition.block_range(sbn);
        let (k, symbol_len) = (partition.block_symbols(sbn), usize::from(partition.symbol_len()));
        let len = (range.end - range.start) as usize;
        let bytes = self.manifest.slice(range.start as usize..range.end as usize);
        if esi < k {
            return encoding_symbol(&bytes, len, symbol_len, k, esi);
        }
        let mut padded = bytes.to_vec();
        padded.resize(k as usize * symbol_len, 0);
        encoding_symbol(&padded.into(), len, symbol_len, k, esi)
    }
}

impl SymbolSource for FileFeed {
    fn prefetch(&mut self, block: BlockId, esis: Range<u32>) {
        if let Some(id) = self.layout.locate(block.sbn) {
            self.reader.prefetch(id, esis);
        }
    }

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        match self.layout.locate(block.sbn) {
            Some(id) => self.reader.symbol(id, esi),
            None if block.sbn < self.layout.manifest().blocks() => {
                self.manifest_symbol(block.sbn, esi)
            }
            None => Load::Gone(format!("the feed has no block {}", block.sbn)),
        }
    }

    fn release(&mut self, block: BlockId) {
        if let Some(id) = self.layout.locate(block.sbn) {
            self.reader.release(id);
        }
    }
}

/// What a [`FileSink`] tells, besides what its disk sink does.
#[derive(Clone, Debug)]
pub enum FileEvent {
    /// The list of what is sent is there.
    Manifest(Manifest),
    /// The list cannot be read: the feed cannot be received.
    Unreadable(ManifestError),
}

/// An item that was looked up on the disk.
#[derive(Debug)]
pub struct FeedPrepared {
    /// The item.
    pub info: ItemInfo,
    /// What was found; `None` if it is not wanted or cannot be kept.
    pub prepared: Option<Prepared>,
}

/// Keeps the files of a feed. The manifest's blocks and what comes before they are complete are kept
/// in memory; all else goes to a [`DiskSink`].
pub struct FileSink {
    shape: BlockShape,
    manifest: Partition,
    digest: Digest,
    /// Blocks of the manifest that are not restored.
    open: BTreeMap<u32, MemoryBlock>,
    /// Blocks of the manifest that are.
    restored: BTreeMap<u32, Vec<u8>>,
    /// What came before it was known what it is.
    pending: Pending,
    layout: Option<Layout>,
    /// Items that are received.
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
    /// A sink for a feed with a manifest of these bytes. `on_event` is called on the thread that
    /// stores symbols.
    ///
    /// # Errors
    ///
    /// A manifest of such a length cannot be cut.
    pub fn new(
        shape: BlockShape,
        (manifest_len, digest): (u64, Digest),
        disk: DiskSink,
        on_event: impl Fn(FileEvent) + Send + 'static,
    ) -> Result<FileSink, FecError> {
        Ok(FileSink {
            shape,
            manifest: shape.partition(manifest_len)?,
            digest,
            open: BTreeMap::new(),
            restored: BTreeMap::new(),
            pending: Pending::default(),
            layout: None,
            wanted: BTreeSet::new(),
            disk,
            on_event: Box::new(on_event),
        })
    }

    /// Blocks of the manifest.
    pub fn manifest_blocks(&self) -> u32 {
        self.manifest.blocks()
    }

    /// Where the files go.
    pub fn disk(&mut self) -> &mut DiskSink {
        &mut self.disk
    }

    /// The block of the feed that an item's block is, once the layout is known.
    pub fn block_of(&self, id: BlockId) -> Option<u32> {
        self.layout.as_ref()?.block_of(id)
    }

    /// Which block is what, once it is known.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// Takes the items in that were looked up: all items of the manifest, in its order. Gives the
    /// blocks after the manifest that need not be received: those that are held, and those of
    /// items that are not prepared.
    ///
    /// # Errors
    ///
    /// The items do not make a feed of this shape.
    pub fn begin(&mut self, items: Vec<FeedPrepared>) -> Result<Vec<BlockRun>, LayoutError> {
        let infos: Vec<ItemInfo> = items.iter().map(|item| item.info.clone()).collect();
        let layout = Layout::new(self.shape, self.manifest.object_len(), &infos)?;
        let mut skip: Vec<BlockRun> = Vec::new();
        for FeedPrepared { info, prepared } in items {
            let place = layout.item(info.toi).map(|(first, partition)| (first, *partition));
            let held = prepared.map(|prepared| self.disk.admit(prepared));
            if matches!(held, Some(Held::Parts(_))) {
                self.wanted.insert(info.toi);
            }
            let Some((first, partition)) = place else { continue };
            let is_held = |sbn: u32| match &held {
                Some(Held::Parts(parts)) => parts.missing_symbols(sbn) == 0,
                Some(Held::AlreadyThere) | None => true,
            };
            for block in (0..partition.blocks()).filter(|sbn| is_held(*sbn)).map(|sbn| first + sbn)
            {
                match skip.last_mut() {
                    Some(run) if run.end() == block => run.count += 1,
                    _ => skip.push(BlockRun { first: block, count: 1 }),
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

    /// The item's block that a block of the feed is, if that item is received.
    fn locate(&self, block: u32) -> Option<BlockId> {
        let id = self.layout.as_ref()?.locate(block)?;
        self.wanted.contains(&id.toi).then_some(id)
    }

    fn restore_manifest(&mut self, sbn: u32) {
        let Some(block) = self.open.remove(&sbn) else { return };
        let (k, symbol_len) = (self.manifest.block_symbols(sbn), self.shape.symbol_len.into());
        let range = self.manifest.block_range(sbn);
        let Some(mut data) = block.restore(k, symbol_len) else {
            return (self.on_event)(FileEvent::Unreadable(ManifestError::Digest));
        };
        data.truncate((range.end - range.start) as usize);
        self.restored.insert(sbn, data);
        if self.restored.len() == self.manifest.blocks() as usize {
            let blocks = std::mem::take(&mut self.restored);
            let bytes: Vec<u8> = blocks.into_values().flatten().collect();
            (self.on_event)(match Manifest::parse(&bytes, self.digest) {
                Ok(manifest) => FileEvent::Manifest(manifest),
                Err(error) => FileEvent::Unreadable(error),
            });
        }
    }
}

impl SymbolSink for FileSink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        if symbol.len() > self.shape.symbol_len.into() {
            return false;
        }
        if block.sbn < self.manifest.blocks() {
            self.open.entry(block.sbn).or_default().store(esi, symbol);
            return true;
        }
        if self.layout.is_some() {
            return self.locate(block.sbn).is_some_and(|id| self.disk.store(id, esi, symbol));
        }
        let fits = self.pending.bytes + symbol.len() <= PENDING;
        if fits {
            self.pending.bytes += symbol.len();
            self.pending.symbols.push_back((block.sbn, esi, symbol.into()));
        }
        fits
    }

    fn restore(&mut self, block: BlockId) {
        if block.sbn < self.manifest.blocks() {
            self.restore_manifest(block.sbn);
        } else if self.layout.is_none() {
            self.pending.restores.push(block.sbn);
        } else if let Some(id) = self.locate(block.sbn) {
            self.disk.restore(id);
        }
    }

    fn rest(&mut self, block: BlockId) {
        if let Some(id) = self.locate(block.sbn) {
            self.disk.rest(id);
        }
    }
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink")
            .field("manifest", &self.manifest)
            .field("pending", &self.pending.bytes)
            .finish_non_exhaustive()
    }
}
