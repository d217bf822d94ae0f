//! A parent's side of error and flow control, shared by the source and domain managers.

#[cfg(test)]
mod tests;

use std::time::Duration;

use umbel_wire::Tsi;
use umbel_wire::tmtp::{Ack, Echo, Nack, NodeId, Timing};

use super::children::{Child, Children, Progress};
use super::config::{RepairConfig, TimingConfig};
use super::hold_up::Budget;
use super::intervals::Intervals;
use crate::load::ProcessingLoad;
use crate::recovery::ChannelNumbers;
use crate::recovery::reception::Lack;
use crate::recovery::repairs::Repairs;
use crate::recovery::{Debts, Filled, Stock, Unfounded};
use crate::{Instant, TransmitBuf};

/// Least hold-down: nodes are busy, and a NACK waits in queues while its answer is under way.
const LEAST_HOLD_DOWN: Duration = Duration::from_millis(5);

/// Number of T_ack without progress after which a child is stalled. The window is shut no sooner.
const STALLED: u32 = 2;

/// Round trip in a domain in which none was measured yet.
const FIRST_RTT: Duration = Duration::from_millis(20);
/// Shortest round trip that is believed.
const LEAST_RTT: Duration = Duration::from_micros(100);

/// Domain of a node: its children, their acknowledgements, and the repairs that it owes them.
///
/// ```text
///            extend                         T_retrans over, not acknowledged
/// new block ────────▶ sent, in an interval ─────────────────────────────────▶ repair due
///                         │         ▲  ▲                                        │  ▲
///    all children's ACKs  │         │  └──────────── sent with the radius ──────┘  │
///                         ▼         └─ hold-down: the same NACK again              │
///                     released              NACK ──────────────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Domain {
    feed: Tsi,
    repair: RepairConfig,
    ledger: Ledger,
    children: Children,
    intervals: Intervals,
    repairs: Repairs,
    /// Present where anyone may become a child.
    budget: Option<Budget>,
}

/// The timing of a node's domain and what the domain has cost so far. Both outlive its children.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    config: TimingConfig,
    timing: Timing,
    /// The round trip was measured.
    measured: bool,
    /// Time of the next review of timing and children.
    review: Instant,
    /// Repair packets sent.
    sent: u32,
    load: ProcessingLoad,
}

impl Ledger {
    /// Creates the ledger of a node that never had children.
    pub(super) fn new(config: TimingConfig) -> Ledger {
        let TimingConfig { t_ack, intervals, adaptive, .. } = config;
        Ledger {
            config,
            timing: Timing { t_ack, intervals, rtt: if adaptive { FIRST_RTT } else { t_ack } },
            measured: false,
            review: Instant::EPOCH,
            sent: 0,
            load: ProcessingLoad::default(),
        }
    }

    /// Returns T_ack, n, and the round trip to the farthest child.
    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// Takes over the timing that the source, by way of this node's parent, prescribes.
    pub(super) fn set_timing(&mut self, timing: Timing) {
        if !self.config.adaptive {
            self.timing.t_ack = timing.t_ack;
        }
        self.timing.intervals = timing.intervals;
    }

    /// Returns what the domain has cost this node.
    pub(super) fn load(&self) -> ProcessingLoad {
        self.load
    }
}

impl Domain {
    /// Creates a domain without children whose next block is `start`.
    pub(super) fn new(
        feed: Tsi,
        fec: bool,
        repair: RepairConfig,
        ledger: Ledger,
        start: u32,
    ) -> Domain {
        Domain {
            feed,
            repair,
            ledger,
            children: Children::default(),
            intervals: Intervals::new(start),
            repairs: Repairs::new(fec, repair.queue),
            budget: repair.hold_up.map(Budget::new),
        }
    }

    /// Returns the timing and the cost of the domain.
    pub(super) fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Returns the timing and the cost of the domain.
    pub(super) fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// Returns T_ack, n, and the round trip to the farthest child.
    pub(super) fn timing(&self) -> Timing {
        self.ledger.timing
    }

    /// Returns T_retrans.
    pub(super) fn t_retrans(&self) -> Duration {
        self.ledger.timing.t_ack * u32::from(self.ledger.timing.intervals)
    }

    /// Returns what the domain has cost this node.
    pub(super) fn load(&self) -> ProcessingLoad {
        self.ledger.load
    }

