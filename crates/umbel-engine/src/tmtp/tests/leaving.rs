//! Every receiver leaves as soon as it may, and the source has heard of each.

use std::collections::BTreeMap;
use std::time::Duration;

use super::delivery::{LONG, joined};
use super::failures::{k_of, managers};
use super::world::{Weather, World};
use crate::testing::seeds;
use crate::tmtp::{ReceiverCommand, ReceiverEvent, SourceEvent};
use umbel_wire::tmtp::ReceiverState;

/// Acts as hosts do: a receiver that has all and is not needed by its children leaves, and ends
/// when it has left. Returns whether all have ended.
fn let_leave(world: &mut World, leaving: &mut [bool]) -> bool {
    let mut ended = true;
    for index in world.receivers() {
        if !world.is_up(index) {
            continue;
        }
        if world.receiver_events(index).contains(&ReceiverEvent::Left) {
            world.crash(index);
            continue;
        }
        ended = false;
        let totals = world.receiver(index).stats().totals;
        let has_all = world.receiver_events(index).contains(&ReceiverEvent::Complete);
        if has_all && totals.is_settled() && !leaving[index] {
            leaving[index] = true;
            world.command(index, ReceiverCommand::Leave);
        }
    }
    ended
}

/// Returns the last word of each receiver that the source has heard, by name.
fn last_words(world: &World) -> BTreeMap<&str, &ReceiverState> {
    let events = world.source_events().iter();
    let reports = events.filter_map(|event| match event {
        SourceEvent::Report(report) => Some((report.name.as_str(), &report.state)),
        _ => None,
    });
    reports.collect()
}

fn everyone_is_heard_of(seed: u64, loss: f64, kills: usize) {
    let (k, fec) = k_of(seed);
    let mut world = joined(seed, vec![k; 160 / usize::from(k)], fec, &[1, 4, 3, 3]);
    world.set_weather(Weather::loss(loss));
    world.extend_all();
    world.run_for(Duration::from_millis(100));
    let mut killed = Vec::new();
    for turn in 0..kills {
        let managers = managers(&mut world);
        killed.push(managers[(seed as usize + turn) % managers.len()]);
        world.crash(killed[turn]);
    }
    let mut leaving = vec![false; world.receivers().end];
    world.run_until(LONG, |world| let_leave(world, &mut leaving));
    let words = last_words(&world);
    for index in world.receivers().filter(|index| !killed.contains(index)) {
        let said = words.get(format!("node-{index}").as_str());
        assert_eq!(said, Some(&&ReceiverState::Done), "seed {seed}: {index}");
    }
}

#[test]
fn the_last_words_of_all_reach_the_source_though_their_managers_leave() {
    seeds(12).for_each(|seed| everyone_is_heard_of(seed, 0.1, 0));
}

#[test]
fn the_last_words_of_all_reach_the_source_though_a_fifth_is_lost() {
    seeds(40).for_each(|seed| everyone_is_heard_of(seed, 0.2, 0));
}

#[test]
fn the_last_words_of_those_whose_manager_was_killed_reach_the_source() {
    seeds(12).for_each(|seed| everyone_is_heard_of(seed, 0.05, 2));
}
