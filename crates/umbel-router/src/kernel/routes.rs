//! Unicast routes, and news of all that changes them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteNextHop, RouteNextHopFlags,
    RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use umbel_engine::router::InterfaceId;

use super::netlink::{Answers, Questions};
use crate::control::{Family, InterfaceAddress, NextHop, UnicastRoutes};

/// Greatest number of hosts whose routes are remembered. Beyond it, all are forgotten.
const REMEMBERED: usize = 4096;
/// Greatest number of destinations without a gateway that are remembered.
const ON_LINK: usize = 4096;

/// The kernel's unicast routes. Each host is looked up once, until [`Routing::forget`].
#[derive(Debug)]
pub struct Routing {
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    questions: Questions,
    known: BTreeMap<IpAddr, Option<NextHop>>,
    /// Where all routes lead, once somebody has asked.
    ways: Option<Ways>,
}

/// Where routes lead: by gateways, and to networks without one.
#[derive(Debug, Default)]
struct Ways {
    gateways: BTreeSet<(InterfaceId, IpAddr)>,
    /// Links with a gateway for destinations of a family. It may itself be of the other one.
    by_gateway: BTreeSet<(InterfaceId, Family)>,
    /// Destinations on links, at most [`ON_LINK`].
    on_link: BTreeSet<(InterfaceId, IpAddr, u8)>,
}

impl Ways {
    fn read(questions: &mut Questions) -> io::Result<Ways> {
        let mut ways = Ways::default();
        for family in [AddressFamily::Inet, AddressFamily::Inet6] {
            let mut question = RouteMessage::default();
            question.header.address_family = family;
            let question = RouteNetlinkMessage::GetRoute(question);
            for answer in questions.ask(question, Answers::All)? {
                if let RouteNetlinkMessage::NewRoute(route) = answer {
                    ways.add(&route);
                }
            }
        }
        Ok(ways)
    }

    fn add(&mut self, route: &RouteMessage) {
        if route.header.kind != RouteType::Unicast {
            return;
        }
        let (mut interface, mut gateway, mut to) = (None, None, None);
        let (family, any): (Family, IpAddr) = match route.header.address_family {
            AddressFamily::Inet => (Family::Ipv4, Ipv4Addr::UNSPECIFIED.into()),
            _ => (Family::Ipv6, Ipv6Addr::UNSPECIFIED.into()),
        };
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => interface = Some(InterfaceId(*index)),
                RouteAttribute::Gateway(address) => gateway = address_of(address),
                RouteAttribute::Via(via) => gateway = via_of(via),
                RouteAttribute::Destination(address) => to = address_of(address),
                RouteAttribute::MultiPath(hops) => {
                    for hop in hops {
                        self.add_hop(family, hop);
                    }
                }
                _ => {}
            }
        }
        let Some(interface) = interface else { return };
        // Hosts that send to groups have such a route. It leads to no router.
        if to.is_some_and(|to| to.is_multicast()) {
            return;
        }
        match gateway {
            Some(gateway) => self.add_gateway(family, interface, gateway),
            None if self.on_link.len() < ON_LINK => {
                let len = route.header.destination_prefix_length;
                self.on_link.insert((interface, to.unwrap_or(any), len));
            }
            None => {}
        }
    }

    /// Adds one of several next hops of a route.
    fn add_hop(&mut self, family: Family, hop: &RouteNextHop) {
        if let Some(gateway) = gateway_of(hop) {
            self.add_gateway(family, InterfaceId(hop.interface_index), gateway);
        }
    }

    fn add_gateway(&mut self, family: Family, interface: InterfaceId, gateway: IpAddr) {
        self.gateways.insert((interface, gateway));
        self.by_gateway.insert((interface, family));
    }

    /// Returns whether a destination without a gateway on a link has a host in it.
    fn lead_to(&self, interface: InterfaceId, host: IpAddr) -> bool {
        let least = (interface, IpAddr::from([0, 0, 0, 0]), 0);
        let mut here = self.on_link.range(least..).take_while(|(on, ..)| *on == interface);
        here.any(|&(_, address, prefix_len)| InterfaceAddress { address, prefix_len }.covers(host))
    }

    fn lead_beyond(
        &self,
        interface: InterfaceId,
        family: Family,
        networks: &[InterfaceAddress],
    ) -> bool {
        let is_here = |on: InterfaceId, to: IpAddr| on == interface && Family::of(to) == family;
        let is_in = |to: IpAddr, len: u8| {
            networks.iter().any(|network| network.prefix_len <= len && network.covers(to))
        };
        // A route to one host without a gateway leads to that host.
        let is_host = |to: IpAddr, len: u8| len == if to.is_ipv4() { 32 } else { 128 };
        let leads = |to, len| !is_host(to, len) && !is_in(to, len);
        self.by_gateway.contains(&(interface, family))
            || self.on_link.iter().any(|&(on, to, len)| is_here(on, to) && leads(to, len))
    }
}

