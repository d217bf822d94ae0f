//! Packets of a run as they would be captured, for Wireshark and similar programs.
//!
//! A packet is recorded when it enters a link, at the near end, with IPv4 and UDP headers around
//! the payload that the simulation carries. So our data packets dissect as ALC once UDP port 7702
//! is decoded as such (`tshark -d udp.port==7702,alc`). Addresses are those that the engines see
//! ([`address_of`], [`channel`]). The captured length is that of the real payload. The length on
//! the wire is the one that the simulation counts.
//!
//! A pcapng file has an interface for each link, with packets from its first end as outgoing and
//! those from its second as incoming. It has two more interfaces:
//!
//! - `drops` has a copy of each packet that a link or a node dropped, at the time of the drop. The
//!   reason is its comment. Exclude it with `frame.interface_name != "drops"`.
//! - `sessions` has the messages of sessions in plain, each as one or more datagrams between the
//!   session ports. On a real network they are encrypted.
//!
//! A pcap file distinguishes neither links nor reasons, so it has no drops.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::Path;

use umbel_engine::Instant;
use umbel_wire::ip::UdpV4;

use super::output::Output;
use super::{Hop, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer};
use crate::address::{PORT, address_of, channel};
use crate::network::{Network, NodeId};
use crate::packet::{Destination, Kind};

/// Port of packets that are neither data nor repairs.
const CONTROL_PORT: u16 = 7701;
/// Port at both ends of a session.
const SESSION_PORT: u16 = 7700;
/// Link type of packets that begin with the IP header.
const LINKTYPE_RAW: u32 = 101;
/// Nanoseconds as negative power of ten.
const NANOSECONDS: u8 = 9;

/// Format of a capture file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PcapFormat {
    /// An interface for each link, comments on drops.
    PcapNg,
    /// The older format, with nanoseconds.
    Pcap,
}

/// Writes a capture of a run: see the [module](self).
#[derive(Debug)]
pub struct PcapTracer {
    network: Network,
    format: PcapFormat,
    output: Output,
    /// Identifications of the messages.
    messages: u16,
}

/// Captured packet.
struct Capture<'a> {
    at: Instant,
    interface: u32,
    /// `Some(true)` if the packet left the first end of the link.
    outbound: Option<bool>,
    headers: UdpV4,
    payload: &'a [u8],
    wire_len: u32,
    comment: Option<String>,
}

impl PcapTracer {
    /// Creates the file, or empties it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be created.
    pub fn create(
        path: &Path,
        format: PcapFormat,
        network: &Network,
    ) -> Result<PcapTracer, TraceError> {
        let mut output = Output::create(path)?;
        output.write(|file| match format {
            PcapFormat::PcapNg => begin_pcapng(file, network),
            PcapFormat::Pcap => begin_pcap(file),
        });
        Ok(PcapTracer { network: network.clone(), format, output, messages: 0 })
    }

    fn drops(&self) -> u32 {
        self.network.link_count() as u32
    }

    fn sessions(&self) -> u32 {
        self.drops() + 1
    }

    fn write(&mut self, capture: &Capture<'_>) {
        let format = self.format;
        self.output.write(|file| match format {
            PcapFormat::PcapNg => write_pcapng(file, capture),
            PcapFormat::Pcap => write_pcap(file, capture),
        });
    }

    /// Returns the reason why a packet was dropped, in words.
    fn reason(&self, record: &PacketRecord<'_>) -> String {
        let (from, to) = (self.network.name(record.from), self.network.name(record.to));
        match record.what {
            Hop::Sent | Hop::Delivered => String::new(),
            Hop::Lost => format!("lost from {from} to {to}"),
            Hop::QueueDrop => format!("dropped by the queue from {from} to {to}"),
            Hop::Down => format!("the link from {from} to {to} is down"),
            Hop::NoRoute => format!("{from} knows no way to the destination"),
            Hop::HopLimit => format!("the hop limit ran out at {from}"),
        }
    }
}

