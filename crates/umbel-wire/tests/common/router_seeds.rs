//! Messages between hosts and multicast routers.

#![allow(dead_code, unreachable_pub, reason = "shared by test binaries")]

use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use umbel_wire::datagram::{ALERT_VALUE_V6, IpDatagram};
use umbel_wire::membership::{Message, Offer, Query, Record, RecordType, Report, Version};
use umbel_wire::pim::{Assert, Hello, JoinPrune, JoinPruneGroup, JoinedSource, LanPruneDelay};
use umbel_wire::{igmp, mld, pim};

type Seeds = Vec<(&'static str, Vec<u8>)>;

/// Returns a group and two sources of a family.
fn addresses(is_ipv6: bool) -> (IpAddr, [IpAddr; 2]) {
    if is_ipv6 {
        let source = |host| Ipv6Addr::new(0x2001, 0xDB8, 0, 0, 0, 0, 0, host).into();
        let group = Ipv6Addr::new(0xFF3E, 0, 0, 0, 0, 0, 0, 7);
        (group.into(), [source(1), source(2)])
    } else {
        ([232, 1, 1, 1].into(), [[10, 0, 0, 1].into(), [10, 0, 0, 2].into()])
    }
}

/// Returns a message of each kind.
pub fn membership(is_ipv6: bool) -> Vec<(&'static str, Message)> {
    let (group, [a, b]) = addresses(is_ipv6);
    let (old, new) =
        if is_ipv6 { (Version::Mld1, Version::Mld2) } else { (Version::Igmp2, Version::Igmp3) };
    let query = |version, group, sources: &[IpAddr]| {
        let is_new = version == new;
        Message::Query(Query {
            version,
            group,
            sources: sources.to_vec(),
            max_response: Duration::from_secs(10),
            suppress: is_new && sources.is_empty(),
            robustness: if is_new { 2 } else { 0 },
            interval: Duration::from_secs(if is_new { 125 } else { 0 }),
        })
    };
    let record = |kind, sources: &[IpAddr]| Record { kind, group, sources: sources.to_vec() };
    let report = |records, offer| Message::Report(Report { records, offer });
    let offer = |cost| Some(Offer { cost, channel_port: 7702, host_port: 7703 });
    let all = [
        record(RecordType::IsInclude, &[a, b]),
        record(RecordType::IsExclude, &[]),
        record(RecordType::ToInclude, &[]),
        record(RecordType::ToExclude, &[a]),
        record(RecordType::Allow, &[b]),
        record(RecordType::Block, &[a]),
    ];
    vec![
        ("general-query", query(new, None, &[])),
        ("group-query", query(new, Some(group), &[])),
        ("source-query", query(new, Some(group), &[a, b])),
        ("old-query", query(old, None, &[])),
        ("report", report(all.to_vec(), None)),
        ("empty", report(Vec::new(), None)),
        ("offer", report(vec![record(RecordType::IsInclude, &[a])], offer(Some(9)))),
        ("withdrawn", report(vec![record(RecordType::IsInclude, &[a])], offer(None))),
        ("old-report", Message::OldReport { version: old, group }),
        ("leave", Message::Leave { version: old, group }),
    ]
}

pub fn igmp_messages() -> Seeds {
    let mut seeds: Seeds = membership(false)
        .into_iter()
        .map(|(name, message)| {
            let mut out = Vec::new();
            igmp::emit(&message, &mut out);
            (name, out)
        })
        .collect();
    seeds.push(("many", [&[0x22, 0, 0, 0, 0, 0, 255, 255, 4, 255][..], &[255; 6]].concat()));
    seeds
}

pub fn mld_messages() -> Seeds {
    let mut seeds: Seeds = membership(true)
        .into_iter()
        .map(|(name, message)| {
            let mut out = Vec::new();
            mld::emit(&message, Ipv6Addr::LOCALHOST, mld::REPORT_GROUP, &mut out);
            (name, out)
        })
        .collect();
    seeds.push(("many", [&[143, 0, 0, 0, 0x80, 0, 255, 255, 4, 255][..], &[255; 6]].concat()));
    seeds
}

/// Returns a message of each kind.
pub fn routers(is_ipv6: bool) -> Vec<(&'static str, pim::Message)> {
    let (group, [a, b]) = addresses(is_ipv6);
    let specific = |source| JoinedSource { source, is_specific: true };
    let shared = JoinedSource { source: b, is_specific: false };
    let of = |joins: &[JoinedSource], prunes: &[JoinedSource]| JoinPruneGroup {
        group,
        is_specific: true,
        joins: joins.to_vec(),
        prunes: prunes.to_vec(),
    };
    let join_prune =
        |groups| pim::Message::JoinPrune(JoinPrune { upstream: b, holdtime_s: 210, groups });
    let hello = Hello {
        holdtime_s: Some(105),
        lan_prune_delay: Some(LanPruneDelay {
            tracking: false,
            propagation: Duration::from_millis(500),
            override_interval: Duration::from_millis(2500),
        }),
        dr_priority: Some(1),
        generation: Some(0x0102_0304),
        addresses: vec![a, b],
    };
    let assert = Assert { group, source: a, shared: false, preference: 110, metric: 20 };
    vec![
        ("hello", pim::Message::Hello(hello)),
        ("bare-hello", pim::Message::Hello(Hello::default())),
        ("join", join_prune(vec![of(&[specific(a)], &[])])),
        ("prune", join_prune(vec![of(&[], &[specific(a)])])),
        ("several", join_prune(vec![of(&[specific(a), shared], &[specific(b)]), of(&[], &[])])),
        ("assert", pim::Message::Assert(assert)),
    ]
}

pub fn pim_messages() -> Seeds {
    let from = IpAddr::from([10, 0, 0, 1]);
    let mut seeds: Seeds = routers(false)
        .into_iter()
        .map(|(name, message)| {
            let mut out = Vec::new();
            pim::emit(&message, from, pim::ALL_ROUTERS_V4.into(), &mut out);
            (name, out)
        })
        .collect();
    let (from, to) = (Ipv6Addr::LOCALHOST.into(), pim::ALL_ROUTERS_V6.into());
    let wide = routers(true).swap_remove(4).1;
    let mut out = Vec::new();
    pim::emit(&wide, from, to, &mut out);
    seeds.push(("several-ipv6", out));
    seeds.push(("register", vec![0x21, 0, 0, 0, 0, 0, 0, 0, 0x45, 0]));
    seeds
}

/// Datagrams in transit, with Router Alert and without.
pub fn ip_datagrams() -> Seeds {
    let emit = |is_ipv6, alert| {
        let (_, [source, destination]) = addresses(is_ipv6);
        let [source, destination] =
            [source, destination].map(|address| SocketAddr::new(address, 7706));
        let datagram = IpDatagram { source, destination, hop_limit: 64, alert, payload: b"abc" };
        let mut packet = Vec::new();
        datagram.emit(&mut packet).unwrap();
        packet
    };
    vec![
        ("v4", emit(false, None)),
        ("v4_alert", emit(false, Some(0))),
        ("v6", emit(true, None)),
        ("v6_alert", emit(true, Some(ALERT_VALUE_V6))),
    ]
}
