//! The TOML form of a topology.

use std::path::Path;
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _};
use umbel_engine::units::{ByteCount, Rate};

use super::{Cidr, Impairment, LinkSpec, Mistake, NodeKind, NodeSpec, Queue, Topology};

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

/// `deny_unknown_fields` does not work with `flatten`, so the impairments stand here once more.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
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
    rate: Option<Written<Rate>>,
    delay: Option<Written<Delay>>,
    jitter: Option<Written<Delay>>,
    loss: Option<Written<Share>>,
    loss_burst: Option<f64>,
    reorder: Option<Written<Share>>,
    reorder_by: Option<Written<Delay>>,
    duplicate: Option<Written<Share>>,
    corrupt: Option<Written<Share>>,
    corrupt_silently: Option<Written<Share>>,
    queue: Option<Written<Queue>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImpairmentEntry {
    rate: Option<Written<Rate>>,
    delay: Option<Written<Delay>>,
    jitter: Option<Written<Delay>>,
    loss: Option<Written<Share>>,
    loss_burst: Option<f64>,
    reorder: Option<Written<Share>>,
    reorder_by: Option<Written<Delay>>,
    duplicate: Option<Written<Share>>,
    corrupt: Option<Written<Share>>,
    corrupt_silently: Option<Written<Share>>,
    queue: Option<Written<Queue>>,
}

impl ImpairmentEntry {
    /// `base` with what is written here put in its place.
    pub(crate) fn over(&self, base: Impairment) -> Impairment {
        fn share(entry: Option<&Written<Share>>, base: f64) -> f64 {
            entry.map_or(base, |share| share.0.0)
        }
        fn delay(entry: Option<&Written<Delay>>) -> Option<Duration> {
            entry.map(|delay| delay.0.0)
        }
        Impairment {
            rate: self.rate.as_ref().map(|rate| rate.0).or(base.rate),
            delay: delay(self.delay.as_ref()).unwrap_or(base.delay),
            jitter: delay(self.jitter.as_ref()).unwrap_or(base.jitter),
            loss: share(self.loss.as_ref(), base.loss),
            loss_burst: self.loss_burst.or(base.loss_burst),
            reorder: share(self.reorder.as_ref(), base.reorder),
            reorder_by: delay(self.reorder_by.as_ref()).or(base.reorder_by),
            duplicate: share(self.duplicate.as_ref(), base.duplicate),
            corrupt: share(self.corrupt.as_ref(), base.corrupt),
            corrupt_silently: share(self.corrupt_silently.as_ref(), base.corrupt_silently),
            queue: self.queue.as_ref().map_or(base.queue, |queue| queue.0),
        }
    }
}

impl LinkEntry {
    fn into_spec(self) -> LinkSpec {
        let both = ImpairmentEntry {
            rate: self.rate,
            delay: self.delay,
            jitter: self.jitter,
            loss: self.loss,
            loss_burst: self.loss_burst,
            reorder: self.reorder,
            reorder_by: self.reorder_by,
            duplicate: self.duplicate,
            corrupt: self.corrupt,
            corrupt_silently: self.corrupt_silently,
            queue: self.queue,
        }
        .over(Impairment::none());
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

/// A value that is read by `FromStr`, whether TOML has it as a string or as a number.
struct Written<T>(T);

impl<'de, T: FromStr<Err: std::fmt::Display>> Deserialize<'de> for Written<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Written<T>, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged, expecting = "expected a number or a string")]
        enum Raw {
            Integer(i64),
            Float(f64),
            Text(String),
        }
        let text = match Raw::deserialize(deserializer)? {
            Raw::Integer(n) => n.to_string(),
            Raw::Float(x) => x.to_string(),
            Raw::Text(text) => text,
        };
        text.parse().map(Written).map_err(D::Error::custom)
    }
}

/// A time, like `20ms`.
struct Delay(Duration);

impl FromStr for Delay {
    type Err = String;

