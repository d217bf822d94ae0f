//! System calls that no crate wraps in the form needed here. All `unsafe` of this crate's UDP part
//! is in this file.

use std::ffi::c_int;
use std::io::IoSlice;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::errno::Errno;
use nix::sys::socket::{SockaddrLike, SockaddrStorage};

/// Maximum number of messages that [`receive`] takes at once.
pub(crate) const MAX_MESSAGES: usize = 32;

/// Maximum number of messages that [`send`] takes at once.
pub(crate) const MAX_SENT: usize = 64;

/// Buffer for the control data of one message: packet information of either family, segment size,
/// drop counter, hop limit. Each is rounded up, with its header. Aligned as `cmsghdr` must be.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control([u8; 128]);

/// The system's data about one received message.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    name: libc::sockaddr_storage,
    control: Control,
    control_len: usize,
    flags: c_int,
    /// Bytes received.
    pub(crate) len: usize,
}

/// The control data of a message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Details {
    /// Destination address of the message.
    pub(crate) to: Option<IpAddr>,
    /// Length of each datagram but the last, if the message consists of several.
    pub(crate) segment: Option<usize>,
    /// Number of messages that the socket has dropped so far, modulo 2^32.
    pub(crate) drops: Option<u32>,
    /// Remainder of the hop limit.
    pub(crate) hop_limit: Option<u8>,
}

impl Envelope {
    /// Creates an empty envelope for receiving.
    #[allow(unsafe_code)]
    pub(crate) fn new() -> Envelope {
        // SAFETY: `sockaddr_storage` is plain data of which all bits zero is a value.
        let name = unsafe { std::mem::zeroed() };
        Envelope { name, control: Control([0; 128]), control_len: 0, flags: 0, len: 0 }
    }

