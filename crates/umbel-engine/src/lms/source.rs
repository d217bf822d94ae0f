//! The source: sends units and heartbeats, and answers requests that no receiver could answer.
//!
//! ```text
//! unit from the application ──▶ queue ──pacer──▶ channel ──▶ kept
//!                                                   │ nothing more to send
//!                                                   ▼
//!                       heartbeats after 1, 2, 4, … times the least interval
//!
//! request ── stamped ──▶ DMCAST to its turning point
//!         └─ not stamped: no router with LMS on its way ──▶ unicast; multicast if many ask
//! ```
//!
//! Heartbeats begin before the first unit, so that receivers find the session and repliers are
//! chosen in time. A heartbeat carries the number of the next unit, by which receivers find the
//! loss of the last one. It also carries that of the oldest unit kept, below which requests are
//! pointless.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Parsed;
use umbel_wire::lms::{Message, Request, limits};

use super::api::{SourceCommand, SourceCommandError, SourceEvent, SourceStats};
use super::config::SourceConfig;
use super::drops::{DropReason, Drops};
use super::replier::{Repair, RepairTo, Replier, reply_to};
use crate::bucket::Limiter;
use crate::timers::timers;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// Greatest number of units whose unstamped requests are counted at once.
const COUNTED: usize = 1024;

timers! {
    /// Timers of a source.
    enum Timer, Timers {
        /// When to send a heartbeat.
        Heartbeat,
    }
}

/// The source of a channel.
#[derive(Debug)]
pub struct Source {
    config: SourceConfig,
    replier: Replier,
    /// Units that wait for the pacer.
    queue: VecDeque<Bytes>,
    next: u64,
    repairs: VecDeque<Repair>,
    pongs: VecDeque<(SocketAddr, u64)>,
    pong_bucket: Limiter,
    timers: Timers,
    heartbeat_every: Duration,
    last_heartbeat: Option<Instant>,
    heartbeat_due: bool,
    round: u32,
    question: Option<(u32, Duration)>,
    /// Number of requests for a unit without a turning point, and the time since which they are
    /// counted.
    unstamped: BTreeMap<u64, (u32, Instant)>,
    events: VecDeque<SourceEvent>,
    drops: Drops,
    stats: SourceStats,
}

impl Source {
    /// Creates a source that has sent nothing yet.
    pub fn new(config: SourceConfig) -> Source {
        let mut timers = Timers::default();
        timers.set(Timer::Heartbeat, Instant::EPOCH);
        Source {
            replier: Replier::new(config.replier),
            queue: VecDeque::new(),
            next: 0,
            repairs: VecDeque::new(),
            pongs: VecDeque::new(),
            pong_bucket: Limiter::new(config.pongs),
            timers,
            heartbeat_every: config.heartbeat_min,
            last_heartbeat: None,
            heartbeat_due: false,
            round: 0,
            question: None,
            unstamped: BTreeMap::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            stats: SourceStats::default(),
            config,
        }
    }

