//! Blocks that no parent guarantees a receiver. It fetches them from the source.
//!
//! A receiver that joins late, or whose new parent does not hold what the old one did, asks the
//! source for whole blocks. The source gathers requests for up to a T_ack and sends each block
//! once. It goes to the receiver that asked, or on the data channel if several did. The source
//! sends nothing to an address that has not shown, by a cookie, that it receives what is sent to
//! it. Packets to a receiver repeat the nonce of its FETCH, which nodes that do not see the traffic
//! cannot know.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use umbel_wire::tmtp::{BlockRun, limits};

use super::config::FetchCredit;
use super::credit::Credit;
use crate::Instant;
use crate::recovery::reception::{Lack, MAX_SYMBOLS, Reception};

/// Most symbols that a receiver has asked for at a time.
const FETCH_SYMBOLS: u32 = 4096;
/// Most blocks asked for in one message.
const FETCH_BLOCKS: u32 = 1024;
/// Longest wait before a FETCH is repeated.
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// Number of the last FETCHes whose answers are accepted.
const LAST_FETCHES: usize = 16;

/// A receiver's side of fetching.
#[derive(Clone, Debug)]
pub(super) struct Fetching {
    cookie: u64,
    /// Round trip to the source, once it has sent a cookie.
    rtt: Option<Duration>,
    /// Nonce and time of the last FETCHes.
    last: VecDeque<(u64, Instant)>,
    asked: Vec<Range<u32>>,
    /// Time at which the missing blocks are asked for again.
    again: Option<Instant>,
    tries: u32,
    /// Most blocks asked for at a time.
    blocks: u32,
    /// Blocks that the parent guaranteed and did not repair.
    others: BTreeSet<u32>,
}

impl Fetching {
    /// Creates a state in which nothing is fetched. Blocks have up to `block_symbols` symbols.
    pub(super) fn new(block_symbols: u8) -> Fetching {
        let blocks = FETCH_SYMBOLS / u32::from(block_symbols.max(1));
        Fetching {
            cookie: 0,
            rtt: None,
            last: VecDeque::new(),
            asked: Vec::new(),
            again: None,
            tries: 0,
            blocks: blocks.clamp(1, FETCH_BLOCKS),
            others: BTreeSet::new(),
        }
    }

    /// Returns the round trip to the source, or somewhat more, if it is known.
    pub(super) fn rtt(&self) -> Option<Duration> {
        self.rtt
    }

    /// Returns the most blocks that are asked for at a time.
    pub(super) fn blocks(&self) -> u32 {
        self.blocks
    }

    /// Returns the cookie, or 0.
    pub(super) fn cookie(&self) -> u64 {
        self.cookie
    }

    /// Learns the cookie that answers another question than a FETCH.
    pub(super) fn learn_cookie(&mut self, cookie: u64) {
        self.cookie = cookie;
    }

    /// Fetches this block, wherever it lies.
    pub(super) fn want(&mut self, now: Instant, block: u32) {
        self.others.insert(block);
        self.again = Some(self.again.map_or(now, |again| again.min(now)));
    }

