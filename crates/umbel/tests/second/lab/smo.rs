//! `umbel smo` with plain `curl` as the receivers, on hosts with and without the helper.

use std::io::{BufRead as _, Write as _};
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::smo::{CHANNEL, Download, Site, clients, end, have};
use crate::support::{MINUTE, files, lab};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROGRAMS: [&str; 2] = ["curl", "nft"];
/// Length of the file that is downloaded.
const LEN: u64 = 6 << 20;

#[test]
fn one_stream_leaves_the_server_for_all_by_ipv6_too() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.01, 0.0])) else { return };
    let site = Site::over_ipv6(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let server = site.serve_http(&["--window", "1min", "--receivers", "7"]);
    let _helpers = [("h2", "auto"), ("h3", "agent")]
        .map(|(host, delivery)| site.join(host, &["--delivery", delivery]));
    let before = site.sent("h1");
    // One of them has no helper.
    let hosts = ["h2", "h3", "h2", "h3", "h2", "h3", "h4"].into_iter().enumerate();
    let mut downloads: Vec<Download> =
        hosts.map(|(n, host)| site.curl(host, "big", &format!("out{n}"), &[])).collect();
    for download in &mut downloads {
        download.expect(&site, &site.www().join("big"), MINUTE);
    }
    let sent = site.sent("h1") - before;
    let summary = end(server);
    println!("{:.2} times the file left the server; {summary}", sent as f64 / LEN as f64);
    assert!(sent < 3 * LEN, "{sent} bytes left the server for 7 downloads of {LEN}");
    assert_eq!(summary["together"], 7, "{summary}");
}

#[test]
fn hosts_without_a_helper_and_those_whose_helper_dies_get_every_byte() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0, 0.01, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    // So slow that the helper dies in the middle.
    let server = site.serve_http(&["--window", "500ms", "--rate", "40M"]);
    let mut dying = site.join("h2", &[]);
    let _helper = site.join("h3", &[]);
    let mut downloads = ["h2", "h3", "h4"].map(|host| site.curl(host, "big", host, &[]));
    while downloads[0].len() < LEN / 4 {
        std::thread::sleep(Duration::from_millis(10));
        assert!(!dying.has_ended());
    }
    dying.kill();
    for download in &mut downloads {
        download.expect(&site, &site.www().join("big"), MINUTE);
    }
    let summary = end(server);
    assert!(summary["traffic"]["unicast_bytes"].as_u64().unwrap() > LEN, "{summary}");
}

#[test]
fn ranges_and_errors_and_other_files_are_served_alone_meanwhile() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN), ("small", 1_000), ("other", 200_000)]);
    let server = site.serve_http(&["--window", "5s", "--receivers", "2", "--rate", "10M"]);
    let _helper = site.join("h2", &[]);
    let whole = std::fs::read(site.www().join("big")).unwrap();
    let mut together = [1, 2].map(|n| site.curl("h2", "big", &format!("big{n}"), &[]));
    std::thread::sleep(Duration::from_millis(500));
    let mut part = site.curl("h2", "big", "part", &["--range", "1000000-1299999"]);
    assert!(part.wait(&site, MINUTE).success());
    assert!(std::fs::read(&part.out).unwrap() == whole[1_000_000..1_300_000]);
    // Two on one connection.
    let url = format!("http://{}:8080/other", site.host("h1").addr4());
    let second = site.path("second");
    let more = ["--next", "--silent", "--output", second.to_str().unwrap(), &url];
    let mut small = site.curl("h2", "small", "first", &[]);
    small.expect(&site, &site.www().join("small"), MINUTE);
    let mut command = site.host("h2").command("curl");
    command.args(["--silent", "--output"]).arg(site.path("first2"));
    command.arg(url.replace("other", "small")).args(more);
    assert!(command.status().unwrap().success());
    assert!(std::fs::read(&second).unwrap() == std::fs::read(site.www().join("other")).unwrap());
    let mut none = site.curl("h2", "none", "none", &[]);
    assert_eq!(none.wait(&site, MINUTE).code(), Some(22), "404");
    for download in &mut together {
        download.expect(&site, &site.www().join("big"), MINUTE);
    }
    let summary = end(server);
    assert_eq!(summary["together"], 2, "{summary}");
}

