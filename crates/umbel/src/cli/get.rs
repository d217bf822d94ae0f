//! `umbel get`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use umbel_engine::repository::receiver::Brought;
use umbel_engine::units::{ByteCount, counted};
use umbel_net::session::SessionUrl;
use umbel_store::sink::{Change, Links, Purpose};

use super::credentials::CredentialArgs;
use super::device::DeviceArgs;
use super::duration::{parse_duration, parse_seconds};
use super::follow::{AfterArgs, Reporter, absolute};
use super::output::{Output, plain};
use super::signals;
use super::teller::{
    ChangeArgs, Looked, Since, TELL_EVERY, Teller, dropped_line, rate, removed_line, there,
};
use super::token::TokenFileArgs;
use crate::follow::{RepositoryFollower, address_of, came_from, follow_repository};
use crate::get::{GetOptions, Observer, Snapshot, Summary, get};

/// Exit code if items vanished at the server and all others were received; as that of rsync.
const VANISHED: u8 = 24;
/// Most vanished items that are named in lines for people.
const NAMED: usize = 10;

/// Options of `umbel get`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel get 'umbel://192.0.2.2:7700/?pin=…'                         everything, to this directory
  umbel get 'umbel://192.0.2.2:7700/?pin=…' 'images/**' -o ./out    what matches a pattern
  umbel get 'umbel://192.0.2.2:7700/?pin=…' -o ./current --atomic   a release at a time
  umbel get 'umbel://192.0.2.2:7700/?pin=…' sda --device /dev/sda   an image to a disk
  umbel get 'umbel://192.0.2.2:7700/?pin=…' -o ./out --follow       stay, and bring what changes
  umbel get 'umbel://192.0.2.2:7700/?pin=…' -o ./out --exec 'logger \"$UMBEL_PATH\"'
Interrupted, it goes on where it was when it is started again.")]
pub(super) struct GetArgs {
    /// The URL that `umbel serve` printed
    url: SessionUrl,
    /// Items by name or pattern: `images/**`, `*.iso`, `notes.txt` [default: all]
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    patterns: Vec<String>,
    /// Directory for the items
    #[arg(short, long, default_value = ".", value_name = "DIR")]
    output: PathBuf,
    #[command(flatten)]
    device: DeviceArgs,
    /// Replace files that differ from items of the same names; without it they are kept, and the
    /// command exits with 1
    #[arg(long)]
    overwrite: bool,
    /// When everything is there, remove from DIR, which has to be named by -o, what the server does
    /// not offer. Hidden files at the top of DIR stay without --hidden
    #[arg(long, requires = "output", conflicts_with_all = ["patterns", "atomic"])]
    delete: bool,
    #[command(flatten)]
    changes: ChangeArgs,
    /// Make DIR a link to a directory with exactly these items: it goes from the release before to
    /// the new one in one rename, when everything is there
    #[arg(long, conflicts_with_all = ["overwrite", "itemize", "dry_run", "verify", "device"])]
    atomic: bool,
    /// Stay until SIGTERM or Ctrl-C, and bring DIR, which has to be named by -o, up to date whenever
    /// the server's list has changed, which is looked at again and again. Files that differ are
    /// replaced. What fails is tried again after 5 s, then after ever longer pauses of up to 10 min
    #[arg(long, requires = "output", conflicts_with_all = ["dry_run", "verify"])]
    follow: bool,
    /// Pause of --follow between two looks at the server's list, at least 1s
    #[arg(long, value_name = "DURATION", default_value = "1min", requires = "follow")]
    #[arg(value_parser = parse_every)]
    every: Duration,
    #[command(flatten)]
    after: AfterArgs,
    /// Directory in which --follow remembers what it took, in `taken` [default: the user's state
    /// directory]
    #[arg(long, value_name = "DIR", requires = "follow")]
    state_dir: Option<PathBuf>,
    /// Write files and directories, too, whose names begin with `.` in the directory itself
    #[arg(long)]
    hidden: bool,
    /// Symbolic links to make: `inside` (those that stay in DIR, as their texts say), `all` or
    /// `none`
    #[arg(long, value_name = "WHICH", default_value = "inside")]
    links: Links,
    /// Interface on which multicast arrives, by name or address [default: the route's]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// Continue by unicast when multicast brings nothing, or next to nothing, for this long
    #[arg(long, default_value = "5s", value_name = "DURATION", value_parser = parse_seconds)]
    fallback_after: Duration,
    /// Never continue by unicast
    #[arg(long, conflicts_with = "fallback_after")]
    no_fallback: bool,
    /// Admission token, unless the URL has one
    #[arg(long)]
    token: Option<String>,
    #[command(flatten)]
    token_file: TokenFileArgs,
    /// Do not wait until items are safe on the disk
    #[arg(long)]
    no_sync: bool,
    #[command(flatten)]
    credentials: CredentialArgs,
}

