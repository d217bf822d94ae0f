//! The program that drops acknowledgements before a server takes them.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use umbel_lab::Impairment;

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::smo::{Download, Site, clients, end, have};
use crate::support::{MINUTE, files, lab};

const PROGRAMS: [&str; 3] = ["curl", "nft", "ip"];
const LEN: u64 = 12 << 20;

/// Returns whether an XDP program is on the server's interface.
fn has_program(site: &Site<'_>) -> bool {
    let host = site.host("h1");
    let mut command: Command = host.command("ip");
    let output = command.args(["-o", "link", "show", "dev", host.interface()]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).contains("xdp")
}

/// Waits until there is no program any more.
fn expect_no_program(site: &Site<'_>) {
    let until = Instant::now() + SOON;
    while has_program(site) {
        assert!(Instant::now() < until, "the program stays");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn status(site: &Site<'_>) -> Value {
    let output = site.smo("h1", &["status"]).output().unwrap();
    let event: Value = serde_json::from_slice(&output.stdout).unwrap();
    event["report"].clone()
}

/// Downloads the file eight times, and compares it.
fn download(site: &Site<'_>) {
    let mut downloads: Vec<Download> =
        (0..8).map(|n| site.curl(["h2", "h3"][n % 2], "big", &format!("out{n}"), &[])).collect();
    for download in &mut downloads {
        download.expect(site, &site.www().join("big"), MINUTE);
    }
}

fn serve(site: &Site<'_>, mode: &str) -> Process {
    let options = ["--window", "1min", "--receivers", "8", "--ack-filter", mode];
    site.serve_http(&options)
}

#[test]
fn acknowledgements_are_dropped_before_the_server_and_every_byte_arrives() {
    if !have(&PROGRAMS) {
        return;
    }
    // So far away that windows become large.
    let topology = clients(&[0.0, 0.0]).with_every_link(|link| {
        if link.a != "h1" {
            link.emulated = Some(true);
            link.b_to_a = Impairment::none().delay(Duration::from_millis(20));
        }
    });
    let Some(lab) = lab(&topology) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));

    let mut server = serve(&site, "auto");
    let report = status(&site);
    let is_possible = report["ack_filter"] == "in the driver";
    assert_eq!(has_program(&site), is_possible, "{report}");
    download(&site);
    let report = status(&site);
    println!("{report}");
    let filtered = report["filtered"].as_u64().unwrap();
    assert_eq!(filtered > 50, is_possible, "{report}");
    // The kernel takes the program away after a crash.
    server.kill();
    expect_no_program(&site);

    let server = serve(&site, "off");
    assert!(!has_program(&site));
    download(&site);
    let summary = end(server);
    assert_eq!((&summary["filtered"], &summary["together"]), (&0.into(), &8.into()), "{summary}");
}

#[test]
fn the_program_of_someone_else_stays_and_the_server_says_so() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let first = serve(&site, "auto");
    if !has_program(&site) {
        return;
    }
    // Of a second server, the first is someone else.
    let mut command = site.smo("h1", &["serve", "--listen", ":8090", "--http", "www"]);
    command.args(["--channel", "232.7.7.7:8090"]);
    let second = Process::start("second", command, &site.logs);
    second.wait_for_event("serving", SOON);
    let address = format!("{}:8090", site.host("h1").addr4());
    let output = site.smo("h1", &["status", &address]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("has an XDP program of someone else"), "{text}");
    end(second);
    assert!(has_program(&site));
    end(first);
    expect_no_program(&site);
}
