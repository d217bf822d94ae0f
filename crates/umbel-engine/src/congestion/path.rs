//! A model of the path to one receiver: what it carries, and whether that is its limit.

use std::time::Duration;

use umbel_wire::reception::{ChannelStamp, ReceptionReport};

use super::compete::Competition;
use super::config::CongestionConfig;
use super::config::compete::MOST_GAIN;
use super::config::loss::{FLOOR_PACKETS, TOLERATED};
use super::config::pace::MORE;
use super::config::path::{
    CLEAN, EVEN, IDLE, JITTER, LEAST_WINDOW, MARKED_QUEUE, MOST_AHEAD, MOST_JITTER, OUTAGE,
    SLOW_GROWTH, STALE_RTT, STALL, STEADY, STRETCHED, STRETCHED_PACKETS, TOLERATED_GROWTH,
    TOLERATED_MARKS,
};
use super::evidence::{Delivered, Delivery, Overruns, Trouble};
use super::loss::{Finding, Loss};
use super::retest::Retest;
use super::tally::Tally;
use crate::Instant;
use crate::shares::Origin;

/// Why a path carries no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bottleneck {
    /// Its queue grew, or stood.
    Queue,
    /// Packets were lost without a queue: a policer, or a short buffer.
    Loss,
    /// The receiver's machine dropped packets.
    Machine,
}

/// What a report changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    Nothing,
    Changed,
    /// The path carried nothing for a while. What was sent so far says nothing.
    Outage,
}

/// The path to a receiver.
#[derive(Clone, Debug)]
pub(super) struct Path {
    /// Address from which its receiver reports.
    pub(super) from: Origin,
    pub(super) rtt: Rtt,
    /// Time of the last report.
    pub(super) heard: Option<Instant>,
    /// Number of the newest packet that was judged.
    pub(super) judged: u32,
    /// Rate that the path is known to carry, in bits per second.
    pub(super) carries: f64,
    /// The most that it has carried for a while: more than what a bucket let through at once.
    pub(super) carried_most: f64,
    /// When a limit far below that is forgotten.
    pub(super) retest: Retest,
    /// Why it carries no more than that, if that is known.
    pub(super) bound: Option<Bottleneck>,
    /// Windows in a row that showed a limit.
    pub(super) limited: u32,
    overruns: Overruns,
    /// Trouble for which its receiver may leave, and whether this report tells of it.
    trouble: Trouble,
    in_trouble: bool,
    delivered: Delivered,
    pub(super) queue: Queue,
    pub(super) train: Train,
    /// Rate at which the packets of the last window were sent.
    pub(super) sent: f64,
    /// Greatest rate that was allowed of late.
    pub(super) allowed: f64,
    pub(super) loss: Loss,
    /// The window beside others that fill the queue, and whether it is in use.
    pub(super) competition: Option<Competition>,
    pub(super) competes: bool,
    /// Packets of a stretch that is too short to tell their rate.
    unheard: Tally,
    /// Packets since that window was reduced last.
    beside: Tally,
    pub(super) drained: Drained,
    /// How often loss has shown a limit.
    pub(super) refusals: u32,
    window: Window,
    /// Packets before this number do not count: nothing was heard of them for long.
    blind_until: Option<u32>,
}

/// Round trips in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    /// The least one without queues, and the smoothed one.
    pub(super) least: Option<f64>,
    smoothed: Option<f64>,
}

/// Queueing delays in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Queue {
    /// Least and last of the last window.
    pub(super) least: f64,
    pub(super) last: f64,
    /// The least of the window before.
    before: f64,
    /// Seconds over which the packets of that were sent.
    before_over: f64,
    /// Whether a machine stalled, and reads fast since what waited for it.
    catches_up: bool,
    /// Whether the least delay of the window before tells nothing.
    is_new: bool,
    /// How much delays vary without a queue.
    pub(super) jitter: f64,
}

/// What a drain ought to have achieved, in seconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Drained {
    /// The longest queue since it began.
    pub(super) queue: f64,
    /// Seconds by which that would be shorter by now, if the queue is the channel's own.
    pub(super) due: f64,
}

/// Capacity by packets that left together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Train {
    /// In bits per second.
    pub(super) rate: Option<f64>,
    /// Reports in a row that agree.
    agree: u32,
}

/// Reports that are judged together.
#[derive(Clone, Copy, Debug, Default)]
struct Window {
    all: f64,
    overrun: f64,
    marked: f64,
    /// Packets that met a queue.
    queued: Tally,
    sent_over: f64,
    arrived_over: f64,
    queue_least: Option<f64>,
    /// Seconds by which packets were later all at once.
    step: f64,
}

