//! A feed to a group of any size, by TMTP, LMS or SRM.

use std::time::Duration;

use umbel_engine::load::ProcessingLoad;
use umbel_engine::tmtp::{BlockCount, TreeConfig};
use umbel_engine::units::Rate;
use umbel_sim::{Instant, NodeId, Simulation, lms, srm, tmtp};
use umbel_wire::SmallBlockHeader;
use umbel_wire::tmtp::Role;

use super::internet::Internet;
use super::repairs::{Observer, Repairs};
use crate::lms::scenario::Scenario;
use crate::lms::schemes::{self, Scheme};
use crate::pool::Experiment;
use crate::record::record;

/// A protocol that serves a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// TMTP.
    Tmtp {
        /// K: maximum number of managers that are children of a node.
        max_children: u16,
    },
    /// TMTP whose managers look for parents nearer to the source.
    TmtpImproving {
        /// K: maximum number of managers that are children of a node.
        max_children: u16,
    },
    /// LMS with static repliers, in every router.
    Lms,
    /// SRM with fixed timers; from 1,000 receivers on no node measures distances.
    Srm,
}

impl Service {
    /// TMTP with the K used in comparisons.
    pub const TMTP: Service = Service::Tmtp { max_children: 4 };

    /// The compared services.
    pub const ALL: [Service; 3] = [Service::TMTP, Service::Lms, Service::Srm];

    /// Returns the name in legends.
    pub fn name(self) -> &'static str {
        match self {
            Service::Tmtp { .. } => "TMTP",
            Service::TmtpImproving { .. } => "TMTP, trees that are improved",
            Service::Lms => "LMS",
            Service::Srm => "SRM",
        }
    }
}

/// A group and the service that it gets. Its runs differ in the places of subnets and losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Crowd {
    /// The service of the group.
    pub service: Service,
    /// Number of receivers.
    pub receivers: u32,
    /// Number of their subnets.
    pub subnets: u32,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Number of receivers that did not get everything.
    pub incomplete: u32,
    /// Time in seconds from the first packet until the last receiver has everything.
    pub delay: f64,
    /// Number of events at the source for loss recovery: ACKs and requests received, repairs sent.
    pub feedback: f64,
    /// Number of repairs sent, per packet of the feed.
    pub repairs: f64,
    /// Number of copies of repairs that arrived at a receiver, per packet of the feed.
    pub exposure: f64,
    /// The control tree; only TMTP has one.
    pub tree: Option<Tree>,
}

/// Shape and cost of the control tree.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tree {
    /// Number of events at the source [TMTP "Performance Measures"].
    pub load: f64,
    /// Average number of events at a manager.
    pub manager_load: f64,
    /// Maximum number of events of a node, per child and T_ack.
    pub busiest: f64,
    /// Number of managers that are children of the source.
    pub children: u32,
    /// Maximum number of managers that are children of one node.
    pub most_children: u32,
    /// Number of edges from the source to the deepest manager.
    pub depth: u32,
    /// Average number of edges from the source to a manager.
    pub mean_depth: f64,
}

record!(Tree { load, manager_load, busiest, children, most_children, depth, mean_depth });
record!(Outcome { incomplete, delay, feedback, repairs, exposure } with { tree: Option<Tree> });

/// Number of packets of the feed, and the time between them.
pub(super) const PACKETS: u32 = 100;
const INTERVAL: Duration = Duration::from_millis(100);
const PACKET_LEN: u16 = 1_000;
/// Number of further packets with LMS and SRM, where only a later packet reveals that the last one
/// was lost.
const MORE: u32 = 20;
/// T_ack, and n.
const T_ACK: Duration = Duration::from_secs(1);
const INTERVALS: u8 = 3;
/// Loss of a link between routers, in hundredths of a percent.
const LOSS: u32 = 20;
/// Time within which the first receivers of all subnets start.
const FIRSTS: Duration = Duration::from_secs(20);
/// Time after that within which the others start.
const OTHERS: Duration = Duration::from_secs(10);
/// Time at which the feed starts.
const START: Instant = Instant::from_nanos(60_000_000_000);
/// Interval of the checks for the end, and maximum duration.
const STEP: Duration = Duration::from_millis(100);
const LIMIT: Duration = Duration::from_mins(2);

impl Experiment for Crowd {
    type Outcome = Outcome;

    const RUNS: &'static str = "beyond-runs";

