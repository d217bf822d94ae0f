//! TMTP and RLM in both worlds: simulated, and with the real programs in network namespaces. The
//! numbers of each receiver are compared over several runs in both (docs/validation.md has the
//! tables).
//!
//! ```text
//! UMBEL_RUNS=5 cargo test -p umbel --test lab soak_sim:: -- --ignored --test-threads 1 --nocapture
//! ```

#![allow(clippy::print_stdout, reason = "it prints tables")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::lab;
use crate::support::process::Process;
use crate::support::streams::{Streams, sites};
use nix::sys::signal::Signal;
use serde_json::Value;
use umbel_repro::estimate::Estimate;
use umbel_sim::scenario::Scenario;

/// Simulated runs.
const SEEDS: u64 = 20;

/// Values of each run, by receiver and measure.
type Numbers = BTreeMap<(String, &'static str), Vec<f64>>;

/// A measure of a receiver in both worlds.
struct Measure {
    /// Its column in the simulator's table, and its field in the program's summary.
    column: &'static str,
    field: &'static str,
    /// Greatest difference that counts as none: a share of the simulated mean, and a number.
    share: f64,
    least: f64,
}

/// Number of runs in the lab.
fn runs() -> usize {
    std::env::var("UMBEL_RUNS").ok().and_then(|text| text.parse().ok()).unwrap_or(5)
}

/// Runs the scenario with each seed. Returns the measures of all receivers.
fn simulated(scenario: &Scenario, measures: &[Measure]) -> Numbers {
    let mut numbers = Numbers::new();
    for seed in 1..=SEEDS {
        let mut run = scenario.start(seed).unwrap();
        while run.go_on(Duration::from_secs(1)) {}
        let report = run.report();
        let table = report.results.table("receivers").unwrap();
        let names = table.column("receiver").unwrap();
        let names: Vec<String> = (0..table.rows()).map(|row| names.text(row)).collect();
        for measure in measures {
            let values = table.numbers(measure.column);
            assert_eq!(values.len(), names.len(), "each receiver has a `{}`", measure.column);
            for (name, value) in names.iter().zip(values) {
                numbers.entry((name.clone(), measure.column)).or_default().push(value);
            }
        }
    }
    numbers
}

/// Adds what a program's summary says of a receiver.
fn add(numbers: &mut Numbers, host: &str, measures: &[Measure], value: impl Fn(&str) -> f64) {
    for measure in measures {
        let values = numbers.entry((host.to_owned(), measure.column)).or_default();
        values.push(value(measure.field));
    }
}

/// Prints a line for each measure of each receiver. Fails if a difference surely exceeds what
/// counts as none: the simulator shows something else than real hosts do.
fn compare(simulated: &Numbers, real: &Numbers, measures: &[Measure]) {
    println!(
        "| receiver | measure | simulated | lab | difference | verdict |\n|---|---|---|---|---|---|"
    );
    let mut differ = Vec::new();
    for ((host, name), values) in simulated {
        let measure = measures.iter().find(|measure| measure.column == *name).unwrap();
        let (here, there) = (Estimate::of(values), Estimate::of(&real[&(host.clone(), *name)]));
        let difference = there.mean - here.mean;
        // Intervals of independent means add up as squares.
        let interval = here.ci95.hypot(there.ci95);
        let margin = measure.least + measure.share * here.mean.abs();
        let verdict = if difference.abs() + interval <= margin {
            "same"
        } else if difference.abs() - interval > margin {
            "differs"
        } else {
            "undecided"
        };
        let line = format!(
            "| {host} | {name} | {:.2} ± {:.2} | {:.2} ± {:.2} | {difference:+.2} ± {interval:.2} | {verdict} |",
            here.mean, here.ci95, there.mean, there.ci95
        );
        println!("{line}");
        if verdict == "differs" {
            differ.push(line);
        }
    }
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Packets of the file, and bytes of its symbols: an MTU of 1,500 less 100.
const PACKETS: u64 = 3000;
const SYMBOL: u64 = 1400;

/// Creates a scenario on the network of `examples/sim/campus.toml`.
fn campus(section: &str) -> Scenario {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim/campus.toml"));
    let text = std::fs::read_to_string(path).unwrap();
    let (network, _) = text.split_once("[repository]").unwrap();
    let network = network.replace("duration = \"2min\"\n", "");
    Scenario::from_toml(&format!("{network}{section}"), Path::new("")).unwrap()
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn tmtp_in_the_lab_is_what_the_simulator_shows() {
    let counted = |column, field| Measure { column, field, share: 0.2, least: 5.0 };
    let measures =
        [counted("lost", "lost"), counted("repaired", "repairs"), counted("nacks", "nacks")];
    // Receivers join one after the other in both, which decides whose children they become.
    let scenario = campus(&format!(
        "[tmtp]\nsource = \"h1\"\nrate = \"6M\"\npackets = {PACKETS}\npacket_size = {SYMBOL}\n\
         block = 64\nfec = true\nstart = \"20s\"\njoin_every = \"1s\"\n"
    ));
    let simulated = simulated(&scenario, &measures);
    let Some(lab) = lab(&scenario.topology) else { return };
    let mut real = Numbers::new();
    for _ in 0..runs() {
        let feeds = Feeds::new(&lab, &[("file", PACKETS * SYMBOL)]);
        let mut sender = feeds.send(&["--rate", "6M", "--wait-for", "6"]);
        let receivers = ["near1", "near2", "near3", "far1", "far2", "far3"].map(|host| {
            let receiver = feeds.recv(host, &["--no-sync"]);
            receiver.process.wait_for_event("joined", SOON);
            (host, receiver)
        });
        for (host, mut receiver) in receivers {
            let summary = feeds.check(&mut receiver, Duration::from_mins(2));
            let number = |field: &str| summary[field].as_f64().unwrap();
            add(&mut real, host, &measures, number);
        }
        assert_eq!(sender.wait_done(SOON)["done"], 6);
    }
    compare(&simulated, &real, &measures);
}

/// Duration of a stream.
const STREAM: Duration = Duration::from_mins(2);

/// Returns the mean level, or the share of packets that were lost, of a summary of `umbel watch`.
fn watched(summary: &Value, field: &str) -> f64 {
    let number = |field: &str| summary[field].as_f64().unwrap();
    if field == "loss" {
        return number("lost") / (number("packets") + number("lost"));
    }
    let seconds: Vec<f64> =
        summary["at_level"].as_array().unwrap().iter().map(|s| s.as_f64().unwrap()).collect();
    let levels = seconds.iter().enumerate().map(|(level, seconds)| level as f64 * seconds);
    levels.sum::<f64>() / seconds.iter().sum::<f64>()
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn rlm_in_the_lab_is_what_the_simulator_shows() {
    let measures = [
        Measure { column: "level", field: "level", share: 0.1, least: 0.1 },
        Measure { column: "loss", field: "loss", share: 0.5, least: 0.01 },
    ];
    let topology = sites(&[("a", "8M", 2), ("b", "2M", 2), ("c", "500k", 2)]);
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("sites.toml"), topology.to_toml()).unwrap();
    let length = STREAM.as_secs() + 2;
    let text = format!(
        "[topology]\nfile = \"sites.toml\"\n[rlm]\nsource = \"h1\"\npacket_size = 1400\n\
         rates = [\"150k\", \"250k\", \"1200k\", \"4800k\"]\nstarts = [\"1s\", \"2s\"]\n\
         length = \"{length}s\"\nmeasured = \"{}s\"\n",
        STREAM.as_secs()
    );
    let scenario = Scenario::from_toml(&text, directory.path()).unwrap();
    let simulated = simulated(&scenario, &measures);
    let Some(lab) = lab(&topology) else { return };
    let mut real = Numbers::new();
    for _ in 0..runs() {
        let streams = Streams::new(&lab);
        streams.make_clip("clip.y4m", (320, 180), 60);
        let source = streams.stream("clip.y4m", &["--layers", "150k,250k,1200k,4800k"]);
        let hosts = ["a1", "a2", "b1", "b2", "c1", "c2"];
        let mut receivers: [Process; 6] = hosts.map(|host| streams.watch(host, &[]));
        std::thread::sleep(STREAM);
        for receiver in &receivers {
            receiver.signal(Signal::SIGINT);
        }
        for (host, receiver) in hosts.iter().zip(&mut receivers) {
            let summary = receiver.wait_done(SOON);
            add(&mut real, host, &measures, |field| watched(&summary, field));
        }
        drop(source);
    }
    compare(&simulated, &real, &measures);
}
