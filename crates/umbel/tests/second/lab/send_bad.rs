//! Errors of a feed are reported in one line, and garbage and strangers disturb nothing.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::process::Process;
use crate::support::{MB, MINUTE, files, lab, star};
use serde_json::Value;
use umbel_lab::{Impairment, Node};

/// Runs `umbel` on a host. Returns its exit code and its standard error.
fn run(feeds: &Feeds<'_>, host: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = feeds.umbel(host).args(arguments).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// Asserts that the command fails with this code, and with one line that has all these words.
#[track_caller]
fn fails(feeds: &Feeds<'_>, host: &str, arguments: &[&str], code: i32, words: &[&str]) {
    let (got, said) = run(feeds, host, arguments);
    assert_eq!(got, Some(code), "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{arguments:?} does not say {word:?}: {said}");
    }
    if code == 1 {
        let errors = said.lines().filter(|line| line.starts_with("umbel: ")).count();
        assert_eq!(errors, 1, "{said}");
    }
}

#[test]
fn what_cannot_be_sent_or_received_is_said_in_one_line() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("a", 10)]);
    let input = feeds.input();
    let input = input.to_str().unwrap();
    let send = |more: &[&'static str], code: i32, words: &[&str]| {
        let arguments = [&["send", input, "--name", "x"], more].concat();
        fails(&feeds, "h1", &arguments, code, words);
    };
    send(&["--k", "0"], 2, &["--k", "1.."]);
    send(&["--rate", "0"], 2, &["--rate", "out of range"]);
    send(&["--scope", "0"], 2, &["--scope"]);
    send(&["--block", "0"], 2, &["--block"]);
    send(&["--block", "256"], 2, &["256"]);
    send(&["--wait-for", "soon"], 2, &["10s"]);
    send(&["--linger", "1"], 2, &["10s"]);
    send(&["--group", "10.1.2.3"], 1, &["10.1.2.3", "232.0.0.0/8"]);
    send(&["--group", "239.1.2.3", "--ipv6"], 1, &["IPv4", "IPv6"]);
    send(&["--mtu", "100"], 1, &["--mtu 100", "256"]);
    send(&["--mtu", "9000"], 1, &["--mtu 9000", "1500"]);
    send(&["--interface", "nowhere0"], 1, &["nowhere0", "use one of"]);
    send(&["--admit", "/nonexistent"], 1, &["/nonexistent"]);
    send(&["--name", "x@y"], 2, &["@"]);
    fails(&feeds, "h1", &["send", "/nonexistent", "--name", "x"], 1, &["/nonexistent"]);
    fails(&feeds, "h1", &["send", "-", input, "--name", "x"], 1, &["standard input"]);
    fails(&feeds, "h1", &["send", "--name", "x"], 2, &["PATH"]);
    let empty = feeds.directory.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    let empty = empty.to_str().unwrap();
    fails(&feeds, "h1", &["send", empty, "--name", "x"], 1, &["nothing to send"]);

    let wait = ["--wait", "1s"];
    let recv = |more: &[&str], code: i32, words: &[&str]| {
        fails(&feeds, "h2", &[&["recv"], more, &wait].concat(), code, words);
    };
    recv(&["nobody"], 1, &["no feed `nobody` is on the air after 1 s", "umbel groups"]);
    recv(&["nobody@10.1.0.1"], 1, &["no feed `nobody`"]);
    recv(&["nobody@somewhere"], 2, &["somewhere", "no address"]);
    recv(&["nobody", "--from", "then"], 2, &["start", "now"]);
    recv(&["nobody", "--json", "-o", "-"], 1, &["--json", "-o -"]);
    fails(&feeds, "h2", &["tree", "nobody", "--wait", "1s"], 1, &["no feed `nobody`"]);
    let (code, said) = run(&feeds, "h2", &["groups", "--wait", "200ms"]);
    assert_eq!(code, Some(0));
    assert!(said.contains("nothing is on the air"), "{said}");
}

#[test]
fn a_pipe_and_files_are_not_taken_for_each_other() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("a", 10)]);
    let mut sender = feeds.send(&[]);
    let to_output = ["recv", "feed", "-o", "-"];
    fails(&feeds, "h2", &to_output, 1, &["`feed` has files", "-o DIR"]);
    let pipe = feeds.shell("h1", "echo x | \"$UMBEL\" send - --name pipe");
    fails(&feeds, "h2", &["recv", "pipe", "-o", "out"], 1, &["`pipe` is a pipe", "-o -"]);
    fails(&feeds, "h2", &["recv", "pipe"], 1, &["`pipe` is a pipe", "-o -"]);
    let (code, _) = run(&feeds, "h2", &["recv", "pipe", "-o", "-"]);
    assert_eq!(code, Some(0));
    assert!(pipe.wait_with_output().unwrap().status.success());
    let mut receiver = feeds.recv("h2", &[]);
    feeds.check(&mut receiver, MINUTE);
    sender.wait_done(SOON);
}

