//! Places of which there are only so many, shared among hosts.
//!
//! A bound that is one number for everybody is itself an attack: who fills it locks the others out.
//! So a host has at most its share, and when all places are taken, the host that has most of them
//! gives one up for a host that has fewer.
//!
//! | places | a newcomer's host | what happens |
//! |---|---|---|
//! | any | has its share | refused: [`Full::Host`] |
//! | some free | has less | taken |
//! | none free | would still have fewer than the greediest | taken; the greediest's place that was used longest ago is lost |
//! | none free | would have as many as the greediest | refused: [`Full::All`] |
//!
//! Each operation takes time logarithmic in the number of places.
//!
//! [`Places`] are shared among links first, and of a [`Budget`] a host has a part of what is left.

mod budget;
mod places;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

pub use self::budget::Budget;
pub use self::places::Places;

/// Networks of IPv6 have this many times the places of an IPv4 address, since hosts share them.
const PLACES_OF_A_NETWORK: usize = 4;

/// Hosts that are not told apart: one IPv4 address, or all of the same first 64 bits of IPv6. A
/// host can usually take any address of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin {
    address: IpAddr,
    is_network: bool,
}

impl Origin {
    /// Returns the origin of an address.
    pub fn of(address: IpAddr) -> Origin {
        match address.to_canonical() {
            IpAddr::V6(address) => {
                let network = Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX));
                Origin { address: network.into(), is_network: true }
            }
            address @ IpAddr::V4(_) => Origin::alone(address),
        }
    }

    /// Returns an origin that is this address alone. On a link all addresses of IPv6 have the same
    /// first bits.
    pub fn alone(address: IpAddr) -> Origin {
        Origin { address: address.to_canonical(), is_network: false }
    }

    /// Returns whether it is a network of many addresses.
    pub fn is_network(self) -> bool {
        self.is_network
    }

    /// Returns the number of places where an IPv4 address has `share`.
    pub fn places(self, share: usize) -> usize {
        share.saturating_mul(if self.is_network() { PLACES_OF_A_NETWORK } else { 1 })
    }

    /// Returns what this number of places is in those of a network, to compare origins.
    fn load(self, places: usize) -> usize {
        places.saturating_mul(if self.is_network() { 1 } else { PLACES_OF_A_NETWORK })
    }
}

/// Reason why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The host has as many as it may have.
    Host,
    /// All are taken, and no host has so many that it has to give one up.
    All,
}

/// Places, by key. They know nothing of what they are for.
#[derive(Clone, Debug)]
pub struct Shares<K> {
    most: usize,
    share: usize,
    /// Origin of each key, and when it was last used.
    places: BTreeMap<K, (Origin, u64)>,
    /// Keys of each origin, by last use.
    origins: BTreeMap<Origin, BTreeMap<u64, K>>,
    /// Origins by load.
    loads: BTreeSet<(usize, Origin)>,
    uses: u64,
}

impl<K: Copy + Ord> Shares<K> {
    /// Creates `most` places, of which an IPv4 address has at most `share`, and a network of IPv6
    /// four times as many.
    pub fn new(most: usize, share: usize) -> Shares<K> {
        let (places, origins, loads) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Shares { most, share, places, origins, loads, uses: 0 }
    }

    /// Changes the number of places, when they are a part of more. Nobody loses a place at once.
    pub fn resize(&mut self, most: usize) {
        self.most = most;
    }

    /// Returns the number of places taken.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Returns whether no place is taken.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Returns the number of places of an origin.
    pub fn of(&self, origin: Origin) -> usize {
        self.origins.get(&origin).map_or(0, BTreeMap::len)
    }

    /// Returns whether an origin has half of its share, or more.
    pub fn is_busy(&self, origin: Origin) -> bool {
        self.of(origin) >= origin.places(self.share).div_ceil(2)
    }

    /// Returns whether an origin can have one more place, perhaps that of another.
    pub fn has_place(&self, origin: Origin) -> bool {
        self.refusal(origin).is_none()
    }

