//! The `umbel-laboratory` command: what researchers need beside the product. `umbel sim`,
//! `umbel repro` and `umbel lab` run it.

mod lab;
mod repro;
mod sim;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use umbel_cli::completions::{self, CompletionsArgs};
use umbel_cli::help::{Arrangement, Group};
use umbel_cli::man::{self, ManArgs};
use umbel_cli::output::Output;
use umbel_cli::programs::PRODUCT;
use umbel_cli::{Global, Program};

/// The laboratory of Umbel: simulate, emulate networks, repeat the experiments of papers.
#[derive(Debug, Parser)]
#[command(name = "umbel-laboratory", bin_name = "umbel", version)]
#[command(arg_required_else_help = true, args_override_self = true)]
#[command(after_help = "Examples:
  umbel sim run examples/sim/late-joiner.toml   a server, three clients and their network
  umbel repro lms --out out/                    the figures of a paper
  umbel lab up examples/lab/star-with-loss.toml hosts and lossy links on this machine")]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Simulate servers, clients and the network between them
    Sim(sim::SimArgs),
    /// Repeat the experiments of a paper and compare the numbers
    Repro(repro::ReproArgs),
    /// Emulate hosts, routers and impaired links on this machine
    Lab(lab::LabArgs),
    /// Print completions for bash, zsh or fish
    Completions(CompletionsArgs),
    /// Write the man pages
    #[command(hide = true)]
    Man(ManArgs),
}

/// How the help is arranged. `-h` has some five options, and those without which nothing goes.
const ARRANGEMENT: Arrangement = Arrangement {
    groups: &[
        Group { title: "Research", commands: &["sim", "repro", "lab"] },
        Group { title: "Shell", commands: &["completions"] },
    ],
    shortlists: &[
        ("sim run", &["seed", "seeds", "out", "html", "trace"]),
        ("repro repository", &["out", "seeds", "figure", "duration", "resume"]),
        ("repro lms", &["out", "seeds", "figure", "resume", "strict"]),
        ("repro tmtp", &["out", "seeds", "figure", "resume", "strict"]),
        ("repro rlm", &["out", "seeds", "figure", "resume", "strict"]),
        ("repro smo", &["out", "seeds", "figure", "resume", "strict"]),
        ("repro all", &["out", "seeds", "threads", "resume", "strict"]),
    ],
};

impl Program for Cli {
    const FOREIGN: &'static [&'static str] = &PRODUCT;
    // The same run says the same.
    const TIMED: bool = false;
    const ARRANGEMENT: Arrangement = ARRANGEMENT;

    fn global(&self) -> &Global {
        &self.global
    }

    fn execute(self, output: &Output) -> anyhow::Result<ExitCode> {
        match self.command {
            Command::Sim(args) => sim::run(args, output),
            Command::Repro(args) => repro::run(args, output),
            Command::Lab(args) => lab::run(args, output),
            Command::Completions(args) => completions::run::<Cli>(&args, output),
            Command::Man(args) => man::run::<Cli>(&args, output),
        }
    }
}

fn main() -> ExitCode {
    umbel_cli::end_on_panic();
    umbel_cli::run::<Cli>(std::env::args_os().collect())
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;
    use umbel_cli::programs::RESEARCH;

    use super::*;

    #[test]
    fn its_commands_are_those_that_the_product_hands_over() {
        let command = Cli::command();
        let both = ["completions", "man"];
        let own = command.get_subcommands().filter(|own| !both.contains(&own.get_name()));
        let own = own.map(|own| {
            (own.get_name(), own.get_about().map(ToString::to_string).unwrap_or_default())
        });
        assert_eq!(own.collect::<Vec<_>>(), RESEARCH.map(|(name, about)| (name, about.to_owned())));
    }

    #[test]
    fn texts_after_the_help_fit_into_100_columns() {
        umbel_cli::testing::assert_texts_fit(&Cli::command());
    }

    #[test]
    fn help_is_arranged_and_fits_the_terminal() {
        umbel_cli::testing::assert_arranged::<Cli>(&[]);
        umbel_cli::testing::assert_fits::<Cli>();
    }

    #[test]
    fn shells_complete_it_and_pages_of_the_manual_describe_it() {
        umbel_cli::testing::assert_completed::<Cli>();
        umbel_cli::testing::assert_paged::<Cli>(&["completions"]);
    }

    #[test]
    fn the_reference_is_that_of_these_commands() {
        let names = RESEARCH.map(|(name, _)| name);
        umbel_cli::testing::reference::assert_current(&Cli::command(), names);
    }
}
