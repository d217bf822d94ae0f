//! Seeds for TMTP: a message of each kind, and a data packet.

use std::time::Duration;

use umbel_wire::reception::ReportSchedule;
use umbel_wire::repository::{SymbolDigest, SymbolKey};
use umbel_wire::tmtp::{
    Ack, AckRun, Beacon, BlockRun, Body, Dismissal, Echo, End, FeedInfo, Heartbeat, JoinConfirm,
    JoinRequest, Manifest, Message, Nack, NackRun, Need, NodeId, Portion, Progress, ReceiverReport,
    ReceiverState, Refusal, Report, Role, Search, Standing, Timing, Totals, TreeEntry, TreePage,
    Willing,
};
use umbel_wire::{Digest, SmallBlockHeader, Toi, Tsi};

fn beacon(path: Vec<NodeId>) -> Beacon {
    Beacon {
        hop_limit: 3,
        port: 7703,
        role: if path.len() == 1 { Role::Source } else { Role::Manager },
        radius: 2,
        stamp_ns: 1_000_000,
        standing: Standing { epoch: 5, depth: path.len() as u16 - 1 },
        path,
        children: 2,
        timing: Timing {
            t_ack: Duration::from_millis(100),
            intervals: 3,
            rtt: Duration::from_millis(20),
        },
        progress: Progress {
            sent: 300,
            lowest: 7,
            end: Some(End { blocks: 301, failed: Some("broken pipe".into()) }),
        },
        closing: false,
        watched: true,
    }
}

