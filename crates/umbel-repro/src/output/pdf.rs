//! Plots as PDF: the SVG of [`super::svg`], on a page of its size.
//!
//! It translates what these plots consist of: groups that move or turn, rectangles, circles, paths
//! of straight lines, and text. The style sheet is the same, as far as its selectors are classes,
//! elements, and classes below them. Letters are those of Helvetica and Symbol, two of the fonts
//! that every reader of PDF has, so that no font is needed here and none is embedded. Programs that
//! convert any SVG (`svg2pdf`, `krilla`) bring some sixty crates and need fonts on the machine.

use pdf_writer::types::LineJoinStyle;
use pdf_writer::{Content, Finish, Name, Pdf, Rect, Ref, Str, TextStr};
use roxmltree::{Document, Node};

use super::svg::STYLE;

/// Points of PDF in a pixel.
const POINTS_PER_PIXEL: f32 = 0.75;
/// Share of the radius by which four Bézier curves make a circle.
const CIRCLE: f32 = 0.552_285;

const REGULAR: Name<'_> = Name(b"Regular");
const BOLD: Name<'_> = Name(b"Bold");
const SYMBOL: Name<'_> = Name(b"Symbol");

/// Returns a page with the plot of an SVG document of this crate.
///
/// # Errors
///
/// If it is not well-formed, which no document of this crate is.
pub(super) fn document(svg: &str, title: &str) -> Result<Vec<u8>, roxmltree::Error> {
    let parsed = Document::parse(svg)?;
    let root = parsed.root_element();
    let [width, height] = ["width", "height"].map(|name| number(root, name) * POINTS_PER_PIXEL);
    let mut page = Drawing { rules: rules(STYLE), content: Content::new(), opacities: Vec::new() };
    // Heights of PDF count from below.
    page.content.transform([POINTS_PER_PIXEL, 0.0, 0.0, -POINTS_PER_PIXEL, 0.0, height]);
    page.element(root, &Style::default());
    Ok(page.finish((width, height), title))
}

/// A number in an attribute; 0 if there is none.
fn number(node: Node<'_, '_>, name: &str) -> f32 {
    node.attribute(name).and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// Numbers in a text that separates them by anything.
fn numbers(text: &str) -> Vec<f32> {
    text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == '-'))
        .filter_map(|part| part.parse().ok())
        .collect()
}

/// A rule of the style sheet.
struct Rule<'a> {
    /// Classes (with a dot) and elements, from the outermost.
    selector: Vec<&'a str>,
    declarations: Vec<(&'a str, &'a str)>,
}

/// Reads the rules of a style sheet for light pages: those before the first for other media.
fn rules(sheet: &str) -> Vec<Rule<'_>> {
    let light = sheet.split("@media").next().unwrap_or_default();
    let mut rules = Vec::new();
    for rule in light.split('}') {
        let Some((selectors, block)) = rule.split_once('{') else { continue };
        let declarations: Vec<(&str, &str)> = block
            .split(';')
            .filter_map(|declaration| declaration.split_once(':'))
            .map(|(name, value)| (name.trim(), value.trim()))
            .collect();
        for selector in selectors.split(',') {
            let selector = selector.split_whitespace().collect();
            rules.push(Rule { selector, declarations: declarations.clone() });
        }
    }
    rules
}

impl Rule<'_> {
    fn applies_to(&self, node: Node<'_, '_>) -> bool {
        let is = |node: Node<'_, '_>, part: &str| match part.strip_prefix('.') {
            Some(class) => node
                .attribute("class")
                .is_some_and(|classes| classes.split(' ').any(|other| other == class)),
            None => node.tag_name().name() == part,
        };
        let Some((last, outer)) = self.selector.split_last() else { return false };
        let mut above = node.ancestors().skip(1);
        is(node, last) && outer.iter().rev().all(|part| above.any(|node| is(node, part)))
    }
}

type Colour = [f32; 3];

