//! The control tree's messages, made authentic.
//!
//! One module at the boundary of the engines: it stamps each message that leaves, and lets in what
//! has a good stamp, once. The rest of the protocol knows nothing of it. `keys.rs` has the keys and
//! codes. `numbers.rs` makes a message count once, and `admission.rs` carries the key of the tree to
//! receivers on a list. `identity.rs` has the keys of nodes in open feeds. In experiments with the
//! paper, which has no stamps, messages pass as they are.
//!
//! # Joining
//!
//! Both keys follow from the token, or from what the source gives those on its list, or from both.
//! The *tree key* is that of all nodes. Two nodes of which one joins the other make a *pair key*.
//! It follows from the tree key, the feed, both numbers and addresses, and a fresh number of each:
//!
//! ```text
//! child                                                parent
//!   │ JOIN_REQUEST n                    [tree key] ──▶ │ draws c; a pair (n, c) is offered
//!   │ ◀── [tree key]          JOIN_CHALLENGE n, c      │
//!   │ a pair (n, c) is offered                         │
//!   │ JOIN_REQUEST n                    [pair key] ──▶ │ the pair holds: the child is taken
//!   │ ◀── [pair key]                 JOIN_CONFIRM n    │
//!   │ the pair holds: it has a parent                  │
//! ```
//!
//! ```text
//!            request heard, or                a message under its key came
//!   no pair ─ challenge to one's own request ─▶ offered ───────────────────▶ holds
//!                                                  ▲                          │
//!                                                  └── another request ◀──────┘
//!                                                      (the old pair holds until the new one does)
//! ```
//!
//! A holder of a pair has heard the other use a key that follows only from the two numbers of this
//! attempt. So both agree on who they are, at which addresses, and on the key, and neither has been
//! shown something old. `tests.rs` has an attacker who sees, drops, delays, repeats, alters and
//! sends to others whatever it likes, and never makes two nodes disagree.
//!
//! # Open feeds
//!
//! Where everybody may take part there is no tree key. Each node has keys of its own instead, and
//! its number is their digest ([`identity`]). What would have the tree key is signed. The handshake
//! is the same, with signatures in the place of the tree key. The pair key follows from the two
//! nodes' agreement keys in place of the tree key. A JOIN_REQUEST names the node that is asked,
//! so that nobody else's challenge answers it. While a pair is in use, no other node gets one at
//! its address.
//!
//! So everybody can come, under a number of its own, and nobody speaks under another's. Signatures
//! are checked at most as often as [`CHECKS`] says, and pairs are made at most [`JOINS`] times a
//! second. Not checked are those of messages that change nothing at the node, such as a sibling's
//! NACK that spares none of its own. A node under a flood of signatures hears some of its parent's
//! beacons only, so its parent may be silent for longer then ([`Authentic::take_deafness`]).
//!
//! # Messages
//!
//! A [`Stamp`] has a code (HMAC-SHA-256, 16 bytes) over key, number, both addresses and the
//! message. Between child and parent the pair key counts: ACK, NACK by unicast, REPORT, leaving,
//! refusals. The tree key is for searches, beacons, heartbeats and NACKs in the group, and for
//! FETCH, whose answers repeat its nonce. A dismissal of a node that is no child any more has the
//! tree key too.
//!
//! Each number is taken once from each sender: of the last [`numbers::REMEMBERED`] one remembers
//! which, and older ones are refused. Numbers under the tree key begin with the time by the
//! source's clock. So those older than [`numbers::STALE`] are refused also by nodes that never
//! heard their sender. A node that has not heard the source yet may search, ask for a place and
//! FETCH.
//!
//! # Limitations
//!
//! - All who have the token, or are on the list, have the tree key. They can speak in any node's
//!   name. In an open feed nobody can.
//! - In an open feed, a host that forges addresses can keep a node that has no parent from joining,
//!   for as long as it uses up the answers to its address. It can also take part at that address
//!   under a number of its own.
//! - Data packets have no stamps; digests, signatures and seals show whether blocks are right. Nor
//!   have messages of LMS, which routers change, TREE_QUERY and TREE_PAGE, which are for all, and in
//!   open feeds RECEPTION and REPORTS. A report is believed of the address that its cookie
//!   is for, and the source's answers by the receiver's nonce.
//! - An attacker on the path can drop and delay. A host that sends with others' addresses can
//!   repeat recent messages, of at most [`numbers::STALE`], to new nodes.

