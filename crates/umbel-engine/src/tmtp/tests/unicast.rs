//! Receivers that multicast does not reach, or not any more: they get everything by unicast.

use std::time::Duration;

use umbel_wire::feed::Recovery;

use super::delivery::{LONG, complete, rate};
use super::world::World;
use crate::congestion::CongestionConfig;
use crate::testing::world::{Bottleneck, Standstill};
use crate::tmtp::{
    Authentication, DropReason, ReceiverCommand, ReceiverEvent, SourceConfig, SourceEvent,
    TooLittle, node_id,
};

const RECOVERIES: [Recovery; 4] = [Recovery::Tree, Recovery::Source, Recovery::Srm, Recovery::Lms];
/// Rate of the source's link, symbols of a block, blocks, and bytes of a packet.
const MOST: u64 = 10_000_000;
const K: u8 = 40;
const BLOCKS: usize = 400;
const PACKET_LEN: u32 = 48;

/// Creates a source.
fn world_with(
    recovery: Recovery,
    symbol_len: u16,
    blocks: usize,
    configure: impl FnOnce(SourceConfig) -> SourceConfig,
) -> World {
    let shape = crate::tmtp::Shape { symbol_len, ..World::shape(K, true) };
    let packet_len = PACKET_LEN - 12 + u32::from(symbol_len);
    let mut world = World::new(1, vec![K; blocks], shape, rate(MOST), |mut config| {
        config.node.recovery = recovery;
        config.congestion = Some(CongestionConfig::new(config.rate, packet_len));
        configure(config)
    });
    world.expect_faults();
    world
}

fn world(recovery: Recovery) -> World {
    world_with(recovery, 12, BLOCKS, |config| config)
}

fn add(world: &mut World) -> usize {
    let symbol_len = world.source().symbols_mut().symbol_len as u16;
    let shape = crate::tmtp::Shape { symbol_len, ..World::shape(K, true) };
    let host = world.add_receiver(0, shape, |config| config);
    world.run_for(Duration::from_millis(20));
    host
}

fn why(world: &World, host: usize) -> Vec<TooLittle> {
    let events = world.receiver_events(host).iter();
    let why = events.filter_map(|event| match event {
        ReceiverEvent::ByUnicast { why, .. } => Some(*why),
        _ => None,
    });
    why.collect()
}

fn is_served_by_unicast(world: &World, host: usize) -> bool {
    let (node, address) = (world.id(host), world.address_of(host));
    world.source_events().contains(&SourceEvent::ByUnicast { node, address })
}

/// Runs until everyone has everything and the source knows. Returns the packets that were fetched
/// for each of the feed.
fn finish(world: &mut World) -> f64 {
    world.run_until(LONG, World::everyone_has_all);
    world.run_until(LONG, complete);
    let members = world.receivers().len() as u32;
    assert_eq!(world.source().stats().totals.done, members);
    world.source().stats().fetched_sent as f64 / (world.lengths.len() * usize::from(K)) as f64
}

fn send_half(world: &mut World) {
    world.extend_all();
    let half = world.lengths.len() as u32 / 2;
    world.run_until(LONG, |world| world.source().stats().blocks_sent >= half);
}

#[test]
fn who_hears_nothing_any_more_gets_the_rest_by_unicast_and_holds_up_nobody() {
    for recovery in RECOVERIES {
        let mut world = world(recovery);
        let deaf = add(&mut world);
        let others = [add(&mut world), add(&mut world)];
        world.run_until(LONG, |world| world.source().stats().totals.members == 3);
        send_half(&mut world);
        world.network.hosts[deaf].is_deaf = true;
        let start = world.now;
        world.run_until(LONG, |world| others.iter().all(|&host| world.has_all(host)));
        let took = world.now.since(start);
        assert!(took < Duration::from_secs(10), "{recovery}: {took:?}\n{}", world.state());
        let fetched = finish(&mut world);
        assert_eq!(why(&world, deaf), [TooLittle::Nothing], "{recovery}");
        assert!(is_served_by_unicast(&world, deaf), "{recovery}");
        // What was fetched until the silence was noticed went to the channel, in vain.
        assert!(fetched < 1.5, "{recovery}: {fetched}");
    }
}

#[test]
fn the_only_receiver_gets_the_rest_by_unicast_at_the_rate_of_its_path() {
    for recovery in RECOVERIES {
        let mut world = world(recovery);
        let deaf = add(&mut world);
        let path = rate(2_000_000);
        world.network.hosts[deaf].bottleneck = Some(Bottleneck::new(path, 50));
        world.run_until(LONG, |world| world.source().stats().totals.members == 1);
        send_half(&mut world);
        world.network.hosts[deaf].is_deaf = true;
        world.run_until(LONG, |world| is_served_by_unicast(world, deaf));
        let start = world.now;
        let fetched = finish(&mut world);
        let took = world.now.since(start).as_secs_f64();
        let bytes = BLOCKS as u64 / 2 * u64::from(K) * u64::from(PACKET_LEN);
        let needs = path.time_for(bytes).as_secs_f64();
        assert!(took < needs + 4.0 && fetched < 0.65, "{recovery}: {took} of {needs}, {fetched}");
    }
}

