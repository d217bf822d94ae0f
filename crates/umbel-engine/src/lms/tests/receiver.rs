use super::*;
use crate::bucket::Limit;
use crate::chance::generator;
use crate::lms::config::{Cost, Horizon, ReceiverConfig};
use crate::lms::{Receiver, ReceiverCommand, ReceiverEvent};

/// Creates a receiver that has joined and got the units before `known`, at 0 ms.
fn receiver(known: u64, change: impl FnOnce(&mut ReceiverConfig)) -> Tested<Receiver> {
    let mut config = ReceiverConfig::new(channel());
    (config.tsi, config.cost) = (Some(TSI), Cost::Fixed(Some(5)));
    config.request_jitter = 0.0;
    change(&mut config);
    let engine = Receiver::new(config, generator(0));
    let mut receiver = Tested::new(engine, |receiver| receiver.drops().to_string());
    receiver.handle_command(ms(0), ReceiverCommand::Join).unwrap();
    for sequence in 0..known {
        data(&mut receiver, 0, sequence);
    }
    sent(&mut receiver, ms(0));
    events(&mut receiver);
    receiver
}

fn by_channel() -> Address {
    Address::Channel(channel())
}

fn data(receiver: &mut Receiver, at: u64, sequence: u64) {
    let message = Message::Data { tsi: TSI, sequence, payload: b"unit" };
    give(receiver, ms(at), by_channel(), &message);
}

fn repair(receiver: &mut Receiver, at: u64, sequence: u64, unicast: bool) {
    let message = Message::Repair { tsi: TSI, sequence, number: 1, unicast, payload: b"unit" };
    let by = if unicast { Address::Host(host(20)) } else { by_channel() };
    give(receiver, ms(at), by, &message);
}

/// Returns the requests that leave: destination, unit, number, and whether flagged.
fn requests(receiver: &mut Receiver, at: u64) -> Vec<(Address, u64, u8, bool)> {
    let all = sent(receiver, ms(at));
    all.iter()
        .filter_map(|(to, bytes)| match parse(bytes) {
            Message::Request(r) => Some((*to, r.units.first, r.number, r.replier_failed)),
            _ => None,
        })
        .collect()
}

fn delivered(receiver: &mut Receiver) -> Vec<u64> {
    events(receiver)
        .into_iter()
        .filter_map(|event| match event {
            ReceiverEvent::Unit { sequence, .. } => Some(sequence),
            _ => None,
        })
        .collect()
}

/// Steers a request here. Returns the repairs' destinations.
fn asked(receiver: &mut Receiver, at: u64, request: Request) -> Vec<Address> {
    give(receiver, ms(at), Address::Host(host(200)), &Message::Request(request));
    sent(receiver, ms(at)).into_iter().map(|(to, _)| to).collect()
}

fn stamped(sequence: u64, interface: u32) -> Request {
    let requestor = Some(host(77));
    Request { turning_point: Some(turning_point(interface)), requestor, ..request(sequence) }
}

#[test]
fn a_loss_is_asked_for_at_once_and_again_and_again() {
    let mut receiver = receiver(1, |_| {});
    data(&mut receiver, 10, 2);
    let source = Address::Host(host(1));
    assert_eq!(requests(&mut receiver, 10), [(source, 1, 1, false)]);
    // 200 ms until the round trip is known, so 400, 800, 1600 and 1600 ms.
    let mut at = Vec::new();
    for now in (10..6_000).step_by(10) {
        receiver.handle_timeout(ms(now));
        at.extend(requests(&mut receiver, now).iter().map(|r| (now, r.2, r.3)));
    }
    let expected = [(410, 2, false), (1_210, 3, true), (2_810, 4, false), (4_410, 5, true)];
    assert_eq!(at, expected);
    repair(&mut receiver, 6_000, 1, false);
    assert_eq!(delivered(&mut receiver), [1, 2]);
    receiver.handle_timeout(ms(20_000));
    assert_eq!(requests(&mut receiver, 20_000), []);
    let stats = receiver.stats();
    assert_eq!((stats.losses, stats.recovered, stats.requests, stats.duplicates), (1, 1, 5, 0));
    repair(&mut receiver, 20_000, 1, false);
    assert_eq!(receiver.stats().duplicates, 1);
}

#[test]
fn a_heartbeat_shows_that_the_last_units_were_lost() {
    let mut receiver = receiver(1, |_| {});
    let heartbeat = Message::Heartbeat { tsi: TSI, lead: 3, trail: 0 };
    give(&mut receiver, ms(10), by_channel(), &heartbeat);
    let asked: Vec<_> = requests(&mut receiver, 10).iter().map(|request| request.1).collect();
    assert_eq!(asked, [1, 2]);
}

