//! What a client still lacks of an item, as the server keeps it.

use std::collections::BTreeMap;
use std::ops::Range;

use umbel_fec::Partition;
use umbel_wire::repository::{Need, NeedRun, SymbolRun, limits};

/// What is lacking of one source block of which something is held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BlockNeed {
    /// So many further symbols, whichever.
    Count(u16),
    /// These symbols: ascending, not overlapping ranges of encoding symbol IDs.
    Exact(Vec<Range<u32>>),
}

/// The blocks of an item that a client, or several clients together, still lack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Runs of blocks of which nothing is held: start to end, ascending, not touching.
    whole: BTreeMap<u32, u32>,
    partial: BTreeMap<u32, BlockNeed>,
}

impl Missing {
    /// All of an item.
    pub(crate) fn everything(partition: &Partition) -> Missing {
        let mut missing = Missing::default();
        if partition.blocks() > 0 {
            missing.whole.insert(0, partition.blocks());
        }
        missing
    }

    /// What a message says that a client needs; what lies outside the item is left out.
    pub(crate) fn from_need(need: &Need, partition: &Partition) -> Missing {
        let blocks = partition.blocks();
        let mut missing = Missing::default();
        match need {
            Need::Whole => return Missing::everything(partition),
            Need::Symbols(runs) => {
                for run in runs {
                    let end = run.first_block.saturating_add(run.blocks).min(blocks);
                    missing.add_counted(run.first_block..end, run.symbols, partition);
                }
            }
            Need::Exact(runs) => {
                for run in runs.iter().filter(|run| run.block < blocks) {
                    let k = partition.block_symbols(run.block);
                    let end = run.first_esi.saturating_add(run.count).min(k);
                    if run.first_esi < end {
                        missing.add(run.block, &BlockNeed::exactly(run.first_esi..end));
                    }
                }
            }
        }
        missing
    }

    fn add_counted(&mut self, blocks: Range<u32>, symbols: u16, partition: &Partition) {
        let mut whole_from = None;
        for block in blocks.clone() {
            if u32::from(symbols) >= partition.block_symbols(block) {
                whole_from.get_or_insert(block);
                continue;
            }
            if let Some(start) = whole_from.take() {
                self.add_whole(start..block);
            }
            self.add(block, &BlockNeed::Count(symbols));
        }
        if let Some(start) = whole_from {
            self.add_whole(start..blocks.end);
        }
    }

    /// Adds blocks of which nothing is held.
    pub(crate) fn add_whole(&mut self, blocks: Range<u32>) {
        if blocks.is_empty() {
            return;
        }
        self.clear(blocks.clone());
        let mut start = blocks.start;
        let mut end = blocks.end;
        if let Some((&before, &before_end)) = self.whole.range(..start).next_back()
            && before_end == start
        {
            start = before;
        }
        if let Some(after_end) = self.whole.remove(&end) {
            end = after_end;
        }
        self.whole.insert(start, end);
    }

