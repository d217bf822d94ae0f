//! Attacks on servers of TCP-SMO, whose clients are plain `curl`.
//!
//! The stranger forges segments. It sees nothing that is not sent to it.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::libc;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng as _, SeedableRng as _};
use serde_json::Value;
use socket2::Socket;
use umbel_wire::tcp::{Flags, Head, Membership, Options, Seq};

use super::PATIENCE;
use super::segments::{Forger, Forging};
use super::town::{HONEST, STRANGER, town};
use crate::support::bench::SOON;
use crate::support::smo::{Download, Site, end, have};
use crate::support::{files, sh};

/// Port of the server, and of the group of its channel.
const PORT: u16 = 8080;
/// Group of the channel.
const GROUP: Ipv4Addr = Ipv4Addr::new(232, 7, 7, 7);
/// Port of each honest client, which the stranger knows.
const CLIENT: u16 = 40_000;
/// Length of the file that is downloaded.
const LEN: u64 = 2_000_000;
/// Downloads that read nothing, and streams of a server.
const DEAF: usize = 1_200;
const STREAMS: usize = 256;
/// Connections that say nothing.
const SILENT: usize = 500;
/// Fewest segments that make an attack.
const ATTACK: u64 = 1_000;

/// Addresses of the server and of the honest clients.
struct Victims {
    server: Ipv4Addr,
    clients: [Ipv4Addr; HONEST.len()],
}

/// Serves a file to the honest receivers, of whom two have the helper, while a stranger attacks
/// from before they connect. Returns the summary of the server.
#[track_caller]
fn withstands<A>(options: &[&str], attack: impl FnOnce(Victims) -> A) -> Option<Value>
where
    A: FnMut(&mut Forger) + Send + 'static,
{
    if !have(&["curl", "nft"]) {
        return None;
    }
    let lab = town()?;
    let site = Site::new(&lab);
    files::make(&site.www(), &[("file", LEN)]);
    let file = site.www().join("file");
    // The kernel of the stranger knows nothing of its connections, and would reset them.
    let quiet = "nft add table inet quiet; \
                 nft add chain inet quiet out '{ type filter hook output priority 0; }'; \
                 nft add rule inet quiet out ip saddr $HERE 'tcp flags & rst == rst' drop";
    let stranger = site.host(STRANGER);
    sh(stranger, &quiet.replace("$HERE", &stranger.addr4().to_string()));
    let all = ["--window", "5s", "--receivers", "4", "--rate", "10M"];
    let server = site.serve_http(&[&all, options].concat());
    let _helpers = ["h2", "h3"].map(|host| site.join(host, &[]));
    let clients = HONEST.map(|host| site.host(host).addr4());
    let attack = attack(Victims { server: site.host("h1").addr4(), clients });
    let forging = Forging::start(stranger, attack);
    let port = CLIENT.to_string();
    let mut downloads: [Download; 4] =
        HONEST.map(|host| site.curl(host, "file", host, &["--local-port", &port]));
    for download in &mut downloads {
        download.expect(&site, &file, PATIENCE);
    }
    // Who comes while it goes on is served too.
    site.curl("h4", "file", "late", &[]).expect(&site, &file, PATIENCE);
    let sent = forging.stop();
    assert!(sent > ATTACK, "only {sent} segments are no attack");
    let summary = end(server);
    println!("{sent} segments; {summary}");
    Some(summary)
}

/// Returns the number of inputs that the server has dropped for a reason.
#[track_caller]
fn dropped(summary: &Value, reason: &str) -> u64 {
    let drops = summary["drops"].as_str().unwrap();
    let count = drops.split(", ").find_map(|one| one.strip_prefix(reason)?.trim().parse().ok());
    count.unwrap_or_default()
}

fn random() -> Xoshiro256PlusPlus {
    Xoshiro256PlusPlus::seed_from_u64(1)
}

/// Options of a client that wants everything that a kernel wants.
fn options() -> Options {
    Options { mss: Some(1_460), window_scale: Some(7), sack_permitted: true, ..Options::default() }
}

