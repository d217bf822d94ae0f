//! Rules for groups: which round trip is the group's, how fair it is to TCP, and coming back after
//! a removal.

use std::time::Duration;

use super::network::{Network, Way, content};
use crate::Engine as _;
use crate::smo::receiver::{ReceiverCommand, ReceiverEvent};
use crate::smo::*;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_mins(1);

#[track_caller]
fn connect(network: &mut Network) {
    network.expect_faults();
    network.connect_all();
    let nodes = network.receivers.len();
    network.run_until(MINUTE, |network| network.source.len() == nodes);
}

fn group_rtt(choice: RttChoice) -> Duration {
    let mut network = Network::new(1, |config| config.rtt = choice);
    for node in 0..10 {
        network.add(Way::clean(if node < 9 { 5 + node } else { 150 }), |_| {});
    }
    connect(&mut network);
    network.writes = Some((content(1_000_000), false));
    network.drain(0);
    network.run_for(3 * SECOND);
    network.source.masters().next().unwrap().rtt
}

#[test]
fn the_rtt_of_a_group_is_the_greatest_or_that_of_a_share() {
    let within = |rtt: Duration, least: u64, most: u64| {
        let ms = rtt.as_millis() as u64;
        assert!((least..=most).contains(&ms), "{rtt:?} is not in {least}..={most} ms");
    };
    within(group_rtt(RttChoice::Maximum), 300, 345);
    // An ACK may be delayed for 40 ms.
    within(group_rtt(RttChoice::Percentile(0.9)), 26, 70);
    within(group_rtt(RttChoice::Percentile(0.0)), 10, 52);
}

#[test]
fn a_percentile_of_the_rtt_gathers_repairs_for_less_time() {
    let pace = |choice| {
        let mut network = Network::new(1, |config| config.rtt = choice);
        network.add(Way::clean(5), |_| {});
        network.add(Way::clean(5), |_| {});
        network.add(Way::clean(150), |_| {});
        connect(&mut network);
        network.send_all(content(1_000_000));
        network.run_for(SECOND);
        let paces = network.events.iter().filter_map(|event| match event {
            SourceEvent::Pace { rate, .. } => Some(rate.bits_per_s()),
            _ => None,
        });
        paces.last().unwrap()
    };
    // The same window, spread over the RTT of the near ones.
    let (greatest, near) = (pace(RttChoice::Maximum), pace(RttChoice::Percentile(0.6)));
    assert!(near > 3 * greatest, "{near} {greatest}");
}

#[test]
fn who_was_removed_may_come_again_at_the_current_position() {
    let mut network = Network::new(1, |config| config.removal.stall = 5 * SECOND);
    for _ in 0..2 {
        network.add(Way::clean(5), |config| config.buffer = 20_000);
    }
    // It comes from the same place later.
    network.add(Way::clean(5), |config| config.buffer = 20_000);
    network.expect_faults();
    network.tell(0, ReceiverCommand::Connect);
    network.tell(1, ReceiverCommand::Connect);
    network.run_until(MINUTE, |network| network.source.len() == 2);
    let bytes = content(30_000_000);
    network.send_all(bytes.clone());
    network.run_for(Duration::from_millis(200));
    network.set_loss(1, (1.0, 1.0));
    network.run_until(MINUTE, |network| network.removed() == [CloseReason::Stalled]);
    let position = network.source.position(MasterId::FIRST).unwrap();
    let got = network.receivers[1].got.len() as u64;
    assert!(got < position && position < 30_000_000, "{got} of {position}");
    network.tell(2, ReceiverCommand::Connect);
    let ended = |network: &mut Network| {
        [0, 2].iter().all(|&node| network.receivers[node].has(&ReceiverEvent::ReceivedEnd))
    };
    network.run_until(5 * MINUTE, ended);
    let tail = &network.receivers[2].got;
    assert!(bytes.ends_with(tail) && network.receivers[0].got == bytes);
    assert!((tail.len() as u64) <= 30_000_000 - position && tail.len() > 100_000, "{}", tail.len());
}

/// Writes 100 bytes each millisecond for so long.
fn stream(network: &mut Network, time: Duration) {
    let to = Stream::Master(MasterId::FIRST);
    for _ in 0..time.as_millis() {
        let written = SourceCommand::Write { to, bytes: content(100) };
        let _ = network.source.handle_command(network.now, written);
        network.drain(0);
        network.run_for(Duration::from_millis(1));
    }
}

#[test]
fn who_holds_up_a_live_stream_for_too_long_is_removed_and_the_others_go_on() {
    let mut network = Network::new(1, |config| config.removal.wait = Some(SECOND));
    for _ in 0..3 {
        network.add(Way::clean(5), |config| config.buffer = 20_000);
    }
    connect(&mut network);
    stream(&mut network, SECOND);
    network.read(1, false);
    // Its window has room for a fifth of a second.
    stream(&mut network, SECOND);
    assert_eq!(network.removed(), []);
    stream(&mut network, 3 * SECOND);
    assert_eq!(network.removed(), [CloseReason::HoldsUp]);
    network.run_for(SECOND);
    assert!([0, 2].iter().all(|&node| network.receivers[node].got.len() == 500_000));
}

