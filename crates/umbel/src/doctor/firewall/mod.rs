//! Finds firewall rules that drop the data, or the messages that announce memberships.
//!
//! - `ruleset.rs`: parses the listing of `nft`.
//! - `matching.rs`: decides whether a packet matches an expression.
//! - `walk.rs`: follows a packet through the chains.

mod matching;
mod ruleset;
#[cfg(test)]
mod tests;
mod walk;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use umbel_net::interface::Family;

use self::matching::{Cargo, Direction, Layer, Packet};
use self::ruleset::Ruleset;
use self::walk::{Culprit, Fate};
use super::system::{self, ToolError};
use super::{Finding, Verdict, delivery};

/// IGMP membership query and version 3 report [RFC 3376 §4].
const IGMP: [u8; 2] = [0x11, 0x22];
/// MLD query and version 2 report [RFC 3810 §5].
const MLD: [u8; 2] = [130, 143];

/// The firewall of this host, as far as it can be read.
#[derive(Debug)]
pub(super) struct Firewall {
    rules: Result<Ruleset, ToolError>,
}

/// The traffic that a firewall might drop.
#[derive(Clone, Debug)]
pub(super) struct Suspect {
    /// The interface on which it arrives.
    pub(super) interface: String,
    /// The destination group of the data.
    pub(super) group: IpAddr,
    /// The destination UDP port.
    pub(super) port: u16,
    /// The purpose in words, if the traffic is not the data.
    pub(super) purpose: Option<&'static str>,
    /// The sender, if known.
    pub(super) source: Option<IpAddr>,
    /// Whether the interface is a bridge, whose frames pass rules of their own.
    pub(super) is_bridge: bool,
}

/// Traffic that needs its own rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traffic {
    Data,
    /// Unicast to ports that the system chooses.
    Unicast,
    Membership,
}

impl Suspect {
    /// Returns a description of the traffic to the port.
    fn describe(&self) -> String {
        let purpose = self.purpose.map_or(String::new(), |purpose| format!(" ({purpose})"));
        format!("{} multicast to UDP port {}{purpose}", Family::of(self.group), self.port)
    }
}

impl Firewall {
    /// Reads the rules.
    pub(super) fn read() -> Firewall {
        let listing = system::run("nft", &["-j", "list", "ruleset"]);
        let rules = listing.and_then(|text| {
            let unread = || ToolError::Failed("`nft` did not print a ruleset".to_owned());
            // An empty ruleset may be an empty text.
            if text.trim().is_empty() {
                Ok(Ruleset::default())
            } else {
                Ruleset::parse(&text).ok_or_else(unread)
            }
        });
        Firewall { rules }
    }

    /// Checks whether data gets in. `delivered` is the result of a trial on this host.
    pub(super) fn check_data(&self, suspect: &Suspect, delivered: bool) -> Finding {
        let cargo = Cargo::Udp { port: suspect.port };
        let (group, data) = (suspect.group, suspect.describe());
        match self.fate(Direction::In, suspect, group, cargo) {
            Some(Fate::Dropped(culprit)) => self.blame(suspect, &culprit, &data, Traffic::Data),
            Some(Fate::Endangered(culprit)) if !delivered => {
                self.blame(suspect, &culprit, &data, Traffic::Data)
            }
            _ if !delivered => {
                let rule = iptables(suspect, "INPUT", Traffic::Data);
                let what = format!(
                    "a datagram to a group of this host was not delivered on {}: something drops \
                     {data}",
                    suspect.interface
                );
                Finding::problem(delivery::CHECK, what).mend(if self.rules.is_ok() {
                    rule
                } else {
                    "nft list ruleset, as root".to_owned()
                })
            }
            _ => Finding::ok(
                delivery::CHECK,
                format!("{data} is delivered on {}", suspect.interface),
            ),
        }
    }

