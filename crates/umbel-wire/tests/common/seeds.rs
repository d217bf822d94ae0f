//! Seeds of the fuzz corpora: a packet or message of each kind.

pub(crate) mod router_seeds;
mod tmtp_seeds;

use std::time::Duration;

use umbel_wire::feed::{Feed, FeedContent, Recovery, Sealed, SealedHead, WrappedKey};
use umbel_wire::reception::{ChannelStamp, ReceptionReport, ReportSchedule};
use umbel_wire::repository::{
    Announcement, ClientMessage, ControlGroup, ControlKey, GroupKey, GroupSecret, ItemInfo,
    ItemKind, LinkText, Nak, Need, NeedRun, ServerMessage, SymbolDigest, SymbolKey, SymbolRun,
    UnicastBlock,
};
use umbel_wire::rlm::SignedHeader;
use umbel_wire::sap::SapPacket;
use umbel_wire::sealed::{MessageHeader, SealedHeader};
use umbel_wire::session::{FindSessions, SessionKind};
use umbel_wire::signed::Signed;
use umbel_wire::srm::{self, Echo, MemberId, SourceState, UnitRun};
use umbel_wire::stream::{LayerFec, LayerInfo, RtpFormat, Stream, StreamContent, StreamMode};
use umbel_wire::tcp::{Flags, Head, Membership, Options, Seq};
use umbel_wire::{Channel, DataHeader, Digest, Oti, Scheme, SmallBlockHeader, Toi, Tsi};

pub(crate) const TARGETS: [&str; 22] = [
    "data_packet",
    "sealed_packet",
    "stream_packet",
    "client_message",
    "server_message",
    "unicast_block",
    "find_sessions",
    "srm_message",
    "lms_message",
    "pgm_message",
    "tmtp_message",
    "sap_packet",
    "sealed_head",
    "igmp_message",
    "mld_message",
    "pim_message",
    "ip_datagram",
    "tcp_segment",
    "basep_message",
    "rlm_message",
    "rtp_packet",
    "control_peek",
];

/// Returns the names and contents of a target's files.
pub(crate) fn of(target: &str) -> Vec<(String, Vec<u8>)> {
    let named = |(name, bytes): (&str, Vec<u8>)| (name.to_owned(), bytes);
    match target {
        "data_packet" => data_packets(),
        "sealed_packet" => sealed_packets().into_iter().map(named).collect(),
        "stream_packet" => stream_packets().into_iter().map(named).collect(),
        "client_message" => client_messages().into_iter().map(named).collect(),
        "server_message" => server_messages().into_iter().map(named).collect(),
        "unicast_block" => unicast_blocks().into_iter().map(named).collect(),
        "find_sessions" => find_sessions().into_iter().map(named).collect(),
        "srm_message" => srm_messages().into_iter().map(named).collect(),
        "lms_message" => lms_messages().into_iter().map(named).collect(),
        "pgm_message" => pgm_messages().into_iter().map(named).collect(),
        "sap_packet" => sap_packets().into_iter().map(named).collect(),
        "igmp_message" => router_seeds::igmp_messages().into_iter().map(named).collect(),
        "mld_message" => router_seeds::mld_messages().into_iter().map(named).collect(),
        "pim_message" => router_seeds::pim_messages().into_iter().map(named).collect(),
        "ip_datagram" => router_seeds::ip_datagrams().into_iter().map(named).collect(),
        "tcp_segment" => tcp_segments().into_iter().map(named).collect(),
        "sealed_head" => sealed_heads().into_iter().map(named).collect(),
        "basep_message" => basep_messages().into_iter().map(named).collect(),
        "rlm_message" => rlm_messages().into_iter().map(named).collect(),
        "rtp_packet" => rtp_packets().into_iter().map(named).collect(),
        "tmtp_message" => tmtp_seeds::messages().into_iter().map(named).collect(),
        "control_peek" => control_peeks().into_iter().map(named).collect(),
        _ => unreachable!("{target}"),
    }
}

