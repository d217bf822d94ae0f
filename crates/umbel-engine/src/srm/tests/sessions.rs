//! Session messages, joining and leaving.

use umbel_wire::srm::Echo;

use super::*;

/// Returns the configuration of a member that sends session messages.
fn talking() -> Config {
    let mut config = config();
    config.session.min_interval = millis(1000);
    config
}

#[test]
fn distance_is_half_of_what_the_round_trip_took_without_the_time_it_was_held() {
    let mut script = Script::new(talking());
    let (sent, message) = script.next_session();
    let Message::Session { timestamp_ns, .. } = parse(&message) else { panic!("{message:?}") };
    script.now = sent + millis(500);
    let echo = Echo { member: ME, timestamp_ns, held: millis(460) };
    let Message::Session { timestamp_ns, sources, leaving, .. } = session(vec![]) else {
        unreachable!()
    };
    let sender = MemberId(77);
    script.hear(&Message::Session { sender, timestamp_ns, sources, echoes: vec![echo], leaving });
    assert_eq!(script.member.distance(sender), Some(millis(20)));
}

#[test]
fn others_timestamps_are_echoed_with_the_time_they_were_held() {
    let mut script = Script::new(talking());
    script.now = ms(100);
    script.hear(&session(vec![]));
    let (at, message) = script.next_session();
    let Message::Session { echoes, .. } = parse(&message) else { panic!("{message:?}") };
    assert_eq!(echoes, [Echo { member: OTHER, timestamp_ns: 5, held: at - ms(100) }]);
}

#[test]
fn tells_how_far_every_source_has_come() {
    let mut script = Script::new(talking());
    script.member.handle_command(ms(0), Command::Send(Bytes::from_static(b"mine"))).unwrap();
    with_data(0, |data| script.hear(data));
    script.sent();
    let (_, message) = script.next_session();
    let Message::Session { sources, .. } = parse(&message) else { panic!("{message:?}") };
    let state = |source| SourceState { source, horizon: 0, next: 1 };
    assert_eq!(sources, [state(ME), state(SOURCE)]);
}

#[test]
fn many_sources_are_told_in_turn() {
    let mut config = talking();
    config.session.sources = 3;
    let mut script = Script::new(config);
    for source in (10..15).map(MemberId) {
        script.hear(&session(vec![SourceState { source, horizon: 0, next: 4 }]));
    }
    let mut told: Vec<u64> = (0..2)
        .flat_map(|_| {
            let (_, message) = script.next_session();
            let Message::Session { sources, .. } = parse(&message) else { panic!("{message:?}") };
            assert_eq!(sources.len(), 3);
            sources.into_iter().map(|state| state.source.0).collect::<Vec<_>>()
        })
        .collect();
    told.sort_unstable();
    told.dedup();
    assert_eq!(told, [10, 11, 12, 13, 14]);
}

#[test]
fn a_source_tells_of_its_last_unit_soon_and_then_ever_more_seldom() {
    let mut config = config();
    config.session.heartbeat = Some(millis(50));
    let mut script = Script::new(config);
    script.member.handle_command(ms(0), Command::Send(Bytes::from_static(b"mine"))).unwrap();
    script.sent();
    for expected in [50, 150, 350, 750] {
        let (at, message) = script.next_session();
        assert_eq!(at, ms(expected));
        let Message::Session { sources, .. } = parse(&message) else { panic!("{message:?}") };
        assert_eq!(sources, [SourceState { source: ME, horizon: 0, next: 1 }]);
    }
}

#[test]
fn a_session_message_never_exceeds_its_bounds_in_a_large_group() {
    let mut script = Script::new(talking());
    for n in 0..10_000 {
        script.now = Instant::from_nanos(n * 10_000);
        script.hear(&Message::Session {
            sender: MemberId(1000 + n),
            timestamp_ns: u64::MAX - n,
            sources: vec![],
            echoes: vec![],
            leaving: false,
        });
    }
    let members = script.member.members();
    assert!((8_000..12_500).contains(&members), "{members}");
    let footprint = script.member.footprint();
    assert!(footprint.peers <= 1024, "{footprint:?}");
    let (at, message) = script.next_session();
    assert!(at > ms(60_000), "{at:?}");
    assert!(message.len() < 1400, "{}", message.len());
    let Message::Session { echoes, .. } = parse(&message) else { panic!("{message:?}") };
    assert_eq!(echoes.len(), 32);
}

#[test]
fn whoever_is_silent_for_long_or_leaves_is_forgotten() {
    let mut script = Script::new(talking());
    script.hear(&session(vec![]));
    assert_eq!(script.member.members(), 2);
    for _ in 0..12 {
        script.next_session();
    }
    assert_eq!((script.member.members(), script.member.distance(OTHER)), (1, None));
    script.hear(&session(vec![]));
    assert_eq!(script.member.members(), 2);
    let Message::Session { sender, timestamp_ns, sources, echoes, .. } = session(vec![]) else {
        unreachable!()
    };
    script.hear(&Message::Session { sender, timestamp_ns, sources, echoes, leaving: true });
    assert_eq!((script.member.members(), script.member.footprint().peers), (1, 0));
}

#[test]
fn a_member_that_leaves_says_so_and_then_is_silent() {
    let mut script = Script::new(talking());
    script.member.handle_command(ms(0), Command::Leave).unwrap();
    let sent = script.sent();
    assert!(matches!(parse(&sent[0]), Message::Session { leaving: true, .. }) && sent.len() == 1);
    assert_eq!(script.member.poll_membership(), Some(Membership::Leave(CHANNEL)));
    assert_eq!(script.member.poll_timeout(), None);
    with_data(0, |data| script.hear(data));
    script.assert_dropped(DropReason::Unexpected, 1);
    assert!(script.member.handle_command(ms(0), Command::Send(Bytes::new())).is_err());
}
