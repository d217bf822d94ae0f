//! `umbel smo relay`.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use super::super::duration::parse_duration;
use super::super::output::Output;
use super::super::signals;
use super::super::teller::Teller;
use super::join::HelperArgs;
use super::serve::{EngineArgs, HttpArgs, ServerTeller, StartArgs, finish};
use crate::smo::address::{Group, Listen};
use crate::smo::relay::{Relayed, relay};
use crate::smo::serve::ServeObserver;

/// Options of `umbel smo relay`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel smo relay 232.7.7.7:9000@192.0.2.2 --listen :9000 --channel 232.7.7.8:9000
                                                   a stream, once more to many
  umbel smo relay 232.7.7.7:8080@192.0.2.2 --listen :80 --channel 232.7.7.8:80 --http
                                                   a web site: curl http://RELAY/big.iso
A relay is an ordinary client of its server, and a server for its own clients, which connect to it
as to any other. Without --http it connects to its server when it begins. It holds no more than
--buffer of a stream: if its clients are slow, the server waits, or with --max-delay they are cut
off. If the server cuts the relay off, it goes on where the stream is then, and its clients are cut
off, too.")]
pub(super) struct RelayArgs {
    #[command(flatten)]
    helper: HelperArgs,
    /// Address and port where clients connect, or :PORT for the interface's address
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    listen: Listen,
    /// Group and port of the relay's own multicast
    #[arg(long, value_name = "GROUP:PORT")]
    channel: Group,
    /// Relay what the server offers by HTTP, instead of one stream
    #[arg(long)]
    http: bool,
    /// Longest wait of bytes of a live stream: a receiver that holds them up for longer is cut off,
    /// and without receivers they are dropped [default: the server waits]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration, conflicts_with = "http")]
    max_delay: Option<Duration>,
    #[command(flatten)]
    http_args: HttpArgs,
    #[command(flatten)]
    start: StartArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Runs the command.
///
/// # Errors
///
/// If nothing can be relayed.
pub(super) fn run(args: &RelayArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let mut options = args.engine.options(args.listen, args.channel);
    options.config.removal.wait = args.max_delay;
    let helper = args.helper.options(args.engine.interface.clone());
    let relayed = if args.http {
        let HttpArgs { smallest, .. } = args.http_args;
        Relayed::Http { start: args.start.web(args.http_args), smallest }
    } else {
        Relayed::Stream(args.start.start())
    };
    let teller = Arc::new(ServerTeller(Teller::new(output)));
    let observer: Arc<dyn ServeObserver> = teller.clone();
    let summary = relay(relayed, &helper, &options, &observer, |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.0.meter.clear();
    finish(&summary?, output);
    Ok(ExitCode::SUCCESS)
}
