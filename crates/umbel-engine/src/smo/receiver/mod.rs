//! A model of an ordinary TCP receiver, with the helper of its host.
//!
//! Real receivers are the sockets of their kernels. This one is for simulations of many of them,
//! and for tests: one instance takes some hundred bytes. It opens a connection to a source,
//! receives by unicast and by multicast, and acknowledges:
//!
//! - every n-th segment that comes in order, or after a delay [RFC 9293 §3.8.6.3];
//! - at once what is out of order, what was received before, and what fills a hole [RFC 5681 §4.2],
//!   with SACK blocks, the latest first [RFC 2018 §4].
//!
//! ```text
//!                Connect / SYN                SYN,ACK / ACK
//!       Idle ─────────────────▶ SynSent ─────────────────────▶ Open
//!                                 │ RST, give up                │
//!      Closed ◀───────────────────┴─────────────────────────────┤ RST, give up, Abort
//!        ▲ ▲                                                    │
//!        │ └─────────────── both FINs acknowledged, ours later ─┤
//!        │                                                      │ ours earlier
//!        └───────────── 60 s ─────────────── TimeWait ◀─────────┘
//! ```
//!
//! `Open` stands for the states of [RFC 9293 §3.3.2] from ESTABLISHED to LAST-ACK. The state
//! follows from who has finished, and whether that was acknowledged.
//!
//! # The helper
//!
//! It subscribes to the channel before the connection is opened [SMO §III-B]. It learns from the
//! unicast segments which port of the channel the connection takes. It delivers a multicast segment
//! only if the connection receives data, takes this port, lacks a part of the segment, and has it
//! within its window. The ACK field of a multicast segment is ignored.
//!
//! # Real-time mode
//!
//! [TCP-RTM, SMO §V-C]. A hole that has been there for
//! [`ReceiverConfig::real_time`] is skipped: what is behind it goes to the application, and is
//! acknowledged. The time of a hole begins when data behind it arrives.
//!
//! # Scope and limitations
//!
//! No simultaneous open, no timestamps, no ECN, and it sends no keep-alive. The window does not
//! grow automatically, and there are no quick ACKs at the beginning of a connection. The back
//! channel has an RTO from the handshake alone. It goes back to the first lost byte after a
//! time-out, and has a fixed window instead of congestion control.
//!
//! # Validation
//!
//! `tests.rs` has scripts for each rule, and streams whose segments are lost, reordered, repeated
//! and overlap. `umbel-sim/src/smo` runs it against [`Source`](super::Source).

mod api;
mod back;
mod config;
mod drops;
mod segments;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use rand_core::Rng;
use umbel_wire::tcp::{Flags, Head, Options, SackBlocks, Segment, Seq};

pub use self::api::{
    BreakReason, ReceiverCommand, ReceiverCommandError, ReceiverEvent, ReceiverStats,
};
use self::back::Outgoing;
pub use self::config::ReceiverConfig;
pub use self::drops::{DropReason, Drops};
use super::reassembly::Reassembly;
use crate::timers::timers;
use crate::{Address, Datagram, Engine, Instant, Membership, Transmit, TransmitBuf};

timers! {
    /// Timers of a receiver.
    enum Timer, Timers {
        /// When to acknowledge what came in order.
        Ack,
        /// When to send again what the source has not acknowledged, or to probe its window.
        Retransmit,
        /// When to skip the first hole.
        Skip,
        /// When to forget the connection.
        Forget,
    }
}

/// State of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It was not opened yet.
    Idle,
    /// It is being opened.
    SynSent,
    /// It is open in at least one direction, or what was sent is not acknowledged.
    Open,
    /// Both have finished, this side first.
    TimeWait,
    /// It is over.
    Closed,
}

