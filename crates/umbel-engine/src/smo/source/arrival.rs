//! Segments that arrive on a connection [RFC 9293 §3.10.7.4, RFC 5961].
//!
//! The child has the state of its connection. What a segment brings about concerns its master and
//! the queues too, so this stands apart and has no state itself.

use umbel_wire::tcp::{Flags, Head, Segment};

use super::{Source, SourceEvent};
use crate::Instant;
use crate::smo::api::CloseReason;
use crate::smo::child::{Acknowledged, Served};
use crate::smo::drops::DropReason;
use crate::smo::view::{View, log_of};

impl Source {
    pub(super) fn on_segment(&mut self, now: Instant, slot: u32, segment: &Segment<'_>) {
        let head = &segment.head;
        let window = i32::from(self.config.receive_buffer);
        let child = self.at(slot);
        let offset = head.seq.since(child.inbox.next());
        child.told.on_segment(head, segment.len(), child.inbox.next());
        if head.flags.has(Flags::RST) {
            return self.on_reset(now, slot, offset, window);
        }
        if head.flags.has(Flags::SYN) {
            return self.challenge(now, slot, DropReason::Challenged);
        }
        let len = segment.len() as i32;
        let is_acceptable = if len == 0 {
            (0..=window).contains(&offset)
        } else {
            offset < window && offset.saturating_add(len) > 0
        };
        if !is_acceptable {
            return self.challenge(now, slot, DropReason::OutOfWindow);
        }
        if !head.flags.has(Flags::ACK) {
            return self.drops.count(DropReason::NoAck);
        }
        match self.on_child_ack(now, slot, head, len > 0) {
            Acknowledged::Valid => {}
            Acknowledged::FarAhead => return self.challenge(now, slot, DropReason::FarAhead),
            Acknowledged::Optimistic => {
                self.drops.count(DropReason::Optimistic);
                return self.remove(slot, CloseReason::Optimistic);
            }
            Acknowledged::Old => return self.challenge(now, slot, DropReason::OldAck),
        }
        if len > 0 {
            self.on_data(slot, segment, offset);
        }
        let place = match self.at(slot).served {
            Served::Master(place, _) => Some(place),
            _ => None,
        };
        self.settle(now, slot);
        if let Some(place) = place {
            self.advance(now, place);
        }
    }

    fn on_child_ack(
        &mut self,
        now: Instant,
        slot: u32,
        head: &Head,
        has_payload: bool,
    ) -> Acknowledged {
        let Source { children, masters, base, stats, .. } = self;
        let Some(child) = children.get_mut(slot) else { return Acknowledged::Valid };
        let view = View::of(child, masters);
        let log = log_of(child, masters);
        let (before, losses) = (child.una, child.loss_events);
        let outcome = child.on_ack(now, *base, head, has_payload, &view, log);
        if outcome != Acknowledged::FarAhead {
            child.heard_at = now;
            child.keep_alive_probes = 0;
        }
        stats.acknowledged_bytes += child.una - before;
        stats.loss_events += child.loss_events - losses;
        outcome
    }

    /// Handles RST [RFC 5961 §3.2].
    fn on_reset(&mut self, now: Instant, slot: u32, offset: i32, window: i32) {
        if offset == 0 {
            self.remove(slot, CloseReason::Reset);
        } else if (0..window).contains(&offset) {
            self.challenge(now, slot, DropReason::Challenged);
        } else {
            self.drops.count(DropReason::OutOfWindow);
        }
    }

    /// Drops a segment, and answers it with an ACK, unless one was sent a moment ago.
    fn challenge(&mut self, now: Instant, slot: u32, reason: DropReason) {
        self.drops.count(reason);
        let child = self.at(slot);
        if child.may_challenge(now) {
            child.ack_due = true;
            self.make_ready(slot);
        } else {
            self.drops.count(DropReason::HeldDown);
        }
    }

    /// Takes data and FIN of an acceptable segment, which begins `offset` after what was received.
    fn on_data(&mut self, slot: u32, segment: &Segment<'_>, offset: i32) {
        let Source { config, drops, events, .. } = self;
        let child = self.children.at(slot);
        child.ack_due = true;
        child.inbox.take(segment, offset, config.receive_buffer, drops);
        while let Some(bytes) = child.inbox.pop() {
            self.places.renew(child.id);
            events.push_back(SourceEvent::Received { child: child.id, bytes });
        }
        if child.inbox.pass_end() {
            self.on_received_end(slot);
        }
        self.make_ready(slot);
    }

    fn on_received_end(&mut self, slot: u32) {
        let (child, view) = self.seen(slot);
        let is_done = matches!(child.served, Served::Done);
        child.finished_first = !is_done && view.end.is_none_or(|end| view.sent < end);
        let id = child.id;
        self.events.push_back(SourceEvent::ReceivedEnd { child: id });
    }
}
