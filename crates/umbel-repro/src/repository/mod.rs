//! "Reliably Networking a Multicast Repository", Wang Lam and Hector Garcia-Molina: [Repository §n]
//! in the code. `docs/papers/repository.md` documents how it was read.
//!
//! - [`point`]: one simulation, Table 1 with some values changed, run by the engines themselves.
//! - [`choices`]: options for everything that the paper leaves open.
//! - `figures.rs`: the points of each figure; `verdicts.rs`: the claims of the text; `example.rs`:
//!   the example of [Repository §2.2]; `readings.rs`: results of other choices; `notes.rs`:
//!   findings.
//! - `stationarity.rs`: whether the delays of a run come from a system that has settled.
//! - `both.rs`: R(∞) with NAKs that are gathered for the fitted time, and with prompt ones.
//! - `varied.rs`: other values in the place of the choices, one at a time.
//! - `auto.rs`: the policy `auto`, which is not in the paper, against all of its schemes.

mod auto;
mod both;
pub mod choices;
mod example;
mod figures;
mod notes;
pub mod point;
mod readings;
mod stationarity;
mod varied;
mod verdicts;

use std::ops::RangeInclusive;
use std::time::Duration;

use self::choices::Choices;
use self::figures::{Base, Plan};
use self::point::{Outcome, Period, Point};
use self::stationarity::settled;
use crate::estimate::Estimate;
use crate::output::{self, Figure, Report};
use crate::part::{self, Extra, Parts};
use crate::pool::{Experiment, Outcomes, Pool, Progress, Runs, work};

/// Parts of the report besides Figures 3 to 11.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Other {
    /// The example of [Repository §2.2].
    Example,
    /// The policy `auto` against the paper's schemes.
    Auto,
    /// Results of each reading of the paper.
    Readings,
    /// Which numbers hinge on the choices: about twice the figures' processor time.
    Sensitivity,
}

impl Extra for Other {
    const FIGURES: RangeInclusive<u32> = 3..=11;
    const NAMED: &'static [(Other, &'static str)] = &[
        (Other::Example, "example"),
        (Other::Auto, "auto"),
        (Other::Readings, "readings"),
        (Other::Sensitivity, "sensitivity"),
    ];
    const COSTLY: &'static [Other] = &[Other::Sensitivity];
}

/// A part of the report that can be requested alone.
pub type Part = part::Part<Other>;

/// Extent of the experiments.
#[derive(Clone, Debug)]
pub struct Options {
    /// Number of runs of each point, each with its own seed.
    pub seeds: u32,
    /// Parts of the report to produce.
    pub parts: Parts<Other>,
    /// Clients that arrive before this time are not measured.
    pub warm_up: Duration,
    /// Clients that arrive after this time are not measured; the paper's own value is a day. Points
    /// with long queues run up to 2.25 times as long. The screening of many schemes takes a third
    /// of it, readings half.
    pub duration: Duration,
    /// Options for everything that the paper leaves open.
    pub choices: Choices,
    /// Threads, and the archive of runs.
    pub pool: Pool,
}

impl Default for Options {
    /// Returns five seeds, all parts, clients from 2,000 s to 7,000 s, the choices that fit best,
    /// and all cores.
    fn default() -> Options {
        Options {
            seeds: 5,
            parts: Parts::default(),
            warm_up: Duration::from_secs(2_000),
            duration: Duration::from_secs(7_000),
            choices: Choices::default(),
            pool: Pool::default(),
        }
    }
}

/// Maximum number of seeds for readings, and for points that are only drawn beside them.
const READING_SEEDS: u32 = 2;

impl Options {
    fn base(&self) -> Base {
        Base { choices: self.choices, period: Period { from: self.warm_up, to: self.duration } }
    }
}

/// Adds points to the runs.
fn add(runs: &mut Runs<Point>, points: impl IntoIterator<Item = Point>, seeds: u32) {
    for point in points {
        let most = runs.entry(point).or_default();
        *most = seeds.max(*most);
    }
}