/// A connection to a source, and its helper.
#[derive(Clone, Debug)]
pub struct Receiver {
    config: Arc<ReceiverConfig>,
    port: u16,
    state: State,
    timers: Timers,
    out: Outgoing,
    /// Segment length that the source takes.
    mss: u16,
    /// Whether both sides have agreed on SACK.
    has_sack: bool,
    /// Segment to be reported as a duplicate.
    duplicate: Option<(Seq, Seq)>,
    /// Shift of the own window, and of the source's.
    scale: (u8, u8),
    /// Sequence number of position 0.
    base: Seq,
    /// Received bytes, by position.
    incoming: Reassembly,
    /// Position of the source's FIN, if it is known.
    fin: Option<u64>,
    /// Whether everything up to the source's FIN was received.
    has_ended: bool,
    /// Whether the source finished first.
    is_passive: bool,
    /// Bytes that the application has not processed.
    unread: u64,
    /// Right edge of the window that was advertised.
    edge: u64,
    /// Positions of the latest arrivals out of order, the latest first.
    recent: [u64; SackBlocks::MAX],
    /// In real-time mode, arrivals out of order: their positions and times, in the order of time.
    ahead: VecDeque<(u64, Instant)>,
    /// Segments in order since the last ACK.
    unacknowledged: u8,
    ack_due: bool,
    syn_due: bool,
    /// Sequence number of a RST to send.
    rst_due: Option<Seq>,
    /// Whether there is a helper.
    helps: bool,
    /// Port of the channel that the helper delivers.
    membership: Option<u16>,
    is_subscribed: bool,
    wants_channel: bool,
    events: VecDeque<ReceiverEvent>,
    stats: ReceiverStats,
    drops: Drops,
}

impl Receiver {
    /// Creates a receiver with this local port. Its initial sequence number is drawn.
    pub fn new(config: Arc<ReceiverConfig>, port: u16, random: &mut impl Rng) -> Receiver {
        let out = Outgoing::new(Seq(random.next_u32()), &config);
        Receiver {
            config,
            port,
            state: State::Idle,
            timers: Timers::default(),
            out,
            mss: 536,
            has_sack: false,
            duplicate: None,
            scale: (0, 0),
            base: Seq(0),
            incoming: Reassembly::default(),
            fin: None,
            has_ended: false,
            is_passive: false,
            unread: 0,
            edge: 0,
            recent: [0; SackBlocks::MAX],
            ahead: VecDeque::new(),
            unacknowledged: 0,
            ack_due: false,
            syn_due: false,
            rst_due: None,
            helps: true,
            membership: None,
            is_subscribed: false,
            wants_channel: false,
            events: VecDeque::new(),
            stats: ReceiverStats::default(),
            drops: Drops::default(),
        }
    }

    /// Returns the local port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the counters.
    pub fn stats(&self) -> ReceiverStats {
        self.stats
    }

    /// Returns the counters of discarded input.
    pub fn drops(&self) -> Drops {
        self.drops
    }

    /// Returns the sequence number of position 0, once the connection is open.
    pub fn initial(&self) -> Seq {
        self.base
    }

    /// Returns whether it was asked to connect.
    pub fn is_begun(&self) -> bool {
        self.state != State::Idle
    }

    /// Returns whether the connection is open, in one direction at least.
    pub fn is_open(&self) -> bool {
        self.state == State::Open
    }

    /// Returns the position up to which everything was received or skipped. FIN takes one.
    pub fn position(&self) -> u64 {
        self.incoming.next()
    }

    fn seq_of(&self, position: u64) -> Seq {
        self.base.plus(position as u32)
    }

    /// Returns the window to advertise, shifted, and moves its right edge. A small move is not
    /// worth telling [RFC 9293 §3.8.6.2.2].
    fn advertise(&mut self) -> u16 {
        let next = self.incoming.next();
        let free = u64::from(self.config.buffer).saturating_sub(self.unread);
        let edge = next + free;
        let step = u64::from(self.config.buffer / 2).min(self.config.mss.into());
        let scale = self.scale.0;
        if edge >= self.edge + step {
            // Rounded up, so that the edge never moves back.
            let shown = (free + (1 << scale) - 1) >> scale;
            self.edge = next + (shown.min(u16::MAX.into()) << scale);
        }
        let shown = (self.edge.saturating_sub(next) + (1 << scale) - 1) >> scale;
        shown.min(u16::MAX.into()) as u16
    }

