//! Requests that cross the reply [LMS §III-A].
//!
//! A request that comes after the reply may be late, or may be repeated because the reply was lost.
//! Requestors number their requests, and the replier remembers its latest replies:
//!
//! - A first request for a unit is late if the place was answered, or if the replier has heard a
//!   repair of that unit itself. That repair has passed the requestor. Since the requestor may be
//!   much farther from the source, this holds for a time that covers the longest round trip.
//! - A further request is late if the place was answered within the *ignore period* of about one
//!   round trip.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::lms::TurningPoint;

use crate::Instant;

/// Destination of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Place {
    /// The subtree below an interface of a router.
    Subtree(SocketAddr, u32),
    /// One requestor.
    Host(SocketAddr),
    /// All members, or at least those that hear the same packets as this one.
    Everyone,
}

impl Place {
    pub(crate) fn of(turning_point: &TurningPoint) -> Place {
        Place::Subtree(turning_point.router, turning_point.interface)
    }
}

/// Times for which requests are ignored after a reply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IgnorePeriods {
    /// For requests of any number.
    pub(crate) any: Duration,
    /// For first requests.
    pub(crate) first: Duration,
}

/// The latest replies.
#[derive(Clone, Debug)]
pub(crate) struct LateRequests {
    limit: usize,
    replies: BTreeMap<(u64, Place), Instant>,
    /// The replies in the order of time, each as often as it was sent.
    order: VecDeque<(u64, Place, Instant)>,
}

impl LateRequests {
    /// Creates a memory of at most `limit` replies.
    pub(crate) fn new(limit: usize) -> LateRequests {
        LateRequests { limit, replies: BTreeMap::new(), order: VecDeque::new() }
    }

    /// Notes a reply for a unit, sent to a place or overheard there.
    pub(crate) fn on_reply(&mut self, now: Instant, sequence: u64, place: Place) {
        self.replies.insert((sequence, place), now);
        self.order.push_back((sequence, place, now));
        while self.order.len() > self.limit {
            let Some((sequence, place, at)) = self.order.pop_front() else { return };
            if self.replies.get(&(sequence, place)) == Some(&at) {
                self.replies.remove(&(sequence, place));
            }
        }
    }

    /// Returns whether a request has crossed a reply.
    pub(crate) fn is_late(
        &self,
        now: Instant,
        sequence: u64,
        place: Place,
        number: u8,
        ignore: IgnorePeriods,
    ) -> bool {
        let is_within = |place, period| {
            self.replies.get(&(sequence, place)).is_some_and(|&at| now - at < period)
        };
        let is_first = number == 1;
        is_within(place, ignore.any)
            || is_first && is_within(place, ignore.first)
            || is_first && is_within(Place::Everyone, ignore.first)
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.replies.len().max(self.order.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IGNORE: IgnorePeriods =
        IgnorePeriods { any: Duration::from_millis(100), first: Duration::from_millis(500) };

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn place(interface: u32) -> Place {
        Place::Subtree("10.0.0.1:7702".parse().unwrap(), interface)
    }

    #[test]
    fn what_was_answered_is_ignored_for_a_while() {
        let mut late = LateRequests::new(10);
        late.on_reply(ms(0), 7, place(1));
        assert!(late.is_late(ms(99), 7, place(1), 1, IGNORE));
        assert!(late.is_late(ms(99), 7, place(1), 2, IGNORE));
        assert!(!late.is_late(ms(100), 7, place(1), 2, IGNORE));
        assert!(late.is_late(ms(499), 7, place(1), 1, IGNORE));
        assert!(!late.is_late(ms(1), 7, place(2), 1, IGNORE));
        assert!(!late.is_late(ms(1), 8, place(1), 1, IGNORE));
    }

    #[test]
    fn a_first_request_after_a_repair_that_all_heard_is_late_and_a_second_is_not() {
        let mut late = LateRequests::new(10);
        late.on_reply(ms(0), 7, Place::Everyone);
        assert!(late.is_late(ms(499), 7, place(1), 1, IGNORE));
        assert!(!late.is_late(ms(50), 7, place(1), 2, IGNORE));
        assert!(!late.is_late(ms(500), 7, place(1), 1, IGNORE));
    }

    #[test]
    fn only_the_latest_replies_are_remembered() {
        let mut late = LateRequests::new(4);
        for n in 0..100 {
            late.on_reply(ms(n), n / 2, place(1));
            assert!(late.len() <= 4);
        }
        assert!(late.is_late(ms(99), 49, place(1), 1, IGNORE));
        assert!(late.is_late(ms(99), 48, place(1), 1, IGNORE));
        assert!(!late.is_late(ms(99), 47, place(1), 1, IGNORE));
    }
}
