//! Small groups on bad networks, where every unit is delivered once and in order. The number of
//! seeds is `UMBEL_SEEDS`; the whole suite has passed with 1,000 and more. A failure
//! prints the seed and the units that every member received.

use super::*;
use crate::link::{LinkSpec, Loss, ScriptedLoss};
use crate::network::{Network, NodeId};
use crate::packet::{FlowId, Kinds};
use crate::random::{below, stream};
use crate::simulation::Simulation;

const GROUP: u32 = 3;

fn at(seconds: u64) -> Instant {
    Instant::EPOCH + Duration::from_secs(seconds)
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Creates a random tree of routers, and `hosts` hosts at random places of it. All links have this
/// loss in both directions.
fn tree(seed: u64, hosts: usize, loss: f64) -> (Network, Vec<NodeId>) {
    let mut random = stream(seed, Purpose::Topology, 0);
    let mut network = Network::new();
    let mut link = |network: &mut Network, a, b| {
        let delay = ms(1 + below(&mut random, 30));
        let spec = LinkSpec { delay, loss: Loss::Bernoulli(loss), ..LinkSpec::default() };
        network.link(a, b, spec.clone(), spec).unwrap();
        below(&mut random, 1 << 32) as usize
    };
    let mut routers = vec![network.router("r0")];
    let mut draw = seed as usize;
    for n in 1..3 {
        let router = network.router(format!("r{n}"));
        draw = link(&mut network, routers[draw % routers.len()], router);
        routers.push(router);
    }
    let hosts = (0..hosts)
        .map(|n| {
            let host = network.host(format!("h{n}"));
            draw = link(&mut network, routers[draw % routers.len()], host);
            host
        })
        .collect();
    (network, hosts)
}

fn member(simulation: &Simulation, node: NodeId) -> &MemberHost {
    simulation.app::<MemberHost>(node).unwrap()
}

/// Checks that `node` received all `count` units from unit `first` on, once and in order.
#[track_caller]
fn assert_all(simulation: &Simulation, node: NodeId, source: NodeId, first: u64, count: u64) {
    let got = member(simulation, node).host().received(id_of(source)).copied();
    let right =
        got.is_some_and(|got| (got.first, got.next, got.wrong, got.lost) == (first, count, 0, 0));
    assert!(right, "{node:?} got of {source:?}: {got:?} instead of {first} to {count}");
}

/// Runs to the end of `seconds`, or longer until these members have everything that was sent. The
/// time of a recovery has no upper bound where requests and repairs are lost.
fn run(simulation: &mut Simulation, seconds: u64, done: impl Fn(&Simulation) -> bool) {
    for more in 0..100 {
        simulation.run_until(at(seconds + 10 * more));
        if done(simulation) {
            return;
        }
    }
}

/// Returns whether these members received everything up to `count` from all these sources.
fn all_came(simulation: &Simulation, hosts: &[NodeId], sources: &[NodeId], count: u64) -> bool {
    hosts.iter().all(|&host| {
        let app = member(simulation, host).host();
        sources.iter().filter(|&&source| source != host).all(|&source| {
            app.received(id_of(source)).is_some_and(|received| received.next >= count)
        })
    })
}

/// Runs a test for each seed, and names the one that failed.
fn for_each_seed(test: impl Fn(u64) + std::panic::RefUnwindSafe) {
    for seed in umbel_seeds::seeds(60) {
        if let Err(panic) = std::panic::catch_unwind(|| test(seed)) {
            eprintln!("seed {seed} failed");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn every_unit_comes_once_and_in_order_where_all_links_lose_a_third() {
    for_each_seed(|seed| {
        let (network, hosts) = tree(seed, 5, 0.3);
        let mut simulation = Simulation::new(network, seed);
        for (n, &host) in hosts.iter().enumerate() {
            let mut participant = Participant::default();
            // Two of the members are sources.
            if n < 2 {
                participant.send_stream(ms(1000 + 7 * n as u64), ms(40), 30, 100);
            }
            let mut config = config(host, GROUP);
            config.adaptive = seed % 2 == 1;
            config.local_scope = (seed % 3 == 2).then_some(2);
            simulation.set_app(host, participant.host(config, seed), Instant::EPOCH).unwrap();
        }
        run(&mut simulation, 10, |simulation| all_came(simulation, &hosts, &hosts[..2], 30));
        for &host in &hosts {
            for &source in hosts[..2].iter().filter(|&&source| source != host) {
                assert_all(&simulation, host, source, 0, 30);
            }
        }
    });
}

#[test]
fn both_sides_of_a_partition_have_everything_when_it_heals() {
    for_each_seed(|seed| {
        let mut network = Network::new();
        let spec = LinkSpec { delay: ms(5), loss: Loss::Bernoulli(0.3), ..LinkSpec::default() };
        let (left, right) = (network.router("left"), network.router("right"));
        let hosts: Vec<NodeId> = (0..6)
            .map(|n| {
                let host = network.host(format!("h{n}"));
                let router = if n % 2 == 0 { left } else { right };
                network.link(router, host, spec.clone(), spec.clone()).unwrap();
                host
            })
            .collect();
        let cut = LinkSpec { schedule: vec![(at(3), false), (at(20), true)], ..spec };
        network.link(left, right, cut.clone(), cut).unwrap();
        let mut simulation = Simulation::new(network, seed);
        for (n, &host) in hosts.iter().enumerate() {
            let mut participant = Participant::default();
            if n < 2 {
                participant.send_stream(ms(1000), ms(200), 50, 100);
            }
            let config = config(host, GROUP);
            simulation.set_app(host, participant.host(config, seed), Instant::EPOCH).unwrap();
        }
        run(&mut simulation, 30, |simulation| all_came(simulation, &hosts, &hosts[..2], 50));
        for &host in &hosts {
            for &source in hosts[..2].iter().filter(|&&source| source != host) {
                assert_all(&simulation, host, source, 0, 50);
            }
        }
    });
}

#[test]
fn members_that_come_and_go_every_second_get_everything_meanwhile() {
    const UNITS: u64 = 150;
    for_each_seed(|seed| {
        let (network, hosts) = tree(seed, 18, 0.3);
        let mut simulation = Simulation::new(network, seed);
        for (n, &host) in (0_u64..).zip(&hosts) {
            let mut participant = Participant::default();
            if n == 0 {
                participant.send_stream(ms(500), ms(100), UNITS as u32, 100);
            } else if n % 3 != 0 {
                // A host joins every second, and most of them leave again.
                participant.leave_after(Duration::from_secs(2 + n % 5));
            }
            let mut config = config(host, GROUP);
            config.recover_from_horizon = seed % 2 == 0;
            simulation.set_app(host, participant.host(config, seed), at(n)).unwrap();
        }
        // A member that joins after the last unit gets units only by recovering from the horizon.
        let came_before = if seed % 2 == 0 { hosts.len() } else { 14 };
        let staying: Vec<NodeId> =
            (1..came_before).filter(|n| n % 3 == 0).map(|n| hosts[n]).collect();
        run(&mut simulation, 30, |simulation| all_came(simulation, &staying, &hosts[..1], UNITS));
        let source = id_of(hosts[0]);
        for (n, &host) in (1_u64..).zip(&hosts[1..]) {
            let app = member(&simulation, host).host();
            let stays = n % 3 == 0;
            if stays && seed % 2 == 0 {
                assert_all(&simulation, host, hosts[0], 0, UNITS);
            } else if stays && n < 14 {
                let got = app.received(source).copied();
                let ok = got.is_some_and(|g| (g.next, g.wrong, g.lost) == (UNITS, 0, 0));
                assert!(ok, "{host:?} stays and got {got:?}");
            } else if let Some(got) = app.received(source) {
                assert_eq!((got.wrong, got.lost), (0, 0), "{host:?} got {got:?}");
            }
        }
    });
}

#[test]
fn what_a_vanished_source_sent_is_repaired_by_whoever_holds_it() {
    for_each_seed(|seed| {
        let mut network = Network::new();
        let router = network.router("r");
        let clean = LinkSpec { delay: ms(5), ..LinkSpec::default() };
        let hosts: Vec<NodeId> = (0..4).map(|n| network.host(format!("h{n}"))).collect();
        for &host in &hosts[..3] {
            network.link(router, host, clean.clone(), clean.clone()).unwrap();
        }
        let lossy = LinkSpec { loss: Loss::Bernoulli(0.5), ..clean };
        network.link(router, hosts[3], lossy.clone(), lossy).unwrap();
        let mut simulation = Simulation::new(network, seed);
        for (n, &host) in hosts.iter().enumerate() {
            let mut participant = Participant::default();
            if n == 0 {
                participant.send_stream(ms(1000), ms(10), 20, 100);
                participant.leave_after(ms(1200));
            }
            let config = config(host, GROUP);
            simulation.set_app(host, participant.host(config, seed), Instant::EPOCH).unwrap();
        }
        run(&mut simulation, 10, |simulation| all_came(simulation, &hosts[1..], &hosts[..1], 20));
        for &host in &hosts[1..] {
            assert_all(&simulation, host, hosts[0], 0, 20);
        }
    });
}

#[test]
fn measured_distances_are_those_of_the_network() {
    let mut network = Network::new();
    let router = network.router("r");
    let hosts: Vec<NodeId> = (0..4)
        .map(|n| {
            let host = network.host(format!("h{n}"));
            let spec = LinkSpec { delay: ms(1 + 10 * n), ..LinkSpec::default() };
            network.link(router, host, spec.clone(), spec).unwrap();
            host
        })
        .collect();
    let mut simulation = Simulation::new(network, 5);
    for &host in &hosts {
        let app = Participant::default().host(config(host, GROUP), 5);
        simulation.set_app(host, app, Instant::EPOCH).unwrap();
    }
    simulation.run_until(at(10));
    for (a, &one) in (0_u64..).zip(&hosts) {
        for (b, &other) in (0_u64..).zip(&hosts).filter(|&(b, _)| b != a) {
            let measured = member(&simulation, one).engine().distance(id_of(other));
            assert_eq!(measured, Some(ms(2 + 10 * (a + b))), "{a} to {b}");
        }
        assert_eq!(member(&simulation, one).engine().members(), 4);
    }
}

#[test]
fn one_loss_makes_few_requests_and_repairs() {
    // Twenty receivers behind one lossy link: the same unit is missing at all of them.
    let mut network = Network::new();
    let (source, near, far) = (network.host("s"), network.router("near"), network.router("far"));
    let clean = LinkSpec { delay: ms(10), ..LinkSpec::default() };
    network.link(source, near, clean.clone(), clean.clone()).unwrap();
    let loss = Loss::Script(vec![ScriptedLoss { flow: FlowId(0), nth: 3 }]);
    let lossy = LinkSpec { loss, loss_of: Kinds::NONE.with(Kind::Data), ..clean.clone() };
    network.link(near, far, lossy, clean.clone()).unwrap();
    let receivers: Vec<NodeId> = (0..20)
        .map(|n| {
            let host = network.host(format!("h{n}"));
            network.link(far, host, clean.clone(), clean.clone()).unwrap();
            host
        })
        .collect();
    let mut simulation = Simulation::new(network, 1);
    let observed = |node| {
        let mut config = Config { observe: true, ..config(node, GROUP) };
        config.session.heartbeat = None;
        config
    };
    let mut sender = Participant::default();
    sender.send_stream(Duration::from_secs(10), ms(100), 5, 100);
    simulation.set_app(source, sender.host(observed(source), 1), Instant::EPOCH).unwrap();
    for &host in &receivers {
        let app = Participant::default().host(observed(host), 1);
        simulation.set_app(host, app, Instant::EPOCH).unwrap();
    }
    simulation.run_until(at(20));
    let unit = Unit { source: id_of(source), sequence: 2 };
    let seen: Vec<Recovery> = receivers
        .iter()
        .map(|&host| member(&simulation, host).host().recoveries()[&unit])
        .collect();
    let requests: u32 = seen.iter().map(|r| r.requests_sent).sum();
    assert!((1..=8).contains(&requests), "{requests} requests");
    for recovery in &seen {
        // Detected when unit 3 arrived, repaired within a few round trips of 60 ms.
        assert_eq!(recovery.detected, Some(at(10) + ms(330)));
        assert!(recovery.latency.is_some_and(|l| l < ms(400)), "{recovery:?}");
        assert_eq!(recovery.requests_sent + recovery.requests_heard, requests);
    }
    let source = member(&simulation, source).host().recoveries()[&unit];
    assert_eq!((source.requests_heard, source.repairs_sent), (requests, 1));
}
