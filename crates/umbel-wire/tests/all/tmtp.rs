//! Emitting and parsing a message of TMTP returns the same message, and no input makes the parser
//! panic.

use std::net::SocketAddr;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;
use umbel_wire::reception::{ChannelStamp, ReceptionReport, ReportSchedule};
use umbel_wire::repository::{SymbolDigest, SymbolKey};
use umbel_wire::tmtp::{
    Ack, AckRun, Beacon, BlockRun, Body, Dismissal, Echo, End, EsiSet, FeedInfo, Heartbeat,
    JoinConfirm, JoinRequest, Manifest, Message, MessageType, Nack, NackRun, Need, NodeId, Portion,
    Progress, ReceiverReport, ReceiverState, Refusal, Report, Role, Search, Standing, Timing,
    Totals, TreeEntry, TreePage, Willing, limits,
};
use umbel_wire::{Digest, Parsed, SmallBlockHeader, SmallBlockPacket, Toi, Tsi};

use crate::checks;
use crate::frames::{cut_and_altered, with_unknown_field};
use crate::strategies::{receptions, schedules};

fn bytes(message: &Message) -> Vec<u8> {
    let mut bytes = Vec::new();
    message.emit(&mut bytes);
    bytes
}

fn numbers() -> impl Strategy<Value = u32> {
    prop_oneof![0_u32..1000, any::<u32>()]
}

fn nodes() -> impl Strategy<Value = NodeId> {
    any::<u64>().prop_map(NodeId)
}

fn durations() -> impl Strategy<Value = Duration> {
    (0..=limits::DURATION.as_nanos() as u64).prop_map(Duration::from_nanos)
}

fn texts(most: usize) -> impl Strategy<Value = String> {
    vec(proptest::char::range('a', 'z'), 0..=most).prop_map(|chars| chars.into_iter().collect())
}

fn addresses() -> impl Strategy<Value = SocketAddr> {
    (any::<bool>(), 1_u16..).prop_map(|(ipv6, port)| {
        let ip = if ipv6 { "2001:db8::7" } else { "192.0.2.7" };
        SocketAddr::new(ip.parse().unwrap(), port)
    })
}

fn standings() -> impl Strategy<Value = Standing> {
    (any::<u64>(), 0..=limits::PATH as u16).prop_map(|(epoch, depth)| Standing { epoch, depth })
}

fn progress() -> impl Strategy<Value = Progress> {
    let end = (numbers(), option::of(texts(limits::REASON_LEN)))
        .prop_map(|(blocks, failed)| End { blocks, failed });
    (numbers(), numbers(), option::of(end)).prop_map(|(a, b, end)| Progress {
        sent: a.max(b),
        lowest: a.min(b),
        end,
    })
}

fn timings() -> impl Strategy<Value = Timing> {
    (durations(), 2_u8.., durations()).prop_map(|(t_ack, intervals, rtt)| Timing {
        t_ack: t_ack.max(Duration::from_nanos(1)),
        intervals,
        rtt,
    })
}

prop_compose! {
    fn feeds()(
        source in nodes(),
        address in addresses(),
        symbol_len in 1_u16..,
        block_symbols in 1_u8..,
        fec: bool,
        manifest in option::of((1_u32.., any::<u64>(), any::<[u8; 32]>())),
    ) -> FeedInfo {
        let manifest = manifest.map(|(blocks, len, digest)| Manifest {
            blocks, len, digest: Digest(digest),
        });
        FeedInfo { source, address, symbol_len, block_symbols, fec, manifest }
    }
}

prop_compose! {
    /// Generates a beacon without a path.
    fn detached()(
        (hop_limit, radius, port) in (1_u8.., 1_u8.., 1_u16..),
        source: bool,
        (stamp_ns, epoch) in any::<(u64, u64)>(),
        children: u16,
        timing in timings(),
        progress in progress(),
        (closing, watched) in any::<(bool, bool)>(),
    ) -> Beacon {
        Beacon {
            hop_limit,
            port,
            role: if source { Role::Source } else { Role::Manager },
            radius,
            stamp_ns,
            standing: Standing { epoch, depth: 0 },
            path: Vec::new(),
            children,
            timing,
            progress,
            closing,
            watched,
        }
    }
}

