//! Which packets of a layer were lost, by their numbers.

use std::collections::BTreeMap;

use crate::Instant;
use crate::rlm::LossConfig;

/// Most gaps that are remembered. The oldest is forgotten first.
const GAPS: usize = 256;

/// Meaning of a packet's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    /// It is new.
    Fresh,
    /// It is new, but had been taken for lost.
    Late,
    /// It came before, or stems from before the layer was joined.
    Duplicate,
}

/// Packets missing in a row.
#[derive(Clone, Copy, Debug)]
struct Gap {
    /// One beyond the last.
    end: u64,
    /// Time at which they were found missing.
    since: Instant,
    /// Number of packets that had come by then, the one behind the gap included.
    behind: u64,
    lost: bool,
}

/// Monitor that tells the lost packets of a layer from those that come late. The first packet after
/// joining is the first that counts.
#[derive(Clone, Debug)]
pub(super) struct LossMonitor {
    config: LossConfig,
    /// One beyond the greatest number, unwrapped; `None` before the first packet.
    next: Option<u64>,
    /// Packets that came, without duplicates.
    came: u64,
    gaps: BTreeMap<u64, Gap>,
    /// Number of gaps that are not lost yet: mostly none, while many lost ones are remembered.
    open: usize,
}

impl LossMonitor {
    pub(super) fn new(config: LossConfig) -> LossMonitor {
        LossMonitor { config, next: None, came: 0, gaps: BTreeMap::new(), open: 0 }
    }

    /// Notes a packet. O(log n) in the number of gaps.
    pub(super) fn insert(&mut self, now: Instant, index: u32) -> Arrival {
        let Some(next) = self.next else {
            return self.begin(index);
        };
        let ahead = i64::from(index.wrapping_sub(next as u32) as i32);
        if ahead.unsigned_abs() > u64::from(self.config.restart_gap) {
            return self.begin(index);
        }
        let number = next.saturating_add_signed(ahead);
        if ahead < 0 {
            return self.fill(number);
        }
        self.came += 1;
        if ahead > 0 {
            let gap = Gap { end: number, since: now, behind: self.came, lost: false };
            self.gaps.insert(next, gap);
            self.open += 1;
            if self.gaps.len() > GAPS
                && let Some((_, forgotten)) = self.gaps.pop_first()
            {
                self.open -= usize::from(!forgotten.lost);
            }
        }
        self.next = Some(number + 1);
        Arrival::Fresh
    }

    /// Returns the number of packets that are lost as of now and were not before.
    pub(super) fn take_lost(&mut self, now: Instant) -> u64 {
        if self.open == 0 {
            return 0;
        }
        let mut lost = 0;
        let (came, config) = (self.came, self.config);
        for (&start, gap) in self.gaps.iter_mut().filter(|(_, gap)| !gap.lost) {
            let enough = came - gap.behind + 1 >= u64::from(config.reorder_packets);
            if enough || gap.since + config.reorder_time <= now {
                gap.lost = true;
                self.open -= 1;
                lost += gap.end - start;
            }
        }
        lost
    }

    /// Returns whether packets are missing of which it is open whether they are lost.
    pub(super) fn is_open(&self) -> bool {
        self.open > 0
    }

    /// Returns the time at which missing packets will be lost if nothing more comes.
    pub(super) fn next_timeout(&self) -> Option<Instant> {
        let waiting = self.gaps.values().rev().filter(|gap| !gap.lost).take(self.open);
        waiting.map(|gap| gap.since + self.config.reorder_time).min()
    }

    /// Begins with a packet of any number.
    fn begin(&mut self, index: u32) -> Arrival {
        // Far enough from 0 for packets that come late.
        self.next = Some((1 << 32) + u64::from(index) + 1);
        self.gaps.clear();
        self.open = 0;
        self.came += 1;
        Arrival::Fresh
    }

