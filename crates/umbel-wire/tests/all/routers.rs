//! Messages of hosts and multicast routers: emitted bytes parse to the same message, and
//! Wireshark's dissectors find nothing wrong with them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::{Command, Output};
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_wire::membership::{Message, Offer, Query, Record, RecordType, Report, Version};
use umbel_wire::pim::{Assert, Hello, JoinPrune, JoinPruneGroup, JoinedSource, LanPruneDelay};
use umbel_wire::{igmp, mld, pim};

use crate::checks;
use crate::seeds::router_seeds;

fn host(is_ipv6: bool) -> BoxedStrategy<IpAddr> {
    if is_ipv6 {
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits >> 8 | 1).into()).boxed()
    } else {
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits >> 1 | 1).into()).boxed()
    }
}

fn group(is_ipv6: bool) -> BoxedStrategy<IpAddr> {
    if is_ipv6 {
        any::<u128>().prop_map(|bits| Ipv6Addr::from(bits | 0xFF << 120).into()).boxed()
    } else {
        any::<u32>().prop_map(|bits| Ipv4Addr::from(bits >> 4 | 0xE000_0000).into()).boxed()
    }
}

fn records(is_ipv6: bool) -> impl Strategy<Value = Vec<Record>> {
    let kind = prop_oneof![
        Just(RecordType::IsInclude),
        Just(RecordType::IsExclude),
        Just(RecordType::ToInclude),
        Just(RecordType::ToExclude),
        Just(RecordType::Allow),
        Just(RecordType::Block),
    ];
    let record = (kind, group(is_ipv6), vec(host(is_ipv6), 0..5))
        .prop_map(|(kind, group, sources)| Record { kind, group, sources });
    vec(record, 0..5)
}

fn offer() -> impl Strategy<Value = Offer> {
    (proptest::option::of(0..u32::MAX), 1_u16.., 1_u16..)
        .prop_map(|(cost, channel_port, host_port)| Offer { cost, channel_port, host_port })
}

fn membership(is_ipv6: bool) -> impl Strategy<Value = Message> {
    let version = if is_ipv6 { Version::Mld2 } else { Version::Igmp3 };
    let old = if is_ipv6 { Version::Mld1 } else { Version::Igmp2 };
    let in_question = proptest::option::of((group(is_ipv6), vec(host(is_ipv6), 0..5)));
    let query = (in_question, 0_u32..128, any::<bool>(), 0_u8..8, 0_u64..128).prop_map(
        move |(in_question, tenths, suppress, robustness, interval_s)| {
            let group = in_question.as_ref().map(|(group, _)| *group);
            Message::Query(Query {
                version,
                group,
                sources: in_question.map_or(Vec::new(), |(_, sources)| sources),
                max_response: Duration::from_millis(100) * tenths,
                suppress,
                robustness,
                interval: Duration::from_secs(interval_s),
            })
        },
    );
    let report = (records(is_ipv6), proptest::option::of(offer()))
        .prop_map(|(records, offer)| Message::Report(Report { records, offer }));
    let old_report =
        group(is_ipv6).prop_map(move |group| Message::OldReport { version: old, group });
    let leave = group(is_ipv6).prop_map(move |group| Message::Leave { version: old, group });
    prop_oneof![query, report, old_report, leave]
}

