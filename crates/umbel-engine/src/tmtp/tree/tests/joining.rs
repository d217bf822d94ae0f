//! Elections of managers, and choices of parents.

use umbel_wire::tmtp::{Dismissal, JoinRequest, Standing};

use super::*;
use crate::tmtp::tree::Parting;
use crate::tmtp::tree::search::Stage;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn the_first_in_a_subnet_manages_it_and_the_next_are_its_members() {
    let mut world = World::row(3, TreeConfig::default());
    let manager = world.join(2);
    world.run_acknowledging(seconds(2));
    assert_eq!((world.tree(manager).role(), world.parent(manager)), (Role::Manager, Some(0)));
    assert_eq!(world.tree(manager).parent().unwrap().hops, 3);
    let members = [world.join(2), world.join(2), world.join(0)];
    world.run_acknowledging(seconds(1));
    world.check_settled();
    assert_eq!(members.map(|m| world.parent(m)), [Some(manager), Some(manager), Some(0)]);
    assert_eq!((world.tree(0).radius(), world.tree(manager).radius()), (3, 1));
    let view = world.tree(0).view();
    assert_eq!((view.members, view.children), (1, 1));
}

#[test]
fn a_confirmation_that_is_repeated_promises_as_much_as_the_first() {
    let mut world = World::row(1, TreeConfig::default());
    let member = world.add(NodeId(7), 0);
    let request = JoinRequest {
        nonce: 5,
        hop_limit: UNICAST_HOPS,
        hops: 1,
        role: Role::Member,
        standing: Standing::default(),
        name: String::new(),
        parent: None,
        by_unicast: false,
    };
    let request = from(&world, member, Body::JoinRequest(request));
    let hops_left = Some(UNICAST_HOPS);
    let arrival = Arrival { from: address(member), multicast: false, hops_left };
    let mut promised = |sent: u32| {
        let (now, source) = (world.now, &mut world.source.tree);
        source.handle(now, arrival, &request).unwrap();
        let outlook = Outlook { from: sent, ..outlook() };
        let confirm = std::iter::from_fn(|| source.poll_message(now, &outlook))
            .find_map(|(_, body)| if let Body::JoinConfirm(it) = body { Some(it) } else { None });
        confirm.expect("it is a child").from
    };
    assert_eq!((promised(10), promised(25)), (10, 10));
}

#[test]
fn all_that_join_a_subnet_at_once_agree_on_one_manager() {
    let mut world = World::row(2, TreeConfig::default());
    for _ in 0..40 {
        world.join(1);
    }
    // Answers that come after another was taken.
    world.may_drop(DropReason::NotAsked);
    world.run_acknowledging(seconds(5));
    world.check_settled();
}

#[test]
fn a_manager_joins_the_closest_that_has_room() {
    let mut world = World::row(6, TreeConfig { max_children: 1, ..TreeConfig::default() });
    let managers: Vec<usize> = (1..6)
        .map(|subnet| {
            let node = world.join(subnet);
            world.run_acknowledging(seconds(4));
            node
        })
        .collect();
    world.check_settled();
    let parents: Vec<_> = managers.iter().map(|&m| world.parent(m).unwrap()).collect();
    assert_eq!(parents, [0, managers[0], managers[1], managers[2], managers[3]]);
    assert_eq!(world.tree(managers[4]).path().len(), 6);
}

#[test]
fn an_answer_that_takes_longer_than_a_ring_counts() {
    let mut world = World::row(2, TreeConfig::default());
    // By satellite: most round trips are several times as long as a ring is waited for.
    world.set_weather(0.0, 2_000);
    world.may_drop(DropReason::NotAsked);
    let manager = world.join(1);
    let searches: Vec<(u64, usize)> = (0..40)
        .filter_map(|_| {
            world.run_acknowledging(Duration::from_millis(100));
            let Stage::Ring { nonce, ring, .. } = world.tree(manager).stage else { return None };
            Some((nonce, ring))
        })
        .collect();
    let (nonce, ring) = searches[0];
    assert!(searches.iter().any(|&(again, later)| again == nonce && later > ring), "{searches:?}");
}

#[test]
fn of_nodes_equally_far_the_one_nearest_to_the_source_is_taken() {
    let subnets = 60;
    let star = (0..subnets).map(|a| (0..subnets).map(|b| u8::from(a != b)).collect()).collect();
    let config = TreeConfig { max_children: 4, ..TreeConfig::default() };
    let mut world = World::new(star, config, 1);
    // All are equally far, and hear each search.
    world.may_drop(DropReason::OverLimit);
    for subnet in 1..subnets {
        world.join(subnet);
        world.run_acknowledging(Duration::from_millis(700));
    }
    world.run_acknowledging(seconds(2));
    world.check_settled();
    let depths: Vec<usize> = (0..subnets).map(|n| world.tree(n).path().len() - 1).collect();
    let at = |depth| depths.iter().filter(|&&d| d == depth).count();
    assert_eq!([at(0), at(1), at(2), at(3)], [1, 4, 16, 39], "log K of the number of domains");
}

#[test]
fn a_hundred_domains_that_join_at_once_make_a_tree_in_seconds() {
    let subnets = 100;
    let star = (0..subnets).map(|a| (0..subnets).map(|b| u8::from(a != b)).collect()).collect();
    let config = TreeConfig { max_children: 4, ..TreeConfig::default() };
    let mut world = World::new(star, config, 1);
    world.may_drop(DropReason::OverLimit);
    for subnet in 1..subnets {
        world.join(subnet);
    }
    let mut passed = 0;
    while world.nodes().any(|node| !world.tree(node).is_attached()) {
        world.run_acknowledging(Duration::from_millis(500));
        passed += 500;
        assert!(passed <= 10_000, "it takes too long");
    }
    world.check_settled();
}

