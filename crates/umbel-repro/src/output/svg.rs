//! Plots: curves with error bars, as SVG.
//!
//! The crate `plotters` was considered: 0.3.7 of September 2024 is its newest in November 2026. Its
//! SVG has whole pixels and colours as attributes: no style sheet and so no dark page, no dashes,
//! no `title` at a point, no `aria-label`. All of these are in use here.
//!
//! Each curve has its own colour, marker and dashes, so that ten curves are distinguishable on
//! paper and without colours. Colours follow the reader's preference for light or dark.

use std::fmt::Write as _;

use super::scale::{Scale, extent};
use super::tornado::Tornado;
use super::{Figure, Panel, Point, escape, number, scale};

/// Style sheet of all plots. Each SVG file contains it, and a page contains it once.
pub(super) const STYLE: &str = include_str!("plot.css");

/// Number of colours in [`STYLE`]; each has its marker.
const COLOURS: usize = 10;
/// Dashes of lines, in pixels. Their number differs from that of the colours, so that the first few
/// dozen curves all differ.
const DASHES: [&str; 7] = ["", "9 4", "2 4", "12 4 2 4", "5 3", "16 5", "9 3 2 3 2 3"];

/// Size of the area inside the axes.
const PLOT_WIDTH: f64 = 600.0;
const PLOT_HEIGHT: f64 = 380.0;
pub(super) const LINE_HEIGHT: f64 = 22.0;
/// Font size of the legend, and approximate width of a character in a title.
const LEGEND_SIZE: f64 = 13.5;
const TITLE_CHARACTER: f64 = 8.8;
/// Space above the axes.
const TOP: f64 = 18.0;
/// Minimum width for the title of a figure without a panel.
const TITLE_WIDTH_MIN: f64 = 400.0;
/// Radius of a marker, and of the star that is the paper's own point.
const RADIUS: f64 = 4.2;
const STAR_RADIUS: f64 = 7.5;
/// Least height of a band, which a single value has.
const BAND_HEIGHT_MIN: f64 = 4.0;

/// A sign that is no curve.
#[derive(Clone, Copy)]
enum Key {
    /// The paper's own point.
    Star,
    /// The paper's own range.
    Band,
    /// A point that depends on the length of the run.
    Hollow,
    /// The quartiles of a sample.
    Quartile,
}

/// Returns a complete SVG file, with the title above the figure's panels.
pub(super) fn document(figure: &Figure) -> String {
    let name = format!("{}: {}", figure.id.heading(), figure.title);
    let plots: Vec<Drawing<'_>> = figure.panels.iter().map(Drawing::new).collect();
    let width = plots.iter().map(Drawing::width).fold(TITLE_WIDTH_MIN, f64::max);
    let mut body = String::new();
    let mut y = 30.0 + heading(&mut body, &name, 26.0, width);
    for (plot, panel) in plots.iter().zip(&figure.panels) {
        if !panel.title.is_empty() {
            y += heading(&mut body, &panel.title, y + 4.0, width);
        }
        let height = plot.height();
        let _ = writeln!(body, "<g transform=\"translate(0 {y:.0})\">");
        plot.draw(&mut body);
        body.push_str("</g>\n");
        y += height;
    }
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}<style>\n{STYLE}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\"/>\n{body}</svg>\n",
        opening(&name, width, y)
    )
}

/// Returns an SVG element for a page that contains the [`STYLE`] and has the title elsewhere.
pub(super) fn element(figure: &Figure, panel: &Panel) -> String {
    let name = format!("{}: {} {}", figure.id.heading(), figure.title, panel.title);
    let plot = Drawing::new(panel);
    let mut svg = opening(name.trim_end(), plot.width(), plot.height() + TOP);
    let _ = writeln!(svg, "<g transform=\"translate(0 {TOP})\">");
    plot.draw(&mut svg);
    svg.push_str("</g>\n</svg>\n");
    svg
}

fn opening(name: &str, width: f64, height: f64) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" role=\"img\" \
         width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         aria-label=\"{}\">\n",
        escape(name)
    )
}

/// Writes a title, wrapped to the width, and returns its height.
fn heading(svg: &mut String, title: &str, y: f64, width: f64) -> f64 {
    let lines = wrap(title, (width - 40.0) / TITLE_CHARACTER);
    for (i, line) in lines.iter().enumerate() {
        let y = y + LINE_HEIGHT * i as f64;
        let _ = writeln!(svg, "<text class=\"title\" x=\"20\" y=\"{y}\">{}</text>", escape(line));
    }
    LINE_HEIGHT * lines.len() as f64
}

