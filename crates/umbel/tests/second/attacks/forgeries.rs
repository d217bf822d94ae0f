//! Attacks of a stranger on a feed without a forged address and without a key.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};

use umbel_lab::Node;
use umbel_wire::Digest;
use umbel_wire::alc::{DataHeader, DataPacket};
use umbel_wire::control::MAGIC;
use umbel_wire::sap::SapPacket;
use umbel_wire::session::{FindSessions, QUERY_PORT};
use umbel_wire::tmtp::{
    Ack, AckRun, Beacon, BlockRun, Body, Dismissal, End, FeedInfo, Heartbeat, JoinConfirm,
    JoinRequest, Nack, NackRun, Need, NodeId, Portion, Progress, ReceiverReport, ReceiverState,
    Refusal, Report, Role, SignedStamp, Standing, Timing, Totals, Willing, without_stamp,
};

use super::stranger::{DIRECTORY, HOPS, Heard, Mark, Stranger, Voice, message_of};
use crate::support::bench::SOON;

/// Blocks that are forged, from the first on.
const BLOCKS: u32 = 64;
/// Turns between two of those forgeries that need no thousand a second.
const SELDOM: u64 = 20;

/// Counts turns.
#[derive(Default)]
struct Turns(u64);

impl Turns {
    fn next(&mut self) -> u64 {
        self.0 += 1;
        self.0
    }

    /// Returns whether this turn is one of the seldom ones.
    fn seldom(&mut self) -> bool {
        self.next().is_multiple_of(SELDOM)
    }
}

/// Starts a stranger who asks for the first announcement that there is, and repeats it for ever, as
/// if it were the source (C3). Returns once it has heard it.
pub(crate) fn repeat_first_announcement(host: Node<'_>, mark: Mark) -> Stranger {
    let knows_it = Arc::<AtomicBool>::default();
    let learned = knows_it.clone();
    let mut announced: Option<Vec<u8>> = None;
    let attack = move |voice: &mut Voice, heard: &[Heard]| {
        let first = heard.iter().find(|one| one.announcement().is_some());
        announced = announced.take().or(first.map(|one| one.bytes.clone()));
        let Some(bytes) = &announced else {
            let mut query = Vec::new();
            FindSessions { name: None }.emit(&mut query);
            return voice.say((DIRECTORY.ip(), QUERY_PORT).into(), &query);
        };
        learned.store(true, Ordering::Relaxed);
        let source = (voice.mark.source.ip(), DIRECTORY.port()).into();
        voice.say_as(source, DIRECTORY, bytes);
    };
    let stranger = Stranger::start(host, mark, attack);
    let until = Instant::now() + SOON;
    while !knows_it.load(Ordering::Relaxed) {
        assert!(Instant::now() < until, "the stranger did not hear the announcement");
        std::thread::sleep(Duration::from_millis(10));
    }
    stranger
}

/// Claims that each block of the head, and of all else, has one symbol (C1).
pub(crate) fn false_heads() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    move |voice, _| {
        let sbn = if turns.next() % 2 == 0 { 0 } else { (turns.0 % u64::from(BLOCKS)) as u32 };
        let packet = voice.mark.repair(sbn, (1, 0), b"x");
        voice.say_to_all(&packet);
    }
}

/// Claims that blocks have other numbers of symbols than they have (C1).
pub(crate) fn false_shapes() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    move |voice, _| {
        let turn = turns.next();
        let sbn = (turn % u64::from(BLOCKS)) as u32;
        let k = 2 + (turn / u64::from(BLOCKS) % 254) as u8;
        let packet = voice.mark.repair(sbn, (k, k - 1), b"x");
        voice.say_to_all(&packet);
    }
}

/// Sends symbols of the right shape with a wrong content, source and repair symbols (C1).
pub(crate) fn false_symbols(k: u8, symbol_len: usize) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    move |voice, _| {
        let turn = turns.next();
        let sbn = (turn % u64::from(BLOCKS)) as u32;
        let esi = (turn / u64::from(BLOCKS) % 255) as u8;
        let packet = voice.mark.repair(sbn, (k, esi), &vec![turn as u8; symbol_len]);
        voice.say_to_all(&packet);
    }
}

