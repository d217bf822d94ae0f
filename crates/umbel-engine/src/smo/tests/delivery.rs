//! Everyone receives every byte: sources and receivers in a network.

use std::time::Duration;

use super::network::{Network, Way, content};
use crate::smo::receiver::{ReceiverCommand, ReceiverEvent};
use crate::smo::*;

const MINUTE: Duration = Duration::from_mins(1);

/// Runs a transfer to everyone, and checks that all have the same bytes and that all
/// connections end.
#[track_caller]
fn deliver(network: &mut Network, len: usize, within: Duration) {
    let bytes = content(len);
    let nodes = network.receivers.len();
    network.connect_all();
    let all = |event: &SourceEvent| matches!(event, SourceEvent::Connected { .. });
    assert!(network.reaches(MINUTE, |network| network.count(all) == nodes), "not all connect");
    network.send_all(bytes.clone());
    let is_done =
        |network: &mut Network| network.receivers.iter().all(|node| node.got.len() == len);
    network.run_until(within, is_done);
    for node in 0..nodes {
        assert!(network.receivers[node].got == bytes, "receiver {node} has other bytes");
    }
    network.run_for(Duration::from_millis(500));
    for node in 0..nodes {
        network.tell(node, ReceiverCommand::Finish);
    }
    let closed = |event: &SourceEvent| matches!(event, SourceEvent::Closed { .. });
    network.run_until(MINUTE, |network| network.count(closed) == nodes);
    assert!(network.source.is_empty());
    let drained = SourceEvent::Drained { master: MasterId::FIRST };
    assert_eq!(network.count(|event| *event == drained), 1);
    for node in &network.receivers {
        assert!(node.has(&ReceiverEvent::ReceivedEnd), "{:?}", node.events);
    }
    assert_eq!((network.beyond_window, network.beyond_permission), (0, 0));
}

#[test]
fn without_loss_every_segment_leaves_once() {
    let mut network = Network::new(1, |_| {});
    for node in 0..20 {
        network.add(Way::clean(1 + node % 7), |_| {});
    }
    deliver(&mut network, 500_000, MINUTE);
    let stats = network.source.stats();
    assert_eq!((stats.multicast.bytes, stats.multicast.segments), (500_000, 500));
    assert_eq!((stats.unicast.segments, stats.timeouts), (0, 0), "{stats:?}");
    assert_eq!((stats.multicast_again.segments, stats.unicast_again.segments), (0, 0), "{stats:?}");
}

#[test]
fn losses_are_repaired() {
    for seed in 0..10 {
        let mut network = Network::new(seed, |_| {});
        network.expect_faults();
        network.network.subnet_loss.insert(1, 0.01);
        for node in 0..20 {
            let way = Way { loss: (0.02, 0.01), ..Way::clean(1 + node % 7) };
            network.add(way, |config| config.sack = node % 3 > 0);
        }
        println!("seed {seed}");
        deliver(&mut network, 300_000, MINUTE);
        let stats = network.source.stats();
        assert!(stats.multicast_again.segments > 0 && stats.unicast_again.segments > 0);
    }
}

#[test]
fn a_loss_on_a_common_link_is_repaired_by_multicast() {
    for seed in 0..10 {
        let mut network = Network::new(seed, |_| {});
        network.expect_faults();
        network.network.subnet_loss.insert(2, 0.01);
        for node in 0..40 {
            // Reports of a loss come within 80 ms.
            let number = network.add(Way::clean(10 + 2 * (node % 20)), |_| {});
            network.host(number + 1).subnet = if number < 20 { 2 } else { 1 };
        }
        println!("seed {seed}");
        deliver(&mut network, 1_000_000, MINUTE);
        let stats = network.source.stats();
        let (multicast, unicast) = (stats.multicast_again.segments, stats.unicast_again.segments);
        assert!(multicast > 0 && unicast < 5 * multicast, "{stats:?}");
    }
}

#[test]
fn a_receiver_without_a_helper_is_served_by_unicast() {
    let mut network = Network::new(3, |_| {});
    network.expect_faults();
    for node in 0..4 {
        network.add(Way::clean(2), |config| {
            if node == 3 {
                config.channel = None;
            }
        });
    }
    deliver(&mut network, 300_000, MINUTE);
    let stats = network.source.stats();
    assert!(stats.unicast.bytes + stats.unicast_again.bytes <= 320_000, "{stats:?}");
}

#[test]
fn a_lossy_minority_slows_a_group_down_but_does_not_stop_it() {
    // The shape of [SMO §V-B]: 2 of 5 receivers lose 2 % independently.
    const SEEDS: u32 = 5;
    let (mut time, mut timeouts) = (Duration::ZERO, 0);
    for seed in 0..SEEDS {
        let mut network = Network::new(seed.into(), |config| config.mss = 1448);
        network.expect_faults();
        for node in 0..50 {
            let loss = if node % 5 < 2 { 0.02 } else { 0.0 };
            let way = Way { loss: (loss, 0.0), ..Way::clean(1) };
            network.add(way, |config| config.mss = 1460);
        }
        let begin = network.now;
        deliver(&mut network, 1_000_000, MINUTE);
        time += network.now.since(begin);
        timeouts += network.source.stats().timeouts;
        assert!(network.left < 1_800_000, "seed {seed}: {}", network.left);
    }
    // 8 Mbit/s, the end of the connections included; the paper has 1 Mbit/s.
    assert!(time / SEEDS < Duration::from_secs(3), "{time:?}");
    assert!(timeouts < 5 * u64::from(SEEDS), "{timeouts}");
}
