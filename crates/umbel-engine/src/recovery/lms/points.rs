//! Routers that may be sent repairs, which are those that have shown that they receive there.
//!
//! A request names its turning point, and anybody can write one. So a router is asked first whether
//! it is there, with a cookie that only who receives at that address can know:
//!
//! ```text
//! request of a new router ─▶ waits ── ping with cookie ──▶ router
//!                              │                             │
//!                    answered ◀┴──────── pong, same cookie ──┘
//! ```
//!
//! This takes one round trip to each router in a feed. What it then gets is limited as well: each
//! symbol of a block about once, which is all that its subtrees can lack.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Tsi;
use umbel_wire::lms::{Message, Request};

use crate::Instant;
use crate::bounds::ROUTERS;
use crate::bucket::{Limit, Limiters};
use crate::runs::Runs;
use crate::shares::{Origin, Shares};
use crate::tmtp::DropReason;

/// Pings for requests of one host a second, and at once.
const PINGS: Limit = Limit { per_s: 20, burst: 100 };
/// Most hosts whose pings are counted, and pings that wait to be sent.
const HOSTS: usize = 1024;
const MOST_PINGS: usize = 256;
/// Most requests that wait for an answer, and how long they do.
const WAITING: usize = 1024;
const WAIT: Duration = Duration::from_secs(1);
/// Symbols that a router may have beside each symbol of a block once.
const BESIDE: u32 = 1024;
/// Most runs of blocks that are remembered of a router.
const RUNS: usize = 256;

/// What a router has been sent.
#[derive(Clone, Debug)]
struct Account {
    blocks: Runs<u32>,
    /// Symbols that it may have.
    credit: u32,
}

/// The routers that have shown that they receive, and requests that wait for others to do so.
#[derive(Debug)]
pub(crate) struct Points {
    feed: Tsi,
    secret: [u8; 32],
    shares: Shares<SocketAddr>,
    accounts: BTreeMap<SocketAddr, Account>,
    waiting: VecDeque<(Instant, SocketAddr, Request)>,
    limiters: Limiters<Origin>,
    pings: VecDeque<SocketAddr>,
}

impl Points {
    /// Creates a state in which no router is known.
    pub(crate) fn new(feed: Tsi, secret: [u8; 32]) -> Points {
        Points {
            feed,
            secret,
            shares: ROUTERS.shares(),
            accounts: BTreeMap::new(),
            waiting: VecDeque::new(),
            limiters: Limiters::new(PINGS, HOSTS),
            pings: VecDeque::new(),
        }
    }

    fn cookie(&self, router: SocketAddr) -> u64 {
        let hash = blake3::keyed_hash(&self.secret, router.to_string().as_bytes());
        let bytes = hash.as_bytes().first_chunk::<8>().expect("a hash has 32 bytes");
        u64::from_be_bytes(*bytes)
    }

    /// Returns whether the router in a request may be sent repairs. Otherwise it is asked whether
    /// it is there, and the request waits.
    ///
    /// # Errors
    ///
    /// If the host that sent the request makes ask for too many.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        (router, from): (SocketAddr, SocketAddr),
        request: &Request,
    ) -> Result<bool, DropReason> {
        if self.accounts.contains_key(&router) {
            self.shares.renew(router);
            return Ok(true);
        }
        self.waiting.retain(|(until, ..)| *until > now);
        let is_asked = self.waiting.iter().any(|(_, of, _)| *of == router);
        let is_full = self.waiting.len() >= WAITING || self.pings.len() >= MOST_PINGS;
        if is_full || !self.limiters.take(now, Origin::of(from.ip())) {
            return Err(DropReason::OverLimit);
        }
        self.waiting.push_back((now + WAIT, router, *request));
        if !is_asked || request.number > 1 {
            self.pings.push_back(router);
        }
        Ok(false)
    }

    /// Handles the answer of a router. Returns the requests that waited for it; `None` if it was
    /// not asked.
    pub(crate) fn on_pong(
        &mut self,
        now: Instant,
        router: SocketAddr,
        cookie: u64,
    ) -> Option<Vec<Request>> {
        if cookie != self.cookie(router) {
            return None;
        }
        if let Ok(lost) = self.shares.enter(Origin::of(router.ip()), router) {
            lost.map(|lost| self.accounts.remove(&lost));
            let account = Account { blocks: Runs::default(), credit: BESIDE };
            self.accounts.entry(router).or_insert(account);
        }
        let (of, others) = std::mem::take(&mut self.waiting)
            .into_iter()
            .filter(|(until, ..)| *until > now)
            .partition(|(_, of, _)| *of == router);
        self.waiting = others;
        let of: VecDeque<(Instant, SocketAddr, Request)> = of;
        Some(of.into_iter().map(|(_, _, request)| request).collect())
    }

    /// Returns whether a router may have one more symbol of a block of `k`. It then counts.
    pub(crate) fn take(&mut self, router: SocketAddr, block: u32, k: u8) -> bool {
        let Some(account) = self.accounts.get_mut(&router) else { return false };
        let joins = block.checked_sub(1).is_some_and(|before| account.blocks.contains(before));
        let is_known = account.blocks.contains(block);
        if !is_known && (joins || account.blocks.len() < RUNS) {
            account.blocks.insert(block..block.saturating_add(1));
            account.credit = account.credit.saturating_add(k.into());
        }
        let left = account.credit.checked_sub(1);
        account.credit = left.unwrap_or(0);
        left.is_some()
    }

    /// Knows a router as if it had answered.
    #[cfg(test)]
    pub(crate) fn know(&mut self, router: SocketAddr) {
        let cookie = self.cookie(router);
        self.on_pong(Instant::EPOCH, router, cookie).expect("the cookie is right");
    }

    /// Returns the next ping, and where it goes.
    pub(crate) fn poll_ping(&mut self) -> Option<(SocketAddr, Vec<u8>)> {
        let router = self.pings.pop_front()?;
        let mut bytes = Vec::new();
        Message::Ping { tsi: self.feed, nonce: self.cookie(router) }.emit(&mut bytes);
        Some((router, bytes))
    }
}

