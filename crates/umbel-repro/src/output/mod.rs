//! The results of experiments as files: a page to read, and tables and plots for further use.
//!
//! [`Report::write`] writes these files to a directory:
//!
//! | file | what |
//! |---|---|
//! | `report.html` | the whole report on one self-contained page |
//! | `table.csv` | `figure,what,reported,measured,measured_low,measured_high,low,high,verdict,kind,p,p_holm,why`, a line for each number |
//! | `figN.csv` | `series,x,y,ci95`, a line for each point of figure N |
//! | `figN.svg` | figure N |
//! | `beyondN.csv`, `beyondN.svg` | the same for figures that are not in the paper |
//! | `figureN.csv`, `figureN.svg` | the same for figures of a study that belongs to no paper |
//! | `tornado.csv`, `tornado.svg` | the same for the bars of the sensitivity: x is -1 to the left, 1 to the right |
//! | `NAME.csv` | a table of a section, by its name |
//!
//! `runs.csv` beside them is the [archive](crate::archive)'s. A series whose name ends with
//! `(reported)` has the paper's own points.
//!
//! If a figure has several panels, the name of a series begins with its panel's name and a colon.
//!
//! The interval `measured_low` to `measured_high` has 95 % probability, of rows of the kind `same`
//! 90 %. `p` is the probability of such a number if the true one lay outside the bounds. `p_holm`
//! is the same with Holm's correction for all rows that are judged. `why` is the reason of a
//! margin, of a doubt, or of not being judged.
//!
//! Numbers in the tables are written with all their digits, so that verdicts can be checked. A
//! missing bound is `inf` or `-inf`.

pub(crate) mod csv;
mod html;
mod number;
mod row;
mod scale;
mod svg;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod tornado;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use self::row::{Certainty, Kind, Row, Verdict};

/// A measured point of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Horizontal position.
    pub x: f64,
    /// The mean over all seeds.
    pub y: f64,
    /// Half the width of the 95 % confidence interval of `y`; NaN if unknown, 0 if `y` is exact.
    pub ci95: f64,
}

/// A curve of a figure.
#[derive(Clone, Debug, PartialEq)]
pub struct Series {
    /// Name in the legend.
    pub name: String,
    /// Points, in the order in which a line joins them.
    pub points: Vec<Point>,
}

/// A point of a curve as a paper reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Name of the curve.
    pub series: String,
    /// Horizontal position.
    pub x: f64,
    /// The reported value.
    pub y: f64,
    /// The paper's words or number.
    pub reported: String,
}

/// A range of a whole curve as a paper reports it.
#[derive(Clone, Debug, PartialEq)]
pub struct Band {
    /// Name of the curve.
    pub series: String,
    /// Least reported value.
    pub low: f64,
    /// Greatest reported value.
    pub high: f64,
    /// The paper's words.
    pub reported: String,
}

/// Identifier of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FigureId {
    /// A figure of the paper, by its number there.
    Paper(u32),
    /// A figure that is not in the paper, numbered from 1.
    Beyond(u32),
    /// A figure of a study that belongs to no paper, numbered from 1.
    Study(u32),
    /// The tornado plot of the values that were chosen or fitted.
    Sensitivity,
}

impl FigureId {
    /// Returns the heading of the figure.
    fn heading(self) -> String {
        match self {
            FigureId::Paper(number) | FigureId::Study(number) => format!("Figure {number}"),
            FigureId::Beyond(number) => format!("Beyond the paper {number}"),
            FigureId::Sensitivity => "Sensitivity".to_owned(),
        }
    }

    /// Returns the name of the figure's files, without the extension.
    fn stem(self) -> String {
        match self {
            FigureId::Paper(number) => format!("fig{number}"),
            FigureId::Beyond(number) => format!("beyond{number}"),
            FigureId::Study(number) => format!("figure{number}"),
            FigureId::Sensitivity => "tornado".to_owned(),
        }
    }
}

