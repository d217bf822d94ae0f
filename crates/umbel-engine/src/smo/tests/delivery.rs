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
    let nodes = network.nodes.len();
    network.connect_all();
    let all = |event: &SourceEvent| matches!(event, SourceEvent::Connected { .. });
    assert!(network.run_until(MINUTE, |network| network.count(all) == nodes), "not all connect");
    network.send_all(bytes.clone());
    let is_done = |network: &Network| network.nodes.iter().all(|node| node.got.len() == len);
    let done = network.run_until(within, is_done);
    let short: Vec<_> = network.nodes.iter().map(|node| node.got.len()).collect();
    assert!(done, "{short:?} of {len} at {:?}: {:#?}", network.now, network.source.stats());
    for node in 0..nodes {
        assert!(network.nodes[node].got == bytes, "receiver {node} has other bytes");
    }
    network.run(Duration::from_millis(500));
    for node in 0..nodes {
        network.tell(node, ReceiverCommand::Finish);
    }
    let closed = |event: &SourceEvent| matches!(event, SourceEvent::Closed { .. });
    let ends = network.run_until(MINUTE, |network| network.count(closed) == nodes);
    assert!(
        ends,
        "connections stay open: {:?} {:#?}",
        network.removed(),
        network.source.children().collect::<Vec<_>>()
    );
    assert!(network.source.is_empty());
    let drained = SourceEvent::Drained { master: MasterId::FIRST };
    assert_eq!(network.count(|event| *event == drained), 1);
    for node in &network.nodes {
        assert!(node.has(&ReceiverEvent::ReceivedEnd), "{:?}", node.events);
    }
    assert_eq!(network.beyond_window, 0);
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
    assert_eq!(network.source.drops().to_string(), "");
}

#[test]
fn losses_are_repaired() {
    for seed in 0..10 {
        let mut network = Network::new(seed, |_| {});
        network.common_loss = 0.01;
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
fn a_receiver_without_a_helper_is_served_by_unicast() {
    let mut network = Network::new(3, |_| {});
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
    let mut network = Network::new(3, |config| config.mss = 1448);
    for node in 0..50 {
        let loss = if node % 5 < 2 { 0.02 } else { 0.0 };
        let way = Way { loss: (loss, 0.0), ..Way::clean(1) };
        network.add(way, |config| config.mss = 1460);
    }
    let begin = network.now;
    deliver(&mut network, 1_000_000, MINUTE);
    let stats = network.source.stats();
    // 8 Mbit/s, the end of the connections included; the paper has 1 Mbit/s.
    assert!(network.now.since(begin) < Duration::from_secs(3), "{:?}", network.now);
    assert!(stats.timeouts < 5 && network.left < 1_800_000, "{stats:?} {}", network.left);
}
