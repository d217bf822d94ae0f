//! Channels without trees. Each packet travels down the reverse paths of its source, as far as its
//! hop limit allows.

use super::{Fabric, Parcel, ParcelId};
use crate::network::{LinkId, NodeId, NodeKind};
use crate::packet::GroupId;
use crate::routing::LineId;

/// Lines that leave each node.
#[derive(Debug, Default)]
pub(super) struct Neighbours {
    lines: Vec<LineId>,
    /// End of each node's group in `lines`.
    ends: Vec<u32>,
}

impl Neighbours {
    /// Creates the table for a network whose lines end at these nodes. A line leaves the node where
    /// its other direction ends.
    fn new(nodes: usize, end_of: impl Fn(LineId) -> NodeId, links: usize) -> Neighbours {
        let mut lines: Vec<LineId> =
            (0..links as u32).flat_map(|link| LineId::of(LinkId(link))).collect();
        lines.sort_by_key(|line| (end_of(line.back()), *line));
        let mut ends = vec![0; nodes];
        for line in &lines {
            ends[end_of(line.back()).0 as usize] += 1;
        }
        let mut end = 0;
        for count in &mut ends {
            end += *count;
            *count = end;
        }
        Neighbours { lines, ends }
    }

    fn of(&self, node: NodeId) -> std::ops::Range<usize> {
        let node = node.0 as usize;
        let begin = if node == 0 { 0 } else { self.ends[node - 1] };
        begin as usize..self.ends[node] as usize
    }
}

impl Fabric {
    /// Makes a channel work without trees.
    pub(crate) fn flood(&mut self, group: GroupId) {
        self.multicast.set_flooded(group);
        self.know_neighbours();
    }

    /// Returns the links of a node, ascending. The first call of a run costs a sort of all links.
    pub(crate) fn links_of(&mut self, node: NodeId) -> impl Iterator<Item = LinkId> {
        self.know_neighbours();
        let lines = &self.neighbours.lines[self.neighbours.of(node)];
        lines.iter().map(|line| line.link())
    }

    /// Makes the table of neighbours, unless there is one.
    fn know_neighbours(&mut self) {
        if self.neighbours.ends.is_empty() {
            let (nodes, links) = (self.network.node_count(), self.network.link_count());
            self.neighbours = Neighbours::new(nodes, |line| self.end_of(line), links);
        }
    }

    /// Puts a copy on each line to a node whose own route to the packet's source leads back here.
    /// Hosts are only sent channels that they have joined.
    pub(super) fn flood_from(
        &mut self,
        at: NodeId,
        (group, source): (GroupId, NodeId),
        id: ParcelId,
        parcel: &Parcel,
        left: u8,
    ) {
        for number in self.neighbours.of(at) {
            let line = self.neighbours.lines[number];
            let to = self.end_of(line);
            let is_host = self.nodes[to.0 as usize].kind == NodeKind::Host;
            let is_wanted = !is_host || self.is_member(group, to);
            if is_wanted && to != source && self.next_line(to, source) == Some(line.back()) {
                self.cross(line, id, parcel, left);
            }
        }
    }
}
