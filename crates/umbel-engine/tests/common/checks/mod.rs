//! Engines behind whatever a network says. The fuzz targets run these, and `corpus.rs` runs them on
//! the corpora of the fuzz targets.
//!
//! An input is a list of steps: a byte that selects the sender and how much time passes, the length
//! of a datagram in two bytes, and the datagram. An engine must never panic, never ask for a time
//! again and again that has passed, and never answer without end.

#![allow(unreachable_pub, dead_code, clippy::unwrap_used, reason = "shared by test binaries")]

use std::collections::{BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::chance::generator;
use umbel_engine::lms;
use umbel_engine::repository;
use umbel_engine::rlm;
use umbel_engine::router::{InterfaceId, PassingDatagram, RouterEngine, Routes, Upstream, Verdict};
use umbel_engine::smo;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::tmtp;
use umbel_engine::units::Rate;
use umbel_engine::{
    Address, Allowance, Datagram, Engine, Instant, RateClass, SessionId, TransmitBuf,
};
use umbel_wire::feed::Recovery;
use umbel_wire::repository::{GroupSecret, ItemInfo};
use umbel_wire::{Channel, Digest, Oti, Scheme, Toi, Tsi};

/// Bytes of a symbol.
const SYMBOL: u16 = 8;
/// Steps of the time between two datagrams.
const PAUSES_MS: [u64; 8] = [0, 1, 5, 20, 100, 500, 2_000, 30_000];
/// Greatest number of outputs between two inputs, and of wake-ups at one moment.
const MOST: usize = 10_000;
/// Length of a step's head.
const HEAD: usize = 3;

/// A delivery at a receiver's host, which packets of anybody pass. The first byte of a step tells
/// whether the host sends it, and whether its checksum is complete.
pub fn smo_delivery(bytes: &[u8]) {
    use umbel_engine::smo::delivery::{Checksum, Delivery, Direction};
    const CONNECTIONS: usize = 3;
    let addresses = |texts: [&str; 3]| texts.map(|text| text.parse::<std::net::IpAddr>().unwrap());
    let families = [
        addresses(["10.0.0.1", "232.7.7.7", "10.0.0.2"]),
        addresses(["fd00::1", "ff3e::7:7", "fd00::2"]),
    ];
    let mut deliveries = families.map(|[source, group, own]| {
        let mut delivery = Delivery::new(source, group, CONNECTIONS);
        delivery.set_own_addresses([own]);
        delivery
    });
    let mut rest = bytes;
    while let Some(([kind, low, high], after)) = rest.split_first_chunk::<HEAD>() {
        let length = usize::from(u16::from_le_bytes([*low, *high])).min(after.len());
        let (packet, next) = after.split_at(length);
        rest = next;
        let direction = if kind & 1 == 0 { Direction::In } else { Direction::Out };
        let checksum = if kind & 2 == 0 { Checksum::Whole } else { Checksum::Partial };
        for delivery in &mut deliveries {
            delivery.handle_packet(direction, packet, checksum, &mut |to, made| {
                assert!(made.len() <= packet.len());
                assert!(families.iter().any(|[.., own]| to.ip() == *own));
            });
            assert!(delivery.connections().len() <= CONNECTIONS);
        }
    }
}

/// A server of one item, and two clients of which anything may come.
pub fn repository_server(bytes: &[u8]) {
    use repository::{Source, SourceCommand, SourceConfig};
    let config = SourceConfig::new(Tsi(77), data_channel(), rate());
    let mut engine = Source::new(config, generator(0), Zeros);
    let start = Instant::from_nanos(1_000_000_000);
    for session in [SessionId(0), SessionId(1)] {
        let opened = SourceCommand::SessionOpened { session, rtt: Duration::from_millis(10) };
        engine.handle_command(start, opened).unwrap();
    }
    let senders = [0, 1, 2].map(|session| Address::Session(SessionId(session)));
    drive(&mut engine, start, bytes, &senders, answer_client);
}

/// Does what a machine around a server of one item does.
fn answer_client<S: SymbolSource>(
    engine: &mut repository::Source<S>,
    now: Instant,
    event: repository::SourceEvent,
) {
    use repository::{SourceCommand, SourceEvent};
    let page = |session, query, wanted| SourceCommand::Page {
        session,
        query,
        items: vec![item()],
        total: 1,
        next: None,
        wanted,
    };
    let answer = match event {
        SourceEvent::List { session, query, .. } => page(session, query, false),
        SourceEvent::Request { session, query, .. } => page(session, query, true),
        SourceEvent::Lookup { session, toi, need } => match item() {
            ItemInfo { toi: known, oti, .. } if known == toi => {
                SourceCommand::Want { session, toi, oti, need }
            }
            _ => SourceCommand::NoSuchItem { session, toi },
        },
        SourceEvent::DrawSecret => SourceCommand::Secret(GroupSecret([9; 32])),
        _ => return,
    };
    let _ = engine.handle_command(now, answer);
}

/// A client that has asked for an item.
pub fn repository_client(bytes: &[u8]) {
    use repository::{Receiver, ReceiverConfig};
    let mut engine = Receiver::new(ReceiverConfig::default(), generator(0), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    for command in requests() {
        let _ = engine.handle_command(start, command);
    }
    let channel = Address::Channel(data_channel());
    let senders = [Address::Session(SessionId(0)), channel, Address::Session(SessionId(9))];
    drive(&mut engine, start, bytes, &senders, |_, _, _| {});
}

/// What a client is told to ask for.
fn requests() -> [repository::ReceiverCommand; 3] {
    use repository::ReceiverCommand;
    [
        ReceiverCommand::Connected { session: SessionId(0) },
        ReceiverCommand::Request { query: 1, patterns: vec!["*".to_owned()], hold: false },
        ReceiverCommand::Accept {
            toi: Toi(2),
            oti: item().oti,
            held: repository::receiver::Held::default(),
            requested: true,
        },
    ]
}

/// A server that seals, and a client, in a network that the input rules.
pub fn repository_sealed(bytes: &[u8]) {
    symbols_of_sealed_repository(bytes);
}

/// Returns the number of symbols that the client of [`repository_sealed`] took.
pub fn symbols_of_sealed_repository(bytes: &[u8]) -> usize {
    use repository::{Receiver, ReceiverConfig, Source, SourceCommand, SourceConfig};
    let seal = repository::SealConfig {
        change_every: Duration::from_millis(200),
        change_gap: Duration::from_millis(100),
        ..repository::SealConfig::new(GroupSecret([255; 32]))
    };
    let config = SourceConfig {
        seal: Some(seal),
        token: Some("token".to_owned()),
        ..SourceConfig::new(Tsi(77), data_channel(), rate())
    };
    let client = ReceiverConfig { token: Some("token".to_owned()), ..ReceiverConfig::default() };
    let mut server = Source::new(config, generator(0), Zeros);
    let mut client = Receiver::new(client, generator(0), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    let session = SessionId(0);
    let opened = SourceCommand::SessionOpened { session, rtt: Duration::from_millis(10) };
    server.handle_command(start, opened).unwrap();
    for command in requests() {
        let _ = client.handle_command(start, command);
    }
    let by = |_: Side, to| match to {
        Address::Session(_) => Some(Address::Session(session)),
        Address::Channel(channel) if channel == data_channel() => Some(to),
        _ => None,
    };
    converse(&mut server, &mut client, start, bytes, by, answer_client);
    client.sink_mut().0.len()
}

/// The source of a feed that everyone may talk to, with each recovery.
pub fn tmtp_source(bytes: &[u8]) {
    for recovery in Recovery::ALL {
        tmtp_source_with(recovery, bytes);
    }
}

fn tmtp_source_with(recovery: Recovery, bytes: &[u8]) {
    use tmtp::{BlockCount, Draws, NodeConfig, Source, SourceCommand, SourceConfig};
    let node = NodeConfig { recovery, ..node(1) };
    let mut engine =
        Source::new(SourceConfig::new(node, shape(), rate()), Draws::from_seed(1), Zeros);
    let start = Instant::from_nanos(1_000_000_000);
    let blocks = BlockCount { count: 5, symbols: 4 };
    for command in [SourceCommand::Start, SourceCommand::Extend(vec![blocks])] {
        let _ = engine.handle_command(start, command);
    }
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
}

/// A receiver that wants a feed, and may become a manager or a helper.
pub fn tmtp_receiver(bytes: &[u8]) {
    for recovery in Recovery::ALL {
        tmtp_receiver_with(recovery, bytes);
    }
}

/// The source of a feed with a token and a list, and a receiver, in a network that the input rules.
pub fn tmtp_closed(bytes: &[u8]) {
    symbols_of_closed_feed(bytes);
}

/// Returns the number of symbols that the receiver of [`tmtp_closed`] took.
pub fn symbols_of_closed_feed(bytes: &[u8]) -> usize {
    use tmtp::{BlockCount, Draws, List, NodeConfig, Receiver, ReceiverCommand, ReceiverConfig};
    use tmtp::{Source, SourceCommand, SourceConfig};
    let secret = [5; 32];
    let has = List::Has { tree: [6; 32], receivers: vec![secret, [7; 32]] };
    let source = NodeConfig { admission: Some([4; 32]), list: has, ..node(1) };
    let receiver = NodeConfig { admission: Some([4; 32]), list: List::On(secret), ..node(2) };
    let addresses = [source.address, receiver.address];
    let mut source =
        Source::new(SourceConfig::new(source, shape(), rate()), Draws::from_seed(1), Zeros);
    let config = ReceiverConfig::new(receiver, shape());
    let mut receiver = Receiver::new(config, Draws::from_seed(2), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    let blocks = BlockCount { count: 5, symbols: 4 };
    for command in [SourceCommand::Start, SourceCommand::Extend(vec![blocks])] {
        let _ = source.handle_command(start, command);
    }
    for command in [ReceiverCommand::Join, ReceiverCommand::Want { from: 0, skip: Vec::new() }] {
        let _ = receiver.handle_command(start, command);
    }
    let by = |from: Side, to| {
        let from = addresses[from as usize];
        match to {
            Address::Channel(channel) if channel == group() => {
                Some(Address::Channel(Channel { source: Some(from.ip()), ..channel }))
            }
            Address::Channel(_) => Some(to),
            Address::Host(host) if host != from && addresses.contains(&host) => {
                Some(Address::Host(from))
            }
            _ => None,
        }
    };
    converse(&mut source, &mut receiver, start, bytes, by, |_, _, _| {});
    receiver.sink_mut().0.len()
}

fn tmtp_receiver_with(recovery: Recovery, bytes: &[u8]) {
    use tmtp::{Draws, NodeConfig, Receiver, ReceiverCommand, ReceiverConfig};
    let node = NodeConfig { recovery, ..node(2) };
    let config = ReceiverConfig::new(node, shape());
    let mut engine = Receiver::new(config, Draws::from_seed(1), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    for command in [ReceiverCommand::Join, ReceiverCommand::Want { from: 0, skip: Vec::new() }] {
        let _ = engine.handle_command(start, command);
    }
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
}

/// A receiver of two layers that add to each other, and one of two of which it takes one.
pub fn rlm_receiver(bytes: &[u8]) {
    use umbel_wire::stream::StreamMode;
    for mode in [StreamMode::Cumulative, StreamMode::Independent] {
        rlm_receiver_in(mode, bytes);
    }
}

fn rlm_receiver_in(mode: umbel_wire::stream::StreamMode, bytes: &[u8]) {
    use rlm::{Receiver, ReceiverCommand, ReceiverConfig};
    let channels = umbel_wire::rlm::channels(data_channel(), 2).unwrap();
    let mut config = ReceiverConfig::new(Tsi(7), 9, channels);
    config.mode = mode;
    config.control = Some(group());
    config.held.object_bytes = 100_000;
    let mut engine = Receiver::new(config, generator(1)).unwrap();
    let start = Instant::from_nanos(1_000_000_000);
    engine.handle_command(start, ReceiverCommand::Join).unwrap();
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
}

/// The source of a layer with repairs, and of one with objects.
pub fn rlm_source(bytes: &[u8]) {
    use rlm::{Source, SourceCommand, SourceConfig};
    let mut config = SourceConfig::new(Tsi(7), data_channel(), 2);
    config.control = Some(group());
    config.layers[0].fec =
        Some(umbel_wire::stream::LayerFec { source_symbols: 4, repair_symbols: 2 });
    let mut engine = Source::new(config).unwrap();
    let start = Instant::from_nanos(1_000_000_000);
    let body = Bytes::from_static(b"unit");
    engine.handle_command(start, SourceCommand::Unit { layer: 0, body: body.clone() }).unwrap();
    let name = "object".to_owned();
    engine.handle_command(start, SourceCommand::Object { layer: 1, name, body }).unwrap();
    drive(&mut engine, start, bytes, &strangers(), |_, _, _| {});
}

/// A TCP server with two connections and a stream. Segments have the ports of the corpus of
/// `tcp_segment`; their sequence numbers fit those of its seeds.
pub fn smo_source(bytes: &[u8]) {
    use smo::{MasterId, Source, SourceCommand, SourceConfig, SourceEvent, Stream};
    use umbel_wire::tcp::{Flags, Head, Options, Seq};
    let mut config = SourceConfig::new(50_000, data_channel());
    (config.base, config.children, config.half_open) = (Some(0), 3, 2);
    let mut engine = Source::new(config, generator(0));
    let start = Instant::from_nanos(1_000_000_000);
    let peer = |last| Address::Host(([192, 0, 2, last], 8080).into());
    for by in [peer(1), peer(2)] {
        let syn = Options { mss: Some(1460), sack_permitted: true, ..Options::default() };
        let opening =
            [(Flags::SYN, u32::MAX - 3, syn), (Flags::ACK, u32::MAX - 2, Options::default())];
        for (flags, seq, options) in opening {
            let mut payload = Vec::new();
            let (source_port, destination_port, window) = (8080, 50_000, u16::MAX);
            let (seq, ack) = (Seq(seq), Seq(0));
            Head { source_port, destination_port, seq, ack, flags, window, options }
                .emit(&mut payload);
            engine.handle_datagram(start, Datagram { by, hop_limit: None, payload: &payload });
        }
    }
    assert_eq!(engine.len(), 2);
    let to = Stream::Master(MasterId::FIRST);
    let bytes_to_send = Bytes::from_static(&[7; 9000]);
    engine.handle_command(start, SourceCommand::Write { to, bytes: bytes_to_send }).unwrap();
    let senders = [peer(1), peer(2), peer(3), Address::Channel(data_channel())];
    drive(&mut engine, start, bytes, &senders, |engine, now, event| {
        if let SourceEvent::Received { child, bytes } = event {
            let consumed = SourceCommand::Consumed { child, bytes: bytes.len() };
            let _ = engine.handle_command(now, consumed);
        }
    });
    assert!(engine.len() <= 3 && engine.half_open() <= 2);
}

/// LMS in a router with three links below. The first byte of a step selects where a datagram comes
/// from, where it goes, and how much time passes.
pub fn lms_router(bytes: &[u8]) {
    let address = ([192, 0, 2, 200], 7705).into();
    let mut config = lms::config::RouterConfig::new(address, [3; 32]);
    config.channels = 8;
    let mut router = lms::Router::new(config);
    let mut now = Instant::from_nanos(1_000_000_000);
    let host = |last| SocketAddr::from(([192, 0, 2, last], 7705));
    for_each_step(bytes, |kind, payload| {
        now = pass_router(&mut router, now, now + Duration::from_millis(pause(kind)));
        let interface = u32::from(kind & 3);
        let to = match kind >> 5 {
            0..=2 => Address::Host(address),
            3..=5 => Address::Host(host(1)),
            _ => Address::Channel(data_channel()),
        };
        let datagram = PassingDatagram {
            arrived_on: InterfaceId(interface),
            from: host(if interface == 0 { 1 } else { 10 + interface as u8 }),
            to,
            payload,
        };
        let verdict = router.handle_datagram(now, &mut Tree, datagram);
        assert!(matches!(verdict, Verdict::Forward | Verdict::Take));
        let sent = std::iter::from_fn(|| router.poll_transmit(now)).take(MOST).count();
        assert!(sent < MOST, "it has always something to say");
    });
    pass_router(&mut router, now, now + Duration::from_mins(1));
}

/// Lets time pass at a router; returns the time after it.
fn pass_router(router: &mut lms::Router, mut now: Instant, until: Instant) -> Instant {
    let mut at_once = 0;
    while let Some(due) = router.poll_timeout().filter(|due| *due <= until) {
        at_once = if due > now { 0 } else { at_once + 1 };
        assert!(at_once < MOST, "it asks again and again for a time that has passed");
        now = due.max(now);
        router.handle_timeout(now, &mut Tree);
        while router.poll_transmit(now).is_some() {}
    }
    until
}

/// Interface 0 leads to the source of every channel, all others away from it.
struct Tree;

impl Routes for Tree {
    fn upstream(&mut self, _channel: &Channel) -> Option<Upstream> {
        Some(Upstream::Interface(InterfaceId(0)))
    }

    fn is_downstream(&mut self, _channel: &Channel, interface: InterfaceId) -> bool {
        (1..4).contains(&interface.0)
    }

    fn downstream(&mut self, _channel: &Channel, to: &mut Vec<InterfaceId>) {
        to.extend((1..4).map(InterfaceId));
    }

    fn interfaces(&mut self, to: &mut Vec<InterfaceId>) {
        to.extend((0..4).map(InterfaceId));
    }

    fn is_attached(&mut self, host: IpAddr) -> bool {
        host == IpAddr::from([192, 0, 2, 11])
    }
}

/// One of two engines that talk to each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    First,
    Second,
}

/// A datagram between two engines: who sends it, as whose the other one hears it, and what it says.
type Underway = (Side, Address, Bytes);

/// Has two engines talk to each other while `bytes` rule the network between them: it delivers,
/// drops, repeats and alters what they send, makes up what they did not, and lets time pass. `by`
/// says as whose the other side hears what one sends to an address, if at all.
fn converse<A: Engine, B: Engine>(
    first: &mut A,
    second: &mut B,
    start: Instant,
    bytes: &[u8],
    by: impl Fn(Side, Address) -> Option<Address>,
    mut answer: impl FnMut(&mut A, Instant, A::Event),
) {
    let (mut now, mut rest) = (start, bytes);
    let mut network: VecDeque<Underway> = VecDeque::new();
    loop {
        drain_into(first, now, &mut answer, &mut |to, body| {
            network.extend(by(Side::First, to).map(|by| (Side::First, by, body)));
        });
        drain_into(second, now, &mut |_, _, _| {}, &mut |to, body| {
            network.extend(by(Side::Second, to).map(|by| (Side::Second, by, body)));
        });
        network.truncate(MOST);
        let Some((&kind, after)) = rest.split_first() else { break };
        rest = after;
        let mut next = || {
            let (byte, after) = rest.split_first().map_or((0, rest), |(byte, rest)| (*byte, rest));
            rest = after;
            byte
        };
        let heard = match kind % 8 {
            3 => {
                network.pop_front();
                None
            }
            4 => {
                network.rotate_left(usize::from(network.len() > 1));
                network.back().cloned()
            }
            5 => network.pop_front().map(|(from, by, body)| {
                let mut body = body.to_vec();
                let at = usize::from(next()) % body.len().max(1);
                let change = next();
                body.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= change);
                (from, by, body.into())
            }),
            6 => network.front().map(|(from, by, _)| (*from, *by)).map(|(from, by)| {
                let len = usize::from(next());
                let body: Vec<u8> = (0..len).map(|_| next()).collect();
                (from, by, body.into())
            }),
            7 => {
                // What is said meanwhile is on its way after it.
                let (before, until) = (now, now + Duration::from_millis(pause(next())));
                now = pass_into(first, before, until, &mut answer, &mut |to, body| {
                    network.extend(by(Side::First, to).map(|by| (Side::First, by, body)));
                });
                pass_into(second, before, until, &mut |_, _, _| {}, &mut |to, body| {
                    network.extend(by(Side::Second, to).map(|by| (Side::Second, by, body)));
                });
                None
            }
            _ => network.pop_front(),
        };
        let Some((from, by, body)) = heard else { continue };
        let datagram = Datagram { by, hop_limit: Some(1), payload: &body };
        match from {
            Side::First => second.handle_datagram(now, datagram),
            Side::Second => first.handle_datagram(now, datagram),
        }
    }
}

/// Returns the time that passes before a step, in milliseconds.
fn pause(kind: u8) -> u64 {
    PAUSES_MS[usize::from(kind >> 2) % PAUSES_MS.len()]
}

/// Hands over the steps of an input: the first byte of each, and its datagram.
fn for_each_step(bytes: &[u8], mut step: impl FnMut(u8, &[u8])) {
    let mut rest = bytes;
    while let Some((&[kind, low, high], after)) = rest.split_first_chunk::<HEAD>() {
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (payload, next) = after.split_at(len);
        rest = next;
        step(kind, payload);
    }
}

/// Hands the steps of `bytes` to an engine, and does what a machine does around it.
fn drive<E: Engine>(
    engine: &mut E,
    start: Instant,
    bytes: &[u8],
    senders: &[Address],
    mut answer: impl FnMut(&mut E, Instant, E::Event),
) {
    let mut now = start;
    drain(engine, now, &mut answer);
    for_each_step(bytes, |kind, payload| {
        now = pass(engine, now, now + Duration::from_millis(pause(kind)), &mut answer);
        let by = senders[usize::from(kind & 3) % senders.len()];
        engine.handle_datagram(now, Datagram { by, hop_limit: Some(kind), payload });
        drain(engine, now, &mut answer);
    });
    pass(engine, now, now + Duration::from_mins(1), &mut answer);
}

/// Lets time pass; returns the time after it.
fn pass<E: Engine>(
    engine: &mut E,
    now: Instant,
    until: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
) -> Instant {
    pass_into(engine, now, until, answer, &mut |_, _| {})
}

/// Lets time pass like [`pass`], and passes on what the engine sends meanwhile.
fn pass_into<E: Engine>(
    engine: &mut E,
    mut now: Instant,
    until: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
    send: &mut impl FnMut(Address, Bytes),
) -> Instant {
    let mut at_once = 0;
    while let Some(due) = engine.poll_timeout().filter(|due| *due <= until) {
        at_once = if due > now { 0 } else { at_once + 1 };
        assert!(at_once < MOST, "it asks again and again for a time that has passed");
        now = due.max(now);
        engine.handle_timeout(now);
        drain_into(engine, now, answer, send);
    }
    until
}

fn drain<E: Engine>(
    engine: &mut E,
    now: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
) {
    drain_into(engine, now, answer, &mut |_, _| {});
}

/// Takes all that an engine has to say, and passes on its datagrams with their destinations.
fn drain_into<E: Engine>(
    engine: &mut E,
    now: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
    send: &mut impl FnMut(Address, Bytes),
) {
    let mut buf = TransmitBuf::default();
    for _ in 0..MOST {
        let mut quiet = true;
        while engine.poll_membership().is_some() {
            quiet = false;
        }
        // Without a pace, so that all that is due comes at once; no more than a burst of data.
        let mut allowance = Allowance::data(usize::from(quiet));
        allowance.set(RateClass::Layer(0), usize::from(quiet));
        allowance.set(RateClass::Layer(1), usize::from(quiet));
        buf.reset(allowance);
        if let Some(transmit) = engine.poll_transmit(now, &mut buf) {
            assert!(!buf.is_empty() && buf.bytes() <= 4 << 20);
            buf.messages().for_each(|body| send(transmit.to, body));
            quiet = false;
        }
        while let Some(event) = engine.poll_event() {
            answer(engine, now, event);
            quiet = false;
        }
        if quiet {
            return;
        }
    }
    panic!("it has always something to say");
}

fn rate() -> Rate {
    Rate::from_bits_per_s(1_000_000).unwrap()
}

fn data_channel() -> Channel {
    Channel { source: Some([192, 0, 2, 1].into()), group: [232, 1, 2, 3].into(), port: 7702 }
}

/// The group in which [`strangers`] talk.
fn group() -> Channel {
    Channel { source: None, group: [239, 1, 2, 3].into(), port: 7703 }
}

/// The item that is served.
fn item() -> ItemInfo {
    ItemInfo {
        toi: Toi(2),
        name: "a".to_owned(),
        digest: Digest([1; 32]),
        modified_ns: None,
        mode: None,
        media_type: String::new(),
        oti: Oti {
            scheme: Scheme::ReedSolomon,
            object_len: 20 * u64::from(SYMBOL),
            symbol_len: SYMBOL,
            max_block_symbols: 4,
            max_encoding_symbols: 255,
        },
    }
}

/// A node of the feed that the seeds of the corpora speak of.
fn node(number: u8) -> tmtp::NodeConfig {
    let address = ([192, 0, 2, number], 7703).into();
    let domain = group();
    let id = tmtp::NodeId(u64::from(number));
    tmtp::NodeConfig::new(id, Tsi(1), (data_channel(), domain), address)
}

fn shape() -> tmtp::Shape {
    tmtp::Shape {
        id: tmtp::NodeId(1),
        source: ([192, 0, 2, 1], 7703).into(),
        symbol_len: SYMBOL,
        block_symbols: 4,
        fec: true,
        manifest: None,
    }
}

/// The data channel, the source's address, the domain's group and another node.
fn strangers() -> [Address; 4] {
    let domain = |last| Channel {
        source: Some([192, 0, 2, last].into()),
        group: [239, 1, 2, 3].into(),
        port: 7703,
    };
    [
        Address::Channel(data_channel()),
        Address::Host(([192, 0, 2, 1], 7703).into()),
        Address::Channel(domain(3)),
        Address::Host(([192, 0, 2, 3], 7703).into()),
    ]
}

/// Symbols of zeros.
struct Zeros;

impl SymbolSource for Zeros {
    fn prefetch(&mut self, _block: BlockId, _esis: Range<u32>) {}

    fn symbol(&mut self, _block: BlockId, _esi: u32) -> Load {
        Load::Ready(Bytes::from_static(&[0; SYMBOL as usize]))
    }

    fn release(&mut self, _block: BlockId) {}
}

/// Remembers which symbols it took, as far as it has room.
#[derive(Default)]
struct Nowhere(BTreeSet<(BlockId, u32)>);

impl SymbolSink for Nowhere {
    fn store(&mut self, block: BlockId, esi: u32, _symbol: &[u8]) -> bool {
        self.0.len() < MOST && self.0.insert((block, esi))
    }

    fn restore(&mut self, _block: BlockId) {}

    fn rest(&mut self, _block: BlockId) {}
}
