//! The server: gathers what clients want, schedules the data channel, answers NAKs.
//!
//! ```text
//!           Want/Request                    last packet of the pass left
//!   ┌─────────────────────▶ pending ──choose──▶ pass ───────────┐
//!   │                          ▲                 │ NAK          ▼
//!   │        NAK refused       │                 ▼          (clients say
//! client ◀─────────────────────┴──────────── gathering ──▶   Done, or NAK)
//!   ▲                                            │ gathered     ▲
//!   └── Done                                     ▼              │
//!                                             repair ───────────┘
//! ```
//!
//! The states are those of one item. *Pending*: clients lack some of it, the scheduler ranks it
//! [Repository §2.2]. *Pass*: it is sent, in one transmission or, when it is large, in several
//! one after the other; what clients lacked is taken as delivered unless they NAK. *Gathering*:
//! a NAK that the policy honours [Repository §3.2.4] waits for others. *Repair*: what the
//! gathered NAKs ask for is sent. NAKs that are not honoured put what they name back to pending
//! [Repository §3.3].

mod announcer;
mod answers;
mod api;
mod clients;
mod item;
mod line;
mod loss;
mod planner;
mod throttle;
mod transmission;
mod wanted;

pub use self::api::{ClientStatus, SourceCommand, SourceEvent, SourceStats};

use std::collections::VecDeque;
use std::time::Duration;

use umbel_fec::Partition;
use umbel_wire::alc::DataHeader;
use umbel_wire::control::Parsed;
use umbel_wire::repository::{ClientMessage, Nak, Need, ServerMessage};
use umbel_wire::{Oti, Toi};

use self::announcer::{Announcements, Announcer};
use self::answers::Answers;
use self::clients::Clients;
use self::item::Demand;
use self::line::{Line, Next};
use self::loss::Loss;
use self::planner::{Desk, Lack, Planner, Segments};
use self::throttle::Throttle;
use self::transmission::{Purpose, Transmission};
use self::wanted::Wanted;
use super::config::{SourceConfig, StartConfig};
use super::drops::{DropReason, Drops};
use super::missing::Missing;
use super::scheduler::Scheduler;
use crate::symbols::{BlockId, Load, SymbolSource};
use crate::units::Rate;
use crate::{
    Address, Datagram, Engine, Instant, Membership, RateClass, SessionId, Transmit, TransmitBuf,
};

/// A client that took part in a transmission stays joined at least this long after it.
const LISTENS_ON: Duration = Duration::from_millis(300);

/// The server's engine.
#[derive(Debug)]
pub struct Source<S> {
    config: SourceConfig,
    symbols: S,
    clients: Clients,
    wanted: Wanted,
    planner: Planner,
    line: Line,
    answers: Answers,
    announcer: Announcer,
    throttle: Throttle,
    events: VecDeque<SourceEvent>,
    drops: Drops,
    stats: SourceStats,
}

impl<S: SymbolSource> Source<S> {
    /// A server that takes symbols from `symbols`.
    pub fn new(config: SourceConfig, symbols: S) -> Source<S> {
        Source {
            symbols,
            clients: Clients::new(config.loss_cap),
            wanted: Wanted::new(Scheduler::new(config.scheduler)),
            planner: Planner::new(&config),
            line: Line::new(),
            answers: Answers::default(),
            announcer: Announcer::new(&config),
            throttle: Throttle::new(config.rate),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: SourceStats::default(),
            config,
        }
    }

    /// Input that was discarded, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Counters of the data channel.
    pub fn stats(&self) -> SourceStats {
        self.stats
    }

    /// Where symbols are taken from.
    pub fn symbols_mut(&mut self) -> &mut S {
        &mut self.symbols
    }

    /// Items that some client wants from the channel and does not have.
    pub fn pending_items(&self) -> usize {
        self.wanted.len()
    }

    /// The rate at which data packets leave now: the operator's, or what most clients can take.
    pub fn rate(&self) -> Rate {
        self.throttle.rate()
    }

    /// What is known of each client.
    pub fn clients(&self) -> impl Iterator<Item = (SessionId, ClientStatus)> {
        self.clients.statuses()
    }

