//! One file to a group on the MBone, by one of the protocols.

use std::time::Duration;

use umbel_engine::load::ProcessingLoad;
use umbel_engine::tmtp::{BlockCount, RepairConfig};
use umbel_engine::units::Rate;
use umbel_sim::{Instant, NodeId, Simulation, basep, channel, tmtp};
use umbel_wire::SmallBlockHeader;
use umbel_wire::tmtp::Role;

use super::mbone::Mbone;
use super::repairs::{Observer, Repairs};
use crate::pool::Experiment;
use crate::record::record;

/// Error control of TMTP. T_ack, n and rate are fixed with either.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rules {
    /// The paper's: [`RepairConfig::paper`].
    Paper,
    /// Umbel's rules. Heartbeats and beacons announce the last packets, NACKs are repeated, and a
    /// parent rests after a repair. Data that it does not repair is fetched from the source.
    Umbel,
}

/// A protocol that delivers the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Protocol {
    /// TMTP.
    Tmtp {
        /// Maximum number of packets sent and not acknowledged; `None` uses the number that
        /// T_retrans implies at the fixed rate.
        window: Option<u32>,
        /// Error control.
        rules: Rules,
    },
    /// The sender-initiated protocol with a window of 5.
    WinBasep,
    /// The sender-initiated protocol without a window.
    BurstBasep,
}

impl Protocol {
    /// TMTP with the window that its definition implies.
    pub const TMTP: Protocol = Protocol::Tmtp { window: None, rules: Rules::Paper };

    /// TMTP with the window of `WIN_BASEP`.
    pub const TMTP_WINDOW: Protocol = Protocol::Tmtp { window: Some(WINDOW), rules: Rules::Paper };

    /// TMTP as Umbel has improved it.
    pub const IMPROVED: Protocol = Protocol::Tmtp { window: None, rules: Rules::Umbel };

    /// The protocols that the paper compares, and the improved one.
    pub const DRAWN: [Protocol; 4] =
        [Protocol::TMTP, Protocol::WinBasep, Protocol::BurstBasep, Protocol::IMPROVED];

    /// Returns the name in legends.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tmtp { rules: Rules::Umbel, .. } => "TMTP, Umbel's",
            Protocol::Tmtp { window: None, .. } => "TMTP",
            Protocol::Tmtp { window: Some(_), .. } => "TMTP, window of 5",
            Protocol::WinBasep => "WIN_BASEP",
            Protocol::BurstBasep => "BURST_BASEP",
        }
    }
}

/// A transfer. Its runs differ in the packets that are lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Transfer {
    /// The protocol that delivers the file.
    pub protocol: Protocol,
    /// Number of receivers.
    pub receivers: u32,
    /// Number of packets of 1 KB.
    pub packets: u32,
    /// Loss of a tunnel in each direction, in hundredths of a percent.
    pub loss: u32,
}

/// Results of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Time in seconds from the start until the sender has the last GOT_IT; NaN if it never
    /// arrived.
    pub delay: f64,
    /// Number of events at the sender, by kind.
    pub load: ProcessingLoad,
    /// Average number of events at a domain manager; NaN without managers.
    pub manager_load: f64,
    /// Number of retransmissions by the sender.
    pub by_sender: u32,
    /// Number of retransmissions by other nodes.
    pub by_others: u32,
    /// Number of all retransmissions that happened while another node was retransmitting.
    pub concurrent: u32,
    /// Number of links that all retransmissions crossed.
    pub crossings: u64,
}

record!(Outcome { delay, manager_load, by_sender, by_others, concurrent, crossings } with {
    load: ProcessingLoad
});

/// Length of a packet in bytes [TMTP "The Test Environment"].
const PACKET_LEN: usize = 1_000;
/// The window of `WIN_BASEP` [TMTP "The Test Environment"].
const WINDOW: u32 = 5;
/// Timeout: twice the round trip to the farthest site [TMTP "The Test Environment"].
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time at which the transfer starts, so that trees are formed before.
const START: Instant = Instant::from_nanos(120_000_000_000);
/// Group that all hosts join.
const GROUP: u32 = 1;
/// Interval of the checks for the end.
const STEP: Duration = Duration::from_millis(100);
/// Maximum duration of a transfer.
const LIMIT: Duration = Duration::from_mins(10);
/// Time within which retransmissions of two nodes are concurrent: a round trip to the farthest
/// site.
const CONCURRENT: Duration = Duration::from_secs(1);

