//! Which packets have left, and at what rate.

use std::time::Duration;

use crate::Instant;

/// Packets that leave together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batches {
    /// Number of the next packet.
    pub(super) next: u32,
    /// Number of the first packet, until a report has come of it.
    pub(super) first: Option<u32>,
    /// Number of the packet before which none is sent until a report has come.
    pub(super) window_end: Option<u32>,
    /// The greatest number of late, and the greatest one that is allowed.
    pub(super) seen: u32,
    pub(super) most: Option<u32>,
}

/// The greatest rate of late at which packets were sent.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Allowed {
    present: f64,
    before: f64,
    since: Instant,
}

impl Allowed {
    /// Notes the rate of packets. It is remembered for a time, at most twice this.
    pub(super) fn note(&mut self, now: Instant, rate: f64, lasts: Duration) {
        if now.since(self.since) > lasts {
            self.before = std::mem::take(&mut self.present);
            self.since = now;
        }
        self.present = self.present.max(rate);
    }

    pub(super) fn greatest(&self) -> f64 {
        self.present.max(self.before)
    }
}
