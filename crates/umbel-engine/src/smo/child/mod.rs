//! The child-TCB: one connection.
//!
//! | part | does |
//! |---|---|
//! | `acknowledgement.rs` | what a segment of the receiver says of what it has |
//! | `sending.rs` | what it may be sent, new and again |
//! | `timers.rs` | its time-outs, and what follows |

mod acknowledgement;
mod sending;
mod timers;

use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tcp::{Head, Seq};

use super::ack_filter::Told;
use super::api::{ChildId, State, Traffic};
use super::buffer::Buffer;
use super::config::SourceConfig;
use super::congestion::Window;
use super::hearing::Hearing;
use super::inbox::Inbox;
use super::master::Standing;
use super::patience::Patience;
use super::peer_window::PeerWindow;
use super::question::Question;
use super::resent::Resent;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::skips::Skips;
use super::view::View;
use crate::Instant;

/// Least time between two answers to segments that are not acceptable [RFC 5961 §7].
const CHALLENGE_INTERVAL: Duration = Duration::from_millis(100);
/// Time after which a deaf child is told its membership again.
const RETELL: Duration = Duration::from_secs(1);

/// Source of the bytes that a child is sent.
#[derive(Clone, Debug)]
pub(super) enum Served {
    /// From a buffer of its own, created by the first write.
    Alone(Option<Box<Buffer>>),
    /// From a master: its place, and the child's seat there.
    Master(u32, u32),
    /// It was sent everything, and has acknowledged it.
    Done,
}

/// Effect of an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acknowledged {
    /// Something, or nothing.
    Valid,
    /// It is about what was never sent.
    FarAhead,
    /// It is about what was left out on purpose.
    Optimistic,
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
    /// Position at which it began.
    pub(super) began_at: u64,

    /// First position that is not acknowledged: `SND.UNA`.
    pub(super) una: u64,
    /// Next position to be sent by unicast, while it does not hear.
    pub(super) nxt: u64,
    /// End of its part of a master's stream, if it was finished alone.
    pub(super) own_end: Option<u64>,
    pub(super) mss: u16,
    pub(super) has_sack: bool,
    pub(super) permits: PeerWindow,
    pub(super) hearing: Hearing,
    pub(super) window: Window,
    pub(super) rtt: Rtt,
    pub(super) board: Scoreboard,
    pub(super) skips: Skips,
    resent: Resent,
    timed: Option<Timed>,
    /// Whether it is probed: it is not known yet whether anything was lost.
    pub(super) is_probing: bool,
    /// Position up to which the stream had been sent to it when it was probed last.
    probed_to: u64,
    patience: Patience,
    /// The question whether it has what was multicast again.
    pub(super) question: Question,
    /// Retransmissions that wait in the master.
    pub(super) wanted: usize,

    pub(super) rto_at: Option<Instant>,
    pub(super) probe_at: Option<Instant>,
    /// Whether a single segment was outstanding when the time of the probe began.
    is_single: bool,
    /// When the last progress was made, or outstanding data was sent after none was.
    pub(super) progress: Instant,
    pub(super) heard_at: Instant,
    pub(super) keep_alive_probes: u32,
    challenged: Instant,

    /// Which of its acknowledgements are wanted, as it was told.
    pub(super) told: Told,

    pub(super) inbox: Inbox,
    /// Whether it finished before the source did.
    pub(super) finished_first: bool,
    /// When it had acknowledged the source's FIN.
    pub(super) fin_acked: Option<Instant>,

    pub(super) ack_due: bool,
    pub(super) probe_due: bool,
    /// Whether it is to be told its membership, in an ACK of its own.
    pub(super) membership_due: bool,
    /// When a deaf child was told so, last.
    pub(super) membership_told: Instant,
    pub(super) is_queued: bool,
    /// Its place among the idle children of its master, if it waits for data.
    pub(super) idle_at: Option<u32>,
    pub(super) was_full: bool,

    pub(super) unicast_bytes: u64,
    pub(super) unicast_again: Traffic,
    pub(super) loss_events: u64,
    pub(super) timeouts: u64,
}

/// Results of the handshake.
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
    /// Segments until one is left out.
    pub(super) skip: u32,
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
            began_at: opening.at,
            una: opening.at,
            nxt: opening.at,
            own_end: None,
            mss,
            has_sack: opening.has_sack,
            permits: PeerWindow::new(head, opening.shift, opening.at),
            // Multicast segments would be too long for it.
            hearing: Hearing::new(opening.mss >= config.mss),
            window: Window::new(config.congestion, mss.into(), config.initial_window),
            rtt,
            board: Scoreboard::default(),
            skips: Skips::new(opening.skip),
            resent: Resent::new(opening.at),
            timed: None,
            is_probing: false,
            probed_to: 0,
            patience: Patience::default(),
            question: Question::new(opening.has_sack),
            wanted: 0,
            rto_at: None,
            probe_at: None,
            is_single: false,
            progress: now,
            heard_at: now,
            keep_alive_probes: 0,
            challenged: Instant::EPOCH,
            told: Told::default(),
            inbox: Inbox::new(opening.irs.plus(1)),
            finished_first: false,
            fin_acked: None,
            ack_due: false,
            probe_due: false,
            membership_due: false,
            membership_told: now,
            is_queued: false,
            idle_at: None,
            was_full: false,
            unicast_bytes: 0,
            unicast_again: Traffic::default(),
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

    /// Returns whether it is to be told its membership again, and notes that it is: it is deaf, and
    /// its host may have a new helper, which knows nothing.
    pub(super) fn retells_membership(&mut self, now: Instant) -> bool {
        let is_due = !self.hearing.hears
            && self.may_hear_master()
            && now.since(self.membership_told) >= RETELL;
        if is_due {
            self.membership_told = now;
        }
        is_due
    }

    /// Returns whether multicast may reach it.
    fn may_hear_master(&self) -> bool {
        self.hearing.may_hear && matches!(self.served, Served::Master(..))
    }

    /// Returns how much of what is outstanding its window answers for. A group that is not strictly
    /// fair has more under way: half of that would be no cut at all.
    fn own_share(&self, flight: u64, view: &View) -> u64 {
        if view.is_bound { flight } else { flight.min(self.window.bytes()) }
    }

    /// Serves it by unicast from now on, after `sent` was multicast.
    fn become_deaf(&mut self, sent: u64) {
        self.hearing.on_deaf(sent);
        self.nxt = self.una;
        self.skips.forget();
        self.board.clear();
        self.resent.forget();
        (self.is_probing, self.wanted) = (false, 0);
        self.question.end();
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
        assert!(size_of::<Child>() < 800, "{}", size_of::<Child>());
    }
}
