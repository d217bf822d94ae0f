//! Recording of a run for a page.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use umbel_engine::Instant;

use super::layout::{self, Label};
use crate::address::address_of;
use crate::network::{Network, NodeId, NodeKind};
use crate::packet::{Destination, Kind, Packet};
use crate::trace::columns::kind_name;
use crate::trace::{ChannelParts, Hop, MembershipRecord, MessageRecord, NoteRecord, PacketRecord};

/// First part of a run, up to the moment when one of the limits was reached.
#[derive(Clone, Debug)]
pub(super) struct Recording {
    network: Network,
    limit: usize,
    packets: Vec<Crossing>,
    /// Positions in `packets` of the packets that are on a link, by number and way.
    underway: BTreeMap<(u64, i64), usize>,
    classes: Interned<Class>,
    channels: Interned<ChannelParts>,
    names: Interned<&'static str>,
    notes: Vec<(u64, u32, usize, [f64; 3])>,
    messages: Vec<(u64, u64, u32, u32, usize)>,
    members: Vec<(u64, u32, usize, bool)>,
    /// Bytes of data and repairs that each node sent.
    sent: Vec<u64>,
    next_id: u64,
    /// Time of the first event that is not recorded.
    cut: Option<Instant>,
    /// Packets that entered a link, in the whole run.
    hops: u64,
}

/// Packet on a link, or dropped.
#[derive(Clone, Copy, Debug)]
struct Crossing {
    at: u64,
    /// Nanoseconds until its arrival.
    took: u64,
    way: i64,
    class: usize,
    id: u64,
    fate: Fate,
}

/// Fate of a packet. The numbers are those of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrived = 0,
    Lost = 1,
    QueueDrop = 2,
    Down = 3,
    NoRoute = 4,
    HopLimit = 5,
}

/// Properties that many packets have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Class {
    kind: Kind,
    flow: u32,
    source: u32,
    /// Node or, if the packet is multicast, number of the channel.
    destination: Result<u32, Option<usize>>,
    bytes: u32,
}

/// Values that are numbered in the order of their first appearance.
#[derive(Clone, Debug)]
struct Interned<T> {
    numbers: BTreeMap<T, usize>,
    things: Vec<T>,
}

impl<T: Ord + Copy> Interned<T> {
    fn new() -> Interned<T> {
        Interned { numbers: BTreeMap::new(), things: Vec::new() }
    }

    fn number(&mut self, thing: T) -> usize {
        let next = self.things.len();
        let number = *self.numbers.entry(thing).or_insert(next);
        if number == next {
            self.things.push(thing);
        }
        number
    }
}

impl Recording {
    /// Creates an empty recording of at most `limit` each of packets on links, notes, messages, and
    /// joins and leaves.
    pub(super) fn new(network: Network, limit: usize) -> Recording {
        Recording {
            sent: vec![0; network.node_count()],
            network,
            limit,
            packets: Vec::new(),
            underway: BTreeMap::new(),
            classes: Interned::new(),
            channels: Interned::new(),
            names: Interned::new(),
            notes: Vec::new(),
            messages: Vec::new(),
            members: Vec::new(),
            next_id: 0,
            cut: None,
            hops: 0,
        }
    }

    /// Sets the limit.
    pub(super) fn limit(self, limit: usize) -> Recording {
        Recording { limit, ..self }
    }

    /// Returns whether an event at this time is still recorded, beside `held` of its kind.
    fn has_room(&mut self, at: Instant, held: usize) -> bool {
        if held >= self.limit && self.cut.is_none() {
            self.cut = Some(at);
        }
        self.cut.is_none()
    }

    /// Returns the number of a packet's way. A direction of a link has twice the link's number, and
    /// one more for the way back. A node that dropped the packet itself has a number below 0.
    fn way(&self, record: &PacketRecord<'_>) -> i64 {
        match record.link {
            None => -1 - i64::from(record.from.0),
            Some(link) => {
                let (a, _) = self.network.ends(link);
                2 * i64::from(link.0) + i64::from(a != record.from)
            }
        }
    }

