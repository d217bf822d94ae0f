//! Network interfaces: listing them, resolving a user's choice, and finding the one that leads to a
//! peer.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;

use nix::ifaddrs::getifaddrs;
use nix::net::if_::{InterfaceFlags, if_nametoindex};

use crate::sys;

/// A network interface as it was at the time of the lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its number in the system; never 0.
    pub index: u32,
    /// Its name, such as `eth0`.
    pub name: String,
    /// Its IPv4 addresses. The one by which it was looked up comes first.
    pub v4: Vec<Ipv4Addr>,
    /// Its IPv6 addresses: the one by which it was looked up, then the others, link-local ones
    /// last.
    pub v6: Vec<Ipv6Addr>,
    /// Length of the largest IP packet that it carries unfragmented, in bytes.
    pub mtu: usize,
    /// Whether it can send and receive multicast. True for the loopback interface, which Linux does
    /// not mark so but on which multicast reaches the sockets of the same host.
    pub multicast: bool,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether it leads to this host only.
    pub loopback: bool,
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Returns the family of an address.
    pub const fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// Returns the bytes of the IP and UDP headers: 28 or 48, without IP options or extensions.
    pub const fn header_bytes(self) -> usize {
        match self {
            Family::V4 => 20 + 8,
            Family::V6 => 40 + 8,
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        })
    }
}

/// Packets that a kernel may forward, by where they go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Packets for one host.
    Unicast,
    /// Packets for a group.
    Multicast,
}

/// The reason why no interface can be used.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// No interface has this name.
    #[error("there is no interface `{name}`: use one of {}", list(.existing))]
    NoSuchName {
        /// The name that was requested.
        name: String,
        /// The existing interfaces.
        existing: Vec<String>,
    },
    /// No interface has this address.
    #[error("no interface has the address {address}: use one of {}", list(.existing))]
    NoSuchAddress {
        /// The address that was requested.
        address: IpAddr,
        /// The existing interfaces, with their addresses.
        existing: Vec<String>,
    },
    /// Several interfaces have this link-local address, or might lead to it.
    #[error("{0} is the same on every link: say which one, such as {0}%eth0")]
    Ambiguous(Ipv6Addr),
    /// The interface cannot send multicast.
    #[error(
        "interface {0} does not do multicast: use another, or `ip link set dev {0} multicast on`"
    )]
    NoMulticast(String),
    /// The interface is switched off.
    #[error("interface {0} is down: `ip link set dev {0} up`")]
    Down(String),
    /// The interface has no address of the family.
    #[error("interface {name} has no {family} address: `ip addr add … dev {name}`, or use another")]
    NoAddress {
        /// The interface.
        name: String,
        /// The missing family.
        family: Family,
    },
    /// No interface but the loopback one has an address at which others reach this host.
    #[error("no interface has an address yet (`lo` leads to this host only: --interface lo)")]
    NoneReady,
    /// No route leads to the peer.
    #[error("no route to {peer} ({source}): check `ip route get {peer}`")]
    NoRoute {
        /// The destination.
        peer: IpAddr,
        /// The system's error.
        source: std::io::Error,
    },
    /// The system does not list its interfaces.
    #[error("cannot list the network interfaces: {0}")]
    System(#[from] std::io::Error),
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none, as there are none".to_owned() } else { names.join(", ") }
}

