//! The policy `auto`, in virtual time.

use std::time::Duration;

use umbel_wire::{Scheme, Toi};

use super::content::{Object, SYMBOL};
use super::host::{World, config};
use super::{MINUTE, objects};
use crate::repository::config::SourceConfig;
use crate::repository::policy::Policy;
use crate::repository::scheduler::SchedulerKind;

/// Channel time of a packet at the tests' rate.
const PACKET: Duration = Duration::from_micros(704);

fn auto() -> SourceConfig {
    SourceConfig { policy: Policy::Auto, scheduler: SchedulerKind::Gain, ..config() }
}

fn world(objects: Vec<Object>, seed: u64) -> World {
    World::new(auto(), objects, seed)
}

#[test]
fn without_loss_every_symbol_is_sent_once() {
    let mut world = world(objects(4, 100), 1);
    world.add_client(&[1, 3], 0.0);
    world.add_client(&[1], 0.0);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1, 3]);
    world.assert_has(1, &[1]);
    assert_eq!(world.sent_packets, 200);
    assert_eq!(world.source.stats().repairs, 0);
}

#[test]
fn losses_cost_little_more_than_what_is_lost() {
    for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.2), (4, 0.5)] {
        let mut world = world(objects(2, 500), seed);
        for _ in 0..8 {
            world.add_client(&[1, 2], loss);
        }
        assert!(world.run(MINUTE * 5), "seed {seed} loss {loss}");
        for client in 0..8 {
            world.assert_has(client, &[1, 2]);
        }
        let least = 1000.0 / (1.0 - loss);
        let sent = world.sent_packets as f64;
        assert!(sent < least * 1.35, "loss {loss}: {sent} packets, at least {least}");
    }
}

#[test]
fn loss_is_learned_from_those_who_never_complain() {
    // The losses of the first client cause the second one's to be covered in advance.
    let mut world = world(objects(30, 32), 2);
    let all: Vec<u32> = (1..=30).collect();
    world.add_client(&all, 0.4);
    world.add_client(&all, 0.1);
    assert!(world.run(MINUTE));
    let losses: Vec<f64> = world.source.clients().map(|(_, client)| client.loss).collect();
    assert!((losses[0] - 0.4).abs() < 0.08 && (losses[1] - 0.1).abs() < 0.05, "{losses:?}");
}

#[test]
fn one_lossy_client_does_not_hold_up_the_others_of_a_large_item() {
    let mut world = world(objects(1, 2000), 5);
    let good: Vec<usize> = (0..4).map(|_| world.add_client(&[1], 0.01)).collect();
    let bad = world.add_client(&[1], 0.6);
    let start = world.now;
    assert!(world.run(MINUTE));
    world.assert_has(bad, &[1]);
    for client in good {
        world.assert_has(client, &[1]);
        let delay = world.receivers[client].done[&Toi(1)] - start;
        assert!(delay < PACKET * 2400, "{delay:?}");
    }
}

#[test]
fn a_small_item_comes_in_between_the_segments_of_a_large_one() {
    let mut objects = objects(1, 10_000);
    objects.push(Object::new(Scheme::ReedSolomon, 30 * usize::from(SYMBOL), 32, 9));
    let mut world = world(objects, 6);
    world.add_client(&[1], 0.0);
    world.run_for(Duration::from_secs(1));
    let asked = world.now;
    let late = world.add_client(&[2], 0.0);
    assert!(world.run(MINUTE));
    let delay = world.receivers[late].done[&Toi(2)] - asked;
    assert!(delay < Duration::from_millis(400), "{delay:?}");
    world.assert_has(0, &[1]);
    assert!(world.sent_packets < 10_100, "{}", world.sent_packets);
}

/// Returns the waiting time of a client that wants ten items of its own, while others keep coming
/// that want one small item each.
fn wait_of_a_large_request(oldest_share: f64) -> Option<Duration> {
    let mut config = auto();
    config.oldest_share = oldest_share;
    let mut world = World::new(config, objects(400, 32), 7);
    let large: Vec<u32> = (1..=10).collect();
    let patient = world.add_client(&large, 0.05);
    let start = world.now;
    for small in 11..=400 {
        // A small item takes 23 ms: the channel never catches up.
        world.add_client(&[small], 0.05);
        world.run_for(Duration::from_millis(20));
    }
    world.receivers[patient]
        .done
        .values()
        .max()
        .map(|&done| done - start)
        .filter(|_| world.receivers[patient].done.len() == large.len())
}

#[test]
fn the_oldest_request_is_served_whatever_comes() {
    assert_eq!(wait_of_a_large_request(0.0), None);
    // 320 symbols at a sixteenth of the channel.
    let waited = wait_of_a_large_request(1.0 / 16.0);
    assert!(waited.is_some_and(|waited| waited < PACKET * 320 * 16 * 5 / 4), "{waited:?}");
}

#[test]
fn a_client_that_vanishes_is_sent_nothing_more() {
    let mut world = world(objects(3, 100), 8);
    let gone = world.add_client(&[1, 2, 3], 0.9);
    world.run_for(Duration::from_millis(60));
    world.close(gone);
    world.run_for(Duration::from_millis(20));
    let sent = world.sent_packets;
    let other = world.add_client(&[2], 0.0);
    assert!(world.run(MINUTE));
    world.assert_has(other, &[2]);
    assert_eq!(world.sent_packets - sent, 100);
    world.run_for(Duration::from_millis(100));
    assert_eq!(world.source.pending_items(), 0);
}

#[test]
fn exact_packets_and_raptorq_work_too() {
    for scheme in [Scheme::NoCode, Scheme::RaptorQ] {
        let object = Object::new(scheme, 300 * usize::from(SYMBOL), 300, 1);
        let mut world = world(vec![object], 9);
        for _ in 0..4 {
            world.add_client(&[1], 0.1);
        }
        assert!(world.run(MINUTE), "{scheme:?}");
        for client in 0..4 {
            world.assert_has(client, &[1]);
        }
        assert!(world.sent_packets < 700, "{scheme:?}: {}", world.sent_packets);
    }
}
