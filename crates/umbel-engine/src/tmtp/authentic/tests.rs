//! An attacker against honest nodes, and each rule by itself.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ring::hmac;
use umbel_wire::Channel;
use umbel_wire::tmtp::{
    BlockRun, JoinRequest, Nack, NackRun, Need, Refusal, Role, Search, Standing,
};

use super::*;
use crate::testing::ms;

const FEED: Tsi = Tsi(9);
const NODES: usize = 3;

fn address(node: usize) -> SocketAddr {
    ([10, 0, 0, node as u8 + 1], 7700 + node as u16).into()
}

fn group(last: u8) -> Channel {
    Channel { source: None, group: [239, 0, 0, last].into(), port: 7703 }
}

fn config(node: usize, token: u8) -> NodeConfig {
    let channels = (group(1), group(2));
    let mut config = NodeConfig::new(NodeId(node as u64 + 1), FEED, channels, address(node));
    config.admission = Some([token; 32]);
    config
}

/// Returns the stamps of a node; node 0 is the source.
fn stamps(node: usize, token: u8) -> Authentic {
    Authentic::new(&config(node, token), (NodeId(1), address(0)), &[node as u8; 32]).unwrap()
}

fn request(nonce: u64) -> Body {
    Body::JoinRequest(JoinRequest {
        nonce,
        hop_limit: 64,
        hops: 1,
        role: Role::Member,
        standing: Standing::default(),
        name: String::new(),
    })
}

/// A datagram that a node has sent.
#[derive(Clone, Debug)]
struct Sealed {
    by: usize,
    to: usize,
    bytes: Vec<u8>,
}

/// Honest nodes, and all that they have ever sent, which the attacker keeps.
struct Honest {
    nodes: Vec<Authentic>,
    sealed: Vec<Sealed>,
    now: Instant,
    /// Requests of each child to each parent.
    asked: BTreeSet<(usize, usize, u64)>,
    /// Requests that parents have taken.
    taken: BTreeSet<(usize, usize, u64)>,
    /// Messages that each node has let in.
    heard: BTreeMap<(usize, Vec<u8>), usize>,
    numbers: u64,
}

impl Honest {
    fn new() -> Honest {
        Honest {
            nodes: (0..NODES).map(|node| stamps(node, 7)).collect(),
            sealed: Vec::new(),
            now: ms(1),
            asked: BTreeSet::new(),
            taken: BTreeSet::new(),
            heard: BTreeMap::new(),
            numbers: 0,
        }
    }

    fn say(&mut self, by: usize, to: usize, body: Body) {
        let message = Message { feed: FEED, sender: NodeId(by as u64 + 1), body };
        let bytes = self.nodes[by].seal(self.now, Address::Host(address(to)), &message);
        self.sealed.push(Sealed { by, to, bytes });
    }

    fn ask(&mut self, child: usize, parent: usize) {
        self.numbers += 1;
        self.asked.insert((child, parent, self.numbers));
        self.say(child, parent, request(self.numbers));
    }

    /// Sends something that only these two should understand.
    fn leave(&mut self, by: usize, to: usize) {
        self.numbers += 1;
        self.say(by, to, Body::LeaveTree { token: 1, nonce: self.numbers });
    }

    /// Sends something under the tree key.
    fn fetch(&mut self, by: usize, to: usize) {
        self.numbers += 1;
        let runs = vec![BlockRun { first: 0, count: 1 }];
        self.say(by, to, Body::Fetch { nonce: self.numbers, cookie: 0, runs, alone: Vec::new() });
    }

    /// Returns the numbers of the pairs that a node holds with another, or is offered.
    fn numbers(&self, node: usize, other: usize) -> Vec<(u64, u64)> {
        let peer = self.nodes[node].peers.get(&address(other));
        let pairs =
            peer.iter().flat_map(|peer| [&peer.holds, &peer.offered, &peer.asked]).flatten();
        pairs.map(|pair| (pair.nonce, pair.challenge)).collect()
    }

