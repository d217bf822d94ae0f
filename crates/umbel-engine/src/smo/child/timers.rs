//! The time-outs of a child, and what follows.

use std::time::Duration;

use super::Child;
use crate::Instant;
use crate::smo::config::SourceConfig;
use crate::smo::master::SendLog;
use crate::smo::scoreboard::Kind;
use crate::smo::view::View;

/// Duration of a probe time-out in smoothed RTTs [RFC 8985 §7.2].
const PROBE_RTTS: u32 = 2;
/// Shortest probe time-out, and time-out of a retransmission.
const MIN_LATE: Duration = Duration::from_millis(10);
/// Time for which a receiver may delay the acknowledgement of a single segment: Linux, at first,
/// for so long.
const ACK_DELAY: Duration = Duration::from_millis(40);

impl Child {
    /// Sets the timers for what is outstanding now. Returns whether it waits for data.
    pub(in crate::smo) fn set_timers(
        &mut self,
        now: Instant,
        config: &SourceConfig,
        view: &View,
    ) -> bool {
        let outstanding = view.sent > self.una;
        let waits_for_window =
            self.permits.size() == 0 && view.end.is_none_or(|end| self.una < end);
        if !outstanding && !waits_for_window {
            (self.rto_at, self.probe_at) = (None, None);
            self.resent.forget_hole();
            return true;
        }
        self.permits.on_wait(now, self.least_window());
        if self.rto_at.is_none() {
            let rto_at = self.timeout_from(now, config);
            self.rto_at = Some(rto_at);
            if outstanding
                && self.board.recovery().is_none()
                && !self.is_probing
                && self.resent.hole().is_none()
                && let Some(time) = self.probe_time()
            {
                self.probe_at = Some((now + time).min(rto_at));
                self.is_single = view.sent - self.una <= u64::from(self.mss);
            }
        }
        false
    }

    /// Puts off a probe that is due, once, if a single segment was outstanding when its time began.
    /// The receiver may delay the acknowledgement of one. It acknowledges a second one at once, but
    /// that may have left later. Returns whether it did.
    pub(in crate::smo) fn puts_off_probe(&mut self, now: Instant) -> bool {
        let is_single = std::mem::take(&mut self.is_single);
        if is_single {
            self.probe_at = Some(now + ACK_DELAY).min(self.rto_at);
        }
        is_single
    }

    /// Returns the time of a probe, once a round trip is known.
    pub(super) fn probe_time(&self) -> Option<Duration> {
        let late = self.rtt.late()?.max(MIN_LATE);
        Some((self.rtt.smoothed()? * PROBE_RTTS).max(late) + self.patience.time())
    }

    /// Returns when the time-out is that begins now.
    pub(super) fn timeout_from(&self, now: Instant, config: &SourceConfig) -> Instant {
        let stalled = self.progress + config.removal.stall;
        let at = now + self.rtt.rto(config.initial_rto, config.rto);
        if stalled > now { at.min(stalled) } else { at }
    }

    /// Returns when the first of its timers runs out.
    pub(in crate::smo) fn alarm(&self, config: &SourceConfig) -> Instant {
        let quiet = self.heard_at
            + config.keep_alive
            + (config.keep_alive / config.keep_alive_probes.max(1)) * self.keep_alive_probes;
        let lingered = self.fin_acked.map(|at| at + config.fin_wait);
        let (hole, unanswered) = (self.hole_at(), self.unanswered_at());
        let question = self.question.turn();
        let timers = [self.rto_at, self.probe_at, hole, question, unanswered, lingered];
        timers.into_iter().flatten().fold(quiet, Instant::min)
    }

    /// Returns when the retransmission of the first hole counts as lost. Its receiver acknowledges
    /// it at once, so that the lower bound of the RTO does not apply.
    pub(in crate::smo) fn hole_at(&self) -> Option<Instant> {
        self.board.recovery()?;
        Some(self.resent.awaited()? + self.rtt.late()?.max(MIN_LATE))
    }

