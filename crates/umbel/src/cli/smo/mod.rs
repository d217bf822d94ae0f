//! `umbel smo`.

mod join;
mod relay;
mod serve;
mod status;

use std::process::ExitCode;

use clap::Subcommand;

use super::output::Output;

/// Options of `umbel smo`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
#[command(after_help = "Examples:
  umbel smo serve --listen :8080 --channel 232.7.7.7:8080 --http ./dir    on the server
  umbel smo join 232.7.7.7:8080@192.0.2.2                                 on each client's host
  curl -O http://192.0.2.2:8080/big.iso                                   any program, unchanged
  umbel smo status                                                        on the server
Clients are ordinary: their kernel's TCP, any program. What many ask for at the same time is sent
once. A host without `join` is served by unicast, at the same address. Linux; serve and join need
the capabilities CAP_NET_RAW and CAP_NET_ADMIN, join with eBPF CAP_BPF, too.")]
pub(super) struct SmoArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve a directory by HTTP, a file, or standard input to ordinary TCP clients
    Serve(serve::ServeArgs),
    /// Let the multicast of a server reach this host's ordinary connections to it
    Join(join::JoinArgs),
    /// Receive one channel, and serve it once more on another
    Relay(relay::RelayArgs),
    /// Show how a server on this machine goes: receivers, the slowest, what is saved
    Status(status::StatusArgs),
}

/// Runs the command.
///
/// # Errors
///
/// As the subcommands.
pub(super) fn run(args: SmoArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match args.command {
        Command::Serve(args) => serve::run(args, output),
        Command::Join(args) => join::run(args, output),
        Command::Relay(args) => relay::run(&args, output),
        Command::Status(args) => status::run(&args, output),
    }
}