    fn run(&self, seed: u64) -> Outcome {
        let internet = Internet::new(self.receivers, self.subnets, LOSS, seed);
        let mut simulation = Simulation::new(internet.network.clone(), seed);
        self.install(&internet, &mut simulation, seed);
        simulation.run_until(START);
        let before = self.loads(&internet, &simulation);
        Observer::watch(&mut simulation);
        let mut now = START;
        // Receivers that have everything are not checked again.
        let mut left = internet.receivers.clone();
        while now < START + LIMIT && !left.is_empty() {
            now += STEP;
            simulation.run_until(now);
            left.retain(|&node| !self.has_all(&simulation, internet.source, node));
        }
        let repairs = Observer::finish(&mut simulation);
        let after = self.loads(&internet, &simulation);
        let loads: Vec<ProcessingLoad> =
            after.iter().zip(before).map(|(after, before)| after.since(before)).collect();
        let acks = loads.first().map_or(0, |load| load.acks);
        let delay = now.since(START);
        Outcome {
            incomplete: left.len() as u32,
            delay: delay.as_secs_f64(),
            feedback: feedback(&repairs, internet.source, acks),
            repairs: repairs.sent.len() as f64 / f64::from(PACKETS),
            exposure: repairs.heard as f64 / f64::from(PACKETS * self.receivers),
            tree: self.is_tmtp().then(|| tree(&internet, &simulation, &loads, delay)),
        }
    }

    fn work(&self) -> u64 {
        let of_service = if self.service == Service::Srm { 4 } else { 1 };
        u64::from(self.receivers + self.subnets * 10) * of_service * 20
    }
}

impl Crowd {
    fn is_tmtp(&self) -> bool {
        matches!(self.service, Service::Tmtp { .. } | Service::TmtpImproving { .. })
    }

    fn install(&self, internet: &Internet, simulation: &mut Simulation, seed: u64) {
        let scheme = match self.service {
            Service::Tmtp { max_children } => {
                let tree = TreeConfig { max_children, ..TreeConfig::default() };
                return install_tmtp(internet, &tree, simulation, seed);
            }
            Service::TmtpImproving { max_children } => {
                let tree = TreeConfig { max_children, ..TreeConfig::improving() };
                return install_tmtp(internet, &tree, simulation, seed);
            }
            Service::Lms => Scheme::Lms,
            Service::Srm if self.receivers < 1_000 => Scheme::Srm,
            Service::Srm => Scheme::SrmLarge,
        };
        let scenario = Scenario::new(internet.network.clone());
        let sends = (0..PACKETS + MORE).map(|n| START + INTERVAL * n);
        schemes::install(scheme, simulation, &scenario, sends, seed);
    }

    /// Returns whether a receiver has the whole feed.
    fn has_all(&self, simulation: &Simulation, source: NodeId, node: NodeId) -> bool {
        let packets = u64::from(PACKETS);
        match self.service {
            Service::Tmtp { .. } | Service::TmtpImproving { .. } => {
                receiver(simulation, node).host().completed().is_some()
            }
            Service::Lms => {
                let host = simulation.app::<lms::ReceiverHost>(node).expect("it was put there");
                host.host().delivered() >= packets
            }
            Service::Srm => {
                let host = simulation.app::<srm::MemberHost>(node).expect("it was put there");
                let received = host.host().received(srm::id_of(source));
                received.is_some_and(|received| received.next >= packets && received.first == 0)
            }
        }
    }

    /// Returns the loads of the source and each receiver; an empty list for LMS and SRM.
    fn loads(&self, internet: &Internet, simulation: &Simulation) -> Vec<ProcessingLoad> {
        if !self.is_tmtp() {
            return Vec::new();
        }
        let own = source(simulation, internet.source).engine().stats().load;
        let others = internet.receivers.iter();
        let others = others.map(|&node| receiver(simulation, node).engine().stats().load);
        std::iter::once(own).chain(others).collect()
    }
}

fn feedback(repairs: &Repairs, source: NodeId, acks: u64) -> f64 {
    let requests = repairs.requests.get(&source).copied().unwrap_or_default();
    (acks + requests) as f64 + repairs.by(source) as f64
}

