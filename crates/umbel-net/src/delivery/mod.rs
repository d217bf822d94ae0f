//! Delivery at the receiver's host: the segments of a channel reach unmodified TCP sockets.
//!
//! A [`Delivery`] subscribes to a source and group. It hands each multicast TCP segment to the
//! local connections that its channel serves, as if it had been sent to each of them. Applications
//! and their sockets stay as they are. There are two ways:
//!
//! | | [`Way::Ebpf`] | [`Way::Agent`] |
//! |---|---|---|
//! | what | a program in the kernel (`bpf/delivery.bpf.c`) | a thread of this process |
//! | where | tc ingress, before the kernel's TCP | packet socket in, raw socket out |
//! | knows of connections | what the kernel knows | what passes by |
//! | needs | Linux 6.6, `CAP_BPF`, `CAP_NET_ADMIN` | `CAP_NET_RAW` |
//! | costs a segment and connection | about 0.6 µs | about 3 µs |
//!
//! The rules are those of [`umbel_engine::smo::delivery`].
//!
//! Neither leaves anything behind: the program's link to the interface (TCX) belongs to this
//! process. Kernels without such links, before 6.6, get the agent, as a program would stay there
//! after a crash. When a delivery ends, connections go on: the source notices that multicasts do
//! not arrive, and sends by unicast.
//!
//! # Scope and limitations
//!
//! Ethernet and the loopback interface. Connections of this network namespace; at most 4,096.
//! A source on the same host is not heard, unless it is on the loopback interface.

mod agent;
mod ebpf;

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::str::FromStr;

use nix::errno::Errno;
use socket2::{Domain, Socket, Type};
use umbel_engine::smo::delivery::{Connection, DeliveryCounts};

use self::agent::Agent;
use self::ebpf::Program;
use crate::bounds::DELIVERIES;
use crate::interface::Interface;
use crate::packet::is_ethernet;
use crate::sys::{Change, change_membership};

/// Maximum number of connections of one delivery.
pub const MAX_CONNECTIONS: usize = DELIVERIES.all;

/// Way by which segments reach the connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Way {
    /// By eBPF where the system allows it, else by the agent.
    #[default]
    Auto,
    /// By a program in the kernel.
    Ebpf,
    /// By a thread of this process.
    Agent,
}

impl fmt::Display for Way {
    /// Writes it as users do: `auto`, `ebpf`, `agent`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Auto => "auto",
            Way::Ebpf => "ebpf",
            Way::Agent => "agent",
        })
    }
}

impl FromStr for Way {
    type Err = String;

    fn from_str(text: &str) -> Result<Way, String> {
        [Way::Auto, Way::Ebpf, Way::Agent]
            .into_iter()
            .find(|way| way.to_string() == text)
            .ok_or_else(|| format!("`{text}` is none of auto, ebpf, agent"))
    }
}

/// The reason why nothing can be delivered.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The process may not do this.
    #[error("delivery by {way} needs the capabilities {capabilities}: run it as root{advice}")]
    NotPermitted {
        /// Way by which they should have been delivered.
        way: Way,
        /// Capabilities that are missing.
        capabilities: &'static str,
        /// Further advice.
        advice: &'static str,
    },
    /// The kernel has no links between programs and interfaces.
    #[error("delivery by ebpf needs Linux 6.6 or later: use `--delivery agent`")]
    OldKernel,
    /// The kernel does not take the program.
    #[error("this kernel does not take the program for delivery ({0}): use `--delivery agent`")]
    Program(String),
    /// Frames of the interface are not those of Ethernet.
    #[error("{0} is neither Ethernet nor the loopback interface: use one that is")]
    NotEthernet(String),
    /// Source and group do not go together.
    #[error("{source_address} cannot send to {group}: use addresses of one family")]
    Channel {
        /// The source.
        source_address: IpAddr,
        /// The group.
        group: IpAddr,
    },
    /// The group cannot be joined.
    #[error("cannot join {group} on {interface}: {source}")]
    Join {
        /// The group.
        group: IpAddr,
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
    /// Another error of the system.
    #[error("cannot deliver on {interface}: {source}")]
    System {
        /// The interface.
        interface: String,
        /// The system's error.
        source: io::Error,
    },
}

impl DeliveryError {
    fn system(error: io::Error, interface: &Interface) -> DeliveryError {
        match error.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM | Errno::EACCES) => DeliveryError::NotPermitted {
                way: Way::Agent,
                capabilities: "CAP_NET_RAW",
                advice: ", or `setcap cap_net_raw+ep` on the program",
            },
            _ => DeliveryError::System { interface: interface.name.clone(), source: error },
        }
    }
}

/// A way of delivery that is at work until it is dropped.
trait Deliverer: Send {
    fn way(&self) -> Way;

    fn counts(&self) -> DeliveryCounts;

    /// Returns each connection with the port of the channel that serves it.
    fn connections(&self) -> Vec<(Connection, u16)>;

    /// Returns why nothing is delivered any more.
    fn failure(&self) -> Option<String>;
}