/// What elements hand down, and their opacity.
#[derive(Clone, Copy)]
struct Style {
    fill: Option<Colour>,
    stroke: Option<Colour>,
    stroke_width: f32,
    font_size: f32,
    is_bold: bool,
    opacity: f32,
}

impl Default for Style {
    fn default() -> Style {
        Style {
            fill: Some([0.0; 3]),
            stroke: None,
            stroke_width: 1.0,
            font_size: 16.0,
            is_bold: false,
            opacity: 1.0,
        }
    }
}

impl Style {
    fn set(&mut self, name: &str, value: &str) {
        let length = || value.trim_end_matches("px").parse().unwrap_or(0.0);
        match name {
            "fill" => self.fill = colour(value),
            "stroke" => self.stroke = colour(value),
            "stroke-width" => self.stroke_width = length(),
            "font-size" => self.font_size = length(),
            "font-weight" => self.is_bold = length() >= 600.0,
            "opacity" => self.opacity = length(),
            _ => {}
        }
    }
}

/// Reads `#rrggbb`; anything else is no colour.
fn colour(text: &str) -> Option<Colour> {
    let number = u32::from_str_radix(text.strip_prefix('#')?, 16).ok()?;
    let [_, rgb @ ..] = number.to_be_bytes();
    Some(rgb.map(|part| f32::from(part) / 255.0))
}

/// A page that is drawn.
struct Drawing<'a> {
    rules: Vec<Rule<'a>>,
    content: Content,
    /// Opacities that are in use, in percent; each has a graphics state.
    opacities: Vec<u8>,
}

