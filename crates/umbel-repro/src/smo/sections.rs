//! ACKs against receivers, losses among 1,000 receivers, and two levels.

use super::Other;
use super::figures::{Results, UNRESPONSIVE};
use super::scenario::{Load, Losses, Rule, SERVER_ACKS, Scenario, Shape};
use crate::output::{Section, Table};

/// Numbers of receivers of [SMO §V-A], and the packets sent: a tenth of the paper's 36 MB.
pub(super) const CROWDS: [u32; 5] = [100, 400, 800, 1200, 1500];
const PACKETS: u32 = 2486;
/// Segments of the other files.
const FILE: u32 = 1000;
/// Receivers of [SMO §V-D].
pub(super) const AUDIENCE: u32 = 2300;
/// Numbers of relays: the paper's, and twice as many.
const RELAYS: [u32; 2] = [3, 6];

/// Returns a scenario of [SMO §V-A]: 100 packets/s.
pub(super) fn acks(receivers: u32, ack_every: u8) -> Scenario {
    Scenario { ack_every, ..Scenario::lan(receivers, Load::Frames(PACKETS, 10_000)) }
}

/// Returns the rules under which losses are compared.
pub(super) const RULES: [(Rule, &str); 3] = [
    (Rule::Strict, "strictly fair"),
    (Rule::Essential(1, 4), "essentially fair, a = 1, b = 4"),
    (UNRESPONSIVE, "no congestion control"),
];

/// Returns a scenario of [SMO §V-B]: 1,000 receivers, this number of which lose 2 %.
pub(super) fn lossy(count: u32, rule: Rule) -> Scenario {
    let losses = if count == 0 { Losses::None } else { Losses::Independent(20, count) };
    Scenario { losses, rule, ..Scenario::lan(1000, Load::Bulk(FILE)) }
}

/// Returns a scenario of [SMO §V-D].
pub(super) fn relays(relays: u32) -> Scenario {
    Scenario { shape: Shape::Relays(relays), ..Scenario::lan(AUDIENCE, Load::Bulk(FILE)) }
}

/// Returns the scenarios of a part.
pub(super) fn scenarios(part: Other) -> Vec<Scenario> {
    match part {
        Other::Acks => CROWDS.iter().flat_map(|&n| [acks(n, 2), acks(n, 4), acks(n, 8)]).collect(),
        Other::Loss => {
            RULES.iter().flat_map(|&(rule, _)| [lossy(0, rule), lossy(400, rule)]).collect()
        }
        Other::Relay => RELAYS.map(relays).into(),
        Other::Beyond | Other::Lab | Other::Sensitivity => Vec::new(),
    }
}

fn table(name: &'static str, head: &[&str], rows: Vec<Vec<String>>) -> Table {
    Table { name, head: head.iter().map(|&cell| cell.to_owned()).collect(), rows }
}

/// Returns the section of a part.
pub(super) fn section(part: Other, results: &Results<'_>) -> Section {
    let (title, text, table) = match part {
        Other::Acks => (
            "ACKs against receivers",
            format!(
                "100 packets/s to receivers on five hosts [SMO §V-A], a tenth of the paper's file. \
                 The server takes {SERVER_ACKS} ACKs/s; more than 8,192 that wait are lost."
            ),
            acks_table(results),
        ),
        Other::Loss => (
            "Losses among 1,000 receivers",
            "A file as fast as windows permit; none or 400 of the receivers lose 2 % independently \
             [SMO §V-B]."
                .to_owned(),
            loss_table(results),
        ),
        Other::Relay | Other::Beyond | Other::Lab | Other::Sensitivity => (
            "Two levels",
            format!(
                "A file to {AUDIENCE} receivers by relays that forward in the application \
                  [SMO §V-D]. Each server takes {SERVER_ACKS} ACKs/s."
            ),
            relay_table(results),
        ),
    };
    Section { title: title.to_owned(), text, figures: Vec::new(), tables: vec![table] }
}

fn acks_table(results: &Results<'_>) -> Table {
    let mut rows = Vec::new();
    for n in CROWDS {
        for every in [2, 4, 8] {
            let of = |value: &dyn Fn(&super::scenario::Outcome) -> f64| {
                results.estimate(acks(n, every), value).mean
            };
            rows.push(vec![
                n.to_string(),
                every.to_string(),
                format!("{:.0}", of(&|outcome| outcome.acks as f64 / outcome.seconds)),
                format!("{:.3}", of(&|outcome| outcome.acks_per_segment(n))),
                format!("{:.1}", of(&|outcome| outcome.seconds)),
                format!("{:.1}", of(&|outcome| outcome.whole * 100.0)),
                format!("{:.3}", of(&|outcome| outcome.expansion())),
                format!("{:.0}", of(&|outcome| outcome.stats.timeouts as f64)),
            ]);
        }
    }
    let head = [
        "receivers",
        "segments for an ACK",
        "ACKs/s",
        "ACKs for each segment and receiver",
        "duration (s)",
        "complete (%)",
        "bytes sent over those of the file",
        "time-outs",
    ];
    table("acks", &head, rows)
}

fn loss_table(results: &Results<'_>) -> Table {
    let mut rows = Vec::new();
    for (rule, name) in RULES {
        for count in [0, 400] {
            let of = |value: &dyn Fn(&super::scenario::Outcome) -> f64| {
                results.estimate(lossy(count, rule), value).mean
            };
            rows.push(vec![
                name.to_owned(),
                count.to_string(),
                format!("{:.2}", of(&|outcome| outcome.rate / 1e6)),
                format!("{:.1}", of(&|outcome| outcome.whole * 100.0)),
                format!("{:.3}", of(&|outcome| outcome.expansion())),
                format!("{:.0}", of(&|outcome| outcome.stats.unicast_again.segments as f64)),
                format!("{:.0}", of(&|outcome| outcome.stats.multicast_again.segments as f64)),
                format!("{:.0}", of(&|outcome| outcome.stats.timeouts as f64)),
            ]);
        }
    }
    let head = [
        "rule",
        "receivers with losses",
        "throughput (Mb/s)",
        "complete (%)",
        "bytes sent over those of the file",
        "unicast retransmissions",
        "multicast retransmissions",
        "time-outs",
    ];
    table("loss", &head, rows)
}

fn relay_table(results: &Results<'_>) -> Table {
    let row = |count: u32| {
        let rate = results.rate(relays(count));
        let whole = results.estimate(relays(count), |outcome| outcome.whole * 100.0).mean;
        vec![count.to_string(), format!("{rate:.2}"), format!("{whole:.1}")]
    };
    let head = ["relays", "throughput to each receiver (Mb/s)", "complete (%)"];
    table("relay", &head, RELAYS.map(row).into())
}
