//! `umbel router`.

use std::net::{IpAddr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

use clap::Subcommand;
use serde_json::json;
use umbel_engine::units::counted;
use umbel_router::control::{ControlConfig, NamedNeighbour, PimRole, TreeStatus};
use umbel_router::daemon::{Config, FastPathMode, LMS_PORT, LmsConfig, LmsStatus, Status};

use super::duration::parse_duration;
use super::output::{Output, plain};
use super::signals;
use crate::router::{RouterOptions, route, status};

/// Options of `umbel router`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  umbel router                                  route multicast between all interfaces
  umbel router --config router.toml             with options from a file: interface = [\"eth0\"]
  umbel router --neighbour 10.1.0.2             believe this router alone on its link
  umbel router status                           interfaces, neighbours, channels, repliers
  umbel router --http 127.0.0.1:7780            metrics for Prometheus at /metrics
  umbel router --table 100                      beside another router; `ip mrule` says what is whose
It asks for members by IGMPv3 and MLDv2, builds source-specific trees by PIM (pimd and FRR are
understood), and lets receivers repair losses from the nearest helper (LMS). Unicast routes are
those of the system. It needs the capabilities CAP_NET_RAW and CAP_NET_ADMIN; it runs until Ctrl-C.")]
pub(super) struct RouterArgs {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    route: RouteArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show a router on this machine: interfaces, neighbours, channels, repliers, what is discarded
    Status(StatusArgs),
}

/// Options of the router itself.
#[derive(Debug, clap::Args)]
struct RouteArgs {
    /// Interface that takes part, by name; may be repeated [default: all that do multicast]
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// PIM neighbour, by address, with %NAME of the interface if it is link-local; may be repeated.
    /// On its link no other is believed [default: any, on links through which unicast routes lead]
    #[arg(long, value_name = "ADDRESS[%NAME]", value_parser = parse_neighbour)]
    neighbour: Vec<NamedNeighbour>,
    /// Interface on which PIM is not spoken, by name; may be repeated [default: those through which
    /// no unicast route leads beyond the link]
    #[arg(long, value_name = "NAME")]
    passive: Vec<String>,
    /// Multicast routing table of the kernel [default: the main one]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=0x3FFF_FFFF))]
    table: Option<u32>,
    /// Serve /metrics and /status.json here
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
    /// Name by which they are asked for, besides this machine's addresses and its own name
    #[arg(long = "host-name", value_name = "NAME", requires = "http")]
    host_names: Vec<String>,
    /// Time between queries for members
    #[arg(long, value_name = "DURATION", default_value = "125s", value_parser = parse_interval)]
    query_interval: Duration,
    /// Time between PIM Hellos. Joins are sent half as often, and all hold 3.5 times as long
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_interval)]
    hello_interval: Duration,
    /// Ask the other hosts of a link before a channel is cut there
    #[arg(long)]
    no_fast_leave: bool,
    /// Take no part in LMS; its datagrams pass
    #[arg(long)]
    no_lms: bool,
    /// Have a program in the kernel steer requests of LMS
    #[arg(long, value_enum, value_name = "WHEN", default_value = "auto")]
    fast_path: FastPath,
    /// UDP port of LMS, the same on all routers
    #[arg(long, value_name = "PORT", default_value_t = LMS_PORT,
        value_parser = clap::value_parser!(u16).range(1..))]
    lms_port: u16,
    /// Address of this router in LMS; once for each family [default: the first one]
    #[arg(long, value_name = "ADDRESS")]
    lms_address: Vec<IpAddr>,
    /// Let a source that is attached here repair for each branch itself, rather than a receiver of
    /// another branch
    #[arg(long)]
    source_replier: bool,
}

/// Whether requests are steered in the kernel.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum FastPath {
    /// In the kernel where it permits that
    Auto,
    /// Never
    Off,
    /// Always: without, the router does not start
    Required,
}

/// Options of `umbel router status`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel router status
  umbel router status --json | jq .status.lms
Routers answer the user who runs them, and root.")]
struct StatusArgs {
    /// Multicast routing table of the router [default: the only one]
    #[arg(long, value_name = "NUMBER")]
    table: Option<u32>,
}

/// Parses a duration from 100 ms to an hour.
fn parse_interval(text: &str) -> Result<Duration, String> {
    let duration = parse_duration(text)?;
    if (Duration::from_millis(100)..=Duration::from_hours(1)).contains(&duration) {
        Ok(duration)
    } else {
        Err(format!("`{text}` is not between 100ms and 1h"))
    }
}

