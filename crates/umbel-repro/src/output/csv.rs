//! Comma-separated values as in RFC 4180, but with Unix line ends.

use super::{Figure, Report, Table};

/// Returns the lines of `table.csv`.
pub(super) fn table(report: &Report) -> String {
    let mut text =
        "figure,what,reported,measured,measured_low,measured_high,low,high,verdict,kind,p,p_holm,why\n"
            .to_owned();
    for (row, p_holm) in report.rows.iter().zip(report.holm()) {
        let (least, greatest) = row.interval();
        line(
            &mut text,
            &[
                &row.figure,
                &row.what,
                &row.reported,
                &row.measured.to_string(),
                &least.to_string(),
                &greatest.to_string(),
                &row.low.to_string(),
                &row.high.to_string(),
                &row.verdict().to_string(),
                row.kind.name(),
                &row.p().to_string(),
                &p_holm.to_string(),
                row.why().unwrap_or_default(),
            ],
        );
    }
    text
}

/// Returns the lines of a figure's file.
pub(super) fn figure(figure: &Figure) -> String {
    let mut text = "series,x,y,ci95\n".to_owned();
    for panel in &figure.panels {
        for series in &panel.series {
            let name = match panel.title.as_str() {
                "" => series.name.clone(),
                title => format!("{title}: {}", series.name),
            };
            for mark in panel.marks.iter().filter(|mark| mark.series == series.name) {
                let [x, y] = [mark.x, mark.y].map(|number| number.to_string());
                line(&mut text, &[&format!("{name} (reported)"), &x, &y, "NaN"]);
            }
            for band in panel.bands.iter().filter(|band| band.series == series.name) {
                for y in [band.low, band.high] {
                    line(&mut text, &[&format!("{name} (reported)"), "NaN", &y.to_string(), "NaN"]);
                }
            }
            for point in &series.points {
                let [x, y, ci95] = [point.x, point.y, point.ci95].map(|number| number.to_string());
                line(&mut text, &[&name, &x, &y, &ci95]);
            }
        }
        for bar in &panel.bars {
            for (side, x) in bar.sides.iter().zip(["-1", "1"]) {
                let Some((other, length)) = side else { continue };
                line(&mut text, &[&format!("{}: {other}", bar.name), x, &length.to_string(), "0"]);
            }
        }
    }
    text
}

/// Returns the lines of a section's table.
pub(super) fn section_table(table: &Table) -> String {
    let mut text = String::new();
    for row in std::iter::once(&table.head).chain(&table.rows) {
        line(&mut text, &row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// Returns a line of these fields.
pub(crate) fn row(fields: &[String]) -> String {
    let mut text = String::new();
    line(&mut text, &fields.iter().map(String::as_str).collect::<Vec<_>>());
    text
}

/// Returns the fields of a line without its end; `None` if a quotation does not end, or text
/// follows it.
pub(crate) fn fields(line: &str) -> Option<Vec<String>> {
    let mut fields = Vec::new();
    let mut rest = line;
    loop {
        let Some(mut quoted) = rest.strip_prefix('"') else {
            let end = rest.find(',').unwrap_or(rest.len());
            fields.push(rest[..end].to_owned());
            match rest.get(end + 1..) {
                Some(after) => rest = after,
                None => return Some(fields),
            }
            continue;
        };
        let mut field = String::new();
        loop {
            let end = quoted.find('"')?;
            field.push_str(&quoted[..end]);
            quoted = &quoted[end + 1..];
            let Some(more) = quoted.strip_prefix('"') else { break };
            field.push('"');
            quoted = more;
        }
        fields.push(field);
        match quoted.strip_prefix(',') {
            Some(after) => rest = after,
            None => return quoted.is_empty().then_some(fields),
        }
    }
}

fn line(text: &mut String, fields: &[&str]) {
    for (i, field) in fields.iter().enumerate() {
        if i > 0 {
            text.push(',');
        }
        if field.contains([',', '"', '\n', '\r']) {
            text.push('"');
            text.push_str(&field.replace('"', "\"\""));
            text.push('"');
        } else {
            text.push_str(field);
        }
    }
    text.push('\n');
}
