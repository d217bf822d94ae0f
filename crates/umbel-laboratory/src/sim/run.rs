//! `umbel sim run`.

use std::any::Any;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use anyhow::bail;
use serde_json::json;
use umbel_cli::meter::Meter;
use umbel_cli::output::Output;
use umbel_cli::signals::{self, Watch};
use umbel_engine::units::counted;
use umbel_sim::scenario::{Run, Scenario, Study};
use umbel_sim::trace::{self, FanOut, SummaryTracer};
use umbel_topology::Mistake;

use super::results::{self, Finished};
use super::study;

/// Options of `umbel sim run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel sim run examples/sim/late-joiner.toml                      one run, with a table of delays
  umbel sim run examples/sim/late-joiner.toml --html run.html      watch it in a browser
  umbel sim run examples/sim/late-joiner.toml --trace run.pcapng   look at its packets in Wireshark
  umbel sim run examples/sim/base-case.toml --seeds 8              eight runs, on all processors
  umbel sim run examples/sim/lms-figure12.toml --out bursts        a sweep: means, plots and a page
  umbel sim run examples/sim/two-classes.toml --json               one JSON object a line")]
pub(super) struct RunArgs {
    /// The scenario, in TOML
    scenario: PathBuf,
    /// Seed of the run, or of the first of several [default: that of the scenario]
    #[arg(long)]
    seed: Option<u64>,
    /// Number of runs, with seeds that count up, on all processors [default: 1, or for each point
    /// of a sweep what it says, or 5]
    #[arg(long, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    seeds: Option<u32>,
    /// Number of runs at a time [default: one for each processor]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    jobs: Option<u32>,
    /// Write events to .pcapng, .pcap, .csv or .html; can be given several times
    #[arg(long, value_name = "FILE")]
    trace: Vec<PathBuf>,
    /// Write a page that plays the run
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write tables of receivers, losses and links to this directory; with several runs also their
    /// means, plots and a page
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Also count packets by kind, flow, link and node, which takes time
    #[arg(long)]
    tables: bool,
}

/// Number of runs of each point of a sweep that does not say it.
const SWEEP_SEEDS: u32 = 5;

/// Real time that a run takes between checks for an interruption.
const STEP: Duration = Duration::from_millis(50);
/// Intervals at which progress is shown, and reported to programs.
const DRAW_EVERY: Duration = Duration::from_millis(100);
const TELL_EVERY: Duration = Duration::from_secs(1);

/// State that the threads of a command share.
struct Shared {
    /// Whether the user has interrupted it.
    stop: AtomicBool,
    /// The next run that no thread has taken.
    next: AtomicUsize,
    runs: Vec<Mutex<State>>,
}

/// Progress of a run.
#[derive(Default)]
struct State {
    simulated: Duration,
    events: u64,
    clients_done: usize,
    clients: usize,
    /// Share of the work that is done, as an estimate.
    share: f64,
    result: Option<anyhow::Result<Finished>>,
}

