//! `umbel repro rlm`.

use std::process::ExitCode;

use umbel_cli::output::Output;
use umbel_repro::rlm::{self, Part};

use super::{Common, make};

/// Options of `umbel repro rlm`.
#[derive(Debug, clap::Args)]
pub(super) struct RlmArgs {
    #[command(flatten)]
    common: Common,
    /// Only this part: a figure from 8 to 13, red (random early detection instead of drop-tail),
    /// beyond (slow leaves, bursts, losses by chance, 1,000 receivers, and the controller `delay`
    /// beside that of the paper) or, which only run if they are named, crowd (10,000 receivers:
    /// half an hour of processor time for each controller) and sensitivity (which numbers hinge on
    /// chosen or fitted values); may be given several times
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    figure: Vec<Part>,
}

pub(super) fn run(args: &RlmArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let default = rlm::Options::default();
    let options = rlm::Options {
        seeds: common.seeds,
        parts: args.figure.iter().copied().collect(),
        ..default
    };
    make(("rlm", ""), common, output, |pool, progress| {
        rlm::run(&rlm::Options { pool, ..options.clone() }, progress)
    })
}