fn install_tmtp(internet: &Internet, tree: &TreeConfig, simulation: &mut Simulation, seed: u64) {
    let feed = tmtp::Feed::of_packets(internet.source, PACKET_LEN, seed);
    // Thousands of nodes send in the domain group, with small hop limits.
    let domain = simulation.group(None, tmtp::DOMAIN_GROUP);
    simulation.flood(domain);
    let bits = (usize::from(PACKET_LEN) + SmallBlockHeader::LEN) as u64 * 8;
    let rate = Rate::from_bits_per_s(bits * 1_000 / INTERVAL.as_millis() as u64);
    let rate = rate.expect("it is not 0");
    let mut config = feed.source_config(rate).fixed(T_ACK, INTERVALS, None);
    set_tree(&mut config.tree, tree);
    let timing = config.timing;
    let file = [(START, BlockCount { count: PACKETS, symbols: 1 })];
    let host = tmtp::Source::host(&feed, config, file);
    simulation.set_app(internet.source, host, Instant::EPOCH).expect("the source is a free host");
    let firsts = internet.firsts.len() as u32;
    let others = (internet.receivers.len() as u32 - firsts).max(1);
    let (mut first, mut other) = (0, 0);
    for &node in &internet.receivers {
        let mut config = feed.receiver_config(node);
        config.timing = timing;
        set_tree(&mut config.tree, tree);
        let after = if internet.firsts.get(first as usize) == Some(&node) {
            first += 1;
            FIRSTS * first / firsts
        } else {
            other += 1;
            FIRSTS + OTHERS * other / others
        };
        let host = tmtp::Receiver::default().host(&feed, config);
        let at = Instant::EPOCH + after;
        simulation.set_app(node, host, at).expect("receivers are free hosts");
    }
}

/// Sets K and the pauses between searches for a better parent.
fn set_tree(config: &mut TreeConfig, tree: &TreeConfig) {
    config.max_children = tree.max_children;
    (config.improve_every, config.improve_max) = (tree.improve_every, tree.improve_max);
}

fn source(simulation: &Simulation, node: NodeId) -> &tmtp::SourceHost {
    simulation.app(node).expect("it was put there")
}

fn receiver(simulation: &Simulation, node: NodeId) -> &tmtp::ReceiverHost {
    simulation.app(node).expect("it was put there")
}

/// Returns shape and cost of the tree. `loads` are those of the source and of each receiver.
fn tree(
    internet: &Internet,
    simulation: &Simulation,
    loads: &[ProcessingLoad],
    took: Duration,
) -> Tree {
    let source = source(simulation, internet.source).engine().stats();
    let load = |n: usize| loads[n].total() as f64;
    let acks = took.as_secs_f64() / T_ACK.as_secs_f64();
    let busy = |load: f64, managers: u16, members: u32| {
        load / (f64::from(u32::from(managers) + members).max(1.0) * acks)
    };
    let mut busiest = busy(load(0), source.children, source.members);
    let (mut loads, mut depths, mut most_children) = (Vec::new(), Vec::new(), source.children);
    for (n, &node) in internet.receivers.iter().enumerate() {
        let view = receiver(simulation, node).engine().tree();
        if view.role != Role::Manager {
            continue;
        }
        loads.push(load(n + 1));
        if view.children > 0 || view.members > 0 {
            busiest = busiest.max(busy(load(n + 1), view.children, view.members));
        }
        depths.push(view.path.len().saturating_sub(1) as f64);
        most_children = most_children.max(view.children);
    }
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    Tree {
        load: load(0),
        manager_load: mean(&loads),
        busiest,
        children: u32::from(source.children),
        most_children: u32::from(most_children),
        depth: depths.iter().copied().fold(0.0, f64::max) as u32,
        mean_depth: mean(&depths),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everyone_gets_everything_by_each_service() {
        for service in Service::ALL {
            let outcome = Crowd { service, receivers: 40, subnets: 12 }.run(1);
            assert_eq!(outcome.incomplete, 0, "{service:?}: {outcome:?}");
            assert!((9.9..60.0).contains(&outcome.delay), "{service:?}: {outcome:?}");
            assert!(outcome.repairs > 0.0 && outcome.exposure > 0.0, "{service:?}: {outcome:?}");
            assert_eq!(outcome.tree.is_some(), service == Service::TMTP);
        }
    }

    #[test]
    fn no_node_has_more_than_k_children() {
        let tree =
            Crowd { service: Service::TMTP, receivers: 100, subnets: 60 }.run(2).tree.unwrap();
        assert!(tree.most_children <= 4, "{tree:?}");
        assert!(tree.children > 0 && tree.depth >= 2 && tree.load > 0.0, "{tree:?}");
    }
}
