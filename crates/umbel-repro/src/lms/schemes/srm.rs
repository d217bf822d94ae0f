//! SRM with the parameters of ns-2: C1 = C2 = 2, D1 = D2 = 1, distances from session messages.

use std::time::Duration;

use umbel_engine::srm::Config;
use umbel_sim::srm::{self, Participant};
use umbel_sim::{Instant, Simulation};

use super::{Scheme, Tuning, UNIT_LEN};
use crate::lms::scenario::{GROUP, Scenario};

/// D1 and D2 of the repair timer. The paper names no timers; these are the defaults of the ns-2
/// that it used.
const REPAIR_TIMER: (f64, f64) = (1.0, 1.0);

pub(super) fn install(
    (scheme, tuning): (Scheme, Tuning),
    simulation: &mut Simulation,
    scenario: &Scenario,
    sends: impl Iterator<Item = Instant>,
    seed: u64,
) {
    let distances = &scenario.distances;
    let mean = distances.iter().sum::<Duration>() / distances.len() as u32;
    let mut source = Participant::default();
    for at in sends {
        source.send_after(at.since(Instant::EPOCH), UNIT_LEN);
    }
    let config = |node| {
        let mut config: Config = srm::config(node, GROUP);
        let times = f64::from(tuning.repair_timer_percent) / 100.0;
        config.repair_timer = Some((REPAIR_TIMER.0 * times, REPAIR_TIMER.1 * times));
        config.adaptive = scheme == Scheme::SrmAdaptive;
        // In the paper only the next packet reveals a loss.
        config.session.heartbeat = None;
        if scheme == Scheme::SrmLarge {
            // Distances are set directly; session messages would come after the end.
            config.session.min_interval = Duration::from_hours(24);
            config.default_distance = mean;
        }
        config
    };
    let host = source.host(config(scenario.source), seed);
    simulation.set_app(scenario.source, host, Instant::EPOCH).expect("the source is a free host");
    for (&receiver, &distance) in scenario.receivers.iter().zip(distances) {
        let mut participant = Participant::default();
        if scheme == Scheme::SrmLarge {
            participant.know_distance(srm::id_of(scenario.source), distance);
        }
        let host = participant.host(config(receiver), seed);
        simulation.set_app(receiver, host, Instant::EPOCH).expect("receivers are free hosts");
    }
}
