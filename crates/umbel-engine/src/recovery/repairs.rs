//! Repairs that are asked for and not sent yet: a parent's debt to its domain, or a volunteer's to
//! its group.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use umbel_wire::Tsi;
use umbel_wire::tmtp::EsiSet;

use super::reception::{Lack, MAX_SYMBOLS};
use super::{ChannelNumbers, Filled, Stock, head_len, push_packet};
use crate::chance::{Generator, uniform};
use crate::symbols::Load;
use crate::tmtp::Purpose;
use crate::{Instant, RateClass, TransmitBuf};

/// Most blocks whose repairs are made while those of others are sent.
const AHEAD: usize = 32;

#[derive(Clone, Copy, Debug)]
struct Repair {
    /// Whether all source symbols are due, as soon as their number is known.
    whole: bool,
    /// Number of fresh symbols to send, with FEC.
    fresh: u16,
    /// Symbols to send, without FEC.
    exact: EsiSet,
    /// Time until which symbols that were sent since the hold-down began count as an answer to
    /// further requests. The nodes that ask had not heard them.
    quiet_until: Instant,
    sent_fresh: u16,
    sent_exact: EsiSet,
    /// Next symbol to send, with FEC.
    next: Option<u8>,
    /// Number of fresh symbols that were asked for ahead of their sending, to be read and made
    /// meanwhile.
    ahead: u16,
}

impl Default for Repair {
    fn default() -> Repair {
        Repair {
            whole: false,
            fresh: 0,
            exact: EsiSet::default(),
            quiet_until: Instant::EPOCH,
            sent_fresh: 0,
            sent_exact: EsiSet::default(),
            next: None,
            ahead: 0,
        }
    }
}

impl Repair {
    /// Returns the first of the fresh symbols that come next, in a block of `k` source symbols,
    /// and their number.
    fn fresh_run(&self, k: u8) -> (u32, u32) {
        let first = u32::from(self.next.unwrap_or(k)) % MAX_SYMBOLS;
        (first, u32::from(self.fresh).clamp(1, MAX_SYMBOLS - first))
    }

    fn is_due(&self) -> bool {
        self.whole || self.fresh > 0 || !self.exact.is_empty()
    }
}

/// The repairs that a domain waits for, block by block.
///
/// With FEC a block is repaired with as many symbols as the child is missing that misses most of
/// it. None of them was sent in this domain before. Once all 255 were sent they come round again.
/// Without FEC exactly the missing symbols are sent again, as the paper does with its packets.
///
/// One loss causes one repair. A symbol that is asked for a second time before the first answer can
/// have been heard is not sent twice.
#[derive(Clone, Debug)]
pub(crate) struct Repairs {
    fec: bool,
    blocks: BTreeMap<u32, Repair>,
    /// Blocks of which something is due, and which are held here.
    due: BTreeSet<u32>,
    max_blocks: usize,
    /// Generator of the first fresh symbol of a block, since others send some too.
    scatter: Option<Generator>,
}

impl Repairs {
    /// Creates a queue without repairs, for at most `max_blocks` blocks.
    pub(crate) fn new(fec: bool, max_blocks: usize) -> Repairs {
        Repairs { fec, blocks: BTreeMap::new(), due: BTreeSet::new(), max_blocks, scatter: None }
    }

    /// Begins the fresh symbols of each block anywhere among its repair symbols.
    pub(crate) fn scattered(self, random: Generator) -> Repairs {
        Repairs { scatter: Some(random), ..self }
    }

