//! Worlds that lose messages, change routes, restart routers and lose LANs.

use std::time::Duration;

use umbel_engine::chance;

use super::world::{Lan, Router, World};
use crate::control::{ControlConfig, Family};

/// Seven routers: a tree of three levels, two cross-links, and LANs with two routers.
const SEVEN: [&[Router]; 13] = [
    // The source's LAN, then the tree.
    &[0],
    &[0, 1],
    &[0, 2],
    &[1, 3],
    &[1, 4],
    &[2, 5],
    &[2, 6],
    // Hosts behind two routers each.
    &[3, 4],
    &[5, 6],
    // Hosts behind one.
    &[3],
    &[6],
    // Cross-links.
    &[4, 5],
    &[1, 2],
];
const HOSTS: [Lan; 4] = [7, 8, 9, 10];

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn seven(family: Family, seed: u64) -> World {
    World::start(family, seed, ControlConfig::default(), &SEVEN)
}

/// Checks who gets a channel, once Asserts have had their say. A LAN where somebody wants it gets
/// it exactly once; one where nobody does, and behind which nobody is, gets nothing.
#[track_caller]
fn check(world: &mut World, group: u8, seed: u64) {
    let channel = world.channel(0, group);
    for _ in 0..5 {
        world.send(0, channel);
        world.wait(seconds(2));
    }
    let copies = world.send(0, channel);
    let reachable = world.reachable(0);
    for lan in HOSTS {
        let wanted = world.wanted().contains(&(lan, channel)) && reachable.contains(&lan);
        let got = copies.get(&lan).copied().unwrap_or(0);
        let is_right = if wanted { got == 1 } else { got == 0 || !is_leaf(lan) };
        assert!(is_right, "UMBEL_SEED={seed}: LAN {lan} got {got} of {channel}, wanted: {wanted}");
    }
    for (lan, got) in copies {
        assert!(got <= 1, "UMBEL_SEED={seed}: LAN {lan} got {got} of {channel}");
    }
}

/// Returns whether a LAN leads nowhere.
fn is_leaf(lan: Lan) -> bool {
    SEVEN[lan].len() == 1
}

#[test]
fn a_channel_goes_where_it_is_wanted_and_nowhere_else() {
    for family in [Family::Ipv4, Family::Ipv6] {
        let mut world = seven(family, 1);
        world.wait(seconds(40));
        let channel = world.channel(0, 1);
        assert_eq!(world.send(0, channel).len(), 1);
        world.want((9, 5), channel, true);
        world.wait(Duration::from_millis(100));
        // Hop by hop: the source's LAN, two links, the host's LAN.
        assert_eq!(world.send(0, channel).into_keys().collect::<Vec<_>>(), [0, 1, 3, 9]);
        world.want((7, 5), channel, true);
        world.want((7, 6), channel, true);
        world.want((10, 5), channel, true);
        world.wait(seconds(2));
        check(&mut world, 1, 1);
        for host in [(9, 5), (7, 5), (7, 6), (10, 5)] {
            world.want(host, channel, false);
        }
        world.wait(seconds(5));
        assert_eq!(world.send(0, channel).into_keys().collect::<Vec<_>>(), [0]);
        world.wait(seconds(300));
        assert_eq!(world.state(), (0, 0));
        assert!(world.drops().is_empty(), "{:?}", world.drops());
    }
}

#[test]
fn a_cut_link_moves_the_tree_within_a_second() {
    let mut world = seven(Family::Ipv4, 2);
    world.wait(seconds(40));
    let channel = world.channel(0, 1);
    world.want((9, 5), channel, true);
    world.wait(seconds(2));
    assert_eq!(world.send(0, channel).into_keys().collect::<Vec<_>>(), [0, 1, 3, 9]);
    world.set_lan(1, false);
    world.wait(seconds(1));
    assert_eq!(world.send(0, channel).into_keys().collect::<Vec<_>>(), [0, 2, 3, 9, 12]);
    world.set_lan(1, true);
    world.wait(seconds(5));
    assert_eq!(world.send(0, channel).into_keys().collect::<Vec<_>>(), [0, 1, 3, 9]);
}

