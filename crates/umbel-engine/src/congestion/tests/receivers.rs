//! Many receivers: whose path counts, and how often they report.

use std::time::Duration;

use super::link::LinkSpec;
use super::world::*;
use crate::congestion::{Limit, PaceTo};
use crate::units::Rate;

fn secs(s: f64) -> Duration {
    Duration::from_secs_f64(s)
}

/// Links with these rates, a receiver behind each. Queues of a bandwidth-delay product.
fn paths(rates: &[f64], rtt: f64) -> Spec {
    let link = |&rate: &f64| LinkSpec::new(rate, (rate / 8.0 * rtt).max(20.0 * f64::from(PACKET)));
    let receivers = (0..rates.len()).map(|n| ReceiverSpec::new(n, secs(rtt)));
    Spec::new(rates.iter().map(link).collect(), receivers.collect())
}

/// Receivers behind one link.
fn shared(rate: f64, rtt: f64, count: usize) -> Spec {
    let link = LinkSpec::new(rate, (rate / 8.0 * rtt).max(20.0 * f64::from(PACKET)));
    let receiver =
        |n: usize| ReceiverSpec { origin: origin(1, n), ..ReceiverSpec::new(0, secs(rtt)) };
    Spec::new(vec![link], (0..count).map(receiver).collect())
}

/// A machine that takes so many bits in a second.
fn host(rate: f64) -> HostSpec {
    let per_s = rate / 8.0 / f64::from(PACKET);
    HostSpec {
        per_s,
        socket: 2_900.min((per_s * 0.05) as usize),
        counts: true,
        stamps: false,
        together: 64,
        stalls: 2.0,
    }
}

/// Receivers with machines that are busy with other things, behind one link; and so is the source.
fn busy(rate: f64, takes: f64, count: usize) -> Spec {
    let mut spec = shared(rate, 2e-4, count);
    spec.links[0].queue = 1_000.0 * f64::from(PACKET);
    spec.clumps = 2.0;
    for receiver in &mut spec.receivers {
        receiver.host = Some(host(takes));
        receiver.report_late = secs(0.002);
    }
    spec
}

/// Share of a rate that a receiver got between two times.
fn got(world: &World, from: f64, to: f64, rate: f64) -> f64 {
    let at = |t: f64| world.samples.iter().rev().find(|sample| sample.at <= t).unwrap().received;
    (at(to) - at(from)) as f64 * f64::from(PACKET) * 8.0 / rate / (to - from)
}

fn left(world: &World) -> Vec<usize> {
    (0..world.receivers.len()).filter(|&n| world.receivers[n].left.is_some()).collect()
}

#[test]
fn with_equal_paths_the_rate_is_that_of_each() {
    for spec in [shared(1e8, 0.02, 16), paths(&[1e8; 16], 0.02), paths(&[1e7; 3], 0.05)] {
        let rate = spec.links[0].rates[0].1;
        let mut world = World::new(spec);
        world.run(secs(5.0));
        assert!(left(&world).is_empty());
        let used = got(&world, 1.0, 4.9, rate);
        assert!((0.9..1.01).contains(&used), "{used}");
    }
}

#[test]
fn one_at_a_tenth_leaves_and_the_others_go_on() {
    for count in [16, 2] {
        let mut rates = vec![1e8; count];
        rates[count - 1] = 1e7;
        let mut world = World::new(paths(&rates, 0.02));
        world.run(secs(5.0));
        assert_eq!(left(&world), [count - 1]);
        let when = seconds(world.receivers[count - 1].left.unwrap());
        assert!(when < 2.0, "it left after {when} s");
        let flood = world.links[count - 1].dropped_before(when);
        println!("{count}: left after {when:.3} s, {flood} packets dropped");
        let used = got(&world, 1.0, 4.9, 1e8);
        assert!(used > 0.9, "{used}");
    }
}

#[test]
fn one_that_is_a_little_slower_sets_the_rate() {
    let mut world = World::new(paths(&[1e8, 6e7], 0.02));
    world.run(secs(5.0));
    assert!(left(&world).is_empty());
    let used = got(&world, 1.0, 4.9, 6e7);
    assert!((0.9..1.05).contains(&used), "{used}");
    assert!(matches!(world.controller.limit().0, Limit::Path(1)));
}

