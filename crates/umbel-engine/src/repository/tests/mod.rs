//! The engines against each other: a server and clients in virtual time.

mod attacker;
mod auto;
mod content;
mod host;
mod sealed;
mod strangers;

use std::net::Ipv4Addr;
use std::time::Duration;

use crate::chance::generator;
use crate::congestion::CongestionConfig;
use proptest::prelude::*;
use umbel_wire::alc::DataHeader;
use umbel_wire::reception::ChannelStamp;
use umbel_wire::repository::{ClientMessage, Nak, Need, NeedRun};
use umbel_wire::{Oti, Scheme, Toi, Tsi};

use self::content::{MemorySource, Object, SYMBOL};
use self::host::{World, config};
use crate::repository::config::SourceConfig;
use crate::repository::drops::DropReason;
use crate::repository::receiver::ReceiverEvent;
use crate::repository::scheduler::SchedulerKind;
use crate::repository::source::{Source, SourceCommand, SourceEvent};
use crate::{Address, Datagram, Engine, Instant, SessionId};

const MINUTE: Duration = Duration::from_mins(1);

fn objects(count: usize, symbols: usize) -> Vec<Object> {
    let len = symbols * usize::from(SYMBOL) - 5;
    (0..count).map(|i| Object::new(Scheme::ReedSolomon, len, 32, i as u64)).collect()
}

#[test]
fn a_client_gets_exactly_what_it_asked_for() {
    let mut world = World::new(config(), objects(4, 100), 1);
    world.add_client(&[1, 3], 0.0);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1, 3]);
    assert_eq!(world.receivers[0].done.len(), 2);
    assert_eq!(world.sent_packets, 200, "without loss every symbol is sent once");
}

#[test]
fn an_empty_item_needs_no_packet() {
    let objects = vec![Object::new(Scheme::ReedSolomon, 0, 32, 0)];
    let mut world = World::new(config(), objects, 1);
    world.add_client(&[1], 0.5);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1]);
    assert_eq!(world.sent_packets, 0);
}

#[test]
fn short_transmissions_are_announced_together() {
    let mut world = World::new(config(), objects(200, 1), 1);
    let all: Vec<u32> = (1..=200).collect();
    world.add_client(&all, 0.0);
    assert!(world.run(MINUTE));
    world.assert_has(0, &all);
    // The lookahead has 14 of them.
    assert!(world.announcements < 40, "{} messages", world.announcements);
}

#[test]
fn the_example_of_the_paper_is_sent_in_its_order() {
    // [Repository §2.2]: A wants 1, 2, 3; B wants 2, 4; C wants 2, 3.
    let mut config = config();
    config.policy = "FEC(1loss)+R(inf)+notify".parse().unwrap();
    config.scheduler = SchedulerKind::Rq;
    config.lookahead = Duration::ZERO;
    let mut world = World::new(config, objects(5, 32), 1);
    // The channel is busy with another item while the three ask.
    world.add_client(&[5], 0.0);
    world.run_for(Duration::from_millis(20));
    for items in [&[1, 2, 3][..], &[2, 4], &[2, 3]] {
        world.add_client(items, 0.0);
    }
    assert!(world.run(MINUTE));
    assert_eq!(world.order[..3], [Toi(5), Toi(2), Toi(3)]);
    assert_eq!(world.sent_packets, 5 * 32);
    for (client, items) in [(1, &[1, 2, 3][..]), (2, &[2, 4]), (3, &[2, 3])] {
        world.assert_has(client, items);
    }
    // Items 1 and 4 tie, and the first comes first: A is done after 3 items, B after 4, C after 2.
    let last = |c: usize| *world.receivers[c].done.values().max().unwrap();
    assert!(last(3) < last(1) && last(1) < last(2));
}

#[test]
fn losses_are_repaired_for_every_client() {
    for (seed, loss) in [(1, 0.01), (2, 0.05), (3, 0.2), (4, 0.5)] {
        let mut world = World::new(config(), objects(2, 500), seed);
        for _ in 0..8 {
            world.add_client(&[1, 2], loss);
        }
        assert!(world.run(MINUTE * 5), "seed {seed} loss {loss}");
        for client in 0..8 {
            world.assert_has(client, &[1, 2]);
        }
        let least = 1000.0 / (1.0 - loss);
        let sent = world.sent_packets as f64;
        let limit = if loss < 0.3 { 1.35 } else { 1.8 };
        assert!(sent < least * limit, "loss {loss}: {sent} packets, at least {least}");
    }
}

