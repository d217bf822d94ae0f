//! The child-TCB: one connection.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::tcp::{Head, Seq};

use super::api::{ChildId, State};
use super::buffer::Buffer;
use super::config::SourceConfig;
use super::congestion::Window;
use super::hearing::Hearing;
use super::inbox::Inbox;
use super::master::{SendLog, Standing};
use super::peer_window::PeerWindow;
use super::resent::Resent;
use super::rtt::Rtt;
use super::scoreboard::{Kind, Scoreboard};
use super::view::View;
use crate::Instant;

/// Duration of a probe time-out in smoothed RTTs [RFC 8985 §7.2].
const PROBE_RTTS: u32 = 2;
/// Shortest probe time-out, and time-out of a retransmission.
const MIN_LATE: Duration = Duration::from_millis(10);
/// Least time between two answers to segments that are not acceptable [RFC 5961 §7].
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// Retransmissions of a child that are under way in its master at most.
const MAX_WANTED: usize = 64;
/// Where the bytes come from that a child is sent.
#[derive(Clone, Debug)]
pub(super) enum Served {
    /// From a buffer of its own, created by the first write.
    Alone(Option<Box<Buffer>>),
    /// From a master: its place, and the child's seat there.
    Master(u32, u32),
    /// It was sent everything, and has acknowledged it.
    Done,
}

/// What an acknowledgement did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// Something, or nothing.
    Valid,
    /// It is about what was never sent.
    FarAhead,
    /// It is older than any that can be under way.
    Old,
}

/// Time of the timed segment of a child that is served by unicast.
#[derive(Clone, Copy, Debug)]
struct Timed {
    end: u64,
    at: Instant,
}

/// A connection.
#[derive(Clone, Debug)]
pub(super) struct Child {
    pub(super) id: ChildId,
    pub(super) peer: SocketAddr,
    pub(super) served: Served,
    pub(super) established: Instant,

    /// First position that is not acknowledged: `SND.UNA`.
    pub(super) una: u64,
    /// Next position to be sent by unicast, while it does not hear.
    pub(super) nxt: u64,
    /// Where its part of a master's stream ends, if it was finished alone.
    pub(super) own_end: Option<u64>,
    pub(super) mss: u16,
    pub(super) has_sack: bool,
    pub(super) permits: PeerWindow,
    pub(super) hearing: Hearing,
    pub(super) window: Window,
    pub(super) rtt: Rtt,
    pub(super) board: Scoreboard,
    resent: Resent,
    timed: Option<Timed>,
    /// Whether the recovery began with a probe, so that it is not known yet whether anything was
    /// lost.
    is_probing: bool,
    /// Retransmissions that wait in the master.
    pub(super) wanted: usize,

    pub(super) rto_at: Option<Instant>,
    pub(super) probe_at: Option<Instant>,
    /// When the last progress was made, or outstanding data was sent after none was.
    pub(super) progress: Instant,
    pub(super) heard_at: Instant,
    pub(super) keep_alive_probes: u32,
    challenged: Instant,

    pub(super) inbox: Inbox,
    /// Whether it finished before the source did.
    pub(super) finished_first: bool,

    pub(super) ack_due: bool,
    pub(super) probe_due: bool,
    /// Whether it is to be told its membership, in an ACK of its own.
    pub(super) membership_due: bool,
    pub(super) is_queued: bool,
    /// Its place among the idle children of its master, if it waits for data.
    pub(super) idle_at: Option<u32>,
    pub(super) was_full: bool,

    pub(super) unicast_bytes: u64,
    pub(super) loss_events: u64,
    pub(super) timeouts: u64,
}

/// What the handshake found out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opening {
    pub(super) id: ChildId,
    pub(super) peer: SocketAddr,
    pub(super) at: u64,
    pub(super) irs: Seq,
    pub(super) mss: u16,
    pub(super) shift: u8,
    pub(super) has_sack: bool,
    pub(super) rtt: Option<Duration>,
}