    /// Sends the first hole once more, unless it was filled, and the receiver waits for what is
    /// forgotten before it. Returns whether it is to be asked instead: after a multicast, nothing
    /// is heard of a receiver that has it, if the acknowledgement of that was lost.
    pub(in crate::smo) fn on_hole_late(
        &mut self,
        now: Instant,
        config: &SourceConfig,
        view: &View,
    ) -> bool {
        let from = self.from(view);
        let is_multicast = self.resent.is_multicast();
        self.resent.on_hole_late();
        if self.board.has(from) {
            return false;
        }
        if !is_multicast {
            self.board.again(from);
        } else if self.resent.restarts() {
            // As for a retransmission, the answer could come after the time-out.
            self.rto_at = self.rto_at.max(Some(self.timeout_from(now, config)));
        }
        is_multicast
    }

    /// Begins to probe, since nothing was heard for two RTTs: an early time-out. It costs half of
    /// the window if it turns out that something was lost [RFC 8985 §7.4]. The RFC sends new data
    /// or the last segment [RFC 8985 §7.3]. Returns whether the child is to be asked, as multicast
    /// reaches it; otherwise its first segment is sent again.
    pub(in crate::smo) fn on_probe_timeout(&mut self, view: &View) -> bool {
        // The time-out begins anew [RFC 8985 §7.3].
        (self.probe_at, self.rto_at) = (None, None);
        (self.is_probing, self.probed_to) = (true, view.sent);
        if !self.hearing.hears {
            self.board.begin(Kind::Fast, self.una, view.sent, self.first_end(view));
        }
        self.hearing.hears
    }

    /// Returns the end of the first segment that is outstanding.
    pub(super) fn first_end(&self, view: &View) -> u64 {
        (self.una + u64::from(self.mss)).min(view.sent)
    }

    /// Returns when a question has no answer any more.
    pub(in crate::smo) fn unanswered_at(&self) -> Option<Instant> {
        let late = self.rtt.late().unwrap_or_default().max(MIN_LATE);
        self.question.unanswered_at(late)
    }

    /// Notes that a question has no answer. That to the next could come after the time-out.
    pub(in crate::smo) fn on_unanswered(&mut self, now: Instant, config: &SourceConfig) {
        self.question.on_unanswered();
        if self.resent.restarts() {
            self.rto_at = self.rto_at.max(Some(self.timeout_from(now, config)));
        }
    }

    /// Handles a retransmission time-out [RFC 6298 §5.4]. `initial` is the window of a new way.
    /// Data that was multicast up to `old` has arrived or is lost, the rest may be under way.
    pub(in crate::smo) fn on_timeout(&mut self, view: &View, initial: u32, old: u64) {
        let flight = self.own_share(view.sent.saturating_sub(self.una), view);
        let again = self.rtt.backoff() > 0;
        self.timeouts += 1;
        self.rtt.back_off();
        (self.rto_at, self.probe_at, self.timed) = (None, None, None);
        self.question.end();
        self.skips.on_filled();
        self.resent.forget();
        if self.hearing.on_timeout() {
            // Nothing of what was multicast reached it since the last time-out.
            self.become_deaf(view.sent);
            self.window.restart(initial);
            return;
        }
        (self.is_probing, self.wanted) = (false, 0);
        self.window.on_timeout(flight, again);
        if again {
            // A receiver may have taken back what it SACKed.
            self.board.forget();
        }
        let first = self.una + u64::from(self.mss);
        let lost_to = if self.hearing.hears { first.max(old).min(view.sent) } else { view.sent };
        self.board.begin(Kind::Timeout, self.una, view.sent, lost_to);
    }

    /// Returns the position before which what has not arrived is lost, since it was multicast long
    /// enough ago [RFC 8985 §6.3].
    pub(in crate::smo) fn old(&self, now: Instant, log: Option<&SendLog>) -> u64 {
        let late = self.rtt.late().unwrap_or_default().as_nanos() as u64;
        let at = Instant::from_nanos(now.as_nanos().saturating_sub(late));
        log.filter(|_| self.hearing.hears).map_or(0, |log| log.sent_until(at))
    }
}
