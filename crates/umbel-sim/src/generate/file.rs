//! Generators in TOML.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use umbel_topology::file::{AccessEntry, ImpairmentEntry};
use umbel_topology::values::{Delay, Written};
use umbel_topology::{Impairment, Mistake, Topology};

use super::{Access, Generator, Placement, Receivers, Shape, TransitStub};

/// Shape with its name in files and its parameters.
struct Known {
    name: &'static str,
    about: &'static str,
    parameters: &'static [&'static str],
    /// Whether there are links between routers, and whether they have lengths.
    links: bool,
    lengths: bool,
}

const KNOWN: [Known; 10] = [
    Known {
        name: "star",
        about: "everyone at one switch",
        parameters: &[],
        links: false,
        lengths: false,
    },
    Known {
        name: "line",
        about: "routers in a row",
        parameters: &["routers"],
        links: true,
        lengths: false,
    },
    Known {
        name: "tree",
        about: "`depth` links from the root to a receiver, `fanout` children each",
        parameters: &["depth", "fanout"],
        links: true,
        lengths: false,
    },
    Known {
        name: "dumbbell",
        about: "sources and receivers at the ends of one link",
        parameters: &[],
        links: true,
        lengths: false,
    },
    Known {
        name: "gnp",
        about: "each two routers joined with probability `p`",
        parameters: &["routers", "p"],
        links: true,
        lengths: true,
    },
    Known {
        name: "waxman",
        about: "routers on a plane, near ones joined more often",
        parameters: &["routers", "alpha", "beta"],
        links: true,
        lengths: true,
    },
    Known {
        name: "transit-stub",
        about: "transit domains with stub domains at their routers",
        parameters: &[
            "domains",
            "transit",
            "stubs",
            "stub_nodes",
            "domain_p",
            "transit_p",
            "stub_p",
            "extra_transit_stub",
            "extra_stub_stub",
        ],
        links: true,
        lengths: true,
    },
    Known {
        name: "graphml",
        about: "a graph from a file in GraphML",
        parameters: &["file"],
        links: true,
        lengths: true,
    },
    Known {
        name: "gt-itm",
        about: "a graph from a file of GT-ITM, written by sgb2alt",
        parameters: &["file"],
        links: true,
        lengths: true,
    },
    Known {
        name: "ns2",
        about: "the links that a script of ns-2 lists",
        parameters: &["file"],
        links: true,
        lengths: false,
    },
];

/// Parameters of every generator.
const COMMON: [&str; 7] =
    ["seed", "sources", "source_link", "receivers", "access", "anywhere", "placement"];

impl Known {
    fn keys(&self) -> Vec<&'static str> {
        let mut keys = self.parameters.to_vec();
        keys.extend(self.links.then_some("link"));
        keys.extend(self.lengths.then_some("delay_across"));
        keys.extend(COMMON);
        keys
    }
}

/// Returns the generators with a description and the parameters of each, for a help text.
pub fn known() -> impl Iterator<Item = (&'static str, &'static str, Vec<&'static str>)> {
    KNOWN.iter().map(|known| (known.name, known.about, known.keys()))
}

#[derive(Deserialize)]
struct Entry {
    routers: Option<usize>,
    depth: Option<u32>,
    fanout: Option<usize>,
    p: Option<f64>,
    alpha: Option<f64>,
    beta: Option<f64>,
    domains: Option<usize>,
    transit: Option<usize>,
    stubs: Option<usize>,
    stub_nodes: Option<usize>,
    domain_p: Option<f64>,
    transit_p: Option<f64>,
    stub_p: Option<f64>,
    extra_transit_stub: Option<usize>,
    extra_stub_stub: Option<usize>,
    file: Option<PathBuf>,
    seed: Option<Written<GraphSeed>>,
    sources: Option<usize>,
    source_link: Option<AccessEntry>,
    access: Option<AccessEntry>,
    anywhere: Option<bool>,
    placement: Option<PlacementEntry>,
    link: Option<ImpairmentEntry>,
    delay_across: Option<Written<Delay>>,
}

/// Seed of a graph.
#[derive(Clone, Copy)]
struct GraphSeed(u64);

impl FromStr for GraphSeed {
    type Err = String;

    fn from_str(text: &str) -> Result<GraphSeed, String> {
        let fail =
            |_| format!("`{text}` is no seed: expected a whole number, or \"run\" in a scenario");
        text.parse().map(GraphSeed).map_err(fail)
    }
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PlacementEntry {
    Even,
    Random,
}

/// Group of receivers.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    count: Option<usize>,
    name: Option<String>,
    access: Option<AccessEntry>,
}

/// Generator of a file, with the places of its parts.
struct Reader<'t, 'd> {
    text: &'t str,
    table: DeTable<'d>,
    span: Range<usize>,
}

