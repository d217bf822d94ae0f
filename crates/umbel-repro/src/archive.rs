//! Runs as files: every outcome of every run, so that a report can be continued and redrawn.
//!
//! A file begins with a comment that says which program wrote it with which options; then comes a
//! table as in RFC 4180. A run is one line, which is written as soon as the run is done, so that
//! nothing but the last line can be torn.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::output::csv;
use crate::pool::Experiment;
use crate::record::Record;

/// Columns before those of the outcome.
const COLUMNS: [&str; 3] = ["experiment", "seed", "run_seconds"];

/// Use of earlier runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Nothing: all runs run, and their files start empty.
    Nothing,
    /// They are not run again.
    Resume,
    /// They are all that there is: nothing runs, and no file changes.
    Redraw,
}

/// Facts that must be equal for runs to be used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// Name of the paper.
    pub paper: String,
    /// Digest of the program. It is not compared where nothing runs.
    pub program: String,
    /// Options on which outcomes depend, as on the command line.
    pub options: String,
}

/// Error of using earlier runs or keeping new ones.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The runs are those of another paper, program or option.
    #[error("{path}: its runs are of {what} `{found}`, and expected is `{expected}`",
        path = path.display())]
    Origin {
        /// The file.
        path: PathBuf,
        /// Name of the fact that differs.
        what: &'static str,
        /// Value in the file.
        found: String,
        /// Value that it needs.
        expected: String,
    },
    /// A line is no run.
    #[error("{path}:{line}: expected {expected}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Number of the line, from 1.
        line: usize,
        /// Text that it should be.
        expected: String,
    },
    /// Runs are missing from which a report was to be made.
    #[error("{path} lacks {missing} runs, such as seed {seed} of {experiment}: `--resume` runs them",
        path = path.display())]
    Missing {
        /// The file.
        path: PathBuf,
        /// Their number.
        missing: usize,
        /// One of them.
        experiment: String,
        /// Its seed.
        seed: u64,
    },
}

/// Runs that are kept, by experiment and seed.
type Kept = BTreeMap<(String, u64), Vec<String>>;

/// The file of one kind of experiment.
#[derive(Debug, Default)]
struct Sheet {
    columns: Vec<String>,
    kept: Kept,
    /// Lines of comment and table before the first run.
    file: Option<File>,
    /// Runs that were wanted and are not there: their number, and one of them.
    missing: Option<(usize, String, u64)>,
}

/// The files of a report's runs.
#[derive(Debug)]
pub struct Archive {
    dir: PathBuf,
    origin: Origin,
    /// Digests of programs besides that of the origin on which the runs of a kind depend.
    others: BTreeMap<&'static str, String>,
    to: Use,
    sheets: Mutex<BTreeMap<&'static str, Sheet>>,
    /// The first error of a run that was to be kept.
    error: Mutex<Option<ArchiveError>>,
}

impl Archive {
    /// Creates an archive in a directory, which exists.
    pub fn new(dir: &Path, origin: Origin, to: Use) -> Archive {
        let (sheets, error) = (Mutex::default(), Mutex::default());
        Archive { dir: dir.to_owned(), origin, others: BTreeMap::new(), to, sheets, error }
    }

    /// States that the runs of a kind depend on another program, too, by its digest.
    #[must_use]
    pub fn with_program(mut self, kind: &'static str, digest: String) -> Archive {
        self.others.insert(kind, digest);
        self
    }

    /// Returns the origin of the runs of a kind.
    fn origin(&self, kind: &str) -> Origin {
        let mut origin = self.origin.clone();
        if let Some(other) = self.others.get(kind) {
            origin.program = format!("{} with {other}", origin.program);
        }
        origin
    }

