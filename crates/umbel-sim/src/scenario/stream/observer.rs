//! Observes the packets of a stream, and how each loss is repaired.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use umbel_engine::Instant;

use super::Stream;
use crate::network::{LinkId, Network, NodeId, NodeKind};
use crate::packet::Kind;
use crate::trace::{Hop, NoteRecord, PacketRecord, Tracer};

/// Content of a datagram of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::scenario) enum Said {
    /// An original packet, by its number from 0.
    Original(u64),
    /// A packet that is sent again.
    Repair(u64),
    /// Packets that somebody asks for.
    Request(Vec<u64>),
    /// One beyond the last packet that was sent.
    Lead(u64),
}

/// Reads a datagram; `None` if it says nothing about packets.
pub(in crate::scenario) type Read = fn(&[u8]) -> Option<Said>;

/// Packet of which an original was lost on a link, or that somebody had to ask for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Loss {
    /// Time of the first loss.
    pub(super) at: Option<Instant>,
    /// Ends of the link of the first loss.
    pub(super) link: Option<(NodeId, NodeId)>,
    /// Number of links that lost it.
    pub(super) links: u32,
    /// Receivers that missed it.
    pub(super) missed: u32,
    /// Receivers that got it again.
    pub(super) repaired: u32,
    /// Sum, least and greatest of the latencies over the round trips, and sum in seconds.
    pub(super) latency: [f64; 4],
    /// Repairs that arrived where the packet was already.
    pub(super) duplicates: u32,
    pub(super) requests: u32,
    pub(super) repairs: u32,
    pub(super) by_source: u32,
}

/// Datagrams that a receiver heard.
#[derive(Clone, Debug, Default)]
pub(super) struct Ear {
    /// Round trip to the source in seconds.
    pub(super) rtt: f64,
    /// The next packet that it expects.
    pub(super) next: u64,
    /// Packets found missing, with the times of their detection.
    pub(super) missing: BTreeMap<u64, Instant>,
    pub(super) missed: u64,
    pub(super) repaired: u64,
    /// Sum and greatest of the latencies over the round trip, and sum in seconds.
    pub(super) latency: [f64; 3],
    pub(super) duplicates: u64,
    pub(super) requests: u64,
    pub(super) repairs: u64,
}

/// Recovery of a packet at a receiver.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    pub(super) unit: u64,
    /// Position of the receiver.
    pub(super) receiver: u32,
    pub(super) detected: Instant,
    pub(super) latency: Duration,
}

/// Packets and bytes in one direction of a link: originals, repairs, requests, all else.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) packets: [u64; 4],
    pub(super) bytes: [u64; 4],
}

/// Observations so far.
#[derive(Debug)]
pub(in crate::scenario) struct Observed {
    read: Read,
    source: NodeId,
    is_host: Vec<bool>,
    /// First end of each link, to tell its directions apart.
    first_end: Vec<NodeId>,
    /// Position of each receiver.
    positions: BTreeMap<NodeId, usize>,
    pub(super) ears: Vec<Ear>,
    /// Number of packets sent.
    pub(super) sent: u64,
    pub(super) losses: BTreeMap<u64, Loss>,
    pub(super) recoveries: Vec<Recovery>,
    /// Both directions of each link.
    pub(super) traffic: Vec<[Traffic; 2]>,
}

/// Observations so far, shared by the tracer and their reader.
#[derive(Clone, Debug)]
pub(in crate::scenario) struct Observation(Arc<Mutex<Observed>>);

impl Observation {
    /// Creates an observation. `distances` are the travel times to each receiver and back.
    pub(in crate::scenario) fn new(
        network: &Network,
        stream: &Stream,
        distances: &[(Duration, Duration)],
        read: Read,
    ) -> Observation {
        let ears = distances
            .iter()
            .map(|(there, back)| Ear { rtt: (*there + *back).as_secs_f64(), ..Ear::default() });
        let positions = stream.receivers.iter().enumerate();
        Observation(Arc::new(Mutex::new(Observed {
            read,
            source: stream.source,
            is_host: network.nodes().map(|(_, kind)| kind == NodeKind::Host).collect(),
            first_end: network.links().map(|(_, a, _)| a).collect(),
            positions: positions.map(|(position, node)| (*node, position)).collect(),
            ears: ears.collect(),
            sent: 0,
            losses: BTreeMap::new(),
            recoveries: Vec::new(),
            traffic: vec![Default::default(); network.link_count()],
        })))
    }

    /// Returns what was observed.
    pub(super) fn get(&self) -> MutexGuard<'_, Observed> {
        // A panic while it was held ended the run that it belongs to.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tracer for Observation {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        self.get().on_packet(record);
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {}
}

