//! Transfers on loopback: interrupted, resumed, repeated, and of files that change meanwhile.
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

use super::support::{Place, Running, Server, in_namespace, noise, umbel, wait_until};

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns whether some of the item has been written to its part file.
fn has_begun(place: &Place, name: &str) -> bool {
    let part = place.out().join(format!(".{name}.umbel-part"));
    std::fs::metadata(part).is_ok_and(|part| part.len() > 0)
}

#[test]
fn an_interrupted_get_goes_on_where_it_was() {
    let place = Place::with(&[("big.bin", &noise(1, 2_000_000)), ("first", b"1")]);
    let server = place.serve(&["--rate", "8M"]);
    let client = Running::start(&mut place.get_command(&server.url, &["--json"]));
    wait_until("a part of the item", || has_begun(&place, "big.bin"));
    std::thread::sleep(std::time::Duration::from_millis(700));
    client.interrupt();
    let first = client.finish();
    first.interrupted_with(&["interrupted", "same command"]);
    let done = first.event("done");
    assert_eq!((&done["ok"], &done["summary"]["interrupted"]), (&false.into(), &true.into()));
    assert!(!place.out().join("big.bin").exists());
    assert!(has_begun(&place, "big.bin"));

    let second = place.get(&server.url, &["--json"]);
    let summary = second.succeeded().event("done")["summary"].clone();
    place.assert_received("big.bin");
    place.assert_received("first");
    assert_eq!(place.received(), ["big.bin", "first"]);
    let resumed = summary["resumed_bytes"].as_u64().unwrap();
    assert!((100_000..2_000_000).contains(&resumed), "{summary}");
    // Data that was present did not cross the network again.
    let packets = summary["packets"].as_u64().unwrap() * 1_300;
    assert!(packets < 2_000_000 - resumed / 2, "{resumed} bytes were there: {summary}");
}

#[test]
fn a_get_that_finds_no_server_can_be_interrupted() {
    let place = Place::new();
    let dead = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let pin = super::support::FOREIGN_PIN;
    let url = format!("umbel://{}/?pin={pin}", dead.local_addr().unwrap());
    let client = Running::start(&mut place.get_command(&url, &[]));
    wait_until("an output directory", || place.out().is_dir());
    std::thread::sleep(std::time::Duration::from_millis(100));
    client.interrupt();
    client.finish().interrupted_with(&["interrupted"]);
}

#[test]
fn a_killed_get_goes_on_where_it_was_and_says_so() {
    let place = Place::with(&[("big.bin", &noise(2, 2_000_000))]);
    let server = place.serve(&["--rate", "8M"]);
    let client = Running::start(&mut place.get_command(&server.url, &[]));
    wait_until("a part of the item", || has_begun(&place, "big.bin"));
    std::thread::sleep(std::time::Duration::from_secs(1));
    drop(client);
    let second = place.get(&server.url, &[]);
    assert!(second.succeeded().stderr.contains("were there"), "{second:?}");
    place.assert_received("big.bin");
    assert_eq!(place.received(), ["big.bin"]);
}

#[test]
fn what_is_there_is_not_sent_again() {
    let place = Place::with(&[("a.bin", &noise(3, 300_000)), ("b/empty", b"")]);
    let server = place.serve(&[]);
    place.get(&server.url, &[]).succeeded();
    place.assert_received("a.bin");
    place.assert_received("b/empty");

    let again = place.get(&server.url, &["--json"]);
    let summary = again.succeeded().event("done")["summary"].clone();
    assert_eq!((&summary["already_there"], &summary["items"]), (&2.into(), &0.into()));
    assert_eq!((&summary["packets"], &summary["bytes"]), (&0.into(), &0.into()));
    let there = again.json().iter().filter(|value| value["event"] == "already-there").count();
    assert_eq!(there, 2);

    // A file that the user has changed is kept, and received again only if the user says so.
    std::fs::write(place.out().join("a.bin"), "changed").unwrap();
    let third = place.get(&server.url, &[]);
    third.failed_with(&["a.bin", "exists and differs", "--overwrite"]);
    assert_eq!(std::fs::read(place.out().join("a.bin")).unwrap(), b"changed");
    let fourth = place.get(&server.url, &["--overwrite"]);
    assert!(fourth.succeeded().stderr.contains("1 item, "), "{fourth:?}");
    place.assert_received("a.bin");
}

