//! `umbel send --recovery lms` where `umbel router` runs: helpers repair what is lost near them.

use crate::support::feeds::Feeds;
use crate::support::routers::{Routers, send_by, tree};
use crate::support::{MB, lab, number};
use serde_json::Value;
use umbel_lab::Impairment;

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
    let (sent, [a1, a2, b1, b2]) = send_by(&feeds, "lms");
    let (lost, helped) = (number(&b2, "lost"), number(&b2, "helped"));
    assert!(lost > 50 && helped > lost / 2, "{b2}");
    // Before the router knows of the helper it asks the source.
    assert!(number(&b1, "repairs_sent") > helped / 4, "{b1} {sent}");
    assert_hears_what_it_asks_for([&a1, &a2]);
}

#[test]
fn what_is_lost_before_a_router_is_repaired_once_for_all_behind_it() {
    let Some(lab) = lab(&tree()) else { return };
    let _routers = Routers::start_with(&lab, |_| &["--source-replier"]);
    lab.set_link_direction("r1", "r3", Impairment::none().loss(0.05)).unwrap();
    let feeds = Feeds::unannounced(&lab, &[("large", 8 * MB)]);
    let (sent, [a1, a2, b1, b2]) = send_by(&feeds, "lms");
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
    let (sent, [_, _, _, b2]) = send_by(&feeds, "source");
    assert!(number(&sent, "repairs") > 0 && number(&b2, "repairs") > 0, "{sent} {b2}");
}
