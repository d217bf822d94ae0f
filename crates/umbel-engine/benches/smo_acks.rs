//! Measures a TCP-SMO source: acknowledgements a second, and bytes a connection.
//!
//! All children acknowledge every other segment of a stream that is multicast, one child after the
//! other, so that consecutive ACKs are of different children. Prints the time of an ACK, sending
//! included, for several numbers of children, and the memory of a child. The best of five. Run with
//! `cargo bench -p umbel-engine --bench smo_acks`.

use std::net::SocketAddr;
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use umbel_engine::chance::generator;
use umbel_engine::smo::{MasterId, Source, SourceCommand, SourceConfig, Stream};
use umbel_engine::{Address, Allowance, Datagram, Engine, Instant, TransmitBuf};
use umbel_wire::Channel;
use umbel_wire::tcp::{Flags, Head, Options, Segment, Seq};

const PORT: u16 = 8080;
const MSS: u32 = 1460;
/// Segments that are acknowledged by everyone, in one measurement.
const SEGMENTS: u32 = 256;
const REPETITIONS: u32 = 5;
const CHILDREN: [u32; 3] = [10_000, 1_000, 100];

struct Bench {
    source: Source,
    now: Instant,
    peers: Vec<SocketAddr>,
    buf: TransmitBuf,
    /// Sequence number after what was sent.
    sent: Seq,
    acks: Vec<Vec<u8>>,
}

fn peer(number: u32) -> SocketAddr {
    let [_, _, high, low] = number.to_be_bytes();
    ([10, 1, high, low], 40_000 + (number % 20_000) as u16).into()
}

fn segment(peer: SocketAddr, seq: u32, ack: Seq, flags: Flags) -> Vec<u8> {
    let is_syn = flags.has(Flags::SYN);
    let options = Options {
        mss: is_syn.then_some(MSS as u16),
        window_scale: is_syn.then_some(7),
        sack_permitted: is_syn,
        ..Options::default()
    };
    let mut bytes = Vec::new();
    Head {
        source_port: peer.port(),
        destination_port: PORT,
        seq: Seq(seq),
        ack,
        flags,
        window: u16::MAX,
        options,
    }
    .emit(&mut bytes);
    bytes
}

impl Bench {
    fn new(children: u32) -> Bench {
        let group = [232, 7, 7, 7].into();
        let channel = Channel { source: Some([10, 0, 0, 1].into()), group, port: PORT };
        let mut config = SourceConfig::new(PORT, channel);
        (config.base, config.half_open) = (Some(0), 20_000);
        let mut bench = Bench {
            source: Source::new(config, generator(0)),
            now: Instant::from_nanos(1_000_000_000),
            peers: (0..children).map(peer).collect(),
            buf: TransmitBuf::default(),
            sent: Seq(0),
            acks: Vec::new(),
        };
        for peer in bench.peers.clone() {
            bench.give(peer, &segment(peer, 0, Seq(0), Flags::SYN));
            bench.drain();
            bench.give(peer, &segment(peer, 1, Seq(0), Flags::ACK));
            bench.drain();
        }
        assert_eq!(bench.source.len(), children as usize);
        bench.acks = bench.peers.iter().map(|at| segment(*at, 1, Seq(0), Flags::ACK)).collect();
        bench
    }

    fn give(&mut self, peer: SocketAddr, payload: &[u8]) {
        let by = Address::Host(peer);
        self.source.handle_datagram(self.now, Datagram { by, hop_limit: None, payload });
    }

    /// Drains the source, without what the pace would hold back.
    fn drain(&mut self) {
        while self.source.poll_event().is_some() {}
        self.buf.reset(Allowance::data(0));
        while self.source.poll_transmit(self.now, &mut self.buf).is_some() {
            self.buf.reset(Allowance::data(0));
        }
    }

    /// Sends this number of segments at most; returns how many.
    fn send(&mut self, most: usize) -> u32 {
        let mut sent = 0;
        while sent < most {
            self.buf.reset(Allowance::data(most - sent));
            if self.source.poll_transmit(self.now, &mut self.buf).is_none() {
                break;
            }
            sent += self.buf.len();
            if let Some((head, body)) = self.buf.iter().last() {
                let head = Segment::parse(head).expect("the source sends segments").head;
                self.sent = head.seq.plus(body.len() as u32);
            }
        }
        sent as u32
    }

    /// Lets everyone acknowledge segments. Returns the number of ACKs and their time.
    fn run(&mut self) -> (u64, Duration) {
        let (mut acks, mut left) = (0, SEGMENTS);
        let start = Clock::now();
        while left > 0 {
            let to = Stream::Master(MasterId::FIRST);
            let room = self.source.room(to).min(1 << 16);
            let bytes = Bytes::from(vec![7; room]);
            self.source.handle_command(self.now, SourceCommand::Write { to, bytes }).ok();
            let before = self.sent;
            let count = self.send(left.min(16) as usize);
            assert!(count > 0, "the window is closed");
            left -= count;
            self.now += Duration::from_millis(1);
            let mut ack = before;
            while ack != self.sent {
                let rest = self.sent.since(ack) as u32;
                ack = ack.plus(rest.min(2 * MSS));
                for number in 0..self.peers.len() {
                    self.acks[number][8..12].copy_from_slice(&ack.0.to_be_bytes());
                    let (by, payload) = (Address::Host(self.peers[number]), &self.acks[number]);
                    let datagram = Datagram { by, hop_limit: None, payload };
                    self.source.handle_datagram(self.now, datagram);
                    // As a port does that hands over what it has received.
                    if number % 64 == 63 {
                        self.drain();
                    }
                    acks += 1;
                }
                self.drain();
            }
            if self.source.poll_timeout().is_some_and(|at| at <= self.now) {
                self.source.handle_timeout(self.now);
                self.drain();
            }
        }
        (acks, start.elapsed())
    }
}

/// Returns the resident memory of this process in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn main() {
    for children in CHILDREN {
        let before = resident();
        let mut bench = Bench::new(children);
        // Later ones use the memory of the first again.
        let each = resident().saturating_sub(before) / u64::from(children);
        bench.run();
        let times = (0..REPETITIONS).map(|_| {
            let (acks, time) = bench.run();
            time.as_nanos() as f64 / acks as f64
        });
        let ns = times.fold(f64::INFINITY, f64::min);
        let drops = bench.source.drops().to_string();
        assert_eq!(drops, "");
        println!(
            "{children:>6} children: {ns:>6.0} ns an ACK, {:>5.2} million a second; {each} bytes a child",
            1e3 / ns
        );
    }
}
