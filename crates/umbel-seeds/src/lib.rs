//! What tests and benchmarks of several crates share: the seeds with which tests draw their faults,
//! and the processor time that a benchmark takes. Nothing else depends on this crate.
//!
//! `UMBEL_SEEDS=1000 cargo test …` runs each test with 1,000 seeds, `UMBEL_SEED=7 cargo test …`
//! with that one.

use std::hint::black_box;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Returns the seeds of a test: 0 to `count`, or what `UMBEL_SEEDS` or `UMBEL_SEED` say.
pub fn seeds(count: u64) -> Range<u64> {
    match number("UMBEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("UMBEL_SEEDS").unwrap_or(count),
    }
}

/// Runs a test for each of its [`seeds`]. A failure names its seed.
pub fn for_seeds(count: u64, test: impl Fn(u64)) {
    for seed in seeds(count) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| test(seed))) {
            eprintln!("it fails with UMBEL_SEED={seed}");
            resume_unwind(panic);
        }
    }
}

/// Returns the number that is the value of an environment variable, if it is one.
pub fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Runs a step. Returns the seconds of the processor that this thread had for it, so that a busy
/// machine changes them little.
///
/// # Panics
///
/// If the system does not report them, as Linux does.
pub fn timed<T>(step: impl FnOnce() -> T) -> (f64, T) {
    let now = || clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map(Duration::from);
    let now = || now().expect("Linux has this clock");
    let begun = now();
    let result = black_box(step());
    (now().saturating_sub(begun).as_secs_f64(), result)
}
