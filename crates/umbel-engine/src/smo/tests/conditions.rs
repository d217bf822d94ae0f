//! Connections under particular conditions: closed windows, late comers, wrap-around, helpers that
//! stop, receivers that stall.

use std::time::Duration;

use super::network::{Network, Way, content};
use crate::smo::receiver::{ReceiverCommand, ReceiverEvent};
use crate::smo::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

/// Connects everyone.
#[track_caller]
fn connect(network: &mut Network) -> Vec<ChildId> {
    network.expect_faults();
    network.connect_all();
    let nodes = network.receivers.len();
    let connected = |event: &SourceEvent| matches!(event, SourceEvent::Connected { .. });
    assert!(network.reaches(MINUTE, |network| network.count(connected) == nodes));
    network.source.children().map(|report| report.child).collect()
}

fn everyone_has(network: &Network, len: usize) -> bool {
    network.receivers.iter().all(|node| node.got.len() == len)
}

#[test]
fn a_receiver_that_does_not_read_holds_up_the_others_until_it_reads_again() {
    let mut network = Network::new(1, |_| {});
    network.add(Way::clean(2), |config| config.buffer = 20_000);
    network.add(Way::clean(2), |_| {});
    connect(&mut network);
    network.read(0, false);
    let bytes = content(200_000);
    network.send_all(bytes.clone());
    network.run_for(10 * SECOND);
    let got = network.receivers[1].got.len();
    assert!((20_000..=21_000).contains(&got), "{got}");
    let before = network.left;
    network.run_for(10 * SECOND);
    assert!(network.left - before < 1000, "probes only: {}", network.left - before);
    network.read(0, true);
    assert!(network.reaches(MINUTE, |network| everyone_has(network, 200_000)));
    assert!(network.receivers.iter().all(|node| node.got == bytes));
    assert_eq!(network.removed(), []);
}

#[test]
fn a_receiver_that_never_reads_is_removed() {
    let mut network = Network::new(1, |config| {
        config.removal.closed_window = Duration::from_secs(20);
    });
    network.add(Way::clean(2), |config| config.buffer = 20_000);
    network.add(Way::clean(2), |_| {});
    connect(&mut network);
    network.read(0, false);
    network.send_all(content(200_000));
    let done = network.reaches(MINUTE, |network| network.receivers[1].got.len() == 200_000);
    assert!(done, "{:?}", network.receivers[1].got.len());
    assert_eq!(network.removed(), [CloseReason::ClosedWindow]);
}

#[test]
fn a_receiver_that_vanishes_is_removed() {
    let mut network = Network::new(1, |config| config.removal.stall = 10 * SECOND);
    for _ in 0..3 {
        network.add(Way::clean(2), |_| {});
    }
    connect(&mut network);
    network.set_loss(2, (1.0, 1.0));
    network.send_all(content(500_000));
    let rest =
        |network: &mut Network| network.receivers[..2].iter().all(|node| node.got.len() == 500_000);
    assert!(network.reaches(30 * SECOND, rest));
    assert_eq!(network.removed(), [CloseReason::Stalled]);
}

#[test]
fn an_idle_receiver_that_vanishes_is_removed() {
    let mut network = Network::new(1, |_| {});
    network.add(Way::clean(2), |_| {});
    network.add(Way::clean(2), |_| {});
    connect(&mut network);
    network.set_loss(0, (1.0, 1.0));
    network.run_for(5 * MINUTE);
    assert_eq!(network.removed(), [CloseReason::Dead]);
    assert_eq!(network.source.len(), 1);
}

#[test]
fn sequence_numbers_wrap() {
    let mut network = Network::new(5, |config| config.base = Some(u32::MAX - 50_000));
    for node in 0..5 {
        let way = Way { loss: (0.02, 0.0), ..Way::clean(2) };
        network.add(way, |config| {
            if node == 4 {
                config.channel = None;
            }
        });
    }
    connect(&mut network);
    let bytes = content(200_000);
    network.send_all(bytes.clone());
    assert!(network.reaches(MINUTE, |network| everyone_has(network, 200_000)));
    assert!(network.receivers.iter().all(|node| node.got == bytes));
}

