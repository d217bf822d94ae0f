//! The receiver.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use rand_core::Rng;
use umbel_wire::pgm::Message;
use umbel_wire::{Channel, Parsed};

use super::api::{ReceiverEvent, ReceiverStats};
use super::{DropReason, Drops, ReceiverConfig};
use crate::chance::Generator;
use crate::reliable::{History, ReceiveWindow, Refused};
use crate::timers::Deadlines;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// Stage of the recovery of a missing unit [RFC 3208 §6.3].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// A NAK will be sent, unless another's is confirmed first.
    BackOff,
    /// A NAK was sent.
    WaitNcf,
    /// A NAK was confirmed.
    WaitData,
    /// No node answers. The state ends when nothing before the unit is missing any more.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Missing {
    state: State,
    /// Time at which the state ends.
    until: Instant,
    /// Number of NAKs without an NCF so far.
    unconfirmed: u32,
    /// Number of NCFs without data so far.
    unanswered: u32,
}

/// A datagram that a designated local repairer is to send to a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Answer {
    Confirm(SocketAddr, u64),
    Repair(SocketAddr, u64),
}

/// Greatest number of answers that a designated local repairer owes at a time. NAKs beyond it are
/// dropped.
const ANSWERS: usize = 1024;

/// Receives the units of one source in order, and requests missing ones.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: ReceiverConfig,
    random: Generator,
    window: Option<ReceiveWindow>,
    /// Destination of NAKs, as given by the last SPM.
    path: Option<SocketAddr>,
    spm_number: Option<u64>,
    missing: BTreeMap<u64, Missing>,
    /// The missing units by the times at which their states end.
    due: Deadlines<u64>,
    naks: BTreeSet<u64>,
    /// Units that a designated local repairer holds.
    history: Option<History<()>>,
    answers: BTreeSet<Answer>,
    membership: Option<Membership>,
    events: VecDeque<ReceiverEvent>,
    stats: ReceiverStats,
    drops: Drops,
}

impl Receiver {
    /// Creates a receiver that joins the channel. Back-off times are drawn from `random`.
    pub fn new(config: ReceiverConfig, random: Generator) -> Receiver {
        let units = usize::try_from(config.window.units).unwrap_or(usize::MAX);
        Receiver {
            config,
            random,
            window: None,
            path: None,
            spm_number: None,
            missing: BTreeMap::new(),
            due: Deadlines::default(),
            naks: BTreeSet::new(),
            history: config.designated.then(|| History::new(units, config.history_bytes)),
            answers: BTreeSet::new(),
            membership: Some(Membership::Join(config.channel)),
            events: VecDeque::new(),
            stats: ReceiverStats::default(),
            drops: Drops::default(),
        }
    }

    /// Returns the receiver's counters.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Returns the discarded input, by reason.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// Returns the number of missing units.
    pub fn missing(&self) -> usize {
        self.missing.len()
    }

    /// Returns whether every known unit was delivered or given up.
    pub fn is_complete(&self) -> bool {
        self.window.as_ref().is_none_or(ReceiveWindow::is_complete)
    }

    fn on_spm(&mut self, now: Instant, number: u64, (trail, next): (u64, u64), path: SocketAddr) {
        if self.spm_number.is_some_and(|last| number < last) {
            return self.drops.count(DropReason::Duplicate);
        }
        if !self.note_trail(trail, next) {
            return;
        }
        self.spm_number = Some(number);
        self.path = Some(path);
        if let Some(last) = next.checked_sub(1)
            && let Some(window) = &mut self.window
            && last >= window.next()
            && window.note_sent(last).is_err()
        {
            self.drops.count(DropReason::FarAhead);
        }
        self.follow_window(now);
    }

    fn on_data(&mut self, now: Instant, sequence: u64, trail: u64, payload: &[u8], repair: bool) {
        if !self.note_trail(trail, sequence) {
            return;
        }
        let Some(window) = &mut self.window else { return };
        let payload = Bytes::copy_from_slice(payload);
        match window.insert(sequence, payload.clone()) {
            Ok(()) => {
                self.stats.units += 1;
                self.stats.repaired += u64::from(repair);
                if let Some(history) = &mut self.history {
                    history.insert((), sequence, payload);
                }
                self.on_recovered(sequence);
            }
            Err(refused) => self.drops.count(match refused {
                Refused::Duplicate(_) => DropReason::Duplicate,
                Refused::BeforeHorizon { .. } => DropReason::Expired,
                Refused::NoRoom(_) => DropReason::NoRoom,
                Refused::FarAhead { .. } => DropReason::FarAhead,
            }),
        }
        self.follow_window(now);
    }

