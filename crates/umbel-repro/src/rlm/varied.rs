//! Which numbers of the figures hinge on values that the paper does not give.

use super::scenario::{Choices, Dropping, Outcome, Scenario};
use super::{Other, figures, verdicts};
use crate::output::{Figure, Section};
use crate::part::Extra as _;
use crate::pool::{Experiment, Outcomes};
use crate::sensitivity::{Change, Sensitivity};

/// A scenario with other values in the place of chosen ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Varied {
    scenario: Scenario,
    choices: Choices,
}

impl Experiment for Varied {
    type Outcome = Outcome;

    const RUNS: &'static str = "sensitivity-runs";

    fn run(&self, seed: u64) -> Outcome {
        self.scenario.run_with(&self.choices, seed)
    }

    fn work(&self) -> u64 {
        self.scenario.work()
    }
}

fn with(scenario: &Scenario, choices: Choices) -> Varied {
    Varied { scenario: *scenario, choices }
}

fn unchanged(scenario: &Scenario) -> Varied {
    with(scenario, Choices::default())
}

/// Returns a scenario with another weight, if its queue has one.
fn with_weight(scenario: &Scenario, red_permille: u32) -> Varied {
    match scenario.dropping {
        Dropping::Red => with(scenario, Choices { red_permille, ..Choices::default() }),
        Dropping::Tail | Dropping::Preference => unchanged(scenario),
    }
}

const THRESHOLD: &str = "lasting loss that drops a layer: 10 %";
const DETECTION: &str = "detection-time at first: 2 s ± 0.5 s (fitted)";
const EXPECTED: &str = "packets before loss is judged: 20";
const FORGONE: &str = "experiments forgone in a row: 8";
const REORDERING: &str = "a packet is lost after: 3 later ones or 100 ms";
const LAPSE: &str = "lapse that still keeps a level: 10 s";
const WEIGHT: &str = "weight of RED's average: 0.1";

/// What is varied.
const CHANGES: &[Change<Scenario, Varied>] = &[
    Change {
        value: THRESHOLD,
        other: "5 %",
        is_lower: true,
        apply: |of| with(of, Choices { loss_percent: 5, ..Choices::default() }),
    },
    Change {
        value: THRESHOLD,
        other: "25 %, as the authors' agents",
        is_lower: false,
        apply: |of| with(of, Choices { loss_percent: 25, ..Choices::default() }),
    },
    Change {
        value: DETECTION,
        other: "1 s ± 0.25 s",
        is_lower: true,
        apply: |of| with(of, Choices { detection_ms: (1_000, 250), ..Choices::default() }),
    },
    Change {
        value: DETECTION,
        other: "5 s ± 2 s, as the authors' agents",
        is_lower: false,
        apply: |of| with(of, Choices { detection_ms: (5_000, 2_000), ..Choices::default() }),
    },
    Change {
        value: EXPECTED,
        other: "10, as the authors' agents",
        is_lower: true,
        apply: |of| with(of, Choices { loss_packets: 10, ..Choices::default() }),
    },
    Change {
        value: EXPECTED,
        other: "40",
        is_lower: false,
        apply: |of| with(of, Choices { loss_packets: 40, ..Choices::default() }),
    },
    Change {
        value: FORGONE,
        other: "4",
        is_lower: true,
        apply: |of| with(of, Choices { suppressions: 4, ..Choices::default() }),
    },
    Change {
        value: FORGONE,
        other: "16",
        is_lower: false,
        apply: |of| with(of, Choices { suppressions: 16, ..Choices::default() }),
    },
    Change {
        value: REORDERING,
        other: "1 or 33 ms",
        is_lower: true,
        apply: |of| with(of, Choices { reorder: (1, 33), ..Choices::default() }),
    },
    Change {
        value: REORDERING,
        other: "6 or 200 ms",
        is_lower: false,
        apply: |of| with(of, Choices { reorder: (6, 200), ..Choices::default() }),
    },
    Change {
        value: LAPSE,
        other: "5 s",
        is_lower: true,
        apply: |of| with(of, Choices { lapse_s: 5, ..Choices::default() }),
    },
    Change {
        value: LAPSE,
        other: "20 s",
        is_lower: false,
        apply: |of| with(of, Choices { lapse_s: 20, ..Choices::default() }),
    },
    Change { value: WEIGHT, other: "0.02", is_lower: true, apply: |of| with_weight(of, 20) },
    Change { value: WEIGHT, other: "0.2", is_lower: false, apply: |of| with_weight(of, 200) },
];

/// Returns what is run: Figures 8 to 13, and random early detection.
pub(super) fn sensitivity(seeds: u32) -> Sensitivity<Scenario, Varied> {
    let figures = Other::FIGURES.flat_map(figures::scenarios);
    let experiments = figures.chain(figures::red_scenarios()).collect();
    Sensitivity { experiments, unchanged, changes: CHANGES, seeds }
}

/// Returns the section of the report.
pub(super) fn section(
    sensitivity: &Sensitivity<Scenario, Varied>,
    outcomes: &Outcomes<Varied>,
) -> Section {
    let scope = "The longest join-timer, an hour whatever the number of receivers, is not varied: a run \
                 has ten minutes. The topologies that are lost with the paper's Figure 7 were read in \
                 one way only.";
    sensitivity.section(outcomes, scope, |outcomes| {
        let figures = Other::FIGURES.map(|number| figures::figure(number, outcomes));
        let mut rows = verdicts::rows(&figures.collect::<Vec<Figure>>(), outcomes);
        rows.extend(verdicts::red(outcomes));
        rows
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rlm::scenario::Topology;

    #[test]
    fn what_is_varied_concerns_the_scenarios_that_have_it() {
        let tail = Scenario::new(Topology::Shared { receivers: 1 });
        assert_eq!(unchanged(&tail).run(3), tail.run(3));
        let same = CHANGES.iter().filter(|change| (change.apply)(&tail) == unchanged(&tail));
        assert_eq!(same.count(), 2, "the weight is that of random early detection alone");
        let red = Scenario { dropping: Dropping::Red, ..tail };
        assert!(CHANGES.iter().all(|change| (change.apply)(&red) != unchanged(&red)));
        assert_ne!(with_weight(&red, 20).run(3), red.run(3));
        assert!(sensitivity(1).experiments.contains(&red));
    }
}
