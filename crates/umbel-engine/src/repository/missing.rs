//! A client's missing symbols of an item, as the server keeps them.

use std::collections::BTreeMap;
use std::ops::Range;

use umbel_fec::Partition;
use umbel_wire::repository::{Need, NeedRun, SymbolRun};

use crate::runs::Runs;

/// Greatest number of runs of a need in one message. The rest follows in a later one.
const MOST_TOLD: usize = 1 << 16;

/// Missing symbols of a source block of which some are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BlockNeed<'a> {
    /// Any symbols, of this number.
    Count(u16),
    /// These encoding symbol IDs.
    Exact(&'a Runs),
}

impl BlockNeed<'_> {
    /// Returns the number of missing symbols.
    pub(crate) fn symbols(&self) -> u64 {
        match self {
            BlockNeed::Count(n) => u64::from(*n),
            BlockNeed::Exact(esis) => count(esis),
        }
    }
}

/// Blocks of an item that one or several clients are missing. Memory and time depend on the number
/// of runs, not of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Blocks of which nothing is held.
    whole: Runs,
    /// Runs of blocks that are each missing the same number of symbols: start to end, and symbols.
    /// They do not overlap, neither among themselves nor with the others.
    counted: BTreeMap<u32, (u32, u16)>,
    /// Missing encoding symbol IDs, by block.
    exact: BTreeMap<u32, Runs>,
}

impl Missing {
    /// Creates the set of all blocks of an item.
    pub(crate) fn everything(partition: &Partition) -> Missing {
        let mut missing = Missing::default();
        missing.whole.insert(0..partition.blocks());
        missing
    }

    /// Creates the set of blocks that a message names. Blocks outside the item are left out.
    pub(crate) fn from_need(need: &Need, partition: &Partition) -> Missing {
        let blocks = partition.blocks();
        let mut missing = Missing::default();
        match need {
            Need::Whole => return Missing::everything(partition),
            Need::Symbols(runs) => {
                for run in runs {
                    let end = run.first_block.saturating_add(run.blocks).min(blocks);
                    for alike in alike(partition, run.first_block..end) {
                        if u32::from(run.symbols) >= partition.block_symbols(alike.start) {
                            missing.add_whole(alike);
                        } else {
                            missing.add_count(alike, run.symbols);
                        }
                    }
                }
            }
            Need::Exact(runs) => {
                for run in runs.iter().filter(|run| run.block < blocks) {
                    let k = partition.block_symbols(run.block);
                    let end = run.first_esi.saturating_add(run.count).min(k);
                    missing.add_exact(run.block, run.first_esi..end);
                }
            }
        }
        missing
    }

    /// Adds blocks of which nothing is held.
    pub(crate) fn add_whole(&mut self, blocks: Range<u32>) {
        self.clear_partial(&blocks);
        self.whole.insert(blocks);
    }

    /// Adds blocks that are each missing this number of symbols. Where more are missing already,
    /// the greater number stays.
    fn add_count(&mut self, blocks: Range<u32>, symbols: u16) {
        if blocks.is_empty() || symbols == 0 {
            return;
        }
        let mut taken: Vec<Range<u32>> = self.whole.runs(blocks.clone()).collect();
        // One item has one scheme, and the scheme decides the form of its needs. If a client mixes
        // them, the greater need wins.
        let exact = self.exact.range(blocks.clone());
        let (more, less): (Vec<_>, Vec<_>) =
            exact.partition(|(_, esis)| count(esis) >= u64::from(symbols));
        taken.extend(more.into_iter().map(|(&block, _)| block..block + 1));
        let less: Vec<u32> = less.into_iter().map(|(&block, _)| block).collect();
        for block in &less {
            self.exact.remove(block);
        }
        for (run, held) in self.take_counted(&blocks) {
            if held > symbols {
                taken.push(run.clone());
                self.put_counted(run, held);
            }
        }
        taken.sort_unstable_by_key(|run| run.start);
        let mut at = blocks.start;
        for run in taken.into_iter().chain(std::iter::once(blocks.end..blocks.end)) {
            if at < run.start {
                self.put_counted(at..run.start, symbols);
            }
            at = at.max(run.end);
        }
    }

