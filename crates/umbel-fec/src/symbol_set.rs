//! The set of the source symbols of a block.

/// A set of the source symbols of one block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SymbolSet {
    words: Vec<u64>,
    len: u32,
    count: u32,
}

impl SymbolSet {
    /// Creates a set with none of `len` symbols. Allocates `len / 8` bytes: check a `len` from the
    /// network first.
    pub fn new(len: u32) -> SymbolSet {
        SymbolSet { words: vec![0; len.div_ceil(64) as usize], len, count: 0 }
    }

    /// Creates a set with all of `len` symbols.
    pub fn full(len: u32) -> SymbolSet {
        let mut set =
            SymbolSet { words: vec![u64::MAX; len.div_ceil(64) as usize], len, count: len };
        if let Some(last) = set.words.last_mut()
            && !len.is_multiple_of(64)
        {
            *last = (1 << (len % 64)) - 1;
        }
        set
    }

    /// Adds a symbol. Returns `false` if it is already in the set or is not one of the block's.
    pub fn insert(&mut self, esi: u32) -> bool {
        let fresh = esi < self.len && !self.contains(esi);
        if fresh {
            self.words[(esi / 64) as usize] |= 1 << (esi % 64);
            self.count += 1;
        }
        fresh
    }

    /// Removes a symbol. Returns `false` if it is not in the set.
    pub fn remove(&mut self, esi: u32) -> bool {
        let there = self.contains(esi);
        if there {
            self.words[(esi / 64) as usize] &= !(1 << (esi % 64));
            self.count -= 1;
        }
        there
    }

    /// Returns whether the symbol is in the set; `false` for one that is not of the block.
    pub fn contains(&self, esi: u32) -> bool {
        esi < self.len && self.words[(esi / 64) as usize] >> (esi % 64) & 1 == 1
    }

    /// Returns the number of source symbols of the block, in the set or not.
    pub fn len(&self) -> u32 {
        self.len
    }

    /// Returns whether the block has no symbols at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of symbols in the set.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Returns whether every symbol is in the set.
    pub fn is_full(&self) -> bool {
        self.count == self.len
    }

    /// Returns the symbols that are not in the set, ascending.
    pub fn missing(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.len).filter(|&esi| !self.contains(esi))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_each_symbol_once() {
        let mut set = SymbolSet::new(70);
        assert!(set.insert(69));
        assert!(!set.insert(69));
        assert!(!set.insert(70), "not a symbol of the block");
        assert_eq!((set.count(), set.len()), (1, 70));
        assert!(set.remove(69));
        assert!(!set.remove(69));
        assert_eq!(set.count(), 0);
    }

    #[test]
    fn a_full_set_misses_nothing() {
        for len in [0, 1, 63, 64, 65, 128, 255] {
            let mut set = SymbolSet::full(len);
            assert!(set.is_full());
            assert_eq!(set.missing().count(), 0);
            for esi in 0..len {
                assert!(set.remove(esi));
            }
            assert_eq!(set, SymbolSet::new(len));
            assert!(set.missing().eq(0..len));
        }
    }
}