impl Rtt {
    fn hear(&mut self, rtt: f64, queue: f64) {
        // The queue is no part of the path.
        let bare = (rtt - queue).max(1e-5);
        self.least = Some(self.least.map_or(bare, |least| least.min(bare)));
        self.smoothed = Some(self.smoothed.map_or(rtt, |before| before * 0.75 + rtt * 0.25));
    }

    /// Returns the smoothed round trip, if any is known.
    pub(super) fn known(&self) -> Option<f64> {
        self.smoothed
    }
}

impl Train {
    fn hear(&mut self, rate: f64) {
        let before = self.rate.unwrap_or(rate);
        let agrees = (0.7..1.4).contains(&(rate / before));
        self.agree = if agrees { self.agree + 1 } else { 0 };
        self.rate = Some(before * 0.5 + rate * 0.5);
    }

    /// Returns the capacity if it can be relied on.
    pub(super) fn firm(&self) -> Option<f64> {
        self.rate.filter(|_| self.agree >= 2)
    }
}

impl Path {
    pub(super) fn new(from: Origin) -> Path {
        Path {
            from,
            rtt: Rtt::default(),
            heard: None,
            judged: 0,
            carries: 0.0,
            carried_most: 0.0,
            retest: Retest::default(),
            bound: None,
            limited: 0,
            overruns: Overruns::default(),
            trouble: Trouble::default(),
            in_trouble: false,
            delivered: Delivered::default(),
            queue: Queue::default(),
            train: Train::default(),
            sent: 0.0,
            allowed: f64::INFINITY,
            unheard: Tally::default(),
            loss: Loss::default(),
            competition: None,
            competes: false,
            beside: Tally::default(),
            drained: Drained::default(),
            refusals: 0,
            window: Window::default(),
            blind_until: None,
        }
    }

    /// Returns the queueing delay that is tolerated, in seconds, at a rate.
    pub(super) fn queue_target(&self, config: &CongestionConfig, rate: f64) -> f64 {
        self.short_queue(config, config.queue_least, rate)
    }

    /// Returns the queueing delay, in seconds, that is left where no others are.
    pub(super) fn own_queue(&self, config: &CongestionConfig, rate: f64) -> f64 {
        self.short_queue(config, config.queue_own, rate)
    }

    fn short_queue(&self, config: &CongestionConfig, least: Duration, rate: f64) -> f64 {
        let packets = 3.0 * f64::from(config.packet_len) * 8.0 / rate;
        let rtt = self.rtt.least.unwrap_or(config.initial_rtt.as_secs_f64());
        let most = config.queue_most.as_secs_f64();
        (rtt / 4.0).clamp(least.as_secs_f64(), most).max(packets) + self.queue.jitter
    }

    /// Returns whether the path has been in trouble long enough to do without the receiver.
    pub(super) fn is_certain(&self) -> bool {
        self.bound.is_some() && self.trouble.is_certain(self.rtt.known().unwrap_or(0.1))
    }

    /// Returns the rate that it carries: in trouble that lasts, hardly more than was delivered.
    pub(super) fn surely_carries(&self) -> f64 {
        let delivered = self.delivered().filter(|_| self.is_certain());
        delivered.map_or(self.carries, |delivered| self.carries.min(delivered * MORE))
    }

    /// Returns the rate that was delivered of late, in bits per second.
    pub(super) fn delivered(&self) -> Option<f64> {
        self.delivered.rate(self.rtt.known()?)
    }

    /// Packets before a number do not count any more.
    pub(super) fn be_blind_until(&mut self, number: u32) {
        self.blind_until = Some(number);
        self.window = Window::default();
        self.queue.is_new = true;
    }

    /// Forgets a limit that larger batches had, up to a packet.
    pub(super) fn forget_batches(&mut self, number: u32) {
        self.loss.forget_batches();
        self.bound = None;
        self.be_blind_until(number);
    }

    /// Forgets that it carries no more.
    pub(super) fn forget_bound(&mut self) {
        self.bound = None;
        self.loss.forget_limit();
    }

    /// Begins anew at the rate that it carries.
    pub(super) fn begin_anew(&mut self, config: &CongestionConfig) {
        self.bound = None;
        self.limited = 0;
        self.unheard = Tally::default();
        self.loss.begin_at(self.carries / (f64::from(config.packet_len) * 8.0));
    }

