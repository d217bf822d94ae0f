//! Figures 11 to 16.

use std::collections::BTreeSet;

use super::measures::{self, Place, Spread};
use super::scenario::{Delays, GRAPHS, Graph, LinkClass, Setting};
use super::schemes::Scheme;
use super::trial::{Outcome, Trial};
use crate::estimate::Estimate;
use crate::output::{Figure, FigureId, Panel, Point, Series};
use crate::pool::Outcomes;

/// Heights of the binary trees [LMS §IV-B].
pub(super) const HEIGHTS: std::ops::RangeInclusive<u32> = 3..=7;
/// Group sizes, from sparse to dense [LMS §IV-E].
const GROUPS: [u32; 3] = [5, 20, 100];
/// Group size of the figures about SRM: the authors could run no more [LMS §IV-G].
pub(super) const SRM_RECEIVERS: u32 = 20;

/// Names of places of losses. "All links" in the paper are those between routers.
pub(super) const SOURCE: &str = "loss at the source";
pub(super) const RECEIVERS: &str = "loss at the receivers";
pub(super) const LINKS: &str = "loss at links between routers";
/// All links of a binary tree, whose root is the source.
pub(super) const TREE_LINKS: &str = "loss at all links of the tree";
/// Title of the panel with groups of each size.
pub(super) const SPARSE: &str = "sparse groups, loss at links between routers";

/// Places of losses on the trees and the random graphs, with their names.
const PLACES: [(Place, &str); 3] =
    [(Place::Source, SOURCE), (Place::Receivers, RECEIVERS), (Place::Links, LINKS)];

/// Places of losses on binary trees, whose leaves are the receivers.
const TREE_PLACES: [(Place, &str); 3] = [PLACES[0], PLACES[1], (Place::Tree, TREE_LINKS)];

/// Places of losses on transit–stub graphs.
const CLASSES: [(Place, &str); 4] = [
    (Place::Links, LINKS),
    (Place::Class(LinkClass::TransitTransit), "loss at transit–transit links"),
    (Place::Class(LinkClass::TransitStub), "loss at transit–stub links"),
    (Place::Class(LinkClass::StubStub), "loss at stub–stub links"),
];

/// Settings that all experiments share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub(super) delays: Delays,
    pub(super) access_percent: u32,
}

/// One of the metrics.
type Measure = fn(&[Outcome], Place) -> Spread;

/// A column of a curve: its x, and the trial that ran there.
type Column = (f64, Trial);

impl Base {
    fn trial(self, scheme: Scheme, graph: Graph, number: u32) -> Trial {
        let Base { delays, access_percent } = self;
        Trial { scheme, setting: Setting { graph, delays, number, access_percent } }
    }

    /// Returns the columns of a scheme on the binary trees, by height.
    fn trees(self, scheme: Scheme) -> Vec<Column> {
        let tree = |height| self.trial(scheme, Graph::Binary { height }, 0);
        HEIGHTS.map(|height| (f64::from(height), tree(height))).collect()
    }

    /// Returns the columns of a scheme on the graphs of a kind, by number.
    pub(super) fn graphs(self, scheme: Scheme, graph: Graph) -> Vec<Column> {
        (0..GRAPHS).map(|n| (f64::from(n), self.trial(scheme, graph, n))).collect()
    }

    /// Returns the trials of a figure.
    pub(super) fn trials(self, figure: u32) -> BTreeSet<Trial> {
        let random = |receivers| Graph::Random { receivers };
        let columns: Vec<Vec<Column>> = match figure {
            11 => vec![self.trees(Scheme::Lms)],
            12 => GROUPS.map(|n| self.graphs(Scheme::Lms, random(n))).into(),
            13 => vec![self.graphs(Scheme::Lms, Graph::TransitStub { receivers: 100 })],
            14 => vec![self.graphs(Scheme::Srm, random(SRM_RECEIVERS))],
            15 => vec![self.graphs(Scheme::Pgm, random(100))],
            16 => [Scheme::Pgm, Scheme::PgmWaiting]
                .map(|scheme| self.graphs(scheme, random(100)))
                .into(),
            _ => Vec::new(),
        };
        columns.into_iter().flatten().map(|(_, trial)| trial).collect()
    }

