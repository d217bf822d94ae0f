//! The claims of the paper's text, and whether they hold.
//!
//! Here "far below" is less than a third, and "almost no frame" less than 1 %. "Basically doubled"
//! is 1.6 to 2.4 times, and "fair" between a half and twice.

use super::Other;
use super::beyond::{self, BOUNDS, ratio};
use super::figures::{
    FRAMES, LIMITED, LOSSES, RTTS_MS, Results, SIZES, UNRESPONSIVE, file, rtt_name, video,
};
use super::scenario::{Rule, Shape};
use super::sections::{AUDIENCE, acks, lossy, relays};
use crate::bounds::{at_most, up_to};
use crate::output::{Figure, FigureId, Row};

/// Everybody has everything, in percent.
pub(super) const ALL: (f64, f64) = (100.0, 100.0);

/// Returns the rows of the table about these figures.
pub(super) fn rows(figures: &[Figure], results: &Results<'_>) -> Vec<Row> {
    let rows = |figure: &Figure| match figure.id {
        FigureId::Paper(5) => throughput(results),
        FigureId::Paper(7) => lost_frames(figure, results),
        _ => Vec::new(),
    };
    figures.iter().flat_map(rows).collect()
}

/// Returns bounds from `low` on.
pub(super) fn over(low: f64) -> (f64, f64) {
    (low, f64::INFINITY)
}

fn throughput(results: &Results<'_>) -> Vec<Row> {
    let row =
        |what: String, reported, measured, bounds| Row::new(5, what, reported, measured, bounds);
    let rate = |n, every| results.rate(file(n, every, true));
    let mut rows = vec![
        row(
            "throughput to 100 receivers".to_owned(),
            "over 10 Mb/s",
            (rate(100, 2), "Mb/s"),
            over(10.0),
        )
        .at("", LIMITED, (100.0, 10.0)),
    ];
    for n in [800, 1000] {
        let what = format!("throughput to {n} receivers");
        let row = row(what, "over 1 Mb/s", (rate(n, 2), "Mb/s"), over(1.0));
        rows.push(row.at("", LIMITED, (f64::from(n), 1.0)));
    }
    let unicast = SIZES.map(|n| 100.0 / f64::from(n) / rate(n, 2)).into_iter().fold(0.0, f64::max);
    let what = "N unicasts over TCP-SMO, greatest".to_owned();
    rows.push(row(what, "substantially lower", (unicast, ""), up_to(1.0 / 3.0)));
    for n in [100, 1000] {
        let what = format!("an ACK for 4 over an ACK for 2, {n} receivers");
        let measured = (rate(n, 4) / rate(n, 2), "");
        rows.push(row(what, "basically doubled", measured, (1.6, 2.4)));
    }
    let whole = SIZES.map(|n| results.estimate(file(n, 2, true), |o| o.whole * 100.0).mean);
    let least = whole.into_iter().fold(100.0, f64::min);
    rows.push(row("receivers that have the file".to_owned(), "all", (least, "%"), ALL));
    rows
}

fn lost_frames(figure: &Figure, results: &Results<'_>) -> Vec<Row> {
    let row =
        |what: &str, reported, measured, bounds| Row::new(7, what, reported, measured, bounds);
    let curve = |rtt| figure.values("", &rtt_name(rtt));
    let frames = f64::from(FRAMES) * f64::from(results.percent) / 100.0;
    let below_8 = RTTS_MS
        .into_iter()
        .flat_map(|rtt| curve(rtt).into_iter().zip(LOSSES))
        .filter(|(_, loss)| *loss < 8)
        .map(|(lost, _)| lost)
        .fold(0.0, f64::max);
    let udp = figure.values("", "UDP");
    let share = RTTS_MS
        .into_iter()
        .flat_map(|rtt| curve(rtt).into_iter().zip(udp.clone()))
        .map(|(lost, udp)| lost / udp)
        .fold(0.0, f64::max);
    let slowest = results.estimate(video(100, 10), |outcome| outcome.seconds).mean;
    vec![
        row(
            "lost frames under 8 % of drops, greatest",
            "almost none of 5,000",
            (below_8, ""),
            at_most(frames / 100.0),
        ),
        row(
            "lost frames over those of UDP, greatest",
            "far below",
            (share, ""),
            at_most(1.0 / 3.0),
        ),
        row(
            "duration at 10 % and 100 ms",
            "50 frames/s",
            (slowest, "s"),
            (frames / 50.0 * 0.95, frames / 50.0 * 1.05),
        ),
    ]
}

