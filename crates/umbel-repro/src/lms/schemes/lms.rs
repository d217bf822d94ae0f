//! LMS as the paper simulated it: repliers that never change, each the nearest to its router
//! [LMS §IV-C].

use umbel_engine::lms::config::{Cost, Horizon, ReplierConfig};
use umbel_engine::lms::{ReceiverConfig, SourceConfig};
use umbel_sim::lms::{Receiver, Source, router};
use umbel_sim::random::{Purpose, below, node_seed, stream};
use umbel_sim::{Instant, Simulation, channel};
use umbel_wire::Tsi;

use super::{Scheme, Tuning, UNIT_LEN};
use crate::lms::scenario::{GROUP, Scenario};

/// Weight of loss in the cost of dynamic repliers: a loss of 2 % counts like twice the distance.
const LOSS_WEIGHT: f64 = 50.0;

pub(super) fn install(
    (scheme, tuning): (Scheme, Tuning),
    simulation: &mut Simulation,
    scenario: &Scenario,
    sends: impl Iterator<Item = Instant>,
    seed: u64,
) {
    let channel = channel(Some(scenario.source), GROUP);
    let is_partial = matches!(scheme, Scheme::LmsPartial(_));
    // A first request that arrives within the farthest receiver's round trip has crossed the reply.
    let replier = ReplierConfig {
        ignore_period: (scheme == Scheme::Lms).then(|| scenario.greatest_rtt()),
        ..ReplierConfig::default()
    };
    let mut config = SourceConfig::new(channel, Tsi(1));
    (config.replier, config.rtt) = (replier, scenario.greatest_rtt());
    if !is_partial {
        // Only the topmost replier sends requests, for all.
        config.multicast_after = 0;
    }
    let host = Source::host(config, sends, UNIT_LEN);
    simulation.set_app(scenario.source, host, Instant::EPOCH).expect("the source is a free host");
    for (&receiver, distance) in scenario.receivers.iter().zip(&scenario.distances) {
        // Below a router, the receiver nearest to the source is also the nearest to the router.
        let cost = u32::try_from(distance.as_nanos() / 100).unwrap_or(u32::MAX);
        let mut config = ReceiverConfig::new(channel);
        config.replier = replier;
        config.cost = match scheme {
            Scheme::LmsDynamic => Cost::LatencyAndLoss { weight: LOSS_WEIGHT },
            _ => Cost::Fixed(Some(cost)),
        };
        // A receiver that comes back does not want the packets sent in between.
        config.horizon = Horizon::Back(0);
        let host = Receiver::host(config, node_seed(seed, receiver));
        simulation.set_app(receiver, host, Instant::EPOCH).expect("receivers are free hosts");
    }
    for &node in &scenario.routers {
        let mut draw = stream(seed, Purpose::Workload, u64::from(node.0));
        if let Scheme::LmsPartial(percent) = scheme
            && below(&mut draw, 100) >= u64::from(percent)
        {
            continue;
        }
        let hook = router(node, seed, |config| {
            config.source_as_replier =
                scenario.source_is_root || is_partial || tuning.source_as_replier;
            if scheme != Scheme::LmsDynamic {
                config.stickiness = 0.0;
            }
        });
        simulation.set_router_hook(node, hook).expect("routers are free");
    }
}