    /// Returns a figure, from the outcomes of its trials.
    pub(super) fn figure(self, figure: u32, outcomes: &Outcomes<Trial>) -> Option<Figure> {
        let draw = Draw(outcomes);
        match figure {
            11 => Some(self.figure_11(&draw)),
            12 => Some(self.figure_12(&draw)),
            13 => Some(self.figure_13(&draw)),
            14 => Some(self.figure_14(&draw)),
            15 => Some(self.figure_15(&draw)),
            16 => Some(self.figure_16(&draw)),
            _ => None,
        }
    }

    fn figure_11(self, draw: &Draw<'_>) -> Figure {
        let columns = self.trees(Scheme::Lms);
        let mut panels = draw.latencies(&columns, &TREE_PLACES);
        panels.push(draw.exposures(&columns, &TREE_PLACES));
        for panel in &mut panels {
            "tree height".clone_into(&mut panel.x_label);
            panel.is_sample = false;
        }
        Figure {
            id: FigureId::Paper(11),
            title: "LMS with binary trees".to_owned(),
            panels,
            caption: "Binary trees are the same in every run, so that there are no confidence \
                      intervals."
                .to_owned(),
        }
    }

    fn figure_12(self, draw: &Draw<'_>) -> Figure {
        let graph = |receivers| self.graphs(Scheme::Lms, Graph::Random { receivers });
        let dense = graph(100);
        let mut panels = draw.latencies(&dense, &PLACES);
        panels.push(draw.exposures(&dense, &PLACES));
        let sparse = GROUPS.map(|receivers| {
            let value = |runs: &[Outcome]| measures::latency(runs, Place::Links).average;
            draw.curve(format!("{receivers} receivers"), &graph(receivers), value)
        });
        panels.push(Panel {
            title: SPARSE.to_owned(),
            x_label: TOPOLOGY.to_owned(),
            is_sample: true,
            y_label: LATENCY.to_owned(),
            series: sparse.into(),
            ..Panel::default()
        });
        Figure {
            id: FigureId::Paper(12),
            title: "LMS with random topologies".to_owned(),
            panels,
            caption: "G(100, 0.1); 100 receivers unless it is said otherwise. Minimum and maximum \
                      are those of a placement of the receivers, on average."
                .to_owned(),
        }
    }

    fn figure_13(self, draw: &Draw<'_>) -> Figure {
        let columns = self.graphs(Scheme::Lms, Graph::TransitStub { receivers: 100 });
        let mut panels = draw.latencies(&columns, &CLASSES);
        panels.push(draw.exposures(&columns, &CLASSES));
        Figure {
            id: FigureId::Paper(13),
            title: "LMS with transit–stub topologies".to_owned(),
            panels,
            caption: "1 × 4 × (1 + 3 × 8) routers, 100 receivers at stub routers.".to_owned(),
        }
    }

    fn figure_14(self, draw: &Draw<'_>) -> Figure {
        let columns = self.graphs(Scheme::Srm, Graph::Random { receivers: SRM_RECEIVERS });
        let mut panels = draw.latencies(&columns, &PLACES);
        let counts: [(&str, Measure); 2] =
            [("requests", measures::requests), ("repairs", measures::repairs)];
        for (what, measure) in counts {
            panels.push(Panel {
                title: format!("{what} for each loss"),
                x_label: TOPOLOGY.to_owned(),
                is_sample: true,
                y_label: format!("{what} for each loss"),
                series: draw.places(&columns, &PLACES, measure),
                ..Panel::default()
            });
        }
        Figure {
            id: FigureId::Paper(14),
            title: "SRM with random topologies".to_owned(),
            panels,
            caption: format!("The graphs of Figure 12 with {SRM_RECEIVERS} receivers."),
        }
    }

