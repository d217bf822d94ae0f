//! Header and payload.

use std::fmt;
use std::ops::BitOr;

use super::{Options, Seq};
use crate::ParseError;
use crate::codec::Reader;

/// Control flags of a segment.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Flags(pub u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Flags = Flags(1);
    /// Synchronizes sequence numbers.
    pub const SYN: Flags = Flags(2);
    /// Resets the connection.
    pub const RST: Flags = Flags(4);
    /// The data should be handed to the application.
    pub const PSH: Flags = Flags(8);
    /// The acknowledgement number counts.
    pub const ACK: Flags = Flags(16);
    /// The urgent pointer counts. It is ignored.
    pub const URG: Flags = Flags(32);

    /// Returns whether all flags of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;

    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    /// Writes a letter for each flag, as `tcpdump` does: `S.` for SYN and ACK.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = [
            (Flags::SYN, "S"),
            (Flags::FIN, "F"),
            (Flags::RST, "R"),
            (Flags::PSH, "P"),
            (Flags::URG, "U"),
            (Flags::ACK, "."),
        ];
        letters.iter().filter(|(flag, _)| self.has(*flag)).try_for_each(|(_, l)| f.write_str(l))
    }
}

/// Header of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// Port of the sender.
    pub source_port: u16,
    /// Port of the receiver, or of the channel.
    pub destination_port: u16,
    /// Sequence number of the first byte of the payload, or of SYN or FIN.
    pub seq: Seq,
    /// The next sequence number that the sender expects. It counts only with [`Flags::ACK`].
    pub ack: Seq,
    /// Control flags.
    pub flags: Flags,
    /// Receive window of the sender, before it is shifted.
    pub window: u16,
    /// Options.
    pub options: Options,
}

impl Head {
    /// Length of a header without options.
    pub const MIN_LEN: usize = 20;
    /// Length of a header with all the options that it can have.
    pub const MAX_LEN: usize = Head::MIN_LEN + Options::MAX_LEN;

    /// Appends the header, with a checksum of 0.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut fixed = [0; Head::MIN_LEN];
        fixed[0..2].copy_from_slice(&self.source_port.to_be_bytes());
        fixed[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        fixed[4..8].copy_from_slice(&self.seq.0.to_be_bytes());
        fixed[8..12].copy_from_slice(&self.ack.0.to_be_bytes());
        fixed[13] = self.flags.0;
        fixed[14..16].copy_from_slice(&self.window.to_be_bytes());
        out.extend(fixed);
        self.options.emit(out);
        out[start + 12] = (((out.len() - start) / 4) << 4) as u8;
    }

    /// Returns the number of sequence numbers that SYN and FIN take.
    pub fn control_len(&self) -> u32 {
        u32::from(self.flags.has(Flags::SYN)) + u32::from(self.flags.has(Flags::FIN))
    }
}

/// A segment, as it was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment<'a> {
    /// Its header.
    pub head: Head,
    /// Its data.
    pub payload: &'a [u8],
}

