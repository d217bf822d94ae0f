//! Congestion control of a multicast channel: as fast as the paths carry, and no faster.
//!
//! ```text
//!            a path is at its limit               queue drained
//!   ┌──────┐ ─────────────────────▶ ┌───────┐ ───────────────────▶ ┌────────┐
//!   │ Grow │                        │ Drain │                      │ Cruise │
//!   └──────┘ ◀──────────┐           └───────┘ ◀─────────┐          └────────┘
//!       more was carried│               ▲ a round trip  │               │ now and then
//!                       │               │               └── ┌───────┐ ◀─┘
//!                       └───────────────┴────────────────── │ Probe │
//!                                                           └───────┘
//! ```
//!
//! Each data packet carries its number and the time at which it was sent. Receivers measure
//! how the packets arrive, and report it. From the reports the source keeps a model of each
//! path: the rate that it carries, and whether that is its limit. A path is at its limit
//! while its queue grows, or while more packets are lost than at a lower rate. Loss that is the same
//! at any rate lowers nothing.
//!
//! - *Grow*: no limit is known. The rate doubles in each round trip, more carefully near the
//!   capacity that packets show which left together.
//! - *Drain*: less than the limit for a round trip, so that the queue empties. Loss that is left is
//!   loss at any rate.
//! - *Cruise*: the limit, less where a queue stands.
//! - *Probe*: a quarter more for a round trip.
//! - *Compete*: others fill the queue, which does not drain; the rate is that of a TCP connection in
//!   the channel's place [RFC 9438]. *Yield*: the same in the background, where nothing is taken.
//!
//! Without reports the rate halves again and again [RFC 8085 §3.1]. A limit far below what the path has
//! carried is forgotten after a second, and then ever less often: others may have filled the path,
//! who are gone.
//!
//! Of many receivers, the pace follows what their paths seem to carry, at once; a few that
//! carry less do not hold it. Who leaves is decided by evidence of a second and ten round trips,
//! and by what was delivered meanwhile: a machine that stalls for 50 ms looks like a slow path.
//!
//! # Scope and limitations
//!
//! - A path that carries a tenth of the others' rate gets their rate for one to two seconds, until
//!   it is certain. Who left does not come back by itself.
//! - Bursts of loss on round trips below 2 ms are taken for a limit now and then: of 20 % lost in
//!   bursts of 20 packets, half of the rate is left at worst.
//! - A policer with a bucket of some packets, or of half a second, costs up to 30 % more packets than
//!   it lets through at 1 to 10 Mbit/s. With random loss of 5 % as well, up to 45 %.
//! - A machine that drops packets, but stamps them before they wait in a socket, shows its limit only
//!   by what it drops: up to a third while the rate is found again and again.
//! - A queue in which packets are marked after 20 of them, with a round trip of 0.5 ms at 1 Gbit/s, is
//!   used by half: batches alone fill it.
//!
//! # Validation
//!
//! The tests are worlds of links, packet by packet. 266 paths of 1 Mbit/s to 10 Gbit/s, 0.2 to 300 ms,
//! queues of 0.1 to 10 bandwidth-delay products, loss up to 20 % one by one and in bursts, policers,
//! marks, jitter, stalls, and capacities that change (`tests/paths.rs`, `table`): 93 % use at least
//! nine tenths of what the best fixed rate would, the worst 0.48; 96 % send at most 1.15 packets for
//! each that random loss makes necessary, the worst 1.44. The median queue after the start is below
//! 50 ms on all but one, 1 Mbit/s of which a tenth is left (0.5 s), and below 20 ms on 96 %. 82 % lose less than 2 MB in queues while starting; the
//! others are mostly links of 1 and 10 Gbit/s, and policers.
//! Of 18 paths that carry a sixtieth for up to 5 s, all use nine tenths again 5 s later.
//!
//! Sixteen receivers whose machines stall for 5 to 50 ms twice a second and read 64 packets at once,
//! beside a source that does the like (`tests/receivers.rs`): none leaves, the rate settles at 0.75 to
//! 0.93 of what the machines take, and 1.0 to 1.2 packets are sent for each that the slowest gets.
//! One of 2, 4 or 16 at a tenth or a hundredth leaves after a second. Beside TCP: `tests/sharing.rs`.