    /// Takes a report, for most of whose time the source may have had nothing to send.
    pub(super) fn hear(
        &mut self,
        now: Instant,
        config: &CongestionConfig,
        report: &ReceptionReport,
        mostly_paused: bool,
    ) -> News {
        let way = ChannelStamp::new(0, now.as_nanos() / 1_000, 0).us_since(report.newest);
        let rtt = Duration::from_micros(way.into()).saturating_sub(report.held).as_secs_f64();
        if rtt < STALE_RTT {
            self.rtt.hear(rtt, report.queue.as_secs_f64());
        }
        self.heard = Some(now);
        if let Some(train) = report.train_bits_per_s {
            self.train.hear(train as f64);
        }
        let all = report.received.saturating_add(report.lost);
        if all == 0 || report.sent_over.is_zero() {
            return News::Nothing;
        }
        let first = report.newest.number.wrapping_sub(all);
        if self.blind_until.is_some_and(|until| first.wrapping_sub(until).cast_signed() < 0) {
            // Where nothing was lost it was no outage, but a long queue.
            if report.lost > 0 {
                return News::Nothing;
            }
        } else {
            self.blind_until = None;
        }
        if self.is_outage(report, all, config) {
            return News::Outage;
        }
        if mostly_paused && report.lost > 0 && self.bound.is_some() {
            // They may have been lost before the pause, at a rate that was too high.
            return News::Nothing;
        }
        self.queue.last = report.queue.as_secs_f64();
        let jitter = report.jitter.as_secs_f64().min(MOST_JITTER);
        self.queue.jitter = jitter.max(self.queue.jitter * (1.0 - 1.0 / 32.0));
        let bits = f64::from(config.packet_len) * 8.0;
        if self.competition.is_some() {
            self.note_trouble(now, report, bits);
            self.compete_on(now, report, bits);
            self.judged = report.newest.number;
            return News::Changed;
        }
        let queued = self.is_queued(config, report);
        let finding = if queued { Finding::Nothing } else { self.hear_loss(report) };
        self.window.add(report, queued);
        if let Some(limit) = self.loss.limit()
            && self.bound == Some(Bottleneck::Loss)
            && !self.loss.on_trial()
        {
            self.carries = limit * bits;
        }
        let changed = match finding {
            Finding::Nothing => false,
            Finding::Limit(packets) => {
                self.refusals = self.refusals.wrapping_add(1);
                if self.bound != Some(Bottleneck::Machine) {
                    self.bound = Some(Bottleneck::Loss);
                }
                self.carries = packets * bits;
                self.in_trouble = true;
                true
            }
            Finding::Random(packets) | Finding::More(packets) => {
                if self.bound == Some(Bottleneck::Loss) {
                    self.bound = None;
                    self.carries = packets * bits;
                }
                true
            }
        };
        let least = LEAST_WINDOW.max(self.queue.jitter * 2.0);
        let is_judged = self.window.sent_over >= least || self.window.is_stretched();
        if is_judged {
            self.judge(config, report.newest.number);
        }
        self.note_trouble(now, report, bits);
        if changed || is_judged { News::Changed } else { News::Nothing }
    }

    fn hear_loss(&mut self, report: &ReceptionReport) -> Finding {
        self.unheard.add(&Tally::of(report));
        if self.unheard.time < LEAST_WINDOW {
            return Finding::Nothing;
        }
        let seen = std::mem::take(&mut self.unheard);
        self.loss.hear(&seen)
    }

    /// Notes whether the path is in trouble, and what it delivers meanwhile.
    fn note_trouble(&mut self, now: Instant, report: &ReceptionReport, bits: f64) {
        let is_trouble = std::mem::take(&mut self.in_trouble);
        let rtt = self.rtt.known().unwrap_or(0.1);
        let delivery = Delivery {
            bits: f64::from(report.received.saturating_sub(report.overrun)) * bits,
            sent_over: report.sent_over.as_secs_f64(),
            arrived_over: report.arrived_over.as_secs_f64(),
        };
        // While the source had little to send, what was delivered tells nothing.
        let packets = f64::from(report.received) + f64::from(report.lost);
        let is_idle = packets * bits / delivery.sent_over < self.allowed * IDLE;
        if !(is_idle && self.allowed.is_finite()) {
            self.delivered.hear(rtt, &delivery);
        }
        let delivered = self.delivered.rate(rtt).unwrap_or_default();
        self.carried_most = self.carried_most.max(delivered);
        if self.bound.is_some() {
            self.trouble.hear(now, rtt, packets, is_trouble);
        } else {
            self.trouble = Trouble::default();
        }
    }

    /// Notes what packets ought to have made of the queue that were sent over so many seconds.
    fn note_drained(&mut self, sent_over: f64) {
        let less = 1.0 - self.sent / self.carries.max(1.0);
        if less > 0.03 {
            self.drained.due += sent_over * less;
        } else {
            self.drained.due = 0.0;
            self.drained.queue = 0.0;
        }
        self.drained.queue = self.drained.queue.max(self.queue.last);
    }