    /// Notes what a child is missing of a block; `held` tells whether it can be sent now. Returns
    /// `false`, having noted nothing, if too many repairs wait.
    pub(crate) fn ask(
        &mut self,
        now: Instant,
        block: u32,
        lack: Lack,
        held: Option<u8>,
        hold_down: Duration,
    ) -> bool {
        if self.blocks.len() >= self.max_blocks && !self.blocks.contains_key(&block) {
            return false;
        }
        let repair = self.blocks.entry(block).or_default();
        if now >= repair.quiet_until {
            (repair.sent_fresh, repair.sent_exact) = (0, EsiSet::default());
        }
        repair.add(lack, self.fec);
        if let Some(k) = held {
            repair.settle(k, self.fec);
            if let Some(random) = &mut self.scatter {
                let repairs = MAX_SYMBOLS - u32::from(k);
                let most = repairs.saturating_sub(1) as u8;
                let drawn = (f64::from(repairs) * uniform(random)) as u8;
                repair.next.get_or_insert(k + drawn.min(most));
            }
        }
        // Nothing was sent for this request yet. Requests that follow closely ask for the same.
        if repair.quiet_until <= now {
            repair.quiet_until = now + hold_down;
        }
        if held.is_some() && repair.is_due() {
            self.due.insert(block);
        }
        true
    }

    /// Notes that the block is complete here, so that its repairs can be sent.
    pub(crate) fn on_held(&mut self, block: u32, k: u8) {
        let Some(repair) = self.blocks.get_mut(&block) else { return };
        repair.settle(k, self.fec);
        if repair.is_due() {
            self.due.insert(block);
        }
    }

    /// Returns whether a repair is due.
    pub(crate) fn any_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the lowest block with a repair due, and the run of symbols that comes next. All of
    /// them are fresh ones, or all exact.
    pub(crate) fn peek(&self, k: impl Fn(u32) -> Option<u8>) -> Option<(u32, u32, u32)> {
        let &block = self.due.first()?;
        let repair = self.blocks.get(&block)?;
        if let Some(esi) = repair.exact.iter().next() {
            return Some((block, esi, 1));
        }
        let (first, count) = repair.fresh_run(k(block).unwrap_or(0));
        Some((block, first, count))
    }

    /// Returns the next runs of symbols of the lowest blocks, each once: a block, its first
    /// symbol, and their number. A host that makes symbols on other threads needs to know of
    /// several blocks at once.
    pub(crate) fn look_ahead(
        &mut self,
        k: impl Fn(u32) -> Option<u8>,
    ) -> impl Iterator<Item = (u32, u32, u32)> {
        let Repairs { due, blocks, .. } = self;
        due.iter().take(AHEAD).filter_map(move |&block| {
            let repair = blocks.get_mut(&block)?;
            let run = if let Some(first) = repair.exact.iter().next() {
                (block, first, repair.exact.len())
            } else {
                let (first, count) = repair.fresh_run(k(block)?);
                (block, first, count)
            };
            let wanted = repair.fresh.max(repair.exact.len() as u16);
            let news = wanted > repair.ahead;
            repair.ahead = repair.ahead.max(wanted);
            news.then_some(run)
        })
    }

    /// Notes that a symbol returned by [`peek`](Repairs::peek) leaves now.
    pub(crate) fn sent(&mut self, now: Instant, block: u32, esi: u32, hold_down: Duration) {
        let Some(repair) = self.blocks.get_mut(&block) else { return };
        if repair.exact.contains(esi) {
            let sent = std::iter::once(esi).collect();
            repair.exact = repair.exact.minus(sent);
            repair.sent_exact = repair.sent_exact.union(sent);
        } else {
            repair.fresh = repair.fresh.saturating_sub(1);
            repair.sent_fresh = repair.sent_fresh.saturating_add(1);
            repair.next = Some(((esi + 1) % MAX_SYMBOLS) as u8);
        }
        repair.quiet_until = now + hold_down;
        repair.ahead = repair.ahead.saturating_sub(1);
        if !repair.is_due() {
            repair.ahead = 0;
            self.due.remove(&block);
        }
    }

