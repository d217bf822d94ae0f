//! Messages of reliable, ordered sessions. They are a model of delay rather than packets.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use rand_core::SeedableRng;
use rand_xoshiro::SplitMix64;
use umbel_engine::Instant;

use super::{Event, Fabric};
use crate::network::NodeId;
use crate::random::{self, Purpose};
use crate::simulation::SessionDelay;
use crate::trace::MessageRecord;

/// Position at which a message is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageId(u32);

/// Message in transit.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) from: NodeId,
    pub(crate) to: NodeId,
    pub(crate) bytes: Bytes,
}

#[derive(Debug)]
pub(crate) struct Sessions {
    pub(crate) delay: SessionDelay,
    /// Delays of the messages of certain senders.
    pub(crate) delay_from: BTreeMap<NodeId, SessionDelay>,
    /// Delays of the messages of certain senders to certain receivers.
    pub(crate) delay_between: BTreeMap<(NodeId, NodeId), SessionDelay>,
    seed: u64,
    /// Directions by sender and receiver.
    directions: BTreeMap<(NodeId, NodeId), Direction>,
    messages: Vec<Option<Message>>,
    free: Vec<u32>,
}

/// One direction of a session.
#[derive(Debug)]
struct Direction {
    last_arrival: Instant,
    /// Stream with a small state, since there may be millions of sessions.
    random: SplitMix64,
}

impl Sessions {
    pub(super) fn new(seed: u64) -> Sessions {
        Sessions {
            delay: SessionDelay { min: Duration::ZERO, mean_extra: Duration::ZERO },
            delay_from: BTreeMap::new(),
            delay_between: BTreeMap::new(),
            seed,
            directions: BTreeMap::new(),
            messages: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Returns the time of arrival of a message that is sent now.
    fn arrival(&mut self, now: Instant, from: NodeId, to: NodeId) -> Instant {
        let own = self.delay_between.get(&(from, to)).or_else(|| self.delay_from.get(&from));
        let delay = own.unwrap_or(&self.delay);
        let SessionDelay { min, mean_extra } = *delay;
        let seed = self.seed;
        let direction = self.directions.entry((from, to)).or_insert_with(|| {
            let number = (u64::from(from.0) << 32) | u64::from(to.0);
            let key = random::key(seed, Purpose::Session, number);
            Direction { last_arrival: Instant::EPOCH, random: SplitMix64::seed_from_u64(key) }
        });
        let mut arrival = now + min;
        if !mean_extra.is_zero() {
            let extra = random::exponential(&mut direction.random, mean_extra.as_nanos() as f64);
            arrival += Duration::from_nanos(extra as u64);
        }
        direction.last_arrival = direction.last_arrival.max(arrival);
        direction.last_arrival
    }

    pub(crate) fn take(&mut self, id: MessageId) -> Message {
        self.free.push(id.0);
        self.messages[id.0 as usize].take().expect("a message arrives once")
    }
}

impl Fabric {
    pub(crate) fn send_message(&mut self, from: NodeId, to: NodeId, bytes: Bytes) {
        let arrives = self.sessions.arrival(self.now, from, to);
        self.counters.messages += 1;
        self.counters.message_bytes += bytes.len() as u64;
        if let Some(tracer) = &mut self.tracer {
            tracer.message(&MessageRecord { at: self.now, from, to, arrives, message: &bytes });
        }
        let Sessions { messages, free, .. } = &mut self.sessions;
        let index = free.pop().unwrap_or_else(|| {
            messages.push(None);
            messages.len() as u32 - 1
        });
        messages[index as usize] = Some(Message { from, to, bytes });
        self.schedule(arrives, Event::Message(MessageId(index)));
    }
}
