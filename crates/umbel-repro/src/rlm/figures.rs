//! Figures 8 to 13, and drop-tail beside random early detection.

use super::scenario::{Dropping, Outcome, Scenario, Topology, WINDOWS};
use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Section, Series, Table};
use crate::pool::Outcomes;

/// Latencies of Figure 9 in microseconds: 1 ms to 20 s.
pub(super) const LATENCIES_US: [u64; 12] = [
    1_000, 3_000, 10_000, 30_000, 100_000, 300_000, 500_000, 1_000_000, 2_000_000, 5_000_000,
    10_000_000, 20_000_000,
];
/// Numbers of receivers of Figures 10 and 11, of both halves in Figure 12.
pub(super) const SIZES: [u32; 7] = [1, 2, 5, 10, 20, 50, 100];
pub(super) const HALVES: [u32; 6] = [2, 4, 10, 20, 50, 100];
/// Numbers of sessions of Figure 13.
pub(super) const SESSIONS: [u32; 6] = [1, 2, 4, 8, 16, 32];
/// Numbers of receivers with which drop-tail and random early detection are compared.
pub(super) const COMPARED: [u32; 3] = [1, 10, 50];

/// Names of the curves of losses.
pub(super) const WINDOW_NAMES: [&str; 3] = ["1 s", "10 s", "100 s"];
/// Name of the curve of Figure 8.
pub(super) const LEVEL: &str = "level";
/// Names of the curves of Figure 11.
pub(super) const RECEIVERS: &str = "receivers";
pub(super) const MEAN: &str = "mean";
pub(super) const FIT: &str = "fit";

/// Returns the columns of a figure of losses: the x of each point, and its scenario.
fn columns(figure: u32) -> Vec<(f64, Scenario)> {
    let shared = |receivers| Scenario::new(Topology::Shared { receivers });
    match figure {
        8 => vec![(0.0, shared(1))],
        9 => {
            let column = |latency_us| Scenario { latency_us, ..shared(1) };
            LATENCIES_US.map(|us| ((us as f64 / 1e6).log10(), column(us))).into()
        }
        10 | 11 => SIZES.map(|n| (f64::from(n).log10(), shared(n))).into(),
        12 => {
            let column = |receivers| Scenario::new(Topology::Classes { receivers });
            HALVES.map(|n| (f64::from(n).log10(), column(n))).into()
        }
        13 => {
            let column = |pairs| Scenario::new(Topology::Sessions { pairs });
            SESSIONS.map(|n| (f64::from(n).log10(), column(n))).into()
        }
        _ => Vec::new(),
    }
}

/// Returns the scenarios of a figure.
pub(super) fn scenarios(figure: u32) -> Vec<Scenario> {
    columns(figure).into_iter().map(|(_, scenario)| scenario).collect()
}

/// Returns the scenarios of the comparison with random early detection.
pub(super) fn red_scenarios() -> Vec<Scenario> {
    let both = |receivers| {
        [Dropping::Tail, Dropping::Red]
            .map(|dropping| Scenario { dropping, ..Scenario::new(Topology::Shared { receivers }) })
    };
    COMPARED.into_iter().flat_map(both).collect()
}

/// Returns the mean of a value over the runs of a scenario.
pub(super) fn estimate(
    outcomes: &Outcomes<Scenario>,
    scenario: Scenario,
    value: impl Fn(&Outcome) -> f64,
) -> Estimate {
    let runs = outcomes.get(&scenario).into_iter().flatten();
    Estimate::of(&runs.map(value).collect::<Vec<f64>>())
}

/// Returns a figure of the paper.
pub(super) fn figure(number: u32, outcomes: &Outcomes<Scenario>) -> Figure {
    match number {
        8 => sample_path(outcomes),
        11 => convergence(outcomes),
        _ => losses(number, outcomes),
    }
}

fn losses(number: u32, outcomes: &Outcomes<Scenario>) -> Figure {
    let (title, x_label, caption) = match number {
        9 => (
            "Latency scalability",
            "log₁₀ of the link's latency in s",
            "One receiver. Worst loss in any window of these lengths.",
        ),
        10 => (
            "Session-size scalability",
            "log₁₀ of the number of receivers",
            "Receivers behind one bottleneck; the worst of all.",
        ),
        12 => (
            "Bandwidth heterogeneity",
            "log₁₀ of the number of receivers",
            "Half of the receivers are behind a second bottleneck of half the rate.",
        ),
        _ => (
            "Superposition",
            "log₁₀ of the number of sessions",
            "Sessions of one source and one receiver each, over one link.",
        ),
    };
    let series = WINDOW_NAMES.into_iter().enumerate().map(|(n, name)| {
        let points = columns(number).into_iter().map(|(x, scenario)| {
            let worst = estimate(outcomes, scenario, |outcome| outcome.worst[n] * 100.0);
            Point { x, y: worst.mean, ci95: worst.ci95 }
        });
        Series { name: name.to_owned(), points: points.collect() }
    });
    let panel = Panel {
        title: String::new(),
        x_label: x_label.to_owned(),
        y_label: "worst loss (%)".to_owned(),
        series: series.collect(),
        ..Panel::default()
    };
    Figure {
        id: FigureId::Paper(number),
        title: title.to_owned(),
        panels: vec![panel],
        caption: caption.to_owned(),
    }
}

