//! Forgers and liars: their messages are counted, and cost no other node the feed.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::small_block::SmallBlockHeader;
use umbel_wire::tmtp::{
    Ack, Body, End, JoinConfirm, Manifest, Message, NodeId, ReceiverReport, ReceiverState, Report,
    Role, Totals,
};
use umbel_wire::{Channel, Digest};

use super::content::SYMBOL_LEN;
use super::delivery::{LONG, finish, joined, rate};
use super::world::{FEED, Weather, World};
use crate::Address;
use crate::testing::seeds;
use crate::tmtp::{
    DropReason, Purpose, ReceiverCommand, ReceiverEvent, SourceCommand, SourceEvent,
};

const DIGEST: Digest = Digest([7; 32]);

/// Makes a message of `sender`'s arrive at another node by unicast, from this address.
fn tell(world: &mut World, to: usize, from: SocketAddr, sender: usize, body: Body) {
    let (sender, mut payload) = (world.id(sender), Vec::new());
    Message { feed: FEED, sender, body }.emit(&mut payload);
    let by = Address::Host(from);
    world.give(to, by, &payload);
}

/// Makes a data packet arrive at every receiver.
fn give_all(world: &mut World, by: Address, header: SmallBlockHeader) {
    let mut packet = [7; SmallBlockHeader::LEN + SYMBOL_LEN];
    header.emit(&mut packet).unwrap();
    for to in world.receivers() {
        world.give(to, by, &packet);
    }
}

/// Returns the header of a symbol of a block that is said to have `k`.
fn header(purpose: Purpose, sbn: u32, block_symbols: u8, esi: u8) -> SmallBlockHeader {
    SmallBlockHeader {
        tsi: FEED,
        toi: crate::tmtp::FEED,
        transmission: purpose.transmission(),
        index: 0,
        stamp: None,
        sbn,
        block_symbols,
        esi,
    }
}

/// Returns the next acknowledgement that a node sends.
fn next_ack(world: &mut World, node: usize) -> Ack {
    let sender = world.id(node);
    world.log = Some(Vec::new());
    loop {
        world.run_for(Duration::from_millis(10));
        let ack = world.log.iter().flatten().find_map(|sent| {
            let message = Message::parse(&sent.payload).ok()?.message()?;
            match message.body {
                Body::Ack(ack) if message.sender == sender => Some(ack),
                _ => None,
            }
        });
        if let Some(ack) = ack {
            world.log = None;
            return ack;
        }
    }
}

#[test]
fn totals_that_overflow_neither_panic_nor_end_the_feed() {
    let mut world = joined(1, vec![10; 20], true, &[2]);
    let lies = [
        Totals { members: u32::MAX, done: u32::MAX, ..Totals::default() },
        Totals { members: 2, failed: 1, ..Totals::default() },
    ];
    world.extend_all();
    let acks = [1, 2].map(|child| next_ack(&mut world, child));
    for ((child, totals), ack) in [1, 2].into_iter().zip(lies).zip(acks) {
        let ack = Ack { totals, round: ack.round + 9, ..ack };
        let from = world.address_of(child);
        tell(&mut world, 0, from, child, Body::Ack(ack));
    }
    assert_eq!(world.source().stats().totals.done, u32::MAX);
    finish(&mut world);
}

#[test]
fn a_parent_that_says_that_all_blocks_were_sent_is_survived() {
    let mut world =
        World::new(3, vec![1; 4], World::shape(1, false), rate(1_000_000), |config| config);
    world.forge_confirm = Some(|confirm| confirm.beacon.progress.sent = u32::MAX);
    world.add_receiver(0, World::shape(1, false), |config| config);
    world.run_until(LONG, |world| world.source().stats().totals.members == 1);
    world.extend_all();
    world.run_until(LONG, World::everyone_has_all);
}

#[test]
fn what_a_first_parent_says_of_the_feed_counts_for_less_than_source_and_announcement() {
    let forgeries: [fn(&mut JoinConfirm); 3] = [
        |confirm| {
            confirm.feed.source = NodeId(77);
            confirm.beacon.role = Role::Manager;
            confirm.beacon.path.insert(0, NodeId(77));
            confirm.beacon.standing.depth = 1;
        },
        |confirm| confirm.feed.address = ([10, 9, 9, 9], 7705).into(),
        |confirm| confirm.feed.manifest = Some(Manifest { blocks: 1, len: 1, digest: DIGEST }),
    ];
    for forge in forgeries {
        let mut world =
            World::new(4, vec![1; 4], World::shape(1, false), rate(1_000_000), |config| config);
        world.forge_confirm = Some(forge);
        // It contradicts what the receiver hears.
        world.expect_faults();
        world.may_drop(DropReason::AbsurdHops);
        world.may_drop(DropReason::ForgedSource);
        world.add_receiver(0, World::shape(1, false), |config| config);
        world.run_until(LONG, |world| world.source().stats().totals.members == 1);
        world.extend_all();
        world.run_for(Duration::from_millis(100));
        world.forge_confirm = None;
        finish(&mut world);
        let forged = world.receiver(1).drops().of(DropReason::ForgedSource);
        assert!(forged > 0, "what contradicts the announcement is not believed");
        let mut told = world.receiver_events(1).iter().filter_map(|event| match event {
            ReceiverEvent::Feed(feed) => Some(*feed),
            _ => None,
        });
        let told = told.next_back().unwrap();
        assert_eq!(
            (told.source, told.address, told.manifest),
            (world.id(0), world.address_of(0), None)
        );
    }
}

