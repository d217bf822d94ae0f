//! Inputs and outputs of the control plane.

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use umbel_engine::router::InterfaceId;
use umbel_wire::Channel;

/// A source-specific channel without its port: (S,G) [RFC 4607]. Both are of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceGroup {
    /// The group.
    pub group: IpAddr,
    /// The source.
    pub source: IpAddr,
}

impl fmt::Display for SourceGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {})", self.source, self.group)
    }
}

/// Address family, by which membership and trees are separate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    /// IGMP, and PIM over IPv4.
    Ipv4,
    /// MLD, and PIM over IPv6.
    Ipv6,
}

impl Family {
    /// Returns the family of an address.
    pub const fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }
    }
}

/// An address of the router on an interface, and the network there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// The router's address.
    pub address: IpAddr,
    /// Number of leading bits that all addresses of this link have.
    pub prefix_len: u8,
}

impl InterfaceAddress {
    /// Returns whether an address belongs to this network.
    pub fn covers(&self, other: IpAddr) -> bool {
        let same = |a: u128, b: u128, bits: u32| {
            let host_bits = bits.saturating_sub(self.prefix_len.into());
            (a ^ b).checked_shr(host_bits).unwrap_or(0) == 0
        };
        match (self.address, other) {
            (IpAddr::V4(a), IpAddr::V4(b)) => same(a.to_bits().into(), b.to_bits().into(), 32),
            (IpAddr::V6(a), IpAddr::V6(b)) => same(a.to_bits(), b.to_bits(), 128),
            _ => false,
        }
    }
}

/// An interface on which the router does multicast.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceInfo {
    /// Its name, for people.
    pub name: String,
    /// Its addresses. A family without an address is not served there; IPv6 needs a link-local one.
    pub addresses: Vec<InterfaceAddress>,
    /// Longest packet with its IP header, in bytes.
    pub mtu: u32,
}

/// The next hop on the way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// The interface on which it is.
    pub interface: InterfaceId,
    /// The router there; `None` if the host itself is on this link.
    pub gateway: Option<IpAddr>,
    /// The route's metric, of which lower is better. It decides who forwards on a LAN
    /// [RFC 7761 §4.6.3].
    pub metric: u32,
}

/// Unicast routing, by which trees find the way to the source.
pub trait UnicastRoutes {
    /// Returns the next hop towards a host, or `None` if there is no route.
    fn towards(&self, host: IpAddr) -> Option<NextHop>;

    /// Returns whether a route leads through a link to somewhere beyond it: by a gateway there, or
    /// to a destination that is in none of the router's networks on that link.
    fn leads_beyond(
        &self,
        interface: InterfaceId,
        family: Family,
        networks: &[InterfaceAddress],
    ) -> bool;

    /// Returns whether the route to a host leads through a link and by no gateway, so that the host
    /// is there, though perhaps in none of the router's networks: links from point to point, routes
    /// to hosts.
    fn leads_to_link(&self, interface: InterfaceId, host: IpAddr) -> bool;

    /// Returns whether a host on a link is the gateway of a route.
    fn is_gateway(&self, interface: InterfaceId, host: IpAddr) -> bool;
}

/// Protocol of a control message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// IGMP, over IPv4.
    Igmp,
    /// `ICMPv6`, in which MLD is.
    Icmpv6,
    /// PIM, over either.
    Pim,
}

/// A control message that arrived on one of the router's interfaces.
#[derive(Clone, Copy, Debug)]
pub struct ControlMessage<'a> {
    /// Interface on which it arrived.
    pub interface: InterfaceId,
    /// Source address of the packet.
    pub from: IpAddr,
    /// Destination address of the packet.
    pub to: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// The message, without the IP header.
    pub payload: &'a [u8],
}

/// A control message to send, with a time to live of 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlTransmit {
    /// Interface by which it leaves.
    pub interface: InterfaceId,
    /// Source address: one of the interface's. Checksums cover it.
    pub from: IpAddr,
    /// Destination: a group of this link.
    pub to: IpAddr,
    /// Its protocol.
    pub protocol: Protocol,
    /// Whether the packet carries the Router Alert option.
    pub router_alert: bool,
    /// The message with its checksum, without the IP header.
    pub payload: Bytes,
}

/// A change of what the router forwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForwardingChange {
    /// The channel's packets that arrive on `input` go out on all of `outputs`, and nowhere else.
    Set {
        /// The channel.
        channel: SourceGroup,
        /// Interface that its packets arrive on.
        input: InterfaceId,
        /// Interfaces that they leave by, ascending. Without outputs they are discarded.
        outputs: Vec<InterfaceId>,
    },
    /// The channel is forgotten.
    Remove {
        /// The channel.
        channel: SourceGroup,
    },
}

/// A host's offer to be a replier of LMS, as its reports have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostHeard {
    /// The channel; it has a source.
    pub channel: Channel,
    /// Interface on which the host is.
    pub interface: InterfaceId,
    /// The host, with the port at which it takes requests.
    pub host: SocketAddr,
    /// Cost of the host as a replier, of which lower is better; `None` withdraws the offer.
    pub cost: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_covers_the_addresses_with_its_prefix() {
        let covers = |address: &str, prefix_len, other: &str| {
            let address = address.parse().unwrap();
            InterfaceAddress { address, prefix_len }.covers(other.parse().unwrap())
        };
        assert!(covers("10.1.2.3", 24, "10.1.2.200") && !covers("10.1.2.3", 24, "10.1.3.3"));
        assert!(covers("10.1.2.3", 0, "192.0.2.1") && covers("10.1.2.3", 32, "10.1.2.3"));
        assert!(!covers("10.1.2.3", 32, "10.1.2.2") && !covers("10.1.2.3", 0, "::1"));
        assert!(covers("fe80::1", 64, "fe80::2") && !covers("fe80::1", 64, "2001:db8::2"));
        assert!(covers("fe80::1", 0, "2001:db8::2") && !covers("::1", 128, "::2"));
        // A prefix that is too long is that of the address alone.
        assert!(covers("10.1.2.3", 200, "10.1.2.3") && !covers("10.1.2.3", 200, "10.1.2.4"));
    }
}
