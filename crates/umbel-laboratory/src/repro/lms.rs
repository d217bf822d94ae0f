//! `umbel repro lms`.

use std::process::ExitCode;

use umbel_cli::output::Output;
use umbel_repro::lms::scenario::Delays;
use umbel_repro::lms::{self, Part};

use super::{Common, make};

/// Options of `umbel repro lms`.
#[derive(Debug, clap::Args)]
pub(super) struct LmsArgs {
    #[command(flatten)]
    common: Common,
    /// Only this part: a figure from 11 to 16, beyond (results that the paper does not have),
    /// delays (each scheme with both kinds of delays, beside other measurements) or, which only run
    /// if they are named, crowd (SRM with 10,000 receivers: minutes of processor time a seed) and
    /// sensitivity (which numbers hinge on chosen values); may be given several times
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    figure: Vec<Part>,
    /// Delays of links between routers: by their length on a plane, or all the same
    #[arg(long, default_value = "plane", value_parser = delays, value_name = "plane|equal")]
    delays: Delays,
    /// Delay of a host's link, in percent of a mean link between routers [default: 20 with the
    /// delays of a plane, else 100]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u32).range(1..=1000))]
    access: Option<u32>,
}

fn delays(text: &str) -> Result<Delays, String> {
    let found = [Delays::Plane, Delays::Equal].into_iter().find(|delays| delays.name() == text);
    found.ok_or_else(|| format!("`{text}` is neither plane nor equal"))
}

pub(super) fn run(args: &LmsArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let common = &args.common;
    let default = lms::Options::default();
    let options = lms::Options {
        seeds: common.seeds,
        parts: args.figure.iter().copied().collect(),
        delays: args.delays,
        access_percent: args.access.unwrap_or(args.delays.usual_access_percent()),
        ..default
    };
    make(("lms", &settings(&options)), common, output, |pool, progress| {
        lms::run(&lms::Options { pool, ..options.clone() }, progress)
    })
}

/// Returns the options on which outcomes depend.
pub(super) fn settings(options: &lms::Options) -> String {
    format!("--delays {} --access {}", options.delays.name(), options.access_percent)
}
