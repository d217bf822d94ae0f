//! By which card each peer is reached.

use std::collections::hash_map::RandomState;
use std::net::IpAddr;
use std::num::NonZeroUsize;

use lru::LruCache;

use super::frame::Mac;

/// The way to a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Its frames came from this card.
    Card(Mac),
    /// Its frames came from several cards. A stranger may have sent some of them.
    Disputed,
}

/// The cards from which hosts were heard, of a bounded number of hosts: those not heard for the
/// longest time give way.
///
/// Anybody on the link can send a frame in another host's name. So one card that contradicts
/// another is not believed, and neither is the other: the kernel finds the way to that host from
/// then on, as it does for its own connections.
#[derive(Debug)]
pub(super) struct NextHops {
    all: LruCache<IpAddr, Way, RandomState>,
    /// The host that was heard last, which often is heard again: it has many connections, or its
    /// acknowledgements come in a row.
    last_heard: Option<(IpAddr, Mac)>,
}

impl NextHops {
    /// Creates an empty table for this number of hosts, at least one.
    pub(super) fn new(hosts: usize) -> NextHops {
        let hosts = NonZeroUsize::new(hosts).unwrap_or(NonZeroUsize::MIN);
        NextHops { all: LruCache::with_hasher(hosts, RandomState::new()), last_heard: None }
    }

    /// Notes a frame of a host from a card.
    pub(super) fn heard(&mut self, host: IpAddr, mac: Mac) {
        if self.last_heard.replace((host, mac)) == Some((host, mac)) {
            return;
        }
        let way = match self.all.get(&host) {
            None => Way::Card(mac),
            Some(Way::Card(known)) if *known != mac => {
                tracing::warn!("{host} was heard from two cards: the kernel finds the way to it");
                Way::Disputed
            }
            Some(_) => return,
        };
        self.all.put(host, way);
    }

    /// Returns the card by which a host is reached. `None` if the kernel has to find the way.
    pub(super) fn card(&mut self, host: IpAddr) -> Option<Mac> {
        match self.all.get(&host)? {
            Way::Card(mac) => Some(*mac),
            Way::Disputed => None,
        }
    }

    /// Returns whether it is known by which card a host is reached.
    pub(super) fn has_card(&self, host: IpAddr) -> bool {
        matches!(self.all.peek(&host), Some(Way::Card(_)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));
    const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 3));
    const CARD: Mac = [2, 0, 0, 0, 0, 2];
    const STRANGER: Mac = [2, 0, 0, 0, 0, 9];

    #[test]
    fn a_host_is_reached_by_the_card_it_was_heard_from() {
        let mut hops = NextHops::new(2);
        assert_eq!((hops.card(HOST), hops.has_card(HOST)), (None, false));
        hops.heard(HOST, CARD);
        hops.heard(HOST, CARD);
        assert_eq!((hops.card(HOST), hops.has_card(HOST)), (Some(CARD), true));
    }

    #[test]
    fn a_stranger_does_not_turn_a_host_s_segments_to_itself() {
        for frames in [[CARD, STRANGER, STRANGER], [STRANGER, CARD, CARD]] {
            let mut hops = NextHops::new(2);
            for mac in frames {
                hops.heard(HOST, mac);
            }
            assert_eq!((hops.card(HOST), hops.has_card(HOST)), (None, false), "{frames:?}");
        }
    }

    #[test]
    fn those_not_heard_for_the_longest_time_give_way() {
        let mut hops = NextHops::new(1);
        hops.heard(HOST, CARD);
        hops.heard(OTHER, CARD);
        assert_eq!((hops.card(HOST), hops.card(OTHER)), (None, Some(CARD)));
    }
}
