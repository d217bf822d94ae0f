//! `umbel demo`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::bail;
use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;
use umbel_engine::units::{ByteCount, Rate};

use super::output::{Output, plain};
use super::signals::{self, Watch};
use crate::demo::{self, ClientOutcome, DemoOptions, Links, Outcome, Scene, Watcher};
use crate::get::{Snapshot, Summary};

/// Options of `umbel demo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel demo              a repository made for the purpose, eight clients, 0 to 20 % loss
  umbel demo ./photos     the same with a directory of yours, which is only read
  umbel demo --json       one object for each client, then a summary

Needs no root: the links are emulated between network namespaces, or, where these cannot be
made, each client throws packets away that come over the loopback interface.
Exits with 0 if every client has exactly what it asked for, byte by byte.")]
pub(super) struct DemoArgs {
    /// Directory to serve [default: one of 24 items, 0.1 to 1.5 MB each, created in a temporary
    /// directory]
    dir: Option<PathBuf>,
    /// Rate of the data channel, such as 40M [default: the rate that sends everything once in six
    /// seconds, from 8M to 60M]
    #[arg(long, value_parser = super::rate::parse_rate)]
    rate: Option<Rate>,
    /// Use the loopback interface even where links can be emulated
    #[arg(long, hide = true)]
    loopback: bool,
}

/// Runs the command.
///
/// # Errors
///
/// If it cannot run, is interrupted, or a client does not have what it asked for.
pub(super) fn run(args: DemoArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let DemoArgs { dir, rate, loopback } = args;
    let options = DemoOptions { dir, rate, loopback };
    let mut screen = Screen::new(output.clone(), signals::watch()?);
    let outcome = demo::run(&options, &mut screen);
    // After an interruption the bars stay: `^C` on the screen hinders clearing them, and they show
    // how far it was.
    screen.end(outcome.is_ok());
    let outcome = outcome?;
    tell(&outcome, output);
    output.note("");
    for line in table(&outcome) {
        output.result(line);
    }
    match outcome.clients.iter().find(|client| !client.verified) {
        None => Ok(ExitCode::SUCCESS),
        Some(ClientOutcome { client, problem, .. }) => {
            let (verified, all) = (outcome.verified(), outcome.clients.len());
            let problem = plain(problem.as_deref().unwrap_or_default());
            bail!("{verified} of {all} clients have what they asked for; {client}: {problem}")
        }
    }
}

/// Prints the outcome in JSON.
fn tell(outcome: &Outcome, output: &Output) {
    #[derive(Serialize)]
    struct Line<'a, T> {
        event: &'a str,
        #[serde(flatten)]
        of: &'a T,
        #[serde(skip_serializing_if = "Option::is_none")]
        clients: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        clients_verified: Option<usize>,
    }
    for client in &outcome.clients {
        let line = Line { event: "client", of: client, clients: None, clients_verified: None };
        output.json(&line);
    }
    output.json(&Line {
        event: "summary",
        of: outcome,
        clients: Some(outcome.clients.len()),
        clients_verified: Some(outcome.verified()),
    });
}

/// Returns the outcome as a table.
fn table(outcome: &Outcome) -> Vec<String> {
    let mut lines = vec![
        format!("{:<8}{:<24}{:<22}{:<11}{}", "client", "wanted", "loss", "delay", "verified"),
        format!("{:<8}{:>5} {:>14}{:>12}{:>11}", "", "items", "bytes", "set", "measured"),
    ];
    lines.extend(outcome.clients.iter().map(row));
    let busy: Vec<String> = outcome
        .clients
        .iter()
        .filter(|client| client.dropped_here > 0)
        .map(|client| format!("{} of {}", client.dropped_here, client.client))
        .collect();
    if !busy.is_empty() {
        lines.push(format!(
            "this machine was too busy and dropped packets itself, which are measured as loss: {}",
            busy.join(", ")
        ));
    }
    let copies = format!("{} copies by unicast", outcome.clients.len());
    lines.push(String::new());
    lines.push(format!(
        "{copies:<24}{:>9}   at least: no headers, nothing sent again",
        ByteCount(outcome.copies_bytes).to_string()
    ));
    lines.push(format!(
        "{:<24}{:>9}   everything counted, repairs for lost packets too",
        "sent by multicast",
        ByteCount(outcome.sent_bytes).to_string()
    ));
    if outcome.unicast_bytes > 0 {
        lines.push(format!(
            "{:<24}{:>9}   to clients that multicast did not reach",
            "sent by unicast",
            ByteCount(outcome.unicast_bytes).to_string()
        ));
    }
    lines.push(format!(
        "{:<24}{:>9.2}   {} items of {}, all delivered after {:.1} s",
        "ratio",
        outcome.ratio,
        outcome.items,
        ByteCount(outcome.bytes),
        outcome.seconds
    ));
    lines
}

