//! Items in memory: the server's content, and the clients' copies.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_fec::{Code, Partition, SymbolSet};
use umbel_wire::{Digest, Oti, Scheme, Toi};

use crate::symbols::{BlockId, Load, SymbolSink, SymbolSource};

pub(super) const SYMBOL: u16 = 64;

#[derive(Clone, Debug)]
pub(super) struct Object {
    pub(super) oti: Oti,
    pub(super) bytes: Vec<u8>,
}

impl Object {
    pub(super) fn new(scheme: Scheme, len: usize, k: u16, seed: u64) -> Object {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut bytes = vec![0; len];
        random.fill_bytes(&mut bytes);
        let oti = Oti {
            scheme,
            object_len: len as u64,
            symbol_len: SYMBOL,
            max_block_symbols: k,
            max_encoding_symbols: 255,
        };
        Object { oti, bytes }
    }

    /// Returns the digests of the blocks.
    pub(super) fn block_digests(&self) -> Vec<Digest> {
        let blocks = 0..Partition::new(&self.oti).unwrap().blocks();
        blocks.map(|sbn| digest_of(&self.padded_block(sbn).1)).collect()
    }

    /// Returns encoding symbols of a block as they are sent, with their numbers.
    pub(super) fn symbols(
        &self,
        sbn: u32,
        esis: Range<u32>,
    ) -> impl Iterator<Item = (u32, Vec<u8>)> {
        let partition = Partition::new(&self.oti).unwrap();
        let end = esis.end.min(partition.max_encoding_symbols(sbn));
        (esis.start..end).map(move |esi| (esi, self.symbol(sbn, esi)))
    }

    fn symbol(&self, sbn: u32, esi: u32) -> Vec<u8> {
        let (k, source) = self.padded_block(sbn);
        let mut out = vec![0; usize::from(SYMBOL)];
        Code::new(self.oti.scheme)
            .encode(k, SYMBOL.into(), &source, esi..esi + 1, &mut out)
            .unwrap();
        if esi < k {
            let range = Partition::new(&self.oti).unwrap().symbol_range(sbn, esi);
            out.truncate((range.end - range.start) as usize);
        }
        out
    }

    pub(super) fn padded_block(&self, sbn: u32) -> (u32, Vec<u8>) {
        let partition = Partition::new(&self.oti).unwrap();
        let k = partition.block_symbols(sbn);
        let range = partition.block_range(sbn);
        let mut block = self.bytes[range.start as usize..range.end as usize].to_vec();
        block.resize(k as usize * usize::from(SYMBOL), 0);
        (k, block)
    }
}

/// Serves objects from memory.
#[derive(Debug, Default)]
pub(super) struct MemorySource {
    pub(super) objects: BTreeMap<Toi, Object>,
    /// Items that turn out to be unreadable.
    pub(super) gone: BTreeSet<Toi>,
    /// Number of times that each symbol was asked for.
    pub(super) asked: BTreeMap<(BlockId, u32), u32>,
}

impl SymbolSource for MemorySource {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        if self.gone.contains(&block.toi) {
            return Load::Gone("it was deleted".to_owned());
        }
        *self.asked.entry((block, esi)).or_default() += 1;
        Load::Ready(self.objects[&block.toi].symbol(block.sbn, esi).into())
    }

    fn release(&mut self, _block: BlockId) {}
}

/// Returns the digest of a block that is padded to whole symbols.
fn digest_of(block: &[u8]) -> Digest {
    Digest(*blake3::hash(block).as_bytes())
}

/// Keeps symbols in memory and restores blocks at once.
#[derive(Debug, Default)]
pub(super) struct MemorySink {
    pub(super) otis: BTreeMap<Toi, Oti>,
    symbols: BTreeMap<BlockId, BTreeMap<u32, Vec<u8>>>,
    pub(super) blocks: BTreeMap<BlockId, Vec<u8>>,
    pub(super) failed: Vec<BlockId>,
    /// Items of which every block is restored, until the host takes them.
    pub(super) complete: Vec<Toi>,
    /// Blocks that did not have their digests, until the host takes them.
    pub(super) bad: Vec<BlockId>,
    /// Digests of the blocks of items, once they are known.
    digests: BTreeMap<Toi, Vec<Digest>>,
    pub(super) refuse: bool,
}

