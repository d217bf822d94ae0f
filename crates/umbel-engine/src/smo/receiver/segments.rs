//! Processing of segments [RFC 9293 §3.10.7].

use bytes::Bytes;
use umbel_wire::tcp::{Flags, Membership, Segment, Seq};

use super::back::Progress;
use super::{BreakReason, DropReason, Reassembly, Receiver, ReceiverEvent, State, Timer};
use crate::Instant;

/// Arrivals out of order whose times are kept, at most. Later ones count as those before them.
const MAX_AHEAD: usize = 1024;

impl Receiver {
    /// Processes a segment of the source to this connection.
    pub(super) fn on_unicast(&mut self, now: Instant, segment: &Segment<'_>) {
        self.stats.unicast += 1;
        // The helper reads it before the stack does.
        if let Some(Membership::Port(port)) = segment.head.options.membership
            && self.helps
            && !matches!(self.state, State::Idle | State::Closed)
        {
            self.membership = Some(port).filter(|port| *port > 0);
        }
        match self.state {
            State::Idle | State::Closed => self.refuse(segment),
            State::SynSent => self.on_answer(now, segment),
            State::Open | State::TimeWait => self.on_segment(now, segment),
        }
    }

    /// Processes a segment of the channel, as the helper delivers it: with an ACK field that says
    /// nothing new.
    pub(super) fn on_multicast(&mut self, now: Instant, segment: &Segment<'_>) {
        let start = self.position_of(segment.head.seq);
        let drop = if !self.helps || self.state != State::Open || self.has_ended {
            Some(DropReason::NotReady)
        } else if self.membership != Some(segment.head.destination_port) {
            Some(DropReason::NotMember)
        } else if start + i64::from(segment.len()) <= self.incoming.next() as i64 {
            Some(DropReason::Stale)
        } else if start > self.edge as i64 {
            Some(DropReason::OutOfWindow)
        } else {
            None
        };
        if let Some(reason) = drop {
            return self.drops.count(reason);
        }
        self.stats.multicast += 1;
        self.receive(now, segment, start);
    }

    /// Returns the position of a sequence number, which may be before 0.
    fn position_of(&self, seq: Seq) -> i64 {
        let next = self.incoming.next();
        next as i64 + i64::from(seq.since(self.seq_of(next)))
    }

    /// Answers a segment that belongs to no connection [RFC 9293 §3.10.7.1].
    fn refuse(&mut self, segment: &Segment<'_>) {
        self.drops.count(DropReason::NoConnection);
        if !segment.head.flags.has(Flags::RST) && segment.head.flags.has(Flags::ACK) {
            self.rst_due = Some(segment.head.ack);
        }
    }

    /// Processes the answer to SYN [RFC 9293 §3.10.7.3].
    fn on_answer(&mut self, now: Instant, segment: &Segment<'_>) {
        let head = &segment.head;
        let is_mine = head.flags.has(Flags::ACK) && head.ack == self.out.nxt;
        if head.flags.has(Flags::RST) {
            return if is_mine {
                self.close(ReceiverEvent::Broken(BreakReason::Refused));
            } else {
                self.drops.count(DropReason::Challenged);
            };
        }
        if !is_mine {
            return self.refuse(segment);
        }
        if !head.flags.has(Flags::SYN) {
            return self.drops.count(DropReason::Challenged);
        }
        let rtt = self
            .timers
            .at(Timer::Retransmit)
            .filter(|_| self.out.is_first())
            .map(|due| self.out.rto.saturating_sub(due.since(now)));
        self.timers.cancel(Timer::Retransmit);
        self.out.on_syn_acked(rtt, &self.config);
        self.out.window = head.window.into();
        self.mss = head.options.mss.unwrap_or(536).clamp(1, self.config.mss.max(1));
        self.has_sack = self.config.sack && head.options.sack_permitted;
        if let (Some(own), Some(peer)) = (self.config.window_scale, head.options.window_scale) {
            self.scale = (own.min(14), peer);
        }
        self.base = head.seq.plus(1);
        self.edge = self.config.buffer.min(u16::MAX.into()).into();
        self.state = State::Open;
        self.ack_due = true;
        self.events.push_back(ReceiverEvent::Connected);
    }