#[test]
fn a_file_replaced_meanwhile_never_arrives_mixed() {
    let (old, new) = (noise(4, 1_000_000), noise(5, 1_000_000));
    let place = Place::with(&[("a.bin", &old), ("z", b"z")]);
    let server = place.serve(&["--rate", "8M", "--rescan", "1"]);
    let client = Running::start(&mut place.get_command(&server.url, &[]));
    wait_until("a part of the item", || has_begun(&place, "a.bin"));
    let beside = place.path().join("new");
    std::fs::write(&beside, &new).unwrap();
    std::fs::rename(&beside, place.repo().join("a.bin")).unwrap();
    let got = client.finish();
    got.succeeded();
    let received = std::fs::read(place.out().join("a.bin")).unwrap();
    assert!(received == old, "a transmission in progress goes on from the old version");

    wait_until("the new version", || {
        place.get(&server.url, &["--overwrite"]).succeeded();
        std::fs::read(place.out().join("a.bin")).unwrap() == new
    });
}

#[test]
fn a_file_overwritten_in_place_meanwhile_arrives_whole() {
    let (old, new) = (noise(6, 1_000_000), noise(7, 1_000_000));
    let place = Place::with(&[("a.bin", &old), ("z", b"z")]);
    let server = place.serve(&["--rate", "8M"]);
    let client = Running::start(&mut place.get_command(&server.url, &[]));
    wait_until("a part of the item", || has_begun(&place, "a.bin"));
    std::fs::write(place.repo().join("a.bin"), &new).unwrap();
    let got = client.finish();
    place.assert_received("z");
    got.succeeded();
    let received = std::fs::read(place.out().join("a.bin")).unwrap();
    assert!(received == old || received == new, "{got:?}");
}

#[test]
fn a_release_that_is_replaced_meanwhile_arrives_as_one() {
    let release = |seed: u64| (1..=4).map(move |i| (format!("f{i}"), noise(seed + i, 500_000)));
    let place = Place::new();
    for (name, bytes) in release(100) {
        std::fs::write(place.repo().join(name), bytes).unwrap();
    }
    let server = place.serve(&["--rate", "8M", "--rescan", "1"]);
    let client = Running::start(&mut place.get_command(&server.url, &["--json"]));
    wait_until("a part of the release", || has_begun(&place, "f1"));
    for (name, bytes) in release(200) {
        let beside = place.path().join("new");
        std::fs::write(&beside, bytes).unwrap();
        std::fs::rename(&beside, place.repo().join(name)).unwrap();
    }
    let got = client.finish();
    got.succeeded();
    let is_of = |seed| {
        release(seed).all(|(name, bytes)| std::fs::read(place.out().join(name)).unwrap() == bytes)
    };
    assert!(is_of(100) || is_of(200), "it is a mixture: {got:?}");
    // What the same command wrote before, it may bring up to date.
    let rounds = got.event("done")["summary"]["rounds"].as_u64().unwrap();
    assert!(is_of(200) == (rounds > 1), "{got:?}");
}

#[test]
fn a_get_that_was_killed_is_gone_on_with_in_the_next_release() {
    let place = Place::with(&[("a", b"old"), ("mine", b"old"), ("z", &noise(300, 6_000_000))]);
    let server = place.serve(&["--rate", "8M", "--rescan", "1"]);
    let client = Running::start(&mut place.get_command(&server.url, &["--json"]));
    wait_until("a whole file and a part", || {
        place.out().join("a").exists()
            && place.out().join("mine").exists()
            && has_begun(&place, "z")
    });
    drop(client);
    for name in ["a", "mine", "z"] {
        std::fs::write(place.repo().join(name), format!("new {name}")).unwrap();
    }
    std::fs::write(place.out().join("mine"), "edited").unwrap();
    let got = place.get(&server.url, &[]);
    // What was changed since is the user's.
    got.failed_with(&["mine", "--overwrite"]);
    place.assert_received("a");
    place.assert_received("z");
    assert_eq!(std::fs::read(place.out().join("mine")).unwrap(), b"edited");
}

