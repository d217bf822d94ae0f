//! Multicast trees and their branches. `membership.rs` changes them.

use std::collections::{BTreeMap, BTreeSet};

use crate::network::NodeId;
use crate::packet::GroupId;
use crate::routing::LineId;
use crate::trace::ChannelParts;

/// Place of a node in a tree, numbered over all trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlaceId(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TreeId(u32);

/// Line down a tree. A branch that was pruned stays, inactive, for the packets that are on it and
/// for its return.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Branch {
    pub(crate) line: LineId,
    /// Place at the far end.
    pub(crate) place: PlaceId,
    pub(crate) active: bool,
    /// Whether the far end is a member.
    pub(crate) member: bool,
}

#[derive(Debug, Default)]
pub(super) struct Multicast {
    channels: Vec<Channel>,
    numbers: BTreeMap<(Option<NodeId>, u32), GroupId>,
    trees: Vec<Tree>,
    places: Vec<Place>,
}

#[derive(Debug)]
struct Channel {
    parts: ChannelParts,
    members: BTreeSet<NodeId>,
    /// Whether the channel works without trees.
    flooded: bool,
    /// Trees by source.
    trees: BTreeMap<NodeId, TreeId>,
}

#[derive(Debug)]
struct Tree {
    root: NodeId,
    places: BTreeMap<NodeId, PlaceId>,
}

#[derive(Debug)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) tree: TreeId,
    pub(super) state: State,
    /// Number of changes of state. Events from before the latest one are out of date.
    pub(super) epoch: u32,
    /// Line towards the source, once there was one.
    pub(super) up: LineId,
    member: bool,
    /// Place that has a branch to this one, active or not, and the position of that branch.
    parent: Option<PlaceId>,
    slot: u32,
    branches: Vec<Branch>,
    active: u32,
    /// Number of events that refer to branches by their position.
    held: u32,
}

/// State of a place in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// The place is the source.
    Root,
    /// The place has no branch.
    Detached,
    /// The place wants a branch, and there is no route to the source.
    Waiting,
    /// The join of the place is under way.
    Grafting,
    /// The place has a branch.
    Attached,
    /// The place has a branch, and its leave is under way.
    Pruning,
}

impl Multicast {
    /// Returns the number of a channel, which is a new one if it has none.
    pub(super) fn channel(&mut self, parts: ChannelParts) -> GroupId {
        if let Some(known) = self.numbers.get(&(parts.source, parts.group)) {
            return *known;
        }
        let group = GroupId(self.channels.len() as u32);
        self.numbers.insert((parts.source, parts.group), group);
        let (members, trees) = (BTreeSet::new(), BTreeMap::new());
        self.channels.push(Channel { parts, members, flooded: false, trees });
        if let Some(source) = parts.source {
            self.add_tree(group, source);
        }
        group
    }

    /// Makes the channel work without trees from now on.
    pub(super) fn set_flooded(&mut self, group: GroupId) {
        if let Some(channel) = self.channels.get_mut(group.0 as usize) {
            channel.flooded = true;
        }
    }

    pub(super) fn is_flooded(&self, group: GroupId) -> bool {
        self.channels.get(group.0 as usize).is_some_and(|channel| channel.flooded)
    }

