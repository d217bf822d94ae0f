//! The engines' time on a real machine.

use std::time;

use umbel_engine::Instant;

/// The time since the clock was made, by the system's monotonic clock. Copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: time::Instant,
}

impl Clock {
    /// Creates a clock whose epoch is now.
    #[allow(clippy::new_without_default)] // Reads the system's clock: not a default value.
    pub fn new() -> Clock {
        Clock { epoch: time::Instant::now() }
    }

    /// Returns the current time.
    pub fn now(&self) -> Instant {
        Instant::EPOCH + self.epoch.elapsed()
    }

    /// Returns the time from now until `then`, or zero if that has passed.
    pub fn until(&self, then: Instant) -> time::Duration {
        then.since(self.now())
    }
}
