//! The layout of a feed: the mapping between its blocks and those of its items. Blocks of items that
//! are holes are none of the feed.

use std::collections::BTreeSet;
use std::ops::Range;

use umbel_engine::symbols::BlockId;
use umbel_fec::{FecError, Partition};
use umbel_wire::repository::ItemInfo;
use umbel_wire::tmtp::BlockRun;
use umbel_wire::{Oti, Scheme, Toi};

use super::seal::SEAL_LEN;

/// Parameters by which a feed's contents are split.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockShape {
    /// Bytes of a symbol; at least 1.
    pub symbol_len: u16,
    /// Maximum number of source symbols in a block; 1 to 255.
    pub block_symbols: u8,
    /// Whether source symbols are [sealed](super::seal). Those of the head never are.
    pub sealed: bool,
}

impl BlockShape {
    /// Returns the number of content bytes in a full symbol after the head. Returns 0 if sealed
    /// symbols of this length have no room for content.
    pub fn content_len(&self) -> u16 {
        let seal = if self.sealed { SEAL_LEN as u16 } else { 0 };
        self.symbol_len.saturating_sub(seal)
    }

    /// Returns the partition of a head of `object_len` bytes.
    ///
    /// # Errors
    ///
    /// Returns an error if the head would have more blocks than the code can number.
    pub fn partition(&self, object_len: u64) -> Result<Partition, FecError> {
        Partition::new(&Oti {
            scheme: Scheme::ReedSolomon,
            object_len,
            symbol_len: self.symbol_len,
            max_block_symbols: self.block_symbols.into(),
            max_encoding_symbols: 255,
        })
    }
}

/// Most blocks of a feed of files: 370 GB in blocks of 64 packets of 1,400 bytes, 1.4 TB in blocks
/// of 255 packets. Receivers keep a digest of each, and visit each of them between two datagrams.
pub(super) const MAX_BLOCKS: u32 = umbel_wire::feed::FILE_BLOCKS;

/// Reason why items do not make a feed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// All items together have too many blocks.
    #[error("more than {MAX_BLOCKS} blocks: send less, or take `--block 255`, or longer packets")]
    TooManyBlocks,
    /// An item is not split like the feed.
    #[error("item {0:?} is cut in another way than its feed")]
    Shape(String),
    /// An item or the manifest cannot be split.
    #[error(transparent)]
    Cut(#[from] FecError),
}

/// The blocks of a feed of files.
#[derive(Clone, Debug)]
pub struct Layout {
    manifest: Partition,
    /// Runs of blocks of items, by their first block. Those of an item follow each other.
    slots: Vec<Slot>,
    blocks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    first: u32,
    toi: Toi,
    /// First block of the run in its item, and number of blocks.
    sbn: u32,
    count: u32,
    partition: Partition,
}

impl Slot {
    /// Returns the number in the feed after the last block.
    fn end(&self) -> u32 {
        self.first + self.count
    }
}

impl Layout {
    /// Creates the layout of a feed with a manifest, or head, of `manifest_len` bytes and these
    /// items.
    ///
    /// # Errors
    ///
    /// Returns an error if the items do not fit the shape or there are too many.
    pub fn new(
        shape: BlockShape,
        manifest_len: u64,
        items: &[ItemInfo],
    ) -> Result<Layout, LayoutError> {
        let manifest = shape.partition(manifest_len)?;
        let mut layout = Layout { manifest, slots: Vec::new(), blocks: manifest.blocks() };
        let mut all = layout.blocks;
        for item in items {
            let Oti { scheme, symbol_len, max_block_symbols, .. } = item.oti;
            if scheme != Scheme::ReedSolomon
                || symbol_len != shape.content_len()
                || max_block_symbols != u16::from(shape.block_symbols)
            {
                return Err(LayoutError::Shape(item.name.clone()));
            }
            let partition = Partition::new(&item.oti)?;
            // Holes count, since receivers keep a digest of them, too.
            all = all.saturating_add(partition.blocks());
            if all > MAX_BLOCKS {
                return Err(LayoutError::TooManyBlocks);
            }
            for run in item.data_blocks() {
                let (sbn, count) = (run.start, run.end - run.start);
                let first = layout.blocks;
                layout.slots.push(Slot { first, toi: item.toi, sbn, count, partition });
                layout.blocks += count;
            }
        }
        Ok(layout)
    }

