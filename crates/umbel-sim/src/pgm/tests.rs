use std::time::Duration;

use umbel_engine::pgm::{ReceiverConfig, SourceConfig};
use umbel_topology::Topology;

use super::*;
use crate::topology::Schedules;
use crate::{Kinds, LinkSpec, Loss, Network, ScriptedLoss, Simulation, channel};

const UNITS: u64 = 50;

/// A binary tree of eight receivers on links of 10 ms, which `spec` may change.
struct World {
    simulation: Simulation,
    source: NodeId,
    receivers: Vec<NodeId>,
    routers: Vec<NodeId>,
}

fn world(seed: u64, wait: Duration, spec: impl Fn(&str, &str) -> LinkSpec) -> World {
    let plan = Network::from_topology(&Topology::tree(3, 2), &Schedules::new()).unwrap();
    let mut network = Network::new();
    for (node, kind) in plan.nodes() {
        match kind {
            crate::NodeKind::Host => network.host(plan.name(node)),
            _ => network.router(plan.name(node)),
        };
    }
    for (_, a, b) in plan.links() {
        let [forth, back] = [(a, b), (b, a)].map(|(from, to)| spec(plan.name(from), plan.name(to)));
        network.link(a, b, forth, back).unwrap();
    }
    let named = |kind| -> Vec<NodeId> {
        let nodes = network.nodes().filter(|&(_, found)| found == kind);
        nodes.map(|(node, _)| node).collect()
    };
    let (hosts, routers) = (named(crate::NodeKind::Host), named(crate::NodeKind::Router));
    let (source, receivers) = (hosts[0], hosts[1..].to_vec());
    let group = channel(Some(source), 1);
    let mut simulation = Simulation::new(network, seed);
    let sends = (0..UNITS).map(|n| Instant::EPOCH + Duration::from_millis(1_000 + 100 * n));
    let config = SourceConfig { wait, ..SourceConfig::new(group) };
    simulation.set_app(source, Source::host(config, sends, 1000), Instant::EPOCH).unwrap();
    for &receiver in &receivers {
        let config = ReceiverConfig {
            first: Some(0),
            nak_backoff: Duration::ZERO,
            ..ReceiverConfig::new(group)
        };
        let host = Receiver::host(config, seed + u64::from(receiver.0));
        simulation.set_app(receiver, host, Instant::EPOCH).unwrap();
    }
    for &node in &routers {
        simulation.set_router_hook(node, router(node, |_| {})).unwrap();
    }
    World { simulation, source, receivers, routers }
}

impl World {
    fn run(&mut self, seconds: u64) {
        self.simulation.run_until(Instant::EPOCH + Duration::from_secs(seconds));
    }

    fn receiver(&self, n: usize) -> &ReceiverHost {
        self.simulation.app(self.receivers[n]).unwrap()
    }

    fn repairs(&self) -> u64 {
        let source: &SourceHost = self.simulation.app(self.source).unwrap();
        source.engine().stats().repairs
    }

    fn everyone_has_everything(&self) {
        for n in 0..self.receivers.len() {
            let application = self.receiver(n).host();
            assert_eq!((application.delivered(), application.lost()), (UNITS, 0), "h{}", n + 1);
        }
    }
}

fn plain() -> LinkSpec {
    LinkSpec::default().delay(Duration::from_millis(10))
}

/// Returns specifications that lose unit 4 on one link.
fn once(from: &'static str, to: &'static str) -> impl Fn(&str, &str) -> LinkSpec {
    move |a, b| {
        if (a, b) == (from, to) {
            let lost = ScriptedLoss { flow: crate::FlowId(0), nth: 5 };
            plain().loss(Loss::Script(vec![lost])).loss_of(Kinds::NONE.with(Kind::Data))
        } else {
            plain()
        }
    }
}

#[test]
fn a_loss_at_a_receiver_is_repaired_for_it_alone() {
    let mut world = world(1, Duration::ZERO, once("r4", "h2"));
    world.run(30);
    world.everyone_has_everything();
    assert_eq!(world.repairs(), 1);
    for n in 0..8 {
        let engine = world.receiver(n).engine();
        assert_eq!(engine.stats().repaired, u64::from(n == 1));
        assert_eq!(engine.drops().total(), 0, "h{}: {}", n + 1, engine.drops());
    }
}

#[test]
fn a_loss_at_the_source_is_repaired_by_one_retransmission_where_all_are_equally_far() {
    let mut world = world(1, Duration::ZERO, once("src", "r1"));
    world.run(30);
    world.everyone_has_everything();
    assert_eq!(world.repairs(), 1);
    let root: &RouterHook = world.simulation.router_hook(world.routers[0]).unwrap();
    let stats = root.engine().stats();
    // One NAK from each side; one of them goes up.
    assert_eq!((stats.naks, stats.naks_up, stats.copies), (2, 1, 2));
}

#[test]
fn a_wait_at_the_source_saves_repeated_retransmissions() {
    // The left half is much nearer to the source than the right.
    let uneven = |a: &str, b: &str| {
        let spec = once("src", "r1")(a, b);
        if [a, b].contains(&"r3") { spec.delay(Duration::from_millis(100)) } else { spec }
    };
    let mut at_once = world(1, Duration::ZERO, uneven);
    at_once.run(30);
    at_once.everyone_has_everything();
    assert_eq!(at_once.repairs(), 2);
    let mut waiting = world(1, Duration::from_millis(500), uneven);
    waiting.run(30);
    waiting.everyone_has_everything();
    assert_eq!(waiting.repairs(), 1);
}

#[test]
fn everything_arrives_once_and_in_order_although_all_links_lose_everything_at_random() {
    for seed in 0..100 {
        let mut world =
            world(seed, Duration::from_millis(100), |_, _| plain().loss(Loss::Bernoulli(0.1)));
        world.run(200);
        println!("seed {seed}");
        world.everyone_has_everything();
        for &node in &world.routers {
            let hook: &RouterHook = world.simulation.router_hook(node).unwrap();
            assert_eq!(hook.engine().states(), 0, "state is left behind");
        }
    }
}

#[test]
fn routers_without_pgm_in_between_pass_everything_on() {
    let mut world = world(1, Duration::ZERO, once("r4", "h2"));
    let group = channel(Some(world.source), 1);
    // The same without hooks: the NAK travels all the way.
    let network = world.simulation.network().clone();
    let mut bare = Simulation::new(network, 1);
    let sends = (0..UNITS).map(|n| Instant::EPOCH + Duration::from_millis(1_000 + 100 * n));
    let config = SourceConfig { wait: Duration::ZERO, ..SourceConfig::new(group) };
    bare.set_app(world.source, Source::host(config, sends, 1000), Instant::EPOCH).unwrap();
    for &receiver in &world.receivers {
        let host = Receiver::host(ReceiverConfig::new(group), 1);
        bare.set_app(receiver, host, Instant::EPOCH).unwrap();
    }
    world.simulation = bare;
    world.run(30);
    world.everyone_has_everything();
    assert_eq!(world.repairs(), 1);
}