#[cfg(test)]
mod tests {
    use umbel_wire::Channel;
    use umbel_wire::lms::UnitSet;

    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::EPOCH + Duration::from_millis(ms)
    }

    fn address(host: u16, port: u16) -> SocketAddr {
        let [high, low] = host.to_be_bytes();
        ([10, 0, high, low], port).into()
    }

    fn request(number: u8) -> Request {
        let source = Some([10, 1, 0, 1].into());
        Request {
            channel: Channel { source, group: [232, 1, 1, 1].into(), port: 5000 },
            tsi: Tsi(7),
            units: UnitSet::one(0),
            number,
            requestor: None,
            turning_point: None,
            replier_failed: false,
            unicast_reply: false,
            hops: 0,
        }
    }

    fn points() -> Points {
        Points::new(Tsi(7), [3; 32])
    }

    /// Returns where the next ping goes, and its cookie.
    fn ping(points: &mut Points) -> Option<(SocketAddr, u64)> {
        let (to, bytes) = points.poll_ping()?;
        match Message::parse(&bytes).unwrap().message().unwrap() {
            Message::Ping { tsi: Tsi(7), nonce } => Some((to, nonce)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_request_waits_until_its_router_has_answered_once() {
        let (mut points, from, router) = (points(), address(1, 9), address(2, 7706));
        for number in [1, 2] {
            assert_eq!(points.admit(at(0), (router, from), &request(number)), Ok(false));
        }
        let (to, cookie) = ping(&mut points).unwrap();
        assert_eq!(to, router);
        assert!(points.on_pong(at(9), router, cookie ^ 1).is_none());
        assert!(points.on_pong(at(9), address(3, 7706), cookie).is_none(), "it is another's");
        let waited = points.on_pong(at(9), router, cookie).unwrap();
        assert_eq!(waited.iter().map(|request| request.number).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(points.admit(at(10), (router, from), &request(1)), Ok(true));
        assert_eq!(points.on_pong(at(11), router, cookie), Some(vec![]));
        // One that answers late has nothing waiting, and is known.
        let late = address(4, 7706);
        assert_eq!(points.admit(at(20), (late, from), &request(1)), Ok(false));
        let cookie = std::iter::from_fn(|| ping(&mut points)).last().unwrap().1;
        assert_eq!(points.on_pong(at(5_000), late, cookie), Some(vec![]));
        assert_eq!(points.admit(at(5_000), (late, from), &request(1)), Ok(true));
    }

    #[test]
    fn a_host_that_names_many_routers_makes_few_pings_and_takes_nothing_from_others() {
        let mut points = points();
        let named = (0..10_000)
            .filter(|n| points.admit(at(0), (address(*n, 1), address(66, 9)), &request(1)).is_ok());
        assert_eq!(named.count(), PINGS.burst as usize);
        assert_eq!(points.admit(at(0), (address(9, 2), address(1, 9)), &request(1)), Ok(false));
        assert_eq!(std::iter::from_fn(|| ping(&mut points)).count(), PINGS.burst as usize + 1);
    }

    #[test]
    fn a_router_gets_each_symbol_about_once() {
        let (mut points, router) = (points(), address(2, 7706));
        assert!(!points.take(router, 0, 64), "it has not answered");
        let cookie = points.cookie(router);
        points.on_pong(at(0), router, cookie).unwrap();
        let taken = (0..200 * 64).filter(|n| points.take(router, n % 20, 64)).count();
        assert_eq!(taken, 20 * 64 + BESIDE as usize);
        assert!(points.take(router, 20, 64), "a new block");
        let scattered = (0..100_000).filter(|n| points.take(router, n * 3, 64)).count();
        assert!(scattered < 100_000);
        assert!(points.accounts[&router].blocks.len() <= RUNS);
    }
}
