//! Results of a stream.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::units::{ByteCount, counted};

use super::Stream;
use super::observer::{Ear, Loss, Observation, Observed, Read, Traffic};
use crate::Simulation;
use crate::network::{LinkId, Network, NodeId};
use crate::scenario::Scenario;
use crate::scenario::protocol::Programs;
use crate::scenario::report::{Clients, Column, Measure, Results, Table};
use crate::trace::Tracer;

/// A stream that runs, and what was observed of it.
#[derive(Debug)]
pub(in crate::scenario) struct Running {
    stream: Stream,
    observation: Observation,
}

impl Running {
    /// Observes a stream, whose datagrams `read` tells apart.
    pub(in crate::scenario) fn new(
        stream: &Stream,
        scenario: &Scenario,
        network: &Network,
        read: Read,
    ) -> Running {
        let distances = stream.distances(scenario);
        let observation = Observation::new(network, stream, &distances, read);
        Running { stream: stream.clone(), observation }
    }
}

impl Programs for Running {
    fn progress(&self, _simulation: &Simulation) -> (usize, usize) {
        let observed = self.observation.get();
        let all = self.stream.sends.len() as u64;
        let done = observed.ears.iter().filter(|ear| ear.next >= all && ear.missing.is_empty());
        (done.count(), observed.ears.len())
    }

    fn results(&self, simulation: &Simulation) -> Results {
        let observed = self.observation.get();
        let sums = Sums::of(&observed, self.stream.source, simulation.network());
        let (clients, measures) = (Sums::clients(&observed), sums.measures());
        Results {
            groups: vec![clients.clone()],
            text: sums.text(&clients),
            clients,
            delay: "recovery latency",
            measures,
            tables: vec![
                receivers(&observed, &self.stream, simulation.network()),
                losses(&observed, simulation.network()),
                recoveries(&observed, &self.stream, simulation.network()),
                links(&observed, simulation.network()),
            ],
            details: BTreeMap::new(),
        }
    }

    fn observer(&mut self) -> Option<Box<dyn Tracer>> {
        Some(Box::new(self.observation.clone()))
    }
}

impl Ear {
    /// Returns the number of packets that the receiver lacks, of all that were sent.
    fn unrepaired(&self, sent: u64) -> u64 {
        self.missing.len() as u64 + sent.saturating_sub(self.next)
    }
}

fn share(part: f64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part / whole as f64)
}

/// Sums over all losses and receivers.
#[derive(Debug, Default)]
struct Sums {
    packets: u64,
    receivers: u64,
    /// Packets that a receiver missed.
    losses: u64,
    missed: u64,
    repaired: u64,
    unrepaired: u64,
    latency: f64,
    latency_s: f64,
    least: Option<f64>,
    greatest: Option<f64>,
    p99: Option<f64>,
    duplicates: u64,
    requests: u64,
    repairs: u64,
    by_source: u64,
    /// Bytes on all links, by class.
    bytes: [u64; 4],
    /// Bytes of repairs on the links of the source.
    source_repair_bytes: u64,
}

impl Sums {
    fn of(observed: &Observed, source: NodeId, network: &Network) -> Sums {
        let mut sums = Sums {
            packets: observed.sent,
            receivers: observed.ears.len() as u64,
            ..Sums::default()
        };
        for ear in &observed.ears {
            // A unit that nobody found missing by the end is missing as well.
            let undetected = observed.sent.saturating_sub(ear.next);
            sums.missed += ear.missed + undetected;
            sums.repaired += ear.repaired;
            sums.unrepaired += ear.unrepaired(observed.sent);
            sums.latency += ear.latency[0];
            sums.latency_s += ear.latency[2];
            sums.duplicates += ear.duplicates;
        }
        for loss in observed.losses.values() {
            sums.losses += u64::from(loss.missed > 0);
            sums.requests += u64::from(loss.requests);
            sums.repairs += u64::from(loss.repairs);
            sums.by_source += u64::from(loss.by_source);
        }
        let rtt = |receiver: u32| observed.ears[receiver as usize].rtt;
        let recoveries = observed.recoveries.iter();
        let ratios = recoveries.map(|one| over(one.latency, rtt(one.receiver)));
        let mut ratios: Vec<f64> = ratios.collect();
        ratios.sort_unstable_by(f64::total_cmp);
        (sums.least, sums.greatest) = (ratios.first().copied(), ratios.last().copied());
        let rank = (ratios.len() as f64 * 0.99).ceil() as usize;
        sums.p99 = rank.checked_sub(1).and_then(|rank| ratios.get(rank)).copied();
        for ((_, a, b), directions) in network.links().zip(&observed.traffic) {
            for Traffic { bytes, .. } in directions {
                for (sum, bytes) in sums.bytes.iter_mut().zip(bytes) {
                    *sum += bytes;
                }
                if a == source || b == source {
                    sums.source_repair_bytes += bytes[1];
                }
            }
        }
        sums
    }

