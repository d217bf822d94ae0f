//! Puts the packets of a layer into the order of their sequence numbers.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use umbel_engine::Instant;

/// Most packets that wait for one before them.
const HELD: usize = 1024;
/// Least jump of a sequence number that begins a new sequence [RFC 3550 A.1].
const JUMP: u16 = 3_000;

/// A packet on its way to the player.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Packet {
    pub(super) ssrc: u32,
    pub(super) sequence: u16,
    pub(super) bytes: Bytes,
}

/// The packets of one layer that wait for those before them, within bounds.
#[derive(Debug)]
pub(super) struct Order {
    wait: Duration,
    /// Synchronization source, and the number that comes next, unwrapped; `None` before the first
    /// packet.
    next: Option<(u32, u64)>,
    /// Packets by their unwrapped numbers, with the times of their arrival. Those of a sequence
    /// that ended have numbers below the next.
    held: BTreeMap<u64, (Instant, Packet)>,
}

impl Order {
    /// Creates the order of a layer whose packets wait so long for missing ones.
    pub(super) fn new(wait: Duration) -> Order {
        Order { wait, next: None, held: BTreeMap::new() }
    }

    /// Takes a packet. Returns whether it came in time.
    pub(super) fn insert(&mut self, now: Instant, packet: Packet) -> bool {
        let (_, next) = match self.next {
            Some((ssrc, next)) if ssrc == packet.ssrc => (ssrc, next),
            _ => self.begin(&packet),
        };
        let ahead = packet.sequence.wrapping_sub(next as u16);
        let behind = ahead.wrapping_neg();
        let number = if ahead < JUMP {
            next + u64::from(ahead)
        } else if behind < JUMP {
            return false;
        } else {
            self.begin(&packet).1
        };
        self.held.entry(number).or_insert((now, packet));
        true
    }

    /// Begins a sequence with a packet. Waiting packets are of the sequence before, and go first.
    fn begin(&mut self, packet: &Packet) -> (u32, u64) {
        let last = self.held.last_key_value().map(|(number, _)| number + 1);
        let after = last.max(self.next.map(|(_, next)| next)).unwrap_or(0);
        // The least number from there on that ends in this sequence number.
        let next = after + u64::from(packet.sequence.wrapping_sub(after as u16));
        self.next = Some((packet.ssrc, next));
        (packet.ssrc, next)
    }

    /// Returns the next packet that is due.
    pub(super) fn pop(&mut self, now: Instant) -> Option<Packet> {
        let (&number, (since, _)) = self.held.first_key_value()?;
        let (_, next) = self.next.as_mut()?;
        let full = self.held.len() > HELD;
        if number > *next && !full && now < *since + self.wait {
            return None;
        }
        *next = (*next).max(number + 1);
        self.held.pop_first().map(|(_, (_, packet))| packet)
    }

    /// Returns the next packet, whatever is missing before it.
    pub(super) fn pop_now(&mut self) -> Option<Packet> {
        let (number, (_, packet)) = self.held.pop_first()?;
        if let Some((_, next)) = &mut self.next {
            *next = (*next).max(number + 1);
        }
        Some(packet)
    }

    /// Returns the time at which a packet is due although one before it is missing.
    pub(super) fn next(&self) -> Option<Instant> {
        self.held.first_key_value().map(|(_, (since, _))| *since + self.wait)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn packet(ssrc: u32, sequence: u16) -> Packet {
        Packet { ssrc, sequence, bytes: Bytes::new() }
    }

    fn order() -> Order {
        Order::new(Duration::from_millis(50))
    }

    fn pop(order: &mut Order, now: Instant) -> Vec<u16> {
        std::iter::from_fn(|| order.pop(now)).map(|packet| packet.sequence).collect()
    }

    #[test]
    fn packets_wait_for_those_before_them_and_not_for_ever() {
        let mut order = order();
        assert!(order.insert(at(0), packet(1, 65_534)));
        assert!(order.insert(at(1), packet(1, 0)));
        assert_eq!(pop(&mut order, at(1)), [65_534]);
        assert_eq!(order.next(), Some(at(51)));
        assert!(order.insert(at(2), packet(1, 65_535)));
        assert_eq!(pop(&mut order, at(2)), [65_535, 0]);
        assert!(order.insert(at(3), packet(1, 3)));
        assert!(order.insert(at(4), packet(1, 4)));
        assert!(pop(&mut order, at(52)).is_empty());
        assert_eq!(pop(&mut order, at(53)), [3, 4]);
        assert!(!order.insert(at(54), packet(1, 2)), "it comes too late");
        assert_eq!(order.next(), None);
    }

    #[test]
    fn a_jump_or_another_source_begins_a_new_sequence_after_what_waits() {
        let mut order = order();
        order.insert(at(0), packet(1, 10));
        assert_eq!(pop(&mut order, at(0)), [10]);
        order.insert(at(1), packet(1, 12));
        order.insert(at(2), packet(1, 40_000));
        order.insert(at(3), packet(1, 40_001));
        assert_eq!(pop(&mut order, at(3)), [12, 40_000, 40_001]);
        order.insert(at(4), packet(2, 40_000));
        order.insert(at(4), packet(2, 40_002));
        assert_eq!(pop(&mut order, at(4)), [40_000]);
        assert_eq!(order.pop_now(), Some(packet(2, 40_002)));
        assert!(!order.insert(at(5), packet(2, 40_001)));
    }

    #[test]
    fn a_flood_of_gaps_takes_no_more_room() {
        let mut order = order();
        for n in 0..5_000_u16 {
            order.insert(at(0), packet(1, n * 2));
            pop(&mut order, at(0));
            assert!(order.held.len() <= HELD);
        }
    }

    proptest! {
        #[test]
        fn what_comes_out_of_one_sequence_rises(
            steps in prop::collection::vec((0_u16..200, 0_u64..20), 1..300),
        ) {
            let (mut order, mut now, mut last) = (order(), 0, None::<u16>);
            order.insert(at(0), packet(1, 65_500));
            for (ahead, ms) in steps {
                now += ms;
                let near = last.unwrap_or(65_500).wrapping_sub(20);
                order.insert(at(now), packet(1, near.wrapping_add(ahead)));
                for sequence in pop(&mut order, at(now)) {
                    if let Some(last) = last {
                        let step = sequence.wrapping_sub(last);
                        prop_assert!(step > 0 && step < JUMP, "{last} and then {sequence}");
                    }
                    last = Some(sequence);
                }
                prop_assert!(order.next().is_none_or(|next| next > at(now)));
            }
        }
    }
}
