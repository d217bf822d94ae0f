//! Packets of layers that their source has signed.
//!
//! A signed packet has the header extension EXT_AUTH [RFC 5651 §5.2.1], whose format a session is
//! free to choose. Receivers that do not know it skip it:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +---------------------------------------------------------------+
//! |   LCT header of 5 words, as of a data packet; 22 words of LCT |
//! +---------------+---------------+-------------------------------+
//! |    HET = 1    |   HEL = 17    |  high bits of packet's number |
//! +---------------+---------------+-------------------------------+
//! |                 Ed25519 signature of 64 bytes                 |
//! +---------------------------------------------------------------+
//! |                         FEC Payload ID                        |
//! +---------------------------------------------------------------+
//! |                        encoding symbol …                      |
//! ```
//!
//! The signature [RFC 8032] is over
//!
//! ```text
//! CONTEXT ‖ version of the announcement (8 bytes) ‖ layer (1) ‖ the packet without the signature
//! ```
//!
//! So it covers the stream (`tsi`), the layer, the place of the symbol, the time of sending and the
//! packet's number. The number has 48 bits, of which `index` is the low half. No two packets of a
//! layer share one, so a packet that is sent again by others is known for what it is.
//!
//! Each packet is right or wrong by itself, whatever was lost. It is 68 bytes longer for that.

use std::ops::Range;

use crate::small_block::SmallBlockHeader;
use crate::{Digest, EmitError};

/// Bytes that precede what is signed of a packet. No other use of the key signs them.
pub const CONTEXT: &[u8] = b"umbel 2026 stream packet\n";
/// Bytes that precede what is signed of a file that a source repairs.
pub const FILE_CONTEXT: &[u8] = b"umbel 2026 stream file\n";
/// Length of a signature in bytes.
pub const SIGNATURE_LEN: usize = 64;
/// Greatest number of a packet: 2^48 - 1.
pub const MAX_NUMBER: u64 = (1 << 48) - 1;

/// Position of the extension: after the LCT header.
const EXTENSION: usize = 20;
/// First two bytes of the extension: HET 1, and a length of 17 words.
const EXT_AUTH: [u8; 2] = [1, 17];
/// Position of the number of words of the LCT header, and this number with the extension.
const WORDS: (usize, u8) = (2, 22);
/// Position of the signature.
const SIGNATURE: Range<usize> = 24..88;
/// Position of the low half of the packet's number.
const INDEX: Range<usize> = 8..12;

/// The header of a signed packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedHeader {
    /// The fields of any packet of a layer. Its `index` is the low half of the packet's number.
    pub header: SmallBlockHeader,
    /// The high half of the packet's number.
    pub turn: u16,
}

impl SignedHeader {
    /// Length of a header in bytes.
    pub const LEN: usize = SmallBlockHeader::LEN + 4 + SIGNATURE_LEN;

    /// Returns the header's bytes with zeros in place of the signature. The symbol follows them.
    ///
    /// # Errors
    ///
    /// As [`SmallBlockHeader::emit`].
    pub fn emit(&self) -> Result<[u8; SignedHeader::LEN], EmitError> {
        let mut plain = [0; SmallBlockHeader::LEN];
        self.header.emit(&mut plain)?;
        let mut bytes = [0; SignedHeader::LEN];
        bytes[..EXTENSION].copy_from_slice(&plain[..EXTENSION]);
        bytes[WORDS.0] = WORDS.1;
        bytes[EXTENSION..EXTENSION + 2].copy_from_slice(&EXT_AUTH);
        bytes[EXTENSION + 2..SIGNATURE.start].copy_from_slice(&self.turn.to_be_bytes());
        bytes[SIGNATURE.end..].copy_from_slice(&plain[EXTENSION..]);
        Ok(bytes)
    }

    /// Puts the signature into a header's bytes.
    pub fn sign(bytes: &mut [u8; SignedHeader::LEN], signature: &[u8; SIGNATURE_LEN]) {
        bytes[SIGNATURE].copy_from_slice(signature);
    }
}

/// A signed packet, borrowing the datagram. Whether the signature is right is not looked at here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignedPacket<'a> {
    /// Number of the packet in its layer, at most [`MAX_NUMBER`].
    pub number: u64,
    /// The signature.
    pub signature: &'a [u8; SIGNATURE_LEN],
    /// The bytes before the signature.
    before: &'a [u8],
    /// The bytes after it.
    after: &'a [u8],
}