fn row(client: &ClientOutcome) -> String {
    let ClientOutcome { client: name, items, bytes, loss_set, loss_measured, delay_s, .. } = client;
    let verified = match &client.problem {
        None => "every byte".to_owned(),
        Some(problem) => format!("NO: {}", plain(problem)),
    };
    let by_unicast = if client.unicast_blocks > 0 { " (some by unicast)" } else { "" };
    format!(
        "{name:<8}{items:>5} {:>14}{:>10.0} %{:>9.1} %{:>9.1} s    {verified}{by_unicast}",
        ByteCount(*bytes).to_string(),
        loss_set * 100.0,
        loss_measured * 100.0,
        delay_s
    )
}

/// A bar for each client, on a terminal.
struct Screen {
    output: Output,
    signals: Watch,
    all: MultiProgress,
    bars: Vec<Bar>,
}

struct Bar {
    name: String,
    bar: ProgressBar,
}

/// Template of a bar: name and loss of the client's link, then its progress. A message that is too
/// wide for the terminal is cut off.
const UNDER_WAY: &str = "{prefix} {bar:20.cyan/dim} {percent:>3} %  {wide_msg}";
/// Template of a bar at its end.
const AT_THE_END: &str = "{prefix} {bar:20.green/dim} {percent:>3} %  {wide_msg}";

impl Screen {
    fn new(output: Output, signals: Watch) -> Screen {
        let target = if output.draws() {
            ProgressDrawTarget::stderr()
        } else {
            ProgressDrawTarget::hidden()
        };
        let all = MultiProgress::with_draw_target(target);
        Screen { output, signals, all, bars: Vec::new() }
    }

    /// Prints a line above the bars, or in their place.
    fn line(&self, line: &str) {
        if self.output.draws() {
            // A terminal that is gone is no reason to stop.
            let _ = self.all.println(line);
        } else {
            self.output.note(line);
        }
    }

    /// Ends the display: removes the bars, or leaves them as they are.
    fn end(&self, clear: bool) {
        if !clear {
            return self.bars.iter().for_each(|Bar { bar, .. }| bar.abandon());
        }
        // A terminal that is gone is no reason to fail.
        let _ = self.all.clear();
    }
}

/// Returns the message beside the bar of a client that is under way.
fn message(bar: &ProgressBar, snapshot: &Snapshot) -> String {
    let bytes = bar.length().unwrap_or_default();
    let done = ByteCount(snapshot.bytes_done).to_string();
    let of = ByteCount(bytes).to_string();
    if !snapshot.connected {
        return format!("{done:>8} of {of:>8}  connecting");
    }
    let bytes_per_s = bar.per_sec();
    let left = (bytes - snapshot.bytes_done.min(bytes)) as f64 / bytes_per_s.max(1.0);
    // At first nothing is known, and long estimates are unreliable.
    let left = if left < 100.0 { format!("{left:>3.0} s left") } else { " ".repeat(10) };
    let rate = ByteCount(bytes_per_s as u64).to_string();
    let lost = snapshot.loss * 100.0;
    let way = if snapshot.unicast { "  by unicast" } else { "" };
    format!("{done:>8} of {of:>8}  {rate:>8}/s {left}  lost {lost:>4.1} %{way}")
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("━╸─")
}

impl Watcher for Screen {
    fn begin(&mut self, scene: &Scene) {
        let bytes = scene.items.iter().map(|item| item.bytes).sum();
        self.line(&format!(
            "serving {} items of {} at {} to {} clients",
            scene.items.len(),
            ByteCount(bytes),
            scene.rate,
            scene.clients.len()
        ));
        match &scene.links {
            Links::Namespaces => {
                self.line("each client is a separate host, behind a link that loses packets");
            }
            Links::Loopback { reason } => {
                self.line("over the loopback interface; each client loses packets on purpose");
                self.line(&format!("(no emulated links: {})", plain(reason)));
            }
        }
        for client in &scene.clients {
            let bar = self.all.add(ProgressBar::new(client.bytes()).with_style(style(UNDER_WAY)));
            bar.set_prefix(format!("{:<3} {:>2} % loss", client.name, client.loss_percent));
            bar.set_message(message(&bar, &Snapshot::default()));
            self.bars.push(Bar { name: client.name.clone(), bar });
        }
    }

    fn progress(&mut self, client: usize, snapshot: &Snapshot) {
        let Bar { bar, .. } = &self.bars[client];
        if bar.is_finished() {
            return;
        }
        bar.set_position(snapshot.bytes_done);
        bar.set_message(message(bar, snapshot));
    }

    fn done(&mut self, client: usize, summary: &Summary) {
        let Bar { bar, .. } = &self.bars[client];
        bar.set_style(style(AT_THE_END));
        bar.set_position(bar.length().unwrap_or_default());
        let bytes = ByteCount(summary.bytes).to_string();
        bar.abandon_with_message(format!(
            "{bytes:>8} in {:.1} s, {} items, lost {:.1} %",
            summary.seconds,
            summary.items,
            summary.loss() * 100.0
        ));
    }

    fn note(&mut self, client: usize, line: &str) {
        self.line(&format!("{}: {}", self.bars[client].name, plain(line)));
    }

    fn interrupted(&mut self) -> bool {
        self.signals.wait(Duration::ZERO)
    }
}
