//! LMS's source and receivers as programs of hosts, and its routers as hooks: the engines of
//! [`umbel_engine::lms`], unchanged.
//!
//! - [`Source::host`] sends units at given times. [`Receiver::host`] joins when it starts and
//!   checks the units that it receives ([`Receiver::delivered`], [`Receiver::wrong`]). It records
//!   each loss that was repaired ([`Receiver::recoveries`]: times of detection and of recovery, and
//!   number of requests).
//! - The engine's own counters have the rest ([`umbel_engine::lms::ReceiverStats`]:
//!   requests, repairs, and duplicates, which are the exposure).
//!   `simulation.app::<ReceiverHost>(node)` returns the host, its `engine()` the engine, with the
//!   measured round trip to the source.
//! - [`router`] is the hook of a router. Routers without one forward requests towards the source
//!   as any packet.
//! - [`kind`] distinguishes originals ([`Kind::Data`]), repairs and DMCASTs ([`Kind::Repair`]),
//!   requests ([`Kind::Nak`]) and all the rest ([`Kind::Control`]), for traces and loss models.
//!
//! ```
//! use std::time::Duration;
//!
//! use umbel_engine::lms::{ReceiverConfig, SourceConfig};
//! use umbel_sim::lms::{Receiver, ReceiverHost, Source, router};
//! use umbel_sim::{Instant, LinkSpec, Loss, Network, Simulation, channel};
//! use umbel_wire::Tsi;
//!
//! let mut network = Network::new();
//! let (source, receiver) = (network.host("source"), network.host("receiver"));
//! let middle = network.router("router");
//! let lossy = LinkSpec::default().delay(Duration::from_millis(5)).loss(Loss::Bernoulli(0.1));
//! for host in [source, receiver] {
//!     network.link(middle, host, lossy.clone(), lossy.clone())?;
//! }
//! let group = channel(Some(source), 1);
//! let mut simulation = Simulation::new(network, 1);
//! let sends = (1..=10).map(|n| Instant::EPOCH + Duration::from_secs(n));
//! let host = Source::host(SourceConfig::new(group, Tsi(1)), sends, 1000);
//! simulation.set_app(source, host, Instant::EPOCH)?;
//! let host = Receiver::host(ReceiverConfig::new(group), 1);
//! simulation.set_app(receiver, host, Instant::EPOCH)?;
//! simulation.set_router_hook(middle, router(middle, 1, |_| {}))?;
//! simulation.run_until(Instant::EPOCH + Duration::from_secs(30));
//! let receiver = simulation.app::<ReceiverHost>(receiver).unwrap().host();
//! assert_eq!((receiver.delivered(), receiver.wrong()), (10, 0));
//! # Ok::<(), umbel_sim::NetworkError>(())
//! ```

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use rand_core::Rng;
use umbel_engine::Instant;
use umbel_engine::chance::generator;
use umbel_engine::host::{Host, Io};
use umbel_engine::lms::{
    self, ReceiverCommand, ReceiverConfig, ReceiverEvent, RouterConfig, SourceCommand,
    SourceConfig, SourceEvent,
};
use umbel_wire::lms::{Message, Summary};

use crate::address::{PORT, address_of};
use crate::network::NodeId;
use crate::random::{Purpose, stream};
use crate::{EngineHost, HostConfig, Kind, KindOf, RouterHost};

/// Host that runs a source.
pub type SourceHost = EngineHost<lms::Source, Source>;

/// Host that runs a receiver.
pub type ReceiverHost = EngineHost<lms::Receiver, Receiver>;

/// Hook of a router.
pub type RouterHook = RouterHost<lms::Router>;

/// Sends units at given times.
#[derive(Clone, Debug)]
pub struct Source {
    sends: VecDeque<Instant>,
    unit_len: usize,
    sent: u64,
    /// Questions that remain to be asked.
    questions: VecDeque<(Instant, u32, Duration)>,
    collected: Vec<(u32, Summary)>,
}

/// Loss that was repaired.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// Number of the unit.
    pub sequence: u64,
    /// Time when the unit was found missing.
    pub detected: Instant,
    /// Time when the unit arrived.
    pub recovered: Instant,
    /// Number of requests sent for the unit.
    pub requests: u8,
}

/// Checks the units that it receives, and leaves and joins.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    next: u64,
    delivered: u64,
    wrong: u64,
    given_up: u64,
    recoveries: Vec<Recovery>,
    /// Times when it leaves and joins, alternately.
    changes: VecDeque<Instant>,
    is_away: bool,
    /// Number that is added to a question to answer it.
    answer: u64,
}

fn config() -> HostConfig {
    HostConfig { kind: KindOf::Bytes(kind), ..HostConfig::default() }
}

/// Creates a router's hook at this node, with a secret drawn from `seed`. `change` sets values
/// other than the defaults.
pub fn router(node: NodeId, seed: u64, change: impl FnOnce(&mut RouterConfig)) -> RouterHook {
    RouterHost::new(router_engine(node, seed, change), kind)
}

/// Creates the engine of [`router`], as it is after a start.
pub fn router_engine(
    node: NodeId,
    seed: u64,
    change: impl FnOnce(&mut RouterConfig),
) -> lms::Router {
    let mut secret = [0; 32];
    stream(seed, Purpose::Node, u64::from(node.0)).fill_bytes(&mut secret);
    let mut config = RouterConfig::new((address_of(node), PORT).into(), secret);
    change(&mut config);
    lms::Router::new(config)
}

