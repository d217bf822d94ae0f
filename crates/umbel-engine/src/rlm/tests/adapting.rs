//! Levels follow what paths carry.

use std::time::Duration;

use umbel_wire::stream::StreamMode;

use super::world::{TSI, World, base, control, receiver_config};
use crate::Engine;
use crate::rlm::*;

const LAYERS: u8 = 5;
/// 40 kb/s and twice as much for each further layer: 40, 120, 280, 600, 1240 in all.
const RATES: [f64; 5] = [40e3, 80e3, 160e3, 320e3, 640e3];

fn world() -> World {
    let config =
        SourceConfig { control: Some(control()), ..SourceConfig::new(TSI, base(), LAYERS) };
    let mut world = World::new(config, &RATES);
    // Packets are under way when a receiver leaves a layer.
    world.may_drop(DropReason::LeftLayer);
    world
}

fn minutes(n: u64) -> Duration {
    Duration::from_secs(60 * n)
}

/// Returns whether a receiver stays at `level` once it has risen there; experiments go one above.
fn stays_at(world: &World, node: usize, level: u8) -> bool {
    let levels = world.receivers[node].events.iter().filter_map(|(_, event)| match event {
        ReceiverEvent::Level { level, .. } => Some(*level),
        _ => None,
    });
    levels.skip(level.into()).all(|other| other == level || other == level + 1)
}

#[test]
fn each_receiver_finds_the_level_of_its_own_path() {
    let mut world = world();
    for (number, capacity) in [(1, 1e9), (2, 700e3), (3, 60e3)] {
        world.add(receiver_config(number, LAYERS), capacity);
    }
    world.pass(minutes(4));
    assert!(world.receivers[0].engine.stats().level == 5 && world.dropped(0) == 0);
    assert!(stays_at(&world, 1, 4), "{:?}", world.levels());
    assert!(stays_at(&world, 2, 1), "{:?}", world.levels());
    for node in 0..3 {
        let stats = world.receivers[node].engine.stats();
        assert!(stats.lost < 400 && stats.lost <= world.dropped(node), "{stats:?}");
        assert_eq!(stats.receivers, 3);
    }
    let stats = world.source.stats();
    assert_eq!((stats.receivers, stats.at_level.iter().sum::<u64>()), (3, 3));
    assert!(stats.experiments >= 8);
}

#[test]
fn a_level_follows_the_capacity_down_and_up_again() {
    let mut world = world();
    world.add(receiver_config(1, LAYERS), 700e3);
    world.pass(minutes(2));
    assert_eq!(world.levels(), [4]);
    world.set_capacity(0, 150e3);
    world.pass(minutes(1));
    assert_eq!(world.levels(), [2]);
    world.set_capacity(0, 700e3);
    world.pass(minutes(6));
    assert_eq!(world.levels(), [4]);
}

#[test]
fn independent_layers_are_received_one_at_a_time() {
    let mut world = world();
    let config = ReceiverConfig { mode: StreamMode::Independent, ..receiver_config(1, LAYERS) };
    world.add(config, 400e3);
    for _ in 0..240 {
        world.pass(Duration::from_secs(1));
        assert!(world.joined(0) <= 3, "one layer, another for a moment, the control group");
    }
    // 320 kb/s fit.
    assert_eq!((world.levels(), world.joined(0)), (vec![4], 2));
}

#[test]
fn a_receiver_that_leaves_says_so_and_is_in_no_channel() {
    let mut world = world();
    for number in [1, 2] {
        world.add(receiver_config(number, LAYERS), 1e9);
    }
    world.pass(minutes(1));
    assert_eq!(world.receivers[1].engine.stats().receivers, 2);
    let now = world.now;
    world.receivers[0].engine.handle_command(now, ReceiverCommand::Leave).unwrap();
    world.pass(Duration::from_millis(5));
    assert_eq!((world.joined(0), world.levels()[0]), (0, 0));
    assert_eq!(
        (world.receivers[1].engine.stats().receivers, world.source.stats().receivers),
        (1, 1)
    );
    world.pass(minutes(1));
    assert_eq!(world.joined(0), 0);
}

#[test]
fn a_receiver_whose_limit_is_lowered_keeps_to_it() {
    let mut world = world();
    world.add(receiver_config(1, LAYERS), 1e9);
    world.pass(minutes(2));
    let now = world.now;
    let engine = &mut world.receivers[0].engine;
    engine.handle_command(now, ReceiverCommand::LimitLevel(2)).unwrap();
    let refused = engine.handle_command(now, ReceiverCommand::LimitLevel(6));
    assert_eq!(refused, Err(ReceiverCommandError::NoSuchLevel { level: 6, layers: 5 }));
    world.pass(minutes(2));
    assert_eq!((world.levels(), world.joined(0)), (vec![2], 3));
}

#[test]
fn the_delay_ends_experiments_before_packets_are_lost() {
    let run = |controller| {
        let mut world = world();
        world.add(ReceiverConfig { controller, ..receiver_config(1, LAYERS) }, 700e3);
        world.pass(minutes(4));
        assert_eq!(world.levels(), [4], "{controller:?}");
        let stats = world.receivers[0].engine.stats();
        (stats.failed, stats.lost, world.dropped(0))
    };
    let (failed, lost, _) = run(ControllerKind::Rlm);
    assert!(failed >= 3 && lost > 10, "{failed}, {lost}");
    let (failed, lost, dropped) = run(ControllerKind::Delay);
    assert!(failed >= 3 && lost + dropped == 0, "{failed}, {lost}, {dropped}");
}
