//! The index of the R/Q rules.
//!
//! The best score is the greatest R_i/q_c over all pairs of an item i and a client c that wants it.
//! Here q_c is the outstanding request of c (divided by its fill, for R/(Q/fill)). A client's best
//! item does not depend on q_c. It is the one with the greatest R, and of equals the one with the
//! smallest id. The index keeps upper bounds of these bests, and makes them exact only where they
//! decide a choice.
//!
//! A *wish* is R and an item id in one number, ordered as the rule orders the items of one client.
//! Each client has a heap of wishes, none below the truth. Falling R leaves a wish stale; it is
//! corrected when it comes up. Rising R must raise the wishes of every client that wants the item,
//! which would make many requests for one item quadratic. A wish is therefore first entered with
//! the item's *published* R, half as much again as the true one. The published R is raised for all
//! only when R outgrows it. A wish that was *lowered* to the truth since is remembered with the
//! item, and raised again when R rises. Every raising is thus paid for by an earlier request or
//! correction.
//!
//! Clients with the same wish on top form a *group*, a heap by q_c. The groups are ranked by the
//! wish and the smallest q_c. When an item is held, or many of its requests go at once, only its
//! group is stale. The group's bound is then cut to the most popular item (*clipped*) before any of
//! its clients is looked at.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use umbel_wire::Toi;

use super::heap::{Heap, Ranking};
use super::requests::{NONE, Requests, SlotMap};

/// An item that more clients want than this is not searched for its nearest client.
const SEARCHED_REQUESTERS: u32 = 64;
/// Greatest number of one client's wishes that are corrected before other clients are looked at
/// again.
const CORRECTIONS: u32 = 16;
/// Number of a client's wishes that are corrected with each removed request, so that few are left
/// for the next choice.
const ADVANCE_CORRECTIONS: u32 = 4;

/// R in the upper half, the inverted item id in the lower. Greater wishes come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Wish(u64);

impl Wish {
    fn new(requesters: u32, toi: Toi) -> Wish {
        Wish(u64::from(requesters) << 32 | u64::from(!toi.0))
    }

    fn requesters(self) -> u32 {
        (self.0 >> 32) as u32
    }

    fn toi(self) -> Toi {
        Toi(!(self.0 as u32))
    }
}

/// Nearness of a client to having all it wants: fill/Q. A greater value is nearer.
#[derive(Clone, Copy, Debug)]
struct Nearness {
    fill: u32,
    outstanding: u64,
}

impl Ord for Nearness {
    fn cmp(&self, other: &Nearness) -> Ordering {
        let this = u128::from(self.fill) * u128::from(other.outstanding);
        this.cmp(&(u128::from(other.fill) * u128::from(self.outstanding)))
    }
}

impl PartialOrd for Nearness {
    fn partial_cmp(&self, other: &Nearness) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Nearness {
    fn eq(&self, other: &Nearness) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Nearness {}

/// The bound of a group: its wish for its nearest client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rank {
    wish: Wish,
    nearness: Nearness,
    /// Whether the rank is known to be stale. It then comes after an equal bound that may be exact.
    clipped: bool,
}

impl Rank {
    fn cmp_score(&self, other: &Rank) -> Ordering {
        // 32 bits of R, 20 of fill, 64 of Q.
        let product = |a: &Rank, b: &Rank| {
            u128::from(a.wish.requesters())
                * u128::from(a.nearness.fill)
                * u128::from(b.nearness.outstanding)
        };
        let score = product(self, other).cmp(&product(other, self));
        score.then(other.wish.toi().cmp(&self.wish.toi()))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Rank) -> Ordering {
        self.cmp_score(other)
            .then(other.clipped.cmp(&self.clipped))
            .then(self.wish.cmp(&other.wish))
            .then(self.nearness.cmp(&other.nearness))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Rank) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// Clients with the same greatest wish.
#[derive(Clone, Debug)]
struct Group {
    wish: Wish,
    /// The wish, or the bound that it was clipped to.
    bound: Wish,
    /// Whether its slot is in the list of clipped groups.
    listed: bool,
    members: Heap<Nearness>,
}

/// Published state of an item's R.
#[derive(Clone, Debug, Default)]
struct Published {
    /// Each client that wants the item has a wish of at least this R, unless it was lowered.
    requesters: u32,
    /// Clients whose wish was lowered to the true R, or removed while the item is held. Some may be
    /// gone.
    lowered: Vec<u32>,
}

/// The index described in the module.
#[derive(Clone, Debug)]
pub(super) struct NearestIndex {
    with_fill: bool,
    /// The true wish of each item that is not held.
    popular: Ranking<Wish>,
    published: Vec<Published>,
    /// By client: its wishes, its group, and its place in that group.
    wishes: Vec<BinaryHeap<Wish>>,
    group_of: Vec<u32>,
    places: Vec<u32>,
    groups: Vec<Group>,
    free_groups: Vec<u32>,
    group_slots: SlotMap<u64>,
    ranking: Ranking<Rank>,
    /// Clipped groups, of which some may be gone, and the lowest of their bounds.
    clipped: Vec<u32>,
    lowest_clip: Wish,
}

impl NearestIndex {
    /// Creates an empty index; `with_fill` for R/(Q/fill).
    pub(super) fn new(with_fill: bool) -> NearestIndex {
        NearestIndex {
            with_fill,
            popular: Ranking::new(),
            published: Vec::new(),
            wishes: Vec::new(),
            group_of: Vec::new(),
            places: Vec::new(),
            groups: Vec::new(),
            free_groups: Vec::new(),
            group_slots: SlotMap::default(),
            ranking: Ranking::new(),
            clipped: Vec::new(),
            lowest_clip: Wish(u64::MAX),
        }
    }

