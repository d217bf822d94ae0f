//! The Layered Coding Transport header in any legal shape [RFC 5651 §5.1].
//!
//! It parses foreign shapes only. Umbel itself emits the fixed layout of [`alc`](crate::alc).

use crate::ParseError;

/// LCT version described in [RFC 5651].
const VERSION: u8 = 1;
/// Header extension types from this one on are one word long and have no length field
/// [RFC 5651 §5.2.1, erratum 3843].
const FIRST_FIXED_EXTENSION: u8 = 128;

/// A parsed LCT header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LctHeader<'a> {
    /// Words of the congestion control information; 0 beyond those that the packet has.
    pub(crate) cci: [u32; 4],
    pub(crate) cci_words: usize,
    pub(crate) tsi: u32,
    pub(crate) toi: u32,
    pub(crate) codepoint: u8,
    /// Header extensions, not yet parsed; whole words.
    pub(crate) extensions: &'a [u8],
    /// The packet's bytes after the header.
    pub(crate) payload: &'a [u8],
}

impl<'a> LctHeader<'a> {
    /// Parses an LCT header whose TSI and TOI fit 32 bits.
    pub(crate) fn parse(packet: &'a [u8]) -> Result<LctHeader<'a>, ParseError> {
        let truncated =
            |need| ParseError::Truncated { what: "LCT header", need, have: packet.len() };
        let &[version_c_psi, flags, words, codepoint, ..] = packet else {
            return Err(truncated(4));
        };
        if version_c_psi >> 4 != VERSION {
            return Err(ParseError::LctVersion(version_c_psi >> 4));
        }
        let half_word = usize::from(flags >> 4 & 1) * 2;
        let cci_len = (usize::from(version_c_psi >> 2 & 3) + 1) * 4;
        let tsi_len = usize::from(flags >> 7) * 4 + half_word;
        let toi_len = usize::from(flags >> 5 & 3) * 4 + half_word;
        let need = 4 + cci_len + tsi_len + toi_len;
        let len = usize::from(words) * 4;
        if len < need {
            return Err(ParseError::LctHeaderLen { len, need });
        }
        let (header, payload) = packet.split_at_checked(len).ok_or_else(|| truncated(len))?;
        let (fields, extensions) = header.split_at(need);
        let (cci, ids) = fields[4..].split_at(cci_len);
        let (tsi, toi) = ids.split_at(tsi_len);
        Ok(LctHeader {
            cci: [word(cci, 0), word(cci, 4), word(cci, 8), word(cci, 12)],
            cci_words: cci_len / 4,
            tsi: id("TSI", tsi)?,
            toi: id("TOI", toi)?,
            codepoint,
            extensions,
            payload,
        })
    }
}

/// Returns the big-endian word at `at`, or 0 beyond the end.
fn word(bytes: &[u8], at: usize) -> u32 {
    match bytes.get(at..at + 4) {
        Some(&[a, b, c, d]) => u32::from_be_bytes([a, b, c, d]),
        _ => 0,
    }
}

/// Returns an identifier of 16 bits or more whose value fits 32.
fn id(what: &'static str, bytes: &[u8]) -> Result<u32, ParseError> {
    let (high, low) = bytes.split_at(bytes.len().saturating_sub(4));
    if low.is_empty() {
        return Err(ParseError::Absent(what));
    }
    if high.iter().any(|byte| *byte != 0) {
        return Err(ParseError::IdTooWide(what));
    }
    Ok(low.iter().fold(0, |value, byte| value << 8 | u32::from(*byte)))
}

/// Checks that header extensions end where the header does. None of them is used.
pub(crate) fn check_extensions(mut rest: &[u8]) -> Result<(), ParseError> {
    while let &[het, hel, ..] = rest {
        let words = if het >= FIRST_FIXED_EXTENSION { 1 } else { hel };
        let tail = rest.get(usize::from(words) * 4..).filter(|_| words > 0);
        rest = tail.ok_or(ParseError::Extension { het, words })?;
    }
    Ok(())
}