#[test]
fn a_slow_one_that_comes_late_leaves_at_once() {
    let mut spec = paths(&[1e8, 1e8, 1e8, 1e7], 0.02);
    spec.receivers[3].joins = secs(2.0);
    let mut world = World::new(spec);
    world.run(secs(5.0));
    assert_eq!(left(&world), [3]);
    let when = seconds(world.receivers[3].left.unwrap());
    assert!(when < 3.7, "{when}");
    let used = got(&world, 2.0, 4.9, 1e8);
    assert!(used > 0.93, "{used}");
}

/// A copy may be over before a slow receiver's first packets are through its queue. Then the source
/// waits for what that one misses.
#[test]
fn who_is_left_alone_with_a_hundredth_uses_its_path() {
    let paths_of = |rate| paths(&[&[rate], [2e8; 15].as_slice()].concat(), 2e-4);
    for (rate, queue) in [(1e6, 100.0), (1e6, 20.0), (2e6, 20.0), (1e7, 100.0)] {
        for (alone, waits) in [(0.07, 0.0), (0.3, 0.0), (0.1, 1.1), (0.07, 0.3), (0.2, 3.0)] {
            let mut spec = paths_of(rate);
            spec.links[0].queue = queue * f64::from(PACKET);
            spec.pause = (waits > 0.0).then_some((secs(alone), secs(alone + waits)));
            let mut world = World::new(spec);
            world.run(secs(alone));
            (1..16).for_each(|other| world.leave(other));
            world.run(secs(20.0));
            let used = got(&world, 5.0, 19.9, rate);
            println!("{rate} {queue} {alone} {waits}: {used:.3}");
            assert!(used > 0.9, "{used}");
        }
    }
}

#[test]
fn a_receiver_of_random_loss_stays() {
    let mut spec = paths(&[1e8; 8], 0.02);
    spec.receivers[5].loss = 0.2;
    (spec.receivers[6].loss, spec.receivers[6].burst) = (0.1, 10.0);
    let mut world = World::new(spec);
    world.run(secs(5.0));
    assert!(left(&world).is_empty());
    let used = got(&world, 1.0, 4.9, 1e8);
    assert!(used > 0.9, "{used}");
}

#[test]
fn the_operator_says_whose_path_counts() {
    let rates = [1e8, 1e8, 4e7, 1e7];
    for (pace_to, min_rate, rate, gone) in [
        (PaceTo::All, None, 1e7, vec![]),
        (PaceTo::All, Rate::from_bits_per_s(2e7 as u64), 4e7, vec![3]),
        (PaceTo::Percentile(75), None, 4e7, vec![3]),
        (PaceTo::Percentile(50), None, 1e8, vec![2, 3]),
        (PaceTo::Percentile(100), None, 1e7, vec![]),
        (PaceTo::Most, None, 1e8, vec![2, 3]),
    ] {
        let mut spec = paths(&rates, 0.02);
        (spec.config.pace_to, spec.config.min_rate) = (pace_to, min_rate);
        let mut world = World::new(spec);
        for step in 1..=120 {
            world.run(secs(f64::from(step) * 0.05));
            let behind = (0..rates.len()).filter(|who| world.controller.is_behind(who));
            // Only the operator's least rate parts any of all.
            let all_count = pace_to == PaceTo::All && min_rate.is_none();
            assert!(!all_count || behind.count() == 0, "{step}");
        }
        assert_eq!(left(&world), gone, "{pace_to:?} {min_rate:?}");
        let used = got(&world, 2.0, 5.9, rate);
        assert!((0.88..1.05).contains(&used), "{pace_to:?} {min_rate:?}: {used}");
    }
}

#[test]
fn a_receiver_that_falls_silent_does_not_stop_the_others() {
    let mut spec = paths(&[1e8; 4], 0.02);
    spec.links[3].rates = vec![(0.0, 1e8), (2.0, 0.0), (4.0, 1e8)];
    let mut world = World::new(spec);
    world.run(secs(6.0));
    let used = got(&world, 2.0, 5.9, 1e8);
    assert!(used > 0.85, "{used}");
}

#[test]
fn a_machine_that_drops_packets_is_a_limit() {
    let mut spec = paths(&[1e8; 2], 0.02);
    for receiver in &mut spec.receivers {
        receiver.host = Some(HostSpec { stalls: 0.0, stamps: true, ..host(6e7) });
    }
    let mut world = World::new(spec);
    world.run(secs(5.0));
    assert!(
        matches!(world.controller.limit().0, Limit::Machine(_)),
        "{:?}",
        world.controller.limit()
    );
    let used = got(&world, 1.0, 4.9, 6e7);
    assert!(used > 0.65, "{used}");
    let sent = world.sent as f64 / world.receivers[0].received as f64;
    assert!(sent < 1.4, "{sent}");
}

