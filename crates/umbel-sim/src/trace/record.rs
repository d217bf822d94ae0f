//! Records of events for tracers.

use bytes::Bytes;
use umbel_engine::Instant;

use crate::network::{LinkId, NodeId};
use crate::packet::Packet;

/// Event of a packet at a link.
///
/// A packet that enters a link has the event [`Sent`](Hop::Sent), and one of the others once its
/// fate is known. A packet that does not enter has only one of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Hop {
    /// The packet entered the link, and would arrive at [`PacketRecord::arrives`].
    Sent,
    /// The packet reached the far end.
    Delivered,
    /// The packet was lost on the way.
    Lost,
    /// The queue dropped the packet.
    QueueDrop,
    /// The link is down.
    Down,
    /// The node has no route to the packet's destination.
    NoRoute,
    /// The packet's hop limit was exceeded at the node.
    HopLimit,
}

impl Hop {
    /// All events.
    pub const ALL: [Hop; 7] = [
        Hop::Sent,
        Hop::Delivered,
        Hop::Lost,
        Hop::QueueDrop,
        Hop::Down,
        Hop::NoRoute,
        Hop::HopLimit,
    ];

    /// Returns the name of the event in traces.
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

/// Multicast channel by values that are valid in any run. A [`GroupId`](crate::GroupId) is only
/// valid in its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChannelParts {
    /// Only source, or any.
    pub source: Option<NodeId>,
    /// Number of the group.
    pub group: u32,
}

/// Packet at a link.
#[derive(Clone, Copy, Debug)]
pub struct PacketRecord<'a> {
    /// Time of the event.
    pub at: Instant,
    /// Link of the event; `None` if the packet was dropped in a node.
    pub link: Option<LinkId>,
    /// Near end, or the node that dropped the packet.
    pub from: NodeId,
    /// Far end, or the node that dropped the packet.
    pub to: NodeId,
    /// Event.
    pub what: Hop,
    /// Time when the packet will arrive, or would, for [`Hop::Sent`].
    pub arrives: Option<Instant>,
    /// Packet.
    pub packet: &'a Packet,
    /// Channel to which the packet is sent, if it is multicast.
    pub channel: Option<ChannelParts>,
    /// Number of the packet. Copies of one packet that a node sent have the same number; a packet
    /// that is sent later has a higher one.
    pub id: u64,
}

/// Note of an application in the trace: a name and up to three numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Note {
    /// Name of the event.
    pub name: &'static str,
    /// Numbers that belong to the event; those that are not used are 0.
    pub values: [f64; 3],
}

/// [`Note`] with time and place.
#[derive(Clone, Copy, Debug)]
pub struct NoteRecord<'a> {
    /// Time of the note.
    pub at: Instant,
    /// Node that wrote the note.
    pub node: NodeId,
    /// Note of the application.
    pub note: &'a Note,
}

/// Message of a session.
#[derive(Clone, Copy, Debug)]
pub struct MessageRecord<'a> {
    /// Time of sending.
    pub at: Instant,
    /// Sender.
    pub from: NodeId,
    /// Receiver.
    pub to: NodeId,
    /// Time of arrival.
    pub arrives: Instant,
    /// Content.
    pub message: &'a Bytes,
}

/// Join or leave of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MembershipRecord {
    /// Time when the host asked to join or leave; the tree follows.
    pub at: Instant,
    /// Host.
    pub node: NodeId,
    /// Channel that the host joined or left.
    pub channel: ChannelParts,
    /// Whether the host joined; otherwise it left.
    pub joined: bool,
}
