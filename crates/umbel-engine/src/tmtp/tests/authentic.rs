//! Feeds with a token, a list, or both, and open ones whose nodes have keys: all that is said has a
//! stamp, and what has none is not heard.

use std::time::Duration;

use umbel_wire::Channel;
use umbel_wire::feed::Recovery;
use umbel_wire::lms::Message as Lms;
use umbel_wire::tmtp::{
    BlockRun, Body, Message, MessageType, Nack, NackRun, Need, NodeKeys, Portion, SignedStamp,
    Stamp,
};

use super::delivery::{LONG, complete, rate};
use super::failures::managers;
use super::world::{FEED, Sent, Weather, World, secret_of};
use crate::Address;
use crate::testing::seeds;
use crate::tmtp::{Authentication, DropReason, List, ReceiverCommand, ReceiverEvent, node_id};

const KEY: [u8; 32] = [7; 32];
/// Most hosts on a list.
const LISTED: usize = 30;

/// Nodes that are let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Token,
    List,
    Both,
    /// All, and each has keys.
    Open,
}

const DOORS: [Door; 4] = [Door::Token, Door::List, Door::Both, Door::Open];

/// Creates a feed whose messages are stamped, and receivers in subnets, of which not all have joined yet.
fn world(seed: u64, door: Door, recovery: Recovery, subnets: &[usize]) -> World {
    let shape = World::shape(4, true);
    let mut world = World::new(seed, vec![4; 30], shape, rate(1_000_000), |mut config| {
        config.node.recovery = recovery;
        if door == Door::Open {
            config.node.authentication = Authentication::Keys(secret_of(0));
            config.node.id = node_id(FEED, &secret_of(0));
            config.shape.id = config.node.id;
            return config;
        }
        config.node.authentication = if door == Door::Token {
            Authentication::Token(KEY)
        } else {
            let receivers = (1..LISTED).map(secret_of).collect();
            let list = List::Has { tree: [9; 32], receivers };
            Authentication::List { list, token: (door == Door::Both).then_some(KEY) }
        };
        config
    });
    world.log = Some(Vec::new());
    for (subnet, &receivers) in subnets.iter().enumerate() {
        for _ in 0..receivers {
            world.add_receiver(subnet, shape, |config| config);
            world.run_for(Duration::from_millis(20));
        }
    }
    world
}

fn expect_repeats(world: &mut World) {
    world.may_drop(DropReason::Replayed);
    world.may_drop(DropReason::NotAuthentic);
    world.may_drop(DropReason::Own);
    // Before the key of the tree comes, and after it has come twice.
    world.may_drop(DropReason::NoKey);
    world.may_drop(DropReason::NotAsked);
}

#[test]
fn every_message_has_a_stamp_and_everyone_gets_all() {
    let recoveries = [Recovery::Tree, Recovery::Srm, Recovery::Source];
    for (recovery, door) in recoveries.into_iter().flat_map(|one| DOORS.map(|door| (one, door))) {
        let subnets: &[usize] = if recovery == Recovery::Tree { &[2, 3, 2] } else { &[4] };
        let mut world = world(1, door, recovery, subnets);
        world.may_drop(DropReason::NoKey);
        let members = world.receivers().len() as u32;
        world.may_drop(DropReason::NoCookie);
        world.run_until(LONG, |world| world.source().stats().totals.members == members);
        world.extend_all();
        world.run_until(LONG, complete);
        assert!(world.everyone_has_all());
        let log = world.log.take().unwrap();
        let messages: Vec<_> = log
            .iter()
            .filter(|sent| sent.payload.starts_with(&umbel_wire::control::MAGIC))
            .filter(|sent| !Lms::is_lms(&sent.payload))
            // It is sealed.
            .filter(|sent| MessageType::of(&sent.payload) != Some(MessageType::KeyAnswer))
            .collect();
        assert!(messages.len() > 20);
        for sent in messages {
            let stamped = Stamp::split(&sent.payload).is_some();
            let signed = door == Door::Open && SignedStamp::split(&sent.payload).is_some();
            assert!(stamped || signed, "{:?}", Message::parse(&sent.payload));
        }
    }
}

#[test]
fn everyone_gets_all_though_packets_are_lost_and_managers_are_killed() {
    for seed in seeds(8) {
        let door = DOORS[seed as usize % DOORS.len()];
        let mut world = world(seed, door, Recovery::Tree, &[1, 4, 3]);
        world.set_weather(Weather::loss(0.1));
        expect_repeats(&mut world);
        world.run_until(LONG, |world| world.source().stats().totals.members == 8);
        world.extend_all();
        world.run_for(Duration::from_millis(300));
        let managers = managers(&mut world);
        let killed = managers[seed as usize % managers.len()];
        world.crash(killed);
        world.run_until(LONG, World::everyone_has_all);
        world.run_until(LONG, complete);
    }
}

