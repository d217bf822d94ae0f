//! The table of docs/concepts/feeds.md, and what it shows.

use std::ops::Range;

use umbel_wire::feed::Recovery;

use super::*;

/// Whether the source is the replier of the router to which it is attached.
type IsReplier = bool;

const SCHEMES: [(&str, Recovery, IsReplier); 5] = [
    ("tree", Recovery::Tree, false),
    ("lms", Recovery::Lms, false),
    ("lms, source as replier", Recovery::Lms, true),
    ("srm", Recovery::Srm, false),
    ("source", Recovery::Source, false),
];

/// Lets every link lose this share of all packets, in both directions.
fn lossy(mut topology: Topology, loss: f64) -> Topology {
    for link in &mut topology.links {
        (link.a_to_b.loss, link.b_to_a.loss) = (loss, loss);
    }
    topology
}

/// Returns the sample network of seven routers with a sixteenth receiver.
fn seven_routers() -> Topology {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/lab/seven-routers.toml");
    let topology = Topology::from_file(file.as_ref()).unwrap();
    topology.host("e16").link("r6", "e16").delay(Duration::from_millis(3))
}

/// Returns a network whose source is beside four routers, each with four receivers.
fn four_subnets() -> Topology {
    let mut topology = Topology::new().host("source").router("r0").link("source", "r0");
    for subnet in 1..=4 {
        let router = format!("r{subnet}");
        topology = topology.router(&router).link("r0", &router).delay(Duration::from_millis(10));
        for host in 1..=4 {
            let host = format!("h{subnet}.{host}");
            topology = topology.host(&host).link(&router, &host).delay(Duration::from_millis(1));
        }
    }
    topology
}

/// Returns what a scheme takes, summed up over seeds.
fn costs(topology: &Topology, plan: &Plan, scheme: usize, seeds: Range<u64>) -> Costs {
    let (name, recovery, is_replier) = SCHEMES[scheme];
    let mut sum = Costs::default();
    for seed in seeds {
        let change = |config: &mut RouterConfig| config.source_as_replier = is_replier;
        match run(topology, "source", plan, recovery, seed, change) {
            Ok(costs) => sum.add(&costs),
            Err(error) => panic!("{name}, seed {seed}: {error}"),
        }
    }
    sum
}

#[test]
#[ignore = "prints the table of docs/concepts/feeds.md"]
fn table() {
    let seeds = umbel_seeds::seeds(3);
    let plan = Plan::of_bytes(umbel_seeds::number("UMBEL_BYTES").unwrap_or(100_000_000));
    for topology in [seven_routers(), four_subnets()] {
        println!("| | {COLUMNS} |");
        for (number, (name, ..)) in SCHEMES.iter().enumerate() {
            println!(
                "| {name} | {} |",
                costs(&lossy(topology.clone(), 0.02), &plan, number, seeds.clone())
            );
        }
    }
}

#[test]
fn lms_brings_the_fewest_repairs_over_the_sources_link_and_to_those_who_need_none() {
    let plan = Plan { symbol_len: 256, ..Plan::of_bytes(200_000) };
    for topology in [seven_routers(), four_subnets()] {
        let topology = lossy(topology, 0.02);
        let [tree, lms, _, srm, source] = [0, 1, 2, 3, 4].map(|n| costs(&topology, &plan, n, 0..1));
        let all = format!("tree {tree}\nlms {lms}\nsrm {srm}\nsource {source}");
        for other in [&tree, &srm, &source] {
            assert!(lms.source_share() * 1.25 < other.source_share(), "{all}");
            assert!(lms.exposure() < other.exposure(), "{all}");
        }
        assert!(lms.receiver_links < tree.receiver_links.min(srm.receiver_links), "{all}");
    }
}
