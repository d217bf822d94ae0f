//! A small world for the engines: one server, clients behind lossy links, virtual time.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::time::Duration;

use crate::chance::generator;
use bytes::Bytes;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_fec::Partition;
use umbel_wire::repository::{ItemInfo, ServerMessage};
use umbel_wire::{Channel, Digest, Scheme, Toi, Tsi};

use super::content::{MemorySink, MemorySource, Object, SYMBOL};
use crate::repository::config::{ReceiverConfig, SourceConfig};
use crate::repository::receiver::{Held, Receiver, ReceiverCommand, ReceiverEvent};
use crate::repository::source::{Source, SourceCommand, SourceEvent};
use crate::symbols::BlockId;
use crate::units::Rate;
use crate::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, SessionId, TransmitBuf,
};

#[derive(Debug)]
pub(super) struct Client {
    pub(super) engine: Receiver<MemorySink>,
    pub(super) loss: f64,
    /// Whether multicast does not reach it.
    pub(super) deaf: bool,
    pub(super) joined: bool,
    pub(super) done: BTreeMap<Toi, Instant>,
    pub(super) gone: BTreeMap<Toi, String>,
    pub(super) events: Vec<ReceiverEvent>,
    pub(super) packets: u64,
    pub(super) refused: bool,
    closed: bool,
    unicast: bool,
}

#[derive(Debug)]
enum Arrival {
    AtSource(usize, Bytes),
    AtClient(usize, Bytes),
    Packet(usize, Bytes),
    UnicastBlock(usize, BlockId),
}

pub(super) struct World {
    pub(super) now: Instant,
    pub(super) source: Source<MemorySource>,
    pub(super) clients: Vec<Client>,
    pub(super) source_events: Vec<SourceEvent>,
    pub(super) latency: Duration,
    /// Extra delay of messages to clients, compared with packets.
    pub(super) message_delay: Duration,
    /// Loss common to all clients.
    pub(super) source_loss: f64,
    pub(super) duplicate: f64,
    /// Greatest extra delay of a packet.
    pub(super) jitter: Duration,
    steps: u64,
    packet_time: Duration,
    next_packet: Instant,
    arrivals: BinaryHeap<Reverse<(Instant, u64)>>,
    in_flight: BTreeMap<u64, Arrival>,
    sequence: u64,
    random: Xoshiro256PlusPlus,
    buf: TransmitBuf,
    pub(super) sent_packets: u64,
    /// Items in the order in which their first packets left.
    pub(super) order: Vec<Toi>,
    /// Number of messages that announced transmissions to clients.
    pub(super) announcements: u64,
}

pub(super) fn channel() -> Channel {
    Channel { source: Some([192, 0, 2, 1].into()), group: [232, 1, 2, 3].into(), port: 7702 }
}

pub(super) fn config() -> SourceConfig {
    let mut config =
        SourceConfig::new(Tsi(7), channel(), Rate::from_bits_per_s(1_000_000).unwrap());
    config.packet_len = usize::from(SYMBOL) + 24;
    config.segment.min_packets = 40;
    config
}

impl World {
    pub(super) fn new(config: SourceConfig, objects: Vec<Object>, seed: u64) -> World {
        let packet_time = config.rate.time_for(config.packet_len as u64);
        let symbols = MemorySource {
            objects: (1..).map(Toi).zip(objects).collect(),
            ..MemorySource::default()
        };
        World {
            now: Instant::from_nanos(1_000_000_000),
            source: Source::new(config, generator(1), symbols),
            clients: Vec::new(),
            source_events: Vec::new(),
            latency: Duration::from_millis(5),
            message_delay: Duration::ZERO,
            source_loss: 0.0,
            duplicate: 0.0,
            jitter: Duration::ZERO,
            steps: 0,
            packet_time,
            next_packet: Instant::EPOCH,
            arrivals: BinaryHeap::new(),
            in_flight: BTreeMap::new(),
            sequence: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            buf: TransmitBuf::default(),
            sent_packets: 0,
            order: Vec::new(),
            announcements: 0,
        }
    }

    fn chance(&mut self, p: f64) -> bool {
        crate::chance::uniform(&mut self.random) < p
    }

