//! An item that the client wants, and the symbols of it that are held.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use umbel_fec::Partition;
use umbel_wire::repository::Need;
use umbel_wire::{Oti, Scheme};

use crate::Instant;
use crate::repository::missing::{NeedBuilder, alike};
use crate::runs::Runs;

/// Words of a [`NumberSet`] that it holds in itself.
const OWN_WORDS: usize = 4;

/// A set of small numbers. Those below 256, which are all of a Reed–Solomon block, take no further
/// memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NumberSet {
    own: [u64; OWN_WORDS],
    further: Vec<u64>,
    len: u32,
}

impl NumberSet {
    /// Adds `n`. Returns whether it was not there.
    #[inline]
    pub(super) fn insert(&mut self, n: u32) -> bool {
        let further = (n as usize / 64 + 1).saturating_sub(OWN_WORDS);
        if self.further.len() < further {
            self.further.resize(further, 0);
        }
        let Some(word) = self.word(n) else { return false };
        let bit = 1 << (n % 64);
        let new = *word & bit == 0;
        *word |= bit;
        self.len += u32::from(new);
        new
    }

    /// Returns the word that has the bit of `n`.
    #[inline]
    fn word(&mut self, n: u32) -> Option<&mut u64> {
        let number = n as usize / 64;
        match number.checked_sub(OWN_WORDS) {
            None => self.own.get_mut(number),
            Some(further) => self.further.get_mut(further),
        }
    }

    #[inline]
    pub(super) fn contains(&self, n: u32) -> bool {
        let number = n as usize / 64;
        let word = match number.checked_sub(OWN_WORDS) {
            None => self.own.get(number),
            Some(further) => self.further.get(further),
        };
        word.is_some_and(|word| word & (1 << (n % 64)) != 0)
    }

    #[inline]
    pub(super) fn len(&self) -> u32 {
        self.len
    }

    fn remove(&mut self, n: u32) {
        if !self.contains(n) {
            return;
        }
        if let Some(word) = self.word(n) {
            *word &= !(1 << (n % 64));
        }
        self.len -= 1;
    }
}

/// Parts of an item that an application already holds when it asks for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Runs of source blocks that are complete.
    pub complete: Vec<Range<u32>>,
    /// Runs among them that the server does not send: holes of the item.
    pub holes: Vec<Range<u32>>,
    /// Encoding symbol IDs held of other blocks, by block.
    pub partial: BTreeMap<u32, Vec<u32>>,
}

impl Held {
    /// Returns whether nothing is held but what the server does not send.
    pub(super) fn is_nothing_sent(&self) -> bool {
        self.partial.is_empty() && self.complete == self.holes
    }
}

/// Effect of a new symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// More symbols of the block are needed.
    New,
    /// The block can be restored with it.
    BlockComplete,
}

/// An item that is being received.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) oti: Oti,
    pub(super) partition: Partition,
    /// Blocks that can be restored.
    complete: Runs,
    /// Symbols held of each block. Boxed, since a node of a map has room for eleven.
    partial: BTreeMap<u32, Box<NumberSet>>,
    /// Further symbols that a block needs because its restoration failed (RaptorQ).
    extra: BTreeMap<u32, u32>,
    /// Time at which something was last heard of it.
    pub(super) last_heard: Instant,
    /// Number of times that each block was found to be damaged.
    damages: BTreeMap<u32, u32>,
    /// Blocks that multicast has damaged so often that they come on the session.
    by_session: BTreeSet<u32>,
    /// Blocks of which symbols were held when the item became suspect.
    unverified: BTreeSet<u32>,
}

/// RaptorQ encoding symbol IDs below this are accepted. A source that goes beyond is broken.
const MAX_ESI: u32 = 1 << 20;

impl Item {
    pub(super) fn new(oti: Oti, partition: Partition, held: &Held, now: Instant) -> Item {
        let mut item = Item {
            oti,
            partition,
            complete: Runs::default(),
            partial: BTreeMap::new(),
            extra: BTreeMap::new(),
            last_heard: now,
            damages: BTreeMap::new(),
            by_session: BTreeSet::new(),
            unverified: BTreeSet::new(),
        };
        let blocks = item.partition.blocks();
        for run in &held.complete {
            item.complete.insert(run.start..run.end.min(blocks));
        }
        for (&block, esis) in held.partial.iter().filter(|&(&block, _)| block < blocks) {
            for &esi in esis.iter().filter(|&&esi| esi < MAX_ESI) {
                item.partial.entry(block).or_default().insert(esi);
            }
        }
        item
    }

    /// Notes that blocks were damaged, so that nothing is held of them. Those damaged `most` times
    /// come on the session.
    pub(super) fn on_damaged(&mut self, blocks: &[u32], most: u32) {
        let end = self.partition.blocks();
        for &block in blocks.iter().filter(|&&block| block < end) {
            let damages = self.damages.entry(block).or_default();
            *damages = damages.saturating_add(1);
            if *damages >= most {
                self.by_session.insert(block);
            }
            self.forget_block(block);
        }
    }

