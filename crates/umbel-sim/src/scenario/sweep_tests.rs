use std::path::Path;

use super::*;
use crate::scenario::{Lms, Repository};

const LMS: &str = r#"duration = "5min"
[topology]
generator = "tree"
depth = 2
fanout = 2
link = { delay = "10ms" }
access = { delay = "1ms", loss = "5%" }
[lms]
packets = 10
[sweep]
loss = ["1%", 0.05, "20%"]
packets = [4, 8]
seeds = 7
"#;

fn study(text: &str) -> Result<Study, Mistake> {
    Study::from_toml(text, Path::new(""))
}

#[test]
fn a_sweep_is_the_product_of_its_keys() {
    let study = study(LMS).unwrap();
    assert_eq!((study.points(), study.seeds()), (6, Some(7)));
    let [loss, packets] = study.axes() else { panic!() };
    assert_eq!(
        (loss.name.as_str(), &loss.labels[..]),
        ("loss", &["1%", "0.05", "20%"].map(String::from)[..])
    );
    assert_eq!(loss.numbers, Some(vec![0.01, 0.05, 0.2]));
    assert_eq!(packets.numbers, Some(vec![4.0, 8.0]));
    assert_eq!(study.label(3), "loss = 0.05, packets = 8");
    for point in 0..6 {
        let scenario = study.scenario(point).unwrap();
        let section: &Lms = scenario.section().unwrap();
        assert_eq!(section.stream.sends.len(), [4, 8][point % 2]);
        let access = scenario.topology.links.last().unwrap();
        assert!((access.a_to_b.loss - [0.01, 0.05, 0.2][point / 2]).abs() < 1e-12);
    }
}

#[test]
fn a_margin_is_a_share_and_no_key_that_is_varied() {
    let within = |text: &str| {
        let study = study(&LMS.replace("seeds = 7", &format!("seeds = 7\nsame_within = {text}")));
        let study = study.unwrap_or_else(|mistake| panic!("{text}: {mistake}"));
        assert_eq!(study.points(), 6);
        study.same_within()
    };
    assert_eq!([within("\"5%\""), within("0.05")], [Some(0.05); 2]);
    assert_eq!(study(LMS).unwrap().same_within(), None);
}

#[test]
fn a_file_without_a_sweep_has_one_point() {
    let text = &LMS[..LMS.find("[sweep]").unwrap()];
    let study = study(text).unwrap();
    assert_eq!((study.points(), study.label(0), study.seeds()), (1, String::new(), None));
    assert_eq!(study.scenario(0).unwrap().topology.nodes.len(), 8);
    // A scenario with a sweep is that of its first point for whoever wants one.
    let first = Scenario::from_toml(LMS, Path::new("")).unwrap();
    assert_eq!(first.section::<Lms>().unwrap().stream.sends.len(), 4);
}

#[test]
fn keys_that_the_file_has_not_and_whole_paths_are_swept_as_well() {
    let swept = |keys: &str| {
        let text = LMS[..LMS.find("loss = [").unwrap()].to_owned() + keys;
        study(&text).unwrap_or_else(|mistake| panic!("{keys}: {mistake}"))
    };
    let debug = |study: &Study, point| format!("{:?}", study.scenario(point).unwrap());
    let delay = swept("request_delay = [\"0s\", \"7ms\"]");
    assert!(debug(&delay, 1).contains("request_delay: 7ms"));
    let nested = swept("lms.router.stickiness = [0.5, 1]");
    assert!(debug(&nested, 0).contains("stickiness: 0.5"));
    let quoted = swept("\"topology.link.loss_burst\" = [1, 2.5]\ntopology.link.loss = [\"1%\"]");
    assert!(debug(&quoted, 1).contains("loss_burst: Some(2.5)"));
    let choice = swept("cost = [\"latency\", \"distance\"]");
    assert!(choice.axes()[0].numbers.is_none() && debug(&choice, 1).contains("cost: Distance"));
    let top = swept("topology.seed = [1, 2]\nlms.paper = [true, false]");
    assert_eq!(top.points(), 4);
}

#[test]
fn elements_of_lists_have_numbers() {
    let text = "topology = { generator = \"star\", receivers = 4 }\n\
                [repository]\nrate = \"1M\"\nitems = 5\nitem_packets = 3\n\
                [[repository.clients]]\nhosts = [\"h1\"]\nwant = 1\n\
                [[repository.clients]]\nhosts = [\"h2\"]\nwant = 1\n\
                [sweep]\nrepository.clients.1.want = [2, 3]\n";
    let study = study(text).unwrap();
    let scenario = study.scenario(1).unwrap();
    let clients = &scenario.section::<Repository>().unwrap().clients;
    assert_eq!((clients[0].want, clients[1].want), (Some(1), Some(3)));
}

