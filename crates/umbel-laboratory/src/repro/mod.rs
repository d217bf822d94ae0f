//! `umbel repro`.

mod lms;
mod manifest;
mod rlm;
mod smo;
mod tmtp;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use clap::Subcommand;
use serde_json::json;
use umbel_cli::meter::Meter;
use umbel_cli::output::Output;
use umbel_cli::programs::Umbel;
use umbel_engine::units::counted;
use umbel_repro::archive::{Archive, Origin, Use};
use umbel_repro::output::{Certainty, Report, Row, Verdict, write_index};
use umbel_repro::pool::{Pool, Progress, all_cores};
use umbel_repro::repository;
use umbel_repro::repository::Part;
use umbel_repro::repository::choices::Choices;

use self::manifest::Manifest;

/// Options of `umbel repro`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel repro repository --out out/                  everything; open out/report.html
  umbel repro repository --out out/ --figure 3,auto  one figure, and the policy auto
  umbel repro repository --out out/ --duration 24h --warm-up 0 --figure 8
  umbel repro lms --out out/ --seeds 10              10 graphs with 10 placements, as the paper has
  umbel repro tmtp --out out/ --figure 6             TMTP beside WIN_BASEP and BURST_BASEP
  umbel repro lms --out out/ --figure sensitivity    which numbers hinge on chosen values
  umbel repro rlm --out out/ --figure 8              a receiver that finds its level
  umbel repro smo --out out/ --figure 5,acks         one TCP stream to up to 1,500 receivers
  umbel repro smo --out out/ --figure lab            the same with the sockets of this kernel
  umbel repro all --out out/                         all five, in folders; open out/index.html
  umbel repro lms --out out/ --redraw                the report of its runs once more
  umbel repro all --out out/ --resume                go on after it was killed, or with more --seeds
  umbel repro repository --out out/ --strict         exit 1 unless all numbers are within bounds")]
pub(super) struct ReproArgs {
    #[command(subcommand)]
    paper: Paper,
}

#[derive(Debug, Subcommand)]
enum Paper {
    /// "Reliably Networking a Multicast Repository": Figures 3 to 11
    Repository(RepositoryArgs),
    /// "Light-Weight Multicast Services (LMS)": Figures 11 to 16, Table I
    Lms(lms::LmsArgs),
    /// "A Reliable Dissemination Protocol for Interactive Collaborative Applications" (TMTP):
    /// Figures 6 and 7
    Tmtp(tmtp::TmtpArgs),
    /// "Receiver-driven Layered Multicast" (RLM): Figures 8 to 13
    Rlm(rlm::RlmArgs),
    /// "TCP-SMO: Extending TCP to Support Medium-Scale Multicast Applications": Figures 5 and 7
    Smo(smo::SmoArgs),
    /// All papers, each in a folder of its name
    All(Common),
}

/// Options that all papers share.
#[derive(Clone, Debug, clap::Args)]
struct Common {
    /// Directory for report.html, table.csv, figN.csv, figN.svg, runs.csv and manifest.json
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Runs of each point, for the confidence intervals
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Exit 1 unless every number is within its bounds
    #[arg(long)]
    strict: bool,
    /// Threads to run on [default: all processors]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    threads: Option<u16>,
    /// Go on from the runs in DIR/runs.csv by the same program with the same options, even if it
    /// was killed; seeds and parts may be added
    #[arg(long)]
    resume: bool,
    /// Make the report from DIR/runs.csv alone, without running anything
    #[arg(long, conflicts_with = "resume")]
    redraw: bool,
}

impl Common {
    fn threads(&self) -> usize {
        self.threads.map_or_else(all_cores, usize::from)
    }

    /// Opens the archive of the runs of a paper. `options` are those on which outcomes depend.
    fn archive(&self, paper: &str, options: &str) -> anyhow::Result<Arc<Archive>> {
        // Tests the directory before minutes are spent.
        umbel_repro::output::prepare(&self.out)?;
        let to = match (self.resume, self.redraw) {
            (true, _) => Use::Resume,
            (_, true) => Use::Redraw,
            _ => Use::Nothing,
        };
        let origin = Origin {
            paper: paper.to_owned(),
            program: manifest::program()?,
            options: if options.is_empty() { "none".to_owned() } else { options.to_owned() },
        };
        let mut archive = Archive::new(&self.out, origin, to);
        if paper == "smo" {
            // Sessions in the lab are run by the product.
            let product = Umbel::Product.find().ok().and_then(|path| manifest::digest(&path).ok());
            archive = archive.with_program(LAB_RUNS, product.unwrap_or_else(|| "none".to_owned()));
        }
        archive.open(&KINDS)?;
        Ok(Arc::new(archive))
    }
}

/// Files of runs, without `.csv`.
const KINDS: [&str; 4] = ["runs", "beyond-runs", "sensitivity-runs", LAB_RUNS];
/// File of runs with real programs.
const LAB_RUNS: &str = "lab-runs";

