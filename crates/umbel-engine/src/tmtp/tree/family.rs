//! A parent's children.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use umbel_wire::tmtp::{Dismissal, NodeId, Role};

use crate::Instant;

/// Most departed children that are remembered, to confirm once more if the confirmation was lost.
const DEPARTED: usize = 64;

/// A child.
#[derive(Clone, Debug)]
pub(in crate::tmtp) struct Child {
    /// Unicast address of the child.
    pub(in crate::tmtp) address: SocketAddr,
    /// Member or manager.
    pub(in crate::tmtp) role: Role,
    /// Hops to the child; at least 1.
    pub(in crate::tmtp) hops: u8,
    /// Token with which the child proves itself.
    pub(in crate::tmtp) token: u64,
    /// Name that the child's user chose.
    pub(in crate::tmtp) name: String,
    /// Nonce of the JOIN_REQUEST that made it a child.
    pub(super) nonce: u64,
    /// First block that the child was promised, once it was told.
    pub(super) from: Option<u32>,
    /// Time at which the child was last heard.
    pub(super) heard: Instant,
    /// Whether multicast does not reach the child.
    pub(in crate::tmtp) by_unicast: bool,
}

/// A former child.
#[derive(Clone, Copy, Debug)]
struct Departed {
    address: SocketAddr,
    token: u64,
    /// Reason that the node is told if it has not noticed.
    dismissal: Dismissal,
}

/// All children of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    children: BTreeMap<NodeId, Child>,
    managers: u16,
    /// Number of children at each number of hops.
    hops: BTreeMap<u8, u16>,
    /// Time since which every child was heard.
    heard: Instant,
    /// Children that left lately, in order.
    departed: VecDeque<Departed>,
}

impl Family {
    pub(super) fn get(&self, id: NodeId) -> Option<&Child> {
        self.children.get(&id)
    }

    pub(super) fn get_mut(&mut self, id: NodeId) -> Option<&mut Child> {
        self.children.get_mut(&id)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Child)> {
        self.children.iter().map(|(&id, child)| (id, child))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.children.is_empty()
    }

    /// Returns the number of managers among the children.
    pub(super) fn managers(&self) -> u16 {
        self.managers
    }

    /// Returns the number of local members among the children.
    pub(super) fn members(&self) -> usize {
        self.children.len() - usize::from(self.managers)
    }

    /// Returns the hops to the farthest child; at least 1.
    pub(super) fn radius(&self) -> u8 {
        self.hops.last_key_value().map_or(1, |(&hops, _)| hops)
    }

    /// Returns the number of children at one IP address. O(n).
    pub(super) fn at(&self, host: IpAddr) -> usize {
        self.children.values().filter(|child| child.address.ip() == host).count()
    }

    /// Adds a child, or replaces its state.
    pub(super) fn insert(&mut self, id: NodeId, child: Child) {
        if self.children.is_empty() {
            self.heard = child.heard;
        }
        self.managers += u16::from(child.role == Role::Manager);
        *self.hops.entry(child.hops).or_default() += 1;
        if let Some(before) = self.children.insert(id, child) {
            self.uncount(&before);
        }
    }

    /// Removes a child. If it has not noticed it is told the reason.
    pub(super) fn remove(&mut self, id: NodeId, dismissal: Dismissal) -> Option<Child> {
        let child = self.children.remove(&id)?;
        self.uncount(&child);
        if self.departed.len() == DEPARTED {
            self.departed.pop_front();
        }
        let Child { address, token, .. } = child;
        self.departed.push_back(Departed { address, token, dismissal });
        Some(child)
    }

    fn uncount(&mut self, child: &Child) {
        self.managers -= u16::from(child.role == Role::Manager);
        if let Some(count) = self.hops.get_mut(&child.hops) {
            *count -= 1;
            if *count == 0 {
                self.hops.remove(&child.hops);
            }
        }
    }

    /// Returns why a child with this token at this address is none any more, if it left lately.
    pub(super) fn departed(&self, address: SocketAddr, token: u64) -> Option<Dismissal> {
        let is_it = |departed: &&Departed| (departed.address, departed.token) == (address, token);
        self.departed.iter().find(is_it).map(|departed| departed.dismissal)
    }

    /// Returns the child, if a message that claims to be from it can be.
    pub(super) fn authentic(
        &mut self,
        id: NodeId,
        from: SocketAddr,
        token: u64,
    ) -> Option<&mut Child> {
        self.children.get_mut(&id).filter(|child| child.address == from && child.token == token)
    }

    /// Returns a time since which every child was heard; `None` without children.
    pub(super) fn all_heard_since(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.heard)
    }

    /// Returns the child that was silent for longest, and since when. O(n).
    pub(super) fn most_silent(&mut self) -> Option<(NodeId, Instant)> {
        let heard = self.children.iter().map(|(&id, child)| (child.heard, id));
        let (heard, id) = heard.min()?;
        self.heard = heard;
        Some((id, heard))
    }
}
