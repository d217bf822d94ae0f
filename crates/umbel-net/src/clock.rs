//! The engines' time on a real machine.

use std::time;

use umbel_engine::Instant;

/// Tells the time since it was made, by the monotonic clock of the system. Copies agree.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    epoch: time::Instant,
}

impl Clock {
    /// A clock whose epoch is now.
    #[allow(clippy::new_without_default)] // Reads the system's clock: not a default value.
    pub fn new() -> Clock {
        Clock { epoch: time::Instant::now() }
    }

    /// The time now.
    pub fn now(&self) -> Instant {
        Instant::EPOCH + self.epoch.elapsed()
    }

    /// How long to wait from now until `then`; zero if that has passed.
    pub fn until(&self, then: Instant) -> time::Duration {
        then.since(self.now())
    }
}
