//! Messages beyond their limits are refused, and messages at the limits are not. Emitting does not
//! check, so each invalid message is built like a valid one.

#![expect(clippy::single_range_in_vec_init, reason = "a list of holes with one hole")]

use std::ops::Range;
use std::time::Duration;

use umbel_wire::lms::{self, Message as Lms, Request, Summary, TurningPoint, UnitSet};
use umbel_wire::repository::{
    Announcement, ClientMessage, ItemInfo, ItemKind, LinkText, Need, ServerMessage, SymbolDigest,
    SymbolKey, SymbolRun, limits,
};
use umbel_wire::{Channel, Digest, Oti, ParseError, Scheme, Toi, Tsi};

#[track_caller]
fn refused_from_client(message: &ClientMessage, problem: &str) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    says(&ClientMessage::parse(&bytes).unwrap_err(), problem);
}

#[track_caller]
fn refused_from_server(message: &ServerMessage, problem: &str) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    says(&ServerMessage::parse(&bytes).unwrap_err(), problem);
}

#[track_caller]
fn says(error: &ParseError, problem: &str) {
    let error = error.to_string();
    assert!(error.contains(problem), "{error} instead of {problem}");
}

#[track_caller]
fn accepted_from_client(message: &ClientMessage) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    assert_eq!(ClientMessage::parse(&bytes).unwrap().message().as_ref(), Some(message));
}

#[track_caller]
fn accepted_from_server(message: &ServerMessage) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    assert_eq!(ServerMessage::parse(&bytes).unwrap().message().as_ref(), Some(message));
}

fn welcome(channels: Vec<Channel>) -> ServerMessage {
    ServerMessage::Welcome {
        agent: "umbel".into(),
        tsi: Tsi(1),
        channels,
        rate_bits_per_s: 1,
        control: None,
        keys: vec![],
    }
}

fn channel(source: Option<&str>, group: &str, port: u16) -> Channel {
    let source = source.map(|source| source.parse().unwrap());
    Channel { source, group: group.parse().unwrap(), port }
}

const OTI: Oti = Oti {
    scheme: Scheme::ReedSolomon,
    object_len: 1,
    symbol_len: 1376,
    max_block_symbols: 128,
    max_encoding_symbols: 255,
};

fn item() -> ItemInfo {
    ItemInfo {
        toi: Toi(1),
        name: "a".into(),
        digest: Digest([0; 32]),
        modified_ns: None,
        mode: None,
        kind: ItemKind::File,
        holes: None,
        media_type: String::new(),
        oti: OTI,
    }
}

fn page(items: Vec<ItemInfo>) -> ServerMessage {
    ServerMessage::Page { query: 1, items, total: 1, next: None }
}

fn announce(starts_in: Duration, announcement: Announcement, count: usize) -> ServerMessage {
    let announcements = vec![announcement; count];
    let nak_spread = Duration::ZERO;
    ServerMessage::Announce { rate_bits_per_s: 1, starts_in, nak_spread, announcements }
}

const ANNOUNCEMENT: Announcement = Announcement {
    transmission: 1,
    toi: Toi(1),
    channel: 0,
    first_block: 0,
    blocks: 1,
    packets: 1,
};

#[test]
fn strings_end_at_their_limit() {
    let hello = |agent, token| ClientMessage::Hello {
        agent: "a".repeat(agent),
        token: Some("t".repeat(token)),
    };
    accepted_from_client(&hello(limits::AGENT_LEN, limits::TOKEN_LEN));
    refused_from_client(&hello(limits::AGENT_LEN + 1, 0), "agent: a string that is too long");
    refused_from_client(&hello(0, limits::TOKEN_LEN + 1), "token: a string that is too long");
    let gone = |len| ServerMessage::Gone { toi: Toi(1), reason: "r".repeat(len) };
    accepted_from_server(&gone(limits::REASON_LEN));
    refused_from_server(&gone(limits::REASON_LEN + 1), "reason: a string that is too long");
}