    /// Notes that a request was entered.
    pub(super) fn added(&mut self, requests: &mut Requests, client: u32, item: u32) {
        self.make_room(client, item);
        let entry = requests.item(item);
        let (toi, requesters, held) = (entry.toi, entry.requesters, entry.held);
        if !held {
            self.set_popular(item, Wish::new(requesters, toi));
        }
        if requesters > self.published[item as usize].requesters && !held {
            self.publish(requests, item);
        } else {
            if !held {
                self.raise_lowered(requests, item);
            }
            let published = self.published[item as usize].requesters.max(requesters);
            self.wishes[client as usize].push(Wish::new(published, toi));
        }
        self.settle(requests, client);
        self.seat(requests, client);
    }

    /// Notes that the client's outstanding request or its fill has changed.
    pub(super) fn client_changed(&mut self, requests: &Requests, client: u32) {
        if self.group_of.get(client as usize).is_some_and(|&group| group != NONE) {
            self.seat(requests, client);
        }
    }

    /// Notes that a request was removed.
    pub(super) fn removed(&mut self, requests: &mut Requests, client: u32, item: u32) {
        let entry = requests.item(item);
        let (toi, requesters) = (entry.toi, entry.requesters);
        if requesters == 0 {
            self.popular.set(item, None);
            self.published[item as usize] = Published::default();
        } else {
            if !entry.held {
                self.popular.set(item, Some(Wish::new(requesters, toi)));
            }
            let published = &mut self.published[item as usize].requesters;
            if requesters < *published / 4 {
                // No wish is below the newly published R.
                *published = requesters + requesters / 2;
            }
        }
        let items = requests.client(client).items as usize;
        if items == 0 {
            self.leave(client);
            self.wishes[client as usize] = BinaryHeap::new();
            return;
        }
        self.correct(requests, client, ADVANCE_CORRECTIONS);
    }

    /// Notes that the item is held from now on.
    pub(super) fn held(&mut self, item: u32) {
        self.popular.set(item, None);
    }

    /// Notes that the item is no longer held.
    pub(super) fn unheld(&mut self, requests: &mut Requests, item: u32) {
        let entry = requests.item(item);
        let (toi, requesters) = (entry.toi, entry.requesters);
        self.set_popular(item, Wish::new(requesters, toi));
        if requesters > self.published[item as usize].requesters {
            return self.publish(requests, item);
        }
        let lowered = std::mem::take(&mut self.published[item as usize].lowered);
        for &client in &lowered {
            let request = requests.request_slot(client, toi);
            if request.is_some_and(|request| requests.request(request).lowered) {
                self.push(requests, client, Wish::new(requesters, toi));
            }
        }
        self.published[item as usize].lowered = lowered;
    }