pub(super) fn messages() -> Vec<(&'static str, Vec<u8>)> {
    use Body as B;
    let (source, manager) = (NodeId(7), NodeId(u64::MAX));
    let address = "192.0.2.2:7703".parse().unwrap();
    let (nonce, token, hop_limit) = (300, 70_000, 64);
    let manifest = Manifest { blocks: 1, len: 212, digest: Digest([3; 32]) };
    let manifest = Some(manifest);
    let feed =
        FeedInfo { source, address, symbol_len: 1376, block_symbols: 16, fec: true, manifest };
    let standing = Standing { epoch: 5, depth: 1 };
    let totals = Totals { members: 9, done: 3, failed: 1, below: 4, height: 1 };
    let run = |first, count| BlockRun { first, count };
    let entry = TreeEntry {
        node: manager,
        parent: Some(source),
        address,
        name: "b".into(),
        role: Role::Manager,
        depth: 1,
        hops: 3,
        radius: 1,
        members: 4,
        children: 0,
        loss_ppm: 10_000,
        load_per_ks: 12_000,
    };
    let needs = [Need::Whole, Need::Count(3), Need::Exact([0, 9, 254].into_iter().collect())];
    let runs = needs.iter().zip(1..).map(|(&need, i)| NackRun { run: run(10 * i, i), need });
    let state = ReceiverState::Failed("no space".into());
    let (name, receipt) = (String::from("b"), None);
    let receivers = vec![ReceiverReport { node: manager, name, held: 3, state, receipt }];
    let bodies = [
        (
            "search",
            B::Search(Search {
                nonce,
                hop_limit: 2,
                port: 7703,
                role: Role::Member,
                less_deep_than: None,
            }),
        ),
        (
            "willing",
            B::Willing(Willing { nonce, hop_limit, role: Role::Manager, children: 3, standing }),
        ),
        (
            "join_request",
            B::JoinRequest(JoinRequest {
                nonce,
                hop_limit,
                hops: 3,
                role: Role::Manager,
                standing,
                name: "b".into(),
                parent: Some(NodeId(2)),
                by_unicast: true,
            }),
        ),
        (
            "join_confirm",
            B::JoinConfirm(Box::new(JoinConfirm {
                nonce,
                token,
                from: 4,
                feed,
                beacon: beacon(vec![source, manager]),
            })),
        ),
        ("join_challenge", B::JoinChallenge { nonce, challenge: 77 }),
        ("key_request", B::KeyRequest { nonce, hint: [0xA5; 16] }),
        ("key_answer", B::KeyAnswer { nonce, sealed: [0x5A; 48] }),
        ("join_refused", B::JoinRefused { nonce, reason: Refusal::NotAdmitted }),
        ("beacon", B::Beacon(beacon(vec![source, NodeId(9), manager]))),
        (
            "ack",
            B::Ack(Ack {
                token,
                round: 1,
                below: 5,
                known: 300,
                beyond: vec![AckRun { run: run(7, 200), lacks: 0 }],
                received: 100,
                lost: 2,
                full: false,
                totals,
                echo: Some(Echo { stamp_ns: 1, held: Duration::from_millis(2) }),
            }),
        ),
        ("nack", B::Nack(Nack { parent: source, hop_limit: 3, runs: runs.collect() })),
        ("leave_tree", B::LeaveTree { token, nonce }),
        ("leave_confirm", B::LeaveConfirm { nonce }),
        ("find_new_parent", B::FindNewParent { token, nonce }),
        ("find_new_parent_reply", B::FindNewParentReply { token, nonce }),
        ("dismiss", B::Dismiss { token, reason: Dismissal::Slow }),
        (
            "fetch",
            B::Fetch {
                nonce: 7,
                cookie: 9,
                runs: vec![run(0, 1), run(3, 4)],
                alone: Vec::new(),
                portion: Portion { symbols: Some(3), payload: Some(1200) },
            },
        ),
        (
            "fetch_alone",
            B::Fetch {
                nonce: 7,
                cookie: 9,
                runs: vec![run(0, 1)],
                alone: vec![run(0, 1)],
                portion: Portion::default(),
            },
        ),
        ("fetch_cookie", B::FetchCookie { nonce: 7, cookie: 9 }),
        (
            "fetch_digests",
            B::FetchDigests { nonce: 7, cookie: 9, key: SymbolKey([5; 32]), block: 3 },
        ),
        (
            "symbol_digests",
            B::SymbolDigests {
                nonce: 7,
                symbols: 2,
                first: 1,
                digests: vec![SymbolDigest([6; 8])],
            },
        ),
        (
            "block_digests",
            B::BlockDigests {
                key: SymbolKey([5; 32]),
                block: 3,
                symbols: 2,
                first: 1,
                digests: vec![SymbolDigest([6; 8])],
            },
        ),
        ("reception", B::Reception { nonce, cookie: 9, report: super::reception() }),
        ("reports", B::Reports { nonce, cookie: 9, schedule: ReportSchedule::START }),
        ("fetch_gone", B::FetchGone { nonce: 7, runs: vec![run(1, 2)] }),
        ("report", B::Report(Report { token, first: 2, receivers, tree: vec![entry.clone()] })),
        ("report_ack", B::ReportAck { token, before: 3 }),
        ("tree_query", B::TreeQuery { nonce, cookie: 0, after: Some(source) }),
        (
            "tree_page",
            B::TreePage(TreePage { nonce, cookie: 9, totals, entries: vec![entry], more: true }),
        ),
    ];
    let emitted = |sender, body| {
        let mut out = Vec::new();
        Message { feed: Tsi(1), sender, body }.emit(&mut out);
        out
    };
    let mut seeds: Vec<_> =
        bodies.into_iter().map(|(name, body)| (name, emitted(manager, body))).collect();
    let heartbeat = Heartbeat { feed, beacon: beacon(vec![source]), last_word: None };
    seeds.push(("heartbeat", emitted(source, B::Heartbeat(Box::new(heartbeat)))));
    let header = SmallBlockHeader {
        tsi: Tsi(1),
        toi: Toi(1),
        transmission: 1,
        index: 2,
        stamp: None,
        sbn: 300,
        block_symbols: 16,
        esi: 17,
    };
    let mut packet = vec![0; SmallBlockHeader::LEN];
    header.emit(&mut packet).unwrap();
    packet.extend_from_slice(b"symbol");
    seeds.push(("data", packet));
    seeds
}