mod admission;
mod handshake;
mod identity;
mod keys;
mod numbers;
mod signed;
mod stamps;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::time::Duration;

use umbel_wire::Tsi;
use umbel_wire::tmtp::{Body, Message, NodeId, NodeKeys, SEALED_KEY_LEN, SignedStamp};
use umbel_wire::tmtp::{Stamp, StampKey};

use self::admission::{Applicant, Desk};
use self::identity::Identity;
use self::keys::{End, Keys, Pair, code, same, without_port};
use self::numbers::Numbers;
use self::signed::DISUSE;

use super::config::{Authentication, List, NodeConfig};
use super::drops::DropReason;
use super::incoming;
use super::tree::Answers;
use crate::bounds::{CHECKS, JOINS};
use crate::bucket::Limiter;
use crate::{Address, Datagram, Instant};

pub use identity::node_id;
pub use stamps::Stamps;

/// Most nodes with which there is a pair.
const MAX_PEERS: usize = 1 << 17;
/// Most answers that may wait.
const MAX_OUTBOX: usize = 1024;
/// Heartbeats with a wrong stamp, and time since the first of them, after which the token is wrong,
/// if nothing had a right one. Of genuine heartbeats several come in that time.
const SHUT_OUT: (u32, Duration) = (5, Duration::from_secs(4));

/// A message that was let in, or what became of it.
#[derive(Debug)]
pub(super) enum Opened {
    /// A message to handle.
    Message(Message),
    /// A message that is of no use here, whether it is authentic or not.
    Unneeded,
    /// A part of a handshake, which is answered.
    Answered,
    /// The node at this address has answered this node's request of this number with a challenge,
    /// and is asked again under the key of the pair.
    Challenged(SocketAddr, u64),
    /// The source has given this node the key of the tree.
    Admitted,
    /// An ACK or REPORT under the key of a pair that is not known here. The sender may take this
    /// node for its parent.
    Stranger {
        /// Alleged sender.
        id: NodeId,
        /// Address that it came from.
        from: SocketAddr,
        /// Token that it names.
        token: u64,
    },
}

/// Another node, at its address.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// The pair that holds.
    holds: Option<Pair>,
    /// Pairs that nothing has come under yet: after its request, and after this node's own. Each
    /// may ask the other at a time.
    offered: Option<Pair>,
    asked: Option<Pair>,
    /// Time at which something last came or went.
    used: Instant,
}

impl Peer {
    /// Returns whether another node than this one has a pair here that is in use.
    fn is_in_use_by_another(&self, now: Instant, id: NodeId) -> bool {
        self.holds.as_ref().is_some_and(|pair| pair.id != id) && now.since(self.used) < DISUSE
    }
}

/// This node's own request for a place, as it was last sent.
#[derive(Clone, Debug)]
struct Asking {
    to: SocketAddr,
    /// Node that is asked, as far as it is known.
    parent: Option<NodeId>,
    nonce: u64,
    message: Vec<u8>,
}

/// What a node stamps its messages with.
#[derive(Debug)]
enum Means {
    /// Nothing, as in the paper.
    Paper,
    /// The keys of this node, in an open feed. There are no keys of the tree.
    Own(Box<Identity>),
    /// The keys of the tree. The source with a list gives them to the receivers on it.
    Shared { keys: Box<Keys>, desk: Option<Desk> },
    /// Nothing yet: a receiver on a list asks for the keys of the tree, which also follow from the
    /// token.
    Awaited { applicant: Box<Applicant>, token: Option<[u8; 32]> },
}

/// Stamps messages, and checks the stamps of others.
#[derive(Debug)]
pub(super) struct Authentic {
    feed: Tsi,
    own: End,
    source: End,
    means: Means,
    /// Signatures that were checked, and pairs that were made, in an open feed.
    checks: Limiter,
    joins: Answers,
    /// Whether a signature was not checked for want of time, which was not asked for yet.
    deaf: bool,
    /// Secret from which challenges are derived, and the number of those drawn.
    secret: [u8; 32],
    drawn: u64,
    numbers: Numbers,
    peers: BTreeMap<SocketAddr, Peer>,
    asking: Option<Asking>,
    /// Whether anything ever had a right stamp.
    proved: bool,
    /// Heartbeats with a wrong one before, and the time of the first.
    doubts: Option<(u32, Instant)>,
    /// Whether that was told.
    told: bool,
    outbox: VecDeque<(SocketAddr, Vec<u8>)>,
}

