//! The source.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use bytes::Bytes;
use umbel_wire::basep::{MAX_PAYLOAD, Message};
use umbel_wire::{Channel, Parsed};

use super::api::{SourceCommand, SourceCommandError, SourceEvent, SourceStats};
use super::{DropReason, Drops, SourceConfig};
use crate::timers::Deadlines;
use crate::{Address, Datagram, Engine, Instant, Membership, RateClass, Transmit, TransmitBuf};

/// Receivers that have a packet: a bit for each.
#[derive(Clone, Debug)]
struct Acknowledged {
    words: Vec<u64>,
    missing: usize,
}

impl Acknowledged {
    fn by_nobody(receivers: usize) -> Acknowledged {
        Acknowledged { words: vec![0; receivers.div_ceil(64)], missing: receivers }
    }

    fn has(&self, receiver: usize) -> bool {
        self.words[receiver / 64] & 1 << (receiver % 64) != 0
    }

    fn set(&mut self, receiver: usize) {
        if !self.has(receiver) {
            self.words[receiver / 64] |= 1 << (receiver % 64);
            self.missing -= 1;
        }
    }
}

/// A packet that not all receivers have acknowledged.
#[derive(Clone, Debug)]
struct Packet {
    payload: Bytes,
    last: bool,
    acknowledged: Acknowledged,
    /// Time of its time-out; `None` before it is sent, and while it waits to be sent again.
    timeout: Option<Instant>,
    retransmissions: u32,
}

/// State of a receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Receiving,
    GotIt,
    GivenUp,
}

/// Multicasts packets until all receivers have acknowledged each.
#[derive(Clone, Debug)]
pub struct Source {
    config: SourceConfig,
    receivers: BTreeMap<SocketAddr, usize>,
    states: Vec<State>,
    /// Packets from the first that not all have acknowledged to the last that the application gave.
    packets: VecDeque<Packet>,
    /// Number of the first of `packets`.
    trail: u64,
    /// The next packet to leave for the first time.
    next: u64,
    /// The last packet, once it is known.
    last: Option<u64>,
    timeouts: Deadlines<u64>,
    /// Packets waiting to be sent again.
    due: BTreeSet<u64>,
    events: VecDeque<SourceEvent>,
    stats: SourceStats,
    drops: Drops,
}

