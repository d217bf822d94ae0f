//! Which numbers of the figures hinge on the readings of the paper that were chosen or fitted.

use std::collections::BTreeSet;
use std::time::Duration;

use super::choices::{Arrivals, Audience, Choices, Wants};
use super::figures::{Base, Plan, points};
use super::point::{Outcome, Period, Point};
use super::verdicts;
use crate::output::{Row, Section};
use crate::pool::Outcomes;
use crate::sensitivity::{Change, Sensitivity};

/// Returns a point with other choices.
fn with(point: &Point, change: impl FnOnce(&mut Choices)) -> Point {
    let mut changed = point.clone();
    change(&mut changed.choices);
    changed
}

/// What is varied: every choice of the report.
const CHANGES: &[Change<Point, Point>] = &[
    Change {
        value: "NAKs are gathered for 15 s (fitted)",
        other: "7.5 s",
        is_lower: true,
        apply: |point| with(point, |choices| choices.gather = Duration::from_millis(7_500)),
    },
    Change {
        value: "NAKs are gathered for 15 s (fitted)",
        other: "30 s",
        is_lower: false,
        apply: |point| with(point, |choices| choices.gather = Duration::from_secs(30)),
    },
    Change {
        value: "for all of that time: yes",
        other: "no",
        is_lower: false,
        apply: |point| with(point, |choices| choices.gather_fully = false),
    },
    Change {
        value: "who hears a retransmission: everyone",
        other: "those who sent NAKs",
        is_lower: false,
        apply: |point| with(point, |choices| choices.audience = Audience::Naks),
    },
    Change {
        value: "any NAK joins one that is gathered: yes",
        other: "no",
        is_lower: false,
        apply: |point| with(point, |choices| choices.join = false),
    },
    Change {
        value: "the channel waits for NAKs: no",
        other: "yes",
        is_lower: false,
        apply: |point| with(point, |choices| choices.wait = true),
    },
    Change {
        value: "retransmissions are expanded: no",
        other: "yes",
        is_lower: false,
        apply: |point| with(point, |choices| choices.expand_repairs = true),
    },
    Change {
        value: "arrivals: regular",
        other: "Poisson",
        is_lower: false,
        apply: |point| with(point, |choices| choices.arrivals = Arrivals::Poisson),
    },
    Change {
        value: "items that a client wants: binomial",
        other: "always 9",
        is_lower: true,
        apply: |point| with(point, |choices| choices.wants = Wants::Fixed),
    },
    Change {
        value: "items that a client wants: binomial",
        other: "1 to 17",
        is_lower: false,
        apply: |point| with(point, |choices| choices.wants = Wants::Uniform),
    },
];

/// Returns the base of the points: half of the time of the figures.
fn short(base: &Base) -> Base {
    let Period { from, to } = base.period;
    Base { period: Period { from: from / 2, to: to / 2 }, ..*base }
}

/// Returns the numbers of the figures' table.
fn rows(plans: &[Plan], outcomes: &Outcomes<Point>) -> Vec<Row> {
    verdicts::rows(&plans.iter().map(|plan| plan.figure(outcomes)).collect::<Vec<_>>())
}

/// Number of draws by which [`decisive`] looks for what numbers rest on.
const DRAWS: u32 = 8;

/// Returns the points on which a number of the table rests; the others are only drawn. A number
/// rests on a point if it changes with its delay, at some delays of the others.
fn decisive(plans: &[Plan]) -> BTreeSet<Point> {
    let mut found = BTreeSet::new();
    // Numbers belong to one figure each.
    for plan in plans.chunks(1) {
        let all = points(plan);
        for draw in 0..DRAWS {
            // Multiples of the golden ratio spread evenly over 1 to 2.
            let drawn = |n: u32| 1.0 + (f64::from(n) * f64::from(draw) * 0.618_034).fract();
            let delays = all.iter().cloned().zip((1..).map(|n| at(drawn(n))));
            let mut outcomes: Outcomes<Point> = delays.collect();
            let numbers = numbers(plan, &outcomes);
            for point in &all {
                for other in [0.5, 2.5] {
                    let kept = outcomes.insert(point.clone(), at(other));
                    if self::numbers(plan, &outcomes) != numbers {
                        found.insert(point.clone());
                    }
                    outcomes.extend(kept.map(|kept| (point.clone(), kept)));
                }
            }
        }
    }
    found
}

/// Returns runs with this delay.
fn at(delay: f64) -> Vec<Outcome> {
    vec![Outcome { delay, ..Outcome::default() }]
}

/// Returns the numbers of the table, to compare all of their digits.
fn numbers(plans: &[Plan], outcomes: &Outcomes<Point>) -> Vec<u64> {
    rows(plans, outcomes).iter().map(|row| row.measured.to_bits()).collect()
}

/// Returns what is run: the points of all figures on which numbers rest, for half of their time.
pub(super) fn sensitivity(base: &Base, seeds: u32) -> Sensitivity<Point, Point> {
    let experiments = decisive(&short(base).plans());
    Sensitivity { experiments, unchanged: Clone::clone, changes: CHANGES, seeds }
}

/// Returns the section of the report.
pub(super) fn section(
    sensitivity: &Sensitivity<Point, Point>,
    base: &Base,
    outcomes: &Outcomes<Point>,
) -> Section {
    let plans = short(base).plans();
    let scope = "These runs take half of the time of the figures\'. Where options of the command \
                 line replace a choice, the names of the values here are still those of the defaults.";
    sensitivity.section(outcomes, scope, |outcomes| rows(&plans, outcomes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::figures::tests::base;

    #[test]
    fn every_change_makes_another_point_of_each() {
        let sensitivity = sensitivity(&base(), 5);
        for change in CHANGES {
            for point in &sensitivity.experiments {
                assert_ne!((change.apply)(point), *point, "{}, {}", change.value, change.other);
            }
        }
        let points = sensitivity.experiments.len();
        assert_eq!(sensitivity.runs().len(), points * (CHANGES.len() + 1));
    }

    #[test]
    fn what_is_only_drawn_is_not_varied() {
        let base = base();
        let plans = base.plans();
        let decisive = decisive(&plans);
        let (all, number) = (points(&plans).len(), decisive.len());
        assert!(number * 2 < all, "{number} of {all}");
        // A delay of its own, the ends of a crossing, a place in "across the plot".
        let knowing = |bad| Point { known_loss: true, ..base.mixed("FEC(maxloss)+R(0)", bad) };
        for point in [
            base.alike("R(10)", 0, 2),
            base.alike("R(0)", 0, 1),
            base.alike("R(inf)", 0, 12),
            knowing(0),
            knowing(60),
        ] {
            assert!(decisive.contains(&point), "{point}");
        }
        for point in [base.alike("R(3)", 0, 12), base.mixed("FEC(0.1)+R(inf)", 30)] {
            assert!(points(&plans).contains(&point) && !decisive.contains(&point), "{point}");
        }
        // Without the others all numbers are the same.
        let all = points(&plans);
        let delays = all.into_iter().zip((1_u32..).map(|n| at(500.0 + f64::from(n * 37 % 101))));
        let everything: Outcomes<Point> = delays.collect();
        let mut needed = everything.clone();
        needed.retain(|point, _| decisive.contains(point));
        assert_eq!(numbers(&plans, &needed), numbers(&plans, &everything));
    }
}
