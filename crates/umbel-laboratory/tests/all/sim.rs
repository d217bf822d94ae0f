//! `umbel sim`: its output, its files, and its errors.
use std::path::PathBuf;

use crate::support::{Ran, Running, laboratory, run, wait_until};
use serde_json::Value;
use tempfile::TempDir;

const SCENARIO: &str = "\
seed = 5
duration = \"5min\"
topology = { generator = \"star\", receivers = 4, access = { loss = \"10%\" } }
[repository]
rate = \"1M\"
items = 5
item_packets = 30
[[repository.clients]]
name = \"some\"
hosts = [\"h1\", \"h2\", \"h3\", \"h4\"]
want = 3
every = \"200ms\"
";

fn folder_with(name: &str, text: &str) -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, text).unwrap();
    (folder, path.to_str().unwrap().to_owned())
}

fn examples() -> Vec<PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim");
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    all.sort();
    assert!(all.len() >= 3, "{all:?}");
    all
}

fn reports(events: &[Value]) -> Vec<&Value> {
    events.iter().filter(|event| event["event"] == "run").map(|event| &event["report"]).collect()
}

#[test]
fn a_run_ends_with_a_table_and_says_the_same_each_time() {
    let (_folder, path) = folder_with("small.toml", SCENARIO);
    let first = run(["sim", "run", &path]);
    let table = &first.succeeded().stdout;
    assert!(table.starts_with("small, seed 5 · "), "{table}");
    assert!(table.contains("all                      4         4"), "{table}");
    assert!(first.stderr.contains("packet-hops in"), "{first:?}");
    assert!(!first.stderr.contains(['\r', '\u{1b}']), "{first:?}");
    assert_eq!(run(["sim", "run", &path]).succeeded().stdout, *table);
    let other = run(["sim", "run", &path, "--seed", "6", "--quiet"]);
    assert!(other.succeeded().stdout.starts_with("small, seed 6 · ") && other.stderr.is_empty());
    assert_ne!(other.stdout, table.replace("seed 5", "seed 6"));
}

#[test]
fn every_run_of_several_is_that_of_its_seed_however_many_run_at_a_time() {
    let (_folder, path) = folder_with("small.toml", SCENARIO);
    let all = run(["sim", "run", &path, "--seeds", "5", "--json"]);
    assert_eq!(all.succeeded().stderr, "");
    let results = |ran: &Ran| -> Vec<Value> {
        // Progress is told each second, which a run may take on a busy machine.
        ran.json().into_iter().filter(|event| event["event"] != "progress").collect()
    };
    let events = results(&all);
    let reports = reports(&events);
    assert_eq!(reports.len(), 5);
    let one_at_a_time = run(["sim", "run", &path, "--seeds", "5", "--jobs", "1", "--json"]);
    assert_eq!(results(one_at_a_time.succeeded()), events);
    for (seed, report) in (5..).zip(&reports) {
        assert_eq!(report["seed"], seed);
        let single = run(["sim", "run", &path, "--seed", &seed.to_string(), "--json"]);
        assert_eq!(&single.succeeded().event("run")["report"], *report);
    }
    let summary = &all.event("done")["summary"];
    assert_eq!((&summary["runs"], &summary["finished"]), (&5.into(), &20.into()));
    let mean: f64 =
        reports.iter().map(|report| report["clients"]["mean_s"].as_f64().unwrap()).sum::<f64>()
            / 5.0;
    assert!((summary["mean_delay_s"].as_f64().unwrap() - mean).abs() < 1e-9);
    assert!(summary["mean_delay_s_ci95"].as_f64().unwrap() > 0.0);

    let people = run(["sim", "run", &path, "--seeds", "3"]);
    assert!(people.succeeded().stdout.contains("mean delay of some: "), "{people:?}");
    assert_eq!(people.stdout.lines().filter(|line| line.contains("4/4")).count(), 3);
}

#[test]
fn traces_are_written_in_every_form_and_of_one_run_only() {
    let (folder, path) = folder_with("small.toml", SCENARIO);
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let traces = ["a.pcapng", "a.pcap", "a.csv"].map(file);
    let html = file("a.html");
    let mut args = vec!["sim", "run", &path, "--html", &html, "--tables"];
    for trace in &traces {
        args.extend(["--trace", trace]);
    }
    let ran = run(args);
    assert!(ran.succeeded().stdout.contains("link"), "{ran:?}");
    for (name, start) in
        [("a.pcapng", &b"\x0a\x0d\x0d\x0a"[..]), ("a.pcap", b""), ("a.csv", b""), ("a.html", b"<!")]
    {
        let bytes = std::fs::read(file(name)).unwrap();
        assert!(bytes.len() > 1_000 && bytes.starts_with(start), "{name}");
        assert!(ran.stderr.contains(name), "{ran:?}");
    }
    run(["sim", "run", &path, "--trace", &file("a.txt")]).failed_with(&["a.txt", ".pcapng"]);
    run(["sim", "run", &path, "--html", &file("no/a.html")]).failed_with(&["no/a.html"]);
    run(["sim", "run", &path, "--trace", &traces[0], "--seeds", "2"])
        .failed_with(&["a trace is of one run"]);
}

