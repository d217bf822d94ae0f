//! Segments that were sent to a child again, and their times.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::Instant;

/// Retransmissions of a segment that restart the time-out, at most.
const MAX_RESTARTS: u8 = 2;
/// Retransmissions of a segment that count as lost when their answer is late, while nothing is heard
/// at all. Then only the time-out, which backs off, sends it again [RFC 6298 §5.5].
const MAX_LATE: u8 = 3;
/// Retransmissions under way whose times are kept, at most. Of others a time-out finds the loss.
const MAX_TIMES: usize = 256;

/// Way of a retransmission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To the child alone, whose receiver acknowledges it in any case.
    Unicast,
    /// To the channel. The helper hands it on if the receiver lacks it.
    Multicast,
}

/// A retransmission.
#[derive(Clone, Copy, Debug)]
struct Sent {
    at: Instant,
    way: Way,
}

/// Retransmissions of a child.
#[derive(Clone, Debug)]
pub(super) struct Resent {
    /// That of the first hole.
    hole: Option<Sent>,
    /// Those of what is behind it, by position.
    times: BTreeMap<u64, Sent>,
    /// Position up to which bytes were sent more than once, or by unicast.
    end: u64,
    /// Retransmissions of the first hole that restarted the time-out.
    restarts: u8,
    /// Retransmissions of the first hole whose answer was late, since the child was heard.
    late: u8,
}

impl Resent {
    /// Creates that of a child that begins at a position.
    pub(super) fn new(at: u64) -> Resent {
        Resent { hole: None, times: BTreeMap::new(), end: at, restarts: 0, late: 0 }
    }

    /// Returns when the first hole was sent again.
    pub(super) fn hole(&self) -> Option<Instant> {
        self.hole.map(|sent| sent.at)
    }

    /// Returns when the first hole was sent again, if it is lost when its answer is late.
    pub(super) fn awaited(&self) -> Option<Instant> {
        self.hole().filter(|_| self.late < MAX_LATE)
    }

    /// Returns whether the first hole was sent again, and by multicast.
    pub(super) fn is_multicast(&self) -> bool {
        self.hole.is_some_and(|sent| sent.way == Way::Multicast)
    }

    /// Returns the position up to which bytes were sent more than once, or by unicast.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Notes that bytes up to a position are sent again, or were sent by unicast.
    pub(super) fn extend(&mut self, end: u64) {
        self.end = self.end.max(end);
    }

    /// Begins anew at a position: what is before it may have been sent more than once.
    pub(super) fn begin(&mut self, at: u64) {
        self.end = at;
    }

    /// Notes that everything before a position was acknowledged: the next hole is the first.
    pub(super) fn on_progress(&mut self, una: u64) {
        while self.times.first_key_value().is_some_and(|(&at, _)| at < una) {
            self.times.pop_first();
        }
        self.hole = self.times.get(&una).copied();
        (self.restarts, self.late) = (0, 0);
    }

    /// Notes that the child reported something, though the first hole is not filled.
    pub(super) fn on_alive(&mut self) {
        self.late = 0;
    }

    /// Notes that a run left, of a stream of which the child lacks what is from `una` on, and which
    /// is held from `start` on.
    pub(super) fn on_sent(
        &mut self,
        at: Instant,
        way: Way,
        run: &Range<u64>,
        una: u64,
        start: u64,
    ) {
        self.extend(run.end);
        let sent = Sent { at, way };
        if run.start > una && self.times.len() < MAX_TIMES {
            self.times.insert(run.start, sent);
        }
        if run.start <= una.max(start) {
            self.hole = Some(sent);
        }
    }

    /// Returns whether one more retransmission of the first hole may restart the time-out.
    pub(super) fn restarts(&mut self) -> bool {
        let may = self.restarts < MAX_RESTARTS;
        self.restarts += u8::from(may);
        may
    }

    /// Gives up waiting for the answer to the retransmission of the first hole, which is late.
    pub(super) fn on_hole_late(&mut self) {
        self.late = self.late.saturating_add(1);
        self.forget_hole();
    }

    /// Gives up waiting for the answer to the retransmission of the first hole.
    pub(super) fn forget_hole(&mut self) {
        self.hole = None;
    }

    /// Gives up waiting for answers to all.
    pub(super) fn forget(&mut self) {
        self.hole = None;
        self.times.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    #[test]
    fn the_next_hole_has_the_time_at_which_it_was_sent_again() {
        let mut resent = Resent::new(0);
        resent.on_sent(ms(1), Way::Unicast, &(0..10), 0, 0);
        resent.on_sent(ms(2), Way::Multicast, &(20..30), 0, 0);
        resent.on_sent(ms(3), Way::Unicast, &(40..50), 0, 0);
        assert_eq!((resent.hole(), resent.end()), (Some(ms(1)), 50));
        assert!(!resent.is_multicast());
        resent.on_progress(20);
        assert_eq!((resent.hole(), resent.is_multicast()), (Some(ms(2)), true));
        // This one was not sent again.
        resent.on_progress(35);
        assert_eq!(resent.hole(), None);
        resent.on_progress(40);
        assert_eq!(resent.hole(), Some(ms(3)));
    }

    #[test]
    fn times_are_bounded() {
        let mut resent = Resent::new(0);
        for n in 1..1000 {
            resent.on_sent(ms(n), Way::Unicast, &(n * 10..n * 10 + 10), 0, 0);
        }
        assert_eq!(resent.times.len(), MAX_TIMES);
        resent.on_progress(20);
        resent.on_sent(ms(2000), Way::Unicast, &(20..30), 20, 0);
        assert!((0..2).all(|_| resent.restarts()) && !resent.restarts());
        resent.on_progress(30);
        assert!(resent.restarts());
    }
}
