//! Topologies as TOML text.

use std::fmt::Write as _;

use umbel_engine::units::Rate;

use crate::values::time_text;
use crate::{Impairment, LinkSpec, NodeKind, Queue, Topology};

impl Topology {
    /// Returns the TOML form, which [`Topology::from_toml`] reads back. Nodes are grouped by kind,
    /// otherwise in order, and links follow. Notes are comments, which are not read back.
    pub fn to_toml(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let _ = writeln!(text, "# {}", note.replace(char::is_control, " "));
        }
        if self.seed != 0 {
            line(&mut text, "seed", self.seed);
        }
        let is_kind: [fn(NodeKind) -> bool; 3] = [
            |kind| kind == NodeKind::Host,
            |kind| kind == NodeKind::Router,
            |kind| matches!(kind, NodeKind::Switch { .. }),
        ];
        for (array, is_kind) in ["host", "router", "switch"].iter().zip(is_kind) {
            for node in self.nodes.iter().filter(|node| is_kind(node.kind)) {
                line(&mut text, &format!("\n[[{array}]]\nname"), quoted(&node.name));
                if let NodeKind::Switch { snooping, querier } = node.kind {
                    flag(&mut text, "snooping", snooping.then_some(true));
                    flag(&mut text, "querier", querier.then_some(true));
                }
            }
        }
        for link in &self.links {
            write_link(&mut text, link);
        }
        text.trim_start().to_owned()
    }
}

fn write_link(text: &mut String, link: &LinkSpec) {
    line(text, "\n[[link]]\na", quoted(&link.a));
    line(text, "b", quoted(&link.b));
    for (key, addresses) in [("a_addresses", &link.a_addresses), ("b_addresses", &link.b_addresses)]
    {
        if !addresses.is_empty() {
            let all: Vec<String> =
                addresses.iter().map(|address| quoted(&address.to_string())).collect();
            line(text, key, format!("[{}]", all.join(", ")));
        }
    }
    if let Some(mtu) = link.mtu {
        line(text, "mtu", mtu);
    }
    flag(text, "offload", link.offload);
    flag(text, "emulated", link.emulated);
    let (there, back) = (settings(&link.a_to_b), settings(&link.b_to_a));
    if there == back {
        for (key, value) in there {
            line(text, key, value);
        }
        return;
    }
    for (key, settings) in [("a_to_b", there), ("b_to_a", back)] {
        if !settings.is_empty() {
            let all: Vec<String> =
                settings.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
            line(text, key, format!("{{ {} }}", all.join(", ")));
        }
    }
}

/// Returns the settings that differ from an unimpaired direction.
fn settings(impairment: &Impairment) -> Vec<(&'static str, String)> {
    let none = Impairment::none();
    let mut all = Vec::new();
    if let Some(rate) = impairment.rate {
        all.push(("rate", quoted(&rate_text(rate))));
    }
    for (key, time) in [("delay", impairment.delay), ("jitter", impairment.jitter)] {
        if !time.is_zero() {
            all.push((key, quoted(&time_text(time))));
        }
    }
    for (key, share) in [
        ("loss", impairment.loss),
        ("reorder", impairment.reorder),
        ("duplicate", impairment.duplicate),
        ("corrupt", impairment.corrupt),
        ("corrupt_silently", impairment.corrupt_silently),
    ] {
        if share != 0.0 {
            all.push((key, share.to_string()));
        }
    }
    if let Some(burst) = impairment.loss_burst {
        all.push(("loss_burst", format!("{burst:?}")));
    }
    for (key, share) in [("loss_good", impairment.loss_good), ("loss_bad", impairment.loss_bad)] {
        if let Some(share) = share {
            all.push((key, share.to_string()));
        }
    }
    if let Some(time) = impairment.reorder_by {
        all.push(("reorder_by", quoted(&time_text(time))));
    }
    if impairment.queue != none.queue {
        all.push(match impairment.queue {
            Queue::Packets(packets) => ("queue", packets.to_string()),
            Queue::Bytes(bytes) => ("queue", quoted(&format!("{}B", bytes.0))),
        });
    }
    all
}

