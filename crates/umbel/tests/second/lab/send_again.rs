//! One feed after the other under one name: the next image, the next segment.

use std::fs;

use serde_json::Value;
use umbel_lab::Impairment;

use crate::support::bench::SOON;
use crate::support::feeds::Feeds;
use crate::support::{MB, MINUTE, files, lab, number, star};

#[test]
fn the_next_image_replaces_what_is_left_of_one_whose_ends_were_killed() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let size = 12 * MB;
    let feeds = Feeds::new(&lab, &[("disk.img", size)]);
    let mut sender = feeds.send(&["--rate", "20M", "--wait-for", "1"]);
    let mut receiver = feeds.recv("h2", &[]);
    let half = |event: &Value| event["progress"]["bytes_done"].as_u64() > Some(size / 2);
    receiver.process.wait_for("half of it is there", MINUTE, half);
    receiver.process.kill();
    sender.kill();
    assert!(files::stored(&receiver.out) > size / 4, "nothing is left, so this tests nothing");

    let image = feeds.input().join("disk.img");
    let next: Vec<u8> = fs::read(&image).unwrap().iter().map(|byte| !byte).collect();
    fs::write(&image, next).unwrap();
    let mut sender = feeds.send(&["--rate", "40M", "--wait-for", "1"]);
    let mut receiver = feeds.recv("h2", &[]);
    // With nothing beside it: no part, no journal.
    let summary = feeds.check(&mut receiver, MINUTE);
    assert_eq!(number(&summary, "items"), 1, "{summary}");
    let summary = sender.wait_done(SOON);
    assert_eq!((number(&summary, "done"), number(&summary, "without")), (1, 0), "{summary}");
}

#[test]
fn of_feeds_of_one_name_in_a_row_each_is_received_once() {
    let Some(lab) = lab(&star(1, Impairment::none())) else { return };
    let feeds = Feeds::new(&lab, &[]);
    for round in 0..8 {
        if round > 0 {
            fs::remove_file(feeds.input().join(format!("segment{}", round - 1))).unwrap();
        }
        files::make(&feeds.input(), &[(&format!("segment{round}"), 20_000)]);
        let label = format!("round{round}");
        let receive = || feeds.recv_as("h2", &label, &["--as", "h2"]);
        // Either may be first.
        let (mut sender, mut receiver) = if round % 2 == 0 {
            let receiver = receive();
            (feeds.send(&[]), receiver)
        } else {
            (feeds.send(&[]), receive())
        };
        let summary = feeds.check(&mut receiver, MINUTE);
        assert_eq!(number(&summary, "items"), 1, "{summary}");
        assert_eq!(number(&sender.wait_done(SOON), "done"), 1);
    }
}