#[test]
fn a_flood_of_syns_keeps_nobody_out() {
    let flood = |victims: Victims| {
        let mut random = random();
        move |forger: &mut Forger| {
            let from = Ipv4Addr::from(0x0A63_0000 | random.next_u32() >> 16);
            for _ in 0..8 {
                let head = Head {
                    source_port: random.next_u32() as u16 | 1,
                    destination_port: PORT,
                    seq: Seq(random.next_u32()),
                    flags: Flags::SYN,
                    window: 65_535,
                    options: options(),
                    ..Head::default()
                };
                forger.say(from, victims.server, &head, &[]);
            }
        }
    };
    let Some(summary) = withstands(&[], flood) else { return };
    let half_open = summary["half_open"].as_u64().unwrap();
    assert!(half_open > ATTACK, "the flood did not come: {summary}");
}

#[test]
fn segments_in_the_name_of_a_client_that_do_not_fit_end_no_connection() {
    let kinds = [
        Flags::RST,
        Flags::RST | Flags::ACK,
        Flags::SYN,
        Flags::FIN | Flags::ACK,
        Flags::ACK,
        Flags::ACK | Flags::PSH,
        Flags(0),
    ];
    let forge = |victims: Victims| {
        let mut random = random();
        move |forger: &mut Forger| {
            for client in victims.clients {
                let flags = kinds[random.next_u32() as usize % kinds.len()];
                let head = Head {
                    source_port: CLIENT,
                    destination_port: PORT,
                    seq: Seq(random.next_u32()),
                    ack: Seq(random.next_u32()),
                    flags,
                    window: random.next_u32() as u16,
                    ..Head::default()
                };
                let payload: &[u8] = if flags.has(Flags::PSH) { b"GET /evil" } else { &[] };
                forger.say(client, victims.server, &head, payload);
            }
        }
    };
    let Some(summary) = withstands(&[], forge) else { return };
    assert!(dropped(&summary, "OutOfWindow") > 0, "{summary}");
    assert!(dropped(&summary, "Challenged") > 0, "{summary}");
}

#[test]
fn acks_of_nothing_and_malformed_segments_are_dropped_and_counted() {
    let storm = |victims: Victims| {
        let mut random = random();
        move |forger: &mut Forger| {
            let mut bytes = vec![0; 20 + random.next_u32() as usize % 40];
            random.fill_bytes(&mut bytes);
            bytes[2..4].copy_from_slice(&PORT.to_be_bytes());
            // Never a SYN, and often options where none end.
            bytes[13] &= !Flags::SYN.0;
            let here = forger.here;
            forger.say_bytes(here, victims.server, bytes);
            let head = Head {
                source_port: random.next_u32() as u16 | 1,
                destination_port: PORT,
                ack: Seq(random.next_u32()),
                flags: Flags::ACK,
                window: 1,
                ..Head::default()
            };
            forger.say(here, victims.server, &head, &[]);
        }
    };
    let Some(summary) = withstands(&[], storm) else { return };
    assert!(dropped(&summary, "Malformed") > 0, "{summary}");
    assert!(dropped(&summary, "NoConnection") > 0, "{summary}");
}

#[test]
fn segments_to_the_channel_outside_of_the_window_put_no_byte_into_a_stream() {
    let forge = |victims: Victims| {
        let mut random = random();
        // Drawn once: of thousands of places, one would be within the window by chance.
        let seq = Seq(random.next_u32());
        move |forger: &mut Forger| {
            let head = Head {
                source_port: PORT,
                destination_port: PORT,
                seq,
                ack: Seq(random.next_u32()),
                flags: Flags::ACK | Flags::PSH,
                window: 65_535,
                ..Head::default()
            };
            // In its own name, and in that of the server.
            let here = forger.here;
            for from in [here, victims.server] {
                forger.say(from, GROUP, &head, b"rm -rf evil\n");
            }
        }
    };
    withstands(&[], forge);
}

/// A connection of the stranger that acknowledges what it was never sent.
#[derive(Default)]
struct Optimist {
    port: u16,
    /// What it will send next, and the greatest number that it has seen.
    next: Seq,
    seen: Option<Seq>,
}

