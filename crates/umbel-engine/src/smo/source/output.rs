//! Segments that leave.
//!
//! A segment is made of a master's or child's bytes, the connection's numbers and the queues of
//! what is due, so this stands apart and has no state itself.

use std::net::SocketAddr;
use std::ops::Range;

use bytes::Bytes;
use rand_core::Rng as _;
use umbel_wire::tcp::{Flags, Head, Membership, Options, Seq};

use super::{ROOM_SHARE, Source};
use crate::smo::ack_filter::AckFilterChange;
use crate::smo::api::{CloseReason, SourceEvent, Stream};
use crate::smo::buffer::Buffer;
use crate::smo::child::Served;
use crate::smo::master::Master;
use crate::smo::repairs::Repair;
use crate::smo::resent::Way;
use crate::smo::view::View;
use crate::{Address, Instant, RateClass, Transmit, TransmitBuf};

/// Segments without a connection after which connections have a turn, so that a flood of what is
/// answered does not keep data from leaving.
const ANSWERS_IN_ROW: u32 = 8;
/// Segments to one child at once, so that they can leave as one.
const BATCH: usize = 32;
/// Segments in a window up to which it does not matter for how many segments none is left out.
const SKIP_WINDOW: u64 = 16;
/// Part of the window for whose room new data waits at most, as one over this.
const FRAME_SHARE: u64 = 8;
/// While nobody hears a master, one segment in this number is multicast, to see whether anybody
/// does.
const SILENT: u64 = 64;

/// A part of a stream, as a segment carries it.
struct Part {
    bytes: Bytes,
    has_fin: bool,
}

impl Part {
    /// Takes a run of positions out of a buffer. `None` if it is not held.
    fn of(buffer: &Buffer, run: &Range<u64>) -> Option<Part> {
        let end = run.end.min(buffer.end());
        let len = end.saturating_sub(run.start) as usize;
        let bytes = buffer.slice(run.start, len);
        let has_fin = buffer.is_finished() && run.end > buffer.end();
        (bytes.len() == len && (len > 0 || has_fin)).then_some(Part { bytes, has_fin })
    }
}

impl Source {
    pub(super) fn transmit(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if self.answers_in_row < ANSWERS_IN_ROW
            && let Some(transmit) = self.transmit_answer(buf)
        {
            self.answers_in_row += 1;
            return Some(transmit);
        }
        self.answers_in_row = 0;
        self.transmit_to_connected(now, buf).or_else(|| self.transmit_answer(buf))
    }

    /// Sends a segment without a connection. It counts for no pace, since that of a stream may be
    /// lower than the rate at which strangers send what is answered.
    fn transmit_answer(&mut self, buf: &mut TransmitBuf) -> Option<Transmit> {
        let (peer, head) = self.control.pop_front()?;
        self.stats.control += 1;
        self.push(buf, &head, Bytes::new());
        Some(Transmit::self_clocked(Address::Host(peer)))
    }

    fn transmit_to_connected(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        loop {
            if let Some(transmit) = self.transmit_repair(now, buf) {
                return Some(transmit);
            }
            while let Some(slot) = self.ready.pop_front() {
                // The slot may be empty by now, or have another child.
                let child = self.children.get_mut(slot);
                let Some(child) = child.filter(|child| child.is_queued) else { continue };
                child.is_queued = false;
                if let Some(transmit) = self.transmit_child(now, slot, buf) {
                    return Some(transmit);
                }
            }
            if !self.gather_repairs(now) {
                break;
            }
        }
        self.transmit_new(now, buf)
    }

    /// Returns a header without options, with the full window.
    pub(super) fn bare(&self, peer: SocketAddr, seq: Seq, ack: Option<Seq>, flags: Flags) -> Head {
        Head {
            source_port: self.config.port,
            destination_port: peer.port(),
            seq,
            ack: ack.unwrap_or_default(),
            flags,
            window: self.config.receive_buffer,
            options: Options::default(),
        }
    }

    /// Returns a header that resets a connection.
    pub(super) fn reset(&self, peer: SocketAddr, seq: Seq, ack: Option<Seq>) -> Head {
        let flags = if ack.is_some() { Flags::RST | Flags::ACK } else { Flags::RST };
        Head { window: 0, ..self.bare(peer, seq, ack, flags) }
    }