impl<'a> Segment<'a> {
    /// Parses a segment. Its checksum is not verified.
    ///
    /// # Errors
    ///
    /// If the header is cut off, or its options are malformed ([`Options::parse`]).
    pub fn parse(bytes: &'a [u8]) -> Result<Segment<'a>, ParseError> {
        let mut reader = Reader::new("TCP header", bytes);
        let source_port = u16::from_be_bytes(reader.array()?);
        let destination_port = u16::from_be_bytes(reader.array()?);
        let seq = Seq(u32::from_be_bytes(reader.array()?));
        let ack = Seq(u32::from_be_bytes(reader.array()?));
        let header_len = usize::from(reader.byte()? >> 4) * 4;
        let flags = Flags(reader.byte()?);
        let window = u16::from_be_bytes(reader.array()?);
        reader.take(4)?;
        let options_len = header_len
            .checked_sub(Head::MIN_LEN)
            .ok_or_else(|| reader.bad("a header of less than 20 bytes"))?;
        let options = Options::parse(reader.take(options_len)?)?;
        let head = Head { source_port, destination_port, seq, ack, flags, window, options };
        Ok(Segment { head, payload: reader.rest() })
    }

    /// Returns the number of sequence numbers that the segment takes: `SEG.LEN`.
    pub fn len(&self) -> u32 {
        self.payload.len() as u32 + self.head.control_len()
    }

    /// Returns whether it takes no sequence number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the sequence number after the segment.
    pub fn end(&self) -> Seq {
        self.head.seq.plus(self.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tcp::{Membership, SackBlocks};

    #[test]
    fn a_header_is_laid_out_as_the_rfc_says() {
        let head = Head {
            source_port: 0x1F90,
            destination_port: 0xC001,
            seq: Seq(0x0102_0304),
            ack: Seq(0x0506_0708),
            flags: Flags::SYN | Flags::ACK,
            window: 0xFFFE,
            options: Options { mss: Some(1460), window_scale: Some(0), ..Options::default() },
        };
        let mut bytes = Vec::new();
        head.emit(&mut bytes);
        assert_eq!(bytes[..8], [0x1F, 0x90, 0xC0, 1, 1, 2, 3, 4]);
        assert_eq!(bytes[8..20], [5, 6, 7, 8, 0x70, 0x12, 0xFF, 0xFE, 0, 0, 0, 0]);
        assert_eq!(bytes[20..], [2, 4, 0x05, 0xB4, 1, 3, 3, 0]);
        assert_eq!(format!("{:?}", head.flags), "S.");
        let segment = Segment::parse(&bytes).unwrap();
        assert_eq!((segment.len(), segment.end()), (1, Seq(0x0102_0305)));
        assert!(!segment.is_empty());
    }

    #[test]
    fn a_cut_header_is_refused() {
        let mut bytes = Vec::new();
        Head { options: Options { mss: Some(9), ..Options::default() }, ..Head::default() }
            .emit(&mut bytes);
        for len in 0..bytes.len() {
            assert!(Segment::parse(&bytes[..len]).is_err(), "{len}");
        }
        bytes[12] = 0x40;
        assert!(Segment::parse(&bytes).is_err());
    }

    fn options() -> impl Strategy<Value = Options> {
        let blocks = proptest::collection::vec(any::<(u32, u32)>(), 0..=4);
        let others = (any::<Option<u16>>(), proptest::option::of(0..=14_u8), any::<bool>());
        let membership = prop_oneof![
            any::<u16>().prop_map(Membership::Port),
            any::<u8>().prop_map(Membership::Other),
        ];
        (others, blocks, proptest::option::of(membership)).prop_map(
            |((mss, window_scale, sack_permitted), blocks, membership)| {
                let mut sack = SackBlocks::default();
                // As many as fit beside the others.
                let other = [mss.is_some(), window_scale.is_some(), sack_permitted];
                let words = other.iter().filter(|is_there| **is_there).count();
                let room = (36 - 4 * words - 8 * usize::from(membership.is_some())) / 8;
                let blocks = blocks.into_iter().take(room);
                blocks.for_each(|(left, right)| sack.push(Seq(left), Seq(right)));
                Options { mss, window_scale, sack_permitted, sack, membership }
            },
        )
    }

    proptest! {
        #[test]
        fn segments_come_back(
            ports: (u16, u16), numbers: (u32, u32), flags: u8, window: u16, options in options(),
            payload: Vec<u8>,
        ) {
            let head = Head {
                source_port: ports.0,
                destination_port: ports.1,
                seq: Seq(numbers.0),
                ack: Seq(numbers.1),
                flags: Flags(flags),
                window,
                options,
            };
            let mut bytes = Vec::new();
            head.emit(&mut bytes);
            prop_assert!(bytes.len() <= Head::MAX_LEN && bytes.len() % 4 == 0);
            bytes.extend(&payload);
            prop_assert_eq!(Segment::parse(&bytes), Ok(Segment { head, payload: &payload }));
        }

        #[test]
        fn no_bytes_make_it_fail(bytes: Vec<u8>) {
            let _ = Segment::parse(&bytes);
            let _ = Options::parse(&bytes);
        }
    }
}
