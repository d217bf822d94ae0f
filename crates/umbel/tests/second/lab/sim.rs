//! One scenario in both worlds: simulated, and with the real programs in network namespaces.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::support::bench::Bench;
use crate::support::{group, lab};
use umbel_lab::testing::say_skipped;
use umbel_sim::scenario::{Repository, Scenario};

/// Largest share and largest time by which a lab's mean delay may differ from the simulated one.
/// Real programs start, shake hands and write files, which simulated ones do not.
const DELAY_SHARE: f64 = 0.10;
const DELAY_S: f64 = 0.25;
/// Largest share by which the bytes that the server sends may differ.
const BYTES_SHARE: f64 = 0.08;
/// Largest share of the time in which somebody waited for a processor, up to which the lab's clock
/// means anything.
const MAX_PRESSURE: f64 = 0.4;
/// Number of simulated runs, whose mean is compared. The clients' wishes are the same in all of
/// them.
const SEEDS: u64 = 20;

/// Returns for how long anybody on this machine has waited for a processor; `None` if the kernel
/// does not count it.
fn waited() -> Option<Duration> {
    let text = std::fs::read_to_string("/proc/pressure/cpu").ok()?;
    let total = text.lines().find(|line| line.starts_with("some"))?.rsplit_once("total=")?.1;
    Some(Duration::from_micros(total.parse().ok()?))
}

/// The compared results: the mean delay of each group in seconds, and the bytes of data packets.
#[derive(Debug, Default)]
struct Outcome {
    delays: Vec<f64>,
    bytes: f64,
}

fn simulated(scenario: &Scenario) -> Outcome {
    let mut sum = Outcome::default();
    for seed in 1..=SEEDS {
        let mut run = scenario.start(seed).unwrap();
        while run.go_on(Duration::from_secs(1)) {}
        let report = run.report();
        assert_eq!(report.results.clients.finished, report.results.clients.count, "{report}");
        sum.delays.resize(report.results.groups.len(), 0.0);
        for (sum, group) in sum.delays.iter_mut().zip(&report.results.groups) {
            *sum += group.mean_s.unwrap() / SEEDS as f64;
        }
        sum.bytes += report.results.measure("data_bytes").unwrap() / SEEDS as f64;
    }
    sum
}

/// Runs the scenario with real programs. Returns `None` if there is no lab.
fn in_the_lab(scenario: &Scenario) -> Option<Outcome> {
    let lab = lab(&scenario.topology)?;
    let repository: &Repository = scenario.section().unwrap();
    let files: Vec<_> =
        repository.items.iter().map(|item| (item.name.as_str(), item.oti.object_len)).collect();
    let bench = Bench::new(&lab, &files);
    let rate = format!("{}bit/s", repository.config.rate.bits_per_s());
    let mut server = bench.serve(&["--rate", &rate]);
    let channel = group(&server.process.events("serving")[0]["channel"]);
    lab.route_multicast("h1", channel).unwrap();

    let began = Instant::now();
    let mut arrivals = repository.arrivals(1);
    arrivals.sort_by_key(|arrival| arrival.at);
    let mut clients: Vec<_> = arrivals
        .into_iter()
        .map(|arrival| {
            let at = arrival.at.since(umbel_sim::Instant::EPOCH);
            std::thread::sleep(at.saturating_sub(began.elapsed()));
            let host = &scenario.topology.nodes[arrival.node.0 as usize].name;
            let mut arguments: Vec<&str> = arrival
                .items
                .iter()
                .map(|&item| repository.items[item as usize].name.as_str())
                .collect();
            arguments.push("--no-sync");
            (arrival.group, bench.get(host, &server.url, &arguments))
        })
        .collect();
    let mut outcome = Outcome { delays: vec![0.0; repository.clients.len()], bytes: 0.0 };
    for (group, client) in &mut clients {
        let summary = client.process.wait_done(Duration::from_mins(1));
        assert_eq!(summary["unicast_blocks"], 0, "multicast reaches everyone: {summary}");
        let share = 1.0 / repository.clients[*group].hosts.len() as f64;
        outcome.delays[*group] += summary["seconds"].as_f64().unwrap() * share;
    }
    // The report is that of the last tick.
    std::thread::sleep(Duration::from_secs(2));
    outcome.bytes = server.stop()["bytes"].as_f64().unwrap();
    Some(outcome)
}

#[test]
fn the_lab_and_the_simulator_agree_on_delays_and_bytes() {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim/campus.toml"));
    let scenario = Scenario::from_file(path).unwrap();
    let simulated = simulated(&scenario);
    let (began, before) = (Instant::now(), waited());
    let Some(real) = in_the_lab(&scenario) else { return };
    println!("simulated {simulated:?}\nin the lab {real:?}");
    if let (Some(before), Some(after)) = (before, waited()) {
        let pressure = after.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
        println!("somebody waited for a processor for {:.0} % of the time", pressure * 1e2);
        if pressure > MAX_PRESSURE {
            // All have everything by multicast, which is what can be said here.
            return say_skipped("the machine is too busy for its clock to be compared");
        }
    }
    for (simulated, real) in simulated.delays.iter().zip(&real.delays) {
        let most = DELAY_S + DELAY_SHARE * simulated;
        assert!((real - simulated).abs() <= most, "{real:.3} s instead of {simulated:.3} s");
    }
    let share = real.bytes / simulated.bytes;
    assert!((share - 1.0).abs() <= BYTES_SHARE, "{share:.3} of the simulated bytes");
}
