//! Recovery without a tree: all receivers are children of the source.

use std::time::Duration;

use umbel_wire::feed::Recovery;
use umbel_wire::tmtp::Role;

use super::delivery::{LONG, complete, finish, joined_with};
use super::failures::k_of;
use super::world::{Weather, World};
use crate::Address;
use crate::testing::seeds;
use crate::tmtp::{DropReason, ReceiverCommand, ReceiverEvent, SourceCommand};

/// Recoveries without a tree. No router does LMS here.
const RECOVERIES: [Recovery; 3] = [Recovery::Source, Recovery::Srm, Recovery::Lms];

const SUBNETS: [usize; 5] = [1, 2, 3, 2, 2];

fn world(recovery: Recovery, seed: u64, (k, fec): (u8, bool)) -> World {
    joined_with(recovery, seed, vec![k; 480 / usize::from(k)], fec, &SUBNETS)
}

fn sending(recovery: Recovery, seed: u64, weather: Weather) -> World {
    let mut world = world(recovery, seed, k_of(seed));
    world.set_weather(weather);
    world.extend_all();
    world
}

/// Checks that every receiver is a child of the source, and that only those groups were used that
/// the recovery has.
fn check(world: &mut World) {
    let groups = world.recovery.has_group();
    for index in world.receivers().filter(|&index| world.is_up(index)).collect::<Vec<_>>() {
        let view = world.receiver(index).tree();
        assert_eq!(view.role, Role::Member);
        assert!(view.path.len() <= 2, "{view:?}");
    }
    for sent in world.log.take().unwrap() {
        assert!(groups || sent.to != Address::Channel(World::domain_group()), "{sent:?}");
    }
}

#[test]
fn without_loss_nothing_is_repaired() {
    for recovery in RECOVERIES {
        let mut world = sending(recovery, 0, Weather::FINE);
        finish(&mut world);
        let stats = world.source().stats();
        let sent = (stats.data_sent, stats.repairs_sent, stats.fetched_sent);
        assert_eq!(sent, (480, 0, 0), "{recovery}: {}", world.state());
        assert_eq!((stats.totals.members, stats.totals.done), (10, 10));
        check(&mut world);
    }
}

#[test]
fn everyone_gets_everything_under_loss_and_reordering() {
    for recovery in RECOVERIES {
        for seed in seeds(12) {
            let loss = [0.02, 0.1, 0.3][seed as usize / 3 % 3];
            let mut world = sending(recovery, seed, Weather::loss(loss));
            finish(&mut world);
            let done = world.source().stats().totals.done;
            assert_eq!(done, 10, "{recovery}, seed {seed}\n{}", world.state());
            check(&mut world);
        }
    }
}

#[test]
fn receivers_that_crash_hold_nobody_up_for_long() {
    for recovery in RECOVERIES {
        for seed in seeds(6) {
            let mut world = sending(recovery, seed, Weather::loss(0.1));
            for victim in [2, 5, 7] {
                world.run_for(Duration::from_millis(60));
                world.crash(victim);
            }
            finish(&mut world);
            check(&mut world);
        }
    }
}

#[test]
fn whoever_was_cut_off_gets_everything_once_the_link_is_back() {
    for recovery in RECOVERIES {
        for seed in seeds(6) {
            let mut world = sending(recovery, seed, Weather::loss(0.05));
            world.run_for(Duration::from_millis(100));
            world.network.partition(&[1, 3, 4], &[0, 2]);
            world.run_for(Duration::from_secs(3));
            world.network.heal();
            finish(&mut world);
        }
    }
}

#[test]
fn who_comes_late_gets_everything() {
    for recovery in RECOVERIES {
        for seed in seeds(6) {
            let (k, fec) = k_of(seed);
            let mut world = sending(recovery, seed, Weather::loss(0.05));
            world.run_for(Duration::from_millis(300));
            let late = world.add_receiver(4, World::shape(k, fec), |config| config);
            finish(&mut world);
            world.run_until(LONG, |world| {
                world.receiver(late).sink_mut().blocks.len() == world.lengths.len()
            });
        }
    }
}

#[test]
fn a_receiver_that_stops_reading_slows_everyone_then_is_given_up() {
    for recovery in RECOVERIES {
        let mut world = sending(recovery, 0, Weather::FINE);
        world.run_for(Duration::from_millis(20));
        let slow = world.receivers().end - 1;
        // An evicted receiver takes no part.
        world.expect_faults();
        world.may_drop(DropReason::NoRoom);
        world.may_drop(DropReason::Unexpected);
        world.receiver(slow).sink_mut().refuses = true;
        world.run_for(Duration::from_secs(50));
        let evicted = world.receiver_events(slow).contains(&ReceiverEvent::Evicted);
        assert!(evicted, "{recovery}: {}", world.state());
        world.receiver(slow).sink_mut().refuses = false;
        world.command(slow, ReceiverCommand::Room);
        world.run_until(LONG, World::everyone_has_all);
    }
}

#[test]
fn the_end_reaches_everyone_by_the_data_channel() {
    for recovery in RECOVERIES {
        let mut world = world(recovery, 3, (16, true));
        world.extend_all();
        world.run_until(LONG, complete);
        // Some ask after the source has gone.
        world.may_drop(DropReason::Unexpected);
        world.source_command(SourceCommand::Close);
        world.run_for(Duration::from_secs(10));
        for index in world.receivers() {
            assert!(world.receiver_events(index).contains(&ReceiverEvent::SourceGone));
        }
    }
}

#[test]
fn one_loss_before_all_of_them_is_repaired_once() {
    // Many receivers, all of which miss the same symbols.
    let mut world = joined_with(Recovery::Source, 7, vec![16; 30], true, &[0, 30, 0, 30]);
    world.expect_faults();
    world.extend(0..10);
    world.run_for(Duration::from_millis(5));
    world.network.partition(&[0], &[1, 3]);
    world.run_for(Duration::from_millis(2));
    world.network.heal();
    world.extend(10..30);
    world.source_command(SourceCommand::Finish { failed: None });
    finish(&mut world);
    let stats = world.source().stats();
    let lost = world.receiver(1).stats().data_lost;
    assert!(lost > 0, "{}", world.state());
    assert!(stats.repairs_sent <= 2 * lost, "{} repairs for {lost}", stats.repairs_sent);
}
