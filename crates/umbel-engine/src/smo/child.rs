//! The child-TCB: one connection.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::time::Duration;

use umbel_wire::tcp::{Head, Seq};

use super::api::{ChildId, State};
use super::buffer::Buffer;
use super::config::SourceConfig;
use super::congestion::Window;
use super::master::{SendLog, Standing};
use super::reassembly::Reassembly;
use super::rtt::Rtt;
use super::scoreboard::{Kind, Scoreboard};
use crate::Instant;

/// Duration of a probe time-out in smoothed RTTs [RFC 8985 §7.2].
const PROBE_RTTS: u32 = 2;
/// Shortest probe time-out, and time-out of a retransmission.
const MIN_LATE: Duration = Duration::from_millis(10);
/// Least time between two answers to segments that are not acceptable [RFC 5961 §7].
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// Recoveries in a row in which only retransmissions were acknowledged, after which a child counts
/// as deaf.
const MAX_UNHEARD: u8 = 3;
/// Retransmissions of a child that are under way in its master at most.
const MAX_WANTED: usize = 64;
/// Retransmissions of a segment that restart the time-out, at most.
const MAX_RESTARTS: u8 = 2;
/// Retransmissions under way whose times are kept, at most. Of others a time-out finds the loss.
const MAX_AGAIN: usize = 256;

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