impl Drawing<'_> {
    fn element(&mut self, node: Node<'_, '_>, inherited: &Style) {
        let mut style = Style { opacity: 1.0, ..*inherited };
        if let Some(width) = node.attribute("stroke-width") {
            style.set("stroke-width", width);
        }
        for rule in self.rules.iter().filter(|rule| rule.applies_to(node)) {
            for (name, value) in &rule.declarations {
                style.set(name, value);
            }
        }
        match node.tag_name().name() {
            "svg" => self.children(node, &style),
            "g" => {
                self.content.save_state();
                if let Some(transform) = node.attribute("transform") {
                    self.transform(transform);
                }
                self.children(node, &style);
                self.content.restore_state();
            }
            "rect" => self.shape(node, &style, |content| {
                let [x, y, width, height] =
                    ["x", "y", "width", "height"].map(|name| number(node, name));
                content.rect(x, y, width, height);
            }),
            "circle" => self.shape(node, &style, |content| {
                let [x, y, r] = ["cx", "cy", "r"].map(|name| number(node, name));
                circle(content, x, y, r);
            }),
            "path" => self.shape(node, &style, |content| {
                path(content, node.attribute("d").unwrap_or_default());
            }),
            "text" => self.text(node, &style),
            _ => {}
        }
    }

    fn children(&mut self, node: Node<'_, '_>, style: &Style) {
        for child in node.children().filter(Node::is_element) {
            self.element(child, style);
        }
    }

    fn transform(&mut self, text: &str) {
        for step in text.split_inclusive(')') {
            let values = numbers(step);
            if let (true, [x, y]) = (step.contains("translate"), &values[..]) {
                self.content.transform([1.0, 0.0, 0.0, 1.0, *x, *y]);
            } else if let (true, [degrees]) = (step.contains("rotate"), &values[..]) {
                let (sin, cos) = degrees.to_radians().sin_cos();
                self.content.transform([cos, sin, -sin, cos, 0.0, 0.0]);
            }
        }
    }

    /// Draws what `outline` adds to the page. A rectangle that is given in percent is the page's
    /// background, which paper has.
    fn shape(&mut self, node: Node<'_, '_>, style: &Style, outline: impl Fn(&mut Content)) {
        if node.attribute("width").is_some_and(|width| width.ends_with('%')) {
            return;
        }
        self.content.save_state();
        if style.opacity < 1.0 {
            let percent = (style.opacity * 100.0).round() as u8;
            if !self.opacities.contains(&percent) {
                self.opacities.push(percent);
            }
            self.content.set_parameters(Name(format!("O{percent}").as_bytes()));
        }
        self.content.set_line_width(style.stroke_width);
        self.content.set_line_join(LineJoinStyle::RoundJoin);
        if let Some(dashes) = node.attribute("stroke-dasharray") {
            self.content.set_dash_pattern(numbers(dashes), 0.0);
        }
        if let Some([r, g, b]) = style.stroke {
            self.content.set_stroke_rgb(r, g, b);
        }
        if let Some([r, g, b]) = style.fill {
            self.content.set_fill_rgb(r, g, b);
        }
        outline(&mut self.content);
        match (style.fill, style.stroke) {
            (Some(_), Some(_)) => self.content.fill_nonzero_and_stroke(),
            (Some(_), None) => self.content.fill_nonzero(),
            (None, Some(_)) => self.content.stroke(),
            (None, None) => self.content.end_path(),
        };
        self.content.restore_state();
    }

    fn text(&mut self, node: Node<'_, '_>, style: &Style) {
        let text = node.text().unwrap_or_default();
        let font = if style.is_bold { BOLD } else { REGULAR };
        let runs = runs(text, font);
        let width = style.font_size * runs.iter().map(|run| run.ems).sum::<f32>();
        let before = match node.attribute("text-anchor") {
            Some("middle") => width / 2.0,
            Some("end") => width,
            _ => 0.0,
        };
        self.content.save_state();
        if node.has_attribute("transform") {
            self.transform(node.attribute("transform").unwrap_or_default());
        }
        let [red, green, blue] = style.fill.unwrap_or_default();
        self.content.set_fill_rgb(red, green, blue);
        self.content.begin_text();
        let (x, y) = (number(node, "x") - before, number(node, "y"));
        self.content.set_text_matrix([1.0, 0.0, 0.0, -1.0, x, y]);
        for run in &runs {
            self.content.set_font(run.font, style.font_size).show(Str(&run.bytes));
        }
        self.content.end_text();
        self.content.restore_state();
    }

    fn finish(self, (width, height): (f32, f32), title: &str) -> Vec<u8> {
        let [catalog, pages, page, content, info] = [1, 2, 3, 4, 5].map(Ref::new);
        let fonts: [(Name<'_>, &[u8]); 3] =
            [(REGULAR, b"Helvetica"), (BOLD, b"Helvetica-Bold"), (SYMBOL, b"Symbol")];
        let font_ids = [6, 7, 8].map(Ref::new);
        let opacity_ids = || (9..).map(Ref::new);
        let mut pdf = Pdf::new();
        pdf.document_info(info).title(TextStr(title));
        pdf.catalog(catalog).pages(pages);
        pdf.pages(pages).kids([page]).count(1);
        let mut writer = pdf.page(page);
        writer.media_box(Rect::new(0.0, 0.0, width, height)).parent(pages).contents(content);
        let mut resources = writer.resources();
        let mut named = resources.fonts();
        for ((name, _), id) in fonts.iter().zip(font_ids) {
            named.pair(*name, id);
        }
        named.finish();
        let mut named = resources.ext_g_states();
        for (percent, id) in self.opacities.iter().zip(opacity_ids()) {
            named.pair(Name(format!("O{percent}").as_bytes()), id);
        }
        named.finish();
        resources.finish();
        writer.finish();
        for ((name, base), id) in fonts.into_iter().zip(font_ids) {
            let mut font = pdf.type1_font(id);
            font.base_font(Name(base));
            // Symbol has an encoding of its own.
            if name != SYMBOL {
                font.encoding_predefined(Name(b"WinAnsiEncoding"));
            }
        }
        for (percent, id) in self.opacities.iter().zip(opacity_ids()) {
            let share = f32::from(*percent) / 100.0;
            pdf.ext_graphics(id).stroking_alpha(share).non_stroking_alpha(share);
        }
        pdf.stream(content, &self.content.finish());
        pdf.finish()
    }
}

fn circle(content: &mut Content, x: f32, y: f32, r: f32) {
    let c = CIRCLE * r;
    content.move_to(x + r, y);
    content.cubic_to(x + r, y + c, x + c, y + r, x, y + r);
    content.cubic_to(x - c, y + r, x - r, y + c, x - r, y);
    content.cubic_to(x - r, y - c, x - c, y - r, x, y - r);
    content.cubic_to(x + c, y - r, x + r, y - c, x + r, y);
    content.close_path();
}

/// Adds a path of straight lines, all in absolute places.
fn path(content: &mut Content, steps: &str) {
    let mut at = (0.0, 0.0);
    let starts = steps.char_indices().filter(|(_, c)| c.is_ascii_alphabetic()).map(|(at, _)| at);
    let starts: Vec<usize> = starts.chain([steps.len()]).collect();
    for pair in starts.windows(2) {
        let step = &steps[pair[0]..pair[1]];
        match (&step[..1], &numbers(&step[1..])[..]) {
            ("M" | "L", [x, y]) => at = (*x, *y),
            ("H", [x]) => at.0 = *x,
            ("V", [y]) => at.1 = *y,
            ("Z", []) => {
                content.close_path();
                continue;
            }
            _ => continue,
        }
        if step.starts_with('M') {
            content.move_to(at.0, at.1);
        } else {
            content.line_to(at.0, at.1);
        }
    }
}

/// Letters of one font.
struct Run {
    font: Name<'static>,
    bytes: Vec<u8>,
    /// Width, in sizes of the font.
    ems: f32,
}

/// Returns the text in runs of one font each.
fn runs(text: &str, regular: Name<'static>) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for c in text.chars() {
        let (is_symbol, byte, width) = letter(c);
        let font = if is_symbol { SYMBOL } else { regular };
        let ems = f32::from(width) / 1000.0;
        match runs.last_mut() {
            Some(run) if run.font == font => {
                run.bytes.push(byte);
                run.ems += ems;
            }
            _ => runs.push(Run { font, bytes: vec![byte], ems }),
        }
    }
    runs
}