/// Runs the command.
///
/// # Errors
///
/// If the scenario has a mistake, a trace cannot be written, or the user interrupts.
pub(super) fn run(args: &RunArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let study = Study::from_file(&args.scenario)?;
    let base = study.scenario_of(0, args.seed)?;
    for note in &base.topology.notes {
        output.note(note);
    }
    let is_swept = !study.axes().is_empty();
    let usual = if is_swept { study.seeds().unwrap_or(SWEEP_SEEDS) } else { 1 };
    let seeds = args.seeds.unwrap_or(usual);
    let first = args.seed.unwrap_or(base.seed);
    let work: Vec<(usize, u64)> = (0..study.points())
        .flat_map(|point| (0..u64::from(seeds)).map(move |n| (point, first.wrapping_add(n))))
        .collect();
    let traces = traces(args, &base, work.len(), output)?;
    if let Some(out) = &args.out {
        umbel_repro::output::prepare(out)?;
    }
    let signals = signals::watch()?;
    let shared = Shared {
        stop: AtomicBool::new(false),
        next: AtomicUsize::new(0),
        runs: work.iter().map(|_| Mutex::default()).collect(),
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = args.jobs.map_or(processors, |jobs| jobs as usize).min(work.len());
    std::thread::scope(|scope| {
        let work = || {
            let mut present: Option<(Network, Scenario)> = None;
            loop {
                let index = shared.next.fetch_add(1, Ordering::Relaxed);
                let Some(&(point, seed)) = work.get(index) else { break };
                let result = match at(&study, &base, (point, seed), &mut present) {
                    Ok(scenario) => simulate(scenario, seed, &traces, args, &shared, index),
                    Err(mistake) => Err(mistake.into()),
                };
                shared.state(index).result = Some(result);
            }
        };
        let workers: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        watch(&shared, &base, output, &signals, || {
            workers.iter().all(ScopedJoinHandle::is_finished)
        });
    });
    let mut finished = Vec::new();
    for run in shared.runs {
        match run.into_inner().unwrap_or_else(PoisonError::into_inner).result {
            Some(result) => finished.push(result?),
            None => bail!("interrupted"),
        }
    }
    let tables = results::take_tables(&study, &mut finished, seeds as usize);
    if is_swept {
        study::show(&study, &base.name, first, &finished, seeds as usize, output);
    } else {
        results::show(&base, &finished, output);
    }
    if let Some(out) = &args.out {
        for table in &tables {
            table.write(out)?;
        }
        if finished.len() > 1 {
            let report = study::report(&study, &base.name, first, &finished, seeds as usize);
            report.write(out)?;
        }
        output.note(format!("wrote {}", out.display()));
    }
    for path in &traces {
        output.note(format!("wrote {}", path.display()));
    }
    if shared.stop.into_inner() {
        bail!("interrupted; this is what came of it so far");
    }
    Ok(ExitCode::SUCCESS)
}

/// Point, and the seed of its network, if that depends on the run.
type Network = (usize, Option<u64>);

/// Returns the scenario of a run. A worker keeps the one that it reads, since the runs of a point
/// follow one another.
fn at<'a>(
    study: &Study,
    base: &'a Scenario,
    (point, seed): (usize, u64),
    present: &'a mut Option<(Network, Scenario)>,
) -> Result<&'a Scenario, Mistake> {
    let seed = study.draws_networks().then_some(seed);
    if point == 0 && seed.is_none() {
        return Ok(base);
    }
    if present.as_ref().is_none_or(|(of, _)| *of != (point, seed)) {
        *present = Some(((point, seed), study.scenario_of(point, seed)?));
    }
    Ok(present.as_ref().map_or(base, |(_, scenario)| scenario))
}

/// Returns the traces to write: those of the command line, or else of the scenario.
fn traces(
    args: &RunArgs,
    scenario: &Scenario,
    runs: usize,
    output: &Output,
) -> anyhow::Result<Vec<PathBuf>> {
    let asked: Vec<PathBuf> = args.trace.iter().chain(&args.html).cloned().collect();
    match (runs, asked.is_empty(), scenario.traces.is_empty()) {
        (1, true, _) => Ok(scenario.traces.clone()),
        (1, false, _) | (_, true, true) => Ok(asked),
        (_, false, _) => {
            bail!("a trace is of one run: leave out --seeds or the sweep, or the trace")
        }
        (_, true, false) => {
            output.note("the traces that the scenario names are not written for several runs");
            Ok(Vec::new())
        }
    }
}

/// Simulates one run from beginning to end.
fn simulate(
    scenario: &Scenario,
    seed: u64,
    traces: &[PathBuf],
    args: &RunArgs,
    shared: &Shared,
    index: usize,
) -> anyhow::Result<Finished> {
    let started = Instant::now();
    let tables = args.tables;
    let mut run = scenario.start(seed)?;
    if tables || !traces.is_empty() {
        let mut all = FanOut::new();
        for path in traces {
            all.add(trace::open(path, run.simulation().network())?);
        }
        if tables {
            all.add(Box::new(SummaryTracer::new(run.simulation().network())));
        }
        run.set_tracer(Box::new(all));
    }
    // Simulated time that takes about a step of real time.
    let mut step = Duration::from_millis(1);
    let mut told = None;
    while run.go_on(step) && !shared.stop.load(Ordering::Relaxed) {
        let now = Instant::now();
        let took = told.map_or(STEP, |told| now.duration_since(told));
        told = Some(now);
        let factor = STEP.as_secs_f64() / took.as_secs_f64().max(1e-4);
        step =
            step.mul_f64(factor.clamp(0.25, 4.0)).clamp(Duration::from_micros(1), scenario.ends());
        shared.state(index).update(&run, scenario);
    }
    shared.state(index).update(&run, scenario);
    shared.state(index).share = 1.0;
    let (end, mut report) = (run.simulation().now(), run.report());
    if args.out.is_none() {
        // Nobody will read them, and those of many runs take memory.
        report.results.tables.clear();
    }
    let tracer: Option<Box<dyn Any>> = run.finish_trace()?.map(|tracer| tracer as Box<dyn Any>);
    let all = tracer.and_then(|tracer| tracer.downcast::<FanOut>().ok());
    let summary = all.and_then(|all| Some(all.get::<SummaryTracer>()?.summary(end)));
    if let Some(trace) = run.ended_trace() {
        anyhow::bail!(
            "{} ends before the run does: make it longer, or say at_end = \"repeat\" or \"pass\"",
            trace.display()
        );
    }
    if let Some(host) = run.stuck() {
        let at = end.since(umbel_sim::Instant::EPOCH).as_secs_f64();
        anyhow::bail!(
            "the engine of `{host}` asks for the same timeout again and again at {at} s of \
             simulated time: this is a mistake in Umbel; please report it with the scenario and \
             --seed {seed}"
        );
    }
    Ok(Finished { report, summary, real_time: started.elapsed() })
}

