//! Loss, receivers that join, leave and fail, and links that are cut.

use super::*;
use crate::random::{Purpose as Draw, below, stream};

/// Number of seeds of each kind of trouble.
const SEEDS: u64 = 40;

fn lossy(plan: Plan) -> Plan {
    Plan { loss: (0.05, 0.03), ..plan }
}

#[test]
fn whatever_is_lost_comes_in_the_end() {
    for seed in 0..SEEDS / 2 {
        for plan in [PACKETS, BLOCKS, Plan { fec: false, ..BLOCKS }] {
            let mut world = World::new(lossy(plan), seed, |_, spec| spec);
            world.begin_all();
            let all = world.receivers.clone();
            world.run_until_complete(&all);
            world.check(&all, &format!("seed {seed}, blocks of {}", plan.block_symbols));
        }
    }
}

#[test]
fn those_who_stay_have_everything_although_others_come_and_leave() {
    for seed in 0..SEEDS {
        let mut world = World::new(lossy(BLOCKS), seed, |_, spec| spec);
        let mut random = stream(seed, Draw::Workload, 1);
        let mut staying = Vec::new();
        for node in world.receivers.clone() {
            let mut application = Receiver::default();
            let begin = match below(&mut random, 3) {
                0 => after(at(START), below(&mut random, 4_000)),
                _ => after(Instant::EPOCH, below(&mut random, 1_000)),
            };
            if below(&mut random, 3) == 0 {
                application.leave_at(after(at(START), below(&mut random, 6_000)));
            } else {
                staying.push(node);
            }
            world.begin(node, application, begin);
        }
        world.run_until_complete(&staying);
        world.check(&staying, &format!("seed {seed}"));
    }
}

#[test]
fn managers_that_fail_are_replaced_and_nothing_is_lost() {
    for seed in 0..SEEDS {
        let mut world = World::new(lossy(BLOCKS), seed, |_, spec| spec);
        world.begin_all();
        world.simulation.run_until(at(START - 1));
        let mut random = stream(seed, Draw::Workload, 2);
        let mut managers = world.managers();
        let mut living = world.receivers.clone();
        for _ in 0..2 {
            let number = below(&mut random, managers.len() as u64) as usize;
            let failing = managers.swap_remove(number);
            living.retain(|node| *node != failing);
            let when = after(at(START), below(&mut random, 4_000));
            let host = world.simulation.app_mut::<ReceiverHost>(failing).unwrap();
            host.crash_at(when);
        }
        world.run_until_complete(&living);
        world.check(&living, &format!("seed {seed}"));
    }
}

#[test]
fn a_part_that_was_cut_off_catches_up() {
    for seed in 0..SEEDS {
        let mut random = stream(seed, Draw::Workload, 3);
        let cut = below(&mut random, 2) as usize;
        let from = after(at(START), below(&mut random, 3_000));
        let until = after(from, 500 + below(&mut random, 8_000));
        let mut world = World::new(lossy(BLOCKS), seed, |link, spec| {
            let schedule =
                if link == cut { vec![(from, false), (until, true)] } else { Vec::new() };
            LinkSpec { schedule, ..spec }
        });
        world.begin_all();
        let all = world.receivers.clone();
        world.run_until_complete(&all);
        world.check(&all, &format!("seed {seed}, link {cut} from {from:?} to {until:?}"));
    }
}
