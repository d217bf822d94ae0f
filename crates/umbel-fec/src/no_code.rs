//! Compact No-Code, FEC Encoding ID 0 [RFC 5445 §3]: source symbols and nothing else.

use std::ops::Range;

use umbel_wire::Scheme;

use crate::checks::{check_esis, check_restore, copy_source};
use crate::{FecError, SymbolSet};

/// Maximum number of source symbols in a block, limited by the 16-bit encoding symbol ID and our
/// `Oti`.
const MAX_SYMBOLS: u32 = 65_535;

/// Copies the source symbols `esis`.
pub(crate) fn encode(
    k: u32,
    symbol_len: usize,
    source: &[u8],
    esis: &Range<u32>,
    out: &mut [u8],
) -> Result<(), FecError> {
    check_k(k)?;
    check_esis(esis, k)?;
    copy_source(k, symbol_len, source, esis, out).map(|_| ())
}

/// Checks that the block is complete, because this scheme cannot compute symbols.
pub(crate) fn restore(
    k: u32,
    symbol_len: usize,
    block: &[u8],
    present: &SymbolSet,
    repairs: &[(u32, &[u8])],
) -> Result<u32, FecError> {
    check_k(k)?;
    check_restore(k, symbol_len, block, present, repairs, k)?;
    if present.is_full() {
        return Ok(0);
    }
    Err(FecError::NotEnough { held: present.count(), wanted: k })
}

fn check_k(k: u32) -> Result<(), FecError> {
    if (1..=MAX_SYMBOLS).contains(&k) {
        return Ok(());
    }
    Err(FecError::BlockSymbols { scheme: Scheme::NoCode, symbols: k, max: MAX_SYMBOLS })
}
