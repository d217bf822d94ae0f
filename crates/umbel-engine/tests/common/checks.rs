//! Engines behind whatever a network says. The fuzz targets run these, and `corpus.rs` runs them on
//! the corpora of the fuzz targets.
//!
//! An input is a list of steps: a byte that selects the sender and how much time passes, the length
//! of a datagram in two bytes, and the datagram. An engine must never panic, never ask for a time
//! again and again that has passed, and never answer without end.

#![allow(unreachable_pub, clippy::unwrap_used, reason = "shared by test binaries")]

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::chance::generator;
use umbel_engine::repository;
use umbel_engine::rlm;
use umbel_engine::smo;
use umbel_engine::symbols::{BlockId, Load, SymbolSink, SymbolSource};
use umbel_engine::tmtp;
use umbel_engine::units::Rate;
use umbel_engine::{
    Address, Allowance, Datagram, Engine, Instant, RateClass, SessionId, TransmitBuf,
};
use umbel_wire::feed::Recovery;
use umbel_wire::repository::ItemInfo;
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
    use repository::{Source, SourceCommand, SourceConfig, SourceEvent};
    let config = SourceConfig::new(Tsi(77), data_channel(), rate());
    let mut engine = Source::new(config, generator(0), Zeros);
    let start = Instant::from_nanos(1_000_000_000);
    for session in [SessionId(0), SessionId(1)] {
        let opened = SourceCommand::SessionOpened { session, rtt: Duration::from_millis(10) };
        engine.handle_command(start, opened).unwrap();
    }
    let senders = [0, 1, 2].map(|session| Address::Session(SessionId(session)));
    drive(&mut engine, start, bytes, &senders, |engine, now, event| {
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
            _ => return,
        };
        let _ = engine.handle_command(now, answer);
    });
}

/// A client that has asked for an item.
pub fn repository_client(bytes: &[u8]) {
    use repository::receiver::Held;
    use repository::{Receiver, ReceiverCommand, ReceiverConfig};
    let mut engine = Receiver::new(ReceiverConfig::default(), generator(0), Nowhere::default());
    let start = Instant::from_nanos(1_000_000_000);
    let commands = [
        ReceiverCommand::Connected { session: SessionId(0) },
        ReceiverCommand::Request { query: 1, patterns: vec!["*".to_owned()], hold: false },
        ReceiverCommand::Accept {
            toi: Toi(2),
            oti: item().oti,
            held: Held::default(),
            requested: true,
        },
    ];
    for command in commands {
        let _ = engine.handle_command(start, command);
    }
    let channel = Address::Channel(data_channel());
    let senders = [Address::Session(SessionId(0)), channel, Address::Session(SessionId(9))];
    drive(&mut engine, start, bytes, &senders, |_, _, _| {});
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

/// Hands the steps of `bytes` to an engine, and does what a machine does around it.
fn drive<E: Engine>(
    engine: &mut E,
    start: Instant,
    bytes: &[u8],
    senders: &[Address],
    mut answer: impl FnMut(&mut E, Instant, E::Event),
) {
    let (mut now, mut rest) = (start, bytes);
    drain(engine, now, &mut answer);
    while let Some((&[kind, low, high], after)) = rest.split_first_chunk::<HEAD>() {
        let pause = PAUSES_MS[usize::from(kind >> 2) % PAUSES_MS.len()];
        now = pass(engine, now, now + Duration::from_millis(pause), &mut answer);
        let len = usize::from(u16::from_le_bytes([low, high])).min(after.len());
        let (payload, next) = after.split_at(len);
        rest = next;
        let by = senders[usize::from(kind & 3) % senders.len()];
        engine.handle_datagram(now, Datagram { by, hop_limit: Some(kind), payload });
        drain(engine, now, &mut answer);
    }
    pass(engine, now, now + Duration::from_mins(1), &mut answer);
}

/// Lets time pass; returns the time after it.
fn pass<E: Engine>(
    engine: &mut E,
    mut now: Instant,
    until: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
) -> Instant {
    let mut at_once = 0;
    while let Some(due) = engine.poll_timeout().filter(|due| *due <= until) {
        at_once = if due > now { 0 } else { at_once + 1 };
        assert!(at_once < MOST, "it asks again and again for a time that has passed");
        now = due.max(now);
        engine.handle_timeout(now);
        drain(engine, now, answer);
    }
    until
}

fn drain<E: Engine>(
    engine: &mut E,
    now: Instant,
    answer: &mut impl FnMut(&mut E, Instant, E::Event),
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
        if engine.poll_transmit(now, &mut buf).is_some() {
            assert!(!buf.is_empty() && buf.bytes() <= 4 << 20);
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
