//! Many receivers on one host.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_engine::smo::receiver::{
    BreakReason, Receiver, ReceiverCommand, ReceiverConfig, ReceiverEvent,
};
use umbel_engine::{Address, Allowance, Datagram, Engine, Instant, Membership, TransmitBuf};
use umbel_wire::tcp::{Segment, Seq};

use super::{OVERHEAD, Session, content, kind, position_of};
use crate::app::{App, Context};
use crate::network::NodeId;
use crate::packet::{Destination, FlowId, Packet};
use crate::random::{Purpose, below, stream, uniform};

/// Local port of the first receiver.
const FIRST_PORT: u16 = 10_000;
/// Time of a receiver that waits for nothing.
const NEVER: Instant = Instant::from_nanos(u64::MAX);

/// Faults of each packet between the host and each of its receivers, independently.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Noise {
    /// Share of packets that are lost.
    pub loss: f64,
    /// Share of packets that arrive twice.
    pub duplicates: f64,
    /// Share of packets that are late, and by how much at most. Later packets overtake them.
    pub late: (f64, Duration),
}

/// Behaviour of a receiver besides receiving.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Behaviour {
    /// Time after the host's start at which it connects.
    pub connects: Duration,
    /// Times between which the application does not read.
    pub stalls: Option<(Instant, Instant)>,
    /// Time from which it neither receives nor sends anything.
    pub vanishes: Option<Instant>,
    /// Time from which its helper is gone.
    pub loses_helper: Option<Instant>,
    /// Time from which there is a new one.
    pub regains_helper: Option<Instant>,
    /// Bytes that it sends to the source.
    pub sends: usize,
    /// Losses instead of those of the crowd.
    pub loss: Option<f64>,
}

/// One of the receivers, and what it received.
#[derive(Clone, Debug)]
pub struct Member {
    receiver: Receiver,
    behaviour: Behaviour,
    /// Time for which the host's timer was set.
    armed: Instant,
    unread: usize,
    next: u64,
    /// Position at which it began to receive.
    pub first: u64,
    /// Bytes in order.
    pub received: u64,
    /// Bytes that were not those of the stream.
    pub wrong: u64,
    /// Time at which the connection was opened.
    pub connected: Option<Instant>,
    /// Time at which the stream ended.
    pub ended: Option<Instant>,
    /// Time and reason of the end of the connection, if it broke.
    pub broken: Option<(Instant, BreakReason)>,
    /// Packets to all that were lost to it when they were sent first.
    pub lost: u64,
}

impl Member {
    /// Returns the engine.
    pub fn receiver(&self) -> &Receiver {
        &self.receiver
    }

    /// Returns whether it received a stream of this length from where it began, byte by byte.
    pub fn is_whole(&self, len: u64) -> bool {
        let all = self.first + self.received + self.receiver.stats().skipped_bytes;
        self.ended.is_some() && self.wrong == 0 && all == len
    }
}

/// A program of a host that runs receivers. Each has its own port.
#[derive(Debug)]
pub struct Crowd {
    source: NodeId,
    noise: Noise,
    members: Vec<Member>,
    /// Time at which something is due, by member. Entries that are no longer right are skipped.
    due: BinaryHeap<Reverse<(Instant, u32)>>,
    late: BTreeMap<(Instant, u64), (u32, Packet)>,
    serial: u64,
    /// Number of receivers that are members of the channel.
    joined: usize,
    /// Position up to which packets to all were seen.
    seen: u64,
    random: Xoshiro256PlusPlus,
    pass_on: Option<NodeId>,
    buf: TransmitBuf,
}

impl Crowd {
    /// Creates `count` receivers of a session, at most 55,000. They connect at once.
    pub fn new(session: &Session, config: ReceiverConfig, count: u16, seed: u64) -> Crowd {
        let mut random = stream(seed, Purpose::Workload, 0xC0DE);
        let config = Arc::new(config);
        let member = |n: u16| Member {
            receiver: Receiver::new(config.clone(), FIRST_PORT.saturating_add(n), &mut random),
            behaviour: Behaviour::default(),
            armed: NEVER,
            unread: 0,
            next: 0,
            first: 0,
            received: 0,
            wrong: 0,
            connected: None,
            ended: None,
            broken: None,
            lost: 0,
        };
        Crowd {
            source: session.source,
            noise: Noise::default(),
            members: (0..count).map(member).collect(),
            due: BinaryHeap::new(),
            late: BTreeMap::new(),
            serial: 0,
            joined: 0,
            seen: 0,
            random: stream(seed, Purpose::Workload, 0xC0DF),
            pass_on: None,
            buf: TransmitBuf::default(),
        }
    }