    /// Returns whether a block comes on the session alone.
    #[inline]
    pub(super) fn is_by_session(&self, block: u32) -> bool {
        self.by_session.contains(&block)
    }

    /// Returns what is missing of the blocks that come on the session alone, if there are any.
    pub(super) fn session_need(&self) -> Option<Need> {
        let mut need = NeedBuilder::default();
        for &block in &self.by_session {
            match self.partial.get(&block) {
                Some(held) => self.need_partial(&mut need, block, held),
                None => self.need_untouched(&mut need, block..block + 1),
            }
        }
        (!self.by_session.is_empty()).then(|| need.finish())
    }

    /// Notes that a block has come on the session. Returns whether it was the last that had to.
    pub(super) fn on_session_block(&mut self, block: u32) -> bool {
        self.by_session.remove(&block) && self.by_session.is_empty()
    }

    /// Notes that the symbols held so far may be wrong. Returns the blocks to which they belong.
    pub(super) fn doubt(&mut self) -> impl Iterator<Item = u32> {
        self.unverified = self.partial_blocks(0..u32::MAX).collect();
        self.unverified.iter().copied()
    }

    /// Takes a block whose symbols are to be verified. Returns whether it is one.
    pub(super) fn take_unverified(&mut self, block: u32) -> bool {
        self.unverified.remove(&block)
    }

    /// Forgets symbols of a block that is not complete.
    pub(super) fn forget_symbols(&mut self, block: u32, esis: &[u32]) {
        if let Some(held) = self.partial.get_mut(&block) {
            for &esi in esis {
                held.remove(esi);
            }
            if held.len() == 0 {
                self.partial.remove(&block);
            }
        }
    }

    /// Returns whether a block cannot be restored yet.
    #[inline]
    pub(super) fn lacks_block(&self, block: u32) -> bool {
        !self.complete.contains(block)
    }

    /// Returns whether every block can be restored.
    #[inline]
    pub(super) fn is_complete(&self) -> bool {
        self.complete.first_gap(0) >= self.partition.blocks()
    }

    /// Returns whether nothing is held yet.
    pub(super) fn is_untouched(&self) -> bool {
        self.complete.is_empty() && self.partial.is_empty()
    }

    /// Returns the number of symbols that must be held of a block.
    #[inline]
    fn enough(&self, block: u32) -> u32 {
        self.partition.block_symbols(block) + self.extra.get(&block).copied().unwrap_or(0)
    }

    /// Returns whether the item has this symbol and it has this length.
    #[inline]
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

    /// Returns whether the item has this block and its content has this length.
    pub(super) fn is_block(&self, block: u32, len: usize) -> bool {
        if block >= self.partition.blocks() {
            return false;
        }
        let range = self.partition.block_range(block);
        len as u64 == range.end - range.start
    }

    /// Returns whether a symbol would be new.
    #[inline]
    pub(super) fn lacks(&self, block: u32, esi: u32) -> bool {
        !self.complete.contains(block)
            && !self.partial.get(&block).is_some_and(|held| held.contains(esi))
    }

