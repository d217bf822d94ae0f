//! Subnets some hops apart, with a source and receivers.

use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::feed::Recovery;
use umbel_wire::reception::ReceptionReport;
use umbel_wire::small_block::SmallBlockPacket;
use umbel_wire::tmtp::{Body, JoinConfirm, Message, MessageType, Role};
use umbel_wire::{Channel, Tsi};

use super::content::{Blocks, SYMBOL_LEN, Store};
use crate::testing::Tested;
use crate::testing::world::{self, Host, Link, NoRouter, Protocol, Seat};
use crate::tmtp::{
    Authentication, BlockCount, Draws, DropReason, List, NodeConfig, NodeId, Receiver,
    ReceiverCommand, ReceiverConfig, ReceiverEvent, Shape, Source, SourceCommand, SourceConfig,
    SourceEvent, node_id,
};
use crate::units::Rate;
use crate::{Address, Datagram, Engine, Transmit};

pub(super) const FEED: Tsi = Tsi(77);

/// Subnets that there are, at most.
const SUBNETS: usize = 10;

/// A receiver.
pub(super) struct Peer {
    engine: Tested<Receiver<Store>>,
    events: Vec<ReceiverEvent>,
}

impl Seat for Peer {
    type Engine = Receiver<Store>;

    fn engine(&mut self) -> &mut Tested<Receiver<Store>> {
        &mut self.engine
    }
}

/// Conditions of the network.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weather {
    /// Share of datagrams lost on the way to each receiver.
    pub(super) loss: f64,
    /// Share of datagrams that come twice.
    pub(super) duplicates: f64,
    /// Least and greatest additional delay of each hop.
    pub(super) hop: (Duration, Duration),
}

impl Weather {
    pub(super) const FINE: Weather =
        Weather { loss: 0.0, duplicates: 0.0, hop: (Duration::from_micros(300), Duration::ZERO) };

    pub(super) fn loss(loss: f64) -> Weather {
        Weather {
            loss,
            duplicates: 0.02,
            hop: (Duration::from_millis(2), Duration::from_millis(2)),
        }
    }
}

/// A datagram that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) from: usize,
    pub(super) to: Address,
    pub(super) payload: Bytes,
}

/// Changes a report.
pub(super) type Lie = fn(&mut ReceptionReport);

/// Data of the source, and observations of it.
pub(super) struct Feed {
    pub(super) lengths: Arc<Vec<u8>>,
    ids: Vec<NodeId>,
    source_events: Vec<SourceEvent>,
    /// Everything that was sent, if a test wants to see it.
    pub(super) log: Option<Vec<Sent>>,
    /// Recovery of losses.
    pub(super) recovery: Recovery,
    /// The source's.
    authentication: Authentication,
    /// Whether questions about symbols do not come to the source.
    pub(super) no_questions: bool,
    /// Host whose repairs are wrong.
    pub(super) liar: Option<usize>,
    /// Host to which no packet comes whose payload is longer than this.
    pub(super) narrow: Option<(usize, usize)>,
    /// Changes each report of this host's reception on its way.
    pub(super) forge_report: Option<(usize, Lie)>,
    /// Changes each JOIN_CONFIRM on its way.
    pub(super) forge_confirm: Option<fn(&mut JoinConfirm)>,
}

pub(super) type World = world::World<Feed>;

impl Protocol for Feed {
    type Source = Tested<Source<Blocks>>;
    type Receiver = Peer;
    type Router = NoRouter;

    fn on_source_event(world: &mut World, event: SourceEvent) {
        if let SourceEvent::Rate(rate) = event {
            world.host(0).pace = Some(rate);
        }
        world.source_events.push(event);
    }

    /// Sends `Done` once a receiver has everything.
    fn on_receiver_event(world: &mut World, receiver: usize, event: ReceiverEvent) {
        let peer = &mut world.receivers[receiver];
        if event == ReceiverEvent::Complete {
            let done = ReceiverCommand::Done { failed: None };
            peer.engine.handle_command(world.now, done).unwrap();
        }
        peer.events.push(event);
    }

    fn passes(world: &mut World, from: usize, transmit: Transmit, payload: &mut Bytes) -> bool {
        if let Some(log) = &mut world.log {
            log.push(Sent { from, to: transmit.to, payload: payload.clone() });
        }
        if world.liar == Some(from) && SmallBlockPacket::is_one(payload) {
            *payload = with_wrong_symbol(payload);
        }
        if let Some((_, forge)) = world.forge_report.filter(|(host, _)| *host == from)
            && let Some(forged) = with_report(payload, forge)
        {
            *payload = forged;
        }
        if let Some(forged) = world.forge_confirm.and_then(|forge| forged(payload, forge)) {
            *payload = forged;
        }
        let asks = MessageType::of(payload) == Some(MessageType::FetchDigests);
        !(asks && world.no_questions)
    }