    /// Sets what happens to packets.
    #[must_use]
    pub fn noise(self, noise: Noise) -> Crowd {
        Crowd { noise, ..self }
    }

    /// Sets what each receiver does, by its number.
    #[must_use]
    pub fn behave(mut self, behaviour: impl Fn(usize) -> Behaviour) -> Crowd {
        for (n, member) in self.members.iter_mut().enumerate() {
            member.behaviour = behaviour(n);
        }
        self
    }

    /// Passes the bytes of the receivers on to a [`Relay`](super::Relay) on this node.
    #[must_use]
    pub fn pass_on(self, to: NodeId) -> Crowd {
        Crowd { pass_on: Some(to), ..self }
    }

    /// Returns the receivers.
    pub fn members(&self) -> impl ExactSizeIterator<Item = &Member> {
        self.members.iter()
    }

    /// Returns whether all streams have ended, or broke.
    pub fn is_done(&self) -> bool {
        self.members.iter().all(|member| member.ended.is_some() || member.broken.is_some())
    }

    /// Delivers a packet to a receiver, or loses, doubles or delays it.
    fn expose(
        &mut self,
        context: &mut Context<'_>,
        number: usize,
        packet: &Packet,
        is_first: bool,
    ) {
        let Noise { loss, duplicates, late } = self.noise;
        let now = context.now();
        let member = &mut self.members[number];
        if member.behaviour.vanishes.is_some_and(|at| at <= now) {
            return;
        }
        let loss = member.behaviour.loss.unwrap_or(loss);
        if loss > 0.0 && uniform(&mut self.random) < loss {
            member.lost += u64::from(is_first);
            return;
        }
        if late.0 > 0.0 && uniform(&mut self.random) < late.0 {
            let by = below(&mut self.random, late.1.as_nanos() as u64);
            self.serial += 1;
            let at = (now + Duration::from_nanos(by), self.serial);
            self.late.insert(at, (number as u32, packet.clone()));
            return;
        }
        let is_double = duplicates > 0.0 && uniform(&mut self.random) < duplicates;
        for _ in 0..=u8::from(is_double) {
            self.give(context, number, packet);
        }
    }

    fn give(&mut self, context: &mut Context<'_>, number: usize, packet: &Packet) {
        let by = match packet.destination {
            Destination::Group(_) => Address::Channel(Session::new(packet.source).channel()),
            Destination::Unicast(_) => Address::Host(Session::new(packet.source).address()),
        };
        let now = context.now();
        let member = &mut self.members[number];
        if member.behaviour.loses_helper.take_if(|at| *at <= now).is_some() {
            let _ = member.receiver.handle_command(now, ReceiverCommand::Help(false));
        }
        if member.behaviour.regains_helper.take_if(|at| *at <= now).is_some() {
            let _ = member.receiver.handle_command(now, ReceiverCommand::Help(true));
        }
        let datagram = Datagram { by, hop_limit: Some(packet.hop_limit), payload: &packet.payload };
        member.receiver.handle_datagram(now, datagram);
        self.drain(context, number);
    }

    /// Passes on what an engine wants, and notes when it wants to be woken.
    fn drain(&mut self, context: &mut Context<'_>, number: usize) {
        let now = context.now();
        while let Some(change) = self.members[number].receiver.poll_membership() {
            let (Membership::Join(channel) | Membership::Leave(channel)) = change;
            let Some((source, group)) = crate::channel_parts(&channel) else { continue };
            let group = context.group(source, group);
            if matches!(change, Membership::Join(_)) {
                self.joined += 1;
                if self.joined == 1 {
                    context.join(group);
                }
            } else {
                self.joined -= 1;
                if self.joined == 0 {
                    context.leave(group);
                }
            }
        }
        loop {
            while let Some(event) = self.members[number].receiver.poll_event() {
                self.on_event(context, number, event);
            }
            self.buf.reset(Allowance::default());
            let member = &mut self.members[number];
            if member.receiver.poll_transmit(now, &mut self.buf).is_none() {
                break;
            }
            if member.behaviour.vanishes.is_some_and(|at| at <= now) {
                continue;
            }
            for payload in self.buf.messages() {
                context.send(Packet {
                    kind: kind(&payload),
                    flow: FlowId(0),
                    wire_len: payload.len() as u32 + OVERHEAD,
                    ..Packet::new(
                        context.node(),
                        Destination::Unicast(self.source),
                        crate::Kind::Control,
                        payload,
                    )
                });
            }
        }
        let member = &mut self.members[number];
        if let Some(at) = member.receiver.poll_timeout()
            && at < member.armed
        {
            member.armed = at;
            self.due.push(Reverse((at, number as u32)));
        }
    }

