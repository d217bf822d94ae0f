//! `umbel sim`.

mod results;
mod run;
mod study;
mod topology;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Subcommand;
use serde_json::json;
use umbel_engine::units::counted;
use umbel_sim::scenario::Study;

use umbel_cli::output::Output;

/// Options of `umbel sim`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel sim run examples/sim/late-joiner.toml              simulate; print what it came to
  umbel sim run examples/sim/base-case.toml --seeds 8      eight runs, on all processors
  umbel sim check examples/sim/*.toml                      find mistakes
  umbel sim topology tree depth=3 fanout=2 > tree.toml     make a network, for the lab as well")]
pub(super) struct SimArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Simulate a scenario and print its results
    Run(run::RunArgs),
    /// Find mistakes in scenario files
    Check {
        /// Scenarios, in TOML
        #[arg(required = true)]
        scenarios: Vec<PathBuf>,
    },
    /// Print a network of a known shape, or that of a scenario, as a topology file
    Topology(topology::TopologyArgs),
}

/// Runs the command.
///
/// # Errors
///
/// One line that says what is wrong with the scenario or the network.
pub(super) fn run(args: SimArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Run(args) => run::run(&args, output),
        Action::Check { scenarios } => check(&scenarios, output),
        Action::Topology(args) => topology::run(&args, output),
    }
}

/// Prints a summary of each file, or the mistake in it.
fn check(scenarios: &[PathBuf], output: &Output) -> anyhow::Result<ExitCode> {
    let mut wrong = 0;
    for path in scenarios {
        let file = path.display().to_string();
        let read = Study::from_file(path).and_then(|study| {
            let scenario = study.scenario(0)?;
            scenario.network()?;
            Ok((study.points(), scenario))
        });
        match read {
            Ok((points, scenario)) => {
                let (nodes, links) = (scenario.topology.nodes.len(), scenario.topology.links.len());
                let extent = scenario.protocol.extent();
                let mut event = json!({
                    "event": "scenario", "file": file, "ok": true, "nodes": nodes, "links": links,
                });
                let (nodes, links) = (counted(nodes, "node"), counted(links, "link"));
                let mut line = format!("{file}: {nodes}, {links}");
                for (what, count) in extent {
                    event[what] = count.into();
                    let one = what.strip_suffix('s').unwrap_or(what);
                    let _ = write!(line, ", {}", counted(count, one));
                }
                if points > 1 {
                    event["points"] = points.into();
                    let _ = write!(line, ", {}", counted(points, "point"));
                }
                output.json(&event);
                output.result(line);
            }
            Err(mistake) => {
                wrong += 1;
                let message = mistake.to_string();
                output.json(
                    &json!({ "event": "scenario", "file": file, "ok": false, "message": message }),
                );
                output.result(message);
            }
        }
    }
    match wrong {
        0 => Ok(ExitCode::SUCCESS),
        1 => anyhow::bail!("a scenario has a mistake"),
        wrong => anyhow::bail!("{wrong} scenarios have mistakes"),
    }
}