#[test]
fn a_mistake_is_told_with_file_and_line() {
    let (_folder, path) = folder_with("bad.toml", &SCENARIO.replace("\"h4\"", "\"h9\""));
    let expected = "bad.toml:10: no host is called `h9`: there are source, h1, h2, h3, h4";
    run(["sim", "run", &path]).failed_with(&[expected]);
    let checked = run(["sim", "check", &path]);
    assert!(checked.stdout.contains(expected), "{checked:?}");
    checked.failed_with(&["a scenario has a mistake"]);
    let json = run(["sim", "check", &path, "--json"]);
    assert_eq!(json.event("scenario")["ok"], false);
    run(["sim", "run", "/none.toml"]).failed_with(&["/none.toml: No such file"]);
    run(["sim", "run"]).misused(&["SCENARIO"]);
    run(["sim", "run", &path, "--seeds", "0"]).misused(&["--seeds"]);
    run(["sim"]).misused(&["Usage"]);
}

#[test]
fn the_examples_have_no_mistakes() {
    let mut command = laboratory();
    command.args(["sim", "check", "--json"]).args(examples());
    let checked = Running::start(&mut command).finish();
    assert_eq!(checked.succeeded().json().len(), examples().len());
    // The comment in the file says so.
    let late = examples().into_iter().find(|path| path.ends_with("late-joiner.toml")).unwrap();
    let ran = run(["sim", "run", late.to_str().unwrap(), "--json"]);
    let report = ran.succeeded().event("run")["report"].clone();
    assert_eq!(report["clients"]["finished"], 3);
    assert!(report["network"]["down"].as_u64().unwrap() > 0, "{report}");
}

#[test]
fn a_generated_topology_is_one_for_the_lab_and_for_scenarios() {
    let made = run(["sim", "topology", "tree", "depth=2", "fanout=3", "link.delay=3ms"]);
    let (folder, path) = folder_with("tree.toml", &made.succeeded().stdout);
    let topology = umbel_lab::Topology::from_file(path.as_ref()).unwrap();
    assert_eq!((topology.nodes.len(), topology.links.len()), (1 + 4 + 9, 1 + 3 + 9));
    let scenario =
        "topology.file = \"tree.toml\"\n[repository]\nrate = \"1M\"\nitems = 1\nitem_size = 9\n";
    let scenario_path = folder.path().join("scenario.toml");
    std::fs::write(&scenario_path, scenario).unwrap();
    let ran = run(["sim", "run", scenario_path.to_str().unwrap(), "--json"]);
    assert_eq!(ran.succeeded().event("run")["report"]["clients"]["finished"], 9);
    let back = run(["sim", "topology", scenario_path.to_str().unwrap()]);
    assert_eq!(back.succeeded().stdout, made.stdout);

    run(["sim", "topology", "ring"]).failed_with(&["`ring` is not a generator", "transit-stub"]);
    run(["sim", "topology", "star", "depth=2"]).failed_with(&["takes no `depth`"]);
    let help = run(["sim", "topology", "--help"]);
    assert!(help.succeeded().stdout.contains("extra_stub_stub"));
}

