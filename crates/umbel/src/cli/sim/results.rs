//! Results of runs, for people and for programs.

use std::fmt::Write as _;
use std::time::Duration;

use serde_json::json;
use umbel_sim::scenario::report::mean_and_interval;
use umbel_sim::scenario::{Report, Scenario};
use umbel_sim::trace::Summary;

use crate::cli::output::Output;

/// A run that is over.
pub(super) struct Finished {
    pub(super) report: Report,
    /// Tables of packets, if they were requested.
    pub(super) summary: Option<Summary>,
    pub(super) real_time: Duration,
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
            "finished": finished.iter().map(|run| run.report.clients.finished).sum::<usize>(),
            "clients": finished.iter().map(|run| run.report.clients.count).sum::<usize>(),
            "mean_delay_s": mean(finished, |report| report.clients.mean_s),
            "mean_delay_s_ci95": interval(finished, |report| report.clients.mean_s),
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
    let hops: u64 = finished.iter().map(|run| run.report.network.hops).sum();
    let busy: f64 = finished.iter().map(|run| run.real_time.as_secs_f64()).sum();
    output.note(format!(
        "{hops} packet-hops in {busy:.2} s of computing: {:.2} million a second on one processor",
        hops as f64 / busy.max(1e-6) / 1e6
    ));
}

/// Formats a line for each run, and the means with their confidence intervals.
fn table(scenario: &Scenario, finished: &[Finished]) -> String {
    let mut text = format!(
        "{}, {} runs\n{:>12} {:>15} {:>10} {:>10} {:>10} {:>12} {:>8}\n",
        scenario.name,
        finished.len(),
        "seed",
        "finished",
        "mean s",
        "99 % s",
        "longest s",
        "data packets",
        "NAKs"
    );
    for Finished { report, .. } in finished {
        let clients = &report.clients;
        let seconds =
            |value: Option<f64>| value.map_or("–".to_owned(), |value| format!("{value:.3}"));
        let _ = writeln!(
            text,
            "{:>12} {:>15} {:>10} {:>10} {:>10} {:>12} {:>8}",
            report.seed,
            format!("{}/{}", clients.finished, clients.count),
            seconds(clients.mean_s),
            seconds(clients.p99_s),
            seconds(clients.max_s),
            report.server.packets,
            report.server.naks
        );
    }
    let groups = finished.first().map_or(&[][..], |run| &run.report.groups);
    let of_all = (groups.len() != 1).then_some(("all clients", None));
    let of_groups = groups.iter().enumerate().map(|(n, group)| (group.name.as_str(), Some(n)));
    for (name, group) in of_all.into_iter().chain(of_groups) {
        let of = |report: &Report| match group {
            Some(group) => report.groups[group].mean_s,
            None => report.clients.mean_s,
        };
        if let Some((mean, interval)) = mean_and_interval(&values(finished, of)) {
            let _ = writeln!(text, "mean delay of {name}: {mean:.3} s ± {interval:.3} s (95 %)");
        }
    }
    text
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