impl Experiment for Transfer {
    type Outcome = Outcome;

    fn run(&self, seed: u64) -> Outcome {
        self.run_with(MAX_CHILDREN, seed)
    }

    fn work(&self) -> u64 {
        u64::from(self.receivers * self.packets)
    }
}

impl Transfer {
    /// Runs the transfer with another K.
    pub(super) fn run_with(&self, max_children: u16, seed: u64) -> Outcome {
        let mbone = Mbone::new(self.receivers, self.loss);
        let mut simulation = Simulation::new(mbone.network.clone(), seed);
        match self.protocol {
            Protocol::Tmtp { window, rules } => {
                let repair = match rules {
                    Rules::Paper => RepairConfig::paper(),
                    Rules::Umbel => RepairConfig::default(),
                };
                self.tmtp(&mbone, &mut simulation, window, (repair, max_children))
            }
            Protocol::WinBasep => self.basep(&mbone, &mut simulation, Some(WINDOW.into())),
            Protocol::BurstBasep => self.basep(&mbone, &mut simulation, None),
        }
    }
}

/// Packets per second that TMTP sends [TMTP "The Test Environment"].
const PACKETS_PER_S: u64 = 10;
/// T_ack, and n [TMTP "The Test Environment"].
const T_ACK: Duration = Duration::from_millis(1_100);
const INTERVALS: u8 = 3;
/// K, with which the sender has the managers of four sites as children, and these have the others.
pub(super) const MAX_CHILDREN: u16 = 4;
/// Seed of the nodes' random streams. They are the same in all runs, and so is the tree; only the
/// lost packets differ.
const NODE_SEED: u64 = 1;
/// Interval between the starts of managers, those of nearer sites first.
const MANAGER_EVERY: Duration = Duration::from_secs(8);
/// Start of the other receivers, one after the other.
const MEMBERS_FROM: Duration = Duration::from_mins(1);
const MEMBER_EVERY: Duration = Duration::from_millis(500);

impl Transfer {
    fn tmtp(
        &self,
        mbone: &Mbone,
        simulation: &mut Simulation,
        window: Option<u32>,
        (repair, max_children): (RepairConfig, u16),
    ) -> Outcome {
        let feed = tmtp::Feed::of_packets(mbone.sender, PACKET_LEN as u16, NODE_SEED);
        let bits = (PACKET_LEN + SmallBlockHeader::LEN) as u64 * 8 * PACKETS_PER_S;
        let rate = Rate::from_bits_per_s(bits).expect("it is not 0");
        let mut config = feed.source_config(rate).fixed(T_ACK, INTERVALS, window);
        config.tree.max_children = max_children;
        config.repair = repair;
        let timing = config.timing;
        let file = [(START, BlockCount { count: self.packets, symbols: 1 })];
        let host = tmtp::Source::host(&feed, config, file);
        simulation.set_app(mbone.sender, host, Instant::EPOCH).expect("the sender is a free host");
        let mut managed = None;
        let mut members_at = Instant::EPOCH + MEMBERS_FROM;
        for receiver in &mbone.receivers {
            let mut config = feed.receiver_config(receiver.node);
            (config.timing, config.tree.max_children) = (timing, max_children);
            config.repair = repair;
            let at = if managed.replace(receiver.site) == Some(receiver.site) {
                members_at += MEMBER_EVERY;
                members_at
            } else {
                Instant::EPOCH + MANAGER_EVERY * receiver.site as u32
            };
            let host = tmtp::Receiver::default().host(&feed, config);
            simulation.set_app(receiver.node, host, at).expect("receivers are free hosts");
        }
        simulation.run_until(START);
        let (before, managers_before) = tmtp_loads(mbone, simulation);
        let completed = |simulation: &Simulation, node| {
            let host = simulation.app::<tmtp::ReceiverHost>(node).expect("it was put there");
            host.host().completed()
        };
        let repairs = run_to_the_end(simulation, |simulation, now| {
            let source = simulation.app::<tmtp::SourceHost>(mbone.sender);
            let acknowledged = source.expect("it was put there").engine().stats().acknowledged;
            let has_got_it = |receiver: &super::mbone::Receiver| {
                let completed = completed(simulation, receiver.node);
                completed.is_some_and(|at| at + receiver.distance <= now)
            };
            acknowledged == self.packets && mbone.receivers.iter().all(has_got_it)
        });
        let (load, managers) = tmtp_loads(mbone, simulation);
        let managers: Vec<ProcessingLoad> = managers
            .iter()
            .zip(managers_before)
            .map(|(&load, before)| load.since(before))
            .collect();
        let completed = |node| completed(simulation, node);
        outcome(mbone, completed, load.since(before), &managers, &repairs)
    }

