//! Files in a feed.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::ops::Range;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::tmtp::FEED;
use umbel_fec::{FecError, Partition};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;
use umbel_wire::{Digest, Toi};

use super::head::{HeadFeed, HeadSink};
use super::seal::{FeedBlock, FeedKey, Opener, Sealer, Unsealer};
use super::{BlockShape, Layout, LayoutError, Manifest, ManifestError};
use crate::BlockReader;
use crate::sink::{DiskSink, Held, Prepared};

/// Bytes of symbols that may wait for the manifest.
const PENDING: usize = 16 << 20;

/// The symbols of a feed of files, for its source.
#[derive(Debug)]
pub struct FileFeed {
    layout: Layout,
    head: HeadFeed,
    reader: BlockReader,
    sealer: Option<Sealer>,
}

impl FileFeed {
    /// The feed of these items, whose contents `reader` has. `key` seals it, if `shape` says that
    /// it is sealed: then `manifest` is the head.
    ///
    /// # Errors
    ///
    /// The items are too many, or are cut in another way than `shape` says.
    pub fn new(
        shape: BlockShape,
        items: &[ItemInfo],
        manifest: impl Into<Bytes>,
        reader: BlockReader,
        key: Option<FeedKey>,
    ) -> Result<FileFeed, LayoutError> {
        let head = HeadFeed::new(shape, manifest.into())?;
        let layout = Layout::new(shape, head.len(), items)?;
        let sealer = key.map(|key| Sealer::new(key, shape.symbol_len));
        Ok(FileFeed { layout, head, reader, sealer })
    }

    /// Which block is what.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    fn locate(&self, number: u32) -> Option<FeedBlock> {
        let id = self.layout.locate(number)?;
        let (_, partition) = self.layout.item(id.toi)?;
        Some(FeedBlock { number, symbols: partition.block_symbols(id.sbn), id })
    }
}

impl SymbolSource for FileFeed {
    fn prefetch(&mut self, block: BlockId, esis: Range<u32>) {
        let Some(block) = self.locate(block.sbn) else { return };
        // Repair symbols of a sealed block are made of its sealed source symbols.
        let whole = self.sealer.is_some() && esis.end > block.symbols;
        self.reader.prefetch(block.id, if whole { 0..block.symbols } else { esis });
    }

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        if block.sbn < self.head.blocks() {
            return self.head.symbol(block.sbn, esi);
        }
        match (self.locate(block.sbn), &mut self.sealer) {
            (Some(block), Some(sealer)) => sealer.symbol(&mut self.reader, block, esi),
            (Some(block), None) => self.reader.symbol(block.id, esi),
            (None, _) => Load::Gone(format!("the feed has no block {}", block.sbn)),
        }
    }

    fn release(&mut self, block: BlockId) {
        if let Some(sealer) = &mut self.sealer {
            sealer.release(block.sbn);
        }
        if let Some(block) = self.locate(block.sbn) {
            self.reader.release(block.id);
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
    /// A sealed block that was received cannot be kept: what came is not what was sent, there is no
    /// room, or its item takes no more.
    Lost {
        /// The block.
        block: u32,
        /// Its item.
        toi: Toi,
    },
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
    head: HeadSink,
    /// Opens what is sealed.
    unsealer: Option<Unsealer>,
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
    /// A sink for a feed with a manifest, or head, of this length and digest. `opener` opens it, if
    /// `shape` says that it is sealed. `on_event` is called on the thread that stores symbols.
    ///
    /// # Errors
    ///
    /// A manifest of such a length cannot be cut.
    pub fn new(
        shape: BlockShape,
        head: (u64, Digest),
        opener: Option<Opener>,
        disk: DiskSink,
        on_event: impl Fn(FileEvent) + Send + 'static,
    ) -> Result<FileSink, FecError> {
        Ok(FileSink {
            shape,
            head: HeadSink::new(shape, head)?,
            unsealer: opener.map(|opener| Unsealer::new(opener, shape.symbol_len)),
            pending: Pending::default(),
            layout: None,
            wanted: BTreeSet::new(),
            disk,
            on_event: Box::new(on_event),
        })
    }

    /// Blocks of the manifest, or head.
    pub fn manifest_blocks(&self) -> u32 {
        self.head.blocks()
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
        let layout = Layout::new(self.shape, self.head.len(), &infos)?;
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

    /// How the item's block that a block is, is cut; if that item is received.
    fn cut_of(&self, id: BlockId) -> Option<Partition> {
        self.layout.as_ref()?.item(id.toi).map(|(_, partition)| *partition)
    }

    fn restore_head(&mut self, sbn: u32) {
        let Some(head) = self.head.restore(sbn) else { return };
        let manifest = head.and_then(|head| {
            let manifest = match &mut self.unsealer {
                Some(unsealer) => unsealer.open_head(&head)?,
                None => head,
            };
            Manifest::parse(&manifest)
        });
        (self.on_event)(match manifest {
            Ok(manifest) => FileEvent::Manifest(manifest),
            Err(error) => FileEvent::Unreadable(error),
        });
    }

    /// Opens a sealed block, and gives it to the disk.
    fn restore_sealed(&mut self, block: u32, id: BlockId) {
        let (Some(partition), Some(unsealer)) = (self.cut_of(id), &mut self.unsealer) else {
            return;
        };
        let opened = unsealer.open(block, (&partition, id.sbn));
        let mut store = |(esi, symbol): (u32, &[u8])| self.disk.store(id, esi, symbol);
        // There is room, unless the disk's has just filled up.
        if opened.is_some_and(|opened| (0..).zip(opened.symbols()).all(&mut store)) {
            self.disk.restore(id);
        } else {
            (self.on_event)(FileEvent::Lost { block, toi: id.toi });
        }
    }
}

impl SymbolSink for FileSink {
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
            let FileSink { unsealer, disk, .. } = self;
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
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink")
            .field("head", &self.head)
            .field("pending", &self.pending.bytes)
            .finish_non_exhaustive()
    }
}