fn parse_every(text: &str) -> Result<Duration, String> {
    match parse_duration(text)? {
        every if every < Duration::from_secs(1) => Err("it is at least 1s".to_owned()),
        every => Ok(every),
    }
}

/// Runs the command.
///
/// # Errors
///
/// If nothing can be received at all.
pub(super) fn run(args: GetArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let changes = args.changes;
    let mut url = args.url;
    url.token = args.token_file.token(args.token, url.token)?;
    let options = GetOptions {
        credentials: args.credentials.load()?,
        patterns: args.patterns,
        interface: args.interface,
        fallback_after: (!args.no_fallback).then_some(args.fallback_after),
        durable: !args.no_sync,
        overwrite: args.overwrite || args.follow,
        hidden: args.hidden,
        delete: args.delete,
        purpose: changes.purpose(),
        links: args.links,
        releases: args.atomic.then_some(args.after.keep),
        device: args.device.target()?,
        ..GetOptions::new(url.clone(), args.output.clone())
    };
    if args.follow {
        let told = output.of(&address_of(&url));
        let follower = RepositoryFollower {
            options: GetOptions { output: absolute(args.output), ..options },
            every: args.every,
            state_dir: args.state_dir,
            attempts: args.after.attempts,
            hook: args.after.hook(),
            observer: Box::new(move || {
                let teller = Teller::<Snapshot>::new(&told).itemizing(changes.itemizes());
                let observer: Arc<dyn Observer> = Arc::new(teller);
                observer
            }),
        };
        let reporter = Arc::new(Reporter::<Summary>::new(output, came));
        let followed = follow_repository(follower, reporter, |interrupt| {
            signals.interrupts(move || interrupt.interrupt());
        })?;
        return Ok(super::follow::finish(followed, output));
    }
    let teller = Arc::new(Teller::new(output).itemizing(changes.itemizes()));
    let summary = get(options, teller.clone(), |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.meter.clear();
    let summary = summary?;
    let hooked = if summary.is_whole() {
        let place = args.device.path().cloned().unwrap_or_else(|| absolute(args.output));
        args.after.run(&came_from(&url, place, &summary), &signals, output)
    } else {
        None
    };
    finish(&summary, changes, hooked, output)
}

fn finish(
    summary: &Summary,
    changes: ChangeArgs,
    hooked: Option<String>,
    output: &Output,
) -> anyhow::Result<ExitCode> {
    let looks = changes.purpose() == Purpose::Look;
    let differing = summary.differing + if looks { summary.removed } else { 0 };
    let ok = summary.is_whole() && hooked.is_none() && !changes.finds_fault(differing);
    output.json(&json!({ "event": "done", "summary": summary, "ok": ok }));
    if looks && summary.is_whole() {
        changes.finish_look(Looked { same: summary.already_there, differing }, output)?;
        return Ok(ExitCode::SUCCESS);
    }
    tracing::info!(
        "{}, {} lost, {}, {} by unicast, {} damaged, announcements {}",
        counted(summary.packets, "packet"),
        summary.lost,
        counted(summary.naks, "NAK"),
        counted(summary.unicast_blocks, "block"),
        summary.damaged_blocks,
        if summary.control_group { "in the control group" } else { "on the session" }
    );
    output.note(came(summary));
    if summary.resumed_bytes > 0 && (summary.items > 0 || summary.interrupted) {
        let resumed = ByteCount(summary.resumed_bytes);
        output.note(format!("{resumed} of them were there from an earlier run"));
    }
    if summary.left_out > 0 {
        let files = counted(summary.left_out, "file");
        output.note(format!("not offered, as the server could not read or name them: {files}"));
    }
    if let Some(line) = removed_line(summary.removed) {
        output.note(line);
    }
    if let Some(line) = dropped_line(summary.dropped_here) {
        output.note(line);
    }
    if summary.interrupted {
        anyhow::bail!("interrupted; the same command goes on where it was");
    }
    match summary.failures.as_slice() {
        [] if !summary.vanished.is_empty() => {
            for name in summary.vanished.iter().take(NAMED) {
                output.note(format!("  vanished: {}", plain(name)));
            }
            output.note(format!(
                "{} vanished at the server while it was fetched; all others are there",
                counted(summary.vanished.len() as u64, "item")
            ));
            Ok(ExitCode::from(VANISHED))
        }
        [] => match hooked {
            None => Ok(ExitCode::SUCCESS),
            Some(failure) => anyhow::bail!("{failure}; everything has come"),
        },
        [one] => anyhow::bail!("{} was not received: {}", plain(&one.name), plain(&one.reason)),
        [first, ..] => anyhow::bail!(
            "{} items were not received; the first is {}: {}",
            summary.failures.len(),
            plain(&first.name),
            plain(&first.reason)
        ),
    }
}

/// Returns what came, and how.
fn came(summary: &Summary) -> String {
    let Summary { items, already_there, bytes, seconds, packets, unicast_blocks, .. } = *summary;
    let there = there(already_there);
    let loss = summary.loss() * 100.0;
    let way = match (packets, unicast_blocks) {
        (0, 0) => String::new(),
        (0, _) => "; by unicast".to_owned(),
        (_, 0) => format!("; loss {loss:.2} %"),
        (_, blocks) => format!("; loss {loss:.2} %, {} by unicast", counted(blocks, "block")),
    };
    if items == 0 {
        return format!("no new items{there}{way}");
    }
    let (items, bytes, rate) = (counted(items, "item"), ByteCount(bytes), rate(bytes, seconds));
    format!("{items}, {bytes} in {seconds:.1} s ({rate}), verified{there}{way}")
}

/// Interval of progress events if nothing has changed but the received packets.
const TELL_AT_LEAST_EVERY: Duration = Duration::from_secs(1);

/// Logs the progress of a running client for -v and -vv.
fn log(now: &Snapshot, since: Since<Snapshot>) {
    let Since { last, second } = since;
    if last.connected && !now.connected {
        tracing::info!("the session is lost");
    }
    if now.unicast != last.unicast {
        tracing::info!("items come by {}", if now.unicast { "unicast" } else { "multicast" });
    }
    if let Some((time, past)) = second {
        tracing::debug!(
            "{} of {}, {} of {}; {} by multicast, {} restored; loss {:.2} %",
            now.items_done,
            counted(now.items, "item"),
            ByteCount(now.bytes_done),
            ByteCount(now.bytes),
            rate(now.received.saturating_sub(past.received), time.as_secs_f64()),
            rate(now.bytes_done.saturating_sub(past.bytes_done), time.as_secs_f64()),
            now.loss * 100.0
        );
    }
}

impl Observer for Teller<Snapshot> {
    fn progress(&self, snapshot: &Snapshot) {
        log(snapshot, self.since(snapshot));
        if self.output.is_json() {
            return self.tell(snapshot, |before| {
                if snapshot.is_beyond(before) { TELL_EVERY } else { TELL_AT_LEAST_EVERY }
            });
        }
        let Snapshot { items, items_done, bytes, bytes_done, .. } = *snapshot;
        if !snapshot.connected && bytes == 0 {
            return self.meter.message("connecting");
        }
        let way = match (snapshot.connected, snapshot.unicast) {
            (false, _) => "connecting".to_owned(),
            (true, true) => "by unicast".to_owned(),
            (true, false) => format!("loss {:.1} %", snapshot.loss * 100.0),
        };
        let items = counted(items, "item");
        self.meter.bytes(bytes_done, bytes, &format!("{items_done} of {items} · {way}"));
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
        let Brought { within, packets, lost, .. } = *brought;
        let seconds = within.as_secs_f64();
        self.output.json(&json!({
            "event": "fallback", "within_s": seconds, "packets": packets, "lost": lost,
            "cause": cause,
        }));
        let line = match cause {
            Some(cause) => format!("why multicast may not arrive: {cause}"),
            None if packets == 0 => {
                format!("multicast has brought nothing for {seconds:.1} s; going on by unicast")
            }
            None => format!(
                "multicast has brought {packets} of {} packets in {seconds:.1} s; going on by \
                 unicast",
                packets.saturating_add(lost)
            ),
        };
        self.output.note(plain(&line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_said_with_how_it_came() {
        let one = Summary { items: 1, bytes: 8_000_000, seconds: 2.0, ..Summary::default() };
        let multicast = Summary { packets: 97, heard: 97, lost: 3, ..one.clone() };
        assert_eq!(
            came(&multicast),
            "1 item, 8.0 MB in 2.0 s (32.0 Mbit/s), verified; loss 3.00 %"
        );
        let some = Summary { unicast_blocks: 1, already_there: 2, items: 3, ..multicast };
        let words = "3 items, 8.0 MB in 2.0 s (32.0 Mbit/s), verified; 2 already there; loss 3.00 %, \
                     1 block by unicast";
        assert_eq!(came(&some), words);
        // Announced, but multicast does not pass.
        let unicast = Summary { unicast_blocks: 9, lost: 3, ..one };
        assert_eq!(came(&unicast), "1 item, 8.0 MB in 2.0 s (32.0 Mbit/s), verified; by unicast");
        let nothing = Summary { already_there: 1, ..Summary::default() };
        assert_eq!(came(&nothing), "no new items; 1 already there");
    }
}
