//! Losses and omissions are reported: in words, to programs, and by the exit code.
use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};

use super::support::{Place, Ran, Running, in_namespace, noise, run};

/// Runs a shell script in its own network, where `$UMBEL` is the binary and `$DIR` the place.
fn alone(place: &Place, script: &str) -> Option<Ran> {
    let script = format!("ip link set lo up; cd \"$DIR\"; export HOME=\"$DIR\"; {script}");
    let mut command = in_namespace(&["--net"], &script)?;
    let ran = Running::start(command.env("DIR", place.path())).finish();
    if ran.stderr.contains("ip: not found") {
        umbel_lab::testing::skip("there is no `ip` here");
        return None;
    }
    Some(ran)
}

#[test]
fn an_item_that_is_asked_for_by_name_and_is_not_there_is_an_error_and_the_others_come() {
    let place = Place::with(&[("a.iso", b"a"), ("d/b", b"b")]);
    let server = place.serve(&[]);
    let got = place.get(&server.url, &["a.iso", "typo.iso", "d", "*.png", "--json"]);
    got.failed_with(&["typo.iso was not received", "no such item"]);
    let summary = &got.event("done")["summary"];
    assert_eq!(summary["failures"][0]["name"], "typo.iso");
    assert_eq!(got.event("done")["ok"], false);
    assert_eq!(place.received(), ["a.iso", "d/b"]);
    run(["ls", &server.url, "a.iso", "typo.iso"]).failed_with(&["typo.iso"]);
    run(["ls", &server.url, "a.iso", "d"]).succeeded();
}

