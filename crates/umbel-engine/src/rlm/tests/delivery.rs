//! Delivery: units, restored units, objects.

use std::time::Duration;

use bytes::Bytes;
use umbel_wire::stream::LayerFec;

use super::world::{TSI, World, base, control, receiver_config};
use crate::chance::generator;
use crate::rlm::*;
use crate::{Engine, Instant};

const SECOND: Duration = Duration::from_secs(1);

fn with_fec(layers: u8, fec: Option<LayerFec>) -> SourceConfig {
    let mut config = SourceConfig::new(TSI, base(), layers);
    config.control = Some(control());
    config.layers[0].fec = fec;
    config
}

fn unit(world: &mut World, body: &[u8]) {
    let unit = SourceCommand::Unit { layer: 0, body: Bytes::copy_from_slice(body) };
    world.source.handle_command(world.now, unit).unwrap();
}

fn object(world: &mut World, name: &str, body: &[u8]) {
    let (name, body) = (name.to_owned(), Bytes::copy_from_slice(body));
    let object = SourceCommand::Object { layer: 0, name, body };
    world.source.handle_command(world.now, object).unwrap();
}

/// Bytes that differ everywhere.
fn content(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}

fn objects(world: &World) -> Vec<&ReceiverEvent> {
    let events = world.receivers[0].events.iter().map(|(_, event)| event);
    events
        .filter(|event| {
            matches!(event, ReceiverEvent::Object { .. } | ReceiverEvent::ObjectMissing { .. })
        })
        .collect()
}

#[test]
fn units_of_any_length_come_out_as_they_went_in() {
    let mut world = World::new(with_fec(1, None), &[]);
    world.add(receiver_config(1, 1), 1e9);
    let units: Vec<Vec<u8>> = (0..200).map(|n| content(n * 7 % 400)).collect();
    for body in &units {
        unit(&mut world, body);
        world.pass(Duration::from_millis(5));
    }
    assert_eq!(world.receivers[0].units(0), units);
}

#[test]
fn lost_units_of_the_base_layer_are_restored_and_short_blocks_are_closed() {
    let fec = LayerFec { source_symbols: 8, repair_symbols: 2 };
    let mut world = World::new(with_fec(1, Some(fec)), &[]);
    world.add(receiver_config(1, 1), 1e9);
    // Two of each ten packets are lost; the last block has three units and one repair.
    world.loses = Box::new(|_, n| n < 160 && (n % 10 == 3 || n % 10 == 7) || n == 161);
    let units: Vec<Vec<u8>> = (0..131).map(|n| content(n * 11 % 300 + 1)).collect();
    for body in &units {
        unit(&mut world, body);
        world.pass(Duration::from_millis(5));
    }
    world.pass(SECOND);
    let mut came = world.receivers[0].units(0);
    assert_eq!(came.len(), units.len());
    let numbers = world.receivers[0].events.iter().filter_map(|(_, event)| match event {
        ReceiverEvent::Unit { number, .. } => Some(*number),
        _ => None,
    });
    let numbers: std::collections::BTreeSet<u64> = numbers.collect();
    assert_eq!(numbers.len(), units.len());
    let mut sent = units;
    came.sort();
    sent.sort();
    assert_eq!(came, sent);
    assert_eq!(world.source.stats().layers[0].repairs, 16 * 2 + 1);
}

#[test]
fn objects_come_whole_despite_losses() {
    let fec = LayerFec { source_symbols: 50, repair_symbols: 10 };
    let mut world = World::new(with_fec(1, Some(fec)), &[]);
    world.add(receiver_config(1, 1), 1e9);
    // Heads are sent again, and repairs of what is whole.
    world.may_drop(DropReason::Duplicate);
    world.may_drop(DropReason::TooLate);
    // One packet in eight is lost, the first copy of the head among them.
    world.loses = Box::new(|_, n| n % 8 == 0);
    let bodies = [content(0), content(1), content(1280), content(200_001)];
    for (n, body) in bodies.iter().enumerate() {
        object(&mut world, &format!("seg-{n}"), body);
    }
    world.pass(2 * SECOND);
    let got = objects(&world);
    assert_eq!(got.len(), bodies.len());
    for (n, (event, sent)) in got.iter().zip(&bodies).enumerate() {
        let ReceiverEvent::Object { layer: 0, toi, name, body } = event else {
            panic!("{event:?}")
        };
        assert_eq!((toi.0, name), (n as u32 + 1, &format!("seg-{n}")));
        assert_eq!(body, sent);
    }
}

