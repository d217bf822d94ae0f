use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::chance::generator;
use crate::testing::{Tested, channel, events, give, host, ms, other_channel, sent, sent_by};

/// ISS of the scripted source, close to the wrap.
const ISS: Seq = Seq(u32::MAX - 1000);
const PORT: u16 = 50_001;

type Subject = Tested<Receiver>;

/// A segment that the receiver sent.
#[derive(Clone, Debug)]
struct Sent {
    head: Head,
    payload: Vec<u8>,
}

fn config() -> ReceiverConfig {
    ReceiverConfig { channel: Some(channel()), ..ReceiverConfig::new(host(1)) }
}

fn subject(config: ReceiverConfig) -> Subject {
    let receiver = Receiver::new(Arc::new(config), PORT, &mut generator(7));
    Tested::new(receiver, |receiver| receiver.drops().to_string())
}

fn parsed(all: Vec<(Address, Vec<u8>)>) -> Vec<Sent> {
    let parse = |(to, bytes): (Address, Vec<u8>)| {
        assert_eq!(to, Address::Host(host(1)));
        let Segment { head, payload } = Segment::parse(&bytes).unwrap();
        assert_eq!((head.source_port, head.destination_port), (PORT, 7702));
        Sent { head, payload: payload.to_vec() }
    };
    all.into_iter().map(parse).collect()
}

fn sends(subject: &mut Subject, at: u64) -> Vec<Sent> {
    parsed(sent_by(subject, ms(at)))
}

/// Returns a segment of the source at a position.
fn segment(position: u64, flags: Flags, ack: Seq, payload: &[u8]) -> Vec<u8> {
    let head = Head {
        source_port: 7702,
        destination_port: PORT,
        seq: ISS.plus(1 + position as u32),
        ack,
        flags: flags | Flags::ACK,
        window: u16::MAX,
        options: Options::default(),
    };
    let mut bytes = Vec::new();
    head.emit(&mut bytes);
    bytes.extend(payload);
    bytes
}

/// Returns the same on the channel.
fn on_channel(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes[2..4].copy_from_slice(&channel().port.to_be_bytes());
    bytes
}

/// Returns the SYN/ACK, with the membership option.
fn syn_ack(ack: Seq) -> Vec<u8> {
    let head = Head {
        source_port: 7702,
        destination_port: PORT,
        seq: ISS,
        ack,
        flags: Flags::SYN | Flags::ACK,
        window: u16::MAX,
        options: Options {
            mss: Some(1000),
            window_scale: Some(0),
            sack_permitted: true,
            membership: Some(umbel_wire::tcp::Membership::Port(channel().port)),
            ..Options::default()
        },
    };
    let mut bytes = Vec::new();
    head.emit(&mut bytes);
    bytes
}

/// Returns an ACK of the source with the membership option.
fn membership(ack: Seq) -> Vec<u8> {
    let head = Head {
        source_port: 7702,
        destination_port: PORT,
        seq: ISS.plus(1),
        ack,
        flags: Flags::ACK,
        window: u16::MAX,
        options: Options {
            membership: Some(umbel_wire::tcp::Membership::Port(channel().port)),
            ..Options::default()
        },
    };
    let mut bytes = Vec::new();
    head.emit(&mut bytes);
    bytes
}

/// Returns a receiver whose connection was opened at time 0 and acknowledged 10 ms later.
fn open(config: ReceiverConfig) -> Subject {
    let mut subject = subject(config);
    subject.handle_command(ms(0), ReceiverCommand::Connect).unwrap();
    let syn = sends(&mut subject, 0).remove(0).head;
    give(&mut subject, ms(10), Address::Host(host(1)), &syn_ack(syn.seq.plus(1)));
    let ack = sends(&mut subject, 10).remove(0).head;
    assert_eq!((ack.seq, ack.ack), (syn.seq.plus(1), ISS.plus(1)));
    assert_eq!(events(&mut *subject), [ReceiverEvent::Connected]);
    let _ = subject.poll_membership();
    subject
}

fn data(subject: &mut Subject, at: u64, position: u64, payload: &[u8]) {
    let bytes = segment(position, Flags::PSH, subject.out.una, payload);
    give(subject, ms(at), Address::Host(host(1)), &bytes);
}

fn multicast(subject: &mut Subject, at: u64, position: u64, payload: &[u8]) {
    let bytes = on_channel(segment(position, Flags::PSH, Seq(0), payload));
    give(subject, ms(at), Address::Channel(channel()), &bytes);
}