/// Returns whether a message is about how the source's packets arrive. In an open feed such have no
/// stamp: there would be too many signatures. A cookie and a nonce show where they come from.
fn is_about_paths(body: &Body) -> bool {
    matches!(body, Body::Reception { .. } | Body::Reports { .. })
}

/// Returns whether a message between child and parent needs the key of their pair.
fn needs_pair(body: &Body, multicast: bool) -> bool {
    match body {
        Body::Nack(_) => !multicast,
        Body::JoinConfirm(_)
        | Body::JoinRefused { .. }
        | Body::Ack(_)
        | Body::LeaveTree { .. }
        | Body::LeaveConfirm { .. }
        | Body::FindNewParent { .. }
        | Body::FindNewParentReply { .. }
        | Body::Report(_)
        | Body::ReportAck { .. } => true,
        _ => false,
    }
}

impl Authentic {
    /// Creates the stamps of a node. `source` is the source's place, and `secret` what nobody else
    /// knows.
    pub(super) fn new(node: &NodeConfig, source: End, secret: &[u8; 32]) -> Authentic {
        let feed = node.feed;
        let nonce = blake3::derive_key("umbel 2026 number of a request for a key", secret);
        let nonce = u64::from_be_bytes(*nonce.first_chunk().expect("32 bytes"));
        let secret = blake3::derive_key("umbel 2026 challenges of joining nodes", secret);
        let shared = |token: Option<&_>, given: Option<&_>, desk| Means::Shared {
            keys: Box::new(Keys::new(feed, token, given)),
            desk,
        };
        let means = match &node.authentication {
            Authentication::Paper => Means::Paper,
            Authentication::Keys(seed) => Means::Own(Box::new(Identity::new(feed, seed))),
            Authentication::Token(token) => shared(Some(token), None, None),
            Authentication::List { list: List::Has { tree, receivers }, token } => {
                shared(token.as_ref(), Some(tree), Some(Desk::new(feed, *tree, receivers)))
            }
            Authentication::List { list: List::On(secret), token } => {
                let applicant = Box::new(Applicant::new(feed, secret, nonce));
                Means::Awaited { applicant, token: *token }
            }
        };
        Authentic {
            feed,
            own: (node.id, node.address),
            source,
            numbers: Numbers::new(node.id, source.0, node.has_keys()),
            means,
            checks: Limiter::new(CHECKS.all),
            joins: Answers::new(JOINS.all.per_s, JOINS.of_host().per_s),
            deaf: false,
            secret,
            drawn: 0,
            peers: BTreeMap::new(),
            asking: None,
            proved: false,
            doubts: None,
            told: false,
            outbox: VecDeque::new(),
        }
    }

    /// Returns the keys of this node, in an open feed.
    fn identity(&self) -> Option<&Identity> {
        if let Means::Own(identity) = &self.means { Some(identity) } else { None }
    }

    /// Returns the keys of the tree, if this node has them.
    fn keys(&self) -> Option<&Keys> {
        if let Means::Shared { keys, .. } = &self.means { Some(keys) } else { None }
    }

    /// Returns this node's part in asking for the keys of the tree, as long as it has none.
    fn applicant(&self) -> Option<&Applicant> {
        if let Means::Awaited { applicant, .. } = &self.means { Some(applicant) } else { None }
    }

    fn applicant_mut(&mut self) -> Option<&mut Applicant> {
        if let Means::Awaited { applicant, .. } = &mut self.means { Some(applicant) } else { None }
    }

    /// Returns the next message to send by itself, and to whom.
    pub(super) fn poll(&mut self, now: Instant) -> Option<(SocketAddr, Vec<u8>)> {
        let ends = (self.own, self.source);
        let request = self.applicant_mut().and_then(|applicant| applicant.poll(now, ends));
        request.map(|request| (self.source.1, request)).or_else(|| self.outbox.pop_front())
    }

    /// Begins to ask the source for the key of the tree, if this node has none. Returns whether it
    /// must wait for it, and can say nothing until then.
    pub(super) fn begin(&mut self, now: Instant) -> bool {
        if let Some(applicant) = self.applicant_mut() {
            applicant.begin(now);
        }
        self.is_waiting()
    }

