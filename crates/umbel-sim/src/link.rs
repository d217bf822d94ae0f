//! Properties of one direction of a link.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use umbel_engine::Instant;
use umbel_engine::units::{ByteCount, Rate};

use crate::network::NetworkError;
use crate::packet::{FlowId, Kinds};

/// One direction of a link. By default it is up, passes everything at once and loses nothing.
///
/// The order of effects on a packet is queue, rate, propagation, and loss at the far end. A packet
/// that is lost has used its time on the link.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LinkSpec {
    /// Serialisation rate; `None` is unlimited, and then nothing waits.
    pub rate: Option<Rate>,
    /// Propagation time.
    pub delay: Duration,
    /// Each packet's delay is uniform in `delay ± jitter`, never negative; order is kept.
    pub jitter: Duration,
    /// Queue of packets that wait for the rate.
    pub queue: Queue,
    /// Packets that are lost on the way.
    pub loss: Loss,
    /// Kinds of packets to which `loss` applies; default all.
    pub loss_of: Kinds,
    /// Times when the link goes up (`true`) or down, in increasing order. It is up at the start.
    /// Packets that enter a link that is down, or would leave it while it is down, are lost.
    pub schedule: Vec<(Instant, bool)>,
}

/// Capacity of a link with a rate, beyond which it drops packets.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Queue {
    /// Unlimited: every packet waits.
    #[default]
    Unbounded,
    /// At most this many packets, including the one being sent; drops the newest.
    DropTailPackets(u32),
    /// At most this many bytes of packets, including the one being sent; drops the newest. An empty
    /// queue accepts a packet of any length.
    DropTailBytes(ByteCount),
    /// Random early detection.
    Red(RedConfig),
    /// Drop preference. A packet of [`Kind::Other`]`(n)` finds room only among the first
    /// `limit · (1 − n / (2 · classes))` places, all others among `limit`. When the queue fills,
    /// the highest numbers are thus dropped first.
    ///
    /// [`Kind::Other`]: crate::Kind::Other
    Preference {
        /// Places of the most important packets.
        limit: u32,
        /// Number of classes, at least 1.
        classes: u8,
    },
}

/// Random early detection [Floyd and Jacobson 1993], with the "gentle" slope above the upper
/// threshold. Queue lengths are in packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RedConfig {
    /// Average length below which nothing is dropped.
    pub min_threshold: f64,
    /// Average length at which the share of drops has risen to `max_probability`. From there it
    /// rises to 1 at twice this length if `gentle`, else it is 1 at once.
    pub max_threshold: f64,
    /// Share of drops at the upper threshold.
    pub max_probability: f64,
    /// Weight of the present length in the average.
    pub weight: f64,
    /// Whether drops rise gently above the upper threshold.
    pub gentle: bool,
    /// Largest number of packets in the queue.
    pub limit: u32,
    /// Length of a typical packet, which determines how fast the average falls while the queue is
    /// empty.
    pub mean_packet: ByteCount,
}

impl RedConfig {
    /// Checks the ranges.
    fn validate(&self) -> Result<(), NetworkError> {
        probability("max_probability", self.max_probability)?;
        probability("weight", self.weight)?;
        if self.limit == 0 {
            return Err(NetworkError::EmptyQueue);
        }
        let RedConfig { min_threshold, max_threshold, .. } = *self;
        if 0.0 <= min_threshold && min_threshold < max_threshold && max_threshold.is_finite() {
            Ok(())
        } else {
            Err(NetworkError::RedThresholds { min_threshold, max_threshold })
        }
    }

    /// Creates the recommended settings around these thresholds. They are 10 % at the upper one,
    /// weight 0.002, gentle, packets of 1,000 bytes, and a limit of four times the upper threshold.
    pub fn new(min_threshold: f64, max_threshold: f64) -> RedConfig {
        RedConfig {
            min_threshold,
            max_threshold,
            max_probability: 0.1,
            weight: 0.002,
            gentle: true,
            limit: (max_threshold * 4.0).clamp(1.0, f64::from(u32::MAX)) as u32,
            mean_packet: ByteCount(1000),
        }
    }
}

/// Packets that a link loses. Loss on a receiver's own link hits that receiver alone; loss on a
/// shared link hits all its receivers at once.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Loss {
    /// None.
    #[default]
    None,
    /// Each packet with this probability, independently.
    Bernoulli(f64),
    /// A chain with a good and a bad state that takes a step before each packet.
    GilbertElliott {
        /// Probability of a step from good to bad.
        good_to_bad: f64,
        /// Probability of a step from bad to good.
        bad_to_good: f64,
        /// Share of packets lost in the good state.
        loss_good: f64,
        /// Share of packets lost in the bad state.
        loss_bad: f64,
    },
    /// Exactly these packets.
    Script(Vec<ScriptedLoss>),
    /// The packet with the number `first`, from 1, and each `every`-th after it.
    Every {
        /// Number of the first packet that is lost.
        first: u64,
        /// Number of packets from one that is lost to the next; at least 1.
        every: u64,
    },
    /// As a trace says: whether each packet is lost, one after the other.
    Trace {
        /// The trace, at least one packet.
        losses: Arc<[bool]>,
        /// Behaviour after its last packet.
        at_end: TraceEnd,
    },
    /// Each of these for packets of a set of kinds. A packet is lost if any of them loses it, and
    /// counts in all of them.
    Several(Vec<(Kinds, Loss)>),
}

