//! A network in virtual time: subnets some hops apart, with loss, delay, reordering, duplicates,
//! cut links and nodes that crash.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_wire::tmtp::{Body, JoinConfirm, Message};
use umbel_wire::{Channel, Tsi};

use super::content::{Blocks, SYMBOL_LEN, Store};
use crate::tmtp::{
    BlockCount, Draws, NodeConfig, NodeId, Receiver, ReceiverCommand, ReceiverConfig,
    ReceiverEvent, Shape, Source, SourceCommand, SourceConfig, SourceEvent,
};
use crate::units::Rate;
use crate::{
    Address, Allowance, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf,
};

pub(super) const FEED: Tsi = Tsi(77);

pub(super) fn at(ms: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(ms)
}

/// An engine.
pub(super) enum Node {
    Source(Box<Source<Blocks>>),
    Receiver(Box<Receiver<Store>>),
}

struct Host {
    node: Node,
    id: NodeId,
    address: SocketAddr,
    subnet: usize,
    up: bool,
    groups: BTreeSet<(IpAddr, u16)>,
    rate: Rate,
    next_packet: Instant,
    wake: Option<Instant>,
    source_events: Vec<SourceEvent>,
    receiver_events: Vec<ReceiverEvent>,
}

pub(super) enum Happening {
    Wake(usize),
    Arrival { to: usize, by: Address, hop_limit: u8, payload: Bytes },
}

/// Conditions of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Share of datagrams lost on the way to each receiver.
    pub(super) loss: f64,
    /// Share of datagrams that come twice.
    pub(super) duplicates: f64,
    /// Delay of each hop, at least; up to as much again at random.
    pub(super) hop: Duration,
}

impl Weather {
    pub(super) const FINE: Weather =
        Weather { loss: 0.0, duplicates: 0.0, hop: Duration::from_micros(200) };

    pub(super) fn loss(loss: f64) -> Weather {
        Weather { loss, duplicates: 0.02, hop: Duration::from_millis(2) }
    }
}

/// A datagram that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) to: Address,
    pub(super) payload: Bytes,
}

pub(super) struct World {
    hosts: Vec<Host>,
    pub(super) now: Instant,
    queue: BTreeMap<(Instant, u64), Happening>,
    number: u64,
    random: Xoshiro256PlusPlus,
    pub(super) weather: Weather,
    /// Pairs of subnets that do not reach each other.
    cut: BTreeSet<(usize, usize)>,
    pub(super) lengths: Arc<Vec<u8>>,
    /// Everything that was sent, if a test wants to see it.
    pub(super) log: Option<Vec<Sent>>,
    pub(super) seed: u64,
    /// Changes each JOIN_CONFIRM on its way.
    pub(super) forge_confirm: Option<fn(&mut JoinConfirm)>,
}

/// Returns a JOIN_CONFIRM with forged contents.
fn forged(payload: &[u8], forge: fn(&mut JoinConfirm)) -> Option<Bytes> {
    let mut message = Message::parse(payload).ok()?.message()?;
    let Body::JoinConfirm(confirm) = &mut message.body else { return None };
    forge(confirm);
    let mut payload = Vec::new();
    message.emit(&mut payload);
    Some(payload.into())
}

/// Returns the hops from one subnet to another, through a binary tree of routers whose root is
/// subnet 0's.
fn hops(mut a: usize, mut b: usize) -> u8 {
    let mut hops = 1;
    while a != b {
        if a > b {
            a = (a - 1) / 2;
        } else {
            b = (b - 1) / 2;
        }
        hops += 1;
    }
    hops
}

fn channel(host: u8, source: Option<IpAddr>) -> Channel {
    Channel { source, group: IpAddr::from(Ipv4Addr::new(239, 1, 1, host)), port: 7700 }
}

impl World {
    /// Creates an empty world. Blocks have the given numbers of symbols.
    pub(super) fn new(seed: u64, lengths: Vec<u8>) -> World {
        World {
            hosts: Vec::new(),
            now: at(1000),
            queue: BTreeMap::new(),
            number: 0,
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            weather: Weather::FINE,
            cut: BTreeSet::new(),
            lengths: Arc::new(lengths),
            log: None,
            seed,
            forge_confirm: None,
        }
    }

    pub(super) fn data_channel() -> Channel {
        channel(1, Some(([10, 0, 0, 0]).into()))
    }

    pub(super) fn domain_group() -> Channel {
        channel(2, None)
    }

    fn address(&self, subnet: usize) -> SocketAddr {
        let n = self.hosts.len() as u16;
        let [high, low] = n.to_be_bytes();
        SocketAddr::from(([10, subnet as u8, high, low], 7705))
    }

