//! A host in a lab that forges TCP segments.

use std::io::{ErrorKind, Read as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::libc;
use socket2::Socket;
use umbel_lab::Node;
use umbel_wire::tcp::{Head, Packet, Segment, ip_len, pseudo_header};

use super::stranger::HOPS;

/// Number of IP's protocol for TCP.
const TCP: u8 = 6;
/// Time between two turns of a forger.
const TURN: Duration = Duration::from_millis(1);
/// Segments that are heard in one turn at most.
const HEARD: usize = 256;

/// What a forger speaks and hears with.
pub(crate) struct Forger {
    /// Its own address.
    pub(crate) here: Ipv4Addr,
    mouth: Socket,
    ear: Socket,
    sent: u64,
}

impl Forger {
    fn at(host: Node<'_>) -> Forger {
        let raw =
            |protocol| Socket::from(host.socket(libc::AF_INET, libc::SOCK_RAW, protocol).unwrap());
        let (mouth, ear) = (raw(libc::IPPROTO_RAW), raw(libc::IPPROTO_TCP));
        mouth.set_multicast_if_v4(&host.addr4()).unwrap();
        for socket in [&mouth, &ear] {
            socket.set_nonblocking(true).unwrap();
        }
        Forger { here: host.addr4(), mouth, ear, sent: 0 }
    }

    /// Sends a segment in the name of anybody. A full buffer loses it, as the network might.
    pub(crate) fn say(&mut self, from: Ipv4Addr, to: Ipv4Addr, head: &Head, payload: &[u8]) {
        let mut segment = Vec::new();
        head.emit(&mut segment);
        segment.extend_from_slice(payload);
        self.say_bytes(from, to, segment);
    }

    /// Sends what claims to be a segment. Its checksum is set, if it is long enough to have one.
    pub(crate) fn say_bytes(&mut self, from: Ipv4Addr, to: Ipv4Addr, mut segment: Vec<u8>) {
        if let Some(place) = segment.get_mut(16..18) {
            place.fill(0);
            let sum = pseudo_header(from.into(), to.into(), segment.len()).bytes(&segment);
            segment[16..18].copy_from_slice(&sum.checksum().to_be_bytes());
        }
        let total = u16::try_from(ip_len(from.into()) + segment.len()).unwrap().to_be_bytes();
        // The kernel adds number and checksum.
        let mut packet = vec![0x45, 0, total[0], total[1], 0, 0, 0x40, 0, HOPS, TCP, 0, 0];
        packet.extend(from.octets());
        packet.extend(to.octets());
        packet.extend(segment);
        let to = SocketAddrV4::new(to, 0).into();
        self.sent += u64::from(self.mouth.send_to(&packet, &to).is_ok());
    }

    /// Returns the segments that have come to this host since, each with the length of its payload.
    pub(crate) fn heard(&mut self) -> Vec<(Ipv4Addr, Head, usize)> {
        let mut heard = Vec::new();
        let mut buffer = vec![0; 65_536];
        for _ in 0..HEARD {
            match self.ear.read(&mut buffer) {
                Ok(len) => {
                    let Some(packet) = Packet::find(&buffer[..len]) else { continue };
                    let IpAddr::V4(from) = packet.source else { continue };
                    if let Ok(segment) = Segment::parse(packet.segment()) {
                        heard.push((from, segment.head, segment.payload.len()));
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        heard
    }
}

/// A forger at work, until it is stopped or dropped.
pub(crate) struct Forging {
    stopped: Arc<AtomicBool>,
    thread: Option<JoinHandle<u64>>,
}

impl Forging {
    /// Starts on a host. `attack` is called about 1,000 times a second.
    pub(crate) fn start(
        host: Node<'_>,
        mut attack: impl FnMut(&mut Forger) + Send + 'static,
    ) -> Forging {
        let mut forger = Forger::at(host);
        let stopped = Arc::<AtomicBool>::default();
        let stop = stopped.clone();
        let thread = std::thread::spawn(move || {
            while !stop.load(Ordering::Acquire) {
                attack(&mut forger);
                std::thread::sleep(TURN);
            }
            forger.sent
        });
        Forging { stopped, thread: Some(thread) }
    }

    /// Stops it. Returns the number of segments that it has sent.
    pub(crate) fn stop(mut self) -> u64 {
        self.stopped.store(true, Ordering::Release);
        self.thread.take().expect("it runs until it is stopped").join().unwrap()
    }
}

impl Drop for Forging {
    fn drop(&mut self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
