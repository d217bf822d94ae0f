//! At the receiver's host: multicast segments become segments of local connections.
//!
//! A [`Delivery`] sees what arrives from one source, and what this host sends to it. It learns from
//! unicast segments which local connections a channel serves, by the membership option. It makes a
//! unicast segment of each multicast one for each of them:
//!
//! | field | becomes |
//! |---|---|
//! | destination address and port | those of the connection |
//! | acknowledgement number | the greatest one that the source sent to the connection |
//! | checksums | changed by the difference, so that a damaged segment stays damaged |
//!
//! All else stays. The acknowledgement number of a multicast segment means nothing, as the same
//! one goes to all. The kernel's TCP, however, drops a segment whose number is too old or too new
//! [RFC 5961 §5].
//!
//! It is held in user space, for hosts that let no program into their kernel. The program in
//! `umbel-net/bpf` does the same in the kernel, and a test compares the two. That one can ask for
//! the connection's state. This one learns it from passing segments: a connection that exists, a
//! segment that it lacks, and the end of it.
//!
//! ```text
//!      membership option ≠ 0             its RST, the source's RST, its SYN,
//!   ────────────────────────▶ enrolled ─────────────────────────────────────▶ forgotten
//!                              │    ▲    or its ACK of the source's FIN
//!              multicast to ───┘    │
//!              its channel's port   └── another membership, a greater ACK
//! ```
//!
//! # Scope and limitations
//!
//! Whole TCP packets over IPv4 without options or IPv6 without extension headers. All others are
//! counted as malformed, and the source sends again by unicast.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use umbel_wire::checksum::{self, Sum};
use umbel_wire::ip::be16;
use umbel_wire::tcp::{Flags, Membership, Packet, Segment, Seq};

/// Offset of fields in a TCP header.
const DESTINATION_PORT: usize = 2;
const ACK: usize = 8;
const CHECKSUM: usize = 16;

/// The way of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It arrives at this host.
    In,
    /// This host sends it.
    Out,
}

/// Part of a packet that the TCP checksum covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// All of the segment.
    Whole,
    /// The pseudo header: the rest is left to a network card, which the packet has not passed.
    Partial,
}

/// A local connection to the source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Connection {
    /// Its address and port at this host.
    pub local: SocketAddr,
    /// Port of the source.
    pub source_port: u16,
}

/// Counters of a delivery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Multicast segments of the channels.
    pub segments: u64,
    /// Segments handed to connections.
    pub delivered: u64,
    /// Multicast segments that no connection is enrolled for.
    pub not_enrolled: u64,
    /// Segments not handed to a connection that is not there any more.
    pub gone: u64,
    /// Segments not handed to a connection that is being opened or closed.
    pub not_ready: u64,
    /// Segments not handed to a connection that has their data.
    pub already_held: u64,
    /// Packets that are no whole TCP segments, and unicast ones with a wrong checksum.
    pub malformed: u64,
    /// Connections not enrolled because the table is full.
    pub table_full: u64,
    /// Unicast segments whose membership option is of another version than this helper.
    pub other_version: u64,
    /// The version of the last of these.
    pub their_version: u8,
}

/// State of a connection, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Port of the channel that serves it.
    channel: u16,
    /// The greatest number that the source acknowledged: at most the connection's `SND.UNA`.
    ack: Seq,
    /// The greatest number that the connection acknowledged: at most its `RCV.NXT`.
    next: Option<Seq>,
    /// The number after the source's FIN, once it was seen.
    end: Option<Seq>,
}

/// Delivers the channels of one source and group to the connections of this host.
#[derive(Debug)]
pub struct Delivery {
    source: IpAddr,
    group: IpAddr,
    own: BTreeSet<IpAddr>,
    connections: BTreeMap<Connection, State>,
    max_connections: usize,
    counts: DeliveryCounts,
    /// The packet that is being rewritten.
    packet: Vec<u8>,
}