    /// Fills `buf` with repairs from `stock`. The same request within `hold_down` is not answered
    /// again. `sent` numbers the repairs, `numbers` all packets of their channel, if it has numbers.
    pub(crate) fn fill(
        &mut self,
        (now, hold_down): (Instant, Duration),
        (feed, sent): (Tsi, &mut u32),
        mut numbers: Option<&mut ChannelNumbers>,
        stock: &mut impl Stock,
        buf: &mut TransmitBuf,
    ) -> Filled {
        let ahead: Vec<_> = self.look_ahead(|block| stock.held(block)).collect();
        for (block, first, count) in ahead {
            stock.prefetch(block, first..first + count);
        }
        while buf.has_room(RateClass::Data) {
            let Some((block, esi, _)) = self.peek(|block| stock.held(block)) else {
                break;
            };
            let Some(k) = stock.held(block) else {
                self.give_up(block);
                continue;
            };
            let symbol = match stock.symbol(block, esi) {
                Load::Ready(symbol) => symbol,
                Load::Pending if buf.is_empty() => return Filled::Pending,
                Load::Pending => break,
                Load::Gone(_) => {
                    self.give_up(block);
                    continue;
                }
            };
            if !buf.admits(head_len(numbers.is_some()) + symbol.len()) {
                break;
            }
            let why = (Purpose::Repair, *sent);
            push_packet((now, buf), numbers.as_deref_mut(), feed, why, (block, k, esi), symbol);
            *sent = sent.wrapping_add(1);
            self.sent(now, block, esi, hold_down);
        }
        if buf.is_empty() { Filled::Nothing } else { Filled::Packets }
    }

    /// Drops a block that cannot be repaired from here.
    pub(crate) fn give_up(&mut self, block: u32) {
        self.blocks.remove(&block);
        self.due.remove(&block);
    }

    /// Drops blocks before `end`, of which no child is missing anything.
    pub(crate) fn forget_before(&mut self, end: u32) {
        while let Some((&block, _)) = self.blocks.first_key_value()
            && block < end
        {
            self.blocks.remove(&block);
            self.due.remove(&block);
        }
    }
}

impl Repair {
    /// Adds what a child is missing.
    fn add(&mut self, lack: Lack, fec: bool) {
        match lack {
            Lack::Count(count) if fec => self.add_fresh(u16::from(count)),
            Lack::Exact(missing) if fec => self.add_fresh(missing.len() as u16),
            Lack::Exact(missing) => self.exact = self.exact.union(missing.minus(self.sent_exact)),
            // It is not known which symbols a child is missing that tells only their number.
            Lack::Whole | Lack::Count(_) => self.whole = true,
        }
    }

    fn add_fresh(&mut self, count: u16) {
        self.fresh += count.saturating_sub(self.fresh.saturating_add(self.sent_fresh));
    }