impl MemorySink {
    pub(super) fn add(&mut self, toi: Toi, oti: Oti) {
        self.otis.insert(toi, oti);
        if oti.object_len == 0 {
            self.complete.push(toi);
        }
    }

    /// Drops a block, as if it did not have its digest.
    pub(super) fn drop_block(&mut self, block: BlockId) {
        self.symbols.remove(&block);
        self.blocks.remove(&block);
    }

    /// Drops the blocks that do not have these digests, now and when they come.
    pub(super) fn check_blocks(&mut self, toi: Toi, digests: Vec<Digest>) {
        let of_item = BlockId { toi, sbn: 0 }..BlockId { toi: Toi(toi.0 + 1), sbn: 0 };
        let blocks = self.blocks.range(of_item);
        let wrong = blocks.filter(|(id, block)| digest_of(block) != digests[id.sbn as usize]);
        let wrong: Vec<BlockId> = wrong.map(|(&id, _)| id).collect();
        for &block in &wrong {
            self.drop_block(block);
        }
        self.bad.extend(wrong);
        self.digests.insert(toi, digests);
    }

    pub(super) fn object(&self, toi: Toi) -> Vec<u8> {
        let oti = &self.otis[&toi];
        let partition = Partition::new(oti).unwrap();
        let mut object = Vec::new();
        for sbn in 0..partition.blocks() {
            object.extend_from_slice(&self.blocks[&BlockId { toi, sbn }]);
        }
        object.truncate(oti.object_len as usize);
        object
    }
}

impl SymbolSink for MemorySink {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        if self.refuse {
            return false;
        }
        let mut symbol = symbol.to_vec();
        symbol.resize(SYMBOL.into(), 0);
        let old = self.symbols.entry(block).or_default().insert(esi, symbol);
        assert!(old.is_none(), "symbol {esi} of {block:?} was stored twice");
        true
    }

    fn restore(&mut self, block: BlockId) {
        let oti = self.otis[&block.toi];
        let partition = Partition::new(&oti).unwrap();
        let k = partition.block_symbols(block.sbn);
        let mut bytes = vec![0; k as usize * usize::from(SYMBOL)];
        let mut present = SymbolSet::new(k);
        let mut repairs = Vec::new();
        for (&esi, symbol) in &self.symbols[&block] {
            if esi < k {
                let start = esi as usize * usize::from(SYMBOL);
                bytes[start..start + usize::from(SYMBOL)].copy_from_slice(symbol);
                present.insert(esi);
            } else {
                repairs.push((esi, symbol.as_slice()));
            }
        }
        let code = Code::new(oti.scheme);
        match code.restore(k, SYMBOL.into(), &mut bytes, &present, &repairs) {
            Ok(_) => {
                let digests = self.digests.get(&block.toi);
                if digests.is_some_and(|all| all[block.sbn as usize] != digest_of(&bytes)) {
                    self.drop_block(block);
                    return self.bad.push(block);
                }
                self.blocks.insert(block, bytes);
                let is_there = |sbn| self.blocks.contains_key(&BlockId { sbn, ..block });
                if (0..partition.blocks()).all(is_there) {
                    self.complete.push(block.toi);
                }
            }
            Err(_) => self.failed.push(block),
        }
    }

    fn rest(&mut self, _block: BlockId) {}

    fn forget(&mut self, block: BlockId) {
        self.symbols.remove(&block);
    }

    fn differs(&self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        let held = self.symbols.get(&block).and_then(|symbols| symbols.get(&esi));
        held.is_some_and(|held| held[..symbol.len()] != *symbol)
    }

    fn retain(
        &mut self,
        block: BlockId,
        is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        let oti = self.otis[&block.toi];
        let partition = Partition::new(&oti).unwrap();
        let k = partition.block_symbols(block.sbn);
        let symbols = self.symbols.get_mut(&block)?;
        let is_wrong = |esi: u32, symbol: &[u8]| {
            let range = partition.symbol_range(block.sbn, esi.min(k - 1));
            let len = if esi < k { (range.end - range.start) as usize } else { symbol.len() };
            !is_right(esi, &symbol[..len])
        };
        let wrong = symbols.extract_if(.., |&esi, symbol| is_wrong(esi, symbol));
        Some(wrong.map(|(esi, _)| esi).collect())
    }
}
