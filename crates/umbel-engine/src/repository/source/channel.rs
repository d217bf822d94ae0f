//! The data channel: the clients' demand, the planned transmissions, and the packets sent.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use umbel_fec::Partition;
use umbel_wire::alc::DataHeader;
use umbel_wire::reception::ReceptionReport;
use umbel_wire::repository::{Nak, Need, ServerMessage};
use umbel_wire::sealed::SealedHeader;
use umbel_wire::{Oti, Toi};

use super::announcer::{Announcements, Announcer};
use super::answers::Answers;
use super::api::{SourceEvent, SourceStats};
use super::clients::Clients;
use super::item::Demand;
use super::keys::GroupKeys;
use super::line::{Line, Next};
use super::loss::Loss;
use super::pace::Pace;
use super::planner::{Desk, Lack, Planner, Segments};
use super::transmission::{Purpose, Transmission};
use super::wanted::Wanted;
use crate::chance::Generator;
use crate::congestion::Event;
use crate::repository::config::{SourceConfig, StartConfig};
use crate::repository::drops::DropReason;
use crate::repository::missing::Missing;
use crate::repository::scheduler::Scheduler;
use crate::shares::Origin;
use crate::symbols::{BlockId, Load, SymbolSource};
use crate::units::Rate;
use crate::{Address, Instant, RateClass, SessionId, Transmit, TransmitBuf};

/// A client that took part in a transmission stays joined at least this long after it.
const LISTENS_ON: Duration = Duration::from_millis(300);

/// Limit on the runs of blocks or symbols that a client may ask for in all items, beyond one for
/// each.
const MOST_RUNS: usize = 1 << 17;
/// Limit on the runs of a NAK about a transmission that is no longer known.
const MOST_STRAY_RUNS: usize = 64;

/// A call to the engine: its time, and the parties to be told of its effects.
#[derive(Debug)]
pub(super) struct Turn<'a> {
    pub(super) now: Instant,
    pub(super) clients: &'a mut Clients,
    pub(super) announcer: &'a mut Announcer,
    /// Group keys, if the channel is sealed.
    pub(super) keys: Option<&'a mut GroupKeys>,
    pub(super) events: &'a mut VecDeque<SourceEvent>,
}

/// The data channel.
#[derive(Debug)]
pub(super) struct DataChannel<S> {
    config: SourceConfig,
    pub(super) symbols: S,
    pub(super) wanted: Wanted,
    planner: Planner,
    pub(super) line: Line,
    pub(super) answers: Answers,
    pub(super) pace: Pace,
    pub(super) stats: SourceStats,
}

impl<S: SymbolSource> DataChannel<S> {
    pub(super) fn new(config: SourceConfig, random: Generator, symbols: S) -> DataChannel<S> {
        DataChannel {
            symbols,
            wanted: Wanted::new(Scheduler::new(config.scheduler)),
            planner: Planner::new(&config),
            line: Line::new(),
            answers: Answers::default(),
            pace: Pace::new(config.rate, config.congestion, random),
            stats: SourceStats::default(),
            config,
        }
    }

    /// Returns the current packet rate.
    pub(super) fn rate(&self) -> Rate {
        self.pace.rate()
    }

    /// Returns whether a packet waits for the pace.
    pub(super) fn wants(&self) -> bool {
        self.line.wants() && self.pace.may_send(0)
    }

    /// Returns the time at which work that waits for NAKs may be planned. While the channel is
    /// busy, this is checked between packets.
    pub(super) fn next_plan(&self) -> Option<Instant> {
        self.planner.next_due().filter(|_| self.line.is_empty())
    }

