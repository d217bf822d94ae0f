//! R(∞) in both readings: NAKs that are gathered for the fitted time, and NAKs that are answered as
//! soon as all are in. The paper does not say which; about 14 numbers of the report hang on it.

use std::collections::BTreeSet;

use super::choices::Choices;
use super::figures::named;
use super::figures::{BAD, BAD_CLIENTS, Base, CLIENT_LOSS, LOSS, Plan, delay};
use super::point::Point;
use super::stationarity::{drifts, settled};
use super::verdicts;
use crate::estimate::Estimate;
use crate::output::{self, Figure, FigureId, Panel, Row, Section, Series, Table};
use crate::pool::Outcomes;

/// Schemes that are drawn over the share of bad clients: all of Figure 7 that retransmit always.
const SCHEMES: [&str; 4] =
    ["FEC(0.1)+R(inf)", "FEC(0.01R)+R(inf)", "FEC(0.03R)+R(inf)", "FEC(0.05R)+R(inf)"];
/// Title of the panel about two classes of clients.
const CLASSES: &str = "Two classes of clients";
/// The scheme that is drawn over the loss of all clients.
const PLAIN: &str = "R(inf)";

/// Returns the point with NAKs that are answered as soon as all are in.
fn prompt(point: &Point) -> Point {
    Point { choices: point.choices.prompt(), ..point.clone() }
}

/// Returns the base with that reading.
fn prompt_base(base: &Base) -> Base {
    Base { choices: base.choices.prompt(), ..*base }
}

/// Returns whether a row is about the delay of a scheme that retransmits always.
fn is_concerned(row: &Row) -> bool {
    row.place.as_ref().is_some_and(|(_, mark)| mark.series.contains('∞'))
}

/// Returns the points whose verdicts the section has in both readings. Those of the figures run
/// anyway.
pub(super) fn judged(plans: &[Plan]) -> BTreeSet<Point> {
    let mut points = BTreeSet::new();
    for plan in plans {
        let rows = verdicts::rows(&[plan.figure(&Outcomes::new())]);
        for (_, mark) in
            rows.iter().filter(|row| is_concerned(row)).filter_map(|r| r.place.as_ref())
        {
            points.extend(
                plan.point(&mark.series, mark.x)
                    .into_iter()
                    .flat_map(|point| [point.clone(), prompt(point)]),
            );
        }
    }
    points
}

/// Returns the points that the section draws.
pub(super) fn drawn(base: &Base) -> BTreeSet<Point> {
    let mut points = BTreeSet::new();
    let prompt_base = prompt_base(base);
    for &loss in LOSS {
        points.extend([base, &prompt_base].map(|base| base.alike(PLAIN, 0, loss)));
    }
    for policy in SCHEMES {
        let both = [base, &prompt_base];
        points.extend(BAD.iter().flat_map(|&bad| both.map(|base| base.mixed(policy, bad))));
    }
    points
}

/// Returns the section of the report.
pub(super) fn section(base: &Base, plans: &[Plan], outcomes: &mut Outcomes<Point>) -> Section {
    let rows = |plans: &[Plan], outcomes: &mut Outcomes<Point>| -> Vec<Row> {
        let rows = settled().judged(outcomes, |outcomes| {
            let figures: Vec<Figure> = plans.iter().map(|plan| plan.figure(outcomes)).collect();
            verdicts::rows(&figures)
        });
        rows.into_iter().filter(is_concerned).collect()
    };
    let prompt_plans: Vec<Plan> = plans.iter().map(|plan| plan.with(prompt)).collect();
    let fitted = rows(plans, outcomes);
    let prompt = rows(&prompt_plans, outcomes);
    let reading =
        |name: &str| [format!("{name} (s)"), format!("{name}: 95 %"), format!("{name}: verdict")];
    let head = ["figure", "what", "reported"].map(str::to_owned).into_iter();
    let head = head.chain(reading("gathered")).chain(reading("prompt")).collect();
    let cells = |(fitted, prompt): (&Row, &Row)| {
        let told = |row: &Row| {
            let (least, greatest) = row.interval();
            let interval = if least.is_nan() {
                "too few runs".to_owned()
            } else {
                format!("{least:.0} to {greatest:.0}")
            };
            [format!("{:.0}", row.measured), interval, row.verdict().to_string()]
        };
        let mut cells = vec![fitted.figure.clone(), fitted.what.clone(), fitted.reported.clone()];
        cells.extend([fitted, prompt].into_iter().flat_map(told));
        cells
    };
    let table = Table {
        name: "both-readings",
        head,
        rows: fitted.iter().zip(&prompt).map(cells).collect(),
    };
    Section {
        title: "R(∞) in both readings".to_owned(),
        text: "The paper does not say how long NAKs are gathered before a retransmission. 15 s were \
               fitted: with them ten numbers come out within 10 %. NAKs are in within 0.4 s by the \
               paper's Table 1; with retransmission as soon as all are in, R(∞) is faster than the \
               paper has it, and stable also where all clients are bad, as in the paper's Figure 7. \
               With the fitted time FEC(0.1) and FEC(0.01R) are slow beyond 30 % of bad clients, with \
               delays as long as the time before the measured clients, and at 100 % their queues \
               grow; FEC(0.03R) and FEC(0.05R) settle up to 75 %. Points at which delays still change \
               within the run are hollow. Points without a verdict have two seeds, which rarely \
               tell such a change."
            .to_owned(),
        figures: vec![figure(base, outcomes)],
        tables: vec![table],
    }
}

