//! "Receiver-driven Layered Multicast", McCanne, Jacobson and Vetterli: \[RLM\] in the code.
//! `docs/papers/rlm.md` documents how it was read.
//!
//! - [`scenario`]: a run on one of the topologies of Figure 7.
//! - `figures.rs`: Figures 8 to 13, and random early detection; `verdicts.rs`: the claims of the
//!   text; `notes.rs`: choices and findings.
//! - `varied.rs`: other values in the place of chosen or fitted ones, one at a time.
//! - `beyond.rs`: other networks, TCP connections, and the controller that looks at delays.
//! - [`tcp`]: TCP connections beside a session.

mod beyond;
mod figures;
mod notes;
pub mod scenario;
pub mod tcp;
mod varied;
mod verdicts;

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use umbel_engine::units::counted;

use self::scenario::Scenario;
use crate::certainty::judged;
use crate::output::{self, Figure, Report};
use crate::part::{self, Extra, Parts};
use crate::pool::{Outcomes, Pool, Progress, Runs, work};
use crate::sensitivity::Sensitivity;

/// Parts of the report besides Figures 8 to 13.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// Random early detection instead of drop-tail [RLM §5].
    Red,
    /// Other networks, other sources, and another controller.
    Beyond,
    /// 10,000 receivers.
    Crowd,
    /// Which numbers hinge on chosen or fitted values: six times the figures' processor time.
    Sensitivity,
}

impl Extra for Other {
    const FIGURES: RangeInclusive<u32> = 8..=13;
    const NAMED: &'static [(Other, &'static str)] = &[
        (Other::Red, "red"),
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
    /// Number of runs of each scenario.
    pub seeds: u32,
    /// Parts of the report to produce.
    pub parts: Parts<Other>,
    /// Threads, and the archive of runs.
    pub pool: Pool,
}

impl Default for Options {
    /// Returns five runs, all parts but the costly ones, and all cores.
    fn default() -> Options {
        Options { seeds: 5, parts: Parts::default(), pool: Pool::default() }
    }
}

/// Runs the experiments. The report depends only on the options, not on the number of threads.
pub fn run(options: &Options, progress: &dyn Progress) -> Report {
    let wanted = options.parts.figures();
    let mut scenarios: BTreeSet<Scenario> =
        wanted.iter().flat_map(|number| figures::scenarios(*number)).collect();
    if wanted.contains(&12) {
        // It is compared with Figure 10.
        scenarios.extend(figures::scenarios(10));
    }
    let has_red = options.parts.has_extra(Other::Red);
    if has_red {
        scenarios.extend(figures::red_scenarios());
    }
    let mut runs: Runs<Scenario> =
        scenarios.into_iter().map(|scenario| (scenario, options.seeds)).collect();
    let has_beyond = options.parts.has_extra(Other::Beyond);
    if has_beyond {
        runs.extend(beyond::runs(options.seeds));
    }
    let has_crowd = options.parts.has_extra(Other::Crowd);
    if has_crowd {
        runs.extend(beyond::crowd_runs());
    }
    let varied =
        options.parts.has_extra(Other::Sensitivity).then(|| varied::sensitivity(options.seeds));
    let varied_runs = varied.as_ref().map(Sensitivity::runs).unwrap_or_default();
    progress.expect(work(&runs) + work(&varied_runs));
    let mut outcomes = options.pool.run_all(&runs, progress);
    let figures = |outcomes: &Outcomes<Scenario>| -> Vec<Figure> {
        wanted.iter().map(|number| figures::figure(*number, outcomes)).collect()
    };
    let rows = judged(&mut outcomes, |outcomes| {
        let mut rows = verdicts::rows(&figures(outcomes), outcomes);
        if has_red {
            rows.extend(verdicts::red(outcomes));
        }
        rows
    });
    let mut figures = figures(&outcomes);
    output::mark(&mut figures, &rows);
    let mut sections = Vec::new();
    if has_red {
        sections.push(figures::red(&outcomes));
    }
    if has_beyond {
        sections.extend(beyond::sections(&outcomes));
    }
    if has_crowd {
        sections.push(beyond::crowd(&outcomes));
    }
    if let Some(varied) = &varied {
        sections.push(varied::section(varied, &options.pool.run_all(&varied_runs, progress)));
    }
    Report {
        paper: "rlm",
        title: "Receiver-driven Layered Multicast (McCanne, Jacobson and Vetterli)".to_owned(),
        intro: format!(
            "{} of 10 simulated minutes, {} of each, with Umbel's own engines. Curves \
             show means with 95 % confidence intervals.",
            counted(runs.len(), "scenario"),
            counted(options.seeds, "run")
        ),
        figures,
        rows,
        sections,
        notes: notes::notes(),
        settings: settings(options),
    }
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

    #[test]
    fn a_figure_comes_out_whole_and_the_same_on_any_number_of_threads() {
        let options = |threads| Options {
            seeds: 2,
            parts: [Part::Figure(8)].into(),
            pool: Pool::of(threads),
        };
        let report = run(&options(1), &());
        assert_eq!(report.figures.len(), 1);
        let figure = &report.figures[0];
        assert_eq!(figure.id, FigureId::Paper(8));
        assert!(figure.panels[0].series[0].points.len() >= 10);
        assert_eq!(report.rows.len(), 3);
        let again = run(&options(3), &());
        assert_eq!(again.figures, report.figures);
        assert_eq!(again.rows, report.rows);
    }
}
