//! What the tests with real programs in a lab share.
#![allow(dead_code)]

pub(crate) mod bench;
pub(crate) mod everyone;
pub(crate) mod files;
pub(crate) mod process;

use std::io::Write as _;

use umbel_lab::{Impairment, Lab, Node, Topology};

/// Builds the lab, or says on the real stderr why the test is skipped.
pub(crate) fn lab(topology: &Topology) -> Option<Lab> {
    if let Err(reason) = Lab::available() {
        skip(&reason.to_string());
        return None;
    }
    Some(Lab::up(topology).unwrap())
}

/// Says why a test is skipped, past the test harness, which swallows `eprintln!`.
pub(crate) fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}

/// Whether `nft` works in the lab; otherwise the test is skipped.
pub(crate) fn has_nft(host: Node<'_>) -> bool {
    let works =
        host.command("nft").args(["list", "ruleset"]).output().is_ok_and(|o| o.status.success());
    if !works {
        skip("`nft` does not work here");
    }
    works
}

/// Runs a line of shell commands that must succeed.
pub(crate) fn sh(host: Node<'_>, line: &str) {
    let output = host.command("sh").args(["-e", "-c", line]).output().unwrap();
    assert!(output.status.success(), "`{line}`: {}", String::from_utf8_lossy(&output.stderr));
}

/// The server `h1` and clients `h2`, `h3` … on a switch; each client's link is impaired both ways.
pub(crate) fn star(clients: usize, impairment: Impairment) -> Topology {
    star_with(clients, impairment, impairment)
}

/// As [`star`], with something else towards the clients than away from them.
pub(crate) fn star_with(clients: usize, towards: Impairment, away: Impairment) -> Topology {
    Topology::star(clients + 1).with_every_link(|link| {
        if link.a != "h1" {
            link.emulated = Some(true);
            link.a_to_b = away;
            link.b_to_a = towards;
        }
    })
}
