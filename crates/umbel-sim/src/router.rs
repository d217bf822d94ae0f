//! Engines that live in routers.

use std::any::Any;
use std::fmt;
use std::net::IpAddr;

use bytes::Bytes;
use umbel_engine::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterEngine, Routes, Upstream, Verdict,
};
use umbel_engine::{Address, Instant};
use umbel_wire::Channel;

use crate::address::{PORT, address_of, channel, channel_parts, node_of};
use crate::app::Context;
use crate::network::{LinkId, NodeId};
use crate::packet::{Destination, GroupId, Kind, Packet};

/// Reaction of a router to a packet after its hook has seen it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarding {
    /// The router handles the packet as it would without the hook.
    Plain,
    /// The router does nothing: the hook has handled the packet.
    Taken,
}

/// Protocol logic in a router or a switch. It sees every packet that passes.
///
/// It does not see the packets that it sends itself ([`Context::send`], [`Context::send_on`]).
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

/// A [`RouterHook`] that runs a [`RouterEngine`] as the router daemon does.
///
/// Interfaces are the router's links, by their numbers. Addresses are those of [`address_of`]. The
/// routers on a link are the node at its far end.
pub struct RouterHost<E> {
    engine: E,
    kind: fn(&[u8]) -> Kind,
}

impl<E: RouterEngine> RouterHost<E> {
    /// Creates a hook that runs `engine`. `kind` returns the purpose of a datagram that it sends.
    pub fn new(engine: E, kind: fn(&[u8]) -> Kind) -> RouterHost<E> {
        RouterHost { engine, kind }
    }

    /// Returns the engine.
    pub fn engine(&self) -> &E {
        &self.engine
    }

    /// Returns a mutable reference to the engine. An engine that replaces it has the state of a
    /// router that was just started, and is not woken before a packet passes.
    pub fn engine_mut(&mut self) -> &mut E {
        &mut self.engine
    }

    fn drain(&mut self, context: &mut Context<'_>) {
        while let Some(transmit) = self.engine.poll_transmit(context.now()) {
            self.send(context, transmit.to, transmit.payload);
        }
        context.wake_at(self.engine.poll_timeout());
    }

    fn send(&self, context: &mut Context<'_>, to: RouterDestination, payload: Bytes) {
        let kind = (self.kind)(&payload);
        let me = context.node();
        let packet = |source, destination| Packet::new(source, destination, kind, payload);
        match to {
            RouterDestination::Host(address) => {
                if let Some(node) = node_of(address.ip()) {
                    context.send(packet(me, Destination::Unicast(node)));
                }
            }
            RouterDestination::Branch { channel, interface } => {
                if let Some((source, group)) = group_and_source(context, &channel) {
                    let packet = packet(source, Destination::Group(group));
                    context.send_on(LinkId(interface.0), packet);
                }
            }
            RouterDestination::Neighbours { interface, .. } => {
                let link = LinkId(interface.0);
                if let Some(neighbour) = context.far_end(link) {
                    context.send_on(link, packet(me, Destination::Unicast(neighbour)));
                }
            }
        }
    }
}

impl<E: fmt::Debug> fmt::Debug for RouterHost<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouterHost").field("engine", &self.engine).finish_non_exhaustive()
    }
}

impl<E: RouterEngine + Send + 'static> RouterHook for RouterHost<E> {
    fn start(&mut self, context: &mut Context<'_>) {
        self.drain(context);
    }

    fn forward(
        &mut self,
        context: &mut Context<'_>,
        packet: &Packet,
        arrived_on: LinkId,
    ) -> Forwarding {
        let to = match packet.destination {
            Destination::Unicast(node) => Address::Host((address_of(node), PORT).into()),
            Destination::Group(group) => {
                let Some(parts) = context.channel_parts(group) else { return Forwarding::Plain };
                let mut channel = channel(parts.source, parts.group);
                channel.source = Some(address_of(packet.source).into());
                Address::Channel(channel)
            }
        };
        let datagram = PassingDatagram {
            arrived_on: InterfaceId(arrived_on.0),
            from: (address_of(packet.source), PORT).into(),
            to,
            payload: &packet.payload,
        };
        let now = context.now();
        let verdict = self.engine.handle_datagram(now, &mut TreeRoutes(context), datagram);
        self.drain(context);
        match verdict {
            Verdict::Forward => Forwarding::Plain,
            Verdict::Take => Forwarding::Taken,
        }
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        if self.engine.poll_timeout().is_some_and(|at: Instant| at <= now) {
            self.engine.handle_timeout(now, &mut TreeRoutes(context));
        }
        self.drain(context);
    }
}

/// Returns the source and the number of a channel. Groups of any source have a tree for each
/// source.
fn group_and_source(context: &mut Context<'_>, of: &Channel) -> Option<(NodeId, GroupId)> {
    let (source, number) = channel_parts(of)?;
    let source = source.filter(|source| context.exists(*source))?;
    let only = (channel(Some(source), number).group == of.group).then_some(source);
    Some((source, context.group(only, number)))
}

/// Routes of the simulated routers. Channels have one source, whose tree is used.
struct TreeRoutes<'a, 'b>(&'a mut Context<'b>);

impl Routes for TreeRoutes<'_, '_> {
    fn upstream(&mut self, channel: &Channel) -> Option<Upstream> {
        let (source, group) = group_and_source(self.0, channel)?;
        let link = self.0.tree_upstream(group, source)?;
        Some(Upstream::Interface(InterfaceId(link.0)))
    }

    fn is_downstream(&mut self, channel: &Channel, interface: InterfaceId) -> bool {
        group_and_source(self.0, channel).is_some_and(|(source, group)| {
            self.0.is_tree_downstream(group, source, LinkId(interface.0))
        })
    }

    fn downstream(&mut self, channel: &Channel, to: &mut Vec<InterfaceId>) {
        let Some((source, group)) = group_and_source(self.0, channel) else { return };
        let Some(tree) = self.0.tree(group, source) else { return };
        let start = to.len();
        to.extend(tree.downstream.iter().map(|link| InterfaceId(link.0)));
        to[start..].sort_unstable();
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend(self.0.links().map(|link| InterfaceId(link.0)));
    }

    fn is_attached(&mut self, host: IpAddr) -> bool {
        node_of(host).is_some_and(|node| self.0.is_attached(node))
    }
}
