//! `umbel stream`.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use serde_json::json;
use umbel_engine::units::{ByteCount, Rate, counted, rate_text};
use umbel_net::interface::Family;
use umbel_wire::session::SessionName;
use umbel_wire::stream::LayerFec;

use super::output::{Output, plain};
use super::rate::parse_rate;
use super::signals;
use super::teller::{Since, TELL_EVERY, Teller};
use crate::directory::{Noun, SessionUrl};
use crate::stream::hls::HlsOptions;
use crate::stream::input::{Conversion, Video};
use crate::stream::rtp::RtpOptions;
use crate::stream::{
    AirSnapshot, Begun, StreamObserver, StreamOptions, StreamSnapshot, StreamSummary, Way, stream,
};

/// Options of `umbel stream`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  umbel stream talk.mp4 --name lecture               whatever ffmpeg reads, at its own pace
  umbel stream camera --name lecture --size 1280x720 the first camera
  umbel stream - --name lecture < talk.y4m           Y4M, which needs no ffmpeg
  umbel stream talk.y4m --name lecture --loop --layers 128k,256k,512k
  umbel watch lecture -o - | ffplay -                on any number of other machines
  umbel stream --hls ./ladder --name film            what `ffmpeg -f hls` writes there, as it does
  umbel stream --hls ./ladder --name film --repair-listen 0.0.0.0:7706
  umbel gateway film                                 on other machines, for browsers and players
  umbel stream --rtp film.sdp --name film --simulcast    encodings that `ffmpeg -f rtp` sends
  umbel watch film --rtp 127.0.0.1:5004 --sdp-out watch.sdp
Each receiver gets as many layers as its path carries. A layer adds to those below it. Its rate is
what it takes on the wire, headers and repairs included. With --hls, a layer is a rendition, of
which each receiver gets one; the directory has a master playlist (ffmpeg: -master_pl_name). With
--rtp, a layer is a medium of the session description, and its packets are carried as they are.
Ends with the video, or by Ctrl-C. Receivers are told.")]
pub(super) struct StreamArgs {
    /// Source of pictures: `-` for Y4M on standard input, a file, a URL, `camera`, or /dev/videoN
    #[arg(value_name = "VIDEO", required_unless_present_any = ["hls", "rtp"])]
    video: Option<String>,
    /// A directory of HTTP Live Streaming instead, as it is being written or finished
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["video", "layers", "size", "fps", "again"])]
    hls: Option<PathBuf>,
    /// RTP instead, from an encoder that this session description describes (ffmpeg: -sdp_file):
    /// where it is received, one port a layer, and in which formats
    #[arg(long, value_name = "SDP-FILE",
        conflicts_with_all = ["video", "hls", "size", "fps", "again", "repair_listen"])]
    rtp: Option<PathBuf>,
    /// With --rtp: layers are encodings of the same, of which each receiver gets one [default: a
    /// layer adds to those below it]
    #[arg(long, requires = "rtp", conflicts_with_all = ["video", "hls"])]
    simulcast: bool,
    /// With --hls: where receivers fetch what they lost, by HTTP on the source's address [default:
    /// nowhere]
    #[arg(long, value_name = "ADDRESS:PORT", conflicts_with = "video")]
    repair_listen: Option<SocketAddr>,
    /// Rate of each layer beyond its rendition's BANDWIDTH (--hls) or its medium's b=AS (--rtp), in
    /// per cent
    #[arg(long, value_name = "PERCENT", default_value_t = 25, conflicts_with = "video",
        value_parser = clap::value_parser!(u16).range(..=1000))]
    headroom: u16,
    /// Name of the stream
    #[arg(long)]
    name: SessionName,
    /// Rate of each layer, the base first, such as 128k,256k,512k (bits per second) [default: six,
    /// by the size of the picture, each twice the one before; with --rtp b=AS and --headroom]
    #[arg(long, value_name = "RATE,…", value_delimiter = ',', value_parser = parse_rate)]
    layers: Option<Vec<Rate>>,
    /// Code of each layer, the base first: source and repair packets of a block, or `none`; with
    /// --hls, that of all layers [default: 8+3,16+2 and none above; --hls 128+13; --rtp none]
    #[arg(long, value_name = "K+R,…", value_delimiter = ',', value_parser = parse_fec)]
    fec: Option<Vec<Code>>,
    /// Size of the picture [default: the video's]
    #[arg(long, value_name = "WIDTHxHEIGHT", value_parser = parse_size)]
    size: Option<(u32, u32)>,
    /// Pictures per second: of Y4M they are taken to be so, all else is converted [default: the
    /// video's]
    #[arg(long, value_name = "NUMBER", value_parser = parse_fps)]
    fps: Option<f64>,
    /// Begin again at the end
    #[arg(long = "loop")]
    again: bool,
    /// Interface, by name or address [default: that of the default route]
    #[arg(long, value_name = "NAME|ADDRESS")]
    interface: Option<String>,
    /// Use IPv6
    #[arg(long)]
    ipv6: bool,
    /// Multicast group of the base layer; the others follow it [default: a source-specific one]
    #[arg(long, value_name = "ADDRESS")]
    group: Option<IpAddr>,
    /// Let receivers learn nothing from each other's join-experiments, where multicast from them
    /// does not pass
    #[arg(long)]
    no_control: bool,
    /// Most routers that packets pass, plus one
    #[arg(long, default_value_t = 32, value_name = "HOPS",
        value_parser = clap::value_parser!(u8).range(1..))]
    scope: u8,
    /// MTU of the path; data packets carry 100 bytes less [default: the interface's, at most 1500]
    #[arg(long)]
    mtu: Option<u16>,
    /// Directory of the key by which the stream is signed [default: ~/.local/state/umbel]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
}

