//! Sealed packets of a repository: what only holders of a group key can read, and make.
//!
//! # Data packets
//!
//! A sealed data packet is a [data packet](crate::alc) with the header extension EXT_AUTH
//! [RFC 5651 §5.2.1], whose format a session is free to choose. The encoding symbol is sealed:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------------------------------------------------------+
//! |    LCT header of 7 words, as of a data packet; 9 words of LCT |
//! +---------------+---------------+-------------------------------+
//! |    HET = 1    |    HEL = 2    |       number of the key       |
//! +---------------+---------------+-------------------------------+
//! |          number of the packet, under this key                 |
//! +---------------------------------------------------------------+
//! |                         FEC Payload ID                        |
//! +---------------------------------------------------------------+
//! |                   sealed encoding symbol …                    |
//! |                     … and tag of 16 bytes                     |
//! ```
//!
//! The seal is AES-128-GCM. The nonce is 8 zero bytes and the packet's number; the associated data
//! are the 40 bytes before the symbol. A packet is thus 24 bytes longer than without a seal.
//!
//! # Messages of the control group
//!
//! ```text
//! number of the key (2 bytes) ‖ sender (8) ‖ number of the message (4) ‖ sealed message ‖ tag (16)
//! ```
//!
//! The nonce is the sender and the message's number under this key; the associated data are the 14
//! bytes before the message. Senders are numbered by the server, so that no two share a nonce.
//!
//! # Keys
//!
//! Both keys are derived from the secret of a [`GroupKey`](crate::repository::GroupKey), which
//! admitted clients receive on their sessions. The derivation is BLAKE3 `derive_key` with the
//! contexts `umbel 2026 repository: data channel` and `umbel 2026 repository: control group`, the
//! first 16 bytes of each.

use crate::alc::{self, DataHeader, DataPacket};
use crate::srm::MemberId;
use crate::{EmitError, ParseError};

/// Position of the extension in a sealed packet: after the LCT header.
const EXTENSION: usize = 28;
/// First two bytes of the extension: HET 1, and a length of 2 words.
const EXT_AUTH: [u8; 2] = [1, 2];
/// Position of the number of words of the LCT header, and this number with the extension.
const WORDS: (usize, u8) = (2, 9);

/// Length of the tag at the end of a sealed packet, in bytes.
pub const TAG_LEN: usize = 16;

/// The header of a sealed data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedHeader {
    /// The fields of any data packet.
    pub header: DataHeader,
    /// Number of the group key.
    pub key: u16,
    /// Number of the packet under this key. No two packets share it.
    pub number: u32,
}

impl SealedHeader {
    /// Length of a header in bytes.
    pub const LEN: usize = DataHeader::LEN + 8;
    /// Number of bytes by which sealing lengthens a data packet.
    pub const OVERHEAD: usize = SealedHeader::LEN - DataHeader::LEN + TAG_LEN;

    /// Returns the header's bytes, which the sealed symbol follows.
    ///
    /// # Errors
    ///
    /// Returns an error if a number is out of the scheme's range.
    pub fn emit(&self) -> Result<[u8; SealedHeader::LEN], EmitError> {
        let plain = self.header.emit()?;
        let mut bytes = [0; SealedHeader::LEN];
        bytes[..EXTENSION].copy_from_slice(&plain[..EXTENSION]);
        bytes[WORDS.0] = WORDS.1;
        bytes[EXTENSION..EXTENSION + 2].copy_from_slice(&EXT_AUTH);
        bytes[EXTENSION + 2..EXTENSION + 4].copy_from_slice(&self.key.to_be_bytes());
        bytes[EXTENSION + 4..EXTENSION + 8].copy_from_slice(&self.number.to_be_bytes());
        bytes[EXTENSION + 8..].copy_from_slice(&plain[EXTENSION..]);
        Ok(bytes)
    }
}

/// A sealed data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedPacket<'a> {
    /// Its header. Nothing of it is to be believed before the seal is opened.
    pub header: SealedHeader,
    /// The associated data: the header's bytes.
    pub associated: &'a [u8; SealedHeader::LEN],
    /// The sealed symbol and its tag.
    pub sealed: &'a [u8],
}

impl<'a> SealedPacket<'a> {
    /// Parses a UDP payload. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the packet is malformed, not sealed, or in a layout other than that
    /// which is drawn above.
    pub fn parse(packet: &'a [u8]) -> Result<SealedPacket<'a>, ParseError> {
        let (associated, sealed) = packet
            .split_first_chunk::<{ SealedHeader::LEN }>()
            .filter(|(_, sealed)| sealed.len() >= TAG_LEN)
            .ok_or(ParseError::Truncated {
                what: "sealed packet",
                need: SealedHeader::LEN + TAG_LEN,
                have: packet.len(),
            })?;
        if associated[WORDS.0] != WORDS.1 || associated[EXTENSION..EXTENSION + 2] != EXT_AUTH {
            return Err(ParseError::Value { what: "data packet", problem: "it has no seal" });
        }
        let mut plain = [0; DataHeader::LEN];
        plain[..EXTENSION].copy_from_slice(&associated[..EXTENSION]);
        plain[WORDS.0] = WORDS.1 - EXT_AUTH[1];
        plain[EXTENSION..].copy_from_slice(&associated[EXTENSION + 8..]);
        if !alc::is_fixed(number(&plain, 0)) {
            return Err(ParseError::Value { what: "sealed packet", problem: "another layout" });
        }
        let header = SealedHeader {
            header: DataPacket::parse(&plain)?.header,
            key: u16::from_be_bytes([associated[EXTENSION + 2], associated[EXTENSION + 3]]),
            number: number(associated, EXTENSION + 4),
        };
        Ok(SealedPacket { header, associated, sealed })
    }
}

/// A sealed message of the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealedMessage<'a> {
    /// Its header. Nothing of it is to be believed before the seal is opened.
    pub header: MessageHeader,
    /// The associated data: the header's bytes.
    pub associated: &'a [u8; MessageHeader::LEN],
    /// The sealed message and its tag.
    pub sealed: &'a [u8],
}

