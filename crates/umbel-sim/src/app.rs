//! Programs of hosts, and their access to the network.

use std::any::Any;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::{Instant, TransmitBuf};

use crate::fabric::Fabric;
use crate::network::{LinkId, NodeId};
use crate::packet::{GroupId, Packet};
use crate::trace::{ChannelParts, Note};

/// Program of a host.
pub trait App: Any + Send {
    /// Called once, at the start time that was passed to
    /// [`Simulation::set_app`](crate::Simulation::set_app). Nothing arrives before.
    fn start(&mut self, context: &mut Context<'_>);

    /// Handles a packet that arrived. Its hop limit is the number of hops that remain.
    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet);

    /// Handles a message of a reliable, ordered session.
    fn message(&mut self, _context: &mut Context<'_>, _from: NodeId, _message: Bytes) {}

    /// Called when the timer of [`Context::wake_at`] is due.
    fn wake(&mut self, _context: &mut Context<'_>) {}
}

/// Access of an [`App`] or a [`RouterHook`](crate::RouterHook) to the network.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) fabric: &'a mut Fabric,
    pub(crate) node: NodeId,
}

impl Context<'_> {
    /// Returns the simulated time.
    pub fn now(&self) -> Instant {
        self.fabric.now
    }

    /// Returns the node on which this program runs.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Sends a packet along the route to its destination, or down the tree of its source. A node
    /// that is not the source of a multicast packet sends it to the nodes below it.
    pub fn send(&mut self, packet: Packet) {
        self.fabric.send(self.node, packet);
    }

    /// Sends a packet on one link of this node; at the far end it travels on as usual.
    pub fn send_on(&mut self, link: LinkId, packet: Packet) {
        self.fabric.send_on(self.node, link, packet);
    }

    /// Sends a message on the reliable, ordered session with another host. The message is lost only
    /// if that host is not running when it arrives.
    ///
    /// # Panics
    ///
    /// If the node does not exist.
    pub fn send_message(&mut self, to: NodeId, message: Bytes) {
        self.fabric.send_message(self.node, to, message);
    }

    /// Returns the channel of a group and its only source, or of any source. Groups are numbered
    /// below 2²⁴.
    ///
    /// # Panics
    ///
    /// If the source does not exist.
    pub fn group(&mut self, source: Option<NodeId>, group: u32) -> GroupId {
        self.fabric.group(source, group)
    }

    /// Returns the source and the number of a channel.
    pub fn channel_parts(&self, group: GroupId) -> Option<ChannelParts> {
        self.fabric.channel_parts(group)
    }

    /// Joins a channel. The tree grows towards this node hop by hop.
    pub fn join(&mut self, group: GroupId) {
        self.fabric.join(self.node, group);
    }

    /// Leaves a channel. The tree withdraws hop by hop.
    pub fn leave(&mut self, group: GroupId) {
        self.fabric.leave(self.node, group);
    }

    /// Sets, moves or clears the one timer of this node.
    pub fn wake_at(&mut self, at: Option<Instant>) {
        self.fabric.wake_at(self.node, at);
    }

    /// Returns this node's own stream of random numbers.
    pub fn random(&mut self) -> &mut Xoshiro256PlusPlus {
        self.fabric.random(self.node)
    }

    /// Takes the host off the network permanently. It leaves its channels and receives nothing
    /// more.
    pub fn stop_node(&mut self) {
        self.fabric.stop(self.node);
    }

    /// Takes the host off the network because it makes no progress.
    /// [`Simulation::run_until`](crate::Simulation::run_until) returns and names it.
    pub fn give_up(&mut self) {
        self.fabric.give_up(self.node);
    }

    /// Returns whether [`stop_node`](Context::stop_node) or [`give_up`](Context::give_up) was
    /// called.
    pub fn is_stopped(&self) -> bool {
        !self.fabric.nodes[self.node.0 as usize].running
    }

    /// Writes a note into the trace.
    pub fn note(&mut self, note: Note) {
        self.fabric.note(self.node, &note);
    }

    /// Returns this node's place in the tree of a source: the link on which its multicast packets
    /// arrive, and those on which they leave. `None` if it has no place.
    pub fn tree(&self, group: GroupId, source: NodeId) -> Option<TreeLinks> {
        self.fabric.tree_links(group, source, self.node)
    }

    /// Returns only the upstream link of [`tree`](Context::tree).
    pub(crate) fn tree_upstream(&self, group: GroupId, source: NodeId) -> Option<LinkId> {
        self.fabric.tree_upstream(group, source, self.node)
    }

    /// Returns whether this link is among the downstream links of [`tree`](Context::tree).
    pub(crate) fn is_tree_downstream(&self, group: GroupId, source: NodeId, link: LinkId) -> bool {
        self.fabric.is_tree_downstream(group, source, self.node, link)
    }

    /// Returns whether the network has this node.
    pub(crate) fn exists(&self, node: NodeId) -> bool {
        self.fabric.network.check_node(node).is_ok()
    }

    /// Returns the links of this node, ascending.
    pub(crate) fn links(&mut self) -> impl Iterator<Item = LinkId> {
        self.fabric.links_of(self.node)
    }

    /// Returns the node at the other end of a link of this node.
    pub(crate) fn far_end(&self, link: LinkId) -> Option<NodeId> {
        self.fabric.neighbour(self.node, link)
    }

    /// Returns whether only switches lie between this node and `other`.
    pub(crate) fn is_attached(&mut self, other: NodeId) -> bool {
        self.exists(other) && self.fabric.is_attached(self.node, other)
    }

    /// Returns a buffer for an engine's datagrams. The caller may hand the last one back for reuse.
    pub(crate) fn scratch(&mut self) -> &mut TransmitBuf {
        &mut self.fabric.scratch
    }
}

/// Place of a node in a multicast tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLinks {
    /// Link towards the source; `None` at the source, and where there is none yet.
    pub upstream: Option<LinkId>,
    /// Links away from the source.
    pub downstream: Vec<LinkId>,
}