/// Parses `ADDRESS` or `ADDRESS%INTERFACE`.
fn parse_neighbour(text: &str) -> Result<NamedNeighbour, String> {
    let (address, interface) = match text.split_once('%') {
        Some((address, interface)) => (address, Some(interface.to_owned())),
        None => (text, None),
    };
    let address: IpAddr = address.parse().map_err(|_| format!("`{address}` is no address"))?;
    let is_link_local = matches!(address, IpAddr::V6(address) if address.is_unicast_link_local());
    if is_link_local && interface.as_ref().is_none_or(String::is_empty) {
        return Err(format!("say on which interface it is, such as {address}%eth0"));
    }
    Ok(NamedNeighbour { address, interface })
}

/// Runs the command.
///
/// # Errors
///
/// If the router does not start, or none answers.
pub(super) fn run(args: RouterArgs, output: &Output) -> anyhow::Result<ExitCode> {
    match args.command {
        Some(Command::Status(args)) => {
            let status = status(args.table)?;
            output.json(&json!({ "event": "status", "status": status }));
            for line in lines(&status) {
                output.result(plain(&line));
            }
        }
        None => run_router(args.route, output)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn run_router(args: RouteArgs, output: &Output) -> anyhow::Result<()> {
    let signals = signals::watch()?;
    let (http, host_names) = (args.http, args.host_names.clone());
    let options = RouterOptions { http, host_names, config: config(args) };
    route(options, |begun, stop| {
        output.json(&json!({ "event": "routing", "router": begun }));
        let interfaces = match begun.interfaces.as_slice() {
            [] => "no interface yet".to_owned(),
            names => names.join(", "),
        };
        output.note(format!("routing multicast between {}", plain(&interfaces)));
        if let Some(http) = begun.http {
            output.note(format!("metrics at http://{http}/metrics"));
        }
        for trouble in &begun.troubles {
            output.note(plain(trouble));
        }
        Ok(signals.then(stop)?)
    })?;
    output.json(&json!({ "event": "stopped", "ok": true }));
    Ok(())
}

fn config(args: RouteArgs) -> Config {
    let mut control = ControlConfig::default();
    let membership = &mut control.membership;
    membership.query_interval = args.query_interval;
    // Hosts must have answered before they are asked again.
    membership.query_response = membership.query_response.min(args.query_interval / 2);
    membership.startup_response = membership.startup_response.min(membership.query_response);
    membership.last_member_interval =
        membership.last_member_interval.min(membership.query_response);
    membership.fast_leave = !args.no_fast_leave;
    let pim = &mut control.pim;
    pim.neighbours = args.neighbour;
    pim.passive = args.passive;
    // Holdtimes are in whole seconds.
    let hold =
        |interval: Duration| Duration::from_secs((interval.as_secs_f64() * 3.5).ceil() as u64);
    pim.hello_interval = args.hello_interval;
    pim.hello_holdtime = hold(args.hello_interval);
    pim.join_interval = args.hello_interval * 2;
    pim.join_holdtime = hold(pim.join_interval);
    pim.triggered_hello_delay = pim.triggered_hello_delay.min(args.hello_interval / 6);
    let lms = (!args.no_lms).then(|| LmsConfig {
        port: args.lms_port,
        addresses: args.lms_address,
        source_as_replier: args.source_replier,
        fast_path: match args.fast_path {
            FastPath::Auto => FastPathMode::Auto,
            FastPath::Off => FastPathMode::Off,
            FastPath::Required => FastPathMode::Required,
        },
        ..LmsConfig::default()
    });
    Config { interfaces: args.interface, table: args.table, control, lms }
}

fn lines(status: &Status) -> Vec<String> {
    let number = status.table.map(|table| format!(", table {table}")).unwrap_or_default();
    let (wanted, unwanted): (Vec<&TreeStatus>, Vec<&TreeStatus>) =
        status.control.trees.iter().partition(|tree| !tree.outputs.is_empty());
    let mut lines = vec![format!(
        "for {:.0} s{number}: {}, {}; {} that nobody here wants",
        status.seconds,
        counted(status.control.interfaces.len(), "interface"),
        counted(wanted.len(), "channel"),
        unwanted.len()
    )];
    lines.extend(status.troubles.iter().map(|trouble| format!("trouble: {trouble}")));
    let titles = ["interface", "address", "querier", "designated", "neighbours", "members"];
    let mut rows = vec![titles.map(str::to_owned)];
    for interface in &status.control.interfaces {
        for link in &interface.links {
            let querier = if link.querier.is_me {
                "this router".to_owned()
            } else {
                link.querier.address.to_string()
            };
            let neighbours = match &link.pim {
                PimRole::Passive => "passive".to_owned(),
                _ => list(link.neighbours.iter().map(|n| n.address.to_string())),
            };
            let members = link.members.len().to_string();
            rows.push([
                interface.name.clone(),
                link.address.to_string(),
                querier,
                link.designated_router.to_string(),
                neighbours,
                members,
            ]);
            if let Some(address) = link.refused {
                let why = match link.pim {
                    PimRole::Passive => "there are only hosts, as far as unicast routes tell",
                    _ => "others are named there",
                };
                lines.push(format!(
                    "trouble: {address} says on {} that it is a router, but {why}: if it is one, \
                     --neighbour {address}",
                    interface.name
                ));
            }
            if let Some((address, version)) = &link.querier.older {
                lines.push(format!(
                    "trouble: {address} asks on {} by {version}, so that hosts there cannot join \
                     sources: change that router",
                    interface.name
                ));
            }
        }
    }
    lines.extend(wanted.iter().filter_map(|tree| {
        let problem = tree.problem.as_ref()?;
        Some(format!("trouble: {} to {} cannot come: {problem}", tree.source, tree.group))
    }));
    lines.extend(table(&rows));
    if !wanted.is_empty() {
        let titles = ["source", "group", "in", "out", "packets", "replier"];
        let mut rows = vec![titles.map(str::to_owned)];
        rows.extend(wanted.into_iter().map(|tree| tree_cells(status, tree)));
        lines.extend(table(&rows));
    }
    for lms in &status.lms {
        let Some(address) = lms.address else { continue };
        lines.push(format!(
            "LMS at {address}: {} turned, {} up, {} down; {}; {} failed",
            counted(lms.turned, "request"),
            lms.sent_up,
            lms.sent_down,
            counted(lms.dmcasts, "DMCAST"),
            counted(lms.repliers_failed, "replier")
        ));
        let fast = &lms.fast_path;
        let counts = &fast.counts;
        lines.push(if fast.state == "on" {
            format!(
                "fast path on {}: {} of these requests, {} of these DMCASTs",
                counted(fast.interfaces, "interface"),
                counts.requests(),
                counts.dmcasts
            )
        } else {
            format!("fast path {}", fast.state)
        });
    }
    let control = status.control.drops.iter().map(|(reason, count)| (reason.as_str(), *count));
    let drops: Vec<String> = control
        .chain(status.lms.iter().flat_map(LmsStatus::discarded))
        .filter(|(_, count)| *count > 0)
        .map(|(reason, count)| format!("{reason} {count}"))
        .collect();
    if !drops.is_empty() {
        lines.push(format!("discarded: {}", drops.join(", ")));
    }
    lines
}

fn tree_cells(status: &Status, tree: &TreeStatus) -> [String; 6] {
    let name = |index: u32| {
        let mut interfaces = status.control.interfaces.iter();
        let found = interfaces.find(|interface| interface.interface == index);
        found.map_or_else(|| format!("#{index}"), |interface| interface.name.clone())
    };
    let is_it = |source: IpAddr, group: IpAddr| source == tree.source && group == tree.group;
    let forwarded = status.forwarded.iter().find(|entry| is_it(entry.source, entry.group));
    let repliers = status.lms.iter().flat_map(|lms| &lms.repliers);
    let repliers = repliers.filter(|replier| is_it(replier.source, replier.group));
    let repliers = repliers.map(|r| format!("{} by {}, cost {}", r.neighbour, r.interface, r.cost));
    let outputs = tree.outputs.iter().filter(|output| output.is_forwarding);
    [
        tree.source.to_string(),
        tree.group.to_string(),
        tree.input.map_or_else(|| "no route".to_owned(), name),
        list(outputs.map(|output| name(output.interface))),
        forwarded.map_or(0, |entry| entry.packets).to_string(),
        list(repliers),
    ]
}

fn list(items: impl Iterator<Item = String>) -> String {
    let items: Vec<String> = items.collect();
    if items.is_empty() { "-".to_owned() } else { items.join(",") }
}

/// Returns the lines of a table whose columns are as wide as what is in them.
fn table(rows: &[[String; 6]]) -> Vec<String> {
    let width = |column: usize| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..6).map(width).collect();
    let line = |row: &[String; 6]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}
