//! An attacker against honest nodes, and each rule by itself.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use ring::hmac;
use umbel_wire::Channel;
use umbel_wire::tmtp::{
    BlockRun, JoinRequest, Nack, NackRun, Need, Portion, Refusal, Role, Search, Standing,
};

use super::*;
use crate::bucket::Limit;
use crate::testing::ms;

const FEED: Tsi = Tsi(9);
const NODES: usize = 3;
/// A node of an open feed that nobody asked to come.
const MALLORY: usize = NODES;

/// Rule by which nodes take part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// With a token that begins so.
    Token(u8),
    /// With keys of their own.
    Open,
}

fn address(node: usize) -> SocketAddr {
    ([10, 0, 0, node as u8 + 1], 7700 + node as u16).into()
}

fn group(last: u8) -> Channel {
    Channel { source: None, group: [239, 0, 0, last].into(), port: 7703 }
}

fn id(node: usize, door: Door) -> NodeId {
    match door {
        Door::Token(_) => NodeId(node as u64 + 1),
        Door::Open => node_id(FEED, &[node as u8; 32]),
    }
}

fn config(node: usize, door: Door) -> NodeConfig {
    let channels = (group(1), group(2));
    let authentication = match door {
        Door::Token(token) => Authentication::Token([token; 32]),
        Door::Open => Authentication::Keys([node as u8; 32]),
    };
    NodeConfig::new(id(node, door), FEED, channels, address(node), authentication)
}

/// Returns the stamps of a node; node 0 is the source.
fn stamps(node: usize, door: Door) -> Authentic {
    let source = (id(0, door), address(0));
    Authentic::new(&config(node, door), source, &[node as u8; 32])
}