/// Behaviour after the last packet of a trace of losses.
#[derive(Clone, Debug)]
pub enum TraceEnd {
    /// Nothing more is lost.
    Pass,
    /// The trace starts again.
    Repeat,
    /// Nothing more is lost, and this is set, so that the caller can end the simulation.
    Tell(Arc<AtomicBool>),
}

impl PartialEq for TraceEnd {
    fn eq(&self, other: &TraceEnd) -> bool {
        match (self, other) {
            (TraceEnd::Pass, TraceEnd::Pass) | (TraceEnd::Repeat, TraceEnd::Repeat) => true,
            (TraceEnd::Tell(a), TraceEnd::Tell(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

/// A packet to lose.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ScriptedLoss {
    /// Flow of the packet.
    pub flow: FlowId,
    /// Number of the packet within that flow on this direction of the link, from 1.
    pub nth: u64,
}

impl Loss {
    /// Checks the ranges.
    fn validate(&self) -> Result<(), NetworkError> {
        match self {
            Loss::Bernoulli(p) => probability("loss", *p),
            &Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                probability("good_to_bad", good_to_bad)?;
                probability("bad_to_good", bad_to_good)?;
                probability("loss_good", loss_good)?;
                probability("loss_bad", loss_bad)
            }
            Loss::Script(losses) if losses.iter().any(|loss| loss.nth == 0) => {
                Err(NetworkError::ScriptedZero)
            }
            Loss::Every { first: 0, .. } | Loss::Every { every: 0, .. } => {
                Err(NetworkError::ScriptedZero)
            }
            Loss::Trace { losses, .. } if losses.is_empty() => Err(NetworkError::EmptyTrace),
            Loss::Several(losses) => losses.iter().try_for_each(|(_, loss)| loss.validate()),
            Loss::None | Loss::Script(_) | Loss::Every { .. } | Loss::Trace { .. } => Ok(()),
        }
    }

    /// Creates the simple Gilbert model: a share of `loss` in runs of `run` packets on average.
    /// `run` must be at least 1 and, for `loss` above one half, at least `loss / (1 - loss)`.
    pub fn bursts(loss: f64, run: f64) -> Loss {
        Loss::GilbertElliott {
            good_to_bad: loss / (run * (1.0 - loss)),
            bad_to_good: 1.0 / run,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }
}

impl LinkSpec {
    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// Returns the first value that is out of its range.
    pub fn validate(&self) -> Result<(), NetworkError> {
        self.loss.validate()?;
        match self.queue {
            Queue::DropTailPackets(0)
            | Queue::DropTailBytes(ByteCount(0))
            | Queue::Preference { limit: 0, .. }
            | Queue::Preference { classes: 0, .. } => {
                return Err(NetworkError::EmptyQueue);
            }
            Queue::Red(red) => red.validate()?,
            _ => {}
        }
        if self.schedule.is_sorted_by(|a, b| a.0 < b.0) {
            Ok(())
        } else {
            Err(NetworkError::ScheduleOrder)
        }
    }

    /// Sets the propagation time.
    #[must_use]
    pub fn delay(self, delay: Duration) -> LinkSpec {
        LinkSpec { delay, ..self }
    }

    /// Sets the rate.
    #[must_use]
    pub fn rate(self, rate: Rate) -> LinkSpec {
        LinkSpec { rate: Some(rate), ..self }
    }

    /// Sets the queue.
    #[must_use]
    pub fn queue(self, queue: Queue) -> LinkSpec {
        LinkSpec { queue, ..self }
    }

    /// Sets the loss.
    #[must_use]
    pub fn loss(self, loss: Loss) -> LinkSpec {
        LinkSpec { loss, ..self }
    }

    /// Sets the kinds of packets to which the loss applies.
    #[must_use]
    pub fn loss_of(self, kinds: Kinds) -> LinkSpec {
        LinkSpec { loss_of: kinds, ..self }
    }

    /// Sets the times when the link goes up and down.
    #[must_use]
    pub fn schedule(self, schedule: Vec<(Instant, bool)>) -> LinkSpec {
        LinkSpec { schedule, ..self }
    }
}

fn probability(what: &'static str, value: f64) -> Result<(), NetworkError> {
    if (0.0..=1.0).contains(&value) {
        Ok(())
    } else {
        Err(NetworkError::Probability { what, value })
    }
}