#[test]
fn repairs_of_a_small_object_are_as_small_as_it_is() {
    let fec = LayerFec { source_symbols: 128, repair_symbols: 13 };
    let mut world = World::new(with_fec(1, Some(fec)), &[]);
    world.add(receiver_config(1, 1), 1e9);
    // The head passes, the only symbol does not.
    world.loses = Box::new(|_, n| n == 1);
    object(&mut world, "playlist", &content(100));
    world.pass(SECOND);
    let got = objects(&world);
    let [ReceiverEvent::Object { body, .. }] = got[..] else { panic!("{got:?}") };
    assert_eq!(body, &content(100));
    let stats = world.source.stats().layers[0];
    assert_eq!(stats.repairs, 3, "two copies of the head, and one repair");
    assert!(stats.bytes < 1_000, "{} bytes", stats.bytes);
    world.receivers[0].engine.assert_dropped("Duplicate 2");
}

#[test]
fn what_is_missing_of_an_object_is_told_once_the_next_one_comes() {
    let mut world = World::new(with_fec(1, None), &[]);
    world.add(receiver_config(1, 1), 1e9);
    // Head, eight symbols and two more heads, one of them in the middle: symbols 1 and 6 are lost.
    world.loses = Box::new(|_, n| n == 2 || n == 8);
    let body = content(8 * 1280 - 5);
    object(&mut world, "v0/first", &body);
    object(&mut world, "v0/second", &body);
    world.pass(SECOND);
    let got = objects(&world);
    let [ReceiverEvent::Object { .. }, ReceiverEvent::ObjectMissing { head, held, missing, .. }] =
        got[..]
    else {
        panic!("{got:?}")
    };
    assert_eq!(missing, &[1280..2560, 7680..8960]);
    let head = head.as_ref().unwrap();
    assert_eq!((&head.name[..], head.len), ("v0/first", body.len() as u64));
    assert!(held[..1280] == body[..1280] && held[8960..] == body[8960..]);
    assert!(held[1280..2560].iter().all(|&byte| byte == 0));
    world.receivers[0].engine.assert_dropped("Duplicate 3, TooLate 1");
}

#[test]
fn the_last_object_is_given_up_when_nothing_more_comes() {
    let mut world = World::new(with_fec(1, None), &[]);
    world.add(receiver_config(1, 1), 1e9);
    world.loses = Box::new(|_, n| n == 1);
    object(&mut world, "only", &content(5000));
    world.pass(4 * SECOND);
    assert_eq!(objects(&world).len(), 0);
    world.pass(2 * SECOND);
    assert!(matches!(objects(&world)[..], [ReceiverEvent::ObjectMissing { .. }]));
    world.receivers[0].engine.assert_dropped("Duplicate 2");
}

#[test]
fn a_queue_that_is_full_or_too_slow_drops_the_oldest_units() {
    let config = SourceConfig { queue_units: 10, ..with_fec(1, None) };
    let mut world = World::new(config, &[]);
    for n in 0..15 {
        unit(&mut world, &[n]);
    }
    let stats = world.source.stats().layers[0];
    assert_eq!((stats.dropped, stats.waiting), (5, 10));
    let later = world.source.poll_timeout().unwrap();
    assert_eq!(later, world.now + SECOND);
    world.source.handle_timeout(later);
    let stats = world.source.stats().layers[0];
    assert_eq!((stats.dropped, stats.waiting), (15, 0));
    assert!(!world.source.wants(crate::RateClass::Layer(0)));
}

#[test]
fn commands_that_make_no_sense_are_refused() {
    let mut source = Source::new(with_fec(1, None)).unwrap();
    let now = Instant::EPOCH;
    let unit = |layer, len| SourceCommand::Unit { layer, body: vec![0; len].into() };
    assert_eq!(
        source.handle_command(now, unit(1, 1)),
        Err(SourceCommandError::NoSuchLayer { layer: 1, layers: 1 })
    );
    let too_long = source.handle_command(now, unit(0, MAX_UNIT + 1));
    assert_eq!(too_long, Err(SourceCommandError::TooLong(MAX_UNIT + 1)));
    let object = |name: &str, len| SourceCommand::Object {
        layer: 0,
        name: name.to_owned(),
        body: vec![0; len].into(),
    };
    let long_name = source.handle_command(now, object(&"n".repeat(513), 1));
    assert_eq!(long_name, Err(SourceCommandError::LongName(513)));
    source.handle_command(now, object("a", 40 << 20)).unwrap();
    let full = source.handle_command(now, object("b", 40 << 20));
    assert_eq!(full, Err(SourceCommandError::Full { held: 40 << 20, room: 64 << 20 }));
    let layers = SourceConfig::new(TSI, base(), 17);
    assert_eq!(Source::new(layers).unwrap_err(), ConfigError::Layers(17));
    let fec = LayerFec { source_symbols: 200, repair_symbols: 56 };
    let expected = ConfigError::Fec { source_symbols: 200, repair_symbols: 56 };
    assert_eq!(Source::new(with_fec(1, Some(fec))).unwrap_err(), expected);
    assert_eq!(
        Receiver::new(ReceiverConfig::new(TSI, 1, vec![control()]), generator(1)).unwrap_err(),
        ConfigError::Base(1)
    );
}
