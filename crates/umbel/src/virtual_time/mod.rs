//! The hosts of serve, get, send, recv, stream, watch, gateway and smo serve, unchanged, in the
//! simulator.
//!
//! The surroundings of a host and its engine are replaced, and all are drawn from a seed. Sessions
//! are cut, disks are slow, full or wrong, sources crash and return. The hosts, the engines and the
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
use umbel_seeds::for_seeds;
use umbel_sim::random::{Purpose, stream};

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
