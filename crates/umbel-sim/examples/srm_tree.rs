//! SRM on a binary tree, configured as ns-2's agent is: the cost of one loss.
//!
//! `cargo run --release -p umbel-sim --example srm_tree -- 4 source 20`
//!
//! A tree of the given depth has a receiver at each leaf and the source beyond the root. Every link
//! has 10 Mbit/s and 10 ms. The tenth unit is lost once: at the `source`, or at the first
//! `receiver`. Prints means over the given number of seeds: latency in round trips to the source,
//! requests and repairs. `bench/ns2/srm.sh` runs the same in ns-2.

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

/// Cost of one loss.
#[derive(Default)]
struct Cost {
    latency_rtt: f64,
    requests: f64,
    repairs: f64,
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

fn run(depth: u32, at_source: bool, seed: u64) -> Cost {
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
    let mut cost = Cost::default();
    let mut lacked = 0.0;
    for &node in &members {
        let host = simulation.app::<MemberHost>(node).expect("each host runs a member");
        let Some(recovery) = host.host().recoveries().get(&unit) else { continue };
        cost.requests += f64::from(recovery.requests_sent);
        cost.repairs += f64::from(recovery.repairs_sent);
        if let Some(latency) = recovery.latency {
            lacked += 1.0;
            cost.latency_rtt += latency.as_secs_f64() / round_trip;
        }
    }
    let expected = if at_source { members.len() - 1 } else { 1 };
    assert_eq!(lacked as usize, expected, "so many lack the unit and recover it");
    cost.latency_rtt /= lacked;
    cost
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
    let costs: Vec<Cost> = (1..=seeds).map(|seed| run(depth, place == "source", seed)).collect();
    let mean = |of: fn(&Cost) -> f64| costs.iter().map(of).sum::<f64>() / costs.len() as f64;
    println!(
        "{:.3} {:.2} {:.2}",
        mean(|cost| cost.latency_rtt),
        mean(|cost| cost.requests),
        mean(|cost| cost.repairs)
    );
}
