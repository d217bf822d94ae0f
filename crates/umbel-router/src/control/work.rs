//! Work that the parts of the control plane leave for later.

use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;

use umbel_engine::chance::Generator;
use umbel_engine::router::InterfaceId;
use umbel_wire::membership::Query;
use umbel_wire::pim::Assert;

use super::api::{CostHeard, Family, SourceGroup};
use super::deadlines::Deadlines;
use super::drops::{DropReason, Drops};

/// An interface, as far as one address family goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LinkId {
    pub(super) interface: InterfaceId,
    pub(super) family: Family,
}

impl LinkId {
    /// Returns the link on which a channel's packets are seen at an interface.
    pub(super) fn of(interface: InterfaceId, channel: &SourceGroup) -> LinkId {
        LinkId { interface, family: Family::of(channel.group) }
    }
}

/// Timers of the control plane.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// When to say Hello.
    Hello(LinkId),
    /// When to send a general query, or to take over from a querier that is silent.
    Querier(LinkId),
    /// When to ask once more who wants what others have left.
    LastMember(LinkId, IpAddr),
    /// When to forget members of a group that were not heard.
    Members(LinkId, IpAddr),
    /// When to forget a neighbour that was not heard.
    Neighbour(LinkId, IpAddr),
    /// When a join of neighbours ends, or a prune takes effect.
    Downstream(SourceGroup, InterfaceId),
    /// When the outcome of an Assert ends, or is said again.
    Assert(SourceGroup, InterfaceId),
    /// When to believe no longer that another router forwards a channel to an interface.
    Seen(SourceGroup, InterfaceId),
    /// When to repeat a join to the upstream neighbour.
    Refresh(SourceGroup),
    /// When to say a prune to an upstream neighbour again.
    Prune(SourceGroup, LinkId, IpAddr),
    /// When to forget that packets of a channel arrived.
    Heard(SourceGroup),
}

impl Timer {
    /// Returns whether it is about a link as such, not about a tree.
    pub(super) fn is_of_link(&self, id: LinkId) -> bool {
        match *self {
            Timer::Hello(link)
            | Timer::Querier(link)
            | Timer::LastMember(link, _)
            | Timer::Members(link, _)
            | Timer::Neighbour(link, _)
            | Timer::Prune(_, link, _) => link == id,
            _ => false,
        }
    }
}

/// A message to build when it is polled.
#[derive(Clone, Debug)]
pub(super) enum Due {
    Query(LinkId, Query),
    Hello(LinkId),
    Assert(LinkId, Assert),
}

/// Work that the parts leave for later, and state that they share.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) timers: Deadlines<Timer>,
    pub(super) due: VecDeque<Due>,
    /// Channels whose state may follow from something that changed.
    pub(super) changed: BTreeSet<SourceGroup>,
    /// Groups all of whose channels may have changed.
    pub(super) changed_groups: BTreeSet<IpAddr>,
    pub(super) costs: VecDeque<CostHeard>,
    /// Channels that carried packets lately.
    pub(super) live: BTreeSet<SourceGroup>,
    pub(super) drops: Drops,
    pub(super) random: Generator,
}

impl Work {
    pub(super) fn new(random: Generator) -> Work {
        Work {
            timers: Deadlines::default(),
            due: VecDeque::new(),
            changed: BTreeSet::new(),
            changed_groups: BTreeSet::new(),
            costs: VecDeque::new(),
            live: BTreeSet::new(),
            drops: Drops::default(),
            random,
        }
    }

    pub(super) fn drop(&mut self, reason: DropReason) {
        self.drops.count(reason);
    }
}
