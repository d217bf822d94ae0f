//! Multicast trees as they follow joins, leaves and routes.
//!
//! Every channel has a tree for each of its sources, made of the routes from the members to the
//! source. A join travels up hop by hop until it meets the tree, a leave until it meets a place
//! that others need. Each takes its latency for every hop. A channel of any source gets a tree for
//! a source with the source's first packet. This tree has branches to all members at once. From
//! then on joins and leaves travel as usual.
//!
//! ```text
//!          seek                  graft at parent
//! Detached ────────▶ Grafting ──────────────────▶ Attached
//!    ▲  │               ▲ link                      │  ▲
//!    │  │ no way        │ comes up     nobody wants ▼  │ somebody joins
//!    │  └───────────▶ Waiting                      Pruning
//!    └──────────────────────────────────────────────┘
//!                       prune at parent
//! ```
//!
//! When routes change, places on a new route leave the old one at once and graft onto the new one.
//! Where there is no route, the branches stay and packets are lost on the links that are down.

use std::time::Duration;

use super::multicast::{State, TreeId};
use super::{Branch, Event, Fabric, PlaceId};
use crate::app::TreeLinks;
use crate::network::{LinkId, NodeId};
use crate::packet::GroupId;
use crate::routing::LineId;
use crate::trace::{ChannelParts, MembershipRecord};

impl Fabric {
    /// Returns the channel of a group and its only source, or of any source.
    pub(crate) fn group(&mut self, source: Option<NodeId>, group: u32) -> GroupId {
        self.multicast.channel(ChannelParts { source, group })
    }

    pub(crate) fn channel_parts(&self, group: GroupId) -> Option<ChannelParts> {
        self.multicast.parts(group)
    }

    pub(crate) fn is_member(&self, group: GroupId, node: NodeId) -> bool {
        self.multicast.is_member(group, node)
    }

    /// Returns a branch by its position, which is kept until [`Fabric::release`].
    pub(crate) fn branch(&self, place: PlaceId, number: u32) -> Branch {
        self.multicast.branches(place)[number as usize]
    }

    /// Notes that an event that referred to branches of this place is over.
    pub(crate) fn release(&mut self, place: PlaceId) {
        self.multicast.release(place);
    }

    /// Returns the place of a node in the tree of a source.
    pub(crate) fn tree_links(
        &self,
        group: GroupId,
        source: NodeId,
        node: NodeId,
    ) -> Option<TreeLinks> {
        let tree = self.multicast.tree(group, source)?;
        let place = self.multicast.find(tree, node)?;
        let active = self.multicast.branches(place).iter().filter(|branch| branch.active);
        Some(TreeLinks {
            upstream: self.upstream_of(place),
            downstream: active.map(|branch| branch.line.link()).collect(),
        })
    }

    /// Returns the link towards the source of a node that has a place in its tree.
    pub(crate) fn tree_upstream(
        &self,
        group: GroupId,
        source: NodeId,
        node: NodeId,
    ) -> Option<LinkId> {
        let tree = self.multicast.tree(group, source)?;
        self.upstream_of(self.multicast.find(tree, node)?)
    }

    /// Returns whether a link leads from a node down the tree of a source.
    pub(crate) fn is_tree_downstream(
        &self,
        group: GroupId,
        source: NodeId,
        node: NodeId,
        link: LinkId,
    ) -> bool {
        let place =
            self.multicast.tree(group, source).and_then(|tree| self.multicast.find(tree, node));
        place.is_some_and(|place| {
            let mut branches = self.multicast.branches(place).iter();
            branches.any(|branch| branch.active && branch.line.link() == link)
        })
    }

    fn upstream_of(&self, place: PlaceId) -> Option<LinkId> {
        let place = self.multicast.at(place);
        matches!(place.state, State::Attached | State::Pruning).then(|| place.up.link())
    }

    /// Returns the place of a node in the tree of a source.
    pub(super) fn place(&mut self, group: GroupId, source: NodeId, at: NodeId) -> Option<PlaceId> {
        let only = self.multicast.parts(group)?.source;
        let tree = match self.multicast.tree(group, source) {
            Some(tree) => tree,
            None if only.is_none() && self.network.check_node(source).is_ok() => {
                self.grow(group, source)
            }
            None => return None,
        };
        self.multicast.find(tree, at)
    }

    /// Creates the tree of a new source with branches to all members.
    fn grow(&mut self, group: GroupId, root: NodeId) -> TreeId {
        let tree = self.multicast.add_tree(group, root);
        for node in self.multicast.members(group) {
            let mut place = self.multicast.find_or_add(tree, node);
            self.multicast.set_member(place, true);
            while self.multicast.at(place).state == State::Detached {
                let Some(line) = self.way_up(place) else {
                    self.multicast.at_mut(place).state = State::Waiting;
                    break;
                };
                self.multicast.at_mut(place).up = line;
                let parent = self.multicast.find_or_add(tree, self.end_of(line));
                self.multicast.attach(place, parent);
                place = parent;
            }
        }
        tree
    }

