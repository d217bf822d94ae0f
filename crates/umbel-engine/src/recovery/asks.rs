//! Restricted NACKs with suppression: when a member asks for the blocks that it is missing.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use super::reception::Reception;
use crate::Instant;

/// Timer of a missing block.
#[derive(Clone, Copy, Debug)]
struct Ask {
    due: Instant,
    /// Times that the block was asked for, from here or by a sibling.
    tries: u8,
}

/// The blocks that a member waits for. Each has the time at which the member asks for it unless a
/// sibling does before. In the paper's words, "each receiver delays a random amount of time before
/// transmitting its NACK. If the receiver hears a NACK from another sibling during the delay
/// period, it suppresses its own" [TMTP "Error Control"].
///
/// At most `most` blocks are asked for at a time, the lowest first.
#[derive(Clone, Debug)]
pub(crate) struct Asks {
    blocks: BTreeMap<u32, Ask>,
    /// Every missing block from the floor up to here has its timer.
    upto: u32,
    /// No timer runs out before this.
    next: Option<Instant>,
    most: usize,
}

impl Asks {
    /// Creates a list in which nothing is missing.
    pub(crate) fn new(most: usize) -> Asks {
        Asks { blocks: BTreeMap::new(), upto: 0, next: None, most }
    }

    /// Starts the timers of blocks in `within` that were found missing since.
    pub(crate) fn find(
        &mut self,
        reception: &Reception,
        within: Range<u32>,
        delay: impl FnOnce() -> Instant,
    ) {
        self.upto = self.upto.max(within.start);
        let end = within.end.min(reception.known());
        if self.upto >= end || self.blocks.len() >= self.most {
            return;
        }
        let mut room = self.most - self.blocks.len();
        let mut found = Vec::new();
        let mut upto = end;
        for run in reception.lacking(self.upto..end) {
            let taken = (run.end - run.start).min(room as u32);
            found.push(run.start..run.start + taken);
            room -= taken as usize;
            if room == 0 {
                upto = run.start + taken;
                break;
            }
        }
        self.upto = upto;
        if found.is_empty() {
            return;
        }
        let due = delay();
        for block in found.into_iter().flatten() {
            self.blocks.insert(block, Ask { due, tries: 0 });
        }
        self.wake(due);
    }

    /// Returns whether [`find`](Asks::find) would look for something.
    pub(crate) fn is_behind(&self, reception: &Reception, within: Range<u32>) -> bool {
        let from = self.upto.max(within.start);
        let end = within.end.min(reception.known());
        from < end && self.blocks.len() < self.most && reception.first_gap(from) < end
    }

    /// Returns the blocks in a run that are waited for.
    pub(crate) fn within(&self, blocks: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        self.blocks.range(blocks).map(|(&block, _)| block)
    }

