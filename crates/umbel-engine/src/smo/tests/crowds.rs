//! Many receivers, whose acknowledgements come at once and overflow the queue before the source.

use std::time::Duration;

use super::network::{Network, Way, content};
use crate::testing::world::Bottleneck;
use crate::units::Rate;

const MINUTE: Duration = Duration::from_mins(1);
const LEN: usize = 300_000;

/// Returns a network of so many receivers after they were sent [`LEN`] bytes, and the time that it
/// took. `room` is that of the queue before the source, which takes in an acknowledgement in 3 µs.
/// Those of a segment come within a third of the time that they take.
fn transfer(receivers: usize, room: usize, is_paced: bool) -> (Network, Duration) {
    let mut network = Network::new(1, |_| {});
    network.expect_faults();
    network.is_paced = is_paced;
    for n in 0..receivers as u64 {
        let delay = Duration::from_micros(500 + n);
        network.add(Way { delay, ..Way::clean(0) }, |_| {});
    }
    network.connect_all();
    network.run_until(MINUTE, |network| network.source.len() == receivers);
    let per_ack = Rate::from_bits_per_s(20 * 8 * 333_333).unwrap();
    network.host(0).bottleneck = Some(Bottleneck::new(per_ack, room));
    let begin = network.now;
    let bytes = content(LEN);
    network.send_all(bytes.clone());
    network.run_until(10 * MINUTE, |network| {
        network.receivers.iter().all(|node| node.got.len() == LEN)
    });
    assert!(network.receivers.iter().all(|node| node.got == bytes));
    let took = network.now.since(begin);
    (network, took)
}

#[test]
fn a_crowd_whose_acknowledgements_are_lost_has_no_time_outs() {
    for is_paced in [false, true] {
        let (network, took) = transfer(1_000, 256, is_paced);
        let (stats, left) = (network.source.stats(), network.left);
        let dropped = network.network.hosts[0].bottleneck.as_ref().unwrap().dropped;
        println!("{took:?}, {left} bytes left, {dropped} ACKs dropped, {stats:?}");
        assert!(dropped > 10_000, "{dropped}");
        assert_eq!((stats.timeouts, network.removed()), (0, Vec::new()), "{stats:?}");
        // Nothing of the stream was lost. Questions and acknowledgements are in it, too.
        assert!(left < 2 * LEN as u64 + 30 * stats.control, "{left}: {stats:?}");
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
