//! Data packets: ALC [RFC 5775] over LCT [RFC 5651], one encoding symbol each.
//!
//! Umbel emits one layout. Its header has 24 bytes; a packet that carries EXT_FTI
//! ([`DataHeader::oti`]) has 12 or 16 more between the TOI and the FEC Payload ID:
//!
//! ```text
//!  0                   1                   2                   3
//!  0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//! +-------+---+---+-+---+-+---+-+-+---------------+---------------+
//! | V = 1 |C=1| 0 |1|O=1|0| 0 |A|B| words of LCT  |   codepoint   |
//! +-------+---+---+-+---+-+---+-+-+---------------+---------------+
//! |                  CCI: transmission identifier                 |
//! +---------------------------------------------------------------+
//! |          CCI: index of the packet in its transmission         |
//! +---------------------------------------------------------------+
//! |                TSI: transport session identifier              |
//! +---------------------------------------------------------------+
//! |                 TOI: transport object identifier              |
//! +---------------------------------------------------------------+
//! |      FEC Payload ID: source block number, symbol number       |
//! +---------------------------------------------------------------+
//! |                       encoding symbol …                       |
//! ```
//!
//! - `A` closes the session, `B` closes the object.
//! - The codepoint is the FEC Encoding ID ([`Scheme::encoding_id`]). It decides how many bits of
//!   the FEC Payload ID are the source block number and how many the encoding symbol ID:
//!   16 + 16 for no code [RFC 5445 §3], 24 + 8 for Reed–Solomon [RFC 5510 §5.1],
//!   8 + 24 for RaptorQ [RFC 6330 §3.2].
//! - The congestion control information says which packet of which transmission this is, so that
//!   a receiver can tell loss from reordering and one transmission from the next.
//!
//! [`DataPacket::parse`] takes this layout on a fast path, and every other legal shape of an LCT
//! header with a TSI and a TOI that fit 32 bits. Of a foreign packet the first 64 bits of the
//! congestion control information are read like ours (with zeros where it has only 32); header
//! extensions other than EXT_FTI are skipped, and the protocol-specific and reserved bits are
//! ignored, as both RFCs demand.

use crate::lct::{self, LctHeader};
use crate::{EmitError, Oti, ParseError, Scheme, Toi, Tsi, fti};

/// First half of the fixed layout: V = 1, C = 1, S = 1, O = 1, H = 0, A = B = 0.
const FIRST_HALF: u16 = 0x14A0;
/// The A flag in the first half word.
const CLOSE_SESSION: u16 = 2;
/// The B flag in the first half word.
const CLOSE_OBJECT: u16 = 1;
/// Bytes of the LCT header without extensions; also where the first extension stands.
const LCT_LEN: usize = 20;
/// The fixed layout's first word without A, B and codepoint.
const FIXED_WORD: u32 = (FIRST_HALF as u32) << 16 | (LCT_LEN as u32 / 4) << 8;
/// The bits of the first word that [`FIXED_WORD`] says.
const FIXED_MASK: u32 = 0xFFFC_FF00;

/// A data packet, its symbol borrowed from the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPacket<'a> {
    /// The session; unique with the source address.
    pub tsi: Tsi,
    /// The object that the symbol belongs to.
    pub toi: Toi,
    /// The transmission that the packet belongs to.
    pub transmission: u32,
    /// Number of the packet within its transmission, from 0.
    pub index: u32,
    /// The code that the symbol comes from.
    pub scheme: Scheme,
    /// Source block number; at most [`Scheme::max_sbn`].
    pub sbn: u32,
    /// Encoding symbol ID; at most [`Scheme::max_esi`].
    pub esi: u32,
    /// The object's transmission information, where the packet carries EXT_FTI. Its
    /// `max_encoding_symbols` is 0 where the scheme ignores it, and RaptorQ's `max_block_symbols`
    /// is the smallest that gives the same source blocks.
    pub oti: Option<Oti>,
    /// The source sends nothing more in this session.
    pub close_session: bool,
    /// The source sends nothing more of this object.
    pub close_object: bool,
    /// The encoding symbol; the last source symbol of an object may be shorter than the others.
    pub symbol: &'a [u8],
}

/// Everything of a [`DataPacket`] but its symbol, which is sent from where it lies.
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
    /// The code that the symbol comes from.
    pub scheme: Scheme,
    /// Source block number; at most [`Scheme::max_sbn`].
    pub sbn: u32,
    /// Encoding symbol ID; at most [`Scheme::max_esi`].
    pub esi: u32,
    /// Transmission information of the object to put into EXT_FTI.
    pub oti: Option<Oti>,
    /// The source sends nothing more in this session.
    pub close_session: bool,
    /// The source sends nothing more of this object.
    pub close_object: bool,
}

