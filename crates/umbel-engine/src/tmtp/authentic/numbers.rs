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
/// Most senders whose numbers are remembered.
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
    senders: BTreeMap<NodeId, Seen>,
}

impl Numbers {
    /// Creates those of a node in a feed of this source.
    pub(super) fn new(own: NodeId, source: NodeId) -> Numbers {
        Numbers { own, source, last: 0, clock: None, senders: BTreeMap::new() }
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

    /// Takes the number of a message, once.
    ///
    /// # Errors
    ///
    /// If it was taken before, or is too old to know.
    pub(super) fn take(
        &mut self,
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
        if self.senders.len() >= MAX_SENDERS && !self.senders.contains_key(&message.sender) {
            self.forget_a_sender();
        }
        let seen = self.senders.entry(message.sender).or_default();
        if !seen.is_fresh(number) {
            return Err(DropReason::Replayed);
        }
        let latest = number > seen.last();
        seen.note(number);
        if by_source {
            if latest {
                self.clock = Some((said, now));
            }
        } else if let Body::Beacon(beacon) = &message.body {
            self.learn_time(now, beacon.standing.epoch);
        }
        Ok(())
    }

    /// Learns from another node that the source's clock was so far.
    pub(super) fn learn_time(&mut self, now: Instant, epoch: u64) {
        if self.time(now).is_none_or(|time| epoch > time) {
            self.clock = Some((epoch, now));
        }
    }

    /// Forgets the sender that was not heard for longest. O(n).
    fn forget_a_sender(&mut self) {
        let oldest = self.senders.iter().min_by_key(|(_, seen)| seen.last()).map(|(id, _)| *id);
        if let Some(oldest) = oldest {
            self.senders.remove(&oldest);
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
}
