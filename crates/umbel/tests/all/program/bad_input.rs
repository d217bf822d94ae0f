//! Errors are reported in one line, with what to do, and disturb nothing else.
use std::fs::Permissions;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::support::{
    FOREIGN_PIN, Place, Ran, Running, channel_port, in_namespace, noise, run, umbel,
};
use umbel_net::interface::Interface;
use umbel_net::session::{
    ClientEvent, ClientSession, ConnectOptions, Identity, ServerEndpoint, ServerOptions,
    SessionEvent,
};
use umbel_wire::repository::{ClientMessage, ServerMessage};

#[test]
fn a_url_that_is_none_is_bad_usage() {
    let place = Place::new();
    for (url, words) in [
        ("http://127.0.0.1:7700/", "umbel://"),
        ("127.0.0.1:7700", "umbel://"),
        ("umbel://", "umbel://"),
        ("umbel://127.0.0.1:99999/", "99999"),
        ("umbel://127.0.0.1/?pin=abc", "43 characters"),
        ("umbel://[::1/?pin=abc", "umbel://[::1"),
    ] {
        run(["ls", url]).misused(&[words]);
        place.get(url, &[]).misused(&[words]);
    }
    assert!(!place.out().exists());
}

#[test]
fn a_url_without_a_pin_or_with_that_of_another_server_is_refused() {
    let place = Place::with(&[("a", b"a")]);
    let server = place.serve(&[]);
    let bare = server.url.split('?').next().unwrap();
    run(["ls", bare]).failed_with(&["no `pin`", "copy the whole line"]);
    place.get(bare, &[]).failed_with(&["no `pin`", "copy the whole line"]);

    let foreign = format!("{bare}?pin={FOREIGN_PIN}");
    run(["ls", &foreign]).failed_with(&[FOREIGN_PIN, "somebody else", "new URL"]);
    place.get(&foreign, &[]).failed_with(&[FOREIGN_PIN, "somebody else", "new URL"]);
    assert_eq!(place.received(), [""; 0]);
    place.get(&server.url, &[]).succeeded();
}

#[test]
fn a_server_that_is_not_there_is_given_up() {
    let place = Place::new();
    // Bound, so that no other program takes it, and dead.
    let dead = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("umbel://{}/?pin={FOREIGN_PIN}", dead.local_addr().unwrap());
    place.get(&url, &[]).failed_with(&["no answer", "firewall"]);
    let name = format!("umbel://nobody.invalid/?pin={FOREIGN_PIN}");
    place.get(&name, &[]).failed_with(&["nobody.invalid"]);
}

#[test]
fn patterns_that_match_nothing_or_are_none_are_told() {
    let place = Place::with(&[("a.txt", b"a")]);
    let server = place.serve(&[]);
    for (pattern, words) in [
        ("*.png", &["*.png", "umbel ls"][..]),
        ("b.txt", &["b.txt", "umbel ls"]),
        ("[", &["`[` is not a pattern"]),
        ("{a", &["`{a` is not a pattern"]),
    ] {
        run(["ls", &server.url, pattern]).failed_with(words);
        place.get(&server.url, &[pattern]).failed_with(words);
    }
    // An unset variable of a script does not ask for everything.
    place.get(&server.url, &[""]).misused(&["PATTERNS"]);
    run(["ls", &server.url, ""]).misused(&["PATTERNS"]);
    assert_eq!(place.received(), [""; 0]);
    place.get(&server.url, &["*.png", "*.txt"]).succeeded();
    assert_eq!(place.received(), ["a.txt"]);
}

#[test]
fn an_empty_directory_offers_nothing() {
    let place = Place::new();
    let server = place.serve(&[]);
    place.get(&server.url, &[]).failed_with(&["offers nothing"]);
    run(["ls", &server.url]).failed_with(&["offers nothing"]);
}

