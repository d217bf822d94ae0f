//! Which numbers of the figures hinge on values that the paper does not give.

use std::collections::BTreeSet;

use super::figures::{self, Results, UNRESPONSIVE};
use super::scenario::{Load, Outcome, Queues, Rule, SERVER_ACKS, Scenario};
use super::{Other, sections, verdicts};
use crate::output::{Row, Section};
use crate::pool::{Experiment, Outcomes};
use crate::sensitivity::{Change, Sensitivity};

/// Figures and parts whose numbers are judged.
const FIGURES: [u32; 2] = [5, 7];
const PARTS: [Other; 3] = [Other::Acks, Other::Loss, Other::Relay];

/// A scenario with other values in the place of chosen ones.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Varied {
    scenario: Scenario,
    queues: Queues,
}

impl Experiment for Varied {
    type Outcome = Outcome;

    const RUNS: &'static str = "sensitivity-runs";

    fn run(&self, seed: u64) -> Outcome {
        self.scenario.run_with(self.queues, seed)
    }

    fn work(&self) -> u64 {
        self.scenario.work()
    }
}

fn unchanged(scenario: &Scenario) -> Varied {
    Varied { scenario: *scenario, queues: Queues::default() }
}

/// Returns a scenario with another limit of the server, if it has one.
fn with_limit(scenario: &Scenario, acks: u32) -> Varied {
    let server_acks = scenario.server_acks.map(|_| acks);
    unchanged(&Scenario { server_acks, ..*scenario })
}

/// Returns a scenario with another queue of ACKs, if there is one.
fn with_ack_queue(scenario: &Scenario, acks: u32) -> Varied {
    let queues = Queues { acks, ..Queues::default() };
    Varied {
        queues: scenario.server_acks.map_or_else(Queues::default, |_| queues),
        ..unchanged(scenario)
    }
}

fn with_link_queue(scenario: &Scenario, link: u32) -> Varied {
    Varied { queues: Queues { link, ..Queues::default() }, ..unchanged(scenario) }
}

/// Returns a scenario with another length of its file, in percent. The length of streams of frames
/// is the paper's.
fn with_file(scenario: &Scenario, percent: u32) -> Varied {
    let load = match scenario.load {
        Load::Bulk(segments) => Load::Bulk(segments * percent / 100),
        Load::Frames(..) | Load::For(_) => scenario.load,
    };
    unchanged(&Scenario { load, ..*scenario })
}

/// Returns a scenario with another round trip, if it is the one that was chosen.
fn with_rtt(scenario: &Scenario, rtt_us: u32) -> Varied {
    let is_chosen = scenario.rtt_us == Scenario::lan(1, scenario.load).rtt_us;
    unchanged(&Scenario { rtt_us: if is_chosen { rtt_us } else { scenario.rtt_us }, ..*scenario })
}

/// Returns a scenario with another playout delay, if it has one.
fn with_playout(scenario: &Scenario, ms: u32) -> Varied {
    unchanged(&Scenario { real_time_ms: scenario.real_time_ms.map(|_| ms), ..*scenario })
}

const LIMIT: &str = "ACKs that the server processes: 55,000/s";
const ACK_QUEUE: &str = "ACKs that wait at the server: 8,192";
const LINK_QUEUE: &str = "packets that wait for a link: 2,000";
const FILE: &str = "length of a file: 1,000 and 1,500 segments";
const RTT: &str = "round trip of the LAN: 0.4 ms";
const PLAYOUT: &str = "playout delay: 1 s";