impl Generator {
    /// Reads the generator in a table of `text` and creates its network. `seed` applies unless the
    /// table has one, and `folder` is the base of file names.
    pub(crate) fn topology_from_table(
        text: &str,
        table: Spanned<DeTable<'_>>,
        folder: &Path,
        seed: u64,
    ) -> Result<Topology, Mistake> {
        let span = table.span();
        let reader = Reader { text, table: table.into_inner(), span };
        let (generator, own_seed) = reader.read(folder)?;
        generator.generate(own_seed.unwrap_or(seed)).map_err(|mistake| {
            // A mistake in a file that the generator reads already has its place.
            if mistake.file().is_some() {
                mistake
            } else {
                reader.at("generator", mistake.message())
            }
        })
    }

    /// Creates a network from the name of its generator and settings like `depth=3` or
    /// `access.loss=5%`. Settings are the keys and values of the table `[topology]` in a scenario.
    ///
    /// # Errors
    /// Returns one line with the mistake.
    pub fn from_settings(name: &str, settings: &[impl AsRef<str>]) -> Result<Topology, Mistake> {
        let mut text = format!("generator = {}\n", toml::Value::String(name.to_owned()));
        for setting in settings {
            let setting = setting.as_ref();
            let (key, value) = setting.split_once('=').ok_or_else(|| {
                Mistake::new(format!("`{setting}` is not a setting: write it like receivers=8"))
            })?;
            let literal = format!("x = {value}").parse::<toml::Table>().is_ok();
            let value = if literal {
                value.to_owned()
            } else {
                toml::Value::String(value.into()).to_string()
            };
            text.extend([key, " = ", &value, "\n"]);
        }
        let named =
            |mistake: Mistake| match mistake.line().and_then(|n| settings.get(n.wrapping_sub(2))) {
                Some(setting) if mistake.file().is_none() => {
                    Mistake::new(format!("`{}`: {}", setting.as_ref(), mistake.message()))
                }
                _ if mistake.file().is_none() => Mistake::new(mistake.message()),
                _ => mistake,
            };
        let table = DeTable::parse(&text).map_err(|error| named(Mistake::toml(&text, &error)))?;
        Generator::topology_from_table(&text, table, Path::new(""), 0).map_err(named)
    }
}

impl Reader<'_, '_> {
    fn read(&self, folder: &Path) -> Result<(Generator, Option<u64>), Mistake> {
        let known = self.known()?;
        self.check_keys(known)?;
        let mut own = self.table.clone();
        // A number or tables, read separately.
        own.remove("receivers");
        let entry = Entry::deserialize(ValueDeserializer::from(Spanned::new(
            self.span.clone(),
            DeValue::Table(own),
        )))
        .map_err(|error| Mistake::toml(self.text, &error))?;
        let shape = self.shape(known.name, &entry, folder)?;
        shape.check().map_err(|(key, message)| self.at(key, message))?;
        let mut generator = Generator::new(shape);
        if let Some(link) = &entry.link {
            generator.link = link.over(Impairment::none());
            self.check_impairment(self.table.get("link"), "", &generator.link)?;
        }
        // Links that are equal in one respect are equal in the other, unless specified otherwise.
        generator.delay_across = match entry.delay_across {
            Some(delay) => delay.0.0,
            None if known.lengths && known.name != "graphml" && generator.link.delay.is_zero() => {
                DEFAULT_DELAY_ACROSS
            }
            None => Duration::ZERO,
        };
        generator.sources = entry.sources.unwrap_or(1);
        generator.source_link =
            self.access(self.table.get("source_link"), entry.source_link.as_ref())?;
        let access = self.access(self.table.get("access"), entry.access.as_ref())?;
        generator.receivers = self.receivers(&access)?;
        generator.anywhere = entry.anywhere.unwrap_or(false);
        match entry.placement {
            Some(PlacementEntry::Even) => generator.placement = Placement::Even,
            Some(PlacementEntry::Random) => generator.placement = Placement::Random,
            None => {}
        }
        generator.check().map_err(|(key, message)| self.at(key, message))?;
        Ok((generator, entry.seed.map(|seed| seed.0.0)))
    }

