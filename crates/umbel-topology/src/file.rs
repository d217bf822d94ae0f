//! TOML form of a topology.

use std::ops::Range;
use std::path::Path;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use umbel_engine::units::Rate;

use crate::check::Part;
use crate::values::{Delay, Share, Written};
use crate::{Access, Cidr, Impairment, LinkSpec, Mistake, NodeKind, NodeSpec, Queue, Topology};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    seed: u64,
    #[serde(default)]
    host: Vec<Named>,
    #[serde(default)]
    router: Vec<Named>,
    #[serde(default)]
    switch: Vec<SwitchEntry>,
    #[serde(default)]
    link: Vec<LinkEntry>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    name: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SwitchEntry {
    name: String,
    #[serde(default)]
    snooping: bool,
    #[serde(default)]
    querier: bool,
}

/// Table with impairments beside other keys. `deny_unknown_fields` does not work with `flatten`.
macro_rules! with_impairments {
    ($(#[$about:meta])* struct $name:ident { $($own:tt)* }) => {
        $(#[$about])*
        #[derive(Default, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub struct $name {
            $($own)*
            rate: Option<Written<Rate>>,
            delay: Option<Written<Delay>>,
            jitter: Option<Written<Delay>>,
            loss: Option<Written<Share>>,
            loss_burst: Option<f64>,
            loss_good: Option<Written<Share>>,
            loss_bad: Option<Written<Share>>,
            reorder: Option<Written<Share>>,
            reorder_by: Option<Written<Delay>>,
            duplicate: Option<Written<Share>>,
            corrupt: Option<Written<Share>>,
            corrupt_silently: Option<Written<Share>>,
            queue: Option<Written<Queue>>,
        }

        impl $name {
            /// Returns `base` with the values of this table in place of those in it.
            pub fn over(&self, base: Impairment) -> Impairment {
                let share = |written: Option<Written<Share>>, base| written.map_or(base, |s| s.0.0);
                let delay = |written: Option<Written<Delay>>| written.map(|delay| delay.0.0);
                Impairment {
                    rate: self.rate.map(|rate| rate.0).or(base.rate),
                    delay: delay(self.delay).unwrap_or(base.delay),
                    jitter: delay(self.jitter).unwrap_or(base.jitter),
                    loss: share(self.loss, base.loss),
                    loss_burst: self.loss_burst.or(base.loss_burst),
                    loss_good: self.loss_good.map(|share| share.0.0).or(base.loss_good),
                    loss_bad: self.loss_bad.map(|share| share.0.0).or(base.loss_bad),
                    reorder: share(self.reorder, base.reorder),
                    reorder_by: delay(self.reorder_by).or(base.reorder_by),
                    duplicate: share(self.duplicate, base.duplicate),
                    corrupt: share(self.corrupt, base.corrupt),
                    corrupt_silently: share(self.corrupt_silently, base.corrupt_silently),
                    queue: self.queue.map_or(base.queue, |queue| queue.0),
                }
            }
        }
    };
}

with_impairments! {
    /// Treatment of one direction of a link.
    struct ImpairmentEntry {}
}

with_impairments! {
    /// Link between two nodes.
    struct LinkEntry {
        a: String,
        b: String,
        #[serde(default)]
        a_to_b: ImpairmentEntry,
        #[serde(default)]
        b_to_a: ImpairmentEntry,
        mtu: Option<u32>,
        offload: Option<bool>,
        emulated: Option<bool>,
        #[serde(default)]
        a_addresses: Vec<Cidr>,
        #[serde(default)]
        b_addresses: Vec<Cidr>,
    }
}

with_impairments! {
    /// Link of a host.
    struct AccessEntry {
        #[serde(default)]
        up: ImpairmentEntry,
        #[serde(default)]
        down: ImpairmentEntry,
    }
}

impl AccessEntry {
    /// Returns the treatment of packets on a host's link.
    pub fn access(&self) -> Access {
        let both = self.over(Impairment::none());
        Access { up: self.up.over(both), down: self.down.over(both) }
    }
}

impl File {
    fn into_topology(self) -> Topology {
        let named = |kind| move |entry: Named| NodeSpec { name: entry.name, kind };
        let mut nodes: Vec<NodeSpec> = self.host.into_iter().map(named(NodeKind::Host)).collect();
        nodes.extend(self.router.into_iter().map(named(NodeKind::Router)));
        nodes.extend(self.switch.into_iter().map(|entry| NodeSpec {
            name: entry.name,
            kind: NodeKind::Switch { snooping: entry.snooping, querier: entry.querier },
        }));
        let links = self.link.into_iter().map(LinkEntry::into_spec).collect();
        Topology { nodes, links, seed: self.seed, notes: Vec::new() }
    }
}

impl LinkEntry {
    fn into_spec(self) -> LinkSpec {
        let both = self.over(Impairment::none());
        LinkSpec {
            a_to_b: self.a_to_b.over(both),
            b_to_a: self.b_to_a.over(both),
            a: self.a,
            b: self.b,
            mtu: self.mtu,
            offload: self.offload,
            emulated: self.emulated,
            a_addresses: self.a_addresses,
            b_addresses: self.b_addresses,
        }
    }
}

impl Impairment {
    /// Reads `loss=5% delay=20ms …` as changes of `self`. The names are those of the file.
    ///
    /// # Errors
    /// Returns one line with the setting that cannot be read or is out of its range.
    pub fn with_settings(self, settings: &[impl AsRef<str>]) -> Result<Impairment, Mistake> {
        let mut text = String::new();
        for setting in settings {
            let setting = setting.as_ref();
            let (name, value) = setting.split_once('=').ok_or_else(|| {
                Mistake::new(format!("`{setting}` is not a setting: write it like loss=5%"))
            })?;
            let quoted = if value.parse::<f64>().is_ok() {
                value.to_owned()
            } else {
                toml::Value::String(value.to_owned()).to_string()
            };
            text.extend([name, " = ", &quoted, "\n"]);
        }
        let entry: ImpairmentEntry =
            toml::from_str(&text).map_err(|error| Mistake::toml(&text, &error))?;
        let changed = entry.over(self);
        changed.validate()?;
        Ok(changed)
    }
}

impl Topology {
    /// Reads and validates the TOML form.
    ///
    /// # Errors
    /// Returns one line with the line of the text and the mistake.
    pub fn from_toml(text: &str) -> Result<Topology, Mistake> {
        let table = DeTable::parse(text).map_err(|error| Mistake::toml(text, &error))?;
        let span = table.span();
        Topology::from_table(text, Spanned::new(span, table.into_inner()))
    }

    /// Reads and validates a table of `text`.
    ///
    /// # Errors
    /// Returns one line with the line of the text and the mistake.
    pub fn from_table(text: &str, table: Spanned<DeTable<'_>>) -> Result<Topology, Mistake> {
        let span = table.span();
        let table = table.into_inner();
        let value = Spanned::new(span.clone(), DeValue::Table(table.clone()));
        let file = File::deserialize(ValueDeserializer::from(value))
            .map_err(|error| Mistake::toml(text, &error))?;
        let topology = file.into_topology();
        topology.check().map_err(|fault| {
            let span = topology.find(fault.part, &table).unwrap_or(span);
            Mistake::at(text, span, fault.message)
        })?;
        Ok(topology)
    }

    /// Returns the most exact place of a part in the table from which the topology was read.
    fn find(&self, part: Part, table: &DeTable<'_>) -> Option<Range<usize>> {
        let (array, index, keys): (_, _, &[&str]) = match part {
            Part::Node(index) => {
                let alike =
                    |node: &&NodeSpec| array_of(node.kind) == array_of(self.nodes[index].kind);
                let before = self.nodes[..index].iter().filter(alike).count();
                (array_of(self.nodes[index].kind), before, &["name"])
            }
            Part::Link { index, key } => ("link", index, &[key]),
            Part::Direction { index, direction, key } => {
                let own = table.get("link")?.get_ref().get(index)?.get_ref().get(direction);
                match own.and_then(|own| own.get_ref().get(key)) {
                    Some(value) => return Some(value.span()),
                    None => ("link", index, &[key]),
                }
            }
        };
        let entry = table.get(array)?.get_ref().get(index)?;
        let value = keys.iter().find_map(|&key| entry.get_ref().get(key));
        Some(value.unwrap_or(entry).span())
    }

    /// Reads and validates a file.
    ///
    /// # Errors
    /// Returns one line that begins with the file's name.
    #[allow(clippy::disallowed_methods, reason = "topologies are read before a run")]
    pub fn from_file(path: &Path) -> Result<Topology, Mistake> {
        std::fs::read_to_string(path)
            .map_err(|error| Mistake::new(error.to_string()))
            .and_then(|text| Topology::from_toml(&text))
            .map_err(|mistake| mistake.in_file(path))
    }
}

/// Returns the name of the array of tables for nodes of a kind.
fn array_of(kind: NodeKind) -> &'static str {
    match kind {
        NodeKind::Host => "host",
        NodeKind::Router => "router",
        NodeKind::Switch { .. } => "switch",
    }
}