    /// Returns the children.
    pub(super) fn children(&self) -> &Children {
        &self.children
    }

    /// Adds a child that is guaranteed all blocks from `from` on.
    /// Its host held up the feed so often before.
    pub(super) fn adopt(&mut self, now: Instant, id: NodeId, from: u32, strikes: u8) {
        self.children.adopt(now, id, from);
        self.children.note_strikes(id, strikes);
        if self.budget.is_some_and(|budget| budget.is_spent()) {
            self.children.pass(id);
        }
        self.ledger.review = self.ledger.review.max(now);
    }

    /// Removes a child.
    pub(super) fn remove(&mut self, id: NodeId) {
        self.children.remove(id);
        self.advance();
    }

    /// Goes on without a child while its path carries much less than is sent. It is not repaired for:
    /// that would cost the others, and would be lost as well.
    pub(super) fn set_behind(&mut self, now: Instant, id: NodeId, behind: bool) {
        self.children.set_behind(now, id, behind);
        self.advance();
    }

    /// Repairs nothing for a child that gets everything apart from the others. The feed goes on
    /// without it, unless it `counts`.
    pub(super) fn serve_apart(&mut self, id: NodeId, counts: bool) {
        self.children.serve_apart(id, counts);
        self.advance();
    }

    /// Counts as progress what a child that is served apart holds.
    pub(super) fn note_progress(&mut self, now: Instant, id: NodeId) {
        self.children.note_progress(now, id);
    }

    /// Returns whether a child's path carries much less than is sent.
    pub(super) fn is_behind(&self, id: NodeId) -> bool {
        self.children.get(id).is_some_and(|child| child.is_behind() || child.is_apart())
    }

    /// Returns the first block that not every child that counts has acknowledged.
    pub(super) fn acked_below(&self) -> u32 {
        self.children.acked_below().map_or(self.intervals.end(), |acked| {
            // A child may be missing again what it had acknowledged.
            acked.clamp(self.intervals.start().min(self.intervals.end()), self.intervals.end())
        })
    }

    /// Returns one beyond the last block that was sent (by a manager: received).
    pub(super) fn end(&self) -> u32 {
        self.intervals.end()
    }

    /// Notes that all blocks before `end` were sent (by a manager: received) by now.
    pub(super) fn extend(&mut self, now: Instant, end: u32) {
        self.intervals.extend(now, end, self.ledger.timing.t_ack);
        if self.children.acked_below().is_none() {
            self.advance();
        }
    }

