//! Floods, forgeries and nonsense.

use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Tsi;
use umbel_wire::rlm::{Loss, Message};

use super::world::{TSI, World, base, control, receiver_config};
use crate::chance::generator;
use crate::rlm::*;
use crate::{Address, Datagram, Engine, Instant};

const LAYERS: u8 = 5;
const RATES: [f64; 5] = [40e3, 80e3, 160e3, 320e3, 640e3];

fn config() -> SourceConfig {
    SourceConfig { control: Some(control()), ..SourceConfig::new(TSI, base(), LAYERS) }
}

fn world() -> World {
    let mut world = World::new(config(), &RATES);
    // Packets are under way when a receiver leaves a layer.
    world.may_drop(DropReason::LeftLayer);
    world
}

fn bytes(message: Message) -> Bytes {
    let mut out = Vec::new();
    message.emit(&mut out);
    out.into()
}

fn experiment(receiver: u64, level: u8) -> Bytes {
    bytes(Message::JoinExperiment { tsi: TSI, receiver, level })
}

fn session(tsi: Tsi, receiver: u64) -> Bytes {
    bytes(Message::Session { tsi, receiver, level: 1, loss: Loss::default() })
}

#[test]
fn forged_experiments_delay_a_receiver_and_do_not_pin_it_down() {
    let (mut quiet, mut flooded) = (world(), world());
    let reached = |world: &mut World, forges: bool| {
        world.add(receiver_config(1, LAYERS), 700e3);
        let mut n = 0_u32;
        for tenth in 0..12_000_u64 {
            // A hundred a second, each from another sender and receiver, at every level.
            for _ in 0..if forges { 10 } else { 0 } {
                n += 1;
                let sender = [172, 16, (n >> 8) as u8, n as u8];
                world.say(sender, &experiment(u64::from(n) + 1, (n % 6) as u8 + 1));
            }
            world.pass(Duration::from_millis(100));
            if world.levels() == [4] {
                return tenth / 10;
            }
        }
        panic!("never reached");
    };
    let (alone, pressed) = (reached(&mut quiet, false), reached(&mut flooded, true));
    // Each of three experiments is forgone eight times at most.
    assert!(alone < 60 && pressed < 12 * 60, "{alone} s, {pressed} s");
    let stats = flooded.receivers[0].engine.stats();
    assert!(stats.suppressed >= 8 && stats.suppressed <= 3 * 8, "{stats:?}");
}

#[test]
fn one_sender_alone_is_heard_once_a_second() {
    let mut world = world();
    world.add(receiver_config(1, LAYERS), 1e9);
    for n in 0..1000 {
        world.say([172, 16, 0, 1], &experiment(n + 10, 2));
        world.pass(Duration::from_millis(5));
    }
    world.may_drop(DropReason::Flood);
    let engine = &world.receivers[0].engine;
    assert!((8..=10).contains(&engine.stats().heard), "{:?}", engine.stats());
    assert_eq!(engine.drops().of(DropReason::Flood) + engine.stats().heard, 1000);
}

#[test]
fn a_crowd_that_is_made_up_does_not_silence_experiments_for_ever() {
    let mut world = world();
    world.add(receiver_config(1, LAYERS), 700e3);
    for n in 0..40_000_u64 {
        world.say([172, 16, 0, (n % 100) as u8], &session(TSI, n + 10));
        if n % 40 == 0 {
            world.pass(Duration::from_millis(100));
        }
    }
    world.may_drop(DropReason::Flood);
    let engine = &world.receivers[0].engine;
    assert!(engine.stats().receivers > 1000 && engine.drops().of(DropReason::Flood) > 0);
    assert_eq!(world.levels(), [4]);
}

#[test]
fn one_host_that_talks_without_end_silences_nobody() {
    let mut world = world();
    world.add(receiver_config(1, LAYERS), 1e9);
    for n in 0..10_000_u64 {
        world.say([172, 16, 0, 1], &session(TSI, 10));
        if n % 100 == 0 {
            world.say([172, 16, 0, 2], &session(TSI, 1_000 + n));
            world.pass(Duration::from_millis(100));
        }
    }
    world.may_drop(DropReason::Flood);
    let engine = &world.receivers[0].engine;
    assert!(engine.drops().of(DropReason::Flood) > 9_000);
    // All that the other one has said: a hundred, itself, and the one that talks.
    assert!((100..=103).contains(&engine.stats().receivers), "{:?}", engine.stats());
}