#[test]
fn a_channel_that_cannot_be_is_refused() {
    let place = Place::with(&[("a", b"a")]);
    let serve = |more: &[&str]| -> Ran {
        Running::start(&mut place.serve_command(&place.repo(), more)).finish()
    };
    serve(&["--group", "10.1.2.3"]).failed_with(&["10.1.2.3", "232.0.0.0/8"]);
    serve(&["--group", "fd00::1"]).failed_with(&["fd00::1", "ff30::/12"]);
    serve(&["--group", "239.1.2.3", "--ipv6"]).failed_with(&["IPv4", "IPv6"]);
    serve(&["--group", "everyone"]).misused(&["everyone"]);
    serve(&["--channel-port", "0"]).failed_with(&["--channel-port", "7702"]);
    serve(&["--rate", "0"]).misused(&["out of range"]);
    serve(&["--rate", "fast"]).misused(&["100M"]);
    serve(&["--rate=-5M"]).misused(&["--rate"]);
    serve(&["--mtu", "0"]).failed_with(&["--mtu 0", "256"]);
    serve(&["--mtu", "255"]).failed_with(&["--mtu 255", "256"]);
    serve(&["--mtu", "65536"]).misused(&["65536"]);
    serve(&["--block", "0"]).failed_with(&["0 symbols", "255"]);
    serve(&["--block", "256"]).failed_with(&["256 symbols", "255"]);
    serve(&["--interface", "nowhere0"]).failed_with(&["nowhere0", "use one of", "lo"]);
    // Where there is no network at all, it would be waited for.
    if Interface::list().unwrap().iter().any(|interface| interface.is_ready(None)) {
        serve(&["--interface", "192.0.2.77"]).failed_with(&["192.0.2.77", "127.0.0.1"]);
    }
    serve(&["--listen", "192.0.2.77"]).failed_with(&["192.0.2.77", "ip address"]);
}

#[test]
fn an_interface_that_does_no_multicast_is_named() {
    let place = Place::with(&[("a", b"a")]);
    let (repo, state) = (place.repo(), place.path().join("state"));
    let serve = format!(
        "exec \"$UMBEL\" serve {} --state-dir {} --port 0",
        repo.display(),
        state.display()
    );
    let link = "ip link add v0 type veth peer name v1; ip addr add 10.7.0.1/24 dev v0";
    let up = "ip link set v0 up; ip link set v1 up";
    for (script, words) in [
        (
            format!("{link}; ip link set v0 multicast off; {up}; {serve} --interface v0"),
            &["v0", "multicast"][..],
        ),
        (format!("{link}; {up}; {serve} --interface v0 --mtu 9000"), &["--mtu 9000", "1500"]),
    ] {
        let Some(mut command) = in_namespace(&["--net"], &script) else { return };
        let ran = Running::start(&mut command).finish();
        if ran.stderr.contains("ip: not found") {
            umbel_lab::testing::skip("there is no `ip` here");
            return;
        }
        ran.failed_with(words);
    }
}

#[test]
fn an_interface_that_is_down_is_named_and_waited_for() {
    let place = Place::with(&[("a", b"a")]);
    let script = format!(
        "ip link add v0 type veth peer name v1; ip addr add 10.7.0.1/24 dev v0; cd {}
         \"$UMBEL\" serve repo --state-dir state --port 0 --interface v0 >line 2>said & server=$!
         until grep -q 'v0 is down.*waiting' said; do sleep 0.05; done
         ip link set v0 up; ip link set v1 up
         until grep -q umbel:// line; do sleep 0.05; done
         kill $server; wait $server",
        place.path().display()
    );
    let Some(mut command) = in_namespace(&["--net"], &script) else { return };
    Running::start(&mut command).finish().succeeded();
}

#[test]
fn a_client_without_multicast_says_so_and_goes_on_by_unicast() {
    let place = Place::with(&[("a.bin", &noise(3, 200_000))]);
    let port = channel_port();
    let server = place.serve(&["--channel-port", &port.to_string()]);
    // Another program has the channel's port for itself.
    let _theirs = UdpSocket::bind(("0.0.0.0", port)).unwrap();
    let got = place.get(&server.url, &["--fallback-after", "0.3"]);
    got.succeeded();
    assert!(
        got.stderr.contains(&port.to_string()) && got.stderr.contains("no multicast"),
        "{got:?}"
    );
    place.assert_received("a.bin");

    let nowhere = Place::new();
    let nowhere = nowhere.get(&server.url, &["--interface", "nowhere0", "--fallback-after", "0.3"]);
    assert!(nowhere.succeeded().stderr.contains("there is no interface `nowhere0`"), "{nowhere:?}");
}

