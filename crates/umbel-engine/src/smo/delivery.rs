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
//!      membership option ≠ 0          a segment of its own that fits
//!   ────────────────────────▶ claimed ──────────────────────────────┐
//!                               │ one that does not                 ▼
//!      forgotten ◀──────────────┴─────────────────────────────── enrolled
//!                 its RST or SYN, the source's expected RST,      │    ▲
//!                 its ACK of the source's FIN, a long silence     │    │
//!                                           multicast to ─────────┘    │
//!                                           its channel's port         └── another membership,
//!                                                                          a greater ACK
//! ```
//!
//! # Forged segments
//!
//! Whoever can forge the source's address could otherwise have any connection served, and would
//! then write into it without knowing its port and numbers. So only the source's port matters, and
//! the numbers of a segment that changes something must be those of the connection: the source can
//! have acknowledged only what the connection has sent, and sends about what the connection expects
//! [RFC 5961 §5.2]. Multicast segments with RST or SYN are dropped.
//!
//! # Scope and limitations
//!
//! Whole TCP packets over IPv4 without options or IPv6 without extension headers. All others are
//! counted as malformed, and the source sends again by unicast.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use umbel_wire::checksum::{self, Sum};
use umbel_wire::ip::be16;
use umbel_wire::tcp::{Flags, Head, Membership, Packet, Segment, Seq};

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

/// Distance of a segment from the next byte that a connection expects, up to which it can be the
/// source's: more than windows are.
const NEAR: u32 = 1 << 25;
/// Bytes of a connection that the source may not have acknowledged when it is enrolled.
const UNDER_WAY: u32 = 1 << 16;

/// A connection that a segment of the source claims to be there.
#[derive(Clone, Copy, Debug)]
struct Claim {
    channel: u16,
    seq: Seq,
    ack: Seq,
}

impl Claim {
    /// Returns whether it fits to a segment that the connection itself sent.
    fn fits(&self, own: &Segment<'_>) -> bool {
        own.head.flags.has(Flags::ACK)
            && is_near(self.seq, own.head.ack)
            && own.end().0.wrapping_sub(self.ack.0) <= UNDER_WAY
    }
}

fn is_near(seq: Seq, next: Seq) -> bool {
    seq.since(next).unsigned_abs() <= NEAR
}

/// State of a connection, as far as it is known.
#[derive(Clone, Copy, Debug)]
struct State {
    /// Port of the channel that serves it.
    channel: u16,
    /// The greatest number that the source acknowledged: at most the connection's `SND.UNA`.
    ack: Seq,
    /// The number after the last byte that the connection has sent: its `SND.NXT`.
    sent: Seq,
    /// The greatest number that the connection acknowledged: at most its `RCV.NXT`.
    next: Seq,
    /// The number after the source's FIN, once it was seen.
    end: Option<Seq>,
    /// Whether anything was heard of it since [`Delivery::forget_silent`].
    heard: bool,
}

impl State {
    /// Returns whether a segment says what only who sees the connection knows.
    fn expects(&self, head: &Head) -> bool {
        head.flags.has(Flags::ACK)
            && head.ack.0.wrapping_sub(self.ack.0) <= self.sent.0.wrapping_sub(self.ack.0)
            && is_near(head.seq, self.next)
    }
}

/// Connections that are claimed to be there. Of too many, the earliest is forgotten.
#[derive(Debug, Default)]
struct Claims {
    all: BTreeMap<Connection, (u64, Claim)>,
    order: BTreeMap<u64, Connection>,
    made: u64,
}

impl Claims {
    fn take(&mut self, connection: &Connection) -> Option<Claim> {
        let (number, claim) = self.all.remove(connection)?;
        self.order.remove(&number);
        Some(claim)
    }

    fn put(&mut self, connection: Connection, claim: Claim, most: usize) {
        self.take(&connection);
        if self.all.len() >= most
            && let Some((_, earliest)) = self.order.pop_first()
        {
            self.all.remove(&earliest);
        }
        self.made += 1;
        self.all.insert(connection, (self.made, claim));
        self.order.insert(self.made, connection);
    }
}

/// Delivers the channels of one source and group to the connections of this host.
#[derive(Debug)]
pub struct Delivery {
    source: SocketAddr,
    group: IpAddr,
    own: BTreeSet<IpAddr>,
    connections: BTreeMap<Connection, State>,
    claims: Claims,
    max_connections: usize,
    counts: DeliveryCounts,
    /// The packet that is being rewritten.
    packet: Vec<u8>,
}