    /// Returns the partition of the manifest.
    pub fn manifest(&self) -> &Partition {
        &self.manifest
    }

    /// Returns the number of all blocks, including those of the manifest.
    pub fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns runs of equally long blocks: number of blocks, and their source symbols.
    pub fn runs(&self) -> Vec<(u32, u8)> {
        let slots = self.slots.iter();
        let slots = slots.map(|slot| (&slot.partition, slot.sbn..slot.sbn + slot.count));
        runs_of(std::iter::once((&self.manifest, 0..self.manifest.blocks())).chain(slots))
    }

    /// Returns the item's block that corresponds to a block of the feed. Returns `None` for blocks
    /// of the manifest and after the end.
    pub fn locate(&self, block: u32) -> Option<BlockId> {
        let after = self.slots.partition_point(|slot| slot.first <= block);
        let slot = &self.slots[after.checked_sub(1)?];
        let sbn = slot.sbn + (block - slot.first);
        (block < slot.end()).then_some(BlockId { toi: slot.toi, sbn })
    }

    /// Returns the items that a run of blocks touches.
    pub fn items_in(&self, run: BlockRun) -> BTreeSet<Toi> {
        let from = self.slots.partition_point(|slot| slot.first <= run.first).saturating_sub(1);
        let slots = self.slots[from..].iter().take_while(|slot| slot.first < run.end());
        let touched = slots.filter(|slot| slot.end() > run.first);
        touched.map(|slot| slot.toi).collect()
    }

    /// Returns the feed's number of an item's block; `None` if it is a hole.
    pub fn block_of(&self, id: BlockId) -> Option<u32> {
        let slots = self.slots_of(id.toi);
        let after = slots.partition_point(|slot| slot.sbn <= id.sbn);
        let slot = &slots[after.checked_sub(1)?];
        (id.sbn < slot.sbn + slot.count).then(|| slot.first + (id.sbn - slot.sbn))
    }

    /// Returns the number of an item's first block in the feed, and its partition. Returns `None`
    /// for an item without blocks in the feed.
    pub fn item(&self, toi: Toi) -> Option<(u32, &Partition)> {
        self.slots_of(toi).first().map(|slot| (slot.first, &slot.partition))
    }

    /// Returns the blocks of the feed that are of an item. Returns `None` if there are none.
    pub fn blocks_of(&self, toi: Toi) -> Option<BlockRun> {
        let slots = self.slots_of(toi);
        let (first, last) = (slots.first()?, slots.last()?);
        Some(BlockRun { first: first.first, count: last.end() - first.first })
    }

    /// Returns the runs of an item's blocks.
    fn slots_of(&self, toi: Toi) -> &[Slot] {
        // Manifests list their items in ascending order. Any other order is only slower.
        let mut start = self.slots.partition_point(|slot| slot.toi < toi);
        if self.slots.get(start).is_none_or(|slot| slot.toi != toi) {
            start = self.slots.iter().position(|slot| slot.toi == toi).unwrap_or(0);
        }
        // In a manifest out of order, the guess may be in the midst of the item's runs.
        while start > 0 && self.slots[start - 1].toi == toi {
            start -= 1;
        }
        let len = self.slots[start..].iter().take_while(|slot| slot.toi == toi).count();
        &self.slots[start..start + len]
    }
}