    /// How many clients hear of transmissions in the control group.
    pub fn clients_on_control(&self) -> usize {
        self.clients.on_control()
    }

    /// What the server has done and seen in the control group, and datagrams there that were
    /// none of its members'.
    pub fn control_stats(&self) -> Option<(crate::srm::Stats, u64)> {
        self.announcer.control_stats()
    }

    fn on_session_message(&mut self, now: Instant, session: SessionId, bytes: &[u8]) {
        let Some(message) = ClientMessage::parse(bytes).ok().and_then(Parsed::message) else {
            return self.drops.count(DropReason::Malformed);
        };
        if let ClientMessage::Hello { token, .. } = &message {
            return self.on_hello(session, token.as_deref());
        }
        if !self.clients.get(session).is_some_and(|client| client.admitted) {
            return self.drops.count(DropReason::NotAdmitted);
        }
        match message {
            ClientMessage::Hello { .. } => {}
            ClientMessage::List { query, patterns, cursor, limit } => {
                let event = SourceEvent::List { session, query, patterns, cursor, limit };
                self.events.push_back(event);
            }
            ClientMessage::Request { query, patterns, hold } => {
                self.note_request(now, session);
                self.events.push_back(SourceEvent::Request { session, query, patterns, hold });
            }
            ClientMessage::Want { toi, need } => self.on_want(now, session, toi, need),
            ClientMessage::Nak(nak) => self.on_nak(now, session, &nak),
            ClientMessage::Done { tois, received, lost } => {
                self.hear_loss(session, received, lost);
                for toi in tois {
                    if self.drop_demand(now, session, toi) {
                        self.events.push_back(SourceEvent::Delivered { session, toi });
                    }
                }
                self.note_satisfied(now, session);
            }
            ClientMessage::Cancel { tois } => {
                for toi in tois {
                    self.drop_demand(now, session, toi);
                }
            }
            ClientMessage::Unicast { toi, need } => self.on_unicast(now, session, toi, need),
            ClientMessage::Digests { toi } => {
                self.events.push_back(SourceEvent::Digests { session, toi });
            }
            ClientMessage::Control { hears } => {
                let possible = self.announcer.has_control();
                if let Some(client) = self.clients.get_mut(session) {
                    client.hears_control = hears && possible;
                }
            }
            ClientMessage::Probe { probe, channel: _, packets, packet_len, rate_bits_per_s } => {
                self.events.push_back(SourceEvent::Probe {
                    session,
                    probe,
                    packets,
                    packet_len,
                    rate_bits_per_s,
                });
            }
        }
        self.fill_line(now);
    }

    fn on_command(&mut self, now: Instant, command: SourceCommand) {
        match command {
            SourceCommand::SessionOpened { session, rtt } => {
                self.announcer.know_distance(now, session, rtt);
                let loss = self.clients.open(session, rtt);
                self.wanted.scheduler.set_fill(session, 1.0 - loss);
            }
            SourceCommand::SessionRtt { session, rtt } => {
                self.announcer.know_distance(now, session, rtt);
                if let Some(client) = self.clients.get_mut(session) {
                    client.rtt = rtt;
                }
            }
            SourceCommand::SessionClosed { session } => self.on_session_closed(now, session),
            SourceCommand::LossKnown { session, loss } => {
                self.change_loss(session, |known| *known = Loss::known(loss));
            }
            SourceCommand::Page { session, query, items, total, next, wanted } => {
                // The client must know its items before it hears of their transmissions.
                let wants: Vec<(Toi, Oti)> = items.iter().map(|i| (i.toi, i.oti)).collect();
                self.say(session, ServerMessage::Page { query, items, total, next });
                for item in wants.into_iter().filter(|_| wanted) {
                    self.want(now, session, item, &Need::Whole);
                }
            }
            SourceCommand::Failed { session, query, reason } => {
                self.say(session, ServerMessage::Failed { query, reason });
            }
            SourceCommand::Want { session, toi, oti, need } => {
                self.want(now, session, (toi, oti), &need);
            }
            SourceCommand::Gone { toi, reason } => self.lose_item(now, toi, &reason),
            SourceCommand::NoSuchItem { session, toi } => {
                let reason = "the server no longer has this version of the item".to_owned();
                self.say(session, ServerMessage::Gone { toi, reason });
            }
            SourceCommand::Digests { session, toi, first_block, digests, more } => {
                self.say(session, ServerMessage::Digests { toi, first_block, digests, more });
            }
            SourceCommand::Probed { session, probe, packets } => {
                self.say(session, ServerMessage::Probed { probe, packets });
            }
            SourceCommand::SymbolsReady => self.line.symbols_ready(),
        }
        self.fill_line(now);
    }

