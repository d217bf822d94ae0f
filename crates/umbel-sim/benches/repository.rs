//! A repository with very many clients on a star: memory per client, and speed of the run.
//!
//! Every client loses 10 % on its own link and wants three items of 60 packets. The clients arrive
//! within ten seconds. Run with `cargo bench -p umbel-sim --bench repository`. An argument is the
//! number of clients, which is 10,000 otherwise.

use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use umbel_engine::repository::{ReceiverConfig, SourceConfig};
use umbel_engine::units::Rate;
use umbel_sim::repository::{Catalog, Client, ClientHost, Server};
use umbel_sim::{Instant, LinkSpec, Loss, Network, NodeId, SessionDelay, Simulation, channel};
use umbel_wire::{Scheme, Toi, Tsi};

const SYMBOLS: u16 = 60;

fn main() {
    let clients: u32 = std::env::args().find_map(|arg| arg.parse().ok()).unwrap_or(10_000);
    let clock = Clock::now();
    let mut network = Network::new();
    let server = network.host("server");
    let hub = network.router("hub");
    let millisecond = Duration::from_millis(1);
    let plain = LinkSpec::default().delay(millisecond);
    network.link(server, hub, plain.clone(), plain.clone()).expect("both ends exist");
    let lossy = plain.clone().loss(Loss::Bernoulli(0.1));
    let nodes: Vec<NodeId> = (0..clients)
        .map(|n| {
            let node = network.host(format!("c{n}"));
            network.link(hub, node, lossy.clone(), plain.clone()).expect("both ends exist");
            node
        })
        .collect();
    let catalog = Arc::new(Catalog::uniform(3, SYMBOLS, 1_000, Scheme::ReedSolomon));
    let rate = Rate::from_bits_per_s(1_000_000).expect("not zero");
    let mut config = SourceConfig::new(Tsi(1), channel(Some(server), 1), rate);
    config.packet_len = 1_024;
    let mut simulation = Simulation::new(network, 1);
    simulation.set_sessions(SessionDelay { min: 2 * millisecond, mean_extra: millisecond });
    let mut host = Server::host(config, 0, catalog.clone());
    host.host_mut().set_rtt(4 * millisecond);
    simulation.set_app(server, host, Instant::EPOCH).expect("a free host");
    for (n, &node) in nodes.iter().enumerate() {
        let config = ReceiverConfig::default();
        let wanted = (1..=3).map(Toi).collect();
        let client = Client::host(config, n as u64, server, catalog.clone(), wanted);
        let start = Duration::from_nanos(10_000_000_000 / u64::from(clients) * n as u64);
        simulation.set_app(node, client, Instant::EPOCH + start).expect("a free host");
    }
    let built = clock.elapsed().as_secs_f64();
    simulation.run_until(Instant::EPOCH + Duration::from_hours(1));
    let counters = simulation.counters();
    let elapsed = clock.elapsed().as_secs_f64() - built;
    let finished = nodes.iter().filter(|node| {
        simulation.app::<ClientHost>(**node).is_some_and(|host| host.host().delay().is_some())
    });
    println!("clients          {clients}");
    println!("finished         {}", finished.count());
    println!("until            {:.1} s", simulation.now().as_nanos() as f64 / 1e9);
    println!(
        "packet-hops      {} ({:.2} M/s)",
        counters.hops,
        counters.hops as f64 / elapsed / 1e6
    );
    println!("messages         {}", counters.messages);
    println!("built, run       {built:.1} s, {elapsed:.1} s");
    println!("peak memory      {} B a client", peak_bytes() / u64::from(clients));
}

/// Returns the peak memory of this process as Linux reports it; 0 elsewhere.
fn peak_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024
}
