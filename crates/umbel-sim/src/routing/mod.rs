//! Unicast routes: shortest paths by delay, then by number of links.
//!
//! Most nodes of most networks hang on trees: the leaves of a star, all of a k-ary tree, the stubs
//! of an internet. There a packet goes down if its destination is below and up if it is not, which
//! takes no table. The rest of the network is the *core*. It has a table for each destination in
//! use. A table is built on first use and dropped when a link of the core goes up or down.
//!
//! A link is used while both of its directions are up. Hosts forward nothing.

mod forest;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use self::forest::Forest;
use crate::network::{LinkId, Network, NodeId, NodeKind};

/// Direction of a link: twice the number of the link, and 1 more from its second end to its first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LineId(pub(crate) u32);

impl LineId {
    /// Returns both directions of a link.
    pub(crate) fn of(link: LinkId) -> [LineId; 2] {
        [LineId(link.0 * 2), LineId(link.0 * 2 + 1)]
    }

    pub(crate) fn link(self) -> LinkId {
        LinkId(self.0 / 2)
    }

    /// Returns the other direction.
    pub(crate) fn back(self) -> LineId {
        LineId(self.0 ^ 1)
    }
}

const NONE: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct Routing {
    forest: Forest,
    core: Core,
}

/// Nodes and links that are on no tree.
#[derive(Debug)]
struct Core {
    nodes: Vec<CoreNode>,
    /// Lines that lead to a node of the core, grouped by that node.
    incoming: Vec<Incoming>,
    /// Tables of the destinations in use, each with the line to take for each node of the core.
    tables: Vec<Option<Box<[u32]>>>,
}

#[derive(Debug)]
struct CoreNode {
    forwards: bool,
    /// Begin of the node's group in `incoming`; the group ends where the next one begins.
    first_incoming: u32,
}

#[derive(Debug)]
struct Incoming {
    line: LineId,
    /// Number of the near end within the core.
    from: u32,
    delay_ns: u64,
}

impl Routing {
    pub(crate) fn new(network: &Network) -> Routing {
        let forest = Forest::new(network);
        let core = Core::new(network, &forest);
        Routing { forest, core }
    }

    /// Returns the line that a packet for `to` takes at `at`. `None` if it is there, or if there is
    /// no route. Where there is only one line, that line is returned even while it is down.
    pub(crate) fn next(
        &mut self,
        at: NodeId,
        to: NodeId,
        is_up: impl Fn(LineId) -> bool,
    ) -> Option<LineId> {
        if at == to {
            return None;
        }
        if let Some(line) = self.forest.down(at, to).or_else(|| self.forest.up(at)) {
            return Some(line);
        }
        self.core.next(self.forest.gate(at), self.forest.gate(to), is_up)
    }

    /// Returns whether there is a route. A route through the core requires the core's tables. A
    /// link of a tree counts as a route even while it is down, since there is no other.
    pub(crate) fn reaches(
        &mut self,
        at: NodeId,
        to: NodeId,
        is_up: impl Fn(LineId) -> bool,
    ) -> bool {
        let (from, gate) = (self.forest.gate(at), self.forest.gate(to));
        from == gate || self.core.next(from, gate, is_up).is_some()
    }

    /// Notes that a link went up or down. Returns whether routes may have changed.
    pub(crate) fn link_changed(&mut self, link: LinkId) -> bool {
        let in_core = self.forest.is_in_core(link);
        if in_core {
            self.core.tables.fill(None);
        }
        in_core
    }
}

impl Core {
    fn new(network: &Network, forest: &Forest) -> Core {
        let mut incoming = Vec::new();
        for (link, a, b) in network.links().filter(|(link, ..)| forest.is_in_core(*link)) {
            let [ab, ba] = network.treatments(link);
            let [forth, back] = LineId::of(link);
            let [a, b] = [a, b].map(|end| forest.gate(end));
            incoming.push((b, Incoming { line: forth, from: a, delay_ns: ab.delay_ns() }));
            incoming.push((a, Incoming { line: back, from: b, delay_ns: ba.delay_ns() }));
        }
        incoming.sort_by_key(|(to, incoming)| (*to, incoming.line));
        let nodes: Vec<CoreNode> = forest
            .core()
            .iter()
            .enumerate()
            .map(|(number, &node)| CoreNode {
                forwards: network.kind(node) != NodeKind::Host,
                first_incoming: incoming.partition_point(|(to, _)| (*to as usize) < number) as u32,
            })
            .collect();
        let tables = nodes.iter().map(|_| None).collect();
        let incoming = incoming.into_iter().map(|(_, incoming)| incoming).collect();
        Core { nodes, incoming, tables }
    }

    fn next(&mut self, from: u32, to: u32, is_up: impl Fn(LineId) -> bool) -> Option<LineId> {
        if self.tables[to as usize].is_none() {
            self.tables[to as usize] = Some(self.table(to, is_up));
        }
        let line = self.tables[to as usize].as_ref().map_or(NONE, |table| table[from as usize]);
        (line != NONE).then_some(LineId(line))
    }

    /// Computes the lines towards `to` by Dijkstra's algorithm, from the destination backwards.
    fn table(&self, to: u32, is_up: impl Fn(LineId) -> bool) -> Box<[u32]> {
        let mut lines = vec![NONE; self.nodes.len()].into_boxed_slice();
        let mut distances = vec![(u64::MAX, u32::MAX); self.nodes.len()];
        let mut heap = BinaryHeap::from([Reverse(((0, 0), to))]);
        distances[to as usize] = (0, 0);
        while let Some(Reverse((distance, node))) = heap.pop() {
            let passes = node == to || self.nodes[node as usize].forwards;
            if distance > distances[node as usize] || !passes {
                continue;
            }
            let (delay, links) = distance;
            for &Incoming { line, from, delay_ns } in self.incoming(node) {
                if !is_up(line) || !is_up(line.back()) {
                    continue;
                }
                let through = (delay.saturating_add(delay_ns), links + 1);
                let known = distances[from as usize];
                // Of equal routes, takes the one by the older link, whatever the order of the
                // search.
                if through < known || (through == known && line.0 < lines[from as usize]) {
                    lines[from as usize] = line.0;
                }
                if through < known {
                    distances[from as usize] = through;
                    heap.push(Reverse((through, from)));
                }
            }
        }
        lines
    }

    fn incoming(&self, node: u32) -> &[Incoming] {
        let begin = |node: usize| {
            self.nodes.get(node).map_or(self.incoming.len(), |node| node.first_incoming as usize)
        };
        &self.incoming[begin(node as usize)..begin(node as usize + 1)]
    }
}
