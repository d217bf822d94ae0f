//! `umbel send --recovery lms` where `umbel router` runs: helpers repair what is lost near them.

use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::routers::Routers;
use crate::support::{files, lab};
use serde_json::Value;
use umbel_lab::{Impairment, Topology};

const MB: u64 = 1_000_000;
const MINUTE: Duration = Duration::from_mins(1);

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("no number `{field}` in {report}"))
}

/// Creates a source at r1, and two receivers each at r2 and r3.
fn tree() -> Topology {
    let mut topology = Topology::new().host("h1").router("r1").link("h1", "r1");
    for (router, hosts) in [("r2", ["a1", "a2"]), ("r3", ["b1", "b2"])] {
        topology = topology.router(router).link("r1", router).emulated();
        for host in hosts {
            topology = topology.host(host).link(router, host).emulated();
        }
    }
    topology
}

/// Sends with this recovery. Returns the summaries of the sender and of the receivers.
fn run(feeds: &Feeds<'_>, recovery: &str) -> (Value, [Value; 4]) {
    let options = ["--rate", "20M", "--wait-for", "4", "--recovery", recovery];
    let (mut sender, sending) = feeds.send_unrouted(&options);
    let receivers = [("a1", "1"), ("a2", "9"), ("b1", "3"), ("b2", "9")];
    let mut receivers = receivers.map(|(host, cost)| {
        let options = if recovery == "lms" { &["--cost", cost][..] } else { &[] };
        feeds.recv_from(host, &sending, options)
    });
    let summaries = receivers.each_mut().map(|receiver| {
        let summary = receiver.process.wait_done(MINUTE);
        files::assert_same(&feeds.input(), &receiver.out, |_| true);
        summary
    });
    let sent = sender.wait_done(SOON);
    assert_eq!((number(&sent, "done"), number(&sent, "without")), (4, 0), "{sent}");
    (sent, summaries)
}

/// Asserts that a subtree without losses hears no repairs, unless a busy machine's delays made one
/// of it ask.
#[track_caller]
fn assert_hears_what_it_asks_for(subtree: [&Value; 2]) {
    let sum = |field| subtree.map(|summary| number(summary, field)).iter().sum::<u64>();
    assert!(sum("requests") > 0 || sum("repairs") == 0, "{subtree:?}");
}

#[test]
fn what_is_lost_beside_a_helper_is_repaired_by_it() {
    let Some(lab) = lab(&tree()) else { return };
    let _routers = Routers::start(&lab);
    lab.set_link_direction("r3", "b2", Impairment::none().loss(0.05)).unwrap();
    let feeds = Feeds::unannounced(&lab, &[("large", 8 * MB)]);
    let (sent, [a1, a2, b1, b2]) = run(&feeds, "lms");
    let (lost, helped) = (number(&b2, "lost"), number(&b2, "helped"));
    assert!(lost > 50 && helped > lost / 2, "{b2}");
    // Before the router knows of the helper it asks the source.
    assert!(number(&b1, "repairs_sent") > helped / 4, "{b1} {sent}");
    assert_hears_what_it_asks_for([&a1, &a2]);
}

#[test]
fn what_is_lost_before_a_router_is_repaired_from_beside_it() {
    let Some(lab) = lab(&tree()) else { return };
    let _routers = Routers::start(&lab);
    lab.set_link_direction("r1", "r3", Impairment::none().loss(0.05)).unwrap();
    let feeds = Feeds::unannounced(&lab, &[("large", 8 * MB)]);
    let (sent, [a1, _, b1, b2]) = run(&feeds, "lms");
    for summary in [&b1, &b2] {
        assert!(number(summary, "helped") > number(summary, "lost") / 2, "{summary}");
    }
    // Before the router knows of the helper it asks the source.
    assert!(number(&a1, "repairs_sent") > 50, "{a1} {sent}");
}

#[test]
fn what_is_lost_before_a_router_is_repaired_once_for_all_behind_it() {
    let Some(lab) = lab(&tree()) else { return };
    let _routers = Routers::start_with(&lab, |_| &["--source-replier"]);
    lab.set_link_direction("r1", "r3", Impairment::none().loss(0.05)).unwrap();
    let feeds = Feeds::unannounced(&lab, &[("large", 8 * MB)]);
    let (sent, [a1, a2, b1, b2]) = run(&feeds, "lms");
    for summary in [&b1, &b2] {
        assert!(number(summary, "helped") > number(summary, "lost") / 2, "{summary}");
    }
    // The source is the helper of its router.
    assert!(number(&sent, "dmcasts") > 50, "{sent}");
    assert_hears_what_it_asks_for([&a1, &a2]);
}

#[test]
fn the_source_alone_repairs_across_these_routers_too() {
    let Some(lab) = lab(&tree()) else { return };
    let _routers = Routers::start(&lab);
    for (router, host) in [("r2", "a2"), ("r3", "b2"), ("r1", "r2")] {
        lab.set_link_direction(router, host, Impairment::none().loss(0.03)).unwrap();
    }
    let feeds = Feeds::unannounced(&lab, &[("large", 3 * MB)]);
    let (sent, [_, _, _, b2]) = run(&feeds, "source");
    assert!(number(&sent, "repairs") > 0 && number(&b2, "repairs") > 0, "{sent} {b2}");
}