    /// Returns whether the feed is open to all, so that its source signs.
    pub(super) fn is_open(&self) -> bool {
        self.identity().is_some()
    }

    /// Returns whether this node has no key of the tree.
    pub(super) fn is_waiting(&self) -> bool {
        self.applicant().is_some()
    }

    /// Returns when to ask again, or to give that up.
    pub(super) fn asks_at(&self) -> Option<Instant> {
        let applicant = self.applicant()?;
        let heard = self.doubts.is_some_and(|(count, _)| count >= SHUT_OUT.0);
        let hopeless = applicant.hopeless_at().filter(|_| heard);
        [applicant.next(), hopeless].into_iter().flatten().min()
    }

    /// Returns whether this node is not on the list, as it seems: the source is heard, and does not
    /// answer. Only the first call says so.
    pub(super) fn is_unlisted(&mut self, now: Instant) -> bool {
        let heard = self.doubts.is_some_and(|(count, _)| count >= SHUT_OUT.0);
        let Some(applicant) = self.applicant_mut().filter(|_| heard) else { return false };
        let hopeless = applicant.hopeless_at().is_some_and(|at| at <= now);
        if hopeless {
            applicant.tell();
        }
        hopeless
    }

    /// Returns whether the token seems to be wrong: the source is heard, and no stamp is right.
    /// Only the first call says so.
    pub(super) fn is_shut_out(&mut self, now: Instant) -> bool {
        let shut_out = self.shut_out_at().is_some_and(|at| at <= now);
        self.told |= shut_out;
        shut_out
    }

    /// Returns when that may be said.
    pub(super) fn shut_out_at(&self) -> Option<Instant> {
        let (most, time) = SHUT_OUT;
        let (_, since) = self.doubts.filter(|(count, _)| *count >= most)?;
        let open = self.proved || self.told || self.is_waiting();
        (!open).then_some(since + time)
    }

    /// Returns whether something was not heard since the last call, because too much came to check
    /// its signature.
    pub(super) fn take_deafness(&mut self) -> bool {
        std::mem::take(&mut self.deaf)
    }

    /// Returns a message with its stamp, as it goes to an address.
    pub(super) fn seal(&mut self, now: Instant, to: Address, message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.emit(&mut bytes);
        let body = &message.body;
        let (host, multicast) = match to {
            Address::Host(host) => (host, false),
            Address::Channel(channel) => (SocketAddr::new(channel.group, channel.port), true),
            Address::Session(_) => return bytes,
        };
        let is_for_all = matches!(body, Body::TreePage(_) | Body::TreeQuery { .. })
            || self.is_open() && is_about_paths(body);
        if is_for_all || matches!(self.means, Means::Paper) {
            return bytes;
        }
        if let Body::JoinRequest(request) = body {
            let nonce = request.nonce;
            let pairs = self.peers.get_mut(&host).map(|peer| [&mut peer.holds, &mut peer.asked]);
            let mut pairs = pairs.into_iter().flatten().flatten();
            if let Some(pair) = pairs.find(|pair| pair.nonce == nonce) {
                pair.stamp(self.own.1, host, &mut bytes);
                return bytes;
            }
            let (parent, message) = (request.parent, bytes.clone());
            self.asking = Some(Asking { to: host, parent, nonce, message });
        } else if (needs_pair(body, multicast) || matches!(body, Body::Dismiss { .. }))
            && let Some(peer) = self.peers.get_mut(&host)
            && let Some(pair) = &mut peer.holds
        {
            peer.used = now;
            pair.stamp(self.own.1, host, &mut bytes);
            return bytes;
        }
        self.stamp(now, host, multicast, &mut bytes);
        bytes
    }

    /// Appends a stamp with the tree key, or a signature.
    fn stamp(&mut self, now: Instant, to: SocketAddr, multicast: bool, message: &mut Vec<u8>) {
        let from = if multicast { without_port(self.own.1) } else { self.own.1 };
        match &self.means {
            Means::Paper | Means::Awaited { .. } => {}
            Means::Own(identity) => {
                let number = self.numbers.next(now);
                identity.sign(number, (from, to), message).emit(message);
            }
            Means::Shared { keys, .. } => {
                let (key, number) = (StampKey::Tree, self.numbers.next(now));
                let code = code(&keys.tree, (key, number), (from, to), message);
                Stamp { key, number, code }.emit(message);
            }
        }
    }

