//! The choice of the next item to send.
//!
//! The server knows each client's missing symbols. A [`Scheduler`] ranks the wanted items by one of
//! six rules. It keeps the ranking up to date as requests come and go, so that a choice does not
//! look at all of them. R is the number of clients that want an item.
//!
//! | kind | sends first the item with | from |
//! |---|---|---|
//! | `gain` | the greatest gain for each packet of a burst: over the clients that it satisfies, the square of the item's share in what the client still waits for | [Repository §2.2, §6.3.2], extended |
//! | `rq` | the greatest R/Q, Q being the smallest outstanding request of a client that wants it | [Repository §2.2] |
//! | `rq-fill` | the greatest R/(Q/fill), fill being the share of packets that the client receives | [Repository §6.3.2] |
//! | `rxw` | the greatest R × waiting time of its oldest request | Aksoy and Franklin, 1998 |
//! | `mrf` | the greatest R | Dykeman, Ammar and Wong, 1986 |
//! | `fcfs` | the oldest request | |
//!
//! A client's outstanding request is the number of its missing symbols in all items that it wants.
//! Ties go to the smallest item id.

mod burst;
mod gain;
mod heap;
mod nearest;
mod requests;
mod score;
#[cfg(test)]
mod tests;
mod waiting;

pub use self::score::Score;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::str::FromStr;

use umbel_wire::Toi;

use self::burst::Burst;
use self::gain::GainIndex;
use self::heap::Ranking;
use self::nearest::NearestIndex;
use self::requests::{FILL_UNIT, Requests};
use self::waiting::WaitingIndex;
use crate::{Instant, SessionId};

/// The rule by which items are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SchedulerKind {
    /// The greatest gain for each packet.
    #[default]
    Gain,
    /// Requests over the smallest outstanding request, R/Q [Repository §2.2].
    Rq,
    /// R/(Q/fill): as R/Q, with the time that a lossy client needs [Repository §6.3.2].
    RqFill,
    /// Requests multiplied by the waiting time of the oldest.
    Rxw,
    /// Most requests first.
    Mrf,
    /// First come, first served: the oldest request first.
    Fcfs,
}

impl SchedulerKind {
    /// All kinds, in the order of their declaration.
    pub const ALL: [SchedulerKind; 6] = [
        SchedulerKind::Gain,
        SchedulerKind::Rq,
        SchedulerKind::RqFill,
        SchedulerKind::Rxw,
        SchedulerKind::Mrf,
        SchedulerKind::Fcfs,
    ];

    /// Returns the name used on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            SchedulerKind::Gain => "gain",
            SchedulerKind::Rq => "rq",
            SchedulerKind::RqFill => "rq-fill",
            SchedulerKind::Rxw => "rxw",
            SchedulerKind::Mrf => "mrf",
            SchedulerKind::Fcfs => "fcfs",
        }
    }
}

impl fmt::Display for SchedulerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Clients that a burst should satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aim {
    /// The clients with which the burst gains the most for its symbols.
    Best,
    /// Of these, only the clients that need at most a quarter more than the nearest. Where symbols
    /// are sent in the order of blocks, the nearest would have to wait for the others.
    Nearest,
    /// The best clients, and at least the one whose request is the oldest.
    Oldest,
}

/// A client that a burst should satisfy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Target {
    /// The client.
    pub session: SessionId,
    /// Number of symbols of the item to send until the client is expected to have it.
    pub reach: u64,
    fill: u32,
}

impl Target {
    /// Returns the number of symbols to send until the client is expected to have `symbols` more.
    pub fn reach_of(&self, symbols: u32) -> u64 {
        burst::reach(symbols, self.fill)
    }
}

/// An unknown scheduler name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no scheduler: choose gain, rq, rq-fill, rxw, mrf or fcfs")]
pub struct UnknownScheduler(pub String);

impl FromStr for SchedulerKind {
    type Err = UnknownScheduler;

    fn from_str(text: &str) -> Result<SchedulerKind, UnknownScheduler> {
        let known = SchedulerKind::ALL.into_iter().find(|kind| kind.name() == text);
        known.ok_or_else(|| UnknownScheduler(text.to_owned()))
    }
}

/// Index that makes a choice cheap, by kind. In all of them, held items are not chosen.
#[derive(Clone, Debug)]
enum Index {
    Gain(Box<GainIndex>),
    Nearest(Box<NearestIndex>),
    Waiting(WaitingIndex),
    Popular(Ranking<(u32, Reverse<Toi>)>),
    Oldest(Ranking<(Reverse<Instant>, Reverse<Toi>)>),
}

