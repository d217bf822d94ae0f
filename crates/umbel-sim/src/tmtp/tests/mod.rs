//! A feed to subnets behind routers, with faults of links and receivers.

mod bottleneck;
mod faults;
mod paper;
mod scope;

use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::tmtp::{BlockCount, ReceiverConfig, RepairConfig, TimingConfig};
use umbel_engine::units::Rate;
use umbel_wire::tmtp::Role;

use super::*;
use crate::{LinkId, LinkSpec, Loss, Network, Simulation};

/// Second when the feed begins; until then the tree forms.
const START: u64 = 10;
/// Longest time of a feed, in seconds.
const LIMIT: u64 = 180;
/// Subnets with receivers, and receivers in each.
const SUBNETS: usize = 6;
const HOSTS: usize = 3;

fn at(seconds: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(seconds)
}

fn after(begin: Instant, ms: u64) -> Instant {
    begin + Duration::from_millis(ms)
}

/// Content that is sent, and its losses.
#[derive(Clone, Copy)]
struct Plan {
    block_symbols: u8,
    fec: bool,
    blocks: u32,
    kbit_per_s: u64,
    /// Loss on the links between routers, and on those of hosts.
    loss: (f64, f64),
    /// Largest number of managers among the children of a node.
    max_children: u16,
    /// T_ack and n, if they and the error control are the paper's.
    paper: Option<(Duration, u8)>,
}

/// Packets as in the paper, 200 of 1,000 bytes in 4 s.
const PACKETS: Plan = Plan {
    block_symbols: 1,
    fec: false,
    blocks: 200,
    kbit_per_s: 400,
    loss: (0.0, 0.0),
    max_children: 2,
    paper: None,
};

/// Blocks of eight symbols, whose repairs are fresh symbols.
const BLOCKS: Plan = Plan { block_symbols: 8, fec: true, blocks: 25, ..PACKETS };

/// Network with three routers in a row. The source's subnet and two others are at the first router,
/// two at each of the others.
///
/// ```text
/// source ── r0 ── r1 ── r2
///          ╱ ╲   ╱ ╲   ╱ ╲
///        n0  n1 n2 n3 n4 n5     each a switch with three hosts
/// ```
struct World {
    simulation: Simulation,
    feed: Feed,
    source: NodeId,
    /// By subnet.
    receivers: Vec<NodeId>,
    plan: Plan,
}

/// Creates the network. Returns its nodes: the source, the receivers, and the links between
/// routers.
fn network(
    plan: &Plan,
    change: impl Fn(usize, LinkSpec) -> LinkSpec,
) -> (Network, NodeId, Vec<NodeId>) {
    let mut network = Network::new();
    let lan = || LinkSpec::default().delay(Duration::from_micros(200));
    let lossy = |spec: LinkSpec, loss| spec.loss(Loss::Bernoulli(loss));
    let source = network.host("source");
    let routers = [0, 1, 2].map(|n| network.router(format!("r{n}")));
    network.link(source, routers[0], lan(), lan()).unwrap();
    for n in 0..2 {
        let wide = || lossy(LinkSpec::default().delay(Duration::from_millis(20)), plan.loss.0);
        let (forth, back) = (change(n, wide()), change(n, wide()));
        network.link(routers[n], routers[n + 1], forth, back).unwrap();
    }
    let mut receivers = Vec::new();
    for subnet in 0..SUBNETS {
        let switch = network.switch(format!("n{subnet}"));
        network.link(routers[subnet / 2], switch, lan(), lan()).unwrap();
        for host in 0..HOSTS {
            let node = network.host(format!("h{subnet}.{host}"));
            let access = || lossy(lan(), plan.loss.1);
            network.link(switch, node, access(), access()).unwrap();
            receivers.push(node);
        }
    }
    (network, source, receivers)
}

