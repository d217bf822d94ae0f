//! One simulation: a topology, what its links and its stream are like, and what its receivers went
//! through.

use std::time::Duration;

use umbel_engine::rlm::{ControllerKind, LossConfig, RlmConfig};
use umbel_engine::units::Rate;
use umbel_sim::random::{Purpose, stream, uniform};
use umbel_sim::rlm::{ReceiverHost, Record, SAMPLE, Stream, Traffic};
use umbel_sim::{Instant, LinkSpec, Loss, Network, NodeId, Queue, RedConfig, Simulation};

use super::tcp::{Connection, Tcp};
use crate::pool::Experiment;
use crate::record::record;

/// Topology: the receivers and the links before them [RLM Fig. 7].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Topology {
    /// (1) and (2): receivers behind one bottleneck.
    Shared {
        /// Number of receivers.
        receivers: u32,
    },
    /// (3): half of the receivers behind one bottleneck, the others behind a second one of half the
    /// rate, which hangs below the first.
    Classes {
        /// Number of receivers of both halves together.
        receivers: u32,
    },
    /// (4): sessions of a source and a receiver each, over one link whose rate and queue grow with
    /// their number.
    Sessions {
        /// Number of sessions.
        pairs: u32,
    },
    /// A session of a source and a receiver, and TCP connections, over one link. All have the same
    /// round trip.
    Beside {
        /// Number of connections, each of which always has something to send.
        connections: u32,
        /// Their congestion control.
        tcp: Tcp,
    },
}

/// Rule by which the bottleneck drops packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dropping {
    /// The newest, when the queue is full.
    Tail,
    /// Random early detection.
    Red,
    /// Higher layers first.
    Preference,
}

/// Rule by which receivers choose their level.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// The paper's.
    Rlm,
    /// The one that looks at delays.
    Delay,
}

impl Rule {
    /// Both.
    pub const ALL: [Rule; 2] = [Rule::Rlm, Rule::Delay];

    /// Returns its name, as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Rule::Rlm => "rlm",
            Rule::Delay => "delay",
        }
    }

    fn kind(self) -> ControllerKind {
        match self {
            Rule::Rlm => ControllerKind::Rlm,
            Rule::Delay => ControllerKind::Delay,
        }
    }
}

/// A scenario. Its runs differ in the times of packets, in the starts of receivers and in their
/// draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scenario {
    /// Receivers and the links before them.
    pub topology: Topology,
    /// Delay of each link in microseconds.
    pub latency_us: u64,
    /// Rule of the bottleneck.
    pub dropping: Dropping,
    /// Time in milliseconds that a leave takes for each hop. `None`: the delay of the link.
    pub leave_ms: Option<u64>,
    /// Burstiness of the source: its greatest rate over its mean, in tenths. `None`: constant
    /// rates.
    pub peak_tenths: Option<u32>,
    /// Packets that the bottleneck loses by chance, in thousandths.
    pub loss_permille: u32,
    /// Rule of the receivers.
    pub rule: Rule,
}

/// Outcome of a run for its receivers.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Greatest share of lost packets in any window of [`WINDOWS`], the maximum of all receivers.
    pub worst: [f64; 3],
    /// Share of lost packets, the mean of all receivers.
    pub loss: f64,
    /// Time in seconds in which each receiver reached and kept its best level; infinite if it did
    /// not.
    pub convergence: Vec<f64>,
    /// Levels of the first receiver: seconds after its start, and the new level.
    pub levels: Vec<(f64, u8)>,
    /// Experiments of the first receiver: start in seconds, duration, whether the level stayed.
    pub experiments: Vec<(f64, f64, bool)>,
    /// Rate in bits per second that each receiver got in the last four minutes; of a crowd, in the
    /// last two.
    pub rates: Vec<f64>,
    /// Rate in bits per second of each TCP connection in the same time.
    pub others: Vec<f64>,
    /// Share of the bottleneck that the sum of all these rates is.
    pub utilisation: f64,
    /// Level of the first receiver, the mean over the same time.
    pub level: f64,
}

record!(Outcome {
    worst,
    loss,
    convergence,
    levels,
    experiments,
    rates,
    others,
    utilisation,
    level,
});

/// Windows over which loss is measured [RLM §4.3].
pub const WINDOWS: [Duration; 3] =
    [Duration::from_secs(1), Duration::from_secs(10), Duration::from_secs(100)];