    /// Returns the source's counters.
    pub fn stats(&self) -> SourceStats {
        self.stats
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the number of the next unit.
    pub fn next_sequence(&self) -> u64 {
        self.next
    }

    fn on_request(&mut self, now: Instant, request: &Request, from: SocketAddr) {
        if (request.channel, request.tsi) != (self.config.channel, self.config.tsi) {
            return self.drops.count(DropReason::OtherSession);
        }
        self.stats.requests += 1;
        for sequence in request.units.iter() {
            if sequence >= self.next {
                self.drops.count(DropReason::FarAhead);
                continue;
            }
            let mut to = reply_to(request, from);
            if request.turning_point.is_none() && self.many_ask(now, sequence) {
                to = RepairTo::Channel(self.config.channel);
            }
            match self.replier.answer(now, sequence, request.number, to, self.config.rtt) {
                Ok(repair) => self.repairs.push_back(repair),
                Err(reason) => self.drops.count(reason),
            }
        }
    }

    /// Counts an unstamped request. Returns whether the answer should go to all.
    fn many_ask(&mut self, now: Instant, sequence: u64) -> bool {
        let ignore = self.replier.ignore_period(self.config.rtt);
        if self.unstamped.len() >= COUNTED {
            self.unstamped.retain(|_, (_, since)| now - *since < ignore);
        }
        if self.unstamped.len() >= COUNTED {
            return false;
        }
        let (count, since) = self.unstamped.entry(sequence).or_insert((0, now));
        if now - *since >= ignore {
            (*count, *since) = (0, now);
        }
        *count += 1;
        *count > self.config.multicast_after
    }

    fn on_ping(&mut self, now: Instant, nonce: u64, from: SocketAddr) {
        if self.pong_bucket.take(now) {
            self.pongs.push_back((from, nonce));
        } else {
            self.drops.count(DropReason::Flood);
        }
    }

    fn after_unit(&mut self, now: Instant) {
        self.heartbeat_every = self.config.heartbeat_min;
        // Even while units follow each other, a heartbeat comes now and then. It tells late joiners
        // which units are still available.
        let last = *self.last_heartbeat.get_or_insert(now);
        let at = now + self.heartbeat_every;
        self.timers.set(Timer::Heartbeat, at.min(last + self.config.heartbeat_max));
    }

    fn control(&mut self) -> Option<(Address, Vec<u8>)> {
        let channel = Address::Channel(self.config.channel);
        let tsi = self.config.tsi;
        let built = |to, message: Message<'_>| {
            let mut bytes = Vec::new();
            message.emit(&mut bytes);
            Some((to, bytes))
        };
        if let Some(repair) = self.repairs.pop_front() {
            match repair.to {
                RepairTo::Subtree(_) => self.stats.dmcasts += 1,
                RepairTo::Host(_) => self.stats.unicasts += 1,
                RepairTo::Channel(_) => self.stats.multicasts += 1,
            }
            return Some(repair.build(self.config.channel, tsi));
        }
        if let Some((to, nonce)) = self.pongs.pop_front() {
            return built(Address::Host(to), Message::Pong { tsi, nonce });
        }
        if let Some((question, spread)) = self.question.take() {
            let round = self.round;
            return built(channel, Message::Collect { tsi, round, question, spread });
        }
        if std::mem::take(&mut self.heartbeat_due) {
            self.stats.heartbeats += 1;
            let trail = self.replier.lowest().unwrap_or(self.next);
            return built(channel, Message::Heartbeat { tsi, lead: self.next, trail });
        }
        None
    }
}

impl Engine for Source {
    type Command = SourceCommand;
    type CommandError = SourceCommandError;
    type Event = SourceEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let Address::Host(from) = datagram.by else {
            // The host's own units come back if it is a member too.
            return self.drops.count(DropReason::Unexpected);
        };
        let Ok(Parsed::Message { message, .. }) = Message::parse(datagram.payload) else {
            return self.drops.count(DropReason::Malformed);
        };
        match message {
            Message::Request(request) => self.on_request(now, &request, from),
            Message::Ping { tsi, nonce } if tsi == self.config.tsi => {
                self.on_ping(now, nonce, from);
            }
            Message::Report { channel, tsi, round, summary, .. }
                if (channel, tsi) == (self.config.channel, self.config.tsi) =>
            {
                if round == self.round && round > 0 {
                    self.events.push_back(SourceEvent::Collected { round, summary });
                } else {
                    self.drops.count(DropReason::Unexpected);
                }
            }
            // The last router also offers its repliers to the source, which needs none.
            Message::Advertisement { .. } => {}
            _ => self.drops.count(DropReason::Unexpected),
        }
    }

    fn handle_command(
        &mut self,
        _now: Instant,
        command: SourceCommand,
    ) -> Result<(), SourceCommandError> {
        match command {
            SourceCommand::Send(payload) => {
                if self.queue.len() >= self.config.queue {
                    return Err(SourceCommandError::Full { waiting: self.queue.len() });
                }
                if payload.len() > limits::PAYLOAD_LEN {
                    return Err(SourceCommandError::TooLong { len: payload.len() });
                }
                self.queue.push_back(payload);
            }
            SourceCommand::Collect { question, spread } => {
                self.round = self.round.wrapping_add(1).max(1);
                self.question = Some((question, spread.min(limits::DURATION)));
            }
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        if let Some(Timer::Heartbeat) = self.timers.pop_due(now) {
            self.heartbeat_due = true;
            self.last_heartbeat = Some(now);
            self.timers.set(Timer::Heartbeat, now + self.heartbeat_every);
            self.heartbeat_every = (self.heartbeat_every * 2).min(self.config.heartbeat_max);
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Some((to, bytes)) = self.control() {
            buf.push_message(bytes);
            return Some(Transmit::control(to));
        }
        if buf.allows(RateClass::Data) == 0 {
            return None;
        }
        let payload = self.queue.pop_front()?;
        let mut bytes = Vec::with_capacity(payload.len() + 64);
        let (tsi, sequence) = (self.config.tsi, self.next);
        Message::Data { tsi, sequence, payload: &payload }.emit(&mut bytes);
        self.replier.keep(sequence, payload);
        self.next += 1;
        self.stats.units += 1;
        self.after_unit(now);
        buf.push_message(bytes);
        Some(Transmit::data(Address::Channel(self.config.channel)))
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && !self.queue.is_empty()
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
}
