//! Receivers that come late: from the beginning, as far back as a pipe remembers, or from now on.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use super::delivery::{LONG, complete, joined, rate};
use super::failures::{k_of, managers};
use super::world::{Weather, World};
use crate::testing::seeds;
use crate::tmtp::{ReceiverConfig, ReceiverEvent, SourceEvent, Start};

/// Four subnets with 9 receivers; others come to these and to three more.
const SUBNETS: [usize; 4] = [1, 3, 3, 2];
/// Subnets of those who come late: two have managers, one is the source's, two are new.
const LATE: [usize; 5] = [1, 3, 0, 4, 6];

/// Blocks of a feed of 480 packets.
fn lengths(k: u8) -> Vec<u8> {
    vec![k; 480 / usize::from(k)]
}

fn add(world: &mut World, subnet: usize, (k, fec): (u8, bool), start: Start) -> usize {
    world.add_receiver(subnet, World::shape(k, fec), |config| ReceiverConfig { start, ..config })
}

fn held(world: &mut World, index: usize) -> BTreeSet<u32> {
    world.receiver(index).sink_mut().blocks.keys().copied().collect()
}

fn is_complete(world: &World, index: usize) -> bool {
    world.receiver_events(index).contains(&ReceiverEvent::Complete)
}

/// Returns the first block that a receiver wants.
fn first(world: &World, index: usize) -> Option<u32> {
    world.receiver_events(index).iter().find_map(|event| match event {
        ReceiverEvent::Started { from } => Some(*from),
        _ => None,
    })
}

/// Returns the blocks that a receiver was told are not available any more.
fn gone(world: &World, index: usize) -> BTreeSet<u32> {
    let events = world.receiver_events(index).iter();
    let runs = events.filter_map(|event| match event {
        ReceiverEvent::Gone(run) => Some(run.blocks()),
        _ => None,
    });
    runs.flatten().collect()
}

fn blocks(range: Range<u32>) -> BTreeSet<u32> {
    range.collect()
}

#[test]
fn who_comes_late_fetches_what_the_tree_does_not_hold_any_more() {
    for seed in seeds(6) {
        let (k, fec) = k_of(seed);
        let mut world = joined(seed, lengths(k), fec, &SUBNETS);
        let all = world.lengths.len();
        world.set_weather(Weather::loss(0.3));
        world.extend(0..all / 2);
        world.run_until(LONG, |world| world.source().stats().acknowledged as usize == all / 2);
        let late = LATE.map(|subnet| add(&mut world, subnet, (k, fec), Start::Everything));
        world.run_for(Duration::from_millis(300));
        world.extend(all / 2..all);
        world.source_command(crate::tmtp::SourceCommand::Finish { failed: None });
        world.run_until(LONG, World::everyone_has_all);
        world.run_until(LONG, complete);
        for index in late {
            let stats = world.receiver(index).stats();
            assert!(stats.fetched_received > 0, "seed {seed}: {stats:?}");
        }
        let members = world.receivers().len() as u32;
        world.run_until(LONG, |world| world.source().stats().totals.done == members);
    }
}

#[test]
fn who_comes_after_the_end_gets_everything_from_the_source() {
    for seed in seeds(6) {
        let (k, fec) = k_of(seed);
        let mut world = joined(seed, lengths(k), fec, &SUBNETS);
        world.extend_all();
        world.run_until(LONG, complete);
        world.set_weather(Weather::loss(0.3));
        for subnet in LATE {
            add(&mut world, subnet, (k, fec), Start::Everything);
        }
        world.run_until(LONG, World::everyone_has_all);
        let members = world.receivers().len() as u32;
        world.run_until(LONG, |world| world.source().stats().totals.done == members);
    }
}

#[test]
fn what_several_fetch_at_a_time_is_sent_once_to_all_of_them() {
    for seed in seeds(3) {
        let mut world = joined(seed, vec![16; 30], true, &SUBNETS);
        world.expect_faults();
        world.extend_all();
        world.run_until(LONG, complete);
        // Members join within milliseconds of each other, and ask within a T_ack.
        for subnet in [1, 1, 1, 2, 2, 2, 3, 3] {
            add(&mut world, subnet, (16, true), Start::Everything);
        }
        world.run_until(LONG, World::everyone_has_all);
        let fetched = world.source().stats().fetched_sent;
        assert!(fetched < 3 * 480, "seed {seed}: {fetched} packets for 8 times 480");
    }
}

#[test]
fn who_wants_what_comes_from_now_on_gets_that_and_nothing_before() {
    for seed in seeds(6) {
        let (k, fec) = k_of(seed);
        let mut world = joined(seed, lengths(k), fec, &SUBNETS);
        let all = world.lengths.len();
        world.set_weather(Weather::loss(0.3));
        world.extend_all();
        let third = all as u32 / 3;
        world.run_until(LONG, |world| world.source().stats().blocks_sent >= third);
        let late = LATE.map(|subnet| add(&mut world, subnet, (k, fec), Start::Now));
        let early = 1..late[0];
        world.run_until(LONG, |world| late.iter().all(|&index| is_complete(world, index)));
        world.run_until(LONG, complete);
        for index in late {
            let from = first(&world, index).unwrap();
            // Its parent need not have heard of the last blocks before that.
            assert!((third * 9 / 10..=all as u32).contains(&from), "seed {seed}: {from}");
            // Some came while it looked for its parent.
            let held = held(&mut world, index);
            assert!(held.is_superset(&blocks(from..all as u32)), "seed {seed}: {held:?}");
        }
        for index in early {
            assert_eq!(held(&mut world, index).len(), all, "seed {seed}");
        }
    }
}