impl Tracer for PcapTracer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let (interface, comment) = match record.what {
            Hop::Delivered => return,
            Hop::Sent => (record.link.map_or(self.drops(), |link| link.0), None),
            _ if self.format == PcapFormat::Pcap => return,
            _ => (self.drops(), Some(self.reason(record))),
        };
        let outbound = record.link.filter(|_| record.what == Hop::Sent).map(|link| {
            let (a, _) = self.network.ends(link);
            a == record.from
        });
        let capture = Capture {
            at: record.at,
            interface,
            outbound,
            headers: headers(record),
            payload: &record.packet.payload,
            wire_len: record.packet.wire_len,
            comment,
        };
        self.write(&capture);
    }

    /// Ignores notes, which are no packets.
    fn note(&mut self, _record: &NoteRecord<'_>) {}

    fn message(&mut self, record: &MessageRecord<'_>) {
        let session_end = |node| SocketAddrV4::new(address_of(node), SESSION_PORT);
        for payload in record.message.chunks(UdpV4::MAX_PAYLOAD) {
            self.messages = self.messages.wrapping_add(1);
            let headers = UdpV4 {
                source: session_end(record.from),
                destination: session_end(record.to),
                ttl: 64,
                identification: self.messages,
            };
            let capture = Capture {
                at: record.at,
                interface: self.sessions(),
                outbound: None,
                headers,
                payload,
                wire_len: 0,
                comment: None,
            };
            self.write(&capture);
        }
    }

    fn failed(&self) -> bool {
        self.output.failed()
    }

    fn finish(&mut self, _end: Instant) -> Result<(), TraceError> {
        self.output.finish()
    }
}

/// Returns the headers of a packet. The source port is that of the destination, since packets of
/// the simulation name none.
fn headers(record: &PacketRecord<'_>) -> UdpV4 {
    let packet = record.packet;
    let port = match packet.kind {
        Kind::Data | Kind::Repair => PORT,
        Kind::Control | Kind::Nak | Kind::Announcement | Kind::Other(_) => CONTROL_PORT,
    };
    let destination = match (packet.destination, record.channel) {
        (Destination::Unicast(node), _) => address_of(node),
        (Destination::Group(_), Some(parts)) => group_address(parts.source, parts.group),
        (Destination::Group(id), None) => group_address(None, id.0),
    };
    UdpV4 {
        source: SocketAddrV4::new(address_of(packet.source), port),
        destination: SocketAddrV4::new(destination, port),
        ttl: packet.hop_limit,
        identification: record.id as u16,
    }
}

