//! What the tree takes and gives.

use std::net::SocketAddr;

use umbel_wire::Channel;
use umbel_wire::tmtp::{Dismissal, FeedInfo, JoinConfirm, NodeId, Progress, Refusal, Timing};

use super::UNICAST_HOPS;
use crate::Address;

/// How a message came.
#[derive(Clone, Copy, Debug)]
pub(in crate::tmtp) struct Arrival {
    /// Who sent it. Of what came by the group only the IP address counts.
    pub(in crate::tmtp) from: SocketAddr,
    /// It came by the domain group.
    pub(in crate::tmtp) multicast: bool,
    /// What was left of its hop limit.
    pub(in crate::tmtp) hops_left: Option<u8>,
}

/// Where a message goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tmtp) enum Way {
    /// To the domain group.
    Domain {
        /// No farther than this.
        hop_limit: u8,
    },
    /// To one node, with [`UNICAST_HOPS`](super::UNICAST_HOPS).
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

/// What the embedding engine knows, when a message that says it is built.
#[derive(Clone, Debug)]
pub(in crate::tmtp) struct Outlook {
    /// What the feed is, if it is known: a node without it takes no children.
    pub(in crate::tmtp) feed: Option<FeedInfo>,
    /// How far it has come.
    pub(in crate::tmtp) progress: Progress,
    /// T_ack and the like of this node's domain.
    pub(in crate::tmtp) timing: Timing,
    /// The first block that a new child is guaranteed.
    pub(in crate::tmtp) from: u32,
    /// The group is being deleted.
    pub(in crate::tmtp) closing: bool,
    /// Someone looks at the tree.
    pub(in crate::tmtp) watched: bool,
}

/// What happened in the tree.
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
        /// The child.
        id: NodeId,
    },
    /// There is a child less.
    ChildLeft {
        /// The child.
        id: NodeId,
        /// Why.
        why: Parting,
    },
    /// This node manages its subnet now.
    BecameManager,
    /// It does not any more; its children have gone.
    StoppedManaging,
    /// A whole search found no parent; why the last one asked refused.
    Refused(Refusal),
    /// Another source takes this one's feed for its own.
    Rival(SocketAddr),
    /// This node has left the tree.
    Left {
        /// Its parent knows; otherwise that has failed, nobody knows when.
        confirmed: bool,
    },
}

/// Why a child is none any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tmtp) enum Parting {
    /// It left, or found another parent.
    Left,
    /// It was silent for too long.
    Silent,
    /// It was dismissed.
    Dismissed,
}
