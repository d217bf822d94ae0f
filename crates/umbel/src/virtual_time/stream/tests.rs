//! Receivers show what their paths carry, and leave when they end.

use super::super::for_seeds;
use super::world::{Scenario, WatchEnd, World};

/// Levels that the sites' links carry by default.
const LEVELS: [usize; 3] = [3, 2, 1];

#[test]
fn each_receiver_gets_what_its_path_carries_and_little_is_lost() {
    for_seeds(3, |seed| {
        let mut world = World::new(&Scenario::default(), seed);
        world.run_until(240.0);
        for (number, member) in world.members.iter().enumerate() {
            let summary = world.watched(number);
            let level = LEVELS[member.site];
            let share = summary.at_level[level] / summary.seconds;
            let what = format!("seed {seed}, site {}: {summary:?}", member.site);
            assert!(share > 0.5, "{share:.2} of the time at level {level}: {what}");
            assert!(summary.failure.is_none(), "{what}");
        }
        for site in 0..LEVELS.len() {
            let (packets, dropped) = world.dropped(site);
            let loss = dropped as f64 / packets as f64;
            assert!(
                loss < 0.03,
                "seed {seed}, site {site}: {loss:.3} lost {:?} {:?}",
                world.watched(4),
                world.watched(5)
            );
        }
        let (sent, stats) = world.sent();
        assert_eq!((sent.dropped, sent.left_out, sent.failure), (0, 0, None));
        assert_eq!(stats.receivers, world.members.len() as u64, "{stats:?}");
    });
}

#[test]
fn pictures_are_shown_at_each_site_and_better_where_more_arrives() {
    for_seeds(1, |seed| {
        let scenario = Scenario {
            encoded: true,
            base: 48_000,
            sites: vec![750_000, 225_000, 80_000],
            receivers: 1,
            ..Scenario::default()
        };
        let mut world = World::new(&scenario, seed);
        world.run_until(40.0);
        let means = [0, 1, 2].map(|number| {
            let qualities = &world.watcher(number).outside().qualities;
            let late = &qualities[qualities.len() / 2..];
            late.iter().sum::<f64>() / late.len() as f64
        });
        println!("seed {seed}: {means:.1?} dB");
        assert!(means[2] > 22.0 && means[0] > means[2], "seed {seed}: {means:.1?} dB");
        for number in 0..3 {
            let screen = world.watched(number).screen;
            assert!(screen.shown > 300, "seed {seed}: {screen:?}");
            assert_eq!(screen.refused, 0, "seed {seed}: {screen:?}");
        }
    });
}

#[test]
fn the_base_is_whole_at_five_per_cent_of_loss_and_no_picture_freezes() {
    for_seeds(1, |seed| {
        let scenario = Scenario {
            encoded: true,
            base: 48_000,
            receivers: 1,
            sites: vec![1_000_000],
            loss: 0.05,
            ..Scenario::default()
        };
        let mut world = World::new(&scenario, seed);
        world.run_until(5.0);
        let before = world.base(0);
        world.run_until(40.0);
        let base = world.base(0);
        let share = (base.0 - before.0) as f64 / (base.1 - before.1) as f64;
        assert!(share > 0.97, "seed {seed}: {share:.3} of the base");
        let summary = world.watched(0);
        assert!(summary.lost > 0 && summary.restored > 0, "seed {seed}: {summary:?}");
        let worst = world.watcher(0).outside().qualities[50..].iter().copied().fold(99.0, f64::min);
        assert!(worst > 18.0, "seed {seed}: {worst:.1} dB");
    });
}

#[test]
fn a_fifth_of_the_upper_layers_may_be_lost_and_no_picture_freezes() {
    for_seeds(1, |seed| {
        let scenario = Scenario {
            encoded: true,
            base: 48_000,
            receivers: 1,
            sites: vec![1_000_000],
            spoilt: Some(5),
            ..Scenario::default()
        };
        let mut world = World::new(&scenario, seed);
        world.run_until(40.0);
        assert_eq!(world.watched(0).level, 3, "seed {seed}");
        let qualities = &world.watcher(0).outside().qualities[20..];
        let worst = qualities.iter().copied().fold(99.0, f64::min);
        let frozen = qualities
            .windows(4)
            .any(|four| four.iter().all(|one| one.to_bits() == four[0].to_bits()));
        assert!(worst > 18.0 && !frozen, "seed {seed}: {worst:.1} dB, frozen: {frozen}");
    });
}