/// Returns the beacon of a node at this depth, and its sender.
fn attached(beacon: Beacon, first: u64, depth: u16) -> (Beacon, NodeId) {
    let path: Vec<NodeId> = (0..=depth).map(|i| NodeId(first.wrapping_add(i.into()))).collect();
    let sender = path[usize::from(depth)];
    (Beacon { standing: Standing { depth, ..beacon.standing }, path, ..beacon }, sender)
}

/// Generates ascending runs from a random block on; neighbours may touch.
fn runs(most: usize, longest: u32) -> impl Strategy<Value = Vec<BlockRun>> {
    (0_u32..1 << 30, vec((0_u32..1 << 20, 1..=longest), 1..=most)).prop_map(|(start, steps)| {
        let mut end = start;
        let run = |(gap, count)| {
            let first = end + gap;
            end = first + count;
            BlockRun { first, count }
        };
        steps.into_iter().map(run).collect()
    })
}

fn needs() -> impl Strategy<Value = Need> {
    prop_oneof![
        Just(Need::Whole),
        (1_u8..255).prop_map(Need::Count),
        vec(0_u32..255, 1..20).prop_map(|esis| Need::Exact(esis.into_iter().collect())),
    ]
}

fn totals() -> impl Strategy<Value = Totals> {
    (numbers(), any::<(u32, u32)>(), numbers(), 0..=limits::PATH as u8).prop_map(
        |(members, (a, b), below, height)| {
            let done = a % members.saturating_add(1).max(1);
            let failed = b % (members - done).saturating_add(1).max(1);
            Totals { members, done, failed, below, height }
        },
    )
}

fn roles() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Member), Just(Role::Manager), Just(Role::Source)]
}

fn children() -> impl Strategy<Value = Role> {
    prop_oneof![Just(Role::Member), Just(Role::Manager)]
}

prop_compose! {
    fn entries()(
        node in nodes(),
        parent in option::of(nodes()),
        address in addresses(),
        name in texts(limits::NAME_LEN),
        role in roles(),
        depth in 0..=limits::PATH as u16,
        (hops, radius, children) in any::<(u8, u8, u16)>(),
        (members, load_per_ks) in (numbers(), numbers()),
        loss_ppm in 0_u32..=1_000_000,
    ) -> TreeEntry {
        TreeEntry {
            node, parent, address, name, role, depth, hops, radius, members, children, loss_ppm,
            load_per_ks,
        }
    }
}

fn receivers() -> impl Strategy<Value = ReceiverReport> {
    let state = prop_oneof![
        Just(ReceiverState::Receiving),
        Just(ReceiverState::Done),
        texts(limits::REASON_LEN).prop_map(ReceiverState::Failed),
        Just(ReceiverState::Left),
    ];
    let receipt = option::of(any::<[u8; 32]>());
    (nodes(), texts(limits::NAME_LEN), numbers(), state, receipt).prop_map(
        |(node, name, held, state, receipt)| {
            let receipt = receipt.filter(|_| state == ReceiverState::Done).map(Digest);
            ReceiverReport { node, name, held, state, receipt }
        },
    )
}

prop_compose! {
    fn acks()(
        (token, round) in any::<(u64, u32)>(),
        below in numbers(),
        beyond in option::of(runs(limits::ACK_RUNS, 1000)),
        lacks: u8,
        (received, lost, full) in any::<(u32, u32, bool)>(),
        totals in totals(),
        echo in option::of((any::<u64>(), durations())),
    ) -> Ack {
        let beyond = beyond.unwrap_or_default();
        let below = below.min(beyond.first().map_or(u32::MAX, |run| run.first));
        let known = beyond.last().map_or(below, |run| run.end());
        Ack {
            token, round, below, known, received, lost, full, totals,
            beyond: beyond.into_iter().map(|run| AckRun { run, lacks }).collect(),
            echo: echo.map(|(stamp_ns, held)| Echo { stamp_ns, held }),
        }
    }
}

