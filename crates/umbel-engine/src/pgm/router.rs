//! The router.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use umbel_wire::pgm::{Message, MessageType};
use umbel_wire::{Channel, Parsed};

use super::api::RouterStats;
use super::{DropReason, Drops, RouterConfig};
use crate::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterTransmit, Routes, Upstream, Verdict,
};
use crate::timers::Deadlines;
use crate::{Address, Instant, RouterEngine};

/// A unit of a channel.
type Unit = (Channel, u64);

/// State that a unit's NAKs have set up [RFC 3208 §7.4].
#[derive(Clone, Debug)]
struct State {
    /// Interfaces on which the retransmission is wanted, ascending.
    interfaces: Vec<InterfaceId>,
    /// The node that is asked now.
    asked: Asked,
    /// Number of NAKs sent up since one was confirmed.
    unconfirmed: u32,
    confirmed: bool,
    /// Time until which no further incoming NAK goes up.
    eliminate_until: Instant,
    /// Time at which a NAK goes up again, or, once confirmed, at which the state is dropped.
    until: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Repairer,
    Upstream,
}

/// A channel's next node upstream, as named by SPMs.
#[derive(Clone, Copy, Debug)]
struct Session {
    path: SocketAddr,
    number: u64,
    expires: Instant,
}

/// Passes one NAK of each unit on, and retransmissions to the interfaces that want them.
#[derive(Clone, Debug)]
pub struct Router {
    config: RouterConfig,
    sessions: BTreeMap<Channel, Session>,
    states: BTreeMap<Unit, State>,
    due: Deadlines<Unit>,
    /// Number of states in which each interface is noted.
    load: BTreeMap<InterfaceId, usize>,
    out: VecDeque<RouterTransmit>,
    stats: RouterStats,
    drops: Drops,
    /// Kept to reuse its memory.
    downstream: Vec<InterfaceId>,
}

impl Router {
    /// Creates a router without state.
    pub fn new(config: RouterConfig) -> Router {
        Router {
            config,
            sessions: BTreeMap::new(),
            states: BTreeMap::new(),
            due: Deadlines::default(),
            load: BTreeMap::new(),
            out: VecDeque::new(),
            stats: RouterStats::default(),
            drops: Drops::default(),
            downstream: Vec::new(),
        }
    }