/// What a panel shows.
enum Drawing<'a> {
    Plot(Plot<'a>),
    Tornado(Tornado<'a>),
}

impl Drawing<'_> {
    fn new(panel: &Panel) -> Drawing<'_> {
        if panel.bars.is_empty() {
            Drawing::Plot(Plot::new(panel))
        } else {
            Drawing::Tornado(Tornado::new(panel))
        }
    }

    fn width(&self) -> f64 {
        match self {
            Drawing::Plot(plot) => plot.width(),
            Drawing::Tornado(tornado) => tornado.width(),
        }
    }

    fn height(&self) -> f64 {
        match self {
            Drawing::Plot(plot) => plot.height(),
            Drawing::Tornado(tornado) => tornado.height(),
        }
    }

    fn draw(&self, svg: &mut String) {
        match self {
            Drawing::Plot(plot) => plot.draw(svg),
            Drawing::Tornado(tornado) => tornado.draw(svg),
        }
    }
}

struct Plot<'a> {
    panel: &'a Panel,
    x: Scale,
    y: Scale,
    /// Pixels between the left edge and the axes.
    left: f64,
}

impl Plot<'_> {
    fn new(panel: &Panel) -> Plot<'_> {
        let points = || panel.series.iter().flat_map(|series| &series.points);
        let marks = || panel.marks.iter();
        let ends = points().flat_map(|point| [point.y - bar(point), point.y + bar(point)]);
        let ends = ends.chain(marks().map(|mark| mark.y));
        let ends = ends.chain(panel.bands.iter().flat_map(|band| [band.low, band.high]));
        // Error bars are cut at 0 if no measured value is negative.
        let (mut low, mut high) = extent(ends);
        if let Some(limit) = panel.y_limit {
            (low, high) = (low.min(limit), high.min(limit));
        }
        if points().all(|point| point.y >= 0.0 || !scale::drawable(point.y)) {
            low = low.max(0.0);
        }
        let xs = points().map(|point| point.x).chain(marks().map(|mark| mark.x));
        let x = Scale::new(extent(xs), 10, false);
        let y = Scale::new((low, high), 8, true);
        let widest = y.ticks().iter().map(|(_, name)| name.chars().count()).max().unwrap_or(1);
        let left = 52.0 + 7.5 * widest as f64;
        // Keep markers at the ends of the axis clear of its corners.
        Plot { panel, x: x.onto(10.0, PLOT_WIDTH - 10.0), y: y.onto(PLOT_HEIGHT, 0.0), left }
    }

    /// Returns the width in pixels, with the legend.
    fn width(&self) -> f64 {
        let names = self.panel.series.iter().map(|series| series.name.as_str());
        let names = names.chain(self.keys().map(|(_, name)| name));
        let legend = 44.0 + names.map(text_width).fold(0.0, f64::max);
        self.left + PLOT_WIDTH + 20.0 + legend + 12.0
    }

    /// Returns the height in pixels, from the upper end of the axes to below the labels.
    fn height(&self) -> f64 {
        let lines = self.panel.series.len() + self.keys().count();
        PLOT_HEIGHT.max(LINE_HEIGHT * lines as f64 - 30.0) + 58.0
    }

    fn draw(&self, svg: &mut String) {
        let _ = writeln!(svg, "<g transform=\"translate({:.1} 0)\">", self.left);
        self.axes(svg);
        for i in 0..self.panel.series.len() {
            self.bands(svg, i);
            self.quartiles(svg, i);
        }
        // The first curves are drawn last, to lie on top.
        for i in (0..self.panel.series.len()).rev() {
            self.curve(svg, i);
        }
        for i in 0..self.panel.series.len() {
            self.marks(svg, i);
        }
        self.legend(svg);
        svg.push_str("</g>\n");
    }

    fn axes(&self, svg: &mut String) {
        for (value, name) in self.x.ticks() {
            let x = self.x.pixel(value);
            let (y, text) = (PLOT_HEIGHT, PLOT_HEIGHT + 20.0);
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M{x:.1} 0V{y}\"/>\
                 <text class=\"tick\" text-anchor=\"middle\" x=\"{x:.1}\" y=\"{text}\">{name}</text>"
            );
        }
        for (value, name) in self.y.ticks() {
            let y = self.y.pixel(value);
            let text = y + 4.5;
            let _ = writeln!(
                svg,
                "<path class=\"grid\" d=\"M0 {y:.1}H{PLOT_WIDTH}\"/>\
                 <text class=\"tick\" text-anchor=\"end\" x=\"-9\" y=\"{text:.1}\">{name}</text>"
            );
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M0 0V{PLOT_HEIGHT}H{PLOT_WIDTH}\"/>\n\
             <text class=\"label\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">{}</text>\n\
             <text class=\"label\" text-anchor=\"middle\" transform=\"translate({:.1} {}) rotate(-90)\">{}</text>",
            PLOT_WIDTH / 2.0,
            PLOT_HEIGHT + 46.0,
            escape(&self.panel.x_label),
            24.0 - self.left,
            PLOT_HEIGHT / 2.0,
            escape(&self.panel.y_label),
        );
        if self.panel.series.iter().all(|series| series.points.is_empty()) {
            let _ = writeln!(
                svg,
                "<text class=\"label\" text-anchor=\"middle\" x=\"{}\" y=\"{}\">no data</text>",
                PLOT_WIDTH / 2.0,
                PLOT_HEIGHT / 2.0
            );
        }
    }

    fn curve(&self, svg: &mut String, index: usize) {
        let series = &self.panel.series[index];
        let _ = writeln!(svg, "<g class=\"curve c{}\">", index % COLOURS);
        let path = self.line(&series.points);
        if !path.is_empty() {
            let _ = writeln!(svg, "<path class=\"line\"{} d=\"{path}\"/>", dashes(index));
        }
        for point in &series.points {
            if drawn(point) && self.y.holds(point.y) {
                self.point(svg, index, point);
            }
        }
        svg.push_str("</g>\n");
    }

    /// Returns the path through these points, cut where it leaves the axis. A point that cannot be
    /// drawn leaves a gap.
    fn line(&self, points: &[Point]) -> String {
        let mut path = String::new();
        let mut before: Option<&Point> = None;
        let mut pen = false;
        for point in points {
            if !drawn(point) {
                (before, pen) = (None, false);
                continue;
            }
            let inside = self.y.holds(point.y);
            // The crossing with the end of the axis, between this point and the previous one.
            if let Some(before) = before.filter(|before| self.y.holds(before.y) != inside) {
                let end = self.y.nearest(if inside { before.y } else { point.y });
                let share = (end - before.y) / (point.y - before.y);
                self.draw_to(&mut path, pen, before.x + share * (point.x - before.x), end);
                pen = inside;
            }
            if inside {
                self.draw_to(&mut path, pen, point.x, point.y);
                pen = true;
            }
            before = Some(point);
        }
        path
    }

    fn draw_to(&self, path: &mut String, pen: bool, x: f64, y: f64) {
        let (x, y) = (self.x.pixel(x), self.y.pixel(y));
        let _ = write!(path, "{}{x:.1} {y:.1}", if pen { 'L' } else { 'M' });
    }

    fn point(&self, svg: &mut String, index: usize, point: &Point) {
        let (x, y) = (self.x.pixel(point.x), self.y.pixel(point.y));
        let name = escape(&self.panel.series[index].name);
        let _ = write!(
            svg,
            "<g><title>{name}: {} at {}",
            number::rounded(point.y),
            number::rounded(point.x)
        );
        let bar = bar(point);
        if bar > 0.0 {
            let _ = write!(svg, ", ± {}", number::rounded(bar));
        }
        svg.push_str("</title>");
        if bar > 0.0 {
            let high = self.y.clamped_pixel(point.y + bar);
            let low = self.y.clamped_pixel(point.y - bar);
            let (left, right) = (x - 4.0, x + 4.0);
            let _ = write!(
                svg,
                "<path class=\"bar\" d=\"M{x:.1} {high:.1}V{low:.1}\
                 M{left:.1} {high:.1}H{right:.1}M{left:.1} {low:.1}H{right:.1}\"/>"
            );
        }
        let name = &self.panel.series[index].name;
        let is_at = |x: f64| x.to_bits() == point.x.to_bits();
        let is_hollow = self.panel.hollow.iter().any(|(series, x)| series == name && is_at(*x));
        svg.push_str(&if is_hollow { hollow(index, x, y) } else { marker(index, x, y) });
        svg.push_str("</g>\n");
    }

    /// Draws the ranges that the paper reports of a curve, as bands in its colour from edge to
    /// edge.
    fn bands(&self, svg: &mut String, index: usize) {
        let name = &self.panel.series[index].name;
        for band in self.panel.bands.iter().filter(|band| band.series == *name) {
            let [top, bottom] = [band.high, band.low].map(|y| self.y.clamped_pixel(y));
            // A single value is a line.
            let height = (bottom - top).max(BAND_HEIGHT_MIN);
            let _ = writeln!(
                svg,
                "<g class=\"curve c{}\"><title>{}: {}, as reported</title>{}</g>",
                index % COLOURS,
                escape(name),
                escape(&band.reported),
                stripe(0.0, PLOT_WIDTH, f64::midpoint(top, bottom), height),
            );
        }
    }

    /// Draws lines at the quartiles of a curve whose points are a sample.
    fn quartiles(&self, svg: &mut String, index: usize) {
        let series = &self.panel.series[index];
        let values = series.points.iter().filter(|point| drawn(point)).map(|point| point.y);
        let Some(quartiles) = self.panel.is_sample.then(|| quartiles(values.collect())).flatten()
        else {
            return;
        };
        for (value, name) in quartiles.into_iter().zip(["lower", "upper"]) {
            if self.y.holds(value) {
                let _ = writeln!(
                    svg,
                    "<g class=\"curve c{}\"><title>{}: {name} quartile {}</title>{}</g>",
                    index % COLOURS,
                    escape(&series.name),
                    number::rounded(value),
                    quartile(0.0, PLOT_WIDTH, self.y.pixel(value)),
                );
            }
        }
    }

    /// Draws the paper's own points of a curve, as stars in its colour.
    fn marks(&self, svg: &mut String, index: usize) {
        let name = &self.panel.series[index].name;
        for mark in self.panel.marks.iter().filter(|mark| mark.series == *name) {
            if scale::drawable(mark.x) && self.y.holds(mark.y) {
                let _ = writeln!(
                    svg,
                    "<g class=\"curve c{}\"><title>{}: {} at {}, reported as {}</title>{}</g>",
                    index % COLOURS,
                    escape(name),
                    number::rounded(mark.y),
                    number::rounded(mark.x),
                    escape(&mark.reported),
                    star(self.x.pixel(mark.x), self.y.pixel(mark.y))
                );
            }
        }
    }

    /// Returns what the legend explains besides the curves.
    fn keys(&self) -> impl Iterator<Item = (Key, &'static str)> {
        let panel = self.panel;
        [
            (!panel.marks.is_empty()).then_some((Key::Star, "reported")),
            (!panel.bands.is_empty()).then_some((Key::Band, "reported range")),
            (!panel.hollow.is_empty()).then_some((Key::Hollow, "not settled")),
            panel.is_sample.then_some((Key::Quartile, "quartiles of the points")),
        ]
        .into_iter()
        .flatten()
    }

    fn legend(&self, svg: &mut String) {
        for (n, (key, name)) in self.keys().enumerate() {
            let y = 10.0 + LINE_HEIGHT * (self.panel.series.len() + n) as f64;
            let x = PLOT_WIDTH + 37.0;
            let sign = match key {
                Key::Star => star(x, y),
                Key::Hollow => hollow(0, x, y),
                Key::Band => stripe(x - 17.0, x + 17.0, y, 10.0),
                Key::Quartile => quartile(x - 17.0, x + 17.0, y),
            };
            let _ = writeln!(
                svg,
                "<g class=\"key\">{sign}<text class=\"name\" x=\"{}\" y=\"{}\">{name}</text></g>",
                PLOT_WIDTH + 63.0,
                y + 4.5
            );
        }
        for (i, series) in self.panel.series.iter().enumerate() {
            let y = 10.0 + LINE_HEIGHT * i as f64;
            let (from, to) = (PLOT_WIDTH + 20.0, PLOT_WIDTH + 54.0);
            let _ = writeln!(
                svg,
                "<g class=\"curve c{}\"><path class=\"line\"{} d=\"M{from} {y}H{to}\"/>{}\
                 <text class=\"name\" x=\"{}\" y=\"{}\">{}</text></g>",
                i % COLOURS,
                dashes(i),
                marker(i, f64::midpoint(from, to), y),
                to + 9.0,
                y + 4.5,
                escape(&series.name)
            );
        }
    }
}