#[test]
fn a_receiver_writes_below_the_feeds_name_and_replaces_or_hides_nothing_unasked() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("a", 10_000), ("b", 10_000), (".profile", 10)]);
    let place = feeds.directory.path().join("home");
    std::fs::create_dir_all(place.join("feed")).unwrap();
    std::fs::write(place.join("feed/a"), "mine").unwrap();
    let recv = |more: &[&str]| {
        let mut command = feeds.umbel("h2");
        command.args(["recv", "feed", "--wait", "20s"]).args(more).current_dir(&place);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let mut sender = feeds.send(&["--hidden"]);
    let (code, said) = recv(&[]);
    assert_eq!(code, Some(1), "{said}");
    for words in ["./feed/a exists and differs: --overwrite", "./feed/.profile", "--hidden"] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert_eq!(std::fs::read(place.join("feed/a")).unwrap(), b"mine");
    assert!(!place.join("feed/.profile").exists(), "{said}");
    sender.wait_end(MINUTE);
    let mut sender = feeds.send(&["--hidden"]);
    let (code, said) = recv(&["--overwrite", "--hidden"]);
    assert_eq!(code, Some(0), "{said}");
    files::assert_same(&feeds.input(), &place.join("feed"), |_| true);
    sender.wait_done(MINUTE);

    // Without --hidden such files are not sent, and nobody lacks them.
    let mut sender = feeds.send(&[]);
    let mut receiver = feeds.recv("h2", &[]);
    receiver.process.wait_done(MINUTE);
    files::assert_same(&feeds.input(), &receiver.out, |name| name != ".profile");
    let summary = sender.wait_done(MINUTE);
    assert_eq!(summary["left_out"], 0, "{summary}");
    // A name that is none of a directory would be refused by each receiver.
    let input = feeds.input();
    let odd = ["send", "--name", "../feed", input.to_str().unwrap()];
    fails(&feeds, "h1", &odd, 1, &["../feed", "directory"]);
}

#[test]
fn of_two_sources_of_one_name_the_user_chooses() {
    let Some(lab) = lab(&star(3, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("a", 100_000)]);
    let mut first = feeds.send(&[]);
    let state = |name: &str| feeds.directory.path().join(name);
    let mut command = feeds.umbel("h2");
    command.args(["send", "--json", "--name", "feed", "--rate", "20M"]).arg(feeds.input());
    command.arg("--state-dir").arg(state("second"));
    let mut second = Process::start("second", command, &feeds.logs);
    let sending = second.wait_for_event("sending", SOON);
    let listed = feeds.umbel("h4").args(["groups", "--json"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let addresses = ["h1", "h2"].map(|host| feeds.host(host).addr4().to_string());
    let pin = |sending: &Value| sending["pin"].as_str().unwrap().to_owned();
    let pins = [pin(&first.events("sending")[0]), pin(&sending)];
    let words = ["2 sources", "umbel-feed://feed?pin=", &pins[0], &pins[1]];
    let out = feeds.out("undecided");
    fails(&feeds, "h4", &["recv", "feed", "-o", out.to_str().unwrap()], 1, &words);
    let choose = |host: &str, source: &str| {
        let mut command = feeds.umbel(host);
        let out = feeds.out(host);
        command.args(["recv", "--json", &format!("feed@{source}")]).arg("-o").arg(out);
        command.arg("--state-dir").arg(state(host));
        Process::start(host, command, &feeds.logs)
    };
    choose("h3", &addresses[0]).wait_done(MINUTE);
    choose("h4", sending["source"].as_str().unwrap()).wait_done(MINUTE);
    for sender in [&mut first, &mut second] {
        assert_eq!(sender.wait_done(SOON)["done"], 1);
    }
}

#[test]
fn a_file_that_changes_while_it_is_sent_ends_the_feed_for_everyone() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("changes", 2 * MB), ("good", 300_000)]);
    let mut sender = feeds.send(&["--rate", "50M", "--wait-for", "1"]);
    // Its digest is known by now; size and time stay the same.
    let changes = std::fs::File::options().write(true).open(feeds.input().join("changes")).unwrap();
    let modified = changes.metadata().unwrap().modified().unwrap();
    changes.write_all_at(b"other bytes", 1_000_000).unwrap();
    changes.set_modified(modified).unwrap();
    let mut receiver = feeds.recv("h2", &[]);
    assert_eq!(receiver.process.wait_end(MINUTE).code(), Some(1));
    let summary = receiver.process.events("done").pop().unwrap()["summary"].clone();
    assert!(summary["failure"].as_str().unwrap().contains("it changed"), "{summary}");
    assert_eq!(sender.wait_end(MINUTE).code(), Some(1));
    let sent = sender.events("done").pop().unwrap()["summary"].clone();
    assert!(sent["failure"].as_str().unwrap().contains("changes"), "{sent}");
}

