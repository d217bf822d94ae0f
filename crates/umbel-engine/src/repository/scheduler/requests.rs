//! The clients, the items, and the requests that join them.
//!
//! Clients, items and requests live in slabs and are identified by their slot. Each request is in
//! two doubly linked lists: that of its item, in order of arrival, and that of its client. Every
//! change costs O(1). A request takes about 40 bytes, and its entry in the map 20 to 40. Maps are
//! looked up and never iterated, so their order does not matter.

#[allow(clippy::disallowed_types, reason = "see `SlotMap`")]
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use umbel_wire::Toi;

use crate::{Instant, SessionId};

/// No slot.
pub(super) const NONE: u32 = u32::MAX;

/// Number of parts in which a client's fill is counted.
pub(super) const FILL_UNIT: u32 = 1_000_000;

/// A hash for keys that this process numbers itself: one multiplication.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SlotHasher(u64);

impl Hasher for SlotHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        let product = u128::from(self.0 ^ n ^ 0x9E37_79B9_7F4A_7C15) * 0xD6E8_FEB8_6659_FD93;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
}

/// A map that is looked up, never iterated.
#[allow(clippy::disallowed_types, reason = "no order of it is ever seen, and its hashes are fixed")]
pub(super) type SlotMap<K> = HashMap<K, u32, BuildHasherDefault<SlotHasher>>;

/// A client with its outstanding request.
#[derive(Clone, Debug)]
pub(super) struct Client {
    pub(super) session: SessionId,
    /// Q: outstanding symbols. They cannot overflow, since 2³² requests have at most 2³² symbols
    /// each.
    pub(super) outstanding: u64,
    /// Full sizes of all its requests, each counted until the client has the item.
    pub(super) asked: u64,
    /// The share of packets that it receives, in millionths; at least 1.
    pub(super) fill: u32,
    /// Number of requests in its list.
    pub(super) items: u32,
    first: u32,
    last: u32,
}

/// An item that some client wants.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) toi: Toi,
    /// R: number of requests in its list.
    pub(super) requesters: u32,
    pub(super) held: bool,
    first: u32,
    last: u32,
}

/// One client wants one item.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) since: Instant,
    pub(super) client: u32,
    pub(super) item: u32,
    /// Outstanding symbols; 0 until the client has named those that a transmission left missing.
    pub(super) size: u32,
    /// The greatest number of symbols that were ever outstanding.
    pub(super) full: u32,
    /// Whether the R/Q index lowered its wish to the true R. Unused otherwise.
    pub(super) lowered: bool,
    /// Neighbours in the lists of the item and of the client.
    next: [u32; 2],
    previous: [u32; 2],
}

const BY_ITEM: usize = 0;
const BY_CLIENT: usize = 1;

/// Values with stable slots, reused last in first out.
#[derive(Clone, Debug)]
struct Slab<T> {
    slots: Vec<T>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    const fn new() -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new() }
    }

    fn insert(&mut self, value: T) -> u32 {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = value;
            return slot;
        }
        self.slots.push(value);
        (self.slots.len() - 1) as u32
    }
}

/// All requests.
#[derive(Clone, Debug)]
pub(super) struct Requests {
    clients: Slab<Client>,
    items: Slab<Item>,
    wanted: Slab<Request>,
    client_slots: SlotMap<u64>,
    item_slots: SlotMap<u32>,
    wanted_slots: SlotMap<u64>,
}

