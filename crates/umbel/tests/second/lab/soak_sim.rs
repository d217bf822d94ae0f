//! TMTP, LMS, SRM, RLM and TCP-SMO in both worlds: simulated, and with the real programs in network
//! namespaces. The numbers of each receiver are compared over several runs in both
//! (docs/laboratory/validation.md has the tables).
//!
//! ```text
//! UMBEL_RUNS=5 cargo test -p umbel --test second lab::soak_sim:: -- --ignored --test-threads 1 --nocapture
//! ```

#![allow(clippy::print_stdout, reason = "it prints tables")]

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::process::Process;
use crate::support::routers::Routers;
use crate::support::smo::{Download, Site, end, have};
use crate::support::streams::{Streams, sites};
use crate::support::{files, lab};
use nix::sys::signal::Signal;
use serde_json::Value;
use umbel_engine::MTU_RESERVE;
use umbel_lab::{Queue, Topology};
use umbel_sim::scenario::Scenario;
use umbel_sim::scenario::report::Results;
use umbel_sim::statistics::mean_and_interval;
use umbel_wire::SmallBlockHeader;
use umbel_wire::lms::limits::AROUND_PACKET;

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

/// Runs the scenario with a seed.
fn results(scenario: &Scenario, seed: u64) -> Results {
    let mut run = scenario.start(seed).unwrap();
    while run.go_on(Duration::from_secs(1)) {}
    run.report().results
}

