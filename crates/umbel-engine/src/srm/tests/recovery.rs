//! Requests and repairs.

use super::*;

/// Hears units 0 and 2 of the source at 0 ms.
/// Lacks unit 1.
fn with_a_gap(mut script: Script) -> Script {
    with_data(0, |data| script.hear(data));
    with_data(2, |data| script.hear(data));
    script
}

#[track_caller]
fn within(time: Instant, from: Instant, low: Duration, high: Duration) {
    assert!(time >= from + low && time <= from + high, "{:?} after {from:?}", time - from);
}

#[test]
fn asks_for_a_gap_between_c1_and_c1_plus_c2_distances() {
    for seed in 0..50 {
        let mut script = with_a_gap(Script::drawing(config(), seed));
        let (at, message) = script.next_sent(ms(1000)).unwrap();
        within(at, ms(0), millis(20), millis(40));
        let Message::Request { sender, source, runs, distance, scope } = parse(&message) else {
            panic!("{message:?}")
        };
        assert_eq!((sender, source, distance, scope), (ME, SOURCE, millis(10), None));
        assert_eq!(runs, [UnitRun { first: 1, count: 1 }]);
    }
}

#[test]
fn one_request_asks_for_all_units_of_a_gap() {
    let mut script = Script::new(config());
    with_data(0, |data| script.hear(data));
    with_data(9, |data| script.hear(data));
    let (_, message) = script.next_sent(ms(1000)).unwrap();
    let Message::Request { runs, .. } = parse(&message) else { panic!("{message:?}") };
    assert_eq!(runs, [UnitRun { first: 1, count: 8 }]);
}

#[test]
fn asks_again_after_twice_the_time_and_up_to_the_longest_interval() {
    let mut script = with_a_gap(Script::new(config()));
    let mut last = ms(0);
    for doubled in [1, 2, 4, 8] {
        let (at, _) = script.next_sent(ms(100_000)).unwrap();
        within(at, last, millis(20 * doubled), millis(40 * doubled));
        last = at;
    }
    for _ in 0..20 {
        let (at, _) = script.next_sent(ms(10_000_000)).unwrap();
        assert!(at - last <= Duration::from_secs(2));
        last = at;
    }
}

#[test]
fn does_not_ask_when_another_asks_first_until_the_doubled_time_has_passed() {
    let mut script = with_a_gap(Script::new(config()));
    script.now = ms(15);
    script.hear(&request(SOURCE, 1, 1));
    let (at, _) = script.next_sent(ms(1000)).unwrap();
    within(at, ms(15), millis(40), millis(80));
}

#[test]
fn further_requests_of_the_same_round_do_not_back_off_again() {
    let mut script = with_a_gap(Script::new(config()));
    script.now = ms(15);
    script.hear(&request(SOURCE, 1, 1));
    // Half of the doubled time is at least 20 ms.
    for at in [16, 20, 34] {
        script.now = ms(at);
        script.hear(&request(SOURCE, 1, 1));
    }
    let (at, _) = script.next_sent(ms(1000)).unwrap();
    within(at, ms(15), millis(40), millis(80));
}

#[test]
fn a_repair_ends_the_asking_and_is_delivered_in_order() {
    let mut script = with_a_gap(Script::new(config()));
    assert_eq!(script.events(), (vec![0], vec![(1, Step::Missing)]));
    script.now = ms(12);
    with_repair(1, OTHER, |repair| script.hear(repair));
    let (delivered, steps) = script.events();
    assert_eq!(delivered, [1, 2]);
    let heard = Step::RepairHeard { needed: true };
    assert_eq!(steps, [(1, Step::Recovered { after: millis(12) }), (1, heard)]);
    assert_eq!(script.next_sent(ms(100_000)), None);
    assert!(script.member.is_complete());
}