    /// Adds a client that connects and requests items by number.
    pub(super) fn add_client(&mut self, wanted: &[u32], loss: f64) -> usize {
        let index = self.clients.len();
        let config = ReceiverConfig::default();
        let mut engine = Receiver::new(config, generator(index as u64), MemorySink::default());
        let session = SessionId(index as u64);
        let now = self.now;
        engine.handle_command(now, ReceiverCommand::Connected { session }).unwrap();
        let patterns = wanted.iter().map(ToString::to_string).collect();
        let request = ReceiverCommand::Request { query: 1, patterns, hold: false };
        engine.handle_command(now, request).unwrap();
        self.clients.push(Client {
            engine,
            loss,
            deaf: false,
            joined: false,
            done: BTreeMap::new(),
            gone: BTreeMap::new(),
            events: Vec::new(),
            packets: 0,
            refused: false,
            closed: false,
            unicast: false,
        });
        let rtt = self.latency * 2;
        let opened = SourceCommand::SessionOpened { session, rtt };
        self.source.handle_command(now, opened).unwrap();
        self.drain_client(index);
        self.drain_source();
        index
    }

    /// Makes the client vanish.
    pub(super) fn close(&mut self, index: usize) {
        self.clients[index].closed = true;
        let session = SessionId(index as u64);
        self.source.handle_command(self.now, SourceCommand::SessionClosed { session }).unwrap();
        self.drain_source();
    }

    /// Runs until every client has everything it wanted. Returns false if nothing moves any more or
    /// the limit is reached.
    pub(super) fn run(&mut self, limit: Duration) -> bool {
        let end = self.now + limit;
        while self.now < end {
            let finished = |c: &Client| c.closed || (c.engine.outstanding() == 0 && c.settled());
            if self.clients.iter().all(finished) {
                return true;
            }
            if !self.step(end) {
                return false;
            }
        }
        false
    }

