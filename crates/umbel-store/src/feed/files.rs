//! Files in a feed.

use std::ops::Range;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};
use umbel_wire::Toi;
use umbel_wire::repository::ItemInfo;

use super::head::HeadFeed;
use super::seal::{FeedBlock, FeedKey, Sealer};
use super::{BlockShape, Layout, LayoutError, Manifest, ManifestError};
use crate::BlockReader;
use crate::sink::Prepared;

/// The source of the symbols of a feed of files.
#[derive(Debug)]
pub struct FileFeed {
    layout: Layout,
    head: HeadFeed,
    reader: BlockReader,
    sealer: Option<Sealer>,
}

impl FileFeed {
    /// Creates the feed of these items. `reader` reads their contents. `key` seals the feed, if
    /// `shape` says that it is sealed; `manifest` is then the head.
    ///
    /// # Errors
    ///
    /// Returns an error if there are too many items, or if an item is not split as `shape` says.
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

    /// Returns the layout of the feed's blocks.
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
        // Repair symbols of a sealed block are computed from its sealed source symbols.
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

/// An event of a [`FileSink`](super::FileSink), in addition to those of its disk sink.
#[derive(Clone, Debug)]
pub enum FileEvent {
    /// The manifest is complete. The sink keeps the digests of blocks that were in it.
    Manifest(Manifest),
    /// The blocks of the head that were received are not those that were announced. They are
    /// dropped, and must be received again.
    HeadForged {
        /// Number of the head's blocks, which come first.
        blocks: u32,
    },
    /// The manifest cannot be read, so the feed cannot be received.
    Unreadable(ManifestError),
    /// A sealed block that was received cannot be kept. Either the block is not the one that was
    /// sent, or there is no room, or its item accepts no more symbols.
    Lost {
        /// Number of the block in the feed.
        block: u32,
        /// Object identifier of the block's item.
        toi: Toi,
    },
}

/// An item that was looked up on the disk.
#[derive(Debug)]
pub struct FeedPrepared {
    /// Description of the item.
    pub info: ItemInfo,
    /// State found on the disk; `None` if the item is not wanted or cannot be kept.
    pub prepared: Option<Prepared>,
}
