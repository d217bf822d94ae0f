//! A source, receivers, and a tree of routers between them, which lose, duplicate, reorder and are
//! cut.

use bytes::Bytes;

use super::*;
use crate::Transmit;
use crate::chance::generator;
use crate::lms::config::{ReceiverConfig, RouterConfig, SourceConfig};
use crate::lms::{
    DropReason, Receiver, ReceiverCommand, ReceiverEvent, Router, Source, SourceCommand,
    SourceEvent,
};
use crate::testing::seeds;
use crate::testing::world::{self, Counted, Host, Link, Protocol};

const UNITS: u64 = 200;

/// A receiver, and the number of units that its application got.
type Node = Counted<Receiver, u64>;

/// What was sent.
#[derive(Default)]
struct Stream {
    /// Number of requests of all receivers.
    requests: u64,
    /// Units that are lost on their way to everyone.
    loses: Vec<u64>,
    /// The number of answers to a question, and their sum.
    collected: (u64, u64),
}

type World = world::World<Stream>;

impl Protocol for Stream {
    type Source = Tested<Source>;
    type Receiver = Node;
    type Router = Router;

    fn on_source_event(world: &mut World, SourceEvent::Collected { summary, .. }: SourceEvent) {
        world.collected.0 += summary.count;
        world.collected.1 += summary.sum;
    }

    fn on_receiver_event(world: &mut World, node: usize, event: ReceiverEvent) {
        let now = world.now;
        let node = &mut world.receivers[node];
        match event {
            ReceiverEvent::Unit { sequence, payload } => {
                assert_eq!((sequence, payload), (node.got, content(sequence)));
                node.got += 1;
            }
            ReceiverEvent::Question { round, question } => {
                let answer = ReceiverCommand::Answer { round, value: question.into() };
                node.engine.handle_command(now, answer).unwrap();
            }
            ReceiverEvent::Recovered { .. } => {}
            ReceiverEvent::GivenUp { .. } => panic!("{event:?}"),
        }
    }

    fn passes(world: &mut World, _: usize, _: Transmit, payload: &mut Bytes) -> bool {
        match parse(payload) {
            Message::Request(_) => world.requests += 1,
            Message::Data { sequence, .. } => return !world.loses.contains(&sequence),
            _ => {}
        }
        true
    }

    fn check(world: &World, host: usize) {
        if let Some(node) = host.checked_sub(1).map(|receiver| &world.receivers[receiver]) {
            assert!(node.engine.missing() as u64 <= UNITS, "{} are missing", node.engine.missing());
        }
        // The channel, three offers of each link, and three links.
        let states = world.routers.iter().map(|router| router.engine.state_len());
        assert!(states.max() <= Some(1 + 3 * 3 + 3), "{}", world.state());
    }

    fn state(world: &World) -> String {
        let receiver = |Node { engine, got }: &Node| {
            format!("got {got}, {} missing, dropped {}\n", engine.missing(), engine.drops())
        };
        let router = |router: &Router| {
            format!("replier {:?}, dropped {}\n", router.replier(&channel()), router.drops())
        };
        let receivers = world.receivers.iter().map(receiver);
        receivers.chain(world.routers.iter().map(|place| router(&place.engine))).collect()
    }
}

fn content(sequence: u64) -> Bytes {
    format!("unit {sequence}").into()
}

fn router_address(n: usize) -> SocketAddr {
    ([10, 0, 1, n as u8 + 1], channel().port).into()
}

fn router(n: usize) -> Tested<Router> {
    let engine = Router::new(RouterConfig::new(router_address(n), [n as u8; 32]));
    Tested::new(engine, |router| router.drops().to_string())
}

/// Creates a world of seven routers in a binary tree, with the source at the root and two receivers
/// at each of the four leaves. It has run until repliers are chosen.
fn world(seed: u64) -> World {
    let source = Source::new(SourceConfig::new(channel(), TSI));
    let source = Tested::new(source, |source| source.drops().to_string());
    let mut world = World::with_source(seed, Stream::default(), source, Host::new(host(1), 0));
    for n in 0..7 {
        world.add_router(router(n), router_address(n), n.checked_sub(1).map(|n| n / 2));
    }
    for n in 0..8_usize {
        let random = generator(seed * 100 + n as u64);
        let engine = Receiver::new(ReceiverConfig::new(channel()), random);
        let mut engine = Tested::new(engine, |receiver| receiver.drops().to_string());
        engine.handle_command(world.now, ReceiverCommand::Join).unwrap();
        let down = Link::delayed(Duration::from_millis(n as u64));
        let place = Host { down, ..Host::new(host(n as u8 + 11), 3 + n / 2) };
        world.add_host(Node { engine, got: 0 }, place);
    }
    world.network.weather = Link::delayed(Duration::from_millis(5));
    world.run_for(Duration::from_secs(5));
    world
}

fn send(world: &mut World, sequence: u64) {
    world.source.handle_command(world.now, SourceCommand::Send(content(sequence))).unwrap();
}

fn all_have(world: &World, units: u64) -> bool {
    world.receivers.iter().all(|node| node.got == units)
}