#[test]
fn who_comes_late_to_a_pipe_gets_what_is_yet_to_come() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.path(""), &[("input", LEN)]);
    let bytes = std::fs::read(site.path("input")).unwrap();
    let command = site.serve(&["--stdin"], &["--receivers", "2"]);
    let (mut server, mut input) = Process::start_fed("server", command, &site.logs);
    server.wait_for_event("serving", SOON);
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));
    // The served bytes have no head, like an answer of HTTP/0.9.
    let raw = ["--http0.9"];
    let mut early = ["h2", "h3"].map(|host| site.curl(host, "", host, &raw));
    let half = bytes.len() / 2;
    input.write_all(&bytes[..half]).unwrap();
    while early.iter().any(|download| download.len() < half as u64 / 2) {
        std::thread::sleep(Duration::from_millis(10));
    }
    let mut late = site.curl("h3", "", "late", &raw);
    let connected = |event: &serde_json::Value| event["progress"]["receivers"] == 3;
    server.wait_for("three receivers", SOON, connected);
    input.write_all(&bytes[half..]).unwrap();
    drop(input);
    for download in &mut early {
        download.expect(&site, &site.path("input"), MINUTE);
    }
    assert!(late.wait(&site, MINUTE).success());
    let tail = std::fs::read(&late.out).unwrap();
    assert!(tail.len() >= bytes.len() - half && bytes.ends_with(&tail), "{} bytes", tail.len());
    let summary = server.wait_done(SOON);
    assert_eq!(summary["answers"], 3, "{summary}");
}

#[test]
fn a_receiver_that_stalls_is_cut_off_and_the_others_go_on() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0, 0.0])) else { return };
    let site = Site::new(&lab);
    // More than the buffers of a socket hold.
    files::make(&site.www(), &[("big", 4 * LEN)]);
    let options = ["--window", "500ms", "--closed-window", "2s", "--stall", "2s"];
    let server = site.serve_http(&[&options[..], &["--rate", "80M"]].concat());
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));
    let mut good = site.curl("h2", "big", "good", &[]);
    let stalling = site.curl("h3", "big", "stalling", &[]);
    while stalling.len() < LEN / 8 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let id = Pid::from_raw(stalling.id() as i32);
    kill(id, Signal::SIGSTOP).unwrap();
    let removed = server.wait_for_event("removed", MINUTE);
    kill(id, Signal::SIGCONT).unwrap();
    let host = site.host("h3").addr4().to_string();
    assert!(removed["peer"].as_str().unwrap().starts_with(&host), "{removed}");
    good.expect(&site, &site.www().join("big"), MINUTE);
    assert_eq!(end(server)["removed"], 1);
}

#[test]
fn a_file_goes_to_everyone_from_its_beginning() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.0])) else { return };
    serve_file(&Site::new(&lab));
}

#[test]
fn a_file_goes_to_everyone_by_ipv6_too() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.0])) else { return };
    serve_file(&Site::over_ipv6(&lab));
}

/// Serves a file to two hosts, and asks how it goes meanwhile.
#[track_caller]
fn serve_file(site: &Site<'_>) {
    files::make(&site.path(""), &[("file", LEN)]);
    let options = ["--receivers", "2", "--rate", "40M"];
    let mut server =
        Process::start("server", site.serve(&["--file", "file"], &options), &site.logs);
    server.wait_for_event("serving", SOON);
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));
    let raw = ["--http0.9"];
    let mut downloads = ["h2", "h3"].map(|host| site.curl(host, "", host, &raw));
    while downloads[0].len() < LEN / 4 {
        std::thread::sleep(Duration::from_millis(10));
    }
    // Somebody asks how it goes.
    let status = site.smo("h1", &["status"]).output().unwrap();
    let status: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(status["report"]["receivers"], 2, "{status}");
    assert_eq!(status["report"]["slowest"].as_array().unwrap().len(), 2, "{status}");
    let stream = &status["report"]["by_stream"][0];
    assert_eq!((&stream["port"], &stream["receivers"]), (&8080.into(), &2.into()), "{status}");
    assert!(stream["slowest"]["peer"].is_string() && stream["rtt_ms"].is_number(), "{status}");
    for download in &mut downloads {
        download.expect(site, &site.path("file"), MINUTE);
    }
    // Everyone has it.
    assert_eq!(server.wait_done(SOON)["answers"], 2);
}

/// Returns the example of the library, which `cargo test` builds unless it is told what to build.
fn example() -> Option<std::path::PathBuf> {
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_umbel"));
    let example = program.parent()?.join("examples/multicast_response");
    example.exists().then_some(example)
}

#[test]
fn a_response_is_multicast_by_the_library() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(example) = example() else { return println!("the example is not built") };
    let Some(lab) = lab(&clients(&[0.01, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.path(""), &[("file", LEN)]);
    let mut command = site.host("h1").command(example);
    command.args([":8080", CHANNEL]).arg(site.path("file")).stdout(std::process::Stdio::piped());
    let mut server = command.spawn().unwrap();
    let mut said = String::new();
    let mut output = std::io::BufReader::new(server.stdout.take().unwrap());
    output.read_line(&mut said).unwrap();
    assert!(said.contains(CHANNEL), "{said}");
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));
    let before = site.sent("h1");
    let hosts = ["h2", "h3", "h3"];
    let mut downloads: Vec<Download> =
        (0..3).map(|n| site.curl(hosts[n], "", &format!("out{n}"), &[])).collect();
    for download in &mut downloads {
        download.expect(&site, &site.path("file"), MINUTE);
    }
    let sent = site.sent("h1") - before;
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(sent < LEN * 3 / 2, "{sent}");
}
