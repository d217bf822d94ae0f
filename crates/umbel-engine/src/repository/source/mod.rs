//! The server's engine: gathers the clients' demand, schedules the data channel, answers NAKs.
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
//! The states are those of one item.
//!
//! - *Pending*: clients are missing some of it, and the scheduler ranks it [Repository §2.2].
//! - *Pass*: it is sent, in one transmission or, when it is large, in several one after the other.
//!   Missing symbols count as delivered unless the clients NAK.
//! - *Gathering*: a NAK that the policy honours [Repository §3.2.4] waits for others.
//! - *Repair*: the symbols named in the gathered NAKs are sent.
//!
//! Blocks named in NAKs that are not honoured become pending again [Repository §3.3].

mod announcer;
mod answers;
mod api;
mod channel;
mod clients;
mod item;
mod keys;
mod line;
mod loss;
mod pace;
mod planner;
mod transmission;
mod wanted;

pub use self::api::{ClientStatus, SourceCommand, SourceEvent, SourceStats};

use std::collections::VecDeque;

use crate::chance::Generator;
use umbel_wire::control::Parsed;
use umbel_wire::repository::{ClientMessage, GroupSecret, Need, ServerMessage};
use umbel_wire::{Channel, Oti, Toi};

use self::announcer::Announcer;
use self::channel::{DataChannel, Turn};
use self::clients::{Admission, Clients};
use self::keys::GroupKeys;
use self::loss::Loss;
use super::config::SourceConfig;
use super::drops::{DropReason, Drops};
use crate::congestion::Limit;
use crate::symbols::{BlockId, SymbolSource};
use crate::timers::timers;
use crate::units::Rate;
use crate::{
    Address, Datagram, Engine, Instant, Membership, RateClass, SessionId, Transmit, TransmitBuf,
};

timers! {
    /// Timers of the server.
    enum Timer, Timers {
        /// When to do the work that is due in the control group.
        Control,
        /// When to start the first transmission in line.
        Start,
        /// When to plan work that waits for NAKs.
        Plan,
        /// When to change the group key.
        Key,
        /// When to close a session whose client has said nothing.
        Silent,
        /// When to forget the oldest transmission, because no further NAK about it is expected.
        Forget,
        /// When to review the rate.
        Pace,
    }
}

/// The server's engine.
#[derive(Debug)]
pub struct Source<S> {
    config: SourceConfig,
    clients: Clients,
    announcer: Announcer,
    channel: DataChannel<S>,
    /// Group keys, if the server seals.
    keys: Option<GroupKeys>,
    timers: Timers,
    events: VecDeque<SourceEvent>,
    drops: Drops,
}

