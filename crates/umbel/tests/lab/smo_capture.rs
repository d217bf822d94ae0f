//! What `umbel smo` puts on the wire, as `tshark` sees it: a session with loss, a late client, and
//! the end of all connections.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::bench::SOON;
use crate::support::smo::{Site, clients, end, have};
use crate::support::{files, lab};

const MINUTE: Duration = Duration::from_mins(1);
const LEN: u64 = 1 << 20;

/// A segment of a capture.
#[derive(Debug)]
struct Segment {
    to: String,
    port: u16,
    from: String,
    from_port: u16,
    seq: u32,
    len: u32,
    ack: u32,
    window: u32,
    flags: u32,
}

/// Reads the segments of a capture with `tshark`.
fn segments(capture: &std::path::Path) -> Vec<Segment> {
    let fields = [
        "ip.dst",
        "tcp.dstport",
        "ip.src",
        "tcp.srcport",
        "tcp.seq_raw",
        "tcp.len",
        "tcp.ack_raw",
        "tcp.window_size",
        "tcp.flags",
    ];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-Y", "tcp", "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.stderr(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let segment = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |n: usize| words[n].parse().unwrap();
        let flags = u32::from_str_radix(words[8].trim_start_matches("0x"), 16).unwrap();
        Segment {
            to: words[0].to_owned(),
            port: words[1].parse().unwrap(),
            from: words[2].to_owned(),
            from_port: words[3].parse().unwrap(),
            seq: number(4),
            len: number(5),
            ack: number(6),
            window: number(7),
            flags,
        }
    };
    text.lines().map(segment).collect()
}

/// Returns how far `a` is ahead of `b`.
fn ahead(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// `tshark`, which captures the TCP segments of a host.
struct Capture {
    tshark: Child,
    file: PathBuf,
}

impl Capture {
    /// Begins to capture what a host sends and receives.
    fn start(site: &Site<'_>, host: &str) -> Capture {
        let file = site.path(&format!("{host}.pcap"));
        let host = site.host(host);
        let mut tshark = host.command("tshark");
        tshark.args(["-i", host.interface(), "-F", "pcap", "-w"]).arg(&file);
        // MiB for what waits for tshark: on a busy machine it would miss acknowledgements.
        tshark.args(["-B", "64", "-f", "tcp"]);
        tshark.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let tshark = tshark.spawn().unwrap();
        // It has begun when its file has a head.
        let until = Instant::now() + SOON;
        while std::fs::metadata(&file).map_or(0, |data| data.len()) == 0 {
            assert!(Instant::now() < until, "tshark does not begin");
            std::thread::sleep(Duration::from_millis(20));
        }
        Capture { tshark, file }
    }

    /// Ends it. Returns its file.
    fn end(mut self) -> PathBuf {
        kill(Pid::from_raw(self.tshark.id() as i32), Signal::SIGINT).unwrap();
        self.tshark.wait().unwrap();
        self.file
    }
}

/// Runs a program that must succeed.
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// Merges captures into one, in the order of the times at which segments passed. Those that two
/// processors saw can be in a file the wrong way round, and an answer to a SYN before the SYN
/// would cost `tshark` the scale of the windows.
fn merge(site: &Site<'_>, captures: &[PathBuf]) -> PathBuf {
    let [merged, ordered] = ["merged.pcap", "ordered.pcap"].map(|name| site.path(name));
    run(Command::new("mergecap").args(["-F", "pcap", "-w"]).arg(&merged).args(captures));
    run(Command::new("reordercap").arg(&merged).arg(&ordered));
    ordered
}

/// Segments of a capture with data from the server.
#[derive(Default)]
struct Counts {
    multicast: usize,
    unicast: usize,
}

/// Checks that nothing came to a host beyond what had been permitted before. It is captured at the
/// clients and not at the server, where two programs see each acknowledgement, and the server can
/// answer before the time is noted for `tshark`.
fn check(all: &[Segment], server: &str) -> Counts {
    // What each client permits: the end of its window.
    let mut permitted: BTreeMap<(&str, u16), u32> = BTreeMap::new();
    let mut counts = Counts::default();
    for (place, segment) in all.iter().enumerate() {
        let Segment { to, port, from, from_port, seq, len, ack, window, flags } = segment;
        if from != server {
            let edge = ack.wrapping_add(*window);
            // The window of a SYN is not scaled, and RST has none.
            if flags & 0x06 == 0 {
                let known = permitted.entry((from, *from_port)).or_insert(edge);
                *known = if ahead(edge, *known) > 0 { edge } else { *known };
            }
            continue;
        }
        if *len == 0 || flags & 0x04 != 0 {
            continue;
        }
        let end = seq.wrapping_add(*len);
        let fits = if to.starts_with("232.") {
            counts.multicast += 1;
            permitted.values().any(|edge| ahead(end, *edge) <= 0)
        } else {
            counts.unicast += 1;
            ahead(end, permitted[&(to.as_str(), *port)]) <= 0
        };
        let before = || {
            let of_client = |s: &&Segment| *port == s.from_port || *port == s.port;
            all[..place].iter().rev().filter(of_client).take(60).collect::<Vec<_>>()
        };
        assert!(fits, "{segment:?} is beyond all of {permitted:?}, after {:#?}", before());
    }
    counts
}

#[test]
fn no_segment_is_malformed_or_out_of_window() {
    if !have(&["curl", "mergecap", "nft", "reordercap", "tshark"]) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.02, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let captures = ["h2", "h3"].map(|host| Capture::start(&site, host));
    let server = site.serve_http(&["--window", "500ms", "--rate", "10M"]);
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));
    let mut downloads = ["h2", "h3"].map(|host| site.curl(host, "big", host, &[]));
    while downloads[1].len() < LEN / 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut late = site.curl("h3", "big", "late", &[]);
    for download in downloads.iter_mut().chain([&mut late]) {
        download.expect(&site, &site.www().join("big"), MINUTE);
    }
    end(server);
    // What is captured reaches the files within moments.
    std::thread::sleep(Duration::from_secs(1));
    let capture = merge(&site, &captures.map(Capture::end));

    let mut bad = Command::new("tshark");
    bad.arg("-r").arg(&capture);
    bad.args(["-Y", "_ws.malformed || tcp.option_len_error || _ws.expert.severity == error"]);
    let bad = bad.stderr(Stdio::null()).output().unwrap();
    assert!(bad.stdout.is_empty(), "{}", String::from_utf8_lossy(&bad.stdout));

    let all = segments(&capture);
    let Counts { multicast, unicast } = check(&all, &site.host("h1").addr4().to_string());
    println!("{multicast} segments came by multicast, {unicast} by unicast");
    assert!(multicast > 200 && unicast > 0, "{multicast} by multicast, {unicast} by unicast");
    assert!(all.iter().all(|segment| segment.from_port == 8080 || segment.port == 8080));
}
