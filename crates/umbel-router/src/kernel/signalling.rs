//! The sockets of IGMP, MLD and PIM.
//!
//! IGMP and MLD are sent and received by the socket of the forwarding table ([`MulticastTable`]),
//! PIM by a separate socket. The interfaces' memberships in the groups of these protocols are held
//! apart from both, since the kernel limits the memberships of one socket to 20.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::os::fd::OwnedFd;

use socket2::{Domain, InterfaceIndexOrAddress, Socket, Type};

use super::Family;
use super::mroute::MulticastTable;
use super::socket::InterfaceSocket;

/// Protocol number of PIM [RFC 7761 §4.9].
pub const PIM: u8 = 103;

/// All routers, `IGMPv3` reports, all PIM routers [RFC 3376 §4.2.14, RFC 7761 §4.3.1].
const GROUPS_V4: [Ipv4Addr; 3] =
    [Ipv4Addr::new(224, 0, 0, 2), Ipv4Addr::new(224, 0, 0, 22), Ipv4Addr::new(224, 0, 0, 13)];
/// The same of IPv6 [RFC 3810 §5.2.14].
const GROUPS_V6: [Ipv6Addr; 3] = [
    Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 2),
    Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0x16),
    Ipv6Addr::new(0xFF02, 0, 0, 0, 0, 0, 0, 0xD),
];

/// The Router Alert option of IPv4 [RFC 2113].
const ALERT_V4: [u8; 4] = [0x94, 4, 0, 0];
/// The hop-by-hop header with the router alert of MLD [RFC 2711].
const ALERT_V6: [u8; 8] = [0, 0, 5, 2, 0, 0, 1, 0];
/// `IPV6_HOPOPTS` of `linux/in6.h`.
const IPV6_HOPOPTS: i32 = 54;
/// `ICMPV6_FILTER` of `linux/icmpv6.h`.
const ICMP6_FILTER: i32 = 1;
/// Types of `ICMPv6` that are MLD.
const MLD_TYPES: [usize; 4] = [130, 131, 132, 143];

/// Prepares the socket of a table for IGMP or MLD: what it sends carries Router Alert, and of
/// `ICMPv6` nothing else comes.
///
/// # Errors
///
/// If the system refuses.
pub fn prepare_membership(table: &MulticastTable) -> io::Result<()> {
    let socket = table.socket();
    match socket.family() {
        Family::V4 => socket.set_value(libc::IPPROTO_IP, libc::IP_OPTIONS, &ALERT_V4),
        Family::V6 => {
            // A bit that is set blocks the type.
            let mut blocked = [u32::MAX; 8];
            for kind in MLD_TYPES {
                blocked[kind / 32] &= !(1 << (kind % 32));
            }
            socket.set_value(libc::IPPROTO_ICMPV6, ICMP6_FILTER, &blocked)?;
            socket.set_value(libc::IPPROTO_IPV6, IPV6_HOPOPTS, &ALERT_V6)
        }
    }
}

/// Opens the socket of PIM.
///
/// # Errors
///
/// If the system refuses; `EPERM` without the capability `CAP_NET_RAW`.
pub fn pim_socket(family: Family) -> io::Result<InterfaceSocket> {
    InterfaceSocket::new(family, PIM)
}

/// An interface's memberships in the groups of IGMP or MLD, and of PIM, while it lives.
#[derive(Debug)]
pub struct LinkGroups {
    _member: Socket,
}

impl LinkGroups {
    /// Joins the groups on an interface of this network namespace.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn join(family: Family, interface: u32) -> io::Result<LinkGroups> {
        let domain = match family {
            Family::V4 => Domain::IPV4,
            Family::V6 => Domain::IPV6,
        };
        let member = Socket::new(domain, Type::DGRAM, None)?;
        LinkGroups::join_with(member.into(), family, interface)
    }

    /// Joins the groups on an interface of the network namespace of `member`, a socket of UDP.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn join_with(member: OwnedFd, family: Family, interface: u32) -> io::Result<LinkGroups> {
        let member = Socket::from(member);
        match family {
            Family::V4 => {
                let place = InterfaceIndexOrAddress::Index(interface);
                for group in GROUPS_V4 {
                    member.join_multicast_v4_n(&group, &place)?;
                }
            }
            Family::V6 => {
                for group in GROUPS_V6 {
                    member.join_multicast_v6(&group, interface)?;
                }
            }
        }
        Ok(LinkGroups { _member: member })
    }
}
