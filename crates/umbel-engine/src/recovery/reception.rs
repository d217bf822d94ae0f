//! The blocks that a member holds of a feed, and those that it is missing.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use crate::runs::Runs;
use umbel_wire::tmtp::{AckRun, BlockRun, EsiSet, Need};

/// Most symbols of a block, source and repair: those of Reed–Solomon over GF(2^8) [RFC 5510 §5.1].
pub(crate) const MAX_SYMBOLS: u32 = 255;

/// A symbol that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Symbol {
    pub(crate) block: u32,
    /// Source symbols of its block, as its packet says.
    pub(crate) k: u8,
    pub(crate) esi: u32,
    /// It came by the data channel, on which only the source tells lengths.
    pub(crate) sure: bool,
}

/// A place where symbols are kept.
pub(crate) trait Store {
    /// Returns the source symbols of a block, if they are known.
    fn source_symbols(&self, block: u32) -> Option<u8>;

    /// Drops what is held of a block, because it has another length.
    fn forget(&mut self, block: u32);

    /// Keeps a symbol, if there is room.
    fn store(&mut self, symbol: Symbol) -> bool;
}

/// Result of offering a symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offered {
    /// It was kept. Its block is missing more.
    Kept,
    /// It was kept. Its block can be restored now.
    Complete,
    /// It is held, its block is complete, or the block is not wanted.
    Duplicate,
    /// Its number is not one of the block's, or the block is known to have another length.
    Invalid,
    /// No source can be so far ahead, or too many blocks are under way.
    FarAhead,
    /// The sink had no room.
    NoRoom,
}

/// Missing part of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// All of it. Its length is not known.
    Whole,
    /// Number of further symbols, at least 1. Any will do.
    Count(u8),
    /// These source symbols, at least one.
    Exact(EsiSet),
}

impl Lack {
    /// Returns what covers both.
    #[must_use]
    pub(crate) fn or(self, other: Lack) -> Lack {
        match (self, other) {
            (Lack::Exact(one), Lack::Exact(other)) => Lack::Exact(one.union(other)),
            (Lack::Count(one), Lack::Count(other)) => Lack::Count(one.max(other)),
            _ => Lack::Whole,
        }
    }
}

impl From<Need> for Lack {
    fn from(need: Need) -> Lack {
        match need {
            Need::Whole => Lack::Whole,
            Need::Count(count) => Lack::Count(count),
            Need::Exact(missing) => Lack::Exact(missing),
        }
    }
}

impl From<Lack> for Need {
    fn from(lack: Lack) -> Need {
        match lack {
            Lack::Whole => Need::Whole,
            Lack::Count(count) => Need::Count(count),
            Lack::Exact(missing) => Need::Exact(missing),
        }
    }
}

/// A block of which something is held, but not enough.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Source symbols of the block.
    k: u8,
    held: EsiSet,
    /// The source has told this length.
    sure: bool,
    /// Number of symbols that told another length.
    disputed: u8,
}

impl Part {
    fn new(symbol: Symbol) -> Part {
        let held = std::iter::once(symbol.esi).collect();
        Part { k: symbol.k, held, sure: symbol.sure, disputed: 0 }
    }

    /// Returns whether a symbol is believed that tells another length. It is if it is the
    /// source's, or if more symbols told another length than are held. So a forged length is
    /// outvoted.
    fn yields(&mut self, symbol: Symbol, known: Option<u8>) -> bool {
        self.disputed = self.disputed.saturating_add(1);
        !self.sure
            && known != Some(self.k)
            && (symbol.sure || u32::from(self.disputed) > self.held.len())
    }

    /// Returns the number of further symbols that restore the block.
    fn lacks(&self) -> u8 {
        self.k - self.held.len() as u8
    }
}

/// The blocks of a feed as one member has them.
///
/// ```text
///    first gap            known
///        │ complete, part,  │
///        │ or nothing held  │ not sent yet, as far as is known
/// ───────┴──────────────────┴──────────────────────────────▶ blocks
/// ```
///
/// A symbol costs O(log n) of the runs and incomplete blocks, which without loss are one of each.
#[derive(Clone, Debug)]
pub(crate) struct Reception {
    /// Complete, or not wanted.
    complete: Runs,
    parts: BTreeMap<u32, Part>,
    /// One beyond the last block that is known to have been sent to its end.
    known: u32,
    far_ahead: u32,
    max_parts: usize,
}

impl Reception {
    /// Creates a reception that holds nothing. It refuses blocks `far_ahead` or more beyond the
    /// known ones, and more incomplete blocks than `max_parts`.
    pub(crate) fn new(far_ahead: u32, max_parts: usize) -> Reception {
        Reception {
            complete: Runs::default(),
            parts: BTreeMap::new(),
            known: 0,
            far_ahead,
            max_parts,
        }
    }

