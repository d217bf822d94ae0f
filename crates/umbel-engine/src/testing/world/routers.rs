//! Routers with engines, which form a tree between the hosts.
//!
//! A host is attached to the router of its subnet's number, by a link of its own. Every datagram
//! passes from router to router; each router's engine sees it before it is forwarded, as
//! [`RouterEngine`] demands. A host's [`up`](super::Host::up) and [`down`](super::Host::down) are
//! the conditions on its link, [`Network::weather`] those on each link between routers. A
//! [partition](Network::partition) between two neighbouring routers cuts their link.
//!
//! A world without routers has nothing of this: [`Network::carry`] brings its datagrams from end to
//! end.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use umbel_wire::Channel;

use super::network::{Arrival, Link};
use super::{Happening, Network, Protocol, World};
use crate::router::{
    InterfaceId, PassingDatagram, RouterDestination, RouterTransmit, Routes, Upstream, Verdict,
};
use crate::testing::Tested;
use crate::{Address, Instant, RouterEngine, Transmit};

/// Number of the interface to host 0. Those to routers have the numbers of the routers.
const HOSTS: u32 = 1_000;

/// The router of protocols that have none.
#[derive(Debug)]
pub(crate) enum NoRouter {}

impl RouterEngine for NoRouter {
    fn handle_datagram(
        &mut self,
        _: Instant,
        _: &mut dyn Routes,
        _: PassingDatagram<'_>,
    ) -> Verdict {
        match *self {}
    }

    fn handle_timeout(&mut self, _: Instant, _: &mut dyn Routes) {
        match *self {}
    }

    fn poll_transmit(&mut self, _: Instant) -> Option<RouterTransmit> {
        match *self {}
    }

    fn poll_timeout(&self) -> Option<Instant> {
        match *self {}
    }
}

/// A router: its engine, which tests may replace by a new one.
#[derive(Debug)]
pub(crate) struct Router<E> {
    pub(crate) engine: Tested<E>,
    /// Place of its next wake-up in the world's calendar.
    wake: Option<(Instant, u64)>,
}

/// The routers' places in the network.
#[derive(Debug, Default)]
pub(super) struct Tree {
    /// Each router's address, and the router above. The first has none.
    nodes: Vec<(SocketAddr, Option<usize>)>,
}

impl Tree {
    pub(super) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    fn find(&self, address: SocketAddr) -> Option<usize> {
        self.nodes.iter().position(|node| node.0 == address)
    }
}

/// An end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Router(usize),
    Host(usize),
}

impl Node {
    fn interface(self) -> InterfaceId {
        match self {
            Node::Router(router) => InterfaceId(router as u32),
            Node::Host(host) => InterfaceId(HOSTS + host as u32),
        }
    }

    fn behind(InterfaceId(number): InterfaceId) -> Node {
        match number.checked_sub(HOSTS) {
            Some(host) => Node::Host(host as usize),
            None => Node::Router(number as usize),
        }
    }
}

/// A datagram on its way through routers.
#[derive(Clone, Debug)]
pub(super) struct Parcel {
    sender: SocketAddr,
    to: Address,
    /// Number of further links that it may go.
    hop_limit: u8,
    pub(super) payload: Bytes,
}

impl Network {
    /// Returns the nodes on a router's links: the router above, those below, and hosts.
    fn neighbours(&self, router: usize) -> Vec<Node> {
        let above = self.tree.nodes[router].1;
        let below = (0..self.tree.nodes.len()).filter(|&n| self.tree.nodes[n].1 == Some(router));
        let hosts = (0..self.hosts.len()).filter(|&n| self.hosts[n].subnet == router);
        above.into_iter().chain(below).map(Node::Router).chain(hosts.map(Node::Host)).collect()
    }

    /// Returns the node to which a router sends what is for another.
    fn next_hop(&self, router: usize, to: Node) -> Option<Node> {
        let mut at = match to {
            Node::Host(host) if self.hosts[host].subnet == router => return Some(to),
            Node::Host(host) => self.hosts[host].subnet,
            Node::Router(to) => to,
        };
        // Upwards from there: either this router is on the way, or it is above.
        while let Some(above) = self.tree.nodes[at].1 {
            if above == router {
                return Some(Node::Router(at));
            }
            at = above;
        }
        self.tree.nodes[router].1.map(Node::Router)
    }

    /// Returns the node that has this address.
    fn node(&self, address: SocketAddr) -> Option<Node> {
        let router = self.tree.find(address).map(Node::Router);
        let host = || self.hosts.iter().position(|host| host.address == address).map(Node::Host);
        router.or_else(host)
    }

