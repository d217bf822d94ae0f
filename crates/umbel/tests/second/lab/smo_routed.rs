//! `umbel smo` with a router between the server and its clients: what is multicast passes it in
//! frames of many segments.

use umbel_lab::Topology;

use crate::support::smo::{Download, Site, end, have};
use crate::support::{MINUTE, files, lab};

/// Length of the file that is downloaded.
const LEN: u64 = 6 << 20;

/// Returns a server, a router, and two hosts on their own links.
fn routed() -> Topology {
    Topology::new()
        .host("h1")
        .router("r1")
        .host("h2")
        .host("h3")
        .link("h1", "r1")
        .link("r1", "h2")
        .link("r1", "h3")
}

/// Lets six clients behind the router download what is multicast.
#[track_caller]
fn download(site: &Site<'_>, group: &str) {
    site.lab.route_multicast("h1", group.parse().unwrap()).unwrap();
    files::make(&site.www(), &[("big", LEN)]);
    let server = site.serve_http(&["--window", "1min", "--receivers", "6"]);
    let _helpers = [("h2", "auto"), ("h3", "agent")]
        .map(|(host, delivery)| site.join(host, &["--delivery", delivery]));
    let before = site.sent("h1");
    let hosts = ["h2", "h3"];
    let mut downloads: Vec<Download> =
        (0..6).map(|n| site.curl(hosts[n % 2], "big", &format!("out{n}"), &[])).collect();
    for download in &mut downloads {
        download.expect(site, &site.www().join("big"), MINUTE);
    }
    let sent = site.sent("h1") - before;
    let summary = end(server);
    println!("{:.2} times the file left the server; {summary}", sent as f64 / LEN as f64);
    assert_eq!(summary["together"], 6, "{summary}");
    assert!(sent < 2 * LEN, "{sent} bytes left the server for 6 downloads of {LEN}: {summary}");
}

#[test]
fn one_stream_passes_a_router_to_all_clients() {
    if !have(&["curl", "nft"]) {
        return;
    }
    let Some(lab) = lab(&routed()) else { return };
    download(&Site::new(&lab), "232.7.7.7");
}

#[test]
fn one_stream_passes_a_router_by_ipv6_too() {
    if !have(&["curl", "nft"]) {
        return;
    }
    let Some(lab) = lab(&routed()) else { return };
    download(&Site::over_ipv6(&lab), "ff3e::7:7");
}
