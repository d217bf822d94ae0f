//! The handshake of joining: what a child and a parent do to make a pair.

use std::net::SocketAddr;

use umbel_wire::tmtp::{Body, Message, NodeKeys};

use super::keys::{End, Pair};
use super::{Asking, Authentic, MAX_OUTBOX, MAX_PEERS, Peer};
use crate::tmtp::drops::DropReason;
use crate::{Address, Instant};

impl Authentic {
    /// Returns what is known of the node at an address. If there are too many, an eighth is
    /// forgotten: those without a pair first, and of these the ones that were used least recently.
    fn peer(&mut self, now: Instant, at: SocketAddr) -> &mut Peer {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&at) {
            let use_of = |(at, peer): (&SocketAddr, &Peer)| (peer.holds.is_some(), peer.used, *at);
            let mut all: Vec<_> = self.peers.iter().map(use_of).collect();
            let (least, ..) = all.select_nth_unstable(MAX_PEERS / 8);
            for (.., at) in least {
                self.peers.remove(at);
            }
        }
        let peer = self.peers.entry(at).or_default();
        peer.used = now;
        peer
    }

    /// Makes the pair of a child and a parent, one of which is this node and one has these keys.
    fn pair(
        &self,
        (child, parent): (End, End),
        keys: Option<&NodeKeys>,
        numbers: (u64, u64),
    ) -> Result<Pair, DropReason> {
        let is_child = child == self.own;
        let other = if is_child { parent.0 } else { child.0 };
        if let Some((identity, keys)) = self.identity().zip(keys) {
            let root = identity.root(keys, is_child).ok_or(DropReason::NotAuthentic)?;
            return Ok(Pair::new((self.feed, &root), (child, parent), other, numbers));
        }
        let keys = self.keys().ok_or(DropReason::NoKey)?;
        Ok(keys.pair((child, parent), other, numbers))
    }

    /// Answers a child's request with a challenge.
    pub(super) fn on_request(
        &mut self,
        now: Instant,
        (child, keys): (End, Option<&NodeKeys>),
        nonce: u64,
    ) -> Result<(), DropReason> {
        if self.outbox.len() >= MAX_OUTBOX {
            return Err(DropReason::OverLimit);
        }
        let offered = self.peers.get(&child.1).and_then(|peer| peer.offered.as_ref());
        let same = offered.filter(|pair| (pair.id, pair.nonce) == (child.0, nonce));
        let challenge = if let Some(pair) = same {
            pair.challenge
        } else {
            self.check_room(now, child)?;
            let drawn = blake3::keyed_hash(&self.secret, &self.drawn.to_be_bytes());
            self.drawn += 1;
            let pair_of = u64::from_be_bytes(*drawn.as_bytes().first_chunk().expect("32 bytes"));
            let pair = self.pair((child, self.own), keys, (nonce, pair_of))?;
            self.peer(now, child.1).offered = Some(pair);
            pair_of
        };
        let body = Body::JoinChallenge { nonce, challenge };
        let message = Message { feed: self.feed, sender: self.own.0, body };
        let bytes = self.seal(now, Address::Host(child.1), &message);
        self.outbox.push_back((child.1, bytes));
        Ok(())
    }

    /// Sends this node's own request again, under the key that the challenge gives.
    pub(super) fn on_challenge(
        &mut self,
        now: Instant,
        (parent, keys): (End, Option<&NodeKeys>),
        nonce: u64,
        challenge: u64,
    ) -> Result<(), DropReason> {
        let asked = |asking: &&Asking| {
            (asking.to, asking.nonce) == (parent.1, nonce)
                && asking.parent.is_none_or(|asked| asked == parent.0)
        };
        let asking = self.asking.as_ref().filter(asked).ok_or(DropReason::NotAsked)?;
        let mut bytes = asking.message.clone();
        let own = self.own;
        let pair = self.pair((own, parent), keys, (nonce, challenge))?;
        let peer = self.peer(now, parent.1);
        let known =
            |pair: &Pair| (pair.id, pair.nonce, pair.challenge) == (parent.0, nonce, challenge);
        if !peer.asked.as_ref().is_some_and(known) {
            peer.asked = Some(pair);
        }
        if let Some(pair) = &mut peer.asked {
            pair.stamp(own.1, parent.1, &mut bytes);
            self.outbox.push_back((parent.1, bytes));
        }
        Ok(())
    }
}