fn oti(scheme: Scheme) -> Oti {
    let rs = scheme == Scheme::ReedSolomon;
    Oti {
        scheme,
        object_len: 1_000_000,
        symbol_len: 1376,
        max_block_symbols: if rs { 128 } else { 727 },
        max_encoding_symbols: if rs { 255 } else { 0 },
    }
}

fn unicast_blocks() -> Vec<(&'static str, Vec<u8>)> {
    let head = |len| UnicastBlock { toi: Toi(7), block: 3, len }.emit().to_vec();
    vec![("block", head(176_128)), ("empty", head(0)), ("too_long", head(u32::MAX))]
}

fn find_sessions() -> Vec<(&'static str, Vec<u8>)> {
    let question = |name: Option<&str>| {
        let mut bytes = Vec::new();
        FindSessions { name: name.map(|name| name.parse().unwrap()) }.emit(&mut bytes);
        bytes
    };
    vec![("all", question(None)), ("one", question(Some("nightly")))]
}

/// Returns a report of reception.
fn reception() -> ReceptionReport {
    ReceptionReport {
        newest: STAMP,
        held: Duration::from_micros(120),
        received: 95,
        lost: 5,
        tails: 2,
        gaps: 3,
        overrun: 1,
        marked: 2,
        sent_over: Duration::from_millis(11),
        arrived_over: Duration::from_micros(11_400),
        queue_least: Duration::from_micros(300),
        queue: Duration::from_micros(700),
        jitter: Duration::from_micros(40),
        train_bits_per_s: Some(940_000_000),
    }
}

/// Stamp of the packets that have one.
const STAMP: ChannelStamp = ChannelStamp::new(7, 1_234_567, 1);

fn data_packets() -> Vec<(String, Vec<u8>)> {
    let mut seeds = Vec::new();
    for scheme in [Scheme::NoCode, Scheme::ReedSolomon, Scheme::RaptorQ] {
        let (tsi, toi, transmission, index) = (Tsi(1), Toi(2), 3, 4);
        let header =
            DataHeader { tsi, toi, transmission, index, stamp: STAMP, scheme, sbn: 5, esi: 6 };
        let packet = [&header.emit().unwrap(), &b"symbol"[..]].concat();
        seeds.push((scheme.encoding_id().to_string(), packet));
    }
    // The first has 16-bit identifiers; the second EXT_NOP, a fixed extension, and wide
    // identifiers.
    let half_words = [0x10, 0x10, 3, 5, 9, 8, 7, 6, 0, 1, 0, 2, 0, 0, 3, 4, b'x'];
    seeds.push(("half-words".to_owned(), half_words.to_vec()));
    let mut wide = vec![0x1C, 0xD0, 11, 0];
    wide.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9]);
    wide.extend_from_slice(&[0, 0, 0xAA, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0xBB, 0, 0, 2]);
    wide.extend_from_slice(&[0, 1, 0, 0, 193, 1, 2, 3, 0, 3, 0, 4, b'x']);
    seeds.push(("wide".to_owned(), wide));
    seeds
}

fn needs() -> [Need; 3] {
    let run = |first_block, blocks, symbols| NeedRun { first_block, blocks, symbols };
    let exact = |block, first_esi, count| SymbolRun { block, first_esi, count };
    [
        Need::Whole,
        Need::Symbols(vec![run(0, 1, 3), run(1, 200, 1), run(500, 1, 100)]),
        Need::Exact(vec![exact(0, 3, 1), exact(0, 9, 20), exact(7, 1, 1)]),
    ]
}

