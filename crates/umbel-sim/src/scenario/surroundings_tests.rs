//! Tests of what any protocol can have around it: queues of links, and hosts that come and go.

use std::path::Path;
use std::time::Duration;

use umbel_topology::Mistake;

use super::Scenario;
use super::report::Report;
use crate::link::{Queue, RedConfig};

/// A source and four receivers at both ends of a narrow link.
const DUMBBELL: &str = "duration = \"10min\"\n[topology]\ngenerator = \"dumbbell\"\nreceivers = 4\n\
    link = { rate = \"400k\", queue = 30, delay = \"10ms\" }\naccess = { delay = \"1ms\" }\n";

/// A section for each protocol, which sends at least as fast as the link goes for some time.
const PROTOCOLS: [&str; 8] = [
    "[repository]\nrate = \"500k\"\nitems = 4\nitem_packets = 30\n",
    "[lms]\npackets = 300\ninterval = \"20ms\"\nstart = \"10s\"\nafter = \"2min\"\n",
    "[srm]\npackets = 300\ninterval = \"20ms\"\nstart = \"10s\"\nafter = \"2min\"\n",
    "[pgm]\npackets = 300\ninterval = \"20ms\"\nstart = \"10s\"\nafter = \"2min\"\n",
    "[tmtp]\nrate = \"500k\"\npackets = 300\nstart = \"10s\"\n",
    "[basep]\npackets = 60\n",
    "[rlm]\nlength = \"2min\"\nstarts = [\"1s\", \"2s\"]\nmeasured = \"1min\"\n",
    "[smo]\nsize = \"600kB\"\n",
];

fn read(text: &str) -> Result<Scenario, Mistake> {
    Scenario::from_toml(text, Path::new(""))
}

fn finished(text: &str, seed: u64) -> Report {
    let mut run = read(text).unwrap_or_else(|mistake| panic!("{mistake}")).start(seed).unwrap();
    while run.go_on(Duration::from_secs(5)) {}
    assert_eq!(run.stuck(), None);
    run.report()
}

#[test]
fn every_protocol_runs_over_queues_of_each_kind() {
    const RED: &str = "red = [3, 9]\nmax_probability = \"20%\"\nweight = 0.02\n";
    for section in PROTOCOLS {
        let with = |queue: &str| {
            let queue = format!("[[queue]]\nlink = [\"left\", \"right\"]\n{queue}");
            finished(&format!("{DUMBBELL}{queue}{section}"), 1)
        };
        let (red, tail, wide) = (with(RED), with("packets = 9\n"), with("bytes = \"50MB\"\n"));
        for report in [&red, &tail] {
            assert!(report.network.queue_drops > 0, "{section} {report}");
        }
        assert_eq!(wide.network.queue_drops, 0, "{section} {wide}");
        assert_ne!(red.network, tail.network, "{section}");
    }
}

#[test]
fn every_protocol_has_receivers_that_come_and_go() {
    for section in PROTOCOLS {
        let churn =
            "[[churn]]\nhosts = [\"h*\"]\nhere = \"4s\"\naway = \"800ms\"\nuntil = \"40s\"\n";
        let text = format!("{DUMBBELL}{churn}{section}");
        let report = finished(&text, 1);
        assert!(report.network.down > 0, "{section} {report}");
        assert_eq!(report, finished(&text, 1), "{section}");
        assert_ne!(report.network, finished(&text, 2).network, "{section}");
        // Nobody is away after 40 s. Units that were missed meanwhile come in the end.
        if let Some(unrepaired) = report.results.measure("unrepaired") {
            assert!(unrepaired.abs() < 1e-9, "{section} {report}");
        } else if !section.starts_with("[rlm]") {
            let clients = &report.results.clients;
            assert_eq!(clients.finished, clients.count, "{section} {report}");
        }
    }
}

#[test]
fn who_goes_for_good_does_not_come_back_and_others_are_not_touched() {
    let churn = "[[churn]]\nhosts = [\"h1\", \"h2\"]\nhere = \"1s\"\nfrom = \"11s\"\n";
    let report = finished(&format!("{DUMBBELL}{churn}{}", PROTOCOLS[1]), 1);
    assert_eq!((report.results.clients.count, report.results.clients.finished), (4, 2), "{report}");
    let scenario = read(&format!("{DUMBBELL}{churn}{}", PROTOCOLS[1])).unwrap();
    let away = |seed| scenario.schedules(seed);
    assert_eq!(away(1).len(), 2);
    for schedule in away(1).values() {
        let &[(at, up)] = &schedule[..] else { panic!("{schedule:?}") };
        assert!(!up && at >= umbel_engine::Instant::EPOCH + Duration::from_secs(11));
    }
    assert_ne!(away(1), away(2));
}

