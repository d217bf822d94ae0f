//! Follows a possible packet through the chains of a ruleset.

use serde_json::Value;

use super::matching::{Answer, Direction, Layer, Packet};
use super::ruleset::{Chain, Rule, Ruleset, Table};

/// Greatest depth of nested chains in the kernel [`NFT_JUMP_STACK_SIZE`].
const MAX_DEPTH: usize = 16;

/// Fate of a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// No rule drops it.
    Passes,
    /// The culprit drops it.
    Dropped(Culprit),
    /// The culprit drops it, unless an unknown property of the packet saves it.
    Endangered(Culprit),
}

/// The rule or policy that drops a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Culprit {
    pub(super) table: Table,
    pub(super) chain: String,
    /// Handle of the rule; `None` for the chain's policy.
    pub(super) handle: Option<u64>,
}

/// End of a chain.
enum End {
    /// The packet returns to the calling chain, or to the policy.
    Returned,
    Accepted,
    Dropped(Culprit),
}

/// State of the walk.
struct Walk<'a> {
    ruleset: &'a Ruleset,
    packet: &'a Packet<'a>,
    /// Whether the packet passed a rule that may have accepted it.
    perhaps_accepted: bool,
    /// The first rule that may have dropped it.
    endangered: Option<Culprit>,
}

/// Walks the packet through all base chains on its way.
pub(super) fn fate(ruleset: &Ruleset, packet: &Packet<'_>) -> Fate {
    let mut endangered = None;
    for chain in ruleset.chains.iter().filter(|chain| is_on_the_way(chain, packet)) {
        let mut walk = Walk { ruleset, packet, perhaps_accepted: false, endangered: None };
        let end = walk.chain(chain, 0);
        let dropped = match end {
            End::Dropped(culprit) => Some(culprit),
            End::Returned if chain.drops_by_default => Some(Culprit {
                table: chain.table.clone(),
                chain: chain.name.clone(),
                handle: None,
            }),
            End::Returned | End::Accepted => None,
        };
        match dropped {
            Some(culprit) if !walk.perhaps_accepted => return Fate::Dropped(culprit),
            culprit => endangered = endangered.or(walk.endangered).or(culprit),
        }
    }
    endangered.map_or(Fate::Passes, Fate::Endangered)
}

fn is_on_the_way(chain: &Chain, packet: &Packet<'_>) -> bool {
    let hook = chain.hook.as_deref().unwrap_or_default();
    let hooks: &[&str] = match packet.direction {
        Direction::In => &["ingress", "prerouting", "input"],
        Direction::Out => &["output", "postrouting", "egress"],
    };
    let family = match chain.table.family.as_str() {
        "bridge" => return packet.layer == Layer::Frame && hooks.contains(&hook),
        _ if packet.layer == Layer::Frame => false,
        "ip" => packet.destination.is_ipv4(),
        "ip6" => packet.destination.is_ipv6(),
        "inet" => true,
        "netdev" => match &chain.device {
            Some(Value::String(device)) => device == packet.interface,
            Some(Value::Array(devices)) => {
                devices.iter().any(|device| device.as_str() == Some(packet.interface))
            }
            _ => false,
        },
        _ => false,
    };
    hooks.contains(&hook) && family && chain.kind != "nat"
}

impl Walk<'_> {
    fn chain(&mut self, chain: &Chain, depth: usize) -> End {
        if depth > MAX_DEPTH {
            return End::Returned;
        }
        for rule in &chain.rules {
            if let Some(end) = self.rule(chain, rule, depth) {
                return end;
            }
        }
        End::Returned
    }

    /// Follows the rule. Returns how the chain ends with it, if it does.
    fn rule(&mut self, chain: &Chain, rule: &Rule, depth: usize) -> Option<End> {
        let sets = (self.ruleset, &chain.table);
        let mut certain = true;
        for statement in &rule.statements {
            let (kind, value) = statement.as_object()?.iter().next()?;
            match kind.as_str() {
                "match" => match self.packet.matches(value, sets) {
                    Answer::Yes => {}
                    Answer::No => return None,
                    Answer::Unknown => certain = false,
                },
                "vmap" => return self.verdict_map(chain, rule, value, depth, certain),
                // These statements have an effect and let the rule continue.
                "counter" | "log" | "mangle" | "notrack" | "dup" | "flow" | "ct helper"
                | "ct timeout" | "ct expectation" | "map" | "set" | "comment" => {}
                _ if is_verdict(kind) => {
                    return self.verdict(chain, rule, kind, value, depth, certain);
                }
                // Limits, quotas and matches of iptables may keep the rule from matching.
                _ => certain = false,
            }
        }
        None
    }

    fn verdict(
        &mut self,
        chain: &Chain,
        rule: &Rule,
        kind: &str,
        value: &Value,
        depth: usize,
        certain: bool,
    ) -> Option<End> {
        match kind {
            "drop" | "reject" => {
                let culprit = Culprit {
                    table: chain.table.clone(),
                    chain: chain.name.clone(),
                    handle: Some(rule.handle),
                };
                if certain {
                    return Some(End::Dropped(culprit));
                }
                self.endangered.get_or_insert(culprit);
                None
            }
            "accept" | "queue" if certain => Some(End::Accepted),
            "accept" | "queue" => {
                self.perhaps_accepted = true;
                None
            }
            "return" if certain => Some(End::Returned),
            "return" => {
                // The rest of this chain may not concern the packet.
                self.perhaps_accepted = true;
                None
            }
            "jump" | "goto" => self.call(chain, kind, value, depth, certain),
            _ => None,
        }
    }

    fn call(
        &mut self,
        chain: &Chain,
        kind: &str,
        value: &Value,
        depth: usize,
        certain: bool,
    ) -> Option<End> {
        let name = value.get("target").and_then(Value::as_str)?;
        let ruleset = self.ruleset;
        let target = ruleset.chain(&chain.table, name)?;
        let end = self.chain(target, depth + 1);
        match end {
            End::Returned if kind == "goto" && certain => Some(End::Returned),
            End::Returned => None,
            end if certain => Some(end),
            End::Accepted => {
                self.perhaps_accepted = true;
                None
            }
            End::Dropped(culprit) => {
                self.endangered.get_or_insert(culprit);
                None
            }
        }
    }

    /// Follows `{"key": …, "data": {"set": [[value, {verdict}], …]}}` to the verdict of the
    /// packet's value.
    fn verdict_map(
        &mut self,
        chain: &Chain,
        rule: &Rule,
        map: &Value,
        depth: usize,
        mut certain: bool,
    ) -> Option<End> {
        let key = map.get("key")?;
        let Some(pairs) = map.get("data").and_then(|d| d.get("set")).and_then(Value::as_array)
        else {
            // Any verdict of a named map might hold.
            self.perhaps_accepted = true;
            return None;
        };
        for pair in pairs {
            let (Some(value), Some(verdict)) = (pair.get(0), pair.get(1)) else { continue };
            match self.packet.has(key, value, (self.ruleset, &chain.table)) {
                Answer::No => continue,
                Answer::Yes => {}
                Answer::Unknown => certain = false,
            }
            let Some((kind, value)) = verdict.as_object().and_then(|v| v.iter().next()) else {
                continue;
            };
            if let Some(end) = self.verdict(chain, rule, kind, value, depth, certain) {
                return Some(end);
            }
        }
        None
    }
}

fn is_verdict(kind: &str) -> bool {
    matches!(kind, "accept" | "drop" | "reject" | "return" | "jump" | "goto" | "queue")
}
