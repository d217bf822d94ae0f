//! Checks of buffers and IDs that all codes share.

use std::ops::Range;

use crate::{FecError, SymbolSet};

/// Checks that the requested IDs are below `end`.
pub(crate) fn check_esis(esis: &Range<u32>, end: u32) -> Result<(), FecError> {
    match esis.end {
        last if last > end && !esis.is_empty() => {
            Err(FecError::Esi { esi: last - 1, start: 0, end })
        }
        _ => Ok(()),
    }
}

/// Checks the buffers of an encoding and copies the requested source symbols. Returns the rest of
/// `out`, which the repair symbols fill.
pub(crate) fn copy_source<'a>(
    k: u32,
    symbol_len: usize,
    source: &[u8],
    esis: &Range<u32>,
    out: &'a mut [u8],
) -> Result<&'a mut [u8], FecError> {
    check_len(source.len(), k, symbol_len)?;
    check_len(out.len(), esis.len() as u32, symbol_len)?;
    let copied = esis.start.min(k) as usize..esis.end.min(k) as usize;
    let (systematic, repair) = out.split_at_mut(copied.len() * symbol_len);
    if !copied.is_empty() {
        systematic.copy_from_slice(&source[copied.start * symbol_len..copied.end * symbol_len]);
    }
    Ok(repair)
}

/// Checks the arguments of a restoration; `end` is one more than the last ID.
pub(crate) fn check_restore(
    k: u32,
    symbol_len: usize,
    block: &[u8],
    present: &SymbolSet,
    repairs: &[(u32, &[u8])],
    end: u32,
) -> Result<(), FecError> {
    check_len(block.len(), k, symbol_len)?;
    if present.len() != k {
        return Err(FecError::SetLen { len: present.len(), expected: k });
    }
    for &(esi, symbol) in repairs {
        if !(k..end).contains(&esi) {
            return Err(FecError::Esi { esi, start: k, end });
        }
        if symbol.len() != symbol_len {
            return Err(FecError::SymbolLen { esi, len: symbol.len(), expected: symbol_len });
        }
    }
    Ok(())
}

/// Checks that a buffer has room for exactly `symbols` symbols.
fn check_len(len: usize, symbols: u32, symbol_len: usize) -> Result<(), FecError> {
    if symbol_len == 0 {
        return Err(FecError::NoSymbolLen);
    }
    let expected = (symbols as usize).saturating_mul(symbol_len);
    if len == expected { Ok(()) } else { Err(FecError::BufferLen { len, expected }) }
}