impl fmt::Display for FigureId {
    /// Writes the name of the figure as in the rows.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FigureId::Paper(number) => write!(f, "{number}"),
            FigureId::Beyond(number) => write!(f, "beyond {number}"),
            FigureId::Study(number) => write!(f, "figure {number}"),
            FigureId::Sensitivity => f.write_str("sensitivity"),
        }
    }
}

/// A bar of a tornado plot: what changes if a value is another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// The value, with what was chosen.
    pub name: String,
    /// Other values and how much changes with them: to the left the lower, to the right the higher.
    pub sides: [Option<(String, f64)>; 2],
}

/// Curves on the same axes, or bars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Panel {
    /// Title of the panel; empty if it is the only one of its figure.
    pub title: String,
    /// Name and unit of the horizontal axis.
    pub x_label: String,
    /// Name and unit of the vertical axis.
    pub y_label: String,
    /// Upper limit of the vertical axis. Higher curves are cut off there in the plot, not in the
    /// table.
    pub y_limit: Option<f64>,
    /// The curves.
    pub series: Vec<Series>,
    /// The paper's own points.
    pub marks: Vec<Mark>,
    /// Points that are drawn hollow, since they depend on the length of the run: names of curves,
    /// and horizontal positions.
    pub hollow: Vec<(String, f64)>,
    /// Ranges that the paper reports of whole curves.
    pub bands: Vec<Band>,
    /// Whether the points of a curve are a sample, such as random graphs, and not an axis. Then lines
    /// at its quartiles cross the plot.
    pub is_sample: bool,
    /// Bars from top to bottom. A panel that has some is a tornado plot, and has no curves.
    pub bars: Vec<Bar>,
}

/// A figure, measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Identifier of the figure, unique in a report.
    pub id: FigureId,
    /// Title of the figure.
    pub title: String,
    /// Panels, from top to bottom.
    pub panels: Vec<Panel>,
    /// Notes for the reader.
    pub caption: String,
}

impl Figure {
    /// Returns a curve of a panel, by their names.
    pub fn series(&self, panel: &str, name: &str) -> Option<&Series> {
        let mut panels = self.panels.iter().filter(|candidate| candidate.title == panel);
        panels.find_map(|panel| panel.series.iter().find(|series| series.name == name))
    }

    /// Returns the values of a curve in the order of its points; empty if the curve is missing.
    pub fn values(&self, panel: &str, name: &str) -> Vec<f64> {
        let series = self.series(panel, name);
        series.into_iter().flat_map(|series| &series.points).map(|point| point.y).collect()
    }
}

/// A remark for the reader: a choice, a finding, a discrepancy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// Title in a few words.
    pub title: String,
    /// Text, in paragraphs with empty lines between them.
    pub text: String,
}

/// Results in words and numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name of the table's file, without `.csv`; unique in a report.
    pub name: &'static str,
    /// Names of the columns.
    pub head: Vec<String>,
    /// Cells of each row, one for each column. Numbers are written in a form that `f64` parses.
    pub rows: Vec<Vec<String>>,
}

/// Results beyond the paper's own figures.
#[derive(Clone, Debug, PartialEq)]
pub struct Section {
    /// Title in a few words.
    pub title: String,
    /// Methods and findings, in paragraphs with empty lines between them.
    pub text: String,
    /// Its figures.
    pub figures: Vec<Figure>,
    /// Its tables.
    pub tables: Vec<Table>,
}

/// The results of all experiments of a paper.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Short name of the paper, as on the command line.
    pub paper: &'static str,
    /// Title of the report.
    pub title: String,
    /// Introduction, in paragraphs with empty lines between them.
    pub intro: String,
    /// The figures.
    pub figures: Vec<Figure>,
    /// Numbers compared with those of the paper.
    pub rows: Vec<Row>,
    /// Results beyond the paper's own figures.
    pub sections: Vec<Section>,
    /// Remarks for the reader.
    pub notes: Vec<Note>,
    /// Settings that reproduce the numbers: names and values.
    pub settings: Vec<(String, String)>,
}