#[test]
fn two_managers_of_a_subnet_that_grows_together_become_one() {
    let mut world = World::row(3, TreeConfig::default());
    let (a, b) = (world.join(1), world.join(2));
    world.run_acknowledging(seconds(3));
    let member = world.join(2);
    world.run_acknowledging(seconds(1));
    assert_eq!(world.parent(member), Some(b));
    // The router between them goes.
    world.expect_faults();
    for node in [b, member] {
        world.host(node).subnet = 1;
    }
    world.run_acknowledging(seconds(5));
    world.check_settled();
    assert_eq!(world.tree(a).role(), Role::Manager, "both had a path: the lower number stays");
    assert_eq!([b, member].map(|node| world.parent(node)), [Some(a); 2]);
    assert!(world.events(b).contains(&TreeEvent::StoppedManaging));
}

#[test]
fn a_manager_in_the_sources_subnet_gives_way_to_it() {
    let mut world = World::row(2, TreeConfig::default());
    let (manager, member) = (world.join(1), world.join(1));
    world.run_acknowledging(seconds(3));
    world.expect_faults();
    for node in [manager, member] {
        world.host(node).subnet = 0;
    }
    world.run_acknowledging(seconds(5));
    world.check_settled();
    assert_eq!([manager, member].map(|node| world.parent(node)), [Some(0); 2]);
}

#[test]
fn the_members_of_a_manager_that_failed_elect_another_and_its_child_managers_join_elsewhere() {
    let mut world = World::row(4, TreeConfig { max_children: 2, ..TreeConfig::default() });
    let near: Vec<usize> = (0..4).map(|_| world.join(1)).collect();
    world.run_acknowledging(seconds(3));
    let far = [world.join(2), world.join(3)];
    world.run_acknowledging(seconds(3));
    world.check_settled();
    let manager = *near.iter().find(|&&n| world.tree(n).role() == Role::Manager).unwrap();
    world.crash(manager);
    world.run_acknowledging(seconds(10));
    world.check_settled();
    let other = near.iter().find(|&&n| n != manager && world.tree(n).role() == Role::Manager);
    assert!(other.is_some());
    assert!(far.iter().all(|&node| world.tree(node).role() == Role::Manager));
}

#[test]
fn those_who_were_cut_off_come_back_and_join_none_of_their_own_meanwhile() {
    let mut world = World::row(5, TreeConfig { max_children: 1, ..TreeConfig::default() });
    for subnet in 1..5 {
        world.join(subnet);
        world.run_acknowledging(seconds(4));
    }
    // Node 2 loses its parent, and has 3 and 4 below.
    world.expect_faults();
    world.cut_off([1].into());
    world.run_acknowledging(seconds(8));
    world.cut_off([].into());
    world.run_acknowledging(seconds(30));
    world.check_settled();
}

#[test]
fn a_child_that_is_not_heard_of_is_given_up_and_told_so() {
    let mut world = World::row(2, TreeConfig::default());
    let child = world.join(1);
    world.run_for(seconds(6));
    let left = TreeEvent::ChildLeft { id: world.tree(child).id, why: Parting::Silent };
    assert!(world.events(0).contains(&left));
    let told = TreeEvent::Dismissed(Dismissal::Unknown);
    assert!(world.events(child).contains(&told));
    world.run_acknowledging(seconds(3));
    world.check_settled();
}

#[test]
fn nobody_joins_a_node_that_knows_nothing_of_the_feed() {
    let config = TreeConfig::default();
    let mut source = tree(SOURCE, 0, &config);
    let blind = Outlook { feed: None, ..outlook() };
    let mut world = World::row(2, config);
    let child = world.join(1);
    world.run_for(Duration::from_millis(600));
    let mut messages = world.in_flight().map(|payload| parse(payload));
    if let Some(request) = messages.find(|m| matches!(m.body, Body::JoinRequest(_))) {
        let hops_left = Some(UNICAST_HOPS - 1);
        let arrival = Arrival { from: address(child), multicast: false, hops_left };
        source.handle(ms(1), arrival, &request).unwrap();
        while let Some((_, body)) = source.poll_message(ms(1), &blind) {
            assert!(!matches!(body, Body::JoinConfirm(_)), "{child}");
        }
    }
}

#[test]
fn k_of_0_is_refused_by_the_configuration() {
    use crate::tmtp::{ConfigError, ReceiverConfig, Shape, SourceConfig};
    use crate::units::Rate;
    let source = address(0);
    let shape = Shape {
        id: SOURCE,
        source,
        symbol_len: 1000,
        block_symbols: 1,
        fec: false,
        manifest: None,
    };
    let rate = Rate::from_bits_per_s(1_000_000).unwrap();
    let mut config = SourceConfig::new(node_config(SOURCE, 0), shape, rate);
    assert_eq!(config.check(), Ok(()));
    config.tree.max_children = 0;
    assert_eq!(config.check(), Err(ConfigError::NoChildren));
    let mut config = ReceiverConfig::new(node_config(NodeId(1), 1), shape);
    config.tree.max_children = 0;
    assert_eq!(config.check(), Err(ConfigError::NoChildren));
    config.tree = TreeConfig { rings: vec![2, 2], ..TreeConfig::default() };
    assert_eq!(config.check(), Err(ConfigError::Rings));
}