fn sealed_packets() -> Vec<(&'static str, Vec<u8>)> {
    let header = DataHeader {
        tsi: Tsi(7),
        toi: Toi(2),
        transmission: 3,
        index: 4,
        stamp: STAMP,
        scheme: Scheme::ReedSolomon,
        sbn: 5,
        esi: 6,
    };
    let packet = SealedHeader { header, key: 8, number: 9 }.emit().unwrap();
    let message = MessageHeader { key: 8, sender: MemberId(10), number: 11 }.emit();
    let sealed = |head: &[u8]| [head, &[12; 40]].concat();
    vec![("packet", sealed(&packet)), ("message", sealed(&message))]
}

fn stream_packets() -> Vec<(&'static str, Vec<u8>)> {
    let header = |toi, sbn, block_symbols, esi| SmallBlockHeader {
        tsi: Tsi(7),
        toi: Toi(toi),
        transmission: 1_000_000,
        index: 4,
        stamp: None,
        sbn,
        block_symbols,
        esi,
    };
    let packet = |header, turn, symbol: &[u8]| {
        let mut head = SignedHeader { header, turn }.emit().unwrap();
        SignedHeader::sign(&mut head, &[0xE7; 64]);
        [&head[..], symbol].concat()
    };
    let mut plain = vec![0; SmallBlockHeader::LEN];
    header(0, 5, 8, 1).emit(&mut plain).unwrap();
    vec![
        ("unit", packet(header(0, 5, 1, 0), 0, b"unit")),
        ("repair", packet(header(0, 5, 8, 9), 65_535, b"\0\x04unit")),
        ("symbol-of-an-object", packet(header(3, 2, 200, 17), 1, b"symbol")),
        ("without-a-signature", [plain, vec![3; 90]].concat()),
    ]
}

fn client_messages() -> Vec<(&'static str, Vec<u8>)> {
    use ClientMessage as M;
    let patterns = vec!["images/**".to_owned(), "notes.txt".to_owned()];
    let [whole, symbols, exact] = needs();
    let toi = Toi(7);
    let tois = vec![Toi(7), Toi(700), Toi(70_000)];
    let messages = [
        ("hello", M::Hello { agent: "umbel 0.1.0".into(), token: Some("secret".into()) }),
        ("has-key", M::HasKey { key: 9 }),
        ("list", M::List { query: 1, patterns: patterns.clone(), cursor: 300, limit: 4096 }),
        ("request", M::Request { query: 2, patterns, hold: false }),
        ("want", M::Want { toi, need: whole }),
        ("nak", M::Nak(Nak { transmission: 9, toi, need: symbols, received: 1000, lost: 10 })),
        ("done", M::Done { tois: tois.clone(), received: 120, lost: 7 }),
        ("cancel", M::Cancel { tois }),
        ("unicast", M::Unicast { toi, need: exact }),
        ("digests", M::Digests { toi }),
        (
            "symbol-digests",
            M::SymbolDigests {
                toi,
                key: SymbolKey([7; 32]),
                symbols: SymbolRun { block: 3, first_esi: 0, count: 168 },
            },
        ),
        ("control", M::Control { hears: true }),
        ("reception", M::Reception(reception())),
        (
            "probe",
            M::Probe {
                probe: 1,
                channel: 0,
                packets: 100,
                packet_len: 1400,
                rate_bits_per_s: 10_000_000,
            },
        ),
    ];
    let bytes = |message: &ClientMessage| {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    };
    messages.iter().map(|(name, message)| (*name, bytes(message))).collect()
}

fn page() -> ServerMessage {
    let item = |toi, name: &str, scheme| ItemInfo {
        toi: Toi(toi),
        name: name.to_owned(),
        digest: Digest([toi as u8; 32]),
        modified_ns: (toi > 0).then_some(1_700_000_000_000_000_000),
        mode: (toi > 0).then_some(if toi == 8 { 0o755 } else { 0o644 }),
        kind: ItemKind::File,
        holes: None,
        media_type: "text/plain".to_owned(),
        oti: oti(scheme),
    };
    let empty = Oti { object_len: 0, ..oti(Scheme::NoCode) };
    let link = ItemKind::Link(LinkText::new("../b/c.txt").expect("it is short and without NUL"));
    let items = vec![
        item(0, "a.txt", Scheme::ReedSolomon),
        item(1, "b/c.txt", Scheme::ReedSolomon),
        item(9, "d", Scheme::RaptorQ),
        item(8, "e", Scheme::NoCode),
        ItemInfo { kind: link, oti: empty, ..item(10, "f", Scheme::NoCode) },
        ItemInfo { kind: ItemKind::HardLink("d".to_owned()), ..item(11, "g", Scheme::NoCode) },
        ItemInfo { kind: ItemKind::Directory, oti: empty, ..item(12, "h", Scheme::NoCode) },
    ];
    ServerMessage::Page { query: 1, items, total: 10, next: Some(4) }
}