    fn figure_15(self, draw: &Draw<'_>) -> Figure {
        let columns = self.graphs(Scheme::Pgm, Graph::Random { receivers: 100 });
        Figure {
            id: FigureId::Paper(15),
            title: "PGM with random topologies".to_owned(),
            panels: draw.latencies(&columns, &PLACES),
            caption: "The graphs and receivers of Figure 12; no wait at the source.".to_owned(),
        }
    }

    fn figure_16(self, draw: &Draw<'_>) -> Figure {
        let mut series = Vec::new();
        for (scheme, name) in [(Scheme::Pgm, "no wait"), (Scheme::PgmWaiting, "wait of an RTT")] {
            let columns = self.graphs(scheme, Graph::Random { receivers: 100 });
            let repeated = |runs: &[Outcome]| measures::repeated(runs, Place::Source);
            series.push(draw.curve(name.to_owned(), &columns, |runs| repeated(runs).average));
        }
        let panel = Panel {
            title: String::new(),
            x_label: TOPOLOGY.to_owned(),
            is_sample: true,
            y_label: "repeated retransmissions for each loss".to_owned(),
            series,
            ..Panel::default()
        };
        Figure {
            id: FigureId::Paper(16),
            title: "PGM repeated retransmissions".to_owned(),
            panels: vec![panel],
            caption: "Loss at the source. The wait is the greatest round trip of the group."
                .to_owned(),
        }
    }
}

/// Name of the axis of the graphs of a kind, which are a sample.
const TOPOLOGY: &str = "topology number";
const LATENCY: &str = "normalized recovery latency (RTT)";

/// Draws curves of outcomes.
struct Draw<'a>(&'a Outcomes<Trial>);

impl Draw<'_> {
    fn curve(
        &self,
        name: String,
        columns: &[Column],
        value: impl Fn(&[Outcome]) -> Estimate,
    ) -> Series {
        // Runs that were left out have no point, so that means over graphs are of the others.
        let points = columns.iter().filter_map(|&(x, trial)| {
            let Estimate { mean, ci95 } = value(self.0.get(&trial)?);
            Some(Point { x, y: mean, ci95 })
        });
        Series { name, points: points.collect() }
    }

    /// Returns a panel for each place: average, minimum and maximum of the latency.
    fn latencies(&self, columns: &[Column], places: &[(Place, &str)]) -> Vec<Panel> {
        let panel = |&(place, title): &(Place, &str)| {
            let spread = |runs: &[Outcome]| measures::latency(runs, place);
            Panel {
                title: title.to_owned(),
                x_label: TOPOLOGY.to_owned(),
                is_sample: true,
                y_label: LATENCY.to_owned(),
                series: vec![
                    self.curve("average".to_owned(), columns, |runs| spread(runs).average),
                    self.curve("minimum".to_owned(), columns, |runs| spread(runs).least),
                    self.curve("maximum".to_owned(), columns, |runs| spread(runs).greatest),
                ],
                ..Panel::default()
            }
        };
        places.iter().map(panel).collect()
    }

    /// Returns a panel with the exposure at each place.
    fn exposures(&self, columns: &[Column], places: &[(Place, &str)]) -> Panel {
        Panel {
            title: "exposure".to_owned(),
            x_label: TOPOLOGY.to_owned(),
            is_sample: true,
            y_label: "duplicates of a receiver for each loss".to_owned(),
            series: self.places(columns, places, measures::exposure),
            ..Panel::default()
        }
    }

    /// Returns a curve for each place.
    fn places(
        &self,
        columns: &[Column],
        places: &[(Place, &str)],
        measure: fn(&[Outcome], Place) -> Spread,
    ) -> Vec<Series> {
        let curve = |&(place, name): &(Place, &str)| {
            self.curve(name.to_owned(), columns, |runs| measure(runs, place).average)
        };
        places.iter().map(curve).collect()
    }
}