fn drawn(point: &Point) -> bool {
    scale::drawable(point.x) && scale::drawable(point.y)
}

/// Returns the length of a point's error bar.
fn bar(point: &Point) -> f64 {
    if scale::drawable(point.ci95) { point.ci95.max(0.0) } else { 0.0 }
}

fn dashes(index: usize) -> String {
    match DASHES[index % DASHES.len()] {
        "" => String::new(),
        dashes => format!(" stroke-dasharray=\"{dashes}\""),
    }
}

/// Returns the marker of a curve. Five shapes are filled, then five are open.
fn marker(index: usize, x: f64, y: f64) -> String {
    shape(index, x, y, if index % COLOURS < 5 { "filled" } else { "open" })
}

/// Returns the marker of a curve without its filling.
fn hollow(index: usize, x: f64, y: f64) -> String {
    shape(index, x, y, "open")
}

fn shape(index: usize, x: f64, y: f64, class: &str) -> String {
    let r = RADIUS;
    // Corners are offsets from the centre, chosen so that all shapes look equally large.
    let corners: &[(f64, f64)] = match index % 5 {
        0 => return format!("<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{r}\"/>"),
        1 => &[(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        2 => &[(0.0, -1.25), (1.15, 0.85), (-1.15, 0.85)],
        3 => &[(0.0, -1.35), (1.1, 0.0), (0.0, 1.35), (-1.1, 0.0)],
        _ => &[(0.0, 1.25), (1.15, -0.85), (-1.15, -0.85)],
    };
    let mut path = String::new();
    for (i, (dx, dy)) in corners.iter().enumerate() {
        let _ =
            write!(path, "{}{:.1} {:.1}", if i == 0 { 'M' } else { 'L' }, x + dx * r, y + dy * r);
    }
    format!("<path class=\"{class}\" d=\"{path}Z\"/>")
}

/// Returns a horizontal stripe around a height.
fn stripe(from: f64, to: f64, y: f64, height: f64) -> String {
    format!("<path class=\"band\" d=\"M{from} {y:.1}H{to}\" stroke-width=\"{height:.1}\"/>")
}

/// Returns the lower and upper quartile of at least four values, between the two nearest ranks.
fn quartiles(mut values: Vec<f64>) -> Option<[f64; 2]> {
    values.sort_by(f64::total_cmp);
    let last = values.len().checked_sub(1).filter(|last| *last >= 3)?;
    Some([0.25, 0.75].map(|share| {
        let rank = share * last as f64;
        let below = rank as usize;
        let above = (below + 1).min(last);
        values[below] + rank.fract() * (values[above] - values[below])
    }))
}

/// Returns the line at a quartile.
fn quartile(from: f64, to: f64, y: f64) -> String {
    format!("<path class=\"quartile\" stroke-dasharray=\"1 3\" d=\"M{from} {y:.1}H{to}\"/>")
}

/// Returns a hollow star with five points.
fn star(x: f64, y: f64) -> String {
    let mut path = String::new();
    for corner in 0..10_u32 {
        let radius = if corner % 2 == 0 { STAR_RADIUS } else { STAR_RADIUS * 0.45 };
        let (sin, cos) = (std::f64::consts::PI / 5.0 * f64::from(corner)).sin_cos();
        let letter = if corner == 0 { 'M' } else { 'L' };
        let _ = write!(path, "{letter}{:.1} {:.1}", x + radius * sin, y - radius * cos);
    }
    format!("<path class=\"star\" d=\"{path}Z\"/>")
}

/// Returns the greatest width of a text of the legend in the usual sans-serif fonts, of which
/// DejaVu is the widest.
pub(super) fn text_width(text: &str) -> f64 {
    let ems = |c: char| match c {
        ' ' | '\'' | ',' | '.' | ':' | 'I' | 'f' | 'i' | 'j' | 'l' | 'r' | 't' | '(' | ')'
        | '/' => 0.42,
        'm' | 'w' | 'M' | 'W' | '%' | '@' => 1.0,
        'a'..='z' | '0'..='9' | '_' | '-' => 0.65,
        _ => 0.85,
    };
    LEGEND_SIZE * text.chars().map(ems).sum::<f64>()
}

/// Wraps text into lines of at most `columns` characters, unless a word is longer.
fn wrap(text: &str, columns: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if ((line.chars().count() + 1 + word.chars().count()) as f64) <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_ranks_and_need_four_values() {
        assert_eq!(quartiles(vec![3.0, 1.0, 2.0]), None);
        assert_eq!(quartiles(vec![4.0, 1.0, 3.0, 2.0, 5.0]), Some([2.0, 4.0]));
        assert_eq!(quartiles(vec![4.0, 1.0, 3.0, 2.0]), Some([1.75, 3.25]));
    }
}