/// The delivery of one source and group to the connections of this host. It ends when dropped.
pub struct Delivery {
    deliverer: Box<dyn Deliverer>,
    instead_of_ebpf: Option<String>,
    interface: Interface,
    /// Keeps the membership.
    _membership: Socket,
}

impl Delivery {
    /// Subscribes to the channels of `source` in `group` on an interface, and starts to deliver to
    /// connections with its port.
    ///
    /// # Errors
    ///
    /// If the group cannot be joined, or no way that `way` permits is open to this process.
    pub fn start(
        source: SocketAddr,
        group: IpAddr,
        interface: &Interface,
        way: Way,
    ) -> Result<Delivery, DeliveryError> {
        let address = source.ip();
        let unfit = address.is_ipv4() != group.is_ipv4() || address.is_multicast();
        if unfit || address.is_unspecified() || !group.is_multicast() {
            return Err(DeliveryError::Channel { source_address: address, group });
        }
        if !is_ethernet(interface) {
            return Err(DeliveryError::NotEthernet(interface.name.clone()));
        }
        let membership = join(address, group, interface)?;
        let by_ebpf = || Program::start(source, group, interface).map(Box::new);
        let by_agent = || Agent::start(source, group, interface).map(Box::new);
        let mut instead_of_ebpf = None;
        let deliverer: Box<dyn Deliverer> = match way {
            Way::Ebpf => by_ebpf()?,
            Way::Agent => by_agent()?,
            Way::Auto => match by_ebpf() {
                Ok(program) => program,
                Err(error) => {
                    instead_of_ebpf = Some(error.to_string());
                    by_agent()?
                }
            },
        };
        let interface = interface.clone();
        Ok(Delivery { deliverer, instead_of_ebpf, interface, _membership: membership })
    }

    /// Returns how segments are delivered: never [`Way::Auto`].
    pub fn way(&self) -> Way {
        self.deliverer.way()
    }

    /// Returns why the agent delivers where eBPF was tried.
    pub fn instead_of_ebpf(&self) -> Option<&str> {
        self.instead_of_ebpf.as_deref()
    }

    /// Returns the counters since the start.
    pub fn counts(&self) -> DeliveryCounts {
        self.deliverer.counts()
    }

    /// Returns each connection that is served by multicast, with the port of its channel.
    pub fn connections(&self) -> Vec<(Connection, u16)> {
        self.deliverer.connections()
    }

    /// Returns why nothing is delivered any more, one line. Connections go on by unicast.
    pub fn failure(&self) -> Option<String> {
        let is_there = |all: Vec<Interface>| all.iter().any(|i| i.index == self.interface.index);
        let gone = !Interface::list().is_ok_and(is_there);
        let gone = gone.then(|| format!("interface {} is gone", self.interface.name));
        self.deliverer.failure().or(gone)
    }

    /// Returns what should be changed on this host so that no segment is dropped here, one line.
    pub fn advice(&self) -> Option<String> {
        if self.way() != Way::Ebpf {
            return None;
        }
        // Only the first namespace of a machine shows it, which is where it can be changed.
        let text = std::fs::read_to_string("/proc/sys/net/core/netdev_max_backlog").ok()?;
        backlog_advice(text.trim().parse().ok()?, self.connections().len())
    }
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery").field("way", &self.way()).finish_non_exhaustive()
    }
}

/// Packets that arrive at once, as a card and its driver hand them over.
const BURST: usize = 16;

/// Advises on the queue that copies of a segment pass, by its limit. It overflows if a few segments
/// make more copies than it holds, and each is then lost for many.
fn backlog_advice(limit: usize, connections: usize) -> Option<String> {
    (connections * BURST > limit).then(|| {
        let enough = (connections * BURST).next_power_of_two();
        format!(
            "{connections} connections may lose segments in the backlog of {limit} packets here: \
             `sysctl -w net.core.netdev_max_backlog={enough}`"
        )
    })
}

/// Joins a source's group by an ordinary socket, which receives nothing.
fn join(source: IpAddr, group: IpAddr, interface: &Interface) -> Result<Socket, DeliveryError> {
    let failed =
        |error| DeliveryError::Join { group, interface: interface.name.clone(), source: error };
    let domain = if group.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let socket = Socket::new(domain, Type::DGRAM, None).map_err(failed)?;
    change_membership(socket.as_fd(), Change::Join, interface.index, group, Some(source))
        .map_err(|errno| failed(errno.into()))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_way_is_read_as_it_is_written() {
        for way in [Way::Auto, Way::Ebpf, Way::Agent] {
            assert_eq!(way.to_string().parse(), Ok(way));
        }
        assert!("xdp".parse::<Way>().unwrap_err().contains("ebpf"));
    }

    #[test]
    fn a_short_backlog_is_told_with_the_remedy() {
        assert_eq!(backlog_advice(1000, 50), None);
        let advice = backlog_advice(1000, 200).unwrap();
        assert!(advice.contains("netdev_max_backlog=4096") && !advice.contains('\n'), "{advice}");
    }
}
