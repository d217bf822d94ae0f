//! Neighbours, joins, prunes and Asserts.

use std::time::Duration;

use umbel_engine::router::InterfaceId;
use umbel_wire::membership::RecordType;
use umbel_wire::pim::{self, Assert, Hello, LanPruneDelay, Message};

use super::script::{CHANNEL, GROUP, SOURCE, Script, host, info, record};
use crate::control::{
    ControlConfig, DropReason, ForwardingChange, InterfaceAddress, NamedNeighbour, NextHop,
    PimRole, Protocol, TreeStatus,
};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Returns a script whose neighbour upstream is 10.0.1.254.
fn with_upstream() -> Script {
    let mut script = Script::settled(ControlConfig::default());
    script.hello(1, host(1, 254), 1);
    script.forget();
    script
}

fn want(script: &mut Script) {
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
}

fn tree(script: &Script) -> TreeStatus {
    script.plane.status(script.now).trees.remove(0)
}

fn hellos(script: &mut Script) -> Vec<(u32, Hello)> {
    let hello = |(interface, message)| match message {
        Message::Hello(hello) => Some((interface, hello)),
        _ => None,
    };
    script.pim_sent().into_iter().filter_map(hello).collect()
}

#[test]
fn hellos_say_who_is_there_and_a_new_neighbour_is_answered_at_once() {
    let mut script = Script::start(ControlConfig::default());
    script.wait(Duration::from_millis(101));
    let first = hellos(&mut script);
    assert_eq!(first.len(), 3);
    let of_link = first.iter().find(|(interface, _)| *interface == 2);
    let generation = of_link.and_then(|(_, hello)| hello.generation);
    assert_eq!((first[0].1.holdtime_s, first[0].1.dr_priority), (Some(105), Some(1)));
    assert!(generation.is_some());
    script.wait(seconds(30));
    assert_eq!(hellos(&mut script).len(), 3);
    script.hello(2, host(2, 7), 1);
    let answer = hellos(&mut script);
    assert_eq!((answer.len(), answer[0].0, answer[0].1.generation), (1, 2, generation));
    script.hello(2, host(2, 7), 1);
    assert!(hellos(&mut script).is_empty());
    script.hello(2, host(2, 7), 2);
    assert_eq!(hellos(&mut script).len(), 1, "it has started anew");
    script.wait(seconds(106));
    let status = script.plane.status(script.now);
    assert!(status.interfaces[1].links[0].neighbours.is_empty());
}

#[test]
fn a_join_waits_for_the_neighbour_and_is_repeated() {
    let mut script = Script::settled(ControlConfig::default());
    want(&mut script);
    assert_eq!(script.outputs(), Some(vec![2]));
    assert!(script.asked().is_empty() && tree(&script).joined.is_none());
    script.hello(1, host(1, 254), 1);
    let sent = script.pim_sent();
    assert!(matches!(sent[0].1, Message::Hello(_)), "it must know this router first");
    assert!(matches!(&sent[1].1, Message::JoinPrune(join) if join.holdtime_s == 210));
    assert_eq!(tree(&script).joined, Some(host(1, 254)));
    for _ in 0..3 {
        script.wait(seconds(60));
        script.hello(1, host(1, 254), 1);
        assert_eq!(script.asked(), [(1, host(1, 254), true)]);
    }
    // It has restarted and forgotten all.
    script.hello(1, host(1, 254), 2);
    assert_eq!(script.asked(), [(1, host(1, 254), true)]);
    // It is gone, and comes back.
    want(&mut script);
    script.wait(seconds(106));
    script.asked();
    assert_eq!(tree(&script).joined, None);
    script.hello(1, host(1, 254), 2);
    assert_eq!(script.asked(), [(1, host(1, 254), true)]);
}

#[test]
fn a_next_hop_is_found_by_any_address_of_the_neighbour() {
    let mut script = Script::settled(ControlConfig::default());
    want(&mut script);
    let hello =
        |addresses| Message::Hello(Hello { addresses, generation: Some(1), ..Hello::default() });
    script.pim(1, host(1, 9), &hello(vec![]));
    assert_eq!(script.asked(), []);
    // It has got an address and tells it with its next Hello.
    script.pim(1, host(1, 9), &hello(vec![host(1, 254)]));
    assert_eq!(script.asked(), [(1, host(1, 9), true)]);
}