    /// Runs for a time.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while self.now < end && self.step(end) {}
        self.now = end;
    }

    fn step(&mut self, end: Instant) -> bool {
        self.steps += 1;
        assert!(self.steps < 2_000_000, "the world does not come to rest at {:?}", self.now);
        let arrival = self.arrivals.peek().map(|Reverse((at, _))| *at);
        let pacer = self.source.wants(RateClass::Data).then_some(self.next_packet.max(self.now));
        let timers = self.clients.iter().filter(|c| !c.closed).map(|c| c.engine.poll_timeout());
        let timers = timers.chain([self.source.poll_timeout()]).flatten().min();
        let Some(next) = [arrival, pacer, timers].into_iter().flatten().min() else {
            return false;
        };
        if next > end {
            self.now = end;
            return true;
        }
        // An engine may ask for a time that has passed; the world still moves on.
        self.now = next.max(self.now);
        if arrival.is_some_and(|at| at <= self.now) {
            let Some(Reverse((_, id))) = self.arrivals.pop() else { return false };
            if let Some(arrival) = self.in_flight.remove(&id) {
                self.deliver(arrival);
            }
            return true;
        }
        for index in 0..self.clients.len() {
            let due = self.clients[index].engine.poll_timeout();
            if !self.clients[index].closed && due.is_some_and(|at| at <= self.now) {
                self.clients[index].engine.handle_timeout(self.now);
                self.drain_client(index);
            }
        }
        if self.source.poll_timeout().is_some_and(|at| at <= self.now) {
            self.source.handle_timeout(self.now);
        }
        self.drain_source();
        if self.next_packet <= self.now {
            self.send_packet();
        }
        if next <= self.now && arrival.is_none() && pacer.is_none() {
            // Only timers: make sure that a timer that stays due does not stop the clock.
            self.now += Duration::from_nanos(1);
        }
        true
    }

    fn send_packet(&mut self) {
        let mut buf = std::mem::take(&mut self.buf);
        buf.reset(Allowance::data(1));
        let transmit = self.source.poll_transmit(self.now, &mut buf);
        match transmit.map(|transmit| transmit.to) {
            Some(Address::Channel(_)) => {
                self.next_packet = self.now.max(self.next_packet) + self.packet_time;
                self.sent_packets += 1;
                let packet = joined(&buf);
                self.note_order(&packet);
                let lost_for_all = self.chance(self.source_loss);
                for index in 0..self.clients.len() {
                    self.send_to_client(index, &packet, lost_for_all);
                }
            }
            Some(Address::Session(session)) => {
                let bytes = joined(&buf);
                let delay = self.latency + self.message_delay;
                self.launch(delay, Arrival::AtClient(session.0 as usize, bytes));
            }
            _ => {}
        }
        self.buf = buf;
        self.drain_source();
    }

    fn send_to_client(&mut self, index: usize, packet: &Bytes, lost_for_all: bool) {
        let copies = 1 + usize::from(self.chance(self.duplicate));
        for _ in 0..copies {
            let loss = self.clients[index].loss;
            let lost = self.chance(loss) || lost_for_all;
            let client = &self.clients[index];
            if lost || !client.joined || client.deaf || client.closed {
                continue;
            }
            let jitter = self.jitter.mul_f64((self.random.next_u32() % 1000) as f64 / 1000.0);
            self.launch(self.latency + jitter, Arrival::Packet(index, packet.clone()));
        }
    }

    fn note_order(&mut self, packet: &Bytes) {
        let toi = umbel_wire::alc::DataPacket::parse(packet).unwrap().header.toi;
        if self.order.last() != Some(&toi) {
            self.order.push(toi);
        }
    }

    fn launch(&mut self, delay: Duration, arrival: Arrival) {
        self.sequence += 1;
        self.in_flight.insert(self.sequence, arrival);
        self.arrivals.push(Reverse((self.now + delay, self.sequence)));
    }

    fn deliver(&mut self, arrival: Arrival) {
        let now = self.now;
        match arrival {
            Arrival::AtSource(index, bytes) => {
                let by = Address::Session(SessionId(index as u64));
                self.source.handle_datagram(now, Datagram { by, hop_limit: None, payload: &bytes });
                self.drain_source();
            }
            Arrival::AtClient(index, bytes) if !self.clients[index].closed => {
                let message = ServerMessage::parse(&bytes).unwrap().message();
                self.announcements +=
                    u64::from(matches!(message, Some(ServerMessage::Announce { .. })));
                let by = Address::Session(SessionId(index as u64));
                self.clients[index]
                    .engine
                    .handle_datagram(now, Datagram { by, hop_limit: None, payload: &bytes });
                self.drain_client(index);
            }
            Arrival::Packet(index, bytes) if !self.clients[index].closed => {
                self.clients[index].packets += 1;
                let by = Address::Channel(channel());
                self.clients[index]
                    .engine
                    .handle_datagram(now, Datagram { by, hop_limit: None, payload: &bytes });
                self.drain_client(index);
            }
            Arrival::UnicastBlock(index, block) if self.clients[index].unicast => {
                let object = &self.source.symbols_mut().objects[&block.toi];
                let range = Partition::new(&object.oti).unwrap().block_range(block.sbn);
                let content = &object.bytes[range.start as usize..range.end as usize];
                let content = Bytes::copy_from_slice(content);
                let command = ReceiverCommand::UnicastBlock { block, content };
                self.clients[index].engine.handle_command(now, command).unwrap();
                self.drain_client(index);
            }
            _ => {}
        }
    }

    fn drain_source(&mut self) {
        loop {
            let mut buf = TransmitBuf::new(Allowance::data(0));
            while let Some(transmit) = self.source.poll_transmit(self.now, &mut buf) {
                if let Address::Session(session) = transmit.to {
                    let bytes = joined(&buf);
                    let delay = self.latency + self.message_delay;
                    self.launch(delay, Arrival::AtClient(session.0 as usize, bytes));
                }
                buf.reset(Allowance::data(0));
            }
            let Some(event) = self.source.poll_event() else { break };
            self.on_source_event(event);
        }
    }

    fn on_source_event(&mut self, event: SourceEvent) {
        let now = self.now;
        match &event {
            SourceEvent::Request { session, query, patterns, .. } => {
                let items: Vec<ItemInfo> = patterns
                    .iter()
                    .map(|pattern| {
                        let toi = Toi(pattern.parse().unwrap());
                        self.info(toi)
                    })
                    .collect();
                let total = items.len() as u64;
                let page = SourceCommand::Page {
                    session: *session,
                    query: *query,
                    items,
                    total,
                    next: None,
                    wanted: true,
                };
                self.source.handle_command(now, page).unwrap();
            }
            SourceEvent::Lookup { session, toi, need } => {
                let oti = self.source.symbols_mut().objects[toi].oti;
                let need = need.clone();
                let want = SourceCommand::Want { session: *session, toi: *toi, oti, need };
                self.source.handle_command(now, want).unwrap();
            }
            SourceEvent::ServeUnicast { session, toi, .. } => {
                let index = session.0 as usize;
                self.clients[index].unicast = true;
                let object = &self.source.symbols_mut().objects[toi];
                let blocks = Partition::new(&object.oti).unwrap().blocks();
                for sbn in 0..blocks {
                    let delay = self.latency + Duration::from_secs(1) * (sbn + 1);
                    self.launch(delay, Arrival::UnicastBlock(index, BlockId { toi: *toi, sbn }));
                }
            }
            SourceEvent::StopUnicast { session, .. } => {
                self.clients[session.0 as usize].unicast = false;
            }
            SourceEvent::Probe { session, probe, packets, .. } => {
                let header = umbel_wire::alc::DataHeader {
                    tsi: Tsi(7),
                    toi: Toi::PROBE,
                    transmission: *probe,
                    index: 0,
                    scheme: Scheme::NoCode,
                    sbn: 0,
                    esi: 0,
                };
                let packet = Bytes::copy_from_slice(&header.emit().unwrap());
                self.send_to_client(session.0 as usize, &packet, false);
                let command =
                    SourceCommand::Probed { session: *session, probe: *probe, packets: *packets };
                self.source.handle_command(now, command).unwrap();
            }
            _ => {}
        }
        self.source_events.push(event);
    }

    fn info(&mut self, toi: Toi) -> ItemInfo {
        ItemInfo {
            toi,
            name: toi.0.to_string(),
            digest: Digest([0; 32]),
            modified_ns: None,
            mode: None,
            media_type: String::new(),
            oti: self.source.symbols_mut().objects[&toi].oti,
        }
    }

    fn drain_client(&mut self, index: usize) {
        loop {
            while let Some(change) = self.clients[index].engine.poll_membership() {
                self.clients[index].joined = matches!(change, Membership::Join(_));
            }
            let mut buf = TransmitBuf::new(Allowance::data(0));
            while self.clients[index].engine.poll_transmit(self.now, &mut buf).is_some() {
                let bytes = joined(&buf);
                self.launch(self.latency, Arrival::AtSource(index, bytes));
                buf.reset(Allowance::data(0));
            }
            let Some(event) = self.clients[index].engine.poll_event() else { break };
            self.on_client_event(index, event);
        }
        let sink = self.clients[index].engine.sink_mut();
        let (failed, complete) =
            (std::mem::take(&mut sink.failed), std::mem::take(&mut sink.complete));
        for toi in complete {
            let client = &mut self.clients[index];
            client.done.insert(toi, self.now);
            client.engine.handle_command(self.now, ReceiverCommand::Done { toi }).unwrap();
            self.drain_client(index);
        }
        for block in failed {
            let command = ReceiverCommand::RestoreFailed { block };
            self.clients[index].engine.handle_command(self.now, command).unwrap();
            self.drain_client(index);
        }
    }

    fn on_client_event(&mut self, index: usize, event: ReceiverEvent) {
        let now = self.now;
        let client = &mut self.clients[index];
        match &event {
            ReceiverEvent::Page { items, .. } => {
                for item in items {
                    client.engine.sink_mut().add(item.toi, item.oti);
                    let accept = ReceiverCommand::Accept {
                        toi: item.toi,
                        oti: item.oti,
                        held: Held::default(),
                        requested: true,
                    };
                    client.engine.handle_command(now, accept).unwrap();
                }
            }
            ReceiverEvent::Gone { toi, reason } => {
                client.gone.insert(*toi, reason.clone());
            }
            ReceiverEvent::Refused { .. } => client.refused = true,
            _ => {}
        }
        client.events.push(event);
    }

    /// Asserts that a client has exactly the bytes of these items.
    pub(super) fn assert_has(&mut self, index: usize, items: &[u32]) {
        for &item in items {
            let expected = self.source.symbols_mut().objects[&Toi(item)].bytes.clone();
            let client = &mut self.clients[index];
            assert!(client.done.contains_key(&Toi(item)), "client {index} lacks item {item}");
            let got = client.engine.sink_mut().object(Toi(item));
            assert!(got == expected, "client {index} has wrong bytes of item {item}");
        }
    }
}

impl Client {
    /// Returns whether the client has been answered.
    fn settled(&self) -> bool {
        self.refused || !self.done.is_empty() || !self.gone.is_empty()
    }
}

fn joined(buf: &TransmitBuf) -> Bytes {
    assert_eq!(buf.len(), 1);
    let (head, body) = buf.iter().next().unwrap();
    [head, body].concat().into()
}
