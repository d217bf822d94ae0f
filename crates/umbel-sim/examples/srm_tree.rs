//! SRM on a binary tree, configured as ns-2's agent is: the cost of one loss.
//!
//! `cargo run --release -p umbel-sim --example srm_tree -- 4 source 20`
//!
//! A tree of the given depth has a receiver at each leaf and the source beyond the root. Every link
//! has 10 Mbit/s and 10 ms. The tenth unit is lost once: at the `source`, or at the first
//! `receiver`. Prints a line for each seed and member, which is 0 for the source and counts the
//! leaves from 1: the seed, the member, its latency in round trips to the source or `-`, the
//! requests and the repairs that it sent. `bench/ns2/srm.sh` runs the same in ns-2.

use std::time::Duration;

use umbel_engine::srm::Unit;
use umbel_engine::units::Rate;
use umbel_sim::srm::{MemberHost, Participant, config, id_of};
use umbel_sim::{
    FlowId, Instant, Kind, Kinds, LinkSpec, Loss, Network, NodeId, ScriptedLoss, Simulation,
};

const GROUP: u32 = 1;
const DELAY: Duration = Duration::from_millis(10);
const LINK_BITS_PER_S: u64 = 10_000_000;
const UNIT_BYTES: usize = 800;
const LOST: u64 = 9;

/// Part of one member in the recovery of the lost unit.
struct Part {
    /// Latency in round trips to the source, if it lacked the unit.
    latency_rtt: Option<f64>,
    requests: u64,
    repairs: u64,
}

fn link(loses: bool) -> LinkSpec {
    let rate = Rate::from_bits_per_s(LINK_BITS_PER_S);
    let clean = LinkSpec { delay: DELAY, rate, ..LinkSpec::default() };
    if !loses {
        return clean;
    }
    let script = vec![ScriptedLoss { flow: FlowId(0), nth: LOST + 1 }];
    LinkSpec { loss: Loss::Script(script), loss_of: Kinds::NONE.with(Kind::Data), ..clean }
}

/// Returns the parts of the members: the source's, then those of the leaves from left to right.
fn run(depth: u32, at_source: bool, seed: u64) -> Vec<Part> {
    let mut network = Network::new();
    let source = network.host("source");
    let mut level = vec![network.router("root")];
    network.link(source, level[0], link(at_source), link(false)).expect("both ends are new");
    for d in 1..=depth {
        let mut below = Vec::new();
        for (n, &above) in level.iter().enumerate() {
            for side in 0..2 {
                let name = format!("n{d}-{}", 2 * n + side);
                let node = if d == depth { network.host(&name) } else { network.router(&name) };
                let loses = !at_source && d == depth && below.is_empty();
                network.link(above, node, link(loses), link(false)).expect("both ends are new");
                below.push(node);
            }
        }
        level = below;
    }
    let mut simulation = Simulation::new(network, seed);
    let members: Vec<NodeId> = [source].into_iter().chain(level).collect();
    for &node in &members {
        let mut config = config(node, GROUP);
        (config.observe, config.repair_timer) = (true, Some((1.0, 1.0)));
        config.max_request_interval = Duration::from_hours(1);
        // As in ns-2, every member sends one session message a second that covers all members.
        config.session.heartbeat = None;
        config.session.rate = Rate::from_bits_per_s(2_000_000).expect("not zero");
        config.session.echoes = members.len();
        let mut participant = Participant::default();
        if node == source {
            participant.send_stream(
                Duration::from_secs(20),
                Duration::from_secs(2),
                13,
                UNIT_BYTES,
            );
        }
        simulation
            .set_app(node, participant.host(config, seed), Instant::EPOCH)
            .expect("the node is a host without a program");
    }
    simulation.run_until(Instant::EPOCH + Duration::from_secs(70));
    let unit = Unit { source: id_of(source), sequence: LOST };
    let round_trip = 2.0 * DELAY.as_secs_f64() * f64::from(depth + 1);
    let parts: Vec<Part> = members
        .iter()
        .map(|&node| {
            let host = simulation.app::<MemberHost>(node).expect("each host runs a member");
            let recovery = host.host().recoveries().get(&unit);
            Part {
                latency_rtt: recovery
                    .and_then(|recovery| recovery.latency)
                    .map(|latency| latency.as_secs_f64() / round_trip),
                requests: recovery.map_or(0, |recovery| recovery.requests_sent.into()),
                repairs: recovery.map_or(0, |recovery| recovery.repairs_sent.into()),
            }
        })
        .collect();
    let expected = if at_source { members.len() - 1 } else { 1 };
    let lacked = parts.iter().filter(|part| part.latency_rtt.is_some()).count();
    assert_eq!(lacked, expected, "so many lack the unit and recover it");
    parts
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [depth, place, seeds] = &arguments[..] else {
        eprintln!("usage: srm_tree DEPTH source|receiver SEEDS");
        std::process::exit(2);
    };
    let (Ok(depth), Ok(seeds)) = (depth.parse::<u32>(), seeds.parse::<u64>()) else {
        eprintln!("srm_tree: the depth and the number of seeds are whole numbers");
        std::process::exit(2);
    };
    for seed in 1..=seeds {
        for (member, part) in run(depth, place == "source", seed).iter().enumerate() {
            let latency =
                part.latency_rtt.map_or("-".to_owned(), |latency| format!("{latency:.4}"));
            println!("{seed} {member} {latency} {} {}", part.requests, part.repairs);
        }
    }
}
