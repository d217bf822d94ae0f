//! Sessions: who is admitted, what they say and want.

use std::collections::BTreeSet;
use std::time::Duration;

use umbel_fec::Partition;
use umbel_wire::control::Parsed;
use umbel_wire::repository::{ClientMessage, Need, ServerMessage};
use umbel_wire::{Oti, Toi};

use super::item::{Demand, Item};
use super::loss::Loss;
use super::{Source, SourceCommand, SourceEvent};
use crate::repository::drops::DropReason;
use crate::repository::missing::Missing;
use crate::symbols::SymbolSource;
use crate::{Instant, SessionId};

/// A client's session.
#[derive(Debug)]
pub(super) struct Client {
    pub(super) rtt: Duration,
    pub(super) admitted: bool,
    /// Loss on the data channel.
    pub(super) loss: Loss,
    /// Items that it wants and does not have.
    pub(super) wanted: BTreeSet<Toi>,
    /// Items that it gets on the session.
    pub(super) unicast: BTreeSet<Toi>,
    pub(super) first_request: Option<Instant>,
    /// It hears of transmissions in the control group.
    pub(super) hears_control: bool,
    /// It has joined the data channel and stays so until then.
    pub(super) listening_until: Instant,
}

/// What an operator sees of a client.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ClientStatus {
    /// Items that it wants and does not have.
    pub wanted: usize,
    /// Items that it gets on the session, because multicast does not reach it.
    pub by_unicast: usize,
    /// Estimated loss on the data channel, 0 to 1.
    pub loss: f64,
    /// Round trip time of the session.
    pub rtt: Duration,
}

impl<S: SymbolSource> Source<S> {
    /// What is known of each client.
    pub fn clients(&self) -> impl Iterator<Item = (SessionId, ClientStatus)> {
        self.clients.iter().map(|(&session, client)| {
            let status = ClientStatus {
                wanted: client.wanted.len(),
                by_unicast: client.unicast.len(),
                loss: client.loss.share(),
                rtt: client.rtt,
            };
            (session, status)
        })
    }

