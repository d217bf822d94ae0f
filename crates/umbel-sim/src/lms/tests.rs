//! Every receiver gets every unit once and in order, whatever the faults of the network.

mod faults;
mod services;
mod steering;

use umbel_seeds::for_seeds;
use umbel_wire::Tsi;

use super::*;
use crate::channel;
use crate::link::{LinkSpec, Loss};
use crate::network::Network;
use crate::random::{below, node_seed};
use crate::simulation::Simulation;

const GROUP: u32 = 1;

/// Returns the time `n` milliseconds after the epoch.
fn ms(n: u64) -> Instant {
    Instant::EPOCH + Duration::from_millis(n)
}

/// A random tree of routers with a source and receivers anywhere on it.
struct Net {
    network: Network,
    source: NodeId,
    routers: Vec<NodeId>,
    receivers: Vec<NodeId>,
}

/// Treatment of packets on each link of a [`Net`].
#[derive(Clone, Debug, Default)]
struct Treatment {
    loss: f64,
    /// Each direction of some links between routers is cut for this time.
    cut: Option<(Instant, Instant)>,
}

impl Net {
    /// Creates a network of two to six routers and two to eight receivers, with delays of 1 to 10
    /// ms.
    fn random(seed: u64, treatment: &Treatment) -> Net {
        let mut random = stream(seed, Purpose::Topology, 0);
        let mut up_to = |least: u64, most: u64| least + below(&mut random, most - least + 1);
        let mut network = Network::new();
        let source = network.host("source");
        let count = up_to(2, 6);
        let routers: Vec<NodeId> = (0..count).map(|n| network.router(format!("r{n}"))).collect();
        let receivers: Vec<NodeId> =
            (0..up_to(2, 8)).map(|n| network.host(format!("h{n}"))).collect();
        let mut ends = vec![(routers[0], source)];
        for n in 1..routers.len() {
            ends.push((routers[up_to(0, n as u64 - 1) as usize], routers[n]));
        }
        let cut = ends.len() - 1;
        for &receiver in &receivers {
            ends.push((routers[up_to(0, count - 1) as usize], receiver));
        }
        for (number, (a, b)) in ends.into_iter().enumerate() {
            let delay = Duration::from_micros(up_to(1_000, 10_000));
            let mut spec = LinkSpec::default().delay(delay).loss(Loss::Bernoulli(treatment.loss));
            if let Some((down, up)) = treatment.cut.filter(|_| number == cut) {
                spec.schedule = vec![(down, false), (up, true)];
            }
            network.link(a, b, spec.clone(), spec).unwrap();
        }
        Net { network, source, routers, receivers }
    }

    fn receiver_config(&self) -> ReceiverConfig {
        ReceiverConfig::new(channel(Some(self.source), GROUP))
    }
}

/// Run of a [`Net`].
struct Run {
    simulation: Simulation,
    source: NodeId,
    units: u64,
}

/// Number of units that a run sends from 100 ms on.
const UNITS: u64 = 15;
/// Time between two units.
const EVERY_MS: u64 = 20;

impl Run {
    /// Puts LMS on all nodes. `change` sets the differences of a receiver, and `has_lms` selects
    /// the routers that take part.
    fn new(
        net: &Net,
        seed: u64,
        units: u64,
        has_lms: impl Fn(usize) -> bool,
        change: impl Fn(usize, &mut ReceiverConfig, &mut Receiver),
    ) -> Run {
        let mut simulation = Simulation::new(net.network.clone(), seed);
        let config = SourceConfig::new(channel(Some(net.source), GROUP), Tsi(1));
        let host = Source::host(config, (0..units).map(|n| ms(100 + n * EVERY_MS)), 50);
        simulation.set_app(net.source, host, ms(0)).unwrap();
        for (number, &node) in net.routers.iter().enumerate() {
            if has_lms(number) {
                simulation.set_router_hook(node, router(node, seed, |_| {})).unwrap();
            }
        }
        for (number, &node) in net.receivers.iter().enumerate() {
            let mut config = net.receiver_config();
            let mut application = Receiver::default();
            application.set_answer(node.0.into());
            change(number, &mut config, &mut application);
            let mut host = Receiver::host(config, node_seed(seed, node));
            *host.host_mut() = application;
            simulation.set_app(node, host, ms(0)).unwrap();
        }
        Run { simulation, source: net.source, units }
    }

    /// Makes a receiver fall silent at this time, without notice.
    fn crash(&mut self, node: NodeId, at: Instant) {
        self.simulation.app_mut::<ReceiverHost>(node).unwrap().crash_at(at);
    }

    fn receiver(&self, node: NodeId) -> &Receiver {
        self.simulation.app::<ReceiverHost>(node).unwrap().host()
    }

    fn engine(&self, node: NodeId) -> &lms::Receiver {
        self.simulation.app::<ReceiverHost>(node).unwrap().engine()
    }

    fn router(&self, node: NodeId) -> &lms::Router {
        self.simulation.router_hook::<RouterHook>(node).unwrap().engine()
    }

    fn source(&self) -> &lms::Source {
        self.simulation.app::<SourceHost>(self.source).unwrap().engine()
    }

    /// Runs until all of these receivers have everything, at most until `end`.
    fn until_complete(&mut self, receivers: &[NodeId], end: Instant) {
        let mut at = ms(0);
        while at < end {
            at += Duration::from_millis(500);
            self.simulation.run_until(at);
            let sent = self.source().stats().units == self.units;
            if sent && receivers.iter().all(|node| self.receiver(*node).next() == self.units) {
                return;
            }
        }
    }

    /// Checks that all of these receivers got everything, once and in order.
    #[track_caller]
    fn assert_complete(&self, receivers: &[NodeId], what: &str) {
        for &node in receivers {
            let receiver = self.receiver(node);
            let got = (receiver.delivered(), receiver.wrong(), receiver.given_up());
            let engine = self.engine(node);
            let name = self.simulation.network().name(node);
            let (stats, drops) = (engine.stats(), engine.drops());
            assert_eq!(got, (self.units, 0, 0), "{what}: {name}: {stats:?}, dropped: {drops}");
        }
    }
}
