//! Strategies for every packet and message that Umbel can send.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ops::Range;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use umbel_wire::lms::{self, Message as Lms, Summary, TurningPoint, UnitSet};
use umbel_wire::reception::{ChannelStamp, ReceptionReport, ReportSchedule};
use umbel_wire::repository::{
    Announcement, ClientMessage, ControlGroup, ControlKey, GroupKey, GroupSecret, ItemInfo,
    ItemKind, LinkText, Nak, Need, NeedRun, ServerMessage, SymbolDigest, SymbolKey, SymbolRun,
    limits,
};
use umbel_wire::srm::MemberId;
use umbel_wire::{Channel, DataHeader, Digest, Oti, Scheme, Toi, Tsi};

pub(crate) fn schemes() -> impl Strategy<Value = Scheme> {
    prop_oneof![Just(Scheme::NoCode), Just(Scheme::ReedSolomon), Just(Scheme::RaptorQ)]
}

/// Generates OTIs within the limits of the scheme.
pub(crate) fn otis(scheme: Scheme) -> impl Strategy<Value = Oti> {
    let object_len = prop_oneof![0..100_000_u64, 0..=scheme.max_object_len()];
    (object_len, 1..=u16::MAX, 1..=scheme.max_block_symbols(), 0..=255_u16)
        .prop_map(move |(object_len, symbol_len, block, more)| {
            let max_encoding_symbols =
                if scheme == Scheme::ReedSolomon { block.saturating_add(more).min(255) } else { 0 };
            Oti { scheme, object_len, symbol_len, max_block_symbols: block, max_encoding_symbols }
        })
        .prop_filter("the blocks can be numbered", |oti| oti.check().is_ok())
}

pub(crate) fn stamps() -> impl Strategy<Value = ChannelStamp> {
    any::<(u32, u64, u8)>().prop_map(|(number, us, place)| ChannelStamp::new(number, us, place))
}

pub(crate) fn data_headers() -> impl Strategy<Value = DataHeader> {
    schemes().prop_flat_map(|scheme| {
        let numbers = (0..=scheme.max_sbn(), 0..=scheme.max_esi());
        (any::<(u32, u32, u32, u32)>(), stamps(), numbers).prop_map(
            move |((tsi, toi, transmission, index), stamp, (sbn, esi))| {
                let (tsi, toi) = (Tsi(tsi), Toi(toi));
                DataHeader { tsi, toi, transmission, index, stamp, scheme, sbn, esi }
            },
        )
    })
}

fn strings(limit: usize) -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        Just("x".repeat(limit)),
        vec(any::<char>(), 0..limit.min(60) / 4).prop_map(String::from_iter),
    ]
}

fn tois() -> impl Strategy<Value = Toi> {
    any::<u32>().prop_map(Toi)
}

fn toi_lists() -> impl Strategy<Value = Vec<Toi>> {
    vec(tois(), 0..50)
}

/// Generates mostly small numbers, and some of any size.
fn steps() -> impl Strategy<Value = u32> {
    prop_oneof![4 => 0..4_u32, 1 => any::<u32>()]
}

pub(crate) fn needs() -> impl Strategy<Value = Need> {
    let symbols = prop_oneof![4 => 1..40_u16, 1 => 1..=u16::MAX];
    let need_runs = vec((steps(), steps(), symbols), 0..60).prop_map(|raw| {
        let mut end = 0_u32;
        let mut runs = Vec::new();
        for (gap, blocks, symbols) in raw {
            let Some(first_block) = end.checked_add(gap) else { break };
            let blocks = blocks.max(1);
            let Some(next) = first_block.checked_add(blocks) else { break };
            runs.push(NeedRun { first_block, blocks, symbols });
            end = next;
        }
        Need::Symbols(runs)
    });
    let symbol_runs = vec((steps(), steps(), steps()), 0..60).prop_map(|raw| {
        let (mut block, mut end) = (0_u32, 0_u32);
        let mut runs = Vec::new();
        for (block_step, gap, count) in raw {
            if block_step > 0 {
                let Some(next) = block.checked_add(block_step) else { break };
                (block, end) = (next, 0);
            }
            let count = count.max(1);
            let Some(first_esi) = end.checked_add(gap) else { continue };
            let Some(next) = first_esi.checked_add(count) else { continue };
            runs.push(SymbolRun { block, first_esi, count });
            end = next;
        }
        Need::Exact(runs)
    });
    prop_oneof![1 => Just(Need::Whole), 3 => need_runs, 3 => symbol_runs]
}

