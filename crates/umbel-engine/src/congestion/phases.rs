//! The phases of the rate, and its growth while no limit is known.

use std::time::Duration;

use super::Controller;
use super::api::Share;
use super::config::{self, CongestionConfig};
use super::path::{Bottleneck, Drained, Path};
use crate::Instant;

/// Phases of the rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Grow,
    Drain,
    Cruise,
    Probe,
    /// Beside others that fill the queue.
    Compete,
    /// While others fill the queue, in the background.
    Yield,
}

impl<Who: Ord + Clone> Controller<Who> {
    /// Goes on after the first report.
    pub(super) fn end_first_window(&mut self, who: &Who) {
        let rtt = self.rtt().max(1e-4);
        let first = self.bits(f64::from(self.config.initial_packets)) / rtt;
        let train = self.paths.get(who).and_then(|path| path.train.rate);
        let train = train.unwrap_or(f64::INFINITY);
        let rate = self.grown(first, train, false).min(train * 0.95);
        let rate = rate.min(self.rate * self.config.growth);
        self.set(rate);
        self.ramp = Some(self.rate);
        self.ramp_from = self.batches.next;
    }

    /// Finds the phase and the rate.
    pub(super) fn review(&mut self, now: Instant) {
        let over = self.phase_ends.is_some_and(|ends| ends <= now);
        if over {
            self.phase_ends = None;
        }
        let rate = match self.narrowest() {
            None => {
                if self.phase == Phase::Yield && !over {
                    return;
                }
                if self.phase != Phase::Grow {
                    let carried = self.carried().unwrap_or(self.rate);
                    self.ramp = Some(carried.max(self.rate));
                    self.ramp_from = self.batches.next;
                    self.enter(now, Phase::Grow, None);
                }
                f64::INFINITY
            }
            Some(path) => {
                let view = View::of(path, &self.config);
                self.step(now, &view, over);
                self.rate_in_phase(&view)
            }
        };
        self.grow(rate);
        self.set(rate.min(self.ramp.unwrap_or(f64::INFINITY)));
        self.note_limit(now);
    }

    /// Goes to the next phase, if it is time.
    fn step(&mut self, now: Instant, view: &View, over: bool) {
        let over = over || self.phase_ends.is_none();
        let probe = self.probe_time(view);
        if view.queue_least <= view.target {
            self.others = false;
        }
        let pushed_aside = self.phase == Phase::Cruise && self.is_pushed_aside(view);
        match self.phase {
            Phase::Yield if over => self.end_yield(now),
            Phase::Yield => {}
            _ if view.competes && self.phase != Phase::Compete => {
                self.enter(now, Phase::Compete, Some(view.look_after()));
            }
            Phase::Compete if over || !view.competes || self.seems_alone(now, view) => {
                if let Some(path) = self.narrowest_mut() {
                    path.competes = false;
                }
                self.drain(now, view, Duration::from_secs_f64(view.rtt));
            }
            Phase::Grow => {
                self.probe_every = self.config.probe_every;
                self.ramp = None;
                let round = self.round();
                self.drain(now, view, round);
            }
            Phase::Cruise if pushed_aside => self.meet_others(now, view),
            Phase::Drain => self.step_drain(now, view, over),
            Phase::Cruise | Phase::Probe if view.on_trial => self.drain(now, view, probe),
            Phase::Cruise if !self.others && view.queue_least > 2.0 * view.target => {
                self.drain(now, view, probe);
            }
            Phase::Cruise if over => {
                self.refusals = view.refusals;
                self.probe_gain = self.config.probe;
                self.enter(now, Phase::Probe, Some(probe));
            }
            Phase::Probe if over || view.refusals != self.refusals => {
                let longest = Duration::from_secs(5);
                // What passes through a bucket says nothing.
                let undecided = view.is_policed
                    && view.refusals == self.refusals
                    && now.since(self.phase_began) < longest;
                if undecided {
                    self.phase_ends = Some(now + probe);
                    let step = (probe.as_secs_f64() * 2.0).max(config::PROBE_STEP);
                    let steps = (now.since(self.phase_began).as_secs_f64() / step) as u32;
                    let gain = (0..steps.min(16)).fold(self.config.probe, |gain, _| gain * 1.25);
                    self.probe_gain = gain.min(config::MOST_PROBE);
                } else {
                    self.probe_every = (self.probe_every * 1.5).min(self.config.probe_every_most);
                    self.drain(now, view, probe);
                }
            }
            Phase::Compete | Phase::Cruise | Phase::Probe => {}
        }
    }

    fn drain(&mut self, now: Instant, view: &View, lasts: Duration) {
        self.before_drain = view.limit;
        if let Some(path) = self.narrowest_mut() {
            path.drained = Drained::default();
        }
        self.enter(now, Phase::Drain, Some(lasts));
    }