fn joining() -> impl Strategy<Value = Body> {
    prop_oneof![
        (any::<u64>(), 1_u8.., 1_u16.., children(), any::<Option<u16>>()).prop_map(
            |(nonce, hop_limit, port, role, less_deep_than)| {
                Body::Search(Search { nonce, hop_limit, port, role, less_deep_than })
            }
        ),
        (any::<(u64, bool, u16)>(), 1_u8.., standings()).prop_map(
            |((nonce, source, children), hop_limit, standing)| {
                let role = if source { Role::Source } else { Role::Manager };
                Body::Willing(Willing { nonce, hop_limit, role, children, standing })
            }
        ),
        (
            (any::<(u64, Option<u64>, bool)>(), 1_u8.., 1_u8..),
            children(),
            standings(),
            texts(limits::NAME_LEN),
        )
            .prop_map(
                |(((nonce, parent, by_unicast), hop_limit, hops), role, standing, name)| {
                    Body::JoinRequest(JoinRequest {
                        nonce,
                        hop_limit,
                        hops,
                        role,
                        standing,
                        name,
                        parent: parent.map(NodeId),
                        by_unicast,
                    })
                }
            ),
        any::<(u64, u64)>().prop_map(|(nonce, challenge)| Body::JoinChallenge { nonce, challenge }),
        any::<(u64, [u8; 16])>().prop_map(|(nonce, hint)| Body::KeyRequest { nonce, hint }),
        (any::<u64>(), prop::array::uniform(any::<u8>()))
            .prop_map(|(nonce, sealed)| Body::KeyAnswer { nonce, sealed }),
        (any::<u64>(), 0..6_usize).prop_map(|(nonce, reason)| {
            let reason = [
                Refusal::Full,
                Refusal::Detached,
                Refusal::Loop,
                Refusal::NotAdmitted,
                Refusal::TooFar,
                Refusal::Leaving,
            ][reason];
            Body::JoinRefused { nonce, reason }
        }),
        detached().prop_map(Body::Beacon),
        (any::<(u64, u64)>(), 0..6_usize).prop_map(|((token, nonce), which)| match which {
            0 => Body::LeaveTree { token, nonce },
            1 => Body::LeaveConfirm { nonce },
            2 => Body::FindNewParent { token, nonce },
            3 => Body::FindNewParentReply { token, nonce },
            4 => Body::Dismiss { token, reason: Dismissal::Slow },
            _ => Body::Dismiss { token, reason: Dismissal::Demoted },
        }),
    ]
}

fn portions() -> impl Strategy<Value = Portion> {
    let payload = proptest::option::of(limits::SHORTEST_PAYLOAD..);
    (proptest::option::of(1_u8..), payload)
        .prop_map(|(symbols, payload)| Portion { symbols, payload })
}

fn delivery() -> impl Strategy<Value = Body> {
    let nack_runs = (runs(limits::NACK_RUNS, 64), vec(needs(), limits::NACK_RUNS));
    prop_oneof![
        acks().prop_map(Body::Ack),
        (nodes(), 1_u8.., nack_runs).prop_map(|(parent, hop_limit, (runs, needs))| {
            let runs = runs.into_iter().zip(needs).map(|(run, need)| NackRun { run, need });
            Body::Nack(Nack { parent, hop_limit, runs: runs.collect() })
        }),
        (any::<(u64, u64)>(), runs(limits::FETCH_RUNS, 100_000), any::<bool>(), portions())
            .prop_map(|((nonce, cookie), runs, alone, portion)| {
                let alone = if alone { runs.clone() } else { Vec::new() };
                Body::Fetch { nonce, cookie, runs, alone, portion }
            }),
        any::<(u64, u64)>().prop_map(|(nonce, cookie)| Body::FetchCookie { nonce, cookie }),
        any::<(u64, u64, [u8; 32], u32)>().prop_map(|(nonce, cookie, key, block)| {
            Body::FetchDigests { nonce, cookie, key: SymbolKey(key), block }
        }),
        (any::<u64>(), 1_u8.., 0..=127_u8, vec(any::<[u8; 8]>(), 1..=limits::SYMBOL_DIGESTS))
            .prop_map(|(nonce, symbols, first, digests)| {
                let digests = digests.into_iter().map(SymbolDigest).collect();
                Body::SymbolDigests { nonce, symbols, first, digests }
            }),
        (
            any::<([u8; 32], u32)>(),
            1_u8..,
            0..=127_u8,
            vec(any::<[u8; 8]>(), 1..=limits::SYMBOL_DIGESTS)
        )
            .prop_map(|((key, block), symbols, first, digests)| {
                let (key, digests) =
                    (SymbolKey(key), digests.into_iter().map(SymbolDigest).collect());
                Body::BlockDigests { key, block, symbols, first, digests }
            }),
        (any::<(u64, u64)>(), receptions())
            .prop_map(|((nonce, cookie), report)| { Body::Reception { nonce, cookie, report } }),
        (any::<(u64, u64)>(), schedules())
            .prop_map(|((nonce, cookie), schedule)| { Body::Reports { nonce, cookie, schedule } }),
        (any::<u64>(), runs(limits::FETCH_RUNS, 100_000))
            .prop_map(|(nonce, runs)| Body::FetchGone { nonce, runs }),
        (
            any::<(u64, u32)>(),
            vec(receivers(), 0..=limits::REPORTS),
            vec(entries(), 0..=limits::TREE_ENTRIES),
        )
            .prop_map(|((token, first), receivers, tree)| {
                Body::Report(Report { token, first, receivers, tree })
            }),
        any::<(u64, u32)>().prop_map(|(token, before)| Body::ReportAck { token, before }),
        (any::<(u64, u64)>(), option::of(nodes()))
            .prop_map(|((nonce, cookie), after)| Body::TreeQuery { nonce, cookie, after }),
        (any::<(u64, u64, bool)>(), totals(), vec(entries(), 0..=limits::TREE_ENTRIES)).prop_map(
            |((nonce, cookie, more), totals, entries)| {
                Body::TreePage(TreePage { nonce, cookie, totals, entries, more })
            }
        ),
    ]
}

