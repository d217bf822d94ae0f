//! Graph of nodes and links, before a run.

use std::sync::Arc;
use std::time::Duration;

use crate::line::Treatment;
use crate::link::{LinkSpec, Loss, Queue};
use crate::packet::Kinds;

/// Largest number of nodes and of links. Directions of links and places in trees have 32-bit
/// numbers.
const MOST: u32 = 1 << 30;

/// Number of a node, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// Number of a link, in the order of creation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u32);

/// Function of a node.
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
    /// All names in one string, and the end of each. A network may have millions of nodes.
    names: String,
    name_ends: Vec<usize>,
    links: Vec<(NodeId, NodeId, [u32; 2])>,
    /// Distinct treatments; most links of a large network share one.
    treatments: Vec<Arc<Treatment>>,
    graft_latency: Option<Duration>,
    prune_latency: Option<Duration>,
}

/// Error in a network or a simulation.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum NetworkError {
    /// A node that is not in this network.
    #[error("there is no node number {}", .0.0)]
    UnknownNode(NodeId),
    /// A link that is not in this network.
    #[error("there is no link number {}", .0.0)]
    UnknownLink(LinkId),
    /// A link with both ends at one node.
    #[error("a link of `{0}` with itself")]
    Loop(String),
    /// More nodes or links than can be numbered.
    #[error("a network has at most {0} nodes or links")]
    TooLarge(u32),
    /// A probability outside of 0 to 1.
    #[error("{what} = {value} is not a probability between 0 and 1")]
    Probability {
        /// Name of the value.
        what: &'static str,
        /// Value out of its range.
        value: f64,
    },
    /// A queue that holds nothing.
    #[error("a queue of 0 would drop every packet")]
    EmptyQueue,
    /// Thresholds of random early detection that are not in order.
    #[error(
        "thresholds {min_threshold} and {max_threshold} of random early detection: the lower is \
         at least 0, the upper above it"
    )]
    RedThresholds {
        /// Lower threshold.
        min_threshold: f64,
        /// Upper threshold.
        max_threshold: f64,
    },
    /// A scripted loss of a packet before the first.
    #[error("scripted loss counts packets from 1, not from 0")]
    ScriptedZero,
    /// A trace of losses without packets.
    #[error("a trace of losses has to say of at least one packet whether it is lost")]
    EmptyTrace,
    /// An up/down schedule whose times do not increase.
    #[error("the times of an up/down schedule have to increase")]
    ScheduleOrder,
    /// A program for a node that is no host.
    #[error("`{0}` is not a host: only hosts run programs")]
    NotAHost(String),
    /// A hook for a node that does not forward.
    #[error("`{0}` is a host: only routers and switches have hooks")]
    NotARouter(String),
    /// A second program or hook for a node.
    #[error("`{0}` has a program or a hook already")]
    Occupied(String),
}

