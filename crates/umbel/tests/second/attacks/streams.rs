//! Attacks on streams. The stranger sends with the address of the source, and knows all numbers of
//! the stream.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use serde_json::Value;
use umbel_lab::Node;
use umbel_video::clips::{Clip, Kind};
use umbel_video::{Frame, Size, quality, y4m};
use umbel_wire::rlm::ObjectHead;
use umbel_wire::{Digest, SmallBlockHeader, SmallBlockPacket, Toi, Tsi};

use super::forgeries;
use super::stranger::{Heard, Mark, Stranger, Voice};
use super::town::{HONEST, STRANGER, town};
use crate::support::bench::SOON;
use crate::support::ladder::{Ladders, Writer, report};
use crate::support::process::{Logs, Process};
use crate::support::streams::{Source, Streams};

/// Where an encoder sends to a source, and where players listen.
const ENCODER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 5004);
const PLAYER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 6004);
const DESCRIPTION: &str = "v=0\r\no=- 0 0 IN IP4 127.0.0.1\r\ns=talk\r\n\
    c=IN IP4 127.0.0.1\r\nt=0 0\r\nm=video 5004 RTP/AVP 96\r\nb=AS:1000\r\n\
    a=rtpmap:96 H264/90000\r\n";
/// Time between two packets of the encoder.
const PACKET: Duration = Duration::from_millis(10);
/// Packets that every receiver has in the end, of those that it did not lose.
const ENOUGH: usize = 200;

/// Returns an RTP packet of this number, whose payload begins with a word.
fn rtp(number: u16, word: &[u8]) -> Vec<u8> {
    let mut packet = vec![0x80, 96];
    packet.extend_from_slice(&number.to_be_bytes());
    packet.extend_from_slice(&(u32::from(number) * 900).to_be_bytes());
    packet.extend_from_slice(b"ssrc");
    packet.extend_from_slice(word);
    packet.extend_from_slice(blake3::hash(&number.to_be_bytes()).as_bytes());
    packet
}

