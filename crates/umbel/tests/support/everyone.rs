//! One server, some clients, some loss.

use std::time::Duration;

use umbel_lab::Impairment;

use super::bench::{Bench, EVERYTHING};
use super::files::Plan;
use super::{lab, star};

/// A plan of 2 MB.
pub(crate) const MANY_SIZES: &Plan<'_> = &[
    ("a large one", 1_500_000),
    ("deep/er/medium", 400_000),
    ("deep/small", 3_000),
    ("one byte", 1),
    ("empty", 0),
];

/// A plan that takes only a few exchanges.
pub(crate) const LITTLE: &Plan<'_> = &[("a larger one", 100_000), ("small", 3_000)];

/// Serves 2 MB in five items to some clients, each with its own loss both ways.
pub(crate) fn everyone_gets_everything(clients: usize, loss: f64, family: &[&str]) {
    everyone_gets(MANY_SIZES, clients, loss, family);
}

/// Serves a plan to some clients, each with its own loss both ways.
pub(crate) fn everyone_gets(plan: &Plan<'_>, clients: usize, loss: f64, family: &[&str]) {
    let Some(lab) = lab(&star(clients, Impairment::none().loss(loss))) else { return };
    let bench = Bench::new(&lab, plan);
    let server = bench.serve(&[&["--rate", "30M"], family].concat());
    let host = |client: usize| format!("h{}", client + 2);
    let mut running: Vec<_> =
        (0..clients).map(|client| bench.get(&host(client), &server.url, EVERYTHING)).collect();
    for client in &mut running {
        let summary = bench.check_all(client, Duration::from_mins(2));
        assert_eq!(summary["items"], plan.len());
        // At half the packets a session may be so slow that its client hears of no transmission in
        // time, and is served by unicast.
        let by_multicast = summary["packets"].as_u64() > Some(0);
        assert!(by_multicast || loss >= 0.5, "nothing came by multicast: {summary}");
    }
}
