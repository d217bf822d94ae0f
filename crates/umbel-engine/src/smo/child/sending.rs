//! Data that a child may be sent, new and again.

use std::ops::Range;

use super::{Child, Timed};
use crate::Instant;
use crate::smo::config::SourceConfig;
use crate::smo::resent::Way;
use crate::smo::scoreboard::Kind;
use crate::smo::view::View;

/// Retransmissions of a child that are under way in its master at most.
const MAX_WANTED: usize = 64;

impl Child {
    /// Returns the next run that it lacks and that its window permits to be sent again.
    pub(in crate::smo) fn next_repair(&self, view: &View) -> Option<Range<u64>> {
        let mss = u64::from(self.mss);
        let run = self.permitted(self.board.next_lost(self.una, view.sent, mss)?)?;
        let from = self.from(view);
        let pipe = if view.is_bound {
            let flight = view.sent.saturating_sub(from);
            flight - self.board.absent(from, view.sent.max(from), mss).min(flight)
        } else {
            // Multicast data fills its window whether it has room or not, and its retransmissions
            // would wait forever.
            self.board.again_under_way(from)
        };
        let has_room = pipe + (run.end - run.start) <= self.window.bytes();
        (self.board.is_first() || has_room && self.wanted < MAX_WANTED).then_some(run)
    }

    /// Returns what its window takes of a run. It can be less than was multicast: a late comer is
    /// heard only after its stream has begun. A part of a segment may go if it is the first.
    fn permitted(&self, run: Range<u64>) -> Option<Range<u64>> {
        let end = run.end.min(self.permitted_to());
        let may_go = end == run.end || run.start == self.una;
        (may_go && run.start < end).then_some(run.start..end)
    }

    /// Notes that a run will be sent again.
    pub(in crate::smo) fn on_repair_wanted(&mut self, run: &Range<u64>) {
        self.board.on_sent_again(run);
        self.resent.extend(run.end);
    }

    /// Notes that a run was sent again, of a stream that is held from `start` on.
    pub(in crate::smo) fn on_repaired(
        &mut self,
        at: Instant,
        way: Way,
        run: &Range<u64>,
        start: u64,
        config: &SourceConfig,
    ) {
        self.timed = self.timed.filter(|timed| timed.end <= run.start);
        self.resent.on_sent(at, way, run, self.una, start);
        // Otherwise the answer could come after the time-out [RFC 6675 §6].
        let is_first = run.start <= self.una.max(start);
        let is_fast = self.board.recovery() == Some(Kind::Fast);
        if is_first && is_fast && self.resent.restarts() {
            self.rto_at = self.rto_at.max(Some(self.timeout_from(at, config)));
        }
    }

    /// Plans the retransmissions anew, since one of them was forgotten while it waited.
    pub(in crate::smo) fn on_repair_gone(&mut self) {
        self.board.again_all(self.una);
    }

    /// Returns the number of new bytes that may be sent to it by unicast. Without anything
    /// outstanding, a part of a segment may go.
    pub(in crate::smo) fn sendable(&self, view: &View) -> u64 {
        let all = view.available.saturating_sub(self.nxt);
        let allowed = self.edge(view).min(self.permitted_to()).saturating_sub(self.nxt);
        let is_whole = allowed >= all || allowed >= u64::from(self.mss) || self.una == self.nxt;
        if is_whole { all.min(allowed) } else { 0 }
    }

    /// Notes that new data up to `end` left by unicast.
    pub(in crate::smo) fn on_sent(&mut self, now: Instant, end: u64) {
        self.skips.on_segment();
        if self.timed.is_none() && end > self.resent.end() {
            self.timed = Some(Timed { end, at: now });
        }
        if self.una == self.nxt {
            self.progress = now;
        }
        self.nxt = self.nxt.max(end);
    }

    /// Returns whether a new run may be left out. Its receiver will report it, as it is permitted
    /// to be sent more, and there is more.
    pub(in crate::smo) fn may_leave_out(&self, run: &Range<u64>, view: &View) -> bool {
        let mss = u64::from(self.mss);
        let allowed = self.edge(view).min(self.permitted_to());
        let is_followed = allowed >= self.una + 2 * mss && view.available >= run.end + 3 * mss;
        let is_whole = run.end - run.start == mss;
        self.skips.is_due() && self.board.is_clean() && is_whole && is_followed
    }

    /// Leaves out a new run, and the next after `countdown` segments more.
    pub(in crate::smo) fn leave_out(&mut self, now: Instant, run: Range<u64>, countdown: u32) {
        if self.una == self.nxt {
            self.progress = now;
        }
        self.nxt = run.end;
        self.timed = None;
        self.skips.leave_out(run, countdown);
    }
}