fn digests() -> impl Strategy<Value = Digest> {
    prop_oneof![Just([0; 32]), any::<[u8; 32]>()].prop_map(Digest)
}

/// Returns every third block, and the last one.
fn holes(oti: &Oti) -> Vec<Range<u32>> {
    let symbols = oti.object_len.div_ceil(oti.symbol_len.into());
    let blocks = symbols.div_ceil(oti.max_block_symbols.into()) as u32;
    let thirds = (0..blocks.min(20)).filter(|block| block % 3 == 1 && block + 1 < blocks);
    let last = (blocks % 2 == 1 && blocks % 3 == 1).then_some(blocks.wrapping_sub(1));
    thirds.chain(last).map(|block| block..block + 1).collect()
}

pub(crate) fn items() -> impl Strategy<Value = ItemInfo> {
    let media = prop_oneof![Just(String::new()), Just("text/plain".to_owned()), strings(255)];
    let name = strings(limits::NAME_LEN)
        .prop_map(|name| if name.is_empty() { "a/ü".into() } else { name });
    // Few different OTIs make neighbours share them.
    let oti = prop_oneof![
        prop_oneof![Just(0), 0..1_u64 << 30].prop_map(|object_len| Oti {
            scheme: Scheme::ReedSolomon,
            object_len,
            symbol_len: 1376,
            max_block_symbols: 128,
            max_encoding_symbols: 255,
        }),
        schemes().prop_flat_map(otis),
    ];
    let mode = prop_oneof![Just(None), Just(Some(0o644)), proptest::option::of(0..=0o777_u16)];
    let text = strings(limits::LINK_LEN).prop_map(|text| {
        LinkText::new(text.replace('\0', "/")).map_or(ItemKind::File, ItemKind::Link)
    });
    let kind = prop_oneof![
        Just(ItemKind::File),
        Just(ItemKind::Directory),
        text,
        Just(ItemKind::HardLink("a/b".to_owned())),
    ];
    (tois(), name, digests(), any::<Option<i64>>(), mode, media, oti, (kind, any::<bool>()))
        .prop_map(|(toi, name, digest, modified_ns, mode, media_type, oti, (kind, sparse))| {
            ItemInfo {
                toi,
                name,
                holes: (kind.is_file() && sparse && oti.object_len > 0).then(|| holes(&oti)),
                oti: match kind {
                    ItemKind::File | ItemKind::HardLink(_) => oti,
                    ItemKind::Directory | ItemKind::Link(_) => Oti { object_len: 0, ..oti },
                },
                kind,
                digest,
                modified_ns,
                mode,
                media_type,
            }
        })
}

pub(crate) fn receptions() -> impl Strategy<Value = ReceptionReport> {
    let times = any::<[u32; 6]>().prop_map(|us| us.map(|us| Duration::from_micros(us.into())));
    (stamps(), any::<[u32; 6]>(), times, option::of(1..=u64::MAX)).prop_map(
        |(newest, [received, lost, tails, gaps, overrun, marked], times, train_bits_per_s)| {
            let [held, sent_over, arrived_over, queue_least, queue, jitter] = times;
            ReceptionReport {
                newest,
                held,
                received,
                lost,
                tails,
                gaps,
                overrun,
                marked,
                sent_over,
                arrived_over,
                queue_least,
                queue,
                jitter,
                train_bits_per_s,
            }
        },
    )
}

