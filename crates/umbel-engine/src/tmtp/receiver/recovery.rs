//! A member's requests for missing blocks: NACKs to its parent and FETCHes to the source.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use rand_core::Rng;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_wire::feed::Recovery as Scheme;
use umbel_wire::tmtp::{BlockRun, Body, NackRun, Need, Portion, Timing, limits};

use super::delivery::Delivery;
use super::help::Wanted;
use crate::Instant;
use crate::chance::uniform;
use crate::recovery::asks::Asks;
use crate::recovery::lms::HELPER_TRIES;
use crate::recovery::reception::{Lack, Reception};
use crate::symbols::SymbolSink;
use crate::tmtp::api::Purpose;
use crate::tmtp::catch_up::Fetching;
use crate::tmtp::config::RepairConfig;
use crate::tmtp::drops::DropReason;

/// Most blocks that are asked for by NACK at a time.
const MAX_ASKS: usize = 256;
/// Most blocks for which a NACK is weighed before its sender is known.
const MOST_WEIGHED: usize = 16;
/// A FETCH is repeated after this, while the round trip to the source is unknown.
const FETCH_WAIT: Duration = Duration::from_millis(100);
/// A FETCH is repeated after this at the earliest.
const FETCH_WAIT_MIN: Duration = Duration::from_millis(20);
/// Least wait before a block is asked for again: nodes are busy, and repairs are paced.
const LEAST_RETRY: Duration = Duration::from_millis(10);
/// A block for which the sink had no room is not asked for again before this has passed.
const REFUSED_PAUSE: Duration = Duration::from_millis(10);
/// A block that was wrong this number of times is fetched, and taken from the source alone.
const WRONG: u8 = 2;
/// A block that was wrong this number of times is not taken by the data channel either, on which
/// the source's address may be forged.
const WRONG_BY_SOURCE: u8 = 4;

/// A node that was too slow fetches this part of what others fetch at a time: its path carries
/// little, and what comes at once must fit into its queue.
const SLOW_FETCHES: u32 = 64;

/// Time from a loss to the first request of LMS, for networks that reorder. The paper has none.
const LMS_DELAY: Duration = Duration::from_millis(2);
/// C1 and C2 of SRM's request timers [SRM, loss recovery].
const C1: f64 = 2.0;
const C2: f64 = 2.0;
/// NACKs to the source alone are spread over at least this part of a T_ack.
const NACKS_PER_T_ACK: u32 = 8;

/// The blocks that may be asked for at the moment, and the timing of the parent that repairs them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    /// First block that is asked for by NACK. Earlier ones are fetched. `u32::MAX` without a
    /// parent.
    pub(super) floor: u32,
    /// One beyond the last block that is wanted.
    pub(super) end: u32,
    /// Timing of the parent's domain.
    pub(super) timing: Timing,
}

impl Reach {
    /// Returns the blocks that are fetched if they are missing.
    fn fetched(&self) -> Range<u32> {
        0..self.floor.min(self.end)
    }

    /// Returns whether a block is missing that is to be fetched.
    fn lacks_fetched(&self, reception: &Reception) -> bool {
        reception.first_gap(0) < self.fetched().end.min(reception.known())
    }
}

/// The blocks that are asked for.
#[derive(Debug)]
pub(super) struct Recovery {
    fec: bool,
    /// Scheme of answers.
    scheme: Scheme,
    nack_delay: f64,
    nack_delay_min: Duration,
    nack_tries: u8,
    fetches: bool,
    random: Xoshiro256PlusPlus,
    asks: Asks,
    fetching: Fetching,
    /// Blocks that helpers did not repair. The source is asked directly.
    unhelped: BTreeSet<u32>,
    /// Number of times that a block was wrong.
    wrong: BTreeMap<u32, u8>,
    /// Everything is fetched, since multicast brings nothing.
    all: bool,
    /// The parent has dismissed this node as too slow. It fetches what it is missing, and joins
    /// again when that is little.
    slow: bool,
}