    /// Returns the blocks to report: a duplicate [RFC 2883 §4], and those of the latest arrivals
    /// first [RFC 2018 §4].
    fn sack(&mut self) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if let Some((left, right)) = self.duplicate.take().filter(|_| self.has_sack) {
            blocks.push(left, right);
        }
        if !self.has_sack || self.incoming.held() == 0 {
            return blocks;
        }
        let runs = self.incoming.runs();
        let of = |position: u64| runs.iter().find(|(at, end)| (*at..*end).contains(&position));
        let mut known: Vec<u64> = Vec::with_capacity(SackBlocks::MAX);
        for &(at, end) in self.recent.iter().filter_map(|position| of(*position)).chain(&runs) {
            if !known.contains(&at) {
                known.push(at);
                blocks.push(self.seq_of(at), self.seq_of(end));
            }
        }
        blocks
    }

    /// Returns the head of a segment that acknowledges.
    fn head(&mut self, seq: Seq, flags: Flags) -> Head {
        (self.ack_due, self.unacknowledged) = (false, 0);
        self.timers.cancel(Timer::Ack);
        Head {
            source_port: self.port,
            destination_port: self.config.source.port(),
            seq,
            ack: self.seq_of(self.incoming.next()),
            flags: flags | Flags::ACK,
            window: self.advertise(),
            options: Options { sack: self.sack(), ..Options::default() },
        }
    }

    fn syn(&self) -> Head {
        Head {
            source_port: self.port,
            destination_port: self.config.source.port(),
            seq: self.out.una,
            flags: Flags::SYN,
            window: self.config.buffer.min(u16::MAX.into()) as u16,
            options: Options {
                mss: Some(self.config.mss),
                window_scale: self.config.window_scale,
                sack_permitted: self.config.sack,
                ..Options::default()
            },
            ..Head::default()
        }
    }

    /// Builds the next segment.
    fn next_segment(&mut self, now: Instant, message: &mut Vec<u8>) -> Option<Head> {
        if let Some(seq) = self.rst_due.take() {
            let ports = (self.port, self.config.source.port());
            let (source_port, destination_port) = ports;
            let flags = Flags::RST;
            return Some(Head { source_port, destination_port, seq, flags, ..Head::default() });
        }
        if std::mem::take(&mut self.syn_due) {
            self.stats.sent_again += u64::from(!self.out.is_first());
            self.out.on_syn();
            self.timers.set(Timer::Retransmit, now + self.out.rto);
            return Some(self.syn());
        }
        if self.state == State::Open
            && let Some(part) = self.out.next(usize::from(self.mss), &self.config)
        {
            let end = if part.is_fin { Flags::FIN } else { Flags::default() };
            let head = self.head(part.seq, end | Flags::PSH);
            self.stats.sent_again += u64::from(self.out.send(&part, message));
            if !self.timers.is_set(Timer::Retransmit) {
                self.timers.set(Timer::Retransmit, now + self.out.rto);
            }
            return Some(head);
        }
        self.ack_due.then(|| {
            self.stats.acks += 1;
            self.head(self.out.nxt, Flags::default())
        })
    }

    /// Ends the connection.
    fn close(&mut self, event: ReceiverEvent) {
        self.state = State::Closed;
        self.timers.clear();
        self.incoming = Reassembly::new(self.incoming.next());
        self.ahead = VecDeque::new();
        (self.ack_due, self.syn_due, self.wants_channel) = (false, false, false);
        self.events.push_back(event);
    }

    /// Closes the connection if both sides have finished, and know it of each other.
    fn check_end(&mut self, now: Instant) {
        if self.state != State::Open || !self.has_ended || !self.out.is_done() {
            return;
        }
        let has_ack = self.ack_due;
        self.close(ReceiverEvent::Closed);
        if !self.is_passive {
            self.state = State::TimeWait;
            self.ack_due = has_ack;
            self.timers.set(Timer::Forget, now + self.config.time_wait);
        }
    }

    /// Skips the first hole.
    fn skip(&mut self, now: Instant) {
        let next = self.incoming.next();
        let skipped = if self.incoming.held() > 0 {
            self.incoming.skip()
        } else {
            let end = self.fin.unwrap_or(next).max(next);
            self.incoming = Reassembly::new(end);
            end - next
        };
        self.stats.skipped_bytes += skipped;
        self.events.push_back(ReceiverEvent::Skipped(skipped));
        self.ack_due = true;
        self.take_in(now);
    }
}

impl Engine for Receiver {
    type Command = ReceiverCommand;
    type CommandError = ReceiverCommandError;
    type Event = ReceiverEvent;