    /// Drains until the queue is short, or it is clear that others fill it.
    fn step_drain(&mut self, now: Instant, view: &View, over: bool) {
        let Drained { queue, due } = view.drained;
        let own = config::compete::OWN_QUEUE * queue + config::compete::OWN_RTT * view.rtt;
        let own = own.max(config::compete::OWN_LEAST);
        // It drains further than it must, to see whether it is alone.
        let short = if self.config.share == Share::Fair { view.own } else { view.target };
        let is_short = view.queue <= short && view.queue_least <= short;
        if due > own && !is_short && !view.is_policed {
            self.meet_others(now, view);
        } else if over && (is_short || self.others) && !view.on_trial {
            if let Some(path) = self.narrowest_mut()
                && path.competition.is_some()
            {
                path.be_alone();
                self.probe_every = 1.0;
            }
            let rounds = if view.is_unsure { 1.0 } else { self.probe_every };
            let wait = Duration::from_secs_f64(rounds * view.rtt.max(0.01));
            self.enter(now, Phase::Cruise, Some(wait.min(self.config.probe_wait_most)));
        }
    }

    /// Returns whether the others seem to be gone.
    fn seems_alone(&self, now: Instant, view: &View) -> bool {
        let passed = now.since(self.phase_began);
        passed > Duration::from_secs_f64(config::compete::LOOK_LEAST) && passed > view.look_after()
    }

    /// Returns whether the limit has become lower and lower though the channel does not exceed it:
    /// others take what it leaves.
    fn is_pushed_aside(&mut self, view: &View) -> bool {
        if view.is_policed || view.on_trial || self.config.share != Share::Fair {
            self.peak = 0.0;
            return false;
        }
        if view.queue_least <= view.target {
            self.peak = (self.peak * config::compete::PEAK_LASTS).max(view.limit);
        }
        view.limit < self.peak * config::compete::PUSHED
            && view.queue_least > (view.target - view.jitter) / 4.0 + 2.0 * view.jitter
    }

    /// Does what the share of the channel is where others fill the queue.
    fn meet_others(&mut self, now: Instant, view: &View) {
        let limit = self.before_drain.max(self.peak);
        let bits = self.bits(1.0);
        let share = self.config.share;
        let Some(path) = self.narrowest_mut() else { return };
        match share {
            Share::Full => {
                path.carries = limit;
                self.others = true;
            }
            Share::Fair => {
                let again = path.competition.is_some();
                if again {
                    path.compete_again(now);
                } else {
                    path.compete(now, limit * config::compete::BETA, bits);
                }
                self.peak = if again { self.peak } else { 0.0 };
                self.enter(now, Phase::Compete, Some(view.look_after()));
            }
            Share::Background => {
                let lasts = Duration::from_secs_f64(self.yields);
                self.yields = (self.yields * 2.0).min(config::compete::YIELD_MOST);
                self.enter(now, Phase::Yield, Some(lasts));
            }
        }
    }

    /// Begins anew, after others had the queue.
    fn end_yield(&mut self, now: Instant) {
        if let Some(path) = self.narrowest_mut() {
            path.bound = None;
        }
        self.ramp = Some(self.bits(f64::from(self.config.initial_packets)) / self.rtt());
        self.ramp_from = self.batches.next;
        self.enter(now, Phase::Grow, None);
    }

    /// Returns how long a probe lasts: long enough to tell a queue that grows.
    fn probe_time(&self, view: &View) -> Duration {
        let packets = self.bits(16.0) / view.limit;
        let most = self.config.probe_most.as_secs_f64();
        let time = view.rtt.min(most).max(packets).max(view.jitter * 10.0);
        Duration::from_secs_f64(time.clamp(1e-3, 10.0))
    }

    fn rate_in_phase(&self, view: &View) -> f64 {
        let limit = view.limit;
        match self.phase {
            Phase::Compete => limit,
            Phase::Yield => self.bits(2.0) / view.rtt,
            Phase::Cruise if self.others => limit,
            Phase::Grow | Phase::Cruise => {
                let above = (view.queue_least - view.target / 2.0).max(0.0);
                let less = (above / (4.0 * view.rtt.max(0.01))).min(0.3);
                limit * (1.0 - less) * if view.is_policed { 0.98 } else { 1.0 }
            }
            Phase::Drain if view.on_trial => limit * 0.9,
            Phase::Drain if view.queue > 2.0 * view.target => limit * 0.5,
            Phase::Drain if view.is_policed => limit * 0.85,
            Phase::Drain => limit * self.config.drain,
            Phase::Probe => limit * self.probe_gain,
        }
    }