#[test]
fn patterns_are_limited_in_length_and_number() {
    let request = |len: usize, count| ClientMessage::Request {
        query: 1,
        patterns: vec!["*".repeat(len); count],
        hold: false,
    };
    accepted_from_client(&request(limits::PATTERN_LEN, 1));
    accepted_from_client(&request(1, limits::PATTERNS));
    refused_from_client(&request(limits::PATTERN_LEN + 1, 1), "too long");
    refused_from_client(&request(1, limits::PATTERNS + 1), "too many patterns");
}

#[test]
fn lists_of_items_are_limited() {
    let done = |count| ClientMessage::Done { tois: vec![Toi(1); count], received: 0, lost: 0 };
    accepted_from_client(&done(limits::TOIS));
    refused_from_client(&done(limits::TOIS + 1), "too many items");
}

#[test]
fn a_need_that_is_out_of_order_is_refused_inside_a_message() {
    let run = |block| SymbolRun { block, first_esi: 0, count: 1 };
    let need = Need::Exact(vec![run(2), run(1)]);
    refused_from_client(&ClientMessage::Want { toi: Toi(1), need }, "above 32 bits");
}

#[test]
fn probes_have_a_rate_and_packets_that_exist() {
    let probe = |packet_len, rate_bits_per_s| ClientMessage::Probe {
        probe: 1,
        channel: 0,
        packets: 1,
        packet_len,
        rate_bits_per_s,
    };
    accepted_from_client(&probe(32, 1));
    accepted_from_client(&probe(65_507, u64::MAX));
    refused_from_client(&probe(31, 1), "packet length");
    refused_from_client(&probe(65_508, 1), "packet length");
    refused_from_client(&probe(1400, 0), "rate: 0 bit/s");
}

#[test]
fn channels_have_a_multicast_group_a_hosts_source_and_a_port() {
    let good = channel(Some("192.0.2.2"), "232.1.2.3", 1);
    accepted_from_server(&welcome(vec![good; limits::CHANNELS]));
    refused_from_server(&welcome(vec![good; limits::CHANNELS + 1]), "too many channels");
    for (source, group, port, problem) in [
        (None, "192.0.2.2", 1, "not multicast"),
        (None, "fe80::1", 1, "not multicast"),
        (Some("232.1.2.3"), "232.1.2.3", 1, "no host's"),
        (Some("::"), "ff3e::1", 1, "no host's"),
        (None, "232.1.2.3", 0, "port 0"),
        (Some("2001:db8::1"), "232.1.2.3", 1, "bad channel"),
    ] {
        refused_from_server(&welcome(vec![channel(source, group, port)]), problem);
    }
    refused_from_server(&welcome(vec![channel(Some("192.0.2.2"), "ff3e::1", 1)]), "channel needs");
}

#[test]
fn a_welcome_has_a_rate() {
    let message = ServerMessage::Welcome {
        agent: String::new(),
        tsi: Tsi(1),
        channels: vec![],
        rate_bits_per_s: 0,
        control: None,
        keys: vec![],
    };
    refused_from_server(&message, "rate: 0 bit/s");
}

#[test]
fn pages_are_limited() {
    accepted_from_server(&page(vec![item(); limits::PAGE_ITEMS]));
    refused_from_server(&page(vec![item(); limits::PAGE_ITEMS + 1]), "too many items");
}