    /// Adds to what is lacking of a block, so that both what was lacking and `need` are met.
    pub(crate) fn add(&mut self, block: u32, need: &BlockNeed) {
        if self.is_whole(block) {
            return;
        }
        match self.partial.entry(block) {
            std::collections::btree_map::Entry::Vacant(entry) => {
                entry.insert(need.clone());
            }
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let held = entry.get_mut();
                *held = held.union(need);
            }
        }
    }

    /// Adds all that `other` lacks.
    pub(crate) fn merge(&mut self, other: &Missing) {
        for (&start, &end) in &other.whole {
            self.add_whole(start..end);
        }
        for (&block, need) in &other.partial {
            self.add(block, need);
        }
    }

    /// Forgets what is lacking of these blocks.
    pub(crate) fn clear(&mut self, blocks: Range<u32>) {
        if blocks.is_empty() {
            return;
        }
        let overlapping: Vec<(u32, u32)> = self
            .whole
            .range(..blocks.end)
            .rev()
            .take_while(|&(_, &end)| end > blocks.start)
            .map(|(&start, &end)| (start, end))
            .collect();
        for (start, end) in overlapping {
            self.whole.remove(&start);
            if start < blocks.start {
                self.whole.insert(start, blocks.start);
            }
            if end > blocks.end {
                self.whole.insert(blocks.end, end);
            }
        }
        let inside: Vec<u32> = self.partial.range(blocks).map(|(&block, _)| block).collect();
        for block in inside {
            self.partial.remove(&block);
        }
    }

    /// Returns whether nothing is lacking.
    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.partial.is_empty()
    }

    /// Whether nothing of the block is held.
    pub(crate) fn is_whole(&self, block: u32) -> bool {
        self.whole.range(..=block).next_back().is_some_and(|(_, &end)| block < end)
    }

    /// What is lacking of a block of which something is held.
    pub(crate) fn partial(&self, block: u32) -> Option<&BlockNeed> {
        self.partial.get(&block)
    }

    /// The first block from `from` on of which anything is lacking.
    pub(crate) fn next_block(&self, from: u32) -> Option<u32> {
        if self.is_whole(from) {
            return Some(from);
        }
        let whole = self.whole.range(from..).next().map(|(&start, _)| start);
        let partial = self.partial.range(from..).next().map(|(&block, _)| block);
        match (whole, partial) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// How many symbols are lacking.
    pub(crate) fn symbols(&self, partition: &Partition) -> u64 {
        let whole: u64 = self
            .whole
            .iter()
            .map(|(&start, &end)| {
                let first = u64::from(partition.block_symbols(start));
                let last = u64::from(partition.block_symbols(end - 1));
                // Larger blocks come first and all blocks but these two sizes are alike
                // [RFC 5052 §9.1], so a run is uniform unless it spans the step.
                if first == last {
                    first * u64::from(end - start)
                } else {
                    (start..end).map(|block| u64::from(partition.block_symbols(block))).sum()
                }
            })
            .sum();
        whole + self.partial.values().map(BlockNeed::symbols).sum::<u64>()
    }
}

impl BlockNeed {
    fn exactly(esis: Range<u32>) -> BlockNeed {
        BlockNeed::Exact(std::iter::once(esis).collect())
    }

    /// How many symbols are lacking.
    pub(crate) fn symbols(&self) -> u64 {
        match self {
            BlockNeed::Count(n) => u64::from(*n),
            BlockNeed::Exact(ranges) => ranges.iter().map(|r| u64::from(r.end - r.start)).sum(),
        }
    }

    fn union(&self, other: &BlockNeed) -> BlockNeed {
        match (self, other) {
            (BlockNeed::Count(a), BlockNeed::Count(b)) => BlockNeed::Count(*a.max(b)),
            (BlockNeed::Exact(a), BlockNeed::Exact(b)) => BlockNeed::Exact(merge_ranges(a, b)),
            // One item has one scheme, and the scheme decides how needs are told; should a
            // client mix them, the greater need wins.
            (a, b) => if a.symbols() >= b.symbols() { a } else { b }.clone(),
        }
    }
}