#[test]
fn a_client_measures_the_loss_of_what_was_announced_to_it() {
    let mut world = World::new(config(), objects(4, 1000), 5);
    world.add_client(&[1], 0.2);
    world.add_client(&[1, 2, 3, 4], 0.0);
    assert!(world.run(MINUTE * 5));
    // The first client also hears the others' packets, and does not know how many of those were
    // sent.
    let [lossy, clean] = [0, 1].map(|client: usize| world.receivers[client].engine.stats());
    assert!(lossy.packets > lossy.heard + 500, "{lossy:?}");
    assert!((0.15..0.25).contains(&lossy.loss()), "{lossy:?}");
    assert!(clean.loss() < 0.001, "{clean:?}");
}

#[test]
fn packets_that_come_before_their_announcement_do_not_count_as_lost() {
    for (seed, delay_ms) in [(1, 20), (2, 50), (3, 100)] {
        let mut world = World::new(config(), objects(4, 1000), seed);
        world.network.session_delay = Duration::from_millis(delay_ms);
        world.add_client(&[1], 0.2);
        world.add_client(&[1, 2, 3, 4], 0.0);
        assert!(world.run(MINUTE * 5), "seed {seed}");
        let [lossy, clean] = [0, 1].map(|client: usize| world.receivers[client].engine.stats());
        assert!((0.15..0.25).contains(&lossy.loss()), "seed {seed}: {lossy:?}");
        assert!(clean.loss() < 0.001, "seed {seed}: {clean:?}");
    }
}

#[test]
fn one_lossy_client_does_not_hold_up_the_others_for_long() {
    let mut world = World::new(config(), objects(3, 300), 5);
    let good = world.add_client(&[1], 0.0);
    world.add_client(&[1, 2, 3], 0.9);
    assert!(world.run(MINUTE * 20));
    world.assert_has(good, &[1]);
    world.assert_has(1, &[1, 2, 3]);
    let first = world.receivers[good].done[&Toi(1)];
    let packets = Duration::from_micros(704) * 300;
    assert!(first - crate::Instant::from_nanos(1_000_000_000) < packets * 2);
}

#[test]
fn a_late_client_is_told_of_the_transmission_under_way() {
    let mut world = World::new(config(), objects(1, 400), 6);
    world.add_client(&[1], 0.0);
    world.run_for(Duration::from_millis(150));
    world.add_client(&[1], 0.0);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1]);
    world.assert_has(1, &[1]);
    assert!(world.sent_packets < 700, "it missed less than {} packets", world.sent_packets - 400);
}

#[test]
fn a_start_awaits_those_who_follow_each_other_closely() {
    // 4,000 symbols take 2 s: the wait is at most 3 % of that.
    let start = |gaps_ms: &[u64]| {
        let mut world = World::new(config(), objects(1, 4000), 1);
        world.add_client(&[1], 0.0);
        for &gap in gaps_ms {
            world.run_for(Duration::from_millis(gap));
            world.add_client(&[1], 0.0);
        }
        assert!(world.run(MINUTE));
        world.sent_packets
    };
    assert_eq!(start(&[10, 10]), 4000, "all three came in before it started");
    assert!(start(&[80]) > 4000, "the second missed its start");
}

#[test]
fn without_notification_a_late_client_waits_for_the_next_transmission() {
    let mut config = config();
    config.policy = "FEC(0)+R(inf)".parse().unwrap();
    config.segment.time = Duration::MAX;
    let mut world = World::new(config, objects(1, 400), 6);
    world.add_client(&[1], 0.0);
    world.run_for(Duration::from_millis(150));
    world.add_client(&[1], 0.0);
    assert!(world.run(MINUTE));
    world.assert_has(1, &[1]);
    assert!(world.sent_packets >= 750, "{}", world.sent_packets);
}

#[test]
fn a_rescheduling_server_sends_no_repair() {
    let mut config = config();
    config.policy = "FEC(0)+R(0)".parse().unwrap();
    let mut world = World::new(config, objects(3, 60), 7);
    for _ in 0..5 {
        world.add_client(&[1, 2, 3], 0.1);
    }
    assert!(world.run(MINUTE));
    for client in 0..5 {
        world.assert_has(client, &[1, 2, 3]);
    }
    assert_eq!(world.source.stats().repairs, 0);
    assert!(world.source.stats().naks > 0);
}

