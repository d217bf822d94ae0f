//! Sweeps: a scenario once for each combination of values of some keys.
//!
//! A value of a sweep takes the place of the one that the file has, or is added to it, before the
//! file is read. So whatever is wrong with it is told with its line in `[sweep]`.

use std::borrow::Cow;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use umbel_engine::units::{ByteCount, Rate};
use umbel_topology::Mistake;
use umbel_topology::values::{Share, Time};

use super::Scenario;
use super::file::Text;
use super::protocol::SECTIONS;

/// A scenario file and the points of its sweep: one point if it has none.
#[derive(Clone, Debug)]
pub struct Study {
    text: String,
    file: Option<PathBuf>,
    folder: PathBuf,
    axes: Vec<Axis>,
    rules: Rules,
}

/// What a sweep says beside the keys that it varies.
#[derive(Clone, Copy, Debug, Default)]
struct Rules {
    seeds: Option<u32>,
    same_within: Option<f64>,
}

/// Key that is swept, with its values.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name of the key, as the sweep has it.
    pub name: String,
    /// Values as they are written.
    pub labels: Vec<String>,
    /// Values as numbers: seconds, bits per second, bytes, shares; `None` if one is no number.
    pub numbers: Option<Vec<f64>>,
    /// Places in the file where the values go.
    path: Vec<String>,
    /// Whether the file has no value there.
    is_new: bool,
    /// Line of the key in the sweep.
    line: Range<usize>,
}

/// Key of the number of runs of each point.
const SEEDS: &str = "seeds";
/// Key of the share of a mean by which another may differ and still be the same.
const SAME_WITHIN: &str = "same_within";
/// Limit on points, above which a table says nothing to anybody.
const MOST_POINTS: usize = 10_000;
/// Keys whose values are texts, and a choice of a few.
const CHOICES: [&str; 17] = [
    "rate",
    "pace_to",
    "share",
    "policy",
    "scheduler",
    "code",
    "arrivals",
    "placement",
    "generator",
    "cost",
    "recovery",
    "loss_of",
    "of",
    "controller",
    "fairness",
    "congestion",
    "traffic",
];

impl Study {
    /// Reads a file and its sweep, and checks the scenario of every point.
    ///
    /// # Errors
    /// Returns one line with the file, the line, the mistake and the expected input.
    #[allow(clippy::disallowed_methods, reason = "scenarios are read before a run")]
    pub fn from_file(path: &Path) -> Result<Study, Mistake> {
        let folder = path.parent().unwrap_or(Path::new(""));
        let study = std::fs::read_to_string(path)
            .map_err(|error| Mistake::new(error.to_string()))
            .and_then(|text| Study::new(text, Some(path), folder))
            .map_err(|mistake| mistake.in_file(path))?;
        study.check()?;
        Ok(study)
    }

    /// Reads the TOML form. Files that it names are found in `folder`.
    ///
    /// # Errors
    /// Returns one line with the line of the text, the mistake and the expected input.
    pub fn from_toml(text: &str, folder: &Path) -> Result<Study, Mistake> {
        let study = Study::new(text.to_owned(), None, folder)?;
        study.check()?;
        Ok(study)
    }

    fn new(text: String, file: Option<&Path>, folder: &Path) -> Result<Study, Mistake> {
        let (axes, rules) = read(&Text(&text))?;
        let file = file.map(Path::to_owned);
        Ok(Study { text, file, folder: folder.to_owned(), axes, rules })
    }

    /// Checks all points. A file without a sweep is checked when its scenario is read.
    fn check(&self) -> Result<(), Mistake> {
        let points = if self.axes.is_empty() { 0 } else { self.points() };
        (0..points).try_for_each(|point| self.scenario(point).map(|_| ()))
    }

    /// Returns the keys that are swept, in the order of the file.
    pub fn axes(&self) -> &[Axis] {
        &self.axes
    }

    /// Returns the number of runs of each point, if the file says so.
    pub fn seeds(&self) -> Option<u32> {
        self.rules.seeds
    }

