//! The plan: the items that each client wants, and the loss of its link.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use umbel_engine::units::Rate;

/// Loss of the clients' links in per cent, one for each client.
const LOSSES: [u32; 8] = [0, 1, 2, 5, 8, 10, 15, 20];
/// Patterns of the clients for the demonstration's own repository; the first wants all.
const PATTERNS: [&[&str]; 8] = [
    &[],
    &["maps/**", "docs/**"],
    &["images/**", "docs/**"],
    &["maps/**", "video/**"],
    &["images/**"],
    &["video/**", "docs/**"],
    &["maps/region-01.tiles", "maps/region-02.tiles", "maps/region-03.tiles", "docs/**"],
    &["images/**", "video/**"],
];
/// Most items that a client asks for by name.
const MAX_NAMED: usize = 64;
/// Target time for sending each item once, in seconds, as far as the rates allow it.
const SECONDS: u64 = 6;
/// Bounds of the data channel's rate in bit/s. Eight links and eight clients share the machine.
const RATES: (u64, u64) = (8_000_000, 60_000_000);

/// An item that is served, and may be wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Name of the item, which is its path below the served directory.
    pub name: String,
    /// Size of the item in bytes.
    pub bytes: u64,
}

/// A client with its wishes and its link.
#[derive(Clone, Debug)]
pub struct Client {
    /// Name of the client and of its host.
    pub name: String,
    /// Patterns that it asks for; empty for everything.
    pub patterns: Vec<String>,
    /// Items that match the patterns.
    pub wanted: Vec<Wanted>,
    /// Loss of its link, in per cent.
    pub loss_percent: u32,
}

impl Client {
    fn new(index: usize, patterns: Vec<String>, items: &[Wanted]) -> Client {
        let wanted = items.iter().filter(|item| asks_for(&patterns, &item.name));
        Client {
            name: format!("c{}", index + 1),
            wanted: wanted.cloned().collect(),
            patterns,
            loss_percent: LOSSES[index],
        }
    }

    /// Returns the loss of its link, 0 to 1.
    pub fn loss(&self) -> f64 {
        f64::from(self.loss_percent) / 100.0
    }

    /// Returns the bytes of the wanted items.
    pub fn bytes(&self) -> u64 {
        self.wanted.iter().map(|item| item.bytes).sum()
    }
}

/// Returns whether patterns, which are names or `directory/**` here, match an item. It does without
/// the server's own matching, which is under test.
fn asks_for(patterns: &[String], name: &str) -> bool {
    let matches = |pattern: &String| match pattern.strip_suffix("**") {
        Some(directory) => name.starts_with(directory),
        None => pattern == name,
    };
    patterns.is_empty() || patterns.iter().any(matches)
}

/// Returns the clients for the demonstration's own repository.
pub(super) fn for_made_repository(items: &[Wanted]) -> Vec<Client> {
    let patterns = PATTERNS.iter().map(|patterns| patterns.iter().map(|&p| p.to_owned()).collect());
    patterns.enumerate().map(|(index, patterns)| Client::new(index, patterns, items)).collect()
}

/// Returns the clients for any items: the first wants all, the others about half of them each.
pub(super) fn for_items(items: &[Wanted]) -> Vec<Client> {
    let mut generator = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut clients = vec![Client::new(0, Vec::new(), items)];
    for index in 1..LOSSES.len() {
        let mut names: Vec<&Wanted> = items.iter().collect();
        let share = (names.len().div_ceil(2)).min(MAX_NAMED);
        // Takes the first `share` of a shuffle.
        for place in 0..share {
            let rest = (names.len() - place) as u64;
            names.swap(place, place + (generator.next_u64() % rest) as usize);
        }
        let names = names.into_iter().take(share).map(|item| item.name.clone());
        clients.push(Client::new(index, names.collect(), items));
    }
    clients
}

/// Returns the rate of the data channel for a repository of this size.
pub(super) fn rate(bytes: u64) -> Rate {
    let bits_per_s = (bytes.saturating_mul(8) / SECONDS).clamp(RATES.0, RATES.1);
    Rate::from_bits_per_s(bits_per_s).expect("the lower bound is not zero")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(count: usize) -> Vec<Wanted> {
        (0..count).map(|n| Wanted { name: format!("dir/item-{n}"), bytes: 10 }).collect()
    }

    #[test]
    fn eight_clients_want_different_things_of_what_there_is() {
        let clients = for_items(&items(20));
        assert_eq!(clients.len(), 8);
        assert_eq!(clients[0].wanted.len(), 20);
        for (index, client) in clients.iter().enumerate().skip(1) {
            assert_eq!(client.wanted.len(), 10);
            assert!(clients[..index].iter().all(|other| other.wanted != client.wanted));
        }
    }

    #[test]
    fn one_item_is_wanted_by_all() {
        assert!(for_items(&items(1)).iter().all(|client| client.wanted.len() == 1));
    }

    #[test]
    fn names_on_the_command_line_are_bounded() {
        let clients = for_items(&items(10_000));
        assert!(clients.iter().all(|client| client.patterns.len() <= MAX_NAMED));
    }

    #[test]
    fn the_rate_follows_the_size_within_bounds() {
        assert_eq!(rate(0).bits_per_s(), RATES.0);
        assert_eq!(rate(24_000_000).bits_per_s(), 32_000_000);
        assert_eq!(rate(u64::MAX).bits_per_s(), RATES.1);
    }
}
