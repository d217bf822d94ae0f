//! Decides whether a possible packet matches an expression of a rule.

use std::net::IpAddr;

use serde_json::Value;

use super::ruleset::{Ruleset, Table};

/// Yes, no, or dependent on an unknown property of the packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    Yes,
    No,
    Unknown,
}

impl Answer {
    fn from(yes: bool) -> Answer {
        if yes { Answer::Yes } else { Answer::No }
    }

    fn not(self) -> Answer {
        match self {
            Answer::Yes => Answer::No,
            Answer::No => Answer::Yes,
            Answer::Unknown => Answer::Unknown,
        }
    }

    /// Returns yes if any answer is yes, and no if all are no.
    fn any(answers: impl Iterator<Item = Answer>) -> Answer {
        let mut result = Answer::No;
        for answer in answers {
            match answer {
                Answer::Yes => return Answer::Yes,
                Answer::Unknown => result = Answer::Unknown,
                Answer::No => {}
            }
        }
        result
    }
}

/// Direction of a packet through the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    In,
    Out,
}

/// Content of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cargo {
    /// A datagram to a port.
    Udp { port: u16 },
    /// An IGMP message, or an MLD message in IPv6, of a type.
    Membership { kind: u8 },
}

/// The rules that a packet passes: those of IP, or before them those of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    Packet,
    Frame,
}

/// A packet that might come.
#[derive(Clone, Debug)]
pub(super) struct Packet<'a> {
    pub(super) layer: Layer,
    pub(super) direction: Direction,
    pub(super) interface: &'a str,
    pub(super) source: Option<IpAddr>,
    pub(super) destination: IpAddr,
    pub(super) cargo: Cargo,
}

/// The packet's value in the field that an expression tests.
enum Found {
    /// A number, with its possible names.
    Number(u64, &'static [&'static str]),
    Text(String),
    Address(IpAddr),
    /// The packet has no such field, so nothing matches.
    Nothing,
    NotKnown,
}

