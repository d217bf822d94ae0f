//! A source-specific channel in a lab: a host that sends on it, and members in both families.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::mpsc;
use std::time::Duration;

use socket2::SockRef;
use umbel_lab::{Lab, Node};

use super::lms::receive;

pub(crate) const GROUP: Ipv4Addr = Ipv4Addr::new(232, 1, 1, 1);
pub(crate) const GROUP6: Ipv6Addr = Ipv6Addr::new(0xFF3E, 0, 0, 0, 0, 0, 0x8000, 1);
const PORT: u16 = 7900;

/// A member of the source's channel in one of the families.
pub(crate) struct Member {
    socket: UdpSocket,
    host: (Ipv4Addr, u32),
    source: (Ipv4Addr, Ipv6Addr),
    v6: bool,
}

impl Member {
    pub(crate) fn new(lab: &Lab, host: &str, v6: bool) -> Member {
        let (host, source) = (lab.host(host).unwrap(), lab.host("source").unwrap());
        let group: IpAddr = if v6 { GROUP6.into() } else { GROUP.into() };
        let socket = host.udp_socket(SocketAddr::new(group, PORT)).unwrap();
        SockRef::from(&socket).set_recv_buffer_size(4 << 20).unwrap();
        let host = (host.addr4(), host.interfaces()[0].index);
        Member { socket, host, source: (source.addr4(), source.addr6()), v6 }
    }

    pub(crate) fn join(&self) {
        let socket = SockRef::from(&self.socket);
        if self.v6 {
            self.change_v6(nix::libc::MCAST_JOIN_SOURCE_GROUP);
        } else {
            socket.join_ssm_v4(&self.source.0, &GROUP, &self.host.0).unwrap();
        }
    }

    pub(crate) fn leave(&self) {
        let socket = SockRef::from(&self.socket);
        if self.v6 {
            self.change_v6(nix::libc::MCAST_LEAVE_SOURCE_GROUP);
        } else {
            socket.leave_ssm_v4(&self.source.0, &GROUP, &self.host.0).unwrap();
        }
    }

    fn change_v6(&self, option: i32) {
        change_v6(&self.socket, option, self.host.1, (self.source.1, GROUP6));
    }

    /// Returns whether the next datagram comes within the time.
    pub(crate) fn hears(&self, timeout: Duration) -> bool {
        receive(&self.socket, timeout).is_some()
    }

    /// Forgets what has come so far.
    pub(crate) fn forget(&self) {
        self.socket.set_nonblocking(true).unwrap();
        while self.socket.recv(&mut [0; 16]).is_ok() {}
        self.socket.set_nonblocking(false).unwrap();
    }
}

/// Joins a channel of IPv6 on an interface, or leaves it: `MCAST_JOIN_SOURCE_GROUP` or
/// `MCAST_LEAVE_SOURCE_GROUP`.
#[allow(unsafe_code)]
pub(crate) fn change_v6(
    socket: &UdpSocket,
    option: i32,
    interface: u32,
    (source, group): (Ipv6Addr, Ipv6Addr),
) {
    // SAFETY: plain data of which all bits zero is a value.
    let mut request: nix::libc::group_source_req = unsafe { std::mem::zeroed() };
    request.gsr_interface = interface;
    for (place, address) in
        [(&raw mut request.gsr_group, group), (&raw mut request.gsr_source, source)]
    {
        let address = socket2::SockAddr::from(SocketAddr::from((address, 0)));
        // SAFETY: both have the room of `sockaddr_storage`.
        unsafe {
            let from = address.as_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(from, place.cast::<u8>(), address.len() as usize);
        }
    }
    set_option(socket, (nix::libc::IPPROTO_IPV6, option), &request);
}

/// Sets an option of a socket: its level, its number and its value.
#[allow(unsafe_code)]
pub(crate) fn set_option<T: ?Sized>(socket: &UdpSocket, (level, option): (i32, i32), value: &T) {
    use std::os::fd::AsRawFd as _;
    let len = size_of_val(value) as u32;
    let value = std::ptr::from_ref(value).cast();
    // SAFETY: the system reads `len` bytes of the value, which lives.
    let result = unsafe { nix::libc::setsockopt(socket.as_raw_fd(), level, option, value, len) };
    assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
}

/// Sends a datagram every 5 ms until it is dropped.
pub(crate) struct Sender {
    stop: mpsc::Sender<()>,
}

impl Sender {
    pub(crate) fn start(source: Node<'_>, v6: bool) -> Sender {
        let any: IpAddr = if v6 { Ipv6Addr::UNSPECIFIED.into() } else { [0, 0, 0, 0].into() };
        let socket = source.udp_socket(SocketAddr::new(any, 0)).unwrap();
        if v6 {
            SockRef::from(&socket).set_multicast_hops_v6(16).unwrap();
            SockRef::from(&socket).set_multicast_if_v6(source.interfaces()[0].index).unwrap();
        } else {
            SockRef::from(&socket).set_multicast_ttl_v4(16).unwrap();
        }
        let group: IpAddr = if v6 { GROUP6.into() } else { GROUP.into() };
        let (stop, stopped) = mpsc::channel();
        std::thread::spawn(move || {
            let wait = Duration::from_millis(5);
            let go_on = mpsc::RecvTimeoutError::Timeout;
            while stopped.recv_timeout(wait) == Err(go_on) {
                let _ = socket.send_to(b"stream", (group, PORT));
            }
        });
        Sender { stop }
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let _ = self.stop.send(());
    }
}
