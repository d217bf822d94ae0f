//! A parent's record of its children's progress.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::tmtp::{AckRun, NodeId};

use crate::Instant;
use crate::recovery::reception::Lack;

/// Most times that a child may fall back and have what it holds again count as progress. The block
/// that it stored was damaged, and is received again.
const SETBACKS: u8 = 8;
/// Most times that patience is quartered for a child whose host held up the feed before.
const STRIKES: u8 = 2;
/// Most levels of managers below a child that lengthen its parent's patience.
const MOST_LEVELS: u32 = 16;

/// Contents of an acknowledgement.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// First block that the parent guarantees and the child does not hold.
    pub(super) below: u32,
    /// Blocks that the child holds beyond, ascending. It holds nothing of a block that is in no
    /// run.
    pub(super) runs: Vec<AckRun>,
    /// The child has no room for further blocks now.
    pub(super) full: bool,
    /// Levels of managers in the child's subtree. The child itself counts if it is one with
    /// children.
    pub(super) height: u8,
}

impl Progress {
    /// Returns how much the child holds, to compare two of its acknowledgements. The blocks below
    /// count first, then those beyond. An incomplete block counts by what is missing of 255, a
    /// complete one more than any incomplete one.
    fn held(&self) -> (u32, u64) {
        let beyond = self.runs.iter().map(|run| {
            u64::from(run.run.count) * (u64::from(u8::MAX - run.lacks) + u64::from(run.lacks == 0))
        });
        (self.below, beyond.sum())
    }
}

/// Whether a child is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    /// Its progress counts for the window.
    Counts,
    /// The feed goes on without it. It may catch up.
    Passed,
    /// The feed goes on without it while its path carries much less than is sent.
    Behind,
    /// It is being dismissed.
    Evicted,
}

#[derive(Clone, Debug)]
pub(super) struct Child {
    /// First block that the parent guarantees.
    pub(super) from: u32,
    pub(super) progress: Progress,
    standing: Standing,
    /// It gets everything apart from the others.
    apart: bool,
    /// Time at which the child was last heard.
    pub(super) heard: Instant,
    /// Time at which the child last made progress, or was missing nothing.
    pub(super) progressed: Instant,
    /// Greatest height of the subtree since then. A manager that has just evicted a child of its
    /// own needs time to make progress.
    height: u8,
    /// The most that the child held since it last fell back and that counted.
    most: (u32, u64),
    /// Times that the child fell back.
    setbacks: u8,
    /// Times that its host held up the feed before.
    strikes: u8,
    /// Number of the child's last acknowledgement.
    round: Option<u32>,
    /// Round trip to the child, once it is known.
    pub(super) rtt: Option<Duration>,
    /// Share of packets that the child lost lately, 0 to 1.
    pub(super) loss: f64,
}

impl Child {
    /// Returns whether its progress counts for the window.
    pub(super) fn counts(&self) -> bool {
        self.standing == Standing::Counts
    }

    /// Returns whether its path carries much less than is sent.
    pub(super) fn is_behind(&self) -> bool {
        self.standing == Standing::Behind
    }

    /// Returns whether it gets nothing of what the others get.
    pub(super) fn is_apart(&self) -> bool {
        self.apart
    }

    /// Returns whether it made no progress for a while.
    fn is_stalled(&self, now: Instant, while_: Duration) -> bool {
        now.since(self.progressed) >= while_
    }

    /// Returns what is missing of a block; `None` if the child holds it, or if the parent does
    /// not guarantee it. O(log runs).
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

    /// Returns whether the child has acknowledged anything, however little.
    pub(super) fn has_answered(&self) -> bool {
        self.round.is_some()
    }

    /// Notes what the child holds. Only blocks that it never held count as progress, so that no
    /// child holds up the feed by missing the same block again and again.
    fn note_held(&mut self, now: Instant) {
        let held = self.progress.held();
        self.height = self.height.max(self.progress.height);
        if held > self.most {
            self.most = held;
            self.on_progress(now);
        } else if held.0 < self.most.0 && self.setbacks < SETBACKS {
            self.setbacks += 1;
            self.most = held;
        }
    }

