//! A path that is narrower than the hosts at its ends believe: full packets vanish in the middle.

use umbel_lab::Topology;

use crate::support::bench::{Bench, EVERYTHING, SOON};
use crate::support::feeds::Feeds;
use crate::support::{MB, MINUTE, group, lab, number};

/// Returns a network in which `h2` is behind a link that carries 1280 bytes, and `h3` is not.
fn narrow() -> Topology {
    let topology = Topology::new().host("h1").host("h2").host("h3").router("r1").router("r2");
    let topology = topology.link("h1", "r1").link("r1", "h3");
    topology.link("r1", "r2").mtu(1280).link("r2", "h2")
}

#[test]
fn a_client_behind_it_gets_everything_by_unicast() {
    let Some(lab) = lab(&narrow()) else { return };
    let bench = Bench::new(&lab, &[("large", 2 * MB), ("small", 1000)]);
    let server = bench.serve(&["--rate", "20M"]);
    let serving = server.process.events("serving").remove(0);
    lab.route_multicast("h1", group(&serving["channel"])).unwrap();
    let [mut behind, mut beside] =
        ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING));
    let summary = bench.check_all(&mut behind, MINUTE);
    assert!(number(&summary, "unicast_blocks") > 0, "{summary}");
    // The other has nothing to do with it.
    let summary = bench.check_all(&mut beside, MINUTE);
    assert_eq!(number(&summary, "unicast_blocks"), 0, "{summary}");
}

#[test]
fn a_receiver_behind_it_gets_a_feed_by_unicast_and_names_the_mtu() {
    let Some(lab) = lab(&narrow()) else { return };
    let feeds = Feeds::new(&lab, &[("large", 8 * MB)]);
    let mut sender = feeds.send(&[]);
    let mut receiver = feeds.recv("h2", &[]);
    let summary = feeds.check(&mut receiver, MINUTE);
    assert!(number(&summary, "fetched") > 0, "{summary}");
    let fallback = receiver.process.wait_for_event("fallback", SOON);
    assert!(fallback["cause"].as_str().unwrap_or_default().contains("MTU"), "{fallback}");
    let summary = sender.wait_done(SOON);
    assert_eq!((number(&summary, "done"), number(&summary, "without")), (1, 0), "{summary}");
    assert_eq!(summary["receivers"][0]["by_unicast"], true, "{summary}");
}
