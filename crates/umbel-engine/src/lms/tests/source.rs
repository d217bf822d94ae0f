use bytes::Bytes;

use super::*;
use crate::lms::config::SourceConfig;
use crate::lms::{Source, SourceCommand, SourceCommandError, SourceEvent};

/// Creates a source that has sent this number of units at 0 ms.
fn source(units: u64, change: impl FnOnce(&mut SourceConfig)) -> Tested<Source> {
    let mut config = SourceConfig::new(channel(), TSI);
    change(&mut config);
    let mut source = Tested::new(Source::new(config), |source| source.drops().to_string());
    for _ in 0..units {
        let unit = Bytes::from_static(b"unit");
        source.handle_command(ms(0), SourceCommand::Send(unit)).unwrap();
    }
    let sent = sent(&mut source, ms(0));
    assert_eq!(sent.len() as u64, units);
    source
}

/// Returns the destinations of the answers to a request.
fn asked(source: &mut Source, at: u64, request: Request) -> Vec<Address> {
    give(source, ms(at), Address::Host(host(50)), &Message::Request(request));
    sent(source, ms(at)).into_iter().map(|(to, _)| to).collect()
}

#[test]
fn units_are_numbered_and_heartbeats_follow_at_growing_intervals() {
    let mut source = source(3, |_| {});
    let mut beats = Vec::new();
    for now in 1..4_000 {
        if source.poll_timeout().is_some_and(|at| at <= ms(now)) {
            source.handle_timeout(ms(now));
        }
        for (to, bytes) in sent(&mut source, ms(now)) {
            assert_eq!(to, Address::Channel(channel()));
            assert_eq!(parse(&bytes), Message::Heartbeat { tsi: TSI, lead: 3, trail: 0 });
            beats.push(now);
        }
    }
    assert_eq!(beats, [50, 100, 200, 400, 800, 1_600, 2_600, 3_600]);
}

#[test]
fn a_stamped_request_makes_one_dmcast() {
    let mut source = source(3, |_| {});
    let stamped = Request { turning_point: Some(turning_point(4)), ..request(1) };
    assert_eq!(asked(&mut source, 10, stamped), [Address::Host(host(200))]);
    for number in 1..50 {
        assert_eq!(asked(&mut source, 20, Request { number, ..stamped }), []);
    }
    assert_eq!(source.stats().dmcasts, 1);
    source.assert_dropped("LateRequest 49");
}

#[test]
fn unstamped_requests_are_answered_by_unicast_and_many_of_them_by_multicast() {
    let mut source = source(3, |_| {});
    let from = |n| Request { requestor: Some(host(n)), ..request(1) };
    for n in 11..14 {
        assert_eq!(asked(&mut source, 10, from(n)), [Address::Host(host(n))]);
    }
    assert_eq!(asked(&mut source, 10, from(14)), [Address::Channel(channel())]);
    for n in 15..100 {
        assert_eq!(asked(&mut source, 11, from(n)), []);
    }
    // Without a router on the way, the sender is the requestor.
    assert_eq!(asked(&mut source, 2_000, request(1)), [Address::Host(host(50))]);
    source.assert_dropped("LateRequest 85");
}

#[test]
fn absurd_requests_are_dropped_and_counted() {
    let mut source = source(3, |config| config.replier.history.units = 2);
    let mut refused = |request, dropped| {
        assert_eq!(asked(&mut source, 10, request), []);
        source.assert_dropped(dropped);
    };
    refused(request(3), "FarAhead 1");
    refused(request(0), "FarAhead 1, Expired 1");
    let other = Request { tsi: Tsi(9), ..request(1) };
    refused(other, "OtherSession 1, FarAhead 1, Expired 1");
}

#[test]
fn a_full_queue_and_a_unit_that_no_datagram_holds_are_refused() {
    let mut source = source(0, |config| config.queue = 1);
    let send = |len| SourceCommand::Send(Bytes::from(vec![0; len]));
    let too_long = source.handle_command(ms(0), send(65_001));
    assert_eq!(too_long, Err(SourceCommandError::TooLong { len: 65_001 }));
    assert_eq!(source.handle_command(ms(0), send(65_000)), Ok(()));
    assert_eq!(source.handle_command(ms(0), send(1)), Err(SourceCommandError::Full { waiting: 1 }));
}

#[test]
fn pings_are_answered_only_so_often() {
    let mut source = source(0, |_| {});
    for nonce in 0..5_000 {
        give(&mut source, ms(1), Address::Host(host(9)), &Message::Ping { tsi: TSI, nonce });
    }
    assert_eq!(sent(&mut source, ms(1)).len(), 1_000);
    source.assert_dropped("Flood 4000");
}

#[test]
fn answers_to_the_latest_question_are_told() {
    let mut source = source(1, |_| {});
    let spread = Duration::from_millis(20);
    source.handle_command(ms(0), SourceCommand::Collect { question: 8, spread }).unwrap();
    let asked = sent(&mut source, ms(0));
    let question = Message::Collect { tsi: TSI, round: 1, question: 8, spread };
    assert_eq!(parse(&asked[0].1), question);
    let summary = umbel_wire::lms::Summary::of(4);
    for round in [1, 2] {
        let report = Message::Report { channel: channel(), tsi: TSI, round, summary, hops: 2 };
        give(&mut source, ms(30), Address::Host(host(9)), &report);
    }
    assert_eq!(source.poll_event(), Some(SourceEvent::Collected { round: 1, summary }));
    assert_eq!(source.poll_event(), None);
    source.assert_dropped("Unexpected 1");
}
