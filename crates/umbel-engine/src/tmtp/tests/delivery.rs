//! Every receiver gets every block exactly right.

use std::time::Duration;

use umbel_wire::Digest;
use umbel_wire::feed::Recovery;
use umbel_wire::tmtp::Manifest;

use super::world::{Weather, World};
use crate::tmtp::{ReceiverEvent, Shape, SourceConfig, SourceEvent};
use crate::units::Rate;

pub(super) const LONG: Duration = Duration::from_mins(2);

pub(super) fn rate(bits_per_s: u64) -> Rate {
    Rate::from_bits_per_s(bits_per_s).unwrap()
}

/// Creates a source and receivers in each subnet, which have joined, at the beginning of a feed.
pub(super) fn joined(seed: u64, lengths: Vec<u8>, fec: bool, subnets: &[usize]) -> World {
    let mut world = joined_with(Recovery::Tree, seed, lengths, fec, subnets);
    world.log = None;
    world
}

/// Creates the same with another recovery. Logs what is sent.
pub(super) fn joined_with(
    recovery: Recovery,
    seed: u64,
    lengths: Vec<u8>,
    fec: bool,
    subnets: &[usize],
) -> World {
    let k = lengths.iter().copied().max().unwrap_or(1);
    let shape = World::shape(k, fec);
    let mut world = World::new(seed, lengths, shape, rate(1_000_000), |mut config| {
        config.node.recovery = recovery;
        config
    });
    world.log = Some(Vec::new());
    for (subnet, &receivers) in subnets.iter().enumerate() {
        for _ in 0..receivers {
            world.add_receiver(subnet, World::shape(k, fec), |config| config);
            world.run_for(Duration::from_millis(20));
        }
    }
    let members: u32 = subnets.iter().map(|&n| n as u32).sum();
    world.run_until(LONG, |world| world.source().stats().totals.members == members);
    world
}

pub(super) fn complete(world: &mut World) -> bool {
    world.source_events().contains(&SourceEvent::Complete)
}

/// Runs until every receiver has everything and the source knows.
pub(super) fn finish(world: &mut World) {
    world.run_until(LONG, World::everyone_has_all);
    world.run_until(LONG, complete);
}

#[test]
fn a_flat_lan_without_loss_needs_no_repair_and_stores_each_symbol_once() {
    let mut world = joined(1, vec![20; 100], true, &[4]);
    world.extend_all();
    world.run_until(LONG, complete);
    assert!(world.everyone_has_all());
    let stats = world.source().stats();
    let sent = (stats.data_sent, stats.repairs_sent, stats.fetched_sent);
    assert_eq!(sent, (2000, 0, 0), "{}", world.state());
    assert_eq!((stats.totals.members, stats.totals.done), (4, 4));
    for index in world.receivers() {
        assert_eq!(world.receiver(index).sink_mut().stored, 2000);
        let stats = world.receiver(index).stats();
        assert_eq!((stats.nacks_sent, stats.fetches_sent, stats.data_lost), (0, 0, 0));
        assert!(world.receiver_events(index).contains(&ReceiverEvent::Complete));
    }
}

#[test]
fn everyone_in_every_subnet_gets_everything_in_spite_of_loss() {
    for (seed, fec, k) in [(1, true, 20), (2, false, 20), (3, false, 1), (4, true, 1)] {
        let mut world = joined(seed, vec![k; 300 / usize::from(k)], fec, &[2, 3, 3, 2, 2]);
        world.set_weather(Weather::loss(0.05));
        world.extend_all();
        finish(&mut world);
    }
}

#[test]
fn who_comes_late_to_a_pipe_gets_what_comes_before_it_and_what_is_kept() {
    let manifest = Manifest { blocks: 2, len: 100, digest: Digest([1; 32]) };
    let shape = Shape { manifest: Some(manifest), ..World::shape(4, true) };
    let remember = |config| SourceConfig { history: Some(10), ..config };
    let mut world = World::new(9, vec![4; 40], shape, rate(1_000_000), remember);
    world.add_receiver(0, shape, |config| config);
    world.run_until(LONG, |world| world.source().stats().totals.members == 1);
    world.extend(0..40);
    world.run_until(LONG, World::everyone_has_all);
    world.run_for(Duration::from_secs(2));
    let late = world.add_receiver(1, shape, |config| config);
    let gone = |world: &mut World| {
        world.receiver_events(late).iter().any(|event| matches!(event, ReceiverEvent::Gone(_)))
    };
    world.run_until(LONG, gone);
    world.run_for(Duration::from_secs(5));
    let held: Vec<u32> = world.receiver(late).sink_mut().blocks.keys().copied().collect();
    assert_eq!(held, (0..2).chain(30..40).collect::<Vec<_>>());
    world.source.assert_dropped("NoCookie 1");
}
