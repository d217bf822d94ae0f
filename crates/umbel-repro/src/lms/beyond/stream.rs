//! A stream of packets through a network with random losses, which the paper did not simulate.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use umbel_sim::trace::{Hop, MembershipRecord, NoteRecord, PacketRecord, Tracer};
use umbel_sim::{Instant, Kind, Kinds, LinkSpec, Loss, NodeId, NodeKind, Simulation};
use umbel_wire::{Parsed, lms, pgm, srm};

use crate::lms::scenario::{Delays, Graph, Scenario, Setting};
use crate::lms::schemes::{self, Scheme};
use crate::pool::Experiment;
use crate::record::record;

/// Packets that may be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Damage {
    /// Original packets only, independently on each link.
    Originals,
    /// Original packets in bursts of five on average.
    Bursts,
    /// All packets in both directions.
    Everything,
    /// Original packets on the links of a tenth of the receivers.
    FewReceivers,
}

/// A stream repaired by a scheme, on a random graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stream {
    /// The scheme that repairs.
    pub scheme: Scheme,
    /// Number of receivers.
    pub receivers: u32,
    /// Packets that may be lost.
    pub damage: Damage,
    /// Loss of each lossy link, in hundredths of a percent.
    pub loss: u32,
    /// Time in milliseconds after which receivers leave, and again after which they come back; 0
    /// for never.
    pub change_ms: u32,
}

/// Results of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Mean normalised recovery latency.
    pub latency: f64,
    /// Repairs of a packet that arrived at a receiver that had it, per packet and receiver.
    pub exposure: f64,
    /// Number of packets that receivers found missing, over all receivers.
    pub missed: u64,
    /// Number of these that never arrived while the receiver stayed.
    pub unrepaired: u64,
    /// Number of repairs that hosts sent, per packet.
    pub repairs: f64,
}

record!(Outcome { latency, exposure, missed, unrepaired, repairs });

/// Number of packets in the stream.
const PACKETS: u32 = 400;
const INTERVAL: Duration = Duration::from_millis(50);
const START: Instant = Instant::from_nanos(30_000_000_000);
/// Time after the end for packets that are still missing.
const AFTER: Duration = Duration::from_mins(2);

impl Experiment for Stream {
    type Outcome = Outcome;

    fn run(&self, seed: u64) -> Outcome {
        let delays = Delays::Plane;
        let setting = Setting {
            graph: Graph::Random { receivers: self.receivers },
            delays,
            number: seed as u32,
            access_percent: delays.usual_access_percent(),
        };
        let scenario = setting.place(seed);
        let mut simulation = Simulation::new(self.network(&scenario), seed);
        let sends = (0..PACKETS).map(|n| START + INTERVAL * n);
        schemes::install(self.scheme, &mut simulation, &scenario, sends, seed);
        if self.change_ms > 0 {
            self.come_and_go(&mut simulation, &scenario);
        }
        simulation.set_tracer(Box::new(Listener::new(&scenario)));
        simulation.run_until(START + INTERVAL * PACKETS + AFTER);
        let listener: Box<dyn Any> = simulation.take_tracer().expect("it was set");
        listener.downcast::<Listener>().expect("it is the one that was set").outcome()
    }

    fn work(&self) -> u64 {
        u64::from(self.receivers) * (self.scheme.work() + 10) * 10
    }
}

impl Stream {
    fn network(&self, scenario: &Scenario) -> umbel_sim::Network {
        let share = f64::from(self.loss) / 10_000.0;
        let originals = Kinds::NONE.with(Kind::Data);
        let tenth = scenario.receivers.len().div_ceil(10);
        let few = &scenario.receivers[..tenth];
        let bare = scenario.network(|_, _, spec| spec);
        scenario.network(|link, _, spec| {
            let (loss, loss_of) = match self.damage {
                Damage::Originals => (Loss::Bernoulli(share), originals),
                Damage::Bursts if share > 0.0 => (Loss::bursts(share, 5.0), originals),
                Damage::Bursts => (Loss::None, originals),
                Damage::Everything => (Loss::Bernoulli(share), Kinds::ALL),
                Damage::FewReceivers => {
                    let (a, b) = bare.ends(link);
                    let is_one = few.contains(&a) || few.contains(&b);
                    let loss = if is_one { Loss::Bernoulli(share) } else { Loss::None };
                    (loss, originals)
                }
            };
            LinkSpec { loss, loss_of, ..spec }
        })
    }

    /// Lets each receiver leave in its turn, and come back after the same time.
    fn come_and_go(&self, simulation: &mut Simulation, scenario: &Scenario) {
        let every = Duration::from_millis(u64::from(self.change_ms));
        let count = scenario.receivers.len() as u32;
        let stream = INTERVAL * PACKETS;
        for (n, &receiver) in (0_u32..).zip(&scenario.receivers) {
            let Some(host) = simulation.app_mut::<umbel_sim::lms::ReceiverHost>(receiver) else {
                continue;
            };
            let first = START + every * n / count;
            let times = (0..).map(|k| first + every * k).take_while(|at| *at < START + stream);
            // All receivers are there in the end.
            let mut times: Vec<Instant> = times.collect();
            times.truncate(times.len() / 2 * 2);
            host.host_mut().set_changes(times);
        }
    }
}