impl World {
    fn new(plan: Plan, seed: u64, change: impl Fn(usize, LinkSpec) -> LinkSpec) -> World {
        let (network, source, receivers) = network(&plan, change);
        let Plan { block_symbols, fec, .. } = plan;
        let feed =
            Feed { source, symbol_len: 1_000, block_symbols, fec, recovery: Recovery::Tree, seed };
        let mut simulation = Simulation::new(network, seed);
        let rate = Rate::from_bits_per_s(plan.kbit_per_s * 1_000).unwrap();
        let mut config = feed.source_config(rate);
        config.tree.max_children = plan.max_children;
        if let Some((t_ack, intervals)) = plan.paper {
            config = config.fixed(t_ack, intervals, None);
            config.repair = RepairConfig::paper();
        }
        let run = BlockCount { count: plan.blocks, symbols: plan.block_symbols };
        let host = Source::host(&feed, config, [(at(START), run)]);
        simulation.set_app(source, host, Instant::EPOCH).unwrap();
        World { simulation, feed, source, receivers, plan }
    }

    fn config(&self, node: NodeId) -> ReceiverConfig {
        let mut config = self.feed.receiver_config(node);
        config.tree.max_children = self.plan.max_children;
        if let Some((t_ack, intervals)) = self.plan.paper {
            config.timing = TimingConfig::fixed(t_ack, intervals);
            config.repair = RepairConfig::paper();
        }
        config
    }

    /// Starts a receiver with `application`.
    fn begin(&mut self, node: NodeId, application: Receiver, at: Instant) {
        let host = application.host(&self.feed, self.config(node));
        self.simulation.set_app(node, host, at).unwrap();
    }

    /// Starts all receivers within a second.
    fn begin_all(&mut self) {
        self.begin_each(37);
    }

    /// Starts one receiver after the other.
    fn begin_each(&mut self, ms: u64) {
        for (n, node) in self.receivers.clone().into_iter().enumerate() {
            self.begin(node, Receiver::default(), after(Instant::EPOCH, ms * n as u64));
        }
    }

    fn receiver(&self, node: NodeId) -> &ReceiverHost {
        self.simulation.app(node).unwrap()
    }

    fn source(&self) -> &SourceHost {
        self.simulation.app(self.source).unwrap()
    }

    fn managers(&self) -> Vec<NodeId> {
        let all = self.receivers.iter().copied();
        all.filter(|&node| self.receiver(node).engine().tree().role == Role::Manager).collect()
    }

    /// Runs until these receivers have everything and the source knows that nothing is missing
    /// anywhere.
    fn run_until_complete(&mut self, who: &[NodeId]) {
        let mut seconds = START;
        let is_over = |world: &World| {
            let has_all = |&node: &NodeId| world.receiver(node).host().completed().is_some();
            who.iter().all(has_all) && world.source().host().completed().is_some()
        };
        while seconds < LIMIT && !is_over(self) {
            seconds += 1;
            self.simulation.run_until(at(seconds));
        }
    }

    /// Checks that these receivers have every block, each once and right.
    fn check(&mut self, who: &[NodeId], what: &str) {
        for &node in who {
            let name = self.simulation.network().name(node).to_owned();
            let blocks = self.plan.blocks;
            let host = self.simulation.app_mut::<ReceiverHost>(node).unwrap();
            let (gone, done) = (host.host().gone(), host.host().completed());
            let sink = host.engine_mut().sink_mut();
            let got = (sink.blocks(), sink.wrong(), gone, done.is_some());
            assert_eq!(
                got,
                (blocks, 0, 0, true),
                "{what}: {name}, {:?}, {:?}, {:?}, drops: {}",
                host.engine().tree(),
                host.engine().stats(),
                host.host(),
                host.engine().drops()
            );
        }
        let source = self.source().host();
        assert!(source.completed().is_some(), "{what}: the source does not know it");
    }
}

#[test]
fn everyone_gets_everything_and_the_source_learns_it_from_its_children() {
    for plan in [PACKETS, BLOCKS, Plan { fec: false, ..BLOCKS }] {
        let mut world = World::new(plan, 1, |_, spec| spec);
        world.begin_all();
        let all = world.receivers.clone();
        world.run_until_complete(&all);
        world.check(&all, "no loss");
        let source = world.source();
        let stats = source.engine().stats();
        assert_eq!((stats.children, stats.members), (2, 0));
        assert_eq!((stats.repairs_sent, stats.load.retransmissions), (0, 0));
        let totals = source.host().totals();
        assert_eq!((totals.members, totals.done, totals.failed), (18, 18, 0));
        assert_eq!(source.host().reports().len(), all.len());
        assert_eq!(world.managers().len(), SUBNETS);
    }
}