/// Value of `--fec` for one layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Code(Option<LayerFec>);

fn parse_fec(text: &str) -> Result<Code, String> {
    if text == "none" {
        return Ok(Code(None));
    }
    let code = text.split_once('+').and_then(|(source, repair)| {
        let (source_symbols, repair_symbols): (u8, u8) =
            (source.parse().ok()?, repair.parse().ok()?);
        let sound = source_symbols > 0
            && repair_symbols > 0
            && source_symbols.checked_add(repair_symbols).is_some();
        sound.then_some(LayerFec { source_symbols, repair_symbols })
    });
    let wrong = || format!("`{text}` is no code such as 8+3 or `none`; together at most 255");
    code.map(|code| Code(Some(code))).ok_or_else(wrong)
}

fn parse_size(text: &str) -> Result<(u32, u32), String> {
    let size = text.split_once('x').and_then(|(width, height)| {
        let size: (u32, u32) = (width.parse().ok()?, height.parse().ok()?);
        (size.0 > 0 && size.1 > 0).then_some(size)
    });
    size.ok_or_else(|| format!("`{text}` is no size such as 1280x720"))
}

fn parse_fps(text: &str) -> Result<f64, String> {
    let fps = text.parse().ok().filter(|fps| (0.1..=240.0).contains(fps));
    fps.ok_or_else(|| format!("`{text}` is no number of pictures per second, 0.1 to 240"))
}

impl StreamArgs {
    fn video(&self) -> anyhow::Result<Video> {
        let video = self.video.as_deref().unwrap_or("-");
        if video != "-" {
            return Ok(Video::named(video));
        }
        let input = std::io::stdin().as_fd().try_clone_to_owned();
        Ok(Video::Pipe(input.context("cannot read standard input")?.into()))
    }

    fn way(&self) -> Way {
        Way {
            interface: self.interface.clone(),
            family: self.ipv6.then_some(Family::V6),
            group: self.group,
            control: !self.no_control,
            scope: self.scope,
            mtu: self.mtu,
            state_dir: self.state_dir.clone(),
            ..Way::new(self.name.clone())
        }
    }

    fn options(&self) -> StreamOptions {
        let codes = |codes: &Vec<Code>| codes.iter().map(|Code(code)| *code).collect();
        StreamOptions {
            conversion: Conversion { size: self.size, fps: self.fps, again: self.again },
            layers: self.layers.clone(),
            fec: self.fec.as_ref().map(codes),
            way: self.way(),
        }
    }

    fn rtp_options(&self, description: PathBuf) -> RtpOptions {
        let codes = self.fec.iter().flatten().map(|Code(code)| *code);
        RtpOptions {
            simulcast: self.simulcast,
            layers: self.layers.clone(),
            headroom: f64::from(self.headroom) / 100.0,
            fec: codes.collect(),
            ..RtpOptions::new(description, self.way())
        }
    }

    fn hls_options(&self, directory: PathBuf) -> anyhow::Result<HlsOptions> {
        let mut options = HlsOptions::new(directory, self.way());
        match self.fec.as_deref() {
            None => {}
            Some(&[Code(code)]) => options.fec = code,
            Some(codes) => bail!("--fec: {} codes; with --hls all layers have one", codes.len()),
        }
        options.headroom = f64::from(self.headroom) / 100.0;
        options.repair = self.repair_listen;
        Ok(options)
    }
}

/// Runs the command.
///
/// # Errors
///
/// If nothing can be sent, or the input breaks off.
pub(super) fn run(args: &StreamArgs, output: &Output) -> anyhow::Result<ExitCode> {
    let signals = signals::watch()?;
    if let Some(directory) = &args.hls {
        return super::hls::run(args.hls_options(directory.clone())?, &signals, output);
    }
    if let Some(description) = &args.rtp {
        return super::rtp::run(args.rtp_options(description.clone()), &signals, output);
    }
    let teller = Arc::new(Teller::new(output));
    let summary = stream(args.video()?, args.options(), teller.clone(), |interrupt| {
        signals.interrupts(move || interrupt.interrupt());
    });
    teller.meter.clear();
    finish(&summary?, output)
}

