//! Encoding symbols, read and made on other threads ahead of the paced sender.
//!
//! [`BlockReader`] belongs to the sending thread. It hands the blocks that will be sent soon to a
//! few workers, which read each with one call into a buffer that the symbols are slices of, and
//! make the repair symbols. Asking for a symbol of the block in hand takes no lock once the
//! block is there.
//!
//! ```text
//! prefetch ──▶ waiting ──(room in memory)──▶ read ──▶ encode ──▶ there ──▶ release
//! symbol that is not there ──▶ urgent ────────▲
//! ```
//!
//! Memory is bounded: a block counts from when a worker takes it until it is released, and
//! prefetches beyond the bound wait in line. A block whose symbol is asked for goes first and
//! does not wait for room, so that the sender always gets on.

mod entry;
mod pool;
mod worker;

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};

use crate::Content;
use entry::{Entry, Loaded};
use worker::Shared;

/// What a reader may use.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Bytes of blocks and repair symbols held at a time. One block is always held, whatever its
    /// size. Default: 64 MiB.
    pub memory: usize,
    /// Worker threads; at least 1. Default: 2, or 1 on a machine with one processor.
    pub threads: usize,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        ReaderOptions { memory: 64 << 20, threads: processors.min(2) }
    }
}

/// Gives the encoding symbols of a repository's items to an engine.
pub struct BlockReader {
    shared: Arc<Shared>,
    blocks: HashMap<BlockId, Arc<Entry>>,
    /// The block that a symbol was asked of last, with what was there of it then.
    current: Option<(Arc<Entry>, Loaded)>,
}

impl BlockReader {
    /// Starts the workers. They call `wake` from their threads when [`SymbolSource::symbol`] has
    /// answered [`Load::Pending`] and something has become ready since.
    ///
    /// # Errors
    ///
    /// If the system refuses the threads.
    pub fn new(
        content: Content,
        options: &ReaderOptions,
        wake: impl Fn() + Send + Sync + 'static,
    ) -> std::io::Result<BlockReader> {
        let shared = Arc::new(Shared::new(content, options.memory, Box::new(wake)));
        for number in 0..options.threads.max(1) {
            let shared = Arc::clone(&shared);
            std::thread::Builder::new()
                .name(format!("umbel-blocks-{number}"))
                .spawn(move || shared.run())?;
        }
        Ok(BlockReader { shared, blocks: HashMap::new(), current: None })
    }

    /// Bytes of blocks and repair symbols that are held or being made.
    pub fn memory_in_use(&self) -> usize {
        self.shared.memory_in_use()
    }

    fn entry(&mut self, block: BlockId) -> &Arc<Entry> {
        let catalog = self.shared.content.catalog();
        self.blocks
            .entry(block)
            .or_insert_with(|| Arc::new(Entry::new(block, catalog.get(block.toi))))
    }

    /// What a symbol that is not in hand is: now there, on its way, or not to be had.
    fn look_again(&mut self, block: BlockId, esi: u32) -> Load {
        let entry = Arc::clone(self.entry(block));
        let (loaded, load) = entry.look(esi, &self.shared.sleeping);
        self.current = Some((Arc::clone(&entry), loaded));
        match load {
            Load::Pending => self.shared.hurry(entry),
            Load::Ready(_) | Load::Gone(_) => {}
        }
        load
    }

    fn in_hand(&self, block: BlockId, esi: u32) -> Option<Bytes> {
        let (entry, loaded) = self.current.as_ref()?;
        if entry.block == block { loaded.symbol(&entry.shape, esi) } else { None }
    }
}

impl SymbolSource for BlockReader {
    fn prefetch(&mut self, block: BlockId, esis: Range<u32>) {
        let entry = self.entry(block);
        if entry.want(esis) {
            let entry = Arc::clone(entry);
            self.shared.enqueue(entry);
        }
    }

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        match self.in_hand(block, esi) {
            Some(symbol) => Load::Ready(symbol),
            None => self.look_again(block, esi),
        }
    }

    fn release(&mut self, block: BlockId) {
        if self.current.as_ref().is_some_and(|(entry, _)| entry.block == block) {
            self.current = None;
        }
        if let Some(entry) = self.blocks.remove(&block) {
            self.shared.give_back(entry.release());
        }
    }
}

impl Drop for BlockReader {
    /// Lets the workers end, each after what it is at, without waiting for them.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl fmt::Debug for BlockReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockReader").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}