#[test]
fn control_messages_that_are_not_for_it_are_counted_drops() {
    let mut world = world();
    world.add(receiver_config(1, LAYERS), 1e9);
    for message in [
        session(Tsi(99), 5),
        session(TSI, 1),
        Bytes::from_static(b"Um\x01\x77\0\0\0\0"),
        Bytes::from_static(b"nonsense"),
    ] {
        world.say([172, 16, 0, 1], &message);
    }
    let drops = "Unexpected 1, Malformed 1, OtherSession 1, Own 1";
    world.receivers[0].engine.assert_dropped(drops);
    world.source.assert_dropped("Unexpected 1, Malformed 1, OtherSession 1");
}

#[test]
fn a_source_that_begins_anew_is_not_taken_for_loss() {
    let mut first = world();
    first.add(receiver_config(1, LAYERS), 1e9);
    first.pass(Duration::from_mins(2));
    assert_eq!(first.levels(), [5]);
    // The layers' numbers and blocks begin at 0 again, far behind.
    first.begin_anew(config());
    // Until the numbers are as far as before.
    first.may_drop(DropReason::Duplicate);
    first.pass(Duration::from_mins(2));
    let stats = first.receivers[0].engine.stats();
    assert_eq!((stats.level, stats.failed), (5, 0), "{stats:?}");
    assert!(stats.lost <= u64::from(LAYERS) * 10_000);
}

#[test]
fn an_object_that_lies_about_itself_is_not_delivered() {
    use umbel_wire::rlm::ObjectHead;
    use umbel_wire::{Digest, SmallBlockHeader, Toi};
    let mut receiver = Receiver::new(receiver_config(1, 1), generator(1)).unwrap();
    let now = Instant::EPOCH;
    receiver.handle_command(now, ReceiverCommand::Join).unwrap();
    let mut index = 0;
    let mut give = |receiver: &mut Receiver, toi, sbn, block_symbols, esi, symbol: &[u8]| {
        let toi = Toi(toi);
        let header = SmallBlockHeader {
            tsi: TSI,
            toi,
            transmission: 0,
            index,
            stamp: None,
            sbn,
            block_symbols,
            esi,
        };
        index += 1;
        let mut packet = vec![0; SmallBlockHeader::LEN];
        header.emit(&mut packet).unwrap();
        packet.extend_from_slice(symbol);
        let by = Address::Channel(base());
        receiver.handle_datagram(now, Datagram { by, hop_limit: None, payload: &packet });
    };
    let head = |len, digest| {
        let mut out = Vec::new();
        let name = "../../etc/passwd".to_owned();
        ObjectHead { name, len, digest: Digest(digest), symbol_len: 4, block_symbols: 2 }
            .emit(&mut out);
        out
    };
    // A wrong digest.
    give(&mut receiver, 1, 0, 1, 0, &head(4, [0; 32]));
    give(&mut receiver, 1, 1, 1, 0, b"four");
    // A length beyond all bounds.
    give(&mut receiver, 2, 0, 1, 0, &head(1 << 60, [0; 32]));
    // Blocks that do not fit the length, and symbols that do not fit the block.
    give(&mut receiver, 3, 0, 1, 0, &head(8, [0; 32]));
    give(&mut receiver, 3, 1, 2, 0, b"x");
    give(&mut receiver, 3, 1, 3, 0, b"else");
    give(&mut receiver, 3, 1, 2, 3, b"longer");
    give(&mut receiver, 3, 0, 1, 1, &head(9, [0; 32]));
    give(&mut receiver, 4, 0, 1, 0, b"no head");
    receiver.handle_timeout(now + Duration::from_secs(20));
    let events = std::iter::from_fn(|| receiver.poll_event());
    let missing = events.filter(|event| matches!(event, ReceiverEvent::ObjectMissing { .. }));
    assert_eq!(missing.count(), 4);
    assert_eq!(receiver.drops().of(DropReason::Contradiction), 1);
    assert_eq!(receiver.drops().of(DropReason::Malformed), 1);
}