/// Duration of a run [RLM §4.3], and its part, at the end, in which rates are measured.
const LENGTH: (Duration, Duration) = (Duration::from_mins(10), Duration::from_mins(4));
/// The same for as many receivers as [`CROWD`] or more. Chosen: it takes half the time.
const LENGTH_OF_CROWD: (Duration, Duration) = (Duration::from_mins(5), Duration::from_mins(2));
/// Receivers whose runs are shorter than those of fewer.
pub(super) const CROWD: u32 = 10_000;
/// Times between which receivers start [RLM §4].
const STARTS_S: (f64, f64) = (30.0, 120.0);
/// Rate of a link [RLM §4].
const RATE: u64 = 1_500_000;
/// Packets in a queue [RLM §4].
const QUEUE: u32 = 20;
/// Length of a packet in bytes, and the delay of links [RLM §4].
pub(super) const PACKET: f64 = 1000.0;
const LATENCY_US: u64 = 10_000;

/// Values that the paper does not give. The defaults are those of the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Choices {
    /// Share of lost packets above which a layer is dropped, in percent: T [RLM §3.4].
    pub loss_percent: u32,
    /// Packets that must be expected before loss is judged.
    pub loss_packets: u32,
    /// Detection-time that is assumed at first, and its deviation, in milliseconds.
    pub detection_ms: (u64, u64),
    /// Experiments in a row that a receiver forgoes since others experiment.
    pub suppressions: u32,
    /// Later packets after which one that is missing is lost, and time in milliseconds.
    pub reorder: (u32, u64),
    /// Time in seconds for which a receiver may be below its best level and still keep it.
    pub lapse_s: u64,
    /// Weight of the average queue of random early detection, in thousandths.
    pub red_permille: u32,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            loss_percent: 10,
            loss_packets: 20,
            detection_ms: (2_000, 500),
            suppressions: 8,
            reorder: (3, 100),
            lapse_s: 10,
            red_permille: 100,
        }
    }
}

impl Choices {
    fn rlm(&self) -> RlmConfig {
        let (time, deviation) = self.detection_ms;
        RlmConfig {
            loss_threshold: f64::from(self.loss_percent) / 100.0,
            loss_packets: self.loss_packets,
            detection_time: Duration::from_millis(time),
            detection_deviation: Duration::from_millis(deviation),
            suppressions: self.suppressions,
            ..RlmConfig::default()
        }
    }

    fn loss(&self) -> LossConfig {
        let (reorder_packets, ms) = self.reorder;
        let reorder_time = Duration::from_millis(ms);
        LossConfig { reorder_packets, reorder_time, ..LossConfig::default() }
    }
}

impl Scenario {
    /// Creates the scenario of a topology as the paper has it.
    pub const fn new(topology: Topology) -> Scenario {
        Scenario {
            topology,
            latency_us: LATENCY_US,
            dropping: Dropping::Tail,
            leave_ms: None,
            peak_tenths: None,
            loss_permille: 0,
            rule: Rule::Rlm,
        }
    }

    /// Returns the number of receivers.
    pub fn receivers(&self) -> u32 {
        match self.topology {
            Topology::Shared { receivers } | Topology::Classes { receivers } => receivers,
            Topology::Sessions { pairs } => pairs,
            Topology::Beside { .. } => 1,
        }
    }

    fn delay(&self) -> Duration {
        Duration::from_micros(self.latency_us)
    }

    /// Returns the duration of a run, and of the part in which rates are measured.
    fn length(&self) -> (Duration, Duration) {
        if self.receivers() < CROWD { LENGTH } else { LENGTH_OF_CROWD }
    }

    /// Returns a link of this multiple of the usual rate, and its queue.
    fn narrow(&self, choices: &Choices, times: f64, queue: u32) -> LinkSpec {
        let rate = Rate::from_bits_per_s((RATE as f64 * times) as u64).expect("above 0");
        let queue = match self.dropping {
            Dropping::Tail => Queue::DropTailPackets(queue),
            Dropping::Preference => Queue::Preference { limit: queue, classes: 6 },
            Dropping::Red => Queue::Red(RedConfig {
                weight: f64::from(choices.red_permille) / 1000.0,
                limit: queue,
                ..RedConfig::new(f64::from(queue) / 4.0, f64::from(queue) * 0.75)
            }),
        };
        let loss = match self.loss_permille {
            0 => Loss::None,
            permille => Loss::Bernoulli(f64::from(permille) / 1000.0),
        };
        LinkSpec::default().rate(rate).delay(self.delay()).queue(queue).loss(loss)
    }

    fn wide(&self) -> LinkSpec {
        LinkSpec::default().delay(self.delay())
    }