mod api;
mod batches;
mod compete;
mod config;
mod evidence;
mod feedback;
mod loss;
mod meter;
mod pace;
mod path;
mod pauses;
mod phases;
mod reporter;
mod retest;
mod silence;
mod tally;
#[cfg(test)]
mod tests;

pub use api::{Event, Limit, PaceTo, PathStatus, Share};
pub use config::CongestionConfig;
pub(crate) use meter::Meter;
pub(crate) use reporter::Reporter;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use umbel_wire::reception::{ReceptionReport, ReportSchedule};

use self::batches::{Allowed, Batches};
use self::feedback::Feedback;
use self::pace::{Decision, Standing};
use self::path::{Bottleneck, News, Path};
use self::pauses::Pauses;
use self::phases::Phase;
use self::retest::Retest;
use self::silence::Silence;
use crate::Instant;
use crate::chance::Generator;
use crate::shares::Origin;
use crate::units::Rate;

/// The rate of a channel. Receivers are identified by `Who`.
#[derive(Clone, Debug)]
pub(crate) struct Controller<Who> {
    config: CongestionConfig,
    rate: f64,
    phase: Phase,
    /// Time at which the phase began, and at which it is over.
    phase_began: Instant,
    phase_ends: Option<Instant>,
    /// Rate that growth has reached, as long as it holds the rate down.
    ramp: Option<f64>,
    /// Number of the first packet at that rate.
    ramp_from: u32,
    /// Time between two probes, in round trips.
    probe_every: f64,
    probe_gain: f64,
    /// Limit when the drain began, in bits per second.
    before_drain: f64,
    /// Greatest limit since it was found.
    peak: f64,
    /// Whether others fill the queue, which is not waited for.
    others: bool,
    /// Seconds for which a channel in the background pauses next.
    yields: f64,
    /// Refusals of the limiting path before the probe.
    refusals: u32,
    batches: Batches,
    pauses: Pauses,
    allowed: Allowed,
    silence: Silence,
    paths: BTreeMap<Who, Path>,
    /// Receivers that left the pace, and their hosts.
    left: BTreeMap<Who, Origin>,
    feedback: Feedback<Who>,
    /// The receiver whose path limits the rate, as it was decided last, and when that was.
    limiting: Option<Who>,
    decided: Instant,
    retest: Retest,
    /// Whether the source sent slower than it might.
    is_source_slow: bool,
    limit: (Limit<Who>, Instant),
    events: VecDeque<Event<Who>>,
    told: Option<Rate>,
}

impl<Who: Ord + Clone> Controller<Who> {
    /// Creates a controller that begins with the first packets of a round trip.
    ///
    /// `rtt` is the longest round trip to a receiver, if it is known; it may be wrong. `random`
    /// draws the receivers that report often.
    pub(crate) fn new(
        config: CongestionConfig,
        rtt: Option<Duration>,
        random: Generator,
    ) -> Controller<Who> {
        let rtt = rtt.unwrap_or(config.initial_rtt);
        let mut controller = Controller {
            rate: 0.0,
            phase: Phase::Grow,
            phase_began: Instant::EPOCH,
            phase_ends: None,
            ramp: None,
            ramp_from: 0,
            probe_every: config.probe_every,
            probe_gain: config.probe,
            before_drain: 0.0,
            peak: 0.0,
            others: false,
            yields: config::compete::YIELD,
            refusals: 0,
            batches: Batches { window_end: Some(config.initial_packets), ..Batches::default() },
            pauses: Pauses::default(),
            allowed: Allowed::default(),
            silence: Silence::new(rtt),
            paths: BTreeMap::new(),
            left: BTreeMap::new(),
            feedback: Feedback::new(random),
            limiting: None,
            decided: Instant::EPOCH,
            retest: Retest::default(),
            is_source_slow: false,
            limit: (Limit::Start, Instant::EPOCH),
            events: VecDeque::new(),
            told: None,
            config,
        };
        // Two batches leave soon after each other, so that their answer comes soon.
        let apart = (rtt / 4).clamp(config::FIRST_LEAST, config::FIRST_MOST);
        let batch = config.initial_packets.div_ceil(2);
        controller.set(controller.bits(f64::from(batch)) / apart.as_secs_f64());
        controller.ramp = Some(controller.rate);
        controller
    }