    fn say(&mut self, session: SessionId, message: ServerMessage) {
        self.announcer.say(&self.clients, session, message);
    }

    fn on_hello(&mut self, session: SessionId, token: Option<&str>) {
        let admitted = self.config.token.is_none() || self.config.token.as_deref() == token;
        let Some(client) = self.clients.get_mut(session) else {
            return self.drops.count(DropReason::NotAdmitted);
        };
        if !admitted {
            let reason = if token.is_some() {
                "the server does not accept this token"
            } else {
                "the server asks for a token: give it with --token"
            };
            self.say(session, ServerMessage::Refused { reason: reason.to_owned() });
            let reason = "wrong or missing token".to_owned();
            return self.events.push_back(SourceEvent::CloseSession { session, reason });
        }
        client.admitted = true;
        let welcome = ServerMessage::Welcome {
            agent: self.config.agent.clone(),
            tsi: self.config.tsi,
            channels: vec![self.config.channel],
            rate_bits_per_s: self.config.rate.bits_per_s(),
            control: self.announcer.control_group(session),
        };
        self.say(session, welcome);
    }

    fn note_request(&mut self, now: Instant, session: SessionId) {
        if let Some(client) = self.clients.get_mut(session) {
            client.first_request.get_or_insert(now);
        }
    }

    fn note_satisfied(&mut self, now: Instant, session: SessionId) {
        if let Some(client) = self.clients.get_mut(session)
            && client.wanted.is_empty()
            && let Some(first) = client.first_request.take()
        {
            self.events.push_back(SourceEvent::Satisfied { session, after: now - first });
        }
    }

    fn on_want(&mut self, now: Instant, session: SessionId, toi: Toi, need: Need) {
        self.note_request(now, session);
        match self.wanted.get(toi).map(|item| item.oti) {
            Some(oti) => self.want(now, session, (toi, oti), &need),
            None => self.events.push_back(SourceEvent::Lookup { session, toi, need }),
        }
    }

    /// Takes it that the client lacks exactly `need` of the item from now on.
    fn want(&mut self, now: Instant, session: SessionId, (toi, oti): (Toi, Oti), need: &Need) {
        let Some(client) = self.clients.get_mut(session) else { return };
        if client.wanted.len() >= self.config.max_items_per_client && !client.wanted.contains(&toi)
        {
            return self.drops.count(DropReason::OverLimit);
        }
        let Ok(partition) = Partition::new(&oti) else {
            return self.drops.count(DropReason::OutsideItem);
        };
        let missing = Missing::from_need(need, &partition);
        if client.unicast.remove(&toi) {
            self.events.push_back(SourceEvent::StopUnicast { session, toi });
        }
        client.wanted.insert(toi);
        let running = self.line.running(toi);
        let unaware = !self.config.policy.notifies()
            && running.is_some_and(|running| !running.participants.contains(&session));
        let item = self.wanted.enter(toi, oti, partition);
        item.demands.insert(session, Demand { missing, unaware });
        self.planner.on_want(session, toi);
        self.wanted.rank(now, session, toi, self.planner.sends_whole());
        self.notify_late(now, session, toi);
    }

    /// Tells a client that came late about transmissions of its item that are planned and, if
    /// the policy says so, running [Repository §5.3].
    fn notify_late(&mut self, now: Instant, session: SessionId, toi: Toi) {
        let mut announcements = Announcements::default();
        let mut coming = Vec::new();
        for transmission in self.line.of_item(toi) {
            let open = !transmission.started() || self.config.policy.notifies();
            if open && transmission.participants.insert(session) {
                transmission.await_more(now + self.config.start.quiet);
                announcements.add_for(session, transmission);
                coming.extend(transmission.plan().iter().map(|run| run.block));
            }
        }
        self.planner.on_late(now, &mut self.wanted, (session, toi), &coming);
        self.announcer.announce_on_sessions(&self.clients, announcements);
    }