#[test]
fn items_have_a_name_and_an_oti_within_limits() {
    let named = |len| page(vec![ItemInfo { name: "n".repeat(len), ..item() }]);
    accepted_from_server(&named(limits::NAME_LEN));
    refused_from_server(&named(limits::NAME_LEN + 1), "too long");
    refused_from_server(&named(0), "without a name");
    let media = |len| page(vec![ItemInfo { media_type: "m".repeat(len), ..item() }]);
    accepted_from_server(&media(limits::MEDIA_TYPE_LEN));
    refused_from_server(&media(limits::MEDIA_TYPE_LEN + 1), "too long");
    let mode = |mode| page(vec![ItemInfo { mode: Some(mode), ..item() }]);
    accepted_from_server(&mode(ItemInfo::MODE_MAX));
    refused_from_server(&mode(ItemInfo::MODE_MAX + 1), "permissions");
    let directory = |oti| page(vec![ItemInfo { kind: ItemKind::Directory, oti, ..item() }]);
    accepted_from_server(&directory(Oti { object_len: 0, ..OTI }));
    refused_from_server(&directory(OTI), "a directory or symbolic link with content");
    // Ten blocks, the last of which is not full.
    let oti = Oti { object_len: 9 * 128 * 1376 + 1, ..OTI };
    let holes =
        |holes: &[Range<u32>]| page(vec![ItemInfo { holes: Some(holes.to_vec()), oti, ..item() }]);
    accepted_from_server(&holes(&[]));
    accepted_from_server(&holes(&[0..1, 2..5, 9..10]));
    accepted_from_server(&holes(&[0..10]));
    for bad in [&[3..3][..], &[0..11], &[10..11], &[2..3, 3..4]] {
        refused_from_server(&holes(bad), "holes");
    }
    let many = |count: u32| ItemInfo {
        oti: Oti { object_len: 1 << 40, ..OTI },
        holes: Some((0..count).map(|n| 2 * n..2 * n + 1).collect()),
        ..item()
    };
    accepted_from_server(&page(vec![many(limits::HOLES as u32)]));
    refused_from_server(&page(vec![many(limits::HOLES as u32 + 1)]), "too many holes");
    let oti = Oti { max_encoding_symbols: 256, ..OTI };
    refused_from_server(&page(vec![ItemInfo { oti, ..item() }]), "encoding symbols");
    // The OTI equals the previous one but for its length, which is checked nevertheless.
    let oti = Oti { object_len: 1 << 48, ..OTI };
    refused_from_server(&page(vec![item(), ItemInfo { oti, ..item() }]), "bytes");
}

#[test]
fn links_have_a_text_that_a_file_system_takes_and_no_content() {
    let link = |len| {
        let kind = ItemKind::Link(LinkText::new("t".repeat(len)).unwrap());
        page(vec![ItemInfo { kind, oti: Oti { object_len: 0, ..OTI }, ..item() }])
    };
    accepted_from_server(&link(1));
    accepted_from_server(&link(limits::LINK_LEN));
    let ServerMessage::Page { items, .. } = link(1) else { unreachable!() };
    let content = ItemInfo { oti: OTI, ..items[0].clone() };
    refused_from_server(&page(vec![content]), "a directory or symbolic link with content");
    let other = |len| page(vec![ItemInfo { kind: ItemKind::HardLink("n".repeat(len)), ..item() }]);
    accepted_from_server(&other(1));
    accepted_from_server(&other(limits::NAME_LEN));
    refused_from_server(&other(0), "without a name");
    refused_from_server(&other(limits::NAME_LEN + 1), "too long");

    // Texts that cannot be built are written over those that can. The text comes last in the page.
    let message = |len: usize| {
        let mut bytes = Vec::new();
        link(len).emit(&mut bytes);
        bytes
    };
    let mut with_nul = message(3);
    let at = with_nul.windows(4).position(|text| text == b"\x03ttt").unwrap();
    with_nul[at + 2] = 0;
    let error = ServerMessage::parse(&with_nul).unwrap_err();
    assert!(error.to_string().contains("no such text"), "{error}");
    let mut empty = message(1);
    let at = empty.windows(2).rposition(|text| text == b"\x01t").unwrap();
    empty[at] = 0;
    let error = ServerMessage::parse(&empty).unwrap_err();
    assert!(error.to_string().contains("no such text"), "{error}");
    let mut long = message(limits::LINK_LEN);
    // Seven bits a byte, so that this is one of 4,223 bytes.
    let at = long.windows(3).position(|text| text == [0xff, 0x1f, b't']).unwrap();
    long[at + 1] = 0x20;
    assert!(ServerMessage::parse(&long).unwrap_err().to_string().contains("too long"));
}

