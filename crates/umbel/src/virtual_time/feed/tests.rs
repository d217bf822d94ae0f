//! Receivers get every byte, or know why not, and every host ends.

use std::time::Duration;

use super::super::for_seeds;
use super::files::SHAPE;
use super::world::{Scenario, World, ms};
use crate::feed::send::WaitFor;

const LIMIT: Duration = Duration::from_mins(10);
const THREE_S: WaitFor = WaitFor::Time(Duration::from_secs(3));

/// Runs a scenario in which every receiver that does not crash gets everything, and the source
/// knows.
fn check(seeds: u64, scenario: Scenario) {
    for_seeds(seeds, |seed| {
        let mut world = World::new(scenario, seed);
        world.run(LIMIT);
        let mut done = 0;
        for member in world.members.iter().filter(|member| !member.crashes) {
            let summary = world.received(member.node).unwrap();
            if member.interrupted {
                continue;
            }
            let what = format!("{scenario:?}, {:?}: {summary:?}", member.node);
            assert!(summary.failure.is_none() && summary.failures.is_empty(), "{what}");
            assert!(world.has_everything(member), "{what}");
            done += 1;
        }
        let sent = world.sent().unwrap();
        assert!(sent.done >= done, "{scenario:?}: {done} have all: {sent:?}");
        assert_eq!(sent.failure, None, "{scenario:?}");
    });
}

#[test]
fn files_arrive_over_lossy_links() {
    check(40, Scenario { loss: 0.2, ..Scenario::default() });
}

#[test]
fn a_pipe_arrives_over_lossy_links() {
    check(40, Scenario { pipe: true, loss: 0.2, ..Scenario::default() });
}

#[test]
fn receivers_that_come_late_get_what_was_sent_before() {
    let scenario = Scenario {
        within: Duration::from_secs(8),
        wait_for: WaitFor::Receivers(1),
        linger: Duration::from_secs(10),
        ..Scenario::default()
    };
    check(40, scenario);
}

#[test]
fn disks_may_be_full_and_slow_for_a_while() {
    check(40, Scenario { full: true, slow: Duration::from_secs(1), ..Scenario::default() });
}

#[test]
fn a_file_that_was_altered_on_the_way_is_received_again() {
    check(40, Scenario { alters: 1, ..Scenario::default() });
}

#[test]
fn receivers_that_crash_or_are_ended_hold_nobody_up() {
    let scenario = Scenario { crashes: 2, interrupts: 1, wait_for: THREE_S, ..Scenario::default() };
    check(40, scenario);
    check(20, Scenario { pipe: true, ..scenario });
}

#[test]
fn everyone_hears_that_the_sender_was_ended() {
    for_seeds(40, |seed| {
        let at = Some(ms(3_100 + seed * 37 % 500));
        for pipe in [false, true] {
            let scenario =
                Scenario { pipe, wait_for: THREE_S, source_interrupt: at, ..Scenario::default() };
            let mut world = World::new(scenario, seed);
            world.run(LIMIT);
            let sent = world.sent().unwrap();
            assert!(sent.interrupted, "{sent:?}");
            for member in &world.members {
                let summary = world.received(member.node).unwrap();
                let told = summary.failure.is_some() || !summary.failures.is_empty();
                let what = format!("seed {seed}, pipe {pipe}, {:?}: {summary:?}", member.node);
                assert!(told || world.has_everything(member), "{what}");
            }
        }
    });
}

#[test]
fn receivers_of_a_source_that_crashed_end_with_a_reason() {
    for_seeds(20, |seed| {
        let at = Some(ms(3_050 + seed * 41 % 500));
        let scenario = Scenario { source_crash: at, wait_for: THREE_S, ..Scenario::default() };
        let mut world = World::new(scenario, seed);
        world.run(Duration::from_hours(1));
        for member in &world.members {
            let summary = world.received(member.node).unwrap();
            let told = summary.failure.is_some() || !summary.failures.is_empty();
            let what = format!("seed {seed}, {:?}: {summary:?}", member.node);
            assert!(told || world.has_everything(member), "{what}");
        }
    });
}

#[test]
fn a_path_too_narrow_for_full_packets_holds_nobody_up_and_both_sides_hear_of_it() {
    for pipe in [false, true] {
        let scenario = Scenario { narrow: 1, loss: 0.05, pipe, ..Scenario::default() };
        for_seeds(10, |seed| {
            let mut world = World::new(scenario, seed);
            world.run(LIMIT);
            for (member, number) in world.members.iter().zip(0..) {
                let summary = world.received(member.node).unwrap();
                let what = format!("{scenario:?}, seed {seed}, {:?}: {summary:?}", member.node);
                if number < scenario.hosts * scenario.narrow {
                    assert!(summary.failure.unwrap().contains("umbel send --mtu"), "{what}");
                } else {
                    assert!(world.has_everything(member), "{what}");
                }
            }
            let sent = world.sent().unwrap();
            let advised = |reason: &String| reason.contains("umbel send --mtu");
            let told = sent.receivers.iter().filter(|r| r.reason.as_ref().is_some_and(advised));
            assert_eq!((told.count(), sent.done, sent.without), (2, 4, 2), "seed {seed}: {sent:?}");
        });
    }
}

#[test]
fn everything_at_once() {
    let scenario = Scenario {
        loss: 0.2,
        within: Duration::from_secs(4),
        full: true,
        alters: 1,
        slow: Duration::from_millis(300),
        crashes: 1,
        interrupts: 1,
        wait_for: WaitFor::Receivers(4),
        linger: Duration::from_secs(8),
        ..Scenario::default()
    };
    check(40, scenario);
}

#[test]
fn nothing_is_sent_again_to_receivers_that_have_everything() {
    let scenario = Scenario { have_all: 6, loss: 0.0, wait_for: THREE_S, ..Scenario::default() };
    for_seeds(20, |seed| {
        let mut world = World::new(scenario, seed);
        world.run(LIMIT);
        let sent = world.sent().unwrap();
        let what = format!("seed {seed}: {sent:?}");
        let all = sent.bytes / u64::from(SHAPE.symbol_len);
        assert!(sent.packets + sent.fetched < all / 5, "{all} packets: {what}");
        assert_eq!((sent.done, sent.without, sent.failure), (6, 0, None), "{what}");
    });
}

#[test]
fn receivers_that_have_everything_are_waited_for_and_hold_up_nobody_who_lacks_it() {
    for have_all in [5, 6] {
        check(40, Scenario { have_all, loss: 0.05, ..Scenario::default() });
    }
}