    fn next_hop_to_source(&self, router: usize, channel: &Channel) -> Option<Node> {
        let source = channel.source?;
        let host = self.hosts.iter().position(|host| host.address.ip() == source)?;
        self.next_hop(router, Node::Host(host))
    }

    /// Returns whether anyone beyond one of a router's neighbours receives a channel.
    fn is_wanted_beyond(&self, router: usize, neighbour: Node, channel: Channel) -> bool {
        match neighbour {
            Node::Host(host) => {
                let sender = channel.source.unwrap_or(IpAddr::from([0; 4]));
                let host = &self.hosts[host];
                host.address.ip() != sender && host.receives(channel, sender)
            }
            Node::Router(next) => self
                .neighbours(next)
                .into_iter()
                .filter(|node| *node != Node::Router(router))
                .any(|node| self.is_wanted_beyond(next, node, channel)),
        }
    }

    /// Returns the nodes to which a router passes on what a channel's source sends.
    fn branches(&self, router: usize, channel: Channel) -> Vec<Node> {
        let towards = self.next_hop_to_source(router, &channel);
        let mut nodes = self.neighbours(router);
        nodes
            .retain(|node| Some(*node) != towards && self.is_wanted_beyond(router, *node, channel));
        nodes
    }

    /// Returns the conditions on a link, or `None` if it is cut.
    fn link(&self, from: Node, to: Node) -> Option<Link> {
        match (from, to) {
            (Node::Host(host), _) => Some(self.hosts[host].up),
            (_, Node::Host(host)) => Some(self.hosts[host].down),
            (Node::Router(a), Node::Router(b)) => {
                let hop = Link { jitter: self.hop.1, ..Link::delayed(self.hop.0) };
                self.connects(a, b).then(|| self.weather.then(hop))
            }
        }
    }

    /// Returns the times at which a datagram comes to the other end of a link.
    fn cross(&mut self, now: Instant, from: Node, to: Node, len: usize) -> Vec<Instant> {
        let Some(link) = self.link(from, to) else { return Vec::new() };
        let copies = 1 + usize::from(self.draw(link.duplicates));
        let arrivals = (0..copies).filter_map(|_| {
            let is_lost = self.draw(link.loss);
            let at = now + link.delay + self.jitter(link);
            match to {
                _ if is_lost => None,
                Node::Host(host) => self.queue(host, at, len),
                Node::Router(_) => Some(at),
            }
        });
        arrivals.collect()
    }
}

/// What multicast routing tells a router.
struct RoutesOf<'a> {
    network: &'a Network,
    router: usize,
}

impl Routes for RoutesOf<'_> {
    fn upstream(&mut self, channel: &Channel) -> Option<Upstream> {
        let towards = self.network.next_hop_to_source(self.router, channel)?;
        let is_on_tree = !self.network.branches(self.router, *channel).is_empty();
        is_on_tree.then_some(Upstream::Interface(towards.interface()))
    }

    fn is_downstream(&mut self, channel: &Channel, interface: InterfaceId) -> bool {
        self.network.branches(self.router, *channel).contains(&Node::behind(interface))
    }

    fn downstream(&mut self, channel: &Channel, to: &mut Vec<InterfaceId>) {
        let branches = self.network.branches(self.router, *channel);
        to.extend(branches.into_iter().map(Node::interface));
        to.sort_unstable();
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend(self.network.neighbours(self.router).into_iter().map(Node::interface));
        to.sort_unstable();
    }

    fn is_attached(&mut self, host: IpAddr) -> bool {
        let hosts = &self.network.hosts;
        hosts.iter().any(|place| place.address.ip() == host && place.subnet == self.router)
    }
}

impl<P: Protocol> World<P> {
    /// Adds a router below another. The first is the root of the tree. Returns its number.
    pub(crate) fn add_router(
        &mut self,
        mut engine: Tested<P::Router>,
        address: SocketAddr,
        above: Option<usize>,
    ) -> usize {
        assert_eq!(above.is_none(), self.routers.is_empty(), "one router is the root");
        self.allowed.iter().for_each(|reason| engine.allow(reason));
        self.network.tree.nodes.push((address, above));
        self.routers.push(Router { engine, wake: None });
        let router = self.routers.len() - 1;
        self.drain_router(router);
        router
    }

    /// Lets an engine that has just started take the place of a router's.
    pub(crate) fn restart_router(&mut self, router: usize, mut engine: Tested<P::Router>) {
        self.allowed.iter().for_each(|reason| engine.allow(reason));
        self.routers[router].engine = engine;
        self.drain_router(router);
    }

