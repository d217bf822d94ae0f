//! Costs of each recovery between real hosts: the table of docs/concepts/feeds.md, beside the one in
//! virtual time (`umbel-sim`, `recovery::tests::table`).
//!
//! `cargo test --release -p umbel --test second lab::recovery_costs:: -- --ignored --nocapture` prints it.

#![allow(clippy::print_stdout, reason = "it prints a table")]

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::feeds::{Feeds, Receiver};
use crate::support::process::Process;
use crate::support::routers::Routers;
use crate::support::tap::{Sight, Tap};
use crate::support::{files, group, lab};
use umbel_engine::Instant;
use umbel_lab::Topology;
use umbel_sim::recovery::{COLUMNS, Costs, Observer};

/// Groups where feeds of local scope are announced and asked for.
const DIRECTORY: &str = "239.255.255.255";
/// Bytes of IPv4 and UDP headers.
const HEADERS: u64 = 28;
const LIMIT: Duration = Duration::from_mins(10);

/// Passes to an observer what is sent, and what arrives.
fn tell(observer: &mut Observer, sight: &Sight<'_>) {
    let payload = sight.datagram.payload;
    if sight.is_sent {
        let wire_len = payload.len() as u64 + HEADERS;
        observer.on_sent(sight.node, sight.peer, payload, wire_len);
    } else {
        observer.on_arrived(Instant::EPOCH + sight.at, sight.node, payload);
    }
}

/// Returns the sample network of seven routers with a sixteenth receiver, whose links lose 2 % in
/// both directions.
fn seven_routers() -> Topology {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab/seven-routers.toml");
    let topology = Topology::from_file(Path::new(file)).unwrap();
    let mut topology = topology.host("e16").link("r6", "e16").delay(Duration::from_millis(3));
    for link in &mut topology.links {
        (link.a_to_b.loss, link.b_to_a.loss) = (0.02, 0.02);
    }
    topology
}

/// Sends files to all hosts with one recovery. Returns what it took.
fn run(recovery: &str, bytes: u64) -> Option<Costs> {
    let topology = seven_routers();
    let lab = lab(&topology)?;
    let is_routed = ["lms", "source"].contains(&recovery);
    let _routers = is_routed.then(|| Routers::start(&lab));
    let feeds = Feeds::unannounced(&lab, &[("large", bytes)]);
    if !is_routed {
        let directory: IpAddr = DIRECTORY.parse().unwrap();
        lab.route_multicast_from_all([directory]).unwrap();
    }
    let mut command = feeds.umbel("source");
    command.args(["send", "--json", "--name", "feed"]).arg(feeds.input());
    command.args(["--rate", "10M", "--wait-for", "16", "--recovery", recovery]);
    let mut sender = Process::start("sender", command, &feeds.logs);
    let sending = sender.wait_for_event("sending", SOON);
    if !is_routed {
        lab.route_multicast("source", group(&sending["data"])).unwrap();
        lab.route_multicast_from_all([group(&sending["domain"])]).unwrap();
    }
    let tap = Tap::new(&lab, Observer::new(&topology, "source"), tell);
    let begin = std::time::Instant::now();
    let address = lab.host("source").unwrap().addr4();
    let feed = if is_routed { format!("feed@{address}") } else { "feed".to_owned() };
    let mut receivers: Vec<Receiver> = (1..=16)
        .map(|n| {
            let (host, out) = (format!("e{n}"), feeds.out(&format!("e{n}")));
            let mut command = feeds.umbel(&host);
            command.args(["recv", "--json", &feed, "--as", &host, "--wait", "60s", "-o"]).arg(&out);
            Receiver { process: Process::start(&host, command, &feeds.logs), out }
        })
        .collect();
    for receiver in &mut receivers {
        receiver.process.wait_done(LIMIT);
        files::assert_same(&feeds.input(), &receiver.out, |_| true);
    }
    let took = begin.elapsed();
    let sent = sender.wait_done(SOON);
    println!("{recovery}: {sent}");
    Some(tap.with(|observer| Costs::of(observer, &topology, "source", took)))
}

#[test]
#[ignore = "prints a table, and takes minutes"]
fn table() {
    let bytes = std::env::var("UMBEL_BYTES").ok().and_then(|text| text.parse().ok());
    println!("| | {COLUMNS} |");
    for recovery in ["tree", "lms", "srm", "source"] {
        let Some(costs) = run(recovery, bytes.unwrap_or(20_000_000)) else { return };
        println!("| `{recovery}` | {costs} |");
    }
}
