//! Nodes that are avoided for a while.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::Instant;

/// Most addresses that are remembered.
const MOST: usize = 256;
/// Longest bar, as a multiple of the first one.
const LONGEST: u32 = 256;

/// Bars of addresses `A` whose nodes misbehaved. Addresses are barred because a node can take any
/// number.
#[derive(Clone, Debug)]
pub(super) struct Bars<A> {
    first: Duration,
    barred: BTreeMap<A, Bar>,
}

#[derive(Clone, Copy, Debug)]
struct Bar {
    until: Instant,
    /// Length of the last bar.
    lasted: Duration,
}

impl<A: Copy + Ord> Bars<A> {
    /// Creates a list without bars. The first bar of an address lasts for `first`.
    pub(super) fn new(first: Duration) -> Bars<A> {
        Bars { first, barred: BTreeMap::new() }
    }

    /// Bars an address, for twice as long as the last time.
    pub(super) fn bar(&mut self, now: Instant, address: A) {
        let before = self.barred.get(&address);
        let lasts = before.map_or(self.first, |bar| bar.lasted * 2).min(self.first * LONGEST);
        if before.is_none() && self.barred.len() >= MOST {
            let oldest = self.barred.iter().min_by_key(|(_, bar)| bar.until).map(|(at, _)| *at);
            self.barred.remove(&oldest.expect("the map is full"));
        }
        self.barred.insert(address, Bar { until: now + lasts, lasted: lasts });
    }

    /// Forgets the past of an address, since its node has proved itself.
    pub(super) fn pardon(&mut self, address: A) {
        self.barred.remove(&address);
    }

    /// Forgets all bars.
    pub(super) fn clear(&mut self) {
        self.barred.clear();
    }

    /// Returns how often an address was barred, 0 to 9.
    pub(super) fn times(&self, address: A) -> u8 {
        let Some(bar) = self.barred.get(&address) else { return 0 };
        let lasted = bar.lasted.as_nanos() / self.first.as_nanos().max(1);
        lasted.checked_ilog2().map_or(1, |doubled| doubled as u8 + 1)
    }

    pub(super) fn is_barred(&self, now: Instant, address: A) -> bool {
        self.barred.get(&address).is_some_and(|bar| bar.until > now)
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;

    #[test]
    fn each_bar_lasts_twice_as_long_and_the_table_is_bounded() {
        let mut bars = Bars::new(Duration::from_secs(1));
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        let at = |s| Instant::EPOCH + Duration::from_secs(s);
        bars.bar(at(0), address(1));
        assert!(bars.is_barred(at(0), address(1)) && !bars.is_barred(at(1), address(1)));
        assert_eq!((bars.times(address(1)), bars.times(address(2))), (1, 0));
        bars.bar(at(5), address(1));
        assert!(bars.is_barred(at(6), address(1)) && !bars.is_barred(at(7), address(1)));
        assert_eq!(bars.times(address(1)), 2);
        for port in 2..2000 {
            bars.bar(at(8), address(port));
        }
        assert_eq!(bars.barred.len(), MOST);
        bars.pardon(address(1999));
        assert!(!bars.is_barred(at(8), address(1999)));
    }
}
