//! `umbel send`.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use umbel_cli::enter::Enter;
use umbel_engine::units::{ByteCount, counted, rate_text};
use umbel_net::interface::Family;
use umbel_wire::feed::{FeedContent, Recovery};
use umbel_wire::session::SessionName;

use super::device::warn_of_mounted;
use super::duration::parse_duration;
use super::files::FilesArgs;
use super::output::{Output, plain};
use super::pace::PaceArgs;
use super::teller::{Since, TELL_EVERY, Teller, rate};
use super::token::TokenFileArgs;
use super::{left_out, signals};
use crate::directory::{Noun, SessionUrl};
use crate::feed::admission::AdmitList;
use crate::feed::send::{
    Begun, Handle, ReceiverLine, SendObserver, SendOptions, SendSnapshot, SendSummary, WaitFor,
    What, send,
};

/// Most receivers that are named in the last lines.
const NAMED: usize = 20;
/// Most receivers that are named while they are waited for.
const NAMED_MISSING: usize = 3;

/// Options of `umbel send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel send ./backup --name nightly                 a directory, to whoever runs the line that it
                                                     prints: umbel recv 'umbel-feed://…' -o DIR
  umbel send a.iso b.iso --name images --wait-for 20 when 20 receivers are there
  umbel send /dev/sda --name room --wait-for 20      a disk: `umbel recv room --device /dev/sda`
  tar c . | umbel send - --name live                 a pipe: `umbel recv live -o - | tar x`
  umbel send ./dir --name private --admit receivers  to those only whose lines are in
                                                     `receivers`: what `umbel key` prints there
  umbel send ./dir --name near --recovery lms        helpers that routers choose repair losses
  umbel groups                                       what is on the air
Receivers repair each other's losses, subnet by subnet, in a tree that `umbel tree NAME` shows, or
as --recovery says.
Exits with 1 if somebody lacks something at the end, nobody came, or files could not be read.")]
pub(super) struct SendArgs {
    /// Files, directories and block devices, or `-` for standard input
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Name of the feed
    #[arg(long)]
    name: SessionName,
    /// Interface, by name or address [default: that of the default route]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// UDP port of the source in the feed's tree, to which receivers send unicast [default: any]
    #[arg(long, default_value_t = 0, hide_default_value = true, value_name = "PORT")]
    tree_port: u16,
    /// Use IPv6
    #[arg(long)]
    ipv6: bool,
    /// Multicast group of the data channel [default: a source-specific one]
    #[arg(long, value_name = "ADDRESS")]
    group: Option<IpAddr>,
    #[command(flatten)]
    pace: PaceArgs,
    /// Most subnets that are direct children of one node of the tree
    #[arg(long, default_value_t = 8, value_name = "NUMBER",
        value_parser = clap::value_parser!(u16).range(1..))]
    k: u16,
    /// Begin when this number of receivers has joined, after a time such as 10s, or, with both as in
    /// 30,2min, at whichever comes first. Enter or SIGUSR1 begins at once
    #[arg(long, default_value = "1", value_name = "NUMBER|DURATION")]
    wait_for: Wait,
    /// Most routers that packets pass, plus one
    #[arg(long, default_value_t = 32, value_name = "HOPS",
        value_parser = clap::value_parser!(u8).range(1..))]
    scope: u8,
    /// Token that receivers must show to join the tree; `auto` draws one. It hides nothing: to keep
    /// content to some receivers use --admit with keys
    #[arg(long, value_name = "TOKEN|auto")]
    token: Option<String>,
    #[command(flatten)]
    token_file: TokenFileArgs,
    /// File with the receivers that should get the feed, one per line: NAME, or NAME KEY as `umbel
    /// key` prints it there, and comments after ` # `. The report lists those that did not get it.
    /// With keys the feed is sealed, and only their holders can read it, join its tree, and report
    /// in their names; names alone need --token
    #[arg(long, value_name = "FILE")]
    admit: Option<PathBuf>,
    /// Repair with the very packets that were lost, instead of fresh symbols of an erasure code
    #[arg(long)]
    exact: bool,
    /// Recovery of losses: `tree` (managers of subnets, TMTP), `lms` (receivers that routers with
    /// `umbel router` choose), `srm` (any receiver, by a group that all hear), or `source` (the
    /// sender alone). With `lms` the sender repairs where there are no such routers. Receivers
    /// follow. With `lms` and `source` only the data channel is multicast
    #[arg(long, default_value_t = Recovery::Tree, value_name = "SCHEME")]
    recovery: Recovery,
    /// Most packets in a block, 1 to 255
    #[arg(long, default_value_t = 64, value_name = "SYMBOLS",
        value_parser = clap::value_parser!(u8).range(1..))]
    block: u8,
    /// MTU of the path; data packets carry 100 bytes less [default: the interface's, at most 1500]
    #[arg(long)]
    mtu: Option<u16>,
    #[command(flatten)]
    files: FilesArgs,
    /// Time to serve late receivers when all others have everything
    #[arg(long, default_value = "0s", value_name = "DURATION", value_parser = parse_duration)]
    linger: Duration,
    /// Directory of the key that signs the feed, which is that of `umbel serve` [default: the
    /// user's state directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Value of `--wait-for`.
