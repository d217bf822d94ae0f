//! Feeds to hosts that multicast does not reach, or not any more: it comes by unicast.

use crate::support::bench::SOON;
use crate::support::feeds::{Feeds, Receiver};
use crate::support::{MB, MINUTE, has_nft, lab, make_deaf, number, star};
use serde_json::Value;
use umbel_lab::Impairment;

/// Checks that a receiver has everything, by unicast.
#[track_caller]
fn check(feeds: &Feeds<'_>, receiver: &mut Receiver) -> Value {
    let summary = feeds.check(receiver, MINUTE);
    assert!(number(&summary, "fetched") > 0, "{summary}");
    let fallback = receiver.process.wait_for_event("fallback", SOON);
    assert_eq!(fallback["packets"], 0, "{fallback}");
    summary
}

/// Checks what the sender says at the end of two receivers, of which `h2` got it by unicast.
#[track_caller]
fn check_sender(summary: &Value) {
    assert_eq!(number(summary, "done"), 2, "{summary}");
    for receiver in summary["receivers"].as_array().unwrap() {
        assert_eq!(receiver["by_unicast"], receiver["name"] == "h2", "{receiver}");
    }
}

#[test]
fn multicast_that_stops_on_the_way_is_replaced_by_unicast() {
    for recovery in ["tree", "lms", "srm", "source"] {
        let Some(lab) = lab(&star(2, Impairment::none())) else { return };
        if !has_nft(lab.host("h2").unwrap()) {
            return;
        }
        let feeds = Feeds::new(&lab, &[("large", 12 * MB)]);
        let options = ["--recovery", recovery, "--rate", "20M", "--wait-for", "2"];
        let mut sender = feeds.send(&options);
        let [mut deaf, mut other] = ["h2", "h3"].map(|host| feeds.recv(host, &[]));
        deaf.process.wait_for("progress", MINUTE, |event| {
            event["event"] == "progress" && event["progress"]["bytes_done"].as_u64() > Some(MB)
        });
        make_deaf(&lab, "h2");
        feeds.check(&mut other, MINUTE);
        check(&feeds, &mut deaf);
        check_sender(&sender.wait_done(MINUTE));
    }
}

#[test]
fn who_names_the_sender_gets_a_feed_without_any_multicast() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    if !has_nft(lab.host("h2").unwrap()) {
        return;
    }
    make_deaf(&lab, "h2");
    let feeds = Feeds::new(&lab, &[("large", 6 * MB), ("small", 1000)]);
    let mut sender = feeds.send(&["--wait-for", "2"]);
    let sending = sender.events("sending").remove(0);
    let mut deaf = feeds.recv_from("h2", &sending, &[]);
    let mut other = feeds.recv("h3", &[]);
    feeds.check(&mut other, MINUTE);
    check(&feeds, &mut deaf);
    check_sender(&sender.wait_done(MINUTE));
}
