//! What a receiver says by itself: acknowledgements, NACKs, fetches and reports.

use std::ops::Range;
use std::time::Duration;

use rand_core::Rng;
use umbel_wire::tmtp::{Ack, BlockRun, Body, Echo, Nack, NackRun, Need, limits};

use super::{Heard, Receiver, Refusing, Stage};
use crate::chance::uniform;
use crate::symbols::SymbolSink;
use crate::tmtp::reception::Lack;
use crate::tmtp::tree::UNICAST_HOPS;
use crate::{Address, Instant};

/// A FETCH is repeated after this, as long as the way to the source was not measured; and at least
/// after this, when it was.
const FETCH_WAIT: Duration = Duration::from_millis(100);
const FETCH_WAIT_MIN: Duration = Duration::from_millis(20);
/// A REPORT is repeated after two T_ack, but not sooner than this.
const REPORT_WAIT_MIN: Duration = Duration::from_millis(300);
/// Most acknowledgements in a T_ack.
const EARLY_ACKS: u32 = 4;
/// The least wait before a block is asked for again: nodes are busy, and repairs are paced.
const LEAST_RETRY: Duration = Duration::from_millis(10);
/// A sink without room is tried at least so often.
const LONGEST_REFUSAL: Duration = Duration::from_secs(2);
/// A block that the parent did not give after so many NACKs is fetched.
const MOST_TRIES: u8 = 8;

impl<K: SymbolSink> Receiver<K> {
    /// The next control message.
    pub(super) fn next_message(&mut self, now: Instant) -> Option<(Address, Option<u8>, Body)> {
        let domain = self.config.node.domain;
        let unicast = |host| (Address::Host(host), Some(UNICAST_HOPS));
        if let Some((way, body)) = self.outbox.pop_front() {
            let (to, hop_limit) = way.address(domain);
            return Some((to, hop_limit, body));
        }
        if let Some(parent) = self.tree.parent() {
            let (to, token, radius, id) = (parent.address, parent.token, parent.radius, parent.id);
            if let Some(ack) = self.next_ack(now, token) {
                let (to, hop_limit) = unicast(to);
                return Some((to, hop_limit, Body::Ack(ack)));
            }
            if let Some(runs) = self.next_nack(now) {
                let nack = Nack { parent: id, hop_limit: radius, runs };
                return Some((Address::Channel(domain), Some(radius), Body::Nack(nack)));
            }
            let retry = (self.timing().t_ack * 2).max(REPORT_WAIT_MIN);
            if let Some(report) = self.reports.poll(now, token, retry) {
                let (to, hop_limit) = unicast(to);
                return Some((to, hop_limit, Body::Report(report)));
            }
            if let Some(report) = self.survey.poll(now, token) {
                let (to, hop_limit) = unicast(to);
                return Some((to, hop_limit, Body::Report(report)));
            }
        }
        if let Some(fetch) = self.next_fetch(now) {
            let (to, hop_limit) = unicast(self.config.shape.source);
            return Some((to, hop_limit, fetch));
        }
        let outlook = self.outlook(now);
        let (way, body) = self.tree.poll_message(now, &outlook)?;
        let (to, hop_limit) = way.address(domain);
        Some((to, hop_limit, body))
    }

    /// Acknowledges as soon as possible.
    pub(super) fn ack_soon(&mut self, now: Instant) {
        if self.upstream.is_some() {
            self.ack_at = Some(now);
        }
    }

    /// Acknowledges before T_ack is over, since much has happened; the paper does not.
    pub(super) fn ack_early(&mut self, now: Instant) {
        if self.config.timing.adaptive && self.ack_at.is_some() {
            let soonest = self.acked_at + self.timing().t_ack / EARLY_ACKS;
            self.ack_at = self.ack_at.map(|at| at.min(soonest.max(now)));
        }
    }

