//! What was found, and what each way to measure the links gives.

use std::fmt::Write;

use super::figures::{Base, SRM_RECEIVERS};
use super::measures::{self, Place};
use super::scenario::{Delays, Graph};
use super::schemes::Scheme;
use super::trial::{Outcome, Trial};
use super::verdicts;
use crate::output::{Note, Row};
use crate::pool::Outcomes;

/// A scheme on random graphs with one kind of delays.
pub(super) struct Compared {
    scheme: Scheme,
    delays: Delays,
    receivers: u32,
    /// What other people's agents came to, with losses at the source, the receivers and all links.
    reported: [f64; 3],
}

const PLACES: [(Place, &str); 3] =
    [(Place::Source, "source"), (Place::Receivers, "receivers"), (Place::Links, "all links")];

/// How far from other people's agents a latency may be: their graphs were others.
const TOLERANCE: f64 = 0.25;

/// What is compared.
pub(super) fn compared() -> Vec<Compared> {
    let both = |scheme, receivers, plane, equal| {
        [(Delays::Plane, plane), (Delays::Equal, equal)].map(|(delays, reported)| Compared {
            scheme,
            delays,
            receivers,
            reported,
        })
    };
    [
        both(Scheme::Lms, 100, [0.29, 0.42, 0.48], [0.60, 0.70, 0.74]),
        both(Scheme::Pgm, 100, [0.74, 0.99, 0.84], [0.69, 1.0, 0.87]),
        both(Scheme::Srm, SRM_RECEIVERS, [1.7, 2.2, 2.0], [2.2, 2.7, 2.5]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Compared {
    /// What has to be run. Equal delays include those of hosts.
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

/// A row for each latency of other people's agents.
pub(super) fn rows(compared: &[Compared], outcomes: &Outcomes<Trial>) -> Vec<Row> {
    let mut rows = Vec::new();
    for compared in compared {
        let runs = compared.outcomes(outcomes);
        for ((place, name), reported) in PLACES.iter().zip(compared.reported) {
            let what = format!(
                "{}, {} delays, average latency, loss at {name}",
                compared.scheme.name(),
                compared.delays.name()
            );
            let measured = measures::latency(&runs, *place).average.mean;
            let bounds = (reported * (1.0 - TOLERANCE), reported * (1.0 + TOLERANCE));
            let text = format!("{reported} by others");
            rows.push(verdicts::row("§IV", what, &text, measured, bounds));
        }
    }
    if !compared.is_empty() {
        let lost: u32 = outcomes.values().map(|runs| measures::unrepaired(runs)).sum();
        let what = "losses that some receiver did not recover from, all runs";
        rows.push(verdicts::row("§IV", what, "none", f64::from(lost), (0.0, 0.0)));
    }
    rows
}

/// The notes of the report.
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
    ];
    if !compared.is_empty() {
        notes.push(comparison(compared, outcomes));
    }
    notes
}

/// A paragraph for each scheme and kind of delays.
fn comparison(compared: &[Compared], outcomes: &Outcomes<Trial>) -> Note {
    let mut text = "Average latency with losses at the source, at the receivers and at all links; \
                    then, for losses at all links, exposure, requests and repairs."
        .to_owned();
    for compared in compared {
        let runs = compared.outcomes(outcomes);
        let latency = PLACES.map(|(place, _)| measures::latency(&runs, place).average.mean);
        let [exposure, requests, repairs] = [
            measures::exposure(&runs, Place::Links),
            measures::requests(&runs, Place::Links),
            measures::repairs(&runs, Place::Links),
        ]
        .map(|spread| spread.average.mean);
        let _ = write!(
            text,
            "\n\n{}, {} delays, {} receivers: {:.2}, {:.2}, {:.2}; {:.2} %, {requests:.1}, {repairs:.1}.",
            compared.scheme.name(),
            compared.delays.name(),
            compared.receivers,
            latency[0],
            latency[1],
            latency[2],
            exposure * 100.0,
        );
    }
    Note { title: "What each kind of delays gives".to_owned(), text }
}
