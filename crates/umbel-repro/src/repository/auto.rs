//! Compares `--policy auto`, which is not in the paper, with every scheme that is set by hand.
//!
//! Running each of some 50 schemes as often as those of the figures would take an hour. Instead,
//! each runs once, for a shorter time, at some points of each sweep ([`screening`]). The best of
//! them, and the schemes that the figures run anyway, are then compared with `auto` in full
//! ([`finalists`]).

use std::collections::BTreeSet;

use super::figures::{BAD_CLIENTS, Base, CLIENT_LOSS, LOSS_BEHIND, Plan, delay, estimate, named};
use super::point::{Outcome, Period, Point};
use crate::estimate::Estimate;
use crate::output::{self, Figure, FigureId, Panel, Row, Section, Series, Table};
use crate::pool::Outcomes;

const AUTO: &str = "auto";

const FIGURE: FigureId = FigureId::Beyond(1);

/// Points along one axis.
struct Sweep {
    title: &'static str,
    x_label: &'static str,
    /// Meaning of x, as a suffix of its number.
    unit: &'static str,
    xs: &'static [u32],
    /// Values of x at which all schemes are tried.
    screened: &'static [u32],
    /// Values of x at which `auto` must be better by [`GAIN`].
    better: &'static [u32],
    at: fn(&Base, &str, u32) -> Point,
}

/// The axes of Figures 7, 8 and 11, of 3 and 5, and of 4 and 6.
const SWEEPS: [Sweep; 3] = [
    Sweep {
        title: "By the share of bad clients",
        x_label: BAD_CLIENTS,
        unit: "% bad clients",
        xs: &[0, 5, 10, 20, 25, 30, 45, 60, 75, 100],
        screened: &[0, 10, 45, 100],
        better: &[10, 25, 45, 75, 100],
        at: Base::mixed,
    },
    Sweep {
        title: "By the loss of all clients",
        x_label: CLIENT_LOSS,
        unit: "% loss",
        xs: &[0, 1, 2, 4, 6, 8, 10, 12, 20, 30],
        screened: &[0, 2, 6, 12, 30],
        better: &[],
        at: |base, policy, loss| base.alike(policy, 0, loss),
    },
    Sweep {
        title: "Behind a server's link that loses 10 %",
        x_label: CLIENT_LOSS,
        unit: "% loss, 10 % at the server",
        xs: LOSS_BEHIND,
        screened: &[0, 10],
        better: &[],
        at: |base, policy, loss| base.alike(policy, 10, loss),
    },
];

/// Maximum ratio of `auto` to the best scheme: anywhere, and at the points of [`Sweep::better`].
const WORST: f64 = 1.01;
const GAIN: f64 = 0.95;

/// Expansions and bounds of retransmission; all combinations are tried.
const EXPANSIONS: [&str; 9] =
    ["0.05", "0.1", "0.15", "0.2", "0.25", "0.3", "0.01R", "0.03R", "0.05R"];
const BOUNDS: [&str; 2] = ["0", "5"];

/// Figures whose schemes are compared.
const FIGURES: [u32; 7] = [3, 4, 5, 6, 7, 8, 11];

/// Number of screened schemes that run in full at the points of the screening. At other points, the
/// best scheme of each of the two nearest screened points runs in full.
const BEST: usize = 2;

/// A scheme set by hand: its policy, and whether the scheduler is R/(Q/fill), with known losses as
/// in Figure 11.
type Scheme = (String, bool);

/// Returns all schemes to try: those of the figures and the grid.
fn schemes(plans: &[Plan]) -> BTreeSet<Scheme> {
    let mut schemes: BTreeSet<Scheme> = plans
        .iter()
        .filter(|plan| FIGURES.contains(&plan.number))
        .flat_map(Plan::points)
        .map(|point| (point.policy.clone(), point.fill))
        .collect();
    for expansion in EXPANSIONS {
        let grid = BOUNDS.map(|bound| (format!("FEC({expansion})+R({bound})"), false));
        schemes.extend(grid);
    }
    // `FEC(0)+R(inf)` is another name of R(∞).
    schemes.remove(&("FEC(0)+R(inf)".to_owned(), false));
    schemes
}