    pub(crate) fn join(&mut self, node: NodeId, group: GroupId) {
        if self.multicast.add_member(group, node) {
            self.tell_membership(node, group, true);
            for tree in self.multicast.trees_of(group) {
                let place = self.multicast.find_or_add(tree, node);
                self.multicast.set_member(place, true);
                self.seek(place);
            }
        }
    }

    pub(crate) fn leave(&mut self, node: NodeId, group: GroupId) {
        if self.multicast.remove_member(group, node) {
            self.tell_membership(node, group, false);
            for tree in self.multicast.trees_of(group) {
                if let Some(place) = self.multicast.find(tree, node) {
                    self.multicast.set_member(place, false);
                    self.settle(place);
                }
            }
        }
    }

    pub(super) fn leave_all(&mut self, node: NodeId) {
        for group in self.multicast.groups() {
            self.leave(node, group);
        }
    }

    fn tell_membership(&mut self, node: NodeId, group: GroupId, joined: bool) {
        if let (Some(tracer), Some(channel)) = (&mut self.tracer, self.multicast.parts(group)) {
            tracer.membership(&MembershipRecord { at: self.now, node, channel, joined });
        }
    }

    /// Ensures that a place that is wanted gets, or keeps, its branch.
    fn seek(&mut self, place: PlaceId) {
        match self.multicast.at(place).state {
            State::Root | State::Attached | State::Grafting => {}
            State::Pruning => self.multicast.enter(place, State::Attached),
            State::Detached | State::Waiting => match self.way_up(place) {
                None => self.multicast.enter(place, State::Waiting),
                Some(line) => {
                    self.multicast.enter(place, State::Grafting);
                    let below = self.multicast.at_mut(place);
                    below.up = line;
                    let epoch = below.epoch;
                    let latency = self.latency(self.network.graft_latency(), line);
                    self.schedule(self.now + latency, Event::Graft { place, epoch });
                }
            },
        }
    }

    /// Starts to prune the branch to a place that is no longer wanted.
    fn settle(&mut self, place: PlaceId) {
        if self.multicast.is_wanted(place) {
            return;
        }
        match self.multicast.at(place).state {
            State::Attached => {
                self.multicast.enter(place, State::Pruning);
                let below = self.multicast.at(place);
                let (line, epoch) = (below.up, below.epoch);
                let latency = self.latency(self.network.prune_latency(), line);
                self.schedule(self.now + latency, Event::Prune { place, epoch });
            }
            State::Waiting => self.multicast.enter(place, State::Detached),
            // A join under way checks this when it arrives.
            State::Root | State::Detached | State::Grafting | State::Pruning => {}
        }
    }

    /// Handles a join that has reached the parent.
    pub(crate) fn on_graft(&mut self, place: PlaceId, epoch: u32) {
        let below = self.multicast.at(place);
        if below.epoch != epoch {
            return;
        }
        if !self.multicast.is_wanted(place) {
            self.multicast.enter(place, State::Detached);
            return;
        }
        let (tree, above) = (below.tree, self.end_of(below.up));
        let parent = self.multicast.find_or_add(tree, above);
        self.multicast.attach(place, parent);
        self.seek(parent);
    }

    /// Handles a leave that has reached the parent.
    pub(crate) fn on_prune(&mut self, place: PlaceId, epoch: u32) {
        if self.multicast.at(place).epoch == epoch {
            self.cut(place);
        }
    }

    /// Removes the branch to a place.
    fn cut(&mut self, place: PlaceId) {
        if let Some(parent) = self.multicast.detach(place) {
            self.settle(parent);
            self.multicast.tidy(parent);
        }
    }

    /// Updates the trees after a link went up or down.
    pub(super) fn mend_trees(&mut self, line: LineId, routes_changed: bool) {
        if routes_changed {
            for place in self.multicast.places() {
                self.reroute(place);
            }
        } else if self.is_usable(line) {
            // There is no other route. Only joins that met the link while it was down wait for it.
            for node in [self.end_of(line), self.end_of(line.back())] {
                for place in self.multicast.places_of(node) {
                    if self.multicast.at(place).state == State::Waiting {
                        self.seek(place);
                    }
                }
            }
        }
    }

    fn reroute(&mut self, place: PlaceId) {
        let (state, up) = (self.multicast.at(place).state, self.multicast.at(place).up);
        let moves = match state {
            State::Root | State::Detached | State::Pruning => false,
            State::Waiting => true,
            State::Grafting | State::Attached => self.way_up(place).is_some_and(|line| line != up),
        };
        if moves {
            if state == State::Attached {
                self.cut(place);
            }
            self.multicast.enter(place, State::Detached);
            self.seek(place);
        }
    }

    /// Returns the line towards the source, if one can be used.
    fn way_up(&mut self, place: PlaceId) -> Option<LineId> {
        let place = self.multicast.at(place);
        let (node, root) = (place.node, self.multicast.root(place.tree));
        self.next_line(node, root).filter(|line| self.is_usable(*line))
    }

    fn latency(&self, set: Option<Duration>, line: LineId) -> Duration {
        set.unwrap_or_else(|| {
            let treatment = self.directions[line.0 as usize].line.treatment();
            treatment.spec().delay
        })
    }
}