fn key(id: u16) -> GroupKey {
    GroupKey { id, secret: GroupSecret([id as u8; 32]) }
}

fn server_messages() -> Vec<(&'static str, Vec<u8>)> {
    use ServerMessage as M;
    let channel = |source: Option<&str>, group: &str| Channel {
        source: source.map(|source| source.parse().unwrap()),
        group: group.parse().unwrap(),
        port: 7702,
    };
    let channels = vec![
        channel(Some("192.0.2.2"), "232.1.2.3"),
        channel(None, "239.255.1.2"),
        channel(Some("2001:db8::2"), "ff3e::8000:1"),
    ];
    let announcement = |transmission, toi| Announcement {
        transmission,
        toi: Toi(toi),
        channel: 1,
        first_block: 0,
        blocks: 6,
        packets: 800,
    };
    let reason = || "no such item".to_owned();
    let welcome = |key, keys| M::Welcome {
        agent: "umbel 0.1.0".into(),
        tsi: Tsi(77),
        channels: channels[1..2].to_vec(),
        rate_bits_per_s: 100_000_000,
        control: Some(ControlGroup {
            channel: channels[1],
            server: MemberId(0),
            client: MemberId(300),
            key,
        }),
        keys,
    };
    let messages = [
        (
            "welcome",
            M::Welcome {
                agent: "umbel 0.1.0".into(),
                tsi: Tsi(77),
                channels: channels.clone(),
                rate_bits_per_s: 100_000_000,
                control: None,
                keys: vec![],
            },
        ),
        ("welcome-control", welcome(Some(ControlKey([7; 32])), vec![])),
        ("refused", M::Refused { reason: reason() }),
        ("page", page()),
        ("failed", M::Failed { query: 3, reason: reason() }),
        (
            "announce",
            M::Announce {
                rate_bits_per_s: 100_000_000,
                starts_in: Duration::from_millis(20),
                nak_spread: Duration::from_millis(100),
                announcements: vec![announcement(9, 70), announcement(10, 7)],
            },
        ),
        ("end", M::End { transmission: 9 }),
        ("gone", M::Gone { toi: Toi(7), reason: reason() }),
        (
            "digests",
            M::Digests {
                toi: Toi(7),
                first_block: 3,
                digests: vec![Digest([1; 32]), Digest([2; 32])],
                more: true,
            },
        ),
        (
            "symbol-digests",
            M::SymbolDigests {
                toi: Toi(7),
                block: 3,
                first_esi: 128,
                digests: vec![SymbolDigest([1; 8]), SymbolDigest([2; 8])],
            },
        ),
        ("welcome-sealed", welcome(None, vec![key(9), key(10)])),
        ("key", M::Key(key(10))),
        ("reports", M::Reports(ReportSchedule::START)),
        ("aside", M::Aside { carries_bits_per_s: 10_000_000, rate_bits_per_s: 100_000_000 }),
        ("probed", M::Probed { probe: 1, packets: 100 }),
    ];
    let bytes = |message: &ServerMessage| {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    };
    messages.iter().map(|(name, message)| (*name, bytes(message))).collect()
}