/// The clients' requests, and the choice of the item to be sent next.
///
/// With a million items and a hundred thousand requests a choice by R/Q takes about one
/// microsecond. It takes some tens now and then, when many clients were waiting for the item just
/// held. The other rules are faster. Every change takes below one microsecond on average. Only
/// wanted items take memory, about 100 bytes a request. `benches/scheduler.rs` measures this.
///
/// Time does not run backwards here: a `now` before an earlier one counts as the earlier one.
#[derive(Clone, Debug)]
pub struct Scheduler {
    kind: SchedulerKind,
    requests: Requests,
    index: Index,
    /// Items that are being sent, wanted or not.
    held: BTreeSet<Toi>,
    latest: Instant,
}

impl Scheduler {
    /// Creates a scheduler without requests.
    pub fn new(kind: SchedulerKind) -> Scheduler {
        let index = match kind {
            SchedulerKind::Gain => Index::Gain(Box::new(GainIndex::new())),
            SchedulerKind::Rq => Index::Nearest(Box::new(NearestIndex::new(false))),
            SchedulerKind::RqFill => Index::Nearest(Box::new(NearestIndex::new(true))),
            SchedulerKind::Rxw => Index::Waiting(WaitingIndex::new()),
            SchedulerKind::Mrf => Index::Popular(Ranking::new()),
            SchedulerKind::Fcfs => Index::Oldest(Ranking::new()),
        };
        let (requests, held) = (Requests::new(), BTreeSet::new());
        Scheduler { kind, requests, index, held, latest: Instant::EPOCH }
    }

    /// Returns the rule that it follows.
    pub fn kind(&self) -> SchedulerKind {
        self.kind
    }

    /// Adds the request of a client that is missing `size` symbols of the item. A size of 0 counts
    /// as 1, one above 2³² − 1 as that. A request that exists already keeps its place; its size
    /// changes.
    pub fn add(&mut self, now: Instant, client: SessionId, item: Toi, size: u64) {
        let now = self.advance(now);
        let slot = self.requests.enter_client(client);
        if self.requests.request_slot(slot, item).is_some() {
            return self.resize(client, item, size);
        }
        let held = &self.held;
        let request = self.requests.add(now, slot, item, symbols(size), || held.contains(&item));
        let item = self.requests.request(request).item;
        match &mut self.index {
            Index::Gain(index) => index.added(&self.requests, request),
            Index::Nearest(index) => index.added(&mut self.requests, slot, item),
            _ => self.update_item(item),
        }
    }

    /// Changes the number of symbols that a client is missing of an item. Does nothing if the
    /// client does not want the item. Sizes are read as by [`add`](Scheduler::add).
    pub fn resize(&mut self, client: SessionId, item: Toi, size: u64) {
        if let Some(request) = self.find(client, item) {
            self.resize_request(request, symbols(size));
        }
    }

    /// Sends nothing of the item to the client until [`add`](Scheduler::add) or
    /// [`resize`](Scheduler::resize) sets its missing symbols, because a transmission may have
    /// brought all. By `gain` the client still waits for the item. By the other rules its request
    /// is removed.
    pub fn wait(&mut self, client: SessionId, item: Toi) {
        let Some(request) = self.find(client, item) else { return };
        match self.index {
            Index::Gain(_) => self.resize_request(request, 0),
            _ => self.remove_request(request),
        }
    }

    fn resize_request(&mut self, request: u32, size: u32) {
        self.requests.resize(request, size);
        let client = self.requests.request(request).client;
        match &mut self.index {
            Index::Gain(index) => index.resized(&self.requests, request),
            Index::Nearest(index) => index.client_changed(&self.requests, client),
            _ => {}
        }
    }

    /// Removes the request of a client that no longer wants the item, or has it.
    pub fn remove(&mut self, client: SessionId, item: Toi) {
        if let Some(request) = self.find(client, item) {
            self.remove_request(request);
        }
    }

    fn remove_request(&mut self, request: u32) {
        let entry = self.requests.request(request);
        let (client, item) = (entry.client, entry.item);
        if let Index::Gain(index) = &mut self.index {
            index.removing(&self.requests, request);
        }
        self.requests.remove(request);
        match &mut self.index {
            Index::Gain(index) => index.removed(&self.requests, client, item),
            Index::Nearest(index) => index.removed(&mut self.requests, client, item),
            _ => self.update_item(item),
        }
    }

    /// Updates the rules that rank an item by itself, after its requests or its hold have changed.
    fn update_item(&mut self, item: u32) {
        let entry = self.requests.item(item);
        let first = self.requests.of_item(item).next().filter(|_| !entry.held);
        let toi = Reverse(entry.toi);
        match &mut self.index {
            Index::Gain(_) | Index::Nearest(_) => {}
            Index::Waiting(index) => index.update(&self.requests, item),
            Index::Popular(ranking) => {
                ranking.set(item, first.map(|_| (entry.requesters, toi)));
            }
            Index::Oldest(ranking) => {
                let since = |request| Reverse(self.requests.request(request).since);
                ranking.set(item, first.map(|first| (since(first), toi)));
            }
        }
    }

