//! Videos, names and networks that are not as they should be: one line each, and no hang.

use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::streams::{Streams, level};
use crate::support::{lab, star};
use nix::sys::signal::Signal;
use umbel_lab::{Impairment, Lab};

const SIZE: (u32, u32) = (160, 90);

/// Runs a line of shell commands on a host, with `$UMBEL`, for 60 s at most.
fn shell(streams: &Streams<'_>, host: &str, line: &str) -> Child {
    let mut command = streams.host(host).command("timeout");
    command.args(["360", "bash", "-o", "pipefail", "-c", line]);
    command.current_dir(streams.directory.path());
    command.env("UMBEL", env!("CARGO_BIN_EXE_umbel"));
    command.env("XDG_STATE_HOME", streams.path("state"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// Runs a line. Returns its exit code and what it says on standard error.
fn run(streams: &Streams<'_>, host: &str, line: &str) -> (Option<i32>, String) {
    let output = shell(streams, host, line).wait_with_output().unwrap();
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Asserts that a line fails with this code, and with one line that has all these words.
#[track_caller]
fn fails(streams: &Streams<'_>, host: &str, line: &str, code: i32, words: &[&str]) {
    let (got, said) = run(streams, host, line);
    assert_eq!(got, Some(code), "`{line}`: {said}");
    for word in words {
        assert!(said.contains(word), "`{line}` does not say {word:?}: {said}");
    }
    if code == 1 {
        let errors = said.lines().filter(|line| line.starts_with("umbel: ")).count();
        assert_eq!(errors, 1, "`{line}`: {said}");
    }
}

/// Installs a program called `ffmpeg` in a directory that is named before all others.
fn install_ffmpeg(streams: &Streams<'_>, script: &str) {
    let path = streams.path("bin");
    std::fs::create_dir_all(&path).unwrap();
    let file = path.join("ffmpeg");
    std::fs::write(&file, format!("#!/bin/bash\n{script}\n")).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

fn two_hosts() -> Option<Lab> {
    lab(&star(1, Impairment::none()))
}

#[test]
fn what_cannot_be_streamed_is_said_in_one_line() {
    let Some(lab) = two_hosts() else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, 20);
    let stream = |line: &str, code, words: &[&str]| {
        fails(&streams, "h1", &format!("\"$UMBEL\" stream {line} --name x"), code, words);
    };
    stream("none.y4m", 1, &["cannot read none.y4m"]);
    stream("- < /dev/null", 1, &["not Y4M"]);
    stream("- < \"$UMBEL\"", 1, &["not Y4M"]);
    stream("- --loop < clip.y4m", 1, &["--loop", "pipe"]);
    let y4m = |head: &str| format!("- < <(printf '{head}')");
    stream(&y4m("YUV4MPEG2 W0 H9 F30:1\\n"), 1, &["0x9"]);
    stream(&y4m("YUV4MPEG2 W99999 H99999 F30:1\\n"), 1, &["99999x99999"]);
    stream(&y4m("YUV4MPEG2 W64 H48 F30:0\\n"), 1, &["frames a second"]);
    stream(&y4m("YUV4MPEG2 W64 H48 F30:1 C444\\n"), 1, &["444", "yuv420p"]);
    stream(&y4m("YUV4MPEG2 W64 H48 F30:1\\nFRAME\\nxyz"), 1, &["middle of frame 0"]);
    stream("- < <(cat clip.y4m clip.y4m)", 1, &["frame 20", "FRAME"]);
    stream("clip.y4m --layers 5k", 1, &["layer 1 has 5.0 kbit/s", "10k"]);
    stream("clip.y4m --layers 100", 2, &["100M"]);
    stream(&format!("clip.y4m --layers {}20k", "20k,".repeat(16)), 1, &["17 layers"]);
    stream("clip.y4m --fec 250+6", 2, &["8+3"]);
    stream("clip.y4m --size 0x0", 2, &["1280x720"]);
    stream("clip.y4m --fps 0", 2, &["0.1 to 240"]);
    stream("clip.y4m --scope 0", 2, &["--scope"]);
    stream("clip.y4m --group 10.1.2.3", 1, &["10.1.2.3", "232.0.0.0/8"]);
    stream("clip.y4m --group 239.255.255.254", 1, &["no room for 6", "lower"]);
    stream("clip.y4m --mtu 100", 1, &["--mtu 100", "256"]);
    stream("clip.y4m --interface nowhere0", 1, &["nowhere0", "use one of"]);
    stream("clip.y4m --name a@b", 2, &["@"]);
    fails(&streams, "h1", "\"$UMBEL\" stream --name x", 2, &["VIDEO"]);
    // A path without ffmpeg: everything but plain Y4M needs it.
    let bare = |line: &str| format!("PATH=/nonexistent \"$UMBEL\" {line}");
    for line in ["film.mkv", "camera", "clip.y4m --size 64x48"] {
        let line = bare(&format!("stream {line} --name x"));
        fails(&streams, "h1", &line, 1, &["`ffmpeg` is not installed", "umbel stream -"]);
    }
    install_ffmpeg(&streams, "echo \"$*: nothing of that kind\" >&2; exit 3");
    let with = |line: &str| format!("PATH=\"$PWD/bin:$PATH\" \"$UMBEL\" {line}");
    let line = with("stream film.mkv --name x");
    fails(&streams, "h1", &line, 1, &["ffmpeg says: ", "-re -i film.mkv", "nothing of that kind"]);
}

#[test]
fn odd_sizes_and_converted_videos_are_watched_like_any_other() {
    let Some(lab) = two_hosts() else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("odd.y4m", (35, 17), 60);
    install_ffmpeg(
        &streams,
        "if [[ \"$*\" == *pipe:0* ]]; then cat > \"${!#}\"; else cat odd.y4m; sleep 600.125; fi",
    );
    let path = "PATH=\"$PWD/bin:$PATH\"";
    let source = shell(&streams, "h1", &format!("{path} \"$UMBEL\" stream odd.mkv --name live"));
    // A converter that says nothing for a while is no reason to end.
    let line = "\"$UMBEL\" watch live --wait 20s --for 8s -o";
    for output in ["out.y4m", "- > pipe.y4m", "out.mkv"] {
        let (code, said) = run(&streams, "h2", &format!("{path} {line} {output}"));
        assert_eq!(code, Some(0), "{output}: {said}");
    }
    // A viewer that comes while the camera stalls waits for a refresh.
    for (output, pictures) in [("out.y4m", 10), ("pipe.y4m", 10), ("out.mkv", 10)] {
        let bytes = std::fs::read(streams.path(output)).unwrap();
        assert!(bytes.starts_with(b"YUV4MPEG2 W35 H17 F30:1"), "{output}: {} bytes", bytes.len());
        let picture = 6 + 35 * 17 + 2 * 18 * 9;
        assert!(bytes.len() > pictures * picture, "{output}: {} bytes", bytes.len());
    }
    interrupt(&source);
    let output = source.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("no picture comes from the input"), "{said}");
    // The converter has ended, too, with what it had started, also if it never said a word.
    let left = || {
        let output =
            shell(&streams, "h1", "pgrep -f 'sleep [6]00.125'").wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    wait_until("the end of the converter", || left().is_empty());
    install_ffmpeg(&streams, "sleep 600.125");
    let source = shell(&streams, "h1", &format!("{path} \"$UMBEL\" stream odd.mkv --name live"));
    wait_until("the converter", || !left().is_empty());
    interrupt(&source);
    assert!(source.wait_with_output().unwrap().status.success());
    wait_until("the end of the converter", || left().is_empty());
}

/// Waits until a condition holds.
#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let until = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < until, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Interrupts the `umbel` that a line of [`shell`] runs.
///
/// `timeout` would pass a signal on twice, and the second one ends a command at once.
fn interrupt(shell: &Child) {
    // `timeout` leads its own process group.
    let group = shell.id().to_string();
    let status = Command::new("pkill").args(["-INT", "-x", "umbel", "-g", &group]).status();
    assert!(status.unwrap().success(), "no umbel runs in group {group}");
}

#[test]
fn what_cannot_be_watched_is_said_in_one_line() {
    let Some(lab) = two_hosts() else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, 60);
    let source = streams.stream("clip.y4m", &[]);
    let watch = |line: &str, code, words: &[&str]| {
        fails(&streams, "h2", &format!("\"$UMBEL\" watch {line}"), code, words);
    };
    watch("live", 2, &["--output"]);
    watch("live -o - --json", 1, &["--json", "-o -"]);
    watch("live --stats --max-level 0", 2, &["--max-level"]);
    watch("live --stats --max-level 7", 1, &["--max-level 7", "levels 1 to 6"]);
    watch("live --stats --controller magic", 2, &["rlm"]);
    watch("live -o /nonexistent/x.y4m", 1, &["cannot write /nonexistent/x.y4m"]);
    watch("nobody --stats --wait 1s", 1, &["no stream `nobody` is on the air", "umbel groups"]);
    let line = "PATH=/nonexistent \"$UMBEL\" watch live -o out.mkv";
    fails(&streams, "h2", line, 1, &["`ffmpeg` is not installed", ".y4m"]);
    let line = "\"$UMBEL\" recv live";
    fails(&streams, "h2", line, 1, &["is a live stream", "umbel watch 'live' -o - | ffplay -"]);
    let feed = shell(&streams, "h1", "sleep 20 | \"$UMBEL\" send - --name feed");
    watch("feed --stats", 1, &["is a feed", "umbel recv 'feed'"]);
    let (code, groups) = {
        let output = shell(&streams, "h2", "\"$UMBEL\" groups --wait 1s").wait_with_output();
        let output = output.unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    assert_eq!(code, Some(0));
    assert!(groups.contains("live video 160x90 in 6 layers"), "{groups}");
    assert!(groups.lines().any(|line| line.starts_with("feed")), "{groups}");
    interrupt(&feed);
    drop((feed.wait_with_output(), source));
}

#[test]
fn a_reader_that_stops_ends_the_watch_and_one_that_sleeps_costs_no_memory() {
    let Some(lab) = two_hosts() else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", (640, 360), 30);
    let _source = streams.stream("clip.y4m", &[]);
    let line = "\"$UMBEL\" watch live -o - | head -c 1000000 | wc -c";
    let output = shell(&streams, "h2", line).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(output.stdout, b"1000000\n");
    assert_eq!(said.lines().filter(|line| line.starts_with("umbel: ")).count(), 0, "{said}");
    // 8 s of pictures are 83 MB; nobody reads them.
    let line = "bash -c 'echo $$ > id; exec \"$UMBEL\" watch live --for 8s -o -' | \
                (sleep 5; grep VmHWM /proc/$(cat id)/status >&2; sleep 6)";
    let output = shell(&streams, "h2", line).wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("pictures are left out"), "{said}");
    let most = said.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    let most: u64 = most.trim().trim_end_matches(" kB").parse().unwrap_or(0);
    assert!((1..60_000).contains(&most), "{most} kB; {said}");
}

#[test]
fn layers_that_come_in_any_order_or_not_at_all_still_make_a_picture() {
    let mess = Impairment::none().loss(0.1).delay(Duration::from_millis(20));
    let mess = Impairment { reorder: 0.2, duplicate: 0.1, ..mess };
    let Some(lab) = lab(&star(1, mess)) else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, 60);
    let options = ["--layers", "64k,64k,64k", "--fec", "8+4,8+4,8+4"];
    let _source = streams.stream("clip.y4m", &options);
    let mut receiver = streams.watch("h2", &["--for", "10s", "-o", "out.y4m"]);
    let summary = receiver.wait_done(SOON);
    let screen = &summary["screen"];
    assert_eq!(screen["refused"], 0, "{summary}");
    assert!(screen["shown"].as_u64().unwrap() > 60, "{summary}");
    assert!(summary["lost"].as_u64().unwrap() > 0, "nothing was lost: {summary}");
    assert!(summary["restored"].as_u64().unwrap() > 0, "{summary}");
}

#[test]
fn a_source_that_is_started_again_is_followed_and_one_that_is_gone_is_given_up() {
    let Some(lab) = two_hosts() else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, 60);
    let mut source = streams.stream("clip.y4m", &[]);
    let mut receiver = streams.watch("h2", &["--patience", "15s", "-o", "out.y4m"]);
    receiver.wait_for_event("level", SOON);
    source.process.kill();
    let mut source = streams.stream("clip.y4m", &[]);
    receiver.wait_for("another stream", SOON, |event| {
        event["message"].as_str().is_some_and(|line| line.contains("was started again"))
    });
    let seconds = receiver.events("second").len();
    wait_until("packets of the other stream", || {
        let fresh = &receiver.events("second")[seconds..];
        fresh.iter().any(|event| event["second"]["rate_bits_per_s"].as_u64() > Some(10_000))
    });
    assert!(receiver.events("stream").len() == 2 && level(&receiver) >= 1);
    source.process.kill();
    assert_eq!(receiver.wait_end(Duration::from_secs(40)).code(), Some(1));
    let said = receiver.stderr();
    assert!(said.contains("nothing has come for 15 s"), "{said}");
}

#[test]
fn who_is_told_to_end_leaves_and_says_goodbye() {
    let Some(lab) = two_hosts() else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, 60);
    let mut source = streams.stream("clip.y4m", &[]);
    let mut receiver = streams.watch("h2", &[]);
    receiver.wait_for_event("level", SOON);
    let joined = || {
        let mut command = streams.host("h2").command("cat");
        let output = command.arg("/proc/net/mcfilter").output().unwrap();
        String::from_utf8(output.stdout).unwrap().lines().count() - 1
    };
    assert!(joined() > 0);
    receiver.signal(Signal::SIGTERM);
    let summary = receiver.wait_done(SOON);
    assert_eq!((&summary["interrupted"], joined()), (&true.into(), 0), "{summary}");
    // The source hears of it, and ends well itself.
    let summary = {
        source.process.signal(Signal::SIGTERM);
        source.process.wait_done(SOON)
    };
    assert_eq!(summary["interrupted"], true, "{summary}");
    let output = shell(&streams, "h2", "\"$UMBEL\" groups --wait 1s").wait_with_output().unwrap();
    assert!(!String::from_utf8_lossy(&output.stdout).contains("live"), "still announced");
}
