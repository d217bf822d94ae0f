//! The source's blocks: the length of each, and where their symbols come from.

use std::collections::BTreeMap;
use std::ops::Range;

use super::api::{BlockCount, FEED};
use crate::recovery::Stock;
use crate::symbols::{BlockId, Load, SymbolSource};

/// The blocks that the application has extended the feed with.
///
/// ```text
///   released        sent       prefetched     total
///     │ may be repaired │ read ahead │ extended │
/// ────┴─────────────────┴────────────┴──────────┴▶ blocks
/// ```
#[derive(Debug)]
pub(super) struct Shelf<S> {
    pub(super) symbols: S,
    /// Length of each run of blocks of equal length, by the first block.
    lengths: BTreeMap<u32, u8>,
    total: u32,
    prefetched: u32,
    /// Blocks of which at least the first symbol has left.
    sent: u32,
    released: u32,
    /// Symbols of blocks that were sent and not released.
    outstanding: u64,
}

impl<S: SymbolSource> Shelf<S> {
    pub(super) fn new(symbols: S) -> Shelf<S> {
        Shelf {
            symbols,
            lengths: BTreeMap::new(),
            total: 0,
            prefetched: 0,
            sent: 0,
            released: 0,
            outstanding: 0,
        }
    }

    /// Returns the number of blocks in the feed so far.
    pub(super) fn total(&self) -> u32 {
        self.total
    }

    /// Returns the symbols of blocks that were sent and not released.
    pub(super) fn outstanding(&self) -> u64 {
        self.outstanding
    }

    /// Returns the lowest block that was not released.
    pub(super) fn lowest(&self) -> u32 {
        self.released
    }

    /// Adds blocks. Returns `false`, having changed nothing, if 32 bits cannot number them.
    pub(super) fn extend(&mut self, runs: &[BlockCount]) -> bool {
        let more: u64 = runs.iter().map(|run| u64::from(run.count)).sum();
        if u64::from(self.total) + more > u64::from(u32::MAX) {
            return false;
        }
        for run in runs.iter().filter(|run| run.count > 0) {
            if self.lengths.last_key_value().is_none_or(|(_, &symbols)| symbols != run.symbols) {
                self.lengths.insert(self.total, run.symbols);
            }
            self.total += run.count;
        }
        true
    }

    /// Ends the feed before this block, since the blocks from there on are not available.
    pub(super) fn cut(&mut self, end: u32) {
        self.total = self.total.min(end);
    }

    /// Returns the source symbols of a block.
    pub(super) fn len_of(&self, block: u32) -> Option<u8> {
        let (_, &symbols) = self.lengths.range(..=block).next_back()?;
        (block < self.total).then_some(symbols)
    }

    /// Reads ahead `symbols` symbols from `block` on, which is sent next.
    pub(super) fn read_ahead(&mut self, block: u32, symbols: u32) {
        let mut ahead = 0;
        for next in block..self.prefetched {
            ahead += self.len_of(next).map_or(0, u32::from);
        }
        while ahead < symbols
            && let Some(k) = self.len_of(self.prefetched)
        {
            let id = BlockId { toi: FEED, sbn: self.prefetched };
            self.symbols.prefetch(id, 0..u32::from(k));
            self.prefetched += 1;
            ahead += u32::from(k);
        }
    }

    /// Notes that the block begins to leave.
    pub(super) fn begin(&mut self, block: u32) {
        self.outstanding += self.len_of(block).map_or(0, u64::from);
        self.sent = self.sent.max(block + 1);
    }

    /// Releases all blocks before `end`, which every child holds.
    pub(super) fn release_before(&mut self, end: u32) {
        for block in self.released..end.min(self.sent) {
            self.outstanding -= self.len_of(block).map_or(0, u64::from).min(self.outstanding);
            self.symbols.release(BlockId { toi: FEED, sbn: block });
            self.released = block + 1;
        }
    }

    /// Releases a block of a file that was fetched before it is read to be sent.
    pub(super) fn release_ahead(&mut self, block: u32) {
        if block >= self.prefetched {
            self.symbols.release(BlockId { toi: FEED, sbn: block });
        }
    }

    /// Releases a block that was fetched, unless it may still be repaired.
    pub(super) fn release_fetched(&mut self, block: u32) {
        if block < self.released {
            self.symbols.release(BlockId { toi: FEED, sbn: block });
        }
    }
}

impl<S: SymbolSource> Stock for Shelf<S> {
    fn held(&self, block: u32) -> Option<u8> {
        (block >= self.released && block < self.sent).then(|| self.len_of(block)).flatten()
    }

    fn prefetch(&mut self, block: u32, esis: Range<u32>) {
        self.symbols.prefetch(BlockId { toi: FEED, sbn: block }, esis);
    }

    fn symbol(&mut self, block: u32, esi: u32) -> Load {
        self.symbols.symbol(BlockId { toi: FEED, sbn: block }, esi)
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[derive(Debug, Default)]
    struct Log(Vec<String>);

    impl SymbolSource for Log {
        fn prefetch(&mut self, block: BlockId, esis: Range<u32>) {
            self.0.push(format!("read {} {esis:?}", block.sbn));
        }

        fn symbol(&mut self, _: BlockId, _: u32) -> Load {
            Load::Ready(Bytes::new())
        }

        fn release(&mut self, block: BlockId) {
            self.0.push(format!("release {}", block.sbn));
        }
    }

    fn run(count: u32, symbols: u8) -> BlockCount {
        BlockCount { count, symbols }
    }

    #[test]
    fn blocks_have_the_length_that_they_were_extended_with() {
        let mut shelf = Shelf::new(Log::default());
        assert!(shelf.extend(&[run(2, 5), run(1, 3), run(0, 9)]));
        assert!(shelf.extend(&[run(2, 3), run(1, 1)]));
        let lengths: Vec<_> = (0..7).map(|block| shelf.len_of(block).unwrap_or(0)).collect();
        assert_eq!(lengths, [5, 5, 3, 3, 3, 1, 0]);
        assert!(!shelf.extend(&[run(u32::MAX, 1)]));
        assert_eq!((shelf.total(), shelf.lengths.len()), (6, 3));
    }

    #[test]
    fn blocks_are_read_ahead_and_released_in_order() {
        let mut shelf = Shelf::new(Log::default());
        shelf.extend(&[run(9, 4)]);
        shelf.read_ahead(0, 8);
        shelf.read_ahead(0, 8);
        shelf.begin(0);
        shelf.begin(1);
        assert_eq!((shelf.held(1), shelf.held(2), shelf.outstanding()), (Some(4), None, 8));
        shelf.release_before(7);
        assert_eq!((shelf.held(1), shelf.lowest(), shelf.outstanding()), (None, 2, 0));
        assert_eq!(shelf.symbols.0, ["read 0 0..4", "read 1 0..4", "release 0", "release 1"]);
        shelf.read_ahead(2, 1);
        assert_eq!(shelf.symbols.0.last().unwrap(), "read 2 0..4");
    }
}