    /// Learns that the block has `k` source symbols.
    fn settle(&mut self, k: u8, fec: bool) {
        let all: EsiSet = (0..u32::from(k)).collect();
        if std::mem::take(&mut self.whole) {
            self.add(Lack::Exact(all), fec);
        }
        self.fresh = self.fresh.min(u16::from(k));
        self.exact = self.exact.minus(self.exact.minus(all));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLD_DOWN: Duration = Duration::from_millis(10);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn lack(symbols: &[u32]) -> Lack {
        Lack::Exact(symbols.iter().copied().collect())
    }

    /// Returns everything that is due now, for blocks of eight symbols.
    fn drain(repairs: &mut Repairs, now: Instant) -> Vec<(u32, u32)> {
        let mut sent = Vec::new();
        while let Some((block, esi, count)) = repairs.peek(|_| Some(8)) {
            for esi in esi..esi + count {
                repairs.sent(now, block, esi, HOLD_DOWN);
                sent.push((block, esi));
            }
        }
        sent
    }

    fn ask(repairs: &mut Repairs, ms: u64, block: u32, lack: Lack) {
        assert!(repairs.ask(at(ms), block, lack, Some(8), HOLD_DOWN));
    }

    #[test]
    fn with_fec_the_greatest_lack_is_met_with_fresh_symbols() {
        let mut repairs = Repairs::new(true, 100);
        ask(&mut repairs, 0, 0, lack(&[1]));
        ask(&mut repairs, 0, 0, lack(&[2, 3, 5]));
        ask(&mut repairs, 0, 0, lack(&[4, 5]));
        assert_eq!(drain(&mut repairs, at(0)), [(0, 8), (0, 9), (0, 10)]);
        ask(&mut repairs, 20, 0, lack(&[7]));
        assert_eq!(drain(&mut repairs, at(20)), [(0, 11)]);
    }

    #[test]
    fn what_is_sent_soon_is_told_ahead_once() {
        let mut repairs = Repairs::new(true, 100);
        ask(&mut repairs, 0, 3, lack(&[1, 2]));
        ask(&mut repairs, 0, 5, lack(&[2]));
        let ahead = |repairs: &mut Repairs| repairs.look_ahead(|_| Some(8)).collect::<Vec<_>>();
        assert_eq!(ahead(&mut repairs), [(3, 8, 2), (5, 8, 1)]);
        assert_eq!(ahead(&mut repairs), []);
        ask(&mut repairs, 0, 5, lack(&[2, 3, 4]));
        assert_eq!(ahead(&mut repairs), [(5, 8, 3)]);
        drain(&mut repairs, at(0));
        ask(&mut repairs, 20, 3, lack(&[1]));
        assert_eq!(ahead(&mut repairs), [(3, 10, 1)]);
    }

    #[test]
    fn without_fec_exactly_the_missing_symbols_are_sent() {
        let mut repairs = Repairs::new(false, 100);
        ask(&mut repairs, 0, 3, lack(&[5, 1]));
        ask(&mut repairs, 0, 3, lack(&[5, 6]));
        ask(&mut repairs, 0, 2, Lack::Whole);
        let whole = (0..8).map(|esi| (2, esi));
        let all: Vec<_> = whole.chain([(3, 1), (3, 5), (3, 6)]).collect();
        assert_eq!(drain(&mut repairs, at(0)), all);
    }

    #[test]
    fn one_loss_gives_one_repair() {
        for fec in [true, false] {
            let mut repairs = Repairs::new(fec, 100);
            ask(&mut repairs, 0, 0, lack(&[1, 2]));
            assert_eq!(drain(&mut repairs, at(0)).len(), 2);
            // Another child's request crossed the repair.
            ask(&mut repairs, 5, 0, lack(&[1, 2]));
            assert_eq!(drain(&mut repairs, at(5)), []);
            ask(&mut repairs, 6, 0, lack(&[1, 2, 3]));
            assert_eq!(drain(&mut repairs, at(6)).len(), 1);
            // The repair was lost.
            ask(&mut repairs, 17, 0, lack(&[1, 2]));
            assert_eq!(drain(&mut repairs, at(17)).len(), 2);
        }
    }

    #[test]
    fn what_is_not_held_here_is_sent_when_it_comes() {
        let mut repairs = Repairs::new(true, 100);
        assert!(repairs.ask(at(0), 4, Lack::Whole, None, HOLD_DOWN));
        assert!(repairs.ask(at(0), 5, lack(&[1]), None, HOLD_DOWN));
        assert!(!repairs.any_due());
        repairs.on_held(4, 2);
        repairs.on_held(9, 2);
        assert_eq!(repairs.peek(|_| Some(2)), Some((4, 2, 2)));
        repairs.on_held(5, 8);
        assert_eq!(drain(&mut repairs, at(1)), [(4, 8), (4, 9), (5, 8)]);
    }

    #[test]
    fn fresh_symbols_come_round_when_all_were_sent() {
        let mut repairs = Repairs::new(true, 100);
        repairs.ask(at(0), 0, Lack::Count(200), Some(200), HOLD_DOWN);
        let mut sent = Vec::new();
        while let Some((_, esi, count)) = repairs.peek(|_| Some(200)) {
            assert!(esi + count <= MAX_SYMBOLS);
            for esi in esi..esi + count {
                repairs.sent(at(0), 0, esi, HOLD_DOWN);
                sent.push(esi);
            }
        }
        assert_eq!(sent, (200..255).chain(0..145).collect::<Vec<_>>());
    }

    #[test]
    fn what_nobody_lacks_is_forgotten_and_memory_is_bounded() {
        let mut repairs = Repairs::new(false, 3);
        for block in 0..3 {
            ask(&mut repairs, 0, block, lack(&[0]));
        }
        assert!(!repairs.ask(at(0), 3, lack(&[0]), Some(8), HOLD_DOWN));
        repairs.forget_before(2);
        ask(&mut repairs, 0, 3, lack(&[0]));
        repairs.give_up(3);
        assert_eq!(drain(&mut repairs, at(0)), [(2, 0)]);
    }
}