#[test]
fn a_host_is_there_and_away_for_times_with_the_means_that_are_written() {
    let churn = "[[churn]]\nhosts = [\"h*\"]\nhere = \"3s\"\naway = \"1s\"\n";
    let mut long = read(&format!("{DUMBBELL}{churn}{}", PROTOCOLS[0])).unwrap();
    long.duration = Duration::from_hours(10);
    for (link, schedule) in long.schedules(1) {
        let times: Vec<f64> =
            schedule.windows(2).map(|pair| (pair[1].0 - pair[0].0).as_secs_f64()).collect();
        let mean = |offset| {
            let every: Vec<f64> = times.iter().skip(offset).step_by(2).copied().collect();
            every.iter().sum::<f64>() / every.len() as f64
        };
        // Some 9,000 times of each kind: three standard deviations are 3 %.
        let (away, here) = (mean(0), mean(1));
        assert!((away - 1.0).abs() < 0.04 && (here - 3.0).abs() < 0.12, "{link} {away} {here}");
    }
}

#[test]
fn red_takes_its_numbers_and_a_queue_the_direction_that_is_written() {
    let queue = "[[queue]]\nlink = [\"right\", \"left\"]\nred = [5, 15]\npackets = 40\n\
                 gentle = false\nmean_packet = 500\n";
    let scenario = read(&format!("{DUMBBELL}{queue}{}", PROTOCOLS[1])).unwrap();
    let [queue] = &scenario.queues[..] else { panic!() };
    let Queue::Red(red) = queue.queue else { panic!("{queue:?}") };
    let expected = RedConfig { limit: 40, gentle: false, ..RedConfig::new(5.0, 15.0) };
    assert_eq!(RedConfig { mean_packet: expected.mean_packet, ..red }, expected);
    assert_eq!(red.mean_packet.0, 500);
    let network = scenario.network().unwrap();
    let (link, from) = queue.links[0];
    let (a, _) = network.ends(link);
    let (there, back) = network.specs(link);
    let (own, other) = if from == a { (there, back) } else { (back, there) };
    assert_eq!((own.queue, other.queue), (Queue::Red(red), Queue::DropTailPackets(30)));
}

#[test]
fn every_mistake_has_its_line_and_says_what_was_expected() {
    let left = "[[queue]]\nlink = [\"left\", \"right\"]\n";
    for (what, expected) in [
        (left.to_owned(), "line 8: expected `packets` or `bytes`, which the queue holds at most"),
        (format!("{left}red = [9, 3]"), "line 9: red = [9, 3]: expected two lengths in packets"),
        (format!("{left}red = [3]"), "line 9: "),
        (format!("{left}packets = 0"), "line 9: expected at least 1"),
        (
            format!("{left}packets = 3\nbytes = 9"),
            "line 10: packets and bytes both bound the queue",
        ),
        (format!("{left}packets = 3\nweight = 0.1"), "line 10: `weight` belongs to `red`"),
        (format!("{left}red = [3, 9]\nweight = 3"), "line 10: 3: expected a share from 0 to 1"),
        (
            format!("{left}red = [3, 9]\nbytes = 9"),
            "line 10: RED counts packets: expected `packets`",
        ),
        ("[[queue]]\nlink = [\"right\", \"h1\"]\npackets = 3".to_owned(), "line 8: link "),
        ("[[queue]]\nlink = [\"left\", \"x*\"]\nred = [1, 2]".to_owned(), "line 8: no link goes"),
        (
            "[[churn]]\nhosts = [\"x*\"]\nhere = \"1s\"".to_owned(),
            "line 8: no host matches `x*`: there",
        ),
        ("[[churn]]\nhosts = []\nhere = \"1s\"".to_owned(), "line 8: expected at least one host"),
        (
            "[[churn]]\nhosts = [\"h*\", \"h1\"]\nhere = \"1s\"".to_owned(),
            "line 8: `h1` comes and goes",
        ),
        (
            "[[churn]]\nhosts = [\"h1\"]\nhere = \"0s\"".to_owned(),
            "line 9: expected a time above 0",
        ),
        (
            "[[churn]]\nhosts = [\"h1\"]\nhere = \"1s\"\nfrom = \"5s\"\nuntil = \"5s\"".to_owned(),
            "line 11: 5s is not after `from` = 5s",
        ),
    ] {
        let text = format!("{DUMBBELL}{what}\n{}", PROTOCOLS[1]);
        let found = match read(&text) {
            Ok(_) => "accepted".to_owned(),
            Err(mistake) => mistake.to_string(),
        };
        assert!(found.starts_with(expected), "{what}:\n  {found}\n  {expected}");
    }
}
