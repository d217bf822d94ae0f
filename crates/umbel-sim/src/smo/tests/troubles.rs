//! Receivers that come late, stall, vanish, or lose their helper.

use umbel_engine::smo::{CloseReason, Fairness};

use super::*;

#[test]
fn late_joiners_receive_the_tail() {
    let mut world = World::new(1, &[link(10, 10, 100)]);
    let feed = Feed::frames(600, 1000, Duration::from_millis(10));
    world.begin(1, feed, |_| {});
    let crowd = Crowd::new(&world.session, world.session.receiver_config(), 20, 1)
        .noise(Noise { loss: 0.02, ..Noise::default() })
        .behave(|n| Behaviour {
            connects: Duration::from_millis(190 * n as u64),
            ..Behaviour::default()
        });
    world.crowd(0, crowd);
    world.run(60);
    world.assert_whole(600_000, "late");
    let firsts: Vec<u64> = world.members().map(|member| member.first).collect();
    assert!(firsts.is_sorted() && firsts[0] == 0 && firsts[19] > 200_000, "{firsts:?}");
}

#[test]
fn who_stalls_holds_up_the_others_until_it_reads_again() {
    let mut world = World::new(1, &[link(10, 5, 100)]);
    world.begin(1, Feed::bulk(2_000_000).wait_for(5), |_| {});
    let crowd = Crowd::new(&world.session, world.session.receiver_config(), 5, 1).behave(|n| {
        let stalls = (n == 3).then(|| (at(500), at(8_000)));
        Behaviour { stalls, ..Behaviour::default() }
    });
    world.crowd(0, crowd);
    world.run(60);
    world.assert_whole(2_000_000, "stall");
    assert!(world.members().all(|member| member.ended > Some(at(8_000))));
}

#[test]
fn who_stalls_for_too_long_is_removed_and_the_others_go_on() {
    let mut world = World::new(1, &[link(10, 5, 100)]);
    world.begin(1, Feed::bulk(2_000_000).wait_for(5), |config| {
        config.removal.closed_window = Duration::from_secs(3);
    });
    let crowd = Crowd::new(&world.session, world.session.receiver_config(), 5, 1).behave(|n| {
        let stalls = (n == 3).then(|| (at(500), at(100_000)));
        Behaviour { stalls, ..Behaviour::default() }
    });
    world.crowd(0, crowd);
    world.run(60);
    let removed = &world.source().host().record().removed;
    assert_eq!(
        removed.iter().map(|(_, reason)| *reason).collect::<Vec<_>>(),
        [CloseReason::ClosedWindow]
    );
    for (n, member) in world.members().enumerate() {
        assert_eq!(member.is_whole(2_000_000), n != 3);
        assert!(member.ended.is_none_or(|at_| at_ < at(12_000)));
    }
}

#[test]
fn who_vanishes_is_removed_and_the_others_go_on() {
    for seed in 0..10 {
        let mut world = World::new(seed, &[link(10, 5, 100)]);
        world.begin(seed, Feed::bulk(1_000_000).wait_for(6), |config| {
            config.removal.stall = Duration::from_secs(4);
        });
        let crowd = Crowd::new(&world.session, world.session.receiver_config(), 6, seed)
            .noise(Noise { loss: 0.01, ..Noise::default() })
            .behave(|n| Behaviour { vanishes: (n < 2).then(|| at(300)), ..Behaviour::default() });
        world.crowd(0, crowd);
        for second in 1..60 {
            world.simulation.run_until(at(1000 * second));
        }
        assert_eq!(world.source().host().record().removed.len(), 2, "seed {seed}");
        assert!(world.members().skip(2).all(|m| m.is_whole(1_000_000)), "seed {seed}");
    }
}

#[test]
fn who_loses_the_helper_goes_on_by_unicast() {
    let mut world = World::new(1, &[link(10, 5, 100)]);
    world.begin(1, Feed::bulk(1_000_000).wait_for(6), |_| {});
    let crowd = Crowd::new(&world.session, world.session.receiver_config(), 6, 1)
        .behave(|n| Behaviour { loses_helper: (n < 2).then(|| at(300)), ..Behaviour::default() });
    world.crowd(0, crowd);
    world.run(120);
    world.assert_whole(1_000_000, "no helper");
}

#[test]
fn who_gets_a_new_helper_returns_to_multicast() {
    const LEN: u64 = 10_000_000;
    for seed in 0..5 {
        let mut world = World::new(seed, &[link(20, 5, 100)]);
        world.begin(seed, Feed::bulk(LEN).wait_for(6), |_| {});
        let crowd =
            Crowd::new(&world.session, world.session.receiver_config(), 6, seed).behave(|n| {
                Behaviour {
                    loses_helper: (n < 2).then(|| at(300)),
                    regains_helper: (n < 2).then(|| at(2000)),
                    ..Behaviour::default()
                }
            });
        world.crowd(0, crowd);
        world.run(120);
        world.assert_whole(LEN, "a new helper");
        let alone = world.stats().unicast.bytes;
        println!("seed {seed}: {alone} bytes by unicast, {:?}", world.stats());
        assert!(alone > 0 && alone < LEN / 4, "seed {seed}: {alone} bytes by unicast");
    }
}

#[test]
fn real_time_mode_loses_little_and_waits_for_nobody() {
    let mut world = World::new(1, &[link(10, 20, 100)]);
    let age = Duration::from_millis(500);
    world.begin(1, Feed::frames(500, 1000, Duration::from_millis(20)).wait_for(10), |config| {
        config.mss = 1000;
        config.real_time = Some(age);
        // The stream does not yield to the losses.
        config.fairness = Fairness::Essential { a: 8.0, b: 64.0 };
    });
    let config = ReceiverConfig {
        real_time: Some(Duration::from_millis(400)),
        ..world.session.receiver_config()
    };
    let crowd =
        Crowd::new(&world.session, config, 10, 1).noise(Noise { loss: 0.05, ..Noise::default() });
    world.crowd(0, crowd);
    world.run(60);
    world.assert_whole(500_000, "real time");
    let lost: u64 = world.members().map(|member| member.lost).sum();
    let skipped: u64 = world.members().map(|m| m.receiver().stats().skipped_bytes / 1000).sum();
    assert!(lost > 150 && skipped * 20 < lost, "{skipped} of {lost}");
    assert!(world.members().all(|member| member.ended < Some(at(12_000))));
}
