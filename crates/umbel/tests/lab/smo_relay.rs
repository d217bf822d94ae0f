//! `umbel smo relay`: two levels, of HTTP and of a pipe.

use std::io::Write as _;
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::smo::{CHANNEL, Download, Site, clients, end, have};
use crate::support::{files, lab};

const MINUTE: Duration = Duration::from_mins(1);
const PROGRAMS: [&str; 2] = ["curl", "nft"];
/// Length of what is relayed.
const LEN: u64 = 3 << 20;

/// Starts a relay of `h1` on a host.
#[track_caller]
fn relay(site: &Site<'_>, host: &str, channel: &str, options: &[&str]) -> Process {
    let target = site.target(CHANNEL, "h1");
    let arguments = ["relay", &target, "--listen", ":8080", "--channel", channel];
    let mut command = site.smo(host, &arguments);
    command.args(options);
    let process = Process::start(&format!("relay on {host}"), command, &site.logs);
    process.wait_for_event("serving", SOON);
    process
}

#[test]
fn clients_of_two_relays_download_and_the_server_sends_to_both_relays_once() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.0, 0.0, 0.01])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let server = site.serve_http(&["--window", "1min", "--receivers", "2"]);
    let channels = ["232.7.7.8:8080", "232.7.7.9:8080"];
    let http = ["--http", "--window", "1min", "--receivers", "3"];
    let relays = [("h2", channels[0]), ("h3", channels[1])];
    let relays = relays.map(|(host, channel)| relay(&site, host, channel, &http));
    let _helpers = [("h4", "h2", channels[0]), ("h5", "h3", channels[1])]
        .map(|(host, relay, channel)| site.join_to(host, &site.target(channel, relay), &[]));
    let before = site.sent("h1");
    let mut downloads: Vec<Download> = (0..6)
        .map(|n| {
            let (host, relay) = [("h4", "h2"), ("h5", "h3")][n % 2];
            site.curl_from(host, relay, "big", &format!("out{n}"), &[])
        })
        .collect();
    for download in &mut downloads {
        download.expect(&site, &site.www().join("big"), MINUTE);
    }
    let sent = site.sent("h1") - before;
    for relay in relays {
        let summary = end(relay);
        assert_eq!(summary["together"], 3, "{summary}");
    }
    let summary = end(server);
    assert_eq!(summary["together"], 2, "{summary}");
    println!("{:.2} times the file left the server", sent as f64 / LEN as f64);
    assert!(sent < LEN * 3 / 2, "{sent}");
}

#[test]
fn a_pipe_reaches_the_clients_of_a_relay() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.01])) else { return };
    let site = Site::new(&lab);
    files::make(&site.path(""), &[("input", LEN)]);
    let command = site.serve(&["--stdin"], &[]);
    let (mut server, mut input) = Process::start_fed("server", command, &site.logs);
    server.wait_for_event("serving", SOON);
    let channel = "232.7.7.8:8080";
    let mut relay = relay(&site, "h2", channel, &["--receivers", "2"]);
    let _helper = site.join_to("h3", &site.target(channel, "h2"), &[]);
    let raw = ["--http0.9"];
    let mut downloads = [1, 2].map(|n| site.curl_from("h3", "h2", "", &format!("out{n}"), &raw));
    input.write_all(&std::fs::read(site.path("input")).unwrap()).unwrap();
    drop(input);
    for download in &mut downloads {
        download.expect(&site, &site.path("input"), MINUTE);
    }
    assert_eq!(relay.wait_done(SOON)["answers"], 2);
    assert_eq!(server.wait_done(SOON)["answers"], 1);
}
