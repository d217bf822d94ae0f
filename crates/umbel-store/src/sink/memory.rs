//! A sink in memory, for tests of engines.

use std::collections::{BTreeMap, HashMap};

use umbel_engine::symbols::{BlockId, SymbolSink};
use umbel_fec::{Code, FecError, Partition, SymbolSet};
use umbel_wire::Toi;
use umbel_wire::repository::ItemInfo;

/// A sink that keeps items in memory and restores each block at once. Its memory is unbounded.
#[derive(Debug, Default)]
pub struct MemorySink {
    items: HashMap<Toi, MemoryItem>,
    failed: Vec<BlockId>,
}

#[derive(Debug)]
struct MemoryItem {
    info: ItemInfo,
    partition: Partition,
    content: Vec<u8>,
    blocks: BTreeMap<u32, MemoryBlock>,
    restored: SymbolSet,
}

#[derive(Debug)]
struct MemoryBlock {
    data: Vec<u8>,
    source: SymbolSet,
    repairs: BTreeMap<u32, Vec<u8>>,
}

impl MemorySink {
    /// Creates an empty sink.
    pub fn new() -> MemorySink {
        MemorySink::default()
    }

    /// Adds an item to be received.
    ///
    /// # Errors
    ///
    /// Returns an error if its transmission information is invalid.
    pub fn add(&mut self, info: ItemInfo) -> Result<(), FecError> {
        let partition = Partition::new(&info.oti)?;
        let content = vec![0; partition.object_len() as usize];
        let restored = SymbolSet::new(partition.blocks());
        let blocks = BTreeMap::new();
        self.items.insert(info.toi, MemoryItem { info, partition, content, blocks, restored });
        Ok(())
    }

    /// Returns the content of an item, if all blocks are restored and its digest matches.
    pub fn verified(&self, toi: Toi) -> Option<&[u8]> {
        let item = self.items.get(&toi).filter(|item| item.restored.is_full())?;
        let matches = *blake3::hash(&item.content).as_bytes() == item.info.digest.0;
        matches.then_some(&item.content)
    }

    /// Returns the blocks whose restoration failed, in the order of the attempts.
    pub fn failed_blocks(&self) -> &[BlockId] {
        &self.failed
    }
}

impl SymbolSink for MemorySink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let Some(item) = self.items.get_mut(&block.toi) else { return false };
        let partition = item.partition;
        let symbol_len = usize::from(partition.symbol_len());
        let k = partition.block_symbols(block.sbn);
        if k == 0 || symbol.len() > symbol_len {
            return false;
        }
        let entry = item.blocks.entry(block.sbn).or_insert_with(|| MemoryBlock {
            data: vec![0; k as usize * symbol_len],
            source: SymbolSet::new(k),
            repairs: BTreeMap::new(),
        });
        if esi < k {
            entry.data[esi as usize * symbol_len..][..symbol.len()].copy_from_slice(symbol);
            entry.source.insert(esi);
        } else {
            entry.repairs.insert(esi, symbol.to_vec());
        }
        true
    }

    fn restore(&mut self, block: BlockId) {
        let Some(item) = self.items.get_mut(&block.toi) else { return };
        if item.restored.contains(block.sbn) {
            return;
        }
        let partition = item.partition;
        let restored = item.blocks.get_mut(&block.sbn).is_some_and(|held| {
            let repairs: Vec<(u32, &[u8])> =
                held.repairs.iter().map(|(&esi, symbol)| (esi, symbol.as_slice())).collect();
            let k = partition.block_symbols(block.sbn);
            let symbol_len = usize::from(partition.symbol_len());
            Code::new(item.info.oti.scheme)
                .restore(k, symbol_len, &mut held.data, &held.source, &repairs)
                .is_ok()
        });
        if !restored {
            self.failed.push(block);
            return;
        }
        if let Some(held) = item.blocks.remove(&block.sbn) {
            let range = partition.block_range(block.sbn);
            let (start, end) = (range.start as usize, range.end as usize);
            item.content[start..end].copy_from_slice(&held.data[..end - start]);
            item.restored.insert(block.sbn);
        }
    }

    fn rest(&mut self, _block: BlockId) {}
}