    /// Forgets the requests and the fill of a client that is gone. O(its items).
    pub fn remove_client(&mut self, client: SessionId) {
        let Some(slot) = self.requests.client_slot(client) else { return };
        while let Some(request) = self.requests.of_client(slot).next() {
            self.remove_request(request);
        }
        self.requests.forget_client(slot);
    }

    /// Sets the share of packets that the client receives, 0 to 1: 1 − loss. It is 1 until set, and
    /// kept until [`remove_client`](Scheduler::remove_client). It is counted in millionths, at
    /// least one. NaN changes nothing.
    pub fn set_fill(&mut self, client: SessionId, fill: f64) {
        if fill.is_nan() {
            return;
        }
        let fill = (fill * f64::from(FILL_UNIT)).round().clamp(1.0, f64::from(FILL_UNIT)) as u32;
        let slot = self.requests.enter_client(client);
        self.requests.set_fill(slot, fill);
        match &mut self.index {
            Index::Gain(index) => index.client_changed(&self.requests, slot),
            Index::Nearest(index) => index.client_changed(&self.requests, slot),
            _ => {}
        }
    }

    /// Holds an item that is being sent. Until [`unhold`](Scheduler::unhold) it is not chosen, even
    /// if further clients ask for it, but still counts in its clients' outstanding requests.
    pub fn hold(&mut self, item: Toi) {
        if !self.held.insert(item) {
            return;
        }
        let Some(slot) = self.requests.item_slot(item) else { return };
        self.requests.set_held(slot, true);
        match &mut self.index {
            Index::Gain(index) => index.hold_changed(&self.requests, slot),
            Index::Nearest(index) => index.held(slot),
            _ => self.update_item(slot),
        }
    }

    /// Ends the hold of an item that is no longer being sent.
    pub fn unhold(&mut self, item: Toi) {
        if !self.held.remove(&item) {
            return;
        }
        let Some(slot) = self.requests.item_slot(item) else { return };
        self.requests.set_held(slot, false);
        match &mut self.index {
            Index::Gain(index) => index.hold_changed(&self.requests, slot),
            Index::Nearest(index) => index.unheld(&mut self.requests, slot),
            _ => self.update_item(slot),
        }
    }

    /// Returns the item to be sent next. Of the items wanted and not held, it has the greatest
    /// [`score`](Scheduler::score), and of equals the smallest id. Its requests stay.
    pub fn choose(&mut self, now: Instant) -> Option<Toi> {
        let now = self.advance(now);
        match &mut self.index {
            Index::Gain(index) => index.choose(&self.requests),
            Index::Nearest(index) => index.choose(&mut self.requests),
            Index::Waiting(index) => index.choose(now),
            Index::Popular(ranking) => ranking.top().map(|((_, Reverse(toi)), _)| toi),
            Index::Oldest(ranking) => ranking.top().map(|((_, Reverse(toi)), _)| toi),
        }
    }

    /// Returns, by `gain`, the item with the oldest request among those that could be chosen. A
    /// request counts until its client has the item.
    pub fn oldest(&self) -> Option<Toi> {
        match &self.index {
            Index::Gain(index) => index.oldest(),
            _ => None,
        }
    }

    /// Returns the clients that a burst of an item should satisfy, by the gain rule. They are
    /// missing some of it, and are in the order in which its symbols would satisfy them. O(R log
    /// R).
    pub fn targets(&self, item: Toi, aim: Aim) -> Vec<Target> {
        let Some(slot) = self.requests.item_slot(item) else { return Vec::new() };
        let mut oldest = None;
        let mut steps = Vec::new();
        for request in self.requests.of_item(slot).map(|r| self.requests.request(r)) {
            if request.size > 0 {
                let client = self.requests.client(request.client);
                let reach = burst::reach(request.size, client.fill);
                let target = Target { session: client.session, reach, fill: client.fill };
                oldest.get_or_insert(reach);
                steps.push((target, burst::gain(request.full, client.asked)));
            }
        }
        steps.sort_unstable_by_key(|(target, _)| (target.reach, target.session));
        let gains = steps.iter().map(|(target, gain)| (target.reach, *gain));
        let best = Burst::best(gains, steps.len() as u32).map_or(0, |best| best.reach);
        let nearest = steps.first().map_or(0, |(target, _)| target.reach);
        let reach = match aim {
            Aim::Best => best,
            Aim::Nearest => best.min(nearest + nearest / 4),
            Aim::Oldest => best.max(oldest.unwrap_or(0)),
        };
        let targets = steps.into_iter().map(|(target, _)| target);
        targets.take_while(|target| target.reach <= reach).collect()
    }

