//! The rate that the network can take.
//!
//! A queue that is full drops packets, and so does a bad radio link. Slowing down helps against the
//! first only, so the source tries it:
//!
//! ```text
//!                 more lost than is explained, two rounds in a row
//!   keeps or ──────────────────────────────────────────────────────▶ trial: the rate at which
//!   raises the rate                                                  packets arrived
//!     ▲       ▲                                                        │   │
//!     │       │ much less was lost: congestion. The rate stays         │   │
//!     │       └────────────────────────────────────────────────────────┘   │
//!     │ as much was lost: it is lost at random. The old rate, and for      │
//!     └─ a while so much loss is explained ────────────────────────────────┘
//! ```
//!
//! A *round* is over when each child has told its loss of at least [`LEAST_PACKETS`], or most have
//! and the others are late. For a trial to begin more than half of them have to lose much. For it
//! to succeed more than half have to lose little. So a single child that lies can cause neither. A
//! loss belongs to a trial only if the numbers of the packets show that they were sent after the
//! trial had begun. Queues may be long.
//!
//! The source's own repairs share the rate and the fate of first sendings, and are counted with
//! them. Managers' repairs are local, and not counted.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::tmtp::NodeId;

use super::{Position, of_most};
use crate::Instant;
use crate::units::Rate;

/// Packets by which a child's loss is judged.
const LEAST_PACKETS: u64 = 100;
/// Least excess over the explained loss that leads to a trial.
const EXCESS: f64 = 0.1;
/// The same while a rate is known that was too high.
const EXCESS_AT_BOTTLENECK: f64 = 0.04;
/// Most of the excess that is left in a trial if it was congestion. Others may go on sending
/// through the same bottleneck, so that a part of it is left.
const LEFT: f64 = 0.7;
/// Share of the rate of arrival at which a trial sends, so that queues empty.
const MARGIN: f64 = 0.95;
/// Factor by which a round raises the rate, and the most that a long round raises it by. A long
/// round applies the factor once for each [`RISE_TIME`].
const RISE: (f64, f64) = (1.05, 1.5);
/// The same near the rate that was too high.
const CAREFUL_RISE: (f64, f64) = (1.01, 1.04);
/// Time for which a round raises the rate once.
const RISE_TIME: Duration = Duration::from_millis(100);
/// Shares of the rate that was too high between which a rate counts as near it.
const CAREFUL: std::ops::Range<f64> = 0.8..1.05;
/// Least share of the rate that must be used for a raise.
const USED: f64 = 0.7;
/// Time for which a failed trial explains a loss. It doubles with each further one. After a
/// quarter of it a loss that is greater still may be tried.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time for which a failed trial explains a loss.
const MOST_PATIENCE: Duration = Duration::from_secs(64);
/// Part of the difference by which the explained loss falls in a round with less loss.
const EASE: f64 = 0.1;
/// Time over which the used rate is averaged. The highest average counts.
const SPAN: Duration = Duration::from_millis(25);

/// The rate that the network can take.
#[derive(Clone, Debug)]
pub(super) struct Network {
    most: Rate,
    rate: Rate,
    least_share: f64,
    /// Rate at which a bottleneck dropped packets.
    too_high: Option<Rate>,
    /// Share of packets that is lost at any rate, and the time until which that is believed.
    explained: (f64, Instant),
    patience: Duration,
    /// No trial begins before this time.
    next_trial: Instant,
    /// The last round had more loss than is explained.
    suspect: bool,
    trial: Option<Trial>,
    children: BTreeMap<NodeId, Child>,
    /// Number of children that have told their loss in this round.
    told: usize,
    /// Time at which the last round was over.
    judged: Instant,
    /// Time at which the first child of this round told its loss.
    round: Option<Instant>,
    usage: Usage,
    /// Packets sent so far.
    position: Position,
}

/// A trial of a lower rate.
#[derive(Clone, Copy, Debug)]
struct Trial {
    /// Loss that led to the trial.
    loss: f64,
    /// Rate that was used then.
    used: Rate,
    /// Rate to which the source returns if the trial fails.
    old: Rate,
    /// Packets from here on are sent at the lower rate.
    from: Position,
}

/// Packets that a child has told of in this round.
#[derive(Clone, Copy, Debug, Default)]
struct Child {
    /// The source's position when it sent the last packet that came.
    position: Position,
    received: u64,
    lost: u64,
    /// The child's loss, once it is known.
    loss: Option<f64>,
}

/// Rate at which packets leave.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    since: Instant,
    bytes: u64,
    /// Highest rate of this round and of the last, in bits per second.
    peak: f64,
    last_peak: f64,
}

impl Network {
    pub(super) fn new(most: Rate, least_share: f64) -> Network {
        Network {
            most,
            rate: most,
            least_share: least_share.clamp(0.0, 1.0),
            too_high: None,
            explained: (0.0, Instant::EPOCH),
            patience: PATIENCE,
            next_trial: Instant::EPOCH,
            suspect: false,
            trial: None,
            children: BTreeMap::new(),
            told: 0,
            judged: Instant::EPOCH,
            round: None,
            usage: Usage::default(),
            position: Position::default(),
        }
    }

    /// Returns the present rate.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Notes packets of `bytes` bytes that leave. Then the source is at `position`.
    pub(super) fn on_sent(&mut self, now: Instant, bytes: u64, position: Position) {
        self.usage.add(now, bytes);
        self.position = position;
    }