/// Returns the bytes received since the last call.
fn received(subject: &mut Subject) -> Vec<u8> {
    let bytes = |event| match event {
        ReceiverEvent::Received(bytes) => bytes,
        other => panic!("{other:?}"),
    };
    events(&mut **subject).into_iter().flat_map(bytes).collect()
}

#[test]
fn an_instance_takes_a_few_hundred_bytes() {
    assert!(size_of::<Receiver>() <= 640, "{}", size_of::<Receiver>());
}

#[test]
fn it_subscribes_and_then_connects() {
    let mut subject = subject(config());
    subject.handle_command(ms(0), ReceiverCommand::Connect).unwrap();
    assert_eq!(subject.poll_membership(), Some(Membership::Join(channel())));
    let syn = sends(&mut subject, 0).remove(0).head;
    let options = Options {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        ..Options::default()
    };
    assert_eq!((syn.flags, syn.options), (Flags::SYN, options));
    let again = subject.handle_command(ms(0), ReceiverCommand::Connect);
    assert_eq!(again, Err(ReceiverCommandError::Opened));
}

#[test]
fn syn_is_sent_again_with_back_off_until_it_gives_up() {
    let mut subject = subject(config());
    subject.handle_command(ms(0), ReceiverCommand::Connect).unwrap();
    let _ = subject.poll_membership();
    let mut times = Vec::new();
    let mut now = 0;
    loop {
        times.extend(sends(&mut subject, now).iter().map(|_| now / 1000));
        let Some(next) = subject.poll_timeout() else { break };
        now = next.as_nanos() / 1_000_000;
    }
    assert_eq!(times, [0, 1, 3, 7, 15, 31, 63, 123]);
    assert_eq!(events(&mut *subject), [ReceiverEvent::Broken(BreakReason::TimedOut)]);
    assert_eq!(subject.poll_membership(), Some(Membership::Leave(channel())));
}

#[test]
fn a_wrong_answer_to_syn_is_reset_and_a_right_rst_refuses() {
    let mut subject = subject(config());
    subject.handle_command(ms(0), ReceiverCommand::Connect).unwrap();
    let syn = sends(&mut subject, 0).remove(0).head;
    give(&mut subject, ms(1), Address::Host(host(1)), &syn_ack(syn.seq.plus(9)));
    let rst = sends(&mut subject, 1).remove(0).head;
    assert_eq!((rst.flags, rst.seq), (Flags::RST, syn.seq.plus(9)));
    let refusal = segment(0, Flags::RST, syn.seq.plus(1), b"");
    give(&mut subject, ms(2), Address::Host(host(1)), &refusal);
    assert_eq!(events(&mut *subject), [ReceiverEvent::Broken(BreakReason::Refused)]);
    subject.assert_dropped("NoConnection 1");
}

#[test]
fn every_second_segment_is_acknowledged_or_after_40_ms() {
    let mut subject = open(config());
    data(&mut subject, 20, 0, &[1; 1000]);
    assert!(sends(&mut subject, 20).is_empty());
    multicast(&mut subject, 21, 1000, &[2; 1000]);
    assert_eq!(sends(&mut subject, 21)[0].head.ack, ISS.plus(2001));
    data(&mut subject, 30, 2000, &[3; 10]);
    assert!(sends(&mut subject, 69).is_empty());
    assert_eq!(sends(&mut subject, 70)[0].head.ack, ISS.plus(2011));
    assert_eq!(subject.poll_timeout(), None);
    assert_eq!(received(&mut subject).len(), 2010);
    assert_eq!((subject.stats().multicast, subject.stats().unicast), (1, 3));
}

#[test]
fn fewer_acks_if_configured() {
    let mut subject = open(ReceiverConfig { ack_every: 4, ..config() });
    let mut acks = 0;
    for n in 0..16 {
        multicast(&mut subject, 20 + n, n * 1000, &[1; 1000]);
        events(&mut *subject);
        subject.handle_command(ms(20 + n), ReceiverCommand::Consumed(1000)).unwrap();
        acks += sends(&mut subject, 20 + n).len();
    }
    assert_eq!(acks, 4);
}