    /// Returns the sender of the message, or `None` if it has no IP address.
    #[allow(unsafe_code)]
    pub(crate) fn from(&self) -> Option<SocketAddr> {
        let storage: *const libc::sockaddr_storage = &raw const self.name;
        match c_int::from(self.name.ss_family) {
            libc::AF_INET => {
                // SAFETY: `sockaddr_storage` is large and aligned enough for every address, and
                // the family says that it holds this one, which is plain data.
                let v4 = unsafe { storage.cast::<libc::sockaddr_in>().read() };
                let address = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Some(SocketAddr::from((address, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 => {
                // SAFETY: as above.
                let v6 = unsafe { storage.cast::<libc::sockaddr_in6>().read() };
                let address = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Some(SocketAddrV6::new(address, port, 0, v6.sin6_scope_id).into())
            }
            _ => None,
        }
    }

    /// Returns whether the system had to cut off a part of the payload or of the control data.
    pub(crate) fn is_truncated(&self) -> bool {
        self.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0
    }

    /// Reads the control data.
    pub(crate) fn details(&self) -> Details {
        let mut details = Details::default();
        let mut rest = &self.control.0[..self.control_len.min(self.control.0.len())];
        // [cmsg(3)]: each has a header (length with header, level, type), its data, and padding to
        // the alignment of a word.
        while let Some((length, level, kind)) = control_header(rest) {
            let data = &rest[CONTROL_HEADER..length];
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    // `in_pktinfo`: interface, local address, address in the header.
                    details.to = data.get(8..12).and_then(array::<4>).map(IpAddr::from);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    details.to = data.get(..16).and_then(array::<16>).map(IpAddr::from);
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    let left = data.get(..4).and_then(array).map(c_int::from_ne_bytes);
                    details.hop_limit = left.and_then(|left| u8::try_from(left).ok());
                }
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = data.get(..4).and_then(array).map(c_int::from_ne_bytes);
                    details.segment = size.and_then(|size| usize::try_from(size).ok());
                }
                (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => {
                    details.drops = data.get(..4).and_then(array).map(u32::from_ne_bytes);
                }
                _ => {}
            }
            rest = rest.get(length.next_multiple_of(size_of::<usize>())..).unwrap_or_default();
        }
        details
    }
}

/// Length of a control message's header.
const CONTROL_HEADER: usize = size_of::<libc::cmsghdr>().next_multiple_of(size_of::<usize>());

fn array<const N: usize>(bytes: &[u8]) -> Option<[u8; N]> {
    bytes.try_into().ok()
}

/// Reads the header of the first control message: its length, level and type.
fn control_header(bytes: &[u8]) -> Option<(usize, c_int, c_int)> {
    let word = size_of::<usize>();
    let length = usize::from_ne_bytes(array(bytes.get(..word)?)?);
    let level = c_int::from_ne_bytes(array(bytes.get(word..word + 4)?)?);
    let kind = c_int::from_ne_bytes(array(bytes.get(word + 4..word + 8)?)?);
    (CONTROL_HEADER..=bytes.len()).contains(&length).then_some((length, level, kind))
}

/// Receives up to one message for each buffer and envelope, without blocking. Returns the number of
/// messages.
///
/// # Errors
///
/// `EAGAIN` if no message waits, or another error of `recvmmsg`.
#[allow(unsafe_code)]
pub(crate) fn receive(
    socket: BorrowedFd<'_>,
    buffers: &mut [Box<[u8]>],
    envelopes: &mut [Envelope],
) -> Result<usize, Errno> {
    let count = buffers.len().min(envelopes.len()).min(MAX_MESSAGES);
    // SAFETY: both are plain data of which all bits zero is a value.
    let mut vectors: [libc::iovec; MAX_MESSAGES] = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut messages: [libc::mmsghdr; MAX_MESSAGES] = unsafe { std::mem::zeroed() };
    for i in 0..count {
        vectors[i].iov_base = buffers[i].as_mut_ptr().cast();
        vectors[i].iov_len = buffers[i].len();
        let header = &mut messages[i].msg_hdr;
        header.msg_iov = &raw mut vectors[i];
        header.msg_iovlen = 1;
        header.msg_name = (&raw mut envelopes[i].name).cast();
        header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
        header.msg_control = envelopes[i].control.0.as_mut_ptr().cast();
        header.msg_controllen = envelopes[i].control.0.len() as _;
    }
    // SAFETY: the first `count` messages point to buffers, names and control buffers, with their
    // right lengths. These are exclusively borrowed for this call; `vectors` outlives the call.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    let received = Errno::result(received)? as usize;
    for (envelope, message) in envelopes.iter_mut().zip(&messages[..received]) {
        envelope.len = message.msg_len as usize;
        envelope.control_len = message.msg_hdr.msg_controllen;
        envelope.flags = message.msg_hdr.msg_flags;
    }
    Ok(received)
}

/// Sends each message, a head and a body, to the same address, without waiting for room. Returns
/// the number of messages sent, at least one.
///
/// # Errors
///
/// If the first message was not sent.
#[allow(unsafe_code)]
pub(crate) fn send(
    socket: BorrowedFd<'_>,
    to: &SockaddrStorage,
    messages: &[[IoSlice<'_>; 2]],
) -> Result<usize, Errno> {
    let count = messages.len().min(MAX_SENT);
    // SAFETY: plain data of which all bits zero is a value.
    let mut headers: [libc::mmsghdr; MAX_SENT] = unsafe { std::mem::zeroed() };
    for (header, slices) in headers.iter_mut().zip(messages) {
        let header = &mut header.msg_hdr;
        header.msg_name = to.as_ptr().cast_mut().cast();
        header.msg_namelen = to.len();
        header.msg_iov = slices.as_ptr().cast_mut().cast();
        header.msg_iovlen = slices.len() as _;
    }
    // SAFETY: the first `count` headers point to an address and to slices that are borrowed for
    // this call, with their right lengths. `IoSlice` has the layout of `iovec`. Sending reads from
    // all of these and writes only the headers' own lengths.
    let sent = unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            libc::MSG_DONTWAIT as _,
        )
    };
    Errno::result(sent).map(|sent| sent as usize)
}

/// Sets a socket option whose value is plain data, or any number of bytes.
///
/// The type `T` must be the option's type in C. A wrong one is refused or misread by the system,
/// but never writes to memory.
#[allow(unsafe_code)]
pub(crate) fn set_option<T: ?Sized>(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: &T,
) -> Result<(), Errno> {
    // SAFETY: the system reads at most the length of `value`, which is borrowed.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const *value).cast(),
            size_of_val(value) as libc::socklen_t,
        )
    };
    Errno::result(result).map(drop)
}

/// Sets a socket option whose value is an integer or a boolean.
pub(crate) fn set_int(
    socket: BorrowedFd<'_>,
    level: c_int,
    option: c_int,
    value: c_int,
) -> Result<(), Errno> {
    set_option(socket, level, option, &value)
}

