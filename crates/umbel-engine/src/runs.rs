//! Sets of numbers, such as block numbers, kept as runs.

use std::collections::BTreeMap;
use std::iter::Sum;
use std::ops::{Range, Sub};

/// Numbers in ascending runs that do not touch. Every operation costs O(log runs) and, if it takes
/// a range, O(1) for each run that the range swallows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Runs<N = u32>(BTreeMap<N, N>);

impl<N> Default for Runs<N> {
    fn default() -> Runs<N> {
        Runs(BTreeMap::new())
    }
}

impl<N: Copy + Ord + Sub<Output = N> + Sum> Runs<N> {
    /// Adds numbers.
    pub(crate) fn insert(&mut self, blocks: Range<N>) {
        let Range { mut start, mut end } = blocks;
        if start >= end {
            return;
        }
        // The usual case: the next block of the last run.
        if let Some(mut last) = self.0.last_entry()
            && *last.get() == start
        {
            *last.get_mut() = end;
            return;
        }
        while let Some((&first, &past)) = self.0.range(..=end).next_back()
            && past >= start
        {
            self.0.remove(&first);
            start = start.min(first);
            end = end.max(past);
        }
        self.0.insert(start, end);
    }

    /// Removes numbers.
    pub(crate) fn remove(&mut self, blocks: Range<N>) {
        if blocks.is_empty() {
            return;
        }
        while let Some((&first, &past)) = self.0.range(..blocks.end).next_back()
            && past > blocks.start
        {
            self.0.remove(&first);
            if past > blocks.end {
                self.0.insert(blocks.end, past);
            }
            if first < blocks.start {
                self.0.insert(first, blocks.start);
            }
        }
    }

    /// Returns whether the set is empty.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the number of runs.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns all runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<N>> + '_ {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    /// Returns the number after the last one in the set.
    pub(crate) fn end(&self) -> Option<N> {
        self.0.last_key_value().map(|(_, &end)| end)
    }

    /// Returns whether the number is in the set.
    #[inline]
    pub(crate) fn contains(&self, block: N) -> bool {
        // Most often nothing is in the set, or the number is beyond the last run.
        match self.0.last_key_value() {
            Some((_, &past)) if block < past => {}
            _ => return false,
        }
        self.0.range(..=block).next_back().is_some_and(|(_, &past)| block < past)
    }

    /// Returns the first number from `from` on that is not in the set.
    pub(crate) fn first_gap(&self, from: N) -> N {
        match self.0.range(..=from).next_back() {
            Some((_, &past)) if past > from => past,
            _ => from,
        }
    }

    /// Returns the runs that have numbers in `within`, cut to it.
    pub(crate) fn runs(&self, within: Range<N>) -> impl Iterator<Item = Range<N>> + '_ {
        let first = self.0.range(..=within.start).next_back().map_or(within.start, |(&at, _)| at);
        self.0
            .range(first..within.end.max(first))
            .map(move |(&at, &past)| at.max(within.start)..past.min(within.end))
            .filter(|run| !run.is_empty())
    }

    /// Returns the runs of numbers in `within` that are not in the set.
    pub(crate) fn gaps(&self, within: Range<N>) -> impl Iterator<Item = Range<N>> + '_ {
        let mut at = within.start;
        let end = within.end;
        let ends = std::iter::once(end..end);
        self.runs(within).chain(ends).filter_map(move |run| {
            let gap = at..run.start;
            at = run.end;
            (!gap.is_empty()).then_some(gap)
        })
    }

    /// Returns the number of members of the set in `within`.
    pub(crate) fn count(&self, within: Range<N>) -> N {
        self.runs(within).map(|run| run.end - run.start).sum()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(runs: &[Range<u32>]) -> Runs {
        let mut set = Runs::default();
        for run in runs {
            set.insert(run.clone());
        }
        set
    }

    #[test]
    fn blocks_in_order_make_one_run() {
        let mut set = Runs::default();
        (0..100).for_each(|block| set.insert(block..block + 1));
        assert_eq!((set.0.len(), set.first_gap(0), set.count(0..u32::MAX)), (1, 100, 100));
    }

    #[test]
    fn the_greatest_block_numbers_are_no_exception() {
        let mut set = Runs::default();
        set.insert(u32::MAX - 1..u32::MAX);
        assert!(set.contains(u32::MAX - 1));
        assert_eq!(set.first_gap(u32::MAX - 1), u32::MAX);
    }

    #[test]
    fn gaps_lie_between_the_runs() {
        let set = of(&[2..4, 6..9]);
        assert_eq!(set.gaps(0..12).collect::<Vec<_>>(), [0..2, 4..6, 9..12]);
        assert!(set.gaps(3..7).eq(std::iter::once(4..6)));
        assert_eq!(set.gaps(6..9).count(), 0);
        assert_eq!(set.runs(3..7).collect::<Vec<_>>(), [3..4, 6..7]);
    }

    proptest! {
        #[test]
        fn behaves_like_a_set(
            operations in prop::collection::vec((any::<bool>(), 0_u32..60, 0_u32..15), 1..60)
        ) {
            let mut set = Runs::default();
            let mut model = [false; 80];
            for (insert, start, len) in operations {
                let blocks = start..start + len;
                if insert { set.insert(blocks.clone()) } else { set.remove(blocks.clone()) }
                blocks.for_each(|b| model[b as usize] = insert);
                for (block, &there) in (0_u32..).zip(&model) {
                    prop_assert_eq!(set.contains(block), there);
                    let gap = (block..81).find(|&b| !model.get(b as usize).unwrap_or(&false));
                    prop_assert_eq!(Some(set.first_gap(block)), gap);
                }
                for (from, to) in [(0, 80), (10, 30), (31, 32)] {
                    let listed: Vec<u32> = set.runs(from..to).flatten().collect();
                    let lacking: Vec<u32> = set.gaps(from..to).flatten().collect();
                    let there = |b: &u32| model[*b as usize];
                    prop_assert_eq!(listed, (from..to).filter(there).collect::<Vec<_>>());
                    prop_assert_eq!(lacking, (from..to).filter(|b| !there(b)).collect::<Vec<_>>());
                }
                let runs: Vec<_> = set.runs(0..80).collect();
                prop_assert!(runs.windows(2).all(|pair| pair[0].end < pair[1].start));
                prop_assert_eq!(set.0.len(), runs.len());
            }
        }
    }
}