/// Runs the experiments. The report depends only on the options, not on the number of threads.
pub fn run(options: &Options, progress: &dyn Progress) -> Report {
    let base = options.base();
    let all_plans = base.plans();
    let mut plans = all_plans.clone();
    plans.retain(|plan| options.parts.has(Part::Figure(plan.number)));
    let (has_auto, has_readings) =
        (options.parts.has_extra(Other::Auto), options.parts.has_extra(Other::Readings));

    let mut runs = Runs::new();
    add(&mut runs, figures::points(&plans), options.seeds);
    let varied = options
        .parts
        .has_extra(Other::Sensitivity)
        .then(|| varied::sensitivity(&base, options.seeds));
    if let Some(varied) = &varied {
        for (point, seeds) in varied.runs() {
            add(&mut runs, [point], seeds);
        }
    }
    let mut reserved = 0;
    if has_auto {
        add(&mut runs, auto::own_points(&base), options.seeds);
        add(&mut runs, auto::screening(&base, &all_plans), 1);
        let one = base.point("auto").work() * u64::from(options.seeds);
        reserved = one * auto::expected_finalists();
    }
    if has_readings {
        let few = options.seeds.min(READING_SEEDS);
        add(&mut runs, readings::points(&base), few);
        add(&mut runs, both::judged(&all_plans), options.seeds);
        add(&mut runs, both::drawn(&base), few);
    }
    progress.expect(work(&runs) + reserved);
    let mut outcomes = options.pool.run_all(&runs, progress);
    if has_auto {
        let mut more = Runs::new();
        add(&mut more, auto::finalists(&base, &all_plans, &outcomes), options.seeds);
        more.retain(|point, _| !outcomes.contains_key(point));
        progress.expect(work(&runs) + work(&more));
        outcomes.extend(options.pool.run_all(&more, progress));
    }

    let figures = |outcomes: &Outcomes<Point>| -> Vec<Figure> {
        plans.iter().map(|plan: &Plan| plan.figure(outcomes)).collect()
    };
    let mut rows =
        if options.parts.has_extra(Other::Example) { example::rows() } else { Vec::new() };
    let design = settled();
    rows.extend(design.judged(&mut outcomes, |outcomes| verdicts::rows(&figures(outcomes))));
    let mut sections = Vec::new();
    if let Some(varied) = &varied {
        sections.push(varied::section(varied, &base, &outcomes));
    }
    if has_auto {
        rows.extend(design.judged(&mut outcomes, |outcomes| auto::rows(&base, outcomes)));
        sections.push(auto::section(&base, &all_plans, &outcomes));
    }
    let mut figures = figures(&outcomes);
    output::mark(&mut figures, &rows);
    if has_readings {
        sections.push(both::section(&base, &all_plans, &mut outcomes));
        sections.push(readings::results(&base, &outcomes));
    }
    Report {
        paper: "repository",
        title: "Reliably Networking a Multicast Repository (Lam and Garcia-Molina)".to_owned(),
        intro: intro(options, &outcomes),
        figures,
        rows,
        sections,
        notes: notes::notes(),
        settings: settings(options),
    }
}

fn intro(options: &Options, outcomes: &Outcomes<Point>) -> String {
    let points = outcomes.len();
    let sum = |count: fn(&Outcome) -> u32| -> u64 {
        outcomes.values().flatten().map(|outcome| u64::from(count(outcome))).sum()
    };
    let unfinished = outcomes.values().filter(|runs| runs.iter().any(|run| run.unfinished > 0));
    let drifting = outcomes.values().filter(|runs| stationarity::drifts(runs)).count();
    let late = outcomes.values().filter(|runs| {
        let settled: Vec<f64> = runs.iter().map(|run| run.settled).collect();
        Estimate::of(&settled).mean > options.warm_up.as_secs_f64()
    });
    format!(
        "{points} points were run on Umbel's own engines in simulated networks, those of the figures \
         with {} seeds each. Measured are the clients that come from {} s to {} s; the runs go on \
         until these are done, at most as long again. {} of {} clients, at {} points, were not done \
         then and count with the time that they had waited. Curves show means with 95 % confidence \
         intervals.\n\nAt {drifting} points delays still change within the measured time, by more than \
         5 % of their mean and more than runs differ: numbers that rest on them are undecided. At {} \
         points the rule MSER-5 would leave out more clients at the beginning than were left out \
         (`growth` and `settled` in runs.csv).",
        options.seeds,
        options.warm_up.as_secs(),
        options.duration.as_secs(),
        sum(|outcome| outcome.unfinished),
        sum(|outcome| outcome.clients),
        unfinished.count(),
        late.count(),
    )
}

/// Returns the options that reproduce the report.
fn settings(options: &Options) -> Vec<(String, String)> {
    let mut settings = vec![
        ("--seeds".to_owned(), options.seeds.to_string()),
        ("--duration".to_owned(), options.duration.as_secs_f64().to_string()),
        ("--warm-up".to_owned(), options.warm_up.as_secs_f64().to_string()),
    ];
    settings.extend(options.parts.settings());
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
            parts: [Part::Figure(figure)].into(),
            warm_up: Duration::from_secs(100),
            duration: Duration::from_mins(5),
            pool: Pool::of(threads),
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
        assert_eq!(report.rows.len(), 6);
        let again = run(&short(8, 3), &());
        // Intervals of single runs are no numbers, and so not equal.
        assert_eq!(format!("{:?}", again.figures), format!("{:?}", report.figures));
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
