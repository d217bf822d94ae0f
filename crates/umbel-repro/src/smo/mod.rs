//! "TCP-SMO: Extending TCP to Support Medium-Scale Multicast Applications", Liang and Cheriton:
//! \[SMO\] in the code. `docs/papers/smo.md` documents how it was read.
//!
//! - [`scenario`]: a session on a network.
//! - `figures.rs`: Figures 5 and 7; `verdicts.rs`: the claims of the text; `notes.rs`: choices and
//!   findings.
//! - `sections.rs`: ACKs, losses and relays [SMO §V-A, §V-B, §V-D]; `beyond.rs`: what the paper
//!   does not have; [`kernel`]: real servers with sockets of the kernel.
//! - `varied.rs`: other values in the place of chosen ones, one at a time.

mod beyond;
mod figures;
pub mod kernel;
mod notes;
pub mod scenario;
mod sections;
mod varied;
mod verdicts;

use std::ops::RangeInclusive;
use std::sync::Arc;
use umbel_engine::units::counted;

use self::kernel::{Laboratory, Sessions};
use self::scenario::Scenario;
use crate::certainty::judged;
use crate::output::{self, Figure, Report};
use crate::part::{self, Extra, Parts};
use crate::pool::{Pool, Progress, Runs, work};
use crate::sensitivity::Sensitivity;

/// Parts of the report besides Figures 5 and 7.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// ACKs against receivers [SMO §V-A].
    Acks,
    /// Independent losses among 1,000 receivers [SMO §V-B].
    Loss,
    /// Two levels [SMO §V-D].
    Relay,
    /// Bursts, fairness, late receivers, one that stalls, and many more receivers.
    Beyond,
    /// The paper's sessions with sockets of the kernel: minutes, and other numbers on each machine.
    Lab,
    /// Which numbers hinge on chosen values: 23 minutes of processor time.
    Sensitivity,
}

impl Extra for Other {
    const FIGURES: RangeInclusive<u32> = 5..=7;
    const DRAWINGS: &'static [u32] = &[6];
    const NAMED: &'static [(Other, &'static str)] = &[
        (Other::Acks, "acks"),
        (Other::Loss, "loss"),
        (Other::Relay, "relay"),
        (Other::Beyond, "beyond"),
        (Other::Lab, "lab"),
        (Other::Sensitivity, "sensitivity"),
    ];
    const COSTLY: &'static [Other] = &[Other::Lab, Other::Sensitivity];
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
    /// Share of the usual length of streams, in percent. For tests.
    pub length_percent: u32,
    /// Threads, and the archive of runs.
    pub pool: Pool,
    /// Place where sessions with sockets of the kernel run. Without it that part is left out.
    pub laboratory: Option<Arc<dyn Laboratory>>,
}

impl Default for Options {
    /// Returns five runs, all parts, the usual length, and all cores.
    fn default() -> Options {
        Options {
            seeds: 5,
            parts: Parts::default(),
            length_percent: 100,
            pool: Pool::default(),
            laboratory: None,
        }
    }
}

/// Runs the experiments. The report depends only on the options, not on the number of threads.
pub fn run(options: &Options, progress: &dyn Progress) -> Report {
    let parts = &options.parts;
    let mut scenarios: Vec<Scenario> = Vec::new();
    for number in parts.figures() {
        scenarios.extend(figures::scenarios(number));
    }
    let extras = [Other::Acks, Other::Loss, Other::Relay].into_iter();
    let extras: Vec<Other> = extras.filter(|extra| parts.has_extra(*extra)).collect();
    for extra in &extras {
        scenarios.extend(sections::scenarios(*extra));
    }
    let mut runs: Runs<Scenario> =
        scenarios.into_iter().map(|scenario| (scenario, options.seeds)).collect();
    let has_beyond = parts.has_extra(Other::Beyond);
    if has_beyond {
        runs.extend(beyond::runs(options.seeds));
    }
    let runs: Runs<Scenario> = runs
        .into_iter()
        .map(|(scenario, seeds)| (scenario.shortened(options.length_percent), seeds))
        .collect();
    let lab = options.laboratory.as_ref().filter(|_| parts.has_extra(Other::Lab));
    let sessions = lab.map(|lab| Sessions::new(lab, options.seeds));
    let varied = (parts.has_extra(Other::Sensitivity))
        .then(|| varied::sensitivity(options.seeds, options.length_percent));
    let varied_runs = varied.as_ref().map(Sensitivity::runs).unwrap_or_default();
    let lab_work = sessions.as_ref().map_or(0, Sessions::work);
    progress.expect(work(&runs) + work(&varied_runs) + lab_work);
    let mut outcomes = options.pool.run_all(&runs, progress);
    let figures = |results: &figures::Results<'_>| -> Vec<Figure> {
        parts.figures().into_iter().map(|number| figures::figure(number, results)).collect()
    };
    let percent = options.length_percent;
    let mut rows = judged(&mut outcomes, |outcomes| {
        let results = figures::Results { outcomes, percent };
        let mut rows = verdicts::rows(&figures(&results), &results);
        rows.extend(extras.iter().flat_map(|extra| verdicts::section(*extra, &results)));
        if has_beyond {
            rows.extend(verdicts::beyond(&results));
        }
        rows
    });
    let results = figures::Results { outcomes: &outcomes, percent };
    let mut figures = figures(&results);
    output::mark(&mut figures, &rows);
    let mut sections: Vec<_> =
        extras.into_iter().map(|extra| sections::section(extra, &results)).collect();
    if has_beyond {
        sections.extend(beyond::sections(&results));
    }
    if let Some(varied) = &varied {
        let outcomes = options.pool.run_all(&varied_runs, progress);
        sections.push(varied::section(varied, percent, &outcomes));
    }
    if let Some(sessions) = sessions {
        let (more, section) = sessions.run(&options.pool, progress);
        rows.extend(more);
        sections.push(section);
    }
    Report {
        paper: "smo",
        title: "TCP-SMO (Liang and Cheriton)".to_owned(),
        intro: format!(
            "{}, {} of each, with Umbel's own source and model receivers, whose \
             bytes are all compared. Curves show means with 95 % confidence intervals.",
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
            parts: [Part::Figure(5)].into(),
            length_percent: 1,
            pool: Pool::of(threads),
            laboratory: None,
        };
        let report = run(&options(1), &());
        assert_eq!(report.figures.len(), 1);
        let figure = &report.figures[0];
        assert_eq!(figure.id, FigureId::Paper(5));
        assert!(figure.panels[0].series.iter().all(|series| series.points.len() == 6));
        let again = run(&options(3), &());
        assert_eq!(again.figures, report.figures);
        assert_eq!(again.rows, report.rows);
    }

    #[test]
    fn figure_6_is_a_drawing() {
        assert!("6".parse::<Part>().is_err());
        assert_eq!(Parts::<Other>::default().figures(), [5, 7]);
    }
}
