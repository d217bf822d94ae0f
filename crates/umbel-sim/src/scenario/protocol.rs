//! Role of a protocol's section for the rest of a scenario.
//!
//! A protocol is one module beside this one, with a line in [`SECTIONS`]. It reads its own table,
//! puts its programs on hosts, and says what came of them.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};
use umbel_topology::{Mistake, Topology};

use super::file::Text;
use super::report::Results;
use super::settings::Settings;
use super::traffic::CrossTraffic;
use super::{Scenario, basep, lms, pgm, repository, rlm, smo, srm, tmtp};
use crate::Simulation;
use crate::trace::Tracer;

/// Section of a protocol, which determines the programs of the hosts.
pub trait Protocol: Any + fmt::Debug + Send + Sync {
    /// Returns what the section comes to, like 20 `items` and 6 `clients`.
    fn extent(&self) -> Vec<(&'static str, usize)>;

    /// Returns the time after which nothing is left to measure, if the section says so.
    fn ends(&self) -> Option<Duration> {
        None
    }

    /// Puts the programs on their hosts. Equal seeds produce equal programs.
    ///
    /// # Errors
    /// If a host cannot run its program.
    fn install(
        &self,
        scenario: &Scenario,
        simulation: &mut Simulation,
        seed: u64,
    ) -> Result<Box<dyn Programs>, Mistake>;
}

/// Programs of a run, seen from outside.
pub trait Programs: fmt::Debug + Send {
    /// Returns the number of receivers that are done, and that of all receivers.
    fn progress(&self, simulation: &Simulation) -> (usize, usize);

    /// Returns whether [`is_done`](Programs::is_done) can be true.
    fn can_be_done(&self) -> bool {
        false
    }

    /// Returns whether nothing is left to measure, so that the run ends before its time. It is
    /// asked at fixed moments of simulated time.
    fn is_done(&self, _simulation: &Simulation) -> bool {
        false
    }

    /// Returns what came of the run so far.
    fn results(&self, simulation: &Simulation) -> Results;

    /// Returns a tracer that the results depend on, if there is one. It is called once.
    fn observer(&mut self) -> Option<Box<dyn Tracer>> {
        None
    }
}

/// Reads the table of a protocol.
type Read = fn(&mut Section<'_>) -> Result<Arc<dyn Protocol>, Mistake>;

/// Name and reader of each section.
pub(super) const SECTIONS: [(&str, Read); 8] = [
    ("repository", repository::read),
    ("lms", lms::read),
    ("srm", srm::read),
    ("pgm", pgm::read),
    ("tmtp", tmtp::read),
    ("basep", basep::read),
    ("rlm", rlm::read),
    ("smo", smo::read),
];

/// Returns the names of all sections, as in `[repository] or [lms]`.
pub(super) fn sections() -> String {
    let names: Vec<String> = SECTIONS.iter().map(|(name, _)| format!("[{name}]")).collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} or {last}", others.join(", ")),
        _ => names.concat(),
    }
}

/// The scenario besides the table of a protocol.
#[derive(Clone, Copy)]
pub(super) struct Scenery<'a> {
    pub(super) text: &'a Text<'a>,
    pub(super) topology: &'a Topology,
    pub(super) traffic: &'a [CrossTraffic],
    /// End of the run.
    pub(super) end: Duration,
}

/// Table of a protocol that is being read, and what the scenario has besides.
pub(super) struct Section<'a> {
    pub(super) text: &'a Text<'a>,
    name: String,
    pub(super) topology: &'a Topology,
    pub(super) traffic: &'a [CrossTraffic],
    /// End of the run.
    pub(super) end: Duration,
    /// Keys that are not read yet.
    table: DeTable<'a>,
    span: Range<usize>,
    /// Names of the keys that could be written.
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// Opens a section, whose value has to be a table.
    pub(super) fn open(
        scenery: Scenery<'a>,
        name: &str,
        value: &Spanned<DeValue<'a>>,
    ) -> Result<Section<'a>, Mistake> {
        let Scenery { text, topology, traffic, end } = scenery;
        let span = value.span();
        match value.get_ref() {
            DeValue::Table(table) => {
                let (name, table) = (name.to_owned(), table.clone());
                Ok(Section { text, name, topology, traffic, end, table, span, known: Vec::new() })
            }
            _ => Err(text.mistake(span, format!("`{name}` is a section: expected [{name}]"))),
        }
    }

    /// Returns the place of the section.
    pub(super) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Reads some keys of the table.
    pub(super) fn take<T: Settings>(&mut self) -> Result<T, Mistake> {
        let mut own = DeTable::new();
        for key in T::KEYS {
            if let Some((key, value)) = self.table.remove_entry(*key) {
                own.insert(key, value);
            }
        }
        self.known.extend(T::KEYS);
        self.deserialize(own)
    }

    /// Opens a table within this one; an empty one if it is not written.
    pub(super) fn part(&mut self, key: &'static str) -> Result<Section<'a>, Mistake> {
        self.known.push(key);
        let Section { text, topology, traffic, end, .. } = *self;
        let scenery = Scenery { text, topology, traffic, end };
        let empty = || Spanned::new(self.span.clone(), DeValue::Table(DeTable::new()));
        let value = self.table.remove(key).unwrap_or_else(empty);
        let name = format!("{}.{key}", self.name);
        Section::open(scenery, &name, &value)
    }

    /// Ends the section, in which no key is left that nobody has read.
    pub(super) fn finish(&self) -> Result<(), Mistake> {
        let Some(key) = self.table.keys().next() else { return Ok(()) };
        let (name, expected) = (&self.name, self.known.join(", "));
        let message = format!("[{name}] takes no `{}`, but {expected}", key.get_ref());
        Err(self.text.mistake(key.span(), message))
    }

    /// Reads the whole table.
    pub(super) fn read<T: DeserializeOwned>(&self) -> Result<T, Mistake> {
        self.deserialize(self.table.clone())
    }

    fn deserialize<T: DeserializeOwned>(&self, table: DeTable<'_>) -> Result<T, Mistake> {
        let value = Spanned::new(self.span(), DeValue::Table(table));
        T::deserialize(ValueDeserializer::from(value)).map_err(|error| self.text.toml(&error))
    }
}
