//! A source, receivers, and a tree of network elements between them, which lose, duplicate, reorder
//! and are cut.

use std::convert::Infallible;

use bytes::Bytes;

use super::*;
use crate::Transmit;
use crate::chance::generator;
use crate::pgm::*;
use crate::testing::seeds;
use crate::testing::world::{self, Counted, Host, Link, Protocol};

const UNITS: u64 = 200;
/// Number of units that the source keeps.
const KEPT: usize = 256;

/// A receiver, and the number of units that its application got.
type Node = Counted<Receiver, u64>;

/// What was sent.
#[derive(Default)]
struct Stream {
    /// Number of NAKs of all receivers, and of retransmissions by the source.
    naks: u64,
    repairs: u64,
    /// Units that are lost on their way to everyone.
    loses: Vec<u64>,
}

type World = world::World<Stream>;

impl Protocol for Stream {
    type Source = Tested<Source>;
    type Receiver = Node;
    type Router = Router;

    fn on_source_event(_: &mut World, event: Infallible) {
        match event {}
    }

    fn on_receiver_event(world: &mut World, node: usize, event: ReceiverEvent) {
        let node = &mut world.receivers[node];
        let ReceiverEvent::Unit { sequence, payload } = event else { panic!("{event:?}") };
        assert_eq!((sequence, payload), (node.got, content(sequence)));
        node.got += 1;
    }

    fn passes(world: &mut World, _: usize, _: Transmit, payload: &mut Bytes) -> bool {
        match Message::parse(payload) {
            Ok(Parsed::Message { message: Message::Nak { .. }, .. }) => world.naks += 1,
            Ok(Parsed::Message { message: Message::Rdata { .. }, .. }) => world.repairs += 1,
            Ok(Parsed::Message { message: Message::Odata { sequence, .. }, .. }) => {
                return !world.loses.contains(&sequence);
            }
            _ => {}
        }
        true
    }

    fn check(world: &World, host: usize) {
        if let Some(node) = host.checked_sub(1).map(|receiver| &world.receivers[receiver]) {
            assert!(node.engine.missing() <= KEPT, "{} are missing", node.engine.missing());
        }
        let states = world.routers.iter().map(|router| router.engine.states());
        assert!(states.max() <= Some(KEPT), "{}", world.state());
    }

    fn state(world: &World) -> String {
        let receiver = |Node { engine, got }: &Node| {
            format!("got {got}, {} missing, dropped {}\n", engine.missing(), engine.drops())
        };
        let router = |router: &Router| format!("{} states\n", router.states());
        let receivers = world.receivers.iter().map(receiver);
        receivers.chain(world.routers.iter().map(|place| router(&place.engine))).collect()
    }
}

fn content(sequence: u64) -> Bytes {
    format!("unit {sequence}").into()
}

fn address(network: u8, n: usize) -> SocketAddr {
    ([10, 0, network, n as u8 + 1], 7702).into()
}

fn router(n: usize) -> Tested<Router> {
    let engine = Router::new(RouterConfig::new(address(1, n)));
    Tested::new(engine, |router| router.drops().to_string())
}

/// Creates a world of seven routers in a binary tree, with the source at the root and two receivers
/// at each of the four leaves.
fn world(seed: u64) -> World {
    let mut config = SourceConfig::new(channel());
    (config.wait, config.window_units) = (Duration::from_millis(50), KEPT);
    let source = Tested::new(Source::new(config), |source| source.drops().to_string());
    let place = Host::new((channel().source.unwrap(), channel().port).into(), 0);
    let mut world = World::with_source(seed, Stream::default(), source, place);
    for n in 0..7 {
        world.add_router(router(n), address(1, n), n.checked_sub(1).map(|n| n / 2));
    }
    for n in 0..8 {
        let mut config = ReceiverConfig::new(channel());
        config.first = Some(0);
        let engine = Receiver::new(config, generator(seed * 100 + n as u64));
        let engine = Tested::new(engine, |receiver| receiver.drops().to_string());
        let down = Link::delayed(Duration::from_millis(n as u64));
        world.add_host(
            Node { engine, got: 0 },
            Host { down, ..Host::new(address(2, n), 3 + n / 2) },
        );
    }
    world.network.weather = Link::delayed(Duration::from_millis(5));
    world
}

fn send(world: &mut World, sequence: u64) {
    world.source.handle_command(world.now, SourceCommand::Send(content(sequence))).unwrap();
}

fn all_have(world: &World, units: u64) -> bool {
    world.receivers.iter().all(|node| node.got == units)
}

#[test]
fn a_loss_that_all_share_is_repaired_once_and_one_nak_comes_to_the_source() {
    let mut world = world(1);
    world.loses = vec![1];
    for sequence in 0..3 {
        send(&mut world, sequence);
        world.run_for(Duration::from_millis(20));
    }
    world.run_until(Duration::from_secs(5), |world| all_have(world, 3));
    assert_eq!((world.source.stats().naks, world.repairs), (1, 1));
    assert!((1..=8).contains(&world.naks), "{} NAKs", world.naks);
    assert!(world.routers.iter().all(|router| router.engine.states() == 0));
}

#[test]
fn a_retransmission_goes_only_where_the_unit_was_lost() {
    let mut world = world(2);
    send(&mut world, 0);
    world.run_for(Duration::from_millis(100));
    // The second unit does not come to the receivers below router 3.
    world.network.partition(&[1], &[3]);
    send(&mut world, 1);
    world.run_for(Duration::from_millis(50));
    world.network.heal();
    send(&mut world, 2);
    world.run_until(Duration::from_secs(5), |world| all_have(world, 3));
    // Nobody else dropped a retransmission as a duplicate, so it went nowhere else.
    let copies = |n: usize| world.routers[n].engine.stats().copies;
    assert_eq!([0, 1, 2, 3, 4, 5, 6].map(copies), [1, 1, 0, 2, 0, 0, 0]);
}

#[test]
fn all_units_arrive_through_losses_reordering_a_cut_and_a_routers_restart() {
    for seed in seeds(20) {
        let mut world = world(seed);
        let (delay, jitter) = (Duration::from_millis(5), Duration::from_millis(8));
        world.network.weather = Link { loss: 0.03, duplicates: 0.02, delay, jitter };
        // Units that come twice, or for several who asked; SPMs that were overtaken.
        world.may_drop(DropReason::Duplicate);
        // Confirmations and retransmissions of what has come meanwhile.
        world.may_drop(DropReason::NotAsked);
        world.later(Duration::from_millis(700), |world| world.network.partition(&[0], &[2]));
        world.later(Duration::from_millis(2_200), |world| world.network.heal());
        world.later(Duration::from_millis(1_500), |world| world.restart_router(1, router(1)));
        for sequence in 0..UNITS {
            send(&mut world, sequence);
            world.run_for(Duration::from_millis(15));
        }
        world.run_until(Duration::from_mins(2), |world| all_have(world, UNITS));
        // Nothing is left to do but to send SPMs.
        world.run_for(Duration::from_secs(10));
        let before = (world.naks, world.repairs);
        world.run_for(Duration::from_secs(10));
        assert_eq!((world.naks, world.repairs), before);
        assert!(world.receivers.iter().all(|node| node.engine.is_complete()));
        assert!(world.receivers.iter().all(|node| node.engine.missing() == 0));
        let states: Vec<usize> =
            world.routers.iter().map(|router| router.engine.states()).collect();
        assert_eq!(states, [0; 7]);
    }
}
