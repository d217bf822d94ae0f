//! Figures 6 and 7, and the table of retransmissions.

use std::collections::BTreeSet;

use super::LOSS;
use super::transfer::{Outcome, Protocol, Transfer};
use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Section, Series, Table};
use crate::pool::Outcomes;

/// Sizes of the file in Figure 6, in packets of 1 KB.
const SIZES: [u32; 10] = [3, 6, 9, 12, 15, 18, 21, 24, 27, 30];
/// Numbers of receivers in Figure 7.
const GROUPS: [u32; 6] = [5, 10, 15, 20, 25, 30];
/// Maximum of both, used for the one that does not vary.
const MOST: u32 = 30;
/// Losses of the table of retransmissions, in hundredths of a percent.
const LOSSES: [u32; 6] = [50, LOSS, 130, 200, 300, 500];

/// Reason why no points of the paper are drawn.
const NO_NUMBERS: &str = "The paper's text has no number of these curves, so that none is drawn.";

/// Titles of the two panels.
pub(super) const LOAD: &str = "processing load";
pub(super) const DELAY: &str = "end-to-end delay";

/// Extracts a value from an outcome.
type Value = fn(&Outcome) -> f64;

fn transfer(protocol: Protocol, receivers: u32, packets: u32) -> Transfer {
    Transfer { protocol, receivers, packets, loss: LOSS }
}

/// Returns the columns of a figure: the x of each point, and the transfer that ran there.
fn columns(figure: u32, protocol: Protocol) -> Vec<(f64, Transfer)> {
    match figure {
        6 => SIZES.map(|packets| (f64::from(packets), transfer(protocol, MOST, packets))).into(),
        7 => GROUPS.map(|n| (f64::from(n), transfer(protocol, n, MOST))).into(),
        _ => Vec::new(),
    }
}

/// Returns the transfers of a figure.
pub(super) fn transfers(figure: u32) -> BTreeSet<Transfer> {
    let columns = Protocol::DRAWN.into_iter().flat_map(|protocol| columns(figure, protocol));
    columns.map(|(_, transfer)| transfer).collect()
}

/// Protocols in the table of retransmissions.
const IN_TABLE: [Protocol; 5] = [
    Protocol::TMTP,
    Protocol::IMPROVED,
    Protocol::TMTP_WINDOW,
    Protocol::WinBasep,
    Protocol::BurstBasep,
];

/// Returns the transfers of the table of retransmissions.
pub(super) fn lossy_transfers() -> BTreeSet<Transfer> {
    let all = IN_TABLE.into_iter().flat_map(|protocol| {
        LOSSES.map(|loss| Transfer { loss, ..transfer(protocol, MOST, MOST) })
    });
    all.collect()
}

/// Returns the mean of a value over the runs of a transfer.
pub(super) fn estimate(
    outcomes: &Outcomes<Transfer>,
    transfer: Transfer,
    value: Value,
) -> Estimate {
    let runs = outcomes.get(&transfer).into_iter().flatten();
    Estimate::of(&runs.map(value).collect::<Vec<f64>>())
}

/// Returns a figure of the paper.
pub(super) fn figure(number: u32, outcomes: &Outcomes<Transfer>) -> Figure {
    let curve = |name: &str, protocol, value: Value| {
        let points = columns(number, protocol).into_iter().map(|(x, transfer)| {
            let Estimate { mean, ci95 } = estimate(outcomes, transfer, value);
            Point { x, y: mean, ci95 }
        });
        Series { name: name.to_owned(), points: points.collect() }
    };
    let curves = |value: Value| {
        Protocol::DRAWN.map(|protocol| curve(protocol.name(), protocol, value)).into()
    };
    let (x_label, title, caption) = if number == 6 {
        (
            "size of the file (KB)",
            "Effect of the amount of data",
            format!("30 receivers. {NO_NUMBERS}"),
        )
    } else {
        ("receivers", "Impact of the group size", format!("30 KB. {NO_NUMBERS}"))
    };
    let panel = |title: &str, y_label: &str, series| Panel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: y_label.to_owned(),
        series,
        ..Panel::default()
    };
    Figure {
        id: FigureId::Paper(number),
        title: title.to_owned(),
        panels: vec![
            panel(LOAD, "events at the sender", curves(|outcome| outcome.load.total() as f64)),
            panel(DELAY, "time to the last GOT_IT (s)", curves(|outcome| outcome.delay)),
        ],
        caption,
    }
}

/// Returns the table of retransmissions: 30 packets to 30 receivers.
pub(super) fn retransmissions(outcomes: &Outcomes<Transfer>) -> Section {
    let values: [(&str, Value); 6] = [
        ("by the sender", |outcome| f64::from(outcome.by_sender)),
        ("by managers", |outcome| f64::from(outcome.by_others)),
        ("concurrent", |outcome| f64::from(outcome.concurrent)),
        ("links crossed", |outcome| outcome.crossings as f64),
        ("load of the sender", |outcome| outcome.load.total() as f64),
        ("delay (s)", |outcome| outcome.delay),
    ];
    let head = ["loss of a tunnel (%)", "protocol"].into_iter().chain(values.map(|(name, _)| name));
    let mut rows = Vec::new();
    for loss in LOSSES {
        for protocol in IN_TABLE {
            let transfer = Transfer { loss, ..transfer(protocol, MOST, MOST) };
            let cells = values.iter().map(|(_, value)| {
                let mean = estimate(outcomes, transfer, *value).mean;
                format!("{mean:.1}")
            });
            let first = [(f64::from(loss) / 100.0).to_string(), protocol.name().to_owned()];
            rows.push(first.into_iter().chain(cells).collect());
        }
    }
    let table = Table { name: "retransmissions", head: head.map(str::to_owned).collect(), rows };
    Section {
        title: "Retransmissions".to_owned(),
        text: format!(
            "30 packets to 30 receivers; means. The figures are made with a loss of {} %. Concurrent \
             are retransmissions within a second of one by another node.",
            f64::from(LOSS) / 100.0
        ),
        figures: Vec::new(),
        tables: vec![table],
    }
}
