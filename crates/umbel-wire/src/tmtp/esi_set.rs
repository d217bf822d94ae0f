//! Which symbols of a block.

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

    /// The symbols before this one.
    #[must_use]
    pub fn first(count: u32) -> EsiSet {
        (0..count.min(255)).collect()
    }

    /// The lowest of them.
    pub fn lowest(self) -> Option<u32> {
        self.iter().next()
    }

    /// Whether an encoding symbol ID is among them.
    pub fn contains(self, esi: u32) -> bool {
        esi < 255 && self.0[esi as usize / 64] & 1 << (esi % 64) != 0
    }

    /// How many there are.
    pub fn len(self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == [0; 4]
    }

    /// Those that are in this set or the other.
    #[must_use]
    pub fn union(self, other: EsiSet) -> EsiSet {
        EsiSet(std::array::from_fn(|i| self.0[i] | other.0[i]))
    }

    /// Those of this set that are not in the other.
    #[must_use]
    pub fn minus(self, other: EsiSet) -> EsiSet {
        EsiSet(std::array::from_fn(|i| self.0[i] & !other.0[i]))
    }

    /// All of them, ascending.
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
