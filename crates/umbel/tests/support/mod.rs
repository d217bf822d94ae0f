//! Shared parts of the tests with real programs in a lab.
#![allow(dead_code, unused_imports)]

pub(crate) mod bench;
pub(crate) mod doctor;
pub(crate) mod documents;
pub(crate) mod ear;
pub(crate) mod everyone;
pub(crate) mod feeds;
pub(crate) mod files;
pub(crate) mod ladder;
pub(crate) mod lms;
pub(crate) mod process;
pub(crate) mod routers;
pub(crate) mod smo;
pub(crate) mod ssm;
pub(crate) mod stage;
pub(crate) mod streams;
pub(crate) mod tap;
pub(crate) mod turn;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
pub(crate) use umbel_lab::testing::{has_nft, lab, skip};
use umbel_lab::{Impairment, Lab, Node, Topology};

/// Patience with a transfer on a busy machine.
pub(crate) const MINUTE: Duration = Duration::from_mins(1);
pub(crate) const MB: u64 = 1_000_000;

/// Returns a number of a report.
#[track_caller]
pub(crate) fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("no number `{field}` in {report}"))
}

/// Runs a line of shell commands that must succeed.
pub(crate) fn sh(host: Node<'_>, line: &str) {
    let output = host.command("sh").args(["-e", "-c", line]).output().unwrap();
    assert!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
}

/// Lets no multicast come to a host from now on.
pub(crate) fn make_deaf(lab: &Lab, host: &str) {
    let drop = "nft add table inet t; nft 'add chain inet t in { type filter hook input \
                priority 0; }'; nft add rule inet t in ip daddr 224.0.0.0/4 drop";
    sh(lab.host(host).unwrap(), drop);
}

/// Creates a topology with the server `h1` and clients `h2`, `h3` … on a switch. Each client's link
/// is impaired both ways.
pub(crate) fn star(clients: usize, impairment: Impairment) -> Topology {
    Topology::star(clients + 1).with_every_link(|link| {
        if link.a != "h1" {
            link.emulated = Some(true);
            link.a_to_b = impairment;
            link.b_to_a = impairment;
        }
    })
}

/// Creates a topology with the server `h1` and the clients `h2` and `h3` at a router, `h2` behind a
/// link with this loss.
pub(crate) fn behind_a_router(loss: f64) -> Topology {
    Topology::new()
        .host("h1")
        .router("r")
        .link("h1", "r")
        .host("h2")
        .link("r", "h2")
        .loss(loss)
        .delay(Duration::from_millis(5))
        .host("h3")
        .link("r", "h3")
        .loss(0.01)
}

/// Returns the group of a channel as `serve` prints it, such as `239.255.1.2:7701`,
/// `[ff15::1]:7701` or `232.1.2.3:7702@10.1.0.1`.
#[track_caller]
pub(crate) fn group(channel: &Value) -> IpAddr {
    let destination = channel.as_str().unwrap().split('@').next().unwrap();
    destination.parse::<SocketAddr>().unwrap().ip()
}

/// Creates a topology with the source `h1` behind a router, and `subnets` subnets behind another.
/// Each subnet has `receivers` receivers: `a1`, `a2` …, `b1` ….
pub(crate) fn subnets(subnets: usize, receivers: usize) -> Topology {
    let mut topology = Topology::new().host("h1").router("r0").link("h1", "r0").router("r1");
    topology = topology.link("r0", "r1").emulated();
    for subnet in ('a'..).take(subnets) {
        let switch = format!("s{subnet}");
        topology = topology.switch(&switch).link("r1", &switch).emulated();
        for receiver in 1..=receivers {
            let host = format!("{subnet}{receiver}");
            topology = topology.host(&host).link(&switch, &host).emulated();
        }
    }
    topology
}
