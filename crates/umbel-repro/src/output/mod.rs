//! What an experiment came to, as files: a page to read, and tables and plots to go on with.
//!
//! [`Report::write`] makes in a directory:
//!
//! | file | what |
//! |---|---|
//! | `report.html` | all of it on one page that needs nothing else |
//! | `table.csv` | `figure,what,reported,measured,low,high,verdict`, a line for each number of the paper |
//! | `figN.csv` | `series,x,y,ci95`, a line for each point of figure N |
//! | `figN.svg` | figure N |
//! | `beyondN.csv`, `beyondN.svg` | the same of what the paper does not have |
//! | `NAME.csv` | a table of a section, by its name |
//!
//! Where a figure has several panels, the name of a series begins with its panel's, and a colon.
//!
//! Numbers in the tables are written with all their digits, so that a verdict can be checked from them;
//! a bound that is not there is `inf` or `-inf`.

mod csv;
mod html;
mod number;
mod scale;
mod svg;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// A measured point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Where.
    pub x: f64,
    /// The mean over all seeds.
    pub y: f64,
    /// Half the width of the 95 % confidence interval of `y`; 0 if nothing is known of it.
    pub ci95: f64,
}

/// A curve of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// As in the legend.
    pub name: String,
    /// In the order in which a line joins them.
    pub points: Vec<Point>,
}

/// Which figure it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FigureId {
    /// One of the paper, by its number there.
    Paper(u32),
    /// One that the paper does not have, numbered from 1.
    Beyond(u32),
}

impl FigureId {
    /// Its heading.
    fn heading(self) -> String {
        match self {
            FigureId::Paper(number) => format!("Figure {number}"),
            FigureId::Beyond(number) => format!("Beyond the paper {number}"),
        }
    }

    /// The name of its files, without the extension.
    fn stem(self) -> String {
        match self {
            FigureId::Paper(number) => format!("fig{number}"),
            FigureId::Beyond(number) => format!("beyond{number}"),
        }
    }
}

impl fmt::Display for FigureId {
    /// As rows name it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FigureId::Paper(number) => write!(f, "{number}"),
            FigureId::Beyond(number) => write!(f, "beyond {number}"),
        }
    }
}

/// Curves on the same axes.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What it shows; empty if it is the only one of its figure.
    pub title: String,
    /// The name and the unit of the horizontal axis.
    pub x_label: String,
    /// The name and the unit of the vertical axis.
    pub y_label: String,
    /// Where the vertical axis ends at the latest; curves that rise higher are cut off there in the
    /// plot, not in the table.
    pub y_limit: Option<f64>,
    /// The curves.
    pub series: Vec<Series>,
}

/// A figure, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// No two figures of a report have the same.
    pub id: FigureId,
    /// What it shows.
    pub title: String,
    /// What it is made of, from top to bottom.
    pub panels: Vec<Panel>,
    /// What its reader should know.
    pub caption: String,
}

impl Figure {
    /// A curve of a panel, by their names.
    pub fn series(&self, panel: &str, name: &str) -> Option<&Series> {
        let mut panels = self.panels.iter().filter(|candidate| candidate.title == panel);
        panels.find_map(|panel| panel.series.iter().find(|series| series.name == name))
    }

    /// The values of a curve in the order of its points; none if it is not there.
    pub fn values(&self, panel: &str, name: &str) -> Vec<f64> {
        let series = self.series(panel, name);
        series.into_iter().flat_map(|series| &series.points).map(|point| point.y).collect()
    }
}

/// A number that the paper reports, beside what was measured.
///
/// What the paper says of an order is a row too: of a ratio or a difference, with the bound that the
/// order means.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The name of the figure ([`FigureId`]'s), or the section.
    pub figure: String,
    /// What was measured.
    pub what: String,
    /// The paper's words or number.
    pub reported: String,
    /// The measured number; not a number if nothing could be measured, which is a miss.
    pub measured: f64,
    /// The unit of `measured`, `low` and `high`; empty for a plain number.
    pub unit: &'static str,
    /// The least that agrees with the paper; `-∞` for any.
    pub low: f64,
    /// The most that agrees with the paper; `∞` for any.
    pub high: f64,
}

/// Whether a measured number agrees with the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It lies within the bounds.
    Ok,
    /// It does not.
    Miss,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Ok => "ok",
            Verdict::Miss => "miss",
        })
    }
}

