//! Helpers shared by tests in a lab.

use std::io::Write as _;

use crate::{Lab, Node, Topology};

/// Builds a lab, or skips the test.
///
/// # Panics
///
/// If this machine can host a lab and building this one fails; and as [`skip`] does.
pub fn lab(topology: &Topology) -> Option<Lab> {
    if let Err(reason) = Lab::available() {
        skip(&reason.to_string());
        return None;
    }
    Some(Lab::up(topology).unwrap_or_else(|error| panic!("{error}")))
}

/// Returns whether `nft` works in the lab. If not, reports the test as skipped.
///
/// # Panics
///
/// As [`skip`] does.
pub fn has_nft(host: Node<'_>) -> bool {
    let works =
        host.command("nft").args(["list", "ruleset"]).output().is_ok_and(|o| o.status.success());
    if !works {
        skip("`nft` does not work here");
    }
    works
}

/// Reports on the real standard error why a test is skipped, since the test harness captures
/// `eprintln!`.
///
/// # Panics
///
/// If `UMBEL_LAB=required` states that this machine has all that tests need.
pub fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let required = std::env::var_os("UMBEL_LAB").is_some_and(|value| value == "required");
    assert!(!required, "{name} would be skipped, but UMBEL_LAB=required: {reason}");
    say_skipped(reason);
}

/// Reports why a test is skipped that may be skipped on any machine. Another project's program is
/// not installed, or the machine is too busy for its clock to mean anything.
pub fn say_skipped(reason: &str) {
    let name = std::thread::current().name().unwrap_or("?").to_owned();
    let _ = writeln!(std::io::stderr(), "SKIPPED {name}: {reason}");
}