impl Delivery {
    /// Creates a delivery without connections. `max_connections` bounds their number.
    pub fn new(source: IpAddr, group: IpAddr, max_connections: usize) -> Delivery {
        Delivery {
            source,
            group,
            own: BTreeSet::new(),
            connections: BTreeMap::new(),
            max_connections,
            counts: DeliveryCounts::default(),
            packet: Vec::new(),
        }
    }

    /// Sets the addresses of this host. Connections of others are not its concern, though their
    /// segments may pass.
    pub fn set_own_addresses(&mut self, own: impl IntoIterator<Item = IpAddr>) {
        self.own = own.into_iter().collect();
    }

    /// Returns the counters.
    pub fn counts(&self) -> DeliveryCounts {
        self.counts
    }

    /// Returns each connection with the port of the channel that serves it.
    pub fn connections(&self) -> impl ExactSizeIterator<Item = (Connection, u16)> {
        self.connections.iter().map(|(connection, state)| (*connection, state.channel))
    }

    /// Handles an IP packet that passed this host's interface. Calls `deliver` with the packets
    /// that are to be handed to local connections, and the connection's address and port.
    pub fn handle_packet(
        &mut self,
        direction: Direction,
        packet: &[u8],
        checksum: Checksum,
        deliver: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        let Some(parsed) = Parsed::new(packet) else {
            self.counts.malformed += 1;
            return;
        };
        match direction {
            Direction::Out if parsed.destination.ip() == self.source => self.hear_own(&parsed),
            Direction::In if parsed.source.ip() != self.source => {}
            Direction::In if parsed.destination.ip() == self.group => {
                self.deliver(&parsed, checksum, deliver);
            }
            Direction::In if self.own.contains(&parsed.destination.ip()) => {
                // A damaged option must enrol nothing.
                if checksum == Checksum::Whole && !parsed.packet.is_sound() {
                    self.counts.malformed += 1;
                    return;
                }
                self.learn(&parsed);
            }
            _ => {}
        }
    }

    /// Learns from a unicast segment of the source.
    fn learn(&mut self, parsed: &Parsed<'_>) {
        let head = &parsed.segment.head;
        let key = Connection { local: parsed.destination, source_port: head.source_port };
        if head.flags.has(Flags::RST) {
            self.connections.remove(&key);
            return;
        }
        let fresh = head.flags.has(Flags::SYN);
        let membership = match head.options.membership {
            Some(Membership::Port(port)) => Some(port),
            Some(Membership::Other(version)) => {
                self.counts.other_version += 1;
                self.counts.their_version = version;
                None
            }
            None => None,
        };
        match (self.connections.get_mut(&key), membership) {
            (Some(_), Some(0)) => {
                self.connections.remove(&key);
            }
            (Some(state), membership) => {
                state.channel = membership.unwrap_or(state.channel);
                if head.flags.has(Flags::ACK) && (fresh || state.ack.is_before(head.ack)) {
                    state.ack = head.ack;
                }
                if head.flags.has(Flags::FIN) {
                    state.end = Some(parsed.segment.end());
                }
            }
            (None, Some(channel)) if channel != 0 && head.flags.has(Flags::ACK) => {
                if self.connections.len() >= self.max_connections {
                    self.counts.table_full += 1;
                    return;
                }
                let state = State { channel, ack: head.ack, next: None, end: None };
                self.connections.insert(key, state);
            }
            (None, _) => {}
        }
    }

    /// Learns from a segment that a connection of this host sends.
    fn hear_own(&mut self, parsed: &Parsed<'_>) {
        let head = &parsed.segment.head;
        let key = Connection { local: parsed.source, source_port: head.destination_port };
        let Some(state) = self.connections.get_mut(&key) else { return };
        let mut over = head.flags.has(Flags::RST) || head.flags.has(Flags::SYN);
        if head.flags.has(Flags::ACK) {
            if state.next.is_none_or(|next| next.is_before(head.ack)) {
                state.next = Some(head.ack);
            }
            over |= state.end == Some(head.ack);
        }
        if over {
            self.connections.remove(&key);
        }
    }

