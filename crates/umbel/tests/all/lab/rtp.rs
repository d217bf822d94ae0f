//! `umbel stream --rtp` and `umbel watch --rtp` between hosts, with ffmpeg at both ends.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::streams::{Source, Streams, level, sites};
use crate::support::{lab, skip};
use nix::sys::signal::Signal;

/// Kills a program at its end.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn has_ffmpeg() -> bool {
    let installed = Command::new("ffmpeg").arg("-version").stdout(Stdio::null()).status();
    let installed = installed.is_ok_and(|status| status.success());
    if !installed {
        skip("ffmpeg is not installed");
    }
    installed
}

/// Waits until a condition holds.
#[track_caller]
fn wait_until(streams: &Streams<'_>, what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !holds() {
        if Instant::now() > until {
            streams.logs.fail(&format!("not in time: {what}"));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Lets ffmpeg encode a picture in two sizes, and send both by RTP. Returns its description.
fn encode(streams: &Streams<'_>) -> (Killed, PathBuf) {
    let description = streams.path("encoder.sdp");
    let codec = "-c:v libx264 -preset ultrafast -tune zerolatency -g 10";
    let layer = |rate: u32, port: u16| {
        format!(
            "{codec} -b:v {rate}k -maxrate {rate}k -bufsize {rate}k \
             -f rtp rtp://127.0.0.1:{port}?pkt_size=1200"
        )
    };
    let mut ffmpeg = streams.host("h1").command("ffmpeg");
    ffmpeg.args(["-v", "error", "-re", "-f", "lavfi", "-i", "testsrc2=size=160x88:rate=10"]);
    ffmpeg.args(["-filter_complex", "[0:v]split=2[a][b];[b]scale=80:44[c]", "-map", "[c]"]);
    ffmpeg.args(layer(60, 5004).split_whitespace()).args(["-map", "[a]"]);
    ffmpeg.args(layer(200, 5006).split_whitespace()).arg("-sdp_file").arg(&description);
    let ffmpeg = Killed(ffmpeg.stdin(Stdio::null()).spawn().unwrap());
    let is_whole = || {
        let text = fs::read_to_string(&description).unwrap_or_default();
        text.matches("a=rtpmap").count() == 2
    };
    wait_until(streams, "the encoder's description", is_whole);
    (ffmpeg, description)
}

fn stream(streams: &Streams<'_>, options: &[&str]) -> Source {
    let mut command = streams.umbel("h1");
    command.args(["stream", "--rtp", "encoder.sdp", "--name", "live", "--json"]).args(options);
    streams.follow(Process::start("source", command, &streams.logs))
}

/// Watches the stream at `a1`. On a busy machine delays rise without a queue, so that
/// `--controller delay` would leave layers.
fn watch(streams: &Streams<'_>) -> Process {
    let to = ["--rtp", "127.0.0.1:6004", "--sdp-out", "player.sdp"];
    let receiver = streams.watch("a1", &to);
    wait_until(streams, "the player's description", || {
        fs::read_to_string(streams.path("player.sdp")).is_ok_and(|text| text.contains("a=rtpmap"))
    });
    receiver
}

/// Lets ffmpeg decode this number of pictures of some media at `a1`. Returns what it complains of.
fn play(streams: &Streams<'_>, media: &[&str], pictures: usize) -> String {
    let mut ffmpeg = streams.host("a1").command("timeout");
    ffmpeg.args(["40", "ffmpeg", "-v", "warning", "-protocol_whitelist", "file,udp,rtp", "-i"]);
    ffmpeg.arg(streams.path("player.sdp"));
    for medium in media {
        ffmpeg.args(["-map", medium, "-frames:v", &pictures.to_string(), "-f", "framecrc", "-"]);
    }
    let output = ffmpeg.stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let decoded = text.lines().filter(|line| !line.starts_with('#')).count();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let expected = media.len() * pictures;
    if !output.status.success() || decoded < expected {
        streams.logs.fail(&format!("{decoded} pictures of {expected}: {said}"));
    }
    said
}

fn end(mut process: Process) -> serde_json::Value {
    process.signal(Signal::SIGINT);
    process.wait_done(SOON)
}

#[test]
fn two_encodings_of_ffmpeg_reach_another_as_one_stream() {
    if !has_ffmpeg() {
        return;
    }
    let Some(lab) = lab(&sites(&[("a", "8M", 1)])) else { return };
    let streams = Streams::new(&lab);
    let (_encoder, _) = encode(&streams);
    let source = stream(&streams, &["--simulcast", "--headroom", "200"]);
    let receiver = watch(&streams);
    let said = play(&streams, &["0:v:0"], 120);
    println!("the player says: {said}");
    // It changes to the better encoding, if the machine is not too busy for it meanwhile.
    wait_until(&streams, "the better encoding", || level(&receiver) == 2);
    let summary = end(receiver);
    assert!(summary["screen"]["shown"].as_u64().unwrap() >= 120, "{summary}");
    assert_eq!(
        (summary["screen"]["refused"].as_u64(), summary["lost"].as_u64()),
        (Some(0), Some(0))
    );
    let sent = end(source.process);
    let [taken, refused, dropped] =
        ["taken", "refused", "dropped"].map(|field| sent[field].as_u64().unwrap());
    assert!(taken > 120 && refused == 0, "{sent}");
    // An encoder that stalled on a busy machine makes up for it at once, beyond the rate of its
    // layer.
    assert!(dropped > 0 || !said.contains("cseq") && !said.contains("missed"), "{said}");
}

#[test]
fn two_layers_with_repairs_reach_a_player_on_ports_of_their_own() {
    if !has_ffmpeg() {
        return;
    }
    let Some(lab) = lab(&sites(&[("a", "8M", 1)])) else { return };
    let streams = Streams::new(&lab);
    let (encoder, description) = encode(&streams);
    let source = stream(&streams, &["--layers", "150k,400k", "--fec", "8+3,16+2"]);
    let receiver = watch(&streams);
    wait_until(&streams, "both layers", || level(&receiver) == 2);
    play(&streams, &["0:v:0", "0:v:1"], 40);
    // The encoder restarts: with its own numbers, times and sources.
    drop(encoder);
    std::thread::sleep(Duration::from_secs(2));
    fs::remove_file(description).unwrap();
    let (_encoder, _) = encode(&streams);
    let before = level(&receiver);
    let summary = end(receiver);
    assert_eq!((before, summary["failure"].as_str()), (2, None), "{summary}");
    let sent = end(source.process);
    assert!(sent["repairs"].as_u64().unwrap() > 0 && sent["refused"] == 0, "{sent}");
}