impl Child {
    /// Creates a child whose handshake this segment completed.
    pub(super) fn new(now: Instant, config: &SourceConfig, opening: Opening, head: &Head) -> Child {
        let mss = opening.mss.min(config.mss);
        let mut rtt = Rtt::new();
        opening.rtt.into_iter().for_each(|sample| rtt.sample(sample));
        Child {
            id: opening.id,
            peer: opening.peer,
            served: Served::Alone(None),
            established: now,
            una: opening.at,
            nxt: opening.at,
            own_end: None,
            mss,
            has_sack: opening.has_sack,
            permits: PeerWindow::new(head, opening.shift, opening.at),
            // What is multicast would be too long for it.
            hearing: Hearing::new(opening.mss >= config.mss),
            window: Window::new(config.congestion, mss.into(), config.initial_window),
            rtt,
            board: Scoreboard::default(),
            resent: Resent::new(opening.at),
            timed: None,
            is_probing: false,
            wanted: 0,
            rto_at: None,
            probe_at: None,
            progress: now,
            heard_at: now,
            keep_alive_probes: 0,
            challenged: Instant::EPOCH,
            inbox: Inbox::new(opening.irs.plus(1)),
            finished_first: false,
            ack_due: false,
            probe_due: false,
            membership_due: false,
            is_queued: false,
            idle_at: None,
            was_full: false,
            unicast_bytes: 0,
            loss_events: 0,
            timeouts: 0,
        }
    }

    /// Returns the state of the connection [RFC 9293 §3.3.2].
    pub(super) fn state(&self, view: &View) -> State {
        let fin_sent = view.end.is_some_and(|end| view.sent >= end);
        let fin_acked = matches!(self.served, Served::Done);
        match (self.inbox.has_ended(), fin_sent || fin_acked) {
            (false, false) => State::Established,
            (true, false) => State::CloseWait,
            (false, true) if fin_acked => State::FinWait2,
            (false, true) => State::FinWait1,
            (true, true) if self.finished_first => State::LastAck,
            (true, true) => State::Closing,
        }
    }

    /// Returns the least window that is not closed: in a group, below a segment all others wait.
    fn least_window(&self) -> u64 {
        if matches!(self.served, Served::Alone(_)) { 1 } else { self.mss.into() }
    }

    /// Returns the right edge of its receive window.
    pub(super) fn permitted_to(&self) -> u64 {
        self.una + self.permits.size()
    }

    /// Returns whether a segment that is not acceptable may be answered now.
    pub(super) fn may_challenge(&mut self, now: Instant) -> bool {
        let may = now >= self.challenged + CHALLENGE_INTERVAL || self.challenged == Instant::EPOCH;
        if may {
            self.challenged = now;
        }
        may
    }

    /// Returns the position that a sequence number of the source's stream means, near `SND.UNA`.
    fn position(&self, base: Seq, seq: Seq) -> Option<u64> {
        let distance = i64::from(seq.since(base.plus(self.una as u32)));
        self.una.checked_add_signed(distance)
    }