fn rlm_messages() -> Vec<(&'static str, Vec<u8>)> {
    use umbel_wire::rlm::{Loss, Message as M, ObjectHead};
    let (tsi, receiver) = (Tsi(7), 0x0123_4567_89AB_CDEF);
    let message = |message: M| {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    };
    let mut head = Vec::new();
    ObjectHead {
        name: "v0/seg_00001.m4s".to_owned(),
        len: 405_000,
        digest: Digest([7; 32]),
        symbol_len: 1280,
        block_symbols: 200,
    }
    .emit(&mut head);
    let packet = |toi, index, (sbn, block_symbols, esi), symbol: &[u8]| {
        let header = SmallBlockHeader {
            tsi,
            toi: Toi(toi),
            transmission: 1_000_000,
            index,
            stamp: None,
            sbn,
            block_symbols,
            esi,
        };
        let mut packet = vec![0; SmallBlockHeader::LEN];
        header.emit(&mut packet).unwrap();
        packet.extend_from_slice(symbol);
        packet
    };
    vec![
        ("unit", packet(0, 0, (0, 4, 1), b"unit")),
        ("repair", packet(0, 1, (0, 1, 1), b"\0\x04unit")),
        ("head_of_object", packet(1, 3, (0, 1, 0), &head)),
        ("symbol_of_object", packet(1, 9, (1, 100, 3), b"symbol")),
        ("experiment", message(M::JoinExperiment { tsi, receiver, level: 3 })),
        ("session", message(M::Session { tsi, receiver, level: 2, loss: Loss::of(1, 70) })),
        ("leaves", message(M::Session { tsi, receiver: 5, level: 0, loss: Loss::default() })),
        ("object_head", head),
    ]
}

fn basep_messages() -> Vec<(&'static str, Vec<u8>)> {
    use umbel_wire::basep::Message as M;
    let source = "10.0.0.1".parse().ok();
    let channel = Channel { source, group: "232.0.0.7".parse().unwrap(), port: 7702 };
    [
        ("data", M::Data { sequence: 300, last: false, again: false, payload: b"packet" }),
        ("last_again", M::Data { sequence: 301, last: true, again: true, payload: b"" }),
        ("ack", M::Ack { channel, sequence: u64::MAX }),
        ("got_it", M::GotIt { channel, sequence: 7 }),
    ]
    .map(|(name, message)| {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        (name, bytes)
    })
    .into()
}

fn pgm_messages() -> Vec<(&'static str, Vec<u8>)> {
    use umbel_wire::pgm::Message as M;
    let source = "10.0.0.1".parse().ok();
    let channel = Channel { source, group: "232.0.0.7".parse().unwrap(), port: 7702 };
    let path = "[2001:db8::1]:7702".parse().unwrap();
    [
        ("spm", M::Spm { number: 3, trail: 1, next: 300, path }),
        ("odata", M::Odata { sequence: 300, trail: 4, payload: b"unit" }),
        ("rdata", M::Rdata { channel: None, sequence: 4, trail: 4, payload: b"" }),
        (
            "rdata_of_a_repairer",
            M::Rdata { channel: Some(channel), sequence: 4, trail: 0, payload: b"again" },
        ),
        ("nak", M::Nak { channel, sequence: u64::MAX }),
        ("ncf", M::Ncf { channel: None, sequence: 7 }),
    ]
    .map(|(name, message)| {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        (name, bytes)
    })
    .into()
}

