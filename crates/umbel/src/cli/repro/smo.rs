//! `umbel repro smo`.

use std::process::ExitCode;

use umbel_repro::smo::{self, Part};

use super::{Common, make};
use crate::cli::output::Output;

/// Options of `umbel repro smo`.
#[derive(Debug, clap::Args)]
pub(super) struct SmoArgs {
    #[command(flatten)]
    common: Common,
    /// Only this part: figure 5 (throughput) or 7 (lost frames), acks (ACKs against receivers),
    /// loss (400 of 1,000 receivers lose 2 %), relay (two levels) or beyond (bursts, competing TCP
    /// connections, late receivers, one that stalls, crowds of up to 100,000); may be given several
    /// times
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    figure: Vec<Part>,
}

pub(super) fn run(args: &SmoArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let default = smo::Options::default();
    let options = smo::Options {
        seeds: common.seeds,
        parts: args.figure.iter().copied().collect(),
        ..default
    };
    make(("smo", ""), common, output, |pool, progress| {
        smo::run(&smo::Options { pool, ..options.clone() }, progress)
    })
}