    /// Notes packets that a child has received and lost since it told last. The last one is the
    /// one before `position`.
    pub(super) fn on_ack(
        &mut self,
        now: Instant,
        id: NodeId,
        (received, lost): (u32, u32),
        position: Position,
    ) {
        let child = self.children.entry(id).or_default();
        let counts = self.trial.is_none_or(|trial| child.position.is_past(trial.from));
        child.position = position;
        if !counts {
            return;
        }
        child.received += u64::from(received);
        child.lost += u64::from(lost);
        let all = child.received + child.lost;
        if all >= LEAST_PACKETS {
            let loss = child.lost as f64 / all as f64;
            self.told += usize::from(child.loss.replace(loss).is_none());
            (child.received, child.lost) = (0, 0);
            self.round.get_or_insert(now);
        }
    }

    /// Forgets a child that is gone.
    pub(super) fn forget(&mut self, id: NodeId) {
        let told = self.children.remove(&id).is_some_and(|child| child.loss.is_some());
        self.told -= usize::from(told);
    }

    /// Ends the round if it is over, and acts on it. `present` is the rate at which the source
    /// may send now, for any reason.
    pub(super) fn review(&mut self, now: Instant, children: usize, t_ack: Duration, present: Rate) {
        let Some(begun) = self.round else { return };
        let late = now.since(begun) >= t_ack * 2;
        if self.told * 2 <= children || self.told < children && !late {
            return;
        }
        let losses = self.children.values_mut().filter_map(|child| child.loss.take()).collect();
        (self.round, self.told) = (None, 0);
        let used = self.usage.end_round(present);
        match self.trial {
            Some(trial) => self.judge(now, trial, most_have_at_most(losses, children)),
            None => self.consider(now, of_most(losses, children), used, present),
        }
        self.judged = now;
    }

    /// Judges a round that was sent at the lower rate.
    fn judge(&mut self, now: Instant, trial: Trial, loss: f64) {
        self.end_trial();
        let excess = trial.loss - self.explained.0;
        if loss - self.explained.0 < excess * LEFT {
            self.too_high = Some(trial.used);
            self.patience = (self.patience / 2).max(PATIENCE);
        } else {
            self.rate = trial.old;
            self.explained = (loss.min(trial.loss), now + self.patience);
            self.next_trial = now + self.patience / 4;
            self.patience = (self.patience * 2).min(MOST_PATIENCE);
        }
    }

    /// Considers a round that was sent at the usual rate.
    fn consider(&mut self, now: Instant, loss: f64, used: Rate, present: Rate) {
        let (explained, until) = &mut self.explained;
        if now >= *until {
            *explained = 0.0;
        }
        *explained += (loss - *explained).min(0.0) * EASE;
        let excess = if self.too_high.is_some() { EXCESS_AT_BOTTLENECK } else { EXCESS };
        let too_much = loss > *explained + excess;
        let suspected = std::mem::replace(&mut self.suspect, too_much);
        if !too_much {
            if used >= present.scaled(USED) {
                self.rise(now);
            }
        } else if suspected && now >= self.next_trial {
            self.begin_trial(loss, used);
        }
    }

    fn begin_trial(&mut self, loss: f64, used: Rate) {
        let arrived = (1.0 - loss) / (1.0 - self.explained.0.min(loss)).max(f64::EPSILON);
        let least = self.most.scaled(self.least_share);
        let rate = used.scaled(arrived * MARGIN).max(least);
        if rate >= used {
            return;
        }
        let old = std::mem::replace(&mut self.rate, rate);
        self.trial = Some(Trial { loss, used, old, from: self.position });
        for child in self.children.values_mut() {
            *child = Child { position: child.position, ..Child::default() };
        }
    }

    fn end_trial(&mut self) {
        self.trial = None;
        self.suspect = false;
    }

    fn rise(&mut self, now: Instant) {
        let careful = self.too_high.is_some_and(|high| self.rate >= high.scaled(CAREFUL.start));
        let (factor, most) = if careful { CAREFUL_RISE } else { RISE };
        let times = now.since(self.judged).div_duration_f64(RISE_TIME).max(1.0);
        self.rate = self.rate.scaled(factor.powf(times).min(most)).min(self.most);
        let passed = self.too_high.is_some_and(|high| self.rate >= high.scaled(CAREFUL.end));
        if passed || self.rate == self.most {
            self.too_high = None;
        }
    }
}

/// Returns the least loss that more than half of the children have or are below; 1 if no more
/// than half tell one.
fn most_have_at_most(mut losses: Vec<f64>, children: usize) -> f64 {
    losses.sort_unstable_by(f64::total_cmp);
    losses.get(children / 2).copied().unwrap_or(1.0)
}

impl Position {
    /// Returns whether a packet from the position `other` on was sent before this one.
    fn is_past(self, other: Position) -> bool {
        let past = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() > 0;
        past(self.first, other.first) || past(self.repairs, other.repairs)
    }
}

impl Usage {
    fn add(&mut self, now: Instant, bytes: u64) {
        let time = now.since(self.since);
        if time >= SPAN {
            self.peak = self.peak.max(self.bytes as f64 * 8.0 / time.as_secs_f64());
            (self.since, self.bytes) = (now, 0);
        }
        self.bytes += bytes;
    }

    /// Returns the rate that was used lately, of those at which the source might have sent.
    fn end_round(&mut self, present: Rate) -> Rate {
        let peak = self.peak.max(self.last_peak);
        (self.last_peak, self.peak) = (self.peak, 0.0);
        Rate::from_bits_per_s(peak as u64).unwrap_or(present).min(present)
    }
}

#[cfg(test)]
mod tests;