fn group_address(source: Option<NodeId>, group: u32) -> Ipv4Addr {
    match channel(source, group).group {
        std::net::IpAddr::V4(address) => address,
        std::net::IpAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

impl Capture<'_> {
    /// Returns the captured bytes: headers, and as much of the payload as fits a datagram.
    fn bytes(&self) -> ([u8; UdpV4::LEN], &[u8]) {
        (
            self.headers.emit(self.payload),
            &self.payload[..self.payload.len().min(UdpV4::MAX_PAYLOAD)],
        )
    }

    /// Returns the number of captured bytes and that of bytes on the wire, which is never smaller.
    fn lengths(&self, payload: &[u8]) -> (u32, u32) {
        let captured = (UdpV4::LEN + payload.len()) as u32;
        (captured, captured.max(self.wire_len))
    }
}

/// Writes the file header of pcap, in the byte order of little-endian machines.
fn begin_pcap(file: &mut BufWriter<File>) -> io::Result<()> {
    for word in [0xA1B2_3C4D, 0x0004_0002, 0, 0, 0x0004_0000, LINKTYPE_RAW] {
        file.write_all(&u32::to_le_bytes(word))?;
    }
    Ok(())
}

fn write_pcap(file: &mut BufWriter<File>, capture: &Capture<'_>) -> io::Result<()> {
    let (headers, payload) = capture.bytes();
    let (captured, wire) = capture.lengths(payload);
    let ns = capture.at.as_nanos();
    for word in [(ns / 1_000_000_000) as u32, (ns % 1_000_000_000) as u32, captured, wire] {
        file.write_all(&word.to_le_bytes())?;
    }
    file.write_all(&headers)?;
    file.write_all(payload)
}

/// Writes the section header and a description of each interface.
fn begin_pcapng(file: &mut BufWriter<File>, network: &Network) -> io::Result<()> {
    const COMMENT: u16 = 1;
    const APPLICATION: u16 = 4;
    let mut block = Block::new(0x0A0D_0D0A);
    block.words(&[0x1A2B_3C4D, 0x0000_0001, u32::MAX, u32::MAX]);
    block.option(COMMENT, b"A simulated run. Decode UDP port 7702 as ALC.");
    block.option(APPLICATION, concat!("umbel-sim ", env!("CARGO_PKG_VERSION")).as_bytes());
    block.write(file)?;

    for (link, a, b) in network.links() {
        let (a, b) = (network.name(a), network.name(b));
        let rate = network.specs(link).0.rate.map(umbel_engine::units::Rate::bits_per_s);
        interface(&format!("{a}-{b}"), &format!("out: {a} to {b}, in: {b} to {a}"), rate)
            .write(file)?;
    }
    interface("drops", "packets that did not get through", None).write(file)?;
    interface("sessions", "messages of sessions, in plain", None).write(file)
}

/// Returns the description of an interface.
fn interface(name: &str, description: &str, bits_per_s: Option<u64>) -> Block {
    const NAME: u16 = 2;
    const DESCRIPTION: u16 = 3;
    const SPEED: u16 = 8;
    const RESOLUTION: u16 = 9;
    let mut block = Block::new(1);
    block.words(&[LINKTYPE_RAW, 0]);
    block.option(NAME, name.as_bytes());
    block.option(DESCRIPTION, description.as_bytes());
    if let Some(speed) = bits_per_s {
        block.option(SPEED, &speed.to_le_bytes());
    }
    block.option(RESOLUTION, &[NANOSECONDS]);
    block
}

fn write_pcapng(file: &mut BufWriter<File>, capture: &Capture<'_>) -> io::Result<()> {
    const COMMENT: u16 = 1;
    const FLAGS: u16 = 2;
    const INBOUND: u32 = 1;
    const OUTBOUND: u32 = 2;
    let (headers, payload) = capture.bytes();
    let (captured, wire) = capture.lengths(payload);
    let ns = capture.at.as_nanos();
    let mut block = Block::new(6);
    block.words(&[capture.interface, (ns >> 32) as u32, ns as u32, captured, wire]);
    block.bytes(&[&headers, payload]);
    if let Some(outbound) = capture.outbound {
        let flags = if outbound { OUTBOUND } else { INBOUND };
        block.option(FLAGS, &flags.to_le_bytes());
    }
    if let Some(comment) = &capture.comment {
        block.option(COMMENT, comment.as_bytes());
    }
    block.write(file)
}

/// Block of a pcapng file, in the byte order of little-endian machines.
struct Block {
    bytes: Vec<u8>,
    has_options: bool,
}

impl Block {
    fn new(kind: u32) -> Block {
        let mut block = Block { bytes: Vec::with_capacity(128), has_options: false };
        block.words(&[kind, 0]);
        block
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.bytes.extend_from_slice(&word.to_le_bytes());
        }
    }

    /// Adds bytes, and pads the last word of them.
    fn bytes(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    /// Adds an option, which is truncated if it is too long.
    fn option(&mut self, code: u16, value: &[u8]) {
        let value = &value[..value.len().min(usize::from(u16::MAX))];
        self.bytes.extend_from_slice(&code.to_le_bytes());
        self.bytes.extend_from_slice(&(value.len() as u16).to_le_bytes());
        self.bytes(&[value]);
        self.has_options = true;
    }

    fn write(mut self, file: &mut impl Write) -> io::Result<()> {
        if self.has_options {
            self.words(&[0]);
        }
        let len = (self.bytes.len() + 4) as u32;
        self.words(&[len]);
        self.bytes[4..8].copy_from_slice(&len.to_le_bytes());
        file.write_all(&self.bytes)
    }
}
