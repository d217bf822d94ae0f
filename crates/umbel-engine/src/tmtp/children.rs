//! What a parent knows of its children's progress.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::tmtp::{AckRun, NodeId};

use super::reception::Lack;
use crate::Instant;

/// How often a child may fall back and have what it holds again count as progress: what it stored
/// was damaged, and is received once more.
const SETBACKS: u8 = 8;
/// Levels of managers below a child that lengthen its parent's patience.
const MOST_LEVELS: u32 = 16;

/// What an acknowledgement says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// The child holds every block before this that its parent is to see to.
    pub(super) below: u32,
    /// What it holds beyond, ascending; of a block that is in no run it holds nothing.
    pub(super) runs: Vec<AckRun>,
    /// It has no room for further blocks now.
    pub(super) full: bool,
    /// Levels of managers in its subtree, itself included if it is one with children.
    pub(super) height: u8,
}

impl Progress {
    /// How much the child holds, so that two of its acknowledgements compare: first the blocks
    /// below, then what it holds beyond. An incomplete block counts by what it lacks of 255, a
    /// complete one as more than any incomplete one.
    fn held(&self) -> (u32, u64) {
        let beyond = self.runs.iter().map(|run| {
            u64::from(run.run.count) * (u64::from(u8::MAX - run.lacks) + u64::from(run.lacks == 0))
        });
        (self.below, beyond.sum())
    }
}

/// A child.
#[derive(Clone, Debug)]
pub(super) struct Child {
    /// The first block that its parent is to see to.
    pub(super) from: u32,
    pub(super) progress: Progress,
    /// Whether its progress counts for the window.
    pub(super) counts: bool,
    /// When it was heard last.
    pub(super) heard: Instant,
    /// When it was seen to get on, or lacked nothing.
    pub(super) got_on: Instant,
    /// Greatest height of its subtree since then: who has just evicted a child of its own needs
    /// time to get on.
    height: u8,
    /// The most that it held, since it fell back for the last time that counted.
    most: (u32, u64),
    /// How often it fell back.
    setbacks: u8,
    /// Number of its last acknowledgement.
    round: Option<u32>,
    /// The round trip to it, once it is known.
    pub(super) rtt: Option<Duration>,
    /// The share of packets that it lost lately, 0 to 1.
    pub(super) loss: f64,
}

impl Child {
    /// How much the child lacks of a block; `None` if it holds it, or if the block is not its
    /// parent's to see to. O(log runs).
    pub(super) fn lack(&self, block: u32) -> Option<Lack> {
        if block < self.progress.below.max(self.from) {
            return None;
        }
        let after = self.progress.runs.partition_point(|run| run.run.first <= block);
        let run = after.checked_sub(1).and_then(|at| self.progress.runs.get(at));
        match run.filter(|run| block < run.run.end()).map(|run| run.lacks) {
            Some(0) => None,
            Some(lacks) => Some(Lack::Count(lacks)),
            None => Some(Lack::Whole),
        }
    }

    /// Notes what it says that it holds. Only what it never held counts as getting on, so that
    /// nobody holds up the feed by lacking the same block again and again.
    fn note_held(&mut self, now: Instant) {
        let held = self.progress.held();
        self.height = self.height.max(self.progress.height);
        if held > self.most {
            self.most = held;
            self.get_on(now);
        } else if held.0 < self.most.0 && self.setbacks < SETBACKS {
            self.setbacks += 1;
            self.most = held;
        }
    }

    fn get_on(&mut self, now: Instant) {
        self.got_on = now;
        self.height = self.progress.height;
    }
}

/// The children of a node. What one acknowledgement costs grows with the logarithm of their number.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    children: BTreeMap<NodeId, Child>,
    /// How many of those that count have acknowledged everything before a block.
    belows: BTreeMap<u32, u32>,
}

impl Children {
    /// Takes a child, whose parent sees to all blocks from `from` on.
    pub(super) fn adopt(&mut self, now: Instant, id: NodeId, from: u32) {
        self.remove(id);
        let progress = Progress { below: from, ..Progress::default() };
        let child = Child {
            from,
            progress,
            counts: true,
            heard: now,
            got_on: now,
            height: 0,
            most: (from, 0),
            setbacks: 0,
            round: None,
            rtt: None,
            loss: 0.0,
        };
        self.children.insert(id, child);
        self.count(from);
    }