#[test]
fn what_strangers_send_instead_of_parent_and_source_is_dropped() {
    for fec in [true, false] {
        let mut world = joined(5, vec![16; 10], fec, &[2, 3]);
        let stranger: SocketAddr = ([10, 9, 9, 9], 7705).into();
        let domain = World::domain_group();
        let ways = [
            Address::Host(stranger),
            Address::Channel(Channel { source: Some(stranger.ip()), ..domain }),
            Address::Channel(Channel { source: Some(stranger.ip()), ..World::data_channel() }),
            // From the source's address, but no answer of it.
            Address::Host(world.address_of(0)),
        ];
        for purpose in [Purpose::First, Purpose::Repair, Purpose::Fetched] {
            for by in ways {
                for k in [1, 2, 15] {
                    give_all(&mut world, by, header(purpose, 0, k, 0));
                }
            }
        }
        for index in world.receivers() {
            let dropped = "Unexpected 18, NotAsked 9, ForgedSource 9";
            world.receiver(index).assert_dropped(dropped);
            assert_eq!(world.receiver(index).progress(), (0, 0));
        }
        world.extend_all();
        finish(&mut world);
    }
}

#[test]
fn a_block_that_is_forged_again_and_again_is_taken_from_the_source_alone() {
    // By way of the parent, and with the source's address on the data channel.
    for (purpose, most) in [(Purpose::Repair, 2), (Purpose::First, 4), (Purpose::Fetched, 4)] {
        let mut world = joined(8, vec![4; 6], true, &[2, 3]);
        world.expect_faults();
        for reason in [DropReason::Suspect, DropReason::Duplicate, DropReason::NotAsked] {
            world.may_drop(reason);
        }
        // The source has not sent the block yet when it is fetched for the first time.
        world.may_drop(DropReason::AbsurdBlock);
        for index in world.receivers() {
            world.receiver(index).sink_mut().wrong = Some(Vec::new());
        }
        let mut wrong = 0;
        for round in 0..8 {
            for index in world.receivers() {
                let (_, parent, _) = world.receiver(index).tree().parent.unwrap();
                let channel = match purpose {
                    Purpose::Repair => {
                        Channel { source: Some(parent.ip()), ..World::domain_group() }
                    }
                    Purpose::First | Purpose::Fetched | Purpose::Piece => World::data_channel(),
                };
                let by = Address::Channel(channel);
                for esi in 0..4 {
                    let mut packet = [7; SmallBlockHeader::LEN + SYMBOL_LEN];
                    header(purpose, 0, 4, esi).emit(&mut packet).unwrap();
                    world.give(index, by, &packet);
                }
                let found =
                    std::mem::take(world.receiver(index).sink_mut().wrong.as_mut().unwrap());
                for block in found {
                    wrong += 1;
                    world.command(index, ReceiverCommand::RestoreFailed { block });
                }
            }
            if round == 0 {
                // Nobody answers which symbols are wrong, as the source has not sent the block.
                world.run_for(Duration::from_secs(3));
            }
        }
        assert_eq!(wrong, most * world.receivers().len(), "then they are dropped");
        world.extend_all();
        finish(&mut world);
    }
}

#[test]
fn a_length_that_is_forged_in_a_parents_name_does_not_stall_its_block() {
    for fec in [true, false] {
        let mut world = joined(6, vec![16; 10], fec, &[2, 3]);
        // The others know no such parent, and its block comes anyway.
        world.may_drop(DropReason::NotAsked);
        world.may_drop(DropReason::Duplicate);
        for index in world.receivers() {
            let (_, from, _) = world.receiver(index).tree().parent.unwrap();
            let by = Channel { source: Some(from.ip()), ..World::domain_group() };
            for esi in 0..3 {
                give_all(&mut world, Address::Channel(by), header(Purpose::Repair, 0, 15, esi));
            }
        }
        world.extend_all();
        finish(&mut world);
    }
}