fn request(nonce: u64, parent: Option<NodeId>) -> Body {
    Body::JoinRequest(JoinRequest {
        nonce,
        hop_limit: 64,
        hops: 1,
        role: Role::Member,
        standing: Standing::default(),
        name: String::new(),
        parent,
        by_unicast: false,
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
    door: Door,
    nodes: Vec<Authentic>,
    sealed: Vec<Sealed>,
    now: Instant,
    /// Requests of each child to each parent.
    asked: BTreeSet<(usize, usize, u64)>,
    /// Requests that parents have taken.
    taken: BTreeSet<(usize, usize, u64)>,
    /// Messages that each node has let in.
    heard: BTreeMap<(usize, Vec<u8>), usize>,
    /// One who has keys as well, in an open feed, and any address.
    mallory: Authentic,
    numbers: u64,
}

impl Honest {
    fn new(door: Door) -> Honest {
        Honest {
            door,
            nodes: (0..NODES).map(|node| stamps(node, door)).collect(),
            mallory: stamps(MALLORY, door),
            sealed: Vec::new(),
            now: ms(1),
            asked: BTreeSet::new(),
            taken: BTreeSet::new(),
            heard: BTreeMap::new(),
            numbers: 0,
        }
    }

    fn say(&mut self, by: usize, to: usize, body: Body) {
        let message = Message { feed: FEED, sender: id(by, self.door), body };
        let bytes = self.nodes[by].seal(self.now, Address::Host(address(to)), &message);
        self.sealed.push(Sealed { by, to, bytes });
    }

    fn ask(&mut self, child: usize, parent: usize) {
        self.numbers += 1;
        self.asked.insert((child, parent, self.numbers));
        let parent_id = (self.door == Door::Open).then(|| id(parent, self.door));
        self.say(child, parent, request(self.numbers, parent_id));
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
        let (alone, portion) = (Vec::new(), Portion::default());
        self.say(by, to, Body::Fetch { nonce: self.numbers, cookie: 0, runs, alone, portion });
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
        let opened = self.nodes[at].open(self.now, &datagram, &config(at, self.door), |_| true);
        while let Some((to, bytes)) = self.nodes[at].poll(self.now) {
            let to = (0..NODES).find(|&node| address(node) == to).unwrap();
            self.sealed.push(Sealed { by: at, to, bytes });
        }
        let message = match opened? {
            Opened::Message(message) => message,
            Opened::Answered | Opened::Challenged(..) => return Ok(()),
            Opened::Unneeded => panic!("each message is of use"),
            Opened::Admitted => panic!("nobody asked for a key"),
            // It is asked nothing but whether it has a place, which it has not.
            Opened::Stranger { .. } => return Err(DropReason::ForgedChild),
        };
        if message.sender == id(MALLORY, self.door) {
            // Everybody may come to an open feed.
            return Ok(());
        }
        // It is what the node of this address said, to this one, and it is heard once.
        let said = |sealed: &Sealed| sealed.bytes == bytes && (sealed.by, sealed.to) == (from, at);
        assert!(self.sealed.iter().any(said), "{at} believes {message:?} of {from}");
        assert_eq!(message.sender, id(from, self.door));
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

    /// Mallory says something of its own to a node from a node's address, or answers what the one
    /// said to the other lately.
    fn speak(&mut self, what: usize, to: usize, at: usize) {
        self.mallory.own.1 = address(at);
        self.numbers += 1;
        let said = self.sealed.iter().rev();
        let mut said = said.filter(|sealed| (sealed.by, sealed.to) == (to, at));
        let overheard = said.nth(what / 5 % 3).map(|sealed| sealed.bytes.clone());
        let nonce = overheard.as_ref().and_then(|bytes| {
            let message = Message::parse(umbel_wire::tmtp::without_stamp(bytes)).ok()?.message()?;
            match message.body {
                Body::JoinRequest(request) => Some(request.nonce),
                _ => None,
            }
        });
        let nonce = nonce.unwrap_or(self.numbers);
        let body = match what % 5 {
            0 => Some(request(nonce, Some(id(to, self.door)))),
            1 => Some(Body::JoinChallenge { nonce, challenge: self.numbers }),
            2 => Some(Body::LeaveTree { token: 1, nonce }),
            3 => Some(Body::Dismiss { token: 1, reason: umbel_wire::tmtp::Dismissal::Slow }),
            _ => None,
        };
        let mut said = Vec::new();
        let mut node = config(MALLORY, self.door);
        node.address = address(at);
        if let Some(body) = body {
            let message = Message { feed: FEED, sender: node.id, body };
            said.push(self.mallory.seal(self.now, Address::Host(address(to)), &message));
        } else {
            let payload = overheard.as_deref().unwrap_or_default();
            let datagram = Datagram { by: Address::Host(address(to)), hop_limit: None, payload };
            let _ = self.mallory.open(self.now, &datagram, &node, |_| true);
        }
        while let Some((_, bytes)) = self.mallory.poll(self.now) {
            said.push(bytes);
        }
        let held = |honest: &Honest| {
            let peer = honest.nodes[to].peers.get(&address(at))?;
            let pair = peer.holds.as_ref().filter(|pair| pair.id != node.id)?;
            (honest.now.since(peer.used) < signed::DISUSE).then_some(pair.id)
        };
        for bytes in said {
            let before = held(self);
            let _ = self.deliver(to, at, &bytes);
            assert!(before.is_none() || held(self) == before, "{to} has lost its pair with {at}");
        }
    }

    /// Checks that nodes that share a key agree on all else.
    fn agree(&self) {
        for (a, node) in self.nodes.iter().enumerate() {
            for (at, peer) in &node.peers {
                let Some(pair) = &peer.holds else { continue };
                if pair.id == id(MALLORY, self.door) {
                    continue;
                }
                let b = (0..NODES).find(|&node| address(node) == *at).expect("no other is heard");
                assert_eq!(pair.id, id(b, self.door), "of {a}");
                let other = &self.nodes[b].peers.get(&address(a));
                let others = other
                    .iter()
                    .flat_map(|peer| [&peer.holds, &peer.offered, &peer.asked])
                    .flatten();
                let numbers = |pair: &Pair| (pair.nonce, pair.challenge);
                for same in others.filter(|other| numbers(other) == numbers(pair)) {
                    assert_eq!(same.id, id(a, self.door));
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
    /// One with other keys says something to this node, from this one's address.
    Mallory(usize, usize, usize),
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
            3 => (any::<usize>(), node(), node()).prop_map(|(a, b, c)| Step::Mallory(a, b, c)),
            1 => (0..40_000_u64).prop_map(Step::Wait),
        ],
        1..120,
    )
}

fn run(steps: Vec<Step>) -> Honest {
    run_with(Door::Token(7), steps)
}

fn run_with(door: Door, steps: Vec<Step>) -> Honest {
    let mut honest = Honest::new(door);
    let mut passed = 0;
    for step in steps {
        let len = honest.sealed.len().max(1);
        let pick = |honest: &Honest, n: usize| honest.sealed.get(n % len).cloned();
        let arrival = match step {
            Step::Ask(a, b) | Step::Say(a, b) | Step::Fetch(a, b) if a == b => None,
            Step::Mallory(what, to, at) => {
                // Who has the token is not kept out by it.
                if door == Door::Open && to != at {
                    honest.speak(what, to, at);
                }
                None
            }
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
                let len = if door == Door::Open { SignedStamp::LEN } else { Stamp::LEN };
                let split = |sealed: &Sealed| sealed.bytes.len().saturating_sub(len);
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

proptest! {
    // Signatures and keys take their time.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn in_an_open_feed_neither_does_one_who_has_keys_as_well(steps in steps()) {
        run_with(Door::Open, steps);
    }
}

#[test]
fn who_asks_gets_a_place_when_everything_arrives() {
    for door in [Door::Token(7), Door::Open] {
        let honest = run_with(door, [vec![Step::Ask(1, 0)], vec![Step::Pass; 4]].concat());
        assert_eq!(honest.taken, [(1, 0, 1)].into());
        for (node, other) in [(0, 1), (1, 0)] {
            let pair = honest.nodes[node].peers[&address(other)].holds.as_ref();
            assert_eq!(pair.map(|pair| pair.nonce), Some(1));
        }
        assert_eq!(honest.heard.len(), 2, "the request under the pair's key, and its answer");
    }
}

#[test]
fn everybody_gets_a_place_in_an_open_feed_under_a_number_of_its_own() {
    let mut honest = Honest::new(Door::Open);
    // From an address of nobody else, which is that of node 2 before it came.
    for what in [0, 4] {
        honest.speak(what, 0, 2);
    }
    let pair = honest.nodes[0].peers[&address(2)].holds.as_ref();
    assert_eq!(pair.map(|pair| pair.id), Some(id(MALLORY, Door::Open)));
    // While it is in use the address is its own, and then again anybody's.
    honest.ask(2, 0);
    let asked = honest.sealed.last().unwrap().bytes.clone();
    assert_eq!(honest.deliver(0, 2, &asked), Err(DropReason::OverLimit));
    honest.now += signed::DISUSE;
    honest.ask(2, 0);
    let asked = honest.sealed.last().unwrap().bytes.clone();
    assert_eq!(honest.deliver(0, 2, &asked), Ok(()));
}

#[test]
fn ten_times_as_many_requests_and_signatures_cost_no_more() {
    let mut parent = stamps(0, Door::Open);
    let [all, per_host] = [JOINS.all, JOINS.of_host()].map(|limit| limit.per_s);
    let mut taken = BTreeMap::<u8, u32>::new();
    for n in 0..10 * per_host {
        for host in [1, 2] {
            let mut child = stamps(MALLORY, Door::Open);
            child.own.1 = ([10, 9, 9, host], 1000 + n as u16).into();
            let message =
                Message { feed: FEED, sender: child.own.0, body: request(n.into(), None) };
            child.numbers.learn_time(ms(1), id(0, Door::Open), u64::from(n) + 2);
            let bytes = child.seal(ms(1), Address::Host(address(0)), &message);
            let by = Address::Host(child.own.1);
            let datagram = Datagram { by, hop_limit: None, payload: &bytes };
            if parent.open(ms(1), &datagram, &config(0, Door::Open), |_| true).is_ok() {
                *taken.entry(host).or_default() += 1;
            }
        }
    }
    assert!(taken.values().all(|&taken| taken <= per_host && taken > 0), "{taken:?}");
    assert!(parent.peers.len() <= all as usize);
}

#[test]
fn signatures_are_checked_so_often_and_a_flood_leaves_others_their_share() {
    let (mut source, mut node) = (stamps(0, Door::Open), stamps(1, Door::Open));
    let first = in_group(&mut source, ms(1), nack());
    let (message, stamp) = SignedStamp::split(&first).unwrap();
    let mut number = stamp.number;
    let mut flood = |node: &mut Authentic, at: Instant, count: u32| {
        let mut checked = 0;
        for _ in 0..count {
            // Later than what the source itself says.
            number = number.max((at.as_nanos() / 1_000_000 + 2) << 20) + 1;
            let mut forged = message.to_vec();
            SignedStamp { number, signature: [1; 64], ..stamp }.emit(&mut forged);
            match hear(1, node, at, 0, &forged).unwrap_err() {
                DropReason::NotAuthentic => checked += 1,
                reason => assert_eq!(reason, DropReason::OverLimit),
            }
        }
        checked
    };
    let Limit { per_s, burst } = crate::bounds::CHECKS.all;
    assert_eq!(flood(&mut node, ms(1), burst), burst);
    assert!(!node.take_deafness());
    assert_eq!(hear(1, &mut node, ms(1), 0, &first).err(), Some(DropReason::OverLimit));
    assert!(node.take_deafness() && !node.take_deafness());
    // Three times as much as is checked comes in each millisecond. What the source says comes after
    // a part of it.
    let (each, mut checked, mut heard) = (per_s / 1_000, 0, 0);
    for n in 0..400 {
        let at = ms(2 + n);
        let before = u32::try_from(n % u64::from(3 * each)).unwrap();
        checked += flood(&mut node, at, before);
        let said = in_group(&mut source, at, nack());
        heard += u32::from(hear(1, &mut node, at, 0, &said).is_ok());
        checked += flood(&mut node, at, 3 * each - before);
    }
    assert!(checked + heard <= 401 * each, "{checked}");
    assert!((100..200).contains(&heard), "a third of 400: {heard}");
}

#[test]
fn what_was_offered_at_a_nodes_address_does_not_part_it() {
    // Node 1 asks 2, and is asked from the address of 2 meanwhile. Then 1 and 2 have a pair.
    let before = [Step::Ask(1, 2), Step::Mallory(0, 1, 2)].into_iter();
    let steps = before.chain(vec![Step::Pass; 5]).chain([Step::Mallory(9, 1, 2)]);
    let honest = run_with(Door::Open, steps.collect());
    let pair = honest.nodes[1].peers[&address(2)].holds.as_ref();
    assert_eq!(pair.map(|pair| pair.id), Some(id(2, Door::Open)));
    assert!(honest.nodes[1].peers[&address(2)].offered.is_some(), "it was offered");
}

#[test]
fn who_speaks_as_the_source_or_from_its_address_is_the_source() {
    let mut node = stamps(1, Door::Open);
    let mut mallory = stamps(MALLORY, Door::Open);
    mallory.own.1 = address(0);
    let gone = Body::FetchGone { nonce: 1, runs: vec![BlockRun { first: 0, count: 1 }] };
    let message = Message { feed: FEED, sender: mallory.own.0, body: gone.clone() };
    let bytes = mallory.seal(ms(1), Address::Host(address(1)), &message);
    let datagram = |payload| {
        let by = Address::Host(address(0));
        Datagram { by, hop_limit: None, payload }
    };
    let node_config = config(1, Door::Open);
    let heard = node.open(ms(1), &datagram(&bytes), &node_config, |_| true);
    assert_eq!(heard.err(), Some(DropReason::NotAuthentic));
    // In the source's name, with its keys and another signature.
    let mut source = stamps(0, Door::Open);
    let message = Message { feed: FEED, sender: source.own.0, body: gone };
    let good = source.seal(ms(1), Address::Host(address(1)), &message);
    let mut wrong = good.clone();
    *wrong.last_mut().unwrap() ^= 1;
    let mut bare = Vec::new();
    message.emit(&mut bare);
    for forged in [&wrong, &bare] {
        let heard = node.open(ms(1), &datagram(forged), &node_config, |_| true);
        assert_eq!(heard.err(), Some(DropReason::NotAuthentic));
    }
    assert!(matches!(
        node.open(ms(1), &datagram(&good), &node_config, |_| true),
        Ok(Opened::Message(_))
    ));
    let again = node.open(ms(1), &datagram(&good), &node_config, |_| true);
    assert_eq!(again.err(), Some(DropReason::Replayed));
}

#[test]
fn a_request_that_was_overheard_is_worth_nothing() {
    let mut honest = run([vec![Step::Ask(1, 0)], vec![Step::Pass; 4]].concat());
    let overheard = honest.sealed.clone();
    // The parent is started again, and has forgotten all.
    honest.nodes[0] = Authentic { secret: [9; 32], ..stamps(0, Door::Token(7)) };
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
    let door = if node.is_open() { Door::Open } else { Door::Token(7) };
    node.open(now, &datagram, &config(at, door), |_| true)
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
    let (mut source, mut node) = (stamps(0, Door::Token(7)), stamps(1, Door::Token(7)));
    let from_source = in_group(&mut source, ms(1), nack());
    hear(1, &mut node, ms(1), 0, &from_source).unwrap();
    let old = in_group(&mut node, ms(10), nack());
    let searched = in_group(&mut stamps(1, Door::Token(7)), ms(10), search());
    for (later, stale) in [(20_000, false), (40_000, true)] {
        let mut new = stamps(2, Door::Token(7));
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
    let (mut node, mut parent) = (stamps(1, Door::Token(7)), stamps(0, Door::Token(7)));
    for n in 0..5_000_u64 {
        // Each from a port of its own: so much only those do who have the token.
        let from = SocketAddr::from(([10, 1, (n >> 8) as u8, n as u8], 7));
        node.own = (NodeId(10 + n), from);
        let message = Message { feed: FEED, sender: node.own.0, body: request(n, None) };
        let bytes = node.seal(ms(n), Address::Host(address(0)), &message);
        let datagram = Datagram { by: Address::Host(from), hop_limit: None, payload: &bytes };
        let opened = parent.open(ms(n), &datagram, &config(0, Door::Token(7)), |_| true);
        assert!(matches!(opened, Ok(Opened::Answered) | Err(DropReason::OverLimit)));
    }
    assert!(parent.outbox.len() <= MAX_OUTBOX);
    assert!(parent.peers.len() <= MAX_OUTBOX, "who is not answered is not remembered");
}