    /// Begins to compete with others for the queue, from a rate in bits per second.
    pub(super) fn compete(&mut self, now: Instant, rate: f64, packet_bits: f64) {
        let packets = rate * self.rtt.known().unwrap_or(0.1) / packet_bits;
        self.competition = Some(Competition::new(now, packets));
        self.competes = true;
        self.carries = rate;
        self.bound = Some(Bottleneck::Queue);
        self.loss.forget_limit();
    }

    /// Competes again, after a look whether others are there.
    pub(super) fn compete_again(&mut self, now: Instant) {
        if let Some(competition) = &mut self.competition {
            competition.resume(now);
            self.competes = true;
        }
    }

    /// Is alone again.
    pub(super) fn be_alone(&mut self) {
        self.competition = None;
        self.competes = false;
    }

    fn compete_on(&mut self, now: Instant, report: &ReceptionReport, bits: f64) {
        self.queue.before = self.queue.least;
        self.queue.least = report.queue_least.as_secs_f64();
        let sent_over = report.sent_over.as_secs_f64();
        let all = f64::from(report.received) + f64::from(report.lost);
        self.sent = all * bits / sent_over;
        self.note_drained(sent_over);
        self.beside.add(&Tally::of(report));
        let lost = self.loss.is_unusual(&self.beside) || report.marked > 0;
        let rtt = self.rtt.known().unwrap_or(0.1);
        if let (Some(competition), true) = (&mut self.competition, self.competes) {
            if competition.hear(now, lost, rtt) {
                self.beside = Tally::default();
            }
            self.beside.keep(FLOOR_PACKETS);
            // A round trip that becomes shorter is no reason to send much more at once.
            let delivered = self.delivered.rate(rtt).unwrap_or(f64::INFINITY);
            let rate = competition.rate(rtt) * bits;
            self.carries = rate.min(delivered * MOST_GAIN);
        }
    }

    /// Returns whether the path carried nothing for a while, though not more was sent than it is known
    /// to carry.
    fn is_outage(&self, report: &ReceptionReport, all: u32, config: &CongestionConfig) -> bool {
        let bits = f64::from(all) * f64::from(config.packet_len) * 8.0;
        let sent_over = report.sent_over.as_secs_f64();
        let late = report.arrived_over.as_secs_f64() - sent_over;
        let rtt = self.rtt.least.unwrap_or_default();
        late > OUTAGE.max(8.0 * rtt) && bits / sent_over < self.carries * 1.5
    }

    /// Returns whether packets met a queue.
    fn is_queued(&self, config: &CongestionConfig, report: &ReceptionReport) -> bool {
        let stands = (self.queue_target(config, f64::INFINITY) - self.queue.jitter) / 2.0;
        report.queue_least.as_secs_f64() > stands + self.queue.jitter
    }

