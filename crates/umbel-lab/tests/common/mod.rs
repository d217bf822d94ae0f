//! Helpers shared by the lab's tests.
#![allow(dead_code, unused_imports)]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use umbel_lab::emulator::DirectionStats;
pub(crate) use umbel_lab::testing::lab;
use umbel_lab::{Lab, Node, Topology};

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

/// Datagrams that cross each emulated link of a lab, so that their collector knows when all have
/// arrived that will.
pub(crate) struct Traffic<'a> {
    lab: &'a Lab,
    /// Frames of each emulated link before the first datagram.
    before: Vec<u64>,
    sent: AtomicU64,
}

impl<'a> Traffic<'a> {
    pub(crate) fn new(lab: &'a Lab) -> Traffic<'a> {
        let before = emulated(lab).map(|link| link.iter().map(|d| d.frames).sum()).collect();
        Traffic { lab, before, sent: AtomicU64::new(0) }
    }

    /// Sends `count` datagrams of `length` bytes, numbered in the first four, `gap` apart.
    pub(crate) fn burst(
        &self,
        from: &UdpSocket,
        to: SocketAddr,
        count: u32,
        length: usize,
        gap: Duration,
    ) {
        self.announce(count);
        send(from, to, count, length, gap);
    }

    /// Sends like [`Traffic::burst`] while `receiver` reads. Returns what it gets.
    pub(crate) fn carry(
        &self,
        (from, receiver, to): &(UdpSocket, UdpSocket, SocketAddr),
        count: u32,
        length: usize,
        gap: Duration,
    ) -> Vec<(u32, Vec<u8>)> {
        self.announce(count);
        std::thread::scope(|scope| {
            let received = scope.spawn(|| self.collect(receiver));
            send(from, *to, count, length, gap);
            received.join().unwrap()
        })
    }

    /// Announces the number of datagrams that will be sent, before anyone collects them.
    pub(crate) fn announce(&self, count: u32) {
        self.sent.fetch_add(count.into(), Ordering::SeqCst);
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

    /// Returns whether every datagram has entered each emulated link and left it.
    fn is_over(&self) -> bool {
        let sent = self.sent.load(Ordering::SeqCst);
        emulated(self.lab).zip(&self.before).all(|(link, before)| {
            let sum = |count: fn(&DirectionStats) -> u64| link.iter().map(count).sum::<u64>();
            let overruns = sum(|d| d.overruns);
            let left = sum(|d| d.delivered + d.lost + d.queue_full + d.down);
            sum(|d| d.frames) + overruns >= before + sent
                && sum(|d| d.frames + d.duplicated) <= left + overruns
        })
    }
}

/// Sends `count` datagrams of `length` bytes, numbered in the first four, `gap` apart.
fn send(from: &UdpSocket, to: SocketAddr, count: u32, length: usize, gap: Duration) {
    let mut datagram = vec![0x55; length];
    let start = Instant::now();
    for n in 0..count {
        datagram[..4].copy_from_slice(&n.to_be_bytes());
        from.send_to(&datagram, to).unwrap();
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