    /// Returns the exact score of a wanted item, held or not; by `gain` only if something of it is
    /// to be sent. For FCFS it is the age of the oldest request, and times are in nanoseconds.
    /// O(R).
    pub fn score(&self, now: Instant, item: Toi) -> Option<Score> {
        let slot = self.requests.item_slot(item)?;
        let requesters = u128::from(self.requests.item(slot).requesters);
        let oldest = self.requests.of_item(slot).next()?;
        let since = self.requests.request(oldest).since;
        let age = u128::from(now.max(self.latest).as_nanos() - since.as_nanos());
        Some(match self.kind {
            SchedulerKind::Gain => self.gain_score(slot)?,
            SchedulerKind::Rq | SchedulerKind::RqFill => {
                let clients = self.requests.of_item(slot).map(|r| self.requests.request(r).client);
                clients.map(|client| self.score_for(requesters, client)).max()?
            }
            SchedulerKind::Rxw => Score::new(requesters * age, 1),
            SchedulerKind::Mrf => Score::new(requesters, 1),
            SchedulerKind::Fcfs => Score::new(age, 1),
        })
    }

    /// Returns the gain over cost of the best burst, computed with the index's classes of reaches.
    fn gain_score(&self, item: u32) -> Option<Score> {
        let mut classes = BTreeMap::new();
        let mut wanting = 0;
        let requests = self.requests.of_item(item).map(|request| self.requests.request(request));
        for request in requests.filter(|request| request.size > 0) {
            let client = self.requests.client(request.client);
            let class = burst::class(burst::reach(request.size, client.fill));
            *classes.entry(class).or_insert(0) += burst::gain(request.full, client.asked);
            wanting += 1;
        }
        let steps = classes.into_iter().map(|(class, gain)| (burst::upper(class), gain));
        let best = Burst::best(steps, wanting)?;
        Some(Score::new(best.gain.into(), best.cost.into()))
    }

    /// Returns R over this client's outstanding request.
    fn score_for(&self, requesters: u128, client: u32) -> Score {
        let client = self.requests.client(client);
        let outstanding = u128::from(client.outstanding);
        match self.kind {
            SchedulerKind::RqFill => Score::new(
                requesters * u128::from(client.fill),
                outstanding * u128::from(FILL_UNIT),
            ),
            _ => Score::new(requesters, outstanding),
        }
    }

    /// Returns the clients that want an item, in the order in which they asked.
    pub fn clients(&self, item: Toi) -> impl Iterator<Item = SessionId> {
        let list = self.requests.item_slot(item).map(|slot| self.requests.of_item(slot));
        list.into_iter().flatten().map(|request| {
            let client = self.requests.request(request).client;
            self.requests.client(client).session
        })
    }

    /// Returns whether the client wants the item.
    pub fn contains(&self, client: SessionId, item: Toi) -> bool {
        self.find(client, item).is_some()
    }

    /// Returns R, the number of clients that want an item.
    pub fn requesters(&self, item: Toi) -> usize {
        let slot = self.requests.item_slot(item);
        slot.map_or(0, |slot| self.requests.item(slot).requesters as usize)
    }

    /// Returns Q, the number of symbols that a client is missing of all items that it wants.
    pub fn outstanding(&self, client: SessionId) -> u64 {
        let slot = self.requests.client_slot(client);
        slot.map_or(0, |slot| self.requests.client(slot).outstanding)
    }

    /// Returns the items that a client wants, in the order in which it asked.
    pub fn items_of(&self, client: SessionId) -> impl Iterator<Item = Toi> {
        let list = self.requests.client_slot(client).map(|slot| self.requests.of_client(slot));
        list.into_iter().flatten().map(|request| {
            let item = self.requests.request(request).item;
            self.requests.item(item).toi
        })
    }

    /// Returns the wanted items, held or not, in an order that depends only on the calls made so
    /// far.
    pub fn items(&self) -> impl Iterator<Item = Toi> {
        self.requests.items().map(|(_, item)| item.toi)
    }

    /// Returns the number of pending requests: pairs of a client and an item.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns whether there are no requests.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn find(&self, client: SessionId, item: Toi) -> Option<u32> {
        self.requests.request_slot(self.requests.client_slot(client)?, item)
    }

    fn advance(&mut self, now: Instant) -> Instant {
        self.latest = self.latest.max(now);
        self.latest
    }
}

/// Returns a size as it is counted.
fn symbols(size: u64) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX).max(1)
}
