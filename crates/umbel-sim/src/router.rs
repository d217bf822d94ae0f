//! Engines that live in routers.

use std::any::Any;

use crate::app::Context;
use crate::network::LinkId;
use crate::packet::Packet;

/// What a router does with a packet after its hook has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// What it would have done without the hook.
    Plain,
    /// Nothing: the hook has dealt with it.
    Taken,
}

/// Protocol logic in a router or a switch. It sees every packet that comes by.
///
/// Packets that it sends itself ([`Context::send`], [`Context::send_on`]) do not come by again.
pub trait RouterHook: Any + Send {
    /// Called once, at the start of the run.
    fn start(&mut self, _context: &mut Context<'_>) {}

    /// Looks at a packet before it is forwarded, or at one that is addressed to this router.
    fn forward(
        &mut self,
        context: &mut Context<'_>,
        packet: &Packet,
        arrived_on: LinkId,
    ) -> Forwarding;

    /// Called when the timer of [`Context::wake_at`] is due.
    fn wake(&mut self, _context: &mut Context<'_>) {}
}