#[test]
fn the_nearest_receivers_become_repliers_and_tell_the_routers_above() {
    let world = world(1);
    let replier = |n: usize| world.routers[n].engine.replier(&channel()).map(|(_, host)| host);
    let leaves = [3, 4, 5, 6].map(replier);
    assert_eq!(leaves, [11, 13, 15, 17].map(|n| Some(host(n))));
    // Those above know the next router.
    assert_eq!([0, 1, 2].map(replier), [1, 3, 5].map(|n| Some(router_address(n))));
}

#[test]
fn a_loss_in_one_subtree_is_repaired_there_and_nobody_else_sees_it() {
    let mut world = world(2);
    send(&mut world, 0);
    world.run_for(Duration::from_millis(100));
    send_past_router_6(&mut world, 1);
    world.run_until(Duration::from_secs(5), |world| all_have(world, 3));
    let duplicates: Vec<u64> =
        world.receivers.iter().map(|node| node.engine.stats().duplicates).collect();
    assert_eq!(duplicates, [0; 8]);
    assert_eq!(world.source.stats().requests, 0, "{}", world.state());
    // The other receiver of the link asked its replier, which was missing the unit too.
    world.may_drop(DropReason::AlreadyAsked);
}

#[test]
fn a_loss_that_all_share_brings_one_request_by_each_link_to_the_source() {
    let mut world = world(3);
    world.loses = vec![1];
    for sequence in 0..3 {
        send(&mut world, sequence);
        world.run_for(Duration::from_millis(20));
    }
    world.run_until(Duration::from_secs(5), |world| all_have(world, 3));
    let stats = world.source.stats();
    assert_eq!((stats.requests, stats.dmcasts, stats.unicasts, stats.multicasts), (2, 2, 0, 0));
    world.may_drop(DropReason::AlreadyAsked);
}

/// Sends a unit that does not come to the receivers below router 6, and another by which they find
/// out.
fn send_past_router_6(world: &mut World, sequence: u64) {
    world.network.partition(&[2], &[6]);
    send(world, sequence);
    world.run_for(Duration::from_millis(30));
    world.network.heal();
    send(world, sequence + 1);
}

#[test]
fn while_a_replier_is_dead_the_source_answers_and_then_another_takes_its_place() {
    let mut world = world(5);
    // The other receiver of the link asked the one that was missing the unit, too.
    world.may_drop(DropReason::AlreadyAsked);
    send(&mut world, 0);
    world.run_for(Duration::from_millis(100));
    // Host 15 is the replier of router 2, by router 5.
    let dead = 5;
    world.crash(dead);
    let others_have = |world: &World, units| {
        let mut others = world.receivers.iter().enumerate().filter(|(n, _)| n + 1 != dead);
        others.all(|(_, node)| node.got == units)
    };
    send_past_router_6(&mut world, 1);
    world.run_until(Duration::from_secs(5), |world| others_have(world, 3));
    assert!(world.source.stats().requests > 0, "{}", world.state());
    // Its offer expires, and requests that are under way still come.
    world.run_for(Duration::from_secs(8));
    let asked = world.source.stats().requests;
    let replier = world.routers[5].engine.replier(&channel()).map(|(_, replier)| replier);
    assert_eq!(replier, Some(host(16)));
    send_past_router_6(&mut world, 3);
    world.run_until(Duration::from_secs(5), |world| others_have(world, 5));
    assert_eq!(world.source.stats().requests, asked);
}

#[test]
fn all_answer_a_question_and_their_answers_are_merged_on_the_way() {
    let mut world = world(4);
    send(&mut world, 0);
    let question = SourceCommand::Collect { question: 7, spread: Duration::from_millis(300) };
    world.source.handle_command(world.now, question).unwrap();
    world.run_until(Duration::from_secs(5), |world| world.collected.0 == 8);
    assert_eq!(world.collected, (8, 56));
}

#[test]
fn all_units_arrive_through_losses_reordering_a_cut_and_a_routers_restart() {
    for seed in seeds(20) {
        let mut world = world(seed);
        let (delay, jitter) = (Duration::from_millis(5), Duration::from_millis(8));
        world.network.weather = Link { loss: 0.03, duplicates: 0.02, delay, jitter };
        world.may_drop(DropReason::AlreadyAsked);
        // Requests that crossed the repair or came twice.
        world.may_drop(DropReason::LateRequest);
        // Pongs and unicast repairs that came twice.
        world.may_drop(DropReason::Unexpected);
        world.later(Duration::from_millis(700), |world| world.network.partition(&[0], &[2]));
        world.later(Duration::from_millis(2_200), |world| world.network.heal());
        world.later(Duration::from_millis(1_500), |world| world.restart_router(1, router(1)));
        for sequence in 0..UNITS {
            send(&mut world, sequence);
            world.run_for(Duration::from_millis(15));
        }
        world.run_until(Duration::from_mins(2), |world| all_have(world, UNITS));
        // Nothing is left to do but to send heartbeats, pings and advertisements.
        world.run_for(Duration::from_secs(10));
        let before = world.requests;
        world.run_for(Duration::from_secs(10));
        assert_eq!(world.requests, before);
        assert!(world.receivers.iter().all(|node| node.engine.missing() == 0));
    }
}