    /// Returns the blocks among these that are to be fetched wherever they lie.
    pub(super) fn others(&self, blocks: Range<u32>) -> impl Iterator<Item = u32> + '_ {
        self.others.range(blocks).copied()
    }

    /// Forgets cookie and round trip, which the next FETCH finds out.
    pub(super) fn begin_anew(&mut self) {
        (self.cookie, self.rtt, self.tries) = (0, None, 0);
    }

    /// Returns the cookie and the blocks of the next FETCH, at most `most` blocks, and how many
    /// symbols any of them lacks at most if it is `portioned`: incomplete ones then go first.
    /// Returns `None` if nothing of `within` is missing, or if it was asked for and may still come.
    /// The FETCH is repeated after `wait`, then twice as long.
    pub(super) fn poll(
        &mut self,
        now: Instant,
        reception: &Reception,
        within: Range<u32>,
        (most, portioned): (u32, bool),
        wait: Duration,
    ) -> Option<(u64, Vec<BlockRun>, Option<u8>)> {
        if self.again.is_some_and(|again| again > now) {
            return None;
        }
        let mut room = self.blocks.min(most);
        let mut runs = Vec::new();
        self.others.retain(|&block| !reception.is_complete(block) && block >= within.end);
        let others = self.others.iter().map(|&block| block..block + 1);
        let parts = if portioned { parts(reception, within.clone(), room) } else { Vec::new() };
        let symbols = parts.iter().map(|&(_, lacks)| lacks).max();
        for &(block, _) in &parts {
            let is_full = runs.len() == limits::FETCH_RUNS;
            match runs.last_mut() {
                Some(BlockRun { first, count }) if *first + *count == block => *count += 1,
                _ if is_full => break,
                _ => runs.push(BlockRun { first: block, count: 1 }),
            }
            room = 0;
        }
        for lacking in reception.lacking(within).chain(others).take(limits::FETCH_RUNS) {
            if room == 0 {
                break;
            }
            let count = (lacking.end - lacking.start).min(room);
            runs.push(BlockRun { first: lacking.start, count });
            room -= count;
        }
        self.asked = runs.iter().map(|run| run.blocks()).collect();
        if runs.is_empty() {
            (self.again, self.tries) = (None, 0);
            return None;
        }
        let wait = wait.saturating_mul(1 << self.tries.min(10)).min(LONGEST_WAIT);
        self.again = Some(now + wait);
        self.tries += 1;
        Some((self.cookie, runs, symbols))
    }

    /// Notes that a FETCH leaves with this nonce.
    pub(super) fn sent(&mut self, now: Instant, nonce: u64) {
        if self.last.len() == LAST_FETCHES {
            self.last.pop_front();
        }
        self.last.push_back((nonce, now));
    }

    /// Returns when the FETCH with this nonce was sent, if it is one of the last.
    pub(super) fn asked_at(&self, nonce: u64) -> Option<Instant> {
        self.last.iter().find(|(known, _)| *known == nonce).map(|&(_, at)| at)
    }

    /// Returns whether a packet with this index answers one of the last FETCHes.
    pub(super) fn is_answer(&self, index: u32) -> bool {
        self.last.iter().any(|&(nonce, _)| index_of(nonce) == index)
    }

    /// Returns whether [`poll`](Fetching::poll) should look.
    pub(super) fn is_due(&self, now: Instant) -> bool {
        self.again.is_some_and(|again| again <= now)
    }

    /// Starts fetching, since something is missing.
    pub(super) fn wake(&mut self, now: Instant) {
        self.again = Some(now);
    }

    /// Returns whether something was asked for and has not come.
    pub(super) fn is_waiting(&self) -> bool {
        self.again.is_some()
    }

    /// Returns when [`poll`](Fetching::poll) may have something, if anything was asked for.
    pub(super) fn next(&self) -> Option<Instant> {
        self.again
    }

    /// Notes a fetched symbol. The rest of the answer is under way, and has as much time again.
    pub(super) fn on_symbol(&mut self, now: Instant, wait: Duration) {
        if self.again.is_some() {
            self.tries = 1;
            self.again = Some(now + wait);
        }
    }

    /// Notes a complete block. Once all that were asked for are complete, the next can be asked
    /// for.
    pub(super) fn on_complete(&mut self, now: Instant, block: u32, reception: &Reception) {
        if self.again.is_none() || !self.asked.iter().any(|run| run.contains(&block)) {
            return;
        }
        let lacks = |run: &Range<u32>| reception.first_gap(run.start) < run.end;
        if !self.asked.iter().any(lacks) {
            (self.again, self.tries) = (Some(now), 0);
        }
    }

    /// Notes the cookie that answers the FETCH sent at this time. A block that waits for it is
    /// asked for again.
    pub(super) fn on_cookie(&mut self, now: Instant, asked_at: Instant, cookie: u64) {
        if self.again.is_some() && cookie != self.cookie {
            self.cookie = cookie;
            self.rtt = Some(now.since(asked_at));
            (self.again, self.tries) = (Some(now), 0);
        }
    }
}