#[test]
fn later_transmissions_send_symbols_that_were_not_sent_before() {
    let mut config = config();
    config.policy = "FEC(0)+R(0)".parse().unwrap();
    config.reading.reschedule_whole = true;
    let mut world = World::new(config, objects(1, 32), 8);
    world.add_client(&[1], 0.3);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1]);
    let asked = &world.source.symbols_mut().asked;
    assert!(asked.len() > 32);
    assert!(asked.values().all(|&times| times == 1), "a symbol was sent twice: {asked:?}");
}

#[test]
fn exact_packets_can_be_rescheduled_whole() {
    let len = 32 * usize::from(SYMBOL);
    let mut config = config();
    config.policy = "R(0)+no-ecc".parse().unwrap();
    config.reading.reschedule_whole = true;
    config.reading.cut_short = false;
    let mut world = World::new(config, vec![Object::new(Scheme::NoCode, len, 32, 1)], 8);
    world.add_client(&[1], 0.3);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1]);
    // The last transmission continues to its end.
    world.run_for(Duration::from_secs(1));
    assert!(world.sent_packets >= 64, "{} packets are no two items", world.sent_packets);
    assert_eq!(world.sent_packets % 32, 0);
}

/// Creates a world with a lossy transmission, and a client that comes between it and its
/// retransmission.
fn late_for_the_pass(change: impl FnOnce(&mut SourceConfig)) -> World {
    let mut config = config();
    config.policy = "FEC(0)+R(inf)".parse().unwrap();
    config.segment.time = Duration::MAX;
    config.lookahead = Duration::ZERO;
    config.reading.gather_fully = true;
    config.naks.margin = Duration::from_millis(20);
    change(&mut config);
    let mut world = World::new(config, objects(2, 100), 1);
    world.add_client(&[1, 2], 0.1);
    // Item 1 takes 70 ms; now item 2 is sent.
    world.run_for(Duration::from_millis(100));
    world.add_client(&[1], 0.0);
    world
}

#[test]
fn an_open_retransmission_makes_a_late_client_ask_for_the_rest() {
    let mut world = late_for_the_pass(|config| config.reading.open_repairs = true);
    assert!(world.run(MINUTE));
    world.assert_has(1, &[1]);
    let stats = world.source.stats();
    assert_eq!(stats.transmissions - stats.repairs, 2, "the rest came as a retransmission");
}

#[test]
fn a_closed_retransmission_leaves_a_late_client_to_the_scheduler() {
    let mut world = late_for_the_pass(|_| {});
    assert!(world.run(MINUTE));
    world.assert_has(1, &[1]);
    let stats = world.source.stats();
    assert_eq!(stats.transmissions - stats.repairs, 3);
}

#[test]
fn the_channel_is_kept_free_for_naks() {
    let mut world = late_for_the_pass(|config| {
        config.reading.wait_for_naks = true;
        config.reading.gather_fully = false;
        config.naks.margin = Duration::from_millis(50);
    });
    assert!(world.run(MINUTE));
    assert_eq!(world.order[..2], [Toi(1), Toi(2)]);
    let mut eager = late_for_the_pass(|config| config.reading.gather_fully = false);
    assert!(eager.run(MINUTE));
    assert_eq!(eager.order[..3], [Toi(1), Toi(2), Toi(1)], "item 1 is repaired after item 2");
}

#[test]
fn a_known_loss_is_not_estimated() {
    let mut world = World::new(config(), objects(1, 500), 4);
    let client = world.add_client(&[1], 0.3);
    let session = crate::SessionId(client as u64);
    let known = SourceCommand::LossKnown { session, loss: 0.125 };
    world.source.handle_command(world.now, known).unwrap();
    assert!(world.run(MINUTE));
    assert!(world.source.stats().naks > 0);
    let loss = world.source.clients().next().unwrap().1.loss;
    assert!((loss - 0.125).abs() < 1e-9, "{loss}");
}

