//! `umbel repro smo --figure lab`: the paper's sessions with sockets of the kernel.

use std::process::Command;

use umbel_lab::Lab;

use crate::support::skip;
use crate::support::smo::have;

#[test]
fn the_papers_small_sessions_run_with_sockets_of_the_kernel() {
    if !have(&["nft"]) {
        return;
    }
    if let Err(reason) = Lab::available() {
        return skip(&reason.to_string());
    }
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_umbel"));
    command.args(["repro", "smo", "--figure", "lab", "--sockets", "100", "--seeds", "1", "--out"]);
    let output = command.arg(out.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
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
