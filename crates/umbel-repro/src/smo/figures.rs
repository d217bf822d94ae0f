//! Figures 5 and 7.

use super::scenario::{Load, Losses, Outcome, Rule, Scenario};
use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Series};
use crate::pool::Outcomes;

/// Numbers of receivers of Figure 5.
pub(super) const SIZES: [u32; 6] = [100, 200, 400, 600, 800, 1000];
/// Segments of the file of Figure 5.
const FILE: u32 = 1500;
/// RTTs of Figure 7 in ms, and losses in percent.
pub(super) const RTTS_MS: [u32; 3] = [20, 60, 100];
pub(super) const LOSSES: [u32; 5] = [2, 4, 6, 8, 10];
/// Frames of Figure 7, and the time between them in µs.
pub(super) const FRAMES: u32 = 5000;
const INTERVAL_US: u32 = 20_000;
/// Playout delay of Figure 7 in ms. Chosen.
const PLAYOUT_MS: u32 = 1000;
/// A window that the stream never fills: the prototype had no congestion control [SMO §V].
pub(super) const UNRESPONSIVE: Rule = Rule::Essential(1000, 1000);

/// Names of the curves of Figure 5.
pub(super) const LIMITED: &str = "TCP-SMO, an ACK for 2";
pub(super) const UNICASTS: &str = "N unicasts (100 Mb/s / N)";

/// Outcomes, and how long streams were.
#[derive(Clone, Copy, Debug)]
pub(super) struct Results<'a> {
    pub(super) outcomes: &'a Outcomes<Scenario>,
    pub(super) percent: u32,
}

impl Results<'_> {
    /// Returns the mean of a value over the runs of a scenario.
    pub(super) fn estimate(&self, scenario: Scenario, value: impl Fn(&Outcome) -> f64) -> Estimate {
        let runs = self.outcomes.get(&scenario.shortened(self.percent)).into_iter().flatten();
        Estimate::of(&runs.map(value).collect::<Vec<f64>>())
    }

    /// Returns the mean rate in Mb/s.
    pub(super) fn rate(&self, scenario: Scenario) -> f64 {
        self.estimate(scenario, |outcome| outcome.rate / 1e6).mean
    }
}

/// Returns the curves of Figure 5: segments for an ACK, and whether the server has a limit.
fn curves() -> [(u8, bool, &'static str); 4] {
    [
        (2, true, LIMITED),
        (4, true, "TCP-SMO, an ACK for 4"),
        (2, false, "an ACK for 2, no limit of the server"),
        (4, false, "an ACK for 4, no limit of the server"),
    ]
}

/// Returns a scenario of Figure 5.
pub(super) fn file(receivers: u32, ack_every: u8, is_limited: bool) -> Scenario {
    let scenario = Scenario { ack_every, ..Scenario::lan(receivers, Load::Bulk(FILE)) };
    Scenario { server_acks: scenario.server_acks.filter(|_| is_limited), ..scenario }
}

/// Returns a scenario of Figure 7.
pub(super) fn video(rtt_ms: u32, percent: u32) -> Scenario {
    Scenario {
        losses: Losses::Independent(percent * 10, 100),
        rtt_us: rtt_ms * 1000,
        real_time_ms: Some(PLAYOUT_MS),
        rule: UNRESPONSIVE,
        ..Scenario::lan(100, Load::Frames(FRAMES, INTERVAL_US))
    }
}

/// Returns the scenarios of a figure.
pub(super) fn scenarios(figure: u32) -> Vec<Scenario> {
    match figure {
        5 => curves()
            .into_iter()
            .flat_map(|(every, limited, _)| SIZES.map(|n| file(n, every, limited)))
            .collect(),
        7 => {
            RTTS_MS.into_iter().flat_map(|rtt| LOSSES.map(|percent| video(rtt, percent))).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns a figure of the paper.
pub(super) fn figure(number: u32, results: &Results<'_>) -> Figure {
    if number == 5 { throughput(results) } else { lost_frames(results) }
}

fn throughput(results: &Results<'_>) -> Figure {
    let mut series: Vec<Series> = curves()
        .into_iter()
        .map(|(every, limited, name)| {
            let points = SIZES.map(|n| {
                let scenario = file(n, every, limited);
                let rate = results.estimate(scenario, |outcome| outcome.rate / 1e6);
                Point { x: f64::from(n), y: rate.mean, ci95: rate.ci95 }
            });
            Series { name: name.to_owned(), points: points.into() }
        })
        .collect();
    let points = SIZES.map(|n| Point { x: f64::from(n), y: 100.0 / f64::from(n), ci95: 0.0 });
    series.push(Series { name: UNICASTS.to_owned(), points: points.into() });
    let panel = Panel {
        title: String::new(),
        x_label: "number of receivers".to_owned(),
        y_label: "throughput to each (Mb/s)".to_owned(),
        y_limit: Some(30.0),
        series,
        ..Panel::default()
    };
    Figure {
        id: FigureId::Paper(5),
        title: "Throughput of TCP-SMO and of many unicasts".to_owned(),
        panels: vec![panel],
        caption: "A LAN of 100 Mb/s. The paper's server processed 50,000 to 60,000 ACKs/s, which \
                  is a parameter here: 55,000."
            .to_owned(),
    }
}

/// Returns the name of a curve of Figure 7.
pub(super) fn rtt_name(rtt_ms: u32) -> String {
    format!("RTT {rtt_ms} ms")
}

fn lost_frames(results: &Results<'_>) -> Figure {
    let curve = |name: String, value: &dyn Fn(u32) -> (Scenario, fn(&Outcome) -> f64)| {
        let points = LOSSES.map(|percent| {
            let (scenario, value) = value(percent);
            let frames = results.estimate(scenario, value);
            Point { x: percent.into(), y: frames.mean, ci95: frames.ci95 }
        });
        Series { name, points: points.into() }
    };
    let skipped: fn(&Outcome) -> f64 = |outcome| outcome.skipped;
    let mut series: Vec<Series> = RTTS_MS
        .into_iter()
        .map(|rtt| curve(rtt_name(rtt), &|percent| (video(rtt, percent), skipped)))
        .collect();
    series.push(curve("UDP".to_owned(), &|percent| (video(20, percent), |o| o.lost)));
    let panel = Panel {
        title: String::new(),
        x_label: "packets that the network drops (%)".to_owned(),
        y_label: "lost frames of 5,000".to_owned(),
        y_limit: Some(600.0),
        series,
        ..Panel::default()
    };
    Figure {
        id: FigureId::Paper(7),
        title: "Frames lost to the application".to_owned(),
        panels: vec![panel],
        caption: "100 receivers, 50 frames/s, real-time mode with a playout delay of 1 s. UDP: \
                  what the network drops of the same stream."
            .to_owned(),
    }
}