#[test]
fn units_whose_order_does_not_matter_do_not_wait_for_each_other() {
    let mut script = with_a_gap(Script::new(Config { in_order: false, ..config() }));
    assert_eq!(script.events().0, [0, 2]);
    with_repair(1, OTHER, |repair| script.hear(repair));
    with_repair(1, OTHER, |repair| script.hear(repair));
    assert_eq!(script.events().0, [1]);
    script.assert_dropped(DropReason::Duplicate, 1);
}

#[test]
fn the_loss_of_the_last_unit_is_found_by_a_session_message_and_by_anothers_request() {
    let state = SourceState { source: SOURCE, horizon: 0, next: 2 };
    for message in [session(vec![state]), request(SOURCE, 1, 1)] {
        let mut script = Script::new(config());
        with_data(0, |data| script.hear(data));
        script.hear(&message);
        let (_, sent) = script.next_sent(ms(1000)).unwrap();
        assert!(matches!(parse(&sent), Message::Request { .. }));
    }
}

#[test]
fn repairs_what_it_holds_between_d1_and_d1_plus_d2_distances() {
    for seed in 0..50 {
        let mut script = Script::drawing(config(), seed);
        with_data(0, |data| script.hear(data));
        script.hear(&request(SOURCE, 0, 1));
        let (at, message) = script.next_sent(ms(1000)).unwrap();
        within(at, ms(0), millis(20), millis(40));
        with_data(0, |data| {
            let Message::Data { payload: sent, .. } = data else { unreachable!() };
            let Message::Repair { sender, requester, distance, payload, .. } = parse(&message)
            else {
                panic!("{message:?}")
            };
            assert_eq!((sender, requester, distance), (ME, OTHER, millis(20)));
            assert_eq!(payload, *sent);
        });
    }
}

#[test]
fn does_not_repair_what_another_repairs_first() {
    let mut script = Script::new(config());
    with_data(0, |data| script.hear(data));
    script.hear(&request(SOURCE, 0, 1));
    script.now = ms(10);
    with_repair(0, OTHER, |repair| script.hear(repair));
    assert_eq!(script.next_sent(ms(1000)), None);
    script.assert_dropped(DropReason::Duplicate, 1);
}

#[test]
fn ignores_requests_for_three_distances_after_a_repair() {
    let mut script = Script::new(config());
    with_data(0, |data| script.hear(data));
    script.hear(&request(SOURCE, 0, 1));
    let (repaired, _) = script.next_sent(ms(1000)).unwrap();
    script.now = repaired + millis(59);
    script.hear(&request(SOURCE, 0, 1));
    assert_eq!(script.next_sent(repaired + millis(61)), None);
    script.assert_dropped(DropReason::HeldDown, 1);
    script.hear(&request(SOURCE, 0, 1));
    assert!(script.next_sent(ms(1000)).is_some());
}

#[test]
fn a_source_repairs_its_own_units_by_the_distance_that_is_claimed() {
    let mut script = Script::new(config());
    script.member.handle_command(ms(0), Command::Send(Bytes::from_static(b"mine"))).unwrap();
    assert!(matches!(parse(&script.sent()[0]), Message::Data { sequence: 0, .. }));
    let Message::Request { source, runs, distance, scope, .. } = request(ME, 0, 1) else {
        unreachable!()
    };
    // A requester never heard of before.
    script.hear(&Message::Request { sender: MemberId(99), source, runs, distance, scope });
    let (at, message) = script.next_sent(ms(1000)).unwrap();
    within(at, ms(0), millis(30), millis(60));
    assert!(matches!(parse(&message), Message::Repair { payload: b"mine", .. }));
}

#[test]
fn a_local_request_goes_few_hops_and_the_next_one_everywhere() {
    let mut script = with_a_gap(Script::new(Config { local_scope: Some(2), ..config() }));
    let scopes: Vec<Option<u8>> = (0..3)
        .map(|_| {
            let (_, message) = script.next_sent(ms(10_000)).unwrap();
            let Message::Request { scope, .. } = parse(&message) else { panic!("{message:?}") };
            scope
        })
        .collect();
    assert_eq!(scopes, [Some(2), None, None]);
}

