//! `umbel sim topology`.

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::bail;
use serde_json::json;
use umbel_sim::generate::{Generator, known};
use umbel_sim::scenario::Scenario;
use umbel_topology::Topology;

use umbel_cli::output::Output;

/// Most characters of the names of parameters in a line of the help.
const WIDTH: usize = 78;

/// Options of `umbel sim topology`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = after_help(), after_help = after_help())]
pub(super) struct TopologyArgs {
    /// A generator, or a scenario file
    #[arg(value_name = "GENERATOR|FILE")]
    what: String,
    /// Parameters, as in the section `topology` of a scenario
    #[arg(value_name = "KEY=VALUE")]
    settings: Vec<String>,
}

fn after_help() -> String {
    let mut text = "Examples:
  umbel sim topology star receivers=8 access.loss=5% > star.toml
  umbel sim topology transit-stub domains=1 transit=4 stubs=3 stub_nodes=8 receivers=20
  umbel sim topology gnp routers=20 p=0.2 link.delay=5ms seed=3
  umbel sim topology examples/sim/late-joiner.toml      the network of a scenario
  umbel lab up star.toml                                the same network, of namespaces

Generators, and what each takes:
"
    .to_owned();
    for (name, about, keys) in known() {
        let _ = writeln!(text, "  {name:<13} {about}");
        let mut line = String::new();
        for key in keys {
            if line.len() + key.len() > WIDTH {
                let _ = writeln!(text, "{:16}{},", "", std::mem::take(&mut line));
            }
            line += if line.is_empty() { "" } else { ", " };
            line += key;
        }
        let _ = writeln!(text, "{:16}{line}", "");
    }
    text += "\nlink, source_link and access take rate, delay, jitter, loss, loss_burst, loss_good, \
             loss_bad\nand queue, as in `access.delay=2ms`; source_link and access also up and \
             down, for one direction:\n`access.down.loss=1%`.";
    text
}

/// Runs the command.
///
/// # Errors
///
/// If a parameter is wrong, or the file.
pub(super) fn run(args: &TopologyArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let topology = make(args)?;
    let text = topology.to_toml();
    output.json(&json!({
        "event": "topology",
        "nodes": topology.nodes.len(),
        "links": topology.links.len(),
        "toml": text,
    }));
    for note in &topology.notes {
        output.note(note);
    }
    output.result(text.trim_end());
    Ok(ExitCode::SUCCESS)
}

fn make(args: &TopologyArgs) -> anyhow::Result<Topology> {
    let path = Path::new(&args.what);
    let is_file = path.extension().is_some_and(|extension| extension == "toml");
    if !is_file {
        return Ok(Generator::from_settings(&args.what, &args.settings)?);
    }
    match args.settings.first() {
        Some(setting) => bail!("`{setting}`: the network of a file takes no settings"),
        None => Ok(Scenario::from_file(path)?.topology),
    }
}