#[test]
fn a_late_comer_receives_the_tail() {
    let mut network = Network::new(5, |_| {});
    for _ in 0..3 {
        network.add(Way::clean(5), |config| config.buffer = 20_000);
    }
    let bytes = content(3_000_000);
    network.expect_faults();
    network.tell(0, ReceiverCommand::Connect);
    network.tell(1, ReceiverCommand::Connect);
    network.run_for(SECOND);
    network.send_all(bytes.clone());
    network.run_for(Duration::from_millis(500));
    network.tell(2, ReceiverCommand::Connect);
    let ended = |network: &mut Network| {
        network.receivers.iter().all(|node| node.has(&ReceiverEvent::ReceivedEnd))
    };
    assert!(network.reaches(MINUTE, ended));
    let tail = &network.receivers[2].got;
    assert!(tail.len() > 100_000 && tail.len() < bytes.len(), "{}", tail.len());
    assert!(bytes.ends_with(tail) && network.receivers[0].got == bytes);
    let at = (bytes.len() - tail.len()) as u64;
    let begins = |event: &SourceEvent| matches!(event, SourceEvent::Connected { at: begin, .. } if *begin == at);
    assert_eq!(network.count(begins), 1);
}

#[test]
fn a_late_comer_whose_handshake_was_lost_begins_where_the_stream_is_then() {
    let mut network = Network::new(1, |config| config.join = Join::AtOnce);
    for _ in 0..2 {
        network.add(Way::clean(5), |config| config.buffer = 20_000);
    }
    let bytes = content(8_000_000);
    network.expect_faults();
    network.tell(0, ReceiverCommand::Connect);
    network.run_for(SECOND);
    network.send_all(bytes.clone());
    network.run_for(Duration::from_millis(300));
    network.set_loss(1, (1.0, 0.0));
    network.tell(1, ReceiverCommand::Connect);
    network.run_for(Duration::from_millis(500));
    network.set_loss(1, (0.0, 0.0));
    let ended = |network: &mut Network| {
        network.receivers.iter().all(|node| node.has(&ReceiverEvent::ReceivedEnd))
    };
    assert!(network.reaches(MINUTE, ended));
    let tail = &network.receivers[1].got;
    assert!(tail.len() > 100_000 && bytes.ends_with(tail), "{}", tail.len());
    assert_eq!(network.removed(), []);
}

#[test]
fn a_late_comer_is_sent_nothing_beyond_its_window() {
    let mut network = Network::new(1, |_| {});
    network.add(Way::clean(5), |config| config.buffer = 20_000);
    // The other goes on for many of its windows before it has answered.
    network.add(Way::clean(200), |config| config.buffer = 8_000);
    let bytes = content(3_000_000);
    network.expect_faults();
    network.tell(0, ReceiverCommand::Connect);
    network.run_for(SECOND);
    network.send_all(bytes.clone());
    network.run_for(Duration::from_millis(100));
    network.tell(1, ReceiverCommand::Connect);
    network.run_for(5 * MINUTE);
    let tail = &network.receivers[1].got;
    assert!(bytes.ends_with(tail) && network.receivers[0].got == bytes, "{}", tail.len());
    assert_eq!(network.beyond_permission, 0);
}

#[test]
fn a_connection_outlives_its_helper() {
    let mut network = Network::new(5, |_| {});
    for _ in 0..3 {
        network.add(Way::clean(5), |config| config.buffer = 30_000);
    }
    let children = connect(&mut network);
    let bytes = content(8_000_000);
    network.send_all(bytes.clone());
    network.run_for(Duration::from_millis(50));
    network.tell(1, ReceiverCommand::Help(false));
    network.run_for(SECOND);
    let hears = |network: &Network| network.source.report(children[1]).unwrap().hears;
    assert!(!hears(&network) && !everyone_has(&network, bytes.len()));
    network.tell(1, ReceiverCommand::Help(true));
    assert!(network.reaches(MINUTE, |network| everyone_has(network, 8_000_000)));
    assert!(network.receivers.iter().all(|node| node.got == bytes));
    assert_eq!(network.removed(), []);
}

#[test]
fn many_whose_helper_stops_do_not_use_up_the_pace_of_the_group() {
    let mut network = Network::new(5, |_| {});
    network.is_paced = true;
    for _ in 0..100 {
        network.add(Way::clean(5), |config| config.buffer = 60_000);
    }
    connect(&mut network);
    let bytes = content(3_000_000);
    network.send_all(bytes.clone());
    network.run_for(Duration::from_millis(50));
    assert!(network.receivers.iter().all(|node| node.got.len() < bytes.len() / 2));
    for node in 0..50 {
        network.tell(node, ReceiverCommand::Help(false));
    }
    // About a window of 60,000 bytes in each round trip of 10 ms, after the time-outs.
    assert!(network.reaches(4 * SECOND, |network| everyone_has(network, 3_000_000)));
    assert!(network.receivers.iter().all(|node| node.got == bytes));
    assert_eq!(network.removed(), []);
}