/// Returns incomplete blocks of which something is held, and how many symbols each lacks.
fn parts(reception: &Reception, within: Range<u32>, most: u32) -> Vec<(u32, u8)> {
    let parts = reception.oldest_parts().skip_while(|&block| block < within.start);
    let parts = parts.take_while(|&block| block < within.end.min(reception.known()));
    let lacks = |block| match reception.lack(block, true) {
        Lack::Count(count) => Some((block, count)),
        Lack::Whole | Lack::Exact(_) => None,
    };
    parts.filter_map(lacks).take(most as usize).collect()
}

/// Returns the header's index of packets that answer the FETCH with this nonce.
pub(super) const fn index_of(nonce: u64) -> u32 {
    nonce as u32
}

/// A receiver that fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asker {
    /// Unicast address of the receiver.
    pub(super) address: SocketAddr,
    /// Nonce of its last FETCH.
    pub(super) nonce: u64,
}

/// A block to send, and to whom alone, if a receiver trusts nothing that came to all.
type Sending = (u32, Option<SocketAddr>);

/// Receivers that want a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// One receiver.
    By(Asker),
    /// Several.
    BySeveral,
}

/// Requestors of a block, and whether it is sent before others.
#[derive(Clone, Copy, Debug)]
struct Request {
    wanted: Wanted,
    first: bool,
}

/// The source's side of fetching.
#[derive(Clone, Debug)]
pub(super) struct Fetched {
    secret: [u8; 32],
    /// Present where anyone may fetch.
    credit: Option<Credit>,
    /// Blocks whose requests are being gathered.
    gathering: BTreeMap<Sending, Request>,
    gathered_at: Option<Instant>,
    /// Blocks to send.
    due: BTreeMap<Sending, Request>,
    /// Blocks to send when there is nothing else, or a little at a time.
    later: BTreeMap<Sending, Request>,
    /// The block that is being sent, and its symbols that are still to be sent: the next one, and
    /// their number.
    under_way: Option<(Sending, u32, u32)>,
    /// First symbol of the next sending of a block. A receiver that lost some of the last sending
    /// gets others.
    next_esi: BTreeMap<u32, u8>,
    max_blocks: usize,
}

impl Fetched {
    /// Creates a state in which nothing is wanted, for at most `max_blocks` blocks. Every request
    /// is answered as soon as any other if there is no `credit`.
    pub(super) fn new(secret: [u8; 32], max_blocks: usize, credit: Option<FetchCredit>) -> Fetched {
        Fetched {
            secret,
            credit: credit.map(Credit::new),
            gathering: BTreeMap::new(),
            gathered_at: None,
            due: BTreeMap::new(),
            later: BTreeMap::new(),
            under_way: None,
            next_esi: BTreeMap::new(),
            max_blocks,
        }
    }

    /// Returns the cookie of an address; never 0.
    pub(super) fn cookie(&self, address: SocketAddr) -> u64 {
        let hash = blake3::keyed_hash(&self.secret, address.to_string().as_bytes());
        let bytes = hash.as_bytes().first_chunk::<8>().expect("a hash has 32 bytes");
        u64::from_be_bytes(*bytes).max(1)
    }

