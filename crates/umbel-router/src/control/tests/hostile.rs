//! Any messages of a network, in any number.

use std::net::Ipv6Addr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use umbel_engine::router::InterfaceId;
use umbel_wire::checksum::Sum;
use umbel_wire::membership::{Record, RecordType};

use super::script::{CHANNEL, GROUP, SOURCE, Script, host, record};
use crate::control::{ControlConfig, DropReason, ForwardingChange, Protocol, SourceGroup};

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
    assert!(script.plane.drops().of(DropReason::GroupsOverLimit) > 0);
    // Nothing of it is left when the storm is over, and others are served again.
    script.wait(Duration::from_mins(10));
    script.forget();
    script.report(2, host(2, 251), vec![record(RecordType::Allow, &[SOURCE])]);
    assert_eq!(script.outputs(), Some(vec![2]));
}

/// Makes hosts of a link name channels until no table has room for more.
fn fill(script: &mut Script, interface: u32, hosts: std::ops::Range<u8>) {
    for from in hosts {
        for group in 0..64 {
            let sources = (0..64).map(|n| [10, 1, 100 + group, n].into()).collect();
            let group = [232, 10 + interface as u8, from, group].into();
            let kind = RecordType::Allow;
            script.report(interface, host(interface, from), vec![Record { kind, group, sources }]);
        }
        script.wait(Duration::from_millis(10));
    }
    script.forget();
}

fn trees(script: &Script) -> usize {
    script.plane.status(script.now).trees.len()
}

/// Returns whether a channel goes out, after all changes since the last [`Script::forget`].
fn goes_out(script: &Script, channel: SourceGroup) -> Option<bool> {
    script.changes.iter().rev().find_map(|change| match change {
        ForwardingChange::Set { channel: of, outputs, .. } if *of == channel => {
            Some(!outputs.is_empty())
        }
        ForwardingChange::Remove { channel: of } if *of == channel => Some(false),
        _ => None,
    })
}

#[test]
fn hosts_of_one_link_keep_no_host_of_another_link_from_joining() {
    let mut script = Script::settled(ControlConfig::default());
    fill(&mut script, 3, 1..90);
    assert_eq!(trees(&script), 8192);
    let gave_way = script.plane.drops().of(DropReason::GaveWay);
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    assert_eq!(script.outputs(), Some(vec![2]));
    assert_eq!(trees(&script), 8192, "one of the other link has made room");
    assert_eq!(script.plane.drops().of(DropReason::GaveWay), gave_way + 1);
    // Each link can have as many. The rest are channels that still arrive by the third one.
    fill(&mut script, 2, 10..90);
    assert_eq!(trees(&script), 8192);
    let of = |script: &Script, on| {
        let trees = script.plane.status(script.now).trees;
        trees.iter().filter(|tree| tree.outputs.iter().any(|of| of.interface == on)).count()
    };
    assert_eq!([of(&script, 2), of(&script, 3)], [(8192 - 1024) / 2; 2]);
    // All of it ends.
    script.wait(Duration::from_mins(10));
    assert_eq!(trees(&script), 0);
}

#[test]
fn hosts_that_name_many_channels_keep_no_other_host_of_their_link_from_joining() {
    let mut script = Script::settled(ControlConfig::default());
    fill(&mut script, 2, 1..90);
    assert_eq!(trees(&script), 8192);
    script.report(2, host(2, 200), vec![record(RecordType::Allow, &[SOURCE])]);
    assert_eq!(goes_out(&script, CHANNEL), Some(true));
}