#[test]
fn out_of_order_data_is_reported_at_once_with_the_latest_block_first() {
    let mut subject = open(config());
    let blocks = |sent: Vec<Sent>| -> Vec<(i32, i32)> {
        assert_eq!(sent.len(), 1);
        let base = ISS.plus(1);
        let sack = sent[0].head.options.sack;
        sack.as_slice().iter().map(|(l, r)| (l.since(base), r.since(base))).collect()
    };
    multicast(&mut subject, 20, 100, &[1; 100]);
    assert_eq!(blocks(sends(&mut subject, 20)), [(100, 200)]);
    multicast(&mut subject, 20, 500, &[5; 100]);
    assert_eq!(blocks(sends(&mut subject, 20)), [(500, 600), (100, 200)]);
    multicast(&mut subject, 20, 300, &[3; 100]);
    assert_eq!(blocks(sends(&mut subject, 20)), [(300, 400), (500, 600), (100, 200)]);
    data(&mut subject, 20, 200, &[2; 100]);
    assert_eq!(blocks(sends(&mut subject, 20)), [(100, 400), (500, 600)]);
    // A hole is filled.
    data(&mut subject, 20, 0, &[0; 100]);
    assert_eq!(blocks(sends(&mut subject, 20)), [(500, 600)]);
    data(&mut subject, 20, 400, &[4; 100]);
    assert!(blocks(sends(&mut subject, 20)).is_empty());
    let bytes: Vec<u8> = (0..6).flat_map(|n| [n; 100]).collect();
    assert_eq!(received(&mut subject), bytes);
}

#[test]
fn the_helper_delivers_only_what_the_connection_takes() {
    let mut subject = subject(config());
    subject.handle_command(ms(0), ReceiverCommand::Connect).unwrap();
    let syn = sends(&mut subject, 0).remove(0).head;
    multicast(&mut subject, 1, 0, b"early");
    give(&mut subject, ms(10), Address::Host(host(1)), &syn_ack(syn.seq.plus(1)));
    sends(&mut subject, 10);
    events(&mut *subject);
    let mut bytes = on_channel(segment(0, Flags::PSH, Seq(0), b"other stream"));
    bytes[3] += 1;
    give(&mut subject, ms(11), Address::Channel(channel()), &bytes);
    give(&mut subject, ms(11), Address::Channel(other_channel()), &bytes);
    data(&mut subject, 12, 0, b"mine");
    multicast(&mut subject, 13, 0, b"mine");
    multicast(&mut subject, 13, 300_000, b"beyond the window");
    assert_eq!(received(&mut subject), b"mine");
    assert!(sends(&mut subject, 13).is_empty());
    subject.assert_dropped("Unexpected 1, NotReady 1, NotMember 1, Stale 1, OutOfWindow 1");
}

#[test]
fn without_a_helper_nothing_comes_by_multicast() {
    let mut subject = open(config());
    subject.handle_command(ms(15), ReceiverCommand::Help(false)).unwrap();
    multicast(&mut subject, 20, 0, b"x");
    subject.handle_command(ms(25), ReceiverCommand::Help(true)).unwrap();
    // A new helper knows no connection until the source tells it.
    multicast(&mut subject, 30, 0, b"x");
    let ack = membership(subject.out.una);
    give(&mut subject, ms(40), Address::Host(host(1)), &ack);
    multicast(&mut subject, 50, 0, b"y");
    assert_eq!(received(&mut subject), b"y");
    subject.assert_dropped("NotReady 1, NotMember 1");
}

#[test]
fn what_was_received_before_is_acknowledged_again() {
    let mut subject = open(config());
    data(&mut subject, 20, 0, &[1; 100]);
    data(&mut subject, 21, 0, &[9; 100]);
    let acks = sends(&mut subject, 21);
    assert_eq!((acks.len(), acks[0].head.ack), (1, ISS.plus(101)));
    // A probe of keep-alive.
    let probe = segment(99, Flags::default(), subject.out.una, b"");
    give(&mut subject, ms(22), Address::Host(host(1)), &probe);
    assert_eq!(sends(&mut subject, 22).len(), 1);
    assert_eq!(received(&mut subject), [1; 100]);
    subject.assert_dropped("Duplicate 2");
}