#[test]
fn a_live_stream_without_receivers_is_dropped_at_its_age() {
    let mut network = Network::new(1, |config| {
        config.removal.wait = Some(SECOND);
        config.buffer = 400_000;
    });
    network.add(Way::clean(5), |_| {});
    network.expect_faults();
    stream(&mut network, 5 * SECOND);
    connect(&mut network);
    network.run_for(SECOND);
    let got = network.receivers[0].got.len();
    assert!((90_000..=101_000).contains(&got), "{got}");
}

#[test]
fn after_a_gap_receivers_are_removed_and_come_again_behind_it() {
    let mut network = Network::new(1, |_| {});
    for _ in 0..3 {
        network.add(Way::clean(5), |config| config.buffer = 20_000);
    }
    network.expect_faults();
    network.tell(0, ReceiverCommand::Connect);
    network.tell(1, ReceiverCommand::Connect);
    network.run_until(MINUTE, |network| network.source.len() == 2);
    // One is being connected.
    network.set_loss(2, (1.0, 0.0));
    network.tell(2, ReceiverCommand::Connect);
    network.run_for(Duration::from_millis(50));
    let (to, master) = (Stream::Master(MasterId::FIRST), MasterId::FIRST);
    network.command(SourceCommand::Write { to, bytes: content(300_000) });
    network.run_for(Duration::from_millis(20));
    network.command(SourceCommand::Gap { master });
    assert_eq!(network.removed(), [CloseReason::Gap, CloseReason::Gap]);
    network.set_loss(2, (0.0, 0.0));
    network.run_until(MINUTE, |network| network.source.len() == 1);
    let bytes = content(50_000);
    network.send_all(bytes.clone());
    network.run_until(MINUTE, |network| network.receivers[2].got.len() >= 50_000);
    assert_eq!(network.receivers[2].got, bytes);
    assert!(network.receivers[0].got.len() < 300_000);
}

#[test]
fn the_account_of_a_connection_says_what_it_took() {
    let mut network = Network::new(1, |config| config.skip_every = 0);
    network.add(Way::clean(5), |_| {});
    network.add(Way::clean(5), |config| config.channel = None);
    connect(&mut network);
    let begin = network.now;
    network.send_all(content(100_000));
    network.run_until(MINUTE, |network| {
        network.receivers.iter().all(|node| node.got.len() == 100_000)
    });
    network.run_for(SECOND);
    for node in 0..2 {
        network.tell(node, ReceiverCommand::Send(content(7)));
        network.tell(node, ReceiverCommand::Finish);
    }
    network.run_until(MINUTE, |network| network.source.is_empty());
    let took = network.now.since(begin);
    let reports = network.events.iter().filter_map(|event| match event {
        SourceEvent::Closed { report, .. } => Some(report),
        _ => None,
    });
    for (report, is_alone) in reports.zip([false, true]) {
        assert_eq!((report.received, report.received_bytes), (100_000, 7));
        assert!(network.now.since(report.since) >= took);
        // Data that was multicast first until it was found out that one does not hear.
        let by_multicast = report.received_by_multicast();
        let expected = if is_alone { 0..30_000 } else { 100_000..100_001 };
        assert!(expected.contains(&by_multicast), "{by_multicast} {report:?}");
    }
}

/// Returns the bytes per second that the first of ten receivers gets, which alone loses 1 %. With
/// `fairness` it is one of a group, else it is a TCP connection by itself.
fn rate(seed: u64, fairness: Option<Fairness>) -> f64 {
    let mut network = Network::new(seed, |config| {
        config.fairness = fairness.unwrap_or_default();
        config.skip_every = 0;
    });
    let nodes = if fairness.is_some() { 10 } else { 1 };
    for node in 0..nodes {
        let loss = if node == 0 { 0.01 } else { 0.0 };
        network.add(Way { loss: (loss, 0.0), ..Way::clean(20) }, |config| {
            if fairness.is_none() {
                config.channel = None;
            }
        });
    }
    connect(&mut network);
    let begin = network.now;
    let len = 2_000_000;
    network.send_all(content(len));
    network.run_until(10 * MINUTE, |network| {
        network.receivers.iter().all(|node| node.got.len() == len)
    });
    len as f64 / network.now.since(begin).as_secs_f64()
}

#[test]
fn an_essentially_fair_group_keeps_its_bounds_beside_tcp() {
    // The mean of a few runs, since the losses of one say little.
    let mean = |fairness| (0..4).map(|seed| rate(seed, fairness)).sum::<f64>() / 4.0;
    let tcp = mean(None);
    for (a, b) in [(1.0, 2.0), (2.0, 4.0)] {
        let ratio = mean(Some(Fairness::Essential { a, b })) / tcp;
        println!("a = {a}, b = {b}: {ratio:.2} times TCP");
        assert!(a * 0.9 <= ratio && ratio <= b * 1.1, "a = {a}, b = {b}: {ratio}");
    }
}
