//! The command of `--exec` after one reception, and usages of `--follow` that are refused.

use std::fs;

use super::support::{Place, Running, run, umbel, wait_until};

#[test]
fn a_command_is_run_when_everything_has_come_and_its_failure_is_the_exit_code() {
    let place = Place::with(&[("a", b"alpha")]);
    let server = place.serve(&[]);
    let log = place.path().join("log");
    let command = format!(
        "echo \"$UMBEL_NAME $UMBEL_SENDER $UMBEL_DIGEST $UMBEL_PATH\" > '{}'; echo told",
        log.display()
    );
    let ran = place.get(&server.url, &["--json", "--exec", &command]);
    let done = ran.succeeded().event("done");
    assert!(ran.stderr.contains("told"), "its output goes to standard error: {ran:?}");
    let (_, pin) = server.url.split_once("pin=").unwrap();
    let digest = done["summary"]["digest"].as_str().unwrap();
    let expected = format!("{} {pin} {digest} {}\n", server.address(), place.out().display());
    assert_eq!(fs::read_to_string(&log).unwrap(), expected);
    let hook = ran.event("hook");
    assert_eq!((&hook["exit_code"], &hook["digest"]), (&0.into(), &digest.into()));

    let ran = place.get(&server.url, &["--exec", "exit 3"]);
    ran.failed_with(&["exit code 3", "everything has come"]);
    let ran = place.get(&server.url, &["--exec", "sleep 1000", "--exec-timeout", "500ms"]);
    ran.failed_with(&["took more than 0.5 s"]);
    // It is not run if something is missing.
    fs::remove_file(&log).unwrap();
    place.get(&server.url, &["a", "b", "--exec", &command]).failed_with(&["b was not received"]);
    assert!(!log.exists());
}

#[test]
fn an_interruption_ends_the_command() {
    let place = Place::with(&[("a", b"alpha")]);
    let server = place.serve(&[]);
    let options = ["--exec", "echo begun; sleep 1000"];
    let client = Running::start(&mut place.get_command(&server.url, &options));
    wait_until("a command that has begun", || client.stderr().contains("begun"));
    client.interrupt();
    client.finish().interrupted_with(&["was interrupted"]);
}

/// Returns how often a resident client has told of an event.
fn told(client: &Running, event: &str) -> usize {
    client.stdout().matches(&format!("\"event\":\"{event}\"")).count()
}

#[test]
fn a_resident_client_keeps_so_many_releases() {
    let place = Place::with(&[("a", b"one"), ("same", b"same")]);
    let server = place.serve(&["--rescan", "1"]);
    let state = place.path().join("state");
    let options = ["--json", "--follow", "--every", "1s", "--atomic", "--keep", "2"];
    let mut command = place.get_command(&server.url, &options);
    let client = Running::start(command.arg("--state-dir").arg(&state));
    for (count, text, next) in
        [(1, "one", Some("two")), (2, "two", Some("three")), (3, "three", None)]
    {
        wait_until("the release", || told(&client, "version-taken") == count);
        assert_eq!(fs::read_to_string(place.out().join("a")).unwrap(), text);
        let Some(next) = next else { break };
        let beside = place.path().join("beside");
        fs::write(&beside, next).unwrap();
        fs::rename(beside, place.repo().join("a")).unwrap();
    }
    client.interrupt();
    let ran = client.finish();
    assert_eq!(ran.succeeded().event("stopped")["failed"], 0);
    // A restart brings no release that is there already.
    let mut command = place.get_command(&server.url, &options);
    let again = Running::start(command.arg("--state-dir").arg(&state));
    let is_there = |letter| place.path().join(format!(".out.umbel-{letter}")).exists();
    wait_until("a look", || told(&again, "already-there") == 2 && !is_there("d"));
    again.interrupt();
    assert_eq!(again.finish().succeeded().event("stopped")["taken"], 0);
    assert_eq!(["a", "b", "c", "d"].map(is_there), [false, true, true, false]);
    assert_eq!(fs::read_to_string(place.path().join(".out.umbel-b/a")).unwrap(), "two");
}

#[test]
fn a_version_whose_command_was_cut_short_counts_as_not_taken() {
    let place = Place::with(&[("a", b"alpha")]);
    let server = place.serve(&[]);
    let start = |command: &str| {
        let options = ["--json", "--follow", "--exec", command, "--state-dir"];
        let mut client = place.get_command(&server.url, &options);
        Running::start(client.arg(place.path().join("state")))
    };
    let first = start("echo begun; sleep 1000");
    wait_until("a command that has begun", || first.stderr().contains("begun"));
    // Nobody else takes to the same directory meanwhile.
    start("true").finish().failed_with(&["another umbel"]);
    first.interrupt();
    assert_eq!(first.finish().succeeded().event("stopped")["taken"], 1);
    let second = start("true");
    wait_until("a command that has ended", || told(&second, "hook") == 1);
    second.interrupt();
    assert_eq!(second.finish().succeeded().event("stopped")["taken"], 1);
    let third = start("true");
    wait_until("a look", || told(&third, "already-there") == 1);
    third.interrupt();
    assert_eq!(third.finish().succeeded().event("stopped")["taken"], 0);
}

#[test]
fn what_makes_no_sense_is_refused() {
    let url = format!("umbel://192.0.2.2:7700/?pin={}", super::support::FOREIGN_PIN);
    run(["get", &url, "--follow"]).misused(&["--output"]);
    run(["get", &url, "--keep", "3"]).misused(&["--atomic"]);
    run(["get", &url, "--every", "3s"]).misused(&["--follow"]);
    run(["get", &url, "-o", "x", "--follow", "--every", "1ms"]).misused(&["at least 1s"]);
    run(["recv", "a", "--atomic", "--keep", "21"]).misused(&["1..=20"]);
    run(["recv", "a", "--attempts", "2"]).misused(&["--follow"]);
    run(["recv", "--follow", "a", "--from", "now"]).misused(&["--from"]);
    run(["recv", "--follow", "a", "--verify"]).misused(&["--verify"]);
    run(["recv", "a", "b"]).failed_with(&["--follow"]);
    run(["recv", "a", "--atomic"]).failed_with(&["-o ./current"]);
    run(["recv", "--follow", "a", "-o", "-"]).failed_with(&["directory"]);
    run(["recv", "--follow", "*"]).failed_with(&["`*`", "-o DIR"]);
    run(["recv", "--follow", "*", "-o", "x", "--delete"]).failed_with(&["--delete", "`*`"]);
    let place = Place::new();
    let mut no_link = umbel();
    no_link.args(["get", &url, "--follow", "--atomic", "-o"]).arg(place.path());
    Running::start(&mut no_link).finish().failed_with(&["is no link"]);
    let follow = |names: &[&str]| {
        let mut command = umbel();
        command.args(["recv", "--follow", "--interface", "lo"]).args(names);
        command.arg("--state-dir").arg(place.path().join("state")).arg("-o").arg(place.out());
        Running::start(&mut command).finish()
    };
    follow(&["a", "a"]).failed_with(&["named twice"]);
    for name in ["../a", "a/b", ".ssh", ".."] {
        follow(&[name]).failed_with(&["no name for a directory"]);
    }
    let mut homeless = umbel();
    homeless.args(["recv", "--follow", "*", "-o"]).arg(place.out());
    homeless.env_remove("HOME").env_remove("XDG_STATE_HOME");
    Running::start(&mut homeless).finish().failed_with(&["known senders", "--state-dir"]);
    assert!(place.received().is_empty());
}