#[test]
fn a_server_whose_packets_cannot_leave_says_so_once() {
    let place = Place::with(&[("a.bin", &noise(6, 50_000))]);
    let repo = place.repo();
    // Loopback has no route for IPv6 groups unless one is added.
    let script = format!(
        "ip link set lo up
         \"$UMBEL\" serve {repo} --state-dir {state} --interface lo --ipv6 >{url} 2>{said} &
         while ! [ -s {url} ]; do sleep 0.02; done
         eval \"$(sed 's/^umbel/\"$UMBEL\"/' {url}) -o {out} --fallback-after 2\"
         tries=0
         until grep -q 'nothing leaves' {said} || [ $tries -gt 600 ]; do
           tries=$((tries + 1)); sleep 0.1
         done
         sleep 0.6; cat {said} >&2",
        repo = repo.display(),
        state = place.path().join("state").display(),
        url = place.path().join("url").display(),
        said = place.path().join("said").display(),
        out = place.out().display(),
    );
    let Some(mut command) = in_namespace(&["--net"], &script) else { return };
    let ran = Running::start(&mut command).finish();
    ran.succeeded();
    place.assert_received("a.bin");
    assert_eq!(ran.stderr.matches("nothing leaves").count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.contains("ip -6 route add"), "{}", ran.stderr);
}

#[test]
fn a_port_that_is_taken_is_named() {
    let place = Place::with(&[("a", b"a")]);
    let theirs = UdpSocket::bind("[::]:0").unwrap();
    let port = theirs.local_addr().unwrap().port().to_string();
    let mut command = place.serve_command(&place.repo(), &["--port", &port]);
    Running::start(&mut command).finish().failed_with(&[&port, "taken", "--port"]);
}

#[test]
fn what_is_for_another_command_is_said_at_once_with_that_command() {
    let feed = format!("umbel-feed://nightly?pin={FOREIGN_PIN}");
    let stream = feed.replace("-feed", "-stream");
    let server = format!("umbel://192.0.2.2:7700/?pin={FOREIGN_PIN}");
    run(["get", &feed]).misused(&["umbel recv"]);
    run(["get", &stream]).misused(&["umbel watch"]);
    run(["get", "nightly"]).misused(&["umbel recv"]);
    run(["recv", &server]).misused(&["umbel get"]);
    run(["watch", &server, "-o", "-"]).misused(&["umbel get"]);
    // No network is asked.
    run(["recv", &stream, "--interface", "lo"]).failed_with(&["umbel watch"]);
    run(["watch", &feed, "-o", "-", "--interface", "lo"]).failed_with(&["umbel recv"]);
    let place = Place::with(&[("a", b"a")]);
    let repo = place.repo();
    let send = ["send", repo.to_str().unwrap(), "--interface", "lo", "--name", "../../evil"];
    run(send).failed_with(&["../../evil", "directory"]);
}

#[test]
fn a_path_that_cannot_be_served_is_named() {
    let place = Place::with(&[("a", b"a")]);
    let serve = |path: &Path| Running::start(&mut place.serve_command(path, &[])).finish();
    let gone = place.path().join("gone");
    serve(&gone).failed_with(&["gone", "No such file"]);
    let fifo = place.path().join("fifo");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRUSR).unwrap();
    serve(&fifo).failed_with(&["fifo", "neither a directory nor a file"]);
    serve("/dev/null".as_ref()).failed_with(&["/dev/null", "neither"]);

    let file = place.path().join("file");
    std::fs::write(&file, "no key").unwrap();
    let with_state = |state: &Path| {
        let mut command = umbel();
        command.arg("serve").arg(place.repo()).arg("--state-dir").arg(state);
        Running::start(&mut command).finish()
    };
    let line = with_state(&file).failed_with(&["file", "ot a directory"]).to_owned();
    assert_eq!(line.matches("ot a directory").count(), 1, "{line}");
    let corrupt = place.path().join("corrupt");
    std::fs::create_dir(&corrupt).unwrap();
    std::fs::write(corrupt.join("identity.pem"), "no key").unwrap();
    with_state(&corrupt).failed_with(&["identity.pem", "remove it"]);
}

