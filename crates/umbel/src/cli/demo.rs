//! `umbel demo`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde::Serialize;
use umbel_engine::units::{ByteCount, Rate, counted};

use super::meter::Pace;
use super::output::{Output, plain};
use super::screen;
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
            let clients = counted(all, "client");
            bail!("only {verified} of {clients} got what was asked for; {client}: {problem}")
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
    let copies = format!("{} by unicast", counted(outcome.clients.len(), "copy"));
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
        "{:<24}{:>9.2}   {} of {}, all delivered after {:.1} s",
        "ratio",
        outcome.ratio,
        counted(outcome.items, "item"),
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

/// A line for each client, on a terminal.
struct Screen {
    output: Output,
    signals: Watch,
    clients: Vec<Client>,
    drawn: Option<Instant>,
}

struct Client {
    name: String,
    loss_percent: u32,
    bytes: u64,
    done: u64,
    pace: Pace,
    /// What is said beside the bar.
    said: String,
    is_over: bool,
}

/// Shortest time between two drawings.
const DRAW_EVERY: Duration = Duration::from_millis(50);
/// Cells of a bar.
const CELLS: u64 = 20;

impl Screen {
    fn new(output: Output, signals: Watch) -> Screen {
        Screen { output, signals, clients: Vec::new(), drawn: None }
    }

    fn draw(&mut self, now: bool) {
        let due = self.drawn.is_none_or(|drawn| drawn.elapsed() >= DRAW_EVERY);
        if self.output.draws() && (due || now) {
            self.drawn = Some(Instant::now());
            let colours = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
            let line = |client: &Client| client.line(screen::columns(), colours);
            screen::show(self.clients.iter().map(line).collect());
        }
    }

    /// Ends the display: removes the lines, or leaves them as they are.
    fn end(&mut self, clear: bool) {
        if !self.output.draws() {
            return;
        }
        if clear {
            screen::clear();
        } else {
            self.draw(true);
            screen::leave();
        }
    }
}

impl Client {
    /// Returns name and loss of the client's link, then its progress.
    fn line(&self, columns: usize, colours: bool) -> String {
        let Client { name, loss_percent, bytes, done, said, .. } = self;
        let share = |of: u64| {
            (u128::from(of) * u128::from(*done.min(bytes)) / u128::from(*bytes.max(&1))) as u64
        };
        let filled = if *bytes == 0 { CELLS } else { share(CELLS) };
        let percent = if *bytes == 0 { 100 } else { share(100) };
        let full = "━".repeat(filled as usize);
        let rest = "─".repeat((CELLS - filled) as usize);
        let bar = match (columns >= 78, colours) {
            (false, _) => String::new(),
            (true, false) => format!("{full}{rest} "),
            (true, true) => {
                let colour = if self.is_over { 32 } else { 36 };
                format!("\x1b[{colour}m{full}\x1b[2;37m{rest}\x1b[0m ")
            }
        };
        format!("{name:<3} {loss_percent:>2} % loss {bar}{percent:>3} %  {said}")
    }

    fn progress(&mut self, snapshot: &Snapshot) {
        self.done = snapshot.bytes_done;
        self.pace.mark(Instant::now(), self.done);
        self.said = said(self.bytes, snapshot, self.pace.per_s());
    }
}

/// Returns what is said of a client that is under way.
fn said(bytes: u64, snapshot: &Snapshot, bytes_per_s: Option<f64>) -> String {
    let done = ByteCount(snapshot.bytes_done).to_string();
    let of = ByteCount(bytes).to_string();
    if !snapshot.connected {
        return format!("{done:>8} of {of:>8}  connecting");
    }
    let left = bytes_per_s.map(|rate| (bytes.saturating_sub(snapshot.bytes_done)) as f64 / rate);
    // At first nothing is known, and long estimates are unreliable.
    let left = left.filter(|left| *left < 100.0);
    let left = left.map_or(" ".repeat(10), |left| format!("{left:>3.0} s left"));
    let rate = bytes_per_s.and_then(|rate| Rate::from_bits_per_s((rate * 8.0) as u64));
    let rate = rate.map_or(String::new(), |rate| rate.to_string());
    let lost = snapshot.loss * 100.0;
    let way = if snapshot.unicast { "  by unicast" } else { "" };
    format!("{done:>8} of {of:>8}  {left}  lost {lost:>4.1} %  {rate:>12}{way}")
}

impl Watcher for Screen {
    fn begin(&mut self, scene: &Scene) {
        let bytes = scene.items.iter().map(|item| item.bytes).sum();
        self.output.note(format!(
            "serving {} of {} at {} to {}",
            counted(scene.items.len(), "item"),
            ByteCount(bytes),
            scene.rate,
            counted(scene.clients.len(), "client")
        ));
        match &scene.links {
            Links::Namespaces => {
                let line = "each client is a separate host, behind a link that loses packets";
                self.output.note(line);
            }
            Links::Loopback { reason } => {
                let line = "over the loopback interface; each client loses packets on purpose";
                self.output.note(line);
                self.output.note(format!("(no emulated links: {})", plain(reason)));
            }
        }
        for client in &scene.clients {
            self.clients.push(Client {
                name: client.name.clone(),
                loss_percent: client.loss_percent,
                bytes: client.bytes(),
                done: 0,
                pace: Pace::of_transfer(),
                said: said(client.bytes(), &Snapshot::default(), None),
                is_over: false,
            });
        }
        self.draw(true);
    }

    fn progress(&mut self, client: usize, snapshot: &Snapshot) {
        let client = &mut self.clients[client];
        if !client.is_over {
            client.progress(snapshot);
            self.draw(false);
        }
    }

    fn done(&mut self, client: usize, summary: &Summary) {
        let client = &mut self.clients[client];
        (client.is_over, client.done) = (true, client.bytes);
        client.said = format!(
            "{:>8} in {:.1} s, {}, lost {:.1} %",
            ByteCount(summary.bytes).to_string(),
            summary.seconds,
            counted(summary.items, "item"),
            summary.loss() * 100.0
        );
        self.draw(true);
    }

    fn note(&mut self, client: usize, line: &str) {
        self.output.note(format!("{}: {}", self.clients[client].name, plain(line)));
    }

    fn interrupted(&mut self) -> bool {
        self.signals.wait(Duration::ZERO)
    }
}
