//! Comma-separated values as in RFC 4180, but with Unix line ends.

use super::{Figure, Row, Table};

/// Returns the lines of `table.csv`.
pub(super) fn table(rows: &[Row]) -> String {
    let mut text =
        "figure,what,reported,measured,measured_low,measured_high,low,high,verdict\n".to_owned();
    for row in rows {
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
            for point in &series.points {
                let [x, y, ci95] = [point.x, point.y, point.ci95].map(|number| number.to_string());
                line(&mut text, &[&name, &x, &y, &ci95]);
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