    /// Takes a packet out of the gap that it fills.
    fn fill(&mut self, number: u64) -> Arrival {
        let around = self.gaps.range(..=number).next_back();
        let Some((&start, &gap)) = around.filter(|(_, gap)| number < gap.end) else {
            return Arrival::Duplicate;
        };
        self.came += 1;
        self.gaps.remove(&start);
        let mut parts = 0;
        if start < number {
            self.gaps.insert(start, Gap { end: number, ..gap });
            parts += 1;
        }
        if number + 1 < gap.end {
            self.gaps.insert(number + 1, gap);
            parts += 1;
        }
        if !gap.lost {
            self.open = self.open + parts - 1;
        }
        if gap.lost { Arrival::Late } else { Arrival::Fresh }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    fn monitor() -> LossMonitor {
        LossMonitor::new(LossConfig::default())
    }

    #[test]
    fn packets_before_the_first_are_not_lost() {
        let mut monitor = monitor();
        assert_eq!(monitor.insert(at(0), 1000), Arrival::Fresh);
        assert_eq!(monitor.insert(at(0), 999), Arrival::Duplicate);
        assert_eq!((monitor.take_lost(at(9_000)), monitor.next_timeout()), (0, None));
    }

    #[test]
    fn a_gap_is_lost_after_three_more_packets_or_a_time() {
        let mut monitor = monitor();
        for index in [0, 1, 5, 6] {
            assert_eq!(monitor.insert(at(0), index), Arrival::Fresh);
        }
        assert_eq!((monitor.take_lost(at(99)), monitor.next_timeout()), (0, Some(at(100))));
        let mut later = monitor.clone();
        assert_eq!(later.take_lost(at(100)), 3);
        assert_eq!(monitor.insert(at(1), 7), Arrival::Fresh);
        assert_eq!((monitor.take_lost(at(1)), monitor.next_timeout()), (3, None));
        assert_eq!(monitor.insert(at(2), 3), Arrival::Late);
        assert_eq!(monitor.insert(at(2), 3), Arrival::Duplicate);
        assert_eq!(monitor.take_lost(at(3)), 0);
    }

    #[test]
    fn numbers_wrap_and_a_restarted_source_begins_anew() {
        let mut monitor = monitor();
        for index in [u32::MAX - 1, u32::MAX, 1, 2, 3] {
            assert_eq!(monitor.insert(at(0), index), Arrival::Fresh);
        }
        assert_eq!(monitor.take_lost(at(0)), 1);
        for index in [4_000_000, 17, 18] {
            assert_eq!(monitor.insert(at(1), index), Arrival::Fresh, "{index}");
        }
        assert_eq!(monitor.take_lost(at(500)), 0);
    }

    #[test]
    fn a_flood_of_gaps_takes_no_more_room() {
        let mut monitor = monitor();
        (0..10_000).for_each(|n| {
            monitor.insert(at(0), n * 2);
        });
        assert!(monitor.gaps.len() <= GAPS);
    }

    proptest! {
        #[test]
        fn what_comes_in_time_is_never_lost_and_what_does_not_come_always_is(
            first in any::<u32>(),
            // Whether a packet is lost, its delay within the tolerance in ms, and its copies.
            fates in prop::collection::vec((any::<bool>(), 0_u64..20, 1_usize..3), 2..200),
        ) {
            let config = LossConfig {
                reorder_packets: 1000,
                reorder_time: Duration::from_millis(50),
                restart_gap: 10_000,
            };
            let mut arrivals = Vec::new();
            let last = fates.len() - 1;
            for (n, &(lost, delay, copies)) in fates.iter().enumerate() {
                let ends = n == 0 || n == last;
                let came = n as u64 * 2 + if ends { 0 } else { delay } + if n == last { 60 } else { 0 };
                for copy in 0..copies {
                    if ends || !lost {
                        arrivals.push((came + copy as u64 * 3, first.wrapping_add(n as u32)));
                    }
                }
            }
            arrivals.sort_unstable();
            let mut monitor = LossMonitor::new(config);
            let (mut fresh, mut lost) = (0, 0);
            for (ms, index) in arrivals {
                lost += monitor.take_lost(at(ms));
                match monitor.insert(at(ms), index) {
                    Arrival::Fresh => fresh += 1,
                    Arrival::Late => prop_assert!(false, "{index} came in time"),
                    Arrival::Duplicate => {}
                }
            }
            lost += monitor.take_lost(at(1_000_000));
            let gone = fates[1..last].iter().filter(|(lost, ..)| *lost).count() as u64;
            prop_assert_eq!(lost, gone);
            prop_assert_eq!(fresh + lost, fates.len() as u64);
        }
    }
}
