//! PGM as the paper simulated it: NAKs without backoff, in every router.

use std::time::Duration;

use umbel_engine::pgm::{ReceiverConfig, SourceConfig};
use umbel_sim::pgm::{Receiver, Source, router};
use umbel_sim::random::node_seed;
use umbel_sim::{Instant, Simulation, channel};

use super::UNIT_LEN;
use crate::lms::scenario::{GROUP, Scenario};

pub(super) fn install(
    simulation: &mut Simulation,
    scenario: &Scenario,
    sends: impl Iterator<Item = Instant>,
    wait: Duration,
    seed: u64,
) {
    let channel = channel(Some(scenario.source), GROUP);
    let config = SourceConfig { wait, ..SourceConfig::new(channel) };
    let host = Source::host(config, sends, UNIT_LEN);
    simulation.set_app(scenario.source, host, Instant::EPOCH).expect("the source is a free host");
    for &receiver in &scenario.receivers {
        let config = ReceiverConfig { nak_backoff: Duration::ZERO, ..ReceiverConfig::new(channel) };
        let host = Receiver::host(config, node_seed(seed, receiver));
        simulation.set_app(receiver, host, Instant::EPOCH).expect("receivers are free hosts");
    }
    for &node in &scenario.routers {
        let hook = router(node, |_| {});
        simulation.set_router_hook(node, hook).expect("routers are free");
    }
}
