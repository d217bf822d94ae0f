//! Wrong symbols: each costs a symbol, since the source's digests tell which they are.

use std::time::Duration;

use umbel_wire::small_block::SmallBlockHeader;
use umbel_wire::tmtp::{Manifest, MessageType};
use umbel_wire::{Channel, Digest};

use super::content::SYMBOL_LEN;
use super::delivery::{LONG, complete, joined, rate};
use super::world::{FEED, Weather, World, secret_of};
use crate::Address;
use crate::testing::seeds;
use crate::tmtp::{
    Authentication, DropReason, Purpose, ReceiverCommand, ReceiverEvent, Shape, node_id,
};

/// Source symbols of a block, and blocks.
const K: u8 = 16;
const BLOCKS: u8 = 20;
/// Blocks of a longer feed.
const MANY: u8 = 200;
/// Receivers in each subnet.
const SUBNETS: [usize; 5] = [1, 1, 1, 2, 3];

fn world(seed: u64, fec: bool) -> World {
    world_of(seed, BLOCKS, fec)
}

fn world_of(seed: u64, blocks: u8, fec: bool) -> World {
    let mut world = joined(seed, vec![K; blocks.into()], fec, &SUBNETS);
    prepare(&mut world);
    world
}

/// Expects wrong symbols, and blocks that are wrong because of them.
fn prepare(world: &mut World) {
    world.expect_faults();
    for reason in [DropReason::Suspect, DropReason::ForgedSymbol] {
        world.may_drop(reason);
    }
    // A forged packet of the data channel tells of blocks that were not sent.
    world.may_drop(DropReason::AbsurdBlock);
    for index in world.receivers() {
        world.receiver(index).sink_mut().wrong = Some(Vec::new());
    }
}

/// Makes a wrong symbol of a block arrive at a receiver, as if it came from its parent, or from the
/// source on the data channel.
fn forge(world: &mut World, to: usize, purpose: Purpose, (sbn, esi): (u32, u8)) {
    let Some((_, parent, _)) = world.receiver(to).tree().parent else { return };
    let by = match purpose {
        Purpose::Repair => Channel { source: Some(parent.ip()), ..World::domain_group() },
        Purpose::First | Purpose::Fetched | Purpose::Piece => World::data_channel(),
    };
    let mut packet = [7; SmallBlockHeader::LEN + SYMBOL_LEN];
    let header = SmallBlockHeader {
        tsi: FEED,
        toi: crate::tmtp::FEED,
        transmission: purpose.transmission(),
        index: 0,
        stamp: None,
        sbn,
        block_symbols: K,
        esi,
    };
    header.emit(&mut packet).unwrap();
    world.give(to, Address::Channel(by), &packet);
}

/// Says which blocks were wrong, as the applications do. Returns their number.
fn report_wrong(world: &mut World) -> usize {
    let mut reported = 0;
    for index in world.receivers() {
        let wrong = std::mem::take(world.receiver(index).sink_mut().wrong.as_mut().unwrap());
        for block in wrong {
            reported += 1;
            world.command(index, ReceiverCommand::RestoreFailed { block });
        }
    }
    reported
}

/// Runs the world until every receiver has every block. Returns the number of blocks that were
/// wrong.
fn run(world: &mut World) -> usize {
    let mut wrong = 0;
    for _ in 0..LONG.as_millis() / 5 {
        wrong += report_wrong(world);
        if world.everyone_has_all() {
            return wrong;
        }
        world.run_for(Duration::from_millis(5));
    }
    panic!("blocks are missing: {:?}", world.receiver(1).progress());
}

/// Sends all blocks, one at a time, with one wrong symbol of each for each receiver. Returns the
/// number of blocks that were wrong.
fn send_with_a_wrong_symbol_of_each(world: &mut World) -> usize {
    let mut wrong = 0;
    for block in 0..BLOCKS {
        for index in world.receivers() {
            forge(world, index, Purpose::First, (block.into(), block % K));
        }
        world.extend(block.into()..usize::from(block) + 1);
        for _ in 0..20 {
            world.run_for(Duration::from_millis(5));
            wrong += report_wrong(world);
        }
    }
    wrong + run(world)
}