/// Returns runs of equally long blocks of these blocks of partitions, one after the other.
pub(super) fn runs_of<'a>(
    blocks: impl Iterator<Item = (&'a Partition, Range<u32>)>,
) -> Vec<(u32, u8)> {
    let mut runs: Vec<(u32, u8)> = Vec::new();
    for (partition, blocks) in blocks {
        let small = partition.block_symbols(partition.blocks().saturating_sub(1));
        let large =
            partition.total_source_symbols() - u64::from(small) * u64::from(partition.blocks());
        let end_of_large = blocks.end.min(large as u32).max(blocks.start);
        for (count, symbols) in
            [(end_of_large - blocks.start, small + 1), (blocks.end - end_of_large, small)]
        {
            match runs.last_mut() {
                _ if count == 0 => {}
                Some((run, of)) if u32::from(*of) == symbols => *run += count,
                _ => runs.push((count, symbols as u8)),
            }
        }
    }
    runs
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;
    use umbel_wire::Digest;
    use umbel_wire::repository::ItemKind;

    pub(crate) fn item(toi: u32, object_len: u64, shape: BlockShape) -> ItemInfo {
        ItemInfo {
            toi: Toi(toi),
            name: format!("item {toi}"),
            digest: Digest([1; 32]),
            modified_ns: None,
            mode: None,
            kind: ItemKind::File,
            holes: None,
            media_type: String::new(),
            oti: Oti {
                scheme: Scheme::ReedSolomon,
                object_len,
                symbol_len: shape.content_len(),
                max_block_symbols: shape.block_symbols.into(),
                max_encoding_symbols: 255,
            },
        }
    }

    #[test]
    fn a_feed_of_more_blocks_than_can_be_visited_is_refused() {
        let shape = BlockShape { symbol_len: 1, block_symbols: 1, sealed: false };
        let of = |lens: &[u64]| {
            let items: Vec<_> = (1..).zip(lens).map(|(toi, &len)| item(toi, len, shape)).collect();
            Layout::new(shape, 1, &items).map(|layout| layout.blocks())
        };
        let most = u64::from(MAX_BLOCKS);
        assert_eq!(of(&[most - 2, 1]), Ok(MAX_BLOCKS));
        assert_eq!(of(&[most - 2, 2]), Err(LayoutError::TooManyBlocks));
    }

    proptest! {
        #[test]
        fn every_block_is_one_block_of_one_thing(
            lens in prop::collection::vec(0_u64..2_000, 0..8),
            manifest_len in 1_u64..500,
            symbol_len in 1_u16..50,
            block_symbols in 1_u8..20,
            hole in 0_u32..3,
        ) {
            let shape = BlockShape { symbol_len, block_symbols, sealed: false };
            let mut items: Vec<_> =
                (1..).zip(&lens).map(|(toi, &len)| item(toi, len, shape)).collect();
            for item in items.iter_mut().step_by(2) {
                let blocks = Partition::new(&item.oti).unwrap().blocks();
                let holes = (0..blocks).filter(|sbn| sbn % 3 == hole);
                item.holes = Some(holes.map(|sbn| sbn..sbn + 1).collect());
            }
            let layout = Layout::new(shape, manifest_len, &items).unwrap();
            let mut lengths = layout.runs().into_iter().flat_map(|(count, symbols)| {
                std::iter::repeat_n(u32::from(symbols), count as usize)
            });
            for sbn in 0..layout.manifest().blocks() {
                prop_assert_eq!(layout.locate(sbn), None);
                prop_assert_eq!(lengths.next(), Some(layout.manifest().block_symbols(sbn)));
            }
            let mut block = layout.manifest().blocks();
            for item in &items {
                let partition = Partition::new(&item.oti).unwrap();
                let first = block;
                for sbn in 0..partition.blocks() {
                    let id = BlockId { toi: item.toi, sbn };
                    if item.holes.iter().flatten().any(|hole| hole.contains(&sbn)) {
                        prop_assert_eq!(layout.block_of(id), None);
                        continue;
                    }
                    prop_assert_eq!(layout.locate(block), Some(id));
                    prop_assert_eq!(layout.block_of(id), Some(block));
                    prop_assert_eq!(lengths.next(), Some(partition.block_symbols(sbn)));
                    block += 1;
                }
                let run = (block > first).then(|| BlockRun { first, count: block - first });
                prop_assert_eq!(layout.blocks_of(item.toi), run);
            }
            prop_assert_eq!(lengths.next(), None);
            for first in 0..block + 2 {
                let run = BlockRun { first, count: 1 + first % 5 };
                let located = (first..run.end()).filter_map(|block| layout.locate(block));
                let touched: BTreeSet<Toi> = located.map(|id| id.toi).collect();
                prop_assert_eq!(layout.items_in(run), touched);
            }
            prop_assert_eq!(layout.blocks(), block);
            prop_assert_eq!(layout.locate(block), None);
        }
    }

    #[test]
    fn an_item_that_is_cut_in_another_way_is_refused() {
        let shape = BlockShape { symbol_len: 10, block_symbols: 4, sealed: false };
        let other = BlockShape { block_symbols: 5, ..shape };
        let refused = Layout::new(shape, 1, &[item(1, 100, other)]);
        assert!(matches!(refused, Err(LayoutError::Shape(_))));
    }
}
