//! Heaps whose entries can be found again, moved and removed.

use super::requests::NONE;

/// A binary heap of ids with keys, the greatest first. The caller owns a vector with the place of
/// each id, so that many heaps can share one. The place is [`NONE`] for ids in no heap. All changes
/// cost O(log n).
#[derive(Clone, Debug)]
pub(super) struct Heap<K> {
    entries: Vec<(K, u32)>,
}

impl<K: Copy + Ord> Heap<K> {
    pub(super) const fn new() -> Heap<K> {
        Heap { entries: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn top(&self) -> Option<(K, u32)> {
        self.entries.first().copied()
    }

    /// Enters `id`, or changes its key.
    pub(super) fn set(&mut self, places: &mut [u32], id: u32, key: K) {
        let place = places[id as usize];
        if place == NONE {
            self.entries.push((key, id));
            self.rise(places, self.entries.len() - 1);
        } else {
            let place = place as usize;
            let old = std::mem::replace(&mut self.entries[place].0, key);
            if key > old {
                self.rise(places, place);
            } else {
                self.sink(places, place);
            }
        }
    }

    /// Removes `id`, which must be in this heap.
    pub(super) fn remove(&mut self, places: &mut [u32], id: u32) {
        let place = places[id as usize] as usize;
        places[id as usize] = NONE;
        let (removed, _) = self.entries.swap_remove(place);
        if let Some(&(key, _)) = self.entries.get(place) {
            if key > removed {
                self.rise(places, place);
            } else {
                self.sink(places, place);
            }
        }
    }

    fn rise(&mut self, places: &mut [u32], mut place: usize) {
        let entry = self.entries[place];
        while place > 0 {
            let parent = (place - 1) / 2;
            if entry.0 <= self.entries[parent].0 {
                break;
            }
            self.put(places, place, self.entries[parent]);
            place = parent;
        }
        self.put(places, place, entry);
    }

    fn sink(&mut self, places: &mut [u32], mut place: usize) {
        let entry = self.entries[place];
        loop {
            let mut child = 2 * place + 1;
            if child >= self.entries.len() {
                break;
            }
            if child + 1 < self.entries.len() && self.entries[child + 1].0 > self.entries[child].0 {
                child += 1;
            }
            if self.entries[child].0 <= entry.0 {
                break;
            }
            self.put(places, place, self.entries[child]);
            place = child;
        }
        self.put(places, place, entry);
    }

    fn put(&mut self, places: &mut [u32], place: usize, entry: (K, u32)) {
        self.entries[place] = entry;
        places[entry.1 as usize] = place as u32;
    }
}

/// A [`Heap`] with places of its own.
#[derive(Clone, Debug)]
pub(super) struct Ranking<K> {
    heap: Heap<K>,
    places: Vec<u32>,
}

impl<K: Copy + Ord> Ranking<K> {
    pub(super) const fn new() -> Ranking<K> {
        Ranking { heap: Heap::new(), places: Vec::new() }
    }

    pub(super) fn top(&self) -> Option<(K, u32)> {
        self.heap.top()
    }

    /// Enters `id`, changes its key, or removes it if there is no key.
    pub(super) fn set(&mut self, id: u32, key: Option<K>) {
        if self.places.len() <= id as usize {
            self.places.resize(id as usize + 1, NONE);
        }
        match key {
            Some(key) => self.heap.set(&mut self.places, id, key),
            None if self.places[id as usize] != NONE => self.heap.remove(&mut self.places, id),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_top_is_the_greatest_of_what_is_in(
            changes in prop::collection::vec((0u32..30, prop::option::of(0u32..100)), 0..300),
        ) {
            let mut ranking = Ranking::new();
            let mut model = BTreeMap::new();
            for (id, key) in changes {
                ranking.set(id, key);
                match key {
                    Some(key) => model.insert(id, key),
                    None => model.remove(&id),
                };
                prop_assert_eq!(ranking.top().map(|(key, _)| key), model.values().max().copied());
                prop_assert!(ranking.top().is_none_or(|(key, id)| model[&id] == key));
            }
        }
    }
}
