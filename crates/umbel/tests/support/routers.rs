//! `umbel router` on the routers of a lab.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use umbel_lab::{Lab, NodeKind, Topology};

use super::bench::SOON;
use super::feeds::Feeds;
use super::lms::wait_until;
use super::process::{BUSY, Logs, Process};
use super::{MINUTE, files, number};

/// Intervals so short that a test need not wait.
pub(crate) const FAST: [&str; 4] = ["--query-interval", "2s", "--hello-interval", "1s"];

/// A router on each router of a lab.
pub(crate) struct Routers<'lab> {
    pub(crate) lab: &'lab Lab,
    pub(crate) logs: Logs,
    processes: BTreeMap<String, Process>,
}

impl<'lab> Routers<'lab> {
    /// Starts all of them, and waits until neighbours know each other.
    #[track_caller]
    pub(crate) fn start(lab: &'lab Lab) -> Routers<'lab> {
        Routers::start_with(lab, |_| &[])
    }

    /// Starts all of them, each with its own options.
    #[track_caller]
    pub(crate) fn start_with<'a>(
        lab: &'lab Lab,
        options: impl Fn(&str) -> &'a [&'a str],
    ) -> Routers<'lab> {
        let mut routers = Routers::none(lab);
        for name in routers.names() {
            routers.run(&name, options(&name));
        }
        routers.wait_for_neighbours();
        routers
    }

    /// Starts none of them yet.
    pub(crate) fn none(lab: &'lab Lab) -> Routers<'lab> {
        Routers { lab, logs: Logs::default(), processes: BTreeMap::new() }
    }

    fn names(&self) -> Vec<String> {
        let nodes = self.lab.topology().nodes.iter();
        nodes.filter(|node| node.kind == NodeKind::Router).map(|node| node.name.clone()).collect()
    }

    /// Starts the router of a node.
    #[track_caller]
    pub(crate) fn run(&mut self, name: &str, options: &[&str]) {
        let mut command = self.lab.host(name).unwrap().command(env!("CARGO_BIN_EXE_umbel"));
        command.args(["-vv", "router", "--json"]).args(FAST).args(options);
        let process = Process::start(name, command, &self.logs);
        process.wait_for_event("routing", SOON);
        self.processes.insert(name.to_owned(), process);
    }

    /// Returns the process of a router.
    pub(crate) fn process(&mut self, name: &str) -> &mut Process {
        self.processes.get_mut(name).unwrap()
    }

    /// Waits until each router knows those at its links, in both families.
    #[track_caller]
    pub(crate) fn wait_for_neighbours(&self) {
        let names = self.names();
        for name in &names {
            let interfaces = self.lab.host(name).unwrap().interfaces();
            let expected = 2 * interfaces.iter().filter(|i| names.contains(&i.peer)).count();
            wait_until(&format!("{name} knows {expected} neighbours"), SOON, || {
                self.neighbours(name) == expected
            });
        }
    }

    /// Returns the number of neighbours of a router, in both families.
    pub(crate) fn neighbours(&self, name: &str) -> usize {
        let status = self.status(name);
        let interfaces = status["control"]["interfaces"].as_array().unwrap();
        let links = interfaces.iter().flat_map(|i| i["links"].as_array().unwrap());
        links.map(|link| link["neighbours"].as_array().unwrap().len()).sum()
    }

    /// Returns what `umbel router status` says on a router.
    #[track_caller]
    pub(crate) fn status(&self, name: &str) -> Value {
        let mut command = self.lab.host(name).unwrap().command(env!("CARGO_BIN_EXE_umbel"));
        let output = command.args(["router", "status", "--json"]).output().unwrap();
        if !output.status.success() {
            self.logs.fail(&format!("{name}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        let event: Value = serde_json::from_slice(&output.stdout).unwrap();
        event["status"].clone()
    }

    /// Returns the interfaces on which a router forwards a group, with the names of the nodes
    /// there.
    pub(crate) fn outputs(&self, name: &str, group: &str) -> Vec<String> {
        let status = self.status(name);
        let forwarded = status["forwarded"].as_array().unwrap();
        let Some(entry) = forwarded.iter().find(|entry| entry["group"] == group) else {
            return Vec::new();
        };
        let interfaces = self.lab.host(name).unwrap().interfaces();
        let outputs = entry["outputs"].as_array().unwrap().iter();
        let mut peers: Vec<String> = outputs
            .map(|output| {
                let found = interfaces.iter().find(|interface| *output == *interface.name);
                found.unwrap().peer.clone()
            })
            .collect();
        peers.sort();
        peers
    }

    /// Waits until a router forwards a group to these nodes and no others.
    #[track_caller]
    pub(crate) fn wait_for_outputs(&self, name: &str, group: &str, peers: &[&str]) {
        self.wait_for_outputs_within(name, group, peers, SOON);
    }

    /// Does so within a time.
    #[track_caller]
    pub(crate) fn wait_for_outputs_within(
        &self,
        name: &str,
        group: &str,
        peers: &[&str],
        timeout: Duration,
    ) {
        let until = std::time::Instant::now() + BUSY * timeout;
        while self.outputs(name, group) != peers {
            if std::time::Instant::now() > until {
                let status = self.status(name);
                self.logs
                    .fail(&format!("{name} does not forward {group} to {peers:?}: {status:#}"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Returns three routers in a row: the source at the first, a host at each of the others.
pub(crate) fn chain() -> Topology {
    Topology::new()
        .host("source")
        .router("r1")
        .router("r2")
        .router("r3")
        .host("near")
        .host("far")
        .link("source", "r1")
        .link("r1", "r2")
        .link("r2", "r3")
        .link("r2", "near")
        .link("r3", "far")
}

/// Creates a source at r1, and two receivers each at r2 and r3.
pub(crate) fn tree() -> Topology {
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
pub(crate) fn send_by(feeds: &Feeds<'_>, recovery: &str) -> (Value, [Value; 4]) {
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
