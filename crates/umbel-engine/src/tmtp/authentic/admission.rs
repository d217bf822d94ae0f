//! The key of the tree for receivers on the source's list.
//!
//! The source and each receiver on its list share a secret that nobody else has. It follows from
//! the key that the signed announcement names and from the receiver's. With it the receiver asks,
//! and is answered:
//!
//! ```text
//! receiver                                            source
//!   │ KEY_REQUEST n, hint        [their secret] ──▶ │ finds the receiver by the hint
//!   │ ◀── KEY_ANSWER n, {secret of the tree}        │ keeps nothing
//!   │ the keys of the tree follow
//! ```
//!
//! The code of the request covers the number n, the receiver's node and both addresses. The answer
//! is sealed (AES-256-GCM) with a key that follows from all of these, and so fits one request at
//! one address. A stranger that repeats a request makes the source send the same answer again, to
//! the same address. A receiver that is not on the list gets no answer, and nobody can say in the
//! source's name that it is not.
//!
//! A receiver asks with one number until it is answered, more and more rarely. It says nothing else
//! before, and hears nothing but data. If the source is heard and does not answer, it ends.

use std::collections::BTreeMap;
use std::time::Duration;

use umbel_wire::Tsi;
use umbel_wire::tmtp::{Body, KEY_HINT_LEN, Message, SEALED_KEY_LEN, Stamp, StampKey};

use super::keys::{End, Personal, code, same};
use crate::Instant;
use crate::seal::NONCE_LEN;
use crate::tmtp::drops::DropReason;
use crate::tmtp::tree::Answers;

/// Most answers a second, and most of them to one IP address.
const ANSWERS: (u32, u32) = (1_000, 50);
/// First and longest time after which a receiver asks again; once to twice that, at random.
const RETRY: (Duration, Duration) = (Duration::from_millis(200), Duration::from_millis(500));
/// The same once a receiver has asked as often as [`UNANSWERED`] says.
const RETRY_RARELY: Duration = Duration::from_millis(1_600);
/// Requests without an answer, and time since the first of them, after which a receiver that hears
/// the source is not on its list. Where 30 % are lost both ways, all of these are lost for one
/// receiver of a million (0.51 to the power of 20).
const UNANSWERED: (u32, Duration) = (20, Duration::from_secs(15));
/// Number for ciphers that seal one message.
const ONCE: [u8; NONCE_LEN] = [0; NONCE_LEN];

/// The source's list.
#[derive(Debug)]
pub(super) struct Desk {
    feed: Tsi,
    tree: [u8; 32],
    receivers: BTreeMap<[u8; KEY_HINT_LEN], [u8; 32]>,
    answers: Answers,
}

impl Desk {
    /// Creates the desk for receivers with these secrets, which are given the secret of the tree.
    pub(super) fn new(feed: Tsi, tree: [u8; 32], receivers: &[[u8; 32]]) -> Desk {
        let hint = |secret| (Personal::new(feed, secret).hint(), *secret);
        let receivers = receivers.iter().map(hint).collect();
        Desk { feed, tree, receivers, answers: Answers::new(ANSWERS.0, ANSWERS.1) }
    }

    /// Returns the answer to a request.
    ///
    /// # Errors
    ///
    /// If it is nobody's who is on the list, or the limit is reached.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        (receiver, source): (End, End),
        (nonce, hint): (u64, [u8; KEY_HINT_LEN]),
        (bytes, stamp): (&[u8], Stamp),
    ) -> Result<Vec<u8>, DropReason> {
        let secret = self.receivers.get(&hint).ok_or(DropReason::NotAuthentic)?;
        let personal = Personal::new(self.feed, secret);
        let place = (stamp.key, stamp.number);
        let made = code(&personal.requests(), place, (receiver.1, source.1), bytes);
        if !same(&made, &stamp.code) {
            return Err(DropReason::NotAuthentic);
        }
        if !self.answers.may_leave(now, receiver.1.ip()) {
            return Err(DropReason::OverLimit);
        }
        let mut given = Vec::with_capacity(SEALED_KEY_LEN);
        let cipher = personal.answers((receiver, source), nonce);
        cipher.append_sealed(ONCE, &[], &self.tree, &mut given);
        let mut sealed = [0; SEALED_KEY_LEN];
        sealed.copy_from_slice(&given);
        let body = Body::KeyAnswer { nonce, sealed };
        let mut answer = Vec::new();
        Message { feed: self.feed, sender: source.0, body }.emit(&mut answer);
        Ok(answer)
    }
}

