//! Session messages: the members, their distances, and the units sent [SRM, session messages].

use std::time::Duration;

use umbel_wire::srm::{Echo, MemberId, Message, SourceState};

use super::drops::DropReason;
use super::{Inflow, Member};
use crate::Instant;
use crate::reliable::ReceiveWindow;
use crate::session_pacing::Group;

/// Number of latest session messages whose timestamps an echo may name.
const TIMESTAMPS: usize = 64;

impl Member {
    pub(super) fn group(&self) -> Group {
        let own = u64::from(self.own.next > 0);
        let others = self.sources.values().filter(|inflow| !inflow.gone).count() as u64;
        let sources = own + others;
        let members = (self.census.others() + 1).max(sources);
        Group { members, sources, is_source: own > 0 }
    }

    /// Builds the next session message that is due.
    pub(super) fn next_session(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.session_due {
            self.session_due = false;
            self.heartbeat_due = false;
            self.forget_silent(now);
            let echoes = self.peers.take_echoes(now, self.config.session.echoes);
            let message = self.session_message(now, echoes, false);
            self.pacer.average(message.len());
            let (group, uniform) = (self.group(), self.uniform());
            self.pacer.sent(now, group, uniform);
            return Some(message);
        }
        if std::mem::take(&mut self.heartbeat_due) {
            return Some(self.session_message(now, Vec::new(), false));
        }
        None
    }

    pub(super) fn session_message(
        &mut self,
        now: Instant,
        echoes: Vec<Echo>,
        leaving: bool,
    ) -> Vec<u8> {
        let timestamp_ns = now.as_nanos();
        if self.timestamps.len() == TIMESTAMPS {
            self.timestamps.pop_front();
        }
        self.timestamps.push_back(timestamp_ns);
        self.stats.sessions_sent += 1;
        let (sender, sources) = (self.config.id, self.source_states());
        let mut message = Vec::new();
        Message::Session { sender, timestamp_ns, sources, echoes, leaving }.emit(&mut message);
        self.pacer.count(now, message.len());
        message
    }

    /// Returns this member's own state first, then as many others in turn as there is room for.
    fn source_states(&mut self) -> Vec<SourceState> {
        let most = self.config.session.sources;
        let mut states = Vec::new();
        if self.own.sent > 0 {
            let (horizon, next) = (self.own.horizon(), self.own.sent);
            states.push(SourceState { source: self.config.id, horizon, next });
        }
        let after =
            self.sources.range(self.told_until..).chain(self.sources.range(..self.told_until));
        let told: Vec<(MemberId, SourceState)> = after
            .filter(|(_, inflow)| inflow.window.known() > 0)
            .take(most.saturating_sub(states.len()))
            .map(|(&source, inflow)| {
                let next = inflow.window.known();
                let horizon = inflow.horizon.min(next);
                (source, SourceState { source, horizon, next })
            })
            .collect();
        if let Some(&(last, _)) = told.last() {
            self.told_until = MemberId(last.0.wrapping_add(1));
        }
        states.extend(told.into_iter().map(|(_, state)| state));
        states
    }

    fn forget_silent(&mut self, now: Instant) {
        // A receiver's interval is the longest of all.
        let group = Group { is_source: false, ..self.group() };
        let interval = self.pacer.interval(group);
        let silence = interval * self.config.session.silent_intervals;
        let since = Instant::from_nanos(now.as_nanos().saturating_sub(nanoseconds(silence)));
        self.census.forget_silent(since);
        self.peers.forget_silent(since);
        for inflow in self.sources.values_mut() {
            inflow.gone |= inflow.heard < since;
        }
    }