    pub(super) fn groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.channels.len() as u32).map(GroupId)
    }

    pub(super) fn is_member(&self, group: GroupId, node: NodeId) -> bool {
        self.channels.get(group.0 as usize).is_some_and(|channel| channel.members.contains(&node))
    }

    pub(super) fn members(&self, group: GroupId) -> Vec<NodeId> {
        self.channels[group.0 as usize].members.iter().copied().collect()
    }

    /// Adds a member. Returns whether the node was not a member before.
    pub(super) fn add_member(&mut self, group: GroupId, node: NodeId) -> bool {
        self.channels.get_mut(group.0 as usize).is_some_and(|channel| channel.members.insert(node))
    }

    /// Removes a member. Returns whether the node was a member before.
    pub(super) fn remove_member(&mut self, group: GroupId, node: NodeId) -> bool {
        self.channels.get_mut(group.0 as usize).is_some_and(|channel| channel.members.remove(&node))
    }

    pub(super) fn tree(&self, group: GroupId, root: NodeId) -> Option<TreeId> {
        self.channels.get(group.0 as usize)?.trees.get(&root).copied()
    }

    pub(super) fn root(&self, tree: TreeId) -> NodeId {
        self.trees[tree.0 as usize].root
    }

    /// Returns all places of all trees.
    pub(super) fn places(&self) -> impl Iterator<Item = PlaceId> + use<> {
        (0..self.places.len() as u32).map(PlaceId)
    }

    /// Returns the places of a node in all trees.
    pub(super) fn places_of(&self, node: NodeId) -> Vec<PlaceId> {
        self.trees.iter().filter_map(|tree| tree.places.get(&node).copied()).collect()
    }

    /// Changes the state of a place.
    pub(super) fn enter(&mut self, place: PlaceId, state: State) {
        let place = self.at_mut(place);
        place.state = state;
        place.epoch += 1;
    }

    pub(super) fn parts(&self, group: GroupId) -> Option<ChannelParts> {
        self.channels.get(group.0 as usize).map(|channel| channel.parts)
    }

    pub(super) fn branches(&self, place: PlaceId) -> &[Branch] {
        &self.at(place).branches
    }

    /// Returns whether a place has no onward branches.
    pub(super) fn is_leaf(&self, place: PlaceId) -> bool {
        self.at(place).active == 0
    }

    /// Keeps the branches of a place in their positions until an equal number of releases.
    pub(super) fn hold(&mut self, place: PlaceId) {
        self.at_mut(place).held += 1;
    }

    pub(super) fn at(&self, place: PlaceId) -> &Place {
        &self.places[place.0 as usize]
    }

    pub(super) fn at_mut(&mut self, place: PlaceId) -> &mut Place {
        &mut self.places[place.0 as usize]
    }

    pub(super) fn find(&self, tree: TreeId, node: NodeId) -> Option<PlaceId> {
        self.trees[tree.0 as usize].places.get(&node).copied()
    }

    /// Returns a node's place in a tree, which is a new one if it has none.
    pub(super) fn find_or_add(&mut self, tree: TreeId, node: NodeId) -> PlaceId {
        let Multicast { trees, places, .. } = self;
        *trees[tree.0 as usize].places.entry(node).or_insert_with(|| {
            places.push(Place {
                node,
                tree,
                state: State::Detached,
                member: false,
                epoch: 0,
                up: LineId(0),
                parent: None,
                slot: 0,
                branches: Vec::new(),
                active: 0,
                held: 0,
            });
            PlaceId(places.len() as u32 - 1)
        })
    }

    pub(super) fn add_tree(&mut self, group: GroupId, root: NodeId) -> TreeId {
        let tree = TreeId(self.trees.len() as u32);
        self.trees.push(Tree { root, places: BTreeMap::new() });
        self.channels[group.0 as usize].trees.insert(root, tree);
        let place = self.find_or_add(tree, root);
        self.at_mut(place).state = State::Root;
        tree
    }

    pub(super) fn trees_of(&self, group: GroupId) -> Vec<TreeId> {
        self.channels[group.0 as usize].trees.values().copied().collect()
    }

    pub(super) fn set_member(&mut self, place: PlaceId, member: bool) {
        let place = self.at_mut(place);
        place.member = member;
        let (parent, slot) = (place.parent, place.slot);
        if let Some(parent) = parent {
            self.at_mut(parent).branches[slot as usize].member = member;
        }
    }

    pub(super) fn is_wanted(&self, place: PlaceId) -> bool {
        let place = self.at(place);
        place.member || place.active > 0
    }

    /// Adds a branch from `parent` to `place`, or reactivates the one that it had.
    pub(super) fn attach(&mut self, place: PlaceId, parent: PlaceId) {
        let Place { up, member, slot, parent: former, .. } = *self.at(place);
        let branch = Branch { line: up.back(), place, active: true, member };
        let branches = &mut self.at_mut(parent).branches;
        let slot = if former == Some(parent) && branches[slot as usize].line == branch.line {
            branches[slot as usize] = branch;
            slot
        } else {
            branches.push(branch);
            branches.len() as u32 - 1
        };
        self.at_mut(parent).active += 1;
        let below = self.at_mut(place);
        (below.parent, below.slot) = (Some(parent), slot);
        self.enter(place, State::Attached);
    }

    /// Deactivates the branch to a place. Returns the place that loses it.
    pub(super) fn detach(&mut self, place: PlaceId) -> Option<PlaceId> {
        self.enter(place, State::Detached);
        let Place { parent, slot, .. } = *self.at(place);
        let above = self.at_mut(parent?);
        above.branches[slot as usize].active = false;
        above.active -= 1;
        parent
    }

    /// Releases branches that were held.
    pub(super) fn release(&mut self, place: PlaceId) {
        self.at_mut(place).held -= 1;
        self.tidy(place);
    }

    /// Removes inactive branches, if they are the majority and nothing refers to them.
    pub(super) fn tidy(&mut self, place: PlaceId) {
        const FEW: usize = 16;
        let Place { branches, active, held, .. } = self.at(place);
        if *held > 0 || branches.len() < FEW || *active as usize * 2 > branches.len() {
            return;
        }
        let mut branches = std::mem::take(&mut self.at_mut(place).branches);
        let mut next = 0;
        branches.retain(|branch| {
            let below = self.at_mut(branch.place);
            // The place of an inactive branch may have moved to another parent.
            if branch.active {
                below.slot = next;
                next += 1;
            } else if below.parent == Some(place) && !is_in_tree(below.state) {
                below.parent = None;
            }
            branch.active
        });
        self.at_mut(place).branches = branches;
    }
}

/// Returns whether a place has an active branch from its parent.
fn is_in_tree(state: State) -> bool {
    matches!(state, State::Attached | State::Pruning)
}
