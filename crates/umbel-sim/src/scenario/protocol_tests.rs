//! Tests of the sections of TMTP, BASEP, RLM and TCP-SMO.

use std::path::Path;
use std::time::Duration;

use umbel_topology::Mistake;

use super::report::{Column, Report, Results};
use super::{Scenario, Tmtp};

/// Two routers below a third, each with two receivers.
const TREE: &str = "[topology]\ngenerator = \"tree\"\ndepth = 2\nfanout = 2\n\
                    link = { delay = \"10ms\" }\naccess = { delay = \"1ms\", loss = 0 }\n";

const TMTP: &str = "[tmtp]\nrate = \"200k\"\npackets = 50\nstart = \"30s\"\n";
const BASEP: &str = "[basep]\npackets = 20\nwindow = 5\n";
const RLM: &str = "[rlm]\nlength = \"3min\"\nstarts = [\"1s\", \"2s\"]\nmeasured = \"1min\"\n";
const SMO: &str = "[smo]\nsize = \"300kB\"\nper_host = 2\n";

fn read(text: &str) -> Result<Scenario, Mistake> {
    Scenario::from_toml(text, Path::new(""))
}

fn finished(text: &str, step: Duration) -> Report {
    let mut run = read(text).unwrap_or_else(|mistake| panic!("{mistake}")).start(1).unwrap();
    while run.go_on(step) {}
    run.report()
}

fn results(text: &str) -> Results {
    finished(text, Duration::from_secs(1)).results
}

fn measure(results: &Results, name: &str) -> f64 {
    results.measure(name).unwrap_or_else(|| panic!("{name}: {:?}", results.measures))
}

#[test]
fn a_file_comes_whole_by_each_protocol_with_and_without_loss() {
    for section in [TMTP, BASEP, SMO] {
        let clean = results(&format!("{TREE}{section}"));
        let lossy = results(&format!("{}{section}", TREE.replace("loss = 0", "loss = \"5%\"")));
        for results in [&clean, &lossy] {
            assert_eq!(results.clients.finished, results.clients.count, "{section} {results:?}");
            assert!((measure(results, "finished_share") - 1.0).abs() < 1e-12);
            assert!(results.table("receivers").unwrap().rows() >= 4);
            assert_eq!(results.table("links").unwrap().rows(), 14);
            assert!(!results.text.is_empty());
        }
        let (fast, slow) = (measure(&clean, "delay_max_s"), measure(&lossy, "delay_max_s"));
        assert!(fast > 0.0 && slow > fast, "{section} {fast} {slow}");
    }
}

#[test]
fn a_run_that_is_done_ends_at_the_same_time_in_steps_of_any_length() {
    for section in [TMTP, BASEP, SMO] {
        let text = format!("{}{section}", TREE.replace("loss = 0", "loss = \"5%\""));
        let long = finished(&text, Duration::from_secs(50));
        let short = finished(&text, Duration::from_millis(37));
        assert_eq!(long.simulated_s.to_bits(), short.simulated_s.to_bits(), "{section}");
        assert_eq!(long, short, "{section}");
        assert!(long.simulated_s < 200.0, "it ends before its limit: {long}");
    }
}

#[test]
fn managers_of_tmtp_repair_for_others_and_the_paper_has_its_timing() {
    let text = format!("{}{TMTP}", TREE.replace("loss = 0", "loss = \"10%\""));
    let results = results(&text);
    assert!(measure(&results, "managers") >= 2.0 && measure(&results, "depth") >= 1.0);
    assert!(measure(&results, "other_repairs") + measure(&results, "source_repairs") > 0.0);
    let receivers = results.table("receivers").unwrap();
    let Some(Column::Texts(roles)) = receivers.column("role") else { panic!() };
    assert!(roles.iter().any(|role| role == "manager"), "{roles:?}");
    let debug = |keys: &str| {
        let scenario = read(&format!("{TREE}{TMTP}{keys}")).unwrap();
        format!("{:?}", scenario.section::<Tmtp>().unwrap())
    };
    let paper = debug("paper = true\nmax_children = 3\nrings = [1, 4]\nnack_delay = 2.5\n");
    for part in ["t_ack: 1.1s", "max_children: 3", "rings: [1, 4]", "nack_delay: 2.5"] {
        assert!(paper.contains(part), "{part}: {paper}");
    }
    assert!(debug("paper = true\nt_ack = \"9ms\"\nwindow = 5\n").contains("t_ack: 9ms"));
}

