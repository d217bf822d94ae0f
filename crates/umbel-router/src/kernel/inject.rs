//! Sends IP packets as they are, under any source address.

use std::io;
use std::net::IpAddr;

use super::Family;
use super::socket::InterfaceSocket;

/// A way out for whole IP packets of one family. Packets that it sends do not come back to this
/// router's own sockets, and are not forwarded by its own multicast entries.
#[derive(Debug)]
pub struct Injector {
    raw: InterfaceSocket,
}

impl Injector {
    /// Opens the way out.
    ///
    /// # Errors
    ///
    /// If the system refuses; `EPERM` without the capability `CAP_NET_RAW`.
    pub fn open(family: Family) -> io::Result<Injector> {
        // IPPROTO_RAW implies that the IP header is ours, in IPv6 by an option.
        let raw = InterfaceSocket::new(family, libc::IPPROTO_RAW as u8)?;
        if family == Family::V6 {
            /// `IPV6_HDRINCL` of `linux/in6.h`.
            const IPV6_HDRINCL: i32 = 36;
            raw.set_value(libc::IPPROTO_IPV6, IPV6_HDRINCL, &1_i32)?;
        }
        Ok(Injector { raw })
    }

    /// Sends a packet to a host by its route, or down one interface. The kernel writes the checksum
    /// of an IPv4 header.
    ///
    /// # Errors
    ///
    /// `EMSGSIZE` if the packet is longer than the MTU, `ENETUNREACH` without a route, or another
    /// error of the system.
    pub fn send(&self, interface: Option<u32>, to: IpAddr, packet: &[u8]) -> io::Result<()> {
        self.raw.send(interface, None, to, packet)
    }
}
