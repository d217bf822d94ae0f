//! What runs on a host.

use std::any::Any;
use std::marker::PhantomData;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::Instant;

use crate::network::{LinkId, NodeId};
use crate::packet::{GroupId, Packet};
use crate::trace::Note;

/// The program of a host.
pub trait App: Any + Send {
    /// Called once, at the start time that [`Simulation::set_app`](crate::Simulation::set_app)
    /// was given.
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
    todo: PhantomData<&'a mut ()>,
}

#[expect(clippy::unused_self, clippy::needless_pass_by_value, reason = "not written yet")]
impl Context<'_> {
    /// The simulated time.
    pub fn now(&self) -> Instant {
        todo!()
    }

    /// The node that this runs on.
    pub fn node(&self) -> NodeId {
        todo!()
    }

    /// Sends a packet.
    pub fn send(&mut self, _packet: Packet) {
        todo!()
    }

    /// Sends a packet on one link; at the far end it travels on as usual.
    pub fn send_on(&mut self, _link: LinkId, _packet: Packet) {
        todo!()
    }

    /// Sends a message on the reliable, ordered session with another host.
    pub fn send_message(&mut self, _to: NodeId, _message: Bytes) {
        todo!()
    }

    /// The channel of a group and its only source, or of any source.
    pub fn group(&mut self, _source: Option<NodeId>, _group: u32) -> GroupId {
        todo!()
    }

    /// Receives this channel from now on; the tree grows towards here hop by hop.
    pub fn join(&mut self, _group: GroupId) {
        todo!()
    }

    /// No longer receives this channel.
    pub fn leave(&mut self, _group: GroupId) {
        todo!()
    }

    /// Sets, moves or clears the one timer of this node.
    pub fn wake_at(&mut self, _at: Option<Instant>) {
        todo!()
    }

    /// This node's own stream of random numbers.
    pub fn random(&mut self) -> &mut Xoshiro256PlusPlus {
        todo!()
    }

    /// Takes the host off the network for good: it leaves its groups and gets nothing any more.
    pub fn stop_node(&mut self) {
        todo!()
    }

    /// Writes something into the trace.
    pub fn note(&mut self, _note: Note) {
        todo!()
    }
}
