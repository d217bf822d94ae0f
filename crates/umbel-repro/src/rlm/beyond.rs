//! Experiments that the paper does not have: slow leaves, bursts, losses by chance, a thousand
//! receivers, TCP connections. Another controller runs the same scenarios.

use super::figures::{estimate, mean_convergence};
use super::scenario::{CROWD, Dropping, Outcome, Rule, Scenario, Topology};
use super::tcp::Tcp;
use crate::estimate::fairness;
use crate::output::{Figure, FigureId, Panel, Point, Section, Series, Table};
use crate::pool::{Outcomes, Runs};

/// Times in milliseconds that a leave takes for each hop.
const LEAVES_MS: [u64; 5] = [0, 1_000, 2_000, 5_000, 10_000];
/// Receivers of the greatest group, which runs once.
const MANY: u32 = 1_000;
/// Numbers of TCP connections beside a session.
const CONNECTIONS: [u32; 4] = [1, 2, 4, 8];

/// A scenario and its name.
type Case = (String, Scenario);

fn shared(receivers: u32) -> Scenario {
    Scenario::new(Topology::Shared { receivers })
}

fn leaves(ms: u64) -> Scenario {
    Scenario { leave_ms: Some(ms), ..shared(10) }
}

/// Returns the compared scenarios, each of which runs with every controller.
fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for receivers in [1, 10, 100, MANY] {
        cases.push((format!("receivers: {receivers}"), shared(receivers)));
    }
    for ms in [100, 500, 2_000] {
        let scenario = Scenario { latency_us: ms * 1_000, ..shared(1) };
        cases.push((format!("1 receiver, latency {ms} ms"), scenario));
    }
    let topology = Topology::Classes { receivers: 20 };
    cases.push(("20 receivers of two classes".to_owned(), Scenario::new(topology)));
    for pairs in [2, 8] {
        let scenario = Scenario::new(Topology::Sessions { pairs });
        cases.push((format!("{pairs} sessions"), scenario));
    }
    for ms in LEAVES_MS {
        cases.push((format!("10 receivers, leaves take {ms} ms"), leaves(ms)));
    }
    for receivers in [1, 10, 100] {
        let scenario = Scenario { dropping: Dropping::Preference, ..shared(receivers) };
        cases.push((format!("receivers: {receivers}, higher layers dropped first"), scenario));
    }
    for tenths in [15, 20, 30] {
        let scenario = Scenario { peak_tenths: Some(tenths), ..shared(10) };
        cases.push((
            format!("10 receivers, bursts of {} times", f64::from(tenths) / 10.0),
            scenario,
        ));
    }
    for permille in [1, 5, 20] {
        let scenario = Scenario { loss_permille: permille, ..shared(1) };
        let percent = f64::from(permille) / 10.0;
        cases.push((format!("1 receiver, {percent} % lost by chance"), scenario));
    }
    cases
}

/// Returns the scenarios with TCP connections, each of which runs with every controller.
fn companies() -> Vec<(Tcp, u32, Scenario)> {
    let company = |tcp, connections| Scenario::new(Topology::Beside { connections, tcp });
    Tcp::ALL
        .into_iter()
        .flat_map(|tcp| CONNECTIONS.map(|count| (tcp, count, company(tcp, count))))
        .collect()
}

/// Returns the runs. The greatest group runs once.
pub(super) fn runs(seeds: u32) -> Runs<Scenario> {
    let alone = cases().into_iter().map(|(_, scenario)| scenario);
    let companies = companies().into_iter().map(|(.., scenario)| scenario);
    let seeds = |scenario: Scenario| if scenario.receivers() >= MANY { 1 } else { seeds };
    alone.chain(companies).flat_map(with_both).map(|scenario| (scenario, seeds(scenario))).collect()
}

/// Returns the runs of the crowd, one of each.
pub(super) fn crowd_runs() -> Runs<Scenario> {
    with_both(shared(CROWD)).map(|scenario| (scenario, 1)).into()
}