    /// Sends a datagram of a host to its router.
    pub(super) fn send_by_routers(&mut self, from: usize, transmit: Transmit, payload: Bytes) {
        let place = &self.network.hosts[from];
        let (sender, router) = (place.address, Node::Router(place.subnet));
        let to = match transmit.to {
            Address::Channel(to) => Address::Channel(Channel { source: Some(sender.ip()), ..to }),
            to => to,
        };
        let hop_limit = transmit.hop_limit.unwrap_or(64);
        assert!(hop_limit > 0, "{transmit:?} goes nowhere");
        self.hop(Node::Host(from), router, &Parcel { sender, to, hop_limit, payload });
    }

    /// Sends a datagram by a link.
    fn hop(&mut self, from: Node, to: Node, parcel: &Parcel) {
        let Parcel { sender, to: destination, hop_limit, ref payload } = *parcel;
        for at in self.network.cross(self.now, from, to, payload.len()) {
            let happening = match to {
                Node::Router(router) => Happening::Passing { router, from, parcel: parcel.clone() },
                Node::Host(to) => {
                    let by = match destination {
                        Address::Host(_) => Address::Host(sender),
                        by => by,
                    };
                    Happening::arrival(Arrival { at, to, by, hop_limit }, payload.clone())
                }
            };
            self.schedule(at, happening);
        }
    }

    /// Lets a router's engine see a datagram, and forwards it if the engine says so.
    pub(super) fn pass_router(&mut self, router: usize, from: Node, parcel: Parcel) {
        let (now, network) = (self.now, &self.network);
        let datagram = PassingDatagram {
            arrived_on: from.interface(),
            from: parcel.sender,
            to: parcel.to,
            payload: &parcel.payload,
        };
        let engine = &mut self.routers[router].engine;
        let verdict = engine.handle_datagram(now, &mut RoutesOf { network, router }, datagram);
        self.drain_router(router);
        if verdict == Verdict::Forward && parcel.hop_limit > 1 {
            let onward = Parcel { hop_limit: parcel.hop_limit - 1, ..parcel };
            self.forward(router, Some(from), &onward);
        }
    }

    /// Forwards a datagram as every router does.
    fn forward(&mut self, router: usize, from: Option<Node>, parcel: &Parcel) {
        let next = match parcel.to {
            Address::Host(to) => match self.network.node(to) {
                Some(node) if node != Node::Router(router) => {
                    self.network.next_hop(router, node).into_iter().collect()
                }
                _ => Vec::new(),
            },
            Address::Channel(channel) => self.network.branches(router, channel),
            Address::Session(_) => panic!("sessions do not pass routers"),
        };
        for node in next.into_iter().filter(|node| Some(*node) != from) {
            self.hop(Node::Router(router), node, parcel);
        }
    }

    pub(super) fn wake_router(&mut self, router: usize) {
        let (now, network) = (self.now, &self.network);
        let Router { engine, wake } = &mut self.routers[router];
        *wake = None;
        if engine.poll_timeout().is_some_and(|due| due <= now) {
            engine.handle_timeout(now, &mut RoutesOf { network, router });
        }
        self.drain_router(router);
    }

    /// Takes everything that a router's engine has to send, and its next wake-up.
    fn drain_router(&mut self, router: usize) {
        while let Some(transmit) = self.routers[router].engine.poll_transmit(self.now) {
            self.send_of_router(router, &transmit);
        }
        let (due, now) = (self.routers[router].engine.poll_timeout(), self.now);
        if let Some(old) = self.routers[router].wake.take() {
            self.calendar.remove(&old);
        }
        let wake = due.map(|at| self.schedule(at.max(now), Happening::RouterWake(router)));
        self.routers[router].wake = wake;
    }

    fn send_of_router(&mut self, router: usize, transmit: &RouterTransmit) {
        let sender = self.network.tree.nodes[router].0;
        let parcel =
            |sender, to| Parcel { sender, to, hop_limit: 64, payload: transmit.payload.clone() };
        let me = Node::Router(router);
        match transmit.to {
            RouterDestination::Host(to) => {
                self.forward(router, None, &parcel(sender, Address::Host(to)));
            }
            RouterDestination::Branch { channel, interface } => {
                let source = (channel.source.expect("a branch has a source"), channel.port).into();
                let node = Node::behind(interface);
                if self.network.is_wanted_beyond(router, node, channel) {
                    self.hop(me, node, &parcel(source, Address::Channel(channel)));
                }
            }
            RouterDestination::Neighbours { interface, .. } => {
                if let node @ Node::Router(next) = Node::behind(interface) {
                    let to = Address::Host(self.network.tree.nodes[next].0);
                    self.hop(me, node, &parcel(sender, to));
                }
            }
        }
    }
}
