//! Single engines driven by scripts, whose exact output is asserted; each is [`Tested`]. Several
//! meet in [`world`].

mod world;

use std::net::SocketAddr;

use bytes::Bytes;
use umbel_wire::Parsed;
use umbel_wire::basep::Message;

use super::*;
use crate::testing::{self, Tested, channel, events, ms, other_channel, sent_by};
use crate::{Address, Engine, Instant, Membership, RateClass};

const ALICE: &str = "10.0.0.2:7702";
const BOB: &str = "10.0.0.3:7702";

fn host(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn give(engine: &mut impl Engine, by: Address, message: &Message<'_>) {
    let mut payload = Vec::new();
    message.emit(&mut payload);
    testing::give(engine, ms(0), by, &payload);
}

fn ack(source: &mut Source, from: &str, sequence: u64) {
    let message = Message::Ack { channel: channel(), sequence };
    give(source, Address::Host(host(from)), &message);
}

fn got_it(source: &mut Source, from: &str, sequence: u64) {
    let message = Message::GotIt { channel: channel(), sequence };
    give(source, Address::Host(host(from)), &message);
}

fn data(receiver: &mut Receiver, sequence: u64, last: bool, again: bool) {
    let message = Message::Data { sequence, last, again, payload: b"content" };
    give(receiver, Address::Channel(channel()), &message);
}

/// Returns the datagrams that an engine sends, in short.
fn sent(engine: &mut impl Engine, now: Instant) -> Vec<String> {
    let short = |(_, bytes): (Address, Vec<u8>)| {
        let Parsed::Message { message, .. } = Message::parse(&bytes).unwrap() else { panic!() };
        match message {
            Message::Data { sequence, again: false, .. } => format!("data {sequence}"),
            Message::Data { sequence, again: true, .. } => format!("again {sequence}"),
            Message::Ack { sequence, .. } => format!("ack {sequence}"),
            Message::GotIt { sequence, .. } => format!("got it {sequence}"),
        }
    };
    sent_by(engine, now).into_iter().map(short).collect()
}

/// Creates a source for two receivers with this number of packets to send.
fn source(packets: u64, change: impl FnOnce(&mut SourceConfig)) -> Tested<Source> {
    let mut config = SourceConfig::new(channel(), vec![host(ALICE), host(BOB)]);
    change(&mut config);
    let mut source = Tested::new(Source::new(config), |source| source.drops().to_string());
    for n in 1..=packets {
        send(&mut source, n == packets).unwrap();
    }
    source
}

fn send(source: &mut Source, last: bool) -> Result<(), SourceCommandError> {
    let payload = Bytes::from_static(b"content");
    source.handle_command(ms(0), SourceCommand::Send { payload, last })
}

#[test]
fn without_a_window_everything_leaves_at_once() {
    let mut source = source(4, |_| {});
    assert_eq!(sent(&mut source, ms(0)), ["data 0", "data 1", "data 2", "data 3"]);
    assert!(!source.wants(RateClass::Data));
    assert_eq!(source.poll_timeout(), Some(ms(2_000)));
}

#[test]
fn the_window_advances_when_all_have_acknowledged_its_first_packet() {
    let mut source = source(4, |config| config.window = Some(2));
    assert_eq!(sent(&mut source, ms(0)), ["data 0", "data 1"]);
    for (from, sequence) in [(ALICE, 1), (BOB, 1), (ALICE, 0)] {
        ack(&mut source, from, sequence);
        assert_eq!(sent(&mut source, ms(10)), [""; 0]);
    }
    ack(&mut source, BOB, 0);
    assert_eq!(sent(&mut source, ms(10)), ["data 2", "data 3"]);
}

#[test]
fn a_packet_that_one_did_not_acknowledge_is_sent_again_to_all_after_the_timeout() {
    let mut source = source(2, |_| {});
    sent(&mut source, ms(0));
    for (from, sequence) in [(ALICE, 0), (ALICE, 1), (BOB, 1)] {
        ack(&mut source, from, sequence);
    }
    assert_eq!(sent(&mut source, ms(1_999)), [""; 0]);
    assert_eq!(sent(&mut source, ms(2_000)), ["again 0"]);
    assert_eq!(sent(&mut source, ms(4_000)), ["again 0"]);
    ack(&mut source, BOB, 0);
    assert_eq!(source.poll_timeout(), None);
    let load = source.stats().load;
    assert_eq!((load.acks, load.nacks, load.timers, load.retransmissions), (4, 0, 2, 2));
    assert_eq!(source.stats().sent, 2);
}

#[test]
fn an_ack_that_comes_before_the_pacer_saves_the_retransmission() {
    let mut source = source(1, |_| {});
    sent(&mut source, ms(0));
    ack(&mut source, ALICE, 0);
    source.handle_timeout(ms(2_000));
    assert!(source.wants(RateClass::Data));
    ack(&mut source, BOB, 0);
    assert!(!source.wants(RateClass::Data));
    assert_eq!(sent(&mut source, ms(2_000)), [""; 0]);
}

#[test]
fn it_is_finished_when_all_have_acknowledged_each_packet() {
    for cumulative_got_it in [false, true] {
        let mut source = source(2, |config| config.cumulative_got_it = cumulative_got_it);
        sent(&mut source, ms(0));
        got_it(&mut source, ALICE, 0);
        assert_eq!(events(&mut source), [SourceEvent::GotIt { receiver: host(ALICE) }]);
        got_it(&mut source, ALICE, 0);
        ack(&mut source, BOB, 1);
        assert_eq!(events(&mut source), []);
        ack(&mut source, BOB, 0);
        if !cumulative_got_it {
            // The word of Alice's application is no ACK of a packet whose ACK was lost.
            assert_eq!(events(&mut source), []);
            assert_eq!(sent(&mut source, ms(2_000)), ["again 1"]);
            got_it(&mut source, ALICE, 1);
        }
        assert_eq!(events(&mut source), [SourceEvent::Finished]);
        // Late ACKs cost processing time, and nothing else.
        ack(&mut source, BOB, 0);
        assert_eq!(events(&mut source), []);
        assert_eq!(source.stats().load.acks, if cumulative_got_it { 5 } else { 6 });
    }
}

#[test]
fn receivers_that_never_answer_are_given_up() {
    let mut source = source(3, |config| {
        (config.window, config.retransmissions) = (Some(2), 2);
    });
    sent(&mut source, ms(0));
    for sequence in 0..2 {
        ack(&mut source, ALICE, sequence);
    }
    assert_eq!(sent(&mut source, ms(2_000)), ["again 0", "again 1"]);
    assert_eq!(sent(&mut source, ms(4_000)), ["again 0", "again 1"]);
    // The source waits for Bob no longer.
    assert_eq!(sent(&mut source, ms(6_000)), ["data 2"]);
    assert_eq!(events(&mut source), [SourceEvent::GivenUp { receiver: host(BOB) }]);
    got_it(&mut source, ALICE, 2);
    let done = [SourceEvent::GotIt { receiver: host(ALICE) }, SourceEvent::Finished];
    assert_eq!(events(&mut source), done);
    assert_eq!(source.poll_timeout(), None);
}

#[test]
fn without_receivers_there_is_nothing_to_wait_for() {
    let mut source = source(2, |config| config.receivers.clear());
    assert_eq!(sent(&mut source, ms(0)), ["data 0", "data 1"]);
    assert_eq!(events(&mut source), [SourceEvent::Finished]);
    assert_eq!(source.poll_timeout(), None);
}

#[test]
fn a_receiver_that_is_named_twice_acknowledges_once() {
    let mut source = source(1, |config| config.receivers = vec![host(ALICE); 2]);
    sent(&mut source, ms(0));
    ack(&mut source, ALICE, 0);
    assert_eq!(events(&mut source), [SourceEvent::Finished]);
}

#[test]
fn acks_that_make_no_sense_are_dropped_and_counted() {
    let mut source = source(3, |config| config.window = Some(2));
    sent(&mut source, ms(0));
    ack(&mut source, "10.0.0.9:7702", 0);
    ack(&mut source, ALICE, 2);
    ack(&mut source, ALICE, u64::MAX);
    // Packet 2 has not even left.
    got_it(&mut source, ALICE, 0);
    let message = Message::Ack { channel: other_channel(), sequence: 0 };
    give(&mut source, Address::Host(host(ALICE)), &message);
    let message = Message::Ack { channel: channel(), sequence: 0 };
    give(&mut source, Address::Channel(channel()), &message);
    let message = Message::Data { sequence: 0, last: false, again: false, payload: b"" };
    give(&mut source, Address::Host(host(ALICE)), &message);
    testing::give(&mut source, ms(0), Address::Host(host(ALICE)), b"garbage");
    let stats = source.stats();
    source.assert_dropped("Unexpected 2, Malformed 1, OtherSession 1, Stranger 1, FarAhead 3");
    assert_eq!(stats.load.total(), 0);
    assert_eq!(events(&mut source), []);
}

#[test]
fn commands_that_cannot_be_carried_out_change_nothing() {
    let mut source = source(0, |config| config.queue_packets = 2);
    let len = umbel_wire::basep::MAX_PAYLOAD + 1;
    let long = SourceCommand::Send { payload: vec![0; len].into(), last: false };
    assert_eq!(source.handle_command(ms(0), long), Err(SourceCommandError::TooLong { len }));
    send(&mut source, false).unwrap();
    send(&mut source, false).unwrap();
    assert_eq!(send(&mut source, true), Err(SourceCommandError::Full { waiting: 2 }));
    assert_eq!(sent(&mut source, ms(0)), ["data 0", "data 1"]);
    for (from, sequence) in [(ALICE, 0), (BOB, 0)] {
        ack(&mut source, from, sequence);
    }
    send(&mut source, true).unwrap();
    ack(&mut source, ALICE, 1);
    ack(&mut source, BOB, 1);
    assert_eq!(send(&mut source, false), Err(SourceCommandError::Ended { last: 2 }));
}

fn receiver() -> Tested<Receiver> {
    tested(ReceiverConfig::new(channel()))
}

fn tested(config: ReceiverConfig) -> Tested<Receiver> {
    let engine = Receiver::new(config);
    let mut receiver = Tested::new(engine, |receiver| receiver.drops().to_string());
    assert_eq!(receiver.poll_membership(), Some(Membership::Join(channel())));
    receiver
}

#[test]
fn each_packet_is_acknowledged_and_delivered_in_order() {
    let mut receiver = receiver();
    data(&mut receiver, 1, true, false);
    assert_eq!(sent(&mut receiver, ms(0)), ["ack 1"]);
    assert_eq!(events(&mut receiver), []);
    data(&mut receiver, 0, false, true);
    assert_eq!(sent(&mut receiver, ms(0)), ["got it 0"]);
    let packet = |sequence| ReceiverEvent::Packet { sequence, payload: "content".into() };
    assert_eq!(events(&mut receiver), [packet(0), packet(1), ReceiverEvent::Complete]);
    assert_eq!((receiver.stats().packets, receiver.stats().repaired), (2, 1));
}

#[test]
fn what_comes_again_is_acknowledged_again_and_not_delivered() {
    let mut receiver = receiver();
    data(&mut receiver, 0, true, false);
    sent(&mut receiver, ms(0));
    events(&mut receiver);
    data(&mut receiver, 0, true, true);
    assert_eq!(sent(&mut receiver, ms(0)), ["got it 0"]);
    assert_eq!(events(&mut receiver), []);
    receiver.assert_dropped("Duplicate 1");
}

#[test]
fn what_has_no_room_is_not_acknowledged() {
    let mut config = ReceiverConfig::new(channel());
    config.window.units = 2;
    let mut receiver = tested(config);
    for sequence in [2, 1] {
        data(&mut receiver, sequence, false, false);
    }
    data(&mut receiver, u64::MAX, false, false);
    assert_eq!(sent(&mut receiver, ms(0)), ["ack 1"]);
    receiver.assert_dropped("FarAhead 1, NoRoom 1");
}

#[test]
fn a_second_end_and_what_lies_beyond_the_end_are_refused() {
    let mut receiver = receiver();
    data(&mut receiver, 3, true, false);
    data(&mut receiver, 4, false, false);
    data(&mut receiver, 2, true, false);
    assert_eq!(sent(&mut receiver, ms(0)), ["ack 3"]);
    let mut late = self::receiver();
    data(&mut late, 3, false, false);
    data(&mut late, 2, true, false);
    assert_eq!(sent(&mut late, ms(0)), ["ack 3"]);
    receiver.assert_dropped("Contradiction 2");
    late.assert_dropped("Contradiction 1");
}

#[test]
fn an_end_at_the_greatest_number_is_far_ahead() {
    let mut receiver = receiver();
    data(&mut receiver, u64::MAX, true, false);
    assert_eq!(sent(&mut receiver, ms(0)), [""; 0]);
    receiver.assert_dropped("FarAhead 1");
}

#[test]
fn only_data_of_the_source_is_taken() {
    let mut receiver = receiver();
    let message = Message::Data { sequence: 0, last: false, again: false, payload: b"" };
    give(&mut receiver, Address::Channel(other_channel()), &message);
    give(&mut receiver, Address::Host(host(ALICE)), &message);
    let message = Message::Ack { channel: channel(), sequence: 0 };
    give(&mut receiver, Address::Channel(channel()), &message);
    testing::give(&mut receiver, ms(0), Address::Channel(channel()), b"garbage");
    assert_eq!(sent(&mut receiver, ms(0)), [""; 0]);
    receiver.assert_dropped("Unexpected 3, Malformed 1");
}
