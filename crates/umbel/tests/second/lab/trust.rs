//! Feeds and streams are taken from their senders alone, with any strangers on the network.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::feeds::{Feeds, Receiver};
use crate::support::process::Process;
use crate::support::streams::Streams;
use crate::support::{MINUTE, lab, star};
use umbel_lab::{Impairment, Node};
use umbel_wire::sap::{self, SapPacket};

const UNTIL_ENDED: &[&str] = &["--linger", "1h", "--wait-for", "0s"];

/// Sends what `forge` makes of each announcement heard until it is stopped.
fn forge(
    host: Node<'_>,
    stop: &Arc<AtomicBool>,
    forge: impl Fn(&SapPacket<'_>) -> Vec<Vec<u8>> + Send + 'static,
) -> std::thread::JoinHandle<u64> {
    let any = SocketAddr::from(([0, 0, 0, 0], sap::PORT));
    let ears: UdpSocket = host.udp_socket(any).unwrap();
    ears.join_multicast_v4(&sap::LOCAL_V4, &host.addr4()).unwrap();
    ears.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mouth: UdpSocket = host.udp_socket((host.addr4(), 0).into()).unwrap();
    let (stop, own) = (stop.clone(), host.addr4());
    std::thread::spawn(move || {
        let (mut sent, mut forged) = (0, Vec::new());
        let mut buffer = [0; 2_000];
        while !stop.load(Ordering::Acquire) {
            if let Ok((len, from)) = ears.recv_from(&mut buffer)
                && from.ip() != own
                && let Ok(packet) = SapPacket::parse(&buffer[..len])
                && !packet.deletion
            {
                forged = forge(&packet);
            }
            for packet in &forged {
                sent += u64::from(mouth.send_to(packet, (sap::LOCAL_V4, sap::PORT)).is_ok());
            }
        }
        sent
    })
}

/// Receives with its own options from a selector, to the directory of a label.
fn recv(feeds: &Feeds<'_>, host: &str, label: &str, from: &str, options: &[&str]) -> Receiver {
    let out = feeds.out(label);
    let mut command = feeds.umbel(host);
    command.args(["recv", "--json", from, "--as", label]).args(options).arg("-o").arg(&out);
    Receiver { process: Process::start(label, command, &feeds.logs), out }
}

#[test]
fn a_sender_is_believed_the_first_time_and_nobody_else_after_it() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("a", 100_000)]);
    let other = feeds.directory.path().join("other");
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("a"), "another's").unwrap();
    let own_state = |name: &str| feeds.directory.path().join(name).to_str().unwrap().to_owned();
    let (mine, theirs) = (own_state("mine"), own_state("theirs"));

    let mut sender = feeds.send(UNTIL_ENDED);
    let sending = sender.events("sending").remove(0);
    let url = sending["url"].as_str().unwrap().to_owned();
    let pin = sending["pin"].as_str().unwrap();
    assert!(url.ends_with(pin), "{url}");
    let mut first = recv(&feeds, "h3", "first", "feed", &["--state-dir", &mine]);
    feeds.check(&mut first, MINUTE);
    assert_eq!(first.process.events("feed")[0]["pin"], *pin);
    let known = std::fs::read_to_string(format!("{mine}/known_feeds")).unwrap();
    assert!(known.starts_with(&format!("{pin} @")) && known.ends_with(" feed\n"), "{known}");

    // Another sender of that name, which says that it is the same.
    let mut command = feeds.umbel("h2");
    command.args(["send", "--json", "--name", "feed", "--state-dir", &theirs]).args(UNTIL_ENDED);
    command.arg(&other);
    let impostor = Process::start("impostor", command, &feeds.logs);
    let their_pin = impostor.wait_for_event("sending", SOON)["pin"].as_str().unwrap().to_owned();
    for (label, from, options) in [
        ("known", "feed", &["--state-dir", &mine][..]),
        ("pinned", &url, &["--state-dir", &own_state("pinned")]),
    ] {
        let mut receiver = recv(&feeds, "h3", label, from, options);
        feeds.check(&mut receiver, MINUTE);
    }

    sender.kill();
    let refused = ["--state-dir", &mine, "--wait", "2s"];
    let mut refused = recv(&feeds, "h3", "refused", "feed", &refused);
    assert_eq!(refused.process.wait_end(MINUTE).code(), Some(1));
    let said = refused.process.stderr();
    let advice = format!("umbel recv 'umbel-feed://feed?pin={their_pin}'");
    assert!(said.contains("no longer has the key") && said.contains(&advice), "{said}");
    assert!(!refused.out.join("a").exists());
    // The advice works, and is remembered.
    for from in [&format!("umbel-feed://feed?pin={their_pin}"), "feed"] {
        let mut receiver = recv(&feeds, "h3", "accepted", from, &["--state-dir", &mine]);
        receiver.process.wait_done(MINUTE);
        assert_eq!(std::fs::read(receiver.out.join("a")).unwrap(), b"another's");
    }
}

