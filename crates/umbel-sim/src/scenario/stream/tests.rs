use std::path::Path;
use std::time::Duration;

use umbel_topology::Mistake;

use crate::network::NodeId;
use crate::scenario::file::Text;
use crate::scenario::report::{Column, Report, Table};
use crate::scenario::{Lms, Pgm, Scenario, Srm};

/// Two routers below a third, each with two receivers; the left one loses the third packet.
const TREE: &str = r#"duration = "5min"
[topology]
generator = "tree"
depth = 2
fanout = 2
link = { delay = "10ms" }
access = { delay = "1ms" }
[[drop]]
link = ["r1", "r2"]
nth = [3]
[lms]
packets = 10
paper = true
"#;

fn read(text: &str) -> Result<Scenario, Mistake> {
    Scenario::from_toml(text, Path::new(""))
}

fn finished(text: &str, seed: u64) -> Report {
    let mut run = read(text).unwrap().start(seed).unwrap();
    while run.go_on(Duration::from_secs(10)) {}
    run.report()
}

fn integers(table: &Table, name: &str) -> Vec<u64> {
    match table.column(name) {
        Some(Column::Integers(values)) => values.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

fn texts(table: &Table, name: &str) -> Vec<String> {
    match table.column(name) {
        Some(Column::Texts(values)) => values.clone(),
        other => panic!("{name}: {other:?}"),
    }
}

#[test]
fn each_protocol_repairs_what_a_link_was_told_to_lose() {
    for section in ["[lms]", "[srm]", "[pgm]"] {
        let report = finished(&TREE.replace("[lms]", section), 1);
        let results = &report.results;
        assert_eq!((results.clients.count, results.clients.finished), (4, 4), "{section} {report}");
        let losses = results.table("losses").unwrap();
        assert_eq!(losses.rows(), 1, "{section} {losses:?}");
        assert_eq!(integers(losses, "packet"), [2]);
        assert_eq!((integers(losses, "links"), integers(losses, "missed")), (vec![1], vec![2]));
        assert_eq!(
            (texts(losses, "from"), texts(losses, "to")),
            (vec!["r1".to_owned()], vec!["r2".to_owned()])
        );
        // Packets leave each 100 ms, from 30 s on.
        let lost = losses.numbers("lost_s")[0];
        assert!((lost - 30.21).abs() < 0.02, "{section} {lost}");
        assert!(integers(losses, "requests")[0] >= 1 && integers(losses, "repairs")[0] >= 1);
        let latency = results.measure("latency_rtt").unwrap();
        assert!(latency > 0.1 && latency < 10.0, "{section} {latency}");
        assert_eq!(results.measure("missed"), Some(2.0));
        assert_eq!(results.measure("unrepaired"), Some(0.0));
        assert_eq!(results.table("recoveries").unwrap().rows(), 2);
        let receivers = results.table("receivers").unwrap();
        // Routers get receivers in turn: h1 and h3 are below r2.
        assert_eq!(integers(receivers, "missed"), [1, 0, 1, 0]);
        assert!((receivers.numbers("rtt_s")[0] - 0.022).abs() < 1e-9);
        let links = results.table("links").unwrap();
        // Both directions of seven links: of the source, between routers, of receivers.
        assert_eq!(links.rows(), 14);
        assert_eq!(integers(links, "data_packets").iter().sum::<u64>(), 10 * 7 - 2);
        assert!(report.to_string().contains("latency"), "{report}");
    }
}

#[test]
fn the_source_of_pgm_repairs_in_a_round_trip_and_reaches_those_below_alone() {
    let report = finished(&TREE.replace("[lms]", "[pgm]"), 1);
    let results = &report.results;
    let latency = results.measure("latency_rtt").unwrap();
    assert!((latency - 1.0).abs() < 1e-6, "{latency}");
    assert_eq!(results.measure("exposure"), Some(0.0));
    assert_eq!(results.measure("source_repairs_per_loss"), Some(1.0));
    assert_eq!(results.measure("latency_min_rtt"), results.measure("latency_max_rtt"));
}

#[test]
fn without_loss_there_is_nothing_to_measure() {
    for section in ["[lms]", "[srm]", "[pgm]"] {
        let text = TREE.replace("nth = [3]", "nth = []").replace("[lms]", section);
        let results = finished(&text, 1).results;
        assert_eq!(results.measure("latency_rtt"), None);
        assert_eq!((results.measure("missed"), results.measure("losses")), (Some(0.0), Some(0.0)));
        assert_eq!(results.clients.finished, 4);
        assert_eq!(results.table("losses").unwrap().rows(), 0);
    }
}

#[test]
fn a_plan_of_losses_repeats_and_has_patterns_and_joins_chance() {
    let text = TREE
        .replace(
            "link = [\"r1\", \"r2\"]\nnth = [3]",
            "link = [\"r*\", \"h*\"]\nevery = 4\nfirst = 2",
        )
        .replace("packets = 10", "packets = 11");
    let results = finished(&text, 1).results;
    // The 2nd, 6th and 10th packet at each of four receivers.
    let losses = results.table("losses").unwrap();
    assert_eq!(integers(losses, "packet"), [1, 5, 9]);
    assert_eq!((integers(losses, "links"), integers(losses, "missed")), (vec![4; 3], vec![4; 3]));
    let both = text
        .replace("link = { delay", "link = { loss = \"20%\", delay")
        .replace("packets = 11", "packets = 200\ninterval = \"20ms\"");
    let (some, all) = (format!("loss_of = \"data\"\n{both}"), both);
    let [some, all] = [some, all].map(|text| finished(&text, 1));
    for report in [&some, &all] {
        let share = report.results.measure("loss_share").unwrap();
        assert!(share > 0.3 && share < 0.6, "{report}");
        assert_eq!(report.results.measure("unrepaired"), Some(0.0), "{report}");
    }
    assert!(all.network.lost > some.network.lost, "{} {}", all.network.lost, some.network.lost);
}

/// Writes a trace and reads the scenario that loses by it.
fn traced(trace: &str, keys: &str) -> Result<Scenario, Mistake> {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("losses.txt"), trace).unwrap();
    let drop = format!("trace = \"losses.txt\"\n{keys}");
    Scenario::from_toml(&TREE.replace("nth = [3]", &drop), folder.path())
}

#[test]
fn a_trace_says_which_packets_are_lost_and_what_comes_after_it() {
    let trace = "# two of five\n.l.\n 01";
    let lost = |keys: &str| {
        let mut run = traced(trace, keys).unwrap().start(1).unwrap();
        while run.go_on(Duration::from_secs(10)) {}
        let ended = run.ended_trace().map(|file| file.display().to_string());
        (integers(run.report().results.table("losses").unwrap(), "packet"), ended)
    };
    assert_eq!(lost("at_end = \"pass\""), (vec![1, 4], None));
    assert_eq!(lost("at_end = \"repeat\""), (vec![1, 4, 6, 9], None));
    let (_, ended) = lost("");
    assert!(ended.unwrap().ends_with("losses.txt"), "the run ends with an error");
    // One that is long enough is no error.
    let mut run = traced(&".l...".repeat(2), "").unwrap().start(1).unwrap();
    while run.go_on(Duration::from_secs(10)) {}
    assert_eq!(run.ended_trace(), None);
    for (trace, keys, expected) in [
        (
            "01x",
            "",
            "losses.txt:1: `x` is no packet: expected 1 or l for one that is lost, 0 or . for one that is not",
        ),
        ("# nothing", "", "losses.txt: expected at least one packet"),
        ("1", "nth = [1]", "line 11: trace and nth both say which packets are lost"),
        (
            "1",
            "at_end = \"stop\"",
            "line 11: unknown variant `stop`, expected one of `error`, `repeat`, `pass`",
        ),
    ] {
        let found = traced(trace, keys).unwrap_err().to_string();
        assert!(found.ends_with(expected), "{found}");
    }
    let alone = read(&TREE.replace("nth = [3]", "nth = [3]\nat_end = \"pass\"")).unwrap_err();
    assert_eq!(alone.to_string(), "line 11: `at_end` belongs to `trace`");
    let none = read(&TREE.replace("nth = [3]", "trace = \"/none.txt\"")).unwrap_err().to_string();
    assert_eq!(none, "line 10: /none.txt: No such file or directory (os error 2)");
}

#[test]
fn bursts_lose_as_much_in_fewer_places() {
    let text = |burst: u32| {
        let access =
            format!("access = {{ delay = \"1ms\", loss = \"10%\", loss_burst = {burst} }}");
        let text = TREE.replace("access = { delay = \"1ms\" }", &access);
        format!(
            "loss_of = \"data\"\n{}",
            text.replace("packets = 10", "packets = 2000\ninterval = \"10ms\"")
        )
    };
    let runs = |results: &crate::scenario::report::Results| {
        // Packets that follow on one that was lost as well at the first receiver.
        let table = results.table("recoveries").unwrap();
        let (packets, receivers) = (integers(table, "packet"), texts(table, "receiver"));
        let mut lost: Vec<u64> = packets
            .iter()
            .zip(&receivers)
            .filter(|(_, who)| *who == "h1")
            .map(|(p, _)| *p)
            .collect();
        lost.sort_unstable();
        lost.len() as f64
            / (lost.len() - lost.windows(2).filter(|w| w[1] == w[0] + 1).count()) as f64
    };
    for burst in [1, 8] {
        let results = finished(&text(burst), 3).results;
        let share = results.measure("loss_share").unwrap();
        assert!((share - 0.1).abs() < 0.03, "{share}");
        let run = runs(&results);
        let expected = if burst == 1 { 1.0 / 0.9 } else { 8.0 };
        assert!((run / expected - 1.0).abs() < 0.35, "{run} instead of {expected}");
    }
}

#[test]
fn keys_change_the_constants_that_they_name() {
    let with = |section: &str, keys: &str| {
        let text = TREE.replace("paper = true", keys).replace("[lms]", section);
        read(&text).unwrap_or_else(|mistake| panic!("{keys}: {mistake}"))
    };
    let has = |debug: &str, parts: &[&str]| {
        for part in parts {
            assert!(debug.contains(part), "{part} is not in {debug}");
        }
    };
    let lms = with(
        "[lms]",
        "request_delay = \"7ms\"\nrequest_timeout = [\"3ms\", \"4s\"]\nhistory_packets = 77\n\
         cost = \"latency-and-loss\"\nloss_weight = 3\nhorizon = 5\npackets_per_request = 33\n\
         [lms.router]\nstickiness = 0.25\ndeployed = \"50%\"",
    );
    let section: &Lms = lms.section().unwrap();
    let debug = format!("{section:?}");
    let parts = [
        "request_delay: 7ms",
        "request_timeout: (3ms, 4s)",
        "units: 77",
        "LatencyAndLoss { weight: 3.0 }",
        "horizon: Back(5)",
        "units_per_request: 33",
        "stickiness: 0.25",
        "deployed: 0.5",
    ];
    has(&debug, &parts);
    assert_eq!(debug.matches("units: 77").count(), 2, "source and receivers answer alike");
    let srm = with(
        "[srm]",
        "request_timer = [1, 3]\nrepair_timer = [2, 5]\nheartbeat = false\nsession_rate = \"9k\"\n\
         know_distances = true\nhistory_bytes = \"3kB\"",
    );
    let parts = [
        "request_timer: (1.0, 3.0)",
        "repair_timer: Some((2.0, 5.0))",
        "heartbeat: None",
        "know_distances: true",
        "history: (4096, 3000)",
    ];
    has(&format!("{:?}", srm.section::<Srm>().unwrap()), &parts);
    let pgm = with("[pgm]", "wait = \"1ms\"\nnak_backoff = \"0s\"\n[pgm.router]\nnak_retries = 4");
    let parts = ["wait: 1ms", "nak_backoff: 0ns", "nak_retries: 4"];
    has(&format!("{:?}", pgm.section::<Pgm>().unwrap()), &parts);
}

#[test]
fn the_stream_is_that_of_the_section() {
    let text = TREE.replace(
        "packets = 10",
        "sends = [\"1s\", \"3s\", \"3s\"]\nsource = \"h4\"\nreceivers = [\"h1\", \"source\"]\n\
         packet_size = 64\nafter = \"2s\"",
    );
    let scenario = read(&text).unwrap();
    let Lms { stream, .. } = scenario.section().unwrap();
    assert_eq!(NodeId::named(&scenario.topology, "h4"), Some(stream.source));
    assert_eq!(stream.receivers.len(), 2);
    assert_eq!(stream.sends, [1, 3, 3].map(Duration::from_secs));
    assert_eq!((stream.packet_len, scenario.ends()), (64, Duration::from_secs(5)));
}

#[test]
fn every_mistake_has_its_line_and_says_what_was_expected() {
    let mut wrong = Vec::new();
    for (what, with, expected) in [
        (
            "packets = 10",
            "",
            "line 11: `packets` is missing: expected the number of packets of the stream",
        ),
        ("packets = 10", "packets = 0", "line 12: no packets: expected at least 1"),
        ("packets = 10", "packets = -1", "line 12: invalid value: integer `-1`, expected u32"),
        (
            "packets = 10",
            "packets = 4000000000",
            "line 12: packets = 4000000000: at most 10000000 fit",
        ),
        (
            "packets = 10",
            "packets = 10\nsends = []",
            "line 12: packets and sends both say how many packets there are",
        ),
        ("packets = 10", "sends = [\"2s\", \"1s\"]", "line 12: sends: expected ascending times"),
        ("packets = 10", "packets = 10\ninterval = \"0s\"", "line 13: expected a time above 0"),
        (
            "packets = 10",
            "packets = 10\ninterval = \"1min\"",
            "line 12: the last packet leaves after 570s, and the run ends after 300s: expected fewer packets, or a longer `duration`",
        ),
        (
            "packets = 10",
            "packets = 10\npacket_size = \"2kB\"",
            "line 13: packet_size = 2.0 kB: expected 1 to 1400 bytes",
        ),
        (
            "packets = 10",
            "packets = 10\nsource = \"r1\"",
            "line 13: `r1` is a router: expected a host",
        ),
        (
            "packets = 10",
            "packets = 10\nreceivers = [\"source\"]",
            "line 13: `source` is the source and cannot be a receiver",
        ),
        ("packets = 10", "packets = 10\nreceivers = []", "line 13: expected at least one receiver"),
        (
            "packets = 10",
            "packets = 10\ncost = \"low\"",
            "line 13: unknown variant `low`, expected one of `latency`, `latency-and-loss`, `distance`",
        ),
        (
            "packets = 10",
            "packets = 10\nrequest_jitter = 2",
            "line 13: 2: expected a share from 0 to 1",
        ),
        (
            "packets = 10",
            "packets = 10\nrequest_timeout_rtts = -1.0",
            "line 13: -1: expected a number from 0 to 1000000",
        ),
        (
            "packets = 10",
            "packets = 10\nrequest_timeout = [\"2s\", \"1s\"]",
            "line 13: expected the least time before the greatest",
        ),
        ("packets = 10", "packets = 10\nqueue = 0", "line 13: expected at least 1"),
        ("packets = 10", "packets = 10\npackets_per_request = 34", "line 13: 34: expected 1 to 33"),
        (
            "packets = 10",
            "packets = 10\nrouter = 3",
            "line 13: `lms.router` is a section: expected [lms.router]",
        ),
        (
            "paper = true",
            "paper = true\n[lms.router]\nstickyness = 3",
            "line 15: [lms.router] takes no `stickyness`, but source_as_replier, offer_lifetime, advertise_every, advertise_gap, stickiness, set_size, solicit_timeout, solicits, solicit_gap, tag_lifetime, requests_per_s, requests_burst, dmcasts_per_s, dmcasts_burst, channels, deployed",
        ),
        ("nth = [3]", "nth = [3, 0]", "line 10: packets are counted from 1: expected at least 1"),
        ("nth = [3]", "every = 0", "line 10: packets are counted from 1: expected at least 1"),
        (
            "nth = [3]",
            "nth = [3]\nevery = 2",
            "line 11: nth and every both say which packets are lost",
        ),
        (
            "nth = [3]",
            "nth = [3]\nfirst = 2",
            "line 11: `first` belongs to `every`: with `nth` all numbers are written",
        ),
        (
            "nth = [3]",
            "",
            "line 9: expected `nth`, the numbers of the packets to lose, or `every`, or `trace`",
        ),
        (
            "nth = [3]",
            "nth = [3]\nof = \"naks\"",
            "line 11: unknown variant `naks`, expected one of `data`, `repair`, `request`, `control`, `all`",
        ),
        (
            "\"r2\"]",
            "\"r4\"]",
            "line 9: no node is called `r4`: there are source, h1, h2, h3, h4, r1, r2, r3",
        ),
        (
            "\"r2\"]",
            "\"h1\"]",
            "line 9: no link joins `r1` and `h1`: `r1` has links to r2, r3, source",
        ),
        ("\"r2\"]", "\"x*\"]", "line 9: no link goes from `r1` to `x*`"),
        (
            "duration = \"5min\"",
            "duration = \"5min\"\nsrm = { packets = 3 }",
            "line 2: [lms] and [srm]: a scenario has one protocol",
        ),
    ] {
        assert!(TREE.contains(what), "{what}");
        let found = match read(&TREE.replacen(what, with, 1)) {
            Ok(_) => "accepted".to_owned(),
            Err(mistake) => mistake.to_string(),
        };
        if found != expected {
            wrong.push(format!("{with}:\n  {found}\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_documentation_has_every_key() {
    let docs = include_str!("../../../../../docs/laboratory/simulator.md");
    for (section, keys, within) in [
        ("lms", "packets = 1", ""),
        ("lms", "packets = 1", ".router"),
        ("srm", "packets = 1", ""),
        ("pgm", "packets = 1", ""),
        ("pgm", "packets = 1", ".router"),
        ("tmtp", "packets = 1\nrate = \"1M\"", ""),
        ("basep", "packets = 1", ""),
        ("rlm", "", ""),
        ("rlm", "", ".delay"),
        ("smo", "size = 5", ""),
        ("smo", "size = 5", ".receiver"),
    ] {
        let within_it =
            if within.is_empty() { String::new() } else { format!("[{section}{within}]\n") };
        let text = format!(
            "topology = {{ generator = \"star\", receivers = 1 }}\n[{section}]\n{keys}\n{within_it}\
             unheard_of = 1\n"
        );
        // Messages to users leave out most keys.
        let text = Text(&text);
        let table = text.table().unwrap();
        let read = Scenario::from_table(&text, &table, Path::new(""));
        let message = read.unwrap_err().to_string();
        let (_, keys) = message.split_once(", but ").unwrap_or_else(|| panic!("{message}"));
        let missing: Vec<&str> =
            keys.split(", ").filter(|key| !docs.contains(&format!("`{key}`"))).collect();
        assert!(
            missing.is_empty(),
            "docs/laboratory/simulator.md lacks keys of [{section}{within}]: {missing:?}"
        );
    }
}