#[test]
fn the_window_closes_and_opens_with_the_application() {
    let mut subject = open(ReceiverConfig { buffer: 4000, window_scale: None, ..config() });
    for n in 0..5 {
        data(&mut subject, 20 + n, n * 1000, &[n as u8; 1000]);
    }
    let last = sends(&mut subject, 30).pop().unwrap().head;
    assert_eq!((last.ack, last.window), (ISS.plus(4001), 0));
    assert_eq!(received(&mut subject).len(), 4000);
    subject.handle_command(ms(40), ReceiverCommand::Consumed(100)).unwrap();
    // Too little to tell exactly, but no longer nothing.
    assert_eq!(sends(&mut subject, 40)[0].head.window, 0);
    subject.handle_command(ms(41), ReceiverCommand::Consumed(1900)).unwrap();
    assert_eq!(sends(&mut subject, 41)[0].head.window, 2000);
    data(&mut subject, 50, 4000, &[7; 1000]);
    assert_eq!(received(&mut subject), [7; 1000]);
    subject.assert_dropped("OutOfWindow 1");
}

#[test]
fn real_time_mode_skips_a_hole_and_acknowledges_past_it() {
    let mut subject =
        open(ReceiverConfig { real_time: Some(Duration::from_millis(200)), ..config() });
    multicast(&mut subject, 100, 10, b"cd");
    multicast(&mut subject, 150, 14, b"gh");
    assert_eq!(sends(&mut subject, 299).last().unwrap().head.ack, ISS.plus(1));
    assert!(events(&mut *subject).is_empty());
    assert_eq!(sends(&mut subject, 300)[0].head.ack, ISS.plus(13));
    let got = |n, bytes: &'static [u8]| {
        [ReceiverEvent::Skipped(n), ReceiverEvent::Received(Bytes::from_static(bytes))]
    };
    assert_eq!(events(&mut *subject), got(10, b"cd"));
    // The second hole is younger.
    assert!(sends(&mut subject, 349).is_empty());
    assert_eq!(sends(&mut subject, 350)[0].head.ack, ISS.plus(17));
    assert_eq!(events(&mut *subject), got(2, b"gh"));
    // Late segments are late.
    data(&mut subject, 360, 0, b"0123456789");
    assert!(events(&mut *subject).is_empty());
    // The end of the stream is behind a hole.
    let fin = segment(20, Flags::FIN, subject.out.una, b"");
    give(&mut subject, ms(400), Address::Host(host(1)), &fin);
    sends(&mut subject, 599);
    assert_eq!(sends(&mut subject, 600)[0].head.ack, ISS.plus(22));
    assert_eq!(events(&mut *subject), [ReceiverEvent::Skipped(4), ReceiverEvent::ReceivedEnd]);
    assert_eq!(subject.stats().skipped_bytes, 16);
    subject.assert_dropped("Duplicate 1");
}

#[test]
fn the_source_finishes_first() {
    let mut subject = open(config());
    let fin = on_channel(segment(0, Flags::FIN, Seq(0), b"all"));
    give(&mut subject, ms(20), Address::Channel(channel()), &fin);
    assert_eq!(sends(&mut subject, 20)[0].head.ack, ISS.plus(5));
    let all = [ReceiverEvent::Received(Bytes::from_static(b"all")), ReceiverEvent::ReceivedEnd];
    assert_eq!(events(&mut *subject), all);
    subject.handle_command(ms(30), ReceiverCommand::Finish).unwrap();
    let end = sends(&mut subject, 30).remove(0).head;
    assert!(end.flags.has(Flags::FIN));
    let ack = segment(4, Flags::default(), end.seq.plus(1), b"");
    give(&mut subject, ms(40), Address::Host(host(1)), &ack);
    assert_eq!(events(&mut *subject), [ReceiverEvent::Closed]);
    assert_eq!(subject.poll_membership(), Some(Membership::Leave(channel())));
    assert_eq!((subject.poll_timeout(), sends(&mut subject, 40).len()), (None, 0));
}

#[test]
fn the_receiver_finishes_first_and_waits() {
    let mut subject = open(config());
    subject.handle_command(ms(20), ReceiverCommand::Finish).unwrap();
    let end = sends(&mut subject, 20).remove(0).head;
    // Half closed, it goes on receiving.
    let bytes = segment(0, Flags::PSH, end.seq.plus(1), b"more");
    give(&mut subject, ms(30), Address::Host(host(1)), &bytes);
    assert_eq!(received(&mut subject), b"more");
    let fin = segment(4, Flags::FIN, end.seq.plus(1), b"");
    give(&mut subject, ms(40), Address::Host(host(1)), &fin);
    assert_eq!(sends(&mut subject, 40)[0].head.ack, ISS.plus(6));
    assert_eq!(events(&mut *subject), [ReceiverEvent::ReceivedEnd, ReceiverEvent::Closed]);
    // The ACK was lost.
    give(&mut subject, ms(300), Address::Host(host(1)), &fin);
    assert_eq!(sends(&mut subject, 300)[0].head.ack, ISS.plus(6));
    assert_eq!(subject.poll_timeout(), Some(ms(60_040)));
    subject.handle_timeout(ms(60_040));
    assert_eq!(subject.poll_timeout(), None);
    give(&mut subject, ms(70_000), Address::Host(host(1)), &fin);
    assert_eq!(sends(&mut subject, 70_000)[0].head.flags, Flags::RST);
    subject.assert_dropped("NoConnection 1, Duplicate 1");
}

