//! The engines' own time.

use std::ops::{Add, AddAssign, Sub};
use std::time::Duration;

/// A moment in nanoseconds since an epoch chosen by the engine's host. Monotonic.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Instant(u64);

impl Instant {
    /// The host's epoch.
    pub const EPOCH: Instant = Instant(0);

    /// Creates the moment `ns` nanoseconds after the epoch.
    pub const fn from_nanos(ns: u64) -> Instant {
        Instant(ns)
    }

    /// Returns the nanoseconds since the epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Returns the time from `earlier` to `self`, or zero if `earlier` is later.
    pub const fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;

    /// Saturates after 584 years.
    fn add(self, d: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Instant> for Instant {
    type Output = Duration;

    /// Returns zero if `earlier` is later.
    fn sub(self, earlier: Instant) -> Duration {
        self.since(earlier)
    }
}