    fn push(&mut self, buf: &mut TransmitBuf, head: &Head, body: Bytes) {
        self.head.clear();
        head.emit(&mut self.head);
        buf.push(&self.head, body);
    }

    /// Returns the header of a segment to a child.
    fn head_to(&mut self, slot: u32, position: u64, flags: Flags) -> Head {
        let (base, config) = (self.base, &self.config);
        let child = self.children.at(slot);
        child.ack_due = false;
        let window = child.inbox.window(config.receive_buffer);
        let (peer, ack) = (child.peer, child.inbox.next());
        let seq = base.plus(position as u32);
        Head { window, ..self.bare(peer, seq, Some(ack), flags | Flags::ACK) }
    }

    /// Queues the retransmissions that are due. Returns whether there are any.
    fn gather_repairs(&mut self, now: Instant) -> bool {
        let before = self.repairs.len() + self.multicast_repairs.len();
        for place in 0..self.masters.len() {
            let Some(master) = &self.masters[place] else { continue };
            let gather = master.gather(&self.config);
            while let Some(master) = &mut self.masters[place]
                && let Some(repair) = master.repairs.next(now, gather)
            {
                self.queue_repair(now, place as u32, repair);
            }
        }
        self.repairs.len() + self.multicast_repairs.len() > before
    }

    fn queue_repair(&mut self, now: Instant, place: u32, repair: Repair) {
        let (Repair::Multicast(run, wanting) | Repair::Unicast(run, wanting)) = &repair;
        for &slot in wanting {
            // A slot may have another child by now, which then is sent what it may have.
            let Some(child) = self.children.get_mut(slot) else { continue };
            child.wanted = child.wanted.saturating_sub(1);
            match &repair {
                Repair::Multicast(..) => {
                    self.on_repaired(now, Way::Multicast, slot, run);
                    self.bring_forward(slot);
                }
                Repair::Unicast(..) => {
                    let id = child.id;
                    self.repairs.push_back((slot, id, run.clone()));
                }
            }
        }
        if let Repair::Multicast(run, _) = repair {
            self.multicast_repairs.push_back((place, run));
        }
    }

    fn transmit_repair(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        while let Some((place, run)) = self.multicast_repairs.pop_front() {
            let Some(master) = self.master(place) else { continue };
            let (channel, start) = (master.channel, master.buffer.start());
            let Some(part) = Part::of(&master.buffer, &run).filter(|_| run.end > start) else {
                continue;
            };
            self.stats.multicast_again.add(part.bytes.len() as u64);
            self.push_multicast(buf, channel.port, run.start, part, true);
            return Some(Transmit::control(Address::Channel(channel)));
        }
        while let Some((slot, id, run)) = self.repairs.pop_front() {
            let Some(child) = self.children.get_mut(slot).filter(|c| c.id == id) else {
                continue;
            };
            if run.end <= child.una || child.board.has(run.start) {
                continue;
            }
            let peer = child.peer;
            if let Some(len) = self.push_to_child(buf, slot, &run) {
                self.stats.unicast_again.add(len);
                self.at(slot).unicast_again.add(len);
                self.on_repaired(now, Way::Unicast, slot, &run);
                self.settle(now, slot);
                return Some(Transmit::self_clocked(Address::Host(peer)));
            }
            if self.config.real_time.is_some() {
                // It has reached its age while it waited.
                self.at(slot).on_repair_gone();
                self.settle(now, slot);
            }
        }
        None
    }

    /// Notes that a run was sent to a child again.
    pub(super) fn on_repaired(&mut self, at: Instant, way: Way, slot: u32, run: &Range<u64>) {
        let Source { children, masters, config, .. } = self;
        let child = children.at(slot);
        let start = View::of(child, masters).start;
        child.on_repaired(at, way, run, start, config);
    }