    /// Offers a symbol, which `store` keeps if it can.
    pub(crate) fn offer(&mut self, symbol: Symbol, store: &mut impl Store) -> Offered {
        let Symbol { block, k, esi, .. } = symbol;
        if k == 0 || esi >= MAX_SYMBOLS {
            return Offered::Invalid;
        }
        if self.complete.contains(block) {
            return Offered::Duplicate;
        }
        if self.is_far_ahead(block) {
            return Offered::FarAhead;
        }
        let crowded = self.parts.len() >= self.max_parts;
        match self.parts.entry(block) {
            Entry::Occupied(mut entry) => {
                let part = entry.get_mut();
                if part.k != k {
                    if !part.yields(symbol, store.source_symbols(block)) {
                        return Offered::Invalid;
                    }
                    store.forget(block);
                    entry.remove();
                    return self.offer(symbol, store);
                }
                part.sure |= symbol.sure;
                if part.held.contains(esi) {
                    return Offered::Duplicate;
                }
                if !store.store(symbol) {
                    return Offered::NoRoom;
                }
                part.held.insert(esi);
                if part.held.len() < u32::from(k) {
                    return Offered::Kept;
                }
                entry.remove();
            }
            Entry::Vacant(entry) => {
                if store.source_symbols(block).is_some_and(|known| known != k) {
                    return Offered::Invalid;
                }
                if k > 1 && crowded {
                    return Offered::FarAhead;
                }
                if !store.store(symbol) {
                    return Offered::NoRoom;
                }
                if k > 1 {
                    entry.insert(Part::new(symbol));
                    return Offered::Kept;
                }
            }
        }
        self.complete.insert(block..block + 1);
        Offered::Complete
    }

    fn is_far_ahead(&self, block: u32) -> bool {
        block == u32::MAX || block - self.known.min(block) >= self.far_ahead
    }

    /// Learns from a packet or message of any node that all blocks before `end` were sent.
    /// Returns `false` if that is too far ahead to be true.
    pub(crate) fn note_sent(&mut self, end: u32) -> bool {
        if end > self.known {
            if self.is_far_ahead(end) {
                return false;
            }
            self.known = end;
        }
        true
    }

    /// Learns from the parent that all blocks before `end` were sent.
    pub(crate) fn trust_sent(&mut self, end: u32) {
        self.known = self.known.max(end);
    }

    /// Returns one beyond the last block that is known to have been sent to its end.
    pub(crate) fn known(&self) -> u32 {
        self.known
    }

    /// Counts blocks as complete. They are held elsewhere, or not wanted.
    pub(crate) fn skip(&mut self, blocks: Range<u32>) {
        let parts: Vec<u32> = self.parts.range(blocks.clone()).map(|(&block, _)| block).collect();
        for block in parts {
            self.parts.remove(&block);
        }
        self.complete.insert(blocks);
    }

    /// Counts a block as missing again.
    pub(crate) fn reopen(&mut self, block: u32) {
        self.parts.remove(&block);
        self.complete.remove(block..block.saturating_add(1));
    }

    /// Counts these symbols of a block as held, and no others. They are too few to restore it.
    pub(crate) fn resume(&mut self, block: u32, k: u8, held: EsiSet) {
        self.reopen(block);
        if !held.is_empty() {
            self.parts.insert(block, Part { k, held, sure: false, disputed: 0 });
        }
    }

    /// Returns whether something is held of the block, but not enough.
    pub(crate) fn is_part(&self, block: u32) -> bool {
        self.parts.contains_key(&block)
    }

    /// Returns whether the block is complete.
    pub(crate) fn is_complete(&self, block: u32) -> bool {
        self.complete.contains(block)
    }

    /// Returns the first block from `from` on that is not complete.
    pub(crate) fn first_gap(&self, from: u32) -> u32 {
        self.complete.first_gap(from)
    }

    /// Returns the runs of blocks in `within` that are known to have been sent and are not
    /// complete.
    pub(crate) fn lacking(&self, within: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
        self.complete.gaps(within.start..within.end.min(self.known))
    }

    /// Returns what is missing of a block that is not complete, with FEC or without.
    pub(crate) fn lack(&self, block: u32, fec: bool) -> Lack {
        match self.parts.get(&block) {
            None => Lack::Whole,
            Some(part) if fec => Lack::Count(part.lacks()),
            Some(part) => {
                let all: EsiSet = (0..u32::from(part.k)).collect();
                Lack::Exact(all.minus(part.held))
            }
        }
    }