/// Repairs with wrong content the blocks that are being sent, under the source's address and the
/// numbers of the feed, so that these symbols are taken (C1). Blocks have `k` symbols, or up to two
/// less.
pub(crate) fn false_repairs_of_source(
    k: u8,
    symbol_len: usize,
) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    let mut sent = 1;
    move |voice, heard| {
        for message in heard.iter().filter_map(Heard::message) {
            if let Body::Beacon(beacon) = message.body {
                sent = sent.max(beacon.progress.sent);
            }
        }
        let turn = turns.next();
        // Of the blocks, and of their lengths, each.
        let (sbn, k) = (sent + (turn % 3) as u32, k - (turn / 3 % 3) as u8);
        // Numbers beyond those that a source sends before it is asked.
        let esi = k + (turn / 9 % u64::from(255 - k)) as u8;
        let packet = voice.mark.repair(sbn, (k, esi), &vec![turn as u8; symbol_len]);
        voice.say_as(voice.mark.source, voice.mark.domain, &packet);
    }
}

/// Claims that blocks of an unsealed pipe are this text (C2).
pub(crate) fn false_pipe(text: &'static [u8]) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    move |voice, _| {
        let sbn = (turns.next() % u64::from(BLOCKS)) as u32;
        let Mark { tsi, .. } = voice.mark;
        let mut hasher = blake3::Hasher::new();
        hasher.update(&tsi.0.to_be_bytes()).update(&sbn.to_be_bytes()).update(text);
        let len = (text.len() as u32).to_be_bytes();
        let symbol = [&hasher.finalize().as_bytes()[..], &len, text].concat();
        let packet = voice.mark.repair(sbn, (1, 0), &symbol);
        voice.say_to_all(&packet);
    }
}

/// Forgery of announcements (C3).
#[derive(Clone, Copy, Debug)]
pub(crate) enum Announced {
    /// The feed is over.
    Deleted,
    /// Somebody else sends another one of the name.
    Shadowed,
    /// It is changed: its source and groups are the stranger's.
    Replaced,
    /// A thousand others are announced.
    Flooded,
}

/// Forges announcements after having heard a genuine one.
pub(crate) fn false_announcements(
    how: Announced,
    name: &'static str,
) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    let mut genuine: Option<(Ipv4Addr, String)> = None;
    move |voice, heard| {
        let titled = format!("s={name}\r\n");
        let mut announced = heard.iter().filter_map(Heard::announcement);
        let fresh = announced.rfind(|(_, text)| text.contains(&titled));
        genuine = fresh.or(genuine.take());
        let turn = turns.next();
        if let Announced::Flooded = how {
            let origin = Ipv4Addr::from(0xC612_0000 | (turn as u32 & 0xFFFF));
            let text = format!("v=0\r\no=- {turn} 1 IN IP4 {origin}\r\ns=x{turn}\r\nt=0 0\r\n");
            return announce(voice, false, origin, &text);
        }
        let Some((origin, text)) = genuine.clone().filter(|_| turn.is_multiple_of(SELDOM)) else {
            return;
        };
        let me = voice.address();
        let lines = |change: &dyn Fn(&str) -> Option<String>| -> String {
            let changed = text.lines().map(|line| change(line).unwrap_or_else(|| line.to_owned()));
            changed.map(|line| line + "\r\n").collect()
        };
        let source = format!("a=x-umbel-source:{} {}", me.ip(), me.port());
        let mine = |line: &str| line.starts_with("a=x-umbel-source:").then(|| source.clone());
        match how {
            Announced::Flooded => {}
            Announced::Deleted => announce(voice, true, origin, &text),
            Announced::Shadowed => {
                let owner = format!("o=- 1 1 IN IP4 {}", me.ip());
                let text = lines(&|line| {
                    mine(line).or_else(|| line.starts_with("o=").then(|| owner.clone()))
                });
                let std::net::IpAddr::V4(mine) = me.ip() else { return };
                announce(voice, false, mine, &text);
            }
            Announced::Replaced => {
                let text = lines(&|line| {
                    let tsi = line.starts_with("a=x-umbel-tsi:");
                    mine(line).or_else(|| tsi.then(|| "a=x-umbel-tsi:77".to_owned()))
                });
                announce(voice, false, origin, &text);
            }
        }
    }
}

fn announce(voice: &mut Voice, deletion: bool, origin: Ipv4Addr, text: &str) {
    let mut bytes = Vec::new();
    SapPacket::new(deletion, origin.into(), text.as_bytes()).emit(&mut bytes);
    voice.say(DIRECTORY, &bytes);
}

