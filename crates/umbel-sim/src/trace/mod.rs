//! What a run tells about itself.

use bytes::Bytes;
use umbel_engine::Instant;

use crate::network::{LinkId, NodeId};
use crate::packet::Packet;

/// Is told everything that happens in a run.
pub trait Tracer: Send {
    /// A packet crossed a link, or did not.
    fn packet(&mut self, record: &PacketRecord<'_>);

    /// An application wrote something into the trace.
    fn note(&mut self, record: &NoteRecord<'_>);

    /// A message was sent on a session.
    fn message(&mut self, _record: &MessageRecord<'_>) {}
}

/// What became of a packet at a link.
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
    /// The packet; equal `id`s are copies of one packet that a node sent.
    pub packet: &'a Packet,
    /// Number of the packet, unique in the run.
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