#[test]
fn who_never_hears_anything_gets_everything_by_unicast() {
    for recovery in RECOVERIES {
        let mut world = world(recovery);
        let host = world.network.hosts.len();
        let shape = World::shape(K, true);
        assert_eq!(world.add_receiver(3, shape, |config| config), host);
        world.network.hosts[host].is_deaf = true;
        world.run_until(LONG, |world| world.source().stats().totals.members == 1);
        world.extend_all();
        let fetched = finish(&mut world);
        assert_eq!(why(&world, host), [TooLittle::Nothing], "{recovery}");
        assert!(fetched < 1.1, "{recovery}: {fetched}");
    }
}

#[test]
fn packets_that_do_not_pass_come_in_pieces() {
    let cases = [(Recovery::Tree, 1_372), (Recovery::Tree, 600), (Recovery::Lms, 1_372)];
    for (recovery, most) in cases {
        let mut world = world_with(recovery, 1_400, 4, |config| config);
        let narrow = add(&mut world);
        let other = add(&mut world);
        world.run_until(LONG, |world| world.source().stats().totals.members == 2);
        world.narrow = Some((narrow, most));
        world.extend_all();
        let start = world.now;
        world.run_until(LONG, |world| world.has_all(other));
        let took = world.now.since(start);
        assert!(took < Duration::from_secs(10), "{recovery}: {took:?}");
        finish(&mut world);
        assert_eq!(why(&world, narrow), [TooLittle::NoData], "{recovery}, {most}");
    }
}

#[test]
fn who_hears_again_returns_to_multicast() {
    let mut world = world(Recovery::Tree);
    let deaf = add(&mut world);
    add(&mut world);
    world.run_until(LONG, |world| world.source().stats().totals.members == 2);
    world.network.hosts[deaf].is_deaf = true;
    world.run_until(LONG, |world| is_served_by_unicast(world, deaf));
    world.network.hosts[deaf].is_deaf = false;
    // Nothing is sent that would show it.
    world.run_for(Duration::from_secs(20));
    assert!(!world.receiver_events(deaf).contains(&ReceiverEvent::ByMulticast));
    for block in 0..BLOCKS {
        world.extend(block..block + 1);
        world.run_for(Duration::from_millis(20));
    }
    world.source_command(crate::tmtp::SourceCommand::Finish { failed: None });
    assert!(world.receiver_events(deaf).contains(&ReceiverEvent::ByMulticast));
    finish(&mut world);
}

#[test]
fn loss_does_not_turn_anybody_away_from_multicast_nor_stop_unicast() {
    let mut world = world(Recovery::Tree);
    let deaf = add(&mut world);
    let other = add(&mut world);
    world.run_until(LONG, |world| world.source().stats().totals.members == 2);
    world.set_weather(super::world::Weather::loss(0.3));
    world.network.hosts[deaf].is_deaf = true;
    world.extend_all();
    finish(&mut world);
    assert_eq!(why(&world, other), []);
    assert_eq!(why(&world, deaf)[0], TooLittle::Nothing);
}

#[test]
fn a_pipe_waits_for_who_gets_it_by_unicast() {
    let mut world = world_with(Recovery::Tree, 12, BLOCKS, |mut config| {
        config.history = Some(10);
        config
    });
    let deaf = add(&mut world);
    add(&mut world);
    world.run_until(LONG, |world| world.source().stats().totals.members == 2);
    world.network.hosts[deaf].is_deaf = true;
    world.run_until(LONG, |world| is_served_by_unicast(world, deaf));
    world.extend_all();
    finish(&mut world);
}

#[test]
fn in_an_open_feed_and_with_a_token_it_is_the_same() {
    let with_keys: fn(SourceConfig) -> SourceConfig = |mut config| {
        config.node.authentication = Authentication::Keys(super::world::secret_of(0));
        config.node.id = node_id(super::world::FEED, &super::world::secret_of(0));
        config.shape.id = config.node.id;
        config
    };
    let with_token: fn(SourceConfig) -> SourceConfig = |mut config| {
        config.node.authentication = Authentication::Token([7; 32]);
        config
    };
    for access in [with_keys, with_token] {
        let mut world = world_with(Recovery::Tree, 12, BLOCKS, access);
        let deaf = add(&mut world);
        world.network.hosts[deaf].is_deaf = true;
        world.run_until(LONG, |world| world.source().stats().totals.members == 1);
        world.extend_all();
        finish(&mut world);
        world.command(deaf, ReceiverCommand::Leave);
    }
}

#[test]
fn who_stood_still_catches_up_once_it_goes_on() {
    for recovery in RECOVERIES {
        let mut world = world(recovery);
        // What is in its buffer is news to it.
        world.may_drop(DropReason::AbsurdEpoch);
        let still = add(&mut world);
        let others = [add(&mut world), add(&mut world), add(&mut world)];
        world.run_until(LONG, |world| world.source().stats().totals.members == 4);
        send_half(&mut world);
        let start = world.now + Duration::from_secs(45);
        world.network.hosts[still].stands = Some(Standstill { until: start, room: 200 });
        world.run_until(LONG, |world| others.iter().all(|&host| world.has_all(host)));
        world.run_for(start.since(world.now));
        world.run_until(LONG, World::everyone_has_all);
        let took = world.now.since(start);
        assert!(took < Duration::from_secs(20), "{recovery}: {took:?}\n{}", world.state());
    }
}