/// Runs the scenario with each seed. Returns the measures of all receivers.
fn simulated(scenario: &Scenario, measures: &[Measure]) -> Numbers {
    let mut numbers = Numbers::new();
    for seed in 1..=SEEDS {
        let results = results(scenario, seed);
        let table = results.table("receivers").unwrap();
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

/// Replaces a measure of some receivers by its sum over them.
fn pool(numbers: &mut Numbers, hosts: &[&str], measure: &'static str) {
    let parts = hosts.iter().map(|host| numbers.remove(&((*host).to_owned(), measure)).unwrap());
    let sum = parts.reduce(|a, b| a.iter().zip(b).map(|(a, b)| a + b).collect()).unwrap();
    numbers.insert((hosts.join(" + "), measure), sum);
}

/// Prints a line for each measure of each receiver. Fails if a difference surely exceeds what
/// counts as none: the simulator shows something else than real hosts do.
fn compare(simulated: &Numbers, real: &Numbers, measures: &[Measure]) {
    println!(
        "| receiver | measure | simulated | lab | difference | verdict |\n|---|---|---|---|---|---|"
    );
    let (mut differ, mut runs) = (Vec::new(), Vec::new());
    for ((host, name), values) in simulated {
        let measure = measures.iter().find(|measure| measure.column == *name).unwrap();
        let in_the_lab = &real[&(host.clone(), *name)];
        let [(here, of_here), (there, of_there)] = [values, in_the_lab].map(|values| {
            // A single run has no interval, and leaves everything undecided.
            mean_and_interval(values).unwrap_or((values[0], f64::NAN))
        });
        let difference = there - here;
        // Intervals of independent means add up as squares.
        let interval = of_here.hypot(of_there);
        let margin = measure.least + measure.share * here.abs();
        let verdict = if difference.abs() + interval <= margin {
            "same"
        } else if difference.abs() - interval > margin {
            "differs"
        } else {
            "undecided"
        };
        let line = format!(
            "| {host} | {name} | {here:.2} ± {of_here:.2} | {there:.2} ± {of_there:.2} | \
             {difference:+.2} ± {interval:.2} | {verdict} |"
        );
        println!("{line}");
        if verdict != "same" {
            runs.push(format!("{host}, {name}, each run in the lab: {in_the_lab:?}"));
        }
        if verdict == "differs" {
            differ.push(line);
        }
    }
    println!("{}", runs.join("\n"));
    assert!(differ.is_empty(), "{differ:#?}");
}

/// Packets of the file, and those of its manifest, which the simulated file does not have.
const PACKETS: u64 = 3000;
const MANIFEST: u64 = 2;
/// Bytes of the file's symbols, a multiple of 8, for an MTU of 1,500. Those of LMS leave room for
/// an envelope.
const SYMBOL: u64 = (1500 - MTU_RESERVE as u64 - SmallBlockHeader::LEN as u64) & !7;
const SYMBOL_OF_LMS: u64 = SYMBOL - AROUND_PACKET as u64;
/// Receivers of the file, in the order in which they join.
const CAMPUS: [&str; 6] = ["near1", "near2", "near3", "far1", "far2", "far3"];

/// Creates a scenario of the file on the network of `examples/sim/campus.toml`. Receivers join one
/// after the other in both worlds. That decides whose children they become, and which of them is a
/// helper when the file begins.
fn campus(symbol: u64, keys: &str) -> Scenario {
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim/campus.toml"));
    let text = std::fs::read_to_string(path).unwrap();
    let (network, _) = text.split_once("[repository]").unwrap();
    let network = network.replace("duration = \"2min\"\n", "");
    let section = format!(
        "[tmtp]\nsource = \"h1\"\nrate = \"6M\"\npackets = {PACKETS}\npacket_size = {symbol}\n\
         repair_rate = \"6M\"\nblock = 64\nfec = true\nstart = \"20s\"\njoin_every = \"1s\"\n{keys}"
    );
    Scenario::from_toml(&format!("{network}{section}"), Path::new("")).unwrap()
}

/// Returns measures of a feed's receivers: a fifth and 5 packets count as no difference.
fn counted<const N: usize>(names: [(&'static str, &'static str); N]) -> [Measure; N] {
    names.map(|(column, field)| Measure { column, field, share: 0.2, least: 5.0 })
}

/// Receives a file on all hosts, each when the one before has joined. Adds what their summaries
/// say.
fn receive(
    feeds: &Feeds<'_>,
    (mut sender, sending): (Process, Option<Value>),
    measures: &[Measure],
    numbers: &mut Numbers,
) {
    let options = ["--no-sync"];
    let receivers = CAMPUS.map(|host| {
        let receiver = match &sending {
            Some(sending) => feeds.recv_from(host, sending, &options),
            None => feeds.recv(host, &options),
        };
        receiver.process.wait_for_event("joined", SOON);
        (host, receiver)
    });
    for (host, mut receiver) in receivers {
        let summary = feeds.check(&mut receiver, Duration::from_mins(2));
        let number = |field: &str| summary[field].as_f64().unwrap();
        add(numbers, host, measures, number);
    }
    let sent = sender.wait_done(SOON);
    assert_eq!(sent["done"], 6);
    assert_eq!(sent["packets"], PACKETS + MANIFEST, "the simulated file is as long");
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn tmtp_in_the_lab_is_what_the_simulator_shows() {
    let measures = counted([("lost", "lost"), ("repaired", "repairs"), ("nacks", "nacks")]);
    by_any_source_multicast("tree", &measures);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn srm_in_the_lab_is_what_the_simulator_shows() {
    let measures = counted([
        ("lost", "lost"),
        ("repaired", "repairs"),
        ("nacks", "nacks"),
        ("repairs", "repairs_sent"),
    ]);
    by_any_source_multicast("srm", &measures);
}

/// Compares a recovery by a group to which all members send. The lab's own routers forward it.
fn by_any_source_multicast(recovery: &str, measures: &[Measure]) {
    let scenario = campus(SYMBOL, &format!("recovery = \"{recovery}\"\n"));
    let simulated = simulated(&scenario, measures);
    let Some(lab) = lab(&scenario.topology) else { return };
    let mut real = Numbers::new();
    for _ in 0..runs() {
        let feeds = Feeds::new(&lab, &[("file", PACKETS * SYMBOL)]);
        let options = ["--rate", "6M", "--wait-for", "6", "--recovery", recovery];
        receive(&feeds, (feeds.send(&options), None), measures, &mut real);
    }
    compare(&simulated, &real, measures);
}

/// Compares LMS with `umbel router` on all routers, which have these options.
fn by_routers(source_as_replier: bool, options: &[&str]) {
    let measures = counted([
        ("lost", "lost"),
        ("repaired", "repairs"),
        ("requests", "requests"),
        ("nacks", "nacks"),
        ("repairs", "repairs_sent"),
    ]);
    let keys = format!("recovery = \"lms\"\nsource_as_replier = {source_as_replier}\n");
    let scenario = campus(SYMBOL_OF_LMS, &keys);
    let mut simulated = simulated(&scenario, &measures);
    let Some(lab) = lab(&scenario.topology) else { return };
    let _routers = Routers::start_with(&lab, |_| options);
    let mut real = Numbers::new();
    for _ in 0..runs() {
        let feeds = Feeds::unannounced(&lab, &[("file", PACKETS * SYMBOL_OF_LMS)]);
        let options = ["--rate", "6M", "--wait-for", "6", "--recovery", "lms"];
        let (sender, sending) = feeds.send_unrouted(&options);
        receive(&feeds, (sender, Some(sending)), &measures, &mut real);
    }
    // Both are as near to their router. Which of them is its helper depends on microseconds in the
    // lab, and on their addresses in the simulator.
    for numbers in [&mut simulated, &mut real] {
        pool(numbers, &["near1", "near2"], "repairs");
    }
    compare(&simulated, &real, &measures);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn lms_in_the_lab_is_what_the_simulator_shows() {
    by_routers(false, &[]);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn lms_with_the_source_as_replier_is_in_the_lab_what_the_simulator_shows() {
    by_routers(true, &["--source-replier"]);
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

/// Bytes of a file by TCP-SMO, and its receivers: connections on each of three hosts.
const FILE: u64 = 3_000_000;
const CONNECTIONS: usize = 4;
/// Hosts of the receivers, and the loss of their links, both ways.
const CLIENTS: [(&str, f64); 3] = [("h2", 0.0), ("h3", 0.01), ("h4", 0.02)];

/// What `curl` says at the end: the seconds until the first byte, and until the last.
const TIMES: [&str; 2] = ["--write-out", "%{time_starttransfer} %{time_total}"];

/// Waits for a download of the file. Returns the seconds from its first byte on.
fn seconds(site: &Site<'_>, mut download: Download) -> f64 {
    download.expect(site, &site.www().join("file"), Duration::from_mins(2));
    let said = download.said();
    let (first, last) = said.split_once(' ').unwrap();
    last.parse::<f64>().unwrap() - first.parse::<f64>().unwrap()
}

/// Adds the mean of a host's receivers.
fn add_mean(numbers: &mut Numbers, host: &str, seconds: &[f64]) {
    let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
    numbers.entry((host.to_owned(), "delay_s")).or_default().push(mean);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn smo_in_the_lab_is_what_the_simulator_shows() {
    by_one_stream(0.05);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn smo_that_repairs_by_unicast_is_in_the_lab_what_the_simulator_shows() {
    by_one_stream(0.5);
}

/// Compares TCP-SMO. What at least this share of the receivers lacks is multicast again.
fn by_one_stream(threshold: f64) {
    let again = |name| Measure { column: name, field: name, share: 0.2, least: 10.0 };
    let of_source = [again("multicast_again"), again("unicast_again")];
    let time = Measure { column: "delay_s", field: "", share: 0.2, least: 0.1 };
    let mut topology = Topology::new().host("h1").switch("s").link("h1", "s");
    for (host, loss) in CLIENTS {
        topology = topology.host(host).link("s", host).rate("10M".parse().unwrap());
        topology = topology.queue(Queue::Packets(100)).delay(Duration::from_millis(10)).loss(loss);
    }
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("star.toml"), topology.to_toml()).unwrap();
    let text = format!(
        "[topology]\nfile = \"star.toml\"\n[smo]\nsource = \"h1\"\n\
         receivers = [\"h2\", \"h3\", \"h4\"]\nper_host = {CONNECTIONS}\nsize = {FILE}\n\
         threshold = {threshold}\n"
    );
    let scenario = Scenario::from_toml(&text, directory.path()).unwrap();
    let (mut simulated, mut real) = (Numbers::new(), Numbers::new());
    for seed in 1..=SEEDS {
        let results = results(&scenario, seed);
        let table = results.table("receivers").unwrap();
        let (hosts, delays) = (table.column("host").unwrap(), table.numbers("delay_s"));
        for (host, _) in CLIENTS {
            let of_host = (0..table.rows()).filter(|row| hosts.text(*row) == host);
            let seconds: Vec<f64> = of_host.map(|row| delays[row]).collect();
            add_mean(&mut simulated, host, &seconds);
        }
        add(&mut simulated, "h1", &of_source, |name| results.measure(name).unwrap());
    }
    if !have(&["curl", "nft"]) {
        return;
    }
    let Some(lab) = lab(&topology) else { return };
    for _ in 0..runs() {
        let site = Site::new(&lab);
        files::make(&site.www(), &[("file", FILE)]);
        let all = (CLIENTS.len() * CONNECTIONS).to_string();
        let share = threshold.to_string();
        let options = ["--window", "1min", "--receivers", &all, "--threshold", &share];
        let server = site.serve_http(&options);
        let _helpers = CLIENTS.map(|(host, _)| site.join(host, &[]));
        let downloads = CLIENTS.map(|(host, _)| {
            let start = |n| site.curl(host, "file", &format!("{host}-{n}"), &TIMES);
            std::array::from_fn::<_, CONNECTIONS, _>(start)
        });
        for ((host, _), downloads) in CLIENTS.into_iter().zip(downloads) {
            add_mean(&mut real, host, &downloads.map(|download| seconds(&site, download)));
        }
        let summary = end(server);
        assert_eq!(summary["together"], CLIENTS.len() * CONNECTIONS, "{summary}");
        add(&mut real, "h1", &of_source, |name| summary["traffic"][name].as_f64().unwrap());
    }
    let [multicast, unicast] = of_source;
    compare(&simulated, &real, &[time, multicast, unicast]);
}
