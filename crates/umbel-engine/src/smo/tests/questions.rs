//! Receivers of which nothing is heard: their acknowledgements were lost, or are late. A helper
//! keeps from them what is multicast again and what they have.

use std::time::Duration;

use super::network::{Network, Way, content};
use crate::smo::*;

const LEN: usize = 20_000;

/// Returns connected receivers, a millisecond away. The first `without` of them lose this share of
/// what is sent to them and of what they send, from now on.
fn connected(receivers: usize, without: usize, loss: (f64, f64)) -> Network {
    let mut network = Network::new(1, |_| {});
    network.expect_faults();
    for _ in 0..receivers {
        network.add(Way::clean(1), |_| {});
    }
    network.connect_all();
    network.run_until(Duration::from_secs(1), |network| network.source.len() == receivers);
    network.run_for(Duration::from_millis(10));
    (0..without).for_each(|node| network.set_loss(node, loss));
    network
}

/// Sends a stream to receivers. For some ms all segments from or to half of them are lost. Returns
/// the network before the first time-out could be.
fn after_silence(loss: (f64, f64), silent_ms: u64) -> Network {
    let mut network = connected(20, 10, loss);
    let to = Stream::Master(MasterId::FIRST);
    network.command(SourceCommand::Write { to, bytes: content(LEN) });
    network.run_for(Duration::from_millis(silent_ms));
    (0..10).for_each(|node| network.set_loss(node, (0.0, 0.0)));
    network.run_for(Duration::from_millis(190 - silent_ms));
    assert_eq!(network.source.stats().timeouts, 0);
    for child in network.source.children() {
        assert_eq!((child.acknowledged, child.hears), (LEN as u64, true), "{child:?}");
    }
    assert!(network.receivers.iter().all(|node| node.got == content(LEN)));
    network
}

#[test]
fn a_receiver_whose_acknowledgements_alone_were_lost_is_asked_and_keeps_its_window() {
    let network = after_silence((0.0, 1.0), 5);
    let stats = network.source.stats();
    assert_eq!((network.questions.len(), stats.loss_events), (10, 0), "{stats:?}");
    assert_eq!((stats.multicast_again.segments, stats.unicast_again.segments), (0, 0));
}

#[test]
fn what_a_receiver_lacks_when_it_is_asked_is_sent_once_more() {
    // The first window and the first questions are lost.
    let network = after_silence((1.0, 0.0), 15);
    let stats = network.source.stats();
    println!("{} questions, {stats:?}", network.questions.len());
    // The acknowledgement of a single segment is delayed.
    let (asked, losses) = (network.questions.len(), stats.loss_events);
    assert!((20..=30).contains(&asked) && losses == 10, "{asked}, {stats:?}");
    assert_eq!(stats.unicast_again.segments, 0, "{stats:?}");
}

#[test]
fn acknowledgements_that_wait_in_a_queue_are_no_answers() {
    // Those of the first window come 60 ms late, after the questions that they seem to answer.
    let mut network = connected(20, 0, (0.0, 0.0));
    let to = Stream::Master(MasterId::FIRST);
    (0..10).for_each(|node| network.set_delay_up(node, Duration::from_millis(60)));
    network.command(SourceCommand::Write { to, bytes: content(LEN) });
    network.run_for(Duration::from_millis(180));
    let stats = network.source.stats();
    println!("{} questions, {stats:?}", network.questions.len());
    assert!(network.questions.len() >= 20);
    assert_eq!((stats.timeouts, stats.loss_events), (0, 0), "{stats:?}");
    assert_eq!((stats.multicast_again.segments, stats.unicast_again.segments), (0, 0));
}

#[test]
fn a_single_segment_and_what_follows_it_are_asked_about_before_the_time_out() {
    for following in [0, 5_000] {
        let mut network = connected(20, 10, (0.0, 1.0));
        let to = Stream::Master(MasterId::FIRST);
        for len in [1000, following].into_iter().filter(|len| *len > 0) {
            network.command(SourceCommand::Write { to, bytes: content(len) });
            network.run_for(Duration::from_millis(1));
        }
        network.run_for(Duration::from_millis(45));
        (0..10).for_each(|node| network.set_loss(node, (0.0, 0.0)));
        network.run_for(Duration::from_millis(140));
        let stats = network.source.stats();
        for child in network.source.children() {
            assert_eq!(child.acknowledged, 1000 + following as u64, "{child:?}");
        }
        assert_eq!((stats.timeouts, stats.loss_events), (0, 0), "{stats:?}");
    }
}

#[test]
fn who_is_not_heard_any_more_is_sent_less_and_less() {
    let mut network = connected(20, 10, (0.0, 0.0));
    (0..10).for_each(|node| network.set_loss(node, (1.0, 1.0)));
    let to = Stream::Master(MasterId::FIRST);
    network.command(SourceCommand::Write { to, bytes: content(LEN) });
    network.run_for(Duration::from_secs(50));
    let stats = network.source.stats();
    println!("{} questions, {stats:?}", network.questions.len());
    let again = stats.multicast_again.segments + stats.unicast_again.segments;
    // Each has 8 time-outs or so, the last of which are 12 and 25 s apart.
    assert!(stats.timeouts >= 60 && again <= 300, "{stats:?}");
    assert!(network.questions.len() <= 100, "{}", network.questions.len());
}

#[test]
fn questions_do_not_leave_in_a_burst() {
    let mut network = connected(300, 300, (0.0, 1.0));
    let to = Stream::Master(MasterId::FIRST);
    network.command(SourceCommand::Write { to, bytes: content(LEN) });
    network.run_for(Duration::from_millis(5));
    (0..300).for_each(|node| network.set_loss(node, (0.0, 0.0)));
    network.run_for(Duration::from_millis(100));
    let questions = &network.questions;
    assert_eq!(questions.len(), 300);
    for both in questions.windows(51) {
        assert!(both[50].since(both[0]) >= Duration::from_millis(1), "{both:?}");
    }
    assert!(network.source.children().all(|child| child.acknowledged == LEN as u64));
}

#[test]
fn receivers_that_acknowledge_rarely_are_sent_nothing_twice() {
    let mut network = Network::new(1, |_| {});
    network.expect_faults();
    for _ in 0..40 {
        // Their acknowledgements come 50 ms apart, in a round trip of 24 ms.
        network.add(Way::clean(12), |config| config.ack_every = 8);
    }
    network.connect_all();
    network.run_for(Duration::from_secs(1));
    let to = Stream::Master(MasterId::FIRST);
    for _ in 0..500 {
        network.command(SourceCommand::Write { to, bytes: content(1000) });
        network.run_for(Duration::from_millis(10));
    }
    let stats = network.source.stats();
    println!("{} questions, {stats:?}", network.questions.len());
    assert!(stats.multicast_again.segments <= 3, "{stats:?}");
    assert_eq!((stats.timeouts, stats.loss_events), (0, 0), "{stats:?}");
}
