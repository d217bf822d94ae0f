//! Received data in order [RFC 9293 §3.10.7.4].

use std::collections::BTreeMap;

use bytes::Bytes;

/// Parts that came out of order, at most. A receive window of single bytes has no more room.
const MAX_PARTS: usize = 1024;

/// Puts data in order, by position. Its content is bounded by the receive window that its owner
/// enforces.
#[derive(Clone, Debug, Default)]
pub(super) struct Reassembly {
    /// The next position.
    next: u64,
    /// Bytes that came ahead of it, without overlaps.
    ahead: BTreeMap<u64, Bytes>,
    held: usize,
}

impl Reassembly {
    /// Creates one that waits for this position.
    pub(super) fn new(next: u64) -> Reassembly {
        Reassembly { next, ..Reassembly::default() }
    }

    /// Returns the next position.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Returns the position after the last byte that came.
    pub(super) fn end(&self) -> u64 {
        let last = self.ahead.last_key_value();
        last.map_or(self.next, |(&at, part)| at + part.len() as u64)
    }

    /// Returns the number of bytes that are held.
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Takes bytes at a position, for which there must be room. Returns whether any were new. The
    /// bytes that were received first stay.
    pub(super) fn insert(&mut self, mut at: u64, mut bytes: &[u8]) -> bool {
        let known = self.next.saturating_sub(at).min(bytes.len() as u64);
        (at, bytes) = (at + known, &bytes[known as usize..]);
        let mut new = false;
        while !bytes.is_empty() && self.ahead.len() < MAX_PARTS {
            if let Some((&before, part)) = self.ahead.range(..=at).next_back()
                && before + part.len() as u64 > at
            {
                let skip = (before + part.len() as u64 - at).min(bytes.len() as u64);
                (at, bytes) = (at + skip, &bytes[skip as usize..]);
                continue;
            }
            let room = self.ahead.range(at..).next().map_or(u64::MAX, |(&after, _)| after - at);
            let (part, rest) = bytes.split_at(bytes.len().min(room.min(1 << 32) as usize));
            self.ahead.insert(at, Bytes::copy_from_slice(part));
            self.held += part.len();
            new = true;
            (at, bytes) = (at + part.len() as u64, rest);
        }
        new
    }

    /// Takes the next part that is in order.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let part = self.ahead.remove(&self.next)?;
        self.next += part.len() as u64;
        self.held -= part.len();
        Some(part)
    }

    /// Gives up what is missing before the first part that is held. Returns the number of bytes
    /// given up.
    pub(super) fn skip(&mut self) -> u64 {
        let first = self.ahead.keys().next().copied().unwrap_or(self.next);
        first - std::mem::replace(&mut self.next, first)
    }

    /// Counts a position that carries no byte: FIN.
    pub(super) fn step(&mut self) {
        self.next += 1;
    }

    /// Returns the runs that are held, in order.
    pub(super) fn runs(&self) -> Vec<(u64, u64)> {
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for (&at, part) in &self.ahead {
            let end = at + part.len() as u64;
            match runs.last_mut() {
                Some((_, last)) if *last == at => *last = end,
                _ => runs.push((at, end)),
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_gap_can_be_given_up() {
        let mut parts = Reassembly::new(10);
        assert!(parts.insert(15, b"fgh") && parts.insert(18, b"i") && !parts.insert(16, b"xx"));
        assert_eq!((parts.pop(), parts.runs(), parts.held()), (None, vec![(15, 19)], 4));
        assert_eq!((parts.skip(), parts.next()), (5, 15));
        assert_eq!(parts.pop().as_deref(), Some(&b"fgh"[..]));
        assert_eq!((parts.skip(), parts.skip()), (0, 0));
    }

    proptest! {
        #[test]
        fn parts_in_any_order_make_the_whole(
            parts in prop::collection::vec((0_usize..300, 1_usize..60), 0..60),
        ) {
            let whole: Vec<u8> = (0..360).map(|n| (n % 251) as u8).collect();
            let (mut reassembly, mut got) = (Reassembly::new(0), Vec::new());
            let mut has = [false; 361];
            for (at, len) in parts {
                reassembly.insert(at as u64, &whole[at..at + len]);
                has[at..at + len].fill(true);
                while let Some(part) = reassembly.pop() {
                    got.extend_from_slice(&part);
                }
                let whole_to = has.iter().position(|has| !has).unwrap();
                prop_assert_eq!(&got[..], &whole[..whole_to]);
                prop_assert_eq!(reassembly.next(), whole_to as u64);
                let ahead = has.iter().filter(|has| **has).count() - whole_to;
                prop_assert_eq!(reassembly.held(), ahead);
            }
        }
    }
}