impl Sweep {
    fn point(&self, base: &Base, (policy, fill): &Scheme, x: u32) -> Point {
        Point { fill: *fill, known_loss: *fill, ..(self.at)(base, policy, x) }
    }

    /// Returns the point for a shorter run.
    fn brief(&self, base: &Base, scheme: &Scheme, x: u32) -> Point {
        let Period { from, to } = base.period;
        Point { period: Period { from: from / 4, to: to / 3 }, ..self.point(base, scheme, x) }
    }

    fn auto(&self, base: &Base, x: u32) -> Point {
        (self.at)(base, AUTO, x)
    }
}

/// Returns the points at which every scheme is tried once.
pub(super) fn screening(base: &Base, plans: &[Plan]) -> BTreeSet<Point> {
    let schemes = schemes(plans);
    let mut points = BTreeSet::new();
    for sweep in &SWEEPS {
        for &x in sweep.screened {
            points.extend(schemes.iter().map(|scheme| sweep.brief(base, scheme, x)));
        }
    }
    points
}

/// Returns the points of `auto` itself.
pub(super) fn own_points(base: &Base) -> BTreeSet<Point> {
    SWEEPS.iter().flat_map(|sweep| sweep.xs.iter().map(|&x| sweep.auto(base, x))).collect()
}

/// Returns the approximate number of [`finalists`], before they are known.
pub(super) fn expected_finalists() -> u64 {
    SWEEPS.iter().map(|sweep| sweep.xs.len() as u64 * (BEST as u64 + 1)).sum()
}

/// Returns the points of the schemes that were best in the screening, and of the best with
/// `+notify`.
pub(super) fn finalists(
    base: &Base,
    plans: &[Plan],
    screened: &Outcomes<Point>,
) -> BTreeSet<Point> {
    let schemes = schemes(plans);
    let mut points = BTreeSet::new();
    for sweep in &SWEEPS {
        let best_at = |x: u32| {
            let tried = schemes.iter().map(|scheme| {
                let delay = delay(screened, &sweep.brief(base, scheme, x)).mean;
                (delay, scheme)
            });
            let mut tried: Vec<(f64, &Scheme)> = tried.collect();
            tried.sort_by(|a, b| a.0.total_cmp(&b.0));
            // Schemes with identical results count once.
            tried.dedup_by(|a, b| a.0.to_bits() == b.0.to_bits());
            tried.into_iter().map(|(_, scheme)| scheme.clone()).collect::<Vec<Scheme>>()
        };
        for &x in sweep.xs {
            let (below, above) = neighbours(sweep.screened, x);
            let (best, more) = (best_at(below), best_at(above));
            let mut chosen: Vec<Scheme> = if below == above {
                best.iter().take(BEST).cloned().collect()
            } else {
                best.first().into_iter().chain(more.first()).cloned().collect()
            };
            chosen.extend(best.first().filter(|_| below == above).map(notifying));
            points.extend(chosen.iter().map(|scheme| sweep.point(base, scheme, x)));
        }
    }
    points
}

/// Returns the nearest values on both sides of `x`, or `x` twice.
fn neighbours(of: &[u32], x: u32) -> (u32, u32) {
    let below = of.iter().copied().filter(|&other| other <= x).max().unwrap_or(x);
    let above = of.iter().copied().filter(|&other| other >= x).min().unwrap_or(x);
    (below, above)
}

/// Returns the same scheme with notification, or without it if it has it.
fn notifying((policy, fill): &Scheme) -> Scheme {
    let other = match policy.strip_suffix("+notify") {
        Some(without) => without.to_owned(),
        None => format!("{policy}+notify"),
    };
    (other, *fill)
}