impl Requests {
    pub(super) fn new() -> Requests {
        Requests {
            clients: Slab::new(),
            items: Slab::new(),
            wanted: Slab::new(),
            client_slots: SlotMap::default(),
            item_slots: SlotMap::default(),
            wanted_slots: SlotMap::default(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.wanted_slots.len()
    }

    pub(super) fn client(&self, slot: u32) -> &Client {
        &self.clients.slots[slot as usize]
    }

    pub(super) fn item(&self, slot: u32) -> &Item {
        &self.items.slots[slot as usize]
    }

    pub(super) fn request(&self, slot: u32) -> &Request {
        &self.wanted.slots[slot as usize]
    }

    pub(super) fn request_mut(&mut self, slot: u32) -> &mut Request {
        &mut self.wanted.slots[slot as usize]
    }

    pub(super) fn client_slot(&self, session: SessionId) -> Option<u32> {
        self.client_slots.get(&session.0).copied()
    }

    pub(super) fn item_slot(&self, toi: Toi) -> Option<u32> {
        self.item_slots.get(&toi.0).copied()
    }

    pub(super) fn request_slot(&self, client: u32, toi: Toi) -> Option<u32> {
        self.wanted_slots.get(&request_key(client, toi)).copied()
    }

    /// Returns the slot of a client, and adds the client if it is not known.
    pub(super) fn enter_client(&mut self, session: SessionId) -> u32 {
        if let Some(slot) = self.client_slot(session) {
            return slot;
        }
        let client = Client {
            session,
            outstanding: 0,
            asked: 0,
            fill: FILL_UNIT,
            items: 0,
            first: NONE,
            last: NONE,
        };
        let slot = self.clients.insert(client);
        self.client_slots.insert(session.0, slot);
        slot
    }

    /// Forgets a client without requests.
    pub(super) fn forget_client(&mut self, slot: u32) {
        debug_assert_eq!(self.client(slot).items, 0);
        let session = self.client(slot).session;
        self.client_slots.remove(&session.0);
        self.clients.free.push(slot);
    }

    pub(super) fn set_fill(&mut self, client: u32, fill: u32) {
        self.clients.slots[client as usize].fill = fill;
    }

    pub(super) fn set_held(&mut self, item: u32, held: bool) {
        self.items.slots[item as usize].held = held;
    }

    /// Adds a request that does not exist yet. A new item takes its `held` from the argument.
    pub(super) fn add(
        &mut self,
        since: Instant,
        client: u32,
        toi: Toi,
        size: u32,
        held: impl FnOnce() -> bool,
    ) -> u32 {
        let item = self.item_slot(toi).unwrap_or_else(|| {
            let item = Item { toi, requesters: 0, held: held(), first: NONE, last: NONE };
            let slot = self.items.insert(item);
            self.item_slots.insert(toi.0, slot);
            slot
        });
        let previous = [self.item(item).last, self.client(client).last];
        let next = [NONE; 2];
        let request =
            Request { since, client, item, size, full: size, lowered: false, next, previous };
        let slot = self.wanted.insert(request);
        self.wanted_slots.insert(request_key(client, toi), slot);
        for list in [BY_ITEM, BY_CLIENT] {
            if previous[list] != NONE {
                self.wanted.slots[previous[list] as usize].next[list] = slot;
            }
        }
        let entry = &mut self.items.slots[item as usize];
        entry.requesters += 1;
        entry.last = slot;
        if entry.first == NONE {
            entry.first = slot;
        }
        let entry = &mut self.clients.slots[client as usize];
        entry.items += 1;
        entry.outstanding += u64::from(size);
        entry.asked += u64::from(size);
        entry.last = slot;
        if entry.first == NONE {
            entry.first = slot;
        }
        slot
    }

    /// Changes the outstanding size of a request.
    pub(super) fn resize(&mut self, slot: u32, size: u32) {
        let request = &mut self.wanted.slots[slot as usize];
        let client = &mut self.clients.slots[request.client as usize];
        client.outstanding = client.outstanding - u64::from(request.size) + u64::from(size);
        request.size = size;
        client.asked += u64::from(size.saturating_sub(request.full));
        request.full = request.full.max(size);
    }

    /// Removes a request. The item is forgotten with its last request; its slot can be read until
    /// the next request is added.
    pub(super) fn remove(&mut self, slot: u32) {
        let Request { client, item, size, full, next, previous, .. } = *self.request(slot);
        let toi = self.item(item).toi;
        for list in [BY_ITEM, BY_CLIENT] {
            if previous[list] != NONE {
                self.wanted.slots[previous[list] as usize].next[list] = next[list];
            }
            if next[list] != NONE {
                self.wanted.slots[next[list] as usize].previous[list] = previous[list];
            }
        }
        let entry = &mut self.clients.slots[client as usize];
        entry.items -= 1;
        entry.outstanding -= u64::from(size);
        entry.asked -= u64::from(full);
        if entry.first == slot {
            entry.first = next[BY_CLIENT];
        }
        if entry.last == slot {
            entry.last = previous[BY_CLIENT];
        }
        let entry = &mut self.items.slots[item as usize];
        entry.requesters -= 1;
        if entry.first == slot {
            entry.first = next[BY_ITEM];
        }
        if entry.last == slot {
            entry.last = previous[BY_ITEM];
        }
        if entry.requesters == 0 {
            self.item_slots.remove(&toi.0);
            self.items.free.push(item);
        }
        self.wanted_slots.remove(&request_key(client, toi));
        self.wanted.free.push(slot);
    }

    /// Returns the requests for an item, oldest first.
    pub(super) fn of_item(&self, item: u32) -> RequestList<'_> {
        RequestList { requests: self, slot: self.item(item).first, list: BY_ITEM }
    }

    /// Returns the next request in the list of this request's item.
    pub(super) fn next_of_item(&self, slot: u32) -> Option<u32> {
        Some(self.request(slot).next[BY_ITEM]).filter(|&next| next != NONE)
    }

    /// Returns the next request in the list of this request's client.
    pub(super) fn next_of_client(&self, slot: u32) -> u32 {
        self.request(slot).next[BY_CLIENT]
    }

    /// Returns the requests of a client, oldest first.
    pub(super) fn of_client(&self, client: u32) -> RequestList<'_> {
        RequestList { requests: self, slot: self.client(client).first, list: BY_CLIENT }
    }

    /// Returns the wanted items, in the order of their slots.
    pub(super) fn items(&self) -> impl Iterator<Item = (u32, &Item)> {
        let slots = self.items.slots.iter().enumerate();
        slots.filter(|(_, item)| item.requesters > 0).map(|(slot, item)| (slot as u32, item))
    }
}

fn request_key(client: u32, toi: Toi) -> u64 {
    u64::from(client) << 32 | u64::from(toi.0)
}

/// Walks one list of requests and yields their slots.
pub(super) struct RequestList<'a> {
    requests: &'a Requests,
    slot: u32,
    list: usize,
}

impl Iterator for RequestList<'_> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let slot = self.slot;
        if slot == NONE {
            return None;
        }
        self.slot = self.requests.request(slot).next[self.list];
        Some(slot)
    }
}