#[test]
fn who_has_another_token_is_told_so_and_takes_no_place() {
    let mut world = world(2, Door::Token, Recovery::Tree, &[2]);
    world.expect_faults();
    world.may_drop(DropReason::NotAuthentic);
    let stranger = world.add_receiver(0, World::shape(4, true), |mut config| {
        config.node.authentication = Authentication::Token([8; 32]);
        config
    });
    let refused = ReceiverEvent::Refused(umbel_wire::tmtp::Refusal::NotAdmitted);
    world.run_for(Duration::from_millis(3_500));
    // The source need not be heard until then.
    world.crash(0);
    world.run_for(Duration::from_secs(20));
    assert!(world.receiver_events(stranger).contains(&refused));
    assert!(world.receiver(stranger).tree().parent.is_none());
    for honest in [1, 2] {
        assert!(!world.receiver_events(honest).contains(&refused));
    }
}

#[test]
fn who_is_not_on_the_list_is_told_so_and_takes_no_place() {
    // With a secret that nobody has; and with the right one, and no token where it needs one.
    for (door, secret, told) in [
        (Door::List, [200; 32], ReceiverEvent::NotListed),
        (Door::Both, [200; 32], ReceiverEvent::NotListed),
        (
            Door::Both,
            secret_of(LISTED - 1),
            ReceiverEvent::Refused(umbel_wire::tmtp::Refusal::NotAdmitted),
        ),
    ] {
        let mut world = world(2, door, Recovery::Tree, &[2]);
        world.expect_faults();
        expect_repeats(&mut world);
        let stranger = world.add_receiver(0, World::shape(4, true), |mut config| {
            let list = List::On(secret);
            config.node.authentication = Authentication::List { list, token: None };
            config
        });
        world.run_for(Duration::from_secs(13));
        assert!(!world.receiver_events(stranger).contains(&ReceiverEvent::NotListed), "too early");
        world.run_for(Duration::from_secs(7));
        let times = world.receiver_events(stranger).iter().filter(|event| **event == told).count();
        assert_eq!(times, 1, "{door:?}");
        assert!(world.receiver(stranger).tree().parent.is_none());
        assert_eq!(world.source().stats().totals.members, 2);
        world.extend_all();
        world.run_until(LONG, |world| [1, 2].iter().all(|&host| world.has_all(host)));
    }
}

#[test]
fn who_waits_for_the_key_may_leave() {
    let mut world = world(4, Door::List, Recovery::Tree, &[1]);
    world.expect_faults();
    expect_repeats(&mut world);
    let stranger = world.add_receiver(0, World::shape(4, true), |mut config| {
        let list = List::On([200; 32]);
        config.node.authentication = Authentication::List { list, token: None };
        config
    });
    world.run_for(Duration::from_secs(1));
    world.command(stranger, ReceiverCommand::Leave);
    world.run_for(Duration::from_secs(1));
    assert!(world.receiver_events(stranger).contains(&ReceiverEvent::Left));
}

#[test]
fn many_who_come_at_once_all_get_the_key_through_loss() {
    for seed in seeds(6) {
        let mut world = world(seed, Door::List, Recovery::Tree, &[]);
        world.set_weather(Weather::loss(0.3));
        expect_repeats(&mut world);
        for host in 1..LISTED {
            world.add_receiver(host % 3, World::shape(4, true), |config| config);
        }
        let all = LISTED as u32 - 1;
        world.run_until(LONG, |world| world.source().stats().totals.members == all);
        for host in 1..LISTED {
            assert!(!world.receiver_events(host).contains(&ReceiverEvent::NotListed), "{host}");
        }
    }
}

