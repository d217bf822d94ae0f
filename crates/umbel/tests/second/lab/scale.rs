//! Many clients, many files, more than one network.

use std::time::Duration;

use nix::sys::signal::Signal;

use crate::support::bench::{Bench, EVERYTHING, SOON};
use crate::support::{MB, behind_a_router, group, lab, star};
use umbel_lab::{Impairment, Topology};

#[test]
fn forty_clients_that_start_at_once_get_everything() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let bench = Bench::new(&lab, &[("a", 300_000), ("b/c", 60_000), ("d", 10)]);
    // All are there before the first has everything, also where forty programs take seconds to start.
    let mut server = bench.serve(&["--rate", "1M"]);
    let mut clients: Vec<_> = (0..40)
        .map(|n| bench.get_as("h2", &format!("client {n}"), &server.url, EVERYTHING))
        .collect();
    for client in &mut clients {
        bench.check_all(client, Duration::from_mins(1));
    }
    let sent = server.stop()["bytes"].as_u64().unwrap();
    assert!(sent < 10 * 360_000, "40 clients cost {sent} bytes");
}

#[test]
fn two_thousand_small_files_arrive() {
    let Some(lab) = lab(&star(1, Impairment::none().loss(0.01))) else { return };
    let names: Vec<_> = (0..2000).map(|n| format!("d{}/file {n}", n % 40)).collect();
    let plan: Vec<_> = names.iter().zip(0..).map(|(name, n)| (name.as_str(), n % 700)).collect();
    let bench = Bench::new(&lab, &plan);
    let server = bench.serve(&["--rate", "50M"]);
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    let summary = bench.check_all(&mut client, Duration::from_mins(1));
    assert_eq!(summary["items"], 2000);
}

#[test]
fn clients_behind_a_router_get_everything() {
    for family in [&[][..], &["--ipv6"]] {
        let Some(lab) = lab(&behind_a_router(0.05)) else { return };
        let bench = Bench::new(&lab, &[("large", 2 * MB), ("small", 1000)]);
        let server = bench.serve(&[&["--rate", "30M"], family].concat());
        lab.route_multicast("h1", group(&server.process.events("serving")[0]["channel"])).unwrap();
        for mut client in ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING)) {
            let summary = bench.check_all(&mut client, Duration::from_mins(1));
            assert_eq!(summary["unicast_blocks"], 0, "{summary}");
        }
    }
}

#[test]
fn loss_on_the_link_of_the_server_is_repaired_for_all_at_once() {
    let topology = Topology::star(5).with_every_link(|link| {
        link.emulated = Some(link.a == "h1");
    });
    let Some(lab) = lab(&topology) else { return };
    let bench = Bench::new(&lab, &[("large", 3 * MB)]);
    let mut server = bench.serve(&["--rate", "4M"]);
    // All ask at the same time, and have joined before anything is lost: who comes late needs what
    // the others have.
    server.process.signal(Signal::SIGSTOP);
    let hosts = ["h2", "h3", "h4", "h5"];
    let mut clients = hosts.map(|host| bench.get(host, &server.url, EVERYTHING));
    for client in &clients {
        client.process.wait_for_event("progress", SOON);
    }
    server.process.signal(Signal::SIGCONT);
    for client in &clients {
        bench.wait_until_stored(client, 1);
    }
    lab.set_link("h1", "sw", Impairment::none().loss(0.2)).unwrap();
    for client in &mut clients {
        bench.check_all(client, Duration::from_mins(1));
    }
    // A quarter more would suffice; a repair for each of the four would be as much as the file.
    let sent = server.stop()["bytes"].as_u64().unwrap();
    assert!(sent < 3 * MB * 18 / 10, "a fifth of 3 MB was lost, {sent} bytes were sent");
}
