//! The part that source and receivers share: units kept, and answers to requests.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::lms::{Message, Request, TurningPoint};
use umbel_wire::{Channel, Tsi};

use super::config::ReplierConfig;
use super::drops::DropReason;
use super::late::{IgnorePeriods, LateRequests, Place};
use crate::bucket::Limiter;
use crate::reliable::History;
use crate::{Address, Instant};

/// Keeps units and decides which requests are answered, and how.
#[derive(Clone, Debug)]
pub(crate) struct Replier {
    config: ReplierConfig,
    history: History<()>,
    late: LateRequests,
    repairs: Limiter,
}

/// A repair to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Repair {
    pub(crate) sequence: u64,
    /// The number of the request.
    pub(crate) number: u8,
    pub(crate) to: RepairTo,
    pub(crate) payload: Bytes,
}

/// Path of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RepairTo {
    /// By DMCAST [LMS §II-G].
    Subtree(TurningPoint),
    /// By unicast [LMS §II-I].
    Host(SocketAddr),
    /// On a channel: the source's, to all, or that of a LAN.
    Channel(Channel),
}

impl RepairTo {
    pub(crate) fn place(&self) -> Place {
        match self {
            RepairTo::Subtree(turning_point) => Place::of(turning_point),
            RepairTo::Host(host) => Place::Host(*host),
            RepairTo::Channel(_) => Place::Everyone,
        }
    }
}

impl Replier {
    pub(crate) fn new(config: ReplierConfig) -> Replier {
        Replier {
            config,
            history: History::new(config.history.units, config.history.bytes),
            late: LateRequests::new(config.remembered_replies),
            repairs: Limiter::new(config.repairs),
        }
    }

    /// Keeps a unit for repairs.
    pub(crate) fn keep(&mut self, sequence: u64, payload: Bytes) {
        self.history.insert((), sequence, payload);
    }

    pub(crate) fn keeps(&self, sequence: u64) -> bool {
        self.history.get((), sequence).is_some()
    }

    /// Returns the oldest unit that is kept.
    pub(crate) fn lowest(&self) -> Option<u64> {
        self.history.lowest(())
    }

    /// Notes an overheard repair, which all neighbours have heard too.
    pub(crate) fn on_repair_heard(&mut self, now: Instant, sequence: u64) {
        self.late.on_reply(now, sequence, Place::Everyone);
    }

    /// Returns whether a unit is so far ahead of the last known one that a request for it is
    /// invalid.
    pub(crate) fn is_far_ahead(&self, sequence: u64, known: u64) -> bool {
        sequence >= known.saturating_add(self.config.far_ahead)
    }

    /// Returns the time for which requests that follow a reply are late.
    pub(crate) fn ignore_period(&self, rtt: Duration) -> Duration {
        self.config.ignore_period.unwrap_or(rtt)
    }

    /// Answers a request for a unit that is kept.
    pub(crate) fn answer(
        &mut self,
        now: Instant,
        sequence: u64,
        number: u8,
        to: RepairTo,
        rtt: Duration,
    ) -> Result<Repair, DropReason> {
        let payload = self.history.get((), sequence).ok_or(DropReason::Expired)?.clone();
        let place = to.place();
        let ignore =
            IgnorePeriods { any: self.ignore_period(rtt), first: self.config.ignore_first };
        if self.late.is_late(now, sequence, place, number, ignore) {
            return Err(DropReason::LateRequest);
        }
        if !self.repairs.take(now) {
            return Err(DropReason::Flood);
        }
        self.late.on_reply(now, sequence, place);
        Ok(Repair { sequence, number, to, payload })
    }
}

/// Returns the destination of an answer, unless the request asks for another: its turning point, or
/// else the requestor.
pub(crate) fn reply_to(request: &Request, from: SocketAddr) -> RepairTo {
    match request.turning_point {
        Some(turning_point) if !request.unicast_reply => RepairTo::Subtree(turning_point),
        _ => RepairTo::Host(request.requestor.unwrap_or(from)),
    }
}

impl Repair {
    /// Returns the datagram and its destination.
    pub(crate) fn build(&self, channel: Channel, tsi: Tsi) -> (Address, Vec<u8>) {
        let unicast = matches!(self.to, RepairTo::Host(_));
        let Repair { sequence, number, ref payload, .. } = *self;
        let repair = Message::Repair { tsi, sequence, number, unicast, payload };
        let mut bytes = Vec::with_capacity(payload.len() + 128);
        repair.emit(&mut bytes);
        match self.to {
            RepairTo::Host(host) => (Address::Host(host), bytes),
            RepairTo::Channel(channel) => (Address::Channel(channel), bytes),
            RepairTo::Subtree(turning_point) => {
                let mut outer = Vec::with_capacity(bytes.len() + 128);
                Message::Dmcast { channel, turning_point, repair: &bytes }.emit(&mut outer);
                (Address::Host(turning_point.router), outer)
            }
        }
    }
}
