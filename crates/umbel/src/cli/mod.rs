//! The command line.

pub mod config_file;
pub mod output;

mod credentials;
mod demo;
mod doctor;
mod duration;
mod gateway;
mod get;
mod groups;
mod hls;
mod key;
mod lab;
mod left_out;
mod ls;
mod panics;
mod rate;
mod recv;
mod repro;
mod router;
mod rtp;
mod send;
mod serve;
mod signals;
mod sim;
mod smo;
mod stream;
mod teller;
mod token;
mod tree;
mod watch;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

use self::output::Output;
pub use self::panics::end_on_panic;

/// Reliable multicast: one source, many receivers, every byte verified.
#[derive(Debug, Parser)]
#[command(name = "umbel", version, arg_required_else_help = true, args_override_self = true)]
#[command(after_help = "Examples:
  umbel demo                                        see the main job on this machine
  umbel serve ./repo                                offer a directory; prints the line for clients
  umbel get 'umbel://192.0.2.2:7700/?pin=…' -o out  get all of it
  umbel send ./dir --name nightly                   push to whoever runs `umbel recv nightly`
  umbel stream talk.mp4 --name lecture              live, in layers
  umbel watch lecture -o - | ffplay -               on any number of other machines
  umbel doctor 'umbel://192.0.2.2:7700/?pin=…'      why does multicast not arrive?")]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

/// Options of every command.
#[derive(Clone, Debug, clap::Args)]
pub struct Global {
    /// One JSON object per line on standard output, and nothing else there
    #[arg(long, global = true)]
    pub json: bool,
    /// More about what happens (-v, -vv, -vvv); UMBEL_LOG sets it in detail
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// No progress and no notes
    #[arg(short, long, global = true)]
    pub quiet: bool,
    /// Options from a TOML file: `rate = "100M"`, or in a table named after the command
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<std::path::PathBuf>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory or a WARC file to any number of clients
    Serve(serve::ServeArgs),
    /// Get items from a server
    Get(get::GetArgs),
    /// List what a server offers
    Ls(ls::LsArgs),
    /// Push files, a directory or standard input to all receivers
    Send(send::SendArgs),
    /// Receive a feed
    Recv(recv::RecvArgs),
    /// Show the key by which senders admit this receiver
    Key(key::KeyArgs),
    /// Stream live video in layers, for receivers behind fast and slow links alike
    Stream(stream::StreamArgs),
    /// Watch a stream, as good as the path allows
    Watch(watch::WatchArgs),
    /// Serve a stream of HLS to browsers and players on this machine
    Gateway(gateway::GatewayArgs),
    /// List the sessions on the air
    Groups(groups::GroupsArgs),
    /// Show a feed's control tree
    Tree(tree::TreeArgs),
    /// Show the main job on this machine: a server, eight clients, lossy links
    Demo(demo::DemoArgs),
    /// Find out why multicast does not arrive
    Doctor(doctor::DoctorArgs),
    /// Emulate hosts, routers and impaired links on this machine
    Lab(lab::LabArgs),
    /// Send one TCP stream to many ordinary TCP clients by multicast
    Smo(smo::SmoArgs),
    /// Route multicast: members by IGMP and MLD, trees by PIM, repairs by LMS
    Router(router::RouterArgs),
    /// Simulate servers, clients and the network between them
    Sim(sim::SimArgs),
    /// Repeat the experiments of a paper and compare the numbers
    Repro(repro::ReproArgs),
}

/// Keeps keys and tokens out of files that the system would write if the process crashed. Handlers
/// to which it pipes the memory decide for themselves.
fn forbid_core_dumps() {
    let limits = getrlimit(Resource::RLIMIT_CORE)
        .and_then(|(_, hard)| setrlimit(Resource::RLIMIT_CORE, 0, hard));
    if let Err(error) = limits {
        tracing::debug!("core dumps are not forbidden: {error}");
    }
}

/// Runs the command line. Returns the exit code: 0 done, 1 failed, 2 bad usage.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let args: Vec<OsString> = args.into_iter().collect();
    let args = match config_file::expand(args, &Cli::command()) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("umbel: {error:#}");
            return ExitCode::from(2);
        }
    };
    let matches = match Cli::command().try_get_matches_from(args) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version are not errors.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    forbid_core_dumps();
    start_logging(cli.global.verbose);
    let output = Output::new(cli.global.json, cli.global.quiet);
    let result = match cli.command {
        Command::Serve(args) => serve::run(args, &output),
        Command::Get(args) => get::run(args, &output),
        Command::Ls(args) => ls::run(args, &output),
        Command::Send(args) => send::run(args, &output),
        Command::Recv(args) => recv::run(args, &output),
        Command::Key(args) => key::run(args, &output),
        Command::Stream(args) => stream::run(&args, &output),
        Command::Watch(args) => watch::run(args, &output),
        Command::Gateway(args) => gateway::run(args, &output),
        Command::Groups(args) => groups::run(&args, &output),
        Command::Tree(args) => tree::run(&args, &output),
        Command::Demo(args) => demo::run(args, &output),
        Command::Doctor(args) => doctor::run(&args, &output),
        Command::Lab(args) => lab::run(args, &output),
        Command::Smo(args) => smo::run(args, &output),
        Command::Router(args) => router::run(args, &output),
        Command::Sim(args) => sim::run(args, &output),
        Command::Repro(args) => repro::run(args, &output),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            output.error(&error);
            ExitCode::from(1)
        }
    }
}

fn start_logging(verbose: u8) {
    let level = match verbose {
        0 => LevelFilter::WARN,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let in_detail = std::env::var("UMBEL_LOG").ok().and_then(|text| text.parse::<Targets>().ok());
    let crates = ["umbel", "umbel_net", "umbel_router", "umbel_store"];
    let filter =
        in_detail.unwrap_or_else(|| Targets::new().with_targets(crates.map(|c| (c, level))));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr()))
        .without_time();
    // A second start, as in tests, changes nothing.
    let _ = tracing_subscriber::registry().with(lines.with_filter(filter)).try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Names lines of the texts after the help of a command and its subcommands that a terminal of
    /// 100 columns would break.
    fn long_lines(command: &clap::Command, found: &mut Vec<String>) {
        let text = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        let long = text.lines().filter(|line| line.chars().count() > 100);
        found.extend(long.map(|line| format!("{}: {line}", command.get_name())));
        command.get_subcommands().for_each(|command| long_lines(command, found));
    }

    #[test]
    fn texts_after_the_help_fit_into_100_columns() {
        let mut found = Vec::new();
        long_lines(&Cli::command(), &mut found);
        assert!(found.is_empty(), "{found:#?}");
    }
}
