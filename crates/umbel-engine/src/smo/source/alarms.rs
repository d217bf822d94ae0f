//! Timers: what a source waits for, and what it does then.
//!
//! Each part keeps the times that are its own: children and masters, the half-open connections and
//! those in TIME-WAIT. The named table is made of the first of each when it is asked for, since
//! they change in many ways. This stands apart and has no state itself.

use super::Source;
use crate::Instant;
use crate::smo::api::CloseReason;
use crate::smo::child::Served;
use crate::smo::master::Master;
use crate::smo::view::{View, log_of};
use crate::timers::timers;

timers! {
    /// Timers of a source.
    enum Timer, Timers {
        /// When to send the first SYN/ACK again, or to give its connection up.
        SynAck,
        /// When to forget the first connection in TIME-WAIT.
        TimeWait,
        /// When to see to the first child for which something is due.
        Child,
        /// When to send the first retransmission for which wishes are gathered.
        Repair,
        /// When to survey the children of the first master anew whose children have changed.
        Refresh,
        /// When to release the first bytes that reach their age.
        Age,
        /// When to remove the first child that holds up bytes for too long.
        Waiting,
    }
}

impl Source {
    pub(super) fn on_timers(&mut self, now: Instant) {
        let mut timers = self.timers();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Timer::SynAck => self.on_handshake_timers(now),
                Timer::TimeWait => self.time_wait.expire(now),
                Timer::Child => self.on_alarms(now),
                // Retransmissions are gathered when they are polled. The others are done below, for
                // all masters: what was done for a child may have moved them.
                Timer::Repair | Timer::Refresh | Timer::Age | Timer::Waiting => {}
            }
        }
        for place in 0..self.masters.len() as u32 {
            self.advance(now, place);
            self.end_waiting(now, place);
        }
    }

    fn on_alarms(&mut self, now: Instant) {
        while let Some(slot) = self.alarms.winner()
            && self.alarms.least().is_some_and(|at| at <= now.as_nanos())
        {
            self.alarms.put(slot, None);
            self.on_alarm(now, slot as u32);
        }
    }

    /// Returns when bytes of a master have waited for too long for its children to permit them.
    fn waited_at(&self, master: &Master) -> Option<Instant> {
        master.waited_at(&self.config).filter(|_| self.sendable(master) == 0)
    }

    /// Removes who holds up bytes for too long, or drops the bytes if there is nobody.
    fn end_waiting(&mut self, now: Instant, place: u32) {
        while let Some(master) = self.master(place)
            && self.waited_at(master).is_some_and(|at| at <= now)
        {
            let (id, slowest) = (master.id, master.bottleneck());
            if let Some(slot) = slowest {
                self.remove(slot, CloseReason::HoldsUp);
            }
            let Source { masters, config, .. } = self;
            let Some(master) = masters[place as usize].as_mut() else { return };
            master.survey_all(now, config);
            let wait = config.removal.wait.unwrap_or_default().as_nanos() as u64;
            if slowest.is_none()
                && let Some(moment) = now.as_nanos().checked_sub(wait)
            {
                master.skip_to(master.buffer.written_until(Instant::from_nanos(moment)));
                self.tell_room(place, id);
            }
        }
    }

    /// Returns when there is something to do.
    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers().next()
    }

    fn timers(&self) -> Timers {
        let config = &self.config;
        let mut timers = Timers::default();
        timers.put(Timer::SynAck, self.half_open.next_due());
        timers.put(Timer::TimeWait, self.time_wait.next_due());
        timers.put(Timer::Child, self.alarms.least().map(Instant::from_nanos));
        for master in self.masters.iter().flatten() {
            timers.put_first(Timer::Repair, master.repairs.due(master.gather(config)));
            timers.put_first(Timer::Refresh, master.refresh_at());
            timers.put_first(Timer::Age, master.age_at(config));
            timers.put_first(Timer::Waiting, self.waited_at(master));
        }
        timers
    }

    /// Does what is due for a child, which may be nothing: alarms are moved forward only when they
    /// run out.
    fn on_alarm(&mut self, now: Instant, slot: u32) {
        if let Some(reason) = self.judge(now, slot) {
            return self.remove(slot, reason);
        }
        let initial = self.config.initial_window;
        let (keep_alive, probes) = (self.config.keep_alive, self.config.keep_alive_probes.max(1));
        let Source { children, masters, config, questions, .. } = self;
        let child = children.at(slot);
        let view = View::of(child, masters);
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(child.probe_at) && child.permits.size() == 0 {
            // The time-out probes its window.
            child.probe_at = None;
        }
        if is_due(child.probe_at) {
            if !child.puts_off_probe(now) && child.on_probe_timeout(&view) {
                child.question.begin(questions.next(now));
            }
        } else if is_due(child.rto_at) {
            if child.permits.size() == 0 {
                // Probes of a closed window go on at the pace of time-outs [RFC 9293 §3.8.6.1].
                child.rtt.back_off();
                child.rto_at = None;
                child.probe_due = true;
            } else {
                let old = child.old(now, log_of(child, masters));
                child.on_timeout(&view, initial, old);
                // The helper may have missed it.
                child.membership_due =
                    child.hearing.may_hear && matches!(child.served, Served::Master(..));
                self.stats.timeouts += 1;
            }
        } else if is_due(child.unanswered_at()) {
            child.on_unanswered(now, config);
            child.question.begin(questions.next(now));
        } else if is_due(child.hole_at()) && child.on_hole_late(now, config, &view) {
            child.question.begin(questions.next(now));
        }
        let child = self.at(slot);
        let quiet = keep_alive + (keep_alive / probes) * child.keep_alive_probes;
        if now >= child.heard_at + quiet {
            child.keep_alive_probes += 1;
            child.probe_due = true;
        }
        if child.question.take_turn(now) || child.probe_due || child.membership_due {
            self.make_ready(slot);
        }
        self.settle(now, slot);
    }

    /// Returns why a child is to be removed, if it is.
    fn judge(&mut self, now: Instant, slot: u32) -> Option<CloseReason> {
        let rules = self.config.removal;
        let (real_time, keep_alive) = (self.config.real_time, self.config.keep_alive);
        let fin_wait = self.config.fin_wait;
        let probes = self.config.keep_alive_probes.max(1);
        let (child, view) = self.seen(slot);
        let is_over = |since: Instant, time| now.since(since) >= time;
        let quiet = keep_alive + (keep_alive / probes) * child.keep_alive_probes;
        if child.keep_alive_probes >= probes && is_over(child.heard_at, quiet) {
            return Some(CloseReason::Dead);
        }
        if child.fin_acked.is_some_and(|at| is_over(at, fin_wait)) {
            return Some(CloseReason::Lingered);
        }
        if child.permits.is_closed_for(now, rules.closed_window) {
            return Some(CloseReason::ClosedWindow);
        }
        let outstanding = view.sent > child.una;
        if outstanding && child.permits.size() > 0 && is_over(child.progress, rules.stall) {
            return Some(CloseReason::Stalled);
        }
        // An ordinary receiver does not skip what is released.
        if real_time.is_some_and(|age| child.una < view.start && is_over(child.progress, 2 * age)) {
            return Some(CloseReason::TooLate);
        }
        if !is_over(child.established, rules.judged_after) {
            return None;
        }
        if rules.rtt.is_some_and(|most| child.rtt.smoothed().is_some_and(|rtt| rtt > most)) {
            return Some(CloseReason::TooFar);
        }
        let least = rules.window.map(|segments| segments * f64::from(child.mss));
        if least.is_some_and(|least| outstanding && child.window.average() < least) {
            return Some(CloseReason::TooSlow);
        }
        None
    }
}