fn messages() -> impl Strategy<Value = Message> {
    let feed = || any::<u32>().prop_map(Tsi);
    prop_oneof![
        3 => (feed(), nodes(), joining())
            .prop_map(|(feed, sender, body)| Message { feed, sender, body }),
        3 => (feed(), nodes(), delivery())
            .prop_map(|(feed, sender, body)| Message { feed, sender, body }),
        1 => (feed(), any::<(u64, u64, u64, u32)>(), 0..limits::PATH as u16, feeds(), detached())
            .prop_map(|(feed, (first, nonce, token, from), depth, info, beacon)| {
                let (beacon, sender) = attached(beacon, first, depth);
                let info = FeedInfo { source: beacon.path[0], ..info };
                let confirm = JoinConfirm { nonce, token, from, feed: info, beacon };
                Message { feed, sender, body: Body::JoinConfirm(Box::new(confirm)) }
            }),
        1 => (feed(), feeds(), detached(), any::<Option<[u8; 32]>>()).prop_map(|(feed, info, beacon, last_word)| {
            let (beacon, sender) = attached(beacon, info.source.0, 0);
            let beacon = Beacon { role: Role::Source, ..beacon };
            let heartbeat = Heartbeat { feed: info, beacon, last_word };
            Message { feed, sender, body: Body::Heartbeat(Box::new(heartbeat)) }
        }),
    ]
}

proptest! {
    #[test]
    fn messages_come_back(message in messages()) {
        let frame = bytes(&message);
        prop_assert_eq!(MessageType::of(&frame), Some(message.body.message_type()));
        let parsed = Message::parse(&frame);
        prop_assert_eq!(parsed, Ok(Parsed::Message { message: message.clone(), skipped: 0 }));
        for cut in (0..frame.len()).take(300) {
            prop_assert!(Message::parse(&frame[..cut]).is_err());
        }
        let newer = with_unknown_field(frame, 0xFF00);
        prop_assert_eq!(Message::parse(&newer), Ok(Parsed::Message { message, skipped: 1 }));
    }

    #[test]
    fn a_cut_or_altered_body_never_panics_and_what_it_means_comes_back(
        message in messages(),
        cut in any::<Index>(),
        changes in vec((any::<Index>(), any::<u8>()), 0..4),
    ) {
        checks::tmtp_message(&cut_and_altered(bytes(&message), cut, &changes));
    }

    #[test]
    fn data_packets_come_back(
        (tsi, transmission, index, sbn) in any::<(u32, u32, u32, u32)>(),
        (block_symbols, esi) in (1_u8.., 0_u8..255),
        stamp in option::of(any::<(u32, u64, u8)>()),
        symbol in vec(any::<u8>(), 0..100),
    ) {
        let header = SmallBlockHeader {
            tsi: Tsi(tsi), toi: Toi(1), transmission, index, sbn, block_symbols, esi,
            stamp: stamp.map(|(number, us, place)| ChannelStamp::new(number, us, place)),
        };
        let mut packet = vec![0; SmallBlockHeader::STAMPED_LEN];
        let len = header.emit(&mut packet).unwrap();
        packet.truncate(len);
        packet.extend_from_slice(&symbol);
        prop_assert!(SmallBlockPacket::is_one(&packet));
        let parsed = SmallBlockPacket::parse(&packet);
        prop_assert_eq!(parsed, Ok(SmallBlockPacket { header, symbol: &symbol }));
    }

    #[test]
    fn no_bytes_make_the_parsers_panic(bytes in vec(any::<u8>(), 0..200)) {
        let _ = (Message::parse(&bytes), SmallBlockPacket::parse(&bytes), MessageType::of(&bytes));
    }

    /// The model is a set of numbers.
    #[test]
    fn a_set_of_symbols_keeps_what_is_put_into_it(
        a in vec(0_u32..300, 0..40),
        b in vec(0_u32..300, 0..40),
    ) {
        use std::collections::BTreeSet;
        let set = |esis: &[u32]| esis.iter().copied().filter(|&e| e < 255).collect::<BTreeSet<_>>();
        let (x, y): (EsiSet, EsiSet) = (a.iter().copied().collect(), b.iter().copied().collect());
        let all = |esis: EsiSet| esis.iter().collect::<BTreeSet<u32>>();
        prop_assert_eq!(all(x), set(&a));
        prop_assert_eq!(all(x.union(y)), &set(&a) | &set(&b));
        prop_assert_eq!(all(x.minus(y)), &set(&a) - &set(&b));
        prop_assert_eq!(x.len() as usize, set(&a).len());
        prop_assert_eq!(x.lowest(), set(&a).first().copied());
        prop_assert_eq!(x.is_empty(), set(&a).is_empty());
    }
}