    pub(super) fn on_session_message(&mut self, now: Instant, session: SessionId, bytes: &[u8]) {
        let Some(message) = ClientMessage::parse(bytes).ok().and_then(Parsed::message) else {
            return self.drops.count(DropReason::Malformed);
        };
        if let ClientMessage::Hello { token, .. } = &message {
            return self.on_hello(session, token.as_deref());
        }
        if !self.clients.get(&session).is_some_and(|client| client.admitted) {
            return self.drops.count(DropReason::NotAdmitted);
        }
        match message {
            ClientMessage::Hello { .. } => {}
            ClientMessage::List { query, patterns, cursor, limit } => {
                self.events.push_back(SourceEvent::List {
                    session,
                    query,
                    patterns,
                    cursor,
                    limit,
                });
            }
            ClientMessage::Request { query, patterns, hold } => {
                self.note_request(now, session);
                self.events.push_back(SourceEvent::Request { session, query, patterns, hold });
            }
            ClientMessage::Want { toi, need } => self.on_want_message(now, session, toi, need),
            ClientMessage::Nak { transmission, toi, need, received, lost, overrun } => {
                self.throttle.on_nak(now, session, transmission, (received, overrun));
                self.review_rate(now);
                self.on_nak(now, session, transmission, toi, &need, (received, lost));
            }
            ClientMessage::Done { tois, received, lost } => {
                self.note_loss(session, received, lost);
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
                let possible = self.control.is_some();
                if let Some(client) = self.clients.get_mut(&session) {
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
        self.fill_queue(now);
    }

    pub(super) fn on_command(&mut self, now: Instant, command: SourceCommand) {
        match command {
            SourceCommand::SessionOpened { session, rtt } => {
                self.tell_distance(now, session, rtt);
                let loss = Loss::supposed(self.usual_loss.share());
                self.clients.insert(session, Client::new(rtt, loss));
                self.scheduler.set_fill(session, 1.0 - loss.share());
            }
            SourceCommand::SessionRtt { session, rtt } => {
                self.tell_distance(now, session, rtt);
                if let Some(client) = self.clients.get_mut(&session) {
                    client.rtt = rtt;
                }
            }
            SourceCommand::SessionClosed { session } => self.on_session_closed(now, session),
            SourceCommand::LossKnown { session, loss } => self.know_loss(session, loss),
            SourceCommand::Page { session, query, items, total, next, wanted } => {
                // The client must know its items before it hears of their transmissions.
                let wants: Vec<(Toi, Oti)> = items.iter().map(|i| (i.toi, i.oti)).collect();
                self.say(session, ServerMessage::Page { query, items, total, next });
                for (toi, oti) in wants.into_iter().filter(|_| wanted) {
                    self.want(now, session, toi, oti, &Need::Whole);
                }
            }
            SourceCommand::Failed { session, query, reason } => {
                self.say(session, ServerMessage::Failed { query, reason });
            }
            SourceCommand::Want { session, toi, oti, need } => {
                self.want(now, session, toi, oti, &need);
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
            SourceCommand::SymbolsReady => self.waiting_for_symbols = false,
        }
        self.fill_queue(now);
    }

    /// Puts a message into the line to a session that exists.
    pub(super) fn say(&mut self, session: SessionId, message: ServerMessage) {
        if self.clients.contains_key(&session) {
            self.outbox.push_back((session, message));
        }
    }

    fn on_hello(&mut self, session: SessionId, token: Option<&str>) {
        let admitted = self.config.token.is_none() || self.config.token.as_deref() == token;
        let Some(client) = self.clients.get_mut(&session) else {
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
            control: self.control_group(session),
        };
        self.say(session, welcome);
    }

    fn note_request(&mut self, now: Instant, session: SessionId) {
        if let Some(client) = self.clients.get_mut(&session) {
            client.first_request.get_or_insert(now);
        }
    }

    fn note_satisfied(&mut self, now: Instant, session: SessionId) {
        if let Some(client) = self.clients.get_mut(&session)
            && client.wanted.is_empty()
            && let Some(first) = client.first_request.take()
        {
            self.events.push_back(SourceEvent::Satisfied { session, after: now - first });
        }
    }

    fn on_want_message(&mut self, now: Instant, session: SessionId, toi: Toi, need: Need) {
        self.note_request(now, session);
        match self.items.get(&toi).map(|item| item.oti) {
            Some(oti) => self.want(now, session, toi, oti, &need),
            None => self.events.push_back(SourceEvent::Lookup { session, toi, need }),
        }
    }

    /// Takes it that the client lacks exactly `need` of the item from now on.
    fn want(&mut self, now: Instant, session: SessionId, toi: Toi, oti: Oti, need: &Need) {
        let Some(client) = self.clients.get_mut(&session) else { return };
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
        let item = self.items.entry(toi).or_insert_with(|| Item::new(oti, partition));
        let symbols = item.outstanding(&missing, self.config.reschedule_whole);
        let running = self.queue.front().filter(|t| t.toi == toi && t.started());
        let unaware = !self.config.policy.notifies()
            && running.is_some_and(|running| !running.participants.contains(&session));
        item.demands.insert(session, Demand { missing, unaware });
        self.gathering.forget(toi, session);
        self.schedule(now, session, toi, symbols);
        self.notify_late(now, session, toi);
    }

    fn on_unicast(&mut self, now: Instant, session: SessionId, toi: Toi, need: Need) {
        let Some(client) = self.clients.get_mut(&session) else { return };
        if !client.wanted.contains(&toi) {
            return self.drops.count(DropReason::NotWanted);
        }
        client.unicast.insert(toi);
        self.drop_demand_of_channel(now, session, toi);
        self.events.push_back(SourceEvent::ServeUnicast { session, toi, need });
    }

    fn on_session_closed(&mut self, now: Instant, session: SessionId) {
        let Some(client) = self.clients.remove(&session) else { return };
        for toi in client.wanted {
            self.drop_demand_of_channel(now, session, toi);
        }
        self.scheduler.remove_client(session);
        self.outbox.retain(|(to, _)| *to != session);
    }

    /// The client has the item or no longer wants it. Gives whether it wanted it.
    pub(super) fn drop_demand(&mut self, now: Instant, session: SessionId, toi: Toi) -> bool {
        let Some(client) = self.clients.get_mut(&session) else { return false };
        if !client.wanted.remove(&toi) {
            return false;
        }
        if client.unicast.remove(&toi) {
            self.events.push_back(SourceEvent::StopUnicast { session, toi });
        }
        self.drop_demand_of_channel(now, session, toi);
        true
    }

    /// The item cannot be read: tells everyone who wants it.
    pub(super) fn lose_item(&mut self, now: Instant, toi: Toi, reason: &str) {
        let wanting: Vec<SessionId> = self
            .clients
            .iter()
            .filter(|(_, client)| client.wanted.contains(&toi))
            .map(|(&session, _)| session)
            .collect();
        for session in wanting {
            self.drop_demand(now, session, toi);
            self.say(session, ServerMessage::Gone { toi, reason: reason.to_owned() });
        }
        self.abandon(now, toi, true);
        self.events.push_back(SourceEvent::ItemLost { toi, reason: reason.to_owned() });
    }
}

impl Client {
    fn new(rtt: Duration, loss: Loss) -> Client {
        Client {
            rtt,
            admitted: false,
            loss,
            wanted: BTreeSet::new(),
            unicast: BTreeSet::new(),
            first_request: None,
            hears_control: false,
            listening_until: Instant::EPOCH,
        }
    }
}