fn address_of(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn via_of(via: &RouteVia) -> Option<IpAddr> {
    match via {
        RouteVia::Inet(address) => Some((*address).into()),
        RouteVia::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

impl Routing {
    /// Opens the way to ask.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn open() -> io::Result<Routing> {
        let inner = Inner { questions: Questions::open()?, known: BTreeMap::new(), ways: None };
        Ok(Routing { inner: RefCell::new(inner) })
    }

    /// Forgets what it knows, since routes have changed.
    pub fn forget(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.known.clear();
        inner.ways = None;
    }

    fn with_ways(&self, ask: impl FnOnce(&Ways) -> bool) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Inner { questions, ways, .. } = &mut *inner;
        let read = || {
            Ways::read(questions).unwrap_or_else(|error| {
                tracing::warn!("cannot list the routes: {error}");
                Ways::default()
            })
        };
        ask(ways.get_or_insert_with(read))
    }
}

impl UnicastRoutes for Routing {
    fn towards(&self, host: IpAddr) -> Option<NextHop> {
        let mut inner = self.inner.borrow_mut();
        if let Some(known) = inner.known.get(&host) {
            return *known;
        }
        // No route is an error of the kernel, as are others that last.
        let found = look_up(&mut inner.questions, host).ok().flatten();
        if inner.known.len() >= REMEMBERED {
            inner.known.clear();
        }
        inner.known.insert(host, found);
        found
    }

    fn leads_beyond(
        &self,
        interface: InterfaceId,
        family: Family,
        networks: &[InterfaceAddress],
    ) -> bool {
        self.with_ways(|ways| ways.lead_beyond(interface, family, networks))
    }

    fn leads_to_link(&self, interface: InterfaceId, host: IpAddr) -> bool {
        // Strangers' addresses cost no question to the kernel.
        self.with_ways(|ways| ways.lead_to(interface, host))
            && self
                .towards(host)
                .is_some_and(|hop| hop.interface == interface && hop.gateway.is_none())
    }

    fn is_gateway(&self, interface: InterfaceId, host: IpAddr) -> bool {
        self.with_ways(|ways| ways.gateways.contains(&(interface, host)))
    }
}

/// Asks for the next hop towards a host.
fn look_up(questions: &mut Questions, host: IpAddr) -> io::Result<Option<NextHop>> {
    let Some(route) = route_to(questions, host, RouteFlags::empty())? else { return Ok(None) };
    let (mut interface, mut gateway, mut metric) = (None, None, 0);
    for attribute in &route.attributes {
        match attribute {
            RouteAttribute::Oif(index) => interface = Some(InterfaceId(*index)),
            RouteAttribute::Priority(priority) => metric = *priority,
            RouteAttribute::Gateway(address) => gateway = address_of(address),
            RouteAttribute::Via(via) => gateway = via_of(via),
            _ => {}
        }
    }
    let Some(interface) = interface else { return Ok(None) };
    let hop = NextHop { interface, gateway, metric };
    // Of several next hops, the kernel draws one for each host. Neighbours agree on the first.
    let whole = match gateway {
        Some(_) => route_to(questions, host, RouteFlags::FibMatch).ok().flatten(),
        None => None,
    };
    let hops = whole.iter().flat_map(|route| &route.attributes).find_map(|attribute| {
        let RouteAttribute::MultiPath(hops) = attribute else { return None };
        let is_dead = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
        hops.iter().find(|hop| !hop.flags.intersects(is_dead))
    });
    Ok(Some(hops.map_or(hop, |first| NextHop {
        interface: InterfaceId(first.interface_index),
        gateway: gateway_of(first),
        metric,
    })))
}

/// Returns the route to a host, as packets take it or, with a flag, as it was configured.
fn route_to(
    questions: &mut Questions,
    host: IpAddr,
    flags: RouteFlags,
) -> io::Result<Option<RouteMessage>> {
    let mut question = RouteMessage::default();
    let (family, bits) = match host {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    question.header.address_family = family;
    question.header.destination_prefix_length = bits;
    question.header.flags = flags;
    question.attributes.push(RouteAttribute::Destination(RouteAddress::from(host)));
    let answers = questions.ask(RouteNetlinkMessage::GetRoute(question), Answers::One)?;
    let Some(RouteNetlinkMessage::NewRoute(route)) = answers.into_iter().next() else {
        return Ok(None);
    };
    Ok((route.header.kind == RouteType::Unicast).then_some(route))
}

fn gateway_of(hop: &RouteNextHop) -> Option<IpAddr> {
    hop.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Gateway(address) => address_of(address),
        RouteAttribute::Via(via) => via_of(via),
        _ => None,
    })
}