    /// Judges a window of reports, the last of which ends at the packet `newest`.
    fn judge(&mut self, config: &CongestionConfig, newest: u32) {
        let window = std::mem::take(&mut self.window);
        self.judged = newest;
        let bits = f64::from(config.packet_len) * 8.0;
        let sent = window.all * bits / window.sent_over;
        self.sent = sent;
        self.queue.before = self.queue.least;
        self.queue.least = window.queue_least.unwrap_or(self.queue.last);
        self.note_drained(window.sent_over);
        let target = self.queue_target(config, sent);
        let jitter = self.queue.jitter;
        // Where delays vary, the least ones tell more than the first and the last.
        let (grown, grew_over) = if jitter > window.sent_over * 0.05 && !self.queue.is_new {
            let between = f64::midpoint(self.queue.before_over, window.sent_over);
            (self.queue.least - self.queue.before, between)
        } else {
            (window.arrived_over - window.sent_over, window.sent_over)
        };
        self.queue.before_over = window.sent_over;
        let tolerated =
            JITTER.max(jitter).max(window.sent_over * TOLERATED_GROWTH).max(bits / sent);
        // A machine that stalls makes packets late all at once, and what waits is read fast after
        // that. A queue grows little by little, or stands.
        let stalls = window.step > STALL && window.step > grown * 0.7;
        // The least delay before was that before the stall.
        self.queue.is_new = stalls;
        let falls = grown < -window.sent_over * TOLERATED_GROWTH;
        let catches_up = falls && self.queue.catches_up;
        self.queue.catches_up = stalls || catches_up;
        // Much less than the limit stretches clearly, or it is chance.
        let is_slow = self.bound.is_some() && sent < self.carries * 0.7;
        let tolerated = if is_slow { tolerated.max(grew_over * SLOW_GROWTH) } else { tolerated };
        let by_growth = grown > tolerated && !stalls;
        let by_queue = self.queue.least > target && !stalls && !catches_up;
        self.overruns.hear(window.all, window.overrun, window.sent_over);
        let overrun = self.overruns.excess();
        let by_machine = overrun.is_some();
        let overrun = overrun.unwrap_or_default();
        // Where the first packet of a batch finds no queue, it is the batch that others are marked for.
        let finds_queue = self.queue.least > MARKED_QUEUE || jitter > JITTER;
        let by_mark = finds_queue && window.marked > window.all * TOLERATED_MARKS;
        // Packets arrive no faster than the narrowest link lets them, whatever was sent.
        let stands = self.queue.least > (target - jitter) * 0.25 + jitter;
        let stretch = if by_growth || stands || by_mark { 1.0 + grown / grew_over } else { 1.0 };
        // A short queue overflows before it is long.
        let excess = self.loss.excess(&window.queued) * window.queued.all / window.all;
        let by_loss = excess > TOLERATED && !stalls && !catches_up;
        let kept = 1.0 - excess - overrun;
        // Marks tell of a queue that may be too short to be seen.
        let marked = if stands { 0.0 } else { window.marked / window.all / 2.0 };
        let carried = sent * kept.max(0.0) * (1.0 - marked) / stretch.max(0.2);
        // What is sent faster for a moment, to make up for a stop, proves nothing.
        let carried = carried.min(self.allowed * MOST_AHEAD);
        if (by_growth || by_queue) && !by_loss {
            self.loss.on_queue();
        }
        if by_growth || by_queue || by_mark || by_machine || by_loss {
            self.limited += 1;
            self.in_trouble = true;
            let weight = (window.sent_over / STEADY).min(1.0);
            self.on_limit(sent, carried, by_machine, weight);
        } else if !stalls && self.queue.least <= target && window.overrun <= window.all * CLEAN {
            self.limited = 0;
            self.on_carried(sent, carried, bits);
        }
    }

    fn on_limit(&mut self, sent: f64, carried: f64, by_machine: bool, weight: f64) {
        if self.bound == Some(Bottleneck::Loss) {
            if self.loss.on_trial() && carried >= self.carries {
                return;
            }
            // What was under way when it was found; or the queue explains the loss.
            self.loss.forget_limit();
        }
        if by_machine {
            self.overruns.forget();
        }
        let bottleneck = if by_machine { Bottleneck::Machine } else { Bottleneck::Queue };
        if self.bound.replace(bottleneck).is_none() {
            self.carries = carried;
        } else if carried < self.carries {
            let fast = self.limited >= 2 || sent > self.carries * 1.05;
            let part = if fast { 0.5 } else { 0.2 };
            // The overruns of a machine are averages.
            let part = if by_machine { 0.5 } else { part * weight };
            self.carries += (carried - self.carries) * part;
        } else if sent > self.carries * 1.05 {
            self.carries = carried.min(sent);
        }
    }

    fn on_carried(&mut self, sent: f64, carried: f64, bits: f64) {
        if carried <= self.carries || self.loss.on_trial() || self.loss.limit().is_some() {
            return;
        }
        if self.bound.is_some() {
            if !self.loss.carries(sent / bits) {
                return;
            }
            if carried > self.carries * 1.1 {
                self.bound = None;
            }
        }
        self.carries = carried;
    }
}

impl Window {
    /// Returns whether packets that left within no time came one by one for long. The stall of a
    /// machine looks otherwise, however much the delays differ: it is enough to be judged.
    fn is_stretched(&self) -> bool {
        let is_even = self.step < self.arrived_over * EVEN;
        self.all >= STRETCHED_PACKETS && self.arrived_over >= STRETCHED && is_even
    }

    fn add(&mut self, report: &ReceptionReport, queued: bool) {
        let all = f64::from(report.received) + f64::from(report.lost);
        self.all += all;
        self.overrun += f64::from(report.overrun);
        self.marked += f64::from(report.marked);
        if queued {
            self.queued.add(&Tally::of(report));
        }
        self.sent_over += report.sent_over.as_secs_f64();
        self.arrived_over += report.arrived_over.as_secs_f64();
        let queue = report.queue_least.as_secs_f64();
        self.queue_least = Some(self.queue_least.map_or(queue, |least| least.min(queue)));
        // Jitter is half of that, as a receiver computes it.
        self.step = self.step.max(report.jitter.as_secs_f64() * 2.0);
    }
}