/// A receiver that has no key of the tree yet.
#[derive(Debug)]
pub(super) struct Applicant {
    feed: Tsi,
    personal: Personal,
    nonce: u64,
    /// Requests so far, the time of the first and that of the next.
    tries: u32,
    since: Option<Instant>,
    next: Option<Instant>,
    /// Whether it was told that it is not on the list.
    told: bool,
}

impl Applicant {
    /// Creates one that does not ask yet. The number must be fresh.
    pub(super) fn new(feed: Tsi, secret: &[u8; 32], nonce: u64) -> Applicant {
        let personal = Personal::new(feed, secret);
        Applicant { feed, personal, nonce, tries: 0, since: None, next: None, told: false }
    }

    /// Begins to ask.
    pub(super) fn begin(&mut self, now: Instant) {
        self.since.get_or_insert(now);
        self.next.get_or_insert(now);
    }

    /// Returns when to ask next.
    pub(super) fn next(&self) -> Option<Instant> {
        self.next
    }

    /// Returns the request, if it is due.
    pub(super) fn poll(&mut self, now: Instant, (own, source): (End, End)) -> Option<Vec<u8>> {
        let due = self.next.filter(|next| *next <= now)?;
        let (first, most) = RETRY;
        let often = most.min(first * (1 << self.tries.min(8)));
        let wait = if self.tries < UNANSWERED.0 { often } else { RETRY_RARELY };
        // Some bits of the number are as good as any other chance.
        let chance = f64::from(self.nonce.rotate_left(8 * self.tries) as u8) / 256.0;
        self.next = Some(now.max(due) + wait.mul_f64(1.0 + chance));
        self.tries = self.tries.saturating_add(1);
        let body = Body::KeyRequest { nonce: self.nonce, hint: self.personal.hint() };
        let mut request = Vec::new();
        Message { feed: self.feed, sender: own.0, body }.emit(&mut request);
        let (key, number) = (StampKey::Personal, 0);
        let code = code(&self.personal.requests(), (key, number), (own.1, source.1), &request);
        Stamp { key, number, code }.emit(&mut request);
        Some(request)
    }

    /// Returns the secret of the tree that an answer holds.
    ///
    /// # Errors
    ///
    /// If it is another's, or not by the source.
    pub(super) fn open(
        &self,
        (own, source): (End, End),
        nonce: u64,
        mut sealed: [u8; SEALED_KEY_LEN],
    ) -> Result<[u8; 32], DropReason> {
        if nonce != self.nonce || self.since.is_none() {
            return Err(DropReason::NotAsked);
        }
        let cipher = self.personal.answers((own, source), nonce);
        let tree = cipher.open_in_place(ONCE, &[], &mut sealed);
        tree.and_then(|tree| tree.try_into().ok()).ok_or(DropReason::NotAuthentic)
    }

    /// Returns when it is clear that no answer comes, if the source is heard.
    pub(super) fn hopeless_at(&self) -> Option<Instant> {
        let (tries, time) = UNANSWERED;
        let since = self.since.filter(|_| self.tries >= tries && !self.told)?;
        Some(since + time)
    }