/// Makes a command run as a user other than root, who is subject to permissions, and grants access
/// to the place.
fn as_nobody<'a>(place: &Place, command: &'a mut Command) -> &'a mut Command {
    if nix::unistd::geteuid().is_root() {
        let all = Permissions::from_mode(0o777);
        std::fs::set_permissions(place.path(), all).unwrap();
        command.uid(65_534).gid(65_534);
    }
    command
}

#[test]
fn what_must_not_be_read_is_named_and_the_rest_served() {
    let place = Place::with(&[("a", b"alpha"), ("closed/x", b"x"), ("secret", b"s")]);
    let close =
        |path: &Path| std::fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
    close(&place.repo().join("secret"));
    close(&place.repo().join("closed"));
    let mut command = place.serve_command(&place.repo(), &[]);
    let server = Running::start(as_nobody(&place, &mut command));
    super::support::wait_until("a URL", || server.stdout().contains("umbel get"));
    // Threads read both streams, so the first output may arrive last.
    super::support::wait_until("what was left out", || server.stderr().contains("closed"));
    let stderr = server.stderr();
    assert!(stderr.contains("denied"), "{stderr}");
    let stdout = server.stdout();
    let url = stdout.split('\'').nth(1).unwrap();
    let got = place.get(url, &[]);
    assert_eq!(std::fs::read(place.out().join("a")).unwrap(), b"alpha");
    // Found when it is listed or when it is read.
    if !stderr.contains("secret") {
        got.failed_with(&["secret", "denied"]);
    }

    close(&place.repo());
    let mut command = place.serve_command(&place.repo(), &[]);
    let ran = Running::start(as_nobody(&place, &mut command)).finish();
    ran.failed_with(&["repo", "denied"]);
    std::fs::set_permissions(place.repo(), Permissions::from_mode(0o700)).unwrap();
    std::fs::set_permissions(place.repo().join("closed"), Permissions::from_mode(0o700)).unwrap();
}

#[test]
fn what_must_not_be_written_is_told() {
    let place = Place::with(&[("a", b"alpha")]);
    let server = place.serve(&[]);
    std::fs::create_dir(place.out()).unwrap();
    std::fs::set_permissions(place.out(), Permissions::from_mode(0o555)).unwrap();
    let mut command = place.get_command(&server.url, &[]);
    let ran = Running::start(as_nobody(&place, &mut command)).finish();
    ran.failed_with(&["out", "denied"]);
    assert_eq!(place.received(), [""; 0]);
}