    /// Adds a segment to a child. Returns the length of its payload, or `None` if it is not held.
    fn push_to_child(&mut self, buf: &mut TransmitBuf, slot: u32, run: &Range<u64>) -> Option<u64> {
        let child = self.children.of(slot);
        let part = match &child.served {
            Served::Alone(Some(buffer)) => Part::of(buffer, run),
            Served::Master(place, _) => {
                self.master(*place).and_then(|master| match child.own_end {
                    None => Part::of(&master.buffer, run),
                    Some(end) => {
                        let bytes = master
                            .buffer
                            .slice(run.start, (end.min(run.end) - run.start.min(end)) as usize);
                        Some(Part { bytes, has_fin: run.end > end })
                    }
                })
            }
            _ => None,
        };
        let part = part?;
        let view = self.view(child);
        let mut flags = if part.has_fin { Flags::FIN } else { Flags::default() };
        if run.end >= view.available {
            // On the last segment only, so that a batch can leave as one.
            flags = flags | Flags::PSH;
        }
        let len = part.bytes.len() as u64;
        let head = self.head_to(slot, run.start, flags);
        let child = self.at(slot);
        child.unicast_bytes += len;
        child.skips.on_sent(run);
        self.push(buf, &head, part.bytes);
        Some(len)
    }

    /// Sends what a child is to be sent by unicast.
    fn transmit_child(
        &mut self,
        now: Instant,
        slot: u32,
        buf: &mut TransmitBuf,
    ) -> Option<Transmit> {
        let child = self.at(slot);
        let to = Transmit::self_clocked(Address::Host(child.peer));
        if std::mem::take(&mut child.probe_due) {
            // A segment before the window is answered with an ACK [RFC 9293 §3.8.4].
            let position = child.una;
            let head = self.head_to(slot, position, Flags::default());
            self.stats.control += 1;
            self.push(buf, &Head { seq: head.seq.minus(1), ..head }, Bytes::new());
            self.make_ready(slot);
            return Some(to);
        }
        if child.question.is_due() {
            child.question.on_sent(now);
            self.push_question(slot, buf);
            self.make_ready(slot);
            self.bring_forward(slot);
            return Some(to);
        }
        if std::mem::take(&mut child.membership_due) || child.retells_membership(now) {
            self.push_ack(slot, buf);
            self.make_ready(slot);
            return Some(to);
        }
        if !child.hearing.hears && !matches!(child.served, Served::Done) {
            self.push_unicast(now, slot, buf);
            // It may have been removed.
            self.children.get(slot)?;
        }
        if self.at(slot).ack_due && buf.is_empty() {
            self.push_ack(slot, buf);
        }
        (!buf.is_empty()).then_some(to)
    }

    /// Adds an ACK, which also tells the child's helper its membership.
    fn push_ack(&mut self, slot: u32, buf: &mut TransmitBuf) {
        let (child, view) = self.seen(slot);
        // Beyond the window it would not be acceptable.
        let sent = if child.hearing.hears { view.sent } else { child.nxt };
        let position = sent.min(child.permitted_to());
        let mut head = self.head_to(slot, position, Flags::default());
        head.options.membership = Some(self.membership(slot));
        self.stats.control += 1;
        self.push(buf, &head, Bytes::new());
    }

    /// Adds a segment that asks a child what it has, and tells its helper its membership.
    fn push_question(&mut self, slot: u32, buf: &mut TransmitBuf) {
        let position = self.at(slot).una;
        let mut head = self.head_to(slot, position, Flags::default());
        head.seq = head.seq.minus(1);
        head.options.membership = Some(self.membership(slot));
        self.stats.control += 1;
        // The receiver has that byte, and does not look at it.
        self.push(buf, &head, Bytes::from_static(&[0]));
    }

    /// Returns the membership of a child.
    fn membership(&self, slot: u32) -> Membership {
        let child = self.children.of(slot);
        let port = match child.served {
            Served::Master(place, _) if child.hearing.may_hear => {
                self.master(place).map_or(0, |master| master.channel.port)
            }
            _ => 0,
        };
        Membership::Port(port)
    }