    /// Notes that a receiver with a good cookie wants blocks of `bytes`, some of them `alone`.
    /// Returns `false` if there is no room for all of them.
    pub(super) fn ask(
        &mut self,
        now: Instant,
        asker: Asker,
        (blocks, bytes): (Range<u32>, u64),
        alone: impl Fn(u32) -> bool,
        gather: Duration,
    ) -> bool {
        for block in blocks {
            let known = self.gathering.len() + self.due.len() + self.later.len();
            let sending = (block, alone(block).then_some(asker.address));
            let lines = [&mut self.due, &mut self.gathering, &mut self.later];
            let request = lines.into_iter().find_map(|line| line.get_mut(&sending));
            if let Some(request) = request {
                request.wanted = match request.wanted {
                    Wanted::By(who) if who.address == asker.address => Wanted::By(asker),
                    _ => Wanted::BySeveral,
                };
                continue;
            }
            if known >= self.max_blocks {
                return false;
            }
            let credit = self.credit.as_mut();
            let host = asker.address.ip();
            let first = credit.is_none_or(|credit| credit.ask(now, host, block, bytes));
            self.gathering.insert(sending, Request { wanted: Wanted::By(asker), first });
            self.gathered_at.get_or_insert(now + gather);
        }
        true
    }

    /// Notes that a host wants a block, of which `bytes` bytes are sent to it alone. Returns whether
    /// it has credit for that.
    pub(super) fn take_credit(
        &mut self,
        now: Instant,
        host: IpAddr,
        block: u32,
        bytes: u64,
    ) -> bool {
        self.credit.as_mut().is_none_or(|credit| credit.ask(now, host, block, bytes))
    }