#[test]
fn nobody_else_says_that_the_feed_is_over() {
    let word = [5; 32];
    let digest = *blake3::hash(&word).as_bytes();
    let shape = World::shape(4, true);
    let mut world = World::new(9, vec![4; 40], shape, rate(1_000_000), |mut config| {
        config.last_word = Some(word);
        config
    });
    world.log = Some(Vec::new());
    for subnet in [0, 1, 1] {
        world.add_receiver(subnet, shape, |mut config| {
            config.last_word = Some(digest);
            config
        });
    }
    world.run_until(LONG, |world| world.source().stats().totals.members == 3);
    world.may_drop(DropReason::ForgedSource);
    let heard = world.log.iter().flatten().find_map(|sent| {
        match Message::parse(&sent.payload).ok()?.message()?.body {
            Body::Heartbeat(heartbeat) => Some(heartbeat),
            _ => None,
        }
    });
    let heard = heard.expect("the source has a heartbeat");
    assert_eq!(heard.last_word, None);
    for (n, (closing, last_word)) in (1..).zip([(true, None), (true, Some([6; 32])), (false, None)])
    {
        let mut forged = heard.clone();
        forged.beacon.closing = closing;
        forged.last_word = last_word;
        if !closing {
            let failed = Some("forged".to_owned());
            forged.beacon.progress.end = Some(End { blocks: 40, failed });
        }
        let (sender, mut payload) = (world.id(0), Vec::new());
        Message { feed: FEED, sender, body: Body::Heartbeat(forged) }.emit(&mut payload);
        for to in world.receivers() {
            world.give(to, Address::Channel(World::data_channel()), &payload);
            assert_eq!(world.receiver(to).drops().of(DropReason::ForgedSource), n);
        }
    }
    world.extend_all();
    finish(&mut world);
    // The source hears nobody any more.
    world.may_drop(DropReason::Unexpected);
    world.source_command(SourceCommand::Close);
    world.run_for(Duration::from_secs(3));
    for index in world.receivers() {
        assert!(world.receiver_events(index).contains(&ReceiverEvent::SourceGone));
    }
}

/// Returns the parent's address and the token of a receiver's last place in the tree.
fn place_of(world: &World, node: usize) -> Option<(SocketAddr, u64)> {
    let to = Address::Host(world.address_of(node));
    let sent = world.log.iter().flatten().rev().filter(|sent| sent.to == to);
    sent.filter_map(|sent| Message::parse(&sent.payload).ok()?.message()).find_map(|message| {
        let Body::JoinConfirm(confirm) = message.body else { return None };
        let parent = (0..world.receivers().end).find(|&node| world.id(node) == message.sender)?;
        Some((world.address_of(parent), confirm.token))
    })
}

/// Forges reports: receiver 1 has a place, and says of all others what may hide their own reports.
fn forge_reports(world: &mut World, turn: u32) {
    let Some((parent, token)) = place_of(world, 1) else { return };
    let Some(to) = (0..world.receivers().end).find(|&node| world.address_of(node) == parent) else {
        return;
    };
    let receivers = world.receivers().skip(1).map(|node| ReceiverReport {
        node: world.id(node),
        name: format!("{}-{node}", ["eve", "node"][turn as usize / 3 % 2]),
        held: 1,
        state: [
            ReceiverState::Receiving,
            ReceiverState::Failed("forged".to_owned()),
            ReceiverState::Left,
        ][turn as usize % 3]
            .clone(),
        receipt: None,
    });
    let report = Report { token, first: turn, receivers: receivers.collect(), tree: Vec::new() };
    let from = world.address_of(1);
    tell(world, to, from, 1, Body::Report(report));
}

#[test]
fn reports_in_others_names_hide_no_report() {
    for seed in seeds(20) {
        // Receivers of the stranger's own subnet, where it may be the manager or a member, and of
        // others.
        let mut world =
            World::new(seed, vec![4; 12], World::shape(4, true), rate(1_000_000), |config| config);
        world.set_weather(Weather::loss(0.05));
        world.may_drop(DropReason::Own);
        world.log = Some(Vec::new());
        let mut turn = 0;
        let mut attack = |world: &mut World, turns: u32| {
            for _ in 0..turns {
                world.run_for(Duration::from_millis(15));
                forge_reports(world, turn);
                turn += 1;
            }
        };
        let subnets = [seed as usize % 3, 0, 1, 1, 1, 2, 2];
        world.add_receiver(subnets[0], World::shape(4, true), |config| config);
        attack(&mut world, 40);
        for subnet in subnets.into_iter().skip(1) {
            world.add_receiver(subnet, World::shape(4, true), |config| config);
            attack(&mut world, 3);
        }
        attack(&mut world, 60);
        world.extend_all();
        for _ in 0..1_000 {
            attack(&mut world, 1);
            if world.everyone_has_all() {
                break;
            }
        }
        attack(&mut world, 100);
        let heard: Vec<_> = world
            .source_events()
            .iter()
            .filter_map(|event| match event {
                SourceEvent::Report(report) => {
                    Some((report.node, report.name.clone(), report.state.clone()))
                }
                _ => None,
            })
            .collect();
        for node in world.receivers() {
            for state in [ReceiverState::Receiving, ReceiverState::Done] {
                let word = (world.id(node), format!("node-{node}"), state);
                assert!(heard.contains(&word), "seed {seed}: {word:?}\n{}", world.state());
            }
        }
        // A child of the source speaks for itself, once it is one.
        let own =
            heard.iter().rposition(|(node, name, _)| *node == world.id(2) && *name == "node-2");
        let others = heard
            .iter()
            .rposition(|(node, name, _)| *node == world.id(2) && name.starts_with("eve"));
        assert!(others < own, "seed {seed}");
    }
}