/// Results of a scheme.
#[derive(Clone, Copy, Debug)]
struct Measured {
    delay: Estimate,
    delay_99: Estimate,
}

impl Measured {
    fn of(outcomes: &Outcomes<Point>, point: &Point) -> Measured {
        let delay_99 = estimate(outcomes, point, |outcome: &Outcome| outcome.delay_99);
        Measured { delay: delay(outcomes, point), delay_99 }
    }
}

/// `auto` and the best scheme that ran in full at the same place.
#[derive(Debug)]
struct Contest {
    x: u32,
    auto: Measured,
    best: Measured,
    scheme: String,
}

impl Contest {
    fn of(sweep: &Sweep, base: &Base, x: u32, outcomes: &Outcomes<Point>) -> Option<Contest> {
        let own = sweep.auto(base, x);
        let rivals = outcomes.keys().filter(|point| is_rival(point, &own));
        let measured = rivals.map(|point| (Measured::of(outcomes, point), point));
        let (best, point) = measured.min_by(|a, b| a.0.delay.mean.total_cmp(&b.0.delay.mean))?;
        let scheduler = if point.fill { ", R/(Q/fill)" } else { "" };
        let scheme = format!("{}{scheduler}", named(&point.policy));
        Some(Contest { x, auto: Measured::of(outcomes, &own), best, scheme })
    }

    fn of_means(&self) -> f64 {
        self.auto.delay.mean / self.best.delay.mean
    }

    fn of_tails(&self) -> f64 {
        self.auto.delay_99.mean / self.best.delay_99.mean
    }
}

/// Returns whether a point has the same setting as `own`, one of the paper's schemes set by hand,
/// and ran in full.
fn is_rival(point: &Point, own: &Point) -> bool {
    let exact = point.policy.contains("no-ecc");
    // The schemes of Figure 9 also know every client's loss.
    let knowing = point.known_loss != point.fill;
    let in_full = point.period == own.period || point.period == own.period.stretched();
    let same_place = Point {
        policy: own.policy.clone(),
        fill: false,
        known_loss: false,
        period: own.period,
        ..point.clone()
    } == *own;
    point.policy != AUTO && !exact && !knowing && in_full && same_place
}

/// Returns the points of a sweep.
fn contests(sweep: &Sweep, base: &Base, outcomes: &Outcomes<Point>) -> Vec<Contest> {
    sweep.xs.iter().filter_map(|&x| Contest::of(sweep, base, x, outcomes)).collect()
}

/// Returns the rows of the table.
pub(super) fn rows(base: &Base, outcomes: &Outcomes<Point>) -> Vec<Row> {
    SWEEPS.iter().flat_map(|sweep| verdicts(sweep, &contests(sweep, base, outcomes))).collect()
}

/// Returns the section of the report.
pub(super) fn section(base: &Base, plans: &[Plan], outcomes: &Outcomes<Point>) -> Section {
    let (mut panels, mut lines) = (Vec::new(), Vec::new());
    for sweep in &SWEEPS {
        let contests = contests(sweep, base, outcomes);
        panels.push(panel(sweep, &contests));
        lines.extend(contests.iter().map(|contest| line(sweep, contest)));
    }
    let head = [
        "clients",
        "best scheme set by hand",
        "its delay (s)",
        "auto (s)",
        "quotient",
        "its 99th percentile (s)",
        "auto (s)",
        "quotient",
    ];
    let head = head.map(str::to_owned).to_vec();
    let figure = Figure {
        id: FIGURE,
        title: "auto and the best scheme set by hand".to_owned(),
        panels,
        caption: "The best scheme is the one with the least mean at each point; the table above \
                  names it."
            .to_owned(),
    };
    Section {
        title: "Policy auto against schemes set by hand".to_owned(),
        text: text(plans),
        figures: vec![figure],
        tables: vec![Table { name: "auto-schemes", head, rows: lines }],
    }
}

