//! `umbel smo serve`.

use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde_json::json;
use umbel_engine::smo::{Congestion, Fairness, Release, RttChoice, SourceConfig};
use umbel_engine::units::{ByteCount, Rate, counted};

use super::super::duration::parse_duration;
use super::super::output::{Output, plain};
use super::super::rate::parse_rate;
use super::super::signals;
use super::super::teller::{TELL_EVERY, Teller};
use crate::smo::address::{Group, Listen};
use crate::smo::report::{Account, Report};
use crate::smo::serve::{ServeObserver, ServeOptions, ServeSummary, Serving, Start, What, serve};

/// Options of `umbel smo serve`.
#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("content").required(true).args(["http", "file", "stdin"])))]
#[command(after_help = "Examples:
  umbel smo serve --listen :8080 --channel 232.7.7.7:8080 --http ./dir
  curl -O http://192.0.2.2:8080/big.iso            the client; `umbel smo join` makes it multicast
  umbel smo serve --listen :9000 --channel 232.7.7.7:9000 --file big.iso --receivers 20
  nc 192.0.2.2 9000 > big.iso                      the client of a file
  ffmpeg … -f mpegts - | umbel smo serve --listen :9000 --channel 232.7.7.7:9000 --stdin
  umbel smo serve --listen :80 --address 192.0.2.9 --channel 232.7.7.7:80 --http ./dir
                                                   at an address that no interface has
With --http, requests for the same URL and range within --window share one multicast, which begins
before that once --receivers have asked. A file goes to
everyone from its beginning, standard input from where it is. With --http it runs until Ctrl-C.")]
pub(super) struct ServeArgs {
    /// Address and port where clients connect, or :PORT for the interface's address
    #[arg(long, value_name = "[ADDRESS]:PORT")]
    listen: Listen,
    /// Group and port of the multicast
    #[arg(long, value_name = "GROUP:PORT")]
    channel: Group,
    #[command(flatten)]
    what: WhatArgs,
    #[command(flatten)]
    engine: EngineArgs,
}

/// Content to serve.
#[derive(Debug, clap::Args)]
#[group(skip)]
struct WhatArgs {
    /// Serve the files of a directory by HTTP
    #[arg(long, value_name = "DIR")]
    http: Option<PathBuf>,
    /// Send a file to everyone who connects
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Send standard input to everyone who connects
    #[arg(long)]
    stdin: bool,
    #[command(flatten)]
    http_args: HttpArgs,
    #[command(flatten)]
    start: StartArgs,
    /// With --file: go on after everyone who came has the file
    #[arg(long)]
    keep: bool,
}

/// Options of groups that share an answer of HTTP; relays share them.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub(super) struct HttpArgs {
    /// With --http: longest time from the first request for something to its multicast
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = parse_duration)]
    pub(super) window: Duration,
    /// With --http: shorter answers are sent at once and by unicast
    #[arg(long, value_name = "BYTES", default_value_t = 65_536)]
    pub(super) smallest: u64,
}

/// Time at which a stream begins; relays share it.
#[derive(Clone, Copy, Debug, clap::Args)]
#[group(skip)]
pub(super) struct StartArgs {
    /// Begin when this many receivers are there [default: 1; with --http, at the end of --window]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..))]
    receivers: Option<u32>,
    /// Without --http: begin this long after the first receiver, even if others are missing
    /// [default: wait for them]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    wait: Option<Duration>,
}

impl StartArgs {
    /// Returns the rule for one stream.
    pub(super) fn start(self) -> Start {
        Start { receivers: self.receivers.unwrap_or(1) as usize, wait: self.wait }
    }

    /// Returns the rule for answers of HTTP.
    pub(super) fn web(self, http: HttpArgs) -> Start {
        let receivers = self.receivers.map_or(usize::MAX, |receivers| receivers as usize);
        Start { receivers, wait: Some(http.window) }
    }
}

