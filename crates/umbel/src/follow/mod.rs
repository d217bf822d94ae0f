//! Resident receivers: what is new is taken when it comes, for years.
//!
//! ```text
//! feeds        Station ──announcements──▶ Plan of each name ──▶ recv(), a thread each ──┐
//! repository   list, again and again ───▶ Plan ──────────────▶ get() ───────────────────┤
//!                                                                                       ▼
//!                              Taken (state directory) ◀── Hooks, a thread for each name
//! ```
//!
//! `policy.rs` decides without I/O which version is taken when. What ends in a failure is told and
//! tried again; nothing but the user ends a resident receiver. A version is remembered as taken when
//! its command has ended, so that one that a crash or an interruption cut short is run again.

mod feeds;
mod found;
mod hook;
mod hooks;
mod policy;
mod repository;
mod taken;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub use feeds::{FeedFollower, ObserverOf, follow_feeds};
pub(crate) use found::Noting;
pub use hook::{Came, Ended, Hook};
pub use repository::{RepositoryFollower, follow_repository};
pub(crate) use repository::{address_of, came as came_from};
pub(crate) use taken::{DIRECTORY as TAKEN, remember_sender};

use crate::endpoint::{Interrupt, Interrupted};

/// Longest time from an interruption to the end: what is received is left, which takes 12 s if
/// others depend on this receiver, and commands are ended.
pub const END: Duration = Duration::from_secs(15);

/// A version that could not be taken.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    /// Name of the feed, or address of the server.
    pub name: String,
    /// Key of the sender, if it is known.
    pub sender: Option<String>,
    /// One line that says why.
    pub reason: String,
    /// Number of times that it was tried.
    pub attempts: u32,
    /// Pause before it is tried again; `None` if it is given up.
    pub again_in: Option<Duration>,
}

/// Hears of what a resident receiver does, whose receptions end with an `S`. It is called on several
/// threads and must not block.
pub trait FollowObserver<S>: Send + Sync {
    /// Called when all of a version is there.
    fn taken(&self, came: &Came, summary: &S);

    /// Called when a version could not be taken.
    fn missed(&self, missed: &Missed);

    /// Called when the command after a completion has ended.
    fn hook_ended(&self, came: &Came, ended: &Ended);

    /// Reports a line that the user should know.
    fn note(&self, line: &str);
}

/// What a resident receiver has done when it ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    /// Versions that were taken.
    pub taken: u64,
    /// Attempts that failed.
    pub failed: u64,
}

/// The receptions that an interruption ends, and whether there was one.
#[derive(Clone, Debug, Default)]
struct Running {
    stop: Interrupted,
    interrupts: Arc<Mutex<Vec<(String, Interrupt)>>>,
}

impl Running {
    /// Returns what ends everything, and calls `wake`.
    fn interrupt(&self, wake: impl Fn() + Send + Sync + 'static) -> Interrupt {
        let running = self.clone();
        self.stop.with(Interrupt::new(move || {
            for (_, interrupt) in running.lock().iter() {
                interrupt.interrupt();
            }
            wake();
        }))
    }

    fn begin(&self, name: &str, interrupt: &Interrupt) {
        self.lock().push((name.to_owned(), interrupt.clone()));
        // It may have come too late for the list.
        if self.stop.is_set() {
            interrupt.interrupt();
        }
    }

    fn end(&self, name: &str) {
        self.lock().retain(|(running, _)| running != name);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(String, Interrupt)>> {
        self.interrupts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits until a condition holds, but not beyond a time.
fn wait_until(deadline: Instant, mut is: impl FnMut() -> bool) {
    while !is() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(20));
    }
}