fn text(plans: &[Plan]) -> String {
    format!(
        "auto is Umbel's default and not the paper's: the server chooses item and length of each \
         transmission by what clients gain from it, with the losses that their NAKs tell of. Here it \
         meets the schemes of Figures 3 to 8 and 11 and a grid between them: FEC(f)+R(p) with f of \
         {} and p of {}. Which of them is best depends on the clients; auto has nothing to be \
         set.\n\nAll {} schemes were run with one seed for a shorter time at {} points. Of those at \
         each the best {BEST} were run in full, the best also with +notify or without, and at the \
         points between them the best of either side; all curves of the figures compete, too. A \
         scheme that is nearly as good as the best may so have been missed. Schemes with \
         R/(Q/fill) are told what clients lose.",
        EXPANSIONS.join(", "),
        BOUNDS.join(", "),
        schemes(plans).len(),
        SWEEPS.iter().map(|sweep| sweep.screened.len()).sum::<usize>(),
    )
}

fn panel(sweep: &Sweep, contests: &[Contest]) -> Panel {
    let series = |name: &str, of: fn(&Contest) -> Estimate| {
        let point = |contest: &Contest| {
            let Estimate { mean, ci95 } = of(contest);
            output::Point { x: f64::from(contest.x), y: mean, ci95 }
        };
        Series { name: name.to_owned(), points: contests.iter().map(point).collect() }
    };
    Panel {
        title: sweep.title.to_owned(),
        x_label: sweep.x_label.to_owned(),
        y_label: "client delay (s)".to_owned(),
        series: vec![
            series("auto, mean", |contest| contest.auto.delay),
            series("best scheme, mean", |contest| contest.best.delay),
            series("auto, 99th percentile", |contest| contest.auto.delay_99),
            series("best scheme, 99th percentile", |contest| contest.best.delay_99),
        ],
        ..Panel::default()
    }
}

fn line(sweep: &Sweep, contest: &Contest) -> Vec<String> {
    let Contest { x, auto, best, scheme } = contest;
    let seconds = |estimate: Estimate| format!("{:.1}", estimate.mean);
    let quotient = |quotient: f64| format!("{quotient:.3}");
    vec![
        format!("{x} {}", sweep.unit),
        scheme.clone(),
        seconds(best.delay),
        seconds(auto.delay),
        quotient(contest.of_means()),
        seconds(best.delay_99),
        seconds(auto.delay_99),
        quotient(contest.of_tails()),
    ]
}

