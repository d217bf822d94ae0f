//! Which numbers of the figures hinge on the readings of the paper that were chosen or fitted.

use std::time::Duration;

use super::choices::{Arrivals, Audience, Choices, Wants};
use super::figures::{Base, points};
use super::point::{Period, Point};
use super::verdicts;
use crate::output::Section;
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

/// Returns what is run: all figures, for half of their time.
pub(super) fn sensitivity(base: &Base, seeds: u32) -> Sensitivity<Point, Point> {
    let experiments = points(&short(base).plans());
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
    sensitivity.section(outcomes, scope, |outcomes| {
        verdicts::rows(&plans.iter().map(|plan| plan.figure(outcomes)).collect::<Vec<_>>())
    })
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
}
