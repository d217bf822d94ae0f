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

mod announcements;
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

use crate::endpoint::interface as choice;

pub use announcements::compare as compare_announcements;
pub use host::{HostRequest, examine_host};
pub use interface::{find as find_interface, find_all as find_interfaces};
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
    /// The interface that was checked, where there are several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The finding as one line in plain words.
    pub what: String,
    /// The command that fixes it. If there is none on this host, advice on what to do.
    pub mend: Option<String>,
}

impl Finding {
    fn new(check: &'static str, verdict: Verdict, what: impl Into<String>) -> Finding {
        Finding { check, verdict, interface: None, what: what.into(), mend: None }
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

/// Returns lines that say why no session is heard on this host, on the interface that the user names
/// or on any: the first reason, and then each command that mends one. Without lines, nothing
/// certainly keeps sessions out. What is wrong on some interfaces does not explain the silence on the
/// others. Takes less than 3 s for each.
pub fn why_nothing_is_heard(wanted: Option<&str>) -> Vec<String> {
    let interfaces = match wanted {
        Some(wanted) => Interface::resolve(wanted).map(|found| vec![found]),
        None => choice::heard(),
    };
    let mut all = Vec::new();
    for interface in interfaces.unwrap_or_default() {
        let found = keeping_feeds_out(&interface);
        if found.is_empty() {
            return Vec::new();
        }
        all.extend(found);
    }
    lines_of(&all)
}

fn lines_of(findings: &[Finding]) -> Vec<String> {
    let Some(first) = findings.first() else { return Vec::new() };
    let mut mends: Vec<String> = Vec::new();
    for mend in findings.iter().filter_map(|finding| finding.mend.as_ref()) {
        let line = format!("    {mend}");
        if !mends.contains(&line) {
            mends.push(line);
        }
    }
    let more = match findings.len() - 1 {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    let mend = if mends.is_empty() { "" } else { "; as root:" };
    let reason = format!("why that may be: {}: {}{more}{mend}", first.check, first.what);
    [vec![reason], mends].concat()
}

/// Returns the problems of this host with which no feed can be received on `interface`.
fn keeping_feeds_out(interface: &Interface) -> Vec<Finding> {
    let mut findings = Vec::new();
    let request = HostRequest { await_querier: false, ..HostRequest::for_interface(interface) };
    examine_host(&request, &mut |finding| findings.push(finding));
    keep_feeds_out(findings)
}

/// Returns the problems that keep announcements out, which are small enough for any MTU.
fn keep_feeds_out(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.retain(|finding| {
        finding.verdict == Verdict::Problem && finding.check != interface::MTU_CHECK
    });
    findings
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
    fn all_rules_that_are_missing_are_said_at_once_in_a_block() {
        let rule = |port: u16| format!("nft insert rule ip f in udp dport {port} accept");
        let drops = |port| Finding::problem("firewall", format!("drops {port}")).mend(rule(port));
        let lines = lines_of(&[drops(7702), drops(9875), drops(9875)]);
        assert_eq!(lines[0], "why that may be: firewall: drops 7702; and 2 more; as root:");
        assert_eq!(lines[1..], [7702, 9875].map(|port| format!("    {}", rule(port))));
        assert_eq!(lines_of(&[]), [""; 0]);
    }

    #[test]
    fn a_small_mtu_is_no_reason_why_nothing_is_announced() {
        let mtu = Finding::problem(interface::MTU_CHECK, "1400 bytes");
        let firewall = Finding::problem("firewall", "drops");
        assert_eq!(keep_feeds_out(vec![mtu.clone()]), []);
        assert_eq!(keep_feeds_out(vec![mtu.clone(), firewall.clone()]), [firewall]);
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