    /// Returns the best item that is not held.
    pub(super) fn choose(&mut self, requests: &mut Requests) -> Option<Toi> {
        let (popular, popular_item) = self.popular.top()?;
        let mut candidate = None;
        loop {
            let (rank, group) = self.ranking.top()?;
            let entry = &self.groups[group as usize];
            let (_, client) = entry.members.top()?;
            if rank.wish > popular {
                // A group that was clipped before, or has one client, always costs a correction
                // here. Each visit but the first is thus paid for.
                if rank.clipped || entry.members.len() == 1 {
                    self.correct(requests, client, CORRECTIONS);
                }
                self.clip(group, popular);
                self.clip(self.group_of[client as usize], popular);
                continue;
            }
            // No item can be better than one that reaches the greatest bound.
            let toi = rank.wish.toi();
            if let Some(request) = requests.request_slot(client, toi) {
                let item = requests.item(requests.request(request).item);
                if !item.held && item.requesters == rank.wish.requesters() {
                    return Some(toi);
                }
            }
            let candidate = candidate
                .get_or_insert_with(|| self.rank_of_popular(requests, popular, popular_item));
            if candidate.is_some_and(|candidate| candidate.cmp_score(&rank).is_ge()) {
                return Some(popular.toi());
            }
            self.correct(requests, client, CORRECTIONS);
        }
    }

    /// Returns the exact rank of the most popular item, if few enough clients want it to search
    /// them.
    fn rank_of_popular(&self, requests: &Requests, wish: Wish, item: u32) -> Option<Rank> {
        if wish.requesters() > SEARCHED_REQUESTERS {
            return None;
        }
        let clients = requests.of_item(item).map(|request| requests.request(request).client);
        let nearness = clients.map(|client| self.nearness(requests, client)).max()?;
        Some(Rank { wish, nearness, clipped: false })
    }

    fn make_room(&mut self, client: u32, item: u32) {
        let clients = self.wishes.len().max(client as usize + 1);
        self.wishes.resize_with(clients, BinaryHeap::new);
        self.group_of.resize(clients, NONE);
        self.places.resize(clients, NONE);
        let items = self.published.len().max(item as usize + 1);
        self.published.resize_with(items, Published::default);
    }

    /// Sets the true wish of an item, which may have risen. Bounds that were clipped below it are
    /// then bounds no longer.
    fn set_popular(&mut self, item: u32, wish: Wish) {
        self.popular.set(item, Some(wish));
        if wish <= self.lowest_clip {
            return;
        }
        self.lowest_clip = Wish(u64::MAX);
        for group in std::mem::take(&mut self.clipped) {
            let entry = &mut self.groups[group as usize];
            (entry.bound, entry.listed) = (entry.wish, false);
            self.rank(group);
        }
    }

    fn clip(&mut self, group: u32, bound: Wish) {
        let Some(entry) = self.groups.get_mut(group as usize) else { return };
        if entry.members.is_empty() || entry.bound <= bound {
            return;
        }
        entry.bound = bound;
        if !std::mem::replace(&mut entry.listed, true) {
            self.clipped.push(group);
        }
        self.lowest_clip = self.lowest_clip.min(bound);
        self.rank(group);
    }

    /// Publishes R to every client that wants the item, and half as much again where that spares
    /// many steps.
    fn publish(&mut self, requests: &mut Requests, item: u32) {
        let entry = requests.item(item);
        let (toi, requesters) = (entry.toi, entry.requesters);
        let published = match requesters {
            0..4 => requesters,
            _ => requesters.saturating_add(requesters / 4),
        };
        self.published[item as usize] = Published { requesters: published, lowered: Vec::new() };
        let mut next = requests.of_item(item).next();
        while let Some(request) = next {
            requests.request_mut(request).lowered = false;
            let client = requests.request(request).client;
            self.push(requests, client, Wish::new(published, toi));
            next = requests.next_of_item(request);
        }
    }

    /// Raises the lowered wishes to the published R.
    fn raise_lowered(&mut self, requests: &mut Requests, item: u32) {
        let toi = requests.item(item).toi;
        let published = self.published[item as usize].requesters;
        for client in std::mem::take(&mut self.published[item as usize].lowered) {
            if let Some(request) = requests.request_slot(client, toi)
                && std::mem::take(&mut requests.request_mut(request).lowered)
            {
                self.push(requests, client, Wish::new(published, toi));
            }
        }
    }

    /// Enters a wish of a client. A second wish for the same item does no harm.
    fn push(&mut self, requests: &Requests, client: u32, wish: Wish) {
        self.wishes[client as usize].push(wish);
        self.settle(requests, client);
        if self.top_wish(client) == Some(wish) || self.group_of[client as usize] == NONE {
            self.seat(requests, client);
        }
    }

    /// Removes dead wishes on top, or all dead ones if they outnumber the live ones.
    fn settle(&mut self, requests: &Requests, client: u32) {
        let items = requests.client(client).items as usize;
        if self.wishes[client as usize].len() > 2 * items + 32 {
            self.rebuild(requests, client);
        }
        while let Some(wish) = self.top_wish(client)
            && requests.request_slot(client, wish.toi()).is_none()
        {
            self.wishes[client as usize].pop();
        }
    }

