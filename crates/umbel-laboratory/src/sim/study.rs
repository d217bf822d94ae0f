//! Results of a sweep.

use std::fmt::Write as _;

use serde_json::{Map, Value, json};
use umbel_cli::output::Output;
use umbel_engine::units::counted;
use umbel_repro::estimate::Estimate;
use umbel_repro::output::Report;
use umbel_repro::study::Runs;
use umbel_sim::scenario::Study;
use umbel_sim::scenario::report::Results;

use super::results::{Finished, number, show_speed};

/// Number of measures that a line for each point has room for.
const SHOWN: usize = 4;

/// Returns the results of each point.
fn by_point(finished: &[Finished], seeds: usize) -> Vec<Vec<Results>> {
    let runs = finished.chunks(seeds.max(1));
    runs.map(|runs| runs.iter().map(|run| run.report.results.clone()).collect()).collect()
}

/// Returns the report of a study.
pub(super) fn report(
    study: &Study,
    name: &str,
    first_seed: u64,
    finished: &[Finished],
    seeds: usize,
) -> Report {
    let results = by_point(finished, seeds);
    Runs { study, name, first_seed, results: &results }.report()
}

/// Shows a line for each point, or an object for programs.
pub(super) fn show(
    study: &Study,
    name: &str,
    first_seed: u64,
    finished: &[Finished],
    seeds: usize,
    output: &Output,
) {
    let results = by_point(finished, seeds);
    let runs = Runs { study, name, first_seed, results: &results };
    for (index, run) in finished.iter().enumerate() {
        let point = index / seeds.max(1);
        output.json(&json!({
            "event": "run",
            "scenario": name,
            "point": keys(study, point),
            "report": run.report,
            "tables": run.summary,
        }));
    }
    for point in 0..study.points() {
        let means: Map<String, Value> = runs
            .measures()
            .into_iter()
            .filter_map(|measure| {
                let mean = runs.mean(point, measure)?;
                let ci95 = (mean.runs > 1).then_some(mean.estimate.ci95);
                let value = json!({ "mean": mean.estimate.mean, "ci95": ci95, "runs": mean.runs });
                Some((measure.to_owned(), value))
            })
            .collect();
        output.json(&json!({ "event": "point", "point": keys(study, point), "measures": means }));
    }
    let (points, all) = (study.points(), finished.len());
    output.json(&json!({
        "event": "done", "ok": true, "summary": { "runs": all, "points": points },
    }));
    output.result(table(&runs, seeds).trim_end());
    for warning in runs.warnings() {
        output.note(warning);
    }
    show_speed(finished, output);
}

/// Returns the values of a point's keys, by their names.
fn keys(study: &Study, point: usize) -> Value {
    let values = study.axes().iter().zip(study.position(point));
    let values = values.map(|(axis, value)| (axis.name.clone(), json!(axis.labels[value])));
    Value::Object(values.collect())
}

/// Formats a line for each point.
fn table(runs: &Runs<'_>, seeds: usize) -> String {
    let (study, measures) = (runs.study, runs.measures());
    let shown = &measures[..measures.len().min(SHOWN)];
    let mut lines: Vec<Vec<String>> = Vec::new();
    let head = study.axes().iter().map(|axis| axis.name.clone());
    lines.push(head.chain(shown.iter().map(|measure| (*measure).to_owned())).collect());
    for point in 0..study.points() {
        let values = study.axes().iter().zip(study.position(point));
        let mut line: Vec<String> =
            values.map(|(axis, value)| axis.labels[value].clone()).collect();
        for measure in shown {
            line.push(match runs.mean(point, measure) {
                None => "–".to_owned(),
                Some(mean) => {
                    let Estimate { mean: value, ci95 } = mean.estimate;
                    let interval = if mean.runs > 1 {
                        format!(" ± {}", number(Some(ci95)))
                    } else {
                        String::new()
                    };
                    format!("{}{interval}", number(Some(value)))
                }
            });
        }
        lines.push(line);
    }
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..lines[0].len()).map(|n| width(n).unwrap_or(0)).collect();
    let mut text = format!(
        "{}: {}, {} each; means and half their 95 % intervals\n",
        runs.name,
        counted(study.points(), "point"),
        counted(seeds, "run")
    );
    for line in &lines {
        let cells = line.iter().zip(&widths).map(|(cell, &width)| format!("{cell:>width$}"));
        let _ = writeln!(text, "{}", cells.collect::<Vec<_>>().join("  "));
    }
    let first = runs.at(0);
    for measure in shown {
        if let (Some(said), Some(widest)) = (runs.conclusions(measure), runs.widest(measure)) {
            let _ = writeln!(
                text,
                "{measure}: beside the first point{first} {said}; widest interval {widest}"
            );
        }
    }
    text
}
