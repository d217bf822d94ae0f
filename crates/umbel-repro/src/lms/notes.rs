//! Findings, and the results of each choice of link delays.

use std::fmt::Write;

use super::figures::{Base, SRM_RECEIVERS};
use super::measures::{self, Place};
use super::scenario::{Delays, Graph};
use super::schemes::Scheme;
use super::trial::{Outcome, Trial};
use super::verdicts;
use crate::bounds::around;
use crate::output::{Note, Row};
use crate::pool::Outcomes;

/// A scheme on random graphs with one kind of delays.
pub(super) struct Compared {
    scheme: Scheme,
    delays: Delays,
    receivers: u32,
    /// Latencies of other people's agents, with losses at the source, the receivers and all links,
    /// if known.
    reported: Option<[f64; 3]>,
    /// Repairs of other people's agents for each loss at all links, if known.
    repairs: Option<f64>,
}

/// Places of losses as other people counted them: all links are those of hosts, too.
const PLACES: [(Place, &str); 3] =
    [(Place::Source, "source"), (Place::Receivers, "receivers"), (Place::Every, "all links")];

/// Tolerated share of difference from other people's agents, which ran on other graphs.
const TOLERANCE: f64 = 0.25;

/// Rows of the paper's Table II, with the place of Umbel's number.
const TABLE_II: [(&str, f64, &str); 2] = [
    ("a request", 1.07, "not measured here; 0.89 by umbel router: docs/guides/routers.md"),
    ("a DMCAST", 1.01, "not measured here; 0.72 to 0.75 by umbel router: docs/guides/routers.md"),
];

/// Returns the comparisons to make.
pub(super) fn compared() -> Vec<Compared> {
    let of = |scheme, delays, reported, repairs| {
        let receivers =
            if matches!(scheme, Scheme::Lms | Scheme::Pgm) { 100 } else { SRM_RECEIVERS };
        Compared { scheme, delays, receivers, reported, repairs }
    };
    let (plane, equal) = (Delays::Plane, Delays::Equal);
    vec![
        of(Scheme::Lms, plane, Some([0.29, 0.42, 0.48]), None),
        of(Scheme::Lms, equal, Some([0.60, 0.70, 0.74]), None),
        of(Scheme::Pgm, plane, Some([0.74, 0.99, 0.84]), None),
        of(Scheme::Pgm, equal, Some([0.69, 1.0, 0.87]), None),
        of(Scheme::Srm, plane, Some([1.7, 2.2, 2.0]), Some(4.9)),
        of(Scheme::Srm, equal, Some([2.2, 2.7, 2.5]), Some(11.7)),
        of(Scheme::SrmAdaptive, plane, None, Some(2.0)),
    ]
}

impl Compared {
    /// Returns the trials of the comparison. Equal delays include those of hosts.
    pub(super) fn trials(&self) -> impl Iterator<Item = Trial> + use<> {
        let access_percent = self.delays.usual_access_percent();
        let base = Base { delays: self.delays, access_percent };
        let graph = Graph::Random { receivers: self.receivers };
        base.graphs(self.scheme, graph).into_iter().map(|(_, trial)| trial)
    }

    fn outcomes(&self, outcomes: &Outcomes<Trial>) -> Vec<Outcome> {
        self.trials().filter_map(|trial| outcomes.get(&trial)).flatten().cloned().collect()
    }
}

/// Returns the text of another agent's number, and the bounds that agree with it.
fn others(reported: f64) -> (String, (f64, f64)) {
    (format!("{reported} by others"), around(reported, TOLERANCE))
}

/// Returns a row for each number of other people's agents.
pub(super) fn rows(compared: &[Compared], outcomes: &Outcomes<Trial>) -> Vec<Row> {
    let mut rows = Vec::new();
    for compared in compared {
        let runs = compared.outcomes(outcomes);
        let who = format!("{}, {} delays", compared.scheme.name(), compared.delays.name());
        for ((place, name), reported) in PLACES.iter().zip(compared.reported.into_iter().flatten())
        {
            let what = format!("{who}, average latency, loss at {name}");
            let measured = measures::latency(&runs, *place).average.mean;
            let (text, bounds) = others(reported);
            rows.push(verdicts::row("§IV", what, &text, measured, bounds));
        }
        if let Some(reported) = compared.repairs {
            let what = format!("{who}, repairs for each loss, loss at all links");
            let measured = measures::repairs(&runs, Place::Every).average.mean;
            let (text, bounds) = others(reported);
            rows.push(verdicts::row("§IV", what, &text, measured, bounds));
        }
    }
    if !compared.is_empty() {
        let lost: u32 = outcomes.values().map(|runs| measures::unrepaired(runs)).sum();
        // These are times on one machine, which a report does not measure: see the note.
        for (what, reported, elsewhere) in TABLE_II {
            let what = format!("forwarding {what} over forwarding to one interface");
            let (text, bounds) = (reported.to_string(), around(reported, TOLERANCE));
            let row = verdicts::row("Table II", what, &text, f64::NAN, bounds);
            rows.push(row.unjudged(elsewhere));
        }
        let what = "losses that some receiver did not recover from, all runs";
        rows.push(verdicts::row("§IV", what, "none", f64::from(lost), (0.0, 0.0)));
    }
    rows
}