impl<'a> SignedPacket<'a> {
    /// Splits a datagram at its signature. Returns `None` if it has none in the place where Umbel
    /// puts it. Otherwise nothing but the number was read.
    pub fn split(packet: &'a [u8]) -> Option<SignedPacket<'a>> {
        let (head, _) = packet.split_first_chunk::<{ SignedHeader::LEN }>()?;
        let signed = SmallBlockHeader::is_of_fixed_layout(head)
            && head[WORDS.0] == WORDS.1
            && head[EXTENSION..EXTENSION + 2] == EXT_AUTH;
        if !signed {
            return None;
        }
        let turn = u16::from_be_bytes([head[EXTENSION + 2], head[EXTENSION + 3]]);
        let index = u32::from_be_bytes(head[INDEX].try_into().ok()?);
        Some(SignedPacket {
            number: u64::from(turn) << 32 | u64::from(index),
            signature: packet[SIGNATURE].try_into().ok()?,
            before: &packet[..SIGNATURE.start],
            after: &packet[SIGNATURE.end..],
        })
    }

    /// Writes to `out`, in place of what it has, what is signed of the packet.
    pub fn message(&self, version: u64, layer: u8, out: &mut Vec<u8>) {
        message((version, layer), self.before, &[self.after], out);
    }
}

/// Writes to `out`, in place of what it has, what is signed of a packet with this header. Whatever
/// is in place of the signature does not count.
pub fn message_of(
    header: &[u8; SignedHeader::LEN],
    symbol: &[u8],
    (version, layer): (u64, u8),
    out: &mut Vec<u8>,
) {
    let (before, after) = (&header[..SIGNATURE.start], &header[SIGNATURE.end..]);
    message((version, layer), before, &[after, symbol], out);
}

fn message((version, layer): (u64, u8), before: &[u8], after: &[&[u8]], out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(CONTEXT);
    out.extend_from_slice(&version.to_be_bytes());
    out.push(layer);
    out.extend_from_slice(before);
    for part in after {
        out.extend_from_slice(part);
    }
}

/// Returns what is signed of a file that receivers fetch from the source: the version of the
/// announcement, the digest of the content, and the name.
pub fn file_message(version: u64, name: &str, digest: &Digest) -> Vec<u8> {
    [FILE_CONTEXT, &version.to_be_bytes(), &digest.0, name.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::small_block::tests::HEADER;
    use crate::{SmallBlockPacket, Toi, Tsi};

    fn header() -> SignedHeader {
        SignedHeader { header: HEADER, turn: 0x99AA }
    }

    fn packet(header: SignedHeader, symbol: &[u8]) -> Vec<u8> {
        let mut head = header.emit().unwrap();
        SignedHeader::sign(&mut head, &[0xE7; SIGNATURE_LEN]);
        [&head[..], symbol].concat()
    }

    #[test]
    fn the_layout_is_that_of_the_diagram() {
        let bytes = packet(header(), b"symbol");
        assert_eq!(bytes.len(), 96 + 6);
        assert_eq!(bytes[..4], [0x14, 0xA0, 22, 129]);
        assert_eq!(bytes[20..24], [1, 17, 0x99, 0xAA]);
        assert_eq!(bytes[24..88], [0xE7; 64]);
        assert_eq!(bytes[88..96], [0xFE, 0xDC, 0xBA, 0x98, 0, 64, 0, 0xFE]);
    }

    #[test]
    fn who_does_not_know_signatures_reads_the_packet_all_the_same() {
        let bytes = packet(header(), b"symbol");
        let parsed = SmallBlockPacket::parse(&bytes).unwrap();
        assert_eq!((parsed.header, parsed.symbol), (header().header, &b"symbol"[..]));
    }

    #[test]
    fn a_packet_without_a_signature_has_none() {
        let mut plain = vec![0; SmallBlockHeader::LEN];
        header().header.emit(&mut plain).unwrap();
        plain.extend_from_slice(&[0; 200]);
        assert_eq!(SignedPacket::split(&plain), None);
        let signed = packet(header(), b"");
        assert!(SignedPacket::split(&signed).is_some());
        for cut in 0..signed.len() {
            assert_eq!(SignedPacket::split(&signed[..cut]), None, "{cut}");
        }
        for at in [0, 1, 2, 3, 20, 21] {
            let mut other = signed.clone();
            other[at] ^= 1;
            assert_eq!(SignedPacket::split(&other), None, "{at}");
        }
    }

    #[test]
    fn a_file_has_its_version_name_and_content() {
        let message = file_message(7, "v0/1.m4s", &Digest([5; 32]));
        for other in [
            file_message(8, "v0/1.m4s", &Digest([5; 32])),
            file_message(7, "v0/2.m4s", &Digest([5; 32])),
            file_message(7, "v0/1.m4s", &Digest([6; 32])),
        ] {
            assert_ne!(message, other);
        }
    }

    proptest! {
        #[test]
        fn what_is_signed_is_the_same_at_both_ends_and_covers_every_byte(
            tsi in any::<u32>(), toi in any::<u32>(), transmission in any::<u32>(),
            index in any::<u32>(), turn in any::<u16>(), sbn in any::<u32>(),
            block_symbols in 1_u8..=255, esi in 0_u8..=254,
            symbol in prop::collection::vec(any::<u8>(), 0..100),
            version in any::<u64>(), layer in any::<u8>(),
            at in any::<prop::sample::Index>(), flip in 1_u8..=255,
        ) {
            let (tsi, toi) = (Tsi(tsi), Toi(toi));
            let header =
                SmallBlockHeader {
                    tsi,
                    toi,
                    transmission,
                    index,
                    stamp: None,
                    sbn,
                    block_symbols,
                    esi,
                };
            let header = SignedHeader { header, turn };
            let bytes = packet(header, &symbol);
            let (mut signed, mut checked) = (vec![1], vec![2]);
            message_of(&header.emit().unwrap(), &symbol, (version, layer), &mut signed);
            let split = SignedPacket::split(&bytes).unwrap();
            split.message(version, layer, &mut checked);
            prop_assert_eq!(&signed, &checked);
            prop_assert_eq!(split.number, u64::from(turn) << 32 | u64::from(index));
            let parsed = SmallBlockPacket::parse(&bytes).unwrap();
            prop_assert_eq!((parsed.header, parsed.symbol), (header.header, &symbol[..]));
            // Any change is one of the signature, or of what it is over, or leaves none.
            let mut other = bytes.clone();
            other[at.index(bytes.len())] ^= flip;
            if let Some(changed) = SignedPacket::split(&other) {
                changed.message(version, layer, &mut checked);
                prop_assert!(checked != signed || changed.signature != split.signature);
            }
            split.message(version ^ 1, layer, &mut checked);
            prop_assert_ne!(&signed, &checked);
            split.message(version, layer ^ 1, &mut checked);
            prop_assert_ne!(&signed, &checked);
        }
    }
}
