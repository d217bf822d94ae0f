//! What runs on a host.

use std::any::Any;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::{Instant, TransmitBuf};

use crate::fabric::Fabric;
use crate::network::{LinkId, NodeId};
use crate::packet::{GroupId, Packet};
use crate::trace::{ChannelParts, Note};

/// The program of a host.
pub trait App: Any + Send {
    /// Called once, at the start time that [`Simulation::set_app`](crate::Simulation::set_app)
    /// was given. Nothing arrives before.
    fn start(&mut self, context: &mut Context<'_>);

    /// Takes a packet that arrived. Its hop limit is what is left of it.
    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet);

    /// Takes a message of a reliable, ordered session.
    fn message(&mut self, _context: &mut Context<'_>, _from: NodeId, _message: Bytes) {}

    /// Called when the timer of [`Context::wake_at`] is due.
    fn wake(&mut self, _context: &mut Context<'_>) {}
}

/// What an [`App`] or a [`RouterHook`](crate::RouterHook) can do to the network.
#[derive(Debug)]
pub struct Context<'a> {
    pub(crate) fabric: &'a mut Fabric,
    pub(crate) node: NodeId,
}

impl Context<'_> {
    /// The simulated time.
    pub fn now(&self) -> Instant {
        self.fabric.now
    }

    /// The node that this runs on.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Sends a packet along the route to its destination, or down the tree of its source. A node
    /// that is not the source of a multicast packet sends it to those below it.
    pub fn send(&mut self, packet: Packet) {
        self.fabric.send(self.node, packet);
    }

    /// Sends a packet on one link of this node; at the far end it travels on as usual.
    pub fn send_on(&mut self, link: LinkId, packet: Packet) {
        self.fabric.send_on(self.node, link, packet);
    }

    /// Sends a message on the reliable, ordered session with another host. It is lost only if
    /// that host does not run when it arrives.
    ///
    /// # Panics
    ///
    /// If there is no such node.
    pub fn send_message(&mut self, to: NodeId, message: Bytes) {
        self.fabric.send_message(self.node, to, message);
    }

    /// The channel of a group and its only source, or of any source. Groups are numbered below
    /// 2²⁴.
    ///
    /// # Panics
    ///
    /// If there is no such source.
    pub fn group(&mut self, source: Option<NodeId>, group: u32) -> GroupId {
        self.fabric.group(source, group)
    }

    /// The source and the number of a channel.
    pub fn channel_parts(&self, group: GroupId) -> Option<ChannelParts> {
        self.fabric.channel_parts(group)
    }

    /// Receives this channel from now on; the tree grows towards here hop by hop.
    pub fn join(&mut self, group: GroupId) {
        self.fabric.join(self.node, group);
    }

    /// No longer receives this channel; the tree withdraws hop by hop.
    pub fn leave(&mut self, group: GroupId) {
        self.fabric.leave(self.node, group);
    }

    /// Sets, moves or clears the one timer of this node.
    pub fn wake_at(&mut self, at: Option<Instant>) {
        self.fabric.wake_at(self.node, at);
    }

    /// This node's own stream of random numbers.
    pub fn random(&mut self) -> &mut Xoshiro256PlusPlus {
        self.fabric.random(self.node)
    }

    /// Takes the host off the network for good: it leaves its channels and gets nothing any more.
    pub fn stop_node(&mut self) {
        self.fabric.stop(self.node);
    }

    /// Takes the host off the network because it does not move on:
    /// [`Simulation::run_until`](crate::Simulation::run_until) returns and names it.
    pub fn give_up(&mut self) {
        self.fabric.give_up(self.node);
    }

    /// Whether [`stop_node`](Context::stop_node) was called.
    pub fn is_stopped(&self) -> bool {
        !self.fabric.nodes[self.node.0 as usize].running
    }

    /// Writes something into the trace.
    pub fn note(&mut self, note: Note) {
        self.fabric.note(self.node, &note);
    }

    /// The link on which a multicast packet of this source comes, and those on which it goes on:
    /// this node's place in the tree. `None` if it has no place.
    pub fn tree(&self, group: GroupId, source: NodeId) -> Option<TreeLinks> {
        self.fabric.tree_links(group, source, self.node)
    }

    /// As [`tree`](Context::tree), only the link towards the source.
    pub(crate) fn tree_upstream(&self, group: GroupId, source: NodeId) -> Option<LinkId> {
        self.fabric.tree_upstream(group, source, self.node)
    }

    /// As [`tree`](Context::tree), only whether this link leads away from the source.
    pub(crate) fn is_tree_downstream(&self, group: GroupId, source: NodeId, link: LinkId) -> bool {
        self.fabric.is_tree_downstream(group, source, self.node, link)
    }

    /// Whether the network has this node.
    pub(crate) fn exists(&self, node: NodeId) -> bool {
        self.fabric.network.check_node(node).is_ok()
    }

    /// The links of this node, ascending. O(links of the network).
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        let links = self.fabric.network.links();
        links.filter(|&(_, a, b)| a == self.node || b == self.node).map(|(link, ..)| link)
    }

    /// The node at the other end of a link of this node.
    pub(crate) fn far_end(&self, link: LinkId) -> Option<NodeId> {
        self.fabric.neighbour(self.node, link)
    }

    /// Whether nothing but switches lies between this node and `other`.
    pub(crate) fn is_attached(&mut self, other: NodeId) -> bool {
        self.exists(other) && self.fabric.is_attached(self.node, other)
    }

    /// A buffer for an engine's datagrams. The last one may be given back for the next to use.
    pub(crate) fn scratch(&mut self) -> &mut TransmitBuf {
        &mut self.fabric.scratch
    }
}

/// A node's place in a multicast tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeLinks {
    /// The link towards the source; `None` at the source, and where there is none yet.
    pub upstream: Option<LinkId>,
    /// The links away from the source.
    pub downstream: Vec<LinkId>,
}