    /// Lets a message in if its stamp is good. A signature is not checked if the message is of no
    /// use here.
    ///
    /// # Errors
    ///
    /// If it is not, or the message is malformed, of another feed, or this node's own.
    pub(super) fn open(
        &mut self,
        now: Instant,
        datagram: &Datagram<'_>,
        node: &NodeConfig,
        is_of_use: impl FnOnce(&Message) -> bool,
    ) -> Result<Opened, DropReason> {
        if matches!(self.means, Means::Paper) {
            return incoming::message(datagram.payload, node).map(Opened::Message);
        }
        let Some((bytes, stamp)) = Stamp::split(datagram.payload) else {
            if let Some(signed) = SignedStamp::split(datagram.payload) {
                return self.open_signed(now, datagram.by, signed, (node, is_of_use));
            }
            let message = incoming::message(datagram.payload, node)?;
            return match message.body {
                Body::TreeQuery { .. } => Ok(Opened::Message(message)),
                ref body if self.is_open() && is_about_paths(body) => Ok(Opened::Message(message)),
                Body::KeyAnswer { nonce, sealed } => {
                    self.on_key(message.sender, datagram.by, nonce, sealed)
                }
                _ => {
                    self.doubt(now, datagram.by, &message);
                    Err(DropReason::NotAuthentic)
                }
            };
        };
        let message = incoming::message(bytes, node)?;
        let (from, to, multicast) = self.ends(datagram.by)?;
        match stamp.key {
            StampKey::Tree | StampKey::Personal if self.is_open() => {
                return Err(DropReason::NotAuthentic);
            }
            StampKey::Tree => {}
            // A node that needs to hear that this node is not its parent could not hear it.
            StampKey::Pair if self.is_waiting() => return Err(DropReason::NoKey),
            StampKey::Pair => return self.open_pair(now, from, (bytes, stamp), message),
            StampKey::Personal if multicast => return Err(DropReason::Unexpected),
            StampKey::Personal => {
                return self.open_personal(now, from, (bytes, stamp), &message);
            }
        }
        let Some(keys) = self.keys() else {
            self.doubt(now, datagram.by, &message);
            return Err(DropReason::NoKey);
        };
        let made = code(&keys.tree, (StampKey::Tree, stamp.number), (from, to), bytes);
        if !same(&made, &stamp.code) || needs_pair(&message.body, multicast) {
            self.doubt(now, datagram.by, &message);
            return Err(DropReason::NotAuthentic);
        }
        self.proved = true;
        self.numbers.check(now, &message, stamp.number)?;
        self.numbers.take(now, &message, stamp.number);
        self.let_in(now, from, message, None)
    }

    /// Returns from which address a datagram came and to which, and whether to a group.
    fn ends(&self, by: Address) -> Result<(SocketAddr, SocketAddr, bool), DropReason> {
        match by {
            Address::Host(from) => Ok((from, self.own.1, false)),
            Address::Channel(by) => {
                let from = SocketAddr::new(by.source.ok_or(DropReason::Unexpected)?, 0);
                Ok((from, SocketAddr::new(by.group, by.port), true))
            }
            Address::Session(_) => Err(DropReason::Unexpected),
        }
    }

    /// Lets in what is not between child and parent, and answers parts of the handshake. In an open
    /// feed the sender has these keys.
    fn let_in(
        &mut self,
        now: Instant,
        from: SocketAddr,
        message: Message,
        keys: Option<&NodeKeys>,
    ) -> Result<Opened, DropReason> {
        let end = (message.sender, from);
        match message.body {
            Body::JoinRequest(ref request) => {
                if request.parent.is_some_and(|parent| parent != self.own.0) {
                    return Err(DropReason::NotAsked);
                }
                self.on_request(now, (end, keys), request.nonce)?;
                Ok(Opened::Answered)
            }
            Body::JoinChallenge { nonce, challenge } => {
                self.on_challenge(now, (end, keys), nonce, challenge)?;
                Ok(Opened::Challenged(from, nonce))
            }
            _ => Ok(Opened::Message(message)),
        }
    }