    /// Makes a datagram arrive at a node as if it came from a node's address.
    fn deliver(&mut self, at: usize, from: usize, bytes: &[u8]) -> Result<(), DropReason> {
        let by = Address::Host(address(from));
        let datagram = Datagram { by, hop_limit: None, payload: bytes };
        let opened = self.nodes[at].open(self.now, &datagram, &config(at, 7));
        while let Some((to, bytes)) = self.nodes[at].poll(self.now) {
            let to = (0..NODES).find(|&node| address(node) == to).unwrap();
            self.sealed.push(Sealed { by: at, to, bytes });
        }
        let message = match opened? {
            Opened::Message(message) => message,
            Opened::Answered => return Ok(()),
            Opened::Admitted => panic!("nobody asked for a key"),
            // It is asked nothing but whether it has a place, which it has not.
            Opened::Stranger { .. } => return Err(DropReason::ForgedChild),
        };
        // It is what the node of this address said, to this one, and it is heard once.
        let said = |sealed: &Sealed| sealed.bytes == bytes && (sealed.by, sealed.to) == (from, at);
        assert!(self.sealed.iter().any(said), "{at} believes {message:?} of {from}");
        assert_eq!(message.sender, NodeId(from as u64 + 1));
        let times = self.heard.entry((at, bytes.to_vec())).or_default();
        *times += 1;
        assert_eq!(*times, 1, "{at} hears {message:?} again");
        match message.body {
            Body::JoinRequest(request) => {
                let nonce = request.nonce;
                assert!(self.asked.contains(&(from, at, nonce)), "{from} asked nobody");
                let holds = self.nodes[at].peers[&address(from)].holds.as_ref().unwrap();
                let numbers = (nonce, holds.challenge);
                assert_eq!(holds.nonce, nonce);
                // The child is there, and has answered the challenge of this parent.
                let first = self.taken.insert((from, at, nonce));
                assert!(!first || self.numbers(from, at).contains(&numbers), "{from} is not there");
                self.say(at, from, Body::JoinRefused { nonce, reason: Refusal::Full });
            }
            Body::JoinRefused { nonce, .. } => {
                assert!(self.taken.contains(&(at, from, nonce)), "{from} took no request");
            }
            _ => {}
        }
        Ok(())
    }

    /// Checks that nodes that share a key agree on all else.
    fn agree(&self) {
        for (a, node) in self.nodes.iter().enumerate() {
            for (at, peer) in &node.peers {
                let Some(pair) = &peer.holds else { continue };
                let b = (0..NODES).find(|&node| address(node) == *at).expect("no other is heard");
                assert_eq!(pair.id, NodeId(b as u64 + 1), "of {a}");
                let other = &self.nodes[b].peers.get(&address(a));
                let others = other
                    .iter()
                    .flat_map(|peer| [&peer.holds, &peer.offered, &peer.asked])
                    .flatten();
                let numbers = |pair: &Pair| (pair.nonce, pair.challenge);
                for same in others.filter(|other| numbers(other) == numbers(pair)) {
                    assert_eq!(same.id, NodeId(a as u64 + 1));
                    let code = |pair: &Pair| hmac::sign(&pair.key, b"x").as_ref().to_vec();
                    assert_eq!(code(same), code(pair));
                }
                let ask = |(child, parent)| self.asked.contains(&(child, parent, pair.nonce));
                assert!(ask((a, b)) || ask((b, a)), "{a} and {b} never asked each other");
            }
        }
    }
}

