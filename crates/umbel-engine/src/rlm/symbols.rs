//! Encoding symbols of units.

use bytes::Bytes;
use umbel_fec::Code;
use umbel_wire::Scheme;

/// Length of the length that precedes a unit in its encoding symbol [RFC 6865 §5.2.3].
pub(super) const UNIT_LEN: usize = 2;

/// Returns `count` repair symbols of a block of units. An encoding symbol is a unit's length in two
/// bytes and the unit, filled up with zeros to the longest of the block. Empty if there are too
/// many symbols.
pub(super) fn repairs_of_units(units: &[Bytes], count: u8) -> Vec<Bytes> {
    let len = UNIT_LEN + units.iter().map(Bytes::len).max().unwrap_or(0);
    let mut block = vec![0; units.len() * len];
    for (place, unit) in block.chunks_exact_mut(len).zip(units) {
        let unit_len = u16::try_from(unit.len()).unwrap_or(u16::MAX);
        place[..UNIT_LEN].copy_from_slice(&unit_len.to_be_bytes());
        place[UNIT_LEN..UNIT_LEN + unit.len()].copy_from_slice(unit);
    }
    repairs(&block, len, units.len(), count)
}

/// Returns `count` repair symbols of a block of `symbols` symbols of `len` bytes. Empty if there
/// are too many symbols.
pub(super) fn repairs(block: &[u8], len: usize, symbols: usize, count: u8) -> Vec<Bytes> {
    let first = symbols as u32;
    let esis = first..first + u32::from(count);
    let mut out = vec![0; len * usize::from(count)];
    match Code::new(Scheme::ReedSolomon).encode(first, len, block, esis, &mut out) {
        Ok(()) => {
            let out = Bytes::from(out);
            (0..usize::from(count)).map(|n| out.slice(n * len..(n + 1) * len)).collect()
        }
        Err(_) => Vec::new(),
    }
}
