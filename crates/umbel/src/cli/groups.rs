//! `umbel groups`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::json;
use umbel_engine::units::{ByteCount, Rate, counted};
use umbel_wire::feed::{Feed, FeedContent};
use umbel_wire::session::{FindSessions, SessionKind};
use umbel_wire::stream::{Stream, StreamContent};

use super::duration::parse_duration;
use super::output::{Output, plain};
use super::signals;
use crate::directory::{Session, Station};

/// Interval at which sessions are asked for.
const ASK_EVERY: Duration = Duration::from_millis(700);

/// Options of `umbel groups`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel groups                   feeds, streams, and whatever else is announced
  umbel groups --wait 10min      listen longer: others announce every five minutes or so")]
pub(super) struct GroupsArgs {
    /// Time for which to listen
    #[arg(long, default_value = "2s", value_name = "DURATION", value_parser = parse_duration)]
    wait: Duration,
    /// Interface, by name or address [default: all that do multicast]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
}

/// Runs the command.
///
/// # Errors
///
/// If listening is impossible.
pub(super) fn run(args: &GroupsArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let mut station = Station::open(args.interface.as_deref())?;
    let waker = station.waker();
    signals.then(move || waker.wake())?;
    if station.wait_for_network(|line| output.note(line))? {
        return Ok(ExitCode::SUCCESS);
    }
    let until = Instant::now() + args.wait;
    loop {
        station.ask(&FindSessions { name: None }, None);
        let left = until.saturating_duration_since(Instant::now());
        if station.listen(left.min(ASK_EVERY))? || left.is_zero() {
            break;
        }
    }
    let sessions = station.directory().sessions();
    for session in &sessions {
        output.json(&described(session));
        output.result(line(session));
    }
    if sessions.is_empty() {
        let names: Vec<&str> = station.interfaces().map(|one| one.name.as_str()).collect();
        output.note(format!("nothing is on the air on {}", names.join(", ")));
    }
    Ok(ExitCode::SUCCESS)
}

fn described(session: &Session) -> serde_json::Value {
    let Session { description, kind, problem, announcer, .. } = session;
    let (feed, stream) = (session.feed(), session.stream());
    let connection = |media| description.connection_of(media);
    let media: Vec<_> = description
        .media
        .iter()
        .map(|media| {
            json!({
                "kind": media.kind,
                "port": media.port,
                "protocol": media.protocol,
                "group": connection(media).map(|at| at.address.to_string()),
                "kbit_per_s": media.bandwidth,
            })
        })
        .collect();
    let content = match kind {
        None => None,
        Some(SessionKind::Feed(feed)) => Some(match feed.content {
            FeedContent::Pipe => json!("pipe"),
            FeedContent::Files { items, bytes, .. } => json!({ "items": items, "bytes": bytes }),
        }),
        Some(SessionKind::Stream(stream)) => Some(json!(stream.content.to_string())),
    };
    let kbit_per_s = match kind {
        None => None,
        Some(SessionKind::Feed(feed)) => Some(feed.kbit_per_s),
        Some(SessionKind::Stream(stream)) => Some(stream.kbit_per_s()),
    };
    json!({
        "event": "session",
        "name": description.name,
        "announcer": announcer.to_string(),
        "information": description.information,
        "kind": kind.as_ref().map(SessionKind::noun),
        "pin": session.signer.map(|pin| pin.to_string()),
        "source": session.source().map(|source| source.to_string()),
        "data": feed.map(|feed| feed.data.to_string()),
        "domain": feed.map(|feed| feed.domain.to_string()),
        "control": stream.and_then(|stream| stream.control).map(|control| control.to_string()),
        "content": content,
        "token": feed.map(|feed| feed.token),
        "sealed": feed.map(|feed| feed.sealed.is_some()),
        "scope": kind.as_ref().map(SessionKind::scope),
        "rate_bits_per_s": kbit_per_s.map(|rate| rate.saturating_mul(1000)),
        "problem": problem,
        "media": media,
    })
}

fn line(session: &Session) -> String {
    let name = plain(&session.description.name);
    match (&session.kind, &session.problem) {
        (Some(SessionKind::Stream(stream)), _) => {
            format!("{name:<20} {:<22} {}", stream.source.to_string(), what_stream(stream))
        }
        (Some(SessionKind::Feed(feed)), _) => {
            let token = if feed.token { ", with a token" } else { "" };
            let sealed = if feed.sealed.is_some() { ", for admitted receivers" } else { "" };
            format!("{name:<20} {:<22} {}{token}{sealed}", feed.source.to_string(), what(feed))
        }
        (None, Some(problem)) => {
            format!("{name:<20} {:<22} cannot be received: {}", session.announcer, plain(problem))
        }
        (None, None) => {
            let media = session.description.media.iter();
            let media: Vec<_> =
                media.map(|media| format!("{} {}", media.kind, media.protocol)).collect();
            let media = plain(&media.join(", "));
            format!("{name:<20} {:<22} another tool's: {media}", session.announcer)
        }
    }
}

fn what(feed: &Feed) -> String {
    let rate = Rate::from_bits_per_s(feed.kbit_per_s.saturating_mul(1000));
    let rate = rate.map_or(String::new(), |rate| format!(", up to {rate}"));
    match feed.content {
        FeedContent::Pipe => format!("a pipe{rate}"),
        FeedContent::Files { items, bytes, .. } => {
            format!("{}, {}{rate}", counted(items, "file"), ByteCount(bytes))
        }
    }
}

fn what_stream(stream: &Stream) -> String {
    let rate = Rate::from_bits_per_s(stream.kbit_per_s().saturating_mul(1000));
    let rate = rate.map_or(String::new(), |rate| format!(", up to {rate}"));
    let count = stream.layers.len();
    let layers = counted(count, "layer");
    match &stream.content {
        StreamContent::Video { width, height, .. } => {
            format!("live video {width}x{height} in {layers}{rate}")
        }
        StreamContent::Hls => {
            format!("live HLS in {}{rate}", counted(count, "rendition"))
        }
        StreamContent::Rtp(formats) => {
            let what = formats.first().map_or_else(String::new, ToString::to_string);
            format!("live RTP, {what}, in {layers}{rate}")
        }
    }
}
