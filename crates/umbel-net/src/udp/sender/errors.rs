//! Errors that keep datagrams from being sent, with advice for the user.

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use crate::interface::{Family, Interface, InterfaceError};

/// The reason why a sender cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSenderError {
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The source address is not one of the interface, or of the other family.
    #[error("{address} is no {family} address of {interface}: use one that is")]
    Source {
        /// The address that was requested.
        address: IpAddr,
        /// The expected family.
        family: Family,
        /// The interface with its addresses.
        interface: String,
    },
    /// Another program uses the port.
    #[error("UDP port {0} is taken: use another, or see who has it with `ss -ulpn`")]
    PortTaken(u16),
    /// The address is gone, or not in use yet.
    #[error(
        "{0} cannot be sent from now: a new IPv6 address takes two seconds, one that another host \
         has is never ready (`ip addr` says `tentative` or `dadfailed`)"
    )]
    NotReady(IpAddr),
    /// Another error of the system.
    #[error("cannot open a UDP socket on {interface}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The system's error.
        source: std::io::Error,
    },
}

/// The reason why datagrams were not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A datagram exceeds the MTU of the link. Datagrams are never fragmented.
    #[error(
        "a datagram of {bytes} bytes does not fit the MTU of {interface} ({mtu} bytes with its \
         headers): choose smaller packets, or `ip link set dev {interface} mtu {}`", bytes + headers
    )]
    TooLong {
        /// Payload of its IP or UDP packet.
        bytes: usize,
        /// MTU of the interface when the sender was opened.
        mtu: usize,
        /// Bytes of the headers before it.
        headers: usize,
        /// The interface.
        interface: String,
    },
    /// The system does not let the datagram out.
    #[error("sending to {0} is not permitted: a firewall rule drops it (`nft list ruleset`)")]
    Refused(SocketAddr),
    /// No route leads to the group.
    #[error("no route to {to} by {interface}: `{command}`")]
    Unreachable {
        /// The destination.
        to: SocketAddr,
        /// The interface.
        interface: String,
        /// The command that adds a route, or tells of it.
        command: String,
    },
    /// The interface has lost its addresses, and its routes with them.
    #[error("{0} has no {1} address any more")]
    NoAddress(String, Family),
    /// The interface is down or has disappeared.
    #[error("interface {0} is down: `ip link set dev {0} up`")]
    Down(String),
    /// The socket or the system had no room for a whole second.
    #[error("{0} has taken no packet for a second: its queue is full")]
    Stuck(String),
    /// Another error of the system.
    #[error("cannot send to {to}: {source}")]
    System {
        /// The destination.
        to: SocketAddr,
        /// The system's error.
        source: std::io::Error,
    },
}

impl SendError {
    /// Converts an error of the system for a datagram of `bytes` bytes.
    pub(crate) fn new(
        errno: Errno,
        to: SocketAddr,
        bytes: usize,
        family: Family,
        interface: &Interface,
    ) -> SendError {
        let name = interface.name.clone();
        match errno {
            Errno::EMSGSIZE => SendError::TooLong {
                bytes,
                mtu: interface.mtu,
                headers: family.header_bytes(),
                interface: name,
            },
            Errno::EPERM | Errno::EACCES => SendError::Refused(to),
            Errno::ENETUNREACH | Errno::EHOSTUNREACH if !has_address(interface, family) => {
                SendError::NoAddress(name, family)
            }
            Errno::ENETUNREACH | Errno::EHOSTUNREACH => {
                let command = route_command(to.ip(), family, interface);
                SendError::Unreachable { to, interface: name, command }
            }
            Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO => SendError::Down(name),
            Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => SendError::Stuck(name),
            errno => SendError::System { to, source: errno.into() },
        }
    }

    /// Returns whether the error may pass by itself. Sending should then continue, and unsent
    /// datagrams count as lost.
    pub fn is_transient(&self) -> bool {
        match self {
            SendError::Refused(_)
            | SendError::Unreachable { .. }
            | SendError::NoAddress(..)
            | SendError::Down(_)
            | SendError::Stuck(_) => true,
            SendError::TooLong { .. } | SendError::System { .. } => false,
        }
    }
}

/// Returns whether the interface still has an address of a family.
fn has_address(interface: &Interface, family: Family) -> bool {
    let has = |all: Vec<Interface>| {
        all.iter().any(|one| one.index == interface.index && one.address(family).is_ok())
    };
    Interface::list().map_or(true, has)
}

/// Returns the command that routes groups to an interface, or tells how a host is routed. Linux
/// routes groups by itself, except IPv6 groups on the loopback interface.
fn route_command(to: IpAddr, family: Family, interface: &Interface) -> String {
    let name = &interface.name;
    match family {
        _ if !to.is_multicast() => format!("ip route get {to}"),
        Family::V4 => format!("ip route add 224.0.0.0/4 dev {name}"),
        Family::V6 => {
            let kind = if interface.loopback { "local" } else { "multicast" };
            format!("ip -6 route add {kind} ff00::/8 dev {name} table local")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_that_went_with_the_address_is_not_asked_for() {
        let loopback = Interface::resolve("lo").unwrap();
        let to = SocketAddr::from(([232, 1, 1, 1], 7704));
        let said = |interface: &Interface| {
            SendError::new(Errno::ENETUNREACH, to, 100, Family::V4, interface).to_string()
        };
        assert!(said(&loopback).contains("`ip route add 224.0.0.0/4 dev lo`"));
        let gone = Interface { index: u32::MAX, name: "va".to_owned(), ..loopback };
        assert_eq!(said(&gone), "va has no IPv4 address any more");
    }
}
