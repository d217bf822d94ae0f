//! A TCP server of the simplest kind: it multicasts some bytes to all its connections, and
//! retransmits to each alone what that lacks. It tests what carries segments, not how they are
//! made.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::{Address, Allowance, Transmit, TransmitBuf};
use umbel_net::clock::Clock;
use umbel_net::packet::PacketPort;
use umbel_net::port::Port;
use umbel_wire::Channel;
use umbel_wire::tcp::{Flags, Head, Membership, Options, Segment, Seq};

/// Length of a payload; with the membership option it still fits.
pub(crate) const MSS: usize = 1400;
/// The first byte's number, so that numbers wrap on the way.
const BASE: Seq = Seq(u32::MAX - 100_000);
/// Bytes under way at most.
const WINDOW: usize = 64 << 10;
/// Segments in one transmit.
const BATCH: usize = 16;

/// Work of a server.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Report {
    /// Data segments sent to the channel.
    pub(crate) multicasts: usize,
    /// Data segments sent to one peer.
    pub(crate) unicasts: usize,
    /// Bytes that all clients sent.
    pub(crate) heard: usize,
    /// Segments with RST received.
    pub(crate) resets: usize,
}

struct Child {
    acked: usize,
    /// The next number expected from the client.
    next: Seq,
    established: bool,
    finished: bool,
    idle: u32,
}

pub(crate) struct MiniServer {
    port: PacketPort,
    server: SocketAddr,
    channel: Channel,
    data: Bytes,
    children: BTreeMap<SocketAddr, Child>,
    pub(crate) report: Report,
    /// Whether multicasts are left out, as in a network without any.
    pub(crate) deaf: bool,
    /// Whether to go on when all is said.
    pub(crate) stop: Arc<AtomicBool>,
    sent: usize,
    clock: Clock,
}

impl MiniServer {
    pub(crate) fn new(
        port: PacketPort,
        server: SocketAddr,
        channel: Channel,
        data: Bytes,
    ) -> MiniServer {
        MiniServer {
            port,
            server,
            channel,
            data,
            children: BTreeMap::new(),
            report: Report::default(),
            deaf: false,
            stop: Arc::default(),
            sent: 0,
            clock: Clock::new(),
        }
    }

    /// Serves until `clients` have received everything, or it is told to stop.
    pub(crate) fn serve(&mut self, clients: usize) -> Report {
        while !self.stop.load(Ordering::Relaxed) {
            self.turn();
            if self.children.values().filter(|child| child.established).count() < clients {
                continue;
            }
            let end = self.data.len() + 1;
            if self.children.values().all(|child| child.acked >= end || child.finished) {
                break;
            }
            let least = self.children.values().map(|child| child.acked).min().unwrap_or(0);
            while self.sent < self.data.len() && self.sent < least + WINDOW {
                let first = self.sent;
                self.sent = (first + BATCH * MSS).min(self.data.len());
                if !self.deaf {
                    let to = Address::Channel(self.channel);
                    self.report.multicasts += self.send_data(to, first, self.sent, Seq(0));
                }
            }
            self.retransmit();
        }
        // The last acknowledgements may get lost with this server, and nobody misses them.
        self.report
    }

    /// Sends to each child that made no progress lately what it lacks.
    fn retransmit(&mut self) {
        let lacking: Vec<_> = self
            .children
            .iter_mut()
            .filter(|(_, child)| child.established && child.acked <= self.data.len())
            .filter_map(|(peer, child)| {
                child.idle += 1;
                // About 20 ms.
                (child.idle % 20 == 0).then_some((*peer, child.acked, child.next))
            })
            .collect();
        for (peer, acked, next) in lacking {
            let end = (acked + BATCH * MSS).min(self.sent);
            self.report.unicasts += self.send_data(Address::Host(peer), acked, end, next);
        }
    }

    /// Sends a part of the data, and FIN after the end. Returns the number of segments.
    fn send_data(&mut self, to: Address, first: usize, end: usize, ack: Seq) -> usize {
        let mut buf = TransmitBuf::new(Allowance::default());
        let mut at = first;
        let unicast = matches!(to, Address::Host(_));
        while at < end || (end == self.data.len() && buf.is_empty()) {
            let next = (at + MSS).min(end);
            let mut flags = Flags::ACK;
            if next == self.data.len() {
                flags = flags | Flags::FIN | Flags::PSH;
            }
            let head = self.head(to, BASE.plus(1 + at as u32), ack, flags, unicast);
            buf.push(&head, self.data.slice(at..next));
            at = next;
        }
        let count = buf.len();
        if count > 0 {
            self.port.send(self.clock.now(), &Transmit::data(to), &mut buf).unwrap();
        }
        count
    }

    fn head(&self, to: Address, seq: Seq, ack: Seq, flags: Flags, member: bool) -> Vec<u8> {
        let destination_port = match to {
            Address::Host(peer) => peer.port(),
            _ => self.channel.port,
        };
        let mss = flags.has(Flags::SYN).then_some(1460);
        let membership = member.then_some(Membership::Port(self.channel.port));
        let options = Options { mss, membership, ..Options::default() };
        let source_port = self.server.port();
        let window = 60_000;
        let mut out = Vec::new();
        Head { source_port, destination_port, seq, ack, flags, window, options }.emit(&mut out);
        out
    }

    fn turn(&mut self) {
        let mut heard = Vec::new();
        let turn = self.port.turn(self.clock.now(), true, &mut |datagram| {
            let Address::Host(peer) = datagram.by else { panic!("a segment of nobody") };
            heard.push((peer, datagram.payload.to_vec()));
        });
        assert!(turn.troubles.is_empty(), "{:?}", turn.troubles);
        if heard.is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
        for (peer, segment) in heard {
            self.hear(peer, &Segment::parse(&segment).unwrap());
        }
    }

    fn hear(&mut self, peer: SocketAddr, segment: &Segment<'_>) {
        let flags = segment.head.flags;
        if flags.has(Flags::RST) {
            self.report.resets += 1;
            if let Some(child) = self.children.get_mut(&peer) {
                child.finished = true;
            }
            return;
        }
        if flags.has(Flags::SYN) {
            let next = segment.head.seq.plus(1);
            let child = Child { acked: 0, next, established: false, finished: false, idle: 0 };
            self.children.entry(peer).or_insert(child);
            return self.answer(peer, BASE, next, Flags::SYN | Flags::ACK);
        }
        let Some(child) = self.children.get_mut(&peer) else { return };
        child.established = true;
        let acked = segment.head.ack.since(BASE.plus(1));
        if acked > child.acked as i32 {
            child.acked = acked as usize;
            child.idle = 0;
        }
        if segment.head.seq == child.next && !segment.is_empty() {
            child.next = segment.end();
            self.report.heard += segment.payload.len();
        }
        if !segment.is_empty() {
            let (next, seq) = (child.next, BASE.plus(1 + child.acked as u32));
            self.answer(peer, seq, next, Flags::ACK);
        }
    }

    fn answer(&mut self, peer: SocketAddr, seq: Seq, ack: Seq, flags: Flags) {
        let to = Address::Host(peer);
        let mut buf = TransmitBuf::new(Allowance::default());
        buf.push_message(self.head(to, seq, ack, flags, true));
        self.port.send(self.clock.now(), &Transmit::control(to), &mut buf).unwrap();
    }
}
