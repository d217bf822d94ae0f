//! `umbel tree`.

use std::fmt::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use serde_json::json;
use umbel_engine::units::counted;
use umbel_wire::feed::Feed;
use umbel_wire::tmtp::{Role, TreeEntry};

use super::duration::parse_duration;
use super::meter::Meter;
use super::output::{Output, plain};
use super::signals;
use crate::directory::{SessionSelector, Station};
use crate::feed::{TreeSnapshot, tree};

/// Interval at which the tree is drawn.
const EVERY: Duration = Duration::from_secs(1);

/// Options of `umbel tree`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel tree nightly            managers, members, hops, loss and load, until Ctrl-C
  umbel tree nightly --once     one look, when the managers have reported")]
pub(super) struct TreeArgs {
    /// The feed, as `umbel groups` lists it: NAME, or NAME@ADDRESS of its source
    #[arg(value_name = "NAME")]
    feed: SessionSelector,
    /// Look once, and end
    #[arg(long)]
    once: bool,
    /// With --once: how long managers have to report on themselves
    #[arg(long, default_value = "3s", value_name = "DURATION", value_parser = parse_duration)]
    settle: Duration,
    /// Time to wait for the feed to be on the air
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_duration)]
    wait: Duration,
    /// Interface, by name or address [default: announcements are heard on all]
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
    let mut station = Station::open(args.interface.as_deref())?;
    let waker = station.waker();
    let watch = signals.clone();
    signals.then(move || waker.wake())?;
    let found = station.find::<Feed>(
        &args.feed,
        args.wait,
        (|line: &str| output.note(line), |line: &str| output.note(line)),
    )?;
    let Some((feed, _)) = found else {
        return Ok(ExitCode::from(1));
    };
    let interface = station.interface_of(&feed.clone().into())?;
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
    let meter = Meter::new(output);
    let mut looked = false;
    loop {
        let snapshot = match tree(&feed, &interface) {
            Ok(snapshot) => snapshot,
            // It was there before, so now it is over.
            Err(error) if looked => {
                meter.clear();
                output.note(format!("{error:#}"));
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error),
        };
        looked = true;
        if output.draws() {
            meter.message(&drawing(&feed, &snapshot));
        } else {
            show(&feed, &snapshot, output);
        }
        if watch.wait(EVERY) || !output.is_read() {
            break;
        }
    }
    meter.clear();
    Ok(ExitCode::SUCCESS)
}

