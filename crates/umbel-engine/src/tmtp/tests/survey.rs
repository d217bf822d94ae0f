//! The control tree as a stranger sees it, at no cost to others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Parsed;
use umbel_wire::tmtp::{Body, Message, NodeId, Role, TreeEntry, TreePage};

use super::delivery::rate;
use super::world::{FEED, Weather, World};
use crate::Address;
use crate::tmtp::DropReason;

const LONG: Duration = Duration::from_mins(1);

/// Returns a source and receivers in five subnets, joined.
fn joined() -> World {
    let shape = World::shape(10, true);
    let mut world = World::new(5, vec![10; 50], shape, rate(100_000), |config| config);
    for subnet in [0, 0, 1, 1, 2, 3, 3, 3, 4] {
        world.add_receiver(subnet, shape, |config| config);
        world.run_for(Duration::from_millis(20));
    }
    world.run_until(LONG, |world| world.source().stats().totals.members == 9);
    world
}

fn stranger() -> SocketAddr {
    ([10, 0, 9, 9], 5000).into()
}

fn parse(payload: &[u8]) -> Option<Message> {
    Message::parse(payload).ok().and_then(Parsed::message)
}

/// Returns the source's answer to a query.
fn page(world: &mut World, cookie: u64, after: Option<NodeId>) -> TreePage {
    let body = Body::TreeQuery { nonce: 7, cookie, after };
    let mut query = Vec::new();
    Message { feed: FEED, sender: NodeId(1), body }.emit(&mut query);
    world.log = Some(Vec::new());
    let by = Address::Host(stranger());
    world.give(0, by, &query);
    let log = world.log.take().unwrap();
    let answer = log.iter().find(|sent| sent.to == Address::Host(stranger())).unwrap();
    match parse(&answer.payload).unwrap().body {
        Body::TreePage(page) => page,
        other => panic!("{other:?}"),
    }
}

/// Returns all nodes, by their numbers.
fn look(world: &mut World, cookie: u64) -> BTreeMap<NodeId, TreeEntry> {
    let (mut after, mut nodes) = (None, BTreeMap::new());
    loop {
        let page = page(world, cookie, after);
        after = page.entries.last().map(|entry| entry.node);
        nodes.extend(page.entries.into_iter().map(|entry| (entry.node, entry)));
        if !page.more {
            return nodes;
        }
    }
}

#[test]
fn whoever_asks_sees_the_whole_tree_as_it_is() {
    let mut world = joined();
    world.set_weather(Weather::loss(0.02));
    world.extend_all();
    world.may_drop(DropReason::NoCookie);
    let cookie = page(&mut world, 0, None).cookie;
    let _ = look(&mut world, cookie);
    world.run_for(Duration::from_secs(4));
    let nodes = look(&mut world, cookie);
    assert_eq!(nodes.len(), 10, "{nodes:#?}");
    for index in world.receivers() {
        let view = world.receiver(index).tree();
        let name = format!("node-{index}");
        let entry = nodes.values().find(|entry| entry.name == name).unwrap();
        let path = (view.path.last().copied().unwrap(), view.path[view.path.len() - 2]);
        assert_eq!((entry.node, entry.parent.unwrap()), path);
        assert_eq!((entry.role, usize::from(entry.depth)), (view.role, view.path.len() - 1));
        assert_eq!(entry.hops, view.parent.unwrap().2);
        if view.role == Role::Manager {
            assert_eq!((entry.members, entry.children), (view.members, view.children));
            assert_eq!(entry.radius, view.radius);
        }
    }
    assert!(nodes.values().any(|entry| entry.loss_ppm > 0), "some was lost");
    assert!(nodes.values().any(|entry| entry.load_per_ks > 0), "someone works");
}

#[test]
fn a_query_from_a_made_up_address_gets_less_than_it_cost() {
    let mut world = joined();
    let page = page(&mut world, 12345, None);
    assert_eq!((page.entries, page.more), (Vec::new(), true));
    world.source().assert_dropped("NoCookie 1");
    world.log = Some(Vec::new());
    world.run_for(Duration::from_secs(3));
    assert_eq!(tree_reports(&world), 0, "and it wakes nobody");
}

fn tree_reports(world: &World) -> usize {
    let log = world.log.as_ref().unwrap();
    let is_one = |payload: &[u8]| match parse(payload).map(|message| message.body) {
        Some(Body::Report(report)) => !report.tree.is_empty(),
        _ => false,
    };
    log.iter().filter(|sent| is_one(&sent.payload)).count()
}

#[test]
fn nobody_reports_once_nobody_looks_any_more() {
    let mut world = joined();
    world.may_drop(DropReason::NoCookie);
    let cookie = page(&mut world, 0, None).cookie;
    let _ = look(&mut world, cookie);
    world.log = Some(Vec::new());
    world.run_for(Duration::from_secs(5));
    assert!(tree_reports(&world) > 0);
    world.run_for(Duration::from_secs(40));
    world.log = Some(Vec::new());
    world.run_for(Duration::from_secs(5));
    assert_eq!(tree_reports(&world), 0);
}
