//! BASEP's source and receivers as programs of hosts: the engines of [`umbel_engine::basep`],
//! unchanged.
//!
//! ```
//! use std::time::Duration;
//!
//! use umbel_sim::basep::{Receiver, ReceiverHost, Source};
//! use umbel_sim::{Instant, LinkSpec, Loss, Network, Simulation, channel};
//!
//! let mut network = Network::new();
//! let (source, receiver) = (network.host("source"), network.host("receiver"));
//! let lossy = LinkSpec { loss: Loss::Bernoulli(0.3), ..LinkSpec::default() };
//! network.link(source, receiver, lossy.clone(), lossy)?;
//! let group = channel(Some(source), 1);
//! let mut simulation = Simulation::new(network, 1);
//! let start = Instant::EPOCH + Duration::from_secs(1);
//! let host = Source::host(group, [receiver], |_| {}, (start, 10, 1000));
//! simulation.set_app(source, host, Instant::EPOCH)?;
//! simulation.set_app(receiver, Receiver::host(group), Instant::EPOCH)?;
//! simulation.run_until(start + Duration::from_secs(100));
//! let receiver = simulation.app::<ReceiverHost>(receiver).unwrap().host();
//! assert!(receiver.completed().is_some() && receiver.wrong() == 0);
//! # Ok::<(), umbel_sim::NetworkError>(())
//! ```

#[cfg(test)]
mod tests;

use std::convert::Infallible;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::basep::{
    self, ReceiverConfig, ReceiverEvent, SourceCommand, SourceConfig, SourceEvent,
};
use umbel_engine::host::{Host, Io};
use umbel_wire::Channel;
use umbel_wire::basep::MessageType;

use crate::address::{PORT, address_of};
use crate::network::NodeId;
use crate::{EngineHost, HostConfig, Kind, KindOf};

/// Host that runs a source.
pub type SourceHost = EngineHost<basep::Source, Source>;

/// Host that runs a receiver.
pub type ReceiverHost = EngineHost<basep::Receiver, Receiver>;

/// Sends a file at a given time.
#[derive(Clone, Debug)]
pub struct Source {
    start: Instant,
    packets: u64,
    packet_len: usize,
    got_it: Vec<(NodeId, Instant)>,
    given_up: u64,
    finished: Option<Instant>,
}

/// Checks the packets that it receives.
#[derive(Clone, Debug, Default)]
pub struct Receiver {
    delivered: u64,
    wrong: u64,
    completed: Option<Instant>,
}

/// Returns the configuration of a host that sends "as fast as possible"
/// [TMTP "The Test Environment"]. Only the links limit the rate.
fn config() -> HostConfig {
    HostConfig { kind: KindOf::Bytes(kind), ..HostConfig::default() }
}

/// Returns the purpose of a BASEP datagram.
pub fn kind(payload: &[u8]) -> Kind {
    match MessageType::of(payload) {
        Some(MessageType::Data) => Kind::Data,
        Some(MessageType::Retransmission) => Kind::Repair,
        Some(MessageType::Ack | MessageType::GotIt) | None => Kind::Control,
    }
}

/// Returns the content of a packet, which is its number repeated.
fn content(sequence: u64, len: usize) -> Bytes {
    sequence.to_be_bytes().into_iter().cycle().take(len).collect()
}

impl Source {
    /// Creates a host that sends packets to the receivers, all of them at one time. The tuple holds
    /// the time, the number of packets and their length in bytes. `change` sets values other than
    /// the defaults.
    pub fn host(
        channel: Channel,
        receivers: impl IntoIterator<Item = NodeId>,
        change: impl FnOnce(&mut SourceConfig),
        (start, packets, packet_len): (Instant, u64, usize),
    ) -> SourceHost {
        let receivers = receivers.into_iter().map(|node| (address_of(node), PORT).into());
        let mut engine = SourceConfig::new(channel, receivers.collect());
        change(&mut engine);
        let got_it = Vec::new();
        let application =
            Source { start, packets, packet_len, got_it, given_up: 0, finished: None };
        EngineHost::new(basep::Source::new(engine), application, config())
    }

    /// Returns the receivers that are known to have everything, and since when.
    pub fn got_it(&self) -> &[(NodeId, Instant)] {
        &self.got_it
    }

    /// Returns the number of receivers that were given up.
    pub fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Returns the time when everything was acknowledged, if it was.
    pub fn finished(&self) -> Option<Instant> {
        self.finished
    }
}

impl Host<basep::Source> for Source {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<basep::Source>) {
        io.wake_at(Some(self.start));
    }

    fn event(&mut self, io: &mut dyn Io<basep::Source>, event: SourceEvent) {
        match event {
            SourceEvent::GotIt { receiver } => {
                self.got_it.extend(crate::node_of(receiver.ip()).map(|node| (node, io.now())));
            }
            SourceEvent::GivenUp { .. } => self.given_up += 1,
            SourceEvent::Finished => self.finished = Some(io.now()),
        }
    }

    fn wake(&mut self, io: &mut dyn Io<basep::Source>) {
        for sequence in 0..self.packets {
            let payload = content(sequence, self.packet_len);
            let last = sequence + 1 == self.packets;
            let sent = io.command(SourceCommand::Send { payload, last });
            assert_eq!(sent, Ok(()), "the queue of the source takes the whole file");
        }
    }
}

impl Receiver {
    /// Creates a host that receives.
    pub fn host(channel: Channel) -> ReceiverHost {
        let engine = basep::Receiver::new(ReceiverConfig::new(channel));
        EngineHost::new(engine, Receiver::default(), config())
    }

    /// Returns the number of packets delivered.
    pub fn delivered(&self) -> u64 {
        self.delivered
    }

    /// Returns the number of packets delivered out of order, twice, or with wrong content.
    pub fn wrong(&self) -> u64 {
        self.wrong
    }

    /// Returns the time when the receiver had everything, if it has.
    pub fn completed(&self) -> Option<Instant> {
        self.completed
    }
}

impl Host<basep::Receiver> for Receiver {
    type Input = Infallible;

    fn start(&mut self, _io: &mut dyn Io<basep::Receiver>) {}

    fn event(&mut self, io: &mut dyn Io<basep::Receiver>, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Packet { sequence, payload } => {
                let is_right =
                    sequence == self.delivered && payload == content(sequence, payload.len());
                self.wrong += u64::from(!is_right);
                self.delivered += 1;
            }
            ReceiverEvent::Complete => self.completed = Some(io.now()),
        }
    }
}