    fn on_unicast(&mut self, now: Instant, session: SessionId, toi: Toi, need: Need) {
        let Some(client) = self.clients.get_mut(session) else { return };
        if !client.wanted.contains(&toi) {
            return self.drops.count(DropReason::NotWanted);
        }
        client.unicast.insert(toi);
        self.drop_demand_of_channel(now, session, toi);
        self.events.push_back(SourceEvent::ServeUnicast { session, toi, need });
    }

    fn on_session_closed(&mut self, now: Instant, session: SessionId) {
        let Some(client) = self.clients.remove(session) else { return };
        for toi in client.wanted {
            self.drop_demand_of_channel(now, session, toi);
        }
        self.wanted.scheduler.remove_client(session);
        self.announcer.hang_up(session);
    }

    /// Takes what a client says at the end of a transmission [Repository §3.2.3].
    fn on_nak(&mut self, now: Instant, session: SessionId, nak: &Nak) {
        let Nak { transmission, toi, ref need, received, lost, overrun } = *nak;
        self.stats.naks += 1;
        self.throttle.on_nak(now, session, transmission, (received, overrun));
        self.review_rate(now);
        self.hear_loss(session, received, lost);
        if self.line.nudge(transmission, session) {
            // Too early: the client thinks that the transmission is over. It hears when it is.
            return self.drops.count(DropReason::StaleNak);
        }
        let Some(missing) = self.wanted.missing(session, toi, need) else {
            return self.drops.count(DropReason::NotWanted);
        };
        if !missing.is_empty() {
            let gather_until = self.answers.gather_until(toi, transmission);
            let lack = Lack { session, toi, missing, gather_until };
            self.planner.on_nak(now, &mut self.wanted, lack);
        }
        self.on_answer(now, session, toi);
    }

    /// Notes that a client has said what it lacks of an item, or that it lacks nothing.
    fn on_answer(&mut self, now: Instant, session: SessionId, toi: Toi) {
        if !self.answers.hear(now, session, toi) {
            self.planner.on_all_answered(now, &mut self.wanted, toi);
        }
    }

    /// Changes the channel's rate if clients cannot take it, or can again.
    fn review_rate(&mut self, now: Instant) {
        if !self.throttle.is_due(now) {
            return;
        }
        let (served, sent) = (self.clients.served(), self.stats.packets);
        if let Some(rate) = self.throttle.review(now, served, sent, self.line.next_id()) {
            self.events.push_back(SourceEvent::Rate { rate });
        }
    }

    fn hear_loss(&mut self, session: SessionId, received: u32, lost: u32) {
        if let Some(loss) = self.clients.hear_loss(session, received, lost) {
            self.wanted.scheduler.set_fill(session, 1.0 - loss);
        }
    }

    fn change_loss(&mut self, session: SessionId, change: impl FnOnce(&mut Loss)) {
        if let Some(loss) = self.clients.change_loss(session, change) {
            self.wanted.scheduler.set_fill(session, 1.0 - loss);
        }
    }

    /// Drops what a client wanted: it has the item, or no longer wants it. Returns whether it
    /// wanted it.
    fn drop_demand(&mut self, now: Instant, session: SessionId, toi: Toi) -> bool {
        let Some(client) = self.clients.get_mut(session) else { return false };
        if !client.wanted.remove(&toi) {
            return false;
        }
        if client.unicast.remove(&toi) {
            self.events.push_back(SourceEvent::StopUnicast { session, toi });
        }
        self.drop_demand_of_channel(now, session, toi);
        true
    }

