//! Sources before which acknowledgements are dropped that they can do without, beside those that
//! hear all.

use std::num::NonZeroU32;
use std::time::Duration;

use super::network::{Network, Way, content};
use crate::smo::receiver::ReceiverCommand;
use crate::smo::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);
const PER_WINDOW: NonZeroU32 = NonZeroU32::new(16).unwrap();

/// What a transfer took.
#[derive(Clone, Copy, Debug, Default)]
struct Took {
    time: Duration,
    timeouts: u64,
    /// Acknowledgements that were taken, and that were dropped before.
    acks: u64,
    dropped: u64,
    /// Bytes that left the source.
    left: u64,
}

/// Returns what a transfer to receivers takes that lose this share of segments each.
fn transfer(seed: u64, receivers: usize, loss: f64, len: usize, filters: bool) -> Took {
    let mut network = Network::new(seed, |config| {
        config.acks_per_window = filters.then_some(PER_WINDOW);
        config.removal.stall = Duration::from_mins(10);
    });
    network.expect_faults();
    network.is_paced = true;
    for n in 0..receivers {
        let way = Way { loss: (loss, 0.0), ..Way::clean(10 + n as u64 % 10) };
        network.add(way, |config| config.buffer = 200_000);
    }
    network.connect_all();
    network.run_until(MINUTE, |network| network.source.len() == receivers);
    let begin = network.now;
    let bytes = content(len);
    network.send_all(bytes.clone());
    let has_all =
        |network: &mut Network| network.receivers.iter().all(|node| node.got.len() == len);
    network.run_until(20 * MINUTE, has_all);
    let time = network.now.since(begin);
    assert!(network.receivers.iter().all(|node| node.got == bytes));
    for node in 0..receivers {
        network.tell(node, ReceiverCommand::Finish);
    }
    network.run_until(MINUTE, |network| network.source.is_empty());
    assert!(network.filter.is_empty(), "{:?}", network.filter);
    let stats = network.source.stats();
    let acknowledged = (len * receivers) as u64;
    assert_eq!(stats.acknowledged_bytes, acknowledged + receivers as u64, "with FIN");
    let (acks, dropped) = (stats.segments, network.filter.dropped());
    Took { time, timeouts: stats.timeouts, acks, dropped, left: network.left }
}

#[test]
fn without_losses_few_acks_are_taken_and_nothing_is_slower() {
    for receivers in [1_usize, 10, 100] {
        let len = 4_000_000 / receivers.isqrt();
        let [all, few] = [false, true].map(|filters| transfer(1, receivers, 0.0, len, filters));
        println!("{receivers}: {all:?}\n{few:?}");
        assert_eq!((all.dropped, all.timeouts, few.timeouts), (0, 0, 0));
        assert_eq!(few.left, all.left);
        assert!(few.acks * 3 < all.acks * 2, "{all:?} {few:?}");
        assert!(few.time * 20 < all.time * 21, "{all:?} {few:?}");
    }
}

#[test]
fn with_losses_few_acks_are_no_slower_either() {
    for (loss, len) in [(0.001, 2_000_000), (0.01, 500_000), (0.05, 200_000)] {
        let mut sums = [Took::default(); 2];
        for (seed, filters) in (1..=5).flat_map(|seed| [(seed, false), (seed, true)]) {
            let took = transfer(seed, 5, loss, len, filters);
            let sum = &mut sums[usize::from(filters)];
            sum.time += took.time;
            sum.timeouts += took.timeouts;
            sum.acks += took.acks;
            sum.dropped += took.dropped;
        }
        let [all, few] = sums;
        println!("{loss}: {all:?}\n{few:?}");
        assert!(few.time * 20 < all.time * 21, "{loss}: {all:?} {few:?}");
        assert!(few.timeouts <= all.timeouts + all.timeouts / 5 + 3, "{loss}: {all:?} {few:?}");
    }
}