/// Answers every search at once, and refuses any member that then asks for a place (H2).
pub(crate) fn refuser() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut reasons = [Refusal::NotAdmitted, Refusal::Leaving, Refusal::Full].into_iter().cycle();
    let mut turns = Turns::default();
    move |voice, heard| {
        lure(voice, heard);
        if turns.seldom() {
            let refused = Body::JoinRefused { nonce: turns.0, reason: Refusal::NotAdmitted };
            let bytes = voice.message(refused);
            voice.say_to_all(&bytes);
        }
        for (from, request) in requests(heard) {
            let reason = reasons.next().expect("an endless cycle");
            let refused = Body::JoinRefused { nonce: request.nonce, reason };
            let bytes = voice.message(refused);
            voice.say(from, &bytes);
        }
    }
}

/// Answers every search at once, takes any member that asks, and says that the feed is over (H3).
pub(crate) fn truncator() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    move |voice, heard| {
        lure(voice, heard);
        if turns.seldom() {
            let closing = Beacon { closing: true, ..beacon(voice, Role::Manager) };
            let bytes = voice.message(Body::Beacon(closing));
            voice.say_to_all(&bytes);
        }
        for (from, request) in requests(heard) {
            let end = End { blocks: 1, failed: None };
            let progress = Progress { sent: 1, lowest: 0, end: Some(end) };
            let beacon = Beacon { progress, closing: true, ..beacon(voice, Role::Manager) };
            let feed = FeedInfo {
                source: voice.source_id.unwrap_or(voice.me),
                address: voice.mark.source,
                symbol_len: 1_372,
                block_symbols: 64,
                fec: true,
                manifest: None,
            };
            let confirm = JoinConfirm { nonce: request.nonce, token: 7, from: 0, feed, beacon };
            let body = Body::JoinConfirm(Box::new(confirm));
            let bytes = voice.message(body);
            voice.say(from, &bytes);
        }
    }
}

/// Claims in the group to be the source, or a manager with a better claim (H4).
pub(crate) fn usurper() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    move |voice, heard| {
        lure(voice, heard);
        if turns.seldom() {
            let role =
                if turns.0.is_multiple_of(2 * SELDOM) { Role::Source } else { Role::Manager };
            let bytes = voice.message(Body::Beacon(beacon(voice, role)));
            voice.say_to_all(&bytes);
        }
    }
}

/// Becomes the source's child, and reports that everybody is done or has failed. It uses made-up
/// numbers and those of others, with made-up receipts and none (H6).
pub(crate) fn reporter(names: Vec<String>) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    let (mut place, mut nodes, mut said) = (None, vec![NodeId(1)], 0);
    move |voice, heard| {
        for one in heard {
            let Some(message) = one.message() else { continue };
            match message.body {
                Body::JoinConfirm(confirm) if one.to_me => place = Some((one.from, confirm.token)),
                Body::Dismiss { .. } if one.to_me => place = None,
                _ if !one.to_me && nodes.len() < 64 && !nodes.contains(&message.sender) => {
                    nodes.push(message.sender);
                }
                _ => {}
            }
        }
        if !turns.seldom() {
            return;
        }
        let Some((parent, token)) = place else { return ask_for_a_place(voice, turns.0) };
        said += 1;
        let node = nodes.get(said % (2 * nodes.len())).copied();
        let node = node.unwrap_or(NodeId(1_000_000 + said as u64 % 64));
        let state = match said % 8 {
            0 => ReceiverState::Failed("forged".to_owned()),
            1 => ReceiverState::Receiving,
            _ => ReceiverState::Done,
        };
        let made_up = state == ReceiverState::Done && said % 3 == 0;
        let receipt = made_up.then_some(Digest([said as u8; 32]));
        let name = names[said % names.len()].clone();
        let receivers = vec![ReceiverReport { node, name, held: 1, state, receipt }];
        let report = Report { token, first: said as u32, receivers, tree: Vec::new() };
        let bytes = voice.message(Body::Report(report));
        voice.say(parent, &bytes);
    }
}

/// Asks the source for a place among its children.
fn ask_for_a_place(voice: &mut Voice, nonce: u64) {
    let request = JoinRequest {
        nonce,
        hop_limit: HOPS,
        hops: 1,
        role: Role::Member,
        standing: Standing { epoch: 0, depth: 0 },
        name: "stranger".to_owned(),
        parent: None,
        by_unicast: false,
    };
    let bytes = voice.message(Body::JoinRequest(request));
    voice.say(voice.mark.source, &bytes);
}