#[derive(Debug, clap::Args)]
struct RepositoryArgs {
    #[command(flatten)]
    common: Common,
    /// Only this part: a figure from 3 to 11, auto (against every scheme set by hand), readings
    /// (results of other choices), example (of §2.2) or, which only runs if it is named,
    /// sensitivity (which numbers hinge on choices: about twice the figures' time); may be given
    /// several times
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    figure: Vec<Part>,
    /// Measure clients that come before this simulated time: 7000 (seconds), 90min, 6h; the paper's
    /// own is 24h
    #[arg(long, default_value = "7000", value_name = "TIME", value_parser = time)]
    duration: Duration,
    /// Leave out clients that come before this simulated time [default: two sevenths of the
    /// duration, at most 2000 s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    warm_up: Option<Duration>,
    /// Read the paper in another way; may be given several times
    #[arg(long = "set", value_name = "KEY=VALUE", help = SET_HELP)]
    choices: Vec<String>,
}

const SET_HELP: &str = "Read the paper in another way: gather=SECONDS, audience=everyone|naks, \
     wait=yes|no, join=yes|no, arrivals=regular|poisson, wants=fixed|binomial|uniform, …";

/// Accepted durations; shorter ones show nothing, longer ones take weeks.
const DURATIONS: std::ops::RangeInclusive<Duration> =
    Duration::from_secs(10)..=Duration::from_secs(1_000_000);

/// Parses a time in seconds, or with its unit.
fn time(text: &str) -> Result<Duration, String> {
    let fail = || format!("`{text}` is not a time: write it like 7000 (seconds), 90min or 6h");
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let number: f64 = text[..digits].parse().map_err(|_| fail())?;
    let unit = match text[digits..].trim() {
        "" | "s" => 1.0,
        "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        _ => return Err(fail()),
    };
    Duration::try_from_secs_f64(number * unit).map_err(|_| fail())
}

/// Runs the command.
///
/// # Errors
///
/// If an option is invalid or the report cannot be written.
pub(super) fn run(args: ReproArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match args.paper {
        Paper::Repository(args) => run_repository(&args, output),
        Paper::Lms(args) => lms::run(&args, output),
        Paper::Tmtp(args) => tmtp::run(&args, output),
        Paper::Rlm(args) => rlm::run(&args, output),
        Paper::Smo(args) => smo::run(&args, output),
        Paper::All(common) => run_all(&common, output),
    }
}

/// Computes the report of a paper in a pool.
type Experiments<'a> = &'a dyn Fn(Pool, &dyn Progress) -> Report;

