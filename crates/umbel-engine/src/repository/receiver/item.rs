//! An item that the client wants, and which of its symbols it holds.

use std::collections::BTreeMap;
use std::ops::Range;

use umbel_fec::Partition;
use umbel_wire::repository::Need;
use umbel_wire::{Oti, Scheme};

use crate::Instant;
use crate::repository::missing::NeedBuilder;

/// A set of small numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberSet {
    words: Vec<u64>,
    len: u32,
}

impl NumberSet {
    /// Adds `n`; gives whether it was not there.
    pub(super) fn insert(&mut self, n: u32) -> bool {
        let (word, bit) = (n as usize / 64, 1 << (n % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.len += u32::from(new);
        new
    }

    pub(super) fn remove(&mut self, n: u32) {
        if self.contains(n) {
            self.words[n as usize / 64] &= !(1 << (n % 64));
            self.len -= 1;
        }
    }

    pub(super) fn contains(&self, n: u32) -> bool {
        self.words.get(n as usize / 64).is_some_and(|word| word & (1 << (n % 64)) != 0)
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }
}

/// What an application already holds of an item when it asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Runs of source blocks that are complete.
    pub complete: Vec<Range<u32>>,
    /// Encoding symbol IDs held of other blocks.
    pub partial: BTreeMap<u32, Vec<u32>>,
}

/// What came of a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is new; more are needed.
    New,
    /// It is new, and the block can be restored with it.
    BlockComplete,
}

/// An item that is being received.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) oti: Oti,
    pub(super) partition: Partition,
    /// Blocks that can be restored.
    complete: NumberSet,
    partial: BTreeMap<u32, NumberSet>,
    /// Further symbols that a block needs because its restoration failed (RaptorQ).
    extra: BTreeMap<u32, u32>,
    /// When something was last heard of it.
    pub(super) last_heard: Instant,
}

/// RaptorQ encoding symbol IDs are taken up to this one: a source that goes beyond is broken.
const MAX_ESI: u32 = 1 << 20;

impl Item {
    pub(super) fn new(oti: Oti, partition: Partition, held: &Held, now: Instant) -> Item {
        let mut item = Item {
            oti,
            partition,
            complete: NumberSet::default(),
            partial: BTreeMap::new(),
            extra: BTreeMap::new(),
            last_heard: now,
        };
        let blocks = item.partition.blocks();
        for block in held.complete.iter().cloned().flatten().filter(|&block| block < blocks) {
            item.complete.insert(block);
        }
        for (&block, esis) in held.partial.iter().filter(|&(&block, _)| block < blocks) {
            for &esi in esis.iter().filter(|&&esi| esi < MAX_ESI) {
                item.partial.entry(block).or_default().insert(esi);
            }
        }
        item
    }

    /// Whether every block can be restored.
    pub(super) fn is_complete(&self) -> bool {
        self.complete.len() == self.partition.blocks()
    }

    /// Whether nothing is held yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.complete.len() == 0 && self.partial.is_empty()
    }

    /// Symbols that must be held of a block.
    fn enough(&self, block: u32) -> u32 {
        self.partition.block_symbols(block) + self.extra.get(&block).copied().unwrap_or(0)
    }

    /// Whether the item has this symbol and it has this length.
    pub(super) fn admits(&self, block: u32, esi: u32, len: usize) -> bool {
        if block >= self.partition.blocks() || esi >= MAX_ESI {
            return false;
        }
        if esi >= self.partition.block_symbols(block) {
            return esi < self.partition.max_encoding_symbols(block)
                && len == usize::from(self.oti.symbol_len);
        }
        let range = self.partition.symbol_range(block, esi);
        len as u64 == range.end - range.start
    }

    /// Whether the item has this block and its content has this length.
    pub(super) fn is_block(&self, block: u32, len: usize) -> bool {
        if block >= self.partition.blocks() {
            return false;
        }
        let range = self.partition.block_range(block);
        len as u64 == range.end - range.start
    }

    /// Whether a symbol would be new.
    pub(super) fn lacks(&self, block: u32, esi: u32) -> bool {
        !self.complete.contains(block)
            && !self.partial.get(&block).is_some_and(|held| held.contains(esi))
    }

    /// Notes a symbol that was lacking.
    pub(super) fn take(&mut self, block: u32, esi: u32) -> Taken {
        let enough = self.enough(block);
        let held = self.partial.entry(block).or_default();
        held.insert(esi);
        if held.len() < enough {
            return Taken::New;
        }
        self.complete_block(block);
        Taken::BlockComplete
    }

    /// Notes a block that can be restored.
    fn complete_block(&mut self, block: u32) {
        // The symbols stay noted where the code may fail: then they count again.
        if self.oti.scheme != Scheme::RaptorQ {
            self.partial.remove(&block);
        }
        self.complete.insert(block);
    }

    /// The block could not be restored from what is held of it.
    pub(super) fn restore_failed(&mut self, block: u32) {
        self.complete.remove(block);
        let held = self.partial.get(&block).map_or(0, NumberSet::len);
        let k = self.partition.block_symbols(block);
        self.extra.insert(block, (held + 2).saturating_sub(k).max(2));
    }

    /// Nothing of the block is held any more.
    pub(super) fn forget_block(&mut self, block: u32) {
        self.complete.remove(block);
        self.partial.remove(&block);
    }

    /// Blocks of the run of which some symbols, but not enough, are held.
    pub(super) fn partial_blocks(&self, blocks: Range<u32>) -> impl Iterator<Item = u32> {
        self.partial
            .range(blocks)
            .map(|(&block, _)| block)
            .filter(|&block| !self.complete.contains(block))
    }

    /// What these blocks still need.
    pub(super) fn need(&self, blocks: Range<u32>) -> Need {
        let mut need = NeedBuilder::default();
        for block in blocks.start..blocks.end.min(self.partition.blocks()) {
            if self.complete.contains(block) {
                continue;
            }
            let held = self.partial.get(&block);
            if self.oti.scheme == Scheme::NoCode {
                (0..self.partition.block_symbols(block))
                    .filter(|&esi| !held.is_some_and(|held| held.contains(esi)))
                    .for_each(|esi| need.exact(block, esi));
            } else {
                let lacking = self.enough(block).saturating_sub(held.map_or(0, NumberSet::len));
                need.count(block, u16::try_from(lacking).unwrap_or(u16::MAX).max(1));
            }
        }
        need.finish()
    }

    /// What the whole item still needs.
    pub(super) fn whole_need(&self) -> Need {
        if self.is_untouched() { Need::Whole } else { self.need(0..self.partition.blocks()) }
    }

    /// Blocks that are complete, and blocks of the item.
    pub(super) fn progress(&self) -> (u32, u32) {
        (self.complete.len(), self.partition.blocks())
    }
}
