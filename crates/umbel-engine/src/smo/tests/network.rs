//! A source and receivers in a small network with loss, reordering and duplication.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::tcp::{Flags, Segment};

use crate::chance::{Generator, generator, uniform};
use crate::smo::receiver::{Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent};
use crate::smo::*;
use crate::testing::channel;
use crate::{Address, Allowance, Datagram, Engine, Instant, TransmitBuf};

pub(super) const PORT: u16 = 8080;

pub(super) fn source_address() -> SocketAddr {
    ([10, 0, 0, 1], PORT).into()
}

/// Returns bytes that do not repeat soon.
pub(super) fn content(len: usize) -> Bytes {
    (0..len as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect::<Vec<u8>>().into()
}

/// The way between the source and a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) delay: Duration,
    /// Greatest additional delay, by which segments overtake each other.
    pub(super) jitter: Duration,
    /// Share of segments lost towards the receiver and towards the source.
    pub(super) loss: (f64, f64),
    pub(super) duplicates: f64,
}

impl Way {
    pub(super) fn clean(delay_ms: u64) -> Way {
        let (delay, jitter) = (Duration::from_millis(delay_ms), Duration::ZERO);
        Way { delay, jitter, loss: (0.0, 0.0), duplicates: 0.0 }
    }
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) receiver: Receiver,
    pub(super) address: SocketAddr,
    pub(super) way: Way,
    pub(super) got: Vec<u8>,
    pub(super) skipped: u64,
    pub(super) events: Vec<ReceiverEvent>,
    reads: bool,
    unread: usize,
}

impl Node {
    pub(super) fn has(&self, event: &ReceiverEvent) -> bool {
        self.events.contains(event)
    }
}

#[derive(Debug)]
enum Arrival {
    AtSource(SocketAddr, Vec<u8>),
    AtReceiver(usize, Address, Vec<u8>),
}

/// The network.
#[derive(Debug)]
pub(super) struct Network {
    pub(super) now: Instant,
    pub(super) source: Source,
    pub(super) nodes: Vec<Node>,
    pub(super) events: Vec<SourceEvent>,
    /// Back channel, by child.
    pub(super) received: BTreeMap<ChildId, Vec<u8>>,
    queue: BTreeMap<(Instant, u64), Arrival>,
    serial: u64,
    random: Generator,
    /// Multicast segments lost to everyone.
    pub(super) common_loss: f64,
    /// Segments outside of their receivers' windows.
    pub(super) beyond_window: u64,
    pub(super) consumes: bool,
    /// Bytes that left the source, headers of IP and Ethernet not counted.
    pub(super) left: u64,
    /// What is to be written to the first master, and whether it ends then.
    pub(super) writes: Option<(Bytes, bool)>,
}

impl Network {
    pub(super) fn new(seed: u64, change: impl FnOnce(&mut SourceConfig)) -> Network {
        let mut channel = channel();
        channel.port = PORT;
        let mut config = SourceConfig::new(PORT, channel);
        config.mss = 1000;
        change(&mut config);
        Network {
            now: Instant::from_nanos(1_000_000_000),
            source: Source::new(config, generator(seed)),
            nodes: Vec::new(),
            events: Vec::new(),
            received: BTreeMap::new(),
            queue: BTreeMap::new(),
            serial: 0,
            random: generator(seed ^ 0x5EED),
            common_loss: 0.0,
            beyond_window: 0,
            consumes: true,
            left: 0,
            writes: None,
        }
    }

    /// Adds a receiver. Returns its number.
    pub(super) fn add(&mut self, way: Way, change: impl FnOnce(&mut ReceiverConfig)) -> usize {
        let number = self.nodes.len();
        let port = 50_000 + (number % 10_000) as u16;
        let address: SocketAddr =
            ([10, 1, (number / 200) as u8, (number % 200) as u8], port).into();
        let channel = self.source.config().channel;
        let mut config = ReceiverConfig::new(source_address());
        (config.channel, config.mss) = (Some(channel), 1000);
        change(&mut config);
        let receiver = Receiver::new(Arc::new(config), port, &mut self.random);
        let (got, events) = (Vec::new(), Vec::new());
        let node = Node { receiver, address, way, got, skipped: 0, events, reads: true, unread: 0 };
        self.nodes.push(node);
        number
    }

