//! The state machine of [RLM Fig. 6].

use std::collections::VecDeque;
use std::time::Duration;

use super::detection::DetectionTime;
use super::experiments::Experiments;
use super::join_timers::JoinTimers;
use super::loss_rate::LossRate;
use super::{Action, Controller, Packet, Status};
use crate::Instant;
use crate::chance::{Generator, uniform};
use crate::rlm::api::{LevelReason, State};
use crate::rlm::config::{ReceiverConfig, RlmConfig};
use crate::timers::timers;

timers! {
    /// Timers of the state machine.
    enum Timer, Timers {
        /// When to leave H, M or D, and in S when to relax the join-timer: T_D.
        Detection,
        /// When to call the experiment a success.
        Success,
        /// When to try the next level: T_J.
        Join,
    }
}

/// Time for which the next experiment waits for the first packet of a new layer. After that the
/// layer is taken for empty. Chosen: it is twice the longest latency of [RLM Fig. 9] and more.
const FIRST_PACKET: Duration = Duration::from_mins(1);

/// Longest time for which an experiment waits for the end of an object. Chosen: segments of HLS
/// last less, and one that lost something ends late.
pub(super) const OBJECT: Duration = Duration::from_secs(6);
/// Pause between the end of an object and an experiment, in which no other object begins. Chosen:
/// repairs of a segment of HLS that were not needed, and then its playlist, follow at once.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// Chooses the level by join-experiments. The module page of [`rlm`](crate::rlm) has its diagram.
#[derive(Debug)]
pub(in crate::rlm) struct Machine {
    config: RlmConfig,
    random: Generator,
    state: State,
    /// 0 outside.
    level: u8,
    max_level: u8,
    timers: Timers,
    detection: DetectionTime,
    join_timers: JoinTimers,
    experiments: Experiments,
    loss: LossRate,
    /// Time at which the highest layer was joined, while none of its packets has come.
    awaited_since: Option<Instant>,
    /// Start of this receiver's experiment that M judges, and the onset of congestion.
    judged: Option<(Instant, Instant)>,
    /// Experiments forgone in a row.
    forgone: u32,
    /// Whether a change of the level would cut an object, and since when an experiment waits for
    /// its end.
    in_object: bool,
    waits_since: Option<Instant>,
    actions: VecDeque<Action>,
    status: Status,
}

impl Machine {
    /// Creates a machine that does nothing before it joins.
    pub(in crate::rlm) fn new(config: &ReceiverConfig, random: Generator) -> Machine {
        Machine {
            config: config.rlm,
            random,
            state: State::Steady,
            level: 0,
            max_level: config.max_level,
            timers: Timers::default(),
            detection: DetectionTime::new(&config.rlm),
            join_timers: JoinTimers::new(&config.rlm),
            experiments: Experiments::default(),
            loss: LossRate::default(),
            awaited_since: None,
            judged: None,
            forgone: 0,
            in_object: false,
            waits_since: None,
            actions: VecDeque::new(),
            status: Status::default(),
        }
    }

    /// Handles T_J: tries the next level, unless it is better not to now.
    fn on_join_timer(&mut self, now: Instant) {
        if self.in_object {
            let until = *self.waits_since.get_or_insert(now) + OBJECT;
            if now < until {
                return self.timers.set(Timer::Join, until);
            }
        }
        self.schedule_join(now);
        if self.state != State::Steady || self.level >= self.max_level {
            return;
        }
        let waits = self.awaited_since.is_some_and(|since| now.since(since) < FIRST_PACKET);
        if waits || self.experiments.own().is_some() {
            return;
        }
        let others = self.experiments.any_below(now, self.detection.timer(), self.level + 1);
        if others && self.forgone < self.config.suppressions {
            self.forgone += 1;
            self.status.suppressed += 1;
            return;
        }
        self.forgone = 0;
        self.begin_experiment(now);
    }