    /// Drops what a client wanted of an item from the channel.
    fn drop_demand_of_channel(&mut self, now: Instant, session: SessionId, toi: Toi) {
        self.wanted.scheduler.remove(session, toi);
        let Some(item) = self.wanted.get_mut(toi) else { return };
        item.demands.remove(&session);
        let cut_short = self.planner.cuts_short();
        if item.demands.is_empty() {
            return self.abandon(now, toi, cut_short);
        }
        self.planner.on_client_gone(session, toi);
        self.on_answer(now, session, toi);
        let cancelled = self.cancel(now, |transmission| {
            transmission.toi == toi
                && transmission.participants.remove(&session)
                && transmission.participants.is_empty()
                && (cut_short || !transmission.started())
        });
        for purpose in cancelled {
            self.planner.on_cancelled(&mut self.wanted, toi, purpose);
        }
    }

    /// Tells everyone who wants an item that it cannot be read.
    fn lose_item(&mut self, now: Instant, toi: Toi, reason: &str) {
        for session in self.clients.wanting(toi) {
            self.drop_demand(now, session, toi);
            self.say(session, ServerMessage::Gone { toi, reason: reason.to_owned() });
        }
        self.abandon(now, toi, true);
        self.events.push_back(SourceEvent::ItemLost { toi, reason: reason.to_owned() });
    }

    /// Forgets an item that nobody wants any more, or nobody can have.
    fn abandon(&mut self, now: Instant, toi: Toi, cut_short: bool) {
        self.wanted.remove(toi);
        self.planner.on_item_gone(toi);
        self.answers.forget(toi);
        self.cancel(now, |transmission| {
            transmission.toi == toi && (cut_short || !transmission.started())
        });
    }

    /// Takes transmissions out of the line. Returns what they were for.
    fn cancel(
        &mut self,
        now: Instant,
        which: impl FnMut(&mut Transmission) -> bool,
    ) -> Vec<Purpose> {
        let cancelled = self.line.drop_where(&mut self.symbols, which);
        if !cancelled.is_empty() {
            self.announcer.announce_unseen_end(now, &self.clients);
        }
        cancelled
    }

    /// Plans and announces transmissions until the line is as long as the lookahead.
    fn fill_line(&mut self, now: Instant) {
        let mut announcements = Announcements::default();
        while self.line.is_empty() || self.time_for(self.line.packets()) < self.config.lookahead {
            let mut desk = Desk {
                now,
                wanted: &mut self.wanted,
                clients: &self.clients,
                answers: &self.answers,
                segments: Segments {
                    config: self.config.segment,
                    packet_len: self.config.packet_len,
                    rate: self.throttle.rate(),
                },
            };
            let Some(mut transmission) = self.planner.plan(&mut desk) else { break };
            (transmission.not_before, transmission.starts_by) = self.start(now, &transmission);
            transmission.nak_spread = self.config.naks.spread_of(transmission.participants.len());
            for run in transmission.plan() {
                let block = BlockId { toi: transmission.toi, sbn: run.block };
                self.symbols.prefetch(block, run.first_esi..run.first_esi + run.count);
            }
            let busy = self.time_for(self.line.packets() + u64::from(transmission.packets));
            let until = transmission.not_before.max(now) + busy + LISTENS_ON;
            self.clients.listen(&transmission.participants, until);
            let starts_in = transmission.starts_by - now;
            announcements.add(self.line.push(transmission), starts_in);
        }
        self.announcer.announce(now, &self.clients, announcements);
    }

    /// How long so many packets keep the channel busy.
    fn time_for(&self, packets: u64) -> Duration {
        self.throttle.rate().time_for(packets * self.config.packet_len as u64)
    }

    /// When a transmission starts: as soon as its clients can have joined and, where the channel
    /// was idle, as nobody else who wants the item has come in for a while; and when it does at
    /// the latest.
    fn start(&self, now: Instant, transmission: &Transmission) -> (Instant, Instant) {
        let StartConfig { join_lead, quiet, fraction, most } = self.config.start;
        let join = self.clients.slowest_to_join(now, &transmission.participants);
        let Some(join) = join.map(|rtt| rtt + join_lead) else { return (now, now) };
        let gathers = self.line.is_empty() && transmission.purpose == Purpose::Pass;
        let gather = match self.wanted.get(transmission.toi).filter(|_| gathers) {
            Some(item) => {
                let time = self.throttle.rate().time_for(item.oti.object_len);
                time.mul_f64(fraction).min(most)
            }
            None => Duration::ZERO,
        };
        (now + join.max(gather.min(quiet)), now + join.max(gather))
    }