    fn wake(&mut self, at: Instant) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }

    /// Returns a time before which no timer runs out.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.next.filter(|_| !self.blocks.is_empty())
    }

    /// Returns the number of blocks that are waited for.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Stops waiting for a block that came, or is not wanted any more.
    pub(crate) fn done(&mut self, block: u32) {
        self.blocks.remove(&block);
    }

    /// Delays the NACK for a block until `until`, since symbols of it come.
    pub(crate) fn hold(&mut self, block: u32, until: Instant) {
        if let Some(ask) = self.blocks.get_mut(&block) {
            ask.due = ask.due.max(until);
        }
    }

    /// Marks the block as missing again.
    pub(crate) fn reopen(&mut self, block: u32, due: Instant) {
        if block < self.upto && self.blocks.len() < self.most {
            self.blocks.insert(block, Ask { due, tries: 0 });
            self.wake(due);
        } else {
            self.upto = self.upto.min(block);
        }
    }

    /// Notes that a sibling asked for as much, and waits on. `again` returns the new time from
    /// the number of times that the block was asked for. Returns whether this node's own NACK is
    /// delayed.
    pub(crate) fn suppress(&mut self, block: u32, again: impl FnOnce(u8) -> Instant) -> bool {
        let Some(ask) = self.blocks.get_mut(&block) else { return false };
        ask.tries = ask.tries.saturating_add(1);
        let again = again(ask.tries);
        let later = again > ask.due;
        ask.due = ask.due.max(again);
        later
    }

    /// Returns the blocks to ask for now, at most `most`, and how often each was asked for.
    /// Each is asked for again at the time that `again` returns for that number. A block that is
    /// up to `early` too early may go along with others.
    pub(crate) fn take_due(
        &mut self,
        now: Instant,
        early: Duration,
        most: usize,
        mut again: impl FnMut(u8) -> Instant,
    ) -> Vec<(u32, u8)> {
        if self.next.is_none_or(|next| next > now) {
            return Vec::new();
        }
        let any = self.blocks.values().any(|ask| ask.due <= now);
        let horizon = if any { now + early } else { now };
        let mut taken = Vec::new();
        let mut next: Option<Instant> = None;
        for (&block, ask) in &mut self.blocks {
            if ask.due <= horizon && taken.len() < most {
                taken.push((block, ask.tries));
                ask.tries = ask.tries.saturating_add(1);
                ask.due = again(ask.tries);
            }
            next = Some(next.map_or(ask.due, |next| next.min(ask.due)));
        }
        self.next = next;
        taken
    }

    /// Stops asking for blocks before `floor` by NACKs.
    pub(crate) fn forget_before(&mut self, floor: u32) {
        while let Some((&block, _)) = self.blocks.first_key_value()
            && block < floor
        {
            self.blocks.remove(&block);
        }
        self.upto = self.upto.max(floor);
    }

    /// Starts again with another parent, from `floor` on.
    pub(crate) fn restart(&mut self, floor: u32) {
        self.blocks.clear();
        self.upto = floor;
        self.next = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    /// Creates a reception of `known` blocks that is missing these.
    fn lacking(blocks: &[u32], known: u32) -> Reception {
        let mut reception = Reception::new(1 << 20, 100);
        for block in (0..known).filter(|block| !blocks.contains(block)) {
            reception.skip(block..block + 1);
        }
        reception.note_sent(known);
        reception
    }

    fn due(asks: &mut Asks, ms: u64) -> Vec<u32> {
        let again = |tries| at(ms + 100 * u64::from(tries));
        let due = asks.take_due(at(ms), Duration::ZERO, 64, again);
        due.into_iter().map(|(block, _)| block).collect()
    }

    #[test]
    fn a_lacking_block_is_asked_for_once_its_delay_is_over_and_again_later() {
        let mut asks = Asks::new(10);
        let reception = lacking(&[3, 4, 9], 20);
        asks.find(&reception, 0..u32::MAX, || at(7));
        asks.find(&reception, 0..u32::MAX, || panic!("found before"));
        assert_eq!((asks.next(), due(&mut asks, 6)), (Some(at(7)), vec![]));
        assert_eq!(due(&mut asks, 7), [3, 4, 9]);
        asks.done(4);
        assert_eq!((due(&mut asks, 106), asks.next()), (vec![], Some(at(107))));
        assert_eq!(due(&mut asks, 107), [3, 9]);
        assert_eq!(asks.next(), Some(at(307)), "the second pause is longer");
    }

    #[test]
    fn a_siblings_nack_suppresses_ones_own() {
        let mut asks = Asks::new(10);
        asks.find(&lacking(&[1, 2], 5), 0..u32::MAX, || at(10));
        assert!(asks.suppress(1, |tries| at(100 * u64::from(tries))));
        assert!(!asks.suppress(4, |_| panic!("not lacking")));
        assert_eq!(due(&mut asks, 10), [2]);
        assert_eq!(due(&mut asks, 100), [1]);
    }

    #[test]
    fn no_more_blocks_are_asked_for_than_may_be() {
        let mut asks = Asks::new(3);
        let mut reception = lacking(&[1, 3, 4, 6, 8], 10);
        asks.find(&reception, 0..u32::MAX, || at(0));
        assert_eq!(due(&mut asks, 0), [1, 3, 4]);
        reception.skip(3..4);
        asks.done(3);
        asks.find(&reception, 0..u32::MAX, || at(5));
        assert_eq!(due(&mut asks, 5), [6]);
        asks.forget_before(5);
        asks.find(&reception, 5..u32::MAX, || at(6));
        assert_eq!(due(&mut asks, 6), [8]);
        asks.restart(2);
        asks.find(&reception, 2..9, || at(9));
        assert_eq!(due(&mut asks, 9), [4, 6, 8]);
    }

    #[test]
    fn a_block_that_lacks_again_is_asked_for_again() {
        let mut asks = Asks::new(3);
        let mut reception = lacking(&[], 10);
        asks.find(&reception, 0..u32::MAX, || panic!("nothing lacks"));
        reception.reopen(4);
        asks.reopen(4, at(3));
        assert_eq!(due(&mut asks, 3), [4]);
    }

    #[test]
    fn a_block_of_which_symbols_come_waits() {
        let mut asks = Asks::new(3);
        asks.find(&lacking(&[1], 2), 0..9, || at(1));
        asks.hold(1, at(4));
        assert_eq!(due(&mut asks, 1), []);
        assert_eq!(due(&mut asks, 4), [1]);
    }
}
