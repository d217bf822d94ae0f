//! A parent's children.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, SocketAddr};

use umbel_wire::tmtp::{Dismissal, NodeId, Role};

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

/// A child that is none any more.
#[derive(Clone, Copy, Debug)]
struct Departed {
    address: SocketAddr,
    token: u64,
    /// What it is told if it has not noticed.
    dismissal: Dismissal,
}

/// All children of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct Family {
    children: BTreeMap<NodeId, Child>,
    managers: u16,
    /// How many children are this many hops away.
    hops: BTreeMap<u8, u16>,
    /// Every child was heard at this time or later.
    heard: Instant,
    /// Children that left lately, the last ones last.
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
        self.hops.last_key_value().map_or(1, |(&hops, _)| hops)
    }

    /// How many of them are at one IP address. O(n).
    pub(super) fn at(&self, host: IpAddr) -> usize {
        self.children.values().filter(|child| child.address.ip() == host).count()
    }

    /// Takes a child, or another state of one.
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

    /// Lets a child go. If it has not noticed it is told why.
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

    /// Why a child with this token at this address is none any more, if it left lately.
    pub(super) fn departed(&self, address: SocketAddr, token: u64) -> Option<Dismissal> {
        let is_it = |departed: &&Departed| (departed.address, departed.token) == (address, token);
        self.departed.iter().find(is_it).map(|departed| departed.dismissal)
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

    /// Every child was heard at this time or later; `None` without children.
    pub(super) fn all_heard_since(&self) -> Option<Instant> {
        (!self.is_empty()).then_some(self.heard)
    }

    /// The child that was silent for longest, and since when. O(n).
    pub(super) fn most_silent(&mut self) -> Option<(NodeId, Instant)> {
        let heard = self.children.iter().map(|(&id, child)| (child.heard, id));
        let (heard, id) = heard.min()?;
        self.heard = heard;
        Some((id, heard))
    }
}
