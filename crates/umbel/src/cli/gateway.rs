//! `umbel gateway`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use umbel_engine::units::{ByteCount, counted, rate_text};
use umbel_wire::stream::Stream;

use super::duration::parse_duration;
use super::output::{Output, plain};
use super::signals;
use super::teller::{Teller, dropped_line};
use super::watch::{forged_line, with_forged};
use crate::directory::SessionSelector;
use crate::gateway::{
    Experiment, GatewayObserver, GatewayOptions, GatewaySnapshot, GatewaySummary, gateway,
};

/// Options of `umbel gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel gateway film                                 then open http://127.0.0.1:8081/
  ffplay http://127.0.0.1:8081/film/master.m3u8      or VLC, mpv, Safari, hls.js
  umbel gateway film --listen 0.0.0.0:8081           also for other devices of a home
  umbel gateway film@192.0.2.2 --max-level 2         of this source, at most its second rendition
The rendition follows what the path carries. What multicast loses is fetched from the source if it
repairs (`umbel stream --hls … --repair-listen …`). Players see what is held, and nothing else.
Ends half a minute after the stream, or by Ctrl-C. The first sender of a name is believed and
remembered; later ones must have its key. Firewalls must let multicast to UDP ports 9875, 7704 and
7705 in.")]
pub(super) struct GatewayArgs {
    /// The stream, as `umbel groups` lists it: NAME, or NAME@ADDRESS of its source; or the whole
    /// umbel-stream://… that `umbel stream` printed
    #[arg(value_name = "NAME|URL")]
    stream: SessionSelector,
    /// Address at which players are served
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:8081")]
    listen: SocketAddr,
    /// Name by which players ask for this machine, besides its addresses and its own name
    #[arg(long = "host-name", value_name = "NAME")]
    host_names: Vec<String>,
    /// Best rendition to receive, from 1 [default: all]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u8).range(1..))]
    max_level: Option<u8>,
    /// Fetch nothing from the source
    #[arg(long)]
    no_repair: bool,
    /// Interface, by name or address [default: the one on which the source is heard, of all]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// Time to wait for the stream to be on the air
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = parse_duration)]
    wait: Duration,
    /// Directory of the senders that are known [default: ~/.local/state/umbel]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
///
/// If nothing can be received or served.
pub(super) fn run(args: GatewayArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    let name = args.stream.name.as_str().to_owned();
    let host = Arc::new(Keeper { name, teller: Teller::new(output) });
    let options = GatewayOptions {
        listen: args.listen,
        host_names: args.host_names,
        max_level: args.max_level,
        interface: args.interface,
        wait: args.wait,
        repair: !args.no_repair,
        state_dir: args.state_dir,
        ..GatewayOptions::new(args.stream)
    };
    let observer: Arc<dyn GatewayObserver> = host.clone();
    let summary = gateway(options, &observer, |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    host.teller.meter.clear();
    Ok(finish(&summary?, output))
}

fn finish(summary: &GatewaySummary, output: &Output) -> ExitCode {
    output.json(&json!({ "event": "done", "summary": summary, "ok": true }));
    let loss = summary.lost as f64 / (summary.packets + summary.lost).max(1) as f64;
    output.note(format!(
        "{} in {:.1} s, {} left out, {}; {} received, loss {:.2} %; {} repaired by {}; {}, {} failed",
        counted(summary.segments, "segment"),
        summary.seconds,
        summary.skipped,
        counted(summary.switches, "rendition change"),
        ByteCount(summary.bytes),
        loss * 100.0,
        counted(summary.repaired, "file"),
        ByteCount(summary.repaired_bytes),
        counted(summary.experiments, "join-experiment"),
        summary.failed
    ));
    if let Some(line) = forged_line(summary.forged, summary.unchecked) {
        output.note(line);
    }
    if let Some(line) = dropped_line(summary.dropped_here) {
        output.note(line);
    }
    ExitCode::SUCCESS
}

/// Reports on a gateway.
struct Keeper {
    name: String,
    teller: Teller<GatewaySnapshot>,
}

impl GatewayObserver for Keeper {
    fn listening(&self, address: SocketAddr) {
        let name =
            percent_encoding::utf8_percent_encode(&self.name, percent_encoding::NON_ALPHANUMERIC);
        let player = format!("http://{address}/{name}/master.m3u8");
        self.teller.output.json(&json!({ "event": "listening", "player": player }));
        self.teller.output.note(format!("play {player}, or open http://{address}/"));
    }

    fn found(&self, stream: &Stream, interface: &str) {
        let output = &self.teller.output;
        let layers: Vec<u64> = stream.layers.iter().map(|layer| layer.kbit_per_s).collect();
        output.json(&json!({
            "event": "stream",
            "name": stream.name.as_str(),
            "tsi": stream.tsi.0,
            "source": stream.source.to_string(),
            "base": stream.base.to_string(),
            "repair": stream.repair,
            "interface": interface,
            "layers_kbit_per_s": layers,
        }));
        let repair = if stream.repair.is_some() { "" } else { ", which repairs nothing" };
        output.note(format!(
            "`{}` of {}{repair}: {}, on {} by {interface}",
            plain(stream.name.as_str()),
            stream.source,
            counted(stream.layers.len(), "rendition"),
            stream.base
        ));
    }

    fn level(&self, level: u8, layers: u8, reason: &'static str) {
        let event = json!({ "event": "level", "level": level, "reason": reason });
        self.teller.output.json(&event);
        tracing::info!("rendition {level} of {layers}: {reason}");
    }

    fn experiment(&self, experiment: &Experiment) {
        self.teller.output.json(&json!({ "event": "experiment", "experiment": experiment }));
    }

    fn second(&self, snapshot: &GatewaySnapshot) {
        self.teller.output.json(&json!({ "event": "second", "second": snapshot }));
        let line = format!(
            "rendition {} of {} · {} · loss {:.1} % · {:.0} s held · {} repaired · {} left out",
            snapshot.level,
            snapshot.layers,
            rate_text(snapshot.rate_bits_per_s),
            snapshot.loss * 100.0,
            snapshot.held_s,
            snapshot.repaired,
            snapshot.skipped
        );
        self.teller.meter.message(&with_forged(line, snapshot.forged));
    }

    fn note(&self, line: &str) {
        self.teller.tell_note(line);
    }
}
