//! Data packets of feeds: ALC [RFC 5775] with the Small Block Systematic FEC scheme, FEC Encoding
//! ID 129 [RFC 5445 §5].
//!
//! Each packet carries the number of source symbols of its block, so a feed needs no transmission
//! information beforehand and blocks may differ in size. The header is that of [`alc`](crate::alc)
//! but for its FEC Payload ID, which has 64 bits, and for its congestion control information, which
//! has 64 bits if the packet has no [`ChannelStamp`]:
//!
//! ```text
//! +---------------------------------------------------------------+
//! |                      source block number                      |
//! +-------------------------------+-------------------------------+
//! |      source block length      |       encoding symbol ID      |
//! +-------------------------------+-------------------------------+
//! ```
//!
//! The scheme is under-specified: its FEC Instance ID, which is conveyed outside the packets,
//! selects the code. Umbel uses the systematic Reed–Solomon code over GF(2^8) of [RFC 5510].

use crate::lct::{self, LctHeader};
use crate::reception::ChannelStamp;
use crate::{EmitError, ParseError, Toi, Tsi};

/// Codepoint: the FEC Encoding ID.
const ENCODING_ID: u8 = 129;
/// V = 1, C = 1, S = 1, O = 1, H = 0, A = B = 0.
const FIRST_HALF: u16 = 0x14A0;
/// The same with a stamp: C = 3.
const STAMPED_HALF: u16 = 0x1CA0;
/// Length of the LCT header in 32-bit words, without a stamp.
const LCT_WORDS: u8 = 5;
/// Length of what precedes a piece of a symbol, in bytes.
pub const PIECE_LEN: usize = 4;
/// Maximum of encoding symbol IDs and source block lengths: the code has no more symbols.
const MAX_SYMBOLS: u16 = 255;

/// A data packet without its symbol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallBlockHeader {
    /// The session; unique together with the source address.
    pub tsi: Tsi,
    /// The object that the symbol belongs to.
    pub toi: Toi,
    /// First half of the congestion control information: the purpose of the packet, as the protocol
    /// numbers it.
    pub transmission: u32,
    /// Second half: number of the packet among those sent for this purpose.
    pub index: u32,
    /// Number and time of the packet on its channel, if the source measures its receivers' paths.
    pub stamp: Option<ChannelStamp>,
    /// Source block number.
    pub sbn: u32,
    /// Source symbols of the block; 1 to 255.
    pub block_symbols: u8,
    /// Encoding symbol ID; at most 254. Those below `block_symbols` are source symbols.
    pub esi: u8,
}

/// A data packet, its symbol borrowed from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmallBlockPacket<'a> {
    /// Header fields of the packet.
    pub header: SmallBlockHeader,
    /// The encoding symbol; a source symbol at the end of an object may be shorter than the others.
    pub symbol: &'a [u8],
}

impl SmallBlockHeader {
    /// Length of a header without a stamp, in bytes.
    pub const LEN: usize = 28;
    /// Length of a header with a stamp, in bytes.
    pub const STAMPED_LEN: usize = SmallBlockHeader::LEN + ChannelStamp::LEN;

    /// Writes the header to the start of `buf`; the symbol follows it in the packet. Returns the
    /// length of the header.
    ///
    /// # Errors
    ///
    /// Returns an error if the buffer is shorter than the header.
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let need = match self.stamp {
            Some(_) => SmallBlockHeader::STAMPED_LEN,
            None => SmallBlockHeader::LEN,
        };
        let have = buf.len();
        let out = buf.get_mut(..need).ok_or(EmitError::Buffer { need, have })?;
        out[4..8].copy_from_slice(&self.transmission.to_be_bytes());
        out[8..12].copy_from_slice(&self.index.to_be_bytes());
        let (half, words, rest) = match self.stamp {
            Some(stamp) => {
                let [number, time] = stamp.words();
                out[12..16].copy_from_slice(&number.to_be_bytes());
                out[16..20].copy_from_slice(&time.to_be_bytes());
                (STAMPED_HALF, LCT_WORDS + 2, 20)
            }
            None => (FIRST_HALF, LCT_WORDS, 12),
        };
        out[0..2].copy_from_slice(&half.to_be_bytes());
        out[2..4].copy_from_slice(&[words, ENCODING_ID]);
        let out = &mut out[rest..];
        out[0..4].copy_from_slice(&self.tsi.0.to_be_bytes());
        out[4..8].copy_from_slice(&self.toi.0.to_be_bytes());
        out[8..12].copy_from_slice(&self.sbn.to_be_bytes());
        out[12..14].copy_from_slice(&u16::from(self.block_symbols).to_be_bytes());
        out[14..16].copy_from_slice(&u16::from(self.esi).to_be_bytes());
        Ok(need)
    }

    /// Returns whether a packet begins with the flags that Umbel emits without a stamp, so that the
    /// fields of its LCT header are where it puts them, and is of this scheme.
    pub(crate) fn is_of_fixed_layout(packet: &[u8]) -> bool {
        packet.starts_with(&FIRST_HALF.to_be_bytes()) && packet.get(3) == Some(&ENCODING_ID)
    }
}