    fn on_progress(&mut self, now: Instant) {
        self.progressed = now;
        self.height = self.progress.height;
    }
}

/// The children of a node. The cost of an acknowledgement grows with the logarithm of their
/// number.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    children: BTreeMap<NodeId, Child>,
    /// Number of children that count and have acknowledged everything before a block, by block.
    belows: BTreeMap<u32, u32>,
}

impl Children {
    /// Adds a child to which the parent guarantees all blocks from `from` on.
    pub(super) fn adopt(&mut self, now: Instant, id: NodeId, from: u32) {
        self.remove(id);
        let progress = Progress { below: from, ..Progress::default() };
        let child = Child {
            from,
            progress,
            standing: Standing::Counts,
            apart: false,
            heard: now,
            progressed: now,
            height: 0,
            most: (from, 0),
            setbacks: 0,
            strikes: 0,
            round: None,
            rtt: None,
            loss: 0.0,
        };
        self.children.insert(id, child);
        self.count(from);
    }

    /// Notes how often the host of a child held up the feed before. Otherwise it would do so again
    /// and again, for as long each time.
    pub(super) fn note_strikes(&mut self, id: NodeId, strikes: u8) {
        if let Some(child) = self.children.get_mut(&id) {
            child.strikes = strikes.min(STRIKES);
        }
    }

