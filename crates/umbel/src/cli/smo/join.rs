//! `umbel smo join`.

use std::ffi::OsString;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use umbel_engine::units::counted;
use umbel_net::delivery::Way;

use super::super::duration::parse_duration;
use super::super::output::Output;
use super::super::signals;
use super::super::teller::Teller;
use crate::smo::address::Target;
use crate::smo::join::{
    HelperOptions, JoinObserver, JoinSnapshot, JoinSummary, Joined, Meanwhile, join,
};

/// Address of a server, and the way by which its segments reach local connections.
#[derive(Debug, clap::Args)]
pub(super) struct HelperArgs {
    /// The channel and its server, as `umbel smo serve` prints them; the server's port is that of
    /// the channel unless it is given
    #[arg(value_name = "GROUP:PORT@SERVER[:PORT]")]
    target: Target,
    /// Way by which segments reach the local connections: ebpf (in the kernel), agent (this
    /// process), or auto: ebpf where the system allows it
    #[arg(long, value_name = "WAY", default_value = "auto")]
    delivery: Way,
}

impl HelperArgs {
    /// Returns the options of a helper on an interface.
    pub(super) fn options(&self, interface: Option<String>) -> HelperOptions {
        HelperOptions { target: self.target, interface, way: self.delivery }
    }
}

/// Options of `umbel smo join`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel smo join 232.7.7.7:8080@192.0.2.2          until Ctrl-C; any program on this host profits
  umbel smo join 232.7.7.7:8080@192.0.2.2 -- curl -O http://192.0.2.2:8080/big.iso
  umbel smo join [ff3e::7]:8080@2001:db8::2 --for 1h --delivery agent
Programs need not know of it, and go on by unicast when it ends. ebpf needs CAP_BPF, CAP_NET_ADMIN
and Linux 6.6, agent CAP_NET_RAW. With a command, the exit code is that of the command.")]
pub(super) struct JoinArgs {
    #[command(flatten)]
    helper: HelperArgs,
    /// Interface, by name or address [default: that of the route to the server]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// End after this time [default: go on until Ctrl-C]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    time: Option<Duration>,
    /// A command to run meanwhile
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// Runs the command.
///
/// # Errors
///
/// If the channel cannot be joined, or a right is missing.
pub(super) fn run(args: JoinArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let options = args.helper.options(args.interface);
    let meanwhile = Meanwhile { time: args.time, command: args.command };
    let teller = Arc::new(Teller::new(output));
    let observer: Arc<dyn JoinObserver> = teller.clone();
    let summary = join(&options, &meanwhile, &observer, |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.meter.clear();
    Ok(finish(&summary?, output))
}

fn finish(summary: &JoinSummary, output: &Output) -> ExitCode {
    let code = summary.exit_code.unwrap_or_default();
    output.json(&json!({ "event": "done", "summary": summary, "ok": code == 0 }));
    let JoinSnapshot { seconds, segments, delivered, .. } = summary.snapshot;
    let segments = counted(segments, "segment");
    output.note(format!("{segments} in {seconds:.1} s, {delivered} handed to local connections"));
    ExitCode::from(u8::try_from(code).unwrap_or(1))
}

impl JoinObserver for Teller<JoinSnapshot> {
    fn joined(&self, joined: &Joined) {
        let Joined { target, interface, way, instead_of_ebpf } = joined;
        self.output.json(&json!({
            "event": "joined",
            "channel": target.group.to_string(),
            "server": target.server.to_string(),
            "interface": interface,
            "delivery": way.to_string(),
            "instead_of_ebpf": instead_of_ebpf,
        }));
        let why = instead_of_ebpf.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        self.output.note(format!(
            "multicast of {} on {} reaches connections of this host, on {interface} by {way}{why}",
            target.server, target.group
        ));
    }

    fn progress(&self, snapshot: &JoinSnapshot) {
        if self.output.is_json() {
            return self.tell(snapshot, |_| Duration::ZERO);
        }
        self.meter.message(&format!(
            "{} · {} · {} handed on",
            counted(snapshot.connections, "connection"),
            counted(snapshot.segments, "segment"),
            snapshot.delivered
        ));
    }

    fn note(&self, line: &str) {
        self.tell_note(line);
    }
}
