//! One direction of a link as a function of time and a seeded stream; no clock, no events.
//!
//! A packet is [offered](Line::offer) when it enters and gets its time of arrival at once. The
//! queue is computed from the packets sent before, so that waiting takes no event. At the far end
//! [`Line::passes`] tells whether the packet got through.

mod loss;
mod red;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::Instant;

use self::loss::LossState;
use self::red::Red;
use crate::link::{LinkSpec, Loss, Queue};
use crate::network::NetworkError;
use crate::packet::{FlowId, Kind};
use crate::random;

/// Reason why a packet did not enter a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The line is down.
    Down,
    /// The queue is full, or dropped it early.
    Queue,
}

/// A [`LinkSpec`] that was checked and prepared. Lines with equal specifications share one.
#[derive(Clone, Debug)]
pub struct Treatment {
    spec: LinkSpec,
    delay_ns: u64,
    jitter_ns: u64,
    limited: bool,
    bounded: bool,
    lossy: bool,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct Line {
    treatment: Arc<Treatment>,
    /// Time when the last admitted packet will have been sent.
    sent_at: u64,
    /// Sending time of a packet of `known_len`. Most packets have one length, and the division is
    /// slow.
    known_time: u64,
    known_len: u32,
    up: bool,
    /// State that only some lines need.
    extra: Option<Box<Extra>>,
}

#[derive(Clone, Debug)]
struct Extra {
    random: Xoshiro256PlusPlus,
    loss: LossState,
    waiting: Waiting,
    red: Option<Red>,
    /// Latest arrival so far.
    last_arrival: u64,
    lost: u64,
    queue_drops: u64,
}

/// Packets that have not been sent yet.
#[derive(Clone, Debug, Default)]
struct Waiting {
    /// Time when each will have been sent, and its length; oldest first.
    packets: VecDeque<(u64, u32)>,
    bytes: u64,
}

impl Treatment {
    /// Checks a specification.
    ///
    /// # Errors
    ///
    /// If a value is out of its range.
    pub fn new(spec: LinkSpec) -> Result<Treatment, NetworkError> {
        spec.validate()?;
        Ok(Treatment {
            delay_ns: nanos(spec.delay),
            jitter_ns: nanos(spec.jitter),
            limited: spec.rate.is_some(),
            bounded: spec.rate.is_some() && spec.queue != Queue::Unbounded,
            lossy: spec.loss != Loss::None,
            spec,
        })
    }

    /// Returns the specification.
    pub fn spec(&self) -> &LinkSpec {
        &self.spec
    }

