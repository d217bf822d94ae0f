//! The sessions of the paper's §V with sockets of the kernel: throughput and ACKs by the number of
//! receivers, without losses and with them. It prints numbers, and asserts that every byte is
//! right.
//!
//! ```text
//! cargo test --release -p umbel --test lab soak_smo_paper:: -- --ignored --nocapture
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use super::soak_smo::{connections, read_all};
use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::smo::{Site, clients, have};
use crate::support::{files, lab};

/// Hosts of receivers, as in the paper.
const HOSTS: [&str; 5] = ["h2", "h3", "h4", "h5", "h6"];
/// Segments of the file, of 1,448 bytes, as in the simulation of [SMO Fig. 5].
const SEGMENTS: usize = 1_500;
/// The rate of the paper's network.
const RATE: &str = "100M";
const PATIENCE: Duration = Duration::from_mins(5);

/// Sends a file to this number of receivers, on hosts that lose this share of what comes. Prints a
/// row.
fn session(receivers: usize, losses: [f64; HOSTS.len()], fairness: &str) {
    let Some(lab) = lab(&clients(&losses)) else { return };
    let site = Site::new(&lab);
    files::make(&site.path(""), &[("file", SEGMENTS as u64 * 1_448)]);
    let expected = std::fs::read(site.path("file")).unwrap();
    let count = receivers.to_string();
    let options = ["--receivers", &count, "--rate", RATE, "--fairness", fairness];
    let mut server =
        Process::start("server", site.serve(&["--file", "file"], &options), &site.logs);
    server.wait_for_event("serving", SOON);
    let _helpers = HOSTS.map(|host| site.join(host, &[]));
    let address = SocketAddr::from((site.host("h1").addr4(), 8080));
    let until = Instant::now() + PATIENCE;
    let begun = std::thread::scope(|scope| {
        let download = |host| {
            let (host, expected) = (site.host(host), &expected);
            scope.spawn(move || {
                let mut streams = connections(host, address, receivers / HOSTS.len());
                read_all(&mut streams, expected, until)
            })
        };
        let threads = HOSTS.map(download);
        threads.map(|thread| thread.join().unwrap()).into_iter().min().unwrap()
    });
    let seconds = begun.elapsed().as_secs_f64();
    let sent = site.sent("h1");
    let summary = server.wait_done(SOON);
    println!(
        "{receivers} receivers, losses {losses:?}, {fairness}: {:.2} Mbit/s to each, {seconds:.2} s, \
         {:.2} times the file sent; {summary}",
        expected.len() as f64 * 8.0 / 1e6 / seconds,
        sent as f64 / expected.len() as f64,
    );
}

#[test]
#[ignore = "soak: minutes of both cores; measures"]
fn the_papers_sessions_with_the_kernels_sockets() {
    if !have(&["nft"]) {
        return;
    }
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    for receivers in [5, 100, 500, 1_000] {
        session(receivers, [0.0; HOSTS.len()], "strict");
    }
    for fairness in ["strict", "1,4"] {
        session(1_000, [0.02, 0.02, 0.0, 0.0, 0.0], fairness);
    }
}
