//! What travels.

use bytes::Bytes;

use crate::network::NodeId;

/// A multicast channel of this simulation: a group and its only source, or any source. Made by
/// [`Context::group`](crate::Context::group) or [`Simulation::group`](crate::Simulation::group).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

/// Packets that belong together, for scripted loss and for traces. The sender chooses it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FlowId(pub u32);

/// Where a packet goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Destination {
    /// One node.
    Unicast(NodeId),
    /// All members of a channel.
    Group(GroupId),
}

/// What a packet is for: the colour in a trace, and what a loss model may single out.
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

/// A set of [`Kind`]s. All [`Kind::Other`] are one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kinds(u8);

/// A packet on its way. Copies share the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Who it says it is from. Multicast follows the tree of this node.
    pub source: NodeId,
    /// Where it goes.
    pub destination: Destination,
    /// How many links it may still cross: a router that gets it with 1 does not pass it on.
    /// Switches do not count.
    pub hop_limit: u8,
    /// What it is for.
    pub kind: Kind,
    /// What it belongs to.
    pub flow: FlowId,
    /// Bytes that it takes on a link, headers included.
    pub wire_len: u32,
    /// What it carries.
    pub payload: Bytes,
}

impl Packet {
    /// The hop limit of packets that may go anywhere.
    pub const ANYWHERE: u8 = 255;

    /// Bytes of the IPv4 and UDP headers before a payload.
    pub const UDP_OVERHEAD: u32 = 28;

    /// A UDP datagram over IPv4 of flow 0 that may go anywhere.
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

    /// These kinds and `kind`.
    #[must_use]
    pub const fn with(self, kind: Kind) -> Kinds {
        Kinds(self.0 | bit(kind))
    }

    /// Whether `kind` is among them.
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & bit(kind) != 0
    }
}

impl Default for Kinds {
    /// Every kind.
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
