//! What the data channel carries next.

use std::time::Duration;

use umbel_wire::Toi;

use super::Source;
use super::announce::Announcements;
use super::item::{Expand, Pass};
use super::transmission::{Ended, Purpose, Transmission};
use crate::repository::policy::{Expansion, HandSet, Policy, Retransmit};
use crate::symbols::{BlockId, SymbolSource};
use crate::{Instant, SessionId};

/// A client that took part in a transmission stays joined at least this long after it.
const LISTENS_ON: Duration = Duration::from_millis(300);
/// NAKs about a transmission are understood for this long after they were gathered.
const REMEMBERED: Duration = Duration::from_mins(1);

impl<S: SymbolSource> Source<S> {
    /// Plans and announces transmissions until the line is as long as the lookahead.
    pub(super) fn fill_queue(&mut self, now: Instant) {
        let mut announcements = Announcements::default();
        self.kept_free_until = None;
        while self.queue.is_empty() || self.queued_time() < self.config.lookahead {
            let idle = self.queue.is_empty();
            let planned = match self.config.policy {
                Policy::Auto => self.plan_auto(now),
                Policy::HandSet(scheme) => self.plan_next(now, &scheme),
            };
            let Some(mut transmission) = planned else { break };
            (transmission.not_before, transmission.starts_by) =
                self.start(now, &transmission, idle);
            transmission.nak_spread = self.nak_spread(transmission.participants.len());
            self.note_listeners(now, &transmission);
            for run in transmission.plan() {
                let block = BlockId { toi: transmission.toi, sbn: run.block };
                self.symbols.prefetch(block, run.first_esi..run.first_esi + run.count);
            }
            announcements.add(&transmission, transmission.starts_by - now);
            self.queued_packets += u64::from(transmission.packets);
            self.queue.push_back(transmission);
        }
        self.announce(now, announcements);
    }

    /// How long the channel is busy with what is planned.
    fn queued_time(&self) -> Duration {
        self.throttle.rate().time_for(self.queued_packets * self.config.packet_len as u64)
    }

    /// Chooses and plans one transmission: a retransmission that is due, the pass under way, or
    /// the scheduler's choice.
    fn plan_next(&mut self, now: Instant, policy: &HandSet) -> Option<Transmission> {
        if let Some(repair) = self.plan_repair(now, policy) {
            return Some(repair);
        }
        if let Some(segment) = self.current_pass.and_then(|toi| self.plan_segment(toi, policy)) {
            return Some(segment);
        }
        if self.config.wait_for_naks && policy.retransmit != Retransmit::Never {
            self.kept_free_until = self.naks_awaited_until(now);
            if self.kept_free_until.is_some() {
                return None;
            }
        }
        while let Some(toi) = self.scheduler.choose(now) {
            self.scheduler.hold(toi);
            let Some(item) = self.items.get_mut(&toi) else {
                // The scheduler holds no item without a demand; forget it should it happen.
                self.scheduler.unhold(toi);
                return None;
            };
            item.pass = Some(Pass { next_block: 0, open: 0, planned: false });
            self.current_pass = Some(toi);
            if let Some(segment) = self.plan_segment(toi, policy) {
                return Some(segment);
            }
        }
        None
    }

    /// Until when NAKs about the last transmission are awaited, if any can come that the policy
    /// may honour.
    fn naks_awaited_until(&self, now: Instant) -> Option<Instant> {
        let &(_, toi, id) = self.ended_order.back()?;
        let ended = self.ended.get(&(toi, id))?;
        let awaited = !ended.unanswered.is_empty() && ended.gather_until > now;
        awaited.then_some(ended.gather_until)
    }

