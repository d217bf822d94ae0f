//! Datagrams that the kernel or the network card can cut from one message.

use std::io::IoSlice;

use crate::sys;
use crate::udp::MAX_PAYLOAD;

/// Maximum number of datagrams of one batch, which every kernel with segmentation offload accepts.
pub(super) const MAX_SEGMENTS: usize = sys::MAX_SENT;

/// Successive datagrams that can be sent as one: of equal length, except for a shorter last one.
pub(super) struct Run<'a> {
    /// Head and body of each datagram.
    pub(super) slices: [[IoSlice<'a>; 2]; MAX_SEGMENTS],
    pub(super) count: usize,
    /// Length of each datagram but the last.
    pub(super) segment: usize,
    pub(super) bytes: usize,
    /// Whether the last datagram is shorter, so that none may follow.
    ended: bool,
}

impl Default for Run<'_> {
    fn default() -> Self {
        let slices = [[IoSlice::new(&[]); 2]; MAX_SEGMENTS];
        Run { slices, count: 0, segment: 0, bytes: 0, ended: false }
    }
}

impl<'a> Run<'a> {
    /// Returns whether a datagram of `bytes` cannot be added.
    pub(super) fn is_closed_to(&self, bytes: usize) -> bool {
        self.count > 0
            && (self.ended
                || self.count == MAX_SEGMENTS
                || bytes == 0
                || bytes > self.segment
                || self.bytes + bytes > MAX_PAYLOAD)
    }

    pub(super) fn push(&mut self, head: &'a [u8], body: &'a [u8]) {
        let bytes = head.len() + body.len();
        if self.count == 0 {
            self.segment = bytes;
        }
        self.slices[self.count] = [IoSlice::new(head), IoSlice::new(body)];
        self.count += 1;
        self.bytes += bytes;
        self.ended = bytes < self.segment;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_where_the_kernel_could_not_cut() {
        let closes = |lengths: &[usize], next: usize| {
            let body = vec![0; 65_507];
            let mut run = Run::default();
            for bytes in lengths {
                assert!(!run.is_closed_to(*bytes));
                run.push(&[], &body[..*bytes]);
            }
            run.is_closed_to(next)
        };
        assert!(!closes(&[], 0));
        assert!(closes(&[0], 0));
        assert!(closes(&[10], 0));
        assert!(!closes(&[10, 10], 10));
        assert!(!closes(&[10, 10], 9));
        assert!(closes(&[10, 10], 11));
        assert!(closes(&[10, 9], 9));
        assert!(closes(&[1; 64], 1));
        assert!(!closes(&[32_754], 32_753));
        assert!(closes(&[32_754], 32_754));
    }
}
