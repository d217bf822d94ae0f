//! The rate is what the paths carry.

use std::time::Duration;

use umbel_wire::feed::Recovery;
use umbel_wire::reception::ReceptionReport;

use super::delivery::{LONG, finish, rate};
use super::world::{Lie, World};
use crate::congestion::{CongestionConfig, PaceTo};
use crate::testing::world::Bottleneck;
use crate::tmtp::DropReason;

const RECOVERIES: [Recovery; 4] = [Recovery::Tree, Recovery::Source, Recovery::Srm, Recovery::Lms];
const MOST: u64 = 100_000_000;
const NARROW: u64 = 8_000_000;
/// Symbols of a block, blocks, and bytes of a packet.
const K: u8 = 40;
const BLOCKS: usize = 1_000;
const PACKET_LEN: u32 = 48;

/// Creates a source and receivers behind paths of these rates, which have joined.
fn world(recovery: Recovery, paths: &[u64], pace_to: PaceTo) -> World {
    let shape = World::shape(K, true);
    let mut world = World::new(1, vec![K; BLOCKS], shape, rate(MOST), |mut config| {
        config.node.recovery = recovery;
        let congestion = CongestionConfig::new(config.rate, PACKET_LEN);
        config.congestion = Some(CongestionConfig { pace_to, ..congestion });
        config
    });
    world.expect_faults();
    for &path in paths {
        let host = world.add_receiver(0, shape, |config| config);
        world.network.hosts[host].bottleneck = Some(Bottleneck::new(rate(path), 50));
        world.run_for(Duration::from_millis(20));
    }
    let count = paths.len() as u32;
    world.run_until(LONG, |world| world.source().stats().totals.members == count);
    world
}

/// Returns the packets that the source has sent for each of the feed.
fn sent(world: &mut World) -> f64 {
    let stats = world.source().stats();
    let sent = stats.data_sent + stats.repairs_sent + stats.fetched_sent;
    sent as f64 / (BLOCKS * usize::from(K)) as f64
}

/// Returns the seconds that the feed takes, and the time that it needs at this rate.
fn time(world: &mut World, bits_per_s: u64) -> f64 {
    let start = world.now;
    world.extend_all();
    world.run_until(LONG, World::everyone_has_all);
    of(bits_per_s, world.now.since(start))
}

/// Returns a time in that which the feed needs at a rate.
fn of(bits_per_s: u64, took: Duration) -> f64 {
    let bytes = BLOCKS as u64 * u64::from(K) * u64::from(PACKET_LEN);
    took.as_secs_f64() / rate(bits_per_s).time_for(bytes).as_secs_f64()
}

#[test]
fn a_narrow_path_is_filled_and_little_is_sent_in_vain() {
    for recovery in RECOVERIES {
        let mut world = world(recovery, &[NARROW; 3], PaceTo::Most);
        let took = time(&mut world, NARROW);
        finish(&mut world);
        let sent = sent(&mut world);
        // Repairs of other receivers take their share of the paths unmeasured.
        assert!(took < 1.5 && sent <= 1.2, "{recovery}: {took}, {sent}\n{}", world.state());
    }
}

#[test]
fn only_a_few_packets_go_into_the_dark() {
    for recovery in RECOVERIES {
        let mut world = world(recovery, &[MOST; 2], PaceTo::Most);
        for host in world.receivers() {
            world.network.hosts[host].is_deaf = true;
        }
        world.extend_all();
        world.run_for(Duration::from_secs(1));
        let sent = world.source().stats().data_sent;
        assert!((10..=60).contains(&sent), "{recovery}: {sent}");
    }
}

#[test]
fn a_receiver_that_lies_changes_little() {
    fn boast(report: &mut ReceptionReport) {
        report.received += report.lost;
        (report.lost, report.gaps, report.tails) = (0, 0, 0);
        report.arrived_over = report.sent_over;
        (report.queue, report.queue_least) = (Duration::ZERO, Duration::ZERO);
        report.train_bits_per_s = Some(u64::MAX);
    }
    fn complain(report: &mut ReceptionReport) {
        report.lost += report.received;
        report.gaps = report.lost;
        report.arrived_over *= 20;
        report.queue = Duration::from_secs(1);
        report.queue_least = report.queue;
        report.train_bits_per_s = Some(1);
    }
    // Where most is delivered counts, who boasts is worth more than all others: the fastest of
    // them cannot be told from a liar. Where all are waited for, who complains is.
    let lies = [(boast as Lie, PaceTo::All), (complain, PaceTo::Most)];
    for (lie, pace_to) in lies {
        let mut world = world(Recovery::Tree, &[NARROW; 4], pace_to);
        world.forge_report = Some((2, lie));
        let start = world.now;
        world.extend_all();
        // Whoever complains is taken at its word.
        world.run_until(LONG, |world| [1, 3, 4].iter().all(|&host| world.has_all(host)));
        let took = of(NARROW, world.now.since(start));
        // Who complains alone gets what it asks for: little at a time.
        world.run_until(LONG * 10, World::everyone_has_all);
        let sent = sent(&mut world);
        assert!(took < 1.5 && sent <= 1.3, "{took}, {sent}\n{}", world.state());
    }
}

#[test]
fn who_is_done_or_gone_counts_no_more() {
    let mut world = world(Recovery::Tree, &[NARROW * 4, NARROW * 4, NARROW * 4], PaceTo::All);
    world.extend_all();
    world.run_for(Duration::from_millis(100));
    // Its path was known to carry little, and it fails.
    world.network.hosts[2].bottleneck = Some(Bottleneck::new(rate(NARROW / 8), 50));
    world.run_for(Duration::from_secs(1));
    assert!(world.source_rate() < rate(NARROW), "{:?}", world.source_rate());
    world.crash(2);
    world.run_until(LONG, |world| world.source_rate() > rate(NARROW));
}

#[test]
fn a_report_without_a_cookie_counts_for_nothing() {
    let mut world = world(Recovery::Source, &[MOST; 2], PaceTo::Most);
    world.extend(0..BLOCKS / 20);
    world.run_for(Duration::from_secs(2));
    let no_cookie = world.source().drops().of(DropReason::NoCookie);
    assert!((2..=8).contains(&no_cookie), "{no_cookie}: each asks for one, and has it then");
}

#[test]
fn one_narrow_path_holds_up_nobody_and_is_served_after_the_others() {
    for recovery in RECOVERIES {
        let mut alone = world(recovery, &[MOST; 3], PaceTo::Most);
        let alone = time(&mut alone, MOST);
        let mut world = world(recovery, &[MOST, MOST, MOST, NARROW], PaceTo::Most);
        let (start, narrow) = (world.now, 4);
        // Who is set aside hears beacons, and wants no parent.
        world.receiver(narrow).allow("Unexpected");
        world.extend_all();
        world.run_until(LONG, |world| (1..narrow).all(|host| world.has_all(host)));
        let others = of(MOST, world.now.since(start)) / alone;
        world.run_until(LONG, World::everyone_has_all);
        let it = of(NARROW, world.now.since(start));
        finish(&mut world);
        let sent = sent(&mut world);
        let state = world.state();
        // All hear what it asks for in SRM, and answer it. It is set aside there, and fetches by
        // bursts of which its short queue keeps a part.
        let (most, longest) = if recovery == Recovery::Srm { (8.0, 60.0) } else { (1.2, 3.0) };
        assert!(
            others < most && it < longest && sent < 3.0,
            "{recovery}: {others}, {it}, {sent}\n{state}"
        );
    }
}