    /// Checks whether hosts that were not asked can send unicast to this host. Receivers of its
    /// feeds do so, and nodes of a feed's tree. Returns `None` if they can, or if the rules are
    /// unknown.
    pub(super) fn check_unicast(&self, suspect: &Suspect, address: IpAddr) -> Option<Finding> {
        let (first, last) = system::local_ports();
        let cargo = Cargo::Udp { port: first / 2 + last / 2 };
        let unknown = Suspect { source: None, ..suspect.clone() };
        let Some(Fate::Dropped(culprit)) = self.fate(Direction::In, &unknown, address, cargo)
        else {
            return None;
        };
        let what = format!(
            "unicast of other hosts to UDP ports {first} to {last}: receivers cannot join feeds that \
             this host sends, nor the subnet that it manages"
        );
        let blame = self.blame(suspect, &culprit, &what, Traffic::Unicast);
        Some(Finding { verdict: Verdict::Warning, ..blame })
    }

    /// Checks whether rules of a bridge drop the data. A trial on this host does not pass them.
    /// Returns `None` if they do not, or if the rules are unknown.
    pub(super) fn check_bridge(&self, suspect: &Suspect) -> Option<Finding> {
        if !suspect.is_bridge {
            return None;
        }
        let cargo = Cargo::Udp { port: suspect.port };
        let data = suspect.describe();
        match self.fate_on(Layer::Frame, Direction::In, suspect, (suspect.group, cargo))? {
            Fate::Passes => None,
            Fate::Dropped(culprit) => Some(self.blame(suspect, &culprit, &data, Traffic::Data)),
            Fate::Endangered(culprit) => {
                let data = format!("{data}, perhaps");
                let blame = self.blame(suspect, &culprit, &data, Traffic::Data);
                Some(Finding { verdict: Verdict::Warning, ..blame })
            }
        }
    }

    /// Checks whether queries get in and reports get out.
    pub(super) fn check_membership(&self, suspect: &Suspect) -> Finding {
        let protocol = if suspect.group.is_ipv4() { "IGMP" } else { "MLD" };
        let unread = match &self.rules {
            Ok(_) => None,
            Err(ToolError::Missing) => Some(("`nft` is not installed", "apt install nftables")),
            Err(ToolError::Failed(_)) => {
                Some(("the firewall's rules cannot be read", "run `umbel doctor` as root"))
            }
        };
        if let Some((why, mend)) = unread {
            let what = format!("{why}: whether they drop {protocol} is not known");
            return Finding::unknown(delivery::CHECK, what).mend(mend);
        }
        let (kinds, hosts, reports): (_, IpAddr, IpAddr) = if suspect.group.is_ipv4() {
            (IGMP, Ipv4Addr::new(224, 0, 0, 1).into(), Ipv4Addr::new(224, 0, 0, 22).into())
        } else {
            let link = |last| Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, last).into();
            (MLD, link(1), link(0x16))
        };
        let ways = [(Direction::In, "queries", hosts), (Direction::Out, "reports", reports)];
        for ((direction, what, to), kind) in ways.into_iter().zip(kinds) {
            let cargo = Cargo::Membership { kind };
            // Queries come from the querier, whose address is unknown.
            let unknown = Suspect { source: None, ..suspect.clone() };
            if let Some(Fate::Dropped(culprit)) = self.fate(direction, &unknown, to, cargo) {
                let what = format!("{protocol} {what}, by which switches and routers know members");
                return self.blame(suspect, &culprit, &what, Traffic::Membership);
            }
        }
        Finding::ok(delivery::CHECK, format!("{protocol} passes"))
    }

    /// Names the rule that keeps this host from sending, if sending was refused.
    pub(super) fn explain_refusal(&self, finding: Finding, suspect: &Suspect) -> Finding {
        if finding.check != delivery::CHECK {
            return finding;
        }
        let cargo = Cargo::Udp { port: suspect.port };
        match self.fate(Direction::Out, suspect, suspect.group, cargo) {
            Some(Fate::Dropped(culprit) | Fate::Endangered(culprit)) => {
                let data = format!("outgoing {}", suspect.describe());
                self.blame(suspect, &culprit, &data, Traffic::Data)
            }
            _ => finding,
        }
    }

    fn fate(
        &self,
        direction: Direction,
        suspect: &Suspect,
        destination: IpAddr,
        cargo: Cargo,
    ) -> Option<Fate> {
        self.fate_on(Layer::Packet, direction, suspect, (destination, cargo))
    }

    fn fate_on(
        &self,
        layer: Layer,
        direction: Direction,
        suspect: &Suspect,
        (destination, cargo): (IpAddr, Cargo),
    ) -> Option<Fate> {
        let packet = Packet {
            layer,
            direction,
            interface: &suspect.interface,
            source: suspect.source,
            destination,
            cargo,
        };
        Some(walk::fate(self.rules.as_ref().ok()?, &packet))
    }

    fn blame(&self, suspect: &Suspect, culprit: &Culprit, what: &str, traffic: Traffic) -> Finding {
        let Culprit { table, chain, handle } = culprit;
        let place = format!("chain `{chain}` of table `{} {}`", table.family, table.name);
        let rule = match handle {
            None => format!("the policy of {place}"),
            Some(handle) => match rule_text(culprit, *handle) {
                Some(text) => format!("the rule `{text}` in {place}"),
                None => format!("rule {handle} in {place}"),
            },
        };
        let mend = self
            .rules
            .as_ref()
            .map_or_else(|_| String::new(), |rules| permit(rules, culprit, suspect, traffic));
        Finding::problem(delivery::CHECK, format!("{rule} drops {what}")).mend(mend)
    }
}

