//! "Light-Weight Multicast Services (LMS)", Papadopoulos, Parulkar and Varghese: [LMS §n] in the
//! code. `docs/papers/lms.md` documents how it was read.
//!
//! - [`scenario`]: graphs, places of source and receivers, the links of the tree.
//! - [`schemes`]: LMS, SRM and PGM, run by the engines themselves.
//! - [`trial`]: one packet lost on each link of a tree; `observer.rs` measures how it was repaired,
//!   independently of the scheme.
//! - [`beyond`]: experiments that the paper did not do.
//! - `varied.rs`: other values in the place of chosen ones, one at a time.
//! - `measures.rs`: the metrics of [LMS Fig. 10]; `figures.rs`: Figures 11 to 16; `verdicts.rs`:
//!   the claims of the text and of Table I; `notes.rs`: findings.

pub mod beyond;
mod figures;
mod measures;
mod notes;
mod observer;
pub mod scenario;
pub mod schemes;
pub mod trial;
mod varied;
mod verdicts;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;

use self::beyond::Run;
use self::figures::Base;
pub use self::observer::Recovery;
use self::scenario::Delays;
use self::trial::Trial;
use crate::certainty::Design;
use crate::output::{self, Figure, Report};
use crate::part::{self, Extra, Parts};
use crate::pool::{Experiment, Outcomes, Pool, Progress, Runs, work};
use crate::sensitivity::Sensitivity;

/// Parts of the report besides Figures 11 to 16; Table I comes with 12, 14 and 15 together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// Each scheme with both kinds of delays, beside the results of other people's agents.
    Delays,
    /// Experiments that the paper did not do.
    Beyond,
    /// SRM with 10,000 receivers: minutes of processor time for each seed.
    Crowd,
    /// Which numbers hinge on chosen values: up to three times the figures' processor time.
    Sensitivity,
}

impl Extra for Other {
    const FIGURES: RangeInclusive<u32> = 11..=16;
    const NAMED: &'static [(Other, &'static str)] = &[
        (Other::Delays, "delays"),
        (Other::Beyond, "beyond"),
        (Other::Crowd, "crowd"),
        (Other::Sensitivity, "sensitivity"),
    ];
    const COSTLY: &'static [Other] = &[Other::Crowd, Other::Sensitivity];
}

/// A part of the report that can be requested alone.
pub type Part = part::Part<Other>;

/// Extent and settings of the experiments.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of placements of source and receivers on each graph; the paper has 10.
    pub seeds: u32,
    /// Parts of the report to produce.
    pub parts: Parts<Other>,
    /// Delays of the links.
    pub delays: Delays,
    /// Delay of a host's link, in percent of a mean link between routers.
    pub access_percent: u32,
    /// Threads, and the archive of runs.
    pub pool: Pool,
}

impl Default for Options {
    /// Returns five placements, all figures, delays as on a plane, short links of hosts, and all
    /// cores.
    fn default() -> Options {
        Options {
            seeds: 5,
            parts: Parts::default(),
            delays: Delays::Plane,
            access_percent: Delays::Plane.usual_access_percent(),
            pool: Pool::default(),
        }
    }
}

/// Maximum number of seeds for the experiments that the paper did not do: each seed covers 400
/// packets or all losses of a graph.
const BEYOND_SEEDS: u32 = 5;