/// Error of writing a report.
#[derive(Debug, thiserror::Error)]
pub enum OutputError {
    /// The directory does not exist and cannot be created.
    #[error("cannot make the directory {path}: {source}", path = path.display())]
    Directory {
        /// The directory.
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
}

/// Creates a directory, and checks that files can be written there, before experiments take minutes
/// to produce them.
///
/// # Errors
///
/// Returns an error if the directory cannot be created, or no file can be written to it.
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
    /// Returns the number of rows with this verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.rows.iter().filter(|row| row.verdict() == verdict).count()
    }

    /// Returns the number of rows that are judged.
    pub fn judged(&self) -> usize {
        self.rows.len() - self.count(Verdict::Remark)
    }

    /// Returns each row's [`Row::p`] with Holm's correction: if what is at most 0.05 is believed,
    /// then with 95 % probability none of it is wrong. NaN where a row has none.
    fn holm(&self) -> Vec<f64> {
        let p: Vec<f64> = self.rows.iter().map(Row::p).collect();
        let mut order: Vec<usize> = (0..p.len()).filter(|n| !p[*n].is_nan()).collect();
        order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
        let (mut corrected, mut least) = (vec![f64::NAN; p.len()], 0.0_f64);
        for (rank, &row) in order.iter().enumerate() {
            least = least.max(p[row] * (order.len() - rank) as f64).min(1.0);
            corrected[row] = least;
        }
        corrected
    }

    /// Returns the figures, including those of the sections.
    fn all_figures(&self) -> impl Iterator<Item = &Figure> {
        self.figures.iter().chain(self.sections.iter().flat_map(|section| &section.figures))
    }

    /// Writes all files to a directory, which is created if necessary. Replaces files of the same
    /// names and leaves others alone.
    ///
    /// # Errors
    ///
    /// Returns an error if the directory or a file cannot be written. Files written before it stay.
    pub fn write(&self, dir: &Path) -> Result<(), OutputError> {
        prepare(dir)?;
        for figure in self.all_figures() {
            let name = figure.id.stem();
            write_file(&dir.join(format!("{name}.csv")), csv::figure(figure))?;
            write_file(&dir.join(format!("{name}.svg")), svg::document(figure))?;
        }
        for table in self.sections.iter().flat_map(|section| &section.tables) {
            write_file(&dir.join(format!("{}.csv", table.name)), csv::section_table(table))?;
        }
        if !self.rows.is_empty() {
            write_file(&dir.join("table.csv"), csv::table(self))?;
        }
        write_file(&dir.join("report.html"), html::page(self))
    }
}

/// Writes `index.html`, which links reports with their counts of verdicts, to the directory that
/// has each of them in a folder of its paper's name. Returns the place of the page.
///
/// # Errors
///
/// Returns an error if the file cannot be written.
pub fn write_index(dir: &Path, reports: &[Report]) -> Result<PathBuf, OutputError> {
    let path = dir.join("index.html");
    write_file(&path, html::index(reports))?;
    Ok(path)
}

/// Marks the papers' own points in the figures, as far as the rows know them.
pub(crate) fn mark(figures: &mut [Figure], rows: &[Row]) {
    for figure in figures {
        let id = figure.id.to_string();
        for panel in &mut figure.panels {
            let own = || rows.iter().filter(|row| row.figure == id);
            let marks = own().filter_map(|row| row.place.as_ref());
            let marks = marks.filter(|(title, _)| *title == panel.title);
            panel.marks = marks.map(|(_, mark)| mark.clone()).collect();
            let bands = own().filter_map(|row| row.range.as_ref());
            let bands = bands.filter(|(title, _)| *title == panel.title);
            panel.bands = bands.map(|(_, band)| band.clone()).collect();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the report is written here")]
fn write_file(path: &Path, content: impl AsRef<[u8]>) -> Result<(), OutputError> {
    std::fs::write(path, content)
        .map_err(|source| OutputError::Write { path: path.to_owned(), source })
}

/// Escapes text for use between tags and in attributes, without characters that XML forbids.
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