/// Next step of the attacker.
#[derive(Clone, Debug)]
enum Step {
    /// A child asks for a place.
    Ask(usize, usize),
    /// A node says something to another, to which it may be joined or not.
    Say(usize, usize),
    /// A node says something under the tree key.
    Fetch(usize, usize),
    /// The oldest that is under way arrives.
    Pass,
    /// Something that was ever sent arrives.
    Again(usize),
    /// Something that was ever sent arrives at this node, from this one's address.
    Elsewhere(usize, usize, usize),
    /// The same, with a bit changed.
    Altered(usize, usize),
    /// Something is put together out of two.
    Mixed(usize, usize),
    /// Time passes.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let node = || 0..NODES;
    prop::collection::vec(
        prop_oneof![
            2 => (node(), node()).prop_map(|(a, b)| Step::Ask(a, b)),
            2 => (node(), node()).prop_map(|(a, b)| Step::Say(a, b)),
            1 => (node(), node()).prop_map(|(a, b)| Step::Fetch(a, b)),
            8 => Just(Step::Pass),
            4 => any::<usize>().prop_map(Step::Again),
            2 => (any::<usize>(), node(), node()).prop_map(|(a, b, c)| Step::Elsewhere(a, b, c)),
            1 => any::<(usize, usize)>().prop_map(|(a, b)| Step::Altered(a, b)),
            1 => any::<(usize, usize)>().prop_map(|(a, b)| Step::Mixed(a, b)),
            1 => (0..40_000_u64).prop_map(Step::Wait),
        ],
        1..120,
    )
}

fn run(steps: Vec<Step>) -> Honest {
    let mut honest = Honest::new();
    let mut passed = 0;
    for step in steps {
        let len = honest.sealed.len().max(1);
        let pick = |honest: &Honest, n: usize| honest.sealed.get(n % len).cloned();
        let arrival = match step {
            Step::Ask(a, b) | Step::Say(a, b) | Step::Fetch(a, b) if a == b => None,
            Step::Ask(a, b) => {
                honest.ask(a, b);
                None
            }
            Step::Say(a, b) => {
                honest.leave(a, b);
                None
            }
            Step::Fetch(a, b) => {
                honest.fetch(a, b);
                None
            }
            Step::Pass => {
                passed += 1;
                honest.sealed.get(passed - 1).cloned()
            }
            Step::Again(n) => pick(&honest, n),
            Step::Elsewhere(n, to, by) => {
                pick(&honest, n).map(|sealed| Sealed { by, to, ..sealed })
            }
            Step::Altered(n, bit) => pick(&honest, n).map(|mut sealed| {
                let bit = bit % (sealed.bytes.len() * 8);
                sealed.bytes[bit / 8] ^= 1 << (bit % 8);
                sealed
            }),
            Step::Mixed(a, b) => pick(&honest, a).zip(pick(&honest, b)).map(|(a, b)| {
                let split = |sealed: &Sealed| sealed.bytes.len().saturating_sub(Stamp::LEN);
                let bytes = [&a.bytes[..split(&a)], &b.bytes[split(&b)..]].concat();
                Sealed { bytes, ..a }
            }),
            Step::Wait(time) => {
                honest.now += Duration::from_millis(time);
                None
            }
        };
        passed = passed.min(honest.sealed.len());
        if let Some(Sealed { by, to, bytes }) = arrival {
            let _ = honest.deliver(to, by, &bytes);
        }
        honest.agree();
    }
    honest
}

proptest! {
    #[test]
    fn no_attacker_makes_two_honest_nodes_disagree_or_hear_something_twice(steps in steps()) {
        run(steps);
    }
}

#[test]
fn who_asks_gets_a_place_when_everything_arrives() {
    let honest = run([vec![Step::Ask(1, 0)], vec![Step::Pass; 4]].concat());
    assert_eq!(honest.taken, [(1, 0, 1)].into());
    for (node, other) in [(0, 1), (1, 0)] {
        let pair = honest.nodes[node].peers[&address(other)].holds.as_ref();
        assert_eq!(pair.map(|pair| pair.nonce), Some(1));
    }
    assert_eq!(honest.heard.len(), 2, "the request under the pair's key, and its answer");
}

