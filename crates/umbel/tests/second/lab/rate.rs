//! Nobody says at what rate to send, and the links to the receivers are narrow.

use umbel_engine::units::Rate;
use umbel_lab::{Impairment, Queue};

use crate::support::bench::{Bench, EVERYTHING, SOON};
use crate::support::feeds::Feeds;
use crate::support::{MB, MINUTE, lab, number, star};

const SIZE: u64 = 4 * MB;
/// Bytes of a file in a packet, at least.
const PAYLOAD: u64 = 1300;

/// Returns a link of 8 Mbit/s with a queue of 60 ms.
fn narrow() -> Impairment {
    let rate = Rate::from_bits_per_s(8_000_000).unwrap();
    Impairment::none().rate(rate).queue(Queue::Packets(40))
}

#[test]
fn a_server_that_is_told_no_rate_does_not_flood_narrow_links() {
    let Some(lab) = lab(&star(2, narrow())) else { return };
    let bench = Bench::new(&lab, &[("large", SIZE)]);
    let mut server = bench.serve(&[]);
    let mut clients = ["h2", "h3"].map(|host| bench.get(host, &server.url, EVERYTHING));
    for client in &mut clients {
        let summary = bench.check_all(client, MINUTE);
        assert_eq!(number(&summary, "unicast_blocks"), 0, "{summary}");
    }
    let report = server.stop();
    assert!(number(&report, "bytes") < 2 * SIZE, "{report}");
}

#[test]
fn a_sender_that_is_told_no_rate_does_not_flood_narrow_links() {
    let Some(lab) = lab(&star(2, narrow())) else { return };
    let feeds = Feeds::new(&lab, &[("large", SIZE)]);
    let mut sender = feeds.send(&["--wait-for", "2"]);
    let mut receivers = ["h2", "h3"].map(|host| feeds.recv(host, &[]));
    for receiver in &mut receivers {
        feeds.check(receiver, MINUTE);
    }
    let summary = sender.wait_done(SOON);
    assert_eq!((number(&summary, "done"), number(&summary, "without")), (2, 0), "{summary}");
    let sent: u64 =
        ["packets", "repairs", "fetched"].iter().map(|field| number(&summary, field)).sum();
    assert!(sent < 2 * SIZE / PAYLOAD, "{summary}");
}