    /// Returns the share of the first point's mean by which another mean may differ and still be
    /// the same, if the file says so; above 0 and below 1.
    pub fn same_within(&self) -> Option<f64> {
        self.rules.same_within
    }

    /// Returns the number of points: the product of the numbers of values.
    pub fn points(&self) -> usize {
        self.axes.iter().map(|axis| axis.labels.len()).product()
    }

    /// Returns the position of the value of each key at a point. The last key changes from point to
    /// point.
    pub fn position(&self, mut point: usize) -> Vec<usize> {
        let mut position: Vec<usize> = self
            .axes
            .iter()
            .rev()
            .map(|axis| {
                let value = point % axis.labels.len();
                point /= axis.labels.len();
                value
            })
            .collect();
        position.reverse();
        position
    }

    /// Returns a point as text, like `loss = 5%, burst = 4`; empty without a sweep.
    pub fn label(&self, point: usize) -> String {
        let values = self.axes.iter().zip(self.position(point));
        let values = values.map(|(axis, value)| format!("{} = {}", axis.name, axis.labels[value]));
        values.collect::<Vec<_>>().join(", ")
    }

    /// Returns the scenario of a point.
    ///
    /// # Errors
    /// Returns one line with the place of the mistake.
    pub fn scenario(&self, point: usize) -> Result<Scenario, Mistake> {
        self.scenario_of(point, None)
    }

    /// Returns whether the network of a run depends on the seed of the run, since the file says
    /// `seed = "run"` in `[topology]`.
    pub fn draws_networks(&self) -> bool {
        let text = Text(&self.text);
        let table = text.table().ok();
        table.is_some_and(|mut table| graph_seed(table.get_mut()).is_some())
    }

    /// Returns the scenario of a point, with the network of a run with this seed. Default: that of
    /// the scenario.
    ///
    /// # Errors
    /// Returns one line with the place of the mistake.
    pub fn scenario_of(&self, point: usize, seed: Option<u64>) -> Result<Scenario, Mistake> {
        let mut scenario = self.read_point(point, seed).map_err(|mistake| {
            let mistake = shortened(mistake);
            match &self.file {
                Some(file) => mistake.in_file(file),
                None => mistake,
            }
        })?;
        if let (true, Some(file)) = (scenario.name.is_empty(), &self.file) {
            scenario.name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        }
        Ok(scenario)
    }

    fn read_point(&self, point: usize, seed: Option<u64>) -> Result<Scenario, Mistake> {
        let text = Text(&self.text);
        let mut table = text.table()?;
        let sweep = table.get_mut().remove("sweep");
        let entries = sweep.as_ref().map(entries).unwrap_or_default();
        for (axis, value) in self.axes.iter().zip(self.position(point)) {
            let entry = entries.iter().find(|entry| entry.path.join(".") == axis.name);
            let Some(value) = entry.and_then(|entry| entry.value.get_ref().get(value)) else {
                continue;
            };
            put(table.get_mut(), &axis.path, &axis.line, value.clone());
        }
        let own = table
            .get_ref()
            .get("seed")
            .and_then(|own| own.get_ref().as_integer()?.as_str().parse().ok());
        if let Some(place) = graph_seed(table.get_mut()) {
            let seed = seed.or(own).unwrap_or(1);
            *place = DeValue::String(Cow::Owned(seed.to_string()));
        }
        Scenario::from_table(&text, &table, &self.folder).map_err(|mistake| self.explain(mistake))
    }

    /// Adds to a mistake at a key that the sweep has and the file has not, that it could be
    /// written.
    fn explain(&self, mistake: Mistake) -> Mistake {
        let at = |axis: &&Axis| Text(&self.text).line(&axis.line) == mistake.line();
        match self.axes.iter().filter(|axis| axis.is_new).find(at) {
            Some(axis) if mistake.file().is_none() => {
                let message = format!(
                    "the file has no key `{}`, and there it cannot be: {}",
                    axis.name,
                    mistake.message()
                );
                Text(&self.text).mistake(axis.line.clone(), message)
            }
            _ => mistake,
        }
    }
}