impl Packet<'_> {
    fn is_v4(&self) -> bool {
        self.destination.is_ipv4()
    }

    /// Returns whether the packet matches `{"op": …, "left": …, "right": …}`.
    pub(super) fn matches(&self, expression: &Value, sets: (&Ruleset, &Table)) -> Answer {
        let (Some(left), Some(right)) = (expression.get("left"), expression.get("right")) else {
            return Answer::Unknown;
        };
        let found = self.find(left);
        let operator = expression.get("op").and_then(Value::as_str).unwrap_or("==");
        if matches!(found, Found::Nothing) {
            return Answer::No;
        }
        match operator {
            "==" | "in" => equals(&found, right, sets),
            "!=" => equals(&found, right, sets).not(),
            "<" | ">" | "<=" | ">=" => compare(&found, operator, right),
            _ => Answer::Unknown,
        }
    }

    /// Returns whether the packet's value for `key` is among the keys of a verdict map.
    pub(super) fn has(&self, key: &Value, right: &Value, sets: (&Ruleset, &Table)) -> Answer {
        match self.find(key) {
            Found::Nothing => Answer::No,
            found => equals(&found, right, sets),
        }
    }

    fn find(&self, left: &Value) -> Found {
        let text = |of: &str, key: &str| left.get(of)?.get(key)?.as_str().map(str::to_owned);
        if let Some(key) = text("meta", "key") {
            return self.find_meta(&key);
        }
        if let (Some(protocol), Some(field)) =
            (text("payload", "protocol"), text("payload", "field"))
        {
            return self.find_field(&protocol, &field);
        }
        if text("ct", "key").as_deref() == Some("state") {
            return Found::Text(self.connection_state().to_owned());
        }
        if text("fib", "result").as_deref() == Some("type") {
            let flags = left.get("fib").and_then(|fib| fib.get("flags")).map(Value::to_string);
            if flags.is_some_and(|flags| flags.contains("daddr")) {
                let kind = if self.destination.is_multicast() { "multicast" } else { "local" };
                return Found::Text(kind.to_owned());
            }
        }
        Found::NotKnown
    }

    /// Returns the state of the packet's connection. Multicast packets are not answered, so each
    /// counts as new. So does unicast from a host that was not asked. Messages of MLD are not
    /// tracked.
    fn connection_state(&self) -> &'static str {
        match self.cargo {
            Cargo::Membership { .. } if !self.is_v4() => "untracked",
            _ => "new",
        }
    }

    fn find_meta(&self, key: &str) -> Found {
        let inward = self.direction == Direction::In;
        match (key, inward) {
            // That is one of the bridge's ports.
            ("iif" | "iifname", true) if self.layer == Layer::Frame => Found::NotKnown,
            ("iif" | "iifname", true) | ("oif" | "oifname", false) => {
                Found::Text(self.interface.to_owned())
            }
            ("iif" | "iifname", false) | ("oif" | "oifname", true) => Found::Text(String::new()),
            ("pkttype", true) if self.destination.is_multicast() => {
                Found::Text("multicast".to_owned())
            }
            ("l4proto", _) => self.protocol(),
            ("nfproto", _) if self.is_v4() => Found::Number(2, &["ipv4"]),
            ("nfproto", _) => Found::Number(10, &["ipv6"]),
            ("protocol", _) if self.is_v4() => Found::Number(0x0800, &["ip"]),
            ("protocol", _) => Found::Number(0x86dd, &["ip6"]),
            _ => Found::NotKnown,
        }
    }

    fn protocol(&self) -> Found {
        match self.cargo {
            Cargo::Udp { .. } => Found::Number(17, &["udp"]),
            Cargo::Membership { .. } if self.is_v4() => Found::Number(2, &["igmp"]),
            Cargo::Membership { .. } => Found::Number(58, &["ipv6-icmp", "icmpv6"]),
        }
    }

    fn find_field(&self, header: &str, field: &str) -> Found {
        let (igmp, mld) = match self.cargo {
            Cargo::Udp { .. } => (false, false),
            Cargo::Membership { .. } => (self.is_v4(), !self.is_v4()),
        };
        let has_header = match header {
            "ip" => self.is_v4(),
            "ip6" => !self.is_v4(),
            "udp" | "th" => !igmp && !mld,
            "igmp" => igmp,
            "icmpv6" => mld,
            "tcp" | "icmp" | "sctp" | "dccp" | "udplite" | "esp" | "ah" | "comp" | "arp" => false,
            _ => return Found::NotKnown,
        };
        match (header, field, self.cargo) {
            _ if !has_header => Found::Nothing,
            (_, "daddr", _) => Found::Address(self.destination),
            (_, "saddr", _) => self.source.map_or(Found::NotKnown, Found::Address),
            // An MLD message follows a router alert.
            ("ip6", "nexthdr", _) if mld => Found::Number(0, &["hopopt", "ip"]),
            ("ip", "protocol", _) | ("ip6", "nexthdr", _) => self.protocol(),
            (_, "dport", Cargo::Udp { port }) => Found::Number(port.into(), &[]),
            ("igmp" | "icmpv6", "type", _) => self.kind(),
            _ => Found::NotKnown,
        }
    }

    /// Returns the type of the message.
    fn kind(&self) -> Found {
        let Cargo::Membership { kind } = self.cargo else { return Found::Nothing };
        let names: &[&str] = match (self.is_v4(), kind) {
            (true, 0x11) => &["membership-query"],
            (true, 0x22) => &["membership-report-v3"],
            (false, 130) => &["mld-listener-query"],
            (false, 143) => &["mld2-listener-report"],
            _ => &[],
        };
        Found::Number(kind.into(), names)
    }
}

