//! Parts of RTP packets that are too long for one packet of a stream.
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |0 0|   part    |     parts     |     number of the packet      |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! |  bytes of the packet, as many in each part but the last       |
//! +-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//! ```
//!
//! An RTP packet begins with version 2, so the first two bits tell the two apart. The number is one
//! of the layer's own: sequence numbers are the sender's, which may repeat them.

use crate::ParseError;

/// Length of the head of a part in bytes.
pub const PART_HEAD: usize = 4;
/// Maximum number of parts of a packet.
pub const MAX_PARTS: u8 = 64;

/// A part of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part<'a> {
    /// Its place, from 0.
    pub part: u8,
    /// Number of the packet's parts, 2 to [`MAX_PARTS`].
    pub parts: u8,
    /// Number of the packet; grows by one, and wraps.
    pub packet: u16,
    /// Its bytes.
    pub body: &'a [u8],
}

impl<'a> Part<'a> {
    /// Parses a part; `None` if the bytes are none, but perhaps a whole packet.
    ///
    /// # Errors
    ///
    /// If they are a part that is malformed.
    pub fn parse(bytes: &'a [u8]) -> Result<Option<Part<'a>>, ParseError> {
        let malformed = ParseError::Value { what: "part of a packet", problem: "malformed" };
        match *bytes {
            [first, ..] if first >> 6 != 0 => Ok(None),
            [part, parts, high, low, ref body @ ..] if part < parts && parts <= MAX_PARTS => {
                if parts < 2 || body.is_empty() {
                    return Err(malformed);
                }
                let packet = u16::from_be_bytes([high, low]);
                Ok(Some(Part { part, parts, packet, body }))
            }
            _ => Err(malformed),
        }
    }
}

/// Cuts a packet into parts of about the same length, at most `most` bytes with their heads. Empty
/// if there would be more than [`MAX_PARTS`].
pub fn parts(packet: &[u8], number: u16, most: usize) -> Vec<Vec<u8>> {
    let count = packet.len().div_ceil(most.saturating_sub(PART_HEAD).max(1)).max(2);
    if count > usize::from(MAX_PARTS) || most <= PART_HEAD {
        return Vec::new();
    }
    // Rounding up may leave fewer parts than that.
    let len = packet.len().div_ceil(count).max(1);
    let bodies = packet.chunks(len);
    let count = bodies.len() as u8;
    let [high, low] = number.to_be_bytes();
    let emit = |(part, body): (u8, &[u8])| [&[part, count, high, low], body].concat();
    (0..).zip(bodies).map(emit).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_packet_of_seven_ts_packets_becomes_two_parts_that_fit() {
        let packet: Vec<u8> = (0..1328).map(|n| n as u8).collect();
        let parts = parts(&packet, 0xABCD, 1302);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [668, 668]);
        let read: Vec<Part<'_>> =
            parts.iter().map(|part| Part::parse(part).unwrap().unwrap()).collect();
        assert_eq!((read[0].part, read[0].parts, read[0].packet), (0, 2, 0xABCD));
        assert_eq!((read[1].part, read[1].parts, read[1].packet), (1, 2, 0xABCD));
        assert_eq!([read[0].body, read[1].body].concat(), packet);
    }

    #[test]
    fn what_is_no_part_is_told_from_what_is_broken() {
        assert_eq!(Part::parse(&[0x80, 96, 0, 1]), Ok(None));
        for broken in [&[][..], &[0], &[0, 2, 0], &[0, 2, 0, 1], &[0, 1, 0, 1, 9]] {
            assert!(Part::parse(broken).is_err(), "{broken:?}");
        }
        for broken in [[2, 2, 0, 1, 9], [0, 65, 0, 1, 9], [0x3F, 0x3F, 0, 1, 9]] {
            assert!(Part::parse(&broken).is_err(), "{broken:?}");
        }
        assert!(parts(&[0; 2000], 1, PART_HEAD).is_empty());
        assert!(parts(&[0; 65], 1, PART_HEAD + 1).is_empty());
    }

    proptest! {
        #[test]
        fn parts_fit_and_make_the_packet_again(len in 2_usize..70_000, most in 40_usize..9_000) {
            let packet: Vec<u8> = (0..len).map(|n| (n % 251) as u8).collect();
            let parts = parts(&packet, 7, most);
            prop_assert_eq!(parts.is_empty(), len > usize::from(MAX_PARTS) * (most - PART_HEAD));
            prop_assert!(parts.iter().all(|part| part.len() <= most));
            let read: Vec<Part<'_>> =
                parts.iter().map(|part| Part::parse(part).unwrap().unwrap()).collect();
            for (n, part) in read.iter().enumerate() {
                prop_assert_eq!((usize::from(part.part), usize::from(part.parts)), (n, read.len()));
            }
            if !parts.is_empty() {
                let bodies: Vec<&[u8]> = read.iter().map(|part| part.body).collect();
                prop_assert_eq!(bodies.concat(), packet);
            }
        }
    }
}