/// What a child must know of the stream that it is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct View {
    /// Next position that was not sent to it.
    pub(super) sent: u64,
    /// Greatest position that it may acknowledge.
    pub(super) ackable: u64,
    /// First position that is held.
    pub(super) start: u64,
    /// Position after FIN, if the end is known.
    pub(super) end: Option<u64>,
    /// Position up to which it may be sent new data by unicast; FIN has one, too.
    pub(super) available: u64,
    /// Whether no more is sent to it than its congestion window permits. A group that is not
    /// strictly fair goes on without it.
    pub(super) is_bound: bool,
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
    shift: u8,
    pub(super) rwnd: u64,
    max_rwnd: u64,
    wl1: Seq,
    wl2: u64,
    /// Whether new data reaches it by multicast, and whether that is possible at all.
    pub(super) hears: bool,
    pub(super) may_hear: bool,
    /// Whether it acknowledged what was only multicast since the last time-out.
    heard: bool,
    /// Position up to which it may have what was multicast before it became deaf.
    deaf_from: u64,
    /// Recoveries that ended since it was heard to receive multicasts.
    unheard: u8,
    pub(super) window: Window,
    pub(super) rtt: Rtt,
    pub(super) board: Scoreboard,
    /// Position up to which bytes were sent more than once, or by unicast.
    retransmitted_to: u64,
    timed: Option<Timed>,
    /// When the first hole was sent again.
    hole: Option<Instant>,
    /// When what is not acknowledged was sent again, by position.
    again: BTreeMap<u64, Instant>,
    /// Retransmissions that restarted the time-out since the last progress.
    restarts: u8,
    /// Whether the recovery began with a probe, so that it is not known yet whether anything was
    /// lost.
    is_probing: bool,
    /// Retransmissions that wait in the master.
    pub(super) wanted: usize,

    pub(super) rto_at: Option<Instant>,
    pub(super) probe_at: Option<Instant>,
    /// When the last progress was made, or outstanding data was sent after none was.
    pub(super) progress: Instant,
    /// When its window closed.
    pub(super) closed_since: Option<Instant>,
    pub(super) heard_at: Instant,
    pub(super) keep_alive_probes: u32,
    challenged: Instant,

    pub(super) received: Reassembly,
    /// Sequence number of position 0 of what it sends.
    pub(super) irs: Seq,
    pub(super) received_end: bool,
    /// Position of its FIN, once it is known.
    pub(super) fin_at: Option<u64>,
    pub(super) unconsumed: usize,
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
    pub(super) received_bytes: u64,
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
        let rwnd = u64::from(head.window) << opening.shift;
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
            shift: opening.shift,
            rwnd,
            max_rwnd: rwnd,
            wl1: head.seq,
            wl2: opening.at,
            hears: false,
            // What is multicast would be too long for it.
            may_hear: opening.mss >= config.mss,
            heard: false,
            deaf_from: 0,
            unheard: 0,
            window: Window::new(config.congestion, mss.into(), config.initial_window),
            rtt,
            board: Scoreboard::default(),
            retransmitted_to: opening.at,
            timed: None,
            hole: None,
            again: BTreeMap::new(),
            restarts: 0,
            is_probing: false,
            wanted: 0,
            rto_at: None,
            probe_at: None,
            progress: now,
            closed_since: None,
            heard_at: now,
            keep_alive_probes: 0,
            challenged: Instant::EPOCH,
            received: Reassembly::new(0),
            irs: opening.irs.plus(1),
            received_end: false,
            fin_at: None,
            unconsumed: 0,
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
            received_bytes: 0,
        }
    }

    /// Returns the state of the connection [RFC 9293 §3.3.2].
    pub(super) fn state(&self, view: &View) -> State {
        let fin_sent = view.end.is_some_and(|end| view.sent >= end);
        let fin_acked = matches!(self.served, Served::Done);
        match (self.received_end, fin_sent || fin_acked) {
            (false, false) => State::Established,
            (true, false) => State::CloseWait,
            (false, true) if fin_acked => State::FinWait2,
            (false, true) => State::FinWait1,
            (true, true) if self.finished_first => State::LastAck,
            (true, true) => State::Closing,
        }
    }

    /// Returns the next sequence number that is expected from it: `RCV.NXT`.
    pub(super) fn rcv_nxt(&self) -> Seq {
        self.irs.plus(self.received.next() as u32)
    }

    /// Returns the bytes that it may send.
    pub(super) fn receive_window(&self, config: &SourceConfig) -> u16 {
        let used = self.unconsumed.min(usize::from(config.receive_buffer)) as u16;
        config.receive_buffer - used
    }

    /// Returns whether its window takes nothing, or in a group so little that all the others wait.
    fn is_closed(&self) -> bool {
        let is_alone = matches!(self.served, Served::Alone(_));
        self.rwnd < if is_alone { 1 } else { u64::from(self.mss) }
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
            // RFC 5961 §5.2: an older one than the window permits is challenged.
            let is_old = self.una - ack > self.max_rwnd.max(1);
            return if is_old { Acknowledged::Old } else { Acknowledged::Valid };
        }
        let window = u64::from(head.window) << self.shift;
        let is_same_window = window == self.rwnd;
        let order = head.seq.since(self.wl1);
        if order > 0 || order == 0 && self.wl2 <= ack {
            (self.wl1, self.wl2, self.rwnd) = (head.seq, ack, window);
            self.max_rwnd = self.max_rwnd.max(window);
            if !self.is_closed() {
                self.closed_since = None;
            }
        }
        let before = self.una;
        let in_use = view.sent.saturating_sub(before);
        let by_unicast =
            if self.hears { self.retransmitted_to } else { self.nxt.max(self.deaf_from) };
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
            && let (Some(hole), Some(log)) = (self.hole, log)
            && let Some((_, at)) = log.sent(highest)
            && at > hole + self.rtt.smoothed().unwrap_or_default() / 4
        {
            self.hole = None;
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
                let is_news = left >= self.retransmitted_to.max(self.deaf_from);
                let may_hear = self.may_hear && matches!(self.served, Served::Master(..));
                if is_news && may_hear && !self.hears {
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
        (self.heard, self.unheard) = (true, 0);
        if !self.hears && self.may_hear && matches!(self.served, Served::Master(..)) {
            self.hears = true;
            // All that was multicast until now may be lost to it.
            self.retransmitted_to = self.nxt.max(self.una);
            self.nxt = view.ackable;
            self.timed = None;
        }
    }

    /// Takes a sample of the RTT if this ACK is the first to name what is timed. `newest` is the
    /// end of the bytes that it is the first to name, if they are beyond all others: an ACK beyond
    /// a hole that was filled says when it was filled, and not how long the rest was on its way.
    fn take_sample(&mut self, now: Instant, ack: u64, newest: Option<u64>, log: Option<&SendLog>) {
        let sent_at = if self.hears {
            let sent = newest.and_then(|newest| log?.sent(newest));
            sent.filter(|(end, _)| *end > self.una.max(self.retransmitted_to))
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
        log.filter(|_| self.hears).map_or(0, |log| log.sent_until(at))
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
            if self.hole.is_none_or(|at| now.since(at) < soon) {
                // The answer to what was sent first: nothing was lost.
                self.board.cancel();
            } else {
                self.on_loss(in_use);
            }
        }
        let kind = self.board.recovery();
        let arrived = match log.filter(|_| self.hears) {
            Some(log) => self.hole.map_or(0, |at| log.sent_until(at)),
            None => view.sent,
        };
        self.una = ack;
        self.nxt = self.nxt.max(ack);
        while self.again.first_key_value().is_some_and(|(&at, _)| at < ack) {
            self.again.pop_first();
        }
        self.hole = self.again.get(&ack).copied();
        (self.progress, self.restarts) = (now, 0);
        self.rtt.on_progress();
        if self.board.on_progress(ack, self.has_sack, self.mss.into(), arrived) {
            self.wanted = 0;
            self.unheard += u8::from(self.hears);
            if self.unheard >= MAX_UNHEARD {
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
        let waits_for_window = self.rwnd == 0 && view.end.is_none_or(|end| self.una < end);
        if !outstanding && !waits_for_window {
            (self.rto_at, self.probe_at, self.hole) = (None, None, None);
            return true;
        }
        if self.is_closed() {
            self.closed_since.get_or_insert(now);
        }
        if self.rto_at.is_none() {
            let rto_at = self.timeout_from(now, config);
            self.rto_at = Some(rto_at);
            let flight = view.sent.saturating_sub(self.una);
            // A single segment may wait for the receiver's delayed ACK, as long as an RTO.
            if self.board.recovery().is_none()
                && flight > u64::from(self.mss)
                && self.hole.is_none()
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
        Some(self.hole? + self.rtt.late()?.max(MIN_LATE))
    }

    /// Sends the first hole once more, unless it was filled, and the receiver waits for what is
    /// forgotten before it.
    pub(super) fn on_hole_late(&mut self, view: &View) {
        self.hole = None;
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
    /// costs half of the window if it turns out that something was lost [RFC 8985 §7].
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
        (self.rto_at, self.probe_at, self.hole, self.timed) = (None, None, None, None);
        self.again.clear();
        if self.hears && !self.heard {
            // Nothing of what was multicast reached it since the last time-out.
            self.become_deaf(view.sent);
            self.window.restart(initial);
            return;
        }
        (self.heard, self.is_probing, self.wanted) = (false, false, 0);
        self.window.on_timeout(flight, again);
        if again {
            // A receiver may have taken back what it SACKed.
            self.board.forget();
        }
        let first = self.una + u64::from(self.mss);
        let lost_to = if self.hears { first.max(old).min(view.sent) } else { view.sent };
        self.board.begin(Kind::Timeout, self.una, view.sent, lost_to);
    }

    /// Serves it by unicast from now on, after `sent` was multicast.
    fn become_deaf(&mut self, sent: u64) {
        (self.hears, self.unheard, self.deaf_from) = (false, 0, sent);
        self.nxt = self.una;
        self.board.clear();
        self.again.clear();
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
        let end = run.end.min(self.una + self.rwnd);
        let may_go = end == run.end || run.start == self.una;
        (may_go && run.start < end).then_some(run.start..end)
    }

    /// Notes that a run will be sent again.
    pub(super) fn on_repair_wanted(&mut self, run: &Range<u64>) {
        self.board.on_sent_again(run);
        self.retransmitted_to = self.retransmitted_to.max(run.end);
    }

    /// Notes that a run was sent again, of a stream that is held from `start` on.
    pub(super) fn on_repaired(
        &mut self,
        at: Instant,
        run: &Range<u64>,
        start: u64,
        config: &SourceConfig,
    ) {
        self.retransmitted_to = self.retransmitted_to.max(run.end);
        self.timed = self.timed.filter(|timed| timed.end <= run.start);
        if run.start > self.una && self.again.len() < MAX_AGAIN {
            self.again.insert(run.start, at);
        }
        if run.start <= self.una.max(start) {
            self.hole = Some(at);
            // Otherwise the answer could come after the time-out [RFC 6675 §6].
            if self.board.recovery() == Some(Kind::Fast) && self.restarts < MAX_RESTARTS {
                self.restarts += 1;
                self.rto_at = self.rto_at.max(Some(self.timeout_from(at, config)));
            }
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
        let allowed = self.edge(view).min(self.una + self.rwnd).saturating_sub(self.nxt);
        let is_whole = allowed >= all || allowed >= u64::from(self.mss) || self.una == self.nxt;
        if is_whole { all.min(allowed) } else { 0 }
    }

    /// Notes that new data up to `end` left by unicast.
    pub(super) fn on_sent(&mut self, now: Instant, end: u64) {
        if self.timed.is_none() && end > self.retransmitted_to {
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
            edge: self.hears.then(|| self.edge(view)),
            from: self.from(view),
            window: if self.own_end.is_some() { u64::MAX - 1 } else { self.una + self.rwnd },
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
