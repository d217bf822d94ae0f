//! Nodes crash, links are cut, receivers stop reading.

use std::time::Duration;

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use super::delivery::{LONG, complete, finish, joined, rate};
use super::world::{Weather, World};
use crate::testing::seeds;
use crate::tmtp::{
    DropReason, HoldUp, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent, TreeView,
};
use umbel_wire::tmtp::Role;

/// Seven subnets with 24 receivers.
const SUBNETS: [usize; 7] = [2, 4, 4, 3, 4, 3, 4];

pub(super) fn k_of(seed: u64) -> (u8, bool) {
    [(16, true), (16, false), (1, false)][seed as usize % 3]
}

/// Begins a feed of 480 packets to receivers in these subnets, in such weather.
fn sending_to(subnets: &[usize], seed: u64, weather: Weather) -> World {
    let (k, fec) = k_of(seed);
    let mut world = joined(seed, vec![k; 480 / usize::from(k)], fec, subnets);
    world.set_weather(weather);
    world.expect_faults();
    world.extend_all();
    world
}

fn sending(seed: u64, weather: Weather) -> World {
    sending_to(&SUBNETS, seed, weather)
}

pub(super) fn managers(world: &mut World) -> Vec<usize> {
    let is = |view: TreeView| view.role == Role::Manager;
    let all: Vec<usize> = world.receivers().collect();
    all.into_iter().filter(|&i| world.is_up(i) && is(world.receiver(i).tree())).collect()
}

fn a_manager(world: &mut World, random: &mut Xoshiro256PlusPlus) -> usize {
    let managers = managers(world);
    managers[random.next_u64() as usize % managers.len()]
}

#[test]
fn everyone_gets_everything_under_30_percent_loss_both_ways() {
    for seed in seeds(6) {
        let mut world = sending(seed, Weather::loss(0.3));
        finish(&mut world);
        assert_eq!(world.source().stats().totals.done, 24, "seed {seed}\n{}", world.state());
    }
}

#[test]
fn managers_that_crash_in_the_middle_take_no_data_with_them() {
    for seed in seeds(6) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = sending(seed, Weather::loss(0.05));
        for _ in 0..3 {
            world.run_for(Duration::from_millis(60));
            let victim = a_manager(&mut world, &mut random);
            world.crash(victim);
        }
        finish(&mut world);
    }
}

#[test]
fn whoever_was_cut_off_gets_everything_once_the_link_is_back() {
    for seed in seeds(6) {
        let mut world = sending(seed, Weather::loss(0.02));
        world.run_for(Duration::from_millis(100));
        world.network.partition(&[1, 3, 4], &[0, 2, 5, 6]);
        world.run_for(Duration::from_secs(3));
        world.network.heal();
        finish(&mut world);
    }
}

#[test]
fn a_receiver_that_stops_reading_slows_everyone_and_nothing_is_lost() {
    for seed in seeds(3) {
        let mut world = sending(seed, Weather::FINE);
        world.run_for(Duration::from_millis(20));
        // In the farthest subnet; its manager's buffer fills first.
        let slow = world.receivers().end - 1;
        world.may_drop(DropReason::NoRoom);
        world.receiver(slow).sink_mut().refuses = true;
        world.run_for(Duration::from_secs(10));
        world.receiver(slow).sink_mut().refuses = false;
        world.command(slow, ReceiverCommand::Room);
        finish(&mut world);
        assert!(!world.receiver_events(slow).contains(&ReceiverEvent::Evicted));
    }
}

#[test]
fn a_receiver_that_never_reads_again_is_evicted_and_the_others_go_on() {
    for seed in seeds(3) {
        let mut world = sending(seed, Weather::FINE);
        world.run_for(Duration::from_millis(20));
        let slow = world.receivers().end - 1;
        world.may_drop(DropReason::NoRoom);
        world.receiver(slow).sink_mut().refuses = true;
        let others = |world: &mut World| {
            let all = world.lengths.len();
            world.receivers().all(|i| i == slow || world.receiver(i).sink_mut().blocks.len() == all)
        };
        world.run_until(LONG, others);
        // An evicted receiver takes no part.
        world.may_drop(DropReason::Unexpected);
        world.run_for(Duration::from_mins(1));
        assert!(
            world.receiver_events(slow).contains(&ReceiverEvent::Evicted),
            "seed {seed}\n{}",
            world.state()
        );
        // It reads again after all: it catches up.
        world.receiver(slow).sink_mut().refuses = false;
        world.command(slow, ReceiverCommand::Room);
        finish(&mut world);
    }
}