#[test]
fn a_request_that_was_overheard_is_worth_nothing() {
    let mut honest = run([vec![Step::Ask(1, 0)], vec![Step::Pass; 4]].concat());
    let overheard = honest.sealed.clone();
    // The parent is started again, and has forgotten all.
    honest.nodes[0] = Authentic { secret: [9; 32], ..stamps(0, 7) };
    for sealed in overheard.iter().filter(|sealed| sealed.by == 1) {
        assert_eq!(honest.deliver(0, 2, &sealed.bytes), Err(DropReason::NotAuthentic));
        let _ = honest.deliver(0, 1, &sealed.bytes);
    }
    assert_eq!(honest.taken.len(), 1);
    assert_eq!(honest.heard.len(), 2);
}

/// Returns the bytes of a message in the domain group.
fn in_group(node: &mut Authentic, now: Instant, body: Body) -> Vec<u8> {
    let message = Message { feed: FEED, sender: node.own.0, body };
    node.seal(now, Address::Channel(group(2)), &message)
}

/// Makes a message of the group arrive from a node.
fn hear(
    at: usize,
    node: &mut Authentic,
    now: Instant,
    from: usize,
    bytes: &[u8],
) -> Result<Opened, DropReason> {
    let by = Channel { source: Some(address(from).ip()), ..group(2) };
    let datagram = Datagram { by: Address::Channel(by), hop_limit: None, payload: bytes };
    node.open(now, &datagram, &config(at, 7))
}

fn search() -> Body {
    Body::Search(Search {
        nonce: 1,
        hop_limit: 1,
        port: 1,
        role: Role::Member,
        less_deep_than: None,
    })
}

fn nack() -> Body {
    let run = BlockRun { first: 0, count: 1 };
    let runs = vec![NackRun { run, need: Need::Whole }];
    Body::Nack(Nack { parent: NodeId(1), hop_limit: 1, runs })
}

#[test]
fn what_the_group_heard_long_ago_is_not_heard_by_who_comes_new() {
    let (mut source, mut node) = (stamps(0, 7), stamps(1, 7));
    let from_source = in_group(&mut source, ms(1), nack());
    hear(1, &mut node, ms(1), 0, &from_source).unwrap();
    let old = in_group(&mut node, ms(10), nack());
    let searched = in_group(&mut stamps(1, 7), ms(10), search());
    for (later, stale) in [(20_000, false), (40_000, true)] {
        let mut new = stamps(2, 7);
        let beat = in_group(&mut source, ms(later), nack());
        hear(2, &mut new, ms(later), 0, &beat).unwrap();
        let heard = hear(2, &mut new, ms(later), 1, &old);
        assert_eq!(heard.err(), stale.then_some(DropReason::Stale));
        // One who has not heard the source may search.
        hear(2, &mut new, ms(later), 1, &searched).unwrap();
        assert_eq!(hear(2, &mut new, ms(later), 1, &searched).err(), Some(DropReason::Replayed));
        assert_eq!(
            hear(2, &mut new, ms(later), 0, &searched).err(),
            Some(DropReason::NotAuthentic)
        );
    }
}

#[test]
fn tables_are_bounded() {
    let (mut node, mut parent) = (stamps(1, 7), stamps(0, 7));
    for n in 0..5_000_u64 {
        // Each from a port of its own: so much only those do who have the token.
        let from = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 7));
        node.own = (NodeId(10 + n), from);
        let message = Message { feed: FEED, sender: node.own.0, body: request(n) };
        let bytes = node.seal(ms(n), Address::Host(address(0)), &message);
        let datagram = Datagram { by: Address::Host(from), hop_limit: None, payload: &bytes };
        let opened = parent.open(ms(n), &datagram, &config(0, 7));
        assert!(matches!(opened, Ok(Opened::Answered) | Err(DropReason::OverLimit)));
    }
    assert!(parent.outbox.len() <= MAX_OUTBOX);
    assert!(parent.peers.len() <= MAX_OUTBOX, "who is not answered is not remembered");
}