impl Interface {
    /// Returns all interfaces of this network namespace in the order of their numbers.
    ///
    /// # Errors
    ///
    /// If the system does not list them.
    pub fn list() -> Result<Vec<Interface>, InterfaceError> {
        let any = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))
            .or_else(|_| UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)))?;
        let mut found: Vec<Interface> = Vec::new();
        for entry in getifaddrs().map_err(std::io::Error::from)? {
            // An alias such as `eth0:1` is an address of `eth0`.
            let name = entry.interface_name.split(':').next().unwrap_or_default();
            let place = found.iter().position(|interface| interface.name == name);
            let place = if let Some(place) = place {
                place
            } else {
                // It may vanish while we look.
                let Ok(index) = if_nametoindex(name) else { continue };
                let Ok(mtu) = sys::mtu(any.as_fd(), name) else { continue };
                found.push(Interface::new(index, name, mtu, entry.flags));
                found.len() - 1
            };
            let Some(address) = entry.address else { continue };
            if let Some(v4) = address.as_sockaddr_in() {
                found[place].v4.push(v4.ip());
            } else if let Some(v6) = address.as_sockaddr_in6() {
                found[place].v6.push(v6.ip());
            }
        }
        for interface in &mut found {
            interface.v6.sort_by_key(Ipv6Addr::is_unicast_link_local);
        }
        found.sort_by_key(|interface| interface.index);
        Ok(found)
    }

    fn new(index: u32, name: &str, mtu: usize, flags: InterfaceFlags) -> Interface {
        let loopback = flags.contains(InterfaceFlags::IFF_LOOPBACK);
        Interface {
            index,
            name: name.to_owned(),
            v4: Vec::new(),
            v6: Vec::new(),
            mtu,
            multicast: loopback || flags.contains(InterfaceFlags::IFF_MULTICAST),
            up: flags.contains(InterfaceFlags::IFF_UP),
            loopback,
        }
    }

    /// Returns the interface that a user names: `eth0`, one of its addresses, or `fe80::1%eth0`.
    ///
    /// # Errors
    ///
    /// If there is none, or it is down or does not do multicast.
    pub fn resolve(text: &str) -> Result<Interface, InterfaceError> {
        let text = text.trim();
        let all = Interface::list()?;
        let (address, zone) = match text.split_once('%') {
            Some((address, zone)) => (address, Some(zone)),
            None => (text, None),
        };
        let found = match (address.parse::<IpAddr>(), zone) {
            (Ok(address), zone) => with_address(all, address, zone)?,
            (Err(_), _) => with_name(all, text)?,
        };
        found.check()
    }

    /// Returns the interface of the route to `peer`. For an address of this host, it is the
    /// interface that has it.
    ///
    /// # Errors
    ///
    /// If no route leads there, or the interface is down or does not do multicast. A link-local
    /// IPv6 address has no route without its interface; use [`resolve`](Interface::resolve) for it.
    pub fn for_peer(peer: IpAddr) -> Result<Interface, InterfaceError> {
        if let IpAddr::V6(v6) = peer
            && v6.is_unicast_link_local()
        {
            return Err(InterfaceError::Ambiguous(v6));
        }
        let local = local_address_towards(peer)
            .map_err(|source| InterfaceError::NoRoute { peer, source })?;
        with_address(Interface::list()?, local, None)?.check()
    }

    /// Returns the interface if it can be used.
    fn check(self) -> Result<Interface, InterfaceError> {
        if !self.multicast {
            return Err(InterfaceError::NoMulticast(self.name));
        }
        if !self.up {
            return Err(InterfaceError::Down(self.name));
        }
        Ok(self)
    }

    /// Returns whether packets from here can reach other hosts: it is switched on, does multicast,
    /// and has an address of the family, or of either for `None`. A link-local IPv6 address, which
    /// comes before all others, does only where that family is asked for.
    pub fn is_ready(&self, family: Option<Family>) -> bool {
        let global = |v6: &Ipv6Addr| !v6.is_unicast_link_local();
        let addressed = match family {
            Some(Family::V4) => !self.v4.is_empty(),
            Some(Family::V6) => !self.v6.is_empty(),
            None => !self.v4.is_empty() || self.v6.iter().any(global),
        };
        self.up && self.multicast && !self.loopback && addressed
    }

    /// Returns whether it has the address. Every 127.x.y.z belongs to the loopback interface.
    pub fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => self.v4.contains(&v4) || (self.loopback && v4.is_loopback()),
            IpAddr::V6(v6) => self.v6.contains(&v6),
        }
    }

    /// Returns the address from which to send, the first of the family.
    ///
    /// # Errors
    ///
    /// If it has none.
    pub fn address(&self, family: Family) -> Result<IpAddr, InterfaceError> {
        let address = match family {
            Family::V4 => self.v4.first().copied().map(IpAddr::V4),
            Family::V6 => self.v6.first().copied().map(IpAddr::V6),
        };
        address.ok_or_else(|| InterfaceError::NoAddress { name: self.name.clone(), family })
    }

    /// Returns the peer's address, with this interface's number if it is link-local. Without it,
    /// nothing can be sent to a link-local address.
    #[must_use]
    pub fn on_link(&self, mut peer: SocketAddr) -> SocketAddr {
        if let SocketAddr::V6(v6) = &mut peer
            && v6.ip().is_unicast_link_local()
        {
            v6.set_scope_id(self.index);
        }
        peer
    }

    /// Moves an address of the interface to the front.
    fn prefer(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(v4) => {
                self.v4.retain(|other| *other != v4);
                self.v4.insert(0, v4);
            }
            IpAddr::V6(v6) => {
                self.v6.retain(|other| *other != v6);
                self.v6.insert(0, v6);
            }
        }
    }

    /// Returns whether the kernel forwards packets that come by the interface.
    pub(crate) fn forwards(&self, family: Family, traffic: Traffic) -> bool {
        let family = match family {
            Family::V4 => "ipv4",
            Family::V6 => "ipv6",
        };
        let setting = match traffic {
            Traffic::Unicast => "forwarding",
            Traffic::Multicast => "mc_forwarding",
        };
        let path = format!("/proc/sys/net/{family}/conf/{}/{setting}", self.name);
        std::fs::read_to_string(path).is_ok_and(|text| text.trim() != "0")
    }
}