#[test]
fn a_live_stream_is_acknowledged_in_time() {
    let mut network = Network::new(1, |config| config.acks_per_window = Some(PER_WINDOW));
    network.expect_faults();
    for _ in 0..3 {
        network.add(Way::clean(30), |config| config.buffer = 500_000);
    }
    network.connect_all();
    network.run_for(SECOND);
    let to = Stream::Master(MasterId::FIRST);
    // A burst that opens the windows, and then a trickle, which never fills them.
    network.command(SourceCommand::Write { to, bytes: content(3_000_000) });
    network.run_for(3 * SECOND);
    let burst = network.filter.dropped();
    assert!(burst > 100, "{burst}");
    for written in 1..1000_u64 {
        network.command(SourceCommand::Write { to, bytes: content(1500) });
        network.run_for(Duration::from_millis(7));
        let position = 3_000_000 + 1500 * written;
        for child in network.source.children() {
            // Within a round trip of 60 ms, a delayed ACK, and the period.
            let late = position - child.acknowledged;
            assert!(late <= 1500 * 170 / 7, "{late}: {child:?}");
        }
    }
    let stats = network.source.stats();
    assert!(network.filter.dropped() > burst + 300, "{}", network.filter.dropped());
    assert_eq!((stats.timeouts, stats.unicast_again.segments), (0, 0), "{stats:?}");
    assert_eq!(stats.multicast_again.segments, 0);
}

#[test]
fn a_receiver_that_stops_to_read_is_noticed() {
    let mut network = Network::new(1, |config| {
        config.acks_per_window = Some(PER_WINDOW);
        config.removal.closed_window = 20 * SECOND;
    });
    network.expect_faults();
    for _ in 0..2 {
        network.add(Way::clean(10), |config| config.buffer = 300_000);
    }
    network.connect_all();
    network.run_for(SECOND);
    network.send_all(content(10_000_000));
    network.run_for(SECOND);
    assert!(network.filter.dropped() > 0);
    network.read(0, false);
    network.run_for(10 * SECOND);
    let got = network.receivers[1].got.len();
    network.run_for(SECOND);
    assert_eq!(network.receivers[1].got.len(), got, "it holds up the other");
    network.read(0, true);
    assert!(network.reaches(MINUTE, |network| network.receivers[0].got.len() == 10_000_000));
    assert_eq!((network.removed(), network.source.stats().timeouts), (Vec::new(), 0));
}

#[test]
fn a_new_stream_at_the_place_of_another_is_heard_from_its_beginning() {
    let mut network = Network::new(1, |config| {
        (config.join, config.acks_per_window) = (Join::Asked, Some(PER_WINDOW));
        config.initial_window = 100;
    });
    network.expect_faults();
    for round in 0..2 {
        network.add(Way::clean(10), |config| config.buffer = 300_000);
        network.tell(round, ReceiverCommand::Connect);
        network.run_for(SECOND);
        let master = MasterId::FIRST;
        let channel = network.source.config().channel;
        network.command(SourceCommand::Open { master, channel });
        let child = network.source.children().last().unwrap().child;
        network.command(SourceCommand::Attach { child, master });
        network.send_all(content(3_000_000));
        let whole = |network: &mut Network| network.receivers[round].got.len() == 3_000_000;
        assert!(network.reaches(MINUTE, whole));
        network.tell(round, ReceiverCommand::Finish);
        network.run_for(SECOND);
        assert_eq!(network.source.stats().timeouts, 0);
    }
    assert!(network.filter.dropped() > 100);
}

#[test]
fn data_waits_for_room_for_a_frame_and_is_hardly_later() {
    for receivers in [1, 20] {
        let took = |frame: u32| {
            let mut network = Network::new(1, |config| config.frame = frame);
            network.expect_faults();
            for n in 0..receivers {
                // Their acknowledgements come one after the other.
                let mut way = Way::clean(10);
                way.delay += Duration::from_micros(400) * n;
                network.add(way, |config| config.buffer = 200_000);
            }
            network.connect_all();
            network.run_for(SECOND);
            let begin = network.now;
            network.send_all(content(3_000_000));
            let all = |network: &mut Network| {
                network.receivers.iter().all(|node| node.got.len() == 3_000_000)
            };
            network.run_until(MINUTE, all);
            assert_eq!(network.source.stats().timeouts, 0);
            (network.bursts, network.now.since(begin), network.left)
        };
        let (single, frames) = (took(1), took(16));
        println!("{receivers}: {single:?} {frames:?}");
        assert!(receivers == 1 || frames.0 * 2 < single.0, "{single:?} {frames:?}");
        assert!(frames.1 * 10 < single.1 * 11, "{single:?} {frames:?}");
        assert!(frames.2 * 100 < single.2 * 101, "{single:?} {frames:?}");
    }
}