/// Becomes the source's child, and has something else of what it lacks in each acknowledgement
/// (H1).
pub(crate) fn waverer() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    let (mut place, mut round) = (None, 0);
    move |voice, heard| {
        for one in heard.iter().filter(|one| one.to_me) {
            match one.message().map(|message| message.body) {
                Some(Body::JoinConfirm(confirm)) => place = Some((one.from, confirm.token)),
                Some(Body::Dismiss { .. }) => place = None,
                _ => {}
            }
        }
        if !turns.seldom() {
            return;
        }
        let Some((parent, token)) = place else { return ask_for_a_place(voice, turns.0) };
        round += 1;
        let run = BlockRun { first: 2, count: 1 };
        let beyond = vec![AckRun { run, lacks: if round % 2 == 0 { 0 } else { 3 } }];
        let ack = Ack {
            token,
            round,
            below: 1,
            known: 4,
            beyond,
            received: 0,
            lost: 0,
            full: false,
            totals: Totals { members: 1, ..Totals::default() },
            echo: None,
        };
        let bytes = voice.message(Body::Ack(ack));
        voice.say(parent, &bytes);
    }
}

/// Asks in others' names for all blocks, so that nobody who lacks them asks any more (H7).
pub(crate) fn asker() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    move |voice, heard| {
        lure(voice, heard);
        let Some(parent) = voice.source_id.filter(|_| turns.seldom()) else { return };
        let run = BlockRun { first: (turns.0 / SELDOM % 8) as u32 * 8, count: 8 };
        let runs = vec![NackRun { run, need: Need::Whole }];
        let nack = Nack { parent, hop_limit: HOPS, runs };
        let bytes = voice.message(Body::Nack(nack));
        voice.say_to_all(&bytes);
    }
}

/// Sends symbols with a wrong content of each item whose packets it hears on a repository's
/// channel, under its own address or the server's (R7).
pub(crate) fn false_items(forged: bool) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut last: Option<(DataHeader, usize)> = None;
    let mut turns = Turns::default();
    move |voice, heard| {
        let packets = heard.iter().filter_map(|one| DataPacket::parse(&one.bytes).ok());
        let fresh = packets.map(|packet| (packet.header, packet.symbol.len())).next_back();
        last = fresh.or(last);
        let Some((header, len)) = last else { return };
        let turn = turns.next() as u32;
        let (sbn, esi) = (header.sbn.saturating_add(turn % 4), turn / 4 % 128);
        let Ok(head) = (DataHeader { sbn, esi, ..header }).emit() else { return };
        let packet = [&head[..], &vec![turn as u8; len]].concat();
        let Mark { source, domain, .. } = voice.mark;
        if forged { voice.say_as(source, domain, &packet) } else { voice.say(domain, &packet) }
    }
}

/// Sends repair symbols with a wrong content, under the server's address and under numbers that the
/// server does not use, of each item whose packets it hears: in the place of the packet, or of a
/// transmission so much later (R7).
pub(crate) fn false_repairs(later: u32) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut last: Option<(DataHeader, usize)> = None;
    let mut turns = Turns::default();
    move |voice, heard| {
        let packets = heard.iter().filter_map(|one| DataPacket::parse(&one.bytes).ok());
        let fresh = packets.map(|packet| (packet.header, packet.symbol.len())).next_back();
        last = fresh.or(last);
        let Some((header, len)) = last else { return };
        let turn = turns.next() as u32;
        let (sbn, esi) = (header.sbn.saturating_add(turn % 4), 160 + turn / 4 % 95);
        let transmission = header.transmission.wrapping_add(later);
        let Ok(head) = (DataHeader { sbn, esi, transmission, ..header }).emit() else { return };
        let packet = [&head[..], &vec![turn as u8; len]].concat();
        voice.say_as(voice.mark.source, voice.mark.domain, &packet);
    }
}

