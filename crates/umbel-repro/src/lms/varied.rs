//! Which numbers of the figures hinge on values that the paper does not give.

use super::figures::Base;
use super::scenario::{Delays, Graph, Setting};
use super::schemes::{Scheme, Tuning};
use super::trial::{Outcome, Trial};
use super::verdicts;
use crate::output::{Figure, Section};
use crate::part::Extra as _;
use crate::pool::{Experiment, Outcomes};
use crate::sensitivity::{Change, Sensitivity};

/// A trial with other values in the place of chosen ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Varied {
    trial: Trial,
    tuning: Tuning,
}

impl Experiment for Varied {
    type Outcome = Outcome;

    const RUNS: &'static str = "sensitivity-runs";

    fn run(&self, seed: u64) -> Outcome {
        self.trial.run_tuned(&mut self.trial.setting.place(seed), seed, self.tuning)
    }

    fn work(&self) -> u64 {
        self.trial.work()
    }
}

fn unchanged(trial: &Trial) -> Varied {
    Varied { trial: *trial, tuning: Tuning::default() }
}

/// Returns a trial with other links. Binary trees have none that were chosen.
fn with_links(trial: &Trial, change: impl FnOnce(&mut Setting)) -> Varied {
    let mut varied = unchanged(trial);
    if !matches!(trial.setting.graph, Graph::Binary { .. }) {
        change(&mut varied.trial.setting);
    }
    varied
}

/// Returns a trial with other timers, if its scheme has them.
fn with_timers(trial: &Trial, repair_timer_percent: u32) -> Varied {
    let mut varied = unchanged(trial);
    if trial.scheme == Scheme::Srm {
        varied.tuning.repair_timer_percent = repair_timer_percent;
    }
    varied
}

/// What is varied.
const CHANGES: &[Change<Trial, Varied>] = &[
    Change {
        value: "delay of a host's link: 20 % of a mean link",
        other: "10 %",
        is_lower: true,
        apply: |trial| with_links(trial, |setting| setting.access_percent = 10),
    },
    Change {
        value: "delay of a host's link: 20 % of a mean link",
        other: "40 %",
        is_lower: false,
        apply: |trial| with_links(trial, |setting| setting.access_percent = 40),
    },
    Change {
        value: "delays of links: by their length on a plane",
        other: "all equal",
        is_lower: false,
        apply: |trial| {
            with_links(trial, |setting| {
                setting.delays = Delays::Equal;
                setting.access_percent = Delays::Equal.usual_access_percent();
            })
        },
    },
    Change {
        value: "the source as replier, random graphs: no",
        other: "yes",
        is_lower: false,
        apply: |trial| {
            let mut varied = unchanged(trial);
            let is_random = !matches!(trial.setting.graph, Graph::Binary { .. });
            varied.tuning.source_as_replier = is_random && trial.scheme == Scheme::Lms;
            varied
        },
    },
    Change {
        value: "SRM's D1 and D2: 1",
        other: "0.5",
        is_lower: true,
        apply: |trial| with_timers(trial, 50),
    },
    Change {
        value: "SRM's D1 and D2: 1",
        other: "2",
        is_lower: false,
        apply: |trial| with_timers(trial, 200),
    },
];

/// Returns what is run: all figures.
pub(super) fn sensitivity(base: Base, seeds: u32) -> Sensitivity<Trial, Varied> {
    let experiments = super::Other::FIGURES.flat_map(|figure| base.trials(figure)).collect();
    Sensitivity { experiments, unchanged, changes: CHANGES, seeds }
}

/// Returns the section of the report.
pub(super) fn section(
    sensitivity: &Sensitivity<Trial, Varied>,
    base: Base,
    outcomes: &Outcomes<Varied>,
) -> Section {
    let scope = "The kind of graphs and their number are the paper's, and not varied; neither is the \
                 rate of links, which only separates what is simultaneous.";
    sensitivity.section(outcomes, scope, |outcomes| {
        let figures = super::Other::FIGURES.filter_map(|number| base.figure(number, outcomes));
        verdicts::rows(&figures.collect::<Vec<Figure>>())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_varied_changes_results_and_nothing_else_does() {
        let setting = Setting {
            graph: Graph::Random { receivers: 5 },
            delays: Delays::Plane,
            number: 1,
            access_percent: 20,
        };
        for scheme in [Scheme::Lms, Scheme::Srm] {
            let trial = Trial { scheme, setting };
            assert_eq!(unchanged(&trial).run(2), trial.run(2));
            for change in CHANGES {
                let varied = (change.apply)(&trial);
                let is_same = varied == unchanged(&trial);
                assert_eq!(varied.run(2) == trial.run(2), is_same, "{scheme:?}: {}", change.value);
            }
        }
        let tree = Setting { graph: Graph::Binary { height: 3 }, ..setting };
        let tree = Trial { scheme: Scheme::Lms, setting: tree };
        assert!(CHANGES.iter().all(|change| (change.apply)(&tree) == unchanged(&tree)));
    }
}