/// Returns the seed of the graph, if it is that of the run.
fn graph_seed<'t, 'a>(table: &'t mut DeTable<'a>) -> Option<&'t mut DeValue<'a>> {
    let DeValue::Table(topology) = table.get_mut("topology")?.get_mut() else { return None };
    let seed = topology.get_mut("seed")?.get_mut();
    (seed.as_str() == Some("run")).then_some(seed)
}

/// Longest message, in bytes, that still reads as one line.
const LINE: usize = 300;
/// Number of expected keys that a longer message keeps.
const KEPT: usize = 8;

/// Names the key that may be meant, or leaves out most of those that were expected, if there are
/// too many for a line.
fn shortened(mistake: Mistake) -> Mistake {
    let Some((what, keys)) = mistake.message().split_once(", but ") else { return mistake };
    let keys: Vec<&str> = keys.split(", ").collect();
    if mistake.message().len() <= LINE || keys.len() <= KEPT {
        return mistake;
    }
    let wrong = what.rsplit('`').nth(1).unwrap_or_default();
    if let Some(near) = nearest(wrong, &keys) {
        let all = keys.len();
        let message = format!(
            "{what}; `{near}` may be meant; docs/laboratory/simulator.md has all {all} keys"
        );
        return mistake.with_message(message);
    }
    let (kept, more) = (keys[..KEPT].join(", "), keys.len() - KEPT);
    let message =
        format!("{what}, but {kept} and {more} more, which docs/laboratory/simulator.md has");
    mistake.with_message(message)
}

/// Returns the key that differs least, in one of three letters at most.
fn nearest<'k>(wrong: &str, keys: &[&'k str]) -> Option<&'k str> {
    let far = keys.iter().map(|&key| (strsim::osa_distance(wrong, key), key));
    let (far, key) = far.min_by_key(|(far, _)| *far)?;
    (far * 3 <= wrong.len()).then_some(key)
}

/// A key of a sweep.
struct Entry<'v, 'a> {
    path: Vec<String>,
    key: Range<usize>,
    value: &'v Spanned<DeValue<'a>>,
}

/// Returns the keys of a sweep with their values, in the order of the file. Tables within it are
/// parts of paths.
fn entries<'v, 'a>(sweep: &'v Spanned<DeValue<'a>>) -> Vec<Entry<'v, 'a>> {
    fn visit<'v, 'a>(table: &'v DeTable<'a>, before: &[String], found: &mut Vec<Entry<'v, 'a>>) {
        for (key, value) in table {
            let mut path = before.to_vec();
            path.extend(key.get_ref().split('.').map(str::to_owned));
            match value.get_ref() {
                DeValue::Table(inner) => visit(inner, &path, found),
                _ => found.push(Entry { path, key: key.span(), value }),
            }
        }
    }
    let mut found = Vec::new();
    if let DeValue::Table(table) = sweep.get_ref() {
        visit(table, &[], &mut found);
    }
    found.sort_by_key(|entry| entry.key.start);
    found
}

/// Reads the sweep of a file.
fn read(text: &Text<'_>) -> Result<(Vec<Axis>, Rules), Mistake> {
    let mut table = text.table()?;
    let Some(sweep) = table.get_mut().remove("sweep") else {
        return Ok((Vec::new(), Rules::default()));
    };
    if !sweep.get_ref().is_table() {
        return Err(text.mistake(sweep.span(), "`sweep` is a section: expected [sweep]"));
    }
    let (mut axes, mut rules) = (Vec::new(), Rules::default());
    for entry in entries(&sweep) {
        if entry.path == [SEEDS] {
            rules.seeds = Some(read_seeds(text, entry.value)?);
            continue;
        }
        if entry.path == [SAME_WITHIN] {
            rules.same_within = Some(read_margin(text, entry.value)?);
            continue;
        }
        axes.push(axis(text, table.get_ref(), &entry)?);
        let points: usize = axes.iter().map(|axis: &Axis| axis.labels.len()).product();
        if points > MOST_POINTS {
            let message = format!("{points} points: at most {MOST_POINTS} fit");
            return Err(text.mistake(entry.value.span(), message));
        }
    }
    if axes.is_empty() {
        let message =
            "a sweep without a key: expected one with its values, as in loss = [0.01, 0.05]";
        return Err(text.mistake(sweep.span(), message));
    }
    Ok((axes, rules))
}