    fn arrive(world: &mut World, to: usize, datagram: Datagram<'_>) {
        let is_too_long =
            |(host, most): (usize, usize)| host == to && datagram.payload.len() > most;
        if !world.narrow.is_some_and(is_too_long) {
            let now = world.now;
            world.engine(to).handle_datagram(now, datagram);
        }
    }

    fn state(world: &World) -> String {
        let (stats, drops) = (world.source.stats(), world.source.drops());
        let mut text = format!("source {stats:?} drops {drops}\n");
        for (peer, host) in world.receivers.iter().zip(&world.network.hosts[1..]) {
            let (view, stats) = (peer.engine.tree(), peer.engine.stats());
            if view.role == Role::Member && stats.blocks as usize == world.lengths.len() {
                continue;
            }
            let _ = writeln!(
                text,
                "{} in {} up {} {:?} parent {:?} of {} managers, {} members; {:?} {stats:?} drops \
                 {}",
                host.address,
                host.subnet,
                host.is_up,
                view.role,
                view.parent.map(|p| p.1),
                view.children,
                view.members,
                peer.engine.progress(),
                peer.engine.drops(),
            );
        }
        text
    }
}

/// Returns a data packet with another symbol.
fn with_wrong_symbol(packet: &[u8]) -> Bytes {
    let mut packet = packet.to_vec();
    *packet.last_mut().expect("a packet has a symbol") ^= 0x55;
    packet.into()
}