    pub(super) fn shape(k: u8, fec: bool) -> Shape {
        Shape {
            source: SocketAddr::from(([10, 0, 0, 0], 7705)),
            symbol_len: SYMBOL_LEN as u16,
            block_symbols: k,
            fec,
            manifest: None,
        }
    }

    fn node_config(&mut self, subnet: usize) -> (NodeConfig, Draws) {
        let address = self.address(subnet);
        let channels = (World::data_channel(), World::domain_group());
        let id = NodeId(self.random.next_u64() | 1);
        let draws = Draws::from_seed(self.random.next_u64());
        let mut node = NodeConfig::new(id, FEED, channels, address);
        node.name = format!("node-{}", self.hosts.len());
        (node, draws)
    }

    fn add(&mut self, node: Node, config: &NodeConfig, subnet: usize, rate: Rate) -> usize {
        self.hosts.push(Host {
            node,
            id: config.id,
            address: config.address,
            subnet,
            up: true,
            groups: BTreeSet::new(),
            rate,
            next_packet: self.now,
            wake: None,
            source_events: Vec::new(),
            receiver_events: Vec::new(),
        });
        self.hosts.len() - 1
    }

    /// Adds the source, which must be the first node, in subnet 0.
    pub(super) fn add_source(
        &mut self,
        shape: Shape,
        rate: Rate,
        configure: impl FnOnce(SourceConfig) -> SourceConfig,
    ) -> usize {
        assert!(self.hosts.is_empty());
        let (node, draws) = self.node_config(0);
        let about = node.clone();
        let config = configure(SourceConfig::new(node, shape, rate));
        config.check().unwrap();
        let pipe = config.history.is_some();
        let head = shape.manifest.map_or(0, |manifest| manifest.blocks);
        let symbols = Blocks::new(self.lengths.clone(), pipe, head);
        let source = Source::new(config, draws, symbols);
        let index = self.add(Node::Source(Box::new(source)), &about, 0, rate);
        self.source_command(SourceCommand::Start);
        index
    }

    /// Adds a receiver, which joins at once and wants everything.
    pub(super) fn add_receiver(
        &mut self,
        subnet: usize,
        shape: Shape,
        configure: impl FnOnce(ReceiverConfig) -> ReceiverConfig,
    ) -> usize {
        let (node, draws) = self.node_config(subnet);
        let about = node.clone();
        let config = configure(ReceiverConfig::new(node, shape));
        config.check().unwrap();
        let sink = Store::new(self.lengths.clone());
        let receiver = Receiver::new(config, draws, sink);
        let rate = Rate::from_bits_per_s(100_000_000).unwrap();
        let index = self.add(Node::Receiver(Box::new(receiver)), &about, subnet, rate);
        self.command(index, ReceiverCommand::Join);
        self.command(index, ReceiverCommand::Want { from: 0, skip: Vec::new() });
        index
    }

    pub(super) fn source(&mut self) -> &mut Source<Blocks> {
        match &mut self.hosts[0].node {
            Node::Source(source) => source,
            Node::Receiver(_) => panic!("the first node is the source"),
        }
    }

    pub(super) fn receiver(&mut self, index: usize) -> &mut Receiver<Store> {
        match &mut self.hosts[index].node {
            Node::Receiver(receiver) => receiver,
            Node::Source(_) => panic!("not a receiver"),
        }
    }

    pub(super) fn address_of(&self, index: usize) -> SocketAddr {
        self.hosts[index].address
    }

    pub(super) fn id(&self, index: usize) -> NodeId {
        self.hosts[index].id
    }

    pub(super) fn receivers(&self) -> Range<usize> {
        1..self.hosts.len()
    }

    pub(super) fn is_up(&self, index: usize) -> bool {
        self.hosts[index].up
    }

    pub(super) fn source_events(&self) -> &[SourceEvent] {
        &self.hosts[0].source_events
    }

    pub(super) fn receiver_events(&self, index: usize) -> &[ReceiverEvent] {
        &self.hosts[index].receiver_events
    }

    pub(super) fn source_command(&mut self, command: SourceCommand) {
        let now = self.now;
        self.source().handle_command(now, command).unwrap();
        self.drain(0);
    }

    /// Extends the source's feed with these of the world's blocks.
    pub(super) fn extend(&mut self, blocks: Range<usize>) {
        let lengths = self.lengths.clone();
        let runs = lengths[blocks].iter().map(|&symbols| BlockCount { count: 1, symbols });
        self.source_command(SourceCommand::Extend(runs.collect()));
    }