/// Repeats earlier messages, to the same receiver or to another. They come from the same address or
/// another, as they were or altered.
fn say_again(world: &mut World, turns: u64) {
    let log = world.log.as_ref().unwrap();
    if log.is_empty() {
        return;
    }
    let Sent { from, to, payload } = log[(turns * 7_919) as usize % log.len()].clone();
    let hosts = world.receivers().end;
    let mut bytes = payload.to_vec();
    if turns % 5 == 3 {
        let at = turns as usize % bytes.len();
        bytes[at] ^= 1 << (turns % 8);
    }
    // Data have no stamps. Their faults are not this test's subject.
    if !bytes.starts_with(&umbel_wire::control::MAGIC) {
        return;
    }
    let liar = if turns % 4 == 1 { (turns as usize) % hosts } else { from };
    let source = Some(world.address_of(liar).ip());
    let (by, everyone) = match to {
        Address::Channel(channel) => (Address::Channel(Channel { source, ..channel }), true),
        _ => (Address::Host(world.address_of(liar)), turns.is_multiple_of(3)),
    };
    let one = (0..hosts).find(|&host| to == Address::Host(world.address_of(host)));
    for host in 0..hosts {
        if host != from && world.is_up(host) && (everyone || one == Some(host)) {
            world.give(host, by, &bytes);
        }
    }
}

#[test]
fn an_attacker_with_all_addresses_who_repeats_and_alters_all_it_hears_stops_nobody() {
    for seed in seeds(10) {
        let door = DOORS[seed as usize % DOORS.len()];
        let mut world = world(seed, door, Recovery::Tree, &[2, 3, 1]);
        world.set_weather(Weather::loss(0.02));
        expect_repeats(&mut world);
        for reason in [
            DropReason::Malformed,
            DropReason::ForgedSource,
            DropReason::Unexpected,
            DropReason::OtherSession,
            DropReason::AbsurdHops,
            DropReason::OverLimit,
        ] {
            world.may_drop(reason);
        }
        let mut turns = seed;
        let mut attack = |world: &mut World, ms: u64| {
            for _ in 0..ms {
                turns += 1;
                say_again(world, turns);
                world.run_for(Duration::from_millis(1));
            }
        };
        attack(&mut world, 1_500);
        // They come into the middle of it.
        for subnet in [0, 2] {
            world.add_receiver(subnet, World::shape(4, true), |config| config);
            attack(&mut world, 100);
        }
        world.extend_all();
        let mut tried = 0;
        while !(world.everyone_has_all() && complete(&mut world)) {
            attack(&mut world, 50);
            tried += 1;
            assert!(tried < 600, "seed {seed}: {}", world.state());
        }
        let all = world.receivers();
        let replayed: u64 =
            all.map(|host| world.receiver(host).drops().of(DropReason::Replayed)).sum();
        assert!(replayed > 100, "seed {seed}: {replayed}");
        // Nobody was made to leave its parent.
        for host in world.receivers() {
            let orphaned = |event: &&ReceiverEvent| **event == ReceiverEvent::Orphaned;
            let times = world.receiver_events(host).iter().filter(orphaned).count();
            assert!(times <= 2, "seed {seed}: {host} lost its parent {times} times");
        }
    }
}

#[test]
fn a_stranger_who_forges_every_address_fetches_and_ends_nothing() {
    for door in DOORS {
        forges_every_address(door);
    }
}

/// Returns the keys that a host has shown, if nodes have any.
fn keys_of(world: &World, host: usize) -> Option<NodeKeys> {
    let log = world.log.as_ref()?.iter().filter(|sent| sent.from == host);
    log.filter_map(|sent| SignedStamp::split(&sent.payload)).map(|(_, stamp)| stamp.keys).next()
}

fn forges_every_address(door: Door) {
    let mut world = world(3, door, Recovery::Tree, &[2, 2]);
    expect_repeats(&mut world);
    world.run_until(LONG, |world| world.source().stats().totals.members == 4);
    let before: Vec<u64> = world
        .receivers()
        .map(|host| world.receiver(host).drops().of(DropReason::NotAuthentic))
        .collect();
    let runs = vec![umbel_wire::tmtp::BlockRun { first: 0, count: 30 }];
    let forged = [
        Body::FetchGone { nonce: 1, runs: runs.clone() },
        Body::FetchCookie { nonce: 1, cookie: 2 },
        Body::Fetch { nonce: 1, cookie: 0, runs, alone: Vec::new(), portion: Portion::default() },
        Body::LeaveTree { token: 1, nonce: 1 },
        Body::FindNewParent { token: 1, nonce: 1 },
        Body::Dismiss { token: 1, reason: umbel_wire::tmtp::Dismissal::Slow },
        Body::ReportAck { token: 1, before: 1 },
        Body::JoinChallenge { nonce: 1, challenge: 1 },
        Body::KeyRequest { nonce: 1, hint: [1; 16] },
    ];
    let count = forged.len() as u64;
    for body in forged {
        for host in 0..world.receivers().end {
            let liar = usize::from(host == 0);
            let (sender, mut payload) = (world.id(liar), Vec::new());
            Message { feed: FEED, sender, body: body.clone() }.emit(&mut payload);
            let key = umbel_wire::tmtp::StampKey::Tree;
            let mut stamped = payload.clone();
            Stamp { key, number: u64::MAX, code: [7; 16] }.emit(&mut stamped);
            // With the keys of whom it speaks for, which all have heard.
            let mut signed = payload.clone();
            if let Some(keys) = keys_of(&world, liar) {
                SignedStamp { keys, number: u64::MAX, signature: [7; 64] }.emit(&mut signed);
            }
            for payload in [payload, stamped, signed] {
                let by = Address::Host(world.address_of(liar));
                world.give(host, by, &payload);
            }
        }
    }
    for (host, before) in world.receivers().zip(before) {
        let dropped = world.receiver(host).drops().of(DropReason::NotAuthentic) - before;
        assert_eq!(dropped, 3 * count, "{host}");
    }
    world.extend_all();
    world.run_until(LONG, complete);
    assert_eq!(world.source().stats().fetched_sent, 0);
}

