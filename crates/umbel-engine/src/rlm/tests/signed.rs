//! Signed packets, and a stranger who sends with the address of the source.

use std::time::Duration;

use bytes::Bytes;
use ring::signature::{Ed25519KeyPair, KeyPair};
use umbel_wire::rlm::SignedHeader;
use umbel_wire::rlm::signed::{SIGNATURE_LEN, message_of};
use umbel_wire::stream::LayerFec;
use umbel_wire::{SmallBlockHeader, SmallBlockPacket, Toi};

use super::world::{TSI, World, base, receiver_config};
use crate::bucket::Limit;
use crate::chance::generator;
use crate::rlm::*;
use crate::{Address, Datagram, Engine, Instant};

const VERSION: u64 = 1_700_000_000_000;
const STEP: Duration = Duration::from_millis(5);

fn keys(seed: u8) -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap()
}

fn sign(keys: &Ed25519KeyPair, message: &[u8]) -> [u8; SIGNATURE_LEN] {
    keys.sign(message).as_ref().try_into().unwrap()
}

fn key() -> StreamKey {
    let public = keys(1).public_key().as_ref().try_into().unwrap();
    StreamKey { public, version: VERSION }
}

fn signing() -> Signing {
    let keys = keys(1);
    Signing::new(Box::new(move |message| sign(&keys, message)), VERSION)
}

fn receiver(layers: u8) -> ReceiverConfig {
    ReceiverConfig { key: Some(key()), control: None, ..receiver_config(1, layers) }
}

fn world(layers: u8, fec: Option<LayerFec>) -> World {
    let mut config = SourceConfig::new(TSI, base(), layers);
    config.layers.iter_mut().for_each(|layer| layer.fec = fec);
    World::of(Source::new(config).unwrap().signed(signing()), &[])
}

fn unit(world: &mut World, layer: u8, body: &[u8]) {
    let unit = SourceCommand::Unit { layer, body: Bytes::copy_from_slice(body) };
    world.source.handle_command(world.now, unit).unwrap();
}

/// Packets that a stranger makes of one that it heard: the same again, changed ones, one of its own
/// without a signature, and the one that comes next with a signature of its own.
fn forgeries(layer: u8, packet: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let parsed = SmallBlockPacket::parse(packet).unwrap();
    let mut header = parsed.header;
    let changed = |at: usize| {
        let mut changed = packet.to_vec();
        changed[at] ^= 1;
        changed
    };
    header.index = header.index.wrapping_add(1);
    (header.sbn, header.esi) = match header.esi + 1 {
        esi if esi < header.block_symbols => (header.sbn, esi),
        _ => (header.sbn + 1, 0),
    };
    let mut plain = vec![0; SmallBlockHeader::LEN];
    header.emit(&mut plain).unwrap();
    plain.extend_from_slice(b"evil");
    let own = signed_by(&keys(2), (VERSION, layer), SignedHeader { header, turn: 0 }, b"evil");
    let (last, other) = (packet.len() - 1, (layer + 1) % 2);
    vec![
        (layer, packet.to_vec()),
        (layer, changed(last)),
        // The time of sending, the packet's number, a place in the signature, the block.
        (layer, changed(7)),
        (layer, changed(23)),
        (layer, changed(60)),
        (layer, changed(91)),
        (layer, plain),
        (layer, own),
        (other, packet.to_vec()),
    ]
}

fn signed_by(
    keys: &Ed25519KeyPair,
    place: (u64, u8),
    header: SignedHeader,
    symbol: &[u8],
) -> Vec<u8> {
    let mut head = header.emit().unwrap();
    let mut message = Vec::new();
    message_of(&head, symbol, place, &mut message);
    SignedHeader::sign(&mut head, &sign(keys, &message));
    [&head[..], symbol].concat()
}