/// News of interfaces, addresses and routes.
#[derive(Debug)]
pub struct Changes {
    socket: Socket,
}

impl Changes {
    /// Asks for news from now on.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn open() -> io::Result<Changes> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind(&SocketAddr::new(0, 0))?;
        socket.set_non_blocking(true)?;
        for group in [
            libc::RTNLGRP_LINK,
            libc::RTNLGRP_IPV4_IFADDR,
            libc::RTNLGRP_IPV6_IFADDR,
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV6_ROUTE,
            libc::RTNLGRP_IPV4_RULE,
        ] {
            socket.add_membership(group)?;
        }
        Ok(Changes { socket })
    }

    /// Takes all news that wait. Returns whether there were some.
    pub fn take(&self) -> bool {
        let mut any = false;
        let mut buffer = Vec::with_capacity(8 << 10);
        loop {
            buffer.clear();
            match self.socket.recv(&mut buffer, libc::MSG_TRUNC) {
                Ok(0) => return any,
                Ok(_) => any = true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return any,
                // There was no room for some of them.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => any = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return any,
            }
        }
    }
}

impl AsFd for Changes {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes_lead_beyond_a_link_by_a_gateway_or_to_another_network() {
        let mut ways = Ways::default();
        let network = |address: &str, prefix_len| InterfaceAddress {
            address: address.parse().unwrap(),
            prefix_len,
        };
        let own = [network("10.1.0.1", 24), network("fe80::1", 64)];
        let leads = |ways: &Ways, on, family| ways.lead_beyond(InterfaceId(on), family, &own);
        for (to, len) in [("10.1.0.0", 24), ("10.1.0.64", 26), ("fe80::", 64)] {
            ways.on_link.insert((InterfaceId(1), to.parse().unwrap(), len));
        }
        // That of a host for all groups, which commands name where there is no default route.
        let mut groups = RouteMessage::default();
        groups.header.address_family = AddressFamily::Inet;
        groups.header.kind = RouteType::Unicast;
        groups.header.destination_prefix_length = 4;
        let to = RouteAttribute::Destination(RouteAddress::Inet([224, 0, 0, 0].into()));
        groups.attributes = vec![RouteAttribute::Oif(1), to];
        ways.add(&groups);
        assert!(!leads(&ways, 1, Family::Ipv4) && !leads(&ways, 1, Family::Ipv6));
        ways.add_gateway(Family::Ipv6, InterfaceId(1), "fe80::9".parse().unwrap());
        assert!(!leads(&ways, 1, Family::Ipv4) && leads(&ways, 1, Family::Ipv6));
        // Of IPv4 by a router that has none here [RFC 5549].
        ways.add_gateway(Family::Ipv4, InterfaceId(4), "fe80::9".parse().unwrap());
        assert!(leads(&ways, 4, Family::Ipv4) && !leads(&ways, 4, Family::Ipv6));
        // A host that is there by a route of its own is no way to others.
        ways.on_link.insert((InterfaceId(1), "192.0.2.9".parse().unwrap(), 32));
        assert!(!leads(&ways, 1, Family::Ipv4));
        for (host, is_there) in [("192.0.2.9", true), ("192.0.2.8", false), ("10.1.0.7", true)] {
            assert_eq!(ways.lead_to(InterfaceId(1), host.parse().unwrap()), is_there, "{host}");
            assert!(!ways.lead_to(InterfaceId(2), host.parse().unwrap()), "{host}");
        }
        for (on, to, len) in [(1, "10.0.0.0", 8), (2, "0.0.0.0", 0)] {
            ways.on_link.insert((InterfaceId(on), to.parse().unwrap(), len));
        }
        assert!(leads(&ways, 1, Family::Ipv4) && leads(&ways, 2, Family::Ipv4));
        assert!(!leads(&ways, 3, Family::Ipv4) && !leads(&ways, 2, Family::Ipv6));
    }

    #[test]
    fn this_host_is_no_next_hop_and_is_asked_about_once() {
        let routing = Routing::open().unwrap();
        for _ in 0..2 {
            assert_eq!(routing.towards(IpAddr::from([127, 0, 0, 1])), None);
        }
        assert_eq!(routing.inner.borrow().known.len(), 1);
        routing.forget();
        assert_eq!(routing.inner.borrow().known.len(), 0);
    }
}