    fn basep(&self, mbone: &Mbone, simulation: &mut Simulation, window: Option<u64>) -> Outcome {
        let group = channel(Some(mbone.sender), GROUP);
        let file = (START, u64::from(self.packets), PACKET_LEN);
        let change = |config: &mut umbel_engine::basep::SourceConfig| {
            (config.window, config.timeout) = (window, TIMEOUT);
        };
        let host = basep::Source::host(group, mbone.nodes(), change, file);
        simulation.set_app(mbone.sender, host, Instant::EPOCH).expect("the sender is a free host");
        for node in mbone.nodes() {
            let host = basep::Receiver::host(group);
            simulation.set_app(node, host, Instant::EPOCH).expect("receivers are free hosts");
        }
        let source = |simulation: &Simulation| -> (bool, ProcessingLoad) {
            let host = simulation.app::<basep::SourceHost>(mbone.sender);
            let host = host.expect("it was put there");
            (host.host().finished().is_some(), host.engine().stats().load)
        };
        let repairs = run_to_the_end(simulation, |simulation, _| source(simulation).0);
        let completed = |node| {
            let host = simulation.app::<basep::ReceiverHost>(node).expect("it was put there");
            host.host().completed()
        };
        let (_, load) = source(simulation);
        outcome(mbone, completed, load, &[], &repairs)
    }
}

/// Runs until the sender has nothing left to do.
fn run_to_the_end(
    simulation: &mut Simulation,
    is_over: impl Fn(&Simulation, Instant) -> bool,
) -> Repairs {
    simulation.run_until(START);
    Observer::watch(simulation);
    let mut now = START;
    while !is_over(simulation, now) && now < START + LIMIT {
        now += STEP;
        simulation.run_until(now);
    }
    Observer::finish(simulation)
}

/// Returns the loads of the sender and of each domain manager.
fn tmtp_loads(mbone: &Mbone, simulation: &Simulation) -> (ProcessingLoad, Vec<ProcessingLoad>) {
    let source = simulation.app::<tmtp::SourceHost>(mbone.sender).expect("it was put there");
    let managers = mbone.nodes().filter_map(|node| {
        let host = simulation.app::<tmtp::ReceiverHost>(node).expect("it was put there");
        (host.engine().tree().role == Role::Manager).then(|| host.engine().stats().load)
    });
    (source.engine().stats().load, managers.collect())
}