    /// Lets a child go.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<Child> {
        let child = self.children.remove(&id)?;
        if child.counts {
            self.uncount(child.progress.below);
        }
        Some(child)
    }

    fn count(&mut self, below: u32) {
        *self.belows.entry(below).or_insert(0) += 1;
    }

    fn uncount(&mut self, below: u32) {
        if let Some(count) = self.belows.get_mut(&below) {
            *count -= 1;
            if *count == 0 {
                self.belows.remove(&below);
            }
        }
    }

    /// A child, if it is one.
    pub(super) fn get(&self, id: NodeId) -> Option<&Child> {
        self.children.get(&id)
    }

    /// The children in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Child)> {
        self.children.iter().map(|(&id, child)| (id, child))
    }

    /// How many children there are.
    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// Returns whether an acknowledgement of this number is a child's, and its latest so far.
    pub(super) fn is_news(&self, id: NodeId, round: u32) -> bool {
        let Some(child) = self.children.get(&id) else { return false };
        child.round.is_none_or(|last| round.wrapping_sub(last).cast_signed() > 0)
    }

    /// Takes an acknowledgement and its number. Returns `false` if it is no child's.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        id: NodeId,
        round: u32,
        progress: Progress,
    ) -> bool {
        let Some(child) = self.children.get_mut(&id) else { return false };
        let below = child.from.max(progress.below);
        let (old, counts) = (child.progress.below, child.counts);
        child.progress = Progress { below, ..progress };
        child.round = Some(round);
        child.heard = now;
        child.note_held(now);
        if counts && below != old {
            self.uncount(old);
            self.count(below);
        }
        true
    }

    /// A child has received so many packets and lost so many.
    pub(super) fn note_loss(&mut self, id: NodeId, received: u32, lost: u32) {
        let all = f64::from(received) + f64::from(lost);
        if let Some(child) = self.children.get_mut(&id).filter(|_| all > 0.0) {
            // What says more counts more.
            let weight = (all / 256.0).clamp(0.02, 0.5);
            child.loss += weight * (f64::from(lost) / all - child.loss);
        }
    }

    /// The round trip to a child was measured. Gives whether for the first time.
    pub(super) fn measure(&mut self, id: NodeId, rtt: Duration) -> bool {
        let Some(child) = self.children.get_mut(&id) else { return false };
        let before = child.rtt.replace(child.rtt.map_or(rtt, |old| (old * 7 + rtt) / 8));
        before.is_none()
    }

    /// The round trip to the farthest child. O(n).
    pub(super) fn farthest(&self) -> Option<Duration> {
        self.children.values().filter_map(|child| child.rtt).max()
    }

    /// Every child that counts has acknowledged all blocks before this; `None` if none counts.
    pub(super) fn acked_below(&self) -> Option<u32> {
        self.belows.first_key_value().map(|(&below, _)| below)
    }

    /// The child is seen not to lack what could be sent to it.
    pub(super) fn excuse(&mut self, now: Instant, excused: impl Fn(&Child) -> bool) {
        for child in self.children.values_mut().filter(|child| child.counts && excused(child)) {
            child.get_on(now);
        }
    }

    /// Children that count and have not got on for `patience`, and once more for each level of
    /// managers in their subtree: a manager waits for its own children first. They no longer
    /// count. O(n).
    pub(super) fn evict(&mut self, now: Instant, patience: Duration) -> Vec<NodeId> {
        let slow = |child: &Child| {
            let levels = u32::from(child.height).min(MOST_LEVELS) + 1;
            child.counts && now.since(child.got_on) >= patience.saturating_mul(levels)
        };
        let evicted: Vec<NodeId> =
            self.children.iter().filter(|(_, child)| slow(child)).map(|(&id, _)| id).collect();
        for id in &evicted {
            if let Some(child) = self.children.get_mut(id) {
                child.counts = false;
                let below = child.progress.below;
                self.uncount(below);
            }
        }
        evicted
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use umbel_wire::tmtp::BlockRun;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn below(below: u32) -> Progress {
        Progress { below, ..Progress::default() }
    }

    #[test]
    fn a_child_lacks_what_no_run_has_and_what_runs_say() {
        let mut children = Children::default();
        children.adopt(at(0), NodeId(1), 5);
        let run = |first, count, lacks| AckRun { run: BlockRun { first, count }, lacks };
        let runs = vec![run(8, 2, 0), run(12, 1, 3)];
        acknowledge(&mut children, 1, 1, Progress { runs, ..below(7) });
        let child = children.get(NodeId(1)).unwrap();
        let lacks = |block| match child.lack(block) {
            None => 0,
            Some(Lack::Count(count)) => count,
            Some(_) => u8::MAX,
        };
        let all: Vec<u8> = (4..14).map(lacks).collect();
        let whole = u8::MAX;
        assert_eq!(all, [0, 0, 0, whole, 0, 0, whole, whole, 3, whole]);
    }

    #[test]
    fn what_all_have_acknowledged_is_the_least_of_those_that_count() {
        let mut children = Children::default();
        assert_eq!(children.acked_below(), None);
        for (id, from) in [(1, 0), (2, 10), (3, 0)] {
            children.adopt(at(0), NodeId(id), from);
        }
        acknowledge(&mut children, 1, 1, below(20));
        acknowledge(&mut children, 1, 3, below(15));
        assert_eq!(children.acked_below(), Some(10));
        children.remove(NodeId(2));
        assert_eq!(children.acked_below(), Some(15));
        assert!(!children.acknowledge(at(1), NodeId(2), 1, below(1)));
        // A child that joins anew begins anew.
        children.adopt(at(2), NodeId(3), 18);
        assert_eq!(children.acked_below(), Some(18));
    }

    /// Gives the children acknowledgements of ascending numbers.
    fn acknowledge(children: &mut Children, ms: u64, id: u64, progress: Progress) {
        children.acknowledge(at(ms), NodeId(id), ms as u32, progress);
    }

    #[test]
    fn whoever_does_not_get_on_is_evicted_once_its_own_children_would_have_been() {
        let mut children = Children::default();
        for id in 1..=3 {
            children.adopt(at(0), NodeId(id), 0);
        }
        acknowledge(&mut children, 10, 1, below(0));
        acknowledge(&mut children, 10, 2, Progress { height: 1, ..below(0) });
        // It has evicted its last child.
        acknowledge(&mut children, 98, 2, below(0));
        acknowledge(&mut children, 60, 3, below(1));
        let patience = Duration::from_millis(100);
        assert_eq!(children.evict(at(99), patience), []);
        assert_eq!(children.evict(at(100), patience), [NodeId(1)]);
        assert_eq!(children.evict(at(159), patience), []);
        children.excuse(at(160), |child| child.progress.below == 1);
        assert_eq!(children.evict(at(200), patience), [NodeId(2)]);
        assert_eq!((children.acked_below(), children.len()), (Some(1), 3));
        children.remove(NodeId(1));
        assert_eq!(children.acked_below(), Some(1));
    }

    #[test]
    fn a_child_that_lacks_the_same_again_and_again_does_not_get_on() {
        let run = |first, count, lacks| AckRun { run: BlockRun { first, count }, lacks };
        let part = |lacks| Progress { runs: vec![run(0, 1, lacks)], ..below(0) };
        let toggles: [[Progress; 2]; 3] = [
            [part(3), part(2)],
            [Progress { runs: vec![run(5, 3, 0)], ..below(2) }, below(2)],
            [below(7), below(9)],
        ];
        let patience = Duration::from_millis(100);
        for toggle in toggles {
            let mut children = Children::default();
            children.adopt(at(0), NodeId(1), 0);
            let evicted = (1..10_000).find(|&ms| {
                acknowledge(&mut children, ms, 1, toggle[ms as usize / 90 % 2].clone());
                !children.evict(at(ms), patience).is_empty()
            });
            assert!(evicted.is_some_and(|ms| ms < 2_000), "{toggle:?}: {evicted:?}");
        }
    }

    #[test]
    fn what_was_damaged_and_is_received_again_counts_as_progress() {
        let mut children = Children::default();
        children.adopt(at(0), NodeId(1), 0);
        let patience = Duration::from_millis(100);
        let mut ms = 0;
        for _ in 0..SETBACKS {
            for block in 0..20 {
                ms += 90;
                acknowledge(&mut children, ms, 1, below(block));
                assert_eq!(children.evict(at(ms), patience), [], "at {ms}");
            }
        }
    }

    proptest! {
        #[test]
        fn the_least_is_the_least(
            steps in prop::collection::vec((0_u8..4, 0_u64..5, 0_u32..30), 1..80)
        ) {
            let mut children = Children::default();
            for (at_ms, (kind, id, block)) in (0_u64..).zip(steps) {
                match kind {
                    0 => children.adopt(at(at_ms), NodeId(id), block),
                    1 => drop(children.remove(NodeId(id))),
                    2 => drop(children.evict(at(at_ms), Duration::from_millis(20))),
                    _ => acknowledge(&mut children, at_ms, id, below(block)),
                }
                let least = children.iter().filter(|(_, child)| child.counts);
                let least = least.map(|(_, child)| child.progress.below).min();
                prop_assert_eq!(children.acked_below(), least);
            }
        }
    }
}