fn message(body: Body) -> Message {
    Message { feed: Tsi(1), sender: NodeId(2), body }
}

#[track_caller]
fn refused(body: Body, what: &str) {
    let error = Message::parse(&bytes(&message(body))).unwrap_err();
    assert!(matches!(error, umbel_wire::ParseError::Value { what: w, .. } if w == what), "{error}");
}

fn beacon() -> Beacon {
    Beacon {
        hop_limit: 3,
        port: 7703,
        role: Role::Manager,
        radius: 2,
        stamp_ns: 1,
        standing: Standing { epoch: 1, depth: 1 },
        path: vec![NodeId(1), NodeId(2)],
        children: 0,
        timing: Timing { t_ack: Duration::from_secs(1), intervals: 3, rtt: Duration::ZERO },
        progress: Progress { sent: 5, lowest: 2, end: None },
        closing: false,
        watched: false,
    }
}

#[test]
fn beacons_that_cannot_be_are_refused() {
    let timing = |t_ack, intervals| Timing { t_ack, intervals, ..beacon().timing };
    let at = |path: Vec<NodeId>, depth| Beacon {
        path,
        standing: Standing { epoch: 1, depth },
        ..beacon()
    };
    let long: Vec<NodeId> = (3..=limits::PATH as u64 + 2).chain([2]).map(NodeId).collect();
    for bad in [
        Beacon { hop_limit: 0, ..beacon() },
        Beacon { radius: 0, ..beacon() },
        Beacon { port: 0, ..beacon() },
        Beacon { role: Role::Member, ..beacon() },
        Beacon { timing: timing(Duration::ZERO, 3), ..beacon() },
        Beacon { timing: timing(Duration::from_secs(1), 1), ..beacon() },
        Beacon { timing: timing(Duration::from_hours(25), 3), ..beacon() },
        Beacon { progress: Progress { sent: 0, lowest: 1, end: None }, ..beacon() },
        at(vec![NodeId(1), NodeId(3)], 1),
        at(vec![NodeId(2), NodeId(1), NodeId(2)], 2),
        at(vec![NodeId(1), NodeId(2)], 2),
        at(Vec::new(), 1),
        at(long, limits::PATH as u16),
    ] {
        refused(Body::Beacon(bad), "beacon");
    }
}

#[test]
fn digests_of_no_symbols_or_of_too_many_are_refused() {
    let (nonce, key, block) = (1, SymbolKey([5; 32]), 3);
    for (symbols, first, count) in [(0, 0, 1), (1, 0, 0), (1, 0, 129), (1, 250, 6)] {
        let digests = vec![SymbolDigest([7; 8]); count];
        let told = Body::BlockDigests { key, block, symbols, first, digests: digests.clone() };
        refused(told, "digests of symbols");
        refused(Body::SymbolDigests { nonce, symbols, first, digests }, "digests of symbols");
    }
}