#[test]
fn an_address_that_comes_later_is_told_soon_and_changes_nothing_else() {
    let mut script = with_upstream();
    want(&mut script);
    script.forget();
    let mut more = info(2);
    let address = [10, 9, 9, 9].into();
    more.addresses.push(InterfaceAddress { address, prefix_len: 24 });
    script.plane.interface_up(script.now, &script.routes, InterfaceId(2), more);
    script.wait(Duration::from_millis(101));
    let told = hellos(&mut script);
    assert_eq!((told.len(), told[0].0, &told[0].1.addresses[..]), (1, 2, &[address][..]));
    assert!(script.changes.is_empty());
    assert_eq!(tree(&script).outputs.len(), 1);
}

#[test]
fn joins_of_neighbours_make_trees_and_their_prunes_end_them() {
    let mut script = with_upstream();
    // A router that has not sent Hello is not believed.
    script.ask(3, host(3, 7), host(3, 100), true);
    assert_eq!(script.plane.drops().of(DropReason::NoNeighbour), 1);
    script.hello(3, host(3, 7), 1);
    script.forget();
    script.ask(3, host(3, 7), host(3, 100), true);
    assert_eq!((script.outputs(), script.asked()), (Some(vec![3]), vec![(1, host(1, 254), true)]));
    script.ask(3, host(3, 7), host(3, 100), false);
    assert_eq!((script.outputs(), script.asked()), (Some(vec![]), vec![(1, host(1, 254), false)]));
    // A join that is not repeated ends.
    script.ask(3, host(3, 7), host(3, 100), true);
    script.wait(seconds(100));
    script.hello(3, host(3, 7), 1);
    script.wait(seconds(100));
    script.hello(3, host(3, 7), 1);
    assert_eq!(script.outputs(), Some(vec![3]));
    script.wait(seconds(11));
    assert_eq!(script.outputs(), Some(vec![]));
    // One to another router is none of this one's business.
    script.ask(3, host(3, 7), host(3, 8), true);
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn a_prune_is_said_some_times_more_since_it_may_be_lost() {
    let mut script = with_upstream();
    script.hello(3, host(3, 7), 1);
    script.ask(3, host(3, 7), host(3, 100), true);
    script.forget();
    let prune = (1, host(1, 254), false);
    script.ask(3, host(3, 7), host(3, 100), false);
    assert_eq!(script.asked(), [prune]);
    for ms in [500, 1_000, 2_000, 4_000] {
        script.wait(Duration::from_millis(ms - 1));
        assert_eq!(script.asked(), [], "{ms}");
        script.wait(Duration::from_millis(1));
        assert_eq!(script.asked(), [prune], "{ms}");
    }
    script.wait(seconds(90));
    assert_eq!(script.asked(), []);
}

#[test]
fn a_prune_is_not_said_again_once_the_channel_is_joined_again() {
    let mut script = with_upstream();
    script.hello(3, host(3, 7), 1);
    for is_join in [true, false, true] {
        script.ask(3, host(3, 7), host(3, 100), is_join);
    }
    script.forget();
    script.wait(seconds(20));
    assert!(script.asked().iter().all(|(_, _, is_join)| *is_join));
    assert_eq!(script.outputs(), None, "nothing changed");
}

#[test]
fn the_last_neighbour_takes_its_joins_with_it() {
    let mut script = with_upstream();
    script.hello(3, host(3, 7), 1);
    script.ask(3, host(3, 7), host(3, 100), true);
    assert_eq!(script.outputs(), Some(vec![3]));
    let goodbye = Hello { holdtime_s: Some(0), ..Hello::default() };
    script.pim(3, host(3, 7), &Message::Hello(goodbye));
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn on_a_lan_others_may_override_a_prune() {
    let mut script = with_upstream();
    for router in [7, 8] {
        script.hello(3, host(3, router), 1);
    }
    script.ask(3, host(3, 7), host(3, 100), true);
    script.forget();
    script.ask(3, host(3, 7), host(3, 100), false);
    script.wait(seconds(2));
    assert!(script.changes.is_empty());
    script.ask(3, host(3, 8), host(3, 100), true);
    script.wait(seconds(5));
    assert!(script.changes.is_empty(), "it was overridden");
    script.forget();
    script.ask(3, host(3, 8), host(3, 100), false);
    script.wait(Duration::from_millis(3_001));
    assert_eq!(script.outputs(), Some(vec![]));
    // Routers that missed the prune hear its echo.
    assert_eq!(script.asked(), [(1, host(1, 254), false), (3, host(3, 100), false)]);
}

#[test]
fn a_prune_waits_as_long_as_the_slowest_neighbour_says() {
    let mut script = with_upstream();
    for (router, override_ms) in [(7, 100), (8, 4000)] {
        let lan_prune_delay = Some(LanPruneDelay {
            tracking: false,
            propagation: Duration::from_secs(1),
            override_interval: Duration::from_millis(override_ms),
        });
        let hello = Hello { generation: Some(1), lan_prune_delay, ..Hello::default() };
        script.pim(3, host(3, router), &Message::Hello(hello));
    }
    script.ask(3, host(3, 7), host(3, 100), true);
    script.ask(3, host(3, 7), host(3, 100), false);
    script.wait(Duration::from_millis(4_999));
    assert_eq!(script.outputs(), Some(vec![3]));
    script.wait(Duration::from_millis(2));
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn an_overheard_prune_is_overridden_and_an_overheard_join_saves_ones_own() {
    let mut script = with_upstream();
    script.hello(1, host(1, 7), 1);
    want(&mut script);
    script.asked();
    script.wait(seconds(20));
    assert_eq!(script.asked(), [(1, host(1, 254), true)], "once more, if the first was lost");
    script.ask(1, host(1, 7), host(1, 254), false);
    script.wait(Duration::from_millis(2_501));
    assert_eq!(script.asked(), [(1, host(1, 254), true)]);
    script.wait(seconds(30));
    script.ask(1, host(1, 7), host(1, 254), true);
    script.hello(1, host(1, 254), 1);
    // Its own was due after 30 s more; now after 66 s to 84 s.
    script.wait(seconds(65));
    assert!(script.asked().is_empty());
    script.wait(seconds(20));
    assert_eq!(script.asked(), [(1, host(1, 254), true)]);
}

#[test]
fn a_change_of_routes_moves_the_tree() {
    let mut script = with_upstream();
    script.hello(3, host(3, 7), 1);
    want(&mut script);
    script.forget();
    let gateway = Some(host(3, 7));
    script.routes.gateway = Some(NextHop { interface: InterfaceId(3), gateway, metric: 1 });
    script.plane.routes_changed(script.now, &script.routes);
    script.drain();
    let (input, outputs) = (InterfaceId(3), vec![InterfaceId(2)]);
    assert_eq!(script.changes, [ForwardingChange::Set { channel: CHANNEL, input, outputs }]);
    assert_eq!(script.asked(), [(1, host(1, 254), false), (3, host(3, 7), true)]);
    script.routes.gateway = None;
    script.plane.routes_changed(script.now, &script.routes);
    script.drain();
    assert_eq!(script.asked(), [(3, host(3, 7), false)]);
    assert_eq!((tree(&script).input, tree(&script).joined), (None, None));
}

#[test]
fn without_a_gateway_the_only_neighbour_is_joined() {
    for gateway in [None, Some("fe80::1".parse().unwrap())] {
        let mut script = Script::settled(ControlConfig::default());
        script.routes.gateway = Some(NextHop { interface: InterfaceId(1), gateway, metric: 1 });
        want(&mut script);
        assert_eq!((tree(&script).input, tree(&script).joined), (Some(1), None));
        let said = tree(&script).problem;
        assert_eq!(said.is_some(), gateway.is_some(), "the source may be there itself: {said:?}");
        script.hello(1, host(1, 254), 1);
        assert_eq!((tree(&script).joined, tree(&script).problem), (Some(host(1, 254)), None));
        // With a second one it is not known which.
        script.hello(1, host(1, 253), 1);
        assert_eq!(tree(&script).joined, None);
        assert!(tree(&script).problem.unwrap().contains("none of the PIM neighbours"));
    }
}

#[test]
fn a_source_on_the_link_is_asked_of_no_router() {
    let mut script = with_upstream();
    let source = host(1, 9);
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[source])]);
    assert_eq!((tree(&script).joined, tree(&script).problem), (None, None));
    assert_eq!(script.asked(), []);
}

