//! `umbel watch`.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::json;
use umbel_engine::rlm::ControllerKind;
use umbel_engine::units::{ByteCount, counted, rate_text};
use umbel_wire::stream::Stream;

use super::duration::parse_duration;
use super::output::{Output, plain};
use super::signals;
use super::teller::{Teller, dropped_line};
use crate::directory::SessionSelector;
use crate::watch::{
    Experiment, RtpTarget, Target, WatchObserver, WatchOptions, WatchSnapshot, WatchSummary, watch,
};

/// Options of `umbel watch`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel watch lecture -o - | ffplay -framedrop -     a player, by Y4M on a pipe
  umbel watch lecture -o lecture.mkv                 a file, written by ffmpeg
  umbel watch lecture -o lecture.y4m --for 10s       a file as it is, which needs no ffmpeg
  umbel watch lecture --stats                        no picture: levels, rates and losses
  umbel watch lecture@192.0.2.2 -o -                 of this source, where several call theirs alike
  umbel watch film --rtp 127.0.0.1:5004 --sdp-out watch.sdp      a stream of RTP, for a player:
  ffplay -protocol_whitelist file,udp,rtp watch.sdp
The picture gets better as far as the path carries more, and worse where it carries less. The first
sender of a name is believed and remembered; later ones must have its key. Firewalls must let
multicast to UDP ports 9875, 7704 and 7705 in.")]
pub(super) struct WatchArgs {
    /// The stream, as `umbel groups` lists it: NAME, or NAME@ADDRESS of its source; or the whole
    /// umbel-stream://… that `umbel stream` printed
    #[arg(value_name = "NAME|URL")]
    stream: SessionSelector,
    /// Destination of pictures: `-` for Y4M on standard output, a .y4m file, or a file that ffmpeg
    /// writes; it is replaced without a question
    #[arg(short, long, value_name = "FILE|-", required_unless_present_any = ["stats", "rtp"])]
    output: Option<PathBuf>,
    /// Address at which a player receives a stream of RTP: the port of the base layer; each further
    /// layer is two ports higher. Encodings of which one is received (simulcast) come as one stream
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "output")]
    rtp: Option<SocketAddr>,
    /// With --rtp: where to write the session description for the player
    #[arg(long, value_name = "FILE", requires = "rtp")]
    sdp_out: Option<PathBuf>,
    /// Print level, rate and loss each second, and each change of the level
    #[arg(long)]
    stats: bool,
    /// Rule by which the level is chosen: that of the RLM paper, or one that also looks at delays
    /// and rarely loses packets to try a level
    #[arg(long, value_name = "rlm|delay", default_value = "rlm", value_parser = parse_controller)]
    controller: ControllerKind,
    /// Most layers to receive [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..))]
    max_level: Option<u8>,
    /// Pictures for which packets wait for late ones: fewer make the picture fresher, more make it
    /// steadier
    #[arg(long, value_name = "PICTURES", default_value_t = 2,
        value_parser = clap::value_parser!(u32).range(0..=60))]
    delay: u32,
    /// Interface, by name or address [default: the one on which the source is heard, of all]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// Time to wait for the stream to be on the air
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_duration)]
    wait: Duration,
    /// Silence of the source after which the receiver gives up
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = parse_duration)]
    patience: Duration,
    /// Time for which to watch [default: to the end]
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    last: Option<Duration>,
    /// Directory of the senders that are known [default: ~/.local/state/umbel]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

fn parse_controller(text: &str) -> Result<ControllerKind, String> {
    match text {
        "rlm" => Ok(ControllerKind::Rlm),
        "delay" => Ok(ControllerKind::Delay),
        _ => Err("it is `rlm` or `delay`".to_owned()),
    }
}

impl WatchArgs {
    fn options(self, output: &Output) -> anyhow::Result<WatchOptions> {
        let rtp = self.rtp.map(|to| RtpTarget { to, description: self.sdp_out });
        let target = match self.output {
            None => rtp.map_or(Target::Nowhere, Target::Rtp),
            Some(path) if path == Path::new("-") => {
                if output.is_json() {
                    bail!("--json and `-o -` cannot share standard output: choose one of them");
                }
                if std::io::stdout().is_terminal() {
                    bail!("pictures are not for a terminal: pipe them, as in `… -o - | ffplay -`");
                }
                let pipe = std::io::stdout().as_fd().try_clone_to_owned();
                let pipe: std::fs::File = pipe.context("cannot write standard output")?.into();
                Target::Pipe(Box::new(pipe))
            }
            Some(path) => Target::File(path),
        };
        Ok(WatchOptions {
            controller: self.controller,
            max_level: self.max_level,
            delay: self.delay,
            interface: self.interface,
            wait: self.wait,
            patience: self.patience,
            last: self.last,
            state_dir: self.state_dir,
            ..WatchOptions::new(self.stream, target)
        })
    }
}

