//! Sets of symbols of a block.

/// A set of encoding symbol IDs of one block: 0 to 254.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct EsiSet(pub(super) [u64; 4]);

impl EsiSet {
    /// Adds an encoding symbol ID; one above 254 is ignored.
    pub fn insert(&mut self, esi: u32) {
        if esi < 255 {
            self.0[esi as usize / 64] |= 1 << (esi % 64);
        }
    }

    /// Creates the set of the first `count` symbols.
    #[must_use]
    pub fn first(count: u32) -> EsiSet {
        (0..count.min(255)).collect()
    }

    /// Returns the lowest ID in the set.
    pub fn lowest(self) -> Option<u32> {
        self.iter().next()
    }

    /// Returns whether an encoding symbol ID is in the set.
    pub fn contains(self, esi: u32) -> bool {
        esi < 255 && self.0[esi as usize / 64] & 1 << (esi % 64) != 0
    }

    /// Returns the number of IDs in the set.
    pub fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// Returns the IDs that are in this set or the other.
    #[must_use]
    pub fn union(self, other: EsiSet) -> EsiSet {
        EsiSet(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Returns the IDs of this set that are not in the other.
    #[must_use]
    pub fn minus(self, other: EsiSet) -> EsiSet {
        EsiSet(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// Returns the IDs, ascending.
    pub fn iter(self) -> impl Iterator<Item = u32> {
        (0..255).filter(move |&esi| self.contains(esi))
    }
}

impl FromIterator<u32> for EsiSet {
    fn from_iter<I: IntoIterator<Item = u32>>(esis: I) -> EsiSet {
        let mut set = EsiSet::default();
        esis.into_iter().for_each(|esi| set.insert(esi));
        set
    }
}
