//! What a tracer is told.

use bytes::Bytes;
use umbel_engine::Instant;

use crate::network::{LinkId, NodeId};
use crate::packet::Packet;

/// What became of a packet at a link.
///
/// A packet that enters a link is [`Sent`](Hop::Sent), and one of the others once it is known what
/// became of it; a packet that does not get as far is one of the others alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hop {
    /// It entered the link, and would arrive at [`PacketRecord::arrives`].
    Sent,
    /// It reached the far end.
    Delivered,
    /// It was lost on the way.
    Lost,
    /// The queue dropped it.
    QueueDrop,
    /// The link is down.
    Down,
    /// The node knows no way to its destination.
    NoRoute,
    /// Its hop limit ran out at the node.
    HopLimit,
}

impl Hop {
    /// All of them.
    pub const ALL: [Hop; 7] = [
        Hop::Sent,
        Hop::Delivered,
        Hop::Lost,
        Hop::QueueDrop,
        Hop::Down,
        Hop::NoRoute,
        Hop::HopLimit,
    ];

    /// Its name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Hop::Sent => "sent",
            Hop::Delivered => "delivered",
            Hop::Lost => "lost",
            Hop::QueueDrop => "queue_drop",
            Hop::Down => "down",
            Hop::NoRoute => "no_route",
            Hop::HopLimit => "hop_limit",
        }
    }
}

/// A multicast channel, by what it means in any run: a [`GroupId`](crate::GroupId) only has a
/// meaning in its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelParts {
    /// The only source, or any.
    pub source: Option<NodeId>,
    /// The number of the group.
    pub group: u32,
}

/// A packet at a link.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord<'a> {
    /// When.
    pub at: Instant,
    /// On which link; `None` where it was dropped in a node.
    pub link: Option<LinkId>,
    /// The near end, or the node that dropped it.
    pub from: NodeId,
    /// The far end, or the node that dropped it.
    pub to: NodeId,
    /// What happened.
    pub what: Hop,
    /// When it will arrive, or would, for [`Hop::Sent`].
    pub arrives: Option<Instant>,
    /// The packet.
    pub packet: &'a Packet,
    /// The channel that the packet is sent to, if it is multicast.
    pub channel: Option<ChannelParts>,
    /// Number of the packet: copies of one packet that a node sent have the same, a packet that is
    /// sent later has a higher one.
    pub id: u64,
}

/// Something that an application wrote into the trace: a name and up to three numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Note {
    /// What happened.
    pub name: &'static str,
    /// Numbers that belong to it; those that are not used are 0.
    pub values: [f64; 3],
}

/// A [`Note`] with time and place.
#[derive(Clone, Copy, Debug)]
pub struct NoteRecord<'a> {
    /// When.
    pub at: Instant,
    /// On which node.
    pub node: NodeId,
    /// What.
    pub note: &'a Note,
}

/// A message of a session.
#[derive(Clone, Copy, Debug)]
pub struct MessageRecord<'a> {
    /// When it was sent.
    pub at: Instant,
    /// By whom.
    pub from: NodeId,
    /// To whom.
    pub to: NodeId,
    /// When it arrives.
    pub arrives: Instant,
    /// What it says.
    pub message: &'a Bytes,
}

/// A host that joined or left a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipRecord {
    /// When the host asked for it; the tree follows.
    pub at: Instant,
    /// Which host.
    pub node: NodeId,
    /// Which channel.
    pub channel: ChannelParts,
    /// Whether it joined, or left.
    pub joined: bool,
}
