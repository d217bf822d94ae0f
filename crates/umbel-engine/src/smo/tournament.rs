//! The least of many values that change one at a time.

/// Value of a seat that is empty.
const NONE: u64 = u64::MAX;

/// A value for each seat, and the least of them. A tree of winners: a change costs O(log n) at
/// most, and ends where it no longer changes the winner.
#[derive(Clone, Debug)]
pub(super) struct Tournament {
    /// Number of leaves, a power of two. Node 1 is the root; leaf `n` is node `leaves + n`.
    leaves: usize,
    tree: Vec<u64>,
}

impl Default for Tournament {
    fn default() -> Tournament {
        Tournament { leaves: 1, tree: vec![NONE; 2] }
    }
}

impl Tournament {
    /// Sets the value of a seat, or clears it.
    pub(super) fn put(&mut self, seat: usize, value: Option<u64>) {
        if seat >= self.leaves {
            self.grow(seat);
        }
        let mut node = self.leaves + seat;
        self.tree[node] = value.unwrap_or(NONE);
        while node > 1 {
            let winner = self.tree[node].min(self.tree[node ^ 1]);
            node /= 2;
            if self.tree[node] == winner {
                break;
            }
            self.tree[node] = winner;
        }
    }

    fn grow(&mut self, seat: usize) {
        let leaves = (seat + 1).next_power_of_two();
        let mut tree = vec![NONE; 2 * leaves];
        tree[leaves..leaves + self.leaves].copy_from_slice(&self.tree[self.leaves..]);
        for node in (1..leaves).rev() {
            tree[node] = tree[2 * node].min(tree[2 * node + 1]);
        }
        *self = Tournament { leaves, tree };
    }

    /// Returns the value of a seat.
    pub(super) fn at(&self, seat: usize) -> Option<u64> {
        self.tree.get(self.leaves + seat).copied().filter(|&value| value != NONE)
    }

    /// Returns the least value.
    pub(super) fn least(&self) -> Option<u64> {
        Some(self.tree[1]).filter(|&value| value != NONE)
    }

    /// Returns the first seat that has the least value.
    pub(super) fn winner(&self) -> Option<usize> {
        let least = self.least()?;
        let mut node = 1;
        while node < self.leaves {
            node *= 2;
            if self.tree[node] != least {
                node += 1;
            }
        }
        Some(node - self.leaves)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_winner_is_the_first_of_the_least(
            changes in prop::collection::vec((0_usize..40, prop::option::of(0_u64..9)), 0..80),
        ) {
            let (mut tree, mut model) = (Tournament::default(), [None; 40]);
            for (seat, value) in changes {
                tree.put(seat, value);
                model[seat] = value;
                let least = model.iter().flatten().min().copied();
                prop_assert_eq!(tree.least(), least);
                let first = model.iter().position(|value| value.is_some() && *value == least);
                prop_assert_eq!(tree.winner(), first);
                prop_assert_eq!(tree.at(seat), value);
            }
        }
    }
}