    /// Sets the client's missing symbols of the item to exactly `need`.
    pub(super) fn want(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionId,
        (toi, oti): (Toi, Oti),
        need: &Need,
    ) -> Result<(), DropReason> {
        let Some(client) = turn.clients.get_mut(session) else { return Ok(()) };
        if client.wanted.len() >= self.config.max_items_per_client && !client.wanted.contains(&toi)
        {
            return Err(DropReason::OverLimit);
        }
        let partition = Partition::new(&oti).map_err(|_| DropReason::OutsideItem)?;
        let missing = Missing::from_need(need, &partition);
        let charged = missing.runs().saturating_sub(1);
        let before = self.wanted.charged(session, toi);
        if client.charged - before + charged > MOST_RUNS {
            return Err(DropReason::OverLimit);
        }
        client.charged = client.charged - before + charged;
        if client.unicast.remove(&toi) {
            turn.events.push_back(SourceEvent::StopUnicast { session, toi });
        }
        client.wanted.insert(toi);
        if !std::mem::replace(&mut client.reports, true) {
            let (remote, rtt) = (client.remote, client.rtt);
            if let Some(schedule) = self.pace.join(turn.now, session, Origin::of(remote), rtt) {
                turn.announcer.say(turn.clients, session, ServerMessage::Reports(schedule));
            }
            self.tell_pace(turn);
        }
        let running = self.line.running(toi);
        let unaware = !self.config.policy.notifies()
            && running.is_some_and(|running| !running.participants.contains(&session));
        let item = self.wanted.enter(toi, oti, partition);
        item.demands.insert(session, Demand { missing, unaware, charged });
        self.planner.on_want(session, toi);
        self.wanted.rank(turn.now, session, toi, self.planner.sends_whole());
        self.notify_late(turn, session, toi);
        Ok(())
    }

    /// Announces transmissions of its item to a late client: the planned ones and, if the policy
    /// says so, running ones [Repository §5.3].
    fn notify_late(&mut self, turn: &mut Turn<'_>, session: SessionId, toi: Toi) {
        let mut announcements = Announcements::new(self.pace.rate());
        let mut coming = Vec::new();
        for transmission in self.line.of_item(toi) {
            let open = !transmission.started() || self.config.policy.notifies();
            if open && transmission.participants.insert(session) {
                transmission.await_more(turn.now + self.config.start.quiet);
                announcements.add_for(session, transmission);
                coming.extend(transmission.plan().iter().map(|run| run.block));
            }
        }
        self.planner.on_late(turn.now, &mut self.wanted, (session, toi), &coming);
        turn.announcer.announce_on_sessions(turn.clients, announcements);
    }

    /// Handles a client's answer at the end of a transmission [Repository §3.2.3].
    pub(super) fn on_nak(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionId,
        nak: &Nak,
    ) -> Result<(), DropReason> {
        let Nak { transmission, toi, ref need, received, lost } = *nak;
        self.stats.naks += 1;
        self.hear_loss(turn, session, (received, lost));
        if self.line.nudge(transmission, session) {
            // Too early: the client thinks that the transmission is over. It will be told when it
            // is.
            return Err(DropReason::StaleNak);
        }
        let mut missing = self.wanted.missing(session, toi, need).ok_or(DropReason::NotWanted)?;
        let about = self.answers.about(toi, transmission);
        let gather_until = about.as_ref().map(|&(_, until)| until);
        match about {
            Some((blocks, _)) => missing.keep_only(blocks),
            None if missing.runs() > MOST_STRAY_RUNS => return Err(DropReason::OverLimit),
            None => {}
        }
        if !missing.is_empty() {
            let lack = Lack { session, toi, missing, gather_until };
            self.planner.on_nak(turn.now, &mut self.wanted, lack);
        }
        self.on_answer(turn.now, session, toi);
        Ok(())
    }

    /// Notes that a client has named its missing symbols of an item, or has none missing.
    fn on_answer(&mut self, now: Instant, session: SessionId, toi: Toi) {
        if !self.answers.hear(now, session, toi) {
            self.planner.on_all_answered(now, &mut self.wanted, toi);
        }
    }

    /// Takes a client's report of how the packets of the channel arrive.
    pub(super) fn on_report(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionId,
        report: &ReceptionReport,
    ) -> Result<(), DropReason> {
        let client = turn.clients.get(session).filter(|client| client.reports);
        let remote = client.ok_or(DropReason::NotWanted)?.remote;
        self.pace.hear(turn.now, session, Origin::of(remote), report);
        self.tell_pace(turn);
        Ok(())
    }