#[test]
fn exact_packets_are_repaired_exactly() {
    let len = 200 * usize::from(SYMBOL);
    let objects = vec![Object::new(Scheme::NoCode, len, 32, 1)];
    let mut world = World::new(config(), objects, 9);
    for _ in 0..4 {
        world.add_client(&[1], 0.1);
    }
    assert!(world.run(MINUTE));
    for client in 0..4 {
        world.assert_has(client, &[1]);
    }
    assert!(world.sent_packets < 400);
}

#[test]
fn raptorq_asks_for_more_when_a_block_cannot_be_restored() {
    let len = 300 * usize::from(SYMBOL);
    let objects = vec![Object::new(Scheme::RaptorQ, len, 300, 1)];
    let mut world = World::new(config(), objects, 10);
    for _ in 0..4 {
        world.add_client(&[1], 0.2);
    }
    assert!(world.run(MINUTE));
    for client in 0..4 {
        world.assert_has(client, &[1]);
    }
}

#[test]
fn clients_join_only_while_something_wanted_is_announced() {
    let mut config = config();
    config.lookahead = Duration::ZERO;
    let mut world = World::new(config, objects(3, 2000), 11);
    world.add_client(&[1], 0.0);
    world.add_client(&[2, 3], 0.0);
    assert!(world.run(MINUTE));
    assert!(world.receivers[0].packets <= 2010, "{}", world.receivers[0].packets);
    assert!(world.network.hosts.iter().all(|host| host.joined.is_empty()));
}

#[test]
fn a_client_that_multicast_does_not_reach_goes_on_by_unicast_and_back() {
    let mut world = World::new(config(), objects(2, 400), 12);
    let deaf = world.add_client(&[1, 2], 0.0);
    world.set_deaf(deaf, true);
    // Symbols that came by unicast are still on their way by multicast.
    world.may_drop(DropReason::Duplicate);
    world.may_drop(DropReason::NotWanted);
    world.run_for(Duration::from_millis(6_500));
    assert!(
        matches!(world.receivers[deaf].events.last(), Some(ReceiverEvent::Fallback { .. })),
        "{:?}",
        world.receivers[deaf].events.last()
    );
    world.set_deaf(deaf, false);
    assert!(world.run(MINUTE));
    world.assert_has(deaf, &[1, 2]);
    assert!(world.receivers[deaf].events.contains(&ReceiverEvent::MulticastBack));
    assert!(world.source_events.iter().any(|e| matches!(e, SourceEvent::StopUnicast { .. })));
}

#[test]
fn probes_are_as_long_as_the_packets_that_do_not_come() {
    let mut world = World::new(config(), objects(2, 400), 12);
    let deaf = world.add_client(&[1, 2], 0.0);
    world.set_deaf(deaf, true);
    world.run_for(Duration::from_secs(12));
    let probed = world.source_events.iter().filter_map(|event| match event {
        SourceEvent::Probe { packet_len, .. } => Some(usize::from(*packet_len)),
        _ => None,
    });
    assert_eq!(probed.collect::<Vec<_>>(), [config().packet_len]);
}

#[test]
fn an_item_that_vanishes_is_reported_and_the_others_go_on() {
    let mut world = World::new(config(), objects(2, 100), 13);
    world.source.symbols_mut().gone.insert(Toi(1));
    world.add_client(&[1, 2], 0.1);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[2]);
    assert_eq!(world.receivers[0].gone[&Toi(1)], "it was deleted");
}

#[test]
fn a_client_that_leaves_stops_its_transmissions() {
    let mut world = World::new(config(), objects(1, 10_000), 14);
    world.add_client(&[1], 0.0);
    world.run_for(Duration::from_millis(500));
    world.close(0);
    let sent = world.sent_packets;
    world.run_for(Duration::from_secs(5));
    assert_eq!(world.sent_packets, sent);
    assert_eq!(world.source.pending_items(), 0);
}

#[test]
fn a_wrong_token_is_refused() {
    let mut config = config();
    config.token = Some("secret".to_owned().into());
    let mut world = World::new(config, objects(1, 10), 15);
    world.add_client(&[1], 0.0);
    world.run_for(Duration::from_secs(1));
    assert!(world.receivers[0].refused);
    assert_eq!(world.sent_packets, 0);
    world.source.assert_dropped("NotAdmitted 1");
}