#[test]
fn a_manager_that_began_late_leaves_what_it_does_not_hold_to_the_source() {
    for seed in seeds(6) {
        let (k, fec) = k_of(seed);
        let mut world = joined(seed, lengths(k), fec, &SUBNETS);
        let all = world.lengths.len() as u32;
        world.set_weather(Weather::loss(0.2));
        world.extend_all();
        world.run_until(LONG, |world| world.source().stats().blocks_sent >= all / 3);
        // The first of a new subnet, which becomes its manager, and one that wants all that came
        // before it.
        let manager = add(&mut world, 5, (k, fec), Start::Now);
        world.run_until(LONG, |world| first(world, manager).is_some());
        let member = add(&mut world, 5, (k, fec), Start::Everything);
        world.run_until(LONG, |world| is_complete(world, member) && is_complete(world, manager));
        assert_eq!(held(&mut world, member), blocks(0..all), "seed {seed}");
        world.run_until(LONG, complete);
    }
}

/// Creates a pipe that remembers `history` of its blocks, in which every receiver has half of
/// all.
fn pipe(seed: u64, (k, fec): (u8, bool), history: u32) -> World {
    let shape = World::shape(k, fec);
    let mut world = World::new(seed, lengths(k), shape, rate(1_000_000), |mut config| {
        config.history = Some(history);
        config
    });
    for subnet in [0, 1, 1, 2, 3] {
        add(&mut world, subnet, (k, fec), Start::Everything);
    }
    world.run_until(LONG, |world| world.source().stats().totals.members == 5);
    let half = world.lengths.len() / 2;
    world.extend(0..half);
    world.run_until(LONG, |world| world.source().stats().acknowledged as usize == half);
    world
}

#[test]
fn who_comes_late_to_a_pipe_gets_what_it_remembers_and_is_told_what_is_gone() {
    for seed in seeds(6) {
        let shape = k_of(seed);
        let history = 480 / u32::from(shape.0) / 4;
        let mut world = pipe(seed, shape, history);
        let all = world.lengths.len() as u32;
        world.set_weather(Weather::loss(0.3));
        let late = LATE.map(|subnet| add(&mut world, subnet, shape, Start::Everything));
        world.run_until(LONG, |world| late.iter().all(|&i| first(world, i).is_some()));
        // The remembered blocks come before they are forgotten.
        let forgotten = all / 2 - history;
        world.run_until(LONG, |world| {
            late.iter().all(|&index| held(world, index).is_superset(&blocks(forgotten..all / 2)))
        });
        world.extend(all as usize / 2..all as usize);
        world.source_command(crate::tmtp::SourceCommand::Finish { failed: None });
        world.run_until(LONG, |world| late.iter().all(|&index| is_complete(world, index)));
        world.run_until(LONG, complete);
        for index in late {
            let (held, gone) = (held(&mut world, index), gone(&world, index));
            assert!(held.is_superset(&blocks(forgotten..all)), "seed {seed}: {held:?}");
            assert!(held.is_disjoint(&gone), "seed {seed}: {held:?} {gone:?}");
            assert_eq!(&held | &gone, blocks(0..all), "seed {seed}");
        }
    }
}

#[test]
fn a_pipe_that_runs_on_while_someone_catches_up_loses_nothing_without_a_word() {
    for seed in seeds(6) {
        let shape = k_of(seed);
        let mut world = pipe(seed, shape, 480 / u32::from(shape.0) / 8);
        let all = world.lengths.len() as u32;
        world.set_weather(Weather::loss(0.3));
        world.extend(all as usize / 2..all as usize);
        world.source_command(crate::tmtp::SourceCommand::Finish { failed: None });
        let late = LATE.map(|subnet| add(&mut world, subnet, shape, Start::Everything));
        world.run_until(LONG, |world| late.iter().all(|&index| is_complete(world, index)));
        world.run_until(LONG, complete);
        for index in late {
            let (held, gone) = (held(&mut world, index), gone(&world, index));
            assert!(held.is_disjoint(&gone), "seed {seed}: {held:?} {gone:?}");
            assert_eq!(&held | &gone, blocks(0..all), "seed {seed}");
            assert!(gone.len() as u32 > all / 8, "seed {seed}: {gone:?}");
        }
    }
}

#[test]
fn managers_that_crash_while_others_catch_up_keep_nobody_from_it() {
    for seed in seeds(6) {
        let (k, fec) = k_of(seed);
        let mut world = joined(seed, lengths(k), fec, &SUBNETS);
        world.set_weather(Weather::loss(0.1));
        world.extend_all();
        world.run_for(Duration::from_millis(250));
        for subnet in LATE {
            add(&mut world, subnet, (k, fec), Start::Everything);
        }
        for turn in 0..2 {
            world.run_for(Duration::from_millis(400));
            let managers = managers(&mut world);
            world.crash(managers[(seed as usize + turn) % managers.len()]);
        }
        world.run_until(LONG, World::everyone_has_all);
        world.run_until(LONG, |world| world.source_events().contains(&SourceEvent::Complete));
    }
}