#[test]
fn a_next_hop_that_is_no_neighbour_is_named() {
    let mut script = Script::settled(ControlConfig::default());
    want(&mut script);
    let problem = tree(&script).problem.unwrap();
    assert!(problem.contains("10.0.1.254") && problem.contains("eth1"), "{problem}");
    script.routes.gateway = None;
    script.plane.routes_changed(script.now, &script.routes);
    script.drain();
    assert!(tree(&script).problem.unwrap().contains("no unicast route"));
}

#[test]
fn neighbours_and_hosts_are_on_a_link_without_a_subnet_if_routes_lead_to_them() {
    let far = |n: u8| [10, 2, 0, n].into();
    let mut script = with_upstream();
    script.hello(3, far(7), 1);
    script.ask(3, far(7), host(3, 100), true);
    assert_eq!(script.outputs(), Some(vec![3]));
    script.ask(3, far(7), host(3, 100), false);
    script.report(3, far(8), vec![record(RecordType::Allow, &[SOURCE])]);
    assert_eq!(script.outputs(), Some(vec![3]));
    // No route leads to them by the second link.
    script.hello(2, far(7), 1);
    assert_eq!(script.plane.drops().of(DropReason::OffLink), 1);
}

#[test]
fn the_designated_router_speaks_for_the_hosts() {
    let mut script = with_upstream();
    want(&mut script);
    assert_eq!(script.outputs(), Some(vec![2]));
    // A higher address of the same priority.
    script.hello(2, host(2, 200), 1);
    let status = script.plane.status(script.now);
    assert_eq!(status.interfaces[1].links[0].designated_router, host(2, 200));
    assert_eq!(script.outputs(), Some(vec![2]), "it may have no way to the source");
    script.see(2);
    assert_eq!(script.outputs(), Some(vec![]));
    script.wait(seconds(9));
    script.see(2);
    script.wait(seconds(9));
    assert_eq!(script.outputs(), Some(vec![]));
    script.wait(seconds(2));
    assert_eq!(script.outputs(), Some(vec![2]), "it has gone, or the channel is silent");
    script.see(2);
    assert_eq!(script.outputs(), Some(vec![]));
    // It is forgotten.
    script.wait(seconds(106));
    script.see(2);
    assert_eq!(script.outputs(), Some(vec![2]));
    // One without priorities makes the address decide.
    script.pim(2, host(2, 7), &Message::Hello(Hello::default()));
    script.see(2);
    assert_eq!(script.outputs(), Some(vec![2]));
}