#[test]
fn a_full_sink_only_delays() {
    let mut world = World::new(config(), objects(1, 200), 16);
    world.add_client(&[1], 0.0);
    world.receivers[0].engine.sink_mut().refuse = true;
    world.run_for(Duration::from_millis(100));
    world.receivers[0].engine.sink_mut().refuse = false;
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1]);
    assert!(world.receivers[0].engine.drops().of(DropReason::NoRoom) > 0);
    world.may_drop(DropReason::NoRoom);
}

#[test]
fn one_that_keeps_nothing_steps_aside_and_most_slow_the_channel() {
    for slow in [1, 2] {
        let mut config = config();
        let most = config.rate;
        config.congestion = Some(CongestionConfig::new(most, config.packet_len as u32));
        let mut world = World::new(config, objects(1, 4000), 16);
        for client in 0..3 {
            world.add_client(&[1], 0.0);
            world.receivers[client].engine.sink_mut().refuse = client < slow;
        }
        world.run_for(Duration::from_millis(1_500));
        world.may_drop(DropReason::NoRoom);
        assert_eq!(world.source.rate() < most, slow == 2, "{slow}");
        for client in &mut world.receivers {
            client.engine.sink_mut().refuse = false;
        }
        // Unicast brings a block a second.
        assert!(world.run(MINUTE * 10));
        (0..3).for_each(|client| world.assert_has(client, &[1]));
        let asides = world.source_events.iter();
        let asides = asides.filter(|event| matches!(event, SourceEvent::Aside { .. })).count();
        assert_eq!(asides, usize::from(slow == 1));
        if slow == 1 {
            // To send all once takes 3.1 s, the world begins after 1 s, and it takes a while to be
            // sure.
            let done = world.receivers[2].done[&Toi(1)].since(Instant::EPOCH);
            assert!(done < Duration::from_millis(5_500), "{done:?}");
        }
    }
}

#[test]
fn symbols_that_are_not_ready_are_waited_for() {
    let mut world = World::new(config(), objects(1, 20), 17);
    world.add_client(&[1], 0.0);
    world.source.handle_command(world.now, SourceCommand::SymbolsReady).unwrap();
    assert!(world.run(MINUTE));
}

/// Creates a server with one admitted client, without a network.
fn server_with_a_client() -> (Source<MemorySource>, SessionId) {
    let mut source = Source::new(config(), generator(1), MemorySource::default());
    let session = SessionId(1);
    let opened = SourceCommand::SessionOpened {
        session,
        remote: Ipv4Addr::LOCALHOST.into(),
        rtt: Duration::from_millis(1),
    };
    source.handle_command(Instant::EPOCH, opened).unwrap();
    say(&mut source, session, &ClientMessage::Hello { agent: String::new(), token: None });
    (source, session)
}

fn say(source: &mut Source<MemorySource>, session: SessionId, message: &ClientMessage) {
    let mut payload = Vec::new();
    message.emit(&mut payload);
    let by = Address::Session(session);
    let datagram = Datagram { by, hop_limit: None, payload: &payload };
    source.handle_datagram(Instant::EPOCH, datagram);
}

/// Returns an item of 2²⁴ blocks of eight symbols.
fn huge() -> Oti {
    Oti {
        scheme: Scheme::ReedSolomon,
        object_len: (1 << 27) * u64::from(SYMBOL),
        symbol_len: SYMBOL,
        max_block_symbols: 8,
        max_encoding_symbols: 255,
    }
}

/// Returns a need in which every other block is missing a symbol.
fn scattered(runs: u32) -> Need {
    let run = |n| NeedRun { first_block: 2 * n, blocks: 1, symbols: 1 };
    Need::Symbols((0..runs).map(run).collect())
}

#[test]
fn what_a_client_can_make_the_server_remember_is_bounded() {
    let (mut source, session) = server_with_a_client();
    let want = |toi, need| SourceCommand::Want { session, toi: Toi(toi), oti: huge(), need };
    for (toi, runs) in [(1, 100_000), (2, 30_000), (3, 1), (4, 30_000)] {
        source.handle_command(Instant::EPOCH, want(toi, scattered(runs))).unwrap();
    }
    assert_eq!((source.pending_items(), source.drops().of(DropReason::OverLimit)), (3, 1));
    // Symbols that the client has no longer count against its limit.
    let done = ClientMessage::Done { tois: vec![Toi(1)], received: 0, lost: 0 };
    say(&mut source, session, &done);
    source.handle_command(Instant::EPOCH, want(4, scattered(30_000))).unwrap();
    assert_eq!((source.pending_items(), source.drops().total()), (3, 1));
    let nak = |need| Nak { transmission: 77, toi: Toi(2), need, received: 0, lost: 0 };
    say(&mut source, session, &ClientMessage::Nak(nak(scattered(65))));
    assert_eq!(source.drops().of(DropReason::OverLimit), 2);
    let all = NeedRun { first_block: 0, blocks: 1 << 24, symbols: 1 };
    say(&mut source, session, &ClientMessage::Nak(nak(Need::Symbols(vec![all]))));
    assert_eq!(source.drops().total(), 2);
}