    /// Plans the next blocks of the pass over an item. At its end the pass is closed and there
    /// is nothing to plan.
    fn plan_segment(&mut self, toi: Toi, policy: &HandSet) -> Option<Transmission> {
        let limit = self.segment_packets(toi);
        let max_loss = self.max_loss(toi);
        let item = self.items.get_mut(&toi)?;
        let mut pass = item.pass?;
        let expand = Expand { policy, requests: item.demands.len() as u32, max_loss };
        let oti = item.oti;
        let first = item.next_wanted_block(pass.next_block);
        let mut plan = Vec::new();
        let mut packets = 0;
        let mut end = first.unwrap_or(pass.next_block);
        let mut next = first;
        while let Some(block) = next.filter(|_| packets < limit) {
            packets +=
                item.plan_pass_block(block, self.config.reschedule_whole, &expand, &mut plan);
            end = block + 1;
            next = item.next_wanted_block(end);
        }
        pass.next_block = end;
        pass.planned = next.is_none();
        pass.open += u32::from(!plan.is_empty());
        item.pass = Some(pass);
        let participants = item.who_lack(first.unwrap_or(end)..end);
        for session in &participants {
            if let Some(demand) = item.demands.get_mut(session) {
                demand.unaware = false;
            }
        }
        if pass.planned {
            self.current_pass = None;
            if pass.open == 0 {
                self.end_pass(toi);
            }
        }
        let first = first?;
        let id = self.take_transmission_id();
        let mut transmission = Transmission::new(id, (toi, oti), Purpose::Pass, first..end, plan);
        transmission.participants = participants;
        Some(transmission)
    }

    /// Plans the retransmission whose NAKs have been gathered the longest.
    fn plan_repair(&mut self, now: Instant, policy: &HandSet) -> Option<Transmission> {
        let toi = self
            .repairs
            .iter()
            .filter(|(_, repair)| repair.due <= now)
            .min_by_key(|(_, repair)| repair.due)
            .map(|(&toi, _)| toi)?;
        let repair = self.repairs.remove(&toi)?;
        let max_loss = self.max_loss(toi);
        let item = self.items.get_mut(&toi)?;
        let unexpanded = HandSet { fec: Expansion::NONE, ..*policy };
        let policy = if self.config.expand_repairs { policy } else { &unexpanded };
        let expand = Expand { policy, requests: repair.participants.len() as u32, max_loss };
        let oti = item.oti;
        let first = repair.missing.next_block(0)?;
        let mut plan = Vec::new();
        let mut next = Some(first);
        let mut end = first;
        while let Some(block) = next {
            item.plan_repair_block(block, &repair.missing, &expand, &mut plan);
            end = block + 1;
            next = repair.missing.next_block(end);
        }
        let mut participants = repair.participants;
        if self.config.open_repairs {
            let others = item.who_lack(first..end);
            participants.extend(others.iter().filter(|session| !item.demands[session].unaware));
        }
        let id = self.take_transmission_id();
        let mut transmission = Transmission::new(id, (toi, oti), Purpose::Repair, first..end, plan);
        transmission.participants = participants;
        Some(transmission)
    }

    pub(super) fn take_transmission_id(&mut self) -> u32 {
        let id = self.next_transmission;
        self.next_transmission = id.wrapping_add(1);
        id
    }

    pub(super) fn segment_packets(&self, toi: Toi) -> u32 {
        if self.config.segment == Duration::MAX {
            return u32::MAX;
        }
        let bytes = self.throttle.rate().bytes_in(self.config.segment);
        let bytes = bytes.min(self.config.segment_max_bytes);
        let packets = bytes / self.config.packet_len.max(1) as u64;
        let clients = self.items.get(&toi).map_or(0, |item| item.demands.len() as u64);
        let stretch = 1 + clients / u64::from(self.config.segment_clients.max(1));
        let packets = packets.saturating_mul(stretch);
        u32::try_from(packets).unwrap_or(u32::MAX).max(self.config.segment_min_packets)
    }

    /// Greatest estimated loss among the clients that want an item.
    fn max_loss(&self, toi: Toi) -> f64 {
        let Some(item) = self.items.get(&toi) else { return 0.0 };
        item.demands
            .keys()
            .filter_map(|session| self.clients.get(session))
            .map(|client| client.loss.share())
            .filter(|&loss| loss <= self.config.loss_cap)
            .fold(0.0, f64::max)
    }

    /// When a transmission starts: as soon as its clients can have joined and, where the channel
    /// was idle, as nobody else who wants the item has come in for a while; and when it does at
    /// the latest.
    fn start(&self, now: Instant, transmission: &Transmission, idle: bool) -> (Instant, Instant) {
        let join = transmission
            .participants
            .iter()
            .filter_map(|session| self.clients.get(session))
            .filter(|client| client.listening_until < now)
            .map(|client| client.rtt + self.config.join_lead)
            .max();
        let Some(join) = join else { return (now, now) };
        let item = self.items.get(&transmission.toi);
        let gather = match item.filter(|_| idle && transmission.purpose == Purpose::Pass) {
            Some(item) => {
                let time = self.throttle.rate().time_for(item.oti.object_len);
                time.mul_f64(self.config.gather_fraction).min(self.config.gather_max)
            }
            None => Duration::ZERO,
        };
        (now + join.max(gather.min(self.config.gather_quiet)), now + join.max(gather))
    }

