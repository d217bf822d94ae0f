//! Unicast routes, and news of all that changes them.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteNextHop, RouteType, RouteVia,
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
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Oif(index) => interface = Some(InterfaceId(*index)),
                RouteAttribute::Gateway(address) => gateway = address_of(address),
                RouteAttribute::Via(via) => gateway = via_of(via),
                RouteAttribute::Destination(address) => to = address_of(address),
                RouteAttribute::MultiPath(hops) => hops.iter().for_each(|hop| self.add_hop(hop)),
                _ => {}
            }
        }
        let Some(interface) = interface else { return };
        // Hosts that send to groups have such a route. It leads to no router.
        if to.is_some_and(|to| to.is_multicast()) {
            return;
        }
        let any: IpAddr = match route.header.address_family {
            AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
            _ => Ipv6Addr::UNSPECIFIED.into(),
        };
        match gateway {
            Some(gateway) => drop(self.gateways.insert((interface, gateway))),
            None if self.on_link.len() < ON_LINK => {
                let len = route.header.destination_prefix_length;
                self.on_link.insert((interface, to.unwrap_or(any), len));
            }
            None => {}
        }
    }

    /// Adds one of several next hops of a route.
    fn add_hop(&mut self, hop: &RouteNextHop) {
        let gateway = hop.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(address) => address_of(address),
            RouteAttribute::Via(via) => via_of(via),
            _ => None,
        });
        if let Some(gateway) = gateway {
            self.gateways.insert((InterfaceId(hop.interface_index), gateway));
        }
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
        self.gateways.iter().any(|(on, gateway)| is_here(*on, *gateway))
            || self.on_link.iter().any(|&(on, to, len)| is_here(on, to) && !is_in(to, len))
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

    fn is_gateway(&self, interface: InterfaceId, host: IpAddr) -> bool {
        self.with_ways(|ways| ways.gateways.contains(&(interface, host)))
    }
}

fn look_up(questions: &mut Questions, host: IpAddr) -> io::Result<Option<NextHop>> {
    let mut question = RouteMessage::default();
    let (family, bits) = match host {
        IpAddr::V4(_) => (AddressFamily::Inet, 32),
        IpAddr::V6(_) => (AddressFamily::Inet6, 128),
    };
    question.header.address_family = family;
    question.header.destination_prefix_length = bits;
    question.attributes.push(RouteAttribute::Destination(RouteAddress::from(host)));
    let answers = questions.ask(RouteNetlinkMessage::GetRoute(question), Answers::One)?;
    let Some(RouteNetlinkMessage::NewRoute(route)) = answers.first() else { return Ok(None) };
    if route.header.kind != RouteType::Unicast {
        return Ok(None);
    }
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
    Ok(interface.map(|interface| NextHop { interface, gateway, metric }))
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
        ways.gateways.insert((InterfaceId(1), "fe80::9".parse().unwrap()));
        assert!(!leads(&ways, 1, Family::Ipv4) && leads(&ways, 1, Family::Ipv6));
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