    /// The acknowledgement that is due every T_ack.
    fn next_ack(&mut self, now: Instant, token: u64) -> Option<Ack> {
        let upstream = self.upstream.as_mut()?;
        if self.ack_at.is_none_or(|at| at > now) {
            return None;
        }
        self.ack_at = Some(now + upstream.timing.t_ack);
        self.acked_at = now;
        let echo = upstream.echo.take();
        let from = upstream.from;
        let known = self.reception.known().max(from);
        let below = self.reception.first_gap(from).min(known);
        let mut beyond = self.reception.held_from(below, limits::ACK_RUNS);
        beyond.retain_mut(|run| {
            run.run.count = run.run.end().min(known).saturating_sub(run.run.first);
            run.run.first < known && run.run.count > 0
        });
        let full = self.refused.is_some() || self.is_full();
        let Heard { received, lost, overrun } = std::mem::take(&mut self.heard);
        self.stats.acks_sent += 1;
        self.round = self.round.wrapping_add(1);
        Some(Ack {
            token,
            round: self.round.wrapping_sub(1),
            below,
            known,
            beyond,
            received,
            lost,
            overrun,
            next_index: self.numbers.next.unwrap_or(0),
            next_repair: self.repair_numbers.next.unwrap_or(0),
            full,
            totals: self.sum(),
            echo: echo.map(|(stamp_ns, at)| Echo { stamp_ns, held: now.since(at) }),
        })
    }

    /// Starts the timers of what is found lacking.
    pub(super) fn find_gaps(&mut self, now: Instant) {
        let floor = self.floor();
        if floor == u32::MAX {
            // Without a parent only those go on who had one and were too slow.
            if self.slow && !self.fetching.is_waiting() && self.lacks_before(floor) {
                self.fetching.wake(now);
            }
            return;
        }
        let span = self.nack_span();
        let unit = self.uniform_if_needed(floor);
        let within = floor..self.wanted_end();
        self.asks.find(&self.reception, within, || now + span.mul_f64(unit));
        if !self.fetching.is_waiting() && self.lacks_before(floor) {
            self.fetching.wake(now);
        }
    }

    /// A draw, but only if there is something to draw for, so that a receiver that loses nothing
    /// draws nothing.
    fn uniform_if_needed(&mut self, floor: u32) -> f64 {
        let end = self.wanted_end();
        if self.asks.is_behind(&self.reception, floor..end) {
            uniform(&mut self.random)
        } else {
            0.0
        }
    }

    /// Whether a block is lacking that is to be fetched.
    fn lacks_before(&self, floor: u32) -> bool {
        let end = floor.min(self.wanted_end()).min(self.reception.known());
        self.reception.first_gap(0) < end
    }

    /// The time over which NACKs are spread: a round trip to the farthest child of the parent's
    /// domain [TMTP, related work].
    pub(super) fn nack_span(&self) -> Duration {
        let rtt = self.timing().rtt.mul_f64(self.config.repair.nack_delay.clamp(0.0, 100.0));
        rtt.max(self.config.repair.nack_delay_min)
    }

    /// When to ask again for a block that was asked for so often.
    fn ask_again(&mut self, now: Instant) -> impl Fn(u8) -> Instant + use<K> {
        let timing = self.timing();
        let t_retrans = timing.t_ack * u32::from(timing.intervals);
        let span = self.nack_span();
        let spread = span.mul_f64(uniform(&mut self.random));
        let base = (timing.rtt + span).max(LEAST_RETRY);
        move |tries| {
            let wait = base.saturating_mul(1 << u32::from(tries.saturating_sub(1)).min(6));
            now + wait.min(t_retrans.max(base)) + spread
        }
    }