#[test]
fn a_link_goes_from_one_release_to_the_next_at_once() {
    let big = noise(400, 2_000_000);
    let place = Place::with(&[("a", b"one"), ("d/same", &noise(401, 50_000)), ("gone", b"one")]);
    let server = place.serve(&["--rate", "8M", "--rescan", "1"]);
    let beside = || -> Vec<String> {
        let entries = std::fs::read_dir(place.path()).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.filter(|name| name.contains("out")).collect();
        names.sort();
        names
    };
    let inode = || std::fs::metadata(place.out().join("d/same")).unwrap().ino();
    place.get(&server.url, &["--atomic"]).succeeded();
    assert_eq!(
        (place.received(), beside()),
        (names(&["a", "d/same", "gone"]), names(&[".out.umbel-a", "out"]))
    );
    let first = inode();
    std::fs::write(place.repo().join("a"), "two").unwrap();
    std::fs::write(place.repo().join("big"), &big).unwrap();
    std::fs::remove_file(place.repo().join("gone")).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2_500));
    let killed = Running::start(&mut place.get_command(&server.url, &["--atomic"]));
    let part = place.path().join(".out.umbel-b/.big.umbel-part");
    wait_until("a part", || std::fs::metadata(&part).is_ok_and(|part| part.len() > 0));
    drop(killed);
    assert_eq!(place.received(), ["a", "d/same", "gone"], "the release before is whole");
    // What is left there from another release is none of this one.
    std::fs::write(place.path().join(".out.umbel-b/stray"), "stray").unwrap();
    place.get(&server.url, &["--atomic"]).succeeded();
    for name in ["a", "big", "d/same"] {
        place.assert_received(name);
    }
    assert_eq!(
        (place.received(), beside()),
        (names(&["a", "big", "d/same"]), names(&[".out.umbel-b", "out"]))
    );
    assert_eq!(inode(), first, "what is the same is linked, not copied");
    std::fs::remove_file(place.out()).unwrap();
    std::fs::create_dir(place.out()).unwrap();
    place.get(&server.url, &["--atomic"]).failed_with(&["out is no link"]);
}

#[test]
fn a_file_that_vanishes_is_told_and_the_others_come() {
    let place = Place::with(&[("a", b"alpha"), ("b", &noise(8, 50_000)), ("c", b"gamma")]);
    let server = place.serve(&["--rescan", "0"]);
    // Its digest is known, but its bytes are gone.
    wait_for_digests(&server);
    std::fs::remove_file(place.repo().join("b")).unwrap();
    let got = place.get(&server.url, &[]);
    assert_eq!(got.code, Some(24), "{got:?}");
    assert!(got.stderr.contains("vanished: b\n"), "{got:?}");
    assert_eq!(place.received(), ["a", "c"]);
}

/// Waits until the server has computed the digests of all its items.
fn wait_for_digests(server: &Server) {
    wait_until("all digests", || {
        let list = super::support::run(["ls", &server.url, "--json"]);
        list.succeeded().json().iter().all(|item| item["digest"].is_string())
    });
}

