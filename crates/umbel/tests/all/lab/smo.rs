//! `umbel smo`, with plain `curl` as the receivers.

use crate::support::smo::{Download, Site, clients, end, have, relay};
use crate::support::{MINUTE, files, lab};

const PROGRAMS: [&str; 2] = ["curl", "nft"];
/// Length of the file that is downloaded.
const LEN: u64 = 6 << 20;

#[test]
fn one_stream_leaves_the_server_for_all_who_ask_within_the_window() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.01, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let server = site.serve_http(&["--window", "1min", "--receivers", "12"]);
    let hosts = ["h2", "h3", "h4"];
    let _helpers = hosts.map(|host| site.join(host, &[]));
    let before = site.sent("h1");
    let mut downloads: Vec<Download> =
        (0..12).map(|n| site.curl(hosts[n % 3], "big", &format!("out{n}"), &[])).collect();
    for download in &mut downloads {
        download.expect(&site, &site.www().join("big"), MINUTE);
    }
    let sent = site.sent("h1") - before;
    let summary = end(server);
    println!("{:.2} times the file left the server; {summary}", sent as f64 / LEN as f64);
    assert!(sent < 2 * LEN, "{sent} bytes left the server for 12 downloads of {LEN}");
    assert_eq!(summary["together"], 12, "{summary}");
    assert!(summary["traffic"]["saved_bytes"].as_u64().unwrap() > 9 * LEN, "{summary}");
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