    /// Handles a session message of this length.
    pub(super) fn on_session(&mut self, now: Instant, len: usize, session: Session) {
        let Session { sender, timestamp_ns, sources, echoes, leaving } = session;
        self.stats.sessions_heard += 1;
        for state in sources {
            self.on_source_state(now, sender, state);
        }
        if leaving {
            return self.on_left(sender);
        }
        self.note_heard(now, sender);
        self.census.heard(now, sender.0, ());
        self.peers.timestamp(now, sender, timestamp_ns);
        self.pacer.count(now, len);
        if !echoes.is_empty() {
            self.pacer.average(len);
        }
        let own = self.config.id;
        for echo in echoes.into_iter().filter(|echo| echo.member == own) {
            self.on_echo(now, sender, echo);
        }
    }

    /// Measures the distance: half the round trip, less the time that the peer held the timestamp.
    fn on_echo(&mut self, now: Instant, sender: MemberId, echo: Echo) {
        let sent = Instant::from_nanos(echo.timestamp_ns);
        let away = now - sent;
        let known = self.timestamps.contains(&echo.timestamp_ns);
        match away.checked_sub(echo.held).map(|round_trip| round_trip / 2) {
            Some(distance) if known && distance <= self.config.max_distance => {
                self.peers.measured(now, sender, distance);
            }
            _ => self.drops.count(DropReason::AbsurdTimestamp),
        }
    }

    fn on_source_state(&mut self, now: Instant, sender: MemberId, state: SourceState) {
        let SourceState { source, horizon, next } = state;
        if source == self.config.id {
            // Others can only repeat units that this member sent.
            if next > self.own.sent {
                self.drops.count(DropReason::FarAhead);
            }
            return;
        }
        let from = if self.config.recover_from_horizon { horizon } else { next };
        let Some(inflow) = self.inflow(now, source, from) else { return };
        if let Some(last) = next.checked_sub(1)
            && inflow.window.note_sent(last).is_err()
        {
            return self.drops.count(DropReason::FarAhead);
        }
        if sender == source {
            self.on_horizon(source, horizon);
        }
        self.find_gaps(now, source);
    }

    /// Raises the horizon, before which the source no longer repairs units.
    pub(super) fn on_horizon(&mut self, source: MemberId, horizon: u64) {
        let Some(inflow) = self.sources.get_mut(&source) else { return };
        if horizon > inflow.horizon {
            inflow.horizon = horizon;
            self.give_up_before(source, horizon);
        }
    }

    fn on_left(&mut self, member: MemberId) {
        self.census.forget(member.0);
        self.peers.forget(member);
        if let Some(inflow) = self.sources.get_mut(&member) {
            inflow.gone = true;
        }
    }

    /// Notes that a member was heard.
    pub(super) fn note_heard(&mut self, now: Instant, member: MemberId) {
        if let Some(inflow) = self.sources.get_mut(&member) {
            (inflow.heard, inflow.gone) = (now, false);
        }
    }

    /// Returns the state of a source's stream. A new source is received from unit `from` on, if
    /// there is room for it.
    pub(super) fn inflow(
        &mut self,
        now: Instant,
        source: MemberId,
        from: u64,
    ) -> Option<&mut Inflow> {
        if !self.sources.contains_key(&source) {
            if self.sources.len() >= self.config.max_sources && !self.drop_a_gone_source() {
                self.drops.count(DropReason::TooManySources);
                return None;
            }
            let window = ReceiveWindow::new(from, self.config.window);
            self.sources.insert(source, Inflow { window, horizon: from, heard: now, gone: false });
        }
        self.sources.get_mut(&source)
    }

    /// Makes room by forgetting the source that has been gone for the longest time, if any is.
    fn drop_a_gone_source(&mut self) -> bool {
        let gone = self.sources.iter().filter(|(_, inflow)| inflow.gone);
        let Some(source) = gone.min_by_key(|(_, inflow)| inflow.heard).map(|(&source, _)| source)
        else {
            return false;
        };
        self.forget_requests(source);
        self.history.forget(source);
        self.sources.remove(&source);
        true
    }
}

/// The fields of a session message.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) sender: MemberId,
    pub(super) timestamp_ns: u64,
    pub(super) sources: Vec<SourceState>,
    pub(super) echoes: Vec<Echo>,
    pub(super) leaving: bool,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