#[test]
fn the_back_channel_sends_again_what_was_lost() {
    let mut subject = open(config());
    let request: Vec<u8> = (0..2500).map(|n| n as u8).collect();
    subject.handle_command(ms(20), ReceiverCommand::Send(request.clone().into())).unwrap();
    let all = sends(&mut subject, 20);
    assert_eq!(all.iter().map(|sent| sent.payload.len()).collect::<Vec<_>>(), [1000, 1000, 500]);
    assert_eq!(all.iter().flat_map(|sent| sent.payload.clone()).collect::<Vec<_>>(), request);
    // The first was received; the RTO is 200 ms.
    let ack = segment(0, Flags::default(), all[1].head.seq, b"");
    give(&mut subject, ms(30), Address::Host(host(1)), &ack);
    assert!(sends(&mut subject, 229).is_empty());
    let again = sends(&mut subject, 230);
    assert_eq!(again[0].payload, request[1000..2000]);
    assert_eq!(again.len(), 2);
    let ack = segment(0, Flags::default(), all[2].head.seq.plus(500), b"");
    give(&mut subject, ms(240), Address::Host(host(1)), &ack);
    assert_eq!((subject.poll_timeout(), subject.stats().sent_again), (None, 2));
    let far = segment(0, Flags::default(), all[2].head.seq.plus(501), b"");
    give(&mut subject, ms(241), Address::Host(host(1)), &far);
    assert_eq!(sends(&mut subject, 241).len(), 1);
    let much = vec![0; 64 << 10];
    subject.handle_command(ms(250), ReceiverCommand::Send(much.clone().into())).unwrap();
    let full = subject.handle_command(ms(250), ReceiverCommand::Send(much.into()));
    assert_eq!(full, Err(ReceiverCommandError::Full { room: 0 }));
    subject.assert_dropped("FarAhead 1");
}

#[test]
fn a_closed_window_of_the_source_is_probed() {
    let mut subject = open(config());
    let window = |ack, window: u16| {
        let mut bytes = segment(0, Flags::default(), ack, b"");
        bytes[14..16].copy_from_slice(&window.to_be_bytes());
        bytes
    };
    let una = subject.out.una;
    give(&mut subject, ms(20), Address::Host(host(1)), &window(una, 0));
    subject.handle_command(ms(20), ReceiverCommand::Send(Bytes::from_static(b"abc"))).unwrap();
    assert!(sends(&mut subject, 20).is_empty());
    let _ = sends(&mut subject, 20);
    give(&mut subject, ms(21), Address::Host(host(1)), &window(una, 0));
    let due = subject.poll_timeout().unwrap().as_nanos() / 1_000_000;
    assert_eq!(sends(&mut subject, due)[0].payload, b"a");
    give(&mut subject, ms(due + 1), Address::Host(host(1)), &window(una.plus(1), 9));
    assert_eq!(sends(&mut subject, due + 1)[0].payload, b"bc");
}

#[test]
fn resets_are_exact_or_challenged() {
    let mut subject = open(config());
    let rst = |position| segment(position, Flags::RST, Seq(0), b"");
    give(&mut subject, ms(20), Address::Host(host(1)), &rst(5));
    assert_eq!(sends(&mut subject, 20).len(), 1);
    give(&mut subject, ms(20), Address::Host(host(1)), &segment(0, Flags::SYN, Seq(0), b""));
    assert_eq!(sends(&mut subject, 20).len(), 1);
    give(&mut subject, ms(21), Address::Host(host(1)), &rst(0));
    assert_eq!(events(&mut *subject), [ReceiverEvent::Broken(BreakReason::Reset)]);
    let write = subject.handle_command(ms(22), ReceiverCommand::Send(Bytes::new()));
    assert_eq!(write, Err(ReceiverCommandError::NotConnected));
    subject.assert_dropped("Challenged 2");
}

