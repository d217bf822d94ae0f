//! "A Reliable Dissemination Protocol for Interactive Collaborative Applications", Yavatkar,
//! Griffioen and Sudan: \[TMTP\] in the code. `docs/papers/tmtp.md` documents how it was read.
//!
//! - `mbone.rs`: the seven sites; [`transfer`]: a file to them by TMTP or one of the baselines;
//!   `repairs.rs` counts retransmissions, independently of the protocol.
//! - [`crowd`]: a feed to a group of any size on `internet.rs`, by TMTP, LMS or SRM; `scale.rs`:
//!   its results.
//! - `varied.rs`: other values in the place of chosen or fitted ones, one at a time.
//! - `figures.rs`: Figures 6 and 7 and the retransmissions; `verdicts.rs`: the claims of the text;
//!   `notes.rs`: choices and findings.

pub mod crowd;
mod figures;
mod internet;
mod mbone;
mod notes;
mod repairs;
mod scale;
pub mod transfer;
mod varied;
mod verdicts;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use umbel_engine::units::counted;

use self::scale::Sizes;
use self::transfer::Transfer;
use crate::certainty::{Design, judged};
use crate::output::{Figure, Report};
use crate::part::{self, Extra, Parts};
use crate::pool::{Outcomes, Pool, Progress, Runs, work};

/// Parts of the report besides Figures 6 and 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// Retransmissions of 30 packets [TMTP "Performance Measures"].
    Retransmissions,
    /// Groups of up to 1,000, and SRM and LMS beside TMTP.
    Beyond,
    /// Groups of 10,000: half a minute of processor time for each run.
    Crowd,
    /// Which numbers hinge on chosen or fitted values: two to three times the figures' processor
    /// time.
    Sensitivity,
}

impl Extra for Other {
    const FIGURES: RangeInclusive<u32> = 6..=7;
    const NAMED: &'static [(Other, &'static str)] = &[
        (Other::Retransmissions, "retransmissions"),
        (Other::Beyond, "beyond"),
        (Other::Crowd, "crowd"),
        (Other::Sensitivity, "sensitivity"),
    ];
    const COSTLY: &'static [Other] = &[Other::Crowd, Other::Sensitivity];
}

/// A part of the report that can be requested alone.
pub type Part = part::Part<Other>;

/// Extent of the experiments.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of sets of 20 runs of each transfer; the paper has 5 runs.
    pub seeds: u32,
    /// Parts of the report to produce.
    pub parts: Parts<Other>,
    /// Threads, and the archive of runs.
    pub pool: Pool,
}

impl Default for Options {
    /// Returns five sets, all parts, and all cores.
    fn default() -> Options {
        Options { seeds: 5, parts: Parts::default(), pool: Pool::default() }
    }
}

/// Default loss of an MBone tunnel in each direction, in hundredths of a percent. With it,
/// `BURST_BASEP` makes about as many retransmissions as the paper reports.
const LOSS: u32 = 72;

/// Number of transfers on the MBone for each seed. A transfer takes milliseconds to run, and a few
/// losses decide its simulated duration.
const RUNS_PER_SEED: u32 = 20;

/// Runs the experiments. The report depends only on the options, not on the number of threads.
pub fn run(options: &Options, progress: &dyn Progress) -> Report {
    let wanted = options.parts.figures();
    let has_retransmissions = options.parts.has_extra(Other::Retransmissions);
    let mut transfers: BTreeSet<Transfer> =
        wanted.iter().flat_map(|number| figures::transfers(*number)).collect();
    if has_retransmissions {
        transfers.extend(figures::lossy_transfers());
    }
    let each = options.seeds * RUNS_PER_SEED;
    let runs: Runs<Transfer> = transfers.into_iter().map(|transfer| (transfer, each)).collect();
    let sizes =
        Sizes::of(options.parts.has_extra(Other::Beyond), options.parts.has_extra(Other::Crowd));
    let crowds = scale::runs(&sizes, options.seeds);
    let varied =
        options.parts.has_extra(Other::Sensitivity).then(|| varied::sensitivity(options.seeds));
    let varied_runs = varied.as_ref().map(varied::runs).unwrap_or_default();
    progress.expect(work(&runs) + work(&crowds) + work(&varied_runs));
    let mut outcomes = options.pool.run_all(&runs, progress);
    let figures = |outcomes: &Outcomes<Transfer>| -> Vec<Figure> {
        wanted.iter().map(|number| figures::figure(*number, outcomes)).collect()
    };
    let in_sets = Design { runs_per_seed: RUNS_PER_SEED as usize, ..Design::default() };
    let mut rows = in_sets.judged(&mut outcomes, |outcomes| {
        let mut rows = verdicts::rows(&figures(outcomes));
        if has_retransmissions {
            rows.extend(verdicts::retransmissions(outcomes));
        }
        rows
    });
    let figures = figures(&outcomes);
    let mut sections = Vec::new();
    if has_retransmissions {
        sections.push(figures::retransmissions(&outcomes));
    }
    if !crowds.is_empty() {
        let mut outcomes = options.pool.run_all(&crowds, progress);
        rows.extend(judged(&mut outcomes, |outcomes| scale::rows(outcomes, &sizes)));
        sections.extend(scale::sections(&outcomes, &sizes));
    }
    if let Some(varied) = &varied {
        sections.push(varied::section(varied, &options.pool.run_all(&varied_runs, progress)));
    }
    Report {
        paper: "tmtp",
        title: "A Reliable Dissemination Protocol for Interactive Collaborative Applications \
                (Yavatkar, Griffioen and Sudan)"
            .to_owned(),
        intro: intro(runs.len(), each),
        figures,
        rows,
        sections,
        notes: notes::notes(),
        settings: settings(options),
    }
}

fn intro(transfers: usize, runs: u32) -> String {
    let (transfers, runs) = (counted(transfers, "transfer"), counted(runs, "run"));
    format!(
        "{transfers}, {runs} of each, on Umbel's own engines in a simulated network of the \
         seven sites of the paper. Curves show means with 95 % confidence intervals."
    )
}

/// Returns the options that reproduce the report.
fn settings(options: &Options) -> Vec<(String, String)> {
    let mut settings = vec![("--seeds".to_owned(), options.seeds.to_string())];
    settings.extend(options.parts.settings());
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::FigureId;

    fn options(part: Part, threads: usize) -> Options {
        Options { seeds: 1, parts: [part].into(), pool: Pool::of(threads) }
    }

    #[test]
    fn a_figure_comes_out_whole_and_the_same_on_any_number_of_threads() {
        let report = run(&options(Part::Figure(7), 1), &());
        assert_eq!(report.figures.len(), 1);
        let figure = &report.figures[0];
        assert_eq!((figure.id, figure.panels.len()), (FigureId::Paper(7), 2));
        for series in figure.panels.iter().flat_map(|panel| &panel.series) {
            assert_eq!(series.points.len(), 6);
            assert!(series.points.iter().all(|point| point.y > 1.0), "{series:?}");
        }
        assert!(!report.rows.is_empty());
        let again = run(&options(Part::Figure(7), 3), &());
        assert_eq!(again.figures, report.figures);
        assert_eq!(again.rows, report.rows);
    }
}
