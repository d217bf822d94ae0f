use std::path::Path;
use std::time::Duration;

use super::*;
use crate::trace::HashTracer;

/// Three clients of a star, one of them late.
const SMALL: &str = r#"
duration = "10min"
topology = { generator = "star", receivers = 3, access = { loss = "10%", delay = "5ms" } }

[repository]
rate = "1M"
items = 8
item_packets = 40

[[repository.clients]]
name = "early"
hosts = ["h1", "h2"]

[[repository.clients]]
name = "late"
hosts = ["h3"]
start = "1s"
want = 3
"#;

fn scenario(text: &str) -> Scenario {
    Scenario::from_toml(text, Path::new("")).unwrap()
}

fn finished(scenario: &Scenario, seed: u64) -> Report {
    let mut run = scenario.start(seed).unwrap();
    while run.go_on(Duration::from_secs(1)) {}
    run.report()
}

#[test]
fn a_scenario_runs_until_nothing_is_left_to_do() {
    let report = finished(&scenario(SMALL), 1);
    assert_eq!((report.results.clients.count, report.results.clients.finished), (3, 3), "{report}");
    assert!(report.simulated_s < 120.0, "it ends long before the time is up: {report}");
    let [early, late] = &report.results.groups[..] else { panic!() };
    assert_eq!((early.name.as_str(), early.count, late.count), ("early", 2, 1));
    // 8 items of 40 packets of 11.2 ms, and about a tenth more.
    let mean = early.mean_s.unwrap();
    assert!((3.6..6.0).contains(&mean), "{mean}");
    assert!(late.mean_s < early.mean_s);
    let packets = report.results.measure("data_packets").unwrap();
    let bytes = report.results.measure("data_bytes").unwrap();
    assert!(packets > 320.0 && bytes > f64::from(320 * 1400 - 8 * 40 * 24));
    assert!(report.network.lost > 0 && report.network.queue_drops == 0);
}

#[test]
fn a_rate_that_is_found_is_that_of_the_narrow_link() {
    let network = r#"
[topology]
generator = "dumbbell"
receivers = 3
link = { rate = "10M", delay = "10ms", queue = 50, loss = "1%" }
"#;
    for protocol in [
        "[repository]\nrate = \"auto\"\nitems = 1\nitem_size = \"10MB\"",
        "[tmtp]\nrate = \"auto\"\npackets = 10000\nblock = 32\nfec = true\nstart = \"5s\"",
    ] {
        let report = finished(&scenario(&format!("{network}{protocol}")), 1);
        let delay = report.results.clients.max_s.unwrap();
        let sent = report.results.measure("sent_per_needed").unwrap();
        // 8 s for the bytes; with headers, losses and the start.
        assert!((8.0..11.0).contains(&delay) && (1.0..1.2).contains(&sent), "{protocol}: {report}");
    }
}

/// The fast ones are done before the slow one's first packets are through its queue.
#[test]
fn one_slow_receiver_costs_the_others_nothing_and_is_not_flooded() {
    let text = include_str!("../../../../examples/sim/slow-receiver.toml");
    let alike = finished(&scenario(&text.replace("\"1M\"", "\"1G\"")), 1);
    let others = |report: &Report| report.results.clients.median_s.unwrap();
    for (rate, ideal) in [("1M", 41.0), ("10M", 4.1)] {
        let report = finished(&scenario(&text.replace("\"1M\"", &format!("{rate:?}"))), 1);
        assert!(others(&report) < others(&alike) * 1.05, "{rate}: {report}");
        let slow = report.results.clients.max_s.unwrap();
        assert!(slow < ideal * 1.3 + 1.5, "{rate}: {report}");
        // The file for all, and again for the slow one; and what its queue did not take at first.
        let sent = report.results.measure("data_bytes").unwrap() / 5e6;
        assert!(sent < 3.0, "{rate}: {report}");
    }
}

#[test]
fn equal_seeds_give_equal_runs_in_steps_of_any_length() {
    let scenario = scenario(SMALL);
    let hash = |seed, step| {
        let mut run = scenario.start(seed).unwrap();
        run.set_tracer(Box::new(HashTracer::new()));
        while run.go_on(step) {}
        let tracer: Box<dyn std::any::Any> = run.finish_trace().unwrap().unwrap();
        (tracer.downcast::<HashTracer>().unwrap().digest(), run.report())
    };
    let (first, report) = hash(1, Duration::from_millis(7));
    let (again, same) = hash(1, Duration::from_secs(3));
    assert_eq!((first, &report), (again, &same));
    assert_ne!(first, hash(2, Duration::from_secs(3)).0);
}

