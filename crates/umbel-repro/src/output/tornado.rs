//! Tornado plots: bars to both sides of what was chosen.

use std::fmt::Write as _;

use super::scale::Scale;
use super::svg::{LINE_HEIGHT, text_width};
use super::{Bar, Panel, escape, number};

/// Greatest length of a bar.
const LENGTH: f64 = 230.0;
/// Number of ticks to each side, about, and least length that the axis has: it counts.
const TICKS: f64 = 4.0;
/// Distance between bars, and their height.
const STEP: f64 = 30.0;
const HEIGHT: f64 = 18.0;
/// Space between texts and what they stand beside.
const GAP: f64 = 8.0;

/// A plot of bars.
pub(super) struct Tornado<'a> {
    panel: &'a Panel,
    scale: Scale,
    /// Pixels between the left edge and the line in the middle.
    middle: f64,
    /// Widest texts beside the bars: to the left and to the right.
    texts: [f64; 2],
}

impl Tornado<'_> {
    pub(super) fn new(panel: &Panel) -> Tornado<'_> {
        let sides = panel.bars.iter().flat_map(|bar| bar.sides.iter().flatten());
        let most = sides.map(|(_, length)| *length).fold(TICKS, f64::max);
        let scale = Scale::new((0.0, most), TICKS as u32, true).onto(0.0, LENGTH);
        let widest = |side: usize| {
            let texts = panel.bars.iter().filter_map(|bar| bar.sides[side].as_ref());
            texts.map(|side| text_width(&label(side))).fold(0.0, f64::max)
        };
        let names = panel.bars.iter().map(|bar| text_width(&bar.name)).fold(0.0, f64::max);
        let texts = [widest(0), widest(1)];
        let middle = 12.0 + names + 2.0 * GAP + texts[0] + GAP + LENGTH;
        Tornado { panel, scale, middle, texts }
    }

    /// Returns the width in pixels.
    pub(super) fn width(&self) -> f64 {
        self.middle + LENGTH + GAP + self.texts[1] + 12.0
    }

    /// Returns the height in pixels, from the first bar to below the axis.
    pub(super) fn height(&self) -> f64 {
        self.bottom() + 58.0
    }

    fn bottom(&self) -> f64 {
        STEP * self.panel.bars.len() as f64
    }

    pub(super) fn draw(&self, svg: &mut String) {
        let _ = writeln!(svg, "<g transform=\"translate({:.1} 0)\">", self.middle);
        let bottom = self.bottom();
        // Lengths are counts.
        let ticks = self.scale.ticks().into_iter().map(|(value, _)| value);
        for value in ticks.filter(|value| value.fract().abs() < 1e-9) {
            let (x, name) = (self.scale.pixel(value), number::rounded(value));
            for x in if value > 0.0 { vec![-x, x] } else { vec![x] } {
                let _ = writeln!(
                    svg,
                    "<path class=\"grid\" d=\"M{x:.1} 0V{bottom}\"/><text class=\"tick\" \
                     text-anchor=\"middle\" x=\"{x:.1}\" y=\"{}\">{name}</text>",
                    bottom + 20.0
                );
            }
        }
        for (bar, row) in self.panel.bars.iter().zip(0..) {
            self.bar(svg, bar, STEP * f64::from(row) + STEP / 2.0);
        }
        let _ = writeln!(
            svg,
            "<path class=\"axis\" d=\"M0 0V{bottom}\"/>\n<text class=\"label\" \
             text-anchor=\"middle\" x=\"0\" y=\"{}\">{}</text>\n</g>",
            bottom + 24.0 + LINE_HEIGHT,
            escape(&self.panel.x_label)
        );
    }

    fn bar(&self, svg: &mut String, bar: &Bar, y: f64) {
        let text = y + 4.5;
        let name = escape(&bar.name);
        let _ = writeln!(
            svg,
            "<text class=\"name\" x=\"{:.1}\" y=\"{text}\">{name}</text>",
            12.0 - self.middle
        );
        for (side, colour, sign, anchor) in
            [(&bar.sides[0], 0, -1.0, "end"), (&bar.sides[1], 1, 1.0, "start")]
        {
            let Some(side) = side else { continue };
            let length = self.scale.pixel(side.1);
            let (from, top) = (if sign < 0.0 { 0.0 - length } else { 0.0 }, y - HEIGHT / 2.0);
            let _ = writeln!(
                svg,
                "<g class=\"curve c{colour}\"><title>{name}: {}</title><rect class=\"filled\" \
                 x=\"{from:.1}\" y=\"{top}\" width=\"{length:.1}\" height=\"{HEIGHT}\"/>\
                 <text class=\"tick\" text-anchor=\"{anchor}\" x=\"{:.1}\" y=\"{text}\">{}</text></g>",
                escape(&label(side)),
                sign * (length + GAP),
                escape(&label(side))
            );
        }
    }
}

/// Returns the text beside a bar.
fn label((other, length): &(String, f64)) -> String {
    format!("{other}: {}", number::rounded(*length))
}
