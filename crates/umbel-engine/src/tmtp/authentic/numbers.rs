//! Numbers of messages, each of which is taken once, and the time that is in those under the tree
//! key.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::tmtp::{Body, Message, NodeId};

use crate::Instant;
use crate::tmtp::drops::DropReason;

/// Number of messages of one sender that may come in any order.
const REMEMBERED: usize = 32;
/// Age from which messages under the tree key are refused.
const STALE: Duration = Duration::from_secs(30);
/// Bits of a number under the tree key below its milliseconds.
const PER_MS: u32 = 20;
/// Most senders whose numbers are remembered, but for the source. Of two halves the older one is
/// forgotten at once, so that this costs little however often others come.
const MAX_SENDERS: usize = 1 << 16;

/// Numbers of one sender that were seen. They may leap, unlike those of sealed packets, whose
/// window is a row of bits (`seal`).
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Smaller ones are too old to know.
    floor: u64,
    recent: Vec<u64>,
}

impl Seen {
    pub(super) fn is_fresh(&self, number: u64) -> bool {
        number >= self.floor && self.recent.binary_search(&number).is_err()
    }

    pub(super) fn note(&mut self, number: u64) {
        if let Err(place) = self.recent.binary_search(&number) {
            self.recent.insert(place, number);
        }
        if self.recent.len() > REMEMBERED {
            self.floor = self.recent.remove(0).saturating_add(1);
        }
    }

    fn last(&self) -> u64 {
        self.recent.last().copied().unwrap_or(self.floor)
    }
}

/// Numbers under the tree key, of all senders.
#[derive(Debug)]
pub(super) struct Numbers {
    own: NodeId,
    source: NodeId,
    /// Last number of this node.
    last: u64,
    /// The source's clock in milliseconds, at a time.
    clock: Option<(u64, Instant)>,
    /// Only the source is believed about its clock, since anyone may take part.
    open: bool,
    by_source: Seen,
    senders: BTreeMap<NodeId, Seen>,
    /// Those that were not heard since there were [`MAX_SENDERS`] / 2 of them.
    earlier: BTreeMap<NodeId, Seen>,
}

impl Numbers {
    /// Creates those of a node in a feed of this source.
    pub(super) fn new(own: NodeId, source: NodeId, open: bool) -> Numbers {
        Numbers {
            own,
            source,
            last: 0,
            clock: None,
            open,
            by_source: Seen::default(),
            senders: BTreeMap::new(),
            earlier: BTreeMap::new(),
        }
    }

    /// Returns the number of this node's next message.
    pub(super) fn next(&mut self, now: Instant) -> u64 {
        let time = self.time(now).unwrap_or(0) << PER_MS;
        self.last = time.max(self.last.saturating_add(1));
        self.last
    }

    /// Returns the time by the source's clock in milliseconds, as far as it is known.
    fn time(&self, now: Instant) -> Option<u64> {
        if self.source == self.own {
            return Some(1 + now.as_nanos() / 1_000_000);
        }
        let (ms, at) = self.clock?;
        let passed = u64::try_from(now.since(at).as_millis()).unwrap_or(u64::MAX);
        Some(ms.saturating_add(passed))
    }

    /// Checks that the number of a message was not taken, and is not too old to know.
    ///
    /// # Errors
    ///
    /// If it was, or is.
    pub(super) fn check(
        &self,
        now: Instant,
        message: &Message,
        number: u64,
    ) -> Result<(), DropReason> {
        let said = number >> PER_MS;
        let timeless = said == 0 && may_be_timeless(&message.body);
        let by_source = message.sender == self.source;
        if let Some(time) = self.time(now)
            && !timeless
            && !by_source
            && said.saturating_add(STALE.as_millis() as u64) < time
        {
            return Err(DropReason::Stale);
        }
        let known = if by_source {
            Some(&self.by_source)
        } else {
            self.senders.get(&message.sender).or_else(|| self.earlier.get(&message.sender))
        };
        if known.is_none_or(|seen| seen.is_fresh(number)) {
            Ok(())
        } else {
            Err(DropReason::Replayed)
        }
    }