impl<'a> SmallBlockPacket<'a> {
    /// Returns whether a datagram looks like a packet of this scheme and not like a control
    /// message.
    pub fn is_one(datagram: &[u8]) -> bool {
        datagram.first().is_some_and(|first| first >> 4 == 1)
            && datagram.get(3) == Some(&ENCODING_ID)
    }

    /// Parses a UDP payload with any valid LCT header. Header extensions are skipped.
    ///
    /// # Errors
    ///
    /// Returns an error if the packet is malformed or of another scheme.
    pub fn parse(packet: &'a [u8]) -> Result<SmallBlockPacket<'a>, ParseError> {
        let lct = LctHeader::parse(packet)?;
        if lct.codepoint != ENCODING_ID {
            return Err(ParseError::Codepoint(lct.codepoint));
        }
        lct::check_extensions(lct.extensions)?;
        let have = lct.payload.len();
        let truncated = ParseError::Truncated { what: "FEC Payload ID", need: 8, have };
        let (&[s0, s1, s2, s3, k0, k1, e0, e1], symbol) =
            lct.payload.split_first_chunk::<8>().ok_or(truncated)?;
        let block_symbols = match u16::from_be_bytes([k0, k1]) {
            symbols @ 1..=MAX_SYMBOLS => symbols as u8,
            _ => return Err(bad("source block length", "not 1 to 255")),
        };
        let esi = u16::from_be_bytes([e0, e1]);
        if esi >= MAX_SYMBOLS {
            return Err(bad("encoding symbol ID", "above 254"));
        }
        let header = SmallBlockHeader {
            tsi: Tsi(lct.tsi),
            toi: Toi(lct.toi),
            transmission: lct.cci[0],
            index: lct.cci[1],
            stamp: (lct.cci_words == 4).then(|| ChannelStamp::from_words([lct.cci[2], lct.cci[3]])),
            sbn: u32::from_be_bytes([s0, s1, s2, s3]),
            block_symbols,
            esi: esi as u8,
        };
        Ok(SmallBlockPacket { header, symbol })
    }
}

/// A piece of a symbol that is too long for a packet. It stands in the symbol's place: offset and
/// length of the symbol, 16 bits each, and the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// Place of its first byte in the symbol.
    pub offset: u16,
    /// Length of the symbol.
    pub of: u16,
    /// The bytes, at least one, all within the symbol.
    pub bytes: &'a [u8],
}

impl<'a> Piece<'a> {
    /// Returns what precedes the bytes.
    pub fn head(offset: u16, of: u16) -> [u8; PIECE_LEN] {
        let ([a, b], [c, d]) = (offset.to_be_bytes(), of.to_be_bytes());
        [a, b, c, d]
    }