#[test]
fn what_cannot_be_served_below_the_path_is_left_out_and_named() {
    let place = Place::with(&[("a", b"alpha")]);
    nix::unistd::mkfifo(&place.repo().join("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", place.repo().join("link")).unwrap();
    let server = Running::start(&mut place.serve_command(&place.repo(), &["--follow-links"]));
    super::support::wait_until("a URL", || server.stdout().contains("umbel get"));
    for words in ["serving 1 item on", "left out: pipe", "left out: link"] {
        super::support::wait_until(words, || server.stderr().contains(words));
    }
}

fn record(uri: &str, body: &str) -> String {
    let http = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    format!(
        "WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:uuid:{uri}>\r\n\
         WARC-Date: 2026-01-01T00:00:00Z\r\nWARC-Target-URI: {uri}\r\n\
         Content-Type: application/http;msgtype=response\r\nContent-Length: {}\r\n\r\n{http}\r\n\r\n",
        http.len()
    )
}

#[test]
fn a_corrupt_warc_record_is_skipped_counted_and_named() {
    let place = Place::new();
    let path = place.path().join("crawl.warc");
    let damaged = record("http://x/bad", "bad").replace("HTTP/1.1 200 OK", "HTTQ/1.1 2x0 OK");
    let text = [record("http://x/one", "first"), damaged, record("http://x/two", "second")];
    std::fs::write(&path, text.concat()).unwrap();
    let people = Running::start(&mut place.serve_command(&path, &[]));
    super::support::wait_until("a URL", || people.stdout().contains("umbel get"));
    let left_out = || people.stderr().contains("left out: http://x/bad");
    super::support::wait_until("what is left out", left_out);
    let stderr = people.stderr();
    assert!(stderr.contains("serving 2 items"), "{stderr}");

    let server = super::support::Server::start(&mut place.serve_command(&path, &[]));
    assert_eq!((&server.serving["items"], &server.serving["skipped"]), (&2.into(), &1.into()));
    place.get(&server.url, &[]).succeeded();
    let bodies: Vec<_> = place
        .received()
        .iter()
        .map(|p| std::fs::read_to_string(place.out().join(p)).unwrap())
        .collect();
    assert_eq!(bodies, ["first", "second"]);
}

#[test]
fn a_token_admits() {
    let place = Place::with(&[("a", b"alpha")]);
    let server = place.serve(&["--token", "sesame"]);
    let bare = server.url.replace("&token=sesame", "");
    assert_ne!(bare, server.url);
    for args in [&[][..], &["--token", "barley"]] {
        place.get(&bare, args).failed_with(&["token"]);
        run([&["ls", &bare][..], args].concat()).failed_with(&["token"]);
    }
    assert_eq!(place.received(), [""; 0]);
    place.get(&bare, &["--token", "sesame"]).succeeded();
    run(["ls", &server.url]).succeeded();
}

#[test]
fn an_output_directory_that_cannot_be_is_told() {
    let place = Place::with(&[("a", b"alpha")]);
    let server = place.serve(&[]);
    std::fs::write(place.out(), "a file").unwrap();
    place.get(&server.url, &[]).failed_with(&["out", "ot a directory"]);
    assert_eq!(std::fs::read_to_string(place.out()).unwrap(), "a file");

    let script = format!(
        "mkdir -p {out}; mount -t tmpfs -o ro tmpfs {out}; exec \"$UMBEL\" get '{}' -o {out}",
        server.url,
        out = place.path().join("read-only").display(),
    );
    let Some(mut command) = in_namespace(&[], &script) else { return };
    Running::start(&mut command).finish().failed_with(&["ead-only"]);
}

#[test]
fn an_item_that_has_no_place_does_not_keep_the_others_from_theirs() {
    let place = Place::with(&[("dir", b"a file here"), ("other/x", b"x"), ("z", b"z")]);
    let server = place.serve(&[]);
    // A directory stands in place of a file, and a link in place of a directory, which is an item, too.
    std::fs::create_dir_all(place.out().join("dir")).unwrap();
    let outside = place.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::os::unix::fs::symlink(&outside, place.out().join("other")).unwrap();
    let got = place.get(&server.url, &[]);
    got.failed_with(&["3 items were not received"]);
    assert!(got.stderr.contains("dir: ") && got.stderr.contains("is a directory"), "{got:?}");
    assert!(got.stderr.contains("other/x: ") && got.stderr.contains("symbolic link"), "{got:?}");
    place.assert_received("z");
    assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 0);
}

#[test]
fn a_full_disk_is_told_and_small_items_still_come() {
    let big = noise(9, 3_000_000);
    let place = Place::with(&[("big", &big), ("small", b"small")]);
    let server = place.serve(&[]);
    let out = place.out();
    let script = format!(
        "mkdir -p {out}; mount -t tmpfs -o size=1m tmpfs {out}
         code=0; \"$UMBEL\" get '{}' -o {out} || code=$?
         cat {out}/small; ls {out}/big 2>/dev/null && exit 9; exit $code",
        server.url,
        out = out.display(),
    );
    let Some(mut command) = in_namespace(&[], &script) else { return };
    let ran = Running::start(&mut command).finish();
    ran.failed_with(&["big", "no room"]);
    assert_eq!(ran.stdout, "small");
}

