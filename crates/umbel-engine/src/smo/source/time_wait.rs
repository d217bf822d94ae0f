//! Connections that have ended [RFC 9293 §3.6].

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::tcp::Seq;

use crate::Instant;

/// A connection that has ended, and its answers for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) seq: Seq,
    pub(super) ack: Seq,
    until: Instant,
}

/// Connections in TIME-WAIT, bounded: the oldest give way.
#[derive(Clone, Debug)]
pub(super) struct TimeWait {
    all: BTreeMap<SocketAddr, Ended>,
    order: VecDeque<(Instant, SocketAddr)>,
    capacity: usize,
    duration: Duration,
}

impl TimeWait {
    pub(super) fn new(capacity: usize, duration: Duration) -> TimeWait {
        let (all, order) = (BTreeMap::new(), VecDeque::new());
        TimeWait { all, order, capacity: capacity.max(1), duration }
    }

    pub(super) fn insert(&mut self, now: Instant, peer: SocketAddr, seq: Seq, ack: Seq) {
        if self.order.len() >= self.capacity {
            self.drop_oldest();
        }
        let until = now + self.duration;
        self.all.insert(peer, Ended { seq, ack, until });
        self.order.push_back((until, peer));
    }

    pub(super) fn get(&self, peer: &SocketAddr) -> Option<&Ended> {
        self.all.get(peer)
    }

    /// Forgets a connection whose peer opens it anew.
    pub(super) fn remove(&mut self, peer: &SocketAddr) {
        self.all.remove(peer);
    }

    /// Forgets those whose time is over.
    pub(super) fn expire(&mut self, now: Instant) {
        while self.order.front().is_some_and(|(until, _)| *until <= now) {
            self.drop_oldest();
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.order.front().map(|(until, _)| *until)
    }

    fn drop_oldest(&mut self) {
        let Some((until, peer)) = self.order.pop_front() else { return };
        if self.all.get(&peer).is_some_and(|ended| ended.until == until) {
            self.all.remove(&peer);
        }
    }
}