impl<'a> DataPacket<'a> {
    /// Parses a UDP payload. Allocates nothing; costs a few nanoseconds for the fixed layout.
    ///
    /// # Errors
    ///
    /// What is wrong with the packet. A packet without a FEC Payload ID, as other sources may
    /// send to close a session, is [`ParseError::Truncated`].
    #[inline]
    pub fn parse(packet: &'a [u8]) -> Result<DataPacket<'a>, ParseError> {
        let Some((header, symbol)) = packet.split_first_chunk::<{ DataHeader::LEN }>() else {
            return parse_any(packet);
        };
        let first = word(header, 0);
        if first & FIXED_MASK != FIXED_WORD {
            return parse_any(packet);
        }
        let scheme = scheme(first as u8)?;
        let (sbn, esi) = split_payload_id(scheme, word(header, 20))?;
        Ok(DataPacket {
            tsi: Tsi(word(header, 12)),
            toi: Toi(word(header, 16)),
            transmission: word(header, 4),
            index: word(header, 8),
            scheme,
            sbn,
            esi,
            oti: None,
            close_session: first & u32::from(CLOSE_SESSION) << 16 != 0,
            close_object: first & u32::from(CLOSE_OBJECT) << 16 != 0,
            symbol,
        })
    }

    /// The packet without its symbol.
    pub fn header(&self) -> DataHeader {
        DataHeader {
            tsi: self.tsi,
            toi: self.toi,
            transmission: self.transmission,
            index: self.index,
            scheme: self.scheme,
            sbn: self.sbn,
            esi: self.esi,
            oti: self.oti,
            close_session: self.close_session,
            close_object: self.close_object,
        }
    }
}

/// Parses a packet in any legal shape.
#[cold]
fn parse_any(packet: &[u8]) -> Result<DataPacket<'_>, ParseError> {
    let lct = LctHeader::parse(packet)?;
    let scheme = scheme(lct.codepoint)?;
    let mut oti = None;
    let mut rest = lct.extensions;
    while let Some((het, extension)) = lct::next_extension(&mut rest)? {
        if het == fti::HET {
            oti = Some(fti::parse(scheme, extension)?);
        }
    }
    let (payload_id, symbol) = lct.payload.split_first_chunk::<4>().ok_or({
        ParseError::Truncated { what: "FEC Payload ID", need: 4, have: lct.payload.len() }
    })?;
    let (sbn, esi) = split_payload_id(scheme, u32::from_be_bytes(*payload_id))?;
    Ok(DataPacket {
        tsi: Tsi(lct.tsi),
        toi: Toi(lct.toi),
        transmission: lct.cci[0],
        index: lct.cci[1],
        scheme,
        sbn,
        esi,
        oti,
        close_session: lct.close_session,
        close_object: lct.close_object,
        symbol,
    })
}

/// The big-endian word at `at`, which is within the header.
#[inline]
fn word(header: &[u8; DataHeader::LEN], at: usize) -> u32 {
    u32::from_be_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

/// The scheme of a codepoint.
#[inline]
fn scheme(codepoint: u8) -> Result<Scheme, ParseError> {
    Scheme::from_encoding_id(codepoint).ok_or(ParseError::Codepoint(codepoint))
}

/// How many low bits of the FEC Payload ID are the encoding symbol ID.
#[inline]
const fn esi_bits(scheme: Scheme) -> u32 {
    match scheme {
        Scheme::NoCode => 16,
        Scheme::ReedSolomon => 8,
        Scheme::RaptorQ => 24,
    }
}

/// Source block number and encoding symbol ID of a FEC Payload ID.
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
    /// Bytes of a header without EXT_FTI.
    pub const LEN: usize = 24;

    /// Bytes of the longest header, with EXT_FTI.
    pub const MAX_LEN: usize = DataHeader::LEN + fti::MAX_LEN;

    /// Bytes that [`emit`](DataHeader::emit) writes.
    pub const fn header_len(&self) -> usize {
        match self.oti {
            None => DataHeader::LEN,
            Some(_) => DataHeader::LEN + fti::len(self.scheme),
        }
    }

    /// Writes the header to the start of `buf` and gives its length; the symbol follows it in
    /// the packet. Allocates nothing.
    ///
    /// # Errors
    ///
    /// The buffer is shorter than [`header_len`](DataHeader::header_len), a number is out of the
    /// scheme's range, or the OTI is not one of this scheme's; `buf` has not changed then.
    #[inline]
    pub fn emit(&self, buf: &mut [u8]) -> Result<usize, EmitError> {
        let payload_id = self.payload_id()?;
        self.check_oti()?;
        let len = self.header_len();
        let have = buf.len();
        let out = buf.get_mut(..len).ok_or(EmitError::Buffer { need: len, have })?;

        let flags = u16::from(self.close_session) * CLOSE_SESSION
            + u16::from(self.close_object) * CLOSE_OBJECT;
        out[0..2].copy_from_slice(&(FIRST_HALF | flags).to_be_bytes());
        out[2] = ((len - 4) / 4) as u8;
        out[3] = self.scheme.encoding_id();
        out[4..8].copy_from_slice(&self.transmission.to_be_bytes());
        out[8..12].copy_from_slice(&self.index.to_be_bytes());
        out[12..16].copy_from_slice(&self.tsi.0.to_be_bytes());
        out[16..20].copy_from_slice(&self.toi.0.to_be_bytes());
        if let Some(oti) = &self.oti {
            out[LCT_LEN..len - 4].copy_from_slice(&fti::emit(oti)[..fti::len(self.scheme)]);
        }
        out[len - 4..].copy_from_slice(&payload_id.to_be_bytes());
        Ok(len)
    }

    /// The FEC Payload ID.
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

    /// Whether the OTI can be sent with this packet.
    #[inline]
    fn check_oti(&self) -> Result<(), EmitError> {
        let Some(oti) = &self.oti else {
            return Ok(());
        };
        if oti.scheme != self.scheme {
            return Err(EmitError::Scheme { packet: self.scheme, oti: oti.scheme });
        }
        Ok(oti.check()?)
    }
}