#[test]
fn a_file_that_vanishes_in_the_middle_is_told_and_the_others_come() {
    let place = Place::with(&[("a.bin", &noise(9, 1_500_000)), ("z", &noise(10, 20_000))]);
    let server = place.serve(&["--rate", "8M", "--rescan", "1"]);
    let client = Running::start(&mut place.get_command(&server.url, &[]));
    wait_until("a part of the item", || has_begun(&place, "a.bin"));
    std::fs::remove_file(place.repo().join("a.bin")).unwrap();
    let got = client.finish();
    place.assert_received("z");
    // An open file outlives its name.
    if place.out().join("a.bin").exists() {
        assert!(std::fs::read(place.out().join("a.bin")).unwrap() == noise(9, 1_500_000));
        got.succeeded();
    } else {
        assert_eq!(got.code, Some(24), "{got:?}");
        assert!(got.stderr.contains("vanished: a.bin\n"), "{got:?}");
    }
}

#[test]
fn a_server_that_stops_is_waited_for_and_found_again() {
    let place = Place::with(&[("a.bin", &noise(11, 1_500_000))]);
    let port = std::net::UdpSocket::bind("[::]:0").unwrap().local_addr().unwrap().port();
    let serve = ["--rate", "8M", "--port", &port.to_string()];
    let server = place.serve(&serve);
    let client = Running::start(&mut place.get_command(&server.url, &[]));
    wait_until("a part of the item", || has_begun(&place, "a.bin"));
    server.running.interrupt();
    server.running.finish().succeeded();
    let _again = place.serve(&serve);
    let got = client.finish();
    assert!(got.succeeded().stderr.contains("trying again"), "{got:?}");
    place.assert_received("a.bin");
}

#[test]
fn several_clients_get_what_each_wants() {
    let place = Place::with(&[
        ("images/one.png", &noise(12, 120_000)),
        ("images/deep/two.png", &noise(13, 80_000)),
        ("notes.txt", b"notes"),
        ("grüße/日本.txt", "ü".as_bytes()),
    ]);
    // With an any-source group, the interface follows from the session alone.
    let server = place.serve(&["--rate", "50M", "--group", "239.255.77.8"]);
    let wishes: [(&[&str], &[&str]); 4] = [
        (&["images/**"], &["images/deep/two.png", "images/one.png"]),
        (&["*.txt"], &["notes.txt"]),
        (&["grüße/*", "notes.txt"], &["grüße/日本.txt", "notes.txt"]),
        (&[], &["grüße/日本.txt", "images/deep/two.png", "images/one.png", "notes.txt"]),
    ];
    let clients = wishes.map(|(patterns, expected)| {
        let out = Place::new();
        let running = Running::start(&mut out.get_command(&server.url, patterns));
        (out, running, expected)
    });
    for (out, running, expected) in clients {
        let got = running.finish();
        assert!(!got.succeeded().stderr.contains("no multicast"), "{got:?}");
        assert_eq!(out.received(), expected);
        for name in expected {
            let served = std::fs::read(place.repo().join(name)).unwrap();
            assert!(served == std::fs::read(out.out().join(name)).unwrap(), "{name}");
        }
    }
}

#[test]
fn every_code_and_size_of_packets_delivers() {
    for more in [
        &["--code", "raptorq"][..],
        &["--code", "none"],
        &["--mtu", "9000"],
        &["--mtu", "256"],
        &["--group", "239.255.77.7"],
    ] {
        let place = Place::with(&[("a.bin", &noise(14, 300_000)), ("empty", b"")]);
        let server = place.serve(more);
        let got = place.get(&server.url, &["--json", "--fallback-after", "20"]);
        assert_eq!(got.succeeded().event("done")["summary"]["unicast_blocks"], 0, "{more:?}");
        place.assert_received("a.bin");
        place.assert_received("empty");
    }
}

#[test]
fn it_delivers_over_ipv6() {
    let place = Place::with(&[("a.bin", &noise(16, 300_000))]);
    let script = format!(
        "ip link set lo up; ip -6 route add local ff00::/8 dev lo table local
         \"$UMBEL\" serve {repo} --state-dir {state} --interface lo --ipv6 >{url} &
         while ! [ -s {url} ]; do sleep 0.02; done
         eval \"$(sed 's/^umbel/\"$UMBEL\"/' {url}) -o {out} --no-fallback --json\"",
        repo = place.repo().display(),
        state = place.path().join("state").display(),
        url = place.path().join("url").display(),
        out = place.out().display(),
    );
    let Some(mut command) = in_namespace(&["--net"], &script) else { return };
    let ran = Running::start(&mut command).finish();
    assert_eq!(ran.succeeded().event("done")["summary"]["unicast_blocks"], 0);
    place.assert_received("a.bin");
}

