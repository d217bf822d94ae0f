//! Origin of a report: the program, its options, the machine and the time.

use std::path::Path;
use std::time::{Duration, SystemTime};

use anyhow::Context;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike as _};
use serde::Serialize;
use umbel_repro::output::{Report, Verdict};
use umbel_repro::pool::all_cores;

use super::Common;

/// Name of the file beside the report.
const FILE_NAME: &str = "manifest.json";

/// Returns the digest of the program's file.
///
/// # Errors
///
/// If it cannot be read.
pub(super) fn program() -> anyhow::Result<String> {
    // The file may have been replaced since the program started; this is the one that runs.
    digest(Path::new("/proc/self/exe")).context("cannot read the program's own file")
}

/// Returns the digest of a file.
///
/// # Errors
///
/// If it cannot be read.
pub(super) fn digest(path: &Path) -> std::io::Result<String> {
    let mut content = blake3::Hasher::new();
    content.update_reader(std::fs::File::open(path)?)?;
    Ok(content.finalize().to_hex().to_string())
}

/// Returns the processor time of all threads of this program so far.
///
/// # Errors
///
/// If the system does not tell.
pub(super) fn processor_time() -> anyhow::Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("cannot tell the processor time")?;
    let parts = [usage.user_time(), usage.system_time()];
    let of = |part: TimeVal| Duration::from_micros(part.num_microseconds().unsigned_abs());
    Ok(parts.map(of).iter().sum())
}

/// All that another run needs to make the same report, and its outcome.
///
/// The same program makes the same report for the same options, on any machine.
#[derive(Debug, Serialize)]
pub(super) struct Manifest {
    version: &'static str,
    /// BLAKE3 digest of the program's file. It tells apart programs of one version.
    program: String,
    /// The commit that was checked out when the program was built, if it is a release build from a
    /// checkout. Changes that were not committed show in the digest only.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<&'static str>,
    arguments: Vec<String>,
    /// All settings with their values, those too that no argument names; some are there twice.
    settings: Vec<(String, String)>,
    /// Seeds of each run are 1 to this number.
    seeds: u32,
    system: &'static str,
    processor: &'static str,
    processors: usize,
    begun_unix_s: u64,
    seconds: f64,
    /// Processor time of all threads.
    processor_seconds: f64,
    rows: usize,
    ok: usize,
    misses: usize,
    undecided: usize,
    not_judged: usize,
}

impl Manifest {
    /// Describes a report that was just made, in this time and processor time.
    ///
    /// # Errors
    ///
    /// If the program's own file cannot be read.
    pub(super) fn new(
        report: &Report,
        common: &Common,
        begun: SystemTime,
        (took, processor): (Duration, Duration),
    ) -> anyhow::Result<Manifest> {
        Ok(Manifest {
            version: env!("CARGO_PKG_VERSION"),
            program: program()?,
            commit: option_env!("UMBEL_COMMIT"),
            arguments: std::env::args_os()
                .skip(1)
                .map(|argument| argument.to_string_lossy().into_owned())
                .collect(),
            settings: report.settings.clone(),
            seeds: common.seeds,
            system: std::env::consts::OS,
            processor: std::env::consts::ARCH,
            processors: all_cores(),
            begun_unix_s: begun
                .duration_since(SystemTime::UNIX_EPOCH)
                .map_or(0, |since| since.as_secs()),
            seconds: took.as_secs_f64(),
            processor_seconds: processor.as_secs_f64(),
            rows: report.rows.len(),
            ok: report.count(Verdict::Ok),
            misses: report.count(Verdict::Miss),
            undecided: report.count(Verdict::Undecided),
            not_judged: report.count(Verdict::Remark),
        })
    }

    /// Writes it to the report's directory.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let path = dir.join(FILE_NAME);
        let text = serde_json::to_string_pretty(self)?;
        std::fs::write(&path, text + "\n")
            .with_context(|| format!("cannot write {}", path.display()))
    }
}
