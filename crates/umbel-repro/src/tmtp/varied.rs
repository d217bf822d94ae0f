//! Which numbers of the figures hinge on values that were chosen or fitted.

use super::transfer::{MAX_CHILDREN, Outcome, Protocol, Transfer};
use super::{LOSS, Other, RUNS_PER_SEED, figures, verdicts};
use crate::output::{Figure, Section};
use crate::part::Extra as _;
use crate::pool::{Experiment, Outcomes, Runs};
use crate::sensitivity::{Change, Sensitivity};

/// A transfer with another K.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Varied {
    transfer: Transfer,
    max_children: u16,
}

impl Experiment for Varied {
    type Outcome = Outcome;

    const RUNS: &'static str = "sensitivity-runs";

    fn run(&self, seed: u64) -> Outcome {
        self.transfer.run_with(self.max_children, seed)
    }

    fn work(&self) -> u64 {
        self.transfer.work()
    }
}

fn unchanged(transfer: &Transfer) -> Varied {
    Varied { transfer: *transfer, max_children: MAX_CHILDREN }
}

fn with_loss(transfer: &Transfer, loss: u32) -> Varied {
    unchanged(&Transfer { loss, ..*transfer })
}

/// Returns a transfer with another K, if its protocol has one.
fn with_k(transfer: &Transfer, k: u16) -> Varied {
    let has_tree = matches!(transfer.protocol, Protocol::Tmtp { .. });
    Varied { max_children: if has_tree { k } else { MAX_CHILDREN }, ..unchanged(transfer) }
}

/// What is varied.
const CHANGES: &[Change<Transfer, Varied>] = &[
    Change {
        value: "loss of a tunnel: 0.72 % (fitted)",
        other: "0.36 %",
        is_lower: true,
        apply: |transfer| with_loss(transfer, LOSS / 2),
    },
    Change {
        value: "loss of a tunnel: 0.72 % (fitted)",
        other: "1.44 %",
        is_lower: false,
        apply: |transfer| with_loss(transfer, LOSS * 2),
    },
    Change {
        value: "TMTP's window: what is sent in T_retrans",
        other: "5 packets",
        is_lower: true,
        apply: |transfer| {
            let protocol = match transfer.protocol {
                Protocol::TMTP => Protocol::TMTP_WINDOW,
                other => other,
            };
            unchanged(&Transfer { protocol, ..*transfer })
        },
    },
    Change { value: "K: 4", other: "2", is_lower: true, apply: |transfer| with_k(transfer, 2) },
    Change { value: "K: 4", other: "8", is_lower: false, apply: |transfer| with_k(transfer, 8) },
];

/// Returns what is run: both figures and the retransmissions that are judged.
pub(super) fn sensitivity(seeds: u32) -> Sensitivity<Transfer, Varied> {
    let experiments = Other::FIGURES.flat_map(figures::transfers).collect();
    Sensitivity { experiments, unchanged, changes: CHANGES, seeds }
}

/// Returns the runs: as many for a seed as in the report.
pub(super) fn runs(sensitivity: &Sensitivity<Transfer, Varied>) -> Runs<Varied> {
    let runs = sensitivity.runs().into_iter();
    runs.map(|(varied, seeds)| (varied, seeds * RUNS_PER_SEED)).collect()
}

/// Returns the section of the report.
pub(super) fn section(
    sensitivity: &Sensitivity<Transfer, Varied>,
    outcomes: &Outcomes<Varied>,
) -> Section {
    let scope = "A seed has 20 runs. The sites' distances were chosen so that the farthest is at the \
                 paper's round trip of 1 s; they are not varied.";
    sensitivity.section(outcomes, scope, |outcomes| {
        let figures = Other::FIGURES.map(|number| figures::figure(number, outcomes));
        let mut rows = verdicts::rows(&figures.collect::<Vec<Figure>>());
        rows.extend(verdicts::retransmissions(outcomes));
        rows
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_judged_retransmissions_are_among_the_transfers() {
        let sensitivity = sensitivity(1);
        let judged = Transfer { protocol: Protocol::TMTP, receivers: 30, packets: 30, loss: LOSS };
        assert!(sensitivity.experiments.contains(&judged));
        assert_eq!(unchanged(&judged).run(3), judged.run(3));
        assert!(runs(&sensitivity).values().all(|runs| *runs == RUNS_PER_SEED));
        let burst = Transfer { protocol: Protocol::BurstBasep, ..judged };
        let changed = CHANGES.iter().filter(|change| (change.apply)(&burst) != unchanged(&burst));
        assert_eq!(changed.count(), 2, "only the loss concerns a protocol without a tree");
    }
}
