//! Symbols without content.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Counts symbols and forgets them. Clones have the same items, and count for themselves what is
/// stored through them.
#[derive(Clone, Debug, Default)]
pub struct CountingSink {
    symbols: u64,
    blocks: u64,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    items: Mutex<Items>,
    /// Whether `items` may have a complete one: asked with every packet, without its lock.
    may_have_complete: AtomicBool,
}

#[derive(Debug, Default)]
struct Items {
    /// Number of blocks of each item that are not restored.
    left: BTreeMap<Toi, u32>,
    complete: VecDeque<Toi>,
}

impl CountingSink {
    fn lock(&self) -> MutexGuard<'_, Items> {
        self.shared.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an item with this number of blocks.
    pub fn add(&self, toi: Toi, blocks: u32) {
        let mut items = self.lock();
        if blocks == 0 {
            self.complete(&mut items, toi);
        } else {
            items.left.insert(toi, blocks);
        }
    }

    fn complete(&self, items: &mut Items, toi: Toi) {
        items.complete.push_back(toi);
        self.shared.may_have_complete.store(true, Ordering::Release);
    }

    /// Returns an item of which every block is restored, once.
    #[inline]
    pub fn take_complete(&self) -> Option<Toi> {
        if !self.shared.may_have_complete.load(Ordering::Acquire) {
            return None;
        }
        let mut items = self.lock();
        let toi = items.complete.pop_front();
        self.shared.may_have_complete.store(!items.complete.is_empty(), Ordering::Release);
        toi
    }

    /// Returns the number of symbols that were stored through this clone, all different.
    pub fn symbols(&self) -> u64 {
        self.symbols
    }

    /// Returns the number of blocks that were restored through this clone.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }
}

impl SymbolSink for CountingSink {
    fn store(&mut self, _block: BlockId, _esi: u32, _symbol: &[u8]) -> bool {
        self.symbols += 1;
        true
    }

    fn restore(&mut self, block: BlockId) {
        self.blocks += 1;
        let mut items = self.lock();
        let Some(left) = items.left.get_mut(&block.toi) else { return };
        *left -= 1;
        if *left == 0 {
            items.left.remove(&block.toi);
            self.complete(&mut items, block.toi);
        }
    }

    fn rest(&mut self, _block: BlockId) {}
}