fn routers(is_ipv6: bool) -> impl Strategy<Value = pim::Message> {
    let delay = (any::<bool>(), 0_u64..0x8000, 0_u64..0x1_0000).prop_map(
        |(tracking, propagation_ms, override_ms)| LanPruneDelay {
            tracking,
            propagation: Duration::from_millis(propagation_ms),
            override_interval: Duration::from_millis(override_ms),
        },
    );
    let hello = (
        any::<Option<u16>>(),
        proptest::option::of(delay),
        any::<[Option<u32>; 2]>(),
        vec(host(is_ipv6), 0..4),
    )
        .prop_map(|(holdtime_s, lan_prune_delay, [dr_priority, generation], addresses)| {
            pim::Message::Hello(Hello {
                holdtime_s,
                lan_prune_delay,
                dr_priority,
                generation,
                addresses,
            })
        });
    let sources = || {
        let source = (host(is_ipv6), any::<bool>())
            .prop_map(|(source, is_specific)| JoinedSource { source, is_specific });
        vec(source, 0..4)
    };
    let of_group = (group(is_ipv6), any::<bool>(), sources(), sources()).prop_map(
        |(group, is_specific, joins, prunes)| JoinPruneGroup { group, is_specific, joins, prunes },
    );
    let join_prune = (host(is_ipv6), any::<u16>(), vec(of_group, 0..5)).prop_map(
        |(upstream, holdtime_s, groups)| {
            pim::Message::JoinPrune(JoinPrune { upstream, holdtime_s, groups })
        },
    );
    let assert = (group(is_ipv6), host(is_ipv6), any::<bool>(), 0_u32..1 << 31, any::<u32>())
        .prop_map(|(group, source, shared, preference, metric)| {
            pim::Message::Assert(Assert { group, source, shared, preference, metric })
        });
    prop_oneof![hello, join_prune, assert]
}

const FROM: Ipv6Addr = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 1);

fn igmp_bytes(message: &Message) -> Vec<u8> {
    let mut out = Vec::new();
    igmp::emit(message, &mut out);
    out
}

fn mld_bytes(message: &Message, to: Ipv6Addr) -> Vec<u8> {
    let mut out = Vec::new();
    mld::emit(message, FROM, to, &mut out);
    out
}

fn pim_bytes(message: &pim::Message, from: IpAddr, to: IpAddr) -> Vec<u8> {
    let mut out = Vec::new();
    pim::emit(message, from, to, &mut out);
    out
}

proptest! {
    #[test]
    fn igmp_messages_come_back(message in membership(false)) {
        prop_assert_eq!(igmp::parse(&igmp_bytes(&message)), Ok(Some(message)));
    }

    #[test]
    fn mld_messages_come_back(message in membership(true)) {
        let bytes = mld_bytes(&message, mld::REPORT_GROUP);
        prop_assert_eq!(mld::parse(&bytes, FROM, mld::REPORT_GROUP), Ok(Some(message)));
    }

    #[test]
    fn pim_messages_come_back(message in routers(false), wide in routers(true)) {
        let (from, to) = (IpAddr::from([10, 0, 0, 1]), pim::ALL_ROUTERS_V4.into());
        prop_assert_eq!(pim::parse(&pim_bytes(&message, from, to), from, to), Ok(Some(message)));
        let (from, to) = (FROM.into(), pim::ALL_ROUTERS_V6.into());
        prop_assert_eq!(pim::parse(&pim_bytes(&wide, from, to), from, to), Ok(Some(wide)));
    }

    #[test]
    fn one_wrong_bit_is_found(message in membership(false), bit: prop::sample::Index) {
        let mut bytes = igmp_bytes(&message);
        let bit = bit.index(bytes.len() * 8);
        bytes[bit / 8] ^= 1 << (bit % 8);
        // The type may become another that is left alone.
        prop_assert!(!matches!(igmp::parse(&bytes), Ok(Some(_))));
    }

    #[test]
    fn no_bytes_make_a_parser_fail(bytes in vec(any::<u8>(), 0..200), kind in 0_usize..6) {
        let mut bytes = bytes;
        if let Some(first) = bytes.first_mut() {
            *first = [0x11, 0x22, 130, 143, 0x20, 0x23][kind];
        }
        checks::igmp_message(&bytes);
        checks::mld_message(&bytes);
        checks::pim_message(&bytes);
    }
}

/// Returns a packet with an IPv4 header that has the Router Alert option if it is not PIM.
fn ipv4(protocol: u8, to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let options: &[u8] = if protocol == 2 { &[0x94, 4, 0, 0] } else { &[] };
    let header_len = 20 + options.len();
    let len = ((header_len + message.len()) as u16).to_be_bytes();
    let first = 0x40 | (header_len / 4) as u8;
    let mut packet = vec![first, 0xC0, len[0], len[1], 0, 1, 0, 0, 1, protocol, 0, 0];
    packet.extend([10, 0, 0, 2]);
    packet.extend(to.octets());
    packet.extend(options);
    let sum = umbel_wire::checksum::Sum::default().bytes(&packet).checksum();
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet.extend(message);
    packet
}