#[test]
fn a_cut_link_delays_those_behind_it() {
    let cut = "\n[[cut]]\nlink = [\"hub\", \"h1\"]\nfrom = \"1s\"\nuntil = \"9s\"\n";
    let plain = scenario(&SMALL.replace("10%", "0%"));
    let with_cut = scenario(&(SMALL.replace("10%", "0%") + cut));
    let (plain, with_cut) = (finished(&plain, 1), finished(&with_cut, 1));
    assert!(plain.results.clients.max_s.unwrap() < 6.0, "{plain}");
    assert!(with_cut.results.clients.max_s.unwrap() > 9.0, "{with_cut}");
    assert_eq!(with_cut.results.clients.finished, 3);
    assert!(with_cut.network.down > 0);
}

#[test]
fn clients_that_leave_and_runs_that_end_leave_items_behind() {
    let leaving = SMALL.replace("name = \"early\"", "name = \"early\"\nleave_after = \"500ms\"");
    let report = finished(&scenario(&leaving), 1);
    assert_eq!(
        (report.results.groups[0].finished, report.results.groups[1].finished),
        (0, 1),
        "{report}"
    );
    assert_eq!(report.results.groups[0].mean_s, None);
    let short = finished(&scenario(&SMALL.replace("10min", "2s")), 1);
    assert_eq!(short.results.groups[0].finished, 0);
    assert!((short.simulated_s - 2.0).abs() < 1e-9);
}

#[test]
fn messages_take_the_time_of_the_path_unless_the_scenario_says_otherwise() {
    let small = SMALL.replace("10%", "0%");
    let first = |text: &str| finished(&scenario(text), 1).results.groups[1].mean_s.unwrap();
    let near = first(&small.replace("5ms", "0ms"));
    let far = first(&small.replace("5ms", "400ms"));
    let slow = first(&(small.replace("5ms", "0ms") + "\n[sessions]\nmin = \"400ms\"\n"));
    // The request and the notice of the transmission take a round trip at least.
    assert!(far > near + 0.8, "{near} {far}");
    assert!(slow > near + 0.8, "{near} {slow}");
}

#[test]
fn what_no_simulation_does_is_said_before_it_starts() {
    let reordering = SMALL.replace("loss = \"10%\"", "reorder = 0.1");
    let mistake = scenario(&reordering).start(1).unwrap_err().to_string();
    assert_eq!(mistake, "link hub–h1: simulated links have no `reorder`: leave it to the lab");
}

fn examples() -> Vec<std::path::PathBuf> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/sim");
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.filter(|path| path.extension().is_some_and(|extension| extension == "toml")).collect()
}

#[test]
fn every_example_can_be_started() {
    for path in examples() {
        let study = Study::from_file(&path).unwrap_or_else(|mistake| panic!("{mistake}"));
        let scenario = study.scenario(study.points() - 1).unwrap();
        let mut run = scenario.start(scenario.seed).unwrap();
        while run.go_on(Duration::from_secs(2)) && run.counters().sent == 0 {}
        assert!(run.counters().sent > 0, "{}", path.display());
        assert!(!run.report().results.measures.is_empty());
    }
    assert!(examples().len() >= 11);
}

#[test]
#[ignore = "takes minutes: each example to its end, at all points of its sweep, with two seeds"]
fn every_example_runs_to_its_end_with_few_seeds() {
    for path in examples() {
        let study = Study::from_file(&path).unwrap();
        for (point, seed) in (0..study.points()).flat_map(|point| [(point, 1), (point, 2)]) {
            let scenario = study.scenario_of(point, Some(seed)).unwrap();
            let mut run = scenario.start(seed).unwrap();
            while run.go_on(Duration::from_secs(10)) {}
            let results = run.report().results;
            let place =
                format!("{}, {}, seed {seed}: {results:?}", path.display(), study.label(point));
            assert_eq!(run.stuck(), None, "{place}");
            assert!(results.clients.count > 0, "{place}");
            // All are reliable but RLM, whose receivers need not converge.
            if scenario.section::<Rlm>().is_none() {
                assert_eq!(results.clients.finished, results.clients.count, "{place}");
            }
        }
    }
}

#[test]
fn the_scenario_of_the_documentation_runs() {
    let text = include_str!("../../../../docs/laboratory/simulator.md");
    let begin = text.find("```toml\n").unwrap() + "```toml\n".len();
    let end = begin + text[begin..].find("```").unwrap();
    let scenario = scenario(&text[begin..end]);
    assert_eq!(scenario.name, "lecture");
    let mut run = scenario.start(1).unwrap();
    run.go_on(Duration::from_secs(15));
    assert!(run.counters().down > 0);
}
