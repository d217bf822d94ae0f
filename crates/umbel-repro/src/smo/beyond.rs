//! Experiments that the paper does not have: bursts, competing connections, late receivers, one
//! that stalls, and many more receivers.

use super::figures::Results;
use super::scenario::{Load, Losses, Outcome, Rule, Scenario, Shape};
use crate::estimate::fairness;
use crate::output::{Section, Table};
use crate::pool::Runs;

/// Receivers from which on a scenario runs once.
const MANY: u32 = 10_000;
/// Mean lengths of runs of lost packets.
const RUNS: [u32; 3] = [1, 3, 8];
/// Numbers of receivers of the last table.
pub(super) const CROWDS: [u32; 4] = [1_000, 3_000, 10_000, 100_000];
/// Bounds of essential fairness that are tried.
pub(super) const BOUNDS: [(u32, u32); 2] = [(1, 2), (2, 4)];

/// Returns a session whose receivers lose 1 % in runs of this mean length.
pub(super) fn bursts(run: u32) -> Scenario {
    Scenario {
        losses: Losses::Bursts(10, run),
        rtt_us: 20_000,
        server_acks: None,
        ..Scenario::lan(50, Load::Bulk(1000))
    }
}

/// Returns a session of 20 receivers beside TCP connections.
pub(super) fn shared(connections: u32, rule: Rule, is_cubic: bool, permille: u32) -> Scenario {
    let losses = match permille {
        0 => Losses::None,
        permille => Losses::Independent(permille, 20),
    };
    Scenario {
        shape: Shape::Shared(connections),
        rule,
        is_cubic,
        losses,
        rtt_us: 40_000,
        server_acks: None,
        ..Scenario::lan(20, Load::For(60))
    }
}

/// Returns a session in which something happens.
pub(super) fn trouble(shape: Shape) -> Scenario {
    let load = match shape {
        Shape::Late => Load::Frames(1000, 10_000),
        _ => Load::Bulk(8000),
    };
    let losses = Losses::Independent(5, 100);
    Scenario { shape, losses, server_acks: None, ..Scenario::lan(100, load) }
}

/// Returns a session of very many receivers, on links of 1 Mb/s for each of them: the ACKs of a
/// full window take 0.70 of a round trip.
pub(super) fn crowd(receivers: u32) -> Scenario {
    let shape = Shape::Crowd(receivers);
    let lan = Scenario::lan(receivers, Load::Bulk(100));
    Scenario { server_acks: None, rtt_us: 20_000, shape, ..lan }
}

/// Returns the same on links of a tenth of the rate, which are too slow for the ACKs.
pub(super) fn overloaded(receivers: u32) -> Scenario {
    Scenario { shape: Shape::Crowd(receivers / 10), ..crowd(receivers) }
}

/// Returns the crowds of the table, with the rate of their links in Mb/s.
fn crowds() -> Vec<(u32, Scenario)> {
    let [.., large, _] = CROWDS;
    let mut all: Vec<_> = CROWDS.map(|receivers| (receivers, crowd(receivers))).into();
    all.push((large / 10, overloaded(large)));
    all
}

/// Returns the sessions beside others, with their names.
pub(super) fn companies() -> Vec<(String, Scenario)> {
    let mut all = Vec::new();
    for is_cubic in [false, true] {
        let kind = if is_cubic { "CUBIC" } else { "Reno" };
        for connections in [1, 3] {
            let scenario = shared(connections, Rule::Strict, is_cubic, 0);
            all.push((format!("{kind}, strict"), scenario));
        }
    }
    for permille in [0, 10] {
        let losses = if permille == 0 { "" } else { ", 1 % lost on each path" };
        for (a, b) in BOUNDS {
            let scenario = shared(1, Rule::Essential(a, b), false, permille);
            all.push((format!("Reno, a = {a}, b = {b}{losses}"), scenario));
        }
    }
    all.push((
        "Reno, strict, 1 % lost on each path".to_owned(),
        shared(1, Rule::Strict, false, 10),
    ));
    all
}

/// Returns the rate of the session over that of a mean TCP connection.
pub(super) fn ratio(outcome: &Outcome) -> f64 {
    let [session, others @ ..] = &outcome.flows[..] else { return f64::NAN };
    session / (others.iter().sum::<f64>() / others.len() as f64)
}

/// Returns the runs. The greatest crowds run once.
pub(super) fn runs(seeds: u32) -> Runs<Scenario> {
    let others = RUNS.map(bursts).into_iter();
    let troubles = [Shape::Lan, Shape::Late, Shape::Stall].map(trouble);
    let companies = companies().into_iter().map(|(_, scenario)| scenario);
    others
        .chain(troubles)
        .chain(companies)
        .chain(crowds().into_iter().map(|(_, scenario)| scenario))
        .map(|scenario| (scenario, if scenario.receivers >= MANY { 1 } else { seeds }))
        .collect()
}

/// Returns the sections.
pub(super) fn sections(results: &Results<'_>) -> Vec<Section> {
    let section = |title: &str, text: &str, table: Table| Section {
        title: title.to_owned(),
        text: text.to_owned(),
        figures: Vec::new(),
        tables: vec![table],
    };
    vec![
        section(
            "Bursts",
            "A file to 50 receivers, each of which loses 1 % on a path of its own, in runs of this \
             mean length (Gilbert and Elliott); RTT 20 ms.",
            bursts_table(results),
        ),
        section(
            "Beside TCP connections",
            "A session of 20 receivers and TCP connections over a bottleneck of 10 Mb/s with a queue \
             of 60 packets, RTT 40 to 41 ms; the last 45 of 60 s. The TCP connections are sessions of \
             one receiver without a helper.",
            shared_table(results),
        ),
        section(
            "Late receivers, and one that stalls",
            "100 receivers that lose 0.5 %. Late ones come in the first half of a stream of 100 \
             packets/s. One stops reading a file from 1 s to 6 s.",
            trouble_table(results),
        ),
        section(
            "Many receivers",
            "100 segments to up to 100,000 receivers, RTT 20 ms, no random losses and no limit of \
             the server, on links of 1 Mb/s for each receiver, and in the last row of a tenth of \
             that, whose queue overflows with ACKs. 10,000 and more ran once.",
            crowd_table(results),
        ),
    ]
}