#[test]
fn channels_that_carry_packets_go_last() {
    let mut script = Script::settled(ControlConfig::default());
    script.report(3, host(3, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.wait(Duration::from_secs(1));
    fill(&mut script, 3, 10..90);
    script.plane.carried([CHANNEL].into_iter());
    fill(&mut script, 2, 10..90);
    script.plane.carried([CHANNEL].into_iter());
    assert_eq!(trees(&script), 8192);
    assert_eq!(goes_out(&script, CHANNEL), None, "it goes on");
}

#[test]
fn a_channel_that_two_links_want_is_not_lost_with_one() {
    let mut script = Script::settled(ControlConfig::default());
    script.hello(2, host(2, 7), 1);
    // Hosts of interface 3 were the first to name what a neighbour on interface 2 wants, too.
    script.report(3, host(3, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.ask(2, host(2, 7), host(2, 100), true);
    fill(&mut script, 3, 10..90);
    for n in 0..200 {
        let kind = RecordType::Allow;
        let group = [232, 3, 3, n].into();
        script.report(2, host(2, 30 + n % 16), vec![Record { kind, group, sources: vec![SOURCE] }]);
    }
    assert_eq!(goes_out(&script, CHANNEL), None, "it goes on");
}

#[test]
fn a_host_that_floods_costs_no_other_host_a_report() {
    let mut script = Script::settled(ControlConfig::default());
    let reports = |script: &mut Script, from| {
        script.report(2, from, vec![record(RecordType::Allow, &[SOURCE])]);
    };
    for _ in 0..100 {
        (0..200).for_each(|_| reports(&mut script, host(2, 66)));
        script.wait(Duration::from_millis(10));
    }
    script.forget();
    let group = [232, 2, 2, 2].into();
    let (kind, sources) = (RecordType::Allow, vec![SOURCE]);
    script.report(2, host(2, 8), vec![Record { kind, group, sources }]);
    assert_eq!(goes_out(&script, SourceGroup { group, source: SOURCE }), Some(true));
    assert!(script.plane.drops().of(DropReason::Flood) > 19_000);
    // Nor do many hosts that are no members take from one that is.
    for n in 0..60 {
        for _ in 0..200 {
            script.give(2, host(2, 100 + n), Protocol::Igmp, &message(0x16, &[232, 9, 9, 9]));
        }
    }
    script.forget();
    let (kind, sources) = (RecordType::Block, vec![SOURCE]);
    script.report(2, host(2, 8), vec![Record { kind, group, sources }]);
    assert_eq!(goes_out(&script, SourceGroup { group, source: SOURCE }), Some(false));
}

#[test]
fn hosts_under_many_addresses_cost_no_member_a_report() {
    let mut script = Script::settled(ControlConfig::default());
    let report = |script: &mut Script, kind| {
        script.report(3, host(3, 8), vec![record(kind, &[SOURCE])]);
    };
    report(&mut script, RecordType::Allow);
    script.wait(Duration::from_secs(10));
    // More than are told apart, each with more than it may.
    for n in 0..2_000_u32 {
        let [.., high, low] = n.to_be_bytes();
        for _ in 0..10 {
            script.give(3, [10, 2, high, low].into(), Protocol::Igmp, &message(0x16, &[1; 4]));
        }
    }
    script.forget();
    report(&mut script, RecordType::Block);
    assert_eq!(goes_out(&script, CHANNEL), Some(false));
}

#[test]
fn a_storm_of_routers_costs_no_gateway_an_answer() {
    let mut script = Script::settled(ControlConfig::default());
    for n in 0..1_000_u32 {
        script.hello(1, host(1, (n % 90) as u8), n);
    }
    script.forget();
    script.hello(1, host(1, 253), 1);
    assert!(script.pim_sent().is_empty(), "strangers have had their answers");
    script.hello(1, host(1, 254), 1);
    assert!(!script.pim_sent().is_empty());
}

#[test]
fn a_host_that_floods_costs_no_router_a_message() {
    let mut script = Script::settled(ControlConfig::default());
    script.hello(1, host(1, 254), 1);
    script.hello(3, host(3, 7), 1);
    for _ in 0..100 {
        for _ in 0..100 {
            script.hello(3, host(3, 66), 5);
            script.ask(3, host(3, 66), host(3, 100), true);
            script.ask(3, host(3, 67), host(3, 100), true);
        }
        script.wait(Duration::from_millis(10));
    }
    script.forget();
    script.ask(3, host(3, 7), host(3, 100), false);
    script.ask(3, host(3, 66), host(3, 100), false);
    script.ask(3, host(3, 7), host(3, 100), true);
    let joined = script.plane.status(script.now).trees[0].outputs[0].joined_by.clone();
    assert!(joined.contains(&host(3, 7)));
    script.hello(3, host(3, 8), 1);
    let neighbours = &script.plane.status(script.now).interfaces[2].links[0].neighbours;
    assert!(neighbours.iter().any(|neighbour| neighbour.address == host(3, 8)), "it is new");
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
    assert!(status.drops["NeighboursOverLimit"] > 0 && status.drops["Flood"] >= 4_200);
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
