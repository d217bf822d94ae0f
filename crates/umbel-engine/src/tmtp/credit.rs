//! Credit of each host for fetching from an open feed before others.
//!
//! Anyone may fetch from an open feed. Each block is answered to a host once, as to any receiver
//! that comes late. A block that a host asks for again is answered on credit, since packets are
//! lost. The credit grows with what it asks for the first time. Beyond it, hosts share a small part
//! of the rate, while there is anything else to send.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Range;

use super::config::FetchCredit;
use crate::Instant;
use crate::runs::Runs;

/// Most hosts that are remembered. Those that asked least lately are forgotten.
const HOSTS: usize = 1024;
/// Most runs of blocks that are remembered of a host. A request that does not fit counts as asked
/// for again.
const RUNS: usize = 256;

/// Account of one host's requests.
#[derive(Clone, Debug)]
struct Account {
    asked: Runs<u32>,
    /// Bytes that it may ask for again.
    credit: u64,
    last: Instant,
}

/// The accounts of the hosts that fetch.
#[derive(Clone, Debug)]
pub(super) struct Credit {
    config: FetchCredit,
    accounts: BTreeMap<IpAddr, Account>,
}

impl Credit {
    /// Creates accounts of which none is used.
    pub(super) fn new(config: FetchCredit) -> Credit {
        Credit { config, accounts: BTreeMap::new() }
    }

    /// Notes that a host asks for a block of this length. Returns whether it is answered before
    /// others.
    pub(super) fn ask(&mut self, now: Instant, host: IpAddr, block: u32, bytes: u64) -> bool {
        let FetchCredit { first, again, .. } = self.config;
        if !self.accounts.contains_key(&host) && self.accounts.len() >= HOSTS {
            let idle = self.accounts.iter().min_by_key(|(_, account)| account.last);
            let idle = idle.map(|(&host, _)| host).expect("the map is full");
            self.accounts.remove(&idle);
        }
        let new = || Account { asked: Runs::default(), credit: first, last: now };
        let account = self.accounts.entry(host).or_insert_with(new);
        account.last = now;
        if account.note(block..block + 1) {
            account.credit = account.credit.saturating_add((bytes as f64 * again) as u64);
            return true;
        }
        let left = account.credit.checked_sub(bytes);
        account.credit = left.unwrap_or(account.credit);
        left.is_some()
    }
}

impl Account {
    /// Notes a block. Returns whether the host had not asked for it, as far as is remembered.
    fn note(&mut self, block: Range<u32>) -> bool {
        let joins = block.start > 0 && self.asked.contains(block.start - 1);
        let known = self.asked.contains(block.start) || self.asked.len() >= RUNS && !joins;
        if !known {
            self.asked.insert(block);
        }
        !known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: FetchCredit = FetchCredit { first: 1_000, again: 1.25, share: 0.05 };

    fn host(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from_bits(n).into()
    }

    /// Returns how many of these blocks of 100 bytes are answered before others.
    fn answered(credit: &mut Credit, n: u32, blocks: impl Iterator<Item = u32>) -> usize {
        let now = Instant::EPOCH;
        blocks.filter(|&block| credit.ask(now, host(n), block, 100)).count()
    }

    #[test]
    fn each_block_is_answered_once_and_again_on_credit() {
        let mut credit = Credit::new(CONFIG);
        assert_eq!(answered(&mut credit, 1, 0..40), 40);
        let again = (0..40).cycle().take(10_000);
        assert_eq!(answered(&mut credit, 1, again), 10 + 50, "what is given, and what is earned");
        // Another one has its own.
        assert_eq!(answered(&mut credit, 2, 0..40), 40);
    }

    #[test]
    fn whoever_asks_for_the_same_all_the_time_has_little() {
        let mut credit = Credit::new(CONFIG);
        assert_eq!(answered(&mut credit, 1, (0..4).cycle().take(100_000)), 4 + 10 + 5);
    }

    #[test]
    fn accounts_are_bounded() {
        let mut credit = Credit::new(CONFIG);
        let scattered = |n: u32| (0..4 * RUNS as u32).map(move |block| block * 2 + n % 2);
        for n in 0..10 * HOSTS as u32 {
            credit.ask(Instant::EPOCH, host(n), 0, 100);
        }
        answered(&mut credit, 1, scattered(1));
        assert!(credit.accounts.len() <= HOSTS);
        assert!(credit.accounts[&host(1)].asked.len() <= RUNS);
    }
}
