//! Trees that hang on the core of a network.

use super::{LineId, NONE};
use crate::network::{LinkId, Network, NodeId};

/// Trees of a network. Nodes are removed as long as they have a single link; the rest is the core.
/// If the network is a tree, one node remains. If it has several parts, at least one node of each
/// remains.
///
/// The nodes of a tree are numbered so that those below a node directly follow it. So a comparison
/// tells whether one node is below another.
#[derive(Debug)]
pub(super) struct Forest {
    places: Vec<Place>,
    /// Lines from a node to those directly below it, grouped by node, in the order of their
    /// numbers.
    down: Vec<Down>,
    core: Vec<NodeId>,
    /// Whether a link is in the core.
    in_core: Vec<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// Number of the node, and the one after the last below it.
    begin: u32,
    end: u32,
    /// Line to the node above; `NONE` in the core.
    up: u32,
    /// Number within the core of the node on which the tree of this node hangs.
    gate: u32,
    /// Begin and end of the node's group in `down`.
    first_down: u32,
    end_down: u32,
}

#[derive(Clone, Copy, Debug)]
struct Down {
    /// Number of the node below.
    begin: u32,
    line: LineId,
}

impl Forest {
    pub(super) fn new(network: &Network) -> Forest {
        let mut in_core = vec![true; network.link_count()];
        let cut = cut_off(network, &mut in_core);
        let alone = Place { begin: 0, end: 1, up: NONE, gate: NONE, first_down: 0, end_down: 0 };
        let places = vec![alone; network.node_count()];
        let mut forest = Forest { places, down: Vec::new(), core: Vec::new(), in_core };
        forest.number(network, &cut);
        forest
    }

    /// Assigns each node its place. `cut` has the nodes that were removed, in that order, each with
    /// the line to the node above.
    fn number(&mut self, network: &Network, cut: &[(NodeId, LineId)]) {
        let above = |line: LineId| end_of(network, line).0 as usize;
        // At first, `end` counts a node and those below it, and `end_down` those directly below.
        for &(node, line) in cut {
            let node = &mut self.places[node.0 as usize];
            node.up = line.0;
            let count = node.end;
            let up = &mut self.places[above(line)];
            up.end += count;
            up.end_down += 1;
        }
        let (mut begin, mut down) = (0, 0);
        for (index, place) in self.places.iter_mut().enumerate() {
            if place.up == NONE {
                place.gate = self.core.len() as u32;
                self.core.push(NodeId(index as u32));
                place.begin = begin;
                begin += place.end;
                place.end = begin;
            }
            let count = std::mem::replace(&mut place.end_down, down);
            place.first_down = down;
            down += count;
        }
        self.down = vec![Down { begin: 0, line: LineId(0) }; down as usize];
        // Works from the core outwards. `next` is the number for the next node below each.
        let mut next: Vec<u32> = self.places.iter().map(|place| place.begin + 1).collect();
        for &(node, line) in cut.iter().rev() {
            let (up, node) = (above(line), node.0 as usize);
            let begin = next[up];
            let gate = self.places[up].gate;
            let place = &mut self.places[node];
            let end = begin + place.end;
            *place = Place { begin, end, gate, ..*place };
            (next[up], next[node]) = (end, begin + 1);
            let up = &mut self.places[up];
            self.down[up.end_down as usize] = Down { begin, line: line.back() };
            up.end_down += 1;
        }
    }

    /// Returns the line from `at` towards `to`, if `to` is below it.
    pub(super) fn down(&self, at: NodeId, to: NodeId) -> Option<LineId> {
        let place = &self.places[at.0 as usize];
        let number = self.places[to.0 as usize].begin;
        if number <= place.begin || number >= place.end {
            return None;
        }
        let group = &self.down[place.first_down as usize..place.end_down as usize];
        let after = group.partition_point(|down| down.begin <= number);
        Some(group[after - 1].line)
    }

    /// Returns the line from a node outside the core to the one above it.
    pub(super) fn up(&self, at: NodeId) -> Option<LineId> {
        let up = self.places[at.0 as usize].up;
        (up != NONE).then_some(LineId(up))
    }

    /// Returns the number within the core of the node on which the tree of `node` hangs.
    pub(super) fn gate(&self, node: NodeId) -> u32 {
        self.places[node.0 as usize].gate
    }

    /// Returns the nodes of the core by their number.
    pub(super) fn core(&self) -> &[NodeId] {
        &self.core
    }

    pub(super) fn is_in_core(&self, link: LinkId) -> bool {
        self.in_core[link.0 as usize]
    }
}

/// Removes nodes with a single link as long as there are any. Returns them in that order with their
/// lines upwards.
fn cut_off(network: &Network, in_core: &mut [bool]) -> Vec<(NodeId, LineId)> {
    // For each node, the number of links that are left, and the numbers of those links xored
    // together. When one link is left, the latter is its number.
    let mut left = vec![(0_u32, 0_u32); network.node_count()];
    for (link, a, b) in network.links() {
        for end in [a, b] {
            let (count, links) = &mut left[end.0 as usize];
            *count += 1;
            *links ^= link.0;
        }
    }
    let singles = network.nodes().map(|(node, _)| node).filter(|node| left[node.0 as usize].0 == 1);
    let mut singles: Vec<NodeId> = singles.collect();
    singles.reverse();
    let mut cut = Vec::new();
    while let Some(node) = singles.pop() {
        let (count, link) = left[node.0 as usize];
        // The other end may have been removed by the same link.
        if count != 1 {
            continue;
        }
        let link = LinkId(link);
        let (a, b) = network.ends(link);
        let [forth, back] = LineId::of(link);
        let (line, above) = if a == node { (forth, b) } else { (back, a) };
        in_core[link.0 as usize] = false;
        left[node.0 as usize] = (0, 0);
        let (count, links) = &mut left[above.0 as usize];
        *count -= 1;
        *links ^= link.0;
        if *count == 1 {
            singles.push(above);
        }
        cut.push((node, line));
    }
    cut
}

/// Returns the far end of a line.
fn end_of(network: &Network, line: LineId) -> NodeId {
    let (a, b) = network.ends(line.link());
    if line == LineId::of(line.link())[0] { b } else { a }
}
