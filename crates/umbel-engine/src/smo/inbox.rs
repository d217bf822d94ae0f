//! Data from a child: the back channel.

use bytes::Bytes;
use umbel_wire::tcp::{Flags, Segment, Seq};

use super::drops::{DropReason, Drops};
use super::reassembly::Reassembly;

/// Data that came from a child.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    received: Reassembly,
    /// Sequence number of position 0.
    base: Seq,
    /// Position of its FIN, once it is known.
    fin_at: Option<u64>,
    has_ended: bool,
    /// Bytes that the host has not consumed.
    unconsumed: usize,
    total: u64,
}

impl Inbox {
    /// Creates one whose first byte has this sequence number.
    pub(super) fn new(base: Seq) -> Inbox {
        let received = Reassembly::new(0);
        Inbox { received, base, fin_at: None, has_ended: false, unconsumed: 0, total: 0 }
    }

    /// Returns the next sequence number that is expected: `RCV.NXT`.
    pub(super) fn next(&self) -> Seq {
        self.base.plus(self.received.next() as u32)
    }

    /// Returns the bytes that may be sent, of this capacity.
    pub(super) fn window(&self, capacity: u16) -> u16 {
        capacity - self.unconsumed.min(capacity.into()) as u16
    }

    /// Returns whether everything up to FIN has come.
    pub(super) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// Returns the number of bytes that have come in order.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// Takes data and FIN of a segment that begins `offset` after what was received.
    pub(super) fn take(
        &mut self,
        segment: &Segment<'_>,
        offset: i32,
        capacity: u16,
        drops: &mut Drops,
    ) {
        let next = self.received.next();
        let Some(at) = next.checked_add_signed(i64::from(offset)) else {
            return drops.count(DropReason::Duplicate);
        };
        let end = at + segment.payload.len() as u64;
        let limit = next + u64::from(self.window(capacity));
        let limit = self.fin_at.map_or(limit, |fin| limit.min(fin));
        let payload = match limit.checked_sub(at) {
            Some(fits) if end > limit => &segment.payload[..fits as usize],
            Some(_) => segment.payload,
            None => &[],
        };
        if payload.len() < segment.payload.len() {
            drops.count(DropReason::NoRoom);
        } else if segment.head.flags.has(Flags::FIN) {
            self.fin_at = Some(self.fin_at.unwrap_or(end));
        }
        if !payload.is_empty() && !self.received.insert(at, payload) {
            drops.count(DropReason::Duplicate);
        }
    }

    /// Takes out the next bytes that are in order.
    pub(super) fn pop(&mut self) -> Option<Bytes> {
        let bytes = self.received.pop()?;
        self.unconsumed += bytes.len();
        self.total += bytes.len() as u64;
        Some(bytes)
    }

    /// Passes FIN, if it is next. Returns whether it was.
    pub(super) fn pass_end(&mut self) -> bool {
        let is_next = self.fin_at == Some(self.received.next()) && !self.has_ended;
        if is_next {
            self.received.step();
            self.has_ended = true;
        }
        is_next
    }

    /// Notes that the host has consumed bytes. Returns whether the window is to be told: the
    /// receiver's silly window syndrome [RFC 9293 §3.8.6.2.2].
    pub(super) fn consume(&mut self, bytes: usize, capacity: u16, mss: u16) -> bool {
        let step = mss.min(capacity / 2).max(1);
        let was_tight = self.window(capacity) < step;
        self.unconsumed = self.unconsumed.saturating_sub(bytes);
        was_tight && self.window(capacity) >= step
    }
}