    fn refusal(&self, origin: Origin) -> Option<Full> {
        let places = self.of(origin);
        if places >= origin.places(self.share) {
            return Some(Full::Host);
        }
        let is_full = self.places.len() >= self.most;
        let gives = |(load, _): &(usize, Origin)| origin.load(places + 1) < *load;
        (is_full && !self.loads.last().is_some_and(gives)).then_some(Full::All)
    }

    /// Gives up the place that the greediest used longest ago. Returns its key.
    pub fn yield_one(&mut self) -> Option<K> {
        let (_, greediest) = *self.loads.last()?;
        self.yield_of(greediest)
    }

    /// Gives up the place that an origin used longest ago. Returns its key.
    pub fn yield_of(&mut self, origin: Origin) -> Option<K> {
        let key = *self.origins.get(&origin)?.values().next()?;
        self.leave(key);
        Some(key)
    }

    /// Takes a place. Returns the key that lost its place for it. A key that has a place is
    /// [renewed](Shares::renew).
    ///
    /// # Errors
    ///
    /// If there is no place, and none is given up.
    pub fn enter(&mut self, origin: Origin, key: K) -> Result<Option<K>, Full> {
        if self.places.contains_key(&key) {
            self.renew(key);
            return Ok(None);
        }
        if let Some(full) = self.refusal(origin) {
            return Err(full);
        }
        let is_full = self.places.len() >= self.most;
        let lost = if is_full { self.yield_one() } else { None };
        self.put(origin, key);
        Ok(lost)
    }

    /// Notes that a place is in use. The greediest loses what was used longest ago.
    pub fn renew(&mut self, key: K) {
        if let Some((origin, used)) = self.places.get_mut(&key)
            && let Some(keys) = self.origins.get_mut(origin)
        {
            keys.remove(used);
            self.uses += 1;
            *used = self.uses;
            keys.insert(self.uses, key);
        }
    }

    /// Gives a place up, if the key has one.
    pub fn leave(&mut self, key: K) {
        let Some((origin, used)) = self.places.remove(&key) else { return };
        let Some(keys) = self.origins.get_mut(&origin) else { return };
        self.loads.remove(&(origin.load(keys.len()), origin));
        keys.remove(&used);
        if keys.is_empty() {
            self.origins.remove(&origin);
        } else {
            self.loads.insert((origin.load(keys.len()), origin));
        }
    }

    fn put(&mut self, origin: Origin, key: K) {
        let keys = self.origins.entry(origin).or_default();
        self.loads.remove(&(origin.load(keys.len()), origin));
        self.uses += 1;
        keys.insert(self.uses, key);
        self.loads.insert((origin.load(keys.len()), origin));
        self.places.insert(key, (origin, self.uses));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::of(text.parse().unwrap())
    }

    #[test]
    fn a_host_gets_its_share_and_others_get_theirs() {
        let mut shares = Shares::new(100, 3);
        let host = origin("192.0.2.1");
        let taken = (0..30).filter(|&key| shares.enter(host, key) == Ok(None)).count();
        assert_eq!(taken, 3);
        assert_eq!(shares.enter(origin("::ffff:192.0.2.1"), 50), Err(Full::Host), "the same host");
        assert!(shares.is_busy(host) && !shares.is_busy(origin("192.0.2.2")));
        assert_eq!(shares.enter(origin("192.0.2.2"), 51), Ok(None));
        shares.leave(0);
        assert_eq!(shares.enter(host, 52), Ok(None));
        // A host has all addresses of its network.
        let hosts = (100..130).map(|key| (key, origin(&format!("2001:db8::{key}"))));
        let taken = hosts.filter(|&(key, host)| shares.enter(host, key) == Ok(None)).count();
        assert_eq!(taken, 12);
        assert_eq!(shares.enter(origin("2001:db8:0:1::"), 200), Ok(None));
    }

