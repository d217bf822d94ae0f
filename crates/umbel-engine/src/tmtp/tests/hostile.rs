//! Forgers and liars: what they say is counted, and costs nobody the feed.

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tmtp::{Ack, Body, Message, Totals};

use super::delivery::{LONG, finish, joined, rate};
use super::world::{FEED, Happening, World};
use crate::Address;

/// Has a message of `sender`'s arrive at another node by unicast, from this address.
fn tell(world: &mut World, to: usize, from: SocketAddr, sender: usize, body: Body) {
    let (sender, mut payload) = (world.id(sender), Vec::new());
    Message { feed: FEED, sender, body }.emit(&mut payload);
    let by = Address::Host(from);
    let arrival = Happening::Arrival { to, by, hop_limit: 60, payload: payload.into() };
    world.schedule(world.now, arrival);
    world.run_for(Duration::from_micros(1));
}

/// The next acknowledgement that a node sends.
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
    let mut world = World::new(3, vec![1; 4]);
    world.add_source(World::shape(1, false), rate(1_000_000), |config| config);
    world.forge_confirm = Some(|confirm| confirm.beacon.progress.sent = u32::MAX);
    world.add_receiver(0, World::shape(1, false), |config| config);
    world.run_until(LONG, |world| world.source().stats().totals.members == 1);
    world.extend_all();
    world.run_until(LONG, World::everyone_has_all);
}