impl Recovery {
    /// Creates a recovery that asks for nothing. Blocks have up to `block_symbols` symbols.
    pub(super) fn new(
        config: &RepairConfig,
        fec: bool,
        block_symbols: u8,
        random: Xoshiro256PlusPlus,
    ) -> Recovery {
        Recovery {
            fec,
            scheme: Scheme::Tree,
            nack_delay: config.nack_delay.clamp(0.0, 100.0),
            nack_delay_min: config.nack_delay_min,
            nack_tries: config.nack_tries.max(1),
            fetches: config.fetches,
            random,
            asks: Asks::new(MAX_ASKS),
            fetching: Fetching::new(block_symbols),
            unhelped: BTreeSet::new(),
            wrong: BTreeMap::new(),
            all: false,
            slow: false,
        }
    }

    /// Asks those who answer in this scheme.
    pub(super) fn by(self, scheme: Scheme) -> Recovery {
        Recovery { scheme, ..self }
    }

    /// Returns when a NACK may be due.
    pub(super) fn next_nack_at(&self) -> Option<Instant> {
        self.asks.next()
    }

    /// Returns when a FETCH may be due.
    pub(super) fn next_fetch_at(&self) -> Option<Instant> {
        self.fetching.next()
    }

    /// Starts again with NACKs from `floor` on.
    pub(super) fn restart(&mut self, floor: u32) {
        self.asks.restart(floor);
    }

    /// Stops asking for blocks before `floor` by NACK.
    pub(super) fn forget_before(&mut self, floor: u32) {
        self.asks.forget_before(floor);
    }

    /// Asks for a block again that was complete.
    pub(super) fn reopen(&mut self, now: Instant, block: u32) {
        self.asks.reopen(block, now);
    }

    /// Notes that a block was wrong, because somebody has forged a symbol of it. After the first
    /// time it is fetched.
    pub(super) fn distrust(&mut self, now: Instant, block: u32) {
        let times = self.wrong.entry(block).or_default();
        *times = times.saturating_add(1);
        if *times >= WRONG {
            self.fetching.want(now, block);
        }
    }

    /// Returns whether a block was wrong once, and not again.
    pub(super) fn was_wrong_once(&self, block: u32) -> bool {
        self.wrong.get(&block) == Some(&1)
    }

    /// Draws a number that identifies a question to the source.
    pub(super) fn draw_nonce(&mut self) -> u64 {
        self.random.next_u64()
    }

    /// Returns the cookie for questions to the source, or 0.
    pub(super) fn cookie(&self) -> u64 {
        self.fetching.cookie()
    }

    /// Learns the cookie for questions to the source.
    pub(super) fn learn_cookie(&mut self, cookie: u64) {
        self.fetching.learn_cookie(cookie);
    }

    /// Returns whether a symbol of this block may be another's than the source's, by the way that
    /// it came. Anyone may have sent repairs, and by the data channel whoever forges the source's
    /// address. Answers to FETCH by unicast carry the number that the source alone was told.
    pub(super) fn is_suspect(&self, block: u32, purpose: Purpose, data_channel: bool) -> bool {
        let times = self.wrong.get(&block).copied().unwrap_or(0);
        match (data_channel, purpose) {
            (true, _) => times >= WRONG_BY_SOURCE,
            (false, Purpose::Fetched) => false,
            (false, _) => times >= WRONG,
        }
    }

    /// Delays the NACK for a block for which the sink had no room.
    pub(super) fn on_refused(&mut self, now: Instant, block: u32) {
        self.asks.hold(block, now + REFUSED_PAUSE);
    }

    /// Fetches everything from now on, or as usual again.
    pub(super) fn fetch_all(&mut self, all: bool) {
        self.all = all;
        self.slow = false;
    }

    /// Begins to fetch from a source that serves this node alone. The round trip to it is measured
    /// first.
    pub(super) fn on_served_alone(&mut self) {
        self.fetching.begin_anew();
    }

    /// Returns whether the parent has dismissed this node as too slow.
    pub(super) fn is_slow(&self) -> bool {
        self.slow
    }

    /// Notes that the parent has dismissed this node as too slow.
    pub(super) fn on_dismissed_as_slow(&mut self) {
        self.slow = true;
    }