pub(crate) fn schedules() -> impl Strategy<Value = ReportSchedule> {
    let times = any::<[u32; 3]>().prop_map(|us| us.map(|us| Duration::from_micros(us.into())));
    (any::<u32>(), times).prop_map(|(packets, [every, latest, spread])| ReportSchedule {
        every,
        packets,
        latest,
        spread,
    })
}

pub(crate) fn client_messages() -> impl Strategy<Value = ClientMessage> {
    use ClientMessage as M;
    let patterns = || vec(strings(limits::PATTERN_LEN), 0..5);
    prop_oneof![
        (strings(limits::AGENT_LEN), option::of(strings(limits::TOKEN_LEN)))
            .prop_map(|(agent, token)| M::Hello { agent, token }),
        any::<u16>().prop_map(|key| M::HasKey { key }),
        (any::<u32>(), patterns(), any::<u64>(), any::<u32>()).prop_map(
            |(query, patterns, cursor, limit)| M::List { query, patterns, cursor, limit }
        ),
        (any::<u32>(), patterns(), any::<bool>()).prop_map(|(query, patterns, hold)| M::Request {
            query,
            patterns,
            hold
        }),
        (tois(), needs()).prop_map(|(toi, need)| M::Want { toi, need }),
        (any::<u32>(), tois(), needs(), any::<[u32; 2]>()).prop_map(
            |(transmission, toi, need, [received, lost])| {
                M::Nak(Nak { transmission, toi, need, received, lost })
            }
        ),
        (toi_lists(), any::<[u32; 2]>()).prop_map(|(tois, [received, lost])| M::Done {
            tois,
            received,
            lost
        }),
        toi_lists().prop_map(|tois| M::Cancel { tois }),
        (tois(), needs()).prop_map(|(toi, need)| M::Unicast { toi, need }),
        tois().prop_map(|toi| M::Digests { toi }),
        (
            tois(),
            any::<[u8; 32]>(),
            any::<u32>(),
            0..u32::MAX - limits::SYMBOL_DIGESTS as u32,
            1..=limits::SYMBOL_DIGESTS as u32
        )
            .prop_map(|(toi, key, block, first_esi, count)| M::SymbolDigests {
                toi,
                key: SymbolKey(key),
                symbols: SymbolRun { block, first_esi, count },
            }),
        any::<bool>().prop_map(|hears| M::Control { hears }),
        receptions().prop_map(M::Reception),
        (
            any::<u32>(),
            any::<u8>(),
            any::<u32>(),
            limits::PROBE_PACKET_MIN..=limits::PROBE_PACKET_MAX,
            1..=u64::MAX
        )
            .prop_map(|(probe, channel, packets, packet_len, rate_bits_per_s)| M::Probe {
                probe,
                channel,
                packets,
                packet_len,
                rate_bits_per_s
            }),
    ]
}

fn controls() -> impl Strategy<Value = ControlGroup> {
    (channels(), any::<(u64, u64, Option<[u8; 32]>)>()).prop_map(
        |(channel, (server, client, key))| ControlGroup {
            channel: Channel { source: None, ..channel },
            server: MemberId(server),
            client: MemberId(client),
            key: key.map(ControlKey),
        },
    )
}

fn keys() -> impl Strategy<Value = GroupKey> {
    any::<(u16, [u8; 32])>().prop_map(|(id, secret)| GroupKey { id, secret: GroupSecret(secret) })
}

fn channels() -> impl Strategy<Value = Channel> {
    let v4 = (option::of(1..0xE000_0000_u32), 0xE000_0000..=0xEFFF_FFFF_u32).prop_map(
        |(source, group)| {
            let source = source.map(|source| IpAddr::V4(Ipv4Addr::from_bits(source)));
            (source, IpAddr::V4(Ipv4Addr::from_bits(group)))
        },
    );
    let v6 = (option::of(1..0xFF_u128 << 120), 0xFF_u128 << 120..=u128::MAX).prop_map(
        |(source, group)| {
            let source = source.map(|source| IpAddr::V6(Ipv6Addr::from_bits(source)));
            (source, IpAddr::V6(Ipv6Addr::from_bits(group)))
        },
    );
    (prop_oneof![v4, v6], 1..=u16::MAX).prop_map(|((source, group), port)| Channel {
        source,
        group,
        port,
    })
}

