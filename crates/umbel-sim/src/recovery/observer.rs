//! Looks at the datagrams of a feed on links and at receivers.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::tmtp::Purpose;
use umbel_topology::{NodeKind, Topology};
use umbel_wire::lms::Message;
use umbel_wire::tmtp::{EsiSet, MessageType};
use umbel_wire::{Parsed, SmallBlockPacket};

use crate::Kind;

/// Returns the purpose of a feed's datagram, in any recovery.
pub fn kind(datagram: &[u8]) -> Kind {
    if Message::is_lms(datagram) {
        return match Message::parse(datagram).ok().and_then(Parsed::message) {
            Some(Message::Repair { .. } | Message::Dmcast { .. }) => Kind::Repair,
            Some(Message::Request(_)) => Kind::Nak,
            _ => Kind::Control,
        };
    }
    match packet(datagram) {
        Some((Purpose::First, _)) => Kind::Data,
        Some(_) => Kind::Repair,
        None => match MessageType::of(datagram) {
            Some(MessageType::Nack | MessageType::Fetch) => Kind::Nak,
            _ => Kind::Control,
        },
    }
}

/// Returns the data packet in a datagram, as it is or in a repair of LMS.
fn packet(datagram: &[u8]) -> Option<(Purpose, SmallBlockPacket<'_>)> {
    let datagram = if Message::is_lms(datagram) {
        let Message::Repair { payload, .. } = Message::parse(datagram).ok()?.message()? else {
            return None;
        };
        payload
    } else {
        datagram
    };
    if !SmallBlockPacket::is_one(datagram) {
        return None;
    }
    let packet = SmallBlockPacket::parse(datagram).ok()?;
    Some((Purpose::of(packet.header.transmission)?, packet))
}

/// A block as one receiver has it.
#[derive(Clone, Copy, Debug, Default)]
struct Block {
    held: EsiSet,
    is_complete: bool,
    /// Time when the receiver could know that symbols of it are missing.
    detected: Option<Instant>,
}

/// Packets that arrived at one receiver.
#[derive(Clone, Debug)]
struct Receiver {
    /// Round trip to the source.
    rtt: Duration,
    blocks: BTreeMap<u32, Block>,
    /// One beyond the last block of which it has heard the end.
    ended: u32,
    /// Time from detection to completion of each block that lacked something, in round trips.
    latencies: Vec<f64>,
    repairs: u64,
    unneeded: u64,
}

impl Receiver {
    fn new(rtt: Duration) -> Receiver {
        Receiver {
            rtt,
            blocks: BTreeMap::new(),
            ended: 0,
            latencies: Vec::new(),
            repairs: 0,
            unneeded: 0,
        }
    }

    fn on_packet(&mut self, at: Instant, purpose: Purpose, packet: &SmallBlockPacket<'_>) {
        let (number, k, esi) =
            (packet.header.sbn, packet.header.block_symbols, u32::from(packet.header.esi));
        let block = self.blocks.entry(number).or_default();
        let is_needed = !block.is_complete && !block.held.contains(esi);
        block.held.insert(esi);
        if is_needed && block.held.len() >= u32::from(k) {
            block.is_complete = true;
            if let Some(detected) = block.detected {
                let latency = at.since(detected).as_secs_f64() / self.rtt.as_secs_f64();
                self.latencies.push(latency);
            }
        }
        if purpose != Purpose::First {
            self.repairs += 1;
            self.unneeded += u64::from(!is_needed);
            return;
        }
        // The first packet of a block shows that the one before has ended.
        let ended = number + u32::from(esi + 1 == u32::from(k));
        for number in self.ended..ended {
            let block = self.blocks.entry(number).or_default();
            if !block.is_complete {
                block.detected.get_or_insert(at);
            }
        }
        self.ended = self.ended.max(ended);
    }
}

/// Traffic that crossed one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crossed {
    /// Packets and bytes that were sent for the first time.
    pub data: (u64, u64),
    /// Those that repair losses, with their envelopes.
    pub repairs: (u64, u64),
    /// Those that ask for repairs.
    pub requests: (u64, u64),
}