/// Starts a server's endpoint that answers every message with the same bytes.
fn endpoint_that_says(
    answer: Vec<u8>,
) -> (umbel_net::session::SessionServer, String, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let identity = Identity::load_or_create(dir.path()).unwrap();
    let address = "127.0.0.1:0".parse().unwrap();
    let endpoint = ServerEndpoint::bind(address, &identity, ServerOptions::default()).unwrap();
    let url = format!("umbel://{}/?pin={}", endpoint.local_addr(), identity.fingerprint());
    let handle = std::sync::OnceLock::<umbel_net::session::SessionHandle>::new();
    let handle = Arc::new(handle);
    let theirs = handle.clone();
    let server = endpoint
        .start(move |event| {
            if let SessionEvent::Message { id, .. } = event {
                let _ = theirs.wait().send(id, answer.clone().into());
            }
        })
        .unwrap();
    handle.set(server.handle()).unwrap();
    (server, url, dir)
}

/// Sets the version in the header of a message to 2.
fn of_version_2(mut message: Vec<u8>) -> Vec<u8> {
    message[2] = 2;
    message
}

#[test]
fn a_server_of_another_version_is_told() {
    let mut refused = Vec::new();
    ServerMessage::Refused { reason: "x".to_owned() }.emit(&mut refused);
    let (_server, url, _dir) = endpoint_that_says(of_version_2(refused));
    let place = Place::new();
    let line = ["speaks version 2", "this program version 1", "same release"];
    place.get(&url, &[]).failed_with(&line);
    run(["ls", &url]).failed_with(&line);

    // A server with another version of QUIC [RFC 8999 §6].
    let other = UdpSocket::bind("127.0.0.1:0").unwrap();
    let url = format!("umbel://{}/?pin={FOREIGN_PIN}", other.local_addr().unwrap());
    std::thread::spawn(move || {
        let mut initial = [0; 2048];
        while let Ok((_, client)) = other.recv_from(&mut initial) {
            let (to_len, rest) = (usize::from(initial[5]), &initial[6..]);
            let (to, rest) = rest.split_at(to_len);
            let from = &rest[1..=usize::from(rest[0])];
            let mut answer = vec![0x80, 0, 0, 0, 0, from.len() as u8];
            answer.extend_from_slice(from);
            answer.push(to_len as u8);
            answer.extend_from_slice(to);
            answer.extend_from_slice(&[0x0a, 0x1a, 0x2a, 0x3a]);
            let _ = other.send_to(&answer, client);
        }
    });
    place.get(&url, &[]).failed_with(&["another protocol"]);
}

