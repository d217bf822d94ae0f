//! Data units kept for repairs.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

/// Data units by source and sequence number. Beyond the bounds, the oldest units are evicted.
#[derive(Clone, Debug)]
pub struct History<S> {
    max_units: usize,
    max_bytes: usize,
    units: BTreeMap<(S, u64), Bytes>,
    /// Units in the order in which they came.
    order: VecDeque<(S, u64)>,
    bytes: usize,
}

impl<S: Copy + Ord> History<S> {
    /// Creates an empty history that holds at most this number of units and bytes of payload.
    pub fn new(max_units: usize, max_bytes: usize) -> History<S> {
        History { max_units, max_bytes, units: BTreeMap::new(), order: VecDeque::new(), bytes: 0 }
    }

    /// Keeps a unit, unless it is kept already or can never fit. O(log n).
    pub fn insert(&mut self, source: S, sequence: u64, payload: Bytes) {
        let never_fits = self.max_units == 0 || payload.len() > self.max_bytes;
        if never_fits || self.units.contains_key(&(source, sequence)) {
            return;
        }
        while self.units.len() == self.max_units || self.bytes + payload.len() > self.max_bytes {
            self.drop_oldest();
        }
        self.bytes += payload.len();
        self.units.insert((source, sequence), payload);
        self.order.push_back((source, sequence));
    }

    fn drop_oldest(&mut self) {
        let oldest = self.order.pop_front().expect("a history that is full is not empty");
        if let Some(payload) = self.units.remove(&oldest) {
            self.bytes -= payload.len();
        }
    }

    /// Returns a unit, if it is still kept. O(log n).
    pub fn get(&self, source: S, sequence: u64) -> Option<&Bytes> {
        self.units.get(&(source, sequence))
    }

    /// Returns the lowest sequence number that is kept of a source. O(log n).
    pub fn lowest(&self, source: S) -> Option<u64> {
        self.units.range((source, 0)..=(source, u64::MAX)).next().map(|(&(_, n), _)| n)
    }

    /// Forgets all units of a source. O(n).
    pub fn forget(&mut self, source: S) {
        self.order.retain(|&(s, _)| s != source);
        let bytes = &mut self.bytes;
        self.units.retain(|&(s, _), payload| {
            if s == source {
                *bytes -= payload.len();
            }
            s != source
        });
    }

    /// Returns the number of units kept.
    pub fn len(&self) -> usize {
        self.units.len()
    }

    /// Returns whether nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.units.is_empty()
    }

    /// Returns the number of bytes of payload kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_oldest_unit_makes_room() {
        let mut history = History::new(2, 1000);
        for (source, sequence) in [('a', 0), ('b', 0), ('a', 1)] {
            history.insert(source, sequence, Bytes::from_static(b"unit"));
        }
        assert!(history.get('a', 0).is_none());
        assert_eq!(history.lowest('a'), Some(1));
        assert_eq!(history.get('b', 0), Some(&Bytes::from_static(b"unit")));
        assert_eq!((history.len(), history.bytes()), (2, 8));
    }

    #[test]
    fn a_unit_that_can_never_fit_drives_nothing_out() {
        let mut history = History::new(10, 10);
        history.insert('a', 0, Bytes::from_static(b"0123456789"));
        history.insert('a', 1, Bytes::from_static(b"0123456789+"));
        assert_eq!(history.lowest('a'), Some(0));
        let mut nothing = History::new(0, 10);
        nothing.insert('a', 0, Bytes::new());
        assert!(nothing.is_empty());
    }

    #[test]
    fn a_source_that_is_forgotten_leaves_nothing() {
        let mut history = History::new(10, 100);
        history.insert('a', 0, Bytes::from_static(b"one"));
        history.insert('b', 0, Bytes::from_static(b"other"));
        history.forget('a');
        assert_eq!((history.len(), history.bytes(), history.lowest('a')), (1, 5, None));
    }

    proptest! {
        #[test]
        fn keeps_the_newest_units_that_fit(
            units in prop::collection::vec((0_u8..3, 0_u64..30, 0_usize..12), 0..100)
        ) {
            let mut history = History::new(7, 40);
            // The newest at the back, as the history should hold them.
            let mut model: Vec<((u8, u64), usize)> = Vec::new();
            for (source, sequence, len) in units {
                history.insert(source, sequence, Bytes::from(vec![0; len]));
                if model.iter().all(|&(name, _)| name != (source, sequence)) {
                    model.push(((source, sequence), len));
                    while model.len() > 7 || model.iter().map(|u| u.1).sum::<usize>() > 40 {
                        model.remove(0);
                    }
                }
                prop_assert_eq!(history.len(), model.len());
                prop_assert_eq!(history.bytes(), model.iter().map(|u| u.1).sum::<usize>());
                for &((source, sequence), len) in &model {
                    prop_assert_eq!(history.get(source, sequence).map(Bytes::len), Some(len));
                }
            }
        }
    }
}
