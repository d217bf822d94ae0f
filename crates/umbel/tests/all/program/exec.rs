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
    let place = Place::new();
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
