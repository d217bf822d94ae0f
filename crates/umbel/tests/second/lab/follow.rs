//! Resident receivers: `umbel recv --follow` and `umbel get --follow`.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::support::bench::{Bench, SOON};
use crate::support::feeds::Feeds;
use crate::support::process::Process;
use crate::support::{MINUTE, lab, number, star};
use serde_json::Value;
use umbel_lab::Impairment;

/// Waits until a resident receiver has told of an event so many times. Returns the last of them.
#[track_caller]
fn nth(resident: &Process, event: &str, count: usize) -> Value {
    let so_often =
        |said: &[Value]| said.iter().filter(|said| said["event"] == event).nth(count - 1).cloned();
    resident.wait_for_all(&format!("{event} {count} times"), MINUTE, so_often)
}

fn text(event: &Value, key: &str) -> String {
    event[key].as_str().unwrap_or_else(|| panic!("no `{key}` in {event}")).to_owned()
}

/// Returns the letters of the places for releases of `feed` in a directory.
fn releases(directory: &Path) -> String {
    let names = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name());
    let names = names.filter_map(|name| name.into_string().ok());
    let mut letters: Vec<String> =
        names.filter_map(|name| name.strip_prefix(".feed.umbel-").map(str::to_owned)).collect();
    letters.sort();
    letters.concat()
}

/// Takes `feed`, a release at a time, with a command that hangs where the file says so.
fn resident(feeds: &Feeds<'_>, log: &Path) -> Process {
    let mut command = feeds.umbel("h2");
    command.args(["recv", "--json", "--follow", "feed", "--atomic", "--keep", "2", "-o"]);
    command.arg(feeds.out("drop")).args(["--exec-timeout", "15s", "--exec"]);
    let path = log.display();
    command.arg(format!(
        "echo \"$UMBEL_NAME $UMBEL_SENDER $UMBEL_DIGEST $UMBEL_PATH\" >> '{path}'; \
         ! grep -q hang \"$UMBEL_PATH/text\" || sleep 1000"
    ));
    Process::start("resident", command, &feeds.logs)
}

/// Sends a text, and returns the sender, who waits for a receiver.
#[track_caller]
fn send(feeds: &Feeds<'_>, text: &str) -> Process {
    fs::write(feeds.input().join("text"), text).unwrap();
    feeds.send(&[])
}

#[test]
fn each_version_is_taken_once_and_after_a_pause_the_newest_alone() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("same", 100_000)]);
    let (drop, log) = (feeds.out("drop"), feeds.directory.path().join("log"));
    let there = || fs::read_to_string(drop.join("feed/text")).unwrap();
    let mut first = resident(&feeds, &log);

    let mut sender = send(&feeds, "one");
    let taken = nth(&first, "version-taken", 1);
    assert_eq!((text(&taken, "name"), there()), ("feed".to_owned(), "one".to_owned()));
    let pin = sender.events("sending")[0]["pin"].clone();
    assert_eq!(taken["sender"], pin);
    assert_eq!(number(&sender.wait_done(SOON), "done"), 1);
    let hook = nth(&first, "hook", 1);
    assert_eq!((&hook["exit_code"], &hook["failure"]), (&0.into(), &Value::Null));
    let expected = format!(
        "feed {} {} {}\n",
        text(&taken, "sender"),
        text(&taken, "digest"),
        drop.join("feed").display()
    );
    assert_eq!(fs::read_to_string(&log).unwrap(), expected);

    // The command of the second hangs, which holds nobody up.
    send(&feeds, "hang").wait_done(SOON);
    let hook = nth(&first, "hook", 2);
    assert!(text(&hook, "failure").contains("took more than 15 s"), "{hook}");
    send(&feeds, "three").wait_done(SOON);
    let third = nth(&first, "version-taken", 3);
    assert_ne!(third["digest"], taken["digest"]);
    assert_eq!(nth(&first, "hook", 3)["failure"], Value::Null);
    assert_eq!((there(), releases(&drop)), ("three".to_owned(), "bc".to_owned()));
    first.kill();

    // Two versions are on the air when it comes back.
    let (older, mut newer) = (send(&feeds, "four"), send(&feeds, "five"));
    let mut second = resident(&feeds, &log);
    nth(&second, "version-taken", 1);
    assert_eq!(there(), "five");
    newer.wait_done(SOON);
    send(&feeds, "six").wait_done(SOON);
    nth(&second, "version-taken", 2);
    nth(&second, "hook", 2);
    assert_eq!(there(), "six");
    let stopped = second.stop();
    assert_eq!((&stopped["taken"], &stopped["failed"]), (&2.into(), &0.into()), "{stopped}");
    std::mem::drop(older);
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 5);
}