/// Returns the rule as `nft` writes it.
fn rule_text(culprit: &Culprit, handle: u64) -> Option<String> {
    let Culprit { table, chain, .. } = culprit;
    let listing =
        system::run("nft", &["-a", "list", "chain", &table.family, &table.name, chain]).ok()?;
    let end = format!("# handle {handle}");
    let line = listing.lines().find_map(|line| line.trim().strip_suffix(&end))?;
    Some(line.trim().to_owned())
}

/// Returns the command that lets the traffic through where the culprit drops it.
fn permit(rules: &Ruleset, culprit: &Culprit, suspect: &Suspect, traffic: Traffic) -> String {
    let Culprit { table, chain, .. } = culprit;
    let v4 = suspect.group.is_ipv4();
    if table.name == "firewalld" {
        return match (traffic, v4) {
            (Traffic::Data, _) => format!("firewall-cmd --add-port={}/udp", suspect.port),
            (Traffic::Unicast, _) => format!("firewall-cmd --add-port={}/udp", local_ports('-')),
            (Traffic::Membership, true) => "firewall-cmd --add-protocol=igmp".to_owned(),
            (Traffic::Membership, false) => "firewall-cmd --add-protocol=ipv6-icmp".to_owned(),
        };
    }
    // The tables of iptables-nft; nft itself uses lowercase by convention.
    if table.name == "filter" && rules.chain(table, "INPUT").is_some() {
        return iptables(suspect, chain, traffic);
    }
    let matches = match (traffic, v4) {
        (Traffic::Data, true) => format!("ip daddr 224.0.0.0/4 udp dport {}", suspect.port),
        (Traffic::Data, false) => format!("ip6 daddr ff00::/8 udp dport {}", suspect.port),
        (Traffic::Unicast, _) => format!("udp dport {}", local_ports('-')),
        (Traffic::Membership, true) => "ip protocol igmp".to_owned(),
        (Traffic::Membership, false) => "icmpv6 type { 130, 131, 132, 143 }".to_owned(),
    };
    format!("nft insert rule {} {} {chain} {matches} accept", table.family, table.name)
}

/// Formats the first and last of the ports from which the system chooses.
fn local_ports(between: char) -> String {
    let (first, last) = system::local_ports();
    format!("{first}{between}{last}")
}

/// Returns the same command for iptables.
fn iptables(suspect: &Suspect, chain: &str, traffic: Traffic) -> String {
    let port = suspect.port;
    match (traffic, suspect.group.is_ipv4()) {
        (Traffic::Data, true) => {
            format!("iptables -I {chain} -d 224.0.0.0/4 -p udp --dport {port} -j ACCEPT")
        }
        (Traffic::Data, false) => {
            format!("ip6tables -I {chain} -d ff00::/8 -p udp --dport {port} -j ACCEPT")
        }
        (Traffic::Unicast, v4) => {
            let tool = if v4 { "iptables" } else { "ip6tables" };
            format!("{tool} -I {chain} -p udp --dport {} -j ACCEPT", local_ports(':'))
        }
        (Traffic::Membership, true) => format!("iptables -I {chain} -p igmp -j ACCEPT"),
        (Traffic::Membership, false) => format!("ip6tables -I {chain} -p ipv6-icmp -j ACCEPT"),
    }
}
