//! End-points of the anycast service: servers that register with their router, clients whose
//! queries reach the nearest server [LMS §III-G].

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::lms::Message;
use umbel_wire::{Channel, Parsed};

use super::drops::{DropReason, Drops};
use crate::timers::timers;
use crate::{Address, Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

/// Greatest number of answers that a server owes at once.
const MAX_OWED: usize = 1024;

/// Configuration of an end-point of the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnycastConfig {
    /// The service: a channel without a source.
    pub service: Channel,
    /// The router on the host's link.
    pub router: SocketAddr,
    /// Cost that a server advertises; `None` for a client.
    pub cost: Option<u32>,
    /// Time between advertisements. Default 2 s.
    pub advertise_every: Duration,
}

impl AnycastConfig {
    /// Creates the configuration of a client.
    pub fn client(service: Channel, router: SocketAddr) -> AnycastConfig {
        AnycastConfig { service, router, cost: None, advertise_every: Duration::from_secs(2) }
    }

    /// Creates the configuration of a server of this cost.
    pub fn server(service: Channel, router: SocketAddr, cost: u32) -> AnycastConfig {
        AnycastConfig { cost: Some(cost), ..AnycastConfig::client(service, router) }
    }
}

/// Requests of the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnycastCommand {
    /// Register as a server, if this is one.
    Start,
    /// Stop being a server.
    Stop,
    /// Ask the nearest server.
    Ask {
        /// Number chosen by the application, returned with the answer.
        nonce: u64,
        /// The query.
        query: Bytes,
    },
    /// Answer an [`AnycastEvent::Query`].
    Answer {
        /// The query to answer.
        query: QueryId,
        /// The answer.
        answer: Bytes,
    },
}

/// A query that waits for the server's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct QueryId(u64);

/// News for the application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnycastEvent {
    /// A client asks this server.
    Query {
        /// Name of the query, for the answer.
        id: QueryId,
        /// The query.
        query: Bytes,
    },
    /// A server answers.
    Answer {
        /// The number given with the query.
        nonce: u64,
        /// The server.
        from: SocketAddr,
        /// The answer.
        answer: Bytes,
    },
}

timers! {
    /// Timers of an end-point.
    enum Timer, Timers {
        /// When a server advertises itself.
        Advertise,
    }
}

/// A server or client of the anycast service. Queries and answers may be lost, so a client asks
/// again.
///
/// No command offers the service: the paper only sketches it. Beside the routers of
/// `router/anycast.rs`, which pass its queries on, it shows in the simulator what they are for
/// (`umbel-sim/src/lms/tests/services.rs`).
#[derive(Debug)]
pub struct AnycastHost {
    config: AnycastConfig,
    is_server: bool,
    timers: Timers,
    /// Clients that wait for an answer, and the numbers of their queries.
    owed: BTreeMap<QueryId, (SocketAddr, u64)>,
    next_query: u64,
    due: VecDeque<(SocketAddr, Vec<u8>)>,
    events: VecDeque<AnycastEvent>,
    drops: Drops,
}

impl AnycastHost {
    /// Creates an end-point that has not started.
    pub fn new(config: AnycastConfig) -> AnycastHost {
        AnycastHost {
            config,
            is_server: false,
            timers: Timers::default(),
            owed: BTreeMap::new(),
            next_query: 0,
            due: VecDeque::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
        }
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    fn send(&mut self, to: SocketAddr, message: &Message<'_>) {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        self.due.push_back((to, bytes));
    }

    fn advertise(&mut self, cost: Option<u32>) {
        let AnycastConfig { service, router, .. } = self.config;
        self.send(router, &Message::AnycastAdvertisement { service, cost, hops: 0 });
    }

    fn on_query(&mut self, requestor: SocketAddr, nonce: u64, query: &[u8]) {
        if self.owed.len() >= MAX_OWED {
            // The oldest query is the least likely to be waited for.
            self.owed.pop_first();
            self.drops.count(DropReason::OverLimit);
        }
        let id = QueryId(self.next_query);
        self.next_query += 1;
        self.owed.insert(id, (requestor, nonce));
        self.events.push_back(AnycastEvent::Query { id, query: Bytes::copy_from_slice(query) });
    }
}

impl Engine for AnycastHost {
    type Command = AnycastCommand;
    type CommandError = Infallible;
    type Event = AnycastEvent;

    fn handle_datagram(&mut self, _now: Instant, datagram: Datagram<'_>) {
        let Address::Host(from) = datagram.by else {
            return self.drops.count(DropReason::Unexpected);
        };
        let Ok(Parsed::Message { message, .. }) = Message::parse(datagram.payload) else {
            return self.drops.count(DropReason::Malformed);
        };
        match message {
            Message::AnycastRequest { service, requestor, nonce, payload, .. }
                if service == self.config.service && self.is_server =>
            {
                self.on_query(requestor.unwrap_or(from), nonce, payload);
            }
            Message::AnycastReply { service, nonce, payload } if service == self.config.service => {
                let answer = Bytes::copy_from_slice(payload);
                self.events.push_back(AnycastEvent::Answer { nonce, from, answer });
            }
            _ => self.drops.count(DropReason::Unexpected),
        }
    }

    fn handle_command(&mut self, now: Instant, command: AnycastCommand) -> Result<(), Infallible> {
        let service = self.config.service;
        match command {
            AnycastCommand::Start => {
                self.is_server = self.config.cost.is_some();
                self.timers.put(Timer::Advertise, self.is_server.then_some(now));
                self.handle_timeout(now);
            }
            AnycastCommand::Stop => {
                if std::mem::take(&mut self.is_server) {
                    self.advertise(None);
                }
                self.timers.cancel(Timer::Advertise);
                self.owed.clear();
            }
            AnycastCommand::Ask { nonce, query } => {
                let (requestor, hops, payload) = (None, 0, &query[..]);
                let request = Message::AnycastRequest { service, requestor, nonce, hops, payload };
                self.send(self.config.router, &request);
            }
            AnycastCommand::Answer { query, answer } => {
                if let Some((requestor, nonce)) = self.owed.remove(&query) {
                    let payload = &answer[..];
                    self.send(requestor, &Message::AnycastReply { service, nonce, payload });
                }
            }
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(Timer::Advertise) = self.timers.pop_due(now) {
            self.advertise(self.config.cost);
            self.timers.set(Timer::Advertise, now + self.config.advertise_every);
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let (to, bytes) = self.due.pop_front()?;
        let alert = Message::is_for_routers(&bytes);
        buf.push_message(bytes);
        Some(Transmit { alert, ..Transmit::control(Address::Host(to)) })
    }

    fn poll_event(&mut self) -> Option<AnycastEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
}
