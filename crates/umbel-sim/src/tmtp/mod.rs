//! TMTP's source and receivers as programs of hosts: the engines of [`umbel_engine::tmtp`],
//! unchanged.
//!
//! - [`Feed`] has the facts of a feed that all nodes know from the session directory, and creates
//!   their configurations.
//! - [`Source::host`] extends the feed at given times and records the time and the costs of its
//!   completion. [`Receiver::host`] joins when it starts, wants everything, and checks every block
//!   ([`FeedSink`]). It can leave ([`Receiver::leave_at`]) or fail
//!   ([`EngineHost::crash_at`](crate::EngineHost::crash_at)).
//! - The engines' own counters and views have the rest. `simulation.app::<ReceiverHost>(node)`
//!   returns the host, its `engine()` the engine.
//! - [`kind`] returns the purpose of a datagram. It distinguishes original data, repairs, NACKs,
//!   the other messages of a transfer, and those that form the control tree
//!   ([`Kind::Announcement`]). The other messages are ACKs, beacons, heartbeats, FETCHes and
//!   reports ([`Kind::Control`]). A network can lose some and not others.

mod receiver;
mod source;
mod symbols;
#[cfg(test)]
mod tests;

use umbel_engine::tmtp::{
    Authentication, Draws, NodeConfig, NodeId as MemberId, Purpose, ReceiverConfig, Shape,
    SourceConfig,
};
use umbel_engine::units::Rate;
use umbel_wire::feed::Recovery;
use umbel_wire::tmtp::MessageType;
use umbel_wire::{SmallBlockPacket, Tsi};

use crate::address::{PORT, address_of, channel};
use crate::network::NodeId;
use crate::random::{Purpose as Draw, key};
use crate::{HostConfig, Kind, KindOf};

pub use receiver::{Receiver, ReceiverHost};
pub use source::{Source, SourceHost};
pub use symbols::{FeedSink, FeedSymbols};

/// Number of the group for data.
const DATA_GROUP: u32 = 1;
/// Number of the domain group, a channel of any source.
pub const DOMAIN_GROUP: u32 = 2;

/// Feed as the session directory describes it.
#[derive(Clone, Copy, Debug)]
pub struct Feed {
    /// Host of the source.
    pub source: NodeId,
    /// Length of a symbol in bytes.
    pub symbol_len: u16,
    /// Largest number of symbols in a block; with 1, blocks are packets, as in the paper.
    pub block_symbols: u8,
    /// Whether repairs are symbols that were not sent before.
    pub fec: bool,
    /// Recovery of losses.
    pub recovery: Recovery,
    /// Base of the random streams of all nodes.
    pub seed: u64,
}

impl Feed {
    /// Creates a feed as in the paper, where a packet is a block and lost packets are sent again.
    pub fn of_packets(source: NodeId, packet_len: u16, seed: u64) -> Feed {
        Feed {
            source,
            symbol_len: packet_len,
            block_symbols: 1,
            fec: false,
            recovery: Recovery::Tree,
            seed,
        }
    }

    /// Creates the default configuration of the source, which sends at most at this rate.
    pub fn source_config(&self, rate: Rate) -> SourceConfig {
        SourceConfig::new(self.node(self.source), self.shape(), rate)
    }

    /// Creates the default configuration of the receiver on this node.
    pub fn receiver_config(&self, node: NodeId) -> ReceiverConfig {
        ReceiverConfig::new(self.node(node), self.shape())
    }

    fn node(&self, node: NodeId) -> NodeConfig {
        let channels = (channel(Some(self.source), DATA_GROUP), channel(None, DOMAIN_GROUP));
        let address = (address_of(node), PORT).into();
        let paper = Authentication::Paper;
        let config = NodeConfig::new(id_of(node), Tsi(1), channels, address, paper);
        NodeConfig { recovery: self.recovery, ..config }
    }

    /// Returns the generators of a node.
    pub(super) fn draws(&self, node: NodeId) -> Draws {
        Draws::from_seed(key(self.seed, Draw::Node, u64::from(node.0)))
    }

    fn shape(&self) -> Shape {
        Shape {
            id: id_of(self.source),
            source: (address_of(self.source), PORT).into(),
            symbol_len: self.symbol_len,
            block_symbols: self.block_symbols,
            fec: self.fec,
            manifest: None,
        }
    }
}

/// Returns the name of the process on a node.
pub fn id_of(node: NodeId) -> MemberId {
    MemberId(u64::from(node.0) + 1)
}

/// Returns the node on which a process of this name runs.
pub fn node_of_id(id: MemberId) -> NodeId {
    NodeId(u32::try_from(id.0 - 1).unwrap_or(u32::MAX))
}

/// Returns the purpose of a TMTP datagram.
pub fn kind(payload: &[u8]) -> Kind {
    if SmallBlockPacket::is_one(payload) {
        let packet = SmallBlockPacket::parse(payload).ok();
        let purpose = packet.and_then(|packet| Purpose::of(packet.header.transmission));
        return if purpose == Some(Purpose::First) { Kind::Data } else { Kind::Repair };
    }
    match MessageType::of(payload) {
        Some(MessageType::Nack) => Kind::Nak,
        Some(
            MessageType::Ack
            | MessageType::Beacon
            | MessageType::Heartbeat
            | MessageType::Fetch
            | MessageType::FetchCookie
            | MessageType::FetchGone
            | MessageType::FetchDigests
            | MessageType::SymbolDigests
            | MessageType::BlockDigests
            | MessageType::Reception
            | MessageType::Reports
            | MessageType::Report
            | MessageType::ReportAck,
        ) => Kind::Control,
        _ => Kind::Announcement,
    }
}

fn host_config(rate: Option<Rate>) -> HostConfig {
    HostConfig { rate, kind: KindOf::Bytes(kind), ..HostConfig::default() }
}