#[test]
fn in_an_open_feed_who_makes_no_progress_holds_up_nobody_and_loses_nothing() {
    for seed in seeds(6) {
        let (k, fec) = k_of(seed);
        let shape = World::shape(k, fec);
        let lengths = vec![k; 20_000 / usize::from(k)];
        // 2 s of packets of 12 bytes and their headers.
        let mut world = World::new(seed, lengths, shape, rate(2_500_000), |mut config| {
            config.repair.hold_up = Some(HoldUp::default());
            config
        });
        for subnet in [1, 1, 2, 0, 0] {
            world.add_receiver(subnet, shape, |mut config| {
                config.repair.hold_up = Some(HoldUp::default());
                config
            });
            world.run_for(Duration::from_millis(500));
        }
        world.run_until(LONG, |world| world.source().stats().totals.members == 5);
        world.expect_faults();
        world.may_drop(DropReason::NoRoom);
        let slow = world.receivers().end - 1;
        world.receiver(slow).sink_mut().refuses = true;
        let begun = world.now;
        world.extend_all();
        let others = |world: &mut World| (1..slow).all(|index| world.has_all(index));
        world.run_until(LONG, others);
        let took = world.now.since(begun);
        assert!(took < Duration::from_secs(4), "seed {seed}: {took:?}\n{}", world.state());
        assert!(!world.has_all(slow));
        world.run_for(Duration::from_secs(3));
        assert!(!complete(&mut world), "the source waits for it at the end");
        // It reads again: it catches up, and was never dismissed.
        world.receiver(slow).sink_mut().refuses = false;
        world.command(slow, ReceiverCommand::Room);
        finish(&mut world);
        assert!(!world.receiver_events(slow).contains(&ReceiverEvent::Evicted), "seed {seed}");
    }
}

#[test]
fn of_three_levels_above_a_receiver_that_never_reads_again_only_the_receiver_is_evicted() {
    for seed in seeds(6) {
        let (k, fec) = k_of(seed);
        let shape = World::shape(k, fec);
        let small = u64::from(k) * u64::from(shape.symbol_len);
        let lengths = vec![k; 160 / usize::from(k)];
        let mut world = World::new(seed, lengths, shape, rate(1_000_000), |mut config| {
            config.tree.max_children = 1;
            config
        });
        // Subnets in a row, whose managers keep one block each.
        let mut slow = 0;
        for subnet in [1, 3, 7, 7] {
            slow = world.add_receiver(subnet, shape, |mut config| {
                (config.tree.max_children, config.repair.buffer) = (1, small);
                config
            });
            world.run_for(Duration::from_secs(2));
        }
        assert_eq!(managers(&mut world), [1, 2, 3], "seed {seed}");
        assert_eq!(world.receiver(slow).tree().path.len(), 5, "seed {seed}");
        world.expect_faults();
        world.may_drop(DropReason::NoRoom);
        // An evicted receiver takes no part.
        world.may_drop(DropReason::Unexpected);
        world.receiver(slow).sink_mut().refuses = true;
        world.extend_all();
        let others = |world: &mut World| {
            let all = world.lengths.len();
            (1..slow).all(|index| world.receiver(index).sink_mut().blocks.len() == all)
        };
        world.run_until(LONG, others);
        let evicted: Vec<usize> = world
            .receivers()
            .filter(|&index| world.receiver_events(index).contains(&ReceiverEvent::Evicted))
            .collect();
        assert_eq!(evicted, [slow], "seed {seed}\n{}", world.state());
    }
}

#[test]
fn a_manager_that_leaves_gives_its_children_what_they_need_first() {
    for seed in seeds(3) {
        let mut world = sending(seed, Weather::loss(0.1));
        world.run_for(Duration::from_millis(80));
        let leaver = managers(&mut world)[seed as usize % 2];
        world.command(leaver, ReceiverCommand::Leave);
        let left = |world: &mut World| world.receiver_events(leaver).contains(&ReceiverEvent::Left);
        world.run_until(LONG, left);
        world.crash(leaver);
        finish(&mut world);
    }
}

