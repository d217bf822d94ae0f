//! Programs that come late, or die and return, and networks that block or alter packets.

use std::time::Duration;

use crate::support::bench::{Bench, EVERYTHING, SOON};
use crate::support::{has_nft, lab, sh, star};
use serde_json::Value;
use umbel_engine::units::Rate;
use umbel_lab::Impairment;

const MB: u64 = 1_000_000;

fn number(report: &Value, field: &str) -> u64 {
    report[field].as_u64().unwrap_or_else(|| panic!("no number `{field}` in {report}"))
}

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
fn a_client_that_is_killed_and_started_again_gets_only_what_it_lacks() {
    let Some(lab) = lab(&star(1, Impairment::none().loss(0.01))) else { return };
    let size = 8 * MB;
    let bench = Bench::new(&lab, &[("a small", 1000), ("large", size)]);
    // The default policy may send the small item at any time; here it has to come first.
    let policy = "FEC(1loss)+R(inf)+notify";
    let server = bench.serve(&["--rate", "20M", "--policy", policy, "--scheduler", "mrf"]);
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    client.process.wait_for("small is done", SOON, |event| event["name"] == "a small");
    bench.wait_until_stored(&client, size / 2);
    client.process.kill();
    let mut client = bench.get("h2", &server.url, EVERYTHING);
    let summary = bench.check_all(&mut client, Duration::from_mins(1));
    assert_eq!((number(&summary, "items"), number(&summary, "already_there")), (1, 1));
    // Half was written; the journal vouches only for synced data.
    let resumed = number(&summary, "resumed_bytes");
    assert!(resumed > size / 8, "{summary}");
    let (again, lacked) = (number(&summary, "packets"), (size - resumed) / 1376);
    // Some stored packets are sent again, while the server still sends to the client that is gone.
    assert!(again < lacked * 5 / 4, "{lacked} packets were lacking, but {again} came");
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
fn a_firewall_makes_a_client_go_on_by_unicast_and_its_end_brings_multicast_back() {
    // So slow that unicast does not finish the file before multicast is probed again.
    let slow = Impairment::none().rate(Rate::from_bits_per_s(8_000_000).unwrap());
    let Some(lab) = lab(&star(1, slow)) else { return };
    let host = lab.host("h2").unwrap();
    if !has_nft(host) {
        return;
    }
    let bench = Bench::new(&lab, &[("large", 8 * MB)]);
    let server = bench.serve(&["--rate", "6M"]);
    sh(
        host,
        "nft add table inet block
         nft add chain inet block in '{ type filter hook input priority 0; }'
         nft add rule inet block in udp dport 7702 drop",
    );
    let mut client = bench.get("h2", &server.url, &["--fallback-after", "1"]);
    let fallback = client.process.wait_for_event("fallback", SOON);
    assert!(fallback["silent_s"].as_f64() >= Some(1.0), "{fallback}");
    // The doctor finds the rule, while it exists.
    let found = |event: &Value| event["event"] == "fallback" && event["cause"].is_string();
    let cause = client.process.wait_for("why multicast does not arrive", SOON, found);
    assert!(cause["cause"].as_str().unwrap().contains("firewall"), "{cause}");
    sh(host, "nft delete table inet block");
    let back = |event: &Value| event["message"] == "multicast works again";
    client.process.wait_for("multicast works again", SOON, back);
    let summary = bench.check_all(&mut client, Duration::from_mins(1));
    assert!(number(&summary, "unicast_blocks") > 0 && number(&summary, "packets") > 0, "{summary}");
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