    /// Returns whether this node was too slow and may join again: it is missing little.
    pub(super) fn take_caught_up(&mut self, delivery: &Delivery<impl SymbolSink>) -> bool {
        if !self.slow || delivery.room.is_refusing() {
            return false;
        }
        let missing = delivery.known() - delivery.complete();
        let caught_up = missing <= self.fetching.blocks();
        self.slow = !caught_up;
        caught_up
    }

    /// Starts the timers of blocks that are found missing.
    pub(super) fn find_gaps(&mut self, now: Instant, reception: &Reception, reach: &Reach) {
        let floor = reach.floor;
        let attached = floor < u32::MAX;
        if attached {
            let span = self.nack_span(reach.timing);
            let start = self.nack_start(reach.timing);
            let within = floor..reach.end;
            // Without a loss nothing is drawn.
            let behind = self.asks.is_behind(reception, within.clone());
            let unit = if behind { uniform(&mut self.random) } else { 0.0 };
            self.asks.find(reception, within, || now + start + span.mul_f64(unit));
        }
        // Without a parent only a node fetches that had one and was too slow.
        let fetches = attached || self.slow || self.all;
        if fetches && !self.fetching.is_waiting() && reach.lacks_fetched(reception) {
            self.fetching.wake(now);
        }
    }

    /// Returns the time over which NACKs are spread: a round trip to the farthest child of the
    /// parent's domain [TMTP, related work].
    fn nack_span(&self, timing: Timing) -> Duration {
        let span = timing.rtt.mul_f64(self.nack_delay).max(self.nack_delay_min);
        match self.scheme {
            Scheme::Tree => span,
            // Nobody else hears them. T_ack grows with the number of the source's children.
            Scheme::Source => span.max(timing.t_ack / NACKS_PER_T_ACK),
            Scheme::Lms => LMS_DELAY,
            // C2 times the distance, which is half the round trip.
            Scheme::Srm => (timing.rtt / 2).mul_f64(C2).max(self.nack_delay_min),
        }
    }

    /// Returns the time before the span in which a NACK is sent.
    fn nack_start(&self, timing: Timing) -> Duration {
        match self.scheme {
            Scheme::Srm => (timing.rtt / 2).mul_f64(C1),
            _ => Duration::ZERO,
        }
    }

    /// Returns when to ask again for a block that was asked for a number of times.
    fn ask_again(&mut self, now: Instant, timing: Timing) -> impl Fn(u8) -> Instant + use<> {
        let t_retrans = timing.t_ack * u32::from(timing.intervals);
        let span = self.nack_span(timing);
        let spread = span.mul_f64(uniform(&mut self.random));
        let base = (timing.rtt + span).max(LEAST_RETRY);
        move |tries| {
            let wait = base.saturating_mul(1 << u32::from(tries.saturating_sub(1)).min(6));
            now + wait.min(t_retrans.max(base)) + spread
        }
    }

    /// Delays the NACK for a block of which a symbol came: more may follow.
    pub(super) fn on_symbol_kept(&mut self, now: Instant, block: u32, timing: Timing) {
        if self.asks.len() > 0 {
            let span = self.nack_span(timing);
            // At a low rate, the answer to one request takes its time.
            let more = if self.scheme == Scheme::Lms { timing.t_ack / 2 } else { span };
            let soon = now + span.max(more);
            self.asks.hold(block, soon);
        }
    }

    /// Asks for a complete block no more.
    pub(super) fn on_complete(&mut self, now: Instant, block: u32, reception: &Reception) {
        self.asks.done(block);
        self.fetching.on_complete(now, block, reception);
    }

    /// Returns the blocks that helpers are to be asked for now. Blocks that they did not repair are
    /// left to [`next_nack`](Recovery::next_nack).
    pub(super) fn next_requests(
        &mut self,
        now: Instant,
        delivery: &mut Delivery<impl SymbolSink>,
        reach: &Reach,
    ) -> Vec<Wanted> {
        if self.asks.next().is_none_or(|at| at > now) {
            return Vec::new();
        }
        let again = self.ask_again(now, reach.timing);
        let Some(most) = delivery.room.may_ask(now, reach.timing.t_ack, MAX_ASKS) else {
            return Vec::new();
        };
        let mut wanted = Vec::new();
        let reception = delivery.reception();
        for (block, tries) in self.asks.take_due(now, Duration::ZERO, most, again) {
            if tries >= HELPER_TRIES {
                self.unhelped.insert(block);
                continue;
            }
            let symbols = reception.symbols_lacking(block);
            wanted.push(Wanted { block, symbols, number: tries + 1 });
        }
        wanted
    }

