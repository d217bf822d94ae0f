//! One server and clients behind lossy links.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use umbel_fec::Partition;
use umbel_wire::alc::{DataHeader, DataPacket};
use umbel_wire::reception::ChannelStamp;
use umbel_wire::repository::{GroupSecret, ItemInfo, ItemKind, ServerMessage};
use umbel_wire::{Channel, Digest, Scheme, Toi, Tsi};

use super::attacker::Attacker;
use super::content::{MemorySink, MemorySource, Object, SYMBOL};
use crate::chance::generator;
use crate::repository::config::{ReceiverConfig, SourceConfig};
use crate::repository::drops::DropReason;
use crate::repository::receiver::{
    Held, Receiver, ReceiverCommand, ReceiverCommandError, ReceiverEvent,
};
use crate::repository::source::{Source, SourceCommand, SourceEvent};
use crate::repository::symbol_digest;
use crate::symbols::BlockId;
use crate::testing::Tested;
use crate::testing::world::{self, Host, Link, NoRouter, Protocol, Seat};
use crate::units::Rate;
use crate::{Address, Datagram, Engine, Instant, RateClass, SessionId, Transmit};

#[derive(Debug)]
pub(super) struct Client {
    pub(super) engine: Tested<Receiver<MemorySink>>,
    pub(super) done: BTreeMap<Toi, Instant>,
    pub(super) gone: BTreeMap<Toi, String>,
    pub(super) events: Vec<ReceiverEvent>,
    pub(super) packets: u64,
    pub(super) refused: bool,
}

impl Seat for Client {
    type Engine = Receiver<MemorySink>;

    fn engine(&mut self) -> &mut Tested<Receiver<MemorySink>> {
        &mut self.engine
    }
}

/// Somebody who sends wrong symbols of the block of a genuine packet and of the next three.
#[derive(Clone, Copy, Debug)]
pub(super) struct Forger {
    pub(super) claims: Forged,
    /// Symbols sent so far.
    pub(super) turn: u32,
}

/// What a forged packet says that it is.
#[derive(Clone, Copy, Debug)]
pub(super) enum Forged {
    /// One of the first symbols, in the place of the genuine packet.
    Any,
    /// A repair symbol that no other packet has, in the place of the genuine packet.
    Repair,
    /// The same in a transmission so much later.
    RepairOf(u32),
    /// The same in a packet so much later of the same transmission.
    RepairAhead(u32),
}

/// Record of the server and its application.
#[derive(Debug, Default)]
pub(super) struct Library {
    pub(super) source_events: Vec<SourceEvent>,
    pub(super) sent_packets: u64,
    /// Items in the order in which their first packets left.
    pub(super) order: Vec<Toi>,
    /// Number of messages that announced transmissions to clients.
    pub(super) announcements: u64,
    /// Clients that are served by unicast.
    unicast: BTreeSet<SessionId>,
    /// Number of secrets that were drawn for group keys.
    secrets: u8,
    /// Who sends a wrong symbol before each genuine one.
    pub(super) forger: Option<Forger>,
    /// Whether the server answers no questions for digests of symbols.
    pub(super) mute: bool,
    /// Attacker on the path of the data channel.
    pub(super) attacker: Option<Attacker>,
}

pub(super) type World = world::World<Library>;

pub(super) fn channel() -> Channel {
    Channel { source: Some([192, 0, 2, 1].into()), group: [232, 1, 2, 3].into(), port: 7702 }
}

pub(super) fn config() -> SourceConfig {
    let mut config =
        SourceConfig::new(Tsi(7), channel(), Rate::from_bits_per_s(1_000_000).unwrap());
    config.packet_len = usize::from(SYMBOL) + DataHeader::LEN;
    config.segment.min_packets = 40;
    config
}

impl Protocol for Library {
    type Source = Tested<Source<MemorySource>>;
    type Receiver = Client;
    type Router = NoRouter;