    /// Handles the acknowledgement and the window of an acceptable segment. `log` is that of the
    /// master whose multicasts it hears.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        base: Seq,
        head: &Head,
        has_payload: bool,
        view: &View,
        log: Option<&SendLog>,
    ) -> Acknowledged {
        let Some(ack) = self.position(base, head.ack) else { return Acknowledged::Old };
        if ack > view.ackable {
            return Acknowledged::FarAhead;
        }
        if ack < self.una {
            return if self.permits.is_old(self.una - ack) {
                Acknowledged::Old
            } else {
                Acknowledged::Valid
            };
        }
        let is_same_window = self.permits.is_same(head);
        self.permits.on_segment(head, ack, self.least_window());
        let before = self.una;
        let in_use = view.sent.saturating_sub(before);
        let by_unicast = if self.hearing.hears {
            self.resent.end()
        } else {
            self.nxt.max(self.hearing.deaf_from)
        };
        let had = self.board.highest().max(before);
        let (news, highest) = self.on_sack(base, head, ack, view);
        let newest = ack.max(highest);
        if newest > by_unicast {
            self.on_heard(view);
        }
        self.take_sample(now, ack, (newest > had).then_some(newest), log);
        if ack > before {
            self.on_progress(now, ack, in_use, view, log);
        } else if !has_payload && in_use > 0 && is_same_window && !self.has_sack {
            self.board.on_duplicate();
        }
        // What left after the first hole was sent again has arrived; the hole has not. The
        // retransmission was lost, too [RFC 8985 §6.2].
        if news
            && ack == before
            && let (Some(hole), Some(log)) = (self.resent.hole(), log)
            && let Some((_, at)) = log.sent(highest)
            && at > hole + self.rtt.smoothed().unwrap_or_default() / 4
        {
            self.resent.forget_hole();
            self.board.again(self.from(view));
        }
        if self.board.recovery() == Some(Kind::Timeout) {
            let old = self.old(now, log);
            self.board.lose_to(old);
        }
        if news && std::mem::take(&mut self.is_probing) {
            self.on_loss(in_use);
        }
        if (news || ack == before)
            && !self.board.is_clean()
            && self.board.detect(self.una, view.sent.max(self.una), self.mss.into())
        {
            self.on_loss(view.sent.saturating_sub(self.una));
        }
        Acknowledged::Valid
    }

    /// Returns whether blocks had news, and the highest position of them.
    fn on_sack(&mut self, base: Seq, head: &Head, ack: u64, view: &View) -> (bool, u64) {
        let (mut news, mut highest) = (false, 0);
        if !self.has_sack {
            return (news, highest);
        }
        for (left, right) in head.options.sack.as_slice() {
            let (Some(left), Some(right)) =
                (self.position(base, *left), self.position(base, *right))
            else {
                continue;
            };
            if left >= right || right > view.ackable {
                continue;
            }
            if right <= ack {
                // A duplicate [RFC 2883]. What a deaf child gets twice came by multicast, too,
                // unless it was sent again, or received before the child became deaf.
                let is_news = left >= self.resent.end().max(self.hearing.deaf_from);
                let may_hear = self.hearing.may_hear && matches!(self.served, Served::Master(..));
                if is_news && may_hear && !self.hearing.hears {
                    self.on_heard(view);
                }
                continue;
            }
            news |= self.board.sack(left.max(ack)..right);
            highest = highest.max(right);
        }
        (news, highest)
    }

    /// Notes that it received what was only multicast.
    fn on_heard(&mut self, view: &View) {
        self.hearing.on_heard();
        if !self.hearing.hears && self.hearing.may_hear && matches!(self.served, Served::Master(..))
        {
            self.hearing.hears = true;
            // All that was multicast until now may be lost to it.
            self.resent.begin(self.nxt.max(self.una));
            self.nxt = view.ackable;
            self.timed = None;
        }
    }

    /// Takes a sample of the RTT if this ACK is the first to name what is timed. `newest` is the
    /// end of the bytes that it is the first to name, if they are beyond all others. An ACK beyond
    /// a hole that was filled says when it was filled, and not how long the rest was on its way:
    /// the ACKs that said so may be lost.
    fn take_sample(&mut self, now: Instant, ack: u64, newest: Option<u64>, log: Option<&SendLog>) {
        let again = self.resent.end();
        let sent_at = if self.hearing.hears {
            let fills_hole = ack > self.una && again > self.una;
            let sent = newest.filter(|_| !fills_hole).and_then(|newest| log?.sent(newest));
            sent.filter(|(end, _)| *end > self.una.max(again))
        } else {
            let timed = self.timed.as_ref().map(|timed| (timed.end, timed.at));
            timed.filter(|(end, _)| *end <= ack || self.board.has(end - 1))
        };
        if let Some((_, at)) = sent_at {
            self.rtt.sample(now.since(at));
            self.timed = None;
        }
    }

    /// Returns the position before which what has not arrived is lost, since it was multicast long
    /// enough ago [RFC 8985 §6.3].
    pub(super) fn old(&self, now: Instant, log: Option<&SendLog>) -> u64 {
        let late = self.rtt.late().unwrap_or_default().as_nanos() as u64;
        let at = Instant::from_nanos(now.as_nanos().saturating_sub(late));
        log.filter(|_| self.hearing.hears).map_or(0, |log| log.sent_until(at))
    }

    fn on_progress(
        &mut self,
        now: Instant,
        ack: u64,
        in_use: u64,
        view: &View,
        log: Option<&SendLog>,
    ) {
        let acked = ack - self.una;
        if std::mem::take(&mut self.is_probing) {
            let soon = self.rtt.smoothed().unwrap_or_default() / 2;
            if self.resent.hole().is_none_or(|at| now.since(at) < soon) {
                // The answer to what was sent first: nothing was lost.
                self.board.cancel();
            } else {
                self.on_loss(in_use);
            }
        }
        let kind = self.board.recovery();
        let arrived = match log.filter(|_| self.hearing.hears) {
            Some(log) => self.resent.hole().map_or(0, |at| log.sent_until(at)),
            None => view.sent,
        };
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        self.resent.on_progress(ack);
        self.progress = now;
        self.rtt.on_progress();
        if self.board.on_progress(ack, self.has_sack, self.mss.into(), arrived) {
            self.wanted = 0;
            if self.hearing.on_recovery() {
                self.become_deaf(view.sent);
            }
        }
        if kind != Some(Kind::Fast) {
            self.window.on_ack(now, acked, in_use, self.rtt.smoothed());
        }
        self.rto_at = None;
        self.probe_at = None;
    }

    fn on_loss(&mut self, flight: u64) {
        self.window.on_loss(flight);
        self.loss_events += 1;
        self.probe_at = None;
    }

    /// Sets the timers for what is outstanding now. Returns whether it waits for data.
    pub(super) fn set_timers(&mut self, now: Instant, config: &SourceConfig, view: &View) -> bool {
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
            let flight = view.sent.saturating_sub(self.una);
            // A single segment may wait for the receiver's delayed ACK, as long as an RTO.
            if self.board.recovery().is_none()
                && flight > u64::from(self.mss)
                && self.resent.hole().is_none()
                && let Some(srtt) = self.rtt.smoothed()
            {
                let late = self.rtt.late().unwrap_or_default();
                let probe_at = now + (srtt * PROBE_RTTS).max(late).max(MIN_LATE);
                self.probe_at = Some(probe_at.min(rto_at));
            }
        }
        false
    }

    /// Returns when the time-out is that begins now.
    fn timeout_from(&self, now: Instant, config: &SourceConfig) -> Instant {
        let stalled = self.progress + config.removal.stall;
        let at = now + self.rtt.rto(config.initial_rto, config.rto);
        if stalled > now { at.min(stalled) } else { at }
    }

    /// Returns when the first of its timers runs out.
    pub(super) fn alarm(&self, config: &SourceConfig) -> Instant {
        let quiet = self.heard_at
            + config.keep_alive
            + (config.keep_alive / config.keep_alive_probes.max(1)) * self.keep_alive_probes;
        [self.rto_at, self.probe_at, self.hole_at()].into_iter().flatten().fold(quiet, Instant::min)
    }

    /// Returns when the retransmission of the first hole counts as lost. Its receiver acknowledges
    /// it at once, so that the lower bound of the RTO does not apply.
    pub(super) fn hole_at(&self) -> Option<Instant> {
        self.board.recovery()?;
        Some(self.resent.hole()? + self.rtt.late()?.max(MIN_LATE))
    }

    /// Sends the first hole once more, unless it was filled, and the receiver waits for what is
    /// forgotten before it.
    pub(super) fn on_hole_late(&mut self, view: &View) {
        self.resent.forget_hole();
        let from = self.from(view);
        if !self.board.has(from) {
            self.board.again(from);
        }
    }

    /// Plans the retransmissions anew, since one of them was forgotten while it waited.
    pub(super) fn on_repair_gone(&mut self) {
        self.board.again_all(self.una);
    }

    /// Sends the first segment again, since nothing was heard for two RTTs: an early time-out. It
    /// costs half of the window if it turns out that something was lost [RFC 8985 §7.4]. The RFC
    /// sends new data or the last segment instead [RFC 8985 §7.3].
    pub(super) fn on_probe_timeout(&mut self, view: &View) {
        // The time-out begins anew [RFC 8985 §7.3].
        (self.probe_at, self.rto_at) = (None, None);
        let lost_to = (self.una + u64::from(self.mss)).min(view.sent);
        self.board.begin(Kind::Fast, self.una, view.sent, lost_to);
        self.is_probing = true;
    }

    /// Handles a retransmission time-out [RFC 6298 §5.4]. `initial` is the window of a new way.
    /// What was multicast up to `old` has arrived or is lost, the rest may be under way.
    pub(super) fn on_timeout(&mut self, view: &View, initial: u32, old: u64) {
        let flight = view.sent.saturating_sub(self.una);
        let again = self.rtt.backoff() > 0;
        self.timeouts += 1;
        self.rtt.back_off();
        (self.rto_at, self.probe_at, self.timed) = (None, None, None);
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

    /// Serves it by unicast from now on, after `sent` was multicast.
    fn become_deaf(&mut self, sent: u64) {
        self.hearing.on_deaf(sent);
        self.nxt = self.una;
        self.board.clear();
        self.resent.forget();
        (self.is_probing, self.wanted) = (false, 0);
    }

    /// Returns the next run that it lacks and that its window permits to be sent again.
    pub(super) fn next_repair(&self, view: &View) -> Option<Range<u64>> {
        let mss = u64::from(self.mss);
        let run = self.permitted(self.board.next_lost(self.una, view.sent, mss)?)?;
        let from = self.from(view);
        let pipe = if view.is_bound {
            let flight = view.sent.saturating_sub(from);
            flight - self.board.absent(from, view.sent.max(from), mss).min(flight)
        } else {
            // What is multicast fills its window whether it has room or not, and its
            // retransmissions would wait for ever.
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
    pub(super) fn on_repair_wanted(&mut self, run: &Range<u64>) {
        self.board.on_sent_again(run);
        self.resent.extend(run.end);
    }

    /// Notes that a run was sent again, of a stream that is held from `start` on.
    pub(super) fn on_repaired(
        &mut self,
        at: Instant,
        run: &Range<u64>,
        start: u64,
        config: &SourceConfig,
    ) {
        self.timed = self.timed.filter(|timed| timed.end <= run.start);
        self.resent.on_sent(at, run, self.una, start);
        // Otherwise the answer could come after the time-out [RFC 6675 §6].
        let is_first = run.start <= self.una.max(start);
        let is_fast = self.board.recovery() == Some(Kind::Fast);
        if is_first && is_fast && self.resent.restarts() {
            self.rto_at = self.rto_at.max(Some(self.timeout_from(at, config)));
        }
    }

    /// Returns the first position that it lacks and that may still be under way to it: in
    /// real-time mode, what was forgotten is not.
    fn from(&self, view: &View) -> u64 {
        self.una.max(view.start)
    }

    /// Returns the right edge that its congestion window permits.
    fn edge(&self, view: &View) -> u64 {
        let from = self.from(view);
        from + self.window.bytes() + self.board.absent(from, view.sent.max(from), self.mss.into())
    }

    /// Returns the number of new bytes that may be sent to it by unicast. Without anything
    /// outstanding, a part of a segment may go.
    pub(super) fn sendable(&self, view: &View) -> u64 {
        let all = view.available.saturating_sub(self.nxt);
        let allowed = self.edge(view).min(self.permitted_to()).saturating_sub(self.nxt);
        let is_whole = allowed >= all || allowed >= u64::from(self.mss) || self.una == self.nxt;
        if is_whole { all.min(allowed) } else { 0 }
    }

    /// Notes that new data up to `end` left by unicast.
    pub(super) fn on_sent(&mut self, now: Instant, end: u64) {
        if self.timed.is_none() && end > self.resent.end() {
            self.timed = Some(Timed { end, at: now });
        }
        if self.una == self.nxt {
            self.progress = now;
        }
        self.nxt = self.nxt.max(end);
    }

    /// Returns its standing among the children of its master.
    pub(super) fn standing(&self, view: &View) -> Standing {
        Standing {
            una: self.una,
            edge: self.hearing.hears.then(|| self.edge(view)),
            from: self.from(view),
            window: if self.own_end.is_some() { u64::MAX - 1 } else { self.permitted_to() },
            rtt: self.rtt.smoothed().map_or(0, |srtt| srtt.as_nanos() as u64),
            average: self.window.average(),
            slow_start: self.window.in_slow_start(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_takes_less_than_a_kilobyte() {
        assert!(size_of::<Child>() < 700, "{}", size_of::<Child>());
    }
}
