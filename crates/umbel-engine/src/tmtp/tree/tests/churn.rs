//! Random joins, leaves, crashes, cuts, losses, repetitions and delays.

use proptest::prelude::*;
use rand_core::Rng;

use super::*;
use crate::chance::{Generator, generator};

/// Returns a tree of subnets. Each hangs on one of the subnets before it, by 1 to 3 routers.
fn subnets(count: usize, random: &mut Generator) -> Vec<Vec<u8>> {
    let mut routers = vec![vec![0_u8; count]; count];
    for new in 1..count {
        let at = (random.next_u64() % new as u64) as usize;
        let way = 1 + (random.next_u64() % 3) as u8;
        let far: Vec<u8> = routers[at][..new].iter().map(|routers| routers + way).collect();
        for (row, &far) in routers.iter_mut().zip(&far) {
            row[new] = far;
        }
        routers[new][..new].copy_from_slice(&far);
    }
    routers
}

pub(super) struct Churn {
    pub(super) world: World,
    subnets: usize,
    /// Nodes that have left or are leaving.
    leaving: BTreeSet<usize>,
}

impl Churn {
    pub(super) fn new(
        seed: u64,
        subnets_count: usize,
        config: TreeConfig,
        (loss, delay): (u64, u64),
    ) -> Churn {
        let mut random = generator(seed);
        let routers = subnets(subnets_count, &mut random);
        let mut world = World::new(routers, config, seed);
        world.set_weather(loss as f64 / 1000.0, delay);
        world.expect_faults();
        Churn { world, subnets: subnets_count, leaving: BTreeSet::new() }
    }

    pub(super) fn step(&mut self) {
        let world = &mut self.world;
        let nodes = world.nodes().end;
        let node = 1 + world.below(nodes as u64) as usize;
        let subnet = world.below(self.subnets as u64) as usize;
        match world.below(10) {
            0..5 => {
                world.join(subnet);
            }
            5 if node < nodes && world.is_up(node) => {
                world.leave(node);
                self.leaving.insert(node);
            }
            6 if node < nodes => world.crash(node),
            7 if subnet > 0 => {
                let mut cut = world.cut.clone();
                cut.insert(subnet);
                world.cut_off(cut);
            }
            8 => {
                let mut cut = world.cut.clone();
                cut.pop_first();
                world.cut_off(cut);
            }
            _ => {}
        }
        let pause = Duration::from_millis(world.below(700));
        world.run_acknowledging(pause);
    }

    /// Waits until every node has found its place.
    pub(super) fn settle(&mut self) {
        let world = &mut self.world;
        world.cut_off([].into());
        world.set_weather(0.0, 5);
        for _ in 0..40 {
            world.run_acknowledging(Duration::from_secs(2));
        }
        for &node in &self.leaving {
            world.crash(node);
        }
        world.check_settled();
    }
}

/// The source fails, and with it the parent of A and C. B below A and D below C do not know yet:
/// A could join D and C join B, both of whose paths look good.
#[test]
fn two_orphans_do_not_join_below_each_other() {
    //                 source A  B  C  D
    let routers = vec![
        vec![0, 1, 2, 1, 2],
        vec![1, 0, 1, 3, 2],
        vec![2, 1, 0, 2, 3],
        vec![1, 3, 2, 0, 1],
        vec![2, 2, 3, 1, 0],
    ];
    let config = TreeConfig {
        max_children: 2,
        parent_silence_min: Duration::from_secs(2),
        ..TreeConfig::default()
    };
    let mut world = World::new(routers, config, 3);
    let [a, c, b, d] = [1, 3, 2, 4].map(|subnet| {
        let node = world.join(subnet);
        world.run_acknowledging(Duration::from_secs(2));
        node
    });
    assert_eq!([a, b, c, d].map(|node| world.parent(node)), [Some(0), Some(a), Some(0), Some(c)]);
    world.crash(0);
    world.hides_detached = true;
    world.run_acknowledging(Duration::from_secs(3));
    for (orphan, other) in [(a, d), (c, b)] {
        assert_ne!(world.parent(orphan), Some(other));
        assert!(world.drops(orphan, DropReason::Loop) > 0, "it was offered");
    }
    world.may_drop(DropReason::Loop);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// [`World::check`] follows all edges after each event.
    #[test]
    fn loops_never_form_and_k_is_never_exceeded(
        seed: u64,
        subnets in 1_usize..9,
        k in 1_u16..4,
        loss in prop_oneof![Just(0_u64), 1_u64..300],
        delay in prop_oneof![Just(5_u64), 20_u64..600],
        steps in 10_usize..40,
        improves: bool,
    ) {
        let tree = if improves { TreeConfig::improving() } else { TreeConfig::default() };
        let config = TreeConfig { max_children: k, ..tree };
        let mut churn = Churn::new(seed, subnets, config, (loss, delay));
        for _ in 0..steps {
            churn.step();
        }
        churn.settle();
    }
}

#[test]
fn nobody_is_without_a_parent_for_long_though_every_third_packet_is_lost() {
    for seed in 0..10 {
        let routers = vec![vec![0, 2, 2, 2], vec![2, 0, 3, 3], vec![2, 3, 0, 3], vec![2, 3, 3, 0]];
        let mut world = World::new(routers, TreeConfig::default(), seed);
        world.set_weather(0.36, 5);
        world.expect_faults();
        let nodes: Vec<usize> = [1, 1, 2, 2, 3, 3].map(|subnet| world.join(subnet)).into();
        let mut alone = vec![0; nodes.len() + 1];
        for second in 0..300 {
            world.run_acknowledging(Duration::from_secs(1));
            for &node in &nodes {
                alone[node] = if world.tree(node).is_attached() { 0 } else { alone[node] + 1 };
                assert!(alone[node] < 60, "seed {seed}: node {node} at {second} s");
            }
        }
    }
}