/// Returns a scenario with each controller.
fn with_both(scenario: Scenario) -> [Scenario; 2] {
    Rule::ALL.map(|rule| Scenario { rule, ..scenario })
}

/// Returns the sections.
pub(super) fn sections(outcomes: &Outcomes<Scenario>) -> Vec<Section> {
    vec![side_by_side(outcomes), beside_tcp(outcomes)]
}

fn beside_tcp(outcomes: &Outcomes<Scenario>) -> Section {
    let mut rows = Vec::new();
    for (tcp, connections, scenario) in companies() {
        for rule in Rule::ALL {
            let scenario = Scenario { rule, ..scenario };
            let cell = |value: &dyn Fn(&Outcome) -> f64, digits: usize| {
                let estimate = estimate(outcomes, scenario, value);
                format!("{:.digits$} ± {:.digits$}", estimate.mean, estimate.ci95)
            };
            rows.push(vec![
                format!("{connections} {}", tcp.name()),
                rule.name().to_owned(),
                cell(&|outcome| mean(&outcome.rates) / 1000.0, 0),
                cell(&|outcome| mean(&outcome.others) / 1000.0, 0),
                cell(&share, 2),
                cell(&|outcome| fairness(&all_flows(outcome)), 2),
                cell(&|outcome| outcome.level, 2),
                cell(&|outcome| outcome.loss * 100.0, 2),
                cell(&|outcome| outcome.worst[1] * 100.0, 1),
                cell(&|outcome| outcome.utilisation * 100.0, 0),
            ]);
        }
    }
    let head = [
        "TCP connections",
        "controller",
        "RLM (kb/s)",
        "mean TCP (kb/s)",
        "RLM over a mean TCP",
        "Jain index",
        "mean level",
        "RLM's loss (%)",
        "worst in 10 s (%)",
        "link used (%)",
    ];
    let table = Table { name: "tcp", head: head.map(str::to_owned).into(), rows };
    Section {
        title: "Beside TCP connections".to_owned(),
        text: "One session of RLM with one receiver, and TCP connections that always have something \
               to send, over a bottleneck of 1.5 Mb/s with a queue of 20 packets; drop-tail. Three \
               links of 10 ms: the round trip is 60 ms without the queue, 167 ms with a full one. \
               Segments are as long as packets, 1,000 bytes. Rates are those of packets, headers \
               included, in the last four of ten minutes; losses are those of the whole time. A fair \
               share carries level 4 (480 kb/s) beside one or two connections, 3 (224 kb/s) beside \
               four, 2 (96 kb/s) beside eight. Means and 95 % confidence intervals."
            .to_owned(),
        figures: Vec::new(),
        tables: vec![table],
    }
}

/// Returns the rates of all flows over the bottleneck.
fn all_flows(outcome: &Outcome) -> Vec<f64> {
    outcome.rates.iter().chain(&outcome.others).copied().collect()
}

/// Returns the rate of the session over that of a mean TCP connection.
fn share(outcome: &Outcome) -> f64 {
    mean(&outcome.rates) / mean(&outcome.others)
}

/// Returns the section on the crowd.
pub(super) fn crowd(outcomes: &Outcomes<Scenario>) -> Section {
    let case = (format!("receivers: {CROWD}"), shared(CROWD));
    Section {
        title: format!("{CROWD} receivers"),
        text:
            "The same network as in the group of 1,000, and one run with each controller, of five \
               minutes instead of ten, so that there are no intervals."
                .to_owned(),
        figures: Vec::new(),
        tables: vec![compared("crowd", vec![case], outcomes)],
    }
}

