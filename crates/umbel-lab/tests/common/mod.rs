//! Helpers shared by the lab's tests.
#![allow(dead_code, unused_imports)]

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

pub(crate) use umbel_lab::testing::lab;
use umbel_lab::{Lab, Node, Topology};

/// Opens a socket of the node, bound to `port` and the unspecified address of `like`'s family.
pub(crate) fn socket(node: Node<'_>, like: IpAddr, port: u16) -> UdpSocket {
    let any: IpAddr = if like.is_ipv4() { [0, 0, 0, 0].into() } else { [0_u16; 8].into() };
    let socket = node.udp_socket(SocketAddr::new(any, port)).unwrap();
    let socket = socket2::Socket::from(socket);
    socket.set_recv_buffer_size(16 << 20).unwrap();
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
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

/// Sends `count` datagrams of `length` bytes, numbered in the first four, `gap` apart.
pub(crate) fn burst(from: &UdpSocket, to: SocketAddr, count: u32, length: usize, gap: Duration) {
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

/// Returns the datagrams that arrive, with their numbers, in order of arrival.
pub(crate) fn collect(socket: &UdpSocket) -> Vec<(u32, Vec<u8>)> {
    let mut received = Vec::new();
    let mut buffer = vec![0; 10_000];
    while let Ok((length, _)) = receive(socket, &mut buffer) {
        let number = u32::from_be_bytes(buffer[..4].try_into().unwrap());
        received.push((number, buffer[..length].to_vec()));
    }
    received
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
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    got
}