/// Returns the number of a data unit, original or repair, of any scheme.
fn unit(payload: &[u8]) -> Option<u64> {
    if pgm::MessageType::of(payload).is_some() {
        return match pgm::Message::parse(payload).ok()? {
            Parsed::Message {
                message: pgm::Message::Odata { sequence, .. } | pgm::Message::Rdata { sequence, .. },
                ..
            } => Some(sequence),
            _ => None,
        };
    }
    if let Ok(Parsed::Message { message, .. }) = lms::Message::parse(payload) {
        return match message {
            lms::Message::Data { sequence, .. } | lms::Message::Repair { sequence, .. } => {
                Some(sequence)
            }
            _ => None,
        };
    }
    match srm::Message::parse(payload).ok()? {
        Parsed::Message {
            message: srm::Message::Data { sequence, .. } | srm::Message::Repair { sequence, .. },
            ..
        } => Some(sequence),
        _ => None,
    }
}

/// State of a receiver.
#[derive(Clone, Debug, Default)]
struct Ear {
    /// The next packet that it expects.
    next: Option<u64>,
    /// Packets found missing, with the times of their detection.
    missing: BTreeMap<u64, Instant>,
}

/// The tracer that observes a stream.
#[derive(Debug)]
struct Listener {
    receivers: BTreeMap<NodeId, usize>,
    is_host: Vec<bool>,
    rtts: Vec<f64>,
    ears: Vec<Ear>,
    latency: f64,
    recovered: u64,
    missed: u64,
    duplicates: u64,
    repairs: u64,
}

impl Listener {
    fn new(scenario: &Scenario) -> Listener {
        let network = scenario.network(|_, _, spec| spec);
        let positions = scenario.receivers.iter().enumerate();
        Listener {
            receivers: positions.map(|(position, node)| (*node, position)).collect(),
            is_host: network.nodes().map(|(_, kind)| kind == NodeKind::Host).collect(),
            rtts: scenario.distances.iter().map(|one_way| one_way.as_secs_f64() * 2.0).collect(),
            ears: vec![Ear::default(); scenario.receivers.len()],
            latency: 0.0,
            recovered: 0,
            missed: 0,
            duplicates: 0,
            repairs: 0,
        }
    }

    fn on_unit(&mut self, receiver: usize, now: Instant, unit: u64, kind: Kind) {
        let ear = &mut self.ears[receiver];
        let next = ear.next.unwrap_or(unit);
        if unit < next {
            match ear.missing.remove(&unit) {
                Some(detected) => {
                    self.latency += now.since(detected).as_secs_f64() / self.rtts[receiver];
                    self.recovered += 1;
                }
                None => self.duplicates += u64::from(kind == Kind::Repair),
            }
            return;
        }
        ear.missing.extend((next..unit).map(|unit| (unit, now)));
        self.missed += unit - next;
        ear.next = Some(unit + 1);
    }

    fn outcome(&self) -> Outcome {
        let unrepaired = self.ears.iter().map(|ear| ear.missing.len() as u64).sum();
        let packets = f64::from(PACKETS);
        Outcome {
            latency: self.latency / self.recovered.max(1) as f64,
            exposure: self.duplicates as f64 / packets / self.ears.len() as f64,
            missed: self.missed,
            unrepaired,
            repairs: self.repairs as f64 / packets,
        }
    }
}

impl Tracer for Listener {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let kind = record.packet.kind;
        if !matches!(kind, Kind::Data | Kind::Repair) {
            return;
        }
        match record.what {
            Hop::Sent if kind == Kind::Repair && self.is_host[record.from.0 as usize] => {
                self.repairs += 1;
            }
            Hop::Delivered => {
                let Some(&receiver) = self.receivers.get(&record.to) else { return };
                if let Some(unit) = unit(&record.packet.payload) {
                    self.on_unit(receiver, record.at, unit, kind);
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}

    fn membership(&mut self, record: &MembershipRecord) {
        // A receiver that comes back does not miss the packets sent in between.
        if let Some(&receiver) = self.receivers.get(&record.node) {
            self.ears[receiver] = Ear::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(scheme: Scheme, damage: Damage, loss: u32) -> Stream {
        Stream { scheme, receivers: 8, damage, loss, change_ms: 0 }
    }

    #[test]
    fn without_loss_nothing_is_repaired() {
        for scheme in [Scheme::Lms, Scheme::Srm, Scheme::Pgm] {
            let outcome = stream(scheme, Damage::Everything, 0).run(1);
            assert_eq!(outcome, Outcome::default(), "{scheme:?}");
        }
    }

    #[test]
    fn everything_is_repaired_whatever_is_lost() {
        for scheme in [Scheme::Lms, Scheme::LmsDynamic, Scheme::Srm, Scheme::Pgm] {
            for damage in [Damage::Originals, Damage::Bursts, Damage::Everything] {
                let outcome = stream(scheme, damage, 200).run(1);
                assert!(outcome.missed > 50, "{scheme:?} {damage:?}: {outcome:?}");
                assert_eq!(outcome.unrepaired, 0, "{scheme:?} {damage:?}: {outcome:?}");
            }
        }
    }
}
