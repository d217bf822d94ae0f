//! Segments of `umbel smo` on the wire, as `tshark` sees them: a session with loss, a late client,
//! and the end of all connections.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::support::bench::SOON;
use crate::support::smo::{Site, clients, end, have};
use crate::support::{MINUTE, files, lab};

const LEN: u64 = 1 << 20;

/// A segment of a capture.
#[derive(Debug)]
struct Segment {
    to: IpAddr,
    port: u16,
    from: IpAddr,
    from_port: u16,
    seq: u32,
    len: u32,
    ack: u32,
    window: u32,
    flags: u32,
    /// Port in the membership option.
    membership: Option<u16>,
}

const FIN: u32 = 0x01;
const SYN: u32 = 0x02;
const RST: u32 = 0x04;

impl Segment {
    /// Returns the number after the segment.
    fn end(&self) -> u32 {
        let control = u32::from(self.flags & FIN > 0) + u32::from(self.flags & SYN > 0);
        self.seq.wrapping_add(self.len + control)
    }
}

/// Reads the segments of a capture with `tshark`.
fn segments(capture: &Path) -> Vec<Segment> {
    let fields = [
        "ip.dst",
        "ipv6.dst",
        "tcp.dstport",
        "ip.src",
        "ipv6.src",
        "tcp.srcport",
        "tcp.seq_raw",
        "tcp.len",
        "tcp.ack_raw",
        "tcp.window_size",
        "tcp.flags",
        "tcp.options",
    ];
    let mut command = Command::new("tshark");
    command.arg("-r").arg(capture).args(["-Y", "tcp", "-T", "fields"]);
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.stderr(Stdio::null()).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let segment = |line: &str| {
        let words: Vec<&str> = line.split('\t').collect();
        let number = |n: usize| words[n].parse().unwrap();
        // One of the families is empty.
        let address = |n: usize| [words[n], words[n + 1]].concat().parse().unwrap();
        let flags = u32::from_str_radix(words[10].trim_start_matches("0x"), 16).unwrap();
        Segment {
            to: address(0),
            port: words[2].parse().unwrap(),
            from: address(3),
            from_port: words[5].parse().unwrap(),
            seq: number(6),
            len: number(7),
            ack: number(8),
            window: number(9),
            flags,
            membership: words.get(11).and_then(|options| membership(options)),
        }
    };
    text.lines().map(segment).collect()
}