fn merge_ranges(a: &[Range<u32>], b: &[Range<u32>]) -> Vec<Range<u32>> {
    let mut all: Vec<Range<u32>> = a.iter().chain(b).cloned().collect();
    all.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u32>> = Vec::with_capacity(all.len());
    for range in all {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

/// Builds the [`Need`] of a message from the blocks in ascending order.
#[derive(Debug, Default)]
pub(crate) struct NeedBuilder {
    runs: Vec<NeedRun>,
    exact: Vec<SymbolRun>,
}

impl NeedBuilder {
    /// Adds a block that needs `symbols` further symbols.
    pub(crate) fn count(&mut self, block: u32, symbols: u16) {
        let full = self.runs.len() >= limits::RUNS;
        match self.runs.last_mut() {
            Some(run) if run.symbols == symbols && run.first_block + run.blocks == block => {
                run.blocks += 1;
            }
            // What a message cannot hold is told in a later one.
            _ if full => {}
            _ => self.runs.push(NeedRun { first_block: block, blocks: 1, symbols }),
        }
    }

    /// Adds a block that needs one certain symbol.
    pub(crate) fn exact(&mut self, block: u32, esi: u32) {
        let full = self.exact.len() >= limits::RUNS;
        match self.exact.last_mut() {
            Some(run) if run.block == block && run.first_esi + run.count == esi => run.count += 1,
            _ if full => {}
            _ => self.exact.push(SymbolRun { block, first_esi: esi, count: 1 }),
        }
    }

    /// The finished need.
    pub(crate) fn finish(self) -> Need {
        if self.exact.is_empty() { Need::Symbols(self.runs) } else { Need::Exact(self.exact) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use umbel_wire::{Oti, Scheme};

    fn partition(symbols: u64) -> Partition {
        Partition::new(&Oti {
            scheme: Scheme::ReedSolomon,
            object_len: symbols * 10,
            symbol_len: 10,
            max_block_symbols: 8,
            max_encoding_symbols: 16,
        })
        .unwrap()
    }

    #[test]
    fn everything_lacks_every_symbol() {
        let p = partition(30);
        assert_eq!(Missing::everything(&p).symbols(&p), 30);
        assert_eq!(Missing::everything(&partition(0)), Missing::default());
    }

    #[test]
    fn a_need_outside_the_item_is_left_out() {
        let p = partition(16);
        let run = |first_block, blocks, symbols| NeedRun { first_block, blocks, symbols };
        let need = Need::Symbols(vec![run(0, 1, 3), run(1, 4_000_000_000, 9)]);
        let missing = Missing::from_need(&need, &p);
        assert_eq!(missing.symbols(&p), 3 + 8);
        assert!(missing.is_whole(1) && !missing.is_whole(2));
    }

    #[test]
    fn the_greater_count_wins_and_exact_needs_unite() {
        let mut missing = Missing::default();
        missing.add(0, &BlockNeed::Count(2));
        missing.add(0, &BlockNeed::Count(5));
        missing.add(0, &BlockNeed::Count(1));
        missing.add(1, &BlockNeed::Exact(vec![0..2, 4..5]));
        missing.add(1, &BlockNeed::exactly(1..3));
        assert_eq!(missing.partial(0), Some(&BlockNeed::Count(5)));
        assert_eq!(missing.partial(1), Some(&BlockNeed::Exact(vec![0..3, 4..5])));
    }

    proptest! {
        #[test]
        fn behaves_like_a_set_of_blocks(
            operations in prop::collection::vec((0_u8..3, 0_u32..40, 1_u32..20), 1..60)
        ) {
            let mut missing = Missing::default();
            let mut model = vec![0_u16; 64]; // 0 nothing, 1 partial, 2 whole
            for (kind, start, len) in operations {
                let blocks = start..start + len;
                match kind {
                    0 => {
                        missing.add_whole(blocks.clone());
                        blocks.for_each(|b| model[b as usize] = 2);
                    }
                    1 => {
                        missing.clear(blocks.clone());
                        blocks.for_each(|b| model[b as usize] = 0);
                    }
                    _ => {
                        missing.add(start, &BlockNeed::Count(1));
                        let block = &mut model[start as usize];
                        *block = (*block).max(1);
                    }
                }
                for (block, &state) in (0_u32..).zip(&model) {
                    prop_assert_eq!(missing.is_whole(block), state == 2);
                    prop_assert_eq!(missing.partial(block).is_some(), state == 1);
                }
                let next = model.iter().position(|&s| s > 0).map(|b| b as u32);
                prop_assert_eq!(missing.next_block(0), next);
            }
        }
    }
}