/// Returns the purpose of an LMS datagram.
pub fn kind(payload: &[u8]) -> Kind {
    match Message::parse(payload).ok().and_then(umbel_wire::Parsed::message) {
        Some(Message::Data { .. }) => Kind::Data,
        Some(Message::Repair { .. } | Message::Dmcast { .. }) => Kind::Repair,
        Some(Message::Request(_)) => Kind::Nak,
        _ => Kind::Control,
    }
}

/// Returns the content of a unit, by which a receiver checks that it received the right one.
pub fn content(sequence: u64, len: usize) -> Bytes {
    let mut bytes = sequence.to_be_bytes().repeat(len.div_ceil(8));
    bytes.truncate(len);
    bytes.into()
}

impl Source {
    /// Creates a host that sends a unit of `unit_len` bytes at each of these times, ascending. A
    /// unit for which the engine's queue has no room is skipped.
    pub fn host(
        engine: SourceConfig,
        sends: impl IntoIterator<Item = Instant>,
        unit_len: usize,
    ) -> SourceHost {
        let application = Source {
            sends: sends.into_iter().collect(),
            unit_len,
            sent: 0,
            questions: VecDeque::new(),
            collected: Vec::new(),
        };
        EngineHost::new(lms::Source::new(engine), application, config())
    }

    /// Makes the source ask all members a question at a time later than all previous ones.
    pub fn ask_at(&mut self, at: Instant, question: u32, spread: Duration) {
        self.questions.push_back((at, question, spread));
    }

    /// Returns the answers that arrived, by round.
    pub fn collected(&self) -> &[(u32, Summary)] {
        &self.collected
    }

    /// Returns the number of units passed to the engine.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    fn set_timer(&self, io: &mut dyn Io<lms::Source>) {
        let send = self.sends.front().copied();
        let ask = self.questions.front().map(|(at, ..)| *at);
        io.wake_at([send, ask].into_iter().flatten().min());
    }
}

impl Host<lms::Source> for Source {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<lms::Source>) {
        self.set_timer(io);
    }

    fn event(&mut self, _io: &mut dyn Io<lms::Source>, event: SourceEvent) {
        let SourceEvent::Collected { round, summary } = event;
        self.collected.push((round, summary));
    }

    fn wake(&mut self, io: &mut dyn Io<lms::Source>) {
        while self.sends.pop_front_if(|at| *at <= io.now()).is_some() {
            let unit = content(self.sent, self.unit_len);
            if io.command(SourceCommand::Send(unit)).is_ok() {
                self.sent += 1;
            }
        }
        while let Some((_, question, spread)) = self.questions.pop_front_if(|q| q.0 <= io.now()) {
            // The engine never refuses a question.
            let _ = io.command(SourceCommand::Collect { question, spread });
        }
        self.set_timer(io);
    }
}

impl Receiver {
    /// Creates a host that joins when it starts. Its delays are drawn from `seed`.
    pub fn host(engine: ReceiverConfig, seed: u64) -> ReceiverHost {
        let engine = lms::Receiver::new(engine, generator(seed));
        EngineHost::new(engine, Receiver::default(), config())
    }

    /// Makes the receiver leave, join again, leave and so on at these times, ascending.
    pub fn set_changes(&mut self, changes: impl IntoIterator<Item = Instant>) {
        self.changes = changes.into_iter().collect();
    }

    /// Makes the receiver answer each question with its number plus `answer`.
    pub fn set_answer(&mut self, answer: u64) {
        self.answer = answer;
    }

    /// Returns the number of units delivered since the last join.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the next unit that the receiver expects. All before it, from where it joined, were
    /// delivered or given up.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of units that were delivered twice, out of order, after a gap that was
    /// not reported, or with wrong content.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Returns the number of units that were given up because no member had them any more.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the losses that were repaired, in the order of their repair.
    pub fn recoveries(&self) -> &[Recovery] {
        &self.recoveries
    }

    fn tell(io: &mut dyn Io<lms::Receiver>, command: ReceiverCommand) {
        match io.command(command) {
            Ok(()) => {}
            Err(never) => match never {},
        }
    }

    fn set_timer(&self, io: &mut dyn Io<lms::Receiver>) {
        io.wake_at(self.changes.front().copied());
    }

    fn on_unit(&mut self, sequence: u64, payload: &Bytes) {
        let begins = self.delivered == 0 && self.given_up == 0;
        let is_next = sequence == self.next || begins;
        if !is_next || *payload != content(sequence, payload.len()) {
            self.wrong += 1;
        }
        self.delivered += 1;
        self.next = sequence + 1;
    }
}

impl Host<lms::Receiver> for Receiver {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<lms::Receiver>) {
        Receiver::tell(io, ReceiverCommand::Join);
        self.set_timer(io);
    }

    fn event(&mut self, io: &mut dyn Io<lms::Receiver>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Unit { sequence, payload } => self.on_unit(sequence, &payload),
            ReceiverEvent::GivenUp { before, units } => {
                self.given_up += units;
                self.next = self.next.max(before);
            }
            ReceiverEvent::Recovered { sequence, detected, requests } => {
                let recovered = io.now();
                self.recoveries.push(Recovery { sequence, detected, recovered, requests });
            }
            ReceiverEvent::Question { round, question } => {
                let value = u64::from(question) + self.answer;
                Receiver::tell(io, ReceiverCommand::Answer { round, value });
            }
        }
    }

    fn wake(&mut self, io: &mut dyn Io<lms::Receiver>) {
        while self.changes.pop_front_if(|at| *at <= io.now()).is_some() {
            self.is_away = !self.is_away;
            let command = if self.is_away {
                ReceiverCommand::Leave
            } else {
                (self.delivered, self.given_up, self.next) = (0, 0, 0);
                ReceiverCommand::Join
            };
            Receiver::tell(io, command);
        }
        self.set_timer(io);
    }
}