impl<S: SymbolSource> Source<S> {
    /// Creates a server that takes symbols from `symbols`. Its delays in the control group are
    /// drawn from `random`.
    pub fn new(mut config: SourceConfig, random: Generator, symbols: S) -> Source<S> {
        let channel = DataChannel::new(config.clone(), random.clone(), symbols);
        let announcer = Announcer::new(&config, random);
        let keys = config.seal.take().map(GroupKeys::new);
        Source {
            clients: Clients::new(config.loss_cap),
            announcer,
            channel,
            keys,
            timers: Timers::default(),
            events: VecDeque::new(),
            drops: Drops::default(),
            config,
        }
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns counters of the data channel.
    pub fn stats(&self) -> SourceStats {
        self.channel.stats
    }

    /// Returns the source of the symbols.
    pub fn symbols_mut(&mut self) -> &mut S {
        &mut self.channel.symbols
    }

    /// Returns the number of items that some client wants from the channel and does not have.
    pub fn pending_items(&self) -> usize {
        self.channel.wanted.len()
    }

    /// Returns the current rate of data packets.
    pub fn rate(&self) -> Rate {
        self.channel.rate()
    }

    /// Returns what limits the rate and since when; `None` while it is fixed or nobody wants
    /// anything.
    pub fn limit(&self) -> Option<(Limit<SessionId>, Instant)> {
        self.channel.pace.limit()
    }

    /// Returns the state of each client.
    pub fn clients(&self) -> impl Iterator<Item = (SessionId, ClientStatus)> {
        let path = |session| self.channel.pace.path(session);
        let statuses = self.clients.statuses();
        statuses
            .map(move |(session, status)| (session, ClientStatus { path: path(session), ..status }))
    }

    /// Returns the number of clients that hear of transmissions in the control group.
    pub fn clients_on_control(&self) -> usize {
        self.clients.on_control()
    }

    /// Returns the server's counters in the control group, and the number of datagrams there
    /// without a valid tag.
    pub fn control_stats(&self) -> Option<(crate::srm::Stats, u64)> {
        self.announcer.control_stats()
    }

    /// Returns how often the group key has changed. `None` if the server does not seal.
    pub fn key_changes(&self) -> Option<u64> {
        self.keys.as_ref().map(GroupKeys::changes)
    }

    fn turn(&mut self, now: Instant) -> (&mut DataChannel<S>, Turn<'_>) {
        let Source { clients, announcer, keys, events, .. } = self;
        (&mut self.channel, Turn { now, clients, announcer, keys: keys.as_mut(), events })
    }

    fn on_session_message(
        &mut self,
        now: Instant,
        session: SessionId,
        bytes: &[u8],
    ) -> Result<(), DropReason> {
        let message = ClientMessage::parse(bytes).ok().and_then(Parsed::message);
        let message = message.ok_or(DropReason::Malformed)?;
        if let ClientMessage::Hello { token, .. } = &message {
            return self.on_hello(session, token.as_deref());
        }
        let admission = self.clients.get(session).map(|client| client.admission);
        if admission != Some(Admission::Granted) {
            return Err(DropReason::NotAdmitted);
        }
        let result = self.on_admitted(now, session, message);
        self.fill_line(now);
        result
    }

    fn on_admitted(
        &mut self,
        now: Instant,
        session: SessionId,
        message: ClientMessage,
    ) -> Result<(), DropReason> {
        let (channel, mut turn) = self.turn(now);
        match message {
            ClientMessage::Hello { .. } => {}
            ClientMessage::List { query, patterns, cursor, limit } => {
                let event = SourceEvent::List { session, query, patterns, cursor, limit };
                turn.events.push_back(event);
            }
            ClientMessage::Request { query, patterns, hold } => {
                turn.clients.note_request(session, now);
                turn.events.push_back(SourceEvent::Request { session, query, patterns, hold });
            }
            ClientMessage::Want { toi, need } => {
                turn.clients.note_request(session, now);
                match channel.wanted.get(toi).map(|item| item.oti) {
                    Some(oti) => channel.want(&mut turn, session, (toi, oti), &need)?,
                    None => turn.events.push_back(SourceEvent::Lookup { session, toi, need }),
                }
            }
            ClientMessage::Nak(nak) => channel.on_nak(&mut turn, session, &nak)?,
            ClientMessage::Reception(report) => channel.on_report(&mut turn, session, &report)?,
            ClientMessage::Done { tois, received, lost } => {
                channel.hear_loss(&mut turn, session, (received, lost));
                for toi in tois {
                    if channel.drop_demand(&mut turn, session, toi) {
                        turn.events.push_back(SourceEvent::Delivered { session, toi });
                    }
                }
                if let Some(after) = turn.clients.take_satisfied(session, now) {
                    turn.events.push_back(SourceEvent::Satisfied { session, after });
                }
            }
            ClientMessage::Cancel { tois } => {
                for toi in tois {
                    channel.drop_demand(&mut turn, session, toi);
                }
            }
            ClientMessage::Unicast { toi, need } => {
                if !turn.clients.begin_unicast(session, toi) {
                    return Err(DropReason::NotWanted);
                }
                channel.release(&mut turn, session, toi);
                turn.events.push_back(SourceEvent::ServeUnicast { session, toi, need });
            }
            ClientMessage::Digests { toi } => {
                turn.events.push_back(SourceEvent::Digests { session, toi });
            }
            ClientMessage::SymbolDigests { toi, key, symbols } => {
                let event = SourceEvent::SymbolDigests { session, toi, key, symbols };
                turn.events.push_back(event);
            }
            ClientMessage::Control { hears } => {
                let possible = turn.announcer.has_control();
                turn.clients.set_hears_control(session, hears && possible);
            }
            ClientMessage::HasKey { key } => {
                if let Some(keys) = turn.keys {
                    keys.on_confirmed(now, session, key);
                }
            }
            ClientMessage::Probe { probe, channel: _, packets, packet_len, rate_bits_per_s } => {
                turn.events.push_back(SourceEvent::Probe {
                    session,
                    probe,
                    packets,
                    packet_len,
                    rate_bits_per_s,
                });
            }
        }
        Ok(())
    }

    /// Admits a client or not. Only its first `Hello` counts, so that a session is one guess.
    fn on_hello(&mut self, session: SessionId, token: Option<&str>) -> Result<(), DropReason> {
        let client = self.clients.get_mut(session).ok_or(DropReason::NotAdmitted)?;
        if client.admission != Admission::Awaited {
            return Err(DropReason::NotAdmitted);
        }
        let demanded = self.config.token.as_ref();
        let admitted = demanded.is_none_or(|demanded| token.is_some_and(|it| demanded.is(it)));
        if !admitted {
            client.admission = Admission::Refused;
            let guess = token.is_some();
            let reason = if guess {
                "the server does not accept this token"
            } else {
                "the server asks for a token: give it with --token"
            };
            self.say(session, ServerMessage::Refused { reason: reason.to_owned() });
            let reason = "wrong or missing token".to_owned();
            self.events.push_back(SourceEvent::CloseSession { session, reason, guess });
            return Ok(());
        }
        client.admission = Admission::Granted;
        let welcome = ServerMessage::Welcome {
            agent: self.config.agent.clone(),
            tsi: self.config.tsi,
            channels: vec![self.config.channel],
            rate_bits_per_s: self.config.rate.bits_per_s(),
            control: self.announcer.control_group(session),
            keys: self.keys.iter().flat_map(|keys| keys.ring.in_use()).collect(),
        };
        self.say(session, welcome);
        Ok(())
    }

    /// Hands the next group key to every client.
    fn hand_out(&mut self, now: Instant, secret: GroupSecret) {
        let Some(keys) = &mut self.keys else { return };
        let clients = self.clients.admitted();
        let Some(key) = keys.hand_out(now, secret, clients.clone()) else { return };
        for session in clients {
            self.say(session, ServerMessage::Key(key.clone()));
        }
    }

    /// Closes sessions whose clients have not said `Hello` in time.
    fn close_silent(&mut self, now: Instant) {
        for session in self.clients.take_silent(now) {
            let reason = format!("no `Hello` within {:?}", self.config.hello_wait);
            let close = SourceEvent::CloseSession { session, reason, guess: false };
            self.events.push_back(close);
        }
    }

    fn on_command(&mut self, now: Instant, command: SourceCommand) {
        match command {
            SourceCommand::SessionOpened { session, remote, rtt } => {
                self.announcer.know_distance(now, session, rtt);
                let until = now + self.config.hello_wait;
                let loss = self.clients.open(session, remote, rtt, until);
                self.channel.wanted.scheduler.set_fill(session, 1.0 - loss);
            }
            SourceCommand::SessionRtt { session, rtt } => {
                self.announcer.know_distance(now, session, rtt);
                if let Some(client) = self.clients.get_mut(session) {
                    client.rtt = rtt;
                }
            }
            SourceCommand::SessionClosed { session } => self.on_session_closed(now, session),
            SourceCommand::LossKnown { session, loss } => {
                let known = |estimate: &mut Loss| *estimate = Loss::known(loss);
                self.channel.change_loss(&mut self.clients, session, known);
            }
            SourceCommand::Page { session, query, items, total, next, wanted } => {
                // The client must know its items before it hears of their transmissions.
                let wants: Vec<_> = items.iter().map(|i| ((i.toi, i.oti), i.need())).collect();
                self.say(session, ServerMessage::Page { query, items, total, next });
                for (item, need) in wants.into_iter().filter(|_| wanted) {
                    self.want(now, session, item, &need);
                }
            }
            SourceCommand::Failed { session, query, reason } => {
                self.say(session, ServerMessage::Failed { query, reason });
            }
            SourceCommand::Want { session, toi, oti, need } => {
                self.want(now, session, (toi, oti), &need);
            }
            SourceCommand::Gone { toi, reason } => {
                let (channel, mut turn) = self.turn(now);
                channel.lose_item(&mut turn, toi, &reason);
            }
            SourceCommand::NoSuchItem { session, toi } => {
                let reason = "the server no longer has this version of the item".to_owned();
                self.say(session, ServerMessage::Gone { toi, reason });
            }
            SourceCommand::Digests { session, toi, first_block, digests, more } => {
                self.say(session, ServerMessage::Digests { toi, first_block, digests, more });
            }
            SourceCommand::SymbolDigests { session, block, first_esi, digests } => {
                let BlockId { toi, sbn: block } = block;
                self.say(session, ServerMessage::SymbolDigests { toi, block, first_esi, digests });
            }
            SourceCommand::Probed { session, probe, packets } => {
                self.say(session, ServerMessage::Probed { probe, packets });
            }
            SourceCommand::Secret(secret) => self.hand_out(now, secret),
            SourceCommand::SymbolsReady => self.channel.line.symbols_ready(),
        }
        self.fill_line(now);
    }

    fn say(&mut self, session: SessionId, message: ServerMessage) {
        self.announcer.say(&self.clients, session, message);
    }

    fn want(&mut self, now: Instant, session: SessionId, item: (Toi, Oti), need: &Need) {
        let (channel, mut turn) = self.turn(now);
        let result = channel.want(&mut turn, session, item, need);
        self.count(result);
    }

    fn on_session_closed(&mut self, now: Instant, session: SessionId) {
        let Some(client) = self.clients.remove(session) else { return };
        if client.admission == Admission::Granted
            && let Some(keys) = &mut self.keys
        {
            keys.on_left(now, session);
        }
        let (channel, mut turn) = self.turn(now);
        for toi in client.wanted {
            channel.release(&mut turn, session, toi);
        }
        channel.pace.forget(session);
        channel.wanted.scheduler.remove_client(session);
        turn.announcer.hang_up(session);
    }

    /// Handles a datagram of the control group. Returns false if it is of another channel.
    fn hears_control(&mut self, now: Instant, by: Channel, payload: &[u8]) -> bool {
        let ring = self.keys.as_mut().map(|keys| &mut keys.ring);
        self.announcer.handle_datagram(now, by, payload, ring)
    }

    fn fill_line(&mut self, now: Instant) {
        let (channel, mut turn) = self.turn(now);
        channel.fill_line(&mut turn);
    }

    fn count(&mut self, result: Result<(), DropReason>) {
        if let Err(reason) = result {
            self.drops.count(reason);
        }
    }

    fn set_timers(&mut self) {
        self.timers.put(Timer::Control, self.announcer.poll_timeout());
        self.timers.put(Timer::Start, self.channel.line.starts());
        self.timers.put(Timer::Plan, self.channel.next_plan());
        self.timers.put(Timer::Key, self.keys.as_ref().and_then(GroupKeys::poll_timeout));
        self.timers.put(Timer::Silent, self.clients.next_awaited());
        self.timers.put(Timer::Forget, self.channel.answers.next_forgotten());
        self.timers.put(Timer::Pace, self.channel.pace.next_timeout());
    }
}

impl<S: SymbolSource> Engine for Source<S> {
    type Command = SourceCommand;
    type CommandError = std::convert::Infallible;
    type Event = SourceEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let result = match datagram.by {
            Address::Session(session) => self.on_session_message(now, session, datagram.payload),
            Address::Channel(by) if self.hears_control(now, by, datagram.payload) => Ok(()),
            Address::Channel(_) | Address::Host(_) => Err(DropReason::Unexpected),
        };
        self.count(result);
        self.set_timers();
    }

