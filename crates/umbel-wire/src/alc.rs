//! Data packets: ALC [RFC 5775] over LCT [RFC 5651], one encoding symbol each.
//!
//! Umbel emits one layout, of 32 bytes:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+---+---+-+---+-+---+-+-+---------------+---------------+
//! | V = 1 |C=3| 0 |1|O=1|0| 0 |A|B| words of LCT  |   codepoint   |
//! +-------+---+---+-+---+-+---+-+-+---------------+---------------+
//! |                  CCI: transmission identifier                 |
//! +---------------------------------------------------------------+
//! |          CCI: index of the packet in its transmission         |
//! +---------------------------------------------------------------+
//! |           CCI: number of the packet on its channel            |
//! +-----------------------------------------------+---------------+
//! |        CCI: time of sending, microseconds     |   CCI: place  |
//! +-----------------------------------------------+---------------+
//! |                TSI: transport session identifier              |
//! +---------------------------------------------------------------+
//! |                 TOI: transport object identifier              |
//! +---------------------------------------------------------------+
//! |      FEC Payload ID: source block number, symbol number       |
//! +---------------------------------------------------------------+
//! |                       encoding symbol …                       |
//! ```
//!
//! - `A` closes the session, `B` the object. Umbel sets neither and ignores both: sessions end on
//!   the control channel.
//! - The codepoint is the FEC Encoding ID ([`Scheme::encoding_id`]). It decides how the bits of the
//!   FEC Payload ID are divided between source block number and encoding symbol ID. They are
//!   16 + 16 for no code [RFC 5445 §3], 24 + 8 for Reed–Solomon [RFC 5510 §5.1], 8 + 24 for RaptorQ
//!   [RFC 6330 §3.2].
//! - The congestion control information identifies the transmission and the packet within it. A
//!   receiver can thus tell loss from reordering and one transmission from the next. Its second half
//!   is the packet's [`ChannelStamp`], by which a receiver measures how fast packets arrive.
//!
//! [`DataPacket::parse`] takes this layout on a fast path. It also takes every other legal shape of
//! an LCT header with a TSI and a TOI that fit 32 bits. In a foreign packet the congestion control
//! information is read as in Umbel's, with zeros beyond its end.
//! Header extensions are skipped. The protocol-specific and reserved bits are ignored, as both RFCs
//! demand.

use crate::lct::{self, LctHeader};
use crate::reception::ChannelStamp;
use crate::{EmitError, ParseError, Scheme, Toi, Tsi};

/// Length of the LCT header without extensions, in bytes.
const LCT_LEN: u32 = 28;
/// The fixed layout's first word without A, B and codepoint: V = 1, C = 3, S = 1, O = 1, H = 0.
const FIXED_WORD: u32 = 0x1CA0_0000 | (LCT_LEN / 4) << 8;
/// The bits of the first word that [`FIXED_WORD`] defines.
const FIXED_MASK: u32 = 0xFFFC_FF00;

/// A data packet, its symbol borrowed from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPacket<'a> {
    /// The fields before the symbol.
    pub header: DataHeader,
    /// The encoding symbol; the last source symbol of an object may be shorter than the others.
    pub symbol: &'a [u8],
}

/// A data packet without its symbol, which is sent without copying.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataHeader {
    /// The session; unique with the source address.
    pub tsi: Tsi,
    /// The object that the symbol belongs to.
    pub toi: Toi,
    /// The transmission that the packet belongs to.
    pub transmission: u32,
    /// Number of the packet within its transmission, from 0.
    pub index: u32,
    /// Number and time of the packet on its channel.
    pub stamp: ChannelStamp,
    /// The code that the symbol comes from.
    pub scheme: Scheme,
    /// Source block number; at most [`Scheme::max_sbn`].
    pub sbn: u32,
    /// Encoding symbol ID; at most [`Scheme::max_esi`].
    pub esi: u32,
}

impl<'a> DataPacket<'a> {
    /// Parses a UDP payload. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if the packet is malformed. A packet without a FEC Payload ID, as other
    /// sources may send to close a session, is [`ParseError::Truncated`].
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<DataPacket<'a>, ParseError> {
        let Some((header, symbol)) = packet.split_first_chunk::<{ DataHeader::LEN }>() else {
            return parse_any(packet);
        };
        let first = word(header, 0);
        if !is_fixed(first) {
            return parse_any(packet);
        }
        let scheme = scheme(first as u8)?;
        let (sbn, esi) = split_payload_id(scheme, word(header, 28))?;
        let header = DataHeader {
            tsi: Tsi(word(header, 20)),
            toi: Toi(word(header, 24)),
            transmission: word(header, 4),
            index: word(header, 8),
            stamp: ChannelStamp::from_words([word(header, 12), word(header, 16)]),
            scheme,
            sbn,
            esi,
        };
        Ok(DataPacket { header, symbol })
    }
}