#[test]
fn helpers_of_tmtp_have_a_rate_and_may_be_the_source() {
    let lossy = TREE.replace("loss = 0", "loss = \"10%\"");
    let results = |keys: &str| {
        results(&format!("{lossy}[tmtp]\nrate = \"200k\"\npackets = 500\nblock = 16\n{keys}\n"))
    };
    let is_replier = results("recovery = \"lms\"");
    let is_none = results("recovery = \"lms\"\nsource_as_replier = false");
    let by_source = |results| measure(results, "source_repairs");
    assert!(by_source(&is_none) < by_source(&is_replier) / 2.0, "{is_none:?} {is_replier:?}");
    // Helpers that are slow leave more to the source.
    let [fast, slow] = ["1M", "20k"]
        .map(|rate| results(&format!("recovery = \"srm\"\nfec = true\nrepair_rate = \"{rate}\"")));
    assert!(by_source(&slow) > 1.3 * by_source(&fast), "{slow:?} {fast:?}");
}

#[test]
fn receivers_of_rlm_find_the_level_of_their_path() {
    let narrow = TREE.replace(
        "link = { delay = \"10ms\" }",
        "link = { delay = \"10ms\", rate = \"300k\", queue = 20 }",
    );
    let results = results(&format!("{narrow}{RLM}"));
    // 32, 64 and 128 kb/s fit 300 kb/s.
    assert!((measure(&results, "best_level") - 3.0).abs() < 1e-12);
    let level = measure(&results, "level");
    assert!((level - 3.0).abs() < 0.5, "{level}");
    assert_eq!(results.clients.finished, 4, "{results:?}");
    assert!(measure(&results, "loss") < 0.1 && measure(&results, "experiments") > 0.0);
    let rate = measure(&results, "rate_bit_s");
    assert!((150e3..320e3).contains(&rate), "{rate}");
    assert!(results.table("levels").unwrap().rows() >= 12);
    let wide =
        self::results(&format!("{TREE}{RLM}rates = [\"32k\", \"64k\"]\ncontroller = \"delay\"\n"));
    assert!((measure(&wide, "best_level") - 2.0).abs() < 1e-12);
}

#[test]
fn every_mistake_has_its_line_and_says_what_was_expected() {
    let mut wrong = Vec::new();
    for (section, with, expected) in [
        (TMTP, "block = 0", "line 11: expected at least 1"),
        (TMTP, "packet_size = 2000", "line 7: packet_size = 2000: at most 1400 bytes fit"),
        (TMTP, "rings = [4, 2]", "line 7: [tmtp]: "),
        (
            TMTP,
            "recovery = \"none\"",
            "line 11: unknown variant `none`, expected one of `tree`, `lms`, `srm`, `source`",
        ),
        (TMTP, "windows = 3", "line 11: [tmtp] takes no `windows`; `window` may be meant;"),
        (TMTP, "source = \"h9\"", "line 11: no host is called `h9`"),
        (TMTP, "window = true", "line 11: expected a value, or false"),
        (BASEP, "timeout = \"0s\"", "line 10: expected a time above 0"),
        (
            BASEP,
            "receivers = [\"source\"]",
            "line 10: `source` is the source and cannot be a receiver",
        ),
        (RLM, "rates = []", "line 11: 0 layers: expected 1 to 16"),
        (RLM, "rates = [\"fast\"]", "line 11: `fast` is not a rate"),
        (RLM, "peak = 3.0", "line 11: `peak` belongs to traffic = \"bursts\""),
        (
            RLM,
            "traffic = \"bursts\"",
            "line 7: bursts need `peak`, how far the greatest rate is above the mean: expected at least 1",
        ),
        (RLM, "[rlm.delay]\nfoo = 1", "line 12: [rlm.delay] takes no `foo`, but threshold"),
        (SMO, "frames = 3", "line 8: size and frames both say how much is sent"),
        (SMO, "mss = 9000", "line 10: mss = 9000: at most 1460 fit"),
        (
            SMO,
            "fairness_bounds = [1.0, 2.0]",
            "line 10: fairness_bounds belong to fairness = \"essential\"",
        ),
        (SMO, "[smo.receiver]\nacks = 1", "line 11: [smo.receiver] takes no `acks`, but sack"),
    ] {
        let found = match read(&format!("{TREE}{section}{with}\n")) {
            Ok(_) => "accepted".to_owned(),
            Err(mistake) => mistake.to_string(),
        };
        if !found.starts_with(expected) {
            wrong.push(format!("{with}:\n  {found}\n  {expected}"));
        }
    }
    let late = RLM.replace("\"2s\"", "\"4min\"");
    let late = read(&format!("{TREE}{late}")).unwrap_err().to_string();
    assert!(late.starts_with("line 9: the last receiver starts after 240s"), "{late}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