#[test]
fn a_strangers_hello_takes_nothing_from_a_link_of_hosts() {
    let hello = |priority| {
        let (holdtime_s, dr_priority) = (Some(0xFFFF), Some(priority));
        Message::Hello(Hello { holdtime_s, dr_priority, ..Hello::default() })
    };
    let mut script = Script::with_hosts(ControlConfig::default());
    script.hello(1, host(1, 254), 1);
    want(&mut script);
    assert!(hellos(&mut script).iter().all(|(interface, _)| *interface != 2), "it says none");
    script.pim(2, host(2, 9), &hello(u32::MAX));
    script.pim(2, host(2, 9), &claim(0));
    script.ask(2, host(2, 9), host(2, 100), true);
    assert_eq!(script.plane.drops().of(DropReason::NotNamed), 3);
    let link = script.plane.status(script.now).interfaces[1].links[0].clone();
    assert_eq!((link.pim, link.neighbours.len()), (PimRole::Passive, 0));
    assert_eq!(link.refused, Some(host(2, 9)));
    // On a link that routes lead through it is a neighbour. It is not believed to forward.
    let record = record(RecordType::Allow, &[SOURCE]);
    script.report(3, host(3, 5), vec![record]);
    assert_eq!(script.outputs(), Some(vec![2, 3]));
    script.pim(3, host(3, 9), &hello(u32::MAX));
    script.pim(3, host(3, 9), &claim(0));
    assert_eq!(script.outputs(), Some(vec![2, 3]));
}

