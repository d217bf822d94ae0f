//! Networks as people have them: without routes, without IPv4, with a bridge of containers, and
//! with cables that are pulled.

use std::time::Duration;

use serde_json::Value;
use umbel_lab::{Impairment, Lab};

use crate::support::bench::{Bench, EVERYTHING, SOON};
use crate::support::feeds::Feeds;
use crate::support::process::Process;
use crate::support::{MB, MINUTE, files, lab, number, sh, star};

const FILES: &files::Plan<'static> = &[("a", 2 * MB), ("b/c", 1000)];

/// Runs a line of shell commands on all hosts.
fn everywhere(lab: &Lab, line: &str) {
    for host in lab.hosts_and_routers() {
        sh(host, line);
    }
}

/// Serves and sends with these options, and checks that both arrive, by multicast. Returns the
/// server and the sender.
fn serve_and_send(lab: &Lab, options: &[&str]) -> [Process; 2] {
    let bench = Bench::new(lab, FILES);
    let server = bench.serve(&[&["--rate", "20M"], options].concat());
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    let summary = bench.check_all(&mut client, MINUTE);
    assert_eq!(number(&summary, "unicast_blocks"), 0, "{summary}");

    let feeds = Feeds::new(lab, FILES);
    let (mut sender, _) =
        feeds.send_unrouted(&[&["--rate", "20M", "--wait-for", "1"], options].concat());
    let mut receiver = feeds.recv("h2", &[]);
    feeds.check(&mut receiver, MINUTE);
    let summary = sender.wait_done(SOON);
    assert_eq!((number(&summary, "done"), number(&summary, "without")), (1, 0), "{summary}");
    assert_eq!(summary["receivers"][0]["by_unicast"], false, "{summary}");
    [server.process, sender]
}

#[test]
fn hosts_without_a_default_route_and_a_route_of_groups_need_neither() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    everywhere(&lab, "ip route del 224.0.0.0/4; ! ip route show | grep -E 'default|224'");
    for process in serve_and_send(&lab, &[]) {
        assert!(process.events("note").is_empty(), "{:?}", process.events("note"));
    }
}

#[test]
fn hosts_without_ipv4_need_no_more_than_an_option() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    everywhere(&lab, "ip -4 addr flush dev eth0; ! ip -4 addr show dev eth0 | grep inet");
    serve_and_send(&lab, &["--ipv6"]);
}

#[test]
fn a_bridge_of_containers_is_not_taken_for_the_network() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    // It comes before the card in each list, and has a container.
    let bridge = "ip link add docker0 index 2 type bridge; ip addr add 172.17.0.1/16 dev docker0; \
                  ip link add v0 type veth peer name v1; ip link set v0 master docker0; \
                  ip link set docker0 up; ip link set v0 up; ip link set v1 up; \
                  ip route replace default dev eth0";
    everywhere(&lab, bridge);
    for process in serve_and_send(&lab, &[]) {
        let notes = process.events("note");
        let named = |note: &Value| note["message"].as_str().unwrap().contains("eth0 leads");
        assert!(notes.iter().any(named), "{notes:?}");
    }
}

/// Pulls the cable of `h2` for longer than a client waits for packets, and gives it another address
/// where it is plugged in again.
fn move_to_another_network(lab: &Lab) {
    lab.set_link_up("h2", "sw", false).unwrap();
    std::thread::sleep(Duration::from_secs(8));
    let other = "ip addr flush dev eth0 scope global; ip addr add 10.1.0.77/16 dev eth0; \
                 ip route replace 224.0.0.0/4 dev eth0";
    sh(lab.host("h2").unwrap(), other);
    lab.set_link_up("h2", "sw", true).unwrap();
}

#[test]
fn a_client_whose_cable_is_plugged_in_elsewhere_goes_on() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let bench = Bench::new(&lab, &[("large", 6 * MB)]);
    let server = bench.serve(&["--rate", "5M"]);
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    bench.wait_until_stored(&client, MB);
    move_to_another_network(&lab);
    bench.check_all(&mut client, MINUTE);
}
