//! Times at which something is due, in order.

use std::collections::{BTreeMap, BTreeSet};

use umbel_engine::Instant;

/// At most one time for each key.
#[derive(Debug)]
pub(super) struct Deadlines<K> {
    at: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Deadlines<K> {
        Deadlines { at: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Sets or moves a deadline.
    pub(super) fn set(&mut self, key: K, at: Instant) {
        self.cancel(key);
        self.at.insert(key, at);
        self.order.insert((at, key));
    }

    /// Sets a deadline, unless it is earlier already.
    pub(super) fn lower(&mut self, key: K, at: Instant) {
        if self.at(key).is_none_or(|before| before > at) {
            self.set(key, at);
        }
    }

    /// Sets, moves or cancels a deadline.
    pub(super) fn put(&mut self, key: K, at: Option<Instant>) {
        match at {
            Some(at) => self.set(key, at),
            None => self.cancel(key),
        }
    }

    /// Cancels a deadline. Does nothing if there is none.
    pub(super) fn cancel(&mut self, key: K) {
        if let Some(at) = self.at.remove(&key) {
            self.order.remove(&(at, key));
        }
    }

    /// Cancels the deadlines of these keys.
    pub(super) fn cancel_all(&mut self, mut of: impl FnMut(&K) -> bool) {
        self.at.retain(|key, _| !of(key));
        self.order.retain(|(_, key)| !of(key));
    }

    /// Returns the time of a deadline.
    pub(super) fn at(&self, key: K) -> Option<Instant> {
        self.at.get(&key).copied()
    }

    /// Returns the earliest time.
    pub(super) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Cancels the earliest deadline if its time has come, and returns its key.
    pub(super) fn pop_due(&mut self, now: Instant) -> Option<K> {
        let &(at, key) = self.order.first().filter(|(at, _)| *at <= now)?;
        self.order.remove(&(at, key));
        self.at.remove(&key);
        Some(key)
    }

    /// Returns the keys whose times come until `until`, in the order of time.
    pub(super) fn until(&self, until: Instant) -> impl Iterator<Item = K> + '_ {
        self.order.iter().take_while(move |(at, _)| *at <= until).map(|(_, key)| *key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_due_comes_in_the_order_of_time_and_once() {
        let at = Instant::from_nanos;
        let mut deadlines = Deadlines::default();
        for (key, time) in [(1, 5), (2, 3), (3, 9), (1, 4), (4, 4)] {
            deadlines.set(key, at(time));
        }
        deadlines.lower(3, at(20));
        deadlines.lower(2, at(2));
        deadlines.put(4, None);
        assert_eq!((deadlines.next(), deadlines.at(3)), (Some(at(2)), Some(at(9))));
        assert_eq!(deadlines.until(at(8)).collect::<Vec<_>>(), [2, 1]);
        assert_eq!(deadlines.pop_due(at(1)), None);
        let due: Vec<u8> = std::iter::from_fn(|| deadlines.pop_due(at(8))).collect();
        assert_eq!(due, [2, 1]);
        deadlines.cancel_all(|key| *key == 3);
        assert_eq!(deadlines.next(), None);
    }
}