/// Widths of Helvetica's letters from the space to the tilde, in thousandths of its size.
const WIDTHS: [u16; 95] = [
    278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, 556, 556, 556,
    556, 556, 556, 556, 556, 556, 556, 278, 278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667,
    611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722, 667, 611, 722, 667, 944, 667,
    667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222, 500,
    222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584,
];

/// Returns whether a letter is one of Symbol, its byte there or in Helvetica, and its width. A
/// letter that neither has is a question mark.
fn letter(c: char) -> (bool, u8, u16) {
    match c {
        ' '..='~' => (false, c as u8, WIDTHS[c as usize - ' ' as usize]),
        '–' => (false, 0x96, 556),
        '—' => (false, 0x97, 1000),
        '’' => (false, 0x92, 222),
        '…' => (false, 0x85, 1000),
        '·' => (false, 0xb7, 278),
        '±' => (false, 0xb1, 584),
        '×' => (false, 0xd7, 584),
        '§' => (false, 0xa7, 556),
        'µ' => (false, 0xb5, 556),
        '₀'..='₉' => (false, b'0' + (u32::from(c) - u32::from('₀')) as u8, 556),
        '∞' => (true, 0xa5, 713),
        '≤' => (true, 0xa3, 549),
        '≥' => (true, 0xb3, 549),
        '−' => (true, 0x2d, 549),
        _ => (false, b'?', 556),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plot(body: &str) -> String {
        format!("<svg class=\"plot\" width=\"400\" height=\"200\">{body}</svg>")
    }

    fn page(body: &str) -> String {
        let bytes = document(&plot(body), "a plot").unwrap();
        bytes.iter().map(|byte| char::from(*byte)).collect()
    }

    #[test]
    fn a_page_has_the_size_of_the_plot_in_points_and_counts_heights_from_below() {
        let page = page("");
        assert!(page.starts_with("%PDF-") && page.trim_end().ends_with("%%EOF"));
        assert!(page.contains("/MediaBox [0 0 300 150]"), "{page}");
        assert!(page.contains("0.75 0 0 -0.75 0 150 cm"), "{page}");
        assert!(page.contains("/Title (a plot)"), "{page}");
    }

    #[test]
    fn styles_are_those_of_the_sheet() {
        // A line takes the colour of its curve, and is not filled.
        let line = page("<g class=\"curve c1\"><path class=\"line\" d=\"M1 2L3 4H5V6\"/></g>");
        let [r, g, b] = colour("#cf4a0c").unwrap();
        assert!(line.contains(&format!("{r} {g} {b} RG\n")), "{line}");
        assert!(line.contains("1.8 w\n"), "{line}");
        assert!(line.contains("1 2 m\n3 4 l\n5 4 l\n5 6 l\nS\n"), "{line}");
        // A filled marker is stroked and filled with the same colour, an open one with white.
        let filled =
            page("<g class=\"c1\"><circle class=\"filled\" cx=\"9\" cy=\"9\" r=\"4\"/></g>");
        assert!(filled.contains(&format!("{r} {g} {b} rg\n")) && filled.contains("\nB\n"));
        let open = page("<g class=\"c1\"><path class=\"open\" d=\"M1 2L3 4Z\"/></g>");
        assert!(open.contains("1 1 1 rg\n") && open.contains("3 4 l\nh\nB\n"), "{open}");
        // A band is transparent, and as wide as it says.
        let band =
            page("<g class=\"c1\"><path class=\"band\" stroke-width=\"7\" d=\"M0 1H9\"/></g>");
        assert!(band.contains("/O20 gs\n") && band.contains("7 w\n"), "{band}");
        assert!(band.contains("/CA 0.2"), "{band}");
    }

    #[test]
    fn texts_are_anchored_by_their_widths_and_take_symbols_from_another_font() {
        let text = |anchor: &str, text: &str| {
            page(&format!(
                "<text class=\"tick\" text-anchor=\"{anchor}\" x=\"100\" y=\"9\">{text}</text>"
            ))
        };
        // Two digits of 13 pixels are 14.456 pixels wide.
        assert!(text("start", "10").contains("1 0 0 -1 100 9 Tm\n/Regular 13 Tf\n(10) Tj\n"));
        assert!(
            text("middle", "10").contains("1 0 0 -1 92.772 9 Tm\n"),
            "{}",
            text("middle", "10")
        );
        assert!(text("end", "10").contains("1 0 0 -1 85.544 9 Tm\n"));
        let infinite = text("start", "R(∞)");
        assert!(infinite.contains("/Symbol 13 Tf"), "{infinite}");
        assert_eq!(runs("R(∞)+é", REGULAR).iter().map(|run| run.bytes.len()).sum::<usize>(), 6);
        let title = page("<text class=\"title\">Figure</text>");
        assert!(title.contains("/Bold 16 Tf\n(Figure) Tj"), "{title}");
    }

    #[test]
    fn groups_move_and_turn() {
        let moved =
            page("<g transform=\"translate(10 -2.5)\"><path class=\"axis\" d=\"M0 0H1\"/></g>");
        assert!(moved.contains("q\n1 0 0 1 10 -2.5 cm\n"), "{moved}");
        let turned = page("<text transform=\"translate(24 90) rotate(-90)\">y</text>");
        assert!(turned.contains("1 0 0 1 24 90 cm\n") && turned.contains(" -1 1 "), "{turned}");
    }

    #[test]
    fn a_plot_that_is_no_xml_is_an_error() {
        assert!(document("<svg><g></svg>", "").is_err());
    }
}
