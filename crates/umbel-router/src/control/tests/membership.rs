//! Membership on one link, and what follows from it.

use std::time::Duration;

use umbel_engine::router::{InterfaceId, Routes as _, Upstream};
use umbel_wire::Channel;
use umbel_wire::membership::{Message, Offer, Query, Record, RecordType, Report, Version};

use super::script::{CHANNEL, GROUP, OTHER_SOURCE, SOURCE, Script, host, info, record};
use crate::control::{ControlConfig, DropReason, ForwardingChange, Protocol, SourceGroup};

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn general_query(from_version: Version) -> Message {
    let has_sources = from_version.has_sources();
    Message::Query(Query {
        version: from_version,
        group: None,
        sources: Vec::new(),
        max_response: seconds(10),
        suppress: false,
        robustness: if has_sources { 2 } else { 0 },
        interval: if has_sources { seconds(60) } else { Duration::ZERO },
    })
}

#[test]
fn a_router_asks_at_once_and_then_at_intervals() {
    let mut script = Script::start(ControlConfig::default());
    let queries = script.queries();
    assert_eq!(queries.iter().map(|(interface, _)| *interface).collect::<Vec<_>>(), [1, 2, 3]);
    let first = &queries[0].1;
    assert_eq!((first.group, first.robustness, first.interval), (None, 2, seconds(125)));
    assert_eq!(first.max_response, seconds(1), "soon after a start");
    script.wait(seconds(32));
    let second = script.queries();
    assert_eq!((second.len(), second[0].1.max_response), (3, seconds(1)));
    script.wait(seconds(125));
    let third = script.queries();
    assert_eq!((third.len(), third[0].1.max_response), (3, seconds(10)));
}

#[test]
fn the_router_with_the_lowest_address_asks_until_it_is_silent() {
    let mut script = Script::settled(ControlConfig::default());
    // A higher address changes nothing.
    script.igmp(2, host(2, 200), &general_query(Version::Igmp3));
    let is_querier = |script: &Script| {
        let status = script.plane.status(script.now);
        status.interfaces.iter().map(|of| of.links[0].querier.is_me).collect::<Vec<_>>()
    };
    assert_eq!(is_querier(&script), [true, true, true]);
    script.igmp(2, host(2, 1), &general_query(Version::Igmp3));
    assert_eq!(is_querier(&script), [true, false, true]);
    script.wait(seconds(120));
    assert!(script.queries().iter().all(|(interface, _)| *interface != 2));
    // Twice its interval and half of the response time.
    script.wait(seconds(6));
    assert!(script.queries().iter().any(|(interface, _)| *interface == 2));
    assert_eq!(is_querier(&script), [true, true, true]);
}

#[test]
fn a_switch_that_asks_without_an_address_is_no_querier() {
    let mut script = Script::settled(ControlConfig::default());
    script.igmp(2, [0, 0, 0, 0].into(), &general_query(Version::Igmp3));
    assert!(script.plane.status(script.now).interfaces[1].links[0].querier.is_me);
}

#[test]
fn an_older_querier_is_told() {
    let mut script = Script::settled(ControlConfig::default());
    script.igmp(2, host(2, 200), &general_query(Version::Igmp2));
    let status = script.plane.status(script.now);
    assert_eq!(
        status.interfaces[1].links[0].querier.older,
        Some((host(2, 200), "IGMPv2".to_owned()))
    );
}

#[test]
fn a_report_makes_a_tree_and_the_last_leave_ends_it_at_once() {
    let mut script = Script::settled(ControlConfig::default());
    script.hello(1, host(1, 254), 1);
    script.forget();
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    let set = ForwardingChange::Set {
        channel: CHANNEL,
        input: InterfaceId(1),
        outputs: vec![InterfaceId(2)],
    };
    assert_eq!(script.changes, [set]);
    assert_eq!(script.asked(), [(1, host(1, 254), true)]);
    script.report(2, host(2, 6), vec![record(RecordType::IsInclude, &[SOURCE])]);
    script.report(3, host(3, 5), vec![record(RecordType::ToInclude, &[SOURCE])]);
    assert_eq!(script.outputs(), Some(vec![2, 3]));
    script.report(2, host(2, 5), vec![record(RecordType::Block, &[SOURCE])]);
    assert_eq!(script.outputs(), Some(vec![2, 3]), "another host remains");
    script.report(2, host(2, 6), vec![record(RecordType::ToInclude, &[])]);
    assert_eq!(script.outputs(), Some(vec![3]));
    assert!(script.asked().is_empty());
    script.report(3, host(3, 5), vec![record(RecordType::Block, &[SOURCE])]);
    // Packets under way are discarded without asking again.
    assert_eq!(script.outputs(), Some(vec![]));
    assert_eq!(script.asked(), [(1, host(1, 254), false)]);
    assert!(script.queries().is_empty(), "nobody had to be asked");
    script.wait(seconds(211));
    assert_eq!(script.outputs(), None);
    assert_eq!(script.plane.status(script.now).trees.len(), 0);
    assert_eq!(script.plane.drops().total(), 0);
}

