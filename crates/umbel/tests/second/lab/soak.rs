//! Tests that take minutes: the whole matrix of clients and loss, crowds, many and large files,
//! memory.
//!
//! ```text
//! cargo test --release -p umbel --test second lab::soak:: -- --ignored --test-threads 1
//! ```

use std::fs::File;
use std::time::{Duration, Instant};

use crate::support::bench::{Bench, Client, EVERYTHING};
use crate::support::everyone::everyone_gets_everything;
use crate::support::{MB, lab, star};
use umbel_lab::Impairment;

const GIB: u64 = 1 << 30;
const MINUTES: Duration = Duration::from_mins(10);

/// Serves this number of clients at every loss, over both families.
fn every_loss(clients: usize) {
    for family in [&[][..], &["--ipv6"]] {
        for loss in [0.0, 0.01, 0.05, 0.2, 0.5] {
            let started = Instant::now();
            everyone_gets_everything(clients, loss, family);
            let took = started.elapsed().as_secs_f64();
            println!("{clients} clients, loss {loss}, {family:?}: {took:.1} s");
        }
    }
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn one_client_gets_everything_whatever_is_lost() {
    every_loss(1);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn four_clients_get_everything_whatever_is_lost() {
    every_loss(4);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn sixteen_clients_get_everything_whatever_is_lost() {
    every_loss(16);
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn every_code_repairs_every_loss() {
    for code in ["rs", "raptorq", "none"] {
        for loss in [0.0, 0.05, 0.2] {
            everyone_gets_everything(4, loss, &["--code", code]);
        }
    }
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn two_hundred_clients_that_start_at_once_get_everything() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let bench = Bench::new(&lab, &[("a", 600_000), ("b/c", 60_000), ("d", 10)]);
    let mut server = bench.serve(&["--rate", "5M"]);
    let mut clients: Vec<_> = (0..200)
        .map(|n| bench.get_as("h2", &format!("client {n}"), &server.url, EVERYTHING))
        .collect();
    for client in &mut clients {
        bench.check_all(client, MINUTES);
    }
    println!("200 clients of 660 kB: {}", server.stop());
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn twenty_thousand_small_files_arrive() {
    let Some(lab) = lab(&star(2, Impairment::none().loss(0.02))) else { return };
    let names: Vec<_> = (0..20_000).map(|n| format!("d{}/file {n}", n % 300)).collect();
    let plan: Vec<_> = names.iter().zip(0..).map(|(name, n)| (name.as_str(), n % 3000)).collect();
    let bench = Bench::new(&lab, &plan);
    let server = bench.serve(&["--rate", "50M"]);
    for mut client in ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING)) {
        let summary = bench.check_all(&mut client, MINUTES);
        assert_eq!(summary["items"], 20_000);
        println!("20,000 files: {summary}");
    }
}

/// Waits for a client. Returns the greatest memory use that was observed.
fn peak_until_end(client: &mut Client) -> u64 {
    let mut peak = 0;
    while !client.process.has_ended() {
        peak = client.process.peak_memory().unwrap_or(peak);
        std::thread::sleep(Duration::from_millis(50));
    }
    peak
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn a_file_of_two_gib_takes_a_client_less_than_100_mb_of_memory() {
    let Some(lab) = lab(&star(1, Impairment::none().loss(0.01))) else { return };
    let bench = Bench::new(&lab, &[("large", 2 * GIB)]);
    let rate = if cfg!(debug_assertions) { "150M" } else { "400M" };
    let server = bench.serve(&["--rate", rate]);
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    let peak = peak_until_end(&mut client);
    let summary = bench.check_all(&mut client, MINUTES);
    let of_server = server.process.peak_memory().unwrap();
    println!("2 GiB: client {peak} bytes, server {of_server} bytes of memory; {summary}");
    assert!(peak < 100 * MB, "the client took {peak} bytes of memory");
    assert!(of_server < 200 * MB, "the server took {of_server} bytes of memory");
}

#[test]
#[ignore = "soak: minutes; see CONTRIBUTING"]
fn a_thousand_sessions_of_ten_gib_take_a_server_less_than_200_mb_of_memory() {
    let Some(lab) = lab(&star(4, Impairment::none())) else { return };
    let names: Vec<_> = (0..100).map(|n| format!("{n}")).collect();
    let plan: Vec<_> = names.iter().map(|name| (name.as_str(), 10)).collect();
    let bench = Bench::new(&lab, &plan);
    for name in &names {
        let file = File::options().write(true).open(bench.repo().join(name)).unwrap();
        file.set_len(10 * GIB / 100).unwrap();
    }
    // So slow that no client is done before the thousandth has asked. A thousand clients on one
    // machine have time for each packet, which reaches them all.
    let server = bench.serve(&["--rate", "50K"]);
    let mut clients = Vec::new();
    for n in 0..1000 {
        let (host, label) = (format!("h{}", n % 4 + 2), format!("client {n}"));
        let half = if n % 2 == 0 { "*[02468]" } else { "*[13579]" };
        clients.push(bench.get_as(&host, &label, &server.url, &[half, "--no-fallback"]));
        if n % 20 == 19 {
            let last: &Client = &clients[n];
            last.process.wait_for("it has the list", MINUTES, |event| {
                event["progress"]["complete_list"] == true
            });
        }
    }
    for client in &clients {
        client.process.wait_for("it has the list", MINUTES, |event| {
            event["progress"]["complete_list"] == true
        });
    }
    std::thread::sleep(Duration::from_secs(5));
    let peak = server.process.peak_memory().unwrap();
    println!("1,000 sessions: {peak} bytes of memory");
    let ended = clients.iter_mut().any(|client| client.process.has_ended());
    assert!(!ended, "a client ended before all thousand were there");
    assert!(peak < 200 * MB, "the server took {peak} bytes of memory");
}
