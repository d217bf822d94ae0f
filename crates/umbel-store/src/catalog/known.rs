//! Digests of source blocks that were computed before.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;

use umbel_wire::{Digest, Toi};

/// Greatest number of digests that are kept: 32 MiB. Those of the item that was first asked for go
/// first.
const MOST: usize = 1 << 20;

/// Digests of the first blocks of items.
#[derive(Debug, Default)]
pub(super) struct KnownDigests {
    items: HashMap<Toi, Vec<Digest>>,
    order: VecDeque<Toi>,
    held: usize,
}

impl KnownDigests {
    /// Returns the digests of these blocks if all of them are known.
    pub(super) fn get(&self, toi: Toi, blocks: Range<u32>) -> Option<Vec<Digest>> {
        let digests = self.items.get(&toi)?;
        Some(digests.get(blocks.start as usize..blocks.end as usize)?.to_vec())
    }

    /// Keeps the digests of blocks from `first` on, if those before them are known.
    pub(super) fn put(&mut self, toi: Toi, first: u32, digests: &[Digest]) {
        let known = self.items.entry(toi).or_insert_with(|| {
            self.order.push_back(toi);
            Vec::new()
        });
        if known.len() == first as usize && known.len() + digests.len() <= MOST {
            known.extend_from_slice(digests);
            self.held += digests.len();
        }
        while self.held > MOST
            && let Some(oldest) = self.order.pop_front()
        {
            self.held -= self.items.remove(&oldest).map_or(0, |digests| digests.len());
        }
        if self.items.get(&toi).is_some_and(Vec::is_empty) {
            self.items.remove(&toi);
            self.order.retain(|&other| other != toi);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_kept_from_the_first_block_on_and_ten_times_as_many_as_there_is_room_for_are_not()
    {
        let digests = |n: u8, count| vec![Digest([n; 32]); count];
        let mut known = KnownDigests::default();
        known.put(Toi(1), 5, &digests(1, 3));
        assert_eq!(known.get(Toi(1), 5..8), None);
        known.put(Toi(1), 0, &digests(1, 3));
        known.put(Toi(1), 3, &digests(2, 3));
        assert_eq!(known.get(Toi(1), 2..4), Some(vec![Digest([1; 32]), Digest([2; 32])]));
        assert_eq!(known.get(Toi(1), 2..7), None);
        for toi in 2..42 {
            known.put(Toi(toi), 0, &digests(3, MOST / 4));
            assert!(known.held <= MOST && known.items.len() <= 4);
            assert!(known.get(Toi(toi), 0..MOST as u32 / 4).is_some());
        }
        known.put(Toi(50), 0, &digests(4, 10 * MOST));
        assert_eq!(known.get(Toi(50), 0..1), None);
        assert_eq!(known.order.len(), known.items.len());
    }
}