#[test]
fn a_star_takes_the_feeds_of_known_senders_alone() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("file", 1_000)]);
    let drop = feeds.out("drop");
    let follow = |state: &Path, names: &[&str]| {
        let mut command = feeds.umbel("h2");
        command.args(["recv", "--json", "--follow"]).args(names).arg("-o").arg(&drop);
        command.arg("--state-dir").arg(state);
        Process::start("resident", command, &feeds.logs)
    };
    let send = |name: &str, key: &str| {
        let mut command: Command = feeds.umbel("h1");
        command.args(["send", "--json", "--name", name]).arg(feeds.input());
        command.arg("--state-dir").arg(feeds.directory.path().join(key));
        Process::start(name, command, &feeds.logs)
    };
    let state = feeds.directory.path().join("receiver");
    // The key of one sender is known by a feed that was received before.
    let mut before = follow(&state, &["before"]);
    send("before", "known").wait_done(SOON);
    nth(&before, "version-taken", 1);
    assert_eq!(before.stop()["taken"], 1);

    let stranger = send("strange", "unknown");
    stranger.wait_for_event("sending", SOON);
    let mut resident = follow(&state, &["*"]);
    for (count, name) in [(1, "one"), (2, "two; touch x")] {
        send(name, "known").wait_done(SOON);
        assert_eq!(text(&nth(&resident, "version-taken", count), "name"), name);
        assert!(drop.join(name).join("file").is_file());
    }
    let stopped = resident.stop();
    assert_eq!((&stopped["taken"], &stopped["failed"]), (&2.into(), &0.into()), "{stopped}");
    assert!(!drop.join("strange").exists());
}

#[test]
fn a_version_that_fails_is_told_and_the_next_is_taken() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("file", 1_000)]);
    let mut command = feeds.umbel("h2");
    command.args(["recv", "--json", "--follow", "feed", "--attempts", "1", "-o"]);
    command.arg(feeds.out("drop"));
    let mut resident = Process::start("resident", command, &feeds.logs);
    // It has no token.
    let refused = feeds.send(&["--token", "secret"]);
    let failed = nth(&resident, "version-failed", 1);
    assert!(text(&failed, "reason").contains("needs a token"), "{failed}");
    assert_eq!((&failed["attempts"], &failed["again_in_s"]), (&1.into(), &Value::Null));
    feeds.send(&[]).wait_done(SOON);
    nth(&resident, "version-taken", 1);
    std::mem::drop(refused);
    let stopped = resident.stop();
    assert_eq!((&stopped["taken"], &stopped["failed"]), (&1.into(), &1.into()), "{stopped}");
}

#[test]
fn a_repository_is_followed_while_it_changes_and_its_server_comes_and_goes() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let bench = Bench::new(&lab, &[("a", 50_000), ("b", 1_000)]);
    let mut server = bench.serve(&["--rescan", "1"]);
    let state = bench.out("state");
    let log = bench.out("log");
    let hook = format!("cat \"$UMBEL_PATH/a\" | wc -c >> '{}'", log.display());
    let options = ["--follow", "--every", "1s", "--delete", "--state-dir"];
    let options = [&options[..], &[state.to_str().unwrap(), "--exec", &hook]].concat();
    let mut client = bench.get("h2", &server.url, &options);
    let first = nth(&client.process, "version-taken", 1);
    assert_eq!(number(&first["summary"], "items"), 2, "{first}");
    nth(&client.process, "hook", 1);

    let change = |text: &str| {
        let beside = bench.out("beside");
        fs::write(&beside, text).unwrap();
        fs::rename(beside, bench.repo().join("a")).unwrap();
    };
    let there = || fs::read_to_string(client.out.join("a")).unwrap();
    change("another");
    let second = nth(&client.process, "version-taken", 2);
    assert_eq!((number(&second["summary"], "items"), there()), (1, "another".to_owned()));
    assert_ne!(second["digest"], first["digest"]);
    fs::remove_file(bench.repo().join("b")).unwrap();
    nth(&client.process, "version-taken", 3);
    assert!(!client.out.join("b").exists());

    // The server is away for a while.
    server.process.kill();
    nth(&client.process, "version-failed", 1);
    change("a third one");
    let server = bench.serve(&["--rescan", "1"]);
    nth(&client.process, "version-taken", 4);
    assert_eq!(there(), "a third one");
    nth(&client.process, "hook", 4);
    let stopped = client.process.stop();
    assert_eq!((&stopped["taken"], &stopped["failed"]), (&4.into(), &1.into()), "{stopped}");

    // What it has is no version of its own when it comes back.
    let mut again = bench.get("h2", &server.url, &options);
    again.process.wait_for("it has looked", MINUTE, |event| event["event"] == "already-there");
    change("the fourth");
    let fourth = nth(&again.process, "version-taken", 1);
    assert_eq!(number(&fourth["summary"], "items"), 1, "{fourth}");
    nth(&again.process, "hook", 1);
    assert_eq!(again.process.stop()["taken"], 1);
    let lengths = fs::read_to_string(log).unwrap();
    let lengths: Vec<&str> = lengths.split_whitespace().collect();
    assert_eq!(lengths, ["50000", "7", "7", "11", "10"]);
}