/// Runs the experiments. The report depends only on the options, not on the number of threads.
pub fn run(options: &Options, progress: &dyn Progress) -> Report {
    let base = Base { delays: options.delays, access_percent: options.access_percent };
    let wanted = options.parts.figures();
    let mut trials: BTreeSet<Trial> = wanted.iter().flat_map(|n| base.trials(*n)).collect();
    let compared =
        if options.parts.has_extra(Other::Delays) { notes::compared() } else { Vec::new() };
    trials.extend(compared.iter().flat_map(notes::Compared::trials));
    let runs: Runs<Trial> = trials.into_iter().map(|trial| (trial, options.seeds)).collect();
    let has_beyond = options.parts.has_extra(Other::Beyond);
    let has_crowd = options.parts.has_extra(Other::Crowd);
    let mut more = if has_beyond { beyond::runs() } else { BTreeSet::new() };
    if has_crowd {
        more.extend(beyond::crowd_runs());
    }
    let seeds = options.seeds.min(BEYOND_SEEDS);
    let more: Runs<Run> = more.into_iter().map(|run| (run, seeds)).collect();
    let varied = options
        .parts
        .has_extra(Other::Sensitivity)
        .then(|| varied::sensitivity(base, options.seeds));
    let varied_runs = varied.as_ref().map(Sensitivity::runs).unwrap_or_default();
    progress.expect(work(&runs) + work(&more) + work(&varied_runs));
    let mut outcomes = options.pool.run_all(&runs, progress);
    let figures = |outcomes: &Outcomes<Trial>| -> Vec<Figure> {
        wanted.iter().filter_map(|n| base.figure(*n, outcomes)).collect()
    };
    let mut rows = over_graphs(Trial::graph).judged(&mut outcomes, |outcomes| {
        let mut rows = verdicts::rows(&figures(outcomes));
        rows.extend(notes::rows(&compared, outcomes));
        rows
    });
    let mut sections = Vec::new();
    let mut beyond_outcomes = options.pool.run_all(&more, progress);
    if has_beyond {
        rows.extend(over_graphs(Run::graph).judged(&mut beyond_outcomes, beyond::rows));
        sections = beyond::sections(&beyond_outcomes);
    }
    if has_beyond || has_crowd {
        sections.push(beyond::large_groups(&beyond_outcomes));
    }
    if let Some(varied) = &varied {
        let outcomes = options.pool.run_all(&varied_runs, progress);
        sections.push(varied::section(varied, base, &outcomes));
    }
    let mut figures = figures(&outcomes);
    output::mark(&mut figures, &rows);
    Report {
        paper: "lms",
        title: "Light-Weight Multicast Services (Papadopoulos, Parulkar and Varghese)".to_owned(),
        intro: intro(options, runs.len()),
        figures,
        rows,
        sections,
        notes: notes::notes(&compared, &outcomes),
        settings: settings(options),
    }
}

/// Returns the design of experiments of which some are on a sample of graphs, by their numbers.
fn over_graphs<E: Experiment>(group: fn(&E) -> Option<u32>) -> Design<E> {
    Design { group, ..Design::default() }
}

fn intro(options: &Options, trials: usize) -> String {
    format!(
        "{trials} pairs of a scheme and a graph, each with {} placements of source and receivers, on \
         Umbel's own engines in simulated networks. In each run one original packet is lost on \
         each link of the tree, one after the other; the schemes meet the same losses in the same \
         places. Curves show means over the placements with 95 % confidence intervals. The interval \
         of a number is the wider one of two: over the placements, and over the ten graphs of a kind.",
        options.seeds
    )
}

/// Returns the options that reproduce the report.
fn settings(options: &Options) -> Vec<(String, String)> {
    let mut settings = vec![
        ("--seeds".to_owned(), options.seeds.to_string()),
        ("--delays".to_owned(), options.delays.name().to_owned()),
        ("--access".to_owned(), options.access_percent.to_string()),
    ];
    settings.extend(options.parts.settings());
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::FigureId;
    use crate::pool::Outcomes;

    fn one(figure: u32, threads: usize) -> Options {
        let parts = [Part::Figure(figure)].into();
        Options { seeds: 1, parts, pool: Pool::of(threads), ..Options::default() }
    }

    #[test]
    fn a_figure_comes_out_whole_and_the_same_on_any_number_of_threads() {
        let report = run(&one(16, 1), &());
        assert_eq!(report.figures.len(), 1);
        let figure = &report.figures[0];
        assert_eq!(figure.id, FigureId::Paper(16));
        let series = &figure.panels[0].series;
        assert_eq!(series.len(), 2);
        for series in series {
            assert_eq!(series.points.len(), 10);
            assert!(series.points.iter().all(|point| point.y >= 0.0), "{series:?}");
        }
        let again = run(&one(16, 3), &());
        // Intervals of single runs are no numbers, and so not equal.
        assert_eq!(format!("{:?}", again.figures), format!("{:?}", report.figures));
        assert_eq!(again.rows, report.rows);
    }

    #[test]
    fn every_figure_has_its_panels_and_its_rows() {
        for (figure, panels) in [(11, 4), (12, 5), (13, 5), (14, 5), (15, 3), (16, 1)] {
            let base = Base { delays: Delays::Plane, access_percent: 10 };
            assert!(!base.trials(figure).is_empty());
            let figure = base.figure(figure, &Outcomes::<Trial>::new()).unwrap();
            assert_eq!(figure.panels.len(), panels, "{}", figure.title);
            assert!(!verdicts::rows(&[figure]).is_empty());
        }
    }
}