#[test]
fn a_stream_is_taken_from_the_sender_that_is_known() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let streams = Streams::new(&lab);
    streams.make_clip("clip.y4m", (160, 90), 45);
    let source = |state: &str| {
        let source = streams.stream("clip.y4m", &["--layers", "100k", "--state-dir", state]);
        let pin = source.process.events("streaming")[0]["pin"].as_str().unwrap().to_owned();
        (source.process, pin)
    };
    let watch = |stream: &str| {
        let mut command = streams.umbel("h2");
        command.args(["watch", stream, "--json", "--stats", "--wait", "3s", "--for", "1s"]);
        let mut receiver = Process::start("h2", command, &streams.logs);
        let code = receiver.wait_end(MINUTE).code();
        (code, receiver.stderr())
    };
    let (mut genuine, pin) = source("mine");
    assert_eq!(watch("live").0, Some(0));
    let known = streams.path("state/umbel/known_streams");
    assert_eq!(std::fs::read_to_string(known).unwrap(), format!("{pin} live\n"));
    genuine.kill();

    let (_impostor, their_pin) = source("theirs");
    let (code, said) = watch("live");
    let url = format!("umbel-stream://live?pin={their_pin}");
    let advice = format!("umbel watch '{url}'");
    assert!(said.contains("no longer has the key") && said.contains(&advice), "{said}");
    assert_eq!(code, Some(1));
    // The advice works, and is remembered.
    assert_eq!(watch(&url).0, Some(0));
    assert_eq!(watch("live").0, Some(0));
}

#[test]
fn forged_announcements_and_deletions_change_nothing() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("a", 100_000)]);
    let stop = Arc::new(AtomicBool::new(false));
    let made = move |genuine: &SapPacket<'_>| {
        let packet = |deletion, payload: &[u8]| {
            let mut out = Vec::new();
            SapPacket::new(deletion, genuine.origin, payload).emit(&mut out);
            out
        };
        let text = String::from_utf8(genuine.payload.to_vec()).unwrap();
        let signature = text.find("a=x-umbel-signed:").unwrap_or(text.len());
        let elsewhere = text.replace("x-umbel-scope:32", "x-umbel-scope:1");
        vec![
            // The same with its signature under something else, without one, and as a deletion.
            packet(false, elsewhere.as_bytes()),
            packet(false, &elsewhere.as_bytes()[..signature - 1]),
            packet(true, text.as_bytes()),
            packet(true, &text.as_bytes()[..signature]),
        ]
    };
    let forger = forge(feeds.host("h3"), &stop, made);
    let mut sender = feeds.send(&["--wait-for", "1"]);
    let mut receiver = feeds.recv("h2", &[]);
    feeds.check(&mut receiver, MINUTE);
    assert_eq!(sender.wait_done(SOON)["done"], 1);
    stop.store(true, Ordering::Release);
    assert!(forger.join().unwrap() > 0, "nothing was forged");
}