#[test]
fn a_local_repair_is_passed_on_by_the_one_who_asked() {
    let mut script = with_a_gap(Script::new(Config { local_scope: Some(2), ..config() }));
    script.next_sent(ms(1000)).unwrap();
    let payload = content(Unit { source: SOURCE, sequence: 1 });
    let repair = |requester| Message::Repair {
        sender: OTHER,
        source: SOURCE,
        sequence: 1,
        requester,
        distance: millis(5),
        scope: Some(2),
        payload: &payload,
    };
    script.hear(&repair(ME));
    let (at, message) = script.next_sent(ms(1000)).unwrap();
    assert_eq!(at, script.now);
    let Message::Repair { sender, requester, scope, .. } = parse(&message) else {
        panic!("{message:?}")
    };
    assert_eq!((sender, requester, scope), (ME, ME, Some(2)));
    // Once is enough, and a bystander does not pass on repairs that others requested.
    script.hear(&repair(ME));
    assert_eq!(script.next_sent(ms(10_000)), None);
    let mut bystander = with_a_gap(Script::new(config()));
    bystander.hear(&repair(OTHER));
    assert_eq!(bystander.next_sent(ms(10_000)), None);
    script.assert_dropped(DropReason::Duplicate, 1);
}

#[test]
fn a_late_joiner_recovers_from_the_horizon_that_the_source_states() {
    let payload = content(Unit { source: SOURCE, sequence: 100 });
    let data = Message::Data { source: SOURCE, sequence: 100, horizon: 97, payload: &payload };
    let mut script = Script::new(config());
    script.hear(&data);
    let (_, message) = script.next_sent(ms(1000)).unwrap();
    let Message::Request { runs, .. } = parse(&message) else { panic!("{message:?}") };
    assert_eq!(runs, [UnitRun { first: 97, count: 3 }]);
    let mut script = Script::new(Config { recover_from_horizon: false, ..config() });
    script.hear(&data);
    assert_eq!(script.events().0, [100]);
    assert_eq!(script.next_sent(ms(1000)), None);
}

#[test]
fn what_lies_before_a_later_horizon_is_given_up() {
    let mut script = with_a_gap(Script::new(config()));
    let payload = content(Unit { source: SOURCE, sequence: 5 });
    let data = Message::Data { source: SOURCE, sequence: 5, horizon: 4, payload: &payload };
    script.hear(&data);
    assert_eq!(script.events().0, [0, 2]);
    let (_, message) = script.next_sent(ms(1000)).unwrap();
    let Message::Request { runs, .. } = parse(&message) else { panic!("{message:?}") };
    assert_eq!(runs, [UnitRun { first: 4, count: 1 }]);
    assert_eq!(script.member.stats().lost, 2);
}

#[test]
fn what_nobody_repairs_is_given_up_in_the_end() {
    let mut script =
        with_a_gap(Script::new(Config { give_up_after: Duration::from_secs(30), ..config() }));
    let mut requests = 0;
    while let Some((at, _)) = script.next_sent(ms(200_000)) {
        assert!(at < ms(40_000));
        requests += 1;
    }
    assert!((15..40).contains(&requests), "{requests} requests");
    assert_eq!(script.events().0, [0, 2]);
    assert_eq!((script.member.stats().lost, script.member.footprint().requests), (1, 0));
}

#[test]
fn adaptive_timers_of_the_one_who_always_asks_first_grow_shorter() {
    let mut script = Script::new(Config { adaptive: true, ..config() });
    with_data(0, |data| script.hear(data));
    for sequence in (1..40).step_by(2) {
        with_data(sequence + 1, |data| script.hear(data));
        script.next_sent(script.now + millis(1000)).unwrap();
        with_repair(sequence, ME, |repair| script.hear(repair));
    }
    let ((c1, _), _) = script.member.timer_intervals();
    assert!(c1 < 1.0, "{c1}");
}