/// Gives a host so many NACKs of the group for the parent, which lack the first 30 blocks, and are
/// signed with the source's keys, wrongly.
fn flood(world: &mut World, host: usize, parent: usize, count: u64) {
    let keys = keys_of(world, 0).unwrap();
    let runs = vec![NackRun { run: BlockRun { first: 0, count: 30 }, need: Need::Whole }];
    let body = Body::Nack(Nack { parent: world.id(parent), hop_limit: 1, runs });
    let (sender, mut message) = (world.id(0), Vec::new());
    Message { feed: FEED, sender, body }.emit(&mut message);
    let source = Some(world.address_of(0).ip());
    let by = Address::Channel(Channel { source, ..World::domain_group() });
    let later = (world.now.as_nanos() / 1_000_000 + 10) << 20;
    for n in 0..count {
        let mut payload = message.clone();
        SignedStamp { keys, number: later + n, signature: [7; 64] }.emit(&mut payload);
        world.give(host, by, &payload);
    }
}

#[test]
fn a_flood_of_signatures_parts_nobody_from_its_parent() {
    let mut world = world(5, Door::Open, Recovery::Tree, &[1, 1]);
    expect_repeats(&mut world);
    world.may_drop(DropReason::OverLimit);
    world.run_until(LONG, |world| world.source().stats().totals.members == 2);
    // The content comes meanwhile. Whenever a signature may be checked, there is a forged one, so
    // that next to nothing is left for others.
    world.extend_all();
    for _ in 0..30_000 {
        for host in world.receivers() {
            flood(&mut world, host, host, 5);
        }
        world.run_for(Duration::from_micros(100));
    }
    world.run_until(LONG, complete);
    for host in world.receivers() {
        let refused = world.receiver(host).drops().of(DropReason::OverLimit);
        assert!(refused > 100_000, "{refused}");
        let orphaned = |event: &&ReceiverEvent| **event == ReceiverEvent::Orphaned;
        let times = world.receiver_events(host).iter().filter(orphaned).count();
        assert_eq!(times, 0, "{host} lost its parent");
    }
}

#[test]
fn a_siblings_signature_is_checked_only_where_its_nack_would_spare_ones_own() {
    let mut world = world(5, Door::Open, Recovery::Tree, &[2]);
    expect_repeats(&mut world);
    world.run_until(LONG, |world| world.source().stats().totals.members == 2);
    let forged = |world: &mut World, host: usize, parent: usize| {
        let before = world.receiver(host).drops().of(DropReason::NotAuthentic);
        flood(world, host, parent, 1);
        world.receiver(host).drops().of(DropReason::NotAuthentic) - before
    };
    for host in world.receivers() {
        assert_eq!(forged(&mut world, host, 0), 0, "{host} lacks nothing");
        assert_eq!(forged(&mut world, host, host), 1, "{host} is asked");
    }
    world.set_weather(Weather::loss(0.3));
    world.extend_all();
    let mut checked = 0;
    for _ in 0..1_000 {
        world.run_for(Duration::from_millis(1));
        checked += forged(&mut world, 1, 0) + forged(&mut world, 2, 0);
    }
    assert!(checked > 0, "somebody lacks a block, and was about to ask");
    world.run_until(LONG, complete);
    for host in world.receivers() {
        assert_eq!(forged(&mut world, host, 0), 0, "{host} lacks nothing any more");
    }
}