    fn per_loss(&self, count: u64) -> Option<f64> {
        share(count as f64, self.losses)
    }

    /// Returns the average number of duplicates of a receiver for a loss [LMS §IV-A].
    fn exposure(&self) -> Option<f64> {
        share(self.per_loss(self.duplicates)?, self.receivers)
    }

    fn measures(&self) -> Vec<Measure> {
        let count = |name, value: u64| Measure::new(name, value as f64);
        vec![
            Measure::new("latency_rtt", share(self.latency, self.repaired)),
            Measure::new("exposure", self.exposure()),
            Measure::new("requests_per_loss", self.per_loss(self.requests)),
            Measure::new("repairs_per_loss", self.per_loss(self.repairs)),
            count("unrepaired", self.unrepaired),
            Measure::new("latency_min_rtt", self.least),
            Measure::new("latency_p99_rtt", self.p99),
            Measure::new("latency_max_rtt", self.greatest),
            Measure::new("latency_s", share(self.latency_s, self.repaired)),
            Measure::new("source_repairs_per_loss", self.per_loss(self.by_source)),
            count("losses", self.losses),
            count("missed", self.missed),
            Measure::new("loss_share", share(self.missed as f64, self.packets * self.receivers)),
            count("duplicates", self.duplicates),
            count("data_bytes", self.bytes[0]),
            count("repair_bytes", self.bytes[1]),
            count("request_bytes", self.bytes[2]),
            count("control_bytes", self.bytes[3]),
            count("source_repair_bytes", self.source_repair_bytes),
        ]
    }

    /// Returns the receivers and their mean latencies. Those that lack nothing are finished.
    fn clients(observed: &Observed) -> Clients {
        let mean = |ear: &Ear| {
            let mean = share(ear.latency[2], ear.repaired)?;
            Some(Duration::from_secs_f64(mean))
        };
        let latencies: Vec<_> = observed.ears.iter().map(mean).collect();
        let finished = observed.ears.iter().filter(|ear| ear.unrepaired(observed.sent) == 0);
        Clients { finished: finished.count(), ..Clients::new("all", &latencies) }
    }

    fn text(&self, clients: &Clients) -> String {
        let number =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.3}"));
        let mut text = format!(
            "receivers  {} of {} with {}; {} lost somewhere, {} at a receiver\n",
            clients.finished,
            clients.count,
            counted(self.packets, "packet"),
            counted(self.losses, "packet"),
            counted(self.missed, "time")
        );
        let _ = writeln!(
            text,
            "latency    {} RTT on average, {} at least, {} at most, 99 % below {}; {} repaired, {} \
             not",
            number(share(self.latency, self.repaired)),
            number(self.least),
            number(self.greatest),
            number(self.p99),
            self.repaired,
            self.unrepaired
        );
        let _ = writeln!(
            text,
            "for a loss {} requests, {} repairs ({} by the source), exposure {} (duplicates at a \
             receiver)",
            number(self.per_loss(self.requests)),
            number(self.per_loss(self.repairs)),
            number(self.per_loss(self.by_source)),
            self.exposure().map_or("–".to_owned(), |value| format!("{value:.4}"))
        );
        let [data, repairs, requests, control] = self.bytes.map(ByteCount);
        let _ = writeln!(
            text,
            "on links   {data} of data, {repairs} of repairs ({} at the source), {requests} of \
             requests, {control} of control",
            ByteCount(self.source_repair_bytes)
        );
        text
    }
}

/// Returns a latency in round trips.
fn over(latency: Duration, rtt: f64) -> f64 {
    if rtt > 0.0 { latency.as_secs_f64() / rtt } else { 0.0 }
}

fn seconds(at: Instant) -> f64 {
    at.since(Instant::EPOCH).as_secs_f64()
}

fn receivers(observed: &Observed, stream: &Stream, network: &Network) -> Table {
    let ears = || observed.ears.iter();
    let count = |value: fn(&Ear) -> u64| Column::Integers(ears().map(value).collect());
    let number = |value: fn(&Ear) -> Option<f64>| Column::Numbers(ears().map(value).collect());
    let names = stream.receivers.iter().map(|node| network.name(*node).to_owned());
    let unrepaired = ears().map(|ear| ear.unrepaired(observed.sent));
    let missed = ears().map(|ear| ear.missed + observed.sent.saturating_sub(ear.next));
    Table::new(
        "receivers",
        vec![
            ("receiver", Column::Texts(names.collect())),
            ("rtt_s", number(|ear| Some(ear.rtt))),
            ("missed", Column::Integers(missed.collect())),
            ("repaired", count(|ear| ear.repaired)),
            ("unrepaired", Column::Integers(unrepaired.collect())),
            ("latency_rtt", number(|ear| share(ear.latency[0], ear.repaired))),
            ("latency_max_rtt", number(|ear| share(ear.latency[1], ear.repaired.min(1)))),
            ("latency_s", number(|ear| share(ear.latency[2], ear.repaired))),
            ("duplicates", count(|ear| ear.duplicates)),
            ("requests", count(|ear| ear.requests)),
            ("repairs", count(|ear| ear.repairs)),
        ],
    )
}