    /// Returns the router's counters.
    pub fn stats(&self) -> RouterStats {
        self.stats
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the number of units that NAKs have set up state for.
    pub fn states(&self) -> usize {
        self.states.len()
    }

    fn drop(&mut self, reason: DropReason) -> Verdict {
        self.drops.count(reason);
        Verdict::Take
    }

    fn send(&mut self, to: RouterDestination, message: &Message<'_>) {
        let mut payload = Vec::new();
        message.emit(&mut payload);
        self.out.push_back(RouterTransmit { to, alert: false, payload: payload.into() });
    }

    /// Passes an SPM on with this router's address in it.
    fn on_spm(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        channel: Channel,
        (number, path): (u64, SocketAddr),
        (trail, next): (u64, u64),
    ) -> Verdict {
        match self.sessions.get(&channel) {
            Some(session) if number < session.number && session.expires > now => {
                return self.drop(DropReason::Duplicate);
            }
            None if self.sessions.len() >= self.config.sessions => {
                self.sessions.retain(|_, session| session.expires > now);
                if self.sessions.len() >= self.config.sessions {
                    self.drops.count(DropReason::OverLimit);
                    return Verdict::Forward;
                }
            }
            _ => {}
        }
        let expires = now + self.config.session_expiry;
        self.sessions.insert(channel, Session { path, number, expires });
        let spm = Message::Spm { number, trail, next, path: self.config.address };
        let mut interfaces = std::mem::take(&mut self.downstream);
        routes.downstream(&channel, &mut interfaces);
        for interface in interfaces.drain(..) {
            self.send(RouterDestination::Branch { channel, interface }, &spm);
        }
        self.downstream = interfaces;
        Verdict::Take
    }

    /// Confirms a NAK where it came from, notes it, and passes it on if it is the first.
    fn on_nak(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        interface: InterfaceId,
        (channel, sequence): Unit,
    ) -> Verdict {
        if !routes.is_downstream(&channel, interface) {
            return self.drop(DropReason::Unexpected);
        }
        let unit = (channel, sequence);
        let noted = self.states.get(&unit).map(|state| state.interfaces.binary_search(&interface));
        if !matches!(noted, Some(Ok(_))) {
            let load = self.load.entry(interface).or_default();
            if *load >= self.config.interface_states {
                return self.drop(DropReason::OverLimit);
            }
            *load += 1;
        }
        self.stats.naks += 1;
        let ncf = Message::Ncf { channel: None, sequence };
        self.send(RouterDestination::Branch { channel, interface }, &ncf);
        if let (Some(state), Some(noted)) = (self.states.get_mut(&unit), noted) {
            if let Err(at) = noted {
                state.interfaces.insert(at, interface);
            }
            if state.eliminate_until > now {
                return Verdict::Take;
            }
        } else {
            let repairer = self.config.repairer.is_some();
            let state = State {
                interfaces: vec![interface],
                asked: if repairer { Asked::Repairer } else { Asked::Upstream },
                unconfirmed: 0,
                confirmed: false,
                eliminate_until: now,
                until: now,
            };
            self.states.insert(unit, state);
        }
        self.ask(now, unit);
        Verdict::Take
    }

    /// Sends a NAK on, and waits for its confirmation.
    fn ask(&mut self, now: Instant, unit: Unit) {
        let Some(state) = self.states.get_mut(&unit) else { return };
        let (channel, sequence) = unit;
        let to = match (state.asked, self.config.repairer) {
            (Asked::Repairer, Some(repairer)) => Some(repairer),
            _ => self
                .sessions
                .get(&channel)
                .map(|session| session.path)
                .or_else(|| channel.source.map(|source| SocketAddr::new(source, channel.port))),
        };
        self.due.cancel(state.until, unit);
        state.until = now + self.config.nak_repeat;
        state.eliminate_until = now + self.config.nak_elimination;
        state.unconfirmed += 1;
        state.confirmed = false;
        self.due.set(state.until, unit);
        if let Some(to) = to {
            self.stats.naks_up += 1;
            self.send(RouterDestination::Host(to), &Message::Nak { channel, sequence });
        }
    }

    fn on_ncf(&mut self, now: Instant, unit: Unit, by: Asked) -> Verdict {
        let expires = now + self.config.state_expiry;
        let Some(state) = self.states.get_mut(&unit).filter(|state| state.asked == by) else {
            return self.drop(DropReason::NotAsked);
        };
        self.due.cancel(state.until, unit);
        (state.confirmed, state.unconfirmed, state.until) = (true, 0, expires);
        self.due.set(expires, unit);
        Verdict::Take
    }

    /// Sends a retransmission to the interfaces that want it, and forgets its state.
    fn on_rdata(&mut self, unit: Unit, payload: &Bytes) -> Verdict {
        let Some(state) = self.forget(&unit) else { return self.drop(DropReason::NotAsked) };
        self.stats.repairs += 1;
        for interface in state.interfaces {
            self.stats.copies += 1;
            self.out.push_back(RouterTransmit {
                to: RouterDestination::Branch { channel: unit.0, interface },
                alert: false,
                payload: payload.clone(),
            });
        }
        Verdict::Take
    }

    fn forget(&mut self, unit: &Unit) -> Option<State> {
        let state = self.states.remove(unit)?;
        self.due.cancel(state.until, *unit);
        for interface in &state.interfaces {
            if let Some(load) = self.load.get_mut(interface) {
                *load -= 1;
                if *load == 0 {
                    self.load.remove(interface);
                }
            }
        }
        Some(state)
    }

    /// Handles a datagram that came down the channel's tree.
    fn on_multicast(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        channel: Channel,
        datagram: &PassingDatagram<'_>,
    ) -> Verdict {
        if routes.upstream(&channel) != Some(Upstream::Interface(datagram.arrived_on)) {
            return self.drop(DropReason::Unexpected);
        }
        let Ok(Parsed::Message { message, .. }) = Message::parse(datagram.payload) else {
            return self.drop(DropReason::Malformed);
        };
        match message {
            Message::Spm { number, trail, next, path } => {
                self.on_spm(now, routes, channel, (number, path), (trail, next))
            }
            Message::Ncf { sequence, .. } => self.on_ncf(now, (channel, sequence), Asked::Upstream),
            Message::Rdata { sequence, .. } => {
                self.on_rdata((channel, sequence), &Bytes::copy_from_slice(datagram.payload))
            }
            Message::Odata { .. } | Message::Nak { .. } => Verdict::Forward,
        }
    }

    /// Handles a datagram to one host, which is this one or one further up.
    fn on_unicast(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: &PassingDatagram<'_>,
    ) -> Verdict {
        let to_me = datagram.to == Address::Host(self.config.address);
        let Ok(Parsed::Message { message, .. }) = Message::parse(datagram.payload) else {
            return if to_me { self.drop(DropReason::Malformed) } else { Verdict::Forward };
        };
        let from_repairer = self.config.repairer == Some(datagram.from);
        match message {
            // Also a NAK that passes by, from a receiver that has heard no SPM from here yet.
            Message::Nak { channel, sequence } => {
                let to_source = matches!((datagram.to, channel.source),
                    (Address::Host(to), Some(source)) if to.ip() == source);
                if !to_me && !to_source {
                    return Verdict::Forward;
                }
                self.on_nak(now, routes, datagram.arrived_on, (channel, sequence))
            }
            Message::Ncf { channel: Some(channel), sequence } if to_me && from_repairer => {
                self.on_ncf(now, (channel, sequence), Asked::Repairer)
            }
            Message::Rdata { channel: Some(channel), sequence, trail, payload }
                if to_me && from_repairer =>
            {
                let mut again = Vec::with_capacity(payload.len() + 64);
                Message::Rdata { channel: None, sequence, trail, payload }.emit(&mut again);
                self.on_rdata((channel, sequence), &again.into())
            }
            _ if to_me => self.drop(DropReason::Unexpected),
            _ => Verdict::Forward,
        }
    }
}

impl RouterEngine for Router {
    fn handle_datagram(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: PassingDatagram<'_>,
    ) -> Verdict {
        // Most passing datagrams are original data, of which nothing else is looked at.
        match (MessageType::of(datagram.payload), datagram.to) {
            (None | Some(MessageType::Odata), _) | (_, Address::Session(_)) => Verdict::Forward,
            (Some(_), Address::Channel(channel)) => {
                self.on_multicast(now, routes, channel, &datagram)
            }
            (Some(_), Address::Host(_)) => self.on_unicast(now, routes, &datagram),
        }
    }

    fn handle_timeout(&mut self, now: Instant, _routes: &mut dyn Routes) {
        while let Some(unit) = self.due.pop_due(now) {
            let retries = self.config.nak_retries;
            let Some(state) = self.states.get_mut(&unit) else { continue };
            if !state.confirmed && state.asked == Asked::Repairer {
                // The repairer does not have the unit, or is gone.
                state.asked = Asked::Upstream;
                self.ask(now, unit);
            } else if state.confirmed || state.unconfirmed >= retries {
                self.stats.expired += 1;
                self.forget(&unit);
            } else {
                self.ask(now, unit);
            }
        }
    }

    fn poll_transmit(&mut self, _now: Instant) -> Option<RouterTransmit> {
        self.out.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.next()
    }
}