    /// Processes a segment of an open connection [RFC 9293 §3.10.7.4].
    fn on_segment(&mut self, now: Instant, segment: &Segment<'_>) {
        let head = &segment.head;
        let next = self.incoming.next() as i64;
        let start = self.position_of(head.seq);
        let end = start + i64::from(segment.len());
        let edge = (self.edge as i64).max(next);
        let is_acceptable = if segment.is_empty() {
            (next..=edge).contains(&start)
        } else {
            start < edge && end > next
        };
        // FIN needs no room.
        let is_fin_at_edge = start == edge && segment.payload.is_empty() && end > next;
        if !is_acceptable && !is_fin_at_edge {
            let is_old = end <= next;
            self.drops.count(if is_old { DropReason::Duplicate } else { DropReason::OutOfWindow });
            self.ack_due |= !head.flags.has(Flags::RST);
            if is_old && self.config.dsack && !segment.payload.is_empty() {
                self.duplicate = Some((head.seq, head.seq.plus(segment.len())));
            }
            return;
        }
        if head.flags.has(Flags::RST) {
            if start == next {
                self.close(ReceiverEvent::Broken(BreakReason::Reset));
            } else {
                self.drops.count(DropReason::Challenged);
                self.ack_due = true;
            }
            return;
        }
        if head.flags.has(Flags::SYN) {
            self.drops.count(DropReason::Challenged);
            self.ack_due = true;
            return;
        }
        if !head.flags.has(Flags::ACK) {
            return self.drops.count(DropReason::Challenged);
        }
        match self.out.on_ack(head.ack) {
            Progress::FarAhead => {
                self.drops.count(DropReason::FarAhead);
                self.ack_due = true;
                return;
            }
            Progress::None => {}
            Progress::Some => self.timers.set(Timer::Retransmit, now + self.out.rto),
            Progress::All => self.timers.cancel(Timer::Retransmit),
        }
        self.out.window = u32::from(head.window) << self.scale.1;
        if self.state == State::Open && !self.has_ended {
            self.receive(now, segment, start);
        }
        if self.out.is_busy() && !self.timers.is_set(Timer::Retransmit) {
            self.timers.set(Timer::Retransmit, now + self.out.rto);
        }
        self.check_end(now);
    }

    /// Takes the payload and the FIN of a segment that begins at this position.
    fn receive(&mut self, now: Instant, segment: &Segment<'_>, start: i64) {
        if segment.is_empty() {
            return;
        }
        let before = self.incoming.next();
        let known = (before as i64 - start).clamp(0, segment.payload.len() as i64) as usize;
        let at = (start + known as i64).max(0) as u64;
        let mut payload = &segment.payload[known..];
        let end = at + payload.len() as u64;
        if end > self.edge {
            self.drops.count(DropReason::NoRoom);
            payload = &payload[..self.edge.saturating_sub(at) as usize];
        } else if segment.head.flags.has(Flags::FIN) {
            self.fin = Some(end);
        }
        let is_whole = self.incoming.held() == 0;
        if at > before {
            self.on_ahead(now, at, payload);
        } else if is_whole {
            // The usual case: nothing to put in order.
            self.incoming = Reassembly::new(before + payload.len() as u64);
            if !payload.is_empty() {
                self.deliver(Bytes::copy_from_slice(payload));
            }
        } else {
            self.incoming.insert(at, payload);
            // It fills a hole.
            self.ack_due = true;
        }
        self.take_in(now);
        if at <= before && !self.ack_due {
            self.unacknowledged += 1;
            if self.unacknowledged >= self.config.ack_every {
                self.ack_due = true;
            } else if !self.timers.is_set(Timer::Ack) {
                self.timers.set(Timer::Ack, now + self.config.ack_delay);
            }
        }
    }

    /// Takes data that is out of order, or an early FIN.
    fn on_ahead(&mut self, now: Instant, at: u64, payload: &[u8]) {
        self.ack_due = true;
        let is_new = self.incoming.insert(at, payload);
        if !payload.is_empty() && !is_new {
            self.drops.count(DropReason::Duplicate);
        }
        if self.recent[0] != at {
            self.recent.rotate_right(1);
            self.recent[0] = at;
        }
        let is_news = is_new || self.fin == Some(at);
        if self.config.real_time.is_some() && is_news && self.ahead.len() < MAX_AHEAD {
            self.ahead.push_back((at, now));
        }
    }

    /// Hands on what is in order now, FIN included, and sets the time at which the next hole is
    /// skipped.
    pub(super) fn take_in(&mut self, now: Instant) {
        if self.incoming.held() > 0 {
            while let Some(part) = self.incoming.pop() {
                self.deliver(part);
            }
        }
        let next = self.incoming.next();
        if self.fin == Some(next) && !self.has_ended {
            self.incoming.step();
            self.has_ended = true;
            self.ack_due = true;
            self.ahead.clear();
            self.events.push_back(ReceiverEvent::ReceivedEnd);
            self.check_end(now);
        }
        if let Some(limit) = self.config.real_time {
            self.ahead.retain(|(at, _)| *at > next);
            let first = self.ahead.front().filter(|_| !self.has_ended);
            // Without room for another segment behind it, waiting for the hole loses what comes.
            let last = self.incoming.end() + u64::from(self.config.mss);
            let is_full = last > next + u64::from(self.config.buffer);
            let due = |(_, since): &(u64, Instant)| if is_full { now } else { *since + limit };
            self.timers.put(Timer::Skip, first.map(due));
        }
    }
}