#[test]
fn before_all_hosts_are_known_the_last_member_is_asked_for() {
    let mut script = Script::start(ControlConfig::default());
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.forget();
    script.report(2, host(2, 5), vec![record(RecordType::Block, &[SOURCE])]);
    let queries = script.queries();
    assert_eq!(queries.len(), 1);
    assert_eq!(queries[0].0, 2);
    assert_eq!((queries[0].1.group, &queries[0].1.sources[..]), (Some(GROUP), &[SOURCE][..]));
    assert!(script.changes.is_empty());
    // A host that was unknown answers.
    script.wait(Duration::from_millis(500));
    script.report(2, host(2, 6), vec![record(RecordType::IsInclude, &[SOURCE])]);
    script.wait(seconds(3));
    assert!(script.changes.is_empty() && script.queries().is_empty());
    script.report(2, host(2, 6), vec![record(RecordType::Block, &[SOURCE])]);
    script.wait(Duration::from_millis(1_500));
    assert_eq!(script.queries().len(), 2, "as many as may be lost");
    script.wait(Duration::from_millis(600));
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn without_fast_leave_members_are_always_asked_for() {
    let mut config = ControlConfig::default();
    config.membership.fast_leave = false;
    let mut script = Script::settled(config);
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.report(2, host(2, 5), vec![record(RecordType::Block, &[SOURCE])]);
    assert_eq!((script.queries().len(), script.outputs()), (1, Some(vec![2])));
    script.wait(Duration::from_millis(2_100));
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn a_router_that_is_not_the_querier_believes_the_queriers_questions() {
    let mut script = Script::settled(ControlConfig::default());
    script.igmp(2, host(2, 1), &general_query(Version::Igmp3));
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.igmp(
        2,
        host(2, 1),
        &Message::Query(Query {
            version: Version::Igmp3,
            group: Some(GROUP),
            sources: vec![SOURCE],
            max_response: seconds(1),
            suppress: false,
            robustness: 2,
            interval: seconds(60),
        }),
    );
    script.wait(Duration::from_millis(1_900));
    assert_eq!(script.outputs(), Some(vec![2]));
    script.wait(Duration::from_millis(200));
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn a_question_that_hosts_do_not_hear_or_that_another_router_asks_ends_no_membership() {
    let mut script = Script::settled(ControlConfig::default());
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    let query = Query {
        version: Version::Igmp3,
        group: Some(GROUP),
        sources: vec![],
        max_response: Duration::from_millis(100),
        suppress: false,
        robustness: 1,
        interval: seconds(1),
    };
    let general = Query { group: None, ..query.clone() };
    for (from, query) in [(1, &query), (1, &general), (200, &query)] {
        let mut payload = Vec::new();
        umbel_wire::igmp::emit(&Message::Query(query.clone()), &mut payload);
        let to = if from == 200 { GROUP } else { host(2, 100) };
        script.give_to(2, (host(2, from), to), Protocol::Igmp, &payload);
    }
    assert_eq!(script.plane.drops().of(DropReason::Unheard), 2);
    // One that asks often, once, ends none before this router asks again.
    script.igmp(2, host(2, 1), &Message::Query(general));
    script.report(2, host(2, 5), vec![record(RecordType::IsInclude, &[SOURCE])]);
    script.wait(seconds(100));
    assert_eq!(script.outputs(), Some(vec![2]));
}

#[test]
fn a_host_that_falls_silent_is_forgotten() {
    let mut script = Script::settled(ControlConfig::default());
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.wait(seconds(200));
    script.report(2, host(2, 5), vec![record(RecordType::IsInclude, &[SOURCE])]);
    // Twice the interval and the response time.
    script.wait(seconds(259));
    assert_eq!(script.outputs(), Some(vec![2]));
    script.wait(seconds(2));
    assert_eq!(script.outputs(), Some(vec![]));
}

#[test]
fn hosts_of_igmp_2_are_served_outside_the_source_specific_range_and_told() {
    let mut script = Script::settled(ControlConfig::default());
    let group = [239, 1, 1, 1].into();
    let old = |group| Message::OldReport { version: Version::Igmp2, group };
    script.igmp(2, host(2, 5), &old(group));
    script.igmp(2, host(2, 5), &old(GROUP));
    assert_eq!(script.plane.drops().of(DropReason::AnySource), 1);
    let member = &script.plane.status(script.now).interfaces[1].links[0].members[0];
    assert_eq!((member.version.as_str(), member.host), ("IGMPv2", host(2, 5)));
    assert_eq!(member.any_source_but, Some(vec![]));
    // A source on a link of this router, of which nobody knew.
    let channel = SourceGroup { group, source: host(3, 9) };
    script.plane.unresolved(script.now, &script.routes, channel, InterfaceId(3));
    script.drain();
    let (input, outputs) = (InterfaceId(3), vec![InterfaceId(2)]);
    assert_eq!(script.changes, [ForwardingChange::Set { channel, input, outputs }]);
    // Members of older versions keep silent when another answers, so that all are asked.
    script.igmp(2, host(2, 6), &old(group));
    script.igmp(2, host(2, 5), &Message::Leave { version: Version::Igmp2, group });
    let queries = script.queries();
    assert_eq!((queries.len(), queries[0].1.group), (1, Some(group)));
    script.igmp(2, host(2, 6), &old(group));
    script.wait(seconds(5));
    assert_eq!(script.changes.len(), 1);
    script.igmp(2, host(2, 6), &Message::Leave { version: Version::Igmp2, group });
    script.wait(seconds(5));
    let outputs = vec![];
    assert_eq!(script.changes.last(), Some(&ForwardingChange::Set { channel, input, outputs }));
}

#[test]
fn packets_that_nobody_wants_are_discarded_for_a_while() {
    let mut script = Script::settled(ControlConfig::default());
    let heard = |script: &mut Script, channel| {
        script.plane.unresolved(script.now, &script.routes, channel, InterfaceId(1));
        script.drain();
    };
    heard(&mut script, CHANNEL);
    assert_eq!(script.outputs(), Some(vec![]));
    script.wait(seconds(211));
    assert_eq!((script.outputs(), script.changes.len()), (None, 2));
    for n in 0..2000_u16 {
        let [high, low] = n.to_be_bytes();
        heard(&mut script, SourceGroup { group: GROUP, source: [10, 1, high, low].into() });
    }
    assert_eq!(script.plane.status(script.now).trees.len(), 1024);
    assert_eq!(script.plane.drops().of(DropReason::TreesOverLimit), 2000 - 1024);
    // They leave room for what somebody wants.
    let wanted = SourceGroup { group: GROUP, source: [10, 1, 200, 1].into() };
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[wanted.source])]);
    let (input, outputs) = (InterfaceId(1), vec![InterfaceId(2)]);
    let set = ForwardingChange::Set { channel: wanted, input, outputs };
    assert_eq!(script.changes.last(), Some(&set));
    script.wait(seconds(211));
    assert_eq!(script.plane.status(script.now).trees.len(), 1);
}

