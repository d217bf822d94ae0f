//! One server, some clients, some loss.

use std::time::Duration;

use umbel_lab::Impairment;

use super::bench::{Bench, EVERYTHING};
use super::{lab, star_with};

/// Serves 2 MB in five items to some clients, each with its own loss: both ways below a half; of
/// a half towards the client only, and a twentieth away from it.
pub(crate) fn everyone_gets_everything(clients: usize, loss: f64, family: &[&str]) {
    let towards = Impairment::none().loss(loss);
    // With a half lost both ways three of four round trips fail: QUIC's back-off doubles faster
    // than they succeed, and a client was not done after a minute.
    let away = Impairment::none().loss(if loss < 0.5 { loss } else { 0.05 });
    let Some(lab) = lab(&star_with(clients, towards, away)) else { return };
    let plan = [
        ("a large one", 1_500_000),
        ("deep/er/medium", 400_000),
        ("deep/small", 3_000),
        ("one byte", 1),
        ("empty", 0),
    ];
    let bench = Bench::new(&lab, &plan);
    let server = bench.serve(&[&["--rate", "30M"], family].concat());
    let host = |client: usize| format!("h{}", client + 2);
    let mut running: Vec<_> =
        (0..clients).map(|client| bench.get(&host(client), &server.url, EVERYTHING)).collect();
    for client in &mut running {
        let summary = bench.check_all(client, Duration::from_mins(1));
        assert_eq!(summary["items"], 5);
        assert!(summary["packets"].as_u64() > Some(0), "nothing came by multicast: {summary}");
    }
}