#[derive(Clone, Copy, Debug)]
struct Wait(WaitFor);

impl FromStr for Wait {
    type Err = String;

    fn from_str(text: &str) -> Result<Wait, String> {
        let wrong = || {
            format!(
                "`{text}` is no number of receivers, no time such as 10s, and not both as 30,2min"
            )
        };
        if let Some((count, time)) = text.split_once(',') {
            let (count, time) = (count.trim().parse(), parse_duration(time.trim()));
            let (Ok(count), Ok(time)) = (count, time) else { return Err(wrong()) };
            return Ok(Wait(WaitFor::Either(count, time)));
        }
        if let Ok(count) = text.parse() {
            return Ok(Wait(WaitFor::Receivers(count)));
        }
        parse_duration(text).map(|time| Wait(WaitFor::Time(time))).map_err(|_| wrong())
    }
}

impl SendArgs {
    fn options(self) -> anyhow::Result<SendOptions> {
        let what = if self.paths.iter().any(|path| path == Path::new("-")) {
            if self.paths.len() > 1 {
                bail!("`-` stands for standard input, and for nothing else beside it");
            }
            let input = std::io::stdin().as_fd().try_clone_to_owned();
            What::Pipe(input.context("cannot read standard input")?.into())
        } else {
            What::Paths(self.paths)
        };
        let admit = self.admit.as_deref().map(read_list).transpose()?.unwrap_or_default();
        Ok(SendOptions {
            interface: self.interface,
            tree_port: self.tree_port,
            family: self.ipv6.then_some(Family::V6),
            group: self.group,
            pace: self.pace.options(),
            max_children: self.k,
            wait_for: self.wait_for.0,
            scope: self.scope,
            token: self.token_file.demanded(self.token)?,
            admit,
            mtu: self.mtu,
            block_symbols: self.block,
            fec: !self.exact,
            recovery: self.recovery,
            linger: self.linger,
            state_dir: self.state_dir,
            hidden: self.files.hidden,
            follow_links: self.files.follow_links,
            patterns: self.files.patterns()?,
            ..SendOptions::new(what, self.name)
        })
    }
}

fn read_list(path: &Path) -> anyhow::Result<AdmitList> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the names in {}", path.display()))?;
    AdmitList::parse(&text).with_context(|| path.display().to_string())
}

/// Runs the command.
///
/// # Errors
///
/// If nothing can be sent, or a receiver does not have everything at the end.
pub(super) fn run(args: SendArgs, output: &Output) -> anyhow::Result<ExitCode> {
    if args.files.dry_run && args.paths.iter().any(|path| path == Path::new("-")) {
        bail!("`-` is a pipe, of which nothing is known beforehand");
    }
    if args.files.dry_run {
        let state_dir = args.state_dir.as_deref();
        return args.files.list(&args.paths, false, state_dir, output);
    }
    let signals = signals::watch()?;
    warn_of_mounted(&args.paths, output);
    let options = args.options()?;
    let takes_keys = matches!(options.what, What::Paths(_)) && output.draws();
    let teller = Arc::new(SendTeller { teller: Teller::new(output), enter: OnceLock::new() });
    let summary = send(options, teller.clone(), |handle| {
        let Handle { interrupt, begin } = handle;
        signals.interrupts(move || interrupt.interrupt());
        let by_key = begin.clone();
        signals::on_user_signal(move || begin.interrupt());
        if let Some(enter) = takes_keys.then(|| Enter::watch(move || by_key.interrupt())).flatten()
        {
            let _ = teller.enter.set(enter);
        }
    });
    teller.teller.meter.clear();
    finish(&summary?, output)
}

