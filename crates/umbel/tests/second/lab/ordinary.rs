//! Machines as people have them: a second network card, a start before the network, two runs at
//! once, no place for state.

use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use umbel_lab::{Impairment, Lab, Topology};

use crate::support::bench::{Bench, EVERYTHING, SOON};
use crate::support::feeds::Feeds;
use crate::support::files;
use crate::support::process::Process;
use crate::support::{MB, MINUTE, lab, number, sh, star};

const FILES: &files::Plan<'static> = &[("a", 3 * MB), ("b/c", 3 * MB), ("d", 10)];

/// Returns hosts with two network cards: `eth0` in the office, where the default route is, and
/// `eth1` in the lab.
fn two_cards() -> Option<Lab> {
    let mut topology = Topology::new().switch("office").switch("lab").host("h1").host("h2");
    for switch in ["office", "lab"] {
        topology = topology.link("h1", switch).link("h2", switch);
    }
    let lab = lab(&topology)?;
    for host in ["h1", "h2"] {
        sh(lab.host(host).unwrap(), "ip route replace default dev eth0");
    }
    Some(lab)
}

/// Takes the addresses from a host's card, as before DHCP, and leaves those of the link.
fn unplug(lab: &Lab, host: &str) {
    let file = saved(host);
    sh(
        lab.host(host).unwrap(),
        &format!("ip addr save dev eth0 > {file}; ip addr flush dev eth0 scope global"),
    );
}

fn saved(host: &str) -> String {
    format!("{}/umbel-{}-{host}", std::env::temp_dir().display(), std::process::id())
}

fn plug(lab: &Lab, host: &str) {
    let file = saved(host);
    // The address of the link is there already, which is an error to it.
    let line =
        format!("ip addr restore < {file} || ip addr show dev eth0 | grep global; rm {file}");
    sh(lab.host(host).unwrap(), &line);
}

/// Returns all notes of a process.
fn notes(process: &Process) -> String {
    let notes = process.events("note");
    let lines: Vec<&str> = notes.iter().map(|note| note["message"].as_str().unwrap()).collect();
    lines.join("\n")
}

fn start(feeds: &Feeds<'_>, label: &str, mut command: Command) -> Process {
    command.arg("--json");
    Process::start(label, command, &feeds.logs)
}

#[test]
fn a_feed_is_heard_on_whichever_card_it_comes() {
    let Some(lab) = two_cards() else { return };
    let feeds = Feeds::new(&lab, FILES);
    let mut sender = feeds.send(&["--interface", "eth1", "--wait-for", "2", "--linger", "3s"]);
    let sending = sender.events("sending").remove(0);
    let groups = feeds.umbel("h2").args(["groups", "--wait", "1s"]).output().unwrap();
    assert!(String::from_utf8_lossy(&groups.stdout).contains("feed"), "{groups:?}");
    let doctor = feeds.umbel("h2").args(["doctor", "--quick"]).output().unwrap();
    let said = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(said.contains("eth0 has nothing, eth1 has 1 session"), "{doctor:?}");
    let mut receivers =
        [feeds.recv_as("h2", "name", &[]), feeds.recv_from("h2", &sending, &["--as", "address"])];
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
        let found = receiver.process.events("feed").remove(0);
        assert_eq!(found["interface"], "eth1");
    }
    assert_eq!(number(&sender.wait_done(SOON), "done"), 2);
    // A sender that is not told which says so.
    let mut command = feeds.umbel("h1");
    command.args(["send", "--name", "other"]).arg(feeds.input());
    let sender = start(&feeds, "other", command);
    let sending = sender.wait_for_event("sending", SOON);
    assert_eq!(sending["interface"], "eth0");
    assert!(notes(&sender).contains("eth1"), "{}", notes(&sender));
}

#[test]
fn what_starts_before_the_network_waits_for_it() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, FILES);
    for host in ["h1", "h2", "h3"] {
        unplug(&lab, host);
    }
    let mut command = feeds.umbel("h1");
    command.args(["send", "--name", "feed", "--wait-for", "1"]).arg(feeds.input());
    let mut sender = start(&feeds, "send", command);
    let mut command = feeds.umbel("h3");
    command.arg("serve").arg(feeds.input());
    let mut server = start(&feeds, "serve", command);
    let mut receiver = feeds.recv("h2", &[]);
    // Longer than it is waited for a link-local address to be all.
    std::thread::sleep(Duration::from_secs(7));
    for (process, what) in [(&sender, "sending"), (&server, "serving")] {
        assert!(notes(process).contains("no interface has an address yet"));
        assert!(process.events(what).is_empty(), "it took another interface");
    }
    for host in ["h1", "h2", "h3"] {
        plug(&lab, host);
    }
    feeds.check(&mut receiver, MINUTE);
    assert_eq!(number(&sender.wait_done(SOON), "done"), 1);
    let serving = server.wait_for_event("serving", SOON);
    assert_eq!(serving["interface"], "eth0");
    // Its address goes, and another comes.
    sh(lab.host("h3").unwrap(), "ip addr flush dev eth0; ip addr add 192.0.2.77/24 dev eth0");
    let is_it = |event: &Value| {
        event["event"] == "serving" && event["url"].as_str().unwrap().contains("192.0.2.77")
    };
    server.wait_for("another address", SOON, is_it);
    server.stop();
}