#[test]
fn a_receiver_that_heard_nothing_for_minutes_joins_again_and_gets_everything() {
    for seed in seeds(6) {
        let mut world = sending(seed, Weather::FINE);
        world.run_for(Duration::from_millis(100));
        world.network.partition(&[3], &[0, 1, 2, 4, 5, 6]);
        world.run_for(Duration::from_mins(5));
        let silent = |world: &World, i: usize| {
            let events = world.receiver_events(i).iter();
            events.filter(|event| matches!(event, ReceiverEvent::SourceSilent(_))).count()
        };
        let all: Vec<usize> = world.receivers().collect();
        // Each in the subnet that was cut off, after 8, 16, … 256 s.
        let apart = all.iter().filter(|&&i| silent(&world, i) > 0).count();
        assert!(apart > 0, "seed {seed}");
        assert!(all.iter().all(|&i| [0, 6].contains(&silent(&world, i))), "seed {seed}");
        world.network.heal();
        finish(&mut world);
    }
}

#[test]
fn a_source_that_is_silent_for_long_is_gone() {
    for seed in seeds(4) {
        let mut world = sending(seed, Weather::FINE);
        world.run_for(Duration::from_millis(100));
        world.crash(0);
        let gone = |world: &World, i| world.receiver_events(i).contains(&ReceiverEvent::SourceGone);
        world.run_for(Duration::from_mins(9));
        assert!(world.receivers().all(|i| !gone(&world, i)), "seed {seed}");
        world.run_for(Duration::from_mins(2));
        assert!(world.receivers().all(|i| gone(&world, i)), "seed {seed}");
    }
}

#[test]
fn crashes_cuts_and_loss_together() {
    for seed in seeds(6) {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut world = sending(seed, Weather::loss(0.15));
        for step in 0..6 {
            world.run_for(Duration::from_millis(100));
            let victim = a_manager(&mut world, &mut random);
            let apart = 1 + random.next_u64() as usize % 6;
            match step % 3 {
                0 if step == 3 => world.crash(victim),
                1 => world.network.partition(&[apart], &[0, (apart + 1) % 7, (apart + 3) % 7]),
                _ => world.network.heal(),
            }
        }
        world.network.heal();
        finish(&mut world);
    }
}

#[test]
fn the_source_waits_for_everyone_and_everyone_notices_the_end() {
    for seed in seeds(4) {
        let weather = Weather { loss: 0.3, ..Weather::FINE };
        let mut world = sending_to(&[16], seed, weather);
        world.run_until(LONG, complete);
        assert!(world.everyone_has_all(), "seed {seed}\n{}", world.state());
        world.source_command(SourceCommand::Close);
        let gone = |world: &mut World| {
            let all: Vec<usize> = world.receivers().collect();
            all.into_iter().all(|i| world.receiver_events(i).contains(&ReceiverEvent::SourceGone))
        };
        world.run_until(Duration::from_secs(10), gone);
        let closed = |world: &mut World| world.source_events().contains(&SourceEvent::Closed);
        world.run_until(Duration::from_secs(10), closed);
    }
}

#[test]
fn the_feed_is_not_complete_while_those_whose_manager_crashed_look_for_another() {
    for seed in seeds(6) {
        let mut world = sending(seed, Weather::loss(0.1));
        // Just when everything was sent, and some of it was lost.
        let sent =
            |world: &mut World| world.source().stats().blocks_sent as usize == world.lengths.len();
        world.run_until(LONG, sent);
        let managers = managers(&mut world);
        world.crash(managers[seed as usize % managers.len()]);
        world.run_until(LONG, complete);
        assert!(world.everyone_has_all(), "seed {seed}\n{}", world.state());
    }
}

#[test]
fn everyone_is_told_of_a_source_that_fails_after_it_has_said_where_the_feed_ends() {
    // In the world of seed 5 somebody hears of the end from its parent first.
    for seed in seeds(6) {
        let mut world = sending(seed, Weather::loss(0.1));
        world.run_for(Duration::from_millis(20));
        let blocks = world.source().symbols_mut();
        (blocks.pipe, blocks.released) = (true, u32::MAX);
        world.run_until(LONG, |world| {
            let failed = |event: &ReceiverEvent| matches!(event, ReceiverEvent::End(end) if end.failed.is_some());
            world.receivers().all(|index| world.receiver_events(index).iter().any(failed))
        });
    }
}