/// Returns a rate with the prefix that leaves a whole number.
fn rate_text(rate: Rate) -> String {
    let bits = rate.bits_per_s();
    let prefixes = [(1_000_000_000, "G"), (1_000_000, "M"), (1_000, "k")];
    let fitting = prefixes.into_iter().find(|(factor, _)| bits.is_multiple_of(*factor));
    fitting
        .map_or_else(|| bits.to_string(), |(factor, prefix)| format!("{}{prefix}", bits / factor))
}

fn line(text: &mut String, key: &str, value: impl std::fmt::Display) {
    let _ = writeln!(text, "{key} = {value}");
}

fn flag(text: &mut String, key: &str, value: Option<bool>) {
    if let Some(value) = value {
        line(text, key, value);
    }
}

fn quoted(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;
    use umbel_engine::units::ByteCount;

    use super::*;

    prop_compose! {
        fn impairments()(
            rate in proptest::option::of(1..(1_u64 << 53)),
            delay in 0..3_600_000_000_000_u64, jitter in 0..1_000_000_u64,
            loss in 0.0..=1.0_f64, loss_burst in proptest::option::of(1.0..20.0_f64),
            reorder in 0.0..=1.0_f64, hold in proptest::option::of(0_u64..1_000_000),
            duplicate in 0.0..=1.0_f64, corrupt in 0.0..=1.0_f64,
            packets: bool, limit in 1_u32..10_000, states in proptest::option::of(0.0..=1.0_f64),
        ) -> Impairment {
            // Long stays in the bad state go with every share of it that is not nearly all.
            let has_states = loss_burst.is_some_and(|burst| burst > 10.0) && loss < 0.5
                && states.is_some_and(|share| share > 0.1);
            Impairment {
                rate: rate.and_then(Rate::from_bits_per_s),
                delay: Duration::from_nanos(delay),
                jitter: Duration::from_nanos(jitter),
                loss, loss_burst, reorder, duplicate, corrupt,
                loss_good: states.filter(|_| has_states).map(|share| share * loss),
                loss_bad: states.filter(|_| has_states).map(|share| share + (1.0 - share) * loss),
                reorder_by: hold.map(Duration::from_nanos),
                corrupt_silently: corrupt / 2.0,
                queue: if packets {
                    Queue::Packets(limit)
                } else {
                    Queue::Bytes(ByteCount(limit.into()))
                },
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_as_it_was(
            there in impairments(), back in impairments(), alike: bool, none: bool, seed in 0..u64::MAX / 2,
        ) {
            let topology = Topology::star(2).seed(seed).router("r").link("r", "sw").mtu(9000);
            let topology = topology.with_link(|link| {
                link.a_addresses = vec!["10.9.0.2/24".parse().unwrap(), "fd00::1/64".parse().unwrap()];
                link.offload = Some(false);
                if !none {
                    link.emulated = Some(true);
                    link.a_to_b = there;
                    link.b_to_a = if alike { there } else { back };
                }
            });
            let read = Topology::from_toml(&topology.to_toml()).unwrap();
            prop_assert_eq!(&read.links, &topology.links);
            prop_assert_eq!(read.seed, topology.seed);
            prop_assert_eq!(read.nodes.len(), 4);
            prop_assert_eq!(Topology::from_toml(&read.to_toml()).unwrap(), read);
        }
    }

    #[test]
    fn the_text_has_only_what_is_not_the_default() {
        let topology = Topology::line(0).loss(0.05).delay(Duration::from_millis(20));
        assert_eq!(
            topology.to_toml(),
            "[[host]]\nname = \"h1\"\n\n[[host]]\nname = \"h2\"\n\n\
             [[link]]\na = \"h1\"\nb = \"h2\"\ndelay = \"20ms\"\nloss = 0.05\n"
        );
    }
}
