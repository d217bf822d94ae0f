//! The hosts of serve, get, send, recv, stream, watch, gateway and smo serve, unchanged, in the
//! simulator.
//!
//! The surroundings of a host and its engine are replaced, all drawn from a seed: sessions are cut,
//! disks are slow, full or wrong, sources crash and return. The hosts, the engines and the
//! network's rules are the real ones. Everything runs in virtual time, so hundreds of seeds take
//! seconds.

mod feed;
mod hls;
mod later;
mod repository;
mod rtp;
mod smo;
mod store;
mod stream;

use std::sync::Arc;

use rand_xoshiro::Xoshiro256PlusPlus;
use umbel_sim::random::{Purpose, stream};

/// Runs a test for `count` seeds, or as `UMBEL_SEEDS=1000` or `UMBEL_SEED=7` say. A failure names
/// its seed.
fn for_seeds(count: u64, test: impl Fn(u64)) {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seeds = match number("UMBEL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("UMBEL_SEEDS").unwrap_or(count),
    };
    for seed in seeds {
        let run = std::panic::AssertUnwindSafe(|| test(seed));
        if let Err(panic) = std::panic::catch_unwind(run) {
            eprintln!("it fails with UMBEL_SEED={seed}");
            std::panic::resume_unwind(panic);
        }
    }
}

/// Returns an independent random stream for each thing in a scenario.
fn draws(seed: u64, number: u64) -> Xoshiro256PlusPlus {
    stream(seed, Purpose::Workload, number)
}

/// An observer that ignores everything.
struct Nobody;

impl crate::get::Observer for Nobody {}

fn nobody() -> Arc<Nobody> {
    Arc::new(Nobody)
}
