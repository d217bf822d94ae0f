//! EXT_FTI: FEC Object Transmission Information in a header extension [RFC 5775 §4.2].
//!
//! The content is that of the scheme, and is padded to whole words:
//!
//! ```text
//! Compact No-Code [RFC 5445 §3]        Reed–Solomon [RFC 5510 §5.2]
//! +-------+-------+-------+-------+    +-------+-------+-------+-------+
//! |  64   |   4   |     object    |    |  64   |   3   |     object    |
//! +-------+-------+               +    +-------+-------+               +
//! |             length            |    |             length            |
//! +---------------+---------------+    +---------------+-------+-------+
//! |       0       | symbol length |    | symbol length |   B   | max n |
//! +---------------+---------------+    +---------------+-------+-------+
//! |               B               |
//! +-------------------------------+    RaptorQ [RFC 6330 §3.3]
//!                                      +-------+-------+-------+-------+
//!                                      |  64   |   4   |     object    |
//!                                      +-------+-------+       +-------+
//!                                      |         length        |   0   |
//!                                      +---------------+-------+-------+
//!                                      | symbol length |   Z   | N high|
//!                                      +-------+-------+-------+-------+
//!                                      | N low |  Al   |       0       |
//!                                      +-------+-------+---------------+
//! ```
//!
//! B is the most source symbols of a block, max n the most encoding symbols; RaptorQ gives the
//! number of source blocks Z instead of B, the number of sub-blocks N (1 here) and the alignment
//! Al of symbols.

use crate::{Oti, OtiError, ParseError, Scheme};

/// Header extension type of EXT_FTI [RFC 5775 §4.2].
pub(crate) const HET: u8 = 64;

/// Longest EXT_FTI in bytes.
pub(crate) const MAX_LEN: usize = 16;

/// Bytes of the scheme's EXT_FTI.
pub(crate) const fn len(scheme: Scheme) -> usize {
    match scheme {
        Scheme::ReedSolomon => 12,
        Scheme::NoCode | Scheme::RaptorQ => 16,
    }
}

/// The EXT_FTI of an OTI that was checked; [`len`] of it is used.
pub(crate) fn emit(oti: &Oti) -> [u8; MAX_LEN] {
    let len = len(oti.scheme);
    let mut out = [0; MAX_LEN];
    out[0] = HET;
    out[1] = (len / 4) as u8;
    let object_len = oti.object_len.to_be_bytes();
    let symbol_len = oti.symbol_len.to_be_bytes();
    match oti.scheme {
        Scheme::NoCode => {
            out[2..8].copy_from_slice(&object_len[2..]);
            out[10..12].copy_from_slice(&symbol_len);
            out[12..16].copy_from_slice(&u32::from(oti.max_block_symbols).to_be_bytes());
        }
        Scheme::ReedSolomon => {
            out[2..8].copy_from_slice(&object_len[2..]);
            out[8..10].copy_from_slice(&symbol_len);
            out[10] = oti.max_block_symbols as u8;
            out[11] = oti.max_encoding_symbols as u8;
        }
        Scheme::RaptorQ => {
            out[2..7].copy_from_slice(&object_len[3..]);
            out[8..10].copy_from_slice(&symbol_len);
            out[10] = oti.raptorq_blocks();
            // One sub-block, which any alignment suits.
            out[11..13].copy_from_slice(&1_u16.to_be_bytes());
            out[13] = 1;
        }
    }
    out
}

/// Parses the EXT_FTI of a packet of this scheme, type and length included.
pub(crate) fn parse(scheme: Scheme, extension: &[u8]) -> Result<Oti, ParseError> {
    if extension.len() != len(scheme) {
        return Err(ParseError::Extension { het: HET, words: (extension.len() / 4) as u8 });
    }
    let symbol_len_at = if scheme == Scheme::NoCode { 10 } else { 8 };
    let symbol_len = number(&extension[symbol_len_at..symbol_len_at + 2]) as u16;
    let long = number(&extension[2..8]);
    let (object_len, max_block_symbols, max_encoding_symbols) = match scheme {
        Scheme::NoCode => (long, number(&extension[12..16]) as u32, 0),
        Scheme::ReedSolomon => (long, u32::from(extension[10]), u16::from(extension[11])),
        Scheme::RaptorQ => {
            let n = number(&extension[11..13]) as u16;
            return Ok(Oti::raptorq(long >> 8, symbol_len, (extension[10], n, extension[13]))?);
        }
    };
    let limit = scheme.max_block_symbols();
    let max_block_symbols = u16::try_from(max_block_symbols)
        .map_err(|_| OtiError::BlockSymbols { scheme, blocks: max_block_symbols, limit })?;
    let oti = Oti { scheme, object_len, symbol_len, max_block_symbols, max_encoding_symbols };
    oti.check()?;
    Ok(oti)
}

/// A big-endian number of up to 8 bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}