    pub(super) fn tell(&mut self, node: usize, command: ReceiverCommand) {
        self.nodes[node].receiver.handle_command(self.now, command).unwrap();
        self.drain_receiver(node);
    }

    pub(super) fn connect_all(&mut self) {
        for node in 0..self.nodes.len() {
            self.tell(node, ReceiverCommand::Connect);
        }
    }

    pub(super) fn command(&mut self, command: SourceCommand) {
        self.source.handle_command(self.now, command).unwrap();
        self.drain_source();
    }

    /// Writes to the first master as there is room, and then ends it.
    pub(super) fn send_all(&mut self, bytes: Bytes) {
        self.writes = Some((bytes, true));
        self.write_more();
        self.drain_source();
    }

    fn write_more(&mut self) {
        let to = Stream::Master(MasterId::FIRST);
        let Some((bytes, ends)) = &mut self.writes else { return };
        while !bytes.is_empty() {
            let len = bytes.len().min(16 << 10).min(self.source.room(to));
            if len == 0 {
                return;
            }
            let bytes = bytes.split_to(len);
            self.source.handle_command(self.now, SourceCommand::Write { to, bytes }).unwrap();
        }
        if *ends {
            self.source.handle_command(self.now, SourceCommand::Finish { to }).unwrap();
        }
        self.writes = None;
    }

    fn schedule(&mut self, way: Way, loss: f64, mut arrival: impl FnMut() -> Arrival) {
        if uniform(&mut self.random) < loss {
            return;
        }
        let copies = 1 + u64::from(uniform(&mut self.random) < way.duplicates);
        for _ in 0..copies {
            let jitter = way.jitter.mul_f64(uniform(&mut self.random));
            self.serial += 1;
            self.queue.insert((self.now + way.delay + jitter, self.serial), arrival());
        }
    }

    pub(super) fn drain_source(&mut self) {
        let mut buf = TransmitBuf::new(Allowance::data(16));
        loop {
            while let Some(transmit) = self.source.poll_transmit(self.now, &mut buf) {
                let segments: Vec<Vec<u8>> =
                    buf.iter().map(|(head, body)| [head, body].concat()).collect();
                let lengths: Vec<usize> = segments.iter().map(Vec::len).collect();
                assert!(!lengths.is_empty());
                assert!(lengths.windows(2).all(|pair| pair[0] >= pair[1]), "{lengths:?}");
                let but_last = &lengths[..lengths.len() - 1];
                assert!(but_last.iter().all(|len| *len == lengths[0]), "{lengths:?}");
                for bytes in segments {
                    self.left += bytes.len() as u64;
                    self.send(transmit.to, &bytes);
                }
                buf.reset(Allowance::data(16));
            }
            let before = self.events.len();
            while let Some(event) = self.source.poll_event() {
                if let SourceEvent::Received { child, bytes } = &event {
                    self.received.entry(*child).or_default().extend_from_slice(bytes);
                    if self.consumes {
                        let (child, bytes) = (*child, bytes.len());
                        let _ = self
                            .source
                            .handle_command(self.now, SourceCommand::Consumed { child, bytes });
                    }
                }
                self.events.push(event);
            }
            self.write_more();
            if before == self.events.len() && !self.source.wants(crate::RateClass::Data) {
                break;
            }
        }
    }

    fn send(&mut self, to: Address, bytes: &[u8]) {
        let segment = Segment::parse(bytes).unwrap();
        assert!(!segment.head.flags.has(Flags::URG));
        match to {
            Address::Host(peer) => {
                assert_eq!(segment.head.destination_port, peer.port());
                let Some(node) = self.nodes.iter().position(|node| node.address == peer) else {
                    return;
                };
                let way = self.nodes[node].way;
                let by = Address::Host(source_address());
                self.schedule(way, way.loss.0, || Arrival::AtReceiver(node, by, bytes.to_vec()));
            }
            Address::Channel(channel) => {
                if uniform(&mut self.random) < self.common_loss {
                    return;
                }
                for node in 0..self.nodes.len() {
                    let way = self.nodes[node].way;
                    let by = Address::Channel(channel);
                    self.schedule(way, way.loss.0, || {
                        Arrival::AtReceiver(node, by, bytes.to_vec())
                    });
                }
            }
            Address::Session(_) => panic!("{to:?}"),
        }
    }