#[test]
fn packets_of_a_server_that_was_started_again_are_not_taken() {
    let mut world = World::new(config(), objects(1, 100), 1);
    world.add_client(&[1], 0.0);
    world.run_for(Duration::from_millis(50));
    let header = DataHeader {
        tsi: Tsi(8),
        toi: Toi(1),
        transmission: 1,
        index: 99,
        stamp: ChannelStamp::default(),
        scheme: Scheme::ReedSolomon,
        sbn: 3,
        esi: 0,
    };
    let payload = [&header.emit().unwrap()[..], &[0xEE; SYMBOL as usize]].concat();
    let by = Address::Channel(config().channel);
    let datagram = Datagram { by, hop_limit: None, payload: &payload };
    world.receivers[0].engine.handle_datagram(world.now, datagram);
    assert!(world.run(MINUTE));
    world.assert_has(0, &[1]);
    world.receivers[0].engine.assert_dropped("OtherSession 1");
}

/// Adds clients one after the other. Each has a loss, a bit for each of three items that it wants,
/// and a pause before it in ms. Returns the items that each wants.
fn add_clients(world: &mut World, clients: &[(f64, u32, u64)]) -> Vec<Vec<u32>> {
    let add = |&(loss, mask, pause_ms): &(f64, u32, u64)| {
        let wanted: Vec<u32> = (1..=3).filter(|item| mask & (1 << (item - 1)) != 0).collect();
        world.run_for(Duration::from_millis(pause_ms));
        world.add_client(&wanted, loss);
        wanted
    };
    clients.iter().map(add).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_client_gets_every_byte_whatever_the_network_does(
        seed: u64,
        clients in prop::collection::vec((0.0..0.6_f64, 1_u32..8, 0_u64..400), 1..6),
        source_loss in 0.0..0.2_f64,
        duplicate in 0.0..0.3_f64,
        jitter_ms in 0_u64..30,
        latency_ms in 0_u64..60,
        policy in prop::sample::select(vec![
            "auto", "auto", "FEC(0)+R(inf)", "FEC(0)+R(0)", "FEC(0.1)+R(10)", "FEC(0.05R)+R(0)+notify",
            "FEC(0.1/R)+R(inf)+notify", "FEC(1loss)+R(inf)+notify", "FEC(2loss)+R(3)",
        ]),
        scheduler in prop::sample::select(vec![
            "gain", "gain", "rq", "rq-fill", "rxw", "mrf", "fcfs",
        ]),
        lookahead_ms in prop::sample::select(vec![0_u64, 10, 50]),
        whole: bool,
        naks: (bool, bool, bool, bool, bool),
    ) {
        let mut config = config();
        config.policy = policy.parse().unwrap();
        config.scheduler = scheduler.parse().unwrap();
        config.lookahead = Duration::from_millis(lookahead_ms);
        config.reading.reschedule_whole = whole;
        (config.reading.gather_fully, config.reading.wait_for_naks, config.reading.join_repairs, ..) = naks;
        (.., config.reading.open_repairs, config.reading.expand_repairs) = naks;
        let mut world = World::new(config, objects(3, 130), seed);
        world.may_drop(DropReason::Duplicate);
        world.may_drop(DropReason::NotWanted);
        world.host(0).up.loss = source_loss;
        world.network.weather.duplicates = duplicate;
        world.network.weather.jitter = Duration::from_millis(jitter_ms);
        world.network.weather.delay = Duration::from_millis(latency_ms);
        let wants = add_clients(&mut world, &clients);
        prop_assert!(world.run(MINUTE * 30));
        for (client, wanted) in wants.iter().enumerate() {
            world.assert_has(client, wanted);
        }
    }
}
