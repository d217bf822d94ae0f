//! `umbel repro smo`.

mod lab;

use std::process::ExitCode;
use std::sync::Arc;

use umbel_cli::output::Output;
use umbel_repro::part::Part::Extra;
use umbel_repro::smo::kernel::Laboratory;
use umbel_repro::smo::{self, Other, Part};

use self::lab::Namespaces;
use super::{Common, make};

/// Options of `umbel repro smo`.
#[derive(Debug, clap::Args)]
pub(super) struct SmoArgs {
    #[command(flatten)]
    common: Common,
    /// Only this part: figure 5 (throughput) or 7 (lost frames), acks (ACKs against receivers),
    /// loss (400 of 1,000 receivers lose 2 %), relay (two levels) or beyond (bursts, competing TCP
    /// connections, late receivers, one that stalls, crowds of up to 100,000), or, which only run
    /// if they are named, lab (real servers and up to 2,000 sockets of this machine's kernel, in
    /// network namespaces; minutes for each of the seeds) and sensitivity (which numbers hinge on
    /// chosen values); may be given several times
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    figure: Vec<Part>,
    /// With `--figure lab`: leave out sessions with more receivers
    #[arg(long, value_name = "NUMBER", default_value_t = 2_000,
        value_parser = clap::value_parser!(u32).range(5..=2_000))]
    sockets: u32,
}

pub(super) fn run(args: &SmoArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let has_lab = args.figure.contains(&Extra(Other::Lab));
    let laboratory: Option<Arc<dyn Laboratory>> = if has_lab {
        Some(Arc::new(Namespaces::new(output, args.sockets, !common.redraw)?))
    } else {
        None
    };
    let options = smo::Options {
        seeds: common.seeds,
        parts: args.figure.iter().copied().collect(),
        laboratory,
        ..Default::default()
    };
    make(("smo", ""), common, output, |pool, progress| {
        smo::run(&smo::Options { pool, ..options.clone() }, progress)
    })
}