    fn begin_experiment(&mut self, now: Instant) {
        self.level += 1;
        self.status.experiments += 1;
        self.experiments.begin(now, self.level);
        self.awaited_since = Some(now);
        self.timers.set(Timer::Success, now + self.detection.timer());
        self.actions.push_back(Action::Rise { level: self.level, reason: LevelReason::Experiment });
        self.schedule_join(now);
    }

    /// Handles the end of the span of this receiver's experiment. It lasts longer than foreseen if
    /// the detection-time grew, or if the new layer has not come yet.
    fn on_success_timer(&mut self, now: Instant) {
        let Some(own) = self.experiments.own() else { return };
        let waits = self.awaited_since.is_some_and(|since| now.since(since) < FIRST_PACKET);
        let end = own.start + self.detection.timer();
        if end > now || waits {
            self.timers.set(Timer::Success, if waits { now + self.detection.timer() } else { end });
            return;
        }
        self.experiments.end();
        self.actions.push_back(Action::Succeed { level: own.level });
    }

    /// Handles T_D.
    fn on_detection_timer(&mut self, now: Instant) {
        match self.state {
            State::Steady => {
                self.join_timers.relax(self.level);
                self.enter(now, State::Steady);
            }
            State::Hysteresis => self.enter_measurement(now, None),
            // Too few packets to judge: the next ones end it.
            State::Measurement if self.loss.expected() < self.config.loss_packets.into() => {}
            State::Measurement | State::Drop => self.enter(now, State::Steady),
        }
    }

    /// Handles loss in S.
    fn on_loss_in_steady(&mut self, now: Instant) {
        let span = self.detection.timer();
        let highest = self.experiments.highest(now, span, self.level);
        let own = self.experiments.own();
        match (highest, own) {
            (Some(level), Some(own)) if level == own.level => {
                let after = now.since(own.start);
                self.detection.measured(after);
                self.drop_layer(now, LevelReason::Failed, Some(after));
            }
            (Some(level), own) => {
                self.learn(now, level);
                match own {
                    Some(own) => self.enter_measurement(now, Some((own.start, now))),
                    None => self.enter(now, State::Hysteresis),
                }
            }
            (None, _) => self.enter(now, State::Hysteresis),
        }
    }

    /// Returns whether an experiment is in progress that can be to blame for congestion.
    pub(super) fn is_probed(&self, now: Instant) -> bool {
        self.state == State::Steady
            && self.experiments.highest(now, self.detection.timer(), self.level).is_some()
    }

    /// Returns whether no congestion is being dealt with.
    pub(super) fn is_steady(&self) -> bool {
        self.state == State::Steady
    }

    /// Takes a sign of congestion, while an experiment is in progress.
    pub(super) fn on_congestion(&mut self, now: Instant) {
        if self.is_probed(now) {
            self.on_loss_in_steady(now);
        }
    }

    /// Learns from the failure of another's experiment. If it was at the next level, it was as good
    /// as one's own, and the next one waits for as long.
    fn learn(&mut self, now: Instant, level: u8) {
        self.join_timers.back_off(level);
        self.experiments.forget(level);
        if level == self.level + 1 {
            self.schedule_join(now);
        }
    }

    /// Leaves the highest layer, but never the base, and backs off.
    fn drop_layer(&mut self, now: Instant, reason: LevelReason, after: Option<Duration>) {
        self.join_timers.back_off(self.level);
        if reason == LevelReason::Failed {
            self.status.failed += 1;
        }
        self.end_experiment();
        if self.level > 1 {
            self.level -= 1;
            self.actions.push_back(Action::Fall { level: self.level, reason, after });
        }
        self.enter(now, State::Drop);
        self.schedule_join(now);
    }

    fn end_experiment(&mut self) {
        self.experiments.end();
        self.timers.cancel(Timer::Success);
        self.awaited_since = None;
        self.judged = None;
    }

    fn enter(&mut self, now: Instant, state: State) {
        self.state = state;
        self.timers.set(Timer::Detection, now + self.detection.timer());
    }

    fn enter_measurement(&mut self, now: Instant, judged: Option<(Instant, Instant)>) {
        self.loss = LossRate::default();
        self.judged = judged;
        self.enter(now, State::Measurement);
    }