    /// Adds retransmissions and new data to a child that does not hear.
    fn push_unicast(&mut self, now: Instant, slot: u32, buf: &mut TransmitBuf) {
        while buf.len() < BATCH {
            let (child, view) = self.seen(slot);
            let mss = u64::from(child.mss);
            let (run, again) = match child.next_repair(&view) {
                Some(run) => (run, true),
                None => (child.nxt..child.nxt + child.sendable(&view).min(mss), false),
            };
            let fits = Head::MIN_LEN + (run.end - run.start) as usize;
            if run.is_empty() || !buf.admits(fits) {
                break;
            }
            let is_last = buf.iter().last().is_some_and(|(_, body)| (body.len() as u64) < mss);
            if is_last {
                break;
            }
            if !again && self.leave_out(now, slot, &run) {
                continue;
            }
            let is_first = !again || self.at(slot).skips.touches(&run);
            let Some(len) = self.push_to_child(buf, slot, &run) else {
                if self.config.real_time.is_none() {
                    self.remove(slot, CloseReason::TooLate);
                    return;
                }
                let (child, view) = self.seen(slot);
                child.nxt = child.nxt.max(view.start);
                child.on_repair_wanted(&run);
                continue;
            };
            if again {
                self.at(slot).on_repair_wanted(&run);
                self.on_repaired(now, Way::Unicast, slot, &run);
            } else {
                self.at(slot).on_sent(now, run.end);
            }
            if is_first {
                self.stats.unicast.add(len);
            } else {
                self.stats.unicast_again.add(len);
                self.at(slot).unicast_again.add(len);
            }
        }
        self.settle(now, slot);
    }

    /// Leaves out a new segment, now and then. Returns whether it did.
    fn leave_out(&mut self, now: Instant, slot: u32, run: &Range<u64>) -> bool {
        if self.config.skip_every == 0 || self.config.real_time.is_some() {
            return false;
        }
        let (child, view) = self.seen(slot);
        if !child.may_leave_out(run, &view) {
            return false;
        }
        let window = child.window.bytes().min(child.permits.size()) / u64::from(child.mss);
        let countdown = self.draw_skip(window);
        self.at(slot).leave_out(now, run.clone(), countdown);
        self.left_out += 1;
        true
    }

    /// Draws the number of segments until one is left out, so that nobody can foresee it. Where a
    /// child's window has room for many, it is a number of windows: each can cost a round trip.
    pub(super) fn draw_skip(&mut self, window: u64) -> u32 {
        let every = u64::from(self.config.skip_every);
        let every = every.max(window * every / SKIP_WINDOW).min(u32::MAX.into()) as u32;
        every / 2 + self.random.next_u32() % every.max(1)
    }

    /// Releases what a child that is served alone has acknowledged.
    pub(super) fn release_alone(&mut self, slot: u32) {
        let Some(child) = self.children.get_mut(slot) else { return };
        let (una, id) = (child.una, child.id);
        let Served::Alone(Some(buffer)) = &mut child.served else { return };
        buffer.forget(una);
        let room = buffer.room();
        if child.was_full && room >= self.config.buffer / ROOM_SHARE {
            child.was_full = false;
            self.events.push_back(SourceEvent::Writable { to: Stream::Child(id), room });
        }
    }

    /// Returns the number of bytes, FIN included, that a master may multicast now.
    pub(super) fn sendable(&self, master: &Master) -> u64 {
        self.sendable_from(master, self.room_for_frame(master))
    }

    /// Returns the bytes of new data that may be sent, if there is room for at least so many, or
    /// for all.
    fn sendable_from(&self, master: &Master, least: u64) -> u64 {
        let all = master.buffer.end_with_fin().saturating_sub(master.nxt);
        let allowed = master.limit(&self.config).saturating_sub(master.nxt);
        let is_idle = master.behind(master.nxt).is_none();
        let is_whole = allowed >= all || allowed >= least || is_idle;
        if is_whole { all.min(allowed) } else { 0 }
    }

    /// Returns the room in the window for which new data waits.
    fn room_for_frame(&self, master: &Master) -> u64 {
        let (config, mss) = (&self.config, u64::from(self.config.mss));
        if config.frame <= 1 || config.real_time.is_some() {
            return mss;
        }
        let window = master.bound_window(master.limit(config)).unwrap_or_default();
        (window / FRAME_SHARE).min(mss * u64::from(config.frame)).max(mss)
    }