    /// Does what is due for the rate.
    pub(super) fn review_pace(&mut self, turn: &mut Turn<'_>) {
        self.pace.on_timeout(turn.now);
        self.tell_pace(turn);
    }

    /// Tells clients and the application what became of the rate.
    fn tell_pace(&mut self, turn: &mut Turn<'_>) {
        while let Some(event) = self.pace.poll_event() {
            match event {
                Event::Rate(rate) => turn.events.push_back(SourceEvent::Rate { rate }),
                Event::Left { who: session, carries } => {
                    let message = ServerMessage::Aside {
                        carries_bits_per_s: carries.bits_per_s(),
                        rate_bits_per_s: self.pace.rate().bits_per_s(),
                    };
                    turn.announcer.say(turn.clients, session, message);
                    turn.events.push_back(SourceEvent::Aside { session, carries });
                }
                Event::Schedule { who, schedule } => {
                    turn.announcer.say(turn.clients, who, ServerMessage::Reports(schedule));
                }
                Event::ScheduleOthers(schedule) => {
                    for session in turn.clients.reporting() {
                        if self.pace.schedule(session) == Some(schedule) {
                            let message = ServerMessage::Reports(schedule);
                            turn.announcer.say(turn.clients, session, message);
                        }
                    }
                }
            }
        }
    }

    /// Ends a client's reports once it wants nothing more from the channel.
    fn end_reports(&mut self, turn: &mut Turn<'_>, session: SessionId) {
        let Some(client) = turn.clients.get_mut(session) else { return };
        if client.reports && !client.is_on_channel() {
            client.reports = false;
            self.pace.forget(session);
            self.tell_pace(turn);
        }
    }

    /// Records the numbers of packets that a client received and lost.
    pub(super) fn hear_loss(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionId,
        (received, lost): (u32, u32),
    ) {
        // What was lost since the path was flooded says nothing of the next transmission.
        let most = self.pace.most_loss(session);
        let lost = lost.min((f64::from(received.saturating_add(lost)) * most).ceil() as u32);
        turn.clients.hear_usual_loss(received, lost);
        self.change_loss(turn.clients, session, |loss| loss.hear(received, lost));
    }

    /// Changes the estimate of a client's loss.
    pub(super) fn change_loss(
        &mut self,
        clients: &mut Clients,
        session: SessionId,
        change: impl FnOnce(&mut Loss),
    ) {
        if let Some(loss) = clients.change_loss(session, change) {
            let most = self.pace.most_loss(session);
            self.wanted.scheduler.set_fill(session, 1.0 - loss.min(most));
        }
    }

    /// Drops a client's demand for an item, because the client has it or no longer wants it.
    /// Returns whether the client wanted it.
    pub(super) fn drop_demand(
        &mut self,
        turn: &mut Turn<'_>,
        session: SessionId,
        toi: Toi,
    ) -> bool {
        let Some(client) = turn.clients.get_mut(session) else { return false };
        if !client.wanted.remove(&toi) {
            return false;
        }
        if client.unicast.remove(&toi) {
            turn.events.push_back(SourceEvent::StopUnicast { session, toi });
        }
        self.release(turn, session, toi);
        true
    }

    /// Stops sending an item to a client on the channel.
    pub(super) fn release(&mut self, turn: &mut Turn<'_>, session: SessionId, toi: Toi) {
        self.end_reports(turn, session);
        self.wanted.scheduler.remove(session, toi);
        let Some(item) = self.wanted.get_mut(toi) else { return };
        let demand = item.demands.remove(&session);
        if let (Some(demand), Some(client)) = (demand, turn.clients.get_mut(session)) {
            client.charged -= demand.charged;
        }
        let cut_short = self.planner.cuts_short();
        if item.demands.is_empty() {
            return self.abandon(turn, toi, cut_short);
        }
        self.planner.on_client_gone(session, toi);
        self.on_answer(turn.now, session, toi);
        let cancelled = self.cancel(turn, |transmission| {
            transmission.toi == toi
                && transmission.participants.remove(&session)
                && transmission.participants.is_empty()
                && (cut_short || !transmission.started())
        });
        for purpose in cancelled {
            self.planner.on_cancelled(&mut self.wanted, toi, purpose);
        }
    }