fn srm_messages() -> Vec<(&'static str, Vec<u8>)> {
    use srm::Message as M;
    let (source, sender, requester) = (MemberId(1), MemberId(300), MemberId(u64::MAX));
    let (distance, payload) = (Duration::from_millis(20), &b"payload"[..]);
    let run = |first, count| UnitRun { first, count };
    let messages = [
        ("data", M::Data { source, sequence: 9, horizon: 4, payload }),
        (
            "repair",
            M::Repair { sender, source, sequence: 9, requester, distance, scope: Some(3), payload },
        ),
        (
            "request",
            M::Request {
                sender,
                source,
                runs: vec![run(4, 1), run(7, 100)],
                distance,
                scope: None,
            },
        ),
        (
            "session",
            M::Session {
                sender,
                timestamp_ns: 1_000_000_007,
                sources: vec![SourceState { source, horizon: 4, next: 10 }],
                echoes: vec![Echo { member: requester, timestamp_ns: u64::MAX, held: distance }],
                leaving: false,
            },
        ),
        (
            "leaving",
            M::Session { sender, timestamp_ns: 0, sources: vec![], echoes: vec![], leaving: true },
        ),
    ];
    let bytes = |message: &M<'_>| {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    };
    messages.iter().map(|(name, message)| (*name, bytes(message))).collect()
}

fn lms_messages() -> Vec<(&'static str, Vec<u8>)> {
    use umbel_wire::lms::{Message as M, Request, Summary, TurningPoint, UnitSet};
    let host = |address: &str| address.parse().unwrap();
    let channel = Channel { source: Some(host("192.0.2.2")), group: host("232.1.2.3"), port: 7702 };
    let service = Channel { source: None, group: host("239.255.1.2"), port: 7703 };
    let tsi = Tsi(77);
    let requestor = Some((host("192.0.2.9"), 7702).into());
    let router = (host("2001:db8::1"), 7702).into();
    let turning_point = TurningPoint { router, interface: 3, tag: 0x1234_5678_9ABC_DEF0 };
    let request = Request {
        channel,
        tsi,
        units: UnitSet { first: 1000, following: 5 },
        number: 1,
        requestor: None,
        turning_point: None,
        replier_failed: false,
        unicast_reply: false,
        hops: 0,
    };
    let stamped = Request {
        number: 4,
        requestor,
        turning_point: Some(turning_point),
        replier_failed: true,
        unicast_reply: true,
        hops: 3,
        ..request
    };
    let repair = M::Repair { tsi, sequence: 1000, number: 1, unicast: false, payload: b"unit" };
    let bytes = |message: &M<'_>| {
        let mut out = Vec::new();
        message.emit(&mut out);
        out
    };
    let inner = bytes(&repair);
    let summary = Summary::of(3).and(Summary::of(9));
    let spread = Duration::from_millis(50);
    let messages = [
        ("data", M::Data { tsi, sequence: 1000, payload: b"unit" }),
        ("heartbeat", M::Heartbeat { tsi, lead: 1001, trail: 900 }),
        ("repair", repair),
        ("request", M::Request(request)),
        ("request-stamped", M::Request(stamped)),
        ("dmcast", M::Dmcast { channel, turning_point, repair: &inner }),
        ("advertisement", M::Advertisement { channel, cost: Some(1500) }),
        ("withdrawal", M::Advertisement { channel, cost: None }),
        ("solicit", M::Solicit { channel }),
        ("ping", M::Ping { tsi, nonce: 9 }),
        ("pong", M::Pong { tsi, nonce: 9 }),
        ("election", M::Election { channel, cost: Some(1500) }),
        ("collect", M::Collect { tsi, round: 2, question: 1, spread }),
        ("report", M::Report { channel, tsi, round: 2, summary, hops: 1 }),
        ("anycast-advertisement", M::AnycastAdvertisement { service, cost: Some(10), hops: 2 }),
        (
            "anycast-request",
            M::AnycastRequest { service, requestor, nonce: 5, hops: 1, payload: b"who?" },
        ),
        ("anycast-reply", M::AnycastReply { service, nonce: 5, payload: b"me" }),
    ];
    messages.iter().map(|(name, message)| (*name, bytes(message))).collect()
}