impl Crossed {
    fn add(&mut self, kind: Kind, wire_len: u64) {
        let (packets, bytes) = match kind {
            Kind::Data => &mut self.data,
            Kind::Repair => &mut self.repairs,
            Kind::Nak => &mut self.requests,
            _ => return,
        };
        *packets += 1;
        *bytes += wire_len;
    }
}

/// Measures recovery from what it sees of datagrams. It knows no scheme, so that all are measured
/// alike.
#[derive(Clone, Debug)]
pub struct Observer {
    receivers: BTreeMap<String, Receiver>,
    links: BTreeMap<(String, String), Crossed>,
}

impl Observer {
    /// Creates an observer of a source and its receivers, which are all other hosts.
    pub fn new(topology: &Topology, source: &str) -> Observer {
        let rtts = round_trips(topology, source);
        let hosts = topology.nodes.iter().filter(|node| node.kind == NodeKind::Host);
        let receivers = hosts.filter(|node| node.name != source).map(|node| {
            let rtt = rtts.get(node.name.as_str()).copied().unwrap_or_default();
            (node.name.clone(), Receiver::new(rtt))
        });
        Observer { receivers: receivers.collect(), links: BTreeMap::new() }
    }

    /// Returns the number of receivers.
    pub fn receivers(&self) -> u64 {
        self.receivers.len() as u64
    }

    /// Notes a datagram that entered a link.
    pub fn on_sent(&mut self, from: &str, to: &str, datagram: &[u8], wire_len: u64) {
        let kind = kind(datagram);
        if kind != Kind::Control {
            let link = (from.to_owned(), to.to_owned());
            self.links.entry(link).or_default().add(kind, wire_len);
        }
    }

    /// Notes a datagram that arrived at a host.
    pub fn on_arrived(&mut self, at: Instant, host: &str, datagram: &[u8]) {
        if let Some((purpose, packet)) = packet(datagram)
            && let Some(receiver) = self.receivers.get_mut(host)
        {
            receiver.on_packet(at, purpose, &packet);
        }
    }

    /// Returns what crossed a link from one node to another.
    pub fn crossed(&self, from: &str, to: &str) -> Crossed {
        self.links.get(&(from.to_owned(), to.to_owned())).copied().unwrap_or_default()
    }

    /// Returns what crossed each link, by its ends.
    pub fn links(&self) -> impl Iterator<Item = (&str, &str, Crossed)> {
        self.links.iter().map(|((from, to), crossed)| (from.as_str(), to.as_str(), *crossed))
    }

    /// Returns the recovery latencies of all receivers in round trips to the source, ascending. A
    /// latency begins when a receiver has heard of the end of a block of which symbols are missing.
    /// It ends when the block is complete.
    pub fn latencies(&self) -> Vec<f64> {
        let all = self.receivers.values().flat_map(|receiver| &receiver.latencies);
        let mut all: Vec<f64> = all.copied().collect();
        all.sort_by(f64::total_cmp);
        all
    }

    /// Returns the number of repairs that arrived at receivers, and how many of them brought
    /// nothing that the receiver lacked.
    pub fn repairs_heard(&self) -> (u64, u64) {
        let heard = self.receivers.values().map(|receiver| (receiver.repairs, receiver.unneeded));
        heard.fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1))
    }
}

/// Returns the least delay from a node to each other and back.
fn round_trips<'a>(topology: &'a Topology, from: &'a str) -> BTreeMap<&'a str, Duration> {
    let mut rtts = BTreeMap::from([(from, Duration::ZERO)]);
    // A path has fewer links than there are nodes.
    for _ in &topology.nodes {
        for link in &topology.links {
            for (near, far) in [(&link.a, &link.b), (&link.b, &link.a)] {
                let Some(&rtt) = rtts.get(near.as_str()) else { continue };
                let rtt = rtt + link.round_trip();
                let known = rtts.entry(far).or_insert(rtt);
                *known = rtt.min(*known);
            }
        }
    }
    rtts
}