    /// Returns whether a source may send blocks for the first time. It may if the first interval
    /// is acknowledged, or its T_retrans is not over.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        self.intervals.expires(self.t_retrans()).is_none_or(|expires| now < expires)
    }

    fn advance(&mut self) {
        let acked = self.children.acked_below().unwrap_or(self.intervals.end());
        self.intervals.acknowledge(acked);
        self.repairs.forget_before(self.acked_below());
    }

    /// Handles an acknowledgement of a child. No block from `limit` on can have been sent.
    /// Returns whether the domain's round trip has changed so much that children should hear of
    /// it.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        id: NodeId,
        ack: &Ack,
        limit: u32,
    ) -> Result<bool, Unfounded> {
        let last = ack.beyond.last().map_or(ack.below, |run| run.run.end());
        if ack.below.max(last) > limit {
            return Err(Unfounded::NeverSent);
        }
        if !self.children.is_news(id, ack.round) {
            return Err(Unfounded::Old);
        }
        let before = self.ledger.timing.rtt;
        let progress = Progress {
            below: ack.below,
            runs: ack.beyond.clone(),
            full: ack.full,
            height: ack.totals.height,
        };
        if self.children.acknowledge(now, id, ack.round, progress) {
            self.ledger.load.acks += 1;
            self.children.note_loss(id, ack.received, ack.lost);
            self.measure(now, id, ack.echo);
            self.advance();
        }
        let rtt = self.ledger.timing.rtt;
        Ok(rtt > before * 2 || rtt < before / 2)
    }

    fn measure(&mut self, now: Instant, id: NodeId, echo: Option<Echo>) {
        let Some(echo) = echo else { return };
        let sent = Instant::from_nanos(echo.stamp_ns);
        // A stamp from the future, or one held longer than it is old, was made up.
        let Some(rtt) = now.since(sent).checked_sub(echo.held) else { return };
        if sent <= now && rtt < Duration::from_mins(1) && self.children.measure(id, rtt) {
            // No need to wait for the next review.
            let rtt = rtt.max(LEAST_RTT);
            self.ledger.timing.rtt =
                if self.ledger.measured { self.ledger.timing.rtt.max(rtt) } else { rtt };
            self.ledger.measured = true;
        }
    }

    /// Returns how long after a repair the same NACK may be one that crossed it.
    fn hold_down(&self) -> Duration {
        let times = self.repair.hold_down.clamp(0.0, 100.0);
        let least = if times > 0.0 { LEAST_HOLD_DOWN } else { Duration::ZERO };
        self.ledger.timing.rtt.mul_f64(times).max(least)
    }

    /// Handles a NACK of a child; `stock` is what can be sent now. Returns why the first block
    /// was ignored, if one was.
    pub(super) fn on_nack(
        &mut self,
        now: Instant,
        id: NodeId,
        nack: &Nack,
        stock: &impl Stock,
    ) -> Result<(), Unfounded> {
        if self.children.get(id).is_none() {
            return Err(Unfounded::NotLacking);
        }
        self.ledger.load.nacks += 1;
        if self.is_behind(id) {
            return Err(Unfounded::Behind);
        }
        let mut result = Ok(());
        for run in &nack.runs {
            for block in run.run.blocks() {
                let noted = self.ask(now, &Some(id), block, run.need.into(), stock);
                result = result.and(noted);
            }
        }
        result
    }

    /// Notes that a block is complete here and can be sent.
    pub(super) fn on_held(&mut self, block: u32, k: u8) {
        self.repairs.on_held(block, k);
    }

    /// Does what is due: T_retrans, timing, eviction of children that hold up all others. `held_up`
    /// says whether the node could go on but for its children. Returns the evicted children.
    pub(super) fn on_timeout(
        &mut self,
        now: Instant,
        stock: &impl Stock,
        held_up: bool,
    ) -> Vec<NodeId> {
        self.retransmit(now, stock);
        if now < self.ledger.review || self.children.len() == 0 {
            return Vec::new();
        }
        self.ledger.review = now + self.ledger.timing.t_ack;
        self.adapt();
        let end = self.intervals.end();
        self.children.excuse(now, |child| {
            let next = child.progress.below;
            next >= end || child.counts() && stock.held(next).is_none()
        });
        self.spend(now, held_up);
        let evicted = self.children.evict(now, self.repair.evict_after);
        if !evicted.is_empty() {
            self.advance();
        }
        evicted
    }

    /// Goes on without children that make no progress, once all have held up the feed for long.
    fn spend(&mut self, now: Instant, held_up: bool) {
        let (period, end) = (self.ledger.timing.t_ack, self.intervals.end());
        let a_while = period * STALLED;
        let stalled = held_up && self.children.are_some_stalled(now, a_while);
        let Some(budget) = &mut self.budget else { return };
        budget.review(now, period * 2, stalled, end);
        if !budget.is_spent() {
            self.children.take_back(now, a_while);
        } else if stalled {
            self.children.pass_over(now, a_while);
            self.advance();
        }
    }

    /// Schedules unacknowledged blocks of the first interval again when its T_retrans is over.
    fn retransmit(&mut self, now: Instant, stock: &impl Stock) {
        if self.children.acked_below().is_none() {
            return;
        }
        let t_retrans = self.t_retrans();
        let due = self.intervals.next_retransmission(t_retrans, t_retrans);
        if due.is_none_or(|due| due > now) {
            return;
        }
        self.ledger.load.timers += 1;
        let hold_down = self.hold_down();
        let since = now.since(Instant::EPOCH).saturating_sub(self.ledger.timing.t_ack);
        let since = Instant::EPOCH + since;
        for block in self.intervals.retransmit(now) {
            let repaired = |(_, child): &(NodeId, &Child)| child.counts() && !child.is_apart();
            for (_, child) in self.children.iter().filter(repaired) {
                let Some(lack) = child.lack(block) else { continue };
                if self.ledger.config.adaptive && !worth_sending(child, block, since) {
                    continue;
                }
                let is_stranger = self.budget.is_some() && !child.has_answered();
                let lack = if is_stranger { one_symbol() } else { lack };
                let held = stock.held(block);
                self.repairs.ask(now, block, lack, held, hold_down);
            }
        }
    }

    /// Adapts T_ack to the round trip to the farthest child and to the number of children.
    fn adapt(&mut self) {
        if let Some(rtt) = self.children.farthest() {
            self.ledger.timing.rtt = rtt.max(LEAST_RTT);
        }
        let TimingConfig { adaptive, t_ack_min, t_ack_max, acks_per_s, .. } = self.ledger.config;
        if adaptive {
            let load = Duration::from_secs(1) / acks_per_s.max(1) * self.children.len() as u32;
            let t_ack = (self.ledger.timing.rtt * 2).max(load);
            // Children hear of a shorter T_ack only later: do not count anyone as late until
            // then.
            let t_ack = t_ack.max(self.ledger.timing.t_ack / 8 * 7);
            self.ledger.timing.t_ack = t_ack.min(t_ack_max).max(t_ack_min);
        }
    }

    /// Returns when [`on_timeout`](Domain::on_timeout) has something to do.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        if self.children.len() == 0 {
            return None;
        }
        let t_retrans = self.t_retrans();
        let retransmission = self.intervals.next_retransmission(t_retrans, t_retrans);
        let retransmission = retransmission.filter(|_| self.children.acked_below().is_some());
        Some(retransmission.map_or(self.ledger.review, |at| at.min(self.ledger.review)))
    }

    /// Fills `buf` with repairs, which count among the packets of a channel that has `numbers`.
    pub(super) fn fill_numbered(
        &mut self,
        now: Instant,
        numbers: Option<&mut ChannelNumbers>,
        stock: &mut impl Stock,
        buf: &mut TransmitBuf,
    ) -> Filled {
        let before = self.ledger.sent;
        let hold_down = self.hold_down();
        let repairs = (self.feed, &mut self.ledger.sent);
        let filled = self.repairs.fill((now, hold_down), repairs, numbers, stock, buf);
        self.ledger.load.retransmissions += u64::from(self.ledger.sent.wrapping_sub(before));
        filled
    }
}