/// Asks for a place and for all blocks, under its own address, and says again to all what the group
/// heard. Counts the datagrams that come back (H5).
pub(crate) fn beggar(answers: Arc<AtomicU64>) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    let mut cookie = 0;
    let mut again = echo();
    move |voice, heard| {
        let answered = heard.iter().filter(|one| one.to_me);
        for message in answered.clone().filter_map(Heard::message) {
            if let Body::FetchCookie { cookie: given, .. } = message.body {
                cookie = given;
            }
        }
        answers.fetch_add(answered.count() as u64, Ordering::Relaxed);
        again(voice, heard);
        lure(voice, heard);
        if turns.seldom() {
            ask_for_a_place(voice, turns.0);
            let runs = vec![BlockRun { first: 0, count: 4 }];
            let (alone, portion) = (Vec::new(), Portion::default());
            let fetch = Body::Fetch { nonce: turns.0, cookie, runs, alone, portion };
            let bytes = voice.message(fetch);
            voice.say(voice.mark.source, &bytes);
        }
    }
}

/// Repeats the managers' and the source's beacons as its own. Carries what it then hears between
/// those who believe that and the source (H5).
pub(crate) fn relay() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    let mut children = VecDeque::new();
    let mut beacons = VecDeque::new();
    move |voice, heard| {
        for one in heard {
            if one.to_me && one.from != voice.mark.source {
                children.push_back(one.from);
                voice.say(voice.mark.source, &one.bytes);
            } else if one.to_me {
                for child in children.clone() {
                    voice.say(child, &one.bytes);
                }
            } else if let Some(Body::Beacon(_)) = one.message().map(|message| message.body) {
                beacons.push_back(one.bytes.clone());
            }
        }
        while children.len() > 8 {
            children.pop_front();
        }
        while beacons.len() > 64 {
            beacons.pop_front();
        }
        if turns.next().is_multiple_of(5)
            && let Some(bytes) = beacons.back().cloned()
        {
            voice.say_to_all(&bytes);
        }
        lure(voice, heard);
    }
}

/// A datagram that was seen on a link, and between which addresses.
pub(crate) type Sniffed = (SocketAddr, SocketAddr, Vec<u8>);

/// Repeats what it sees on all links, as it was and altered (H5). It sends under its own address
/// and the sender's, to the same receiver and to others.
pub(crate) fn sniffer(seen: Receiver<Sniffed>) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut turns = Turns::default();
    let mut past: VecDeque<Sniffed> = VecDeque::new();
    move |voice, _| {
        past.extend(seen.try_iter().filter(|(.., bytes)| bytes.starts_with(&MAGIC)));
        while past.len() > 4_096 {
            past.pop_front();
        }
        let turn = turns.next() as usize;
        let Some((from, to, bytes)) = past.get((turn * 7_919) % past.len().max(1)) else { return };
        let (from, mut to, mut bytes) = (*from, *to, bytes.clone());
        if turn.is_multiple_of(5) {
            let at = turn % bytes.len();
            bytes[at] ^= 1;
        }
        if turn.is_multiple_of(3) && !to.ip().is_multicast() {
            let others: Vec<SocketAddr> = voice.neighbours.iter().copied().collect();
            to = others[turn % others.len()];
        }
        if turn.is_multiple_of(2) { voice.say_as(from, to, &bytes) } else { voice.say(to, &bytes) }
    }
}

/// Returns the stamp of a datagram, as it fits another message as little, but is new.
fn forged_stamp(datagram: &[u8]) -> Vec<u8> {
    let message = without_stamp(datagram);
    let mut stamp = Vec::new();
    match SignedStamp::split(datagram) {
        Some((_, signed)) => {
            SignedStamp { number: signed.number + (1 << 20), ..signed }.emit(&mut stamp);
        }
        None => stamp.extend_from_slice(&datagram[message.len()..]),
    }
    stamp
}