    fn on_source_event(world: &mut World, event: SourceEvent) {
        let now = world.now;
        match &event {
            SourceEvent::Request { session, query, patterns, .. } => {
                let items = patterns.iter().map(|pattern| info(world, pattern));
                let items: Vec<ItemInfo> = items.collect();
                let total = items.len() as u64;
                let (session, query) = (*session, *query);
                let page =
                    SourceCommand::Page { session, query, items, total, next: None, wanted: true };
                world.source.handle_command(now, page).unwrap();
            }
            SourceEvent::Lookup { session, toi, need } => {
                let oti = world.source.symbols_mut().objects[toi].oti;
                let need = need.clone();
                let want = SourceCommand::Want { session: *session, toi: *toi, oti, need };
                world.source.handle_command(now, want).unwrap();
            }
            SourceEvent::ServeUnicast { session, toi, .. } => {
                world.unicast.insert(*session);
                let object = &world.source.symbols_mut().objects[toi];
                for sbn in 0..Partition::new(&object.oti).unwrap().blocks() {
                    let (session, block) = (*session, BlockId { toi: *toi, sbn });
                    let delay = world.network.weather.delay + Duration::from_secs(1) * (sbn + 1);
                    world.later(delay, move |world| bring(world, session, block));
                }
            }
            SourceEvent::StopUnicast { session, .. } => {
                world.unicast.remove(session);
            }
            SourceEvent::Probe { session, probe, packets, .. } => {
                let header = DataHeader {
                    tsi: Tsi(7),
                    toi: Toi::PROBE,
                    transmission: *probe,
                    index: 0,
                    stamp: ChannelStamp::default(),
                    scheme: Scheme::NoCode,
                    sbn: 0,
                    esi: 0,
                };
                let packet = Bytes::copy_from_slice(&header.emit().unwrap());
                world.send(0, Transmit::control(Address::Channel(channel())), packet);
                let (session, probe, packets) = (*session, *probe, *packets);
                let probed = SourceCommand::Probed { session, probe, packets };
                world.source.handle_command(now, probed).unwrap();
            }
            SourceEvent::SymbolDigests { session, toi, key, symbols } if !world.mute => {
                let block = BlockId { toi: *toi, sbn: symbols.block };
                let object = &world.source.symbols_mut().objects[toi];
                let (first_esi, end) = (symbols.first_esi, symbols.first_esi + symbols.count);
                let digests = object.symbols(block.sbn, first_esi..end);
                let digest =
                    |(esi, symbol): (u32, Vec<u8>)| symbol_digest(key, block, esi, &symbol);
                let digests = digests.map(digest).collect();
                let session = *session;
                let answer = SourceCommand::SymbolDigests { session, block, first_esi, digests };
                world.source.handle_command(now, answer).unwrap();
            }
            SourceEvent::Digests { session, toi } => {
                let digests = world.source.symbols_mut().objects[toi].block_digests();
                let (session, toi, first_block, more) = (*session, *toi, 0, false);
                let answer = SourceCommand::Digests { session, toi, first_block, digests, more };
                world.source.handle_command(now, answer).unwrap();
            }
            SourceEvent::DrawSecret => {
                world.secrets = world.secrets.wrapping_add(1);
                let secret = GroupSecret([world.secrets; 32]);
                world.source.handle_command(world.now, SourceCommand::Secret(secret)).unwrap();
            }
            SourceEvent::Rate { rate } => world.host(0).pace = Some(*rate),
            _ => {}
        }
        world.source_events.push(event);
    }

    fn on_receiver_event(world: &mut World, index: usize, event: ReceiverEvent) {
        let client = &mut world.receivers[index];
        match &event {
            ReceiverEvent::Page { items, .. } => {
                for item in items {
                    client.engine.sink_mut().add(item.toi, item.oti);
                    let (toi, oti, held) = (item.toi, item.oti, Held::default());
                    let accept = ReceiverCommand::Accept { toi, oti, held, requested: true };
                    client.engine.handle_command(world.now, accept).unwrap();
                }
            }
            ReceiverEvent::Digests { toi, digests, .. } => {
                client.engine.sink_mut().check_blocks(*toi, digests.clone());
            }
            ReceiverEvent::Gone { toi, reason } => {
                client.gone.insert(*toi, reason.clone());
            }
            ReceiverEvent::Refused { .. } => client.refused = true,
            _ => {}
        }
        client.events.push(event);
    }