fn durations() -> impl Strategy<Value = Duration> {
    (0..=limits::DURATION.as_micros() as u64).prop_map(Duration::from_micros)
}

fn announcements() -> impl Strategy<Value = Announcement> {
    let blocks =
        any::<(u32, u32)>().prop_map(|(first, blocks)| (first, blocks.min(u32::MAX - first)));
    (any::<u32>(), tois(), any::<u8>(), blocks, any::<u32>()).prop_map(
        |(transmission, toi, channel, (first_block, blocks), packets)| Announcement {
            transmission,
            toi,
            channel,
            first_block,
            blocks,
            packets,
        },
    )
}

pub(crate) fn server_messages() -> impl Strategy<Value = ServerMessage> {
    use ServerMessage as M;
    let reason = || strings(limits::REASON_LEN);
    prop_oneof![
        (
            strings(limits::AGENT_LEN),
            any::<u32>(),
            vec(channels(), 0..5),
            1..=u64::MAX,
            option::of(controls()),
            vec(keys(), 0..=limits::KEYS)
        )
            .prop_map(|(agent, tsi, channels, rate_bits_per_s, control, keys)| {
                M::Welcome { agent, tsi: Tsi(tsi), channels, rate_bits_per_s, control, keys }
            }),
        keys().prop_map(M::Key),
        reason().prop_map(|reason| M::Refused { reason }),
        (any::<u32>(), vec(items(), 0..20), any::<u64>(), any::<Option<u64>>())
            .prop_map(|(query, items, total, next)| M::Page { query, items, total, next }),
        (any::<u32>(), reason()).prop_map(|(query, reason)| M::Failed { query, reason }),
        (1..=u64::MAX, durations(), durations(), vec(announcements(), 0..20)).prop_map(
            |(rate_bits_per_s, starts_in, nak_spread, announcements)| M::Announce {
                rate_bits_per_s,
                starts_in,
                nak_spread,
                announcements
            }
        ),
        any::<u32>().prop_map(|transmission| M::End { transmission }),
        (tois(), reason()).prop_map(|(toi, reason)| M::Gone { toi, reason }),
        (tois(), 0..u32::MAX - 20, vec(digests(), 0..20), any::<bool>()).prop_map(
            |(toi, first_block, digests, more)| M::Digests { toi, first_block, digests, more }
        ),
        (tois(), any::<u32>(), 0..u32::MAX - 20, vec(any::<[u8; 8]>(), 0..20)).prop_map(
            |(toi, block, first_esi, digests)| M::SymbolDigests {
                toi,
                block,
                first_esi,
                digests: digests.into_iter().map(SymbolDigest).collect(),
            }
        ),
        any::<(u32, u32)>().prop_map(|(probe, packets)| M::Probed { probe, packets }),
        schedules().prop_map(M::Reports),
        (any::<u64>(), 1..=u64::MAX).prop_map(|(carries_bits_per_s, rate_bits_per_s)| M::Aside {
            carries_bits_per_s,
            rate_bits_per_s,
        }),
    ]
}

fn hosts() -> impl Strategy<Value = SocketAddr> {
    let v4 = (1..0xE000_0000_u32).prop_map(|address| IpAddr::V4(Ipv4Addr::from_bits(address)));
    let v6 = (1..0xFF_u128 << 120).prop_map(|address| IpAddr::V6(Ipv6Addr::from_bits(address)));
    (prop_oneof![v4, v6], 1..=u16::MAX).prop_map(SocketAddr::from)
}

fn turning_points() -> impl Strategy<Value = TurningPoint> {
    (hosts(), any::<u32>(), any::<u64>()).prop_map(|(router, interface, tag)| TurningPoint {
        router,
        interface,
        tag,
    })
}

