use super::*;
use crate::Membership;
use crate::chance::generator;
use crate::pgm::{Receiver, ReceiverConfig, ReceiverEvent};
use crate::reliable::WindowLimits;

fn receiver(change: impl FnOnce(&mut ReceiverConfig)) -> Tested<Receiver> {
    let mut config = ReceiverConfig {
        nak_backoff: Duration::ZERO,
        window: WindowLimits { units: 16, ..WindowLimits::default() },
        ..ReceiverConfig::new(channel())
    };
    change(&mut config);
    let engine = Receiver::new(config, generator(1));
    let mut receiver = Tested::new(engine, |receiver| receiver.drops().to_string());
    assert_eq!(receiver.poll_membership(), Some(Membership::Join(channel())));
    assert_eq!(receiver.poll_membership(), None);
    receiver
}

/// Returns the delivered units and, as negative numbers, the counts of lost ones.
fn got(receiver: &mut Receiver) -> Vec<i64> {
    std::iter::from_fn(|| receiver.poll_event())
        .map(|event| match event {
            ReceiverEvent::Unit { sequence, payload } => {
                assert_eq!(payload, "unit");
                sequence as i64
            }
            ReceiverEvent::Lost { units } => -(units as i64),
        })
        .collect()
}

#[test]
fn asks_the_source_until_an_spm_names_a_router() {
    let mut receiver = receiver(|_| {});
    hear(&mut receiver, ms(0), &odata(4));
    hear(&mut receiver, ms(1), &odata(6));
    assert_eq!(sent(&mut receiver, ms(1)), [format!("nak 5 to {SOURCE}")]);
    assert_eq!(got(&mut receiver), [4]);
    hear(&mut receiver, ms(2), &spm(0, 8));
    assert_eq!(sent(&mut receiver, ms(2)), [format!("nak 7 to {ROUTER}")]);
    hear(&mut receiver, ms(3), &rdata(5));
    hear(&mut receiver, ms(3), &rdata(7));
    assert_eq!(got(&mut receiver), [5, 6, 7]);
    assert_eq!((receiver.stats().repaired, receiver.is_complete()), (2, true));
    assert_eq!(receiver.poll_timeout(), None);
}

#[test]
fn recovers_from_the_first_unit_that_it_wants() {
    let mut receiver = receiver(|config| config.first = Some(2));
    hear(&mut receiver, ms(0), &odata(4));
    let naks = [2, 3].map(|sequence| format!("nak {sequence} to {SOURCE}"));
    assert_eq!(sent(&mut receiver, ms(0)), naks);
}

#[test]
fn a_confirmation_in_the_back_off_takes_the_place_of_a_nak() {
    let mut receiver = receiver(|config| config.nak_backoff = Duration::from_millis(100));
    hear(&mut receiver, ms(0), &odata(0));
    hear(&mut receiver, ms(0), &odata(2));
    assert!(receiver.poll_timeout().is_some_and(|at| at > ms(0) && at <= ms(100)));
    hear(&mut receiver, ms(0), &ncf(1));
    assert!(sent(&mut receiver, ms(200)).is_empty());
    assert_eq!((receiver.stats().suppressed, receiver.stats().naks), (1, 0));
    // Without data it sends a NAK after all.
    assert_eq!(receiver.poll_timeout(), Some(ms(2_000)));
    receiver.handle_timeout(ms(2_000));
    assert_eq!(sent(&mut receiver, ms(2_100)), [format!("nak 1 to {SOURCE}")]);
}

#[test]
fn asks_again_without_confirmation_and_gives_up_in_the_end() {
    let mut receiver = receiver(|config| config.ncf_retries = 3);
    hear(&mut receiver, ms(0), &odata(0));
    hear(&mut receiver, ms(0), &odata(3));
    let mut naks = sent(&mut receiver, ms(0)).len();
    while let Some(at) = receiver.poll_timeout() {
        naks += sent(&mut receiver, at).len();
        assert!(at < ms(2_000));
    }
    assert_eq!(naks, 2 * 3);
    assert_eq!(got(&mut receiver), [0, -1, -1, 3]);
    // A retransmission is then too late.
    hear(&mut receiver, ms(2_000), &rdata(1));
    receiver.assert_dropped("Expired 1");
    assert!(got(&mut receiver).is_empty());
}

#[test]
fn gives_up_what_the_source_no_longer_has() {
    let mut receiver = receiver(|_| {});
    hear(&mut receiver, ms(0), &odata(0));
    hear(&mut receiver, ms(0), &odata(3));
    let trail = Message::Odata { sequence: 5, trail: 4, payload: b"unit" };
    hear(&mut receiver, ms(1), &trail);
    assert_eq!(got(&mut receiver), [0, -2, 3]);
    assert_eq!(sent(&mut receiver, ms(1)), [format!("nak 4 to {SOURCE}")]);
    assert_eq!(receiver.missing(), 1);
}

#[test]
fn absurd_numbers_and_strangers_are_dropped_and_counted() {
    let mut receiver = receiver(|_| {});
    hear(&mut receiver, ms(0), &odata(0));
    hear(&mut receiver, ms(0), &odata(u64::MAX));
    hear(&mut receiver, ms(0), &spm(0, u64::MAX));
    let far = Message::Odata { sequence: u64::MAX, trail: u64::MAX, payload: b"" };
    hear(&mut receiver, ms(0), &far);
    hear(&mut receiver, ms(0), &ncf(77));
    let by = Address::Channel(other_channel());
    testing::give(&mut receiver, ms(0), by, &bytes(&odata(1)));
    told(&mut receiver, ms(0), ROUTER, &odata(1));
    told(&mut receiver, ms(0), ROUTER, &nak(0));
    testing::give(&mut receiver, ms(0), by, b"Um\x01");
    // The longest possible gap costs no more than the window, which has no room for its end.
    hear(&mut receiver, ms(0), &odata(1_000_000));
    receiver.assert_dropped(
        "Unexpected 2, Malformed 1, OtherSession 1, FarAhead 3, NoRoom 1, NotAsked 1",
    );
    assert_eq!(receiver.missing(), 16);
    assert_eq!(sent(&mut receiver, ms(0)).len(), 16);
}

#[test]
fn a_designated_repairer_answers_what_it_holds_and_within_bounds() {
    let mut receiver = receiver(|config| config.designated = true);
    hear(&mut receiver, ms(0), &odata(0));
    told(&mut receiver, ms(1), ROUTER, &nak(0));
    told(&mut receiver, ms(1), ROUTER, &nak(1));
    let answers = [format!("ncf 0 to {ROUTER}"), format!("rdata 0 to {ROUTER}")];
    assert_eq!(sent(&mut receiver, ms(1)), answers);
    // A flood of many requesters.
    for port in 1..2_000 {
        told(&mut receiver, ms(2), &format!("10.0.0.9:{port}"), &nak(0));
    }
    receiver.assert_dropped("Expired 1, OverLimit 1487");
    assert!(sent(&mut receiver, ms(2)).len() <= 1_024);
}