fn verdicts(sweep: &Sweep, contests: &[Contest]) -> Vec<Row> {
    let row = |what: String, aim: String, quotient: f64, most: f64| {
        Row::new(FIGURE, what, aim, (quotient, ""), (f64::NEG_INFINITY, most))
    };
    let mut rows = Vec::new();
    for contest in contests.iter().filter(|contest| sweep.better.contains(&contest.x)) {
        let what = format!("auto over {} at {} {}", contest.scheme, contest.x, sweep.unit);
        rows.push(row(what, format!("aim: at most {GAIN}"), contest.of_means(), GAIN));
    }
    let mut worst = |what: &str, of: fn(&Contest) -> f64, most: f64| {
        let Some(worst) = contests.iter().max_by(|a, b| of(a).total_cmp(&of(b))) else { return };
        let what = format!(
            "{what} of auto over the best scheme, worst at {} {}: {}",
            worst.x, sweep.unit, worst.scheme
        );
        rows.push(row(what, format!("aim: at most {most}"), of(worst), most));
    };
    worst("mean", Contest::of_means, WORST);
    worst("99th percentile", Contest::of_tails, 1.0);
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Verdict;
    use crate::repository::figures::LOSS;
    use crate::repository::figures::tests::base;
    use crate::repository::point::Share;

    fn outcome(delay: f64, delay_99: f64) -> Outcome {
        Outcome {
            delay,
            delay_99,
            clients: 1,
            unfinished: 0,
            growth: 0.0,
            settled: 0.0,
            packets: 1,
            heard: 1,
            transmissions: 1,
            retransmissions: 0,
            naks: 0,
        }
    }

    /// Outcomes in which every scheme takes 1,000 s, but one takes `other` seconds at 45 % bad
    /// clients.
    fn screened(base: &Base, plans: &[Plan], scheme: &str, other: f64) -> Outcomes<Point> {
        let points = screening(base, plans).into_iter().enumerate();
        points
            .map(|(i, point)| {
                let best = point.policy == scheme && point.bad_clients == Share::percent(45);
                let delay = if best { other } else { 1_000.0 + i as f64 };
                (point, vec![outcome(delay, delay)])
            })
            .collect()
    }

    #[test]
    fn the_best_of_the_screening_are_run_in_full_there_and_next_to_it() {
        let base = base();
        let plans = base.plans();
        let screened = screened(&base, &plans, "FEC(0.25)+R(5)", 500.0);
        let finalists = finalists(&base, &plans, &screened);
        let with = |policy: &str, x: u32| finalists.contains(&base.mixed(policy, x));
        for x in [20, 45, 60] {
            assert!(with("FEC(0.25)+R(5)", x), "{x}");
        }
        assert!(with("FEC(0.25)+R(5)+notify", 45));
        assert!(!with("FEC(0.25)+R(5)", 10) && !with("FEC(0.25)+R(5)", 100));
        assert!(finalists.len() as u64 <= expected_finalists());
    }

    #[test]
    fn auto_meets_the_best_of_its_own_place_only() {
        let base = base();
        let at = |policy: &str, x| base.mixed(policy, x);
        let mut outcomes: Outcomes<Point> = [
            (at("auto", 10), 500.0, 1_400.0),
            (at("FEC(0.15)+R(3)", 10), 600.0, 1_300.0),
            (at("R(0)", 10), 700.0, 1_200.0),
            (at("R(0)", 25), 100.0, 100.0),
            (at("R(0)+no-ecc", 10), 100.0, 100.0),
            (Point { known_loss: true, ..at("FEC(maxloss)+R(0)", 10) }, 100.0, 100.0),
            (SWEEPS[0].brief(&base, &("R(0)".to_owned(), false), 10), 100.0, 100.0),
        ]
        .map(|(point, delay, delay_99)| (point, vec![outcome(delay, delay_99)]))
        .into();
        let contest = Contest::of(&SWEEPS[0], &base, 10, &outcomes).unwrap();
        assert_eq!(contest.scheme, "FEC(0.15)+R(3)");
        let rows = verdicts(&SWEEPS[0], &[contest]);
        let verdict: Vec<Verdict> = rows.iter().map(Row::verdict).collect();
        // 17 % better on average, with a longer tail.
        assert_eq!(verdict, [Verdict::Ok, Verdict::Ok, Verdict::Miss]);
        let fill = Point { fill: true, known_loss: true, ..at("R(0)", 10) };
        outcomes.insert(fill, vec![outcome(550.0, 1_500.0)]);
        let contest = Contest::of(&SWEEPS[0], &base, 10, &outcomes).unwrap();
        assert_eq!(contest.scheme, "R(0), R/(Q/fill)");
    }

    #[test]
    fn points_between_screened_ones_have_two_neighbours() {
        assert_eq!(neighbours(&[0, 10, 25], 10), (10, 10));
        assert_eq!(neighbours(&[0, 10, 25], 20), (10, 25));
    }

    #[test]
    fn every_axis_begins_and_ends_with_a_screened_point() {
        for sweep in &SWEEPS {
            assert_eq!(sweep.xs.first(), sweep.screened.first());
            assert_eq!(sweep.xs.last(), sweep.screened.last());
            assert!(sweep.screened.iter().all(|x| sweep.xs.contains(x)));
            assert!(sweep.better.iter().all(|x| sweep.xs.contains(x)));
        }
        let figures: Vec<u32> = LOSS.iter().copied().chain([20, 30]).collect();
        assert_eq!(SWEEPS[1].xs, figures);
    }
}