    /// Removes a child.
    pub(super) fn remove(&mut self, id: NodeId) -> Option<Child> {
        let child = self.children.remove(&id)?;
        if child.counts() {
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

    /// Returns a child, if it is one.
    pub(super) fn get(&self, id: NodeId) -> Option<&Child> {
        self.children.get(&id)
    }

    /// Returns the children in the order of their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NodeId, &Child)> {
        self.children.iter().map(|(&id, child)| (id, child))
    }

    /// Returns the number of children.
    pub(super) fn len(&self) -> usize {
        self.children.len()
    }

    /// Returns whether an acknowledgement of this number is a child's, and its latest so far.
    pub(super) fn is_news(&self, id: NodeId, round: u32) -> bool {
        let Some(child) = self.children.get(&id) else { return false };
        child.round.is_none_or(|last| round.wrapping_sub(last).cast_signed() > 0)
    }

    /// Handles an acknowledgement and its number. Returns `false` if it is no child's.
    pub(super) fn acknowledge(
        &mut self,
        now: Instant,
        id: NodeId,
        round: u32,
        progress: Progress,
    ) -> bool {
        let Some(child) = self.children.get_mut(&id) else { return false };
        let below = child.from.max(progress.below);
        let (old, counts) = (child.progress.below, child.counts());
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

    /// Notes how many packets a child has received and lost.
    pub(super) fn note_loss(&mut self, id: NodeId, received: u32, lost: u32) {
        let all = f64::from(received) + f64::from(lost);
        if let Some(child) = self.children.get_mut(&id).filter(|_| all > 0.0) {
            // More packets count more.
            let weight = (all / 256.0).clamp(0.02, 0.5);
            child.loss += weight * (f64::from(lost) / all - child.loss);
        }
    }

    /// Notes a measured round trip to a child. Returns whether it is the first one.
    pub(super) fn measure(&mut self, id: NodeId, rtt: Duration) -> bool {
        let Some(child) = self.children.get_mut(&id) else { return false };
        let before = child.rtt.replace(child.rtt.map_or(rtt, |old| (old * 7 + rtt) / 8));
        before.is_none()
    }

    /// Returns the round trip to the farthest child. O(n).
    pub(super) fn farthest(&self) -> Option<Duration> {
        self.children.values().filter_map(|child| child.rtt).max()
    }

    /// Returns the first block that not every child that counts has acknowledged; `None` if none
    /// counts.
    pub(super) fn acked_below(&self) -> Option<u32> {
        self.belows.first_key_value().map(|(&below, _)| below)
    }

    /// Counts as progress that children are not missing anything that could be sent to them.
    pub(super) fn excuse(&mut self, now: Instant, excused: impl Fn(&Child) -> bool) {
        for child in self.children.values_mut().filter(|child| excused(child)) {
            child.on_progress(now);
        }
    }

    /// Returns whether some children that count made no progress for `while_`, and others did.
    pub(super) fn are_some_stalled(&self, now: Instant, while_: Duration) -> bool {
        let counted = || self.children.values().filter(|child| child.counts());
        counted().any(|child| child.is_stalled(now, while_))
            && counted().any(|child| !child.is_stalled(now, while_))
    }

    /// Passes over children that made no progress for `while_`: they no longer count. O(n).
    pub(super) fn pass_over(&mut self, now: Instant, while_: Duration) {
        let stalled =
            |(_, child): &(&NodeId, &Child)| child.counts() && child.is_stalled(now, while_);
        let stalled: Vec<NodeId> =
            self.children.iter().filter(stalled).map(|(&id, _)| id).collect();
        for id in stalled {
            self.stand(id, Standing::Passed);
        }
    }

    /// Lets children count again that were passed over, have acknowledged something and caught up
    /// with those that count. O(n).
    pub(super) fn take_back(&mut self, now: Instant, while_: Duration) {
        let least = self.acked_below().unwrap_or(0);
        let caught_up = |(_, child): &(&NodeId, &Child)| {
            child.standing == Standing::Passed
                && child.has_answered()
                && child.progress.below >= least
                && !child.is_stalled(now, while_)
        };
        let back: Vec<NodeId> = self.children.iter().filter(caught_up).map(|(&id, _)| id).collect();
        for id in back {
            self.stand(id, Standing::Counts);
        }
    }

    /// Goes on without a child until it has caught up.
    pub(super) fn pass(&mut self, id: NodeId) {
        self.stand(id, Standing::Passed);
    }

    /// Goes on without a child while its path carries much less than is sent.
    pub(super) fn set_behind(&mut self, now: Instant, id: NodeId, behind: bool) {
        let Some(child) = self.children.get_mut(&id) else { return };
        let is_fixed = child.standing == Standing::Evicted || child.apart;
        if !is_fixed && child.is_behind() != behind {
            child.on_progress(now);
            self.stand(id, if behind { Standing::Behind } else { Standing::Counts });
        }
    }

    /// Notes that a child gets everything apart from the others. The feed goes on without it,
    /// unless it `counts`.
    pub(super) fn serve_apart(&mut self, id: NodeId, counts: bool) {
        if let Some(child) = self.children.get_mut(&id) {
            child.apart = true;
        }
        if !counts {
            self.stand(id, Standing::Behind);
        }
    }

    /// Counts as progress what a child that is served apart holds.
    pub(super) fn note_progress(&mut self, now: Instant, id: NodeId) {
        if let Some(child) = self.children.get_mut(&id) {
            child.on_progress(now);
        }
    }

    fn stand(&mut self, id: NodeId, standing: Standing) {
        let Some(child) = self.children.get_mut(&id) else { return };
        let (counted, below) = (child.counts(), child.progress.below);
        child.standing = standing;
        match (counted, standing == Standing::Counts) {
            (true, false) => self.uncount(below),
            (false, true) => self.count(below),
            _ => {}
        }
    }

    /// Evicts children that made no progress for `patience`. It adds the same for each level of
    /// managers in their subtree, as a manager waits for its own children first. Hosts that held up
    /// the feed before are given a quarter, then a sixteenth. Evicted children no longer count.
    /// O(n).
    pub(super) fn evict(&mut self, now: Instant, patience: Duration) -> Vec<NodeId> {
        let slow = |child: &Child| {
            let levels = u32::from(child.height).min(MOST_LEVELS) + 1;
            let patience = patience.saturating_mul(levels) / (1 << (2 * child.strikes));
            child.standing != Standing::Evicted && child.is_stalled(now, patience)
        };
        let evicted: Vec<NodeId> =
            self.children.iter().filter(|(_, child)| slow(child)).map(|(&id, _)| id).collect();
        for &id in &evicted {
            self.stand(id, Standing::Evicted);
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

    /// Acknowledges with ascending numbers.
    fn acknowledge(children: &mut Children, ms: u64, id: u64, progress: Progress) {
        children.acknowledge(at(ms), NodeId(id), ms as u32, progress);
    }

    #[test]
    fn who_held_up_the_feed_before_is_waited_for_less_long() {
        for (strikes, patience_ms) in [(0, 1_600), (1, 400), (2, 100), (9, 100)] {
            let mut children = Children::default();
            children.adopt(at(0), NodeId(1), 0);
            children.note_strikes(NodeId(1), strikes);
            let patience = Duration::from_millis(1_600);
            assert_eq!(children.evict(at(patience_ms - 1), patience), []);
            assert_eq!(children.evict(at(patience_ms), patience), [NodeId(1)]);
        }
    }

    #[test]
    fn whoever_does_not_get_on_is_evicted_once_its_own_children_would_have_been() {
        let mut children = Children::default();
        for id in 1..=3 {
            children.adopt(at(0), NodeId(id), 0);
        }
        acknowledge(&mut children, 10, 1, below(0));
        acknowledge(&mut children, 10, 2, Progress { height: 1, ..below(0) });
        // The child has evicted its last child.
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

    #[test]
    fn whoever_is_passed_over_counts_again_once_it_has_caught_up() {
        let mut children = Children::default();
        for id in 1..=2 {
            children.adopt(at(0), NodeId(id), 0);
        }
        let a_while = Duration::from_millis(100);
        assert!(!children.are_some_stalled(at(100), a_while), "nobody gets on");
        acknowledge(&mut children, 90, 2, below(7));
        assert!(children.are_some_stalled(at(100), a_while));
        children.pass_over(at(100), a_while);
        assert_eq!(children.acked_below(), Some(7));
        acknowledge(&mut children, 101, 1, below(6));
        children.take_back(at(110), a_while);
        assert_eq!(children.acked_below(), Some(7));
        acknowledge(&mut children, 111, 1, below(9));
        acknowledge(&mut children, 112, 2, below(11));
        children.take_back(at(113), a_while);
        assert_eq!(children.acked_below(), Some(11), "it is behind again");
        acknowledge(&mut children, 114, 1, below(12));
        children.take_back(at(115), a_while);
        acknowledge(&mut children, 116, 2, below(20));
        assert_eq!(children.acked_below(), Some(12));
        // A child that never catches up is evicted like others.
        children.pass(NodeId(1));
        let patience = Duration::from_millis(500);
        assert_eq!(children.evict(at(615), patience), [NodeId(1)]);
    }

    proptest! {
        #[test]
        fn the_least_is_the_least(
            steps in prop::collection::vec((0_u8..6, 0_u64..5, 0_u32..30), 1..80)
        ) {
            let mut children = Children::default();
            for (at_ms, (kind, id, block)) in (0_u64..).zip(steps) {
                match kind {
                    0 => children.adopt(at(at_ms), NodeId(id), block),
                    1 => drop(children.remove(NodeId(id))),
                    2 => drop(children.evict(at(at_ms), Duration::from_millis(20))),
                    4 => children.pass_over(at(at_ms), Duration::from_millis(9)),
                    5 => children.take_back(at(at_ms), Duration::from_millis(9)),
                    _ => acknowledge(&mut children, at_ms, id, below(block)),
                }
                let least = children.iter().filter(|(_, child)| child.counts());
                let least = least.map(|(_, child)| child.progress.below).min();
                prop_assert_eq!(children.acked_below(), least);
            }
        }
    }
}
