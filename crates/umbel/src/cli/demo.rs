use std::process::ExitCode;
use super::output::Output;
/// Demo.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {}
pub(super) fn run(_args: DemoArgs, _output: &Output) -> anyhow::Result<ExitCode> { anyhow::bail!("not yet") }
