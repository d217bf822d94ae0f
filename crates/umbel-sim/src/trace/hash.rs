//! Hash of a whole run.

use umbel_engine::Instant;

use super::{
    ChannelParts, MembershipRecord, MessageRecord, NoteRecord, PacketRecord, TraceError, Tracer,
};
use crate::packet::{Destination, Kind};

/// An odd number with its bits well mixed: 2⁶⁴ divided by the golden ratio.
const MULTIPLIER: u64 = 0x9E37_79B9_7F4A_7C15;

/// Computes one number from all events, payloads included. Two runs that differ in anything have
/// different numbers, except for a chance of 2⁻⁶⁴. The number is the same on any machine. It is no
/// protection against deliberate search for two runs with the same number.
#[derive(Clone, Debug)]
pub struct HashTracer {
    state: u64,
}

impl Default for HashTracer {
    fn default() -> HashTracer {
        HashTracer::new()
    }
}

impl HashTracer {
    /// Creates the tracer of a run without events so far.
    pub const fn new() -> HashTracer {
        HashTracer { state: MULTIPLIER }
    }

    /// Returns the number of the events so far.
    pub const fn digest(&self) -> u64 {
        // The last addition has not reached the low bits yet.
        let mixed = (self.state ^ (self.state >> 32)).wrapping_mul(MULTIPLIER);
        mixed ^ (mixed >> 29)
    }

    fn add(&mut self, word: u64) {
        self.state = (self.state.rotate_left(23) ^ word).wrapping_mul(MULTIPLIER);
        self.state ^= self.state >> 31;
    }

    /// Adds bytes after their number, so that no two sequences of them are equal.
    fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(bytes.len() as u64);
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.add(u64::from_le_bytes(word));
        }
    }

    /// Adds a value that may be absent.
    fn add_option(&mut self, value: Option<u64>) {
        self.add(u64::from(value.is_some()));
        self.add(value.unwrap_or_default());
    }

    fn add_channel(&mut self, channel: Option<ChannelParts>) {
        self.add_option(channel.map(|channel| u64::from(channel.group)));
        self.add_option(channel.and_then(|channel| channel.source).map(|node| u64::from(node.0)));
    }
}

impl Tracer for HashTracer {
    fn packet(&mut self, record: &PacketRecord<'_>) {
        let packet = record.packet;
        self.add(1 << 8 | record.what as u64);
        self.add(record.at.as_nanos());
        self.add_option(record.arrives.map(Instant::as_nanos));
        self.add_option(record.link.map(|link| u64::from(link.0)));
        self.add(u64::from(record.from.0) << 32 | u64::from(record.to.0));
        self.add(record.id);
        self.add(u64::from(packet.source.0) << 32 | u64::from(packet.flow.0));
        match packet.destination {
            Destination::Unicast(node) => self.add(u64::from(node.0)),
            Destination::Group(_) => self.add(u64::MAX),
        }
        self.add_channel(record.channel);
        let kind = match packet.kind {
            Kind::Data => 0,
            Kind::Repair => 1,
            Kind::Control => 2,
            Kind::Nak => 3,
            Kind::Announcement => 4,
            Kind::Other(number) => 256 + u64::from(number),
        };
        self.add(kind << 40 | u64::from(packet.hop_limit) << 32 | u64::from(packet.wire_len));
        self.add_bytes(&packet.payload);
    }

    fn note(&mut self, record: &NoteRecord<'_>) {
        self.add(2 << 8);
        self.add(record.at.as_nanos());
        self.add(u64::from(record.node.0));
        self.add_bytes(record.note.name.as_bytes());
        for value in record.note.values {
            self.add(value.to_bits());
        }
    }

    fn message(&mut self, record: &MessageRecord<'_>) {
        self.add(3 << 8);
        self.add(record.at.as_nanos());
        self.add(u64::from(record.from.0) << 32 | u64::from(record.to.0));
        self.add(record.arrives.as_nanos());
        self.add_bytes(record.message);
    }

    fn membership(&mut self, record: &MembershipRecord) {
        self.add(4 << 8 | u64::from(record.joined));
        self.add(record.at.as_nanos());
        self.add(u64::from(record.node.0));
        self.add_channel(Some(record.channel));
    }

    fn finish(&mut self, end: Instant) -> Result<(), TraceError> {
        self.add(5 << 8);
        self.add(end.as_nanos());
        Ok(())
    }
}