/// Sets the interface, by its index, on which IPv4 multicast is sent.
pub(crate) fn set_multicast_interface_v4(socket: BorrowedFd<'_>, index: u32) -> Result<(), Errno> {
    let any = libc::in_addr { s_addr: 0 };
    let request =
        libc::ip_mreqn { imr_multiaddr: any, imr_address: any, imr_ifindex: index as c_int };
    set_option(socket, libc::IPPROTO_IP, libc::IP_MULTICAST_IF, &request)
}

/// A change of a socket's group memberships.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Join,
    Leave,
}

/// Joins or leaves a group, or a source of a group, on the interface with this index.
#[allow(unsafe_code)]
pub(crate) fn change_membership(
    socket: BorrowedFd<'_>,
    change: Change,
    interface: u32,
    group: IpAddr,
    source: Option<IpAddr>,
) -> Result<(), Errno> {
    #[repr(C)]
    #[derive(Clone, Copy)]
    struct GroupRequest {
        interface: u32,
        group: libc::sockaddr_storage,
    }
    let level = if group.is_ipv4() { libc::IPPROTO_IP } else { libc::IPPROTO_IPV6 };
    let Some(source) = source else {
        let option = match change {
            Change::Join => libc::MCAST_JOIN_GROUP,
            Change::Leave => libc::MCAST_LEAVE_GROUP,
        };
        let request = GroupRequest { interface, group: storage(group) };
        return set_option(socket, level, option, &request);
    };
    let option = match change {
        Change::Join => libc::MCAST_JOIN_SOURCE_GROUP,
        Change::Leave => libc::MCAST_LEAVE_SOURCE_GROUP,
    };
    // SAFETY: plain data of which all bits zero is a value.
    let mut request: libc::group_source_req = unsafe { std::mem::zeroed() };
    request.gsr_interface = interface;
    request.gsr_group = storage(group);
    request.gsr_source = storage(source);
    set_option(socket, level, option, &request)
}

/// Returns the address in the form of the system, with port 0.
#[allow(unsafe_code)]
fn storage(address: IpAddr) -> libc::sockaddr_storage {
    // SAFETY: plain data of which all bits zero is a value.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let place = &raw mut storage;
    match address {
        IpAddr::V4(v4) => {
            // SAFETY: `sockaddr_storage` is large and aligned enough for every address, and all
            // of it is initialised and exclusively ours.
            let name = unsafe { &mut *place.cast::<libc::sockaddr_in>() };
            name.sin_family = libc::AF_INET as libc::sa_family_t;
            name.sin_addr.s_addr = u32::from(v4).to_be();
        }
        IpAddr::V6(v6) => {
            // SAFETY: as above.
            let name = unsafe { &mut *place.cast::<libc::sockaddr_in6>() };
            name.sin6_family = libc::AF_INET6 as libc::sa_family_t;
            name.sin6_addr.s6_addr = v6.octets();
        }
    }
    storage
}

/// Returns the MTU of an interface in bytes.
#[allow(unsafe_code)]
pub(crate) fn mtu(socket: BorrowedFd<'_>, interface: &str) -> Result<usize, Errno> {
    // SAFETY: plain data of which all bits zero is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.as_bytes();
    // The last byte of the name is the terminating zero.
    if name.len() >= request.ifr_name.len() {
        return Err(Errno::ENODEV);
    }
    for (place, byte) in request.ifr_name.iter_mut().zip(name) {
        *place = *byte as libc::c_char;
    }
    // SAFETY: this request reads the name of an `ifreq`, which ends with a zero, and writes its
    // integer.
    let result =
        unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request) };
    Errno::result(result)?;
    // SAFETY: the system has just written this field of the union.
    Ok(usize::try_from(unsafe { request.ifr_ifru.ifru_mtu }).unwrap_or(0))
}

/// Returns the number of messages that the socket has dropped because its buffer was full,
/// modulo 2^32.
#[allow(unsafe_code)]
pub(crate) fn drops(socket: BorrowedFd<'_>) -> Result<u32, Errno> {
    // `SO_MEMINFO` and `SK_MEMINFO_DROPS` of <asm-generic/socket.h> and <linux/sock_diag.h>.
    const SO_MEMINFO: c_int = 55;
    const DROPS: usize = 8;
    let mut values = [0_u32; 9];
    let mut length = size_of_val(&values) as libc::socklen_t;
    // SAFETY: the system writes at most `length` bytes to `values`, and the length back.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_MEMINFO,
            values.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    Errno::result(result)?;
    Ok(values[DROPS])
}
