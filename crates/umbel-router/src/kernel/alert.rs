//! Datagrams in transit that ask routers to look at them: the Router Alert option
//! [RFC 2113, RFC 2711].
//!
//! The kernel puts such datagrams aside for any socket that listens, and forwards them only if none
//! does. The listener must therefore send on packets that are not for it
//! ([`inject`](super::inject)).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use umbel_wire::datagram::ALERT_VALUE_V6;

use super::Family;
use super::socket::{Envelope, InterfaceSocket};

/// `IP_ROUTER_ALERT` of `linux/in.h`.
const IP_ROUTER_ALERT: i32 = 5;
/// `IPV6_ROUTER_ALERT` and `IPV6_ROUTER_ALERT_ISOLATE` of `linux/in6.h`.
const IPV6_ROUTER_ALERT: i32 = 22;
const IPV6_ROUTER_ALERT_ISOLATE: i32 = 30;

/// A program for `SO_ATTACH_FILTER` that passes IPv4 packets with options. Those without are for a
/// port of this host, and have come there.
const ONLY_WITH_OPTIONS: [libc::sock_filter; 5] = [
    // A = first byte & 0x0F, the words of the header.
    libc::sock_filter { code: 0x30, jt: 0, jf: 0, k: 0 },
    libc::sock_filter { code: 0x54, jt: 0, jf: 0, k: 0x0F },
    // More than 5: all of the packet, else nothing.
    libc::sock_filter { code: 0x25, jt: 0, jf: 1, k: 5 },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: u32::MAX },
    libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 },
];

/// A listener for UDP datagrams in transit with the option. They come as whole IP packets, with the
/// time to live that they had on the wire, and whole where they were fragments.
#[derive(Debug)]
pub struct AlertSocket {
    raw: InterfaceSocket,
}

impl AlertSocket {
    /// Listens in this network namespace from now on.
    ///
    /// # Errors
    ///
    /// If the system refuses; `EPERM` without the capability `CAP_NET_RAW`.
    pub fn open(family: Family) -> io::Result<AlertSocket> {
        let on = 1_i32;
        let raw = match family {
            Family::V4 => {
                let raw = InterfaceSocket::new(family, umbel_wire::ip::UDP)?;
                attach(&raw, &ONLY_WITH_OPTIONS)?;
                raw.set_value(libc::IPPROTO_IP, IP_ROUTER_ALERT, &on)?;
                raw
            }
            Family::V6 => {
                let raw = InterfaceSocket::new(family, libc::IPPROTO_RAW as u8)?;
                // Otherwise it would hear the packets of all network namespaces.
                raw.set_value(libc::IPPROTO_IPV6, IPV6_ROUTER_ALERT_ISOLATE, &on)?;
                let value = i32::from(ALERT_VALUE_V6);
                raw.set_value(libc::IPPROTO_IPV6, IPV6_ROUTER_ALERT, &value)?;
                raw
            }
        };
        Ok(AlertSocket { raw })
    }

    /// Receives the next packet, with its IP header, if one waits.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none waits, or another error of the system.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Envelope> {
        self.raw.receive(buffer)
    }
}

impl AsFd for AlertSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.raw.as_fd()
    }
}

fn attach(raw: &InterfaceSocket, filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        // Only read by the system.
        filter: filter.as_ptr().cast_mut(),
    };
    raw.set_value(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}
