//! Handmade figures for tests of the verdicts.

use super::{Figure, FigureId, Panel, Point, Series};

/// Creates a curve without confidence intervals.
pub(crate) fn curve(name: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Series {
    let points = points.into_iter().map(|(x, y)| Point { x, y, ci95: 0.0 });
    Series { name: name.to_owned(), points: points.collect() }
}

/// Creates a figure of a paper: its panels by their titles, and their curves.
pub(crate) fn figure(
    number: u32,
    panels: impl IntoIterator<Item = (impl Into<String>, Vec<Series>)>,
) -> Figure {
    let panels = panels.into_iter().map(|(title, series)| Panel {
        title: title.into(),
        x_label: String::new(),
        y_label: String::new(),
        series,
        ..Panel::default()
    });
    Figure {
        id: FigureId::Paper(number),
        title: String::new(),
        panels: panels.collect(),
        caption: String::new(),
    }
}
