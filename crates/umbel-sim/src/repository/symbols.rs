//! Symbols without content.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_fec::Partition;
use umbel_wire::Toi;

use super::Catalog;

/// Source of symbols of the right length that all share one payload.
#[derive(Clone, Debug)]
pub struct CountingSource {
    catalog: Arc<Catalog>,
    payload: Bytes,
}

impl CountingSource {
    /// Creates a source of symbols of these items.
    pub fn new(catalog: Arc<Catalog>) -> CountingSource {
        let longest = catalog.items().iter().map(|item| item.oti.symbol_len).max().unwrap_or(0);
        CountingSource { catalog, payload: Bytes::from(vec![0; usize::from(longest)]) }
    }
}

impl SymbolSource for CountingSource {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        let Some(item) = self.catalog.item(block.toi) else {
            return Load::Gone("there is no such item".to_owned());
        };
        let mut len = u64::from(item.oti.symbol_len);
        if !item.oti.object_len.is_multiple_of(len)
            && let Ok(partition) = Partition::new(&item.oti)
            && esi < partition.block_symbols(block.sbn)
        {
            let range = partition.symbol_range(block.sbn, esi);
            len = range.end - range.start;
        }
        Load::Ready(self.payload.slice(..len as usize))
    }

    fn release(&mut self, _block: BlockId) {}
}

/// Counts symbols and forgets them. Clones are the same sink.
#[derive(Clone, Debug, Default)]
pub struct CountingSink(Arc<Mutex<Counted>>);

#[derive(Debug, Default)]
struct Counted {
    symbols: u64,
    blocks: u64,
    /// Number of blocks of each item that are not restored.
    left: BTreeMap<Toi, u32>,
    complete: VecDeque<Toi>,
}

impl CountingSink {
    fn lock(&self) -> MutexGuard<'_, Counted> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item with this number of blocks.
    pub fn add(&self, toi: Toi, blocks: u32) {
        let mut counted = self.lock();
        if blocks == 0 {
            counted.complete.push_back(toi);
        } else {
            counted.left.insert(toi, blocks);
        }
    }

    /// Returns an item of which every block is restored, once.
    pub fn take_complete(&self) -> Option<Toi> {
        self.lock().complete.pop_front()
    }

    /// Returns the number of symbols that were stored, all different.
    pub fn symbols(&self) -> u64 {
        self.lock().symbols
    }

    /// Returns the number of blocks that were restored.
    pub fn blocks(&self) -> u64 {
        self.lock().blocks
    }
}

impl SymbolSink for CountingSink {
    fn store(&mut self, _block: BlockId, _esi: u32, _symbol: &[u8]) -> bool {
        self.lock().symbols += 1;
        true
    }

    fn restore(&mut self, block: BlockId) {
        let mut counted = self.lock();
        counted.blocks += 1;
        let Some(left) = counted.left.get_mut(&block.toi) else { return };
        *left -= 1;
        if *left == 0 {
            counted.left.remove(&block.toi);
            counted.complete.push_back(block.toi);
        }
    }

    fn rest(&mut self, _block: BlockId) {}
}