fn sap_packets() -> Vec<(&'static str, Vec<u8>)> {
    let feed = Feed {
        name: "nightly".parse().unwrap(),
        tsi: Tsi(3417),
        source: "192.0.2.2:40123".parse().unwrap(),
        node: umbel_wire::tmtp::NodeId(0x83D1),
        data: Channel {
            source: Some([192, 0, 2, 2].into()),
            group: [232, 7, 7, 7].into(),
            port: 7702,
        },
        domain: Channel { source: None, group: [239, 255, 7, 7].into(), port: 7703 },
        scope: 32,
        symbol_len: 1376,
        block_symbols: 16,
        fec: true,
        recovery: Recovery::Tree,
        kbit_per_s: 50_000,
        content: FeedContent::Files {
            items: 3,
            bytes: 1 << 20,
            manifest_len: 212,
            digest: Digest([0x9F; 32]),
        },
        token: true,
        sealed: None,
        last_word: Some(Digest([0x5D; 32])),
        version: 1,
    };
    let pipe = Feed {
        name: "live".parse().unwrap(),
        source: "[2001:db8::2]:40123".parse().unwrap(),
        data: Channel { source: None, group: "ff15::7".parse().unwrap(), port: 7702 },
        domain: Channel { source: None, group: "ff15::8".parse().unwrap(), port: 7703 },
        content: FeedContent::Pipe,
        fec: false,
        token: false,
        ..feed.clone()
    };
    let (head_len, head_digest) = (1124, Digest([0x3C; 32]));
    let sealed = Sealed { key: [0xA5; 32], head_len, head_digest };
    let sealed = Feed { sealed: Some(sealed), last_word: None, ..pipe.clone() };
    let (files, pipe, sealed) = [feed, pipe, sealed].map(SessionKind::from).into();
    let cumulative = stream();
    let independent = Stream {
        mode: StreamMode::Independent,
        source: "[2001:db8::2]:40123".parse().unwrap(),
        base: Channel {
            source: Some("2001:db8::2".parse().unwrap()),
            group: "ff35::8000:7".parse().unwrap(),
            port: 7704,
        },
        control: None,
        ..stream()
    };
    let format = |parameters: Option<&str>| RtpFormat {
        kind: "video".to_owned(),
        payload_type: 96,
        map: Some("H264/90000".to_owned()),
        parameters: parameters.map(str::to_owned),
    };
    let formats = vec![format(Some("packetization-mode=1")), format(None)];
    let rtp = Stream { content: StreamContent::Rtp(formats), ..stream() };
    let packet = |session: &SessionKind, deletion: bool| {
        let description = session.describe("umbel 0.1.0");
        let text = if deletion { description.origin.emit() } else { description.emit() };
        let mut payload = text.clone().into_bytes();
        if let SessionKind::Feed(_) = session {
            payload.clear();
            let text = text.as_bytes();
            Signed { text, key: [7; 32], signature: [0xF5; 64] }.emit(&mut payload);
        }
        let mut out = Vec::new();
        SapPacket::new(deletion, session.source().ip(), &payload).emit(&mut out);
        out
    };
    vec![
        ("files", packet(&files, false)),
        ("files-deletion", packet(&files, true)),
        ("pipe", packet(&pipe, false)),
        ("pipe-deletion", packet(&pipe, true)),
        ("sealed-pipe", packet(&sealed, false)),
        ("stream", packet(&cumulative.into(), false)),
        ("stream-independent", packet(&independent.into(), false)),
        ("stream-rtp", packet(&rtp.into(), false)),
    ]
}

fn stream() -> Stream {
    let fec = Some(LayerFec { source_symbols: 8, repair_symbols: 4 });
    Stream {
        name: "lecture".parse().unwrap(),
        tsi: Tsi(3417),
        source: "192.0.2.2:40123".parse().unwrap(),
        base: Channel {
            source: Some([192, 0, 2, 2].into()),
            group: [232, 7, 7, 7].into(),
            port: 7704,
        },
        control: Some(Channel { source: None, group: [239, 255, 7, 7].into(), port: 7705 }),
        scope: 32,
        mode: StreamMode::Cumulative,
        symbol_len: 1372,
        layers: vec![LayerInfo { kbit_per_s: 128, fec }, LayerInfo { kbit_per_s: 320, fec: None }],
        content: "video 1 640x360 30000/1001".parse().unwrap(),
        repair: None,
        version: 1,
    }
}