fn read_seeds(text: &Text<'_>, value: &Spanned<DeValue<'_>>) -> Result<u32, Mistake> {
    let number = value.get_ref().as_integer().and_then(|number| number.as_str().parse().ok());
    number.filter(|seeds| (1..=100_000).contains(seeds)).ok_or_else(|| {
        let message = "seeds is the number of runs for each point: expected 1 to 100000";
        text.mistake(value.span(), message)
    })
}

fn read_margin(text: &Text<'_>, value: &Spanned<DeValue<'_>>) -> Result<f64, Mistake> {
    let share: Option<Share> = match value.get_ref() {
        DeValue::Integer(integer) => integer.to_string().parse().ok(),
        DeValue::Float(float) => float.to_string().parse().ok(),
        DeValue::String(written) => written.parse().ok(),
        _ => None,
    };
    share.map(|share| share.0).filter(|share| 0.0 < *share && *share < 1.0).ok_or_else(|| {
        let message = "same_within is the share of the first mean by which another may differ: \
                       expected more than 0 and less than 1, as in \"5%\"";
        text.mistake(value.span(), message)
    })
}

/// Reads a key with its values, and finds its place in the file.
fn axis(text: &Text<'_>, table: &DeTable<'_>, entry: &Entry<'_, '_>) -> Result<Axis, Mistake> {
    let name = entry.path.join(".");
    let fail = |place: Range<usize>, message: String| Err(text.mistake(place, message));
    let Some(values) = entry.value.get_ref().as_array().filter(|values| !values.is_empty()) else {
        let message = format!("{name}: expected a list of values, as in [0.01, 0.05]");
        return fail(entry.value.span(), message);
    };
    let (path, is_new) = find(text, table, entry)?;
    let last = path.last().map(String::as_str).unwrap_or_default();
    let (mut labels, mut numbers) = (Vec::new(), Some(Vec::new()));
    for value in values {
        let (label, number) = match value.get_ref() {
            DeValue::Integer(integer) => (integer.to_string(), integer.to_string().parse().ok()),
            DeValue::Float(float) => (float.to_string(), float.to_string().parse().ok()),
            DeValue::Boolean(switch) => (switch.to_string(), None),
            DeValue::String(written) => {
                let number = quantity(written);
                if number.is_none() && !CHOICES.contains(&last) {
                    let message = format!(
                        "`{written}` is a text: a sweep varies numbers, times, rates, sizes, \
                         shares, true and false, and the choices {}",
                        CHOICES.join(", ")
                    );
                    return fail(value.span(), message);
                }
                (written.to_string(), number)
            }
            _ => {
                let message = format!("{name}: expected single values, as in [0.01, 0.05]");
                return fail(value.span(), message);
            }
        };
        if labels.contains(&label) {
            return fail(value.span(), format!("`{label}` is there twice"));
        }
        labels.push(label);
        numbers = numbers.zip(number).map(|(mut numbers, number)| {
            numbers.push(number);
            numbers
        });
    }
    Ok(Axis { name, labels, numbers, path, is_new, line: entry.key.clone() })
}

/// Returns what a text says as a number: a share, a time in seconds, a size in bytes or a rate in
/// bits per second.
fn quantity(text: &str) -> Option<f64> {
    fn read<T: FromStr>(text: &str) -> Option<T> {
        text.parse().ok()
    }
    read::<Share>(text)
        .map(|share| share.0)
        .or_else(|| read::<Time>(text).map(|time| time.0.as_secs_f64()))
        .or_else(|| {
            let is_size = text.ends_with('B');
            read::<ByteCount>(text).filter(|_| is_size).map(|bytes| bytes.0 as f64)
        })
        .or_else(|| read::<Rate>(text).map(|rate| rate.bits_per_s() as f64))
}

