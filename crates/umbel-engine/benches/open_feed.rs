//! Measures what the keys of nodes cost in an open feed: signing a message to the group and
//! checking it, the code of a message between child and parent, and the parent's part of a join.
//!
//! Times are of the processor that the thread has had, so that a busy machine changes them little.
//! Run with `cargo bench -p umbel-engine --bench open_feed`.

#![allow(clippy::unwrap_used)]

use std::net::SocketAddr;
use std::time::Duration;

use umbel_engine::tmtp::{Authentication, NodeConfig, Stamps, node_id};
use umbel_engine::{Address, Datagram, Instant};
use umbel_seeds::timed;
use umbel_wire::tmtp::{
    BlockRun, Body, JoinRequest, Nack, NackRun, Need, NodeId, Refusal, Role, Standing,
};
use umbel_wire::{Channel, Tsi};

const FEED: Tsi = Tsi(7);
const MESSAGES: u32 = 2_000;
const REPETITIONS: usize = 5;

fn group() -> Channel {
    Channel { source: None, group: [239, 0, 0, 1].into(), port: 7703 }
}

/// A millisecond for each message, so that no limit is reached.
fn at(number: u32) -> Instant {
    Instant::EPOCH + Duration::from_millis(1) * (number + 1)
}

fn address(node: u32) -> SocketAddr {
    ((0x0A00_0001 + node).to_be_bytes(), 7703).into()
}

fn seed(node: u32) -> [u8; 32] {
    *blake3::hash(&node.to_be_bytes()).as_bytes()
}

fn id(node: u32) -> NodeId {
    node_id(FEED, &seed(node))
}

/// Returns the stamps of a node, of which 0 is the source.
fn stamps(node: u32) -> Stamps {
    let (channels, keys) = ((group(), group()), Authentication::Keys(seed(node)));
    let config = NodeConfig::new(id(node), FEED, channels, address(node), keys);
    Stamps::new(config, (id(0), address(0)), &seed(node))
}

fn nack() -> Body {
    let runs = vec![NackRun { run: BlockRun { first: 0, count: 1 }, need: Need::Whole }];
    Body::Nack(Nack { parent: id(0), hop_limit: 1, runs })
}

fn open(stamps: &mut Stamps, now: Instant, by: Address, payload: &[u8]) -> Option<Body> {
    let message = stamps.open(now, &Datagram { by, hop_limit: None, payload });
    message.map(|message| message.body)
}

/// Returns the microseconds for signing a message to the group, and for checking it.
fn in_group() -> (f64, f64) {
    let (mut source, mut node) = (stamps(0), stamps(1));
    let body = nack();
    let seal = |n| source.seal(at(n), Address::Channel(group()), body.clone());
    let (signing, sent) = timed(|| (0..MESSAGES).map(seal).collect::<Vec<_>>());
    let by = Address::Channel(Channel { source: Some(address(0).ip()), ..group() });
    let (checking, heard) = timed(|| {
        let numbered = (0..).zip(&sent);
        numbered.filter(|(n, bytes)| open(&mut node, at(*n), by, bytes).is_some()).count()
    });
    assert_eq!(heard, MESSAGES as usize);
    (signing * 1e6 / f64::from(MESSAGES), checking * 1e6 / f64::from(MESSAGES))
}

fn ask(nonce: u64) -> Body {
    Body::JoinRequest(JoinRequest {
        nonce,
        hop_limit: 64,
        hops: 1,
        role: Role::Member,
        standing: Standing::default(),
        name: String::new(),
        parent: Some(id(0)),
        by_unicast: false,
    })
}

/// Returns the microseconds of the parent for each of many children that join, and those for
/// sending and for opening a message of a pair.
fn joining() -> (f64, f64, f64) {
    let mut parent = stamps(0);
    let mut spent = 0.0;
    let host = |node| Address::Host(address(node));
    let mut last = None;
    for node in 1..=MESSAGES {
        let mut child = stamps(node);
        let request = child.seal(at(node), host(0), ask(node.into()));
        let (time, challenge) = timed(|| {
            assert!(open(&mut parent, at(node), host(node), &request).is_none());
            parent.poll(at(node)).unwrap().1
        });
        spent += time;
        assert!(open(&mut child, at(node), host(0), &challenge).is_none());
        let proof = child.poll(at(node)).unwrap().1;
        let (time, answer) = timed(|| {
            assert!(open(&mut parent, at(node), host(node), &proof).is_some());
            let refused = Body::JoinRefused { nonce: node.into(), reason: Refusal::Full };
            parent.seal(at(node), host(node), refused)
        });
        spent += time;
        assert!(open(&mut child, at(node), host(0), &answer).is_some());
        last = Some((node, child));
    }
    let (node, mut child) = last.unwrap();
    let say = |n| child.seal(at(n), host(0), Body::LeaveTree { token: 1, nonce: n.into() });
    let (sending, sent) = timed(|| (0..MESSAGES).map(say).collect::<Vec<_>>());
    let (opening, heard) = timed(|| {
        let numbered = (0..).zip(&sent);
        numbered.filter(|(n, bytes)| open(&mut parent, at(*n), host(node), bytes).is_some()).count()
    });
    assert_eq!(heard, MESSAGES as usize);
    let each = |time: f64| time * 1e6 / f64::from(MESSAGES);
    (each(spent), each(sending), each(opening))
}

fn best(times: impl Iterator<Item = f64>) -> f64 {
    times.fold(f64::INFINITY, f64::min)
}

fn main() {
    let group: Vec<_> = (0..REPETITIONS).map(|_| in_group()).collect();
    let joins: Vec<_> = (0..REPETITIONS).map(|_| joining()).collect();
    println!("microseconds of processor time, least of {REPETITIONS}");
    println!("message to the group: sign {:.1}", best(group.iter().map(|times| times.0)));
    println!("message to the group: check {:.1}", best(group.iter().map(|times| times.1)));
    println!("message of a pair: send {:.1}", best(joins.iter().map(|times| times.1)));
    println!("message of a pair: open {:.1}", best(joins.iter().map(|times| times.2)));
    println!("join: the parent {:.1}", best(joins.iter().map(|times| times.0)));
}
