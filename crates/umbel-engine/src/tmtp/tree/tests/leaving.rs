//! LeaveTree [TMTP Fig. 3].

use super::*;
use crate::tmtp::tree::Parting;

fn seconds(s: u64) -> Duration {
    Duration::from_secs(s)
}

#[test]
fn a_leaf_leaves_with_a_confirmation() {
    let mut world = World::row(2, TreeConfig::default());
    let leaf = world.join(1);
    world.run_acknowledging(seconds(3));
    world.leave(leaf);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.events(leaf).last(), Some(&TreeEvent::Left { confirmed: true }));
    let left = TreeEvent::ChildLeft { id: world.tree(leaf).id, why: Parting::Left };
    assert_eq!(world.events(0).last(), Some(&left));
}

#[test]
fn a_leave_whose_confirmation_is_lost_is_confirmed_again() {
    let mut world = World::row(2, TreeConfig::default());
    let leaf = world.join(1);
    world.run_acknowledging(seconds(3));
    world.leave(leaf);
    let is_confirm = |payload: &Bytes| matches!(parse(payload).body, Body::LeaveConfirm { .. });
    while !world.in_flight().any(is_confirm) {
        world.run_for(Duration::from_millis(1));
    }
    world.lose_all_in_flight();
    world.run_for(seconds(1));
    assert_eq!(world.events(leaf).last(), Some(&TreeEvent::Left { confirmed: true }));
    assert_eq!(world.drops(0, DropReason::ForgedChild), 0);
}

#[test]
fn the_children_of_a_manager_that_leaves_find_others_first() {
    let mut world = World::row(4, TreeConfig { max_children: 1, ..TreeConfig::default() });
    for subnet in [1, 1, 2, 3] {
        world.join(subnet);
        world.run_acknowledging(seconds(3));
    }
    world.check_settled();
    let manager = 1;
    world.expect_faults();
    assert_eq!(world.tree(manager).role(), Role::Manager);
    world.leave(manager);
    world.run_acknowledging(seconds(10));
    assert_eq!(world.events(manager).last(), Some(&TreeEvent::Left { confirmed: true }));
    world.crash(manager);
    world.check_settled();
    assert_eq!(world.tree(2).role(), Role::Manager, "the member that is left manages the subnet");
}

#[test]
fn who_leaves_too_stays_with_a_parent_that_leaves() {
    let mut world = World::row(2, TreeConfig::default());
    let manager = world.join(1);
    world.run_acknowledging(seconds(3));
    let member = world.join(1);
    world.run_acknowledging(seconds(3));
    assert_eq!(world.parent(member), Some(manager));
    world.tree_mut(member).retire();
    world.leave(manager);
    world.run_acknowledging(seconds(1));
    assert_eq!(world.parent(member), Some(manager), "it is still there to be told something");
    world.leave(member);
    world.run_for(seconds(1));
    for node in [member, manager] {
        assert_eq!(world.events(node).last(), Some(&TreeEvent::Left { confirmed: true }));
    }
    assert!(!world.events(member).contains(&TreeEvent::Detached));
}

#[test]
fn a_node_leaves_in_the_end_even_if_nobody_answers() {
    let mut world = World::row(3, TreeConfig::default());
    let nodes = [world.join(1), world.join(2)];
    world.run_acknowledging(seconds(3));
    world.set_weather(1.0, 5);
    for node in nodes {
        world.leave(node);
    }
    world.run_for(seconds(12));
    for node in nodes {
        assert_eq!(world.events(node).last(), Some(&TreeEvent::Left { confirmed: false }));
        assert_eq!(world.tree(node).poll_timeout(), None, "nothing is left to do");
    }
}

#[test]
fn a_node_that_never_found_a_parent_leaves_at_once() {
    let mut world = World::row(2, TreeConfig::default());
    world.crash(0);
    let node = world.join(1);
    world.run_for(seconds(2));
    world.leave(node);
    assert_eq!(world.events(node).last(), Some(&TreeEvent::Left { confirmed: true }));
}
