//! The interface of engines that live in routers to their host.
//!
//! The host is the simulator or the router daemon. It does the plain forwarding, unicast and
//! multicast. The engine inspects passing datagrams, takes those that it must handle, and sends its
//! own datagrams. It learns the state of the routing protocols from [`Routes`].

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use umbel_wire::Channel;

use crate::{Address, Instant};

/// An interface of the router, numbered by the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u32);

/// A datagram that arrived at the router, addressed to it or to others.
#[derive(Clone, Copy, Debug)]
pub struct PassingDatagram<'a> {
    /// Interface on which it arrived.
    pub arrived_on: InterfaceId,
    /// Its source address, as the IP header states it.
    pub from: SocketAddr,
    /// Its destination. It is a host, which may be this router, or a channel (group, port, and the
    /// sender as `source`).
    pub to: Address,
    /// UDP payload.
    pub payload: &'a [u8],
}

/// An engine's decision about a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host forwards it as if there were no engine.
    Forward,
    /// The host does nothing more with it.
    Take,
}

/// The direction from a router to the root of a multicast tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// The root is reached through this interface.
    Interface(InterfaceId),
    /// This router is the root, the core of a shared tree.
    Root,
}

/// The state of unicast and multicast routing now, as a router engine's host knows it.
pub trait Routes {
    /// Returns the interface on which a channel's packets arrive, or that this router is the root
    /// of their tree. Returns `None` if the router is not on the tree.
    fn upstream(&mut self, channel: &Channel) -> Option<Upstream>;

    /// Returns whether a channel's packets go out on this interface.
    fn is_downstream(&mut self, channel: &Channel, interface: InterfaceId) -> bool;

    /// Adds to `to` the interfaces on which a channel's packets go out, ascending.
    fn downstream(&mut self, channel: &Channel, to: &mut Vec<InterfaceId>);

    /// Adds to `to` all interfaces, ascending.
    fn interfaces(&mut self, to: &mut Vec<InterfaceId>);

    /// Returns whether this host is on one of the router's own links.
    fn is_attached(&mut self, host: IpAddr) -> bool;
}

/// The destination of a router engine's datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterDestination {
    /// A host, reached by unicast. The datagram comes from the router's own address.
    Host(SocketAddr),
    /// One branch of the tree. The datagram leaves by one interface and goes down the tree from
    /// there, as if it came from the channel's source. `channel.source` is set.
    Branch {
        /// The channel.
        channel: Channel,
        /// The interface.
        interface: InterfaceId,
    },
    /// The routers on one interface and no further (a link-local group), at this port.
    Neighbours {
        /// The interface.
        interface: InterfaceId,
        /// UDP destination port.
        port: u16,
    },
}

/// A datagram that a router engine sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouterTransmit {
    /// Its destination.
    pub to: RouterDestination,
    /// Whether routers on the way must look at it: the IP Router Alert option [RFC 2113].
    pub alert: bool,
    /// UDP payload.
    pub payload: Bytes,
}

/// A protocol engine that lives in a router.
///
/// One rule, as for [`Engine`](crate::Engine): after each `handle_*`, drain
/// [`poll_transmit`](RouterEngine::poll_transmit) until it returns `None`, then read
/// [`poll_timeout`](RouterEngine::poll_timeout). Waking early is harmless.
///
/// A host passes to the engine every datagram that is addressed to the router or carries the Router
/// Alert option. It may pass any other too, and the engine returns [`Verdict::Forward`] for those
/// that are not its own. Datagrams that the engine sends are not passed to it again.
pub trait RouterEngine {
    /// Inspects a datagram. An invalid one is a counted drop, or is forwarded as if there were no
    /// engine.
    fn handle_datagram(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: PassingDatagram<'_>,
    ) -> Verdict;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant, routes: &mut dyn Routes);

    /// Returns the next datagram to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<RouterTransmit>;

    /// Returns the time at which [`handle_timeout`](RouterEngine::handle_timeout) is next due.
    fn poll_timeout(&self) -> Option<Instant>;
}