    fn handle_command(
        &mut self,
        now: Instant,
        command: SourceCommand,
    ) -> Result<(), Self::CommandError> {
        self.on_command(now, command);
        self.set_timers();
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Control => self.announcer.handle_timeout(now),
                Timer::Start => self.channel.line.look_again(),
                Timer::Plan => {}
                Timer::Key => {
                    if self.keys.as_mut().is_some_and(|keys| keys.handle_timeout(now)) {
                        self.events.push_back(SourceEvent::DrawSecret);
                    }
                }
                Timer::Silent => self.close_silent(now),
                Timer::Forget => self.channel.answers.forget_old(now),
                Timer::Pace => {
                    let (channel, mut turn) = self.turn(now);
                    channel.review_pace(&mut turn);
                }
            }
        }
        self.fill_line(now);
        self.set_timers();
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.announcer.poll_membership()
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let ring = self.keys.as_mut().map(|keys| &mut keys.ring);
        let mut transmit = self.announcer.poll_transmit(now, buf, ring);
        if transmit.is_none() && buf.allows(RateClass::Data) > 0 && self.wants(RateClass::Data) {
            let (channel, mut turn) = self.turn(now);
            channel.fill_line(&mut turn);
            let ring = turn.keys.as_mut().map(|keys| &mut keys.ring);
            transmit = turn.announcer.poll_transmit(now, buf, ring);
            transmit = transmit.or_else(|| channel.poll_transmit(&mut turn, buf));
        }
        self.set_timers();
        transmit
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && self.channel.wants()
    }

    fn has_output(&self) -> bool {
        !self.events.is_empty() || self.announcer.has_output() || self.wants(RateClass::Data)
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
}