/// Returns Figure 8: the level of one receiver, of the first run.
fn sample_path(outcomes: &Outcomes<Scenario>) -> Figure {
    let (_, scenario) = columns(8)[0];
    let run = outcomes.get(&scenario).and_then(|runs| runs.first());
    let mut points = Vec::new();
    let mut before = 0.0;
    for &(x, level) in run.iter().flat_map(|run| &run.levels) {
        let y = f64::from(level);
        points.extend([Point { x, y: before, ci95: 0.0 }, Point { x, y, ci95: 0.0 }]);
        before = y;
    }
    let panel = Panel {
        title: String::new(),
        x_label: "time since the start (s)".to_owned(),
        y_label: "level of subscription".to_owned(),
        series: vec![Series { name: LEVEL.to_owned(), points }],
        ..Panel::default()
    };
    Figure {
        id: FigureId::Paper(8),
        title: "A sample path".to_owned(),
        panels: vec![panel],
        caption: "One receiver behind 1.5 Mb/s and 10 ms: five of six layers fit.".to_owned(),
    }
}

/// Returns Figure 11: a point for each receiver, their means, and a fit to the logarithm.
fn convergence(outcomes: &Outcomes<Scenario>) -> Figure {
    let mut points = Vec::new();
    let mut means = Vec::new();
    for (x, scenario) in columns(11) {
        let runs = outcomes.get(&scenario).into_iter().flatten();
        let times = runs.flat_map(|run| run.convergence.iter().copied());
        let times: Vec<f64> = times.filter(|time| time.is_finite()).collect();
        let mean = Estimate::of(&times);
        means.push(Point { x, y: mean.mean, ci95: mean.ci95 });
        points.extend(times.into_iter().map(|y| Point { x, y, ci95: 0.0 }));
    }
    let (a, b) = fit(&points);
    let ends = [points.first(), points.last()].into_iter().flatten();
    let fitted = ends.map(|end| Point { x: end.x, y: a + b * end.x, ci95: 0.0 }).collect();
    let named = |name: &str, points| Series { name: name.to_owned(), points };
    let panel = Panel {
        title: String::new(),
        x_label: "log₁₀ of the number of receivers".to_owned(),
        y_label: "time to the best level (s)".to_owned(),
        series: vec![named(FIT, fitted), named(MEAN, means), scatter(RECEIVERS, points)],
        ..Panel::default()
    };
    Figure {
        id: FigureId::Paper(11),
        title: "Rate of convergence".to_owned(),
        panels: vec![panel],
        caption: format!(
            "A point for each receiver of each run. Fit: {a:.1} s + {b:.1} s · log₁₀ of the number \
             of receivers."
        ),
    }
}

/// Returns a curve whose points no line joins.
fn scatter(name: &str, points: Vec<Point>) -> Series {
    // A point that cannot be drawn leaves a gap.
    let gapped = points.into_iter().flat_map(|point| [point, Point { y: f64::NAN, ..point }]);
    Series { name: name.to_owned(), points: gapped.collect() }
}

/// Returns a and b of the line a + b·x with the least squares; b is 0 where there is only one x.
pub(super) fn fit(points: &[Point]) -> (f64, f64) {
    let n = points.len() as f64;
    let mean = |value: fn(&Point) -> f64| points.iter().map(value).sum::<f64>() / n;
    let (x, y) = (mean(|point| point.x), mean(|point| point.y));
    let sum = |value: &dyn Fn(&Point) -> f64| points.iter().map(value).sum::<f64>();
    let squares = sum(&|point| (point.x - x).powi(2));
    let b = if squares > 0.0 { sum(&|point| (point.x - x) * (point.y - y)) / squares } else { 0.0 };
    (y - b * x, b)
}

/// Returns the table of drop-tail and random early detection [RLM §5].
pub(super) fn red(outcomes: &Outcomes<Scenario>) -> Section {
    let mut rows = Vec::new();
    for scenario in red_scenarios() {
        let of = |value: &dyn Fn(&Outcome) -> f64| {
            format!("{:.2}", estimate(outcomes, scenario, value).mean)
        };
        let name = if scenario.dropping == Dropping::Red { "RED" } else { "drop-tail" };
        let mut row = vec![scenario.receivers().to_string(), name.to_owned()];
        row.extend((0..WINDOWS.len()).map(|n| of(&|outcome| outcome.worst[n] * 100.0)));
        row.push(of(&|outcome| outcome.loss * 100.0));
        row.push(of(&mean_convergence));
        rows.push(row);
    }
    let head = ["receivers", "queue"].into_iter().map(str::to_owned);
    let windows = WINDOW_NAMES.map(|name| format!("worst loss in {name} (%)"));
    let rest = ["all loss (%)", "time to the best level (s)"].map(str::to_owned);
    let table = Table { name: "red", head: head.chain(windows).chain(rest).collect(), rows };
    Section {
        title: "Random early detection".to_owned(),
        text: "The bottleneck drops early instead of late [RLM §5]: thresholds at a quarter and three \
               quarters of the queue of 20 packets, 10 % at the upper one, gentle above it, weight \
               0.1."
            .to_owned(),
        figures: Vec::new(),
        tables: vec![table],
    }
}

/// Returns the mean time of convergence of those that converged.
pub(super) fn mean_convergence(outcome: &Outcome) -> f64 {
    let times: Vec<f64> =
        outcome.convergence.iter().copied().filter(|time| time.is_finite()).collect();
    times.iter().sum::<f64>() / times.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_fitted() {
        let point = |(x, y)| Point { x, y, ci95: 0.0 };
        let (a, b) = fit(&[(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)].map(point));
        assert!((a - 1.0).abs() < 1e-12 && (b - 2.0).abs() < 1e-12);
        let (a, b) = fit(&[(1.0, 2.0), (1.0, 4.0)].map(point));
        assert!((a - 3.0).abs() < 1e-12 && b.abs() < 1e-12);
    }
}
