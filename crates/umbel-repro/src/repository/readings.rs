//! Results of each reading of the paper.

use std::collections::BTreeSet;

use super::choices::{Arrivals, Audience, Choices, Wants};
use super::figures::{Base, delay, named};
use super::point::{Period, Point};
use crate::output::{Section, Table};
use crate::pool::Outcomes;

/// A result in the paper on which readings differ.
enum Probe {
    /// The delay of a policy, with the loss of the server's and of the clients' links.
    Delay(&'static str, u32, u32),
    /// Quotient of the first policy's delay and the second's, with the same losses.
    Quotient(&'static str, &'static str, u32, u32),
    /// Difference of the first policy's delay and the second's, with the same losses.
    Gain(&'static str, &'static str, u32, u32),
    /// Quotient of R/(Q/fill) and R/Q with this policy and this share of bad clients in percent.
    Fill(&'static str, u32),
}

/// The compared results, and the paper's values.
const PROBES: [(Probe, &str); 9] = [
    (Probe::Delay("R(0)", 0, 2), "over 840"),
    (Probe::Delay("R(10)", 0, 2), "460"),
    (Probe::Delay("R(inf)", 0, 2), "695"),
    (Probe::Delay("R(inf)", 0, 6), "815"),
    (Probe::Delay("R(inf)+notify", 0, 6), "944"),
    (Probe::Delay("FEC(0)+R(inf)", 10, 4), "1050"),
    (Probe::Quotient("FEC(0.2)+R(inf)", "FEC(0)+R(inf)", 10, 4), "under 0.85"),
    (Probe::Gain("R(0)", "R(0)+notify", 0, 6), "about 30"),
    (Probe::Fill("R(0)", 45), "equal"),
];

impl Probe {
    fn name(&self) -> String {
        let place = |server: u32, client: u32| match server {
            0 => format!("{client} %"),
            _ => format!("{server} % and {client} %"),
        };
        match *self {
            Probe::Delay(policy, server, client) => {
                format!("{} at {}", named(policy), place(server, client))
            }
            Probe::Quotient(a, b, server, client) => {
                format!("{} over {} at {}", named(a), named(b), place(server, client))
            }
            Probe::Gain(a, b, server, client) => {
                format!("{} less {} at {}", named(a), named(b), place(server, client))
            }
            Probe::Fill(policy, bad) => {
                format!("{}, R/(Q/fill) over R/Q at {bad} % bad clients", named(policy))
            }
        }
    }

    fn points(&self, base: &Base) -> Vec<Point> {
        match *self {
            Probe::Delay(policy, server, client) => vec![base.alike(policy, server, client)],
            Probe::Quotient(a, b, server, client) | Probe::Gain(a, b, server, client) => {
                vec![base.alike(a, server, client), base.alike(b, server, client)]
            }
            Probe::Fill(policy, bad) => {
                let plain = base.mixed(policy, bad);
                vec![Point { fill: true, known_loss: true, ..plain.clone() }, plain]
            }
        }
    }

    /// Returns the value as the table shows it.
    fn value(&self, base: &Base, outcomes: &Outcomes<Point>) -> String {
        let delays: Vec<f64> =
            self.points(base).iter().map(|point| delay(outcomes, point).mean).collect();
        match (self, &delays[..]) {
            (Probe::Gain(..), [a, b]) => format!("{:.0}", a - b),
            (_, [a, b]) => format!("{:.3}", a / b),
            _ => format!("{:.0}", delays[0]),
        }
    }
}

/// Returns the readings, each as the base of its points. They run for half of the time.
fn readings(base: &Base) -> Vec<(&'static str, Base)> {
    let chosen = base.choices;
    let at_once = chosen.prompt();
    let readings = [
        ("as chosen", chosen),
        ("retransmissions as soon as every NAK is in", at_once),
        ("the same, and the server waits for the NAKs", Choices { wait: true, ..at_once }),
        (
            "the same, and only those who sent NAKs hear retransmissions",
            Choices { audience: Audience::Naks, ..at_once },
        ),
        ("as chosen, but each NAK is judged by itself", Choices { join: false, ..chosen }),
        (
            "as chosen, but retransmissions are expanded, too",
            Choices { expand_repairs: true, ..chosen },
        ),
        ("as chosen, with Poisson arrivals", Choices { arrivals: Arrivals::Poisson, ..chosen }),
        ("as chosen, each client wants exactly 9 items", Choices { wants: Wants::Fixed, ..chosen }),
        ("as chosen, clients want 1 to 17 items", Choices { wants: Wants::Uniform, ..chosen }),
    ];
    let Period { from, to } = base.period;
    let period = Period { from: from / 2, to: to / 2 };
    readings.map(|(name, choices)| (name, Base { choices, period })).to_vec()
}

/// Returns all points of all readings.
pub(super) fn points(base: &Base) -> BTreeSet<Point> {
    let of = |(_, base): (&str, Base)| -> Vec<Point> {
        PROBES.iter().flat_map(|(probe, _)| probe.points(&base)).collect()
    };
    readings(base).into_iter().flat_map(of).collect()
}

/// Returns the section of the report.
pub(super) fn results(base: &Base, outcomes: &Outcomes<Point>) -> Section {
    let mut head = vec!["reading".to_owned()];
    head.extend(PROBES.iter().map(|(probe, _)| probe.name()));
    let mut paper = vec!["the paper".to_owned()];
    paper.extend(PROBES.iter().map(|&(_, reported)| reported.to_owned()));
    let mut rows = vec![paper];
    for (name, base) in readings(base) {
        let mut row = vec![name.to_owned()];
        row.extend(PROBES.iter().map(|(probe, _)| probe.value(&base, outcomes)));
        rows.push(row);
    }
    Section {
        title: "What each reading gives".to_owned(),
        text: "Where the paper leaves something open, --set chooses; the settings at the end of this \
               page are those of the figures. Below is what other choices give: average client \
               delay in seconds, differences and quotients of it, at some loss of the clients' links, or \
               of the server's and the clients'. These runs take half of the time of the figures', \
               with two seeds at most."
            .to_owned(),
        figures: Vec::new(),
        tables: vec![Table { name: "readings", head, rows }],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::figures::tests::base;

    #[test]
    fn every_reading_has_a_number_for_every_probe() {
        let base = base();
        let outcomes = points(&base).into_iter().map(|point| (point, Vec::new())).collect();
        let section = results(&base, &outcomes);
        let table = &section.tables[0];
        assert_eq!(table.rows.len(), 10);
        assert!(table.rows.iter().all(|row| row.len() == table.head.len()));
        let first = Probe::Fill("R(0)", 45);
        assert_eq!(first.name(), "R(0), R/(Q/fill) over R/Q at 45 % bad clients");
        assert_eq!(first.points(&base).len(), 2);
    }
}