    /// Reports to every client that wants an item that it cannot be read.
    pub(super) fn lose_item(&mut self, turn: &mut Turn<'_>, toi: Toi, reason: &str) {
        for session in turn.clients.wanting(toi) {
            self.drop_demand(turn, session, toi);
            let gone = ServerMessage::Gone { toi, reason: reason.to_owned() };
            turn.announcer.say(turn.clients, session, gone);
        }
        self.abandon(turn, toi, true);
        turn.events.push_back(SourceEvent::ItemLost { toi, reason: reason.to_owned() });
    }

    /// Forgets an item that no client wants any more, or that is no longer available.
    fn abandon(&mut self, turn: &mut Turn<'_>, toi: Toi, cut_short: bool) {
        self.wanted.remove(toi);
        self.planner.on_item_gone(toi);
        self.answers.forget(toi);
        self.cancel(turn, |transmission| {
            transmission.toi == toi && (cut_short || !transmission.started())
        });
    }

    /// Takes transmissions out of the line. Returns their purposes.
    fn cancel(
        &mut self,
        turn: &mut Turn<'_>,
        which: impl FnMut(&mut Transmission) -> bool,
    ) -> Vec<Purpose> {
        let cancelled = self.line.drop_where(&mut self.symbols, which);
        if !cancelled.is_empty() {
            turn.announcer.announce_unseen_end(turn.now, turn.clients);
        }
        cancelled
    }

    /// Plans and announces transmissions when the line is shorter than the lookahead, until it is
    /// longer by half. Several short ones are thus announced together.
    pub(super) fn fill_line(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        let lookahead = self.config.lookahead;
        if !self.is_shorter(lookahead) {
            return;
        }
        let mut announcements = Announcements::new(self.pace.rate());
        while self.is_shorter(lookahead * 3 / 2) {
            let mut desk = Desk {
                now,
                wanted: &mut self.wanted,
                clients: turn.clients,
                answers: &self.answers,
                segments: Segments {
                    config: self.config.segment,
                    packet_len: self.config.packet_len,
                    rate: self.pace.rate(),
                },
            };
            let Some(mut transmission) = self.planner.plan(&mut desk) else { break };
            (transmission.not_before, transmission.starts_by) = self.start(turn, &transmission);
            transmission.nak_spread = self.config.naks.spread_of(transmission.participants.len());
            for run in transmission.plan() {
                let block = BlockId { toi: transmission.toi, sbn: run.block };
                self.symbols.prefetch(block, run.first_esi..run.first_esi + run.count);
            }
            let busy = self.time_for(self.line.packets() + u64::from(transmission.packets));
            let until = transmission.not_before.max(now) + busy + LISTENS_ON;
            turn.clients.listen(&transmission.participants, until);
            let starts_in = transmission.starts_by - now;
            announcements.add(self.line.push(transmission), starts_in);
        }
        turn.announcer.announce(now, turn.clients, announcements);
    }

    /// Returns whether the channel finishes the planned packets before this time has passed.
    fn is_shorter(&self, time: Duration) -> bool {
        self.line.is_empty() || self.time_for(self.line.packets()) < time
    }

    /// Returns the time that this number of packets keeps the channel busy.
    fn time_for(&self, packets: u64) -> Duration {
        self.pace.rate().time_for(packets * self.config.packet_len as u64)
    }

    /// Returns a transmission's planned start and its latest start. It starts as soon as its
    /// clients can have joined. If the channel was idle, it also waits until no further client has
    /// asked for the item for a while.
    fn start(&self, turn: &Turn<'_>, transmission: &Transmission) -> (Instant, Instant) {
        let now = turn.now;
        let StartConfig { join_lead, quiet, fraction, most } = self.config.start;
        let join = turn.clients.slowest_to_join(now, &transmission.participants);
        let Some(join) = join.map(|rtt| rtt + join_lead) else { return (now, now) };
        let gathers = self.line.is_empty() && transmission.purpose == Purpose::Pass;
        let gather = match self.wanted.get(transmission.toi).filter(|_| gathers) {
            Some(item) => {
                let time = self.pace.rate().time_for(item.oti.object_len);
                time.mul_f64(fraction).min(most)
            }
            None => Duration::ZERO,
        };
        (now + join.max(gather.min(quiet)), now + join.max(gather))
    }