/// Runs the command.
///
/// # Errors
///
/// If nothing can be received, or the stream breaks off.
pub(super) fn run(args: WatchArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let viewer = Arc::new(Viewer { stats: args.stats, teller: Teller::new(output) });
    let observer: Arc<dyn WatchObserver> = viewer.clone();
    let summary = watch(args.options(output)?, &observer, |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    viewer.teller.meter.clear();
    finish(&summary?, output)
}

fn finish(summary: &WatchSummary, output: &Output) -> anyhow::Result<ExitCode> {
    let ok = summary.failure.is_none();
    output.json(&json!({ "event": "done", "summary": summary, "ok": ok }));
    let loss = summary.lost as f64 / (summary.packets + summary.lost).max(1) as f64;
    if summary.packets > 0 {
        let levels = summary.at_level.iter().enumerate().skip(1);
        let levels: Vec<String> = levels
            .filter(|(_, seconds)| **seconds >= 0.1)
            .map(|(level, seconds)| format!("{seconds:.1} s at {level}"))
            .collect();
        output.note(format!(
            "{} in {:.1} s; loss {:.2} %; {}; {}, {} failed",
            ByteCount(summary.bytes),
            summary.seconds,
            loss * 100.0,
            levels.join(", "),
            counted(summary.experiments, "join-experiment"),
            summary.failed
        ));
    }
    if summary.screen.shown > 0 {
        let screen = summary.screen;
        output.note(format!(
            "{} shown, {} of them the one before again; {} left out",
            counted(screen.shown, "picture"),
            screen.repeated,
            screen.skipped
        ));
    }
    if let Some(line) = forged_line(summary.forged, summary.unchecked) {
        output.note(line);
    }
    if let Some(line) = dropped_line(summary.dropped_here) {
        output.note(line);
    }
    if let Some(failure) = &summary.failure {
        bail!("{}", plain(failure));
    }
    Ok(ExitCode::SUCCESS)
}

/// Adds to a status line how many packets the source had not signed, if any came.
pub(super) fn with_forged(line: String, forged: u64) -> String {
    if forged > 0 { format!("{line} · {forged} forged") } else { line }
}

/// Returns the line about packets that the source had not signed, if any came.
pub(super) fn forged_line(forged: u64, unchecked: u64) -> Option<String> {
    if forged == 0 {
        return None;
    }
    let packets = counted(forged, "packet");
    let mut line = format!("dropped, as not signed by the stream's source: {packets}");
    if unchecked > 0 {
        write!(line, "; not even looked at, of anyone: {unchecked} more").ok()?;
    }
    Some(line)
}

/// Reports on a stream that is being watched.
struct Viewer {
    /// Whether each second has a line.
    stats: bool,
    teller: Teller<WatchSnapshot>,
}

impl Viewer {
    /// Reports a line that only some want to see.
    fn detail(&self, line: &str) {
        if self.stats {
            self.teller.output.note(line);
        } else {
            tracing::info!("{line}");
        }
    }
}

impl WatchObserver for Viewer {
    fn found(&self, stream: &Stream, interface: &str) {
        let output = &self.teller.output;
        let layers: Vec<u64> = stream.layers.iter().map(|layer| layer.kbit_per_s).collect();
        output.json(&json!({
            "event": "stream",
            "name": stream.name.as_str(),
            "tsi": stream.tsi.0,
            "source": stream.source.to_string(),
            "base": stream.base.to_string(),
            "control": stream.control.map(|control| control.to_string()),
            "interface": interface,
            "content": stream.content.to_string(),
            "layers_kbit_per_s": layers,
        }));
        output.note(format!(
            "`{}` of {}: {} in {}, on {} by {interface}",
            plain(stream.name.as_str()),
            stream.source,
            stream.content,
            counted(stream.layers.len(), "layer"),
            stream.base
        ));
    }

    fn level(&self, level: u8, layers: u8, reason: &'static str) {
        let event = json!({ "event": "level", "level": level, "reason": reason });
        self.teller.output.json(&event);
        self.detail(&format!("level {level} of {layers}: {reason}"));
    }

    fn experiment(&self, experiment: &Experiment) {
        self.teller.output.json(&json!({ "event": "experiment", "experiment": experiment }));
        self.detail(&match experiment {
            Experiment::Started { level } => format!("tries level {level}"),
            Experiment::Failed { level, after_ms } => {
                format!("level {level} is too much: loss after {after_ms:.0} ms")
            }
            Experiment::Succeeded { level } => format!("level {level} holds"),
        });
    }

    fn second(&self, snapshot: &WatchSnapshot) {
        self.teller.output.json(&json!({ "event": "second", "second": snapshot }));
        let line = format!(
            "level {} of {} · {} · loss {:.1} % · {:.0} pictures/s · receivers: about {}",
            snapshot.level,
            snapshot.layers,
            rate_text(snapshot.rate_bits_per_s),
            snapshot.loss * 100.0,
            snapshot.pictures_per_s,
            snapshot.receivers
        );
        let line = with_forged(line, snapshot.forged);
        if self.stats {
            self.teller.output.note(format!("{:>6.1} s  {line}", snapshot.seconds));
        } else {
            self.teller.meter.message(&line);
        }
    }

    fn note(&self, line: &str) {
        self.teller.tell_note(line);
    }
}
