//! `umbel smo` with as many receivers as it takes: ten thousand sockets, and two hundred downloads
//! of a large file. Meanwhile a helper is killed and a host vanishes.
//!
//! ```text
//! cargo test --release -p umbel --test second lab::soak_smo:: -- --ignored --test-threads 1
//! ```

use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::{AddressFamily, SockType, SockaddrStorage, connect};
use umbel_lab::Node;

use crate::support::bench::SOON;
use crate::support::process::Process;
use crate::support::smo::{Comparison, Site, clients, end, have};
use crate::support::{MINUTE, files, lab};

const MIB: u64 = 1 << 20;

/// Opens connections of a host to a server.
pub(super) fn connections(host: Node<'_>, server: SocketAddr, count: usize) -> Vec<TcpStream> {
    let open = |_| {
        let socket = host.socket(AddressFamily::Inet as i32, SockType::Stream as i32, 0).unwrap();
        connect(socket.as_raw_fd(), &SockaddrStorage::from(server)).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_nonblocking(true).unwrap();
        stream
    };
    (0..count).map(open).collect()
}

/// Reads until all streams have ended, each with these bytes. Returns when the first of them came.
pub(super) fn read_all(streams: &mut [TcpStream], expected: &[u8], until: Instant) -> Instant {
    let mut first = None;
    let mut got = vec![Some(0); streams.len()];
    let mut buffer = vec![0; 1 << 16];
    while got.iter().any(Option::is_some) {
        assert!(Instant::now() < until, "{got:?} of {} bytes", expected.len());
        let open = |n: &usize| got[*n].is_some();
        let open: Vec<usize> = (0..streams.len()).filter(open).collect();
        let mut ready: Vec<PollFd<'_>> =
            open.iter().map(|n| PollFd::new(streams[*n].as_fd(), PollFlags::POLLIN)).collect();
        poll(&mut ready, PollTimeout::from(1000_u16)).unwrap();
        let ready = open.iter().zip(&ready).filter(|(_, fd)| fd.any().unwrap_or(true));
        let ready: Vec<usize> = ready.map(|(n, _)| *n).collect();
        for n in ready {
            let at = got[n].unwrap();
            let len = match streams[n].read(&mut buffer) {
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
                read => read.unwrap(),
            };
            let is_same = expected.get(at..at + len) == Some(&buffer[..len]);
            assert!(is_same, "stream {n} has other bytes from {at} on");
            assert!(len > 0 || at == expected.len(), "stream {n} ends at {at}");
            got[n] = (len > 0).then_some(at + len);
            first.get_or_insert_with(Instant::now);
        }
    }
    first.unwrap_or(until)
}