    /// Adds missing symbols of a block.
    fn add_exact(&mut self, block: u32, esis: Range<u32>) {
        if esis.is_empty() || self.whole.contains(block) {
            return;
        }
        let counted = self.take_counted(&(block..block + 1)).pop().map(|(_, symbols)| symbols);
        let exact = self.exact.entry(block).or_default();
        exact.insert(esis);
        if let Some(symbols) = counted.filter(|&symbols| u64::from(symbols) > count(exact)) {
            self.exact.remove(&block);
            self.put_counted(block..block + 1, symbols);
        }
    }

    /// Adds everything that is missing in `other`.
    pub(crate) fn merge(&mut self, other: &Missing) {
        for run in other.whole.iter() {
            self.add_whole(run);
        }
        for (&start, &(end, symbols)) in &other.counted {
            self.add_count(start..end, symbols);
        }
        for (&block, esis) in &other.exact {
            for run in esis.iter() {
                self.add_exact(block, run);
            }
        }
    }

    /// Removes these blocks.
    pub(crate) fn clear(&mut self, blocks: Range<u32>) {
        self.clear_partial(&blocks);
        self.whole.remove(blocks);
    }

    fn clear_partial(&mut self, blocks: &Range<u32>) {
        self.take_counted(blocks);
        let exact: Vec<u32> = self.exact.range(blocks.clone()).map(|(&block, _)| block).collect();
        for block in exact {
            self.exact.remove(&block);
        }
    }

    /// Removes the counts of these blocks, and returns them.
    fn take_counted(&mut self, blocks: &Range<u32>) -> Vec<(Range<u32>, u16)> {
        let mut taken = Vec::new();
        if blocks.is_empty() {
            return taken;
        }
        while let Some((&start, &(end, symbols))) = self.counted.range(..blocks.end).next_back()
            && end > blocks.start
        {
            self.counted.remove(&start);
            if end > blocks.end {
                self.counted.insert(blocks.end, (end, symbols));
            }
            if start < blocks.start {
                self.counted.insert(start, (blocks.start, symbols));
            }
            taken.push((start.max(blocks.start)..end.min(blocks.end), symbols));
        }
        taken
    }

    /// Inserts the count of blocks that have none. Neighbours with the same count become one run.
    fn put_counted(&mut self, blocks: Range<u32>, symbols: u16) {
        let Range { mut start, mut end } = blocks;
        if let Some((&before, &(past, same))) = self.counted.range(..start).next_back()
            && (past, same) == (start, symbols)
        {
            start = before;
        }
        if let Some(&(past, same)) = self.counted.get(&end)
            && same == symbols
        {
            self.counted.remove(&end);
            end = past;
        }
        self.counted.insert(start, (end, symbols));
    }

    /// Removes all but these blocks.
    pub(crate) fn keep_only(&mut self, blocks: Range<u32>) {
        self.clear(0..blocks.start);
        self.clear(blocks.end..u32::MAX);
    }

    /// Returns whether nothing is missing.
    pub(crate) fn is_empty(&self) -> bool {
        self.whole.is_empty() && self.counted.is_empty() && self.exact.is_empty()
    }

    /// Returns the number of runs, which determines the memory used.
    pub(crate) fn runs(&self) -> usize {
        let exact: usize = self.exact.values().map(Runs::len).sum();
        self.whole.len() + self.counted.len() + exact
    }

    /// Returns whether nothing of the block is held.
    pub(crate) fn is_whole(&self, block: u32) -> bool {
        self.whole.contains(block)
    }