    fn on_event(&mut self, context: &mut Context<'_>, number: usize, event: ReceiverEvent) {
        let now = context.now();
        let member = &mut self.members[number];
        match event {
            ReceiverEvent::Connected => {
                member.connected = Some(now);
                member.first = position_of(member.receiver.initial());
                member.next = member.first;
                let sends = member.behaviour.sends;
                if sends > 0 {
                    let send = ReceiverCommand::Send(content::piece(0, sends));
                    member.receiver.handle_command(now, send).expect("the connection is open");
                }
            }
            ReceiverEvent::Received(bytes) => {
                if !content::is_right(member.next, &bytes) {
                    member.wrong += bytes.len() as u64;
                }
                member.next += bytes.len() as u64;
                member.received += bytes.len() as u64;
                let stalls = member.behaviour.stalls;
                if let Some(to) = self.pass_on {
                    context.send_message(to, bytes);
                } else if stalls.is_some_and(|(from, until)| (from..until).contains(&now)) {
                    if member.unread == 0 {
                        let until = stalls.map_or(now, |(_, until)| until);
                        self.due.push(Reverse((until, number as u32)));
                    }
                    member.unread += bytes.len();
                } else {
                    member.consume(now, bytes.len());
                }
            }
            ReceiverEvent::Skipped(bytes) => member.next += bytes,
            ReceiverEvent::ReceivedEnd => {
                member.ended = Some(now);
                if let Some(to) = self.pass_on {
                    context.send_message(to, Bytes::new());
                }
                // It may be over already.
                let _ = member.receiver.handle_command(now, ReceiverCommand::Finish);
            }
            ReceiverEvent::Closed => {}
            ReceiverEvent::Broken(reason) => member.broken = Some((now, reason)),
        }
    }

    fn set_timer(&self, context: &mut Context<'_>) {
        let first = self.due.peek().map(|Reverse((at, _))| *at);
        let late = self.late.first_key_value().map(|((at, _), _)| *at);
        context.wake_at(first.into_iter().chain(late).min());
    }
}

impl Member {
    fn consume(&mut self, now: Instant, bytes: usize) {
        let consumed = ReceiverCommand::Consumed(bytes);
        self.receiver.handle_command(now, consumed).expect("it is always possible");
    }

    /// Does what is due.
    fn wake(&mut self, now: Instant) {
        if self.armed <= now {
            self.armed = NEVER;
        }
        if self.connected.is_none() && !self.receiver.is_begun() {
            self.receiver.handle_command(now, ReceiverCommand::Connect).expect("it is the first");
        }
        if self.behaviour.stalls.is_some_and(|(_, until)| until <= now) && self.unread > 0 {
            let unread = std::mem::take(&mut self.unread);
            self.consume(now, unread);
        }
        if self.receiver.poll_timeout().is_some_and(|at| at <= now) {
            self.receiver.handle_timeout(now);
        }
    }
}

impl App for Crowd {
    fn start(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        for (number, member) in (0..).zip(&self.members) {
            self.due.push(Reverse((now + member.behaviour.connects, number)));
        }
        self.wake(context);
    }

    fn packet(&mut self, context: &mut Context<'_>, packet: &Packet) {
        let Ok(segment) = Segment::parse(&packet.payload) else { return };
        match packet.destination {
            Destination::Group(_) => {
                let end = position_of(Seq(segment.end().0));
                let is_first = end > self.seen;
                self.seen = self.seen.max(end);
                for number in 0..self.members.len() {
                    self.expose(context, number, packet, is_first);
                }
            }
            Destination::Unicast(_) => {
                let number = segment.head.destination_port.checked_sub(FIRST_PORT);
                let number = number.map(usize::from).filter(|n| *n < self.members.len());
                let Some(number) = number else { return };
                self.expose(context, number, packet, false);
            }
        }
        self.set_timer(context);
    }

    fn message(&mut self, context: &mut Context<'_>, _from: NodeId, message: Bytes) {
        let Some(credit) = message.first_chunk() else { return };
        let bytes = u64::from_be_bytes(*credit) as usize;
        if let Some(member) = self.members.first_mut() {
            member.consume(context.now(), bytes);
            self.drain(context, 0);
        }
        self.set_timer(context);
    }

    fn wake(&mut self, context: &mut Context<'_>) {
        let now = context.now();
        while let Some(entry) = self.late.first_entry()
            && entry.key().0 <= now
        {
            let (number, packet) = entry.remove();
            self.give(context, number as usize, &packet);
        }
        while let Some(&Reverse((at, number))) = self.due.peek()
            && at <= now
        {
            self.due.pop();
            self.members[number as usize].wake(now);
            self.drain(context, number as usize);
        }
        self.set_timer(context);
    }
}