/// Returns a RECEPTION with a forged report.
fn with_report(payload: &[u8], forge: fn(&mut ReceptionReport)) -> Option<Bytes> {
    let mut message = Message::parse(payload).ok()?.message()?;
    let Body::Reception { report, .. } = &mut message.body else { return None };
    forge(report);
    let mut payload = Vec::new();
    message.emit(&mut payload);
    Some(payload.into())
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

/// Returns the routers between two subnets. Each subnet has one, and they are a binary tree whose
/// root is subnet 0's.
fn routers(mut a: usize, mut b: usize) -> u8 {
    let mut routers = 0;
    while a != b {
        if a > b {
            a = (a - 1) / 2;
        } else {
            b = (b - 1) / 2;
        }
        routers += 1;
    }
    routers
}

fn channel(host: u8, source: Option<IpAddr>) -> Channel {
    Channel { source, group: IpAddr::from(Ipv4Addr::new(239, 1, 1, host)), port: 7700 }
}

fn address(host: usize, subnet: usize) -> SocketAddr {
    let [high, low] = (host as u16).to_be_bytes();
    SocketAddr::from(([10, subnet as u8, high, low], 7705))
}

/// Returns what a host shares with a source that has a list, or the seed of its own keys.
pub(super) fn secret_of(host: usize) -> [u8; 32] {
    [host as u8; 32]
}

fn node_config(id: NodeId, host: usize, subnet: usize) -> NodeConfig {
    let channels = (World::data_channel(), World::domain_group());
    let paper = Authentication::Paper;
    let mut node = NodeConfig::new(id, FEED, channels, address(host, subnet), paper);
    node.name = format!("node-{host}");
    node
}

impl World {
    /// Creates a world with a source in subnet 0. Blocks have the given numbers of symbols.
    pub(super) fn new(
        seed: u64,
        lengths: Vec<u8>,
        shape: Shape,
        rate: Rate,
        configure: impl FnOnce(SourceConfig) -> SourceConfig,
    ) -> World {
        let id = NodeId(seed << 32 | 1);
        let shape = Shape { id, ..shape };
        let config = configure(SourceConfig::new(node_config(id, 0, 0), shape, rate));
        config.check().unwrap();
        let id = config.node.id;
        let lengths = Arc::new(lengths);
        let head = shape.manifest.map_or(0, |manifest| manifest.blocks);
        let mut symbols = Blocks::new(lengths.clone(), config.history.is_some(), head);
        symbols.symbol_len = shape.symbol_len.into();
        let (recovery, authentication) = (config.node.recovery, config.node.authentication.clone());
        let source = Source::new(config, Draws::from_seed(seed), symbols);
        let source = Tested::new(source, |source| source.drops().to_string());
        let feed = Feed {
            lengths,
            ids: vec![id],
            source_events: Vec::new(),
            log: None,
            recovery,
            authentication,
            no_questions: false,
            liar: None,
            narrow: None,
            forge_report: None,
            forge_confirm: None,
        };
        let host = Host { pace: Some(rate), ..Host::new(address(0, 0), 0) };
        let mut world = World::with_source(seed, feed, source, host);
        let row = |a| (0..SUBNETS).map(|b| routers(a, b)).collect();
        world.network.routers = (0..SUBNETS).map(row).collect();
        world.set_weather(Weather::FINE);
        world.source.handle_command(world.now, SourceCommand::Start).unwrap();
        world
    }

    pub(super) fn data_channel() -> Channel {
        // The port at which the source hears unicast.
        Channel { port: 7705, ..channel(1, Some(([10, 0, 0, 0]).into())) }
    }

    pub(super) fn domain_group() -> Channel {
        channel(2, None)
    }

    pub(super) fn shape(k: u8, fec: bool) -> Shape {
        Shape {
            // The world knows it.
            id: NodeId(0),
            source: address(0, 0),
            symbol_len: SYMBOL_LEN as u16,
            block_symbols: k,
            fec,
            manifest: None,
        }
    }

    /// Adds a receiver, which joins at once and wants everything. Returns its host's number.
    pub(super) fn add_receiver(
        &mut self,
        subnet: usize,
        shape: Shape,
        configure: impl FnOnce(ReceiverConfig) -> ReceiverConfig,
    ) -> usize {
        let host = self.receivers.len() + 1;
        let mut id = NodeId(self.below(u64::MAX) | 1);
        let authentication = match &self.authentication {
            Authentication::Keys(_) => {
                id = node_id(FEED, &secret_of(host));
                Authentication::Keys(secret_of(host))
            }
            Authentication::List { token, .. } => {
                Authentication::List { list: List::On(secret_of(host)), token: *token }
            }
            same => same.clone(),
        };
        self.ids.push(id);
        let recovery = self.recovery;
        let node = NodeConfig { recovery, authentication, ..node_config(id, host, subnet) };
        let shape = Shape { id: self.ids[0], ..shape };
        let config = configure(ReceiverConfig::new(node, shape));
        config.check().unwrap();
        let draws = Draws::from_seed(self.below(u64::MAX));
        let mut store = Store::new(self.lengths.clone());
        store.symbol_len = shape.symbol_len.into();
        let engine = Receiver::new(config, draws, store);
        let engine = Tested::new(engine, |receiver| receiver.drops().to_string());
        let pace = Rate::from_bits_per_s(100_000_000);
        let place = Host { pace, ..Host::new(address(host, subnet), subnet) };
        self.add_host(Peer { engine, events: Vec::new() }, place);
        self.command(host, ReceiverCommand::Join);
        self.command(host, ReceiverCommand::Want { from: 0, skip: Vec::new() });
        host
    }

    pub(super) fn source(&mut self) -> &mut Tested<Source<Blocks>> {
        &mut self.source
    }

    pub(super) fn receiver(&mut self, host: usize) -> &mut Tested<Receiver<Store>> {
        &mut self.receivers[host - 1].engine
    }

    pub(super) fn address_of(&self, host: usize) -> SocketAddr {
        self.network.hosts[host].address
    }

    pub(super) fn id(&self, host: usize) -> NodeId {
        self.ids[host]
    }

    /// Returns the hosts of the receivers.
    pub(super) fn receivers(&self) -> Range<usize> {
        1..self.network.hosts.len()
    }

    pub(super) fn source_events(&self) -> &[SourceEvent] {
        &self.source_events
    }

    pub(super) fn receiver_events(&self, host: usize) -> &[ReceiverEvent] {
        &self.receivers[host - 1].events
    }

    /// Returns the last rate that the source told.
    pub(super) fn source_rate(&self) -> Rate {
        let rates = self.source_events.iter().rev();
        let mut rates = rates.filter_map(|event| match event {
            SourceEvent::Rate(rate) => Some(*rate),
            _ => None,
        });
        rates.next().expect("the rate is told at the start")
    }

    pub(super) fn source_command(&mut self, command: SourceCommand) {
        self.source.handle_command(self.now, command).unwrap();
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

    pub(super) fn command(&mut self, host: usize, command: ReceiverCommand) {
        let now = self.now;
        self.receiver(host).handle_command(now, command).unwrap();
        self.drain(host);
    }

    pub(super) fn set_weather(&mut self, weather: Weather) {
        let Weather { loss, duplicates, hop } = weather;
        self.network.weather = Link { loss, duplicates, ..Link::CLEAN };
        self.network.hop = hop;
        if loss > 0.0 {
            self.expect_faults();
        }
    }

    /// Allows what honest nodes drop when datagrams are lost, repeated or late, and when nodes
    /// fail. They hear repairs of other domains, and children that know more than they do. They
    /// hear messages of nodes that are their children or parents no more or not yet. Those who come
    /// late fetch from the source, which demands a cookie first.
    pub(super) fn expect_faults(&mut self) {
        for reason in [
            DropReason::NotAsked,
            DropReason::ForgedChild,
            DropReason::ForgedParent,
            DropReason::Loop,
            DropReason::Barred,
            DropReason::AbsurdAck,
            DropReason::Duplicate,
            DropReason::FarAhead,
            DropReason::HeldDown,
            DropReason::Behind,
            DropReason::NoCookie,
        ] {
            self.may_drop(reason);
        }
    }

    /// Returns whether every node that is up has every block, exactly right.
    pub(super) fn everyone_has_all(&mut self) -> bool {
        self.receivers().all(|host| !self.is_up(host) || self.has_all(host))
    }

    pub(super) fn has_all(&mut self, host: usize) -> bool {
        let all = self.lengths.len();
        self.receiver(host).sink_mut().blocks.len() == all
    }
}