impl Optimist {
    fn turn(&mut self, forger: &mut Forger, server: Ipv4Addr) {
        let heard = forger.heard();
        let mine = heard.iter().filter(|(from, head, _)| {
            *from == server && head.source_port == PORT && head.destination_port == self.port
        });
        for (_, head, len) in mine {
            if head.flags.has(Flags::RST) {
                // It is found out, and begins again.
                *self = Optimist { port: self.port, ..Optimist::default() };
                break;
            }
            let end = Seq(head.seq.0.wrapping_add(*len as u32 + head.control_len()));
            if head.flags.has(Flags::SYN) {
                self.seen = Some(end);
                self.next = Seq(1);
                let request = b"GET /file HTTP/1.1\r\nHost: server\r\n\r\n";
                self.say(forger, server, Flags::ACK | Flags::PSH, request);
                self.next = Seq(1 + request.len() as u32);
            } else if *len > 0 {
                // As if more than its window had come.
                self.seen = Some(Seq(end.0.wrapping_add(64 * 1_460)));
            }
        }
        if self.seen.is_some() {
            return self.say(forger, server, Flags::ACK, &[]);
        }
        self.port = self.port.wrapping_add(1) | 0x8000;
        self.next = Seq(0);
        self.say(forger, server, Flags::SYN, &[]);
    }

    fn say(&self, forger: &mut Forger, server: Ipv4Addr, flags: Flags, payload: &[u8]) {
        let is_syn = flags.has(Flags::SYN);
        let head = Head {
            source_port: self.port,
            destination_port: PORT,
            seq: self.next,
            ack: self.seen.unwrap_or(Seq(0)),
            flags,
            window: 65_535,
            options: if is_syn { options() } else { Options::default() },
        };
        let here = forger.here;
        forger.say(here, server, &head, payload);
    }
}

/// It is a receiver that stalls: nothing that it says counts, and the others wait for it until the
/// rules part it from them. When it comes again, it is answered alone.
#[test]
fn one_who_acknowledges_what_never_came_holds_up_nobody() {
    let greedy = |victims: Victims| {
        let mut optimist = Optimist::default();
        move |forger: &mut Forger| optimist.turn(forger, victims.server)
    };
    let Some(summary) = withstands(&["--stall", "10s"], greedy) else { return };
    let found = dropped(&summary, "FarAhead") + dropped(&summary, "Optimistic");
    assert!(found > 0, "{summary}");
    // The four, the late one, and the stranger once.
    assert!(summary["together"].as_u64().unwrap() <= 6, "{summary}");
}

#[test]
fn connections_that_say_nothing_keep_nobody_out() {
    if !have(&["curl", "nft"]) {
        return;
    }
    let Some(lab) = town() else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("file", 100_000)]);
    let server = site.serve_http(&[]);
    let address = SocketAddr::from((site.host("h1").addr4(), PORT)).into();
    let silent: [Socket; SILENT] = std::array::from_fn(|_| {
        let stream = site.host(STRANGER).socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let socket = Socket::from(stream);
        socket.connect_timeout(&address, SOON).unwrap();
        socket
    });
    for host in HONEST {
        site.curl(host, "file", host, &[]).expect(&site, &site.www().join("file"), PATIENCE);
    }
    drop(silent);
    let summary = end(server);
    assert_eq!(summary["answers"], HONEST.len(), "{summary}");
}