/// Finds the place that a name means: the path itself, or the only one in the file that ends like
/// it. Returns whether the file has no value there.
fn find(
    text: &Text<'_>,
    table: &DeTable<'_>,
    entry: &Entry<'_, '_>,
) -> Result<(Vec<String>, bool), Mistake> {
    let name = &entry.path;
    let mut found = Vec::new();
    for (key, value) in table {
        search(value.get_ref(), vec![key.get_ref().to_string()], name, &mut found);
    }
    if let Some(exact) = found.iter().find(|(path, _)| path == name) {
        found = vec![exact.clone()];
    }
    match &found[..] {
        [(path, true)] => Ok((path.clone(), false)),
        [(path, false)] => {
            let message =
                format!("`{}` is more than one value: expected a key with one", path.join("."));
            Err(text.mistake(entry.key.clone(), message))
        }
        [] if name.len() > 1 => Ok((name.clone(), true)),
        [] => {
            // A key of the protocol that has its default.
            let section = SECTIONS.iter().find(|(section, _)| table.contains_key(*section));
            let mut path: Vec<String> =
                section.map(|(section, _)| (*section).to_owned()).into_iter().collect();
            path.extend(name.iter().cloned());
            Ok((path, true))
        }
        several => {
            let paths: Vec<String> = several.iter().map(|(path, _)| path.join(".")).collect();
            let message = format!(
                "`{}` can be {}: expected the whole path of one of them",
                name.join("."),
                paths.join(", ")
            );
            Err(text.mistake(entry.key.clone(), message))
        }
    }
}

/// Finds all paths that end with a name. Elements of lists of tables are numbered from 0.
fn search(
    value: &DeValue<'_>,
    path: Vec<String>,
    name: &[String],
    found: &mut Vec<(Vec<String>, bool)>,
) {
    let longer = |part: String| path.iter().cloned().chain([part]).collect();
    match value {
        DeValue::Table(table) => {
            for (key, value) in table {
                search(value.get_ref(), longer(key.get_ref().to_string()), name, found);
            }
        }
        DeValue::Array(values) if values.iter().any(|value| value.get_ref().is_table()) => {
            for (number, value) in values.iter().enumerate() {
                search(value.get_ref(), longer(number.to_string()), name, found);
            }
        }
        _ => {}
    }
    if path.ends_with(name) {
        let is_one = !value.is_table() && !value.is_array();
        found.push((path, is_one));
    }
}

/// Puts a value at a path, and makes the tables on the way to it.
fn put<'a>(
    table: &mut DeTable<'a>,
    path: &[String],
    place: &Range<usize>,
    value: Spanned<DeValue<'a>>,
) {
    let Some((key, rest)) = path.split_first() else { return };
    let new_key = || Spanned::new(place.clone(), Cow::Owned(key.clone()));
    if rest.is_empty() {
        // The key of the file goes, so that a mistake in its name is told where the sweep has it.
        match table.get_mut(key.as_str()) {
            Some(present) => *present = value,
            None => {
                table.insert(new_key(), value);
            }
        }
        return;
    }
    if !table.contains_key(key.as_str()) {
        let empty = Spanned::new(place.clone(), DeValue::Table(DeTable::new()));
        table.insert(new_key(), empty);
    }
    match table.get_mut(key.as_str()).map(Spanned::get_mut) {
        Some(DeValue::Table(inner)) => put(inner, rest, place, value),
        Some(DeValue::Array(values)) => {
            let Some((number, rest)) = rest.split_first() else { return };
            let element = number.parse().ok().and_then(|n: usize| values.get_mut(n));
            if let Some(DeValue::Table(inner)) = element.map(Spanned::get_mut) {
                put(inner, rest, place, value);
            }
        }
        // The reader says that it expected a table.
        Some(other) => *other = DeValue::Table(DeTable::new()),
        None => {}
    }
}

#[cfg(test)]
#[path = "sweep_tests.rs"]
mod tests;