fn losses(observed: &Observed, network: &Network) -> Table {
    // Packets that nobody missed, and of which nobody asked for one, were lost to nobody.
    let rows: Vec<_> = observed.losses.iter().filter(|(_, loss)| loss.missed > 0).collect();
    let count = |value: fn(&Loss) -> u32| {
        Column::Integers(rows.iter().map(|(_, loss)| u64::from(value(loss))).collect())
    };
    let latency = |value: fn(&Loss) -> f64| {
        let of = |loss: &Loss| (loss.repaired > 0).then(|| value(loss));
        Column::Numbers(rows.iter().map(|(_, loss)| of(loss)).collect())
    };
    let end = |which: fn((NodeId, NodeId)) -> NodeId| {
        let name = |loss: &Loss| {
            loss.link.map(|ends| network.name(which(ends)).to_owned()).unwrap_or_default()
        };
        Column::Texts(rows.iter().map(|(_, loss)| name(loss)).collect())
    };
    let receivers = observed.ears.len() as u64;
    let exposure = rows.iter().map(|(_, loss)| share(f64::from(loss.duplicates), receivers));
    Table::new(
        "losses",
        vec![
            ("packet", Column::Integers(rows.iter().map(|(unit, _)| **unit).collect())),
            ("lost_s", Column::Numbers(rows.iter().map(|(_, l)| l.at.map(seconds)).collect())),
            ("from", end(|ends| ends.0)),
            ("to", end(|ends| ends.1)),
            ("links", count(|loss| loss.links)),
            ("missed", count(|loss| loss.missed)),
            ("unrepaired", count(|loss| loss.missed - loss.repaired)),
            ("latency_rtt", latency(|loss| loss.latency[0] / f64::from(loss.repaired))),
            ("latency_min_rtt", latency(|loss| loss.latency[1])),
            ("latency_max_rtt", latency(|loss| loss.latency[2])),
            ("latency_s", latency(|loss| loss.latency[3] / f64::from(loss.repaired))),
            ("requests", count(|loss| loss.requests)),
            ("repairs", count(|loss| loss.repairs)),
            ("source_repairs", count(|loss| loss.by_source)),
            ("duplicates", count(|loss| loss.duplicates)),
            ("exposure", Column::Numbers(exposure.collect())),
        ],
    )
}

fn recoveries(observed: &Observed, stream: &Stream, network: &Network) -> Table {
    let all = || observed.recoveries.iter();
    let name = |position: u32| network.name(stream.receivers[position as usize]).to_owned();
    let rtt = |position: u32| observed.ears[position as usize].rtt;
    let in_rtt = all().map(|one| Some(over(one.latency, rtt(one.receiver))));
    Table::new(
        "recoveries",
        vec![
            ("packet", Column::Integers(all().map(|one| one.unit).collect())),
            ("receiver", Column::Texts(all().map(|one| name(one.receiver)).collect())),
            ("detected_s", Column::Numbers(all().map(|one| Some(seconds(one.detected))).collect())),
            (
                "latency_s",
                Column::Numbers(all().map(|one| Some(one.latency.as_secs_f64())).collect()),
            ),
            ("latency_rtt", Column::Numbers(in_rtt.collect())),
        ],
    )
}

/// Returns the traffic of each direction of each link.
fn links(observed: &Observed, network: &Network) -> Table {
    let directions: Vec<(NodeId, NodeId, Traffic)> = network
        .links()
        .flat_map(|(LinkId(link), a, b)| {
            let [there, back] = observed.traffic[link as usize];
            [(a, b, there), (b, a, back)]
        })
        .collect();
    let name = |node: NodeId| network.name(node).to_owned();
    let of = |value: fn(&Traffic) -> u64| {
        Column::Integers(directions.iter().map(|(.., traffic)| value(traffic)).collect())
    };
    Table::new(
        "links",
        vec![
            ("from", Column::Texts(directions.iter().map(|(from, ..)| name(*from)).collect())),
            ("to", Column::Texts(directions.iter().map(|(_, to, _)| name(*to)).collect())),
            ("data_packets", of(|traffic| traffic.packets[0])),
            ("data_bytes", of(|traffic| traffic.bytes[0])),
            ("repair_packets", of(|traffic| traffic.packets[1])),
            ("repair_bytes", of(|traffic| traffic.bytes[1])),
            ("request_packets", of(|traffic| traffic.packets[2])),
            ("request_bytes", of(|traffic| traffic.bytes[2])),
            ("control_packets", of(|traffic| traffic.packets[3])),
            ("control_bytes", of(|traffic| traffic.bytes[3])),
        ],
    )
}