#[test]
fn in_real_time_mode_late_data_is_skipped() {
    let mut network = Network::new(5, |config| {
        config.real_time = Some(Duration::from_millis(300));
        config.release = Release::Buffer;
    });
    for node in 0..10 {
        let way = Way { loss: (0.08, 0.0), ..Way::clean(10 + node) };
        network.add(way, |config| config.real_time = Some(Duration::from_millis(200)));
    }
    connect(&mut network);
    let to = Stream::Master(MasterId::FIRST);
    for _ in 0..500 {
        network.command(SourceCommand::Write { to, bytes: content(1000) });
        network.run_for(Duration::from_millis(20));
    }
    network.command(SourceCommand::Finish { to });
    network.run_for(5 * SECOND);
    for node in &network.receivers {
        let all = node.got.len() as u64 + node.skipped;
        assert!(all == 500_000 && node.skipped <= 10_000, "{} {}", node.got.len(), node.skipped);
    }
    assert_eq!(network.removed(), []);
}

#[test]
fn responses_by_multicast_and_alone_share_a_source() {
    let mut network = Network::new(5, |config| config.join = Join::Asked);
    for _ in 0..6 {
        network.add(Way { loss: (0.01, 0.01), ..Way::clean(3) }, |_| {});
    }
    let children = connect(&mut network);
    for node in 0..6 {
        network.tell(node, ReceiverCommand::Send(content(300)));
    }
    network.run_for(SECOND);
    assert!(children.iter().all(|child| network.received[child] == content(300)));
    let mut channel = network.source.config().channel;
    let (common, other, own) = (content(100_000), content(70_000), content(50_000));
    for (n, all) in [(7, &children[..3]), (8, &children[3..5])] {
        channel.port += 1;
        let master = MasterId(n);
        network.command(SourceCommand::Open { master, channel });
        for &child in all {
            network.command(SourceCommand::Attach { child, master });
        }
    }
    for (to, bytes) in [
        (Stream::Master(MasterId(7)), &common),
        (Stream::Master(MasterId(8)), &other),
        (Stream::Child(children[5]), &own),
    ] {
        network.command(SourceCommand::Write { to, bytes: bytes.clone() });
        network.command(SourceCommand::Finish { to });
    }
    let ended = |network: &mut Network| {
        network.receivers.iter().all(|node| node.has(&ReceiverEvent::ReceivedEnd))
    };
    assert!(network.reaches(MINUTE, ended));
    let expected = [&common, &common, &common, &other, &other, &own];
    for (node, bytes) in network.receivers.iter().zip(expected) {
        assert!(node.got == *bytes);
    }
    let drained = |event: &SourceEvent| matches!(event, SourceEvent::Drained { .. });
    assert!(network.reaches(MINUTE, |network| network.count(drained) == 2));
    let stats = network.source.stats();
    assert_eq!(stats.multicast.bytes, 170_000);
}

#[test]
fn a_percentile_leaves_the_slowest_behind() {
    let mut network = Network::new(5, |config| {
        config.release = Release::Percentile(0.8);
        config.buffer = 100_000;
    });
    for _ in 0..10 {
        network.add(Way::clean(2), |_| {});
    }
    connect(&mut network);
    network.read(3, false);
    network.set_loss(4, (1.0, 1.0));
    let bytes = content(6_000_000);
    network.send_all(bytes.clone());
    let others = |network: &mut Network| {
        let has_all = |n: &usize| network.receivers[*n].got.len() == 6_000_000;
        (0..10).filter(|n| *n != 3 && *n != 4).all(|n| has_all(&n))
    };
    let done = network.reaches(Duration::from_secs(5), others);
    assert!(done);
    assert_eq!(network.removed(), [CloseReason::TooLate, CloseReason::TooLate]);
}

#[test]
fn a_full_buffer_gives_way_to_new_data() {
    let mut network = Network::new(5, |config| {
        config.release = Release::Buffer;
        config.buffer = 50_000;
    });
    for _ in 0..4 {
        network.add(Way::clean(2), |_| {});
    }
    let to = Stream::Master(MasterId::FIRST);
    // Nobody listens yet.
    for _ in 0..100 {
        network.command(SourceCommand::Write { to, bytes: content(1000) });
    }
    connect(&mut network);
    network.set_loss(0, (1.0, 1.0));
    let bytes = content(1_000_000);
    for n in 0..1000 {
        let bytes = bytes.slice(n * 1000..(n + 1) * 1000);
        network.command(SourceCommand::Write { to, bytes });
        network.run_for(Duration::from_millis(5));
    }
    network.run_for(SECOND);
    assert!(network.receivers[1..].iter().all(|node| node.got.ends_with(&bytes)));
    assert_eq!(network.removed(), [CloseReason::TooLate]);
}