    /// Reports the sink's work to a client's engine.
    fn act(world: &mut World, host: usize) -> bool {
        let Some(index) = host.checked_sub(1) else { return false };
        let client = &mut world.receivers[index];
        let sink = client.engine.sink_mut();
        let (failed, complete, bad) = (
            std::mem::take(&mut sink.failed),
            std::mem::take(&mut sink.complete),
            std::mem::take(&mut sink.bad),
        );
        let objects = &world.source.symbols_mut().objects;
        let is_right = |toi: &Toi| objects[toi].bytes == sink.object(*toi);
        let (complete, damaged): (Vec<Toi>, Vec<Toi>) = complete.into_iter().partition(is_right);
        client.done.extend(complete.iter().map(|&toi| (toi, world.now)));
        let done = complete.into_iter().map(|toi| ReceiverCommand::Done { toi });
        let failed = failed.into_iter().map(|block| ReceiverCommand::RestoreFailed { block });
        let damaged = damaged.into_iter().map(|toi| ReceiverCommand::AskDigests { toi });
        let mut commands: Vec<ReceiverCommand> = done.chain(failed).chain(damaged).collect();
        let tois: BTreeSet<Toi> = bad.iter().map(|block| block.toi).collect();
        for toi in tois {
            let of_item = bad.iter().filter(|block| block.toi == toi);
            let blocks = of_item.map(|block| block.sbn).collect();
            commands.push(ReceiverCommand::BadBlocks { toi, blocks });
        }
        let any = !commands.is_empty();
        for command in commands {
            client.engine.handle_command(world.now, command).unwrap();
        }
        any
    }

    fn passes(world: &mut World, _: usize, transmit: Transmit, packet: &mut Bytes) -> bool {
        if transmit.class == RateClass::Data {
            world.sent_packets += 1;
            let toi = DataPacket::parse(packet).unwrap().header.toi;
            if world.order.last() != Some(&toi) {
                world.order.push(toi);
            }
        }
        true
    }

    fn arrive(world: &mut World, to: usize, datagram: Datagram<'_>) {
        match datagram.by {
            Address::Channel(_) => world.receivers[to - 1].packets += 1,
            Address::Session(_) if to > 0 => {
                let message = ServerMessage::parse(datagram.payload).unwrap().message();
                let announces = matches!(message, Some(ServerMessage::Announce { .. }));
                world.announcements += u64::from(announces);
            }
            _ => {}
        }
        let now = world.now;
        if let (Address::Channel(by), Some(attacker)) = (datagram.by, &mut world.attacker) {
            for payload in attacker.instead_of(datagram.payload) {
                let by = Address::Channel(by);
                let heard = Datagram { by, hop_limit: datagram.hop_limit, payload: &payload };
                world.engine(to).handle_datagram(now, heard);
            }
            return;
        }
        if let Address::Channel(by) = datagram.by
            && let Some(payload) = world.forge(datagram.payload)
        {
            let forged = Datagram { by: Address::Channel(by), hop_limit: None, payload: &payload };
            world.engine(to).handle_datagram(now, forged);
        }
        world.engine(to).handle_datagram(now, datagram);
    }
}

impl World {
    /// Returns a wrong symbol of the block of a genuine packet or of one of the next three.
    fn forge(&mut self, genuine: &[u8]) -> Option<Vec<u8>> {
        let forger = self.forger.as_mut()?;
        let Forger { claims, turn } = *forger;
        forger.turn = turn.wrapping_add(1);
        let DataPacket { header, symbol } = DataPacket::parse(genuine).ok()?;
        let sbn = header.sbn + turn % 4;
        // The server gets nowhere near these.
        let repair = 100 + turn / 4 % 155;
        let header = match claims {
            Forged::Any => DataHeader { sbn, esi: turn / 4 % 40, ..header },
            Forged::Repair => DataHeader { sbn, esi: repair, ..header },
            Forged::RepairOf(later) => {
                let transmission = header.transmission.wrapping_add(later);
                DataHeader { sbn, esi: repair, transmission, ..header }
            }
            Forged::RepairAhead(later) => {
                DataHeader { sbn, esi: repair, index: header.index + later, ..header }
            }
        };
        Some(
            [&header.emit().ok()?[..], &vec![turn as u8; usize::from(SYMBOL).max(symbol.len())]]
                .concat(),
        )
    }
}

/// Returns what the server says of the item with this number.
fn info(world: &mut World, number: &str) -> ItemInfo {
    let toi = Toi(number.parse().unwrap());
    ItemInfo {
        toi,
        name: number.to_owned(),
        digest: Digest([0; 32]),
        modified_ns: None,
        mode: None,
        kind: ItemKind::File,
        holes: None,
        media_type: String::new(),
        oti: world.source.symbols_mut().objects[&toi].oti,
    }
}