fn figure(base: &Base, outcomes: &Outcomes<Point>) -> Figure {
    let prompt_base = prompt_base(base);
    let series = |name: String, points: Vec<(u32, Point)>| {
        let point = |(x, point): (u32, Point)| {
            let Estimate { mean, ci95 } = delay(outcomes, &point);
            output::Point { x: f64::from(x), y: mean, ci95 }
        };
        Series { name, points: points.into_iter().map(point).collect() }
    };
    let over_loss = |base: &Base, reading: &str| {
        let points = LOSS.iter().map(|&loss| (loss, base.alike(PLAIN, 0, loss))).collect();
        series(format!("{}, {reading}", named(PLAIN)), points)
    };
    let over_bad = |base: &Base, reading: &str, policy: &str| {
        let points = BAD.iter().map(|&bad| (bad, base.mixed(policy, bad))).collect();
        series(format!("{}, {reading}", named(policy)), points)
    };
    let readings = [(base, "gathered"), (&prompt_base, "prompt")];
    let mut hollow = Vec::new();
    for (base, reading) in readings {
        for (policy, &bad) in SCHEMES.iter().flat_map(|p| BAD.iter().map(move |bad| (p, bad))) {
            if outcomes.get(&base.mixed(policy, bad)).is_some_and(|runs| drifts(runs)) {
                hollow.push((format!("{}, {reading}", named(policy)), f64::from(bad)));
            }
        }
    }
    let panel = |title: &str, x_label: &str, series| Panel {
        title: title.to_owned(),
        x_label: x_label.to_owned(),
        y_label: "average client delay (s)".to_owned(),
        y_limit: Some(2_500.0),
        series,
        ..Panel::default()
    };
    let loss = vec![over_loss(base, "gathered"), over_loss(&prompt_base, "prompt")];
    let bad = readings
        .into_iter()
        .flat_map(|(base, reading)| SCHEMES.map(|policy| over_bad(base, reading, policy)));
    Figure {
        id: FigureId::Beyond(2),
        title: "R(∞) in both readings".to_owned(),
        panels: vec![
            panel("All clients alike", CLIENT_LOSS, loss),
            Panel { hollow, ..panel(CLASSES, BAD_CLIENTS, bad.collect()) },
        ],
        caption:
            "Gathered: NAKs for 15 s, the fitted reading. Prompt: a retransmission as soon as \
                  all NAKs are in. Hollow: delays still change within the run. What is above 2,500 s \
                  is in beyond2.csv only."
                .to_owned(),
    }
}

impl Choices {
    /// Returns these choices, but with retransmissions as soon as all NAKs are in.
    pub(super) fn prompt(self) -> Choices {
        Choices { gather: std::time::Duration::from_millis(390), gather_fully: false, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repository::figures::tests::base;

    #[test]
    fn every_number_of_a_scheme_that_retransmits_always_has_both_readings() {
        let base = base();
        let plans = base.plans();
        let points = judged(&plans);
        assert!(points.iter().all(|point| point.policy.contains("R(inf)")));
        let section = section(&base, &plans, &mut Outcomes::new());
        let rows = &section.tables[0].rows;
        let of = |figure: &str| rows.iter().filter(|row| row[0] == figure).count();
        let counts = ["3", "4", "5", "6", "7", "8", "10"].map(of);
        assert_eq!(counts, [1, 4, 2, 2, 2, 0, 2]);
        let panels = &section.figures[0].panels;
        assert_eq!(panels[1].series.iter().map(|s| s.points.len()).collect::<Vec<_>>(), [9; 8]);
        for plan in &plans {
            for (_, mark) in verdicts::rows(&[plan.figure(&Outcomes::new())])
                .iter()
                .filter(|row| is_concerned(row))
                .filter_map(|row| row.place.as_ref())
            {
                let point = plan.point(&mark.series, mark.x).unwrap();
                assert!(points.contains(point) && points.contains(&prompt(point)));
            }
        }
    }
}