    fn from_str(text: &str) -> Result<Delay, String> {
        let fail = || format!("`{text}` is not a time: write it like 20ms, 250us or 1.5s");
        let text = text.trim();
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(fail)?;
        let number: f64 = text[..end].parse().map_err(|_| fail())?;
        let seconds = match text[end..].trim() {
            "s" => number,
            "ms" => number / 1e3,
            "us" | "µs" => number / 1e6,
            "ns" => number / 1e9,
            _ => return Err(fail()),
        };
        if seconds > 3600.0 {
            return Err(format!("`{text}` is more than an hour"));
        }
        Duration::try_from_secs_f64(seconds).map(Delay).map_err(|_| fail())
    }
}

/// A probability, like `0.05` or `5%`; its range is checked with the rest of the topology.
struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Share, String> {
        let fail = |_| format!("`{text}` is not a probability: write it like 0.05 or 5%");
        match text.trim().strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(|p: f64| Share(p / 100.0)).map_err(fail),
            None => text.trim().parse().map(Share).map_err(fail),
        }
    }
}

impl FromStr for Queue {
    type Err = String;

    /// Reads `64KiB` as bytes, `100` and `100p` as packets.
    fn from_str(text: &str) -> Result<Queue, String> {
        let text = text.trim();
        let packets = text.strip_suffix("packets").or_else(|| text.strip_suffix('p'));
        if let Ok(packets) = packets.unwrap_or(text).trim().parse() {
            return Ok(Queue::Packets(packets));
        }
        text.parse::<ByteCount>()
            .map(Queue::Bytes)
            .map_err(|_| format!("`{text}` is not a queue: write 100 (packets) or 64KiB"))
    }
}

impl FromStr for Cidr {
    type Err = String;

    fn from_str(text: &str) -> Result<Cidr, String> {
        let fail = || format!("`{text}` is not an address: write it like 10.1.0.1/24");
        let (address, prefix) = text.split_once('/').ok_or_else(fail)?;
        let cidr = Cidr {
            address: address.parse().map_err(|_| fail())?,
            prefix: prefix.parse().map_err(|_| fail())?,
        };
        let longest = if cidr.address.is_ipv4() { 32 } else { 128 };
        if cidr.prefix > longest || cidr.address.is_unspecified() || cidr.address.is_multicast() {
            return Err(fail());
        }
        Ok(cidr)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Cidr, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl Impairment {
    /// Reads `loss=5% delay=20ms …` as changes of `self`; the names are those of the file.
    ///
    /// # Errors
    /// One line naming what cannot be read or is out of range.
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
        changed.validate().map_err(Mistake::new)?;
        Ok(changed)
    }
}

impl Topology {
    /// Reads and validates the TOML form.
    ///
    /// # Errors
    /// One line: the line of the text and what is wrong with it, or the contradiction.
    pub fn from_toml(text: &str) -> Result<Topology, Mistake> {
        let file: File = toml::from_str(text).map_err(|error| Mistake::toml(text, &error))?;
        let named = |kind| move |entry: Named| NodeSpec { name: entry.name, kind };
        let mut nodes: Vec<NodeSpec> = file.host.into_iter().map(named(NodeKind::Host)).collect();
        nodes.extend(file.router.into_iter().map(named(NodeKind::Router)));
        nodes.extend(file.switch.into_iter().map(|entry| NodeSpec {
            name: entry.name,
            kind: NodeKind::Switch { snooping: entry.snooping, querier: entry.querier },
        }));
        let links = file.link.into_iter().map(LinkEntry::into_spec).collect();
        let topology = Topology { nodes, links, seed: file.seed };
        topology.validate()?;
        Ok(topology)
    }

    /// Reads and validates a file.
    ///
    /// # Errors
    /// One line that begins with the file's name.
    pub fn from_file(path: &Path) -> Result<Topology, Mistake> {
        std::fs::read_to_string(path)
            .map_err(|error| Mistake::new(error.to_string()))
            .and_then(|text| Topology::from_toml(&text))
            .map_err(|mistake| mistake.in_file(path))
    }
}
