//! SRM in large groups: the rate of session messages, and the cost of one loss.
//!
//! `cargo run --release -p umbel-sim --example srm_scale -- 1000 10000`
//!
//! A source is behind a core router, with 100 edge routers and the receivers spread over them.
//! Delays are 10 ms from the core to the edges and 1 ms to each receiver. After a minute of session
//! messages alone, three units are lost: one at the source, one before an edge, one at a receiver.

use std::time::Duration;

use umbel_engine::srm::Unit;
use umbel_sim::srm::{MemberHost, Participant, config, id_of};
use umbel_sim::{
    FlowId, Instant, Kind, Kinds, LinkId, LinkSpec, Loss, Network, NodeId, ScriptedLoss, Simulation,
};

const GROUP: u32 = 1;
const EDGES: usize = 100;
const SEED: u64 = 1;

fn at(seconds: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(seconds)
}

/// Returns a link that loses the data packets with these numbers, from 1.
fn losing(delay: Duration, nth: &[u64]) -> LinkSpec {
    let script = nth.iter().map(|&nth| ScriptedLoss { flow: FlowId(0), nth }).collect();
    let loss_of = Kinds::NONE.with(Kind::Data);
    LinkSpec { delay, loss: Loss::Script(script), loss_of, ..LinkSpec::default() }
}

struct Group {
    network: Network,
    source: NodeId,
    source_link: LinkId,
    receivers: Vec<NodeId>,
}

/// Returns a group where unit 2 is lost at the source, 5 before the first edge, 8 at the first
/// receiver.
fn group(receivers: usize) -> Group {
    let (far, near) = (Duration::from_millis(10), Duration::from_millis(1));
    let clean = |delay| LinkSpec { delay, ..LinkSpec::default() };
    let mut network = Network::new();
    let (source, core) = (network.host("source"), network.router("core"));
    let link = |network: &mut Network, a, b, delay, nth: &[u64]| {
        network.link(a, b, losing(delay, nth), clean(delay)).expect("both ends are new")
    };
    let source_link = link(&mut network, source, core, near, &[3]);
    let edges: Vec<NodeId> = (0..EDGES)
        .map(|n| {
            let edge = network.router(format!("edge{n}"));
            // One packet was lost before.
            link(&mut network, core, edge, far, if n == 0 { &[5] } else { &[] });
            edge
        })
        .collect();
    let receivers = (0..receivers)
        .map(|n| {
            let host = network.host(format!("h{n}"));
            link(&mut network, edges[n % EDGES], host, near, if n == 0 { &[7] } else { &[] });
            host
        })
        .collect();
    Group { network, source, source_link, receivers }
}

fn run(count: usize) {
    let wall = std::time::Instant::now();
    let Group { network, source, source_link, receivers } = group(count);
    let mut simulation = Simulation::new(network, SEED);
    let member = |node, distance: bool, participant: Participant| {
        let mut config = config(node, GROUP);
        (config.observe, config.max_peers) = (true, 256);
        let mut participant = participant;
        if distance {
            participant.know_distance(id_of(source), Duration::from_millis(12));
        }
        participant.host(config, SEED)
    };
    let mut sender = Participant::default();
    sender.send_stream(Duration::from_mins(1), Duration::from_secs(1), 12, 500);
    simulation
        .set_app(source, member(source, false, sender), Instant::EPOCH)
        .expect("the node is a host without a program");
    for &host in &receivers {
        simulation
            .set_app(host, member(host, true, Participant::default()), Instant::EPOCH)
            .expect("the node is a host without a program");
    }
    let source_gets = |simulation: &Simulation| simulation.link_counters(source_link).1;
    simulation.run_until(at(30));
    let before = source_gets(&simulation);
    simulation.run_until(at(59));
    let after = source_gets(&simulation);
    let messages = after.packets - before.packets;
    let bits_per_s = (after.bytes - before.bytes) as f64 * 8.0 / 29.0;
    simulation.run_until(at(100));

    let app = |node| simulation.app::<MemberHost>(node).expect("each host runs a member");
    println!("{count} receivers ({:.0} s of computing)", wall.elapsed().as_secs_f64());
    println!(
        "  session messages: {:.1} a second, {:.1} kbit/s, {:.0} bytes on average",
        messages as f64 / 29.0,
        bits_per_s / 1e3,
        (after.bytes - before.bytes) as f64 / messages.max(1) as f64
    );
    let members = receivers.iter().map(|&host| app(host).engine().members());
    println!("  members, as receivers estimate them: {}", spread(members));
    for (place, sequence) in [("at the source", 2), ("before an edge", 5), ("at a receiver", 8)] {
        let unit = Unit { source: id_of(source), sequence };
        let mut latencies = Vec::new();
        let (mut requests, mut repairs) = (0, 0);
        for node in receivers.iter().copied().chain([source]) {
            let Some(recovery) = app(node).host().recoveries().get(&unit) else { continue };
            requests += recovery.requests_sent;
            repairs += recovery.repairs_sent;
            latencies.extend(recovery.latency.map(|latency| latency.as_secs_f64() / 0.024));
        }
        let mean = latencies.iter().sum::<f64>() / latencies.len().max(1) as f64;
        let most = latencies.iter().copied().fold(0.0, f64::max);
        println!(
            "  loss {place}: {} lack it, {requests} requests, {repairs} repairs, recovered after \
             {mean:.2} round trips on average, {most:.2} at most",
            latencies.len()
        );
    }
    let complete = receivers
        .iter()
        .filter(|&&host| {
            let got = app(host).host().received(id_of(source));
            got.is_some_and(|got| (got.first, got.next, got.wrong, got.lost) == (0, 12, 0, 0))
        })
        .count();
    println!("  {complete} have every unit once and in order");
    let footprint = app(receivers[count / 2]).engine().footprint();
    println!("  a receiver remembers {footprint:?}");
}

fn spread(values: impl Iterator<Item = u64>) -> String {
    let mut values: Vec<u64> = values.collect();
    values.sort_unstable();
    format!("{} to {}", values[0], values[values.len() - 1])
}

fn main() {
    let counts: Vec<usize> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    for count in if counts.is_empty() { vec![1_000] } else { counts } {
        run(count);
    }
}
