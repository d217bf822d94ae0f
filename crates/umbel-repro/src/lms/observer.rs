//! Observes the packets and measures how each loss was repaired. The observer reads only a packet's
//! kind and knows no scheme, so all schemes are measured alike.

use std::any::Any;
use std::collections::BTreeMap;
use std::time::Duration;

use umbel_sim::trace::{Hop, NoteRecord, PacketRecord, Tracer};
use umbel_sim::{Instant, Kind, NodeId, NodeKind};

use super::scenario::{LinkClass, Scenario};

/// Schedule of packets and losses. Packets come in pairs: the first is lost on one link of the
/// tree, and the second reveals the loss. The pauses between pairs are long enough for the repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timetable {
    /// Time of the first pair.
    pub(super) start: Instant,
    /// Time from pair to pair.
    pub(super) spacing: Duration,
    /// Number of pairs.
    pub(super) losses: usize,
}

/// Time from a packet that is lost to the next one. It is so short that hardly any session message
/// of SRM is sent in between, which would reveal the loss earlier.
const INTERVAL: Duration = Duration::from_millis(1);
/// Number of packets that are sent before the first pair, so that all nodes know the source.
pub(super) const PREFACE: u64 = 2;

impl Timetable {
    /// Returns the times at which the source sends, ascending.
    pub(super) fn sends(&self) -> impl Iterator<Item = Instant> + use<> {
        let Timetable { start, spacing, losses } = *self;
        let preface = (0..PREFACE).rev().map(move |n| {
            let before = Duration::from_secs(n + 1);
            Instant::from_nanos(start.as_nanos().saturating_sub(before.as_nanos() as u64))
        });
        let pairs = (0..losses as u32).flat_map(move |n| {
            let at = start + spacing * n;
            [at, at + INTERVAL]
        });
        preface.chain(pairs)
    }

    /// Returns the end of the time for the last loss.
    pub(super) fn end(&self) -> Instant {
        self.start + self.spacing * self.losses as u32
    }

    /// Returns the number, from 1, of the original packet that a line loses, among the line's
    /// originals.
    pub(super) fn nth(loss: usize) -> u64 {
        PREFACE + 2 * loss as u64 + 1
    }
}

/// Recovery from a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recovery {
    /// Class of the link that lost the packet.
    pub class: LinkClass,
    /// Number of receivers that lost the packet.
    pub missed: u32,
    /// Number of these that never received it.
    pub unrepaired: u32,
    /// Sum, least and greatest of the normalised recovery latencies [LMS Fig. 10]: from the
    /// detection to the repair, in round trips from the receiver to the source.
    pub latency: [f64; 3],
    /// Number of repairs that arrived at receivers that had the packet, over all receivers.
    pub duplicates: u32,
    /// Number of requests that receivers sent.
    pub requests: u32,
    /// Number of repairs that hosts sent.
    pub repairs: u32,
    /// Number of these that the source sent.
    pub by_source: u32,
}

impl Recovery {
    /// Returns the average number of duplicates per receiver [LMS §IV-A].
    pub fn exposure(&self, receivers: usize) -> f64 {
        f64::from(self.duplicates) / receivers as f64
    }
}

/// Packets of the present loss that arrived at a receiver.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    originals: u32,
    detected: Option<Instant>,
    repairs: u32,
    repaired: Option<Instant>,
}

/// The tracer that observes a trial.
#[derive(Debug)]
pub(super) struct Observer {
    timetable: Timetable,
    source: NodeId,
    /// Position of each receiver in the scenario.
    receivers: BTreeMap<NodeId, usize>,
    is_host: Vec<bool>,
    rtts: Vec<f64>,
    classes: Vec<LinkClass>,
    present: Option<usize>,
    heard: Vec<Heard>,
    sent: [u32; 3],
    recoveries: Vec<Recovery>,
}

impl Observer {
    pub(super) fn new(scenario: &Scenario, timetable: Timetable) -> Observer {
        let network = scenario.network(|_, _, spec| spec);
        let positions = scenario.receivers.iter().enumerate();
        Observer {
            timetable,
            source: scenario.source,
            receivers: positions.map(|(position, node)| (*node, position)).collect(),
            is_host: network.nodes().map(|(_, kind)| kind == NodeKind::Host).collect(),
            rtts: scenario.distances.iter().map(|one_way| one_way.as_secs_f64() * 2.0).collect(),
            classes: scenario.tree.iter().map(|link| link.class).collect(),
            present: None,
            heard: vec![Heard::default(); scenario.receivers.len()],
            sent: [0; 3],
            recoveries: Vec::new(),
        }
    }

    /// Returns the recoveries in the order of the scenario's tree.
    pub(super) fn finish(tracer: Box<dyn Tracer>) -> Vec<Recovery> {
        let tracer: Box<dyn Any> = tracer;
        let mut observer = tracer.downcast::<Observer>().expect("it is the one that was set");
        observer.close();
        observer.recoveries
    }

    /// Sums up the present loss.
    fn close(&mut self) {
        let Some(loss) = self.present else { return };
        let [requests, repairs, by_source] = std::mem::take(&mut self.sent);
        let mut recovery = Recovery {
            class: self.classes[loss],
            missed: 0,
            unrepaired: 0,
            latency: [0.0, f64::INFINITY, 0.0],
            duplicates: 0,
            requests,
            repairs,
            by_source,
        };
        for (heard, rtt) in self.heard.iter_mut().zip(&self.rtts) {
            let Heard { originals, detected, repairs, repaired } = std::mem::take(heard);
            if originals >= 2 {
                recovery.duplicates += repairs;
                continue;
            }
            recovery.missed += 1;
            let (Some(detected), Some(repaired)) = (detected, repaired) else {
                recovery.unrepaired += 1;
                continue;
            };
            recovery.duplicates += repairs - 1;
            let latency = repaired.since(detected).as_secs_f64() / rtt;
            let [sum, least, greatest] = recovery.latency;
            recovery.latency = [sum + latency, least.min(latency), greatest.max(latency)];
        }
        self.recoveries.push(recovery);
    }

    /// Switches to the loss that `now` belongs to.
    fn turn_to(&mut self, now: Instant) {
        let Timetable { start, spacing, losses } = self.timetable;
        let loss = (now >= start)
            .then(|| (now.since(start).as_nanos() / spacing.as_nanos()) as usize)
            .filter(|loss| *loss < losses);
        if loss != self.present {
            self.close();
            self.present = loss;
            self.heard.fill(Heard::default());
            self.sent = [0; 3];
        }
    }
}

impl Tracer for Observer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let kind = record.packet.kind;
        if !matches!(kind, Kind::Data | Kind::Repair | Kind::Nak) {
            return;
        }
        self.turn_to(record.at);
        match record.what {
            Hop::Sent if self.is_host[record.from.0 as usize] => match kind {
                Kind::Nak => self.sent[0] += 1,
                Kind::Repair => {
                    self.sent[1] += 1;
                    self.sent[2] += u32::from(record.from == self.source);
                }
                _ => {}
            },
            Hop::Delivered => {
                let Some(&receiver) = self.receivers.get(&record.to) else { return };
                let heard = &mut self.heard[receiver];
                match kind {
                    Kind::Data => {
                        heard.originals += 1;
                        heard.detected = Some(record.at);
                    }
                    Kind::Repair => {
                        heard.repairs += 1;
                        heard.repaired = heard.repaired.or(Some(record.at));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}
}