    /// Returns the rate that the paths of those are known to carry that report promptly.
    fn carried(&self) -> Option<f64> {
        let carried = self.feedback.prompt().filter_map(|who| self.paths.get(who));
        let carried = carried.filter(|path| path.bound.is_none()).map(|path| path.carries);
        carried.min_by(f64::total_cmp)
    }

    /// Raises what growth allows, when a round at the present rate has shown no limit.
    fn grow(&mut self, wanted: f64) {
        let Some(ramp) = self.ramp else { return };
        if wanted <= ramp {
            self.ramp = wanted.is_finite().then_some(wanted).filter(|_| self.phase == Phase::Grow);
            if self.ramp.is_none() {
                return;
            }
        }
        let packets = (ramp * self.rtt() / 2.0 / self.bits(1.0)).clamp(2.0, 10.0) as i32;
        let verified = ramp * 0.9 / self.bits(1.0);
        let covers = |path: &&Path| {
            let judged = path.judged.wrapping_sub(self.ramp_from).cast_signed();
            // Where loss needs more packets to be judged, growth waits for a while.
            let waited = judged >= packets * 20 && !path.loss.is_doubtful();
            judged >= packets && (path.loss.verified() >= verified || waited)
        };
        let prompt: Vec<_> = self.feedback.prompt().filter_map(|who| self.paths.get(who)).collect();
        let covering: Vec<_> = prompt.iter().copied().filter(covers).collect();
        if covering.is_empty() || covering.len() * 2 < prompt.len() {
            return;
        }
        let sent = covering.iter().map(|path| path.sent).fold(0.0, f64::max);
        self.is_source_slow = sent < self.rate * 0.6;
        if self.is_source_slow {
            self.ramp_from = self.batches.next;
            return;
        }
        let trains = covering.iter().filter_map(|path| path.train.rate);
        let train = trains.fold(f64::INFINITY, f64::min);
        let is_firm = covering.iter().all(|path| path.train.firm().is_some());
        let next = self.grown(ramp, train, is_firm);
        self.ramp = Some(next.min(self.config.most.bits_per_s() as f64));
        self.ramp_from = self.batches.next;
    }

    /// Returns the next rate of growth. `train` is the capacity by packets that left together.
    fn grown(&self, rate: f64, train: f64, is_firm: bool) -> f64 {
        let config = &self.config;
        if rate * config.growth > train * 0.95 {
            return (train * 0.95).max(rate * 1.1);
        }
        let rtt = self.rtt();
        let is_few =
            rtt > config.long_rtt.as_secs_f64() && rate * rtt < self.bits(config.few_packets);
        let most = match (train.is_finite(), is_firm) {
            (true, true) => config.fast_growth,
            (true, false) => config.brisk_growth,
            _ if is_few => config.brisk_growth,
            _ => config.growth,
        };
        // A train tells what a link carries, not what others leave of it.
        rate * (train * 0.6 / rate).clamp(config.growth, most)
    }
}

/// What the phases need to know of the path that limits the rate. Times in seconds.
struct View {
    limit: f64,
    rtt: f64,
    queue: f64,
    queue_least: f64,
    target: f64,
    own: f64,
    train: Option<f64>,
    jitter: f64,
    on_trial: bool,
    competes: bool,
    drained: Drained,
    is_policed: bool,
    /// Whether the limit is hardly more than a guess.
    is_unsure: bool,
    /// How often loss has shown the limit.
    refusals: u32,
}

impl View {
    /// Returns the time after which it is looked whether others are there still. To look costs a part
    /// of the share, so it is done seldom where packets that left together show that the link
    /// carries more than the channel's part.
    fn look_after(&self) -> Duration {
        let rounds = config::compete::LOOK_EVERY * (self.rtt + self.queue);
        let time = rounds.max(config::compete::LOOK_LEAST);
        let shares = self.train.is_some_and(|train| self.limit < train * config::compete::ALONE);
        Duration::from_secs_f64(if shares { time.max(config::compete::LOOK_SELDOM) } else { time })
    }

    fn of(path: &Path, config: &CongestionConfig) -> View {
        View {
            limit: path.carries,
            rtt: path.rtt.least.unwrap_or(config.initial_rtt.as_secs_f64()),
            queue: path.queue.last,
            queue_least: path.queue.least,
            target: path.queue_target(config, path.carries),
            own: path.own_queue(config, path.carries),
            train: path.train.rate,
            jitter: path.queue.jitter,
            on_trial: path.loss.on_trial(),
            competes: path.competes,
            drained: path.drained,
            is_policed: path.bound == Some(Bottleneck::Loss),
            is_unsure: path.loss.is_unsure(),
            refusals: path.refusals,
        }
    }
}