    /// Returns the source symbols to ask for one by one: as many as are missing, the lowest first.
    /// `None` if nothing is held of the block, so that its length is not known.
    pub(crate) fn symbols_lacking(&self, block: u32) -> Option<EsiSet> {
        let part = self.parts.get(&block)?;
        let all: EsiSet = (0..u32::from(part.k)).collect();
        Some(all.minus(part.held).iter().take(usize::from(part.lacks())).collect())
    }

    /// Returns the number of complete blocks in `within`.
    pub(crate) fn count(&self, within: Range<u32>) -> u32 {
        self.complete.count(within)
    }

    /// Returns the incomplete blocks of which something is held, the oldest first.
    pub(crate) fn oldest_parts(&self) -> impl Iterator<Item = u32> + '_ {
        self.parts.keys().copied()
    }

    /// Returns what is held from `from` on, ascending, in at most `most` runs.
    pub(crate) fn held_from(&self, from: u32, most: usize) -> Vec<AckRun> {
        let run = |first, count, lacks| AckRun { run: BlockRun { first, count }, lacks };
        let complete = self.complete.runs(from..u32::MAX);
        let complete = complete.map(|blocks| run(blocks.start, blocks.end - blocks.start, 0));
        let parts = self.parts.range(from..);
        let parts = parts.map(|(&first, part)| run(first, 1, part.lacks()));
        let mut runs: Vec<AckRun> = complete.take(most).chain(parts.take(most)).collect();
        runs.sort_unstable_by_key(|run| run.run.first);
        runs.truncate(most);
        runs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reception() -> Reception {
        Reception::new(1000, 16)
    }

    /// A sink with or without room that knows the length of one block at most.
    #[derive(Debug, Default)]
    struct Sink {
        full: bool,
        known: Option<(u32, u8)>,
        stored: u32,
        forgotten: Vec<u32>,
    }

    impl Store for Sink {
        fn source_symbols(&self, block: u32) -> Option<u8> {
            self.known.filter(|&(known, _)| known == block).map(|(_, k)| k)
        }

        fn forget(&mut self, block: u32) {
            self.forgotten.push(block);
        }

        fn store(&mut self, _: Symbol) -> bool {
            self.stored += u32::from(!self.full);
            !self.full
        }
    }

    fn symbol(block: u32, k: u8, esi: u32) -> Symbol {
        Symbol { block, k, esi, sure: false }
    }

    fn offer(reception: &mut Reception, block: u32, k: u8, esi: u32) -> Offered {
        reception.offer(symbol(block, k, esi), &mut Sink::default())
    }

    #[test]
    fn any_k_symbols_complete_a_block() {
        let mut r = reception();
        assert_eq!(offer(&mut r, 0, 3, 0), Offered::Kept);
        assert_eq!(offer(&mut r, 0, 3, 0), Offered::Duplicate);
        assert_eq!(offer(&mut r, 0, 3, 200), Offered::Kept);
        assert_eq!(r.lack(0, true), Lack::Count(1));
        assert_eq!(r.lack(0, false), Lack::Exact([1, 2].into_iter().collect()));
        assert_eq!(offer(&mut r, 0, 3, 2), Offered::Complete);
        assert_eq!(offer(&mut r, 0, 3, 1), Offered::Duplicate);
        assert_eq!((r.first_gap(0), r.parts.len()), (1, 0));
    }

    #[test]
    fn a_symbol_that_the_sink_refuses_is_still_lacking() {
        let mut r = reception();
        let mut full = Sink { full: true, ..Sink::default() };
        assert_eq!(r.offer(symbol(0, 1, 0), &mut full), Offered::NoRoom);
        assert_eq!(r.offer(symbol(1, 2, 0), &mut full), Offered::NoRoom);
        r.note_sent(2);
        assert!(r.lacking(0..9).eq(std::iter::once(0..2)));
        assert_eq!(offer(&mut r, 0, 1, 0), Offered::Complete);
    }

    #[test]
    fn nonsense_changes_nothing() {
        let mut r = reception();
        offer(&mut r, 0, 3, 0);
        for (block, k, esi, what) in [
            (0, 4, 1, Offered::Invalid),
            (1, 0, 0, Offered::Invalid),
            (1, 2, 255, Offered::Invalid),
            (1000, 1, 0, Offered::FarAhead),
            (u32::MAX, 1, 0, Offered::FarAhead),
        ] {
            assert_eq!(offer(&mut r, block, k, esi), what, "{block} {k} {esi}");
        }
        assert!(!r.note_sent(1000) && !r.note_sent(u32::MAX));
        assert_eq!((r.known(), r.parts.len()), (0, 1));
    }

    #[test]
    fn incomplete_blocks_are_bounded() {
        let mut r = reception();
        (0..16).for_each(|block| assert_eq!(offer(&mut r, block, 2, 0), Offered::Kept));
        assert_eq!(offer(&mut r, 16, 2, 0), Offered::FarAhead);
        assert_eq!(offer(&mut r, 17, 1, 0), Offered::Complete);
        assert_eq!(offer(&mut r, 3, 2, 1), Offered::Complete);
        assert_eq!(offer(&mut r, 16, 2, 0), Offered::Kept);
    }

    #[test]
    fn what_is_held_beyond_the_first_gap_is_told_in_order() {
        let mut r = reception();
        for block in [0, 2, 3, 7] {
            offer(&mut r, block, 1, 0);
        }
        offer(&mut r, 5, 3, 1);
        let run = |first, count, lacks| AckRun { run: BlockRun { first, count }, lacks };
        let all = [run(2, 2, 0), run(5, 1, 2), run(7, 1, 0)];
        assert_eq!(r.held_from(1, 9), all);
        assert_eq!(r.held_from(1, 2), all[..2]);
    }

    #[test]
    fn skipped_and_reopened_blocks_count_as_such() {
        let mut r = reception();
        offer(&mut r, 4, 2, 0);
        r.skip(0..6);
        assert_eq!((r.first_gap(0), r.parts.len()), (6, 0));
        r.reopen(4);
        r.note_sent(8);
        assert_eq!(r.lacking(0..9).collect::<Vec<_>>(), [4..5, 6..8]);
        assert_eq!(r.lack(4, true), Lack::Whole);
    }

    #[test]
    fn a_length_that_the_sink_knows_or_the_source_tells_is_not_disputed() {
        let mut r = reception();
        let mut sink = Sink { known: Some((0, 3)), ..Sink::default() };
        let mut give = |symbol| r.offer(symbol, &mut sink);
        for k in [1, 2, 255] {
            assert_eq!(give(symbol(0, k, 0)), Offered::Invalid);
        }
        assert_eq!(give(symbol(0, 3, 0)), Offered::Kept);
        let sure = |esi| Symbol { sure: true, ..symbol(1, 3, esi) };
        assert_eq!(give(symbol(1, 2, 0)), Offered::Kept);
        assert_eq!(give(sure(0)), Offered::Kept, "the source is believed at once");
        for esi in 0..200 {
            assert_eq!(give(symbol(0, 4, esi)), Offered::Invalid);
            assert_eq!(give(symbol(1, 2, esi)), Offered::Invalid);
        }
        assert_eq!(give(sure(1)), Offered::Kept);
        assert_eq!(give(sure(2)), Offered::Complete);
        assert_eq!(sink.forgotten, [1]);
    }

    #[test]
    fn a_forged_length_is_outvoted() {
        for forged in [2, 3, 17, 200] {
            let mut r = reception();
            let mut sink = Sink::default();
            (0..forged.min(4) - 1).for_each(|esi| {
                assert_eq!(r.offer(symbol(0, forged, esi.into()), &mut sink), Offered::Kept);
            });
            let complete = (0..60).any(|esi| {
                let offered = r.offer(symbol(0, 16, esi), &mut sink);
                offered == Offered::Complete
            });
            assert!(complete, "{forged}");
            assert_eq!(sink.forgotten, [0]);
        }
    }

    proptest! {
        #[test]
        fn each_block_completes_once_with_k_different_symbols(
            symbols in prop::collection::vec((0_u32..6, 0_u32..8, prop::bool::weighted(0.8)), 0..120)
        ) {
            let mut r = reception();
            let mut held = [const { std::collections::BTreeSet::new() }; 6];
            for (block, esi, room) in symbols {
                let k = block as u8 + 1;
                let model: &mut std::collections::BTreeSet<u32> = &mut held[block as usize];
                let full = model.len() == usize::from(k);
                let mut sink = Sink { full: !room, ..Sink::default() };
                let offered = r.offer(symbol(block, k, esi), &mut sink);
                let stored = sink.stored == 1;
                let fresh = !full && !model.contains(&esi);
                prop_assert_eq!(stored, fresh && room);
                if stored { model.insert(esi); }
                let expected = match (fresh, room) {
                    (false, _) => Offered::Duplicate,
                    (true, false) => Offered::NoRoom,
                    (true, true) if model.len() == usize::from(k) => Offered::Complete,
                    (true, true) => Offered::Kept,
                };
                prop_assert_eq!(offered, expected);
            }
            for (block, model) in (0_u32..).zip(&held) {
                prop_assert_eq!(r.is_complete(block), model.len() == block as usize + 1);
                if let Lack::Count(count) = r.lack(block, true) {
                    prop_assert_eq!(usize::from(count) + model.len(), block as usize + 1);
                }
                if let Lack::Exact(missing) = r.lack(block, false) {
                    prop_assert!((0..=block).all(|e| missing.contains(e) != model.contains(&e)));
                }
            }
        }
    }
}