/// Returns the time that a transfer takes, and the loss of one of the receivers.
fn duration(fairness: Fairness) -> Duration {
    let mut network = Network::new(5, |config| config.fairness = fairness);
    for node in 0..10 {
        let loss = if node == 0 { 0.03 } else { 0.0 };
        network.add(Way { loss: (loss, 0.0), ..Way::clean(10) }, |_| {});
    }
    connect(&mut network);
    let begin = network.now;
    network.send_all(content(1_000_000));
    assert!(network.reaches(5 * MINUTE, |network| everyone_has(network, 1_000_000)));
    network.now.since(begin)
}

#[test]
fn an_essentially_fair_group_is_between_its_bounds() {
    let strict = duration(Fairness::Strict).as_secs_f64();
    let same = duration(Fairness::Essential { a: 1.0, b: 1.0 }).as_secs_f64();
    let twice = duration(Fairness::Essential { a: 1.0, b: 2.0 }).as_secs_f64();
    assert!(twice < 0.8 * same && same < 2.0 * strict, "{strict} {same} {twice}");
}

#[test]
fn a_receiver_with_short_segments_is_served_by_unicast() {
    let mut network = Network::new(5, |_| {});
    network.add(Way::clean(2), |config| config.mss = 400);
    network.add(Way::clean(2), |_| {});
    let children = connect(&mut network);
    network.send_all(content(100_000));
    assert!(network.reaches(MINUTE, |network| everyone_has(network, 100_000)));
    assert!(!network.source.report(children[0]).is_some_and(|report| report.hears));
    assert_eq!(network.source.stats().unicast.bytes, 100_000);
    assert_eq!(network.source.stats().timeouts, 0);
}

#[test]
fn who_writes_as_much_as_there_is_room_for_is_told_of_more() {
    let mut network = Network::new(5, |config| config.buffer = 40_000);
    network.add(Way::clean(2), |_| {});
    connect(&mut network);
    let to = Stream::Master(MasterId::FIRST);
    let writable = |event: &SourceEvent| matches!(event, SourceEvent::Writable { .. });
    let mut written = 0;
    for turn in 0..20 {
        let room = network.source.room(to);
        assert!(room >= 10_000, "{room}");
        network.command(SourceCommand::Write { to, bytes: content(room) });
        written += room;
        assert!(network.reaches(SECOND, |network| network.count(writable) > turn));
    }
    assert!(network.reaches(SECOND, |network| everyone_has(network, written)));
}

#[test]
fn a_receiver_with_a_window_of_less_than_a_segment_is_removed() {
    let mut network = Network::new(1, |config| {
        config.removal.closed_window = Duration::from_secs(20);
    });
    network.add(Way::clean(2), |config| config.buffer = 300);
    network.add(Way::clean(2), |_| {});
    connect(&mut network);
    network.send_all(content(5_000_000));
    assert!(network.reaches(MINUTE, |network| network.receivers[1].got.len() == 5_000_000));
    assert_eq!(network.removed(), [CloseReason::ClosedWindow]);
}

#[test]
fn those_who_are_served_by_unicast_do_not_wait_for_the_pace_of_multicast() {
    let mut network = Network::new(1, |_| {});
    network.add(Way::clean(5), |config| config.channel = None);
    connect(&mut network);
    network.send_all(content(2_000_000));
    assert!(network.reaches(MINUTE, |network| everyone_has(network, 2_000_000)));
    let paces = network.events.iter().filter_map(|event| match event {
        SourceEvent::Pace { rate, .. } => Some(rate.bits_per_s()),
        _ => None,
    });
    // Its whole window in a round trip, instead of what was left of the initial one.
    assert!(paces.last().unwrap() > 200_000_000);
}

#[test]
fn the_round_trip_time_of_a_lossy_receiver_has_no_repairs_in_it() {
    // Where ACKs are lost as well, one says both that a hole was filled and that the rest had come.
    for (seed, of_acks) in (0..20).flat_map(|seed| [(seed, 0.0), (seed, 0.3)]) {
        let mut network = Network::new(seed, |_| {});
        network.add(Way::clean(5), |_| {});
        network.add(Way::clean(5), |config| config.channel = None);
        let children = connect(&mut network);
        (0..2).for_each(|node| network.set_loss(node, (0.2, of_acks)));
        network.send_all(content(300_000));
        let mut most = Duration::ZERO;
        network.reaches(MINUTE, |network| {
            for report in children.iter().filter_map(|child| network.source.report(*child)) {
                most = most.max(report.rtt.unwrap_or_default());
            }
            everyone_has(network, 300_000)
        });
        // An ACK may be delayed for 40 ms.
        assert!(most < Duration::from_millis(60), "seed {seed}, {of_acks}: {most:?}");
    }
}