    /// Parses what stands in the place of a symbol.
    ///
    /// # Errors
    ///
    /// Returns an error if there is nothing, or more than the symbol has.
    pub fn parse(bytes: &'a [u8]) -> Result<Piece<'a>, ParseError> {
        let have = bytes.len();
        let truncated = ParseError::Truncated { what: "piece of a symbol", need: PIECE_LEN, have };
        let (&[a, b, c, d], bytes) = bytes.split_first_chunk::<PIECE_LEN>().ok_or(truncated)?;
        let (offset, of) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        if bytes.is_empty() || usize::from(offset) + bytes.len() > usize::from(of) {
            return Err(bad("piece of a symbol", "empty, or beyond its end"));
        }
        Ok(Piece { offset, of, bytes })
    }
}

fn bad(what: &'static str, problem: &'static str) -> ParseError {
    ParseError::Value { what, problem }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const HEADER: SmallBlockHeader = SmallBlockHeader {
        tsi: Tsi(0x0A0B_0C0D),
        toi: Toi(1),
        transmission: 0x1122_3344,
        index: 0x5566_7788,
        stamp: None,
        sbn: 0xFEDC_BA98,
        block_symbols: 64,
        esi: 0xFE,
    };

    fn packet(header: SmallBlockHeader) -> Vec<u8> {
        let mut packet = vec![0; SmallBlockHeader::LEN];
        header.emit(&mut packet).unwrap();
        packet.extend_from_slice(b"symbol");
        packet
    }

    #[test]
    fn a_packet_is_laid_out_as_drawn() {
        let packet = packet(HEADER);
        #[rustfmt::skip]
        let expected = [
            0x14, 0xA0, 5, 129,
            0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88,
            0x0A, 0x0B, 0x0C, 0x0D, 0, 0, 0, 1,
            0xFE, 0xDC, 0xBA, 0x98, 0, 64, 0, 0xFE,
        ];
        assert_eq!(packet[..28], expected);
        let parsed = SmallBlockPacket::parse(&packet).unwrap();
        assert_eq!(parsed, SmallBlockPacket { header: HEADER, symbol: b"symbol" });
        assert!(SmallBlockPacket::is_one(&packet) && !SmallBlockPacket::is_one(b"Um\x01\x81"));
    }

    #[test]
    fn a_packet_with_a_stamp_is_two_words_longer() {
        let stamp = ChannelStamp { number: 0x99AA_BBCC, sent_us: 0x00DD_EEFF, place: 9 };
        let header = SmallBlockHeader { stamp: Some(stamp), ..HEADER };
        let mut packet = vec![0; SmallBlockHeader::STAMPED_LEN];
        assert_eq!(header.emit(&mut packet), Ok(36));
        assert_eq!(packet[..4], [0x1C, 0xA0, 7, 129]);
        assert_eq!(packet[12..20], [0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 9]);
        assert_eq!(packet[20..28], [0x0A, 0x0B, 0x0C, 0x0D, 0, 0, 0, 1]);
        packet.extend_from_slice(b"symbol");
        let parsed = SmallBlockPacket::parse(&packet).unwrap();
        assert_eq!(parsed, SmallBlockPacket { header, symbol: b"symbol" });
    }

    #[test]
    fn symbols_and_blocks_beyond_the_code_are_refused() {
        for (at, value) in [(24, [0, 0]), (24, [1, 0]), (26, [0, 255]), (26, [1, 0])] {
            let mut packet = packet(HEADER);
            packet[at..at + 2].copy_from_slice(&value);
            let error = SmallBlockPacket::parse(&packet).unwrap_err();
            assert!(matches!(error, ParseError::Value { .. }), "{error}");
        }
        let mut other = packet(HEADER);
        other[3] = 5;
        assert_eq!(SmallBlockPacket::parse(&other), Err(ParseError::Codepoint(5)));
    }

    #[test]
    fn a_piece_lies_within_its_symbol() {
        let piece = |offset, of, bytes: &[u8]| [&Piece::head(offset, of)[..], bytes].concat();
        let bytes = piece(2, 5, b"abc");
        assert_eq!(Piece::parse(&bytes), Ok(Piece { offset: 2, of: 5, bytes: b"abc" }));
        for wrong in [piece(3, 5, b"abc"), piece(2, 5, b""), vec![0; 3], piece(u16::MAX, 9, b"a")] {
            assert!(Piece::parse(&wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_packet_cut_within_its_header_is_refused_at_every_byte() {
        let packet = packet(HEADER);
        for len in 0..SmallBlockHeader::LEN {
            let error = SmallBlockPacket::parse(&packet[..len]).unwrap_err();
            assert!(matches!(error, ParseError::Truncated { .. }), "{len}: {error}");
        }
        assert_eq!(HEADER.emit(&mut [0; 27]), Err(EmitError::Buffer { need: 28, have: 27 }));
    }
}
