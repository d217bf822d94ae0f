use std::time::Duration;

use bytes::Bytes;
use umbel_sim::random::below;

use super::super::{draws, for_seeds};
use super::world::{Plan, Shelf, World};
use crate::smo::serve::Start;
use crate::smo::serve::desk::Rules;

const WEB: Rules = Rules::Web {
    start: Start { receivers: usize::MAX, wait: Some(Duration::from_millis(500)) },
    smallest: 10_000,
};

fn content(len: usize, first: u8) -> Bytes {
    (0..len).map(|n| (n % 251) as u8 ^ (n / 251) as u8 ^ first).collect::<Vec<u8>>().into()
}

fn shelf() -> Shelf {
    Shelf::from([("/a", content(400_000, 1)), ("/b", content(300_000, 2)), ("/s", content(99, 3))])
}

#[test]
fn clients_get_what_they_ask_for_and_those_who_ask_the_same_share_it() {
    for_seeds(8, |seed| {
        let mut random = draws(seed, 0);
        let mut plans: Vec<Plan> = (0..8)
            .map(|n| Plan {
                loss: [0.0, 0.01, 0.05][n % 3],
                ..Plan::get("/a", below(&mut random, 400) as f64 / 1e3)
            })
            .collect();
        plans[3].helper = None;
        plans[4].helper = Some(0.7);
        plans.push(Plan { loss: 0.02, ..Plan::get("/b", 0.1) });
        plans.push(Plan::get("/s", 0.1));
        plans.push(Plan::get("/none", 0.1));
        let mut world = World::new(seed, WEB, shelf(), None, |_| {}, &plans);
        world.run_until(60.0);
        for number in 0..8 {
            assert_eq!(world.body(number), Some(&shelf()["/a"][..]), "client {number}");
        }
        assert_eq!(world.body(8), Some(&shelf()["/b"][..]));
        assert_eq!(world.body(9), Some(&shelf()["/s"][..]));
        assert!(world.client(10).got.starts_with(b"HTTP/1.1 404 "));
        let summary = world.summary();
        // A client whose first segments are lost comes a second late.
        assert!(summary.together >= 5 && summary.removed == 0, "{summary:?}");
        assert!(summary.traffic.saved_bytes > 800_000, "{summary:?}");
    });
}

#[test]
fn one_connection_asks_again_and_again_and_is_answered_alone() {
    for_seeds(4, |seed| {
        let requests = "GET /s HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\nRange: bytes=5-9\r\n\r\n\
                        HEAD /b HTTP/1.1\r\nHost: h\r\n\r\nGET /s HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
        let plan = Plan { requests: requests.to_owned(), loss: 0.05, ..Plan::get("/s", 0.0) };
        let mut world = World::new(seed, WEB, shelf(), None, |_| {}, &[plan]);
        world.run_until(60.0);
        let got = String::from_utf8_lossy(&world.client(0).got).into_owned();
        let statuses: Vec<&str> =
            got.match_indices("HTTP/1.1 ").map(|(n, _)| &got[n + 9..n + 12]).collect();
        assert_eq!(statuses, ["200", "206", "200", "200"], "{got}");
        assert!(world.client(0).ended);
    });
}

#[test]
fn a_document_that_ends_early_breaks_its_connections_off() {
    for_seeds(4, |seed| {
        let plans = [Plan::get("/a", 0.0), Plan::get("/a", 0.1)];
        let mut world = World::new(seed, WEB, shelf(), Some(200_000), |_| {}, &plans);
        world.run_until(60.0);
        for number in [0, 1] {
            let client = world.client(number);
            assert!(client.reset && !client.ended, "client {number}");
            assert!(client.got.len() <= 200_300);
        }
    });
}

#[test]
fn a_client_that_vanishes_is_cut_off_and_the_others_go_on() {
    for_seeds(4, |seed| {
        let mut plans = vec![Plan::get("/a", 0.0); 3];
        plans[0].crashes = Some(0.56);
        let change = |config: &mut umbel_engine::smo::SourceConfig| {
            config.removal.stall = Duration::from_secs(5);
        };
        let mut world = World::new(seed, WEB, shelf(), None, change, &plans);
        world.run_until(60.0);
        for number in [1, 2] {
            assert_eq!(world.body(number), Some(&shelf()["/a"][..]), "client {number}");
        }
        assert_eq!(world.connections(), 0);
    });
}

#[test]
fn who_comes_late_to_a_pipe_gets_its_end() {
    for_seeds(6, |seed| {
        let pipe = content(600_000, 9);
        let shelf = Shelf::from([("pipe", pipe.clone())]);
        let rules = Rules::Live(Start { receivers: 2, wait: None });
        let plan =
            |connects, loss| Plan { requests: String::new(), loss, ..Plan::get("/", connects) };
        let plans = [plan(0.0, 0.02), plan(0.1, 0.0), plan(0.35, 0.0)];
        let mut world = World::new(seed, rules, shelf, None, |_| {}, &plans);
        world.run_until(60.0);
        for number in 0..3 {
            let client = world.client(number);
            let is_end = client.ended && pipe.ends_with(&client.got);
            assert!(is_end, "client {number}: {} bytes", client.got.len());
        }
        // The first two are waited for; the first comes later if its first segments are lost.
        assert_eq!(world.client(1).got.len(), pipe.len());
        assert!(world.client(2).got.len() <= pipe.len());
    });
}

#[test]
fn a_file_is_sent_to_all_who_come_also_late() {
    for_seeds(4, |seed| {
        let rules = Rules::File(Start { receivers: 3, wait: Some(Duration::from_secs(1)) });
        let file = content(300_000, 4);
        let shelf = Shelf::from([("/", file.clone())]);
        let plan = |connects| Plan { requests: String::new(), ..Plan::get("/", connects) };
        let plans = [plan(0.0), plan(0.2), plan(0.3), plan(0.32), plan(1.5)];
        let mut world = World::new(seed, rules, shelf, None, |_| {}, &plans);
        world.run_until(60.0);
        for number in 0..4 {
            let client = world.client(number);
            assert!(client.ended && client.got == file, "client {number}: {}", client.got.len());
        }
    });
}