    /// Begins with the packet of this number.
    pub(crate) fn start_at(&mut self, number: u32) {
        self.ramp_from = number;
        self.batches.next = number;
        self.batches.first = Some(number);
        self.batches.window_end = Some(number.wrapping_add(self.config.initial_packets));
    }

    /// Returns whether no receiver is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.paths.is_empty() && self.left.is_empty()
    }

    /// Returns the present rate.
    pub(crate) fn rate(&self) -> Rate {
        Rate::from_bits_per_s(self.rate as u64).unwrap_or(self.config.least)
    }

    /// Returns the time at which [`on_timeout`](Controller::on_timeout) is due.
    pub(crate) fn next(&self) -> Option<Instant> {
        let phase = self.phase_ends.filter(|_| !self.silence.is_idle());
        [phase, self.silence.next()].into_iter().flatten().min()
    }

    /// Notes that packets left, up to the one before the number `next`.
    pub(crate) fn on_sent(&mut self, now: Instant, next: u32) {
        self.on_unreported(now, next);
        let patience = self.patience();
        self.silence.on_sent(now, patience);
    }

    /// Notes that packets were sent that nobody reports; `next` is as above.
    pub(crate) fn on_unreported(&mut self, now: Instant, next: u32) {
        let batch = next.wrapping_sub(self.batches.next);
        let until_next = Duration::from_secs_f64(self.bits(f64::from(batch)) / self.rate);
        self.pauses.on_sent(now, self.batches.next, until_next);
        self.batches.seen = batch.max(self.batches.seen - self.batches.seen / 8);
        self.batches.next = next;
        let lasts = Duration::from_secs_f64(self.rtt() * 2.0) + config::ALLOWED_LASTS;
        self.allowed.note(now, self.rate, lasts);
    }

    /// Returns whether a packet may be sent. Before the first report only a few may.
    pub(crate) fn may_send(&self) -> bool {
        let left = |end: u32| self.batches.next.wrapping_sub(end).cast_signed();
        self.batches.window_end.is_none_or(|end| left(end) < 0)
    }

    /// Returns the greatest number of packets that leave together, if it matters. Two batches are
    /// needed before a receiver can tell anything, and a short queue does not take large ones.
    pub(crate) fn most_together(&self) -> Option<u32> {
        let first = self.batches.window_end.map(|_| self.config.initial_packets.div_ceil(2));
        // What others send into the same queue comes in small batches, too.
        let beside = (self.phase == Phase::Compete).then(|| least_batch(&self.config, self.rate));
        [first, beside, self.batches.most].into_iter().flatten().min()
    }

    /// Notes a receiver that will report. Its [schedule](Controller::schedule) is known at once.
    pub(crate) fn join(&mut self, now: Instant, who: Who, from: Origin) {
        let _ = now;
        if self.paths.contains_key(&who) || self.left.contains_key(&who) {
            return;
        }
        self.feedback.join(&who, from, &mut self.events);
        self.feedback.tell_others(self.rate, &mut self.events);
        self.paths.insert(who, Path::new(from));
    }

    /// Returns when a receiver reports.
    pub(crate) fn schedule(&self, who: &Who) -> ReportSchedule {
        self.feedback.schedule(who)
    }

    /// Returns the next event.
    pub(crate) fn poll_event(&mut self) -> Option<Event<Who>> {
        let rate = self.rate();
        if self.told != Some(rate) {
            self.told = Some(rate);
            return Some(Event::Rate(rate));
        }
        self.events.pop_front()
    }

    /// Returns what limits the rate, and since when.
    pub(crate) fn limit(&self) -> (Limit<Who>, Instant) {
        self.limit.clone()
    }

    /// Returns what is known of the path to a receiver.
    pub(crate) fn path(&self, who: &Who) -> Option<PathStatus> {
        let path = self.paths.get(who)?;
        let carries = Rate::from_bits_per_s(path.carries as u64);
        Some(PathStatus {
            is_known: path.heard.is_some(),
            rtt: Duration::from_secs_f64(path.rtt.known().unwrap_or_default()),
            queue: Duration::from_secs_f64(path.queue.last),
            carries: carries.filter(|_| path.bound.is_some()),
            loss: path.loss.floor(),
            is_limiting: self.limiting.as_ref() == Some(who),
        })
    }

    /// Returns whether the path of a receiver carries so much less than the present rate that it may
    /// soon leave. It is not certain: its machine may have stalled.
    pub(crate) fn is_behind(&self, who: &Who) -> bool {
        let all_count = self.config.pace_to == PaceTo::All;
        let is_narrow = |path: &Path| {
            !all_count && path.bound.is_some() && path.carries * config::pace::BEHIND < self.rate
        };
        self.left.contains_key(who) || self.paths.get(who).is_some_and(is_narrow)
    }

    /// Takes the report of a receiver at the host `from`.
    pub(crate) fn hear(&mut self, now: Instant, who: &Who, from: Origin, report: &ReceptionReport) {
        if self.left.contains_key(who) {
            return;
        }
        let first = self.batches.first;
        if first.is_some_and(|first| report.newest.number.wrapping_sub(first).cast_signed() < 0) {
            // What was sent before says nothing of this rate.
            return;
        }
        self.batches.first = None;
        if !self.paths.contains_key(who) {
            self.join(now, who.clone(), from);
            // It may report packets of a time when it was another path.
            let known_from =
                if self.batches.window_end.is_none() { Some(self.batches.next) } else { first };
            if let (Some(number), Some(path)) = (known_from, self.paths.get_mut(who)) {
                path.be_blind_until(number);
            }
        }
        if self.silence.hear() {
            self.end_silence();
        }
        let config = self.config;
        let allowed = self.allowed.greatest();
        let Some(path) = self.paths.get_mut(who) else { return };
        path.allowed = allowed;
        let mut report = *report;
        let mostly_paused = self.pauses.take_out(&mut report);
        let news = path.hear(now, &config, &report, mostly_paused);
        if news == News::Outage {
            path.be_blind_until(self.batches.next);
        }
        if self.batches.window_end.take().is_some() {
            self.end_first_window(who);
        }
        self.feedback.on_report(who, &mut self.events);
        if news == News::Changed {
            self.decide_if_due(now);
            self.shorten_batches(now);
            self.review(now);
        }
    }

    /// Forgets a receiver that is gone.
    pub(crate) fn forget(&mut self, who: &Who) {
        let from = self.paths.remove(who).map(|path| path.from);
        if let Some(from) = from.or_else(|| self.left.remove(who)) {
            self.feedback.leave(who, from);
            self.feedback.draw_few(self.paths.keys(), &mut self.events);
        }
        if self.limiting.as_ref() == Some(who) {
            self.limiting = None;
        }
        self.decided = Instant::EPOCH;
    }

    /// Does what is due.
    pub(crate) fn on_timeout(&mut self, now: Instant) {
        let rtt = self.rtt();
        let first = self.bits(f64::from(self.config.initial_packets)) / rtt;
        let packet = self.bits(1.0);
        let waits = !self.may_send();
        if let Some(rate) = self.silence.on_timeout(now, self.rate, packet, first, rtt, waits) {
            self.ramp = Some(rate);
            self.ramp_from = self.batches.next;
            self.set(rate);
            if let Some(end) = &mut self.batches.window_end {
                *end = self.batches.next.wrapping_add(self.config.initial_packets);
            }
        }
        self.decide_if_due(now);
        self.review(now);
    }

    fn bits(&self, packets: f64) -> f64 {
        packets * f64::from(self.config.packet_len) * 8.0
    }

    /// Returns the time without reports after which the rate falls.
    fn patience(&self) -> Duration {
        let packets = self.bits(16.0) / self.rate;
        Duration::from_secs_f64(2.0 * self.rtt().max(packets.min(1.0)) + config::PATIENCE)
    }

    /// Returns the longest round trip to those that report promptly.
    fn rtt(&self) -> f64 {
        let rtts = self.feedback.prompt().filter_map(|who| self.paths.get(who)?.rtt.known());
        rtts.max_by(f64::total_cmp).unwrap_or_else(|| self.silence.first_rtt().as_secs_f64())
    }

    /// Returns the round trip, or the time of some packets at a low rate.
    fn round(&self) -> Duration {
        Duration::from_secs_f64(self.rtt().max(self.bits(16.0) / self.rate).max(1e-3))
    }

    fn set(&mut self, rate: f64) {
        let (least, most) = (self.config.least.bits_per_s(), self.config.most.bits_per_s());
        self.rate = rate.clamp(least as f64, most as f64);
    }

    fn enter(&mut self, now: Instant, phase: Phase, lasts: Option<Duration>) {
        self.phase = phase;
        self.phase_began = now;
        self.phase_ends = lasts.map(|time| now + time);
    }

    /// Goes on after a silence, at half of what there was before. Nothing is learned from what was
    /// sent in between.
    fn end_silence(&mut self) {
        if self.batches.window_end.is_some() {
            // It was the first round trip that was longer than expected.
            self.silence.take_before();
            return;
        }
        for path in self.paths.values_mut() {
            path.be_blind_until(self.batches.next);
        }
        if let Some(before) = self.silence.take_before() {
            let rate = (before / 2.0).max(self.rate);
            self.set(rate);
            self.ramp = Some(self.rate);
            self.ramp_from = self.batches.next;
        }
    }

    /// Lets fewer packets leave together where a limit costs the ends of batches: a short queue does
    /// not take them. Then the path may carry more.
    fn shorten_batches(&mut self, now: Instant) {
        let Some(path) = self.limiting.as_ref().and_then(|who| self.paths.get_mut(who)) else {
            return;
        };
        let least = least_batch(&self.config, path.carries);
        let most = (self.batches.seen / 2).max(least);
        let by_batches = path.bound == Some(Bottleneck::Loss) && path.loss.is_by_batches();
        if path.loss.on_trial() || !by_batches || most >= self.batches.seen {
            return;
        }
        self.batches.most = Some(most);
        self.batches.seen = most;
        path.forget_batches(self.batches.next);
        // What is lost at any rate is learned anew, at a rate that is carried.
        self.ramp = Some(path.carries * 0.5);
        self.ramp_from = self.batches.next;
        self.enter(now, Phase::Grow, None);
    }

    /// Decides whose path counts, unless that was done just now.
    fn decide_if_due(&mut self, now: Instant) {
        let every =
            config::pace::DECIDE_EVERY * u32::try_from(self.paths.len()).unwrap_or(u32::MAX);
        if now < self.decided + every && self.decided > Instant::EPOCH {
            return;
        }
        self.decided = now;
        self.retest(now);
        self.retest_low_limit(now);
        let (standings, slowest) = self.standings(now);
        let most = self.config.most.bits_per_s() as f64;
        let decision = pace::decide(&self.config, standings, self.rate, most);
        let Decision { limiting, leave } = decision;
        for who in leave {
            let Some(path) = self.paths.remove(&who) else { continue };
            self.left.insert(who.clone(), path.from);
            let carries = Rate::from_bits_per_s(path.carries as u64).unwrap_or(self.config.least);
            self.events.push_back(Event::Left { who, carries });
        }
        if self.limiting != limiting
            && let Some(path) = self.narrowest_mut()
        {
            // It competes for its own rate only.
            path.be_alone();
        }
        self.limiting = limiting;
        if self.limiting.is_some() {
            let slowest: BTreeSet<_> =
                slowest.into_iter().filter(|who| self.paths.contains_key(who)).collect();
            self.feedback.follow(&slowest, &mut self.events);
        }
        let paths = &self.paths;
        let rtt = |who: &Who| paths.get(who)?.rtt.known();
        self.feedback.tell(self.rate, rtt, &mut self.events);
    }

    /// Returns how all paths stand, and the slowest ones, at most one at each address.
    fn standings(&self, now: Instant) -> (Vec<Standing<Who>>, Vec<Who>) {
        let rtt = self.rtt();
        let drawn: BTreeSet<_> =
            self.feedback.tracked().filter(|(_, drawn)| *drawn).map(|(who, _)| who).collect();
        let bounds = self.paths.values().filter(|path| path.bound.is_some());
        let slowest = bounds.map(|path| path.carries).fold(f64::INFINITY, f64::min);
        let (mut unknown, mut known_drawn) = (0.0, 0.0);
        let mut standings = Vec::new();
        for (who, path) in &self.paths {
            let weight = 1.0 / f64::from(self.feedback.names(path.from));
            let latest = self.feedback.schedule(who).latest;
            let patience = latest * 3 + Duration::from_secs_f64(10.0 * rtt + 1.0);
            if path.heard.is_none_or(|at| now.since(at) >= patience) {
                continue;
            }
            let bound = path.bound.is_some();
            // Who carries what the slowest does may carry more, or not.
            if !bound && path.carries < slowest * config::pace::MORE && slowest.is_finite() {
                unknown += weight;
                continue;
            }
            if drawn.contains(who) {
                known_drawn += weight;
            }
            standings.push(Standing {
                who: who.clone(),
                weight,
                carries: path.surely_carries(),
                bound,
                delivered: path.delivered().unwrap_or(path.carries.min(self.rate)),
                certain: path.is_certain(),
            });
        }
        // The drawn ones stand for those of which nothing is known.
        if known_drawn > 0.0 {
            for standing in &mut standings {
                if drawn.contains(&standing.who) {
                    standing.weight *= 1.0 + unknown / known_drawn;
                }
            }
        }
        let mut bound: Vec<_> = standings.iter().filter(|standing| standing.bound).collect();
        bound.sort_by(|a, b| a.carries.total_cmp(&b.carries));
        let most = self.feedback.prompt_most(self.rate, self.rtt());
        let mut addresses = BTreeSet::new();
        let mut slowest = Vec::new();
        let few = self.paths.len() <= config::feedback::FEW;
        for standing in bound {
            let Some(path) = self.paths.get(&standing.who) else { continue };
            if slowest.len() < most && (addresses.insert(path.from) || few) {
                slowest.push(standing.who.clone());
            }
        }
        (standings, slowest)
    }

    /// Returns the path that limits the rate.
    fn narrowest(&self) -> Option<&Path> {
        let path = self.paths.get(self.limiting.as_ref()?)?;
        path.bound.is_some().then_some(path)
    }

    fn narrowest_mut(&mut self) -> Option<&mut Path> {
        self.paths.get_mut(self.limiting.as_ref()?)
    }

    /// Notes what limits the rate.
    fn note_limit(&mut self, now: Instant) {
        let most = self.config.most.bits_per_s() as f64;
        let limit = if self.silence.is_silent() {
            Limit::Silence
        } else if self.is_source_slow {
            Limit::Source
        } else if let (Some(who), Some(path)) = (&self.limiting, self.narrowest()) {
            match path.bound {
                _ if path.carries > most => Limit::Bound,
                Some(Bottleneck::Machine) => Limit::Machine(who.clone()),
                _ => Limit::Path(who.clone()),
            }
        } else if self.rate >= most {
            Limit::Bound
        } else {
            Limit::Start
        };
        if self.limit.0 != limit {
            self.limit = (limit, now);
        }
    }
}

/// Returns the smallest number of packets that leave together where queues are short.
fn least_batch(config: &CongestionConfig, rate: f64) -> u32 {
    let packets = rate * config::LEAST_BATCH_TIME / (f64::from(config.packet_len) * 8.0);
    (packets as u32).max(config::LEAST_BATCH)
}
