//! The interface of the tree to the engines that embed it.

use std::net::SocketAddr;

use umbel_wire::Channel;
use umbel_wire::tmtp::{Dismissal, FeedInfo, JoinConfirm, NodeId, Progress, Refusal, Timing};

use super::UNICAST_HOPS;
use crate::Address;

/// Circumstances of a message's arrival.
#[derive(Clone, Copy, Debug)]
pub(in crate::tmtp) struct Arrival {
    /// Address of the sender. Of messages by the group only the IP address counts.
    pub(in crate::tmtp) from: SocketAddr,
    /// The message came by the domain group.
    pub(in crate::tmtp) multicast: bool,
    /// Rest of its hop limit.
    pub(in crate::tmtp) hops_left: Option<u8>,
}

/// Destination of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tmtp) enum Way {
    /// To the domain group.
    Domain {
        /// Hop limit of the message.
        hop_limit: u8,
    },
    /// To one node, with the hop limit [`UNICAST_HOPS`].
    Host(SocketAddr),
}

impl Way {
    /// Returns the address and the hop limit, where the domain group is `domain`.
    pub(in crate::tmtp) fn address(self, domain: Channel) -> (Address, Option<u8>) {
        match self {
            Way::Domain { hop_limit } => (Address::Channel(domain), Some(hop_limit)),
            Way::Host(host) => (Address::Host(host), Some(UNICAST_HOPS)),
        }
    }
}

/// State of the embedding engine that messages of the tree carry.
#[derive(Clone, Debug)]
pub(in crate::tmtp) struct Outlook {
    /// Description of the feed, if it is known. A node without it takes no children.
    pub(in crate::tmtp) feed: Option<FeedInfo>,
    /// Progress of the feed.
    pub(in crate::tmtp) progress: Progress,
    /// Timing of this node's domain.
    pub(in crate::tmtp) timing: Timing,
    /// First block that a new child is guaranteed.
    pub(in crate::tmtp) from: u32,
    /// The group is being deleted.
    pub(in crate::tmtp) closing: bool,
    /// Someone looks at the tree.
    pub(in crate::tmtp) watched: bool,
}

/// Events in the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::tmtp) enum TreeEvent {
    /// There is a parent, for the first time or again.
    Attached(Box<JoinConfirm>),
    /// The parent failed, left, was cut off or dismissed this node.
    Detached,
    /// The parent dismissed this node. A slow one does not search until it is told to
    /// [join](super::Tree::join) again.
    Dismissed(Dismissal),
    /// There is another child, or a child that had lost its state has joined again.
    ChildJoined {
        /// Node that is the child.
        id: NodeId,
    },
    /// There is a child less.
    ChildLeft {
        /// Node that was the child.
        id: NodeId,
        /// Reason for the parting.
        why: Parting,
    },
    /// This node manages its subnet now.
    BecameManager,
    /// This node manages its subnet no more. Its children have gone.
    StoppedManaging,
    /// A whole search found no parent. This is the last refusal.
    Refused(Refusal),
    /// Another source uses this one's feed.
    Rival(SocketAddr),
    /// This node has left the tree.
    Left {
        /// The parent has confirmed that. Otherwise the parent has failed, at an unknown time.
        confirmed: bool,
    },
}

/// Reason why a child is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tmtp) enum Parting {
    /// The child left, or found another parent.
    Left,
    /// The child was silent for too long.
    Silent,
    /// The child was dismissed.
    Dismissed,
}