    /// Notes that it was told so.
    pub(super) fn tell(&mut self) {
        self.told = true;
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use proptest::prelude::*;
    use umbel_wire::Channel;
    use umbel_wire::tmtp::{CODE_LEN, NodeId, Report};

    use super::super::{Authentic, MAX_OUTBOX, Opened};
    use super::*;
    use crate::testing::ms;
    use crate::tmtp::config::{Authentication, List, NodeConfig};
    use crate::{Address, Datagram};

    const FEED: Tsi = Tsi(9);
    const TREE: [u8; 32] = [0x77; 32];
    /// Node 0 is the source. The last one is not on its list.
    const NODES: usize = 4;
    const STRANGER: usize = NODES - 1;

    fn end(node: usize) -> End {
        let address = ([10, 0, 0, node as u8 + 1], 7700 + node as u16).into();
        (NodeId(node as u64 + 1), address)
    }

    fn secret(node: usize) -> [u8; 32] {
        [node as u8; 32]
    }

    fn config(node: usize) -> NodeConfig {
        let group = |last| Channel { source: None, group: [239, 0, 0, last].into(), port: 7703 };
        let (id, address) = end(node);
        let list = if node == 0 {
            List::Has { tree: TREE, receivers: (1..STRANGER).map(secret).collect() }
        } else {
            List::On(secret(node))
        };
        let authentication = Authentication::List { list, token: None };
        NodeConfig::new(id, FEED, (group(1), group(2)), address, authentication)
    }

    fn node(node: usize) -> Authentic {
        Authentic::new(&config(node), end(0), &[node as u8; 32])
    }

    fn deliver(
        (at, node): (usize, &mut Authentic),
        now: Instant,
        from: SocketAddr,
        payload: &[u8],
    ) -> Result<Opened, DropReason> {
        let datagram = Datagram { by: Address::Host(from), hop_limit: None, payload };
        node.open(now, &datagram, &config(at), |_| true)
    }

    /// Next step of the attacker.
    #[derive(Clone, Debug)]
    enum Step {
        /// A receiver asks, if it is time.
        Ask(usize),
        /// The oldest that is under way arrives.
        Pass,
        /// Something that was ever sent arrives.
        Again(usize),
        /// Something that was ever sent arrives at this node, from this one's address.
        Elsewhere(usize, usize, usize),
        /// Something that was ever sent arrives with a bit changed.
        Altered(usize, usize),
        /// Something is put together out of two.
        Mixed(usize, usize, usize),
        /// Time passes.
        Wait(u64),
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let node = || 0..NODES;
        let any_two = any::<(usize, usize)>;
        prop::collection::vec(
            prop_oneof![
                3 => (1..NODES).prop_map(Step::Ask),
                4 => Just(Step::Pass),
                3 => any::<usize>().prop_map(Step::Again),
                3 => (any::<usize>(), node(), node()).prop_map(|(a, b, c)| Step::Elsewhere(a, b, c)),
                2 => any_two().prop_map(|(a, b)| Step::Altered(a, b)),
                2 => (any_two(), 0..60_usize).prop_map(|((a, b), c)| Step::Mixed(a, b, c)),
                2 => (0..5_000_u64).prop_map(Step::Wait),
            ],
            1..80,
        )
    }

    /// A datagram, by whom and to whom.
    type Sent = (usize, usize, Vec<u8>);

    fn run(steps: Vec<Step>) -> Vec<Authentic> {
        let mut nodes: Vec<Authentic> = (0..NODES).map(node).collect();
        let (mut sent, mut passed, mut now): (Vec<Sent>, _, _) = (Vec::new(), 0, ms(1));
        for asking in &mut nodes[1..] {
            assert!(asking.begin(now));
        }
        for step in steps {
            let pick = |n: usize| sent.get(n % sent.len().max(1)).cloned();
            let arrival = match step {
                Step::Ask(asking) => {
                    if let Some((to, bytes)) = nodes[asking].poll(now) {
                        assert_eq!(to, end(0).1, "it asks the source alone");
                        sent.push((asking, 0, bytes));
                    }
                    None
                }
                Step::Pass => {
                    passed += 1;
                    sent.get(passed - 1).cloned()
                }
                Step::Again(n) => pick(n),
                Step::Elsewhere(n, to, by) => pick(n).map(|(_, _, bytes)| (by, to, bytes)),
                Step::Altered(n, bit) => pick(n).map(|(by, to, mut bytes)| {
                    let bit = bit % (bytes.len() * 8);
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    (by, to, bytes)
                }),
                Step::Mixed(a, b, at) => pick(a).zip(pick(b)).map(|((by, to, a), (_, _, b))| {
                    let cut = |bytes: &[u8]| bytes.len().saturating_sub(at);
                    (by, to, [&a[..cut(&a)], &b[cut(&b)..]].concat())
                }),
                Step::Wait(time) => {
                    now += Duration::from_millis(time);
                    None
                }
            };
            passed = passed.min(sent.len());
            let Some((by, to, bytes)) = arrival else { continue };
            let genuine = sent.contains(&(by, to, bytes.clone()));
            let opened = deliver((to, &mut nodes[to]), now, end(by).1, &bytes);
            if let Ok(opened) = opened {
                assert!(genuine, "{to} believes {opened:?}, which {by} never said to it");
            }
            let answer = if to == 0 { nodes[0].poll(now) } else { None };
            if let Some((back, answer)) = answer {
                assert_eq!(back, end(by).1, "who asks is answered, and nobody else");
                assert!(!answer.windows(8).any(|part| part == &TREE[..8]), "it is sealed");
                sent.push((0, by, answer));
            }
            for (index, node) in nodes.iter().enumerate() {
                let Some(keys) = node.keys() else { continue };
                assert_ne!(index, STRANGER, "who is not on the list has a key");
                let code = |key| ring::hmac::sign(key, b"x").as_ref().to_vec();
                let source = &nodes[0].keys().unwrap().tree;
                assert_eq!(code(&keys.tree), code(source), "{index} has another key");
            }
        }
        nodes
    }

    proptest! {
        #[test]
        fn no_attacker_gets_a_key_or_gives_another(steps in steps()) {
            run(steps);
        }
    }

    #[test]
    fn who_is_on_the_list_is_given_the_key_and_nobody_else() {
        let ask = (1..NODES).map(Step::Ask);
        let nodes = run(ask.chain(vec![Step::Pass; 2 * NODES]).collect());
        let has: Vec<bool> = nodes.iter().map(|node| node.keys().is_some()).collect();
        assert_eq!(has, [true, true, true, false]);
        assert!(
            nodes[1..STRANGER].iter().all(|node| !node.is_waiting() && node.asks_at().is_none())
        );
    }

    #[test]
    fn who_is_not_answered_asks_more_rarely_and_is_told_once_the_source_is_heard() {
        let mut stranger = node(STRANGER);
        stranger.begin(ms(0));
        let mut asked = Vec::new();
        for now in (0..30_000).map(ms) {
            asked.extend(stranger.poll(now).map(|_| now));
            assert!(!stranger.is_unlisted(now), "nothing was heard of the source");
        }
        assert!((20..30).contains(&asked.len()), "{asked:?}");
        stranger.doubts = Some((super::super::SHUT_OUT.0, ms(29_000)));
        assert!(stranger.is_unlisted(ms(30_000)));
        assert!(!stranger.is_unlisted(ms(30_001)), "once");
    }

    #[test]
    fn nobody_gives_up_before_twenty_requests_were_lost() {
        for nonce in [0, u64::MAX, 0x0123_4567_89AB_CDEF] {
            let mut applicant = Applicant::new(FEED, &secret(1), nonce);
            applicant.begin(ms(0));
            let mut asked = 0;
            let given_up = (0..30_000).map(ms).find(|&now| {
                asked += u32::from(applicant.poll(now, (end(1), end(0))).is_some());
                applicant.hopeless_at().is_some_and(|at| at <= now)
            });
            let (given_up, seconds) = (given_up.unwrap(), Duration::from_secs);
            assert!(asked >= 20, "only {asked} requests");
            let waited = given_up - ms(0);
            assert!(waited >= seconds(15) && waited < seconds(20), "{waited:?}");
        }
    }

    #[test]
    fn who_has_no_key_hears_nobody() {
        let mut waiting = node(1);
        waiting.begin(ms(0));
        let report = Report { token: 1, first: 0, receivers: Vec::new(), tree: Vec::new() };
        for key in [StampKey::Tree, StampKey::Pair] {
            let (sender, from) = end(2);
            let mut bytes = Vec::new();
            let body = Body::Report(report.clone());
            Message { feed: FEED, sender, body }.emit(&mut bytes);
            Stamp { key, number: 1, code: [0; CODE_LEN] }.emit(&mut bytes);
            let heard = deliver((1, &mut waiting), ms(1), from, &bytes);
            assert_eq!(heard.err(), Some(DropReason::NoKey));
        }
    }

    /// Returns how many of these requests, each from a host and port of its own, are answered at
    /// once.
    fn answered(hosts: impl Iterator<Item = [u8; 4]>) -> usize {
        let mut source = node(0);
        let mut answered = 0;
        for (port, host) in (1..).zip(hosts) {
            let own = (NodeId(100), (host, port).into());
            let mut asking = Applicant::new(FEED, &secret(1), 7);
            asking.begin(ms(5));
            let request = asking.poll(ms(5), (own, end(0))).unwrap();
            let opened = deliver((0, &mut source), ms(5), own.1, &request);
            assert!(matches!(opened, Ok(Opened::Answered) | Err(DropReason::OverLimit)));
            assert!(source.outbox.len() <= MAX_OUTBOX);
            answered += usize::from(source.poll(ms(5)).is_some());
        }
        answered
    }

    #[test]
    fn ten_times_as_many_requests_get_no_more_answers() {
        let (all, per_host) = ANSWERS;
        let hosts = (0..10 * all).map(|n| [10, 1, (n >> 8) as u8, n as u8]);
        assert_eq!(answered(hosts), all as usize);
        let host = std::iter::repeat_n([10, 1, 1, 1], 10 * per_host as usize);
        assert_eq!(answered(host), per_host as usize);
    }
}
