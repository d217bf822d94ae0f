//! Sealed feeds: only the receivers on the list can read them.

use crate::support::bench::SOON;
use crate::support::feeds::{Feeds, key, list};
use crate::support::{MB, MINUTE, lab, star};
use serde_json::Value;
use umbel_lab::Impairment;

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