    /// Gives up the units that the source no longer has. The first message opens the window, at
    /// `first` unless the configuration names a unit. Returns whether the numbers are plausible.
    fn note_trail(&mut self, trail: u64, first: u64) -> bool {
        let limits = self.config.window;
        let first = self.config.first.unwrap_or(first);
        let window = self.window.get_or_insert_with(|| ReceiveWindow::new(first, limits));
        if trail >= window.next().saturating_add(limits.far_ahead) {
            self.drops.count(DropReason::FarAhead);
            return false;
        }
        let lost = window.give_up_before(trail);
        self.tell_lost(lost);
        true
    }

    fn tell_lost(&mut self, units: u64) {
        if units > 0 {
            self.events.push_back(ReceiverEvent::Lost { units });
        }
    }

    /// Delivers the units in order, begins the recovery of units newly found missing, and ends that
    /// of units received or given up.
    fn follow_window(&mut self, now: Instant) {
        let Some(window) = &mut self.window else { return };
        loop {
            while let Some((sequence, payload)) = window.poll_delivery() {
                self.events.push_back(ReceiverEvent::Unit { sequence, payload });
            }
            // Abandoned units hold up delivery no longer.
            let Some((first, missing)) = self.missing.iter().next().map(|(n, m)| (*n, *m)) else {
                break;
            };
            if missing.state != State::Abandoned && window.is_missing(first) {
                break;
            }
            let lost = window.give_up_before(first + 1);
            if lost > 0 {
                self.events.push_back(ReceiverEvent::Lost { units: lost });
            }
            self.due.cancel(missing.until, first);
            self.naks.remove(&first);
            self.missing.remove(&first);
        }
        let (random, most) = (&mut self.random, self.config.nak_backoff);
        while let Some(gap) = window.poll_gap() {
            for sequence in gap {
                let until = now + backoff(random, most);
                let state = State::BackOff;
                let new = Missing { state, until, unconfirmed: 0, unanswered: 0 };
                self.missing.insert(sequence, new);
                self.due.set(until, sequence);
            }
        }
        self.handle_due(now);
    }

    /// Ends the recovery of a unit that was received.
    fn on_recovered(&mut self, sequence: u64) {
        if let Some(missing) = self.missing.remove(&sequence) {
            self.due.cancel(missing.until, sequence);
            self.naks.remove(&sequence);
        }
    }

    fn on_ncf(&mut self, now: Instant, sequence: u64) {
        let Some(missing) = self.missing.get(&sequence).copied() else {
            return self.drops.count(DropReason::NotAsked);
        };
        let suppressed = missing.state == State::BackOff || self.naks.remove(&sequence);
        self.stats.suppressed += u64::from(suppressed);
        if missing.state != State::Abandoned {
            self.enter(sequence, State::WaitData, now + self.config.nak_rdata);
        }
    }

    fn enter(&mut self, sequence: u64, state: State, until: Instant) {
        let Some(missing) = self.missing.get_mut(&sequence) else { return };
        self.due.cancel(missing.until, sequence);
        (missing.state, missing.until) = (state, until);
        if state != State::Abandoned {
            self.due.set(until, sequence);
        }
    }

    /// Ends the states whose time has come.
    fn handle_due(&mut self, now: Instant) {
        let mut abandoned = false;
        while let Some(sequence) = self.due.pop_due(now) {
            let ReceiverConfig { nak_backoff, nak_repeat, ncf_retries, data_retries, .. } =
                self.config;
            let Some(missing) = self.missing.get_mut(&sequence) else { continue };
            let (state, until) = match missing.state {
                State::BackOff => {
                    self.naks.insert(sequence);
                    (State::WaitNcf, now + nak_repeat)
                }
                State::WaitNcf if missing.unconfirmed + 1 < ncf_retries => {
                    missing.unconfirmed += 1;
                    (State::BackOff, now + backoff(&mut self.random, nak_backoff))
                }
                State::WaitData if missing.unanswered + 1 < data_retries => {
                    missing.unanswered += 1;
                    (State::BackOff, now + backoff(&mut self.random, nak_backoff))
                }
                State::WaitNcf | State::WaitData | State::Abandoned => {
                    abandoned = true;
                    (State::Abandoned, now)
                }
            };
            self.enter(sequence, state, until);
        }
        if abandoned {
            self.follow_window(now);
        }
    }

