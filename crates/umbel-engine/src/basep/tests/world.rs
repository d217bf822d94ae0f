//! A source and its receivers, in a network that loses, duplicates, reorders and is cut.

use std::time::Duration;

use crate::basep::*;
use crate::testing::world::{self, Host, Link, NoRouter, Protocol, Seat};
use crate::testing::{Tested, channel, host, seeds};
use crate::{Address, Engine, Transmit};
use bytes::Bytes;
use umbel_wire::Parsed;
use umbel_wire::basep::Message;

const RECEIVERS: usize = 5;
const PACKETS: u64 = 200;
/// Number of packets that the source has in flight, and that a receiver holds.
const WINDOW: u64 = 8;

/// A receiver, and the number of packets that its application got.
struct Node {
    engine: Tested<Receiver>,
    got: u64,
    is_complete: bool,
}

impl Seat for Node {
    type Engine = Receiver;

    fn engine(&mut self) -> &mut Tested<Receiver> {
        &mut self.engine
    }
}

/// What the source said, and what was sent.
#[derive(Default)]
struct Transfer {
    events: Vec<SourceEvent>,
    /// Number of datagrams of all hosts.
    sent: u64,
}

type World = world::World<Transfer>;

impl Protocol for Transfer {
    type Source = Tested<Source>;
    type Receiver = Node;
    type Router = NoRouter;

    fn on_source_event(world: &mut World, event: SourceEvent) {
        world.events.push(event);
    }

    fn on_receiver_event(world: &mut World, node: usize, event: ReceiverEvent) {
        let node = &mut world.receivers[node];
        match event {
            ReceiverEvent::Packet { sequence, payload } => {
                assert_eq!((sequence, payload), (node.got, content(sequence)));
                node.got += 1;
            }
            ReceiverEvent::Complete => node.is_complete = true,
        }
    }

    fn passes(world: &mut World, from: usize, _: Transmit, payload: &mut Bytes) -> bool {
        world.sent += 1;
        let Ok(Parsed::Message { message, .. }) = Message::parse(payload) else {
            panic!("host {from} sends {payload:?}");
        };
        if let Message::Data { sequence, .. } = message {
            // Those that have crashed are given up in the end.
            let up = (0..RECEIVERS).filter(|n| world.is_up(n + 1));
            let slowest = up.map(|n| world.receivers[n].got).min().unwrap_or(0);
            assert!(sequence < slowest + WINDOW, "packet {sequence}, {slowest} came everywhere");
        }
        true
    }

    fn state(world: &World) -> String {
        let got: Vec<u64> = world.receivers.iter().map(|node| node.got).collect();
        format!("got {got:?}, {:?}", world.events)
    }
}

fn content(sequence: u64) -> Bytes {
    format!("packet {sequence}").into()
}

/// Creates a world with receivers at increasing distances, in two subnets.
fn world(seed: u64) -> World {
    let addresses = (0..RECEIVERS).map(|n| host(n as u8 + 2)).collect();
    let mut config = SourceConfig::new(channel(), addresses);
    (config.window, config.timeout) = (Some(WINDOW), Duration::from_millis(100));
    let source = Tested::new(Source::new(config), |source| source.drops().to_string());
    let mut world = World::with_source(seed, Transfer::default(), source, Host::new(host(1), 0));
    for n in 0..RECEIVERS {
        let mut config = ReceiverConfig::new(channel());
        config.window.units = WINDOW;
        let engine = Tested::new(Receiver::new(config), |receiver| receiver.drops().to_string());
        let place = Host {
            down: Link::delayed(Duration::from_millis(n as u64)),
            ..Host::new(host(n as u8 + 2), n % 2)
        };
        world.add_host(Node { engine, got: 0, is_complete: false }, place);
    }
    world
}

fn send_all(world: &mut World) {
    for sequence in 0..PACKETS {
        let (payload, last) = (content(sequence), sequence + 1 == PACKETS);
        world.source.handle_command(world.now, SourceCommand::Send { payload, last }).unwrap();
    }
}

fn is_finished(world: &World) -> bool {
    world.receivers.iter().all(|node| node.is_complete)
        && world.events.contains(&SourceEvent::Finished)
}

#[test]
fn without_losses_each_packet_is_sent_once_and_acknowledged_by_all() {
    let mut world = world(1);
    send_all(&mut world);
    world.run_until(Duration::from_secs(10), |world| is_finished(world));
    assert_eq!(world.sent, PACKETS * (1 + RECEIVERS as u64));
}

#[test]
fn a_receiver_that_crashes_is_given_up_and_the_others_get_everything() {
    let mut world = world(2);
    // What only the crashed one lacks is sent to all, a hundred times.
    world.may_drop(DropReason::Duplicate);
    world.later(Duration::from_millis(50), |world| world.crash(3));
    send_all(&mut world);
    world.run_until(Duration::from_secs(30), |world| world.events.contains(&SourceEvent::Finished));
    let given_up = SourceEvent::GivenUp { receiver: host(4) };
    assert_eq!(world.events.iter().filter(|event| **event == given_up).count(), 1);
    let got: Vec<u64> = world.receivers.iter().map(|node| node.got).collect();
    assert!(got[2] < PACKETS, "{got:?}");
    assert!([0, 1, 3, 4].iter().all(|n| got[*n] == PACKETS), "{got:?}");
}

#[test]
fn all_packets_arrive_through_losses_reordering_and_a_cut() {
    for seed in seeds(30) {
        let mut world = world(seed);
        world.network.weather = Link {
            loss: 0.1,
            duplicates: 0.05,
            delay: Duration::from_millis(5),
            jitter: Duration::from_millis(20),
        };
        // Of the packets and ACKs that come twice, and of the packets whose ACK was lost.
        world.may_drop(DropReason::Duplicate);
        world.later(Duration::from_secs(1), |world| world.network.partition(&[0], &[1]));
        world.later(Duration::from_secs(4), |world| world.network.heal());
        send_all(&mut world);
        world.run_until(Duration::from_mins(2), |world| is_finished(world));
        // Nothing is left to do.
        world.run_for(Duration::from_secs(5));
        assert_eq!((world.source.poll_timeout(), world.in_flight().count()), (None, 0));
        let got_it = (0..RECEIVERS as u8).map(|n| SourceEvent::GotIt { receiver: host(n + 2) });
        got_it.for_each(|event| assert!(world.events.contains(&event), "{event:?}"));
        assert_eq!(world.events.len(), RECEIVERS + 1, "{:?}", world.events);
    }
}

#[test]
fn nobody_else_is_heard() {
    let mut world = world(3);
    send_all(&mut world);
    let mut forged = Vec::new();
    Message::Ack { channel: channel(), sequence: 0 }.emit(&mut forged);
    world.run_for(Duration::from_millis(1));
    world.give(0, Address::Host(host(99)), &forged);
    world.source.assert_dropped("Stranger 1");
    world.run_until(Duration::from_secs(10), |world| is_finished(world));
}
