//! The source.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use umbel_wire::Parsed;
use umbel_wire::pgm::{MAX_PAYLOAD, Message};

use super::api::{SourceCommand, SourceCommandError, SourceStats};
use super::{DropReason, Drops, SourceConfig};
use crate::timers::{Deadlines, timers};
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

timers! {
    /// Timers of a source.
    enum Timer, Timers {
        /// When to send an SPM.
        Spm,
        /// When to retransmit the first unit that waits for further NAKs.
        Repair,
    }
}

/// Multicasts units, and retransmits requested ones.
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    /// The transmit window, followed by the units that wait for the pacer.
    units: VecDeque<Bytes>,
    bytes: usize,
    /// Number of the first of `units`.
    trail: u64,
    /// The next unit to leave.
    next: u64,
    /// NAKs to confirm.
    confirm: BTreeSet<u64>,
    /// Retransmissions that wait for further NAKs, with the ends of their waits.
    waiting: BTreeMap<u64, Instant>,
    /// The same in the order of these ends.
    due: Deadlines<u64>,
    /// Retransmissions that may leave.
    ready: BTreeSet<u64>,
    spm_number: u64,
    spm_at: Instant,
    spm_interval: Duration,
    stats: SourceStats,
    drops: Drops,
}

impl Source {
    /// Creates a source that has sent nothing. Its first SPM leaves at once.
    pub fn new(config: SourceConfig) -> Source {
        Source {
            config,
            units: VecDeque::new(),
            bytes: 0,
            trail: 0,
            next: 0,
            confirm: BTreeSet::new(),
            waiting: BTreeMap::new(),
            due: Deadlines::default(),
            ready: BTreeSet::new(),
            spm_number: 0,
            spm_at: Instant::EPOCH,
            spm_interval: config.heartbeat,
            stats: SourceStats::default(),
            drops: Drops::default(),
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

    /// Returns the number of the next unit to leave.
    pub fn next(&self) -> u64 {
        self.next
    }

    fn queued(&self) -> usize {
        self.units.len() - (self.next - self.trail) as usize
    }

    fn unit(&self, sequence: u64) -> Option<&Bytes> {
        self.units.get(usize::try_from(sequence.checked_sub(self.trail)?).ok()?)
    }

    fn on_nak(&mut self, now: Instant, sequence: u64) {
        if sequence >= self.next {
            return self.drops.count(DropReason::FarAhead);
        }
        if sequence < self.trail {
            return self.drops.count(DropReason::Expired);
        }
        self.stats.naks += 1;
        self.confirm.insert(sequence);
        if self.config.wait.is_zero() {
            self.ready.insert(sequence);
        } else if !self.ready.contains(&sequence) && !self.waiting.contains_key(&sequence) {
            let at = now + self.config.wait;
            self.waiting.insert(sequence, at);
            self.due.set(at, sequence);
        }
    }

    /// Drops the oldest units beyond the window. Units that wait to be sent stay.
    fn advance(&mut self) {
        let SourceConfig { window_units, window_bytes, .. } = self.config;
        while self.trail + 1 < self.next {
            let sent = (self.next - self.trail) as usize;
            if sent <= window_units && self.bytes <= window_bytes {
                break;
            }
            if let Some(unit) = self.units.pop_front() {
                self.bytes -= unit.len();
            }
            self.confirm.remove(&self.trail);
            self.ready.remove(&self.trail);
            if let Some(at) = self.waiting.remove(&self.trail) {
                self.due.cancel(at, self.trail);
            }
            self.trail += 1;
        }
    }

    /// Appends a unit to `buf`, as a retransmission if `repair`.
    fn emit(&mut self, sequence: u64, repair: bool, buf: &mut TransmitBuf) -> Transmit {
        let trail = self.trail;
        let payload = self.unit(sequence).cloned().unwrap_or_default();
        let mut head = Vec::with_capacity(64);
        let message = if repair {
            self.stats.repairs += 1;
            Message::Rdata { channel: None, sequence, trail, payload: &payload }
        } else {
            self.stats.sent += 1;
            Message::Odata { sequence, trail, payload: &payload }
        };
        message.emit_head(&mut head);
        buf.push(&head, payload);
        Transmit::data(Address::Channel(self.config.channel))
    }

    fn emit_spm(&mut self, now: Instant, buf: &mut TransmitBuf) -> Transmit {
        let SourceConfig { channel, ambient, .. } = self.config;
        let path = (channel.source.unwrap_or(channel.group), channel.port).into();
        let spm =
            Message::Spm { number: self.spm_number, trail: self.trail, next: self.next, path };
        let mut head = Vec::new();
        spm.emit(&mut head);
        buf.push(&head, Bytes::new());
        self.spm_number += 1;
        self.stats.spms += 1;
        self.spm_at = now + self.spm_interval;
        self.spm_interval = (self.spm_interval * 2).min(ambient);
        self.to_channel()
    }

    /// Returns when there is something to do.
    fn timers(&self) -> Timers {
        let mut timers = Timers::default();
        timers.set(Timer::Spm, self.spm_at);
        timers.put(Timer::Repair, self.due.next());
        timers
    }

    /// Lets retransmissions go whose wait for further NAKs is over.
    fn end_waits(&mut self, now: Instant) {
        while let Some(sequence) = self.due.pop_due(now) {
            self.waiting.remove(&sequence);
            self.ready.insert(sequence);
        }
    }

    fn to_channel(&self) -> Transmit {
        Transmit::control(Address::Channel(self.config.channel))
    }
}

impl Engine for Source {
    type Command = SourceCommand;
    type CommandError = SourceCommandError;
    type Event = std::convert::Infallible;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        if !matches!(datagram.by, Address::Host(_)) {
            return self.drops.count(DropReason::Unexpected);
        }
        match Message::parse(datagram.payload) {
            Ok(Parsed::Message { message: Message::Nak { channel, sequence }, .. }) => {
                if channel == self.config.channel {
                    self.on_nak(now, sequence);
                } else {
                    self.drops.count(DropReason::OtherSession);
                }
            }
            Ok(_) => self.drops.count(DropReason::Unexpected),
            Err(_) => self.drops.count(DropReason::Malformed),
        }
    }

    fn handle_command(
        &mut self,
        _now: Instant,
        SourceCommand::Send(unit): SourceCommand,
    ) -> Result<(), SourceCommandError> {
        if unit.len() > MAX_PAYLOAD {
            return Err(SourceCommandError::TooLong { len: unit.len() });
        }
        if self.queued() >= self.config.queue_units {
            return Err(SourceCommandError::Full { waiting: self.queued() });
        }
        self.bytes += unit.len();
        self.units.push_back(unit);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        let mut timers = self.timers();
        while let Some(timer) = timers.pop_due(now) {
            match timer {
                Timer::Repair => self.end_waits(now),
                // It is built when it is polled.
                Timer::Spm => {}
            }
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    /// Returns confirmations first, then retransmissions, then new units.
    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if let Some(sequence) = self.confirm.pop_first() {
            let mut head = Vec::new();
            Message::Ncf { channel: None, sequence }.emit(&mut head);
            buf.push(&head, Bytes::new());
            return Some(self.to_channel());
        }
        if self.spm_at <= now {
            return Some(self.emit_spm(now, buf));
        }
        if buf.allows(RateClass::Data) == 0 {
            return None;
        }
        if let Some(sequence) = self.ready.pop_first() {
            return Some(self.emit(sequence, true, buf));
        }
        if self.queued() > 0 {
            let transmit = self.emit(self.next, false, buf);
            self.next += 1;
            self.advance();
            (self.spm_interval, self.spm_at) = (self.config.heartbeat, now + self.config.heartbeat);
            return Some(transmit);
        }
        None
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && (!self.ready.is_empty() || self.queued() > 0)
    }

    fn poll_event(&mut self) -> Option<Self::Event> {
        None
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers().next()
    }
}