    /// Handles a router's NAK to a designated local repairer.
    fn on_nak(&mut self, from: SocketAddr, channel: &Channel, sequence: u64) {
        let reason = match &self.history {
            None => DropReason::Unexpected,
            Some(_) if *channel != self.config.channel => DropReason::OtherSession,
            Some(history) if history.get((), sequence).is_none() => DropReason::Expired,
            Some(_) if self.answers.len() >= ANSWERS => DropReason::OverLimit,
            Some(_) => {
                self.answers.insert(Answer::Confirm(from, sequence));
                self.answers.insert(Answer::Repair(from, sequence));
                return;
            }
        };
        self.drops.count(reason);
    }

    /// Returns the destination of NAKs.
    fn upstream(&self) -> Option<SocketAddr> {
        let Channel { source, port, .. } = self.config.channel;
        self.path.or_else(|| source.map(|source| (source, port).into()))
    }

    fn emit_repair(&mut self, to: SocketAddr, sequence: u64, buf: &mut TransmitBuf) -> Transmit {
        let held = self.history.as_ref().and_then(|history| history.get((), sequence));
        let payload = held.cloned().unwrap_or_default();
        let channel = Some(self.config.channel);
        let mut head = Vec::with_capacity(64);
        Message::Rdata { channel, sequence, trail: 0, payload: &payload }.emit_head(&mut head);
        buf.push(&head, payload);
        self.stats.repairs += 1;
        Transmit::data(Address::Host(to))
    }
}

/// Draws a uniform time from 0 to `most`.
fn backoff(random: &mut impl Rng, most: Duration) -> Duration {
    let most = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
    Duration::from_nanos(((u128::from(random.next_u64()) * (u128::from(most) + 1)) >> 64) as u64)
}

impl Engine for Receiver {
    type Command = std::convert::Infallible;
    type CommandError = std::convert::Infallible;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let Ok(Parsed::Message { message, .. }) = Message::parse(datagram.payload) else {
            return self.drops.count(DropReason::Malformed);
        };
        match (datagram.by, message) {
            (Address::Host(from), Message::Nak { channel, sequence }) => {
                self.on_nak(from, &channel, sequence);
            }
            (Address::Channel(by), _) if by != self.config.channel => {
                self.drops.count(DropReason::OtherSession);
            }
            (Address::Channel(_), Message::Spm { number, trail, next, path }) => {
                self.on_spm(now, number, (trail, next), path);
            }
            (Address::Channel(_), Message::Odata { sequence, trail, payload }) => {
                self.on_data(now, sequence, trail, payload, false);
            }
            (Address::Channel(_), Message::Rdata { sequence, trail, payload, .. }) => {
                self.on_data(now, sequence, trail, payload, true);
            }
            (Address::Channel(_), Message::Ncf { sequence, .. }) => self.on_ncf(now, sequence),
            _ => self.drops.count(DropReason::Unexpected),
        }
    }

    fn handle_command(
        &mut self,
        _now: Instant,
        command: Self::Command,
    ) -> Result<(), Self::CommandError> {
        match command {}
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.handle_due(now);
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        self.membership.take()
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let mut head = Vec::new();
        if let Some(sequence) = self.naks.pop_first() {
            let to = self.upstream()?;
            self.stats.naks += 1;
            Message::Nak { channel: self.config.channel, sequence }.emit(&mut head);
            buf.push(&head, Bytes::new());
            return Some(Transmit::control(Address::Host(to)));
        }
        match *self.answers.first()? {
            Answer::Confirm(to, sequence) => {
                self.answers.pop_first();
                Message::Ncf { channel: Some(self.config.channel), sequence }.emit(&mut head);
                buf.push(&head, Bytes::new());
                Some(Transmit::control(Address::Host(to)))
            }
            Answer::Repair(..) if buf.allows(RateClass::Data) == 0 => None,
            Answer::Repair(to, sequence) => {
                self.answers.pop_first();
                Some(self.emit_repair(to, sequence, buf))
            }
        }
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && !self.answers.is_empty()
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.due.next()
    }
}
