//! Trees that are improved while they stand.

use super::churn::Churn;
use super::*;
use crate::testing::seeds;

/// Returns the number of levels of a full tree of `nodes` in which each has `k` children.
fn levels(nodes: usize, k: u16) -> usize {
    let (mut levels, mut room, mut wide) = (0, 1, 1);
    while room <= nodes {
        wide *= usize::from(k);
        room += wide;
        levels += 1;
    }
    levels
}

fn managers(world: &World) -> Vec<usize> {
    let is_manager = |&node: &usize| world.is_up(node) && world.tree(node).role() == Role::Manager;
    world.nodes().filter(is_manager).collect()
}

fn greatest_depth(world: &World) -> usize {
    let depths = managers(world).into_iter().map(|node| world.tree(node).path().len() - 1);
    depths.max().unwrap_or(0)
}

/// Returns a row of subnets, in which each manager is the closest to the next one.
fn row_of_managers(config: TreeConfig) -> World {
    let mut world = World::row(10, config);
    world.expect_faults();
    for subnet in 1..10 {
        world.join(subnet);
        world.run_acknowledging(Duration::from_secs(2));
    }
    world
}

#[test]
fn a_row_becomes_a_tree() {
    let mut world = row_of_managers(TreeConfig { max_children: 2, ..TreeConfig::improving() });
    assert!(greatest_depth(&world) > 4, "it begins as a row");
    world.run_acknowledging(Duration::from_mins(4));
    world.check_settled();
    assert!(greatest_depth(&world) <= 4, "{}", greatest_depth(&world));
}

#[test]
fn the_papers_tree_keeps_its_shape() {
    let mut world = row_of_managers(TreeConfig { max_children: 2, ..TreeConfig::default() });
    let parents: Vec<_> = world.nodes().map(|node| world.parent(node)).collect();
    world.run_acknowledging(Duration::from_mins(4));
    assert_eq!(world.nodes().map(|node| world.parent(node)).collect::<Vec<_>>(), parents);
    assert_eq!(greatest_depth(&world), 9);
    assert_eq!(world.searches, 0);
}

#[test]
fn nodes_of_a_good_tree_search_seldom_and_nobody_answers() {
    let mut world = row_of_managers(TreeConfig { max_children: 2, ..TreeConfig::improving() });
    world.run_acknowledging(Duration::from_mins(10));
    let (searches, answers) = (world.searches, world.answers);
    world.run_acknowledging(Duration::from_mins(16));
    // At least 160 s pass between two.
    assert!(world.searches - searches <= 9 * 6, "{}", world.searches - searches);
    assert_eq!(world.answers, answers);
}

#[test]
fn after_churn_the_tree_is_nearly_as_shallow_as_it_can_be() {
    for seed in seeds(4) {
        let k = 2 + (seed % 3) as u16;
        let config = TreeConfig { max_children: k, ..TreeConfig::improving() };
        let mut churn = Churn::new(seed, 24, config, (50, 20));
        for _ in 0..60 {
            churn.step();
        }
        churn.settle();
        churn.world.run_acknowledging(Duration::from_mins(10));
        churn.world.check_settled();
        let count = managers(&churn.world).len();
        let (depth, most) = (greatest_depth(&churn.world), levels(count, k) + 2);
        assert!(depth <= most, "seed {seed}: {count} managers, K = {k}: {depth} levels");
    }
}

#[test]
fn the_former_parent_is_left_when_the_blocks_have_come() {
    let mut world = row_of_managers(TreeConfig { max_children: 2, ..TreeConfig::improving() });
    let mut left = 0;
    for _ in 0..6_000 {
        world.run_acknowledging(Duration::from_millis(20));
        for node in world.nodes() {
            let Some(before) = world.tree(node).needs_former_before() else { continue };
            assert_eq!(before, outlook().from);
            let parents = world
                .nodes()
                .filter(|&other| world.tree(other).child(world.tree(node).id).is_some());
            assert_eq!(parents.count(), 2, "both guarantee");
            let now = world.now;
            world.tree_mut(node).leave_former(now);
            world.drain(node);
            left += 1;
        }
    }
    assert!(left > 0);
    world.check_settled();
    for node in managers(&world) {
        let id = world.tree(node).id;
        let parents = world.nodes().filter(|&other| world.tree(other).child(id).is_some());
        assert_eq!(parents.count(), 1, "node {node}");
    }
}