    fn build(&self, choices: &Choices) -> World {
        let mut network = Network::new();
        let link = |network: &mut Network, a, b, spec: LinkSpec| {
            network.link(a, b, spec.clone(), spec).expect("the ends and the values are valid");
        };
        let rate = RATE as f64;
        let (mut places, mut connections) = (Vec::new(), Vec::new());
        let sources = match self.topology {
            Topology::Shared { receivers } => {
                let (source, router) = (network.host("source"), network.router("router"));
                link(&mut network, source, router, self.narrow(choices, 1.0, QUEUE));
                for n in 0..receivers {
                    let node = network.host(format!("r{n}"));
                    // A separate link would add to the latency of a single receiver.
                    let spec = if receivers == 1 { LinkSpec::default() } else { self.wide() };
                    link(&mut network, router, node, spec);
                    places.push(Place { node, source, rate });
                }
                vec![source]
            }
            Topology::Classes { receivers } => {
                let source = network.host("source");
                let routers = [network.router("fast"), network.router("slow")];
                link(&mut network, source, routers[0], self.narrow(choices, 1.0, QUEUE));
                link(&mut network, routers[0], routers[1], self.narrow(choices, 0.5, QUEUE));
                for n in 0..receivers {
                    let node = network.host(format!("r{n}"));
                    let slow = (n % 2) as usize;
                    link(&mut network, routers[slow], node, self.wide());
                    let rate = if slow == 1 { rate / 2.0 } else { rate };
                    places.push(Place { node, source, rate });
                }
                vec![source]
            }
            Topology::Sessions { pairs } => {
                let (left, right) = (network.router("left"), network.router("right"));
                let times = f64::from(pairs);
                // Twice the product of bandwidth and delay, from a source to its receiver.
                let product = rate * times / 8.0 * self.delay().as_secs_f64() * 3.0;
                let queue = (2.0 * product / PACKET).ceil() as u32;
                link(&mut network, left, right, self.narrow(choices, times, queue.max(2)));
                for n in 0..pairs {
                    let (source, node) = self.add_pair(&mut network, [left, right], n);
                    places.push(Place { node, source, rate });
                }
                places.iter().map(|place| place.source).collect()
            }
            Topology::Beside { connections: count, .. } => {
                let (left, right) = (network.router("left"), network.router("right"));
                link(&mut network, left, right, self.narrow(choices, 1.0, QUEUE));
                let (source, node) = self.add_pair(&mut network, [left, right], 0);
                // The best level is the one that a fair share carries.
                places.push(Place { node, source, rate: rate / f64::from(count + 1) });
                connections.extend((1..=count).map(|n| {
                    let (source, receiver) = self.add_pair(&mut network, [left, right], n);
                    Connection { source, receiver }
                }));
                vec![source]
            }
        };
        World { network, sources, places, connections }
    }

    /// Adds a source and a receiver at the ends of a link.
    fn add_pair(&self, network: &mut Network, ends: [NodeId; 2], n: u32) -> (NodeId, NodeId) {
        let hosts = [network.host(format!("s{n}")), network.host(format!("r{n}"))];
        for (end, host) in ends.into_iter().zip(hosts) {
            network.link(end, host, self.wide(), self.wide()).expect("the ends are valid");
        }
        (hosts[0], hosts[1])
    }

    fn stream(&self, source: NodeId) -> Stream {
        let traffic = self
            .peak_tenths
            .map_or(Traffic::Cbr, |tenths| Traffic::Bursts { peak: f64::from(tenths) / 10.0 });
        Stream { traffic, ..Stream::new(source) }
    }
}

/// A network, and what runs where.
struct World {
    network: Network,
    sources: Vec<NodeId>,
    places: Vec<Place>,
    connections: Vec<Connection>,
}

/// Place of a receiver.
struct Place {
    node: NodeId,
    source: NodeId,
    /// Rate of its path in bits per second.
    rate: f64,
}

impl Experiment for Scenario {
    type Outcome = Outcome;

    fn run(&self, seed: u64) -> Outcome {
        self.run_with(&Choices::default(), seed)
    }

    fn work(&self) -> u64 {
        let connections = match self.topology {
            Topology::Beside { connections, .. } => connections,
            _ => 0,
        };
        u64::from(self.receivers() + connections) + 1
    }
}