/// Brings a client a block by unicast, if it is still served so.
fn bring(world: &mut World, session: SessionId, block: BlockId) {
    if !world.unicast.contains(&session) {
        return;
    }
    let object = &world.source.symbols_mut().objects[&block.toi];
    let range = Partition::new(&object.oti).unwrap().block_range(block.sbn);
    let content = Bytes::copy_from_slice(&object.bytes[range.start as usize..range.end as usize]);
    let index = session.0 as usize;
    let command = ReceiverCommand::UnicastBlock { block, content };
    match world.receivers[index].engine.handle_command(world.now, command) {
        Ok(()) => world.drain(index + 1),
        Err(ReceiverCommandError::NoRoom(_)) => {
            world.later(Duration::from_millis(100), move |world| bring(world, session, block));
        }
        Err(error) => panic!("{error}"),
    }
}

impl World {
    pub(super) fn new(config: SourceConfig, objects: Vec<Object>, seed: u64) -> World {
        let pace = Some(config.rate);
        let objects = (1..).map(Toi).zip(objects).collect();
        let symbols = MemorySource { objects, ..MemorySource::default() };
        let source = Source::new(config, generator(1), symbols);
        let source = Tested::new(source, |source| source.drops().to_string());
        let host = Host::new((channel().source.unwrap(), channel().port).into(), 0);
        let host = Host { pace, ..host };
        let mut world = World::with_source(seed, Library::default(), source, host);
        world.network.weather = Link::delayed(Duration::from_millis(5));
        world
    }

    /// Adds a client that connects and requests items by number.
    pub(super) fn add_client(&mut self, wanted: &[u32], loss: f64) -> usize {
        let index = self.receivers.len();
        let session = SessionId(index as u64);
        let engine = Receiver::new(
            ReceiverConfig::default(),
            generator(index as u64),
            MemorySink::default(),
        );
        let mut engine = Tested::new(engine, |receiver| receiver.drops().to_string());
        let now = self.now;
        engine.handle_command(now, ReceiverCommand::Connected { session }).unwrap();
        let patterns = wanted.iter().map(ToString::to_string).collect();
        let request = ReceiverCommand::Request { query: 1, patterns, hold: false };
        engine.handle_command(now, request).unwrap();
        let client = Client {
            engine,
            done: BTreeMap::new(),
            gone: BTreeMap::new(),
            events: Vec::new(),
            packets: 0,
            refused: false,
        };
        let down = Link { loss, ..Link::CLEAN };
        let address: SocketAddr = ([10, 0, (index >> 8) as u8, index as u8], 7702).into();
        self.add_host(client, Host { down, ..Host::new(address, 0) });
        if index == 1 || loss > 0.0 {
            // Clients hear what is sent for others, and repairs that they need no longer.
            self.may_drop(DropReason::NotWanted);
            self.may_drop(DropReason::Duplicate);
        }
        let rtt = self.network.weather.delay * 2;
        let opened = SourceCommand::SessionOpened { session, remote: address.ip(), rtt };
        self.source.handle_command(now, opened).unwrap();
        self.drain(0);
        index
    }

    /// Makes the client vanish.
    pub(super) fn close(&mut self, index: usize) {
        self.crash(index + 1);
        let session = SessionId(index as u64);
        self.source.handle_command(self.now, SourceCommand::SessionClosed { session }).unwrap();
        self.drain(0);
    }

    /// Lets multicast reach a client or not.
    pub(super) fn set_deaf(&mut self, index: usize, is_deaf: bool) {
        self.host(index + 1).is_deaf = is_deaf;
    }

    /// Runs until every client has everything it wanted. Returns whether that is so within the
    /// limit.
    pub(super) fn run(&mut self, limit: Duration) -> bool {
        self.reaches(limit, |world| {
            let mut clients = world.receivers.iter().enumerate();
            clients.all(|(index, client)| !world.is_up(index + 1) || client.is_finished())
        })
    }

    /// Asserts that a client has exactly the bytes of these items.
    pub(super) fn assert_has(&mut self, index: usize, items: &[u32]) {
        for &item in items {
            let expected = &self.source.symbols_mut().objects[&Toi(item)].bytes;
            let client = &mut self.receivers[index];
            assert!(client.done.contains_key(&Toi(item)), "client {index} lacks item {item}");
            let got = client.engine.sink_mut().object(Toi(item));
            assert!(got == *expected, "client {index} has wrong bytes of item {item}");
        }
    }
}

impl Client {
    /// Returns whether the client has been answered and lacks nothing.
    fn is_finished(&self) -> bool {
        let is_answered = self.refused || !self.done.is_empty() || !self.gone.is_empty();
        is_answered && self.engine.outstanding() == 0
    }
}
