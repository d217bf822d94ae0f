//! A parent's children.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use umbel_wire::tmtp::{NodeId, Role};

use crate::Instant;

/// Departed children that are remembered, to confirm once more if the confirmation was lost.
const DEPARTED: usize = 64;

/// A child.
#[derive(Clone, Debug)]
pub(in crate::tmtp) struct Child {
    /// Where it takes what is sent to it alone.
    pub(in crate::tmtp) address: SocketAddr,
    /// Member or manager.
    pub(in crate::tmtp) role: Role,
    /// Hops to it; at least 1.
    pub(in crate::tmtp) hops: u8,
    /// What it proves itself with.
    pub(in crate::tmtp) token: u64,
    /// What its user calls it.
    pub(in crate::tmtp) name: String,
    /// The JOIN_REQUEST that made it one.
    pub(super) nonce: u64,
    /// The first block that it was promised, once it was told.
    pub(super) from: Option<u32>,
    /// When it was heard last.
    pub(super) heard: Instant,
}

/// All children of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    children: BTreeMap<NodeId, Child>,
    managers: u16,
    /// Address and token of children that left lately, the last ones last.
    departed: Vec<(SocketAddr, u64)>,
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

    /// Managers among them.
    pub(super) fn managers(&self) -> u16 {
        self.managers
    }

    /// Local members among them.
    pub(super) fn members(&self) -> usize {
        self.children.len() - usize::from(self.managers)
    }

    /// Hops to the farthest; at least 1.
    pub(super) fn radius(&self) -> u8 {
        self.children.values().map(|child| child.hops).max().unwrap_or(1)
    }

    /// Takes a child, or another state of one.
    pub(super) fn insert(&mut self, id: NodeId, child: Child) {
        self.managers += u16::from(child.role == Role::Manager);
        if let Some(before) = self.children.insert(id, child) {
            self.managers -= u16::from(before.role == Role::Manager);
        }
    }

    pub(super) fn remove(&mut self, id: NodeId) -> Option<Child> {
        let child = self.children.remove(&id)?;
        self.managers -= u16::from(child.role == Role::Manager);
        if self.departed.len() == DEPARTED {
            self.departed.remove(0);
        }
        self.departed.push((child.address, child.token));
        Some(child)
    }

    /// Whether a child with this token left this address lately.
    pub(super) fn has_left(&self, address: SocketAddr, token: u64) -> bool {
        self.departed.contains(&(address, token))
    }

    /// The child, if the message that says so can be from it.
    pub(super) fn authentic(
        &mut self,
        id: NodeId,
        from: SocketAddr,
        token: u64,
    ) -> Option<&mut Child> {
        self.children.get_mut(&id).filter(|child| child.address == from && child.token == token)
    }

    /// The child that was silent for longest, and since when.
    pub(super) fn most_silent(&self) -> Option<(NodeId, Instant)> {
        self.children
            .iter()
            .map(|(&id, child)| (id, child.heard))
            .min_by_key(|&(id, heard)| (heard, id))
    }
}