/// Returns what a receiver of two layers with a code is given while each tenth of the base is lost,
/// beside a stranger or not, and its counters.
fn received(beside: bool) -> (Vec<ReceiverEvent>, ReceiverStats) {
    let fec = LayerFec { source_symbols: 8, repair_symbols: 2 };
    let mut world = world(2, Some(fec));
    // It stays at both layers from the beginning to the end, so that loss changes no level.
    let mut config = receiver(2);
    config.rlm.loss_threshold = 1.0;
    world.add(config, 1e9);
    // Repairs of what is whole.
    world.may_drop(DropReason::Duplicate);
    if beside {
        world.may_drop(DropReason::Forged);
        world.may_drop(DropReason::Unsigned);
    }
    let has_both = |world: &World| {
        let mut events = world.receivers[0].events.iter();
        events.any(|(_, event)| *event == ReceiverEvent::ExperimentSucceeded { level: 2 })
    };
    for n in 0..1_000_u32 {
        if has_both(&world) {
            break;
        }
        (0..2).for_each(|layer| unit(&mut world, layer, &n.to_be_bytes()));
        world.pass(10 * STEP);
    }
    // What is open of its code is over.
    world.pass(Duration::from_secs(1));
    assert!(has_both(&world));
    world.receivers[0].events.clear();
    world.heard = Some(Vec::new());
    world.loses = Box::new(|layer, n| layer == 0 && n % 10 == 3);
    for n in 0..400_u32 {
        for layer in 0..2 {
            unit(&mut world, layer, &[&n.to_be_bytes()[..], &[layer; 40]].concat());
        }
        world.pass(STEP);
        for (layer, packet) in world.heard.replace(Vec::new()).unwrap_or_default() {
            for (layer, forged) in forgeries(layer, &packet) {
                if beside {
                    world.forge(layer, &forged);
                }
            }
        }
    }
    world.pass(Duration::from_secs(1));
    let events = world.receivers[0].events.iter().map(|(_, event)| event.clone());
    (events.collect(), world.receivers[0].engine.stats())
}

#[test]
fn beside_a_stranger_a_receiver_is_given_the_same_and_counts_what_was_forged() {
    let ((alone, quiet), (beside, attacked)) = (received(false), received(true));
    let units = |events: &[ReceiverEvent]| -> Vec<ReceiverEvent> {
        let is_unit = |event: &&ReceiverEvent| matches!(event, ReceiverEvent::Unit { .. });
        events.iter().filter(is_unit).cloned().collect()
    };
    let (alone, beside) = (units(&alone), units(&beside));
    // Repairs make good what was lost of the base.
    assert_eq!(alone.len(), 800);
    let bodies = |units: &[ReceiverEvent]| -> Vec<Bytes> {
        let body = |unit: &ReceiverEvent| match unit {
            ReceiverEvent::Unit { body, .. } => body.clone(),
            _ => panic!("{unit:?}"),
        };
        let mut bodies: Vec<Bytes> = units.iter().map(body).collect();
        bodies.sort();
        bodies
    };
    assert_eq!(bodies(&alone), bodies(&beside));
    assert_eq!((quiet.forged, quiet.unchecked, attacked.unchecked), (0, 0, 0));
    // Of each packet one has no signature, one has another's, and one another number. The others
    // repeat numbers that were seen.
    assert!(attacked.forged >= 1_600, "{attacked:?}");
    assert!(attacked.lost <= quiet.lost, "{attacked:?} {quiet:?}");
}

#[test]
fn objects_cannot_be_spoilt() {
    let mut world = world(1, None);
    world.add(receiver(1), 1e9);
    world.heard = Some(Vec::new());
    for reason in [DropReason::Unsigned, DropReason::Duplicate, DropReason::TooLate] {
        world.may_drop(reason);
    }
    let body: Vec<u8> = (0..100_000_u32).map(|n| (n * 7 + n / 251) as u8).collect();
    for n in 0..3 {
        let (name, body) = (format!("seg-{n}"), Bytes::from(body.clone()));
        let object = SourceCommand::Object { layer: 0, name, body };
        world.source.handle_command(world.now, object).unwrap();
        for _ in 0..40 {
            world.pass(STEP);
            for (_, packet) in world.heard.replace(Vec::new()).unwrap_or_default() {
                // The next symbols, of the stranger's making, before those of the source.
                for ahead in 1..4 {
                    let mut header = SmallBlockPacket::parse(&packet).unwrap().header;
                    header.index += ahead;
                    header.esi += ahead as u8;
                    let mut forged = vec![0; SmallBlockHeader::LEN];
                    header.emit(&mut forged).unwrap();
                    forged.extend_from_slice(&[0xEE; 1280]);
                    world.forge(0, &forged);
                }
            }
        }
    }
    let events = world.receivers[0].events.iter().map(|(_, event)| event);
    let objects = events.filter_map(|event| match event {
        ReceiverEvent::Object { body, .. } => Some(body.clone()),
        ReceiverEvent::ObjectMissing { .. } => panic!("{event:?}"),
        _ => None,
    });
    assert_eq!(objects.collect::<Vec<_>>(), vec![body; 3]);
}

#[test]
fn what_was_sent_before_a_layer_was_left_is_not_taken_after_it() {
    let mut world = world(1, None);
    world.add(receiver(1), 1e9);
    world.heard = Some(Vec::new());
    world.may_drop(DropReason::Duplicate);
    for n in 0..50 {
        unit(&mut world, 0, &[n]);
        world.pass(STEP);
    }
    for command in [ReceiverCommand::Leave, ReceiverCommand::Join] {
        let now = world.now;
        world.receivers[0].engine.handle_command(now, command).unwrap();
        world.pass(STEP);
    }
    for (layer, packet) in world.heard.take().unwrap() {
        world.forge(layer, &packet);
    }
    assert_eq!(world.receivers[0].units(0).len(), 50);
    unit(&mut world, 0, b"next");
    world.pass(STEP);
    assert_eq!(world.receivers[0].units(0).len(), 51);
}