    /// Takes the number of an authentic message, which was [checked](Numbers::check).
    pub(super) fn take(&mut self, now: Instant, message: &Message, number: u64) {
        if message.sender == self.source {
            let latest = number > self.by_source.last();
            self.by_source.note(number);
            if latest {
                self.clock = Some((number >> PER_MS, now));
            }
            return;
        }
        self.seen(message.sender).note(number);
        if let Body::Beacon(beacon) = &message.body {
            self.learn_time(now, message.sender, beacon.standing.epoch);
        }
    }

    /// Returns the numbers of a sender that were seen.
    fn seen(&mut self, sender: NodeId) -> &mut Seen {
        if self.senders.len() >= MAX_SENDERS / 2 && !self.senders.contains_key(&sender) {
            self.earlier = std::mem::take(&mut self.senders);
        }
        let earlier = &mut self.earlier;
        self.senders.entry(sender).or_insert_with(|| earlier.remove(&sender).unwrap_or_default())
    }

    /// Learns from a node that the source's clock was so far. Where anyone may take part, only the
    /// source is believed.
    pub(super) fn learn_time(&mut self, now: Instant, by: NodeId, epoch: u64) {
        let believed = !self.open || by == self.source;
        if believed && self.time(now).is_none_or(|time| epoch > time) {
            self.clock = Some((epoch, now));
        }
    }
}

/// Returns whether a message of a node that has not heard the source's clock is taken.
fn may_be_timeless(body: &Body) -> bool {
    matches!(body, Body::Search(_) | Body::JoinRequest(_) | Body::Fetch { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_may_come_in_another_order_and_once() {
        let mut seen = Seen::default();
        let order = (0..200_u64).map(|n| n ^ 7);
        for number in order {
            assert!(seen.is_fresh(number), "{number}");
            seen.note(number);
            assert!(!seen.is_fresh(number));
        }
        assert!((0..200).all(|number| !seen.is_fresh(number)));
        assert!(seen.recent.len() <= REMEMBERED);
    }

    fn search(sender: u64) -> Message {
        let body = Body::LeaveConfirm { nonce: 1 };
        Message { feed: umbel_wire::Tsi(1), sender: NodeId(sender), body }
    }

    #[test]
    fn ten_times_as_many_senders_take_no_more_memory_and_the_source_is_not_forgotten() {
        let now = Instant::EPOCH;
        let mut numbers = Numbers::new(NodeId(2), NodeId(1), true);
        numbers.take(now, &search(1), 7);
        for sender in 0..10 * MAX_SENDERS as u64 {
            let message = search(10 + sender);
            assert_eq!(numbers.check(now, &message, 5), Ok(()));
            numbers.take(now, &message, 5);
            assert_eq!(numbers.check(now, &message, 5), Err(DropReason::Replayed));
        }
        assert!(numbers.senders.len() + numbers.earlier.len() <= MAX_SENDERS);
        let last = search(9 + 10 * MAX_SENDERS as u64 - MAX_SENDERS as u64 / 4);
        assert_eq!(numbers.check(now, &last, 5), Err(DropReason::Replayed), "half are remembered");
        assert_eq!(numbers.check(now, &search(1), 7), Err(DropReason::Replayed));
    }

    #[test]
    fn in_an_open_feed_only_the_source_tells_its_time() {
        let at = |ms| Instant::EPOCH + Duration::from_millis(ms);
        for (open, by, believed) in [(true, 3, false), (true, 1, true), (false, 3, true)] {
            let mut numbers = Numbers::new(NodeId(2), NodeId(1), open);
            numbers.learn_time(at(0), NodeId(by), 1 << 40);
            let stale = numbers.check(at(1), &search(4), 1 << PER_MS).is_err();
            assert_eq!(stale, believed, "{open} {by}");
        }
    }
}