/// Returns whether the value is equal to the right side, or in the right side's list.
fn equals(found: &Found, right: &Value, (ruleset, table): (&Ruleset, &Table)) -> Answer {
    if matches!(found, Found::NotKnown) {
        return Answer::Unknown;
    }
    match right {
        Value::Array(list) => {
            Answer::any(list.iter().map(|one| equals(found, one, (ruleset, table))))
        }
        Value::Object(object) => {
            if let Some(set) = object.get("set") {
                equals(found, set, (ruleset, table))
            } else if let Some(element) = object.get("elem") {
                equals(found, element.get("val").unwrap_or(element), (ruleset, table))
            } else if let Some(prefix) = object.get("prefix") {
                in_prefix(found, prefix)
            } else if let Some(Value::Array(range)) = object.get("range") {
                in_range(found, range)
            } else {
                Answer::Unknown
            }
        }
        Value::String(text) => match text.strip_prefix('@') {
            Some(name) => match ruleset.set(table, name) {
                Some(elements) => equals(found, elements, (ruleset, table)),
                None => Answer::Unknown,
            },
            None => equals_text(found, text),
        },
        Value::Number(number) => match (found, number.as_u64()) {
            (Found::Number(own, _), Some(other)) => Answer::from(*own == other),
            _ => Answer::Unknown,
        },
        Value::Bool(_) | Value::Null => Answer::Unknown,
    }
}

fn equals_text(found: &Found, text: &str) -> Answer {
    match found {
        Found::Text(own) => match text.strip_suffix('*') {
            Some(start) => Answer::from(own.starts_with(start)),
            None => Answer::from(own == text),
        },
        Found::Address(own) => match text.parse::<IpAddr>() {
            Ok(other) => Answer::from(*own == other),
            Err(_) => Answer::Unknown,
        },
        Found::Number(own, names) => match text.parse::<u64>() {
            Ok(other) => Answer::from(*own == other),
            // Ports may be shown by names of services, which are unknown here.
            Err(_) if names.is_empty() => Answer::Unknown,
            Err(_) => Answer::from(names.contains(&text)),
        },
        Found::Nothing | Found::NotKnown => Answer::Unknown,
    }
}

fn in_prefix(found: &Found, prefix: &Value) -> Answer {
    let base = prefix.get("addr").and_then(Value::as_str).and_then(|text| text.parse().ok());
    let length = prefix.get("len").and_then(Value::as_u64).and_then(|len| u32::try_from(len).ok());
    let (Found::Address(own), Some(base), Some(length)) = (found, base, length) else {
        return Answer::Unknown;
    };
    let same = match (own, base) {
        (IpAddr::V4(own), IpAddr::V4(base)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length)).unwrap_or(0);
            own.to_bits() & mask == base.to_bits() & mask
        }
        (IpAddr::V6(own), IpAddr::V6(base)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length)).unwrap_or(0);
            own.to_bits() & mask == base.to_bits() & mask
        }
        _ => false,
    };
    Answer::from(same)
}

fn in_range(found: &Found, range: &[Value]) -> Answer {
    let [first, last] = range else { return Answer::Unknown };
    match found {
        Found::Number(own, _) => match (first.as_u64(), last.as_u64()) {
            (Some(first), Some(last)) => Answer::from((first..=last).contains(own)),
            _ => Answer::Unknown,
        },
        Found::Address(own) => {
            let address = |value: &Value| value.as_str()?.parse::<IpAddr>().ok();
            match (address(first), address(last)) {
                (Some(first), Some(last)) => Answer::from((first..=last).contains(own)),
                _ => Answer::Unknown,
            }
        }
        _ => Answer::Unknown,
    }
}

fn compare(found: &Found, operator: &str, right: &Value) -> Answer {
    let (Found::Number(own, _), Some(other)) = (found, right.as_u64()) else {
        return Answer::Unknown;
    };
    Answer::from(match operator {
        "<" => *own < other,
        ">" => *own > other,
        "<=" => *own <= other,
        _ => *own >= other,
    })
}