fn finish(summary: &SendSummary, output: &Output) -> anyhow::Result<ExitCode> {
    tracing::info!(
        "{}, {}, {} fetched, {} evicted, load {}; discarded: {}",
        counted(summary.packets, "packet"),
        counted(summary.repairs, "repair"),
        summary.fetched,
        summary.evicted,
        summary.load,
        summary.drops
    );
    let lonely = summary.done == 0 && summary.without == 0;
    let whole = summary.failure.is_none() && summary.left_out == 0;
    let ok = summary.without == 0 && whole && !lonely;
    output.json(&json!({ "event": "done", "summary": summary, "ok": ok }));
    output.note(sent(summary));
    let lacks = |receiver: &&ReceiverLine| !["done", "not admitted"].contains(&receiver.state);
    let lacking: Vec<&ReceiverLine> = summary.receivers.iter().filter(lacks).collect();
    // Who gave up was told when it did, and one alone is in the last line.
    let untold: Vec<&&ReceiverLine> =
        lacking.iter().filter(|one| one.state != "failed" && lacking.len() > 1).collect();
    for receiver in untold.iter().take(NAMED) {
        output.note(format!("  without it: {}", describe(receiver)));
    }
    if untold.len() > NAMED {
        output.note(format!("  … and {} more", untold.len() - NAMED));
    }
    let strangers = || summary.receivers.iter().filter(|one| one.state == "not admitted");
    if let Some(first) = strangers().next() {
        let others = match strangers().count() - 1 {
            0 => String::new(),
            others => format!(" and {others} more"),
        };
        output.note(format!("  not admitted: {}{others}", plain(&first.name)));
    }
    if let Some(failure) = &summary.failure {
        bail!("the feed is incomplete: {}", plain(failure));
    }
    if summary.without > 0 {
        let all = summary.receivers.len() - strangers().count();
        let who = match lacking.as_slice() {
            [one] if one.state == "failed" && output.notes() => plain(name_of(one)),
            [one] => describe(one),
            [first, ..] if !output.notes() => format!("the first is {}", describe(first)),
            _ => "see above".to_owned(),
        };
        let lack = if summary.without == 1 { "does not have it" } else { "do not have it" };
        bail!("{} of {} {lack}: {who}", summary.without, counted(all, "receiver"));
    }
    if lonely && summary.interrupted {
        bail!("interrupted; nobody has received it");
    }
    if lonely {
        bail!("nobody received it: no receiver came while it was sent; --wait-for waits for them");
    }
    if let Some(first) = summary.failures.first() {
        let (name, reason) = (plain(&first.name), plain(&first.reason));
        match summary.left_out {
            1 => bail!("{name} was not sent: {reason}"),
            files => bail!("{files} files were not sent; the first is {name}: {reason}"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns what was sent, and to whom.
fn sent(summary: &SendSummary) -> String {
    let SendSummary { bytes, acknowledged_bytes, seconds, done, without, .. } = *summary;
    let repairs = counted(summary.repairs + summary.fetched, "repair");
    let repairs = format!("{repairs} by the source");
    if seconds == 0.0 {
        return format!("sent nothing of {}", ByteCount(bytes));
    }
    if done + without == 0 {
        return format!("sent for {seconds:.1} s, to nobody");
    }
    let rate = rate(acknowledged_bytes, seconds);
    let bytes = if acknowledged_bytes < bytes {
        format!("{} of {}", ByteCount(acknowledged_bytes), ByteCount(bytes))
    } else {
        ByteCount(bytes).to_string()
    };
    let receivers = counted(done + without, "receiver");
    let whom = if without == 0 { receivers } else { format!("{done} of {receivers}") };
    format!("{bytes} in {seconds:.1} s ({rate}) to {whom}; {repairs}")
}

fn name_of(receiver: &ReceiverLine) -> &str {
    if receiver.name.is_empty() { &receiver.node } else { &receiver.name }
}

fn describe(receiver: &ReceiverLine) -> String {
    let name = name_of(receiver);
    match &receiver.reason {
        Some(reason) => format!("{} ({}: {})", plain(name), receiver.state, plain(reason)),
        None => format!("{} ({})", plain(name), receiver.state),
    }
}

/// Returns whom the source waits for, and for how long, or until `key`.
fn waiting(snapshot: &SendSnapshot, key: Option<&str>) -> String {
    let SendSnapshot { receivers, waits_for, begins_in_s, .. } = *snapshot;
    let so_far = match waits_for {
        Some(all) => format!("{receivers} of {} there", counted(all, "receiver")),
        None => format!("{} so far", counted(receivers, "receiver")),
    };
    let without = match snapshot.missing.as_slice() {
        [] => String::new(),
        all if all.len() > NAMED_MISSING => {
            let some: Vec<_> = all.iter().take(NAMED_MISSING).map(|name| plain(name)).collect();
            format!(", without {} and others", some.join(", "))
        }
        all => {
            let all: Vec<_> = all.iter().map(|name| plain(name)).collect();
            format!(", without {}", all.join(", "))
        }
    };
    let time = begins_in_s.map(|left| {
        let left = left.ceil() as u64;
        format!("in {}:{:02}", left / 60, left % 60)
    });
    let key = key.map(|key| format!("on {key}"));
    let begins: Vec<String> = time.into_iter().chain(key).collect();
    let begins = match begins.as_slice() {
        [] => String::new(),
        begins => format!("; beginning {}", begins.join(" or ")),
    };
    format!("waiting; {so_far}{without}{begins}")
}

/// Share by which a rate must change to be worth a line.
const NEWS: f64 = 0.1;

/// Logs the progress of a running source for -v and -vv.
fn log(now: &SendSnapshot, since: Since<SendSnapshot>) {
    let Since { last, second } = since;
    if now.stage != last.stage {
        tracing::info!("{}", now.stage);
    }
    if (now.receivers, now.done, now.failed) != (last.receivers, last.done, last.failed) {
        let SendSnapshot { receivers, done, failed, .. } = now;
        let receivers = counted(*receivers, "receiver");
        tracing::info!("{receivers}, {done} done, {failed} gave up");
    }
    if now.stalls > last.stalls {
        tracing::debug!("waits for the slowest receivers, for the {}th time", now.stalls);
    }
    if let Some((time, past)) = second {
        let (before, after) = (past.rate_bits_per_s as f64, now.rate_bits_per_s as f64);
        if (after - before).abs() > NEWS * before {
            let limit = now.limit.as_ref().map_or(String::new(), |limit| format!(", {limit}"));
            tracing::info!("the rate is {} now{limit}", rate_text(now.rate_bits_per_s));
        }
        tracing::debug!(
            "{} of {} acknowledged, {}; {} of {} done",
            ByteCount(now.bytes_done),
            ByteCount(now.bytes),
            rate(now.bytes_done.saturating_sub(past.bytes_done), time.as_secs_f64()),
            now.done,
            counted(now.receivers, "receiver")
        );
    }
}

/// Tells of a feed that is sent, and takes the key that begins it.
struct SendTeller {
    teller: Teller<SendSnapshot>,
    /// Where somebody can type.
    enter: OnceLock<Enter>,
}

impl SendTeller {
    /// Lets the key count while there is somebody to send to. Returns its name if it does.
    fn offer_key(&self, snapshot: &SendSnapshot) -> Option<&'static str> {
        let enter = self.enter.get()?;
        if snapshot.stage != "waiting" {
            enter.end();
            return None;
        }
        let somebody = snapshot.receivers > 0;
        enter.counts(somebody);
        somebody.then_some("Enter")
    }
}

impl SendObserver for SendTeller {
    fn hashing(&self, done: u64, total: u64) {
        self.teller.meter.bytes(done, total, "looking at the files");
    }

    fn begun(&self, begun: &Begun) {
        let Begun { feed, pin, interface, rate, skipped } = begun;
        let url = SessionUrl { noun: Noun::Feed, name: &feed.name, pin: *pin }.to_string();
        let (items, bytes) = match feed.content {
            FeedContent::Files { items, bytes, .. } => (Some(items), Some(bytes)),
            FeedContent::Pipe => (None, None),
        };
        self.teller.output.json(&json!({
            "event": "sending",
            "name": feed.name.as_str(),
            "url": &url,
            "pin": pin.to_string(),
            "tsi": feed.tsi.0,
            "source": feed.source.to_string(),
            "data": feed.data.to_string(),
            "domain": feed.domain.to_string(),
            "interface": interface,
            "rate_bits_per_s": rate.bits_per_s(),
            "items": items,
            "bytes": bytes,
            "skipped": skipped.total(),
            "left_out": left_out::as_json(skipped),
            "sealed": feed.sealed.is_some(),
            "recovery": feed.recovery.name(),
        }));
        let what = match feed.content {
            FeedContent::Files { items, bytes, .. } => {
                format!("{}, {}", counted(items, "file"), ByteCount(bytes))
            }
            FeedContent::Pipe => "standard input".to_owned(),
        };
        let sealed = if feed.sealed.is_some() { ", sealed," } else { "" };
        self.teller.output.note(format!(
            "sending {what}{sealed} as `{}` on {} by {} at most {}; receive it with:",
            feed.name, feed.data, interface, rate
        ));
        let output = if feed.content == FeedContent::Pipe { "-" } else { "DIR" };
        self.teller.output.result(format!("umbel recv '{url}' -o {output}"));
        for line in left_out::lines(skipped) {
            self.teller.output.note(line);
        }
        tracing::info!(
            "feed {}: domain group {}, {} a symbol, {} a block",
            feed.tsi.0,
            feed.domain,
            counted(feed.symbol_len, "byte"),
            counted(feed.block_symbols, "symbol")
        );
    }

    fn progress(&self, snapshot: &SendSnapshot) {
        let key = self.offer_key(snapshot);
        log(snapshot, self.teller.since(snapshot));
        if self.teller.output.is_json() {
            return self.teller.tell(snapshot, |_| TELL_EVERY);
        }
        let SendSnapshot { bytes, bytes_done, receivers, done, failed, .. } = *snapshot;
        if snapshot.stage == "waiting" {
            return self.teller.meter.message(&waiting(snapshot, key));
        }
        let receivers = counted(receivers, "receiver");
        let failed = if failed > 0 { format!(", {failed} gave up") } else { String::new() };
        let limit = snapshot.limit.as_ref().map_or(String::new(), |limit| format!(", {limit}"));
        self.teller.meter.bytes(
            bytes_done,
            bytes,
            &format!("{done} of {receivers} done{failed}{limit}"),
        );
    }

    fn receiver(&self, receiver: &ReceiverLine) {
        tracing::info!("receiver {}", describe(receiver));
        self.teller.output.json(&json!({ "event": "receiver", "receiver": receiver }));
        if receiver.state == "failed" {
            self.teller.output.note(format!("gave up: {}", describe(receiver)));
        }
    }

    fn note(&self, line: &str) {
        self.teller.tell_note(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_wait_for_is_a_number_or_a_time() {
        let parse = |text: &str| text.parse::<Wait>().map(|wait| wait.0);
        assert_eq!(parse("3"), Ok(WaitFor::Receivers(3)));
        assert_eq!(parse("10s"), Ok(WaitFor::Time(Duration::from_secs(10))));
        assert_eq!(parse("30,2min"), Ok(WaitFor::Either(30, Duration::from_mins(2))));
        for wrong in ["soon", "30,", ",2min", "2min,30", "1,2,3"] {
            assert!(parse(wrong).unwrap_err().contains("10s"), "{wrong}");
        }
    }

    #[test]
    fn who_waits_knows_for_whom_and_how_long() {
        let of = |waits_for, begins_in_s, missing: &str, key| {
            let missing = missing.split_whitespace().map(str::to_owned).collect();
            let (receivers, other) = (28, SendSnapshot::default());
            let snapshot = SendSnapshot { receivers, waits_for, missing, begins_in_s, ..other };
            waiting(&snapshot, key).replace("waiting; 28 ", "")
        };
        let enter = Some("Enter");
        assert_eq!(
            of(Some(30), Some(71.2), "pc7 pc9", enter),
            "of 30 receivers there, without pc7, pc9; beginning in 1:12 or on Enter"
        );
        assert_eq!(of(None, Some(9.0), "", None), "receivers so far; beginning in 0:09");
        assert_eq!(of(Some(30), None, "", None), "of 30 receivers there");
        assert_eq!(
            of(Some(32), None, "a b c d", enter),
            "of 32 receivers there, without a, b, c and others; beginning on Enter"
        );
    }

    #[test]
    fn a_summary_claims_no_more_than_was_acknowledged() {
        let of = |acknowledged_bytes, seconds, (done, without)| {
            let bytes = 8_400_000;
            let counts = SendSummary { done, without, repairs: 1, ..SendSummary::default() };
            sent(&SendSummary { bytes, acknowledged_bytes, seconds, ..counts })
        };
        assert_eq!(of(0, 0.0, (0, 0)), "sent nothing of 8.4 MB");
        assert_eq!(of(0, 0.0, (0, 2)), "sent nothing of 8.4 MB");
        assert_eq!(of(0, 4.5, (0, 0)), "sent for 4.5 s, to nobody");
        let whole = "8.4 MB in 4.2 s (16.0 Mbit/s) to 1 receiver; 1 repair by the source";
        assert_eq!(of(8_400_000, 4.2, (1, 0)), whole);
        let some = "8.4 MB in 4.2 s (16.0 Mbit/s) to 2 of 3 receivers; 1 repair by the source";
        assert_eq!(of(8_400_000, 4.2, (2, 1)), some);
        let part = "525.0 kB of 8.4 MB in 4.2 s (1.0 Mbit/s) to 0 of 3 receivers; 1 repair by the \
                    source";
        assert_eq!(of(525_000, 4.2, (0, 3)), part);
    }
}
