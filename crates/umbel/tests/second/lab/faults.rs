//! Programs that come late, or die and return, and networks that block or alter packets.

use std::time::Duration;

use crate::support::bench::{Bench, EVERYTHING};
use crate::support::{MB, MINUTE, has_nft, lab, make_deaf, number, star};
use serde_json::Value;
use umbel_lab::Impairment;

#[test]
fn clients_that_join_in_the_middle_get_everything_and_share_what_they_can() {
    let Some(lab) = lab(&star(3, Impairment::none().loss(0.02))) else { return };
    let bench = Bench::new(&lab, &[("one", 6 * MB)]);
    let mut server = bench.serve(&["--rate", "10M"]);
    let mut clients = vec![bench.get("h2", &server.url, EVERYTHING)];
    for (host, stored) in [("h3", MB), ("h4", 2 * MB)] {
        bench.wait_until_stored(&clients[0], stored);
        clients.push(bench.get(host, &server.url, EVERYTHING));
    }
    for client in &mut clients {
        let summary = bench.check_all(client, Duration::from_mins(1));
        assert_eq!(number(&summary, "unicast_blocks"), 0);
    }
    // The last missed a third of the file, and what passed while it started. That is sent twice.
    let sent = number(&server.stop(), "bytes");
    assert!(sent < 12 * MB, "three clients of a file of 6 MB cost {sent} bytes");
}

#[test]
fn overlapping_subsets_are_each_received_and_shared() {
    let Some(lab) = lab(&star(3, Impairment::none().loss(0.02))) else { return };
    let plan = [("a/1", MB), ("a/2", 7), ("b/1", MB), ("b/2", 70_000), ("c/1", MB), ("c/2", 0)];
    let bench = Bench::new(&lab, &plan);
    let mut server = bench.serve(&["--rate", "30M"]);
    let mut first = bench.get("h2", &server.url, &["a/**", "b/**"]);
    let mut second = bench.get("h3", &server.url, &["b/**", "c/**"]);
    let mut third = bench.get("h4", &server.url, &["*/1"]);
    let soon = Duration::from_mins(1);
    bench.check(&mut first, soon, |name| !name.starts_with('c'));
    bench.check(&mut second, soon, |name| !name.starts_with('a'));
    bench.check(&mut third, soon, |name| name.ends_with('1'));
    // Seven copies of the large ones are wanted, and three are needed if all ask at the same time.
    // On a busy machine a client may start after one has been sent.
    let sent = number(&server.stop(), "bytes");
    assert!(sent < 6 * MB, "overlapping subsets of 3 MB cost {sent} bytes");
}

#[test]
fn clients_of_a_server_that_is_killed_finish_with_the_next() {
    let Some(lab) = lab(&star(2, Impairment::none().loss(0.01))) else { return };
    let size = 6 * MB;
    let bench = Bench::new(&lab, &[("large", size), ("small", 1000)]);
    let mut server = bench.serve(&["--rate", "20M"]);
    let mut clients = ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING));
    for client in &clients {
        bench.wait_until_stored(client, size * 2 / 3);
    }
    server.process.kill();
    std::thread::sleep(Duration::from_millis(500));
    let mut next = bench.serve(&["--rate", "20M"]);
    assert_eq!(next.url, server.url);
    for client in &mut clients {
        bench.check_all(client, Duration::from_mins(1));
    }
    let sent = number(&next.stop(), "bytes");
    // The two miss different parts, return at different times, and lose packets. The union of their
    // missing parts and its repairs exceeds the third that each misses, but never reaches the
    // whole.
    assert!(sent < size, "two thirds were there, but the next server sent {sent} of {size}");
}

#[test]
fn an_altered_symbol_never_gets_into_the_output() {
    for family in [&[][..], &["--ipv6"]] {
        let altered = Impairment { corrupt_silently: 0.005, ..Impairment::none().loss(0.02) };
        let Some(lab) = lab(&star(1, altered)) else { return };
        let bench = Bench::new(&lab, &[("large", 3 * MB), ("small", 20_000)]);
        let server = bench.serve(&[&["--rate", "30M"], family].concat());
        let mut client = bench.get("h2", &server.url, EVERYTHING);
        bench.check_all(&mut client, Duration::from_mins(1));
        let notes = client.process.events("note");
        let noticed = |note: &Value| note["message"].as_str().unwrap().contains("damaged");
        assert!(notes.iter().any(noticed), "nothing was altered, so this tests nothing");
    }
}

#[test]
fn multicast_that_stops_within_a_transmission_is_replaced_by_unicast() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    if !has_nft(lab.host("h2").unwrap()) {
        return;
    }
    let bench = Bench::new(&lab, &[("large", 40 * MB)]);
    let server = bench.serve(&["--rate", "60M"]);
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    bench.wait_until_stored(&client, 8 * MB);
    make_deaf(&lab, "h2");
    // Nobody reports any more, so that the rate falls, and the transmission would last for minutes.
    client.process.wait_for_event("fallback", Duration::from_secs(30));
    bench.check_all(&mut client, MINUTE);
}