    /// The NACK that is due.
    fn next_nack(&mut self, now: Instant) -> Option<Vec<NackRun>> {
        if self.asks.next().is_none_or(|at| at > now) {
            return None;
        }
        let again = self.ask_again(now);
        let early = self.nack_span() / 4;
        let most = self.may_ask(now, limits::NACK_RUNS * 4)?;
        let blocks = self.asks.take_due(now, early, most, again);
        let fec = self.config.shape.fec;
        let full = self.is_full();
        let mut runs: Vec<NackRun> = Vec::new();
        for (block, tries) in blocks {
            if tries > MOST_TRIES {
                self.asks.done(block);
                self.fetching.want(now, block);
                continue;
            }
            if full && self.buffer_lacks(block) {
                continue;
            }
            let need = match self.reception.lack(block, fec) {
                Lack::Whole => Need::Whole,
                Lack::Count(count) => Need::Count(count),
                Lack::Exact(missing) => Need::Exact(missing),
            };
            let room = runs.len() < limits::NACK_RUNS;
            match runs.last_mut() {
                Some(last) if last.need == need && last.run.end() == block => last.run.count += 1,
                _ if !room => {}
                _ => runs.push(NackRun { run: BlockRun { first: block, count: 1 }, need }),
            }
        }
        if runs.is_empty() {
            return None;
        }
        self.stats.nacks_sent += 1;
        Some(runs)
    }

    /// How many blocks may be asked for now, at most `most`. Whoever has no room tries with one, now
    /// and then.
    fn may_ask(&mut self, now: Instant, most: usize) -> Option<usize> {
        let t_ack = self.timing().t_ack;
        let Some(refusing) = &mut self.refused else { return Some(most) };
        if refusing.until > now {
            return None;
        }
        let wait = t_ack.saturating_mul(1 << refusing.tries.min(16)).min(LONGEST_REFUSAL);
        *refusing = Refusing { until: now + wait, tries: refusing.tries + 1 };
        Some(1)
    }

    /// Whether a full buffer would not take the block.
    fn buffer_lacks(&self, block: u32) -> bool {
        self.keeps_from.is_some_and(|from| block >= from)
            && !self.buffer.has_room(block, self.config.shape.block_symbols)
    }

    /// A sibling's NACK suppresses those of this node that ask for no more.
    pub(super) fn hear_nack(&mut self, now: Instant, runs: &[NackRun]) {
        let fec = self.config.shape.fec;
        for run in runs {
            let asked: Vec<u32> = self.asks.within(run.run.blocks()).collect();
            for block in asked {
                let covered = match (self.reception.lack(block, fec), run.need) {
                    (_, Need::Whole) => true,
                    (Lack::Count(mine), Need::Count(theirs)) => mine <= theirs,
                    (Lack::Exact(mine), Need::Exact(theirs)) => mine.minus(theirs).is_empty(),
                    _ => false,
                };
                if covered {
                    let again = self.ask_again(now);
                    if self.asks.suppress(block, again) {
                        self.stats.nacks_suppressed += 1;
                    }
                }
            }
        }
    }

    /// How long an answer to a FETCH is waited for: a round trip and what the source gathers for. A
    /// FETCH too many is harmless as long as the answer to the last one was not sent.
    pub(super) fn fetch_wait(&self) -> Duration {
        let Some(rtt) = self.fetching.rtt() else { return FETCH_WAIT };
        (rtt * 2 + self.timing().t_ack).max(FETCH_WAIT_MIN)
    }

    /// The FETCH that is due.
    fn next_fetch(&mut self, now: Instant) -> Option<Body> {
        if self.feed.is_none() || !matches!(self.stage, Stage::Inside | Stage::Leaving(_)) {
            return None;
        }
        if !self.fetching.is_due(now) {
            return None;
        }
        let most = self.may_ask(now, usize::MAX)?;
        let within: Range<u32> = 0..self.floor().min(self.wanted_end());
        let wait = self.fetch_wait();
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        let (cookie, runs) = self.fetching.poll(now, &self.reception, within, most, wait)?;
        let nonce = self.random.next_u64();
        self.fetching.sent(now, nonce);
        self.stats.fetches_sent += 1;
        Some(Body::Fetch { nonce, cookie, runs })
    }
}