#[test]
fn an_application_can_reset_it() {
    let mut subject = open(config());
    subject.handle_command(ms(20), ReceiverCommand::Abort).unwrap();
    assert_eq!(sends(&mut subject, 20)[0].head.flags, Flags::RST);
    assert_eq!(events(&mut *subject), [ReceiverEvent::Broken(BreakReason::Aborted)]);
}

#[test]
fn what_is_no_segment_is_dropped() {
    let mut subject = open(config());
    give(&mut subject, ms(20), Address::Host(host(1)), b"no segment");
    give(&mut subject, ms(20), Address::Host(host(2)), &segment(0, Flags::PSH, Seq(0), b"x"));
    let mut other = segment(0, Flags::PSH, Seq(0), b"x");
    other[3] ^= 1;
    give(&mut subject, ms(20), Address::Host(host(1)), &other);
    assert!(sent(&mut *subject, ms(20)).is_empty());
    subject.assert_dropped("Unexpected 1, Malformed 1, OtherSession 1");
}

proptest! {
    #[test]
    fn pieces_in_any_order_make_the_stream(
        pieces in prop::collection::vec((0_u64..2800, 1_usize..400, any::<bool>()), 0..60),
    ) {
        let stream: Vec<u8> = (0..3200_u32).map(|n| (n * 7 % 251) as u8).collect();
        let mut subject = open(config());
        let mut has = vec![false; 3201];
        let mut got = Vec::new();
        for (at, len, by_channel) in pieces {
            let piece = &stream[at as usize..at as usize + len];
            has[at as usize..at as usize + len].fill(true);
            if by_channel {
                multicast(&mut subject, 20, at, piece);
            } else {
                data(&mut subject, 20, at, piece);
            }
            got.extend(received(&mut subject));
            let in_order = has.iter().position(|has| !has).unwrap();
            prop_assert_eq!(&got[..], &stream[..in_order]);
            for sent in sends(&mut subject, 20) {
                prop_assert_eq!(sent.head.ack, ISS.plus(1 + in_order as u32));
                for (left, right) in sent.head.options.sack.as_slice() {
                    let left = left.since(ISS.plus(1)) as usize;
                    let right = right.since(ISS.plus(1)) as usize;
                    if right <= in_order {
                        // A duplicate.
                        prop_assert_eq!((left, right - left), (at as usize, len));
                        continue;
                    }
                    prop_assert!(left > in_order && has[left..right].iter().all(|has| *has));
                    prop_assert!(!has[left - 1] && !has[right]);
                }
            }
        }
        let drops = subject.drops().to_string();
        subject.assert_dropped(&drops);
    }

    #[test]
    fn no_segments_make_it_fail(
        segments in prop::collection::vec(
            (any::<i16>(), any::<u8>(), any::<i8>(), 0_usize..40, any::<bool>(), any::<u16>()),
            0..40,
        ),
    ) {
        let real_time = Some(Duration::from_millis(30));
        let mut subject = open(ReceiverConfig { real_time, buffer: 9000, ..config() });
        let _ = subject.handle_command(ms(10), ReceiverCommand::Send(vec![1; 5000].into()));
        for (n, (at, flags, ack, len, by_channel, window)) in segments.into_iter().enumerate() {
            let ack = subject.out.una.plus(ack as u32);
            let mut bytes = segment(0, Flags(flags & 0x17), ack, &vec![9; len * 37]);
            bytes[4..8].copy_from_slice(&ISS.plus(at as u32).0.to_be_bytes());
            bytes[14..16].copy_from_slice(&window.to_be_bytes());
            let by = if by_channel { Address::Channel(channel()) } else { Address::Host(host(1)) };
            let bytes = if by_channel { on_channel(bytes) } else { bytes };
            let now = 20 + n as u64 * 5;
            give(&mut subject, ms(now), by, &bytes);
            prop_assert!(sends(&mut subject, now).len() < 20);
            for event in events(&mut *subject) {
                if let ReceiverEvent::Received(bytes) = event {
                    let consumed = ReceiverCommand::Consumed(bytes.len());
                    subject.handle_command(ms(now), consumed).unwrap();
                }
            }
        }
        let drops = subject.drops().to_string();
        subject.assert_dropped(&drops);
    }
}
