//! The schemes that are compared, and how each is set up [LMS §IV].

mod lms;
mod pgm;
mod srm;

use std::time::Duration;

use umbel_sim::{Instant, Simulation};

use super::scenario::Scenario;

/// Who repairs what was lost, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scheme {
    /// LMS with static repliers, as in the paper's figures.
    Lms,
    /// LMS whose repliers follow the measured round trip and loss.
    LmsDynamic,
    /// LMS in so many percent of the routers, at random.
    LmsPartial(u8),
    /// SRM with fixed timers.
    Srm,
    /// SRM with adaptive timers.
    SrmAdaptive,
    /// SRM in a group that is too large for all to measure all distances.
    SrmLarge,
    /// PGM without a wait at the source, as in the paper's figures.
    Pgm,
    /// PGM with a wait of the greatest round trip.
    PgmWaiting,
}

impl Scheme {
    /// Those that repair all single losses as the paper has them.
    pub const ALL: [Scheme; 6] = [
        Scheme::Lms,
        Scheme::LmsDynamic,
        Scheme::Srm,
        Scheme::SrmAdaptive,
        Scheme::Pgm,
        Scheme::PgmWaiting,
    ];

    /// As in legends.
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

    /// How long it takes until a loss is repaired for sure, and no packet about it is on its way.
    pub(super) fn quiet(self, greatest_rtt: Duration) -> Duration {
        let (rtts, more_ms) = match self {
            Scheme::Lms | Scheme::LmsDynamic | Scheme::Pgm | Scheme::PgmWaiting => (8, 200),
            // Requests are repeated until somebody answers by multicast.
            Scheme::LmsPartial(_) => (40, 1_000),
            // Back-off doubles, and the hold-down lasts.
            Scheme::Srm | Scheme::SrmAdaptive | Scheme::SrmLarge => (30, 1_000),
        };
        greatest_rtt * rtts + Duration::from_millis(more_ms)
    }

    /// How much work a run is, in comparison.
    pub(super) fn work(self) -> u64 {
        match self {
            Scheme::Srm | Scheme::SrmAdaptive => 40,
            _ => 1,
        }
    }
}

/// Bytes of a data unit.
const UNIT_LEN: usize = 1000;

/// Puts the scheme's programs on all nodes. The source sends units of [`UNIT_LEN`] bytes at these times,
/// in the group number [`GROUP`](super::scenario::GROUP).
pub(crate) fn install(
    scheme: Scheme,
    simulation: &mut Simulation,
    scenario: &Scenario,
    sends: impl Iterator<Item = Instant>,
    seed: u64,
) {
    match scheme {
        Scheme::Lms | Scheme::LmsDynamic | Scheme::LmsPartial(_) => {
            lms::install(scheme, simulation, scenario, sends, seed);
        }
        Scheme::Srm | Scheme::SrmAdaptive | Scheme::SrmLarge => {
            srm::install(scheme, simulation, scenario, sends, seed);
        }
        Scheme::Pgm => pgm::install(simulation, scenario, sends, Duration::ZERO, seed),
        Scheme::PgmWaiting => {
            pgm::install(simulation, scenario, sends, scenario.greatest_rtt(), seed);
        }
    }
}
