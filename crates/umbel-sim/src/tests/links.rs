use super::*;
use crate::link::{Loss, Queue, ScriptedLoss};
use crate::simulation::{Outcome, SessionDelay};
use crate::{Counters, NetworkError};

#[test]
fn a_packet_takes_its_rate_and_the_delay_of_every_link() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    let router = network.router("r");
    network.link(a, router, slow().delay(Duration::from_millis(3)), delay_ms(0)).unwrap();
    network.link(router, b, slow().delay(Duration::from_millis(5)), delay_ms(0)).unwrap();
    let script = [(ms(0), Do::Send(b, 0, 255)), (ms(0), Do::Send(b, 1, 255))];
    let mut simulation = scripted(network, &[(a, &script)]);
    assert_eq!(simulation.run_until(ms(100)), Outcome::Idle);
    assert_eq!(got(&simulation, b), [(ms(10), 0), (ms(11), 1)]);
    let Counters { sent, hops, delivered, .. } = *simulation.counters();
    assert_eq!((sent, hops, delivered), (2, 4, 2));
    assert_eq!(simulation.now(), ms(11));
}

#[test]
fn a_run_stops_at_its_end_and_goes_on_from_there() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    network.link(a, b, delay_ms(10), delay_ms(10)).unwrap();
    let mut simulation = scripted(network, &[(a, &[(ms(0), Do::Send(b, 0, 1))])]);
    assert_eq!(simulation.run_until(us(9_999)), Outcome::Reached);
    assert_eq!((simulation.now(), got(&simulation, b).len()), (us(9_999), 0));
    assert_eq!(simulation.run_until(ms(10)), Outcome::Idle);
    assert_eq!(got(&simulation, b), [(ms(10), 0)]);
}

#[test]
fn a_full_queue_and_a_script_lose_exactly_their_packets() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    let script = vec![ScriptedLoss { flow: FlowId(2), nth: 1 }];
    let spec = slow().queue(Queue::DropTailPackets(4)).loss(Loss::Script(script));
    let link = network.link(a, b, spec, delay_ms(0)).unwrap();
    let sends: Vec<_> = (0..6).map(|flow| (ms(0), Do::Send(b, flow, 1))).collect();
    let mut simulation = scripted(network, &[(a, &sends)]);
    simulation.run_until(ms(100));
    // The lost packet has used its time on the link.
    assert_eq!(got(&simulation, b), [(ms(1), 0), (ms(2), 1), (ms(4), 3)]);
    let (there, back) = simulation.link_counters(link);
    assert_eq!((there.packets, there.bytes, there.lost, there.queue_drops), (4, 4_000, 1, 2));
    assert_eq!(back.packets, 0);
}

#[test]
fn hop_limits_count_routers_and_not_switches() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    let [x, y] = ["x", "y"].map(|name| network.router(name));
    let switch = network.switch("switch");
    for (from, to) in [(a, x), (x, switch), (switch, y), (y, b)] {
        network.link(from, to, delay_ms(1), delay_ms(1)).unwrap();
    }
    let script: Vec<_> = (0..5).map(|hops| (ms(0), Do::Send(b, hops, hops as u8))).collect();
    let mut simulation = scripted(network, &[(a, &script)]);
    simulation.run_until(ms(100));
    // Two routers require a limit of three.
    assert_eq!(got(&simulation, b), [(ms(4), 3), (ms(4), 4)]);
    assert_eq!(simulation.app::<Scripted>(b).unwrap().left, [1, 2]);
    assert_eq!(simulation.counters().hop_limit, 3);
}

#[test]
fn packets_without_a_way_are_counted() {
    let mut network = Network::new();
    let (a, b, c) = (network.host("a"), network.host("b"), network.host("c"));
    network.link(a, b, delay_ms(1), delay_ms(1)).unwrap();
    network.link(b, c, delay_ms(1), delay_ms(1)).unwrap();
    let island = network.host("island");
    let script = [(ms(0), Do::Send(island, 0, 255)), (ms(0), Do::Send(c, 0, 255))];
    let mut simulation = scripted(network, &[(a, &script)]);
    simulation.run_until(ms(100));
    // Hosts forward nothing.
    assert_eq!((simulation.counters().no_route, simulation.counters().delivered), (2, 0));
}

