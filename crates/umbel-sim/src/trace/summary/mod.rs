//! Summary of a run, in a few tables.

use std::collections::BTreeMap;

use serde::Serialize;
use umbel_engine::Instant;
use umbel_engine::units::Rate;

use super::columns::kind_name;
use super::{Hop, MembershipRecord, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer};
use crate::network::{Network, NodeKind};
use crate::packet::{FlowId, Kind};

mod table;

/// Counts events, for a [`Summary`].
#[derive(Clone, Debug)]
pub struct SummaryTracer {
    network: Network,
    flows: BTreeMap<(Kind, FlowId), Traffic>,
    links: Vec<[LinkTraffic; 2]>,
    nodes: Vec<NodeTraffic>,
    sessions: SessionTraffic,
    /// Lower bound of the number of the next new packet.
    next_id: u64,
    notes: u64,
}

/// Summary of a run. [`Display`](std::fmt::Display) prints it as tables of the most active links,
/// nodes and flows. [`to_json`](Summary::to_json) has all of them with any activity.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Length of the run in simulated time.
    pub duration_ns: u64,
    /// Number of nodes in the network.
    pub nodes_in_network: u64,
    /// Number of links in the network.
    pub links_in_network: u64,
    /// Packets by kind.
    pub kinds: Vec<KindSummary>,
    /// Packets by flow.
    pub flows: Vec<FlowSummary>,
    /// Directions of links that carried packets.
    pub links: Vec<LinkSummary>,
    /// Nodes that handled packets or messages.
    pub nodes: Vec<NodeSummary>,
    /// Messages of sessions.
    pub sessions: SessionTraffic,
    /// Number of notes that applications wrote.
    pub notes: u64,
}

/// Counters of packets by their fate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Packets that nodes sent; copies that the network makes do not count.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Links that those packets and their copies entered.
    pub hops: u64,
    /// Bytes on those links.
    pub hop_bytes: u64,
    /// Copies that reached hosts.
    pub arrived: u64,
    /// Copies that were dropped.
    #[serde(flatten)]
    pub drops: Drops,
}

/// Dropped packets by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Drops {
    /// Lost on links.
    pub lost: u64,
    /// Dropped by queues.
    pub queue_drops: u64,
    /// Dropped on links that were down.
    pub down: u64,
    /// Dropped in nodes without a route to the destination.
    pub no_route: u64,
    /// Dropped in nodes where the hop limit was exceeded.
    pub hop_limit: u64,
}

/// Packets of one kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KindSummary {
    /// Name of the kind.
    pub kind: String,
    /// Counters of the packets.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// Packets of one kind in one flow.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FlowSummary {
    /// Number of the flow.
    pub flow: u32,
    /// Name of the kind.
    pub kind: String,
    /// Counters of the packets.
    #[serde(flatten)]
    pub traffic: Traffic,
}

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LinkTraffic {
    /// Packets that entered it.
    pub packets: u64,
    /// Bytes of those packets.
    pub bytes: u64,
    /// Packets that were dropped.
    #[serde(flatten)]
    pub drops: Drops,
}

/// One direction of a link.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkSummary {
    /// Number of the link.
    pub link: u32,
    /// Name of the near end.
    pub from: String,
    /// Name of the far end.
    pub to: String,
    /// Counters of the direction.
    #[serde(flatten)]
    pub traffic: LinkTraffic,
    /// Share of the rate that was used over the whole run; `None` if the rate is unlimited.
    pub utilisation: Option<f64>,
}

/// Counters of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NodeTraffic {
    /// Packets that originate at the node.
    pub sent: u64,
    /// Bytes of those packets.
    pub sent_bytes: u64,
    /// Packets that reached the node, including those that it forwarded.
    pub received: u64,
    /// Bytes of those packets.
    pub received_bytes: u64,
    /// Packets that were dropped in the node, or on their way to it.
    #[serde(flatten)]
    pub drops: Drops,
    /// Messages of sessions that the node sent.
    pub messages_sent: u64,
    /// Messages of sessions that were sent to the node.
    pub messages_received: u64,
    /// Channels that the node joined.
    pub joins: u64,
    /// Channels that the node left.
    pub leaves: u64,
}

/// Node with its counters.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeSummary {
    /// Number of the node.
    pub node: u32,
    /// Name of the node.
    pub name: String,
    /// Counters of the node.
    #[serde(flatten)]
    pub traffic: NodeTraffic,
}

/// Messages of sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SessionTraffic {
    /// Number of messages.
    pub messages: u64,
    /// Bytes of those messages.
    pub bytes: u64,
}

impl Drops {
    /// Returns the number of all drops.
    pub const fn total(&self) -> u64 {
        let Drops { lost, queue_drops, down, no_route, hop_limit } = *self;
        lost + queue_drops + down + no_route + hop_limit
    }

    fn count(&mut self, what: Hop) {
        match what {
            Hop::Sent | Hop::Delivered => {}
            Hop::Lost => self.lost += 1,
            Hop::QueueDrop => self.queue_drops += 1,
            Hop::Down => self.down += 1,
            Hop::NoRoute => self.no_route += 1,
            Hop::HopLimit => self.hop_limit += 1,
        }
    }

    fn add(&mut self, other: Drops) {
        self.lost += other.lost;
        self.queue_drops += other.queue_drops;
        self.down += other.down;
        self.no_route += other.no_route;
        self.hop_limit += other.hop_limit;
    }
}

