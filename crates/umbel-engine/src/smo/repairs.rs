//! Retransmissions of a master, gathered until it is known how many children lack a segment
//! [SMO §II-E].

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use crate::Instant;

/// Number of multicast retransmissions that are remembered.
const MAX_RECENT: usize = 4096;

/// A segment that some children lack.
#[derive(Clone, Debug)]
struct Wanted {
    end: u64,
    since: Instant,
    is_many: bool,
    children: Vec<u32>,
}

/// A retransmission that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Repair {
    /// To the channel, for these children.
    Multicast(Range<u64>, Vec<u32>),
    /// To each of these children.
    Unicast(Range<u64>, Vec<u32>),
}

/// The retransmissions of a master.
#[derive(Clone, Debug, Default)]
pub(super) struct Repairs {
    wanted: BTreeMap<u64, Wanted>,
    /// When each began to be wanted, in the order of time. Some are no longer wanted.
    queue: VecDeque<(Instant, u64)>,
    /// Segments that enough children want.
    many: VecDeque<u64>,
    /// Multicast lately, by position: the end, and when.
    recent: BTreeMap<u64, (u64, Instant)>,
}

impl Repairs {
    /// Notes that a child lacks a run, at most a segment. If more than `threshold` children do, and
    /// at least two, it is due at once. Returns when the run was multicast, if that may still be on
    /// its way to a child to which it takes `rtt`.
    pub(super) fn want(
        &mut self,
        now: Instant,
        child: u32,
        run: &Range<u64>,
        rtt: Duration,
        threshold: f64,
    ) -> Option<Instant> {
        if let Some((_, &(end, at))) = self.recent.range(..=run.start).next_back()
            && end >= run.end
            && now < at + rtt
        {
            return Some(at);
        }
        let queue = &mut self.queue;
        let wanted = self.wanted.entry(run.start).or_insert_with(|| {
            queue.push_back((now, run.start));
            Wanted { end: run.end, since: now, is_many: false, children: Vec::new() }
        });
        wanted.end = wanted.end.max(run.end);
        if !wanted.children.contains(&child) {
            wanted.children.push(child);
        }
        let count = wanted.children.len();
        if !wanted.is_many && count >= 2 && count as f64 > threshold {
            wanted.is_many = true;
            self.many.push_back(run.start);
        }
        None
    }

    /// Takes the next retransmission that is due: wanted by enough children, or since `gather`.
    pub(super) fn next(&mut self, now: Instant, gather: Duration) -> Option<Repair> {
        while let Some(start) = self.many.pop_front() {
            let Some(wanted) = self.wanted.remove(&start) else { continue };
            self.recent.insert(start, (wanted.end, now));
            if self.recent.len() > MAX_RECENT {
                self.recent.pop_first();
            }
            return Some(Repair::Multicast(start..wanted.end, wanted.children));
        }
        while let Some((since, start)) = self.queue.pop_front_if(|(at, _)| *at + gather <= now) {
            if self.wanted.get(&start).is_some_and(|wanted| wanted.since == since)
                && let Some(wanted) = self.wanted.remove(&start)
            {
                return Some(Repair::Unicast(start..wanted.end, wanted.children));
            }
        }
        None
    }

    /// Returns when the next retransmission is due.
    pub(super) fn due(&self, gather: Duration) -> Option<Instant> {
        if self.many.is_empty() {
            self.queue.front().map(|(since, _)| *since + gather)
        } else {
            Some(Instant::EPOCH)
        }
    }

    /// Forgets which bytes before this position were multicast. Wishes for them stay until they are
    /// due, so that the children can be told that they are gone.
    pub(super) fn release(&mut self, trail: u64) {
        while self.recent.first_key_value().is_some_and(|(_, &(end, _))| end <= trail) {
            self.recent.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::ms;

    const GATHER: Duration = Duration::from_millis(5);
    const RTT: Duration = Duration::from_millis(20);

    #[test]
    fn a_segment_that_few_lack_goes_to_each_when_the_time_is_over() {
        let mut repairs = Repairs::default();
        for child in [1, 2, 2] {
            assert_eq!(repairs.want(ms(0), child, &(10..20), RTT, 2.0), None);
        }
        assert_eq!(repairs.next(ms(4), GATHER), None);
        assert_eq!(repairs.due(GATHER), Some(ms(5)));
        let repair = repairs.next(ms(5), GATHER);
        assert_eq!(repair, Some(Repair::Unicast(10..20, vec![1, 2])));
        assert_eq!((repairs.due(GATHER), repairs.next(ms(9), GATHER)), (None, None));
    }

    #[test]
    fn a_segment_that_many_lack_is_multicast_at_once_and_not_again_within_the_round_trip() {
        let mut repairs = Repairs::default();
        for child in 0..3 {
            repairs.want(ms(0), child, &(10..20), RTT, 2.0);
        }
        let repair = repairs.next(ms(0), GATHER);
        assert_eq!(repair, Some(Repair::Multicast(10..20, vec![0, 1, 2])));
        assert_eq!(repairs.want(ms(19), 4, &(10..20), RTT, 2.0), Some(ms(0)));
        assert_eq!(repairs.want(ms(20), 4, &(10..20), RTT, 2.0), None);
        repairs.release(20);
        // Nobody is left in the dark.
        let repair = repairs.next(ms(30), GATHER);
        assert_eq!(repair, Some(Repair::Unicast(10..20, vec![4])));
        assert_eq!((repairs.next(ms(30), GATHER), repairs.due(GATHER)), (None, None));
    }

    #[test]
    fn a_single_child_is_never_served_by_multicast() {
        let mut repairs = Repairs::default();
        repairs.want(ms(0), 1, &(10..20), RTT, 0.0);
        assert_eq!(repairs.next(ms(5), GATHER), Some(Repair::Unicast(10..20, vec![1])));
    }
}