    /// Reads the files of these kinds of experiments ([`Experiment::RUNS`]), or begins them.
    ///
    /// # Errors
    ///
    /// If a file cannot be read or written, or its runs are others.
    pub fn open(&self, kinds: &[&'static str]) -> Result<(), ArchiveError> {
        for kind in kinds {
            let path = self.path(kind);
            if self.to == Use::Nothing {
                remove(&path)?;
            }
            let sheet = self.read(kind, &path)?;
            self.sheets().insert(kind, sheet);
        }
        Ok(())
    }

    fn path(&self, kind: &str) -> PathBuf {
        self.dir.join(format!("{kind}.csv"))
    }

    fn sheets(&self) -> MutexGuard<'_, BTreeMap<&'static str, Sheet>> {
        self.sheets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[allow(clippy::disallowed_methods, reason = "runs are kept here")]
    fn read(&self, kind: &str, path: &Path) -> Result<Sheet, ArchiveError> {
        let fail = |source| ArchiveError::Read { path: path.to_owned(), source };
        let text = match std::fs::read_to_string(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Sheet::default()),
            text => text.map_err(fail)?,
        };
        let wrong = |line: usize, expected: &str| ArchiveError::Line {
            path: path.to_owned(),
            line,
            expected: expected.to_owned(),
        };
        // Bytes after the last line's end are the beginning of a run that was cut off.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        let mut lines = text[..whole].lines().zip(1..);
        let Some((head, _)) = lines.next() else { return Ok(Sheet::default()) };
        let found = Origin::parse(head)
            .ok_or_else(|| wrong(1, "`# runs of PAPER, program …, options …`"))?;
        self.compare(kind, path, found)?;
        let Some((columns, _)) = lines.next() else { return Ok(Sheet::default()) };
        let columns = csv::fields(columns).ok_or_else(|| wrong(2, "the names of columns"))?;
        let mut kept = Kept::new();
        for (line, number) in lines {
            let run = csv::fields(line).filter(|cells| cells.len() == columns.len());
            let expected = || wrong(number, &format!("a run of {} cells", columns.len()));
            let mut cells = run.ok_or_else(expected)?.into_iter();
            let (experiment, seed) = (cells.next(), cells.next());
            let seed = seed.and_then(|seed| seed.parse().ok());
            let (Some(experiment), Some(seed)) = (experiment, seed) else {
                return Err(wrong(number, "an experiment and a seed"));
            };
            kept.insert((experiment, seed), cells.skip(1).collect());
        }
        let file = if self.to == Use::Resume {
            let fail = |source| ArchiveError::Write { path: path.to_owned(), source };
            let file = File::options().append(true).open(path).map_err(fail)?;
            file.set_len(whole as u64).map_err(fail)?;
            Some(file)
        } else {
            None
        };
        Ok(Sheet { columns, kept, file, missing: None })
    }

    fn compare(&self, kind: &str, path: &Path, found: Origin) -> Result<(), ArchiveError> {
        let own = self.origin(kind);
        let mut pairs = vec![
            ("the paper", found.paper, own.paper),
            ("the options", found.options, own.options),
        ];
        if self.to == Use::Resume {
            pairs.push(("the program", found.program, own.program));
        }
        match pairs.into_iter().find(|(_, found, own)| found != own) {
            Some((what, found, expected)) => {
                Err(ArchiveError::Origin { path: path.to_owned(), what, found, expected })
            }
            None => Ok(()),
        }
    }

    /// Returns whether runs may run.
    pub(crate) fn may_run(&self) -> bool {
        self.to != Use::Redraw
    }

    /// Returns the outcome of a run, if it was kept.
    pub(crate) fn find<E: Experiment>(&self, experiment: &E, seed: u64) -> Option<E::Outcome> {
        let mut sheets = self.sheets();
        let sheet = sheets.entry(E::RUNS).or_default();
        let name = name_of(experiment);
        let cells =
            sheet.kept.get(&(name.clone(), seed)).filter(|_| sheet.columns == columns::<E>());
        let outcome = cells.and_then(|cells| E::Outcome::read(&mut cells.iter()));
        if outcome.is_none() && !self.may_run() {
            let before = sheet.missing.take().map_or(0, |(count, ..)| count);
            sheet.missing = Some((before + 1, name, seed));
        }
        outcome
    }

    /// Keeps the outcome of a run.
    pub(crate) fn keep<E: Experiment>(
        &self,
        experiment: &E,
        seed: u64,
        seconds: f64,
        outcome: &E::Outcome,
    ) {
        let mut cells = vec![name_of(experiment), seed.to_string(), format!("{seconds:.3}")];
        outcome.write(&mut cells);
        let mut sheets = self.sheets();
        let sheet = sheets.entry(E::RUNS).or_default();
        if let Err(source) = self.append(E::RUNS, sheet, &columns::<E>(), &cells) {
            let error = ArchiveError::Write { path: self.path(E::RUNS), source };
            self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        }
    }

    #[allow(clippy::disallowed_methods, reason = "runs are kept here")]
    fn append(
        &self,
        kind: &str,
        sheet: &mut Sheet,
        columns: &[String],
        cells: &[String],
    ) -> io::Result<()> {
        let file = match &mut sheet.file {
            Some(file) => file,
            file => {
                let mut new = File::create(self.path(kind))?;
                let head = self.origin(kind).head();
                new.write_all(format!("{head}\n{}", csv::row(columns)).as_bytes())?;
                file.insert(new)
            }
        };
        // A line is written at once, so that it is whole unless the machine fails.
        file.write_all(csv::row(cells).as_bytes())
    }

    /// Returns whether all runs were there or could be kept.
    ///
    /// # Errors
    ///
    /// The first error of keeping a run, or the runs that are missing.
    pub fn finish(&self) -> Result<(), ArchiveError> {
        if let Some(error) = self.error.lock().unwrap_or_else(PoisonError::into_inner).take() {
            return Err(error);
        }
        let sheets = self.sheets();
        let missing = sheets.iter().find_map(|(kind, sheet)| Some((kind, sheet.missing.clone()?)));
        match missing {
            Some((kind, (missing, experiment, seed))) => {
                let experiment = shortened(&experiment);
                Err(ArchiveError::Missing { path: self.path(kind), missing, experiment, seed })
            }
            None => Ok(()),
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "runs are kept here")]
fn remove(path: &Path) -> Result<(), ArchiveError> {
    match std::fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => {
            Err(ArchiveError::Write { path: path.to_owned(), source })
        }
        _ => Ok(()),
    }
}

impl Origin {
    fn head(&self) -> String {
        let Origin { paper, program, options } = self;
        format!("# runs of {paper}, program {program}, options {options}")
    }

    fn parse(head: &str) -> Option<Origin> {
        let (paper, rest) = head.strip_prefix("# runs of ")?.split_once(", program ")?;
        let (program, options) = rest.split_once(", options ")?;
        let [paper, program, options] = [paper, program, options].map(str::to_owned);
        Some(Origin { paper, program, options })
    }
}

/// Returns the name of an experiment, with everything that makes it differ from others.
pub(crate) fn name_of<E: Experiment>(experiment: &E) -> String {
    format!("{experiment:?}")
}

/// Returns the beginning of a name, so that an error stays one line.
fn shortened(name: &str) -> String {
    const MOST: usize = 100;
    match name.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

/// Returns the names of all columns of an experiment's runs.
fn columns<E: Experiment>() -> Vec<String> {
    COLUMNS.map(str::to_owned).into_iter().chain(E::Outcome::columns()).collect()
}

#[cfg(test)]
mod tests;
