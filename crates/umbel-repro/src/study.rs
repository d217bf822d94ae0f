//! Studies: the runs of a scenario file at each point of its sweep, as a table, plots and a page.

use std::fmt::Write as _;
use umbel_engine::units::counted;

use umbel_sim::scenario::Study;
use umbel_sim::scenario::report::Results;
use umbel_sim::statistics::t_quantile;

use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Report, Section, Series, Table};

/// A study and its runs.
#[derive(Clone, Copy, Debug)]
pub struct Runs<'a> {
    /// The scenario and its sweep.
    pub study: &'a Study,
    /// Name of the scenario.
    pub name: &'a str,
    /// Seed of the first run of each point. The others count up.
    pub first_seed: u64,
    /// Results of each point, in the order of its seeds.
    pub results: &'a [Vec<Results>],
}

/// Number of measures that are drawn: the most important ones.
const DRAWN: usize = 6;
/// Number of runs below which no difference is called sure.
const ENOUGH: usize = 5;

/// Mean of a measure at a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mean {
    /// The mean over the runs that have the measure.
    pub estimate: Estimate,
    /// Number of these runs.
    pub runs: usize,
}

/// Conclusion on the difference of two points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// With 95 % probability the mean is lower.
    Lower,
    /// With 95 % probability the mean is higher.
    Higher,
    /// In every run of both points the values are the same.
    Equal,
    /// Each of "less by more than the margin" and "more by more than the margin" is refuted at 5 %.
    /// It outranks a difference that is sure and within the margin.
    Same,
    /// None of these is shown, or there are fewer than five runs.
    Undecided,
}

impl Difference {
    fn name(self) -> &'static str {
        match self {
            Difference::Lower => "lower",
            Difference::Higher => "higher",
            Difference::Equal => "equal",
            Difference::Same => "same",
            Difference::Undecided => "undecided",
        }
    }
}

/// Returns whether each value of some pairs is, on average over infinitely many, within a share of
/// the other one: two one-sided tests at 5 % each [Schuirmann, "A comparison of the two one-sided
/// tests procedure", 1987].
///
/// The margin is a share of a mean that is measured itself. So the tests are of `b - (1 - share) a`
/// and `(1 + share) a - b`, pair by pair, and take its uncertainty in.
fn is_same_within(share: f64, pairs: &[(f64, f64)]) -> bool {
    let sign = pairs.iter().map(|(a, _)| a).sum::<f64>().signum();
    let is_positive = |of: &dyn Fn(f64, f64) -> f64| {
        let samples: Vec<f64> = pairs.iter().map(|&(a, b)| sign * of(a, b)).collect();
        let Estimate { mean, ci95 } = Estimate::of(&samples);
        let freedom = samples.len().saturating_sub(1).max(1);
        mean > ci95 * t_quantile(0.05, freedom) / t_quantile(0.025, freedom)
    };
    is_positive(&|a, b| b - (1.0 - share) * a) && is_positive(&|a, b| (1.0 + share) * a - b)
}

