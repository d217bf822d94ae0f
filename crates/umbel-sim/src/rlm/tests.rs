use umbel_engine::rlm::DropReason;
use umbel_engine::units::Rate;

use super::*;
use crate::{LinkSpec, Network, Queue, Simulation};

fn seconds(s: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(s)
}

/// Returns a source, a bottleneck of this rate, and receivers behind it.
fn world(rate: u64, receivers: u32) -> (Simulation, Vec<NodeId>, NodeId) {
    let mut network = Network::new();
    let (source, router) = (network.host("source"), network.router("router"));
    let delay = Duration::from_millis(10);
    let narrow = LinkSpec::default()
        .rate(Rate::from_bits_per_s(rate).unwrap())
        .delay(delay)
        .queue(Queue::DropTailPackets(20));
    network.link(source, router, narrow.clone(), narrow).unwrap();
    let wide = LinkSpec::default().delay(delay);
    let nodes = (0..receivers)
        .map(|n| {
            let node = network.host(format!("r{n}"));
            network.link(router, node, wide.clone(), wide.clone()).unwrap();
            node
        })
        .collect();
    (Simulation::new(network, 1), nodes, source)
}

#[test]
fn receivers_behind_one_bottleneck_agree_on_the_level_that_fits() {
    let (mut simulation, nodes, source) = world(600_000, 4);
    let stream = Stream::new(source);
    simulation.set_app(source, stream.source_host(1), Instant::EPOCH).unwrap();
    for (&node, s) in nodes.iter().zip(1..) {
        let host = stream.receiver_host(stream.receiver_config(node), 1);
        simulation.set_app(node, host, seconds(s)).unwrap();
    }
    simulation.run_until(seconds(240));
    assert_eq!(stream.level_within(600_000.0), 4);
    for &node in &nodes {
        let host: &ReceiverHost = simulation.app(node).unwrap();
        let record = host.host();
        let converged = record.convergence(4, seconds(240), Duration::from_secs(5));
        assert!(converged.is_some(), "{:?}", record.levels());
        assert!(record.loss() < 0.03, "{}", record.loss());
        assert!(!record.experiments().is_empty() && record.samples().len() > 2300);
        let (drops, stats) = (host.engine().drops(), host.engine().stats());
        assert_eq!(drops.total(), drops.of(DropReason::LeftLayer), "{drops}");
        assert_eq!(stats.receivers, 4);
    }
    let source: &SourceHost = simulation.app(source).unwrap();
    assert_eq!(source.engine().stats().receivers, 4);
}
