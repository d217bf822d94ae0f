//! The graph, before a run.

use std::time::Duration;

use crate::link::LinkSpec;

/// A node, numbered in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// A link, numbered in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// What a node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    /// Runs an application; forwards nothing.
    Host,
    /// Forwards; counts hops.
    Router,
    /// Forwards; does not count hops.
    Switch,
}

/// Hosts, routers, switches and the links between them.
#[derive(Clone, Debug, Default)]
pub struct Network {
    kinds: Vec<NodeKind>,
    /// All names in a row, and where each ends: a network may have millions of nodes.
    names: String,
    name_ends: Vec<u32>,
    links: Vec<(NodeId, NodeId, [u32; 2])>,
    /// Different treatments; most links of a large network share one.
    specs: Vec<LinkSpec>,
    graft_latency: Option<Duration>,
    prune_latency: Option<Duration>,
}

/// Why a network or a simulation cannot be built as asked.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// A node that this network does not have.
    #[error("there is no node {0:?}")]
    UnknownNode(NodeId),
}

impl Network {
    /// An empty network.
    pub fn new() -> Network {
        Network::default()
    }

    /// Adds a host.
    pub fn host(&mut self, name: impl AsRef<str>) -> NodeId {
        self.node(NodeKind::Host, name.as_ref())
    }

    /// Adds a router.
    pub fn router(&mut self, name: impl AsRef<str>) -> NodeId {
        self.node(NodeKind::Router, name.as_ref())
    }

    /// Adds a switch: a router that does not count hops.
    pub fn switch(&mut self, name: impl AsRef<str>) -> NodeId {
        self.node(NodeKind::Switch, name.as_ref())
    }

    fn node(&mut self, kind: NodeKind, name: &str) -> NodeId {
        self.kinds.push(kind);
        self.names.push_str(name);
        self.name_ends.push(self.names.len() as u32);
        NodeId(self.kinds.len() as u32 - 1)
    }

    /// Joins two nodes; `ab` treats what goes from `a` to `b`.
    ///
    /// # Errors
    ///
    /// When a node is unknown or a value of a [`LinkSpec`] is out of its range.
    pub fn link(
        &mut self,
        a: NodeId,
        b: NodeId,
        ab: LinkSpec,
        ba: LinkSpec,
    ) -> Result<LinkId, NetworkError> {
        for node in [a, b] {
            if node.0 as usize >= self.kinds.len() {
                return Err(NetworkError::UnknownNode(node));
            }
        }
        let specs = [self.intern(ab), self.intern(ba)];
        self.links.push((a, b, specs));
        Ok(LinkId(self.links.len() as u32 - 1))
    }

    /// The number of an equal treatment among the latest ones, or of a new one.
    fn intern(&mut self, spec: LinkSpec) -> u32 {
        const LATEST: usize = 8;
        let first = self.specs.len().saturating_sub(LATEST);
        if let Some(found) = self.specs[first..].iter().position(|known| *known == spec) {
            return (first + found) as u32;
        }
        self.specs.push(spec);
        self.specs.len() as u32 - 1
    }

    /// Makes a join take this long for each hop up the tree; by default it takes the delay of
    /// the link.
    pub fn set_graft_latency(&mut self, latency: Duration) {
        self.graft_latency = Some(latency);
    }

    /// Makes a leave take this long for each hop up the tree: packets go on coming for so long.
    /// By default it takes the delay of the link.
    pub fn set_prune_latency(&mut self, latency: Duration) {
        self.prune_latency = Some(latency);
    }

    /// How many nodes there are.
    pub fn node_count(&self) -> usize {
        self.kinds.len()
    }

    /// How many links there are.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// The nodes in the order of creation.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, NodeKind)> {
        self.kinds.iter().enumerate().map(|(index, kind)| (NodeId(index as u32), *kind))
    }

    /// The links in the order of creation, with their ends.
    pub fn links(&self) -> impl ExactSizeIterator<Item = (LinkId, NodeId, NodeId)> {
        self.links.iter().enumerate().map(|(index, &(a, b, _))| (LinkId(index as u32), a, b))
    }

    /// What a link does, from its first end to its second and back.
    pub fn specs(&self, link: LinkId) -> (&LinkSpec, &LinkSpec) {
        let (_, _, [ab, ba]) = self.links[link.0 as usize];
        (&self.specs[ab as usize], &self.specs[ba as usize])
    }

    /// The name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        let index = node.0 as usize;
        let start = if index == 0 { 0 } else { self.name_ends[index - 1] as usize };
        &self.names[start..self.name_ends[index] as usize]
    }

    /// What a node does.
    pub fn kind(&self, node: NodeId) -> NodeKind {
        self.kinds[node.0 as usize]
    }
}
