//! Sealed feeds: only the receivers on the list can read them.

use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::{files, lab, star};
use serde_json::Value;
use umbel_lab::Impairment;

const MB: u64 = 1_000_000;
const MINUTE: Duration = Duration::from_mins(1);

/// Returns the file of a host's key.
fn key(feeds: &Feeds<'_>, host: &str) -> String {
    feeds.directory.path().join(format!("{host}.key")).to_str().unwrap().to_owned()
}

/// Writes the list of these hosts. Returns its file.
fn list(feeds: &Feeds<'_>, hosts: &[&str]) -> String {
    let path = feeds.directory.path().join("list");
    let mut text = String::new();
    for host in hosts {
        let mut command = feeds.umbel(host);
        command.args(["key", "--as", host, "--key", &key(feeds, host)]);
        text += &String::from_utf8(command.output().unwrap().stdout).unwrap();
    }
    assert_eq!(text.lines().count(), hosts.len(), "{text}");
    std::fs::write(&path, text).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Returns the sender's name and state for each receiver.
fn states(done: &Value) -> Vec<(String, String)> {
    let receivers = done["receivers"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut states: Vec<_> =
        receivers.map(|one| (text(&one["name"]), text(&one["state"]))).collect();
    states.sort();
    states
}

#[test]
fn a_directory_is_for_those_on_the_list_late_or_not_and_for_nobody_else() {
    let Some(lab) = lab(&star(4, Impairment::none().loss(0.02))) else { return };
    let feeds = Feeds::new(&lab, &[("large", 6 * MB), ("dir/small", 1000), ("empty", 0)]);
    let list = list(&feeds, &["h2", "h3", "h5"]);
    let mut sender = feeds.send(&["--rate", "16M", "--wait-for", "2", "--admit", &list]);
    // The stranger comes first, and does not count.
    let mut stranger = feeds.recv("h4", &["--key", &key(&feeds, "h4")]);
    assert_eq!(stranger.process.wait_end(SOON).code(), Some(1));
    let said = stranger.process.stderr();
    assert!(said.contains("not admitted to `feed`") && said.contains(": h4 "), "{said}");
    let left = walk(&feeds.out("h4"));
    assert_eq!(left, Vec::<String>::new());
    let mut receivers = ["h2", "h3"].map(|host| feeds.recv(host, &["--key", &key(&feeds, host)]));
    let begun = |event: &Value| event["progress"]["bytes_done"].as_u64() > Some(MB);
    receivers[0].process.wait_for("a megabyte is there", SOON, begun);
    let mut late = feeds.recv("h5", &["--key", &key(&feeds, "h5")]);
    for receiver in receivers.iter_mut().chain([&mut late]) {
        feeds.check(receiver, MINUTE);
    }
    let summary = sender.wait_done(SOON);
    // Nobody hears who is not on the list.
    let expected = ["h2", "h3", "h5"].map(|host| (host.to_owned(), "done".to_owned()));
    let found = (states(&summary), &summary["without"]);
    assert_eq!(found, (expected.to_vec(), &0.into()), "{summary}");
}

/// Returns the names of the files in a directory, without hidden ones.
fn walk(directory: &std::path::Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[test]
fn a_pipe_is_for_those_on_the_list_and_for_nobody_else() {
    let Some(lab) = lab(&star(3, Impairment::none().loss(0.02))) else { return };
    let feeds = Feeds::new(&lab, &[("one", 3 * MB), ("two/three", 70_000), ("empty", 0)]);
    list(&feeds, &["h2", "h3"]);
    let sender = feeds.shell(
        "h1",
        "tar -C in -c . | \"$UMBEL\" send - --name feed --rate 40M --wait-for 2 --admit list",
    );
    let recv =
        |host: &str| format!("\"$UMBEL\" recv feed --as {host} --key {host}.key --wait 20s -o -");
    let stranger = feeds.shell("h4", &recv("h4")).wait_with_output().unwrap();
    assert_eq!((stranger.status.code(), stranger.stdout), (Some(1), Vec::new()));
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(said.contains("not admitted to `feed`"), "{said}");
    let receivers = ["h2", "h3"].map(|host| {
        let line = format!("mkdir -p out/{host} && {} | tar -C out/{host} -x", recv(host));
        (host, feeds.shell(host, &line))
    });
    for (host, receiver) in receivers {
        let output = receiver.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        files::assert_same(&feeds.input(), &feeds.out(host), |_| true);
    }
    let output = sender.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_sealed_feed_is_resumed_by_a_receiver_that_was_killed() {
    let Some(lab) = lab(&star(1, Impairment::none().loss(0.01))) else { return };
    let feeds = Feeds::new(&lab, &[("large", 8 * MB)]);
    let list = list(&feeds, &["h2"]);
    let mut sender = feeds.send(&["--rate", "16M", "--admit", &list, "--linger", "1s"]);
    let options = ["--key", &key(&feeds, "h2")[..]];
    let mut first = feeds.recv("h2", &options);
    let half = |event: &Value| event["progress"]["bytes_done"].as_u64() > Some(4 * MB);
    first.process.wait_for("half is there", SOON, half);
    first.process.kill();
    let mut again = feeds.recv("h2", &options);
    let summary = feeds.check(&mut again, MINUTE);
    let resumed = summary["resumed_bytes"].as_u64().unwrap();
    assert!(resumed > 2 * MB, "{summary}");
    sender.wait_done(SOON);
}
