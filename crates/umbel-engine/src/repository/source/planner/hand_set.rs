//! A policy that is set by hand: the paper's schemes, as read by [`PaperReading`].
//!
//! ```text
//!             last segment planned and over
//!  choose ──▶ pass ───────────────────────────▶ pending again, as far as NAKs say
//!              │ NAK that the policy honours [Repository §3.2.4]
//!              ▼
//!           gathering ──all answered, or time──▶ repair
//! ```

use std::collections::{BTreeMap, BTreeSet};

use umbel_wire::Toi;

use super::{Desk, Lack};
use crate::repository::config::PaperReading;
use crate::repository::missing::Missing;
use crate::repository::policy::{self, Expansion, Retransmit};
use crate::repository::source::item::Expand;
use crate::repository::source::transmission::{Purpose, Transmission};
use crate::repository::source::wanted::Wanted;
use crate::{Instant, SessionId};

/// A pass over an item: all symbols that its clients are missing, in block order.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// The next block to plan.
    next_block: u32,
    /// Number of transmissions that are planned and not finished.
    open: u32,
    /// Whether every block has been planned.
    planned: bool,
}

/// NAKs that were accepted and are gathered for one retransmission.
#[derive(Debug)]
struct Repair {
    missing: Missing,
    participants: BTreeSet<SessionId>,
    /// Time at which the retransmission may be planned.
    due: Instant,
}

/// The planner of a policy that is set by hand.
#[derive(Debug)]
pub(in crate::repository::source) struct HandSet {
    scheme: policy::HandSet,
    pub(super) reading: PaperReading,
    passes: BTreeMap<Toi, Pass>,
    /// The pass under way, which continues before another item is chosen [Repository §4].
    current: Option<Toi>,
    repairs: BTreeMap<Toi, Repair>,
    /// Time until which the channel is kept free for NAKs.
    kept_free_until: Option<Instant>,
}