#[test]
fn a_host_that_sends_to_channels_without_end_leaves_others_theirs() {
    let mut script = Script::settled(ControlConfig::default());
    let heard = |script: &mut Script, source, n: u16| {
        let [high, low] = n.to_be_bytes();
        let channel = SourceGroup { group: [232, 7, high, low].into(), source };
        script.plane.unresolved(script.now, &script.routes, channel, InterfaceId(3));
        script.drain();
    };
    for n in 0..10_000 {
        heard(&mut script, host(3, 9), n);
    }
    let trees = |script: &Script| script.plane.status(script.now).trees.len();
    assert_eq!(trees(&script), 256);
    for n in 0..10 {
        heard(&mut script, host(3, 10), n);
    }
    assert_eq!(trees(&script), 266);
}

#[test]
fn offers_come_with_reports_and_end_with_the_membership() {
    let mut script = Script::settled(ControlConfig::default());
    let report = |cost, kind| {
        let offer = Some(Offer { cost, channel_port: 7702, host_port: 7703 });
        Message::Report(Report { records: vec![record(kind, &[SOURCE])], offer })
    };
    let mut heard = |message: &Message| {
        script.igmp(2, host(2, 5), message);
        let heard: Vec<_> = script.costs.drain(..).collect();
        for cost in &heard {
            assert_eq!(cost.channel, Channel { source: Some(SOURCE), group: GROUP, port: 7702 });
            assert_eq!((cost.interface.0, cost.host), (2, (host(2, 5), 7703).into()));
        }
        heard.into_iter().map(|cost| cost.cost).collect::<Vec<_>>()
    };
    assert_eq!(heard(&report(Some(4), RecordType::IsInclude)), [Some(4)]);
    // Said again, it is renewed.
    assert_eq!(heard(&report(Some(3), RecordType::IsInclude)), [Some(3)]);
    assert_eq!(heard(&report(None, RecordType::IsInclude)), [None]);
    assert_eq!(heard(&report(None, RecordType::IsInclude)), []);
    assert_eq!(heard(&report(Some(3), RecordType::IsInclude)), [Some(3)]);
    let records = vec![record(RecordType::Block, &[SOURCE])];
    assert_eq!(heard(&Message::Report(Report { records, offer: None })), [None]);
    // Offers end with the interface, too.
    assert_eq!(heard(&report(Some(3), RecordType::IsInclude)), [Some(3)]);
    script.plane.interface_down(script.now, &script.routes, InterfaceId(2));
    script.drain();
    assert_eq!(script.costs.len(), 1);
    assert_eq!(script.costs[0].cost, None);
}

