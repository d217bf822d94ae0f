//! Experiments that the paper did not do. These are other repliers, many losses, lost requests and
//! repairs, routers without LMS, receivers that come and go, and SRM in large groups.

pub mod stream;

use std::collections::BTreeSet;

use self::stream::{Damage, Stream};
use super::figures::{Base, LINKS, RECEIVERS, SOURCE};
use super::measures::{self, Place, Spread};
use super::scenario::{Delays, Graph, Setting};
use super::schemes::Scheme;
use super::trial::{self, Trial};
use super::verdicts::row;
use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Row, Section, Series};
use crate::pool::{Experiment, Outcomes};
use crate::record::{Cells, Record};

/// An experiment of either kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Run {
    /// Losses one after the other.
    Trial(Trial),
    /// Losses at random.
    Stream(Stream),
}

impl Run {
    /// Returns the number of the graph if it is one of a sample.
    pub(super) fn graph(&self) -> Option<u32> {
        match self {
            Run::Trial(trial) => trial.graph(),
            Run::Stream(_) => None,
        }
    }
}

/// Results of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Results of losses one after the other.
    Trial(trial::Outcome),
    /// Results of random losses.
    Stream(stream::Outcome),
}

/// A run has the cells of its kind, and empty ones for the other.
impl Record for Outcome {
    fn columns() -> Vec<String> {
        let stream = stream::Outcome::columns().into_iter().map(|name| format!("stream_{name}"));
        trial::Outcome::columns().into_iter().chain(stream).collect()
    }

    fn write(&self, cells: &mut Vec<String>) {
        let (trial, stream) = match self.clone() {
            Outcome::Trial(outcome) => (Some(outcome), None),
            Outcome::Stream(outcome) => (None, Some(outcome)),
        };
        trial.write(cells);
        stream.write(cells);
    }

    fn read(cells: &mut Cells<'_>) -> Option<Outcome> {
        let trial: Option<trial::Outcome> = Record::read(cells)?;
        let stream: Option<stream::Outcome> = Record::read(cells)?;
        match (trial, stream) {
            (Some(outcome), None) => Some(Outcome::Trial(outcome)),
            (None, Some(outcome)) => Some(Outcome::Stream(outcome)),
            _ => None,
        }
    }
}

impl Experiment for Run {
    type Outcome = Outcome;

    const RUNS: &'static str = "beyond-runs";

    fn run(&self, seed: u64) -> Outcome {
        match self {
            Run::Trial(trial) => Outcome::Trial(trial.run(seed)),
            Run::Stream(stream) => Outcome::Stream(stream.run(seed)),
        }
    }

    fn work(&self) -> u64 {
        match self {
            Run::Trial(trial) => trial.work(),
            Run::Stream(stream) => stream.work(),
        }
    }
}

/// Shares of routers with LMS, in percent.
const DEPLOYMENT: [u8; 7] = [0, 10, 25, 50, 75, 90, 100];
/// Group sizes of SRM.
const SRM_SIZES: [u32; 3] = [20, 100, 1_000];
/// A size of minutes of processor time a run, with the sizes beside it.
const SRM_CROWD: u32 = 10_000;
/// Loss of each link, in hundredths of a percent.
const LOSSES: [u32; 5] = [10, 50, 100, 200, 500];
/// Loss of the bad receivers' links, in hundredths of a percent.
const BAD_LOSSES: [u32; 4] = [200, 500, 1_000, 2_000];
/// Milliseconds between two changes of a receiver.
const CHANGES: [u32; 5] = [500, 1_000, 2_000, 5_000, 10_000];

const LOSS: &str = "loss of each link (%)";
const LATENCY: &str = "normalized recovery latency (RTT)";
const EXPOSURE: &str = "duplicates of a receiver for each packet";

fn base() -> Base {
    let delays = Delays::Plane;
    Base { delays, access_percent: delays.usual_access_percent() }
}

fn deployed(percent: u8) -> Vec<Trial> {
    let graph = Graph::Random { receivers: 100 };
    let columns = base().graphs(Scheme::LmsPartial(percent), graph);
    columns.into_iter().map(|(_, trial)| trial).collect()
}

fn dynamic() -> Vec<Trial> {
    let graphs = [Graph::Random { receivers: 100 }, Graph::TransitStub { receivers: 100 }];
    let columns = graphs.into_iter().flat_map(|graph| base().graphs(Scheme::LmsDynamic, graph));
    columns.map(|(_, trial)| trial).collect()
}

