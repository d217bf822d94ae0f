//! Reasons why multicast does not arrive: checks of this host, and of the path from a server.
//!
//! ```text
//!   this host    interface ─ route ─ memberships ─ firewall ─ rp_filter ─ IGMP/MLD ─ querier
//!                MTU ─ socket buffers
//!   the path     session ─ multicast ─ loss ─ MTU ─ rate                    (with a server's URL)
//! ```
//!
//! Each check says what it found in plain words, and which command fixes it ([`Finding`]). A check
//! that is impossible here, because a privilege or a tool is missing, says so.
//!
//! The doctor tries things rather than reading settings. It sends datagrams to a group on the
//! interface with a hop limit of 0. They reach only the sockets of this host, by way of its
//! firewall.
//!
//! # Scope and limitations
//!
//! Linux only. Firewall rules are read from nftables (`nft`), which also holds those of
//! `iptables-nft`. Of the older iptables only the effect is seen. The doctor misses a querier that
//! does not answer members that leave a group, and queries only when the doctor does not listen.
//!
//! # Validation
//!
//! `tests/all/lab/doctor.rs` breaks each thing in a lab, looks for its finding, runs the command and
//! looks again.

mod bridge;
mod buffers;
mod delivery;
mod firewall;
mod host;
mod igmp;
mod interface;
mod path;
mod querier;
mod route;
mod system;

use std::fmt;

use serde::Serialize;
use umbel_net::interface::Interface;
use umbel_wire::Channel;

pub use host::{HostRequest, examine_host};
pub use interface::find as find_interface;
pub use path::Path;

/// Verdict of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// All is well.
    Ok,
    /// It works now, but slowly, not for long, or not for everyone.
    Warning,
    /// It keeps multicast from arriving.
    Problem,
    /// It could not be checked.
    Unknown,
}

/// Finding of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The check, such as `firewall`. A check may have several findings.
    pub check: &'static str,
    /// Verdict of the check.
    pub verdict: Verdict,
    /// The finding as one line in plain words.
    pub what: String,
    /// The command that fixes it. If there is none on this host, advice on what to do.
    pub mend: Option<String>,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, what: impl Into<String>) -> Finding {
        Finding { check, verdict, what: what.into(), mend: None }
    }

    fn ok(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Verdict::Ok, what)
    }

    fn warning(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Verdict::Warning, what)
    }

    fn problem(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Verdict::Problem, what)
    }

    fn unknown(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Verdict::Unknown, what)
    }

    #[must_use]
    fn mend(mut self, mend: impl Into<String>) -> Finding {
        self.mend = Some(mend.into());
        self
    }
}

impl fmt::Display for Finding {
    /// Formats the check, its finding and the command that fixes it, in one line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.what)?;
        self.mend.iter().try_for_each(|mend| write!(f, " → {mend}"))
    }
}

/// Returns the most probable reason on this host why nothing arrives on `channel` on `interface`,
/// or `None` if it finds nothing wrong. Takes less than 1.5 s, and disturbs no other socket.
pub fn quick(interface: &Interface, channel: &Channel) -> Option<Finding> {
    let mut findings = Vec::new();
    let request =
        HostRequest { await_querier: false, ..HostRequest::for_channel(interface, *channel) };
    examine_host(&request, &mut |finding| findings.push(finding));
    most_probable(findings)
}

/// Returns the most probable reason on this host why no feed can be received on `interface`, or
/// `None` if nothing certainly keeps them out. Takes less than 3 s.
pub fn quick_for_feeds(interface: &Interface) -> Option<Finding> {
    let mut findings = Vec::new();
    let request = HostRequest { await_querier: false, ..HostRequest::for_interface(interface) };
    examine_host(&request, &mut |finding| findings.push(finding));
    keeps_feeds_out(findings)
}

/// Returns the first problem that keeps announcements out, which are small enough for any MTU.
fn keeps_feeds_out(mut findings: Vec<Finding>) -> Option<Finding> {
    findings.retain(|finding| finding.check != interface::MTU_CHECK);
    most_probable(findings).filter(|finding| finding.verdict == Verdict::Problem)
}

/// Returns the first problem, or else the first warning that explains silence.
fn most_probable(mut findings: Vec<Finding>) -> Option<Finding> {
    // A short buffer costs only some packets. A route warning explains no loss, as umbel names the
    // interface.
    findings.retain(|finding| {
        !matches!(finding.check, buffers::CHECK | route::CHECK)
            || finding.verdict == Verdict::Problem
    });
    [Verdict::Problem, Verdict::Warning]
        .into_iter()
        .find_map(|verdict| findings.iter().find(|finding| finding.verdict == verdict).cloned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_reads_as_a_line() {
        let finding = Finding::problem("interface", "eth0 is down").mend("ip link set dev eth0 up");
        assert_eq!(finding.to_string(), "interface: eth0 is down → ip link set dev eth0 up");
        assert_eq!(Finding::ok("mtu", "1500").to_string(), "mtu: 1500");
        assert_eq!(
            serde_json::to_string(&Finding::unknown("querier", "not root")).unwrap(),
            r#"{"check":"querier","verdict":"unknown","what":"not root","mend":null}"#
        );
    }

    #[test]
    fn a_problem_is_more_probable_than_a_warning_and_a_short_buffer_explains_no_silence() {
        let buffer = Finding::warning(buffers::CHECK, "small");
        let bridge = Finding::warning("querier", "none");
        let firewall = Finding::problem("firewall", "drops");
        let found = most_probable(vec![buffer.clone(), bridge.clone(), firewall.clone()]);
        assert_eq!(found, Some(firewall));
        assert_eq!(most_probable(vec![buffer.clone(), bridge.clone()]), Some(bridge));
        assert_eq!(most_probable(vec![buffer, Finding::ok("mtu", "fine")]), None);
    }

    #[test]
    fn a_small_mtu_is_no_reason_why_nothing_is_announced() {
        let mtu = Finding::problem(interface::MTU_CHECK, "1400 bytes");
        let firewall = Finding::problem("firewall", "drops");
        assert_eq!(keeps_feeds_out(vec![mtu.clone()]), None);
        assert_eq!(keeps_feeds_out(vec![mtu.clone(), firewall.clone()]), Some(firewall));
        assert_eq!(most_probable(vec![mtu.clone()]), Some(mtu), "of data it is");
    }

    #[test]
    fn the_loopback_interface_of_this_host_has_no_problem() {
        let interface = Interface::resolve("lo").unwrap();
        let channel = Channel {
            source: Some([127, 0, 0, 1].into()),
            group: [232, 7, 7, 7].into(),
            port: 40_000 + (std::process::id() % 20_000) as u16,
        };
        let found = quick(&interface, &channel).filter(|found| found.verdict == Verdict::Problem);
        assert_eq!(found, None);
    }
}