impl HandSet {
    pub(super) fn new(scheme: policy::HandSet, reading: PaperReading) -> HandSet {
        HandSet {
            scheme,
            reading,
            passes: BTreeMap::new(),
            current: None,
            repairs: BTreeMap::new(),
            kept_free_until: None,
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let repairs = self.repairs.values().map(|repair| repair.due);
        repairs.chain(self.kept_free_until).min()
    }

    /// Plans a retransmission that is due, the pass under way, or the scheduler's choice.
    pub(super) fn plan(&mut self, desk: &mut Desk<'_>) -> Option<Transmission> {
        self.kept_free_until = None;
        if let Some(repair) = self.plan_repair(desk) {
            return Some(repair);
        }
        if let Some(segment) = self.current.and_then(|toi| self.plan_segment(desk, toi)) {
            return Some(segment);
        }
        if self.reading.wait_for_naks && self.scheme.retransmit != Retransmit::Never {
            self.kept_free_until = desk.answers.awaited_until(desk.now);
            if self.kept_free_until.is_some() {
                return None;
            }
        }
        while let Some(toi) = desk.wanted.scheduler.choose(desk.now) {
            desk.wanted.scheduler.hold(toi);
            if desk.wanted.get(toi).is_none() {
                // The scheduler should hold no item without a demand. Forget it if one turns up.
                desk.wanted.scheduler.unhold(toi);
                return None;
            }
            self.passes.insert(toi, Pass::default());
            self.current = Some(toi);
            if let Some(segment) = self.plan_segment(desk, toi) {
                return Some(segment);
            }
        }
        None
    }

    /// Plans the next blocks of the pass over an item. At its end the pass is closed and nothing is
    /// planned.
    fn plan_segment(&mut self, desk: &mut Desk<'_>, toi: Toi) -> Option<Transmission> {
        let item = desk.wanted.get_mut(toi)?;
        let pass = self.passes.get_mut(&toi)?;
        let limit = desk.segments.packets(item.demands.len());
        let max_loss = desk.clients.worst_loss(item.demands.keys());
        let expand = Expand { policy: &self.scheme, requests: item.demands.len() as u32, max_loss };
        let first = item.next_wanted_block(pass.next_block);
        let mut plan = Vec::new();
        let mut packets = 0;
        let mut end = first.unwrap_or(pass.next_block);
        let mut next = first;
        while let Some(block) = next.filter(|_| packets < limit) {
            let whole = self.reading.reschedule_whole;
            packets += item.plan_pass_block(block, whole, &expand, &mut plan);
            end = block + 1;
            next = item.next_wanted_block(end);
        }
        pass.next_block = end;
        pass.planned = next.is_none();
        pass.open += u32::from(!plan.is_empty());
        let participants = item.who_lack(first.unwrap_or(end)..end);
        for session in &participants {
            if let Some(demand) = item.demands.get_mut(session) {
                demand.unaware = false;
            }
        }
        let what = (toi, item.oti);
        if pass.planned {
            self.current = None;
            if pass.open == 0 {
                self.end_pass(desk.wanted, toi);
            }
        }
        Some(Transmission::new(what, Purpose::Pass, (first?..end, plan), participants))
    }

    /// Plans the retransmission with the earliest due time.
    fn plan_repair(&mut self, desk: &mut Desk<'_>) -> Option<Transmission> {
        let due = self.repairs.iter().filter(|(_, repair)| repair.due <= desk.now);
        let toi = due.min_by_key(|(_, repair)| repair.due).map(|(&toi, _)| toi)?;
        let Repair { missing, mut participants, .. } = self.repairs.remove(&toi)?;
        let item = desk.wanted.get_mut(toi)?;
        let max_loss = desk.clients.worst_loss(item.demands.keys());
        let unexpanded = policy::HandSet { fec: Expansion::NONE, ..self.scheme };
        let policy = if self.reading.expand_repairs { &self.scheme } else { &unexpanded };
        let expand = Expand { policy, requests: participants.len() as u32, max_loss };
        let first = missing.next_block(0)?;
        let mut plan = Vec::new();
        let mut next = Some(first);
        let mut end = first;
        while let Some(block) = next {
            item.plan_repair_block(block, &missing, &expand, &mut plan);
            end = block + 1;
            next = missing.next_block(end);
        }
        if self.reading.open_repairs {
            let others = item.who_lack(first..end);
            participants.extend(others.iter().filter(|session| !item.demands[session].unaware));
        }
        let what = (toi, item.oti);
        Some(Transmission::new(what, Purpose::Repair, (first..end, plan), participants))
    }

    /// Gathers a NAK that the policy honours, and passes others to the scheduler [Repository §3.3].
    pub(super) fn on_nak(&mut self, now: Instant, wanted: &mut Wanted, lack: Lack) {
        let Lack { session, toi, missing, gather_until } = lack;
        let symbols = wanted.get(toi).map_or(0, |item| missing.symbols(&item.partition));
        let joins = self.reading.join_repairs && self.repairs.contains_key(&toi);
        let honoured = self.scheme.accepts(symbols) || joins;
        let Some(due) = gather_until.filter(|_| honoured) else {
            return wanted.lack(now, (session, toi), &missing, self.reading.reschedule_whole);
        };
        let repair = self.repairs.entry(toi).or_insert_with(|| Repair {
            missing: Missing::default(),
            participants: BTreeSet::new(),
            due,
        });
        repair.missing.merge(&missing);
        repair.participants.insert(session);
    }

    pub(super) fn on_all_answered(&mut self, now: Instant, toi: Toi) {
        if self.reading.gather_fully {
            return;
        }
        if let Some(repair) = self.repairs.get_mut(&toi) {
            repair.due = repair.due.min(now);
        }
    }

    /// Counts a transmission's symbols as delivered, until NAKs say otherwise.
    pub(super) fn on_finished(&mut self, wanted: &mut Wanted, transmission: &Transmission) {
        let toi = transmission.toi;
        wanted.deliver(toi, &transmission.participants, transmission.blocks.clone());
        match transmission.purpose {
            Purpose::Pass => self.close_segment(wanted, toi),
            Purpose::Repair if self.reading.open_repairs => {
                wanted.rerank(toi, self.reading.reschedule_whole);
            }
            Purpose::Repair => {}
        }
    }

    /// Notes that a transmission of the pass over an item is over.
    pub(super) fn close_segment(&mut self, wanted: &mut Wanted, toi: Toi) {
        let Some(pass) = self.passes.get_mut(&toi) else { return };
        pass.open = pass.open.saturating_sub(1);
        if pass.planned && pass.open == 0 {
            self.end_pass(wanted, toi);
        }
    }

    /// Ends the pass over an item. Symbols that clients are still missing are pending again.
    fn end_pass(&mut self, wanted: &mut Wanted, toi: Toi) {
        self.passes.remove(&toi);
        wanted.rerank(toi, self.reading.reschedule_whole);
        wanted.scheduler.unhold(toi);
    }

    pub(super) fn forget(&mut self, session: SessionId, toi: Toi) {
        if let Some(repair) = self.repairs.get_mut(&toi) {
            repair.participants.remove(&session);
            if repair.participants.is_empty() {
                self.repairs.remove(&toi);
            }
        }
    }

    pub(super) fn forget_item(&mut self, toi: Toi) {
        self.repairs.remove(&toi);
        self.passes.remove(&toi);
        if self.current == Some(toi) {
            self.current = None;
        }
    }
}