/// Returns a packet with an IPv6 header, and a hop-by-hop header with Router Alert before MLD.
fn ipv6(protocol: u8, to: Ipv6Addr, message: &[u8]) -> Vec<u8> {
    let alert: &[u8] = if protocol == 58 { &[58, 0, 5, 2, 0, 0, 1, 0] } else { &[] };
    let len = ((alert.len() + message.len()) as u16).to_be_bytes();
    let next = if alert.is_empty() { protocol } else { 0 };
    let mut packet = vec![0x60, 0, 0, 0, len[0], len[1], next, 1];
    packet.extend(FROM.octets());
    packet.extend(to.octets());
    packet.extend(alert);
    packet.extend(message);
    packet
}

/// Returns what tshark says of packets, one line each, or `None` if it is not installed.
fn tshark(name: &str, packets: &[Vec<u8>], fields: &[&str]) -> Option<Vec<String>> {
    let mut file = Vec::new();
    for word in [0xA1B2_C3D4, 0x0002_0004, 0, 0, 0xFFFF, 101] {
        file.extend_from_slice(&u32::to_be_bytes(word));
    }
    for packet in packets {
        for word in [0, 0, packet.len() as u32, packet.len() as u32] {
            file.extend_from_slice(&word.to_be_bytes());
        }
        file.extend_from_slice(packet);
    }
    let path = std::env::temp_dir().join(format!("umbel-wire-{name}-{}.pcap", std::process::id()));
    std::fs::write(&path, file).unwrap();
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(&path).args(["-o", "ip.check_checksum:TRUE"]);
    command.args(["-T", "fields", "-E", "separator=|"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output();
    let _ = std::fs::remove_file(&path);
    match output {
        Ok(Output { status, stdout, stderr }) => {
            assert!(status.success(), "tshark: {}", String::from_utf8_lossy(&stderr));
            let lines = String::from_utf8(stdout).unwrap();
            Some(lines.lines().map(str::to_owned).collect())
        }
        Err(error) => {
            eprintln!("SKIPPED: tshark does not start: {error}");
            None
        }
    }
}

#[test]
fn tshark_finds_nothing_wrong_with_igmp_and_pim() {
    let mut packets = Vec::new();
    for (_, message) in router_seeds::membership(false) {
        packets.push(ipv4(2, igmp::REPORT_GROUP, &igmp_bytes(&message)));
    }
    let igmp_packets = packets.len();
    for (_, message) in router_seeds::routers(false) {
        let bytes = pim_bytes(&message, [10, 0, 0, 2].into(), pim::ALL_ROUTERS_V4.into());
        packets.push(ipv4(103, pim::ALL_ROUTERS_V4, &bytes));
    }
    for (_, message) in router_seeds::routers(true) {
        let bytes = pim_bytes(&message, FROM.into(), pim::ALL_ROUTERS_V6.into());
        packets.push(ipv6(103, pim::ALL_ROUTERS_V6, &bytes));
    }
    let fields = ["_ws.malformed", "igmp.checksum.status", "pim.cksum.status", "_ws.expert"];
    let Some(lines) = tshark("routers", &packets, &fields) else { return };
    assert_eq!(lines.len(), packets.len(), "{lines:?}");
    for (n, line) in lines.iter().enumerate() {
        let expected = if n < igmp_packets { "|1||" } else { "||1|" };
        assert_eq!(line, expected, "packet {n}");
    }
}

/// Wireshark 4.0 takes an extension of an MLD report for a malformed packet, so that it is asked
/// about reports without.
#[test]
fn tshark_finds_nothing_wrong_with_mld() {
    let mut packets = Vec::new();
    for (_, message) in router_seeds::membership(true) {
        if !matches!(message, Message::Report(Report { offer: Some(_), .. })) {
            packets.push(ipv6(58, mld::REPORT_GROUP, &mld_bytes(&message, mld::REPORT_GROUP)));
        }
    }
    let fields = ["_ws.malformed", "icmpv6.checksum.status"];
    let Some(lines) = tshark("mld", &packets, &fields) else { return };
    assert_eq!(lines, vec!["|1"; packets.len()]);
}