fn table(name: &'static str, head: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { name, head: head.iter().map(|&cell| cell.to_owned()).collect(), rows }
}

fn bursts_table(results: &Results<'_>) -> Table {
    let row = |run: u32| {
        let of = |value: &dyn Fn(&Outcome) -> f64| results.estimate(bursts(run), value).mean;
        vec![
            run.to_string(),
            format!("{:.2}", of(&|outcome| outcome.rate / 1e6)),
            format!("{:.1}", of(&|outcome| outcome.whole * 100.0)),
            format!("{:.3}", of(&|outcome| outcome.expansion())),
            format!("{:.0}", of(&|outcome| outcome.stats.timeouts as f64)),
        ]
    };
    let head = [
        "run",
        "throughput (Mb/s)",
        "complete (%)",
        "bytes sent over those of the file",
        "time-outs",
    ];
    table("bursts", &head, RUNS.map(row).into())
}

fn shared_table(results: &Results<'_>) -> Table {
    let row = |(name, scenario): (String, Scenario)| {
        let of = |value: &dyn Fn(&Outcome) -> f64| results.estimate(scenario, value).mean;
        let others = of(&|outcome| outcome.flows.len() as f64 - 1.0);
        vec![
            name,
            format!("{others:.0}"),
            format!("{:.2}", of(&|outcome| outcome.flows[0] / 1e6)),
            format!("{:.3}", of(&ratio)),
            format!("{:.3}", of(&|outcome| fairness(&outcome.flows))),
        ]
    };
    let head = ["session", "TCP connections", "its rate (Mb/s)", "over a mean TCP", "Jain index"];
    table("shared", &head, companies().into_iter().map(row).collect())
}

fn trouble_table(results: &Results<'_>) -> Table {
    let row = |(name, shape): (&str, Shape)| {
        let of = |value: &dyn Fn(&Outcome) -> f64| results.estimate(trouble(shape), value).mean;
        vec![
            name.to_owned(),
            format!("{:.1}", of(&|outcome| outcome.seconds)),
            format!("{:.1}", of(&|outcome| outcome.whole * 100.0)),
            format!("{:.3}", of(&|outcome| outcome.expansion())),
            format!("{:.0}", of(&|outcome| outcome.removed as f64)),
        ]
    };
    let head =
        ["what", "duration (s)", "complete (%)", "bytes sent over those of the file", "removed"];
    let shapes = [
        ("nothing special", Shape::Lan),
        ("late receivers", Shape::Late),
        ("one stalls for 5 s", Shape::Stall),
    ];
    table("troubles", &head, shapes.map(row).into())
}

fn crowd_table(results: &Results<'_>) -> Table {
    let row = |(rate, scenario): (u32, Scenario)| {
        let receivers = scenario.receivers;
        let of = |value: &dyn Fn(&Outcome) -> f64| results.estimate(scenario, value).mean;
        let each = |count: u64| count as f64 / f64::from(receivers);
        vec![
            receivers.to_string(),
            format!("{}", f64::from(rate) / 1000.0),
            format!("{:.2}", of(&|outcome| outcome.rate / 1e6)),
            format!("{:.1}", of(&|outcome| outcome.whole * 100.0)),
            format!("{:.1}", of(&|outcome| each(outcome.acks))),
            format!("{:.1}", of(&|outcome| each(outcome.stats.segments))),
            format!("{:.0}", of(&|outcome| outcome.stats.multicast_again.segments as f64)),
            format!("{:.0}", of(&|outcome| outcome.stats.unicast_again.segments as f64)),
            format!("{:.0}", of(&|outcome| outcome.stats.loss_events as f64)),
            format!("{:.3}", of(&|outcome| outcome.expansion())),
        ]
    };
    let head = [
        "receivers",
        "links (Gb/s)",
        "throughput (Mb/s)",
        "complete (%)",
        "ACKs of each",
        "its segments that arrive",
        "multicast again",
        "unicast again",
        "windows cut",
        "bytes sent over those of the file",
    ];
    table("crowds", &head, crowds().into_iter().map(row).collect())
}

#[cfg(test)]
mod tests {
    use umbel_engine::smo::SourceStats;

    use super::*;
    use crate::pool::Experiment as _;

    #[test]
    fn the_links_of_a_crowd_take_its_acks() {
        assert!(CROWDS.iter().all(|&receivers| crowd(receivers).ack_load() < 0.75));
        assert!(overloaded(10_000).ack_load() > 1.0);
    }

    #[test]
    fn nothing_is_sent_again_where_nothing_but_acks_is_lost() {
        for scenario in [crowd(1_000), overloaded(1_000)] {
            let outcome = scenario.run(1);
            let SourceStats { multicast_again, unicast_again, loss_events, .. } = outcome.stats;
            assert_eq!((multicast_again.segments, unicast_again.segments, loss_events), (0, 0, 0));
            assert_eq!((outcome.whole, outcome.lost, outcome.expansion()), (1.0, 0.0, 1.0));
            let all_arrive = scenario == crowd(1_000);
            assert_eq!(outcome.stats.segments >= outcome.acks, all_arrive, "{:?}", outcome.stats);
        }
    }
}