    fn note_listeners(&mut self, now: Instant, transmission: &Transmission) {
        let packets = self.queued_packets + u64::from(transmission.packets);
        let busy = self.throttle.rate().time_for(packets * self.config.packet_len as u64);
        let until = transmission.not_before.max(now) + busy + LISTENS_ON;
        for session in &transmission.participants {
            if let Some(client) = self.clients.get_mut(session) {
                client.listening_until = client.listening_until.max(until);
            }
        }
    }

    fn nak_spread(&self, clients: usize) -> Duration {
        let (least, most) = self.config.nak_spread;
        (self.config.nak_spread_per_client * clients as u32).clamp(least, most)
    }

    /// Tells a client that came late about transmissions of its item that are planned and, if
    /// the policy says so, running [Repository §5.3].
    pub(super) fn notify_late(&mut self, now: Instant, session: SessionId, toi: Toi) {
        let mut announcements = Announcements::default();
        let mut coming = Vec::new();
        for transmission in self.queue.iter_mut().filter(|t| t.toi == toi) {
            let open = !transmission.started() || self.config.policy.notifies();
            if open && transmission.participants.insert(session) {
                transmission.await_more(now + self.config.gather_quiet);
                announcements.add_for(session, transmission);
                coming.extend(transmission.plan().iter().map(|run| run.block));
            }
        }
        if self.config.policy == Policy::Auto {
            self.expect(now, session, toi, &coming);
        }
        self.announce_late(announcements);
    }

    /// The last packet of the first transmission in line has left.
    pub(super) fn finish_front(&mut self, now: Instant) {
        let Some(transmission) = self.queue.pop_front() else { return };
        self.waiting_for_start = false;
        let toi = transmission.toi;
        self.stats.transmissions += 1;
        self.stats.repairs += u64::from(transmission.purpose == Purpose::Repair);
        match self.config.policy {
            Policy::Auto => self.finish_auto(&transmission),
            Policy::HandSet(_) => self.finish_hand_set(&transmission),
        }
        self.review_rate(now);
        let slowest = transmission
            .participants
            .iter()
            .filter_map(|session| self.clients.get(session))
            .map(|client| client.rtt)
            .max()
            .unwrap_or_default();
        let gather = transmission.nak_spread + slowest + self.config.nak_margin;
        let ended =
            Ended { gather_until: now + gather, unanswered: transmission.participants.clone() };
        self.ended.insert((toi, transmission.id), ended);
        self.ended_order.push_back((now + gather + REMEMBERED, toi, transmission.id));
        self.fill_queue(now);
        self.announce_end(now, transmission.id, transmission.nudged);
        self.unseen_end = Some((transmission.id, transmission.participants));
        if self.queue.front().is_none_or(|next| next.not_before > now) {
            self.announce_unseen_end(now);
        }
    }

    /// What a transmission sent counts as delivered, until NAKs say otherwise.
    fn finish_hand_set(&mut self, transmission: &Transmission) {
        let toi = transmission.toi;
        if let Some(item) = self.items.get_mut(&toi) {
            for session in &transmission.participants {
                if let Some(demand) = item.demands.get_mut(session) {
                    demand.missing.clear(transmission.blocks.clone());
                }
            }
        }
        match transmission.purpose {
            Purpose::Pass => self.close_segment(toi),
            Purpose::Repair if self.config.open_repairs => self.reschedule(toi),
            Purpose::Repair => {}
        }
        self.doubt_losses(&transmission.participants, transmission.packets);
    }

    /// Tells the listeners of the last transmission that it is over, since no packet of a later
    /// one shows it to them.
    fn announce_unseen_end(&mut self, now: Instant) {
        if let Some((transmission, listeners)) = self.unseen_end.take() {
            self.announce_end(now, transmission, listeners);
        }
    }