#[test]
#[ignore = "soak: a minute of both cores; see CONTRIBUTING"]
fn ten_thousand_sockets_receive_the_same_from_one_server() {
    const SOCKETS: usize = 10_000;
    const HOSTS: [&str; 4] = ["h2", "h3", "h4", "h5"];
    if !have(&["nft"]) {
        return;
    }
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    if most < SOCKETS as u64 + 200 {
        return println!("at most {most} files may be open");
    }
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let Some(lab) = lab(&clients(&[0.0; HOSTS.len()])) else { return };
    let site = Site::new(&lab);
    files::make(&site.path(""), &[("file", 100_000)]);
    let expected = std::fs::read(site.path("file")).unwrap();
    let count = SOCKETS.to_string();
    let command = site.serve(&["--file", "file"], &["--receivers", &count]);
    let mut server = Process::start("server", command, &site.logs);
    server.wait_for_event("serving", SOON);
    let address = SocketAddr::from((site.host("h1").addr4(), 8080));
    let begin = Instant::now();
    let streams: Vec<Vec<TcpStream>> = std::thread::scope(|scope| {
        let download = |host| {
            let (host, expected) = (site.host(host), &expected);
            scope.spawn(move || {
                let mut streams = connections(host, address, SOCKETS / HOSTS.len());
                read_all(&mut streams, expected, begin + 10 * MINUTE);
                streams
            })
        };
        HOSTS.map(download).into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    // The server ends with the last of its connections.
    let (took, memory) = (begin.elapsed(), server.peak_memory().unwrap());
    drop(streams);
    let summary = server.wait_done(SOON);
    println!("{SOCKETS} sockets: {took:?}, {} MB at the peak; {summary}", memory / 1_000_000);
    assert_eq!((&summary["answers"], &summary["removed"]), (&SOCKETS.into(), &0.into()));
    assert!(memory < 200_000_000, "{memory} bytes");
}

/// Number of downloads.
const DOWNLOADS: usize = 200;

/// Time after which a killed helper is started anew: what a service manager takes.
const RESTART: Duration = Duration::from_secs(1);

/// Returns the length of their file: 100 MiB, or what `UMBEL_MIB=20` says.
fn file_len() -> u64 {
    let mib = std::env::var("UMBEL_MIB").ok().and_then(|text| text.parse::<u64>().ok());
    mib.unwrap_or(100) * MIB
}

/// Waits until one of these has a part of the file.
#[track_caller]
fn wait_for(site: &Site<'_>, downloads: &[&Comparison], part: u64) {
    let until = Instant::now() + 20 * MINUTE;
    while downloads.iter().all(|download| download.len() < part) {
        if Instant::now() > until {
            let got: Vec<u64> = downloads.iter().map(|download| download.len()).collect();
            site.logs.fail(&format!("{got:?} of {part} bytes"));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
#[ignore = "soak: minutes of both cores; see CONTRIBUTING"]
fn two_hundred_downloads_survive_a_dead_helper_and_a_vanished_host() {
    if !have(&["curl", "nft"]) {
        return;
    }
    // Two hosts lose 1 %; one of these vanishes, and the helper of one without losses is killed.
    let Some(lab) = lab(&clients(&[0.01, 0.01, 0.0, 0.0])) else { return };
    let hosts = ["h2", "h3", "h4", "h5"];
    let (vanishing, unhelped, len) = (0, 2, file_len());
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", len)]);
    let count = DOWNLOADS.to_string();
    let options = ["--window", "1min", "--receivers", &count, "--stall", "30s"];
    let server = site.serve_http(&options);
    let mut helpers = hosts.map(|host| site.join(host, &[]));
    let before = site.sent("h1");
    let begin = Instant::now();
    let downloads: Vec<Comparison> =
        (0..DOWNLOADS).map(|n| site.compare(hosts[n % hosts.len()], "big")).collect();
    let of = |host: usize| -> Vec<&Comparison> {
        downloads.iter().skip(host).step_by(hosts.len()).collect()
    };
    wait_for(&site, &of(unhelped), len / 4);
    lab.set_link_up("h2", "sw", false).unwrap();
    let vanished = begin.elapsed();
    wait_for(&site, &of(unhelped), len / 4 * 3);
    helpers[unhelped].kill();
    let killed = begin.elapsed();
    for host in (0..hosts.len()).filter(|host| *host != vanishing) {
        for download in of(host) {
            download.expect(&site, len, 20 * MINUTE);
        }
    }
    let (took, sent) = (begin.elapsed(), site.sent("h1") - before);
    for download in of(vanishing) {
        assert!(download.is_same() && download.len() < len, "{} bytes", download.len());
    }
    let memory = server.peak_memory().unwrap();
    // A client that has the file closes at once, and resets what repairs reach it afterwards.
    let removed = server.events("removed");
    let (resets, cut_off): (Vec<_>, Vec<_>) =
        removed.iter().partition(|event| event["reason"] == "it reset the connection");
    let summary = end(server);
    println!(
        "{DOWNLOADS} downloads of {len}: h2 vanished after {vanished:?}, the helper of h4 was killed \
         after {killed:?}, all others had the file after {took:?}; {:.2} times the file left the \
         server, {} MB at the peak; {summary}",
        sent as f64 / len as f64,
        memory / 1_000_000,
    );
    assert_eq!(cut_off.len(), of(vanishing).len(), "{summary}");
    assert_eq!(summary["removed"], cut_off.len() + resets.len(), "{summary}");
    // The stream, repairs, and to each connection without a helper a quarter of the file. In
    // addition, what was lost when all of them began at once, about 1 MiB.
    let alone = of(unhelped).len() as u64 * (len / 4 * 6 / 5 + 2 * MIB);
    assert!(sent < 3 * len + alone, "{sent} bytes left the server");
}

#[test]
#[ignore = "soak: minutes of both cores; see CONTRIBUTING"]
fn two_hundred_downloads_return_to_multicast_when_a_killed_helper_is_started_anew() {
    if !have(&["curl", "nft"]) {
        return;
    }
    let Some(lab) = lab(&clients(&[0.01, 0.01, 0.0, 0.0])) else { return };
    let hosts = ["h2", "h3", "h4", "h5"];
    let (unhelped, len) = (2, file_len());
    let site = Site::new(&lab);
    files::make(&site.www(), &[("big", len)]);
    let count = DOWNLOADS.to_string();
    let server = site.serve_http(&["--window", "1min", "--receivers", &count]);
    let mut helpers = hosts.map(|host| site.join(host, &[]));
    let before = site.sent("h1");
    let begin = Instant::now();
    let downloads: Vec<Comparison> =
        (0..DOWNLOADS).map(|n| site.compare(hosts[n % hosts.len()], "big")).collect();
    let of_the_host: Vec<&Comparison> =
        downloads.iter().skip(unhelped).step_by(hosts.len()).collect();
    wait_for(&site, &of_the_host, len / 2);
    let killed = (begin.elapsed(), site.sent("h1") - before);
    helpers[unhelped].kill();
    std::thread::sleep(RESTART);
    helpers[unhelped] = site.join(hosts[unhelped], &[]);
    let restarted = (begin.elapsed(), site.sent("h1") - before);
    for download in &downloads {
        download.expect(&site, len, 20 * MINUTE);
    }
    let (took, sent) = (begin.elapsed(), site.sent("h1") - before);
    let summary = end(server);
    println!(
        "{DOWNLOADS} downloads of {len}: the helper of h4 was killed after {killed:?}, and started \
         after {restarted:?}; all had the file after {took:?}; {:.2} times the file left the server; \
         {summary}",
        sent as f64 / len as f64,
    );
    assert!(sent < 3 * len, "{sent} bytes left the server");
}
