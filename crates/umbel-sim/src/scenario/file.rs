//! TOML form of a scenario.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;
use serde::de::IgnoredAny;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

use super::repository::RepositoryEntry;
use super::{Protocol, Scenario, cut};
use crate::SessionDelay;
use crate::topology::generate::Generator;
use crate::topology::values::{Delay, Time, Written};
use crate::topology::{Mistake, Topology};
use crate::trace::TraceError;

/// Text of a file, for the places of mistakes.
pub(super) struct Text<'t>(&'t str);

impl Text<'_> {
    pub(super) fn mistake(&self, span: Range<usize>, message: impl Into<String>) -> Mistake {
        Mistake::at(self.0, span, message)
    }

    fn toml(&self, error: &toml::de::Error) -> Mistake {
        Mistake::toml(self.0, error)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    name: String,
    seed: Option<u64>,
    duration: Option<Spanned<Written<Time>>>,
    /// Read separately, since it has several forms.
    #[serde(rename = "topology")]
    _topology: IgnoredAny,
    sessions: Option<SessionsEntry>,
    #[serde(default)]
    multicast: MulticastEntry,
    #[serde(default)]
    cut: Vec<cut::CutEntry>,
    repository: Option<Spanned<RepositoryEntry>>,
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
    /// Reads and checks the TOML form. Files that it names are found in `folder`.
    ///
    /// # Errors
    /// Returns one line with the line of the text, the mistake and the expected input.
    pub fn from_toml(text: &str, folder: &Path) -> Result<Scenario, Mistake> {
        let text = Text(text);
        let table = DeTable::parse(text.0).map_err(|error| text.toml(&error))?;
        let whole = Spanned::new(table.span(), DeValue::Table(table.get_ref().clone()));
        let file =
            File::deserialize(ValueDeserializer::from(whole)).map_err(|error| text.toml(&error))?;
        let topology = read_topology(&text, table.get_ref(), folder)?;
        let duration = file.duration.as_ref().map_or(DAY, |duration| duration.get_ref().0.0);
        if let Some(duration) = &file.duration
            && duration.get_ref().0.0.is_zero()
        {
            return Err(text.mistake(duration.span(), "duration = 0: nothing would happen"));
        }
        let cuts = cut::read(file.cut, &text, &topology)?;
        let Some(repository) = file.repository else {
            let message = "there is no protocol: expected a section [repository]";
            return Err(text.mistake(0..0, message));
        };
        let repository = RepositoryEntry::read(repository, &text, &topology, duration)?;
        Ok(Scenario {
            name: file.name,
            seed: file.seed.unwrap_or(1),
            duration,
            sessions: file.sessions.map(|entry| entry.read(&text)).transpose()?,
            join_latency: file.multicast.join.map(|join| join.0.0),
            leave_latency: file.multicast.leave.map(|leave| leave.0.0),
            cuts,
            topology,
            protocol: Protocol::Repository(Box::new(repository)),
            traces: file.output.read(&text)?,
        })
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
            let known = ["pcapng", "pcap", "csv", "parquet", "html"];
            if extension.is_some_and(|extension| known.contains(&extension.as_str())) {
                return Ok(path);
            }
            Err(text.mistake(span, TraceError::Extension(path).to_string()))
        });
        traces.collect()
    }
}