/// A thread on a host, until it is stopped.
struct Task<T> {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Send + 'static> Task<T> {
    fn start(run: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Task<T> {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        Task { stop, thread: std::thread::spawn(move || run(&stopped)) }
    }

    fn stop(self) -> T {
        self.stop.store(true, Ordering::Release);
        self.thread.join().unwrap()
    }
}

/// Sends packets of RTP to the source on a host. Returns their number.
fn encode(host: Node<'_>) -> Task<u16> {
    let socket = host.udp_socket((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    Task::start(move |stopped| {
        let mut number = 0;
        while !stopped.load(Ordering::Acquire) {
            // The source may not listen yet, or no more.
            let _ = socket.send_to(&rtp(number, b"honest"), ENCODER);
            number += 1;
            std::thread::sleep(PACKET);
        }
        number
    })
}

/// Collects what a player on a host is given.
fn play(host: Node<'_>) -> Task<Vec<Vec<u8>>> {
    let socket: UdpSocket = host.udp_socket(PLAYER).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    Task::start(move |stopped| {
        let (mut buffer, mut got) = ([0; 2_000], Vec::new());
        while !stopped.load(Ordering::Acquire) {
            if let Ok(len) = socket.recv(&mut buffer) {
                got.push(buffer[..len].to_vec());
            }
        }
        got
    })
}

/// Returns where a stream comes from and how it is numbered. Its base layer is what the stranger
/// hears.
fn mark(streaming: &Value) -> Mark {
    let base = streaming["layers"][0]["channel"].as_str().unwrap();
    let group = base.split('@').next().unwrap().parse().unwrap();
    let tsi = Tsi(u32::try_from(streaming["tsi"].as_u64().unwrap()).unwrap());
    Mark { tsi, source: streaming["source"].as_str().unwrap().parse().unwrap(), domain: group }
}

/// Returns a packet of a stream as anyone makes it.
fn forged(header: SmallBlockHeader, symbol: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; SmallBlockHeader::LEN];
    header.emit(&mut packet).unwrap();
    packet.extend_from_slice(symbol);
    packet
}

/// Puts packets of its own before those that come next, alters what it hears, and repeats it.
fn false_packets(voice: &mut Voice, heard: &[Heard]) {
    let Mark { tsi, source, domain } = voice.mark;
    for one in heard.iter().filter(|one| one.from.ip() == source.ip()) {
        let Ok(packet) = SmallBlockPacket::parse(&one.bytes) else { continue };
        let header = packet.header;
        if header.tsi != tsi || packet.symbol.len() < 4 {
            continue;
        }
        let number = u16::from_be_bytes([packet.symbol[2], packet.symbol[3]]);
        for ahead in 1..=5_u16 {
            let (index, sbn) = (header.index + u32::from(ahead), header.sbn + u32::from(ahead));
            let header = SmallBlockHeader { index, sbn, ..header };
            let evil = forged(header, &rtp(number.wrapping_add(ahead), b"evil!!"));
            voice.say_as(source, domain, &evil);
            // The same with the extension of one that is signed.
            let mut signed = one.bytes.clone();
            signed[8..12].copy_from_slice(&index.to_be_bytes());
            let at = signed.len() - packet.symbol.len();
            signed.truncate(at);
            signed[at - 8..at - 4].copy_from_slice(&sbn.to_be_bytes());
            signed.extend_from_slice(&rtp(number.wrapping_add(ahead), b"evil!!"));
            voice.say_as(source, domain, &signed);
        }
        let mut altered = one.bytes.clone();
        if let Some(last) = altered.last_mut() {
            *last ^= 1;
        }
        voice.say_as(source, domain, &altered);
        voice.say_as(source, domain, &one.bytes);
    }
}

/// Waits until something holds. Fails with the output of all programs if that takes too long.
#[track_caller]
fn wait_until(logs: &Logs, what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + 3 * SOON;
    while !holds() {
        if Instant::now() > until {
            logs.fail(&format!("not within {:?}: {what}", 3 * SOON));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn end(mut process: Process) -> Value {
    process.signal(Signal::SIGINT);
    process.wait_done(SOON)
}

/// Streams what comes by RTP to `h1`.
fn talk(streams: &Streams<'_>) -> Source {
    std::fs::write(streams.path("talk.sdp"), DESCRIPTION).unwrap();
    let mut command = streams.umbel("h1");
    command.args(["stream", "--rtp", "talk.sdp", "--name", "live", "--json"]);
    streams.follow(Process::start("source", command, &streams.logs))
}

#[test]
fn nothing_of_a_stranger_gets_into_a_stream() {
    let Some(lab) = town() else { return };
    let streams = Streams::new(&lab);
    let source = talk(&streams);
    let mark = mark(&source.process.events("streaming")[0]);
    let players = HONEST.map(|host| play(streams.host(host)));
    let to = PLAYER.to_string();
    let receivers = HONEST.map(|host| streams.watch(host, &["--rtp", &to]));
    let encoder = encode(streams.host("h1"));
    for receiver in &receivers {
        receiver.wait_for_event("level", SOON);
    }
    let stranger = Stranger::start(streams.host(STRANGER), mark, false_packets);
    // Each receiver is attacked while it is given enough, however busy the machine is.
    let packets = |receiver: &Process| {
        let second = receiver.events("second").pop();
        second.map_or(0, |event| event["second"]["screen"]["shown"].as_u64().unwrap() as usize)
    };
    let begun = receivers.each_ref().map(packets);
    wait_until(&streams.logs, "the receivers are given enough", || {
        receivers.iter().zip(begun).all(|(one, begun)| packets(one) >= begun + ENOUGH)
    });
    let said = stranger.stop();
    let summaries = receivers.map(end);
    let sent: BTreeSet<Vec<u8>> =
        (0..encoder.stop()).map(|number| rtp(number, b"honest")).collect();
    for (player, summary) in players.into_iter().zip(&summaries) {
        let got = player.stop();
        let strange = got.iter().filter(|packet| !sent.contains(*packet)).count();
        assert_eq!(strange, 0, "of {} packets: {summary}", got.len());
        let distinct: BTreeSet<&Vec<u8>> = got.iter().collect();
        assert_eq!(distinct.len(), got.len(), "a packet came twice: {summary}");
        assert!(got.len() >= ENOUGH, "only {} packets came: {summary}", got.len());
        assert!(summary["forged"].as_u64() > Some(100), "{summary}");
        assert_eq!(summary["unchecked"], 0, "{summary}");
    }
    assert!(said > 1_000, "only {said} datagrams are no attack");
    end(source.process);
}

#[test]
fn who_took_an_earlier_stream_for_the_last_one_sees_the_later_one() {
    let Some(lab) = town() else { return };
    let streams = Streams::new(&lab);
    let mut first = talk(&streams);
    let mark = mark(&first.process.events("streaming")[0]);
    let stranger = forgeries::repeat_first_announcement(streams.host(STRANGER), mark);
    first.process.kill();
    let to = PLAYER.to_string();
    let receiver = streams.watch("h2", &["--rtp", &to, "--patience", "5m"]);
    receiver.wait_for_event("stream", SOON);
    let second = talk(&streams);
    let encoder = encode(streams.host("h1"));
    wait_until(&streams.logs, "the later stream is seen", || {
        let second = receiver.events("second").pop();
        second.is_some_and(|event| event["second"]["screen"]["shown"].as_u64() > Some(0))
    });
    assert_eq!(receiver.events("stream").len(), 2);
    encoder.stop();
    end(receiver);
    end(second.process);
    stranger.stop();
}

/// Sends packets of its own ahead of the source's in a layer, with inverted content, and repeats it.
fn false_pictures(voice: &mut Voice, heard: &[Heard]) {
    let Mark { tsi, source, domain } = voice.mark;
    for one in heard.iter().filter(|one| one.from.ip() == source.ip()) {
        let Ok(packet) = SmallBlockPacket::parse(&one.bytes) else { continue };
        let header = packet.header;
        if header.tsi != tsi || packet.symbol.is_empty() {
            continue;
        }
        let content: Vec<u8> = packet.symbol.iter().map(|byte| !byte).collect();
        let at = one.bytes.len() - content.len();
        for ahead in 0..=3 {
            let (index, esi) = (header.index + ahead, header.esi.wrapping_add(ahead as u8));
            let header = SmallBlockHeader { index, esi, ..header };
            voice.say_as(source, domain, &forged(header, &content));
        }
        // The same packet with its signature and another content, and as it was.
        voice.say_as(source, domain, &[&one.bytes[..at], &content].concat());
        voice.say_as(source, domain, &one.bytes);
    }
}

/// Returns how well each picture of a file shows one of a clip, in dB.
fn likeness(path: &Path, clip: &[Frame]) -> Vec<f64> {
    let mut reader = y4m::Reader::new(BufReader::new(File::open(path).unwrap())).unwrap();
    let mut frame = Frame::grey(clip[0].size());
    let mut likeness = Vec::new();
    while reader.read(&mut frame).unwrap() {
        let errors = clip.iter().map(|original| quality::luma_mse(&frame, original));
        likeness.push(quality::psnr(errors.fold(f64::MAX, f64::min)));
    }
    likeness
}

#[test]
fn nothing_of_a_stranger_gets_into_a_layered_video() {
    const SIZE: (u32, u32) = (160, 90);
    const PICTURES: u64 = 30;
    let Some(lab) = town() else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", SIZE, PICTURES);
    let source = streams.stream("clip.y4m", &["--layers", "100k,100k", "--fec", "8+4,8+4"]);
    let mark = mark(&source.process.events("streaming")[0]);
    let receivers = HONEST.map(|host| streams.watch(host, &["-o", &format!("{host}.y4m")]));
    for receiver in &receivers {
        receiver.wait_for_event("level", SOON);
    }
    let stranger = Stranger::start(streams.host(STRANGER), mark, false_pictures);
    let forged = |receiver: &Process| {
        let second = receiver.events("second").pop();
        second.map_or(0, |event| event["second"]["forged"].as_u64().unwrap_or(0))
    };
    wait_until(&streams.logs, "the stranger is heard", || {
        receivers.iter().all(|receiver| forged(receiver) >= 1_000)
    });
    stranger.stop();
    let size = Size::new(SIZE.0, SIZE.1).unwrap();
    let clip = Clip::new(Kind::Pan, size, 1);
    let clip: Vec<Frame> = (0..PICTURES).map(|number| clip.frame(number)).collect();
    for (host, receiver) in HONEST.into_iter().zip(receivers) {
        let summary = end(receiver);
        assert_eq!(summary["unchecked"], 0, "{summary}");
        // The decoder refuses what is no picture, and none that it shows is strange.
        let screen = &summary["screen"];
        assert_eq!(screen["refused"], 0, "{summary}");
        let [shown, repeated] = ["shown", "repeated"].map(|name| screen[name].as_u64().unwrap());
        assert!(shown - repeated > PICTURES, "{summary}");
        let likeness = likeness(&streams.path(&format!("{host}.y4m")), &clip);
        assert!(likeness.len() as u64 > PICTURES, "{} pictures: {summary}", likeness.len());
        let worst = likeness.iter().copied().fold(f64::MAX, f64::min);
        assert!(worst > 18.0, "{worst} dB: {summary}");
    }
    end(source.process);
}

/// Names the next segments, and has content of its own for them.
fn false_segments() -> impl FnMut(&mut Voice, &[Heard]) + Send + 'static {
    let mut turns = 0_u32;
    move |voice, heard| {
        let Mark { tsi, source, domain } = voice.mark;
        for one in heard.iter().filter(|one| one.from.ip() == source.ip()) {
            let Ok(packet) = SmallBlockPacket::parse(&one.bytes) else { continue };
            let header = packet.header;
            turns += 1;
            if header.tsi != tsi || header.toi.0 == 0 || !turns.is_multiple_of(4) {
                continue;
            }
            let body = b"a segment that nobody wrote";
            for ahead in 1..=2 {
                let head = ObjectHead {
                    name: format!("v0/seg_{:05}.m4s", header.toi.0 / 2 + ahead),
                    len: body.len() as u64,
                    digest: Digest(*blake3::hash(body).as_bytes()),
                    symbol_len: 1_304,
                    block_symbols: 128,
                };
                let mut bytes = Vec::new();
                head.emit(&mut bytes);
                let toi = Toi(header.toi.0 + 2 + ahead);
                let index = header.index + ahead * 2;
                let place = SmallBlockHeader { toi, sbn: 0, block_symbols: 1, esi: 0, ..header };
                let first = SmallBlockHeader { index, ..place };
                voice.say_as(source, domain, &forged(first, &bytes));
                let symbol = SmallBlockHeader { index: index + 1, sbn: 1, ..place };
                voice.say_as(source, domain, &forged(symbol, body));
            }
            // A symbol in the place of the next one.
            let (index, esi) = (header.index + 1, (header.esi + 1) % 128);
            let next = SmallBlockHeader { index, esi, ..header };
            voice.say_as(source, domain, &forged(next, &[0xEE; 1_304]));
        }
    }
}

#[test]
fn nothing_of_a_stranger_gets_into_a_ladder() {
    let Some(lab) = town() else { return };
    let ladders = Ladders::new(&lab);
    let _writer = Writer::start(ladders.path(), &[400_000]);
    let source = ladders.stream(&["--repair-listen", "0.0.0.0:7706"]);
    let mark = mark(&source.events("streaming")[0]);
    let gateways = HONEST.map(|host| ladders.gateway(host, &[]));
    let stranger = Stranger::start(ladders.host(STRANGER), mark, false_segments());
    let segments = |gateway: &Process| report(gateway)["segments"].as_u64().unwrap_or(0);
    wait_until(&ladders.logs, "the gateways have ten segments", || {
        gateways.iter().all(|gateway| segments(gateway) >= 10)
    });
    // Each segment that is served is one that was written.
    for host in HONEST {
        let (media, _) = ladders.play(host);
        assert!(media.segments.len() >= 10);
    }
    assert!(stranger.stop() > 100);
    for gateway in gateways {
        let summary = end(gateway);
        assert!(summary["forged"].as_u64() > Some(20), "{summary}");
    }
    end(source);
}