impl Source {
    /// Creates a source that has sent nothing. A receiver that is named twice counts once.
    pub fn new(config: SourceConfig) -> Source {
        let distinct: BTreeSet<SocketAddr> = config.receivers.iter().copied().collect();
        Source {
            states: vec![State::Receiving; distinct.len()],
            receivers: distinct.into_iter().enumerate().map(|(n, at)| (at, n)).collect(),
            config,
            packets: VecDeque::new(),
            trail: 0,
            next: 0,
            last: None,
            timeouts: Deadlines::default(),
            due: BTreeSet::new(),
            events: VecDeque::new(),
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

    /// Returns whether a new packet may leave.
    fn may_send(&self) -> bool {
        let end = self.trail + self.packets.len() as u64;
        let window = self.config.window.map_or(u64::MAX, |packets| packets.max(1));
        self.next < end && self.next - self.trail < window
    }

    fn packet(&mut self, sequence: u64) -> Option<&mut Packet> {
        let position = usize::try_from(sequence.checked_sub(self.trail)?).ok()?;
        self.packets.get_mut(position)
    }

    fn on_ack(&mut self, channel: Channel, from: SocketAddr, sequence: u64, got_it: bool) {
        if channel != self.config.channel {
            return self.drops.count(DropReason::OtherSession);
        }
        let Some(&receiver) = self.receivers.get(&from) else {
            return self.drops.count(DropReason::Stranger);
        };
        if sequence >= self.next || got_it && self.last.is_none_or(|last| self.next <= last) {
            return self.drops.count(DropReason::FarAhead);
        }
        self.stats.load.acks += 1;
        if got_it {
            self.on_got_it(from, receiver);
        }
        self.acknowledge(sequence, receiver);
        self.advance();
    }

    /// Notes that a receiver has everything that was sent. That is the word of its application; the
    /// packets of which ACKs were lost are still sent again, unless it counts for them.
    fn on_got_it(&mut self, from: SocketAddr, receiver: usize) {
        if std::mem::replace(&mut self.states[receiver], State::GotIt) != State::GotIt {
            self.events.push_back(SourceEvent::GotIt { receiver: from });
            if self.config.cumulative_got_it {
                (self.trail..self.next).for_each(|sequence| self.acknowledge(sequence, receiver));
            }
        }
    }

    fn acknowledge(&mut self, sequence: u64, receiver: usize) {
        let Some(packet) = self.packet(sequence) else { return };
        packet.acknowledged.set(receiver);
        if packet.acknowledged.missing == 0 {
            if let Some(at) = packet.timeout.take() {
                self.timeouts.cancel(at, sequence);
            }
            self.due.remove(&sequence);
        }
    }

    /// Forgets the packets that all receivers have, from the first on.
    fn advance(&mut self) {
        while self.trail < self.next
            && self.packets.pop_front_if(|packet| packet.acknowledged.missing == 0).is_some()
        {
            self.trail += 1;
            if self.last.is_some_and(|last| last < self.trail) {
                self.events.push_back(SourceEvent::Finished);
            }
        }
    }

    fn on_timeout(&mut self, sequence: u64) {
        let limit = self.config.retransmissions;
        let Some(packet) = self.packet(sequence) else { return };
        packet.timeout = None;
        let is_over = packet.retransmissions >= limit;
        self.stats.load.timers += 1;
        if is_over {
            self.give_up_missing(sequence);
        } else {
            self.due.insert(sequence);
        }
    }

    /// Gives up the receivers that did not acknowledge this packet.
    fn give_up_missing(&mut self, sequence: u64) {
        let missing: Vec<(SocketAddr, usize)> = match self.packet(sequence) {
            Some(packet) => {
                let acknowledged = packet.acknowledged.clone();
                let all = self.receivers.iter().map(|(&address, &number)| (address, number));
                all.filter(|&(_, number)| !acknowledged.has(number)).collect()
            }
            None => return,
        };
        for (receiver, number) in missing {
            self.states[number] = State::GivenUp;
            self.events.push_back(SourceEvent::GivenUp { receiver });
            (self.trail..self.next).for_each(|sequence| self.acknowledge(sequence, number));
        }
        self.advance();
    }

    /// Prepares a packet that leaves for the first time. Only receivers that are still there have
    /// to acknowledge it.
    fn begin(&mut self, sequence: u64) {
        let gone = self.states.iter().enumerate().filter(|(_, state)| **state == State::GivenUp);
        let gone: Vec<usize> = gone.map(|(number, _)| number).collect();
        for number in gone {
            self.acknowledge(sequence, number);
        }
    }

    fn emit(&mut self, now: Instant, sequence: u64, again: bool, buf: &mut TransmitBuf) {
        let at = now + self.config.timeout;
        let Some(packet) = self.packet(sequence) else { return };
        let mut head = Vec::with_capacity(32);
        let (last, payload) = (packet.last, packet.payload.clone());
        Message::Data { sequence, last, again, payload: &payload }.emit_head(&mut head);
        buf.push(&head, payload);
        packet.retransmissions += u32::from(again);
        if packet.acknowledged.missing > 0 {
            packet.timeout = Some(at);
            self.timeouts.set(at, sequence);
        }
        if again {
            self.stats.load.retransmissions += 1;
        } else {
            self.stats.sent += 1;
        }
    }
}

impl Engine for Source {
    type Command = SourceCommand;
    type CommandError = SourceCommandError;
    type Event = SourceEvent;

    fn handle_datagram(&mut self, _now: Instant, datagram: Datagram<'_>) {
        let Address::Host(from) = datagram.by else {
            return self.drops.count(DropReason::Unexpected);
        };
        match Message::parse(datagram.payload) {
            Ok(Parsed::Message { message: Message::Ack { channel, sequence }, .. }) => {
                self.on_ack(channel, from, sequence, false);
            }
            Ok(Parsed::Message { message: Message::GotIt { channel, sequence }, .. }) => {
                self.on_ack(channel, from, sequence, true);
            }
            Ok(_) => self.drops.count(DropReason::Unexpected),
            Err(_) => self.drops.count(DropReason::Malformed),
        }
    }

    fn handle_command(
        &mut self,
        _now: Instant,
        SourceCommand::Send { payload, last }: SourceCommand,
    ) -> Result<(), SourceCommandError> {
        if payload.len() > MAX_PAYLOAD {
            return Err(SourceCommandError::TooLong { len: payload.len() });
        }
        if let Some(last) = self.last {
            return Err(SourceCommandError::Ended { last });
        }
        if self.packets.len() >= self.config.queue_packets {
            return Err(SourceCommandError::Full { waiting: self.packets.len() });
        }
        if last {
            self.last = Some(self.trail + self.packets.len() as u64);
        }
        let acknowledged = Acknowledged::by_nobody(self.receivers.len());
        let packet = Packet { payload, last, acknowledged, timeout: None, retransmissions: 0 };
        self.packets.push_back(packet);
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(sequence) = self.timeouts.pop_due(now) {
            self.on_timeout(sequence);
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        None
    }

    /// Returns retransmissions first, because they hold up the window.
    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if buf.allows(RateClass::Data) == 0 {
            return None;
        }
        if let Some(sequence) = self.due.pop_first() {
            self.emit(now, sequence, true, buf);
        } else if self.may_send() {
            let sequence = self.next;
            self.next += 1;
            self.begin(sequence);
            self.emit(now, sequence, false, buf);
            // The packet is dropped at once if no receiver is left to acknowledge it.
            self.advance();
        } else {
            return None;
        }
        Some(Transmit::data(Address::Channel(self.config.channel)))
    }

    fn wants(&self, class: RateClass) -> bool {
        class == RateClass::Data && (!self.due.is_empty() || self.may_send())
    }

    fn poll_event(&mut self) -> Option<SourceEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timeouts.next()
    }
}
