//! The index of the gain rule.
//!
//! A request's *reach* is the number of symbols to send of the item until its client is expected to
//! have it. That is its missing symbols over its fill. Its *gain* is the square of its share in all
//! that the client asked for and does not have yet. A missing item thus counts the more, the less
//! else its client waits for. A burst of n symbols of an item gains the sum over the requests with
//! a reach up to n. It costs n symbols and its announcement. The score of an item is the greatest
//! gain over cost of any burst.
//!
//! Requests of an item are counted in *classes* of nearly the same reach. A score is thus a walk
//! over some tens of classes, however many clients want the item.
//!
//! The size of all that a client asked for changes with each item that it gets. With it changes the
//! gain of all its other requests. A client's requests are recounted at once if they are few.
//! Otherwise they are recounted only when that size has changed by an eighth, some with each call,
//! so that no call takes long. That makes eight recounted requests on average for each item that a
//! client gets.

use std::cmp::Reverse;
use std::collections::VecDeque;

use umbel_wire::Toi;

use super::burst::{self, Burst};
use super::heap::Ranking;
use super::requests::{NONE, Requests};
use crate::Instant;

/// Greatest number of a client's requests that are recounted at once.
const FEW: u32 = 16;
/// Number of requests that are recounted with each change, and with each choice, if there are more.
const CATCH_UP: usize = 16;
/// A client's asked size counts as changed once it has changed by one part in this number.
const ASKED_STEPS: u64 = 8;
/// The same for the client's fill.
const FILL_STEPS: u64 = 32;
/// Class of a request for which nothing is to be sent.
const WAITING: u16 = u16::MAX;

/// Class and gain with which a request is counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    class: u16,
    gain: u64,
}

/// The requests of an item with nearly the same reach.
#[derive(Clone, Copy, Debug)]
struct Class {
    number: u16,
    requests: u32,
    /// The sum of their gains, which wraps beyond 2²⁴ clients that want nothing else.
    gain: u64,
}

/// Client values with which its requests were last counted.
#[derive(Clone, Copy, Debug)]
struct Published {
    asked: u64,
    fill: u32,
    /// Its next request to be recounted, if the client is in line.
    next: u32,
    in_line: bool,
}

/// A sort key that orders like a float above zero, by its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Key(u64);

/// The index described in the module.
#[derive(Clone, Debug)]
pub(super) struct GainIndex {
    counted: Vec<Counted>,
    /// By item, in ascending order.
    classes: Vec<Vec<Class>>,
    published: Vec<Published>,
    line: VecDeque<u32>,
    ranking: Ranking<(Key, Reverse<Toi>)>,
    oldest: Ranking<(Reverse<Instant>, Reverse<Toi>)>,
}

impl GainIndex {
    pub(super) const fn new() -> GainIndex {
        GainIndex {
            counted: Vec::new(),
            classes: Vec::new(),
            published: Vec::new(),
            line: VecDeque::new(),
            ranking: Ranking::new(),
            oldest: Ranking::new(),
        }
    }

    /// Notes that a request was entered.
    pub(super) fn added(&mut self, requests: &Requests, request: u32) {
        let (client, item) = self.make_room(requests, request);
        self.counted[request as usize] = Counted { class: WAITING, gain: 0 };
        self.count(requests, request);
        self.rank(requests, item);
        self.client_changed(requests, client);
    }

    /// Notes that the size of a request has changed.
    pub(super) fn resized(&mut self, requests: &Requests, request: u32) {
        self.count(requests, request);
        self.rank(requests, requests.request(request).item);
        self.client_changed(requests, requests.request(request).client);
    }

    /// Notes that a request is about to be removed.
    pub(super) fn removing(&mut self, requests: &Requests, request: u32) {
        let entry = requests.request(request);
        let published = &mut self.published[entry.client as usize];
        if published.next == request {
            published.next = requests.next_of_client(request);
        }
        let old = self.counted[request as usize];
        self.uncount(entry.item, old);
    }

    /// Notes that a request of this client for this item was removed.
    pub(super) fn removed(&mut self, requests: &Requests, client: u32, item: u32) {
        self.rank(requests, item);
        self.client_changed(requests, client);
    }

    /// Notes that the client's asked size or its fill has changed.
    pub(super) fn client_changed(&mut self, requests: &Requests, client: u32) {
        let Some(published) = self.published.get_mut(client as usize) else { return };
        let entry = requests.client(client);
        let off = |old: u64, new: u64, steps: u64| {
            u128::from(old.abs_diff(new)) * u128::from(steps) > u128::from(old)
        };
        let few = entry.items <= FEW;
        let changed = off(published.fill.into(), entry.fill.into(), FILL_STEPS)
            || off(published.asked, entry.asked, ASKED_STEPS)
            || (few && published.asked != entry.asked);
        if changed {
            (published.asked, published.fill) = (entry.asked, entry.fill);
            if few {
                published.next = NONE;
                let mut next = requests.of_client(client).next().unwrap_or(NONE);
                while next != NONE {
                    self.count_and_rank(requests, next);
                    next = requests.next_of_client(next);
                }
            } else {
                published.next = requests.of_client(client).next().unwrap_or(NONE);
                if !std::mem::replace(&mut published.in_line, true) {
                    self.line.push_back(client);
                }
            }
        }
        self.catch_up(requests);
    }