    #[test]
    fn a_share_that_shrinks_is_shared_by_the_same_rule() {
        let mut shares = Shares::new(10, 10);
        let (greedy, modest) = (Origin::alone([192, 0, 2, 1].into()), origin("192.0.2.2"));
        (0..6).for_each(|key| assert_eq!(shares.enter(greedy, key), Ok(None)));
        shares.resize(3);
        assert_eq!(shares.len(), 6);
        assert_eq!(shares.enter(greedy, 10), Err(Full::All));
        assert_eq!(shares.enter(modest, 11), Ok(Some(0)));
        let link = ["fe80::1", "fe80::2"].map(|address| Origin::alone(address.parse().unwrap()));
        assert!(link[0] != link[1] && origin("fe80::1") == origin("fe80::2"));
        assert_eq!((link[0].places(5), origin("fe80::1").places(5)), (5, 20));
    }

    #[test]
    fn the_greediest_gives_up_what_it_used_longest_ago() {
        let mut shares = Shares::new(10, 10);
        let (greedy, modest) = (origin("192.0.2.1"), origin("192.0.2.2"));
        for key in 0..10 {
            assert_eq!(shares.enter(greedy, key), Ok(None));
        }
        shares.renew(0);
        assert_eq!(shares.enter(greedy, 10), Err(Full::Host));
        let lost: Vec<_> = (20..26).map(|key| shares.enter(modest, key)).collect();
        assert_eq!(lost[..5], [1, 2, 3, 4, 5].map(|key| Ok(Some(key))));
        assert_eq!(lost[5], Err(Full::All), "both have as many");
        assert_eq!((shares.of(greedy), shares.of(modest)), (5, 5));
        assert_eq!(shares.yield_of(modest), Some(20));
    }

    proptest! {
        /// Compares with the rule in the plainest words.
        #[test]
        fn places_are_shared_by_the_rule(
            most in 1_usize..20,
            share in 1_usize..8,
            steps in prop::collection::vec((0_u8..4, 0_u8..6, 0_u16..40), 0..200),
        ) {
            let mut shares = Shares::new(most, share);
            let mut plain: Vec<(Origin, u16)> = Vec::new(); // the one used longest ago first
            for (what, host, key) in steps {
                let host = match host {
                    0..4 => origin(&format!("192.0.2.{host}")),
                    _ => origin(&format!("2001:db8:0:{host}::{key}")),
                };
                let held = |plain: &Vec<_>, of| plain.iter().filter(|(o, _)| *o == of).count();
                let at = plain.iter().position(|&(_, other)| other == key);
                match what {
                    0 => {
                        shares.leave(key);
                        at.map(|at| plain.remove(at));
                    }
                    1 => {
                        shares.renew(key);
                        if let Some(place) = at.map(|at| plain.remove(at)) {
                            plain.push(place);
                        }
                    }
                    _ => {
                        let has_place = shares.has_place(host);
                        let result = shares.enter(host, key);
                        prop_assert!(at.is_some() || has_place == result.is_ok());
                        let places = held(&plain, host);
                        let greediest = plain.iter().map(|&(o, _)| o.load(held(&plain, o))).max();
                        if let Some(at) = at {
                            let place = plain.remove(at);
                            plain.push(place);
                            prop_assert_eq!(result, Ok(None));
                        } else if places >= host.places(share) {
                            prop_assert_eq!(result, Err(Full::Host));
                        } else if plain.len() < most {
                            prop_assert_eq!(result, Ok(None));
                            plain.push((host, key));
                        } else if greediest > Some(host.load(places + 1)) {
                            let Ok(Some(lost)) = result else { panic!("{result:?}") };
                            let at = plain.iter().position(|&(_, other)| other == lost).unwrap();
                            let (loser, _) = plain[at];
                            prop_assert_eq!(Some(loser.load(held(&plain, loser))), greediest);
                            prop_assert!(plain[..at].iter().all(|&(o, _)| o != loser), "oldest");
                            plain.remove(at);
                            plain.push((host, key));
                        } else {
                            prop_assert_eq!(result, Err(Full::All));
                        }
                    }
                }
                prop_assert!(shares.len() <= most && shares.len() == plain.len());
                for &(host, _) in &plain {
                    prop_assert_eq!(shares.of(host), held(&plain, host));
                    prop_assert!(shares.of(host) <= host.places(share));
                }
                prop_assert_eq!(shares.loads.len(), shares.origins.len(), "nothing is left over");
            }
        }
    }
}
