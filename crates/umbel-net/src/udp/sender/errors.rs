//! What keeps datagrams from being sent, and what the user can do about it.

use std::net::{IpAddr, SocketAddr};

use nix::errno::Errno;

use crate::interface::{Family, Interface, InterfaceError};

/// Why a sender cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenSenderError {
    /// The interface cannot be used.
    #[error(transparent)]
    Interface(#[from] InterfaceError),
    /// The source address is not one of the interface, or of the other family.
    #[error("{address} is no {family} address of {interface}: use one that is")]
    Source {
        /// What was asked for.
        address: IpAddr,
        /// What it should be.
        family: Family,
        /// The interface with its addresses.
        interface: String,
    },
    /// Somebody else uses the port.
    #[error("UDP port {0} is taken: use another, or see who has it with `ss -ulpn`")]
    PortTaken(u16),
    /// The address is gone, or not in use yet.
    #[error(
        "{0} cannot be sent from now: a new IPv6 address takes two seconds, one that another host \
         has is never ready (`ip addr` says `tentative` or `dadfailed`)"
    )]
    NotReady(IpAddr),
    /// The system refuses something else.
    #[error("cannot open a UDP socket on {interface}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Why datagrams were not sent.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// A datagram does not fit the link whole, and is never cut.
    #[error(
        "a datagram of {bytes} bytes does not fit the MTU of {interface} ({mtu} bytes with its \
         headers): choose smaller packets, or `ip link set dev {interface} mtu {}`", bytes + headers
    )]
    TooLong {
        /// UDP payload.
        bytes: usize,
        /// Of the interface, when the sender was opened.
        mtu: usize,
        /// Bytes of the IP and UDP headers.
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
        /// Where it should have gone.
        to: SocketAddr,
        /// The interface.
        interface: String,
        /// What makes a route.
        command: String,
    },
    /// The interface went down or away.
    #[error("interface {0} is down: `ip link set dev {0} up`")]
    Down(String),
    /// The socket or the system had no room for a whole second.
    #[error("{0} has taken no packet for a second: its queue is full")]
    Stuck(String),
    /// The system refuses something else.
    #[error("cannot send to {to}: {source}")]
    System {
        /// Where it should have gone.
        to: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

impl SendError {
    /// What an error of the system means for a datagram of so many bytes.
    pub(super) fn new(
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
            Errno::ENETUNREACH | Errno::EHOSTUNREACH => {
                let command = route_command(family, interface);
                SendError::Unreachable { to, interface: name, command }
            }
            Errno::ENETDOWN | Errno::ENODEV | Errno::ENXIO => SendError::Down(name),
            Errno::EAGAIN | Errno::ENOBUFS | Errno::ENOMEM => SendError::Stuck(name),
            errno => SendError::System { to, source: errno.into() },
        }
    }

    /// Whether it may pass by itself, so that to send on is right: what was not sent counts as
    /// lost.
    pub fn is_transient(&self) -> bool {
        match self {
            SendError::Refused(_)
            | SendError::Unreachable { .. }
            | SendError::Down(_)
            | SendError::Stuck(_) => true,
            SendError::TooLong { .. } | SendError::System { .. } => false,
        }
    }
}

/// The command that routes groups to an interface. Linux does so by itself but on the loopback
/// interface, and there for IPv4 only.
fn route_command(family: Family, interface: &Interface) -> String {
    let name = &interface.name;
    match family {
        Family::V4 => format!("ip route add 224.0.0.0/4 dev {name}"),
        Family::V6 => {
            let kind = if interface.loopback { "local" } else { "multicast" };
            format!("ip -6 route add {kind} ff00::/8 dev {name} table local")
        }
    }
}