fn large(receivers: u32) -> Trial {
    let Base { delays, access_percent } = base();
    let graph = Graph::Random { receivers };
    let setting = Setting { graph, delays, number: 0, access_percent };
    Trial { scheme: Scheme::SrmLarge, setting }
}

fn lossy(scheme: Scheme, damage: Damage, loss: u32) -> Stream {
    Stream { scheme, receivers: 20, damage, loss, change_ms: 0 }
}

fn bad(scheme: Scheme, loss: u32) -> Stream {
    Stream { receivers: 100, ..lossy(scheme, Damage::FewReceivers, loss) }
}

fn churning(change_ms: u32, loss: u32) -> Stream {
    let scheme = Scheme::LmsDynamic;
    Stream { change_ms, receivers: 100, ..lossy(scheme, Damage::Everything, loss) }
}

/// The compared schemes, and the packets that may be lost.
const SCHEMES: [Scheme; 3] = [Scheme::Lms, Scheme::Srm, Scheme::Pgm];
const DAMAGES: [(Damage, &str); 3] = [
    (Damage::Originals, "originals"),
    (Damage::Bursts, "bursts of originals"),
    (Damage::Everything, "everything"),
];

/// Returns the experiments to run.
pub(super) fn runs() -> BTreeSet<Run> {
    let mut trials: Vec<Trial> = DEPLOYMENT.iter().flat_map(|&share| deployed(share)).collect();
    trials.extend(dynamic());
    trials.extend(SRM_SIZES.map(large));
    let mut streams = Vec::new();
    for loss in LOSSES {
        for scheme in SCHEMES {
            streams.extend(DAMAGES.map(|(damage, _)| lossy(scheme, damage, loss)));
        }
    }
    for loss in BAD_LOSSES {
        streams.extend([Scheme::Lms, Scheme::LmsDynamic].map(|scheme| bad(scheme, loss)));
    }
    for change in CHANGES {
        streams.extend([0, 100].map(|loss| churning(change, loss)));
    }
    trials.into_iter().map(Run::Trial).chain(streams.into_iter().map(Run::Stream)).collect()
}

/// Returns the experiments with the group that takes minutes, and those that it stands beside.
pub(super) fn crowd_runs() -> impl Iterator<Item = Run> {
    SRM_SIZES.into_iter().chain([SRM_CROWD]).map(|receivers| Run::Trial(large(receivers)))
}

/// Draws curves of outcomes.
struct Draw<'a>(&'a Outcomes<Run>);

impl Draw<'_> {
    fn trials(&self, trials: &[Trial]) -> Vec<trial::Outcome> {
        let runs = trials.iter().filter_map(|trial| self.0.get(&Run::Trial(*trial))).flatten();
        runs.filter_map(|outcome| match outcome {
            Outcome::Trial(outcome) => Some(outcome.clone()),
            Outcome::Stream(_) => None,
        })
        .collect()
    }

    fn stream(&self, stream: Stream, value: fn(&stream::Outcome) -> f64) -> Estimate {
        let runs = self.0.get(&Run::Stream(stream)).into_iter().flatten();
        let values: Vec<f64> = runs
            .filter_map(|outcome| match outcome {
                Outcome::Stream(outcome) => Some(value(outcome)),
                Outcome::Trial(_) => None,
            })
            .collect();
        Estimate::of(&values)
    }

    /// Returns a curve of streams, each with its x.
    fn curve(
        &self,
        name: &str,
        streams: impl IntoIterator<Item = (f64, Stream)>,
        value: fn(&stream::Outcome) -> f64,
    ) -> Series {
        let point = |(x, stream)| {
            let Estimate { mean, ci95 } = self.stream(stream, value);
            Point { x, y: mean, ci95 }
        };
        Series { name: name.to_owned(), points: streams.into_iter().map(point).collect() }
    }
}

fn panel(title: &str, x_label: &str, y_label: &str, series: Vec<Series>) -> Panel {
    let [title, x_label, y_label] = [title, x_label, y_label].map(str::to_owned);
    Panel { title, x_label, y_label, series, ..Panel::default() }
}

fn figure(number: u32, title: &str, panels: Vec<Panel>) -> Figure {
    let (id, title) = (FigureId::Beyond(number), title.to_owned());
    Figure { id, title, panels, caption: String::new() }
}

