//! The parent's domain, as the parent's messages tell.

use umbel_wire::tmtp::{Beacon, JoinConfirm, Timing};

use crate::Instant;

/// Guarantees and timing of this node's parent. Exists while there is a parent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Upstream {
    /// First block that the parent guarantees.
    from: u32,
    /// Lowest block that the parent's buffer still holds.
    lowest: u32,
    timing: Timing,
    /// Stamp and arrival of the parent's last beacon, until it is echoed.
    echo: Option<(u64, Instant)>,
    /// Time at which the next acknowledgement is due.
    ack_at: Instant,
}

impl Upstream {
    /// Starts with the parent's confirmation. The first acknowledgement is due at once.
    pub(super) fn new(now: Instant, confirm: &JoinConfirm) -> Upstream {
        let beacon = &confirm.beacon;
        Upstream {
            from: confirm.from,
            lowest: beacon.progress.lowest,
            timing: beacon.timing,
            echo: Some((beacon.stamp_ns, now)),
            ack_at: now,
        }
    }

    /// Notes the parent's beacon.
    pub(super) fn on_beacon(&mut self, now: Instant, beacon: &Beacon) {
        self.timing = beacon.timing;
        self.lowest = self.lowest.max(beacon.progress.lowest);
        self.echo = Some((beacon.stamp_ns, now));
        self.ack_by(now + beacon.timing.t_ack);
    }

    /// Returns the first block that the parent guarantees.
    pub(super) fn from(&self) -> u32 {
        self.from
    }

    /// Returns the lowest block that the parent's buffer still holds.
    pub(super) fn lowest(&self) -> u32 {
        self.lowest
    }

    /// Returns the timing of the parent's domain.
    pub(super) fn timing(&self) -> Timing {
        self.timing
    }

    /// Returns when the next acknowledgement is due.
    pub(super) fn ack_at(&self) -> Instant {
        self.ack_at
    }

    /// Schedules the next acknowledgement now.
    pub(super) fn ack_now(&mut self, now: Instant) {
        self.ack_at = now;
    }

    /// Schedules the next acknowledgement at this time at the latest.
    pub(super) fn ack_by(&mut self, at: Instant) {
        self.ack_at = self.ack_at.min(at);
    }

    /// Schedules the acknowledgement after the one that leaves now. Returns the beacon that this
    /// one echoes.
    pub(super) fn on_ack_sent(&mut self, now: Instant) -> Option<(u64, Instant)> {
        self.ack_at = now + self.timing.t_ack;
        self.echo.take()
    }
}
