//! Packets and their properties.

use bytes::Bytes;

use crate::network::NodeId;

/// Multicast channel of this simulation: a group and its only source, or any source. Created by
/// [`Context::group`](crate::Context::group) or [`Simulation::group`](crate::Simulation::group).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// Packets that belong together, for scripted loss and for traces. The sender chooses the flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// Destination of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Destination {
    /// One node.
    Unicast(NodeId),
    /// All members of a channel.
    Group(GroupId),
}

/// Purpose of a packet. It is the colour in a trace, and a loss model may select by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Original data.
    Data,
    /// A repair or a retransmission.
    Repair,
    /// Control traffic of any other kind.
    Control,
    /// A request for a repair.
    Nak,
    /// An announcement.
    Announcement,
    /// Anything else; the protocol numbers it.
    Other(u8),
}

/// Set of [`Kind`]s. All [`Kind::Other`] count as one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

/// Packet in transit. Copies share the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Claimed sender. Multicast follows the tree of this node.
    pub source: NodeId,
    /// Destination.
    pub destination: Destination,
    /// Number of links that the packet may still cross. A router that receives it with 1 does not
    /// pass it on. Switches do not count.
    pub hop_limit: u8,
    /// Purpose.
    pub kind: Kind,
    /// Flow to which the packet belongs.
    pub flow: FlowId,
    /// Bytes on a link, including headers.
    pub wire_len: u32,
    /// Payload.
    pub payload: Bytes,
}

impl Packet {
    /// Hop limit of packets that may travel anywhere.
    pub const ANYWHERE: u8 = 255;

    /// Bytes of the IPv4 and UDP headers before a payload.
    pub const UDP_OVERHEAD: u32 = 28;

    /// Creates a UDP datagram over IPv4 of flow 0 that may travel anywhere.
    pub fn new(source: NodeId, destination: Destination, kind: Kind, payload: Bytes) -> Packet {
        Packet {
            source,
            destination,
            hop_limit: Packet::ANYWHERE,
            kind,
            flow: FlowId(0),
            wire_len: payload.len() as u32 + Packet::UDP_OVERHEAD,
            payload,
        }
    }
}

impl Kinds {
    /// Every kind.
    pub const ALL: Kinds = Kinds(u8::MAX);
    /// No kind.
    pub const NONE: Kinds = Kinds(0);

    /// Returns these kinds and `kind`.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | bit(kind))
    }

    /// Returns whether `kind` is in the set.
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & bit(kind) != 0
    }
}

impl Default for Kinds {
    /// Returns every kind.
    fn default() -> Kinds {
        Kinds::ALL
    }
}

const fn bit(kind: Kind) -> u8 {
    match kind {
        Kind::Data => 1,
        Kind::Repair => 2,
        Kind::Control => 4,
        Kind::Nak => 8,
        Kind::Announcement => 16,
        Kind::Other(_) => 32,
    }
}