fn lms_requests() -> impl Strategy<Value = lms::Request> {
    let units = (0..u64::MAX - 32, prop_oneof![Just(0), any::<u32>()]);
    let flags = (any::<(bool, bool)>(), 0..=lms::limits::HOPS);
    let places = (option::of(hosts()), option::of(turning_points()));
    (source_channels(), any::<u32>(), units, 1..=u8::MAX, places, flags).prop_map(
        |(channel, tsi, (first, following), number, (requestor, turning_point), (flags, hops))| {
            lms::Request {
                channel,
                tsi: Tsi(tsi),
                units: UnitSet { first, following },
                number,
                requestor,
                turning_point,
                replier_failed: flags.0,
                unicast_reply: flags.1,
                hops,
            }
        },
    )
}

fn source_channels() -> impl Strategy<Value = Channel> {
    channels().prop_filter("a channel with a source", |channel| channel.source.is_some())
}

fn services() -> impl Strategy<Value = Channel> {
    channels().prop_map(|channel| Channel { source: None, ..channel })
}

/// Generates messages of LMS with this payload.
pub(crate) fn lms_messages(payload: &'static [u8]) -> impl Strategy<Value = Lms<'static>> {
    let tsis = || any::<u32>().prop_map(Tsi);
    let sequences = || 0..u64::MAX;
    let costs = || any::<Option<u32>>();
    let hops = || 0..=lms::limits::HOPS;
    let summaries = (1..=u64::MAX, any::<u64>(), any::<[u64; 2]>())
        .prop_map(|(count, sum, [a, b])| Summary { count, sum, min: a.min(b), max: a.max(b) });
    let spreads = (0..=lms::limits::DURATION.as_micros() as u64).prop_map(Duration::from_micros);
    prop_oneof![
        (tsis(), sequences()).prop_map(move |(tsi, sequence)| Lms::Data { tsi, sequence, payload }),
        (tsis(), any::<[u64; 2]>()).prop_map(|(tsi, [a, b])| Lms::Heartbeat {
            tsi,
            lead: a.max(b),
            trail: a.min(b)
        }),
        (tsis(), sequences(), 1..=u8::MAX, any::<bool>()).prop_map(
            move |(tsi, sequence, number, unicast)| Lms::Repair {
                tsi,
                sequence,
                number,
                unicast,
                payload
            }
        ),
        lms_requests().prop_map(Lms::Request),
        (source_channels(), turning_points()).prop_map(move |(channel, turning_point)| {
            Lms::Dmcast { channel, turning_point, repair: payload }
        }),
        (source_channels(), costs())
            .prop_map(|(channel, cost)| Lms::Advertisement { channel, cost }),
        source_channels().prop_map(|channel| Lms::Solicit { channel }),
        (tsis(), any::<u64>()).prop_map(|(tsi, nonce)| Lms::Ping { tsi, nonce }),
        (tsis(), any::<u64>()).prop_map(|(tsi, nonce)| Lms::Pong { tsi, nonce }),
        (source_channels(), costs()).prop_map(|(channel, cost)| Lms::Election { channel, cost }),
        (tsis(), any::<[u32; 2]>(), spreads).prop_map(|(tsi, [round, question], spread)| {
            Lms::Collect { tsi, round, question, spread }
        }),
        (source_channels(), tsis(), any::<u32>(), summaries, hops()).prop_map(
            |(channel, tsi, round, summary, hops)| Lms::Report {
                channel,
                tsi,
                round,
                summary,
                hops
            }
        ),
        (services(), costs(), hops()).prop_map(|(service, cost, hops)| {
            Lms::AnycastAdvertisement { service, cost, hops }
        }),
        (services(), option::of(hosts()), any::<u64>(), hops()).prop_map(
            move |(service, requestor, nonce, hops)| Lms::AnycastRequest {
                service,
                requestor,
                nonce,
                hops,
                payload
            }
        ),
        (services(), any::<u64>()).prop_map(move |(service, nonce)| Lms::AnycastReply {
            service,
            nonce,
            payload
        }),
    ]
}