    /// Ends the first transmission in line if its last packet has left. Returns whether it has.
    fn finish_front(&mut self, now: Instant) -> bool {
        let Some(transmission) = self.line.pop_finished() else { return false };
        self.stats.transmissions += 1;
        self.stats.repairs += u64::from(transmission.purpose == Purpose::Repair);
        if self.planner.on_finished(&mut self.wanted, &transmission) {
            // What clients then lack raises the estimates again.
            for &session in &transmission.participants {
                self.change_loss(session, |loss| loss.doubt(transmission.packets));
            }
        }
        self.review_rate(now);
        let Transmission { id, toi, nak_spread, participants, nudged, .. } = transmission;
        let gather = nak_spread + self.clients.slowest(&participants) + self.config.naks.margin;
        self.answers.await_from(participants.clone(), (toi, id), now + gather);
        self.fill_line(now);
        self.announcer.announce_end(now, &self.clients, (id, nudged));
        self.announcer.note_end(id, participants);
        if self.line.front().is_none_or(|next| next.not_before > now) {
            self.announcer.announce_unseen_end(now, &self.clients);
        }
        true
    }

    /// Fills `buf` from the transmissions in line.
    fn poll_data(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        while buf.has_room(RateClass::Data) {
            if self.finish_front(now) {
                continue;
            }
            let Some(next) = self.line.next(now) else { break };
            match self.symbols.symbol(next.block, next.esi) {
                Load::Ready(symbol) => {
                    if !buf.admits(DataHeader::LEN + symbol.len()) {
                        break;
                    }
                    self.push_packet(buf, &next, symbol);
                }
                Load::Pending => {
                    self.line.wait_for_symbols();
                    break;
                }
                Load::Gone(reason) => self.lose_item(now, next.block.toi, &reason),
            }
        }
        self.finish_front(now);
        (!buf.is_empty()).then_some(Transmit::data(Address::Channel(self.config.channel)))
    }

    /// Writes a data packet.
    fn push_packet(&mut self, buf: &mut TransmitBuf, next: &Next, symbol: bytes::Bytes) {
        let header = DataHeader {
            tsi: self.config.tsi,
            toi: next.block.toi,
            transmission: next.transmission,
            index: next.index,
            scheme: next.oti.scheme,
            sbn: next.block.sbn,
            esi: next.esi,
        };
        let head = header
            .emit()
            .expect("the partition numbers blocks and symbols within the scheme's fields");
        self.stats.packets += 1;
        self.stats.bytes += (head.len() + symbol.len()) as u64;
        buf.push(&head, symbol);
        self.announcer.end_is_seen();
        if let Some(block) = self.line.sent() {
            self.symbols.release(block);
        }
    }
}

impl<S: SymbolSource> Engine for Source<S> {
    type Command = SourceCommand;
    type CommandError = std::convert::Infallible;
    type Event = SourceEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        match datagram.by {
            Address::Session(session) => self.on_session_message(now, session, datagram.payload),
            Address::Channel(by) if self.announcer.handle_datagram(now, by, datagram.payload) => {}
            Address::Channel(_) | Address::Host(_) => self.drops.count(DropReason::Unexpected),
        }
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: SourceCommand,
    ) -> Result<(), Self::CommandError> {
        self.on_command(now, command);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.line.look_again();
        self.announcer.handle_timeout(now);
        self.answers.forget_old(now);
        self.fill_line(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.announcer.poll_membership()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Some(transmit) = self.announcer.poll_transmit(now, buf) {
            return Some(transmit);
        }
        if buf.allows(RateClass::Data) == 0 || !self.wants(RateClass::Data) {
            return None;
        }
        self.fill_line(now);
        self.announcer.poll_transmit(now, buf).or_else(|| self.poll_data(now, buf))
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && self.line.wants()
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        // While the channel is busy, what is due is planned between packets.
        let plans = self.planner.next_due().filter(|_| self.line.is_empty());
        let control = self.announcer.poll_timeout();
        [self.line.starts(), plans, self.answers.next_forgotten(), control]
            .into_iter()
            .flatten()
            .min()
    }
}