#[test]
fn a_portion_of_nothing_is_refused() {
    let fetch = |symbols, payload| {
        let (runs, alone) = (vec![BlockRun { first: 0, count: 1 }], Vec::new());
        Body::Fetch { nonce: 0, cookie: 0, runs, alone, portion: Portion { symbols, payload } }
    };
    refused(fetch(Some(0), None), "symbols of a block");
    refused(fetch(None, Some(limits::SHORTEST_PAYLOAD - 1)), "longest payload");
}

#[test]
fn runs_that_are_empty_too_many_or_too_long_are_refused() {
    let run = |first, count| BlockRun { first, count };
    let many = (0..=limits::FETCH_RUNS as u32).map(|i| run(2 * i, 1)).collect();
    for runs in [vec![], many, vec![run(u32::MAX, 2)], vec![run(5, 1), run(3, 1)], vec![run(1, 0)]]
    {
        let alone = if runs.is_empty() { Vec::new() } else { vec![run(1, 1)] };
        let fetch = |runs, alone| {
            let portion = Portion::default();
            Body::Fetch { nonce: 0, cookie: 0, runs, alone, portion }
        };
        refused(fetch(runs.clone(), alone), "blocks");
        if !runs.is_empty() {
            refused(fetch(vec![run(1, 1)], runs), "blocks by unicast");
        }
    }
    let need = |count| NackRun { run: run(0, count), need: Need::Whole };
    for runs in [vec![], vec![need(limits::NACK_BLOCKS + 1)]] {
        refused(Body::Nack(Nack { parent: NodeId(1), hop_limit: 1, runs }), "missing blocks");
    }
    let none = NackRun { run: run(0, 1), need: Need::Exact(EsiSet::default()) };
    let nack = Nack { parent: NodeId(1), hop_limit: 1, runs: vec![none] };
    refused(Body::Nack(nack), "missing blocks");
}

#[test]
fn totals_of_more_receivers_than_there_are_are_refused() {
    let totals = Totals { members: 5, done: 3, failed: 3, below: 0, height: 0 };
    let page = TreePage { nonce: 0, cookie: 0, totals, entries: Vec::new(), more: false };
    refused(Body::TreePage(page), "totals");
}

#[test]
fn a_heartbeat_of_another_than_the_source_is_refused() {
    let feed = FeedInfo {
        source: NodeId(1),
        address: ([192, 0, 2, 1], 7703).into(),
        symbol_len: 1,
        block_symbols: 1,
        fec: false,
        manifest: None,
    };
    let heartbeat = Heartbeat { feed, beacon: beacon(), last_word: None };
    refused(Body::Heartbeat(Box::new(heartbeat)), "beacon");
    let elsewhere = FeedInfo { source: NodeId(9), ..feed };
    let confirm = JoinConfirm { nonce: 0, token: 0, from: 0, feed: elsewhere, beacon: beacon() };
    refused(Body::JoinConfirm(Box::new(confirm)), "beacon");
}

#[test]
fn the_order_of_standings_is_strict() {
    let standing = |epoch, depth| Standing { epoch, depth };
    let all: Vec<Standing> =
        (0..4).flat_map(|epoch| (0..4).map(move |depth| standing(epoch, depth))).collect();
    for &a in &all {
        assert!(!a.may_be_above(a));
        assert!(a.may_be_above(a.below()), "a parent stands above its child");
        for &b in &all {
            assert!(a == b || a.may_be_above(b) != b.may_be_above(a));
            for &c in &all {
                assert!(!(a.may_be_above(b) && b.may_be_above(c)) || a.may_be_above(c));
            }
        }
    }
}

/// Who has not shown that it is where its address says draws no more bytes there than it sends.
#[test]
fn the_answer_to_a_report_without_a_cookie_is_shorter() {
    let len = |body| {
        let mut bytes = Vec::new();
        Message { feed: Tsi(7), sender: NodeId(u64::MAX), body }.emit(&mut bytes);
        bytes.len()
    };
    for nonce in [0, u64::MAX] {
        let report = ReceptionReport::default();
        let question = len(Body::Reception { nonce, cookie: 0, report });
        let schedule = ReportSchedule::START;
        let answer = len(Body::Reports { nonce, cookie: u64::MAX, schedule });
        assert!(answer <= question, "{answer}, {question}");
    }
}
