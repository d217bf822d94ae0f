//! TOML form of a scenario.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use umbel_topology::values::{Delay, Time, Written};
use umbel_topology::{Mistake, Topology};

use super::protocol::{Protocol, SECTIONS, Scenery, Section, sections};
use super::traffic::{self, CrossTraffic};
use super::{Scenario, churn, cut, drops, queues};
use crate::generate::Generator;
use crate::trace::TraceError;
use crate::{Kinds, SessionDelay};

/// Text of a file, for the places of mistakes.
pub(super) struct Text<'t>(pub(super) &'t str);

impl<'t> Text<'t> {
    /// Returns the text as a table.
    pub(super) fn table(&self) -> Result<Spanned<DeTable<'t>>, Mistake> {
        DeTable::parse(self.0).map_err(|error| self.toml(&error))
    }

    /// Returns the line of a place, from 1.
    pub(super) fn line(&self, place: &Range<usize>) -> Option<usize> {
        self.mistake(place.clone(), "").line()
    }

    pub(super) fn mistake(&self, span: Range<usize>, message: impl Into<String>) -> Mistake {
        Mistake::at(self.0, span, message)
    }

    pub(super) fn toml(&self, error: &toml::de::Error) -> Mistake {
        Mistake::toml(self.0, error)
    }
}

/// Keys and sections of every scenario.
/// A sweep is no key of a scenario: it is taken away before a scenario is read.
const FRAME: [&str; 13] = [
    "name",
    "seed",
    "duration",
    "topology",
    "sessions",
    "multicast",
    "cut",
    "drop",
    "queue",
    "churn",
    "traffic",
    "loss_of",
    "output",
];