/// Returns the rows about a part.
pub(super) fn section(part: Other, results: &Results<'_>) -> Vec<Row> {
    match part {
        Other::Acks => {
            let of = |n, value: &dyn Fn(&super::scenario::Outcome) -> f64| {
                results.estimate(acks(n, 2), value).mean
            };
            let per_s = of(1200, &|outcome| outcome.acks as f64 / outcome.seconds);
            let whole = of(1200, &|outcome| outcome.whole * 100.0);
            let each = of(1200, &|outcome| outcome.acks_per_segment(1200));
            let row = |what: &str, reported, measured, bounds| {
                Row::new("acks", what, reported, measured, bounds)
            };
            let what = "ACKs of 1,200 receivers at 100 packets/s";
            vec![
                row(what, "50,000 to 60,000/s", (per_s, "/s"), (47_500.0, 63_000.0)),
                row("1,200 receivers that have the file", "all", (whole, "%"), ALL),
                row("ACKs for each segment and receiver", "one for two", (each, ""), (0.45, 0.55)),
            ]
        }
        Other::Loss => RULES_REPORTED
            .iter()
            .map(|&(rule, what)| {
                let rate = results.rate(lossy(400, rule));
                Row::new("loss", what, "over 1 Mb/s", (rate, "Mb/s"), over(1.0))
            })
            .collect(),
        Other::Relay => {
            let rate = results.rate(relays(3));
            let whole = results.estimate(relays(3), |outcome| outcome.whole * 100.0).mean;
            let what = format!("throughput to {AUDIENCE} receivers by 3 relays");
            vec![
                Row::new("relay", what, "1.1 Mb/s", (rate, "Mb/s"), over(1.1)),
                Row::new("relay", "receivers that have the file", "all", (whole, "%"), ALL),
            ]
        }
        Other::Beyond | Other::Lab | Other::Sensitivity => Vec::new(),
    }
}

/// Rules under which the paper's number is judged: its prototype had no congestion control.
const RULES_REPORTED: [(Rule, &str); 2] = [
    (Rule::Strict, "400 of 1,000 lose 2 %, strictly fair"),
    (UNRESPONSIVE, "the same, no congestion control"),
];

/// Returns the rows about what the paper does not have.
pub(super) fn beyond(results: &Results<'_>) -> Vec<Row> {
    let row = |what: String, reported: &str, measured, bounds| {
        Row::new("beyond", what, reported, measured, bounds)
    };
    let mut rows = Vec::new();
    for is_cubic in [false, true] {
        let scenario = beyond::shared(1, Rule::Strict, is_cubic, 0);
        let kind = if is_cubic { "CUBIC" } else { "Reno" };
        let what = format!("strictly fair session over one TCP, {kind}");
        let measured = (results.estimate(scenario, ratio).mean, "");
        rows.push(row(what, "fair to TCP", measured, (0.5, 2.0)));
    }
    for (a, b) in BOUNDS {
        let scenario = beyond::shared(1, Rule::Essential(a, b), false, 0);
        let measured = (results.estimate(scenario, ratio).mean, "");
        let what = format!("essentially fair session over one TCP, a = {a}, b = {b}");
        rows.push(row(what, "between a and b", measured, (f64::from(a) / 2.0, f64::from(b) * 1.1)));
    }
    for (shape, what) in [
        (Shape::Late, "late receivers that have their part"),
        (Shape::Stall, "receivers that have the file though one stalls"),
    ] {
        let whole = results.estimate(beyond::trouble(shape), |outcome| outcome.whole * 100.0);
        rows.push(row(what.to_owned(), "all", (whole.mean, "%"), ALL));
    }
    let most = beyond::CROWDS[3];
    let whole = results.estimate(beyond::crowd(most), |outcome| outcome.whole * 100.0).mean;
    rows.push(row(format!("of {most} receivers have everything"), "all", (whole, "%"), ALL));
    rows
}
