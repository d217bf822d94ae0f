//! The claims of the paper's text, and whether they hold.
//!
//! Here "about" a number is within a half of it, and "independent" within a half over the whole
//! range. "Close to one" is above 0.9, "a few percent" is 1 to 6 %.

use super::figures::{
    COMPARED, LATENCIES_US, LEVEL, MEAN, RECEIVERS, SIZES, WINDOW_NAMES, estimate, fit,
};
use super::scenario::{Dropping, Outcome, Scenario, Topology};
use crate::bounds::{LESS, MORE, around, up_to};
use crate::estimate::fairness;
use crate::output::{Figure, FigureId, Point, Row};
use crate::pool::Outcomes;

/// Returns the rows of the table about these figures.
pub(super) fn rows(figures: &[Figure], outcomes: &Outcomes<Scenario>) -> Vec<Row> {
    figures.iter().flat_map(|figure| Judge { figure, outcomes }.rows()).collect()
}

struct Judge<'a> {
    figure: &'a Figure,
    outcomes: &'a Outcomes<Scenario>,
}

/// Returns the greatest of these values; NaN if there is none.
fn greatest(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NAN, f64::max)
}

fn least(values: impl IntoIterator<Item = f64>) -> f64 {
    values.into_iter().fold(f64::NAN, f64::min)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

impl Judge<'_> {
    fn row(
        &self,
        what: impl Into<String>,
        reported: &str,
        measured: (f64, &'static str),
        bounds: (f64, f64),
    ) -> Row {
        Row::new(self.figure.id, what, reported, measured, bounds)
    }

    /// Returns the worst losses of a window in percent.
    fn losses(&self, window: usize) -> Vec<f64> {
        self.figure.values("", WINDOW_NAMES[window])
    }

    /// Returns the quotient of the last and the first value of a window.
    fn growth(&self, window: usize) -> f64 {
        match &self.losses(window)[..] {
            [first, .., last] => last / first,
            _ => f64::NAN,
        }
    }

    fn rows(&self) -> Vec<Row> {
        match self.figure.id {
            FigureId::Paper(8) => self.sample_path(),
            FigureId::Paper(9) => self.latency(),
            FigureId::Paper(10) => self.size(),
            FigureId::Paper(11) => self.convergence(),
            FigureId::Paper(12) => self.halves(),
            FigureId::Paper(13) => self.sessions(),
            _ => Vec::new(),
        }
    }

    fn sample_path(&self) -> Vec<Row> {
        let scenario = Scenario::new(Topology::Shared { receivers: 1 });
        let of = |value: &dyn Fn(&Outcome) -> f64| estimate(self.outcomes, scenario, value).mean;
        let failed = |outcome: &Outcome| -> Vec<(f64, f64)> {
            let failed = outcome.experiments.iter().filter(|(.., stays)| !stays);
            failed.map(|&(start, duration, _)| (start, duration)).collect()
        };
        let longest = of(&|outcome| greatest(failed(outcome).iter().map(|(_, took)| *took)));
        let grows = of(&|outcome| {
            let starts: Vec<f64> = failed(outcome).iter().map(|(start, _)| *start).collect();
            let between: Vec<f64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
            match &between[..] {
                [first, .., last] => last / first,
                _ => f64::NAN,
            }
        });
        let reached = of(&|outcome| outcome.convergence[0]);
        let what = "last interval between failed experiments over the first";
        vec![
            self.row(
                "time to the best level",
                "about half a minute",
                (reached, "s"),
                around(30.0, 0.5),
            )
            // Five of the six layers fit.
            .at("", LEVEL, (30.0, 5.0)),
            self.row("longest failed experiment", "less than a second", (longest, "s"), up_to(1.0)),
            self.row(what, "progressively larger", (grows, ""), MORE),
        ]
    }

    fn latency(&self) -> Vec<Row> {
        let up_to_us = |window: usize, most: u64| {
            let losses = self.losses(window).into_iter().zip(LATENCIES_US);
            losses.filter(move |&(_, us)| us <= most).map(|(loss, _)| loss).collect::<Vec<f64>>()
        };
        let short = up_to_us(0, 100_000);
        let mut rows = vec![
            self.row(
                "worst loss in 100 s, latencies up to 0.5 s",
                "under 1 %",
                (greatest(up_to_us(2, 500_000)), "%"),
                up_to(1.0),
            )
            .along("", WINDOW_NAMES[2], (0.0, 1.0)),
            self.row(
                "worst loss in 1 s, up to 100 ms: least",
                "10 to 20 %",
                (least(short.clone()), "%"),
                (10.0, 20.0),
            )
            .along("", WINDOW_NAMES[0], (10.0, 20.0)),
            self.row(
                "worst loss in 1 s, up to 100 ms: greatest",
                "10 to 20 %",
                (greatest(short), "%"),
                (10.0, 20.0),
            ),
        ];
        for (window, half_s) in [(0, 0.5), (1, 5.0)] {
            let name = WINDOW_NAMES[window];
            let what = format!("knee of the {name} window, latency over half the window");
            let knee = self.knee(window) / half_s;
            rows.push(self.row(what, "window twice the latency", (knee, ""), (1.0 / 3.0, 3.0)));
        }
        rows
    }

    /// Returns the least latency in s at which the loss is above the middle between its value at
    /// the least latency and its greatest value.
    fn knee(&self, window: usize) -> f64 {
        let losses = self.losses(window);
        let first = losses.first().copied().unwrap_or(f64::NAN);
        let middle = f64::midpoint(first, greatest(losses.iter().copied()));
        let above = losses.iter().zip(LATENCIES_US).find(|(loss, _)| **loss > middle);
        above.map_or(f64::NAN, |(_, us)| us as f64 / 1e6)
    }

    fn size(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (window, name) in WINDOW_NAMES.into_iter().enumerate() {
            let what = format!("worst loss in {name}, 100 receivers over 1");
            let growth = self.growth(window);
            let row = self.row(what, "essentially independent", (growth, ""), (0.5, 1.5));
            rows.push(row.same(0.5, "\"essentially\": a half over a hundredfold size"));
        }
        let last = self.losses(2).last().copied().unwrap_or(f64::NAN);
        let what = "worst loss in 100 s, 100 receivers";
        let row = self.row(what, "only about 1 %", (last, "%"), up_to(1.5));
        rows.push(row.at("", WINDOW_NAMES[2], (100.0, 1.0)));
        rows
    }

    fn convergence(&self) -> Vec<Row> {
        let series = |name| self.figure.series("", name).map_or(&[][..], |series| &series.points);
        let points: Vec<Point> =
            series(RECEIVERS).iter().copied().filter(|point| point.y.is_finite()).collect();
        let (_, slope) = fit(&points);
        let means = series(MEAN);
        let ends = match means {
            [first, .., last] => last.y / first.y,
            _ => f64::NAN,
        };
        let runs = SIZES.into_iter().flat_map(|receivers| {
            let scenario = Scenario::new(Topology::Shared { receivers });
            self.outcomes.get(&scenario).into_iter().flatten()
        });
        let times: Vec<f64> = runs.flat_map(|run| run.convergence.iter().copied()).collect();
        let converged = times.iter().filter(|time| time.is_finite()).count() as f64;
        let share = converged / times.len() as f64;
        vec![
            self.row("slope of the fit per tenfold size", "positive", (slope, "s"), (0.001, 1e6)),
            self.row(
                "correlation of the means with the logarithm",
                "linear trend in the log plot",
                (correlation(means), ""),
                (0.8, 1.0),
            ),
            self.row("mean time, 100 receivers over 1", "2.9 elsewhere", (ends, ""), (1.0, 6.0)),
            self.row("share of receivers that converged", "each", (share, ""), (0.99, 1.0)),
        ]
    }

    fn halves(&self) -> Vec<Row> {
        let mut rows = Vec::new();
        for (window, name) in WINDOW_NAMES.into_iter().enumerate() {
            let same = |receivers| Scenario::new(Topology::Shared { receivers });
            let alone = estimate(self.outcomes, same(100), |outcome| outcome.worst[window] * 100.0);
            let here = self.losses(window).last().copied().unwrap_or(f64::NAN);
            let what = format!("worst loss in {name} over that of Figure 10, 100 receivers");
            let quotient = here / alone.mean;
            rows.push(self.row(what, "comparable, somewhat higher", (quotient, ""), (0.8, 2.0)));
        }
        let what = "growth of the 1 s window with the size over that of the 100 s window";
        let quotient = self.growth(0) / self.growth(2);
        rows.push(self.row(what, "more notable on short scales", (quotient, ""), MORE));
        rows
    }

    fn sessions(&self) -> Vec<Row> {
        let pairs = super::figures::SESSIONS;
        let of = |pairs, value: &dyn Fn(&Outcome) -> f64| {
            estimate(self.outcomes, Scenario::new(Topology::Sessions { pairs }), value).mean
        };
        let many = &pairs[pairs.len() / 2..];
        let used: Vec<f64> =
            many.iter().map(|&pairs| of(pairs, &|outcome| outcome.utilisation)).collect();
        let starved =
            least(pairs.map(|pairs| {
                of(pairs, &|outcome| least(outcome.rates.iter().copied()) / 32_000.0)
            }));
        let unfair =
            least(many.iter().map(|&pairs| of(pairs, &|outcome| fairness(&outcome.rates))));
        vec![
            self.row(
                "utilisation, mean of 8 to 32 sessions",
                "close to one",
                (mean(&used), ""),
                (0.9, 1.0),
            ),
            self.row(
                "worst loss in 100 s, greatest",
                "under 1 %",
                (greatest(self.losses(2)), "%"),
                up_to(1.0),
            )
            .along("", WINDOW_NAMES[2], (0.0, 1.0)),
            self.row(
                "worst loss in 10 s, mean",
                "a few percent",
                (mean(&self.losses(1)), "%"),
                (1.0, 6.0),
            ),
            self.row(
                "least session's rate over the base layer's",
                "never starved",
                (starved, ""),
                (0.9, 64.0),
            ),
            self.row(
                "fairness index of 8 to 32 sessions, least",
                "often unfair",
                (unfair, ""),
                LESS,
            ),
        ]
    }
}

/// Returns the correlation of x and y.
fn correlation(points: &[Point]) -> f64 {
    let (_, b) = fit(points);
    let n = points.len() as f64;
    let deviation = |value: fn(&Point) -> f64| {
        let mean = points.iter().map(value).sum::<f64>() / n;
        points.iter().map(|point| (value(point) - mean).powi(2)).sum::<f64>().sqrt()
    };
    b * deviation(|point| point.x) / deviation(|point| point.y)
}

/// Returns the rows about random early detection [RLM §5].
pub(super) fn red(outcomes: &Outcomes<Scenario>) -> Vec<Row> {
    let losses = |dropping, window: usize| {
        let worst = |receivers| {
            let topology = Topology::Shared { receivers };
            let scenario = Scenario { dropping, ..Scenario::new(topology) };
            estimate(outcomes, scenario, |outcome| outcome.worst[window]).mean
        };
        COMPARED.map(worst).iter().sum::<f64>()
    };
    let row = |(window, name): (usize, &str)| {
        let what = format!("worst loss in {name}, RED over drop-tail");
        let quotient = losses(Dropping::Red, window) / losses(Dropping::Tail, window);
        Row::new("red", what, "improves", (quotient, ""), LESS)
    };
    WINDOW_NAMES.into_iter().enumerate().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Verdict, testing};

    #[test]
    fn losses_as_the_paper_tells_them_pass() {
        let curve =
            |name, losses: [f64; 12]| testing::curve(name, (0..).map(f64::from).zip(losses));
        let knee = |low: f64, high: f64, from: usize| {
            std::array::from_fn(|n| if n >= from { high } else { low })
        };
        // 500 ms and 5 s are the seventh and the tenth.
        let curves = vec![
            curve("1 s", knee(15.0, 60.0, 6)),
            curve("10 s", knee(3.0, 40.0, 9)),
            curve("100 s", knee(0.5, 10.0, 8)),
        ];
        let figure = testing::figure(9, [("", curves)]);
        let verdicts: Vec<Verdict> =
            rows(&[figure], &Outcomes::new()).iter().map(Row::verdict).collect();
        assert_eq!(verdicts, [Verdict::Ok; 5]);
    }

    #[test]
    fn what_was_not_run_is_a_miss() {
        for number in 8..=13 {
            let figure = testing::figure(number, [("", Vec::new())]);
            let rows = rows(&[figure], &Outcomes::new());
            assert!(!rows.is_empty());
            assert!(rows.iter().all(|row| row.verdict() == Verdict::Miss), "{rows:?}");
        }
        assert!(red(&Outcomes::new()).iter().all(|row| row.verdict() == Verdict::Miss));
    }

    #[test]
    fn a_rising_line_correlates() {
        let curve = testing::curve("", [(0.0, 1.0), (1.0, 2.0), (2.0, 3.0)]);
        assert!((correlation(&curve.points) - 1.0).abs() < 1e-12);
    }
}
