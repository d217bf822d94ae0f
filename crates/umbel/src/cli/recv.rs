//! `umbel recv`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use serde_json::json;
use umbel_engine::lms::config::Cost;
use umbel_engine::tmtp::{Brought, Start};
use umbel_engine::units::{ByteCount, counted, rate_text};
use umbel_net::session::Pin;
use umbel_store::sink::{Change, Links, Purpose};
use umbel_wire::feed::{Feed, FeedContent, Recovery};

use super::device::DeviceArgs;
use super::duration::parse_duration;
use super::follow::{AfterArgs, Reporter, absolute};
use super::key::KeyFile;
use super::output::{Output, plain};
use super::signals;
use super::teller::{
    ChangeArgs, Looked, Since, TELL_EVERY, Teller, dropped_line, rate, removed_line, there,
};
use super::token::TokenFileArgs;
use crate::directory::SessionSelector;
use crate::feed::recv::{RecvObserver, RecvOptions, RecvSnapshot, RecvSummary, Target, recv};
use crate::follow::{FeedFollower, Noting, follow_feeds};

/// What stands for the feeds of all known senders.
const ALL: &str = "*";

/// Options of `umbel recv`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel recv 'umbel-feed://nightly?pin=PIN' -o ./out
                                         files: the line that `umbel send` printed
  umbel recv nightly                     the same, from the sender that had the name first, to
                                         ./nightly
  umbel recv live -o - | tar x           a pipe
  umbel recv room --device /dev/sda      an image to a disk
  umbel recv nightly@192.0.2.2           of this source, where several call theirs alike
  umbel recv nightly --wait 1h           wait for it to be on the air
  umbel recv --follow nightly -o /srv    stay, and take each new version to /srv/nightly
  umbel recv --follow '*' -o /srv --atomic --keep 3 --exec 'logger \"$UMBEL_PATH\"'
                                         of all known senders, a release at a time, with a hook
  umbel key                              the line that a sender needs who admits by keys
A feed is announced under its sender's signature, and is taken from the holder of that key alone.
With a name alone the first sender is believed, and its key remembered; another key under the same
name is refused. Interrupted, it goes on where it was when it is started again. Firewalls must let
multicast to UDP ports 9875, 7702 and 7703 in.")]
pub(super) struct RecvArgs {
    /// The feed: umbel-feed://NAME?pin=PIN as `umbel send` prints it; NAME as `umbel groups` lists
    /// it; or either with @ADDRESS of its source after the name. With --follow several, or `*` for
    /// all feeds of known senders
    #[arg(value_name = "FEED", required = true)]
    feeds: Vec<SessionSelector>,
    /// Directory for the files, or `-` for a pipe to standard output [default: a directory of the
    /// feed's name]. With --follow, the directory in which each feed has one of its name
    #[arg(short, long, value_name = "DIR|-")]
    output: Option<PathBuf>,
    #[command(flatten)]
    device: DeviceArgs,
    /// Stay until SIGTERM or Ctrl-C, and take each new version of the feeds once, to a directory of
    /// the feed's name in that of -o. Files that differ there are replaced. What was taken is
    /// remembered in the state directory. A version that fails is tried again after 5 s, then after
    /// ever longer pauses of up to 10 min, while it is on the air
    #[arg(long, conflicts_with_all = ["dry_run", "verify"])]
    follow: bool,
    /// Make the directory a link to one with exactly the feed's files: it goes from the release before
    /// to the new one in one rename, when everything is there
    #[arg(
        long,
        conflicts_with_all = ["overwrite", "delete", "itemize", "dry_run", "verify"]
    )]
    atomic: bool,
    #[command(flatten)]
    after: AfterArgs,
    /// Replace files that differ from those of the feed; without it they are kept, and the command
    /// exits with 1
    #[arg(long)]
    overwrite: bool,
    /// When all of the feed is there, remove from the directory what it does not have. Hidden files
    /// at the top stay without --hidden
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    changes: ChangeArgs,
    /// Write files and directories, too, whose names begin with `.` in the directory itself
    #[arg(long)]
    hidden: bool,
    /// Symbolic links to make: `inside` (those that stay in the directory, as their texts say),
    /// `all` or `none`
    #[arg(long, value_name = "WHICH", default_value = "inside")]
    links: Links,
    /// First content to receive: everything from the start, or only what is sent from now on
    #[arg(long, value_name = "start|now", default_value = "start", value_parser = parse_start)]
    #[arg(conflicts_with_all = ["follow", "atomic"])]
    from: Start,
    /// Interface, by name or address [default: the one on which the source is heard, of all]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// UDP port of this receiver in the feed's tree, to which others send unicast [default: any]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "PORT")]
    tree_port: u16,
    /// Time to wait for the feed to be on the air
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_duration)]
    wait: Duration,
    /// Silence of the source after which the receiver gives up
    #[arg(long, default_value = "20s", value_name = "DURATION", value_parser = parse_duration)]
    patience: Duration,
    /// Token that the source demands
    #[arg(long)]
    token: Option<String>,
    #[command(flatten)]
    token_file: TokenFileArgs,
    /// Refuse a feed whose losses are recovered in another way: `tree`, `lms`, `srm` or `source`
    /// [default: as its sender chose]
    #[arg(long, value_name = "SCHEME")]
    recovery: Option<Recovery>,
    /// Cost of repairs by this receiver, of which routers with LMS choose the lowest: `auto` is the
    /// round trip to the source in microseconds [default: auto]
    #[arg(long, value_name = "auto|NUMBER", value_parser = parse_cost)]
    cost: Option<Cost>,
    #[command(flatten)]
    key: KeyFile,
    /// Name of this receiver in the sender's report [default: the host's name]
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Do not wait until files are safe on the disk
    #[arg(long)]
    no_sync: bool,
    /// Directory in which the keys of senders are remembered, in `known_feeds`, and what --follow took,
    /// in `taken` [default: the user's state directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