    /// Returns the NACK to the source for blocks that helpers did not repair.
    pub(super) fn next_unhelped(&mut self, reception: &Reception) -> Option<Vec<NackRun>> {
        let mut runs: Vec<NackRun> = Vec::new();
        while runs.len() < limits::NACK_RUNS
            && let Some(block) = self.unhelped.pop_first()
        {
            if !reception.is_complete(block) {
                let need = reception.lack(block, self.fec).into();
                runs.push(NackRun { run: BlockRun { first: block, count: 1 }, need });
            }
        }
        (!runs.is_empty()).then_some(runs)
    }

    /// Returns what the NACK asks for that is due, if any is. Blocks that the buffer `refuses` are
    /// left out.
    pub(super) fn next_nack(
        &mut self,
        now: Instant,
        delivery: &mut Delivery<impl SymbolSink>,
        reach: &Reach,
        refuses: impl Fn(u32) -> bool,
    ) -> Option<Vec<NackRun>> {
        if self.asks.next().is_none_or(|at| at > now) {
            return None;
        }
        let again = self.ask_again(now, reach.timing);
        let early = self.nack_span(reach.timing) / 4;
        let most = delivery.room.may_ask(now, reach.timing.t_ack, limits::NACK_RUNS * 4)?;
        let reception = delivery.reception();
        let mut runs: Vec<NackRun> = Vec::new();
        for (block, tries) in self.asks.take_due(now, early, most, again) {
            if tries > self.nack_tries {
                self.asks.done(block);
                if self.fetches {
                    self.fetching.want(now, block);
                }
                continue;
            }
            if refuses(block) {
                continue;
            }
            let need = reception.lack(block, self.fec).into();
            let room = runs.len() < limits::NACK_RUNS;
            match runs.last_mut() {
                Some(last) if last.need == need && last.run.end() == block => last.run.count += 1,
                _ if !room => {}
                _ => runs.push(NackRun { run: BlockRun { first: block, count: 1 }, need }),
            }
        }
        (!runs.is_empty()).then_some(runs)
    }

    /// Returns whether [`hear_nack`](Self::hear_nack) may suppress anything. Looks at some blocks
    /// only, since anybody may send any NACK: with more it says that it may.
    pub(super) fn may_heed(&self, runs: &[NackRun], reception: &Reception) -> bool {
        let asked = |run: &NackRun| self.asks.within(run.run.blocks());
        let mut all = runs.iter().flat_map(|run| asked(run).map(|block| (block, run.need)));
        let covered = |(block, need): (u32, Need)| self.is_covered(block, need, reception);
        all.by_ref().take(MOST_WEIGHED).any(covered) || all.next().is_some()
    }

    /// Returns whether what this node lacks of a block comes with what another asked for.
    fn is_covered(&self, block: u32, need: Need, reception: &Reception) -> bool {
        match (reception.lack(block, self.fec), need) {
            (_, Need::Whole) => true,
            (Lack::Count(mine), Need::Count(theirs)) => mine <= theirs,
            (Lack::Exact(mine), Need::Exact(theirs)) => mine.minus(theirs).is_empty(),
            _ => false,
        }
    }

    /// Suppresses NACKs that ask for no more than a sibling's. Returns how many it suppressed.
    pub(super) fn hear_nack(
        &mut self,
        now: Instant,
        runs: &[NackRun],
        reception: &Reception,
        timing: Timing,
    ) -> u64 {
        let mut suppressed = 0;
        for run in runs {
            let asked: Vec<u32> = self.asks.within(run.run.blocks()).collect();
            for block in asked {
                if self.is_covered(block, run.need, reception) {
                    let again = self.ask_again(now, timing);
                    suppressed += u64::from(self.asks.suppress(block, again));
                }
            }
        }
        suppressed
    }