impl Shared {
    fn state(&self, index: usize) -> MutexGuard<'_, State> {
        self.runs[index].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn update(&mut self, run: &Run, scenario: &Scenario) {
        self.simulated = run.simulation().now().since(umbel_sim::Instant::EPOCH);
        self.events = run.counters().events;
        (self.clients_done, self.clients) = run.progress();
        let by_time = self.simulated.as_secs_f64() / scenario.ends().as_secs_f64();
        let by_clients = self.clients_done as f64 / self.clients.max(1) as f64;
        self.share = by_time.max(by_clients);
    }
}

/// Shows the progress of the runs until all are over.
fn watch(
    shared: &Shared,
    scenario: &Scenario,
    output: &Output,
    signals: &Watch,
    is_over: impl Fn() -> bool,
) {
    let meter = Meter::new(output);
    let started = Instant::now();
    let mut told = started;
    while !is_over() {
        if signals.wait(if output.draws() { DRAW_EVERY } else { DRAW_EVERY / 10 }) {
            shared.stop.store(true, Ordering::Relaxed);
        }
        let progress = Progress::of(shared, started.elapsed());
        meter.message(&progress.line(scenario.ends()));
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            output.json(&json!({
                "event": "progress",
                "runs": progress.runs,
                "runs_done": progress.runs_done,
                "simulated_s": progress.simulated.as_secs_f64(),
                "events": progress.events,
                "events_per_s": progress.events_per_s,
                "clients": progress.clients,
                "clients_done": progress.clients_done,
                "eta_s": progress.eta.map(|eta| eta.as_secs_f64()),
            }));
        }
    }
    meter.clear();
}

/// Progress of all runs together.
struct Progress {
    runs: usize,
    runs_done: usize,
    /// Simulated time of the run that has got furthest, among those still running.
    simulated: Duration,
    events: u64,
    events_per_s: f64,
    clients: usize,
    clients_done: usize,
    eta: Option<Duration>,
}

impl Progress {
    fn of(shared: &Shared, elapsed: Duration) -> Progress {
        let runs = shared.runs.len();
        let mut progress = Progress {
            runs,
            runs_done: 0,
            simulated: Duration::ZERO,
            events: 0,
            events_per_s: 0.0,
            clients: 0,
            clients_done: 0,
            eta: None,
        };
        let mut share = 0.0;
        for index in 0..runs {
            let state = shared.state(index);
            share += state.share / runs as f64;
            progress.events += state.events;
            progress.clients += state.clients;
            progress.clients_done += state.clients_done;
            if state.result.is_some() {
                progress.runs_done += 1;
            } else {
                progress.simulated = progress.simulated.max(state.simulated);
            }
        }
        progress.events_per_s = progress.events as f64 / elapsed.as_secs_f64().max(1e-3);
        if share > 0.0 {
            progress.eta =
                Duration::try_from_secs_f64(elapsed.as_secs_f64() * (1.0 / share - 1.0)).ok();
        }
        progress
    }

    fn line(&self, duration: Duration) -> String {
        let Progress { runs, runs_done, simulated, clients, clients_done, .. } = self;
        let mut line =
            if *runs > 1 { format!("{runs_done} of {runs} runs · ") } else { String::new() };
        let _ = write!(
            line,
            "{:.1} of {:.0} s simulated · {clients_done} of {} done · {:.2} M events/s",
            simulated.as_secs_f64(),
            duration.as_secs_f64(),
            counted(*clients, "client"),
            self.events_per_s / 1e6,
        );
        if let Some(eta) = self.eta.filter(|eta| *eta >= Duration::from_secs(1)) {
            let _ = write!(line, " · {} s left at most", eta.as_secs());
        }
        line
    }
}