fn section(title: &str, text: &str, figure: Figure) -> Section {
    let (title, text) = (title.to_owned(), text.to_owned());
    Section { title, text, figures: vec![figure], tables: Vec::new() }
}

fn percent(hundredths: u32) -> f64 {
    f64::from(hundredths) / 100.0
}

/// Returns the sections of the report.
pub(super) fn sections(outcomes: &Outcomes<Run>) -> Vec<Section> {
    let draw = Draw(outcomes);
    vec![repliers(&draw), losses(&draw), deployment(&draw), churn(&draw)]
}

fn repliers(draw: &Draw<'_>) -> Section {
    let schemes = [(Scheme::Lms, "static"), (Scheme::LmsDynamic, "dynamic")];
    let curves = |value: fn(&stream::Outcome) -> f64| {
        let curve = |(scheme, name)| {
            draw.curve(name, BAD_LOSSES.map(|loss| (percent(loss), bad(scheme, loss))), value)
        };
        schemes.map(curve).into()
    };
    let x = "loss of the links of a tenth of the receivers (%)";
    let panels = vec![
        panel("latency", x, LATENCY, curves(|outcome| outcome.latency)),
        panel("exposure", x, EXPOSURE, curves(|outcome| outcome.exposure)),
    ];
    section(
        "Dynamic repliers",
        "Static repliers are the nearest ones. Dynamic ones advertise their measured round trip times \
         1 + 50 times the share of packets that they lost. A tenth of 100 receivers has bad links; the \
         others lose nothing.",
        figure(1, "Static and dynamic repliers", panels),
    )
}

fn losses(draw: &Draw<'_>) -> Section {
    let curves = |damage: Damage, value: fn(&stream::Outcome) -> f64| -> Vec<Series> {
        let curve = |scheme: Scheme| {
            let streams = LOSSES.map(|loss| (percent(loss), lossy(scheme, damage, loss)));
            draw.curve(scheme.name(), streams, value)
        };
        SCHEMES.map(curve).into()
    };
    let mut panels = Vec::new();
    for (damage, name) in DAMAGES {
        let latency = curves(damage, |outcome| outcome.latency);
        panels.push(panel(&format!("latency, {name} lost"), LOSS, LATENCY, latency));
        let exposure = curves(damage, |outcome| outcome.exposure);
        panels.push(panel(&format!("exposure, {name} lost"), LOSS, EXPOSURE, exposure));
    }
    section(
        "Many losses, correlated losses, lost requests and repairs",
        "400 packets, 20 a second, to 20 receivers. Each link loses packets at random: originals only, as \
         in the paper; originals in bursts of five on average; or all packets in both directions, \
         requests, confirmations, repairs and session messages included.",
        figure(2, "Losses at random", panels),
    )
}

fn deployment(draw: &Draw<'_>) -> Section {
    let curve = |name: &str, place: Place, value: fn(&[trial::Outcome], Place) -> Spread| {
        let point = |&share: &u8| {
            let Estimate { mean, ci95 } = value(&draw.trials(&deployed(share)), place).average;
            Point { x: f64::from(share), y: mean, ci95 }
        };
        Series { name: name.to_owned(), points: DEPLOYMENT.iter().map(point).collect() }
    };
    let curves = |value: fn(&[trial::Outcome], Place) -> Spread| {
        vec![
            curve(SOURCE, Place::Source, value),
            curve(RECEIVERS, Place::Receivers, value),
            curve(LINKS, Place::Links, value),
        ]
    };
    let x = "routers with LMS (%)";
    let y = "duplicates of a receiver for each loss";
    let panels = vec![
        panel("latency", x, LATENCY, curves(measures::latency)),
        panel("exposure", x, y, curves(measures::exposure)),
        panel("repairs", x, "repairs for each loss", curves(measures::repairs)),
    ];
    section(
        "Partial deployment",
        "G(100, 0.1) with 100 receivers; routers have LMS at random. Requests pass routers without it \
         towards the source; without any LMS the source answers by unicast, and by multicast when several \
         ask for the same.",
        figure(3, "Routers without LMS", panels),
    )
}