const SWEEP: &str = "\
duration = \"5min\"
loss_of = \"data\"
[topology]
generator = \"tree\"
depth = 2
fanout = 2
link = { delay = \"5ms\" }
access = { loss = 0 }
[lms]
packets = 40
interval = \"20ms\"
after = \"5s\"
[sweep]
loss = [\"2%\", \"20%\"]
";

#[test]
fn a_sweep_ends_with_tables_plots_and_how_sure_they_are() {
    let (folder, path) = folder_with("losses.toml", SWEEP);
    let out = folder.path().join("out");
    let ran = run(["sim", "run", &path, "--out", out.to_str().unwrap()]);
    let table = &ran.succeeded().stdout;
    assert!(table.starts_with("losses: 2 points, 5 runs each"), "{table}");
    let points: Vec<&str> = table.lines().skip(2).take(2).collect();
    let sure: Vec<&str> = table.lines().skip(4).collect();
    let begin = "latency_rtt: beside the first point (loss = 2%) 1 ";
    assert!(sure[0].starts_with(begin) && sure[0].contains("; widest interval ± "), "{table}");
    assert!(points.iter().all(|line| line.matches(" ± ").count() == 4), "{table}");
    let read = |name: &str| std::fs::read_to_string(out.join(name)).unwrap();
    let sweep = read("sweep.csv");
    assert!(sweep.starts_with("loss,runs,latency_rtt,latency_rtt_low,latency_rtt_high,exposure,"));
    assert_eq!((sweep.lines().count(), read("runs.csv").lines().count()), (3, 11));
    // Ten times the loss is more for certain.
    let differences = read("differences.csv");
    let missed = differences.lines().find(|line| line.starts_with("20%,missed,")).unwrap();
    assert!(missed.ends_with(",higher"), "{missed}");
    assert!(read("figure1.svg").contains("latency_rtt over loss"));
    assert!(read("report.html").contains("5 runs each, with the same seeds at every point"));
    for name in ["receivers.csv", "losses.csv", "recoveries.csv", "links.csv"] {
        assert!(read(name).starts_with("loss,seed,"), "{name}");
    }
    let one_at_a_time = run(["sim", "run", &path, "--jobs", "1"]);
    assert_eq!(one_at_a_time.succeeded().stdout, *table);
    let few = run(["sim", "run", &path, "--seeds", "2"]);
    assert!(few.succeeded().stderr.contains("too few runs to be sure of anything"), "{few:?}");
    let json = run(["sim", "run", &path, "--seeds", "2", "--json"]);
    let events = json.succeeded().json();
    assert_eq!(reports(&events).len(), 4);
    let points = events.iter().filter(|event| event["event"] == "point");
    let losses: Vec<&Value> = points.map(|event| &event["point"]["loss"]).collect();
    assert_eq!(losses, ["2%", "20%"]);
    assert_eq!(json.event("done")["summary"]["points"], 2);
    let checked = run(["sim", "check", &path]);
    assert!(checked.succeeded().stdout.contains("4 receivers, 2 points"), "{checked:?}");
}

#[test]
fn a_mistake_in_a_sweep_is_told_with_its_line() {
    let (_folder, path) = folder_with("bad.toml", &SWEEP.replace("\"20%\"]", "2]"));
    run(["sim", "run", &path])
        .failed_with(&["bad.toml:14: loss = 2 is not a probability between 0 and 1"]);
    let (_folder, path) = folder_with("bad.toml", &SWEEP.replace("loss = [", "los = ["));
    run(["sim", "run", &path]).failed_with(&["bad.toml:14: the file has no key `los`"]);
}

#[test]
fn one_run_has_its_tables_too() {
    let (folder, path) = folder_with("one.toml", &SWEEP[..SWEEP.find("[sweep]").unwrap()]);
    let out = folder.path().join("out");
    let ran = run(["sim", "run", &path, "--out", out.to_str().unwrap(), "--seed", "3"]);
    assert!(ran.succeeded().stdout.contains("latency    –"), "{ran:?}");
    let receivers = std::fs::read_to_string(out.join("receivers.csv")).unwrap();
    assert!(receivers.starts_with("seed,receiver,rtt_s,"), "{receivers}");
    assert_eq!(receivers.lines().count(), 5);
    assert!(!out.join("report.html").exists());
}

#[test]
fn a_trace_of_losses_that_is_too_short_is_an_error() {
    let text = SWEEP[..SWEEP.find("[sweep]").unwrap()].to_owned();
    let drop = "[[drop]]\nlink = [\"r1\", \"r2\"]\ntrace = \"losses.txt\"\n[lms]";
    let (folder, path) = folder_with("short.toml", &text.replace("[lms]", drop));
    std::fs::write(folder.path().join("losses.txt"), "0101\n").unwrap();
    run(["sim", "run", &path]).failed_with(&["losses.txt ends before the run does", "at_end"]);
}

#[test]
fn an_interrupt_shows_what_came_so_far() {
    // A client that loses everything asks forever.
    let text = SCENARIO.replace("10%", "100%").replace("5min", "10000d");
    let (_folder, path) = folder_with("long.toml", &text);
    let running = Running::start(laboratory().args(["sim", "run", &path, "--json"]));
    wait_until("progress", || running.stdout().contains("\"progress\""));
    running.interrupt();
    let ran = running.finish();
    ran.interrupted_with(&["interrupted"]);
    assert_eq!(ran.event("run")["report"]["clients"]["finished"], 0);
    assert!(ran.event("progress")["events"].as_u64().unwrap() > 0);
}