#[test]
fn announcements_are_limited_and_speak_of_at_most_a_day() {
    let zero = Duration::ZERO;
    accepted_from_server(&announce(limits::DURATION, ANNOUNCEMENT, limits::ANNOUNCEMENTS));
    let too_many = announce(zero, ANNOUNCEMENT, limits::ANNOUNCEMENTS + 1);
    refused_from_server(&too_many, "too many announcements");
    let late = limits::DURATION + Duration::from_micros(1);
    refused_from_server(&announce(late, ANNOUNCEMENT, 1), "more than a day");
    refused_from_server(&announce(Duration::MAX, ANNOUNCEMENT, 1), "more than a day");
    let last = Announcement { first_block: u32::MAX, blocks: 0, ..ANNOUNCEMENT };
    accepted_from_server(&announce(zero, last, 1));
    let beyond = Announcement { blocks: 1, ..last };
    refused_from_server(&announce(zero, beyond, 1), "above 32 bits");
}

#[test]
fn block_digests_are_limited_and_number_blocks_below_two_to_the_32() {
    let digests = |first_block, count| ServerMessage::Digests {
        toi: Toi(1),
        first_block,
        digests: vec![Digest([1; 32]); count],
        more: false,
    };
    accepted_from_server(&digests(0, limits::DIGESTS));
    refused_from_server(&digests(0, limits::DIGESTS + 1), "too many digests");
    accepted_from_server(&digests(u32::MAX - 1, 1));
    refused_from_server(&digests(u32::MAX, 1), "above 32 bits");
}

#[test]
fn symbol_digests_are_limited_when_they_are_asked_for_and_when_they_come() {
    let most = limits::SYMBOL_DIGESTS;
    let ask = |first_esi, count| ClientMessage::SymbolDigests {
        toi: Toi(1),
        key: SymbolKey([1; 32]),
        symbols: SymbolRun { block: 1, first_esi, count },
    };
    accepted_from_client(&ask(0, most as u32));
    accepted_from_client(&ask(u32::MAX - 1, 1));
    for count in [0, most as u32 + 1, 10 * most as u32] {
        refused_from_client(&ask(0, count), "none, or too many");
    }
    refused_from_client(&ask(u32::MAX, 1), "above 32 bits");
    let digests = |first_esi, count| ServerMessage::SymbolDigests {
        toi: Toi(1),
        block: 1,
        first_esi,
        digests: vec![SymbolDigest([1; 8]); count],
    };
    accepted_from_server(&digests(0, most));
    refused_from_server(&digests(0, 10 * most), "too many digests");
    refused_from_server(&digests(u32::MAX, 1), "above 32 bits");
}

#[test]
fn a_message_without_a_field_says_which() {
    let mut bytes = Vec::new();
    ServerMessage::End { transmission: 1 }.emit(&mut bytes);
    bytes.truncate(8);
    bytes[7] = 0;
    let error = ServerMessage::parse(&bytes).unwrap_err();
    says(&error, "without the field `transmission`");
}

#[test]
fn a_body_above_the_limit_is_refused_before_it_is_read() {
    let mut bytes = Vec::new();
    // 4,096 items with names of 4,096 bytes are within every other limit.
    let items = vec![ItemInfo { name: "n".repeat(limits::NAME_LEN), ..item() }; limits::PAGE_ITEMS];
    page(items).emit(&mut bytes);
    assert!(matches!(ServerMessage::parse(&bytes), Err(ParseError::BodyLen { .. })));
}

#[track_caller]
fn refused_by_lms(message: &Lms<'_>, problem: &str) {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    says(&Lms::parse(&bytes).unwrap_err(), problem);
}

