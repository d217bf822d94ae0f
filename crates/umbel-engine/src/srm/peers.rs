//! The other members: their distances, and the echoes of their timestamps.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use umbel_wire::srm::{Echo, MemberId};

use crate::Instant;

/// Members heard of lately, up to a limit. When there is no room, members without a known distance
/// go first, so that no claims drive out measurements; then the longest silent.
#[derive(Clone, Debug)]
pub(super) struct Peers {
    limit: usize,
    known: BTreeMap<MemberId, Peer>,
    /// Members in the order in which they make room.
    order: BTreeSet<(bool, Instant, MemberId)>,
    /// Timestamps not echoed yet, with the times of their arrival.
    to_echo: BTreeMap<MemberId, (u64, Instant)>,
    /// Members whose timestamps wait, the earliest first. Some may have been forgotten since.
    echo_order: VecDeque<MemberId>,
}

#[derive(Clone, Copy, Debug)]
struct Peer {
    heard: Instant,
    distance: Option<Duration>,
}

impl Peers {
    /// Creates an empty table for at most `limit` members.
    pub(super) fn new(limit: usize) -> Peers {
        Peers {
            limit: limit.max(1),
            known: BTreeMap::new(),
            order: BTreeSet::new(),
            to_echo: BTreeMap::new(),
            echo_order: VecDeque::new(),
        }
    }

    /// Returns the number of known members.
    pub(super) fn len(&self) -> usize {
        self.known.len()
    }

    /// Records the timestamp of a member's session message, to be echoed.
    pub(super) fn timestamp(&mut self, now: Instant, member: MemberId, timestamp_ns: u64) {
        self.update(now, member, None);
        if self.to_echo.insert(member, (timestamp_ns, now)).is_none() {
            self.echo_order.push_back(member);
        }
        while self.to_echo.len() > self.limit
            && let Some(first) = self.echo_order.pop_front()
        {
            self.to_echo.remove(&first);
        }
        // The queue may name members that were forgotten, but not without bound.
        if self.echo_order.len() > 2 * self.limit {
            let to_echo = &self.to_echo;
            self.echo_order.retain(|member| to_echo.contains_key(member));
        }
    }

    /// Records a member's measured distance.
    pub(super) fn measured(&mut self, now: Instant, member: MemberId, distance: Duration) {
        self.update(now, member, Some(distance));
    }

    /// Returns the distance to a member, if it was ever measured.
    pub(super) fn distance(&self, member: MemberId) -> Option<Duration> {
        self.known.get(&member)?.distance
    }

    /// Forgets a member that has left.
    pub(super) fn forget(&mut self, member: MemberId) {
        self.to_echo.remove(&member);
        self.remove(member);
    }

    /// Forgets members not heard since `since`.
    pub(super) fn forget_silent(&mut self, since: Instant) {
        for measured in [false, true] {
            let first = (measured, Instant::EPOCH, MemberId(0));
            while let Some(&(_, _, member)) =
                self.order.range(first..(measured, since, MemberId(0))).next()
            {
                self.forget(member);
            }
        }
    }

    /// Takes the timestamps that have waited longest for their echo.
    pub(super) fn take_echoes(&mut self, now: Instant, most: usize) -> Vec<Echo> {
        let mut echoes = Vec::new();
        while echoes.len() < most
            && let Some(member) = self.echo_order.pop_front()
        {
            if let Some((timestamp_ns, at)) = self.to_echo.remove(&member) {
                echoes.push(Echo { member, timestamp_ns, held: now - at });
            }
        }
        echoes
    }

    fn update(&mut self, now: Instant, member: MemberId, distance: Option<Duration>) {
        let before = self.remove(member);
        if self.known.len() >= self.limit
            && let Some(&(_, _, first)) = self.order.first()
        {
            self.remove(first);
        }
        let distance = distance.or(before.and_then(|peer| peer.distance));
        self.known.insert(member, Peer { heard: now, distance });
        self.order.insert((distance.is_some(), now, member));
    }

    fn remove(&mut self, member: MemberId) -> Option<Peer> {
        let peer = self.known.remove(&member)?;
        self.order.remove(&(peer.distance.is_some(), peer.heard, member));
        Some(peer)
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
    fn the_longest_silent_of_the_measured_makes_room_and_those_not_measured_before() {
        let mut peers = Peers::new(2);
        peers.measured(at(1), MemberId(1), Duration::from_millis(5));
        peers.measured(at(2), MemberId(2), Duration::from_millis(6));
        peers.timestamp(at(3), MemberId(1), 0);
        peers.measured(at(4), MemberId(3), Duration::from_millis(7));
        (5..100).for_each(|n| peers.timestamp(at(n), MemberId(n), 0));
        assert_eq!(peers.distance(MemberId(3)), Some(Duration::from_millis(7)));
        peers.measured(at(100), MemberId(1), Duration::from_millis(5));
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
        assert!(peers.len() == 8 && peers.order.len() == 8 && peers.to_echo.len() == 8);
        assert!(peers.echo_order.len() <= 17);
    }
}