#[test]
fn what_a_server_leaves_out_is_named_and_permissions_travel() {
    let place = Place::with(&[("run.sh", b"#!/bin/sh\n"), ("key", b"k"), ("aux.c", b"x")]);
    let path = |name: &str| place.repo().join(name);
    fs::set_permissions(path("run.sh"), Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(path("key"), Permissions::from_mode(0o600)).unwrap();
    fs::create_dir(path("empty")).unwrap();
    symlink("empty", path("link")).unwrap();
    nix::unistd::mkfifo(&path("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    fs::write(path("a\nb"), b"x").unwrap();
    let server = place.serve(&[]);
    let mut left_out: Vec<_> = server.serving["left_out"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| (item["name"].as_str().unwrap(), item["reason"].as_str().unwrap()))
        .collect();
    left_out.sort_unstable();
    let expected = [("a\nb", "its name holds a control character"), ("pipe", "a FIFO")];
    assert_eq!(left_out, expected);
    assert_eq!(server.serving["skipped"], 2);
    assert_eq!(server.serving["items"], 4, "links count, directories do not");
    place.get(&server.url, &[]).succeeded();
    assert_eq!(place.received(), ["aux.c", "key", "run.sh"]);
    assert!(place.out().join("empty").is_dir());
    let mode =
        |name: &str| fs::metadata(place.out().join(name)).unwrap().permissions().mode() & 0o700;
    assert_eq!((mode("run.sh"), mode("key")), (0o700, 0o600));
    let key = fs::metadata(place.out().join("key")).unwrap().permissions().mode();
    assert_eq!(key & 0o077, 0);
}

#[test]
fn a_server_of_a_home_directory_keeps_its_own_keys() {
    let place = Place::with(&[("notes", b"x")]);
    let state = place.repo().join("state");
    let state = state.to_str().unwrap();
    let server = place.serve(&["--state-dir", state]);
    place.get(&server.url, &[]).succeeded();
    assert_eq!(place.received(), ["notes"]);
    let left_out = &server.serving["left_out"][0];
    assert_eq!(left_out["name"], "state/identity.pem");
    assert_eq!(left_out["reason"], "umbel's own, and secret");
}

#[test]
fn a_crawl_says_what_of_it_is_not_as_it_was() {
    let place = Place::new();
    let record = |kind: &str, uri: &str, day: u32, status: &str| {
        let block = format!("HTTP/1.1 {status}\r\nContent-Type: text/html\r\n\r\n{kind} {day}");
        format!(
            "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: {uri}\r\n\
             WARC-Date: 2026-01-{day:02}T00:00:00Z\r\nWARC-Record-ID: <urn:uuid:{day}>\r\n\
             Content-Type: application/http;msgtype=response\r\nContent-Length: {}\r\n\r\n{block}\
             \r\n\r\n",
            block.len()
        )
    };
    let crawl = [
        record("response", "http://h/a", 1, "200 OK"),
        record("response", "http://h/a", 2, "200 OK"),
        record("response", "http://h/gone", 3, "404 Not Found"),
        record("revisit", "http://h/r", 4, "200 OK"),
    ];
    let path = place.path().join("c.warc");
    fs::write(&path, crawl.concat()).unwrap();
    let server = super::support::Server::start(&mut place.serve_command(&path, &[]));
    assert_eq!((&server.serving["items"], &server.serving["other_status"]), (&2.into(), &1.into()));
    let left_out = server.serving["left_out"].to_string();
    for words in
        ["an older capture of its URL", "http://h/r", "a revisit of what another archive has"]
    {
        assert!(left_out.contains(words), "{left_out}");
    }
}

#[test]
fn unicast_keeps_to_the_rate_of_the_server() {
    let place = Place::with(&[("a.bin", &noise(8, 400_000))]);
    let server = place.serve(&["--rate", "1M"]);
    // An interface without multicast.
    let got =
        place.get(&server.url, &["--fallback-after", "0", "--interface", "nowhere0", "--json"]);
    let summary = &got.succeeded().event("done")["summary"];
    assert!(summary["unicast_blocks"].as_u64().unwrap() > 0, "{summary}");
    // 3.2 s except for the first and the last block.
    assert!(summary["seconds"].as_f64().unwrap() > 1.0, "{summary}");
    place.assert_received("a.bin");
}

#[test]
fn a_rate_without_a_unit_is_bad_usage() {
    let place = Place::with(&[("a", b"a")]);
    for command in ["serve", "send"] {
        let name: &[&str] = if command == "send" { &["--name", "n"] } else { &[] };
        let repo = place.repo();
        let ran = run([&[command, repo.to_str().unwrap(), "--rate", "50"], name].concat());
        ran.misused(&["50M", "50bit/s"]);
    }
    let server = place.serve(&["--rate", "5MB/s"]);
    assert_eq!(server.serving["most_bits_per_s"], 40_000_000);
}

#[test]
fn a_feed_that_nobody_receives_fails() {
    let place = Place::with(&[("a", b"a")]);
    let send = "exec \"$UMBEL\" send repo --name n --interface lo --wait-for 100ms --json -q";
    let Some(ran) = alone(&place, send) else { return };
    ran.failed_with(&["nobody received it", "--wait-for"]);
    assert_eq!(ran.event("done")["ok"], false);
}

#[test]
fn files_that_cannot_be_sent_make_the_sender_fail_and_the_receiver_hears_how_many() {
    let place = Place::with(&[("a", b"a"), ("b\nc", b"x"), ("d\te", b"x")]);
    let script = "\"$UMBEL\" recv n -o out --interface lo --wait 10min --json > recv.json & \
                  \"$UMBEL\" send repo --name n --interface lo -q || code=$?; wait $!; exit $code";
    let Some(sent) = alone(&place, script) else { return };
    let line = sent.failed_with(&["2 files were not sent", "control character"]);
    assert!(!line.contains('\t'), "{line}");
    let heard = fs::read_to_string(place.path().join("recv.json")).unwrap();
    assert!(heard.contains("\"left_out\":2"), "{heard}");
    assert!(heard.contains("could not read or name them: 2 files"), "{heard}");
    assert_eq!(place.received(), ["a"]);
}

#[test]
fn a_receiver_finds_the_source_again_that_was_killed_and_started_again() {
    let place = Place::with(&[("big.bin", &noise(9, 3_000_000))]);
    // The first source is killed as soon as some of its data was written.
    let script = "\"$UMBEL\" recv n -o out --interface lo --wait 10min > recv 2>&1 & recv=$!; \
                  \"$UMBEL\" send repo --name n --interface lo --rate 4M -q & first=$!; \
                  until [ -s out/.big.bin.umbel-part ]; do sleep 0.02; done; sleep 1; \
                  kill -9 $first; wait $first 2> /dev/null || true; \
                  \"$UMBEL\" send repo --name n --interface lo --rate 40M -q; wait $recv";
    let Some(ran) = alone(&place, script) else { return };
    let said = fs::read_to_string(place.path().join("recv")).unwrap();
    assert_eq!(ran.code, Some(0), "{ran:?}\n{said}");
    assert!(said.contains("was started again"), "{said}");
    place.assert_received("big.bin");
}

#[test]
fn verbose_commands_say_what_happens() {
    let place = Place::with(&[("a", &noise(10, 300_000))]);
    let server = place.serve(&[]);
    let got = place.get(&server.url, &["-vv"]);
    for words in ["connected", "the list is complete: 1 item,", "a: 300000 bytes", "packets,"] {
        assert!(got.succeeded().stderr.contains(words), "{words}: {}", got.stderr);
    }
    let script = "\"$UMBEL\" recv n -o out --interface lo --wait 10min -v 2> recv & \
                  \"$UMBEL\" send repo --name n --interface lo -v 2> send; wait $!";
    fs::remove_dir_all(place.out()).unwrap();
    let Some(ran) = alone(&place, script) else { return };
    ran.succeeded();
    for (file, words) in [("recv", "parent 127.0.0.1"), ("recv", "packets,"), ("send", "sending")] {
        let said = fs::read_to_string(place.path().join(file)).unwrap();
        assert!(said.contains(words), "{words}: {said}");
    }
}