#[test]
fn messages_of_lms_keep_to_their_ranges() {
    let channel_of = |source| channel(source, "232.1.2.3", 7702);
    let with_source = channel_of(Some("192.0.2.2"));
    let tsi = Tsi(1);
    let good = Request {
        channel: with_source,
        tsi,
        units: UnitSet { first: u64::MAX - 33, following: u32::MAX },
        number: 1,
        requestor: None,
        turning_point: None,
        replier_failed: false,
        unicast_reply: false,
        hops: lms::limits::HOPS,
    };
    let mut bytes = Vec::new();
    Lms::Request(good).emit(&mut bytes);
    assert_eq!(Lms::parse(&bytes).unwrap().message(), Some(Lms::Request(good)));
    let bad = |request| Lms::Request(request);
    refused_by_lms(&bad(Request { number: 0, ..good }), "count from 1");
    refused_by_lms(&bad(Request { hops: 65, ..good }), "too many");
    refused_by_lms(&bad(Request { channel: channel_of(None), ..good }), "without a source");
    let units = UnitSet { first: u64::MAX - 32, following: u32::MAX };
    refused_by_lms(&bad(Request { units, ..good }), "beyond 64 bits");
    refused_by_lms(&bad(Request { units: UnitSet::one(u64::MAX), ..good }), "beyond every stream");
    let host = |text: &str| text.parse().unwrap();
    for (router, problem) in
        [("224.0.0.1:7702", "no host's"), ("0.0.0.0:7702", "no host's"), ("10.0.0.1:0", "port 0")]
    {
        let turning_point = TurningPoint { router: host(router), interface: 1, tag: 2 };
        refused_by_lms(&bad(Request { turning_point: Some(turning_point), ..good }), problem);
    }
    refused_by_lms(&bad(Request { requestor: Some(host("[ff02::1]:9")), ..good }), "no host's");
    refused_by_lms(&Lms::Heartbeat { tsi, lead: 3, trail: 4 }, "beyond the lead");
    let long = vec![0; lms::limits::PAYLOAD_LEN + 1];
    refused_by_lms(&Lms::Data { tsi, sequence: 0, payload: &long }, "too long");
    let spread = lms::limits::DURATION + Duration::from_micros(1);
    refused_by_lms(&Lms::Collect { tsi, round: 1, question: 1, spread }, "too long");
    let report = |summary| Lms::Report { channel: with_source, tsi, round: 1, summary, hops: 0 };
    refused_by_lms(&report(Summary { count: 0, ..Summary::of(1) }), "nobody");
    refused_by_lms(&report(Summary { min: 2, ..Summary::of(1) }), "above its greatest");
    let hops = lms::limits::HOPS + 1;
    let service = channel_of(None);
    refused_by_lms(&Lms::AnycastAdvertisement { service, cost: None, hops }, "too many");
    let service = with_source;
    refused_by_lms(&Lms::AnycastAdvertisement { service, cost: None, hops: 0 }, "names a service");
}

#[test]
fn a_set_of_units_reaches_32_beyond_its_first() {
    let set = UnitSet::one(10).with(11).unwrap().with(42).unwrap().with(10).unwrap();
    assert_eq!(set.iter().collect::<Vec<_>>(), [10, 11, 42]);
    assert_eq!(set.with(43), None);
    assert_eq!(set.with(9), None);
}

#[test]
fn a_client_that_has_nothing_needs_all_but_the_holes() {
    let oti = Oti { object_len: 9 * 128 * 1376 + 1, ..OTI };
    let sparse = |holes| ItemInfo { holes, oti, ..item() };
    assert_eq!(sparse(None).need(), Need::Whole);
    assert_eq!(sparse(Some(vec![])).need(), Need::Whole);
    assert_eq!(sparse(Some(vec![0..1, 4..6])).data_blocks(), [1..4, 6..10]);
    let run = |first_block, blocks| umbel_wire::repository::NeedRun {
        first_block,
        blocks,
        symbols: u16::MAX,
    };
    let need = sparse(Some(vec![0..1, 4..6])).need();
    assert_eq!(need, Need::Symbols(vec![run(1, 3), run(6, 4)]));
    assert_eq!(sparse(Some(vec![0..10])).need(), Need::Symbols(vec![]));
}