#[test]
fn a_layer_that_never_comes_leaves_the_picture_of_those_below_it() {
    for_seeds(1, |seed| {
        let scenario = Scenario {
            encoded: true,
            base: 48_000,
            receivers: 1,
            sites: vec![1_000_000],
            missing: Some(1),
            ..Scenario::default()
        };
        let mut world = World::new(&scenario, seed);
        world.run_until(30.0);
        let qualities = &world.watcher(0).outside().qualities[20..];
        let worst = qualities.iter().copied().fold(99.0, f64::min);
        assert!(worst > 18.0, "seed {seed}: {worst:.1} dB");
        assert_eq!(world.watched(0).screen.refused, 0, "seed {seed}");
    });
}

#[test]
fn a_path_that_is_cut_for_a_while_carries_pictures_again() {
    for_seeds(5, |seed| {
        let scenario = Scenario { outage: Some((40.0, 46.0)), ..Scenario::default() };
        let mut world = World::new(&scenario, seed);
        world.run_until(45.0);
        let during = world.watched(0).packets;
        world.run_until(120.0);
        let summary = world.watched(0);
        assert!(summary.failure.is_none() && summary.packets > during + 500, "{summary:?}");
        assert!(world.watched(4).failure.is_none(), "seed {seed}");
    });
}

#[test]
fn a_receiver_without_a_path_gives_up_and_says_why() {
    for_seeds(5, |seed| {
        let scenario = Scenario { outage: Some((20.0, 500.0)), ..Scenario::default() };
        let mut world = World::new(&scenario, seed);
        world.run_until(60.0);
        for number in 0..world.members.len() {
            let failed = world.watched(number).failure;
            let cut = world.members[number].site == 0;
            assert_eq!(failed.is_some(), cut, "seed {seed}, {number}: {failed:?}");
        }
    });
}

#[test]
fn who_is_ended_leaves_all_channels_and_so_does_its_site() {
    for end in [WatchEnd::Interrupted, WatchEnd::Closed] {
        for_seeds(5, |seed| {
            let scenario =
                Scenario { receivers: 1, first: Some((60.0, end)), ..Scenario::default() };
            let mut world = World::new(&scenario, seed);
            world.run_until(60.5);
            let carried = world.carried(0);
            world.run_until(80.0);
            assert_eq!(world.carried(0), carried, "seed {seed}, {end:?}");
            let summary = world.watched(0);
            assert_eq!(summary.interrupted, end == WatchEnd::Interrupted);
            assert_eq!(summary.closed, end == WatchEnd::Closed);
            assert!(world.watched(1).packets > 0 && world.carried(1) > 0);
        });
    }
}

#[test]
fn a_receiver_that_crashes_holds_nobody_down() {
    for_seeds(5, |seed| {
        let scenario = Scenario { first: Some((30.0, WatchEnd::Crash)), ..Scenario::default() };
        let mut world = World::new(&scenario, seed);
        world.run_until(240.0);
        for number in [1, 2, 3, 4, 5] {
            let summary = world.watched(number);
            let level = LEVELS[world.members[number].site];
            let share = summary.at_level[level] / summary.seconds;
            assert!(share > 0.4, "seed {seed}, {number}: {summary:?}");
        }
    });
}

#[test]
fn the_end_of_the_stream_is_the_end_of_everyone() {
    for (ends, interrupted) in [(Some(20.0), None), (None, Some(20.0))] {
        for_seeds(3, |seed| {
            let scenario = Scenario { ends, interrupted, ..Scenario::default() };
            let mut world = World::new(&scenario, seed);
            world.run_until(30.0);
            let (sent, _) = world.sent();
            assert_eq!(sent.interrupted, interrupted.is_some());
            for number in 0..world.members.len() {
                let summary = world.watched(number);
                assert!(summary.over && summary.failure.is_none(), "seed {seed}: {summary:?}");
            }
        });
    }
}

#[test]
fn receivers_of_a_source_that_crashed_end_with_a_reason() {
    for_seeds(3, |seed| {
        let mut world = World::new(&Scenario { crashes: Some(20.0), ..Scenario::default() }, seed);
        world.run_until(40.0);
        for number in 0..world.members.len() {
            let failure = world.watched(number).failure.unwrap_or_default();
            assert!(failure.contains("nothing has come for 10 s"), "seed {seed}: {failure}");
        }
    });
}

#[test]
fn a_camera_that_stalls_for_a_moment_ends_nothing() {
    for_seeds(3, |seed| {
        let scenario = Scenario { stall: Some((30.0, 38.0)), ..Scenario::default() };
        let mut world = World::new(&scenario, seed);
        world.run_until(60.0);
        assert_eq!(world.sent().0.failure, None);
        for number in 0..world.members.len() {
            let summary = world.watched(number);
            assert!(summary.failure.is_none(), "seed {seed}: {summary:?}");
        }
    });
}
