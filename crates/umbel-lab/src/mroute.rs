//! Static multicast routes in the kernel's forwarding cache.

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};

use crate::namespace::Namespace;

// `linux/mroute.h` and `linux/mroute6.h`; both families use the same numbers.
const MRT_INIT: i32 = 200;
const MRT_DONE: i32 = 201;
const MRT_ADD_VIF: i32 = 202;
const MRT_ADD_MFC: i32 = 204;
const VIFF_USE_IFINDEX: u8 = 8;
/// `MAXVIFS` and `MAXMIFS`.
const MAX_INTERFACES: usize = 32;

/// The group to which hosts send reports of IGMPv3 [RFC 3376 §4.2.14].
const REPORTS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 22);

#[repr(C)]
struct VifCtl {
    vif: u16,
    flags: u8,
    threshold: u8,
    rate_limit: u32,
    interface: i32,
    remote: u32,
}

#[repr(C)]
struct MfcCtl {
    origin: libc::in_addr,
    group: libc::in_addr,
    parent: u16,
    ttls: [u8; MAX_INTERFACES],
    counters: [u32; 3],
    expire: i32,
}

#[repr(C)]
struct Mif6Ctl {
    mif: u16,
    flags: u8,
    threshold: u8,
    interface: u16,
    rate_limit: u32,
}

#[repr(C)]
struct Mf6Cctl {
    origin: libc::sockaddr_in6,
    group: libc::sockaddr_in6,
    parent: u16,
    outputs: [u32; 8],
}

/// The multicast forwarding of one router. Dropping it releases the forwarding.
#[derive(Debug)]
pub(crate) struct MulticastRouter {
    v4: OwnedFd,
    v6: OwnedFd,
    interfaces: Vec<u32>,
}

impl MulticastRouter {
    /// Takes over forwarding in `namespace` between its interfaces, given by their numbers.
    pub(crate) fn open(namespace: &Namespace, interfaces: &[u32]) -> io::Result<MulticastRouter> {
        if interfaces.len() > MAX_INTERFACES {
            return Err(io::Error::other("a multicast router has at most 32 interfaces"));
        }
        let v4 = namespace.socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_IGMP)?;
        let v6 = namespace.socket(libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_ICMPV6)?;
        let on = 1_i32;
        set_option(&v4, libc::IPPROTO_IP, MRT_INIT, &on)?;
        set_option(&v6, libc::IPPROTO_IPV6, MRT_INIT, &on)?;
        for (number, &index) in interfaces.iter().enumerate() {
            let vif = VifCtl {
                vif: number as u16,
                flags: VIFF_USE_IFINDEX,
                threshold: 1,
                rate_limit: 0,
                interface: index as i32,
                remote: 0,
            };
            set_option(&v4, libc::IPPROTO_IP, MRT_ADD_VIF, &vif)?;
            let mif = Mif6Ctl {
                mif: number as u16,
                flags: 0,
                threshold: 1,
                interface: index as u16,
                rate_limit: 0,
            };
            set_option(&v6, libc::IPPROTO_IPV6, MRT_ADD_VIF, &mif)?;
        }
        Ok(MulticastRouter { v4, v6, interfaces: interfaces.to_vec() })
    }

    /// Receives the reports of hosts next to the router from now on. Returns the socket on which
    /// they come.
    pub(crate) fn hear_reports(&self) -> io::Result<OwnedFd> {
        for &index in &self.interfaces {
            let request = libc::ip_mreqn {
                imr_multiaddr: libc::in_addr { s_addr: u32::from_ne_bytes(REPORTS.octets()) },
                imr_address: libc::in_addr { s_addr: 0 },
                imr_ifindex: index as i32,
            };
            set_option(&self.v4, libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)?;
        }
        self.v4.try_clone()
    }

    /// Forwards `source`'s packets to `group` from interface `input` to `outputs`. Interfaces are
    /// positions in the list passed to `open`. Replaces an entry for the same channel.
    pub(crate) fn add(
        &self,
        source: IpAddr,
        group: IpAddr,
        input: usize,
        outputs: &[usize],
    ) -> io::Result<()> {
        match (source, group) {
            (IpAddr::V4(source), IpAddr::V4(group)) => self.add4(source, group, input, outputs),
            (IpAddr::V6(source), IpAddr::V6(group)) => self.add6(source, group, input, outputs),
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    fn add4(
        &self,
        source: Ipv4Addr,
        group: Ipv4Addr,
        input: usize,
        outputs: &[usize],
    ) -> io::Result<()> {
        let address = |a: Ipv4Addr| libc::in_addr { s_addr: u32::from_ne_bytes(a.octets()) };
        let mut entry = MfcCtl {
            origin: address(source),
            group: address(group),
            parent: input as u16,
            // 0 and 255 forward nothing; a threshold of 1 lets every TTL above 1 pass.
            ttls: [0; MAX_INTERFACES],
            counters: [0; 3],
            expire: 0,
        };
        for &output in outputs {
            entry.ttls[output] = 1;
        }
        set_option(&self.v4, libc::IPPROTO_IP, MRT_ADD_MFC, &entry)
    }

    fn add6(
        &self,
        source: Ipv6Addr,
        group: Ipv6Addr,
        input: usize,
        outputs: &[usize],
    ) -> io::Result<()> {
        let address = |a: Ipv6Addr| libc::sockaddr_in6 {
            sin6_family: libc::AF_INET6 as libc::sa_family_t,
            sin6_port: 0,
            sin6_flowinfo: 0,
            sin6_addr: libc::in6_addr { s6_addr: a.octets() },
            sin6_scope_id: 0,
        };
        let mut entry = Mf6Cctl {
            origin: address(source),
            group: address(group),
            parent: input as u16,
            outputs: [0; 8],
        };
        for &output in outputs {
            entry.outputs[output / 32] |= 1 << (output % 32);
        }
        set_option(&self.v6, libc::IPPROTO_IPV6, MRT_ADD_MFC, &entry)
    }
}

impl Drop for MulticastRouter {
    /// Stops forwarding now. Closing alone would not do: a child process that is being started holds
    /// copies of the sockets until it runs its program.
    fn drop(&mut self) {
        let nothing = 0_i32;
        let _ = set_option(&self.v4, libc::IPPROTO_IP, MRT_DONE, &nothing);
        let _ = set_option(&self.v6, libc::IPPROTO_IPV6, MRT_DONE, &nothing);
    }
}

/// Receives the next packet of a raw socket, with its IP header, if one waits.
pub(crate) fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<usize> {
    Ok(recv(socket.as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT)?)
}

#[allow(unsafe_code)]
fn set_option<T>(socket: &OwnedFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is a live reference to `length` bytes; the call only reads them.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), length)
    };
    Errno::result(result)?;
    Ok(())
}
