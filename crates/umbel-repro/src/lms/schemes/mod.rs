//! The compared schemes and their setup [LMS §IV].

mod lms;
mod pgm;
mod srm;

use std::time::Duration;

use umbel_sim::{Instant, Simulation};

use super::scenario::Scenario;

/// A scheme that repairs losses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// LMS with static repliers, as in the paper's figures.
    Lms,
    /// LMS whose repliers follow the measured round trip and loss.
    LmsDynamic,
    /// LMS in this percentage of the routers, at random.
    LmsPartial(u8),
    /// SRM with fixed timers.
    Srm,
    /// SRM with adaptive timers.
    SrmAdaptive,
    /// SRM in a group that is too large for its members to measure all distances.
    SrmLarge,
    /// PGM without a wait at the source, as in the paper's figures.
    Pgm,
    /// PGM with a wait of the greatest round trip.
    PgmWaiting,
}

impl Scheme {
    /// The schemes that repair every single loss, as in the paper.
    pub const ALL: [Scheme; 6] = [
        Scheme::Lms,
        Scheme::LmsDynamic,
        Scheme::Srm,
        Scheme::SrmAdaptive,
        Scheme::Pgm,
        Scheme::PgmWaiting,
    ];

    /// Returns the name in legends.
    pub fn name(self) -> &'static str {
        match self {
            Scheme::Lms => "LMS",
            Scheme::LmsDynamic => "LMS, dynamic repliers",
            Scheme::LmsPartial(_) => "LMS in some routers",
            Scheme::Srm => "SRM",
            Scheme::SrmAdaptive => "SRM, adaptive timers",
            Scheme::SrmLarge => "SRM in a large group",
            Scheme::Pgm => "PGM",
            Scheme::PgmWaiting => "PGM with a wait",
        }
    }

    /// Returns the time after which a loss is repaired for certain and no packet about it is in
    /// flight.
    pub(super) fn quiet(self, greatest_rtt: Duration) -> Duration {
        let (rtts, more_ms) = match self {
            Scheme::Lms | Scheme::LmsDynamic | Scheme::Pgm | Scheme::PgmWaiting => (8, 200),
            // Requests are repeated until a node answers by multicast.
            Scheme::LmsPartial(_) => (40, 1_000),
            // The backoff doubles, and the hold-down lasts.
            Scheme::Srm | Scheme::SrmAdaptive | Scheme::SrmLarge => (30, 1_000),
        };
        greatest_rtt * rtts + Duration::from_millis(more_ms)
    }

    /// Returns the approximate amount of work of a run, compared with other schemes.
    pub(super) fn work(self) -> u64 {
        match self {
            Scheme::Srm | Scheme::SrmAdaptive => 40,
            _ => 1,
        }
    }
}

/// Values that the paper does not give, and that were chosen here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tuning {
    /// Whether a source that is attached to a router is the replier of its links, also in graphs
    /// other than binary trees [LMS §II-C].
    pub(crate) source_as_replier: bool,
    /// D1 and D2 of SRM's repair timer, in percent.
    pub(crate) repair_timer_percent: u32,
}

impl Default for Tuning {
    /// Returns what the report has.
    fn default() -> Tuning {
        Tuning { source_as_replier: false, repair_timer_percent: 100 }
    }
}

/// Length of a data unit in bytes.
const UNIT_LEN: usize = 1000;

/// Installs the scheme's programs on all nodes. The source sends units of [`UNIT_LEN`] bytes at
/// these times, in the group number [`GROUP`](super::scenario::GROUP).
pub(crate) fn install(
    scheme: Scheme,
    simulation: &mut Simulation,
    scenario: &Scenario,
    sends: impl Iterator<Item = Instant>,
    seed: u64,
) {
    install_tuned(scheme, Tuning::default(), simulation, scenario, sends, seed);
}

/// Installs the scheme's programs like [`install`], with other values in the place of chosen ones.
pub(super) fn install_tuned(
    scheme: Scheme,
    tuning: Tuning,
    simulation: &mut Simulation,
    scenario: &Scenario,
    sends: impl Iterator<Item = Instant>,
    seed: u64,
) {
    match scheme {
        Scheme::Lms | Scheme::LmsDynamic | Scheme::LmsPartial(_) => {
            lms::install((scheme, tuning), simulation, scenario, sends, seed);
        }
        Scheme::Srm | Scheme::SrmAdaptive | Scheme::SrmLarge => {
            srm::install((scheme, tuning), simulation, scenario, sends, seed);
        }
        Scheme::Pgm => pgm::install(simulation, scenario, sends, Duration::ZERO, seed),
        Scheme::PgmWaiting => {
            pgm::install(simulation, scenario, sends, scenario.greatest_rtt(), seed);
        }
    }
}