#[test]
fn router_engines_see_the_trees() {
    let mut script = Script::settled(ControlConfig::default());
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    let channel = |source| Channel { source, group: GROUP, port: 7702 };
    let (plane, mut to) = (&mut script.plane, Vec::new());
    assert_eq!(plane.upstream(&channel(Some(SOURCE))), Some(Upstream::Interface(InterfaceId(1))));
    assert_eq!(plane.upstream(&channel(Some(OTHER_SOURCE))), None);
    assert_eq!(plane.upstream(&channel(None)), None);
    assert!(plane.is_downstream(&channel(Some(SOURCE)), InterfaceId(2)));
    assert!(!plane.is_downstream(&channel(Some(SOURCE)), InterfaceId(3)));
    plane.downstream(&channel(Some(SOURCE)), &mut to);
    assert_eq!(to, [InterfaceId(2)]);
    to.clear();
    plane.interfaces(&mut to);
    assert_eq!(to, [1, 2, 3].map(InterfaceId));
    assert!(plane.is_attached(host(3, 9)) && !plane.is_attached(SOURCE));
}

#[test]
fn tables_have_bounds_and_say_so() {
    let mut script = Script::settled(ControlConfig::default());
    // More sources than one host may name.
    let sources: Vec<_> = (1..=100).map(|n| [10, 1, 1, n].into()).collect();
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &sources)]);
    assert_eq!(script.plane.drops().of(DropReason::SourcesOverLimit), 36);
    // More groups than one host may join.
    let groups = (1..=100).map(|n| Record {
        kind: RecordType::Allow,
        group: [232, 2, 0, n].into(),
        sources: vec![SOURCE],
    });
    script.report(2, host(2, 6), groups.collect());
    assert_eq!(script.plane.drops().of(DropReason::GroupsOverLimit), 36);
    // More reports than one host may send; others are heard.
    for _ in 0..300 {
        script.report(2, host(2, 7), vec![record(RecordType::Allow, &[SOURCE])]);
    }
    // The first makes it a member, which then has its own allowance.
    assert_eq!(script.plane.drops().of(DropReason::Flood), 99);
    let before = script.plane.status(script.now).interfaces[1].links[0].members.len();
    script.report(2, host(2, 8), vec![record(RecordType::Allow, &[SOURCE])]);
    let after = script.plane.status(script.now).interfaces[1].links[0].members.len();
    assert_eq!(after, before + 1);
}

#[test]
fn what_does_not_come_from_the_link_is_dropped() {
    let mut script = Script::settled(ControlConfig::default());
    script.report(2, host(3, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.report(2, host(2, 100), vec![record(RecordType::Allow, &[SOURCE])]);
    script.report(9, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.give(2, host(2, 5), Protocol::Igmp, &[0x22, 0, 1, 2]);
    script.give(2, host(2, 5), Protocol::Igmp, &[0x13, 0, 1, 2]);
    let drops = script.plane.drops();
    for reason in [
        DropReason::OffLink,
        DropReason::Own,
        DropReason::NoSuchInterface,
        DropReason::Malformed,
        DropReason::OtherType,
    ] {
        assert_eq!(drops.of(reason), 1, "{reason:?}");
    }
    assert!(script.changes.is_empty());
}

#[test]
fn an_interface_that_vanishes_takes_its_members_and_comes_back_without() {
    let mut script = Script::settled(ControlConfig::default());
    script.report(2, host(2, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.report(3, host(3, 5), vec![record(RecordType::Allow, &[SOURCE])]);
    script.plane.interface_down(script.now, &script.routes, InterfaceId(2));
    script.drain();
    assert_eq!(script.outputs(), Some(vec![3]));
    script.plane.interface_up(script.now, &script.routes, InterfaceId(2), info(2));
    script.drain();
    assert_eq!(script.outputs(), Some(vec![3]));
    assert_eq!(script.queries().len(), 1, "it asks at once who is there");
    script.report(2, host(2, 5), vec![record(RecordType::IsInclude, &[SOURCE])]);
    assert_eq!(script.outputs(), Some(vec![2, 3]));
    // With another address it is another link.
    let mut moved = info(2);
    moved.addresses[0].address = host(2, 101);
    script.plane.interface_up(script.now, &script.routes, InterfaceId(2), moved);
    script.drain();
    assert_eq!(script.outputs(), Some(vec![3]));
}