/// Opens a session to a server and sends a message. Returns why the session ended.
fn say(url: &str, message: Vec<u8>) -> String {
    let (events, inbox) = std::sync::mpsc::channel();
    let url = url.parse().unwrap();
    let session = ClientSession::start(&url, &ConnectOptions::default(), move |event| {
        let _ = events.send(event);
    })
    .unwrap();
    let _ = session.send(message.into());
    loop {
        match inbox.recv_timeout(Duration::from_mins(2)).unwrap() {
            ClientEvent::Disconnected { reason, .. } => return reason.to_string(),
            ClientEvent::Message(bytes) => {
                if let Some(ServerMessage::Refused { reason }) =
                    ServerMessage::parse(&bytes).unwrap().message()
                {
                    return reason.clone();
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_client_of_another_version_or_that_talks_nonsense_is_shown_out() {
    let place = Place::with(&[("a.bin", &noise(4, 600_000))]);
    let server = place.serve(&["--rate", "8M"]);
    let client = Running::start(&mut place.get_command(&server.url, &[]));

    let mut hello = Vec::new();
    ClientMessage::Hello { agent: "umbel/9".to_owned(), token: None }.emit(&mut hello);
    for _ in 0..3 {
        let reason = say(&server.url, of_version_2(hello.clone()));
        for part in ["client speaks version 2", "server version 1", "same release"] {
            assert!(reason.contains(part), "{reason}");
        }
    }
    let nonsense = say(&server.url, b"GET / HTTP/1.1\r\n\r\n".to_vec());
    assert!(!nonsense.is_empty());

    client.finish().succeeded();
    place.assert_received("a.bin");
    let said = server.running.stderr();
    assert_eq!(said.matches("client speaks version 2").count(), 1, "{said}");
    assert!(!said.contains("panicked"), "{said}");
}

#[test]
fn garbage_on_every_port_disturbs_nobody() {
    let place = Place::with(&[("a.bin", &noise(5, 1_000_000)), ("b/c", b"small")]);
    let server = place.serve(&["--rate", "8M"]);
    let (session, group) = (server.address(), server.group());
    let over = Arc::new(AtomicBool::new(false));
    let throwing = over.clone();
    let thrower = std::thread::spawn(move || {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let lo = std::net::Ipv4Addr::LOCALHOST;
        socket2::SockRef::from(&socket).set_multicast_if_v4(&lo).unwrap();
        let mut thrown = 0;
        for seed in 0.. {
            if throwing.load(Ordering::Relaxed) {
                return thrown;
            }
            let mut datagram = noise(seed, (seed % 1400) as usize);
            if let (true, Some(first)) = (seed % 3 == 0, datagram.first_mut()) {
                // The version and flags of a data packet [RFC 5651 §5.1], or of QUIC.
                *first = if seed % 2 == 0 { 0x10 } else { 0xc0 };
            }
            let _ = socket.send_to(&datagram, session);
            let _ = socket.send_to(&datagram, group);
            thrown += 1;
            std::thread::sleep(Duration::from_micros(500));
        }
        thrown
    });
    let other = Place::new();
    let clients = [&place, &other]
        .map(|place| Running::start(&mut place.get_command(&server.url, &["--json"])));
    for client in clients {
        let got = client.finish();
        assert_eq!(got.succeeded().stderr, "");
        assert_eq!(got.event("done")["summary"]["unicast_blocks"], 0);
    }
    over.store(true, Ordering::Relaxed);
    assert!(thrower.join().unwrap() > 100);
    place.assert_received("a.bin");
    place.assert_received("b/c");
    assert_eq!(std::fs::read(other.out().join("b/c")).unwrap(), b"small");
    assert_eq!(server.running.stderr(), "");
}

/// Runs a command whose standard output nobody reads any more.
fn unread(command: &mut Command) -> (Option<i32>, String) {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command.stdout(writer).stderr(std::process::Stdio::piped()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let place = Place::with(&[("a", b"alpha"), ("b", &noise(12, 50_000))]);
    let server = place.serve(&[]);
    let url = server.url.as_str();
    let key = place.path().join("receiver.key");
    let key = key.to_str().unwrap();
    for args in [
        &["--help"][..],
        &["--version"],
        &["help", "serve"],
        &["ls", url, "-q"],
        &["ls", url, "--json"],
        &["key", "--key", key],
        &["groups", "--wait", "100ms", "--interface", "lo", "--json"],
    ] {
        let (code, said) = unread(umbel().args(args));
        let said: Vec<&str> = said.lines().filter(|line| !line.starts_with("2 items")).collect();
        assert_eq!((code, said.as_slice()), (Some(0), &[][..]), "{args:?}");
    }
    // A transfer goes on.
    let (code, said) = unread(&mut place.get_command(url, &["--json"]));
    assert_eq!((code, said.as_str()), (Some(0), ""));
    place.assert_received("b");
    // An error is still one, whether it can be told or not.
    let (code, said) = unread(umbel().args(["ls", url, "typo", "--json"]));
    assert_eq!((code, said.lines().count()), (Some(1), 1), "{said}");
    let mut nowhere = umbel();
    let (_, stderr) = std::io::pipe().unwrap();
    let status = nowhere.args(["ls", "--colour"]).stdout(stderr.try_clone().unwrap());
    assert_eq!(status.stderr(stderr).status().unwrap().code(), Some(2));
}

#[test]
fn output_that_has_no_room_is_an_error() {
    let place = Place::with(&[("a", b"alpha")]);
    let server = place.serve(&[]);
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for args in [&["ls", &server.url, "-q"][..], &["ls", &server.url, "--json"]] {
        let output = umbel().args(args).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        assert!(said.starts_with("umbel: cannot write standard output: No space left"), "{said}");
    }
    assert_eq!(umbel().arg("--help").stdout(full()).status().unwrap().code(), Some(1));
}