/// Options of the engine; relays share them.
#[derive(Debug, clap::Args)]
pub(super) struct EngineArgs {
    /// Interface, by name or address [default: that of the address, or of the default route]
    #[arg(long, value_name = "NAME|ADDRESS")]
    pub(super) interface: Option<String>,
    /// Address of the server that no interface has: it is answered for on the interface
    #[arg(long, value_name = "ADDRESS")]
    address: Option<IpAddr>,
    /// Highest rate, such as 100M [default: what congestion control allows]
    #[arg(long, value_name = "RATE", value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Time at which sent bytes are dropped: `slowest` receiver has them, a share such as 90% has,
    /// or the room is needed (`buffer`); later receivers are cut off
    #[arg(long, value_name = "RULE", default_value = "slowest", value_parser = parse_release)]
    release: Release,
    /// Congestion window: `strict`, that of the most congested receiver, or A,B: between A and B
    /// times that
    #[arg(long, value_name = "RULE", default_value = "strict", value_parser = parse_fairness)]
    fairness: Fairness,
    /// Round trip of the group: `max`, or that of the fastest share such as 90%
    #[arg(long, value_name = "RULE", default_value = "max", value_parser = parse_rtt)]
    rtt: RttChoice,
    /// Congestion avoidance: reno or cubic
    #[arg(long, default_value = "reno", value_parser = parse_congestion)]
    congestion: Congestion,
    /// Share of the receivers above which what they lack is multicast again
    #[arg(long, value_name = "SHARE", default_value = "5%", value_parser = parse_share)]
    threshold: f64,
    /// Bytes that a stream holds at most, such as 8388608
    #[arg(long, value_name = "BYTES", default_value_t = 8 << 20,
        value_parser = clap::value_parser!(u64).range(65_536..=1 << 30))]
    buffer: u64,
    /// Forget bytes at this age, whether they were received or not: for live streams to receivers
    /// that skip over losses
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..))]
    real_time: Option<u64>,
    /// Cut off a receiver that makes no progress for this long
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = parse_duration)]
    stall: Duration,
    /// Cut off a receiver whose application does not read for this long
    #[arg(long, value_name = "DURATION", default_value = "2min", value_parser = parse_duration)]
    closed_window: Duration,
    /// Cut off receivers with a longer round trip than this [default: none]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    max_rtt: Option<Duration>,
    /// Cut off receivers whose congestion window is below this number of segments on average
    /// [default: none]
    #[arg(long, value_name = "SEGMENTS")]
    min_window: Option<f64>,
    /// Most connections
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000)]
    connections: u32,
    /// Most routers that multicasts pass, plus one
    #[arg(long, default_value_t = 32, value_name = "HOPS",
        value_parser = clap::value_parser!(u8).range(1..))]
    scope: u8,
    /// Drop acknowledgements that tell nothing new before they reach the program, by a program of
    /// the kernel: `auto` where possible, or `off`
    #[arg(long, value_name = "MODE", default_value = "auto", value_parser = parse_ack_filter,
        action = clap::ArgAction::Set)]
    ack_filter: bool,
    /// Longest payload of a segment [default: 1460, IPv6 1440, less what options take]
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u16).range(216..=8_960))]
    mss: Option<u16>,
}

/// Parses `90%` or `0.9`.
fn parse_share(text: &str) -> Result<f64, String> {
    let share = match text.strip_suffix('%') {
        Some(percent) => percent.parse::<f64>().map(|percent| percent / 100.0),
        None => text.parse(),
    };
    let share = share.ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| format!("`{text}` is no share such as 5% or 0.05"))
}

fn parse_release(text: &str) -> Result<Release, String> {
    match text {
        "slowest" => Ok(Release::Slowest),
        "buffer" => Ok(Release::Buffer),
        share => match parse_share(share) {
            Ok(share) if share > 0.0 => Ok(Release::Percentile(share)),
            _ => Err("it is slowest, buffer, or a share such as 90%".to_owned()),
        },
    }
}

fn parse_fairness(text: &str) -> Result<Fairness, String> {
    if text == "strict" {
        return Ok(Fairness::Strict);
    }
    let bounds = text.split_once(',').and_then(|(a, b)| {
        let (a, b): (f64, f64) = (a.trim().parse().ok()?, b.trim().parse().ok()?);
        (a > 0.0 && a <= b && b.is_finite()).then_some(Fairness::Essential { a, b })
    });
    bounds.ok_or_else(|| "it is strict, or two factors such as 1,2".to_owned())
}

fn parse_rtt(text: &str) -> Result<RttChoice, String> {
    if text == "max" {
        return Ok(RttChoice::Maximum);
    }
    match parse_share(text) {
        Ok(share) if share > 0.0 => Ok(RttChoice::Percentile(share)),
        _ => Err("it is max, or a share such as 90%".to_owned()),
    }
}

fn parse_ack_filter(text: &str) -> Result<bool, String> {
    match text {
        "auto" => Ok(true),
        "off" => Ok(false),
        _ => Err("it is auto or off".to_owned()),
    }
}

fn parse_congestion(text: &str) -> Result<Congestion, String> {
    match text {
        "reno" => Ok(Congestion::Reno),
        "cubic" => Ok(Congestion::Cubic),
        _ => Err("it is reno or cubic".to_owned()),
    }
}

impl EngineArgs {
    /// Returns the options of a server with these rules.
    pub(super) fn options(&self, listen: Listen, channel: Group) -> ServeOptions {
        let mut options = ServeOptions::new(listen, channel);
        options.interface.clone_from(&self.interface);
        options.address = self.address;
        options.rate = self.rate;
        options.hop_limit = self.scope;
        options.ack_filter = self.ack_filter;
        let defaults = options.config.clone();
        let mut removal = defaults.removal;
        (removal.stall, removal.closed_window) = (self.stall, self.closed_window);
        (removal.rtt, removal.window) = (self.max_rtt, self.min_window);
        options.config = SourceConfig {
            mss: self.mss.unwrap_or(defaults.mss),
            buffer: self.buffer as usize,
            release: self.release,
            fairness: self.fairness,
            rtt: self.rtt,
            congestion: self.congestion,
            threshold: self.threshold,
            real_time: self.real_time.map(Duration::from_millis),
            removal,
            children: self.connections as usize,
            ..defaults
        };
        options
    }
}