    /// Hands a multicast segment to the connections that its channel serves.
    fn deliver(
        &mut self,
        parsed: &Parsed<'_>,
        checksum: Checksum,
        deliver: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        self.counts.segments += 1;
        let head = &parsed.segment.head;
        let end = parsed.segment.end();
        // A damaged segment is left to the kernel to drop, but it must end nothing.
        let fin = head.flags.has(Flags::FIN)
            && (checksum == Checksum::Partial || parsed.packet.is_sound());
        let mut copied = false;
        let mut enrolled = false;
        for (connection, state) in &mut self.connections {
            let same_source = connection.source_port == head.source_port;
            if !same_source || state.channel != head.destination_port {
                continue;
            }
            enrolled = true;
            if fin {
                state.end = Some(end);
            }
            if state.next.is_some_and(|next| !next.is_before(end)) {
                self.counts.already_held += 1;
                continue;
            }
            if !copied {
                self.packet.clear();
                self.packet.extend_from_slice(parsed.packet.bytes);
                if checksum == Checksum::Partial {
                    complete(&mut self.packet, parsed.packet.ip_len);
                }
                copied = true;
            }
            rewrite(&mut self.packet, connection.local, state.ack);
            self.counts.delivered += 1;
            deliver(connection.local, &self.packet);
        }
        if !enrolled {
            self.counts.not_enrolled += 1;
        }
    }
}

/// A whole TCP segment in an IP packet without options or extension headers.
#[derive(Debug)]
struct Parsed<'a> {
    packet: Packet<'a>,
    source: SocketAddr,
    destination: SocketAddr,
    segment: Segment<'a>,
}

impl<'a> Parsed<'a> {
    fn new(bytes: &'a [u8]) -> Option<Parsed<'a>> {
        let packet = Packet::find(bytes).filter(Packet::is_plain)?;
        let segment = Segment::parse(packet.segment()).ok()?;
        let source = SocketAddr::new(packet.source, segment.head.source_port);
        let destination = SocketAddr::new(packet.destination, segment.head.destination_port);
        Some(Parsed { packet, source, destination, segment })
    }
}

/// Completes a checksum that covers the pseudo header only. It is where the header sums up to it.
fn complete(packet: &mut [u8], tcp: usize) {
    let checksum = Sum::default().bytes(&packet[tcp..]).checksum();
    packet[tcp + CHECKSUM..tcp + CHECKSUM + 2].copy_from_slice(&checksum.to_be_bytes());
}

/// Makes a segment one for `to` that acknowledges `ack`, in a packet that holds a whole TCP header
/// behind an IP header without options. The checksums change by the difference.
fn rewrite(packet: &mut [u8], to: SocketAddr, ack: Seq) {
    let (address, tcp, ip_checksum) = match to.ip() {
        IpAddr::V4(_) => (16..20, 20, Some(10)),
        IpAddr::V6(_) => (24..40, 40, None),
    };
    let checksums = [Some(tcp + CHECKSUM), ip_checksum];
    match to.ip() {
        IpAddr::V4(v4) => replace(packet, address.start, &v4.octets(), checksums),
        IpAddr::V6(v6) => replace(packet, address.start, &v6.octets(), checksums),
    }
    let checksums = [Some(tcp + CHECKSUM), None];
    replace(packet, tcp + DESTINATION_PORT, &to.port().to_be_bytes(), checksums);
    replace(packet, tcp + ACK, &ack.0.to_be_bytes(), checksums);
}

/// Replaces words of a packet, and changes these checksums accordingly.
fn replace(packet: &mut [u8], at: usize, words: &[u8], checksums: [Option<usize>; 2]) {
    for (n, word) in words.chunks_exact(2).enumerate() {
        let place = at + 2 * n;
        let before = be16(packet, place).unwrap_or(0);
        let after = u16::from_be_bytes([word[0], word[1]]);
        packet[place..place + 2].copy_from_slice(word);
        for checksum in checksums.into_iter().flatten() {
            let old = be16(packet, checksum).unwrap_or(0);
            let new = checksum::updated(old, before, after).checksum();
            packet[checksum..checksum + 2].copy_from_slice(&new.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests;
