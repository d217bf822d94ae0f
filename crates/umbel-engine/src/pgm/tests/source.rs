use crate::{Allowance, RateClass, TransmitBuf};
use bytes::Bytes;

use super::*;
use crate::pgm::{Source, SourceCommand, SourceCommandError, SourceConfig};

fn source(wait_ms: u64) -> Tested<Source> {
    let config = SourceConfig {
        window_units: 4,
        queue_units: 8,
        wait: Duration::from_millis(wait_ms),
        ..SourceConfig::new(channel())
    };
    let mut source = Tested::new(Source::new(config), |source| source.drops().to_string());
    assert_eq!(sent(&mut source, ms(0)), [format!("spm 0..0 by {SOURCE}")]);
    source
}

fn send(source: &mut Source, now: Instant, units: u64) {
    for _ in 0..units {
        source.handle_command(now, SourceCommand::Send(Bytes::from_static(b"unit"))).unwrap();
        let next = source.next();
        assert_eq!(sent(source, now), [format!("odata {next}")]);
    }
}

#[test]
fn without_a_wait_each_nak_makes_a_retransmission() {
    let mut source = source(0);
    send(&mut source, ms(1), 2);
    for at in [10, 12] {
        told(&mut source, ms(at), ROUTER, &nak(0));
        assert_eq!(sent(&mut source, ms(at)), ["ncf 0", "rdata 0"]);
    }
    assert_eq!((source.stats().naks, source.stats().repairs), (2, 2));
}

#[test]
fn with_a_wait_the_naks_of_that_time_make_one() {
    let mut source = source(50);
    send(&mut source, ms(1), 1);
    for at in [10, 20, 59] {
        told(&mut source, ms(at), ROUTER, &nak(0));
        assert_eq!(sent(&mut source, ms(at)), ["ncf 0"]);
    }
    assert_eq!(source.poll_timeout(), Some(ms(60)));
    assert_eq!(sent(&mut source, ms(60)), ["rdata 0"]);
    told(&mut source, ms(61), ROUTER, &nak(0));
    assert_eq!(sent(&mut source, ms(61)), ["ncf 0"]);
    assert!(sent(&mut source, ms(111)).contains(&"rdata 0".to_owned()));
}

#[test]
fn what_waits_for_the_pacer_is_bounded_and_naks_are_answered_first() {
    let mut source = source(0);
    send(&mut source, ms(1), 1);
    for _ in 0..8 {
        source.handle_command(ms(2), SourceCommand::Send(Bytes::new())).unwrap();
    }
    let full = source.handle_command(ms(2), SourceCommand::Send(Bytes::new()));
    assert_eq!(full, Err(SourceCommandError::Full { waiting: 8 }));
    let long = source.handle_command(ms(2), SourceCommand::Send(vec![0; 65_001].into()));
    assert_eq!(long, Err(SourceCommandError::TooLong { len: 65_001 }));
    told(&mut source, ms(2), ROUTER, &nak(0));
    let mut buf = TransmitBuf::new(Allowance::data(0));
    assert!(source.poll_transmit(ms(2), &mut buf).is_some(), "confirmations are not paced");
    assert!(source.poll_transmit(ms(2), &mut buf).is_none() && source.wants(RateClass::Data));
    assert_eq!(sent(&mut source, ms(2))[..2], ["rdata 0", "odata 1"]);
}

#[test]
fn naks_out_of_the_window_are_counted_and_cost_nothing() {
    let mut source = source(0);
    send(&mut source, ms(1), 10);
    for sequence in [10, u64::MAX] {
        told(&mut source, ms(2), ROUTER, &nak(sequence));
    }
    told(&mut source, ms(2), ROUTER, &nak(5));
    told(&mut source, ms(2), ROUTER, &Message::Nak { channel: other_channel(), sequence: 9 });
    told(&mut source, ms(2), ROUTER, &rdata(9));
    hear(&mut source, ms(2), &nak(9));
    testing::give(&mut source, ms(2), Address::Host(host(ROUTER)), b"garbage");
    assert!(sent(&mut source, ms(2)).is_empty());
    source.assert_dropped("Unexpected 2, Malformed 1, OtherSession 1, FarAhead 2, Expired 1");
    told(&mut source, ms(3), ROUTER, &nak(6));
    assert_eq!(sent(&mut source, ms(3)), ["ncf 6", "rdata 6"]);
}

#[test]
fn heartbeats_get_rarer_until_there_is_data_again() {
    let mut source = source(0);
    send(&mut source, ms(1), 1);
    let mut at = Vec::new();
    for _ in 0..4 {
        let next = source.poll_timeout().unwrap();
        assert_eq!(sent(&mut source, next), [format!("spm 0..1 by {SOURCE}")]);
        at.push(next.as_nanos() / 1_000_000);
    }
    assert_eq!(at, [101, 201, 401, 801]);
    send(&mut source, ms(900), 1);
    assert_eq!(source.poll_timeout(), Some(ms(1_000)));
}
