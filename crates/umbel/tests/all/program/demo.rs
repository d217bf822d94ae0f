//! `umbel demo`, as a user runs it.
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use umbel_lab::Lab;

/// Longest that a demonstration may take, in a debug build on a busy machine.
const LIMIT: Duration = Duration::from_mins(5);

/// Starts it with its own directory for temporary files.
fn start(arguments: &[&str], temporary: &Path) -> Child {
    Command::new(env!("CARGO_BIN_EXE_umbel"))
        .args(["demo", "--json"])
        .args(arguments)
        .env("TMPDIR", temporary)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits until it has ended. Kills it if it takes too long.
fn finish(mut child: Child) -> Output {
    let deadline = Instant::now() + LIMIT;
    while child.try_wait().unwrap().is_none() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(50));
    }
    let late = child.try_wait().unwrap().is_none();
    if late {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    assert!(!late, "after {LIMIT:?} it was still running: {output:?}");
    output
}

/// Runs it. Returns its report of each client, and its final report.
#[track_caller]
fn run(arguments: &[&str]) -> (Vec<Value>, Value) {
    let temporary = tempfile::tempdir().unwrap();
    let output = finish(start(arguments, temporary.path()));
    assert!(output.status.success(), "{output:?}");
    assert_left_nothing(temporary.path());
    let lines = String::from_utf8(output.stdout).unwrap();
    let mut events: Vec<Value> =
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = events.pop().unwrap();
    assert_eq!(summary["event"], "summary");
    assert!(events.iter().all(|event| event["event"] == "client"), "{events:?}");
    (events, summary)
}

#[track_caller]
fn assert_left_nothing(temporary: &Path) {
    let left: Vec<_> = temporary.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(left.is_empty(), "left behind: {left:?}");
}

#[track_caller]
fn assert_verified(clients: &[Value], summary: &Value) {
    assert_eq!(clients.len(), 8);
    assert_eq!(summary["clients_verified"], 8);
    assert!(clients.iter().all(|client| client["verified"] == true), "{clients:?}");
    let wanted: u64 = clients.iter().map(|client| client["bytes"].as_u64().unwrap()).sum();
    assert_eq!(summary["copies_bytes"], wanted);
    let sent = summary["sent_bytes"].as_u64().unwrap();
    assert!(sent >= summary["bytes"].as_u64().unwrap(), "{summary}");
    assert!(sent < wanted, "eight copies would have been less: {summary}");
}

/// Checks the measured loss. A busy machine may lose additional packets, but never fewer.
#[track_caller]
fn assert_lossy(clients: &[Value]) {
    for client in clients {
        let set = client["loss_set"].as_f64().unwrap();
        let measured = client["loss_measured"].as_f64().unwrap();
        let range = set * 0.6 - 0.01..set + 0.25;
        assert!(range.contains(&measured), "{measured} is not in {range:?}: {client}");
    }
}

#[test]
fn eight_clients_get_every_byte_over_links_that_lose_packets() {
    let (clients, summary) = run(&[]);
    assert_verified(&clients, &summary);
    assert_lossy(&clients);
    assert_eq!(summary["items"], 24);
    if Lab::available().is_ok() {
        assert_eq!(summary["links"], "namespaces");
    } else {
        assert!(summary["links"]["loopback"].is_object(), "{summary}");
    }
}

#[test]
fn it_needs_no_namespaces() {
    let (clients, summary) = run(&["--loopback"]);
    assert_verified(&clients, &summary);
    assert_lossy(&clients);
    assert!(summary["links"]["loopback"].is_object(), "{summary}");
}

#[test]
fn it_serves_a_directory_of_the_users_and_leaves_it_alone() {
    let directory = tempfile::tempdir().unwrap();
    let files = [("[a] b.txt", 10), ("-o", 70_000), ("deep/er/ü.bin", 300_000), ("empty", 0)];
    for (name, bytes) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![b'x'; bytes]).unwrap();
    }
    let (clients, summary) = run(&["--loopback", directory.path().to_str().unwrap()]);
    assert_verified(&clients, &summary);
    assert_eq!(summary["items"], 4);
    for (name, bytes) in files {
        assert_eq!(std::fs::read(directory.path().join(name)).unwrap(), vec![b'x'; bytes]);
    }
    assert_eq!(directory.path().read_dir().unwrap().count(), 4);
}

#[test]
fn an_empty_directory_and_none_at_all_are_refused_in_one_line() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_path_buf(), directory.path().join("none")] {
        let temporary = tempfile::tempdir().unwrap();
        let output = finish(start(&[path.to_str().unwrap()], temporary.path()));
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{output:?}");
        assert_left_nothing(temporary.path());
    }
}

#[test]
fn interrupted_it_leaves_nothing_behind() {
    for arguments in [&[][..], &["--loopback"]] {
        let temporary = tempfile::tempdir().unwrap();
        // Slow enough to be under way for long.
        let arguments = [&["--rate", "1M"], arguments].concat();
        let child = start(&arguments, temporary.path());
        std::thread::sleep(Duration::from_secs(4));
        kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
        let output = finish(child);
        assert_eq!(output.status.code(), Some(130), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("interrupted"), "{output:?}");
        assert_left_nothing(temporary.path());
        assert_eq!(processes_that_mention(temporary.path()), 0);
    }
}

/// Returns the number of processes with a demonstration's temporary directory among their
/// arguments.
fn processes_that_mention(path: &Path) -> usize {
    let path = path.to_str().unwrap();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = processes.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines.filter(|line| String::from_utf8_lossy(line).contains(path)).count()
}