/// A connection without Umbel, to another port of the server's host, while a helper is at work at
/// the client's: a stranger that knows its ports, but not its numbers, forges the server's address.
#[test]
fn a_helper_lets_nobody_write_into_other_connections_of_its_host() {
    if !have(&["nft"]) {
        return;
    }
    let Some(lab) = town() else { return };
    let site = Site::new(&lab);
    let server = SocketAddr::from((site.host("h1").addr4(), 9_999));
    let listener =
        Socket::from(site.host("h1").socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap());
    listener.bind(&server.into()).unwrap();
    listener.listen(8).unwrap();
    for (host, way) in [("h2", "auto"), ("h3", "agent")] {
        let helper = site.join(host, &["--delivery", way]);
        let here = site.host(host).addr4();
        let client = site.host(host).socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
        let client = Socket::from(client);
        client.bind(&SocketAddr::from((here, CLIENT)).into()).unwrap();
        client.connect_timeout(&server.into(), SOON).unwrap();
        client.set_read_timeout(Some(SOON)).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        accepted.set_tcp_nodelay(true).unwrap();
        let sweeps = Arc::new(AtomicU64::new(0));
        let (swept, mut random, mut seq) = (sweeps.clone(), random(), 0_u32);
        let forging = Forging::start(site.host(STRANGER), move |forger| {
            let IpAddr::V4(from) = server.ip() else { return };
            let options =
                Options { membership: Some(Membership::Port(7_777)), ..Options::default() };
            let claim = Head {
                source_port: server.port(),
                destination_port: CLIENT,
                seq: Seq(random.next_u32()),
                ack: Seq(random.next_u32()),
                flags: Flags::ACK,
                options,
                ..Head::default()
            };
            forger.say(from, here, &claim, &[]);
            for _ in 0..64 {
                let head = Head {
                    source_port: server.port(),
                    destination_port: 7_777,
                    seq: Seq(seq),
                    flags: Flags::ACK | Flags::PSH,
                    window: 65_535,
                    ..Head::default()
                };
                forger.say(from, GROUP, &head, &[b'X'; 1_000]);
                let before = seq;
                // Less than a window: each sweep hits every connection that is served.
                seq = seq.wrapping_add(50_000);
                swept.fetch_add(u64::from(seq < before), Ordering::Relaxed);
            }
        });
        let until = Instant::now() + SOON;
        let mut said = 0;
        while sweeps.load(Ordering::Relaxed) < 3 {
            assert!(Instant::now() < until, "too few segments are no attack");
            said += (&accepted).write(&[b'A'; 100]).unwrap();
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(forging.stop() > ATTACK);
        // What was forged lies ahead. Segments shorter than it lead up to it.
        for _ in 0..700 {
            said += (&accepted).write(&[b'A'; 100]).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
        accepted.shutdown(Shutdown::Write).unwrap();
        let mut heard = Vec::new();
        (&client).read_to_end(&mut heard).unwrap();
        assert!(heard.iter().all(|byte| *byte == b'A'), "by {way}: somebody else wrote");
        assert_eq!(heard.len(), said, "by {way}");
        drop(helper);
    }
}

/// Two connections for each of many ranges take all streams, and one for each of many more all
/// documents that can be open, if nobody else gets any.
#[test]
fn downloads_of_one_host_that_reads_nothing_keep_nobody_out() {
    if !have(&["curl", "nft"]) {
        return;
    }
    let Some(lab) = town() else { return };
    let site = Site::new(&lab);
    files::make(&site.www(), &[("file", 100_000), ("large", 50_000_000)]);
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most.min(16_384), most).unwrap();
    let server = site.serve_http(&["--window", "1s"]);
    let address = SocketAddr::from((site.host("h1").addr4(), PORT)).into();
    let deaf: Vec<Socket> = (0..DEAF)
        .map(|n| {
            let stream = site.host(STRANGER).socket(libc::AF_INET, libc::SOCK_STREAM, 0).unwrap();
            let mut socket = Socket::from(stream);
            socket.set_recv_buffer_size(4_096).unwrap();
            socket.connect_timeout(&address, SOON).unwrap();
            // The first share ranges by twos.
            let from = if n < 2 * STREAMS { n / 2 } else { n };
            let request =
                format!("GET /large HTTP/1.1\r\nHost: h1\r\nRange: bytes={from}-\r\n\r\n");
            socket.write_all(request.as_bytes()).unwrap();
            socket
        })
        .collect();
    std::thread::sleep(Duration::from_secs(3));
    let mut downloads = HONEST.map(|host| site.curl(host, "file", host, &["--http1.1"]));
    for download in &mut downloads {
        download.expect(&site, &site.www().join("file"), PATIENCE);
    }
    drop(deaf);
    let summary = end(server);
    assert!(summary["together"].as_u64().unwrap() >= 2 * STREAMS as u64 + 2, "{summary}");
}
