//! "Reliably Networking a Multicast Repository", Wang Lam and Hector Garcia-Molina: [Repository §n]
//! in the code. `docs/papers/repository.md` says how it was read.
//!
//! - [`point`]: one simulation, Table 1 with some values changed, run by the engines themselves.
//! - [`choices`]: what the paper leaves open.
//! - `figures.rs`: which points each figure takes; `verdicts.rs`: what the text says of them;
//!   `example.rs`: the example of [Repository §2.2]; `notes.rs`: what was found.

pub mod choices;
mod example;
mod figures;
mod notes;
pub mod point;
mod verdicts;

use std::time::Duration;

use self::choices::Choices;
use self::figures::{Base, Plan, points};
use self::point::{Period, Point};
use crate::output::{Figure, Report};
use crate::pool::{Progress, run_all};

/// How much is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// Runs of each point, each with a seed of its own.
    pub seeds: u32,
    /// One figure only.
    pub figure: Option<u32>,
    /// Clients that come before are not measured.
    pub warm_up: Duration,
    /// Clients that come later are not measured; the paper's own is a day. Points with long
    /// queues take two or four times both.
    pub duration: Duration,
    /// What the paper leaves open.
    pub choices: Choices,
    /// Threads to run on.
    pub threads: usize,
}

impl Default for Options {
    /// Five seeds, all figures, clients from 3,000 s to 10,000 s, the choices that fit best, all
    /// cores.
    fn default() -> Options {
        Options {
            seeds: 5,
            figure: None,
            warm_up: Duration::from_mins(50),
            duration: Duration::from_secs(10_000),
            choices: Choices::default(),
            threads: std::thread::available_parallelism().map_or(1, usize::from),
        }
    }
}

/// The figures that can be asked for.
pub const FIGURES: std::ops::RangeInclusive<u32> = 3..=11;

/// Runs the experiments. The report is a function of the options but for the number of threads.
pub fn run(options: &Options, progress: &dyn Progress) -> Report {
    let period = Period { from: options.warm_up, to: options.duration };
    let base = Base { choices: options.choices, period };
    let mut plans = base.plans();
    plans.retain(|plan| options.figure.is_none_or(|figure| plan.number == figure));
    let mut experiments = points(&plans);
    let compared = if options.figure.is_none() { notes::compared(&base) } else { Vec::new() };
    experiments.extend(compared.iter().flat_map(|choice| choice.points.iter().cloned()));
    let outcomes = run_all::<Point>(&experiments, options.seeds, options.threads, progress);
    let figures: Vec<Figure> = plans.iter().map(|plan: &Plan| plan.figure(&outcomes)).collect();
    let mut rows = if options.figure.is_none() { example::rows() } else { Vec::new() };
    rows.extend(verdicts::rows(&figures));
    Report {
        paper: "repository",
        title: "Reliably Networking a Multicast Repository (Lam and Garcia-Molina)".to_owned(),
        intro: intro(options, experiments.len()),
        figures,
        rows,
        notes: notes::notes(&compared, &outcomes),
        settings: settings(options),
    }
}

fn intro(options: &Options, points: usize) -> String {
    format!(
        "{points} points, each run with {} seeds on Umbel's own engines in simulated networks. \
         Measured are the clients that come from {} s to {} s; the runs go on until these are \
         done. Curves show means with 95 % confidence intervals.",
        options.seeds,
        options.warm_up.as_secs(),
        options.duration.as_secs(),
    )
}

/// The options that make the same report again.
fn settings(options: &Options) -> Vec<(String, String)> {
    let mut settings = vec![
        ("--seeds".to_owned(), options.seeds.to_string()),
        ("--duration".to_owned(), options.duration.as_secs().to_string()),
        ("--warm-up".to_owned(), options.warm_up.as_secs().to_string()),
    ];
    settings.extend(options.figure.map(|figure| ("--figure".to_owned(), figure.to_string())));
    let choices = options.choices.to_string();
    settings.extend(choices.split(' ').map(|choice| ("--set".to_owned(), choice.to_owned())));
    settings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::FigureId;

    fn short(figure: u32, threads: usize) -> Options {
        Options {
            seeds: 1,
            figure: Some(figure),
            warm_up: Duration::from_secs(100),
            duration: Duration::from_mins(5),
            threads,
            ..Options::default()
        }
    }

    #[test]
    fn a_figure_comes_out_whole_and_the_same_on_any_number_of_threads() {
        let report = run(&short(8, 1), &());
        assert_eq!(report.figures.len(), 1);
        let figure = &report.figures[0];
        assert_eq!(figure.id, FigureId::Paper(8));
        let series = &figure.panels[0].series;
        assert_eq!(series.len(), 3);
        for series in series {
            assert_eq!(series.points.len(), 9);
            assert!(series.points.iter().all(|point| point.y > 10.0), "{series:?}");
        }
        assert_eq!(report.rows.len(), 5);
        let again = run(&short(8, 3), &());
        assert_eq!(again.figures, report.figures);
        assert_eq!(again.rows, report.rows);
    }

    #[test]
    fn the_settings_make_the_same_report_again() {
        let mut options = short(3, 1);
        options.choices.set("gather=0.4").unwrap();
        let settings = settings(&options);
        assert_eq!(settings[3], ("--figure".to_owned(), "3".to_owned()));
        let mut choices = Choices::default();
        for (_, value) in settings.iter().filter(|(name, _)| name == "--set") {
            choices.set(value).unwrap();
        }
        assert_eq!(choices, options.choices);
    }
}