fn show(feed: &Feed, snapshot: &TreeSnapshot, output: &Output) {
    let unnamed = snapshot.unnamed();
    let nodes: Vec<_> = snapshot
        .ordered()
        .into_iter()
        .map(|(depth, node)| described(depth, node, unnamed.get(&node.node).copied()))
        .collect();
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

fn described(depth: usize, node: &TreeEntry, unnamed: Option<u32>) -> serde_json::Value {
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
        "members_not_listed": unnamed,
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

/// Draws the tree in lines.
fn drawing(feed: &Feed, snapshot: &TreeSnapshot) -> String {
    let totals = snapshot.totals;
    let mut text = format!(
        "`{}`: {}, {} done, {} gave up\n",
        plain(feed.name.as_str()),
        counted(totals.members, "receiver"),
        totals.done,
        totals.failed
    );
    let rows = rows(snapshot);
    let branches = branches(&rows);
    for ((_, row), branch) in rows.iter().zip(branches) {
        let _ = writeln!(text, "{branch}{row}");
    }
    text
}

/// Returns the texts and depths of the nodes, and of the members that are not named.
fn rows(snapshot: &TreeSnapshot) -> Vec<(usize, String)> {
    let unnamed = snapshot.unnamed();
    let mut rows = Vec::new();
    // Unnamed members, which are added after everything below their manager.
    let mut open: Vec<(usize, u32)> = Vec::new();
    let close = |rows: &mut Vec<(usize, String)>, open: &mut Vec<(usize, u32)>, depth: usize| {
        while let Some((at, members)) = open.pop_if(|(at, _)| *at >= depth) {
            if members > 0 {
                rows.push((at + 1, format!("and {}", counted(members, "more member"))));
            }
        }
    };
    for (depth, node) in snapshot.ordered() {
        close(&mut rows, &mut open, depth);
        rows.push((depth, row(node)));
        if node.role != Role::Member {
            open.push((depth, unnamed.get(&node.node).copied().unwrap_or(0)));
        }
    }
    close(&mut rows, &mut open, 0);
    rows
}

fn row(node: &TreeEntry) -> String {
    let space = if node.name.is_empty() { "" } else { " " };
    let mut row = format!("{}{space}{} {}", role(node.role), plain(&node.name), node.address);
    if node.role != Role::Source {
        let _ = write!(row, " · {}", counted(node.hops, "hop"));
    }
    if node.role != Role::Member {
        let (members, managers) = (node.members, node.children);
        let below = [counted(members, "member"), counted(managers, "manager")].join(", ");
        let _ = write!(row, " · radius {} · {below}", node.radius);
    }
    if node.role != Role::Source {
        let _ = write!(row, " · loss {:.2} %", f64::from(node.loss_ppm) / 1e4);
    }
    if node.role != Role::Member {
        let _ = write!(row, " · load {:.1}/s", f64::from(node.load_per_ks) / 1e3);
    }
    row
}

/// Returns the lines that lead to each row.
fn branches(rows: &[(usize, String)]) -> Vec<String> {
    // Whether a later row of each depth has the same parent, computed from the end.
    let mut follows: Vec<bool> = Vec::new();
    let mut branches: Vec<String> = Vec::with_capacity(rows.len());
    for &(depth, _) in rows.iter().rev() {
        follows.resize(depth + 1, false);
        let mut branch = String::new();
        for further in follows.iter().take(depth).skip(1) {
            branch += if *further { "│  " } else { "   " };
        }
        if depth > 0 {
            branch += if follows[depth] { "├─ " } else { "└─ " };
        }
        branches.push(branch);
        follows[depth] = true;
    }
    branches.reverse();
    branches
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use umbel_wire::feed::FeedContent;
    use umbel_wire::tmtp::{NodeId, Totals};
    use umbel_wire::{Channel, Tsi};

    use super::*;

    fn feed() -> Feed {
        let channel = |group: [u8; 4]| Channel { source: None, group: group.into(), port: 7702 };
        Feed {
            name: "nightly".parse().unwrap(),
            tsi: Tsi(1),
            source: ([10, 0, 0, 1], 4000).into(),
            node: umbel_wire::tmtp::NodeId(1),
            data: channel([239, 1, 1, 1]),
            domain: channel([239, 1, 1, 2]),
            scope: 32,
            symbol_len: 1376,
            block_symbols: 64,
            fec: true,
            recovery: umbel_wire::feed::Recovery::Tree,
            kbit_per_s: 1000,
            content: FeedContent::Pipe,
            token: false,
            sealed: None,
            last_word: Some(umbel_wire::Digest([1; 32])),
            version: 1,
        }
    }

    fn node(number: u64, parent: Option<u64>, role: Role, name: &str) -> TreeEntry {
        TreeEntry {
            node: NodeId(number),
            parent: parent.map(NodeId),
            address: SocketAddr::from(([10, 0, 0, number as u8], 7703)),
            name: name.to_owned(),
            role,
            depth: 0,
            hops: 2,
            radius: 3,
            members: 0,
            children: 0,
            loss_ppm: 1500,
            load_per_ks: 2500,
        }
    }

    fn snapshot() -> TreeSnapshot {
        use Role::{Manager, Member, Source};
        let source = TreeEntry { members: 1, children: 2, ..node(1, None, Source, "h1") };
        let first = TreeEntry { members: 19, children: 1, ..node(2, Some(1), Manager, "a1") };
        let nodes = vec![
            source,
            first,
            TreeEntry { hops: 1, ..node(3, Some(2), Member, "a3") },
            node(4, Some(2), Member, "a2\u{7}"),
            TreeEntry { members: 1, ..node(5, Some(2), Manager, "b1") },
            node(6, Some(5), Member, ""),
            node(7, Some(1), Manager, "c1"),
            node(8, Some(1), Member, "h2"),
        ];
        TreeSnapshot { totals: Totals { members: 24, done: 3, ..Totals::default() }, nodes }
    }

    #[test]
    fn members_stand_below_their_managers_and_the_rest_is_counted() {
        let lines = "\
`nightly`: 24 receivers, 3 done, 0 gave up
source h1 10.0.0.1:7703 · radius 3 · 1 member, 2 managers · load 2.5/s
├─ member h2 10.0.0.8:7703 · 2 hops · loss 0.15 %
├─ manager a1 10.0.0.2:7703 · 2 hops · radius 3 · 19 members, 1 manager · loss 0.15 % · load 2.5/s
│  ├─ member a2\u{fffd} 10.0.0.4:7703 · 2 hops · loss 0.15 %
│  ├─ member a3 10.0.0.3:7703 · 1 hop · loss 0.15 %
│  ├─ manager b1 10.0.0.5:7703 · 2 hops · radius 3 · 1 member, 0 managers · loss 0.15 % · load 2.5/s
│  │  └─ member 10.0.0.6:7703 · 2 hops · loss 0.15 %
│  └─ and 17 more members
└─ manager c1 10.0.0.7:7703 · 2 hops · radius 3 · 0 members, 0 managers · loss 0.15 % · load 2.5/s
";
        let control = drawing(&feed(), &snapshot());
        assert_eq!(control, lines, "{control}");
    }

    #[test]
    fn programs_read_how_many_members_are_not_listed() {
        let unnamed = snapshot().unnamed();
        let nodes = snapshot().nodes;
        let manager = described(1, &nodes[1], unnamed.get(&NodeId(2)).copied());
        assert_eq!((&manager["members"], &manager["members_not_listed"]), (&19.into(), &17.into()));
    }
}