/// Runs, and returns how much of a rate all receivers got after a second, and packets sent for each
/// that the one received which received the least.
fn settled(world: &mut World, time: f64, rate: f64) -> (f64, f64) {
    world.run(secs(1.0));
    let received = |world: &World| -> Vec<u64> {
        world.receivers.iter().map(|receiver| receiver.received).collect()
    };
    let (sent, before) = (world.sent, received(world));
    world.run(secs(time));
    let got = received(world).iter().zip(before).map(|(after, before)| after - before).min();
    let got = got.unwrap() as f64;
    let used = got * f64::from(PACKET) * 8.0 / rate / (time - 1.0);
    (used, (world.sent - sent) as f64 / got.max(1.0))
}

#[test]
fn receivers_whose_machines_stall_stay() {
    for (link, rate) in [(2e8, 2e8), (1e9, 4e8)] {
        let mut world = World::new(busy(link, 4e8, 16));
        let (used, sent) = settled(&mut world, 2.5, rate);
        assert!(left(&world).is_empty(), "{link}: {:?} left", left(&world));
        assert!(used > 0.7, "{link}: {used}");
        assert!(sent < 1.25, "{link}: {sent}");
    }
}

#[test]
#[ignore = "takes a minute"]
fn many_receivers_whose_machines_stall_stay() {
    for (link, takes, counts) in [
        (1e8, 2e9, true),
        (1e9, 2e9, true),
        (1e10, 2e9, true),
        (1e10, 2e9, false),
        (1e11, 2e9, true),
        (2e8, 4e7, true),
    ] {
        let rate = f64::min(link, takes);
        for count in [1, 4, 16] {
            for seed in 1..=3 {
                let mut spec = busy(link, takes, count);
                spec.seed = seed;
                for receiver in &mut spec.receivers {
                    receiver.host.as_mut().unwrap().counts = counts;
                }
                let mut world = World::new(spec);
                let (used, sent) = settled(&mut world, 3.0, rate);
                let mbit = [link / 1e6, takes / 1e6];
                println!("{count:3} of {mbit:?} Mbit/s, {counts}: used {used:.3} sent {sent:.3}");
                assert!(left(&world).is_empty(), "{:?} left", left(&world));
                assert!(used > 0.65, "{used}");
                assert!(sent < 1.3, "{sent}");
            }
        }
    }
}

#[test]
fn one_at_a_hundredth_leaves_once_and_the_others_go_on() {
    for count in [2, 4, 16] {
        let mut rates = vec![2e8; count];
        rates[count - 1] = 2e6;
        let mut world = World::new(paths(&rates, 0.005));
        world.run(secs(4.0));
        assert_eq!(left(&world), [count - 1]);
        let when = seconds(world.receivers[count - 1].left.unwrap());
        assert!(when < 2.0, "it left after {when} s");
        let used = got(&world, 2.0, 3.9, 2e8);
        assert!(used > 0.9, "{used}");
    }
}

#[test]
fn reports_of_a_thousand_take_a_hundredth_of_the_rate() {
    for (rate, bound) in [(1e6, 0.015), (2e7, 0.01)] {
        let mut spec = shared(rate, 0.02, 1000);
        for n in 0..1000 {
            spec.receivers[n].loss = 0.001 * (n % 20) as f64;
        }
        let mut world = World::new(spec);
        world.run(secs(2.0));
        let reports = |world: &World| -> u64 {
            world.receivers.iter().map(|receiver| receiver.sent_reports).sum()
        };
        let before = reports(&world);
        world.run(secs(8.0));
        let share = (reports(&world) - before) as f64 * 800.0 / (rate * 6.0);
        println!("{before} reports in the first 2 s");
        assert!(before < 1_000, "{before}");
        let used = got(&world, 1.0, 7.9, rate);
        println!("{rate}: reports {share:.4} of the rate, used {used:.3}");
        assert!(left(&world).is_empty());
        assert!(share < bound, "{share}");
        assert!(used > 0.85, "{used}");
    }
}

#[test]
fn trouble_of_one_in_a_thousand_is_heard() {
    let mut spec = paths(&[2e7; 300], 0.02);
    spec.links[200].rates = vec![(0.0, 2e7), (4.0, 2e6)];
    let mut world = World::new(spec);
    world.run(secs(8.0));
    assert_eq!(left(&world), [200]);
    let when = seconds(world.receivers[200].left.unwrap());
    assert!(when < 7.0, "{when}");
}