/// Starts a server that answers every request with a body derived from its path.
fn web_server() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(answer));
    format!("http://{address}")
}

fn body(path: &str) -> Vec<u8> {
    noise(path.len() as u64, 40_000 + path.len())
}

fn answer(mut stream: TcpStream) {
    let mut request = Vec::new();
    let mut byte = [0];
    while !request.ends_with(b"\r\n\r\n") && matches!(stream.read(&mut byte), Ok(1)) {
        request.push(byte[0]);
    }
    let request = String::from_utf8_lossy(&request);
    let body = body(request.split(' ').nth(1).unwrap_or_default());
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

#[test]
fn a_crawl_is_served_and_arrives_as_the_bodies() {
    let place = Place::new();
    let base = web_server();
    let paths = ["/one", "/pictures/two.png", "/query?a=b"];
    let crawl = Command::new("wget")
        .args(["--quiet", "--no-config", "--no-proxy", "--tries=1", "--output-document=/dev/null"])
        .arg("--warc-file=crawl")
        .args(paths.map(|path| format!("{base}{path}")))
        .current_dir(place.path())
        .stdin(Stdio::null())
        .status();
    match crawl {
        Ok(status) => assert!(status.success(), "{status}"),
        Err(error) => return umbel_lab::testing::skip(&format!("wget cannot be started: {error}")),
    }
    let mut serve = place.serve_command(&place.path().join("crawl.warc.gz"), &["--strict"]);
    let server = Server::start(&mut serve);
    let picture = format!("{base}/pictures/*");
    let got = place.get(&server.url, &["--json", &picture]);
    let item = got.succeeded().event("item");
    assert_eq!(item["name"], format!("{base}/pictures/two.png"));
    let path = item["path"].as_str().unwrap();
    assert!(std::fs::read(path).unwrap() == body("/pictures/two.png"));

    let rest = place.get(&server.url, &["--json"]);
    assert_eq!(rest.succeeded().event("done")["summary"]["already_there"], 1);
    for item in rest.json().iter().filter(|value| value["event"] == "item") {
        let (name, path) = (item["name"].as_str().unwrap(), item["path"].as_str().unwrap());
        assert!(std::path::Path::new(path).starts_with(place.out()), "{path}");
        if let Some(asked) = name.strip_prefix(&base) {
            assert!(std::fs::read(path).unwrap() == body(asked), "{name}");
        }
    }
    assert_eq!(
        rest.json()
            .iter()
            .filter(|v| v["event"] == "item" && v["name"].as_str().unwrap().starts_with(&base))
            .count(),
        2
    );
}

#[test]
fn a_damaged_crawl_is_not_served_if_that_is_to_be_strict() {
    let place = Place::with(&[("crawl.warc", b"WARC/1.0\r\nContent-Length: many\r\n\r\n")]);
    let mut serve = place.serve_command(&place.repo().join("crawl.warc"), &["--strict"]);
    let refused = Running::start(&mut serve).finish();
    assert_eq!(refused.code, Some(23), "{refused:?}");
    assert!(refused.stderr.contains("its length cannot be read"), "{refused:?}");
    assert_eq!(refused.stdout, "");
}

#[test]
fn a_small_item_comes_promptly() {
    let place = Place::with(&[("small", &noise(15, 1024))]);
    let server = place.serve(&[]);
    wait_for_digests(&server);
    let took = |run| {
        let out = place.path().join(format!("out-{run}"));
        let mut command = umbel();
        command.args(["get", &server.url, "-o"]).arg(out);
        Running::start(&mut command).finish().succeeded().took
    };
    // An optimised build on an idle machine takes much less. This shows that no time-out, of which
    // the shortest is 10 s, is waited for. A busy machine takes as long now and then, not always.
    let promptly = (0..30).map(took).find(|took| took.as_secs() < 8);
    eprintln!("1 KB on loopback, process and all: {promptly:?}");
    assert!(promptly.is_some());
}

#[test]
fn a_narrow_interface_makes_smaller_packets_without_being_told() {
    let place = Place::with(&[("a.bin", &noise(5, 300_000))]);
    let path = place.path().display();
    let script = format!(
        "ip link add v0 mtu 1280 type veth peer name v1 mtu 1280
        ip addr add 10.7.0.1/24 dev v0; ip link set lo up; ip link set v0 up; ip link set v1 up
        \"$UMBEL\" serve {path}/repo --state-dir {path}/state --interface v0 > {path}/line &
        until grep -q umbel:// {path}/line; do sleep 0.05; done
        url=$(grep -o 'umbel://[^ ]*' {path}/line | tr -d \"'\")
        \"$UMBEL\" get \"$url\" --no-fallback -o {path}/out"
    );
    let Some(mut command) = in_namespace(&["--net"], &script) else { return };
    let ran = Running::start(&mut command).finish();
    if ran.stderr.contains("ip: not found") {
        umbel_lab::testing::skip("there is no `ip` here");
        return;
    }
    ran.succeeded();
    place.assert_received("a.bin");
}

/// Writes the files of an authority, and of a server and a client that it has signed.
fn write_certificates(dir: &Path) {
    let key = || KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(params, key()).unwrap();
    std::fs::write(dir.join("ca.pem"), authority.pem()).unwrap();
    for (name, host) in [("server", "127.0.0.1"), ("client", "laptop")] {
        let key = key();
        let params = CertificateParams::new(vec![host.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        std::fs::write(dir.join(format!("{name}.pem")), certificate.pem()).unwrap();
        let secret = dir.join(format!("{name}.key"));
        std::fs::write(&secret, key.serialize_pem()).unwrap();
        std::fs::set_permissions(&secret, Permissions::from_mode(0o600)).unwrap();
    }
}

#[test]
fn certificates_of_an_authority_do_without_pins_and_tokens() {
    let place = Place::with(&[("a.bin", &noise(11, 100_000))]);
    write_certificates(place.path());
    let file = |name: &str| place.path().join(name).into_os_string().into_string().unwrap();
    let (ca, server_pem, server_key) = (file("ca.pem"), file("server.pem"), file("server.key"));
    let (client_pem, client_key) = (file("client.pem"), file("client.key"));
    let serve = ["--cert", &server_pem, "--key", &server_key, "--client-ca", &ca];
    let server = place.serve(&serve);
    assert_eq!(server.serving["sealed"], true);
    let url = format!("umbel://{}/", server.address());

    let ours = ["--ca", &ca, "--cert", &client_pem, "--key", &client_key];
    let got = place.get(&url, &[&ours[..], &["--json"]].concat());
    assert_eq!(got.succeeded().event("done")["summary"]["sealed"], true);
    place.assert_received("a.bin");
    let list = |more: &[&str]| super::support::run([&["ls", &url], more].concat());
    assert!(list(&ours).succeeded().stdout.contains("a.bin"));

    // With the pin but no certificate, and the other way round.
    place.get(&server.url, &[]).failed_with(&["asks for a certificate", "--cert"]);
    list(&ours[2..]).failed_with(&["no `pin`", "--ca"]);
    list(&["--ca", &client_pem]).failed_with(&["no authority of --ca"]);
    list(&["--ca", &file("none")]).failed_with(&["cannot read", "none"]);
    list(&["--cert", &client_pem]).misused(&["--key"]);
    std::fs::set_permissions(&client_key, Permissions::from_mode(0o644)).unwrap();
    list(&ours).failed_with(&["client.key", "chmod 600"]);
}