    /// Notes a symbol that was missing.
    #[inline]
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
        // The symbols stay noted if the code may fail, because they then count again.
        if self.oti.scheme != Scheme::RaptorQ {
            self.partial.remove(&block);
        }
        self.complete.insert(block..block + 1);
    }

    /// Notes that the block could not be restored from the held symbols.
    pub(super) fn restore_failed(&mut self, block: u32) {
        self.complete.remove(block..block + 1);
        let held = self.partial.get(&block).map_or(0, |held| held.len());
        let k = self.partition.block_symbols(block);
        self.extra.insert(block, (held + 2).saturating_sub(k).max(2));
    }

    /// Forgets everything held of the block.
    pub(super) fn forget_block(&mut self, block: u32) {
        self.complete.remove(block..block + 1);
        self.partial.remove(&block);
        self.extra.remove(&block);
    }

    /// Returns the blocks of the run of which some symbols, but not enough, are held.
    pub(super) fn partial_blocks(&self, blocks: Range<u32>) -> impl Iterator<Item = u32> {
        self.partial
            .range(blocks)
            .map(|(&block, _)| block)
            .filter(|&block| !self.complete.contains(block))
    }

    /// Returns the missing symbols of these blocks, as far as a message holds them. O(blocks of
    /// which something is held).
    pub(super) fn need(&self, blocks: Range<u32>) -> Need {
        let mut need = NeedBuilder::default();
        let end = blocks.end.min(self.partition.blocks());
        for gap in self.complete.gaps(blocks.start.min(end)..end) {
            let mut at = gap.start;
            for (&block, held) in self.partial.range(gap.clone()) {
                self.need_untouched(&mut need, at..block);
                self.need_partial(&mut need, block, held);
                at = block + 1;
                if need.is_full() {
                    return need.finish();
                }
            }
            self.need_untouched(&mut need, at..gap.end);
            if need.is_full() {
                break;
            }
        }
        need.finish()
    }

    /// Adds blocks of which nothing is held.
    fn need_untouched(&self, need: &mut NeedBuilder, blocks: Range<u32>) {
        for alike in alike(&self.partition, blocks) {
            let symbols = self.partition.block_symbols(alike.start);
            if self.oti.scheme != Scheme::NoCode {
                need.count(alike, u16::try_from(symbols).unwrap_or(u16::MAX));
                continue;
            }
            for block in alike {
                if need.is_full() {
                    return;
                }
                need.exact(block, 0..symbols);
            }
        }
    }

    fn need_partial(&self, need: &mut NeedBuilder, block: u32, held: &NumberSet) {
        if self.oti.scheme == Scheme::NoCode {
            let mut first = None;
            for esi in 0..=self.partition.block_symbols(block) {
                let lacks = esi < self.partition.block_symbols(block) && !held.contains(esi);
                match first {
                    None if lacks => first = Some(esi),
                    Some(start) if !lacks => {
                        need.exact(block, start..esi);
                        first = None;
                    }
                    _ => {}
                }
            }
        } else {
            let lacking = self.enough(block).saturating_sub(held.len());
            need.count(block..block + 1, u16::try_from(lacking).unwrap_or(u16::MAX).max(1));
        }
    }

    /// Returns the missing symbols of the whole item.
    pub(super) fn whole_need(&self) -> Need {
        if self.is_untouched() { Need::Whole } else { self.need(0..self.partition.blocks()) }
    }

    /// Returns the number of complete blocks, and of all blocks of the item.
    pub(super) fn progress(&self) -> (u32, u32) {
        let blocks = self.partition.blocks();
        (self.complete.count(0..blocks), blocks)
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::repository::{NeedRun, SymbolRun};

    use super::*;

    fn item(scheme: Scheme, symbols: u64, max_block_symbols: u16, held: &Held) -> Item {
        let oti = Oti {
            scheme,
            object_len: symbols * 10,
            symbol_len: 10,
            max_block_symbols,
            max_encoding_symbols: 255,
        };
        Item::new(oti, Partition::new(&oti).unwrap(), held, Instant::EPOCH)
    }

    fn run(first_block: u32, blocks: u32, symbols: u16) -> NeedRun {
        NeedRun { first_block, blocks, symbols }
    }

    #[test]
    fn numbers_are_held_on_both_sides_of_what_a_set_has_room_for() {
        let edge = OWN_WORDS as u32 * 64;
        let numbers = [0, 63, 64, edge - 1, edge, edge + 63, edge + 64, MAX_ESI - 1];
        let mut set = NumberSet::default();
        for n in numbers {
            assert!(!set.contains(n) && set.insert(n) && set.contains(n), "{n}");
            assert!(!set.insert(n), "{n} is there already");
        }
        assert_eq!(set.len() as usize, numbers.len());
        assert!(!set.contains(edge + 1) && !set.contains(MAX_ESI));
        for (n, left) in numbers.into_iter().zip((0..numbers.len() as u32).rev()) {
            set.remove(n);
            set.remove(n);
            assert_eq!((set.contains(n), set.len()), (false, left), "{n}");
        }
    }

    #[test]
    fn what_a_huge_item_needs_is_told_by_runs() {
        // 2^24 blocks; the last three have 7 symbols, the others 8.
        let held = Held {
            holes: Vec::new(),
            complete: vec![5..1 << 20, 4_000_000_000..u32::MAX],
            partial: [(2, vec![0, 1, 2]), (u32::MAX, vec![0])].into(),
        };
        let mut item = item(Scheme::ReedSolomon, (1 << 27) - 3, 8, &held);
        assert_eq!(item.progress(), ((1 << 20) - 5, 1 << 24));
        let rest = (1 << 24) - (1 << 20) - 3;
        let runs = [
            run(0, 2, 8),
            run(2, 1, 5),
            run(3, 2, 8),
            run(1 << 20, rest, 8),
            run((1 << 24) - 3, 3, 7),
        ];
        assert_eq!(item.whole_need(), Need::Symbols(runs.to_vec()));
        assert_eq!(item.need(5..1 << 20), Need::Symbols(vec![]));
        for esi in 3..8 {
            item.take(2, esi);
        }
        assert_eq!(item.need(2..3), Need::Symbols(vec![]));
    }

    #[test]
    fn symbols_without_a_code_are_told_by_runs_up_to_the_limit_of_a_message() {
        let held = Held {
            complete: std::iter::once(0..1).collect(),
            holes: Vec::new(),
            partial: [(1, vec![0, 3])].into(),
        };
        let item = item(Scheme::NoCode, (1 << 32) - (1 << 16), u16::MAX, &held);
        let Need::Exact(runs) = item.whole_need() else { panic!() };
        assert_eq!((runs.len(), item.partition.blocks()), (1 << 16, 1 << 16));
        let last = item.partition.block_symbols(1) - 4;
        assert_eq!(runs[0], SymbolRun { block: 1, first_esi: 1, count: 2 });
        assert_eq!(runs[1], SymbolRun { block: 1, first_esi: 4, count: last });
    }
}