/// Returns which receivers have left a parent for its repairs, and the parent's host.
fn convictions(world: &World) -> Vec<(usize, usize)> {
    let host_of = |address| world.receivers().find(|&host| world.address_of(host) == address);
    let mut convictions = Vec::new();
    for index in world.receivers() {
        for event in world.receiver_events(index) {
            if let &ReceiverEvent::WrongRepairs { by } = event {
                convictions.push((index, host_of(by).expect("the source is not tried")));
            }
        }
    }
    convictions
}

/// Returns how many symbols all receivers have stored.
fn stored(world: &mut World) -> u64 {
    world.receivers().map(|index| world.receiver(index).sink_mut().stored).sum()
}

/// Returns how many symbols all receivers need.
fn needed(world: &mut World) -> u64 {
    world.receivers().len() as u64 * u64::from(BLOCKS) * u64::from(K)
}

#[test]
fn a_wrong_symbol_of_each_block_costs_a_symbol_of_each() {
    for fec in [true, false] {
        let mut world = world(3, fec);
        let wrong = send_with_a_wrong_symbol_of_each(&mut world);
        assert_eq!(wrong, usize::from(BLOCKS) * world.receivers().len(), "each block once");
        for index in world.receivers() {
            let stats = world.receiver(index).stats();
            assert_eq!(stats.fetched_received, 0, "{stats:?}");
        }
        assert_eq!(stored(&mut world), needed(&mut world) + wrong as u64, "fec {fec}");
        assert_eq!(convictions(&world), []);
    }
}

/// Sends all blocks, and forges a repair of the one that is being sent for each receiver and each
/// millisecond. Blocks turn out wrong up to 20 ms after they are complete. Returns the number of
/// blocks that were wrong.
fn send_under_forged_repairs(world: &mut World) -> usize {
    world.extend_all();
    let mut wrong = 0;
    for turn in 0..LONG.as_millis() {
        for index in world.receivers() {
            let block = world.receiver(index).progress().1;
            let esi = K + (turn % u128::from(u8::MAX - K)) as u8;
            if block < MANY.into() {
                forge(world, index, Purpose::Repair, (block, esi));
            }
        }
        if turn % 20 == 0 {
            wrong += report_wrong(world);
            if world.everyone_has_all() {
                return wrong;
            }
        }
        world.run_for(Duration::from_millis(1));
    }
    panic!("blocks are missing: {:?}", world.receiver(1).progress());
}

#[test]
fn repairs_that_nobody_asked_for_spoil_few_blocks_and_no_more_come_as_a_whole() {
    let mut world = world_of(5, MANY, true);
    let wrong = send_under_forged_repairs(&mut world);
    let receivers = world.receivers();
    assert!(wrong > 0 && wrong <= 10 * receivers.len(), "{wrong} blocks were wrong");
    for index in receivers.clone() {
        let stats = world.receiver(index).stats();
        assert_eq!(stats.fetched_received, 0, "{stats:?}");
    }
    let needed = receivers.len() * usize::from(MANY) * usize::from(K);
    let stored = stored(&mut world);
    assert!(stored * 50 <= needed as u64 * 51, "{stored} symbols of {needed}");
    assert_eq!(convictions(&world), []);
}

#[test]
fn a_parent_whose_repairs_are_wrong_is_left_by_its_children_and_no_other_parent_is() {
    for seed in seeds(8) {
        let mut world = world_of(seed, MANY, seed % 2 == 0);
        let liar = world.receivers().find(|&host| world.receiver(host).tree().members >= 2);
        let liar = liar.expect("a subnet has three receivers");
        let lies_to = |world: &mut World, host: usize| {
            let parent = world.receiver(host).tree().parent.expect("all have joined");
            parent.1 == world.address_of(liar)
        };
        let children: Vec<usize> =
            world.receivers().filter(|&host| lies_to(&mut world, host)).collect();
        world.liar = Some(liar);
        world.set_weather(Weather::loss(0.1));
        world.extend_all();
        run(&mut world);
        let expected: Vec<_> = children.iter().map(|&child| (child, liar)).collect();
        assert_eq!(convictions(&world), expected, "seed {seed}");
    }
}

#[test]
fn blocks_come_as_a_whole_where_nobody_answers_questions_about_symbols() {
    let mut world = world(4, true);
    world.no_questions = true;
    let wrong = send_with_a_wrong_symbol_of_each(&mut world);
    assert!(wrong >= usize::from(BLOCKS), "{wrong}");
    assert_eq!(stored(&mut world), needed(&mut world) + wrong as u64 * u64::from(K));
}

