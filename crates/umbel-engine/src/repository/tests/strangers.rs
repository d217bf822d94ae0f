//! Messages of clients without a token, and of hosts that are no clients.

use std::net::Ipv4Addr;
use std::time::Duration;

use umbel_wire::alc::DataHeader;
use umbel_wire::reception::ChannelStamp;
use umbel_wire::repository::{Announcement, ClientMessage, GroupKey, Need, NeedRun, ServerMessage};
use umbel_wire::{Scheme, Toi, Tsi};

use super::content::{MemorySink, MemorySource, SYMBOL};
use super::host::{Forged, Forger, World, channel, config};
use super::{MINUTE, objects, say};
use crate::chance::generator;
use crate::repository::config::ReceiverConfig;
use crate::repository::drops::DropReason;
use crate::repository::receiver::{Held, Receiver, ReceiverCommand, ReceiverEvent};
use crate::repository::source::{Source, SourceCommand, SourceEvent};
use crate::symbols::BlockId;
use crate::{Address, Allowance, Datagram, Engine, Instant, SessionId, TransmitBuf};

#[test]
fn a_session_is_one_guess_of_the_token_and_nothing_more_is_heard_of_a_wrong_one() {
    let mut config = config();
    config.token = Some("secret".to_owned().into());
    let mut source = Source::new(config, generator(1), MemorySource::default());
    let (guesser, knower) = (SessionId(1), SessionId(2));
    let hello =
        |token: &str| ClientMessage::Hello { agent: String::new(), token: Some(token.to_owned()) };
    for session in [guesser, knower] {
        let opened = SourceCommand::SessionOpened {
            session,
            remote: Ipv4Addr::LOCALHOST.into(),
            rtt: Duration::from_millis(1),
        };
        source.handle_command(Instant::EPOCH, opened).unwrap();
    }
    for guess in 0..100 {
        say(&mut source, guesser, &hello(&format!("guess {guess}")));
    }
    say(&mut source, guesser, &hello("secret"));
    say(&mut source, guesser, &ClientMessage::Digests { toi: Toi(1) });
    let event = source.poll_event();
    let Some(SourceEvent::CloseSession { session, guess: true, .. }) = event else {
        panic!("{event:?}")
    };
    assert_eq!((session, source.poll_event().is_none()), (guesser, true));
    assert_eq!(source.drops().of(DropReason::NotAdmitted), 101);
    say(&mut source, knower, &hello("secret"));
    say(&mut source, knower, &ClientMessage::Digests { toi: Toi(1) });
    assert!(
        matches!(source.poll_event(), Some(SourceEvent::Digests { session, .. }) if session == knower)
    );
}

#[test]
fn clients_that_never_say_hello_are_closed_after_five_seconds_and_others_are_not() {
    let mut source = Source::new(config(), generator(1), MemorySource::default());
    let at = |ms: u64| Instant::EPOCH + Duration::from_millis(ms);
    for id in 0..1_000 {
        let (session, rtt) = (SessionId(id), Duration::from_millis(1));
        source
            .handle_command(
                at(id),
                SourceCommand::SessionOpened { session, remote: Ipv4Addr::LOCALHOST.into(), rtt },
            )
            .unwrap();
    }
    say(&mut source, SessionId(500), &ClientMessage::Hello { agent: String::new(), token: None });
    source
        .handle_command(at(1_000), SourceCommand::SessionClosed { session: SessionId(7) })
        .unwrap();
    assert_eq!(source.poll_timeout(), Some(at(5_000)));
    source.handle_timeout(at(4_999));
    assert!(source.poll_event().is_none());
    source.handle_timeout(at(6_000));
    let closed = std::iter::from_fn(|| source.poll_event()).map(|event| match event {
        SourceEvent::CloseSession { session, guess: false, .. } => session.0,
        other => panic!("{other:?}"),
    });
    let expected: Vec<u64> = (0..1_000).filter(|id| ![7, 500].contains(id)).collect();
    assert_eq!(closed.collect::<Vec<_>>(), expected);
    assert_eq!(source.poll_timeout(), None);
}

