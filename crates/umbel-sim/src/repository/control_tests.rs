//! Announcements in the multicast control group, with a thousand clients.

use std::sync::Arc;
use std::time::Duration;

use umbel_engine::repository::{ControlConfig, ReceiverConfig, SourceConfig};
use umbel_engine::units::Rate;
use umbel_wire::repository::ControlKey;
use umbel_wire::{Scheme, Toi, Tsi};

use super::{Catalog, Client, ClientHost, Server, ServerHost};
use crate::network::{Network, NodeId};
use crate::{Instant, LinkSpec, Loss, SessionDelay, Simulation, channel};

const SERVER: NodeId = NodeId(0);
const CLIENTS: u32 = 1_000;
/// Number of the control group.
const CONTROL: u32 = 2;

/// Results of a run.
#[derive(Debug)]
struct Outcome {
    done: u32,
    longest: Duration,
    announced: u64,
    late: u64,
    /// Clients that heard the group.
    on_control: u32,
    /// Requests for announcements that reached the server, one for each unit.
    requests: u64,
}

/// Runs a thousand clients behind links that lose a tenth of all packets in both directions. Each
/// wants up to three of ten items.
fn run(seed: u64) -> Outcome {
    let mut network = Network::new();
    let server = network.host("server");
    let hub = network.router("hub");
    let spec = |ms, loss| LinkSpec {
        delay: Duration::from_millis(ms),
        loss: Loss::Bernoulli(loss),
        ..LinkSpec::default()
    };
    network.link(server, hub, spec(2, 0.0), spec(2, 0.0)).unwrap();
    for index in 0..CLIENTS {
        let client = network.host(format!("client{index}"));
        network.link(hub, client, spec(8, 0.1), spec(8, 0.1)).unwrap();
    }
    let catalog = Arc::new(Catalog::uniform(10, 24, 1376, Scheme::ReedSolomon));
    let rate = Rate::from_bits_per_s(2_000_000).unwrap();
    let mut config = SourceConfig::new(Tsi(1), channel(Some(server), 1), rate);
    let key = ControlKey([9; 32]);
    config.control = Some(ControlConfig { channel: channel(None, CONTROL), key });
    let mut simulation = Simulation::new(network, seed);
    let delay = Duration::from_millis(10);
    simulation.set_sessions(SessionDelay { min: delay, mean_extra: Duration::from_millis(2) });
    let mut host = Server::host(config, seed, catalog.clone());
    host.host_mut().set_rtt(delay * 2);
    simulation.set_app(server, host, Instant::EPOCH).unwrap();
    for index in 0..CLIENTS {
        let config = ReceiverConfig::default();
        let wanted = [index % 10, (index * 7 + 3) % 10, (index * 3 + 5) % 10];
        let mut wanted: Vec<Toi> = wanted.iter().map(|n| Toi(n + 1)).collect();
        wanted.sort_unstable();
        wanted.dedup();
        let host = Client::host(config, index.into(), SERVER, catalog.clone(), wanted);
        let start = Instant::EPOCH + Duration::from_micros(2_500) * index;
        simulation.set_app(NodeId(index + 2), host, start).unwrap();
    }
    simulation.run_until(Instant::EPOCH + Duration::from_secs(40));
    let mut outcome = Outcome {
        done: 0,
        longest: Duration::ZERO,
        announced: 0,
        late: 0,
        on_control: 0,
        requests: 0,
    };
    let server = simulation.app::<ServerHost>(SERVER).unwrap().engine();
    outcome.requests = server.control_stats().map_or(0, |(stats, _)| stats.requests_heard);
    for index in 0..CLIENTS {
        let host = simulation.app::<ClientHost>(NodeId(index + 2)).unwrap();
        let delay = host.host().delay();
        outcome.on_control += u32::from(host.engine().hears_control());
        outcome.done += u32::from(delay.is_some());
        outcome.longest = outcome.longest.max(delay.unwrap_or_default());
        outcome.announced += host.engine().stats().announced;
        outcome.late += host.engine().stats().announced_late;
    }
    outcome
}

#[test]
fn a_thousand_clients_that_lose_a_tenth_hear_of_transmissions_in_time_or_recover() {
    let outcome = run(1);
    assert_eq!(outcome.done, CLIENTS, "{outcome:?}");
    assert!(outcome.on_control > 950, "{outcome:?}");
    // Nine in ten arrive at once, before the first packet; the rest by repairs.
    assert!(outcome.late * 10 < outcome.announced, "{outcome:?}");
    // No client waits for the time after which it asks again.
    assert!(outcome.longest < Duration::from_secs(10), "{outcome:?}");
    println!("{outcome:?}");
}
