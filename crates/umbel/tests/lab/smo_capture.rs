//! What `umbel smo` puts on the wire, as `tshark` sees it: a session with loss, a late client, and
//! the end of all connections.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::bench::SOON;
use crate::support::smo::{Site, clients, end, have};
use crate::support::{files, lab};

const MINUTE: Duration = Duration::from_mins(1);
const LEN: u64 = 1 << 20;

/// A segment of a capture.
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

#[test]
fn no_segment_is_malformed_or_out_of_window() {
    if !have(&["curl", "nft", "reordercap", "tshark"]) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.02, 0.0])) else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", LEN)]);
    let capture = site.path("capture.pcap");
    let server_host = site.host("h1");
    let mut tshark = server_host.command("tshark");
    tshark.args(["-i", server_host.interface(), "-F", "pcap", "-w"]).arg(&capture);
    // MiB for what waits for tshark: on a busy machine it would miss acknowledgements.
    tshark
        .args(["-B", "64", "-f", "tcp"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut tshark = tshark.spawn().unwrap();
    // It has begun when its file has a head.
    let until = Instant::now() + SOON;
    while std::fs::metadata(&capture).map_or(0, |data| data.len()) == 0 {
        assert!(Instant::now() < until, "tshark does not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
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
    // What is captured reaches the file within moments.
    std::thread::sleep(Duration::from_secs(1));
    let id = nix::unistd::Pid::from_raw(tshark.id() as i32);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT).unwrap();
    tshark.wait().unwrap();

    // Packets that two processors saw can be in the file the wrong way round. What came may be
    // behind what it made the server send. An answer to a SYN
    // before the SYN would cost tshark the scale of the windows.
    let (unordered, capture) = (capture, site.path("ordered.pcap"));
    let ordered = Command::new("reordercap").arg(unordered).arg(&capture).output().unwrap();
    assert!(ordered.status.success(), "{}", String::from_utf8_lossy(&ordered.stderr));

    let mut bad = Command::new("tshark");
    bad.arg("-r").arg(&capture);
    bad.args(["-Y", "_ws.malformed || tcp.option_len_error || _ws.expert.severity == error"]);
    let bad = bad.stderr(Stdio::null()).output().unwrap();
    assert!(bad.stdout.is_empty(), "{}", String::from_utf8_lossy(&bad.stdout));

    let all = segments(&capture);
    let server = server_host.addr4().to_string();
    // What each client permits: its acknowledgement number, and the end of its window.
    let mut permitted: BTreeMap<(String, u16), (u32, u32)> = BTreeMap::new();
    let (mut multicast, mut unicast) = (0, 0);
    for segment in &all {
        let Segment { to, port, from, from_port, seq, len, ack, window, flags, .. } = segment;
        if from != &server {
            let edge = ack.wrapping_add(*window);
            // The window of a SYN is not scaled, and RST has none.
            if flags & 0x06 == 0 {
                let known = permitted.entry((from.clone(), *from_port)).or_insert((*ack, edge));
                known.0 = if ahead(*ack, known.0) > 0 { *ack } else { known.0 };
                known.1 = if ahead(edge, known.1) > 0 { edge } else { known.1 };
            }
            continue;
        }
        if *len == 0 || flags & 0x04 != 0 {
            continue;
        }
        let end = seq.wrapping_add(*len);
        if to.starts_with("232.") {
            multicast += 1;
            let fits = permitted.values().any(|(_, edge)| ahead(end, *edge) <= 0);
            assert!(fits, "a multicast ends at {end}, beyond all of {permitted:?}");
        } else {
            unicast += 1;
            let (_, edge) = permitted[&(to.clone(), *port)];
            assert!(ahead(end, edge) <= 0, "{end} is beyond {edge} of {to}:{port}");
        }
    }
    println!("{multicast} segments by multicast, {unicast} by unicast");
    assert!(multicast > 100 && unicast > 0, "{multicast} by multicast, {unicast} by unicast");
    assert!(all.iter().all(|segment| segment.from_port == 8080 || segment.port == 8080));
}
