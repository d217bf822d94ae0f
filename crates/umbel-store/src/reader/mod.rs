//! Encoding symbols, read and computed on other threads ahead of the paced sender.
//!
//! [`BlockReader`] belongs to the sending thread. It passes the blocks that will be sent soon to a
//! few workers. A worker reads each block with one call into a buffer, of which the symbols are
//! slices, and makes the repair symbols. Returning a symbol of the current block takes no lock once
//! the block is loaded.
//!
//! ```text
//! prefetch ──▶ waiting ──(room in memory)──▶ read ──▶ encode ──▶ there ──▶ release
//! symbol that is not there ──▶ urgent ────────▲
//! ```
//!
//! Memory is bounded. A block counts from the time a worker takes it until it is released, and
//! prefetches beyond the bound wait in the queue. A block with a requested symbol goes first and
//! does not wait for room, so that the sender never stalls.

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

/// Limits of a reader.
#[derive(Clone, Debug)]
pub struct ReaderOptions {
    /// Maximum bytes of blocks and repair symbols held at a time. One block is always held,
    /// whatever its size. Default: 64 MiB.
    pub memory: usize,
    /// Number of worker threads; at least 1. Default: 2, or 1 on a machine with one processor.
    pub threads: usize,
}

impl Default for ReaderOptions {
    fn default() -> ReaderOptions {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        ReaderOptions { memory: 64 << 20, threads: processors.min(2) }
    }
}

/// Provides the encoding symbols of a repository's items to an engine.
pub struct BlockReader {
    shared: Arc<Shared>,
    blocks: HashMap<BlockId, Arc<Entry>>,
    /// The block of the last requested symbol, with its symbols that were loaded then.
    current: Option<(Arc<Entry>, Loaded)>,
}

impl BlockReader {
    /// Creates a reader and starts its workers. They call `wake` from their threads when
    /// [`SymbolSource::symbol`] has returned [`Load::Pending`] and a symbol has become ready since.
    ///
    /// # Errors
    ///
    /// Returns an error if the system refuses to start the threads.
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

    /// Returns the bytes of blocks and repair symbols that are held or being made.
    pub fn memory_in_use(&self) -> usize {
        self.shared.memory_in_use()
    }

    fn entry(&mut self, block: BlockId) -> &Arc<Entry> {
        let catalog = self.shared.content.catalog();
        self.blocks
            .entry(block)
            .or_insert_with(|| Arc::new(Entry::new(block, catalog.get(block.toi))))
    }

    /// Looks up a symbol that was not loaded at the last look-up.
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
    /// Stops the workers, each after its current task. Does not wait for them.
    fn drop(&mut self) {
        self.shared.stop();
    }
}

impl fmt::Debug for BlockReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockReader").field("blocks", &self.blocks.len()).finish_non_exhaustive()
    }
}