impl Scenario {
    /// Runs it with other choices than those of the report.
    pub(super) fn run_with(&self, choices: &Choices, seed: u64) -> Outcome {
        let World { mut network, sources, places, connections } = self.build(choices);
        if let Some(ms) = self.leave_ms {
            network.set_prune_latency(Duration::from_millis(ms));
        }
        let mut simulation = Simulation::new(network, seed);
        for &source in &sources {
            let stream = self.stream(source);
            if let Some((_, group)) = stream.control().and_then(|c| umbel_sim::channel_parts(&c)) {
                let group = simulation.group(None, group);
                simulation.flood(group);
            }
            simulation
                .set_app(source, stream.source_host(seed), Instant::EPOCH)
                .expect("the source is a free host");
        }
        let mut starts = stream(seed, Purpose::Workload, u64::from(u32::MAX));
        for place in &places {
            let stream = self.stream(place.source);
            let mut config = stream.receiver_config(place.node);
            config.controller = self.rule.kind();
            (config.rlm, config.loss) = (choices.rlm(), choices.loss());
            let (from, to) = STARTS_S;
            let start = Duration::from_secs_f64(from + (to - from) * uniform(&mut starts));
            simulation
                .set_app(place.node, stream.receiver_host(config, seed), Instant::EPOCH + start)
                .expect("the receiver is a free host");
        }
        if let Topology::Beside { tcp, .. } = self.topology {
            for (n, connection) in (1..).zip(&connections) {
                connection.begin(&mut simulation, tcp, n, seed);
            }
        }
        let (length, measured) = self.length();
        let end = Instant::EPOCH + length;
        let received = |simulation: &Simulation| -> Vec<f64> {
            connections.iter().map(|connection| connection.received(simulation)).collect()
        };
        simulation.run_until(Instant::EPOCH + length.saturating_sub(measured));
        let before = received(&simulation);
        simulation.run_until(end);
        let received = received(&simulation).into_iter().zip(before);
        let others = received.map(|(now, then)| (now - then) * 8.0 / measured.as_secs_f64());
        let records: Vec<(&Place, &Record)> = places
            .iter()
            .map(|place| {
                let host: &ReceiverHost = simulation.app(place.node).expect("it was put there");
                (place, host.host())
            })
            .collect();
        let lapse = Duration::from_secs(choices.lapse_s);
        self.outcome(&records, others.collect(), (end, lapse))
    }

    fn outcome(
        &self,
        records: &[(&Place, &Record)],
        others: Vec<f64>,
        (end, lapse): (Instant, Duration),
    ) -> Outcome {
        let convergence = records.iter().map(|(place, record)| {
            let best = self.stream(place.source).level_within(place.rate);
            let time = record.convergence(best, end, lapse);
            time.map_or(f64::INFINITY, |time| time.as_secs_f64())
        });
        let worst = WINDOWS.map(|window| {
            records.iter().map(|(_, record)| record.worst_loss(window)).fold(0.0, f64::max)
        });
        let (_, measured) = self.length();
        let rates: Vec<f64> = records.iter().map(|(_, record)| rate(record, measured)).collect();
        let bottleneck = match self.topology {
            Topology::Sessions { pairs } => RATE as f64 * f64::from(pairs),
            // All receivers get the same packets.
            Topology::Shared { receivers } | Topology::Classes { receivers } => {
                RATE as f64 * f64::from(receivers)
            }
            Topology::Beside { .. } => RATE as f64,
        };
        let losses = records.iter().map(|(_, record)| record.loss());
        let (_, first) = records[0];
        let since = |at: Instant| at.since(first.start().unwrap_or(at)).as_secs_f64();
        Outcome {
            worst,
            loss: losses.sum::<f64>() / records.len() as f64,
            convergence: convergence.collect(),
            levels: first.levels().iter().map(|&(at, level)| (since(at), level)).collect(),
            experiments: first
                .experiments()
                .iter()
                .filter_map(|experiment| {
                    let (ended, stays) = experiment.end?;
                    let duration = ended.since(experiment.start).as_secs_f64();
                    Some((since(experiment.start), duration, stays))
                })
                .collect(),
            utilisation: rates.iter().chain(&others).sum::<f64>() / bottleneck,
            level: first.mean_level(end, measured),
            rates,
            others,
        }
    }
}

/// Returns the rate that a receiver got in this time at the end.
fn rate(record: &Record, measured: Duration) -> f64 {
    let count = (measured.as_nanos() / SAMPLE.as_nanos()) as usize;
    let samples = record.samples();
    let last = &samples[samples.len().saturating_sub(count)..];
    let packets: f64 = last.iter().map(|sample| f64::from(sample.packets)).sum();
    packets * PACKET * 8.0 / measured.as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_a_function_of_its_seed() {
        let scenario = Scenario::new(Topology::Shared { receivers: 1 });
        let (one, again, other) = (scenario.run(1), scenario.run(1), scenario.run(2));
        assert!(one == again && one != other);
        assert!(one.convergence[0] < 120.0 && one.loss > 0.0 && one.loss < 0.05, "{one:?}");
        assert!(one.worst[0] >= one.worst[1] && one.worst[1] >= one.worst[2]);
    }

    #[test]
    fn the_choices_of_the_report_are_the_defaults_of_the_engine() {
        let choices = Choices::default();
        assert_eq!(choices.rlm(), RlmConfig::default());
        assert_eq!(choices.loss(), LossConfig::default());
    }

    #[test]
    fn halves_have_a_best_level_of_their_own() {
        let topology = Topology::Classes { receivers: 4 };
        let World { network, sources, places, .. } =
            Scenario::new(topology).build(&Choices::default());
        assert_eq!((network.node_count(), sources.len()), (7, 1));
        let stream = Stream::new(sources[0]);
        let best: Vec<u8> = places.iter().map(|place| stream.level_within(place.rate)).collect();
        assert_eq!(best, [5, 4, 5, 4]);
    }
}