/// Speaks for the nodes that it sees on the links: answers with the numbers of their requests, and
/// parts them with their tokens. It adds the stamps that it saw of whom it speaks for (H7).
pub(crate) fn impostor(seen: Receiver<Sniffed>) -> impl FnMut(&mut Voice, &[Heard]) + Send {
    // Number and last stamp of the node at each address.
    let mut nodes: BTreeMap<SocketAddr, (NodeId, Vec<u8>)> = BTreeMap::new();
    move |voice, _| {
        // One at a time, the latest: each costs an answer.
        for (from, to, bytes) in seen.try_iter().take(64) {
            let Some(message) = message_of(&bytes) else { continue };
            let there = message.sender;
            let stamp = forged_stamp(&bytes);
            nodes.insert(from, (there, stamp.clone()));
            let source = voice.source_id.unwrap_or(NodeId(2));
            let (here, theirs) = nodes.get(&to).cloned().unwrap_or((source, Vec::new()));
            let runs = vec![BlockRun { first: 0, count: BLOCKS }];
            // In the name of the receiver of this message, to its sender; or in its sender's.
            let (back, forth) = match message.body {
                Body::Fetch { nonce, .. } => (
                    vec![Body::FetchCookie { nonce, cookie: 7 }, Body::FetchGone { nonce, runs }],
                    vec![],
                ),
                Body::JoinRequest(request) => (
                    vec![Body::JoinRefused { nonce: request.nonce, reason: Refusal::Leaving }],
                    vec![],
                ),
                Body::Ack(Ack { token, .. }) => (
                    vec![
                        Body::Dismiss { token, reason: Dismissal::Slow },
                        Body::FindNewParent { token, nonce: 1 },
                        Body::ReportAck { token, before: 1 },
                    ],
                    vec![Body::LeaveTree { token, nonce: 1 }],
                ),
                Body::Heartbeat(heartbeat) => {
                    let beacon = Beacon { closing: true, ..heartbeat.beacon.clone() };
                    (vec![], vec![Body::Heartbeat(Box::new(Heartbeat { beacon, ..*heartbeat }))])
                }
                Body::Nack(nack) => {
                    let run = BlockRun { first: 0, count: BLOCKS };
                    let runs = vec![NackRun { run, need: Need::Whole }];
                    (vec![], vec![Body::Nack(Nack { runs, ..nack })])
                }
                _ => continue,
            };
            for body in back {
                let bytes = voice.mark.message(here, body);
                voice.say_as(to, from, &[&bytes[..], &theirs].concat());
            }
            for body in forth {
                let bytes = voice.mark.message(there, body);
                voice.say_as(from, to, &[&bytes[..], &stamp].concat());
            }
        }
    }
}

/// Repeats what it has heard, a while later and in another order.
pub(crate) fn echo() -> impl FnMut(&mut Voice, &[Heard]) + Send {
    let mut past = VecDeque::new();
    let mut turns = Turns::default();
    move |voice, heard| {
        past.extend(heard.iter().filter(|one| !one.to_me).map(|one| one.bytes.clone()));
        past.truncate(4_096);
        let turn = turns.next() as usize;
        if let Some(bytes) = past.get((turn * 7_919) % past.len().max(1)) {
            let bytes = bytes.clone();
            voice.say_to_all(&bytes);
            voice.say(DIRECTORY, &bytes);
        }
    }
}

/// Offers itself as the parent of everyone who searches for one.
fn lure(voice: &mut Voice, heard: &[Heard]) {
    for one in heard {
        let Some(Body::Search(search)) = one.message().map(|message| message.body) else {
            continue;
        };
        let mut to = one.from;
        to.set_port(search.port);
        let willing = Willing {
            nonce: search.nonce,
            hop_limit: HOPS,
            role: Role::Manager,
            children: 0,
            standing: standing(voice),
        };
        let bytes = voice.message(Body::Willing(willing));
        voice.say(to, &bytes);
    }
}

/// Returns the requests for a place, and who has sent them.
fn requests(heard: &[Heard]) -> Vec<(std::net::SocketAddr, JoinRequest)> {
    let mine = heard.iter().filter(|one| one.to_me);
    let requests = mine.filter_map(|one| match one.message()?.body {
        Body::JoinRequest(request) => Some((one.from, request)),
        _ => None,
    });
    requests.collect()
}

/// Returns the stranger's alleged place: below the source.
fn standing(voice: &Voice) -> Standing {
    Standing { epoch: voice.epoch, depth: 1 }
}

/// Returns a beacon of the stranger.
fn beacon(voice: &Voice, role: Role) -> Beacon {
    let source = voice.source_id.unwrap_or(NodeId(2));
    let manager = role == Role::Manager;
    Beacon {
        hop_limit: HOPS,
        port: voice.address().port(),
        role,
        radius: 1,
        stamp_ns: 0,
        standing: Standing { depth: u16::from(manager), ..standing(voice) },
        path: if manager { vec![source, voice.me] } else { vec![voice.me] },
        children: 0,
        timing: Timing {
            t_ack: Duration::from_millis(50),
            intervals: 4,
            rtt: Duration::from_millis(1),
        },
        progress: Progress::default(),
        closing: false,
        watched: false,
    }
}