    /// Returns when [`on_timeout`](Fetched::on_timeout) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.gathered_at
    }

    /// Ends the gathering. Its blocks can be sent.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        if self.gathered_at.take_if(|at| *at <= now).is_none() {
            return;
        }
        for (sending, request) in std::mem::take(&mut self.gathering) {
            let line = if request.first { &mut self.due } else { &mut self.later };
            line.insert(sending, request);
        }
    }

    /// Returns whether blocks are to be sent.
    pub(super) fn any_due(&self) -> bool {
        !self.due.is_empty() || !self.later.is_empty()
    }

    /// Returns whether blocks are to be sent before others.
    pub(super) fn any_first(&self) -> bool {
        !self.due.is_empty()
    }

    /// Returns the block in line, the receivers that want it, its next symbol, and how many
    /// follow. `symbols` returns the length of a block. With FEC all 255 symbols come round.
    pub(super) fn peek(
        &mut self,
        symbols: impl Fn(u32) -> Option<u8>,
        fec: bool,
    ) -> Option<(u32, Wanted, u32, u32)> {
        let first = |line: &BTreeMap<Sending, Request>| line.first_key_value().map(|(&s, _)| s);
        let next = || first(&self.due).or_else(|| first(&self.later));
        let sending = self.under_way.map(|(sending, ..)| sending).or_else(next)?;
        let request = self.due.get(&sending).or_else(|| self.later.get(&sending))?;
        let (block, wanted) = (sending.0, request.wanted);
        let k = u32::from(symbols(block)?);
        let most = if fec { MAX_SYMBOLS } else { k };
        let first = self.next_esi.get(&block).map_or(0, |&esi| u32::from(esi)) % most;
        let &mut (_, esi, left) = self.under_way.get_or_insert((sending, first, k));
        let esi = esi % most;
        Some((block, wanted, esi, left.min(most - esi)))
    }

    /// Notes that the symbol returned by [`peek`](Fetched::peek) leaves now. Returns its block if
    /// that was the last one.
    pub(super) fn sent(&mut self, esi: u32) -> Option<u32> {
        let (sending, _, left) = self.under_way?;
        if left > 1 {
            self.under_way = Some((sending, esi + 1, left - 1));
            return None;
        }
        if self.next_esi.len() >= self.max_blocks {
            self.next_esi.pop_first();
        }
        let (block, _) = sending;
        self.next_esi.insert(block, ((esi + 1) % MAX_SYMBOLS) as u8);
        self.forget();
        Some(block)
    }

    /// Drops the block in line. Returns the receivers that wanted it.
    pub(super) fn forget(&mut self) -> Option<Wanted> {
        let (sending, ..) = self.under_way.take()?;
        let request = self.due.remove(&sending).or_else(|| self.later.remove(&sending))?;
        Some(request.wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(100);

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn host(n: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, n], 7705))
    }

    fn asker(n: u8) -> Asker {
        Asker { address: host(n), nonce: n.into() }
    }

    const fn to_all(_: u32) -> bool {
        false
    }

    fn run(first: u32, count: u32) -> BlockRun {
        BlockRun { first, count }
    }

    #[test]
    fn a_receiver_asks_for_what_it_lacks_a_little_at_a_time() {
        let mut reception = Reception::new(1 << 20, 100);
        reception.note_sent(200);
        reception.skip(3..5);
        let mut fetching = Fetching::new(200);
        let first = fetching.poll(at(0), &reception, 0..100, (99, false), WAIT).unwrap();
        assert_eq!(first, (0, vec![run(0, 3), run(5, 17)], None));
        // The first was lost.
        fetching.sent(at(0), 5);
        fetching.sent(at(0), 6);
        assert_eq!((fetching.asked_at(6), fetching.asked_at(7)), (Some(at(0)), None));
        assert!(fetching.is_answer(5) && !fetching.is_answer(7));
        fetching.on_cookie(at(1), at(0), 77);
        assert_eq!(fetching.rtt(), Some(at(1).since(at(0))));
        let again = fetching.poll(at(1), &reception, 0..100, (99, false), WAIT).unwrap();
        assert_eq!((again.0, again.1.len()), (77, 2));
        assert_eq!(fetching.poll(at(100), &reception, 0..100, (99, false), WAIT), None);
        reception.skip(0..21);
        fetching.on_complete(at(50), 7, &reception);
        assert_eq!(fetching.next(), Some(at(101)), "one is still lacking");
        reception.skip(21..22);
        fetching.on_complete(at(60), 21, &reception);
        let next = fetching.poll(at(60), &reception, 0..23, (99, false), WAIT).unwrap();
        assert_eq!(next.1, [run(22, 1)]);
        reception.skip(22..23);
        fetching.on_complete(at(70), 22, &reception);
        assert_eq!(fetching.poll(at(70), &reception, 0..23, (99, false), WAIT), None);
        assert!(!fetching.is_waiting());
    }

    #[test]
    fn a_fetch_that_is_not_answered_is_repeated_more_and_more_slowly() {
        let mut reception = Reception::new(1 << 20, 100);
        reception.note_sent(2);
        let mut fetching = Fetching::new(1);
        let mut times = Vec::new();
        for ms in 0..1000 {
            if fetching.poll(at(ms), &reception, 0..2, (99, false), WAIT).is_some() {
                times.push(ms);
            }
        }
        assert_eq!(times, [0, 100, 300, 700]);
    }

    #[test]
    fn each_block_is_sent_once_and_to_everyone_if_several_want_it() {
        let mut fetched = Fetched::new([1; 32], 100, None);
        assert!(fetched.ask(at(0), asker(1), (4..6, 100), to_all, WAIT));
        assert!(fetched.ask(at(20), asker(2), (5..7, 100), to_all, WAIT));
        assert!(fetched.ask(at(20), asker(2), (5..7, 100), to_all, WAIT));
        fetched.on_timeout(at(99));
        assert!(!fetched.any_due());
        fetched.on_timeout(at(100));
        let mut sent = Vec::new();
        while let Some((block, wanted, esi, left)) = fetched.peek(|_| Some(2), true) {
            sent.push((block, wanted, esi, left));
            fetched.sent(esi);
        }
        let by = |n| Wanted::By(asker(n));
        let several = Wanted::BySeveral;
        let all = [(4, by(1), 0, 2), (4, by(1), 1, 1), (5, several, 0, 2), (5, several, 1, 1)];
        assert_eq!(sent[..4], all);
        assert_eq!(sent[4..], [(6, by(2), 0, 2), (6, by(2), 1, 1)]);
    }

    #[test]
    fn who_trusts_nothing_that_came_to_all_is_answered_alone() {
        let mut fetched = Fetched::new([1; 32], 100, None);
        fetched.ask(at(0), asker(1), (7..9, 100), |block| block == 7, WAIT);
        fetched.ask(at(0), asker(2), (7..9, 100), |block| block == 7, WAIT);
        fetched.ask(at(0), asker(3), (7..8, 100), to_all, WAIT);
        fetched.on_timeout(at(100));
        let mut sent = Vec::new();
        while let Some((block, wanted, esi, _)) = fetched.peek(|_| Some(2), true) {
            // Requests of others meanwhile take nothing from the block under way.
            if sent.is_empty() {
                fetched.ask(at(100), asker(4), (0..1, 100), to_all, Duration::ZERO);
                fetched.on_timeout(at(100));
            }
            sent.push((block, wanted, esi));
            fetched.sent(esi);
        }
        let by = |n| Wanted::By(asker(n));
        let firsts = [(7, by(3), 0), (7, by(3), 1), (0, by(4), 0), (0, by(4), 1)];
        let alone = [(7, by(1), 2), (7, by(1), 3), (7, by(2), 4), (7, by(2), 5)];
        let others = [(8, Wanted::BySeveral, 0), (8, Wanted::BySeveral, 1)];
        assert_eq!(sent, [&firsts[..], &alone, &others].concat());
    }

    #[test]
    fn what_is_asked_for_without_end_is_sent_after_everything_else() {
        let credit = FetchCredit { first: 100, again: 0.0, share: 0.05 };
        let mut fetched = Fetched::new([1; 32], 100, Some(credit));
        let mut sent = Vec::new();
        for round in 0..3 {
            fetched.ask(at(0), asker(1), (0..1, 100), to_all, Duration::ZERO);
            fetched.ask(at(0), asker(2), (5 + round..6 + round, 100), to_all, Duration::ZERO);
            fetched.on_timeout(at(0));
            while let Some((block, _, esi, _)) = fetched.peek(|_| Some(1), true) {
                sent.push((block, fetched.any_first()));
                fetched.sent(esi);
            }
        }
        let first = [(0, true), (5, true), (0, true), (6, true), (7, true)];
        assert_eq!(sent, [&first[..], &[(0, false)]].concat());
    }

    #[test]
    fn a_block_that_is_fetched_again_comes_with_other_symbols() {
        for (fec, expected) in [(true, vec![0, 1, 2, 3]), (false, vec![0, 1, 0, 1])] {
            let mut fetched = Fetched::new([1; 32], 100, None);
            let mut sent = Vec::new();
            for round in 0..2 {
                fetched.ask(at(round), asker(1), (9..10, 100), to_all, Duration::ZERO);
                fetched.on_timeout(at(round));
                while let Some((_, _, esi, _)) = fetched.peek(|_| Some(2), fec) {
                    sent.push(esi);
                    fetched.sent(esi);
                }
            }
            assert_eq!(sent, expected);
        }
    }

    #[test]
    fn cookies_differ_by_address_and_secret() {
        let a = Fetched::new([1; 32], 1, None);
        assert_ne!(a.cookie(host(1)), a.cookie(host(2)));
        assert_ne!(a.cookie(host(1)), Fetched::new([2; 32], 1, None).cookie(host(1)));
        assert_eq!(a.cookie(host(1)), a.cookie(host(1)));
    }

    #[test]
    fn memory_is_bounded() {
        let mut fetched = Fetched::new([1; 32], 10, None);
        assert!(!fetched.ask(at(0), asker(1), (0..u32::MAX, 100), to_all, WAIT));
        fetched.on_timeout(at(100));
        assert!(!fetched.ask(at(101), asker(2), (50..60, 100), to_all, WAIT));
        assert!(fetched.ask(at(101), asker(2), (0..10, 100), to_all, WAIT), "those are known");
    }
}