#[test]
fn a_receiver_that_moves_keeps_its_place_and_both_ends_agree() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, FILES);
    let mut sender = feeds.send(&["--rate", "5M", "--wait-for", "2"]);
    let mut receivers = ["h2", "h3"].map(|host| feeds.recv(host, &[]));
    receivers[0].process.wait_for_event("item", MINUTE);
    let other = "ip addr flush dev eth0 scope global; ip addr add 10.1.0.77/16 dev eth0; \
                 ip route replace default dev eth0";
    sh(lab.host("h2").unwrap(), other);
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
    assert!(notes(&receivers[0].process).contains("the address of this host has changed"));
    let summary = sender.wait_done(SOON);
    assert_eq!((number(&summary, "done"), number(&summary, "without")), (2, 0), "{summary}");
}

#[test]
fn of_two_runs_in_one_directory_the_second_has_what_the_first_brought() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, FILES);
    let mut sender = feeds.send(&["--rate", "30M", "--wait-for", "1"]);
    let mut runs = [(); 2].map(|()| feeds.recv_as("h2", "both", &[]));
    for run in &mut runs {
        let summary = run.process.wait_done(MINUTE);
        assert_eq!(number(&summary, "items") + number(&summary, "already_there"), 3);
    }
    // Once both have ended, nothing else is in the directory: no parts, no locks.
    files::assert_same(&feeds.input(), &runs[0].out, |_| true);
    let summary = sender.wait_done(SOON);
    assert_eq!((number(&summary, "done"), number(&summary, "without")), (1, 0), "{summary}");

    let bench = Bench::new(&lab, FILES);
    let server = bench.serve(&["--rate", "10M"]);
    let mut runs = [(); 2].map(|()| bench.get_as("h2", "both", &server.url, EVERYTHING));
    for run in &mut runs {
        run.process.wait_done(MINUTE);
    }
    files::assert_same(&bench.repo(), &runs[0].out, |_| true);
    let notes: String = runs.iter().map(|run| notes(&run.process)).collect();
    assert!(notes.contains("is receiving the same"), "{notes}");
}

#[test]
fn a_receiver_needs_no_place_for_its_state() {
    let Some(lab) = lab(&star(3, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, FILES);
    let mut sender = feeds.send(&["--wait-for", "3"]);
    let url = sender.events("sending").remove(0)["url"].as_str().unwrap().to_owned();
    let recv = |host: &str, feed: &str, home: Option<&str>| {
        let mut command = feeds.umbel(host);
        command.args(["recv", feed, "--wait", "20s", "-o"]).arg(feeds.out(host));
        command.env_remove("XDG_STATE_HOME").env_remove("HOME");
        if let Some(home) = home {
            command.env("HOME", home);
        }
        start(&feeds, host, command)
    };
    let mut runs = [
        (recv("h2", &url, None), "an earlier feed"),
        (recv("h3", &url, Some("/proc/nowhere")), "an earlier feed"),
        (recv("h4", "feed", None), "next time anybody"),
    ];
    for ((run, said), host) in runs.iter_mut().zip(["h2", "h3", "h4"]) {
        run.wait_done(MINUTE);
        files::assert_same(&feeds.input(), &feeds.out(host), |_| true);
        assert!(notes(run).contains(*said), "{}", notes(run));
    }
    assert_eq!(number(&sender.wait_done(SOON), "done"), 3);
}

/// One of thirty never gets an address, one has a second card, one no place for state, one already
/// has a file, one is killed and started again.
#[test]
fn of_thirty_machines_that_boot_before_their_network_all_that_can_have_everything() {
    let Some(lab) = lab(&Topology::star(31)) else { return };
    let feeds = Feeds::new(&lab, FILES);
    let hosts: Vec<String> = (2..=31).map(|n| format!("h{n}")).collect();
    let list = feeds.directory.path().join("list");
    std::fs::write(&list, hosts.join("\n")).unwrap();
    for host in ["h1"].into_iter().chain(hosts.iter().map(String::as_str)) {
        unplug(&lab, host);
    }
    let office = "ip link add office type veth peer name desk; ip link set desk up; \
                  ip link set office up; ip addr add 10.200.0.3/24 dev office; \
                  ip route replace default dev office";
    sh(lab.host("h3").unwrap(), office);
    std::fs::create_dir_all(feeds.out("h5")).unwrap();
    std::fs::copy(feeds.input().join("a"), feeds.out("h5").join("a")).unwrap();

    let mut command = feeds.umbel("h1");
    command.args(["send", "--name", "feed", "--token", "room", "--wait-for", "29,2min", "--admit"]);
    command.arg(&list).arg(feeds.input());
    let mut sender = start(&feeds, "sender", command);
    let recv = |host: &str| {
        let mut command = feeds.umbel(host);
        command.args(["recv", "feed", "--token", "room", "--as", host, "--wait", "2min", "-o"]);
        command.arg(feeds.out(host));
        if host == "h4" {
            command.env_remove("XDG_STATE_HOME").env("HOME", "/proc/nowhere");
        }
        start(&feeds, host, command)
    };
    let mut receivers: Vec<Process> = hosts.iter().map(|host| recv(host)).collect();
    std::thread::sleep(Duration::from_secs(3));
    for host in ["h1"].into_iter().chain(hosts[..29].iter().map(String::as_str)) {
        plug(&lab, host);
    }
    receivers[4].kill();
    receivers[4] = recv("h6");
    for (receiver, host) in receivers.iter_mut().zip(&hosts).take(29) {
        receiver.wait_done(MINUTE);
        files::assert_same(&feeds.input(), &feeds.out(host), |_| true);
    }
    // The sender names the one that is missing.
    assert!(!sender.wait_end(MINUTE).success());
    let done = sender.events("done").remove(0);
    assert_eq!((number(&done["summary"], "done"), number(&done["summary"], "without")), (29, 1));
    assert!(sender.stderr().contains("h31"), "{}", sender.stderr());
}