fn parse_cost(text: &str) -> Result<Cost, String> {
    match text {
        "auto" => Ok(Cost::Latency),
        _ => text
            .parse()
            .map(|cost| Cost::Fixed(Some(cost)))
            .map_err(|_| "it is `auto` or a number up to 4294967295".to_owned()),
    }
}

fn parse_start(text: &str) -> Result<Start, String> {
    match text {
        "start" => Ok(Start::Everything),
        "now" => Ok(Start::Now),
        _ => Err("it is `start` or `now`".to_owned()),
    }
}

impl RecvArgs {
    /// Returns where one feed goes.
    fn target(&self, output: &Output) -> anyhow::Result<Target> {
        if let Some(device) = self.device.target()? {
            return Ok(Target::Device(device));
        }
        Ok(match &self.output {
            Some(path) if path == Path::new("-") => {
                if output.is_json() {
                    bail!("--json and `-o -` cannot share standard output: choose one of them");
                }
                if self.atomic || self.after.hook().is_some() {
                    bail!("--atomic and --exec are for directories: name one by -o DIR");
                }
                Target::Pipe(Box::new(std::io::stdout()))
            }
            Some(path) => self.place(path.clone()),
            None if self.atomic => {
                bail!("--atomic makes a link: name it by -o, as in `-o ./current`")
            }
            None => Target::Unsaid,
        })
    }

    fn place(&self, path: PathBuf) -> Target {
        if self.atomic { Target::Release(path, self.after.keep) } else { Target::Directory(path) }
    }