#[test]
fn a_repair_of_what_the_source_has_not_sent_makes_nothing_missing() {
    let mut receiver = receiver(3, |_| {});
    for sequence in [4, 5, 900, u64::MAX - 1] {
        repair(&mut receiver, 10, sequence, false);
        assert_eq!((requests(&mut receiver, 10), receiver.missing()), (vec![], 0), "{sequence}");
    }
    receiver.assert_dropped("FarAhead 4");
    // The next one may be known to a neighbour who asked, and shows nothing to be missing.
    repair(&mut receiver, 11, 3, false);
    assert_eq!((delivered(&mut receiver), receiver.missing()), (vec![3], 0));
    data(&mut receiver, 20, 5);
    assert_eq!(requests(&mut receiver, 20).len(), 1);
}

#[test]
fn a_repair_is_not_the_first_that_a_receiver_hears_of_a_session() {
    let mut receiver = receiver(0, |_| {});
    repair(&mut receiver, 10, 700, false);
    assert_eq!((receiver.missing(), receiver.next_sequence()), (0, 0));
    receiver.assert_dropped("FarAhead 1");
}

#[test]
fn what_nobody_keeps_any_more_is_given_up() {
    let mut receiver = receiver(1, |_| {});
    data(&mut receiver, 10, 5);
    let heartbeat = Message::Heartbeat { tsi: TSI, lead: 6, trail: 4 };
    give(&mut receiver, ms(20), by_channel(), &heartbeat);
    let events: Vec<_> = std::iter::from_fn(|| receiver.poll_event()).collect();
    assert_eq!(events, [ReceiverEvent::GivenUp { before: 4, units: 3 }]);
    repair(&mut receiver, 30, 4, false);
    assert_eq!(delivered(&mut receiver), [4, 5]);
}