#[test]
fn every_mistake_has_its_line_and_says_what_was_expected() {
    let mut wrong = Vec::new();
    for (what, with, expected) in [
        (
            "seeds = 7",
            "seeds = 0",
            "line 13: seeds is the number of runs for each point: expected 1 to 100000",
        ),
        (
            "seeds = 7",
            "seeds = [1]",
            "line 13: seeds is the number of runs for each point: expected 1 to 100000",
        ),
        (
            "seeds = 7",
            "same_within = [0.05]",
            "line 13: same_within is the share of the first mean by which another may differ: expected more than 0 and less than 1, as in \"5%\"",
        ),
        (
            "seeds = 7",
            "same_within = 5",
            "line 13: same_within is the share of the first mean by which another may differ: expected",
        ),
        (
            "seeds = 7",
            "same_within = \"0%\"",
            "line 13: same_within is the share of the first mean by which another may differ: expected",
        ),
        (
            "packets = [4, 8]",
            "packets = 4",
            "line 12: packets: expected a list of values, as in [0.01, 0.05]",
        ),
        (
            "packets = [4, 8]",
            "packets = []",
            "line 12: packets: expected a list of values, as in [0.01, 0.05]",
        ),
        (
            "packets = [4, 8]",
            "packets = [[4]]",
            "line 12: packets: expected single values, as in [0.01, 0.05]",
        ),
        ("packets = [4, 8]", "packets = [4, 4]", "line 12: `4` is there twice"),
        (
            "packets = [4, 8]",
            "packets = [4,\n -8]",
            "line 13: invalid value: integer `-8`, expected u32",
        ),
        (
            "packets = [4, 8]",
            "name = [\"a\", \"b\"]",
            "line 12: `a` is a text: a sweep varies numbers, times, rates, sizes, shares, true and false, and the choices rate, pace_to, share, policy, scheduler, code, arrivals, placement, generator, cost, recovery, loss_of, of, controller, fairness, congestion, traffic",
        ),
        (
            "packets = [4, 8]",
            "link.delay = [\"1ms\"]\ndelay = [\"1ms\"]",
            "line 13: `delay` can be topology.access.delay, topology.link.delay: expected the whole path of one of them",
        ),
        (
            "packets = [4, 8]",
            "link = [1]",
            "line 12: `topology.link` is more than one value: expected a key with one",
        ),
        (
            "packets = [4, 8]",
            "topology.los = [1]",
            "line 12: the file has no key `topology.los`, and there it cannot be: the generator `tree` takes no `los`, but depth, fanout, link, seed, sources, source_link, receivers, access, anywhere, placement",
        ),
        ("packets = [4, 8]", "seeds.x = [1]", "line 13: duplicate key"),
        (
            "loss = [\"1%\", 0.05, \"20%\"]\npackets = [4, 8]\n",
            "",
            "line 10: a sweep without a key: expected one with its values, as in loss = [0.01, 0.05]",
        ),
        (
            "loss = [\"1%\", 0.05, \"20%\"]",
            "loss = [\"1%\", 2]",
            "line 11: loss = 2 is not a probability between 0 and 1",
        ),
    ] {
        assert!(LMS.contains(what), "{what}");
        let found = match study(&LMS.replacen(what, with, 1)) {
            Ok(_) => "accepted".to_owned(),
            Err(mistake) => mistake.to_string(),
        };
        if !found.starts_with(expected) {
            wrong.push(format!("{with}:\n  {found}\n  {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let unknown = study(&LMS.replace("packets = [4, 8]", "lots = [1]")).unwrap_err().to_string();
    let begin = "line 12: the file has no key `lots`, and there it cannot be: [lms] takes no `lots`, but source, receivers, packets";
    assert!(unknown.starts_with(begin), "{unknown}");
    assert!(
        unknown.len() < 300 && unknown.ends_with("more, which docs/laboratory/simulator.md has"),
        "{unknown}"
    );
    let near = study(&LMS.replace("[lms]", "[lms]\npapre = true")).unwrap_err().to_string();
    assert!(near.contains("[lms] takes no `papre`; `paper` may be meant;"), "{near}");
    let many =
        "[".to_owned() + &(0..200).map(|n| n.to_string()).collect::<Vec<_>>().join(",") + "]";
    let text = LMS
        .replace("[4, 8]", &many)
        .replace("[\"1%\", 0.05, \"20%\"]", &many.replace("0,", "0.0001,"));
    assert!(study(&text).is_err());
}

#[test]
fn a_network_can_be_drawn_anew_for_each_run() {
    let text = "seed = 4\n[topology]\ngenerator = \"gnp\"\nrouters = 12\np = 0.3\nreceivers = 5\n\
                seed = \"run\"\n[srm]\npackets = 3\n";
    let fixed = study(&text.replace("\"run\"", "4")).unwrap();
    let drawn = study(text).unwrap();
    assert!(drawn.draws_networks() && !fixed.draws_networks());
    let links = |study: &Study, seed| study.scenario_of(0, seed).unwrap().topology.links;
    assert_eq!(links(&drawn, None), links(&fixed, None));
    assert_eq!(links(&drawn, Some(4)), links(&fixed, Some(9)));
    assert_ne!(links(&drawn, Some(5)), links(&drawn, Some(4)));
    let wrong = study(&text.replace("\"run\"", "\"walk\"")).unwrap().scenario(0).unwrap_err();
    let expected = "line 7: `walk` is no seed: expected a whole number, or \"run\" in a scenario";
    assert_eq!(wrong.to_string(), expected);
}