/// Returns a table of scenarios with each controller.
fn compared(name: &'static str, cases: Vec<Case>, outcomes: &Outcomes<Scenario>) -> Table {
    let mut rows = Vec::new();
    for (name, scenario) in cases {
        for scenario in with_both(scenario) {
            let cell = |value: &dyn Fn(&Outcome) -> f64| {
                format!("{:.2}", estimate(outcomes, scenario, value).mean)
            };
            let mut row = vec![name.clone(), scenario.rule.name().to_owned()];
            row.extend((0..3).map(|n| cell(&|outcome| outcome.worst[n] * 100.0)));
            row.push(cell(&|outcome| outcome.loss * 100.0));
            row.push(cell(&mean_convergence));
            row.push(cell(&converged));
            row.push(cell(&|outcome| mean(&outcome.rates) / 1000.0));
            row.push(cell(&longest_failure));
            row.push(cell(&|outcome| fairness(&outcome.rates)));
            rows.push(row);
        }
    }
    let head = [
        "scenario",
        "controller",
        "worst loss in 1 s (%)",
        "in 10 s (%)",
        "in 100 s (%)",
        "all loss (%)",
        "time to the best level (s)",
        "converged (%)",
        "rate (kb/s)",
        "longest failed experiment (s)",
        "fairness",
    ];
    Table { name, head: head.map(str::to_owned).into(), rows }
}

fn side_by_side(outcomes: &Outcomes<Scenario>) -> Section {
    Section {
        title: "Beyond the paper".to_owned(),
        text: format!(
            "The paper's controller (rlm) beside one that ends an experiment when the queueing delay \
             rises (delay), on the same scenarios; means. The delay of links is 10 ms, the \
             bottleneck 1.5 Mb/s with a queue of 20 packets, unless stated. Best are five layers, 992 kb/s. \
             With sessions there is no best level. The group of {MANY} ran once.\n\n\
             A leave of 0 ms takes no time; else each hop takes as long as said, during which the \
             packets go on. Where higher layers are dropped first, a layer finds less room in the queue \
             the higher it is. Bursts: in each second a layer sends one packet, or with probability \
             1/P about P times its mean."
        ),
        figures: vec![leave_figure(outcomes)],
        tables: vec![compared("beyond", cases(), outcomes)],
    }
}

fn leave_figure(outcomes: &Outcomes<Scenario>) -> Figure {
    let series = Rule::ALL.into_iter().flat_map(|rule| {
        [(1, "10 s"), (2, "100 s")].map(|(window, name)| {
            let points = LEAVES_MS.map(|ms| {
                let scenario = Scenario { rule, ..leaves(ms) };
                let worst = estimate(outcomes, scenario, |outcome| outcome.worst[window] * 100.0);
                Point { x: ms as f64 / 1000.0, y: worst.mean, ci95: worst.ci95 }
            });
            Series { name: format!("{} {name}", rule.name()), points: points.into() }
        })
    });
    let panel = Panel {
        title: String::new(),
        x_label: "time that a leave takes for each hop (s)".to_owned(),
        y_label: "worst loss (%)".to_owned(),
        series: series.collect(),
        ..Panel::default()
    };
    Figure {
        id: FigureId::Beyond(1),
        title: "Leave latency".to_owned(),
        panels: vec![panel],
        caption: "Ten receivers. Routers that ask twice before they stop a group need 2 s."
            .to_owned(),
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns the percentage of receivers that reached and kept their best level.
fn converged(outcome: &Outcome) -> f64 {
    let times = &outcome.convergence;
    times.iter().filter(|time| time.is_finite()).count() as f64 / times.len() as f64 * 100.0
}

/// Returns the duration of the longest failed experiment of the first receiver; 0 if none failed.
fn longest_failure(outcome: &Outcome) -> f64 {
    let failed = outcome.experiments.iter().filter(|(.., stays)| !stays);
    failed.map(|&(_, duration, _)| duration).fold(0.0, f64::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scenario_runs_with_both_controllers() {
        let runs = runs(3);
        assert_eq!(runs.len(), 2 * (cases().len() + companies().len()));
        let once = runs.values().filter(|seeds| **seeds == 1).count();
        assert_eq!(once, 2);
        assert!(crowd_runs().keys().all(|scenario| scenario.receivers() == CROWD));
    }
}
