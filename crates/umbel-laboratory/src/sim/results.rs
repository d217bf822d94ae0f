//! Results of runs, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::{Value, json};
use umbel_engine::units::counted;
use umbel_sim::scenario::report::{Clients, Table};
use umbel_sim::scenario::{Report, Scenario, Study};
use umbel_sim::statistics::mean_and_interval;
use umbel_sim::trace::Summary;

use umbel_cli::output::Output;

/// A run that is over.
pub(super) struct Finished {
    pub(super) report: Report,
    /// Tables of packets, if they were requested.
    pub(super) summary: Option<Summary>,
    pub(super) real_time: Duration,
}

/// Takes the tables out of all runs and joins those of the same name.
pub(super) fn take_tables(study: &Study, finished: &mut [Finished], seeds: usize) -> Vec<Table> {
    let mut joined: Vec<Table> = Vec::new();
    for (index, run) in finished.iter_mut().enumerate() {
        let position = study.position(index / seeds.max(1));
        let keys: Vec<(String, String)> = study
            .axes()
            .iter()
            .zip(position)
            .map(|(axis, value)| (axis.name.clone(), axis.labels[value].clone()))
            .collect();
        for table in run.report.results.tables.drain(..) {
            let table = table.of_run(&keys, run.report.seed);
            match joined.iter_mut().find(|known| known.name == table.name) {
                Some(known) => known.append(table),
                None => joined.push(table),
            }
        }
    }
    joined
}

/// Shows one run in full, several as a table.
pub(super) fn show(scenario: &Scenario, finished: &[Finished], output: &Output) {
    for Finished { report, summary, .. } in finished {
        output.json(&json!({
            "event": "run",
            "scenario": scenario.name,
            "report": report,
            "tables": summary,
        }));
    }
    output.json(&json!({
        "event": "done",
        "ok": true,
        "summary": {
            "runs": finished.len(),
            "finished": sum(finished, |clients| clients.finished),
            "clients": sum(finished, |clients| clients.count),
            "mean_delay_s": mean(finished, |report| report.results.clients.mean_s),
            "mean_delay_s_ci95": interval(finished, |report| report.results.clients.mean_s),
            "measures": measures(finished),
        },
    }));
    if let [one] = finished {
        output.result(format!("{}, {}", scenario.name, one.report));
        if let Some(summary) = &one.summary {
            output.result(format!("\n{summary}"));
        }
    } else {
        output.result(table(scenario, finished).trim_end());
    }
    show_speed(finished, output);
}

/// Reports how fast the runs were.
pub(super) fn show_speed(finished: &[Finished], output: &Output) {
    let hops: u64 = finished.iter().map(|run| run.report.network.hops).sum();
    let busy: f64 = finished.iter().map(|run| run.real_time.as_secs_f64()).sum();
    output.note(format!(
        "{hops} packet-hops in {busy:.2} s of computing: {:.2} million a second on one processor",
        hops as f64 / busy.max(1e-6) / 1e6
    ));
}

fn sum(finished: &[Finished], count: impl Fn(&Clients) -> usize) -> usize {
    finished.iter().map(|run| count(&run.report.results.clients)).sum()
}

/// Returns the mean of each measure over all runs, and half its 95 % interval.
fn measures(finished: &[Finished]) -> Value {
    let names = finished.iter().flat_map(|run| &run.report.results.measures);
    let means = names.map(|measure| {
        let of = |report: &Report| report.results.measure(measure.name);
        let (mean, ci95) = (mean(finished, of), interval(finished, of));
        (measure.name.to_owned(), json!({ "mean": mean, "ci95": ci95 }))
    });
    Value::Object(means.collect())
}

/// Number of measures that a line for each run has room for.
const SHOWN: usize = 5;

/// Formats a line for each run, and the means with their confidence intervals.
fn table(scenario: &Scenario, finished: &[Finished]) -> String {
    let mut text = format!("{}, {}\n", scenario.name, counted(finished.len(), "run"));
    let Some(first) = finished.first().map(|run| &run.report.results) else { return text };
    let shown: Vec<&str> = first.measures.iter().take(SHOWN).map(|measure| measure.name).collect();
    let _ = write!(text, "{:>12} {:>15}", "seed", "finished");
    for name in &shown {
        let _ = write!(text, " {name:>14}");
    }
    text.push('\n');
    for Finished { report, .. } in finished {
        let clients = &report.results.clients;
        let share = format!("{}/{}", clients.finished, clients.count);
        let _ = write!(text, "{:>12} {share:>15}", report.seed);
        for name in &shown {
            let width = name.len().max(14);
            let _ = write!(text, " {:>width$}", number(report.results.measure(name)));
        }
        text.push('\n');
    }
    let groups = &first.groups;
    let of_all = (groups.len() != 1).then_some(("all", None));
    let of_groups = groups.iter().enumerate().map(|(n, group)| (group.name.as_str(), Some(n)));
    for (name, group) in of_all.into_iter().chain(of_groups) {
        let of = |report: &Report| match group {
            Some(group) => report.results.groups.get(group)?.mean_s,
            None => report.results.clients.mean_s,
        };
        if let Some((mean, interval)) = mean_and_interval(&values(finished, of)) {
            let what = first.delay;
            let _ = writeln!(text, "mean {what} of {name}: {mean:.3} s ± {interval:.3} s (95 %)");
        }
    }
    for name in shown.iter().filter(|name| !name.starts_with("delay")) {
        let of = |report: &Report| report.results.measure(name);
        if let Some((mean, interval)) = mean_and_interval(&values(finished, of)) {
            let (mean, interval) = (number(Some(mean)), number(Some(interval)));
            let _ = writeln!(text, "mean {name}: {mean} ± {interval} (95 %)");
        }
    }
    text
}

/// Writes a number with some four digits.
pub(super) fn number(value: Option<f64>) -> String {
    match value {
        None => "–".to_owned(),
        Some(value) if value.fract() == 0.0 && value.abs() < 1e12 => format!("{value:.0}"),
        Some(value) if value.abs() >= 1000.0 => format!("{value:.1}"),
        Some(value) if value.abs() >= 1.0 => format!("{value:.3}"),
        Some(value) => format!("{value:.4}"),
    }
}

fn values(finished: &[Finished], of: impl Fn(&Report) -> Option<f64>) -> Vec<f64> {
    finished.iter().filter_map(|run| of(&run.report)).collect()
}

fn mean(finished: &[Finished], of: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
    let values = values(finished, of);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn interval(finished: &[Finished], of: impl Fn(&Report) -> Option<f64>) -> Option<f64> {
    mean_and_interval(&values(finished, of)).map(|(_, interval)| interval)
}