impl Debts for Domain {
    /// The child; `None` for a receiver of which no more is known than what it lacks.
    type Asker = Option<NodeId>;

    fn ask(
        &mut self,
        now: Instant,
        asker: &Option<NodeId>,
        block: u32,
        lack: Lack,
        stock: &impl Stock,
    ) -> Result<(), Unfounded> {
        let child = asker.and_then(|id| self.children.get(id));
        let adaptive = self.ledger.config.adaptive;
        let loss = child.filter(|_| adaptive).map_or(0.0, |child| child.loss);
        let lack = match lack {
            Lack::Count(count) => Lack::Count(with_spare(count, loss)),
            lack => lack,
        };
        let (held, hold_down) = (stock.held(block), self.hold_down());
        let has = |child: &Child| child.lack(block).is_none() && block >= child.from;
        if block >= self.intervals.end() && held.is_none() {
            Err(Unfounded::NeverSent)
        } else if child.is_some_and(has) || held.is_none() && block < self.acked_below() {
            Err(Unfounded::NotLacking)
        } else if self.repairs.ask(now, block, lack, held, hold_down) {
            Ok(())
        } else {
            Err(Unfounded::TooMany)
        }
    }

    fn any_due(&self) -> bool {
        self.repairs.any_due()
    }

    fn fill(&mut self, now: Instant, stock: &mut impl Stock, buf: &mut TransmitBuf) -> Filled {
        self.fill_numbered(now, None, stock, buf)
    }
}

/// Returns whether a child that does not acknowledge a block is likely to miss it and to take it
/// now. A child that was silent since, or has no room, gets only its first missing block: its
/// answer shows that it is back. The paper sends all again, whatever the reason.
fn worth_sending(child: &Child, block: u32, since: Instant) -> bool {
    block == child.progress.below || child.heard >= since && !child.progress.full
}

/// Returns what to send of a block to a child of an open feed that never acknowledged anything: one
/// symbol provokes its answer as well. Whole blocks would give a stranger who never answers a large
/// share of the rate.
fn one_symbol() -> Lack {
    Lack::Exact(std::iter::once(0).collect())
}

/// Returns how many repair symbols to send so that `count` of them arrive most times.
fn with_spare(count: u8, loss: f64) -> u8 {
    let lost = f64::from(count) * loss / (1.0 - loss.min(0.9));
    let spare = if lost < 0.05 { 0.0 } else { (lost + lost.sqrt()).ceil() };
    count.saturating_add(spare.min(254.0) as u8)
}
