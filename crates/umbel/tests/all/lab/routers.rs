//! `umbel router`, and `umbel send --recovery lms` between such routers.

use umbel_lab::Impairment;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::routers::{Routers, chain, send_by, tree};
use crate::support::ssm::{GROUP, GROUP6, Member, Sender};
use crate::support::{MB, lab, number};

#[test]
fn a_chain_of_routers_forwards_a_channel_as_hosts_join_and_leave() {
    let Some(lab) = lab(&chain()) else { return };
    let routers = Routers::start(&lab);
    for v6 in [false, true] {
        let group = if v6 { GROUP6.to_string() } else { GROUP.to_string() };
        let [near, far] = ["near", "far"].map(|host| Member::new(&lab, host, v6));
        let _sender = Sender::start(lab.host("source").unwrap(), v6);
        far.join();
        assert!(far.hears(SOON));
        for (router, peers) in [("r1", ["r2"]), ("r2", ["r3"]), ("r3", ["far"])] {
            routers.wait_for_outputs(router, &group, &peers);
        }
        near.join();
        assert!(near.hears(SOON));
        routers.wait_for_outputs("r2", &group, &["near", "r3"]);
        far.leave();
        routers.wait_for_outputs("r2", &group, &["near"]);
        routers.wait_for_outputs("r1", &group, &["r2"]);
        near.leave();
        for router in ["r1", "r2", "r3"] {
            routers.wait_for_outputs(router, &group, &[]);
        }
    }
    let text = lab
        .host("r2")
        .unwrap()
        .command(env!("CARGO_BIN_EXE_umbel"))
        .args(["router", "status"])
        .output()
        .unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(text.contains("eth0") && text.contains("this router"), "{text}");
}

#[test]
fn what_is_lost_before_a_router_is_repaired_from_beside_it() {
    let Some(lab) = lab(&tree()) else { return };
    let _routers = Routers::start(&lab);
    lab.set_link_direction("r1", "r3", Impairment::none().loss(0.05)).unwrap();
    let feeds = Feeds::unannounced(&lab, &[("large", 8 * MB)]);
    let (sent, [a1, _, b1, b2]) = send_by(&feeds, "lms");
    for summary in [&b1, &b2] {
        assert!(number(summary, "helped") > number(summary, "lost") / 2, "{summary}");
    }
    // Before the router knows of the helper it asks the source.
    assert!(number(&a1, "repairs_sent") > 50, "{a1} {sent}");
}