    /// A transmission of the pass over an item is over.
    fn close_segment(&mut self, toi: Toi) {
        let Some(item) = self.items.get_mut(&toi) else { return };
        let Some(pass) = item.pass.as_mut() else { return };
        pass.open = pass.open.saturating_sub(1);
        if pass.planned && pass.open == 0 {
            self.end_pass(toi);
        }
    }

    /// The pass over an item is over: what clients still lack is pending again.
    fn end_pass(&mut self, toi: Toi) {
        let Some(item) = self.items.get_mut(&toi) else { return };
        item.pass = None;
        self.reschedule(toi);
        self.scheduler.unhold(toi);
    }

    /// Tells the scheduler what each client lacks of an item.
    fn reschedule(&mut self, toi: Toi) {
        let Some(item) = self.items.get(&toi) else { return };
        for (&session, demand) in &item.demands {
            match item.outstanding(&demand.missing, self.config.reschedule_whole) {
                0 => self.scheduler.wait(session, toi),
                symbols => self.scheduler.resize(session, toi, symbols),
            }
        }
    }

    /// Has the scheduler know that the client lacks so many symbols of the item.
    pub(super) fn schedule(&mut self, now: Instant, session: SessionId, toi: Toi, symbols: u64) {
        if symbols == 0 {
            self.scheduler.wait(session, toi);
        } else if self.scheduler.contains(session, toi) {
            self.scheduler.resize(session, toi, symbols);
        } else {
            self.scheduler.add(now, session, toi, symbols);
        }
    }

    /// The client wants no more of the item from the channel.
    pub(super) fn drop_demand_of_channel(&mut self, now: Instant, session: SessionId, toi: Toi) {
        self.scheduler.remove(session, toi);
        let Some(item) = self.items.get_mut(&toi) else { return };
        item.demands.remove(&session);
        self.gathering.forget(toi, session);
        if item.demands.is_empty() {
            return self.abandon(now, toi, self.config.cut_short);
        }
        if let Some(repair) = self.repairs.get_mut(&toi) {
            repair.participants.remove(&session);
            if repair.participants.is_empty() {
                self.repairs.remove(&toi);
            }
        }
        self.on_answer(now, session, toi);
        let cut_short = self.config.cut_short;
        let dropped = self.drop_transmissions(now, |transmission| {
            transmission.toi == toi
                && transmission.participants.remove(&session)
                && transmission.participants.is_empty()
                && (cut_short || !transmission.started())
        });
        for purpose in dropped {
            if purpose == Purpose::Pass {
                self.close_segment(toi);
            }
        }
    }

    /// Takes transmissions out of the line, and gives what they were for.
    fn drop_transmissions(
        &mut self,
        now: Instant,
        mut drop: impl FnMut(&mut Transmission) -> bool,
    ) -> Vec<Purpose> {
        let mut dropped = Vec::new();
        let (symbols, queued) = (&mut self.symbols, &mut self.queued_packets);
        self.queue.retain_mut(|transmission| {
            if !drop(transmission) {
                return true;
            }
            *queued = queued.saturating_sub(u64::from(transmission.packets_left()));
            for run in transmission.plan() {
                symbols.release(BlockId { toi: transmission.toi, sbn: run.block });
            }
            dropped.push(transmission.purpose);
            false
        });
        if !dropped.is_empty() {
            self.waiting_for_start = false;
            self.waiting_for_symbols = false;
            self.announce_unseen_end(now);
        }
        dropped
    }

    /// Nobody wants the item any more, or nobody can have it.
    pub(super) fn abandon(&mut self, now: Instant, toi: Toi, cut_short: bool) {
        self.items.remove(&toi);
        self.repairs.remove(&toi);
        self.gathering.take(toi);
        let ended: Vec<_> = self.ended.range((toi, 0)..=(toi, u32::MAX)).map(|(&k, _)| k).collect();
        for key in ended {
            self.ended.remove(&key);
        }
        self.scheduler.unhold(toi);
        if self.current_pass == Some(toi) {
            self.current_pass = None;
        }
        self.drop_transmissions(now, |transmission| {
            transmission.toi == toi && (cut_short || !transmission.started())
        });
    }

    /// Forgets transmissions about which no NAK is expected any more.
    pub(super) fn forget_old_transmissions(&mut self, now: Instant) {
        while let Some(&(until, toi, id)) = self.ended_order.front() {
            if until > now {
                break;
            }
            self.ended_order.pop_front();
            self.ended.remove(&(toi, id));
        }
    }
}
