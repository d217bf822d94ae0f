//! The receive window of a child, which limits what it may be sent.

use std::time::Duration;

use umbel_wire::tcp::{Head, Seq};

use crate::Instant;

/// The receive window of a child.
#[derive(Clone, Copy, Debug)]
pub(super) struct PeerWindow {
    shift: u8,
    size: u64,
    greatest: u64,
    /// Sequence number of the segment that said it last, and what that acknowledged: `SND.WL1`
    /// and `SND.WL2` [RFC 9293 §3.3.1].
    said_by: (Seq, u64),
    closed_since: Option<Instant>,
}

impl PeerWindow {
    /// Creates the window that this segment says, which acknowledges everything before `una`.
    pub(super) fn new(head: &Head, shift: u8, una: u64) -> PeerWindow {
        let size = u64::from(head.window) << shift;
        let said_by = (head.seq, una);
        PeerWindow { shift, size, greatest: size, said_by, closed_since: None }
    }

    /// Returns its size in bytes.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns whether a segment says the size that is known.
    pub(super) fn is_same(&self, head: &Head) -> bool {
        u64::from(head.window) << self.shift == self.size
    }

    /// Returns whether an acknowledgement that is so far behind is too old [RFC 5961 §5.2].
    pub(super) fn is_old(&self, behind: u64) -> bool {
        behind > self.greatest.max(1)
    }

    /// Takes what a segment says that acknowledges everything before `ack`, unless a later one was
    /// heard. Below `least` the window is closed.
    pub(super) fn on_segment(&mut self, head: &Head, ack: u64, least: u64) {
        let (seq, una) = self.said_by;
        let order = head.seq.since(seq);
        if order > 0 || order == 0 && una <= ack {
            self.said_by = (head.seq, ack);
            self.size = u64::from(head.window) << self.shift;
            self.greatest = self.greatest.max(self.size);
            if self.size >= least {
                self.closed_since = None;
            }
        }
    }

    /// Notes that something waits for it, so that its time counts if it is closed.
    pub(super) fn on_wait(&mut self, now: Instant, least: u64) {
        if self.size < least {
            self.closed_since.get_or_insert(now);
        }
    }

    /// Returns whether it has been closed for this time.
    pub(super) fn is_closed_for(&self, now: Instant, time: Duration) -> bool {
        self.closed_since.is_some_and(|since| now.since(since) >= time)
    }
}
