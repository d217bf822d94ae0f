//! What tests and benchmarks of several crates share: the seeds with which tests draw their faults,
//! and the processor time that a benchmark takes. Nothing else depends on this crate.
//!
//! Each test says how many seeds it takes to find what it looks for. `cargo test` draws only a few
//! of them, so that it is soon over; `UMBEL_SEEDS=all cargo test …` draws all, as `.ci/run` does,
//! `UMBEL_SEEDS=1000` so many for each test, and `UMBEL_SEED=7` that one.

use std::hint::black_box;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// Most seeds that a test draws where nobody asks for more.
const FEW: u64 = 10;

/// Returns the seeds of a test: the first of `count`, or what `UMBEL_SEEDS` or `UMBEL_SEED` say.
///
/// # Panics
///
/// If `UMBEL_SEEDS` is neither a number nor `all`.
pub fn seeds(count: u64) -> Range<u64> {
    if let Some(seed) = number("UMBEL_SEED") {
        return seed..seed + 1;
    }
    match std::env::var("UMBEL_SEEDS").as_deref() {
        Err(_) => 0..count.min(FEW),
        Ok("all") => 0..count,
        Ok(asked) => 0..asked.parse().expect("UMBEL_SEEDS is a number or `all`"),
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
