//! The content that the tests send, and where it arrives.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_fec::{Code, SymbolSet};
use umbel_wire::Scheme;

use crate::symbols::{BlockId, Load, SymbolSink, SymbolSource};

pub(super) const SYMBOL_LEN: usize = 12;

/// Returns the bytes of a source symbol.
fn source_symbol(block: u32, esi: u32, len: usize) -> Vec<u8> {
    let seed = u64::from(block) << 32 | u64::from(esi);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut bytes = vec![0; len];
    random.fill_bytes(&mut bytes);
    bytes
}

fn whole_block(block: u32, k: u32, len: usize) -> Vec<u8> {
    (0..k).flat_map(|esi| source_symbol(block, esi, len)).collect()
}

/// A source of any symbol of any block that was not released.
#[derive(Debug)]
pub(super) struct Blocks {
    lengths: Arc<Vec<u8>>,
    /// Blocks before this were released. A pipe has them no more.
    pub(super) released: u32,
    pub(super) pipe: bool,
    /// Blocks of the manifest, which are kept.
    head: u32,
    /// Bytes of a symbol.
    pub(super) symbol_len: usize,
}

impl Blocks {
    /// Creates the content of a pipe or of files, with blocks of these lengths. The first `head`
    /// of them are kept anyway.
    pub(super) fn new(lengths: Arc<Vec<u8>>, pipe: bool, head: u32) -> Blocks {
        Blocks { lengths, released: 0, pipe, head, symbol_len: SYMBOL_LEN }
    }
}

impl SymbolSource for Blocks {
    fn prefetch(&mut self, _: BlockId, _: Range<u32>) {}

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        if self.pipe && (self.head..self.released).contains(&block.sbn) {
            return Load::Gone("forgotten".to_owned());
        }
        let k = u32::from(self.lengths[block.sbn as usize]);
        if esi < k {
            return Load::Ready(source_symbol(block.sbn, esi, self.symbol_len).into());
        }
        let len = self.symbol_len;
        let mut out = vec![0; len];
        let code = Code::new(Scheme::ReedSolomon);
        let block = whole_block(block.sbn, k, len);
        code.encode(k, len, &block, esi..esi + 1, &mut out).unwrap();
        Load::Ready(out.into())
    }

    fn release(&mut self, block: BlockId) {
        self.released = self.released.max(block.sbn + 1);
    }
}

/// A sink that keeps symbols, and restores blocks when it is told to.
#[derive(Debug, Default)]
pub(super) struct Store {
    lengths: Arc<Vec<u8>>,
    symbols: BTreeMap<(u32, u32), Vec<u8>>,
    pub(super) blocks: BTreeMap<u32, Vec<u8>>,
    /// Nobody reads, so nothing is taken any more.
    pub(super) refuses: bool,
    pub(super) stored: u64,
    /// Blocks that were not the source's, if that is expected.
    pub(super) wrong: Option<Vec<u32>>,
    /// Bytes of a symbol.
    pub(super) symbol_len: usize,
    /// Symbols of blocks that were wrong.
    doubted: BTreeMap<(u32, u32), Vec<u8>>,
}

impl Store {
    /// Creates an empty sink for blocks of these lengths.
    pub(super) fn new(lengths: Arc<Vec<u8>>) -> Store {
        Store { lengths, symbol_len: SYMBOL_LEN, ..Store::default() }
    }
}

impl SymbolSink for Store {
    fn store(&mut self, block: BlockId, esi: u32, symbol: &[u8]) -> bool {
        if self.refuses {
            return false;
        }
        self.stored += 1;
        self.doubted.retain(|(sbn, _), _| *sbn != block.sbn);
        let twice = self.symbols.insert((block.sbn, esi), symbol.to_vec());
        assert!(twice.is_none(), "symbol {esi} of block {} was stored twice", block.sbn);
        true
    }

    fn restore(&mut self, block: BlockId) {
        let len = self.symbol_len;
        let k = u32::from(self.lengths[block.sbn as usize]);
        let held: Vec<(u32, Vec<u8>)> = self
            .symbols
            .range((block.sbn, 0)..=(block.sbn, 255))
            .map(|((_, e), s)| (*e, s.clone()))
            .collect();
        let mut data = vec![0; k as usize * len];
        let mut present = SymbolSet::new(k);
        for (esi, symbol) in held.iter().filter(|(esi, _)| *esi < k) {
            data[*esi as usize * len..][..len].copy_from_slice(symbol);
            present.insert(*esi);
        }
        let repairs: Vec<(u32, &[u8])> =
            held.iter().filter(|(esi, _)| *esi >= k).map(|(esi, s)| (*esi, &s[..])).collect();
        Code::new(Scheme::ReedSolomon).restore(k, len, &mut data, &present, &repairs).unwrap();
        if let Some(wrong) = self.wrong.as_mut().filter(|_| data != whole_block(block.sbn, k, len))
        {
            wrong.push(block.sbn);
            self.forget(block);
            let held = held.into_iter().map(|(esi, symbol)| ((block.sbn, esi), symbol));
            return self.doubted.extend(held);
        }
        assert_eq!(data, whole_block(block.sbn, k, len), "block {}", block.sbn);
        assert!(self.blocks.insert(block.sbn, data).is_none(), "block {} twice", block.sbn);
    }

    fn rest(&mut self, _: BlockId) {}

    fn forget(&mut self, block: BlockId) {
        self.symbols.retain(|(sbn, _), _| *sbn != block.sbn);
        self.doubted.retain(|(sbn, _), _| *sbn != block.sbn);
    }

    fn retain(
        &mut self,
        block: BlockId,
        is_right: &dyn Fn(u32, &[u8]) -> bool,
    ) -> Option<Vec<u32>> {
        let of_block = (block.sbn, 0)..=(block.sbn, 255);
        let doubted: Vec<_> =
            self.doubted.range(of_block.clone()).map(|(k, s)| (*k, s.clone())).collect();
        self.symbols.extend(doubted);
        self.doubted.retain(|(sbn, _), _| *sbn != block.sbn);
        let held = self.symbols.range(of_block);
        let wrong = held.filter(|((_, esi), symbol)| !is_right(*esi, symbol));
        let wrong: Vec<u32> = wrong.map(|((_, esi), _)| *esi).collect();
        for &esi in &wrong {
            self.symbols.remove(&(block.sbn, esi));
        }
        Some(wrong)
    }
}