/// What is varied.
const CHANGES: &[Change<Scenario, Varied>] = &[
    Change { value: LIMIT, other: "50,000/s", is_lower: true, apply: |of| with_limit(of, 50_000) },
    Change { value: LIMIT, other: "60,000/s", is_lower: false, apply: |of| with_limit(of, 60_000) },
    Change {
        value: ACK_QUEUE,
        other: "2,048",
        is_lower: true,
        apply: |of| with_ack_queue(of, 2_048),
    },
    Change {
        value: ACK_QUEUE,
        other: "32,768",
        is_lower: false,
        apply: |of| with_ack_queue(of, 32_768),
    },
    Change {
        value: LINK_QUEUE,
        other: "500",
        is_lower: true,
        apply: |of| with_link_queue(of, 500),
    },
    Change {
        value: LINK_QUEUE,
        other: "8,000",
        is_lower: false,
        apply: |of| with_link_queue(of, 8_000),
    },
    Change { value: FILE, other: "half of it", is_lower: true, apply: |of| with_file(of, 50) },
    Change { value: FILE, other: "twice as much", is_lower: false, apply: |of| with_file(of, 200) },
    Change { value: RTT, other: "0.2 ms", is_lower: true, apply: |of| with_rtt(of, 200) },
    Change { value: RTT, other: "0.8 ms", is_lower: false, apply: |of| with_rtt(of, 800) },
    Change { value: PLAYOUT, other: "0.5 s", is_lower: true, apply: |of| with_playout(of, 500) },
    Change { value: PLAYOUT, other: "2 s", is_lower: false, apply: |of| with_playout(of, 2_000) },
];

/// Returns whether a number that is judged may rest on a scenario.
fn is_judged(scenario: &Scenario) -> bool {
    let is_rule = scenario.rule == Rule::Strict || scenario.rule == UNRESPONSIVE;
    is_rule && scenario.server_acks == Some(SERVER_ACKS)
}

/// Returns what is run: what the judged numbers of Figures 5 and 7, of ACKs, losses and relays rest
/// on, each with this percentage of its length.
pub(super) fn sensitivity(seeds: u32, percent: u32) -> Sensitivity<Scenario, Varied> {
    let figures = FIGURES.into_iter().flat_map(figures::scenarios);
    let parts = PARTS.into_iter().flat_map(sections::scenarios);
    let all: BTreeSet<Scenario> = figures.chain(parts).filter(is_judged).collect();
    let experiments = all.into_iter().map(|scenario| scenario.shortened(percent)).collect();
    Sensitivity { experiments, unchanged, changes: CHANGES, seeds }
}

/// Returns the section of the report.
pub(super) fn section(
    sensitivity: &Sensitivity<Scenario, Varied>,
    percent: u32,
    outcomes: &Outcomes<Varied>,
) -> Section {
    let scope = "What lies beyond the paper is not varied, and neither are constants of the engine: \
                 they are those of the program.";
    sensitivity.section(outcomes, scope, |outcomes| rows(&Results { outcomes, percent }))
}

/// Returns the numbers that are judged.
fn rows(results: &Results<'_>) -> Vec<Row> {
    let figures = FIGURES.map(|number| figures::figure(number, results));
    let parts = PARTS.into_iter().flat_map(|part| verdicts::section(part, results));
    verdicts::rows(&figures, results).into_iter().chain(parts).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::Pool;

    #[test]
    fn what_is_varied_concerns_the_scenarios_that_have_it() {
        let file = figures::file(10, 2, true).shortened(2);
        assert_eq!(unchanged(&file).run(3), file.run(3));
        let same = |scenario: &Scenario| {
            let is_same = |change: &&Change<Scenario, Varied>| {
                (change.apply)(scenario) == unchanged(scenario)
            };
            CHANGES.iter().filter(is_same).map(|change| change.value).collect::<BTreeSet<&str>>()
        };
        assert_eq!(same(&file), [PLAYOUT].into());
        assert_eq!(same(&figures::video(20, 2)), [FILE, RTT].into());
        assert_ne!(with_link_queue(&file, 1).queues, Queues::default());
    }

    #[test]
    fn every_judged_number_has_what_it_rests_on() {
        let sensitivity = sensitivity(1, 1);
        let runs = sensitivity.experiments.iter().map(|one| (*one, 1)).collect();
        let outcomes = Pool::of(2).run_all(&runs, &());
        let rows = rows(&Results { outcomes: &outcomes, percent: 1 });
        assert_eq!(rows.len(), 17);
        assert!(rows.iter().all(|row| row.measured.is_finite()), "{rows:?}");
    }
}