    pub(super) fn packet(&mut self, record: &PacketRecord<'_>) {
        let way = self.way(record);
        let packet = record.packet;
        if record.id >= self.next_id {
            self.next_id = record.id + 1;
            if matches!(packet.kind, Kind::Data | Kind::Repair) {
                self.sent[record.from.0 as usize] += u64::from(packet.wire_len);
            }
        }
        let fate = match record.what {
            Hop::Sent | Hop::Delivered => Fate::Arrived,
            Hop::Lost => Fate::Lost,
            Hop::QueueDrop => Fate::QueueDrop,
            Hop::Down => Fate::Down,
            Hop::NoRoute => Fate::NoRoute,
            Hop::HopLimit => Fate::HopLimit,
        };
        if record.what != Hop::Sent {
            if let Some(index) = self.underway.remove(&(record.id, way)) {
                self.packets[index].fate = fate;
                return;
            }
            if record.what == Hop::Delivered {
                return;
            }
        }
        self.hops += u64::from(record.what == Hop::Sent);
        if !self.has_room(record.at, self.packets.len()) {
            return;
        }
        if record.what == Hop::Sent {
            self.underway.insert((record.id, way), self.packets.len());
        }
        let class = self.class(packet, record.channel);
        let took = record.arrives.map_or(0, |arrives| arrives.since(record.at).as_nanos() as u64);
        let at = record.at.as_nanos();
        self.packets.push(Crossing { at, took, way, class, id: record.id, fate });
    }

    fn class(&mut self, packet: &Packet, channel: Option<ChannelParts>) -> usize {
        let destination = match packet.destination {
            Destination::Unicast(node) => Ok(node.0),
            Destination::Group(_) => Err(channel.map(|channel| self.channels.number(channel))),
        };
        self.classes.number(Class {
            kind: packet.kind,
            flow: packet.flow.0,
            source: packet.source.0,
            destination,
            bytes: packet.wire_len,
        })
    }

    pub(super) fn note(&mut self, record: &NoteRecord<'_>) {
        if self.has_room(record.at, self.notes.len()) {
            let name = self.names.number(record.note.name);
            self.notes.push((record.at.as_nanos(), record.node.0, name, record.note.values));
        }
    }

    pub(super) fn message(&mut self, record: &MessageRecord<'_>) {
        if self.has_room(record.at, self.messages.len()) {
            let took = record.arrives.since(record.at).as_nanos() as u64;
            let (from, to) = (record.from.0, record.to.0);
            self.messages.push((record.at.as_nanos(), took, from, to, record.message.len()));
        }
    }

    pub(super) fn membership(&mut self, record: &MembershipRecord) {
        if self.has_room(record.at, self.members.len()) {
            let channel = self.channels.number(record.channel);
            self.members.push((record.at.as_nanos(), record.node.0, channel, record.joined));
        }
    }

    /// Returns the recording as `run.js` reads it.
    pub(super) fn to_json(&self, title: &str, end: Instant) -> io::Result<String> {
        let source = (0..self.sent.len()).rev().max_by_key(|&node| self.sent[node]);
        let layout = layout::layout(&self.network, NodeId(source.unwrap_or_default() as u32));
        let mut last = 0;
        let mut since_last = |at: u64| at as i64 - std::mem::replace(&mut last, at as i64);
        let run = Run {
            title,
            end: end.as_nanos(),
            cut: self.cut.map(Instant::as_nanos),
            hops: self.hops,
            stretch: layout.stretch,
            nodes: self.nodes(&layout),
            links: self.links(),
            channels: self
                .channels
                .things
                .iter()
                .map(|channel| self.channel_name(*channel))
                .collect(),
            classes: self.classes.things.iter().map(class_row).collect(),
            packets: Packets {
                at: self.packets.iter().map(|packet| since_last(packet.at)).collect(),
                took: self.packets.iter().map(|packet| packet.took).collect(),
                way: self.packets.iter().map(|packet| packet.way).collect(),
                class: self.packets.iter().map(|packet| packet.class).collect(),
                id: self.packets.iter().map(|packet| packet.id).collect(),
                fate: self.packets.iter().map(|packet| packet.fate as u8).collect(),
            },
            names: &self.names.things,
            notes: &self.notes,
            messages: &self.messages,
            members: &self.members,
        };
        serde_json::to_string(&run).map_err(io::Error::from)
    }