/// Sums up a run. GOT_IT is never lost: it travels on its own connection and takes the path's
/// delay.
fn outcome(
    mbone: &Mbone,
    completed: impl Fn(NodeId) -> Option<Instant>,
    load: ProcessingLoad,
    managers: &[ProcessingLoad],
    repairs: &Repairs,
) -> Outcome {
    let got_it = mbone.receivers.iter().map(|receiver| {
        let completed = completed(receiver.node)?;
        Some((completed + receiver.distance).since(START).as_secs_f64())
    });
    let delay = got_it.collect::<Option<Vec<f64>>>();
    let last = |times: Vec<f64>| times.into_iter().fold(0.0, f64::max);
    let by_sender = repairs.by(mbone.sender);
    let events: u64 = managers.iter().map(ProcessingLoad::total).sum();
    Outcome {
        delay: delay.map_or(f64::NAN, last),
        load,
        manager_load: events as f64 / managers.len() as f64,
        by_sender: by_sender as u32,
        by_others: (repairs.sent.len() - by_sender) as u32,
        concurrent: repairs.concurrent(CONCURRENT) as u32,
        crossings: repairs.crossings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transfer(protocol: Protocol, packets: u32, loss: u32) -> Transfer {
        Transfer { protocol, receivers: 30, packets, loss }
    }

    #[test]
    fn without_loss_a_burst_takes_a_round_trip_and_a_window_one_for_each_five_packets() {
        for (protocol, round_trips) in [(Protocol::BurstBasep, 1.0), (Protocol::WinBasep, 6.0)] {
            let outcome = transfer(protocol, 30, 0).run(1);
            assert!((outcome.delay - round_trips).abs() < 1e-3, "{outcome:?}");
            assert_eq!(outcome.load.total(), 900);
            assert_eq!((outcome.by_sender, outcome.by_others), (0, 0));
        }
    }

    #[test]
    fn what_is_lost_is_sent_again_by_the_sender_alone() {
        for protocol in [Protocol::BurstBasep, Protocol::WinBasep] {
            let outcome = transfer(protocol, 30, 300).run(1);
            assert!(outcome.delay > 2.0, "{outcome:?}");
            assert!(outcome.by_sender > 0 && outcome.by_others == 0 && outcome.concurrent == 0);
            assert_eq!(outcome.load.retransmissions, u64::from(outcome.by_sender));
            assert!(outcome.crossings > u64::from(outcome.by_sender) * 30);
        }
    }

    #[test]
    fn the_tree_of_tmtp_is_as_deep_as_the_tunnels_and_its_repairs_are_local() {
        let outcome = transfer(Protocol::IMPROVED, 30, 0).run(1);
        // 30 packets at 10 a second, and the way to the farthest receiver and back.
        assert!((3.9..4.1).contains(&outcome.delay), "{outcome:?}");
        assert_eq!((outcome.load.nacks, outcome.load.retransmissions), (0, 0));
        assert!(outcome.load.acks < 30 && outcome.manager_load < 30.0, "{outcome:?}");
        let lossy: Vec<Outcome> =
            (1..=10).map(|seed| transfer(Protocol::IMPROVED, 30, 300).run(seed)).collect();
        let sum = |value: fn(&Outcome) -> u32| lossy.iter().map(value).sum::<u32>();
        assert!(lossy.iter().all(|outcome| outcome.delay < 10.0), "{lossy:?}");
        assert!(sum(|outcome| outcome.by_others) > sum(|outcome| outcome.by_sender));
        let basep = transfer(Protocol::BurstBasep, 30, 300).run(1);
        let crossings = lossy.iter().map(|outcome| outcome.crossings).sum::<u64>() / 10;
        assert!(crossings < basep.crossings, "{crossings} {}", basep.crossings);
    }

    #[test]
    fn by_the_papers_rules_the_loss_of_the_last_packets_is_found_after_t_retrans() {
        let mean = |protocol| {
            let delays: Vec<f64> =
                (1..=20).map(|seed| transfer(protocol, 3, 300).run(seed).delay).collect();
            // No node waits until its parent evicts it.
            assert!(delays.iter().all(|delay| *delay < 30.0), "{delays:?}");
            delays.iter().sum::<f64>() / 20.0
        };
        let (paper, improved) = (mean(Protocol::TMTP), mean(Protocol::IMPROVED));
        assert!(paper > improved + 0.5, "{paper} {improved}");
        let without_loss = |protocol| transfer(protocol, 30, 0).run(1);
        let [paper, improved] = [Protocol::TMTP, Protocol::IMPROVED].map(without_loss);
        assert!((paper.delay - improved.delay).abs() < 0.2, "{paper:?} {improved:?}");
    }

    #[test]
    fn a_run_is_a_function_of_transfer_and_seed() {
        let transfer = transfer(Protocol::BurstBasep, 30, 200);
        let [first, again, other] = [1, 1, 2].map(|seed| format!("{:?}", transfer.run(seed)));
        assert_eq!(first, again);
        assert_ne!(first, other);
    }
}