    /// Returns the propagation time.
    pub(crate) fn delay_ns(&self) -> u64 {
        self.delay_ns
    }
}

fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Line {
    /// Creates a line that is up and idle. Equal streams and inputs produce equal outputs on any
    /// machine. `random` is called only if something is left to chance.
    pub fn new(treatment: Arc<Treatment>, random: impl FnOnce() -> Xoshiro256PlusPlus) -> Line {
        let Treatment { spec, jitter_ns, bounded, lossy, .. } = &*treatment;
        let extra = (*bounded || *lossy || *jitter_ns > 0).then(|| {
            Box::new(Extra {
                random: random(),
                loss: LossState::new(&spec.loss),
                waiting: Waiting::default(),
                red: match (spec.queue, spec.rate) {
                    (Queue::Red(config), Some(rate)) => Some(Red::new(config, rate)),
                    _ => None,
                },
                last_arrival: 0,
                lost: 0,
                queue_drops: 0,
            })
        });
        Line { treatment, sent_at: 0, known_time: 0, known_len: 0, up: true, extra }
    }

    /// Returns the treatment of packets.
    pub fn treatment(&self) -> &Treatment {
        &self.treatment
    }

    /// Returns whether the line is up.
    pub fn is_up(&self) -> bool {
        self.up
    }

    /// Cuts or restores the line.
    pub fn set_up(&mut self, up: bool) {
        self.up = up;
    }

    /// Accepts a packet of `length` bytes at `now`, which never decreases. Returns its time of
    /// arrival.
    ///
    /// # Errors
    ///
    /// If the packet did not enter.
    #[inline]
    pub fn offer(&mut self, now: Instant, length: u32) -> Result<Instant, Refusal> {
        self.offer_of(Kind::Data, now, length)
    }

    /// Does the same for a packet of a purpose, which matters to [`Queue::Preference`].
    ///
    /// # Errors
    ///
    /// If the packet did not enter.
    #[inline]
    pub fn offer_of(&mut self, kind: Kind, now: Instant, length: u32) -> Result<Instant, Refusal> {
        if !self.up {
            return Err(Refusal::Down);
        }
        let now = now.as_nanos();
        if !self.treatment.limited {
            return Ok(self.propagate(now));
        }
        if self.treatment.bounded && !self.admits(kind, now, length) {
            return Err(Refusal::Queue);
        }
        self.sent_at = self.sent_at.max(now).saturating_add(self.time_for(length));
        if self.treatment.bounded
            && let Some(extra) = &mut self.extra
        {
            extra.waiting.packets.push_back((self.sent_at, length));
            extra.waiting.bytes += u64::from(length);
        }
        Ok(self.propagate(self.sent_at))
    }

    /// Returns whether a packet that arrives at the far end got through.
    #[inline]
    pub fn passes(&mut self, kind: Kind, flow: FlowId) -> bool {
        if !self.treatment.lossy || !self.treatment.spec.loss_of.contains(kind) {
            return true;
        }
        let Some(extra) = &mut self.extra else { return true };
        let lost = extra.loss.loses(&mut extra.random, kind, flow);
        extra.lost += u64::from(lost);
        !lost
    }

    /// Returns the number of packets that were lost at the far end.
    pub fn lost(&self) -> u64 {
        self.extra.as_ref().map_or(0, |extra| extra.lost)
    }

    /// Returns the number of packets that the queue has dropped.
    pub fn queue_drops(&self) -> u64 {
        self.extra.as_ref().map_or(0, |extra| extra.queue_drops)
    }

    /// Returns the bytes of packets that wait for the rate, including the one being sent. Known for
    /// lines with a bounded queue only; 0 for others.
    pub fn backlog_bytes(&mut self, now: Instant) -> u64 {
        let Some(extra) = &mut self.extra else { return 0 };
        extra.waiting.forget_sent(now.as_nanos());
        extra.waiting.bytes
    }

    #[inline]
    fn time_for(&mut self, length: u32) -> u64 {
        if length != self.known_len
            && let Some(rate) = self.treatment.spec.rate
        {
            self.known_time = nanos(rate.time_for(u64::from(length)));
            self.known_len = length;
        }
        self.known_time
    }

    /// Returns whether the queue admits a packet.
    #[inline]
    fn admits(&mut self, kind: Kind, now: u64, length: u32) -> bool {
        let Some(extra) = &mut self.extra else { return true };
        let Extra { waiting, red, random, queue_drops, .. } = &mut **extra;
        waiting.forget_sent(now);
        let packets = waiting.packets.len() as u64;
        let admitted = match self.treatment.spec.queue {
            Queue::Unbounded => true,
            Queue::DropTailPackets(limit) => packets < u64::from(limit),
            Queue::Preference { limit, classes } => {
                let class = if let Kind::Other(n) = kind { n.min(classes) } else { 0 };
                let closed = u64::from(limit) * u64::from(class) / (2 * u64::from(classes));
                packets < u64::from(limit) - closed
            }
            Queue::DropTailBytes(limit) => {
                packets == 0 || waiting.bytes + u64::from(length) <= limit.0
            }
            Queue::Red(_) => {
                let idle_since = self.sent_at;
                red.as_mut().is_none_or(|red| {
                    red.admits(now, packets, idle_since, || random::uniform(random))
                })
            }
        };
        *queue_drops += u64::from(!admitted);
        admitted
    }

    /// Returns the time of arrival of a packet that leaves the queue at `sent`.
    #[inline]
    fn propagate(&mut self, sent: u64) -> Instant {
        let Treatment { delay_ns, jitter_ns, .. } = *self.treatment;
        if jitter_ns == 0 {
            return Instant::from_nanos(sent.saturating_add(delay_ns));
        }
        let Some(extra) = &mut self.extra else { return Instant::from_nanos(sent) };
        let span = jitter_ns.saturating_mul(2).saturating_add(1);
        let delay = delay_ns.saturating_add(random::below(&mut extra.random, span));
        let arrival = sent.saturating_add(delay.saturating_sub(jitter_ns));
        extra.last_arrival = extra.last_arrival.max(arrival);
        Instant::from_nanos(extra.last_arrival)
    }
}

impl Waiting {
    #[inline]
    fn forget_sent(&mut self, now: u64) {
        while let Some(&(sent, length)) = self.packets.front()
            && sent <= now
        {
            self.packets.pop_front();
            self.bytes -= u64::from(length);
        }
    }
}