    pub(super) fn drain_receiver(&mut self, number: usize) {
        let mut buf = TransmitBuf::default();
        while self.nodes[number].receiver.poll_transmit(self.now, &mut buf).is_some() {
            let bytes = buf.messages().next().unwrap().to_vec();
            let (way, address) = (self.nodes[number].way, self.nodes[number].address);
            self.schedule(way, way.loss.1, || Arrival::AtSource(address, bytes.clone()));
            buf.reset(Allowance::default());
        }
        let node = &mut self.nodes[number];
        while node.receiver.poll_membership().is_some() {}
        while let Some(event) = node.receiver.poll_event() {
            match event {
                ReceiverEvent::Received(bytes) => {
                    node.got.extend_from_slice(&bytes);
                    node.unread += bytes.len();
                }
                ReceiverEvent::Skipped(bytes) => node.skipped += bytes,
                event => node.events.push(event),
            }
        }
        if node.reads && node.unread > 0 {
            let consumed = ReceiverCommand::Consumed(std::mem::take(&mut node.unread));
            // The connection may be over.
            if node.receiver.handle_command(self.now, consumed).is_ok() {
                self.drain_receiver(number);
            }
        }
    }

    /// Lets a receiver's application read, or not.
    pub(super) fn read(&mut self, number: usize, reads: bool) {
        self.nodes[number].reads = reads;
        self.drain_receiver(number);
    }

    /// Runs until this time has passed, or nothing happens any more.
    pub(super) fn run(&mut self, time: Duration) {
        self.run_until(time, |_| false);
    }

    /// Runs until the condition holds. Returns whether it did within this time.
    pub(super) fn run_until(&mut self, time: Duration, done: impl Fn(&Network) -> bool) -> bool {
        let end = self.now + time;
        let mut at_once = 0;
        loop {
            if done(self) {
                return true;
            }
            let arrival = self.queue.first_key_value().map(|((at, _), _)| *at);
            let source = self.source.poll_timeout();
            let receiver = self.nodes.iter().enumerate();
            let receiver =
                receiver.filter_map(|(n, node)| Some((node.receiver.poll_timeout()?, n))).min();
            let next = [arrival, source, receiver.map(|(at, _)| at)].into_iter().flatten().min();
            let Some(next) = next.filter(|next| *next <= end) else {
                self.now = end;
                return done(self);
            };
            at_once = if next > self.now { 0 } else { at_once + 1 };
            assert!(at_once < 200_000, "time stands still at {:?}", self.now);
            self.now = self.now.max(next);
            if arrival == Some(next) {
                let (_, arrival) = self.queue.pop_first().unwrap();
                self.arrive(arrival);
            } else if source == Some(next) {
                self.source.handle_timeout(self.now);
                self.drain_source();
            } else if let Some((_, node)) = receiver {
                self.nodes[node].receiver.handle_timeout(self.now);
                self.drain_receiver(node);
            }
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        match arrival {
            Arrival::AtSource(peer, bytes) => {
                let by = Address::Host(peer);
                let datagram = Datagram { by, hop_limit: None, payload: &bytes };
                self.source.handle_datagram(self.now, datagram);
                self.drain_source();
            }
            Arrival::AtReceiver(node, by, bytes) => {
                let datagram = Datagram { by, hop_limit: None, payload: &bytes };
                let receiver = &mut self.nodes[node].receiver;
                let beyond = receiver.drops().of(receiver::DropReason::OutOfWindow);
                receiver.handle_datagram(self.now, datagram);
                // An ACK at the right edge is not acceptable either, and no harm is done.
                if !Segment::parse(&bytes).unwrap().is_empty() {
                    let now_beyond = receiver.drops().of(receiver::DropReason::OutOfWindow);
                    self.beyond_window += now_beyond - beyond;
                }
                self.drain_receiver(node);
            }
        }
    }

    pub(super) fn count(&self, is: impl Fn(&SourceEvent) -> bool) -> usize {
        self.events.iter().filter(|event| is(event)).count()
    }

    pub(super) fn removed(&self) -> Vec<CloseReason> {
        let reason = |event: &SourceEvent| match event {
            SourceEvent::Removed { reason, .. } => Some(*reason),
            _ => None,
        };
        self.events.iter().filter_map(reason).collect()
    }
}