    fn handle_datagram(&mut self, now: Instant, datagram: Datagram<'_>) {
        let Ok(segment) = Segment::parse(datagram.payload) else {
            return self.drops.count(DropReason::Malformed);
        };
        let server = self.config.source;
        match (datagram.by, self.config.channel) {
            (Address::Host(peer), _) if peer == server => {
                if segment.head.source_port == server.port()
                    && segment.head.destination_port == self.port
                {
                    self.on_unicast(now, &segment);
                } else {
                    self.drops.count(DropReason::OtherSession);
                }
            }
            (Address::Channel(by), Some(channel))
                if (by.source, by.group) == (channel.source, channel.group) =>
            {
                self.on_multicast(now, &segment);
            }
            _ => self.drops.count(DropReason::Unexpected),
        }
    }

    fn handle_command(
        &mut self,
        _now: Instant,
        command: ReceiverCommand,
    ) -> Result<(), ReceiverCommandError> {
        match command {
            ReceiverCommand::Connect => {
                if self.state != State::Idle {
                    return Err(ReceiverCommandError::Opened);
                }
                self.state = State::SynSent;
                self.syn_due = true;
                self.wants_channel = self.config.channel.is_some();
            }
            ReceiverCommand::Send(bytes) => {
                self.check_open()?;
                if self.out.is_finished {
                    return Err(ReceiverCommandError::Finished);
                }
                let room = self.out.room(&self.config);
                if bytes.len() > room {
                    return Err(ReceiverCommandError::Full { room });
                }
                self.out.write(&bytes);
            }
            ReceiverCommand::Finish => {
                self.check_open()?;
                if !self.out.is_finished {
                    self.out.is_finished = true;
                    self.is_passive = self.has_ended;
                }
            }
            ReceiverCommand::Abort => {
                self.check_open()?;
                self.rst_due = Some(self.out.nxt);
                self.close(ReceiverEvent::Broken(BreakReason::Aborted));
            }
            // A new helper knows nothing.
            ReceiverCommand::Help(helps) => (self.helps, self.membership) = (helps, None),
            ReceiverCommand::Consumed(bytes) => {
                self.unread = self.unread.saturating_sub(bytes as u64);
                if self.state == State::Open && !self.has_ended {
                    self.consider_window_update();
                }
            }
        }
        Ok(())
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Ack => self.ack_due = true,
                Timer::Retransmit => self.on_retransmit_timer(now),
                Timer::Skip => self.skip(now),
                Timer::Forget => self.state = State::Closed,
            }
        }
    }

    fn poll_membership(&mut self) -> Option<Membership> {
        if self.is_subscribed == self.wants_channel {
            return None;
        }
        let channel = self.config.channel?;
        self.is_subscribed = self.wants_channel;
        Some(if self.is_subscribed {
            Membership::Join(channel)
        } else {
            Membership::Leave(channel)
        })
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        let mut payload = Vec::new();
        let head = self.next_segment(now, &mut payload)?;
        let mut message = Vec::with_capacity(Head::MAX_LEN + payload.len());
        head.emit(&mut message);
        message.extend(payload);
        buf.push_message(message);
        Some(Transmit::control(Address::Host(self.config.source)))
    }

    fn poll_event(&mut self) -> Option<ReceiverEvent> {
        self.events.pop_front()
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }
}

impl Receiver {
    fn check_open(&self) -> Result<(), ReceiverCommandError> {
        match self.state {
            State::SynSent | State::Open => Ok(()),
            State::Idle | State::Closed | State::TimeWait => {
                Err(ReceiverCommandError::NotConnected)
            }
        }
    }

    /// Announces to the source a window that has at least doubled, from less than half of the
    /// buffer, as stacks do.
    fn consider_window_update(&mut self) {
        let buffer = u64::from(self.config.buffer);
        let known = self.edge.saturating_sub(self.incoming.next());
        let free = buffer.saturating_sub(self.unread);
        if 2 * known <= buffer && free > 0 && free >= 2 * known {
            self.ack_due = true;
        }
    }

    fn on_retransmit_timer(&mut self, now: Instant) {
        if !self.out.is_busy() {
            return;
        }
        if self.out.on_timeout(&self.config) {
            return self.close(ReceiverEvent::Broken(BreakReason::TimedOut));
        }
        self.syn_due = self.state == State::SynSent;
        self.timers.set(Timer::Retransmit, now + self.out.rto);
    }

    /// Hands bytes in order to the application.
    fn deliver(&mut self, bytes: Bytes) {
        self.unread += bytes.len() as u64;
        self.stats.received_bytes += bytes.len() as u64;
        self.events.push_back(ReceiverEvent::Received(bytes));
    }
}
