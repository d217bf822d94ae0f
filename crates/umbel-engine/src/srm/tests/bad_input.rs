//! Bad input from the network: dropped and counted, without growth.

use umbel_wire::srm::{Echo, limits};

use super::*;
use crate::units::Rate;

#[test]
fn what_is_no_message_or_comes_by_another_way_is_dropped() {
    let mut script = Script::new(config());
    script.hear_bytes(b"Um\x01\x41\0\0\0\0");
    script.hear_bytes(b"GET / HTTP/1.1");
    script.assert_dropped(DropReason::Malformed, 2);
    let mut script = Script::new(config());
    let by = Address::Channel(Channel { port: 7702, ..CHANNEL });
    give(&mut script.member, ms(0), by, b"");
    script.assert_dropped(DropReason::Unexpected, 1);
}

#[test]
fn own_messages_that_come_back_are_dropped() {
    let mut script = Script::new(config());
    script.member.handle_command(ms(0), Command::Send(Bytes::from_static(b"mine"))).unwrap();
    for message in script.sent() {
        script.hear_bytes(&message);
    }
    script.assert_dropped(DropReason::Own, 1);
}

#[test]
fn sequence_numbers_far_ahead_are_dropped_and_make_nobody_ask() {
    let far = 1 << 40;
    let state = |source| SourceState { source, horizon: 0, next: far };
    let mut script = Script::new(config());
    with_data(0, |data| script.hear(data));
    with_data(far, |data| script.hear(data));
    script.hear(&request(SOURCE, far, 1));
    script.hear(&request(ME, 0, 1));
    script.hear(&session(vec![state(SOURCE), state(ME)]));
    script.assert_dropped(DropReason::FarAhead, 5);
    assert_eq!(script.next_sent(ms(100_000)), None);
}

#[test]
fn timestamps_that_were_never_sent_or_held_too_long_measure_nothing() {
    let mut config = config();
    config.session.min_interval = millis(1000);
    let mut script = Script::new(config);
    let own = script.next_session().0.as_nanos();
    script.now += Duration::from_secs(30);
    let echo = |timestamp_ns, held| Echo { member: ME, timestamp_ns, held };
    let echoes = vec![
        echo(own + 1, Duration::ZERO),
        echo(u64::MAX, Duration::ZERO),
        echo(0, millis(1)),
        echo(own, limits::DURATION),
        // Fifteen seconds away.
        echo(own, Duration::ZERO),
    ];
    let (sender, timestamp_ns, sources) = (MemberId(9), u64::MAX, vec![]);
    script.hear(&Message::Session { sender, timestamp_ns, sources, echoes, leaving: false });
    assert_eq!(script.member.distance(MemberId(9)), None);
    script.assert_dropped(DropReason::AbsurdTimestamp, 5);
}

#[test]
fn a_flood_of_requests_makes_no_more_repairs_than_the_rate() {
    let mut script = Script::new(Config {
        recovery_rate: Rate::from_bits_per_s(80_000).unwrap(),
        recovery_burst: 2_000,
        max_repairs: 50,
        ..config()
    });
    for sequence in 0..200 {
        with_data(sequence, |data| script.hear(data));
    }
    let (mut repairs, mut bytes) = (0, 0);
    for n in 0..5_000_u64 {
        let Message::Request { source, runs, .. } = request(SOURCE, n % 40 * 5, 5) else {
            unreachable!()
        };
        let (sender, distance, scope) = (MemberId(1000 + n), Duration::ZERO, None);
        script.hear(&Message::Request { sender, source, runs, distance, scope });
        while let Some((_, message)) = script.next_sent(ms(n)) {
            repairs += 1;
            bytes += message.len();
        }
        script.now = ms(n);
        let footprint = script.member.footprint();
        assert!(footprint.repairs <= 50 && footprint.held_down <= 200, "{footprint:?}");
    }
    // Five seconds at 10,000 bytes a second and the burst.
    assert!(bytes <= 52_200 && repairs > 100, "{repairs} repairs, {bytes} bytes");
    script.member.assert_dropped("HeldDown 996, OverLimit 17272");
}

#[test]
fn a_flood_of_sources_takes_no_more_room_and_leaves_the_known_ones_alone() {
    let mut script = Script::new(Config { max_sources: 4, ..config() });
    with_data(0, |data| script.hear(data));
    for n in 0..1000 {
        let state = SourceState { source: MemberId(100 + n), horizon: 0, next: 1_000_000 };
        script.hear(&session(vec![state]));
    }
    let footprint = script.member.footprint();
    assert_eq!(footprint.sources, 4);
    assert!(footprint.requests <= 3 * 1024, "{footprint:?}");
    script.assert_dropped(DropReason::TooManySources, 997);
    with_data(1, |data| script.hear(data));
    assert_eq!(script.events().0, [0, 1]);
}

#[test]
fn repairs_of_unknown_sources_and_units_leave_no_trace() {
    let mut script = Script::new(config());
    with_repair(3, OTHER, |repair| script.hear(repair));
    script.assert_dropped(DropReason::UnknownSource, 1);
    with_data(0, |data| script.hear(data));
    for sequence in 5_000..6_000 {
        with_repair(sequence, OTHER, |repair| script.hear(repair));
    }
    let footprint = script.member.footprint();
    assert!(footprint.held_down == 0 && footprint.history == 1, "{footprint:?}");
    script.member.assert_dropped("UnknownSource 1, NoRoom 1000");
}
