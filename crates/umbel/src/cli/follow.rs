//! What `recv` and `get` share for `--follow` and `--exec`.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;
use umbel_engine::units::counted;

use super::duration::parse_duration;
use super::output::{Output, plain};
use super::signals::Watch;
use crate::endpoint::MOST_KEPT;
use crate::follow::{Came, Ended, FollowObserver, Followed, Hook, Missed};

/// Options for what follows a completion.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AfterArgs {
    /// Number of releases that --atomic keeps, the present one included, up to 20. Older ones that
    /// umbel made go
    #[arg(long, value_name = "N", default_value_t = 1, requires = "atomic")]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=i64::from(MOST_KEPT)))]
    pub(super) keep: u8,
    /// Attempts of --follow after which a version is given up until there is a newer one [default: it
    /// is tried as long as it is there]
    #[arg(long, value_name = "N", requires = "follow")]
    pub(super) attempts: Option<NonZeroU32>,
    /// Command for `sh -c` when all is there, with UMBEL_NAME, UMBEL_PATH, UMBEL_SENDER and
    /// UMBEL_DIGEST in its environment. Its output goes to standard error. Without --follow the exit
    /// code is 1 if it fails
    #[arg(long, value_name = "COMMAND", conflicts_with_all = ["dry_run", "verify"])]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    exec: Option<String>,
    /// Time after which the command of --exec is ended, with all that it has started
    #[arg(long, value_name = "DURATION", default_value = "5min", requires = "exec")]
    #[arg(value_parser = parse_duration)]
    exec_timeout: Duration,
}

impl AfterArgs {
    /// Returns the command of --exec.
    pub(super) fn hook(&self) -> Option<Hook> {
        let timeout = self.exec_timeout;
        self.exec.clone().map(|command| Hook { command, timeout })
    }

    /// Runs the command of --exec after a completion, if there is one, and tells how it ended.
    /// Returns what went wrong.
    pub(super) fn run(&self, came: &Came, signals: &Watch, output: &Output) -> Option<String> {
        let ended = self.hook()?.run(came, &|| signals.wait(Duration::ZERO));
        tell_hook(came, &ended, output);
        ended.failure
    }
}

/// Returns a path that means the same to a command that changes its directory.
pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}

fn tell_hook(came: &Came, ended: &Ended, output: &Output) {
    let Ended { exit_code, seconds, failure } = ended;
    output.json(&json!({
        "event": "hook", "name": came.name, "digest": came.digest, "exit_code": exit_code,
        "seconds": seconds, "failure": failure,
    }));
}

/// Tells what a resident receiver does, whose receptions end with an `S`.
pub(super) struct Reporter<S> {
    output: Output,
    /// Says what came.
    line: fn(&S) -> String,
}

impl<S> Reporter<S> {
    pub(super) fn new(output: &Output, line: fn(&S) -> String) -> Reporter<S> {
        Reporter { output: output.clone(), line }
    }
}

impl<S: Serialize> FollowObserver<S> for Reporter<S> {
    fn taken(&self, came: &Came, summary: &S) {
        let Came { name, path, sender, digest } = came;
        let path = path.display().to_string();
        self.output.json(&json!({
            "event": "version-taken", "name": name, "path": path, "sender": sender,
            "digest": digest, "summary": summary,
        }));
        self.output.note(format!("{name}: taken to {path}: {}", (self.line)(summary)));
    }

    fn missed(&self, missed: &Missed) {
        let Missed { name, sender, reason, attempts, again_in } = missed;
        let again_in_s = again_in.map(|pause| pause.as_secs_f64());
        self.output.json(&json!({
            "event": "version-failed", "name": name, "sender": sender, "reason": reason,
            "attempts": attempts, "again_in_s": again_in_s,
        }));
        let next = match again_in {
            Some(pause) => format!("trying again in {} s", pause.as_secs()),
            None => format!("given up after {}", counted(*attempts, "attempt")),
        };
        self.output.note(format!("{name}: {}; {next}", plain(&reason.replace('\n', " "))));
    }

    fn hook_ended(&self, came: &Came, ended: &Ended) {
        tell_hook(came, ended, &self.output);
        if let Some(failure) = &ended.failure {
            self.output.note(format!("{}: {failure}", came.name));
        }
    }

    fn note(&self, line: &str) {
        self.output.json(&json!({ "event": "note", "message": line }));
        self.output.note(plain(line));
    }
}

/// Says what a resident receiver has done when it ends.
pub(super) fn finish(followed: Followed, output: &Output) -> ExitCode {
    let Followed { taken, failed } = followed;
    output.json(&json!({ "event": "stopped", "ok": true, "taken": taken, "failed": failed }));
    let (taken, failed) = (counted(taken, "version"), counted(failed, "attempt"));
    output.note(format!("ended; taken: {taken}; failed: {failed}"));
    ExitCode::SUCCESS
}