#[test]
fn whatever_is_forged_and_lost_every_block_is_the_sources() {
    for seed in seeds(8) {
        let mut world = world(seed, seed % 2 == 0);
        world.set_weather(Weather::loss(0.1));
        world.extend_all();
        for _ in 0..60 {
            for index in world.receivers() {
                let known = world.receiver(index).progress().1;
                let block = world.below(u64::from(known) + 1) as u32;
                let esi = world.below(40) as u8;
                let way = [Purpose::Repair, Purpose::First, Purpose::Fetched];
                let way = way[world.below(3) as usize];
                forge(&mut world, index, way, (block, esi));
            }
            world.run_for(Duration::from_millis(5));
            report_wrong(&mut world);
        }
        run(&mut world);
        world.run_until(LONG, complete);
        assert_eq!(convictions(&world), [], "seed {seed}");
    }
}

/// Makes a world of files, open with signatures or closed by a token, and sends them while a symbol
/// of each block is forged for each receiver. Returns the number of blocks that were wrong.
fn send_files_under_attack(open: bool) -> (World, usize) {
    let manifest = Some(Manifest { blocks: 1, len: 100, digest: Digest([1; 32]) });
    let id = open.then(|| node_id(FEED, &secret_of(0)));
    let shape = World::shape(K, true);
    let shape = Shape { manifest, id: id.unwrap_or(shape.id), ..shape };
    let mut world = World::new(6, vec![K; MANY.into()], shape, rate(1_000_000), |mut config| {
        config.node.id = id.unwrap_or(config.node.id);
        config.node.authentication =
            if open { Authentication::Keys(secret_of(0)) } else { Authentication::Token([9; 32]) };
        config
    });
    for (subnet, receivers) in SUBNETS.into_iter().enumerate() {
        for _ in 0..receivers {
            world.add_receiver(subnet, shape, |config| config);
            world.run_for(Duration::from_millis(20));
        }
    }
    let members = world.receivers().len();
    world.run_until(LONG, |world| world.source().stats().totals.members == members as u32);
    prepare(&mut world);
    // Small blocks are sent faster than the source reads them for digests.
    world.may_drop(DropReason::OverLimit);
    world.log = Some(Vec::new());
    world.extend_all();
    let mut wrong = 0;
    for turn in 0..LONG.as_millis() {
        for index in world.receivers() {
            // The end of the block that is being sent, so that the forged symbol is the first.
            let block = world.receiver(index).progress().1;
            if block < MANY.into() {
                forge(&mut world, index, Purpose::First, (block, K - 2));
            }
        }
        if turn % 20 == 0 {
            wrong += report_wrong(&mut world);
            if world.everyone_has_all() {
                break;
            }
        }
        world.run_for(Duration::from_millis(1));
    }
    assert!(world.everyone_has_all(), "{}", world.state());
    assert!(wrong > 0 && wrong <= 12 * members, "{wrong} blocks were wrong");
    let needed = members * usize::from(MANY) * usize::from(K);
    let stored = stored(&mut world);
    assert!(stored * 50 <= needed as u64 * 51, "{stored} symbols of {needed}");
    (world, wrong)
}

/// Returns how many messages of a type the source has sent.
fn told(world: &World, wanted: MessageType) -> usize {
    let sent = world.log.iter().flatten().filter(|sent| sent.from == 0);
    sent.filter(|sent| MessageType::of(&sent.payload) == Some(wanted)).count()
}

#[test]
fn of_files_few_blocks_are_wrong_though_symbols_of_each_are_forged_while_it_is_sent() {
    let (world, _) = send_files_under_attack(false);
    assert_eq!(told(&world, MessageType::BlockDigests), 0, "nobody could check them");
}

#[test]
fn in_an_open_feed_the_source_tells_everybody_the_digests_that_several_ask_for() {
    let (world, wrong) = send_files_under_attack(true);
    let (alone, all) =
        (told(&world, MessageType::SymbolDigests), told(&world, MessageType::BlockDigests));
    println!("{all} to all, {alone} alone, {wrong} blocks were wrong");
    // One for each block, and few for those who ask at another time.
    assert!(all <= usize::from(MANY) + wrong, "{all} to all, {alone} alone");
    assert!(all > usize::from(MANY) / 2 && alone < usize::from(MANY), "{all}, {alone}");
}
