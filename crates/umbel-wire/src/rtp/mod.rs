//! RTP packets [RFC 3550 §5.1], to the extent that a relay needs them.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |V=2|P|X|  CC   |M|     PT      |        sequence number        |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |                           timestamp                           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |           synchronization source (SSRC) identifier            |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |        CC contributing sources (CSRC), 4 bytes each           |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  X: defined by profile        |  length in words, then words  |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  payload; P: the last byte tells the length of the padding    |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```

mod key_frame;
mod part;

use crate::ParseError;

pub use key_frame::VideoCodec;
pub use part::{MAX_PARTS, PART_HEAD, Part, parts};

/// Length of the fixed header in bytes.
pub const HEADER_LEN: usize = 12;
/// Length of a contributing source, and of the head of a header extension.
const WORD: usize = 4;

/// A checked RTP packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtpPacket<'a> {
    /// The marker, which profiles define. Most video formats set it in the last packet of a
    /// picture.
    pub marker: bool,
    /// Payload type, 0 to 127.
    pub payload_type: u8,
    /// Sequence number; grows by one with each packet, and wraps.
    pub sequence: u16,
    /// Sampling time of the first byte, in ticks of the payload's clock; wraps.
    pub timestamp: u32,
    /// Synchronization source.
    pub ssrc: u32,
    /// The payload, without padding.
    pub payload: &'a [u8],
}

/// The fields of a packet that a relay may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Payload type; at most 127.
    pub payload_type: u8,
    /// Sequence number.
    pub sequence: u16,
    /// Timestamp.
    pub timestamp: u32,
    /// Synchronization source.
    pub ssrc: u32,
}

impl<'a> RtpPacket<'a> {
    /// Parses a packet.
    ///
    /// # Errors
    ///
    /// Returns an error if the version is not 2, or if a part of the header or the padding does not
    /// fit. An RTCP packet [RFC 5761 §4] is an error, too.
    pub fn parse(bytes: &'a [u8]) -> Result<RtpPacket<'a>, ParseError> {
        let bad = |problem| ParseError::Value { what: "RTP packet", problem };
        let (fixed, rest) = bytes.split_first_chunk::<HEADER_LEN>().ok_or(bad("too short"))?;
        if fixed[0] >> 6 != 2 {
            return Err(bad("another version than 2"));
        }
        if is_rtcp(bytes) {
            return Err(bad("a packet of RTCP"));
        }
        let mut rest = rest.get(usize::from(fixed[0] & 0xF) * WORD..).ok_or(bad("too short"))?;
        if fixed[0] & 0x10 != 0 {
            let head = rest.first_chunk::<WORD>().ok_or(bad("too short"))?;
            let words = usize::from(u16::from_be_bytes([head[2], head[3]]));
            rest = rest.get(WORD + words * WORD..).ok_or(bad("too short"))?;
        }
        if fixed[0] & 0x20 != 0 {
            let padding = usize::from(*rest.last().ok_or(bad("padding without length"))?);
            let len = rest.len().checked_sub(padding).filter(|_| padding > 0);
            rest = &rest[..len.ok_or(bad("padding that does not fit"))?];
        }
        Ok(RtpPacket {
            marker: fixed[1] & 0x80 != 0,
            payload_type: fixed[1] & 0x7F,
            sequence: u16::from_be_bytes([fixed[2], fixed[3]]),
            timestamp: u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
            ssrc: u32::from_be_bytes([fixed[8], fixed[9], fixed[10], fixed[11]]),
            payload: rest,
        })
    }
}

/// Returns whether a packet that came to a port of RTP is one of RTCP [RFC 5761 §4].
pub fn is_rtcp(bytes: &[u8]) -> bool {
    matches!(bytes, [first, 192..=223, ..] if first >> 6 == 2)
}

/// Writes the identity into a packet. Does nothing with less than a fixed header.
pub fn identify(packet: &mut [u8], identity: Identity) {
    let Some(fixed) = packet.first_chunk_mut::<HEADER_LEN>() else { return };
    fixed[1] = fixed[1] & 0x80 | identity.payload_type & 0x7F;
    fixed[2..4].copy_from_slice(&identity.sequence.to_be_bytes());
    fixed[4..8].copy_from_slice(&identity.timestamp.to_be_bytes());
    fixed[8..12].copy_from_slice(&identity.ssrc.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two contributing sources, an extension of one word, a payload of 3 bytes and padding of 2.
    const WHOLE: [u8; 33] = [
        0xB2, 0xE0, 0x12, 0x34, 1, 2, 3, 4, 5, 6, 7, 8, // fixed
        0, 0, 0, 1, 0, 0, 0, 2, // contributing sources
        0xBE, 0xDE, 0, 1, 9, 9, 9, 9, // extension
        10, 11, 12, 0, 2,
    ];

    #[test]
    fn all_parts_of_a_packet_are_found() {
        let packet = RtpPacket::parse(&WHOLE).unwrap();
        let expected = RtpPacket {
            marker: true,
            payload_type: 96,
            sequence: 0x1234,
            timestamp: 0x0102_0304,
            ssrc: 0x0506_0708,
            payload: &[10, 11, 12],
        };
        assert_eq!(packet, expected);
        let bare = [0x80, 0x60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(RtpPacket::parse(&bare).unwrap().payload, &[] as &[u8]);
    }

    #[test]
    fn a_packet_whose_parts_do_not_fit_is_refused() {
        let mut unpadded = WHOLE;
        unpadded[0] &= !0x20;
        for cut in 0..28 {
            assert!(RtpPacket::parse(&unpadded[..cut]).is_err(), "{cut}");
        }
        for (at, byte) in [(0, 0x72), (0, 0xBF), (23, 3), (32, 0), (32, 6), (1, 200)] {
            let mut broken = WHOLE;
            broken[at] = byte;
            assert!(RtpPacket::parse(&broken).is_err(), "{at}: {byte}");
        }
        assert!(is_rtcp(&[0x80, 200, 0, 6]) && !is_rtcp(&WHOLE));
    }

    #[test]
    fn an_identity_is_written_and_nothing_else() {
        let identity =
            Identity { payload_type: 97, sequence: 0xFFFF, timestamp: 7, ssrc: 0xDEAD_BEEF };
        let mut bytes = WHOLE;
        identify(&mut bytes, identity);
        let Identity { payload_type, sequence, timestamp, ssrc } = identity;
        let before = RtpPacket::parse(&WHOLE).unwrap();
        let expected = RtpPacket { payload_type, sequence, timestamp, ssrc, ..before };
        assert_eq!(RtpPacket::parse(&bytes), Ok(expected));
        let mut short = [0; 5];
        identify(&mut short, identity);
        assert_eq!(short, [0; 5]);
    }
}
