//! The index of the RxW rule.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use umbel_wire::Toi;

use super::heap::Ranking;
use super::requests::Requests;
use crate::Instant;

/// Items that are not held, in classes of equal R, each ordered by the oldest request.
///
/// The best item of a class is its first, so a choice compares one item for each R that occurs. It
/// walks them from the greatest R down, and stops where R times the longest wait of all is below
/// the best product so far. This is the bound of Aksoy and Franklin's RxW. With n requests there
/// are at most √(2n) classes.
#[derive(Clone, Debug)]
pub(super) struct WaitingIndex {
    classes: BTreeMap<u32, BTreeSet<(Instant, Toi)>>,
    /// Place of each item, by its slot.
    standing: Vec<Option<(u32, Instant, Toi)>>,
    oldest: Ranking<Reverse<Instant>>,
}

impl WaitingIndex {
    pub(super) const fn new() -> WaitingIndex {
        let classes = BTreeMap::new();
        WaitingIndex { classes, standing: Vec::new(), oldest: Ranking::new() }
    }

    /// Updates an item whose requests or hold have changed.
    pub(super) fn update(&mut self, requests: &Requests, item: u32) {
        let entry = requests.item(item);
        let first = requests.of_item(item).next().filter(|_| !entry.held);
        let standing =
            first.map(|first| (entry.requesters, requests.request(first).since, entry.toi));
        if self.standing.len() <= item as usize {
            self.standing.resize(item as usize + 1, None);
        }
        let old = std::mem::replace(&mut self.standing[item as usize], standing);
        if old == standing {
            return;
        }
        if let Some((requesters, since, toi)) = old
            && let Some(class) = self.classes.get_mut(&requesters)
        {
            class.remove(&(since, toi));
            if class.is_empty() {
                self.classes.remove(&requesters);
            }
        }
        if let Some((requesters, since, toi)) = standing {
            self.classes.entry(requesters).or_default().insert((since, toi));
        }
        self.oldest.set(item, standing.map(|(_, since, _)| Reverse(since)));
    }

    pub(super) fn choose(&self, now: Instant) -> Option<Toi> {
        let age = |since: Instant| u128::from(now.as_nanos() - since.as_nanos());
        let longest = age(self.oldest.top()?.0.0);
        let mut best: Option<(u128, Reverse<Toi>)> = None;
        for (&requesters, class) in self.classes.iter().rev() {
            let requesters = u128::from(requesters);
            if best.is_some_and(|(product, _)| requesters * longest < product) {
                break;
            }
            if let Some(&(since, toi)) = class.first() {
                best = best.max(Some((requesters * age(since), Reverse(toi))));
            }
        }
        best.map(|(_, Reverse(toi))| toi)
    }
}
