//! `umbel smo relay`: two levels, of HTTP and of a pipe.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crossbeam_channel::Receiver;

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::smo::{Site, clients, end, have, relay, relay_of};
use crate::support::{MINUTE, files, lab};

const PROGRAMS: [&str; 2] = ["curl", "nft"];
/// Length of what is relayed.
const LEN: u64 = 3 << 20;

/// Sends a pipe to the clients of a relay.
#[track_caller]
fn relay_pipe(site: &Site<'_>, channel: &str) {
    files::make(&site.path(""), &[("input", LEN)]);
    let command = site.serve(&["--stdin"], &[]);
    let (mut server, mut input) = Process::start_fed("server", command, &site.logs);
    server.wait_for_event("serving", SOON);
    let mut relay = relay(site, "h2", channel, &["--receivers", "2"]);
    let _helper = site.join_to("h3", &site.target(channel, "h2"), &[]);
    let raw = ["--http0.9"];
    let mut downloads = [1, 2].map(|n| site.curl_from("h3", "h2", "", &format!("out{n}"), &raw));
    input.write_all(&std::fs::read(site.path("input")).unwrap()).unwrap();
    drop(input);
    for download in &mut downloads {
        download.expect(site, &site.path("input"), MINUTE);
    }
    assert_eq!(relay.wait_done(SOON)["answers"], 2);
    assert_eq!(server.wait_done(SOON)["answers"], 1);
    // The account of the relay's connection.
    let account = &server.events("ended").pop().unwrap()["account"];
    assert_eq!(account["bytes"], LEN, "{account}");
}

#[test]
fn a_pipe_reaches_the_clients_of_a_relay() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.01])) else { return };
    relay_pipe(&Site::new(&lab), "232.7.7.8:8080");
}

#[test]
fn a_pipe_reaches_the_clients_of_a_relay_by_ipv6_too() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.01])) else { return };
    relay_pipe(&Site::over_ipv6(&lab), "[ff3e::7:8]:8080");
}

/// A client that notes when each line of its stream comes.
struct Listener {
    curl: Child,
    lines: Receiver<(u64, Instant)>,
}

impl Listener {
    fn start(site: &Site<'_>, host: &str, server: &str) -> Listener {
        let url = format!("http://{}:8080/", site.address(server));
        let mut command = site.host(host).command("curl");
        command.args(["--silent", "--no-buffer", "--http0.9"]).arg(url);
        let mut curl = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let output = BufReader::new(curl.stdout.take().unwrap());
        let (tell, lines) = crossbeam_channel::unbounded();
        std::thread::spawn(move || {
            // A late client can get a part of a line first.
            for line in output.lines().map_while(Result::ok).filter(|line| line.len() == DIGITS) {
                if tell.send((line.parse().unwrap(), Instant::now())).is_err() {
                    return;
                }
            }
        });
        Listener { curl, lines }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.curl.kill();
        let _ = self.curl.wait();
    }
}

/// Digits of a line of a live stream.
const DIGITS: usize = 15;

/// A live stream: lines with numbers.
struct Live {
    input: std::process::ChildStdin,
    next: u64,
}

impl Live {
    /// Writes 1,000 lines. Returns the number of the last, and when they were written.
    fn write(&mut self) -> (u64, Instant) {
        let lines = self.next..self.next + 1000;
        self.next = lines.end;
        let mut text = Vec::new();
        for line in lines {
            writeln!(text, "{line:0DIGITS$}").unwrap();
        }
        self.input.write_all(&text).unwrap();
        (self.next - 1, Instant::now())
    }

    /// Writes until a client hears it.
    fn write_until_heard(&mut self, by: &Listener) {
        let until = Instant::now() + MINUTE;
        while by.lines.is_empty() {
            assert!(Instant::now() < until, "nobody hears the stream");
            self.write();
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[test]
fn a_live_stream_passes_two_relays_line_by_line() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0; 5])) else { return };
    let site = Site::new(&lab);
    let command = site.serve(&["--stdin"], &[]);
    let (server, input) = Process::start_fed("server", command, &site.logs);
    server.wait_for_event("serving", SOON);
    let channels = ["232.7.7.8:8080", "232.7.7.9:8080"];
    // Long enough for a busy machine.
    let bound = ["--max-delay", "1min"];
    let _second = relay(&site, "h2", channels[0], &bound);
    let _third = relay_of(&site, "h2", channels[0], "h3", channels[1], &bound);
    let servers = ["h1", "h2", "h3"];
    let _helpers: Vec<Process> = [("h4", site.channel()), ("h5", channels[0]), ("h6", channels[1])]
        .into_iter()
        .zip(servers)
        .map(|((host, channel), server)| site.join_to(host, &site.target(channel, server), &[]))
        .collect();
    let hosts = ["h4", "h5", "h6"].into_iter().zip(servers);
    let listeners: Vec<Listener> =
        hosts.map(|(host, server)| Listener::start(&site, host, server)).collect();
    let mut live = Live { input, next: 0 };
    for listener in &listeners {
        live.write_until_heard(listener);
    }
    let written: Vec<(u64, Instant)> = (0..100)
        .map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            live.write()
        })
        .collect();
    for (level, listener) in listeners.iter().enumerate() {
        let (mut delays, mut before) = (Vec::new(), None);
        while delays.len() < written.len() {
            let (line, at) = listener.lines.recv_timeout(MINUTE).unwrap();
            assert!(before.is_none_or(|before: u64| line == before + 1), "{line} {before:?}");
            before = Some(line);
            if let Some((_, since)) = written.iter().find(|(last, _)| *last == line) {
                delays.push(at.saturating_duration_since(*since));
            }
        }
        delays.sort();
        let (median, most) = (delays[delays.len() / 2], delays[delays.len() - 1]);
        println!("level {}: {median:?} in the median, {most:?} at most", level + 1);
    }
}

#[test]
fn a_relay_that_is_cut_off_goes_on_with_what_its_server_sends_then() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.0, 0.0])) else { return };
    let site = Site::new(&lab);
    let serve = || {
        let command = site.serve(&["--stdin"], &[]);
        let (server, input) = Process::start_fed("server", command, &site.logs);
        server.wait_for_event("serving", SOON);
        (server, input)
    };
    let (server, input) = serve();
    let relay = relay(&site, "h2", "232.7.7.8:8080", &[]);
    let mut early = Listener::start(&site, "h3", "h2");
    let mut live = Live { input, next: 0 };
    live.write_until_heard(&early);
    // The server resets its connections, and another takes its place.
    end(server);
    let (_server, input) = serve();
    live.input = input;
    let removed = relay.wait_for_event("removed", MINUTE);
    assert_eq!(removed["reason"], "its stream goes on after a gap", "{removed}");
    assert!(!early.curl.wait().unwrap().success());
    let last = early.lines.iter().last().map_or(0, |(line, _)| line);
    let late = Listener::start(&site, "h3", "h2");
    live.write_until_heard(&late);
    assert!(late.lines.recv().unwrap().0 > last);
}