    /// Returns the missing symbols of a block of which some are held.
    pub(crate) fn partial(&self, block: u32) -> Option<BlockNeed<'_>> {
        if let Some((_, &(end, symbols))) = self.counted.range(..=block).next_back()
            && block < end
        {
            return Some(BlockNeed::Count(symbols));
        }
        self.exact.get(&block).map(BlockNeed::Exact)
    }

    /// Returns the first block from `from` on that is missing anything.
    pub(crate) fn next_block(&self, from: u32) -> Option<u32> {
        if self.is_whole(from) || self.partial(from).is_some() {
            return Some(from);
        }
        let whole = self.whole.runs(from..u32::MAX).next().map(|run| run.start);
        let counted = self.counted.range(from..).next().map(|(&start, _)| start);
        let exact = self.exact.range(from..).next().map(|(&block, _)| block);
        [whole, counted, exact].into_iter().flatten().min()
    }

    /// Returns the number of missing symbols.
    pub(crate) fn symbols(&self, partition: &Partition) -> u64 {
        let whole = self.whole.iter().map(|run| partition.symbols_of(run));
        let counted = self
            .counted
            .iter()
            .map(|(&start, &(end, symbols))| u64::from(end - start) * u64::from(symbols));
        whole.sum::<u64>() + counted.sum::<u64>() + self.exact.values().map(count).sum::<u64>()
    }
}

/// Returns the size of a set.
fn count(set: &Runs) -> u64 {
    u64::from(set.count(0..u32::MAX))
}

/// Splits blocks into runs with equally many symbols each. Larger blocks come first [RFC 5052
/// §9.1].
pub(crate) fn alike(partition: &Partition, blocks: Range<u32>) -> [Range<u32>; 2] {
    let Range { start, end } = blocks;
    let step = partition.large_blocks().clamp(start, end.max(start));
    [start..step, step..end.max(step)]
}

/// Builds the [`Need`] of a message from the blocks in ascending order.
#[derive(Debug, Default)]
pub(crate) struct NeedBuilder {
    runs: Vec<NeedRun>,
    exact: Vec<SymbolRun>,
}

impl NeedBuilder {
    /// Returns whether the message is full. The rest follows in a later one.
    pub(crate) fn is_full(&self) -> bool {
        self.runs.len().max(self.exact.len()) >= MOST_TOLD
    }

    /// Adds blocks that need `symbols` further symbols each.
    pub(crate) fn count(&mut self, blocks: Range<u32>, symbols: u16) {
        let many = blocks.end.saturating_sub(blocks.start);
        let full = self.is_full();
        match self.runs.last_mut() {
            _ if many == 0 => {}
            Some(run) if run.symbols == symbols && run.first_block + run.blocks == blocks.start => {
                run.blocks += many;
            }
            _ if full => {}
            _ => self.runs.push(NeedRun { first_block: blocks.start, blocks: many, symbols }),
        }
    }

    /// Adds a block that needs these symbols.
    pub(crate) fn exact(&mut self, block: u32, esis: Range<u32>) {
        let count = esis.end.saturating_sub(esis.start);
        if count > 0 && !self.is_full() {
            self.exact.push(SymbolRun { block, first_esi: esis.start, count });
        }
    }

    /// Returns the finished need.
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