fn tcp_segments() -> Vec<(&'static str, Vec<u8>)> {
    let segment = |flags: Flags, options: Options, payload: &[u8]| {
        let (seq, ack, window) = (Seq(u32::MAX - 2), Seq(7), 0xFFFF);
        let (source_port, destination_port) = (8080, 50_000);
        let mut bytes = Vec::new();
        Head { source_port, destination_port, seq, ack, flags, window, options }.emit(&mut bytes);
        bytes.extend_from_slice(payload);
        bytes
    };
    let offer = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        membership: Some(Membership::Port(8080)),
        ..Options::default()
    };
    let mut sack = Options::default();
    (1..=4).for_each(|n| sack.sack.push(Seq(n * 100), Seq(n * 100 + 50)));
    let bad_option =
        [&segment(Flags::ACK, Options::default(), &[])[..12], &[0x60; 8], &[2, 9, 1, 1]];
    vec![
        ("syn", segment(Flags::SYN, Options { membership: None, ..offer }, &[])),
        ("syn_ack", segment(Flags::SYN | Flags::ACK, offer, &[])),
        ("ack_sack", segment(Flags::ACK, sack, &[])),
        ("data", segment(Flags::ACK | Flags::PSH, Options::default(), b"GET / HTTP/1.1")),
        ("fin", segment(Flags::ACK | Flags::FIN, Options::default(), b"")),
        ("rst", segment(Flags::RST, Options::default(), b"")),
        ("bad_option", bad_option.concat()),
        ("cut", segment(Flags::SYN, offer, &[])[..30].to_vec()),
    ]
}

fn rtp_packets() -> Vec<(&'static str, Vec<u8>)> {
    let packet = |first: u8, payload: &[u8]| {
        [&[first, 0xE0, 0x12, 0x34, 0, 1, 0x5F, 0x90, 0xDE, 0xAD, 0xBE, 0xEF], payload].concat()
    };
    vec![
        ("h264-idr", packet(0x80, &[0x65, 0x88, 0x84])),
        ("h264-stap", packet(0x80, &[0x78, 0, 2, 0x67, 0x42, 0, 1, 0x68])),
        ("h264-fu", packet(0x80, &[0x7C, 0x85, 1])),
        ("vp8", packet(0x80, &[0x90, 0xF0, 0x81, 2, 3, 4, 0x10])),
        ("extension", packet(0x91, &[0, 0, 0, 1, 0xBE, 0xDE, 0, 1, 0, 0, 0, 0, 0x41])),
        ("padding", packet(0xA0, &[0x41, 0, 2])),
        ("sender-report", vec![0x80, 200, 0, 6, 0, 0, 0, 1]),
    ]
}

fn sealed_heads() -> Vec<(&'static str, Vec<u8>)> {
    let head = |count: u8, manifest: &[u8]| {
        let key = |n| WrappedKey { hint: [n; 8], key: [0xF0 | n; 48] };
        let keys: Vec<_> = (0..count).map(key).collect();
        let mut out = Vec::new();
        SealedHead::emit(&keys, manifest, &mut out).unwrap();
        out
    };
    vec![("nobody", head(0, b"")), ("pipe", head(3, b"")), ("files", head(2, &[0x55; 100]))]
}

fn control_peeks() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("empty", Vec::new()),
        ("half", b"Um\x01\x05\0\0".to_vec()),
        ("header", b"Um\x01\x05\0\0\x01\0".to_vec()),
        ("longest", b"Um\x01\x05\0\x40\0\0".to_vec()),
        ("too-long", b"Um\x01\x05\0\x40\0\x01".to_vec()),
        ("version-2", b"Um\x02\x05\0\0\0\0".to_vec()),
        ("http", b"GET / HTTP/1.1\r\n".to_vec()),
    ]
}