    fn rebuild(&mut self, requests: &Requests, client: u32) {
        let wishes = requests.of_client(client).filter_map(|request| {
            let request = requests.request(request);
            let item = requests.item(request.item);
            let published = self.published[request.item as usize].requesters;
            match (request.lowered, item.held) {
                (true, true) => None,
                (true, false) => Some(Wish::new(item.requesters, item.toi)),
                (false, _) => Some(Wish::new(published.max(item.requesters), item.toi)),
            }
        });
        self.wishes[client as usize] = wishes.collect::<Vec<_>>().into();
    }

    /// Makes the first wishes of a client exact.
    fn correct(&mut self, requests: &mut Requests, client: u32, most: u32) {
        for _ in 0..most {
            let Some(wish) = self.top_wish(client) else { break };
            let toi = wish.toi();
            let Some(request) = requests.request_slot(client, toi) else {
                self.wishes[client as usize].pop();
                continue;
            };
            let item_slot = requests.request(request).item;
            let item = requests.item(item_slot);
            let (requesters, held) = (item.requesters, item.held);
            if held {
                self.wishes[client as usize].pop();
            } else if wish.requesters() == requesters {
                break;
            } else if let Some(mut top) = self.wishes[client as usize].peek_mut() {
                *top = Wish::new(requesters, toi);
            }
            self.note_lowered(requests, request, item_slot);
        }
        self.settle(requests, client);
        self.seat(requests, client);
    }

    fn note_lowered(&mut self, requests: &mut Requests, request: u32, item: u32) {
        if std::mem::replace(&mut requests.request_mut(request).lowered, true) {
            return;
        }
        let lowered = &mut self.published[item as usize].lowered;
        lowered.push(requests.request(request).client);
        if lowered.len() > 2 * requests.item(item).requesters as usize + 32 {
            // Some clients are gone. The flags of the requests tell which are not.
            let still = requests.of_item(item).map(|request| requests.request(request));
            *lowered = still.filter(|r| r.lowered).map(|r| r.client).collect();
        }
    }

    fn top_wish(&self, client: u32) -> Option<Wish> {
        self.wishes[client as usize].peek().copied()
    }

    fn nearness(&self, requests: &Requests, client: u32) -> Nearness {
        let client = requests.client(client);
        let fill = if self.with_fill { client.fill } else { 1 };
        Nearness { fill, outstanding: client.outstanding }
    }

    /// Moves a client to the group of its greatest wish, at its place there.
    fn seat(&mut self, requests: &Requests, client: u32) {
        let wish = self.top_wish(client);
        let old = self.group_of[client as usize];
        if old != NONE && wish != Some(self.groups[old as usize].wish) {
            self.leave(client);
        }
        let Some(wish) = wish else { return };
        let nearness = self.nearness(requests, client);
        let group = match self.group_of[client as usize] {
            NONE => self.enter_group(wish),
            group => group,
        };
        self.group_of[client as usize] = group;
        let members = &mut self.groups[group as usize].members;
        let nearest = members.top();
        members.set(&mut self.places, client, nearness);
        if members.top() != nearest {
            self.rank(group);
        }
    }

    fn leave(&mut self, client: u32) {
        let group = std::mem::replace(&mut self.group_of[client as usize], NONE);
        if group == NONE {
            return;
        }
        let entry = &mut self.groups[group as usize];
        let was_nearest = entry.members.top().is_some_and(|(_, nearest)| nearest == client);
        entry.members.remove(&mut self.places, client);
        if entry.members.is_empty() {
            self.group_slots.remove(&entry.wish.0);
            self.free_groups.push(group);
        }
        if was_nearest {
            self.rank(group);
        }
    }

    fn enter_group(&mut self, wish: Wish) -> u32 {
        if let Some(&group) = self.group_slots.get(&wish.0) {
            return group;
        }
        let group = if let Some(group) = self.free_groups.pop() {
            let entry = &mut self.groups[group as usize];
            (entry.wish, entry.bound) = (wish, wish);
            group
        } else {
            self.groups.push(Group { wish, bound: wish, listed: false, members: Heap::new() });
            (self.groups.len() - 1) as u32
        };
        self.group_slots.insert(wish.0, group);
        group
    }

    fn rank(&mut self, group: u32) {
        let entry = &self.groups[group as usize];
        let rank = entry.members.top().map(|(nearness, _)| {
            let clipped = entry.bound != entry.wish;
            Rank { wish: entry.bound, nearness, clipped }
        });
        self.ranking.set(group, rank);
    }
}