impl Network {
    /// Creates an empty network.
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
        self.name_ends.push(self.names.len());
        NodeId(self.kinds.len() as u32 - 1)
    }

    /// Links two nodes; `ab` applies to packets from `a` to `b`.
    ///
    /// # Errors
    ///
    /// Returns an error if a node is unknown or a value of a [`LinkSpec`] is out of its range.
    pub fn link(
        &mut self,
        a: NodeId,
        b: NodeId,
        ab: LinkSpec,
        ba: LinkSpec,
    ) -> Result<LinkId, NetworkError> {
        for node in [a, b] {
            self.check_node(node)?;
        }
        if a == b {
            return Err(NetworkError::Loop(self.name(a).to_owned()));
        }
        if self.links.len() >= MOST as usize || self.kinds.len() >= MOST as usize {
            return Err(NetworkError::TooLarge(MOST));
        }
        let specs = [self.intern(ab)?, self.intern(ba)?];
        self.links.push((a, b, specs));
        Ok(LinkId(self.links.len() as u32 - 1))
    }

    /// Lets the direction of a link that begins at `from` lose packets of some kinds, besides those
    /// that it loses already.
    ///
    /// # Errors
    ///
    /// Returns an error if the link is unknown, does not begin at `from`, or a value is out of its
    /// range.
    pub fn add_loss(
        &mut self,
        link: LinkId,
        from: NodeId,
        of: Kinds,
        loss: Loss,
    ) -> Result<(), NetworkError> {
        let mut spec = self.spec_from(link, from)?.clone();
        let mut losses = vec![(of, loss)];
        match (spec.loss, spec.loss_of) {
            (Loss::None, _) => {}
            (Loss::Several(present), Kinds::ALL) => losses.splice(0..0, present).for_each(drop),
            (present, kinds) => losses.insert(0, (kinds, present)),
        }
        (spec.loss, spec.loss_of) = (Loss::Several(losses), Kinds::ALL);
        self.set_spec_from(link, from, spec)
    }

    /// Puts another queue in front of the direction of a link that begins at `from`.
    ///
    /// # Errors
    ///
    /// Returns an error if the link is unknown, does not begin at `from`, or a value is out of its
    /// range.
    pub fn set_queue(
        &mut self,
        link: LinkId,
        from: NodeId,
        queue: Queue,
    ) -> Result<(), NetworkError> {
        let spec = self.spec_from(link, from)?.clone().queue(queue);
        self.set_spec_from(link, from, spec)
    }

    /// Returns the position of the direction of a link that begins at `from`.
    fn direction(&self, link: LinkId, from: NodeId) -> Result<usize, NetworkError> {
        let &(a, b, _) = self.links.get(link.0 as usize).ok_or(NetworkError::UnknownLink(link))?;
        match from {
            _ if from == a => Ok(0),
            _ if from == b => Ok(1),
            _ => Err(NetworkError::UnknownNode(from)),
        }
    }

    fn spec_from(&self, link: LinkId, from: NodeId) -> Result<&LinkSpec, NetworkError> {
        let direction = self.direction(link, from)?;
        let treatment = self.links[link.0 as usize].2[direction];
        Ok(self.treatments[treatment as usize].spec())
    }

    fn set_spec_from(
        &mut self,
        link: LinkId,
        from: NodeId,
        spec: LinkSpec,
    ) -> Result<(), NetworkError> {
        let direction = self.direction(link, from)?;
        self.links[link.0 as usize].2[direction] = self.intern(spec)?;
        Ok(())
    }

    /// Lets losses hit only packets of these kinds, on all links that there are.
    pub fn set_loss_of(&mut self, kinds: Kinds) {
        for treatment in &mut self.treatments {
            let spec = treatment.spec().clone().loss_of(kinds);
            *treatment = Arc::new(Treatment::new(spec).expect("its values were valid before"));
        }
    }

    /// Returns the number of an equal treatment among the latest ones, or of a new one.
    fn intern(&mut self, spec: LinkSpec) -> Result<u32, NetworkError> {
        const LATEST: usize = 8;
        let first = self.treatments.len().saturating_sub(LATEST);
        let known = self.treatments[first..].iter().position(|known| *known.spec() == spec);
        if let Some(found) = known {
            return Ok((first + found) as u32);
        }
        self.treatments.push(Arc::new(Treatment::new(spec)?));
        Ok(self.treatments.len() as u32 - 1)
    }

    /// Checks that a node exists.
    pub(crate) fn check_node(&self, node: NodeId) -> Result<(), NetworkError> {
        if (node.0 as usize) < self.kinds.len() {
            Ok(())
        } else {
            Err(NetworkError::UnknownNode(node))
        }
    }

    /// Sets the time that a join takes for each hop up the tree. Default: the delay of the link.
    pub fn set_graft_latency(&mut self, latency: Duration) {
        self.graft_latency = Some(latency);
    }

    /// Sets the time that a leave takes for each hop up the tree, during which packets continue to
    /// arrive. Default: the delay of the link.
    pub fn set_prune_latency(&mut self, latency: Duration) {
        self.prune_latency = Some(latency);
    }

    /// Returns the number of nodes.
    pub fn node_count(&self) -> usize {
        self.kinds.len()
    }

    /// Returns the number of links.
    pub fn link_count(&self) -> usize {
        self.links.len()
    }

    /// Returns the nodes in the order of creation.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, NodeKind)> {
        self.kinds.iter().enumerate().map(|(index, kind)| (NodeId(index as u32), *kind))
    }

    /// Returns the links in the order of creation, with their ends.
    pub fn links(&self) -> impl ExactSizeIterator<Item = (LinkId, NodeId, NodeId)> {
        self.links.iter().enumerate().map(|(index, &(a, b, _))| (LinkId(index as u32), a, b))
    }

    /// Returns the two ends of a link.
    pub fn ends(&self, link: LinkId) -> (NodeId, NodeId) {
        let (a, b, _) = self.links[link.0 as usize];
        (a, b)
    }

    /// Returns the specifications of a link, from its first end to its second and back.
    pub fn specs(&self, link: LinkId) -> (&LinkSpec, &LinkSpec) {
        let (_, _, [ab, ba]) = self.links[link.0 as usize];
        (self.treatments[ab as usize].spec(), self.treatments[ba as usize].spec())
    }

    /// Returns the treatments of packets on a link, from its first end to its second and back.
    pub(crate) fn treatments(&self, link: LinkId) -> [&Arc<Treatment>; 2] {
        let (_, _, treatments) = self.links[link.0 as usize];
        treatments.map(|number| &self.treatments[number as usize])
    }

    pub(crate) fn graft_latency(&self) -> Option<Duration> {
        self.graft_latency
    }

    pub(crate) fn prune_latency(&self) -> Option<Duration> {
        self.prune_latency
    }

    /// Returns the name of a node.
    pub fn name(&self, node: NodeId) -> &str {
        let index = node.0 as usize;
        let start = if index == 0 { 0 } else { self.name_ends[index - 1] };
        &self.names[start..self.name_ends[index]]
    }

    /// Returns the kind of a node.
    pub fn kind(&self, node: NodeId) -> NodeKind {
        self.kinds[node.0 as usize]
    }
}