    pub(super) fn may_send(&self, place: usize) -> bool {
        self.masters[place].as_ref().is_some_and(|master| self.sendable(master) > 0)
    }

    /// Sends new data of the master whose turn it is.
    fn transmit_new(&mut self, now: Instant, buf: &mut TransmitBuf) -> Option<Transmit> {
        if buf.allows(RateClass::Data) == 0 {
            return None;
        }
        let count = self.masters.len();
        for _ in 0..count {
            let place = self.turn % count;
            self.turn = (place + 1) % count;
            if !self.may_send(place) {
                continue;
            }
            let Some(master) = &self.masters[place] else { continue };
            let channel = master.channel;
            self.multicast(now, place as u32, buf);
            if !buf.is_empty() {
                return Some(Transmit::data(Address::Channel(channel)));
            }
            // Nobody hears it; those who are served by unicast have work now.
            return self.transmit_to_connected(now, buf);
        }
        None
    }

    /// Adds new data of a master.
    fn multicast(&mut self, now: Instant, place: u32, buf: &mut TransmitBuf) {
        let mss = u64::from(self.config.mss);
        while let Some(master) = self.master(place) {
            // What waited for room for a frame is sent whole.
            let sendable = if buf.is_empty() {
                self.sendable(master)
            } else {
                self.sendable_from(master, mss)
            };
            let mut len = sendable.min(mss);
            // FIN needs no segment of its own.
            len += u64::from(sendable == len + 1 && master.nxt + len == master.buffer.end());
            if len == 0 || !buf.is_empty() && !buf.has_room(RateClass::Data) {
                break;
            }
            let (run, port) = (master.nxt..master.nxt + len, master.channel.port);
            let is_heard = master.is_heard() || master.nxt / mss % SILENT == 0;
            let Some(part) = Part::of(&master.buffer, &run) else { break };
            let is_last = run.end >= master.buffer.end();
            if is_heard {
                let payload = part.bytes.len();
                if !buf.is_empty() && !buf.admits(Head::MIN_LEN + payload) {
                    break;
                }
                self.stats.multicast.add(payload as u64);
                self.push_multicast(buf, port, run.start, part, is_last);
            } else if !buf.is_empty() {
                break;
            }
            let Some(master) = self.master_mut(place) else { break };
            master.nxt = run.end;
            master.log.push(run.end, now);
        }
        self.on_multicast(now, place);
        self.tell_wanted(place);
    }

    /// Tells that acknowledgements of the last segments that may be sent now are wanted from
    /// everyone.
    pub(super) fn tell_wanted(&mut self, place: u32) {
        if self.config.acks_per_window.is_none() {
            return;
        }
        let (base, mss) = (self.base, self.config.mss);
        let Some(sendable) = self.master(place).map(|master| self.sendable(master)) else { return };
        let Some(from) = self.master_mut(place).and_then(|master| master.new_front(sendable, mss))
        else {
            return;
        };
        let change = AckFilterChange::Wanted { master: place, from: base.plus(from as u32) };
        self.events.push_back(SourceEvent::AckFilter(change));
    }

    fn push_multicast(
        &mut self,
        buf: &mut TransmitBuf,
        port: u16,
        position: u64,
        part: Part,
        is_last: bool,
    ) {
        let mut flags = Flags::ACK;
        if is_last {
            flags = flags | Flags::PSH;
        }
        if part.has_fin {
            flags = flags | Flags::FIN;
        }
        let head = Head {
            source_port: self.config.port,
            destination_port: port,
            seq: self.base.plus(position as u32),
            // Helpers replace it.
            ack: Seq(0),
            flags,
            window: self.config.receive_buffer,
            options: Options::default(),
        };
        self.push(buf, &head, part.bytes);
    }

    /// Starts the time-outs of children that waited for data.
    fn on_multicast(&mut self, now: Instant, place: u32) {
        let Some(master) = self.master_mut(place) else { return };
        let idle = std::mem::take(&mut master.idle);
        for &slot in &idle {
            self.at(slot).idle_at = None;
        }
        for slot in idle {
            if let Some(child) = self.children.get_mut(slot) {
                child.progress = now;
                self.settle(now, slot);
            }
        }
    }
}
