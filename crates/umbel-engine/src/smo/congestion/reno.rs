//! Congestion avoidance by additive increase and multiplicative decrease [RFC 5681 §3.1].

/// State of Reno: bytes acknowledged since the window grew last [RFC 3465 §2.1].
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reno {
    acked: u64,
}

impl Reno {
    /// Returns the bytes by which the window grows: a segment for each window acknowledged.
    pub(super) fn grow(&mut self, cwnd: u64, mss: u64, acked: u64) -> u64 {
        self.acked += acked;
        if self.acked < cwnd {
            return 0;
        }
        self.acked -= cwnd;
        // More than one window at once comes of an ACK after a repair, and counts once.
        self.acked = self.acked.min(cwnd);
        mss
    }

    /// Returns half of what is in flight.
    pub(super) fn cut(&mut self, flight: u64) -> u64 {
        self.acked = 0;
        flight / 2
    }
}
