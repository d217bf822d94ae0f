//! RLM's source and receivers as programs of hosts: the engines of [`umbel_engine::rlm`],
//! unchanged.
//!
//! ```
//! use std::time::Duration;
//!
//! use umbel_engine::units::Rate;
//! use umbel_sim::rlm::{ReceiverHost, Stream};
//! use umbel_sim::{Instant, LinkSpec, Network, Queue, Simulation};
//!
//! let mut network = Network::new();
//! let (source, receiver) = (network.host("source"), network.host("receiver"));
//! let narrow = LinkSpec::default()
//!     .rate(Rate::from_bits_per_s(300_000).unwrap())
//!     .delay(Duration::from_millis(10))
//!     .queue(Queue::DropTailPackets(20));
//! network.link(source, receiver, narrow.clone(), narrow)?;
//! let mut simulation = Simulation::new(network, 1);
//! let stream = Stream::new(source);
//! simulation.set_app(source, stream.source_host(1), Instant::EPOCH)?;
//! let config = stream.receiver_config(receiver);
//! simulation.set_app(receiver, stream.receiver_host(config, 1), Instant::EPOCH)?;
//! simulation.run_until(Instant::EPOCH + Duration::from_secs(60));
//! // 32, 64 and 128 kb/s fit.
//! let host = simulation.app::<ReceiverHost>(receiver).unwrap().host();
//! assert_eq!(host.level_at(simulation.now()), 3);
//! # Ok::<(), umbel_sim::NetworkError>(())
//! ```

mod record;
#[cfg(test)]
mod tests;
mod traffic;

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;
use umbel_engine::host::{Host, Io};
use umbel_engine::rlm::{
    self, ReceiverCommand, ReceiverConfig, ReceiverEvent, SourceCommand, SourceConfig,
};
use umbel_wire::rlm::{MessageType, channels};
use umbel_wire::{Channel, SmallBlockHeader, Tsi};

pub use self::record::{Experiment, Record, SAMPLE, Sample};
use self::traffic::Layer;
pub use self::traffic::Traffic;
use crate::address::channel;
use crate::network::NodeId;
use crate::packet::Packet;
use crate::random::{Purpose, key, stream};
use crate::{EngineHost, HostConfig, Kind, KindOf};

/// Host that runs a source.
pub type SourceHost = EngineHost<rlm::Source, Source>;

/// Host that runs a receiver.
pub type ReceiverHost = EngineHost<rlm::Receiver, Record>;

/// Number of the base layer's group.
const BASE_GROUP: u32 = 1;
/// Number of the control group of the stream of node 0; each source has its own.
const CONTROL_GROUPS: u32 = 1 << 20;

/// A layered stream and its traffic.
#[derive(Clone, Debug, PartialEq)]
pub struct Stream {
    /// Its source.
    pub source: NodeId,
    /// Rates of its layers in bits per second, headers included.
    pub rates: Vec<f64>,
    /// Bytes of a packet on a link, headers included.
    pub packet_len: u16,
    /// Times of its packets.
    pub traffic: Traffic,
    /// Whether receivers talk to each other.
    pub has_control: bool,
}

/// Sends packets of each layer at the times of its traffic.
#[derive(Clone, Debug)]
pub struct Source {
    layers: Vec<Layer>,
    body: Bytes,
}

impl Stream {
    /// Creates the stream of the paper: six layers of 32·2^m kb/s, packets of 1 KB, constant bit
    /// rates with noise [RLM §4].
    pub fn new(source: NodeId) -> Stream {
        Stream {
            source,
            rates: (0..6).map(|m| 32_000.0 * f64::from(1 << m)).collect(),
            packet_len: 1000,
            traffic: Traffic::Cbr,
            has_control: true,
        }
    }

    /// Returns the channel of the base layer.
    pub fn base(&self) -> Channel {
        channel(Some(self.source), BASE_GROUP)
    }

    /// Returns the group in which receivers talk.
    pub fn control(&self) -> Option<Channel> {
        self.has_control.then(|| channel(None, CONTROL_GROUPS + self.source.0))
    }

    /// Returns the rate of the first `level` layers in bits per second.
    pub fn rate_of(&self, level: u8) -> f64 {
        self.rates.iter().take(level.into()).sum()
    }

