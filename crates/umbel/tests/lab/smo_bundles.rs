//! Acknowledgements of a host that leave together: by `umbel smo join`, and by nobody else.

use std::time::Duration;

use nix::sys::signal::Signal;
use serde_json::Value;

use crate::support::bench::SOON;
use crate::support::smo::{Download, Site, clients, end, have};
use crate::support::{files, lab};

const MINUTE: Duration = Duration::from_mins(1);
const PROGRAMS: [&str; 2] = ["curl", "nft"];
const LEN: u64 = 8 << 20;
/// Downloads of each host.
const EACH: usize = 6;

/// Downloads the file on both hosts, not faster than so many bytes in a second, and compares it.
/// Calls `meanwhile` when a part has come.
fn download(site: &Site<'_>, rate: &str, meanwhile: impl FnOnce()) {
    let mut downloads: Vec<Download> = (0..2 * EACH)
        .map(|n| site.curl(["h2", "h3"][n % 2], "big", &format!("out{n}"), &["--limit-rate", rate]))
        .collect();
    while downloads[0].len() < LEN / 8 {
        std::thread::sleep(Duration::from_millis(5));
    }
    meanwhile();
    for download in &mut downloads {
        download.expect(site, &site.www().join("big"), MINUTE);
    }
}

/// Serves to helpers with these options, while something happens to the first. Returns the
/// summaries of the server and of the helpers.
fn serve(site: &Site<'_>, options: &[&str], stopped: bool) -> (Value, [Value; 2]) {
    let helpers = ["h2", "h3"].map(|host| site.join(host, options));
    let receivers = (2 * EACH).to_string();
    let server = site.serve_http(&["--window", "1min", "--receivers", &receivers]);
    // As long as a download of this rate takes two seconds.
    download(site, if stopped { "4M" } else { "1G" }, || {
        if stopped {
            helpers[0].signal(Signal::SIGSTOP);
            std::thread::sleep(Duration::from_millis(500));
            helpers[0].signal(Signal::SIGCONT);
        }
    });
    let summary = end(server);
    let helpers = helpers.map(|mut helper| {
        helper.signal(Signal::SIGTERM);
        helper.wait_done(SOON)
    });
    (summary, helpers)
}

#[test]
fn acknowledgements_of_a_host_arrive_together_and_every_byte_arrives() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);

    let (server, helpers) = serve(&site, &["--delivery", "ebpf"], false);
    let number = |value: &Value, name: &str| value[name].as_u64().unwrap();
    let bundles = number(&server, "bundles");
    let bundled: u64 = helpers.iter().map(|helper| number(helper, "bundled")).sum();
    println!("{bundled} ACKs in {bundles} datagrams: {server}");
    assert!(bundles > 0 && bundled > 2 * bundles, "{server} {helpers:?}");
    assert_eq!(server["removed"], 0);

    let (server, helpers) = serve(&site, &["--acks", "alone"], false);
    assert_eq!(server["bundles"], 0);
    assert!(helpers.iter().all(|helper| helper["bundled"] == 0), "{helpers:?}");
}

#[test]
fn a_helper_that_stops_for_a_while_holds_up_no_acknowledgement() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let (server, helpers) = serve(&site, &["--delivery", "ebpf"], true);
    assert!(helpers.iter().all(|helper| helper["bundled"] != 0), "{helpers:?}");
    assert_eq!((&server["removed"], &server["together"]), (&0.into(), &12.into()), "{server}");
}
