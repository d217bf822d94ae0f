//! Bytes that follow from their position in a stream.

use std::sync::LazyLock;

use bytes::Bytes;

/// Length after which the bytes repeat: a prime number, so that no length of segments divides it.
const PERIOD: usize = 65_521;

static BLOCK: LazyLock<Bytes> = LazyLock::new(|| {
    let mut state = 1_u32;
    let mut block: Vec<u8> = (0..PERIOD)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .collect();
    block.extend_from_within(..);
    block.into()
});

/// Greatest length of a piece.
pub(super) const LONGEST: usize = PERIOD;

/// Returns the bytes from a position on, at most [`LONGEST`]. Nothing is copied.
pub(super) fn piece(position: u64, len: usize) -> Bytes {
    let start = (position % PERIOD as u64) as usize;
    BLOCK.slice(start..start + len.min(LONGEST))
}

/// Returns whether these are the bytes from a position on.
pub(super) fn is_right(position: u64, bytes: &[u8]) -> bool {
    let mut at = position;
    bytes.chunks(LONGEST).all(|chunk| {
        let start = (at % PERIOD as u64) as usize;
        at += chunk.len() as u64;
        BLOCK[start..start + chunk.len()] == *chunk
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shifted_is_wrong() {
        for position in [0, 7, 65_520, 1 << 33] {
            let bytes = piece(position, 1448);
            assert!(is_right(position, &bytes) && !is_right(position + 1, &bytes));
        }
        let long: Vec<u8> = [piece(5, LONGEST), piece(5 + LONGEST as u64, 9)].concat();
        assert!(is_right(5, &long));
    }
}
