//! Segments that are left out on purpose, to find receivers that acknowledge what they lack.
//!
//! A receiver that acknowledges ahead of what it received makes its congestion window grow without
//! limit, and hides its losses. See Savage et al., *TCP Congestion Control with a Misbehaving
//! Receiver*. Now and then a segment is therefore not sent (*skipped segments* of Sherwood et al.,
//! *Misbehaving TCP Receivers Can Cause Internet-Wide Congestion Collapse*). An honest receiver
//! reports the hole, and gets the segment a round trip later; its window does not suffer. A
//! receiver that acknowledges it before it was sent has told a lie.

use std::ops::Range;

/// Runs that are left out for a child that is served by unicast.
#[derive(Clone, Debug)]
pub(super) struct Skips {
    /// New segments until the next is left out.
    countdown: u32,
    /// The run that was left out, and was not sent yet.
    out: Option<Range<u64>>,
    /// Whether a recovery is under way that makes up for it, and not for a loss.
    is_filling: bool,
}

impl Skips {
    /// Creates that of a child of which a segment is left out after so many others.
    pub(super) fn new(countdown: u32) -> Skips {
        Skips { countdown, out: None, is_filling: false }
    }

    /// Notes that a new segment was sent.
    pub(super) fn on_segment(&mut self) {
        self.countdown = self.countdown.saturating_sub(1);
    }

    /// Returns whether a segment is to be left out.
    pub(super) fn is_due(&self) -> bool {
        self.countdown == 0 && self.out.is_none()
    }

    /// Notes that a run is left out, and when the next is.
    pub(super) fn leave_out(&mut self, run: Range<u64>, countdown: u32) {
        (self.out, self.countdown) = (Some(run), countdown);
    }

    /// Returns whether a run of bytes holds some that were left out.
    pub(super) fn touches(&self, run: &Range<u64>) -> bool {
        self.out.as_ref().is_some_and(|out| run.start < out.end && out.start < run.end)
    }

    /// Notes that a run is sent, which may be what was left out.
    pub(super) fn on_sent(&mut self, run: &Range<u64>) {
        if self.touches(run) {
            self.out = None;
        }
    }

    /// Returns the end of what was left out if the receiver has everything before it, and lacks it.
    pub(super) fn fill(&mut self, una: u64) -> Option<u64> {
        let end = self.out.as_ref().filter(|out| out.start == una)?.end;
        self.is_filling = true;
        Some(end)
    }

    /// Returns whether the recovery that is under way makes up for what was left out.
    pub(super) fn is_filling(&self) -> bool {
        self.is_filling
    }

    /// Notes that a recovery has ended, or that something was lost.
    pub(super) fn on_filled(&mut self) {
        self.is_filling = false;
    }

    /// Gives up watching what was left out: it may come on another way.
    pub(super) fn forget(&mut self) {
        (self.out, self.is_filling) = (None, false);
    }
}
