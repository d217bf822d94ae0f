//! `umbel key`.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use serde_json::json;

use super::output::Output;
use crate::feed::admission::load_or_create;
use crate::state;

/// Options of `umbel key`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel key                              the line for a sender's list: NAME and public key
  umbel key >> receivers                 where the sender runs
                                         `umbel send ./dir --name nightly --admit receivers`
The key is made the first time, and kept; only its public half is shown.")]
pub(super) struct KeyArgs {
    #[command(flatten)]
    key: KeyFile,
    /// Name of this receiver, as in `umbel recv` [default: the host's name]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
}

/// Option for the file of a receiver's key.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct KeyFile {
    /// File of this receiver's secret key [default: receiver.key in the state directory]
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
}

impl KeyFile {
    /// Returns the file; `None` without an option and a home directory.
    pub(super) fn path(self) -> Option<PathBuf> {
        self.key.or_else(|| state::default_dir().ok().map(|dir| dir.join(state::RECEIVER_KEY)))
    }
}

/// Runs the command.
///
/// # Errors
///
/// If there is no key and none can be created.
pub(super) fn run(args: KeyArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let path = args.key.path().context("no home directory for the key: name a file with --key")?;
    let key = load_or_create(&path)?.public();
    let name = args.name.unwrap_or_else(crate::feed::host_name);
    let file = path.display().to_string();
    output.json(&json!({ "event": "key", "name": name, "key": key.to_string(), "file": file }));
    output.result(format!("{name} {key}"));
    Ok(ExitCode::SUCCESS)
}