    /// Drops a layer if loss lasts.
    fn judge(&mut self, now: Instant) {
        if self.loss.expected() < self.config.loss_packets.into() {
            return;
        }
        if self.loss.exceeds(self.config.loss_threshold) {
            let judged = self.judged.filter(|_| self.experiments.own().is_some());
            let after = judged.map(|(start, onset)| onset.since(start));
            if let Some(after) = after {
                self.detection.measured(after);
            }
            let reason =
                if after.is_some() { LevelReason::Failed } else { LevelReason::Congestion };
            self.drop_layer(now, reason, after);
        } else if !self.timers.is_set(Timer::Detection) {
            self.enter(now, State::Steady);
        }
    }

    fn schedule_join(&mut self, now: Instant) {
        self.waits_since = None;
        if self.level >= self.max_level {
            return self.timers.cancel(Timer::Join);
        }
        let interval = self.join_timers.interval(self.level + 1, uniform(&mut self.random));
        self.timers.set(Timer::Join, now + interval);
    }
}

impl Controller for Machine {
    fn on_join(&mut self, now: Instant) {
        if self.level > 0 {
            return;
        }
        self.level = 1;
        self.awaited_since = Some(now);
        self.actions.push_back(Action::Rise { level: 1, reason: LevelReason::Application });
        self.enter(now, State::Steady);
        self.schedule_join(now);
    }

    fn on_leave(&mut self) {
        if self.level > 0 {
            self.level = 0;
            self.end_experiment();
            self.timers.clear();
            self.waits_since = None;
            let reason = LevelReason::Application;
            self.actions.push_back(Action::Fall { level: 0, reason, after: None });
        }
    }

    fn on_packet(&mut self, now: Instant, packet: Packet) {
        if let Some(since) = self.awaited_since
            && packet.layer + 1 == self.level
        {
            self.awaited_since = None;
            self.detection.at_least(now.since(since));
        }
        if self.state == State::Measurement {
            self.loss.came(1);
            self.judge(now);
        }
    }

    fn on_lost(&mut self, now: Instant, packets: u64) {
        match self.state {
            _ if self.level == 0 => {}
            State::Steady => self.on_loss_in_steady(now),
            State::Measurement => {
                self.loss.lost(packets);
                self.judge(now);
            }
            State::Hysteresis | State::Drop => {}
        }
    }

    fn on_experiment(&mut self, now: Instant, level: u8) {
        self.experiments.hear(now, level);
    }

    fn on_object(&mut self, now: Instant, in_object: bool) {
        let changed = std::mem::replace(&mut self.in_object, in_object) != in_object;
        if let Some(since) = self.waits_since.filter(|_| changed) {
            let until = since + OBJECT;
            let due = if in_object { until } else { until.min(now + PAUSE) };
            self.timers.set(Timer::Join, due.max(now));
        }
    }

    fn on_receivers(&mut self, receivers: u64) {
        let one = self.config.join_timer_max.as_secs_f64();
        let ceiling = self.config.join_timer_ceiling.as_secs_f64();
        let all = (one * receivers.max(1) as f64).min(ceiling);
        self.join_timers.set_max(Duration::from_secs_f64(all));
    }

    fn limit(&mut self, now: Instant, level: u8) {
        self.max_level = level;
        if self.level > level {
            self.end_experiment();
            self.level = level;
            let reason = LevelReason::Limit;
            self.actions.push_back(Action::Fall { level, reason, after: None });
            self.enter(now, State::Drop);
            self.schedule_join(now);
        } else if self.level > 0 && !self.timers.is_set(Timer::Join) {
            self.schedule_join(now);
        }
    }

    fn on_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Detection => self.on_detection_timer(now),
                Timer::Success => self.on_success_timer(now),
                Timer::Join => self.on_join_timer(now),
            }
        }
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    fn status(&self) -> Status {
        let (detection_time, detection_deviation) = self.detection.estimate();
        Status {
            level: self.level,
            state: (self.level > 0).then_some(self.state),
            detection_time,
            detection_deviation,
            ..self.status
        }
    }
}