    /// Notes a heartbeat of the source's host without a right stamp.
    fn doubt(&mut self, now: Instant, by: Address, message: &Message) {
        let of_source = matches!(by, Address::Channel(by) if by.source == Some(self.source.1.ip()));
        if !self.is_open()
            && !self.proved
            && of_source
            && matches!(message.body, Body::Heartbeat(_))
        {
            let (count, _) = self.doubts.get_or_insert((0, now));
            *count = count.saturating_add(1);
        }
    }

    /// Answers a receiver that asks for the key of the tree.
    fn open_personal(
        &mut self,
        now: Instant,
        from: SocketAddr,
        asked: (&[u8], Stamp),
        message: &Message,
    ) -> Result<Opened, DropReason> {
        let Means::Shared { desk: Some(desk), .. } = &mut self.means else {
            return Err(DropReason::Unexpected);
        };
        let Body::KeyRequest { nonce, hint } = message.body else {
            return Err(DropReason::NotAuthentic);
        };
        if self.outbox.len() >= MAX_OUTBOX {
            return Err(DropReason::OverLimit);
        }
        let ends = ((message.sender, from), self.own);
        let answer = desk.answer(now, ends, (nonce, hint), asked)?;
        self.outbox.push_back((from, answer));
        Ok(Opened::Answered)
    }

    /// Takes the key of the tree from the source.
    fn on_key(
        &mut self,
        sender: NodeId,
        by: Address,
        nonce: u64,
        sealed: [u8; SEALED_KEY_LEN],
    ) -> Result<Opened, DropReason> {
        let Means::Awaited { applicant, token } = &self.means else {
            return Err(DropReason::NotAsked);
        };
        if (sender, by) != (self.source.0, Address::Host(self.source.1)) {
            return Err(DropReason::ForgedSource);
        }
        let tree = applicant.open((self.own, self.source), nonce, sealed)?;
        let keys = Box::new(Keys::new(self.feed, token.as_ref(), Some(&tree)));
        self.means = Means::Shared { keys, desk: None };
        // Until now no stamp could be right.
        self.doubts = None;
        Ok(Opened::Admitted)
    }

    /// Lets in what has the stamp of a pair.
    fn open_pair(
        &mut self,
        now: Instant,
        from: SocketAddr,
        (bytes, stamp): (&[u8], Stamp),
        message: Message,
    ) -> Result<Opened, DropReason> {
        let (own, is_open) = (self.own.1, self.is_open());
        let fits = |pair: &Pair| {
            let made = code(&pair.key, (StampKey::Pair, stamp.number), (from, own), bytes);
            pair.id == message.sender && same(&made, &stamp.code)
        };
        let Some(peer) = self.peers.get_mut(&from) else {
            return stranger(&message, from);
        };
        // In an open feed, a pair that was offered before must not take this one's place either.
        if is_open && peer.is_in_use_by_another(now, message.sender) {
            return Err(DropReason::NotAuthentic);
        }
        if peer.offered.as_ref().is_some_and(fits) {
            peer.holds = peer.offered.take();
        } else if peer.asked.as_ref().is_some_and(fits) {
            peer.holds = peer.asked.take();
            if self.asking.as_ref().is_some_and(|asking| asking.to == from) {
                self.asking = None;
            }
        }
        let Some(pair) = &mut peer.holds else { return stranger(&message, from) };
        if !fits(pair) {
            return Err(DropReason::NotAuthentic);
        }
        if !pair.seen.is_fresh(stamp.number) {
            return Err(DropReason::Replayed);
        }
        // Of a request only the one that the pair is for counts.
        if matches!(&message.body, Body::JoinRequest(request) if request.nonce != pair.nonce) {
            return Err(DropReason::NotAsked);
        }
        pair.seen.note(stamp.number);
        (peer.used, self.proved) = (now, true);
        if let Body::JoinConfirm(confirm) = &message.body {
            self.numbers.learn_time(now, message.sender, confirm.beacon.standing.epoch);
        }
        Ok(Opened::Message(message))
    }
}

/// Returns what to do with the message of a pair that is not known here.
fn stranger(message: &Message, from: SocketAddr) -> Result<Opened, DropReason> {
    let token = match &message.body {
        Body::Ack(ack) => ack.token,
        Body::Report(report) => report.token,
        _ => return Err(DropReason::NotAuthentic),
    };
    Ok(Opened::Stranger { id: message.sender, from, token })
}
