//! Servers and clients over links that lose packets: everyone ends up with exactly the bytes
//! that it asked for. `soak.rs` has the whole matrix.

#![allow(clippy::unwrap_used)]

mod support;

use std::time::Duration;

use support::bench::{Bench, EVERYTHING};
use support::{lab, star_with};
use umbel_lab::Impairment;

/// Serves 2 MB in five items to some clients, each with its own loss both ways.
fn everyone_gets_everything(clients: usize, loss: f64, family: &[&str]) {
    let towards = Impairment::none().loss(loss);
    // Where three of four round trips fail, QUIC's back-off doubles faster than they succeed.
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
        let summary = bench.check_all(client, Duration::from_secs(60));
        assert_eq!(summary["items"], 5);
        assert!(summary["packets"].as_u64() > Some(0), "nothing came by multicast: {summary}");
    }
}

#[test]
fn a_client_without_loss_gets_everything_over_ipv4() {
    everyone_gets_everything(1, 0.0, &[]);
}

#[test]
fn a_client_without_loss_gets_everything_over_ipv6() {
    everyone_gets_everything(1, 0.0, &["--ipv6"]);
}

#[test]
fn a_client_that_loses_a_fifth_gets_everything_over_ipv4() {
    everyone_gets_everything(1, 0.2, &[]);
}

#[test]
fn a_client_that_loses_a_fifth_gets_everything_over_ipv6() {
    everyone_gets_everything(1, 0.2, &["--ipv6"]);
}

#[test]
fn a_client_that_loses_half_gets_everything() {
    everyone_gets_everything(1, 0.5, &[]);
}

#[test]
fn four_clients_that_lose_a_twentieth_get_everything() {
    everyone_gets_everything(4, 0.05, &[]);
}

#[test]
fn sixteen_clients_that_lose_a_twentieth_get_everything() {
    everyone_gets_everything(16, 0.05, &["--ipv6"]);
}