impl Row {
    /// A measured number with its unit, which is to lie between the bounds.
    pub fn new(
        figure: impl fmt::Display,
        what: impl Into<String>,
        reported: impl Into<String>,
        (measured, unit): (f64, &'static str),
        (low, high): (f64, f64),
    ) -> Row {
        let (what, reported) = (what.into(), reported.into());
        Row { figure: figure.to_string(), what, reported, measured, unit, low, high }
    }

    /// Whether the measured number lies within the bounds, which belong to them.
    pub fn verdict(&self) -> Verdict {
        if (self.low..=self.high).contains(&self.measured) { Verdict::Ok } else { Verdict::Miss }
    }
}

/// What the reader of the numbers should know: a choice, a finding, a discrepancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// In a few words.
    pub title: String,
    /// The rest, in paragraphs with empty lines between them.
    pub text: String,
}

/// Results in words and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// The name of its file, without `.csv`; no two tables of a report have the same.
    pub name: &'static str,
    /// The names of the columns.
    pub head: Vec<String>,
    /// The cells of each row, as many as there are columns. Those that are numbers are written as
    /// `f64` reads them.
    pub rows: Vec<Vec<String>>,
}

/// What goes beyond the paper's own figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// In a few words.
    pub title: String,
    /// What was done and found, in paragraphs with empty lines between them.
    pub text: String,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// Its tables.
    pub tables: Vec<Table>,
}

/// All that the experiments of a paper came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The short name of the paper, as on the command line.
    pub paper: &'static str,
    /// The title of the report.
    pub title: String,
    /// What was done, in paragraphs with empty lines between them.
    pub intro: String,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The numbers that are compared with those of the paper.
    pub rows: Vec<Row>,
    /// What goes with a text or a table of its own.
    pub sections: Vec<Section>,
    /// What else is to be said.
    pub notes: Vec<Note>,
    /// What is needed to get the same numbers again: names and values.
    pub settings: Vec<(String, String)>,
}

/// Why there are no files.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The directory is not there and cannot be made.
    #[error("cannot make the directory {path}: {source}", path = path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {path}: {source}", path = path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Makes a directory, and finds out whether files can be written there: before the minutes that it
/// takes to have something to write.
///
/// # Errors
///
/// If the directory cannot be made, or takes no file.
#[allow(clippy::disallowed_methods, reason = "the report is written here")]
pub fn prepare(dir: &Path) -> Result<(), OutputError> {
    std::fs::create_dir_all(dir)
        .map_err(|source| OutputError::Directory { path: dir.to_owned(), source })?;
    let probe = dir.join(format!(".umbel-repro-{}", std::process::id()));
    std::fs::write(&probe, b"")
        .and_then(|()| std::fs::remove_file(&probe))
        .map_err(|source| OutputError::Write { path: dir.to_owned(), source })
}

impl Report {
    /// How many rows miss.
    pub fn misses(&self) -> usize {
        self.rows.iter().filter(|row| row.verdict() == Verdict::Miss).count()
    }

    /// The figures, and those of the sections.
    fn all_figures(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().chain(self.sections.iter().flat_map(|section| &section.figures))
    }

    /// Writes all files into a directory, which is made if it is not there. Files of the same names are
    /// replaced, others are left alone.
    ///
    /// # Errors
    ///
    /// If the directory or a file cannot be written; what was written before stays.
    pub fn write(&self, dir: &Path) -> Result<(), OutputError> {
        prepare(dir)?;
        for figure in self.all_figures() {
            let name = figure.id.stem();
            write_file(&dir.join(format!("{name}.csv")), &csv::figure(figure))?;
            write_file(&dir.join(format!("{name}.svg")), &svg::document(figure))?;
        }
        for table in self.sections.iter().flat_map(|section| &section.tables) {
            write_file(&dir.join(format!("{}.csv", table.name)), &csv::section_table(table))?;
        }
        write_file(&dir.join("table.csv"), &csv::table(&self.rows))?;
        write_file(&dir.join("report.html"), &html::page(self))
    }
}

#[allow(clippy::disallowed_methods, reason = "the report is written here")]
fn write_file(path: &Path, text: &str) -> Result<(), OutputError> {
    std::fs::write(path, text)
        .map_err(|source| OutputError::Write { path: path.to_owned(), source })
}

/// Text as it can stand between tags and in attributes, without characters that XML forbids.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' | '\t' => escaped.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}');
            }
            c => escaped.push(c),
        }
    }
    escaped
}