#[test]
fn a_receiver_takes_no_packet_without_a_signature() {
    let mut unsigned = World::new(SourceConfig::new(TSI, base(), 1), &[]);
    unsigned.add(receiver(1), 1e9);
    unit(&mut unsigned, 0, b"unit");
    unsigned.pass(STEP);
    let node = &mut unsigned.receivers[0];
    assert_eq!((node.units(0).len(), node.engine.stats().forged), (0, 1));
    node.engine.assert_dropped("Unsigned 1");
}

/// A receiver by itself, and the number of its next packet.
struct Alone {
    receiver: Receiver,
    now: Instant,
}

impl Alone {
    fn new(wrong_limit: Limit) -> Alone {
        let config = ReceiverConfig { wrong_limit, ..receiver(1) };
        let mut receiver = Receiver::new(config, generator(1)).unwrap();
        let now = Instant::from_nanos(1_000_000_000);
        receiver.handle_command(now, ReceiverCommand::Join).unwrap();
        Alone { receiver, now }
    }

    /// Gives it a packet of this number, signed so. Returns whether it was taken.
    fn give(&mut self, by: &Ed25519KeyPair, place: (u64, u8), number: u64) -> bool {
        let header = SmallBlockHeader {
            tsi: TSI,
            toi: Toi(0),
            transmission: 0,
            index: number as u32,
            stamp: None,
            sbn: number as u32,
            block_symbols: 1,
            esi: 0,
        };
        let header = SignedHeader { header, turn: (number >> 32) as u16 };
        let payload = &signed_by(by, place, header, b"unit")[..];
        let by = Address::Channel(base());
        self.receiver.handle_datagram(self.now, Datagram { by, hop_limit: None, payload });
        std::iter::from_fn(|| self.receiver.poll_event())
            .any(|event| matches!(event, ReceiverEvent::Unit { .. }))
    }

    fn dropped(&self, reason: DropReason) -> u64 {
        self.receiver.drops().of(reason)
    }
}

#[test]
fn a_signature_is_for_one_key_version_and_layer() {
    let mut alone = Alone::new(Limit { per_s: 100, burst: 100 });
    for (number, keys, place) in
        [(1, keys(2), (VERSION, 0)), (2, keys(1), (VERSION - 1, 0)), (3, keys(1), (VERSION, 1))]
    {
        assert!(!alone.give(&keys, place, number), "{number}");
        // The number is still free for the source's packet.
        assert!(alone.give(&self::keys(1), (VERSION, 0), number), "{number}");
    }
    assert_eq!(alone.dropped(DropReason::Forged), 3);
}

#[test]
fn numbers_go_on_beyond_32_bits_and_never_back() {
    let mut alone = Alone::new(Limit { per_s: 1, burst: 1 });
    let (keys, place) = (keys(1), (VERSION, 0));
    let wrap = 1 << 32;
    // The last two did not come before, and are not too old to know.
    for number in [wrap - 3, wrap - 1, wrap - 2, wrap, wrap + 4_000, wrap + 17, wrap + 1] {
        assert!(alone.give(&keys, place, number), "{number}");
    }
    for number in [wrap, 5, wrap - 1] {
        assert!(!alone.give(&keys, place, number), "{number}");
    }
    assert_eq!((alone.dropped(DropReason::Duplicate), alone.dropped(DropReason::Forged)), (3, 0));
}

#[test]
fn wrong_signatures_are_limited_and_right_ones_do_not_count() {
    let mut alone = Alone::new(Limit { per_s: 10, burst: 20 });
    let place = (VERSION, 0);
    for number in 0..200 {
        assert!(alone.give(&keys(1), place, number), "{number}");
    }
    for number in 1_000..1_100 {
        alone.give(&keys(2), place, number);
    }
    let (forged, unchecked) =
        (alone.dropped(DropReason::Forged), alone.dropped(DropReason::Unchecked));
    assert_eq!((forged, unchecked), (20, 80));
    let stats = alone.receiver.stats();
    assert_eq!((stats.forged, stats.unchecked), (forged, unchecked));
    // For a tenth of a second nothing more is looked at. Then the source is heard again.
    assert!(!alone.give(&keys(1), place, 200));
    alone.now += Duration::from_millis(200);
    for number in 201..300 {
        assert!(alone.give(&keys(1), place, number), "{number}");
    }
}
