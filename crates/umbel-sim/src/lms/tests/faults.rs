use super::*;

fn lossy(loss: f64) -> Treatment {
    Treatment { loss, cut: None }
}

#[test]
fn everything_comes_with_a_loss_of_30_percent_on_every_link_both_ways() {
    for_seeds(200, |seed| {
        let net = Net::random(seed, &lossy(0.3));
        let mut run = Run::new(&net, seed, UNITS, |_| true, |_, _, _| {});
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "30 % loss");
    });
}

#[test]
fn everything_comes_in_two_steps_too() {
    for_seeds(100, |seed| {
        let net = Net::random(seed, &lossy(0.3));
        let two_step = |_, config: &mut ReceiverConfig, _: &mut Receiver| config.two_step = true;
        let mut run = Run::new(&net, seed, UNITS, |_| true, two_step);
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "two steps");
    });
}

/// Returns the receiver that hears a request first, and the time in whole milliseconds.
fn first_replier(net: &Net, seed: u64) -> Option<(usize, u64)> {
    let mut run = Run::new(net, seed, UNITS, |_| true, |_, _, _| {});
    (100..3_000).find_map(|now| {
        run.simulation.run_until(ms(now));
        let hears = |node: &NodeId| run.engine(*node).stats().requests_heard > 0;
        net.receivers.iter().position(hears).map(|replier| (replier, now))
    })
}

#[test]
fn a_replier_may_crash_while_a_request_is_on_its_way_to_it() {
    let crashes = std::cell::Cell::new(0);
    for_seeds(200, |seed| {
        let net = Net::random(seed, &lossy(0.3));
        let Some((replier, at)) = first_replier(&net, seed) else { return };
        // The run is the same up to the moment before the request arrives.
        let mut run = Run::new(&net, seed, UNITS, |_| true, |_, _, _| {});
        run.crash(net.receivers[replier], ms(at - 1));
        let others: Vec<NodeId> =
            net.receivers.iter().copied().filter(|node| *node != net.receivers[replier]).collect();
        run.until_complete(&others, ms(600_000));
        run.assert_complete(&others, "a replier crashes");
        crashes.set(crashes.get() + 1);
    });
    assert!(crashes.get() > 0, "no receiver was ever asked");
}

#[test]
fn a_router_may_restart_and_lose_its_soft_state() {
    for_seeds(200, |seed| {
        let net = Net::random(seed, &lossy(0.3));
        let mut run = Run::new(&net, seed, UNITS, |_| true, |_, _, _| {});
        for restart in 0..3 {
            run.simulation.run_until(ms(150 + restart * 100 + seed % 100));
            let node = net.routers[(seed + restart) as usize % net.routers.len()];
            let fresh = router_engine(node, seed + restart + 1, |_| {});
            *run.simulation.router_hook_mut::<RouterHook>(node).unwrap().engine_mut() = fresh;
        }
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "routers restart");
    });
}

#[test]
fn a_partition_heals() {
    for_seeds(200, |seed| {
        let cut = Some((ms(150 + seed % 200), ms(1_000 + seed * 7 % 4_000)));
        let net = Net::random(seed, &Treatment { loss: 0.3, cut });
        let mut run = Run::new(&net, seed, UNITS, |_| true, |_, _, _| {});
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "a partition heals");
    });
}

#[test]
fn receivers_may_join_and_leave_every_second() {
    for_seeds(100, |seed| {
        let net = Net::random(seed, &lossy(0.3));
        // Half of the receivers leave and join repeatedly, and are members at the end.
        let comes_and_goes = |number: usize| number % 2 == 1;
        let change = |number, _: &mut ReceiverConfig, receiver: &mut Receiver| {
            if comes_and_goes(number) {
                receiver.set_changes((1..=6).map(|n| ms(n * 500 + number as u64 * 37)));
            }
        };
        let mut run = Run::new(&net, seed, 150, |_| true, change);
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "churn");
    });
}

#[test]
fn some_routers_or_all_may_be_without_lms() {
    for_seeds(200, |seed| {
        let net = Net::random(seed, &lossy(0.3));
        let has_lms = |number: usize| (seed / 2) >> number & 1 == 1 && seed % 8 != 0;
        let mut run = Run::new(&net, seed, UNITS, has_lms, |_, _, _| {});
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "partial deployment");
    });
}

#[test]
fn a_replier_that_hardly_ever_answers_holds_nobody_up() {
    for_seeds(100, |seed| {
        let net = Net::random(seed, &lossy(0.3));
        // It offers itself at cost 0, and is there when routers ask.
        let lazy = |number, config: &mut ReceiverConfig, _: &mut Receiver| {
            if number == 0 {
                config.cost = lms::config::Cost::Fixed(Some(0));
                config.replier.repairs = umbel_engine::bucket::Limit { per_s: 1, burst: 1 };
            }
        };
        let mut run = Run::new(&net, seed, UNITS, |_| true, lazy);
        run.until_complete(&net.receivers, ms(600_000));
        run.assert_complete(&net.receivers, "a lazy replier");
    });
}

#[test]
#[ignore = "a soak: a thousand seeds with everything at once"]
fn everything_at_once() {
    for_seeds(1_000, |seed| {
        let cut = Some((ms(200 + seed % 300), ms(1_000 + seed * 7 % 2_000)));
        let net = Net::random(seed, &Treatment { loss: 0.3, cut });
        let change = |number, config: &mut ReceiverConfig, receiver: &mut Receiver| {
            config.two_step = seed % 3 == 0;
            config.units_per_request = 1 + (seed % 5) as u8;
            if number == 2 {
                receiver.set_changes((1..=4).map(|n| ms(n * 500)));
            }
        };
        let has_lms = |number: usize| !(seed >> number).is_multiple_of(5);
        let mut run = Run::new(&net, seed, 60, has_lms, change);
        run.crash(net.receivers[1], ms(250 + seed % 500));
        let mut others = net.receivers.clone();
        others.remove(1);
        run.until_complete(&others, ms(3_600_000));
        run.assert_complete(&others, "everything at once");
    });
}

#[test]
fn a_run_is_a_function_of_the_seed() {
    let run = |seed| {
        let net = Net::random(seed, &lossy(0.3));
        let mut run = Run::new(&net, seed, UNITS, |_| true, |_, _, _| {});
        run.until_complete(&net.receivers, ms(600_000));
        (run.simulation.now(), *run.simulation.counters())
    };
    assert_eq!(run(3), run(3));
    assert_ne!(run(3), run(4));
}

#[test]
fn the_state_of_routers_does_not_grow_with_losses() {
    for seed in 0..20 {
        let net = Net::random(seed, &lossy(0.3));
        let degree = |router: NodeId| {
            net.network.links().filter(|(_, a, b)| *a == router || *b == router).count()
        };
        let mut run = Run::new(&net, seed, 300, |_| true, |_, _, _| {});
        // Requests are under way as long as units are sent, and some time longer.
        for now in (0..10_000).step_by(10) {
            run.simulation.run_until(ms(now));
            for &node in &net.routers {
                // State: the channel, and for each interface two offers and a count of requests.
                let state = run.router(node).state_len();
                assert!(state <= 1 + 3 * degree(node), "seed {seed}: {state} entries at {now} ms");
            }
        }
        let losses: u64 = net.receivers.iter().map(|node| run.engine(*node).stats().losses).sum();
        let stats = net.routers.iter().map(|router| run.router(*router).stats());
        let passed: u64 = stats.map(|s| s.turned + s.sent_up + s.sent_down).sum();
        assert!(losses > 200 && passed > 200, "seed {seed}: {losses} losses, {passed} requests");
    }
}
