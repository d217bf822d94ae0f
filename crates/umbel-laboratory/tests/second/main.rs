//! The second tier: `umbel repro smo --figure lab`, the paper's sessions with sockets of the kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../all/support.rs"]
#[allow(dead_code, unused_imports, reason = "the first tier uses the rest")]
mod support;

use umbel_lab::Topology;
use umbel_lab::testing::{has_nft, lab};

use crate::support::{product, run};

#[test]
fn the_papers_small_sessions_run_with_sockets_of_the_kernel() {
    let Some(lab) = lab(&Topology::star(1)) else { return };
    if !has_nft(lab.host("h1").unwrap()) {
        return;
    }
    drop(lab);
    product();
    let out = tempfile::tempdir().unwrap();
    let args = ["repro", "smo", "--figure", "lab", "--sockets", "100", "--seeds", "1", "--out"];
    let ran = run(args.iter().map(AsRef::as_ref).chain([out.path().as_os_str()]));
    let said = &ran.succeeded().stderr;
    let table = std::fs::read_to_string(out.path().join("lab.csv")).unwrap();
    let mut lines = table.lines().map(|line| line.split(',').collect::<Vec<&str>>());
    let head = lines.next().unwrap();
    let of = |line: &[&str], name: &str| {
        line[head.iter().position(|column| *column == name).unwrap()].parse::<f64>().unwrap()
    };
    let mut receivers = Vec::new();
    for line in lines {
        assert_eq!(line.len(), head.len(), "{table}");
        receivers.push(of(&line, "receivers"));
        assert!((of(&line, "complete (%)") - 100.0).abs() < 0.01, "{table}{said}");
        // By unicast it would be as many times the file as there are receivers.
        let sent = of(&line, "bytes sent over those of the stream");
        assert!((1.0..3.0).contains(&sent), "{table}");
    }
    assert_eq!(receivers, [5.0, 100.0], "{table}");
}