/// Creates a client that wants item 1, of 40 symbols, and hears the data channel of server 7.
pub(super) fn client_of_one_item(keys: Vec<GroupKey>) -> (Receiver<MemorySink>, Toi) {
    let (session, toi) = (SessionId(1), Toi(1));
    let mut client = Receiver::new(ReceiverConfig::default(), generator(1), MemorySink::default());
    let oti = objects(1, 40)[0].oti;
    client.sink_mut().add(toi, oti);
    let now = Instant::EPOCH;
    client.handle_command(now, ReceiverCommand::Connected { session }).unwrap();
    let welcome = ServerMessage::Welcome {
        agent: String::new(),
        tsi: Tsi(7),
        channels: vec![channel()],
        rate_bits_per_s: 1_000_000,
        control: None,
        keys,
    };
    tell_client(&mut client, now, &welcome);
    let held = Held::default();
    let accept = ReceiverCommand::Accept { toi, oti, held, requested: true };
    client.handle_command(now, accept).unwrap();
    (client, toi)
}

fn tell_client(client: &mut Receiver<MemorySink>, now: Instant, message: &ServerMessage) {
    let mut payload = Vec::new();
    message.emit(&mut payload);
    let by = Address::Session(SessionId(1));
    client.handle_datagram(now, Datagram { by, hop_limit: None, payload: &payload });
}

/// Returns the announcement that a transmission of the whole item begins now.
fn announcement(toi: Toi) -> ServerMessage {
    let announcement =
        Announcement { transmission: 1, toi, channel: 0, first_block: 0, blocks: 2, packets: 40 };
    ServerMessage::Announce {
        rate_bits_per_s: 1_000_000,
        starts_in: Duration::ZERO,
        nak_spread: Duration::ZERO,
        announcements: vec![announcement],
    }
}

/// Returns a data packet of an item and a transmission, with a symbol of a block.
pub(super) fn packet_of(item: (Toi, u32), symbol: (u32, u32)) -> Vec<u8> {
    packet_with(item, symbol, 7)
}

fn packet_with((toi, transmission): (Toi, u32), (sbn, esi): (u32, u32), byte: u8) -> Vec<u8> {
    let scheme = Scheme::ReedSolomon;
    let header = DataHeader {
        tsi: Tsi(7),
        toi,
        transmission,
        index: 0,
        stamp: ChannelStamp::default(),
        scheme,
        sbn,
        esi,
    };
    [&header.emit().unwrap()[..], &[byte; SYMBOL as usize]].concat()
}

/// Lets a client hear a data packet, genuine or not.
fn hear(client: &mut Receiver<MemorySink>, now: Instant, item: (Toi, u32), symbol: (u32, u32)) {
    let packet = packet_of(item, symbol);
    let by = Address::Channel(channel());
    client.handle_datagram(now, Datagram { by, hop_limit: None, payload: &packet });
}

/// Returns what a client says.
fn said(client: &mut Receiver<MemorySink>, now: Instant) -> Vec<ClientMessage> {
    let mut said = Vec::new();
    let mut buf = TransmitBuf::default();
    while client.poll_transmit(now, &mut buf).is_some() {
        said.extend(
            buf.messages().filter_map(|bytes| ClientMessage::parse(&bytes).ok()?.message()),
        );
        buf.reset(Allowance::data(0));
    }
    said
}

#[test]
fn no_packet_but_that_of_its_own_probe_leads_a_client_back_to_multicast() {
    let (mut client, toi) = client_of_one_item(Vec::new());
    let mut now = Instant::EPOCH;
    tell_client(&mut client, now, &announcement(toi));
    let probe = loop {
        now = client.poll_timeout().expect("a probe comes");
        client.handle_timeout(now);
        let mut said = said(&mut client, now).into_iter();
        let probe = said.find_map(|message| match message {
            ClientMessage::Probe { probe, .. } => Some(probe),
            _ => None,
        });
        if let Some(probe) = probe {
            break probe;
        }
    };
    let back = |client: &mut Receiver<MemorySink>| {
        let mut events = std::iter::from_fn(|| client.poll_event());
        events.any(|event| matches!(event, ReceiverEvent::MulticastBack))
    };
    assert!(!back(&mut client));
    for forged in 0..1_000 {
        hear(&mut client, now, (toi, forged), (0, forged % 8));
        hear(&mut client, now, (Toi::PROBE, probe.wrapping_add(1 + forged)), (0, 0));
        hear(&mut client, now, (Toi(99), forged), (0, 0));
    }
    assert!(!back(&mut client));
    hear(&mut client, now, (Toi::PROBE, probe), (0, 0));
    assert!(back(&mut client));
}