#[test]
fn messages_keep_their_order_and_take_their_time() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    let script: Vec<_> = (0..200_u8).map(|n| (ms(u64::from(n)), Do::Say(b, n))).collect();
    let mut simulation = scripted(network, &[(a, &script)]);
    let min = Duration::from_millis(30);
    simulation.set_sessions(SessionDelay { min, mean_extra: Duration::from_millis(20) });
    simulation.run_until(ms(10_000));
    let heard = &simulation.app::<Scripted>(b).unwrap().heard;
    assert!(heard.iter().map(|(_, from, byte)| (*from, *byte)).eq((0..200).map(|n| (a, n))));
    let delays: Vec<f64> = heard
        .iter()
        .map(|(at, _, byte)| (*at - ms(u64::from(*byte))).as_secs_f64() * 1e3)
        .collect();
    assert!(delays.iter().all(|delay| *delay >= 30.0));
    // Waiting for earlier messages makes the mean larger than 50.
    let mean = delays.iter().sum::<f64>() / 200.0;
    assert!((50.0..200.0).contains(&mean), "{mean}");
}

#[test]
fn without_an_extra_delay_messages_are_exact() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    let mut simulation = scripted(network, &[(a, &[(ms(2), Do::Say(b, 9))])]);
    let min = Duration::from_millis(5);
    simulation.set_sessions(SessionDelay { min, mean_extra: Duration::ZERO });
    simulation.run_until(ms(100));
    assert_eq!(simulation.app::<Scripted>(b).unwrap().heard, [(ms(7), a, 9)]);
}

#[test]
fn a_host_that_stopped_gets_nothing_and_can_be_dropped() {
    let run = |drop| {
        let mut network = Network::new();
        let (a, b) = (network.host("a"), network.host("b"));
        network.link(a, b, delay_ms(1), delay_ms(1)).unwrap();
        let sends =
            [(ms(0), Do::Send(b, 0, 1)), (ms(5), Do::Send(b, 1, 1)), (ms(5), Do::Say(b, 1))];
        let joins = [(ms(0), Do::Join(Some(a))), (ms(3), Do::Stop), (ms(4), Do::Join(Some(a)))];
        let mut simulation = scripted(network, &[(a, &sends), (b, &joins)]);
        simulation.drop_stopped(drop);
        simulation.run_until(ms(100));
        simulation.app::<Scripted>(b).map(|app| (app.got.clone(), app.heard.len()))
    };
    assert_eq!(run(false), Some((vec![(ms(1), 0)], 0)));
    assert_eq!(run(true), None);
}

#[test]
fn nothing_arrives_before_a_program_starts() {
    let mut network = Network::new();
    let (a, b) = (network.host("a"), network.host("b"));
    network.link(a, b, delay_ms(1), delay_ms(1)).unwrap();
    let mut simulation = Simulation::new(network, 1);
    let script = (0..4).rev().map(|n| (ms(n), Do::Send(b, n as u32, 1))).collect();
    simulation.set_app(a, Scripted { script, ..Scripted::default() }, ms(0)).unwrap();
    simulation.set_app(b, Scripted::default(), us(2_500)).unwrap();
    simulation.run_until(ms(100));
    assert_eq!(got(&simulation, b), [(ms(3), 2), (ms(4), 3)]);
}

#[test]
fn what_cannot_be_built_is_named() {
    let mut network = Network::new();
    let (host, router) = (network.host("h"), network.router("r"));
    let (plain, nowhere) = (LinkSpec::default, NodeId(9));
    let unknown = network.link(host, nowhere, plain(), plain());
    assert_eq!(unknown, Err(NetworkError::UnknownNode(nowhere)));
    assert_eq!(unknown.unwrap_err().to_string(), "there is no node number 9");
    let looped = network.link(host, host, plain(), plain());
    assert_eq!(looped, Err(NetworkError::Loop("h".into())));
    let lossy = network.link(host, router, plain(), plain().loss(Loss::Bernoulli(2.0)));
    assert!(matches!(lossy, Err(NetworkError::Probability { what: "loss", .. })));
    assert_eq!(network.link_count(), 0);
    let mut simulation = Simulation::new(network, 1);
    let mut set = |node| simulation.set_app(node, Scripted::default(), ms(0));
    assert_eq!(set(nowhere), Err(NetworkError::UnknownNode(nowhere)));
    assert_eq!(set(router), Err(NetworkError::NotAHost("r".into())));
    assert_eq!(set(host), Ok(()));
    assert_eq!(set(host), Err(NetworkError::Occupied("h".into())));
}