    /// Ends the first transmission in line if its last packet has left. Returns whether it ended.
    fn finish_front(&mut self, turn: &mut Turn<'_>) -> bool {
        let Some(transmission) = self.line.pop_finished() else { return false };
        let now = turn.now;
        self.stats.transmissions += 1;
        self.stats.repairs += u64::from(transmission.purpose == Purpose::Repair);
        if self.planner.on_finished(&mut self.wanted, &transmission) {
            // Clients that then report missing symbols raise the estimates again.
            for &session in &transmission.participants {
                self.change_loss(turn.clients, session, |loss| loss.doubt(transmission.packets));
            }
        }
        let slowest = turn.clients.slowest(&transmission.participants);
        let gather = transmission.nak_spread + slowest + self.config.naks.margin;
        let listeners = transmission.participants.clone();
        self.answers.await_from(listeners, &transmission, now + gather);
        let Transmission { id, participants, nudged, .. } = transmission;
        self.fill_line(turn);
        turn.announcer.announce_end(now, turn.clients, (id, nudged));
        turn.announcer.note_end(id, participants);
        if self.line.front().is_none_or(|next| next.not_before > now) {
            turn.announcer.announce_unseen_end(now, turn.clients);
        }
        true
    }

    /// Fills `buf` from the transmissions in line.
    pub(super) fn poll_transmit(
        &mut self,
        turn: &mut Turn<'_>,
        buf: &mut TransmitBuf,
    ) -> Option<Transmit> {
        while buf.has_room(RateClass::Data) && self.pace.may_send(buf.len()) {
            if self.finish_front(turn) {
                continue;
            }
            let Some(next) = self.line.next(turn.now) else { break };
            match self.symbols.symbol(next.block, next.esi) {
                Load::Ready(symbol) => {
                    let seal = turn.keys.as_ref().map_or(0, |_| SealedHeader::OVERHEAD);
                    if !buf.admits(DataHeader::LEN + symbol.len() + seal) {
                        break;
                    }
                    if !self.push_packet(turn, buf, &next, symbol) {
                        break;
                    }
                    turn.announcer.end_is_seen();
                }
                Load::Pending => {
                    self.line.wait_for_symbols();
                    break;
                }
                Load::Gone(reason) => self.lose_item(turn, next.block.toi, &reason),
            }
        }
        self.finish_front(turn);
        if !buf.is_empty() {
            self.pace.on_sent(turn.now);
        }
        (!buf.is_empty()).then_some(Transmit::data(Address::Channel(self.config.channel)))
    }

    /// Appends a data packet to `buf`. Returns `false` if it cannot be sealed before the key has
    /// changed.
    fn push_packet(
        &mut self,
        turn: &mut Turn<'_>,
        buf: &mut TransmitBuf,
        next: &Next,
        symbol: Bytes,
    ) -> bool {
        let header = DataHeader {
            tsi: self.config.tsi,
            toi: next.block.toi,
            transmission: next.transmission,
            index: next.index,
            stamp: self.pace.stamp(turn.now, buf.len()),
            scheme: next.oti.scheme,
            sbn: next.block.sbn,
            esi: next.esi,
        };
        let mut bytes = DataHeader::LEN + symbol.len();
        if let Some(keys) = &mut turn.keys {
            if !buf.push_with(|out| keys.ring.seal_packet(header, &symbol, out)) {
                return false;
            }
            bytes += SealedHeader::OVERHEAD;
        } else {
            let head = header
                .emit()
                .expect("the partition numbers blocks and symbols within the scheme's fields");
            buf.push(&head, symbol);
        }
        self.stats.packets += 1;
        self.stats.bytes += bytes as u64;
        if let Some(block) = self.line.sent() {
            self.symbols.release(block);
        }
        true
    }
}