    fn exact(esis: &[Range<u32>]) -> Runs {
        let mut runs = Runs::default();
        for run in esis {
            runs.insert(run.clone());
        }
        runs
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
    fn a_run_of_all_blocks_of_a_huge_item_is_one_run() {
        let p = partition((1 << 24) * 8 - 5);
        assert_eq!(p.blocks(), 1 << 24);
        let run = NeedRun { first_block: 0, blocks: 1 << 24, symbols: 1 };
        let mut missing = Missing::from_need(&Need::Symbols(vec![run]), &p);
        assert_eq!((missing.runs(), missing.symbols(&p)), (1, 1 << 24));
        let run = NeedRun { symbols: 7, ..run };
        missing.merge(&Missing::from_need(&Need::Symbols(vec![run]), &p));
        assert_eq!(missing.symbols(&p), 7 << 24);
        // The last five blocks have seven symbols, the others eight.
        assert!(missing.is_whole((1 << 24) - 1) && !missing.is_whole((1 << 24) - 6));
        missing.clear(5..1 << 23);
        assert_eq!((missing.runs(), missing.next_block(5)), (3, Some(1 << 23)));
        missing.keep_only(1 << 23..(1 << 23) + 2);
        assert_eq!(missing.symbols(&p), 14);
    }

    #[test]
    fn the_greater_count_wins_and_exact_needs_unite() {
        let mut missing = Missing::default();
        missing.add_count(0..1, 2);
        missing.add_count(0..1, 5);
        missing.add_count(0..1, 1);
        missing.add_exact(1, 0..2);
        missing.add_exact(1, 4..5);
        missing.add_exact(1, 1..3);
        assert_eq!(missing.partial(0), Some(BlockNeed::Count(5)));
        assert_eq!(missing.partial(1), Some(BlockNeed::Exact(&exact(&[0..3, 4..5]))));
        // A client that mixes both forms.
        missing.add_count(0..2, 3);
        assert_eq!(missing.partial(1), Some(BlockNeed::Exact(&exact(&[0..3, 4..5]))));
        missing.add_count(1..2, 9);
        missing.add_exact(1, 0..7);
        assert_eq!(missing.partial(1), Some(BlockNeed::Count(9)));
    }

    #[test]
    fn a_need_is_told_up_to_its_limit() {
        let mut need = NeedBuilder::default();
        for block in 0..200_000 {
            need.count(block..block + 1, 1 + (block % 2) as u16);
        }
        assert!(need.is_full());
        need.count(200_000..200_001, 9);
        let Need::Symbols(runs) = need.finish() else { panic!() };
        assert_eq!(runs.len(), MOST_TOLD);
    }

    proptest! {
        #[test]
        fn behaves_like_a_map_of_blocks(
            operations in prop::collection::vec((0_u8..4, 0_u32..40, 1_u32..20, 1_u16..5), 1..60)
        ) {
            let p = partition(64 * 8);
            let mut missing = Missing::default();
            let mut model = vec![0_u16; 64]; // Missing symbols; 8 is all.
            for (kind, start, len, symbols) in operations {
                let blocks = start..start + len;
                let cells = &mut model[start as usize..(start + len) as usize];
                match kind {
                    0 => {
                        missing.add_whole(blocks.clone());
                        cells.fill(8);
                    }
                    1 => {
                        missing.clear(blocks.clone());
                        cells.fill(0);
                    }
                    2 => {
                        missing.add_count(blocks.clone(), symbols);
                        for cell in cells.iter_mut() {
                            *cell = symbols.max(*cell);
                        }
                    }
                    _ => {
                        let mut other = Missing::default();
                        other.add_count(blocks.clone(), symbols);
                        other.add_whole(start..start + 1);
                        missing.merge(&other);
                        for cell in cells.iter_mut() {
                            *cell = symbols.max(*cell);
                        }
                        cells[0] = 8;
                    }
                }
                for (block, &state) in (0_u32..).zip(&model) {
                    prop_assert_eq!(missing.is_whole(block), state == 8);
                    let need = (1..8).contains(&state).then_some(BlockNeed::Count(state));
                    prop_assert_eq!(missing.partial(block), need);
                    let next = model[block as usize..].iter().position(|&s| s > 0);
                    prop_assert_eq!(missing.next_block(block), next.map(|at| block + at as u32));
                }
                let symbols: u64 = model.iter().map(|&s| u64::from(s)).sum();
                prop_assert_eq!(missing.symbols(&p), symbols);
                let runs = model.chunk_by(|a, b| a == b).filter(|run| run[0] > 0).count();
                prop_assert_eq!(missing.runs(), runs);
            }
        }
    }
}