impl Runs<'_> {
    /// Returns the names of the measures, the most important ones first.
    pub fn measures(&self) -> Vec<&'static str> {
        let first = self.results.iter().flatten().next();
        first.into_iter().flat_map(|run| &run.measures).map(|measure| measure.name).collect()
    }

    /// Returns the mean of a measure at a point; `None` if no run has it.
    pub fn mean(&self, point: usize, measure: &str) -> Option<Mean> {
        let runs = self.results.get(point)?;
        let values: Vec<f64> = runs.iter().filter_map(|run| run.measure(measure)).collect();
        let mean = Mean { estimate: Estimate::of(&values), runs: values.len() };
        (!values.is_empty()).then_some(mean)
    }

    /// Returns the difference of a measure between a point and the first one, run by run with equal
    /// seeds. Also returns the conclusion.
    pub fn difference(&self, point: usize, measure: &str) -> Option<(Estimate, Difference)> {
        let (first, runs) = (self.results.first()?, self.results.get(point)?);
        let pairs: Vec<(f64, f64)> = (first.iter().zip(runs))
            .filter_map(|(first, run)| Some((first.measure(measure)?, run.measure(measure)?)))
            .collect();
        if pairs.is_empty() {
            return None;
        }
        let differences: Vec<f64> = pairs.iter().map(|(first, other)| other - first).collect();
        let estimate = Estimate::of(&differences);
        let is_same = || {
            let share = self.study.same_within();
            share.is_some_and(|share| is_same_within(share, &pairs))
        };
        let Estimate { mean, ci95 } = estimate;
        let verdict = if differences.len() < ENOUGH {
            Difference::Undecided
        } else if differences.iter().all(|difference| *difference == 0.0) {
            Difference::Equal
        } else if is_same() {
            Difference::Same
        } else if mean - ci95 > 0.0 {
            Difference::Higher
        } else if mean + ci95 < 0.0 {
            Difference::Lower
        } else {
            Difference::Undecided
        };
        Some((estimate, verdict))
    }

    /// Returns the report of the study.
    pub fn report(&self) -> Report {
        let seeds = self.results.iter().map(Vec::len).max().unwrap_or_default();
        let last = self.first_seed + (seeds as u64).saturating_sub(1);
        let mut settings = vec![
            ("seeds".to_owned(), format!("{} to {last}", self.first_seed)),
            ("runs".to_owned(), self.results.iter().map(Vec::len).sum::<usize>().to_string()),
        ];
        if let Some(share) = self.study.same_within() {
            settings.push(("same_within".to_owned(), format!("{} %", share * 100.0)));
        }
        for axis in self.study.axes() {
            settings.push((axis.name.clone(), axis.labels.join(", ")));
        }
        Report {
            paper: "study",
            title: self.name.to_owned(),
            intro: self.intro(seeds),
            figures: self.figures(),
            rows: Vec::new(),
            sections: self.sections(),
            notes: Vec::new(),
            settings,
        }
    }

    /// Returns what keeps the results from saying anything: too few runs, nothing that was lost.
    pub fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if self.results.iter().map(Vec::len).max().unwrap_or_default() < ENOUGH {
            warnings.push("These are too few runs to be sure of anything: take at least five.");
        }
        let mut losses = self.results.iter().flatten().map(|run| run.measure("losses")).peekable();
        if losses.peek().is_some() && losses.all(|losses| losses == Some(0.0)) {
            warnings.push(
                "No run lost a packet: links lose nothing without `loss`, whatever `loss_burst` is.",
            );
        }
        warnings
    }

    /// Returns how sure a measure is: its widest interval as a share of the mean, and where that is,
    /// as in `± 3.1 % (k = 4)`. `None` if no point has an interval and a mean other than 0.
    pub fn widest(&self, measure: &str) -> Option<String> {
        let relative = |point| {
            let Estimate { mean, ci95 } = self.mean(point, measure)?.estimate;
            (mean != 0.0 && ci95.is_finite()).then(|| (ci95 / mean.abs(), point))
        };
        let points = (0..self.study.points()).filter_map(relative);
        let (share, point) = points.max_by(|a, b| a.0.total_cmp(&b.0))?;
        Some(format!("± {:.1} %{}", share * 100.0, self.at(point)))
    }

    /// Returns which point this is, in brackets behind a blank. Empty without a sweep.
    pub fn at(&self, point: usize) -> String {
        match self.study.label(point) {
            label if label.is_empty() => String::new(),
            label => format!(" ({label})"),
        }
    }

    /// Returns the number of points, without the first, with each conclusion on their difference
    /// from it, as in `1 same, 4 undecided`. `None` if there are none.
    pub fn conclusions(&self, measure: &str) -> Option<String> {
        let points = 1..self.study.points();
        let found: Vec<&str> =
            points.filter_map(|point| Some(self.difference(point, measure)?.1.name())).collect();
        let all = [Difference::Lower, Difference::Higher, Difference::Equal, Difference::Same]
            .into_iter()
            .chain([Difference::Undecided]);
        let counts = all.filter_map(|verdict| {
            let count = found.iter().filter(|name| **name == verdict.name()).count();
            (count > 0).then(|| format!("{count} {}", verdict.name()))
        });
        let said = counts.collect::<Vec<_>>().join(", ");
        (!said.is_empty()).then_some(said)
    }

    fn intro(&self, seeds: usize) -> String {
        let (points, runs) = (counted(self.study.points(), "point"), counted(seeds, "run"));
        let mut intro = format!(
            "{points}, {runs} each, with the same seeds at every point. An interval \
             contains the mean over infinitely many runs with 95 % probability (Student's t)."
        );
        for warning in self.warnings() {
            let _ = write!(intro, " {warning}");
        }
        let measures = self.measures().into_iter().take(DRAWN);
        let said: Vec<String> = measures
            .filter_map(|measure| Some(format!("{measure} {}", self.widest(measure)?)))
            .collect();
        if !said.is_empty() && seeds > 1 {
            let _ = write!(intro, "\n\nThe widest interval of each: {}.", said.join("; "));
        }
        intro
    }

    /// Returns a figure for each of the most important measures, over the first key whose values
    /// are numbers. It has a curve for each combination of the others.
    fn figures(&self) -> Vec<Figure> {
        let axes = self.study.axes();
        let Some(across) = axes.iter().position(|axis| axis.numbers.is_some()) else {
            return Vec::new();
        };
        let measures = self.measures();
        let drawn = measures.iter().take(DRAWN).zip(1..);
        let panel = |measure: &str| {
            let mut series: Vec<Series> = Vec::new();
            for point in 0..self.study.points() {
                let position = self.study.position(point);
                let others = axes.iter().zip(&position).enumerate().filter(|(n, _)| *n != across);
                let others = others
                    .map(|(_, (axis, value))| format!("{} = {}", axis.name, axis.labels[*value]));
                let name = others.collect::<Vec<_>>().join(", ");
                let name = if name.is_empty() { measure.to_owned() } else { name };
                let number = axes[across].numbers.as_ref().map(|all| all[position[across]]);
                let (Some(x), Some(mean)) = (number, self.mean(point, measure)) else { continue };
                let Estimate { mean: y, ci95 } = mean.estimate;
                let point = Point { x, y, ci95 };
                match series.iter_mut().find(|series| series.name == name) {
                    Some(series) => series.points.push(point),
                    None => series.push(Series { name, points: vec![point] }),
                }
            }
            for series in &mut series {
                series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
            }
            Panel {
                title: String::new(),
                x_label: axes[across].name.clone(),
                y_label: measure.to_owned(),
                series,
                ..Panel::default()
            }
        };
        let figures = drawn.map(|(measure, number)| Figure {
            id: FigureId::Study(number),
            title: format!("{measure} over {}", axes[across].name),
            panels: vec![panel(measure)],
            caption: String::new(),
        });
        figures.filter(|figure| !figure.panels[0].series.is_empty()).collect()
    }

    fn sections(&self) -> Vec<Section> {
        let text = |text: &str| text.to_owned();
        let mut sections = vec![Section {
            title: text("Means"),
            text: text("The mean of each measure over the runs of a point, and its 95 % interval."),
            figures: Vec::new(),
            tables: vec![self.means()],
        }];
        if self.study.points() > 1 {
            let mut told = text(
                "Each point beside the first one. A difference is taken run by run, with equal \
                 seeds, so that what both have in common does not blur it. It is undecided if its \
                 interval includes 0, and with fewer than five runs.",
            );
            if let Some(share) = self.study.same_within() {
                let _ = write!(
                    told,
                    " It is \"same\" if two one-sided tests at 5 % each refute that the mean is less \
                     or more than the first one's by over {} % of it, also where a smaller \
                     difference is sure.",
                    share * 100.0
                );
            }
            sections.push(Section {
                title: text("Differences"),
                text: told,
                figures: Vec::new(),
                tables: vec![self.differences()],
            });
        }
        sections.push(Section {
            title: text("Runs"),
            text: text("Every run by itself."),
            figures: Vec::new(),
            tables: vec![self.runs()],
        });
        sections
    }

    /// Returns the values of a point's keys.
    fn keys(&self, point: usize) -> impl Iterator<Item = String> {
        let axes = self.study.axes().iter().zip(self.study.position(point));
        axes.map(|(axis, value)| axis.labels[value].clone())
    }

    fn key_names(&self) -> impl Iterator<Item = String> {
        self.study.axes().iter().map(|axis| axis.name.clone())
    }

    fn means(&self) -> Table {
        let measures = self.measures();
        let mut head: Vec<String> = self.key_names().chain(["runs".to_owned()]).collect();
        for measure in &measures {
            head.extend([
                (*measure).to_owned(),
                format!("{measure}_low"),
                format!("{measure}_high"),
            ]);
        }
        let row = |point: usize| {
            let runs = self.results.get(point).map_or(0, Vec::len).to_string();
            let mut row: Vec<String> = self.keys(point).chain([runs]).collect();
            for measure in &measures {
                let cells = match self.mean(point, measure) {
                    Some(Mean { estimate: Estimate { mean, ci95 }, runs }) if runs > 1 => {
                        [mean, mean - ci95, mean + ci95].map(|number| number.to_string())
                    }
                    // One run says nothing about the interval.
                    Some(mean) => [mean.estimate.mean.to_string(), String::new(), String::new()],
                    None => Default::default(),
                };
                row.extend(cells);
            }
            row
        };
        Table { name: "sweep", head, rows: (0..self.study.points()).map(row).collect() }
    }

    fn differences(&self) -> Table {
        let mut head: Vec<String> = self.key_names().collect();
        head.extend(["measure", "difference", "low", "high", "verdict"].map(str::to_owned));
        let mut rows = Vec::new();
        for point in 1..self.study.points() {
            for measure in self.measures() {
                let Some((estimate, verdict)) = self.difference(point, measure) else { continue };
                let Estimate { mean, ci95 } = estimate;
                let mut row: Vec<String> = self.keys(point).chain([measure.to_owned()]).collect();
                let (low, high) = match verdict {
                    Difference::Undecided if !ci95.is_finite() => (String::new(), String::new()),
                    _ => ((mean - ci95).to_string(), (mean + ci95).to_string()),
                };
                row.extend([mean.to_string(), low, high, verdict.name().to_owned()]);
                rows.push(row);
            }
        }
        Table { name: "differences", head, rows }
    }

    fn runs(&self) -> Table {
        let measures = self.measures();
        let mut head: Vec<String> = self.key_names().chain(["seed".to_owned()]).collect();
        head.extend(measures.iter().map(|measure| (*measure).to_owned()));
        let mut rows = Vec::new();
        for (point, runs) in self.results.iter().enumerate() {
            for (seed, run) in (self.first_seed..).zip(runs) {
                let mut row: Vec<String> = self.keys(point).chain([seed.to_string()]).collect();
                let value = |measure: &&str| run.measure(measure).map(|value| value.to_string());
                row.extend(measures.iter().map(|measure| value(measure).unwrap_or_default()));
                rows.push(row);
            }
        }
        Table { name: "runs", head, rows }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use umbel_sim::scenario::report::{Clients, Measure};

    use super::*;

    const FILE: &str = "topology = { generator = \"star\", receivers = 2, access = { loss = 0 } }\n\
                        [srm]\npackets = 5\ninterval = \"1s\"\n\
                        [sweep]\nloss = [0.1, 0.2]\npackets = [5, 6]\n";

    fn study() -> Study {
        Study::from_toml(FILE, Path::new("")).unwrap()
    }

    fn result(latency: f64) -> Results {
        Results {
            clients: Clients::default(),
            groups: Vec::new(),
            delay: "latency",
            measures: vec![Measure::new("latency", latency), Measure::new("nothing", None)],
            tables: Vec::new(),
            text: String::new(),
            details: BTreeMap::new(),
        }
    }

    /// Results whose noise is that of the seed at every point.
    fn results() -> Vec<Vec<Results>> {
        let noise = [3.0, -4.0, 0.5, 1.0, -0.5, 2.0];
        let point = |mean: f64| noise.iter().map(|noise| result(mean + noise)).collect();
        [10.0, 10.5, 9.0, 10.0].map(point).into()
    }

    #[test]
    fn a_difference_is_taken_run_by_run() {
        let (study, results) = (study(), results());
        let runs = Runs { study: &study, name: "x", first_seed: 1, results: &results };
        let mean = runs.mean(1, "latency").unwrap();
        assert!(mean.estimate.ci95 > 2.0 && mean.runs == 6, "{mean:?}");
        let verdict = |point| runs.difference(point, "latency").unwrap().1;
        // Far smaller than the interval of each mean, and sure.
        let verdicts = [verdict(1), verdict(2), verdict(3)];
        assert_eq!(verdicts, [Difference::Higher, Difference::Lower, Difference::Equal]);
        assert_eq!(runs.difference(1, "nothing"), None);
        assert_eq!(runs.conclusions("latency").unwrap(), "1 lower, 1 higher, 1 equal");
        assert_eq!((runs.conclusions("nothing"), runs.widest("nothing")), (None, None));
        assert!(runs.widest("latency").unwrap().ends_with(" % (loss = 0.2, packets = 5)"));
        let few: Vec<Vec<Results>> = results.iter().map(|runs| runs[..4].to_vec()).collect();
        let runs = Runs { results: &few, ..runs };
        assert_eq!(runs.difference(1, "latency").unwrap().1, Difference::Undecided);
        assert!(runs.report().intro.contains("too few runs"));
        assert_eq!(runs.conclusions("latency").unwrap(), "3 undecided");
    }

    #[test]
    fn what_is_the_same_is_shown_by_two_tests_and_not_by_want_of_a_difference() {
        use Difference::{Equal, Higher, Lower, Same, Undecided};
        let of = |margin: &str, results: &[Vec<Results>]| {
            let file = format!("{FILE}same_within = {margin}\n");
            let study = Study::from_toml(&file, Path::new("")).unwrap();
            let runs = Runs { study: &study, name: "x", first_seed: 1, results };
            let told = runs.report().sections[1].text.clone();
            assert!(told.contains("two one-sided tests"), "{told}");
            [1, 2, 3].map(|point| runs.difference(point, "latency").unwrap().1)
        };
        // By 4.8 % more, 13 % less, and not at all, each surely.
        assert_eq!(of("\"20%\"", &results()), [Same, Same, Equal]);
        assert_eq!(of("0.1", &results()), [Same, Lower, Equal]);
        assert_eq!(of("0.01", &results()), [Higher, Lower, Equal]);
        // No difference is found, and none of 10 % is refuted.
        let noise = [3.0, -4.0, 0.5, 1.0, -0.5, 2.0];
        let first = noise.map(|noise| result(10.0 + noise)).into();
        let other = || noise.map(|noise| result(10.1 - noise)).into();
        let wide = [first, other(), other(), other()];
        assert_eq!(of("0.1", &wide), [Undecided; 3]);
        assert_eq!(of("0.9", &wide), [Same; 3]);
        // Four runs show nothing.
        let few: Vec<Vec<Results>> = results().iter().map(|runs| runs[..4].to_vec()).collect();
        assert_eq!(of("0.2", &few), [Undecided; 3]);
    }

    #[test]
    fn a_study_in_which_nothing_was_lost_says_so() {
        let of = |losses: [f64; 2]| {
            let mut results = results();
            for run in results.iter_mut().flatten() {
                run.measures.push(Measure::new("losses", losses[0]));
            }
            results[3][5].measures[2] = Measure::new("losses", losses[1]);
            let study = study();
            let runs = Runs { study: &study, name: "x", first_seed: 1, results: &results };
            (runs.warnings().len(), runs.report().intro.contains("No run lost a packet"))
        };
        assert_eq!(of([0.0, 0.0]), (1, true));
        assert_eq!(of([0.0, 1.0]), (0, false));
    }

    #[test]
    fn a_negative_mean_has_a_margin_as_well() {
        let pairs = |by: f64| [-10.0, -11.0, -9.5, -10.2, -10.4].map(|a| (a, a * by));
        assert!(is_same_within(0.1, &pairs(1.05)) && !is_same_within(0.04, &pairs(1.05)));
        assert!(!is_same_within(0.5, &[(0.0, 0.1), (0.0, -0.1)]), "no share of nothing");
    }

    #[test]
    fn the_report_has_a_row_for_each_point_and_a_curve_for_each_value_of_the_second_key() {
        let (study, results) = (study(), results());
        let runs = Runs { study: &study, name: "x", first_seed: 3, results: &results };
        let report = runs.report();
        let [figure] = &report.figures[..] else { panic!("{:?}", report.figures) };
        let series = &figure.panels[0].series;
        assert_eq!(
            series.iter().map(|s| s.name.as_str()).collect::<Vec<_>>(),
            ["packets = 5", "packets = 6"]
        );
        let xs: Vec<f64> = series[0].points.iter().map(|point| point.x).collect();
        assert_eq!(xs, [0.1, 0.2]);
        let sweep = &report.sections[0].tables[0];
        assert_eq!((sweep.name, sweep.rows.len()), ("sweep", 4));
        assert_eq!(sweep.head[..4], ["loss", "packets", "runs", "latency"]);
        assert_eq!(sweep.rows[2][..3], ["0.2", "5", "6"]);
        let mean: f64 = sweep.rows[0][3].parse().unwrap();
        let low: f64 = sweep.rows[0][4].parse().unwrap();
        assert!((mean - 10.333).abs() < 0.001 && low < mean);
        assert_eq!(sweep.rows[0][6], "", "a measure that no run has is empty");
        let all = &report.sections[2].tables[0];
        assert_eq!((all.rows.len(), all.rows[5][2].as_str()), (24, "8"));
        assert!(report.intro.contains("latency ± "), "{}", report.intro);
    }
}
