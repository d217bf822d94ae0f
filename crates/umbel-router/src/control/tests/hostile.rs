//! Any messages of a network, in any number.

use std::net::Ipv6Addr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_engine::router::InterfaceId;
use umbel_wire::checksum::Sum;
use umbel_wire::membership::{Record, RecordType};

use super::script::{GROUP, SOURCE, Script, host, record};
use crate::control::{ControlConfig, DropReason, Protocol, SourceGroup};

/// Returns a message with a right checksum, so that more than the checksum is tested.
fn message(kind: u8, body: &[u8]) -> Vec<u8> {
    let mut message = vec![kind, 0, 0, 0];
    message.extend(body);
    let checksum = Sum::default().bytes(&message).checksum();
    message[2..4].copy_from_slice(&checksum.to_be_bytes());
    message
}

/// Generates a body that is like one of IGMP or PIM more often than random bytes are.
fn body() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        Just(0_u8),
        Just(1),
        Just(2),
        Just(4),
        Just(10),
        Just(20),
        Just(24),
        Just(32),
        Just(100),
        Just(232),
        Just(254),
        any::<u8>(),
    ];
    vec(byte, 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn no_messages_break_it(
        messages in vec((0_usize..8, 1_u32..5, 1_u8..8, body(), 0_u64..50), 1..40),
    ) {
        let mut script = Script::start(ControlConfig::default());
        for interface in 1..=3 {
            script.hello(interface, host(interface, 7), 1);
        }
        for (kind, interface, from, body, wait_s) in messages {
            let kinds = [0x11, 0x12, 0x16, 0x17, 0x22, 0x20, 0x23, 0x25];
            let protocol = if kind < 5 { Protocol::Igmp } else { Protocol::Pim };
            let bytes = message(kinds[kind], &body);
            script.give(interface, host(interface, from), protocol, &bytes);
            let channel = SourceGroup { group: GROUP, source: [10, 1, 0, from].into() };
            let on = InterfaceId(interface);
            script.plane.unresolved(script.now, &script.routes, channel, on);
            script.plane.wrong_interface(script.now, &script.routes, channel, on);
            script.drain();
            script.wait(Duration::from_secs(wait_s));
            let _ = script.plane.status(script.now);
        }
        // All ends by itself: membership, joins, neighbours, what was heard.
        script.wait(Duration::from_hours(24));
        let status = script.plane.status(script.now);
        let forever = status.interfaces.iter().flat_map(|interface| &interface.links)
            .any(|link| link.neighbours.iter().any(|of| of.expires_in_s.is_none()));
        prop_assert!(forever || status.trees.is_empty(), "{:?}", status.trees);
    }
}

#[test]
fn a_storm_of_hosts_fills_no_more_than_the_table() {
    let mut script = Script::settled(ControlConfig::default());
    for n in 0..12_000_u32 {
        let from = host(2, (n % 250) as u8);
        let [_, a, b, c] = n.to_be_bytes();
        let group = [232, a, b, c].into();
        let kind = RecordType::Allow;
        script.report(2, from, vec![Record { kind, group, sources: vec![SOURCE] }]);
        if n % 4 == 0 {
            script.wait(Duration::from_millis(1));
        }
    }
    let members = script.plane.status(script.now).interfaces[1].links[0].members.len();
    assert_eq!(members, 1024);
    let drops = script.plane.drops();
    assert!(drops.of(DropReason::GroupsOverLimit) > 0 && drops.of(DropReason::Flood) > 0);
    // Nothing of it is left when the storm is over, and others are served again.
    script.wait(Duration::from_mins(10));
    script.forget();
    script.report(2, host(2, 251), vec![record(RecordType::Allow, &[SOURCE])]);
    assert_eq!(script.outputs(), Some(vec![2]));
}

#[test]
fn a_storm_of_routers_is_answered_a_few_times() {
    let mut script = Script::settled(ControlConfig::default());
    for n in 0..5_000_u32 {
        script.hello(3, host(3, (n % 90) as u8), n);
    }
    assert!(script.pim_sent().len() <= 30);
    let status = script.plane.status(script.now);
    assert_eq!(status.interfaces[2].links[0].neighbours.len(), 64);
    assert!(status.drops["NeighboursOverLimit"] > 0 && status.drops["Flood"] >= 4_900);
    // They say nothing more, and are forgotten.
    script.wait(Duration::from_secs(106));
    let status = script.plane.status(script.now);
    assert!(status.interfaces[2].links[0].neighbours.is_empty());
}

#[test]
fn a_family_without_an_address_is_not_served() {
    let mut script = Script::settled(ControlConfig::default());
    let from = Ipv6Addr::new(0xFE80, 0, 0, 0, 0, 0, 0, 5).into();
    script.give(2, from, Protocol::Icmpv6, &[143, 0, 0, 0]);
    assert_eq!(script.plane.drops().of(DropReason::NoSuchInterface), 1);
}