#[test]
fn where_neighbours_are_named_no_other_is_believed() {
    let mut config = ControlConfig::default();
    let named = |address, interface: Option<&str>| NamedNeighbour {
        address,
        interface: interface.map(str::to_owned),
    };
    config.pim.neighbours = vec![named(host(2, 7), None), named(host(3, 7), Some("eth1"))];
    config.pim.passive = vec!["eth1".to_owned()];
    let mut script = Script::with_hosts(config);
    for interface in [1, 2, 3] {
        script.hello(interface, host(interface, 9), 1);
        script.hello(interface, host(interface, 7), 1);
    }
    let status = script.plane.status(script.now);
    let of = |n: usize| {
        let link = &status.interfaces[n - 1].links[0];
        let neighbours = link.neighbours.iter().map(|neighbour| neighbour.address);
        (link.pim.clone(), neighbours.collect::<Vec<_>>())
    };
    assert_eq!(of(1), (PimRole::Passive, vec![]));
    assert_eq!(of(2), (PimRole::Named(vec![host(2, 7)]), vec![host(2, 7)]));
    assert_eq!(of(3), (PimRole::Routed, vec![host(3, 7), host(3, 9)]));
}

#[test]
fn pim_begins_and_ends_with_the_routes_through_a_link() {
    let mut script = Script::with_hosts(ControlConfig::default());
    let second = InterfaceAddress { address: host(2, 200), prefix_len: 24 };
    let mut of_two = info(2);
    of_two.addresses.push(second);
    let (now, id) = (script.now, InterfaceId(2));
    script.plane.interface_up(now, &script.routes, id, of_two);
    script.drain();
    script.forget();
    script.routes.of_hosts = vec![3];
    script.plane.routes_changed(script.now, &script.routes);
    script.wait(Duration::from_millis(101));
    let said: Vec<_> =
        hellos(&mut script).into_iter().map(|(on, hello)| (on, hello.addresses)).collect();
    assert_eq!(said, [(2, vec![host(2, 200)])], "gateways of routes are found by it");
    script.hello(2, host(2, 7), 1);
    script.ask(2, host(2, 7), host(2, 100), true);
    assert_eq!(script.outputs(), Some(vec![2]));
    script.routes.of_hosts = vec![2, 3];
    script.plane.routes_changed(script.now, &script.routes);
    script.drain();
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn where_pim_is_not_spoken_the_querier_forwards_while_its_packets_are_seen() {
    let mut script = Script::with_hosts(ControlConfig::default());
    want(&mut script);
    // Another router that forwards is answered by nothing; it yields.
    script.see(2);
    assert_eq!(script.outputs(), Some(vec![2]));
    let query = umbel_wire::membership::Query {
        version: umbel_wire::membership::Version::Igmp3,
        group: None,
        sources: Vec::new(),
        max_response: seconds(10),
        suppress: false,
        robustness: 2,
        interval: seconds(125),
    };
    script.igmp(2, host(2, 9), &umbel_wire::membership::Message::Query(query));
    assert_eq!(script.outputs(), Some(vec![]), "its packets were seen");
    script.wait(seconds(11));
    assert_eq!(script.outputs(), Some(vec![2]), "it asks, and forwards nothing");
}

#[test]
fn what_is_about_shared_trees_is_dropped() {
    let mut script = with_upstream();
    script.hello(3, host(3, 7), 1);
    let shared = pim::JoinedSource { source: SOURCE, is_specific: false };
    let group = pim::JoinPruneGroup {
        group: GROUP,
        is_specific: true,
        joins: vec![shared],
        prunes: vec![],
    };
    let upstream = host(3, 100);
    let message = pim::JoinPrune { upstream, holdtime_s: 210, groups: vec![group] };
    script.pim(3, host(3, 7), &Message::JoinPrune(message));
    assert_eq!(script.plane.drops().of(DropReason::SharedTree), 1);
    // Register.
    script.give(3, host(3, 7), Protocol::Pim, &[0x21, 0, 0xDE, 0xFF, 0, 0, 0, 0]);
    assert_eq!(script.plane.drops().of(DropReason::OtherType), 1);
    assert!(script.changes.is_empty());
}

/// Returns a claim of [`CHANNEL`] by preference 1, as this router has it.
fn claim(metric: u32) -> Message {
    let (group, source) = (GROUP, SOURCE);
    Message::Assert(Assert { group, source, shared: false, preference: 1, metric })
}

fn claims(script: &mut Script) -> Vec<(u32, u32)> {
    let claim = |(interface, message)| match message {
        Message::Assert(assert) => Some((interface, assert.metric)),
        _ => None,
    };
    script.pim_sent().into_iter().filter_map(claim).collect()
}

/// Returns a script that forwards to interface 3, where two more routers are.
fn contested() -> Script {
    let mut script = with_upstream();
    for router in [7, 8] {
        script.hello(3, host(3, router), 1);
    }
    script.ask(3, host(3, 8), host(3, 100), true);
    script.forget();
    script
}

#[test]
fn a_packet_from_another_forwarder_is_answered_with_an_assert() {
    let mut script = contested();
    for _ in 0..10 {
        script.plane.wrong_interface(script.now, &script.routes, CHANNEL, InterfaceId(3));
    }
    script.drain();
    assert_eq!(claims(&mut script), [(3, 5)], "one a second");
    // A worse claim is answered, and nothing changes.
    script.wait(seconds(2));
    script.pim(3, host(3, 7), &claim(6));
    assert_eq!(claims(&mut script), [(3, 5)]);
    assert!(script.changes.is_empty());
    // Where the channel does not go, nothing is claimed.
    script.plane.wrong_interface(script.now, &script.routes, CHANNEL, InterfaceId(2));
    script.drain();
    assert!(claims(&mut script).is_empty());
}

#[test]
fn the_better_claim_wins_until_it_ends() {
    let mut script = contested();
    script.pim(3, host(3, 7), &claim(4));
    assert_eq!(script.outputs(), None, "nothing changes until its packets are seen");
    script.see(3);
    assert_eq!(script.outputs(), Some(vec![]));
    assert_eq!(tree(&script).outputs[0].lost_to, Some(host(3, 7)));
    // A neighbour that joins this router wants it to forward.
    script.ask(3, host(3, 8), host(3, 100), true);
    assert_eq!(script.outputs(), Some(vec![3]));
    script.pim(3, host(3, 7), &claim(4));
    assert_eq!(script.outputs(), Some(vec![]));
    // The winner gives up.
    script.pim(
        3,
        host(3, 7),
        &Message::Assert(Assert {
            group: GROUP,
            source: SOURCE,
            shared: false,
            preference: (1 << 31) - 1,
            metric: u32::MAX,
        }),
    );
    assert_eq!(script.outputs(), Some(vec![3]));
    script.pim(3, host(3, 7), &claim(4));
    assert_eq!(script.outputs(), Some(vec![]));
    // The winner restarts.
    script.hello(3, host(3, 7), 2);
    assert_eq!(script.outputs(), Some(vec![3]));
    assert_eq!(script.plane.drops().total(), 0);
}

#[test]
fn joins_go_to_the_winner_of_an_assert_upstream() {
    let mut script = with_upstream();
    script.hello(1, host(1, 9), 1);
    want(&mut script);
    assert_eq!(script.asked(), [(1, host(1, 254), true)]);
    script.pim(1, host(1, 9), &claim(1));
    assert_eq!(script.asked(), [(1, host(1, 9), true), (1, host(1, 254), false)]);
    script.wait(seconds(100));
    for router in [9, 254] {
        script.hello(1, host(1, router), 1);
    }
    script.asked();
    script.wait(seconds(81));
    assert_eq!(tree(&script).joined, Some(host(1, 254)), "it was not said again");
}

#[test]
fn whoever_leaves_says_goodbye_after_its_prunes() {
    let mut script = with_upstream();
    want(&mut script);
    script.forget();
    script.plane.leave(script.now);
    script.drain();
    let sent = script.pim_sent();
    assert!(matches!(sent[0].1, Message::JoinPrune(_)));
    let goodbyes = sent[1..].iter().filter(
        |(_, message)| matches!(message, Message::Hello(hello) if hello.holdtime_s == Some(0)),
    );
    assert_eq!((goodbyes.count(), sent.len()), (3, 4));
}