/// The scenario beside the section of its protocol.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    name: String,
    seed: Option<u64>,
    duration: Option<Spanned<Written<Time>>>,
    loss_of: Option<drops::OfEntry>,
    /// Read separately, since it has several forms.
    #[serde(rename = "topology")]
    _topology: IgnoredAny,
    sessions: Option<SessionsEntry>,
    #[serde(default)]
    multicast: MulticastEntry,
    #[serde(default)]
    cut: Vec<cut::CutEntry>,
    #[serde(default)]
    drop: Vec<drops::DropEntry>,
    #[serde(default)]
    queue: Vec<queues::QueueEntry>,
    #[serde(default)]
    churn: Vec<churn::ChurnEntry>,
    #[serde(default)]
    traffic: Vec<traffic::TrafficEntry>,
    #[serde(default)]
    output: OutputEntry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SessionsEntry {
    min: Written<Delay>,
    mean: Option<Spanned<Written<Delay>>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct MulticastEntry {
    join: Option<Written<Delay>>,
    leave: Option<Written<Delay>>,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct OutputEntry {
    #[serde(default)]
    trace: Vec<Spanned<PathBuf>>,
}

/// Reference to a topology in a file of its own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFile {
    file: Spanned<PathBuf>,
}

/// Longest run of a scenario that sets no duration.
const DAY: Duration = Duration::from_hours(24);

/// Seed of a generated graph that has none of its own.
const GRAPH_SEED: u64 = 1;

impl Scenario {
    /// Reads and checks a table of the text.
    pub(super) fn from_table(
        text: &Text<'_>,
        table: &Spanned<DeTable<'_>>,
        folder: &Path,
    ) -> Result<Scenario, Mistake> {
        check_keys(text, table.get_ref())?;
        let whole = Spanned::new(table.span(), DeValue::Table(table.get_ref().clone()));
        let file =
            File::deserialize(ValueDeserializer::from(whole)).map_err(|error| text.toml(&error))?;
        let topology = read_topology(text, table.get_ref(), folder)?;
        let duration = file.duration.as_ref().map_or(DAY, |duration| duration.get_ref().0.0);
        if let Some(duration) = &file.duration
            && duration.get_ref().0.0.is_zero()
        {
            return Err(text.mistake(duration.span(), "duration = 0: nothing would happen"));
        }
        let cuts = cut::read(file.cut, text, &topology)?;
        let drops = drops::read(file.drop, text, &topology, folder)?;
        let queues = queues::read(file.queue, text, &topology)?;
        let churn = churn::read(file.churn, text, &topology)?;
        let traffic = traffic::read(file.traffic, text, &topology)?;
        let protocol = read_protocol(text, table.get_ref(), &topology, &traffic, duration)?;
        Ok(Scenario {
            name: file.name,
            seed: file.seed.unwrap_or(1),
            duration,
            sessions: file.sessions.map(|entry| entry.read(text)).transpose()?,
            join_latency: file.multicast.join.map(|join| join.0.0),
            leave_latency: file.multicast.leave.map(|leave| leave.0.0),
            cuts,
            loss_of: file.loss_of.map_or(Kinds::ALL, drops::OfEntry::kinds),
            drops,
            queues,
            churn,
            traffic,
            topology,
            protocol,
            traces: file.output.read(text)?,
        })
    }
}

/// Checks that a file has only keys and sections that are known.
fn check_keys(text: &Text<'_>, table: &DeTable<'_>) -> Result<(), Mistake> {
    let known = || FRAME.into_iter().chain(SECTIONS.iter().map(|(name, _)| *name));
    for key in table.keys() {
        let name: &str = key.get_ref();
        if !known().any(|known| known == name) {
            let expected: Vec<String> = known().map(|name| format!("`{name}`")).collect();
            let message =
                format!("unknown field `{name}`, expected one of {}", expected.join(", "));
            return Err(text.mistake(key.span(), message));
        }
    }
    Ok(())
}

/// Reads the section of the protocol, of which there is one.
fn read_protocol(
    text: &Text<'_>,
    table: &DeTable<'_>,
    topology: &Topology,
    traffic: &[CrossTraffic],
    end: Duration,
) -> Result<Arc<dyn Protocol>, Mistake> {
    let given = SECTIONS.iter().filter_map(|&(name, read)| Some((name, read, table.get(name)?)));
    let given: Vec<_> = given.collect();
    match &given[..] {
        [(name, read, value)] => {
            let scenery = Scenery { text, topology, traffic, end };
            read(&mut Section::open(scenery, name, value)?)
        }
        [] => {
            let message = format!("there is no protocol: expected a section {}", sections());
            Err(text.mistake(0..0, message))
        }
        [(first, ..), (second, _, value), ..] => {
            let message = format!("[{first}] and [{second}]: a scenario has one protocol");
            Err(text.mistake(value.span(), message))
        }
    }
}

/// Reads `[topology]`, which is a generator, a file, or the content of a topology file.
fn read_topology(text: &Text<'_>, table: &DeTable<'_>, folder: &Path) -> Result<Topology, Mistake> {
    let Some((_, value)) = table.get_key_value("topology") else {
        return Err(text.mistake(0..0, "there is no section [topology]"));
    };
    let span = value.span();
    let DeValue::Table(own) = value.get_ref() else {
        let message = "expected a table: a generator, a file, or hosts, routers and links";
        return Err(text.mistake(span, message));
    };
    if own.contains_key("generator") {
        let own = Spanned::new(span, own.clone());
        return Generator::topology_from_table(text.0, own, folder, GRAPH_SEED);
    }
    if own.contains_key("file") {
        let file = TopologyFile::deserialize(ValueDeserializer::from(value.clone()))
            .map_err(|error| text.toml(&error))?;
        return Topology::from_file(&folder.join(file.file.get_ref())).map_err(|mistake| {
            match mistake.line() {
                Some(_) => mistake,
                // The other file cannot be read, which is a mistake in this one.
                None => text.mistake(file.file.span(), mistake.to_string()),
            }
        });
    }
    Topology::from_table(text.0, Spanned::new(span, own.clone()))
}

impl SessionsEntry {
    fn read(self, text: &Text<'_>) -> Result<SessionDelay, Mistake> {
        let Written(Delay(min)) = self.min;
        let mean = self.mean.as_ref().map_or(min, |mean| mean.get_ref().0.0);
        match (mean.checked_sub(min), self.mean) {
            (None, Some(written)) => {
                let message = format!("the mean, {mean:?}, is below `min` = {min:?}");
                Err(text.mistake(written.span(), message))
            }
            (extra, _) => Ok(SessionDelay { min, mean_extra: extra.unwrap_or_default() }),
        }
    }
}

impl OutputEntry {
    fn read(self, text: &Text<'_>) -> Result<Vec<PathBuf>, Mistake> {
        let traces = self.trace.into_iter().map(|path| {
            let span = path.span();
            let path = path.into_inner();
            let extension = path.extension().map(|text| text.to_string_lossy().to_lowercase());
            let known = ["pcapng", "pcap", "csv", "html"];
            if extension.is_some_and(|extension| known.contains(&extension.as_str())) {
                return Ok(path);
            }
            Err(text.mistake(span, TraceError::Extension(path).to_string()))
        });
        traces.collect()
    }
}
