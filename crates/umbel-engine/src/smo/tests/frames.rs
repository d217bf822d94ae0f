//! Few long frames, and so few acknowledgements, where the way permits it.

use std::time::Duration;

use super::network::{Network, Way, content};
use crate::smo::*;

const SECOND: Duration = Duration::from_secs(1);
const KIB: u64 = 1 << 10;

/// Connects everybody, and sends at the pace from then on.
fn begin(network: &mut Network, len: usize) {
    network.expect_faults();
    network.is_paced = true;
    network.connect_all();
    network.run_for(SECOND);
    network.send_all(content(len));
}

fn everyone_has(network: &Network, len: usize) -> bool {
    network.receivers.iter().all(|node| node.got.len() == len)
}

fn has_some(network: &Network, len: usize) -> bool {
    network.receivers.iter().all(|node| node.got.len() >= len)
}

/// Returns what was worth a frame, from one change to the next.
fn frames(network: &Network) -> Vec<u64> {
    let frame = |event: &SourceEvent| match event {
        SourceEvent::Pace { frame, .. } => Some(*frame),
        _ => None,
    };
    let mut frames: Vec<u64> = network.events.iter().filter_map(frame).collect();
    frames.dedup();
    frames
}

#[test]
fn frames_are_the_longer_the_shorter_the_longest_way_is() {
    for (delays_ms, longest) in [([1, 1], 32 * KIB), ([1, 3], 8 * KIB), ([1, 20], 0)] {
        let mut network = Network::new(1, |_| {});
        for delay in delays_ms {
            network.add(Way::clean(delay), |_| {});
        }
        begin(&mut network, 3_000_000);
        assert!(network.reaches(60 * SECOND, |network| has_some(network, 2_000_000)));
        assert_eq!(frames(&network).last(), Some(&longest), "{delays_ms:?}");
    }
}

#[test]
fn a_loss_makes_frames_short_until_it_is_repaired() {
    let mut network = Network::new(1, |_| {});
    for _ in 0..3 {
        network.add(Way::clean(1), |_| {});
    }
    begin(&mut network, 30_000_000);
    assert!(network.reaches(SECOND, |network| has_some(network, 5_000_000)));
    assert_eq!(frames(&network).last(), Some(&(32 * KIB)));
    network.set_loss(1, (1.0, 0.0));
    network.run_for(SECOND / 20);
    network.set_loss(1, (0.0, 0.0));
    let before = network.events.len();
    assert!(network.reaches(SECOND, |network| frames(network).last() == Some(&0)));
    assert!(network.reaches(60 * SECOND, |network| everyone_has(network, 30_000_000)));
    network.events.drain(..before);
    assert_eq!(frames(&network).into_iter().max(), Some(32 * KIB));
}

#[test]
fn no_window_is_so_small_that_a_frame_waits_for_a_delayed_acknowledgement() {
    for segments in 2..20 {
        for ack_every in [2, 4] {
            let mut network = Network::new(1, |_| {});
            network.add(Way::clean(1), |config| {
                (config.buffer, config.ack_every) = (segments * 1000 + 500, ack_every);
            });
            begin(&mut network, 400_000);
            let start = network.now;
            assert!(network.reaches(60 * SECOND, |network| everyone_has(network, 400_000)));
            let took = network.now - start;
            println!("{segments} segments, an ACK for {ack_every}: {took:?}");
        }
    }
}