/// Makes the whole reports of all papers, one after the other.
fn run_all(common: &Common, output: &Output) -> anyhow::Result<ExitCode> {
    use umbel_repro::{lms as lms_paper, rlm as rlm_paper, smo as smo_paper, tmtp as tmtp_paper};

    let seeds = common.seeds;
    let lms_options = lms_paper::Options { seeds, ..Default::default() };
    let of_repository = repository_settings(&repository::Options::default());
    let of_lms = lms::settings(&lms_options);
    let papers: [(&str, &str, Experiments<'_>); 5] = [
        ("repository", &of_repository, &|pool, progress| {
            repository::run(&repository::Options { seeds, pool, ..Default::default() }, progress)
        }),
        ("lms", &of_lms, &|pool, progress| {
            lms_paper::run(&lms_paper::Options { pool, ..lms_options.clone() }, progress)
        }),
        ("tmtp", "", &|pool, progress| {
            tmtp_paper::run(&tmtp_paper::Options { seeds, pool, ..Default::default() }, progress)
        }),
        ("rlm", "", &|pool, progress| {
            rlm_paper::run(&rlm_paper::Options { seeds, pool, ..Default::default() }, progress)
        }),
        ("smo", "", &|pool, progress| {
            smo_paper::run(&smo_paper::Options { seeds, pool, ..Default::default() }, progress)
        }),
    ];
    let mut index = Vec::new();
    for (name, options, experiments) in papers {
        output.note(format!("{name}:"));
        let common = Common { out: common.out.join(name), ..common.clone() };
        index.push(computed((name, options), &common, output, experiments)?);
    }
    let page = write_index(&common.out, &index)?;
    output.note(format!("all reports: {}", page.display()));
    Ok(code(common, &index))
}

/// Returns the options on which outcomes depend.
fn repository_settings(options: &repository::Options) -> String {
    let [duration, warm_up] = [options.duration, options.warm_up].map(|time| time.as_secs_f64());
    format!("--duration {duration} --warm-up {warm_up} --set {}", options.choices)
}

fn run_repository(args: &RepositoryArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let mut choices = Choices::default();
    for text in &args.choices {
        choices.set(text).context("--set")?;
    }
    let duration = args.duration;
    anyhow::ensure!(
        DURATIONS.contains(&duration),
        "--duration of {} s: it is 10 s to 1,000,000 s",
        duration.as_secs_f64()
    );
    let default = repository::Options::default();
    let warm_up = args.warm_up.unwrap_or_else(|| (duration * 2 / 7).min(default.warm_up));
    anyhow::ensure!(
        warm_up < duration,
        "--warm-up of {} s leaves nothing of --duration, {} s",
        warm_up.as_secs_f64(),
        duration.as_secs_f64()
    );
    let options = repository::Options {
        seeds: common.seeds,
        parts: args.figure.iter().copied().collect(),
        warm_up,
        duration,
        choices,
        ..default
    };
    make(("repository", &repository_settings(&options)), common, output, |pool, progress| {
        repository::run(&repository::Options { pool, ..options.clone() }, progress)
    })
}

/// Runs a paper's experiments, and writes and shows their results. The tuple has the paper's name,
/// and the options on which outcomes depend.
fn make(
    paper: (&str, &str),
    common: &Common,
    output: &Output,
    experiments: impl FnOnce(Pool, &dyn Progress) -> Report,
) -> anyhow::Result<ExitCode> {
    let report = computed(paper, common, output, experiments)?;
    Ok(code(common, &[report]))
}

/// Returns failure with `--strict` unless every judged number is within its bounds.
fn code(common: &Common, reports: &[Report]) -> ExitCode {
    let fails = |report: &Report| report.count(Verdict::Ok) < report.judged();
    ExitCode::from(u8::from(common.strict && reports.iter().any(fails)))
}

/// Returns the report of a paper, which is written and shown.
fn computed(
    (paper, options): (&str, &str),
    common: &Common,
    output: &Output,
    experiments: impl FnOnce(Pool, &dyn Progress) -> Report,
) -> anyhow::Result<Report> {
    let archive = common.archive(paper, options)?;
    let (begun, started) = (SystemTime::now(), Instant::now());
    let processor_before = manifest::processor_time()?;
    let bar = Bar {
        output: output.clone(),
        meter: Meter::work(output),
        total: AtomicU64::new(0),
        done: AtomicU64::new(0),
        told: AtomicU64::new(0),
    };
    let report = experiments(Pool::of(common.threads()).keeping(archive.clone()), &bar);
    bar.meter.clear();
    archive.finish()?;
    report.write(&common.out)?;
    let took = (started.elapsed(), manifest::processor_time()?.saturating_sub(processor_before));
    Manifest::new(&report, common, begun, took)?.write(&common.out)?;
    show(&report, common, took.0, output);
    Ok(report)
}

/// Prints the table and the place of the report.
fn show(report: &Report, common: &Common, took: Duration, output: &Output) {
    output.result(format!(
        "{:<7} {:<48} {:>10} {:<5} {:<9} reported",
        "figure", "what", "measured", "", ""
    ));
    for row in &report.rows {
        let Row { figure, what, reported, measured, unit, low, high, .. } = row;
        let verdict = row.verdict().to_string();
        let (least, greatest) = row.interval();
        output.json(&json!({
            "event": "row", "figure": figure, "what": what, "reported": reported,
            "measured": measured, "measured_low": least, "measured_high": greatest, "unit": unit,
            "low": low, "high": high, "verdict": verdict,
        }));
        let digits = if measured.abs() < 10.0 { 3 } else { 0 };
        output.result(format!(
            "{figure:<7} {what:<48} {measured:>10.digits$} {unit:<5} {verdict:<9} {reported}"
        ));
    }
    let rows = report.judged();
    let [ok, misses, undecided] =
        [Verdict::Ok, Verdict::Miss, Verdict::Undecided].map(|verdict| report.count(verdict));
    let page = common.out.join("report.html");
    output.json(&json!({
        "event": "done", "report": page, "rows": report.rows.len(), "misses": misses,
        "undecided": undecided,
        "seconds": took.as_secs_f64(),
    }));
    output.note(format!(
        "{ok} of {} within the bounds, {misses} outside, {undecided} undecided; {} ({:.0} s)",
        counted(rows, "number"),
        page.display(),
        took.as_secs_f64()
    ));
    if undecided > 0 {
        output.note(if report.rows.iter().any(|row| row.certainty == Certainty::Unknown) {
            "undecided: too few runs to tell; take at least --seeds 5"
        } else {
            "undecided: a bound lies within the interval of a number; more --seeds narrow it"
        });
    }
}

/// The progress bar. Where it cannot be drawn, each tenth of the work has a line.
struct Bar {
    output: Output,
    meter: Meter,
    total: AtomicU64,
    done: AtomicU64,
    /// Tenths that were told.
    told: AtomicU64,
}

impl Progress for Bar {
    fn expect(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.meter.share(self.done.load(Ordering::Relaxed), total);
    }

    fn advance(&self, work: u64) {
        let done = self.done.fetch_add(work, Ordering::Relaxed) + work;
        let total = self.total.load(Ordering::Relaxed);
        self.meter.share(done, total);
        let tenths = done * 10 / total.max(1);
        if !self.output.draws() && self.told.fetch_max(tenths, Ordering::Relaxed) < tenths {
            self.output.note(format!("{} % of the runs are done", tenths * 10));
        }
    }
}