/// Returns whether the first word of a packet is that of the layout that Umbel emits.
pub(crate) const fn is_fixed(first: u32) -> bool {
    first & FIXED_MASK == FIXED_WORD
}

/// Parses a packet in any legal shape.
#[cold]
fn parse_any(packet: &[u8]) -> Result<DataPacket<'_>, ParseError> {
    let lct = LctHeader::parse(packet)?;
    let scheme = scheme(lct.codepoint)?;
    lct::check_extensions(lct.extensions)?;
    let (payload_id, symbol) = lct.payload.split_first_chunk::<4>().ok_or({
        ParseError::Truncated { what: "FEC Payload ID", need: 4, have: lct.payload.len() }
    })?;
    let (sbn, esi) = split_payload_id(scheme, u32::from_be_bytes(*payload_id))?;
    let header = DataHeader {
        tsi: Tsi(lct.tsi),
        toi: Toi(lct.toi),
        transmission: lct.cci[0],
        index: lct.cci[1],
        stamp: ChannelStamp::from_words([lct.cci[2], lct.cci[3]]),
        scheme,
        sbn,
        esi,
    };
    Ok(DataPacket { header, symbol })
}

/// Returns the big-endian word at `at`, which is within the header.
#[inline]
fn word(header: &[u8; DataHeader::LEN], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// Returns the scheme of a codepoint.
#[inline]
fn scheme(codepoint: u8) -> Result<Scheme, ParseError> {
    Scheme::from_encoding_id(codepoint).ok_or(ParseError::Codepoint(codepoint))
}

/// Returns the number of low bits of the FEC Payload ID that form the encoding symbol ID.
#[inline]
const fn esi_bits(scheme: Scheme) -> u32 {
    match scheme {
        Scheme::NoCode => 16,
        Scheme::ReedSolomon => 8,
        Scheme::RaptorQ => 24,
    }
}

/// Returns the source block number and the encoding symbol ID of a FEC Payload ID.
#[inline]
fn split_payload_id(scheme: Scheme, payload_id: u32) -> Result<(u32, u32), ParseError> {
    let bits = esi_bits(scheme);
    let (sbn, esi) = (payload_id >> bits, payload_id & ((1 << bits) - 1));
    let limit = scheme.max_esi();
    if esi > limit {
        return Err(ParseError::Esi { scheme, esi, limit });
    }
    Ok((sbn, esi))
}

impl DataHeader {
    /// Length of a header in bytes.
    pub const LEN: usize = 32;

    /// Returns the header's bytes, which the symbol follows in the packet. Allocates nothing.
    ///
    /// # Errors
    ///
    /// Returns an error if a number is out of the scheme's range.
    #[inline]
    pub fn emit(&self) -> Result<[u8; DataHeader::LEN], EmitError> {
        let [number, time] = self.stamp.words();
        let words = [
            FIXED_WORD | u32::from(self.scheme.encoding_id()),
            self.transmission,
            self.index,
            number,
            time,
            self.tsi.0,
            self.toi.0,
            self.payload_id()?,
        ];
        let mut bytes = [0; DataHeader::LEN];
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        Ok(bytes)
    }

    /// Returns the FEC Payload ID.
    #[inline]
    fn payload_id(&self) -> Result<u32, EmitError> {
        let DataHeader { scheme, sbn, esi, .. } = *self;
        let limit = scheme.max_sbn();
        if sbn > limit {
            return Err(EmitError::Sbn { scheme, sbn, limit });
        }
        let limit = scheme.max_esi();
        if esi > limit {
            return Err(EmitError::Esi { scheme, esi, limit });
        }
        Ok(sbn << esi_bits(scheme) | esi)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: DataHeader = DataHeader {
        tsi: Tsi(0x0A0B_0C0D),
        toi: Toi(0x0102_0304),
        transmission: 0x1122_3344,
        index: 0x5566_7788,
        stamp: ChannelStamp { number: 0x99AA_BBCC, sent_us: 0x00DD_EEFF, place: 9 },
        scheme: Scheme::ReedSolomon,
        sbn: 0x01_0203,
        esi: 0xFE,
    };

    fn emitted(header: &DataHeader) -> Vec<u8> {
        header.emit().unwrap().to_vec()
    }

    /// Emits the header, compares it with the bytes, and parses them with a symbol appended.
    #[track_caller]
    fn check(header: &DataHeader, bytes: &[u8]) {
        assert_eq!(emitted(header), bytes);
        let packet = [bytes, b"symbol"].concat();
        let parsed = DataPacket::parse(&packet).unwrap();
        assert_eq!(parsed, DataPacket { header: *header, symbol: b"symbol" });
    }

    #[test]
    fn a_reed_solomon_packet_is_laid_out_as_drawn() {
        check(
            &HEADER,
            &[
                0x1C, 0xA0, 7, 5, // V = 1, C = 3; S = 1, O = 1; 7 words; codepoint 5
                0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, // CCI
                0x99, 0xAA, 0xBB, 0xCC, 0xDD, 0xEE, 0xFF, 9, // CCI: the stamp
                0x0A, 0x0B, 0x0C, 0x0D, // TSI
                0x01, 0x02, 0x03, 0x04, // TOI
                0x01, 0x02, 0x03, 0xFE, // 24 bits of SBN, 8 bits of ESI
            ],
        );
    }

    #[test]
    fn a_packet_without_a_code_has_16_bits_for_each_number() {
        let header = DataHeader { scheme: Scheme::NoCode, sbn: 0x0102, esi: 0xFFFF, ..HEADER };
        let bytes = emitted(&header);
        check(&header, &bytes);
        assert_eq!((bytes[3], &bytes[28..]), (0, &[1, 2, 0xFF, 0xFF][..]));
    }

    #[test]
    fn a_raptorq_packet_has_8_bits_of_block_number() {
        let header = DataHeader { scheme: Scheme::RaptorQ, sbn: 0x7F, esi: 0xFF_FFFE, ..HEADER };
        let bytes = emitted(&header);
        check(&header, &bytes);
        assert_eq!((bytes[3], &bytes[28..]), (6, &[0x7F, 0xFF, 0xFF, 0xFE][..]));
    }

    #[test]
    fn the_close_flags_are_ignored() {
        let mut packet = emitted(&HEADER);
        packet[1] |= 3;
        assert_eq!(DataPacket::parse(&packet).unwrap().header, HEADER);
    }

    #[test]
    fn a_number_beyond_the_schemes_field_is_not_emitted() {
        use Scheme::{NoCode, RaptorQ, ReedSolomon};
        for (scheme, sbn, esi) in
            [(NoCode, 0xFFFF, 0xFFFF), (ReedSolomon, 0xFF_FFFF, 254), (RaptorQ, 0xFF, 0xFF_FFFF)]
        {
            let header = DataHeader { scheme, sbn, esi, ..HEADER };
            header.emit().unwrap();
            let error = DataHeader { sbn: sbn + 1, ..header }.emit();
            assert_eq!(error, Err(EmitError::Sbn { scheme, sbn: sbn + 1, limit: sbn }));
            let error = DataHeader { esi: esi + 1, ..header }.emit();
            assert_eq!(error, Err(EmitError::Esi { scheme, esi: esi + 1, limit: esi }));
        }
    }

    #[test]
    fn half_words_and_one_word_of_cci_are_read() {
        // C = 0, S = 0, O = 0, H = 1: TSI and TOI of 16 bits.
        let packet = [0x10, 0x10, 3, 5, 9, 8, 7, 6, 0, 1, 0, 2, 0, 0, 3, 4, b'x'];
        let parsed = DataPacket::parse(&packet).unwrap();
        assert_eq!((parsed.header.tsi, parsed.header.toi), (Tsi(1), Toi(2)));
        assert_eq!((parsed.header.transmission, parsed.header.index), (0x0908_0706, 0));
        assert_eq!(parsed.header.stamp, ChannelStamp::default());
        assert_eq!((parsed.header.sbn, parsed.header.esi, parsed.symbol), (3, 4, &b"x"[..]));
    }

    #[test]
    fn wide_identifiers_are_read_if_their_value_fits() {
        // C = 3 (128 bits), S = 1, O = 2, H = 1: TSI of 48 bits, TOI of 80.
        let mut packet = vec![0x1C, 0xD0, 9, 0];
        packet.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9]);
        packet.extend_from_slice(&[0, 0, 0xAA, 0, 0, 1]);
        packet.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0xBB, 0, 0, 2]);
        packet.extend_from_slice(&[0, 3, 0, 4, b'x']);
        let parsed = DataPacket::parse(&packet).unwrap();
        assert_eq!((parsed.header.tsi, parsed.header.toi), (Tsi(0xAA00_0001), Toi(0xBB00_0002)));
        assert_eq!((parsed.header.transmission, parsed.header.index), (1, 2));
        assert_eq!((parsed.header.sbn, parsed.header.esi, parsed.symbol), (3, 4, &b"x"[..]));
        let mut wide = packet.clone();
        wide[21] = 1;
        assert_eq!(DataPacket::parse(&wide), Err(ParseError::IdTooWide("TSI")));
        packet[26] = 1;
        assert_eq!(DataPacket::parse(&packet), Err(ParseError::IdTooWide("TOI")));
    }

    #[test]
    fn a_packet_must_have_both_identifiers() {
        let packet = [0x10, 0x20, 3, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(DataPacket::parse(&packet), Err(ParseError::Absent("TSI")));
        let packet = [0x10, 0x80, 3, 5, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(DataPacket::parse(&packet), Err(ParseError::Absent("TOI")));
    }

    #[test]
    fn header_extensions_are_skipped() {
        let plain = emitted(&HEADER);
        let mut packet = plain[..28].to_vec();
        packet[2] += 7;
        packet.extend_from_slice(&[193, 1, 2, 3]); // EXT_CENC, one word
        packet.extend_from_slice(&[2, 2, 0, 0, 0, 0, 0, 0]); // EXT_TIME, two words
        packet.extend_from_slice(&[64, 3, 0, 1, 2, 3, 4, 5, 5, 0x78, 0x80, 0xFF]); // EXT_FTI
        packet.extend_from_slice(&[0, 1, 0, 0]); // EXT_NOP
        packet.extend_from_slice(&plain[28..]);
        assert_eq!(DataPacket::parse(&packet).unwrap().header, HEADER);
    }

    #[test]
    fn protocol_specific_and_reserved_bits_are_ignored() {
        let mut packet = emitted(&HEADER);
        packet[0] |= 3;
        packet[1] |= 0x0C;
        assert_eq!(DataPacket::parse(&packet).unwrap().header, HEADER);
    }

    #[test]
    fn impossible_extensions_are_refused() {
        let plain = emitted(&HEADER);
        for words in [0, 3, 4, 255] {
            let mut packet = plain[..28].to_vec();
            packet[2] += 2;
            packet.extend_from_slice(&[64, words, 0, 0, 0, 0, 0, 0]);
            packet.extend_from_slice(&plain[28..]);
            let error = ParseError::Extension { het: 64, words };
            assert_eq!(DataPacket::parse(&packet), Err(error));
        }
    }

    #[test]
    fn an_unknown_extension_without_a_length_is_refused() {
        let mut packet = emitted(&HEADER);
        packet[2] = 8;
        packet.splice(28..28, [0, 0, 0, 0]); // EXT_NOP of no words
        let error = ParseError::Extension { het: 0, words: 0 };
        assert_eq!(DataPacket::parse(&packet), Err(error));
    }

    #[test]
    fn the_header_length_is_checked_against_fields_and_packet() {
        let packet = emitted(&HEADER);
        let with = |words: u8| {
            let mut packet = packet.clone();
            packet[2] = words;
            DataPacket::parse(&packet).unwrap_err()
        };
        assert_eq!(with(6), ParseError::LctHeaderLen { len: 24, need: 28 });
        assert_eq!(with(0), ParseError::LctHeaderLen { len: 0, need: 28 });
        assert_eq!(with(255), ParseError::Truncated { what: "LCT header", need: 1020, have: 32 });
        // An eighth word turns the FEC Payload ID into an extension, and none is left.
        let payload_id = ParseError::Truncated { what: "FEC Payload ID", need: 4, have: 0 };
        let mut packet = packet.clone();
        packet[2] = 8;
        packet[28..32].copy_from_slice(&[200, 0, 0, 0]);
        assert_eq!(DataPacket::parse(&packet), Err(payload_id));
    }

    #[test]
    fn other_versions_and_codepoints_are_refused() {
        let mut packet = emitted(&HEADER);
        packet[3] = 1;
        assert_eq!(DataPacket::parse(&packet), Err(ParseError::Codepoint(1)));
        packet[0] = 0x24;
        assert_eq!(DataPacket::parse(&packet), Err(ParseError::LctVersion(2)));
    }

    #[test]
    fn reed_solomon_has_no_symbol_255() {
        let mut packet = emitted(&HEADER);
        packet[31] = 255;
        let error = ParseError::Esi { scheme: Scheme::ReedSolomon, esi: 255, limit: 254 };
        assert_eq!(DataPacket::parse(&packet), Err(error));
    }

    #[test]
    fn a_packet_cut_within_its_header_is_refused_at_every_byte() {
        let packet = emitted(&HEADER);
        for len in 0..packet.len() {
            let error = DataPacket::parse(&packet[..len]).unwrap_err();
            assert!(matches!(error, ParseError::Truncated { .. }), "{len}: {error}");
        }
        assert_eq!(DataPacket::parse(&packet).unwrap().symbol, b"");
    }
}
