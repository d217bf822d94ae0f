//! LMS as the paper simulated it: repliers that never change, each the one that is nearest to its
//! router [LMS §IV-C].

use umbel_engine::lms::config::{Cost, ReplierConfig};
use umbel_engine::lms::{ReceiverConfig, SourceConfig};
use umbel_sim::lms::{Receiver, Source, router};
use umbel_sim::{Instant, Simulation, channel};
use umbel_wire::Tsi;

use super::UNIT_LEN;
use crate::lms::scenario::{GROUP, Scenario};

pub(super) fn install(
    simulation: &mut Simulation,
    scenario: &Scenario,
    sends: impl Iterator<Item = Instant>,
    seed: u64,
) {
    let channel = channel(Some(scenario.source), GROUP);
    let ignore =
        ReplierConfig { ignore_period: Some(scenario.greatest_rtt()), ..ReplierConfig::default() };
    let config =
        SourceConfig { replier: ignore, multicast_after: 0, ..SourceConfig::new(channel, Tsi(1)) };
    let host = Source::host(config, sends, UNIT_LEN);
    simulation.set_app(scenario.source, host, Instant::EPOCH).expect("the source is a free host");
    for (&receiver, distance) in scenario.receivers.iter().zip(&scenario.distances) {
        // Below a router, who is nearest to the source is nearest to the router.
        let cost = u32::try_from(distance.as_nanos() / 100).unwrap_or(u32::MAX);
        let config = ReceiverConfig {
            cost: Cost::Fixed(Some(cost)),
            replier: ignore,
            seed: seed ^ u64::from(receiver.0) << 32,
            ..ReceiverConfig::new(channel)
        };
        let host = Receiver::host(config);
        simulation.set_app(receiver, host, Instant::EPOCH).expect("receivers are free hosts");
    }
    for &node in &scenario.routers {
        let hook = router(node, seed, |config| {
            config.stickiness = 0.0;
            config.source_as_replier = scenario.source_is_root;
        });
        simulation.set_router_hook(node, hook).expect("routers are free");
    }
}