    /// Returns how long the answer to a FETCH may take: a round trip and the time for which the
    /// source gathers. A FETCH too many is harmless if the answer to the last one was not sent.
    fn fetch_wait(&self, timing: Timing) -> Duration {
        let Some(rtt) = self.fetching.rtt() else { return FETCH_WAIT };
        (rtt * 2 + timing.t_ack).max(FETCH_WAIT_MIN)
    }

    /// Returns whether a packet with this index answers one of the last FETCHes.
    pub(super) fn is_answer(&self, index: u32) -> bool {
        self.fetching.is_answer(index)
    }

    /// Handles the cookie that answers a FETCH.
    ///
    /// # Errors
    ///
    /// If the nonce is of none of the last FETCHes.
    pub(super) fn on_cookie(
        &mut self,
        now: Instant,
        nonce: u64,
        cookie: u64,
    ) -> Result<(), DropReason> {
        let asked_at = self.fetching.asked_at(nonce).ok_or(DropReason::NotAsked)?;
        self.fetching.on_cookie(now, asked_at, cookie);
        Ok(())
    }

    /// Handles that the source has not got these blocks any more. Returns those that were fetched
    /// and are missing; they are never coming.
    ///
    /// # Errors
    ///
    /// If the nonce is of none of the last FETCHes.
    pub(super) fn on_gone(
        &mut self,
        now: Instant,
        nonce: u64,
        runs: &[BlockRun],
        reception: &Reception,
        floor: u32,
    ) -> Result<Vec<Range<u32>>, DropReason> {
        self.fetching.asked_at(nonce).ok_or(DropReason::NotAsked)?;
        let floor = floor.min(reception.known());
        let mut gone = Vec::new();
        for run in runs {
            gone.extend(reception.lacking(run.first..run.end().min(floor)));
            // Those that the parent should have repaired.
            let others = self.fetching.others(run.blocks());
            gone.extend(others.filter(|&block| !reception.is_complete(block)).map(|b| b..b + 1));
        }
        self.fetching.wake(now);
        Ok(gone)
    }

    /// Notes a fetched symbol: the rest of the answer is under way.
    pub(super) fn on_fetched_symbol(&mut self, now: Instant, timing: Timing) {
        let wait = self.fetch_wait(timing);
        self.fetching.on_symbol(now, wait);
    }

    /// Returns the FETCH that is due, if any is.
    pub(super) fn next_fetch(
        &mut self,
        now: Instant,
        delivery: &mut Delivery<impl SymbolSink>,
        reach: &Reach,
    ) -> Option<Body> {
        if !self.fetching.is_due(now) {
            return None;
        }
        let most = delivery.room.may_ask(now, reach.timing.t_ack, usize::MAX)?;
        let reception = delivery.reception();
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let most =
            if self.slow { most.min(self.fetching.blocks().div_ceil(SLOW_FETCHES)) } else { most };
        let wait = self.fetch_wait(reach.timing);
        let portioned = self.all && self.fec;
        let (cookie, runs, symbols) =
            self.fetching.poll(now, reception, reach.fetched(), (most, portioned), wait)?;
        let nonce = self.random.next_u64();
        self.fetching.sent(now, nonce);
        let alone = self.distrusted_among(&runs);
        let portion = Portion { symbols, payload: None };
        Some(Body::Fetch { nonce, cookie, runs, alone, portion })
    }

    /// Returns the blocks among these that are not taken by the data channel any more.
    fn distrusted_among(&self, runs: &[BlockRun]) -> Vec<BlockRun> {
        let mut found: Vec<BlockRun> = Vec::new();
        let distrusted = |run: &BlockRun| {
            let wrong = self.wrong.range(run.blocks());
            wrong.filter(|(_, times)| **times >= WRONG_BY_SOURCE).map(|(&block, _)| block)
        };
        for block in runs.iter().flat_map(distrusted) {
            let room = found.len() < limits::FETCH_RUNS;
            match found.last_mut() {
                Some(last) if last.end() == block => last.count += 1,
                _ if !room => break,
                _ => found.push(BlockRun { first: block, count: 1 }),
            }
        }
        found
    }
}