/// Returns the position of a kind in [`Traffic`].
fn class(kind: Kind) -> usize {
    match kind {
        Kind::Data => 0,
        Kind::Repair => 1,
        Kind::Nak => 2,
        _ => 3,
    }
}

impl Observed {
    fn on_packet(&mut self, record: &PacketRecord<'_>) {
        let kind = record.packet.kind;
        match record.what {
            Hop::Sent => {
                // Others' packets are of no protocol's kind.
                if let Some(LinkId(link)) = record.link.filter(|_| !matches!(kind, Kind::Other(_)))
                {
                    let back = usize::from(self.first_end[link as usize] != record.from);
                    let traffic = &mut self.traffic[link as usize][back];
                    traffic.packets[class(kind)] += 1;
                    traffic.bytes[class(kind)] += u64::from(record.packet.wire_len);
                }
                if self.is_host[record.from.0 as usize] && class(kind) < 3 {
                    self.on_sent(record);
                }
            }
            Hop::Delivered => {
                if let Some(&receiver) = self.positions.get(&record.to) {
                    self.on_heard(record, receiver);
                }
            }
            Hop::Lost | Hop::QueueDrop | Hop::Down if kind == Kind::Data => {
                if let Some(Said::Original(unit)) = (self.read)(&record.packet.payload) {
                    let loss = self.losses.entry(unit).or_default();
                    loss.links += 1;
                    loss.at = loss.at.or(Some(record.at));
                    loss.link = loss.link.or(Some((record.from, record.to)));
                }
            }
            _ => {}
        }
    }

    /// Counts a packet that a host sent. A copy for each of several links counts once.
    fn on_sent(&mut self, record: &PacketRecord<'_>) {
        let Some(said) = (self.read)(&record.packet.payload) else { return };
        let from = self.positions.get(&record.from).map(|&position| &mut self.ears[position]);
        match said {
            Said::Original(unit) => self.sent = self.sent.max(unit.saturating_add(1)),
            Said::Repair(unit) => {
                let loss = self.losses.entry(unit).or_default();
                loss.repairs += 1;
                loss.by_source += u32::from(record.from == self.source);
                if let Some(ear) = from {
                    ear.repairs += 1;
                }
            }
            Said::Request(units) => {
                for unit in units {
                    self.losses.entry(unit).or_default().requests += 1;
                }
                if let Some(ear) = from {
                    ear.requests += 1;
                }
            }
            Said::Lead(_) => {}
        }
    }

    fn on_heard(&mut self, record: &PacketRecord<'_>, receiver: usize) {
        match (self.read)(&record.packet.payload) {
            Some(Said::Original(unit)) => self.on_unit(record.at, receiver, unit, false),
            Some(Said::Repair(unit)) => self.on_unit(record.at, receiver, unit, true),
            Some(Said::Lead(lead)) => self.on_lead(record.at, receiver, lead),
            Some(Said::Request(_)) | None => {}
        }
    }

    /// Finds all packets before `lead` missing that the receiver did not hear of.
    fn on_lead(&mut self, now: Instant, receiver: usize, lead: u64) {
        // Nobody can have sent more than the source.
        let lead = lead.min(self.sent);
        let ear = &mut self.ears[receiver];
        for unit in ear.next..lead {
            ear.missing.insert(unit, now);
            ear.missed += 1;
            self.losses.entry(unit).or_default().missed += 1;
        }
        ear.next = ear.next.max(lead);
    }

    fn on_unit(&mut self, now: Instant, receiver: usize, unit: u64, is_repair: bool) {
        // A repair tells of its own packet as well: it is found missing when the repair comes.
        self.on_lead(now, receiver, if is_repair { unit.saturating_add(1) } else { unit });
        let ear = &mut self.ears[receiver];
        if unit == ear.next && !is_repair {
            ear.next += 1;
            return;
        }
        let Some(detected) = ear.missing.remove(&unit) else {
            if is_repair {
                ear.duplicates += 1;
                self.losses.entry(unit).or_default().duplicates += 1;
            }
            return;
        };
        let latency = now.since(detected);
        let seconds = latency.as_secs_f64();
        let rtts = if ear.rtt > 0.0 { seconds / ear.rtt } else { 0.0 };
        ear.repaired += 1;
        let [sum, most, sum_s] = ear.latency;
        ear.latency = [sum + rtts, most.max(rtts), sum_s + seconds];
        let loss = self.losses.entry(unit).or_default();
        let [sum, least, most, sum_s] = loss.latency;
        let least = if loss.repaired == 0 { rtts } else { least.min(rtts) };
        loss.latency = [sum + rtts, least, most.max(rtts), sum_s + seconds];
        loss.repaired += 1;
        self.recoveries.push(Recovery { unit, receiver: receiver as u32, detected, latency });
    }
}