impl Traffic {
    fn add(&mut self, other: Traffic) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.hops += other.hops;
        self.hop_bytes += other.hop_bytes;
        self.arrived += other.arrived;
        self.drops.add(other.drops);
    }
}

impl SummaryTracer {
    /// Creates a tracer without any events yet.
    pub fn new(network: &Network) -> SummaryTracer {
        SummaryTracer {
            links: vec![Default::default(); network.link_count()],
            nodes: vec![NodeTraffic::default(); network.node_count()],
            network: network.clone(),
            flows: BTreeMap::new(),
            sessions: SessionTraffic::default(),
            next_id: 0,
            notes: 0,
        }
    }

    /// Returns the summary of the events up to `end`.
    pub fn summary(&self, end: Instant) -> Summary {
        Summary {
            duration_ns: end.as_nanos(),
            nodes_in_network: self.network.node_count() as u64,
            links_in_network: self.network.link_count() as u64,
            kinds: self.kinds(),
            flows: self.flows(),
            links: self.links(end),
            nodes: self.nodes(),
            sessions: self.sessions,
            notes: self.notes,
        }
    }

    fn kinds(&self) -> Vec<KindSummary> {
        let mut kinds: BTreeMap<Kind, Traffic> = BTreeMap::new();
        for (&(kind, _), traffic) in &self.flows {
            kinds.entry(kind).or_default().add(*traffic);
        }
        let kinds = kinds.into_iter();
        kinds.map(|(kind, traffic)| KindSummary { kind: kind_name(kind).into(), traffic }).collect()
    }

    fn flows(&self) -> Vec<FlowSummary> {
        let flow = |(&(kind, flow), &traffic): (&(Kind, FlowId), &Traffic)| FlowSummary {
            flow: flow.0,
            kind: kind_name(kind).into(),
            traffic,
        };
        let mut flows: Vec<FlowSummary> = self.flows.iter().map(flow).collect();
        flows.sort_by_key(|flow| flow.flow);
        flows
    }

    fn links(&self, end: Instant) -> Vec<LinkSummary> {
        let mut links = Vec::new();
        for ((link, a, b), both) in self.network.links().zip(&self.links) {
            let (ab, ba) = self.network.specs(link);
            for (from, to, spec, traffic) in [(a, b, ab, both[0]), (b, a, ba, both[1])] {
                if traffic == LinkTraffic::default() {
                    continue;
                }
                links.push(LinkSummary {
                    link: link.0,
                    from: self.network.name(from).to_owned(),
                    to: self.network.name(to).to_owned(),
                    traffic,
                    utilisation: spec.rate.map(|rate| utilisation(traffic.bytes, rate, end)),
                });
            }
        }
        links
    }

    fn nodes(&self) -> Vec<NodeSummary> {
        let nodes = self.network.nodes().zip(&self.nodes);
        nodes
            .filter(|(_, traffic)| **traffic != NodeTraffic::default())
            .map(|((node, _), &traffic)| NodeSummary {
                node: node.0,
                name: self.network.name(node).to_owned(),
                traffic,
            })
            .collect()
    }
}

/// Returns the share of the rate that these bytes take up to `end`.
fn utilisation(bytes: u64, rate: Rate, end: Instant) -> f64 {
    if end == Instant::EPOCH {
        return 0.0;
    }
    let bits = rate.bits_per_s() as f64 * end.since(Instant::EPOCH).as_secs_f64();
    bytes as f64 * 8.0 / bits
}

impl Tracer for SummaryTracer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let (packet, what) = (record.packet, record.what);
        let bytes = u64::from(packet.wire_len);
        let flow = self.flows.entry((packet.kind, packet.flow)).or_default();
        let to = record.to.0 as usize;
        if record.id >= self.next_id {
            self.next_id = record.id + 1;
            flow.packets += 1;
            flow.bytes += bytes;
            let sender = &mut self.nodes[record.from.0 as usize];
            sender.sent += 1;
            sender.sent_bytes += bytes;
        }
        let link = record.link.map(|link| {
            let (a, _) = self.network.ends(link);
            &mut self.links[link.0 as usize][usize::from(a != record.from)]
        });
        match what {
            Hop::Sent => {
                flow.hops += 1;
                flow.hop_bytes += bytes;
                if let Some(link) = link {
                    link.packets += 1;
                    link.bytes += bytes;
                }
            }
            Hop::Delivered => {
                flow.arrived += u64::from(self.network.kind(record.to) == NodeKind::Host);
                self.nodes[to].received += 1;
                self.nodes[to].received_bytes += bytes;
            }
            Hop::Lost | Hop::QueueDrop | Hop::Down | Hop::NoRoute | Hop::HopLimit => {
                flow.drops.count(what);
                self.nodes[to].drops.count(what);
                if let Some(link) = link {
                    link.drops.count(what);
                }
            }
        }
    }

    fn note(&mut self, _record: &NoteRecord<'_>) {
        self.notes += 1;
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        self.sessions.messages += 1;
        self.sessions.bytes += record.message.len() as u64;
        self.nodes[record.from.0 as usize].messages_sent += 1;
        self.nodes[record.to.0 as usize].messages_received += 1;
    }

    fn membership(&mut self, record: &MembershipRecord) {
        let node = &mut self.nodes[record.node.0 as usize];
        if record.joined {
            node.joins += 1;
        } else {
            node.leaves += 1;
        }
    }

    fn finish(&mut self, _end: Instant) -> Result<(), TraceError> {
        Ok(())
    }
}
