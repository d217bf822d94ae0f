use std::sync::Arc;
use std::time::Duration;

use umbel_engine::repository::{ReceiverConfig, SourceConfig};
use umbel_engine::units::Rate;
use umbel_wire::{Scheme, Toi, Tsi};

use super::{Catalog, Client, ClientHost, Server, ServerHost};
use crate::network::{Network, NodeId};
use crate::{Instant, LinkSpec, Loss, Outcome, SessionDelay, Simulation, channel};

const SERVER: NodeId = NodeId(0);
const SYMBOLS: u16 = 60;

/// Creates a star: node 0 serves, node 1 is the middle, the clients follow.
fn star(clients: &[(f64, &[u32], u64)], scheme: Scheme, seed: u64) -> Simulation {
    let mut network = Network::new();
    let server = network.host("server");
    let hub = network.router("hub");
    network.link(server, hub, LinkSpec::default(), LinkSpec::default()).unwrap();
    for (index, &(loss, ..)) in clients.iter().enumerate() {
        let client = network.host(format!("client{index}"));
        let down = LinkSpec { loss: Loss::Bernoulli(loss), ..LinkSpec::default() };
        network.link(hub, client, down, LinkSpec::default()).unwrap();
    }
    let catalog = Arc::new(Catalog::uniform(8, SYMBOLS, 100, scheme));
    let rate = Rate::from_bits_per_s(99_200).unwrap();
    let mut config = SourceConfig::new(Tsi(1), channel(Some(server), 1), rate);
    config.packet_len = 124;
    let mut simulation = Simulation::new(network, seed);
    let delay = Duration::from_millis(10);
    simulation.set_sessions(SessionDelay { min: delay, mean_extra: Duration::from_millis(2) });
    let mut host = Server::host(config, seed, catalog.clone());
    host.host_mut().set_rtt(delay * 2);
    simulation.set_app(server, host, Instant::EPOCH).unwrap();
    for (index, &(_, wanted, start_ms)) in clients.iter().enumerate() {
        let node = NodeId(index as u32 + 2);
        let config = ReceiverConfig::default();
        let wanted = wanted.iter().copied().map(Toi).collect();
        let host = Client::host(config, index as u64, SERVER, catalog.clone(), wanted);
        let start = Instant::from_nanos(start_ms * 1_000_000);
        simulation.set_app(node, host, start).unwrap();
    }
    simulation
}

fn client(simulation: &Simulation, index: u32) -> &ClientHost {
    simulation.app(NodeId(index + 2)).unwrap()
}

fn server(simulation: &Simulation) -> &ServerHost {
    simulation.app(SERVER).unwrap()
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn clients_get_what_they_want_and_leave() {
    let clients = [(0.0, &[1, 2][..], 0), (0.1, &[2, 3, 4], 100), (0.3, &[8], 3_000)];
    let mut simulation = star(&clients, Scheme::ReedSolomon, 1);
    assert_eq!(simulation.run_until(Instant::EPOCH + MINUTE * 5), Outcome::Idle);
    for (index, (_, wanted, _)) in (0..).zip(&clients) {
        let host = client(&simulation, index);
        assert!(host.host().delay().is_some(), "client {index}");
        assert_eq!(host.engine().outstanding(), 0);
        assert_eq!(wanted.len(), host.host().wanted().len());
    }
    assert_eq!(server(&simulation).outside().count(), 0, "every session is closed");
    assert_eq!(server(&simulation).engine().pending_items(), 0);
}

#[test]
fn a_block_takes_as_many_symbols_as_it_has() {
    for scheme in [Scheme::ReedSolomon, Scheme::NoCode, Scheme::RaptorQ] {
        let mut simulation = star(&[(0.2, &[1, 5, 7], 0)], scheme, 2);
        simulation.run_until(Instant::EPOCH + MINUTE * 5);
        let host = simulation.app_mut::<ClientHost>(NodeId(2)).unwrap();
        let sink = host.engine_mut().sink_mut();
        assert_eq!((sink.blocks(), sink.symbols()), (3, 3 * u64::from(SYMBOLS)), "{scheme:?}");
    }
}

#[test]
fn without_loss_an_item_takes_its_time_on_the_channel() {
    let mut simulation = star(&[(0.0, &[3], 0)], Scheme::ReedSolomon, 3);
    simulation.run_until(Instant::EPOCH + MINUTE);
    let delay = client(&simulation, 0).host().delay().unwrap();
    // The last of 60 packets of 10 ms leaves after 590 ms; asking takes two round trips.
    let asking = delay.checked_sub(Duration::from_millis(590)).unwrap();
    assert!(asking > Duration::from_millis(20) && asking < Duration::from_millis(100), "{delay:?}");
    assert_eq!(server(&simulation).engine().stats().packets, 60);
}

#[test]
fn a_client_that_gives_up_is_forgotten() {
    let mut simulation = star(&[(1.0, &[3], 0)], Scheme::ReedSolomon, 4);
    let host = simulation.app_mut::<ClientHost>(NodeId(2)).unwrap();
    host.host_mut().set_leave_after(Duration::from_secs(30));
    simulation.run_until(Instant::EPOCH + MINUTE * 3);
    assert_eq!(client(&simulation, 0).host().delay(), None);
    assert_eq!(client(&simulation, 0).host().left(), 1);
    assert_eq!(server(&simulation).outside().count(), 0);
    assert_eq!(server(&simulation).engine().pending_items(), 0);
}

#[test]
fn a_run_is_a_function_of_its_seed() {
    let wanted: [&[u32]; 3] = [&[1, 2, 3], &[2, 4], &[2, 3, 5, 6]];
    let clients: Vec<_> = (0..12).map(|i| (0.05 * (i % 4) as f64, wanted[i % 3], 70)).collect();
    let run = |seed| {
        let mut simulation = star(&clients, Scheme::ReedSolomon, seed);
        simulation.run_until(Instant::EPOCH + MINUTE * 5);
        let delays = (0..12).map(|i| client(&simulation, i).host().delay());
        (delays.collect::<Vec<_>>(), *simulation.counters())
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn known_loss_reaches_the_engine() {
    let mut simulation = star(&[(0.5, &[1], 0), (0.0, &[1], 0)], Scheme::ReedSolomon, 5);
    let host = simulation.app_mut::<ServerHost>(SERVER).unwrap();
    host.host_mut().set_known_loss(NodeId(2), 0.5);
    simulation.run_until(Instant::from_nanos(100_000_000));
    let losses: Vec<f64> = server(&simulation).engine().clients().map(|(_, c)| c.loss).collect();
    assert_eq!(losses, [0.5, 0.0]);
}

#[test]
fn an_item_that_does_not_exist_is_not_waited_for_by_the_server() {
    let mut simulation = star(&[(0.0, &[99], 0)], Scheme::ReedSolomon, 6);
    assert_eq!(simulation.run_until(Instant::EPOCH + MINUTE), Outcome::Idle);
    assert_eq!(client(&simulation, 0).host().delay(), None);
    assert_eq!(server(&simulation).engine().pending_items(), 0);
}
