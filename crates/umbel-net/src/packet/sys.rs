//! System calls of packet sockets that no crate wraps.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, SockaddrStorage, sendto};
use socket2::{Domain, Protocol, Socket, Type};

use super::filter::Program;

/// Opens a packet socket that receives nothing yet.
pub(crate) fn packet_socket() -> io::Result<OwnedFd> {
    Ok(Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None)?.into())
}

/// Opens a socket that sends IP packets with their headers, and receives none. The kernel routes
/// them.
pub(crate) fn ip_socket(like: IpAddr) -> io::Result<Socket> {
    let domain = if like.is_ipv4() { Domain::IPV4 } else { Domain::IPV6 };
    let raw = Some(Protocol::from(libc::IPPROTO_RAW));
    Socket::new(domain, Type::RAW.nonblocking().cloexec(), raw)
}

/// Sends an IP packet towards a host.
pub(crate) fn send_packet(socket: &Socket, packet: &[u8], mut to: SocketAddr) -> Result<(), Errno> {
    // A port would be taken for a protocol.
    to.set_port(0);
    let to = SockaddrStorage::from(to);
    sendto(socket.as_raw_fd(), packet, &to, MsgFlags::MSG_DONTWAIT).map(drop)
}

/// Sets an option of packet sockets. The type must be the option's type in C. A wrong one is
/// refused or misread by the system, but never writes to memory.
pub(crate) fn set_packet<T: Copy>(
    socket: BorrowedFd<'_>,
    option: c_int,
    value: &T,
) -> io::Result<()> {
    set(socket, libc::SOL_PACKET, option, value)
}

#[allow(unsafe_code)]
fn set<T: Copy>(socket: BorrowedFd<'_>, level: c_int, option: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the system reads at most `size_of::<T>()` bytes of `value`, which is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// Makes the kernel drop what does not pass the filter.
#[allow(unsafe_code)]
pub(crate) fn attach_filter(socket: BorrowedFd<'_>, program: &Program) -> io::Result<()> {
    let mut code = program.code().to_vec();
    let program = libc::sock_fprog { len: code.len() as libc::c_ushort, filter: code.as_mut_ptr() };
    // SAFETY: as in `set`; the kernel copies the program, which outlives the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// Binds a packet socket to an interface and an `ETH_P_*` protocol. With protocol 0 it only sends.
#[allow(unsafe_code)]
pub(crate) fn bind(socket: BorrowedFd<'_>, interface: u32, protocol: c_int) -> io::Result<()> {
    // SAFETY: plain data of which all bits zero is a value.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = interface as c_int;
    // SAFETY: the address is plain data of the length given and outlives the call.
    let result = unsafe {
        libc::bind(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// Returns the number of frames that a ring dropped since the last call.
#[allow(unsafe_code)]
pub(crate) fn take_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut statistics = libc::tpacket_stats_v3 { tp_packets: 0, tp_drops: 0, tp_freeze_q_cnt: 0 };
    let mut length = size_of::<libc::tpacket_stats_v3>() as libc::socklen_t;
    // SAFETY: the system writes at most `length` bytes to `statistics`, and the length back.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut statistics).cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(statistics.tp_drops)
}
