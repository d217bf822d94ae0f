//! PGM's source and receivers as programs of hosts, and its routers as hooks: the engines of
//! [`umbel_engine::pgm`], unchanged.
//!
//! ```
//! use std::time::Duration;
//!
//! use umbel_engine::pgm::{ReceiverConfig, SourceConfig};
//! use umbel_sim::pgm::{Receiver, ReceiverHost, Source, router};
//! use umbel_sim::{Instant, LinkSpec, Network, Simulation, channel};
//!
//! let mut network = Network::new();
//! let (source, receiver) = (network.host("source"), network.host("receiver"));
//! let middle = network.router("router");
//! for host in [source, receiver] {
//!     network.link(middle, host, LinkSpec::default(), LinkSpec::default())?;
//! }
//! let group = channel(Some(source), 1);
//! let mut simulation = Simulation::new(network, 1);
//! let sends = (1..=10).map(|n| Instant::EPOCH + Duration::from_secs(n));
//! let host = Source::host(SourceConfig::new(group), sends, 1000);
//! simulation.set_app(source, host, Instant::EPOCH)?;
//! let host = Receiver::host(ReceiverConfig::new(group), 1);
//! simulation.set_app(receiver, host, Instant::EPOCH)?;
//! simulation.set_router_hook(middle, router(middle, |_| {}))?;
//! simulation.run_until(Instant::EPOCH + Duration::from_secs(20));
//! let receiver = simulation.app::<ReceiverHost>(receiver).unwrap().host();
//! assert_eq!(receiver.delivered(), 10);
//! # Ok::<(), umbel_sim::NetworkError>(())
//! ```

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::convert::Infallible;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::chance::generator;
use umbel_engine::host::{Host, Io};
use umbel_engine::pgm::{
    self, ReceiverConfig, ReceiverEvent, RouterConfig, SourceCommand, SourceConfig,
};
use umbel_wire::pgm::MessageType;

use crate::address::{PORT, address_of};
use crate::network::NodeId;
use crate::{EngineHost, HostConfig, Kind, KindOf, RouterHost};

/// Host that runs a source.
pub type SourceHost = EngineHost<pgm::Source, Source>;

/// Host that runs a receiver.
pub type ReceiverHost = EngineHost<pgm::Receiver, Receiver>;

/// Hook of a router.
pub type RouterHook = RouterHost<pgm::Router>;

/// Sends units at given times.
#[derive(Clone, Debug)]
pub struct Source {
    sends: VecDeque<Instant>,
    unit: Bytes,
}

/// Counts the units delivered, in order.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    next: u64,
    delivered: u64,
    lost: u64,
}

fn config() -> HostConfig {
    HostConfig { kind: KindOf::Bytes(kind), ..HostConfig::default() }
}

/// Creates a router's hook at this node. `change` sets values other than the defaults.
pub fn router(node: NodeId, change: impl FnOnce(&mut RouterConfig)) -> RouterHook {
    let mut config = RouterConfig::new((address_of(node), PORT).into());
    change(&mut config);
    RouterHost::new(pgm::Router::new(config), kind)
}

/// Returns the purpose of a PGM datagram.
pub fn kind(payload: &[u8]) -> Kind {
    match MessageType::of(payload) {
        Some(MessageType::Odata) => Kind::Data,
        Some(MessageType::Rdata) => Kind::Repair,
        Some(MessageType::Nak) => Kind::Nak,
        Some(MessageType::Spm | MessageType::Ncf) | None => Kind::Control,
    }
}

impl Source {
    /// Creates a host that sends a unit of `unit_len` bytes at each of these times, ascending. A
    /// unit for which the engine's queue has no room is skipped.
    pub fn host(
        engine: SourceConfig,
        sends: impl IntoIterator<Item = Instant>,
        unit_len: usize,
    ) -> SourceHost {
        let unit = Bytes::from(vec![0; unit_len]);
        let application = Source { sends: sends.into_iter().collect(), unit };
        EngineHost::new(pgm::Source::new(engine), application, config())
    }
}

impl Host<pgm::Source> for Source {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<pgm::Source>) {
        io.wake_at(self.sends.front().copied());
    }

    fn event(&mut self, _io: &mut dyn Io<pgm::Source>, event: Infallible) {
        match event {}
    }

    fn wake(&mut self, io: &mut dyn Io<pgm::Source>) {
        while self.sends.pop_front_if(|at| *at <= io.now()).is_some() {
            // The queue is full: the application sends faster than the network accepts.
            let _ = io.command(SourceCommand::Send(self.unit.clone()));
        }
        io.wake_at(self.sends.front().copied());
    }
}

impl Receiver {
    /// Creates a host that receives. Its back-off times are drawn from `seed`.
    pub fn host(engine: ReceiverConfig, seed: u64) -> ReceiverHost {
        let engine = pgm::Receiver::new(engine, generator(seed));
        EngineHost::new(engine, Receiver::default(), config())
    }

    /// Returns the number of units delivered; each arrived once and in order.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the number of units that were given up.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Host<pgm::Receiver> for Receiver {
    type Input = Infallible;

    fn start(&mut self, _io: &mut dyn Io<pgm::Receiver>) {}

    fn event(&mut self, _io: &mut dyn Io<pgm::Receiver>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Unit { sequence, .. } => {
                assert!(sequence >= self.next, "unit {sequence} came after {}", self.next);
                (self.next, self.delivered) = (sequence + 1, self.delivered + 1);
            }
            ReceiverEvent::Lost { units } => self.lost += units,
        }
    }
}
