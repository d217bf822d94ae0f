//! `umbel lab`.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::Subcommand;
use umbel_cli::output::Output;
use umbel_cli::programs::Umbel;
use umbel_lab::cli::{self, Status};

/// Options of `umbel lab`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel lab up examples/lab/star-with-loss.toml
  umbel lab exec server -- umbel serve ./repo
  umbel lab up --route examples/lab/seven-routers.toml   with `umbel router` on each router
  umbel lab set switch r1 loss=20% delay=10ms
  umbel lab down")]
pub(super) struct LabArgs {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Create the hosts, routers and links of a topology file
    Up {
        /// The topology, in TOML
        file: PathBuf,
        /// Run `umbel router` on every router
        #[arg(long)]
        route: bool,
    },
    /// Run a command in a host or router
    Exec {
        /// Name of the host or router
        host: String,
        /// The command and its arguments
        #[arg(last = true, required = true)]
        command: Vec<OsString>,
    },
    /// Show what is up, and the counts of frames on impaired links
    Status,
    /// Change a link: `loss=5%`, `delay=20ms`, `rate=10M`
    Set {
        /// The node at one end
        from: String,
        /// The node at the other end
        to: String,
        /// Settings as in the topology file
        #[arg(required = true)]
        settings: Vec<String>,
        /// Only frames from the first node to the second
        #[arg(long)]
        one_way: bool,
    },
    /// Cut a link
    Cut {
        /// The node at one end
        a: String,
        /// The node at the other end
        b: String,
    },
    /// Mend a link that was cut
    Mend {
        /// The node at one end
        a: String,
        /// The node at the other end
        b: String,
    },
    /// Have routers forward packets from a host to a group
    Route {
        /// The sending host
        source: String,
        /// The multicast group
        group: IpAddr,
        /// Hosts that receive them [default: all]
        receivers: Vec<String>,
    },
    /// Take everything down
    Down,
    /// Own a lab until it is taken down; `up` runs this
    #[command(hide = true)]
    Supervise {
        /// Run `umbel router` on every router
        #[arg(long)]
        route: bool,
        /// The topology, in TOML
        file: PathBuf,
    },
}

/// Runs the command.
///
/// # Errors
///
/// One line that says why the lab refuses or fails.
pub(super) fn run(args: LabArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match args.action {
        Action::Up { file, route } => {
            if route {
                // The supervisor would say it to its log.
                Umbel::Product.find()?;
            }
            let mut supervisor = Command::new(std::env::current_exe()?);
            supervisor.args(["lab", "supervise"]).args(route.then_some("--route"));
            show(&cli::up(&file, supervisor)?, output);
            output.note("`umbel lab exec HOST -- COMMAND` runs in it, `umbel lab down` ends it");
        }
        Action::Exec { host, command } => return Ok(ExitCode::from(cli::exec(&host, &command)?)),
        Action::Status => show(&cli::status()?, output),
        Action::Set { from, to, settings, one_way } => {
            cli::set_link(&from, &to, &settings, !one_way)?;
        }
        Action::Cut { a, b } => cli::set_link_up(&a, &b, false)?,
        Action::Mend { a, b } => cli::set_link_up(&a, &b, true)?,
        Action::Route { source, group, receivers } => {
            cli::route_multicast(&source, group, &receivers)?;
        }
        Action::Down => cli::down()?,
        Action::Supervise { file, route } => {
            let mut router = Vec::new();
            if route {
                router.push(Umbel::Product.find()?.into_os_string());
                router.extend(["router", "--json"].map(OsString::from));
            }
            cli::run_supervisor(&file, &router)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn show(status: &Status, output: &Output) {
    if output.is_json() {
        return output.json(status);
    }
    for node in &status.nodes {
        let interfaces: Vec<String> = node
            .interfaces
            .iter()
            .map(|i| format!("{} {} {} to {}", i.name, i.addr4, i.addr6, i.peer))
            .collect();
        output.result(format!("{:<8} {:<12} {}", node.kind, node.name, interfaces.join("; ")));
    }
    for link in &status.links {
        let (there, back) = match &link.impairments {
            Some([there, back]) => (there.as_str(), back.as_str()),
            None => ("plain", "plain"),
        };
        output.result(format!("link     {} > {}: {there}; back: {back}", link.a, link.b));
    }
}