    pub(super) fn extend_all(&mut self) {
        self.extend(0..self.lengths.len());
        self.source_command(SourceCommand::Finish { failed: None });
    }

    pub(super) fn command(&mut self, index: usize, command: ReceiverCommand) {
        let now = self.now;
        self.receiver(index).handle_command(now, command).unwrap();
        self.drain(index);
    }

    /// Crashes a node without a word.
    pub(super) fn crash(&mut self, index: usize) {
        self.hosts[index].up = false;
    }

    /// Cuts the subnets of `a` off from those of `b` until [`heal`](World::heal).
    pub(super) fn partition(&mut self, a: &[usize], b: &[usize]) {
        for &x in a {
            for &y in b {
                self.cut.insert((x, y));
                self.cut.insert((y, x));
            }
        }
    }

    pub(super) fn heal(&mut self) {
        self.cut.clear();
    }

    fn uniform(&mut self) -> f64 {
        (self.random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    pub(super) fn schedule(&mut self, at: Instant, happening: Happening) {
        self.number += 1;
        self.queue.insert((at, self.number), happening);
    }

    /// Runs for this time.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some((&(at, number), _)) = self.queue.first_key_value()
            && at <= end
        {
            let happening = self.queue.remove(&(at, number)).unwrap();
            self.now = at;
            self.happen(happening);
        }
        self.now = end;
    }

    /// Runs until something is true, which is checked every 10 ms. Panics after `most`.
    pub(super) fn run_until(&mut self, most: Duration, mut done: impl FnMut(&mut World) -> bool) {
        let end = self.now + most;
        while !done(self) {
            assert!(
                self.now < end,
                "seed {}: not done after {most:?}\n{}",
                self.seed,
                self.state()
            );
            self.run_for(Duration::from_millis(10));
        }
    }

    /// Returns the state of all nodes, for a failure's message.
    pub(super) fn state(&self) -> String {
        let mut text = String::new();
        for (index, host) in self.hosts.iter().enumerate() {
            let (up, subnet) = (host.up, host.subnet);
            let receiver = match &host.node {
                Node::Receiver(receiver) => receiver,
                Node::Source(source) => {
                    let _ = writeln!(text, "source {:?} drops {}", source.stats(), source.drops());
                    continue;
                }
            };
            let view = receiver.tree();
            let leaf = view.role == umbel_wire::tmtp::Role::Member;
            if leaf && receiver.stats().blocks as usize == self.lengths.len() {
                continue;
            }
            let _ = writeln!(
                text,
                "{index} in {subnet} up {up} {:?} parent {:?} of {} managers, {} members; {:?} {:?} \
                 drops {}",
                view.role,
                view.parent.map(|p| p.1),
                view.children,
                view.members,
                receiver.progress(),
                receiver.stats(),
                receiver.drops(),
            );
        }
        text
    }

    fn happen(&mut self, happening: Happening) {
        let now = self.now;
        match happening {
            Happening::Wake(index) => {
                let host = &mut self.hosts[index];
                if host.wake.take_if(|at| *at <= now).is_none() || !host.up {
                    return;
                }
                match &mut host.node {
                    Node::Source(source) => source.handle_timeout(now),
                    Node::Receiver(receiver) => receiver.handle_timeout(now),
                }
                self.drain(index);
            }
            Happening::Arrival { to, by, hop_limit, payload } => {
                let host = &mut self.hosts[to];
                if !host.up {
                    return;
                }
                let datagram = Datagram { by, hop_limit: Some(hop_limit), payload: &payload };
                match &mut host.node {
                    Node::Source(source) => source.handle_datagram(now, datagram),
                    Node::Receiver(receiver) => receiver.handle_datagram(now, datagram),
                }
                self.drain(to);
            }
        }
    }

    /// Does what the engine wants, as every host does.
    fn drain(&mut self, index: usize) {
        let now = self.now;
        for _ in 0..10_000 {
            let host = &mut self.hosts[index];
            while let Some(change) = match &mut host.node {
                Node::Source(source) => source.poll_membership(),
                Node::Receiver(receiver) => receiver.poll_membership(),
            } {
                match change {
                    Membership::Join(c) => host.groups.insert((c.group, c.port)),
                    Membership::Leave(c) => host.groups.remove(&(c.group, c.port)),
                };
            }
            let mut buf = TransmitBuf::new(Allowance::data(usize::from(host.next_packet <= now)));
            let transmit = match &mut host.node {
                Node::Source(source) => source.poll_transmit(now, &mut buf),
                Node::Receiver(receiver) => receiver.poll_transmit(now, &mut buf),
            };
            let Some(transmit) = transmit else {
                if self.events(index) {
                    continue;
                }
                self.set_wake(index);
                return;
            };
            let datagrams: Vec<Bytes> =
                buf.iter().map(|(head, body)| Bytes::from([head, &body[..]].concat())).collect();
            assert!(!datagrams.is_empty());
            for datagram in datagrams {
                if umbel_wire::small_block::SmallBlockPacket::is_one(&datagram) {
                    let host = &mut self.hosts[index];
                    let time = host.rate.time_for(datagram.len() as u64);
                    host.next_packet = host.next_packet.max(now) + time;
                }
                self.send(index, transmit, &datagram);
            }
        }
        panic!("seed {}: node {index} never has enough\n{}", self.seed, self.state());
    }

    /// Passes the events to the application, which says `Done` once it has everything.
    fn events(&mut self, index: usize) -> bool {
        let now = self.now;
        let host = &mut self.hosts[index];
        let mut any = false;
        match &mut host.node {
            Node::Source(source) => {
                while let Some(event) = source.poll_event() {
                    if let SourceEvent::Rate(rate) = event {
                        host.rate = rate;
                    }
                    host.source_events.push(event);
                    any = true;
                }
            }
            Node::Receiver(receiver) => {
                while let Some(event) = receiver.poll_event() {
                    if event == ReceiverEvent::Complete {
                        let done = ReceiverCommand::Done { failed: None };
                        receiver.handle_command(now, done).unwrap();
                    }
                    host.receiver_events.push(event);
                    any = true;
                }
            }
        }
        any
    }

    fn set_wake(&mut self, index: usize) {
        let host = &self.hosts[index];
        let (timeout, wants) = match &host.node {
            Node::Source(source) => (source.poll_timeout(), source.wants(RateClass::Data)),
            Node::Receiver(receiver) => (receiver.poll_timeout(), receiver.wants(RateClass::Data)),
        };
        let paced = wants.then_some(host.next_packet);
        let Some(wake) = [timeout, paced].into_iter().flatten().min() else { return };
        // A wake-up that is due already comes a little later, as on a real machine.
        let wake = wake.max(self.now + Duration::from_micros(1));
        if host.wake.is_none_or(|at| at > wake || at <= self.now) {
            self.hosts[index].wake = Some(wake);
            self.schedule(wake, Happening::Wake(index));
        }
    }

    fn send(&mut self, from: usize, transmit: Transmit, payload: &Bytes) {
        let hop_limit = transmit.hop_limit.unwrap_or(64);
        assert!(hop_limit > 0);
        if let Some(log) = &mut self.log {
            log.push(Sent { to: transmit.to, payload: payload.clone() });
        }
        let forged = self.forge_confirm.and_then(|forge| forged(payload, forge));
        let payload = forged.as_ref().unwrap_or(payload);
        let sender = self.hosts[from].address;
        for to in 0..self.hosts.len() {
            let host = &self.hosts[to];
            let by = match transmit.to {
                Address::Host(address) if address == host.address => Address::Host(sender),
                Address::Channel(channel)
                    if to != from && host.groups.contains(&(channel.group, channel.port)) =>
                {
                    Address::Channel(Channel { source: Some(sender.ip()), ..channel })
                }
                _ => continue,
            };
            self.carry(from, to, by, hop_limit, payload);
        }
    }

    fn carry(&mut self, from: usize, to: usize, by: Address, hop_limit: u8, payload: &Bytes) {
        let (a, b) = (self.hosts[from].subnet, self.hosts[to].subnet);
        let hops = hops(a, b);
        if hops > hop_limit || self.cut.contains(&(a, b)) {
            return;
        }
        let left = hop_limit - (hops - 1);
        let copies = if self.uniform() < self.weather.duplicates { 2 } else { 1 };
        for _ in 0..copies {
            if self.uniform() < self.weather.loss {
                continue;
            }
            let jitter = self.weather.hop.mul_f64(1.0 + self.uniform());
            let delay = jitter * u32::from(hops);
            let payload = payload.clone();
            let arrival = Happening::Arrival { to, by, hop_limit: left, payload };
            self.schedule(self.now + delay, arrival);
        }
    }

    /// Returns whether every node that is up has every block, exactly right.
    pub(super) fn everyone_has_all(&mut self) -> bool {
        let all = self.lengths.len();
        self.receivers()
            .all(|index| !self.is_up(index) || self.receiver(index).sink_mut().blocks.len() == all)
    }
}