#[test]
fn several_losses_can_share_a_request() {
    let mut receiver = receiver(1, |config| config.units_per_request = 3);
    data(&mut receiver, 10, 6);
    let sets: Vec<Vec<u64>> = sent(&mut receiver, ms(10))
        .iter()
        .map(|(_, bytes)| match parse(bytes) {
            Message::Request(request) => request.units.iter().collect(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(sets, [vec![1, 2, 3], vec![4, 5]]);
}

#[test]
fn a_flood_of_losses_does_not_become_a_flood_of_requests() {
    let mut receiver = receiver(1, |config| config.requests = Limit { per_s: 100, burst: 10 });
    data(&mut receiver, 10, 900);
    assert_eq!(requests(&mut receiver, 10).len(), 10);
    let mut later = 0;
    for now in 11..1_010 {
        receiver.handle_timeout(ms(now));
        later += requests(&mut receiver, now).len();
    }
    assert!((90..=101).contains(&later), "{later}");
}

#[test]
fn a_kept_unit_is_sent_to_the_turning_point_once() {
    let mut receiver = receiver(5, |_| {});
    let router = Address::Host(host(200));
    assert_eq!(asked(&mut receiver, 10, stamped(3, 4)), [router]);
    // However often one asks, and with any request number.
    for number in 1..=255 {
        assert_eq!(asked(&mut receiver, 50, Request { number, ..stamped(3, 4) }), []);
    }
    receiver.assert_dropped("LateRequest 255");
    assert_eq!(asked(&mut receiver, 11, stamped(3, 5)), [router], "another subtree");
    // After the ignore period of a round trip the reply may have been lost.
    assert_eq!(asked(&mut receiver, 211, Request { number: 2, ..stamped(3, 4) }), [router]);
}

#[test]
fn a_dmcast_carries_the_unit_and_the_turning_point() {
    let mut receiver = receiver(5, |_| {});
    give(&mut receiver, ms(10), Address::Host(host(200)), &Message::Request(stamped(3, 4)));
    let all = sent(&mut receiver, ms(10));
    let Message::Dmcast { channel: of, turning_point: to, repair } = parse(&all[0].1) else {
        panic!("{all:?}")
    };
    assert_eq!((of, to), (channel(), turning_point(4)));
    let expected =
        Message::Repair { tsi: TSI, sequence: 3, number: 1, unicast: false, payload: b"unit" };
    assert_eq!(parse(repair), expected);
}

#[test]
fn a_first_request_after_a_repair_came_by_is_late_and_a_second_is_not() {
    let mut receiver = receiver(1, |_| {});
    data(&mut receiver, 10, 2);
    sent(&mut receiver, ms(10));
    assert_eq!(asked(&mut receiver, 15, stamped(1, 4)), [], "it asked itself");
    repair(&mut receiver, 20, 1, false);
    assert_eq!(asked(&mut receiver, 25, stamped(1, 4)), [], "the repair has passed there");
    let second = Request { number: 2, ..stamped(1, 4) };
    assert_eq!(asked(&mut receiver, 30, second), [Address::Host(host(200))]);
    receiver.assert_dropped("LateRequest 1, AlreadyAsked 1");
}

#[test]
fn after_a_repair_by_unicast_those_who_asked_meanwhile_are_answered() {
    let mut receiver = receiver(1, |config| config.two_step = true);
    data(&mut receiver, 10, 2);
    sent(&mut receiver, ms(10));
    for interface in [4, 5, 5] {
        assert_eq!(asked(&mut receiver, 15, stamped(1, interface)), []);
    }
    repair(&mut receiver, 20, 1, true);
    let to: Vec<u32> = sent(&mut receiver, ms(20))
        .iter()
        .map(|(_, bytes)| match parse(bytes) {
            Message::Dmcast { turning_point, .. } => turning_point.interface,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(to, [4, 5]);
    receiver.assert_dropped("AlreadyAsked 3");
}

#[test]
fn who_asks_for_a_reply_by_unicast_gets_one() {
    let mut receiver = receiver(5, |_| {});
    let request = Request { unicast_reply: true, ..stamped(3, 4) };
    assert_eq!(asked(&mut receiver, 10, request), [Address::Host(host(77))]);
}

#[test]
fn what_is_not_kept_is_asked_for_upstream_with_the_same_turning_point() {
    let mut receiver = receiver(30, |config| config.replier.history.units = 10);
    give(&mut receiver, ms(10), Address::Host(host(200)), &Message::Request(stamped(3, 4)));
    let all = sent(&mut receiver, ms(10));
    assert_eq!(all[0].0, Address::Host(host(1)));
    assert_eq!(parse(&all[0].1), Message::Request(Request { hops: 1, ..stamped(3, 4) }));
    assert_eq!(all.len(), 1);
    assert_eq!(receiver.stats().proxied, 1);
}

#[test]
fn absurd_requests_are_dropped_and_counted() {
    let mut receiver = receiver(5, |_| {});
    let mut refused = |request, dropped| {
        assert_eq!(asked(&mut receiver, 10, request), []);
        receiver.assert_dropped(dropped);
    };
    refused(stamped(5 + 1024, 4), "FarAhead 1");
    refused(stamped(u64::MAX - 1, 4), "FarAhead 2");
    let elsewhere = Request { tsi: Tsi(8), ..stamped(3, 4) };
    refused(elsewhere, "OtherSession 1, FarAhead 2");
    let circling = Request { hops: 64, ..stamped(3, 4) };
    refused(circling, "OtherSession 1, FarAhead 2, Hops 1");
    let channel = Channel { port: 9, ..channel() };
    let elsewhere = Request { channel, ..stamped(3, 4) };
    refused(elsewhere, "OtherSession 2, FarAhead 2, Hops 1");
}

#[test]
fn a_flood_of_requests_is_answered_only_so_often() {
    let mut receiver =
        receiver(5, |config| config.replier.repairs = Limit { per_s: 10, burst: 20 });
    // As many places as one can invent.
    let answers: usize = (0..10_000).map(|n| asked(&mut receiver, 10, stamped(3, n)).len()).sum();
    assert_eq!(answers, 20);
    receiver.assert_dropped("Flood 9980");
}

#[test]
fn units_that_make_no_sense_are_dropped_and_counted() {
    let mut receiver = receiver(5, |_| {});
    data(&mut receiver, 10, 5 + (1 << 20));
    let heartbeat = |lead, trail| Message::Heartbeat { tsi: TSI, lead, trail };
    give(&mut receiver, ms(10), by_channel(), &heartbeat(u64::MAX, 0));
    give(&mut receiver, ms(10), by_channel(), &heartbeat(u64::MAX, u64::MAX));
    receiver.assert_dropped("FarAhead 3");
    let other = Message::Data { tsi: Tsi(9), sequence: 5, payload: b"" };
    give(&mut receiver, ms(10), by_channel(), &other);
    repair(&mut receiver, 10, 5, true);
    testing::give(&mut receiver, ms(10), by_channel(), b"Um\x01\x61");
    receiver.assert_dropped("Malformed 1, Unexpected 1, OtherSession 1, FarAhead 3");
    assert_eq!((delivered(&mut receiver), receiver.missing()), (vec![], 0));
}

#[test]
fn a_late_joiner_begins_where_it_wants_to() {
    for (horizon, first) in [(Horizon::Everything, 0), (Horizon::Back(3), 97)] {
        let mut receiver = receiver(0, |config| config.horizon = horizon);
        data(&mut receiver, 10, 100);
        assert_eq!(receiver.next_sequence(), first);
    }
    let mut receiver = receiver(0, |_| {});
    let heartbeat = Message::Heartbeat { tsi: TSI, lead: 100, trail: 90 };
    give(&mut receiver, ms(10), by_channel(), &heartbeat);
    assert_eq!(receiver.next_sequence(), 90);
}

#[test]
fn it_advertises_when_the_tree_reaches_it_and_withdraws_when_it_leaves() {
    let mut receiver = receiver(0, |_| {});
    let costs = |receiver: &mut Receiver, at| -> Vec<Option<u32>> {
        let all = sent(receiver, ms(at));
        all.iter()
            .filter_map(|(_, bytes)| match parse(bytes) {
                Message::Advertisement { cost, .. } => Some(cost),
                _ => None,
            })
            .collect()
    };
    assert_eq!(costs(&mut receiver, 5), []);
    data(&mut receiver, 10, 0);
    assert_eq!(costs(&mut receiver, 10), [Some(5)]);
    receiver.handle_timeout(ms(2_010));
    assert_eq!(costs(&mut receiver, 2_010), [Some(5)]);
    receiver.handle_command(ms(2_020), ReceiverCommand::Leave).unwrap();
    assert_eq!(costs(&mut receiver, 2_020), [None]);
    data(&mut receiver, 2_030, 1);
    assert_eq!(receiver.poll_timeout(), None);
    receiver.assert_dropped("Unexpected 1");
}

#[test]
fn the_cost_follows_distance_and_loss() {
    let weight = 50.0;
    let mut receiver = receiver(0, |config| config.cost = Cost::LatencyAndLoss { weight });
    data(&mut receiver, 10, 0);
    // The first ping went out with the join, and is lost.
    receiver.handle_timeout(ms(500));
    let all = sent(&mut receiver, ms(500));
    let nonce = all.iter().find_map(|(_, bytes)| match parse(bytes) {
        Message::Ping { nonce, .. } => Some(nonce),
        _ => None,
    });
    let nonce = nonce.unwrap_or_else(|| panic!("{all:?}"));
    let pong = Message::Pong { tsi: TSI, nonce };
    give(&mut receiver, ms(530), Address::Host(host(1)), &pong);
    assert_eq!(receiver.rtt(), Some(Duration::from_millis(30)));
    assert_eq!(receiver.cost(), Some(30_000));
    // Every tenth is lost: 30 ms · (1 + 50 · 10 %).
    for sequence in (1..4_000).filter(|sequence| sequence % 10 != 0) {
        data(&mut receiver, 550, sequence);
        let missing = sequence.saturating_sub(1);
        repair(&mut receiver, 550, missing, false);
    }
    let cost = receiver.cost().unwrap();
    assert!((150_000..220_000).contains(&cost), "{cost}");
}

#[test]
fn one_that_joins_again_follows_the_session_that_it_hears_then() {
    let mut receiver = receiver(3, |config| config.tsi = None);
    receiver.handle_command(ms(10), ReceiverCommand::Leave).unwrap();
    receiver.handle_command(ms(20), ReceiverCommand::Join).unwrap();
    let unit = |sequence| Message::Data { tsi: Tsi(8), sequence, payload: b"other" };
    for sequence in 0..2 {
        give(&mut receiver, ms(30), by_channel(), &unit(sequence));
    }
    assert_eq!(delivered(&mut receiver), [0, 1]);
    // Units kept of the previous session must not answer requests of this one.
    sent(&mut receiver, ms(30));
    let request = Request { tsi: Tsi(8), ..stamped(1, 4) };
    give(&mut receiver, ms(40), Address::Host(host(200)), &Message::Request(request));
    let all = sent(&mut receiver, ms(40));
    let Message::Dmcast { repair, .. } = parse(&all[0].1) else { panic!("{all:?}") };
    let Message::Repair { payload, .. } = parse(repair) else { panic!("{all:?}") };
    assert_eq!(payload, b"other");
}
