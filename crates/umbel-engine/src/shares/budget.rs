//! An amount of which each host may have as much as it leaves free.

use std::collections::BTreeMap;

use super::Origin;

/// An amount of something, shared among hosts.
///
/// A host may have as much as it leaves free for others. So one alone has half of it, and where two
/// take what they get, there is a third for the next: however many there are, something is left
/// [Choudhury, Hahne 1998].
#[derive(Clone, Debug)]
pub struct Budget {
    limit: usize,
    all: usize,
    each: BTreeMap<Origin, usize>,
}

impl Budget {
    /// Creates a budget of this amount.
    pub fn new(limit: usize) -> Budget {
        Budget { limit, all: 0, each: BTreeMap::new() }
    }

    /// Takes an amount if a host may have it. Returns whether it may.
    pub fn take(&mut self, origin: Origin, amount: usize) -> bool {
        let of = self.each.get(&origin).copied().unwrap_or(0).saturating_add(amount);
        let all = self.all.saturating_add(amount);
        let may = all.saturating_add(of) <= self.limit;
        if may && amount > 0 {
            self.all = all;
            self.each.insert(origin, of);
        }
        may
    }

    /// Gives back what a host has taken.
    pub fn give(&mut self, origin: Origin, amount: usize) {
        let Some(of) = self.each.get_mut(&origin) else { return };
        let amount = amount.min(*of);
        *of -= amount;
        self.all -= amount;
        if *of == 0 {
            self.each.remove(&origin);
        }
    }

    /// Returns whether nothing is taken.
    pub fn is_empty(&self) -> bool {
        self.each.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(number: u8) -> Origin {
        Origin::of([192, 0, 2, number].into())
    }

    #[test]
    fn who_takes_all_it_can_leaves_something_for_the_next() {
        let mut budget = Budget::new(1_200);
        let mut take = |number| (0..12_000).filter(|_| budget.take(host(number), 1)).count();
        assert_eq!([1, 2, 3].map(&mut take), [600, 300, 150]);
        budget.give(host(1), 700);
        let mut take = |number| (0..12_000).filter(|_| budget.take(host(number), 1)).count();
        assert_eq!(take(4), 375);
        assert!(!budget.take(host(5), 1_201) && budget.take(host(5), 0));
        for (number, all) in [(2, 300), (3, 150), (4, 375)] {
            budget.give(host(number), all);
        }
        assert!(budget.is_empty());
    }

    proptest! {
        #[test]
        fn no_host_has_more_than_it_leaves(
            limit in 0_usize..200,
            steps in prop::collection::vec((any::<bool>(), 0_u8..5, 0_usize..80), 0..100),
        ) {
            let mut budget = Budget::new(limit);
            let mut plain = [0_usize; 5];
            for (takes, number, amount) in steps {
                let of = &mut plain[usize::from(number)];
                if !takes {
                    budget.give(host(number), amount);
                    *of -= amount.min(*of);
                } else if budget.take(host(number), amount) {
                    *of += amount;
                    let (of, all) = (*of, plain.iter().sum::<usize>());
                    prop_assert!(of <= limit - all);
                } else {
                    *of += amount;
                    let (of, all) = (*of, plain.iter().sum::<usize>());
                    prop_assert!(of + all > limit, "refused for nothing");
                    plain[usize::from(number)] -= amount;
                }
                prop_assert_eq!(budget.all, plain.iter().sum::<usize>());
            }
        }
    }
}