impl fmt::Display for Interface {
    /// Writes the name and the addresses: `eth0 (192.0.2.2, fd00::2)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        let v4 = self.v4.iter().map(ToString::to_string);
        let addresses: Vec<_> = v4.chain(self.v6.iter().map(ToString::to_string)).collect();
        if addresses.is_empty() { Ok(()) } else { write!(f, " ({})", addresses.join(", ")) }
    }
}

fn with_name(all: Vec<Interface>, name: &str) -> Result<Interface, InterfaceError> {
    let existing = all.iter().map(|interface| interface.name.clone()).collect();
    all.into_iter()
        .find(|interface| interface.name == name)
        .ok_or_else(|| InterfaceError::NoSuchName { name: name.to_owned(), existing })
}

fn with_address(
    all: Vec<Interface>,
    address: IpAddr,
    zone: Option<&str>,
) -> Result<Interface, InterfaceError> {
    let existing = all.iter().map(ToString::to_string).collect();
    let all = match zone {
        Some(zone) => vec![with_name(all, zone)?],
        None => all,
    };
    let mut found: Vec<_> = all.into_iter().filter(|interface| interface.has(address)).collect();
    if let (IpAddr::V6(v6), 2..) = (address, found.len())
        && v6.is_unicast_link_local()
    {
        return Err(InterfaceError::Ambiguous(v6));
    }
    if found.is_empty() {
        return Err(InterfaceError::NoSuchAddress { address, existing });
    }
    let mut interface = found.swap_remove(0);
    interface.prefer(address);
    Ok(interface)
}

/// Returns the address from which a datagram to `peer` would leave. Sends nothing.
fn local_address_towards(peer: IpAddr) -> std::io::Result<IpAddr> {
    let any = match peer {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = UdpSocket::bind(any)?;
    // The discard port; any would do, as connecting a UDP socket only looks up the route.
    socket.connect((peer, 9))?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_found_by_name_and_by_address() {
        let by_name = Interface::resolve("lo").unwrap();
        assert!(by_name.loopback && by_name.multicast && by_name.up);
        assert!(by_name.v4.contains(&Ipv4Addr::LOCALHOST));
        assert!(by_name.mtu >= 1500);
        for text in ["127.0.0.1", "127.3.2.1", " lo "] {
            assert_eq!(Interface::resolve(text).unwrap().index, by_name.index, "{text}");
        }
    }

    #[test]
    fn the_address_asked_for_comes_first() {
        let interface = Interface::resolve("127.0.0.9").unwrap();
        let first = interface.address(Family::V4).unwrap();
        assert_eq!(first, IpAddr::from([127, 0, 0, 9]));
    }

    #[test]
    fn the_interface_towards_this_host_is_the_loopback() {
        let interface = Interface::for_peer("127.0.0.1".parse().unwrap()).unwrap();
        assert!(interface.loopback);
    }

    #[test]
    fn a_wrong_name_is_answered_by_the_right_ones() {
        let message = Interface::resolve("nosuch0").unwrap_err().to_string();
        assert!(message.starts_with("there is no interface `nosuch0`: use one of "), "{message}");
        assert!(message.contains("lo"), "{message}");
        assert!(!message.contains('\n'));
    }

    #[test]
    fn an_address_of_nobody_is_answered_by_the_right_ones() {
        let message = Interface::resolve("203.0.113.77").unwrap_err().to_string();
        assert!(message.contains("127.0.0.1"), "{message}");
        let message = Interface::resolve("127.0.0.1%nosuch0").unwrap_err().to_string();
        assert!(message.contains("nosuch0"), "{message}");
    }

    #[test]
    fn a_link_local_peer_needs_its_link() {
        let error = Interface::for_peer("fe80::1".parse().unwrap()).unwrap_err();
        assert!(matches!(error, InterfaceError::Ambiguous(_)));
    }

    #[test]
    fn an_interface_that_cannot_be_used_says_why() {
        let mut interface = Interface::resolve("lo").unwrap();
        interface.up = false;
        assert!(matches!(interface.clone().check(), Err(InterfaceError::Down(_))));
        interface.multicast = false;
        assert!(matches!(interface.check(), Err(InterfaceError::NoMulticast(_))));
    }
}