fn churn(draw: &Draw<'_>) -> Section {
    let curves = |value: fn(&stream::Outcome) -> f64| -> Vec<Series> {
        let curve = |(loss, name)| {
            let streams = CHANGES.map(|ms| (f64::from(ms) / 1e3, churning(ms, loss)));
            draw.curve(name, streams, value)
        };
        [(0, "no loss"), (100, "1 % of everything lost on each link")].map(curve).into()
    };
    let x = "time between leaving and coming back, and leaving again (s)";
    let panels = vec![
        panel("latency", x, LATENCY, curves(|outcome| outcome.latency)),
        panel("exposure", x, EXPOSURE, curves(|outcome| outcome.exposure)),
    ];
    section(
        "Receivers that come and go",
        "100 receivers with LMS leave in turn, and come back after the same time: half of them are away at \
         any moment, and routers select repliers anew all the time.",
        figure(4, "Churn", panels),
    )
}

/// Returns the section on SRM in groups of each size that was run.
pub(super) fn large_groups(outcomes: &Outcomes<Run>) -> Section {
    let draw = Draw(outcomes);
    let sizes = || SRM_SIZES.into_iter().chain([SRM_CROWD]);
    let curve = |name: &str, place: Place, value: fn(&[trial::Outcome], Place) -> Spread| {
        let point = |receivers: u32| {
            let runs = draw.trials(&[large(receivers)]);
            let Estimate { mean, ci95 } = value(&runs, place).average;
            let x = f64::from(receivers).log10();
            (!runs.is_empty()).then_some(Point { x, y: mean, ci95 })
        };
        Series { name: name.to_owned(), points: sizes().filter_map(point).collect() }
    };
    let curves = |value: fn(&[trial::Outcome], Place) -> Spread| {
        vec![
            curve(SOURCE, Place::Source, value),
            curve("loss at a receiver", Place::Receivers, value),
            curve("loss at a link", Place::Links, value),
        ]
    };
    let x = "receivers (power of ten)";
    let panels = vec![
        panel("latency", x, LATENCY, curves(measures::latency)),
        panel("requests", x, "requests for each loss", curves(measures::requests)),
        panel("repairs", x, "repairs for each loss", curves(measures::repairs)),
    ];
    section(
        "SRM in large groups",
        "Up to 1,000 receivers on a graph of 100 routers, and 10,000 in the part `crowd`, which takes \
         minutes a run; the authors could run no more than 20. Ten losses in each run. Members know their distance to the source and take the mean of these for all \
         others, since at 10,000 nobody hears from all others in time. Timers are those of Figure 14.",
        figure(5, "SRM with many receivers", panels),
    )
}

/// Returns the rows of claims that must hold beyond the paper.
pub(super) fn rows(outcomes: &Outcomes<Run>) -> Vec<Row> {
    let draw = &Draw(outcomes);
    let mut unrepaired = 0.0;
    for loss in LOSSES {
        for scheme in SCHEMES {
            for (damage, _) in DAMAGES {
                let left = draw.stream(lossy(scheme, damage, loss), |o| o.unrepaired as f64);
                unrepaired += left.mean;
            }
        }
    }
    let all = dynamic();
    let (random, stub) = all.split_at(all.len() / 2);
    let [random, stub] = [random, stub].map(|trials| draw.trials(trials));
    let latency = |runs: &[trial::Outcome], place| measures::latency(runs, place).average.mean;
    let exposure = |runs: &[trial::Outcome], place| measures::exposure(runs, place).average.mean;
    let at_most = |what: &str, reported: &str, measured: f64, most: f64| {
        row("beyond 1", format!("dynamic repliers, {what}"), reported, measured, (0.0, most))
    };
    vec![
        at_most("random, loss at the source", "0.4", latency(&random, Place::Source), 0.4),
        at_most("random, loss at the receivers", "0.5", latency(&random, Place::Receivers), 0.5),
        at_most(
            "random, loss at links between routers",
            "0.6",
            latency(&random, Place::Links),
            0.6,
        ),
        at_most("random, exposure, receivers", "3 %", exposure(&random, Place::Receivers), 0.03),
        at_most(
            "random, exposure, links between routers",
            "1 %",
            exposure(&random, Place::Links),
            0.01,
        ),
        at_most(
            "transit–stub, loss at links between routers",
            "0.5",
            latency(&stub, Place::Links),
            0.5,
        ),
        at_most(
            "transit–stub, exposure, links between routers",
            "20 %",
            exposure(&stub, Place::Links),
            0.2,
        ),
        row(
            "beyond 2",
            "packets that never came, all schemes and losses",
            "none",
            unrepaired,
            (0.0, 0.0),
        ),
    ]
}
