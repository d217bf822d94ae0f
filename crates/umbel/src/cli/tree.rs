//! `umbel tree`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use umbel_wire::feed::Feed;
use umbel_wire::tmtp::{Role, TreeEntry};

use super::duration::parse_duration;
use super::output::{Meter, Output, plain};
use super::signals;
use crate::directory::{FeedSelector, Station};
use crate::feed::{TreeSnapshot, tree};

/// The tree is drawn anew this often.
const EVERY: Duration = Duration::from_secs(1);

/// Options of `umbel tree`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel tree nightly            managers, members, hops, loss and load, until Ctrl-C
  umbel tree nightly --once     one look, when the managers have reported")]
pub(super) struct TreeArgs {
    /// The feed, as `umbel groups` lists it: NAME, or NAME@ADDRESS of its source
    #[arg(value_name = "NAME")]
    feed: FeedSelector,
    /// Look once, and end
    #[arg(long)]
    once: bool,
    /// With --once: how long managers have to report on themselves
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = parse_duration)]
    settle: Duration,
    /// How long to wait for the feed to be on the air
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_duration)]
    wait: Duration,
    /// Interface, by name or address [default: that of the default route]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
}

/// Runs the command.
///
/// # Errors
///
/// If there is no such feed, or its source does not answer.
pub(super) fn run(args: &TreeArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let interface = crate::feed::interface(args.interface.as_deref())?;
    let mut station = Station::open(&interface)?;
    let waker = station.waker();
    let watch = signals.clone();
    signals.then(move || waker.wake())?;
    let Some(feed) = station.find(&args.feed, args.wait, |line| output.note(line))? else {
        return Ok(ExitCode::from(1));
    };
    drop(station);
    if args.once {
        // The first look makes the managers report.
        let _ = tree(&feed, &interface)?;
        if watch.wait(args.settle) {
            return Ok(ExitCode::from(1));
        }
        show(&feed, &tree(&feed, &interface)?, output);
        return Ok(ExitCode::SUCCESS);
    }
    let meter = Meter::spinner(output);
    let mut looked = false;
    loop {
        let snapshot = match tree(&feed, &interface) {
            Ok(snapshot) => snapshot,
            // It was there: now it is over.
            Err(error) if looked => {
                meter.clear();
                output.note(format!("{error:#}"));
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error),
        };
        looked = true;
        if output.draws() {
            meter.message(drawing(&feed, &snapshot));
        } else {
            show(&feed, &snapshot, output);
        }
        if watch.wait(EVERY) {
            break;
        }
    }
    meter.clear();
    Ok(ExitCode::SUCCESS)
}

fn show(feed: &Feed, snapshot: &TreeSnapshot, output: &Output) {
    let nodes: Vec<_> =
        snapshot.ordered().into_iter().map(|(depth, node)| described(depth, node)).collect();
    let totals = snapshot.totals;
    output.json(&json!({
        "event": "tree",
        "name": feed.name.as_str(),
        "receivers": totals.members,
        "done": totals.done,
        "failed": totals.failed,
        "nodes": nodes,
    }));
    output.result(drawing(feed, snapshot).trim_end());
}

fn described(depth: usize, node: &TreeEntry) -> serde_json::Value {
    json!({
        "node": format!("{:016x}", node.node.0),
        "parent": node.parent.map(|parent| format!("{:016x}", parent.0)),
        "name": node.name,
        "address": node.address.to_string(),
        "role": role(node.role),
        "depth": depth,
        "hops": node.hops,
        "radius": node.radius,
        "members": node.members,
        "managers": node.children,
        "loss": f64::from(node.loss_ppm) / 1e6,
        "load_per_s": f64::from(node.load_per_ks) / 1e3,
    })
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Member => "member",
        Role::Manager => "manager",
        Role::Source => "source",
    }
}

/// The tree in lines.
fn drawing(feed: &Feed, snapshot: &TreeSnapshot) -> String {
    let totals = snapshot.totals;
    let mut text = format!(
        "`{}`: {} receivers, {} have it, {} gave up\n",
        feed.name, totals.members, totals.done, totals.failed
    );
    for (depth, node) in snapshot.ordered() {
        let indent =
            if depth == 0 { String::new() } else { format!("{}└ ", "  ".repeat(depth - 1)) };
        let name =
            if node.name.is_empty() { String::new() } else { format!(" {}", plain(&node.name)) };
        let _ = write!(text, "{indent}{}{name} {}", role(node.role), node.address);
        if node.role != Role::Source {
            let _ = write!(text, " · {} hops", node.hops);
        }
        if node.role != Role::Member {
            let _ = write!(
                text,
                " · radius {} · {} members, {} managers",
                node.radius, node.members, node.children
            );
        }
        let _ = writeln!(
            text,
            " · loss {:.2} % · load {:.1}/s",
            f64::from(node.loss_ppm) / 1e4,
            f64::from(node.load_per_ks) / 1e3
        );
    }
    text
}
