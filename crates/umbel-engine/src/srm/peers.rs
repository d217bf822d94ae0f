//! The other members: how far they are, and what they are to be told of their timestamps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use umbel_wire::srm::{Echo, MemberId};

use crate::Instant;

/// Members heard of lately, at most so many: the one not heard of for the longest time makes room.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    limit: usize,
    known: BTreeMap<MemberId, Peer>,
    by_heard: BTreeSet<(Instant, MemberId)>,
    /// Those with a timestamp that was not echoed yet, first come first; also some that were
    /// forgotten since.
    to_echo: VecDeque<MemberId>,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    heard: Instant,
    distance: Option<Duration>,
    /// Its last timestamp and when that came, until it is echoed.
    timestamp: Option<(u64, Instant)>,
}

impl Peers {
    /// Nobody yet, and at most `limit` members.
    pub(super) fn new(limit: usize) -> Peers {
        Peers {
            limit: limit.max(1),
            known: BTreeMap::new(),
            by_heard: BTreeSet::new(),
            to_echo: VecDeque::new(),
        }
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// A member's session message came, to be echoed.
    pub(super) fn timestamp(&mut self, now: Instant, member: MemberId, timestamp_ns: u64) {
        let peer = self.entry(now, member);
        if peer.timestamp.replace((timestamp_ns, now)).is_none() {
            self.to_echo.push_back(member);
            // The queue may name members that were forgotten, but not without bound.
            if self.to_echo.len() > 2 * self.limit {
                let known = &self.known;
                self.to_echo.retain(|m| known.get(m).is_some_and(|p| p.timestamp.is_some()));
            }
        }
    }

    /// A member's distance was measured.
    pub(super) fn measured(&mut self, now: Instant, member: MemberId, distance: Duration) {
        self.entry(now, member).distance = Some(distance);
    }

    /// The distance to a member, if it was ever measured.
    pub(super) fn distance(&self, member: MemberId) -> Option<Duration> {
        self.known.get(&member)?.distance
    }

    /// A member has left.
    pub(super) fn forget(&mut self, member: MemberId) {
        if let Some(peer) = self.known.remove(&member) {
            self.by_heard.remove(&(peer.heard, member));
        }
    }

    /// Forgets whom nobody heard since `since`.
    pub(super) fn forget_silent(&mut self, since: Instant) {
        while let Some(&(heard, member)) = self.by_heard.first()
            && heard < since
        {
            self.forget(member);
        }
    }

    /// Takes the timestamps that have waited longest for their echo.
    pub(super) fn take_echoes(&mut self, now: Instant, most: usize) -> Vec<Echo> {
        let mut echoes = Vec::new();
        while echoes.len() < most
            && let Some(member) = self.to_echo.pop_front()
        {
            let peer = self.known.get_mut(&member);
            if let Some((timestamp_ns, at)) = peer.and_then(|peer| peer.timestamp.take()) {
                echoes.push(Echo { member, timestamp_ns, held: now - at });
            }
        }
        echoes
    }

    fn entry(&mut self, now: Instant, member: MemberId) -> &mut Peer {
        if !self.known.contains_key(&member)
            && self.known.len() >= self.limit
            && let Some(&(_, silent)) = self.by_heard.first()
        {
            self.forget(silent);
        }
        let peer = self.known.entry(member).or_insert(Peer {
            heard: now,
            distance: None,
            timestamp: None,
        });
        self.by_heard.remove(&(peer.heard, member));
        peer.heard = now;
        self.by_heard.insert((now, member));
        peer
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_nanos(ms * 1_000_000)
    }

    #[test]
    fn each_timestamp_is_echoed_once_the_longest_waiting_first() {
        let mut peers = Peers::new(10);
        peers.timestamp(at(1), MemberId(7), 700);
        peers.timestamp(at(2), MemberId(3), 300);
        peers.timestamp(at(5), MemberId(7), 701);
        let echo = |member, timestamp_ns, held| Echo {
            member: MemberId(member),
            timestamp_ns,
            held: Duration::from_millis(held),
        };
        assert_eq!(peers.take_echoes(at(9), 1), [echo(7, 701, 4)]);
        assert_eq!(peers.take_echoes(at(9), 9), [echo(3, 300, 7)]);
        assert_eq!(peers.take_echoes(at(9), 9), []);
    }

    #[test]
    fn the_longest_silent_member_makes_room() {
        let mut peers = Peers::new(2);
        peers.measured(at(1), MemberId(1), Duration::from_millis(5));
        peers.measured(at(2), MemberId(2), Duration::from_millis(6));
        peers.timestamp(at(3), MemberId(1), 0);
        peers.timestamp(at(4), MemberId(3), 0);
        assert_eq!(peers.distance(MemberId(1)), Some(Duration::from_millis(5)));
        assert_eq!(peers.distance(MemberId(2)), None);
        assert_eq!(peers.len(), 2);
    }

    #[test]
    fn whoever_left_is_neither_echoed_nor_known() {
        let mut peers = Peers::new(10);
        peers.timestamp(at(1), MemberId(1), 100);
        peers.timestamp(at(2), MemberId(2), 200);
        peers.timestamp(at(3), MemberId(3), 300);
        peers.forget(MemberId(3));
        peers.forget_silent(at(2));
        assert_eq!(peers.len(), 1);
        let echoed: Vec<u64> = peers.take_echoes(at(4), 9).iter().map(|e| e.member.0).collect();
        assert_eq!(echoed, [2]);
    }

    #[test]
    fn a_flood_of_members_takes_no_more_room() {
        let mut peers = Peers::new(8);
        for n in 0..10_000 {
            peers.timestamp(at(n), MemberId(n), n);
        }
        assert!(peers.len() == 8 && peers.by_heard.len() == 8 && peers.to_echo.len() <= 16);
    }
}