    /// Returns the greatest level that a rate in bits per second carries.
    pub fn level_within(&self, rate: f64) -> u8 {
        let levels = 0..=self.rates.len() as u8;
        levels.rev().find(|&level| self.rate_of(level) <= rate).unwrap_or(0)
    }

    /// Creates a host that runs the source.
    pub fn source_host(&self, seed: u64) -> SourceHost {
        let layers = self.rates.len() as u8;
        let mut config = SourceConfig::new(self.tsi(), self.base(), layers);
        config.control = self.control();
        let engine = rlm::Source::new(config).expect("a stream has 1 to 16 layers");
        let headers = SmallBlockHeader::LEN + Packet::UDP_OVERHEAD as usize;
        let body = vec![0; usize::from(self.packet_len).saturating_sub(headers)].into();
        let bits = f64::from(self.packet_len) * 8.0;
        let layers = self.rates.iter().zip(0..).map(|(rate, n)| {
            let number = u64::from(self.source.0) << 8 | n;
            let random = stream(seed, Purpose::Workload, number);
            Layer::new(self.traffic, Duration::from_secs_f64(bits / rate), random)
        });
        EngineHost::new(engine, Source { layers: layers.collect(), body }, config_of_hosts())
    }

    /// Returns the default configuration of a receiver on a node.
    pub fn receiver_config(&self, node: NodeId) -> ReceiverConfig {
        let layers = self.rates.len() as u8;
        let channels = channels(self.base(), layers).unwrap_or_default();
        let config = ReceiverConfig::new(self.tsi(), u64::from(node.0), channels);
        ReceiverConfig { control: self.control(), ..config }
    }

    /// Creates a host that runs a receiver. It joins when it starts. Its delays follow from `seed`.
    pub fn receiver_host(&self, config: ReceiverConfig, seed: u64) -> ReceiverHost {
        // Node numbers, which receivers have here, would make neighbours alike in a census.
        let node = config.receiver;
        let random = stream(seed, Purpose::Node, node);
        let config = ReceiverConfig { receiver: key(1, Purpose::Node, node), ..config };
        let engine = rlm::Receiver::new(config, random).expect("a stream has 1 to 16 layers");
        EngineHost::new(engine, Record::default(), config_of_hosts())
    }

    fn tsi(&self) -> Tsi {
        Tsi(self.source.0)
    }
}

fn config_of_hosts() -> HostConfig {
    HostConfig { kind: KindOf::Bytes(kind), ..HostConfig::default() }
}

/// Returns the purpose of a datagram of RLM.
pub fn kind(payload: &[u8]) -> Kind {
    if MessageType::of(payload).is_some() { Kind::Control } else { Kind::Data }
}

impl Source {
    fn set_timer(&self, io: &mut dyn Io<rlm::Source>) {
        io.wake_at(self.layers.iter().map(Layer::next).min());
    }
}

impl Host<rlm::Source> for Source {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<rlm::Source>) {
        let now = io.now();
        self.layers.iter_mut().for_each(|layer| layer.start(now));
        self.set_timer(io);
    }

    fn event(&mut self, _io: &mut dyn Io<rlm::Source>, event: Infallible) {
        match event {}
    }

    fn wake(&mut self, io: &mut dyn Io<rlm::Source>) {
        let now = io.now();
        for (number, layer) in (0..).zip(&mut self.layers) {
            while layer.next() <= now {
                layer.advance();
                let unit = SourceCommand::Unit { layer: number, body: self.body.clone() };
                io.command(unit).expect("the layer exists and the unit fits");
            }
        }
        self.set_timer(io);
    }
}

impl Host<rlm::Receiver> for Record {
    type Input = Infallible;

    fn start(&mut self, io: &mut dyn Io<rlm::Receiver>) {
        self.begin(io.now());
        io.command(ReceiverCommand::Join).expect("joining is always possible");
        io.wake_at(Some(io.now() + SAMPLE));
    }

    fn event(&mut self, io: &mut dyn Io<rlm::Receiver>, event: ReceiverEvent) {
        self.note(io.now(), &event);
    }

    fn wake(&mut self, io: &mut dyn Io<rlm::Receiver>) {
        let stats = io.engine().stats();
        self.sample(&stats);
        let next: Instant = io.now() + SAMPLE;
        io.wake_at(Some(next));
    }
}