#[test]
fn receivers_that_are_too_far_or_too_slow_for_the_group_are_removed() {
    for seed in 0..10 {
        println!("seed {seed}");
        remove_the_far_and_the_slow(seed);
    }
}

#[track_caller]
fn remove_the_far_and_the_slow(seed: u64) {
    let mut network = Network::new(seed, |config| {
        config.removal.rtt = Some(Duration::from_millis(300));
        config.removal.window = Some(8.0);
        config.removal.judged_after = 2 * SECOND;
    });
    network.add(Way::clean(5), |_| {});
    network.add(Way::clean(200), |_| {});
    network.add(Way { loss: (0.2, 0.0), ..Way::clean(5) }, |_| {});
    connect(&mut network);
    let bytes = content(3_000_000);
    network.send_all(bytes.clone());
    assert!(network.reaches(MINUTE, |network| network.receivers[0].got == bytes));
    let mut removed = network.removed();
    removed.sort();
    assert_eq!(removed, [CloseReason::TooFar, CloseReason::TooSlow]);
}

#[test]
fn in_real_time_mode_an_ordinary_receiver_that_lacks_what_is_gone_is_removed() {
    let mut network = Network::new(5, |config| {
        config.real_time = Some(Duration::from_millis(300));
        config.release = Release::Buffer;
    });
    for _ in 0..3 {
        network.add(Way::clean(10), |_| {});
    }
    connect(&mut network);
    let to = Stream::Master(MasterId::FIRST);
    for packet in 0..500 {
        // One is cut off for a second and a half.
        let is_cut = (100..175).contains(&packet);
        network.set_loss(2, if is_cut { (1.0, 1.0) } else { (0.0, 0.0) });
        network.command(SourceCommand::Write { to, bytes: content(1000) });
        network.run_for(Duration::from_millis(20));
    }
    network.run_for(SECOND);
    assert_eq!(network.removed(), [CloseReason::TooLate]);
    assert!(network.receivers[..2].iter().all(|node| node.got.len() == 500_000));
    assert!(network.receivers[2].got.len() < 200_000);
}

/// Sends 50 frames a second to receivers at 100 ms that lose this share and skip what is a second
/// late. Returns the network, and the frames that each receiver got.
fn watch(fairness: Fairness, loss: f64, buffer: u32, frames: usize) -> (Network, Vec<usize>) {
    let mut network = Network::new(5, |config| {
        config.real_time = Some(2 * SECOND);
        config.fairness = fairness;
    });
    for _ in 0..40 {
        let way = Way { loss: (loss, 0.0), ..Way::clean(50) };
        network.add(way, |config| {
            config.real_time = Some(SECOND);
            (config.buffer, config.window_scale) = (buffer, None);
        });
    }
    connect(&mut network);
    let to = Stream::Master(MasterId::FIRST);
    for _ in 0..frames {
        network.command(SourceCommand::Write { to, bytes: content(1000) });
        network.run_for(Duration::from_millis(20));
    }
    network.command(SourceCommand::Finish { to });
    network.run_for(30 * SECOND);
    let got = network.receivers.iter().map(|node| node.got.len() / 1000).collect();
    (network, got)
}

#[test]
fn repairs_do_not_wait_for_a_window_that_does_not_bound_the_group() {
    let unbound = Fairness::Essential { a: 1000.0, b: 1000.0 };
    let (network, got) = watch(unbound, 0.08, 50_000, 500);
    assert!(got.iter().all(|&frames| frames >= 495), "{got:?}");
    assert_eq!(network.removed(), []);
    // Multicast reached all of them, all the time.
    assert_eq!(network.source.stats().unicast.segments, 0);
}

#[test]
fn a_strictly_fair_group_that_falls_behind_its_stream_goes_on_with_what_is_new() {
    let (network, got) = watch(Fairness::Strict, 0.05, 50_000, 1500);
    assert_eq!(network.removed(), [], "{got:?}");
    let least = got.iter().min().copied().unwrap_or(0);
    // Before, nothing was sent any more after 28 frames.
    assert!(least > 150, "{got:?}");
    assert!(network.receivers.iter().all(|node| node.has(&ReceiverEvent::ReceivedEnd)));
}
