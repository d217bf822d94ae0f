//! Connections that are being opened [RFC 9293 §3.5].

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tcp::Seq;

use crate::Instant;
use crate::shares::Origin;

/// Part of the table up to which a SYN/ACK is sent again. Beyond it most of those that wait never
/// answer, and a client whose SYN/ACK was lost sends its SYN again.
const CALM_SHARE: usize = 16;

/// Part of the table that one IPv4 address may fill. Beyond it its own oldest give way, so that who
/// forges an address does not keep its owner out.
const HOST_SHARE: usize = 16;

/// A connection that is being opened.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opened {
    /// Position at which it will begin.
    pub(super) at: u64,
    pub(super) irs: Seq,
    pub(super) mss: u16,
    pub(super) shift: Option<u8>,
    pub(super) has_sack: bool,
    /// When the first SYN/ACK left.
    pub(super) since: Instant,
}

/// A connection in the table.
#[derive(Clone, Copy, Debug)]
struct Entry {
    id: u64,
    opened: Opened,
    /// Number of times that the SYN/ACK was due.
    attempts: u32,
    due: Instant,
}

/// The bounded table of half-open connections.
#[derive(Clone, Debug)]
pub(super) struct HalfOpen {
    all: BTreeMap<SocketAddr, Entry>,
    /// In the order in which they came, and so those of each host.
    order: BTreeMap<u64, SocketAddr>,
    of_hosts: BTreeMap<(Origin, u64), SocketAddr>,
    /// Number of each host's.
    counts: BTreeMap<Origin, usize>,
    /// When each SYN/ACK is due again, or the connection is given up.
    due: BTreeMap<(Instant, u64), SocketAddr>,
    capacity: usize,
    rto: Duration,
    next_id: u64,
}

impl HalfOpen {
    pub(super) fn new(capacity: usize, rto: Duration) -> HalfOpen {
        HalfOpen {
            all: BTreeMap::new(),
            order: BTreeMap::new(),
            of_hosts: BTreeMap::new(),
            counts: BTreeMap::new(),
            due: BTreeMap::new(),
            capacity: capacity.max(1),
            rto,
            next_id: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Returns when the next SYN/ACK is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first_key_value().map(|((at, _), _)| *at)
    }

    pub(super) fn get(&self, peer: &SocketAddr) -> Option<&Opened> {
        self.all.get(peer).map(|entry| &entry.opened)
    }

    /// Adds a connection whose first SYN/ACK leaves now. Returns whether another gave way to it: the
    /// oldest, or the oldest of its host if that has its share.
    pub(super) fn insert(&mut self, peer: SocketAddr, opened: Opened) -> bool {
        let origin = Origin::of(peer.ip());
        let share = origin.places((self.capacity / HOST_SHARE).max(1));
        let has_share = self.counts.get(&origin).is_some_and(|&has| has >= share);
        let own = has_share.then(|| self.of_hosts.range((origin, 0)..).next()).flatten();
        let own = own.map(|(_, &oldest)| oldest);
        let all = self.order.first_key_value().filter(|_| self.all.len() >= self.capacity);
        let oldest = own.or(all.map(|(_, &oldest)| oldest));
        if let Some(oldest) = oldest {
            self.remove(&oldest);
        }
        let id = self.next_id;
        self.next_id += 1;
        self.order.insert(id, peer);
        self.of_hosts.insert((origin, id), peer);
        *self.counts.entry(origin).or_default() += 1;
        let due = opened.since + self.rto;
        self.due.insert((due, id), peer);
        self.all.insert(peer, Entry { id, opened, attempts: 1, due });
        oldest.is_some()
    }

    /// Moves the position at which a connection will begin.
    pub(super) fn move_to(&mut self, peer: &SocketAddr, at: u64) {
        if let Some(entry) = self.all.get_mut(peer) {
            entry.opened.at = at;
        }
    }

    /// Takes a connection out. Returns it, and whether its SYN/ACK left only once.
    pub(super) fn remove(&mut self, peer: &SocketAddr) -> Option<(Opened, bool)> {
        let entry = self.all.remove(peer)?;
        self.due.remove(&(entry.due, entry.id));
        self.order.remove(&entry.id);
        let origin = Origin::of(peer.ip());
        self.of_hosts.remove(&(origin, entry.id));
        if let Some(has) = self.counts.get_mut(&origin) {
            *has -= 1;
            if *has == 0 {
                self.counts.remove(&origin);
            }
        }
        Some((entry.opened, entry.attempts == 1))
    }

    /// Returns the next peer whose SYN/ACK is sent again, and sets the time of the one after it.
    /// Connections whose SYN/ACK was due `most` times are given up.
    pub(super) fn pop_due(&mut self, now: Instant, most: u32) -> Option<SocketAddr> {
        let is_calm = self.all.len() <= (self.capacity / CALM_SHARE).max(1);
        while self.next_due().is_some_and(|at| at <= now) {
            let ((_, id), peer) = self.due.pop_first()?;
            let Some(entry) = self.all.get_mut(&peer).filter(|known| known.id == id) else {
                continue;
            };
            if entry.attempts >= most {
                self.remove(&peer);
                continue;
            }
            entry.due = now + self.rto * (1 << entry.attempts.min(6));
            entry.attempts += 1;
            self.due.insert((entry.due, id), peer);
            if is_calm {
                return Some(peer);
            }
        }
        None
    }
}
