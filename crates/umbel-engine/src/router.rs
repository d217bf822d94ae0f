//! What engines that live in routers offer to their host.
//!
//! The host is the simulator or the router daemon. It does the plain forwarding, unicast and
//! multicast; the engine looks at what comes by, takes what it has to deal with, and sends
//! datagrams of its own. The engine learns from [`Routes`] what the routing protocols know.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use umbel_wire::Channel;

use crate::{Address, Instant};

/// An interface of the router. The host gives each its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InterfaceId(pub u32);

/// A datagram that came to the router, to it or on the way to others.
#[derive(Clone, Copy, Debug)]
pub struct PassingDatagram<'a> {
    /// Where it came in.
    pub arrived_on: InterfaceId,
    /// Its source address, as the network says.
    pub from: SocketAddr,
    /// Its destination: a host, which may be this router, or a channel (group, port, and the
    /// sender as `source`).
    pub to: Address,
    /// UDP payload.
    pub payload: &'a [u8],
}

/// What becomes of a datagram that an engine has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The host forwards it as if there were no engine.
    Forward,
    /// The host does nothing more with it.
    Take,
}

/// The way from a router to the root of a multicast tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// By this interface.
    Interface(InterfaceId),
    /// There is none: this router is the root, the core of a shared tree.
    Root,
}

/// What a router engine may ask its host: the state of unicast and multicast routing now.
pub trait Routes {
    /// The interface by which a channel's packets come, or that this router is the root of their
    /// tree; `None` where it has no place in the tree.
    fn upstream(&mut self, channel: &Channel) -> Option<Upstream>;

    /// Whether a channel's packets go out on this interface.
    fn is_downstream(&mut self, channel: &Channel, interface: InterfaceId) -> bool;

    /// Adds to `to` the interfaces on which a channel's packets go out, ascending.
    fn downstream(&mut self, channel: &Channel, to: &mut Vec<InterfaceId>);

    /// Adds to `to` all interfaces, ascending.
    fn interfaces(&mut self, to: &mut Vec<InterfaceId>);

    /// Whether this host is on one of the router's own links.
    fn is_attached(&mut self, host: IpAddr) -> bool;
}

/// Where a router engine's datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouterDestination {
    /// Along the route to a host, from the router's own address.
    Host(SocketAddr),
    /// Out of one interface, and from there down the tree as if it came from the channel's
    /// source; `channel.source` is set.
    Branch {
        /// The channel.
        channel: Channel,
        /// The interface.
        interface: InterfaceId,
    },
    /// To the routers on one interface and no further (a link-local group), at this port.
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
    /// Where it goes.
    pub to: RouterDestination,
    /// Whether routers on the way are to look at it: the IP Router Alert option [RFC 2113].
    pub alert: bool,
    /// UDP payload.
    pub payload: Bytes,
}

/// A protocol engine that lives in a router.
///
/// One rule, as for [`Engine`](crate::Engine): after each `handle_*`, drain
/// [`poll_transmit`](RouterEngine::poll_transmit) until it gives `None`, then read
/// [`poll_timeout`](RouterEngine::poll_timeout). Waking early is harmless.
///
/// A host passes to the engine every datagram that is addressed to the router or carries the
/// Router Alert option. It may pass any other too: the engine gives [`Verdict::Forward`] for
/// what is not its own. Datagrams that the engine sends are not passed to it again.
pub trait RouterEngine {
    /// Looks at a datagram. A bad one is a counted drop, or forwarded as if it were not looked
    /// at.
    fn handle_datagram(
        &mut self,
        now: Instant,
        routes: &mut dyn Routes,
        datagram: PassingDatagram<'_>,
    ) -> Verdict;

    /// Does what is due at `now`.
    fn handle_timeout(&mut self, now: Instant, routes: &mut dyn Routes);

    /// The next datagram to send.
    fn poll_transmit(&mut self, now: Instant) -> Option<RouterTransmit>;

    /// When [`handle_timeout`](RouterEngine::handle_timeout) wants to be called next.
    fn poll_timeout(&self) -> Option<Instant>;
}