#[test]
fn a_receiver_whose_disk_is_full_holds_nobody_up() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[("large", 20 * MB), ("small", 100_000)]);
    let mut sender = feeds.send(&["--rate", "40M", "--wait-for", "2"]);
    std::fs::create_dir_all(feeds.out("full")).unwrap();
    let full = feeds.shell(
        "h2",
        "unshare --mount bash -c 'mount -t tmpfs -o size=4m none out/full &&
             exec \"$UMBEL\" recv feed --as full --wait 20s -o out/full'",
    );
    let mut receiver = feeds.recv("h3", &[]);
    feeds.check(&mut receiver, MINUTE);
    assert_eq!(sender.wait_end(MINUTE).code(), Some(1));
    let sent = sender.events("done").pop().unwrap()["summary"].clone();
    // It has left by itself: a receiver that holds others up is evicted, and nobody was.
    assert_eq!((&sent["done"], &sent["evicted"]), (&1.into(), &0.into()), "{sent}");
    let output = full.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("large"), "{said}");
}

/// Sends noise and malformed messages to each of these places until it is stopped.
fn make_noise(
    host: Node<'_>,
    places: Vec<SocketAddr>,
    stop: &Arc<AtomicBool>,
) -> std::thread::JoinHandle<u64> {
    let socket: UdpSocket = host.udp_socket((host.addr4(), 0).into()).unwrap();
    let stop = stop.clone();
    std::thread::spawn(move || {
        let mut noise = blake3::Hasher::new().update(b"noise").finalize_xof();
        let mut sent = 0;
        let mut buffer = [0; 1400];
        while !stop.load(Ordering::Acquire) {
            for place in &places {
                noise.fill(&mut buffer);
                let len = usize::from(buffer[1399]) * 5;
                match sent % 4 {
                    // A control message of some type, with a body of its length.
                    0 => {
                        let kind = 0xA0 | buffer[3] & 0x1F;
                        buffer[..4].copy_from_slice(&[b'U', b'm', 1, kind]);
                        let body = (len.max(8) - 8) as u32;
                        buffer[4..8].copy_from_slice(&body.to_be_bytes());
                    }
                    // A data packet of FEC Encoding ID 129.
                    1 => buffer[..4].copy_from_slice(&[0x14, 0xA0, 5, 129]),
                    // An announcement.
                    2 => buffer[..2].copy_from_slice(&[0x20, 0]),
                    _ => {}
                }
                let _ = socket.send_to(&buffer[..len.max(8)], place);
                sent += 1;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        sent
    })
}

#[test]
fn garbage_on_every_port_changes_nothing() {
    let Some(lab) = lab(&star(3, Impairment::none().loss(0.01))) else { return };
    let feeds = Feeds::new(&lab, &[("large", 6 * MB), ("small", 10)]);
    let mut sender = feeds.send(&["--rate", "20M", "--wait-for", "2"]);
    let sending: Value = sender.events("sending").remove(0);
    let address = |field: &str| -> SocketAddr {
        sending[field].as_str().unwrap().split('@').next().unwrap().parse().unwrap()
    };
    let directory = IpAddr::from([239, 255, 255, 255]);
    let mut places = vec![address("source"), address("data"), address("domain")];
    places.extend([9875, 7701].map(|port| SocketAddr::new(directory, port)));
    for port in [7702, 7703] {
        let addresses = ["h2", "h3"].map(|host| feeds.host(host).addr4());
        places.extend(addresses.map(|address| SocketAddr::from((address, port))));
    }
    let stop = Arc::new(AtomicBool::new(false));
    let noise = make_noise(feeds.host("h4"), places, &stop);
    let mut receivers = ["h2", "h3"].map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        let summary = feeds.check(receiver, MINUTE);
        assert!(summary["drops"].as_str().unwrap().contains("Malformed"), "{summary}");
    }
    let summary = sender.wait_done(SOON);
    stop.store(true, Ordering::Release);
    assert!(noise.join().unwrap() > 1000);
    assert_eq!(summary["done"], 2, "{summary}");
    assert!(summary["drops"].as_str().unwrap().contains("Malformed"), "{summary}");
}

/// Sets the greatest number of files that a program may have open. Returns whether it still runs.
fn limit_files(sender: &Process, files: usize) -> bool {
    let limit = [format!("--pid={}", sender.id()), format!("--nofile={files}:")];
    std::process::Command::new("prlimit").args(limit).output().unwrap().status.success()
}

#[test]
fn a_sender_that_may_open_no_more_files_goes_on_once_it_may() {
    let Some(lab) = lab(&star(2, Impairment::none())) else { return };
    let names: Vec<String> = (0..60).map(|n| format!("file{n}")).collect();
    let plan: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 100_000)).collect();
    let feeds = Feeds::new(&lab, &plan);
    let mut sender = feeds.send(&["--wait-for", "2"]);
    let open = std::fs::read_dir(format!("/proc/{}/fd", sender.id())).unwrap().count();
    assert!(limit_files(&sender, open));
    let mut receivers = ["h2", "h3"].map(|host| feeds.recv(host, &[]));
    for receiver in &receivers {
        receiver.process.wait_for_event("joined", SOON);
    }
    std::thread::sleep(Duration::from_secs(3));
    // It may have found room, and be done.
    limit_files(&sender, 1_024);
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
    assert_eq!(sender.wait_done(SOON)["done"], 2);
}
