//! Symbols without content.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_fec::Partition;

use super::Catalog;

/// Gives symbols of the right length that all share one payload.
#[derive(Clone, Debug)]
pub struct CountingSource {
    catalog: Arc<Catalog>,
    payload: Bytes,
}

impl CountingSource {
    /// Symbols of these items.
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

/// Counts symbols and forgets them: the engine says when those of a block suffice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CountingSink {
    /// Symbols that were taken; no two alike.
    pub symbols: u64,
    /// Blocks that were restored.
    pub blocks: u64,
}

impl SymbolSink for CountingSink {
    fn store(&mut self, _block: BlockId, _esi: u32, _symbol: &[u8]) -> bool {
        self.symbols += 1;
        true
    }

    fn restore(&mut self, _block: BlockId) {
        self.blocks += 1;
    }

    fn rest(&mut self, _block: BlockId) {}
}
