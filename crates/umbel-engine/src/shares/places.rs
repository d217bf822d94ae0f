//! Places that are shared among links first, and on each link among hosts.
//!
//! When all are taken, the link that has most gives one up for a link that has fewer, and on a link
//! the host that has most. What goes is what its host [used](Places::renew) longest ago. So hosts of
//! one link take nothing from another link, under however many addresses they speak.

use std::collections::BTreeMap;

use super::{Full, Origin, Shares};

/// Places, by key. Each is of a host on a link `L`.
#[derive(Clone, Debug)]
pub struct Places<L, K> {
    most: usize,
    share: usize,
    links: BTreeMap<L, Shares<K>>,
    owners: BTreeMap<K, L>,
}

impl<L: Copy + Ord, K: Copy + Ord> Places<L, K> {
    /// Creates `most` places, of which an IPv4 address has at most `share`.
    pub fn new(most: usize, share: usize) -> Places<L, K> {
        Places { most, share, links: BTreeMap::new(), owners: BTreeMap::new() }
    }

    /// Takes a place for a host on a link, unless the key has one. Returns the key that lost its
    /// place for it.
    ///
    /// # Errors
    ///
    /// If there is no place, and none is given up.
    pub fn enter(&mut self, link: L, host: Origin, key: K) -> Result<Option<K>, Full> {
        if self.owners.contains_key(&key) {
            return Ok(None);
        }
        let mine = self.of(link);
        let has = self.links.get(&link).map_or(0, |of| of.of(host));
        if has >= host.places(self.share) {
            return Err(Full::Host);
        }
        let mut lost = None;
        if self.is_full() {
            let greediest = self.links.values_mut().max_by_key(|of| of.len());
            lost = greediest.filter(|of| of.len() > mine + 1).and_then(Shares::yield_one);
        }
        if let Some(lost) = &lost {
            self.owners.remove(lost);
        }
        let free = self.most.saturating_sub(self.owners.len());
        let of = self.links.entry(link).or_insert_with(|| Shares::new(0, self.share));
        // On a link that has its part, a host can have the place of another host there.
        of.resize(mine + free);
        let other = of.enter(host, key);
        if of.is_empty() {
            self.links.remove(&link);
        }
        if let Some(other) = other? {
            self.owners.remove(&other);
            lost = Some(other);
        }
        self.owners.insert(key, link);
        Ok(lost)
    }

    /// Gives up the place that a host used longest ago. Returns its key.
    pub fn yield_of(&mut self, link: L, host: Origin) -> Option<K> {
        let of = self.links.get_mut(&link)?;
        let lost = of.yield_of(host)?;
        if of.is_empty() {
            self.links.remove(&link);
        }
        self.owners.remove(&lost);
        Some(lost)
    }

    /// Returns whether all places are taken.
    pub fn is_full(&self) -> bool {
        self.owners.len() >= self.most
    }

    /// Returns the number of places of a link.
    pub fn of(&self, link: L) -> usize {
        self.links.get(&link).map_or(0, Shares::len)
    }

    /// Returns the link for which a key has its place.
    pub fn owner(&self, key: &K) -> Option<L> {
        self.owners.get(key).copied()
    }

    /// Notes that a place is in use.
    pub fn renew(&mut self, key: K) {
        if let Some(of) = self.owners.get(&key).and_then(|link| self.links.get_mut(link)) {
            of.renew(key);
        }
    }

    /// Gives up the place of a key, if it has one.
    pub fn leave(&mut self, key: K) {
        let Some(link) = self.owners.remove(&key) else { return };
        let Some(of) = self.links.get_mut(&link) else { return };
        of.leave(key);
        if of.is_empty() {
            self.links.remove(&link);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn host(number: u8) -> Origin {
        Origin::alone([192, 0, 2, number].into())
    }

    #[test]
    fn a_link_that_is_filled_under_many_addresses_leaves_others_their_places() {
        let mut places = Places::new(100, 100);
        let taken = (0..1_000_u32).filter(|&key| {
            let host = Origin::alone([10, 0, (key >> 8) as u8, key as u8].into());
            places.enter(1, host, key).is_ok()
        });
        assert_eq!(taken.count(), 100);
        let taken = (2_000..2_200).filter(|&key| places.enter(2, host(1), key).is_ok());
        assert_eq!(taken.count(), 50);
        assert_eq!((places.of(1), places.of(2)), (50, 50));
    }

    #[test]
    fn a_host_that_fills_its_link_leaves_others_of_the_link_their_places() {
        let mut places = Places::new(100, 100);
        assert_eq!((0..1_000).filter(|&key| places.enter(1, host(1), key).is_ok()).count(), 100);
        let taken = (2_000..2_200).filter(|&key| places.enter(1, host(2), key).is_ok());
        assert_eq!(taken.count(), 50);
        assert_eq!(places.yield_of(1, host(2)), Some(2_000));
        assert_eq!((places.yield_of(1, host(3)), places.of(1)), (None, 99));
    }

    proptest! {
        /// Whoever takes what, there are never more than all, no link loses a place to one that has
        /// as many, and who is refused finds nobody with more.
        #[test]
        fn places_are_shared_among_links_and_hosts(
            most in 1_usize..20,
            share in 1_usize..8,
            steps in prop::collection::vec((0_u8..4, 0_u8..4, 0_u8..4, 0_u16..40), 0..200),
        ) {
            let mut places = Places::new(most, share);
            let mut plain: BTreeMap<u16, (u8, Origin)> = BTreeMap::new();
            for (what, link, number, key) in steps {
                if what == 0 {
                    places.leave(key);
                    plain.remove(&key);
                } else if what == 1 {
                    places.renew(key);
                } else {
                    let of_link = |l: u8| plain.values().filter(|(of, _)| *of == l).count();
                    let of_host = |l: u8, h| plain.values().filter(|of| **of == (l, h)).count();
                    let before = (0..4).map(of_link).collect::<Vec<_>>();
                    let mine = of_host(link, host(number));
                    let most_on_link = (0..4).map(|n| of_host(link, host(n))).max();
                    match places.enter(link, host(number), key) {
                        _ if plain.contains_key(&key) => {}
                        Ok(lost) => {
                            prop_assert!(mine < share);
                            prop_assert_eq!(lost.is_some(), plain.len() == most);
                            if let Some((of, loser)) = lost.and_then(|lost| plain.remove(&lost)) {
                                let at = usize::from(of);
                                if of == link {
                                    prop_assert!(mine + 1 < before[at]);
                                    prop_assert!(Some(mine + 1) < most_on_link);
                                    prop_assert!(loser != host(number));
                                } else {
                                    prop_assert_eq!(before.iter().max(), Some(&before[at]));
                                    prop_assert!(before[usize::from(link)] + 1 < before[at]);
                                }
                            }
                            plain.insert(key, (link, host(number)));
                        }
                        Err(Full::Host) => prop_assert_eq!(mine, share),
                        Err(Full::All) => {
                            prop_assert_eq!(plain.len(), most);
                            let most_of_all = before.iter().max().copied().unwrap_or_default();
                            prop_assert!(before[usize::from(link)] + 1 >= most_of_all);
                            prop_assert!(Some(mine + 1) >= most_on_link);
                        }
                    }
                }
                prop_assert!(plain.len() <= most);
                for link in 0..4 {
                    let has = plain.values().filter(|(of, _)| *of == link).count();
                    prop_assert_eq!(places.of(link), has);
                }
                for (key, (link, _)) in &plain {
                    prop_assert_eq!(places.owner(key), Some(*link));
                }
            }
        }
    }
}