    /// Returns the options for a feed, with the token for it.
    fn options(&self, feed: SessionSelector, target: Target, token: Option<String>) -> RecvOptions {
        RecvOptions {
            start: self.from,
            interface: self.interface.clone(),
            tree_port: self.tree_port,
            wait: self.wait,
            patience: self.patience,
            token,
            key: self.key.clone().path(),
            name: self.name.clone(),
            durable: !self.no_sync,
            overwrite: self.overwrite || self.follow,
            hidden: self.hidden,
            links: self.links,
            delete: self.delete,
            purpose: self.changes.purpose(),
            recovery: self.recovery,
            cost: self.cost,
            state_dir: self.state_dir.clone(),
            ..RecvOptions::new(feed, target)
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// If the feed is not complete at the end.
pub(super) fn run(args: RecvArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let token = args.token_file.token(args.token.clone(), None)?;
    if args.follow {
        return follow(args, token, &signals, output);
    }
    let [feed] = args.feeds.as_slice() else {
        bail!("several feeds at once are for --follow: name one");
    };
    let (changes, after) = (args.changes, args.after.clone());
    let device = args.device.path().cloned();
    let options = args.options(feed.clone(), args.target(output)?, token);
    let teller = Arc::new(Teller::new(output).itemizing(changes.itemizes()));
    let noting = Arc::new(Noting::new(teller.clone(), false));
    let interrupts = signals.clone();
    let summary = recv(options, noting.clone(), |interrupt| {
        interrupts.interrupts(move || interrupt.interrupt());
    });
    teller.meter.clear();
    let summary = summary?;
    let hooked = noting.found().filter(|_| summary.is_whole()).and_then(|found| {
        let path = device.or(args.output).unwrap_or_else(|| PathBuf::from(&found.name));
        after.run(&found.came(absolute(path)), &signals, output)
    });
    finish(&summary, changes, hooked, output)
}

/// Takes each new version of feeds.
fn follow(
    args: RecvArgs,
    token: Option<String>,
    signals: &signals::Watch,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let is_all = |feed: &SessionSelector| {
        feed.name.as_str() == ALL && feed.pin.is_none() && feed.address.is_none()
    };
    let (all, feeds): (Vec<_>, Vec<_>) = args.feeds.iter().cloned().partition(is_all);
    if args.tree_port != 0 && (!all.is_empty() || feeds.len() > 1) {
        bail!("--tree-port is for one feed, and --follow receives several at once");
    }
    if !all.is_empty() && args.output.is_none() {
        bail!("with `*` senders choose the names: name a directory for them by -o DIR");
    }
    if !all.is_empty() && args.delete {
        bail!("--delete is for feeds that you choose: name them instead of `*`, or leave it out");
    }
    let directory = match &args.output {
        Some(path) if path == Path::new("-") => {
            bail!("--follow takes files to a directory: name one by -o DIR")
        }
        Some(path) => path.clone(),
        None => PathBuf::from("."),
    };
    let args = Arc::new(args);
    let (tells, told) = (args.clone(), output.clone());
    let follower = FeedFollower {
        feeds,
        all: !all.is_empty(),
        directory: absolute(directory),
        interface: args.interface.clone(),
        state_dir: args.state_dir.clone(),
        attempts: args.after.attempts,
        hook: args.after.hook(),
        reception: Box::new(move |feed, path| args.options(feed, args.place(path), token.clone())),
        observer_of: Box::new(move |name| {
            let teller = Teller::<RecvSnapshot>::new(&told.of(name));
            let observer: Arc<dyn RecvObserver> =
                Arc::new(teller.itemizing(tells.changes.itemizes()));
            observer
        }),
    };
    let reporter = Arc::new(Reporter::<RecvSummary>::new(output, came));
    let followed = follow_feeds(follower, reporter, |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    })?;
    Ok(super::follow::finish(followed, output))
}

fn finish(
    summary: &RecvSummary,
    changes: ChangeArgs,
    hooked: Option<String>,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let is_whole = summary.failures.is_empty() && summary.failure.is_none() && !summary.interrupted;
    let looks = changes.purpose() == Purpose::Look;
    let differing = summary.differing + if looks { summary.removed } else { 0 };
    let ok = is_whole && hooked.is_none() && !changes.finds_fault(differing);
    output.json(&json!({ "event": "done", "summary": summary, "ok": ok }));
    if looks && is_whole {
        changes.finish_look(Looked { same: summary.already_there, differing }, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    tracing::info!(
        "{}, {} lost, {} ({} from helpers for {}), {} fetched, {}, {}; discarded: {}",
        counted(summary.packets, "packet"),
        summary.lost,
        counted(summary.repairs, "repair"),
        summary.helped,
        counted(summary.requests, "request"),
        summary.fetched,
        counted(summary.nacks, "NACK"),
        counted(summary.parents, "parent"),
        summary.drops
    );
    if summary.packets + summary.fetched + summary.already_there > 0 {
        output.note(came(summary));
    }
    if summary.resumed_bytes > 0 && (summary.items > 0 || summary.interrupted) {
        let resumed = ByteCount(summary.resumed_bytes);
        output.note(format!("{resumed} of them were there from an earlier run"));
    }
    if summary.repairs_sent > 0 {
        output.note(format!("{} sent to others", counted(summary.repairs_sent, "repair")));
    }
    if let Some(line) = removed_line(summary.removed) {
        output.note(line);
    }
    if let Some(line) = dropped_line(summary.dropped_here) {
        output.note(line);
    }
    if summary.interrupted {
        bail!("interrupted; the same command goes on where it was");
    }
    if !is_whole {
        bail!("{}", plain(&summary.why_not_whole()));
    }
    match hooked {
        None => Ok(ExitCode::SUCCESS),
        Some(failure) => bail!("{failure}; everything has come"),
    }
}

/// Returns what came. It is verified as far as it is whole.
fn came(summary: &RecvSummary) -> String {
    let RecvSummary { bytes, seconds, .. } = *summary;
    let loss = summary.lost as f64 / (summary.packets + summary.lost).max(1) as f64;
    let came = format!("{} in {seconds:.1} s ({})", ByteCount(bytes), rate(bytes, seconds));
    let loss = format!("loss {:.2} %", loss * 100.0);
    match summary {
        RecvSummary { pipe: true, failure: None, interrupted: false, .. } => {
            format!("{came}, verified; {loss}")
        }
        RecvSummary { pipe: true, .. } => format!("{came}; {loss}"),
        RecvSummary { items: 0, already_there, .. } => {
            format!("no new files{}; {loss}", there(*already_there))
        }
        RecvSummary { items, already_there, .. } => {
            let (items, there) = (counted(*items, "file"), there(*already_there));
            format!("{items}, {came}, verified{there}; {loss}")
        }
    }
}

/// Logs the progress of a running receiver for -v and -vv.
fn log(now: &RecvSnapshot, since: Since<RecvSnapshot>) {
    let Since { last, second } = since;
    if last.joined && !now.joined {
        tracing::info!("lost the parent; looking for another");
    }
    if now.unicast != last.unicast {
        tracing::info!("the feed comes by {}", if now.unicast { "unicast" } else { "multicast" });
    }
    if now.children != last.children {
        tracing::info!("children: {}", now.children);
    }
    if now.items > 0 && last.items == 0 {
        let files = counted(now.items, "file");
        tracing::info!("the list is there: {files}, {}", ByteCount(now.bytes));
    }
    if let Some((time, past)) = second {
        tracing::debug!(
            "{} of {}, {} of {}, {}; loss {:.2} %",
            now.items_done,
            counted(now.items, "file"),
            ByteCount(now.bytes_done),
            ByteCount(now.bytes),
            rate(now.bytes_done.saturating_sub(past.bytes_done), time.as_secs_f64()),
            now.loss * 100.0
        );
    }
}

impl RecvObserver for Teller<RecvSnapshot> {
    fn found(&self, feed: &Feed, signer: Pin, interface: &str) {
        let (items, bytes) = match feed.content {
            FeedContent::Files { items, bytes, .. } => (Some(items), Some(bytes)),
            FeedContent::Pipe => (None, None),
        };
        self.output.json(&json!({
            "event": "feed",
            "name": feed.name.as_str(),
            "source": feed.source.to_string(),
            "pin": signer.to_string(),
            "data": feed.data.to_string(),
            "domain": feed.domain.to_string(),
            "interface": interface,
            "items": items,
            "bytes": bytes,
            "recovery": feed.recovery.name(),
        }));
        let what = match feed.content {
            FeedContent::Files { items, bytes, .. } => {
                format!("{}, {}", counted(items, "file"), ByteCount(bytes))
            }
            FeedContent::Pipe => "a pipe".to_owned(),
        };
        self.output.note(format!(
            "`{}` of {}: {what}, on {} by {interface}",
            plain(feed.name.as_str()),
            feed.source,
            feed.data
        ));
        tracing::info!(
            "feed {}: domain group {}, {} a symbol, {} a block, at most {}",
            feed.tsi.0,
            feed.domain,
            counted(feed.symbol_len, "byte"),
            counted(feed.block_symbols, "symbol"),
            rate_text(feed.kbit_per_s.saturating_mul(1000))
        );
    }

    fn joined(&self, parent: &str, hops: u8) {
        tracing::info!("parent {parent}, {} away", counted(hops, "hop"));
        self.output.json(&json!({ "event": "joined", "parent": parent, "hops": hops }));
    }

    fn managing(&self, manager: bool) {
        tracing::info!("{} the subnet", if manager { "manages" } else { "does not manage" });
        self.output.json(&json!({ "event": "managing", "manager": manager }));
    }

    fn progress(&self, snapshot: &RecvSnapshot) {
        log(snapshot, self.since(snapshot));
        if self.output.is_json() {
            return self.tell(snapshot, |_| TELL_EVERY);
        }
        let RecvSnapshot { items, items_done, bytes, bytes_done, .. } = *snapshot;
        let place = match (snapshot.joined, snapshot.manager) {
            (true, _) if snapshot.unicast => "by unicast".to_owned(),
            (false, _) => "looking for the tree".to_owned(),
            (true, true) => format!("manager of {}", snapshot.children),
            (true, false) => "member".to_owned(),
        };
        if bytes_done == 0 && items == 0 {
            return self.meter.message(&place);
        }
        let loss = format!("loss {:.1} % · {place}", snapshot.loss * 100.0);
        if items == 0 {
            // A pipe, whose length nobody knows.
            return self.meter.bytes(bytes_done, 0, &loss);
        }
        let files = counted(items, "file");
        self.meter.bytes(bytes_done, bytes, &format!("{items_done} of {files} · {loss}"));
    }

    fn item(&self, name: &str, path: &Path, bytes: u64) {
        self.tell_item(name, path, bytes);
    }

    fn already_there(&self, name: &str) {
        self.tell_already_there(name);
    }

    fn changed(&self, path: &str, change: Change) {
        self.tell_changed(path, change);
    }

    fn removed(&self, path: &Path) {
        self.tell_removed(path);
    }

    fn failed(&self, name: &str, reason: &str) {
        self.tell_failed(name, reason);
    }

    fn note(&self, line: &str) {
        self.tell_note(line);
    }

    fn fallback(&self, brought: &Brought, cause: Option<&str>) {
        let Brought { within, packets, lost } = *brought;
        let seconds = within.as_secs_f64();
        self.output.json(&json!({
            "event": "fallback", "within_s": seconds, "packets": packets, "lost": lost,
            "cause": cause,
        }));
        let what = if packets == 0 {
            format!("multicast has brought no data for {seconds:.1} s")
        } else {
            let all = packets.saturating_add(lost);
            format!("multicast has brought {packets} of {all} packets in {seconds:.1} s")
        };
        let why = cause.map_or_else(String::new, |cause| format!(" ({cause})"));
        self.output.note(plain(&format!("{what}{why}; going on by unicast")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(change: impl FnOnce(&mut RecvSummary)) -> String {
        let mut summary = RecvSummary::default();
        (summary.packets, summary.bytes) = (9, 9_000);
        change(&mut summary);
        came(&summary)
    }

    #[test]
    fn nothing_is_called_verified_that_is_not_whole() {
        let given_up = |summary: &mut RecvSummary| summary.failure = Some("gone".to_owned());
        assert_eq!(summary(given_up), "no new files; loss 0.00 %");
        let some = summary(|summary| (summary.items, summary.failure) = (2, Some("gone".into())));
        assert!(
            some.starts_with("2 files, 9.0 kB in 0.0 s") && some.contains("verified"),
            "{some}"
        );
        let pipe = |summary: &mut RecvSummary| summary.pipe = true;
        assert!(summary(pipe).contains("verified"));
        let cut = summary(|summary| {
            pipe(summary);
            given_up(summary);
        });
        let interrupted = summary(|summary| (summary.pipe, summary.interrupted) = (true, true));
        assert!(!cut.contains("verified") && !interrupted.contains("verified"), "{cut}");
    }
}