/// The header of a sealed message of the control group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageHeader {
    /// Number of the group key.
    pub key: u16,
    /// The sender's name in the group.
    pub sender: MemberId,
    /// Number of the message under this key. No two messages of a sender share it.
    pub number: u32,
}

impl MessageHeader {
    /// Length of a header in bytes.
    pub const LEN: usize = 14;

    /// Returns the header's bytes, which the sealed message follows.
    pub fn emit(&self) -> [u8; MessageHeader::LEN] {
        let mut bytes = [0; MessageHeader::LEN];
        bytes[..2].copy_from_slice(&self.key.to_be_bytes());
        bytes[2..10].copy_from_slice(&self.sender.0.to_be_bytes());
        bytes[10..].copy_from_slice(&self.number.to_be_bytes());
        bytes
    }
}

impl<'a> SealedMessage<'a> {
    /// Parses a UDP payload. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if it is too short.
    pub fn parse(payload: &'a [u8]) -> Result<SealedMessage<'a>, ParseError> {
        let (associated, sealed) = payload
            .split_first_chunk::<{ MessageHeader::LEN }>()
            .filter(|(_, sealed)| sealed.len() >= TAG_LEN)
            .ok_or(ParseError::Truncated {
                what: "sealed message",
                need: MessageHeader::LEN + TAG_LEN,
                have: payload.len(),
            })?;
        let sender = associated[2..10].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let header = MessageHeader {
            key: u16::from_be_bytes([associated[0], associated[1]]),
            sender: MemberId(sender),
            number: number(associated, 10),
        };
        Ok(SealedMessage { header, associated, sealed })
    }
}

/// Returns the big-endian number at `at`, which is within the bytes.
fn number<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use crate::reception::ChannelStamp;
    use crate::{Scheme, Toi, Tsi};

    use super::*;

    const HEADER: SealedHeader = SealedHeader {
        header: DataHeader {
            tsi: Tsi(0x0A0B_0C0D),
            toi: Toi(0x0102_0304),
            transmission: 0x1122_3344,
            index: 0x5566_7788,
            stamp: ChannelStamp { number: 1, sent_us: 2, place: 3 },
            scheme: Scheme::ReedSolomon,
            sbn: 0x01_0203,
            esi: 0xFE,
        },
        key: 0x0506,
        number: 0x0708_090A,
    };

    #[test]
    fn a_sealed_packet_is_laid_out_as_drawn() {
        let bytes = HEADER.emit().unwrap();
        assert_eq!(bytes[..4], [0x1C, 0xA0, 9, 5]);
        assert_eq!(bytes[28..36], [1, 2, 5, 6, 7, 8, 9, 0x0A]);
        assert_eq!(bytes[36..], [1, 2, 3, 0xFE]);
        let packet = [&bytes[..], &[9; 20]].concat();
        let parsed = SealedPacket::parse(&packet).unwrap();
        assert_eq!(parsed, SealedPacket { header: HEADER, associated: &bytes, sealed: &[9; 20] });
        // To others it is an ALC packet with an extension.
        assert_eq!(DataPacket::parse(&packet).unwrap().header, HEADER.header);
    }

    #[test]
    fn packets_without_a_seal_or_cut_short_are_refused() {
        let plain = [&HEADER.header.emit().unwrap()[..], &[9; 100]].concat();
        assert!(matches!(SealedPacket::parse(&plain), Err(ParseError::Value { .. })));
        let packet = [&HEADER.emit().unwrap()[..], &[9; TAG_LEN]].concat();
        SealedPacket::parse(&packet).unwrap();
        for len in 0..packet.len() {
            SealedPacket::parse(&packet[..len]).unwrap_err();
        }
    }

    /// TSI and TOI have two bytes each, as ALC permits, and an extension of a word takes the rest.
    #[test]
    fn a_sealed_packet_of_another_layout_is_refused() {
        let mut packet = [&HEADER.emit().unwrap()[..], &[9; 20]].concat();
        packet[1] = 0x14;
        packet[24] = 0xFF;
        DataPacket::parse(&packet).unwrap();
        SealedPacket::parse(&packet).unwrap_err();
    }

    #[test]
    fn a_sealed_message_is_laid_out_as_drawn() {
        let header =
            MessageHeader { key: 0x0102, sender: MemberId(0x0304_0506_0708_090A), number: 11 };
        let bytes = header.emit();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 0x0A, 0, 0, 0, 11]);
        let payload = [&bytes[..], &[9; 17]].concat();
        let parsed = SealedMessage::parse(&payload).unwrap();
        assert_eq!(parsed, SealedMessage { header, associated: &bytes, sealed: &[9; 17] });
        for len in 0..bytes.len() + TAG_LEN {
            SealedMessage::parse(&payload[..len]).unwrap_err();
        }
    }
}
