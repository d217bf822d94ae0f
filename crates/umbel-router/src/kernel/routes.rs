//! Unicast routes, and news of all that changes them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};

use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteType, RouteVia,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use umbel_engine::router::InterfaceId;

use super::netlink::{Answers, Questions};
use crate::control::{NextHop, UnicastRoutes};

/// Greatest number of hosts whose routes are remembered. Beyond it, all are forgotten.
const REMEMBERED: usize = 4096;

/// The kernel's unicast routes. Each host is looked up once, until [`Routing::forget`].
#[derive(Debug)]
pub struct Routing {
    inner: RefCell<Inner>,
}

#[derive(Debug)]
struct Inner {
    questions: Questions,
    known: BTreeMap<IpAddr, Option<NextHop>>,
}

impl Routing {
    /// Opens the way to ask.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn open() -> io::Result<Routing> {
        let inner = Inner { questions: Questions::open()?, known: BTreeMap::new() };
        Ok(Routing { inner: RefCell::new(inner) })
    }

    /// Forgets what it knows, since routes have changed.
    pub fn forget(&self) {
        self.inner.borrow_mut().known.clear();
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
            RouteAttribute::Gateway(RouteAddress::Inet(address))
            | RouteAttribute::Via(RouteVia::Inet(address)) => gateway = Some((*address).into()),
            RouteAttribute::Gateway(RouteAddress::Inet6(address))
            | RouteAttribute::Via(RouteVia::Inet6(address)) => gateway = Some((*address).into()),
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
