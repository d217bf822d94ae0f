//! Offers of repliers below a router, and the choice among them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use crate::Instant;
use crate::router::InterfaceId;

/// Number of offers kept for one interface: the best, and one to fall back on.
const PER_INTERFACE: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Offer {
    neighbour: SocketAddr,
    cost: u32,
    expires: Instant,
}

/// The next hop on the way to a replier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Replier {
    pub(super) interface: InterfaceId,
    /// A receiver, or the next router below.
    pub(super) neighbour: SocketAddr,
    pub(super) cost: u32,
}

/// Next step of a request from below.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It goes upstream, since it comes from the replier, or there is none.
    Up,
    /// It turns around here.
    Turn(Replier),
}

/// The offers of one channel, and the repliers chosen among them.
///
/// The interfaces are divided into sets of at most `set_size`, each with a replier of its own
/// [LMS §III-E]. The sets' repliers form a chain in order of cost. A request from the first goes
/// upstream, and a request from any other goes to the one before it. With one set, the usual case,
/// this is the plain rule of [LMS §II-F].
#[derive(Clone, Debug, Default)]
pub(super) struct Offers {
    by_interface: BTreeMap<InterfaceId, Vec<Offer>>,
    chain: Vec<Replier>,
    /// The set of each interface with an offer, by its place in the chain.
    set_of: BTreeMap<InterfaceId, usize>,
}

impl Offers {
    /// Adds or renews an offer.
    pub(super) fn insert(
        &mut self,
        interface: InterfaceId,
        neighbour: SocketAddr,
        cost: u32,
        expires: Instant,
    ) {
        let offers = self.by_interface.entry(interface).or_default();
        offers.retain(|offer| offer.neighbour.ip() != neighbour.ip());
        offers.push(Offer { neighbour, cost, expires });
        offers.sort_by_key(|offer| (offer.cost, offer.neighbour));
        offers.truncate(PER_INTERFACE);
    }

    /// Removes an offer.
    pub(super) fn remove(&mut self, interface: InterfaceId, neighbour: IpAddr) {
        if let Some(offers) = self.by_interface.get_mut(&interface) {
            offers.retain(|offer| offer.neighbour.ip() != neighbour);
            if offers.is_empty() {
                self.by_interface.remove(&interface);
            }
        }
    }

    /// Forgets expired offers, and those of interfaces that are no longer `wanted`.
    pub(super) fn expire(&mut self, now: Instant, mut wanted: impl FnMut(InterfaceId) -> bool) {
        self.by_interface.retain(|interface, offers| {
            offers.retain(|offer| offer.expires > now);
            !offers.is_empty() && wanted(*interface)
        });
    }

    /// Chooses the repliers again. A chosen one stays unless another of its set is cheaper by the
    /// share `stickiness`. Returns whether anything changes for requests.
    pub(super) fn choose(&mut self, set_size: usize, stickiness: f64) -> bool {
        let interfaces: Vec<InterfaceId> = self.by_interface.keys().copied().collect();
        let mut sets: Vec<(Replier, &[InterfaceId])> = interfaces
            .chunks(set_size.max(1))
            .filter_map(|set| Some((self.best_of(set, stickiness)?, set)))
            .collect();
        sets.sort_by_key(|(replier, _)| (replier.cost, replier.interface));
        let set_of = sets
            .iter()
            .enumerate()
            .flat_map(|(place, (_, set))| set.iter().map(move |&interface| (interface, place)))
            .collect();
        let chain: Vec<Replier> = sets.into_iter().map(|(replier, _)| replier).collect();
        let is_other = self.set_of != set_of || self.chain != chain;
        (self.set_of, self.chain) = (set_of, chain);
        is_other
    }

    fn best_of(&self, set: &[InterfaceId], stickiness: f64) -> Option<Replier> {
        let repliers = || {
            set.iter().flat_map(|interface| {
                self.by_interface[interface].iter().map(|offer| Replier {
                    interface: *interface,
                    neighbour: offer.neighbour,
                    cost: offer.cost,
                })
            })
        };
        let best = repliers().min_by_key(|r| (r.cost, r.interface, r.neighbour))?;
        let held = repliers().find(|r| self.chain.iter().any(|chosen| is_same(chosen, r)));
        let limit = |cost: u32| f64::from(cost) * (1.0 - stickiness);
        Some(held.filter(|held| f64::from(best.cost) >= limit(held.cost)).unwrap_or(best))
    }

    /// Returns the replier for requests from above, which the router offers to others.
    pub(super) fn first(&self) -> Option<Replier> {
        self.chain.first().copied()
    }

    /// Returns the address of the chosen replier on an interface. There is one at most.
    pub(super) fn chosen_on(&self, interface: InterfaceId) -> Option<IpAddr> {
        let chosen = self.chain.iter().find(|replier| replier.interface == interface)?;
        Some(chosen.neighbour.ip())
    }

    /// Returns the next step of a request from below, by the address that it came from; none for
    /// that of no replier.
    pub(super) fn step(&self, interface: InterfaceId, from: Option<IpAddr>) -> Step {
        let is_from = |r: &Replier| r.interface == interface && Some(r.neighbour.ip()) == from;
        // The usual case needs no search.
        if let [only] = &self.chain[..] {
            return if is_from(only) { Step::Up } else { Step::Turn(*only) };
        }
        if let Some(place) = self.chain.iter().position(is_from) {
            return match place.checked_sub(1) {
                None => Step::Up,
                Some(before) => Step::Turn(self.chain[before]),
            };
        }
        // Links without offers are spread over the sets.
        let place = || interface.0 as usize % self.chain.len().max(1);
        let place = self.set_of.get(&interface).copied().unwrap_or_else(place);
        self.chain.get(place).map_or(Step::Up, |replier| Step::Turn(*replier))
    }

    /// Returns the cheapest offer of another host than these two.
    pub(super) fn backup(&self, than: IpAddr, or: IpAddr) -> Option<Replier> {
        self.by_interface
            .iter()
            .flat_map(|(&interface, offers)| {
                offers.iter().map(move |&Offer { neighbour, cost, .. }| Replier {
                    interface,
                    neighbour,
                    cost,
                })
            })
            .filter(|r| r.neighbour.ip() != than && r.neighbour.ip() != or)
            .min_by_key(|r| (r.cost, r.interface, r.neighbour))
    }

    /// Returns whether this replier is still chosen.
    pub(super) fn is_chosen(&self, replier: &Replier) -> bool {
        self.chain.iter().any(|chosen| is_same(chosen, replier))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_interface.is_empty()
    }

    /// Returns the number of offers kept.
    pub(super) fn len(&self) -> usize {
        self.by_interface.values().map(Vec::len).sum()
    }

    /// Returns the time at which the next offer expires.
    pub(super) fn next_expiry(&self) -> Option<Instant> {
        self.by_interface.values().flatten().map(|offer| offer.expires).min()
    }
}

fn is_same(a: &Replier, b: &Replier) -> bool {
    a.interface == b.interface && a.neighbour.ip() == b.neighbour.ip()
}