    fn nodes<'a>(&'a self, layout: &layout::Layout) -> Vec<NodeRow<'a>> {
        let nodes = self.network.nodes().zip(&layout.places);
        nodes
            .map(|((node, kind), place)| {
                let kind = match kind {
                    NodeKind::Host => 0,
                    NodeKind::Router => 1,
                    NodeKind::Switch => 2,
                };
                let label = match place.label {
                    Label::Right => 0,
                    Label::Left => 1,
                    Label::Below => 2,
                    Label::Above => 3,
                };
                let rounded = |value: f64| (value * 1e4).round() / 1e4;
                let address = address_of(node).to_string();
                (self.network.name(node), kind, rounded(place.x), rounded(place.y), label, address)
            })
            .collect()
    }

    fn links(&self) -> Vec<LinkRow> {
        let links = self.network.links();
        links
            .map(|(link, a, b)| {
                let (ab, ba) = self.network.specs(link);
                let direction = |spec: &crate::link::LinkSpec| {
                    let schedule = spec.schedule.iter();
                    (
                        spec.delay.as_nanos() as u64,
                        spec.rate.map_or(0, umbel_engine::units::Rate::bits_per_s),
                        schedule.map(|&(at, up)| (at.as_nanos(), up)).collect(),
                    )
                };
                (a.0, b.0, direction(ab), direction(ba))
            })
            .collect()
    }

    fn channel_name(&self, channel: ChannelParts) -> String {
        let group = crate::address::channel(channel.source, channel.group).group;
        match channel.source {
            Some(source) => format!("{group} from {}", self.network.name(source)),
            None => group.to_string(),
        }
    }
}

fn class_row(class: &Class) -> ClassRow {
    let (node, channel) = match class.destination {
        Ok(node) => (i64::from(node), -1),
        Err(channel) => (-1, channel.map_or(-1, |number| number as i64)),
    };
    let kind = kind_name(class.kind).into_owned();
    (kind, class.flow, class.source, node, channel, class.bytes)
}

/// Name, kind, x, y, side of the label, address.
type NodeRow<'a> = (&'a str, u8, f64, f64, u8, String);
/// Delay in nanoseconds, rate in bits per second or 0, times when it goes up and down.
type Direction = (u64, u64, Vec<(u64, bool)>);
/// Both ends, and both directions.
type LinkRow = (u32, u32, Direction, Direction);
/// Kind, flow, source, destination or -1, channel or -1, bytes.
type ClassRow = (String, u32, u32, i64, i64, u32);

/// Recording in JSON. Times are in nanoseconds.
#[derive(Serialize)]
struct Run<'a> {
    title: &'a str,
    end: u64,
    cut: Option<u64>,
    hops: u64,
    stretch: bool,
    nodes: Vec<NodeRow<'a>>,
    links: Vec<LinkRow>,
    channels: Vec<String>,
    classes: Vec<ClassRow>,
    packets: Packets,
    names: &'a [&'static str],
    notes: &'a [(u64, u32, usize, [f64; 3])],
    messages: &'a [(u64, u64, u32, u32, usize)],
    members: &'a [(u64, u32, usize, bool)],
}

/// Packets column by column, with times as differences: a third of the size of a list of packets.
#[derive(Serialize)]
struct Packets {
    at: Vec<i64>,
    took: Vec<u64>,
    way: Vec<i64>,
    class: Vec<usize>,
    id: Vec<u64>,
    fate: Vec<u8>,
}
