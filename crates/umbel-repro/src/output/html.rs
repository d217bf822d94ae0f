//! Reports as web pages.

use std::fmt::Write as _;

use super::{Certainty, Figure, Report, Row, Section, Table, Verdict, escape, number, svg};

/// Returns the page, which needs no other file.
pub(super) fn page(report: &Report) -> String {
    let mut html = head(&report.title);
    paragraphs(&mut html, &report.intro);
    if !report.rows.is_empty() {
        verdicts(&mut html, report);
        html.push_str("<h2>Reported and measured</h2>\n");
        table(&mut html, report);
    }
    for figure in &report.figures {
        figure_panel(&mut html, figure);
    }
    for section in &report.sections {
        own_section(&mut html, section);
    }
    if !report.notes.is_empty() {
        html.push_str("<h2>Notes</h2>\n<div class=\"panel\">\n");
        for note in &report.notes {
            let _ = writeln!(html, "<h3>{}</h3>", escape(&note.title));
            paragraphs(&mut html, &note.text);
        }
        html.push_str("</div>\n");
    }
    settings(&mut html, report);
    html.push_str("</body>\n</html>\n");
    html
}

/// Returns a page that links reports with their counts of verdicts.
pub(super) fn index(reports: &[Report]) -> String {
    let mut html = head("Reproductions");
    html.push_str("<div class=\"panel\">\n<table>\n<thead><tr><th>paper</th>");
    for name in ["judged", "ok", "missed", "undecided", "not judged"] {
        let _ = write!(html, "<th class=\"number\">{name}</th>");
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for report in reports {
        let (paper, title) = (report.paper, escape(&report.title));
        let _ = write!(html, "<tr><td><a href=\"{paper}/report.html\">{title}</a></td>");
        let [ok, missed, undecided, remarks] =
            [Verdict::Ok, Verdict::Miss, Verdict::Undecided, Verdict::Remark]
                .map(|verdict| report.count(verdict));
        for count in [report.judged(), ok, missed, undecided, remarks] {
            let _ = write!(html, "<td class=\"number\">{count}</td>");
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</tbody>\n</table>\n</div>\n</body>\n</html>\n");
    html
}

/// Returns the beginning of a page, up to its heading.
fn head(title: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>{title}</title>\n<style>\n{}{}</style>\n</head>\n<body>\n<h1>{title}</h1>\n",
        include_str!("report.css"),
        svg::STYLE,
        title = escape(title),
    )
}

fn verdicts(html: &mut String, report: &Report) {
    let [ok, misses, undecided] =
        [Verdict::Ok, Verdict::Miss, Verdict::Undecided].map(|verdict| report.count(verdict));
    let rows = report.judged();
    let class = if ok > 0 { "ok" } else { "soft" };
    let _ = write!(
        html,
        "<p class=\"verdicts\"><span class=\"{class}\">{ok} of {rows} within tolerance</span>"
    );
    if misses > 0 {
        let _ = write!(html, " · <span class=\"miss\">{misses} missed</span>");
    }
    if undecided > 0 {
        let _ = write!(html, " · {undecided} undecided");
    }
    let remarks = report.count(Verdict::Remark);
    if remarks > 0 {
        let _ = write!(html, " · {remarks} not judged");
    }
    html.push_str("</p>\n");
}

fn table(html: &mut String, report: &Report) {
    html.push_str(
        "<div class=\"panel\">\n<table>\n<thead><tr><th>figure</th><th>what</th><th>reported</th>\
         <th class=\"number\">measured</th><th class=\"number\">95 % interval</th>\
         <th class=\"number\">low – high</th><th>verdict</th></tr></thead>\n<tbody>\n",
    );
    for row in &report.rows {
        let (class, verdict) = match row.verdict() {
            Verdict::Ok => ("ok", "✓ ok"),
            Verdict::Miss => ("miss", "✗ miss"),
            Verdict::Undecided => ("undecided", "? undecided"),
            Verdict::Remark => ("undecided", "not judged"),
        };
        let remark = (row.why())
            .map_or(String::new(), |why| format!(" <span class=\"soft\">({})</span>", escape(why)));
        let (least, greatest) = row.interval();
        let interval = match row.certainty {
            Certainty::Exact => "exact".to_owned(),
            Certainty::Estimated { .. } => number::range(least, greatest, row.unit),
            Certainty::Unknown => "too few runs".to_owned(),
        };
        let _ = writeln!(
            html,
            "<tr class=\"{class}\"><td class=\"figure\">{}</td><td>{}{remark}</td><td>{}</td>\
             <td class=\"number\" title=\"{}\">{}</td><td class=\"number\">{interval}</td>\
             <td class=\"number\">{}</td><td class=\"verdict\">{verdict}</td></tr>",
            figure_link(row, report),
            escape(&row.what),
            escape(&row.reported),
            row.measured,
            number::with_unit(row.measured, row.unit),
            number::range(row.low, row.high, row.unit),
        );
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
    paragraphs(html, VERDICTS);
    paragraphs(html, &comparisons(report));
}

/// Meaning of the verdicts.
const VERDICTS: &str = "The interval is that of the jackknife over seeds: each number is computed \
     anew without each seed in turn. It is rough for greatest and least values. A number is ok, or \
     missed, if its whole interval lies within, or outside, the bounds. Otherwise it is undecided, \
     and so is one that rests on fewer than five runs. A number from which nothing follows is not \
     judged; the reason stands beside it. Where the paper says that two things are the same, the \
     interval has 90 % probability, for a difference in either direction has to be refuted at 5 %; \
     the reason of the margin stands beside it.";

/// Writes the remaining verdicts if all are to be right together.
fn comparisons(report: &Report) -> String {
    let rows = report.rows.iter().zip(report.holm());
    let ok = rows.filter(|(row, p)| row.verdict() == Verdict::Ok && !p.is_nan());
    let (all, sure) = ok.fold((0, 0), |(all, sure), (_, p)| (all + 1, sure + u32::from(p <= 0.05)));
    if all == 0 {
        return String::new();
    }
    format!(
        "So many comparisons find something by chance: each verdict by itself is wrong with a \
         probability of up to 5 %. With Holm's correction, after which none of them is wrong with \
         95 % probability, {sure} of the {all} estimated numbers that are ok stay so (table.csv has \
         p, and p with the correction)."
    )
}

/// Returns the name of a row's figure, as a link if the page has the figure.
fn figure_link(row: &Row, report: &Report) -> String {
    let name = escape(&row.figure);
    match report.all_figures().find(|figure| figure.id.to_string() == row.figure) {
        Some(figure) => format!("<a href=\"#{}\">{name}</a>", figure.id.stem()),
        None => name,
    }
}

fn figure_panel(html: &mut String, figure: &Figure) {
    let (heading, stem) = (figure.id.heading(), figure.id.stem());
    let _ = writeln!(
        html,
        "<h2 id=\"{stem}\">{heading}: {}</h2>\n<div class=\"panel\">",
        escape(&figure.title)
    );
    for panel in &figure.panels {
        if !panel.title.is_empty() {
            let _ = writeln!(html, "<h3>{}</h3>", escape(&panel.title));
        }
        html.push_str(&svg::element(figure, panel));
    }
    paragraphs(html, &figure.caption);
    let _ = writeln!(
        html,
        "<p class=\"files soft\"><a href=\"{stem}.csv\">{stem}.csv</a> · \
         <a href=\"{stem}.svg\">{stem}.svg</a></p>\n</div>"
    );
}

fn own_section(html: &mut String, section: &Section) {
    let _ = writeln!(html, "<h2>{}</h2>", escape(&section.title));
    paragraphs(html, &section.text);
    for table in &section.tables {
        section_table(html, table);
    }
    for figure in &section.figures {
        figure_panel(html, figure);
    }
}

/// Writes a table, with numbers aligned to the right.
fn section_table(html: &mut String, table: &Table) {
    let number_of = |cell: &String| cell.parse::<f64>().ok();
    let is_number =
        |column: usize| table.rows.iter().any(|row| row.get(column).and_then(number_of).is_some());
    let class = |column| if is_number(column) { " class=\"number\"" } else { "" };
    let _ = write!(
        html,
        "<div class=\"panel\" id=\"{}\">\n<table class=\"wide\">\n<thead><tr>",
        table.name
    );
    for (column, name) in table.head.iter().enumerate() {
        let _ = write!(html, "<th{}>{}</th>", class(column), escape(name));
    }
    html.push_str("</tr></thead>\n<tbody>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for (column, cell) in row.iter().enumerate() {
            let text = number_of(cell).map_or_else(|| cell.clone(), number::rounded);
            let _ = write!(html, "<td{}>{}</td>", class(column), escape(&text));
        }
        html.push_str("</tr>\n");
    }
    let name = table.name;
    let _ = writeln!(
        html,
        "</tbody>\n</table>\n<p class=\"files soft\"><a href=\"{name}.csv\">{name}.csv</a></p>\n</div>"
    );
}

fn settings(html: &mut String, report: &Report) {
    if report.settings.is_empty() {
        return;
    }
    html.push_str(
        "<h2>Settings</h2>\n<div class=\"panel\">\n<table class=\"settings\">\n<tbody>\n",
    );
    for (name, value) in &report.settings {
        let _ = writeln!(html, "<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(value));
    }
    html.push_str("</tbody>\n</table>\n</div>\n");
}

/// Writes the paragraphs of a text, which are separated by empty lines.
fn paragraphs(html: &mut String, text: &str) {
    for paragraph in text.split("\n\n").map(str::trim).filter(|text| !text.is_empty()) {
        let _ = writeln!(html, "<p>{}</p>", escape(paragraph));
    }
}