/// Reads the port in the membership option of these options, in hexadecimal digits.
fn membership(options: &str) -> Option<u16> {
    let digits: String = options.chars().filter(char::is_ascii_hexdigit).collect();
    let at = digits.find("fd07554d01")? + 10;
    u16::from_str_radix(digits.get(at..at + 4)?, 16).ok()
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

/// Puts a capture in the order of the times at which segments passed. Those that two processors saw
/// can be in it the wrong way round. An answer to a SYN before the SYN would cost `tshark` the
/// scale of the windows.
fn ordered(capture: &Path) -> PathBuf {
    let ordered = capture.with_extension("ordered.pcap");
    run(Command::new("reordercap").args([capture, &ordered]));
    ordered
}

/// A client's connection as a capture shows it.
#[derive(Debug, Default)]
struct Client {
    /// Number of the first byte of the stream.
    first: Option<u32>,
    /// The end of its window: what it permits to be sent.
    permitted: Option<u32>,
    /// The next number that it sends.
    next: Option<u32>,
    /// The greatest number that the server has acknowledged.
    acknowledged: Option<u32>,
    /// Port of the channel that serves it.
    channel: u16,
    has_ended: bool,
}

/// Returns the later of two numbers.
fn later(known: Option<u32>, new: u32) -> u32 {
    known.filter(|known| ahead(*known, new) > 0).unwrap_or(new)
}

impl Client {
    /// Notes what it sends.
    fn says(&mut self, segment: &Segment) {
        self.next = Some(later(self.next, segment.end()));
        // The window of a SYN is not scaled, and RST has none.
        if segment.flags & (SYN | RST) == 0 {
            let edge = segment.ack.wrapping_add(segment.window);
            self.permitted = Some(later(self.permitted, edge));
        }
        self.has_ended |= segment.flags & (FIN | RST) > 0;
    }

    /// Notes what it is sent by unicast, and checks the acknowledgement: of nothing that it did not
    /// send, and never less than before.
    fn hears(&mut self, segment: &Segment) {
        self.channel = segment.membership.unwrap_or(self.channel);
        if segment.flags & SYN > 0 {
            self.first = Some(segment.end());
        }
        self.has_ended |= segment.flags & RST > 0;
        let next = self.next.unwrap_or(segment.ack);
        assert!(ahead(segment.ack, next) <= 0, "{segment:?} acknowledges too much: {self:?}");
        let known = self.acknowledged.unwrap_or(segment.ack);
        assert!(ahead(segment.ack, known) >= 0, "{segment:?} acknowledges too little: {self:?}");
        self.acknowledged = Some(segment.ack);
    }

    /// Returns whether the data of a segment is within what it permits, and within its stream.
    fn takes(&self, segment: &Segment) -> bool {
        let data_end = segment.seq.wrapping_add(segment.len);
        let fits = self.permitted.is_some_and(|edge| ahead(data_end, edge) <= 0);
        fits && self.first.is_some_and(|first| ahead(segment.seq, first) >= 0)
    }

    /// Returns whether a segment is a question before the client has any byte of the stream. Its
    /// only byte then has the number of the SYN [RFC 9293 §3.8.4].
    fn is_asked_early(&self, segment: &Segment) -> bool {
        segment.len == 1 && self.first == Some(segment.end())
    }
}

/// Segments of a capture with data from the server.
#[derive(Default)]
struct Counts {
    multicast: usize,
    /// Connections that were served by a channel when a multicast segment came, all in all.
    members: usize,
    unicast: usize,
}

/// Checks that nothing came to a connection of a host beyond what it had permitted before. A
/// multicast segment must fit each connection that its channel serves. It is captured at the
/// clients and not at the server. There two programs see each acknowledgement, and the server can
/// answer before the time is noted for `tshark`. Each host is checked alone: what one has already
/// can still be on its way to the next.
fn check(all: &[Segment], server: IpAddr, counts: &mut Counts) {
    let mut clients: BTreeMap<(IpAddr, u16), Client> = BTreeMap::new();
    for segment in all {
        if segment.from != server {
            clients.entry((segment.from, segment.from_port)).or_default().says(segment);
            continue;
        }
        if segment.to.is_multicast() {
            assert_eq!((segment.ack, segment.membership), (0, None), "{segment:?}");
            counts.multicast += 1;
            let port = segment.port;
            for (peer, client) in clients.iter().filter(|(_, client)| client.channel == port) {
                assert!(
                    client.has_ended || client.takes(segment),
                    "{segment:?}, {peer:?}: {client:?}"
                );
                counts.members += 1;
            }
            continue;
        }
        let client = clients.entry((segment.to, segment.port)).or_default();
        client.hears(segment);
        if segment.len > 0 {
            counts.unicast += 1;
            let fits = client.takes(segment) || client.is_asked_early(segment);
            assert!(fits, "{segment:?}: {client:?}");
        }
    }
}

/// Captures a session of three clients on two hosts, of which one comes late, and checks it.
#[track_caller]
fn capture(site: &Site<'_>) {
    files::make(&site.www(), &[("big", LEN)]);
    let captures = ["h2", "h3"].map(|host| Capture::start(site, host));
    let server = site.serve_http(&["--window", "500ms", "--rate", "10M"]);
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));
    let mut downloads = ["h2", "h3"].map(|host| site.curl(host, "big", host, &[]));
    while downloads[1].len() < LEN / 4 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let mut late = site.curl("h3", "big", "late", &[]);
    for download in downloads.iter_mut().chain([&mut late]) {
        download.expect(site, &site.www().join("big"), MINUTE);
    }
    end(server);
    // Captured frames reach the files within moments.
    std::thread::sleep(Duration::from_secs(1));
    let server = site.address("h1");
    let server = server.trim_matches(['[', ']']).parse().unwrap();
    let mut counts = Counts::default();
    for capture in captures.map(Capture::end) {
        let capture = ordered(&capture);
        let mut bad = Command::new("tshark");
        bad.arg("-r").arg(&capture);
        bad.args(["-Y", "_ws.malformed || tcp.option_len_error || _ws.expert.severity == error"]);
        let bad = bad.stderr(Stdio::null()).output().unwrap();
        assert!(bad.stdout.is_empty(), "{}", String::from_utf8_lossy(&bad.stdout));

        let all = segments(&capture);
        assert!(all.iter().all(|segment| segment.from_port == 8080 || segment.port == 8080));
        check(&all, server, &mut counts);
    }
    let Counts { multicast, members, unicast } = counts;
    println!("{multicast} segments came by multicast, {unicast} by unicast; {members} deliveries");
    assert!(multicast > 200 && unicast > 0, "{multicast} by multicast, {unicast} by unicast");
    assert!(members > multicast, "{members} members of {multicast} segments");
}

const PROGRAMS: [&str; 4] = ["curl", "nft", "reordercap", "tshark"];

#[test]
fn no_segment_is_malformed_or_out_of_window() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.02, 0.0])) else { return };
    capture(&Site::new(&lab));
}

#[test]
fn no_segment_is_malformed_or_out_of_window_by_ipv6_either() {
    if !have(&PROGRAMS) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.02, 0.0])) else { return };
    capture(&Site::over_ipv6(&lab));
}