#[test]
fn hosts_on_the_lan_towards_the_source_are_served_by_the_router_there() {
    let mut world = seven(Family::Ipv4, 5);
    world.wait(seconds(40));
    let channel = world.channel(0, 1);
    world.want((7, 5), channel, true);
    // The designated router of the hosts' LAN reaches the source by that very LAN.
    world.set_lan(4, false);
    world.set_lan(11, false);
    world.wait(seconds(2));
    assert_eq!(world.send(0, channel).into_keys().collect::<Vec<_>>(), [0, 1, 3, 7]);
}

#[test]
fn a_router_that_starts_anew_forwards_again_at_once() {
    for router in [0, 1, 3] {
        let mut world = seven(Family::Ipv4, 3);
        world.wait(seconds(40));
        let channel = world.channel(0, 1);
        world.want((9, 5), channel, true);
        world.wait(seconds(2));
        world.stop(router);
        world.restart(router);
        // Its first Hello, the answers, and joins; hosts answer the first query within a second.
        world.wait(Duration::from_millis(1_200));
        assert_eq!(world.send(0, channel).get(&9), Some(&1), "router {router}");
    }
}

#[test]
fn where_two_routers_forward_to_a_lan_one_stops() {
    // Two ways from the source's LAN to that of two receivers' routers, which choose both.
    let lans: [&[Router]; 5] = [&[0, 1], &[0, 1, 2, 3], &[2], &[3], &[1, 3]];
    let mut world = World::start(Family::Ipv4, 4, ControlConfig::default(), &lans);
    world.wait(seconds(40));
    let channel = world.channel(0, 1);
    world.want((2, 5), channel, true);
    world.want((3, 5), channel, true);
    world.want((1, 5), channel, true);
    world.wait(seconds(5));
    assert_eq!(world.send(0, channel).get(&1), Some(&2), "both, until they hear each other");
    for _ in 0..5 {
        world.send(0, channel);
        world.wait(seconds(2));
    }
    let copies = world.send(0, channel);
    for lan in [1, 2, 3] {
        assert_eq!(copies.get(&lan), Some(&1), "LAN {lan} of {copies:?}");
    }
}

/// Runs a world of accidents, and checks that it ends as it should.
fn accidents(family: Family, seed: u64) {
    let mut world = seven(family, seed);
    let mut random = chance::generator(!seed);
    let mut below = |n: usize| (chance::uniform(&mut random) * n as f64) as usize;
    world.wait(seconds(10));
    let mut stopped = Vec::new();
    for _ in 0..40 {
        world.loss = [0.0, 0.05, 0.3][below(3)];
        let (host, group) = ((HOSTS[below(4)], 5 + below(3) as u8), 1 + below(3) as u8);
        let channel = world.channel(0, group);
        match below(10) {
            0..=4 => world.want(host, channel, true),
            5 | 6 => world.want(host, channel, false),
            7 => {
                let (lan, is_up) = (1 + below(world.lan_count() - 1), below(2) == 0);
                world.set_lan(lan, is_up);
            }
            8 => {
                let router = below(world.router_count());
                if !stopped.contains(&router) {
                    world.stop(router);
                    stopped.push(router);
                }
            }
            _ => stopped.drain(..).for_each(|router| world.restart(router)),
        }
        world.send(0, channel);
        world.wait(Duration::from_millis(below(20_000) as u64));
    }
    world.loss = 0.0;
    // Lost messages are repeated within the lifetime of everything: first with what is still up,
    // then with all of it.
    for _ in 0..2 {
        world.wait(seconds(400));
        for group in 1..=3 {
            check(&mut world, group, seed);
        }
        stopped.drain(..).for_each(|router| world.restart(router));
        for lan in 0..world.lan_count() {
            world.set_lan(lan, true);
        }
    }
    for (lan, channel) in world.wanted() {
        for host in 5..8 {
            world.want((lan, host), channel, false);
        }
    }
    world.wait(seconds(700));
    assert_eq!(world.state(), (0, 0), "UMBEL_SEED={seed}");
}

#[test]
fn after_any_accidents_every_lan_gets_what_it_wants_once() {
    for seed in umbel_seeds::seeds(6) {
        let family = if seed % 3 == 2 { Family::Ipv6 } else { Family::Ipv4 };
        accidents(family, seed);
    }
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let run = || {
        let mut world = seven(Family::Ipv4, 9);
        world.loss = 0.1;
        world.wait(seconds(30));
        let channel = world.channel(0, 1);
        world.want((9, 5), channel, true);
        world.wait(seconds(300));
        (world.sent, world.state(), super::world::rand(&mut world.random))
    };
    assert_eq!(run(), run());
}