impl Delivery {
    /// Creates a delivery without connections. `max_connections` bounds their number.
    pub fn new(source: SocketAddr, group: IpAddr, max_connections: usize) -> Delivery {
        Delivery {
            source,
            group,
            own: BTreeSet::new(),
            connections: BTreeMap::new(),
            claims: Claims::default(),
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
            Direction::Out if parsed.destination == self.source => self.hear_own(&parsed),
            Direction::In if parsed.source != self.source => {}
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

    /// Forgets connections of which nothing was heard since the last call.
    pub fn forget_silent(&mut self) {
        self.connections.retain(|_, state| std::mem::take(&mut state.heard));
    }

    /// Learns from a unicast segment of the source.
    fn learn(&mut self, parsed: &Parsed<'_>) {
        let head = &parsed.segment.head;
        let key = Connection { local: parsed.destination, source_port: head.source_port };
        let membership = match head.options.membership {
            Some(Membership::Port(port)) => Some(port),
            Some(Membership::Other(version)) => {
                self.counts.other_version += 1;
                self.counts.their_version = version;
                None
            }
            None => None,
        };
        let Some(state) = self.connections.get_mut(&key) else {
            if let Some(channel) = membership.filter(|&channel| channel != 0)
                && head.flags.has(Flags::ACK)
                && !head.flags.has(Flags::RST)
            {
                let claim = Claim { channel, seq: head.seq, ack: head.ack };
                self.claims.put(key, claim, self.max_connections);
            }
            return;
        };
        if head.flags.has(Flags::RST) {
            // [RFC 5961 §3.2]
            if head.seq == state.next {
                self.connections.remove(&key);
            }
            return;
        }
        if !state.expects(head) {
            return;
        }
        if membership == Some(0) {
            self.connections.remove(&key);
            return;
        }
        state.channel = membership.unwrap_or(state.channel);
        state.ack = head.ack;
        if head.flags.has(Flags::FIN) {
            state.end = Some(parsed.segment.end());
        }
    }

    /// Learns from a segment that a connection of this host sends.
    fn hear_own(&mut self, parsed: &Parsed<'_>) {
        let (own, head) = (&parsed.segment, &parsed.segment.head);
        let key = Connection { local: parsed.source, source_port: head.destination_port };
        let claim = self.claims.take(&key);
        if head.flags.has(Flags::RST) || head.flags.has(Flags::SYN) {
            self.connections.remove(&key);
            return;
        }
        let Some(state) = self.connections.get_mut(&key) else {
            let Some(claim) = claim.filter(|claim| claim.fits(own)) else { return };
            if self.connections.len() >= self.max_connections {
                self.counts.table_full += 1;
                return;
            }
            let Claim { channel, ack, .. } = claim;
            let (sent, next) = (own.end(), head.ack);
            let state = State { channel, ack, sent, next, end: None, heard: true };
            self.connections.insert(key, state);
            return;
        };
        state.heard = true;
        if state.sent.is_before(own.end()) {
            state.sent = own.end();
        }
        if head.flags.has(Flags::ACK) {
            if state.next.is_before(head.ack) {
                state.next = head.ack;
            }
            if state.end == Some(head.ack) {
                self.connections.remove(&key);
            }
        }
    }

    /// Hands a multicast segment to the connections that its channel serves.
    fn deliver(
        &mut self,
        parsed: &Parsed<'_>,
        checksum: Checksum,
        deliver: &mut dyn FnMut(SocketAddr, &[u8]),
    ) {
        let head = &parsed.segment.head;
        // The source multicasts neither, and either would end a connection.
        if head.flags.has(Flags::RST) || head.flags.has(Flags::SYN) {
            self.counts.malformed += 1;
            return;
        }
        self.counts.segments += 1;
        let end = parsed.segment.end();
        // A damaged segment is left to the kernel to drop, but it must end nothing.
        let fin = head.flags.has(Flags::FIN)
            && (checksum == Checksum::Partial || parsed.packet.is_sound());
        let mut copied = false;
        let mut enrolled = false;
        for (connection, state) in &mut self.connections {
            if state.channel != head.destination_port {
                continue;
            }
            enrolled = true;
            if fin {
                state.end = Some(end);
            }
            if !state.next.is_before(end) {
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