fn finish(summary: &StreamSummary, output: &Output) -> anyhow::Result<ExitCode> {
    let ok = summary.failure.is_none();
    output.json(&json!({ "event": "done", "summary": summary, "ok": ok }));
    output.note(format!(
        "{} in {:.1} s; {} in {}, {} of them repairs; {} heard",
        counted(summary.pictures, "picture"),
        summary.seconds,
        ByteCount(summary.bytes),
        counted(summary.packets, "packet"),
        summary.repairs,
        counted(summary.experiments, "join-experiment")
    ));
    if summary.left_out > 0 {
        output.note(format!(
            "{} left out, since encoding takes too long here: try a smaller --size or fewer \
             pictures by --fps",
            counted(summary.left_out, "picture")
        ));
    }
    if let Some(failure) = &summary.failure {
        bail!("{}", plain(failure));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the part of a line of progress that sources of all contents have.
pub(super) fn air_line(air: &AirSnapshot) -> String {
    let sum = air.layers.iter().map(|layer| layer.rate_bits_per_s).sum();
    let (receivers, experiments) = (air.receivers, counted(air.experiments, "experiment"));
    format!("{} · receivers: about {receivers} · {experiments}", rate_text(sum))
}

/// Logs the progress of a running source for -v and -vv.
fn log(now: &StreamSnapshot, since: Since<StreamSnapshot>) {
    let Since { last, second } = since;
    if now.air.receivers != last.air.receivers {
        let AirSnapshot { receivers, at_level, .. } = &now.air;
        tracing::info!("receivers: about {receivers}; at each level: {at_level:?}");
    }
    if let Some((_, past)) = second {
        let rates: Vec<String> =
            now.air.layers.iter().map(|layer| rate_text(layer.rate_bits_per_s)).collect();
        tracing::debug!(
            "{}, {:.1} ms each; layers: {}; {}",
            counted(now.pictures - past.pictures, "picture"),
            now.encoding_ms,
            rates.join(", "),
            counted(now.air.experiments, "experiment")
        );
    }
}

/// Reports that a stream is on the air, and the command that shows it, given its URL.
pub(super) fn tell_begun(output: &Output, begun: &Begun, command: impl FnOnce(&str) -> String) {
    let Begun { stream, pin, interface } = begun;
    let url = SessionUrl { noun: Noun::Stream, name: &stream.name, pin: *pin }.to_string();
    let channels = stream.channels();
    let layers: Vec<_> = channels
        .iter()
        .zip(&stream.layers)
        .map(|(channel, layer)| {
            json!({
                "channel": channel.to_string(),
                "kbit_per_s": layer.kbit_per_s,
                "fec": layer.fec.map(|fec| [fec.source_symbols, fec.repair_symbols]),
            })
        })
        .collect();
    output.json(&json!({
        "event": "streaming",
        "name": stream.name.as_str(),
        "url": &url,
        "pin": pin.to_string(),
        "tsi": stream.tsi.0,
        "source": stream.source.to_string(),
        "control": stream.control.map(|control| control.to_string()),
        "repair": stream.repair,
        "interface": interface,
        "content": stream.content.to_string(),
        "layers": layers,
    }));
    let rates: Vec<String> =
        stream.layers.iter().map(|layer| rate_text(layer.kbit_per_s * 1_000)).collect();
    output.note(format!(
        "streaming {} as `{}` on {} by {interface}, layers of {}; watch it with: {}",
        stream.content,
        stream.name,
        stream.base,
        rates.join(", "),
        command(&format!("'{url}'")),
    ));
}

impl StreamObserver<StreamSnapshot> for Teller<StreamSnapshot> {
    fn begun(&self, begun: &Begun) {
        tell_begun(&self.output, begun, |url| format!("umbel watch {url} -o - | ffplay -"));
    }

    fn progress(&self, snapshot: &StreamSnapshot) {
        log(snapshot, self.since(snapshot));
        if self.output.is_json() {
            return self.tell(snapshot, |_| TELL_EVERY);
        }
        let stalled = if snapshot.stalled { " · the input stalls" } else { "" };
        self.meter.message(&format!(
            "{} · {}{stalled}",
            counted(snapshot.pictures, "picture"),
            air_line(&snapshot.air)
        ));
    }

    fn note(&self, line: &str) {
        self.tell_note(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_two_numbers_or_none() {
        let code = LayerFec { source_symbols: 8, repair_symbols: 3 };
        assert_eq!(parse_fec("8+3"), Ok(Code(Some(code))));
        assert_eq!(parse_fec("none"), Ok(Code(None)));
        for text in ["", "8", "8+0", "0+3", "250+6", "8+3+1", "a+b"] {
            assert!(parse_fec(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_and_rates_of_pictures_have_bounds() {
        assert_eq!(parse_size("1280x720"), Ok((1280, 720)));
        assert!(["", "1280", "0x720", "-1x2", "axb"].iter().all(|text| parse_size(text).is_err()));
        assert_eq!(parse_fps("29.97"), Ok(29.97));
        assert!(["", "0", "241", "NaN", "-1"].iter().all(|text| parse_fps(text).is_err()));
    }
}
