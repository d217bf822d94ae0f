//! Sockets that say by which interface each packet came, and are told by which it leaves.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{
    ControlMessage, ControlMessageOwned, MsgFlags, SetSockOpt, SockaddrStorage, recvmsg, sendmsg,
    setsockopt, sockopt,
};

use socket2::{Domain, Type};

use super::Family;

/// Buffer of packets that wait, in bytes. Packets that do not fit are lost: the kernel does not
/// forward what it has put aside for a router.
const BUFFER: usize = 4 << 20;

/// A raw socket, or one of UDP. No call waits.
#[derive(Debug)]
pub struct InterfaceSocket {
    family: Family,
    socket: OwnedFd,
}

/// The kernel's data about a received packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Bytes received. IPv4 packets begin with their IP header.
    pub len: usize,
    /// The interface by which it came; 0 if the kernel did not say.
    pub interface: u32,
    /// Its source; raw sockets have no ports.
    pub from: Option<SocketAddr>,
    /// Its destination.
    pub to: Option<IpAddr>,
    /// Packets that the socket had no room for so far, modulo 2^32.
    pub lost: u32,
}

/// Space for the control messages of one packet, aligned as `cmsghdr` must be.
#[repr(C, align(8))]
struct Control([u8; 128]);

impl InterfaceSocket {
    /// Opens a socket for a protocol.
    ///
    /// # Errors
    ///
    /// If the system refuses; `EPERM` without the capability `CAP_NET_RAW`.
    pub fn new(family: Family, protocol: u8) -> io::Result<InterfaceSocket> {
        let domain = match family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        };
        let socket = open(domain, libc::SOCK_RAW, protocol.into())?;
        InterfaceSocket::from_socket(family, socket)
    }

    /// Takes a socket of this family, which may belong to another network namespace.
    ///
    /// # Errors
    ///
    /// If the system refuses an option.
    pub fn from_socket(family: Family, socket: OwnedFd) -> io::Result<InterfaceSocket> {
        let raw = InterfaceSocket { family, socket };
        // The router does not need its own messages.
        match family {
            Family::V4 => {
                raw.set(sockopt::Ipv4PacketInfo, &true)?;
                raw.set(sockopt::IpMulticastLoop, &false)?;
                raw.set(sockopt::IpMulticastTtl, &1)?;
            }
            Family::V6 => {
                raw.set(sockopt::Ipv6RecvPacketInfo, &true)?;
                let (off, one) = (0_i32, 1_i32);
                raw.set_value(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_LOOP, &off)?;
                raw.set_value(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, &one)?;
                raw.set_value(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, &one)?;
            }
        }
        raw.set(sockopt::RxqOvfl, &1)?;
        // Without the capability CAP_NET_ADMIN the limit of the system holds.
        if raw.set(sockopt::RcvBufForce, &BUFFER).is_err() {
            let _ = raw.set(sockopt::RcvBuf, &BUFFER);
        }
        Ok(raw)
    }

    /// Opens a socket for the UDP datagrams that come to a port of this host, at any address.
    ///
    /// # Errors
    ///
    /// `EADDRINUSE` if another program has the port.
    pub fn udp(family: Family, port: u16) -> io::Result<InterfaceSocket> {
        let (domain, any) = match family {
            Family::V4 => (Domain::IPV4, IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            Family::V6 => (Domain::IPV6, IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        };
        let socket = socket2::Socket::new(domain, Type::DGRAM, None)?;
        if family == Family::V6 {
            socket.set_only_v6(true)?;
        }
        socket.bind(&SocketAddr::new(any, port).into())?;
        InterfaceSocket::from_socket(family, socket.into())
    }

    /// Returns the family of its packets.
    pub fn family(&self) -> Family {
        self.family
    }

    pub(super) fn set<O: SetSockOpt>(&self, option: O, value: &O::Val) -> io::Result<()> {
        Ok(setsockopt(&self.socket, option, value)?)
    }

    /// Sets an option whose value is plain data. `T` must be the option's type in C.
    #[allow(unsafe_code)]
    pub(super) fn set_value<T: Copy>(&self, level: i32, name: i32, value: &T) -> io::Result<()> {
        let length = size_of::<T>() as libc::socklen_t;
        let pointer = std::ptr::from_ref(value).cast();
        // SAFETY: `value` is a live reference to `length` bytes; the call only reads them.
        let result =
            unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, name, pointer, length) };
        Errno::result(result)?;
        Ok(())
    }

    /// Receives the next packet, if one waits. Control data that the kernel had no room for is left
    /// out.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if none waits, or another error of the system.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Envelope> {
        let mut control = Control([0; 128]);
        let mut slices = [IoSliceMut::new(buffer)];
        let message = recvmsg::<SockaddrStorage>(
            self.socket.as_raw_fd(),
            &mut slices,
            Some(&mut control.0),
            MsgFlags::MSG_DONTWAIT,
        )?;
        let mut envelope = Envelope { len: message.bytes, ..Envelope::default() };
        envelope.from = message.address.as_ref().and_then(socket_address);
        for control in message.cmsgs().into_iter().flatten() {
            match control {
                ControlMessageOwned::Ipv4PacketInfo(info) => {
                    envelope.interface = info.ipi_ifindex as u32;
                    envelope.to = Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                }
                ControlMessageOwned::Ipv6PacketInfo(info) => {
                    envelope.interface = info.ipi6_ifindex;
                    envelope.to = Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                ControlMessageOwned::RxqOvfl(lost) => envelope.lost = lost,
                _ => {}
            }
        }
        Ok(envelope)
    }

    /// Sends a packet without waiting for room. Multicast leaves by `interface`, and unicast by the
    /// interface of its route where `interface` is `None`. Without `from`, the system chooses an
    /// address.
    ///
    /// # Errors
    ///
    /// If the system refuses.
    pub fn send(
        &self,
        interface: Option<u32>,
        from: Option<IpAddr>,
        to: IpAddr,
        packet: &[u8],
    ) -> io::Result<()> {
        let index = interface.unwrap_or(0);
        let slices = [IoSlice::new(packet)];
        let fd = self.socket.as_raw_fd();
        match to {
            IpAddr::V4(to) => {
                let any = libc::in_addr { s_addr: 0 };
                let from = match from {
                    Some(IpAddr::V4(from)) => libc::in_addr { s_addr: u32::from(from).to_be() },
                    _ => any,
                };
                let info = libc::in_pktinfo {
                    ipi_ifindex: index as i32,
                    ipi_spec_dst: from,
                    ipi_addr: any,
                };
                let control = [ControlMessage::Ipv4PacketInfo(&info)];
                let to = SockaddrStorage::from(SocketAddr::from((to, 0)));
                sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
            }
            IpAddr::V6(to) => {
                let from = match from {
                    Some(IpAddr::V6(from)) => from,
                    _ => Ipv6Addr::UNSPECIFIED,
                };
                let info = libc::in6_pktinfo {
                    ipi6_addr: libc::in6_addr { s6_addr: from.octets() },
                    ipi6_ifindex: index,
                };
                let control = [ControlMessage::Ipv6PacketInfo(&info)];
                let to = SockaddrStorage::from(SocketAddrV6::new(to, 0, 0, index));
                sendmsg(fd, &slices, &control, MsgFlags::MSG_DONTWAIT, Some(&to))?;
            }
        }
        Ok(())
    }
}

impl AsFd for InterfaceSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    let v4 = address.as_sockaddr_in().map(|v4| SocketAddr::from((v4.ip(), v4.port())));
    v4.or_else(|| address.as_sockaddr_in6().map(|v6| SocketAddr::from((v6.ip(), v6.port()))))
}

/// Opens a socket that is closed when another program is run.
#[allow(unsafe_code)]
fn open(domain: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: `socket` takes no pointers; a result that is not -1 is a new descriptor.
    unsafe {
        let fd = Errno::result(libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}
