//! Helpers shared by the lab's tests.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv};
use umbel_lab::emulator::DirectionStats;

pub(crate) use umbel_lab::testing::lab;
use umbel_lab::{Lab, Node};

/// Opens a socket of the node, bound to `port` and the unspecified address of `like`'s family.
pub(crate) fn socket(node: Node<'_>, like: IpAddr, port: u16) -> UdpSocket {
    let any: IpAddr = if like.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = node.udp_socket(SocketAddr::new(any, port)).unwrap();
    let socket = socket2::Socket::from(socket);
    socket.set_recv_buffer_size(16 << 20).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// Receives a datagram. Repeats a wait that the system interrupts.
pub(crate) fn receive(
    socket: &UdpSocket,
    buffer: &mut [u8],
) -> std::io::Result<(usize, SocketAddr)> {
    loop {
        match socket.recv_from(buffer) {
            Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Silence after which nothing more is expected.
pub(crate) const SILENCE: Duration = Duration::from_millis(500);

/// Time longer than anything in these tests takes.
pub(crate) const LAST_RESORT: Duration = Duration::from_mins(2);

/// Datagrams that may be on their way to the emulator, or from it to their receiver, while the next
/// is sent. They fit the smallest usual buffers.
const UNDER_WAY: u64 = 64;

/// Datagrams that cross each emulated link of a lab. They are sent no faster than the emulator and
/// the receiver take them, so that no buffer loses any, however small it is and however busy the
/// machine. Their collector knows when all have arrived that will.
pub(crate) struct Traffic<'a> {
    lab: &'a Lab,
    /// Frames of each emulated link before the first datagram.
    before: Vec<u64>,
    /// Datagrams that were sent or will be.
    announced: AtomicU64,
    sent: AtomicU64,
}

/// A socket that sends to another, which it has resolved.
pub(crate) struct Ends {
    pub(crate) sender: UdpSocket,
    pub(crate) receiver: UdpSocket,
    pub(crate) to: SocketAddr,
}

impl<'a> Traffic<'a> {
    pub(crate) fn new(lab: &'a Lab) -> Traffic<'a> {
        let before = emulated(lab).map(|link| link.iter().map(|d| d.frames).sum()).collect();
        Traffic { lab, before, announced: AtomicU64::new(0), sent: AtomicU64::new(0) }
    }

    /// Sends `count` datagrams of `length` bytes, numbered in the first four, `gap` apart. They must
    /// fit their receivers' buffers, since nobody reads meanwhile.
    pub(crate) fn burst(
        &self,
        sender: &UdpSocket,
        to: SocketAddr,
        count: u32,
        length: usize,
        gap: Duration,
    ) {
        self.announced.fetch_add(count.into(), Ordering::SeqCst);
        numbered(count, length, gap, |datagram| {
            sender.send_to(datagram, to).unwrap();
            self.wait_for_room(1, None);
        });
    }

    /// Sends like [`Traffic::burst`] while the receiver reads. Returns what it gets, and how long it
    /// took to send.
    pub(crate) fn carry(
        &self,
        ends: &Ends,
        count: u32,
        length: usize,
        gap: Duration,
    ) -> (Vec<(u32, Vec<u8>)>, Duration) {
        let start = Instant::now();
        self.read_during(&ends.receiver, count, || {
            numbered(count, length, gap, |datagram| {
                ends.sender.send_to(datagram, ends.to).unwrap();
                self.wait_for_room(1, Some(&ends.receiver));
            });
            start.elapsed()
        })
    }

    /// Reads while `send` sends `count` datagrams. Returns what arrives, and what `send` returned.
    pub(crate) fn read_during<T>(
        &self,
        receiver: &UdpSocket,
        count: u32,
        send: impl FnOnce() -> T,
    ) -> (Vec<(u32, Vec<u8>)>, T) {
        self.announced.fetch_add(count.into(), Ordering::SeqCst);
        std::thread::scope(|scope| {
            let received = scope.spawn(|| self.collect(receiver));
            let sent = send();
            (received.join().unwrap(), sent)
        })
    }

    /// Waits until few of the datagrams that were sent, with `count` more now, are on their way to
    /// the emulator, and the receiver has read what has come.
    pub(crate) fn wait_for_room(&self, count: u64, receiver: Option<&UdpSocket>) {
        let sent = self.sent.fetch_add(count, Ordering::SeqCst) + count;
        if sent % UNDER_WAY >= count {
            return;
        }
        let has_read = || {
            let waiting = receiver.map(|socket| {
                let flags = MsgFlags::MSG_PEEK | MsgFlags::MSG_DONTWAIT;
                recv(socket.as_raw_fd(), &mut [0], flags)
            });
            waiting.is_none_or(|waiting| waiting == Err(Errno::EAGAIN))
        };
        let start = Instant::now();
        while !(self.have_entered(sent) && has_read()) {
            assert!(start.elapsed() < LAST_RESORT, "{:?}", self.lab.link_stats());
            std::thread::sleep(Duration::from_micros(50));
        }
    }

    /// Returns the datagrams that arrive, with their numbers, in order of arrival. Ends when all
    /// that were announced have left the emulator, and nothing has arrived for a while.
    pub(crate) fn collect(&self, socket: &UdpSocket) -> Vec<(u32, Vec<u8>)> {
        let mut received = Vec::new();
        let mut buffer = vec![0; 10_000];
        let start = Instant::now();
        loop {
            let over = self.is_over();
            let before = received.len();
            while let Ok((length, _)) = receive(socket, &mut buffer) {
                let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
                received.push((number, buffer[..length].to_vec()));
            }
            if over && received.len() == before {
                return received;
            }
            let stats = self.lab.link_stats();
            assert!(start.elapsed() < LAST_RESORT, "datagrams are still under way: {stats:?}");
        }
    }

    /// Returns whether every datagram that was announced has entered each emulated link and left it.
    fn is_over(&self) -> bool {
        self.have_entered(self.announced.load(Ordering::SeqCst))
            && emulated(self.lab).all(|link| {
                let sum = |count: fn(&DirectionStats) -> u64| link.iter().map(count).sum::<u64>();
                let left = sum(|d| d.delivered + d.lost + d.queue_full + d.down + d.overruns);
                sum(|d| d.frames + d.duplicated) <= left
            })
    }

    /// Returns whether this number of datagrams has entered each emulated link.
    fn have_entered(&self, count: u64) -> bool {
        emulated(self.lab).zip(&self.before).all(|(link, before)| {
            link.iter().map(|d| d.frames + d.overruns).sum::<u64>() >= before + count
        })
    }
}

/// Calls `send` with `count` datagrams of `length` bytes, numbered in the first four, `gap` apart.
fn numbered(count: u32, length: usize, gap: Duration, send: impl Fn(&[u8])) {
    let mut datagram = vec![0x55; length];
    let start = Instant::now();
    for n in 0..count {
        datagram[..4].copy_from_slice(&n.to_be_bytes());
        send(&datagram);
        while start.elapsed() < gap * (n + 1) {
            std::hint::spin_loop();
        }
    }
}

/// Returns the counters of the emulated links.
fn emulated(lab: &Lab) -> impl Iterator<Item = [DirectionStats; 2]> {
    lab.link_stats().into_iter().filter_map(|link| link.directions)
}

/// Resolves neighbours, so that the first datagrams are not delayed by it.
pub(crate) fn warm_up(a: &UdpSocket, b: &UdpSocket, b_address: SocketAddr) {
    for _ in 0..50 {
        a.send_to(&u32::MAX.to_be_bytes(), b_address).unwrap();
        if let Ok((_, from)) = receive(b, &mut [0; 10]) {
            b.send_to(b"back", from).unwrap();
            if receive(a, &mut [0; 10]).is_ok() {
                break;
            }
        }
    }
    while collect_once(a) || collect_once(b) {}
}

fn collect_once(socket: &UdpSocket) -> bool {
    socket.set_read_timeout(Some(Duration::from_millis(60))).unwrap();
    let got = receive(socket, &mut [0; 10]).is_ok();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    got
}
