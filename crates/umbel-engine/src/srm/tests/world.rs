//! Members of a group, in a network that loses, duplicates, reorders and is cut.

use std::collections::BTreeMap;

use super::*;
use crate::Transmit;
use crate::srm::Footprint;
use crate::testing::seeds;
use crate::testing::world::{self, Counted, Host, Link, NoRouter, Protocol};

const MEMBERS: usize = 6;
const UNITS: u64 = 100;

/// A member, and the number of units that its application got of each source.
type Node = Counted<Member, BTreeMap<MemberId, u64>>;

/// What was sent.
#[derive(Default)]
struct Group {
    requests: u64,
    repairs: u64,
    /// Whether units of member 1 are lost on their way to everyone.
    loses_data: bool,
}

type World = world::World<Group>;

impl Protocol for Group {
    type Source = Node;
    type Receiver = Node;
    type Router = NoRouter;

    fn on_source_event(world: &mut World, event: Event) {
        note(&mut world.source, event);
    }

    fn on_receiver_event(world: &mut World, node: usize, event: Event) {
        note(&mut world.receivers[node], event);
    }

    fn passes(world: &mut World, from: usize, _: Transmit, payload: &mut Bytes) -> bool {
        match parse(payload) {
            Message::Request { .. } => world.requests += 1,
            Message::Repair { .. } => world.repairs += 1,
            Message::Data { .. } => return from > 0 || !world.loses_data,
            Message::Session { .. } => {}
        }
        true
    }

    fn check(world: &World, host: usize) {
        let Footprint { peers, sources, requests, repairs, held_down, history } =
            node(world, host).engine.footprint();
        assert!(peers < MEMBERS && sources < MEMBERS, "{peers} peers, {sources} sources");
        let units = 2 * UNITS as usize;
        let most = requests.max(repairs).max(held_down).max(history);
        assert!(most <= units, "{requests}, {repairs}, {held_down}, {history}");
    }

    fn state(world: &World) -> String {
        let line = |host| {
            let Node { engine, got } = node(world, host);
            format!(
                "{:?} got {got:?}, {:?}, dropped {}\n",
                engine.id(),
                engine.footprint(),
                engine.drops()
            )
        };
        (0..=world.receivers.len()).map(line).collect()
    }
}

fn node(world: &World, host: usize) -> &Node {
    host.checked_sub(1).map_or(&world.source, |receiver| &world.receivers[receiver])
}

fn note(node: &mut Node, event: Event) {
    match event {
        Event::Delivered { unit, payload } => {
            let next = node.got.entry(unit.source).or_default();
            assert_eq!((unit.sequence, payload), (*next, content(unit)));
            *next += 1;
        }
        Event::Lost { .. } => panic!("{event:?}"),
        Event::Step { .. } => {}
    }
}

fn id(host: usize) -> MemberId {
    MemberId(host as u64 + 1)
}

fn member(seed: u64, host: usize, now: Instant) -> Node {
    let engine = Member::new(Config::new(id(host), CHANNEL), generator(seed * 100 + host as u64));
    let mut engine = Tested::new(engine, |member| member.drops().to_string());
    engine.handle_command(now, Command::Join).unwrap();
    Node { engine, got: BTreeMap::new() }
}

/// Creates a world of members at increasing distances, in two subnets.
fn world(seed: u64) -> World {
    let place = |host: usize| Host {
        down: Link::delayed(millis(2 * host as u64)),
        ..Host::new(crate::testing::host(host as u8 + 1), host % 2)
    };
    let first = member(seed, 0, ms(1_000));
    let mut world = World::with_source(seed, Group::default(), first, place(0));
    for host in 1..MEMBERS {
        let node = member(seed, host, world.now);
        world.add_host(node, place(host));
    }
    world.network.weather = Link::delayed(millis(10));
    world
}

fn send(world: &mut World, host: usize, sequence: u64) {
    let payload = content(Unit { source: id(host), sequence });
    let now = world.now;
    let node = match host.checked_sub(1) {
        None => &mut world.source,
        Some(receiver) => &mut world.receivers[receiver],
    };
    node.engine.handle_command(now, Command::Send(payload)).unwrap();
}

/// Returns whether all have what these hosts sent.
fn all_have(world: &World, sources: &[usize], units: u64) -> bool {
    (0..MEMBERS).all(|host| {
        let others = sources.iter().filter(|source| **source != host);
        let mut got = others.map(|source| node(world, host).got.get(&id(*source)));
        got.all(|got| got == Some(&units))
    })
}

#[test]
fn of_those_who_share_a_loss_few_ask_and_few_repair() {
    const LOSSES: u64 = 20;
    let mut world = world(1);
    // Until the distances are measured.
    world.run_for(Duration::from_secs(5));
    // Requests that crossed the repair, and repairs that crossed each other.
    world.may_drop(DropReason::HeldDown);
    world.may_drop(DropReason::Duplicate);
    for sequence in 0..2 * LOSSES {
        world.loses_data = sequence % 2 == 0;
        send(&mut world, 0, sequence);
        world.run_for(millis(300));
    }
    world.run_until(Duration::from_secs(5), |world| all_have(world, &[0], 2 * LOSSES));
    // Without suppression each of the five would ask.
    let (requests, repairs) = (world.requests, world.repairs);
    assert!((LOSSES..4 * LOSSES).contains(&requests), "{requests} requests for {LOSSES} losses");
    // Only the source has the unit.
    assert!((LOSSES..LOSSES + 5).contains(&repairs), "{repairs} repairs of {LOSSES} losses");
}

#[test]
fn a_late_joiner_gets_everything_though_the_source_is_gone() {
    let mut world = world(2);
    for sequence in 0..10 {
        send(&mut world, 0, sequence);
    }
    world.run_until(Duration::from_secs(5), |world| all_have(world, &[0], 10));
    // More than one member may repair what the late joiner asks for.
    world.may_drop(DropReason::HeldDown);
    world.may_drop(DropReason::Duplicate);
    world.crash(0);
    let late = member(2, MEMBERS, world.now);
    let host = world.add_host(late, Host::new(crate::testing::host(50), 0));
    world
        .run_until(Duration::from_secs(30), |world| node(world, host).got.get(&id(0)) == Some(&10));
}

#[test]
fn all_units_arrive_through_losses_reordering_and_a_cut() {
    for seed in seeds(20) {
        let mut world = world(seed);
        world.network.weather =
            Link { loss: 0.05, duplicates: 0.03, delay: millis(10), jitter: millis(15) };
        // What comes twice, and repairs that several members sent.
        world.may_drop(DropReason::Duplicate);
        // Requests that crossed the repair.
        world.may_drop(DropReason::HeldDown);
        world.later(millis(700), |world| world.network.partition(&[0], &[1]));
        world.later(millis(2_200), |world| world.network.heal());
        for sequence in 0..UNITS {
            send(&mut world, 0, sequence);
            send(&mut world, 3, sequence);
            world.run_for(millis(20));
        }
        world.run_until(Duration::from_mins(2), |world| all_have(world, &[0, 3], UNITS));
        // Nothing is left to do but to send session messages.
        world.run_for(Duration::from_secs(10));
        let before = (world.requests, world.repairs);
        world.run_for(Duration::from_secs(10));
        assert_eq!((world.requests, world.repairs), before);
        for host in 0..MEMBERS {
            let Footprint { requests, repairs, held_down, .. } =
                node(&world, host).engine.footprint();
            assert_eq!((requests, repairs, held_down), (0, 0, 0), "host {host}");
            assert!(node(&world, host).engine.is_complete());
        }
    }
}