#[test]
fn a_block_that_is_damaged_again_comes_on_the_session_and_the_rest_does_not() {
    let (mut client, toi) = client_of_one_item(Vec::new());
    let now = Instant::EPOCH;
    said(&mut client, now);
    for damage in 1..=20 {
        for esi in 0..20 {
            hear(&mut client, now, (toi, 1), (0, esi));
        }
        client.sink_mut().drop_block(BlockId { toi, sbn: 0 });
        let bad = ReceiverCommand::BadBlocks { toi, blocks: vec![0] };
        client.handle_command(now, bad).unwrap();
        let asked = said(&mut client, now);
        let run = |first_block| NeedRun { first_block, blocks: 1, symbols: 20 };
        let (first, both) = (Need::Symbols(vec![run(0)]), Need::Whole);
        let expected = match damage {
            1 => ClientMessage::Want { toi, need: both },
            _ => ClientMessage::Unicast { toi, need: first },
        };
        assert!(asked.contains(&expected), "{damage}: {asked:?}");
    }
    assert!(client.drops().of(DropReason::Damaging) >= 18 * 20);
    // The server does not say which symbols of the other block are its own, as one of an earlier
    // release.
    tell_client(&mut client, now, &announcement(toi));
    let now = now + Duration::from_secs(3);
    client.handle_timeout(now);
    for esi in 0..19 {
        hear(&mut client, now, (toi, 1), (1, esi));
    }
    assert_eq!(client.progress(toi), Some((0, 2)));
    let content = vec![7; 20 * usize::from(SYMBOL)].into();
    let block = BlockId { toi, sbn: 0 };
    said(&mut client, now);
    client.handle_command(now, ReceiverCommand::UnicastBlock { block, content }).unwrap();
    let rest = Need::Symbols(vec![NeedRun { first_block: 1, blocks: 1, symbols: 1 }]);
    assert_eq!(said(&mut client, now), [ClientMessage::Want { toi, need: rest }]);
}

/// Returns the packets that are sent until four clients have an item.
fn packets_despite(claims: Option<Forged>, seed: u64) -> u64 {
    let mut world = World::new(config(), objects(1, 2_000), seed);
    world.forger = claims.map(|claims| Forger { claims, turn: 0 });
    for _ in 0..4 {
        world.add_client(&[1], 0.05);
    }
    let reasons = [
        DropReason::WrongSymbol,
        DropReason::Unverified,
        DropReason::Contradicting,
        DropReason::OutsideItem,
        // Of blocks that were wrong before.
        DropReason::Damaging,
        // Digests of blocks that are complete by then.
        DropReason::Unexpected,
        // Of clients that believed a forged end.
        DropReason::StaleNak,
    ];
    for reason in reasons.into_iter().filter(|_| claims.is_some()) {
        world.may_drop(reason);
    }
    assert!(world.run(Duration::from_mins(5)), "seed {seed}");
    (0..4).for_each(|client| world.assert_has(client, &[1]));
    world.sent_packets
}

#[test]
fn wrong_symbols_cost_nothing_but_themselves_once_the_server_has_told_their_digests() {
    let forgeries = [
        Forged::Any,
        Forged::Repair,
        Forged::RepairOf(1),
        Forged::RepairOf(1_000),
        Forged::RepairAhead(20),
        Forged::RepairAhead(1_000),
    ];
    let mut dear = Vec::new();
    for seed in 0..3 {
        let calm = packets_despite(None, seed);
        for forged in forgeries {
            let attacked = packets_despite(Some(forged), seed);
            if attacked * 100 >= calm * 110 {
                dear.push(format!("seed {seed}: {forged:?}: {attacked} instead of {calm}"));
            }
        }
    }
    assert!(dear.is_empty(), "packets: {dear:#?}");
}

#[test]
fn a_server_that_tells_no_digests_is_done_without() {
    let mut world = World::new(config(), objects(1, 400), 1);
    world.mute = true;
    let client = world.add_client(&[1], 0.05);
    let reasons = [DropReason::Unverified, DropReason::Contradicting, DropReason::WrongSymbol];
    for reason in reasons {
        world.may_drop(reason);
    }
    // Two symbols of one number, once.
    world.run_for(Duration::from_millis(200));
    let forged = packet_of((Toi(1), 1), (11, 3));
    let now = world.now;
    for payload in [&forged, &packet_with((Toi(1), 1), (11, 3), 8)] {
        let by = Address::Channel(channel());
        let datagram = Datagram { by, hop_limit: None, payload };
        world.receivers[client].engine.handle_datagram(now, datagram);
    }
    world.drain(client + 1);
    let asks = |world: &World| {
        let events = world.source_events.iter();
        events.filter(|event| matches!(event, SourceEvent::SymbolDigests { .. })).count()
    };
    assert!(world.reaches(MINUTE, |world| world.receivers[0].engine.outstanding() == 0));
    assert!(asks(&world) > 0);
}
