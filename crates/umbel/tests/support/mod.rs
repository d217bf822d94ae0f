//! Shared parts of the tests with real programs in a lab.
#![allow(dead_code, unused_imports)]

pub(crate) mod bench;
pub(crate) mod ear;
pub(crate) mod everyone;
pub(crate) mod feeds;
pub(crate) mod files;
pub(crate) mod forgeries;
pub(crate) mod greedy;
pub(crate) mod ladder;
pub(crate) mod lms;
pub(crate) mod pipes;
pub(crate) mod process;
pub(crate) mod routers;
pub(crate) mod segments;
pub(crate) mod smo;
pub(crate) mod ssm;
pub(crate) mod stranger;
pub(crate) mod streams;
pub(crate) mod tap;
pub(crate) mod town;
pub(crate) mod turn;

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use serde_json::Value;
pub(crate) use umbel_lab::testing::{has_nft, lab, skip};
use umbel_lab::{Impairment, Node, Topology};

/// Runs a line of shell commands that must succeed.
pub(crate) fn sh(host: Node<'_>, line: &str) {
    let output = host.command("sh").args(["-e", "-c", line]).output().unwrap();
    assert!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
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
