//! What the command lines of Umbel's programs share, so that both have the same vocabulary: options
//! of every command, output for people and for machines, exit codes, options from a file.
//!
//! - [`run`] parses a command line and runs a command, for a program that is a [`Program`].
//! - [`output`] has results, notes and errors.
//! - [`screen`] keeps lines that change at the bottom of the terminal; [`meter`] shows progress there.
//! - [`config_file`] reads options from a TOML file.
//! - [`help`] arranges the help of all commands; [`completions`] and [`man`] write what shells and
//!   packages want from the same definitions.
//! - [`signals`] hears Ctrl-C, and [`enter`] the Enter key.
//! - [`programs`] finds the other program of Umbel, beside this one or on the path.
//! - [`process`] runs commands that report to the program that started them.
//! - [`testing`] is what the tests of both programs share.

pub mod completions;
pub mod config_file;
mod descriptors;
pub mod enter;
pub mod help;
pub mod man;
pub mod meter;
pub mod output;
mod panics;
pub mod process;
pub mod programs;
pub mod screen;
pub mod signals;
pub mod testing;

use std::ffi::OsString;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::SystemTime;

use clap::Parser;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::prelude::*;

use self::help::{Arrangement, EVERY_COMMAND};
use self::output::Output;
pub use self::panics::end_on_panic;

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// One JSON object per line on standard output, and nothing else there
    #[arg(long, global = true, help_heading = EVERY_COMMAND)]
    pub json: bool,
    /// More about what happens (-v, -vv, -vvv); UMBEL_LOG sets it in detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = EVERY_COMMAND)]
    pub verbose: u8,
    /// No progress and no notes
    #[arg(short, long, global = true, help_heading = EVERY_COMMAND)]
    pub quiet: bool,
    /// How often `--json` tells of progress: off, or at most once in a time such as 1s; off also
    /// draws none [default: when something changed, off with --quiet]
    #[arg(long, global = true, value_name = "off|DURATION", help_heading = EVERY_COMMAND)]
    pub progress: Option<output::Progress>,
    /// Options from a TOML file: `rate = "100M"`, or in a table named after the command
    #[arg(long, global = true, value_name = "FILE", help_heading = EVERY_COMMAND)]
    pub config: Option<std::path::PathBuf>,
}

/// Command line of a program.
pub trait Program: Parser {
    /// Commands of another program whose tables a configuration file may also have. If there are
    /// any, options that stand in no table may be that program's, too.
    const FOREIGN: &'static [&'static str] = &[];
    /// Whether JSON has the time.
    const TIMED: bool = true;
    /// Arrangement of the program's help.
    const ARRANGEMENT: Arrangement;

    /// Returns the definition of the command line, with its help arranged.
    fn arranged() -> clap::Command {
        Self::ARRANGEMENT.arrange(Self::command())
    }

    /// Returns the same, of which nothing is left out where there is little room.
    fn at_length() -> clap::Command {
        Arrangement { shortlists: &[], ..Self::ARRANGEMENT }.arrange(Self::command())
    }

    /// Returns the options of every command.
    fn global(&self) -> &Global;

    /// Runs the command.
    ///
    /// # Errors
    ///
    /// One line that says what failed, and what to do.
    fn execute(self, output: &Output) -> anyhow::Result<ExitCode>;
}

/// Runs a command line. Returns the exit code: 0 done, 1 failed, 2 bad usage, 128 and the number of
/// the signal that ended it before it was done.
pub fn run<P: Program>(args: Vec<OsString>) -> ExitCode {
    let args = match config_file::expand(args, &P::arranged(), P::FOREIGN) {
        Ok(args) => args,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "umbel: {error:#}");
            return ExitCode::from(2);
        }
    };
    let matches = P::arranged().try_get_matches_from(args);
    let program = match matches.and_then(|matches| P::from_arg_matches(&matches)) {
        Ok(program) => program,
        Err(error) => {
            let printed = error.print();
            // Help and version are not errors, and whoever has read enough of them is no failure.
            let failed = printed.is_err_and(|error| error.kind() != ErrorKind::BrokenPipe);
            return ExitCode::from(if error.use_stderr() { 2 } else { failed.into() });
        }
    };
    let Global { json, quiet, verbose, progress, .. } = *program.global();
    forbid_core_dumps();
    fail_beyond_limits();
    start_logging(verbose);
    let output = Output::new(json, quiet);
    let output = if P::TIMED { output } else { output.without_time() };
    let output = match progress {
        Some(progress) => output.with_progress(progress),
        None => output,
    };
    let result = program.execute(&output);
    result.and_then(|code| output.finish().map(|()| code)).unwrap_or_else(|error| {
        output.error(&error);
        ExitCode::from(signals::exit_code().unwrap_or(1))
    })
}

/// Keeps keys and tokens out of files that the system would write if the process crashed. Handlers
/// to which it pipes the memory decide for themselves.
fn forbid_core_dumps() {
    let limits = getrlimit(Resource::RLIMIT_CORE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_CORE, 0, hard));
    if let Err(error) = limits {
        tracing::debug!("core dumps are not forbidden: {error}");
    }
}

/// Makes a write beyond a limit of file sizes fail as any other, instead of ending the program without
/// a word.
fn fail_beyond_limits() {
    let ignored = Arc::new(AtomicBool::new(false));
    if let Err(error) = signal_hook::flag::register(Signal::SIGXFSZ as i32, ignored) {
        tracing::debug!("limits of file sizes end the program: {error}");
    }
}

/// The time of log lines, as that of JSON objects: in UTC, to the millisecond.
struct Clock;

impl FormatTime for Clock {
    fn format_time(&self, writer: &mut Writer<'_>) -> std::fmt::Result {
        write!(writer, "{}", humantime::format_rfc3339_millis(SystemTime::now()))
    }
}

/// Crates whose events are logged.
const LOGGED: [&str; 6] =
    ["umbel", "umbel_cli", "umbel_laboratory", "umbel_net", "umbel_router", "umbel_store"];

fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let in_detail = std::env::var("UMBEL_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let filter =
        in_detail.unwrap_or_else(|| Targets::new().with_targets(LOGGED.map(|name| (name, level))));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(|| screen::Above)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        // The names of modules say something to those alone who ask for more than two levels.
        .with_target(verbose > 2)
        .with_timer(Clock);
    // A second start, as in tests, changes nothing.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}