    /// Returns the generator that the table names.
    fn known(&self) -> Result<&'static Known, Mistake> {
        let name = self.table.get("generator").map(Spanned::get_ref).and_then(DeValue::as_str);
        KNOWN.iter().find(|known| Some(known.name) == name).ok_or_else(|| {
            let names: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
            let expected = names.join(", ");
            let message = match name {
                Some(name) => format!("`{name}` is not a generator: expected one of {expected}"),
                None => format!("`generator` is the name of one: {expected}"),
            };
            self.at("generator", message)
        })
    }

    fn check_keys(&self, known: &Known) -> Result<(), Mistake> {
        let keys = known.keys();
        for key in self.table.keys() {
            let name: &str = key.get_ref();
            if name != "generator" && !keys.contains(&name) {
                let expected = keys.join(", ");
                return Err(Mistake::at(
                    self.text,
                    key.span(),
                    format!("the generator `{}` takes no `{name}`, but {expected}", known.name),
                ));
            }
        }
        Ok(())
    }

    fn shape(&self, name: &str, entry: &Entry, folder: &Path) -> Result<Shape, Mistake> {
        Ok(match name {
            "star" => Shape::Star,
            "line" => Shape::Line { routers: self.given("routers", entry.routers)? },
            "tree" => Shape::Tree {
                depth: self.given("depth", entry.depth)?,
                fanout: self.given("fanout", entry.fanout)?,
            },
            "dumbbell" => Shape::Dumbbell,
            "gnp" => Shape::Gnp {
                routers: self.given("routers", entry.routers)?,
                p: self.given("p", entry.p)?,
            },
            "waxman" => Shape::Waxman {
                routers: self.given("routers", entry.routers)?,
                alpha: self.given("alpha", entry.alpha)?,
                beta: self.given("beta", entry.beta)?,
            },
            "transit-stub" => {
                let sizes = TransitStub::new(
                    self.given("domains", entry.domains)?,
                    self.given("transit", entry.transit)?,
                    self.given("stubs", entry.stubs)?,
                    self.given("stub_nodes", entry.stub_nodes)?,
                );
                Shape::TransitStub(TransitStub {
                    domain_p: entry.domain_p.unwrap_or(sizes.domain_p),
                    transit_p: entry.transit_p.unwrap_or(sizes.transit_p),
                    stub_p: entry.stub_p.unwrap_or(sizes.stub_p),
                    extra_transit_stub: entry.extra_transit_stub.unwrap_or_default(),
                    extra_stub_stub: entry.extra_stub_stub.unwrap_or_default(),
                    ..sizes
                })
            }
            name => {
                let file = folder.join(self.given("file", entry.file.clone())?);
                match name {
                    "gt-itm" => Shape::GtItm { file },
                    "ns2" => Shape::Ns2 { file },
                    _ => Shape::GraphMl { file },
                }
            }
        })
    }

    /// Returns the groups of receivers: a number, or an array of tables.
    fn receivers(&self, access: &Access) -> Result<Vec<Receivers>, Mistake> {
        let alike = |count| vec![Receivers { access: *access, ..Receivers::new(count) }];
        let Some(value) = self.table.get("receivers") else { return Ok(alike(None)) };
        let failed = |error: toml::de::Error| Mistake::toml(self.text, &error);
        let reader = ValueDeserializer::from(value.clone());
        if !value.get_ref().is_array() {
            return Ok(alike(Some(usize::deserialize(reader).map_err(failed)?)));
        }
        let groups = Vec::<Group>::deserialize(reader).map_err(failed)?;
        let receivers = groups.into_iter().enumerate().map(|(index, group)| {
            let of = value.get_ref().get(index).and_then(|group| group.get_ref().get("access"));
            let own = group.access.as_ref().map(|own| self.access(of, Some(own))).transpose()?;
            let mut receivers = Receivers::new(group.count);
            receivers.name = group.name.unwrap_or(receivers.name);
            receivers.access = own.unwrap_or(*access);
            Ok(receivers)
        });
        receivers.collect()
    }

    /// Returns the link of a host, read from the table `of`.
    fn access(
        &self,
        of: Option<&Spanned<DeValue<'_>>>,
        entry: Option<&AccessEntry>,
    ) -> Result<Access, Mistake> {
        let access = entry.map(AccessEntry::access).unwrap_or_default();
        self.check_impairment(of, "up", &access.up)?;
        self.check_impairment(of, "down", &access.down)?;
        Ok(access)
    }

    /// Checks values that were read from the table `of`, or from `of.direction`.
    fn check_impairment(
        &self,
        of: Option<&Spanned<DeValue<'_>>>,
        direction: &str,
        impairment: &Impairment,
    ) -> Result<(), Mistake> {
        impairment.check().map_err(|(key, message)| {
            let table = of.map(Spanned::get_ref);
            let direction = table.and_then(|table| table.get(direction));
            let value = direction.and_then(|direction| direction.get_ref().get(key));
            let value = value.or_else(|| table?.get(key)).or(of);
            Mistake::at(self.text, value.map_or(self.span.clone(), Spanned::span), message)
        })
    }

    /// Returns a parameter that has no default.
    fn given<T>(&self, key: &str, value: Option<T>) -> Result<T, Mistake> {
        value.ok_or_else(|| self.at("generator", format!("this generator needs `{key}`")))
    }

    /// Returns a mistake at a key, or at the table if it has no such key.
    fn at(&self, key: &str, message: impl Into<String>) -> Mistake {
        let span = self.table.get(key).map_or(self.span.clone(), Spanned::span);
        Mistake::at(self.text, span, message)
    }
}

/// Delay of a link as long as the side of the plane, if no delay is specified.
const DEFAULT_DELAY_ACROSS: Duration = Duration::from_millis(20);
