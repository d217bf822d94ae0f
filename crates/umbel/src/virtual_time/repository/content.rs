//! The served content: real bytes, so that every byte can be verified.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand_core::Rng as _;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::symbols::{BlockId, Load, SymbolSource};
use umbel_fec::{Code, FecError, Partition};
use umbel_sim::random::below;
use umbel_wire::repository::{ItemInfo, ItemKind};
use umbel_wire::{Digest, Oti, Scheme, Toi};

use super::super::later::Later;

/// Bytes of a symbol.
pub(super) const SYMBOL: u16 = 64;
/// Most symbols of a block.
const BLOCK: u16 = 16;

/// Items with their content.
#[derive(Debug)]
pub(super) struct Catalog {
    items: BTreeMap<Toi, (ItemInfo, Bytes)>,
}

impl Catalog {
    /// Creates `count` items of up to 12 KB, one of them empty and one of a single byte. The seed
    /// determines names and contents; the numbers of objects begin at `first`.
    pub(super) fn new(count: u32, first: u32, random: &mut Xoshiro256PlusPlus) -> Catalog {
        let item = |number: u32| {
            let len = match number {
                0 => 0,
                1 => 1,
                _ => below(random, 12_000) as usize,
            };
            let mut content = vec![0; len];
            random.fill_bytes(&mut content);
            let info = ItemInfo {
                toi: Toi(first + number),
                name: format!("item-{number}"),
                digest: Digest(*blake3::hash(&content).as_bytes()),
                modified_ns: None,
                mode: None,
                kind: ItemKind::File,
                holes: None,
                media_type: String::new(),
                oti: Oti {
                    scheme: Scheme::ReedSolomon,
                    object_len: len as u64,
                    symbol_len: SYMBOL,
                    max_block_symbols: BLOCK,
                    max_encoding_symbols: 255,
                },
            };
            (info.toi, (info, content.into()))
        };
        Catalog { items: (0..count).map(item).collect() }
    }

    pub(super) fn items(&self) -> impl Iterator<Item = &(ItemInfo, Bytes)> {
        self.items.values()
    }

    pub(super) fn info(&self, toi: Toi) -> Option<&ItemInfo> {
        self.items.get(&toi).map(|(info, _)| info)
    }

    /// Returns the items with these names, or all if there are no patterns.
    pub(super) fn matching(&self, patterns: &[String]) -> Vec<ItemInfo> {
        let wanted = |info: &ItemInfo| patterns.is_empty() || patterns.contains(&info.name);
        self.items().map(|(info, _)| info).filter(|info| wanted(info)).cloned().collect()
    }

    /// Returns a source block as it is sent by unicast.
    pub(super) fn block(&self, toi: Toi, sbn: u32) -> Option<Bytes> {
        let (info, content) = self.items.get(&toi)?;
        let range = Partition::new(&info.oti).ok()?.block_range(sbn);
        Some(content.slice(range.start as usize..range.end as usize))
    }

    /// Returns those of these encoding symbols of a block that there are, with their numbers.
    pub(super) fn symbols(
        &self,
        block: BlockId,
        esis: Range<u32>,
    ) -> impl Iterator<Item = (u32, Bytes)> {
        let info = self.info(block.toi).into_iter();
        info.flat_map(move |info| {
            esis.clone().map_while(move |esi| Some((esi, self.encode(info, block.sbn, esi).ok()?)))
        })
    }

    fn encode(&self, info: &ItemInfo, sbn: u32, esi: u32) -> Result<Bytes, FecError> {
        let cut = Partition::new(&info.oti)?;
        let (k, len) = (cut.block_symbols(sbn), usize::from(SYMBOL));
        let content = self.block(info.toi, sbn).unwrap_or_default();
        if esi < k {
            let start = esi as usize * len;
            return Ok(content.slice(start..content.len().min(start + len)));
        }
        let mut padded = content.to_vec();
        padded.resize(k as usize * len, 0);
        let mut symbol = vec![0; len];
        Code::new(info.oti.scheme).encode(k, len, &padded, esi..esi + 1, &mut symbol)?;
        Ok(symbol.into())
    }

    /// Returns the digests of an item's blocks.
    pub(super) fn block_digests(&self, toi: Toi) -> Vec<Digest> {
        let blocks = self.info(toi).and_then(|info| Partition::new(&info.oti).ok());
        let blocks = blocks.map_or(0, |cut| cut.blocks());
        let block = |sbn| self.block(toi, sbn).unwrap_or_default();
        (0..blocks).map(|sbn| Digest(*blake3::hash(&block(sbn)).as_bytes())).collect()
    }
}

/// Provides symbols of a catalog, some of them only after a while.
#[derive(Debug)]
pub(super) struct Symbols {
    catalog: Arc<Catalog>,
    /// Signals that symbols are ready.
    ready: Later<()>,
    random: Xoshiro256PlusPlus,
    /// Whether a symbol was not ready; the next time it is.
    pending: bool,
    /// One in this number of symbols is not ready at once; 0: all are.
    slow_one_in: u64,
}

impl Symbols {
    pub(super) fn new(
        catalog: Arc<Catalog>,
        ready: Later<()>,
        random: Xoshiro256PlusPlus,
        slow_one_in: u64,
    ) -> Symbols {
        Symbols { catalog, ready, random, pending: false, slow_one_in }
    }
}

impl SymbolSource for Symbols {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, block: BlockId, esi: u32) -> Load {
        let slow = self.slow_one_in > 0 && below(&mut self.random, self.slow_one_in) == 0;
        if slow && !std::mem::replace(&mut self.pending, true) {
            let wait = Duration::from_micros(below(&mut self.random, 20_000));
            self.ready.put(wait, ());
            return Load::Pending;
        }
        self.pending = false;
        let Some(info) = self.catalog.info(block.toi) else {
            return Load::Gone("there is no such item".to_owned());
        };
        match self.catalog.encode(info, block.sbn, esi) {
            Ok(symbol) => Load::Ready(symbol),
            Err(error) => Load::Gone(error.to_string()),
        }
    }

    fn release(&mut self, _block: BlockId) {}
}