impl WhatArgs {
    fn what(self) -> anyhow::Result<What> {
        let (web, smallest) = (self.start.web(self.http_args), self.http_args.smallest);
        let (start, keep) = (self.start.start(), self.keep);
        match (self.http, self.file) {
            (Some(path), _) => Ok(What::Directory { path, start: web, smallest }),
            (None, Some(path)) => Ok(What::File { path, start, keep }),
            (None, None) => {
                let input = std::io::stdin().as_fd().try_clone_to_owned();
                Ok(What::pipe(input.context("cannot read standard input")?.into(), start))
            }
        }
    }
}

/// Runs the command.
///
/// # Errors
///
/// If nothing can be served.
pub(super) fn run(args: ServeArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let options = args.engine.options(args.listen, args.channel);
    let teller = Arc::new(ServerTeller(Teller::new(output)));
    let observer: Arc<dyn ServeObserver> = teller.clone();
    let summary = serve(args.what.what()?, &options, &observer, |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.0.meter.clear();
    finish(&summary?, output);
    Ok(ExitCode::SUCCESS)
}

/// Reports the end of a server.
pub(super) fn finish(summary: &ServeSummary, output: &Output) {
    output.json(&json!({ "event": "done", "summary": summary, "ok": true }));
    output.note(said(summary));
}

fn said(summary: &ServeSummary) -> String {
    let ServeSummary { traffic, .. } = summary;
    format!(
        "{} in {:.1} s, {} of them together; {} sent, {} received by all: {} saved against unicast; \
         {} multicast again, {} sent again to one; {} cut off",
        counted(summary.answers, "answer"),
        summary.seconds,
        summary.together,
        ByteCount(traffic.sent_bytes),
        ByteCount(traffic.acknowledged_bytes),
        ByteCount(traffic.saved_bytes),
        counted(traffic.multicast_again, "segment"),
        traffic.unicast_again,
        counted(summary.removed, "receiver")
    )
}

/// Formats a rate.
pub(super) fn rate(bits_per_s: u64) -> String {
    Rate::from_bits_per_s(bits_per_s).map_or("idle".to_owned(), |rate| rate.to_string())
}

/// Reports on a server.
pub(super) struct ServerTeller(pub(super) Teller<Report>);

impl ServeObserver for ServerTeller {
    fn serving(&self, serving: &Serving) {
        let Serving { listen, channel, interface } = serving;
        self.0.output.json(&json!({
            "event": "serving",
            "listen": listen.to_string(),
            "channel": channel.to_string(),
            "interface": interface,
        }));
        self.0.output.note(format!(
            "serving at {listen}, multicast on {channel} by {interface}; on the clients' hosts: \
             umbel smo join {channel}@{listen}"
        ));
    }

    fn progress(&self, report: &Report) {
        if self.0.output.is_json() {
            return self.0.tell(report, |_| TELL_EVERY);
        }
        let traffic = &report.traffic;
        self.0.meter.message(&format!(
            "{}, {} by multicast · {} · {} · {} sent, {} saved · again: {} to all, {} to one",
            counted(report.receivers, "receiver"),
            report.hearing,
            counted(report.streams, "stream"),
            rate(report.rate_bits_per_s),
            ByteCount(traffic.sent_bytes),
            ByteCount(traffic.saved_bytes),
            traffic.multicast_again,
            traffic.unicast_again
        ));
    }

    fn ended(&self, account: &Account) {
        self.0.output.json(&json!({ "event": "ended", "account": account }));
        tracing::info!(
            "{} ended after {:.1} s: {} received, {} by multicast and {} by unicast, {} again; {}",
            account.peer,
            account.seconds,
            ByteCount(account.bytes),
            ByteCount(account.multicast_bytes),
            ByteCount(account.unicast_bytes),
            counted(account.unicast_again, "segment"),
            account.reason,
        );
    }

    fn removed(&self, peer: &str, reason: &'static str) {
        self.0.output.json(&json!({ "event": "removed", "peer": peer, "reason": reason }));
        self.0.output.note(format!("{peer} is cut off: {reason}"));
    }

    fn note(&self, line: &str) {
        self.0.tell_note(&plain(line));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_words_or_numbers_within_their_bounds() {
        assert_eq!(parse_share("5%"), Ok(0.05));
        assert_eq!(parse_release("90%"), Ok(Release::Percentile(0.9)));
        assert_eq!(parse_release("buffer"), Ok(Release::Buffer));
        assert_eq!(parse_fairness("0.5, 2"), Ok(Fairness::Essential { a: 0.5, b: 2.0 }));
        assert_eq!(parse_rtt("0.9"), Ok(RttChoice::Percentile(0.9)));
        for text in ["", "101%", "-1", "nan", "x"] {
            assert!(parse_share(text).is_err(), "{text}");
            assert!(parse_release(text).is_err() && parse_rtt(text).is_err(), "{text}");
        }
        for text in ["", "1", "2,1", "0,1", "1,inf", "a,b"] {
            assert!(parse_fairness(text).is_err(), "{text}");
        }
    }
}
