//! `umbel repro tmtp`.

use std::process::ExitCode;

use umbel_cli::output::Output;
use umbel_repro::tmtp::{self, Part};

use super::{Common, make};

/// Options of `umbel repro tmtp`.
#[derive(Debug, clap::Args)]
pub(super) struct TmtpArgs {
    #[command(flatten)]
    common: Common,
    /// Only this part: figure 6 or 7, retransmissions (of 30 packets, with several losses) or
    /// beyond (groups of up to 1,000, and SRM and LMS beside TMTP) or, which only run if they are
    /// named, crowd (groups of 10,000: a quarter of an hour of processor time with 5 seeds) and
    /// sensitivity (which numbers hinge on chosen or fitted values); may be given several times
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    figure: Vec<Part>,
}

pub(super) fn run(args: &TmtpArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let default = tmtp::Options::default();
    let options = tmtp::Options {
        seeds: common.seeds,
        parts: args.figure.iter().copied().collect(),
        ..default
    };
    make(("tmtp", ""), common, output, |pool, progress| {
        tmtp::run(&tmtp::Options { pool, ..options.clone() }, progress)
    })
}
