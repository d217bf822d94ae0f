//! `umbel send --recovery`: every scheme between real hosts, behind plain routers.

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::{MB, MINUTE, behind_a_router, files, group, lab, number, star};
use serde_json::Value;
use umbel_lab::Impairment;

/// Checks that all receivers get everything, and that the sender knows. Returns its summary and
/// theirs.
fn check(feeds: &Feeds<'_>, options: &[&str], hosts: [&str; 2]) -> (Value, [Value; 2]) {
    let options = [&["--rate", "20M", "--wait-for", "2"], options].concat();
    let mut sender = feeds.send(&options);
    let mut receivers = hosts.map(|host| feeds.recv(host, &[]));
    let summaries = receivers.each_mut().map(|receiver| feeds.check(receiver, MINUTE));
    let sent = sender.wait_done(SOON);
    assert_eq!((number(&sent, "done"), number(&sent, "without")), (2, 0), "{sent}");
    (sent, summaries)
}

#[test]
fn files_arrive_behind_a_router_with_every_recovery() {
    for recovery in ["tree", "lms", "srm", "source"] {
        for family in [&[][..], &["--ipv6"]] {
            let Some(lab) = lab(&behind_a_router(0.05)) else { return };
            let feeds = Feeds::new(&lab, &[("large", 4 * MB), ("small", 1000), ("empty", 0)]);
            let options = [&["--recovery", recovery], family].concat();
            let (sent, received) = check(&feeds, &options, ["h2", "h3"]);
            for summary in received {
                assert!(number(&summary, "lost") > 0, "nothing was lost, so this tests little");
                // The router has no LMS, so the source repairs without a word.
                assert_eq!(number(&summary, "helped"), 0, "{recovery}: {summary}");
                let asks = number(&summary, "requests") > 0;
                assert_eq!(asks, recovery == "lms", "{recovery}: {summary}");
                assert_eq!(summary["managed"], recovery == "tree", "{recovery}: {summary}");
            }
            assert_eq!(number(&sent, "dmcasts"), 0);
        }
    }
}

#[test]
fn where_only_the_data_channel_passes_receivers_name_the_source() {
    for recovery in ["lms", "source"] {
        let Some(lab) = lab(&behind_a_router(0.05)) else { return };
        // Unlike `Feeds::new`, nothing but the data channel is routed.
        let feeds = Feeds::unannounced(&lab, &[("large", 4 * MB)]);
        let (mut sender, sending) = feeds.send_unrouted(&["--rate", "20M", "--recovery", recovery]);
        lab.route_multicast("h1", group(&sending["data"])).unwrap();
        let mut receiver = feeds.recv_from("h3", &sending, &[]);
        let summary = receiver.process.wait_done(MINUTE);
        files::assert_same(&feeds.input(), &receiver.out, |_| true);
        assert!(number(&summary, "repairs") + number(&summary, "fetched") > 0, "{summary}");
        assert_eq!(number(&sender.wait_done(SOON), "done"), 1);
    }
}

#[test]
fn a_pipe_and_a_sealed_feed_arrive_with_every_recovery() {
    for recovery in ["lms", "srm", "source"] {
        let Some(lab) = lab(&star(2, Impairment::none().loss(0.03))) else { return };
        let feeds = Feeds::new(&lab, &[("one", 2 * MB), ("two/three", 70_000)]);
        let line = format!(
            "\"$UMBEL\" key --key k2 --as h2 > keys && \"$UMBEL\" key --key k3 --as h3 >> keys && \
             tar -C in -c . | \"$UMBEL\" send - --name feed --rate 40M --wait-for 2 --admit keys \
             --recovery {recovery}"
        );
        let sender = feeds.shell("h1", &line);
        let receivers = [("h2", "k2"), ("h3", "k3")].map(|(host, key)| {
            let line = format!(
                "mkdir -p out/{host} && \"$UMBEL\" recv feed --key {key} --as {host} --wait 20s \
                 --recovery {recovery} -o - | tar -C out/{host} -x"
            );
            (host, feeds.shell(host, &line))
        });
        for (host, receiver) in receivers {
            let output = receiver.wait_with_output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{recovery}: {said}");
            files::assert_same(&feeds.input(), &feeds.out(host), |_| true);
        }
        let output = sender.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn options_that_contradict_the_sender_are_refused_with_one_line() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("small", 1000)]);
    let _sender = feeds.send(&["--recovery", "source", "--wait-for", "1"]);
    for (options, said) in [
        (["--recovery", "lms"], "`feed` is sent with --recovery source, not lms"),
        (["--cost", "7"], "--cost is for feeds with --recovery lms"),
        (["--recovery", "magic"], "it is `tree`, `lms`, `srm` or `source`"),
        (["--cost", "cheap"], "it is `auto` or a number up to 4294967295"),
    ] {
        let mut receiver = feeds.recv("h2", &options);
        assert!(!receiver.process.wait_end(SOON).success());
        let line = receiver.process.stderr();
        assert!(line.contains(said), "{options:?}: {line}");
    }
}
