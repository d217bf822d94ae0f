//! The other receivers: how many they are, and what one tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Duration;

use umbel_wire::Tsi;
use umbel_wire::rlm::{Loss, Message};

use crate::Instant;
use crate::bounds::STREAM_CONTROL;
use crate::bucket::{HostLimiter, Limit, Limiter};
use crate::census::Census;
use crate::rlm::config::{CONTROL_HOSTS, ReceiverConfig, SessionConfig};
use crate::session_pacing::{Group as Members, SessionPacer};
use crate::shares::Origin;

/// Most senders whose announcements are limited one by one. The longest silent is forgotten first.
const SENDERS: usize = 256;

/// Estimates the number of receivers from their session messages, and times one's own [RLM §3.5].
#[derive(Debug)]
pub(super) struct Group {
    tsi: Tsi,
    receiver: u64,
    config: SessionConfig,
    pacer: SessionPacer,
    census: Census,
    limiter: HostLimiter<Origin>,
    of_one: Limit,
    senders: BTreeMap<IpAddr, (Instant, Limiter)>,
    /// The same senders, the longest silent first.
    by_heard: BTreeSet<(Instant, IpAddr)>,
}

impl Group {
    pub(super) fn new(config: &ReceiverConfig) -> Group {
        Group {
            tsi: config.tsi,
            receiver: config.receiver,
            config: config.session,
            pacer: SessionPacer::new(config.session.pace()),
            census: Census::default(),
            limiter: HostLimiter::new(
                STREAM_CONTROL.of_host(),
                CONTROL_HOSTS,
                config.control_limit,
            ),
            of_one: config.experiments_of_one,
            senders: BTreeMap::new(),
            by_heard: BTreeSet::new(),
        }
    }

    /// Begins to tell of this receiver.
    pub(super) fn start(&mut self, now: Instant, uniform: f64) {
        self.pacer.start(now, self.members(), uniform);
    }

    /// Returns the time at which the next session message may be due.
    pub(super) fn next(&self) -> Instant {
        self.pacer.next()
    }

    /// Returns whether a session message is due now.
    pub(super) fn is_due(&mut self, now: Instant, uniform: f64) -> bool {
        self.forget_silent(now);
        self.pacer.next() <= now && self.pacer.is_due(now, self.members(), uniform)
    }

    /// Builds a session message; level 0 says goodbye.
    pub(super) fn message(&mut self, now: Instant, level: u8, loss: Loss, uniform: f64) -> Vec<u8> {
        let (tsi, receiver) = (self.tsi, self.receiver);
        let mut message = Vec::new();
        Message::Session { tsi, receiver, level, loss }.emit(&mut message);
        self.pacer.average(message.len());
        self.pacer.count(now, message.len());
        self.pacer.sent(now, self.members(), uniform);
        message
    }

    /// Returns whether one more control message of a host is handled.
    pub(super) fn admits(&mut self, now: Instant, from: IpAddr) -> bool {
        self.limiter.take(now, Origin::of(from))
    }

    /// Returns whether one more announcement of this sender is handled. O(log n) in the number of
    /// senders that are remembered: in a group of thousands most announcements are of new ones.
    pub(super) fn admits_experiment(&mut self, now: Instant, sender: IpAddr) -> bool {
        let known = self.senders.remove(&sender);
        let mut limiter = match known {
            Some((heard, limiter)) => {
                self.by_heard.remove(&(heard, sender));
                limiter
            }
            None => Limiter::new(self.of_one),
        };
        if self.senders.len() >= SENDERS
            && let Some((_, silent)) = self.by_heard.pop_first()
        {
            self.senders.remove(&silent);
        }
        let admitted = limiter.take(now);
        self.senders.insert(sender, (now, limiter));
        self.by_heard.insert((now, sender));
        admitted
    }

    /// Takes the session message of another receiver.
    pub(super) fn hear(&mut self, now: Instant, receiver: u64, level: u8, len: usize) {
        if level == 0 {
            return self.census.forget(receiver);
        }
        self.pacer.count(now, len);
        self.pacer.average(len);
        self.census.heard(now, receiver, ());
    }

    /// Returns the estimated number of receivers, this one included.
    pub(super) fn receivers(&self) -> u64 {
        self.census.others() + 1
    }

    fn forget_silent(&mut self, now: Instant) {
        let silence = self.pacer.interval(self.members()) * self.config.silent_intervals;
        self.census.forget_silent(before(now, silence));
    }

    fn members(&self) -> Members {
        Members { members: self.receivers(), sources: 0, is_source: false }
    }
}

/// Returns the time this long before `now`.
pub(in crate::rlm) fn before(now: Instant, time: Duration) -> Instant {
    let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    Instant::from_nanos(now.as_nanos().saturating_sub(ns))
}