    /// Notes that the item is held from now on, or no longer.
    pub(super) fn hold_changed(&mut self, requests: &Requests, item: u32) {
        self.rank(requests, item);
    }

    /// Returns the best item that is not held.
    pub(super) fn choose(&mut self, requests: &Requests) -> Option<Toi> {
        self.catch_up(requests);
        self.ranking.top().map(|((_, Reverse(toi)), _)| toi)
    }

    /// Returns the item with the oldest request, among items that are not held and have something
    /// to be sent.
    pub(super) fn oldest(&self) -> Option<Toi> {
        self.oldest.top().map(|((_, Reverse(toi)), _)| toi)
    }

    fn make_room(&mut self, requests: &Requests, request: u32) -> (u32, u32) {
        let entry = requests.request(request);
        let counted = self.counted.len().max(request as usize + 1);
        self.counted.resize(counted, Counted { class: WAITING, gain: 0 });
        let items = self.classes.len().max(entry.item as usize + 1);
        self.classes.resize_with(items, Vec::new);
        let clients = self.published.len().max(entry.client as usize + 1);
        let nothing = Published { asked: 0, fill: 0, next: NONE, in_line: false };
        self.published.resize(clients, nothing);
        (entry.client, entry.item)
    }

    /// Recounts some requests of clients that have changed.
    fn catch_up(&mut self, requests: &Requests) {
        for _ in 0..CATCH_UP {
            let Some(&client) = self.line.front() else { break };
            let published = &mut self.published[client as usize];
            let request = published.next;
            if request == NONE {
                published.in_line = false;
                self.line.pop_front();
                continue;
            }
            published.next = requests.next_of_client(request);
            self.count_and_rank(requests, request);
        }
    }

    fn count_and_rank(&mut self, requests: &Requests, request: u32) {
        if self.count(requests, request) {
            self.rank(requests, requests.request(request).item);
        }
    }

    /// Counts a request as it is now. Returns whether that changes anything.
    fn count(&mut self, requests: &Requests, request: u32) -> bool {
        let entry = requests.request(request);
        let client = requests.client(entry.client);
        let new = match entry.size {
            0 => Counted { class: WAITING, gain: 0 },
            size => Counted {
                class: burst::class(burst::reach(size, client.fill)),
                gain: burst::gain(entry.full, client.asked),
            },
        };
        let old = std::mem::replace(&mut self.counted[request as usize], new);
        if old.class == new.class && old.gain == new.gain {
            return false;
        }
        let item = entry.item;
        self.uncount(item, old);
        if new.class != WAITING {
            let classes = &mut self.classes[item as usize];
            let place = classes.partition_point(|entry| entry.number < new.class);
            if classes.get(place).is_none_or(|entry| entry.number != new.class) {
                classes.insert(place, Class { number: new.class, requests: 0, gain: 0 });
            }
            classes[place].requests += 1;
            classes[place].gain = classes[place].gain.wrapping_add(new.gain);
        }
        true
    }

    fn uncount(&mut self, item: u32, old: Counted) {
        let classes = &mut self.classes[item as usize];
        let place = classes.partition_point(|entry| entry.number < old.class);
        let Some(entry) = classes.get_mut(place).filter(|entry| entry.number == old.class) else {
            return;
        };
        entry.requests -= 1;
        entry.gain = entry.gain.wrapping_sub(old.gain);
        if entry.requests == 0 {
            classes.remove(place);
        }
    }

    /// Moves an item to its place in the rankings.
    fn rank(&mut self, requests: &Requests, item: u32) {
        let entry = requests.item(item);
        let classes = &mut self.classes[item as usize];
        if entry.requesters == 0 {
            *classes = Vec::new();
        }
        let toi = Reverse(entry.toi);
        let wanting = classes.iter().map(|class| class.requests).sum();
        let steps = classes.iter().map(|class| (burst::upper(class.number), class.gain));
        let best = Burst::best(steps, wanting).filter(|_| !entry.held);
        self.ranking.set(item, best.map(|best| (Key(best.score().to_bits()), toi)));
        let first = requests.of_item(item).next().filter(|_| best.is_some());
        let since = first.map(|first| Reverse(requests.request(first).since));
        self.oldest.set(item, since.map(|since| (since, toi)));
    }
}