/// Returns the notes of the report.
pub(super) fn notes(compared: &[Compared], outcomes: &Outcomes<Trial>) -> Vec<Note> {
    let note =
        |heading: &str, text: &str| Note { title: heading.to_owned(), text: text.to_owned() };
    let mut notes = vec![
        note(
            "What is measured",
            "The link of the source, those of receivers, and each other link of the tree lose one \
             original packet in turn; the next packet, a millisecond later, shows the loss. Latency is \
             from there to the first repair, in round trips of that receiver to the source. The \
             average is over receivers, so that a loss near the source counts for all of those below \
             it. Requests and repairs are never lost, as in the paper.",
        ),
        note(
            "Links have the delay of their length",
            "GT-ITM puts routers on a plane, and a link takes as long as it is. With equal delays \
             everything is slower in round trips, since the nearest helper is no nearer than any \
             neighbour. The paper does not say which it used; its numbers are those of the plane. \
             The links of hosts take a fifth of a mean link between routers there; \
             with none the nearest receiver would be no further than its router.",
        ),
        note(
            "What was fitted or switched",
            "Three choices decide verdicts, and were taken since the numbers come nearest with them. \
             (1) The fifth of a mean link that links of hosts take: with a tenth LMS takes 0.21 of a \
             round trip with losses at the source, which would miss, and PGM repeats 8.0 \
             retransmissions on average and up to 9.5, which would not (5 and 2 placements). (2) The \
             source as replier, \"if the source is directly attached to the router\": on in the binary trees \
             of Figure 11, where the bound of 2 on latency follows from it, and off in Figures 12 and \
             13. The paper's words would have it on in all; with it latency with losses at the source \
             would be 0.58 in Figure 12, where the paper has 0.3 to 0.4. (3) What the paper calls \
             losses at all links are, in Figures 12 to 15, those at links between routers; in 11, \
             where leaves are the receivers, all links of the tree count. With the links of hosts \
             exposure would be about 1.9 % instead of 0.8 %, and the paper has less than 1 %.",
        ),
        note(
            "What others counted as all links",
            "In Figures 12 to 15 all links are those between routers. Other people's numbers are over \
             all links of the tree, so that in the comparison with them Umbel's are, too: those of \
             the source and of receivers count, which makes latencies of LMS about a tenth lower. \
             Their links of hosts take 1 ms, Umbel's 2 ms.",
        ),
        note(
            "Where the engines differ from the papers",
            "Routers fill in the requestor of a request and count its hops, where the paper passes \
             requests on unmodified: a request then finds its way back by unicast, and ends in rings. \
             SRM backs off to at most 2 s between two requests also in these figures, where ns-2 has \
             no end; it matters only if requests are lost. Its repair timers take the distance to the \
             first requester alone, where others ask later. PGM's routers eliminate NAKs for 250 ms, \
             and repeat one after 500 ms; RFC 3208 names no such numbers.",
        ),
        note(
            "Table II is not measured here",
            "How many times a plain forward a request and a DMCAST take is a matter of nanoseconds on \
             one machine, and this report is the same on all. The paper has 1.07 and 1.01 in a kernel \
             whose plain forward takes 12 µs. `umbel router` leaves both to a program in the kernel: \
             0.89 for a request, 0.72 to 0.75 for a DMCAST, measured in a lab (docs/guides/routers.md). The \
             engine by itself, beside a plain forward that is a lookup and a reference, takes 6 to 7 \
             and 3 to 4 times as long (docs/papers/lms.md).",
        ),
    ];
    if !compared.is_empty() {
        notes.push(comparison(compared, outcomes));
    }
    notes
}

/// Writes the duplicates of a receiver. They are a share while a loss exposes a part of the
/// receivers, and a number where each gets several.
fn duplicates(exposure: f64) -> String {
    if exposure < 1.0 {
        format!("{:.2} %", exposure * 100.0)
    } else {
        format!("{exposure:.1} duplicates for each receiver")
    }
}

/// Returns a note with a paragraph for each scheme and kind of delays.
fn comparison(compared: &[Compared], outcomes: &Outcomes<Trial>) -> Note {
    let mut text = "Average latency with losses at the source, at the receivers and at all links; \
                    then, for losses at all links, exposure, requests and repairs."
        .to_owned();
    for compared in compared {
        let runs = compared.outcomes(outcomes);
        let latency = PLACES.map(|(place, _)| measures::latency(&runs, place).average.mean);
        let [exposure, requests, repairs] = [
            measures::exposure(&runs, Place::Every),
            measures::requests(&runs, Place::Every),
            measures::repairs(&runs, Place::Every),
        ]
        .map(|spread| spread.average.mean);
        let _ = write!(
            text,
            "\n\n{}, {} delays, {} receivers: {:.2}, {:.2}, {:.2}; {}, {requests:.1}, {repairs:.1}.",
            compared.scheme.name(),
            compared.delays.name(),
            compared.receivers,
            latency[0],
            latency[1],
            latency[2],
            duplicates(exposure),
        );
    }
    Note { title: "What each kind of delays gives".to_owned(), text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Verdict;

    #[test]
    fn what_the_report_does_not_measure_is_no_miss() {
        let rows = rows(&compared(), &Outcomes::new());
        let table: Vec<&Row> = rows.iter().filter(|row| row.figure == "Table II").collect();
        assert_eq!(table.len(), 2);
        let is_told =
            |row: &&Row| row.remark.is_some_and(|why| why.contains("docs/guides/routers.md"));
        assert!(
            table.iter().all(|row| row.verdict() == Verdict::Remark) && table.iter().all(is_told)
        );
    }

    #[test]
    fn several_duplicates_for_each_receiver_are_no_percentage() {
        let texts = [0.0078, 6.0772].map(duplicates);
        assert_eq!(texts, ["0.78 %", "6.1 duplicates for each receiver"]);
    }
}
